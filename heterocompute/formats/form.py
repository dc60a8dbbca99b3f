"""The form of a format in the C core: kinds of codes, scales and the second level, used by searches and models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _heterocompute as _core


@dataclass(frozen=True)
class StoredForm:
    """The meaning of a format's components: value = s * c, with c from the kind of codes and s = scale * coarse.

    Attributes
    ----------
    bits : int
        Bits of a code.
    codes : {"integer", "float", "table", "log", "learned", "unstated"}
        Integers; floats; entries of a table that all arrays share; signed powers of ``2 ** (-1 / steps)``; entries of a
        codebook. Unstated: the format does not say, and functions that need it refuse the format.
    signed, zero_points, minima : bool
        For integers: two's complement; c = code - zero point; value = s * c + minimum of the group.
    fraction_bits : int
        For integers: c is the code / 2^fraction_bits.
    lowest, largest : int
        For integers: the range of codes that encoding makes.
    precision, smallest : int
        For floats: bits of the significand, with the leading 1; the exponent of the smallest normal float.
    maximum : float
        For floats: the largest finite value.
    steps : int
        For logs: steps per octave.
    code_values : int
        For codebooks: consecutive values that one code covers.
    levels : tuple of float
        For floats, tables and logs of up to 8 bits: c by code. Otherwise empty.
    scale : {"none", "f32", "f16", "integer", "e8m0", "e4m3", "double", "own"}
        Type of the scale of a group, or of a row. Double: integers that share a float32 over all rows. Own: of blocks.
    scale_bits : int
        Bits of integer scales, and of the integers in blocks.
    second : {"none", "row", "scale"}
        The coarse scale: it multiplies the sum of a row, or each scale with one rounding to float32.
    shared : bool
        Whether the coarse scale, or the codebook, is one for the whole array.
    any_axis : bool
        Whether no row or group has a scale, so that values can be used in rows along any axis.
    """

    bits: int
    codes: str
    signed: bool
    zero_points: bool
    minima: bool
    fraction_bits: int
    lowest: int
    largest: int
    precision: int
    smallest: int
    maximum: float
    steps: int
    code_values: int
    levels: tuple[float, ...]
    scale: str
    scale_bits: int
    second: str
    shared: bool
    any_axis: bool

    @property
    def has_scales(self) -> bool:
        """True if the format has scales."""
        return self.scale != "none" or self.second != "none"

    @property
    def one(self) -> int | None:
        """The unsigned code of the value 1, or its distance from the zero point; None if no code is 1."""
        if 1.0 in self.levels:
            return self.levels.index(1.0)
        if self.codes == "integer":
            return 1 << self.fraction_bits
        if self.codes == "float" and not self.levels:
            bias = 1 - self.smallest
            return bias << (self.bits - 2 - bias.bit_length())  # one exponent bit more than the bias
        return None

    @property
    def limits(self) -> tuple[float, float] | None:
        """The smallest positive c (0: none) and the largest; None if arrays learn theirs, or the format is silent."""
        if self.codes == "integer":
            return 2.0**-self.fraction_bits, self.largest * 2.0**-self.fraction_bits
        if self.levels:
            return min((one for one in self.levels if one > 0), default=0.0), max(filter(math.isfinite, self.levels))
        return (2.0 ** (self.smallest - self.precision + 1), self.maximum) if self.codes == "float" else None

    def values(self) -> NDArray[np.float64] | None:
        """Return all c in ascending order, for codes of up to 16 bits; None for others."""
        if self.limits is None or self.bits > 16:
            return None
        if self.codes == "integer":
            return np.ldexp(np.arange(self.lowest, self.largest + 1, dtype=np.float64), -self.fraction_bits)
        if self.levels:
            return np.array(sorted({one + 0.0 for one in self.levels if math.isfinite(one)}))  # zero is positive
        smallest, largest = self.limits
        steps = 1 << (self.precision - 1)
        below = np.arange(steps) * smallest  # subnormal
        octaves = range(self.smallest, math.frexp(largest)[1])
        above = [np.arange(steps, 2 * steps) * 2.0 ** (one - self.precision + 1) for one in octaves]
        positive = np.concatenate([below, *above])
        positive = positive[positive <= largest]
        return np.concatenate([-positive[:0:-1], positive])

    @property
    def is_unsigned(self) -> bool:
        """True if no value is negative."""
        return self.codes == "integer" and not (self.signed or self.zero_points or self.minima)


@lru_cache(maxsize=512)
def form_of(params: tuple[Any, ...]) -> StoredForm:
    """Return the form of a format without a pattern from the C core's parameters: the family, then `core_params`."""
    return StoredForm(**_core.stored_form(params))
