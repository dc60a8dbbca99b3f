"""The answer of `diff`: what differs between two checkpoints or two networks, and why."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any

from ..report.files import csv_text, write_text
from ..report.page import page, rows_html, section, table, tiles
from ..report.results.checking import check_columns
from ..report.results.saved import Saved
from ..report.table import clean


@dataclass(frozen=True)
class Difference(Saved):
    """The answer of `heterocompute.diff`; `save` writes a file that `load` reads.

    Attributes
    ----------
    equal : bool
        Whether all values are equal.
    layer : str or None
        The tensor that differs most; of two networks the first layer that parts.
    cause : str or None
        Why it differs, such as ``"weights"``, ``"format"``, ``"shape"``, ``"order"``, ``"operation"`` or
        ``"nondeterminism"``; ``"unexplained"`` if no hypothesis gives its values.
    residual : float or None
        Of two networks: the largest difference under this cause, in units of the bound of a float32 sum.
    tested : list of (str, float)
        Of two networks: each hypothesis in its order, with its residual.
    rows : list of dict
        One per tensor, the largest difference first, or one per layer in order of computation.
    notes : list of str
        Differences without an effect on values, such as metadata.
    """

    equal: bool
    layer: str | None
    cause: str | None
    residual: float | None = None
    tested: list[tuple[str, float]] = field(default_factory=list, repr=False)
    rows: list[dict[str, Any]] = field(default_factory=list, repr=False)
    notes: list[str] = field(default_factory=list, repr=False)

    kind = "difference of checkpoints or networks"

    @classmethod
    def _check_fields(cls, fields: dict[str, Any]) -> None:
        check_columns([{**row, "shape": None, "index": None} for row in fields["rows"]], {"status": str}, "rows")

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        return {
            "equal": self.equal,
            "layer": self.layer,
            "cause": self.cause,
            "residual": self.residual,
            "tested": [list(one) for one in self.tested],
            "rows": self.rows,
            "notes": self.notes,
        }

    def _repr_html_(self) -> str:
        return rows_html(self.rows, "; ".join([repr(self), *self.notes]))

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the rows as CSV."""
        write_text(path, csv_text(self.rows))

    def to_html(self, path: str | os.PathLike[str], title: str = "Differences") -> None:
        """Write one self-contained page with the rows.

        Parameters
        ----------
        path : str or os.PathLike
            Replaced by renaming if it exists.
        title : str, optional
            Heading of the page.
        """
        keys = list(dict.fromkeys(key for row in self.rows for key in row))
        lines = [[_cell(row.get(key)) for key in keys] for row in self.rows]
        wrong = sum(row["status"] not in ("equal", "layout") for row in self.rows)
        figures = [(str(len(self.rows)), "rows"), (str(wrong), "different")]
        if self.cause is not None:
            figures.append((clean(self.cause), f"cause, at {clean(self.layer or '')}"))
        texts = [i for i, key in enumerate(keys) if any(isinstance(row.get(key), str) for row in self.rows)]
        body = tiles(figures) + section("Every row", "", table(keys, lines, texts=texts or (0,)))
        for note in self.notes:
            body += section("", clean(note), "")
        write_text(path, page(title, body, stored=self._stored()))


def _cell(value: object) -> tuple[str, Any]:
    if value is None:
        return "–", ""
    if isinstance(value, float):
        return (f"{value:.4g}", value) if math.isfinite(value) else ("–", "")
    return clean(str(value)), value
