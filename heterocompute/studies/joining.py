"""Two studies as one (``a + b``), and their difference (``a - b``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..base.errors import WrongValue, shown
from ..report import study as report
from ..report.results.rows import joined_rows
from ..report.results.tabular import TableDifference
from ..report.table import Column

Row = dict[str, Any]
S = TypeVar("S", bound=Any)


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
        table=joined_rows("study", a.table, b.table, key_of, report.row_name),
        layers=joined_rows("study", a.layers, b.layers, _layer, _layer_name),
        metrics=list(dict.fromkeys((*a.metrics, *b.metrics))),
        histograms=list(levels.values()),
        alone=joined_rows("study", a.alone, b.alone, _layer, _layer_name),
        notes=list(dict.fromkeys((*a.notes, *b.notes))),
    )


def key_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the formats and methods of a row, which identify it."""
    return tuple(row.get(name) for name in report.TEXTS)


def _layer(row: Row) -> tuple[Any, ...]:
    return row["name"], row["format"], row.get("method")


def _layer_name(row: Row) -> str:
    return f"{row['name']} in {report.labelled(row['format'], row.get('method'))}"


@dataclass(frozen=True, eq=False, repr=False)
class StudyDifference(TableDifference):
    """The difference of two studies, with their titles and units."""

    def _columns(self, rows: Sequence[Row]) -> list[Column]:
        return report.changes(rows)

    def _repr_html_(self) -> str:
        return report.difference_html(self.table)
