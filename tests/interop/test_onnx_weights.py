"""Weights of ONNX models are found behind operators and in nested graphs, by the network and by the checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, reals, run

import heterocompute as hc
from heterocompute.interop.onnx_run import OnnxNetwork

onnx = pytest.importorskip("onnx")
helper, numpy_helper, FLOAT = onnx.helper, onnx.numpy_helper, onnx.TensorProto.FLOAT
node, info = helper.make_node, helper.make_tensor_value_info
X, W, V = reals((3, 6), 1), reals((6, 8), 2), reals((8, 4), 3)


@pytest.fixture(params=["onnxruntime", "onnx"], autouse=True)
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run models with onnxruntime, or without it."""
    if request.param == "onnx":
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    else:
        pytest.importorskip("onnxruntime")
    name: str = request.param
    return name


def model_of(nodes: list[Any], held: dict[str, Any], output: tuple[Any, ...] = (None, None), **options: Any) -> Any:
    constants = [numpy_helper.from_array(value, name) for name, value in held.items()]
    sets = [helper.make_opsetid("", 17), *options.pop("sets", [])]
    ends = [info("x", FLOAT, options.pop("input", [None, 6]))], [info("y", FLOAT, output)]
    sparse = options.pop("sparse", [])
    graph = helper.make_graph(nodes, "net", *ends, constants, sparse_initializer=sparse)
    return helper.make_model(graph, opset_imports=sets, ir_version=8, **options)


def rounded(w: Any, axis: Any = 0) -> Any:
    return hc.quantize(w, "int4", axis=axis)


def agree(model: Any, x: Any, wanted: Any, axes: dict[str, Any], tmp_path: Path) -> None:
    """Compare the model rounded to int4 with these values, and the axes of its weights in the file."""
    network = OnnxNetwork(model)
    assert network.axis == axes
    for source in (model, model.SerializeToString()):
        np.testing.assert_allclose(hc.run_onnx(source, x, "int4")["y"], wanted, rtol=1e-5, atol=1e-5)
    onnx.save(model, str(tmp_path / "m.onnx"))
    with hc.open_checkpoint(tmp_path / "m.onnx") as file:
        found = {name: axis if len(axis) > 1 else axis[0] for name, axis in file.axes.items()}
        assert found == axes
        assert all(np.array_equal(file[name], w) for name, w in network.weights.items())


@pytest.mark.parametrize("kinds", ["Identity", "Transpose", "Cast", "Transpose Identity Cast", "Identity Transpose"])
@pytest.mark.parametrize("operator", ["MatMul", "Gemm", "transB"])
def test_weights_behind_operators(kinds: str, operator: str, tmp_path: Path) -> None:
    w, dtype, is_turned = W, np.float32, operator == "transB"
    nodes, name = [], "w"
    for i, kind in enumerate(kinds.split()):
        nodes.append(node(kind, [name], [f"w{i}"], **({"to": FLOAT} if kind == "Cast" else {})))
        name = f"w{i}"
        is_turned ^= kind == "Transpose"
        dtype = np.float16 if kind == "Cast" else dtype
    stored = np.ascontiguousarray(w.T if is_turned else w).astype(dtype)
    product = node("MatMul", ["x", name], ["y"])
    if operator != "MatMul":
        product = node("Gemm", ["x", name], ["y"], transB=int(operator == "transB"))
    q = rounded(stored, int(is_turned)).dequantize()
    agree(model_of([*nodes, product], {"w": stored}), X, X @ (q.T if is_turned else q), {"w": int(is_turned)}, tmp_path)


def test_filters_behind_a_transposition(tmp_path: Path) -> None:
    w, x = reals((3, 2, 4, 5), 1), reals((1, 4, 6, 6), 2)  # height, width, in, out
    nodes = [node("Transpose", ["w"], ["t"], perm=[3, 2, 0, 1]), node("Conv", ["x", "t"], ["y"], strides=[2, 1])]
    model = model_of(nodes, {"w": w}, (1, 5, 2, 5), input=[1, 4, 6, 6])
    q = rounded(w, (0, 1, 2))
    wanted = hc.conv2d(x, q.dequantize().transpose(3, 2, 0, 1), stride=(2, 1))
    agree(model, x, wanted, {"w": (0, 1, 2)}, tmp_path)
    assert np.array_equal(hc.run_onnx(model, x, "int4", "int8")["y"], hc.conv2d(
        x, hc.quantize(np.ascontiguousarray(w.transpose(3, 2, 0, 1)), "int4", axis=(2, 3, 1)), stride=(2, 1),
        activations="int8"))  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"strides": [2], "pads": [1, 2]}, {"group": 2, "dilations": [2]},
                                     {"auto_pad": "SAME_LOWER", "strides": [2]}])  # fmt: skip
