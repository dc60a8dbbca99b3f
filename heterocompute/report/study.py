"""Tables from plain lists of dicts: for the terminal (rich), for Jupyter, and that of the page of a study.

`rows` and `layers` are those of `heterocompute.study`; `front` are the indices of the rows on the Pareto front;
`metric` is the column that the front judges by. Nothing here imports the rest of the package.
"""

from __future__ import annotations

import html
import math
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

from .numbers import quantity
from .page import sortable
from .table import Column, captured, clean, print_table, print_words, terminal

Row = dict[str, Any]

TEXTS = ("format", "method", "activations", "kv_cache", "emulate", "retrained")
FIXED = (*TEXTS, "bits", "bytes", "sqnr_db", "output_db", "seconds")
STORED = "stored"  # the baseline of a language model, whose file may be quantized, and of arrays that are not float32
BASELINES = ("fp32", STORED)
DECIBELS = ("sqnr_db", "output_db")  # None if nothing was lost
TITLES = {
    "bits": "bits",
    "bytes": "size",
    "sqnr_db": "SQNR dB",
    "output_db": "output dB",
    "seconds": "time",
}
# Columns that a narrow terminal omits, the highest number first; then results of `evaluate` except the metric, the last
# first.
LEAVES = {"bytes": 1004, "speed": 1003, "seconds": 1002, "sqnr_db": 1001, "output_db": 1000}
TIME_WORDS = "time: one product of every tensor with one row, the weights in memory and in no cache, in one thread"
MAX_TEXT_LAYERS = 12
MAX_TEXT_ROWS = 30
SMALL_BYTES = 1 << 20  # of float32: a smaller matmul takes as long as the call itself, for every format


class Judge(NamedTuple):
    """A column of numbers, whether more is better, and the rows on its Pareto front against bits."""

    metric: str
    higher: bool
    front: Sequence[int]

    @property
    def title(self) -> str:
        return TITLES.get(self.metric, self.metric)


def worst_first(layers: Sequence[Row]) -> list[str]:
    """Return the names of the tensors, those that lose most (mean of `layer_key` over their formats) first."""
    losses: dict[str, list[float]] = {}
    key = layer_key(layers)
    for row in layers:
        found = losses.setdefault(row["name"], [])
        if row[key] is not None:
            found.append(row[key])
    return sorted(losses, key=lambda name: math.fsum(losses[name]) / len(losses[name]) if losses[name] else math.inf)


def layer_key(layers: Sequence[Row]) -> str:
    """Return the column that judges tensors: their layers' outputs if all are known, otherwise the weights."""
    return "output_db" if layers and all("output_db" in row for row in layers) else "sqnr_db"


def labelled(fmt: str, method: str | None) -> str:
    """Return a format and how tensors were rounded to it."""
    return fmt if method is None else f"{fmt} / {method}"


def elsewhere(row: Row) -> bool:
    """Tell whether a row has a picture of its own: it differs by the KV cache or by the accumulator."""
    return bool(row.get("kv_cache") or row.get("accumulator_bits"))


def shortly(rows: Sequence[Row]) -> tuple[list[Row], dict[str, str]]:
    """Return the rows with short names of mixed formats, and what these names stand for.

    Examples
    --------
    >>> shortly([{"format": "int8"}, {"format": "conv*=int8 fc*=int4"}])
    ([{'format': 'int8'}, {'format': 'mix 1'}], {'mix 1': 'conv*=int8 fc*=int4'})
    """
    mixes = dict.fromkeys(row["format"] for row in rows if "=" in row["format"])
    short = {text: f"mix {i}" for i, text in enumerate(mixes, 1)}
    named = [{**row, "format": short.get(row["format"], row["format"])} for row in rows]
    return named, {name: text for text, name in short.items()}


# Numbers as people read them


def number(value: Any, digits: int = 2) -> str:
    """Return a fixed number of decimals, more if those would all be 0, and a dash for None."""
    if value is None:
        return "–"
    if 0 < abs(value) < 0.5 * 10**-digits:
        return f"{value:.2g}"
    return f"{value:.{digits}f}" if abs(value) < 1e5 else f"{value:.3g}"


