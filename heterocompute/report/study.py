"""Tables and pages from plain lists of dicts: for the terminal (rich), for Jupyter, and one whole HTML page.

`rows` and `layers` are those of `heterocompute.study`; `front` are the indices of the rows on the Pareto front;
`metric` is the column that the front judges by. Nothing here imports the rest of the package.
"""

from __future__ import annotations

import html
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]

FIXED = ("format", "activations", "emulate", "retrained", "bits", "bytes", "sqnr_db", "seconds")
TEXTS = FIXED[:4]
TITLES = {"bits": "bits", "bytes": "size", "sqnr_db": "SQNR dB", "seconds": "time", "speed": "vs fp32"}
MAX_TEXT_LAYERS = 12
MAX_NAME = 200  # characters of a name in a table of the terminal
MAX_PAGE_LAYERS = 400
MAX_HISTOGRAMS = 40


def worst_first(layers: Sequence[Row]) -> list[str]:
    """Return the names of the tensors, those that lose most (mean SQNR over their formats) first."""
    losses: dict[str, list[float]] = {}
    for row in layers:
        found = losses.setdefault(row["name"], [])
        if row["sqnr_db"] is not None:
            found.append(row["sqnr_db"])
    return sorted(losses, key=lambda name: math.fsum(losses[name]) / len(losses[name]) if losses[name] else math.inf)


# Numbers as people read them


def number(value: Any, digits: int = 2) -> str:
    """Return a fixed number of decimals, more where those would all be 0, and a dash for None."""
    if value is None:
        return "–"
    if 0 < abs(value) < 0.5 * 10**-digits:
        return f"{value:.2g}"
    return f"{value:.{digits}f}" if abs(value) < 1e5 else f"{value:.3g}"


def size_text(count: int) -> str:
    """Return bytes with a decimal unit.

    Examples
    --------
    >>> size_text(290432), size_text(999)
    ('290 kB', '999 B')
    """
    value, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if value >= 99.5 or unit == "B" else f"{value:.3g} {unit}"


def time_text(seconds: float | None) -> str:
    """Return seconds with a unit.

    Examples
    --------
    >>> time_text(0.0000123), time_text(None)
    ('12.3 µs', '–')
    """
    if seconds is None:
        return "–"
    for scale, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * scale < 999.5:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def _columns(rows: Sequence[Row]) -> list[str]:
    metrics = [key for key in rows[0] if key not in FIXED] if rows else []
    shown = [*FIXED[:-1], *metrics, "seconds", "speed"]
    return [key for key in shown if key not in TEXTS[1:] or any(row.get(key) for row in rows)]


def _speed(row: Row, rows: Sequence[Row]) -> float | None:
    base = rows[0]["seconds"]
    return base / row["seconds"] if base and row["seconds"] else None


def _value(key: str, row: Row, rows: Sequence[Row]) -> Any:
    return _speed(row, rows) if key == "speed" else row[key]


def _cell(key: str, value: Any) -> str:
    if key in TEXTS:
        return "–" if value is None else "yes" if value is True else str(value)
    if key == "bytes":
        return size_text(value)
    if key == "seconds":
        return time_text(value)
    if key == "speed":
        return "–" if value is None else f"{value:.2f}x"
    if key == "sqnr_db":
        return "exact" if value is None else number(value, 1)
    return number(value, 2 if key == "bits" else 4)


# The terminal


def _printable(text: str) -> str:
    if len(text) > MAX_NAME:
        text = f"{text[: MAX_NAME // 2]}...{text[-MAX_NAME // 2 :]}"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def study_table(rows: Sequence[Row], front: Iterable[int]) -> Any:
    """Return the main table for rich; a dot marks the Pareto front.

    Parameters
    ----------
    rows : sequence of dict
    front : iterable of int

    Returns
    -------
    rich.table.Table
    """
    from rich import box  # 30 ms
    from rich.table import Table  # 30 ms

    chosen = set(front)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for key in _columns(rows):
        left = key in TEXTS
        title = "  format" if key == "format" else TITLES.get(key, key)
        table.add_column(title, justify="left" if left else "right", no_wrap=not left)
    for i, row in enumerate(rows):
        cells = [_escape(_cell(key, _value(key, row, rows))) for key in _columns(rows)]
        cells[0] = _escape(f"{'●' if i in chosen else ' '} {row['format']}")
        table.add_row(*cells, style="bold" if i in chosen else None)
    return table


def _escape(text: str) -> Any:
    from rich.text import Text  # 30 ms

    return Text(_printable(text))


