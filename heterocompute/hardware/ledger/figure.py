"""A published figure: the printed value, the modelled value, and a status by one rule.

The limit of a figure is half a unit of the last digit that its source printed, plus the stated error of the model for
that kind of quantity. No figure has a limit of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...base.errors import WrongValue, shown

#: Stated error of the model by kind of quantity: relative, except for a share, whose error is in points.
KINDS: Mapping[str, tuple[float, str]] = {
    "count": (0.0, "parameters, operations, bytes of a tensor, units of a chip: counted"),
    "peak": (0.03, "units times clock: data sheets round clocks, or state the rate at another one"),
    "formula": (0.05, "a formula of a few lines on rounded inputs"),
    "share": (0.05, "a share of time, energy, units or values, in points"),
    "ratio": (0.15, "two results of the same machine model: parts that both omit cancel"),
    "time": (0.25, "a network on a modelled machine"),
    "traffic": (0.25, "words that a found mapping moves; the authors' mapping is another one"),
    "energy": (0.25, "a table of 2014 scaled to the process; no clock, control or leakage"),
    "area": (0.25, "gates and memories scaled to the process"),
}
NUMBER = re.compile(r"(-?\d+)(?:\.(\d+))?(?:e(-?\d+))?")


def read_printed(text: str) -> tuple[float, float, float]:
    """Return lowest value, highest value and rounding of a printed figure.

    Parameters
    ----------
    text : str
        ``"34.7"``, ``"1.35e3"``, ``"15 to 30"``, ``"1.3 or more"``, ``"0.1 or less"``.

    Returns
    -------
    (float, float, float)
        The rounding is half a unit of the last digit; a range has none, since its ends are its limits.

    Raises
    ------
    ValueError
        No such text.

    Examples
    --------
    >>> read_printed("34.7"), read_printed("15 to 30")
    ((34.7, 34.7, 0.05), (15.0, 30.0, 0.0))
    """
    plain = text.replace(",", "")
    if match := re.fullmatch(r"(\S+) to (\S+)", plain):
        return float(match[1]), float(match[2]), 0.0
    if match := re.fullmatch(r"(\S+) or (more|less)", plain):
        value = float(match[1])
        return (value, math.inf, 0.0) if match[2] == "more" else (-math.inf, value, 0.0)
    digits = NUMBER.fullmatch(plain)
    if not digits:
        raise WrongValue(f"published: value is {shown(text)}, expected a number as printed, or '15 to 30'")
    last = int(digits[3] or 0) - len(digits[2] or "")
    return float(plain), float(plain), float(f"5e{last - 1}")


def as_written(text: str) -> str:
    """Return a printed figure without the power of ten that marks its significant digits.

    Examples
    --------
    >>> as_written("1.35e3"), as_written("2.7e-5"), as_written("15 to 30")
    ('1,350', '2.7e-5', '15 to 30')
    """
    number = NUMBER.fullmatch(text.replace(",", ""))
    return f"{float(text):,.0f}" if number and number[3] and float(text) >= 10 else text


@dataclass(frozen=True)
class PublishedFigure:
    """A published figure, and the result of the model for it.

    Attributes
    ----------
    name : str
        ``source/figure``.
    topic : str
        A machine, or a subject such as ``networks``.
    claim : str
        The claim in the source's words, shortened.
    printed : dict of str to str
        Figures as printed, by the name of their table row. A single figure has the name ``""``.
    unit : str
    kind : str
        One of ``count``, ``peak``, ``formula``, ``share``, ``ratio``, ``time``, ``traffic``, ``energy``, ``area``.
    source, version, where : str
        Title; edition; page, table or section, empty if unknown.
    process : str
    voltage : float or None
        V, as the source states it.
    takes : str
        Inputs of the model from the source.
    restates : bool
        Whether the figure follows from these inputs, so that it checks the source's own arithmetic.
    why : str
        Reason for the deviation, or for the lack of a model.
    model : callable or None
        Function that computes the figure.
    arguments : mapping
        Its arguments.
    """

    name: str
    topic: str
    claim: str
    printed: Mapping[str, str]
    unit: str
    kind: str
    source: str
    version: str = ""
    where: str = ""
    process: str = ""
    voltage: float | None = None
    takes: str = ""
    restates: bool = False
    why: str = ""
    model: Callable[..., float] | None = field(default=None, repr=False, compare=False)
    arguments: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @cached_property
    def rows(self) -> dict[str, dict[str, float]]:
        """Return the figures by name: ``low`` and ``high`` as printed, ``modelled``, ``deviation``, ``limit``.

        The deviation is from the nearer end of a range: relative, or in points for shares.
        """
        if self.model is None:
            return {}
        found = {}
        for name, text in self.printed.items():
            low, high, rounding = read_printed(text)
            value = float(self.model(name, **self.arguments) if name else self.model(**self.arguments))
            nearest = min(max(value, low), high)
            unit = 1.0 if self.kind == "share" else abs(nearest) or 1.0
            found[name] = {
                "low": low,
                "high": high,
                "modelled": value,
                "deviation": (value - nearest) / unit,
                "limit": rounding / unit + KINDS[self.kind][0],
            }
        return found

    @property
    def worst(self) -> dict[str, float]:
        """Return the row with the largest deviation; empty without a model."""
        return max(self.rows.values(), key=lambda row: abs(row["deviation"]), default={})

    @property
    def holds(self) -> bool:
        """Return whether every row is within its limit; 10^-9 allows for rounding errors."""
        return bool(self.rows) and all(abs(row["deviation"]) <= row["limit"] + 1e-9 for row in self.rows.values())

    @property
    def status(self) -> str:
        """Return ``"reproduced"``, ``"restated"``, ``"off"`` or ``"not modelled"``."""
        if self.model is None:
            return "not modelled"
        if not self.holds:
            return "off"
        return "restated" if self.restates else "reproduced"

    @property
    def verdict(self) -> str:
        """Return the status in words, with the model's deviation as a factor or in points, and the reason."""
        if self.status in ("reproduced", "restated"):
            return self.status
        if self.model is None:
            return f"not modelled: {self.why}"
        row = self.worst
        if self.kind == "share":
            deviation = f"{100 * row['deviation']:+.0f} points"
        else:
            nearest = min(max(row["modelled"], row["low"]), row["high"])
            factor = row["modelled"] / nearest if nearest else math.inf
            deviation = f"{factor:.2f} x" if 0.1 < factor < 10 else f"{factor:.2g} x"
        return f"off by {deviation}: {self.why}"

    def to_dict(self) -> dict[str, Any]:
        """Return the record and its result as plain values, for JSON.

        Returns
        -------
        dict
        """
        keys = ("name", "topic", "claim", "unit", "kind", "source", "version", "where", "process", "voltage", "takes",
                "why", "status", "verdict")  # fmt: skip
        rows = [
            {
                "row": name,
                "printed": as_written(text),
                **self.rows.get(name, {"modelled": None, "deviation": None, "limit": None}),
            }
            for name, text in self.printed.items()
        ]
        return {**{key: getattr(self, key) for key in keys}, "figures": rows}