def test_filters_of_signals(options: dict[str, Any], tmp_path: Path) -> None:
    w, x = reals((6, 4 // options.get("group", 1), 3), 1), reals((2, 4, 10), 2)
    model = model_of([node("Conv", ["x", "w"], ["y"], **options)], {"w": w}, (2, 6, None), input=[2, 4, 10])
    q = rounded(w, (2, 1)).dequantize()
    step, hole = (options.get(key, [1])[0] for key in ("strides", "dilations"))
    groups = options.get("group", 1)
    before, after = options.get("pads", (1, 0) if "auto_pad" in options else (0, 0))
    padded = np.pad(x, ((0, 0), (0, 0), (before, after)))
    taps = np.lib.stride_tricks.sliding_window_view(padded, 2 * hole + 1, axis=2)[:, :, ::step, ::hole]
    parts = [np.einsum("nclr,kcr->nkl", t, f) for t, f in
             zip(np.split(taps, groups, 1), np.split(q, groups), strict=True)]  # fmt: skip
    agree(model, x, np.concatenate(parts, 1), {"w": (2, 1)}, tmp_path)


@pytest.mark.parametrize("operator", ["MatMul", "vector", "stack", "Gemm", "transA", "transB"])
def test_weights_on_the_left(operator: str, tmp_path: Path) -> None:
    x = {"vector": reals((6,), 1), "stack": reals((2, 6, 3), 1), "transB": X}.get(operator, X.T.copy())
    w = W.copy() if operator == "transA" else W.T.copy()  # (6, 8) and (8, 6)
    q = rounded(w, int(operator != "transA"))
    held, given = {"w": w}, {}
    if operator in ("Gemm", "transA", "transB"):
        held["c"], given = reals((8, 1), 4), {"alpha": 0.5, **({operator: 1} if operator != "Gemm" else {})}
    product = node("Gemm" if given else "MatMul", ["w", "x", *list(held)[1:]], ["y"], **given)
    model = model_of([product], held, [None] * x.ndim, input=list(x.shape))
    dense = q.dequantize().T if operator == "transA" else q.dequantize()
    wanted = dense @ (x.T if operator == "transB" else x)
    wanted = wanted * np.float32(0.5) + held["c"] if given else wanted
    agree(model, x, wanted, {"w": int(operator != "transA")}, tmp_path)
    if operator == "MatMul":
        found = hc.run_onnx(model, x, "int4", "int8")["y"]
        assert np.array_equal(found, hc.linear(x.T, q, activations="int8").T)


def test_integers_and_other_products_are_no_weights() -> None:
    nodes = [node("Cast", ["codes"], ["w"], to=FLOAT), node("MatMul", ["x", "w"], ["y"])]
    codes = np.ones((6, 4), np.int8)
    network = OnnxNetwork(model_of(nodes, {"codes": codes}))
    assert not network.weights
    np.testing.assert_allclose(network.run(X)["y"], X @ codes, rtol=1e-5)
    with pytest.raises(ValueError, match="activations: the model has no Conv, Gemm or MatMul .*MatMul 'y'"):
        network.run(X, activations="int8")


@pytest.mark.parametrize("ndim", [1, 2])
def test_sparse_weights_are_read_as_dense(ndim: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dense = np.where(np.abs(W) > 1, W, 0).astype(np.float32)
    at = np.argwhere(dense) if ndim == 2 else np.flatnonzero(dense)
    held = [numpy_helper.from_array(dense[dense != 0], "w"), numpy_helper.from_array(at.astype(np.int64), "w_at")]
    sparse = helper.make_sparse_tensor(*held, [6, 8])
    constant = node("Constant", [], ["v"])
    other = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([1, 2]), "v"), numpy_helper.from_array(np.int64([0, 9]), "v_at"), [8, 4]
    )
    constant.attribute.append(helper.make_attribute("sparse_value", other))
    v = np.zeros((8, 4), np.float32)
    v[0, 0], v[2, 1] = 1, 2
    nodes = [constant, node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v"], ["y"])]
    model = model_of(nodes, {}, sparse=[sparse])
    wanted = X @ rounded(dense).dequantize() @ rounded(v).dequantize()
    agree(model, X, wanted, {"w": 0, "v": 0}, tmp_path)
    assert len(model.graph.sparse_initializer) == 1  # the caller's model is unchanged
    code, _, error = run(capsys, "quantize", tmp_path / "m.onnx", tmp_path / "q.safetensors", "--format", "int4")
    assert code == 0, error
    assert hc.load(tmp_path / "q.safetensors")["w"] == rounded(dense)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ([0, 48], "an index outside"),
        ([-1, 0], "outside"),
        ([0], "2 values but indices"),
        ([[0, 0], [1, -1]], "outside"),
        ([[0, 0], [6, 0]], "outside"),
    ],
)
def test_sparse_weights_that_contradict_themselves(at: Any, words: str, tmp_path: Path) -> None:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([1, 2]), "w"), numpy_helper.from_array(np.int64(at), "w_at"), [6, 8]
    )
    model = model_of([node("MatMul", ["x", "w"], ["y"])], {}, sparse=[sparse])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with hc.open_checkpoint(tmp_path / "m.onnx") as file, pytest.raises(ValueError, match=words):
        file["w"]
    with bad_argument(ValueError, "model", "shape"):
        hc.run_onnx(model, X)


