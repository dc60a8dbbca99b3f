"""Products and sums of log numbers, compared with exact values and decimal logarithms."""

from __future__ import annotations

import itertools
from decimal import Decimal, getcontext

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc

getcontext().prec = 40
RNG = np.random.default_rng(5)
GAMMAS = (1, 2, 4, 8, 16, 32)


def made(fmt: str, shape: tuple[int, ...] = (3, 40), axis: int = -1) -> hc.QuantizedArray:
    x = (RNG.standard_normal(shape) * 2.0 ** RNG.integers(-6, 4, shape)).astype(np.float32)
    x[RNG.random(shape) < 0.1] = 0
    return hc.quantize(x, fmt, axis=axis)


def every_pair(bits: int, gamma: int) -> tuple[hc.QuantizedArray, hc.QuantizedArray]:
    """Return all pairs of codes, with scale 1."""
    codes = np.arange(2**bits, dtype=np.uint8)
    a, b = (np.ascontiguousarray(part.reshape(1, -1)) for part in np.meshgrid(codes, codes))

    def pack(rows: np.ndarray) -> np.ndarray:
        each = np.unpackbits(rows[..., None], axis=2, count=bits, bitorder="little")
        return np.packbits(each.reshape(1, -1), axis=1, bitorder="little")

    scales = np.ones((1, 1), np.float32)
    return tuple(  # type: ignore[return-value]
        hc.QuantizedArray({"codes": pack(c), "scales": scales}, hc.Log(bits, gamma), (1, 4**bits), (1,)) for c in (a, b)
    )


def parts(q: hc.QuantizedArray) -> list[tuple[int, int | None]]:
    """Return sign and exponent of each value, None for zero."""
    bits, none = q.format.bits, 2 ** (q.format.bits - 1) - 1
    return [(int(c) >> bits - 1, None if int(c) & none == none else int(c) & none) for c in q.codes().ravel()]


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("bits", [2, 4, 6, 8])
def test_a_matmul_has_the_products_of_log_multiply(bits: int, gamma: int) -> None:
    codes, last = np.arange(2**bits, dtype=np.uint8)[:, None], 2 ** (bits - 1) - 2
    packed = np.packbits(np.unpackbits(codes, axis=1, count=bits, bitorder="little"), axis=1, bitorder="little")
    column = hc.QuantizedArray(
        {"codes": packed, "scales": np.ones((2**bits, 1), np.float32)}, hc.Log(bits, gamma), (2**bits, 1), (1,)
    )
    wanted = hc.log_multiply(*every_pair(bits, gamma)).dequantize().reshape(2**bits, 2**bits)
    exponents = codes.astype(int) & (last + 1)
    inside = (exponents + exponents.T <= last) | (exponents == last + 1) | (exponents.T == last + 1)
    found = hc.emulate.matmul(column, column.T, "float64", conversion="exact")
    assert inside.sum() >= 2 ** (bits + 1) and np.array_equal(found[inside], wanted[inside])


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("bits", [2, 3, 4, 5])
def test_every_product_of_codes(bits: int, gamma: int) -> None:
    a, b = every_pair(bits, gamma)
    found, last = parts(hc.log_multiply(a, b)), 2 ** (bits - 1) - 2
    for (sign_a, e_a), (sign_b, e_b), (sign, e) in zip(parts(a), parts(b), found, strict=True):
        assert sign == sign_a ^ sign_b
        if e_a is None or e_b is None or e_a + e_b > last + gamma:
            assert e is None
        else:
            assert e == min(e_a + e_b, last)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("bits", [2, 3, 4, 5])
@pytest.mark.sweep(every=3)
def test_every_sum_of_codes(bits: int, gamma: int) -> None:
    a, b = every_pair(bits, gamma)
    total = hc.log_add(a, b)
    assert total.components["scales"] == 2
    last = 2 ** (bits - 1) - 2
    for (sign_a, e_a), (sign_b, e_b), (sign, e) in zip(parts(a), parts(b), parts(total), strict=True):
        exact = sum(
            (
                Decimal(-1 if s else 1) * Decimal(2) ** (-Decimal(x) / gamma)
                for s, x in ((sign_a, e_a), (sign_b, e_b))
                if x is not None
            ),
            Decimal(0),
        )
        if e_a == e_b and (e_a is None or sign_a != sign_b):
            assert e is None and sign == (sign_a & sign_b if e_a is None else 0)
            continue
        wanted = -gamma * (abs(exact) / 2).ln() / Decimal(2).ln()  # steps below the scale 2
        whole = int(wanted.to_integral_value())
        assert abs(wanted - whole) < Decimal("0.4999999")  # no tie that the definition leaves open
        assert sign == (exact < 0)
        assert e == (None if whole > last + gamma else min(whole, last))


