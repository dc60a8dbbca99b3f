"""The arithmetic that a number format asks of a multiplier, as data: derived from the form that the format states.

A format without a stated form is a ValueError that says how to state it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import frexp
from typing import Any

from ...base.errors import WrongValue, shown
from ...base.lazy import renamed
from ...base.notebooks.shown import Facts
from ...formats import Format, Own, format as parse_format, has_pattern, is_own, unrotated
from ...formats.elements import Integer, Levels, Logs, Minifloat, PowersOfTwo

# Plain floats by name, some of which are not formats of the package: bits, bits of the significand, and emax - emin of
# normal numbers. The exponents of a product span as much as both; subnormals have emin too.
FLOATS = {
    "fp64": (64, 53, 2045), "fp32": (32, 24, 253), "tf32": (32, 11, 253), "fp16": (16, 11, 29), "bf16": (16, 8, 253),
}  # fmt: skip


@dataclass(frozen=True)
class Operand(Facts):
    """The properties of a format that determine its arithmetic.

    Attributes
    ----------
    kind : {"int", "float", "table", "log"}
        Integers; floats; indices of a table of fp16 values; sign and exponent. Posits, takums and levels are tables.
    bits : int
        Bits of a code.
    significand : int
        Significand bits of a float, including the hidden bit; 11 for table entries.
    span : int
        Octaves from the smallest to the largest exponent of a float; 29 for table entries.
    scale : {"none", "int", "float", "exponent"}
        Type of a group's scale; ``"none"`` for one scale per row, which is applied to the final sum.
    scale_bits : int
        Bits of an integer or exponent scale, significand bits of a float scale.
    group : int or None
        Values that share a scale.
    zero_point : bool
        Whether codes have a zero point that is subtracted first.
    gamma : int
        Steps per octave of a log number.
    dim : int
        Values per table entry.
    pattern : (int, int) or None
        N of every M values are nonzero.
    """

    kind: str
    bits: int
    significand: int = 0
    scale: str = "none"
    scale_bits: int = 0
    group: int | None = None
    zero_point: bool = False
    gamma: int = 0
    dim: int = 1
    pattern: tuple[int, int] | None = None
    span: int = 0


# Arithmetic that users stated, for families whose form is unstated or that compute in another way.
FAMILIES: dict[str, Callable[[Any], Operand]] = {}

TABLE = Operand("table", 4, 11, span=29)  # of fp16 values
KINDS = {"integer": "int", "float": "float", "table": "table", "learned": "table", "log": "log"}
# Kinds of scales: the arithmetic of their multiplication, and bits; None: as in the format.
SCALES: dict[str, tuple[str, int | None]] = {
    "none": ("none", 0), "f32": ("float", 24), "f16": ("float", 11), "integer": ("int", None), "e8m0": ("exponent", 8),
    "e4m3": ("float", 4), "double": ("float", 24), "own": ("float", None),
}  # fmt: skip


def _of_sentence(fmt: Own) -> Operand:
    """Return the operand of an own format's element and scale; scales of rows and second levels come after the sum."""
    element = fmt.element
    scale, bits = "none", 0
    if fmt.sharing in ("group", "block"):
        kind = fmt.scale_type
        if kind is not None:
            scale, bits = ("float", kind.mantissa + 1) if kind.mantissa else ("exponent", kind.exponent)
        else:
            scale, bits = {"f32": ("float", 24), "e8m0": ("exponent", 8)}.get(fmt.scale_kind, ("int", fmt.scale_bits))
    one = Operand("table", element.bits, TABLE.significand, scale, bits, fmt.group, span=TABLE.span)
    if isinstance(element, Minifloat):
        span = frexp(element.largest)[1] - 1 - (1 - element.used_bias)
        return replace(one, kind="float", significand=element.mantissa + 1, span=max(span, 0))
    if isinstance(element, PowersOfTwo):
        return replace(one, kind="float", significand=1, span=254)
    if isinstance(element, Logs):
        return replace(one, kind="log", significand=0, gamma=element.gamma, span=0)
    is_few = element in (Levels.ternary(), Levels.binary())  # the code is the sign, and whether it is 0
    return replace(one, kind="int", significand=0, span=0) if is_few or isinstance(element, Integer) else one


def _derived(fmt: Format) -> Operand:
    """Return the operand of a format's form; one scale per row is applied after the sum."""
    if is_own(fmt):
        return _of_sentence(fmt)
    form = fmt.form
    kind = KINDS[form.codes]
    scale, bits = SCALES[form.scale] if fmt.group is not None else SCALES["none"]
    if bits is None:
        bits = form.scale_bits + (11 if form.scale == "own" else 0)  # a float16 times an integer
    one = Operand(kind, form.bits, 0, scale, bits, fmt.group, form.zero_points or form.minima, form.steps)
    if kind == "float":
        span = frexp(form.maximum)[1] - 1 - form.smallest
        return replace(one, significand=form.precision, span=span)
    if kind == "table":
        return replace(one, significand=TABLE.significand, span=TABLE.span, dim=max(form.code_values, 1))
    return one


@renamed(fmt="format")
def operand(format: str | Format) -> Operand:
    """Return the arithmetic of a format.

    Parameters
    ----------
    format : Format or str
        ``"fp32"``, ``"tf32"``, ``"bf16"`` and ``"fp16"`` are always supported, even if they are not a format here.

    Returns
    -------
    Operand

    Raises
    ------
    ValueError
        The format is unknown, or the arithmetic of its family is not stated.

    Examples
    --------
    >>> operand("vsq4-g16-s4").scale, operand("fp16").significand
    ('int', 11)
    """
    if isinstance(format, str) and format in FLOATS:
        bits, significand, span = FLOATS[format]
        return Operand("float", bits, significand, span=span)
    found = unrotated(parse_format(format))
    if has_pattern(found):
        return replace(operand(found.base), pattern=(found.n, found.m))
    if found.family in FAMILIES:
        return FAMILIES[found.family](found)
    if not _states(found.family) or found.form.codes not in KINDS:
        raise WrongValue(
            f"mac: no arithmetic is stated for the family {shown(found.family)} of {found}; state it with "
            "state_arithmetic(family, function)"
        )
    return _derived(found)


def state_arithmetic(family: str, arithmetic: Callable[[Any], Operand]) -> None:
    """Register the arithmetic of a family of formats.

    Parameters
    ----------
    family : str
    arithmetic : callable
        Function from a format of the family to its `Operand`.

    Raises
    ------
    ValueError
        The arithmetic of the family is already registered.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.state_arithmetic("example-of-this-page", lambda fmt: hw.results.Operand("int", fmt.bits))
    """
    if family in FAMILIES or _states(family):
        raise WrongValue(f"state_arithmetic: the family {shown(family)} has its arithmetic already")
    FAMILIES[family] = arithmetic


def _states(family: str) -> bool:
    """Tell whether the core has the family's kind of codes."""
    examples = next((cls.examples for cls in Format.families() if cls.family == family), ())
    return bool(examples) and parse_format(examples[0]).form.codes in KINDS


def log_range(one: Operand) -> int:
    """Return the number of octaves that a log number's codes span, rounded up, which a shifter must cover."""
    return -(-(1 << (one.bits - 1)) // one.gamma)