def layer_table(layers: Sequence[Row], width: int = 100) -> Any:
    """Return SQNR in dB, tensor by format, for rich: the worst tensors first, as many formats as `width` holds.

    Parameters
    ----------
    layers : sequence of dict
    width : int

    Returns
    -------
    rich.table.Table
    """
    from rich import box  # 30 ms
    from rich.table import Table  # 30 ms

    names, formats, found = _pivot(layers)
    left_out = max(0, len(names) - MAX_TEXT_LAYERS)
    names = names[:MAX_TEXT_LAYERS]
    rows, columns = (names, formats) if len(names) >= len(formats) else (formats, names)
    longest = max((len(name) for name in rows), default=0)
    room, kept = width - min(longest, width // 2) - 2, 0
    for column in columns:
        room -= max(len(_printable(column)), 5) + 2
        kept += room >= 0
    kept = max(1, kept)
    missing = [(left_out, "tensors"), (len(columns) - kept, "formats" if rows is names else "tensors")]
    words = " and ".join(f"{count} more {what}" for count, what in missing if count > 0)
    caption = f"... {words}" if words else None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False, caption=caption)
    table.caption_justify = "left"
    table.add_column("SQNR dB")
    for column in columns[:kept]:
        table.add_column(_escape(column), justify="right", no_wrap=True)
    for name in rows:
        cells = [found.get((name, c) if rows is names else (c, name), "") for c in columns[:kept]]
        table.add_row(_escape(name), *("" if v == "" else _cell("sqnr_db", v) for v in cells))
    return table


def _pivot(layers: Sequence[Row]) -> tuple[list[str], list[str], dict[tuple[str, str], Any]]:
    """Names worst first, formats that lose something, and SQNR by both."""
    lossy = [row for row in layers if row["format"] != "fp32"]
    formats = list(dict.fromkeys(row["format"] for row in lossy))
    return worst_first(lossy), formats, {(row["name"], row["format"]): row["sqnr_db"] for row in lossy}


def show(rows: Sequence[Row], layers: Sequence[Row], front: Sequence[int], metric: str, console: Any = None) -> None:
    """Print the table, the Pareto front in words, and the worst tensors.

    Parameters
    ----------
    rows, layers : sequence of dict
    front : sequence of int
    metric : str
    console : rich.console.Console, optional
        Default: standard output.
    """
    from rich.console import Console  # 30 ms
    from rich.text import Text  # 30 ms

    console = Console(highlight=False) if console is None else console
    console.print(study_table(rows, front))
    console.print()
    steps = dict.fromkeys(
        f"{_printable(row['format'])} ({number(row['bits'])} bits{', retrained' * bool(row.get('retrained'))})"
        for row in (rows[i] for i in front)
    )
    console.print(Text(f"● Pareto front, {TITLES.get(metric, metric)} against bits: {', '.join(steps)}"))
    if any(row["format"] != "fp32" for row in layers) and len({row["name"] for row in layers}) > 1:
        console.print()
        console.print(layer_table(layers, console.width))


def _name(row: Row) -> str:
    words = [row[key] for key in TEXTS[:-1] if row.get(key)]
    return _printable(" / ".join([*words, *["retrained"] * bool(row.get("retrained"))]))


def text(rows: Sequence[Row], layers: Sequence[Row], front: Sequence[int], metric: str) -> str:
    """Return what `show` prints, without colours, 110 columns wide."""
    from rich.console import Console  # 30 ms

    out = io.StringIO()
    console = Console(
        file=out, width=110, color_system=None, force_terminal=False, force_jupyter=False, highlight=False
    )
    show(rows, layers, front, metric, console)
    return out.getvalue().rstrip()


# HTML


def table_html(rows: Sequence[Row], front: Iterable[int], metric: str, style: bool = True) -> str:
    """Return the main table as HTML: what Jupyter shows, and the sortable table of the page.

    Parameters
    ----------
    rows : sequence of dict
    front : iterable of int
    metric : str
    style : bool
        Bring the few rules along that make it readable outside the page.

    Returns
    -------
    str
    """
    chosen = set(front)
    head = ""
    for key in _columns(rows):
        kind = " class=text" if key in TEXTS else ""
        head += f'<th scope="col"{kind}>{html.escape(TITLES.get(key, key))}</th>'
    body = []
    for i, row in enumerate(rows):
        cells = []
        for key in _columns(rows):
            value = _value(key, row, rows)
            order = "Infinity" if key == "sqnr_db" and value is None else "" if value is None else value
            order = _cell(key, value) if value is True else order
            kind = " ".join(word for word, so in (("text", key in TEXTS), ("metric", key == metric)) if so)
            mark = " ●" if key == "format" and i in chosen else ""
            cells.append(
                f'<td class="{kind}" data-v="{html.escape(str(order))}">{html.escape(_cell(key, value))}{mark}</td>'
            )
        body.append(f"<tr{' class=front' if i in chosen else ''}>{''.join(cells)}</tr>")
    css = (
        "<style>.hc-study td,.hc-study th{text-align:right;padding:.25em .8em}.hc-study .text{text-align:left}"
        ".hc-study .front{font-weight:600}.hc-study{font-variant-numeric:tabular-nums}</style>"
    )
    note = "<p>● on the Pareto front</p>" if style else ""
    return (
        f'{css if style else ""}<table class="hc-study"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table>{note}"
    )


