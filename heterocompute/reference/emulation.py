"""Products as given hardware computes them: S starts at 0; each step adds to it, and rounds, saturates or wraps.

codes     S = fit(S + p * sum of a_q b_q over the step), p the rounded product of integer scales
logs      the same with sign * 2^(-(e_a + e_b) / gamma) in place of a_q b_q, converted by table, by Mitchell or both
floats    S = round(S + sum of a b over the step), exact inside, or aligned to the largest exponent and cut first

A row is cut at every boundary of either operand's groups; a step is `chunk` values of such a segment, or all of it.
Integer scales and one scale per row: y = float32((float64(g_a) float64(g_b)) * (float64(S) * unit)). Float32 scales for
groups: after each segment, y = fma(float32(s_a s_b), float32(float64(S) * unit), y) and S is 0 again. Plain and slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from math import copysign, floor, inf, ldexp
from typing import Any, NamedTuple

import numpy as np

from . import terms
from .arithmetic import Array, decoded, fma
from .formats.log import POWERS
from .layout import unpack

# Bits of the significand and exponent of the smallest normal number.
FLOATS = {"fp16": (11, -14), "bf16": (8, -126), "fp22": (14, -126), "fp32": (24, -126)}
# Exponent of the smallest normal factor.
INPUTS = {"fp16": -14, "bf16": -126, "tf32": -126, "fp32": -126, "fp8_e4m3fn": -6, "fp8_e5m2": -14}


class Rows(NamedTuple):
    """One operand as rows over k.

    Attributes
    ----------
    codes : list of list of int
        Integers; of logs 2 e + sign, or -1 for zero.
    group : int
        Values that share a scale; k if all do.
    integer_scales, float_scales : ndarray (rows, groups) or None
    row_scale : ndarray of float32, (rows,)
    scale_bits : int
        Bits of the integer scales, 0 without.
    """

    codes: list[list[int]]
    group: int
    integer_scales: Array | None
    float_scales: Array | None
    row_scale: Array
    scale_bits: int


def rows(x: Any) -> Rows:
    """Return a two-dimensional array of integers, or a quantized one along its last axis, as rows.

    Parameters
    ----------
    x : ndarray of integers, (rows, k), or Packed

    Returns
    -------
    Rows
    """
    count, k = x.shape
    ones = np.ones(count, np.float32)
    if not hasattr(x, "components"):
        return Rows(x.tolist(), k, None, None, ones, 0)
    factors = terms(x.components, x.format, x.shape, x.axis)
    group = min(x.format.group or k, k)
    row_scale = ones if factors.row_scale is None else factors.row_scale
    if x.format.family == "log":
        zero = 2 ** (x.format.bits - 1) - 1
        stored = unpack(x.components["codes"], x.format.bits, k, signed=False).tolist()
        codes = [
            [-1 if c % (zero + 1) == zero else 2 * (c % (zero + 1)) + c // (zero + 1) for c in row] for row in stored
        ]
    else:
        codes = factors.codes.reshape(count, -1)[:, :k].tolist()
    scales = factors.group_scale
    if scales is None or scales.dtype.kind == "f":
        return Rows(codes, group, None, scales, row_scale, 0)
    return Rows(codes, group, scales, None, row_scale, x.format.scale_bits)


def fit(value: int, bits: int, saturate: bool) -> int:
    """Return an accumulator in two's complement: its nearest value, or the low bits.

    Parameters
    ----------
    value : int
    bits : int
    saturate : bool

    Returns
    -------
    int
    """
    half = 1 << (bits - 1)
    return min(max(value, -half), half - 1) if saturate else (value + half) % (2 * half) - half


def rounded_scale(product: int, width: int, bits: int | None) -> tuple[int, int]:
    """Round a product of integer scales, `width` bits wide, to `bits` bits.

    Parameters
    ----------
    product : int
    width : int
    bits : int or None

    Returns
    -------
    tuple of int
        RNE(product / 2^shift), at most 2^bits - 1, and the shift.
    """
    if bits is None or bits >= width:
        return product, 0
    shift = width - bits
    return min(round(Fraction(product, 1 << shift)), 2**bits - 1), shift


def mitchell(x: int, y: int) -> int:
    """Multiply two integers by adding logarithms that are linear between powers of two.

    Mitchell, "Computer Multiplication and Division Using Binary Logarithms", IRE Trans. EC 11(4), 1962.

    Parameters
    ----------
    x, y : int

    Returns
    -------
    int
        Too small by at most 1/9 of x y.
    """
    if x == 0 or y == 0:
        return 0
    i, j = abs(x).bit_length() - 1, abs(y).bit_length() - 1
    fractions = (abs(x) - (1 << i) << j) + (abs(y) - (1 << j) << i)  # sum of the logarithms' fractions, times 2^(i + j)
    magnitude = (1 << (i + j)) + fractions if fractions < 1 << (i + j) else 2 * fractions
    return magnitude if (x < 0) == (y < 0) else -magnitude


def power(exponent: int, gamma: int, table_bits: int) -> float:
    """Return 2^(-exponent / gamma) as hardware converts it.

    With r = -exponent mod gamma: a shift by whole octaves, a table of 2^(r_high / gamma) for the upper `table_bits`
    bits of r, and 1 + r_low / gamma for the others. All bits: exact; none: Mitchell. Zhao et al., "LNS-Madam", 2021
    (arXiv 2106.13914), section 2.3.

    Parameters
    ----------
    exponent, gamma : int
    table_bits : int
        0 to log2(gamma).

    Returns
    -------
    float
        float64, the product of table and line rounded once.
    """
    r = -exponent % gamma
    low = r % (gamma >> table_bits)
    high = 2 * float(POWERS[(gamma - (r - low)) * (64 // gamma)]) if r > low else 1.0
    return ldexp(high * (1 + low / gamma), -(exponent + r) // gamma)


def codes_product(
    a: Any,
    b: Any,
    bits: int,
    saturate: bool,
    chunk: int | None,
    scale_product_bits: int | None = None,
    conversion: str = "exact",
) -> Array:
    """Multiply rows of integers.

    Parameters
    ----------
    a, b : ndarray of integers or Packed, (m, k) and (n, k)
    bits, saturate : see `fit`
    chunk : int or None
        Values of a step; None is a whole segment.
    scale_product_bits : int or None
    conversion : {"exact", "mitchell"}

    Returns
    -------
    ndarray, (m, n)
        float32; int64, the accumulators, where neither operand has a scale.
    """
    left, right = rows(a), rows(b)
    multiply: Callable[[int, int], int] = mitchell if conversion == "mitchell" else lambda x, y: x * y
    width = left.scale_bits + right.scale_bits

    def scale(i: int, j: int, start: int) -> int:
        product = _at(left.integer_scales, i, start // left.group) * _at(right.integer_scales, j, start // right.group)
        return rounded_scale(int(product), width, scale_product_bits)[0]

    unit = 2.0 ** rounded_scale(0, width, scale_product_bits)[1]
    scaled = hasattr(a, "components") or hasattr(b, "components")
    return _accumulate(left, right, chunk, multiply, scale, lambda s: fit(s, bits, saturate), unit, scaled)


def log_product(
    a: Any,
    b: Any,
    bits: int | None,
    saturate: bool,
    chunk: int | None,
    table_bits: int,
    fraction_bits: int | None = None,
) -> Array:
    """Multiply rows of log numbers of one gamma.

    Parameters
    ----------
    a, b : Packed, (m, k) and (n, k)
    bits : int or None
        None accumulates in float64, k ascending; else integers of floor(2^(-e / gamma) * 2^fraction_bits).
    saturate : bool
    chunk : int or None
    table_bits : int
        See `power`.
    fraction_bits : int or None
        None: bits - 1 - (bits of the longest segment's length), so that nothing overflows.

    Returns
    -------
    ndarray of float32, (m, n)
    """
    left, right, gamma = rows(a), rows(b), a.format.gamma
    if bits is None:
        fraction_bits = 0
    elif fraction_bits is None:
        fraction_bits = bits - 1 - min(left.group, right.group).bit_length()

    def multiply(x: int, y: int) -> float | int:
        if x < 0 or y < 0:
            return 0
        magnitude = power(x // 2 + y // 2, gamma, table_bits)
        found = magnitude if bits is None else floor(ldexp(magnitude, fraction_bits))
        return -found if x % 2 != y % 2 else found

    def bounded(s: Any) -> Any:
        return s if bits is None else fit(s, bits, saturate)

    unit = 2.0**-fraction_bits
    return _accumulate(left, right, chunk, multiply, lambda i, j, start: 1, bounded, unit, scaled=True)


def _accumulate(
    a: Rows, b: Rows, chunk: int | None, multiply: Any, scale: Any, bounded: Any, unit: float, scaled: bool
) -> Array:
    k = len(a.codes[0]) if a.codes else 0
    joined = a.float_scales is not None or b.float_scales is not None
    a_scales, b_scales = _float_scales(a), _float_scales(b)
    y = np.zeros((len(a.codes), len(b.codes)), np.float32 if scaled else np.int64)
    for i, j in np.ndindex(*y.shape):
        total: Any = 0
        for start, stop in _segments(k, a.group, b.group):
            factor = 1 if joined else scale(i, j, start)
            for first in range(start, stop, chunk or k):
                last = min(first + (chunk or k), stop)
                dot: Any = 0
                for x, w in zip(a.codes[i][first:last], b.codes[j][first:last], strict=True):
                    dot += multiply(x, w)
                total = bounded(total + factor * dot)
            if joined:
                with np.errstate(over="ignore", invalid="ignore"):
                    s = a_scales[i, start // a.group] * b_scales[j, start // b.group]
                    y[i, j] = fma(s, np.asarray(float(total) * unit, np.float32), y[i, j])
                total = 0
        if not scaled:
            y[i, j] = total
        elif not joined:
            product = float(a.row_scale[i]) * float(b.row_scale[j])
            with np.errstate(over="ignore"):
                y[i, j] = np.float64(product * (float(total) * unit)).astype(np.float32)
    return y


def _segments(k: int, *groups: int) -> Iterator[tuple[int, int]]:
    bounds = sorted({k, *(start for group in groups for start in range(0, k, group))})
    yield from pairwise(bounds)


def _at(scales: Array | None, row: int, group: int) -> Any:
    return 1 if scales is None else scales[row, group]


def _float_scales(side: Rows) -> Array:
    """Return the factors of the codes if the other operand has float32 scales; they saturate like decoded values."""
    scales = side.integer_scales if side.float_scales is None else side.float_scales
    scales = np.ones((len(side.codes), 1)) if scales is None else scales
    if side.float_scales is None:
        return decoded(side.row_scale.astype(np.float64)[:, None] * scales)
    return side.float_scales


# Floats.


def round_float(value: Fraction, kind: str, rounding: str) -> float:
    """Round a number that is not zero; it keeps its sign, and beyond the largest it is infinite.

    Parameters
    ----------
    value : Fraction
    kind : {"fp16", "bf16", "fp22", "fp32"}
    rounding : {"rne", "truncate"}

    Returns
    -------
    float
    """
    precision, smallest = FLOATS[kind]
    unit = Fraction(2) ** (max(_exponent(value), smallest) - precision + 1)
    units = round(value / unit) if rounding == "rne" else int(value / unit)
    magnitude = abs(units) * unit
    return copysign(inf if magnitude >= Fraction(2) ** (2 - smallest) else float(magnitude), value)


def float_product(
    a: Array,
    b: Array,
    kind: str = "fp32",
    chunk: int = 1,
    width: int | None = None,
    rounding: str = "rne",
    inputs: str = "fp32",
    cut: str | None = None,
    lowest: int | None = None,
) -> Array:
    """Multiply rows of floats.

    Parameters
    ----------
    a, b : ndarray of float32, (m, k) and (n, k)
        Finite.
    kind : {"fp16", "bf16", "fp22", "fp32"}
        Of the accumulator.
    chunk : int
        Products of one step.
    width : int or None
        None: S and the products of a step are summed exactly and rounded once. A number: each of them is first cut to
        a multiple of 2^(E + 1 - width), E the largest exponent of S and of the products, where the exponent of a
        product is the sum of the exponents of its factors.
    rounding : {"rne", "truncate"}
        Of the sum.
    inputs : {"fp16", "bf16", "tf32", "fp32", "fp8_e4m3fn", "fp8_e5m2"}
        Where the exponents of the factors end: subnormal numbers have that of the smallest normal one.
    cut : {"rne", "truncate"}, optional
        Rounding of the terms that are cut; by default that of the sum.
    lowest : int, optional
        With a width: the largest exponent counts as no less than this.

    Returns
    -------
    ndarray of float32, (m, n)
    """
    y = np.empty((len(a), len(b)), np.float32)
    for i, j in np.ndindex(*y.shape):
        total = 0.0
        for first in range(0, a.shape[1], chunk):
            pairs = list(zip(a[i, first : first + chunk].tolist(), b[j, first : first + chunk].tolist(), strict=True))
            if abs(total) != inf:
                total = step(total, pairs, kind, width, (rounding, cut or rounding), INPUTS[inputs], lowest)
        y[i, j] = total
    return y


def step(
    total: float,
    pairs: list[tuple[float, float]],
    kind: str,
    width: int | None,
    roundings: tuple[str, str],
    smallest: int,
    lowest: int | None = None,
) -> float:
    """Add the products of one step to a total.

    Parameters
    ----------
    total : float
        Finite.
    pairs : list of tuple of float
        The factors.
    kind, width, lowest : see `float_product`
    roundings : tuple of str
        Of the sum, of what is cut.
    smallest : int
        Exponent of the factors' smallest normal number.

    Returns
    -------
    float
    """
    smallest_total = FLOATS[kind][1]
    addends = [Fraction(total), *(Fraction(x) * Fraction(w) for x, w in pairs)]
    if width is not None:
        exponents = [max(_exponent(Fraction(total)), smallest_total)] if total else []
        for x, w in pairs:
            if x and w:
                exponents.append(max(_exponent(Fraction(x)), smallest) + max(_exponent(Fraction(w)), smallest))
        if not exponents:
            return 0.0
        largest = max(exponents) if lowest is None else max(*exponents, lowest)
        unit = Fraction(2) ** (largest + 1 - width)
        cut: Callable[[Fraction], int] = round if roundings[1] == "rne" else int
        addends = [cut(addend / unit) * unit for addend in addends]
    value = sum(addends, Fraction(0))
    if value:
        rounded = round_float(value, kind, roundings[0])
        return rounded if rounded or width is None else 0.0
    # Sums of zeros follow IEEE 754: minus zero only if every addend is minus zero. A tensor core has no minus zero.
    negative = [copysign(1, total) < 0, *(copysign(1, x) != copysign(1, w) for x, w in pairs)]
    zeros = width is None and not any(addends) and all(negative)
    return -0.0 if zeros else 0.0


def _exponent(value: Fraction) -> int:
    """Return floor(log2 |value|)."""
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    return exponent - (abs(value) < Fraction(2) ** exponent)
