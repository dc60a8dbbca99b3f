"""Numbers that callers pass, and how errors show any value."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from .texts import printable

__all__ = ["as_int", "as_list", "as_real", "check_count", "check_number", "shown"]

# Nothing that is counted or measured is more, and a product of a few such numbers is still a float.
LARGEST, SMALLEST = 1e60, 1e-60
QUOTED = 80  # characters of a value in a message


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > 10_000:  # int's own repr refuses thousands of digits
            return f"an int of {x.bit_length()} bits"
        return super().repr_int(x, level)


_short = _Short()
_short.maxstring = _short.maxother = _short.maxlong = QUOTED
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = _short.maxfrozenset = QUOTED // 3


def shown(value: Any) -> str:
    """Return a value as a sentence can hold it: its repr in one line of at most 80 characters, of an array its shape.

    Examples
    --------
    >>> shown("int9"), len(shown("x" * 50_000))
    ("'int9'", 80)
    """
    if isinstance(value, np.ndarray) and value.ndim:
        text = f"an array of {value.dtype} {value.shape}"
    else:
        text = _short.repr(value)
    if not text.isprintable():
        text = printable(" ".join(text.split()))
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 3]}..."


def as_int(value: Any, name: str, low: int, high: int | None = None) -> int:
    """Return an int of a range.

    Raises
    ------
    TypeError
        No int, or a bool.
    ValueError
        Below `low` or above `high`.
    """
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {shown(value)}, wanted an int") from None
    if number < low or (high is not None and number > high):
        wanted = f"{low} or more" if high is None else f"{low} to {high}"
        raise ValueError(f"{name} is {shown(number)}, wanted {wanted}")
    return number


def as_real(value: Any, name: str, wanted: str) -> float:
    """Return any real number as a float; TypeError for anything else, a bool too."""
    try:
        if isinstance(value, (bool, np.bool_, str, bytes, np.complexfloating)) or np.ndim(value):
            raise TypeError
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {shown(value)}, wanted {wanted}") from None


def as_list(value: Any, name: str, wanted: str) -> list[Any]:
    """Return what can be iterated as a list; TypeError for anything else, a text too."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        raise TypeError(f"{name} is {shown(value)}, wanted {wanted}")
    return list(value)


def check_count(function: str, name: str, value: Any) -> int:
    """Return a positive integer below 2^63; ValueError names what came instead."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 1 <= value < 2**63:
        below = " below 2^63" if isinstance(value, int) and value >= 2**63 else ""
        raise ValueError(f"{function}: {name} is {shown(value)}, wanted a positive integer{below}")
    return int(value)


def check_number(
    function: str, name: str, value: Any, low: float = 0.0, high: float = math.inf, closed: bool = False
) -> float:
    """Return a real number above `low` (from `low` on, if `closed`) up to `high`; ValueError names what came.

    Zero, or between `SMALLEST` and `LARGEST`.
    """
    sized = True
    if not isinstance(value, (bool, np.bool_)) and isinstance(value, (int, float, np.integer, np.floating)):
        if isinstance(value, np.floating):  # float32 would take the limits as float32, with a warning
            value = float(value)
        sized = value == 0 or SMALLEST <= abs(value) <= LARGEST or value != value
        if (low <= value if closed else low < value) and value <= high and sized:
            return float(value)
    words = (f"from {low:g}" + (f" to {high:g}" if high < math.inf else " up")) if closed else (
        f"above {low:g}" + (f" up to {high:g}" if high < math.inf else ""))  # fmt: skip
    words += "" if sized else f" of {SMALLEST:g} to {LARGEST:g}"
    raise ValueError(f"{function}: {name} is {shown(value)}, wanted a number {words}")