def page(
    title: str,
    rows: Sequence[Row],
    layers: Sequence[Row],
    front: Sequence[int],
    metric: str,
    higher: bool,
    histograms: Sequence[Row],
) -> str:
    """Return the whole page: styles, data and one script inside, nothing fetched.

    Parameters
    ----------
    title : str
    rows, layers : sequence of dict
    front : sequence of int
    metric : str
    higher : bool
        Whether more of `metric` is better.
    histograms : sequence of dict
        `Study.histograms`; the first 40 are shown.

    Returns
    -------
    str
    """
    names, formats, found = _pivot(layers)
    shapes = {row["name"]: " x ".join(map(str, row["shape"])) for row in layers}
    shown = names[:MAX_PAGE_LAYERS]
    data = {
        "rows": [{**row, "speed": _speed(row, rows)} for row in rows],
        "front": list(front),
        "metric": metric,
        "metricTitle": TITLES.get(metric, metric),
        "higher": higher,
        "layers": {
            "names": shown,
            "shapes": [shapes[name] for name in shown],
            "formats": formats,
            "sqnr": [[found.get((name, fmt), "") for fmt in formats] for name in shown],
            "leftOut": len(names) - len(shown),
        },
        "histograms": [_drawable(one) for one in histograms[:MAX_HISTOGRAMS]],
    }
    # In a script element only "<" can end or disturb the text.
    script_data = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "title": html.escape(title),
        "tiles": "".join(
            f'<div class="tile"><b>{html.escape(value)}</b><span>{html.escape(words)}</span></div>'
            for value, words in _headlines(rows, layers, metric, higher)
        ),
        "table": table_html(rows, front, metric, style=False),
        "data": script_data,
    }
    template = Path(__file__).with_name("study.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _drawable(one: Row) -> Row:
    """Levels as positions in 0..999 of the picture: what cannot be told apart is drawn once."""
    scale = 999 / (2 * one["range"])
    levels = {
        fmt: [
            len(values),
            sorted({round((min(max(v, -one["range"]), one["range"]) + one["range"]) * scale) for v in values}),
        ]
        for fmt, values in one["levels"].items()
    }
    return {**one, "levels": levels}


def _headlines(rows: Sequence[Row], layers: Sequence[Row], metric: str, higher: bool) -> list[tuple[str, str]]:
    """The few figures that answer most questions: (figure, what it is)."""
    tensors = {row["name"]: math.prod(row["shape"]) for row in layers}
    base = rows[0]
    found = [
        (size_text(base["bytes"]), f"{len(tensors)} tensor{'s'[: len(tensors) != 1]}, {sum(tensors.values()):,} values")
    ]
    if metric != "sqnr_db" and base[metric] is not None:
        found.append((number(base[metric], 4), f"{metric} of the baseline"))
        slack = 0.01 * abs(base[metric])
        good = [
            row
            for row in rows
            if row[metric] is not None
            and row["bits"]
            and (row[metric] >= base[metric] - slack if higher else row[metric] <= base[metric] + slack)
        ]
        best = min(good, key=lambda row: row["bits"])
        if best is not base:
            size = f"{number(best['bits'])} bits, {base['bytes'] / best['bytes']:.1f} x smaller"
            found.append((_name(best), f"{size}: the smallest within 1\u00a0% of it"))
    else:
        good = [row for row in rows if row["sqnr_db"] is not None and row["sqnr_db"] >= 20 and row["bits"]]
        if good:
            best = min(good, key=lambda row: row["bits"])
            found.append((_name(best), f"{number(best['bits'])} bits: the smallest with an SQNR of 20 dB or more"))
    fastest = max(rows, key=lambda row: _speed(row, rows) or 0)
    speed = _speed(fastest, rows)
    if speed and speed > 1:
        found.append((f"{speed:.1f} x", f"the fastest products against fp32: {_name(fastest)}"))
    return found
