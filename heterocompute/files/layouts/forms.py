"""Closed forms: the same values in another format, without rounding.

    integers      value = scale (code - zero point) + minimum; other bits, groups, zero points, types of scales
    q4_1, affine  a minimum that is -scale x zero point is a zero point
    scale < 0     of ggml: codes change their sign, so the zero point is 2^(bits - 1) - 1 instead of 2^(bits - 1)
    mxfp4, nvfp4  scales that are powers of two: 2^e of 32 values are two bytes E4M3 times the float32 of the tensor
    nf4, fp8      smaller groups repeat a scale

The results are not trusted: `convert` decodes both arrays and compares them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np

from ...arrays.bits import pack, rows_per_chunk, unpack
from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue
from ...formats import GGML, MX, NF4, NVFP4, Affine, Float, Format, Int
from ...products.quantize import quantize
from .linear import Array, Codes, components_of

Components = dict[str, Array]

CHUNK = 1 << 20  # values that are converted at a time
GROUPS = (None, 256, 128, 64, 32, 16)
SIGNED, MINIMA = {2: "tq2_0", 4: "q4_0", 5: "q5_0", 8: "q8_0"}, {4: "q4_1", 5: "q5_1"}
TWICE_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int16)
E4M3_LEAST, E4M3_MOST = -9, 8  # exponents of the powers of two of E4M3


class Integers:
    """Rows of integers: value = scale (code - zero) + minimum; `codes` (rows, columns), the others (rows, groups).

    Codes are unpacked on access, after the quicker checks.
    """

    def __init__(
        self, q: QuantizedArray, bits: int, zeros: Array, scales: Array, minima: Array | None, group: int
    ) -> None:
        self._q, self.bits, self.zeros, self.scales, self.minima, self.group = q, bits, zeros, scales, minima, group
        self.count = q.shape[1]

    @cached_property
    def codes(self) -> Array:
        if isinstance(self._q.format, MX | NVFP4):
            floats: Array = TWICE_E2M1[unpack(self._q.components["codes"], 4, self.count)]
            return floats
        return self._q.codes().astype(np.int16)


def is_uniform(fmt: Format) -> TypeGuard[Int | Affine | GGML]:
    """Tell whether the codes of a format are integers with a scale, a zero point or a minimum for each group."""
    return isinstance(fmt, Int | Affine) or (isinstance(fmt, GGML) and not fmt.kind.has_levels)


def forms(fmt: Format, columns: int) -> list[Format]:
    """Return formats that may hold the values of another one, the nearest first.

    Parameters
    ----------
    columns : int
        Values of a row.
    """
    found: list[Format] = [fmt]
    if is_uniform(fmt):
        own = fmt.group if fmt.group is None or fmt.group < columns else None
        wide = [one for one in GROUPS if one is None or columns % one == 0]
        smaller = [one for one in wide if one is not None and one < (own or columns)]
        larger = [one for one in reversed(wide) if own is not None and (one is None or one > own)]
        symmetric = (True, False) if not isinstance(fmt, Int) or fmt.symmetric else (False, True)
        scales = ("f16", "f32") if isinstance(fmt, GGML) or fmt.scale == "f16" else ("f32", "f16")
        bits = [fmt.bits, *(one for one in (4, 8) if one > fmt.bits)]
        for n in bits if max(bits) <= 8 else ():
            for group in (own, *smaller, *larger):
                found += [Int(n, group, flag, kind) for flag in symmetric for kind in scales]
            blocks = [GGML(types[n]) for types in (SIGNED, MINIMA) if n in types]
            found += [one for one in blocks if columns % one.block == 0]
            if fmt.form.minima:
                found += [Affine(n, group, kind) for group in (own, *smaller, *larger) for kind in scales]
    elif isinstance(fmt, MX | NVFP4) and fmt.element_dtype == "float4_e2m1fn":
        found.append(NVFP4() if isinstance(fmt, MX) else MX("fp4"))
        for group in (one for one in (fmt.group, 16) if columns % one == 0):
            found += [Int(8, group, True, kind) for kind in ("f16", "f32")]
        found += [GGML("q8_0")] if columns % 32 == 0 else []
    elif isinstance(fmt, NF4) and not fmt.double:
        found += [NF4(n) for n in (2048, 1024, 512, 256, 128, 64, 32, 16) if columns % n == 0]
    elif isinstance(fmt, Float) and fmt.scaled in ("row", "tensor"):
        found.append(replace(fmt, scaled="row" if fmt.scaled == "tensor" else "tensor"))
    return list(dict.fromkeys(found))


def has_zero_points(q: QuantizedArray) -> bool:
    """Tell whether the first rows of an array have no minima, or minima that are zero points."""
    rows = integers_of(q[:8])
    try:
        return rows.minima is None or _zero_points(rows) is not None
    except ValueError:
        return False


def in_form(q: QuantizedArray, fmt: Format, lowest: bool = False) -> QuantizedArray:
    """Return the values of a matrix in another format.

    Parameters
    ----------
    q : QuantizedArray
        (rows, columns), quantized along its columns.
    fmt : Format
        Of `forms`.
    lowest : bool
        Whether symmetric integers may have the code -2^(bits - 1), which other programs write and `Int` does not.

    Raises
    ------
    ValueError
        The values are not representable in the format; the message has the reason.
    """
    if q.format == fmt:
        return q
    if not len(q):
        return quantize(np.zeros(q.shape, np.float32), fmt, 1)
    made = _maker(q, fmt, lowest)
    dtype = "float32" if isinstance(fmt, Int | Affine | GGML) else q.source_dtype

    def rows(begin: int, end: int) -> QuantizedArray:
        return QuantizedArray(made(q[begin:end]), fmt, (end - begin, q.shape[1]), (1,), dtype)

    return joined((rows(begin, end) for begin, end in _pieces(q)), len(q))


def integers_of(q: QuantizedArray) -> Integers:
    """Return the integers of a matrix, also for FP4, whose codes times 2 are integers; ValueError for other formats."""
    fmt: Any = q.format
    group = min(fmt.group or q.shape[1], q.shape[1])
    every = slice(None), slice(None, None, group)
    zeros = np.zeros((len(q), -(-q.shape[1] // group)), np.int16)
    if isinstance(fmt, MX | NVFP4) and fmt.element_dtype == "float4_e2m1fn":
        return Integers(q, 5, zeros, q.scales_expanded()[every] * np.float32(0.5), None, group)
    if not is_uniform(fmt):
        raise WrongValue(f"{fmt} does not hold uniform integers")
    if isinstance(fmt, Int) and not fmt.symmetric:
        zeros = q.zero_points_expanded()[every].astype(np.int16)
    minima = q.minima_expanded()[every] if fmt.form.minima else None
    return Integers(q, fmt.bits, zeros, q.scales_expanded()[every], minima, group)


def joined(parts: Iterable[QuantizedArray], rows: int) -> QuantizedArray:
    """Return matrices of one format and width stacked, `rows` in all; each is made when it is needed."""
    found = iter(parts)
    first = next(found)
    if len(first) == rows:
        return first
    together = {
        key: part if part.ndim == 0 else np.empty((rows * len(part) // len(first), *part.shape[1:]), part.dtype)
        for key, part in first.components.items()
    }
    begin = 0
    for one in itertools.chain([first], found):
        for key, part in one.components.items():
            if part.ndim:
                each = len(part) // len(one)
                together[key][begin * each : (begin + len(one)) * each] = part
            elif part != together[key]:
                raise WrongValue("rows have scales of the tensor that differ")
        begin += len(one)
    return QuantizedArray(together, first.format, (rows, first.shape[1]), (1,), first.source_dtype)


def _pieces(q: QuantizedArray) -> Iterator[tuple[int, int]]:
    step = rows_per_chunk(len(q), q.shape[1], CHUNK)
    yield from ((i, min(i + step, len(q))) for i in range(0, len(q), step))


def _maker(q: QuantizedArray, fmt: Format, lowest: bool) -> Callable[[QuantizedArray], Components]:
    """Return a function that makes the components of some rows, after computing the values of the whole tensor."""
    own: Any = q.format
    match fmt, own:
        case Int(), _:
            return lambda rows: _as_int(integers_of(rows), own, fmt, lowest)
        case GGML(), _:
            return lambda rows: _as_blocks(integers_of(rows), own, fmt)
        case Affine(), _:
            return lambda rows: _with_minima(integers_of(rows), own, fmt)
        case NVFP4(), MX():
            shift = _shift(q.components["scales"])
            return lambda rows: _as_nvfp4(rows, shift)
        case MX(), NVFP4():
            return _as_mxfp4
        case NF4(), NF4():
            return lambda rows: _as_nf4(rows, own, fmt)
        case Float(), Float():
            return lambda rows: _as_scaled(rows, q, fmt)
    raise WrongValue(f"{own} cannot be converted exactly to {fmt}")


def _components(fmt: Int | GGML, codes: Array, scales: Array, points: Array | None = None) -> Components:
    packed = Codes(pack(codes.astype(np.uint8), fmt.bits), fmt.bits, codes.shape[1])
    return components_of(fmt, packed, scales, points)


def _as_int(rows: Integers, own: object, fmt: Int, lowest: bool) -> Components:
    zeros = rows.zeros if rows.minima is None else _zero_points(rows)
    group = min(fmt.group or rows.count, rows.count)
    scales = _typed(_regrouped(np.abs(rows.scales), rows, group), fmt)
    negative = np.signbit(rows.scales) & (rows.scales != 0)
    middle, most = 1 << (fmt.bits - 1), (1 << fmt.bits) - 1
    points = np.full_like(zeros, middle)
    if isinstance(own, Int) and not own.symmetric and own.bits == fmt.bits:
        points = zeros
    elif rows.bits == fmt.bits:
        points = (
            (middle - negative).astype(np.int16) if rows.minima is None else np.where(negative, most - zeros, zeros)
        )
    if not fmt.symmetric:
        points = _regrouped(points, rows, group)
    codes = rows.codes - _spread(zeros, rows)
    codes = np.where(_spread(negative, rows), -codes, codes)
    if fmt.symmetric:
        if codes.max(initial=0) >= middle or codes.min(initial=0) < -middle + (not lowest):
            raise WrongValue(f"codes from {codes.min()} to {codes.max()} around the zero point, beyond {fmt}")
        return _components(fmt, codes & most, scales)
    if rows.bits > fmt.bits:
        low = np.minimum.reduceat(codes, np.arange(0, rows.count, group), axis=1)
        points = np.clip(-low, 0, most).astype(np.int16)
    unsigned = codes + np.repeat(points, group, 1)[:, : rows.count]
    if unsigned.size and (unsigned.min() < 0 or unsigned.max() > most):
        raise WrongValue(f"codes around the zero point span more than the {most + 1} of {fmt}")
    return _components(fmt, unsigned, scales, points.astype(np.uint8))


def _zero_points(rows: Integers) -> Array:
    """Return the zero points whose products with the scales are the minima."""
    assert rows.minima is not None
    scales, minima = rows.scales.astype(np.float64), rows.minima.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        points = np.where(scales != 0, -minima / scales, 0)
    fit = (points == np.rint(points)) & (points >= 0) & (points < 1 << rows.bits) & (-points * scales == minima)
    if not fit.all():
        where = tuple(int(i) for i in np.argwhere(~fit)[0])
        raise WrongValue(
            f"the minimum {rows.minima[where]:.6g} of group {where[1]} is not a multiple of the scale "
            f"{rows.scales[where]:.6g}, so there is no zero point"
        )
    return points.astype(np.int16)


def _as_blocks(rows: Integers, own: object, fmt: GGML) -> Components:
    kind = fmt.kind
    if kind.group != kind.block or kind.has_levels:
        raise WrongValue(f"{fmt} has scales of two levels")
    if kind.has_minimum:
        return _with_minima(rows, own, fmt)
    zeros = rows.zeros if rows.minima is None else _zero_points(rows)
    scales, points = _regrouped(rows.scales, rows, fmt.block), _regrouped(zeros, rows, fmt.block)
    _as_half(scales)  # refuses
    codes, middle = rows.codes - _spread(zeros, rows), 1 << (fmt.bits - 1)
    blocks = codes.reshape(len(codes), -1, fmt.block)
    turned = blocks.max(2) >= middle
    if isinstance(own, Int) and not own.symmetric and own.bits == fmt.bits:  # as `_as_int` makes them
        turned |= points == middle - 1
    blocks = np.where(turned[:, :, None], -blocks, blocks)
    least = -middle + (fmt.type == "q8_0" or fmt.is_ternary)
    if blocks.size and (blocks.min() < least or blocks.max() >= middle):
        raise WrongValue(f"codes around the zero point lie beyond the {least} to {middle - 1} of {fmt}")
    unsigned = (blocks & ((1 << fmt.bits) - 1)).reshape(rows.codes.shape)
    return _components(fmt, unsigned, _as_half(np.where(turned, -scales, scales)))


def _with_minima(rows: Integers, own: Any, fmt: GGML | Affine) -> Components:
    if rows.bits > fmt.bits:
        raise WrongValue(f"codes of {rows.bits} bits, {fmt} has {fmt.bits}")
    offset = np.int16(1 << (rows.bits - 1) if own.form.signed or own.form.codes != "integer" else 0)
    minima = -rows.scales * (rows.zeros + offset) if rows.minima is None else rows.minima
    group = min(fmt.group or rows.count, rows.count)
    typed = _as_half if isinstance(fmt, GGML) or fmt.scale == "f16" else np.ascontiguousarray
    return {
        "scales": typed(_regrouped(rows.scales, rows, group)),
        "minima": typed(_regrouped(minima, rows, group)),
        "codes": pack((rows.codes + offset).astype(np.uint8), fmt.bits),
    }


def _spread(part: Array, rows: Integers) -> Array:
    return np.repeat(part, rows.group, axis=1)[:, : rows.count]


def _regrouped(part: Array, rows: Integers, group: int) -> Array:
    """Return a value per group from other groups: repeated, or the common value of a larger group."""
    count, own = rows.count, rows.group
    if own == group:
        return part
    edges = np.arange(0, count, group)
    found = part[:, edges // own]
    if not np.array_equal(found[:, np.arange(count) // group], part[:, np.arange(count) // own]):
        raise WrongValue(f"groups of {own} within groups of {group} have scales or zero points that differ")
    return np.ascontiguousarray(found)


def _typed(scales: Array, fmt: Int) -> Array:
    return _as_half(scales) if fmt.scale == "f16" else scales.astype(np.float32)


def _as_half(values: Array) -> Array:
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    wrong = half.astype(values.dtype) != values
    if wrong.any():
        raise WrongValue(f"the scale or minimum {values[wrong][0]:.9g} is not a float16")
    return half


def _shift(scales: Array) -> int:
    """Return the exponent of the tensor's float32 with which E4M3 represents the powers of two of all groups."""
    if (scales == 255).any():
        raise WrongValue("a scale is NaN")
    exponents = scales.astype(np.int16) - 127
    least, most = int(exponents.min(initial=0)), int(exponents.max(initial=0))
    if least >= E4M3_LEAST and most <= E4M3_MOST:
        return 0
    least, most = int(exponents.min()), int(exponents.max())
    if most - least > E4M3_MOST - E4M3_LEAST:
        raise WrongValue(f"scales from 2^{least} to 2^{most}, more than the 18 powers of two of E4M3")
    return most - E4M3_MOST