def test_sparse_weights_too_large_to_be_dense_are_skipped(tmp_path: Path) -> None:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([1]), "w"), numpy_helper.from_array(np.int64([0]), "w_at"), [2**20, 2**20]
    )
    model = model_of([node("MatMul", ["x", "w"], ["y"])], {}, sparse=[sparse])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with hc.open_checkpoint(tmp_path / "m.onnx") as file:
        assert "w" not in file and "sparse float32" in file.skipped["w"]


def test_constants_of_functions(tmp_path: Path) -> None:
    body = [node("Constant", [], ["w"], value=numpy_helper.from_array(W, "")), node("MatMul", ["a", "w"], ["b"])]
    function = helper.make_function("ours", "Layer", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    given = helper.make_function("ours", "Times", ["a", "c"], ["b"], [node("MatMul", ["a", "c"], ["b"])],
                                 [helper.make_opsetid("", 17)])  # fmt: skip
    nodes = [node("Layer", ["x"], ["h"], domain="ours"), node("Times", ["h", "v"], ["y"], domain="ours")]
    model = model_of(nodes, {"v": V}, functions=[function, given], sets=[helper.make_opsetid("ours", 1)])
    axes = OnnxNetwork(model).axis
    assert len(axes) == 2 and "v" in axes
    agree(model, X, X @ rounded(W).dequantize() @ rounded(V).dequantize(), axes, tmp_path)


def branch(name: str, nodes: list[Any], held: dict[str, Any], output: str = "b") -> Any:
    constants = [numpy_helper.from_array(value, key) for key, value in held.items()]
    return helper.make_graph(nodes, name, [], [info(output, FLOAT, None)], constants)


def test_weights_inside_if(tmp_path: Path) -> None:
    other = reals((6, 4), 4)
    inner = [node("MatMul", ["h", "v"], ["m"]), node("Add", ["m", "c"], ["b"])]
    yes = branch("yes", inner, {"v": V, "c": np.float32([1, 2, 3, 4])})
    no = branch("no", [node("Constant", [], ["v"], value=numpy_helper.from_array(other, "")),
                       node("MatMul", ["x", "v"], ["b"])], {})  # fmt: skip
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["holds"]),
        node("MatMul", ["x", "w"], ["h"]),
        node("If", ["holds"], ["y"], name="gate", then_branch=yes, else_branch=no),
    ]
    model = model_of(nodes, {"w": W, "zero": np.float32(0)})
    axes = {"w": 0, "gate.then_branch.v": 0, "gate.else_branch.v": 0}
    positive, negative = np.abs(X), -np.abs(X)
    q = [rounded(w).dequantize() for w in (W, V, other)]
    agree(model, positive, positive @ q[0] @ q[1] + np.float32([1, 2, 3, 4]), axes, tmp_path)
    agree(model, negative, negative @ q[2], axes, tmp_path)
    found = hc.run_onnx(model, negative, {"gate.then*": "int2"})["y"]
    np.testing.assert_allclose(found, negative @ other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("how", ["limit", "condition", "none"])
def test_weights_inside_loop(how: str, tmp_path: Path) -> None:
    w = reals((6, 6), 5)
    nodes = [
        node("MatMul", ["state", "w"], ["next"]),
        node("ReduceMax", ["next"], ["row"], keepdims=0),
        node("Less", ["i", "two"], ["more"]),
    ]
    inner = [info("i", onnx.TensorProto.INT64, []), info("go", onnx.TensorProto.BOOL, []), info("state", FLOAT, None)]
    after = [info("more", onnx.TensorProto.BOOL, []), info("next", FLOAT, None), info("row", FLOAT, [])]
    constants = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.int64(2), "two")]
    body = helper.make_graph(nodes, "body", inner, after, constants)
    limit = {"limit": 2, "condition": 9, "none": 0}[how]
    loop = node("Loop", ["n", "", "x"], ["last", "rows"], name="again", body=body)
    total = node("ReduceSum", ["rows"], ["sum"], keepdims=0)
    model = model_of([loop, total, node("Add", ["last", "sum"], ["y"])], {"n": np.int64(limit)})
    x, q, sum_ = X, rounded(w).dequantize(), np.float32(0)
    for _ in range({"limit": 2, "condition": 3, "none": 0}[how]):
        x = x @ q
        sum_ += x.max()
    agree(model, X, x + sum_, {"again.body.w": 0}, tmp_path)


