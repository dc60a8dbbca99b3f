"""Two studies as one (``a + b``), and their difference (``a - b``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..base.errors import WrongValue, shown
from ..report import study as report
from ..report.files import Tabular
from ..report.table import print_words

Row = dict[str, Any]
S = TypeVar("S", bound=Any)

TIMES = ("seconds",)  # measured anew by each study


def joined(a: S, b: S) -> S:
    """Return the rows of two studies of the same weights and evaluation as one study.

    Raises
    ------
    ValueError
        The tensors, or the numbers of a row that both have, differ.
    """
    shapes = [{row["name"]: tuple(row["shape"]) for row in one.layers} for one in (a, b)]
    if all(shapes):
        for name in dict.fromkeys((*shapes[0], *shapes[1])):
            first, second = shapes[0].get(name), shapes[1].get(name)
            if first != second:
                words = [f"none in the {which}" if shape is None else f"shape {shape} in the {which}"
                         for which, shape in (("first", first), ("second", second))]  # fmt: skip
                raise WrongValue(f"study + study: tensor {shown(name)} has {', '.join(words)}: other weights")
    levels: dict[str, Row] = {}
    for one in (*b.histograms, *a.histograms):
        before = levels.get(one["name"], {"levels": {}})
        levels[one["name"]] = {**one, "levels": {**before["levels"], **one["levels"]}}
    return replace(
        a,
        table=_rows(a.table, b.table, key_of, report.row_name),
        layers=_rows(a.layers, b.layers, lambda row: (row["name"], row["format"], row.get("method")), _layer_name),
        metrics=list(dict.fromkeys((*a.metrics, *b.metrics))),
        histograms=list(levels.values()),
        alone=_rows(a.alone, b.alone, lambda row: (row["name"], row["format"], row.get("method")), _layer_name),
        notes=list(dict.fromkeys((*a.notes, *b.notes))),
    )


def key_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the formats and methods of a row, which identify it."""
    return tuple(row.get(name) for name in report.TEXTS)


def _layer_name(row: Row) -> str:
    return f"{row['name']} in {report.labelled(row['format'], row.get('method'))}"


def _rows(
    first: Sequence[Row], second: Sequence[Row], key: Callable[[Row], tuple[Any, ...]], name: Callable[[Row], str]
) -> list[Row]:
    """Return the rows of both with the columns of both; a row that both have must have the same numbers."""
    known = {key(row): row for row in first}
    for row in second:
        before = known.get(key(row))
        for column, value in row.items() if before is not None else ():
            if column not in TIMES and before is not None and before.get(column, value) != value:
                raise WrongValue(
                    f"study + study: {name(row)}: {column} is {shown(before[column])} in the first and {shown(value)} "
                    "in the second: other weights or another evaluation"
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


@dataclass(frozen=True, eq=False, repr=False)
class StudyDifference(Tabular):
    """The difference of two studies, ``a - b``.

    Attributes
    ----------
    table : list of dict
        One row for each row that both have: its formats and methods, and ``a - b`` of each number that both know.
    only : tuple of list of str
        Names of the rows that only the first, and only the second study has.
    """

    table: list[Row]
    only: tuple[list[str], list[str]]

    def __repr__(self) -> str:
        return report.captured(self._show)

    def _show(self, console: Any) -> None:
        report.show_difference(self.table, console)
        for which, names in zip(("first", "second"), self.only, strict=True):
            if names:
                print_words(f"only in the {which}: {', '.join(names)}", console)

    def _repr_html_(self) -> str:
        return report.difference_html(self.table)


def difference(a: Any, b: Any) -> StudyDifference:
    """Return the numbers of one study minus those of another, for the rows that both have."""
    other = {key_of(row): row for row in b.table}
    table = []
    for row in a.table:
        match = other.get(key_of(row))
        if match is None:
            continue
        texts = {name: row[name] for name in report.TEXTS if name in row}
        numbers = {
            name: None if value is None or match[name] is None else value - match[name]
            for name, value in row.items()
            if name not in texts and name in match
        }
        table.append({**texts, **numbers})
    return StudyDifference(table, (_only(a.table, other), _only(b.table, {key_of(row) for row in a.table})))


def _only(rows: Sequence[Row], known: Iterable[Any]) -> list[str]:
    held = set(known)
    return [report.row_name(row) for row in rows if key_of(row) not in held]
