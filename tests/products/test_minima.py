"""Matmuls of integers with formats that have minima: a sum over codes, plus a sum over minima."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
from common import guarded_copy, isas, reals, same_bits

import heterocompute as hc
from heterocompute.reference import product

TYPES = ["q4_1", "q5_1", "q2_k", "q4_k", "q5_k"]
ACTIVATIONS = ["int8", "int24", "int4-g5-asym", "int8-g64", "vsq4-g16-s4", "q6_k", "q4_1", "fp8_e4m3fn"]


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("isa", isas("gemv_minima"))
@pytest.mark.parametrize("text", TYPES)
def test_minima_are_a_sum_of_their_own(text: str, isa: str) -> None:
    with hc.use(isa=isa, threads=2):
        for seed, (activations, (m, n, k)) in enumerate(
            zip(ACTIVATIONS, [(1, 5, 64), (3, 17, 200), (9, 33, 300), (2, 70, 600)] * 2, strict=True)
        ):
            x, w, act = reals((m, k), seed), reals((n, k), seed + 1), hc.format(activations)
            expected = product.linear(x, product.packed(w, hc.format(text)), activations=act)
            assert same_bits(hc.linear(x, hc.quantize(w, text), activations=act), expected), (activations, m, n, k)


@pytest.mark.parametrize("other", ["int8", "q6_k", "q4_1"])
def test_either_side_may_have_minima_and_both_are_values(other: str) -> None:
    a, b = reals((21, 100), 1), reals((100, 18), 2)
    found = hc.matmul(hc.quantize(a, "q4_k"), hc.quantize(b, other, axis=0))
    left, right = product.packed(a, hc.format("q4_k")), product.packed(b, hc.format(other), axis=0)
    assert same_bits(found, product.matmul(left, right))


def test_minima_meet_rows_block_by_block_in_any_order_of_the_answer() -> None:
    x, q = reals((300, 96), 1), hc.quantize(reals((40, 96), 2), "q4_k")
    wanted = np.concatenate([hc.linear(x[i : i + 1], q, activations="int8") for i in range(300)])
    for out in (np.full((40, 300), np.nan, np.float32).T, np.full((600, 80), np.nan, np.float32)[::2, ::2]):
        assert same_bits(np.ascontiguousarray(hc.linear(x, q, activations="int8", out=out)), wanted)


def test_minima_are_within_rounding_of_the_decoded_product() -> None:
    """Two chains of fma and their sum: at most K / 16 + 3 roundings of each term."""
    x, q = reals((4, 512), 3), hc.quantize(reals((16, 512), 4) + 2, "q4_k")
    rounded, w = hc.fake_quantize(x, "int8").astype(np.float64), q.dequantize(np.float64)
    codes = np.abs(w).max()  # no term of either sum is larger than its range of 15 steps and its minimum
    bound = (512 / 16 + 3) * 2.0**-24 * np.abs(rounded).sum(axis=1, keepdims=True) * 3 * codes
    assert (np.abs(hc.linear(x, q, activations="int8") - rounded @ w.T) <= bound).all()


@pytest.mark.parametrize("text", ["affine4-g32+2:4", "affine3-f16+3:5", "affine8-g8+1:4"])
def test_the_zeros_of_a_pattern_have_no_minimum(text: str) -> None:
    """Formats with minima and a pattern are values."""
    x, q = reals((21, 100), 1), hc.quantize(reals((18, 100), 2) + 1, text)
    for rows in (1, 8, 21):
        for activations in ("int8", "vsq4-g16-s4", "int4-g32", "mxfp4"):
            expected = hc.linear(hc.fake_quantize(x[:rows], activations), q)
            assert same_bits(hc.linear(x[:rows], q, activations=activations), expected)
            assert same_bits(hc.linear(x[:rows], hc.prepack(q), activations=activations), expected)
            packed = hc.quantize(x[:rows], activations)
            bound = 101 * 2.0**-23 * (abs(packed.dequantize(np.float64)) @ abs(q.dequantize(np.float64)).T)
            exact = packed.dequantize(np.float64) @ q.dequantize(np.float64).T
            assert (abs(hc.linear(packed, q) - exact) <= bound).all()
            assert (abs(hc.linear(q, packed).T - exact) <= bound).all()


READ = ["q4_1", "q5_1", "q2_k", "q4_k", "q5_k", "affine4-g16-f16", "affine3-g32-f16", "affine8-g192-f16", "affine4-f16"]
DECODED = ["affine4-g32", "affine4-g24-f16"]


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("isa", isas("gemv_values"))
@pytest.mark.parametrize("text", READ + DECODED)
def test_floats_times_codes_with_minima_are_floats_times_values(text: str, isa: str) -> None:
    """Drawn shapes, codes and factors; rows of codes that are read as they are stored, against tiles of values."""
    rng = np.random.default_rng(sum(text.encode()))
    for m in range(1, 9):
        n, k, threads = int(rng.integers(1, 40)), int(rng.integers(1, 1400)), m % 3 + 1
        w, x = reals((n, k), m) + 1, reals((m, k), m + 1)
        q = hc.quantize(w, text)
        if m % 4 == 0:  # numbers that are not finite, of the weights or of x
            for name, part in q.components.items():
                if part.dtype == np.float16:
                    part[...] = rng.integers(0, 1 << 16, part.shape).astype(np.uint16).view(np.float16)
                elif name == "codes":
                    part[...] = rng.integers(0, 256, part.shape)
        elif m % 4 == 1:
            x[0, rng.integers(0, k, 3)] = [np.inf, np.nan, -0.0]
        with hc.use(isa="scalar", threads=1, path="gemv-tiles"):
            expected = hc.linear(x, q)
        assert m % 4 < 2 or same_bits(expected, product.linear(x, product.packed(w, hc.format(text))))
        for path in ("gemv", "auto"):
            with hc.use(isa=isa, threads=threads, path=path):
                assert same_bits(hc.linear(x, q), expected), (m, n, k, threads, path)


@pytest.mark.parametrize("isa", isas("gemv_values"))
@pytest.mark.parametrize("text", READ)
def test_no_byte_behind_codes_with_minima_is_read(text: str, isa: str) -> None:
    for m, k in [(1, 65), (2, 200), (4, 1056)]:
        x, q = reals((m, k), 3), hc.quantize(reals((5, k), 4), text)
        expected = hc.linear(x, q)
        with ExitStack() as stack, hc.use(isa=isa, path="gemv"):
            parts = {name: stack.enter_context(guarded_copy(part)) for name, part in q.components.items()}
            guarded = hc.QuantizedArray(parts, q.format, q.shape, q.axis, q.source_dtype)
            assert same_bits(hc.linear(stack.enter_context(guarded_copy(x)), guarded), expected)