@pytest.mark.parametrize("turn", [0, 1])
def test_weights_inside_scan(turn: int, tmp_path: Path) -> None:
    w = reals((6, 6), 6)
    nodes = [node("MatMul", ["slice", "w"], ["m"]), node("Add", ["m", "state"], ["next"]),
             node("Identity", ["next"], ["row"])]  # fmt: skip
    ends = [info("state", FLOAT, [6]), info("slice", FLOAT, [6])], [info("next", FLOAT, [6]), info("row", FLOAT, [6])]
    body = helper.make_graph(nodes, "body", *ends, [numpy_helper.from_array(w, "w")])
    scan = node("Scan", ["zero", "x"], ["last", "y"], name="over", body=body, num_scan_inputs=1,
                scan_input_directions=[turn], scan_output_directions=[turn], scan_output_axes=[1])  # fmt: skip
    model = model_of([scan], {"zero": np.zeros(6, np.float32)})
    rows = X[::-1] if turn else X
    wanted = np.cumsum(rows @ rounded(w).dequantize(), axis=0)
    agree(model, X, (wanted[::-1] if turn else wanted).T, {"over.body.w": 0}, tmp_path)


def test_names_inside_may_hide_those_around(tmp_path: Path) -> None:
    yes = branch("yes", [node("Neg", ["x"], ["w"]), node("MatMul", ["w", "u"], ["b"])], {"u": W})
    no = branch("no", [node("MatMul", ["x", "u"], ["b"])], {"u": -W})
    nodes = [node("If", ["holds"], ["h"], then_branch=yes, else_branch=no), node("MatMul", ["h", "v"], ["y"])]
    model = model_of(nodes, {"v": V, "holds": np.array(True), "w2": W})
    q, u = rounded(V).dequantize(), rounded(W).dequantize()
    axes = {"If0.then_branch.u": 0, "If0.else_branch.u": 0, "v": 0}
    agree(model, X, -X @ u @ q, axes, tmp_path)


def test_a_weight_that_two_layers_share_is_packed_once(tmp_path: Path) -> None:
    w = reals((6, 6), 7)
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Identity", ["w"], ["same"]),
        node("MatMul", ["a", "same"], ["b"]),
        node("Gather", ["w", "i"], ["g"]),
        node("Add", ["b", "g"], ["y"]),
    ]
    model, q = model_of(nodes, {"w": w, "i": np.int64([1])}), rounded(w).dequantize()
    agree(model, X, X @ q @ q + w[1], {"w": 0}, tmp_path)  # tables that are looked up keep their values
    nodes[1] = node("Transpose", ["w"], ["same"])
    assert OnnxNetwork(model_of(nodes, {"w": w, "i": np.int64([1])})).axis == {}