def _as_nvfp4(q: QuantizedArray, shift: int) -> Components:
    exponents = np.repeat(q.components["scales"].astype(np.int16) - 127 - shift, 2, axis=1)[:, : -(-q.shape[1] // 16)]
    normal = (exponents + 7) << 3
    scales = np.where(exponents >= -6, normal, 1 << np.maximum(exponents + 9, 0)).astype(np.uint8)
    coarse = np.float32(2.0) ** np.float32(shift)
    return {"codes": q.components["codes"], "scales": scales, "coarse": np.asarray(coarse, np.float32).reshape(())}


def _as_mxfp4(q: QuantizedArray) -> Components:
    import ml_dtypes  # 5 ms

    if q.shape[1] % 32:
        raise WrongValue(f"rows of {q.shape[1]} values, mxfp4 has groups of 32")
    scales = q.components["scales"].view(ml_dtypes.float8_e4m3fn).astype(np.float64) * float(q.components["coarse"])
    first, second = scales[:, ::2], scales[:, 1::2]
    mantissas, exponents = np.frexp(first)
    if not np.array_equal(first, second) or not (mantissas == 0.5).all() or (np.abs(exponents + 63) > 190).any():
        raise WrongValue("scales are not powers of two that two groups of 16 share")
    return {"codes": q.components["codes"], "scales": (exponents + 126).astype(np.uint8)}


def _as_nf4(q: QuantizedArray, own: NF4, fmt: NF4) -> Components:
    none = np.zeros(0)
    rows = Integers(q, 4, none, none, None, min(own.group, q.shape[1]))
    return {"codes": q.components["codes"], "scales": _regrouped(q.components["scales"], rows, fmt.group)}


def _as_scaled(q: QuantizedArray, whole: QuantizedArray, fmt: Float) -> Components:
    codes = q.components["codes"]
    if fmt.scaled == "row":
        return {"codes": codes, "scales": np.full((len(q), 1), q.components["coarse"], np.float32)}
    scales = whole.components["scales"]
    if scales.min() != scales.max():
        raise WrongValue("rows have scales that differ")
    return {"codes": codes, "coarse": np.asarray(scales.flat[0], np.float32).reshape(())}
