"""Floats times N:M patterns on a device, and their values, with the bits of the CPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import driven
import emulated
import numpy as np
import pytest
from driven import Lent

import heterocompute as hc
from heterocompute.arrays.device import DeviceArray


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[driven.Driver]:
    yield driven.used(monkeypatch)
    gc.collect()


def values(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def bits_of(x: np.ndarray[Any, Any]) -> bytes:
    """Return the bytes of x, with one NaN for all: a device computes a NaN of other bits than the CPU."""
    return np.where(np.isnan(x), np.float32(np.nan), x).tobytes()


FORMATS = ["2:4", "1:3", "1:1", "int8+2:4", "int4-g32-f16+2:4", "vsq4-g16-s4+1:3", "nf4-g64+2:4", "fp8_e4m3fn-row+3:4",
           "mxfp4+2:4", "nvfp4+2:8", "int4-g28+7:8", "log8-8+2:4", "int8+5:32", "int8+32:32", "fp8_e4m3fn+1:4",
           "bf16+2:4"]  # fmt: skip


@pytest.mark.parametrize("k", [64, 70, 201])
@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=3)
def test_floats_times_a_pattern_give_the_bits_of_the_cpu(text: str, k: int) -> None:
    w, bias = values(7, k), values(7)
    q = hc.quantize(w, text)
    there, added = q.to("cuda"), Lent(bias)
    for rows in (1, 3, 8, 9, 40):
        x = values(rows, k)
        if rows in (3, 9):  # pruned values are never multiplied
            x[1, 5], x[0, 7] = np.inf, np.nan
        y = hc.linear(Lent(x), there, added)
        assert y.device == "cuda:0" and bits_of(y.to_numpy()) == bits_of(hc.linear(x, q, bias))
    tiny, small = hc.quantize(w * np.float32(1e-38), text), values(11, k) * np.float32(1e-30)  # sums of -0
    assert hc.linear(Lent(small), tiny.to("cuda")).to_numpy().tobytes() == hc.linear(small, tiny).tobytes()
    found = hc.explain(hc.linear, Lent(values(40, k)), there)
    assert "hc_sgemm_kept_32" in str(found)
    half = values(3, k).astype(np.float16)
    assert hc.linear(Lent(half), there).to_numpy().tobytes() == hc.linear(half, q).tobytes()
    for dtype in (np.float32, np.float64):
        assert there.dequantize(dtype).to_numpy().tobytes() == q.dequantize(dtype).tobytes()


@pytest.mark.parametrize(
    ("text", "axis"), [("2:4", (2, 3, 1)), ("int8+2:4", (2, 3, 1)), ("int4-g4+2:4", (0,)), ("int8+3:8", (0, 1))]
)
def test_patterns_along_any_axes_are_decoded(text: str, axis: tuple[int, ...]) -> None:
    q = hc.quantize(values(4, 6, 3, 3), text, axis=axis)
    assert q.to("cuda").dequantize().to_numpy().tobytes() == q.dequantize().tobytes()


@pytest.mark.parametrize("text", ["2:4", "int8+2:4", "int4-g6+2:4", "fp8_e4m3fn-row+1:3"])
def test_images_meet_filters_with_patterns(text: str) -> None:
    image, bias = values(2, 12, 5, 6), values(8)
    q = hc.quantize(values(8, 6, 3, 3), text, axis=(2, 3, 1))
    y = hc.conv2d(Lent(image), q.to("cuda"), Lent(bias), padding=1, groups=2)
    wanted = hc.conv2d(image, q, bias, padding=1, groups=2, algorithm="direct")
    assert y.to_numpy().tobytes() == wanted.tobytes()


@pytest.mark.parametrize("text", ["2:4", "int8+2:4", "vsq4-g16-s4+1:3", "fp8_e4m3fn+2:4"])
def test_values_are_rounded_to_patterns(text: str) -> None:
    x = values(5, 70)
    wanted, there = hc.fake_quantize(x, text), DeviceArray.from_numpy(x)
    assert hc.fake_quantize(Lent(x), text).to_numpy().tobytes() == wanted.tobytes()
    assert hc.fake_quantize(there, text, out=there).to_numpy().tobytes() == wanted.tobytes()
    if not text.startswith("fp8"):
        y, back = hc.training.fake_quantize(Lent(x), text)
        g = Lent(x)
        assert y.to_numpy().tobytes() == wanted.tobytes() and back(g) is g  # type: ignore[attr-defined]
    x[3, 5] = np.nan
    chance = hc.training.fake_quantize(Lent(x), text, rounding="stochastic")[0]
    for y in (hc.fake_quantize(Lent(x), text), hc.training.fake_quantize(Lent(x), text)[0], chance):
        found, m = y.to_numpy(), int(text[-1])
        assert np.isnan(found[3, 5 // m * m :][:m]).any()
        if text.startswith(("int8", "vsq")):  # of one scale: all nonzeros
            assert (np.isnan(found[3]) | (found[3] == 0)).all()
        rest = np.delete(found, 3, 0)
        assert not np.isnan(rest).any() and (y is chance or rest.tobytes() == np.delete(wanted, 3, 0).tobytes())


@pytest.mark.parametrize("columns", [64, 70])  # by the kernel of whole chunks, and by the general one
@pytest.mark.parametrize("pattern", ["2:4", "1:3"])
def test_a_block_with_nan_has_nan_alone(pattern: str, columns: int) -> None:
    x, (n, m) = values(5, columns), map(int, pattern.split(":"))
    wanted, block = hc.fake_quantize(x, pattern), slice(5 // m * m, 5 // m * m + m)
    x[3, 5] = np.nan
    found = hc.fake_quantize(Lent(x), pattern).to_numpy()
    assert np.isnan(found[3, block]).sum() == n and np.nan_to_num(found[3, block]).sum() == 0
    found[3, block] = wanted[3, block]
    assert found.tobytes() == wanted.tobytes()


def test_kept_values_of_16_bits_multiply_too() -> None:
    s, x = hc.prune(values(24, 9).astype(np.float16), "2:4"), values(3, 9)
    y = hc.linear(Lent(x), s.to("cuda"))
    assert y.to_numpy().tobytes() == hc.linear(x, s).tobytes()
    strided = Lent(x, shape=(9,), strides=(4,))
    assert hc.linear(strided, s.to("cuda")).to_numpy().tobytes() == hc.linear(x[0], s).tobytes()


def test_what_patterns_lack_is_one_sentence() -> None:
    x, plain = Lent(values(3, 64)), hc.prune(values(7, 64), "2:4")
    cases: list[tuple[Any, str]] = [
        (lambda: hc.linear(x, plain.to("cuda"), activations="int8"), "do not multiply these two formats: copy the"),
        (lambda: hc.linear(x, hc.quantize(values(7, 64), "cb4+2:4").to("cuda")), "learned codebooks: copy the"),
        (lambda: hc.linear(Lent(values(3, 64).astype(np.float64)), plain.to("cuda")), "or float64: copy the arguments"),
    ]
    for call, sentence in cases:
        with pytest.raises(NotImplementedError, match=sentence) as raised:
            call()
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("order", [0, 1, 7])
@pytest.mark.parametrize("text", ["int4-g32+2:4", "int8+7:8"])
def test_threads_in_any_order_give_the_same(text: str, order: int) -> None:
    w = values(9, 70)
    q = hc.quantize(w, text)
    for rows in (2, 33):
        x = values(rows, 70)
        assert emulated.linear(x, q, order=order).tobytes() == hc.linear(x, q).tobytes()
