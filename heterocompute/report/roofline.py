"""The roof of a device with the layers of a network below it: a page, from what `Roofline.to_dict` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import atan2, degrees, log10
from typing import Any

from .chart import Chart, Curve, Dot, Key, outline, text
from .numbers import percent, quantity
from .page import legend, page as whole_page, section, table, tiles
from .palette import BOUNDS
from .plot import draw, new_figure
from .scale import logarithmic

MAX_NAMES_DRAWN = 10  # in a figure
MAX_NAMES = 24  # names placed next to dots, those that take longest first
SIZES = (("broad", 1060, 420), ("narrow", 340, 360))

Row = Mapping[str, Any]
NAME = "The layers under the roof"
SCRIPT = "tellRows((i) => data[i]);"


def alike(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[int]]:
    """Return the rows at each position under the roof, to a hundredth of a decade: networks repeat their layers."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for i, row in enumerate(rows):
        if row["intensity"] and row["operations"]:
            place = (row["intensity"], row["operations"] / row["seconds"])
            found.setdefault((*(round(100 * log10(value)) for value in place), row["bound"]), []).append(i)
    return found


def dots_of(rows: Sequence[Row]) -> tuple[list[Dot], list[int]]:
    """Return one dot for all layers at a position, named by the first and a count, and the order of the names."""
    dots, taken = [], []
    for members in alike(rows).values():
        row = rows[members[0]]
        name = f"{row['name']} and {len(members) - 1} more" if len(members) > 1 else row["name"]
        place = (row["intensity"], row["operations"] / row["seconds"])
        dots.append(Dot(*place, BOUNDS[row["bound"]], name, name, members[0]))
        taken.append(sum(rows[i]["seconds"] for i in members))
    named = sorted(range(len(dots)), key=lambda i: -taken[i])
    return dots, named[:MAX_NAMES]


def roof(found: Mapping[str, Any], width: int, height: int, title: str = "") -> Chart:
    """Return the roof and the layers, both axes logarithmic.

    Parameters
    ----------
    found : mapping
        As `Roofline.to_dict` returns it.
    title : str, optional
        Of a picture that is a file of its own instead of a part of a page.
    """
    dots, named = dots_of(found["layers"])
    peak, bandwidth = found["peak"], found["bandwidth"]
    ridge = peak / bandwidth
    across = [ridge / 32, ridge * 8, *(dot.x for dot in dots)]
    low, high = min(across), max(across)
    up = [peak, low * bandwidth, *(dot.y for dot in dots)]
    room = 5 if width < 600 else 9
    x, y = logarithmic(across, room=room), logarithmic([*up, peak * 1.6], room=7)
    y = y._replace(ticks=[(value, quantity(value)) for value, _ in y.ticks])
    titles = ("operations a byte of memory traffic", f"operations/s, {found['dtype']}")
    return Chart(
        x, y, width, height, *titles, size=13 if title else 12, standalone=bool(title), title=title or NAME,
        dots=dots, named=named, curves=[Curve([(low, low * bandwidth), (ridge, peak), (high, peak)], width=2.5)],
        keys=[Key(mark, f"{bound}-bound") for bound, mark in BOUNDS.items()],
    )  # fmt: skip


def roofline_svg(found: Mapping[str, Any], width: int, height: int, title: str = "") -> str:
    """Draw `roof` as SVG."""
    chart = roof(found, width, height, title)
    (x1, y1), (x2, y2), (x3, _) = (chart.at(*corner) for corner in chart.curves[0].points)
    slope = degrees(atan2(y2 - y1, x2 - x1))
    middle = (x1 + x2) / 2, (y1 + y2) / 2 - 7
    turned = f' transform="rotate({slope:.1f} {middle[0]:.5g} {middle[1]:.5g})"'
    under, rails = [
        text(x3, y2 - 34, f"peak {quantity(found['peak'])} operations/s", "end"),  # above the names of dots on the roof
        text(*middle, f"{quantity(found['bandwidth'], 'B/s')}", "middle", more=turned),
    ], []  # fmt: skip
    if title:  # the page shows its key above the picture
        left, top, *_ = chart.frame
        for i, key in enumerate(chart.keys):
            at = top + 16 + 20 * i
            under += [f'<path d="{outline(key.mark, left + 14, at, 5)}" fill="{key.mark.color}"/>']
            under += [text(left + 26, at + 5, key.words)]
            rails.append((left, at, left + 130, at))
    return chart.svg(under, rails)


