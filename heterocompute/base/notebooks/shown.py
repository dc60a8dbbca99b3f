"""Results as the last line of a notebook's cell: a short text, and an HTML table."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping


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


def facts_html(facts: Mapping[str, object]) -> str:
    """Return a table of names and values.

    Examples
    --------
    >>> facts_html({"bits": "<4>"})
    "<table><tr><th style='text-align:left'>bits</th><td>&lt;4&gt;</td></tr></table>"
    """
    cells = (
        f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table>{''.join(cells)}</table>"
