"""The page of published results: counts by status, a plot of factors, the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .chart import Chart, Curve, Dot, Key
from .numbers import four_digits
from .page import legend, page, section, table, tiles
from .palette import FAMILIES
from .scale import lanes, logarithmic

#: Mark of a status.
MARKS = {"reproduced": FAMILIES["vsq"], "restated": FAMILIES["int"], "off": FAMILIES["float"]}
WIDTH, ROW = 860, 22
#: Factors on the axis.
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)


def published_page(
    title: str,
    records: Sequence[Mapping[str, Any]],
    statuses: Iterable[str],
    paper: tuple[str, Sequence[str], Sequence[Sequence[Any]]] | None = None,
    stored: object = None,
) -> str:
    """Return one whole page.

    Parameters
    ----------
    records : sequence of mapping
        As `PublishedFigure.to_dict` returns them.
    statuses : iterable of str
        Every status, in the order of the page.
    paper : (str, sequence of str, sequence of rows), optional
        A table of a paper on another network: what it is, titles of columns, cells as of `report.page.table`.
    stored : object, optional
        The result itself, for programs, as in `report.page.page`.
    """
    counts = Counter(record["status"] for record in records)
    shown = [(str(counts[status]), status) for status in statuses]
    words = (
        "A mark is a figure: the model's value over the published one. Figures of one topic share a line. A figure is "
        "reproduced where the deviation is within the larger of the source's rounding and the stated error for its "
        "kind of quantity. Claims in words have no mark."
    )
    heads = ["figure", "claim", "published", "here", "status", "source", "machine", "the model takes"]
    lines = [[(cell, cell) for cell in _cells(record)] for record in records]
    body = ""
    if paper is not None:
        summary, titles, rows = paper
        texts = [i for i in range(len(titles)) if any(isinstance(row[i][1], str) and row[i][1] for row in rows)]
        body += section("On this network", summary, table(titles, rows, texts))
    if records:
        chart = picture(records)
        drawn = f'<div class="controls">{legend(chart.keys)}</div><div class="wide">{chart.svg()}</div>'
        body += section("Published", "", tiles(shown)) + section("Factors", words, drawn)
        body += section("Figures", "", table(heads, lines, range(len(heads))))
    style = ".wide td.text, .wide th { white-space: normal; } .wide td.long { min-width: 10ch; } "
    style += ".wide td.text:first-child { min-width: 14ch; overflow-wrap: anywhere; }"
    return page(title, body, style=style, stored=stored)


def _cells(record: Mapping[str, Any]) -> list[str]:
    rows = record["figures"]
    names = [f"{row['row']} " if row["row"] else "" for row in rows]
    printed = ", ".join(name + row["printed"] for name, row in zip(names, rows, strict=True))
    values = ["-" if row["modelled"] is None else four_digits(row["modelled"]) for row in rows]
    here = ", ".join(name + value for name, value in zip(names, values, strict=True))
    voltage = f"{record['voltage']:g} V" if record["voltage"] else ""
    source = ", ".join(filter(None, (record["source"], record["version"], record["where"], voltage)))
    return [
        record["name"],
        record["claim"],
        printed,
        here,
        record["verdict"],
        source,
        record["machine"],
        record["takes"],
    ]


def picture(records: Sequence[Mapping[str, Any]]) -> Chart:
    """Return the model's value over the published one, a row per topic."""
    topics = list(dict.fromkeys(record["topic"] for record in records))
    dots = []
    for record in records:
        if record["kind"] == "words":
            continue
        for row in record["figures"]:
            factor = _factor(row)
            if factor is None:
                continue
            hint = f"{record['claim']}{', ' + row['row'] if row['row'] else ''}: published {row['printed']}, here "
            place = min(max(factor, TICKS[0]), TICKS[-1]), topics.index(record["topic"])
            mark = MARKS[record["status"]]
            dots.append(Dot(*place, mark, faint=True, hint=hint + four_digits(row["modelled"])))
    x = logarithmic(TICKS, TICKS)
    middle = Curve([(1, -0.5), (1, len(topics) - 0.5)], width=1.6)
    return Chart(
        x._replace(ticks=[(tick, f"{tick:g} x") for tick in TICKS]), lanes(topics), WIDTH, ROW * len(topics) + 50,
        "", "", 13, title="The model's value over the published one, by topic", dots=dots, curves=[middle],
        keys=[Key(mark, status) for status, mark in MARKS.items()], top=12, bottom=38,
    )  # fmt: skip


def _factor(row: Mapping[str, Any]) -> float | None:
    if row["modelled"] is None:
        return None
    nearest = min(max(row["modelled"], row["low"]), row["high"])
    return row["modelled"] / nearest if nearest > 0 and row["modelled"] > 0 else None