@pytest.mark.parametrize("pair", list(itertools.product(["log8-8", "log6-4", "log4-1", "log8-32", "log3-2"], repeat=2)))
def test_products_are_exact_beside_their_scale(pair: tuple[str, str]) -> None:
    a, b = (made(fmt) for fmt in pair)
    y = hc.log_multiply(a, b, format=hc.Log(8, 32))
    exact = a.dequantize().astype(np.float64) * b.dequantize()
    scale = y.scales_expanded(np.float64)
    inside = np.abs(exact) >= scale * 2.0 ** (-126 / 32)
    np.testing.assert_allclose(y.dequantize()[inside], exact[inside], rtol=3e-7)
    assert (y.dequantize()[exact == 0] == 0).all()


@pytest.mark.parametrize("fmt", ["log8-8", "log8-16", "log6-2", "log8-1-g16", "log8-8-g7"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 40), -1), ((33, 5), 0), ((2, 3, 4, 5), (1, 2, 3))])
def test_sums_are_within_a_step(fmt: str, shape: tuple[int, ...], axis: int) -> None:
    a, b = (hc.quantize(np.abs(made(fmt, shape, axis).dequantize()), fmt, axis=axis) for _ in "ab")
    y = hc.log_add(a, b)
    assert y.shape == shape and y.axis == a.axis and str(y.format) == fmt
    exact = a.dequantize().astype(np.float64) + b.dequantize()
    gamma = y.format.gamma
    smallest = y.scales_expanded(np.float64) * 2.0 ** (-(2 ** (y.format.bits - 1) - 2) / gamma)
    inside = exact >= smallest
    error = np.abs(np.log2(y.dequantize()[inside] / exact[inside])) * gamma
    assert error.max() <= 1 + 1e-4  # half a step of the table, half a step where scales differ


def test_groups_of_zeros_and_empty_arrays() -> None:
    zeros = hc.quantize(np.zeros((2, 8), np.float32), "log8-8")
    ones = hc.quantize(np.ones((2, 8), np.float32), "log8-8")
    for y, wanted in ((hc.log_multiply(zeros, ones), 0), (hc.log_add(zeros, ones), 1), (hc.log_add(zeros, zeros), 0)):
        assert (y.dequantize() == wanted).all()
    assert not hc.log_multiply(zeros, ones).components["codes"].any()
    for shape in ((0, 8), (3, 0)):
        none = hc.quantize(np.zeros(shape, np.float32), "log4-1")
        assert hc.log_add(none, none).shape == hc.log_multiply(none, none).shape == shape


def test_bad_arguments() -> None:
    a = made("log8-8")
    huge = hc.quantize(np.full((3, 40), 3e38, np.float32), "log8-8")
    tiny = hc.quantize(np.full((3, 40), 1e-30, np.float32), "log8-8")
    for call in (hc.log_multiply, hc.log_add):
        with bad_argument(TypeError, "a", "type"):
            call(np.ones(3), a)  # type: ignore[arg-type]
        with bad_argument(ValueError, "b", "value"):
            call(a, hc.quantize(np.ones((3, 40), np.float32), "int8"))
        with bad_argument(ValueError, "a", "shape"):
            call(a, made("log8-8", (3, 41)))
        with bad_argument(ValueError, "a", "value"):
            call(a, made("log8-8-g8"))
        with bad_argument(ValueError, "format", "value"):
            call(a, a, format="log8-4")
        with bad_argument(ValueError, "format", "value"):
            call(a, a, format="int8")
        with bad_argument(ValueError, None, "value", "a scale of the result is beyond float32"):
            call(huge, huge)
        for scale in (-1, np.nan, np.inf):
            parts = {"codes": a.components["codes"], "scales": np.full((3, 1), scale, np.float32)}
            with bad_argument(ValueError, "b", "value"):
                call(a, hc.QuantizedArray(parts, a.format, a.shape, a.axis))
    with bad_argument(ValueError, None, "value", "a scale of the result is below float32"):
        hc.log_multiply(tiny, tiny)
