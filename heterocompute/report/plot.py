"""Figures from plain lists of dicts, with matplotlib (the extra `plot`)."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .chart import Dot, steps
from .labels import place
from .palette import FAMILIES, GREY, SERIES, Mark, family
from .scale import Scale
from .study import layer_key, pivot, shortly
from .study_page import AXIS, Judge, View, chart_of, corners, dots_of

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
    scatter(left, figure, rows, judge)
    for axes, view in zip(below, views, strict=True):
        scatter(axes, figure, view.rows, view.judge, view.title, view.axis)
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


def scatter(
    axes: Any, figure: Any, rows: Sequence[Row], judge: Judge, title: str | None = None, axis: str = AXIS
) -> None:
    """Draw a metric of rows against bits, with names and the Pareto front; without a title also the legend."""
    axes.grid(True, color="#8885", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xscale("log", base=2)
    axes.set_xlabel(axis)
    axes.set_ylabel(judge.title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title or "What a bit buys", loc="left", fontsize=11, fontweight="bold")
    dots, named = dots_of(rows, judge)
    if not dots:
        return
    scales = chart_of(dots, judge, 700, 400)
    _set_scale(axes.yaxis, axes.set_ylim, scales.y)
    axes.set_xlim(scales.x.value(0), scales.x.value(1))
    axes.set_xticks([value for value, _ in scales.x.ticks], [words for _, words in scales.x.ticks])
    axes.minorticks_off()
    alike: dict[Dot, list[Dot]] = {}
    for dot in dots:
        alike.setdefault(replace(dot, x=0.0, y=0.0, name="", kind="", row=None), []).append(dot)
    for look, members in alike.items():
        _draw(axes, look, [dot.x for dot in members], [dot.y for dot in members])
    stairs = corners(dots, judge)
    if stairs:
        axes.plot(
            *zip(*stairs, strict=True), drawstyle="steps-post", color=FRONT_COLOR, ls="--", linewidth=1.3, zorder=1
        )
    if title is None:
        _legend(figure, axes, rows, bool(stairs))
    write_names(figure, axes, dots, named, stairs)


def _set_scale(axis: Any, set_limits: Any, scale: Scale) -> None:
    functions = tuple(lambda values, f=f: np.vectorize(f, otypes=[float])(values) for f in (scale.place, scale.value))
    axis._set_axes_scale("function", functions=functions)
    set_limits(scale.value(0), scale.value(1))
    axis.set_ticks([value for value, _ in scale.ticks], [words for _, words in scale.ticks])


def _draw(axes: Any, look: Dot, x: list[float], y: list[float]) -> None:
    color, paper = look.mark.color, axes.get_facecolor()
    size = 2 * RADIUS * (LARGER if look.large else 1.0)
    style: dict[str, Any] = {"color": color, "linestyle": "none", "marker": marker_of(look.mark), "gid": "dot"}
    axes.plot(x, y, markersize=size, markerfacecolor=paper if look.hollow else color, **style)
    if look.ring:
        axes.plot(x, y, "o", markersize=size + 6, color=color, fillstyle="none", gid="ring")
    if look.inner:
        axes.plot(x, y, "o", markersize=2.5, color=color if look.hollow else paper, gid="point")


def marker_of(mark: Mark) -> Any:
    return [*mark.corners, mark.corners[0]] if mark.corners else "o"


def _legend(figure: Any, axes: Any, rows: Sequence[Row], stairs: bool) -> None:
    """Draw the legend below the axes, where it covers nothing."""
    present = {family(row["format"]) for row in rows}
    for name, mark in FAMILIES.items():
        if name in present:
            axes.plot([], [], color=mark.color, marker=marker_of(mark), linestyle="none", label=mark.words)
    more = {"color": GREY, "linestyle": "none", "marker": "o", "markerfacecolor": "none"}
    if any(row["activations"] for row in rows):
        axes.plot([], [], label="hollow: activations quantized too", **more)
    if any(row.get("emulate") for row in rows):
        axes.plot([], [], label="with a point: accumulator emulated", **{**more, "marker": "$\\odot$"})
    if any(row.get("retrained") for row in rows):
        axes.plot([], [], label="in a ring: retrained", **{**more, "marker": "$\\circledcirc$"})
    if stairs:
        axes.plot([], [], label="Pareto front", color=FRONT_COLOR, linestyle="--", linewidth=1.3)
    figure.legend(loc="outside lower left", ncols=7, fontsize=8, frameon=False)


def write_names(
    figure: Any, axes: Any, dots: Sequence[Dot], named: Sequence[int], front: Sequence[tuple[float, float]]
) -> None:
    """Write names where they do not overlap, after the layout is final; lengths are in points."""
    figure.draw_without_rendering()
    unit = 72 / figure.dpi
    x, y = (axes.transData.transform([(dot.x, dot.y) for dot in dots]) * unit).T
    grown = [RADIUS * (LARGER if dot.large else 1.0) + 3 * dot.ring + 0.5 for dot in dots]
    frame = axes.get_window_extent()
    box = (frame.x0 * unit + 1, -frame.y1 * unit - 8, frame.x1 * unit + 4, -frame.y0 * unit - 1)
    wanted = [(i, dots[i].name, dots[i].kind) for i in named]
    turned = [(a * unit, -b * unit) for a, b in axes.transData.transform(front)] if front else []
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": NAME_SIZE, "parse_math": False}
    arrow = {"arrowstyle": "-", "color": GREY, "linewidth": 0.7, "shrinkA": 0, "shrinkB": RADIUS}
    for label in place(wanted, np.column_stack([x, -y, grown]), box, NAME_SIZE, rails=steps(turned, box[2])):
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


def density_figure(
    base: Row, curves: dict[tuple[str, str, bool | None], list[Row]], lowest: Sequence[Row], metric: str, slack: float
) -> Any:
    """Draw a metric against density, one panel for each kind of layers; a ring marks the lowest within the slack.

    Parameters
    ----------
    base : dict
        The row of the network as it came.
    curves : dict of (layers, structure, retrained) to list of dict
        The densest row first.
    lowest : sequence of dict
        One row for each curve.
    metric : str
    slack : float
        The loss at which the vertical scale turns from linear to logarithmic.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    figure = new_figure(11, 4.4)
    kinds = list(dict.fromkeys(layers for layers, _, _ in curves))
    structures = list(dict.fromkeys(structure for _, structure, _ in curves))
    start = base[metric]
    for axes, layers in zip(figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0], kinds, strict=True):
        for (kind, structure, retrained), rows in curves.items():
            found = [row for row in rows if row[metric] is not None and row["density"] > 0]
            if kind != layers or start is None or not found:
                continue
            mark = SERIES[structures.index(structure) % len(SERIES)]
            color, line = mark.color, "-" if retrained else "--"
            axes.plot(
                [1, *(row["density"] for row in found)],
                [0, *(row[metric] - start for row in found)],
                linestyle=line,
                marker=marker_of(mark),
                color=color,
                markerfacecolor=color if retrained else axes.get_facecolor(),
                markersize=5,
                label=structure + (", retrained" if retrained else ", one-shot"),
            )
            for row in lowest:
                if (row["layers"], row["structure"], row["retrained"]) == (layers, structure, retrained):
                    axes.plot(row["density"], row[metric] - start, "o", color=color, markersize=11, fillstyle="none")
        axes.axhline(0, color="#8885", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=slack)
        axes.invert_xaxis()
        axes.grid(True, color="#8885", linewidth=0.5)
        axes.set_xlabel("density: share of weights kept")
        axes.set_title(f"{layers} layers pruned", loc="left", fontsize=11, fontweight="bold")
        axes.spines[["top", "right"]].set_visible(False)
    words = metric if start is None else f"{metric}, change from {start:.4g}"
    figure.axes[0].set_ylabel("\n".join(textwrap.wrap(words, 48)))
    figure.axes[0].legend(fontsize=8, loc="upper right")
    return figure