def _columns(rows: Sequence[Row]) -> list[str]:
    metrics = [key for key in rows[0] if key not in FIXED] if rows else []
    shown = [*FIXED[:-1], *metrics, "seconds", "speed"]
    empty = (*TEXTS[1:], "seconds")  # columns that are left out if they hold nothing
    present = [key for key in shown if key not in empty or any(row.get(key) for row in rows)]
    present = [key for key in present if key != "speed" or "seconds" in present]
    return [key for key in present if key != "output_db" or key in rows[0]]


def speed(row: Row, rows: Sequence[Row]) -> float | None:
    base = rows[0]["seconds"]
    return base / row["seconds"] if base and row["seconds"] else None


def _title(key: str, rows: Sequence[Row]) -> str:
    """Return the head of a column; speeds are relative to the first row."""
    return f"vs {rows[0]['format']}" if key == "speed" else TITLES.get(key, key)


def _value(key: str, row: Row, rows: Sequence[Row]) -> Any:
    return speed(row, rows) if key == "speed" else row[key]


def _cell(key: str, value: Any) -> str:
    if key in TEXTS:
        return "–" if value is None else "yes" if value is True else str(value)
    if key in ("bytes", "kv_bytes"):
        return quantity(value, "B")
    if key == "seconds":
        return quantity(value, "s")
    if key == "speed":
        return "–" if value is None else f"{value:.2f}x"
    if key in DECIBELS:
        return "exact" if value is None else number(value, 1)
    if key.endswith("_bits") or key == "tokens_per_s":
        return "–" if value is None else number(value, {"kv_bits": 2, "tokens_per_s": 1}.get(key, 0))
    return number(value, 2 if key == "bits" else 4)


# The terminal


def study_columns(rows: Sequence[Row], metric: str) -> list[Column]:
    """Return the columns of the main table; those that tell rows apart, the bits and the metric stay at any width."""
    stay = (*TEXTS, "bits", metric)
    found = []
    for place, key in enumerate(_columns(rows)):
        title = "  format" if key == "format" else _title(key, rows)
        leaves = 0 if key in stay else LEAVES.get(key, place)
        found.append(Column(key, title, partial(_cell, key), leaves, key in TEXTS))
    return found


def layer_table(layers: Sequence[Row]) -> tuple[list[Column], list[Row], int]:
    """Return dB, tensor by format: columns, rows (the worst tensors first), and how many tensors are not there.

    Returns
    -------
    (list of Column, list of dict, int)
    """
    names, formats, found = pivot(layers)
    shown = names[:MAX_TEXT_LAYERS]
    down, across = (shown, formats) if len(shown) >= len(formats) else (formats, shown)
    columns = [Column("name", TITLES[layer_key(layers)])]
    columns += [Column(f"{i}", name, leaves=i) for i, name in enumerate(across)]
    rows = []
    for name in down:
        places = [(name, other) if down is shown else (other, name) for other in across]
        cells = [_cell("sqnr_db", found[place]) if place in found else "" for place in places]
        rows.append({"name": name, **{f"{i}": cell for i, cell in enumerate(cells)}})
    return columns, rows, len(names) - len(shown)


def pivot(layers: Sequence[Row]) -> tuple[list[str], list[str], dict[tuple[str, str], Any]]:
    """Return names worst first, formats (and methods) that lose something, and dB by both."""
    lossy = [row for row in layers if row["format"] not in BASELINES]
    key = layer_key(lossy)
    found = {(row["name"], labelled(row["format"], row.get("method"))): row[key] for row in lossy}
    return worst_first(lossy), list(dict.fromkeys(fmt for _, fmt in found)), found


