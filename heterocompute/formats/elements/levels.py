"""Any ascending numbers as an element, and those of the literature."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from ...base.errors import WrongType, WrongValue, shown
from . import quantiles
from .element import LARGEST, LEAST, Element, Table
from .tapered import Posit, Takum

MAX_LEVELS = 256
Numbers = tuple[float, ...]
TEXTS: dict[Any, tuple[Numbers, Numbers | None]] = {  # levels and thresholds of elements that have a text
    "ternary": ((-1.0, 0.0, 1.0), None),
    "binary": ((-1.0, 1.0), (-LEAST,)),
}
_known: dict[str, Levels] = {}  # levels of this process that no text says, by their text


@dataclass(frozen=True)
class Levels(Element):
    """Any ascending numbers.

    Parameters
    ----------
    values : sequence of float
        2 to 256 ascending numbers, each rounded to float32 and saturated. The code of a number is its place.
    thresholds : sequence of float, optional
        One number between each two levels. A value above it gets the higher level, a value on it the lower. Default:
        the middle of both levels.

    Attributes
    ----------
    bits : int
        Bits of a code.

    Raises
    ------
    ValueError
        A number is NaN or infinite, the numbers do not ascend, or the thresholds are not between them.
    TypeError
        The values are not numbers.

    Examples
    --------
    >>> from heterocompute.formats import Levels
    >>> Levels([-1, 0, 0.5, 1]).bits, Levels.ternary().values
    (2, (-1.0, 0.0, 1.0))
    """

    values: tuple[float, ...]
    thresholds: tuple[float, ...] | None = None
    text: str | None = field(default=None, compare=False, repr=False)  # of levels that a text makes

    bits: int = field(init=False, repr=False, compare=False)
    kind: ClassVar[str] = "table"
    signed: bool = field(default=True, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = _numbers(self.values, "values")
        if not 2 <= len(given) <= MAX_LEVELS:
            raise WrongValue(f"Levels: values has {_count(given)} numbers, expected 2 to {MAX_LEVELS}")
        values = tuple(float(np.float32(min(max(one, -LARGEST), LARGEST))) + 0.0 for one in given)
        _check_ascending(values, "values", "as float32 ")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "bits", max((len(values) - 1).bit_length(), 1))
        if self.thresholds is not None:
            self._check_thresholds(values)
        if self.text is None:
            _known[str(self)] = self
        elif TEXTS.get(self.text) != (values, self.thresholds):
            raise WrongValue(f"Levels: text is {shown(self.text)}, expected None: 'ternary' and 'binary' have one")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.values, self.thresholds, self.text)  # checked, and known to the process that reads it

    def _check_thresholds(self, values: tuple[float, ...]) -> None:
        between = _numbers(self.thresholds, "thresholds")
        if len(between) != len(values) - 1:
            raise WrongValue(
                f"Levels: thresholds has {_count(between)} numbers, expected {len(values) - 1}, one between each two "
                "levels"
            )
        for i, one in enumerate(between):
            if not values[i] <= one <= values[i + 1]:
                raise WrongValue(
                    f"Levels: thresholds[{i}] is {shown(one)}, expected {shown(values[i])} to "
                    f"{shown(values[i + 1])}, its two levels"
                )
        object.__setattr__(self, "thresholds", between)

    @property
    def largest(self) -> float:
        return self.values[-1] if self.values[-1] > 0 else max(map(abs, self.values))

    def __str__(self) -> str:
        if self.text is not None:
            return self.text
        digest = zlib.crc32(struct.pack(f"<{len(self.values)}d", *self.values))
        digest = zlib.crc32(struct.pack(f"<{len(self.thresholds or ())}d", *(self.thresholds or ())), digest)
        return f"levels{len(self.values)}_{digest:08x}"

    def table(self, saturate: bool = True) -> Table:
        values = np.array(self.values)
        levels = np.append(values, np.full((1 << self.bits) - len(values), values[-1]))
        bounds = (values[:-1] + values[1:]) / 2 if self.thresholds is None else np.array(self.thresholds)
        return Table(levels, np.arange(len(values)), bounds)

    @staticmethod
    def ternary() -> Levels:
        """Return -1, 0 and 1, the element ``ternary``.

        Returns
        -------
        Levels
        """
        return Levels(*TEXTS["ternary"], text="ternary")

    @staticmethod
    def binary() -> Levels:
        """Return -1 and 1, the element ``binary``: either zero becomes 1.

        Returns
        -------
        Levels
        """
        return Levels(*TEXTS["binary"], text="binary")

    @staticmethod
    def posit(bits: int, es: int) -> Element:
        """Return the posits of `bits` bits with `es` bits of exponent.

        Parameters
        ----------
        bits : int
            2 to 8.
        es : int
            0 to 3.

        Returns
        -------
        Element
        """
        return Posit(bits, es)

    @staticmethod
    def takum(bits: int) -> Element:
        """Return the linear takums of `bits` bits.

        Parameters
        ----------
        bits : int
            2 to 8.

        Returns
        -------
        Element
        """
        return Takum(bits)

    @staticmethod
    def normal_float(bits: int) -> Levels:
        """Return quantiles of a normal distribution; with 4 bits those of `NF4`.

        Parameters
        ----------
        bits : int
            2 to 8.

        Returns
        -------
        Levels
        """
        return Levels(quantiles.normal_float(bits))

    @staticmethod
    def student_float(bits: int, nu: float = 5.0) -> Levels:
        """Return quantiles of Student's t-distribution.

        Parameters
        ----------
        bits : int
            2 to 8.
        nu : float
            Degrees of freedom, 0.5 to 1,000.

        Returns
        -------
        Levels
        """
        return Levels(quantiles.student_float(bits, nu))

    @staticmethod
    def apot(bits: int, term_bits: int = 2) -> Levels:
        """Return sums of powers of two.

        Parameters
        ----------
        bits : int
            3 to 8, with the sign.
        term_bits : int
            Bits of each term.

        Returns
        -------
        Levels
        """
        return Levels(quantiles.apot(bits, term_bits))


def _count(found: Numbers) -> str:
    return str(len(found)) if len(found) <= MAX_LEVELS else f"more than {MAX_LEVELS}"


def _numbers(given: Any, name: str) -> tuple[float, ...]:
    try:
        if isinstance(given, (str, bytes, Mapping, Set)):  # their items are no sequence of numbers
            raise TypeError
        found = tuple(float(one) for one in islice(given, MAX_LEVELS + 1))
    except (TypeError, ValueError):
        raise WrongType(f"Levels: {name} is {shown(given)}, expected a sequence of numbers") from None
    except OverflowError:
        raise WrongValue(f"Levels: {name} is {shown(given)}, expected finite numbers of float64") from None
    for i, one in enumerate(found):
        if not math.isfinite(one):
            raise WrongValue(f"Levels: {name}[{i}] is {shown(one)}, expected a finite number")
    return found


def _check_ascending(values: Sequence[float], name: str, how: str) -> None:
    for i, (low, high) in enumerate(zip(values, values[1:], strict=False)):
        if not low < high:
            raise WrongValue(
                f"Levels: {name}[{i + 1}] is {shown(high)} and {name}[{i}] is {shown(low)}, "
                f"expected numbers that {how}ascend"
            )


def levels_named(text: str) -> Levels | None:
    """Return levels of this process by the text that they were given, or None."""
    return _known.get(text)
