"""Numbers, flags and texts that callers pass."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Collection, Iterable
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from .errors import WrongType, WrongValue, shown

# Bounds of counts and measurements: a product of a few such numbers is still a float.
LARGEST, SMALLEST = 1e60, 1e-60


def as_int(value: Any, name: str, low: int, high: int | None = None) -> int:
    """Return an int of a range.

    Raises
    ------
    TypeError
        The value is not an int, or is a bool.
    ValueError
        The value is below `low` or above `high`.
    """
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise WrongType(f"{name} is {shown(value)}, expected an int") from None
    if number < low or (high is not None and number > high):
        wanted = f"{shown(low)} or more" if high is None else f"{shown(low)} to {shown(high)}"
        raise WrongValue(f"{name} is {shown(number)}, expected {wanted}")
    return number


Rng: TypeAlias = "int | np.integer[Any] | np.random.Generator | np.random.BitGenerator | np.random.SeedSequence | None"


def seed_from(function: str, seed: Any, rng: Rng, default: int | None = 0) -> Any:
    """Return the seed of a call: `seed`, or a number that `rng` draws; an int as `rng` is the seed (SPEC 7).

    Raises
    ------
    TypeError
        rng is not an int or a generator of NumPy.
    ValueError
        Both are given, or rng is negative.

    Examples
    --------
    >>> seed_from("vectors", 0, 5), seed_from("vectors", 7, None)
    (5, 7)
    """
    if rng is None:
        return seed
    if seed != default:
        raise WrongValue(f"{function}: rng is given with seed {shown(seed)}, expected one of them")
    if isinstance(rng, (np.random.Generator, np.random.BitGenerator, np.random.SeedSequence)):
        return int(np.random.default_rng(rng).integers(2**32))
    try:
        return as_int(rng, f"{function}: rng", 0)
    except WrongType:
        raise WrongType(f"{function}: rng is {shown(rng)}, expected an int or a generator of NumPy") from None


def as_real(value: Any, name: str, wanted: str) -> float:
    """Return any real number as a float; TypeError for anything else, a bool too."""
    try:
        if isinstance(value, (bool, np.bool_, str, bytes, np.complexfloating)) or np.ndim(value):
            raise TypeError
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    except (TypeError, ValueError):
        raise WrongType(f"{name} is {shown(value)}, expected {wanted}") from None


def is_several(value: object) -> TypeGuard[Iterable[Any]]:
    """Tell whether a value can be iterated and is not a string."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes)) and bool(getattr(value, "ndim", 1))


def as_list(value: Any, name: str, wanted: str) -> list[Any]:
    """Return an iterable as a list; TypeError for anything else, and for a str."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return list(value)
    except (TypeError, ValueError, NotImplementedError):  # such as a 0-d array, or an array whose rows have no size
        raise WrongType(f"{name} is {shown(value)}, expected {wanted}") from None


def check_count(function: str, name: str, value: object, least: int = 1) -> int:
    """Return an integer from 1, or from 0, to 2^63 - 1; ValueError names the value."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value < 2**63:
        below = " below 2^63" if isinstance(value, int) and value >= 2**63 else ""
        wanted = "a positive integer" if least else "an integer from 0 up"
        raise WrongValue(f"{function}: {name} is {shown(value)}, expected {wanted}{below}")
    return int(value)


def check_flag(function: str, name: str, value: object) -> bool:
    """Return a bool, also from 0 and 1; TypeError names the value."""
    if not isinstance(value, (bool, np.bool_)) and (not isinstance(value, int) or value not in (0, 1)):
        raise WrongType(f"{function}: {name} is {shown(value)}, expected True or False")
    return bool(value)


def check_text(function: str, name: str, value: object) -> str:
    """Return a str; TypeError names the value."""
    if not isinstance(value, str):
        raise WrongType(f"{function}: {name} is {shown(value)}, expected a str")
    return value


def check_choice(function: str, name: str, value: object, choices: Iterable[str]) -> str:
    """Return a str that is one of several; ValueError names the value and the choices."""
    words = list(choices)
    if not isinstance(value, str) or value not in words:
        raise WrongValue(f"{function}: {name} is {shown(value)}, expected one of {', '.join(words)}")
    return value


def check_fields(record: Any, zero: Collection[str] = ()) -> None:
    """Check the counts, pairs of counts, flags and texts of a dataclass, and store them as Python's own.

    Fields of other types are left to the dataclass.

    Parameters
    ----------
    record : dataclass
    zero : collection of str
        Counts that may be 0.
    """
    title = type(record).__name__
    for field in dataclasses.fields(record):
        value, kind = getattr(record, field.name), str(field.type)
        if value is None and kind.endswith(" | None"):
            continue
        least = 0 if field.name in zero else 1
        kind = kind.removesuffix(" | None")
        if kind == "int":
            found: Any = check_count(title, field.name, value, least)
        elif kind in ("Pair", "tuple[int, int]"):
            found = _pair(title, field.name, value, least, kind == "Pair")
        elif kind == "bool":
            found = check_flag(title, field.name, value)
        elif kind == "str":
            found = check_text(title, field.name, value)
        else:
            continue
        if found is not value:
            object.__setattr__(record, field.name, found)


def _pair(title: str, name: str, value: object, least: int, single: bool) -> Any:
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value,) if single else ()
    whole = all(isinstance(one, (int, np.integer)) and not isinstance(one, bool) for one in parts)
    if len(parts) not in ((1, 2) if single else (2,)) or not whole or not all(least <= one < 2**63 for one in parts):
        wanted = f"{'one or two' if single else 'two'} {'positive integers' if least else 'integers from 0 up'}"
        raise WrongValue(f"{title}: {name} is {shown(value)}, expected {wanted}")
    return int(parts[0]) if not isinstance(value, (tuple, list)) else tuple(int(one) for one in parts)


def check_number(
    function: str, name: str, value: Any, low: float = 0.0, high: float = math.inf, closed: bool = False
) -> float:
    """Return a real number above `low` (or equal to it, if `closed`) up to `high`; ValueError names the value.

    Zero, or between `SMALLEST` and `LARGEST`.
    """
    sized = True
    if not isinstance(value, (bool, np.bool_)) and isinstance(value, (int, float, np.integer, np.floating)):
        if isinstance(value, np.floating):  # float32 would convert the limits to float32, with a warning
            value = float(value)
        sized = value == 0 or SMALLEST <= abs(value) <= LARGEST or value != value
        if (low <= value if closed else low < value) and value <= high and sized:
            return float(value)
    words = (f"from {low:g}" + (f" to {high:g}" if high < math.inf else " up")) if closed else (
        f"above {low:g}" + (f" up to {high:g}" if high < math.inf else ""))  # fmt: skip
    words += "" if sized else f" of {SMALLEST:g} to {LARGEST:g}"
    raise WrongValue(f"{function}: {name} is {shown(value)}, expected a number {words}")
