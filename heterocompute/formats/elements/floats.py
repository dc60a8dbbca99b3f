"""Small floats as elements, with any exponent, fraction, bias and codes that are not numbers; and powers of two."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import numpy as np

from ...base.errors import WrongValue, shown
from ..base import Parameters
from .element import LEAST, Element, Table, least_above, negated

SPECIALS = ("ieee", "fn", "fnuz", "finite", "p3109", "p3109f")


@dataclass(frozen=True)
class Minifloat(Element, Parameters):
    """Small floats: a sign, an exponent and a fraction.

    Parameters
    ----------
    exponent : int
        Bits of the exponent, 1 to 8.
    mantissa : int
        Bits of the fraction, 0 to 10. A code has at most 16 bits.
    bias : int or None
        The exponent field e stands for ``2 ** (e - bias)``. None: ``2 ** (exponent - 1) - 1``, or
        ``2 ** (exponent - 1)`` with "fnuz", "p3109" and "p3109f".
    specials : None, {"ieee", "fn", "fnuz", "finite", "p3109", "p3109f"}
        The codes that are not numbers. None: "ieee" from 8 bits on, "finite" below.

        - "ieee": the largest exponent field has infinity, and NaN where the fraction is not 0.
        - "fn": NaN where all bits of exponent and fraction are 1.
        - "fnuz": NaN in place of -0.
        - "finite": none.
        - "p3109": NaN in place of -0 (without a sign: the last code), and infinity as the largest value, as in IEEE
          P3109.
        - "p3109f": the same without infinity.
    subnormals : bool
        False: codes with the exponent field 0 are 0.
    signed : bool
        False: codes have no sign, and values below 0 become 0.

    Raises
    ------
    ValueError
        The parameters do not go together. The message says why.
    TypeError
        A parameter has the wrong type.

    Notes
    -----
    Micikevicius et al., "FP8 Formats for Deep Learning" (arXiv 2209.05433), for "fn"; Noune et al., "8-bit Numerical
    Formats for Deep Neural Networks" (arXiv 2206.02915), for "fnuz"; the interim report of IEEE P3109.

    Examples
    --------
    >>> from heterocompute.formats import Minifloat
    >>> str(Minifloat(3, 4, specials="fnuz")), Minifloat(4, 3).largest
    ('e3m4fnuz', 240.0)
    """

    exponent: int
    mantissa: int
    bias: int | None = None
    specials: str | None = None
    subnormals: bool = True
    signed: bool = True

    bits: int = field(init=False, repr=False, compare=False)
    kind: ClassVar[str] = "float"
    scaled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._set_integer("exponent", range(1, 9))
        self._set_integer("mantissa", range(11))
        self._set_integer("bias", range(-126, 256), optional=True)
        self._check_word("specials", *SPECIALS, optional=True)
        self._check_flag("subnormals")
        self._check_flag("signed")
        bits = self.exponent + self.mantissa + self.signed
        if not 2 <= bits <= 16:
            said = f"exponent is {self.exponent} and mantissa is {self.mantissa}"
            raise WrongValue(f"Minifloat: {said}, a code of {bits} bits; expected 2 to 16 bits with the sign")
        object.__setattr__(self, "bits", bits)
        # one element has one text
        if self.specials == ("ieee" if bits >= 8 else "finite"):
            object.__setattr__(self, "specials", None)
        if self.bias == self._usual_bias:
            object.__setattr__(self, "bias", None)
        if self.mantissa == 0:
            object.__setattr__(self, "subnormals", True)
        self._check_specials()
        lowest, highest = 1 - self.used_bias - self.mantissa, (self.largest_code >> self.mantissa) - self.used_bias
        if highest > 127 or lowest < -149:
            raise WrongValue(
                f"Minifloat: bias is {self.used_bias}, which gives powers of two from {lowest} to {highest}, expected "
                "-149 to 127, those of float32"
            )

    def _check_specials(self) -> None:
        specials, bits = self.used_specials, self.bits
        said = f"Minifloat: specials is {shown(specials)}"
        if specials == "ieee" and (self.mantissa == 0 or self.exponent == 1):
            with_words = f"exponent {self.exponent} and mantissa {self.mantissa}"
            raise WrongValue(f"{said} with {with_words}, which leave no NaN or no number; expected 'finite'")
        if specials == "fn" and bits < 8:
            raise WrongValue(f"{said} with {bits} bits, expected 8 bits or more, or 'finite'")
        if specials == "fnuz" and not self.signed:
            raise WrongValue(f"{said} without a sign, expected 'ieee', 'fn', 'finite' or 'p3109'")
        if specials in ("fnuz", "p3109", "p3109f") and bits > 8:
            raise WrongValue(f"{said} with {bits} bits, expected at most 8 bits")
        if specials in ("p3109", "p3109f") and (self.bias is not None or not self.subnormals):
            raise WrongValue(f"{said} with a bias or without subnormals, which the standard fixes; expected neither")
        if not self.subnormals and bits > 8:
            raise WrongValue(f"Minifloat: subnormals is False with {bits} bits, expected at most 8 bits")
        if bits > 8 and self.used_bias < 0:
            raise WrongValue(f"Minifloat: bias is {self.bias} with {bits} bits, expected 0 or more from 9 bits on")
        if bits > 8 and self.has_last_exponent:
            raise WrongValue(
                f"Minifloat: specials is {shown(specials)} with {bits} bits and exponent 8, whose last exponent is "
                "that of infinity in float32; expected 'ieee'"
            )
        if self.largest_code < 1:
            raise WrongValue(f"{said} with {bits} bits, which leave no number above 0")

    @property
    def used_specials(self) -> str:
        """Return the kind of specials, also if none is given."""
        return self.specials or ("ieee" if self.bits >= 8 else "finite")

    @property
    def has_last_exponent(self) -> bool:
        """Return whether numbers have the exponent field 255, which is that of infinity and NaN in float32."""
        return self.largest_code >> self.mantissa == 255

    @property
    def is_plain(self) -> bool:
        """Return whether shifting codes of 6 and 8 bits into float32, and its own specials, decode them."""
        has_specials = self.bits != 8 or self.nan is not None
        is_usual = self.bias is None and self.signed and self.subnormals and self.mantissa > 0
        return is_usual and has_specials and self.used_specials in ("ieee", "fn", "finite")

    @property
    def _usual_bias(self) -> int:
        half = 1 << (self.exponent - 1)
        return half if self.specials in ("fnuz", "p3109", "p3109f") else half - 1

    @property
    def used_bias(self) -> int:
        """Return the bias, also if none is given."""
        return self._usual_bias if self.bias is None else self.bias

    @property
    def largest_code(self) -> int:
        """Return the code of the largest number."""
        top, specials = (1 << (self.exponent + self.mantissa)) - 1, self.used_specials
        if specials in ("p3109", "p3109f"):
            return top - (specials == "p3109") - (not self.signed)
        return top - {"ieee": 1 << self.mantissa, "fn": 1}.get(specials, 0)

    @property
    def infinity(self) -> int | None:
        """Return the code of infinity."""
        return self.largest_code + 1 if self.used_specials in ("ieee", "p3109") else None

    @property
    def nan(self) -> int | None:
        """Return the code of NaN."""
        specials = self.used_specials
        if specials == "finite":
            return None
        if specials == "ieee":
            return self.largest_code + 1 + (1 << (self.mantissa - 1))
        return (
            self.largest_code + 1
            if specials == "fn"
            else (1 << (self.bits - 1))
            if self.signed
            else (1 << self.bits) - 1
        )

    @property
    def has_minus_zero(self) -> bool:
        """Return whether there is a -0."""
        return self.signed and self.used_specials in ("ieee", "fn", "finite")

    def number(self, code: int) -> float:
        """Return the number of a code without its sign, by the equation alone.

        Parameters
        ----------
        code : int

        Returns
        -------
        float
        """
        exponent, fraction = code >> self.mantissa, code & ((1 << self.mantissa) - 1)
        if exponent == 0 and not self.subnormals:
            return 0.0
        significand = fraction + (1 << self.mantissa if exponent else 0)
        return math.ldexp(significand, max(exponent, 1) - self.used_bias - self.mantissa)

    @property
    def largest(self) -> float:
        return self.number(self.largest_code)

    def __str__(self) -> str:
        if self.specials in ("p3109", "p3109f"):  # the names of the interim report
            sign, domain = "s" if self.signed else "u", "f" if self.specials == "p3109f" else "e"
            return f"binary{self.bits}p{self.mantissa + 1}{sign}{domain}"
        bias = "" if self.bias is None else f"b{self.bias}"
        flat = "" if self.subnormals else "ns"
        return f"{'' if self.signed else 'u'}e{self.exponent}m{self.mantissa}{bias}{self.specials or ''}{flat}"

    def table(self, saturate: bool = True) -> Table:
        return _float_table(self, saturate)


@lru_cache(maxsize=64)
def _float_table(kind: Minifloat, saturate: bool) -> Table:
    largest, sign = kind.largest_code, 1 << (kind.bits - 1)
    numbers = np.array([kind.number(code) for code in range(largest + 1)])
    levels = np.full(1 << kind.bits, np.nan)
    levels[: largest + 1] = numbers
    if kind.infinity is not None:
        levels[kind.infinity] = np.inf
    used = [code for code in range(largest + 1) if code == 0 or kind.number(code) > 0]
    least = [least_above(kind.number(low), kind.number(high), low) for low, high in zip(used, used[1:], strict=False)]
    beyond = None if saturate else kind.nan if kind.infinity is None else kind.infinity
    if beyond is not None:
        least.append(least_above(kind.largest, kind.number(largest + 1), largest))
        used.append(beyond)
    bounds = [math.nextafter(one, -math.inf) for one in least]
    if not kind.signed:
        return Table(levels, np.array(used), np.array(bounds), kind.nan)
    levels[sign:] = np.copysign(levels[:sign], -1.0)
    below = [code | sign for code in reversed(used)]
    if kind.has_minus_zero:
        return Table(levels, np.array(below + used), np.array([*negated(least), -LEAST, *bounds]), kind.nan, sign)
    levels[sign] = np.nan  # the only one
    ranked, bounds, lowest = below[:-1] + used, [*negated(least), *bounds], -math.inf
    if beyond is not None and beyond == kind.nan:
        ranked, lowest, bounds = ranked[1:], math.nextafter(bounds[0], math.inf), bounds[1:]
    return Table(levels, np.array(ranked), np.array(bounds), kind.nan, None, lowest)


@dataclass(frozen=True)
class PowersOfTwo(Element):
    """The codes of E8M0: code c stands for ``2 ** (c - 127)``, and 255 for NaN. Without a sign: values up to 0 get
    code 0. A scale maps the largest magnitude to 1.

    Examples
    --------
    >>> from heterocompute.formats.elements.floats import PowersOfTwo
    >>> str(PowersOfTwo()), float(PowersOfTwo().table().levels[128])
    ('e8m0', 2.0)
    """

    bits: int = field(default=8, init=False, repr=False, compare=False)
    kind: ClassVar[str] = "table"
    scaled: ClassVar[bool] = False
    signed: bool = field(default=False, init=False, repr=False, compare=False)

    @property
    def largest(self) -> float:
        return 2.0**127

    @property
    def target(self) -> float:
        return 1.0

    def __str__(self) -> str:
        return "e8m0"

    def table(self, saturate: bool = True) -> Table:
        levels = np.append(2.0 ** np.arange(-127, 128), np.nan)
        least = (levels[:-2] + levels[1:-1]) / 2  # a tie goes to the larger, as in ml_dtypes
        return Table(levels, np.arange(255), np.nextafter(least, -np.inf), 255)
