"""Timelines: bars on lanes over time, as SVG, from plain dicts."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from .chart import FONT, NAMESPACE, line, text
from .labels import text_width
from .palette import GREY, SERIES
from .scale import linear

__all__ = ["timeline_svg"]

WIDTH, LANE, BAR, TOP, BOTTOM, SIZE = 760, 26, 18, 52, 44, 12.0


def timeline_svg(rows: Sequence[Mapping[str, Any]], title: str) -> str:
    """Draw bars on lanes.

    Parameters
    ----------
    rows : sequence of mapping
        ``lane``, ``begin``, ``end`` (seconds), ``kind`` (has a colour and stands in the key), ``name`` (a browser shows
        it over the bar), and perhaps ``faint``, so that neighbours can be told apart. Numbered lanes stand first.
    title : str

    Returns
    -------
    str
    """
    lanes = sorted(dict.fromkeys(row["lane"] for row in rows), key=_order)
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    colors = {kind: SERIES[i % len(SERIES)].color for i, kind in enumerate(kinds)}
    last = max((row["end"] for row in rows), default=1.0)
    scale = linear([0.0, last * 1e3], 8, 0.0)
    left = 16 + max((text_width(lane, SIZE) for lane in lanes), default=40.0)
    height = TOP + LANE * len(lanes) + BOTTOM
    bottom = height - BOTTOM

    def across(seconds: float) -> float:
        return round(left + scale.place(seconds * 1e3) * (WIDTH - left - 16), 1)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" xmlns="{NAMESPACE}" width="{WIDTH}" height="{height}" '
        f'font-family="{FONT}" role="img" aria-label="{html.escape(title)}" font-size="{SIZE:g}" fill="{GREY}">',
        f"<title>{html.escape(title)}</title>",
        text(4, 16, title, weight=600),
    ]
    for value, words in scale.ticks:
        x = across(value / 1e3)
        if left - 1 <= x <= WIDTH - 15:
            parts += [line((x, TOP - 6, x, bottom), "grid", True), text(x, bottom + 18, words, "middle")]
    parts.append(text((left + WIDTH - 16) / 2, height - 6, "milliseconds", "middle"))
    x = left
    for kind in kinds:
        parts += [_bar(x, 26, 10, 10, colors[kind]), text(x + 15, 35, kind)]
        x += 30 + text_width(kind, SIZE)
    for i, lane in enumerate(lanes):
        parts.append(text(left - 8, TOP + LANE * i + 13, lane, "end"))
    for row in rows:
        y = TOP + LANE * lanes.index(row["lane"])
        begin, end = across(row["begin"]), across(row["end"])
        hint = f"{row['kind']} {row['name']}: {row['begin'] * 1e3:.4g} to {row['end'] * 1e3:.4g} ms"
        parts.append(
            _bar(begin, y, max(0.8, end - begin - 0.8), BAR, colors[row["kind"]], hint, row.get("faint", False))
        )
    return "".join([*parts, "</svg>\n"])


def _bar(x: float, y: float, width: float, height: float, color: str, hint: str = "", faint: bool = False) -> str:
    color += '" fill-opacity="0.62' if faint else ""
    said = f"><title>{html.escape(hint)}</title></rect>" if hint else "/>"
    return f'<rect x="{x:.5g}" y="{y:.5g}" width="{width:.4g}" height="{height:.4g}" rx="2" fill="{color}"{said}'


def _order(lane: str) -> tuple[bool, str, int]:
    """Sort key of lanes: workers by number, then the others by name, descending, so that copy is above device."""
    words = lane.rsplit(" ", 1)
    numbered = len(words) == 2 and words[1].isdigit()
    return not numbered, words[0], int(words[1]) if numbered else 0
