"""Operators between our matmuls: the same values by onnxruntime and by onnx's evaluator, and the cuts of graphs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, reals, run

import heterocompute as hc
from heterocompute.interop.onnx_run import OnnxNetwork

onnx = pytest.importorskip("onnx")
helper, numpy_helper, FLOAT = onnx.helper, onnx.numpy_helper, onnx.TensorProto.FLOAT
BOTH = pytest.mark.parametrize("runtime", ["onnxruntime", "onnx"], indirect=True)


@pytest.fixture
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run models with onnxruntime, or without it."""
    name: str = getattr(request, "param", "onnxruntime")
    if name == "onnx":
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    else:
        pytest.importorskip("onnxruntime")
    return name


def model_of(
    nodes: list[Any], held: dict[str, Any], inputs: dict[str, Any], outputs: list[str], opset: int = 17, **options: Any
) -> Any:
    """Return a model with inputs like these arrays, and outputs with a type but no shape."""
    ends = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for k, x in inputs.items()
    ]
    answers = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "net", ends, answers, constants)
    sets = [helper.make_opsetid("", opset), *options.pop("sets", [])]
    return helper.make_model(graph, opset_imports=sets, ir_version=8, **options)


def one(op: str, x: Any, opset: int, held: dict[str, Any] | None = None, n_outputs: int = 1, **attributes: Any) -> Any:
    """Return the first output of one operator."""
    outputs = [f"y{i or ''}" for i in range(n_outputs)]
    node = helper.make_node(op, ["x", *(held or {})], outputs, **attributes)
    return hc.run_onnx(model_of([node], held or {}, {"x": x}, outputs, opset), x)["y"]


X = reals((2, 4, 7, 7), 1)
SCALE, BIAS, MEAN, VAR = (np.abs(reals((4,), seed)) + 0.5 for seed in (2, 3, 4, 5))


def windows(x: Any, kernel: int, step: int, before: int, after: int, fill: float) -> Any:
    padded = np.pad(x, ((0, 0), (0, 0), (before, after), (before, after)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))[:, :, ::step, ::step]


@BOTH
@pytest.mark.parametrize("opset", [7, 8, 9, 11, 13, 14, 15])
def test_batch_normalization_uses_what_it_learned(runtime: str, opset: int) -> None:
    s, b, m, v = (part.reshape(4, 1, 1) for part in (SCALE, BIAS, MEAN, VAR))
    held = {"s": SCALE, "b": BIAS, "m": MEAN, "v": VAR}
    found = one("BatchNormalization", X, opset, held, epsilon=0.1)
    np.testing.assert_allclose(found, (X - m) / np.sqrt(v + 0.1) * s + b, rtol=1e-5, atol=1e-5)


@BOTH
@pytest.mark.parametrize(("opset", "axis", "axes"), [(7, None, (1, 2, 3)), (11, 2, (2, 3)), (12, 0, (0, 1, 2, 3)),
                                                     (12, 3, (3,)), (13, None, (3,)), (13, 1, (1,))])  # fmt: skip
@pytest.mark.sweep(every=3)
def test_softmax_before_opset_13_takes_all_axes_from_one_on(runtime: str, opset: int, axis: Any, axes: Any) -> None:
    given = {} if axis is None else {"axis": axis}
    e = np.exp(X - X.max(axes, keepdims=True))
    wanted = e / e.sum(axes, keepdims=True)
    np.testing.assert_allclose(one("Softmax", X, opset, **given), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one("LogSoftmax", X, opset, **given), np.log(wanted), rtol=1e-4, atol=1e-5)


