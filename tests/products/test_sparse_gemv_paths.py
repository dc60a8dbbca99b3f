"""Patterns of every shape times one to eight vectors: every path uses the same nonzeros and gives the same bits."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from common import guarded_copy, isas, reals, same_bits
from test_sparse_products import chain

import heterocompute as hc
from heterocompute.reference import product, terms

Array = np.ndarray[Any, Any]

# None: all that this machine has, since some lines want two instruction sets
ISAS = [*isas("gemv_nm", "masks_nm", "indices_nm"), None]
PATTERNS = [
    "1:2",
    "3:4",
    "5:8",
    "7:8",
    "3:8",
    "1:3",
    "2:3",
    "2:5",
    "8:16",
    "3:16",
    "1:32",
    "16:32",
    "31:32",
    "9:17",
    "4:4",
]
ROW_SCALED = ["int8", "int8-f16", "int4", "int6", "int3", "fp8_e4m3fn", "fp8_e5m2", "fp4_e2m1", "fp16", "int16"]
GROUPED = ["vsq4-g16-s4", "vsq4-g48", "vsq8-g16-s6", "int4-g32-f16", "int3-g6-asym", "int8-g32", "nf4-g64", "mxfp4"]
GROUPED += ["mxfp8_e4m3", "mxint8", "cb4-g32", "nvfp4", "nf4-g32-dq"]


def legal(base: str, pattern: str) -> str | None:
    """Combine a format and a pattern if groups contain whole blocks."""
    try:
        return str(hc.format(f"{base}+{pattern}"))
    except ValueError:
        return None


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("m", range(1, 33))
@pytest.mark.sweep(every=5)
def test_every_pattern_meets_what_it_keeps(m: int, isa: str | None) -> None:
    """Ones times integers: the sums are exact, so they identify the columns."""
    rng = np.random.default_rng(m)
    for n in range(1, m + 1):
        for k in (1, 2 * m + 1, 64 + m, 449, 4 * 64 * m if n in (1, m // 2, m - 1) else 320):
            w, scores = np.ones((3, k), np.float32), rng.random((3, k), dtype=np.float32)
            s = hc.prune(w, f"{n}:{m}", scores=scores)
            x = rng.integers(-(1 << 10), 1 << 10, (6, k)).astype(np.float32)
            with hc.use(isa=isa, threads=1):
                for vectors in (1, 6):
                    found = hc.linear(x[:vectors], s)
                    assert np.array_equal(found, x[:vectors] @ s.mask.T.astype(np.float32)), (n, k, vectors)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.sweep(every=5)
def test_floats_follow_the_stated_order(pattern: str, isa: str | None) -> None:
    x, s = reals((8, 197), 3), hc.prune(reals((2, 197), 4), pattern)
    expected = chain(x, s)
    with hc.use(isa=isa):
        for m in range(1, 9):
            assert same_bits(hc.linear(x[:m], s), expected[:m]), m
        assert same_bits(hc.matmul(s, x.T), expected.T)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("base", ROW_SCALED)
@pytest.mark.sweep(every=5)
def test_row_scales_follow_the_stated_order(base: str, isa: str | None) -> None:
    for pattern in ("1:2", "3:4", "2:5", "5:8", "1:16"):
        x, w = reals((8, 333), 5), reals((5, 333), 6)
        q = hc.quantize(w, f"{base}+{pattern}")
        parts = {name: part for name, part in q.components.items() if name != "metadata"}
        s = hc.prune(w, pattern)
        factors = terms(parts, hc.format(base), s.components["values"].shape, (1,))
        codes = np.zeros((5, 384), np.float32)
        for row, mask in enumerate(s.mask):
            codes[row, np.flatnonzero(mask)] = factors.codes[row].reshape(-1)[: mask.sum()]
        padded = np.pad(x, ((0, 0), (0, 51)))
        expected = product.few_vectors(padded[:, None], codes[:, None], None, factors.row_scale)
        with hc.use(isa=isa, threads=2):
            for m in (1, 2, 3, 5, 8):
                assert same_bits(hc.linear(x[:m], q), expected[:m]), (pattern, m)


@pytest.mark.parametrize("isa", ISAS[1:])
@pytest.mark.parametrize("base", [*ROW_SCALED, *GROUPED])
@pytest.mark.sweep(every=20)
def test_every_way_gives_the_scalar_bits(base: str, isa: str | None) -> None:
    for pattern in ("1:2", "1:4", "3:4", "2:5", "3:8", "1:32"):
        for n, k in ((5, 1), (6, 95), (33, 450), (3, 2056)):
            text = legal(base, pattern)
            if text is None:
                continue
            q, x = hc.quantize(reals((n, k), 1), text), reals((8, k), k)
            x[6, k // 2 :] *= np.float32(1e-38)  # sums near the smallest numbers
            x[7] = np.where(np.arange(k) % 3 == 0, np.float32(-0.0), x[7])
            for m in (1, 2, 5, 6, 7, 8):
                with hc.use(isa="scalar", threads=1):
                    expected = hc.linear(x[8 - m :], q)
                with hc.use(isa=isa, threads=2):
                    assert same_bits(hc.linear(x[8 - m :], q), expected), (pattern, n, k, m)
                    assert same_bits(hc.matmul(q, x[8 - m :].T), expected.T), (pattern, n, k, m)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("base", ["float32", "int8", "vsq4-g16-s4", "mxfp4", "nf4-g64", "cb4-g32", "fp8_e5m2"])
def test_products_that_round_to_zero_keep_its_sign(base: str, isa: str | None) -> None:
    """A sum of -0 becomes +0 if a product of 0 is added, so the zeros of a pattern must not be added."""
    for pattern in ("1:2", "1:4", "1:16", "2:5"):
        text = pattern if base == "float32" else legal(base, pattern)
        if text is None:
            continue
        for exponent in (-149, -140, -126, -120, -100, -90):
            w = np.full((2, 320), 0.25, np.float32)
            w[:, 1::2] = 0.0625
            x = np.full((8, 320), -(2.0**exponent), np.float32)
            q = hc.prune(w, text) if base == "float32" else hc.quantize(w, text)
            for m in (1, 8):
                with hc.use(isa="scalar"):
                    expected = hc.linear(x[:m], q)
                with hc.use(isa=isa):
                    assert same_bits(hc.linear(x[:m], q), expected), (pattern, exponent, m)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("base", ["float32", "fp8_e4m3fn", "fp8_e5m2", "fp16"])
def test_a_sum_of_products_that_all_round_to_minus_zero_stays_so(base: str, isa: str | None) -> None:
    """x > 0 and w < 0: the zeros of the pattern would add +0. Each of the 64 sums has nonzero columns."""
    rng = np.random.default_rng(1)
    for pattern in ("1:2", "1:3", "1:4", "2:5"):
        scores = rng.random((3, 3840))
        w = np.where(hc.prune(scores.astype(np.float32), pattern).mask, np.float32(-(2.0**-9)), np.float32(0))
        q = hc.prune(w, pattern) if base == "float32" else hc.quantize(w, f"{base}+{pattern}")
        for exponent in (-149, -145, -142):
            x = np.full((8, 3840), 2.0**exponent, np.float32)
            for m in (1, 2, 8):
                with hc.use(isa=isa):
                    found = hc.linear(x[:m], q)
                assert (found == 0).all() and np.signbit(found).all(), (pattern, exponent, m)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("base", ["float32", "int8", "int6", "vsq4-g16-s4", "nf4-g64", "fp16"])
def test_what_is_not_finite_meets_what_is_kept_alone(base: str, isa: str | None) -> None:
    for pattern in ("1:2", "2:3", "5:8", "1:32"):
        w = reals((6, 300), 1)
        text = pattern if base == "float32" else legal(base, pattern)
        if text is None:
            continue
        q = hc.prune(w, text) if base == "float32" else hc.quantize(w, text)
        mask = hc.prune(w, pattern).mask
        for column in (0, 130, 299):
            for m in (2, 8):
                x = reals((m, 300), 2)
                x[1, column] = np.nan
                with hc.use(isa=isa):
                    y = hc.linear(x, q)
                assert np.array_equal(np.isnan(y[1]), mask[:, column]), (pattern, column, m)
                assert np.isfinite(np.delete(y, 1, axis=0)).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "text", ["1:2", "3:4", "5:7", "int8+3:4", "int8+1:2", "int4+3:8", "vsq4-g16-s4+1:2", "nf4-g64+1:4"]
)
@pytest.mark.sweep(every=3)
def test_no_byte_behind_the_operands_is_read(text: str, isa: str | None) -> None:
    for m, k in ((1, 65), (1, 1024), (2, 200), (5, 1056), (8, 2048), (8, 77)):
        x, w = reals((m, k), 3), reals((5, k), 4)
        q = hc.quantize(w, text) if "+" in text else hc.prune(w, text)
        with hc.use(isa="scalar"):
            expected = hc.linear(x, q)
        with ExitStack() as stack, hc.use(isa=isa):
            parts = {name: stack.enter_context(guarded_copy(part)) for name, part in q.components.items()}
            guarded = type(q)(parts, q.format, q.shape, q.axis, q.source_dtype)
            assert same_bits(hc.linear(stack.enter_context(guarded_copy(x)), guarded), expected), (m, k)


@pytest.mark.parametrize("isa", ISAS[1:])
@pytest.mark.parametrize("text", ["3:4", "1:2", "int8+3:4", "int8+2:4", "vsq4-g16-s4+1:2", "mxfp4+1:4", "int4-g32+1:3"])
def test_few_pixels_of_a_convolution_give_the_scalar_bits(text: str, isa: str | None) -> None:
    x, w = reals((1, 70, 4, 4), 1), reals((9, 70, 3, 3), 2)
    axis = (2, 3, 1)
    q = hc.quantize(w, text, axis=axis) if "+" in text else hc.prune(w, text, axis=axis)
    with hc.use(isa="scalar", threads=1):
        expected = hc.conv2d(x, q)
    with hc.use(isa=isa, threads=2):
        assert same_bits(hc.conv2d(x, q), expected)
