"""The page of a network rounded under its inputs: the error of each layer's output, before and after."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from .page import Cell, page as whole_page, section, table, tiles
from .palette import FAMILIES, GREY
from .table import clean

Row = Mapping[str, Any]

HEADS = {
    "name": "tensor", "format": "format", "tokens": "inputs", "damping": "damping", "dead": "dead",
    "before": "output dB, nearest", "after": "output dB", "held_before": "held out, nearest", "held_after": "held out",
}  # fmt: skip
WIDTH, LEFT, STEP = 1060, 420, 18  # of the picture
MAX_LINES = 200


def page(title: str, rows: Sequence[Row], left: Sequence[str]) -> str:
    """Return the whole page.

    Parameters
    ----------
    title : str
    rows : sequence of mapping
        `Rounded.table`.
    left : sequence of str
        Tensors that stay as they are.

    Returns
    -------
    str
    """
    keys = [key for key in HEADS if any(key in row for row in rows)]
    lines = [[_cell(key, row.get(key)) for key in keys] for row in rows]
    judged = ("held_before", "held_after") if rows and all("held_after" in row for row in rows) else ("before", "after")
    before, after = (_mean([row[key] for row in rows]) for key in judged)
    words = "held-out inputs" if judged[0] != "before" else "the calibration inputs"
    found = [
        (f"{len(rows)}", "tensors rounded"),
        (before, f"mean output dB of plain rounding, {words}"),
        (after, "after"),
    ]
    body = tiles(found)
    if rows:
        what = f"SQNR of each layer's output on {words}: open with the nearest codes, full after. Right is better."
        body += section("What each layer loses", what, f'<div class="wide">{_picture(rows[:MAX_LINES], *judged)}</div>')
    body += section("Every tensor", "", table([HEADS[key] for key in keys], lines, texts=(0, 1)))
    if left:
        body += section("", f"Nothing was multiplied with these, they stay as they are: {clean(', '.join(left))}", "")
    return whole_page(title, body)


def _mean(values: Sequence[float]) -> str:
    finite = [value for value in values if math.isfinite(value)]
    return f"{math.fsum(finite) / len(finite):.2f} dB" if finite else "–"


def _cell(key: str, value: Any) -> Cell:
    if value is None:
        return "–", ""
    if isinstance(value, float):
        text = f"{value:g}" if key == "damping" else "exact" if value == math.inf else f"{value:.2f}"
        return text, "Infinity" if value == math.inf else value
    return clean(str(value)), value


def _picture(rows: Sequence[Row], before: str, after: str) -> str:
    """Return one line per tensor: from the SQNR of plain rounding to the SQNR afterwards."""
    values = [row[key] for row in rows for key in (before, after) if math.isfinite(row[key])]
    low, high = 5 * math.floor(min(values, default=0.0) / 5), 5 * math.ceil(max(values, default=5.0) / 5)
    high = max(high, low + 5)
    height = STEP * len(rows) + 30

    def at(value: float) -> float:
        return LEFT + (min(max(value, low), high) - low) / (high - low) * (WIDTH - LEFT - 20)

    marks = []
    for tick in range(low, high + 1, 5 if high - low <= 60 else 20):
        marks.append(f'<line class="grid" x1="{at(tick):.1f}" x2="{at(tick):.1f}" y1="4" y2="{height - 24}"/>')
        marks.append(f'<text x="{at(tick):.1f}" y="{height - 8}" text-anchor="middle">{tick}</text>')
    for i, row in enumerate(rows):
        y, first, last = STEP * i + 14, at(row[before]), at(row[after])
        name = clean(row["name"])
        short = name if len(name) <= 56 else f"…{name[-55:]}"
        marks.append(f'<text class="label" x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{html.escape(short)}</text>')
        marks.append(f'<line class="frame" x1="{first:.1f}" x2="{last:.1f}" y1="{y}" y2="{y}"/>')
        marks.append(f'<circle cx="{first:.1f}" cy="{y}" r="3.5" fill="none" stroke="{GREY}" stroke-width="1.6"/>')
        marks.append(f'<circle cx="{last:.1f}" cy="{y}" r="4.2" fill="{FAMILIES["vsq"].color}"/>')
    label = "SQNR of each layer's output, before and after"
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}" font-size="12">{"".join(marks)}</svg>'
