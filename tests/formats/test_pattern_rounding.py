"""Formats with a pattern: nonzeros are rounded once, from the input's precision, and in blocks."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from common import FORMATS, bad_argument, isas, reals, same_bits

import heterocompute as hc
from heterocompute.reference import sparsity

BASES = [text for text in FORMATS if not isinstance(hc.format(text), (hc.Sparse, hc.GGML))]
AXES: list[tuple[int, ...]] = [(2,), (0,), (1, 2), (2, 0, 1)]


def between_floats(shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Return float64 values near rounding thresholds: half codes of few bits, off by less than a float32 step."""
    rng = np.random.default_rng(seed)
    halves = rng.integers(-15, 16, shape) / 2 * 2.0 ** rng.integers(-3, 4, shape)
    return np.asarray(halves + rng.choice([-1e-12, 0, 1e-12], shape))


def pattern_of(base: str) -> str:
    group = hc.format(base).group
    return "3:7" if group is None else "2:4" if group % 2 == 0 else f"{group}:{group + 3}"


def as_kept(w: np.ndarray[Any, Any], axes: tuple[int, ...], n: int, m: int) -> tuple[Any, Any, Any]:
    """Return the nonzeros as (rows, runs, kept) by the definition, with positions and metadata."""
    others = [a for a in range(w.ndim) if a not in axes]
    turned = np.ascontiguousarray(w.transpose([*others, *axes]))
    rows = int(np.prod([w.shape[a] for a in others]))
    runs = int(np.prod([w.shape[a] for a in axes[:-1]]))
    values, positions, metadata = sparsity.keep(turned.reshape(rows, runs, -1), None, n, m)
    return values.reshape(rows, runs, -1), positions, metadata


def placed(
    values: np.ndarray[Any, Any], positions: Any, w: np.ndarray[Any, Any], axes: tuple[int, ...], n: int, m: int
):
    """Return nonzeros in w's shape, with zeros between them."""
    others = [a for a in range(w.ndim) if a not in axes]
    order = [*others, *axes]
    runs = values.shape[1]
    dense = sparsity.scatter(values.reshape(len(values), -1), positions, n, m, runs, w.shape[axes[-1]])
    return dense.reshape([w.shape[a] for a in order]).transpose(np.argsort(order))


def test_the_kept_values_of_float64_are_rounded_once() -> None:
    w = np.float64([[7, 2.5 + 1e-12, 0, 0]])
    q = hc.quantize(w, "int4+2:4")
    assert q.components["codes"].tolist() == hc.quantize(w, "int4").components["codes"][:, :1].tolist() == [[0x37]]
    assert hc.fake_quantize(w, "int4+2:4").tolist() == [[7, 3, 0, 0]]
    assert hc.quantize(np.float64([[1 + 2**-8 + 1e-12, 0, 0, 0]]), "bf16+2:4").dequantize()[0, 0] == 1 + 2**-7


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("base", BASES)
def test_a_format_before_a_pattern_is_that_format_of_what_is_kept(base: str) -> None:
    if hc.format(base) == hc.Float("fp32"):
        pytest.skip("a pattern alone")
    n, m = (int(part) for part in pattern_of(base).split(":"))
    fmt = f"{base}+{n}:{m}"
    w = between_floats((3, 5, 44), 1)
    for axes in AXES:
        kept, positions, metadata = as_kept(w, axes, n, m)
        dense = hc.quantize(kept, base, axis=(1, 2))
        q = hc.quantize(w, fmt, axis=axes)
        assert same_bits(q.components["metadata"], metadata)
        for name, part in dense.components.items():
            assert same_bits(q.components[name], part), (axes, name)
        values = dense.dequantize()
        expected = placed(values, positions, w, axes, n, m)
        assert np.array_equal(q.dequantize(), expected, equal_nan=True)  # NaN: beyond the largest, without saturation
        assert same_bits(hc.fake_quantize(w, fmt, axis=axes), q.dequantize())
        for other in (np.asfortranarray(w), np.repeat(w, 2, axis=1)[:, ::2], w[::-1][::-1]):
            assert hc.quantize(other, fmt, axis=axes) == q
            assert same_bits(hc.fake_quantize(other, fmt, axis=axes), q.dequantize())


