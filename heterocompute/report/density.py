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

from .chart import FONT, outline
from .page import page as whole_page, section, table
from .palette import GREY, SERIES, Mark
from .study import number
from .table import Column, print_table, say_words, terminal, width_of

Row = dict[str, Any]
Curve = tuple[str, str, bool | None]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, LINE = 460, 340, 62, 16, 46, 52, 22


def curves(rows: Sequence[Row]) -> dict[Curve, list[Row]]:
    """Return the rows of each (layers, structure, retrained), the densest first.

    Parameters
    ----------
    rows : sequence of dict
        `DensityStudy.table`.

    Returns
    -------
    dict
    """
    found: dict[Curve, list[Row]] = {}
    for row in rows[1:]:
        found.setdefault((row["layers"], row["structure"], row["retrained"]), []).append(row)
    return {key: sorted(members, key=lambda row: -row["density"]) for key, members in found.items()}


def heights(base: float | None, values: Sequence[float | None], slack: float) -> list[float | None]:
    """Return the height of each value: 0 for the unchanged network, -log10(1 + loss / slack) below it."""
    if base is None:
        return [None for _ in values]
    return [
        None if v is None else math.copysign(math.log10(1 + abs(v - base) / slack), v - base) if v != base else 0.0
        for v in values
    ]


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
        say_words(f"● {line}", console)


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


