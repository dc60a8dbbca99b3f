"""Patterns times one to eight vectors: the stated orders over nonzeros, exact integers, and no read out of bounds."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from common import guarded_copy, isas, reals, same_bits
from test_sparse_products import chain

import heterocompute as hc
from heterocompute.reference import product

Array = np.ndarray[Any, Any]

FAST = ["2:4", "1:4", "4:8", "2:8", "1:8", "1:16"]
ISAS = [*isas("gemv_nm", "masks_nm"), None]  # None: all sets of this machine, since some kernels need two
# Groups that fill registers or do not, with two levels, zero points, tables, floats; one group per row.
GROUPED = ["vsq4-g16-s4", "vsq4-g16", "vsq4-g64-s8", "int4-g32-f16", "int3-g6-asym", "int4-g10", "nf4-g64", "mxfp4"]
GROUPED += ["cb4-g32", "int8-g256"]
SHARED = ["nvfp4", "nf4-g32-dq"]  # rows share a scale
INTEGERS = ["int8", "int8-f16", "vsq4-g16-s4", "vsq4-g32-s4", "vsq4-g64-s4", "vsq4u-g16-s4", "vsq8-g16-s6", "int4-g32"]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("pattern", FAST)
@pytest.mark.sweep(every=3)
def test_floats_follow_the_stated_order(pattern: str, isa: str | None) -> None:
    for m, k in ((1, 150), (2, 64), (4, 67)):
        x, s = reals((m, k), k), hc.prune(reals((3, k), m), pattern)
        with hc.use(isa=isa):
            assert same_bits(hc.matmul(x, s.T), chain(x, s)), (m, k)


@pytest.mark.parametrize("isa", ISAS[1:])
@pytest.mark.parametrize("pattern", [*FAST, "3:4", "5:8", "3:16", "7:32", "2:5"])
@pytest.mark.sweep(every=3)
def test_every_isa_gives_the_scalar_bits(pattern: str, isa: str | None) -> None:
    for m, n, k in ((1, 33, 1), (1, 3, 63), (2, 5, 128), (3, 2, 1000), (7, 4, 4099), (8, 2, 9001)):
        x, s = reals((m, k), 1), hc.prune(reals((n, k), 2), pattern)
        half = hc.quantize(s, "fp16")  # decoded, not read as it is stored
        with hc.use(isa="scalar", threads=1):
            expected, of_half = hc.matmul(x, s.T), hc.matmul(x, half.T)
        with hc.use(isa=isa, threads=2):
            assert same_bits(hc.matmul(x, s.T), expected), (m, n, k)
            assert same_bits(hc.matmul(x, half.T), of_half), (m, n, k)


def grouped(x: Array, w: Array, base: str, pattern: str) -> Array:
    """Return, row by row, the dense matmul of the nonzeros with their x, in the order for formats with groups."""
    s = hc.prune(w, pattern)
    values = []
    for row, mask in enumerate(s.mask):
        kept = s.components["values"][row]
        met = np.zeros((len(x), len(kept)), np.float32)
        met[:, : mask.sum()] = x[:, mask]
        values.append(product.linear(met, product.packed(kept[None], hc.format(base)))[:, 0])
    return np.stack(values, axis=1)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("base", GROUPED)
@pytest.mark.sweep(every=9)
def test_groups_follow_the_stated_order(base: str, isa: str | None) -> None:
    for pattern in ("2:4", "1:8", "1:2"):
        if base == "int8-g256" and pattern == "1:8":
            continue
        for m, n, k in ((1, 5, 4), (2, 3, 200), (3, 2, 1032), (8, 2, 520), (5, 6, 1100)):
            x, w = reals((m, k), k), reals((n, k), n)
            with hc.use(isa=isa, threads=2):
                found = hc.linear(x, hc.quantize(w, f"{base}+{pattern}"))
            assert same_bits(found, grouped(x, w, base, pattern)), (pattern, m, n, k)


@pytest.mark.parametrize("isa", ISAS[1:])
@pytest.mark.parametrize("base", [*GROUPED, *SHARED])
@pytest.mark.sweep(every=3)
def test_groups_with_tails_give_the_scalar_bits(base: str, isa: str | None) -> None:
    for pattern, k in (("2:4", 1), ("2:4", 95), ("2:4", 1031), ("2:4", 70001), ("1:16", 515), ("2:5", 333)):
        x, q = reals((2, k), 1), hc.quantize(reals((3, k), 2), f"{base}+{pattern}")
        x[0, -1] = np.inf  # meets a kept value or none
        with hc.use(isa="scalar", threads=1):
            expected = hc.linear(x, q)
        with hc.use(isa=isa):
            assert same_bits(hc.linear(x, q), expected), (pattern, k)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("base", INTEGERS)
@pytest.mark.sweep(every=3)
def test_few_integer_vectors_equal_many(base: str, isa: str | None) -> None:
    for pattern, n, k in (("2:4", 37, 1), ("2:4", 5, 130), ("2:4", 3, 1030), ("2:4", 70, 513), ("1:4", 3, 256)):
        w, x = reals((n, k), n), reals((20, k), k)
        x[0], x[1] = np.abs(x[0]).max(), -np.abs(x[1]).max()
        w[0] = w[0].max() if "u" in base else w[0].min()
        q = hc.quantize(np.abs(w) if "u" in base else w, f"{base}+{pattern}")
        for activations in ("int8", "int16", "int24"):
            with hc.use(isa="scalar"):
                expected = hc.linear(x, q, activations=activations)
            for m in (1, 2, 3, 8):
                with hc.use(isa=isa, threads=2):
                    found = hc.linear(x[:m], q, activations=activations)
                assert same_bits(found, expected[:m]), (pattern, n, k, activations, m)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("base", ["vsq4-g16-s4", "vsq4-g32-s4", "vsq4-g64-s4", "vsq4u-g16-s4", "vsq4u-g64-s4"])
@pytest.mark.sweep(every=3)
def test_panels_of_quads_end_anywhere(base: str, isa: str | None) -> None:
    for n, k in ((1, 31), (3, 511), (4, 512), (5, 541), (6, 1023), (9, 1024), (2, 1057), (7, 2048), (5, 3333)):
        w, x = reals((n, k), k), hc.quantize(reals((8, k), n), "int8")
        q = hc.quantize(np.abs(w) if "u" in base else w, f"{base}+2:4")
        with hc.use(isa="scalar"):
            expected = hc.matmul(x, q.T)
        for m in range(1, 9):
            with hc.use(isa=isa, threads=2):
                assert same_bits(hc.matmul(x[:m], q.T), expected[:m]), (n, k, m)
                assert same_bits(hc.matmul(q, x[:m].T), np.ascontiguousarray(expected[:m].T)), (n, k, m)


@pytest.mark.parametrize("isa", [*isas("few_"), None])
@pytest.mark.parametrize("base", ["vsq4-g16-s4", "vsq4-g64-s4", "vsq4u-g16-s4"])
def test_the_largest_sums_of_groups_are_exact(base: str, isa: str | None) -> None:
    """The largest codes, scales and x, around the longest row whose sum is guaranteed to fit int32."""
    code = 15 if "u" in base else -8
    for k in (1024, 131072, 131076):
        q = hc.quantize(np.ones((5, k), np.float32), f"{base}+2:4")
        parts = dict(q.components)
        parts["codes"] = np.full_like(parts["codes"], 0xFF if "u" in base else 0x88)
        parts["scales"], parts["coarse"] = np.full_like(parts["scales"], 0xFF), np.ones_like(parts["coarse"])
        q = type(q)(parts, q.format, q.shape, q.axis, q.source_dtype)
        int8, ones = hc.format("int8"), np.ones((1, 1), np.float32)
        for byte, value in ((0x80, -128), (0x7F, 127)):
            x = hc.QuantizedArray({"codes": np.full((1, k), byte, np.uint8), "scales": ones}, int8, (1, k), (1,))
            with hc.use(isa=isa):
                assert (hc.matmul(x, q.T) == np.float32(15 * code * value * (k // 2))).all(), (k, value)


def test_integer_sums_are_those_of_whole_numbers() -> None:
    rng = np.random.default_rng(7)
    for k in (256, 5000):
        w, x = rng.integers(-7, 8, (40, k)).astype(np.float32), rng.integers(-127, 128, (8, k)).astype(np.float32)
        w[:, 0], x[:, 0] = 127, 127  # scales of 1
        q = hc.quantize(w, "int8+2:4")
        assert np.array_equal(hc.linear(x, q, activations="int8"), x @ q.dequantize().T)
        w[:, 0] = 7 * 15
        q = hc.quantize(w, "vsq4-g16-s4+2:4")
        scaled = q.dequantize().astype(np.float64)
        assert np.allclose(hc.linear(x, q, activations="int8"), x @ scaled.T, rtol=1e-6, atol=0)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "text", [*FAST, "vsq4-g16-s4+2:4", "int8+2:4", "int4-g32+1:8", "fp16+4:8", "1:1", "int8+1:1", "3:4", "int8+3:4"]
)
@pytest.mark.sweep(every=3)
def test_no_byte_behind_the_operands_is_read(text: str, isa: str | None) -> None:
    for m, k in ((1, 65), (2, 200), (5, 1056), (1, 2048)):
        x, w = reals((m, k), 3), reals((5, k), 4)
        q = hc.prune(w, text) if text in (*FAST, "1:1", "3:4") else hc.quantize(w, text)
        for activations in (None, "int8"):
            with hc.use(isa="scalar"):
                expected = hc.linear(x, q, activations=activations)
            with ExitStack() as stack, hc.use(isa=isa):
                parts = {name: stack.enter_context(guarded_copy(part)) for name, part in q.components.items()}
                guarded = type(q)(parts, q.format, q.shape, q.axis, q.source_dtype)
                found = hc.linear(stack.enter_context(guarded_copy(x)), guarded, activations=activations)
                assert same_bits(found, expected), (m, k, activations)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("text", ["2:4", "4:8", "1:16", "vsq4-g16-s4+2:4", "mxfp4+2:4", "fp16+1:8"])
def test_what_is_not_finite_meets_what_is_kept_alone(text: str, isa: str | None) -> None:
    w = reals((6, 300), 1)
    q = hc.prune(w, text) if text[0].isdigit() else hc.quantize(w, text)
    mask = hc.prune(w, text.rpartition("+")[2]).mask
    for column in (0, 130, 299):
        x = reals((3, 300), 2)
        x[1, column] = np.nan
        with hc.use(isa=isa):
            y = hc.linear(x, q)
        assert np.array_equal(np.isnan(y[1]), mask[:, column])
        assert np.isfinite(y[[0, 2]]).all()


@pytest.mark.parametrize("isa", ISAS)
def test_what_is_not_kept_does_not_touch_the_sign_of_zero(isa: str | None) -> None:
    """Products below the smallest subnormal round to -0; adding one more +0 would make the sum +0."""
    for text in ("2:4", "1:8", "vsq4-g16+2:4"):
        for k in (64, 150):
            w, x = np.full((2, k), 0.25, np.float32), np.full((1, k), -1e-45, np.float32)
            w[:, 1::2] = 0.125
            q = hc.prune(w, text) if text[0].isdigit() else hc.quantize(w, text)
            with hc.use(isa="scalar"):
                expected = hc.linear(x, q)
            with hc.use(isa=isa):
                assert same_bits(hc.linear(x, q), expected)


@pytest.mark.parametrize("base", ["nf4-g64", "nf4-g16", "mxfp4", "cb4-g32", "int4-g32", "vsq4-g16-s4"])
def test_codes_of_4_bits_in_2_of_4_have_one_order(base: str) -> None:
    """Few rows of floats, which kernels of AVX-512 read with the codes as they are stored."""
    for m, k in ((1, 256), (3, 100), (8, 640)):
        x, q = reals((m, k), 1), hc.quantize(reals((9, k), 2), f"{base}+2:4")
        with hc.use(isa="scalar"):
            expected = hc.linear(x, q)
        assert same_bits(hc.linear(x, q), expected), (m, k)
