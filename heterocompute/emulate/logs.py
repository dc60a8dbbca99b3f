"""Log numbers by hardware without a multiplier: products add exponents, sums look up log2(1 + 2^-d) in a table.

Arrays stay codes and scales throughout. Tables and thresholds are computed with decimal arithmetic, so that they are
the same on every machine.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from functools import cache
from typing import Any

import numpy as np

from ..arrays.bits import pack, rows_per_chunk, unpack
from ..arrays.foreign import refuse_elsewhere
from ..arrays.quantized import QuantizedArray
from ..arrays.unpacked import code_geometry
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..formats import Format, Log, format as parse_format

__all__ = ["log_add", "log_multiply"]

Array = np.ndarray[Any, Any]

_BLOCK = 1 << 20  # values at a time


@counts_subnormals
def log_multiply(a: QuantizedArray, b: QuantizedArray, *, format: str | Format | None = None) -> QuantizedArray:
    """Multiply two arrays of log numbers elementwise, by adding their exponents.

    Parameters
    ----------
    a, b : QuantizedArray
        Log numbers of equal shape, axis and group size. Bits and gamma may differ.
    format : str or Format, optional
        Log format of the result, with the group size of `a` and a gamma no smaller than those of `a` and `b`.
        Default: the wider bits and the larger gamma of the two.

    Returns
    -------
    QuantizedArray
        Every product whose exponent the result can hold is exact, relative to its scale. The scale is the float32
        product of both scales. A smaller product becomes the smallest magnitude, or zero below half of that.

    Raises
    ------
    TypeError
        `a` or `b` is not a QuantizedArray.
    ValueError
        A format is not log numbers, the shapes, axes or groups differ, or a product of scales exceeds float32.

    Notes
    -----
    With exponents e in steps of 1 / gamma octave: e = e_a gamma / gamma_a + e_b gamma / gamma_b. Miyashita et al.,
    2016 (arXiv 1603.01025); Zhao et al., "LNS-Madam", 2021 (arXiv 2106.13914).

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> x = hc.quantize(np.float32([[1, 0.5, -0.25]]), "log8-1")
    >>> hc.log_multiply(x, x).dequantize()
    array([[1.    , 0.25  , 0.0625]], dtype=float32)
    """
    out = _result("log_multiply", a, b, format)
    _check_stored("log_multiply", a, b)
    gammas = a.format.form.steps, b.format.form.steps
    with np.errstate(over="ignore", under="ignore"):
        scales = a.components["scales"] * b.components["scales"]
    _check_scales("log_multiply", scales, (a.components["scales"] != 0) & (b.components["scales"] != 0))

    def rows(first: int, last: int) -> Array:
        (sign_a, e_a, zero_a), (sign_b, e_b, zero_b) = (_exponents(q, first, last) for q in (a, b))
        e = e_a * (out.gamma // gammas[0]) + e_b * (out.gamma // gammas[1])
        return _codes(out, sign_a ^ sign_b, e, zero_a | zero_b)

    return _build(out, a, scales, rows)


@counts_subnormals
def log_add(a: QuantizedArray, b: QuantizedArray, *, format: str | Format | None = None) -> QuantizedArray:
    """Add two arrays of log numbers elementwise, with a table of log2(1 + 2^-d) and log2(1 - 2^-d).

    Parameters
    ----------
    a, b : QuantizedArray
        Log numbers of equal shape, axis and group size. Bits and gamma may differ.
    format : str or Format, optional
        Log format of the result, with the group size of `a` and a gamma no smaller than those of `a` and `b`.
        Default: the wider bits and the larger gamma of the two.

    Returns
    -------
    QuantizedArray
        The scale of each group is twice the larger of both, so that no sum exceeds it. A sum below the smallest
        magnitude becomes that magnitude, or zero below half of it.

    Raises
    ------
    TypeError
        `a` or `b` is not a QuantizedArray.
    ValueError
        A format is not log numbers, the shapes, axes or groups differ, or twice a scale exceeds float32.

    Notes
    -----
    Exponents are integers in steps of 1 / gamma octave. The operand with the smaller scale moves by the whole number of
    steps nearest to gamma log2 of the ratio of scales, at most half a step off. With d the distance of both exponents,
    the sum has the exponent of the larger operand less the nearest integer to gamma log2(1 + 2^(-d / gamma)), or with
    unlike signs to gamma log2(1 - 2^(-d / gamma)). With equal scales a sum of like signs is within half a step, a
    factor of 2^(1 / (2 gamma)). Equal numbers of unlike signs give +0.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> x = hc.quantize(np.float32([[1, 0.5, 0.25]]), "log8-1")
    >>> y = hc.quantize(np.float32([[1, -1, 0]]), "log8-1")
    >>> hc.log_add(x, y).dequantize()
    array([[ 2.  , -0.5 ,  0.25]], dtype=float32)
    """
    out = _result("log_add", a, b, format)
    _check_stored("log_add", a, b)
    parts = a.components["scales"], b.components["scales"]
    larger = np.maximum(*parts)
    with np.errstate(over="ignore"):
        scales = larger * np.float32(2)
    _check_scales("log_add", scales, larger != 0)
    offsets = [_steps_below(larger, part, out.gamma) for part in parts]
    plus, minus = _tables(out.gamma)

    def rows(first: int, last: int) -> Array:
        sides: list[tuple[Array, Array, Array]] = []
        for q, offset in zip((a, b), offsets, strict=True):
            sign, e, zero = _exponents(q, first, last)
            e = e * (out.gamma // q.format.form.steps) + offset[first:last, :, None]
            sides.append((sign, e, zero | (parts[len(sides)][first:last, :, None] == 0)))
        (sign_a, e_a, zero_a), (sign_b, e_b, zero_b) = sides
        far = 1 << 30  # the exponent of zero: beyond every distance of the tables
        e_a, e_b = np.where(zero_a, far, e_a), np.where(zero_b, far, e_b)
        first_is_larger = e_a <= e_b
        e = np.minimum(e_a, e_b)
        d = np.minimum(np.abs(e_a - e_b), len(plus) - 1)
        sign = np.where(first_is_larger, sign_a, sign_b)
        like = sign_a == sign_b
        e = e + out.gamma - np.where(like | zero_a | zero_b, plus[d], minus[d])  # the scale is an octave larger
        gone = (~like & (e_a == e_b)) & ~zero_a
        both = zero_a & zero_b
        sign = np.where(gone, 0, np.where(both, sign_a & sign_b, sign))
        return _codes(out, sign, e, gone | both)

    return _build(out, a, scales, rows)


def _result(name: str, a: Any, b: Any, wanted: Any) -> Log:
    for side, q in (("a", a), ("b", b)):
        refuse_elsewhere(q, f"{name}: {side}")
        if not isinstance(q, QuantizedArray):
            raise WrongType(f"{name}: {side} is {shown(q)}, expected a QuantizedArray of log numbers")
        if q.format.form.codes != "log":
            raise WrongValue(
                f"{name}: {side} is {q.format}, expected log numbers; quantize it to a format such as log8-8"
            )
    for what in ("shape", "axis"):
        if getattr(a, what) != getattr(b, what):
            raise WrongValue(f"{name}: a has {what} {getattr(a, what)} and b {getattr(b, what)}, expected the same")
    if a.format.group != b.format.group:
        raise WrongValue(f"{name}: a is {a.format} and b {b.format}, expected one group size; quantize one again")
    gamma = max(a.format.form.steps, b.format.form.steps)
    if wanted is None:
        return Log(max(a.format.bits, b.format.bits), gamma, a.format.group)
    fmt = parse_format(wanted)
    if fmt.form.codes != "log" or fmt.group != a.format.group or fmt.form.steps < gamma:
        like = Log(max(a.format.bits, b.format.bits), gamma, a.format.group)
        raise WrongValue(f"{name}: format is {fmt}, expected log numbers such as {like}, with gamma {gamma} or more")
    return Log(fmt.bits, fmt.form.steps, fmt.group)


def _check_stored(name: str, a: QuantizedArray, b: QuantizedArray) -> None:
    """Raise for scales that `quantize` never produces, but that a file or a caller's own components may contain."""
    for side, q in (("a", a), ("b", b)):
        scales = q.components["scales"]
        if not (np.isfinite(scales) & (scales >= 0)).all():
            raise WrongValue(f"{name}: {side} has a scale that is negative or not finite, expected 0 or more")