def page(title: str, rows: Sequence[Row], lowest: Sequence[Row], metric: str, slack: float) -> str:
    """Return a page with the figure and the tables; it fetches nothing.

    Parameters
    ----------
    title : str
    rows, lowest : sequence of dict
    metric : str
        The column drawn.
    slack : float

    Returns
    -------
    str
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
    return whole_page(title, "".join(cards))


# The picture


def svg(rows: Sequence[Row], lowest: Sequence[Row], metric: str, slack: float, stacked: bool = False) -> str:
    """Draw one panel for each kind of layers.

    Parameters
    ----------
    rows, lowest : sequence of dict
    metric : str
        The column drawn.
    slack : float
    stacked : bool, optional
        The panels one below the other instead of side by side.

    Returns
    -------
    str
    """
    found, base = curves(rows), rows[0][metric]
    kinds = list(dict.fromkeys(layers for layers, _, _ in found))
    structures = list(dict.fromkeys(structure for _, structure, _ in found))
    marks = {structure: SERIES[i % len(SERIES)] for i, structure in enumerate(structures)}
    count = max(1, len(kinds))
    width, below = (WIDTH, HEIGHT * count) if stacked else (WIDTH * count, HEIGHT)
    legend, height = _legend(marks, any(row["retrained"] for row in rows), width, below)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="{FONT}" font-size="13" fill="{GREY}">',
        f"<title>{html.escape(metric)} against the density of the weights</title>",
    ]
    values = [row[metric] for row in rows if row[metric] is not None]
    if base is not None and kinds:
        low = min((row["density"] for row in rows[1:] if row["density"] > 0), default=0.1)
        panel = _Panel(base, values, slack, low)
        for i, layers in enumerate(kinds):
            panel.left = panel.margin + (0 if stacked else i * WIDTH)
            panel.above = i * HEIGHT if stacked else 0
            lines += panel.frame(f"{layers} layers pruned", metric)
            for (kind, structure, retrained), members in found.items():
                if kind == layers:
                    lines += panel.curve(members, lowest, metric, marks[structure], bool(retrained))
    return "\n".join([*lines, *legend, "</svg>", ""])


class _Panel:
    def __init__(self, base: float, values: Sequence[float], slack: float, low: float) -> None:
        self.base, self.slack = base, slack
        self.tolerated = base - slack if min(values) < base or max(values) == base else base + slack
        found = [height for height in heights(base, [*values, self.tolerated], slack) if height is not None]
        self.top, self.bottom = max(found) + 0.12, min(found) - 0.05
        self.low = math.log10(low) - 0.05
        marks = ticks(base, values, slack)
        self.marks = list(zip(marks, labels(marks), strict=True))
        self.margin = max(LEFT, 14 + 7.6 * max(len(text) for _, text in self.marks))
        self.left, self.above = self.margin, 0

    def x(self, density: float) -> float:
        share = math.log10(density) / self.low  # 0 at density 1, which is on the left
        return round(self.left + share * (WIDTH - self.margin - RIGHT), 1)

    def y(self, value: float) -> float:
        (height,) = heights(self.base, [value], self.slack)
        assert height is not None
        return round(self.above + TOP + (self.top - height) / (self.top - self.bottom) * (HEIGHT - TOP - BOTTOM), 1)

    def frame(self, title: str, metric: str) -> list[str]:
        right = self.left + WIDTH - self.margin - RIGHT
        lines = [_text(self.left, self.above + 26, title, 'font-weight="600"')]
        last = math.inf
        for value, label in self.marks:
            y = self.y(value)
            if abs(last - y) < 13:  # no room for its text
                continue
            last = y
            lines.append(_line(self.left, y, right, y, f'stroke="{GREY}" stroke-opacity="0.25"'))
            lines.append(_text(self.left - 8, y + 4, label, 'text-anchor="end"'))
        y = self.y(self.tolerated)
        lines.append(_line(self.left, y, right, y, f'stroke="{GREY}" stroke-dasharray="2 3"'))
        bottom = self.above + HEIGHT - BOTTOM
        for density in (1, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.003, 0.001):
            if math.log10(density) >= self.low:
                lines.append(_text(self.x(density), bottom + 20, f"{density:g}", 'text-anchor="middle"'))
        lines.append(
            _text((self.left + right) / 2, bottom + 42, "density: share of weights kept", 'text-anchor="middle"')
        )
        lines.append(_text(self.left, self.above + TOP - 4, shortened(metric, int((right - self.left) / 7))))
        return lines

    def curve(self, rows: Sequence[Row], lowest: Sequence[Row], metric: str, mark: Mark, solid: bool) -> list[str]:
        drawn = [row for row in rows if row[metric] is not None and row["density"] > 0]
        points = [(self.x(1), self.y(self.base)), *((self.x(row["density"]), self.y(row[metric])) for row in drawn)]
        path = " ".join(f"{x},{y}" for x, y in points)
        dash = "" if solid else ' stroke-dasharray="5 4"'
        color = mark.color
        lines = [f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{dash}/>']
        for row, (x, y) in zip(drawn, points[1:], strict=True):
            fill, shape = color if solid else "none", f'class="point" d="{outline(mark, x, y, 3.5)}"'
            lines.append(f'<path {shape} fill="{fill}" stroke="{color}" stroke-width="1.5"/>')
            if _is_lowest(row, lowest):
                lines.append(f'<circle cx="{x}" cy="{y}" r="8" fill="none" stroke="{color}" stroke-width="2"/>')
        return lines


def _legend(marks: dict[str, Mark], again: bool, width: int, below: int) -> tuple[list[str], int]:
    """Return the lines below the panels, and the position of their end."""
    keys: list[tuple[str, Mark | None, bool]] = [(name, mark, not again) for name, mark in marks.items()]
    if again:
        keys = [(f"{name}{words}", mark, dashed) for name, mark, _ in keys for words, dashed in _KINDS]
    lines: list[str] = []
    x, y = float(LEFT), below + 14
    for words, mark, dashed in [*keys, ("the lowest that loses less than the dotted line", None, False)]:
        needed = 30 + 6.8 * len(words)
        if x > LEFT and x + needed > width:
            x, y = float(LEFT), y + LINE
        if mark is not None:
            dash, fill = ('stroke-dasharray="5 4"', "none") if dashed else ("", mark.color)
            lines.append(_line(x, y, x + 24, y, f'stroke="{mark.color}" stroke-width="2" {dash}'))
            lines.append(f'<path d="{outline(mark, x + 12, y, 3.5)}" fill="{fill}" stroke="{mark.color}"/>')
        else:
            lines.append(f'<circle cx="{x + 12}" cy="{y}" r="7" fill="none" stroke="{GREY}" stroke-width="2"/>')
        lines.append(_text(x + 30, y + 4, words))
        x += needed + 16
    return lines, y + 16


_KINDS = ((", one-shot", True), (", retrained", False))


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" {more}>{html.escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, more: str) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" {more}/>'
