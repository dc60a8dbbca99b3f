"""Sensitivity of layers: a table, a sentence and a picture of a metric with one layer rounded at a time.

`rows` are those of `Study.alone`: ``name``, ``format``, ``method`` and the numbers of `evaluate`; `base` is the row of
the unrounded network. This module imports nothing from the rest of the package.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from .page import sortable
from .palette import FAMILIES, family
from .plot import new_figure
from .study import labelled, number
from .table import Column, clean, print_table, print_words

Row = dict[str, Any]
MAX_ROWS = 16


def losses(rows: Sequence[Row], base: Row, metric: str, higher: bool) -> list[tuple[float | None, Row]]:
    """Return what each layer costs alone, and its row, the largest first.

    Parameters
    ----------
    higher : bool
        Whether more of `metric` is better.

    Returns
    -------
    list of (float or None, dict)
        None where either number is not finite.

    Examples
    --------
    >>> rows = [{"name": "a", "format": "int4", "acc": 0.9}, {"name": "b", "format": "int4", "acc": 0.5}]
    >>> [(row["name"], round(loss, 2)) for loss, row in losses(rows, {"acc": 1.0}, "acc", True)]
    [('b', 0.5), ('a', 0.1)]
    """
    found: list[tuple[float | None, Row]] = []
    for row in rows:
        known = row.get(metric) is not None and base.get(metric) is not None
        loss = (base[metric] - row[metric]) * (1 if higher else -1) if known else None
        found.append((loss, row))
    return sorted(found, key=lambda pair: -math.inf if pair[0] is None else -pair[0])


def _pivot(rows: Sequence[Row], base: Row, metric: str, higher: bool) -> tuple[list[str], list[str], dict[Any, Any]]:
    """Return the names (the largest loss first), the formats, and the metric by name and format."""
    ordered = losses(rows, base, metric, higher)
    names = list(dict.fromkeys(row["name"] for _, row in ordered))
    formats = list(dict.fromkeys(labelled(row["format"], row.get("method")) for row in rows))
    return names, formats, {(row["name"], labelled(row["format"], row.get("method"))): row[metric] for row in rows}


def sentence(rows: Sequence[Row], base: Row, metric: str, higher: bool) -> str:
    """Return which layer hurts most, in words.

    Parameters
    ----------
    rows, base, metric, higher
        As of `losses`.
    """
    loss, worst = losses(rows, base, metric, higher)[0]
    if loss is not None and loss <= 0:
        return f"no layer alone makes {metric} worse: {'more' if higher else 'less'} of it is taken to be better"
    return (
        f"{clean(worst['name'])} hurts most: {labelled(worst['format'], worst.get('method'))} in it alone takes "
        f"{metric} from {number(base[metric], 4)} to {number(worst[metric], 4)}"
    )


def show(rows: Sequence[Row], base: Row, metric: str, higher: bool, console: Any) -> None:
    """Print the table, the most harmful layers first, and the sentence.

    Parameters
    ----------
    rows, base, metric, higher
        As of `losses`.
    console : rich.console.Console
    """
    names, formats, found = _pivot(rows, base, metric, higher)
    columns = [Column("name", f"{metric}, in one layer alone")]
    columns += [Column(f"{i}", fmt, leaves=i) for i, fmt in enumerate(formats)]
    cells = [
        {"name": clean(name), **{f"{i}": _cell(found, name, fmt) for i, fmt in enumerate(formats)}}
        for name in names[:MAX_ROWS]
    ]
    console.print()
    print_table(columns, cells, console, more=("alone",))
    if len(names) > MAX_ROWS:
        print_words(f"... and {len(names) - MAX_ROWS} that hurt less (alone)", console)
    print_words(f"→ {sentence(rows, base, metric, higher)}", console)


def _cell(found: dict[Any, Any], name: str, fmt: str) -> str:
    return number(found[name, fmt], 4) if (name, fmt) in found else ""


def section(rows: Sequence[Row], base: Row, metric: str, higher: bool) -> str:
    """Return the same as a section of the page of a study.

    Parameters
    ----------
    rows, base, metric, higher
        As of `losses`.
    """
    names, formats, found = _pivot(rows, base, metric, higher)
    lines = [
        [(clean(name), clean(name)), *((_cell(found, name, fmt), found.get((name, fmt), "")) for fmt in formats)]
        for name in names
    ]
    words = html.escape(sentence(rows, base, metric, higher))
    title = html.escape(f"{metric} with one layer alone in a format")
    return f"<h2>{title}</h2><p>{words}.</p>{sortable(['layer', *formats], lines, [0], name='hc-alone')}"


def figure(rows: Sequence[Row], base: Row, metric: str, higher: bool) -> Any:
    """Draw what each layer costs alone, the most harmful first.

    Parameters
    ----------
    rows, base, metric, higher
        As of `losses`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    names, formats, found = _pivot(rows, base, metric, higher)
    names = names[:40]
    made = new_figure(8, max(2.5, 1.2 + 0.22 * len(names) * len(formats)))
    axes = made.subplots()
    height = 0.8 / len(formats)
    for i, fmt in enumerate(formats):
        places = [j + i * height for j, name in enumerate(names) if found.get((name, fmt)) is not None]
        values = [found[name, fmt] for name in names if found.get((name, fmt)) is not None]
        marks = [one for one in formats if family(one) == family(fmt)]
        style = {"color": FAMILIES[family(fmt)].color, "alpha": 1 - 0.6 * marks.index(fmt) / len(marks)}
        axes.barh(places, [value - base[metric] for value in values], height, left=base[metric], label=fmt, **style)
    axes.axvline(base[metric], color="#888", linewidth=1)
    axes.set_yticks([j + 0.4 - height / 2 for j in range(len(names))], [clean(name) for name in names], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f"{metric} with this layer alone in a format")
    axes.set_title("Which layer hurts", loc="left", fontsize=11, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    if len(formats) > 1:
        axes.legend(fontsize=8)
    return made
