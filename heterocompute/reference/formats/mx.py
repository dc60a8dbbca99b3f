"""Microscaling: OCP Microscaling Formats (MX) v1.0, sections 5 and 6. Groups of 32 values, a power of two each.

    scale byte = e + 127, X = 2^e            element = RNE(x / X), saturating            value = element * X
    floor    e = floor(log2 absmax) - emax                      emax: of the element's largest value
    ceil     e = ceil(log2 absmax) - emax
    rceil    the smallest e with absmax <= max * 2^e
    ggml     e = floor(float32(log2 absmax)) - emax; a tie goes to the smaller magnitude, and -0 is 0 (fp4 only)
    even     absmax's fraction rounded to the element's fraction bits, half up; then as floor

e is clamped to -127 .. 127; absmax has the input's own precision. int8 elements are integers / 64 without -128. A
group of zeros has byte 0x00; one with a NaN or an infinity 0xFF, codes 0, and is NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import minifloat
from ..arithmetic import Array
from ..layout import Geometry, Terms, pack, row_bytes, unpack

GGML_MIDPOINTS = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])  # a midpoint itself belongs to the level below it


def layout(fmt: Any, sizes: Geometry) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return dtype and shape of each component."""
    return {
        "codes": (np.uint8, (sizes.rows, row_bytes(sizes.groups * sizes.group, fmt.bits))),
        "scales": (np.uint8, (sizes.rows, sizes.groups)),
    }


def legal(fmt: Any, x: Array) -> Array:
    """Tell which values can be encoded: all but the finite ones from 2^128 on."""
    return np.asarray(~(np.abs(x) >= 2.0**128) | np.isinf(x))


def encode(fmt: Any, sizes: Geometry, x: Array, clip: Any) -> dict[str, Array]:
    """Quantize groups of values."""
    minifloat.refuse_clip(fmt, clip)
    finite = np.asarray(np.isfinite(x).all(axis=-1))
    x = np.where(finite[..., None], x, 0.0)
    absmax = np.abs(x).max(axis=-1, initial=0.0)
    exponent = np.where(absmax == 0, -127, np.clip(_exponent(fmt, absmax), -127, 127))
    quotient = np.ldexp(x, -exponent[..., None].astype(np.int32))
    if fmt.element == "int8":
        codes = np.clip(np.rint(64 * quotient), -127, 127).astype(np.int64)
    elif fmt.scale_rule == "ggml":
        ranks = (np.abs(quotient)[..., None] > GGML_MIDPOINTS).sum(axis=-1)
        codes = ranks + 8 * ((quotient < 0) & (ranks > 0))
    else:
        codes = minifloat.encode(_element_type(fmt), quotient)
    return {
        "codes": pack(codes.reshape(sizes.rows, sizes.groups * sizes.group), fmt.bits),
        "scales": np.where(finite, exponent + 127, 0xFF).astype(np.uint8),
    }


def stored_codes(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Array:
    """Unpack the codes; int8 elements are signed."""
    codes = unpack(components["codes"], fmt.bits, sizes.groups * sizes.group, signed=fmt.element == "int8")
    return codes.reshape(sizes.rows, sizes.groups, sizes.group)


def terms(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Terms:
    """Return the factors of the values: elements and powers of two."""
    codes = stored_codes(fmt, sizes, components)
    elements = codes / 64 if fmt.element == "int8" else minifloat.decode(_element_type(fmt), codes)
    stored = components["scales"]
    power = np.ldexp(np.float32(1), np.minimum(stored, 0xFE).astype(np.int32) - 127)
    return Terms(elements, np.where(stored == 0xFF, np.float32(np.nan), power), None)


def fraction_steps(fmt: Any) -> int:
    """Return a factor that makes every element an int8 integer; 1 if there is none."""
    return {"int8": 64, "fp4": 2, "fp6_e2m3": 8}.get(fmt.element, 1)


def _element_type(fmt: Any) -> minifloat.FloatType:
    names = {"fp8_e4m3": "fp8_e4m3fn", "fp4": "fp4_e2m1"}
    return minifloat.TYPES[names.get(fmt.element, fmt.element)]


def _exponent(fmt: Any, absmax: Array) -> Array:
    """Return e of each group before it is clamped; groups with absmax 0 are ignored."""
    maximum = 127 / 64 if fmt.element == "int8" else _element_type(fmt).maximum
    fraction_bits = 6 if fmt.element == "int8" else _element_type(fmt).fraction_bits
    largest, emax = np.frexp(maximum)
    # absmax = significand * 2^exponent with 1/2 <= significand < 1, subnormals too.
    significand, exponent = np.frexp(absmax)
    if fmt.scale_rule == "ceil":
        exponent = exponent + (significand > 0.5)
    elif fmt.scale_rule == "rceil":
        exponent = exponent + (significand > largest)
    elif fmt.scale_rule == "even":
        steps = 2.0 ** (fraction_bits + 1)
        exponent = exponent + (np.floor(significand * steps + 0.5) == steps)
    elif fmt.scale_rule == "ggml":
        with np.errstate(divide="ignore"):
            logarithm = np.log2(absmax).astype(np.float32)
        exponent = np.where(absmax > 0, np.floor(np.maximum(logarithm, -1100)), 0).astype(np.int64) + 1
    return np.asarray(exponent - emax)