def _check_scales(name: str, scales: Array, nonzero: Array) -> None:
    if not np.isfinite(scales).all():
        raise WrongValue(f"{name}: a scale of the result is beyond float32; divide one array by a power of two first")
    if (nonzero & (scales == 0)).any():
        raise WrongValue(f"{name}: a scale of the result is below float32; multiply one array by a power of two first")


def _exponents(q: QuantizedArray, first: int, last: int) -> tuple[Array, Array, Array]:
    """Return sign, exponent and whether the value is zero, (rows, groups, values of a group), of some rows."""
    runs, _, padded, _ = code_geometry(q)
    bits = q.format.bits
    stored = unpack(q.components["codes"][first:last], bits, runs * padded).astype(np.int32)
    stored = stored.reshape(len(stored), q.components["scales"].shape[1], -1)
    zero = (1 << (bits - 1)) - 1
    exponent = stored & zero
    return stored >> (bits - 1), exponent, exponent == zero


def _codes(out: Log, sign: Array, e: Array, zero: Array) -> Array:
    none = (1 << (out.bits - 1)) - 1
    last = none - 1
    exponents = np.where(zero | (e > last + out.gamma), none, np.minimum(e, last))  # smaller values are 0
    return (sign << (out.bits - 1) | exponents).astype(np.uint8)


