"""Operators that onnx's evaluator computes wrongly: right without onnxruntime, and as onnxruntime has them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from common import reals

import heterocompute as hc

onnx = pytest.importorskip("onnx")
helper = onnx.helper
ml_dtypes = pytest.importorskip("ml_dtypes")
HALF = np.float16
DTYPES = pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])


@pytest.fixture(params=["onnx", "onnxruntime"])
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run models without onnxruntime, or with it."""
    name: str = request.param
    if name == "onnx":
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    else:
        pytest.importorskip("onnxruntime")
    return name


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)


def outputs(op: str, *inputs: Any, kinds: tuple[Any, ...] = (), opset: int = 21, **attributes: Any) -> list[Any]:
    """Return the outputs of one operator; `kinds` are their dtypes, by default that of the first input."""
    arrays = {f"x{i}": np.asarray(one) for i, one in enumerate(inputs)}
    number = helper.np_dtype_to_tensor_dtype
    given = [helper.make_tensor_value_info(k, number(one.dtype), one.shape) for k, one in arrays.items()]
    made = [
        helper.make_tensor_value_info(f"y{i}", number(np.dtype(kind)), None)
        for i, kind in enumerate(kinds or (arrays["x0"].dtype,))
    ]
    node = helper.make_node(op, list(arrays), [one.name for one in made], **attributes)
    graph = helper.make_graph([node], "one", given, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return list(hc.run_onnx(model, arrays).values())


def close(found: Any, wanted: Any, dtype: Any) -> None:
    """Compare with values of float64, to about two units of the last place."""
    assert found.dtype == dtype
    size = max(1.0, float(np.abs(wanted).max(initial=0)))
    step = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-6, "float64": 1e-12}[np.dtype(dtype).name]
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=step, atol=step * size)


def norm(x: Any, axes: tuple[int, ...], epsilon: float = 1e-5) -> Any:
    wide = x.astype(np.float64)
    wide = wide - wide.mean(axes, keepdims=True)
    return wide / np.sqrt((wide * wide).mean(axes, keepdims=True) + epsilon)


@DTYPES
@pytest.mark.usefixtures("alone")
def test_norms_of_values_whose_squares_are_beyond_half_precision(dtype: Any) -> None:
    x = (300 * reals((2, 6, 5, 4), 1)).astype(dtype)
    ones, zeros = np.ones(6, dtype), np.zeros(6, dtype)
    row = np.linspace(0.5, 1.5, 4).astype(dtype)
    wide = x.astype(np.float64)
    close(outputs("LayerNormalization", x, row)[0], norm(x, (3,)) * row.astype(float), dtype)
    close(outputs("InstanceNormalization", x, ones, zeros)[0], norm(x, (2, 3)), dtype)
    parts = norm(x.reshape(2, 3, 2, 5, 4), (2, 3, 4)).reshape(x.shape)
    scale = np.arange(1, 7).astype(dtype)
    scaled = parts * np.arange(1, 7).reshape(6, 1, 1)
    close(outputs("GroupNormalization", x, scale, zeros, num_groups=3)[0], scaled, dtype)
    rms = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-5) * row.astype(float)
    close(outputs("RMSNormalization", x, row, opset=23)[0], rms, dtype)
    close(outputs("MeanVarianceNormalization", x)[0], norm(x, (0, 2, 3), 0), dtype)
    batch = outputs("BatchNormalization", x, ones, zeros, zeros, ones * 3, epsilon=0.5)[0]
    close(batch, wide / np.sqrt(3.5), dtype)
    close(outputs("Softmax", x, axis=1)[0], np.exp(logs(x, 1)), dtype)
    close(outputs("LogSoftmax", x, axis=1)[0], logs(x, 1), dtype)
    if dtype != HALF:
        close(outputs("ReduceL2", x, np.int64([1]))[0], np.sqrt((wide * wide).sum(1, keepdims=True)), dtype)


@pytest.mark.usefixtures("alone")
def test_statistics_of_a_layer_have_the_type_of_the_stash() -> None:
    x, w = (300 * reals((2, 8), 1)).astype(HALF), np.ones(8, HALF)
    _, mean, inverse = outputs("LayerNormalization", x, w, kinds=(HALF, np.float32, np.float32))
    close(mean, x.astype(float).mean(1, keepdims=True), np.float32)
    close(inverse, 1 / np.sqrt(x.astype(float).var(1, keepdims=True) + 1e-5), np.float32)


@pytest.mark.usefixtures("alone")
def test_one_scale_per_group_before_opset_21() -> None:
    x, scale, bias = reals((2, 6, 3), 1), np.float32([1, 2, 3]), np.float32([0, 1, 0])
    y = outputs("GroupNormalization", x, scale, bias, opset=18, num_groups=3)[0]
    parts = norm(x.reshape(2, 3, 2, 3), (2, 3)).reshape(x.shape)
    column = (6, 1)
    close(y, parts * np.repeat(scale, 2).reshape(column) + np.repeat(bias, 2).reshape(column), np.float32)