@BOTH
@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn_sums_neighbouring_channels(runtime: str, size: int) -> None:
    wanted = np.empty_like(X)
    for c in range(4):
        near = X[:, max(0, c - size // 2) : c + size // 2 + 1]
        wanted[:, c] = X[:, c] / (2 + 0.1 / size * (near**2).sum(1)) ** 0.75
    found = one("LRN", X, 13, size=size, alpha=0.1, beta=0.75, bias=2.0)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@BOTH
@pytest.mark.parametrize(("kernel", "step", "opset"), [(3, 2, 7), (2, 2, 12), (3, 3, 10), (2, 1, 12)])
def test_pooling_pads_an_odd_pixel_before(runtime: str, kernel: int, step: int, opset: int) -> None:
    total = max((-(-7 // step) - 1) * step + kernel - 7, 0)
    wanted = windows(X, kernel, step, -(-total // 2), total // 2, -np.inf).max((-1, -2))
    options = {"kernel_shape": [kernel] * 2, "strides": [step] * 2}
    assert np.array_equal(one("MaxPool", X, opset, auto_pad="SAME_LOWER", **options), wanted)
    uneven = windows(X, kernel, step, 1, 0, -np.inf).max((-1, -2))
    assert np.array_equal(one("MaxPool", X, opset, pads=[1, 1, 0, 0], **options), uneven)


@BOTH
def test_norms_and_pools_of_whole_channels(runtime: str) -> None:
    for axis in (-1, 1):
        wanted = X / np.abs(X).sum(axis, keepdims=True)
        np.testing.assert_allclose(one("LpNormalization", X, 13, p=1, axis=axis), wanted, rtol=1e-5)
    for x in (X, reals((2, 3, 9), 6), reals((2, 3, 4, 5, 6), 7)):
        axes = tuple(range(2, x.ndim))
        assert np.array_equal(one("GlobalMaxPool", x, 7), x.max(axes, keepdims=True))
        wanted = np.sqrt((x**2).sum(axes, keepdims=True))
        np.testing.assert_allclose(one("GlobalLpPool", x, 7), wanted, rtol=1e-5)


@BOTH
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_transposed_convolution_has_groups(runtime: str, groups: int) -> None:
    w, b = reals((4, 3, 2, 2), 8), reals((3 * groups,), 9)
    each, wanted = 4 // groups, np.zeros((2, 3 * groups, 14, 14), np.float32)
    for g in range(groups):
        part = np.einsum("ncij,ckrs->nkirjs", X[:, g * each : (g + 1) * each], w[g * each : (g + 1) * each])
        wanted[:, 3 * g : 3 * g + 3] = part.reshape(2, 3, 14, 14)
    found = one("ConvTranspose", X, 11, {"w": w, "b": b}, strides=[2, 2], group=groups)
    np.testing.assert_allclose(found, wanted + b.reshape(-1, 1, 1), rtol=1e-4, atol=1e-5)


@BOTH
def test_sizes_change_as_old_opsets_say(runtime: str) -> None:
    twice = X.repeat(2, 2).repeat(2, 3)
    scales = {"s": np.float32([1, 1, 2, 2])}
    assert np.array_equal(one("Resize", X, 10, scales), twice)
    assert np.array_equal(one("Upsample", X, 9, scales), twice)
    assert np.array_equal(one("Upsample", X, 7, scales=[1.0, 1.0, 2.0, 2.0]), twice)
    rows = (X + np.concatenate([X[:, :, 1:], X[:, :, -1:]], 2)) / 2
    wanted = np.stack([X, rows], 3).reshape(2, 4, 14, 7)
    for op, opset in (("Resize", 10), ("Upsample", 9)):
        found = one(op, X, opset, {"s": np.float32([1, 1, 2, 1])}, mode="linear")
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    smaller = {"s": np.float32([1, 1, 0.6, 0.4])}  # rounds up if the output is smaller
    assert np.array_equal(one("Resize", X, 10, smaller), X[:, :, [0, 2, 4, 5]][..., [0, 3]])


@BOTH
def test_aligned_corners_are_those_of_whole_pixels(runtime: str) -> None:
    scales = {"roi": np.zeros(0, np.float32), "s": np.float32([1, 1, 1, 1.5])}  # 7 columns become 10, not 10.5
    options = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    at = np.arange(10) * 6 / 9
    wanted = np.apply_along_axis(lambda row: np.interp(at, np.arange(7), row), -1, X)
    np.testing.assert_allclose(one("Resize", X, 13, scales, **options), wanted, rtol=1e-4, atol=1e-5)


S, W, R = reals((6, 2, 3), 1), reals((1, 20, 3), 2), reals((1, 20, 5), 3)


@pytest.mark.parametrize("runtime", ["onnx"], indirect=True)
@pytest.mark.parametrize(
    ("op", "x", "opset", "held", "options"),
    [
        ("Hardmax", X, 11, {}, {}),
        ("LSTM", S, 14, {"w": W, "r": R}, {"hidden_size": 5, "clip": 0.2, "n_outputs": 2}),
        ("GRU", S, 14, {"w": W[:, :15], "r": R[:, :15]}, {"hidden_size": 5, "activations": ["Relu"] * 2}),
        ("GridSample", X, 16, {"g": reals((2, 3, 3, 2), 4)}, {"mode": "bicubic"}),
        ("MaxRoiPool", X, 7, {"rois": np.float32([[0, 0, 0, 5, 5]])}, {"pooled_shape": [2, 2]}),
        ("ConvTranspose", X, 11, {"w": reals((4, 1, 3, 3), 5)}, {"output_shape": [14, 15], "strides": [2, 2]}),
    ],
)
def test_what_onnx_computes_wrongly_is_refused_by_name(
    runtime: str, op: str, x: Any, opset: int, held: dict[str, Any], options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=f"(?s){op}.*pip install onnxruntime"):
        one(op, x, opset, held, **options)


@BOTH
def test_recurrent_layers_may_name_their_usual_activations(runtime: str) -> None:
    named = one("LSTM", S, 14, {"w": W, "r": R}, 2, hidden_size=5, activations=["Sigmoid", "Tanh", "Tanh"])
    np.testing.assert_allclose(named, one("LSTM", S, 14, {"w": W, "r": R}, 2, hidden_size=5), rtol=1e-5)


def test_onnxruntime_runs_what_onnx_refuses(runtime: str) -> None:
    grid = reals((2, 3, 3, 2), 4)
    assert one("Hardmax", X, 11).sum() == 2
    assert one("GridSample", X, 16, {"g": grid}, mode="bicubic").shape == (2, 4, 3, 3)
    assert np.abs(one("LSTM", S, 14, {"w": W, "r": R}, 2, hidden_size=5, clip=0.2)).max() < 1


# Cuts of graphs.


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that grows with each session."""
    made, ort = [], pytest.importorskip("onnxruntime")

    class Counted(ort.InferenceSession):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            made.append(arguments[0])
            super().__init__(*arguments, **options)

    monkeypatch.setattr(ort, "InferenceSession", Counted)
    return made


def chain(n: int) -> tuple[Any, dict[str, Any]]:
    held = {f"w{i}": reals((6, 6), i) for i in range(n)}
    nodes = [helper.make_node("Abs", ["x"], ["r0"])]
    for i in range(n):
        nodes += [helper.make_node("MatMul", [f"r{i}", f"w{i}"], [f"m{i}"]),
                  helper.make_node("Tanh", [f"m{i}"], [f"t{i}"]),
                  helper.make_node("Add", [f"t{i}", "r0"], [f"r{i + 1}"])]  # fmt: skip
    return model_of(nodes, held, {"x": reals((3, 6), 9)}, [f"r{n}"]), held


def test_sessions_are_made_once(runtime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, x = counted(monkeypatch), reals((3, 6), 9)
    model, held = chain(3)
    network = OnnxNetwork(model)
    assert repr(network) == "<OnnxNetwork: 3 weights of Conv, Gemm and MatMul, x -> r3>"
    assert network._repr_html_().count("<tr") == 1 + 3
    assert not made
    whole = network.run(x)["r3"]
    assert len(made) == 1
    copies = {name: w.copy() for name, w in held.items()}
    packed = network.quantized({"w1": "int8"})
    for weights in (copies, packed, copies):
        found = network.run(x, weights)["r3"]
    assert len(made) == 1 + 4  # one before each product, one after the last
    np.testing.assert_allclose(found, whole, rtol=1e-5)
    with hc.use(threads=1 if hc.get_num_threads() > 1 else 2):
        network.run(x)
    assert len(made) == 1 + 4 + 1


def test_no_product_of_ours_is_one_session(runtime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch)
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {}, {"x": X}, ["y"])
    assert np.array_equal(hc.run_onnx(model, X)["y"], np.maximum(X, 0))
    assert len(made) == 1


@BOTH
def test_values_of_all_kinds_cross_the_cuts(runtime: str) -> None:
    w, x = reals((4, 4), 1), reals((3, 4), 2)
    nodes = [
        helper.make_node("Shape", ["x"], ["size"]),
        helper.make_node("SequenceConstruct", ["x", "x"], ["list"]),
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("Optional", ["x"], ["maybe"]),
        helper.make_node("Cast", ["x"], ["brain"], to=onnx.TensorProto.BFLOAT16),
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Reshape", ["a", "size"], ["b"]),
        helper.make_node("SequenceInsert", ["none", "b"], ["grown"]),
        helper.make_node("SequenceAt", ["list", "one"], ["second"]),
        helper.make_node("SequenceAt", ["grown", "zero"], ["first"]),
        helper.make_node("OptionalGetElement", ["maybe"], ["got"]),
        helper.make_node("Cast", ["brain"], ["back"], to=FLOAT),
        helper.make_node("Sum", ["first", "second", "got", "back"], ["y"]),
    ]
    held = {"w": w, "one": np.int64(1), "zero": np.int64(0)}
    model = model_of(nodes, held, {"x": x}, ["y", "list"])
    model.graph.output[1].CopyFrom(helper.make_tensor_sequence_value_info("list", FLOAT, None))
    found = hc.run_onnx(model, x, "int8")
    brain = (x.view(np.uint32) + 0x7FFF + (x.view(np.uint32) >> 16 & 1) >> 16 << 16).view(np.float32)
    wanted = hc.matmul(x, hc.quantize(w, "int8", axis=0)) + 2 * x + brain
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-6, atol=1e-6)
    assert [np.array_equal(one, x) for one in found["list"]] == [True, True]


@BOTH
def test_outputs_may_be_inputs_constants_and_inner_values(runtime: str) -> None:
    w, v, x = reals((4, 4), 1), reals((4, 4), 2), reals((3, 4), 3)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(v, "")),
        helper.make_node("Neg", ["c"], ["d"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("Abs", ["a"], ["dead"]),
    ]
    model = model_of(nodes, {"w": w}, {"x": x}, ["a", "same", "c", "d", "b", "w"])
    found, q = hc.run_onnx(model, x, "int8"), hc.quantize(w, "int8", axis=0)
    a = hc.matmul(x, q)
    wanted = {"a": a, "same": x, "c": v, "d": -v, "b": hc.matmul(a, q), "w": w}
    assert list(found) == list(wanted)
    assert all(np.array_equal(found[name], value) for name, value in wanted.items())


@BOTH
@pytest.mark.parametrize("opset", [9, 12, 17])
@pytest.mark.parametrize("kind", ["no shape", "no type", "no shapes"])
@pytest.mark.sweep(every=3)
def test_ends_may_have_no_shape_and_outputs_no_type(runtime: str, kind: str, opset: int) -> None:
    w, x = reals((4, 4), 1), reals((3, 4), 2)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["y"], axis=1)]
    model = model_of(nodes, {"w": w}, {"x": x}, ["y"], opset)
    if kind == "no type":
        model.graph.output[0].ClearField("type")
    if kind == "no shapes":
        model.graph.input[0].type.tensor_type.ClearField("shape")
    for formats in (None, "int8"):
        e = np.exp(x @ w if formats is None else hc.matmul(x, hc.quantize(w, "int8", axis=0)))
        np.testing.assert_allclose(hc.run_onnx(model, x, formats)["y"], e / e.sum(1, keepdims=True), rtol=1e-5)


@BOTH
@pytest.mark.parametrize("source", ["path", "large"])
def test_external_data_and_large_constants(
    runtime: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    w, b, x = reals((64, 64), 1), reals((64,), 2), reals((3, 64), 3)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])]
    model: Any = model_of(nodes, {"w": w, "b": b}, {"x": x}, ["y"])
    if source == "path":
        path = str(tmp_path / "m.onnx")
        onnx.save(model, path, save_as_external_data=True, location="data.bin", size_threshold=0)
        monkeypatch.chdir(tmp_path.parent)
        model = path
    else:
        monkeypatch.setattr("heterocompute.interop.onnx.sessions.LARGE", 1)
    for formats in (None, "int8"):
        product = x @ w if formats is None else hc.matmul(x, hc.quantize(w, "int8", axis=0))
        np.testing.assert_allclose(hc.run_onnx(model, x, formats)["y"], product + b, rtol=1e-4, atol=1e-5)


@BOTH
def test_inputs_become_what_the_model_declares(runtime: str, tmp_path: Path) -> None:
    w = reals((2, 2), 1)
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": w}, {"x": np.zeros((3, 2), "f4")}, ["y"])
    wanted = np.float32([[1, 2], [3, 4], [5, 6]]) @ w
    for x in ([[1, 2], [3, 4], [5, 6]], np.arange(1, 7, dtype=np.float64).reshape(3, 2)):
        np.testing.assert_allclose(hc.run_onnx(model, x)["y"], wanted, rtol=1e-6)
    for x, kind, words in [
        (np.zeros((3, 2), complex), TypeError, "input 'x' has dtype complex128, expected float32"),
        (np.zeros((4, 2)), ValueError, r"input 'x' has shape \(4, 2\), expected \(3, 2\)"),
        (np.zeros(2), ValueError, r"input 'x' has shape \(2,\), expected \(3, 2\)"),
    ]:
        with pytest.raises(kind, match=words):
            hc.run_onnx(model, x)
    ids = model_of([helper.make_node("Cast", ["x"], ["y"], to=FLOAT)], {}, {"x": np.zeros(2, np.int32)}, ["y"])
    assert np.array_equal(hc.run_onnx(ids, [1, 2])["y"], [1, 2])
    with bad_argument(ValueError, "input", "value"):
        hc.run_onnx(ids, [1, 2**40])
    with bad_argument(TypeError, "input", "dtype"):
        hc.run_onnx(ids, [1.5, 2])
    # a model with a batch of three evaluates four examples
    network = OnnxNetwork(model, np.float32([[1, 0], [0, 1], [1, 1], [2, 1]]), np.zeros(4, np.int64))
    wins = (np.float32([[1, 0], [0, 1], [1, 1], [2, 1]]) @ w).argmax(1) == 0
    assert network.evaluate(network.weights)["accuracy"] == wins.mean()


@BOTH
@pytest.mark.parametrize("opset", [5, 6])
def test_models_before_opset_7(runtime: str, opset: int) -> None:
    w, b, x = reals((4, 5), 1), reals((1, 5), 2), reals((3, 4), 3)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["c"], broadcast=1),
             helper.make_node("Relu", ["c"], ["y"])]  # fmt: skip
    model = model_of(nodes, {"w": w, "b": b}, {"x": x}, ["y"], opset)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, [3, 5]))
    np.testing.assert_allclose(hc.run_onnx(model, x)["y"], np.maximum(x @ w + b, 0), rtol=1e-5)
    wanted = np.maximum(hc.matmul(x, hc.quantize(w, "int4", axis=0)) + b, 0)
    np.testing.assert_allclose(hc.run_onnx(model, x, "int4")["y"], wanted, rtol=1e-5)


def test_operators_of_other_domains_are_onnxruntimes(runtime: str) -> None:
    w, x = reals((4, 4), 1), reals((3, 4), 2)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]),
             helper.make_node("FastGelu", ["a"], ["y"], domain="com.microsoft")]  # fmt: skip
    model = model_of(nodes, {"w": w}, {"x": x}, ["y"], sets=[helper.make_opsetid("com.microsoft", 1)])
    a = hc.matmul(x, hc.quantize(w, "int8", axis=0))
    wanted = a * (0.5 + 0.5 * np.tanh(a * (0.035677408136300125 * a * a + 0.7978845608028654)))
    np.testing.assert_allclose(hc.run_onnx(model, x, "int8")["y"], wanted, rtol=1e-4, atol=1e-5)


def test_onnx_runs_what_onnxruntime_refuses(runtime: str) -> None:
    w, x = reals((5, 4, 3, 3), 1).astype(np.float64), X.astype(np.float64)
    model = model_of([helper.make_node("Conv", ["x", "w"], ["y"])], {"w": w}, {"x": x}, ["y"])
    found = hc.run_onnx(model, x)["y"]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, hc.conv2d(X, w.astype(np.float32)), rtol=1e-4, atol=1e-4)
    lists = one("LSTM", S, 14, {"w": W, "r": R}, 2, hidden_size=5)
    turned = one("LSTM", S.swapaxes(0, 1).copy(), 14, {"w": W, "r": R}, 2, hidden_size=5, layout=1)
    np.testing.assert_allclose(turned[:, :, 0], lists[:, 0].swapaxes(0, 1), rtol=1e-4, atol=1e-5)
    with bad_argument(ValueError, "model", "unsupported"):
        one("LSTM", S.swapaxes(0, 1).copy(), 14, {"w": W, "r": R}, 2, hidden_size=5, layout=1, clip=0.2)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.onnx")
    for path in (tmp_path, tmp_path / "m.onnx"):
        with bad_argument(ValueError, None, "file", "expected a regular file"):
            hc.run_onnx(path, X)


@BOTH
def test_errors_name_the_operator(runtime: str) -> None:
    nodes = [helper.make_node("Nonsense", ["x"], ["y"])]
    with pytest.raises(ValueError, match="Nonsense"):
        hc.run_onnx(model_of(nodes, {}, {"x": X}, ["y"]), X)
    gather = helper.make_node("Gather", ["x", "i"], ["y"])
    with pytest.raises(ValueError, match="Gather"):
        hc.run_onnx(model_of([gather], {"i": np.int64([9])}, {"x": X}, ["y"]), X)


def test_evaluations_in_several_threads_do_not_mix(runtime: str) -> None:
    model, _ = chain(3)
    network, x = OnnxNetwork(model), reals((3, 6), 9)
    sets = [network.quantized(text) for text in ("int2", "int4", "int8")]
    wanted = [network.run(x, weights)["r3"] for weights in sets]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda i: network.run(x, sets[i % 3])["r3"], range(60)))
    assert all(np.array_equal(one, wanted[i % 3]) for i, one in enumerate(found))


@BOTH
def test_a_study_judges_by_examples(runtime: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, held = chain(2)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    x = reals((50, 6), 3)
    onnx.save(model, str(tmp_path / "net.onnx"))
    np.save(tmp_path / "x.npy", x.astype(np.float64))
    np.save(tmp_path / "y.npy", hc.run_onnx(model, x)["r2"].argmax(1))
    asked = ("--data", tmp_path / "x.npy", "--labels", tmp_path / "y.npy", "--formats", "int8,int2", "--json")
    code, out, error = run(capsys, "study", tmp_path / "net.onnx", *asked)
    assert code == 0, error
    rows = {row["format"]: row["accuracy"] for row in json.loads(out)["rows"]}
    found = [
        (hc.run_onnx(model, x, text)["r2"].argmax(1) == np.load(tmp_path / "y.npy")).mean() for text in ("int8", "int2")
    ]
    assert rows == {"fp32": 1.0, "int8": found[0], "int2": found[1]}
    network = OnnxNetwork(tmp_path / "net.onnx", x, np.load(tmp_path / "y.npy"))
    again = {row["format"]: row["accuracy"] for row in hc.study(network, ["int8", "int2"]).to_dict()["rows"]}
    assert again == rows  # along the axes of its operators, without axis=
    plan = hc.ptq.search(network, ["int2", "int8"], {"bits": 16})
    assert 8 < plan.bits <= 16 and len(held) == 2


def packaged() -> list[Any]:
    """Return the models of installed packages."""
    r = np.random.default_rng(0)
    state = {"state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000)}
    table: list[tuple[str, str, Callable[[], dict[str, Any]]]] = [
        (
            "magika",
            "models/standard_v3_3/model.onnx",
            lambda: {"bytes": r.integers(0, 256, (2, 2048)).astype(np.int32)},
        ),
        ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", lambda: {"x": reals((1, 3, 96, 64), 1)}),
        ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", lambda: {"x": reals((1, 3, 48, 96), 1)}),
        (
            "rapidocr_onnxruntime",
            "models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            lambda: {"x": reals((2, 3, 48, 192), 1)},
        ),
        ("silero_vad", "data/silero_vad.onnx", lambda: {"input": reals((1, 576), 1), **state}),
        ("silero_vad", "data/silero_vad_op18_ifless.onnx", lambda: {"input": reals((1, 576), 1), **state}),
    ]
    found = []
    for package, file, inputs in table:
        spec = find_spec(package)
        for folder in spec.submodule_search_locations or [] if spec else []:
            path = Path(folder) / file
            found += [pytest.param(path, inputs, id=path.stem)] if path.exists() else []
    return found or [pytest.param(None, None, marks=pytest.mark.skip(reason="no package with a model"))]


@pytest.mark.parametrize(("path", "inputs"), packaged())
def test_models_of_packages_give_what_onnxruntime_gives(runtime: str, path: Path, inputs: Any) -> None:
    import onnxruntime

    x = inputs()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    wanted = dict(zip([one.name for one in session.get_outputs()], session.run(None, x), strict=True))
    network = OnnxNetwork(path)
    assert network.weights
    for weights in (None, {name: w.copy() for name, w in network.weights.items()}):
        found = network.run(x, weights)
        assert list(found) == list(wanted)
        assert all(np.abs(found[name] - value).max() <= 1e-4 for name, value in wanted.items())
