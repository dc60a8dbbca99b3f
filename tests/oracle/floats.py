"""Small floats, microscaling and NVFP4: sections 4 and 5 of the definitions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from .encoded import Encoded
from .exact import SMALL, divide32, float32, quotient
from .integers import codes_as_bytes
from .rows import Refused, Rows, absmax32, check_finite, check_float32, first, threshold


def encode_float(fmt, x, axis, clip) -> Encoded:
    kind = SMALL[fmt.name]
    rows = Rows(x.shape, axis, None)
    if fmt.scaled is None:
        elements = unscaled(kind, fmt, rows.split(x), x)
        components = {"codes": codes_as_bytes(kind.code(elements), kind.bits)}
        return Encoded(rows, components, elements, code_bits=kind.bits, signed_zeros=True)
    check_finite(x)
    check_float32(x)
    values = rows.split(x)
    if fmt.scaled == "tensor":
        scales = np.full(rows.rows, divide32(threshold(values.reshape(-1), clip, kind.bits), kind.largest), np.float32)
        components = {"coarse": divide32(threshold(values.reshape(-1), clip, kind.bits), kind.largest)}
    else:
        scales = np.array([divide32(threshold(row.reshape(-1), clip, kind.bits), kind.largest) for row in values])
        scales = scales.astype(np.float32)
        components = {"scales": scales[:, None]}
    elements = np.zeros(values.shape)
    for row, s in enumerate(scales):
        if s > 0:
            elements[row] = kind.nearest(quotient(values[row], s), fmt.saturate)
    components["codes"] = codes_as_bytes(kind.code(elements), kind.bits)
    return Encoded(
        rows,
        components,
        elements,
        outer=scales.astype(np.float64),
        code_bits=kind.bits,
        signed_zeros=True,
        huge=kind.largest > 2.0**64,
    )


def unscaled(kind, fmt, values, x):
    """Encode without a scale. Infinity becomes the largest, infinity or NaN; NaN requires a type with NaN."""
    if fmt.name == "fp32":
        return np.where(np.isfinite(values), kind.nearest(values, fmt.saturate), values)
    if kind.nan is None and (np.isnan(x).any() or (not fmt.saturate and np.isinf(x).any())):
        raise Refused("the type has no NaN", first(~np.isfinite(x) if not fmt.saturate else np.isnan(x)))
    return kind.nearest(values, fmt.saturate)


MX_ELEMENTS = {
    "fp8_e4m3": ("fp8_e4m3fn", 8, 3, Fraction(448)),
    "fp8_e5m2": ("fp8_e5m2", 15, 2, Fraction(57344)),
    "fp6_e3m2": ("fp6_e3m2", 4, 2, Fraction(28)),
    "fp6_e2m3": ("fp6_e2m3", 2, 3, Fraction(15, 2)),
    "fp4": ("fp4_e2m1", 2, 1, Fraction(6)),
    "int8": (None, 0, 6, Fraction(127, 64)),
}


def floor_log2(value: Fraction) -> int:
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if Fraction(2) ** e <= value else e - 1


def shared_exponent(absmax: float, rule: str, emax: int, fraction_bits: int, largest: Fraction) -> int:
    exact = Fraction(absmax)
    floor = floor_log2(exact)
    if rule == "floor":
        e = floor - emax
    elif rule == "ceil":
        e = floor + (exact > Fraction(2) ** floor) - emax
    elif rule == "rceil":
        e = floor - emax - 2
        while exact > largest * Fraction(2) ** e:
            e += 1
    else:  # even: the fraction rounded half up, then floor
        steps = exact / Fraction(2) ** floor * 2**fraction_bits
        rounded = (2 * steps + 1) // 2
        e = floor_log2(rounded * Fraction(2) ** (floor - fraction_bits)) - emax
    return min(max(e, -127), 127)


def encode_mx(fmt, x, axis, _) -> Encoded:
    name, emax, fraction_bits, largest = MX_ELEMENTS[fmt.element.removeprefix("mx")]
    rows = Rows(x.shape, axis, 32)
    values = rows.split(x)
    elements = np.zeros(values.shape)
    scale = np.zeros(values.shape[:2])
    bytes_ = np.zeros(scale.shape, np.uint8)
    broken = np.zeros(scale.shape, bool)
    for place in np.ndindex(*scale.shape):
        group = values[place]
        broken[place] = not np.isfinite(group).all()
        if broken[place]:
            bytes_[place], scale[place] = 0xFF, np.nan
            continue
        absmax = np.abs(group).max(initial=0)
        if absmax >= 2.0**128:
            raise Refused("|x| >= 2^128")
        e = shared_exponent(float(absmax), fmt.scale_rule, emax, fraction_bits, largest) if absmax > 0 else -127
        bytes_[place], scale[place] = e + 127, 2.0**e
        if name is None:
            elements[place] = np.clip(np.rint(64 * (group / scale[place])), -127, 127) / 64 + 0.0
        else:
            elements[place] = SMALL[name].nearest(group / scale[place])
    if name is None:
        codes = (elements * 64).astype(np.int64)
        packed = codes_as_bytes(codes, 8)
    else:
        packed = codes_as_bytes(SMALL[name].code(elements), SMALL[name].bits)
    places = {None: 64, "fp4_e2m1": 2, "fp6_e2m3": 8}.get(name)
    return Encoded(rows, {"codes": packed, "scales": bytes_}, elements, scale, grouped=True, signed_zeros=True,
                   integers=places is not None, places=places or 1)  # fmt: skip


def encode_nvfp4(fmt, x, axis, _) -> Encoded:
    check_finite(x)
    check_float32(x)
    rows = Rows(x.shape, axis, 16)
    values = rows.split(x)
    p = divide32(absmax32(x), 1536 if fmt.four_over_six else 2688)
    bytes_ = np.zeros(values.shape[:2], np.uint8)
    elements = np.zeros(values.shape)
    scale = np.zeros(bytes_.shape)
    for place in np.ndindex(*bytes_.shape):
        if p == 0:
            continue
        candidates = [nvfp4_group(values[place], p, d) for d in ((6, 4) if fmt.four_over_six else (6,))]
        best = candidates[0]
        for other in candidates[1:]:
            if squared_error(values[place], other) < squared_error(values[place], best):
                best = other
        bytes_[place], scale[place], elements[place] = best
    coarse = np.asarray(p if p > 0 else 1, np.float32)
    components = {"codes": codes_as_bytes(SMALL["fp4_e2m1"].code(elements), 4), "scales": bytes_, "coarse": coarse}
    return Encoded(rows, components, elements, scale, grouped=True, signed_zeros=True, integers=True, places=2)


def nvfp4_group(group, p, divisor: int):
    """Return the byte of the scale, the scale, and the elements of one group of 16."""
    e4m3 = SMALL["fp8_e4m3fn"]
    decoded = e4m3.nearest(np.float64(divide32(divide32(absmax32(group), divisor), p)))
    s = np.float32(float32(decoded * np.float64(p)))
    zeros = np.zeros(group.shape)
    return int(e4m3.code(decoded)), np.float64(s), SMALL["fp4_e2m1"].nearest(quotient(group, s)) if s > 0 else zeros


def squared_error(group, candidate) -> float:
    _, s, elements = candidate
    total = 0.0
    for x, element in zip(group.tolist(), elements.tolist(), strict=True):
        error = x - float(float32(element * s))
        total += error * error
    return total
