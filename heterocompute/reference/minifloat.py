"""Small floats: sign, exponent and fraction, rounded once from float64.

    exponent field e > 0:   value = (-1)^s (1 + f / 2^m) 2^(e - bias)
    exponent field 0:       value = (-1)^s (f / 2^m) 2^(1 - bias)

fp8: Micikevicius et al., "FP8 Formats for Deep Learning" (arXiv 2209.05433), table 1. fp6, fp4: OCP Microscaling
Formats (MX) v1.0, section 5.3. tf32 is a float32 whose 13 low bits are zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .arithmetic import Array


@dataclass(frozen=True)
class FloatType:
    """A type of floats.

    Attributes
    ----------
    bits : int
        Bits of a stored code.
    fraction_bits, bias : int
        m and bias of the equation.
    largest, infinity, nan : int
        Codes without sign and without `low_zeros`; None if the type has no such value.
    low_zeros : int
        Zero bits at the low end of a stored code.
    """

    bits: int
    fraction_bits: int
    bias: int
    largest: int
    infinity: int | None = None
    nan: int | None = None
    low_zeros: int = 0

    @property
    def maximum(self) -> float:
        """Return the largest finite value."""
        return float(decode(self, np.array(self.largest << self.low_zeros)))


TYPES = {
    "fp32": FloatType(32, 23, 127, 0x7F7FFFFF, 0x7F800000, 0x7FC00000),
    "tf32": FloatType(32, 10, 127, 0x3FBFF, 0x3FC00, 0x3FE00, low_zeros=13),
    "bf16": FloatType(16, 7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    "fp16": FloatType(16, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
    "fp8_e4m3fn": FloatType(8, 3, 7, 0x7E, None, 0x7F),
    "fp8_e5m2": FloatType(8, 2, 15, 0x7B, 0x7C, 0x7E),
    "fp6_e3m2": FloatType(6, 2, 3, 0x1F),
    "fp6_e2m3": FloatType(6, 3, 1, 0x1F),
    "fp4_e2m1": FloatType(4, 1, 1, 0x7),
}


def encode(kind: FloatType, x: Array, saturate: bool = True) -> Array:
    """Return the codes of values: nearest, ties to even.

    A value beyond the largest becomes the largest if `saturate`, else infinity, NaN, or the largest: the first of these
    that the type has. fp32 keeps infinity and the part of a NaN's payload that fits.

    Parameters
    ----------
    kind : FloatType
    x : ndarray of float64
        No NaN where the type has none.
    saturate : bool

    Returns
    -------
    ndarray of int64

    Examples
    --------
    >>> import numpy as np
    >>> from heterocompute.reference.minifloat import TYPES, encode
    >>> encode(TYPES["fp8_e4m3fn"], np.array([1.0, -448, 464, 465]), saturate=False)
    array([ 56, 254, 126, 127])
    """
    finite = np.where(np.isfinite(x), np.abs(x), 0.0)
    least = 1 - kind.bias
    exponent = np.where(finite == 0, least, np.maximum(np.frexp(finite)[1] - 1, least)).astype(np.int64)
    # In units of the last place; below the smallest normal number, that of the subnormals.
    units = np.rint(np.ldexp(finite, (kind.fraction_bits - exponent).astype(np.int32))).astype(np.int64)
    code = ((exponent - least) << kind.fraction_bits) + units
    beyond = next(code for code in (kind.infinity, kind.nan, kind.largest) if code is not None)
    code = np.where((code > kind.largest) | np.isinf(x), kind.largest if saturate else beyond, code)
    if kind is TYPES["fp32"]:
        with np.errstate(over="ignore", invalid="ignore"):
            payload = x.astype(np.float32).view(np.uint32).astype(np.int64) & 0x7FFFFFFF
        code = np.where(np.isfinite(x), code, payload)
    elif kind.nan is not None:
        code = np.where(np.isnan(x), kind.nan, code)
    return (code << kind.low_zeros) | (np.signbit(x).astype(np.int64) << (kind.bits - 1))


def decode(kind: FloatType, code: Array) -> Array:
    """Return the values of codes.

    Parameters
    ----------
    kind : FloatType
    code : ndarray of int64
        0 to 2^bits - 1.

    Returns
    -------
    ndarray of float64
        Exact. NaN has the code's sign.

    Examples
    --------
    >>> import numpy as np
    >>> from heterocompute.reference.minifloat import TYPES, decode
    >>> decode(TYPES["fp4_e2m1"], np.arange(8))
    array([0. , 0.5, 1. , 1.5, 2. , 3. , 4. , 6. ])
    """
    if kind is TYPES["fp32"]:
        with np.errstate(invalid="ignore"):
            return np.asarray(code.astype(np.uint32).view(np.float32).astype(np.float64))
    negative = (code >> (kind.bits - 1)) != 0
    magnitude = (code & ((1 << (kind.bits - 1)) - 1)) >> kind.low_zeros
    field, fraction = magnitude >> kind.fraction_bits, magnitude & ((1 << kind.fraction_bits) - 1)
    significand = np.where(field == 0, fraction, fraction + (1 << kind.fraction_bits)).astype(np.float64)
    value = np.ldexp(significand, (np.maximum(field, 1) - kind.bias - kind.fraction_bits).astype(np.int32))
    value = np.where(magnitude > kind.largest, np.where(magnitude == kind.infinity, np.inf, np.nan), value)
    return np.asarray(np.copysign(value, np.where(negative, -1.0, 1.0)))


def refuse_clip(fmt: Any, clip: Any) -> None:
    """Raise where `clip` is given: the format has no scale that it could change.

    Parameters
    ----------
    fmt : Format
    clip : see `clip.thresholds`

    Raises
    ------
    ValueError
    """
    if clip is not None:
        raise ValueError(f"clip: {clip!r:.80}, but {fmt} has no scale that it could change; expected None")
