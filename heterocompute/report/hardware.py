"""Figures of the model side, from plain dicts, with matplotlib (the extra `plot`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .chart import Chart, Curve, Dot, Key
from .palette import FAMILIES, SERIES, family
from .plot import draw, new_figure
from .scale import linear, logarithmic

MAX_NAMES = 10
#: Titles of columns of an exploration.
TITLES = {
    "energy": "energy on chip (J)", "dram_energy": "energy of DRAM (J)", "seconds": "time (s)", "area": "area (mm^2)",
    "edp": "energy times time (J s)",
}  # fmt: skip


def line_figure(
    rows: Sequence[Mapping[str, Any]], x: str, lines: Mapping[str, str], title: str, mark: float | None = None
) -> Any:
    """Draw columns of rows against another, both axes logarithmic.

    Parameters
    ----------
    x : str
        Key of the horizontal axis.
    lines : mapping of str to str
        Keys of the lines, with their labels.
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
        places = logarithmic([a for a, _ in points], [row[x] for row in rows]), logarithmic([b for _, b in points])
        curves = [Curve(points, SERIES[0].color)]
        if mark is not None:
            curves.append(Curve([(mark, places[1].value(0)), (mark, places[1].value(1))], style="dotted"))
        dots = [Dot(*point, SERIES[0]) for point in points]
        draw(axes, figure, Chart(*places, 360, 340, x, "", heading=label, dots=dots, curves=curves))
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
    drawn = [i for i, row in enumerate(rows) if row[x] is not None and row[y] is not None]
    marks = {i: FAMILIES[family(str(rows[i]["format"]).split(" x ")[0])] for i in drawn}
    dots = [Dot(rows[i][x], rows[i][y], marks[i], " ".join(str(rows[i][key]) for key in varied)) for i in drawn]
    across = [dot.x for dot in dots] or [1.0]
    scale = logarithmic(across) if min(across) > 0 else linear(across)
    chart = Chart(
        scale, linear([dot.y for dot in dots] or [1.0]), 700, 440, TITLES.get(x, x), TITLES.get(y, y), dots=dots,
        named=[drawn.index(i) for i in front][:MAX_NAMES] if varied else (),
        curves=[Curve(sorted((rows[i][x], rows[i][y]) for i in front), is_rail=False, label="beaten by none")],
        keys=[Key(mark, mark.words) for mark in dict.fromkeys(marks.values())],
    )  # fmt: skip
    axes = figure.subplots()
    axes.set_title(title, fontsize=11)
    draw(axes, figure, chart, legend="inside")
    return figure
