"""Small floats, microscaling floats (MX) and NVFP4."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from ..base.errors import WrongValue, shown
from .base import MAX_GROUP, Format, StoredRules, optional

# The position of a name is the number of the type in the C core.
FLOAT_BITS = {
    "fp32": 32,
    "tf32": 32,
    "bf16": 16,
    "fp16": 16,
    "fp8_e4m3fn": 8,
    "fp8_e5m2": 8,
    "fp6_e3m2": 6,
    "fp6_e2m3": 6,
    "fp4_e2m1": 4,
}
FLOAT_NAMES = tuple(FLOAT_BITS)
ELEMENTS = {"fp8_e4m3": 4, "fp8_e5m2": 5, "fp6_e3m2": 6, "fp6_e2m3": 7, "fp4": 8, "int8": 9}
# fmt: off
DTYPES = (
    "float32", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float6_e3m2fn", "float6_e2m3fn",
    "float4_e2m1fn", "int8",
)
# fmt: on
RULES = ("floor", "ceil", "rceil", "even")


@dataclass(frozen=True)
class Float(Format):
    """Small floats: sign, exponent and fraction, rounded once, with an optional scale.

    Parameters
    ----------
    name : {"fp32", "tf32", "bf16", "fp16", "fp8_e4m3fn", "fp8_e5m2", "fp6_e3m2", "fp6_e2m3", "fp4_e2m1"}
        The type. tf32 is stored as float32.
    saturate : bool
        Values beyond the largest value, including infinity, become the largest. False: they become infinity or NaN if
        the type has one, as in ml_dtypes. fp32 keeps infinity.
    scaled : None, {"row", "tensor", "group"}
        A float32 scale per row or group, or one for the whole array, which maps the largest magnitude to the type's
        largest value.
    group : int or None
        Values along the quantized axis that share a scale, with ``scaled="group"`` only.

    Attributes
    ----------
    bits : int
        Bits of a code.

    Raises
    ------
    ValueError
        The name is unknown (the message names the nearest), the scaling is unknown, or a group is given without
        ``scaled="group"``.
    TypeError
        A parameter has the wrong type.

    Notes
    -----
    Micikevicius et al., "FP8 Formats for Deep Learning" (arXiv 2209.05433), table 1, for fp8; OCP Microscaling
    Formats (MX) v1.0, section 5.3, for fp6 and fp4.

    Examples
    --------
    >>> from heterocompute.formats import Float
    >>> str(Float("fp8_e4m3fn", saturate=False, scaled="row"))
    'fp8_e4m3fn-nosat-row'
    """

    name: str
    saturate: bool = True
    scaled: str | None = None
    group: int | None = None

    bits: int = field(init=False, repr=False, compare=False)

    family: ClassVar[str] = "float"
    description: ClassVar[str] = (
        "small floats, alone or scaled to the largest magnitude of a row, of a group or of the array"
    )
    # fmt: off
    examples: ClassVar[tuple[str, ...]] = (
        *FLOAT_NAMES, "fp32-nosat", "tf32-nosat", "fp16-nosat", "fp8_e4m3fn-nosat", "fp8_e5m2-nosat",
        "fp6_e2m3-nosat", "fp8_e4m3fn-row", "fp8_e5m2-row", "fp6_e2m3-row", "fp4_e2m1-row", "fp16-row",
        "fp8_e4m3fn-tensor", "fp6_e3m2-tensor", "fp4_e2m1-tensor", "fp8_e4m3fn-nosat-row", "fp8_e5m2-nosat-tensor",
        "fp8_e4m3fn-g128", "fp8_e5m2-g16", "fp4_e2m1-g32", "fp6_e2m3-g5", "fp8_e4m3fn-nosat-g64", "fp16-g16",
    )
    # fmt: on

    _grammar: ClassVar[re.Pattern[str]] = re.compile(
        rf"({'|'.join(FLOAT_NAMES)})(-nosat)?(?:-(row|tensor|g([0-9]{{1,12}})))?"
    )

    def __post_init__(self) -> None:
        self._check_word("name", *FLOAT_NAMES)
        self._check_flag("saturate")
        self._check_word("scaled", "row", "tensor", "group", optional=True)
        self._set_integer("group", range(1, MAX_GROUP + 1), optional=True)
        if (self.group is None) == (self.scaled == "group"):
            given = f"scaled is {shown(self.scaled)} and group is {self.group}"
            raise WrongValue(f"Float: {given}, expected a group with scaled='group' only")
        object.__setattr__(self, "bits", FLOAT_BITS[self.name])

    @property
    def element_dtype(self) -> str | None:
        return DTYPES[FLOAT_NAMES.index(self.name)]

    def __str__(self) -> str:
        scaled = "" if self.scaled is None else f"-g{self.group}" if self.scaled == "group" else f"-{self.scaled}"
        return f"{self.name}{'' if self.saturate else '-nosat'}{scaled}"

    @classmethod
    def _parse(cls, text: str) -> Float | None:
        match = cls._grammar.fullmatch(text)
        if match is None:
            return None
        name, raw, scaled, group = match.groups()
        return cls(name, raw is None, scaled if group is None else "group", optional(group))

    def core_params(self) -> tuple[int, ...]:
        """Return (bits, group or 0, number of the type, saturate, scaling: 0 none, 1 row, 2 array, 3 group).

        Returns
        -------
        tuple of int
        """
        scaled = (None, "row", "tensor", "group").index(self.scaled)
        return (self.bits, self.group or 0, FLOAT_NAMES.index(self.name), int(self.saturate), scaled)


@dataclass(frozen=True)
class MX(Format):
    """Microscaling: small floats or int8, with a power of two as the scale of every 32 values.

    Parameters
    ----------
    element : {"fp8_e4m3", "fp8_e5m2", "fp6_e3m2", "fp6_e2m3", "fp4", "int8"}
    scale_rule : {"floor", "ceil", "rceil", "even"}
        How the exponent of the scale follows from the group's largest magnitude:

        - "floor": round its exponent down, the rule of the specification.
        - "ceil": round its exponent up, so that nothing saturates.
        - "rceil": the smallest exponent with which nothing saturates.
        - "even": round its fraction to the element's bits first.

    Attributes
    ----------
    bits : int
        Bits of an element.
    group : int
        32.

    Raises
    ------
    ValueError
        The element or the rule is unknown; the message names the nearest.
    TypeError
        A parameter has the wrong type.

    Notes
    -----
    OCP Microscaling Formats (MX) Specification, version 1.0, 2023, sections 5 and 6; Rouhani et al., "Microscaling
    Data Formats for Deep Learning" (arXiv 2310.10537).

    Examples
    --------
    >>> from heterocompute.formats import MX
    >>> str(MX("fp8_e4m3", scale_rule="rceil")), str(MX("fp4"))
    ('mxfp8_e4m3-rceil', 'mxfp4')
    """

    element: str
    scale_rule: str = "floor"

    bits: int = field(init=False, repr=False, compare=False)
    group: int = field(default=32, init=False, repr=False, compare=False)

    family: ClassVar[str] = "mx"
    description: ClassVar[str] = "microscaling: floats of 4 to 8 bits or int8, a power of two for every 32 values"
    # fmt: off
    examples: ClassVar[tuple[str, ...]] = (
        "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8", "mxfp4-ceil", "mxfp4-rceil",
        "mxfp4-even", "mxfp8_e4m3-rceil", "mxfp8_e5m2-even", "mxfp6_e3m2-even", "mxfp6_e2m3-ceil", "mxint8-rceil",
        "mxint8-even",
    )
    # fmt: on

    _grammar: ClassVar[re.Pattern[str]] = re.compile(rf"mx({'|'.join(ELEMENTS)})(?:-({'|'.join(RULES[1:])}))?")

    def __post_init__(self) -> None:
        self._check_word("element", *ELEMENTS)
        self._check_word("scale_rule", *RULES)
        object.__setattr__(self, "bits", int(self.element.removeprefix("fp").removeprefix("int")[0]))

    @property
    def element_dtype(self) -> str | None:
        return DTYPES[ELEMENTS[self.element]]

    def __str__(self) -> str:
        return f"mx{self.element}{'' if self.scale_rule == 'floor' else '-' + self.scale_rule}"

    @classmethod
    def _parse(cls, text: str) -> MX | None:
        match = cls._grammar.fullmatch(text)
        return None if match is None else cls(match[1], match[2] or "floor")

    def core_params(self) -> tuple[int, ...]:
        """Return (bits, 32, number of the element, number of the rule).

        Returns
        -------
        tuple of int
        """
        return (self.bits, self.group, ELEMENTS[self.element], RULES.index(self.scale_rule))

    def stored_rules(self) -> StoredRules:
        """Return rules for components: int8 elements are never -128.

        Returns
        -------
        StoredRules
        """
        whole = self.element == "int8"
        return StoredRules(unused_code=0x80 if whole else None)


@dataclass(frozen=True)
class NVFP4(Format):
    """NVFP4: 4-bit floats, an 8-bit float scale per 16 values, and a float32 scale for the array.

    Parameters
    ----------
    four_over_six : bool
        Map the largest magnitude of a group to 4 instead of 6 if the error is smaller. The scale of the array is
        then absmax / 1536 instead of absmax / 2688, so that scales of absmax / 4 do not saturate.

    Attributes
    ----------
    bits, group : int
        4 and 16.

    Raises
    ------
    TypeError
        `four_over_six` is not a bool.

    Notes
    -----
    NVIDIA, "Pretraining Large Language Models with NVFP4" (arXiv 2509.25149); four over six: Cook et
    al. (arXiv 2512.02010).

    Examples
    --------
    >>> from heterocompute.formats import NVFP4
    >>> str(NVFP4(four_over_six=True))
    'nvfp4-4over6'
    """

    four_over_six: bool = False

    bits: int = field(default=4, init=False, repr=False, compare=False)
    group: int = field(default=16, init=False, repr=False, compare=False)

    family: ClassVar[str] = "nvfp4"
    description: ClassVar[str] = (
        "NVFP4: 4-bit floats, an 8-bit float scale for every 16 values, a float32 for the array"
    )
    examples: ClassVar[tuple[str, ...]] = ("nvfp4", "nvfp4-4over6")

    def __post_init__(self) -> None:
        self._check_flag("four_over_six")

    @property
    def element_dtype(self) -> str | None:
        return "float4_e2m1fn"

    def __str__(self) -> str:
        return "nvfp4-4over6" if self.four_over_six else "nvfp4"

    @classmethod
    def _parse(cls, text: str) -> NVFP4 | None:
        return cls(text != "nvfp4") if text in cls.examples else None

    def core_params(self) -> tuple[int, ...]:
        """Return (4, 16, four_over_six).

        Returns
        -------
        tuple of int
        """
        return (self.bits, self.group, int(self.four_over_six))

    def stored_rules(self) -> StoredRules:
        """Return rules for components: scales are neither negative nor NaN.

        Returns
        -------
        StoredRules
        """
        return StoredRules(largest_scale=0x7E)