def show(
    rows: Sequence[Row],
    layers: Sequence[Row],
    judge: Judge,
    console: Any = None,
    more: Sequence[str] = ("table",),
    more_layers: Sequence[str] = ("layers",),
    notes: Sequence[str] = (),
) -> None:
    """Print the table, the worst tensors, the Pareto front in words, and which format to take.

    Parameters
    ----------
    console : rich.console.Console, optional
        Default: standard output.
    more, more_layers : sequence of str
        What shows the columns that a narrow terminal leaves out, of the formats and of the tensors.
    notes : sequence of str
        Sentences on tensors that a format does not suit.
    """
    console = terminal() if console is None else console
    rows, mixes = shortly(rows)
    columns, chosen = study_columns(rows, judge.metric), set(judge.front)
    cells = [{column.key: _value(column.key, row, rows) for column in columns} for row in rows]
    for i, row in enumerate(cells):
        row["format"] = f"{'●' if i in chosen else ' '} {row['format']}"
    places = _told(rows, chosen)
    print_table(columns, [cells[i] for i in places], console, more=more, bold={places.index(i) for i in chosen})
    if len(places) < len(rows):
        left = f"{len(rows) - len(places)} rows with activations that are not on the front"
        print_words(f"... and {left} ({', '.join(more)})", console)
    console.print()
    if any(row["format"] not in BASELINES for row in layers) and len({row["name"] for row in layers}) > 1:
        columns, cells, left_out = layer_table(layers)
        print_table(columns, cells, console, more=more_layers)
        if left_out:
            left = f"{left_out} tensor{'s'[: left_out != 1]}"
            print_words(f"... and {left} that lose less ({', '.join(more_layers)})", console)
        console.print()
    steps = dict.fromkeys(
        f"{labelled(row['format'], row.get('method'))} ({number(row['bits'])} bits{again})"
        for row in (rows[i] for i in judge.front)
        for again in [", retrained" * bool(row.get("retrained"))]
    )
    print_words(time_words(rows), console)
    print_words(f"● Pareto front, {judge.title} against bits: {', '.join(steps)}", console)
    for name, words in mixes.items():
        print_words(f"{name}: {words}", console)
    for words in notes:
        print_words(words, console)
    best = advice(rows, judge.metric, judge.higher)
    if best is not None:
        print_words(f"→ {best[0]}: {best[1]}".replace("\u00a0", " "), console)


def _told(rows: Sequence[Row], chosen: Collection[int]) -> list[int]:
    """Return the rows for a terminal: all, or if they are many, the front and the rows without activations."""
    if len(rows) <= MAX_TEXT_ROWS:
        return list(range(len(rows)))
    return [i for i, row in enumerate(rows) if i in chosen or not row.get("activations") or row["format"] in BASELINES]


def time_words(rows: Sequence[Row]) -> str:
    """Return a description of the time, with a warning if the weights are small."""
    held = rows[0]["bytes"] if rows else 0
    if rows and all(row.get("seconds") is None for row in rows):
        few = held < 4 * 100_000
        return f"no times: {'too few values to tell formats apart' if few else 'several workers, or timing is off'}"
    if held >= SMALL_BYTES:
        return TIME_WORDS
    return f"{TIME_WORDS}; {quantity(held, 'B')} of weights are too few for the time to tell formats apart"


def row_name(row: Row) -> str:
    words = [row[key] for key in TEXTS[:-1] if row.get(key)]
    return clean(" / ".join([*words, *["retrained"] * bool(row.get("retrained"))]))


def text(rows: Sequence[Row], layers: Sequence[Row], judge: Judge) -> str:
    """Return what `show` prints on standard output, without its colours."""
    return captured(lambda console: show(rows, layers, judge, console))


# HTML


def table_html(rows: Sequence[Row], judge: Judge, style: bool = True, notes: Sequence[str] = ()) -> str:
    """Return the main table as HTML: what Jupyter shows, and the sortable table of the page.

    Parameters
    ----------
    style : bool
        Bring the few rules along that make it readable outside the page.
    notes : sequence of str
        Sentences that follow the table.
    """
    rows, mixes = shortly(rows)
    chosen, columns = set(judge.front), _columns(rows)
    lines = []
    for i, row in enumerate(rows):
        line = []
        for key in columns:
            value = _value(key, row, rows)
            order = "Infinity" if key in DECIBELS and value is None else "" if value is None else value
            order = _cell(key, value) if value is True else order
            mark = " ●" if key == "format" and i in chosen else ""
            line.append((f"{_cell(key, value)}{mark}", order))
        lines.append(line)
    heads, texts = [_title(key, rows) for key in columns], [i for i, key in enumerate(columns) if key in TEXTS]
    judged = columns.index(judge.metric) if judge.metric in columns else None
    near = {id(row) for row in within_reach(rows, judge.metric, judge.higher)[0]}
    good = {i for i, row in enumerate(rows) if i in chosen and id(row) in near}
    found = sortable(heads, lines, texts, name="hc-study", judged=judged, marked=chosen, good=good)
    css = (
        "<style>.hc-study td,.hc-study th{text-align:right;padding:.25em .8em}.hc-study .text{text-align:left}"
        ".hc-study .front{font-weight:600}.hc-study{font-variant-numeric:tabular-nums}</style>"
    )
    sentences = [*(f"{name}: {words}" for name, words in mixes.items()), *notes]
    told = "".join(f"<p>{html.escape(clean(sentence))}</p>" for sentence in sentences)
    note = f"<p>● on the Pareto front; {time_words(rows)}</p>" if style else ""
    best = advice(rows, judge.metric, judge.higher) if style else None
    if best is not None:
        told += f"<p>→ <b>{html.escape(best[0])}</b>: {html.escape(best[1])}</p>"
    return f"{css if style else ''}{found}{note}{told}"


