"""Tables and the picture of a study of densities, from plain lists of dicts. Of ours it imports only `report`.

Across, the density on a logarithmic scale; up, the metric as log(1 + loss / slack), which shows a loss of half a point
and one of fifty in one picture. Solid lines and filled points: retrained; dashed and hollow: one-shot; a ring: the
lowest density within the slack. Greys and hues of middle lightness read on a light and on a dark page.
"""

from __future__ import annotations

import html
import io
import math
import re
import sys
from collections.abc import Sequence
from typing import Any

from .chart import Chart, Curve, Dot, Key, picture, shape, text as words_at
from .page import page as whole_page, section, table
from .palette import FAMILIES, GREY, SERIES
from .plot import draw, new_figure
from .scale import Scale
from .study import number
from .table import Column, print_table, print_words, terminal, width_of

Row = dict[str, Any]
Series = tuple[str, str, bool | None]

WIDTH, HEIGHT, LEFT, TOP, LINE = 460, 340, 62, 52, 22


def curves(rows: Sequence[Row]) -> dict[Series, list[Row]]:
    """Return the rows of each (layers, structure, retrained), the densest first.

    Parameters
    ----------
    rows : sequence of dict
        `DensityStudy.table`.
    """
    found: dict[Series, list[Row]] = {}
    for row in rows[1:]:
        found.setdefault((row["layers"], row["structure"], row["retrained"]), []).append(row)
    return {key: sorted(members, key=lambda row: -row["density"]) for key, members in found.items()}


