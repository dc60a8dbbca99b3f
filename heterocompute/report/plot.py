"""Figures from plain lists of dicts, with matplotlib (the extra `plot`)."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from .chart import Chart, Dot, steps
from .labels import place
from .palette import FAMILIES, GREY, Mark
from .scale import Scale
from .study import Judge, layer_key, pivot, shortly
from .study_page import View, chart_of

Row = dict[str, Any]

FRONT_COLOR = FAMILIES["codebook"].color
MAX_LAYERS = 24
RADIUS, LARGER, NAME_SIZE = 3.2, 1.35, 8.0  # points


def study_figure(rows: Sequence[Row], layers: Sequence[Row], judge: Judge, views: Sequence[View] = ()) -> Any:
    """Draw a metric against stored bits, with the Pareto front, and SQNR by tensor and format.

    Parameters
    ----------
    rows, layers : sequence of dict
        As `heterocompute.study` returns them, the worst tensor first.
    judge : Judge
        The column of `rows` that is drawn.
    views : sequence of View, optional
        Further pictures, drawn below.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    rows, _ = shortly(rows)
    names, formats, found = pivot(layers)
    names = names[:MAX_LAYERS]
    height = 4.8 if not names else max(4.8, 1.4 + 0.26 * max(len(names), len(formats)))
    height = min(height, 9)
    figure = new_figure(13 if names or views else 8, height + 4.8 * bool(views))
    grid = figure.add_gridspec(1 + bool(views), 1, height_ratios=[height, *[4.8] * bool(views)])
    above = grid[0].subgridspec(1, 1 + bool(names), width_ratios=(3, 2) if names else (1,))
    if names:
        left, right = above.subplots()
        _heat(right, figure, names, formats, found, layer_key(layers))
    else:
        left = above.subplots()
    below = [] if not views else list(grid[1].subgridspec(1, len(views)).subplots(squeeze=False)[0])
    draw(left, figure, chart_of(rows, judge, 700, 400), "What a bit buys", "below")
    for axes, view in zip(below, views, strict=True):
        draw(axes, figure, chart_of(view.rows, view.judge, 700, 400, view.axis), view.title)
    return figure


