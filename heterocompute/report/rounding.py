"""Pages of rounded networks: the output error of each layer, before and after, and the recipes of a ladder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .chart import Chart, Curve, Dot
from .page import Cell, page as whole_page, section, table, tiles
from .palette import FAMILIES, GREY, family
from .scale import Scale, lanes, linear, logarithmic
from .table import clean

Row = Mapping[str, Any]

HEADS = {
    "name": "tensor", "format": "format", "tokens": "inputs", "damping": "damping", "dead": "dead",
    "before": "output dB, nearest", "after": "output dB", "held_before": "held out, nearest", "held_after": "held out",
}  # fmt: skip
WIDTH, STEP = 1060, 18  # of the picture
OPEN, FULL = FAMILIES["vsq"]._replace(color=GREY), FAMILIES["vsq"]
MAX_LINES = 200
GATE_HEADS = {"recipe": "recipe", "bytes": "bytes", "score": "score", "ms": "ms", "passed": "passed"}


def page(title: str, rows: Sequence[Row], left: Sequence[str], stored: object = None) -> str:
    """Return the whole page.

    Parameters
    ----------
    rows : sequence of mapping
        `Rounded.table`.
    left : sequence of str
        Tensors that stay as they are.
    stored : object, optional
        The result itself, for programs.
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
    return whole_page(title, body, stored=stored)


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


def gate_page(
    title: str, rows: Sequence[Row], recipe: str | None, reason: str, layers: Mapping[str, str], stored: object = None
) -> str:
    """Return the page of a ladder: the sentence, scores against bytes and milliseconds, and every recipe.

    Parameters
    ----------
    rows : sequence of mapping
        `Gate.table`.
    recipe, reason, layers
        As in `Gate`.
    stored : object, optional
        The result itself, for programs.
    """
    judged = [row for row in rows if row["score"] is not None]
    found = next((row for row in rows if row["recipe"] == recipe), None)
    body = tiles([
        ("float" if found is None else f"{found['bytes']:,}", "weights remain" if found is None else "bytes"),
        (f"{len(judged)} of {len(rows)}", "recipes evaluated"),
    ])  # fmt: skip
    drawn = "".join(
        f'<div class="wide">{gate_picture(some, key, words, recipe).svg()}</div>'
        for key, words in (("bytes", "bytes of all weights"), ("ms", "milliseconds of a run, measured"))
        if (some := [row for row in judged if row[key]])
    )
    body += section("Scores", f"{reason}. The ring is the answer; open marks failed.", drawn)
    lines = [[_cell(key, row[key]) for key in GATE_HEADS] for row in rows]
    body += section("Every recipe", "", table([*GATE_HEADS.values()], lines, texts=(0, 4)))
    if layers:
        body += section("Layers of the mixture", "", table(["layer", "recipe"], [
            [(clean(name), name), (clean(one), one)] for name, one in layers.items()], texts=(0, 1)))  # fmt: skip
    return whole_page(title, body, stored=stored)


def gate_picture(rows: Sequence[Row], key: str, words: str, recipe: str | None) -> Chart:
    """Return the scores of recipes against their bytes or milliseconds."""
    dots = [
        Dot(row[key], row["score"], FAMILIES[family(_first(row["recipe"]))], clean(row["recipe"]),
            hollow=not row["passed"], ring=row["recipe"] == recipe, hint=f"{clean(row['recipe'])}: {row['score']:.6g}")
        for row in rows
    ]  # fmt: skip
    across: Scale = logarithmic([row[key] for row in rows])
    order = sorted(range(len(rows)), key=lambda i: (rows[i]["recipe"] != recipe, not rows[i]["passed"], rows[i][key]))
    return Chart(
        across, linear([row["score"] for row in rows]), WIDTH, 320, words, "score",
        title=f"score against {words}", dots=dots, named=order,
    )  # fmt: skip


def _first(recipe: str) -> str:
    """Return the format of a recipe of one format; else a text of a mixture."""
    text = recipe.partition(" / ")[0]
    return "fp32" if text == "float" else text if " " not in text and "=" not in text else "mix"
