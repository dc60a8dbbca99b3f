"""Formats that a sentence defines. S is the scale of a group, a row, a block or the array; `csrc/formats/own/own.c`.

    limit = absmax, threshold of a clip, float32(mean of |x|)      S = limit / target, saturated, of the scale's type
    code = the element nearest to x / S, 0 where S is 0            value = float32(level of the code * S)

Two levels: of floats p = maximum / (target * largest scale) or 1, S = float32(RNE((limit / target) / p) * p); of
integers s = limit / target, gamma = max s / (2^M - 1), s_q = RNE(s / gamma), S = gamma * s_q, and codes are made
with s. e8m0: as `mx`. Divisions of scales are float32. A mean is a float64 sum by ascending column of each group,
then of groups by ascending row, divided by the values without padding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import minifloat
from ..arithmetic import Array, decoded, quotient
from ..clip import thresholds
from ..layout import Geometry, Terms, pack, real, row_bytes, unpack, unsigned_codes


def layout(fmt: Any, sizes: Geometry) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return dtype and shape of each component."""
    found: dict[str, tuple[Any, tuple[int, ...]]] = {
        "codes": (np.uint8, (sizes.rows, row_bytes(sizes.groups * sizes.group, fmt.bits)))
    }
    if fmt.sharing == "tensor":
        found["coarse"] = (np.float32, ())
    if fmt.sharing in ("tensor", "none"):
        return found
    rows = sizes.rows if fmt.sharing != "block" else -(-sizes.rows // fmt.block_rows)
    width = row_bytes(sizes.groups, fmt.scale_bits) if fmt.scale_kind == "integer" else sizes.groups
    found["scales"] = (_scale_dtype(fmt), (rows, width))
    if fmt.second is not None:
        found["coarse"] = (np.float32, (sizes.rows,) if fmt.second == "row" else ())
    return found


def legal(fmt: Any, x: Array) -> Array:
    """Tell which values can be encoded."""
    if fmt.sharing == "none":
        has_nan = _nan(fmt) is not None
        return np.asarray((~np.isnan(x) | has_nan) & (~np.isinf(x) | fmt.saturate | has_nan))
    if fmt.scale_kind == "e8m0":
        return np.asarray(~(np.abs(x) >= 2.0**128) | np.isinf(x))
    return np.asarray(np.isfinite(x.astype(np.float32)))


def encode(fmt: Any, sizes: Geometry, x: Array, clip: Any) -> dict[str, Array]:
    """Quantize values.

    A clip does not apply to blocks, means, E8M0, no scale, or float scales below one float32 for the array.
    """
    if clip is not None and not _takes_clip(fmt):
        minifloat.refuse_clip(fmt, clip)
    if fmt.sharing == "none":
        return {"codes": _packed(fmt, sizes, _codes(fmt, x))}
    wide = fmt.scale_kind == "e8m0"
    limit = _limits(fmt, sizes, x, clip)  # of every group of every row; a block has the same in its rows
    if wide:
        return _with_powers(fmt, sizes, x, limit)
    scales = _quotient(limit.astype(np.float32), fmt.used_target)
    stored: dict[str, Array] = {}
    if fmt.second is not None:
        most = limit.max(axis=-1, initial=0.0) if fmt.second == "row" else np.asarray(limit.max(initial=0.0))
        coarse = _second(fmt, most.astype(np.float32))
        if sizes.groups == 0 and fmt.second == "row":
            coarse = np.zeros_like(coarse)
        stored["coarse"] = coarse
        coarse = np.broadcast_to(coarse, (sizes.rows,))[:, None]
    if fmt.scale_kind == "integer":
        integers = np.clip(
            quotient(scales.astype(np.float64), np.broadcast_to(coarse, scales.shape)), 0, 2**fmt.scale_bits - 1
        )
        divisor = np.where(integers == 0, np.float32(0), scales)
        stored["scales"] = pack(integers, fmt.scale_bits)
    elif fmt.scale_kind == "float":
        codes = _float_codes(fmt, (scales / coarse if fmt.second is not None else scales).astype(np.float64))
        stored["scales"] = codes.astype(np.uint8)
        divisor = _float_scales(fmt, codes, coarse if fmt.second is not None else np.float32(1))
    elif fmt.scale_kind in ("f16", "bf16"):
        codes = _float_codes(fmt, scales.astype(np.float64))
        stored["scales"] = codes.astype(np.uint16).view(_scale_dtype(fmt))
        divisor = _float_scales(fmt, codes, np.float32(1))
    else:
        divisor = scales
        stored["scales"] = scales
    if fmt.sharing == "tensor":
        stored = {"coarse": np.asarray(scales.flat[0] if scales.size else 0, np.float32)}
    elif fmt.sharing == "block":
        stored["scales"] = stored["scales"][:: fmt.block_rows]
    divisors = np.broadcast_to(divisor.astype(np.float64)[..., None], x.shape)
    codes = np.where(divisors == 0, 0, _codes(fmt, np.divide(x, divisors, out=np.zeros(x.shape), where=divisors != 0)))
    return {"codes": _packed(fmt, sizes, codes), **stored}


def stored_codes(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Array:
    """Return the codes: integers with their sign, others as they are stored."""
    signed = fmt.element.kind == "integer" and fmt.element.signed
    codes = unpack(components["codes"], fmt.bits, sizes.groups * sizes.group, signed=signed)
    return codes.reshape(sizes.rows, sizes.groups, sizes.group)


def terms(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Terms:
    """Return the factors of the values."""
    levels = _levels(fmt)[unsigned_codes(fmt, sizes, components)]
    if fmt.sharing == "none":
        return Terms(levels, None, None)
    if fmt.sharing == "tensor":
        return Terms(_integers(fmt, levels), None, np.broadcast_to(components["coarse"], (sizes.rows,)))
    stored = components["scales"]
    if fmt.scale_kind == "integer":
        integers = unpack(stored, fmt.scale_bits, sizes.groups, signed=False)
        return Terms(_integers(fmt, levels), integers, np.broadcast_to(components["coarse"], (sizes.rows,)))
    if fmt.scale_kind == "e8m0":
        power = np.ldexp(np.float32(1), np.minimum(stored, 0xFE).astype(np.int32) - 127)
        scales = np.where(stored == 0xFF, np.float32(np.nan), power)
    elif fmt.scale_kind == "f32":
        scales = stored
    else:
        codes = stored.view(np.uint16) if fmt.scale_kind != "float" else stored
        coarse: Any = np.float32(1)
        if fmt.second is not None:
            coarse = np.broadcast_to(components["coarse"], (len(stored),))[:, None]
        scales = _float_scales(fmt, codes.astype(np.int64), coarse)
    if fmt.sharing == "block":
        scales = np.repeat(scales, fmt.block_rows, axis=0)[: sizes.rows]
    levels = _integers(fmt, levels)
    return Terms(levels, None, scales[:, 0]) if fmt.sharing == "row" else Terms(levels, scales, None)


def fraction_steps(fmt: Any) -> int:
    """Return a factor that makes every level an integer of 8 bits; 1 if there is none."""
    if fmt.sharing == "none":
        return 1
    if fmt.element.kind == "integer":
        return int(2**fmt.element.fraction_bits)
    return int(1 << max(fmt.whole_places, 0))


def is_whole(fmt: Any) -> bool:
    """Tell whether every level is an integer of 8 bits although there is a -0, which `terms` keeps."""
    return bool(fmt.whole_places == 0 and fmt.sharing != "none" and not no_minus_zero(fmt))


def no_minus_zero(fmt: Any) -> bool:
    """Tell whether values that are -0 decode to +0."""
    return fmt.element.bits <= 8 and fmt.element.table(fmt.saturate).minus_zero is None


def _integers(fmt: Any, levels: Array) -> Array:
    """Return levels as int64 where they are integers, as products need them."""
    integers = fmt.element.kind == "integer" and fmt.element.fraction_bits == 0
    return levels.astype(np.int64) if integers or (fmt.whole_places == 0 and no_minus_zero(fmt)) else levels


def _takes_clip(fmt: Any) -> bool:
    tensor_float = fmt.second == "tensor" and fmt.scale_kind != "integer"
    return not (
        fmt.sharing in ("none", "block") or fmt.scale_kind == "e8m0" or fmt.used_rule == "absmean" or tensor_float
    )


def _limits(fmt: Any, sizes: Geometry, x: Array, clip: Any) -> Array:
    """Return the limit of each group of each row; float64 of E8M0, float32 otherwise."""
    rows = {"block": fmt.block_rows, "tensor": sizes.rows}.get(fmt.sharing, 1)
    magnitudes = np.abs(x) if fmt.element.signed else np.maximum(x, 0.0)
    if fmt.used_rule == "absmean":
        return _means(sizes, np.abs(x), max(rows, 1))
    if fmt.scale_kind == "e8m0":
        with np.errstate(invalid="ignore"):
            limit = np.where(np.isfinite(x).all(axis=-1), magnitudes.max(axis=-1, initial=0.0), np.nan)
    elif fmt.sharing == "tensor":
        whole = magnitudes.reshape(1, 1, -1)
        limit = np.broadcast_to(thresholds(whole, np.ones(whole.shape[1:], bool), clip, fmt.bits), x.shape[:2])
    else:
        limit = thresholds(magnitudes, real(sizes), clip, fmt.bits)
    if fmt.sharing != "block":
        return np.asarray(limit)
    joined = [
        limit[i : i + rows].max(axis=0, keepdims=True).repeat(len(limit[i : i + rows]), 0)
        for i in range(0, len(limit), rows)
    ]
    return np.concatenate(joined) if joined else limit


def _means(sizes: Geometry, magnitudes: Array, rows: int) -> Array:
    """Return float32 means of |x| over groups of so many rows, for each row."""
    sums = np.zeros(magnitudes.shape[:2])
    for j in range(magnitudes.shape[2]):
        sums = sums + magnitudes[..., j]
    counts = real(sizes).sum(axis=-1)
    found = np.zeros(sums.shape, np.float32)
    for i in range(0, len(sums), rows):
        part, total = sums[i : i + rows], np.zeros(counts.shape)
        for one in part:
            total = total + one
        count = np.maximum(counts * len(part), 1)
        found[i : i + rows] = (total / count).astype(np.float32)
    return found


def _with_powers(fmt: Any, sizes: Geometry, x: Array, limit: Array) -> dict[str, Array]:
    finite = ~np.isnan(limit)
    absmax = np.where(finite, limit, 0.0)
    exponent = np.where(absmax == 0, -127, np.clip(_exponent(fmt, absmax), -127, 127)).astype(np.int32)
    usable = np.where(finite[..., None], x, 0.0)
    codes = np.where(finite[..., None], _codes(fmt, np.ldexp(usable, -exponent[..., None])), 0)
    stored = np.where(finite, exponent + 127, 0xFF).astype(np.uint8)
    if fmt.sharing == "block":
        stored = stored[:: fmt.block_rows]
    return {"codes": _packed(fmt, sizes, codes), "scales": stored}


def _exponent(fmt: Any, absmax: Array) -> Array:
    """Return e of each group before it is clamped; groups with absmax 0 are ignored."""
    largest, emax = np.frexp(fmt.used_target)
    significand, exponent = np.frexp(absmax)
    if fmt.used_rule == "ceil":
        exponent = exponent + (significand > 0.5)
    elif fmt.used_rule == "rceil":
        exponent = exponent + (significand > largest)
    elif fmt.used_rule == "even":
        places = 2.0 ** (fmt.fraction_places + 1)
        exponent = exponent + (np.floor(significand * places + 0.5) == places)
    return np.asarray(exponent - emax)


def _quotient(limit: Array, target: float) -> Array:
    """Return limit / target in float32, saturated."""
    with np.errstate(over="ignore"):
        return np.minimum(limit / np.float32(target), np.finfo(np.float32).max)


def _second(fmt: Any, most: Array) -> Array:
    if fmt.scale_kind == "integer":
        return np.asarray(_quotient(most, fmt.used_target) / np.float32(2**fmt.scale_bits - 1))
    p = _quotient(most, fmt.used_target * fmt.scale_type.largest)
    return np.where(p == 0, np.float32(1), p).astype(np.float32)


def _scale_dtype(fmt: Any) -> Any:
    return {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}.get(fmt.scale_kind, np.uint8)


def _float_type(fmt: Any) -> minifloat.FloatType:
    kind = fmt.scale_type
    return minifloat.FloatType(
        kind.exponent + kind.mantissa + 1, kind.mantissa, kind.used_bias, kind.largest_code, kind.infinity, kind.nan
    )


def _float_codes(fmt: Any, scales: Array) -> Array:
    return minifloat.encode(_float_type(fmt), scales)


def _float_scales(fmt: Any, codes: Array, p: Any) -> Array:
    exact = minifloat.decode(_float_type(fmt), codes) * np.asarray(p, np.float64)
    return decoded(exact)


def _nan(fmt: Any) -> int | None:
    found: int | None = fmt.element.table(fmt.saturate).nan
    return found


def _levels(fmt: Any) -> Array:
    levels: Array = fmt.element.table(fmt.saturate).levels
    return levels


def largest_magnitude(fmt: Any) -> float:
    """Return the largest magnitude of an element.

    Parameters
    ----------
    fmt : Own

    Returns
    -------
    float
    """
    levels = np.abs(_levels(fmt))
    return float(levels[np.isfinite(levels)].max())


def _codes(fmt: Any, values: Array) -> Array:
    """Return the codes of quotients."""
    table = fmt.element.table(fmt.saturate)
    codes = table.ranked[np.searchsorted(table.bounds, values, side="left")]
    if table.minus_zero is not None:
        codes = np.where((values == 0) & np.signbit(values), table.minus_zero, codes)
    if table.nan is None:
        return np.asarray(codes)
    of_sign = 0 if table.minus_zero is None else np.signbit(values) * table.minus_zero
    return np.asarray(np.where(np.isnan(values) | (values < table.lowest), table.nan | of_sign, codes))


def _packed(fmt: Any, sizes: Geometry, codes: Array) -> Array:
    return pack(codes.reshape(sizes.rows, sizes.groups * sizes.group), fmt.bits)