def figure_of(chart: Chart) -> Any:
    """Return a figure of one chart in its proportions, with its legend below."""
    figure = new_figure(chart.width / 90, chart.height / 90 + 0.4)
    draw(figure.subplots(), figure, chart, legend="below" if chart.keys else "")
    return figure


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure, in inches, which Jupyter shows; ImportError without matplotlib."""
    try:
        from matplotlib.figure import Figure  # optional
    except ImportError:
        raise ImportError("plot needs matplotlib: pip install 'heterocompute[plot]'") from None

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:  # Jupyter shows it without pyplot
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=75)
            return buffer.getvalue()

    return ShownFigure(figsize=(width, height), layout="constrained")


def draw(axes: Any, figure: object, chart: Chart, title: str = "", legend: Literal["", "inside", "below"] = "") -> None:
    """Draw a chart as the SVG shows it: axes, curves, dots, the front and names; the legend in the axes or below."""
    axes.grid(True, color="#8885", linewidth=0.5)
    axes.set_axisbelow(True)
    _set_scale(axes.xaxis, axes.set_xlim, chart.x)
    _set_scale(axes.yaxis, axes.set_ylim, chart.y)
    axes.minorticks_off()
    axes.set_xlabel(chart.x_title)
    axes.set_ylabel("\n".join(textwrap.wrap(chart.y_title, 48)))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title or chart.heading, loc="left", fontsize=11, fontweight="bold")
    for curve in chart.curves:
        line = {"color": curve.color, "linestyle": curve.style, "linewidth": 0.8 * curve.width, "zorder": 1}
        line |= {"alpha": curve.opacity, "solid_capstyle": "butt"}
        axes.plot(*zip(*curve.points, strict=True), label=curve.label or None, **line)
    alike: dict[Dot, list[Dot]] = {}
    for dot in chart.dots:
        alike.setdefault(replace(dot, x=0.0, y=0.0, name="", kind="", row=None, hint=""), []).append(dot)
    for look, members in alike.items():
        _draw(axes, look, [dot.x for dot in members], [dot.y for dot in members])
    if chart.front:
        style = {"drawstyle": "steps-post", "color": FRONT_COLOR, "ls": "--", "linewidth": 1.3, "zorder": 1}
        axes.plot(*zip(*chart.front, strict=True), **style)
    if legend:
        _legend(axes if legend == "inside" else figure, axes, chart)
    if chart.named:
        _write_names(figure, axes, chart)


def _set_scale(axis: Any, set_limits: Any, scale: Scale) -> None:
    functions = tuple(lambda values, f=f: np.vectorize(f, otypes=[float])(values) for f in (scale.place, scale.value))
    axis._set_axes_scale("function", functions=functions)
    set_limits(*sorted((scale.value(0), scale.value(1))))  # also of a scale that falls
    axis.set_ticks([value for value, _ in scale.ticks], [words for _, words in scale.ticks])


def _draw(axes: Any, look: Dot, x: list[float], y: list[float]) -> None:
    color, paper = look.mark.color, axes.get_facecolor()
    size = 2 * RADIUS * (LARGER if look.large else 1.0)
    style: dict[str, Any] = {"color": color, "linestyle": "none", "marker": marker_of(look.mark), "gid": "dot"}
    style |= {"alpha": 0.7} if look.faint else {}
    axes.plot(x, y, markersize=size, markerfacecolor=paper if look.hollow else color, **style)
    if look.ring:
        axes.plot(x, y, "o", markersize=size + 6, color=color, fillstyle="none", gid="ring")
    if look.inner:
        axes.plot(x, y, "o", markersize=2.5, color=color if look.hollow else paper, gid="point")


def marker_of(mark: Mark) -> Any:
    return [*mark.corners, mark.corners[0]] if mark.corners else "o"


def _legend(home: Any, axes: Any, chart: Chart) -> None:
    """Draw the legend into the axes, or below them, where it covers nothing."""
    for key in chart.keys:
        style = {"color": key.mark.color, "linestyle": key.style or "none", "marker": marker_of(key.mark)}
        style |= {"markerfacecolor": "none"} if key.hollow else {}
        style |= {"marker": "$\\odot$"} if key.inner else {}
        style |= {"marker": "o", "markersize": 9, "markerfacecolor": "none"} if key.ring else {}
        axes.plot([], [], label=key.words, **style)
    if chart.front:
        axes.plot([], [], label="Pareto front", color=FRONT_COLOR, linestyle="--", linewidth=1.3)
    where = {"loc": "outside lower left", "ncols": 7, "frameon": False} if home is not axes else {}
    home.legend(fontsize=8, **where)


def _write_names(figure: Any, axes: Any, chart: Chart) -> None:
    """Write names where they do not overlap, after the layout is final; lengths are in points."""
    dots = chart.dots
    figure.draw_without_rendering()
    unit = 72 / figure.dpi
    x, y = (axes.transData.transform([(dot.x, dot.y) for dot in dots]) * unit).T
    grown = [RADIUS * (LARGER if dot.large else 1.0) + 3 * dot.ring + 0.5 for dot in dots]
    frame = axes.get_window_extent()
    box = (frame.x0 * unit + 1, -frame.y1 * unit - 8, frame.x1 * unit - 8, -frame.y0 * unit - 1)
    wanted = [(i, dots[i].name, dots[i].kind) for i in chart.named]

    def turned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(a * unit, -b * unit) for a, b in axes.transData.transform(points)] if points else []

    rails = steps(turned(chart.front), box[2])
    for curve in chart.curves:
        places = turned(curve.points)
        rails += [(*places[i], *places[i + 1]) for i in range(len(places) - 1) if curve.is_rail]
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": NAME_SIZE, "parse_math": False}
    arrow = {"arrowstyle": "-", "color": GREY, "linewidth": 0.7, "shrinkA": 0, "shrinkB": RADIUS}
    for label in place(wanted, np.column_stack([x, -y, grown]), box, NAME_SIZE, rails=rails):
        at, (left, base) = dots[label.row], (label.x - x[label.row], -label.y - y[label.row])
        added = [axes.annotate(label.text, (at.x, at.y), (left, base), **style)]
        if label.leader is not None:
            end = (label.leader[2] - x[label.row], -label.leader[3] - y[label.row])
            added.append(axes.annotate("", (at.x, at.y), end, arrowprops=arrow, **style))
        for words in added:
            words.set_in_layout(False)


def _heat(
    axes: Any, figure: Any, names: list[str], formats: list[str], found: dict[tuple[str, str], Any], key: str
) -> None:
    down, across = (names, formats) if len(names) >= len(formats) else (formats, names)
    grid = np.full((len(down), len(across)), np.nan)
    for i, a in enumerate(down):
        for j, b in enumerate(across):
            value = found.get((a, b) if down is names else (b, a), math.nan)
            grid[i, j] = 99.0 if value is None else value
    image = axes.imshow(grid, aspect="auto", cmap="RdYlBu", vmin=0, vmax=45, alpha=0.7)
    if grid.size <= 200:
        for i, j in np.ndindex(grid.shape):
            if math.isfinite(grid[i, j]):
                exact = found.get((down[i], across[j]) if down is names else (across[j], down[i])) is None
                axes.text(
                    j,
                    i,
                    "exact" if exact else f"{grid[i, j]:.0f}",
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color="#111",
                )
    axes.set_xticks(range(len(across)), across, rotation=35, ha="right", fontsize=8)
    axes.set_yticks(range(len(down)), down, fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(
        "SQNR of the weights (dB)" if key == "sqnr_db" else "SQNR of layers' outputs (dB)",
        loc="left",
        fontsize=11,
        fontweight="bold",
    )
    figure.colorbar(image, ax=axes, shrink=0.8)
