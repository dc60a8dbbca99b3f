"""`summary`: which weights of a model are packed, why the rest are not, and their bytes."""

from __future__ import annotations

import html
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch

from ...base.float_env import counts_subnormals
from ...formats import format as parse_format
from ...report.files import Row
from ...report.results.tabular import Tabular
from ...report.table import Column, print_table, print_words, terminal, width_of
from .walk import Layer, every_layer

COLUMNS = [
    Column("name", "weight"),
    Column("kind", "kind", left=True, leaves=2),
    Column("shape", "shape", lambda shape: " x ".join(map(str, shape)), leaves=3, left=True),
    Column("format", "format", lambda text: text or "–", left=True),
    Column("activations", "activations", lambda text: text or "–", leaves=1, left=True),
    Column("before", "bytes before", "{:,}".format),
    Column("after", "bytes after", "{:,}".format),
    Column("reason", "note", left=True),
]


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Tabular):
    """The result of `summary`; displays as a table in a terminal and in Jupyter.

    Attributes
    ----------
    table : list of dict
        One row per weight, in the order of the model: ``name kind shape format activations before after reason``.
        ``before`` and ``after`` are bytes before packing and now, 0 for a weight that is tied to an earlier one.
        ``format`` is None for a weight that is not packed. ``reason`` tells why, or which weight it is tied to.
    others : int
        Bytes of all parameters and buffers that are not weights of layers, such as biases and norms.
    """

    table: list[Row]
    others: int

    kind = "summary"
    names = ("name",)
    no_sum = "one model has one summary"

    @property
    def before(self) -> int:
        """Return the bytes of the model before packing."""
        return self.others + sum(int(row["before"]) for row in self.table)

    @property
    def after(self) -> int:
        """Return the bytes of the model now."""
        return self.others + sum(int(row["after"]) for row in self.table)

    def records(self) -> list[Row]:
        """Return the table, one dict per weight."""
        return self.table

    def show(self, console: object = None, more: Sequence[str] = ("records()",)) -> None:
        """Print the table and the totals.

        Parameters
        ----------
        console : rich.console.Console, optional
            Default: standard output.
        more : sequence of str, optional
            How to show the columns that do not fit a narrow terminal.
        """
        console = terminal() if console is None else console
        print_table(COLUMNS, self.table, console, more=more)
        print_words(self._sums(), console)

    def _sums(self) -> str:
        packed = sum(row["format"] is not None for row in self.table)
        words = f"{packed} of {len(self.table)} weights packed; model: {self.before:,} bytes before, {self.after:,} now"
        return f"{words}, {self.others:,} of these in biases, norms and buffers"

    def __repr__(self) -> str:
        out = io.StringIO()
        console = terminal(out)
        console.width = width_of(sys.stdout)
        self.show(console)
        return out.getvalue().rstrip()

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{html.escape(column.title)}</th>' for column in COLUMNS)
        rows = ("".join(f"<td>{html.escape(c.write(row[c.key]))}</td>" for c in COLUMNS) for row in self.table)
        body = "".join(f"<tr>{cells}</tr>" for cells in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{html.escape(self._sums())}</p>"


def _activations(layer: Layer) -> str | None:
    """Return the format that inputs of a packed layer are rounded to; a table has no such inputs."""
    if layer.packed is None or layer.kind.startswith("embedding") or layer.packed.activations is None:
        return None
    return str(parse_format(layer.packed.activations))


@counts_subnormals
def summary(model: torch.nn.Module) -> Summary:
    """Report for each weight of a model whether it is packed, why not, and its size in bytes.

    Parameters
    ----------
    model : torch.nn.Module
        Result of `convert`, or any other model.

    Returns
    -------
    Summary

    Raises
    ------
    TypeError
        The model is not a module.

    Examples
    --------
    >>> from heterocompute.interop import torch as ht
    >>> small = ht.convert(torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.GRU(8, 8)), "int4-g32")
    >>> [(row["name"], row["format"], row["after"]) for row in ht.summary(small).records()][:2]
    [('0.weight', 'int4-g32', 320), ('1.weight_ih_l0', None, 768)]
    """
    first: dict[int, str] = {}
    rows: list[Row] = []
    counted = 0
    for layer in every_layer(model, "summary"):
        weight = layer.packed if layer.packed is not None else getattr(layer.module, layer.attribute)
        stored = layer.module._parameters.get(layer.attribute)
        tied = first.get(id(weight))
        first.setdefault(id(weight), layer.name)
        reason = f"tied to {tied}" if tied else ""
        if layer.packed is None and not tied:
            reason = layer.problem or "not chosen"
        wide = 0 if tied else prod(layer.shape) * weight.dtype.itemsize
        after = 0 if tied else layer.packed.nbytes if layer.packed is not None else wide
        counted += after if layer.packed is not None or stored is not None else 0
        rows.append(
            {
                "name": layer.name,
                "kind": layer.kind,
                "shape": layer.shape,
                "format": None if layer.packed is None else str(layer.packed.format),
                "activations": _activations(layer),
                "before": wide,
                "after": after,
                "reason": reason,
            }
        )
    everything = sum(part.nbytes for part in (*model.parameters(), *model.buffers()))
    return Summary(rows, max(everything - counted, 0))