@pytest.mark.parametrize("isa", isas("choose_nm", "encode_"))
def test_every_instruction_set_rounds_what_is_kept_alike(isa: str) -> None:
    w = between_floats((7, 515), 2)
    expected = {}
    with hc.use(isa="scalar", threads=1):
        for fmt in (
            "int4+2:4",
            "int8+3:7",
            "fp16+1:8",
            "vsq4-g16-s4+2:4",
            "mxfp4+1:16",
            "nvfp4+4:8",
            "int4-g32-f16+2:4",
        ):
            expected[fmt] = hc.quantize(w, fmt)
    with hc.use(isa=isa):
        for fmt, q in expected.items():
            assert hc.quantize(w, fmt) == q
            assert same_bits(hc.fake_quantize(w, fmt), q.dequantize())


@pytest.mark.parametrize("clip", [0.75, "percentile:90", "octav"])
@pytest.mark.parametrize("base", ["int4", "int4-g16", "fp8_e4m3fn-tensor", "vsq4-g16-s4"])
def test_clipping_sees_what_is_kept(base: str, clip: Any) -> None:
    w = between_floats((5, 3, 40), 3)
    for axes in ((2,), (2, 1), (0,)):
        kept, _, metadata = as_kept(w, axes, 2, 4)
        dense = hc.quantize(kept, base, axis=(1, 2), clip=clip)
        q = hc.quantize(w, f"{base}+2:4", axis=axes, clip=clip)
        assert same_bits(q.components["metadata"], metadata)
        for name, part in dense.components.items():
            assert same_bits(q.components[name], part), (axes, name)
    with bad_argument(ValueError, None, "missing", r"fp16\+2:4 has no scale that clip= could change|2:4 has no scale"):
        hc.quantize(w, "fp16+2:4", clip=clip)
    for call in (hc.quantize, hc.fake_quantize):
        with pytest.raises(ValueError, match="2:4"):
            call(w, "2:4", clip=clip)


def test_products_round_activations_as_quantize_does() -> None:
    w = hc.quantize(reals((9, 64), 4), "int8")
    filters = hc.quantize(reals((4, 8, 3, 3), 5), "int8", axis=(2, 3, 1))
    for rows in (1, 5, 30):
        x = between_floats((rows, 64), rows)
        for fmt in ("int4+2:4", "2:4", "fp8_e4m3fn-row+2:4", "int4-g16+1:4"):
            q = hc.quantize(x, fmt)
            rounded = q if "int" in fmt else q.dequantize()  # integers on both sides are multiplied as such
            assert same_bits(hc.linear(x, w, activations=fmt), hc.linear(rounded, w))
            assert same_bits(hc.matmul(w, x.T, activations=fmt), hc.matmul(w, rounded.T))
            with hc.use(blas="own"):
                dense = hc.linear(x, np.asarray(w), activations=fmt)
                assert same_bits(dense, hc.linear(q.dequantize(), np.asarray(w)))
    image = between_floats((2, 8, 6, 5), 6)
    for fmt in ("int4+2:4", "2:4", "int4-g4+2:4"):
        rounded = hc.quantize(image, fmt, axis=(2, 3, 1)).dequantize()
        for weights in (np.asarray(filters), hc.quantize(np.asarray(filters), "fp16")):
            assert same_bits(hc.conv2d(image, weights, activations=fmt), hc.conv2d(rounded, weights))
        # integers on both sides are multiplied as such
        close = hc.conv2d(rounded.astype(np.float64), np.asarray(filters))
        assert np.allclose(hc.conv2d(image, filters, activations=fmt), close, atol=1e-5 * np.abs(close).max())


