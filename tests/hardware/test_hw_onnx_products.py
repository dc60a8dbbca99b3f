"""Matmuls of ONNX graphs, each with an independent count: kinds, operands, paddings, parameters."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

from heterocompute import hardware as hw

onnx = pytest.importorskip("onnx")
helper, proto = onnx.helper, onnx.TensorProto

Arrays = dict[str, Any]


def count(path: Path, nodes: list[Any], held: Arrays, x: list[Any], opset: int = 17, y: list[Any] | None = None,
          more: dict[str, list[Any]] | None = None, kind: int = proto.FLOAT) -> Any:  # fmt: skip
    """Count a graph from x to y, whose weights are ones of given shapes, or arrays."""
    arrays = {name: one if isinstance(one, np.ndarray) else np.ones(one, np.float32) for name, one in held.items()}
    made = [onnx.numpy_helper.from_array(one, name) for name, one in arrays.items()]
    inputs = [helper.make_tensor_value_info(name, kind, dims) for name, dims in {"x": x, **(more or {})}.items()]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", proto.FLOAT, y)], made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return hw.count(path)


def node(kind: str, inputs: str, outputs: str = "y", **options: Any) -> Any:
    """Make a node; a dot is an input or output that is left out."""
    left = {".": ""}
    names = ([left.get(one, one) for one in text.split()] for text in (inputs, outputs))
    return helper.make_node(kind, *names, **options)


STEPS = node("Transpose", "x", "t", perm=[1, 0, 2])
CASES: dict[str, tuple[list[Any], Arrays, list[int], int, int]] = {
    # nodes, weights, shape of a sample, multiply-adds and parameters of a sample
    "Conv of one dimension": ([node("Conv", "x w b", strides=[2], group=2)], {"w": (6, 2, 3), "b": (6,)},
                              [4, 9], 6 * 2 * 3 * 4, 42),
    "Conv of three dimensions": ([node("Conv", "x w")], {"w": (5, 3, 2, 3, 2)}, [3, 4, 5, 6], 5 * 36 * 3 * 3 * 5, 180),
    "Conv, SAME_UPPER": ([node("Conv", "x w", auto_pad="SAME_UPPER", strides=[2, 2])], {"w": (5, 3, 3, 3)},
                         [3, 7, 8], 5 * 27 * 4 * 4, 135),
    "Conv, SAME_LOWER": ([node("Conv", "x w", auto_pad="SAME_LOWER")], {"w": (5, 3, 2, 2)}, [3, 7, 8], 5 * 12 * 56, 60),
    "Conv, VALID": ([node("Conv", "x w", auto_pad="VALID")], {"w": (5, 3, 2, 2)}, [3, 7, 8], 5 * 12 * 42, 60),
    "Conv of uneven pads": ([node("Conv", "x w b", pads=[0, 1, 2, 3])], {"w": (5, 3, 3, 3), "b": (5,)},
                            [3, 7, 8], 5 * 27 * 7 * 10, 140),
    "ConvTranspose": ([node("ConvTranspose", "x w b", strides=[2, 2], pads=[1, 0, 0, 1])],
                      {"w": (3, 5, 3, 3), "b": (5,)}, [3, 7, 8], 3 * 56 * 5 * 9, 140),
    "ConvTranspose of groups": ([node("ConvTranspose", "x w", group=2)], {"w": (4, 3, 2)}, [4, 9], 4 * 9 * 3 * 2, 24),
    "W @ x": ([node("MatMul", "w x")], {"w": (6, 8)}, [8, 5], 240, 48),
    "W @ x of many": ([node("MatMul", "w x")], {"w": (2, 6, 8)}, [2, 8, 5], 480, 96),
    "x @ W of many": ([node("MatMul", "x w")], {"w": (2, 8, 5)}, [2, 6, 8], 480, 80),
    "x @ w of a vector": ([node("MatMul", "x w")], {"w": (8,)}, [6, 8], 48, 8),
    "x @ x": ([node("Transpose", "x", "t", perm=[0, 2, 1]), node("MatMul", "x t")], {}, [6, 8], 6 * 6 * 8, 0),
    "two layers of one matrix": ([node("MatMul", "x w", "h"), node("MatMul", "h w")], {"w": (8, 8)}, [3, 8], 384, 64),
    "two Convs of one filter": ([node("Conv", "x w b", "h", pads=[1, 1, 1, 1]), node("Conv", "h w b")],
                                {"w": (4, 4, 3, 3), "b": (4,)}, [4, 8, 8], 144 * (64 + 36), 152),
    "a matrix that is reshaped": ([node("Reshape", "w s", "v"), node("MatMul", "x v")],
                                  {"w": (4, 2, 5), "s": np.array([8, 5])}, [3, 8], 120, 40),
    "a matrix of another type": ([node("Cast", "w", "v", to=proto.FLOAT), node("MatMul", "x v")],
                                 {"w": np.ones((8, 5), np.float16)}, [3, 8], 120, 40),
    "a matrix that is scaled": ([node("Mul", "w g", "v"), node("MatMul", "x v")], {"w": (8, 5), "g": (1, 5)},
                                [3, 8], 120, 45),
    "a quantized matrix": ([node("DequantizeLinear", "w s z", "v", axis=1), node("MatMul", "x v")],
                           {"w": np.ones((8, 5), np.int8), "s": (5,), "z": np.zeros(5, np.int8)}, [3, 8], 120, 40),
    "LSTM": ([STEPS, node("LSTM", "t w r b", hidden_size=5)], {"w": (1, 20, 6), "r": (1, 20, 5), "b": (1, 40)},
             [7, 6], 7 * 20 * 11, 260),
    "LSTM of two directions": ([STEPS, node("LSTM", "t w r", ". y", hidden_size=5, direction="bidirectional")],
                               {"w": (2, 20, 6), "r": (2, 20, 5)}, [7, 6], 7 * 2 * 20 * 11, 440),
    "GRU": ([STEPS, node("GRU", "t w r b", hidden_size=5)], {"w": (1, 15, 6), "r": (1, 15, 5), "b": (1, 30)},
            [7, 6], 7 * 15 * 11, 195),
    "RNN": ([STEPS, node("RNN", "t w r", hidden_size=5)], {"w": (1, 5, 6), "r": (1, 5, 5)}, [7, 6], 7 * 5 * 11, 55),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch", [1, 5, "N"])
@pytest.mark.parametrize("constants", [False, True])
@pytest.mark.sweep(every=3)
def test_products_of_a_sample(name: str, batch: Any, constants: bool, tmp_path: Path) -> None:
    """For any batch, with weights as initializers or nodes."""
    nodes, held, sample, macs, params = CASES[name]
    if constants:
        arrays = {key: one if isinstance(one, np.ndarray) else np.ones(one, np.float32) for key, one in held.items()}
        made = [helper.make_node("Constant", [], [key], value=onnx.numpy_helper.from_array(one))
                for key, one in arrays.items()]  # fmt: skip
        nodes, held = [*made, *nodes], {}
    found = count(tmp_path / "m.onnx", nodes, held, [batch, *sample])
    assert (found.macs, found.params) == (macs, params)


def test_quantized_convolutions_count(tmp_path: Path) -> None:
    """Between QuantizeLinear and DequantizeLinear, and as integer operators: scales and zero points do not count."""
    held = {"w": np.ones((4, 3, 3, 3), np.int8), "b": np.ones(4, np.int32), "s": np.array(0.1, np.float32), "ws": (4,),
            "z": np.array(3, np.uint8), "wz": np.zeros(4, np.int8), "bz": np.zeros(4, np.int32)}  # fmt: skip
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d"),
             node("DequantizeLinear", "w ws wz", "wd", axis=0), node("DequantizeLinear", "b ws bz", "bd", axis=0),
             node("Conv", "d wd bd", "c"), node("QuantizeLinear", "c s z", "e"),
             node("DequantizeLinear", "e s z")]  # fmt: skip
    for batch in (1, 4, "N"):
        found = count(tmp_path / "qdq.onnx", nodes, held, [batch, 3, 8, 8])
        assert (found.macs, found.params) == (4 * 27 * 36, 4 * 27 + 4)
    nodes = [node("QuantizeLinear", "x s z", "q"), node("QLinearConv", "q s z w ws wz s z b", "c"),
             node("DequantizeLinear", "c s z")]  # fmt: skip
    found = count(tmp_path / "qlinear.onnx", nodes, held, [2, 3, 8, 8])
    assert (found.macs, found.params) == (4 * 27 * 36, 4 * 27 + 4)
    held = {"w": np.ones((8, 5), np.int8), "z": np.array(0, np.int8), "s": np.array(0.1, np.float32)}
    nodes = [node("DynamicQuantizeLinear", "x", "q qs qz"), node("MatMulInteger", "q w qz z", "i"),
             node("Cast", "i", "f", to=proto.FLOAT), node("Mul", "f s")]  # fmt: skip
    found = count(tmp_path / "dynamic.onnx", nodes, held, [2, 3, 8])
    assert (found.macs, found.params) == (120, 40)
    held |= {"uz": np.array(0, np.uint8)}
    nodes = [node("QuantizeLinear", "x s uz", "q"), node("QLinearMatMul", "q s uz w s z s uz", "c"),
             node("DequantizeLinear", "c s uz")]  # fmt: skip
    found = count(tmp_path / "matrix.onnx", nodes, held, [2, 3, 8])
    assert (found.macs, found.params) == (120, 40)


@pytest.mark.parametrize("batch", [1, 4, "N"])
def test_a_tied_table_counts_once(batch: Any, tmp_path: Path) -> None:
    nodes = [node("Gather", "w x", "h"), node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "h t")]
    found = count(tmp_path / "m.onnx", nodes, {"w": (11, 6)}, [batch, 3], kind=proto.INT64)
    assert (found.macs, found.params) == (198, 66)
    nodes = [node("Gather", "w x", "h"), node("Identity", "w", "v"), node("Gemm", "g v b", transB=1)]
    nodes.insert(1, node("Reshape", "h s", "g"))
    held = {"w": (11, 6), "b": (11,), "s": np.array([-1, 6])}
    found = count(tmp_path / "m.onnx", nodes, held, [batch, 3], kind=proto.INT64)
    assert (found.macs, found.params) == (198, 77)


@pytest.mark.parametrize("batch", [1, 4, "N"])
def test_graphs_of_two_inputs_count(batch: Any, tmp_path: Path) -> None:
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "z v", "b"), node("Add", "a b")]
    found = count(tmp_path / "m.onnx", nodes, {"w": (8, 5), "v": (4, 5)}, [batch, 3, 8], more={"z": [batch, 3, 4]})
    assert (found.macs, found.params) == (3 * 5 * 12, 60)
    nodes = [node("Transpose", "z", "t", perm=[0, 2, 1]), node("MatMul", "x t", "a"), node("Mul", "a r")]
    found = count(tmp_path / "m.onnx", nodes, {}, [batch, 3, 8], more={"z": [batch, 6, 8], "r": []})
    assert (found.macs, found.params) == (3 * 6 * 8, 0)


def test_constants_of_operators_are_no_parameters(tmp_path: Path) -> None:
    nodes = [node("Resize", "x r s", "h", mode="nearest"), node("Conv", "h w")]
    held = {"r": (8,), "s": np.array([1, 1, 2, 2], np.float32), "w": (5, 3, 3, 3)}
    found = count(tmp_path / "m.onnx", nodes, held, [1, 3, 4, 4])
    assert (found.macs, found.params) == (135 * 36, 135)


def test_sparse_weights_count_their_values(tmp_path: Path) -> None:
    values = onnx.numpy_helper.from_array(np.ones(7, np.float32), "w")
    places = onnx.numpy_helper.from_array(np.arange(7), "places")
    sparse = helper.make_sparse_tensor(values, places, [8, 5])
    ends = [
        helper.make_tensor_value_info(name, proto.FLOAT, dims) for name, dims in (("x", [1, 3, 8]), ("y", [1, 3, 5]))
    ]
    graph = helper.make_graph([node("MatMul", "x w")], "g", ends[:1], ends[1:], sparse_initializer=[sparse])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    assert (hw.count(path).macs, hw.count(path).params) == (120, 7)
    ends[1].type.tensor_type.ClearField("shape")  # of an output it may be left out
    graph = helper.make_graph([node("MatMul", "x w")], "g", ends[:1], ends[1:], sparse_initializer=[sparse])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    assert (hw.count(path).macs, hw.count(path).params) == (120, 7)


@pytest.mark.parametrize(
    ("nodes", "held", "words"),
    [
        ([node("Conv", "x w")], {"w": (5, 4, 3, 3)}, r"Conv convolves \(1, 3, 8, 8\) with filters \(5, 4, 3, 3\)"),
        ([node("DFT", "x", onesided=0)], {}, "DFT is a DFT of a kind that is not read"),
        ([node("Det", "x")], {}, "Det is a Det of a kind that is not read"),
    ],
)
def test_other_products_are_refused(nodes: list[Any], held: Arrays, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"m.onnx: .*{words}"):
        count(tmp_path / "m.onnx", nodes, held, [1, 3, 8, 8], y=[1, 5, 6, 6])


def test_views_of_a_graph_take_no_memory(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "c"), node("Reshape", "c s", "r"), node("Flatten", "r", "f"), node("Gemm", "f v")]
    held = {"w": (4, 3, 3, 3), "v": (144, 5), "s": np.array([0, 4, 36])}
    count(tmp_path / "m.onnx", nodes, held, [1, 3, 8, 8])
    assert hw.memory.training(tmp_path / "m.onnx").intermediates == 4 * math.prod((4, 6, 6))


def test_axes_that_a_file_leaves_open_come_from_the_call(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", pads=[1, 1, 1, 1], strides=[2, 2])]
    for open_axes in (["N", 3, "H", "W"], [4, 3, "H", "W"], ["N", 3, None, None]):
        with bad_argument(ValueError, None, "file", "the shape of 'x' is not known"):
            count(tmp_path / "m.onnx", nodes, {"w": (5, 3, 3, 3)}, open_axes)
        assert hw.count(tmp_path / "m.onnx", (3, 8, 6)).macs == 135 * 12


def test_functions_count_as_their_nodes(tmp_path: Path) -> None:
    held = helper.make_node("Constant", [], ["b"], value=onnx.numpy_helper.from_array(np.ones((8, 5), np.float32)))
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("mine", "Dense", ["a"], ["c"], [held, node("MatMul", "a b", "c")], opsets)
    ends = [helper.make_tensor_value_info(name, proto.FLOAT, [1, 3, n]) for name, n in (("x", 8), ("y", 5))]
    graph = helper.make_graph([node("Dense", "x", domain="mine")], "g", ends[:1], ends[1:])
    model = helper.make_model(
        graph, opset_imports=[*opsets, helper.make_opsetid("mine", 1)], functions=[function], ir_version=8
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    assert (hw.count(path).macs, hw.count(path).params) == (120, 40)


def test_an_einsum_of_a_tied_table_counts_it_once(tmp_path: Path) -> None:
    nodes = [node("Gather", "w x", "h"), node("Einsum", "h w", equation="bti,oi->bto")]
    found = count(tmp_path / "m.onnx", nodes, {"w": (11, 6)}, [1, 3], kind=proto.INT64)
    assert (found.macs, found.params) == (198, 66)


def test_a_constant_of_listed_floats_is_a_parameter(tmp_path: Path) -> None:
    nodes = [node("Constant", "", "w", value_floats=[1.0] * 8), node("MatMul", "x w")]
    found = count(tmp_path / "m.onnx", nodes, {}, [1, 3, 8])
    assert (found.macs, found.params) == (24, 8)
