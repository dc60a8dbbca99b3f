"""Functions as number formats: what no sentence can say, at NumPy's speed. They have values and no codes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

from ..base.errors import WrongType, WrongValue, shown
from .base import MAX_GROUP, Format
from .form import StoredForm

TAKEN_BY = "fake_quantize, study, training, KV caches and ptq.search"


@dataclass(frozen=True, repr=False)
class Function(Format):
    """A format that a function of values defines. `define` with ``round=`` makes it.

    Parameters
    ----------
    name : str
        The format string in this process.
    round : callable
        From a float32 array (rows, groups, group) to the rounded values, an array of floats of the same shape.
    bits : float
        Stored bits per value with all scales, for tables and budgets.
    group : int or None
        Values per group along the quantized axis. None: a row is one group.
    """

    name: str
    round: Callable[[Any], Any]
    bits: float  # type: ignore[assignment]
    group: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.round):
            raise WrongType(f"define: round is {shown(self.round)}, expected a function of values")
        is_number = isinstance(self.bits, (int, float)) and not isinstance(self.bits, bool)
        if not is_number or not 0 < self.bits <= 64:
            raise WrongValue(f"define: bits is {shown(self.bits)}, expected the stored bits per value, above 0 to 64")
        object.__setattr__(self, "bits", float(self.bits))
        self._set_integer("group", range(1, MAX_GROUP + 1), optional=True)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        group = "" if self.group is None else f", group={self.group}"
        return f"{type(self).__name__}({self.name!r}, round={shown(self.round)}, bits={self.bits:g}{group})"

    @classmethod
    def _parse(cls, text: str) -> Function | None:
        return None  # only names that `define` gave are read

    def does_as(self, other: Function) -> bool:
        """Tell whether another function has the same code, such as that of a cell of a notebook that runs twice."""
        kept = ("__code__", "__defaults__", "__kwdefaults__", "__globals__")
        own, others = ([getattr(one.round, name, one) for name in kept] for one in (self, other))
        free = getattr(self.round, "__closure__", None) or getattr(other.round, "__closure__", None)
        return free is None and own[:3] == others[:3] and own[3] is others[3] and self._sizes == other._sizes

    @property
    def _sizes(self) -> tuple[float, int | None]:
        return self.bits, self.group

    @property
    def label(self) -> str:
        return f"{self.name} (function)"

    def stored_bytes(self, size: int) -> int:
        """Return the bytes of so many values, by `bits`."""
        return math.ceil(size * self.bits / 8)

    @property
    def form(self) -> StoredForm:
        raise self.refusal("format")

    def core_params(self) -> tuple[int, ...]:
        """Raise ValueError: the C core has no function of Python."""
        raise self.refusal("format")

    def refusal(self, argument: str) -> WrongValue:
        """Return the error of an operation that needs codes; `argument` is its argument."""
        return WrongValue(
            f"{argument} is {shown(self.name)}, a function of values without codes, expected a format with codes; "
            f"{TAKEN_BY} take functions"
        )


def is_function(fmt: Any) -> TypeGuard[Function]:
    """Tell whether a format is a function of values, which has no codes.

    Parameters
    ----------
    fmt : object

    Examples
    --------
    >>> import heterocompute as hc
    >>> is_function(hc.format("int8"))
    False
    """
    return isinstance(fmt, Function)
