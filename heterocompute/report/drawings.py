"""Pictures for the pages of commands, as SVG from plain values: a scatter plot with two logarithmic axes, and bars."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import NamedTuple

from .chart import Chart, Dot, Key, text
from .numbers import quantity
from .page import legend
from .palette import FAMILIES, SERIES, Mark, family
from .scale import logarithmic

SIZES = (("broad", 1060, 430), ("narrow", 340, 360))  # the second for narrow screens
MAX_NAMES = 30
LEFT, ROW, WIDTH = 230, 22, 860
MAX_BARS = 24


class Point(NamedTuple):
    """A dot: its position, its name, and the format that selects its mark; without a format, the first mark."""

    x: float
    y: float
    name: str
    format: str = ""


def scatter(points: Sequence[Point], x_title: str, y_title: str, title: str) -> str:
    """Return a picture of points for broad and for narrow screens, with its key; empty where no point can be drawn.

    Parameters
    ----------
    points : sequence of Point
        Those that are not above 0 have no place on logarithmic axes and are left out.
    x_title, y_title : str
        With units.
    title : str
        Alternative text.
    """
    held = [point for point in points if point.x > 0 and point.y > 0]
    if not held:
        return ""
    marks = {point: mark_of(point) for point in held}
    keys = [Key(mark, mark.words) for mark in dict.fromkeys(marks.values())] if any(p.format for p in held) else []
    drawn = []
    for kind, width, height in SIZES:
        x = logarithmic([point.x for point in held], room=5 if width < 600 else 9)
        y = logarithmic([point.y for point in held], room=7)
        x, y = (scale._replace(ticks=[(value, _tick(value)) for value, _ in scale.ticks]) for scale in (x, y))
        dots = [Dot(point.x, point.y, marks[point], point.name, point.name, hint=point.name) for point in held]
        named = range(min(len(dots), MAX_NAMES))
        chart = Chart(x, y, width, height, x_title, y_title, title=title, dots=dots, named=named)
        drawn.append(f'<div class="{kind}">{chart.svg()}</div>')
    return f'<div class="controls">{legend(keys)}</div>{"".join(drawn)}'


def _tick(value: float) -> str:
    """Return a value with a prefix of its unit, or as it is where that is short."""
    return f"{value:g}" if 0.1 <= value < 10_000 else quantity(value)


def mark_of(point: Point) -> Mark:
    """Return the mark of a point."""
    return FAMILIES[family(point.format)] if point.format else SERIES[0]


def bars(rows: Sequence[tuple[str, float]], unit: str, title: str) -> str:
    """Return horizontal bars, the longest first; empty where there is none.

    Parameters
    ----------
    rows : sequence of (str, float)
        Names and lengths.
    title : str
        Alternative text.
    """
    held = sorted((row for row in rows if row[1] > 0), key=lambda row: -row[1])
    shown = held[:MAX_BARS]
    if not shown:
        return ""
    whole = sum(value for _, value in held)
    words = [(name if len(name) <= 34 else f"{name[:33]}\u2026", value) for name, value in shown]
    return "".join(
        f'<div class="{kind}">{_bars(words, whole, unit, title, kind == "narrow")}</div>' for kind, _, _ in SIZES
    )


def _bars(rows: Sequence[tuple[str, float]], whole: float, unit: str, title: str, narrow: bool) -> str:
    """Return bars with their names to the left, on a narrow screen above them."""
    width, left, row = (340, 0, 38) if narrow else (WIDTH, LEFT, ROW)
    lines = []
    for i, (name, value) in enumerate(rows):
        top, wide = 8 + i * row, max(1.0, (width - left - 150) * value / rows[0][1])
        lines.append(text(0, top + 10, name) if narrow else text(left - 8, top + 12, name, "end"))
        top += 14 if narrow else 0
        lines.append(
            f'<rect x="{left}" y="{top}" width="{wide:.1f}" height="{ROW - 7}" fill="{SERIES[0].color}" rx="2"/>'
        )
        lines.append(text(left + wide + 6, top + 12, f"{quantity(value, unit)}, {value / whole:.1%}"))
    return (
        f'<svg viewBox="0 0 {width} {16 + len(rows) * row}" role="img" aria-label="{html.escape(title)}" '
        f'font-size="12.5" fill="currentColor"><title>{html.escape(title)}</title>{"".join(lines)}</svg>'
    )
