"""Figures of the model side, from plain dicts, with matplotlib (the extra `plot`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .chart import Dot
from .palette import BOUNDS, FAMILIES, GREY, SERIES, family
from .plot import marker_of, new_figure, write_names
from .roofline import dots_of

__all__ = ["TITLES", "front_figure", "line_figure", "roofline_figure"]


MAX_NAMES = 10
#: Titles of columns of an exploration.
TITLES = {
    "energy": "energy on chip (J)", "dram_energy": "energy of DRAM (J)", "seconds": "time (s)", "area": "area (mm^2)",
    "edp": "energy times time (J s)",
}  # fmt: skip


def roofline_figure(found: Mapping[str, Any]) -> Any:
    """Draw layers under a roof.

    Parameters
    ----------
    found : mapping
        As `Roofline.to_dict` returns it.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    figure = new_figure(7, 4.4)
    axes = figure.subplots()
    rows = [row for row in found["layers"] if row["intensity"] and row["operations"]]
    peak, bandwidth = found["peak"], found["bandwidth"]
    ridge = peak / bandwidth
    low = min([ridge / 64, *(row["intensity"] / 2 for row in rows)])
    high = max([ridge * 16, *(row["intensity"] * 2 for row in rows)])
    axes.plot([low, ridge, high], [low * bandwidth / 1e12, peak / 1e12, peak / 1e12], color=GREY, linewidth=1.8)
    dots, named = dots_of(found["layers"])
    dots = [replace(dot, y=dot.y / 1e12) for dot in dots]
    for bound, mark in BOUNDS.items():
        chosen = [(dot.x, dot.y) for dot in dots if dot.mark == mark]
        if not chosen:
            continue
        across, up = [x for x, _ in chosen], [y for _, y in chosen]
        style = {"color": mark.color, "marker": marker_of(mark), "linestyle": "none", "gid": "dot"}
        axes.plot(across, up, label=f"{bound}-bound", **style)
    axes.axvline(ridge, color=GREY, linestyle=":", linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("operations a byte of DRAM traffic")
    axes.set_ylabel(f"10^12 operations/s ({found['dtype']})")
    weights = f", weights {found['format']}" if found["format"] != found["dtype"] else ""
    title = f"{found['network']} on {found['device']}{weights}, batch {found['batch']}, ridge {ridge:.4g}"
    axes.set_title(title, fontsize=11)
    axes.grid(True, color="#8885", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    if dots:
        axes.legend(fontsize=8, loc="upper left")
        write_names(figure, axes, dots, named[:MAX_NAMES], ())
    return figure


def line_figure(
    rows: Sequence[Mapping[str, Any]], x: str, lines: Mapping[str, str], title: str, mark: float | None = None
) -> Any:
    """Draw columns of rows against another, both axes logarithmic.

    Parameters
    ----------
    rows : sequence of mapping
    x : str
        Key of the horizontal axis.
    lines : mapping of str to str
        Keys of the lines, with their labels.
    title : str
    mark : float, optional
        A place on the horizontal axis to mark.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    figure = new_figure(3.6 * len(lines), 3.4)
    panels = figure.subplots(1, len(lines), squeeze=False)[0]
    for axes, (key, label) in zip(panels, lines.items(), strict=True):
        points = [(row[x], row[key]) for row in rows if row[key] is not None]
        axes.plot([a for a, _ in points], [b for _, b in points], "o-", color=SERIES[0].color)
        if mark is not None:
            axes.axvline(mark, color=GREY, linestyle=":", linewidth=1.2)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel(x)
        axes.set_title(label, fontsize=9)
        axes.grid(True, color="#8885", linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11)
    return figure


def front_figure(
    rows: Sequence[Mapping[str, Any]], front: Sequence[int], x: str, y: str, title: str, varied: Sequence[str] = ()
) -> Any:
    """Draw points of a space by two of their columns, with those that no other beats joined and named.

    Parameters
    ----------
    rows : sequence of mapping
        With a ``format`` each, which is the colour and the shape.
    front : sequence of int
        Indices into `rows`.
    x, y : str
        Keys.
    title : str
    varied : sequence of str, optional
        Keys whose values name a point.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    figure = new_figure(7, 4.4)
    axes = figure.subplots()
    by_family: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row[x] is not None and row[y] is not None:
            by_family.setdefault(family(str(row["format"]).split(" x ")[0]), []).append(row)
    for name, chosen in by_family.items():
        mark = FAMILIES[name]
        across, up = [row[x] for row in chosen], [row[y] for row in chosen]
        style = {"color": mark.color, "marker": marker_of(mark), "linestyle": "none", "gid": "dot", "alpha": 0.7}
        axes.plot(across, up, label=mark.words, **style)
    best = sorted((rows[i][x], rows[i][y]) for i in front)
    axes.plot([a for a, _ in best], [b for _, b in best], color=GREY, linewidth=1.4, label="beaten by none")
    if all(row[x] > 0 for chosen in by_family.values() for row in chosen):
        axes.set_xscale("log")
    axes.set_xlabel(TITLES.get(x, x))
    axes.set_ylabel(TITLES.get(y, y))
    axes.set_title(title, fontsize=11)
    axes.grid(True, color="#8885", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8)
    drawn = [i for i, row in enumerate(rows) if row[x] is not None and row[y] is not None]
    dots = [Dot(rows[i][x], rows[i][y], SERIES[0], " ".join(str(rows[i][key]) for key in varied)) for i in drawn]
    named = [drawn.index(i) for i in front][:MAX_NAMES]
    if varied and named:
        write_names(figure, axes, dots, named, ())
    return figure
