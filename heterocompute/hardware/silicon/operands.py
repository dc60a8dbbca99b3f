"""The arithmetic that a number format asks of a multiplier, as data: one entry a family, from the format's fields.

A family without an entry is a ValueError that says how to state one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...base.values import shown
from ...formats import Format, format as parse_format

__all__ = ["Operand", "operand", "state_arithmetic"]

# Of a product of two, the exponents span as much as both: emax - emin of normal numbers; subnormals have emin too.
SPANS = {
    "fp64": 2045, "fp32": 253, "tf32": 253, "fp16": 29, "bf16": 253, "fp8_e4m3fn": 14, "fp8_e4m3": 14, "fp8_e5m2": 29,
    "fp6_e3m2": 6, "fp6_e2m3": 2, "fp4_e2m1": 2, "fp4": 2,
}  # fmt: skip
SIGNIFICANDS = {
    "fp64": 53, "fp32": 24, "tf32": 11, "fp16": 11, "bf16": 8, "fp8_e4m3fn": 4, "fp8_e4m3": 4, "fp8_e5m2": 3,
    "fp6_e3m2": 3, "fp6_e2m3": 4, "fp4_e2m1": 2, "fp4": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """What arithmetic sees of a format.

    Attributes
    ----------
    kind : {"int", "float", "table", "log"}
        Integers; floats; indices of a table of fp16 values; sign and exponent.
    bits : int
        Of a code.
    significand : int
        Of a float, the hidden bit included; 11 for what a table holds.
    span : int
        Of a float, octaves from its smallest to its largest exponent; 29 for what a table holds.
    scale : {"none", "int", "float", "exponent"}
        What a group's scale is; ``"none"`` where one scale a row waits for the end of the sum.
    scale_bits : int
        Bits of an integer or exponent scale, significand bits of a float one.
    group : int or None
        Values that share a scale.
    zero_point : bool
        Whether codes have a zero point that is subtracted first.
    gamma : int
        Steps an octave of a log number.
    dim : int
        Values that one entry of a table holds.
    pattern : (int, int) or None
        N of M values are there.
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


def _int(fmt: Any) -> Operand:
    scale, bits = ("float", 11 if fmt.scale == "f16" else 24) if fmt.group is not None else ("none", 0)
    return Operand("int", fmt.bits, 0, scale, bits, fmt.group, not fmt.symmetric)


def _vsq(fmt: Any) -> Operand:
    if fmt.scale_bits is None:
        return Operand("int", fmt.bits, 0, "float", 24, fmt.group)
    return Operand("int", fmt.bits, 0, "int", fmt.scale_bits, fmt.group)


def _table(fmt: Any) -> Operand:
    group = getattr(fmt, "group", None)
    scale = "float" if group else "none"
    return Operand("table", fmt.bits, 11, scale, 24 if group else 0, group, dim=getattr(fmt, "dim", 1), span=29)


def _log(fmt: Any) -> Operand:
    scale = "float" if fmt.group else "none"
    return Operand("log", fmt.bits, 0, scale, 24 if fmt.group else 0, fmt.group, gamma=fmt.gamma)


def _float(fmt: Any) -> Operand:
    return Operand("float", fmt.bits, SIGNIFICANDS[fmt.name], span=SPANS[fmt.name])


def _mx(fmt: Any) -> Operand:
    if fmt.element == "int8":
        return Operand("int", 8, 0, "exponent", 8, 32)
    return Operand("float", fmt.bits, SIGNIFICANDS[fmt.element], "exponent", 8, 32, span=SPANS[fmt.element])


def _nvfp4(fmt: Any) -> Operand:
    return Operand("float", 4, SIGNIFICANDS["fp4"], "float", SIGNIFICANDS["fp8_e4m3"], 16, span=SPANS["fp4"])


def _ggml(fmt: Any) -> Operand:
    kind = fmt.kind
    bits = 11 + kind.scale_bits  # a float16 times an integer
    if kind.has_levels:
        return replace(_table_of(4), scale="float", scale_bits=bits, group=fmt.group)
    return Operand("int", fmt.bits, 0, "float", bits, fmt.group, kind.has_minimum)


def _sparse(fmt: Any) -> Operand:
    return replace(operand(fmt.base), pattern=(fmt.n, fmt.m))


FAMILIES: dict[str, Callable[[Any], Operand]] = {
    "int": _int,
    "vsq": _vsq,
    "codebook": _table,
    "nf4": lambda fmt: replace(_table_of(4), scale="float", scale_bits=24, group=fmt.group),
    "log": _log,
    "float": _float,
    "mx": _mx,
    "nvfp4": _nvfp4,
    "ggml": _ggml,
    "sparse": _sparse,
}


def operand(fmt: str | Format) -> Operand:
    """Return the arithmetic of a format.

    Parameters
    ----------
    fmt : Format or str
        ``"fp32"``, ``"tf32"``, ``"bf16"`` and ``"fp16"`` are known even where they are no format of the package.

    Returns
    -------
    Operand

    Raises
    ------
    ValueError
        No such format, or a family whose arithmetic is not stated.

    Examples
    --------
    >>> operand("vsq4-g16-s4").scale, operand("fp16").significand
    ('int', 11)
    """
    if isinstance(fmt, str) and fmt in ("fp64", "fp32", "tf32", "fp16", "bf16"):
        bits = {"fp64": 64, "fp32": 32, "tf32": 32}.get(fmt, 16)
        return Operand("float", bits, SIGNIFICANDS[fmt], span=SPANS[fmt])
    found = parse_format(fmt)
    family = getattr(found, "family", "sparse")  # a pattern on a format is no family of its own
    if family not in FAMILIES:
        raise ValueError(
            f"mac: no arithmetic is stated for the family {shown(family)} of {found}; stated are "
            f"{', '.join(FAMILIES)}. state_arithmetic(family, function) adds one"
        )
    return FAMILIES[family](found)


def state_arithmetic(family: str, arithmetic: Callable[[Any], Operand]) -> None:
    """State what arithmetic a family of formats asks for.

    Parameters
    ----------
    family : str
    arithmetic : callable
        Takes a format of the family, returns its `Operand`.

    Raises
    ------
    ValueError
        The family has one already.
    """
    if family in FAMILIES:
        raise ValueError(f"state_arithmetic: the family {shown(family)} has its arithmetic already")
    FAMILIES[family] = arithmetic


def _table_of(bits: int) -> Operand:
    return Operand("table", bits, 11, span=29)


def log_range(one: Operand) -> int:
    """Return how many whole octaves a log number's codes span, which a shifter must reach."""
    return -(-(1 << (one.bits - 1)) // one.gamma)