def _build(out: Log, like: QuantizedArray, scales: Array, rows: Any) -> QuantizedArray:
    runs, _, padded, _ = code_geometry(like)
    count, width = len(scales), runs * padded
    packed = np.empty((count, -(-width * out.bits // 8)), np.uint8)
    step = rows_per_chunk(count, width, _BLOCK)
    for first in range(0, count if width else 0, max(step, 1)):
        last = min(first + step, count)
        codes = np.where(scales[first:last, :, None] == 0, np.uint8(0), rows(first, last))  # as quantize
        packed[first:last] = pack(codes.reshape(last - first, width), out.bits)
    return QuantizedArray({"codes": packed, "scales": scales}, out, like.shape, like.axis)


@cache
def _tables(gamma: int) -> tuple[Array, Array]:
    """Return gamma log2(1 + 2^(-d / gamma)) and gamma log2(1 - 2^(-d / gamma)) as nearest integers, by d.

    Both end before the entries that are all 0. Entry 0 of the second is not used: equal numbers cancel.
    """
    plus, minus = [], [0]
    with localcontext() as context:
        context.prec = 50
        unit = Decimal(2).ln()
        d = 0
        while True:
            part = (-unit * d / gamma).exp()
            plus.append(_nearest(gamma * (1 + part).ln() / unit))
            if d:
                minus.append(_nearest(gamma * (1 - part).ln() / unit))
                if plus[-1] == minus[-1] == 0:
                    return np.array(plus, np.int32), np.array(minus, np.int32)
            d += 1


def _nearest(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_HALF_EVEN))


@cache
def _thresholds(gamma: int) -> Array:
    """Return 2^((j + 1/2) / gamma), j = 0 .. gamma - 1: the thresholds between steps for a mantissa from 1 to 2."""
    with localcontext() as context:
        context.prec = 50
        return np.array([float(Decimal(2) ** ((Decimal(j) + Decimal("0.5")) / gamma)) for j in range(gamma)])


def _steps_below(larger: Array, scale: Array, gamma: int) -> Array:
    """Return gamma log2(larger / scale) as the nearest integer; 0 if a scale is 0."""
    known = (scale != 0) & (larger != 0)
    ratio = np.divide(larger.astype(np.float64), scale, out=np.ones(scale.shape), where=known)
    mantissa, exponent = np.frexp(ratio)
    inside = np.searchsorted(_thresholds(gamma), mantissa * 2.0, side="right")
    return ((exponent.astype(np.int64) - 1) * gamma + inside).astype(np.int32)
