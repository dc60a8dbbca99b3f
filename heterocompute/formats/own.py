"""Formats that a sentence defines: an element, a scale, the rule of the scale and its sharing.

    <element>[@<v>][-g<n> | -b<r>x<c> | -row | -tensor][-<scale>][-f32row | -f32tensor][-<rule>][-nosat]

`csrc/formats/own/own.c` and `reference/formats/own.py` have the arithmetic. Neither knows a name: they get the record
that `core_params` makes known.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, TypeGuard

import numpy as np

from .. import _heterocompute as _core
from ..base.errors import WrongType, WrongValue, shown
from .base import MAX_GROUP, Format, StoredRules, optional, or_words
from .elements import Element, Integer, Logs, Minifloat
from .elements.text import ELEMENTS, FLOAT, element, element_or_none, uncounted
from .functions import Function

SHARINGS = ("row", "group", "tensor", "block", "none")  # the order of base/sentence.h, as all below
SCALES = ("f32", "f16", "bf16", "e8m0", "float", "integer")
SECONDS = (None, "row", "tensor")
RULES = ("absmax", "absmean", "floor", "ceil", "rceil", "even")
CODES = {"integer": 1, "float": 2, "table": 3, "log": 4}  # hc_code_kind of base/form.h
TABLE = 256
LEAST_FLOAT32 = 2.0**-149
NAMES: dict[str, Own | Function] = {}  # that `define` gave in this process

_SENTENCE = re.compile(
    rf"(?P<element>{ELEMENTS}|[a-z][a-z0-9_]*)(?:@(?P<target>[0-9]{{1,9}}(?:\.[0-9]{{1,9}})?))?"
    r"(?:-g(?P<group>[0-9]{1,12})|-b(?P<rows>[0-9]{1,9})x(?P<columns>[0-9]{1,12})|-(?P<per>row|tensor))?"
    rf"(?:-(?P<scale>f32|f16|bf16|e8m0|s[0-9]{{1,2}}|{uncounted(FLOAT)}))?"
    rf"(?:-f32(?P<second>row|tensor))?(?:-(?P<rule>{'|'.join(RULES)}))?(?P<nosat>-nosat)?"
)


@dataclass(frozen=True, repr=False)
class Own(Format):
    """A format that a sentence defines. `define` makes it.

    Parameters
    ----------
    element : Element
    scale : str or None
        ``"f32"``, ``"f16"``, ``"bf16"``, ``"e8m0"``, a float such as ``"e4m3fn"``, or ``"s<bits>"`` for integers.
        None: the element's own choice, ``"f32"`` or no scale.
    group : int or None
        Values along the quantized axis that share a scale; of blocks, their columns.
    block_rows : int or None
        Rows that share a scale, with a group.
    per : {"row", "tensor"}
        What shares a scale without a group.
    second : {None, "row", "tensor"}
        What shares the second level, a float32.
    rule : str or None
        ``"absmax"``, ``"absmean"``, or one of E8M0: ``"floor"``, ``"ceil"``, ``"rceil"``, ``"even"``. None: the usual
        one.
    target : float or None
        The number of the element that a scale maps the largest magnitude to. None: the element's.
    saturate : bool
        Values beyond the largest number become it.
    name : str or None
        The format string, if it is not the sentence.

    Raises
    ------
    ValueError
        The parts do not go together; the message says why.
    TypeError
        A part has the wrong type.
    """

    element: Element
    scale: str | None = None
    group: int | None = None
    block_rows: int | None = None
    per: str = "row"
    second: str | None = None
    rule: str | None = None
    target: float | None = None
    saturate: bool = True
    name: str | None = None

    bits: int = field(init=False, compare=False)

    called: ClassVar[str] = "define"
    family: ClassVar[str] = "own"
    reads_sentences: ClassVar[bool] = True
    description: ClassVar[str] = "formats that a sentence defines: element, scale, rule and sharing"
    # fmt: off
    examples: ClassVar[tuple[str, ...]] = (
        "e3m4fnuz-g32-e8m0", "e2m1-g16-e4m3fn-f32tensor", "ternary-g128-absmean", "binary-absmean", "posit8.1-row",
        "takum8-g64", "log5-3", "log4-5-g16-bf16", "int4f2-g32-e8m0-even", "int12-g64-bf16", "uint4-g16-s4-f32tensor",
        "int4-g16-s4-f32row", "int4-g16-e4m3fn-f32row", "e4m3fn-b16x16", "e2m1-b4x8-e4m3fn-f32tensor", "e3m4",
        "e4m3b11fnuz-nosat", "e5m4-row", "ternary-tensor-absmean", "int4full-tensor", "posit6.1@2-b3x5-bf16",
        "e2m1-g5-ue5m3", "binary8p3se", "int16f4-g8-f16",
    )
    # fmt: on

    def __post_init__(self) -> None:
        if not isinstance(self.element, Element):
            raise WrongType(f"define: element is {shown(self.element)}, expected an element or its text")
        self._set_integer("group", range(1, MAX_GROUP + 1), optional=True)
        self._set_integer("block_rows", range(1, MAX_GROUP + 1), optional=True)
        self._check_word("per", "row", "tensor")
        self._check_word("second", "row", "tensor", optional=True)
        self._check_word("rule", *RULES, optional=True)
        self._check_flag("saturate")
        object.__setattr__(self, "bits", self.element.bits)
        self._check_target()
        self._check_scale()
        self._check_rule()
        self._check_levels()
        if not self.saturate and not self._has_beyond:
            raise WrongValue(
                f"define: saturate is False with {self.element}, which has no infinity or NaN beyond its largest "
                "number; expected True"
            )
        if self.name is not None and re.match(r"levels[0-9]+_[0-9a-f]{8}", self.name):
            raise WrongValue(
                f"define: name is {shown(self.name)}, which is how levels without a name begin; choose another"
            )

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def _has_beyond(self) -> bool:
        return isinstance(self.element, Minifloat) and self.element.nan is not None

    def _check_target(self) -> None:
        if self.target is None:
            return
        try:
            if isinstance(self.target, (str, bytes, bool)):
                raise TypeError
            value = float(self.target)
        except (TypeError, ValueError, OverflowError):
            raise WrongType(f"define: target is {shown(self.target)}, expected a number above 0") from None
        if not 1e-9 <= value <= self.element.largest:
            largest = self.element.largest
            allowed = f"1e-09 to {shown(largest)}" if largest >= 1e-9 else "None below 1e-09"
            raise WrongValue(
                f"define: target is {shown(value)}, the largest number of {self.element} is {shown(largest)}, "
                f"expected {allowed}"
            )
        if float(f"{value:.9f}") != value or value >= 1e9:
            raise WrongValue(f"define: target is {shown(value)}, expected below 1e9, with at most 9 decimals")
        self._set(target=None if value == self.element.target else value)

    def _check_scale(self) -> None:
        shares = self.group is not None or self.per == "tensor" or self.second is not None or self.rule is not None
        if self.scale is None and (self.element.scaled or shares or self.target is not None):
            self._set(scale="f32")
        if self.block_rows is not None and self.group is None:
            raise WrongValue("define: block has rows and no columns, expected block=(rows, columns)")
        if self.per == "tensor" and self.group is not None:
            raise WrongValue("define: per is 'tensor' with a group, expected one of both")
        if self.scale is None:
            return
        if not isinstance(self.scale, str):
            raise WrongType(f"define: scale is {shown(self.scale)} of type {type(self.scale).__name__}, expected a str")
        kind = self.scale_kind
        if self.per == "tensor" and kind != "f32":
            raise WrongValue(f"define: per is 'tensor' with the scale {shown(self.scale)}, expected 'f32'")
        if kind == "integer" and self.second is None:
            raise WrongValue(
                f"define: scale is {shown(self.scale)}, integers, without a second level; expected second='row' or "
                "'tensor'"
            )
        if self.second is not None and kind not in ("integer", "float"):
            raise WrongValue(
                f"define: second is {shown(self.second)} with the scale {shown(self.scale)}, expected a scale of few "
                "bits, such as 'e4m3fn' or 's4'"
            )
        if self.second is not None and self.group is None:
            raise WrongValue(f"define: second is {shown(self.second)} without a group, expected a group or a block")
        if self.block_rows is not None and (kind == "integer" or self.second == "row"):
            raise WrongValue("define: block goes with one level, or with a float scale and second='tensor'")

    def _check_rule(self) -> None:
        if self.scale is None:
            return
        usual = "floor" if self.scale == "e8m0" else "absmax"
        allowed = ("floor", "ceil", "rceil", "even") if self.scale == "e8m0" else ("absmax", "absmean")
        rule = self.rule or usual
        if rule not in allowed:
            raise WrongValue(
                f"define: rule is {shown(rule)} with the scale {shown(self.scale)}, expected "
                f"{or_words(map(repr, allowed))}"
            )
        if rule == "even" and self.element.kind not in ("integer", "float"):
            raise WrongValue(
                f"define: rule is 'even' with {self.element}, expected integers or floats, which have a fraction"
            )
        if rule == "absmean" and self.second is not None:
            raise WrongValue("define: rule is 'absmean' with a second level, expected one level")
        self._set(rule=None if rule == usual else rule)

    def _check_levels(self) -> None:
        """Refuse elements that no scale can map."""
        if self.scale is not None and not 0 < np.float32(self.used_target) < np.inf:
            raise WrongValue(f"define: {self.element} has no number above 0 that a scale could map to")
        if self.second is not None and self.scale_type is not None:
            product = self.used_target * self.scale_type.largest  # of float32, that the second level divides by
            if product <= LEAST_FLOAT32 / 2:
                raise WrongValue(
                    f"define: target {shown(self.used_target)} times {shown(self.scale_type.largest)}, the largest "
                    f"scale of {shown(self.scale)}, is 0 in float32, expected larger numbers"
                )

    @property
    def used_target(self) -> float:
        """Return the number that a scale maps the largest magnitude to, also if none is given."""
        return self.element.target if self.target is None else self.target

    @property
    def used_rule(self) -> str:
        """Return the rule of the scales, or the default rule if none is given."""
        return self.rule or ("floor" if self.scale == "e8m0" else "absmax")

    @cached_property
    def scale_kind(self) -> str:
        """Return the kind of scale: one of `SCALES`."""
        text = "f32" if self.scale is None else self.scale
        if text in ("f32", "f16", "bf16", "e8m0"):
            return text
        if re.fullmatch(r"s[0-9]{1,2}", text):
            bits = int(text[1:])
            if not 2 <= bits <= 10 or text != f"s{bits}":
                raise WrongValue(f"define: scale is {shown(text)}, expected 's2' to 's10'")
            return "integer"
        if self.scale_type is None:
            raise WrongValue(
                f"define: scale is {shown(text)}, expected 'f32', 'f16', 'bf16', 'e8m0', 's<bits>' or a float of at "
                "most 8 bits such as 'e4m3fn'"
            )
        return "float"

    @cached_property
    def scale_type(self) -> Minifloat | None:
        """Return the type of float scales, or None."""
        if self.scale in ("f16", "bf16"):
            return Minifloat(5, 10) if self.scale == "f16" else Minifloat(8, 7)
        if self.scale == "e8m0" or not re.fullmatch(FLOAT, self.scale or ""):
            return None
        found = element(self.scale or "")
        if not isinstance(found, Minifloat) or not _is_scale(found):
            raise WrongValue(
                f"define: scale is {shown(self.scale)}, expected a float of at most 8 bits with subnormals, a zero and "
                "a bias of 0 or more"
            )
        return found

    @property
    def fraction_places(self) -> int:
        """Return the bits of the element's fraction that the rule "even" rounds to."""
        if isinstance(self.element, Integer):
            return self.element.bits - 2 if self.element.signed else self.element.bits - 1
        return self.element.mantissa if isinstance(self.element, Minifloat) else 0

    @cached_property
    def whole_places(self) -> int:
        """Return the least number of places after which all levels are integers of 8 bits, or -1."""
        if self.element.bits > 8 or self.element.kind == "log":
            return -1
        return _whole_places(self.element.table().levels)

    @property
    def scale_bits(self) -> int:
        """Return the bits of a stored scale."""
        kind = self.scale_kind
        if kind == "integer":
            return int((self.scale or "")[1:])
        return {"f32": 32, "f16": 16, "bf16": 16}.get(kind, 8)

    @property
    def sharing(self) -> str:
        """Return what shares a scale: one of `SHARINGS`."""
        if self.scale is None:
            return "none"
        if self.group is None:
            return self.per
        return "group" if self.block_rows is None else "block"

    @property
    def splits_into_rows(self) -> bool:
        return self.block_rows is None

    @property
    def shared_rows(self) -> int:
        return self.block_rows or 1

    def __str__(self) -> str:
        return self.name or self.sentence

    def __repr__(self) -> str:
        name = "" if self.name is None else f", name={shown(self.name)}"
        return f"{type(self).__name__}({self.sentence!r}{name})"

    def __reduce__(self) -> tuple[Any, ...]:
        fields = ("element", "scale", "group", "block_rows", "per", "second", "rule", "target", "saturate", "name")
        return type(self), tuple(getattr(self, field) for field in fields)  # without what this process knows of it

    @property
    def sentence(self) -> str:
        """Return the format as a sentence: element, sharing, scale, rule."""
        target = "" if self.target is None else f"@{self.target:.9f}".rstrip("0").rstrip(".")
        if self.group is not None:
            shared = f"-g{self.group}" if self.block_rows is None else f"-b{self.block_rows}x{self.group}"
        else:
            shared = "-tensor" if self.per == "tensor" else "-row" if self.scale and not self.element.scaled else ""
        scale = "" if self.scale in (None, "f32") else f"-{self.scale}"
        second = "" if self.second is None else f"-f32{self.second}"
        rule = "" if self.rule is None else f"-{self.rule}"
        return f"{self.element}{target}{shared}{scale}{second}{rule}{'' if self.saturate else '-nosat'}"

    @classmethod
    def _parse(cls, text: str) -> Own | Function | None:
        if text in NAMES:
            return NAMES[text]
        match = _SENTENCE.fullmatch(text)
        if match is None:
            return None
        part = match.groupdict()
        found = element_or_none(part["element"])
        if found is None:
            return None
        group = part["group"] or part["columns"]
        scale = part["scale"]
        if scale is None and part["per"] == "row":
            scale = "f32"
        return cls(
            found, scale, optional(group), optional(part["rows"]), part["per"] or "row", part["second"], part["rule"],
            None if part["target"] is None else float(part["target"]), part["nosat"] is None,
        )  # fmt: skip

    @property
    def element_dtype(self) -> str | None:
        return DTYPES.get(str(self.element))

    def core_params(self) -> tuple[int, ...]:
        """Return (bits, group or 0, number of the record)."""
        return (self.bits, self.group or 0, _number_of(self))

    def stored_rules(self) -> StoredRules:
        """Return what components hold: signed integers are never the lowest unless all are used."""
        integers = isinstance(self.element, Integer) and self.element.signed and not self.element.full
        largest = 255
        if self.scale_kind == "float" and self.scale_type is not None:
            largest = self.scale_type.largest_code
        return StoredRules(unused_code=1 << (self.bits - 1) if integers else None, padding=None, largest_scale=largest)


