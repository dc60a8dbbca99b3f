"""Arrays on a CUDA device go through the public functions, with a fake driver that runs the kernels on the host."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any

import driven
import numpy as np
import pytest
from driven import Lent, LentByDlpack

import heterocompute as hc
from heterocompute.arrays.device import DeviceArray
from heterocompute.arrays.quantized import QuantizedArray


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[driven.Driver]:
    yield from driven.without_leaks(monkeypatch)


def values(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


CLIPPED: list[tuple[str, Any, Any]] = [
    ("int8", -1, "octav"),
    ("int4-g24", (2, 1), 0.7),
    ("int8", (0, 2), "percentile:37.5"),
    ("int4-g32", -1, "percentile:100"),
    ("vsq4-g16-s4", 0, "octav"),
    ("vsq4u-g16-s4", -1, "octav"),
    ("vsq4u-g16-s4", 1, "percentile:80"),
    ("vsq6-g16-s6-tensor", -1, 0.9),
    ("nf4-g64", -1, "percentile:99"),
    ("log8-8-g16", (0, 2), "octav"),
    ("fp8_e4m3fn-row", (2, 1), "percentile:0"),
    ("int4-g28+7:8", (0, 2), "octav"),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize(("text", "axis", "clip"), CLIPPED)
@pytest.mark.sweep(every=6)
def test_a_clip_is_computed_there_with_the_bits_of_the_cpu(text: str, axis: Any, clip: Any, dtype: Any) -> None:
    if "+" in text and dtype is np.float64:
        pytest.skip("float32 alone")
    x = values(5, 9, 53) * 300
    x[2, 3], x[1, 1, 3:], x[4, 4], x[0] = 0, 0, np.round(x[4, 4] / 200), x[0] * np.float32(1e-38)
    x = x.astype(dtype)
    there = hc.quantize(Lent(x), text, axis, clip)
    assert there.to("cpu") == hc.quantize(x, text, axis, clip)
    wanted = hc.fake_quantize(x, text, axis, clip)
    assert hc.fake_quantize(Lent(x), text, axis, clip).to_numpy().tobytes() == wanted.tobytes()
    x[3, 4, 5] = np.nan if text != "vsq4u-g16-s4" else -np.inf
    with pytest.raises(ValueError, match=r"cannot hold \(NaN"):
        hc.quantize(Lent(x), text, axis, clip)


FORMATS = [
    "int8",
    "int4-g32-f16",
    "vsq4-g16-s4",
    "mxfp4",
    "nvfp4",
    "fp8_e4m3fn-row",
    "nf4-g64",
    "q8_0",
    "int4-g16-asym",
]


@pytest.mark.parametrize("lend", [Lent, LentByDlpack, DeviceArray.from_numpy])
@pytest.mark.parametrize("text", FORMATS)
def test_a_device_s_array_stays_there_with_the_bits_of_the_cpu(lend: Any, text: str) -> None:
    x = values(5, 96)
    lent = lend(x)
    q = hc.quantize(lent, text)
    wanted = hc.quantize(x, text)
    assert isinstance(q, QuantizedArray) and q.device == "cuda:0" and q.nbytes == wanted.nbytes
    assert q.to("cpu") == wanted and q.to("cpu").source_dtype == "float32" and q.to("cuda") is q
    assert q.dequantize().to_numpy().tobytes() == wanted.dequantize().tobytes()
    assert q.dequantize(np.float64).to_numpy().tobytes() == wanted.dequantize(np.float64).tobytes()
    rounded = hc.fake_quantize(lent, text)
    assert rounded.to_numpy().tobytes() == hc.fake_quantize(x, text).tobytes()
    out = DeviceArray.empty(x.shape, np.float32)
    assert hc.fake_quantize(lent, text, out=out) is out
    assert out.to_numpy().tobytes() == rounded.to_numpy().tobytes()
    there = DeviceArray.from_numpy(x)
    assert hc.fake_quantize(there, text, out=there).to_numpy().tobytes() == rounded.to_numpy().tobytes()


@pytest.mark.parametrize(("text", "panels"), [("int6", True), ("int4", False), ("int8+2:4", True), ("nf4-g64", False)])
def test_prepacked_weights_on_a_device_are_decoded_once(driver: driven.Driver, text: str, panels: bool) -> None:
    x, w, bias = values(3, 64), values(7, 64), values(7)
    q = hc.quantize(w, text)
    there, ready = q.to("cuda"), hc.prepack(q.to("cuda"))
    assert ready.device == "cuda:0" and (ready.nbytes > 0) == panels and ready.source == there
    assert hc.prepack(ready).nbytes == ready.nbytes and ready.to("cuda") is ready and ready.source_dtype == "float32"
    assert f"{ready.nbytes} byte" in repr(ready) and ready.bits_per_value == q.bits_per_value
    assert ready.to("cpu").source == q and hc.prepack(q).to("cuda").nbytes == ready.nbytes
    stack = hc.quantize(values(2, 7, 64), text).to("cuda")
    assert hc.prepack(stack).nbytes == 0  # no kernel reads panels of stacks and filters
    launches = []
    for weights in (there, ready):
        before = driver.counts()[0]
        if text != "nf4-g64":
            y = hc.linear(Lent(x), weights, Lent(bias), activations="int8")
            assert y.to_numpy().tobytes() == hc.linear(x, q, bias, activations="int8").tobytes()
            assert hc.matmul(Lent(x), weights.T, activations="int8").shape == (3, 7)
        launches.append(driver.counts()[0] - before)
        assert weights.dequantize().to_numpy().tobytes() == q.dequantize().tobytes()
        assert hc.linear(Lent(x), weights).to_numpy().tobytes() == hc.linear(x, q).tobytes()
    assert launches[0] - launches[1] == (4 if "2:4" in text else 2 * panels)  # zeros lie between those of a pattern
    part, some = ready[2:5], q[2:5]  # whose panels would be those of other rows
    assert part.to("cpu") == some and ready[-1].to("cpu") == q[-1] and copy.copy(ready) == there
    activations = None if text == "nf4-g64" else "int8"
    y = hc.linear(Lent(x), part, activations=activations)
    assert y.to_numpy().tobytes() == hc.linear(x, some, activations=activations).tobytes()


@pytest.mark.parametrize("text", ["int8", "vsq4-g16-s4", "int4-g32-f16"])
def test_products_on_a_device_give_the_bits_of_the_cpu(text: str) -> None:
    x, w, bias = values(3, 5, 64), values(7, 64), values(7)
    q = hc.quantize(w, text)
    there, lent, added = q.to("cuda"), Lent(x), Lent(bias)
    for activations in (None, "int8"):
        wanted = hc.linear(x, q, bias, activations=activations)
        y = hc.linear(lent, there, added, activations=activations)
        assert y.device == "cuda:0" and y.to_numpy().tobytes() == wanted.tobytes()
        row = hc.linear(Lent(x[0, 0]), there, activations=activations)
        assert row.shape == (7,)
        assert row.to_numpy().tobytes() == hc.linear(x[0, 0], q, activations=activations).tobytes()
        assert hc.matmul(lent, there.T, activations).to_numpy().tobytes() == hc.matmul(x, q.T, activations).tobytes()
    packed = hc.quantize(x, "int8")
    product = hc.linear(packed.to("cuda"), there)
    assert product.to_numpy().tobytes() == hc.linear(packed, q).tobytes()
    assert (lent @ there.T if hasattr(lent, "__matmul__") else hc.matmul(lent, there.T)).shape == (3, 5, 7)


@pytest.mark.parametrize(
    ("text", "shape", "axis"),
    [
        ("2:4", (5, 96), -1),
        ("int8+2:4", (5, 96), -1),
        ("vsq4-g16-s4+1:3", (96, 7), 0),
        ("int4-g28+7:8", (3, 4, 70), (0, 2)),
    ],
)
def test_patterns_are_chosen_on_the_device(text: str, shape: tuple[int, ...], axis: Any) -> None:
    x = values(*shape)
    x.flat[3] = np.inf if text == "2:4" else 0
    q = hc.quantize(Lent(x), text, axis)
    assert isinstance(q, QuantizedArray) and q.to("cpu") == hc.quantize(x, text, axis)
    assert type(q.to("cpu")) is type(hc.quantize(x, text, axis))
    if text == "2:4":
        pruned, wanted = hc.prune(Lent(x), text).to("cpu"), hc.prune(x, text)
        assert pruned == wanted and pruned.to_dense().tobytes() == wanted.to_dense().tobytes()
        with hc.use(backend="cuda"):
            assert hc.prune(x, text) == wanted


@pytest.mark.parametrize("text", ["int8", "vsq4-g16-s4", "mxfp4", "nf4-g64", "int4-g16-asym"])
def test_stochastic_rounding_and_its_gradient_are_those_of_the_cpu(text: str) -> None:
    x = values(5, 96)
    g = Lent(x)
    for rounding, seed in (("nearest", 0), ("stochastic", 2**63 + 5)):
        y, back = hc.training.fake_quantize(Lent(x), text, rounding=rounding, seed=seed)
        wanted, _ = hc.training.fake_quantize(x, text, rounding=rounding, seed=seed)
        assert y.device == "cuda:0" and y.to_numpy().tobytes() == wanted.tobytes()
        assert back(g) is g
        with pytest.raises(ValueError, match=r"g has shape \(2,\), expected \(5, 96\)"):
            back(Lent(x[0, :2]))
    with hc.use(backend="cuda"):
        y, _ = hc.training.fake_quantize(x, text, rounding="stochastic", seed=3)
    assert y.tobytes() == hc.training.fake_quantize(x, text, rounding="stochastic", seed=3)[0].tobytes()


def test_answers_lend_their_memory() -> None:
    q = hc.quantize(Lent(values(4, 32)), "int8")
    y = q.dequantize()
    found = y.__cuda_array_interface__
    assert found["shape"] == (4, 32) and found["typestr"] == "<f4" and found["stream"] == 1 and found["strides"] is None
    assert y.__dlpack_device__() == (2, 0)
    again = hc.quantize(_Only(y), "int8")
    del y
    assert again.to("cpu") == q.to("cpu")
    with pytest.raises(TypeError, match=r"call to_numpy\(\) for a copy"):
        np.asarray(q.dequantize())
    with pytest.raises(BufferError, match="makes no copy"):
        q.dequantize().__dlpack__(copy=True)
    assert q.dequantize().__dlpack__() is not None  # never used: its memory is freed


class _Only:
    """DLPack of another array."""

    def __init__(self, array: DeviceArray) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**options)


def test_bfloat16_comes_by_dlpack() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = values(4, 64).astype(ml_dtypes.bfloat16)
    lent = LentByDlpack(x, code=4)
    assert hc.quantize(lent, "int8").to("cpu") == hc.quantize(x, "int8")
    assert lent.asked == [1]


def test_strides_are_read_where_they_are() -> None:
    x = values(6, 64)
    turned = Lent(x, shape=(64, 6), strides=(4, 256))
    assert hc.quantize(turned, "int8", axis=0).to("cpu") == hc.quantize(x.T, "int8", axis=0)


def test_arrays_of_the_cpu_are_copied_where_use_says_so(driver: driven.Driver) -> None:
    x, w = values(5, 64), values(7, 64)
    with hc.use(backend="cuda"):
        before = driver.counts()
        q = hc.quantize(w, "vsq4-g16-s4")
        y = hc.linear(x, q, activations="int8")
        out = np.empty((5, 7), np.float32)
        assert hc.linear(x, q.to("cuda"), activations="int8", out=out) is out
        launches, uploads, downloads, _ = (now - then for now, then in zip(driver.counts(), before, strict=True))
        assert launches > 4 and uploads and downloads
        rounded = hc.fake_quantize(x, "int8")
        found = hc.explain(hc.linear, x, q, activations="int8")
        there, back = x.nbytes + q.nbytes, 4 * 5 * 7
        assert "on cuda:0: hc_clear, hc_encode_known_int8, hc_gemm_few_s4_8; copies" in str(found)
        assert f"copies {there:,} bytes there and {back:,} bytes back" in str(found)
        assert "copies 140 bytes back" not in str(hc.explain(hc.linear, x, q.to("cuda")))
        with hc.use(backend="cpu"):
            assert "on cuda:0" not in str(hc.explain(hc.linear, x, q))
    assert q == hc.quantize(w, "vsq4-g16-s4")
    assert y.tobytes() == out.tobytes() == hc.linear(x, q, activations="int8").tobytes()
    assert rounded.tobytes() == hc.fake_quantize(x, "int8").tobytes()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("text", "activations"), [("int8", "int8"), ("vsq4-g16-s4", None), ("int4-g32", "int8")])
def test_convolutions_on_a_device_give_the_bits_of_the_cpu(
    layout: str, text: str, activations: Any, driver: driven.Driver
) -> None:
    shape, final = ((2, 6, 5, 4), (2, 4, 5, 4)) if layout == "NCHW" else ((2, 5, 4, 6), (2, 5, 4, 4))
    x, w, bias = values(*shape), values(4, 3, 3, 3), values(4)
    q = hc.quantize(w, text, axis=(2, 3, 1))
    options: dict[str, Any] = {"padding": 1, "groups": 2, "activations": activations, "layout": layout, "relu": True}
    wanted = hc.conv2d(x, q, bias, algorithm="auto" if activations else "direct", **options)
    there, lent, added = q.to("cuda"), Lent(x), Lent(bias)
    y = hc.conv2d(lent, there, added, **options)
    assert y.device == "cuda:0" and y.shape == final and y.to_numpy().tobytes() == wanted.tobytes()
    out = DeviceArray.empty(final, np.float32)
    before = driver.counts()
    assert hc.conv2d(lent, there, added, out=out, **options) is out
    assert driver.counts()[1] == before[1] and out.to_numpy().tobytes() == wanted.tobytes()
    found = hc.explain(hc.conv2d, lent, there, added, **options)
    assert "hc_conv_" in str(found) and "copies nothing" in str(found)
    ms = {one.path: one.predicted_ms for one in found.candidates}
    assert list(ms) == ["direct", "tiles"] and ms[found.chosen]
    for path in ms:
        with hc.use(path=path):
            assert hc.explain(hc.conv2d, lent, there, added, **options).chosen == path
            assert hc.conv2d(lent, there, added, **options).to_numpy().tobytes() == wanted.tobytes()
    with hc.use(path="few"), pytest.raises(ValueError, match="this convolution on a device.* direct, tiles"):
        hc.conv2d(lent, there, added, **options)
    with hc.use(backend="cuda"):
        assert hc.conv2d(x, q, bias, **options).tobytes() == wanted.tobytes()
    if activations:
        x[1, 2, 3, 1] = np.nan
        found = hc.conv2d(Lent(x), there, added, **options).to_numpy()
        assert np.isnan(found[1]).all() and found[0].tobytes() == wanted[0].tobytes()


def test_layers_of_transformers_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    layers, x, up, weight = hc.layers, values(3, 5, 12), values(3, 5, 12)[::-1].copy(), values(12)
    cosine, sine = values(5, 4), values(6, 4)[1:].copy()
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (layers.rms_norm, (x, weight)),
        (layers.rms_norm, (x,)),
        (layers.layer_norm, (x, weight, weight[::-1].copy())),
        (layers.softmax, (x,)),
        (layers.swiglu, (x, up)),
        (layers.gelu, (x,)),
        (layers.gelu, (x[0, 0], up[0, 0])),
        (layers.rope, (x, cosine, sine)),
        (lambda *given: layers.rope(*given, pairs=True), (x, cosine, sine)),
    ]
    for function, given in calls:
        y = function(*(Lent(one) for one in given))
        assert y.device == "cuda:0" and y.to_numpy().tobytes() == function(*given).tobytes()
    cp = driven.StandIn()
    monkeypatch.setitem(sys.modules, "cupy", cp)
    assert layers.softmax(cp.asarray(x)).get().tobytes() == layers.softmax(x).tobytes()
    lent = Lent(x)
    for call, kind, sentence in (
        (
            lambda: layers.rms_norm(lent, weight),
            TypeError,
            "x is on cuda:0 and another argument on the CPU, expected all on",
        ),
        (lambda: layers.rms_norm(x, Lent(weight)), TypeError, "x is on the CPU and another argument on a device"),
        (
            lambda: layers.swiglu(lent, Lent(up, 1)),
            TypeError,
            "x is on cuda:0 and another argument on cuda:1, expected all",
        ),
        (lambda: layers.softmax(Lent(x.astype(np.float16))), NotImplementedError, "expected contiguous float32"),
        (lambda: layers.rope(lent, Lent(values(1, 4)), Lent(values(1, 4))), NotImplementedError, r"\(tokens, half\)"),
        (lambda: layers.rms_norm(lent, Lent(values(5))), ValueError, r"has shape \(5,\), expected \(12,\)"),
    ):
        with pytest.raises(kind, match=sentence):
            call()


def test_an_explanation_refuses_what_the_call_refuses() -> None:
    lent = Lent(values(5, 64))
    for text, activations in (("nf4-g64", "int8"), ("cb4", None)):
        q = hc.quantize(values(7, 64), text).to("cuda")
        with pytest.raises(NotImplementedError, match="the CUDA kernels do not") as raised:
            hc.linear(lent, q, activations=activations)
        with pytest.raises(NotImplementedError) as explained:
            hc.explain(hc.linear, lent, q, activations=activations)
        assert str(explained.value) == str(raised.value).replace("linear:", "explain:")


def test_nothing_is_copied_silently(driver: driven.Driver) -> None:
    lent, q = Lent(values(5, 64)), hc.quantize(values(7, 64), "int8").to("cuda")
    before = driver.counts()
    hc.linear(lent, q)
    assert [now - then for now, then in zip(driver.counts(), before, strict=True)] == [1, 0, 0, 0]
    found = hc.explain(hc.linear, lent, q)
    assert "copies nothing" in str(found)
    with pytest.raises(NotImplementedError, match="b is not quantized, expected quantized weights"):
        hc.explain(hc.linear, lent, lent)


def test_what_a_device_lacks_is_one_sentence() -> None:
    x, w = values(5, 64), values(7, 64)
    q = hc.quantize(w, "int8")
    lent, there = Lent(x), q.to("cuda")
    image, filters = Lent(values(1, 2, 5, 5)), values(3, 2, 3, 3)
    packed = hc.quantize(filters, "int8", axis=(2, 3, 1))
    whole = DeviceArray.from_numpy(values(5, 64))
    shifted = DeviceArray(whole, whole.address + 4, (5, 64), whole.dtype, whole.strides, 0, 1)
    cases: list[tuple[Any, type[Exception], str]] = [
        (
            lambda: hc.linear(x, there),
            TypeError,
            "linear: x is in the memory of the CPU and another argument is on a CUDA",
        ),
        (lambda: hc.linear(lent, q), TypeError, "linear: w is in the memory of the CPU"),
        (lambda: hc.linear(lent, there, values(7)), TypeError, "linear: bias is in the memory of the CPU"),
        (lambda: hc.linear(Lent(x, 1), there), ValueError, "linear: x on cuda:1 and w on cuda:0, expected all on one"),
        (lambda: hc.linear(lent, Lent(w)), NotImplementedError, "w is not quantized"),
        (lambda: hc.matmul(lent, Lent(w.T)), NotImplementedError, "b is not quantized"),
        (lambda: hc.matmul(lent, there), ValueError, r"its reduction axis is 0; expected b\.T, as in x @ b\.T"),
        (lambda: hc.linear(Lent(values(5, 60)), there), ValueError, "x has 60 features but w has 64 columns"),
        (lambda: hc.linear(lent, there, Lent(values(6))), ValueError, r"bias has shape \(6,\), expected \(7,\)"),
        (
            lambda: hc.linear(lent, there, out=np.empty((5, 7), np.float32)),
            TypeError,
            "out is in the memory of the CPU",
        ),
        (lambda: hc.linear(lent, there, out=Lent(x)), ValueError, "out is float32 with shape"),
        (lambda: hc.fake_quantize(lent, "int8", out=there), TypeError, "out"),
        (lambda: hc.fake_quantize(whole, "int8", out=shifted), ValueError, "out shares memory with an input"),
        (
            lambda: hc.quantize(lent, "int8", clip="search"),
            NotImplementedError,
            "clip is 'search' with int8, expected a fraction",
        ),
        (lambda: hc.quantize(lent, "int4-g32", importance=x), NotImplementedError, "importance is given, expected"),
        (lambda: hc.quantize(lent, "mxfp4", clip=0.9), ValueError, "mxfp4 has no scale that clip= could change"),
        (lambda: hc.quantize(lent, "2:4", clip=0.9), ValueError, "clip is 0.9, but 2:4 has no scale"),
        (lambda: hc.quantize(lent, "fp8_e4m3fn-tensor", clip=0.9), NotImplementedError, "a scale of the whole array"),
        (lambda: hc.quantize(lent, "cb4"), NotImplementedError, "kernels do not encode learned codebooks"),
        (lambda: hc.quantize(lent, "int8", axis=2), ValueError, "axis 2 is out of range"),
        (lambda: hc.quantize(there, "int8"), TypeError, "w is a QuantizedArray"),
        (lambda: hc.quantize(Lent(np.arange(4)), "int8"), TypeError, "w has dtype '<i8', expected float16"),
        (lambda: hc.quantize(Lent(x, data=(4096, False)), "int8"), ValueError, "not in the memory of a CUDA device"),
        (lambda: hc.quantize(Lent(x, data=None), "int8"), TypeError, "__cuda_array_interface__ cannot be read"),
        (lambda: hc.quantize(Lent(x, strides=(3, 3)), "int8"), ValueError, "its values are not aligned"),
        (lambda: hc.quantize(Lent(x, mask=1), "int8"), TypeError, "w has a mask"),
        (
            lambda: hc.linear(Lent(values(2, 0)), hc.quantize(values(7, 0), "int8").to("cuda")),
            NotImplementedError,
            "copy",
        ),
        (lambda: there.dequantize(np.float16), NotImplementedError, "float32 or float64"),
        (lambda: hc.prune(lent, "50%"), NotImplementedError, "keeps N of M by magnitude"),
        (lambda: hc.prune(lent, "2:4", scores=x), NotImplementedError, "expected that and no scores"),
        (lambda: hc.prune(there, "2:4"), TypeError, "w is a QuantizedArray"),
        (
            lambda: hc.prune(Lent(x.astype(np.float16)), "2:4"),
            NotImplementedError,
            "has dtype float16, expected float32",
        ),
        (lambda: hc.prune(Lent(x.astype(np.float64)), "2:4"), NotImplementedError, "has dtype float64"),
        (
            lambda: hc.quantize(w, "cb4").to("cuda").dequantize(),
            NotImplementedError,
            r"learned codebooks: copy the arguments to the CPU \(\.to",
        ),
        (lambda: hc.conv2d(image, filters), NotImplementedError, "w is not quantized, expected quantized filters"),
        (lambda: hc.conv2d(image, packed), TypeError, "conv2d: w is in the memory of the CPU"),
        (lambda: hc.conv2d(lent, packed.to("cuda")), ValueError, r"x has shape \(5, 64\), expected four dimensions"),
        (lambda: hc.conv2d(image, there), ValueError, r"expected four dimensions and \(2, 3, 1\)"),
        (lambda: hc.conv2d(image, packed.to("cuda"), algorithm="fft"), NotImplementedError, "'auto' or 'direct'"),
        (lambda: hc.conv2d(image, packed.to("cuda"), layout="CHW"), ValueError, "expected 'NCHW' or 'NHWC'"),
        (lambda: hc.conv2d(image, packed.to("cuda"), Lent(values(4))), ValueError, r"shape \(4,\), expected \(3,\)"),
        (
            lambda: hc.conv2d(Lent(values(1, 3, 5, 5)), packed.to("cuda")),
            ValueError,
            "x has 3 channels and w 3 filters",
        ),
        (lambda: hc.conv2d(image, packed.to("cuda"), out=image), ValueError, "out is float32 with shape"),
        (lambda: hc.explain(hc.conv2d, image, filters), NotImplementedError, "expected quantized filters"),
        (lambda: hc.tune(hc.linear, lent, there), ValueError, "runs on a CUDA device, expected the CPU"),
        (lambda: hc.prune_mask(lent, "2:4"), TypeError, "expected an array in the memory of the CPU"),
        (lambda: hc.training.fake_quantize(lent, "cb4"), NotImplementedError, "do not encode learned codebooks: copy"),
        (
            lambda: hc.training.fake_quantize(lent, "int8", clip="search"),
            NotImplementedError,
            "clip is 'search' with int8",
        ),
        (lambda: hc.training.fake_quantize(lent, "int8", scale=x), (TypeError, ValueError), "fake_quantize: scale "),
        (lambda: hc.save("x.safetensors", {"w": there}), TypeError, "save: an array is on a CUDA device"),
        (lambda: q.to("cuda:2"), ValueError, "there is no device 'cuda:2', the driver has 2"),
        (lambda: q.to("gpu"), ValueError, "device is 'gpu', expected 'cpu', 'cuda' or"),
        (lambda: np.asarray(there), TypeError, r"no values on the CPU: call to\('cpu'\)"),
        (lambda: there.save("x.safetensors"), TypeError, "expected one on the CPU"),
        (lambda: hc.use(backend="tpu").__enter__(), ValueError, "backend is 'tpu'"),
    ]
    for call, kind, sentence in cases:
        with pytest.raises(kind, match=sentence) as raised:
            call()
        assert "\n" not in str(raised.value)
    bad = x.copy()
    bad[3, 5] = np.nan
    with pytest.raises(ValueError, match=r"int8 cannot hold \(NaN or infinity\) at index \(3, :\)"):
        hc.quantize(Lent(bad), "int8")
    with pytest.raises(ValueError, match=r"prune: w has a value that 2:4 cannot hold \(NaN\) at index \(3, :\)"):
        hc.prune(Lent(bad), "2:4")


def test_a_value_that_a_format_lacks_makes_its_row_nan_and_nothing_waits(driver: driven.Driver) -> None:
    x, w = values(5, 64), values(7, 64)
    q, bad = hc.quantize(w, "int8"), x.copy()
    bad[3, 5] = np.nan
    lent, there = Lent(bad), q.to("cuda")
    calls: list[tuple[Any, Any]] = [
        (lambda: hc.fake_quantize(lent, "int8"), hc.fake_quantize(x, "int8")),
        (lambda: hc.training.fake_quantize(lent, "int8")[0], hc.fake_quantize(x, "int8")),
        (lambda: hc.linear(lent, there, activations="int8"), hc.linear(x, q, activations="int8")),
        (lambda: hc.matmul(lent, there.T, "int8"), hc.matmul(x, q.T, "int8")),
    ]
    for call, wanted in calls:
        before = driver.counts()
        y = call()
        counts = [now - then for now, then in zip(driver.counts(), before, strict=True)]
        assert counts[0] <= 2 and counts[1:] == [0, 0, 0]
        assert np.isnan(y.to_numpy()[3]).all()
        assert np.delete(y.to_numpy(), 3, 0).tobytes() == np.delete(wanted, 3, 0).tobytes()
    with hc.use(backend="cuda"):
        assert np.isnan(hc.fake_quantize(bad, "int8")[3]).all()


def test_out_of_memory_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    q, lent = hc.quantize(values(7, 64), "int8"), Lent(values(50, 64))
    monkeypatch.setenv("FAKE_DRIVER_BYTES", "14000")
    with pytest.raises(MemoryError, match="cuda: device 0 has no .* bytes of memory left"):
        hc.quantize(values(64, 64), "int8").to("cuda")
    with pytest.raises(MemoryError, match="of memory left"):
        hc.quantize(lent, "int8")
    assert q.to("cuda").to("cpu") == q