@pytest.mark.usefixtures("alone")
def test_training_of_a_batch_updates_the_running_statistics() -> None:
    x, ones, zeros = reals((5, 3, 4), 1), np.ones(3, np.float32), np.zeros(3, np.float32)
    kinds = (np.float32,) * 3
    found = outputs("BatchNormalization", x, ones, zeros, zeros, ones, kinds=kinds, training_mode=1, momentum=0.75)
    close(found[0], norm(x, (0, 2)), np.float32)
    close(found[1], 0.25 * x.astype(float).mean((0, 2)), np.float32)
    close(found[2], 0.75 + 0.25 * x.astype(float).var((0, 2)), np.float32)


def logs(x: Any, axis: int) -> Any:
    wide = x.astype(np.float64)
    wide = wide - wide.max(axis, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis, keepdims=True))


def test_logarithms_of_probabilities_that_underflow(runtime: str) -> None:
    x = np.float32([[0, -110, 3], [-200, 5, 5], [1e30, 0, -1e30]])
    close(outputs("LogSoftmax", x)[0], logs(x, 1), np.float32)
    target, kinds = np.int64([1, 0, 1]), (np.float32, np.float32)
    x = x[:2]
    loss, log = outputs("SoftmaxCrossEntropyLoss", x, target[:2], kinds=kinds, reduction="sum")
    close(loss, 113.04859 + 205.69315, np.float32)
    close(log, logs(x, 1), np.float32)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_losses_leave_out_a_class_and_weigh_the_others(runtime: str, reduction: str) -> None:
    x, weight = reals((4, 3, 2), 1), np.float32([1, 2, 5])
    target = np.int64([[0, 1], [2, -1], [-1, -1], [1, 0]])
    used = target >= 0
    wanted = -np.take_along_axis(x.astype(float), np.where(used, target, 0)[:, None], 1)[:, 0]
    shares = np.where(used, weight[target], 0)
    wanted = np.where(used, wanted * shares, 0)
    total = {"none": wanted, "sum": wanted.sum(), "mean": wanted.sum() / shares.sum()}[reduction]
    found = outputs("NegativeLogLikelihoodLoss", x, target, weight, reduction=reduction, ignore_index=-1)[0]
    close(found, total, np.float32)


def test_logarithms_of_sums_of_infinities(runtime: str) -> None:
    x = np.float32([[-np.inf, -np.inf], [np.inf, 1], [1000, 1000], [-np.inf, 2]])
    found = outputs("ReduceLogSumExp", x, np.int64([1]), keepdims=0)[0]
    wanted = [-np.inf, np.inf, 1000 + np.log(2), 2]
    rows = slice(0, None) if runtime == "onnx" else slice(2, None)  # onnxruntime may have NaN of infinities
    np.testing.assert_allclose(found[rows], wanted[rows], rtol=1e-6)


