"""A format for each tensor, as `search` found it: tables, pictures, a recipe."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..base.float_env import counts_subnormals
from ..base.kept import kept
from ..base.texts import counted, quoted
from ..base.toml_text import toml_text
from ..report import search as report
from ..report.files import Tabular, write_figure, write_text

__all__ = ["Plan"]


@dataclass(frozen=True, eq=False)
class Plan(Tabular):
    """A format for each tensor.

    Attributes
    ----------
    recipe : dict of str to str
        Name -> text of the format, as ``recipe=`` and ``--recipe`` take it: ``*``, ``?`` and ``[`` of a name stand in
        brackets.
    weights : dict of str to QuantizedArray or what came
    table : list of dict
        A row a tensor: ``name shape method format bits bytes probe error alpha loss`` (error relative, loss = alpha *
        error, probe the format that alpha was measured with, or None).
    bytes : int
        Of the tensors that were chosen for.
    bits : float
        A value, of these.
    budget, spent : dict of str to float
        What was allowed, and what this takes of it, by kind.
    predicted, bound : float
        Loss; no choice within the budget has less than the bound.
    gap : float
        predicted - bound: 0 where the optimum is proven.
    measured : float or None
        The metric of the network with these weights, less that of the unrounded one.
    uniform : list of dict
        For each format in all tensors: ``format bits bytes predicted``.
    """

    recipe: dict[str, str]
    weights: dict[str, Any] = field(repr=False)
    table: list[dict[str, Any]]
    bytes: int
    bits: float
    budget: dict[str, float]
    spent: dict[str, float]
    predicted: float
    bound: float
    gap: float
    measured: float | None
    uniform: list[dict[str, Any]]
    _front: Callable[[], list[dict[str, Any]]] = field(repr=False)

    @kept
    def _points(self) -> list[dict[str, Any]]:
        return self._front()

    @counts_subnormals
    def pareto(self) -> list[tuple[int, float]]:
        """Return (bytes, predicted loss) of best choices, from the smallest network to the largest.

        Each is what a search finds for another budget of bytes; budgets of other kinds do not count here.

        Returns
        -------
        list of (int, float)
        """
        return [(point["bytes"], point["predicted"]) for point in self._points]

    @counts_subnormals
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recipe as TOML, for ``heterocompute quantize --recipe`` and ``heterocompute ptq --recipe``.

        Parameters
        ----------
        path : path
            Replaced by renaming if it exists.

        Raises
        ------
        ValueError
            A name is no text.
        """
        for name in self.recipe:
            try:
                name.encode("utf-8")
            except UnicodeEncodeError:
                raise ValueError(f"save: the name {quoted(name)} is no text, wanted UTF-8") from None
        write_text(path, toml_text({"formats": self.recipe}))

    @counts_subnormals
    def to_dict(self) -> dict[str, Any]:
        """Return all but the weights, ready for JSON.

        Returns
        -------
        dict
            ``recipe rows bits bytes budget spent predicted bound gap measured uniform pareto``.
        """
        keys = ("recipe", "bits", "bytes", "budget", "spent", "predicted", "bound", "gap", "measured", "uniform")
        found = {"rows": self.table, "pareto": self._points, **{key: getattr(self, key) for key in keys}}
        return json.loads(json.dumps(found))  # type: ignore[no-any-return]

    @counts_subnormals
    def to_html(self, path: str | os.PathLike[str], title: str = "A format for each tensor") -> None:
        """Write one page that needs nothing else: what a bit buys, and a row a tensor.

        Parameters
        ----------
        path : str or os.PathLike
            Replaced by renaming if it exists.
        title : str, optional
            Heading of the page.
        """
        write_text(path, report.page(title, self.to_dict(), str(self)))

    @counts_subnormals
    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw predicted loss against bits, mixed and uniform, and the bits of each tensor.

        Parameters
        ----------
        path : str or os.PathLike, optional
            Also write the figure there, in the format of the suffix.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            matplotlib is not installed; the extra ``plot`` brings it.
        """
        figure = report.figure(self.to_dict())
        if path is not None:
            write_figure(path, figure)
        return figure

    @counts_subnormals
    def __str__(self) -> str:
        proof = "a proven optimum" if self.gap == 0 else f"at most {self.gap:.3g} above the optimum"
        measured = "" if self.measured is None else f", measured {self.measured:.4g}"
        spent = ", ".join(f"{kind} {self.spent[kind]:.6g} of {limit:.6g}" for kind, limit in self.budget.items())
        return (
            f"{self.bits:.3f} bits a value, {counted(self.bytes, 'byte')} ({spent}); loss predicted "
            f"{self.predicted:.4g}, "
            f"bound {self.bound:.4g}: {proof}{measured}"
        )
