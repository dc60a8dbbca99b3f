"""A format for each tensor, as `search` found it: tables, pictures, a recipe."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...base.cached import cached
from ...base.errors import WrongValue
from ...base.float_env import counts_subnormals
from ...base.texts import counted, file_name, quoted
from ...base.toml_text import toml_text
from ...formats import format as parse_format, is_function
from ...formats.defining import carried
from ...report import search as report
from ...report.files import write_figure, write_text
from ...report.results.checking import check_columns, fitted
from ...report.results.saved import plan_path
from .weighed import Weighed


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Weighed):
    """Assign a format to each tensor; returned by `search`.

    Attributes
    ----------
    recipe : dict of str to str
        Name -> format string, as accepted by ``recipe=`` and ``--recipe``, or JSON of a definition that came from
        another process. ``*``, ``?`` and ``[`` in a name are in brackets.
    weights : dict of str to QuantizedArray or original type
    table : list of dict
        One row per tensor: ``name shape method format bits bytes probe error alpha loss``. error is relative, loss is
        alpha * error, probe is the format that alpha was measured with, or None.
    bytes : int
        Bytes of the tensors with a chosen format.
    bits : float
        Bits per value of these tensors.
    budget, spent : dict of str to float
        The budget and the part that this plan uses, by kind.
    predicted, bound : float
        Predicted loss, and a lower bound of the loss of every choice within the budget.
    gap : float
        predicted - bound. 0 if the plan is proven optimal.
    measured : float or None
        The metric of the network with these weights, minus the metric of the unrounded network.
    uniform : list of dict
        For each format, used for all tensors: ``format bits bytes predicted``.
    notes : list of str
        A warning if the file of ``keep=`` holds only results of something else.
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
    notes: list[str] = field(default_factory=list)

    kind = "plan"
    names = ("name",)
    no_sum = "one tensor has one format"
    unsaved = ("weights", "_front")
    columns_of_files = {
        "name": str, "shape": list[int], "format": str, "method": str, "bits": float, "bytes": int,
        "probe": str | None, "error": float, "alpha": float, "loss": float,
    }  # fmt: skip

    @cached
    def _points(self) -> list[dict[str, Any]]:
        return self._front()

    @counts_subnormals
    def pareto(self) -> list[dict[str, Any]]:
        """Return the best plans in ascending order of bytes: ``bits``, ``bytes`` and ``predicted`` loss.

        Each is the result of a search with another budget of bytes. Budgets of other kinds are ignored here.

        Returns
        -------
        list of dict
        """
        return [dict(point) for point in self._points]

    @counts_subnormals
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recipe as TOML, or the whole plan.

        Parameters
        ----------
        path : str or os.PathLike
            If it ends in ``.json``, the plan without its weights, which `load` reads; in ``.safetensors``, the plan and
            its weights; in ``.toml``, or without a suffix, the recipe for ``heterocompute quantize --recipe``. A format
            that `define` named is written as its definition, which every process reads. Replaced by renaming if it
            exists.

        Raises
        ------
        ValueError
            A name is not text, or a format is a function of values, which no file holds. Or the path has the suffix
            of another kind of file.
        OSError
            The file cannot be written.
        """
        if plan_path(file_name(path)).endswith((".json", ".safetensors")):
            super().save(path)
        else:
            write_text(path, toml_text({"formats": self._carried()}))

    def _carried(self) -> dict[str, str]:
        """Return the recipe in texts that every process reads."""
        written = {}
        for name, text in self.recipe.items():
            try:
                name.encode("utf-8")
            except UnicodeEncodeError:
                raise WrongValue(f"save: the name {quoted(name)} is not a string, expected UTF-8") from None
            fmt = parse_format(text)
            if is_function(fmt):
                raise WrongValue(f"save: {quoted(name)} has the format {text}, a function of values; no file holds it")
            written[name] = carried(fmt)
        return written

    def _fields(self) -> dict[str, Any]:
        return {**super()._fields(), "recipe": self._carried(), "pareto": self._points}

    @classmethod
    def _check_fields(cls, fields: dict[str, Any]) -> None:
        check_columns(fields["uniform"], {"format": str, "bits": float, "bytes": int, "predicted": float}, "uniform")
        if not fields["budget"].keys() <= fields["spent"].keys():
            raise WrongValue("spent lacks a part of the budget")

    @classmethod
    def _restored(cls, found: dict[str, Any]) -> dict[str, Any]:
        points = fitted("pareto", found.get("pareto"), list[dict[str, float]])
        check_columns(points, {"bits": float, "bytes": float, "predicted": float}, "pareto")
        return {**super()._restored(found), "_front": lambda: points}

    @counts_subnormals
    def to_dict(self) -> dict[str, Any]:
        """Return everything except the weights, ready for JSON.

        Returns
        -------
        dict
            ``recipe rows bits bytes budget spent predicted bound gap measured uniform notes pareto``.
        """
        keys = ("recipe", "bits", "bytes", "budget", "spent", "predicted", "bound", "gap", "measured", "uniform",
                "notes")  # fmt: skip
        found = {"rows": self.table, "pareto": self._points, **{key: getattr(self, key) for key in keys}}
        return json.loads(json.dumps(found))  # type: ignore[no-any-return]

    @counts_subnormals
    def to_html(self, path: str | os.PathLike[str], title: str = "A format for each tensor") -> None:
        """Write one self-contained page with the loss per bit and one row per tensor.

        Parameters
        ----------
        path : str or os.PathLike
            Replaced by renaming if it exists.
        title : str, optional
            Heading of the page.
        """
        write_text(path, report.page(title, self.to_dict(), str(self), self._stored_if_it_can()))

    @counts_subnormals
    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot predicted loss against bits, mixed and uniform, and the bits of each tensor.

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
        figure = report.figure(self.to_dict())
        if path is not None:
            write_figure(path, figure)
        return figure

    def _stored_if_it_can(self) -> dict[str, Any] | None:
        """Return what a page holds for `load`; None for formats that no file holds."""
        return None if any(is_function(parse_format(text)) for text in self.recipe.values()) else self._stored()

    def __repr__(self) -> str:
        return f"<Plan of {counted(len(self.table), 'tensor')}: {self}>"

    @counts_subnormals
    def __str__(self) -> str:
        proof = "a proven optimum" if self.gap == 0 else f"at most {self.gap:.3g} above the optimum"
        measured = "" if self.measured is None else f", measured {self.measured:.4g}"
        notes = "".join(f"; note: {note}" for note in self.notes)
        spent = ", ".join(f"{kind} {self.spent[kind]:.6g} of {limit:.6g}" for kind, limit in self.budget.items())
        return (
            f"{self.bits:.3f} bits per value, {counted(self.bytes, 'byte')} ({spent}); loss predicted "
            f"{self.predicted:.4g}, "
            f"bound {self.bound:.4g}: {proof}{measured}{notes}"
        )
