"""Values of results as JSON, and checks of what a file holds."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from ...base.errors import WrongValue, shown

PLAIN = (type(None), bool, int, float, str)
FLOAT = "float"  # the key of a number that JSON lacks: {"float": "inf"}
NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def to_json(value: Any) -> Any:
    """Return plain values in which NaN and infinities are objects, and keys that are tuples pairs with their values.

    Examples
    --------
    >>> to_json({"db": [1.5, float("inf")]})
    {'db': [1.5, {'float': 'inf'}]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else {FLOAT: repr(float(value))}
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: to_json(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        if any(isinstance(key, tuple) for key in value):
            return [[to_json(key), to_json(one)] for key, one in value.items()]
        return {str(key): to_json(one) for key, one in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(to_json, value))
    if isinstance(value, (list, tuple)):
        return [to_json(one) for one in value]
    return value.item() if hasattr(value, "item") else value


def from_json(value: Any) -> Any:
    """Return the values that `to_json` was given; tuples are lists."""
    if isinstance(value, dict):
        if list(value) == [FLOAT] and isinstance(value[FLOAT], str) and value[FLOAT] in NAMES:
            return NAMES[value[FLOAT]]
        return {key: from_json(one) for key, one in value.items()}
    return [from_json(one) for one in value] if isinstance(value, list) else value


def fitted(name: str, value: Any, hint: Any) -> Any:
    """Return a value of a file as an annotation has it: lists as tuples where it says so.

    Raises
    ------
    ValueError
        The value has another type.

    Examples
    --------
    >>> fitted("spent", {"bits": 4}, dict[str, float]), fitted("names", ["a"], tuple[str, ...])
    ({'bits': 4}, ('a',))
    """
    kind, parts = get_origin(hint), get_args(hint)
    if kind in (Union, types.UnionType):
        for part in parts:
            try:
                return fitted(name, value, part)
            except WrongValue:
                continue
    elif hint is Any and isinstance(value, (*PLAIN, list, dict)):
        return value
    elif hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    elif hint in (int, str, bool, type(None)) and type(value) is hint:
        return value
    elif is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        hints = get_type_hints(hint)
        if set(value) == set(hints):
            return hint(**{key: fitted(f"{name}: {key}", one, hints[key]) for key, one in value.items()})
    elif kind in (set, frozenset) and isinstance(value, list):
        return kind(fitted(name, one, parts[0]) for one in value)
    elif kind is Sequence and isinstance(value, list):
        return [fitted(name, one, parts[0]) for one in value]
    elif kind in (list, tuple) and isinstance(value, list):
        ends = parts if kind is tuple and parts[-1] is not Ellipsis else (parts[0],) * len(value)
        if len(ends) == len(value):
            return kind(fitted(name, one, part) for one, part in zip(value, ends, strict=True))
    elif isinstance(kind, type) and issubclass(kind, Mapping) and get_origin(parts[0]) is tuple:
        return dict(fitted(name, value, list[tuple[parts[0], parts[1]]]))  # type: ignore[valid-type]
    elif isinstance(kind, type) and issubclass(kind, Mapping) and isinstance(value, dict):
        return {key: fitted(f"{name}[{shown(key)}]", one, parts[1]) for key, one in value.items()}
    raise WrongValue(f"{name} is {shown(value)}")


def check_columns(rows: list[dict[str, Any]], columns: Mapping[str, Any], name: str = "table") -> None:
    """Raise a ValueError unless every row has these columns with these types, and plain values in the others."""
    for row in rows:
        for key, value in row.items():
            if key not in columns and not isinstance(value, PLAIN):
                raise WrongValue(f"{name} has {shown(value)} as {shown(key)}")
        for key, hint in columns.items():
            if key not in row:
                raise WrongValue(f"{name} has a row without {key}")
            fitted(f"{name}: {key}", row[key], hint)


def check_rows(name: str, rows: object, texts: tuple[str, ...] = (), lists: tuple[str, ...] = ()) -> None:
    """Raise a ValueError unless a value is a list of rows whose columns hold numbers, and `texts` strings.

    Parameters
    ----------
    texts : sequence of str
        Columns that hold a string or None, ``format`` and ``name`` always a string.
    lists : sequence of str
        Columns that hold lists of numbers.
    """
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise WrongValue(f"{name} is not a list of rows")
    for row in rows:
        for key, value in row.items():
            if key in lists:
                good = isinstance(value, list) and all(type(one) in (int, float) for one in value)
            elif key in texts:
                good = isinstance(value, str) or (value is None and key not in ("format", "name"))
            else:
                good = value is None or isinstance(value, (bool, int, float))
            if not good:
                raise WrongValue(f"{name} has {shown(value)} as {shown(key)}")


def check_texts(name: str, texts: object) -> None:
    """Raise a ValueError unless a value is a list of strings."""
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise WrongValue(f"{name} is not a list of strings")