def test_a_pattern_alone_is_float32() -> None:
    """Values are compared as float32, so that 1 and 1 + 1e-12 tie, and stored as float32 with one rounding."""
    w = np.float64([[1, 1 + 1e-12, 1 + 2e-12, 0]])
    assert hc.prune_mask(w, "1:4").tolist() == [[True, False, False, False]]
    assert hc.quantize(w, "int8+1:4").dequantize().tolist() == [[1, 0, 0, 0]]
    assert hc.quantize(w, "2:4") == hc.prune(w, "2:4") == hc.prune(w.astype(np.float32), "2:4")
    large = np.float64([[1e39, -1e300, 3, 4]])  # fp32 saturates
    largest = np.finfo(np.float32).max
    assert hc.quantize(large, "2:4").dequantize().tolist() == [[largest, -largest, 0, 0]]
    assert hc.fake_quantize(large, "2:4").tolist() == [[largest, -largest, 0, 0]]
    assert hc.quantize(np.float32([[np.inf, 1, -np.inf, 0]]), "2:4").dequantize().tolist() == [[np.inf, 0, -np.inf, 0]]
    with bad_argument(ValueError, "w", "value", r"at index \(0, 0\)"):
        hc.quantize(large, "int8+2:4")


def test_a_value_without_a_place_is_named_wherever_it_is() -> None:
    for dtype in (np.float32, np.float64):
        for at in ((0, 0), (3, 41), (69, 99)):
            w = reals((70, 100), 7).astype(dtype)
            w[at] = np.nan
            sentence = rf"has nan at index \({at[0]}, {at[1]}\)"
            for axis in (0, 1, (1, 0)):
                for fmt in ("int8+2:4", "fp8_e4m3fn+2:4", "fp8_e4m3fn-tensor+2:4", "2:4", "cb2-tensor+2:4"):
                    for call in (hc.quantize, hc.fake_quantize):
                        with pytest.raises(ValueError, match=sentence):
                            call(w, fmt, axis=axis)
            q = hc.quantize(reals((4, 100), 8), "int8")
            for weights in (q, np.asarray(q)):
                with pytest.raises(ValueError, match=f"linear: x {sentence}"):
                    hc.linear(w, weights, activations="int8+2:4")
    saturated = hc.quantize(np.float32([[np.inf, 1, np.inf, np.inf]]), "fp8_e4m3fn+2:4")
    assert saturated.dequantize().tolist() == [[448, 0, 448, 0]]


MEMORY = """
import resource
import numpy as np
import heterocompute as hc

row = np.zeros(2**14, {dtype})
x = np.lib.stride_tricks.as_strided(row, {shape}, {strides})
w = {weights}
{call}  # what a first call needs, on a few rows
row[:] = 1
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
x = np.lib.stride_tricks.as_strided(row, {whole}, {strides})
{call}
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss in KiB")
@pytest.mark.parametrize(
    ("call", "answer", "weights"),
    [
        ("hc.quantize(x, 'int8+2:4')", 80, "None"),
        ("hc.linear(x, w, activations='2:4')", 1, "hc.quantize(np.ones((4, 2**14), np.float32), 'int8')"),
        ("hc.linear(x, w, activations='int8+2:4')", 1, "hc.quantize(np.ones((4, 2**14), np.float32), 'int8')"),
        (
            "hc.conv2d(x.reshape(-1, 16, 32, 32)[:, :8], w, stride=32, activations='2:4')",
            1,
            "hc.quantize(np.ones((4, 8, 3, 3), np.float32), 'int8', axis=(2, 3, 1))",
        ),
    ],
)
@pytest.mark.sweep(every=4)
def test_working_memory_is_bounded(call: str, answer: int, weights: str) -> None:
    """The operand is a view of 512 MiB on 64 KiB of memory."""
    view = call.replace(
        "x.reshape(-1, 16, 32, 32)", "np.lib.stride_tricks.as_strided(x, (len(x), 16, 32, 32), (0, 4096, 128, 4))"
    )
    code = MEMORY.format(
        dtype="np.float32", shape=(16, 2**14), strides=(0, 4), whole=(2**13, 2**14), call=view, weights=weights
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < answer + 64, done.stdout
