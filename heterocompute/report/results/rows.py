"""Rows of two results as one table, and their differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...base.errors import WrongValue, shown

Row = dict[str, Any]
Key = Callable[[Row], tuple[Any, ...]]

TIMES = ("seconds", "ms")  # measured anew each time


def key_by(names: Sequence[str]) -> Key:
    """Return the function that identifies a row by columns."""
    return lambda row: tuple(str(value) if isinstance(value := row.get(name), list) else value for name in names)


def named_by(names: Sequence[str]) -> Callable[[Row], str]:
    """Return the function that names a row by the columns that identify it."""
    return lambda row: ", ".join(str(row[name]) for name in names if row.get(name) is not None) or "the first row"


def joined_rows(
    kind: str, first: Sequence[Row], second: Sequence[Row], key: Key, name: Callable[[Row], str]
) -> list[Row]:
    """Return the rows of both with the columns of both; a row that both have must have the same values.

    Raises
    ------
    ValueError
        A row that both have differs.
    """
    known = {key(row): row for row in first}
    for row in second:
        before = known.get(key(row))
        for column, value in row.items() if before is not None else ():
            if column not in TIMES and before is not None and before.get(column, value) != value:
                raise WrongValue(
                    f"{kind} + {kind}: {name(row)}: {column} is {shown(before[column])} in the first and "
                    f"{shown(value)} in the second: other weights or another evaluation"
                )
        known[key(row)] = {**row, **{column: value for column, value in (before or {}).items() if value is not None}}
    columns = _columns(first, second)
    return [{column: row.get(column) for column in columns} for row in known.values()]


def _columns(first: Sequence[Row], second: Sequence[Row]) -> list[str]:
    """Return the columns of both; those that only the second has stand on their side of the time."""
    columns, others = list(first[0]) if first else [], list(second[0]) if second else []
    at = columns.index("seconds") if "seconds" in columns else len(columns)
    of_others = others.index("seconds") if "seconds" in others else len(others)
    before = [column for column in others[:of_others] if column not in columns]
    after = [column for column in others[of_others:] if column not in columns]
    return [*columns[:at], *before, *columns[at:], *after]


def changes(first: Sequence[Row], second: Sequence[Row], key: Key, names: Sequence[str]) -> list[Row]:
    """Return one row for each row that both have: its names, ``a - b`` of numbers, ``a <- b`` of texts that differ."""
    other, found = {key(row): row for row in second}, []
    for row in first:
        match = other.get(key(row))
        if match is not None:
            held = {name: row[name] for name in names if name in row}
            numbers = {name: _change(value, match[name]) for name, value in row.items()
                       if name not in held and name in match and not isinstance(value, (list, dict))}  # fmt: skip
            found.append({**held, **numbers})
    return found


def _change(a: Any, b: Any) -> Any:
    if isinstance(a, str) or isinstance(b, str):
        return a if a == b else f"{a or '–'} <- {b or '–'}"
    if isinstance(a, bool) and isinstance(b, bool):
        return int(a) - int(b)
    return None if a is None or b is None else 0.0 if a == b else a - b


def only_in(
    rows: Iterable[Row], others: Iterable[Mapping[str, Any]], key: Key, name: Callable[[Row], str]
) -> list[str]:
    """Return the names of the rows that the others lack."""
    held = {key(dict(row)) for row in others}
    return [name(row) for row in rows if key(row) not in held]