def roofline_figure(found: Mapping[str, Any]) -> Any:
    """Draw `roof` with matplotlib.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    figure, chart, ridge = new_figure(7, 4.4), roof(found, 700, 440), found["peak"] / found["bandwidth"]
    upright = Curve([(ridge, chart.y.value(0)), (ridge, found["peak"])], style="dotted", is_rail=False)
    keys = [key for key in chart.keys if any(dot.mark == key.mark for dot in chart.dots)]
    chart = replace(chart, curves=[*chart.curves, upright], named=chart.named[:MAX_NAMES_DRAWN], keys=keys)
    weights = f", weights {found['format']}" if found["format"] != found["dtype"] else ""
    title = f"{found['network']} on {found['device']}{weights}, batch {found['batch']}, ridge {ridge:.4g}"
    axes = figure.subplots()
    axes.set_title(title, fontsize=11)
    draw(axes, figure, chart, legend="inside" if chart.dots else "")
    return figure


def roofline_page(found: Mapping[str, Any], title: str = "") -> str:
    """Return a page: the summary, the roof, and a table of the layers.

    Parameters
    ----------
    found : mapping
        As `Roofline.to_dict` returns it.

    Returns
    -------
    str
        HTML that fetches nothing.
    """
    rows = found["layers"]
    weights = "" if found["format"] == found["dtype"] else f", weights {found['format']}"
    figures = [
        (quantity(found["seconds"], "s"), "the least time of the whole batch"),
        (f"{found['bound']}-bound", "what takes most of it"),
        (_ratio(found["intensity"]), f"operations a byte; the ridge is at {_ratio(found['ridge'])}"),
        (percent(found["share"]), f"of the peak of {quantity(found['peak'])} operations/s"),
    ]
    if found.get("plain_seconds"):
        plain = quantity(found["plain_seconds"], "s")
        figures.append((f"{found['speedup']:.2f} x", f"as fast as with {found['dtype']} weights, {plain}"))
    words = f"{found['network']} on {found['device']}, {found['dtype']}{weights}, batch {found['batch']}. "
    words += "A dot is a layer, and layers that are alike; it can lie on the roof, not above. "
    words += "Under the slope memory bounds it, under the flat part arithmetic."
    drawn = "".join(f'<div class="{kind}">{roofline_svg(found, wide, high)}</div>' for kind, wide, high in SIZES)
    keys = legend(Key(mark, f"{bound}-bound") for bound, mark in BOUNDS.items())
    heads = ("layer", "operations", "traffic", "operations/B", "time", "bound by", "of the peak")
    lines = table(heads, [_cells(row) for row in rows], texts=(0, 5))
    note = f"{found['note']}." if found["note"] else ""
    body = (
        tiles(figures)
        + section("The roof", words, f'<div class="controls">{keys}</div>{drawn}')
        + section("Every layer", note, lines)
    )
    hints = [
        f"{row['name']}\n{quantity(row['operations'])} operations, {quantity(row['bytes'], 'B')}\n"
        f"{quantity(row['seconds'], 's')}, {row['bound']}-bound"
        for row in rows
    ]
    return whole_page(title or f"Roofline of {found['network']} on {found['device']}", body, hints, SCRIPT)


def _ratio(value: float | None) -> str:
    """Return operations per byte: a number without a prefix, since 0.991 should not read 991 m."""
    return "–" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _cells(row: Row) -> list[tuple[str, Any]]:
    intensity = row["intensity"]
    return [
        (row["name"], row["name"]),
        (quantity(row["operations"]), row["operations"]),
        (quantity(row["bytes"], "B"), row["bytes"]),
        (_ratio(intensity), "" if intensity is None else intensity),
        (quantity(row["seconds"], "s"), row["seconds"]),
        (row["bound"], row["bound"]),
        (percent(row["share"]), row["share"]),
    ]
