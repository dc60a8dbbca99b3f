"""The result of a study of densities: plain lists of dicts, and the views of them."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import WrongValue
from ..base.float_env import counts_subnormals
from ..report import density as density_figure
from ..report.files import write_figure, write_text
from ..report.results.checking import check_rows, check_texts
from ..report.results.tabular import Tabular
from .result import more_is_better

__all__ = ["DensityStudy"]


@dataclass(frozen=True, eq=False, repr=False)
class DensityStudy(Tabular):
    """The result of `heterocompute.study_density`; displays as tables, in Jupyter with its figure.

    Attributes
    ----------
    table : list of dict
        The unpruned network first. Then one row per kind of ``layers``, ``structure`` (name of a curve) and
        ``pattern``, and a second one if ``retrained`` (True or None). ``density`` is the fraction of nonzero weights of
        these layers. The numbers that `evaluate` returned follow.
    metrics : list of str
        Names of these numbers. The first one decides.
    slack : float
        Loss that is tolerated.
    """

    table: list[dict[str, Any]]
    metrics: list[str]
    slack: float

    kind = "density study"
    names = ("layers", "structure", "pattern", "retrained")
    columns_of_files = {"layers": str | None, "structure": str | None, "pattern": str | None, "density": float,
                        "retrained": bool | None}  # fmt: skip

    @classmethod
    def _check_fields(cls, fields: dict[str, Any]) -> None:
        check_rows("table", fields["table"], ("layers", "structure", "pattern"))
        check_texts("metrics", fields["metrics"])
        if not fields["table"] or not fields["metrics"] or not set(fields["metrics"]) <= set(fields["table"][0]):
            raise WrongValue("table lacks a metric")

    def _joined(self, other: DensityStudy) -> DensityStudy:
        if self.slack != other.slack:
            raise WrongValue(f"density study + density study: slack is {self.slack:g} and {other.slack:g}")
        metrics = list(dict.fromkeys((*self.metrics, *other.metrics)))
        return DensityStudy(self._joined_table(other), metrics, self.slack)

    @property
    @counts_subnormals
    def lowest(self) -> list[dict[str, Any]]:
        """Return, per curve, the lowest density for which it and all higher densities lose less than `slack`.

        Returns
        -------
        list of dict
            Rows of `table` with their ``structure``. If every density loses more: ``density`` 1 and ``pattern`` None.
        """
        metric, sign = self.metrics[0], 1.0 if more_is_better(self.metrics[0]) else -1.0
        base = self.table[0]
        found = []
        for (layers, structure, retrained), rows in density_figure.curves(self.table).items():
            best = {**base, "layers": layers, "structure": structure, "retrained": retrained}
            for row in rows:
                if row[metric] is None or base[metric] is None or sign * (base[metric] - row[metric]) >= self.slack:
                    break
                best = row
            found.append(dict(best))
        return found

    @counts_subnormals
    def to_dict(self) -> dict[str, Any]:
        """Return ``{"rows": table, "lowest": lowest, "slack": slack}``, ready for JSON (no NaN, no infinity).

        Returns
        -------
        dict
        """
        return {"rows": [dict(row) for row in self.table], "lowest": self.lowest, "slack": self.slack}

    @counts_subnormals
    def to_svg(self, path: str | os.PathLike[str] | None = None) -> str:
        """Plot the metric against density, one panel per kind of layers, and return the SVG.

        Parameters
        ----------
        path : str or os.PathLike, optional
            Also write the SVG to this path.

        Returns
        -------
        str
        """
        picture = density_figure.svg(self.table, self.lowest, self.metrics[0], self.slack)
        if path is not None:
            write_text(path, picture)
        return picture

    @counts_subnormals
    def to_html(self, path: str | os.PathLike[str], title: str = "Study of densities") -> None:
        """Write one self-contained page with the figure and the tables.

        Parameters
        ----------
        path : str or os.PathLike
            Replaced by renaming if it exists.
        title : str, optional
            Heading of the page.
        """
        write_text(
            path, density_figure.page(title, self.table, self.lowest, self.metrics[0], self.slack, self._stored())
        )

    @counts_subnormals
    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot the same figure with matplotlib.

        Parameters
        ----------
        path : str or os.PathLike, optional
            Also write the figure to this path, in the format of the suffix.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            matplotlib is not installed; install the extra ``plot``.
        """
        figure = density_figure.figure(self.table, self.lowest, self.metrics[0], self.slack)
        if path is not None:
            write_figure(path, figure)
        return figure

    @counts_subnormals
    def show(self, console: object = None, more: Sequence[str] = ("table",)) -> None:
        """Print a table per kind of layers, and the lowest densities.

        Parameters
        ----------
        console : rich.console.Console, optional
            Default: standard output.
        more : sequence of str, optional
            How to show the columns that do not fit a narrow terminal.
        """
        density_figure.show(self.table, self.lowest, self.metrics[0], self.slack, console, more)

    @counts_subnormals
    def __repr__(self) -> str:
        return density_figure.text(self.table, self.lowest, self.metrics[0], self.slack)

    @counts_subnormals
    def _repr_html_(self) -> str:
        words = "".join(f"<p>{html.escape(line)}</p>" for line in density_figure.sentences(self.lowest, self.slack))
        tables = density_figure.tables_html(self.table, self.lowest, self.metrics[0])
        return self.to_svg() + words + tables
