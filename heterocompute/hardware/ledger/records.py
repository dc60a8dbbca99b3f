"""The ledger: figures of papers, data sheets and lectures, read from sources/*.toml and joined with their models.

A figure is a row of a TOML file, so a new one needs no code where a model function serves it already.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ...base.texts import near_words
from ...base.toml_text import read_toml
from ...base.values import shown
from .figure import KINDS, PublishedFigure, read_printed
from .models import MODELS

__all__ = ["published"]

FOLDER = Path(__file__).with_name("sources")
SOURCE = {"title", "version", "process", "voltage", "topic"}
FIGURE = {
    "name", "topic", "claim", "value", "values", "unit", "kind", "where", "process", "voltage", "takes", "restates",
    "why", "model", "with",
}  # fmt: skip


def published(name: str | None = None) -> list[PublishedFigure]:
    """Return published figures, each with what the model gives for it and a status.

    Parameters
    ----------
    name : str, optional
        A source (``"eyeriss-jssc-2017"``), a topic (``"eyeriss"``, ``"networks"``), a status (``"off"``) or a figure
        (``"eyeriss-jssc-2017/alexnet-frames"``). Default: every figure.

    Returns
    -------
    list of PublishedFigure
        A figure is computed when its status, its rows or its deviation is first read.

    Raises
    ------
    ValueError
        No such name; the message has the nearest ones.

    Notes
    -----
    A figure is reproduced where the model deviates by no more than half a unit of the last printed digit plus the
    stated error of the model for this kind of quantity: 0 for counts, 3 % for peaks, 5 % for formulas, 5 points for
    shares, 15 % for ratios of two results of one model, 25 % for time, traffic, energy and area. Sources: each record.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> peak = hw.published("tpu-v1-isca-2017/peak")[0]
    >>> peak.printed, round(peak.worst["modelled"], 2), peak.status
    ({'': '92'}, 91.75, 'reproduced')
    """
    every = _every()
    if name is None:
        return list(every)
    if not isinstance(name, str):
        raise TypeError(f"published: name is {shown(name)}, expected a text such as 'eyeriss'")
    if name in ("reproduced", "restated", "off", "not modelled"):
        return [one for one in every if one.status == name]
    found = [one for one in every if name in (one.topic, one.name, one.name.partition("/")[0])]
    if not found:
        known = dict.fromkeys([*(one.topic for one in every), *(one.name.partition("/")[0] for one in every)])
        near = near_words(name, known, 4)
        where = f"the nearest are {', '.join(near)}" if near else "'heterocompute reproduce' lists them"
        raise ValueError(f"published: name is {shown(name)}, expected a source, topic or figure; {where}")
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
        raise ValueError(f"{path.name}: kind is {shown(row['kind'])}, expected one of {', '.join(KINDS)}")
    printed = {"": row["value"]} if "value" in row else dict(row["values"])
    for text in printed.values():
        read_printed(text)
    model = row.get("model")
    if model is not None and model not in MODELS:
        raise ValueError(f"{path.name}: model is {shown(model)}, expected a function of ledger/models")
    return PublishedFigure(
        name=f"{path.stem}/{row['name']}",
        topic=both["topic"],
        claim=row["claim"],
        printed=printed,
        unit=row["unit"],
        kind=row["kind"],
        source=source["title"],
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


def _check(path: Path, table: dict[str, Any], known: set[str]) -> None:
    unknown = set(table) - known
    if unknown:
        raise ValueError(f"{path.name}: key is {shown(min(unknown))}, expected one of {', '.join(sorted(known))}")