def _is_scale(kind: Minifloat) -> bool:
    """Tell whether the C core reads a float as a scale."""
    return (
        kind.bits <= 8
        and kind.subnormals
        and kind.used_bias >= 0
        and kind.specials != "fnuz"
        and not kind.has_last_exponent
    )


def is_own(fmt: Any) -> TypeGuard[Own]:
    """Tell whether a sentence defines a format, which then has an element, a scale and its sharing.

    Parameters
    ----------
    fmt : object

    Examples
    --------
    >>> import heterocompute as hc
    >>> is_own(hc.format("e3m4-g32-e8m0")), is_own(hc.format("int8"))
    (True, False)
    """
    return isinstance(fmt, Own)


# fmt: off
DTYPES = {
    "e4m3fn": "float8_e4m3fn", "e4m3fnuz": "float8_e4m3fnuz", "e5m2": "float8_e5m2", "e5m2fnuz": "float8_e5m2fnuz",
    "e3m4": "float8_e3m4", "e4m3": "float8_e4m3", "e4m3b11fnuz": "float8_e4m3b11fnuz", "e8m0": "float8_e8m0fnu",
    "e2m1": "float4_e2m1fn", "e2m3": "float6_e2m3fn", "e3m2": "float6_e3m2fn", "e5m10": "float16", "e8m7": "bfloat16",
    "int2": "int2", "int4": "int4", "int8": "int8", "int16": "int16", "uint2": "uint2", "uint4": "uint4",
    "uint8": "uint8", "uint16": "uint16",
}
# fmt: on


