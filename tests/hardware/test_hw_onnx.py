"""ONNX graphs of exporters: sizes that the graph computes, transposed weights, blocks of networks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from common import bad_argument

from heterocompute import hardware as hw

onnx = pytest.importorskip("onnx")
helper, proto = onnx.helper, onnx.TensorProto


def save(path: Path, nodes: list[Any], held: dict[str, tuple[int, ...]], ends: tuple[list[Any], list[Any]],
         sizes: dict[str, list[int]] | None = None) -> Path:  # fmt: skip
    made = [helper.make_tensor(name, proto.FLOAT, dims, [0.0] * math.prod(dims)) for name, dims in held.items()]
    made += [helper.make_tensor(name, proto.INT64, [len(v)], v) for name, v in (sizes or {}).items()]
    values = [helper.make_tensor_value_info(name, proto.FLOAT, dims) for name, dims in zip("xy", ends, strict=True)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], made)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    return path


@pytest.mark.parametrize("batch", [1, 4, "N"])
def test_a_reshape_by_computed_sizes_is_read(batch: Any, tmp_path: Path) -> None:
    """x.view(x.size(0), -1), as densenet and mobilenet_v3 flatten: Shape, Gather, Unsqueeze, Concat, Reshape."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Shape", ["c"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "rest"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["c", "sizes"], ["flat"]),
        helper.make_node("Gemm", ["flat", "fc", "b"], ["y"], transB=1),
    ]
    held = {"w": (6, 3, 3, 3), "fc": (5, 6 * 8 * 8), "b": (5,)}
    path = save(tmp_path / "view.onnx", nodes, held, ([batch, 3, 8, 8], [batch, 5]), {"zero": [0], "rest": [-1]})
    found = hw.count(path)
    assert found.macs == 6 * 27 * 64 + 5 * 384 and found.params == 162 + 5 * 384 + 5
    # Channel shuffle, as in relatives of RegNet: two Reshapes around a Transpose, with separate sizes.
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "split"], ["wide"], axis=0),
        helper.make_node("Reshape", ["x", "wide"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Concat", ["n", "merged"], ["back"], axis=0),
        helper.make_node("Reshape", ["b", "back"], ["c"]),
        helper.make_node("Conv", ["c", "w"], ["y"], kernel_shape=[1, 1]),
    ]
    sizes = {"zero": [0], "split": [2, 3, 8, 8], "merged": [6, 8, 8]}
    path = save(tmp_path / "shuffle.onnx", nodes, {"w": (4, 6, 1, 1)}, ([batch, 6, 8, 8], [batch, 4, 8, 8]), sizes)
    assert hw.count(path).macs == 4 * 6 * 64


@pytest.mark.parametrize("batch", ["N", "?"])
def test_axes_of_one_name_have_the_sizes_that_are_given(batch: str, tmp_path: Path) -> None:
    """An exporter calls every open axis "?"."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[1, 1])]
    path = save(tmp_path / "open.onnx", nodes, {"w": (4, 3, 1, 1)}, ([batch, 3, "?", "?"], [batch, 4, "?", "?"]))
    assert hw.count(path, (3, 6, 8)).macs == 4 * 3 * 6 * 8
    assert hw.count(path, (3, 6, 8), batch=2).layers[0]["output"] == [4, 6, 8]


@pytest.mark.parametrize("batch", [1, 4, "N"])
def test_a_block_of_convnext_counts(batch: Any, tmp_path: Path) -> None:
    """Depthwise 7 x 7, normalization of the last axis, two matmuls over (h, w, c), one scale per channel."""
    width, inner = 8, 32
    nodes = [
        helper.make_node("Conv", ["x", "stem", "b0"], ["s"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Conv", ["s", "dw", "b1"], ["d"], group=width, pads=[3, 3, 3, 3], kernel_shape=[7, 7]),
        helper.make_node("Transpose", ["d"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("LayerNormalization", ["t", "g", "be"], ["l"], axis=-1),
        helper.make_node("Transpose", ["m1"], ["m1t"], perm=[1, 0]),
        helper.make_node("MatMul", ["l", "m1t"], ["f"]),
        helper.make_node("Add", ["c1", "f"], ["fb"]),
        helper.make_node("Tanh", ["fb"], ["a"]),
        helper.make_node("MatMul", ["a", "m2"], ["f2"]),
        helper.make_node("Transpose", ["f2"], ["tt"], perm=[0, 3, 1, 2]),
        helper.make_node("Mul", ["scale", "tt"], ["sc"]),
        helper.make_node("Add", ["sc", "s"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["flat"]),
        helper.make_node("Gemm", ["flat", "fc", "fb0"], ["y"], transB=1),
    ]
    held = {"stem": (width, 3, 4, 4), "b0": (width,), "dw": (width, 1, 7, 7), "b1": (width,), "g": (width,),
            "be": (width,), "m1": (inner, width), "c1": (inner,), "m2": (inner, width), "scale": (width, 1, 1),
            "fc": (10, width), "fb0": (10,)}  # fmt: skip
    path = save(tmp_path / "block.onnx", nodes, held, ([batch, 3, 32, 32], [batch, 10]))
    found = hw.count(path)
    assert found.macs == 64 * (48 * width + 49 * width + 2 * width * inner) + 10 * width
    assert found.params == sum(math.prod(dims) for dims in held.values())
    for like in hw.CONVENTIONS:
        assert hw.count(path, like=like).total > 0
    assert hw.roofline(path, "t4", "fp16").seconds > 0 and hw.memory.training(path, recompute=2).total > 0


class Graph:
    """Nodes that are named after their outputs, and their constants."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.sizes: dict[str, list[int]] = {}

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"{kind.lower()}{len(self.nodes)}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def ints(self, *values: int) -> str:
        name = f"n{len(self.sizes)}"
        self.sizes[name] = list(values)
        return name

    def size(self, value: str, axis: int) -> str:
        return self.add("Gather", self.add("Shape", value), self.ints(axis))

    def shaped(self, value: str, *sizes: str | int) -> str:
        parts = [size if isinstance(size, str) else self.ints(size) for size in sizes]
        return self.add("Reshape", value, self.add("Concat", *parts, axis=0))

    def moved(self, value: str, *axes: int) -> str:
        return self.add("Transpose", value, perm=list(axes))

    def count(self, path: Path, last: str, held: dict[str, tuple[int, ...]], ends: Any) -> Any:
        self.nodes.append(helper.make_node("Identity", [last], ["y"]))
        return hw.count(save(path, self.nodes, held, ends, self.sizes))


@pytest.mark.parametrize("batch", [1, 4, "N"])
def test_a_unit_of_shufflenet_counts(batch: Any, tmp_path: Path) -> None:
    """Halves of the channels by computed Slices or by Split, one through a convolution, and a shuffle by view."""
    for split in (True, False):
        g = Graph()
        if split:
            left, right = g.add("Split", "x", outputs=2, axis=1)
        else:
            half = g.add("Div", g.add("Add", g.size("x", 1), g.ints(1)), g.ints(2))
            left = g.add("Slice", "x", g.ints(0), half, g.ints(1))
            right = g.add("Slice", "x", half, g.add("Mul", half, g.ints(2)), g.ints(1))
        both = g.add("Concat", left, g.add("Conv", right, "w", kernel_shape=[1, 1]), axis=1)
        n, c, h, w = (g.size(both, axis) for axis in range(4))
        wide = g.moved(g.shaped(both, n, 2, g.add("Div", c, g.ints(2)), h, w), 0, 2, 1, 3, 4)
        y = g.add("Conv", g.shaped(wide, n, -1, h, w), "v", kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=8)
        held = {"w": (4, 4, 1, 1), "v": (8, 1, 3, 3)}
        found = g.count(tmp_path / "shuffle.onnx", y, held, ([batch, 8, 6, 5], [batch, 8, 6, 5]))
        assert (found.macs, found.params) == (30 * (16 + 8 * 9), 16 + 72)


@pytest.mark.parametrize("batch", [1, 4, "N"])
def test_a_vision_transformer_counts(batch: Any, tmp_path: Path) -> None:
    """Patches, a class token that Expand repeats, attention with the batch behind the positions or in the heads."""
    width, heads, positions = 12, 2, 5
    g = Graph()
    patches = g.add("Conv", "x", "patch", kernel_shape=[4, 4], strides=[4, 4])
    n = g.size("x", 0)
    tokens = g.moved(g.shaped(patches, n, width, -1), 0, 2, 1)
    wanted = g.add("Concat", n, g.ints(-1), g.ints(-1), axis=0)
    ones = g.add("ConstantOfShape", g.ints(3), value=helper.make_tensor("v", proto.INT64, [1], [1]))
    same = g.add("Equal", wanted, g.add("Mul", ones, g.ints(-1)))
    token = g.add("Expand", "token", g.add("Where", same, ones, wanted))
    all_of_them = g.add("Add", g.add("Concat", token, tokens, axis=1), "position")
    t = g.moved(g.add("LayerNormalization", all_of_them, "g", "b", axis=-1), 1, 0, 2)
    qkv = g.shaped(g.add("Add", g.add("MatMul", t, "in"), "bias"), g.size(t, 0), g.size(t, 1), 3, width)
    qkv = g.add("Squeeze", g.moved(g.add("Unsqueeze", qkv, g.ints(0)), 3, 1, 2, 0, 4), g.ints(-2))
    folded = g.add("Mul", g.size(t, 1), g.ints(heads))
    # a scalar index takes the axis away
    scalars = [g.add("Constant", value=helper.make_tensor("i", proto.INT64, [], [i])) for i in range(3)]
    q, k, v = (g.shaped(g.add("Gather", qkv, i, axis=0), positions, folded, width // heads) for i in scalars)
    scores = g.add("Softmax", g.add("MatMul", g.moved(q, 1, 0, 2), g.moved(k, 1, 2, 0)))
    mixed = g.moved(g.add("MatMul", scores, g.moved(v, 1, 0, 2)), 1, 0, 2)
    rows = g.add("Gemm", g.shaped(mixed, g.add("Mul", g.size(t, 0), g.size(t, 1)), width), "out", "out_b", transB=1)
    rows = g.moved(g.shaped(rows, positions, g.size(t, 1), width), 1, 0, 2)
    first = g.add("Gather", g.add("Add", all_of_them, rows), scalars[0], axis=1)
    y = g.add("Gemm", first, "head", "head_b", transB=1)
    held = {"patch": (width, 3, 4, 4), "token": (1, 1, width), "position": (1, positions, width), "g": (width,),
            "b": (width,), "in": (width, 3 * width), "bias": (3 * width,), "out": (width, width), "out_b": (width,),
            "head": (7, width), "head_b": (7,)}  # fmt: skip
    found = g.count(tmp_path / "vit.onnx", y, held, ([batch, 3, 8, 8], [batch, 7]))
    products = [4 * 48 * width, positions * width * 3 * width, positions**2 * width, positions**2 * width]
    assert found.macs == sum(products) + positions * width**2 + width * 7
    assert found.params == sum(math.prod(dims) for dims in held.values())


@pytest.mark.parametrize("batch", [1, 4, "N"])
def test_shifted_windows_count(batch: Any, tmp_path: Path) -> None:
    """Swin: padding and rolls with computed sizes, windows that are folded into the batch, a table of positions."""
    width, heads, window = 6, 3, 4
    g = Graph()
    x = g.moved("x", 0, 2, 3, 1)  # (n, 7, 7, width), padded to 8
    n, missing = g.size(x, 0), g.add("Mod", g.add("Sub", g.ints(window), g.size(x, 1)), g.ints(window))
    zero = g.ints(0)
    x = g.add("Pad", x, g.add("Concat", zero, zero, zero, zero, zero, missing, missing, zero, axis=0))
    for axis in (1, 2):
        side = g.size(x, axis)
        parts = ((g.ints(2), side), (zero, g.ints(2)))
        x = g.add("Concat", *(g.add("Slice", x, low, high, g.ints(axis)) for low, high in parts), axis=axis)
    across = g.add("Div", g.size(x, 1), g.ints(window))
    x = g.moved(g.shaped(x, n, across, window, across, window, width), 0, 1, 3, 2, 4, 5)
    count = g.add("Mul", n, g.add("Mul", across, across))
    x = g.shaped(x, count, window**2, width)
    qkv = g.moved(g.shaped(g.add("MatMul", x, "qkv"), g.size(x, 0), window**2, 3, heads, 2), 2, 0, 3, 1, 4)
    scalars = [g.add("Constant", value=helper.make_tensor("i", proto.INT64, [], [i])) for i in range(3)]
    q, k, v = (g.add("Gather", qkv, i, axis=0) for i in scalars)
    places = g.ints(*[0] * window**4)
    bias = g.moved(g.add("Reshape", g.add("Gather", "table", places), g.ints(window**2, window**2, heads)), 2, 0, 1)
    scores = g.add("Add", g.add("MatMul", q, g.moved(k, 0, 1, 3, 2)), g.add("Unsqueeze", bias, zero))
    y = g.moved(g.add("MatMul", g.add("Softmax", scores), v), 0, 2, 1, 3)
    y = g.add("MatMul", g.shaped(y, g.size(x, 0), window**2, width), "out")
    held = {"qkv": (width, 3 * width), "table": ((2 * window - 1) ** 2, heads), "out": (width, width)}
    y = g.shaped(y, n, -1, width)
    found = g.count(tmp_path / "swin.onnx", y, held, ([batch, width, 7, 7], [batch, 64, width]))
    assert found.macs == 64 * (4 * width**2 + 2 * window**2 * width)
    assert found.params == sum(math.prod(dims) for dims in held.values())


def test_sizes_that_a_hostile_graph_computes_stay_small(tmp_path: Path) -> None:
    g = Graph()
    huge = g.add("ConstantOfShape", g.ints(2**40), value=helper.make_tensor("v", proto.INT64, [1], [1]))
    with bad_argument(ValueError, None, "file", "the shape of .* is not known"):
        g.count(tmp_path / "huge.onnx", g.add("Reshape", "x", huge), {}, ([1, 8], [1, 8]))
    g = Graph()
    grown = g.ints(*[1] * 64)
    for _ in range(60):
        grown = g.add("Concat", grown, grown, axis=0)
    with bad_argument(ValueError, None, "file", "the shape of .* is not known"):
        g.count(tmp_path / "grown.onnx", g.add("Reshape", "x", grown), {}, ([1, 8], [1, 8]))


def product(
    path: Path, equation: Any, first: list[Any], second: list[Any], held: bool = False, last: Any = None
) -> Any:
    """Count an einsum of two activations, the second derived from the first by views, or of one and a weight."""
    g = Graph()
    other = "w" if held else g.add("Reshape", "x", g.ints(*second))
    y = g.add("Einsum", "x", other, equation=equation)
    return g.count(path / "product.onnx", y, {"w": tuple(second)} if held else {}, (first, last))


@pytest.mark.parametrize("batch", [1, 4, "N"])
def test_einsum_counts(batch: Any, tmp_path: Path) -> None:
    """MaxViT's attention in windows (batch, windows, heads, positions, width), and matmuls with weights."""
    g = Graph()
    q = g.add("Reshape", g.add("MatMul", "x", "q"), g.ints(-1, 4, 2, 9, 8))
    k = g.add("Reshape", g.add("MatMul", "x", "k"), g.ints(-1, 4, 2, 9, 8))
    scores = g.add("Softmax", g.add("Einsum", q, k, equation="B G H I D, B G H J D -> B G H I J"))
    mixed = g.add("Einsum", scores, k, equation="BGHIJ,BGHJD->BGHID")
    heads = g.add("Einsum", mixed, "heads", equation="bghid,hdo->bgio")  # one matrix per head, summed over the heads
    y = g.add("Einsum", "last", heads, equation="on,bgio->bgin")  # the weight first
    held = {"q": (16, 16), "k": (16, 16), "heads": (2, 8, 16), "last": (16, 5)}
    found = g.count(tmp_path / "maxvit.onnx", y, held, ([batch, 4 * 9, 16], [batch, 4, 9, 5]))
    layers = {one["name"]: one["macs"] for one in found.layers if one["macs"]}
    attention = 4 * 2 * 9 * 9 * 8
    assert list(layers.values()) == [36 * 16**2] * 2 + [attention] * 2 + [36 * 16 * 16, 36 * 16 * 5]
    assert found.params == sum(math.prod(dims) for dims in held.values())
    path = tmp_path / "maxvit.onnx"
    assert {one.groups for one in hw.as_network(path).problems()} == {1, 8}
    assert hw.roofline(path, "t4", "fp16").seconds > 0 and hw.count(path, like="torch").total == 2 * found.macs


def test_einsum_by_definition(tmp_path: Path) -> None:
    """A label of one operand alone is summed first; without an output the labels that stand once remain, sorted."""
    for equation, macs in (("bij,jk->bik", 3 * 4 * 5), ("bij,jk", 3 * 4 * 5), ("bij,jk->bk", 4 * 5),
                           ("bij,jk->bijk", 60), ("bji,jk->bk", 3 * 5), ("bij,kl->bijkl", 3 * 4 * 4 * 5)):  # fmt: skip
        rows = 3 if equation.startswith("bji") else 4
        assert product(tmp_path, equation, [2, 3, 4], [rows, 5], held=True).macs == macs


@pytest.mark.parametrize(
    ("equation", "sentence"),
    [
        ("...ij,...jk->...ik", "has an ellipsis, which is not read"),
        ("bii,bij->bij", "repeats a label in 'bii', which is not read"),
        ("bij,bjk->bikk", "repeats a label in 'bikk'"),
        ("bij,bjk,bkl->bil", "has 3 operands, two are read"),
        ("bij->bji", "has 1 operands, two are read"),
        ("bij,bjk->biz", "has an output of labels that no operand has"),
        ("bij,b2k->bik", "has 'b2k', expected letters"),
        ("bij,bjk->bi->k", "expected letters"),
        ("bij,bj->bi", "does not fit"),
        ("bij,bkj->bik", "does not fit"),
        ("bij,cjk->bcik", "holds the batch 7 in every activation"),
        ("", "has 1 operands, two are read"),
        ("," * 10**5, "has 100001 operands"),
        ("é", "expected a text of letters"),
        (3, "expected a text of letters"),
        (None, "expected a text of letters"),
    ],
)
def test_einsums_that_are_not_read_say_why(equation: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=sentence) as found:
        product(tmp_path, equation, [7, 3, 4], [-1, 4, 3])
    assert len(str(found.value)) < 500


@pytest.mark.parametrize(
    "nodes, words",
    [
        ([("MatMul", ["v", "w"], ["y"], {})], "MatMul reads 'v', which nothing before it makes"),
        ([("Add", ["x", "y"], ["a"], {}), ("Add", ["a", "x"], ["y"], {})], "Add reads 'y', which nothing"),
        ([("Gemm", ["x", "w"], ["y"], {"transA": 1})], "Gemm transposes what it is given"),
        ([("Shape", ["x"], ["s"], {}), ("Div", ["s", "zeros"], ["t"], {}), ("Reshape", ["x", "t"], ["a"], {}),
          ("MatMul", ["a", "w"], ["y"], {})], "the shape of 'a' is not known"),
    ],
)  # fmt: skip
def test_graphs_that_mean_nothing_are_refused(nodes: list[Any], words: str, tmp_path: Path) -> None:
    made = [helper.make_node(kind, given, found, **options) for kind, given, found, options in nodes]
    path = save(tmp_path / "odd.onnx", made, {"w": (8, 4)}, ([8, 8], [8, 4]), {"zeros": [0, 0]})
    with pytest.raises(ValueError, match=f"odd.onnx: .*{words}"):
        hw.count(path)


def conditional(path: Path, condition: list[Any], branches: tuple[Any, Any], inputs: list[Any] | None = None,
                after: list[Any] | None = None) -> Path:  # fmt: skip
    """Save x (N, 8) -> If -> "z" -> y, with weights "w" (8, 16) and "v" (8, 4)."""
    graphs = [helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info(end, proto.FLOAT, None)], held)
              for nodes, end, held in branches]  # fmt: skip
    nodes = [*condition, helper.make_node("If", ["c"], ["z"], "choose", then_branch=graphs[0], else_branch=graphs[1])]
    nodes += after or [helper.make_node("Relu", ["z"], ["y"])]
    held = [helper.make_tensor(n, proto.FLOAT, d, [0.0] * math.prod(d)) for n, d in (("w", (8, 16)), ("v", (8, 4)))]
    held.append(helper.make_tensor("two", proto.INT64, [], [2]))
    x, y = (helper.make_tensor_value_info(name, proto.FLOAT, dims) for name, dims in (("x", ["N", 8]), ("y", None)))
    graph = helper.make_graph(nodes, "g", [x, *(inputs or [])], [y], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(path))
    return path


def one_matmul(weights: str, end: str = "out") -> Any:
    return [helper.make_node("MatMul", ["x", weights], [end], f"by_{weights}")], end, []


FLAG = helper.make_tensor_value_info("c", proto.BOOL, [])
RATE = helper.make_tensor_value_info("rate", proto.INT64, [])


def test_of_a_conditional_the_larger_branch_counts(tmp_path: Path) -> None:
    path = conditional(tmp_path / "if.onnx", [], (one_matmul("v"), one_matmul("w")), [FLAG])
    found = hw.count(path)
    assert (found.macs, found.params) == (8 * 16, 8 * 16)
    assert [row["name"] for row in found.layers if row["macs"]] == ["by_w"]
    assert found.leaves_out.endswith("the then branch of choose")
    assert hw.roofline(path, "t4", "fp16").seconds > 0
    same = hw.count(conditional(tmp_path / "same.onnx", [], (one_matmul("v"), one_matmul("v")), [FLAG]))
    assert same.macs == 8 * 4 and "branch of" not in same.leaves_out


def test_a_condition_on_values_that_all_samples_share_is_read(tmp_path: Path) -> None:
    """As silero-vad compares the sampling rate."""
    condition = [helper.make_node("Equal", ["rate", "two"], ["c"])]
    found = hw.count(conditional(tmp_path / "rate.onnx", condition, (one_matmul("w"), one_matmul("v")), [RATE]))
    assert found.macs == 8 * 16 and found.leaves_out.endswith("the else branch of choose")


@pytest.mark.parametrize("rank_is_two", [True, False])
def test_shapes_decide_a_condition(rank_is_two: bool, tmp_path: Path) -> None:
    condition = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Size", ["s"], ["rank"]),
                 helper.make_node("Equal", ["rank", "two"], ["c" if rank_is_two else "no"])]  # fmt: skip
    condition += [] if rank_is_two else [helper.make_node("Not", ["no"], ["c"])]
    found = hw.count(conditional(tmp_path / "rank.onnx", condition, (one_matmul("v"), one_matmul("w"))))
    assert found.macs == 8 * (4 if rank_is_two else 16) and "branch of" not in found.leaves_out


