"""Results as the last line of a notebook's cell: a short text, and an HTML table."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

import numpy as np

MOST_ENTRIES, MOST_LETTERS, MOST_FACTS = 12, 200, 100  # of an attribute, and lines of a table


class Shown:
    """Base of what notebooks show: ``repr`` and `_repr_html_` in one answer.

    Frontends that ask for a MIME bundle get both, and choose.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        raise NotImplementedError

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        kinds = {"text/plain": self.__repr__, "text/html": self._repr_html_}
        return {
            kind: text()
            for kind, text in kinds.items()
            if (include is None or kind in include) and kind not in (exclude or ())
        }


class Facts(Shown):
    """Base of dataclasses whose table in a notebook is their attributes."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        names = [one.name for one in fields(self) if not one.name.startswith("_")]  # type: ignore[arg-type]
        return facts_html({name.replace("_", " "): told(getattr(self, name)) for name in names})


def told(value: Any) -> str:
    """Return an attribute in a few words.

    Examples
    --------
    >>> told(1 / 3), told({"forward": 0.5}), told(np.arange(40)), told(list(range(40)))
    ('0.33333', 'forward 0.5', 'int64 (40,), 0 to 39', '40 entries')
    """
    text = _whole(value)
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}..."


def _whole(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, (float, np.floating)):
        return f"{value:.5g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, np.ndarray):
        has_ends = value.size and value.dtype.kind in "biuf"
        ends = f", {told(value.min().item())} to {told(value.max().item())}" if has_ends else ""
        return f"{value.dtype} {value.shape}{ends}"
    if isinstance(value, Mapping):
        pairs = [f"{name} {told(one)}" for name, one in value.items()]
        return ", ".join(pairs) if len(pairs) <= MOST_ENTRIES else f"{len(pairs)} entries"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(told, value)) if len(value) <= MOST_ENTRIES else f"{len(value)} entries"
    return str(value)


def facts_html(facts: Mapping[str, object]) -> str:
    """Return a table of names and values, the first `MOST_FACTS` of them.

    Examples
    --------
    >>> facts_html({"bits": "<4>"})
    "<table><tr><th style='text-align:left'>bits</th><td>&lt;4&gt;</td></tr></table>"
    """
    lines = [(name if len(name) <= MOST_LETTERS else f"{name[:MOST_LETTERS]}...", str(value))
             for name, value in islice(facts.items(), MOST_FACTS)]  # fmt: skip
    lines += [("...", f"and {len(facts) - MOST_FACTS} more")] if len(facts) > MOST_FACTS else []
    cells = (f"<tr><th style='text-align:left'>{_cell(a)}</th><td>{_cell(b)}</td></tr>" for a, b in lines)
    return f"<table>{''.join(cells)}</table>"


def _cell(text: str) -> str:
    """Return a text for a page: a file's name may have letters that UTF-8 has not."""
    return html.escape(text.encode("utf-8", "backslashreplace").decode())
