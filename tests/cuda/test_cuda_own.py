"""Formats that sentences define have the bits of the CPU on a device, or are refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import driven
import emulated
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.arrays.device import DeviceArray

# Every scale, sharing and kind of element.
TABLES = [
    *[
        "e3m4fnuz-g32-e8m0",
        "posit8.1-g32-f16",
        "ternary-g128-absmean",
        "binary",
        "takum8-tensor",
        "log5-3-g16",
        "uint4",
    ],
    *["e2m1-g64", "e2m1-g32-f16", "e2m1-g64-e8m0", "e2m1-g16-e4m3fn-f32tensor", "e1m2-g5-e4m3fn", "int4-g64-bf16"],
    *["int4f2-g32-e8m0", "e4m3", "e5m2fnuz", "e4m3fn-b4x16", "e4m3fn-b3x16-bf16", "e4m3fn-b2x8-e4m3fn-f32tensor"],
    *["int12f3-g32-e8m0", "e5m10-g16", "e2m1-row-f16", "e2m1-row-e8m0"],
]
# Sentences of the catalogue's integers, whose kernels they share, and those that differ in their rounding alone.
INTEGERS = [
    "int4-g64-f16",
    "int4-g16-s4-f32row",
    "int4-g16-s4-f32tensor",
    "int8-g64-s8-f32row",
    "int12",
    "int5-g24-f16",
]
NOT_ROUNDED = ["int8full-g32", "int4full-g32-f16", "int4full", "int8-absmean"]
SHAPES = [(1, 6, 128), (3, 33, 64), (40, 9, 100), (8, 5, 37), (2, 40, 1024)]


def spec_of(text: str) -> Any:
    """Return a format of a sentence, also where the catalogue reads the text."""
    found = hc.format(text)
    if type(found) is not hc.Int:
        return found
    group = {"group": found.group} if found.group else {}
    return hc.define(None, hc.Integer(found.bits), scale="f16" if text.endswith("f16") else None, **group)


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    """Return normal values, with tiny rows and zeros of either sign."""
    x = np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(np.float32)
    x[:1] *= np.float32(1e-38)
    x[-1:, ::3] = -0.0
    return x


@pytest.mark.parametrize("text", [*TABLES, *INTEGERS, *NOT_ROUNDED])
@pytest.mark.sweep(every=3)
def test_values_and_float_matmuls_have_the_bits_of_the_cpu(text: str) -> None:
    spec = spec_of(text)
    for order, (m, n, k) in enumerate(SHAPES):
        x, q = drawn(m, k), hc.quantize(drawn(n, k), spec)
        assert emulated.dequantize(q, order=order).tobytes() == q.dequantize().tobytes()
        assert emulated.dequantize(q, np.float64).tobytes() == q.dequantize(dtype=np.float64).tobytes()
        assert emulated.linear(x, q, order=order).tobytes() == hc.linear(x, q).tobytes()


@pytest.mark.parametrize(
    ("text", "family"),
    [("e2m1-g64", "nf4"), ("int4f2-g32-e8m0", "mx"), ("e2m1-g32-f16", "ggml"), ("e1m2-g16-e4m3fn-f32tensor", "nvfp4")],
)
def test_a_table_of_4_bits_is_an_argument_of_kernels_of_words(text: str, family: str) -> None:
    q = hc.quantize(drawn(40, 1024), text)
    for m in (1, 7):
        x = emulated.filled((m, 1024))
        x[...] = drawn(m, 1024)
        assert emulated.linear(x, q, path=b"words").tobytes() == hc.linear(x, q).tobytes()
        assert emulated.launched == [f"hc_gemv_{family}_b4_v{1 if m == 1 else 8}"]


@pytest.mark.parametrize("text", ["ternary-g128-absmean", "binary", "uint4", "e2m1-g64-e8m0", "int4-g64-bf16",
                                  "ternary-b4x16", *INTEGERS, *NOT_ROUNDED])  # fmt: skip
@pytest.mark.sweep(every=3)
def test_integer_matmuls_have_the_bits_of_the_cpu(text: str) -> None:
    spec = spec_of(text)
    for order, (m, n, k) in enumerate(SHAPES):
        x, q = drawn(m, k), hc.quantize(drawn(n, k), spec)
        with hc.use(path="gemm"):
            wanted = hc.linear(x, q, activations="int8")
        assert emulated.linear(x, q, None, hc.format("int8"), order).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("text", INTEGERS)
def test_sentences_of_catalogued_integers_are_rounded_on_the_device(text: str) -> None:
    spec = spec_of(text)
    for order, (_, n, k) in enumerate(SHAPES):
        w = drawn(n, k)
        q = hc.quantize(w, spec)
        components, illegal = emulated.quantize(w, q, order)
        assert not illegal
        for name, part in q.components.items():
            assert components[name].tobytes() == part.tobytes(), name
        assert emulated.fake_quantize(w, spec, q.axis, order).tobytes() == q.dequantize().tobytes()


@pytest.mark.parametrize("text", ["e3m4-g16+2:4", "ternary-g32-f16+2:4", "int4-g32-bf16+1:4"])
def test_patterns_of_own_formats_have_the_bits_of_the_cpu(text: str) -> None:
    for m in (1, 5, 40):
        x, q = drawn(m, 128), hc.quantize(drawn(9, 128), text)
        assert emulated.dequantize(q).tobytes() == q.dequantize().tobytes()
        assert emulated.linear(x, q).tobytes() == hc.linear(x, q).tobytes()


@pytest.mark.parametrize("text", ["log4-2", "log8-8-g16"])
def test_log_numbers_are_read_by_a_record_too(text: str) -> None:
    q = hc.quantize(drawn(9, 64), text)
    assert emulated.dequantize(q).tobytes() == q.dequantize().tobytes()
    assert emulated.launched == ["hc_table", "hc_decode_own"]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Use the fake driver, whose memory must be free at the end."""
    yield from driven.without_leaks(monkeypatch)