# The difference of two studies


def changes(rows: Sequence[Row]) -> list[Column]:
    """Return the columns of a table of differences, numbers with a sign."""
    found = []
    for key in _columns(rows):
        if key != "speed":
            cell = partial(_cell, key) if key in TEXTS else partial(_change, key)
            found.append(Column(key, TITLES.get(key, key), cell, LEAVES.get(key, 0), key in TEXTS))
    return found


def _change(key: str, value: Any) -> str:
    if value is None:
        return "–"
    text = _cell(key, abs(value))
    return text if not value else f"{'+' if value > 0 else '-'}{text}"


def difference_html(rows: Sequence[Row]) -> str:
    """Return the rows of a difference of two studies as an HTML table."""
    columns = changes(rows)
    lines = [[(column.write(row[column.key]), row[column.key]) for column in columns] for row in rows]
    return sortable([column.title for column in columns], lines, [i for i, one in enumerate(columns) if one.left])


def within_reach(rows: Sequence[Row], metric: str, higher: bool) -> tuple[list[Row], str]:
    """Return the rows that lose next to nothing, and what that means.

    Parameters
    ----------
    higher : bool
        Whether more of `metric` is better.

    Returns
    -------
    (list of dict, str)
    """
    base, rows = rows[0], [row for row in rows if not elsewhere(row)]
    if metric in DECIBELS or base[metric] is None:
        key = metric if metric in DECIBELS else "sqnr_db"
        good = [row for row in rows if row[key] is not None and row[key] >= 20]
        return [
            row for row in good if row["bits"]
        ], f"with {'an SQNR' if key == 'sqnr_db' else 'outputs'} of 20 dB or more"
    sign, slack = 1 if higher else -1, 0.01 * abs(base[metric])
    good = [row for row in rows if row[metric] is not None and sign * (base[metric] - row[metric]) <= slack]
    title = TITLES.get(metric, metric)
    return [row for row in good if row["bits"]], f"within 1\u00a0% of the baseline's {title}"


def _losses(row: Row, metric: str, higher: bool) -> list[float]:
    """Return the key that orders rows of one size, less is better: the metric, then kl, then decibels."""
    found = []
    for key in (metric, "kl", *reversed(DECIBELS)):
        value = row.get(key, 0.0)  # a missing column decides nothing
        if key in DECIBELS:
            found.append(-math.inf if value is None else -value)
        else:
            found.append(math.inf if value is None else -value if key == metric and higher else value)
    return found


def advice(rows: Sequence[Row], metric: str, higher: bool) -> tuple[str, str] | None:
    """Return the format to take, and why: the smallest that costs next to nothing; None where none does.

    A language model whose file is quantized may stay as stored.

    Parameters
    ----------
    higher : bool
        Whether more of `metric` is better.

    Returns
    -------
    (str, str) or None
    """
    good, near = within_reach(rows, metric, higher)
    base, best = rows[0], min(good, key=lambda row: (row["bits"], *_losses(row, metric, higher)), default=rows[0])
    if best is base:
        none = f"{number(base['bits'])} bits: no format with fewer bits is {near}"
        tried = any(row["format"] != base["format"] for row in rows)
        return (base["format"], none) if base["format"] == STORED and tried else None
    judged = metric not in DECIBELS and base[metric] is not None
    smaller = f", {base['bytes'] / best['bytes']:.1f} x smaller" if judged else ""
    return row_name(best), f"{number(best['bits'])} bits{smaller}: the smallest {near}"
