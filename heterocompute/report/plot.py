"""Figures from plain lists of dicts, with matplotlib (the extra `plot`). Imports nothing else of the package."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]

COLORS = ("#1f77d0", "#d9571c", "#6b4fbb", "#1c9a78", "#b0368f")
BASELINE_COLOR = "#7a8594"
MAX_LAYERS = 24


def study_figure(
    rows: Sequence[Row],
    layers: Sequence[Row],
    front: Sequence[int],
    metric: str,
    higher: bool,
) -> Any:
    """Draw the metric against stored bits, with the Pareto front, and SQNR by tensor and format.

    Parameters
    ----------
    rows, layers : sequence of dict
        As `heterocompute.study` returns them, the worst tensor first.
    front : sequence of int
        Rows on the Pareto front.
    metric : str
        Column of `rows`.
    higher : bool
        Whether more of `metric` is better.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    lossy = [row for row in layers if row["format"] != "fp32"]
    names = list(dict.fromkeys(row["name"] for row in lossy))[:MAX_LAYERS]
    formats = list(dict.fromkeys(row["format"] for row in lossy))
    height = 4.4 if not names else max(4.4, 1.4 + 0.26 * max(len(names), len(formats)))
    figure = _figure_type()(figsize=(12 if names else 7, min(height, 9)), layout="constrained")
    if names:
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        _heat(right, figure, names, formats, {(r["name"], r["format"]): r["sqnr_db"] for r in lossy})
    else:
        left = figure.subplots()
    _scatter(left, rows, front, metric, higher)
    return figure


def _figure_type() -> Any:
    try:
        from matplotlib.figure import Figure  # optional
    except ImportError:
        raise ImportError("plot needs matplotlib: pip install heterocompute[plot]") from None

    class StudyFigure(Figure):
        def _repr_png_(self) -> bytes:  # Jupyter shows it without pyplot
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=75)
            return buffer.getvalue()

    return StudyFigure


def _family(text: str) -> str:
    if re.search(r"[0-9]:[0-9]", text) and "=" not in text:
        return "sparse"
    return "mixed" if "=" in text else re.match("[a-z]*", text)[0] or text  # type: ignore[index]


