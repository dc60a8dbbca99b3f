"""Uniform integers and log numbers as elements."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import ClassVar

import numpy as np

from ...base.errors import WrongValue
from ..base import Parameters
from .element import LEAST, Element, Table, negated


@dataclass(frozen=True)
class Integer(Element, Parameters):
    """Uniform integers.

    Parameters
    ----------
    bits : int
        2 to 16.
    signed : bool
        False: codes 0 to ``2 ** bits - 1``, and values below 0 become 0.
    full : bool
        Use the code ``-2 ** (bits - 1)``, too. Scales map to the largest positive code all the same.
    fraction_bits : int
        A code stands for ``code * 2 ** -fraction_bits``, 0 to 32.

    Raises
    ------
    ValueError
        A number is out of range, or `full` is given without a sign.
    TypeError
        A parameter has the wrong type.

    Examples
    --------
    >>> from heterocompute.formats import Integer
    >>> str(Integer(4, fraction_bits=2)), Integer(4, fraction_bits=2).largest
    ('int4f2', 1.75)
    """

    bits: int
    signed: bool = True
    full: bool = False
    fraction_bits: int = 0

    kind: ClassVar[str] = "integer"

    def __post_init__(self) -> None:
        self._set_integer("bits", range(2, 17))
        self._check_flag("signed")
        self._check_flag("full")
        self._set_integer("fraction_bits", range(33))
        if self.full and not self.signed:
            raise WrongValue("Integer: full is True without a sign, where all codes are used; expected full=False")

    @property
    def lowest_code(self) -> int:
        """Return the smallest integer that rounding gives."""
        return (0 if self.full else 1) - (1 << (self.bits - 1)) if self.signed else 0

    @property
    def largest_code(self) -> int:
        """Return the largest integer."""
        return (1 << (self.bits - self.signed)) - 1

    @property
    def largest(self) -> float:
        return math.ldexp(self.largest_code, -self.fraction_bits)

    def __str__(self) -> str:
        fraction = f"f{self.fraction_bits}" if self.fraction_bits else ""
        return f"{'' if self.signed else 'u'}int{self.bits}{fraction}{'full' if self.full else ''}"

    def table(self, saturate: bool = True) -> Table:
        return _integer_table(self)


@lru_cache(maxsize=64)
def _integer_table(kind: Integer) -> Table:
    codes, half = np.arange(1 << kind.bits), 1 << (kind.bits - 1)
    integers = (codes ^ half) - half if kind.signed else codes
    ranked = np.arange(kind.lowest_code, kind.largest_code + 1)
    ties = ranked[:-1] + 0.5
    bounds = np.where(ranked[:-1] % 2 == 0, ties, np.nextafter(ties, -np.inf))  # a tie goes to the even integer
    place = 2.0**-kind.fraction_bits
    return Table(integers * place, ranked & ((1 << kind.bits) - 1), bounds * place)


@dataclass(frozen=True)
class Logs(Element, Parameters):
    """Log numbers: a sign and a power of ``2 ** (-1 / gamma)``, with one code for zero.

    Parameters
    ----------
    bits : int
        2 to 8.
    gamma : int
        Steps per octave, 1 to 1,024. The base of the logarithm is ``2 ** (1 / gamma)``.

    Raises
    ------
    ValueError
        A number is out of range.
    TypeError
        A parameter has the wrong type.

    Examples
    --------
    >>> from heterocompute.formats.elements.integers import Logs
    >>> str(Logs(5, 3)), float(Logs(5, 3).table().levels[3])
    ('log5-3', 0.5)
    """

    bits: int
    gamma: int

    kind: ClassVar[str] = "log"
    signed: bool = field(default=True, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set_integer("bits", range(2, 9))
        self._set_integer("gamma", range(1, 1025))

    @property
    def largest(self) -> float:
        return 1.0

    def __str__(self) -> str:
        return f"log{self.bits}-{self.gamma}"

    def table(self, saturate: bool = True) -> Table:
        return _log_table(self)


@lru_cache(maxsize=64)
def _log_table(kind: Logs) -> Table:
    sign = 1 << (kind.bits - 1)
    zero = sign - 1
    magnitudes = [power_of_two(-e, kind.gamma) for e in range(zero)]
    levels = np.array([*magnitudes, 0.0])
    between = [power_of_two(-2 * e - 1, 2 * kind.gamma) for e in reversed(range(zero - 1))]
    least = [magnitudes[-1] / 2, *between]  # of the magnitudes by ascending value: a tie goes to the larger
    codes = [zero, *reversed(range(zero))]
    ranked = [code | sign for code in reversed(codes)] + codes
    bounds = [*negated(least), -LEAST, *(math.nextafter(one, -math.inf) for one in least)]
    return Table(np.concatenate([levels, -levels]), np.array(ranked), np.array(bounds), None, zero | sign)


def power_of_two(numerator: int, denominator: int) -> float:
    """Return the float64 nearest to 2^(numerator / denominator).

    Examples
    --------
    >>> from heterocompute.formats.elements.integers import power_of_two
    >>> power_of_two(-1, 2).hex()
    '0x1.6a09e667f3bcdp-1'
    """
    whole, rest = divmod(numerator, denominator)
    with localcontext() as context:
        context.prec = 60
        return math.ldexp(float(Decimal(2) ** (Decimal(rest) / denominator)), whole)