@pytest.mark.parametrize("text", ["e3m4fnuz-g32-e8m0", "e4m3fn-b4x16", "ternary-g16-absmean"])
def test_arrays_move_and_multiply_on_the_device(driver: Any, text: str) -> None:
    x, w = drawn(3, 64), drawn(12, 64)
    q = hc.quantize(w, text)
    there, lent = q.to("cuda"), DeviceArray.from_numpy(x)
    assert there.to("cpu") == q and there.device == "cuda:0"  # type: ignore[attr-defined]
    assert there.dequantize().to_numpy().tobytes() == q.dequantize().tobytes()  # type: ignore[attr-defined]
    assert hc.linear(lent, there).to_numpy().tobytes() == hc.linear(x, q).tobytes()
    assert hc.matmul(lent, there.T).to_numpy().tobytes() == hc.linear(x, q).tobytes()  # type: ignore[attr-defined]
    part = there[4:8]
    assert part.to("cpu") == q[4:8]
    assert hc.linear(lent, part).to_numpy().tobytes() == hc.linear(x, q[4:8]).tobytes()
    filters = hc.quantize(drawn(4, 3, 3, 3), text, axis=(2, 3, 1))
    image = drawn(2, 3, 7, 5)
    wanted = hc.conv2d(image, filters, algorithm="direct")
    assert hc.conv2d(DeviceArray.from_numpy(image), filters.to("cuda")).to_numpy().tobytes() == wanted.tobytes()


def test_what_lacks_kernels_is_refused_in_one_sentence(driver: Any) -> None:
    text = "e3m4-g16-f16"
    x, tokens = DeviceArray.from_numpy(drawn(4, 64)), DeviceArray.from_numpy(drawn(1, 2, 3, 64))
    q = hc.quantize(drawn(8, 64), text).to("cuda")
    calls: list[Callable[[], Any]] = [
        lambda: hc.quantize(x, text),
        lambda: hc.fake_quantize(x, text),
        lambda: hc.quantize(x, f"{text}+2:4"),
        lambda: hc.training.fake_quantize(x, text),
        lambda: hc.training.fake_quantize(x, text, rounding="stochastic"),
        lambda: hc.linear(x, q, activations="int8"),
        lambda: hc.linear(x, q, activations=text),
        lambda: hc.KVCache(text, heads=2).add(0, tokens, tokens),
    ]
    for call in calls:
        with pytest.raises(NotImplementedError) as raised:
            call()
        assert "the CUDA kernels do not" in str(raised.value) and "to the CPU" in str(raised.value)
        assert "\n" not in str(raised.value)
