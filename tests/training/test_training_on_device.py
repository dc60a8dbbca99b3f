"""Rounding with a gradient for arrays on a device, by the fake driver: the bits of the CPU."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "cuda"))
import driven
from driven import Lent, LentByDlpack

import heterocompute as hc
from heterocompute.arrays.device import DeviceArray

rounding_of = hc.training.fake_quantize
pytestmark = pytest.mark.usefixtures("only_new_garbage")


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[driven.Driver]:
    yield from driven.without_leaks(monkeypatch)


def values(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def bits_of(x: np.ndarray[Any, Any]) -> bytes:
    """Return the bytes of x, with one NaN for all: a device computes a NaN of other bits than the CPU."""
    return np.where(np.isnan(x), np.float32(np.nan), x).tobytes()


CLIPPED: list[tuple[str, Any, Any]] = [
    ("int8", -1, 0.7),
    ("int8", (2, 1), "octav"),
    ("int8", (0, 2), "percentile:37.5"),
    ("int4-g24", (2, 1), 0.75),
    ("int4-g32-f16", -1, 0.9),
    ("int4-g24-asym", -1, 0.5),
    ("vsq4-g16-s4", 0, "octav"),
    ("vsq4u-g16-s4", -1, "octav"),
    ("vsq4u-g16-s4", 1, None),
    ("nf4-g64", -1, 0.95),
    ("log8-8", (0, 2), 0.7),
    ("log4-2-g16", (0, 2), "octav"),
    ("fp8_e4m3fn", -1, None),
    ("fp8_e5m2", 0, None),
    ("bf16", (1, 2), None),
    ("fp32", -1, None),
    ("fp8_e4m3fn-row", (2, 1), 0.4),
    ("mxfp4", -1, None),
    ("int4-g28+7:8", (0, 2), "octav"),
    ("vsq4-g16-s4+1:3", -1, "percentile:75"),
    ("fp8_e4m3fn+2:4", 1, None),
    ("log8-8+2:4", -1, 0.8),
    ("int8+2:4", 1, None),
    ("2:4", -1, None),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize(("text", "axis", "clip"), CLIPPED)
@pytest.mark.sweep(every=32)
def test_values_and_gradient_are_those_of_the_cpu(text: str, axis: Any, clip: Any, rounding: str, dtype: Any) -> None:
    if dtype is np.float64 and (":" in text or "+" in text):
        pytest.skip("no pruning of float64")
    x, g = values(6, 10, 50) * 300, values(6, 10, 50)
    x[2, 3], x[4, 4], x[0] = 0, np.round(x[4, 4] / 200), x[0] * np.float32(1e-38)
    x, g[1, 2, 3], g[5, 5, 5] = x.astype(dtype), np.inf, np.nan  # dropped where the gradient does not pass
    wanted, back_of_cpu = rounding_of(x, text, axis, clip, rounding, 2**63 + 5)
    lent = Lent(x)
    y, back = rounding_of(lent, text, axis, clip, rounding, 2**63 + 5)
    assert y.device == "cuda:0" and y.to_numpy().tobytes() == wanted.tobytes()  # type: ignore[attr-defined]
    for other in (g, g.astype(np.float16), g.astype(np.float64)):
        passed = back(Lent(other))
        if other is g or not isinstance(passed, Lent):
            found = back_of_cpu(other)
            if not isinstance(passed, Lent):
                assert bits_of(passed.to_numpy()) == bits_of(found)
            else:
                assert np.array_equal(found, g, equal_nan=True)  # all of it passes
    turned = Lent(g.transpose(2, 0, 1).copy(), shape=g.shape, strides=(40, 4, 240))
    passed = back(turned)
    if passed is not turned:
        assert bits_of(passed.to_numpy()) == bits_of(back_of_cpu(g))


@pytest.mark.parametrize("text", ["fp8_e4m3fn", "fp8_e5m2", "fp4_e2m1", "bf16", "fp16", "fp32"])
def test_infinity_becomes_what_the_format_makes_of_it(text: str) -> None:
    x = values(3, 40)
    x[1, 3], x[2, 5] = np.inf, -np.inf
    for rounding in ("nearest", "stochastic"):
        wanted, back_of_cpu = rounding_of(x, text, rounding=rounding, seed=3)
        y, back = rounding_of(Lent(x), text, rounding=rounding, seed=3)
        assert y.to_numpy().tobytes() == wanted.tobytes()  # type: ignore[attr-defined]
        g = values(3, 40)
        lent = Lent(g)
        passed = back(lent)
        assert (g if passed is lent else passed.to_numpy()).tobytes() == back_of_cpu(g).tobytes()


SCALED: list[tuple[str, tuple[int, ...], Any]] = [
    ("int8", (5, 96), -1),
    ("int4-g32", (5, 70), -1),
    ("int3-g5-f16", (4, 6, 23), 1),
    ("int8", (4, 6, 3, 5), (2, 3, 1)),
    ("int4-g16", (4, 40, 3, 2), (2, 3, 1)),
    ("int2", (70,), 0),
    ("int8-f16", (3, 4, 5), (2, 0)),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize(("text", "shape", "axis"), SCALED)
@pytest.mark.sweep(every=4)
def test_a_trained_scale_and_its_gradient_are_those_of_the_cpu(text: str, shape: Any, axis: Any, dtype: Any) -> None:
    x, g = values(*shape), values(*shape[::-1]).reshape(shape)
    scale = hc.quantize(x, text, axis).components["scales"].astype(np.float32) * np.float32(0.6)
    x = x.astype(dtype)
    x.flat[3] = 6e4  # far above the largest code
    wanted, back_of_cpu = rounding_of(x, text, axis, scale=scale)
    for given in (scale, scale.astype(np.float64)):
        y, back = rounding_of(Lent(x), text, axis, scale=Lent(given))
        assert y.to_numpy().tobytes() == wanted.tobytes()  # type: ignore[attr-defined]
    for kind in (np.float32, np.float16, np.float64):
        found, wanted_ones = back(Lent(g.astype(kind))), back_of_cpu(g.astype(kind))
        assert [one.to_numpy().tobytes() for one in found] == [one.tobytes() for one in wanted_ones]
        assert [one.shape for one in found] == [one.shape for one in wanted_ones]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_trained_scale_refuses_what_is_not_finite(wrong: float) -> None:
    x, scale = values(5, 70), np.ones((5, 1), np.float32)
    bad, none = x.copy(), scale.copy()
    bad[2, 3], none[2] = wrong, 0
    with pytest.raises(ValueError, match=r"fake_quantize: w .*\(2, 3\)"):
        rounding_of(bad, "int8", scale=scale)
    wanted, _ = rounding_of(x, "int8", scale=scale)
    for given, scales, lost in ((bad, scale, (2, 3)), (x, none, (2, slice(None)))):  # a device makes these NaN
        y = rounding_of(Lent(given), "int8", scale=Lent(scales))[0].to_numpy()
        where = np.zeros(x.shape, bool)
        where[lost] = True
        assert (np.isnan(y) == where).all() and y[~where].tobytes() == wanted[~where].tobytes()


def test_streams_libraries_and_arrays_of_the_cpu(monkeypatch: pytest.MonkeyPatch, driver: driven.Driver) -> None:
    x, g, scale = values(5, 64), values(5, 64)[::-1].copy(), np.full((5, 1), 0.01, np.float32)
    wanted, back_of_cpu = rounding_of(x, "int8", clip=0.5)
    wanted_gradient = back_of_cpu(g).tobytes()
    y, back = rounding_of(Lent(x, stream=7), "int8", clip=0.5)
    assert back(Lent(g, stream=9)).to_numpy().tobytes() == wanted_gradient
    assert back(LentByDlpack(g)).to_numpy().tobytes() == wanted_gradient
    del y, back
    with hc.use(backend="cuda"):
        y, back = rounding_of(x, "int8", clip=0.5)
        scaled, back_of_scale = rounding_of(x, "int8", scale=scale)
    before = driver.counts()[0]
    assert isinstance(y, np.ndarray) and y.tobytes() == wanted.tobytes() and back(g).tobytes() == wanted_gradient
    assert driver.counts()[0] > before
    of_w, of_scale = back_of_scale(g)
    at_home, back_of_cpu = rounding_of(x, "int8", scale=scale)
    assert scaled.tobytes() == at_home.tobytes()
    assert (of_w.tobytes(), of_scale.tobytes()) == tuple(one.tobytes() for one in back_of_cpu(g))
    cp = driven.StandIn()
    monkeypatch.setitem(sys.modules, "cupy", cp)
    there, back = rounding_of(cp.asarray(x), "int8", clip=0.5)
    assert isinstance(there, driven.Imported) and isinstance(back(cp.asarray(g)), driven.Imported)
    empty, back = rounding_of(DeviceArray.from_numpy(x[:0]), "int8", clip=0.5)
    assert empty.shape == (0, 64) and back(DeviceArray.from_numpy(g[:0])).shape == (0, 64)
    empty, back = rounding_of(DeviceArray.from_numpy(x[:, :0]), "int4-g32", scale=DeviceArray.from_numpy(scale[:, :0]))
    assert back(DeviceArray.from_numpy(g[:, :0]))[1].shape == (5, 0)


def test_a_gradient_holds_its_note_alone(driver: driven.Driver) -> None:
    held = driver.live_bytes()
    for text, options, each in (("int8", {"clip": 0.5}, 1), ("int8", {"clip": "octav"}, 4), ("int8", {}, 0)):
        y, back = rounding_of(Lent(values(32, 64)), text, **options)  # type: ignore[arg-type]
        del y
        gc.collect()
        assert driver.live_bytes() - held == 32 * 64 * each
        assert back is not None
    y, back = rounding_of(Lent(values(32, 64)), "int8", scale=Lent(np.ones((32, 1), np.float32)))
    del y
    gc.collect()
    assert driver.live_bytes() - held == 32 * 64 * 4


def test_what_training_refuses_on_a_device_is_one_sentence() -> None:
    x, other = Lent(values(5, 64)), values(5, 64)
    scale = np.ones((5, 1), np.float32)
    _, back = rounding_of(x, "int8", clip=0.5)
    _, back_of_scale = rounding_of(x, "int8", scale=Lent(scale))
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: rounding_of(x, "int8", clip="search"), NotImplementedError, "clip is 'search' with int8, expected a"),
        (lambda: rounding_of(x, "mxfp4", clip=0.5), ValueError, "mxfp4 has no scale that clip= could change"),
        (lambda: rounding_of(x, "2:4", clip=0.5), ValueError, "clip is 0.5, but 2:4 has no scale"),
        (lambda: rounding_of(x, "int8", clip=0.5, scale=Lent(scale)), ValueError, "with scale= there is no clip"),
        (lambda: rounding_of(x, "int8", scale=scale), TypeError, "fake_quantize: scale is in the memory of the CPU"),
        (lambda: rounding_of(other, "int8", scale=Lent(scale)), TypeError, "scale is a Lent on '0'"),
        (lambda: rounding_of(x, "int8", scale=Lent(scale, 1)), ValueError, "w on cuda:0 and scale on cuda:1"),
        (lambda: rounding_of(x, "nf4-g64", scale=Lent(scale)), ValueError, "scale is trained for symmetric integers"),
        (
            lambda: rounding_of(x, "int8", scale=Lent(scale[1:])),
            ValueError,
            r"scale has shape \(4, 1\), expected \(5, 1",
        ),
        (lambda: rounding_of(x, "cb4", rounding="stochastic"), ValueError, "has no levels of cb4"),
        (lambda: rounding_of(x, "cb4", clip=0.5), ValueError, "cb4 has no scale that clip= could change"),
        (lambda: back(Lent(other[1:])), ValueError, r"back: g has shape \(4, 64\), expected \(5, 64\)"),
        (lambda: back(other), TypeError, "back: g is in the memory of the CPU and another argument is on a CUDA"),
        (lambda: back(Lent(other, 1)), ValueError, "back: g is on cuda:1, expected cuda:0"),
        (lambda: back_of_scale(Lent(other[:, 1:])), ValueError, r"back: g has shape \(5, 63\), expected \(5, 64\)"),
        (lambda: rounding_of(hc.quantize(other, "int8").to("cuda"), "int8"), TypeError, "w is a QuantizedArray"),
    ]
    for call, kind, sentence in cases:
        with pytest.raises(kind, match=sentence) as raised:
            call()
        assert "\n" not in str(raised.value)
    infinite = other.copy()
    infinite[3, 1] = np.inf
    found = rounding_of(Lent(infinite), "int8+2:4")[0].to_numpy()
    assert np.isnan(found[3]).sum() == 32 and not np.isnan(np.delete(found, 3, 0)).any()


def test_memory_that_runs_out_is_one_sentence_and_none_is_lost(
    monkeypatch: pytest.MonkeyPatch, driver: driven.Driver
) -> None:
    x, scale = Lent(values(64, 64)), Lent(np.ones((64, 1), np.float32))
    rounding_of(x, "int8", clip=0.5)
    gc.collect()
    held = driver.live_bytes()
    for text, clip, by in (
        ("int8", 0.5, None),
        ("int8+2:4", "octav", None),
        ("log8-8", None, None),
        ("int8", None, scale),
    ):
        failed = 0
        for room in range(0, 200_000, 8_000):
            monkeypatch.setenv("FAKE_DRIVER_BYTES", str(held + room))
            rounding = "nearest" if by is not None else "stochastic"
            try:
                rounding_of(x, text, clip=clip, rounding=rounding, scale=by)
            except MemoryError as error:
                assert "cuda: device 0 has no" in str(error) and "\n" not in str(error)
                failed += 1
            gc.collect()
            assert driver.live_bytes() == held
        assert 0 < failed < 25