@pytest.mark.parametrize(("code", "low", "high"), [("uint8", 0, 255), ("int8", -128, 127), ("int16", -32768, 32767)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_codes_saturate_at_their_ends(runtime: str, dtype: Any, code: str, low: int, high: int) -> None:
    x = np.array([np.inf, -np.inf, 6e4, -6e4, 2.5, 3.5, -0.5], dtype)
    zero = np.array(7, code)
    found = outputs("QuantizeLinear", x, np.array(0.5, dtype), zero, kinds=(code,))[0]
    assert found.tolist() == [high, low, high, low, 12, 14, max(low, 7 - 1)]


@pytest.mark.usefixtures("alone")
def test_quantized_blocks_and_slices() -> None:
    x, steps = reals((3, 5), 1), np.float32([[0.1, 0.2], [0.3, 0.1], [0.5, 0.2]])
    zeros = np.int8([[1, 2], [3, 4], [5, 6]])
    spread = [np.repeat(one, 3, axis=1)[:, :5] for one in (steps, zeros)]
    codes = outputs("QuantizeLinear", x, steps, zeros, kinds=(np.int8,), axis=1, block_size=3)[0]
    assert np.array_equal(codes, np.clip(np.rint(x / spread[0]) + spread[1], -128, 127))
    back = outputs("DequantizeLinear", codes, steps, zeros, kinds=(np.float32,), axis=1, block_size=3)[0]
    close(back, (codes.astype(float) - spread[1]) * spread[0], np.float32)
    large = np.int32([2**24 + 1, -(2**31)])
    found = outputs("DequantizeLinear", large, np.float32(1), np.int32(1), kinds=(np.float32,))[0]
    assert found.tolist() == [2**24, -(2**31)]


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.usefixtures("alone")
def test_infinities_as_floats_of_8_bits(kind: str, saturate: int) -> None:
    dtype = np.dtype(getattr(ml_dtypes, kind))
    x = np.float32([np.inf, -np.inf, np.nan, 1e9, 1.5])
    y = outputs("QuantizeLinear", x, np.float32(1), np.zeros((), dtype), kinds=(dtype,), saturate=saturate)[0]
    largest = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}[kind]
    beyond = largest if saturate else np.nan if kind == "float8_e4m3fn" else np.inf
    np.testing.assert_array_equal(y.astype(np.float32), np.float32([beyond, -beyond, np.nan, beyond, 1.5]))


def test_zeros_have_a_step_of_one(runtime: str) -> None:
    kinds = (np.uint8, np.float32, np.uint8)
    assert [one.tolist() for one in outputs("DynamicQuantizeLinear", np.zeros(2, np.float32), kinds=kinds)] == [
        [0, 0], 1, 0]  # fmt: skip


def test_zero_points_per_filter_and_per_row(runtime: str) -> None:
    x, w = np.uint8([[[1, 2, 3]]]), np.uint8([[[4, 5]], [[6, 7]]])
    y = outputs("ConvInteger", x, w, np.uint8(1), np.uint8([4, 7]), kinds=(np.int32,))[0]
    assert y.tolist() == [[[1, 2], [0, -1]]]
    a, b = np.uint8([[1, 2], [3, 4]]), np.uint8([[5, 6, 7], [8, 9, 10]])
    if runtime == "onnx":
        rows, columns = np.uint8([1, 3]), np.uint8([5, 6, 7])
        y = outputs("MatMulInteger", a, b, rows, columns, kinds=(np.int32,))[0]
        assert y.tolist() == [[3, 3, 3], [3, 3, 3]]


def test_products_of_bytes_do_not_saturate(runtime: str) -> None:
    a, b = np.full((1, 4), 255, np.uint8), np.full((4, 3), 127, np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "one",
        [helper.make_tensor_value_info("a", 2, a.shape)], [helper.make_tensor_value_info("y", 6, None)],
        [onnx.numpy_helper.from_array(b, "b")])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert hc.run_onnx(model, a)["y"].tolist() == [[255 * 127 * 4] * 3]


@pytest.mark.parametrize("op", ["MatMul", "Conv"])
@pytest.mark.parametrize("has_zero_points", [False, True])
def test_codes_with_a_scale_per_row_are_decoded(runtime: str, op: str, has_zero_points: bool) -> None:
    codes = np.random.default_rng(1).integers(100, 128, (16, 64)).astype(np.int8)
    scales = np.linspace(0.01, 0.02, 16, dtype=np.float32)
    x = np.random.default_rng(2).uniform(0, 5, (4, 64)).astype(np.float32)
    is_conv = op == "Conv"
    held = {"w": codes[:, :, None, None] if is_conv else codes.T, "ws": scales, "xs": np.float32(0.02)}
    held |= {"wz": np.zeros(16, np.int8), "xz": np.uint8(0)} if has_zero_points else {}
    of_x, of_w = (["xz"], ["wz"]) if has_zero_points else ([], [])
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", *of_x], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "xs", *of_x], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", *of_w], ["f"], axis=0 if is_conv else 1),
        helper.make_node(op, ["d", "f"], ["y"]),
    ]
    given = x[:, :, None, None] if is_conv else x
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", 1, given.shape)], [helper.make_tensor_value_info("y", 1, None)],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(one), name) for name, one in held.items()])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    rounded = np.clip(np.rint(x / np.float32(0.02)), 0, 255) * 0.02
    y = hc.run_onnx(model, given)["y"].reshape(4, 16)
    assert np.allclose(y, rounded @ (codes * scales[:, None]).T, rtol=1e-5)


def test_the_largest_of_no_values(runtime: str) -> None:
    x, axes = np.zeros((2, 0), bool), np.int64([1])
    assert outputs("ReduceMax", x, axes, opset=20, keepdims=0)[0].tolist() == [False, False]
    found = outputs("ReduceMax", x.astype(np.float32), axes, opset=20, keepdims=0)[0]
    assert found.tolist() == [-np.inf, -np.inf]


def test_windows_of_norms_with_padding_and_a_last_part(runtime: str) -> None:
    x = reals((1, 2, 4, 6), 1)
    y = outputs("LpPool", x, kernel_shape=[2, 3], strides=[2, 1], pads=[1, 1, 0, 2], ceil_mode=1, p=2, opset=18)[0]
    padded = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 2)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (2, 3), axis=(2, 3))[:, :, ::2]
    close(y, np.sqrt((view * view).sum((-1, -2))), np.float32)


@pytest.mark.usefixtures("alone")
def test_half_precision_is_summed_in_float32() -> None:
    x = np.full((1, 4096), 0.25, HALF)
    assert outputs("ReduceSum", x, np.int64([1]))[0].item() == 1024
    assert outputs("CumSum", x.astype(ml_dtypes.bfloat16), np.int64(1))[0].astype(float)[0, -1] == 1024
    y = outputs("MatMul", x.astype(ml_dtypes.bfloat16), x.T.astype(ml_dtypes.bfloat16))[0]
    assert y.dtype == ml_dtypes.bfloat16 and float(y[0, 0]) == 256
    assert outputs("ReduceMean", np.full((1, 4), 6e4, HALF), np.int64([1]))[0].item() == np.float16(6e4)
    assert outputs("ReduceMean", np.int32([[-3, 0, -2]]), np.int64([1]))[0].item() == -1
    assert outputs("Cast", x[:, :1], kinds=(ml_dtypes.bfloat16,), to=16)[0].dtype == ml_dtypes.bfloat16