def _whole_places(levels: np.ndarray[Any, Any]) -> int:
    """Return the least number of places after which all levels are integers of 8 bits, or -1."""
    if not np.isfinite(levels).all():
        return -1
    for places in range(8):
        moved = levels * 2.0**places
        if (moved == np.rint(moved)).all():
            return places if np.abs(moved).max() <= 127 else -1
    return -1


@lru_cache(maxsize=1024)
def _number_of(fmt: Own) -> int:
    """Make the record of a format known to the C core; return its number."""
    kind = fmt.element
    wide = kind.bits > 8
    levels, bounds, ranked = np.zeros(TABLE), np.full(TABLE, np.inf), np.zeros(TABLE, np.uint8)
    nan = minus_zero = whole = -1
    least = -math.inf
    ranks = 0
    if not wide:
        table = kind.table(fmt.saturate)
        ranks = len(table.ranked)
        levels[: len(table.levels)], bounds[: ranks - 1] = table.levels, table.bounds
        ranked[:ranks] = table.ranked
        nan, least = -1 if table.nan is None else table.nan, table.lowest
        minus_zero = -1 if table.minus_zero is None else table.minus_zero
        whole = fmt.whole_places
    elif isinstance(kind, Minifloat) and kind.nan is not None:
        nan = kind.nan
    lowest = largest = places = 0
    is_plain = False
    if isinstance(kind, Integer):
        lowest, largest, places = kind.lowest_code, kind.largest_code, kind.fraction_bits
    elif isinstance(kind, Minifloat):
        places = kind.mantissa
        is_plain = kind.is_plain
    elif isinstance(kind, Logs):
        places = kind.gamma
    fields = (
        kind.bits, CODES[kind.kind], ranks, kind.signed, fmt.saturate, nan, minus_zero, lowest, largest, places,
        is_plain, whole, SCALES.index(fmt.scale_kind), fmt.scale_bits if fmt.scale_kind in ("integer", "float") else 0,
        SHARINGS.index(fmt.sharing), fmt.block_rows or 1, SECONDS.index(fmt.second), RULES.index(fmt.used_rule),
        fmt.fraction_places, *_float_fields(kind if isinstance(kind, Minifloat) else None),
        *_float_fields(fmt.scale_type),
    )  # fmt: skip
    largest_scale = fmt.scale_type.largest if fmt.scale_kind == "float" and fmt.scale_type is not None else 0.0
    most = kind.largest if wide else float(np.nanmax(np.abs(np.where(np.isinf(levels), 0, levels))))
    reals = float(fmt.used_target), largest_scale, least, most
    return _core.define(tuple(map(int, fields)), reals, levels.tobytes(), bounds.tobytes(), ranked.tobytes())


def _float_fields(kind: Minifloat | None) -> tuple[int, ...]:
    """Return the fields of hc_own_float; a type without a sign is one whose sign is 0."""
    if kind is None:
        return (0,) * 6
    nan = 0 if kind.nan is None or kind.nan >> (kind.exponent + kind.mantissa) else kind.nan
    return (
        kind.exponent + kind.mantissa + 1, kind.mantissa, kind.used_bias, kind.largest_code, kind.infinity or 0, nan,
    )  # fmt: skip
