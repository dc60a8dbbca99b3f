"""The page of a network rounded under its inputs: the error of each layer's output, before and after."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .chart import Chart, Curve, Dot
from .page import Cell, page as whole_page, section, table, tiles
from .palette import FAMILIES, GREY
from .scale import lanes, linear
from .table import clean

Row = Mapping[str, Any]

HEADS = {
    "name": "tensor", "format": "format", "tokens": "inputs", "damping": "damping", "dead": "dead",
    "before": "output dB, nearest", "after": "output dB", "held_before": "held out, nearest", "held_after": "held out",
}  # fmt: skip
WIDTH, STEP = 1060, 18  # of the picture
OPEN, FULL = FAMILIES["vsq"]._replace(color=GREY), FAMILIES["vsq"]
MAX_LINES = 200


def page(title: str, rows: Sequence[Row], left: Sequence[str]) -> str:
    """Return the whole page.

    Parameters
    ----------
    rows : sequence of mapping
        `Rounded.table`.
    left : sequence of str
        Tensors that stay as they are.
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
        body += section(
            "What each layer loses", what, f'<div class="wide">{picture(rows[:MAX_LINES], *judged).svg()}</div>'
        )
    body += section("Every tensor", "", table([HEADS[key] for key in keys], lines, texts=(0, 1)))
    if left:
        body += section("", f"Nothing was multiplied with these, they stay as they are: {clean(', '.join(left))}", "")
    return whole_page(title, body)


def _mean(values: Sequence[float]) -> str:
    finite = [value for value in values if math.isfinite(value)]
    return f"{math.fsum(finite) / len(finite):.2f} dB" if finite else "–"


def _cell(key: str, value: object) -> Cell:
    if value is None:
        return "–", ""
    if isinstance(value, float):
        text = f"{value:g}" if key == "damping" else "exact" if value == math.inf else f"{value:.2f}"
        return text, "Infinity" if value == math.inf else value
    return clean(str(value)), value


def picture(rows: Sequence[Row], before: str, after: str) -> Chart:
    """Return a row per tensor: from the SQNR of plain rounding to the SQNR afterwards.

    Parameters
    ----------
    before, after : str
        Keys of both.
    """
    values = [row[key] for row in rows for key in (before, after) if math.isfinite(row[key])]
    low, high = 5 * math.floor(min(values, default=0.0) / 5), 5 * math.ceil(max(values, default=5.0) / 5)
    high = max(high, low + 5)
    dots, curves = [], []
    for i, row in enumerate(rows):
        first, last = (min(max(row[key], low), high) for key in (before, after))
        curves.append(Curve([(first, i), (last, i)], width=1))
        dots += [Dot(first, i, OPEN, hollow=True), Dot(last, i, FULL)]
    names = [clean(row["name"]) for row in rows]
    names = [name if len(name) <= 56 else f"…{name[-55:]}" for name in names]
    return Chart(
        linear([low, high], 8, 0.02), lanes(names), WIDTH, STEP * len(rows) + 48, "output dB", "",
        title="SQNR of each layer's output, before and after", dots=dots, curves=curves, top=4, bottom=44, right=20,
    )  # fmt: skip
