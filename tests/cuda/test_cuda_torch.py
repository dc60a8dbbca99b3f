"""interop.torch on a CUDA device, with tensors that stand in for those of a PyTorch with CUDA, and the fake driver."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import driven
import numpy as np
import pytest

torch = pytest.importorskip("torch")

sys.path.append(str(Path(__file__).parents[1] / "interop"))
from torch_on_device import STREAM, Tensor, there, using  # noqa: E402

import heterocompute as hc  # noqa: E402
from heterocompute.interop import torch as ht  # noqa: E402
from heterocompute.interop.torch import operators  # noqa: E402
from heterocompute.interop.torch.weights import PackedWeight  # noqa: E402


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[driven.Driver]:
    yield from using(monkeypatch)


def values(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def captured(monkeypatch: pytest.MonkeyPatch, call: Any) -> Any:
    """Make a call inside of a capture, which allows no allocation, no copy and no wait of ours."""
    monkeypatch.setenv("FAKE_DRIVER_CAPTURES", "1")
    try:
        return call()
    finally:
        monkeypatch.delenv("FAKE_DRIVER_CAPTURES")


def moved_weight(q: Any, activations: Any = None) -> PackedWeight:
    weight = PackedWeight(q, activations)
    weight._apply(lambda part: there(part) if part.numel() else part)
    return weight


@pytest.mark.parametrize("text", ["int8", "vsq4-g16-s4", "int4-g32-f16", "nf4-g64"])
@pytest.mark.parametrize("activations", [None, "int8"])
def test_a_packed_layer_computes_on_the_stream_of_pytorch(
    text: str, activations: Any, monkeypatch: pytest.MonkeyPatch, driver: driven.Driver
) -> None:
    if activations and text.startswith("nf4"):
        pytest.skip("no integers")
    x, w, bias = values(3, 5, 64), values(7, 64), values(7)
    q = hc.quantize(w.numpy(), text)
    weight, given, added = moved_weight(q, activations), there(x), there(bias)
    assert weight.device.type == "cuda"
    before = driver.counts()
    y = captured(monkeypatch, lambda: ht.linear(given, weight))
    counts = [now - then for now, then in zip(driver.counts(), before, strict=True)]
    assert counts[1:] == [0, 0, 0] and driver.last_stream() == STREAM
    assert isinstance(y, Tensor)
    wanted = ht.linear(x, q, activations=activations)
    assert y.at_home().numpy().tobytes() == wanted.numpy().tobytes()
    with_bias = ht.linear(given, weight, added)
    assert torch.equal(with_bias.at_home(), wanted + bias)
    row = ht.linear(there(x[0, 0]), weight)
    assert row.at_home().numpy().tobytes() == ht.linear(x[0, 0], q, activations=activations).numpy().tobytes()
    turned = there(values(64, 5)).as_subclass(torch.Tensor).t().as_subclass(Tensor)
    assert ht.linear(turned, weight).at_home().shape == (5, 7)
    assert ht.linear(there(values(0, 64)), weight).shape == (0, 7)
    half = ht.linear(there(x.half()), weight)
    assert half.dtype is torch.float16
    assert torch.equal(half.at_home(), ht.linear(x.half(), q, activations=activations))
    assert weight.dequantize().at_home().numpy().tobytes() == q.dequantize().tobytes()


def test_the_gradient_of_a_packed_layer_stays_there() -> None:
    x, q = values(5, 64), hc.quantize(values(7, 64).numpy(), "int8")
    weight, g = moved_weight(q), values(5, 7)
    given = there(x).requires_grad_()
    y = ht.linear(given, weight)
    assert isinstance(y, Tensor) and y.grad_fn is not None
    (found,) = torch.autograd.grad(y, given, there(g))
    wanted = g @ torch.from_numpy(q.dequantize())
    assert torch.allclose(found.as_subclass(Tensor).at_home(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    ("text", "rounding"),
    [
        ("int8", "nearest"),
        ("vsq4-g16-s4", "stochastic"),
        ("mxfp4", "nearest"),
        ("fp8_e4m3fn", "nearest"),
        ("nf4-g64", "stochastic"),
    ],
)
def test_fake_quantize_stays_there(
    text: str, rounding: str, dtype: Any, monkeypatch: pytest.MonkeyPatch, driver: driven.Driver
) -> None:
    x = (values(5, 64) * 300).to(dtype)
    g, given = values(5, 64).to(dtype), there(x)
    waits = driver.counts()[3]
    function = rounding_to(text, rounding)
    if dtype is torch.float32 and text != "fp8_e4m3fn":
        y = captured(monkeypatch, lambda: function(given))
        assert driver.counts()[3] == waits and driver.last_stream() == STREAM
    else:
        y = function(given)
    wanted_from = x.clone().requires_grad_()
    wanted = function(wanted_from)
    assert y.dtype is dtype and torch.equal(y.at_home(), wanted.detach())
    watched = there(x).requires_grad_()
    (found,) = torch.autograd.grad(function(watched), watched, there(g))
    (gradient,) = torch.autograd.grad(wanted, wanted_from, g)
    assert torch.equal(found.as_subclass(Tensor).at_home(), gradient)


def rounding_to(text: str, rounding: str) -> Any:
    return lambda t: ht.fake_quantize(t, text, rounding=rounding, seed=7)


CLIPPED = [
    ("int8", -1, 0.7),
    ("int4-g32-f16", -1, 0.9),
    ("int4-g24-asym", -1, 0.5),
    ("vsq4-g16-s4", 0, 0.8),
    ("vsq4u-g16-s4", -1, 0.6),
    ("nf4-g64", -1, 0.95),
    ("log8-8", (0, 2), 0.7),
    ("fp8_e4m3fn-row", (2, 1), 0.4),
    ("int4-g24", (2, 1), 0.75),
    ("int8", (2, 1), "octav"),
    ("vsq4-g16-s4", 0, "octav"),
    ("vsq4u-g16-s4", -1, "octav"),
    ("log8-8", 1, "percentile:90"),
    ("int4-g28+7:8", (0, 2), "octav"),
    ("vsq4-g16-s4+1:3", -1, "percentile:75"),
    ("2:4", -1, None),
    ("int8+2:4", 1, None),
    ("int4-g28+7:8", (0, 2), 0.8),
    ("vsq4-g16-s4+1:3", -1, 0.9),
    ("nf4-g64+2:4", -1, 1.0),
    ("fp8_e4m3fn+2:4", -1, None),
    ("fp8_e4m3fn-row+2:4", (1, 2), 0.3),
    ("vsq4-g16-s4+1:1", 2, 0.9),
]


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize(("text", "axis", "clip"), CLIPPED)
@pytest.mark.sweep(every=5)
def test_clips_and_patterns_stay_there_with_their_gradient(
    text: str, axis: Any, clip: Any, dtype: Any, rounding: str, driver: driven.Driver
) -> None:
    if dtype is torch.float64 and ("+" in text or ":" in text):
        pytest.skip("no pruning of float64")
    x, g = (values(6, 10, 50) * 300).to(dtype), values(6, 10, 50).to(dtype)

    def function(t: Any) -> Any:
        return ht.fake_quantize(t, text, axis, clip, rounding, 7)

    wanted_from, watched = x.clone().requires_grad_(), there(x).requires_grad_()
    wanted, y = function(wanted_from), function(watched)
    assert y.dtype is dtype and torch.equal(y.detach().as_subclass(Tensor).at_home(), wanted.detach())
    assert torch.equal(function(there(x)).at_home(), wanted.detach())
    (found,) = torch.autograd.grad(y, watched, there(g))
    (gradient,) = torch.autograd.grad(wanted, wanted_from, g)
    assert torch.equal(found.as_subclass(Tensor).at_home(), gradient)
    assert driver.last_stream() == STREAM
    x[2, 3, 4] = float("nan")
    found = function(there(x)).at_home()
    assert found[2].isnan().any() and ("tensor" in text or not found[5, 5].isnan().all())


@pytest.mark.parametrize("text", ["2:4", "int8+2:4", "vsq4-g16-s4+1:3"])
def test_layers_with_patterns_stay_there_with_their_gradient(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, g, q = values(12, 64), values(12, 7), hc.quantize(values(7, 64).numpy(), text)
    weight, given = moved_weight(q), there(x)
    y = captured(monkeypatch, lambda: ht.linear(given, weight))
    assert y.at_home().numpy().tobytes() == ht.linear(x, q).numpy().tobytes()
    watched = there(x).requires_grad_()
    (found,) = torch.autograd.grad(ht.linear(watched, weight), watched, there(g))
    wanted = g @ torch.from_numpy(q.dequantize())
    assert torch.allclose(found.as_subclass(Tensor).at_home(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activations", [None, "int8"])
@pytest.mark.parametrize("text", ["int8", "int4-g32", "vsq4-g16-s4"])
def test_experts_stay_there_with_their_gradient(
    text: str, activations: Any, monkeypatch: pytest.MonkeyPatch, driver: driven.Driver
) -> None:
    x, g = values(5, 64), values(5, 7)
    q = hc.quantize(values(3, 7, 64).numpy(), text)
    weight, given = moved_weight(q, activations), there(x)
    before = driver.counts()
    for expert in (0, 2, -1):
        y = captured(monkeypatch, lambda: torch.nn.functional.linear(given, weight[expert]))  # noqa: B023
        wanted = ht.linear(x, q[expert], activations=activations)
        assert isinstance(y, Tensor) and torch.equal(y.at_home(), wanted)
        assert torch.equal(ht.linear(x, PackedWeight(q, activations)[expert]), wanted)
        watched = there(x).requires_grad_()
        (found,) = torch.autograd.grad(ht.linear(watched, weight[expert]), watched, there(g))
        expected = g @ torch.from_numpy(q[expert].dequantize())
        assert torch.allclose(found.as_subclass(Tensor).at_home(), expected, rtol=1e-5, atol=1e-5)
    assert driver.counts()[3] == before[3] + driver.counts()[2] - before[2] + driver.counts()[1] - before[1]
    matrix = hc.quantize(values(9, 64).numpy(), text)
    rows = ht.linear(given, moved_weight(matrix, activations)[2:8])  # as the projections of attention take them
    assert torch.equal(rows.at_home(), ht.linear(x, matrix[2:8], activations=activations))
    for index, kind in ((3, IndexError), (-4, IndexError), (slice(0, 3, 2), IndexError)):
        with pytest.raises(kind, match="of a packed weight, expected one of 3 or a slice"):
            weight[index]
    with pytest.raises(ValueError, match=r"rows of .* along axis \(0,\) share scales: call dequantize"):
        moved_weight(hc.quantize(values(64, 7).numpy(), text, axis=0))[0]


@pytest.mark.parametrize("activations", [None, "int8"])
def test_a_packed_convolution_stays_there(
    activations: Any, monkeypatch: pytest.MonkeyPatch, driver: driven.Driver
) -> None:
    x, bias = values(2, 6, 5, 4), values(4)
    q = hc.quantize(values(4, 3, 3, 3).numpy(), "int8", axis=(2, 3, 1))
    weight, given = moved_weight(q, activations), there(x)
    before = driver.counts()
    y = captured(monkeypatch, lambda: ht.conv2d(given, weight, padding=1, groups=2))
    assert [now - then for now, then in zip(driver.counts(), before, strict=True)][1:] == [0, 0, 0]
    wanted = torch.from_numpy(hc.conv2d(x.numpy(), q, padding=1, groups=2, activations=activations))
    assert isinstance(y, Tensor) and torch.equal(y.at_home(), wanted)
    with_bias = ht.conv2d(given, weight, there(bias), padding=1, groups=2)
    assert torch.equal(with_bias.at_home(), wanted + bias.reshape(1, -1, 1, 1))


def test_a_value_that_a_format_lacks_makes_the_answer_nan() -> None:
    x = values(5, 64)
    x[3, 7] = float("inf")
    q = hc.quantize(values(7, 64).numpy(), "int8")
    for y in (
        ht.linear(there(x), moved_weight(q, "int8")),
        ht.fake_quantize(there(x), "int8"),
        ht.fake_quantize(there(x), "int8", rounding="stochastic"),
    ):
        assert (y.at_home().isnan().all(1) == torch.tensor([False, False, False, True, False])).all()


def test_rows_of_a_packed_embedding_are_decoded_there() -> None:
    q = hc.quantize(values(9, 64).numpy(), "vsq4-g16-s4-tensor")
    ids = torch.tensor([[1, 8, 1], [0, 3, 3]])
    rows = ht.rounding.OPS.raw["rows"](there(ids), *_constant(moved_weight(q)))
    assert rows.at_home().numpy().tobytes() == q.dequantize()[ids.numpy()].tobytes()


def _constant(weight: Any) -> Any:
    return weight.parts(), weight.text


def test_what_is_not_there_is_one_sentence() -> None:
    q = hc.quantize(values(7, 64).numpy(), "int8")
    x, weight = there(values(5, 64)), moved_weight(q)
    q4 = hc.quantize(values(2, 4, 1, 1).numpy(), "int8", axis=(2, 3, 1))
    filters = moved_weight(q4)
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: ht.linear(x, PackedWeight(q)), TypeError, "the packed weight is on cpu, expected cuda:0"),
        (lambda: ht.linear(values(5, 64), weight), TypeError, "the packed weight is on cuda:0, expected the CPU"),
        (lambda: ht.linear(there(values(5, 60)), weight), ValueError, "x has 60 features but q has 64 columns"),
        (lambda: ht.linear(there(values(5, 64).double()), weight), NotImplementedError, r"float64: copy .*\.cpu\(\)"),
        (lambda: ht.fake_quantize(x, "int8", clip="search"), NotImplementedError, "clip is 'search' with int8, expe"),
        (lambda: ht.fake_quantize(x, "fp8_e4m3fn-tensor", clip=0.5), NotImplementedError, "a scale of the whole array"),
        (lambda: ht.fake_quantize(x, "mxfp4", clip=0.5), ValueError, "mxfp4 has no scale that clip= could change"),
        (lambda: ht.fake_quantize(x, "int8", clip=1.5), ValueError, "clip is 1.5, expected a fraction"),
        (lambda: ht.fake_quantize(x, "2:4", clip=0.5), ValueError, "clip is 0.5, but 2:4 has no scale"),
        (lambda: ht.fake_quantize(there(values(5, 64).double()), "2:4"), NotImplementedError, r"not prune .*\.cpu"),
        (lambda: ht.fake_quantize(x, "cb4"), NotImplementedError, "do not encode learned codebooks"),
        (lambda: ht.conv2d(there(values(1, 4, 5, 5)), PackedWeight(q4)), TypeError, "is on cpu, expected cuda:0"),
        (lambda: ht.conv2d(there(values(1, 3, 5, 5)), filters), ValueError, "x has 3 channels and w 2 filters of 4"),
    ]  # fmt: skip
    for call, kind, sentence in cases:
        with pytest.raises(kind, match=sentence) as raised:
            call()
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("activations", ["", "int8"])
def test_fake_kernels_answer_for_tensors_on_a_device(activations: str) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    q = hc.quantize(values(7, 64).numpy(), "int8")
    text = operators.described(q)
    with FakeTensorMode():
        parts = [torch.empty(part.shape, dtype=part.dtype, device="cuda") for part in operators.parts_of(q).values()]
        x = torch.empty(3, 64, dtype=torch.float16, device="cuda")
        y = torch.ops.heterocompute.linear(x, parts, text, activations)
        assert y.device.type == "cuda" and y.shape == (3, 7) and y.dtype is torch.float32
        assert torch.ops.heterocompute.linear_backward(y, parts, text).shape == (3, 64)
        notes = [("int8", "", (0,), torch.uint8), ("fp8_e4m3fn", "", (3, 64), torch.uint8)]
        for fmt, clip, shape, kind in [*notes, ("int8", "octav", (3, 64), torch.float32)]:
            rounded, found = torch.ops.heterocompute.fake_quantize(x, fmt, "1", clip, "nearest", 0)
            assert rounded.device.type == "cuda" and rounded.dtype is torch.float16
            assert tuple(found.shape) == shape and found.dtype is kind


@pytest.mark.parametrize("is_usual", [True, False])
def test_functions_of_heterocompute_take_tensors_of_a_device(
    is_usual: bool, monkeypatch: pytest.MonkeyPatch, driver: driven.Driver
) -> None:
    if is_usual:  # whose type a stand-in has not

        def is_device_tensor(value: Any) -> bool:
            return isinstance(value, Tensor) and not value.requires_grad

        for room in ("device", "place"):
            monkeypatch.setattr(f"heterocompute.products.{room}.is_device_tensor", is_device_tensor)
    x, w, bias = values(5, 64), values(7, 64), values(7)
    at_home, there_x, there_w = hc.quantize(w.numpy(), "vsq4-g16-s4"), there(x), there(w)
    there_bias = there(bias)
    allocated, before = driver.live_bytes(), driver.counts()
    q = hc.quantize(there_w, "vsq4-g16-s4")
    assert q.to("cpu") == at_home and q.stream == STREAM
    waits = driver.counts()[3] - before[3]
    calls: list[tuple[Any, Any]] = [
        (lambda: hc.linear(there_x, q), hc.linear(x.numpy(), at_home)),
        (lambda: hc.linear(there_x, q, None, "int8"), hc.linear(x.numpy(), at_home, None, "int8")),
        (lambda: hc.linear(there_x, q, there_bias, "int8"), hc.linear(x.numpy(), at_home, bias.numpy(), "int8")),
        (lambda: hc.linear(there_x[0], q), hc.linear(x[0].numpy(), at_home)),
        (lambda: hc.fake_quantize(there_x, "int4-g32"), hc.fake_quantize(x.numpy(), "int4-g32")),
        (lambda: hc.fake_quantize(there_x, "int8+2:4"), hc.fake_quantize(x.numpy(), "int8+2:4")),
        (lambda: hc.layers.softmax(there_x), hc.layers.softmax(x.numpy())),
    ]
    for call, wanted in calls:
        y = call()
        assert isinstance(y, Tensor) and y.at_home().numpy().tobytes() == wanted.tobytes()
        assert driver.last_stream() == STREAM and driver.live_bytes() == allocated  # all of it is PyTorch's
    assert waits == 1 + len(at_home.components)  # to find NaN, and to compare
    half = hc.fake_quantize(there(x.half()), "int8")
    assert half.at_home().numpy().tobytes() == hc.fake_quantize(x.half().numpy(), "int8").tobytes()
    for wrong, sentence in (
        (x.int(), "w has dtype int32, expected float16"),
        (x.requires_grad_(), "requires a gradient"),
    ):
        with pytest.raises(TypeError, match=sentence):
            hc.quantize(there(wrong).requires_grad_(wrong.requires_grad), "int8")
