"""Results with weights: the report as JSON, or the report and the weights as one safetensors file."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ...arrays.base import PackedArray
from ...base.errors import WrongValue, printable, shown
from ...base.float_env import counts_subnormals
from ...base.keeping.results import KeptResults
from ...base.texts import counted, file_name
from ...files.opening import load
from ...files.safetensors import KINDS, Reader, save_with
from ...formats import Format
from ...report import rounding as report
from ...report.files import write_text
from ...report.results.checking import from_json, to_json
from ...report.results.tabular import Tabular

KEY = "heterocompute.result"  # the report in the header of a safetensors file
SUFFIX = ".safetensors"


class Weighed(Tabular):
    """Base of the results that hold `weights`."""

    weights: dict[str, Any]

    unsaved: ClassVar[tuple[str, ...]] = ("weights",)
    suffixes: ClassVar[tuple[str, ...]] = (".json", SUFFIX)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result, which `load` reads.

        Parameters
        ----------
        path : str or os.PathLike
            If it ends in ``.safetensors``, the report and the weights; `heterocompute.load` reads the weights, too.
            In ``.json``, or without a suffix, the report as JSON, without the weights. Replaced by renaming if it
            exists.

        Raises
        ------
        ValueError
            The result was loaded from JSON, so it has no weights to write. Or the path has the suffix of another kind
            of file.
        OSError
            The file cannot be written.
        """
        where = file_name(path)
        if not where.endswith(SUFFIX):
            super().save(where)
        elif not self.weights:
            raise WrongValue(f"save: this {self.kind} has no weights, since JSON holds none: expected another suffix")
        else:
            save_with(where, self.weights, {KEY: json.dumps(self._stored(), allow_nan=False)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a result that `save` or `to_html` wrote.

        Parameters
        ----------
        path : str or os.PathLike
            A safetensors file, a JSON file, or the HTML page. `weights` is empty except for the first.

        Raises
        ------
        ValueError
            The file holds something else, or a later version of it.
        OSError
            The file cannot be read.
        """
        where = file_name(path)
        if not where.endswith(SUFFIX):
            return super().load(where)
        with Reader(where) as reader:
            text = reader.metadata.get(KEY)
        if text is None:
            raise WrongValue(f"{printable(where)}: holds arrays and no {cls.kind}, expected a file that save wrote")
        found = cls._from_text(printable(where), text)
        weights = load(where)
        object.__setattr__(found, "weights", weights)
        return found

    @classmethod
    def _restored(cls, found: dict[str, Any]) -> dict[str, Any]:
        return {"weights": {}}


@dataclass(frozen=True, repr=False)
class Rounded(Weighed):
    """Hold the rounded weights of a network, and a report.

    Attributes
    ----------
    weights : dict of str to QuantizedArray or original type
        All weights, for the same `inputs`.
    table : list of dict
        One row per tensor: ``name format tokens damping dead before after``. before and after are the SQNR of the
        outputs in dB, of round-to-nearest and of this result. With held-out inputs also ``held_before`` and
        ``held_after``.
    left : list of str
        Selected weights that were never multiplied. They are unchanged.
    """

    weights: dict[str, Any]
    table: list[dict[str, Any]]
    left: list[str]

    kind = "rounding"
    names = ("name",)
    columns_of_files = {"name": str, "format": str, "tokens": int, "damping": float, "dead": int, "before": float,
                        "after": float}  # fmt: skip

    def _joined(self, other: Rounded) -> Rounded:
        mine, theirs = ({row["name"] for row in one.table} for one in (self, other))
        if both := sorted(mine & theirs):
            raise WrongValue(f"rounding + rounding: both have rounded {shown(both[0])}; a - b compares them")
        weights = {**self.weights, **{name: other.weights[name] for name in theirs if name in other.weights}}
        left = [name for name in dict.fromkeys((*self.left, *other.left)) if name not in mine | theirs]
        return Rounded(weights, self._joined_table(other), left)

    @counts_subnormals
    def to_html(self, path: str | os.PathLike[str], title: str = "Rounded under its inputs") -> None:
        """Write one self-contained page with the output error of each layer, before and after.

        Parameters
        ----------
        path : str or os.PathLike
            Replaced by renaming if it exists.
        title : str, optional
            Heading of the page.
        """
        write_text(path, report.page(title, self.table, self.left, self._stored()))

    def __repr__(self) -> str:
        return f"<Rounded: {counted(len(self.table), 'tensor')}, {len(self.left)} left as they were>"

    @counts_subnormals
    def __str__(self) -> str:
        keys = list(self.table[0]) if self.table else ["name"]
        lines = [keys, *([_cell(row[key]) for key in keys] for row in self.table)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(keys))]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines
        )


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def kept_codes(
    kept: KeptResults, fmt: Format, about: Iterable[object], compute: Callable[[], tuple[Any, dict[str, Any]]]
) -> tuple[Any, dict[str, Any]]:
    """Return a rounded array and its report from the file of ``keep=``, or compute them and append them to it.

    Parameters
    ----------
    about : iterable
        Everything that determines them.
    """
    if not kept:
        return compute()
    parts = tuple(about)
    if (held := kept.find(*parts)) is not None:
        return _restored(fmt, held["array"]), from_json(held["report"])
    array, report = compute()
    if isinstance(array, PackedArray) and all(part.dtype.kind in "biuf" for part in array.components.values()):
        kept.add({"array": _plain(array), "report": to_json(report)}, *parts)
    return array, report


def _plain(array: Any) -> dict[str, Any]:
    entry = array._entry()
    stored = {
        key: [part.dtype.str, list(part.shape), base64.b64encode(part.tobytes()).decode()]
        for key, part in array.components.items()
    }
    return {"kind": type(array).__name__, "shape": list(entry.shape), "axis": list(entry.axis), "dtype": entry.dtype,
            "parts": stored}  # fmt: skip


def _restored(fmt: Format, held: dict[str, Any]) -> Any:
    parts = {
        key: np.frombuffer(base64.b64decode(text), dtype).reshape(shape)
        for key, (dtype, shape, text) in held["parts"].items()
    }
    kind = next(one for one in KINDS if one.__name__ == held["kind"])
    given: Any = fmt
    described = kind._described(
        given, tuple(held["shape"]), tuple(held["axis"]), held["dtype"],
        lambda key: (parts[key].dtype.name, parts[key].shape) if key in parts else ("", (0,)),
    )  # fmt: skip
    assert described is not None
    return kind._restored(described, parts)
