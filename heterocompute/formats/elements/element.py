"""The contract of elements: the numbers that codes stand for, and the bounds between which a value gets a code."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

Array = np.ndarray[Any, Any]
LARGEST = float(np.finfo(np.float32).max)
LEAST = 5e-324  # the smallest float64 above 0


@dataclass(frozen=True, eq=False)
class Table:
    """The codes of an element.

    Attributes
    ----------
    levels : ndarray of float64, (codes,)
        Value of each code; NaN and infinity may be among them.
    ranked : ndarray of int64, (ranks,)
        The codes that rounding gives, by ascending level.
    bounds : ndarray of float64, (ranks - 1,)
        The rank of a value is the number of bounds that it is greater than.
    nan, minus_zero : int or None
        The codes of NaN and of -0.
    lowest : float
        Values below it are NaN: of 8 bits with NaN in place of -0, there are as many ranks as codes without it.
    """

    levels: Array
    ranked: Array
    bounds: Array
    nan: int | None = None
    minus_zero: int | None = None
    lowest: float = -math.inf


class Element(ABC):
    """The numbers that the codes of a format stand for, before any scale.

    Attributes
    ----------
    bits : int
        Bits of a code.
    kind : {"integer", "float", "log", "table"}
    scaled : bool
        Whether there is a scale per row where none is asked for.
    signed : bool
        Whether there are numbers below 0.
    """

    bits: int
    kind: ClassVar[str]
    scaled: ClassVar[bool] = True
    signed: bool

    @abstractmethod
    def __str__(self) -> str: ...

    @property
    @abstractmethod
    def largest(self) -> float:
        """Return the largest finite number."""

    @property
    def target(self) -> float:
        """Return the number that a scale maps the largest magnitude to, unless the format says another."""
        return self.largest

    @abstractmethod
    def table(self, saturate: bool = True) -> Table:
        """Return levels and bounds.

        Parameters
        ----------
        saturate : bool
            Values beyond the largest number become the largest. False: infinity or NaN, the first that there is.

        Returns
        -------
        Table
        """


def least_above(low: float, high: float, code: int) -> float:
    """Return the smallest number that rounds to `high` instead of `low`, whose code is given; ties go to the even.

    Parameters
    ----------
    low, high : float
        Neighbours, of few bits each.
    """
    tie = (low + high) / 2  # exact
    return math.nextafter(tie, math.inf) if code % 2 == 0 else tie


def negated(least: Sequence[float]) -> list[float]:
    """Mirror the bounds of the codes above 0, for an element whose negative values mirror its positive ones."""
    return [-one for one in reversed(least)]
