"""The ledger: figures of papers, data sheets and lectures, read from sources/*.toml and joined with their models.

A figure is a row of a TOML file; a new one needs no code if a model function for it exists.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from ...base.errors import WrongType, WrongValue, shown
from ...base.notebooks.shown import Shown
from ...base.progress import Progress
from ...base.texts import counted, near_words
from ...base.toml_text import read_toml
from .figure import KINDS, STATUSES, PublishedFigure, as_written, read_printed
from .models import MODELS
from .reproduction import Reproduction

FOLDER = Path(__file__).with_name("sources")
SOURCE = {"title", "version", "process", "voltage", "topic", "machine"}
FIGURE = {
    "name", "topic", "claim", "value", "values", "number", "numbers", "machine", "unit", "kind", "where", "process",
    "voltage", "takes", "restates", "why", "model", "with",
}  # fmt: skip


class PublishedFigures(Shown, list[PublishedFigure]):
    """A list of published figures; notebooks show it as a table: claim, published, here, status, source.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.published("tpu-v1-isca-2017/peak")
    <1 published figure of tpu_v1>
    """

    def reproduce(
        self, progress: Progress | bool | None = None, keep: str | os.PathLike[str] | None = None
    ) -> Reproduction:
        """Compute all figures of the list, as a table that can be saved and compared.

        Parameters
        ----------
        progress : callable or bool, optional
            As in `heterocompute.study`.
        keep : path, optional
            File of results: each figure is appended when it is known, and not computed again by this version.

        Returns
        -------
        Reproduction

        Examples
        --------
        >>> from heterocompute import hardware as hw
        >>> hw.published("tpu-v1-isca-2017/peak").reproduce().table[0]["status"]
        'reproduced'
        """
        return Reproduction.of(self, progress, keep)

    def __repr__(self) -> str:
        topics = list(dict.fromkeys(one.topic for one in self))
        named = ", ".join(topics[:4]) + f" and {len(topics) - 4} more topics" * (len(topics) > 4)
        return f"<{counted(len(self), 'published figure')}{f' of {named}' if self else ''}>"

    def _repr_html_(self) -> str:
        rows = [("claim", "published", "here", "status", "source"), *map(_cells, self)]
        lines = [
            "<tr>" + "".join(f'<{tag} style="text-align: left">{escape(cell)}</{tag}>' for cell in row) + "</tr>"
            for row, tag in zip(rows, ["th"] + ["td"] * len(self), strict=True)
        ]
        return "<table>" + "".join(lines) + "</table>"


def _cells(one: PublishedFigure) -> tuple[str, ...]:
    names = [f"{row} " if len(one.printed) > 1 else "" for row in one.printed]
    here = ["-" if row not in one.rows else f"{one.rows[row]['modelled']:.4g}" for row in one.printed]
    return (
        one.claim,
        ", ".join(name + as_written(text) for name, text in zip(names, one.printed.values(), strict=True))
        + f" {one.unit}".rstrip(),
        ", ".join(name + text for name, text in zip(names, here, strict=True)),
        one.verdict,
        ", ".join(part for part in (one.source, one.where) if part),
    )


def published(name: str | Sequence[str] | None = None) -> PublishedFigures:
    """Return published figures, each with the model's result and a status.

    Parameters
    ----------
    name : str, or list or tuple of str, optional
        A source (``"eyeriss-jssc-2017"``), a topic (``"eyeriss"``, ``"networks"``), a status (``"off"``), a figure
        (``"eyeriss-jssc-2017/alexnet-frames"``), or several of these. Default: every figure.

    Returns
    -------
    PublishedFigures
        A list of `PublishedFigure`. A figure is computed when its status, rows or deviation is first read.

    Raises
    ------
    ValueError
        The name is unknown; the message has the nearest ones.

    Notes
    -----
    A figure is reproduced if its deviation is within the larger of two limits, which are never added. The first is the
    stated error of the model for this kind of quantity: 0 for counts, 3 % for peaks, 5 % for formulas, 5 points for
    shares, 10 % for ratios of two results of one model, 25 % for time, traffic, energy and area. The second is the
    rounding of the print: half a unit of the last digit, at most 10 % of the value. Claims in words have no limit and
    the status ``said``. Each record has its source.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> peak = hw.published("tpu-v1-isca-2017/peak")[0]
    >>> peak.printed, round(peak.worst["modelled"], 2), peak.status
    ({'': '92'}, 91.75, 'reproduced')
    """
    every = _every()
    if name is None:
        return PublishedFigures(every)
    if isinstance(name, (list, tuple)) and all(isinstance(part, str) for part in name):
        return PublishedFigures(one for part in name for one in published(part))
    if not isinstance(name, str):
        raise WrongType(f"published: name is {shown(name)}, expected a text such as 'eyeriss', or a list of these")
    if name in STATUSES:
        return PublishedFigures(one for one in every if one.status == name)
    found = PublishedFigures(one for one in every if name in (one.topic, one.name, one.name.partition("/")[0]))
    if not found:
        known = dict.fromkeys([*(one.topic for one in every), *(one.name.partition("/")[0] for one in every)])
        near = near_words(name, known, 4)
        where = f"the nearest are {', '.join(near)}" if near else "'heterocompute reproduce' lists them"
        raise WrongValue(f"published: name is {shown(name)}, expected a source, topic or figure; {where}")
    return found


@cache
def _every() -> tuple[PublishedFigure, ...]:
    return tuple(one for path in sorted(FOLDER.glob("*.toml")) for one in _figures(path))


def _figures(path: Path) -> list[PublishedFigure]:
    found = read_toml(path, 1 << 20)
    source = found["source"]
    _check(path, source, SOURCE)
    return [_figure(path, source, row) for row in found["figure"]]


def _figure(path: Path, source: dict[str, Any], row: dict[str, Any]) -> PublishedFigure:
    _check(path, row, FIGURE)
    both = {**source, **row}
    if row["kind"] not in KINDS:
        raise WrongValue(f"{path.name}: kind is {shown(row['kind'])}, expected one of {', '.join(KINDS)}")
    printed = {"": row["value"]} if "value" in row else dict(row["values"])
    numbers = _numbers(path, row, printed)
    for key, text in printed.items():
        read_printed(numbers.get(key, text))
    model = row.get("model")
    if model is not None and model not in MODELS:
        raise WrongValue(f"{path.name}: model is {shown(model)}, expected a function of ledger/models")
    return PublishedFigure(
        name=f"{path.stem}/{row['name']}",
        topic=both["topic"],
        claim=row["claim"],
        printed=printed,
        unit=row["unit"],
        kind=row["kind"],
        source=source["title"],
        numbers=numbers,
        machine=both.get("machine", ""),
        version=source.get("version", ""),
        where=row.get("where", ""),
        process=both.get("process", ""),
        voltage=both.get("voltage"),
        takes=row.get("takes", ""),
        restates=row.get("restates", False),
        why=row.get("why", ""),
        model=None if model is None else MODELS[model],
        arguments=row.get("with", {}),
    )


def _numbers(path: Path, row: dict[str, Any], printed: dict[str, str]) -> dict[str, str]:
    """Return the numbers next to words, which every row of kind words has and no other row."""
    numbers = {"": row["number"]} if "number" in row else dict(row.get("numbers", {}))
    if list(numbers) != (list(printed) if row["kind"] == "words" and "model" in row else []):
        raise WrongValue(f"{path.name}: numbers are {shown(numbers)}, expected one for each value of kind words only")
    return numbers


def _check(path: Path, table: dict[str, Any], known: set[str]) -> None:
    unknown = set(table) - known
    if unknown:
        raise WrongValue(f"{path.name}: key is {shown(min(unknown))}, expected one of {', '.join(sorted(known))}")