def _scatter(axes: Any, rows: Sequence[Row], front: Sequence[int], metric: str, higher: bool) -> None:
    families = [f for f in dict.fromkeys(_family(row["format"]) for row in rows) if f != "fp"]
    color = {"fp": BASELINE_COLOR} | {f: COLORS[i % len(COLORS)] for i, f in enumerate(families)}
    points = [(i, row) for i, row in enumerate(rows) if row["bits"] and row[metric] is not None]
    axes.grid(True, color="#8885", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("stored bits a value")
    axes.set_ylabel("SQNR (dB)" if metric == "sqnr_db" else metric)
    axes.spines[["top", "right"]].set_visible(False)
    if not points:
        return
    spread = metric != "sqnr_db" and _spread_out(axes, [row[metric] for _, row in points], higher)
    for family in dict.fromkeys(_family(row["format"]) for _, row in points):
        members = [row for _, row in points if _family(row["format"]) == family]
        for plain, marker in ((True, "o"), (False, "o"), (False, "^"), (True, "D"), (False, "D")):
            kind = [row for row in members if bool(row.get("emulate")) == (marker == "^")]
            kind = [row for row in kind if marker == "^" or bool(row.get("retrained")) == (marker == "D")]
            found = [row for row in kind if marker == "^" or (row["activations"] is None) == plain]
            if found:
                label = "fp32" if family == "fp" else family
                axes.plot(
                    [row["bits"] for row in found],
                    [row[metric] for row in found],
                    marker,
                    color=color[family],
                    markerfacecolor=color[family] if plain else "none",
                    label=label if plain and marker == "o" else None,
                    markersize=6 if plain or marker == "D" else 8,
                    linestyle="none",
                )
    if any(row["activations"] for _, row in points):
        axes.plot([], [], "o", color="#888", markerfacecolor="none", markersize=8, label="activations quantized too")
    if any(row.get("emulate") for _, row in points):
        axes.plot([], [], "^", color="#888", markerfacecolor="none", markersize=8, label="accumulator emulated")
    if any(row.get("retrained") for _, row in points):
        axes.plot([], [], "D", color="#888", markersize=6, label="retrained")
    best = [row for i, row in points if i in set(front)]
    best.sort(key=lambda row: row["bits"])
    if best:
        axes.plot([r["bits"] for r in best], [r[metric] for r in best], drawstyle="steps-post", color="#0b6e4f",
                  linestyle="--", linewidth=1.3, zorder=1, label="Pareto front")  # fmt: skip
    named = set()
    for row in best:
        name = row["format"] + " retrained" * bool(row.get("retrained"))
        if name not in named:
            named.add(name)
            axes.annotate(name, (row["bits"], row[metric]), (6, -11), textcoords="offset points", fontsize=8)
    low, high = min(row["bits"] for _, row in points), max(row["bits"] for _, row in points)
    ticks = [b for b in (1, 1.5, 2, 3, 4, 6, 8, 16, 32, 64) if low * 0.9 <= b <= high * 1.1]
    axes.set_xticks(ticks, [f"{b:g}" for b in ticks])
    axes.minorticks_off()
    axes.legend(fontsize=8, loc="lower right" if higher or not spread else "upper right", framealpha=0.9)
    axes.set_title("What a bit buys", loc="left", fontsize=11, fontweight="bold")


def _spread_out(axes: Any, values: list[float], higher: bool) -> bool:
    """Most formats crowd near the best value: distance from it on a logarithmic scale shows them and the bad ones."""
    best, worst = (max(values), min(values)) if higher else (min(values), max(values))
    gaps = sorted(abs(best - value) for value in values)
    reach = abs(best - worst)
    if len(values) <= 4 or gaps[len(gaps) // 2] >= 0.15 * reach:
        return False
    floor = max(next(gap for gap in gaps if gap > 0), 0.003 * reach)
    sign = -1 if higher else 1

    def place(value: Any) -> Any:
        offset = (np.asarray(value, np.float64) - best) * sign
        return sign * np.sign(offset) * np.log10(1 + np.abs(offset) / floor)

    def value(placed: Any) -> Any:
        offset = np.asarray(placed, np.float64) * sign
        return best + sign * np.sign(offset) * floor * (10 ** np.abs(offset) - 1)

    axes.set_yscale("function", functions=(place, value))
    top = math.log10(1 + reach / floor)
    ticks, last = [], math.inf
    for step in [0.0, *(m * 10.0**k for k in range(-9, 9) for m in (1, 2, 5))]:
        tick = _round_near(best + sign * step, step / 4)
        at = math.log10(1 + abs(tick - best) / floor)
        if at <= top * 1.08 and (last == math.inf or at - last > top * 0.07):
            ticks.append(tick)
            last = at
    axes.set_yticks(ticks, [f"{tick:.6g}" for tick in ticks])
    axes.set_ylim(*sorted((float(value(-sign * 0.08 * top)), float(value(sign * 1.1 * top)))))
    return True


def _round_near(value: float, within: float) -> float:
    """The roundest number that is no further from `value` than `within`."""
    if within <= 0:
        return round(value, 4)
    for power in range(9, -12, -1):
        rounded = round(value / 10.0**power) * 10.0**power
        if abs(rounded - value) <= within:
            return rounded
    return value


def _heat(axes: Any, figure: Any, names: list[str], formats: list[str], found: dict[tuple[str, str], Any]) -> None:
    down, across = (names, formats) if len(names) >= len(formats) else (formats, names)
    grid = np.full((len(down), len(across)), np.nan)
    for i, a in enumerate(down):
        for j, b in enumerate(across):
            value = found.get((a, b) if down is names else (b, a), math.nan)
            grid[i, j] = 99.0 if value is None else value
    image = axes.imshow(grid, aspect="auto", cmap="RdYlGn", vmin=0, vmax=45, alpha=0.7)
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
    axes.set_title("SQNR of the weights (dB)", loc="left", fontsize=11, fontweight="bold")
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
    figure = _figure_type()(figsize=(11, 4.4), layout="constrained")
    kinds = list(dict.fromkeys(layers for layers, _, _ in curves))
    structures = list(dict.fromkeys(structure for _, structure, _ in curves))
    start = base[metric]
    for axes, layers in zip(figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0], kinds, strict=True):
        for (kind, structure, retrained), rows in curves.items():
            found = [row for row in rows if row[metric] is not None and row["density"] > 0]
            if kind != layers or start is None or not found:
                continue
            color = COLORS[structures.index(structure) % len(COLORS)]
            axes.plot(
                [1, *(row["density"] for row in found)],
                [0, *(row[metric] - start for row in found)],
                "o-" if retrained else "o--",
                color=color,
                markerfacecolor=color if retrained else "none",
                markersize=4,
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
