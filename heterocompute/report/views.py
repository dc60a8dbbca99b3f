"""Further pictures of a study of a language model: the metric against bits of the KV cache, and of accumulators.

A view has the rows that differ in nothing else. They are drawn as formats are: ``format`` is the cache or the
accumulator, ``bits`` are its bits.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .study import labelled, number, row_name, within_reach
from .study_page import Judge, figures

Row = dict[str, Any]

__all__ = ["View", "sections", "views_of"]


class View(NamedTuple):
    """Rows to draw: `of` is what they compare, `title` and `axis` are words of the picture."""

    of: str
    title: str
    axis: str
    rows: list[Row]
    judge: Judge

    @property
    def advice(self) -> tuple[str, str]:
        """What to take, and why."""
        good, near = within_reach(self.rows, self.judge.metric, self.judge.higher)
        best = min(good, key=lambda row: row["bits"], default=self.rows[0])
        if best["bits"] >= self.rows[0]["bits"]:
            return self.of, f"nothing with fewer bits is {near}"
        return f"{self.of} {row_name(best)}", f"{number(best['bits'])} bits: the smallest {near}"


def views_of(rows: Sequence[Row], judge: Callable[[list[Row]], Judge]) -> list[View]:
    """Return the views that a study has rows for.

    Parameters
    ----------
    rows : sequence of dict
    judge : callable
        Returns the metric with the Pareto front of some rows.
    """
    found = []
    caches = [row for row in rows if _same(row, rows[0]) and not row.get("emulate") and "kv_bits" in row]
    if len({row["kv_cache"] for row in caches}) > 1:
        made = [_as_format(row, row["kv_cache"] or "fp32", row["kv_bits"], row["activations"]) for row in caches]
        title = f"What a bit of the KV cache buys (weights as {rows[0]['format']})"
        found.append(View("KV cache", title, "stored bits a value of keys and values", made, judge(made)))
    exact = _widest([row for row in rows if row.get("emulate")], rows)
    if exact is not None:
        alike = [row for row in rows if _same(row, exact) and row["activations"] == exact["activations"]]
        alike = [row for row in alike if row.get("kv_cache") == exact.get("kv_cache")]
        made = [_as_format(row, row["emulate"] or "exact", row["accumulator_bits"] or 64, None) for row in alike]
        made.sort(key=lambda row: row["format"] != "exact")
        title = f"What a bit of the accumulator buys ({exact['format']} x {exact['activations'] or 'fp32'})"
        found.append(View("accumulator", title, "bits of the accumulator; exact sums at 64", made, judge(made)))
    return found


def _same(row: Row, other: Row) -> bool:
    return labelled(row["format"], row.get("method")) == labelled(other["format"], other.get("method"))


def _widest(emulated: Sequence[Row], rows: Sequence[Row]) -> Row | None:
    """Return the row with exact sums whose formats have the most emulations, the first of several."""
    best, most = None, 0
    for row in rows:
        if row.get("emulate") or "accumulator_bits" not in row:
            continue
        keys = ("activations", "kv_cache")
        count = sum(_same(one, row) and all(one.get(key) == row.get(key) for key in keys) for one in emulated)
        if count > most:
            best, most = row, count
    return best


def _as_format(row: Row, name: str, bits: float, activations: str | None) -> Row:
    changed = {"format": name, "bits": bits, "bytes": bits, "activations": activations}
    return {**row, **changed, "method": None, "kv_cache": None, "emulate": None, "accumulator_bits": None}


def sections(views: Sequence[View], first: int) -> str:
    """Return the views as HTML: a picture and the sentence that recommends; hints count rows from `first`."""
    found = []
    for view in views:
        what, why = view.advice
        words = f"<p>\u2192 <b>{html.escape(what)}</b>: {html.escape(why)}</p>"
        drawn = figures(view.rows, view.judge, False, first, view.axis)
        found.append(f"<h2>{html.escape(view.title)}</h2>{words}{drawn}")
        first += len(view.rows)
    return "".join(found)
