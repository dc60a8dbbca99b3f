"""GEMV and small batches, read from storage or decoded by rows: the bits of the definition on every ISA."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
from common import FORMATS, guarded_copy, isas, reals, same_bits

import heterocompute as hc
from heterocompute.reference import product

# One format per storage of codes and scales: integers, tables, tables per row, floats; all kinds of scales, or none.
STORED = [
    "int4-g32-f16", "int4-asym", "int5", "int8-g16", "int3-g5-asym", "vsq4-g16-s4", "vsq8-g16", "vsq4u-g16-s8-tensor",
    "nf4-g64", "nf4-g16", "nf4-g5", "nf4-g64-dq", "cb4", "cb4-tensor", "cb4-g64-tensor", "cb3", "cb7", "cb4-g16-d8",
    "fp4_e2m1", "fp4_e2m1-row", "fp4_e2m1-tensor", "fp6_e2m3", "fp8_e4m3fn-row", "fp8_e5m2-nosat-tensor", "bf16",
    "fp16", "mxfp4", "mxfp8_e4m3", "mxfp8_e5m2", "mxint8", "nvfp4", "log4-1", "log4-1-g16", "log8-8-g64",
]  # fmt: skip
# Whole and half blocks of 16 groups, tails of groups, fewer columns than a group; rows around the kernel's four.
SIZES = [(1, 4, 1), (1, 5, 30), (2, 3, 257), (3, 4, 512), (4, 9, 1029), (8, 5, 1088)]


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("text", STORED)
@pytest.mark.sweep(every=40)
def test_few_vectors_follow_the_stated_order(text: str, isa: str) -> None:
    fmt = hc.format(text)
    with hc.use(isa=isa):
        for seed, (m, n, k) in enumerate(SIZES):
            x, w = reals((m, k), seed), reals((n, k), seed + 1)
            expected = _one_nan(product.linear(x, product.packed(w, fmt)))
            assert same_bits(hc.linear(x, hc.quantize(w, fmt)), expected), (m, n, k)


@pytest.mark.parametrize("text", ["bf16-row", "tf32-g16", "fp32-tensor", "bf16-row+2:4"])
def test_sums_of_codes_close_to_the_largest_float_do_not_overflow(text: str) -> None:
    """Codes are up to 3.4e38, so the values are summed: one chain, for any number of rows and in any order."""
    w = reals((5, 70), 1) * np.float32([[1], [1e-3], [1e3], [2], [1]])
    q = hc.quantize(w, text)
    for m in (1, 3, 8, 9, 33):
        x = reals((m, 70), m)
        y = hc.linear(x, q)
        assert np.isfinite(y).all()
        with hc.use(order="one"):
            assert same_bits(hc.linear(x, q), y)
        if "+" not in text:
            assert same_bits(y, product.linear(x, product.packed(w, hc.format(text))))
        assert np.allclose(y, x.astype(np.float64) @ np.asarray(q, np.float64).T, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("isa", isas("gemv_rows"))
@pytest.mark.parametrize("text", ["fp16", "fp16-nosat", "bf16", "e5m10fn", "e5m10finite", "e5m10b14", "e8m7b128"])
def test_every_code_of_16_bits_is_the_number_of_the_format(text: str, isa: str) -> None:
    """Some formats have numbers where float16 has infinity and NaN."""
    codes = np.arange(1 << 16, dtype=np.uint16)
    for columns in (1, 64):
        q = hc.quantize(np.zeros((len(codes), columns), np.float32), text)
        q.components["codes"][...] = np.repeat(codes, columns).view(np.uint8).reshape(q.components["codes"].shape)
        x = np.full((1, columns), 1 / columns, np.float32)  # each product and each sum is exact
        with hc.use(isa=isa):
            assert same_bits(hc.linear(x, q)[0], _one_nan(q.dequantize()[:, 0] + np.float32(0)))


def _one_nan(y: np.ndarray) -> np.ndarray:
    """Return the result with one NaN for all, since processors produce different NaNs."""
    return np.where(np.isnan(y), np.float32(np.nan), y)


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=3)
def test_isas_agree_on_every_code_and_scale(text: str) -> None:
    """Components of random bytes: every code and scale that the format can store, including NaN and infinity."""
    rng = np.random.default_rng(5)
    for m, n, k in [(1, 6, 1030), (4, 3, 333)]:
        x, q = reals((m, k), 1), hc.quantize(reals((n, k), 2), text)
        for name in ("codes", "scales"):
            part = q.components.get(name)
            if part is not None and part.dtype == np.uint8:
                part[...] = rng.integers(0, 256, part.shape)
        with hc.use(isa="scalar", threads=1):
            expected = hc.linear(x, q)
        for isa in isas():
            with hc.use(isa=isa):
                assert same_bits(hc.linear(x, q), expected), isa


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("text", STORED)
@pytest.mark.sweep(every=5)
def test_no_byte_behind_the_operands_is_read(text: str, isa: str) -> None:
    for m, k in [(1, 65), (2, 200), (4, 1056)]:
        x, q = reals((m, k), 3), hc.quantize(reals((5, k), 4), text)
        expected = hc.linear(x, q)
        with ExitStack() as stack, hc.use(isa=isa):
            parts = {name: stack.enter_context(guarded_copy(part)) for name, part in q.components.items()}
            guarded = hc.QuantizedArray(parts, q.format, q.shape, q.axis, q.source_dtype)
            assert same_bits(hc.linear(stack.enter_context(guarded_copy(x)), guarded), expected)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("text", STORED)
@pytest.mark.sweep(every=5)
def test_padding_does_not_touch_the_sign_of_zero(text: str, isa: str) -> None:
    """Products below the smallest subnormal round to -0 in every chain; a padded code would change one sum to +0."""
    fmt = hc.format(text)
    for k in (70, 300, 1000):
        w = np.where(np.arange(k) % 3 == 0, 1.0, 0.25).astype(np.float32)[None].repeat(2, axis=0)
        x = np.full((1, k), -1e-45, np.float32)
        with hc.use(isa=isa):
            assert same_bits(hc.linear(x, hc.quantize(w, fmt)), product.linear(x, product.packed(w, fmt)))


@pytest.mark.parametrize("isa", isas())
def test_the_longest_rows_of_the_largest_integers(isa: str) -> None:
    """All codes and scales are 15, all x 127: with so many columns, a 32-bit lane that is never reduced overflows."""
    columns = 1 << 20
    x, q = np.ones((1, columns), np.float32), hc.quantize(np.ones((1, columns), np.float32), "vsq4u-g16-s4")
    with hc.use(isa=isa, path="gemv"):
        assert hc.linear(x, q, activations="int8").item() == columns
