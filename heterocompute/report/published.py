"""The page of published results: counts by status, a plot of factors, the table."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .chart import FONT, NAMESPACE, text
from .numbers import four_digits
from .page import page, section, table, tiles
from .palette import FAMILIES, GREY

__all__ = ["published_page"]

#: Colour of a status.
COLORS = {"reproduced": FAMILIES["vsq"].color, "restated": FAMILIES["int"].color, "off": FAMILIES["float"].color}
WIDTH, LEFT, ROW, TOP, SIZE = 860, 150, 22, 58, 13
#: Factors on the axis.
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)


def published_page(
    title: str,
    records: Sequence[Mapping[str, Any]],
    paper: tuple[str, Sequence[str], Sequence[Sequence[Any]]] | None = None,
) -> str:
    """Return one whole page.

    Parameters
    ----------
    title : str
    records : sequence of mapping
        As `PublishedFigure.to_dict` returns them.
    paper : (str, sequence of str, sequence of rows), optional
        A table of a paper on another network: what it is, titles of columns, cells as of `report.page.table`.

    Returns
    -------
    str
    """
    counts = Counter(record["status"] for record in records)
    shown = [(str(counts[status]), status) for status in ("reproduced", "restated", "off", "not modelled")]
    words = (
        "A mark is a figure: the model's value over the published one. Figures of one topic share a line. A figure is "
        "reproduced where the deviation is within the source's rounding plus the stated error for its kind of quantity."
    )
    heads = ["figure", "claim", "published", "here", "status", "source", "the model takes"]
    lines = [[(cell, cell) for cell in _cells(record)] for record in records]
    body = ""
    if paper is not None:
        summary, titles, rows = paper
        texts = [i for i in range(len(titles)) if any(isinstance(row[i][1], str) and row[i][1] for row in rows)]
        body += section("On this network", summary, table(titles, rows, texts))
    if records:
        body += section("Published", "", tiles(shown)) + section("Factors", words, picture(records))
        body += section("Figures", "", table(heads, lines, range(len(heads))))
    return page(
        title, body, style=".wide td.text, .wide th { white-space: normal; min-width: 7ch; overflow-wrap: anywhere; }"
    )


def _cells(record: Mapping[str, Any]) -> list[str]:
    rows = record["figures"]
    names = [f"{row['row']} " if row["row"] else "" for row in rows]
    printed = ", ".join(name + row["printed"] for name, row in zip(names, rows, strict=True))
    values = ["-" if row["modelled"] is None else four_digits(row["modelled"]) for row in rows]
    here = ", ".join(name + value for name, value in zip(names, values, strict=True))
    voltage = f"{record['voltage']:g} V" if record["voltage"] else ""
    source = ", ".join(filter(None, (record["source"], record["version"], record["where"], voltage)))
    return [record["name"], record["claim"], printed, here, record["verdict"], source, record["takes"]]


def picture(records: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG: the model's value over the published one, a line a topic.

    Parameters
    ----------
    records : sequence of mapping

    Returns
    -------
    str
    """
    topics = list(dict.fromkeys(record["topic"] for record in records))
    height = TOP + ROW * len(topics) + 30
    lines = [
        f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {WIDTH} {height}" width="100%" font-family="{FONT}" '
        f'font-size="{SIZE}" fill="{GREY}">',
        "<title>The model's value over the published one, by topic</title>",
    ]
    across = float(LEFT)
    for status, color in COLORS.items():
        lines.append(f'<circle cx="{across:.0f}" cy="15" r="5" fill="{color}"/>')
        lines.append(text(across + 10, 20, status))
        across += 110
    for tick in TICKS:
        x = _x(tick)
        stroke = 1.6 if tick == 1 else 0.5
        path = f"M{x:.1f} {TOP - 12}V{height - 26}"
        lines.append(f'<path d="{path}" stroke="{GREY}" stroke-width="{stroke}" fill="none"/>')
        lines.append(text(x, height - 8, f"{tick:g} x", "middle"))
    for i, topic in enumerate(topics):
        y = TOP + ROW * i
        lines.append(text(LEFT - 12, y + 4, html.escape(topic), "end"))
        for record in (one for one in records if one["topic"] == topic):
            for row in record["figures"]:
                factor = _factor(row)
                if factor is None:
                    continue
                hint = f"{record['claim']}{', ' + row['row'] if row['row'] else ''}: published {row['printed']}, here "
                hint = html.escape(hint + four_digits(row["modelled"]))
                lines.append(
                    f'<circle cx="{_x(factor):.1f}" cy="{y}" r="4.5" fill="{COLORS[record["status"]]}" '
                    f'fill-opacity="0.7"><title>{hint}</title></circle>'
                )
    return "\n".join([*lines, "</svg>"])


def _x(factor: float) -> float:
    low, high = math.log(TICKS[0]), math.log(TICKS[-1])
    place = (min(max(math.log(factor), low), high) - low) / (high - low)
    return LEFT + 20 + place * (WIDTH - LEFT - 60)


def _factor(row: Mapping[str, Any]) -> float | None:
    if row["modelled"] is None:
        return None
    nearest = min(max(row["modelled"], row["low"]), row["high"])
    return row["modelled"] / nearest if nearest > 0 and row["modelled"] > 0 else None
