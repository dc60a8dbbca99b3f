"""Matmuls of patterns: the stated orders without the zeros, the same bits on every ISA and number of threads."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from common import bad_argument, guarded_copy, isas, reals, same_bits

import heterocompute as hc

PATTERNS = ["2:4", "1:4", "4:8", "1:8", "3:7", "1:1", "31:32", "5:6"]
SHAPES = [(9, 5, 50), (17, 33, 64), (130, 70, 37), (64, 300, 129), (300, 3, 1), (20, 20, 1000)]


def own(a: Any, b: Any) -> np.ndarray[Any, Any]:
    with hc.use(blas="own"):
        return hc.matmul(a, b)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.sweep(every=5)
def test_many_vectors_give_the_own_dense_product(pattern: str, isa: str) -> None:
    for seed, (m, n, k) in enumerate(SHAPES):
        x, w = reals((m, k), seed), reals((n, k), seed + 1)
        s = hc.prune(w, pattern)
        with hc.use(isa="scalar"):
            expected = own(x, s.to_dense().T)
        for threads in (1, 2):
            with hc.use(isa=isa, threads=threads), guarded_copy(x) as a:
                assert np.array_equal(hc.matmul(a, s.T), expected)
                assert np.array_equal(hc.matmul(np.asfortranarray(x), s.T), expected)
                assert np.array_equal(hc.matmul(s, x.T), expected.T)
                assert np.array_equal(hc.linear(x, s, bias=np.ones(n, np.float32)), expected + np.float32(1))
                out = np.zeros((m, 2 * n), np.float32)[:, ::2]
                assert np.array_equal(hc.matmul(x, s.T, out=out), expected)
                turned = np.zeros((n, m), np.float32).T
                assert np.array_equal(hc.matmul(x, s.T, out=turned), expected)


@pytest.mark.parametrize("isa", isas("gemm_nm_f32"))
def test_panels_of_every_width(isa: str) -> None:
    for rows in (9, 12, 16, 31, 32, 33, 48, 65, 80, 100, 129, 200, 333):
        for pattern, n, k in (("2:4", 21, 77), ("1:16", 35, 300), ("3:5", 18, 161), ("1:32", 40, 1500)):
            x, s = reals((rows, k), rows), hc.prune(reals((n, k), k), pattern)
            expected = own(x, s.to_dense().T)
            for threads in (1, 3):
                with hc.use(isa=isa, threads=threads), guarded_copy(x) as a:
                    assert np.array_equal(hc.matmul(a, s.T), expected)
                    assert np.array_equal(hc.matmul(s, np.ascontiguousarray(x.T)), expected.T)
                    assert np.array_equal(hc.matmul(np.asfortranarray(x.astype(np.float64)), s.T), expected)
                    turned = np.full((n + 1, rows), 7, np.float32)
                    hc.matmul(a, s.T, out=turned[:n].T)
                    assert np.array_equal(turned[:n].T, expected) and (turned[n] == 7).all()


@pytest.mark.parametrize("isa", isas("gemm_nm_f32"))
@pytest.mark.sweep(every=3)
def test_long_rows_come_in_slabs(isa: str) -> None:
    """The number of threads, which share the memory, and the cuts of k do not change results."""
    for rows, n, k, pattern, threads in (
        (330, 100, 3000, "1:4", 64),  # too many threads for k in one piece
        (330, 5, 11000, "1:4", 1),  # too long a panel for one thread
        (20, 70, 36000, "1:8", 2),  # more columns than a slab has
        (330, 5, 36000, "1:16", 1),
    ):
        x, s = reals((rows, k), rows), hc.prune(reals((n, k), k), pattern)
        expected = own(x, s.to_dense().T)
        with hc.use(isa=isa, threads=threads):
            assert np.array_equal(hc.matmul(x, s.T), expected)
            assert np.array_equal(hc.matmul(s, np.ascontiguousarray(x.T)), expected.T)


def chain(x: np.ndarray[Any, Any], s: hc.SparseArray) -> np.ndarray[Any, Any]:
    """Compute acc[k % 64] = fmaf(x_k, c_k, acc[k % 64]) for nonzeros, folded in halves; fma by exact float64 pairs."""
    dense, mask = s.to_dense(), s.mask
    answer = np.empty((len(x), len(dense)), np.float32)
    for v, i in np.ndindex(answer.shape):
        acc = np.zeros(64, np.float32)
        for k in np.flatnonzero(mask[i]):
            acc[k % 64] = fma(x[v, k], dense[i, k], acc[k % 64])
        for half in (32, 16, 8, 4, 2, 1):
            acc[:half] = acc[:half] + acc[half : 2 * half]
        answer[v, i] = acc[0]
    return answer


def fma(a: Any, b: Any, c: Any) -> np.float32:
    from fractions import Fraction

    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    low = np.float32(float(exact))  # float64 first: the two neighbours decide which float32 is nearest
    candidates = {
        float(low),
        float(np.nextafter(low, np.float32(np.inf))),
        float(np.nextafter(low, np.float32(-np.inf))),
    }
    best = min(candidates, key=lambda value: (abs(Fraction(value) - exact), int(np.float32(value).view(np.uint32)) & 1))
    return np.float32(best)


@pytest.mark.parametrize("isa", isas())
def test_few_vectors_follow_the_stated_order(isa: str) -> None:
    for pattern, k, m in (("2:4", 150, 1), ("1:8", 70, 3), ("3:7", 200, 8), ("31:32", 65, 2), ("2:4", 3, 4)):
        x, s = reals((m, k), k), hc.prune(reals((3, k), m), pattern)
        expected = chain(x, s)
        with hc.use(isa=isa), guarded_copy(x) as a:
            assert same_bits(hc.matmul(a, s.T), expected)
            assert same_bits(np.ascontiguousarray(hc.matmul(s, x.T).T), expected)
    x, s = reals((5, 9000), 1), hc.prune(reals((20, 9000), 2), "2:4")
    with hc.use(isa="scalar"):
        expected = hc.matmul(x, s.T)
    with hc.use(isa=isa, threads=2):
        assert same_bits(hc.matmul(x, s.T), expected)
    assert np.allclose(expected, x.astype(np.float64) @ s.to_dense().T, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("rows", [1, 2, 8, 9, 40])
def test_what_is_not_finite_meets_what_is_kept_alone(rows: int, isa: str) -> None:
    w = np.ones((3, 12), np.float32)
    w[:, 1::2] = 2  # kept: the odd columns
    w[2] = 0  # kept: columns 0 and 1 of every block
    s = hc.prune(w, "2:4")
    x = reals((rows, 12), 1)
    x[0, 4], x[0, 6] = np.inf, np.nan
    with hc.use(isa=isa):
        y = hc.matmul(x, s.T)
        z = hc.matmul(s, x.T)
    assert np.isfinite(y[0, :2]).all()
    assert math.isnan(y[0, 2])  # infinity times a zero that is kept
    assert np.isfinite(y[1:]).all()
    assert np.array_equal(y, z.T, equal_nan=True)
    x[0, 5] = np.inf
    with hc.use(isa=isa):
        assert np.array_equal(hc.matmul(x, s.T)[0, :2], [np.inf, np.inf])


FORMATS = ["int8", "int8-asym", "int4-g32-f16", "int3-g6", "vsq4-g16-s4", "vsq4-g16", "fp16", "mxfp4", "int16"]


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("base", FORMATS)
@pytest.mark.sweep(every=3)
def test_formats_on_patterns_multiply(base: str, isa: str) -> None:
    for pattern, (m, n, k) in itertools.product(("2:4", "1:8"), [(9, 6, 50), (3, 20, 200), (70, 33, 129)]):
        x, w = reals((m, k), m), reals((n, k), n)
        q = hc.quantize(w, f"{base}+{pattern}")
        dense = q.dequantize()
        with hc.use(isa=isa):
            y = hc.linear(x, q)
        if m > 8:
            assert np.array_equal(y, own(x, dense.T))
        bound = 2 * (k + 1) * np.finfo(np.float32).eps * (np.abs(x) @ np.abs(dense).T)
        assert np.all(np.abs(y - x.astype(np.float64) @ dense.T) <= bound + 1e-30)
        with hc.use(isa="scalar"):
            assert np.array_equal(hc.linear(x, q), y)
        for activations in ("int8", "vsq4-g16-s4", "int4-g32", "int8+2:4", "2:4"):
            xq = hc.fake_quantize(x, activations)
            with hc.use(isa=isa, threads=2):
                y = hc.linear(x, q, activations=activations)
            with hc.use(isa="scalar", threads=1):
                assert np.array_equal(hc.linear(x, q, activations=activations), y)
            bound = 2 * (k + 1) * np.finfo(np.float32).eps * (np.abs(xq) @ np.abs(dense).T)
            assert np.all(np.abs(y - xq.astype(np.float64) @ dense.T) <= bound + 1e-30), activations


def test_integers_on_patterns_are_exact() -> None:
    rng = np.random.default_rng(3)
    x = np.clip(rng.integers(-127, 128, (20, 96)), -127, 127).astype(np.float32)
    w = rng.integers(-127, 128, (30, 96)).astype(np.float32)
    x[:, 0], w[:, 0] = 127, 127  # scales of 1
    q = hc.quantize(w, "int8+2:4")
    exact = x @ q.dequantize().T
    for rows in (1, 8, 9, 20):
        assert np.array_equal(hc.linear(x[:rows], q, activations="int8"), exact[:rows])
        assert np.array_equal(hc.matmul(hc.quantize(x[:rows], "int8"), q.T), exact[:rows])
        assert np.array_equal(hc.matmul(q, hc.quantize(x[:rows], "int8").T), exact[:rows].T)


def test_batches_and_two_patterns() -> None:
    x, w = reals((3, 10, 24), 1), reals((3, 7, 24), 2)
    s = hc.prune(w, "2:4")
    dense = s.to_dense()
    weights = hc.prune(w.transpose(0, 2, 1), "2:4", axis=1)
    expected = np.stack([own(x[i], dense[i].T) for i in range(3)])
    assert np.array_equal(hc.matmul(x, weights), expected)
    assert np.array_equal(hc.matmul(x, s[1].T), np.stack([own(x[i], dense[1].T) for i in range(3)]))
    both = hc.matmul(hc.prune(x[0], "1:2"), s[0].T)
    assert np.array_equal(both, own(hc.prune(x[0], "1:2").to_dense(), dense[0].T))
    assert np.array_equal(
        hc.prepack(hc.quantize(w[0], "int8+2:4")).dequantize(), hc.quantize(s[0], "int8").dequantize()
    )
    packed = hc.prepack(hc.quantize(w[0], "int8+2:4"))
    assert np.array_equal(
        hc.linear(x[0], packed, activations="int8"), hc.linear(x[0], packed.source, activations="int8")
    )
    with bad_argument(ValueError, "b", "axis"):
        hc.matmul(x[0], s[0])
    assert hc.matmul(np.zeros((0, 24), np.float32), s[0].T).shape == (0, 7)
    empty = hc.prune(np.zeros((4, 0), np.float32), "2:4")
    assert not hc.matmul(np.zeros((20, 0), np.float32), empty.T).any()
    assert not hc.matmul(np.zeros((2, 0), np.float32), empty.T).any()


@pytest.mark.parametrize("isa", isas())
def test_filters_with_patterns(isa: str) -> None:
    x = reals((2, 12, 9, 8), 4)
    for groups, channels in ((1, 12), (2, 6)):
        w = reals((8, channels, 3, 2), 5)
        s = hc.prune(w, "2:4", axis=(2, 3, 1))
        with hc.use(isa=isa):
            y = hc.conv2d(x, s, groups=groups, padding=1)
        assert np.array_equal(y, hc.conv2d(x, s.to_dense(), groups=groups, padding=1))
        for base in ("int8", "vsq4-g16-s4"):
            q = hc.quantize(w, f"{base}+2:4", axis=(2, 3, 1))
            with hc.use(isa=isa):
                y = hc.conv2d(x, q, groups=groups)
                z = hc.conv2d(x, q, groups=groups, activations="int8")
                a = hc.conv2d(x, q, groups=groups, activations="int8+1:2")
            assert np.array_equal(y, hc.conv2d(x, q.dequantize(), groups=groups))
            assert np.allclose(z, hc.conv2d(x, q.dequantize(), groups=groups, activations="int8"), atol=1e-3, rtol=1e-4)
            assert np.allclose(
                a, hc.conv2d(x, q.dequantize(), groups=groups, activations="int8+1:2"), atol=1e-3, rtol=1e-4
            )
