"""Numbers with units: parsed from texts such as "312 TFLOP/s", multiplied and divided, added only to the same kind.

Kinds: operations (op, FLOP, FLOPs), multiply-adds (MAC), bytes (B), seconds (s), joules (J, Wh), watts (W), volts (V),
hertz (Hz). FLOPS and OPS are operations per second. A multiply-add is two operations, but a number must state which of
the two it counts: MAC and op do not mix.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ...base.errors import WrongType, WrongValue, shown
from ...base.notebooks.shown import Facts
from ...base.values import check_number

KINDS = ("op", "MAC", "B", "s", "J", "V")  # exponents of a dimension, in this order
MIXED = "a multiply-add is two operations: say which is counted"
Dimension = tuple[int, ...]


def _of(**exponents: int) -> Dimension:
    return tuple(exponents.get(kind, 0) for kind in KINDS)


# A unit's size in its kind, its dimension, and whether it takes prefixes.
_UNITS: dict[str, tuple[float, Dimension, bool]] = {
    "op": (1, _of(op=1), True), "ops": (1, _of(op=1), True), "OP": (1, _of(op=1), True),
    "FLOP": (1, _of(op=1), True), "FLOPs": (1, _of(op=1), True), "MAC": (1, _of(MAC=1), True),
    "FLOPS": (1, _of(op=1, s=-1), True), "OPS": (1, _of(op=1, s=-1), True),
    "MACS": (1, _of(MAC=1, s=-1), True), "B": (1, _of(B=1), True), "bit": (1 / 8, _of(B=1), True),
    "s": (1, _of(s=1), True), "min": (60, _of(s=1), False), "h": (3600, _of(s=1), False),
    "day": (86400, _of(s=1), False), "Hz": (1, _of(s=-1), True), "J": (1, _of(J=1), True),
    "Wh": (3600, _of(J=1), True), "W": (1, _of(J=1, s=-1), True), "V": (1, _of(V=1), True),
}  # fmt: skip
_PREFIXES = {"": 1.0, "p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
             "P": 1e15, "E": 1e18, "Z": 1e21, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}  # fmt: skip
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_NAMES = {_of(op=1): "op", _of(op=1, s=-1): "op/s", _of(MAC=1): "MAC", _of(MAC=1, s=-1): "MAC/s", _of(s=1): "s",
          _of(s=-1): "Hz", _of(J=1): "J", _of(J=1, s=-1): "W", _of(V=1): "V", _of(B=1): "B", _of(B=1, s=-1): "B/s",
          _of(op=1, J=-1): "op/J", _of(MAC=1, J=-1): "MAC/J", _of(): ""}  # fmt: skip


@dataclass(frozen=True)
class Quantity(Facts):
    """A number with a unit.

    Parameters
    ----------
    value : float
        In op, MAC, B, s, J, V and products of them.
    dimension : tuple of int
        Exponents of these six units.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.quantity("1e13 op") / hw.quantity("1 TFLOP/s")
    <Quantity 10 s>
    """

    value: float
    dimension: Dimension

    @property
    def unit(self) -> str:
        """Return the name of the unit."""
        if self.dimension in _NAMES:
            return _NAMES[self.dimension]
        parts = zip(KINDS, self.dimension, strict=True)
        return " ".join(kind if power == 1 else f"{kind}^{power}" for kind, power in parts if power)

    def like(self, other: Quantity, what: str) -> Quantity:
        """Return self if the other quantity has the same dimension; otherwise ValueError names both."""
        if not isinstance(other, Quantity):
            raise WrongType(f"{what}: other is {shown(other)}, expected a Quantity")
        if self.dimension != other.dimension:
            hint = f"; {MIXED}" if {self.unit[:2], other.unit[:2]} == {"op", "MA"} else ""
            raise WrongValue(f"{what}: {shown(self)} and {shown(other)} are not of one kind{hint}")
        return self

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.like(other, "sum").value + other.value, self.dimension)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.like(other, "difference").value - other.value, self.dimension)

    def __lt__(self, other: Quantity) -> bool:
        return self.like(other, "comparison").value < other.value

    def __mul__(self, other: Quantity | float) -> Quantity:
        if not isinstance(other, Quantity):
            return Quantity(self.value * _factor(other), self.dimension)
        sums = (a + b for a, b in zip(self.dimension, other.dimension, strict=True))
        return _unmixed("product", self, other, Quantity(self.value * other.value, tuple(sums)))

    __rmul__ = __mul__

    def __truediv__(self, other: Quantity | float) -> Quantity:
        if not isinstance(other, Quantity):
            return Quantity(self.value / _factor(other), self.dimension)
        if not other.value:
            raise WrongValue(f"quotient: {shown(self)} divided by {shown(other)}")
        differences = (a - b for a, b in zip(self.dimension, other.dimension, strict=True))
        return _unmixed("quotient", self, other, Quantity(self.value / other.value, tuple(differences)))

    def __str__(self) -> str:
        return f"{self.value:.6g} {self.unit}".rstrip()

    def __repr__(self) -> str:
        return f"<Quantity {self}>"


def quantity(value: object, kind: str | None = None, name: str = "quantity") -> Quantity:
    """Parse a number with its unit.

    Parameters
    ----------
    value : str or Quantity
        For example ``"300 W"``, ``"1.41 GHz"``, ``"312 TFLOP/s"``, ``"3.12 Top/J"``.
    kind : str, optional
        A unit with the required dimension.
    name : str, optional
        Name of the argument in messages.

    Returns
    -------
    Quantity

    Raises
    ------
    TypeError
        value is a plain number without a unit.
    ValueError
        The unit is unknown, or has another dimension than `kind`.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.quantity("312 TFLOP/s") / hw.quantity("400 W")
    <Quantity 7.8e+11 op/J>
    """
    if isinstance(value, Quantity):
        found = value
    elif not isinstance(value, str):
        raise WrongType(f"{name} is {shown(value)}, expected a text with a unit, such as '300 W'")
    else:
        match = re.fullmatch(rf"\s*({_NUMBER})\s*([A-Za-z/ ]*)\s*", value)
        if not match:
            raise WrongValue(f"{name} is {shown(value)}, expected a number and a unit, such as '300 W'")
        found = Quantity(float(match[1]), _of())
        for i, part in enumerate(match[2].split("/") if match[2].strip() else ()):
            size = _unit(part.strip(), name, value)
            found = found / size if i else found * size
    if not math.isfinite(found.value):
        raise WrongValue(f"{name} is {shown(str(found))}, expected a finite number")
    if kind is not None:
        wanted = quantity(f"1 {kind}")
        if wanted.dimension != found.dimension:
            has = found.unit or "no unit"
            raise WrongValue(f"{name} is {found} ({has}), expected a number of {wanted.unit}")
    return found


def _unit(text: str, name: str, value: str) -> Quantity:
    for unit, (size, dimension, prefixed) in _UNITS.items():
        prefix = text.removesuffix(unit) if text.endswith(unit) else None
        if prefix is not None and (prefix == "" or (prefixed and prefix in _PREFIXES)):
            return Quantity(size * _PREFIXES[prefix], dimension)
    raise WrongValue(
        f"{name} is {shown(value, 40)}: {shown(text, 40)} is not a unit, expected one of {', '.join(_UNITS)}, with a "
        "prefix"
    )


def _unmixed(what: str, one: Quantity, other: Quantity, found: Quantity) -> Quantity:
    """Return a result, unless it counts both operations and multiply-adds."""
    exponents = dict(zip(KINDS, found.dimension, strict=True))
    if exponents["op"] and exponents["MAC"]:
        raise WrongValue(f"{what}: {shown(one)} and {shown(other)} are not of one kind; {MIXED}")
    return found


def _factor(value: object) -> float:
    return check_number("quantity", "factor", value, low=0.0)