def test_branches_inside_branches_keep_their_names_apart(tmp_path: Path) -> None:
    """Both conditionals have branches that call their values alike, with an initializer of their own."""
    own = [helper.make_tensor("own", proto.FLOAT, (16, 2), [0.0] * 32)]
    small = [helper.make_node("MatMul", ["x", "v"], ["out"])], "out", []
    wide = (
        [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("MatMul", ["t", "own"], ["out"])],
        "out",
        own,
    )
    graphs = [helper.make_graph(nodes, "inner", [], [helper.make_tensor_value_info(end, proto.FLOAT, None)], held)
              for nodes, end, held in (small, wide)]  # fmt: skip
    inner = helper.make_node("If", ["c"], ["out"], "inside", then_branch=graphs[0], else_branch=graphs[1])
    again = helper.make_node("If", ["c"], ["y"], "second", then_branch=graphs[0], else_branch=graphs[1])
    path = conditional(tmp_path / "deep.onnx", [], (([inner], "out", []), one_matmul("v")), [FLAG], [again])
    found = hw.count(path)
    assert found.macs == 2 * (8 * 16 + 16 * 2)
    assert found.params == 8 * 16 + 2 * 16 * 2  # both own theirs
    assert found.leaves_out.count("branch of") == 3 and "the then branch of inside" in found.leaves_out


