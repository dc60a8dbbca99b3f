"""A published figure: the printed value, the modelled value, and a status by one rule.

The limit of a figure is the larger of the stated error of the model for that kind of quantity and the rounding of the
print. The two are never added, and no figure has a limit of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...base.errors import WrongValue, shown
from ...base.notebooks.shown import Shown
from ...report.page import rows_html

#: Stated error of the model by kind of quantity: relative, except for a share, whose error is in points.
KINDS: Mapping[str, tuple[float, str]] = {
    "count": (0.0, "parameters, operations, bytes of a tensor, units of a chip: an integer is exact"),
    "peak": (0.03, "units times clock: data sheets round clocks, or state the rate at another one"),
    "formula": (0.05, "a formula of a few lines on rounded inputs"),
    "share": (0.05, "a share of time, energy, units or values, in points"),
    "ratio": (0.10, "two results of the same machine model: parts that both omit cancel"),
    "time": (0.25, "a network on a modelled machine"),
    "traffic": (0.25, "words that a found mapping moves; the authors' mapping is another one"),
    "energy": (0.25, "a table of 2014 scaled to the process; no clock, control or leakage"),
    "area": (0.25, "gates and memories scaled to the process"),
    "words": (math.inf, "a sentence without a number, such as 'about two thirds'; the number next to it is ours"),
}
#: Largest rounding of a print, relative to the printed value.
ROUNDING = 0.1
STATUSES: Mapping[str, str] = {
    "reproduced": "within the limit, and not an input of the model",
    "restated": "within the limit, but it follows from inputs that the model takes from the same source",
    "off": "outside the limit, with the deviation and the reason",
    "not modelled": "a claim without a model, with the reason",
    "said": "a claim in words, with the model's number and a sentence: no limit, never counted as reproduced",
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


def limit_of(kind: str, text: str) -> float:
    """Return the largest deviation of a reproduced figure: relative, or in points for shares.

    Parameters
    ----------
    kind : str
        Of `KINDS`.
    text : str
        The figure as printed.

    Returns
    -------
    float
        The larger of the error by kind and the rounding of the print. The rounding is half a unit of the last digit,
        and at most 10 % of the value. A range has none, and neither has a count without decimals.

    Examples
    --------
    >>> limit_of("energy", "0.1"), limit_of("peak", "9"), limit_of("count", "576"), limit_of("count", "4.0")
    (0.25, 0.05555555555555555, 0.0, 0.0125)
    """
    error = KINDS[kind][0]
    if kind == "words" or (kind == "count" and text.replace(",", "").isdecimal()):
        return error
    value, _, rounding = read_printed(text)
    if not rounding:
        return error
    size = abs(value)
    rounding = min(rounding, ROUNDING * size)
    return max(error, rounding if kind == "share" else rounding / (size or 1.0))


def headline(counts: Mapping[str, int]) -> str:
    """Return the share of reproduced figures among those that are checked, which are reproduced or off.

    Examples
    --------
    >>> headline({"reproduced": 3, "off": 1, "restated": 5})
    '3 of 4 checked figures are reproduced (75 %)'
    """
    reproduced = counts.get("reproduced", 0)
    checked = reproduced + counts.get("off", 0)
    share = f" ({100 * reproduced / checked:.0f} %)" if checked else ""
    return f"{reproduced} of {checked} checked figures are reproduced{share}"


def as_written(text: str) -> str:
    """Return a printed figure without the power of ten that marks its significant digits.

    Examples
    --------
    >>> as_written("1.35e3"), as_written("2.7e-5"), as_written("15 to 30")
    ('1,350', '2.7e-5', '15 to 30')
    """
    number = NUMBER.fullmatch(text.replace(",", ""))
    return f"{float(text):,.0f}" if number and number[3] and float(text) >= 10 else text


@dataclass(frozen=True, repr=False)
class PublishedFigure(Shown):
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
        Figures as printed, by the name of their table row. A single figure has the name ``""``. Figures of kind
        ``words`` hold the words of their source.
    unit : str
    kind : str
        One of ``count``, ``peak``, ``formula``, ``share``, ``ratio``, ``time``, ``traffic``, ``energy``, ``area``,
        ``words``.
    numbers : dict of str to str
        The number that this package puts next to each figure of kind ``words``, written like a printed figure.
    machine : str
        Machine and configuration that the model evaluates, empty if the figure is of no machine.
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
        Reason for the deviation, or for the lack of a model; for words the sentence that judges them.
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
    numbers: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    version: str = ""
    where: str = ""
    process: str = ""
    voltage: float | None = None
    takes: str = ""
    restates: bool = False
    why: str = ""
    model: Callable[..., float] | None = field(default=None, repr=False, compare=False)
    arguments: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        texts = ", ".join(f"{name} {as_written(text)}".strip() for name, text in list(self.printed.items())[:3])
        more = f" and {len(self.printed) - 3} more" * (len(self.printed) > 3)
        return f"<PublishedFigure {self.name}: {self.claim}: {texts}{more} {self.unit}".rstrip() + f"; {self.status}>"

    def _repr_html_(self) -> str:
        of_row = self.to_dict()["figures"]
        return rows_html(of_row, f"{self.claim}, {self.unit}: {self.verdict}; {self.source}")

    @cached_property
    def rows(self) -> dict[str, dict[str, float]]:
        """Return the figures by name: ``low`` and ``high`` as printed, ``modelled``, ``deviation``, ``limit``.

        The deviation is from the nearer end of a range: relative, or in points for shares. Words have the ends and the
        deviation of their number.
        """
        if self.model is None:
            return {}
        found = {}
        for name, text in self.printed.items():
            low, high, _ = read_printed(self.numbers.get(name, text))
            value = float(self.model(name, **self.arguments) if name else self.model(**self.arguments))
            nearest = min(max(value, low), high)
            unit = 1.0 if self.kind == "share" else abs(nearest) or 1.0
            found[name] = {
                "low": low,
                "high": high,
                "modelled": value,
                "deviation": (value - nearest) / unit,
                "limit": limit_of(self.kind, text),
            }
        return found

    @property
    def worst(self) -> dict[str, float]:
        """Return the row that is farthest outside its limit; empty without a model."""

        def excess(row: Mapping[str, float]) -> tuple[float, float]:
            return abs(row["deviation"]) - row["limit"], abs(row["deviation"])

        return max(self.rows.values(), key=excess, default={})

    @property
    def holds(self) -> bool:
        """Return whether every row is within its limit; 10^-9 allows for rounding errors."""
        return bool(self.rows) and all(abs(row["deviation"]) <= row["limit"] + 1e-9 for row in self.rows.values())

    @property
    def status(self) -> str:
        """Return one of `STATUSES`: reproduced, restated, off, not modelled, said."""
        if self.model is None:
            return "not modelled"
        if self.kind == "words":
            return "said"
        if not self.holds:
            return "off"
        return "restated" if self.restates else "reproduced"

    @property
    def verdict(self) -> str:
        """Return the status in words, with the model's deviation as a factor, in per cent or in points, and the reason.

        A deviation below 5 % is in per cent.
        """
        if self.status in ("reproduced", "restated"):
            return self.status
        if self.status == "off":
            return f"off by {self._deviation}: {self.why}"
        return f"{self.status}: {self.why}"

    @property
    def _deviation(self) -> str:
        row = self.worst
        if self.kind == "share":
            return f"{100 * row['deviation']:+.0f} points"
        if abs(row["deviation"]) < 0.05:
            return f"{100 * row['deviation']:+.2g} %"
        nearest = min(max(row["modelled"], row["low"]), row["high"])
        factor = row["modelled"] / nearest if nearest else math.inf
        return f"{factor:.2f} x" if 0.1 < factor < 10 else f"{factor:.2g} x"

    def to_dict(self) -> dict[str, Any]:
        """Return the record and its result as plain values, for JSON.

        Returns
        -------
        dict
        """
        keys = ("name", "topic", "claim", "unit", "kind", "source", "machine", "version", "where", "process", "voltage",
                "takes", "why", "status", "verdict")  # fmt: skip
        rows = [
            {
                "row": name,
                "printed": as_written(text),
                "number": self.numbers.get(name),
                **self.rows.get(name, {"modelled": None, "deviation": None, "limit": None}),
            }
            for name, text in self.printed.items()
        ]
        return {**{key: getattr(self, key) for key in keys}, "figures": rows}
