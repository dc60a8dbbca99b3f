"""Posits and takums: elements whose numbers near 1 have more bits of fraction than those far from it.

Both round in the space of their codes: between the codes U and U + 1 lies the number of the code U1, one bit longer.
A value beyond it gets U + 1, and a value on it the even one of both. No value but 0 becomes 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import numpy as np

from ..base import Parameters
from .element import LARGEST, LEAST, Element, Table


@dataclass(frozen=True)
class Posit(Element, Parameters):
    """Posits: a sign, a run of equal bits that counts powers of ``2 ** 2 ** es``, an exponent and a fraction.

    Parameters
    ----------
    bits : int
        2 to 8.
    es : int
        Bits of the exponent, 0 to 3.

    Raises
    ------
    ValueError
        A number is out of range.
    TypeError
        A parameter has the wrong type.

    Notes
    -----
    Posit Working Group, "Standard for Posit Arithmetic", 2022, sections 3 and 4, where es is 2. A scale maps the
    largest magnitude to 4, since most numbers are near 1.

    Examples
    --------
    >>> from heterocompute.formats.elements.tapered import Posit
    >>> float(Posit(8, 1).table().levels[0b01000000]), Posit(8, 1).largest
    (1.0, 4096.0)
    """

    bits: int
    es: int

    kind: ClassVar[str] = "table"
    signed: bool = field(default=True, init=False, repr=False, compare=False)
    scaled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._set_integer("bits", range(2, 9))
        self._set_integer("es", range(4))

    @property
    def largest(self) -> float:
        return posit(self.bits, self.es, (1 << (self.bits - 1)) - 1)

    @property
    def target(self) -> float:
        return min(4.0, self.largest)

    def __str__(self) -> str:
        return f"posit{self.bits}.{self.es}"

    def table(self, saturate: bool = True) -> Table:
        return _posit_table(self)


@dataclass(frozen=True)
class Takum(Element, Parameters):
    """Linear takums: a sign, a direction, 3 bits that count the bits of the exponent, the exponent and a fraction.

    Parameters
    ----------
    bits : int
        2 to 8. A takum of fewer than 12 bits stands for the one with zeros appended.

    Raises
    ------
    ValueError
        The number is out of range.
    TypeError
        The parameter has the wrong type.

    Notes
    -----
    Hunhold, "Beating Posits at Their Own Game: Takum Arithmetic" (arXiv 2404.18603), and "Design and Implementation
    of a Takum Arithmetic Hardware Codec in VHDL" (arXiv 2408.10594), section II, for the linear form. Levels beyond
    float32 are its largest number. A scale maps the largest magnitude to 1.

    Examples
    --------
    >>> from heterocompute.formats.elements.tapered import Takum
    >>> float(Takum(8).table().levels[0b01000000]), float(Takum(8).table().levels[0b01000100])
    (1.0, 1.5)
    """

    bits: int

    kind: ClassVar[str] = "table"
    signed: bool = field(default=True, init=False, repr=False, compare=False)
    scaled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._set_integer("bits", range(2, 9))

    @property
    def largest(self) -> float:
        return min(takum(self.bits, (1 << (self.bits - 1)) - 1), LARGEST)

    @property
    def target(self) -> float:
        return 1.0

    def __str__(self) -> str:
        return f"takum{self.bits}"

    def table(self, saturate: bool = True) -> Table:
        return _takum_table(self)


def posit(bits: int, es: int, code: int) -> float:
    """Return the number of a positive posit.

    Parameters
    ----------
    code : int
        1 to ``2 ** (bits - 1) - 1``.

    Examples
    --------
    >>> from heterocompute.formats.elements.tapered import posit
    >>> posit(8, 0, 0b01100000), posit(8, 2, 0b00000001)
    (2.0, 5.960464477539063e-08)
    """
    text = f"{code:0{bits - 1}b}"
    run = len(text) - len(text.lstrip(text[0]))
    rest = text[run + 1 :]
    exponent = int(rest[:es].ljust(es, "0") or "0", 2)
    fraction = rest[es:]
    regime = run - 1 if text[0] == "1" else -run
    return math.ldexp(1 + int(fraction or "0", 2) / (1 << len(fraction)), (regime << es) + exponent)


def takum(bits: int, code: int) -> float:
    """Return the number of a positive linear takum.

    Parameters
    ----------
    code : int
        1 to ``2 ** (bits - 1) - 1``.

    Examples
    --------
    >>> from heterocompute.formats.elements.tapered import takum
    >>> takum(12, 0b010000000000), takum(12, 0b010010010000)
    (1.0, 2.5)
    """
    text = f"{code:0{bits - 1}b}".ljust(11, "0")  # without the sign
    direction, count = text[0] == "1", int(text[1:4], 2)
    length = count if direction else 7 - count
    characteristic = int(text[4 : 4 + length] or "0", 2)
    characteristic += (1 << length) - 1 if direction else 1 - (2 << length)
    fraction = text[4 + length :]
    return math.ldexp(1 + int(fraction or "0", 2) / (1 << len(fraction)), characteristic)


@lru_cache(maxsize=64)
def _posit_table(kind: Posit) -> Table:
    return _tapered_table(
        kind.bits, lambda code: posit(kind.bits, kind.es, code), lambda code: posit(kind.bits + 1, kind.es, code)
    )


@lru_cache(maxsize=16)
def _takum_table(kind: Takum) -> Table:
    return _tapered_table(kind.bits, lambda code: takum(kind.bits, code), lambda code: takum(kind.bits + 1, code))


def _tapered_table(bits: int, number: Callable[[int], float], longer: Callable[[int], float]) -> Table:
    """Return the table of codes in two's complement; `longer` is `number` of codes with one bit more."""
    half = 1 << (bits - 1)
    positive = np.array([number(code) for code in range(1, half)])
    least = [LEAST]  # the smallest number that gets each positive code
    for code in range(1, half - 1):
        tie = longer(2 * code + 1)
        least.append(math.nextafter(tie, math.inf) if code % 2 == 0 else tie)
    with np.errstate(under="ignore"):
        positive = np.minimum(positive, LARGEST).astype(np.float32).astype(np.float64)
    levels = np.concatenate([[0.0], positive, [np.nan], -positive[::-1]])
    ranked = np.concatenate([np.arange(half + 1, 2 * half), np.arange(half)])
    bounds = [*(-one for one in reversed(least)), *(math.nextafter(one, -math.inf) for one in least)]
    return Table(levels, ranked, np.array(bounds), half)