def ticks(base: float, values: Sequence[float], slack: float) -> list[float]:
    """Return round values of the metric for the axis, from the unchanged network's to the worst, at most 8."""
    worst = max(values, key=lambda v: abs(v - base), default=base)
    reach, sign = abs(worst - base), math.copysign(1, worst - base)
    decades = max(0, math.ceil(math.log10(reach / slack))) + 1 if reach > 0 else 0
    stride = -(-decades // 8) or 1  # decades from one to the next
    within = (1, 4) if decades <= 4 else (1,)
    found = [base]
    for step in (slack * m * 10.0**k for k in range(0, decades, stride) for m in within):
        if step <= reach * 1.05:
            digits = -math.floor(math.log10(step / 2))
            found.append(round(base + sign * step, digits))
    return found


def labels(values: Sequence[float]) -> list[str]:
    """Return short texts of the axis's values, with just enough digits to distinguish them."""
    for digits in range(4, 16):
        texts = [f"{value:.{digits}g}" for value in values]
        if len(set(texts)) == len(texts):
            break
    return [re.sub(r"e([+-])0*", lambda sign: "e-" if sign[1] == "-" else "e", text) for text in texts]


def shortened(words: str, most: int) -> str:
    """Return a name shortened to at most this many characters, in one line."""
    line = " ".join(words.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


# Words


def sentences(lowest: Sequence[Row], slack: float) -> list[str]:
    """Say for each kind of layers how few weights are enough."""
    found = []
    for layers in dict.fromkeys(row["layers"] for row in lowest):
        parts = [
            f"{row['structure']}{' retrained' if row['retrained'] else ''} {_density(row)}"
            for row in lowest
            if row["layers"] == layers
        ]
        found.append(f"{layers}: the lowest density that loses less than {slack:g}: {', '.join(parts)}")
    return found


def _density(row: Row) -> str:
    return "none" if row["pattern"] is None else f"{row['density']:.3f} ({row['pattern']})"


def _is_lowest(row: Row, lowest: Sequence[Row]) -> bool:
    keys = ("layers", "structure", "pattern", "retrained")
    return any(all(row[key] == one[key] for key in keys) for one in lowest)


def _tables(rows: Sequence[Row], lowest: Sequence[Row], metric: str) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return for each kind of layers its name, headings and cells; a dot marks the lowest densities."""
    found = []
    again = any(row["retrained"] for row in rows)
    name = shortened(metric, 40)
    titles = [name, f"{name}, retrained"] if again else [name]
    for layers in dict.fromkeys(row["layers"] for row in rows[1:]):
        members = [row for row in rows if row["layers"] == layers]
        lines = [["–", "–", "1.000", number(rows[0][metric], 4), *["–"] * again]]
        for row in members:
            if not row["retrained"]:
                same = [r for r in members if (r["structure"], r["pattern"]) == (row["structure"], row["pattern"])]
                cells = [f"{'● ' * _is_lowest(one, lowest)}{number(one[metric], 4)}" for one in same]
                lines.append([row["structure"], row["pattern"], f"{row['density']:.3f}", *cells])
        found.append((layers, ["structure", "pattern", "density", *titles], lines))
    return found


def show(
    rows: Sequence[Row],
    lowest: Sequence[Row],
    metric: str,
    slack: float,
    console: Any = None,
    more: Sequence[str] = ("table",),
) -> None:
    """Print the tables and the sentences; `console` is rich's, by default standard output."""
    console = terminal() if console is None else console
    for layers, titles, lines in _tables(rows, lowest, metric):
        columns = [Column(f"{i}", title, leaves=int(i == 2), left=i < 2) for i, title in enumerate(titles)]
        found = [{f"{i}": cell for i, cell in enumerate(cells)} for cells in lines]
        bold = {i for i, cells in enumerate(lines) if any("●" in cell for cell in cells)}
        print_table(columns, found, console, title=f"{layers} layers pruned", more=more, bold=bold)
        console.print()
    for line in sentences(lowest, slack):
        print_words(f"● {line}", console)


def text(rows: Sequence[Row], lowest: Sequence[Row], metric: str, slack: float) -> str:
    """Return what `show` prints on standard output, without its colours."""
    out = io.StringIO()
    console = terminal(out)
    console.width = width_of(sys.stdout)
    show(rows, lowest, metric, slack, console)
    return out.getvalue().rstrip()


def tables_html(rows: Sequence[Row], lowest: Sequence[Row], metric: str) -> str:
    """Return the tables as HTML."""
    parts = [
        "<style>.hc-density td,.hc-density th{text-align:right;padding:.2em .8em}"
        ".hc-density{font-variant-numeric:tabular-nums;display:inline-table;margin:0 2em 1em 0;vertical-align:top}"
        ".hc-density caption{text-align:left;font-weight:600}</style>"
    ]
    for layers, titles, lines in _tables(rows, lowest, metric):
        head = "".join(f'<th scope="col">{html.escape(title)}</th>' for title in titles)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>" for cells in lines)
        caption = f"<caption>{html.escape(layers)} layers pruned</caption>"
        parts.append(f'<table class="hc-density">{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>')
    return "".join(parts)


def page(
    title: str, rows: Sequence[Row], lowest: Sequence[Row], metric: str, slack: float, stored: Row | None = None
) -> str:
    """Return a page with the figure and the tables; it fetches nothing.

    Parameters
    ----------
    metric : str
        The column drawn.
    stored : dict, optional
        The study as its file holds it.
    """
    figures = "".join(
        f'<div class="{kind}">{svg(rows, lowest, metric, slack, stacked)}</div>'
        for kind, stacked in (("broad", False), ("narrow", True))
    )
    said = "".join(f"<p>{html.escape(line)}</p>" for line in sentences(lowest, slack))
    cards = [section("How few weights are enough", "", figures + said)]
    for layers, titles, lines in _tables(rows, lowest, metric):
        cells = [[(cell, cell.strip("● –")) for cell in line] for line in lines]
        words = "A dot marks the lowest density within the slack. Click a heading to sort."
        cards.append(section(f"{layers} layers pruned", words, table(titles, cells, texts=(0, 1))))
    return whole_page(title, "".join(cards), stored=stored)


# The picture


def panels(rows: Sequence[Row], lowest: Sequence[Row], metric: str, slack: float) -> list[Chart]:
    """Return a chart for each kind of layers; a ring marks the lowest density within the slack.

    Parameters
    ----------
    metric : str
        The column drawn.
    """
    found, base = curves(rows), rows[0][metric]
    structures = list(dict.fromkeys(structure for _, structure, _ in found))
    marks = {structure: SERIES[i % len(SERIES)] for i, structure in enumerate(structures)}
    again = any(row["retrained"] for row in rows)
    kinds = ((", one-shot", True), (", retrained", False)) if again else (("", True),)
    keys = [
        Key(mark, f"{name}{words}", hollow, style="dashed" if hollow else "solid")
        for name, mark in marks.items() for words, hollow in kinds
    ]  # fmt: skip
    grey = FAMILIES["vsq"]._replace(color=GREY)
    keys.append(Key(grey, "the lowest that loses less than the dotted line", hollow=True, ring=True))
    values = [row[metric] for row in rows if row[metric] is not None]
    if base is None:
        return []
    tolerated = base - slack if min(values) < base or max(values) == base else base + slack
    low = min((row["density"] for row in rows[1:] if row["density"] > 0), default=0.1)
    x, y = _across(low), _up(base, [*values, tolerated], slack)
    made = []
    for layers in dict.fromkeys(layers for layers, _, _ in found):
        lines = [Curve([(1, tolerated), (x.value(1), tolerated)], width=1, style="dotted")]
        dots = []
        for (kind, structure, retrained), members in found.items():
            drawn = [row for row in members if row[metric] is not None and row["density"] > 0]
            if kind != layers or not drawn:
                continue
            places, mark = [(row["density"], row[metric]) for row in drawn], marks[structure]
            lines.append(Curve([(1, base), *places], mark.color, 2, "solid" if retrained else "dashed"))
            for row, place in zip(drawn, places, strict=True):
                dots.append(Dot(*place, mark, hollow=not retrained, ring=_is_lowest(row, lowest)))
        made.append(Chart(
            x, y, WIDTH, HEIGHT, "density: share of weights kept", shortened(metric, 52), size=13, standalone=True,
            heading=f"{layers} layers pruned", dots=dots, curves=lines, keys=keys, top=TOP,
        ))  # fmt: skip
    return made


def _across(low: float) -> Scale:
    """Return the axis of densities, 1 on the left."""
    end = math.log10(low) - 0.05
    marks = (1, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.003, 0.001)
    ticks = [(float(mark), f"{mark:g}") for mark in marks if math.log10(mark) >= end]
    return Scale(lambda density: math.log10(max(density, 1e-300)) / end, lambda share: 10.0 ** (share * end), ticks)


def _up(base: float, values: Sequence[float], slack: float) -> Scale:
    """Return the axis of the metric, by the loss in units of the slack."""

    def height(value: float) -> float:
        return math.copysign(math.log10(1 + abs(value - base) / slack), value - base) if value != base else 0.0

    def value(share: float) -> float:
        at = bottom + share * (top - bottom)
        return base + math.copysign(slack * (10.0 ** min(abs(at), 300) - 1), at)

    found = [height(value) for value in values]
    top, bottom = max(found) + 0.12, min(found) - 0.05
    marks = ticks(base, values[:-1], slack)
    return Scale(
        lambda value: (height(value) - bottom) / (top - bottom), value, list(zip(marks, labels(marks), strict=True))
    )


def svg(rows: Sequence[Row], lowest: Sequence[Row], metric: str, slack: float, stacked: bool = False) -> str:
    """Draw `panels` as SVG, one below the other if `stacked`, otherwise side by side."""
    charts = panels(rows, lowest, metric, slack)
    count = max(1, len(charts))
    width, below = (WIDTH, HEIGHT * count) if stacked else (WIDTH * count, HEIGHT)
    legend, height = _legend(charts[0].keys if charts else (), width, below)
    lines = []
    for i, chart in enumerate(charts):
        place = f"0 {i * HEIGHT}" if stacked else f"{i * WIDTH} 0"
        lines += [f'<g transform="translate({place})">', *chart.inside(radius=3.5), "</g>"]
    return picture(width, height, f"{html.escape(metric)} against the density of the weights", [*lines, *legend])


def figure(rows: Sequence[Row], lowest: Sequence[Row], metric: str, slack: float) -> Any:
    """Draw `panels` with matplotlib.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    charts, drawn = panels(rows, lowest, metric, slack), new_figure(11, 4.8)
    panes = drawn.subplots(1, max(1, len(charts)), squeeze=False)[0]
    for i, (axes, chart) in enumerate(zip(panes, charts, strict=False)):
        draw(axes, drawn, chart, legend="" if i else "below")
    return drawn


def _legend(keys: Sequence[Key], width: int, below: int) -> tuple[list[str], int]:
    """Return the lines below the panels, and the position of their end."""
    lines: list[str] = []
    x, y = float(LEFT), below + 14
    for key in keys:
        needed = 30 + 6.8 * len(key.words)
        if x > LEFT and x + needed > width:
            x, y = float(LEFT), y + LINE
        if key.style:
            dash = ' stroke-dasharray="5 4"' if key.style == "dashed" else ""
            lines.append(f'<path d="M{x} {y}h24" stroke="{key.mark.color}" stroke-width="2"{dash}/>')
        lines.append(shape(Dot(0, 0, key.mark, hollow=key.hollow, ring=key.ring), x + 12, y, 3.5, True))
        lines.append(words_at(x + 30, y + 4, key.words))
        x += needed + 16
    return lines, y + 16
