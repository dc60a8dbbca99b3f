"""The page of a study: figures, the scatter of each metric, tables, error by tensor, histograms.

`rows` and `layers` are those of `heterocompute.study`; a `Judge` is a column of numbers with its Pareto front.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from .chart import Chart, Dot, Key
from .numbers import quantity
from .page import legend, page as whole_page, tiles
from .palette import FAMILIES, GREY, family
from .scale import for_metric, logarithmic
from .study import (
    DECIBELS,
    Judge,
    advice,
    elsewhere,
    labelled,
    layer_key,
    number,
    pivot,
    row_name,
    shortly,
    speed,
    table_html,
    within_reach,
)

Row = dict[str, Any]

AXIS = "stored bits per value"
MAX_PAGE_LAYERS = 400
MAX_HISTOGRAMS = 40
MAX_FIGURES = 4
MAX_NAMES = 80  # names placed next to dots, those of the Pareto front first
BITS = (1, 1.5, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64)
SIZES = (("broad", 1060, 430), ("narrow", 340, 380))  # the second for narrow screens


def page(
    title: str,
    rows: Sequence[Row],
    layers: Sequence[Row],
    judges: Sequence[Judge],
    histograms: Sequence[Row],
    more: str = "",
    notes: Sequence[str] = (),
    views: Sequence[View] = (),
    stored: Row | None = None,
) -> str:
    """Return the whole page: styles, data and one script inside, nothing fetched.

    Parameters
    ----------
    judges : sequence of Judge
        The metric of the table, and further ones that the page lets one choose.
    histograms : sequence of dict
        `Study.histograms`; the first 40 are shown.
    more : str, optional
        HTML that follows the table.
    notes : sequence of str, optional
        Sentences that follow the table.
    views : sequence of View, optional
        Further pictures.
    stored : dict, optional
        The study as its file holds it. The page gets the histograms that it shows.
    """
    given = rows
    rows, _ = shortly(rows)
    judge, judges, further = judges[0], judges[:MAX_FIGURES], [row for view in views for row in view.rows]
    names, formats, found = pivot(layers)
    shapes = {row["name"]: " x ".join(map(str, row["shape"])) for row in layers}
    shown = names[:MAX_PAGE_LAYERS]
    words = [_words(one) for one in judges]
    data = {
        "rows": [{**row, "speed": speed(row, rows)} for row in [*rows, *further]],
        "front": list(judge.front),
        "metric": judge.metric,
        "metrics": [one.metric for one in judges],
        "words": words,
        "families": {labelled(row["format"], row.get("method")): family(row["format"]) for row in [*rows, *layers]},
        "layers": {
            "names": shown,
            "shapes": [shapes[name] for name in shown],
            "formats": formats,
            "sqnr": [[found.get((name, fmt), "") for fmt in formats] for name in shown],
            "of": "of the layers' outputs on the calibration inputs"
            if layer_key(layers) == "output_db"
            else "of the weights",
            "leftOut": len(names) - len(shown),
        },
        "histograms": [_drawable(one) for one in histograms[:MAX_HISTOGRAMS]],
    }
    parts = {
        "tiles": tiles(_headlines(rows, layers, judge)),
        "words": html.escape(words[0]),
        "judge": html.escape(judge.title),
        "choice": _choice(judges),
        "keys": legend(keys_of([row for row in rows if not elsewhere(row)])),
        "figures": "".join(figures(rows, one, one is not judge) for one in judges) + sections(views, len(given)),
        "table": table_html(given, judge, style=False, notes=notes) + more,
    }
    held = None if stored is None else {**stored, "histograms": histograms[:MAX_HISTOGRAMS]}
    here = Path(__file__)
    body = re.sub(
        r"\{\{(\w+)\}\}", lambda match: parts[match[1]], here.with_name("study.html").read_text(encoding="utf-8")
    )
    return whole_page(title, body, data, here.with_name("study.js").read_text(encoding="utf-8"), stored=held)


def _words(judge: Judge) -> str:
    better = "Up and left is better." if judge.higher else "Down and left is better."
    title = judge.title[:1].upper() + judge.title[1:]
    return (
        f"{title} against stored bits per value. {better} The dashed line is the Pareto front: no format with fewer "
        "bits is as good. Points without a label have their names in the table and in tooltips."
    )


def _choice(judges: Sequence[Judge]) -> str:
    if len(judges) < 2:
        return ""
    inside = "".join(f'<option value="{html.escape(one.metric)}">{html.escape(one.title)}</option>' for one in judges)
    return f'<label>Judged by <select id="metric" autocomplete="off">{inside}</select></label>'


def keys_of(rows: Sequence[Row]) -> list[Key]:
    """Return the families of the rows, and the other meanings of the dots."""
    present = {family(row["format"]) for row in rows}
    found = [Key(mark, mark.words) for name, mark in FAMILIES.items() if name in present]
    grey = FAMILIES["vsq"]._replace(color=GREY)
    kinds = dict.fromkeys(row["activations"] for row in rows if row["activations"] is not None)
    if kinds:
        found.append(Key(grey, f"hollow: activations {', '.join(map(str, kinds))}", hollow=True))
    if any(row.get("emulate") for row in rows):
        found.append(Key(grey, "with a point: accumulator emulated", inner=True, hollow=True))
    if any(row.get("retrained") for row in rows):
        found.append(Key(grey, "in a ring: retrained", ring=True))
    return found


def dots_of(rows: Sequence[Row], judge: Judge) -> tuple[list[Dot], list[int]]:
    """Return the dots of a metric, with the front last, hence on top, and those that are named."""
    chosen = set(judge.front)
    order = [i for i, row in enumerate(rows) if row["bits"] and row[judge.metric] is not None and not elsewhere(row)]
    order.sort(key=lambda i: i in chosen)
    dots = [
        Dot(
            rows[i]["bits"], rows[i][judge.metric], FAMILIES[family(rows[i]["format"])], row_name(rows[i]),
            labelled(rows[i]["format"], rows[i].get("method")), i,
            hollow=rows[i]["activations"] is not None, inner=bool(rows[i].get("emulate")),
            ring=bool(rows[i].get("retrained")), large=i in chosen,
        )
        for i in order
    ]  # fmt: skip
    rank = {row: place for place, row in enumerate(judge.front)}
    plain = [k for k, i in enumerate(order) if rows[i]["activations"] is None and not rows[i].get("emulate")]
    front = sorted((k for k, i in enumerate(order) if i in chosen), key=lambda k: rank[order[k]])
    front = [k for k in front if dots[k].name.strip()]
    return dots, [*front, *(k for k in plain if order[k] not in chosen)][:MAX_NAMES]


def chart_of(
    rows: Sequence[Row], judge: Judge, width: int, height: int, axis: str = AXIS, first: int | None = None
) -> Chart:
    """Return the scatter of a metric of rows against bits; `first` is the index of the first row in the page."""
    dots, named = dots_of(rows, judge)
    places = {dot.row: (dot.x, dot.y) for dot in dots}
    front = [places[i] for i in judge.front if i in places]
    if first is not None:
        dots = [replace(dot, row=None if dot.row is None else dot.row + first) for dot in dots]
    ticks = [bits for bits in BITS if bits != 1.5 or width > 600]
    x = logarithmic([dot.x for dot in dots], ticks)
    y = for_metric([dot.y for dot in dots] or [0.0], judge.higher)
    title = f"{judge.title} against {axis}"
    y_title = f"{judge.title} ({y.words})" if y.words else judge.title
    return Chart(
        x, y, width, height, axis, y_title, title=title, dots=dots, named=named, front=front,
        keys=keys_of([row for row in rows if not elsewhere(row)])
    )  # fmt: skip


def figures(rows: Sequence[Row], judge: Judge, hidden: bool, first: int | None = None, axis: str = AXIS) -> str:
    """Return pictures of a metric of rows against bits, for wide and narrow screens.

    With `first`, hints are those of the page's rows from that one, and the choice of a metric hides nothing.
    """
    charts = [(kind, chart_of(rows, judge, width, height, axis, first)) for kind, width, height in SIZES]
    found = "".join(f'<div class="{kind}">{chart.svg()}</div>' for kind, chart in charts if chart.dots)
    if first is not None:
        return found and f"<div>{found}</div>"
    return found and f'<div data-metric="{html.escape(judge.metric)}"{" hidden" if hidden else ""}>{found}</div>'


def _drawable(one: Row) -> Row:
    """Return levels as positions in 0..999 of the picture; levels at the same position are drawn once."""
    scale = 999 / (2 * one["range"])
    levels = {
        fmt: [
            len(values),
            sorted({round((min(max(v, -one["range"]), one["range"]) + one["range"]) * scale) for v in values}),
        ]
        for fmt, values in one["levels"].items()
    }
    return {**one, "levels": levels}


def _headlines(rows: Sequence[Row], layers: Sequence[Row], judge: Judge) -> list[tuple[str, str]]:
    """Return the figures that answer most questions: (figure, description)."""
    tensors = {row["name"]: math.prod(row["shape"]) for row in layers}
    base, metric = rows[0], judge.metric
    found = [
        (
            quantity(base["bytes"], "B"),
            f"{len(tensors)} tensor{'s'[: len(tensors) != 1]}, {sum(tensors.values()):,} values",
        )
    ]
    if metric not in DECIBELS and base[metric] is not None:
        found.append((number(base[metric], 4), f"{metric} of the baseline"))
    best = advice(rows, metric, judge.higher)
    if best is not None:
        found.append(best)
    good, near = within_reach(rows, metric, judge.higher)
    quick = max(good, key=lambda row: speed(row, rows) or 0, default=base)
    gain = speed(quick, rows)
    if gain and gain > 1:
        found.append(
            (
                f"{gain:.2f} x",
                f"speed of matmuls against {base['format']}, measured: {row_name(quick)}, the fastest {near}",
            )
        )
    return found


# Further pictures of a study of a language model: the metric against bits of the KV cache, and of accumulators


class View(NamedTuple):
    """Rows that differ in one thing only, drawn as formats are: ``format`` is the cache or the accumulator.

    `of` names the column in which the rows differ; `title` and `axis` are words of the picture.
    """

    of: str
    title: str
    axis: str
    rows: list[Row]
    judge: Judge

    @property
    def advice(self) -> tuple[str, str]:
        """Return the recommendation and the reason."""
        good, near = within_reach(self.rows, self.judge.metric, self.judge.higher)
        best = min(good, key=lambda row: row["bits"], default=self.rows[0])
        if best["bits"] >= self.rows[0]["bits"]:
            return self.of, f"nothing with fewer bits is {near}"
        return f"{self.of} {row_name(best)}", f"{number(best['bits'])} bits: the smallest {near}"


def views_of(rows: Sequence[Row], judge: Callable[[list[Row]], Judge]) -> list[View]:
    """Return the views that a study has rows for.

    Parameters
    ----------
    judge : callable
        Returns the metric with the Pareto front of some rows.
    """
    found = []
    caches = [row for row in rows if _same(row, rows[0]) and not row.get("emulate") and "kv_bits" in row]
    if len({row["kv_cache"] for row in caches}) > 1:
        made = [_as_format(row, row["kv_cache"] or "fp32", row["kv_bits"], row["activations"]) for row in caches]
        title = f"What a bit of the KV cache buys (weights as {rows[0]['format']})"
        found.append(View("KV cache", title, "stored bits per value of keys and values", made, judge(made)))
    exact = widest([row for row in rows if row.get("emulate")], rows)
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


def widest(emulated: Sequence[Row], rows: Sequence[Row]) -> Row | None:
    """Return the row with exact sums whose formats have the most emulations; the first among equals."""
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
    """Return the views as HTML: a picture and a sentence with the recommendation; hints count rows from `first`."""
    found = []
    for view in views:
        what, why = view.advice
        words = f"<p>\u2192 <b>{html.escape(what)}</b>: {html.escape(why)}</p>"
        drawn = figures(view.rows, view.judge, False, first, view.axis)
        found.append(f"<h2>{html.escape(view.title)}</h2>{words}{drawn}")
        first += len(view.rows)
    return "".join(found)