def test_a_branch_that_does_not_fit_is_never_the_one(tmp_path: Path) -> None:
    odd = [helper.make_node("Reshape", ["x", "five"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["out"])]
    five = [helper.make_tensor("five", proto.INT64, [2], [-1, 5])]
    found = hw.count(conditional(tmp_path / "odd.onnx", [], ((odd, "out", five), one_matmul("v")), [FLAG]))
    assert found.macs == 8 * 4 and found.leaves_out.endswith("the then branch of choose, which does not fit the input")
    path = conditional(tmp_path / "none.onnx", [], ((odd, "out", five), (odd, "out", five)), [FLAG])
    with pytest.raises(ValueError, match="^[^\n]*none.onnx: "):
        hw.count(path)


def test_the_batch_of_another_input_may_follow_its_first_axis(tmp_path: Path) -> None:
    """The state of a recurrent layer: layers x batch x width, where the exporter names no axis."""
    nodes = [helper.make_node("Gather", ["state", "at"], ["h"], axis=0), helper.make_node("Add", ["x", "h"], ["s"]),
             helper.make_node("MatMul", ["s", "w"], ["y"])]  # fmt: skip
    held = [helper.make_tensor("w", proto.FLOAT, (8, 3), [0.0] * 24), helper.make_tensor("at", proto.INT64, [], [0])]
    values = [("x", [None, 8]), ("state", [2, None, 8]), ("y", None)]
    x, state, y = (helper.make_tensor_value_info(name, proto.FLOAT, dims) for name, dims in values)
    graph = helper.make_graph(nodes, "g", [x, state], [y], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(tmp_path / "state.onnx"))
    assert hw.count(tmp_path / "state.onnx").macs == 24


def test_a_size_that_follows_from_an_open_input_says_how_to_give_it(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    path = save(tmp_path / "open.onnx", nodes, {"w": (4, 3)}, (["N", "T", 4], ["N", "T", 3]))
    with pytest.raises(ValueError, match=r"the shape of 'r' is not known: batch, \?, 4; input_shape \(--input\) gives"):
        hw.count(path)
    assert hw.count(path, (5, 4)).macs == 60


def test_the_files_of_silero_vad_count() -> None:
    folder = Path(pytest.importorskip("silero_vad").__file__).parent / "data"
    # STFT of 4 frames, four convolutions, an LSTM of 128, one output
    macs = 4 * 258 * 256 + 3 * (4 * 129 * 128 + 2 * 128 * 64 + 64 * 64 + 64 * 128) + 2 * 128 * 512 + 128
    for name in ("silero_vad.onnx", "silero_vad_16k_op15.onnx", "silero_vad_half.onnx", "silero_vad_op18_ifless.onnx"):
        found = hw.count(folder / name, (576,))
        assert (found.macs, found.params) == (macs, 309633)
