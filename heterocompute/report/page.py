"""The page around every report: its head, colours, numbers, tables and script are in page.html."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .chart import Key, outline
from .palette import css

LONG = 40  # letters of a text cell from which it is broken between words
Cell = tuple[str, Any]  # the displayed value, and the value for sorting


STORED = '<script type="application/json" id="stored">'


def page(title: str, body: str, data: object = None, script: str = "", style: str = "", stored: object = None) -> str:
    """Return a whole page: styles, data and one script inside, nothing fetched.

    Parameters
    ----------
    title : str
        Any text.
    body : str
        HTML, names in it escaped.
    data : object, optional
        What JSON can hold; the constant `data` of the script.
    script, style : str, optional
        Of this page, beside what all have.
    stored : object, optional
        The result itself, for programs: what `stored_json` finds in the page.

    Examples
    --------
    >>> "&lt;b&gt;" in page("<b>", "<p>words</p>")
    True
    """
    held = "" if stored is None else f"{STORED}{_in_script(stored)}</script>"
    parts = {
        "title": html.escape(title), "colors": css(), "style": style, "body": body, "data": _in_script(data),
        "script": script, "stored": held,
    }  # fmt: skip
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _in_script(value: object) -> str:
    """Return JSON for a script element, where only "<" can end or disturb the text."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def stored_json(text: str) -> str:
    """Return the JSON of the result that a page holds, or an empty text.

    Examples
    --------
    >>> stored_json(page("title", "", stored={"a": "<"}))
    '{"a":"\\\\u003c"}'
    """
    return text.partition(STORED)[2].partition("</script>")[0]


def section(heading: str, words: str, inside: str, name: str = "") -> str:
    """Return a card: a heading and words, which are escaped, and HTML."""
    told = f"<p>{html.escape(words)}</p>" if words else ""
    kind = f' id="{name}"' if name else ""
    head = f"<h2>{html.escape(heading)}</h2>" if heading else ""
    return f"<section{kind}>{head}{told}{inside}</section>"


def tiles(found: Iterable[tuple[str, str]]) -> str:
    """Return the figures that answer most questions: (figure, description)."""
    inside = "".join(
        f'<div class="tile"><b>{html.escape(value)}</b><span>{html.escape(words)}</span></div>'
        for value, words in found
    )
    return f'<div class="tiles">{inside}</div>'


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]], texts: Sequence[int] = (0,), caption: str = "") -> str:
    """Return a table that sorts and scrolls; `texts` are the columns of words."""
    return f'<div class="wide">{sortable(heads, rows, texts, caption)}</div>'


MOST_ROWS = 30  # of a table that a notebook shows


def rows_html(rows: Sequence[Mapping[str, Any]], words: str = "") -> str:
    """Return a table of the texts and numbers in rows, for notebooks; `words` stand above it.

    Examples
    --------
    >>> "<td" in rows_html([{"name": "fc1", "seconds": 1.5e-6}], "words")
    True
    """
    plain = (str, int, float, type(None))
    keys = [key for key in (rows[0] if rows else ()) if all(isinstance(row.get(key), plain) for row in rows)]
    lines = [[(_plainly(row.get(key)), row.get(key)) for key in keys] for row in rows[:MOST_ROWS]]
    texts = [i for i, key in enumerate(keys) if any(isinstance(row.get(key), str) for row in rows)]
    left = f"<p>... and {len(rows) - MOST_ROWS} rows</p>" if len(rows) > MOST_ROWS else ""
    told = f"<p>{html.escape(words)}</p>" if words else ""
    return f"{told}{sortable([key.replace('_', ' ') for key in keys], lines, texts)}{left}" if keys else told


def _plainly(value: Any) -> str:
    if value is None or isinstance(value, (str, bool)):
        return "–" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def sortable(
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    texts: Sequence[int] = (0,),
    caption: str = "",
    name: str = "",
    judged: int | None = None,
    marked: Collection[int] = (),
    good: Collection[int] = (),
) -> str:
    """Return a table that the page sorts.

    Parameters
    ----------
    rows : iterable of sequence of (str, object)
    texts : sequence of int
        Columns that hold words.
    name : str
        CSS class of the table, besides ``sorts``.
    judged : int, optional
        Column whose cells get the class ``metric``.
    marked : collection of int
        Rows that get the class ``front``.
    good : collection of int
        Rows of the class ``good``, whose names have the colour of recommendations.
    """
    kinds = ["text" if i in texts else "" for i in range(len(heads))]
    pairs = zip(heads, kinds, strict=True)
    head = "".join(f'<th scope="col"{_class(kind)}>{html.escape(text)}</th>' for text, kind in pairs)
    body = []
    for i, row in enumerate(rows):
        cells = "".join(
            f"<td{_class(kind, 'long' if kind and len(shown) > LONG else '', 'metric' if j == judged else '')}"
            f' data-v="{html.escape(str(order))}">{html.escape(shown)}</td>'
            for j, ((shown, order), kind) in enumerate(zip(row, kinds, strict=True))
        )
        body.append(f"<tr{_class('front' if i in marked else '', 'good' if i in good else '')}>{cells}</tr>")
    words = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table{_class(name, 'sorts')}>{words}<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _class(*names: str) -> str:
    found = " ".join(filter(None, names))
    return f' class="{found}"' if found else ""


def legend(keys: Iterable[Key]) -> str:
    """Return the entries of a legend."""
    return "".join(map(_entry, keys))


def _entry(key: Key) -> str:
    color = key.mark.color
    look = f'fill="none" stroke="{color}" stroke-width="2"' if key.hollow else f'fill="{color}"'
    more = f'<circle cx="7" cy="7" r="6.3" fill="none" stroke="{color}"/>' if key.ring else ""
    more += f'<circle cx="7" cy="7" r="1.5" fill="{color if key.hollow else "var(--card)"}"/>' if key.inner else ""
    path = f'<path d="{outline(key.mark, 7, 7, 3.5 if key.ring else 4.5)}" {look}/>'
    return f'<span class="key"><svg viewBox="0 0 14 14">{path}{more}</svg>{html.escape(key.words)}</span>'
