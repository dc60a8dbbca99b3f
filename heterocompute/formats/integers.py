"""Uniform integers, with zero points or minima, and VS-Quant."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from ..base.errors import WrongValue, shown
from .base import MAX_GROUP, Format, StoredRules, optional
from .elements import Integer
from .own import Own


@dataclass(frozen=True)
class Int(Format):
    """Uniform integers: a value is scale x code, or scale x (code - zero point).

    Parameters
    ----------
    bits : int
        Bits of a code, 2 to 16 or 24. More than 8 need ``symmetric=True``, and 24, which is for activations, needs
        ``group=None`` and ``scale="f32"``. Matmuls with 8-bit codes stay exact.
    group : int or None
        Values along the quantized axis that share a scale. None: one scale per row.
    symmetric : bool
        True: two's complement codes without the lowest one. False: unsigned codes and a zero point per scale.
    scale : {"f32", "f16"}
        Type of the stored scales. ``"f16"`` quantizes with the stored, rounded scale.

    Raises
    ------
    ValueError
        The format does not support a parameter, or the combination.
    TypeError
        A parameter has the wrong type; bool is not accepted as an integer.

    Examples
    --------
    >>> from heterocompute.formats import Int
    >>> str(Int(4, group=32, symmetric=False))
    'int4-g32-asym'
    """

    bits: int = 8
    group: int | None = None
    symmetric: bool = True
    scale: str = "f32"

    family: ClassVar[str] = "int"
    description: ClassVar[str] = "uniform integers, one scale for a row or a group, zero point or none"
    # fmt: off
    examples: ClassVar[tuple[str, ...]] = (
        "int8", "int7", "int6", "int5", "int4", "int3", "int2", "int16", "int24", "int12", "int9-g32", "int12-g32-f16",
        "int16-g16",
        "int8-g16", "int4-g16", "int4-g32", "int4-g64", "int4-g128", "int3-g5", "int2-g1",
        "int8-asym", "int4-asym", "int2-asym", "int4-g32-asym", "int3-g5-asym", "int7-g64-asym",
        "int8-f16", "int4-g32-f16", "int5-g16-f16", "int4-asym-f16", "int6-g16-asym-f16", "int3-g5-asym-f16",
    )
    # fmt: on

    _grammar: ClassVar[re.Pattern[str]] = re.compile(r"int([0-9]{1,12})(?:-g([0-9]{1,12}))?(-asym)?(-f16)?")

    def __post_init__(self) -> None:
        self._set_integer("bits", range(2, 17), range(24, 25))
        self._set_integer("group", range(1, MAX_GROUP + 1), optional=True)
        self._check_flag("symmetric")
        self._check_word("scale", "f32", "f16")
        if self.bits > 8 and not self.symmetric:
            raise WrongValue(f"Int: bits is {self.bits}, which needs symmetric=True; got symmetric={self.symmetric}")
        if self.bits == 24 and (self.group is not None or self.scale != "f32"):
            raise WrongValue(
                f"Int: bits is 24, which needs group=None and scale='f32'; got group={self.group} and "
                f"scale={shown(self.scale)}"
            )

    def __str__(self) -> str:
        group = "" if self.group is None else f"-g{self.group}"
        suffixes = ("" if self.symmetric else "-asym") + ("-f16" if self.scale == "f16" else "")
        return f"int{self.bits}{group}{suffixes}"

    @classmethod
    def _parse(cls, text: str) -> Int | None:
        match = cls._grammar.fullmatch(text)
        if match is None:
            return None
        bits, group, asymmetric, half = match.groups()
        return cls(int(bits), optional(group), asymmetric is None, "f32" if half is None else "f16")

    @property
    def element_dtype(self) -> str | None:
        return integer_element(self.bits, not self.symmetric)

    @property
    def core_family(self) -> str:
        """Return "own" for 9 to 16 bits, except 16 bits with a float32 per row, which the core's integers have too."""
        return "own" if self._sentence is not None else self.family

    @property
    def _sentence(self) -> Own | None:
        if not 8 < self.bits <= 16 or (self.bits, self.group, self.scale) == (16, None, "f32"):
            return None
        return Own(Integer(self.bits), self.scale, self.group)

    def core_params(self) -> tuple[int, ...]:
        """Return (bits, group or 0, symmetric, scale is float16), or the parameters of the own format.

        Returns
        -------
        tuple of int
        """
        if self._sentence is not None:
            return self._sentence.core_params()
        return (self.bits, self.group or 0, int(self.symmetric), int(self.scale == "f16"))

    def stored_rules(self) -> StoredRules:
        """Return rules for components: symmetric codes are never the lowest.

        Returns
        -------
        StoredRules
        """
        return StoredRules(unused_code=1 << (self.bits - 1) if self.symmetric else None)


@dataclass(frozen=True)
class VSQ(Format):
    """VS-Quant: integers with one scale per short group; the scales are integers too.

    Parameters
    ----------
    bits : int
        Bits of a code (the paper's N), 2 to 8.
    group : int
        Values along the quantized axis that share a scale (the paper's V).
    scale_bits : int or None
        Bits of an unsigned integer scale (the paper's M), 2 to 10. None: float32 scales, one level.
    unsigned : bool
        Use codes 0 to 2^bits - 1, for values after a ReLU. Negative values become 0.
    coarse : {"row", "tensor"}
        Values that share the second-level scale gamma. Needs `scale_bits`.
    refit : bool
        Recompute the codes with the rounded scales. Not in the paper. Needs `scale_bits`.

    Raises
    ------
    ValueError
        The format does not support a parameter, or the combination.
    TypeError
        A parameter has the wrong type; bool is not accepted as an integer.

    Notes
    -----
    Dai et al., "VS-Quant: Per-vector Scaled Quantization for Accurate Low-Precision Neural Network
    Inference", MLSys 2021 (arXiv 2102.04503), section 4, equations 7a to 7j.

    Examples
    --------
    >>> from heterocompute.formats import VSQ
    >>> str(VSQ(bits=4, group=16, unsigned=True, coarse="tensor"))
    'vsq4u-g16-s4-tensor'
    """

    bits: int = 4
    group: int = 16
    scale_bits: int | None = 4
    unsigned: bool = False
    coarse: str = "row"
    refit: bool = False

    family: ClassVar[str] = "vsq"
    description: ClassVar[str] = "VS-Quant: integers, one scale for a short group, the scales integers too"
    # fmt: off
    examples: ClassVar[tuple[str, ...]] = (
        "vsq4-g16-s4", "vsq4-g16", "vsq4u-g16-s4", "vsq2-g16-s4", "vsq3-g16-s4", "vsq5-g16-s4", "vsq6-g16-s6",
        "vsq7-g16-s5", "vsq8-g16-s8", "vsq8-g16-s10", "vsq4-g16-s2", "vsq4-g16-s3", "vsq4-g64-s7",
        "vsq3-g5-s9", "vsq4-g32-s4", "vsq4-g64-s8", "vsq4-g5-s4", "vsq3-g1-s3", "vsq8-g64", "vsq3-g5",
        "vsq2-g32", "vsq4u-g16", "vsq3u-g5-s6", "vsq8u-g32-s10", "vsq4-g16-s4-tensor", "vsq4u-g16-s8-tensor",
        "vsq4-g16-s4-refit", "vsq3u-g5-s3-refit", "vsq4u-g16-s4-tensor-refit",
    )
    # fmt: on

    _grammar: ClassVar[re.Pattern[str]] = re.compile(
        r"vsq([0-9]{1,12})(u)?-g([0-9]{1,12})(?:-s([0-9]{1,12}))?(-tensor)?(-refit)?"
    )

    def __post_init__(self) -> None:
        self._set_integer("bits", range(2, 9))
        self._set_integer("group", range(1, MAX_GROUP + 1))
        self._set_integer("scale_bits", range(2, 11), optional=True)
        self._check_flag("unsigned")
        self._check_word("coarse", "row", "tensor")
        self._check_flag("refit")
        if self.scale_bits is None and self.coarse != "row":
            raise WrongValue(
                f"VSQ: coarse is {shown(self.coarse)} but scale_bits is None; with one level there is no coarse "
                "scale to share, expected coarse='row' or scale_bits 2 to 10"
            )
        if self.scale_bits is None and self.refit:
            raise WrongValue(
                "VSQ: refit is True but scale_bits is None; with one level there are no rounded scales to "
                "refit to, expected refit=False or scale_bits 2 to 10"
            )

    def __str__(self) -> str:
        scale_bits = "" if self.scale_bits is None else f"-s{self.scale_bits}"
        suffixes = ("-tensor" if self.coarse == "tensor" else "") + ("-refit" if self.refit else "")
        return f"vsq{self.bits}{'u' if self.unsigned else ''}-g{self.group}{scale_bits}{suffixes}"

    @classmethod
    def _parse(cls, text: str) -> VSQ | None:
        match = cls._grammar.fullmatch(text)
        if match is None:
            return None
        bits, unsigned, group, scale_bits, tensor, refit = match.groups()
        return cls(
            int(bits),
            int(group),
            optional(scale_bits),
            unsigned is not None,
            "row" if tensor is None else "tensor",
            refit is not None,
        )

    @property
    def element_dtype(self) -> str | None:
        return integer_element(self.bits, self.unsigned)

    def core_params(self) -> tuple[int, ...]:
        """Return (bits, group, scale_bits or 0, unsigned, coarse is the tensor, refit).

        Returns
        -------
        tuple of int
        """
        coarse = int(self.coarse == "tensor")
        return (self.bits, self.group, self.scale_bits or 0, int(self.unsigned), coarse, int(self.refit))

    def stored_rules(self) -> StoredRules:
        """Return rules for components: signed codes are never the lowest.

        Returns
        -------
        StoredRules
        """
        return StoredRules(unused_code=None if self.unsigned else 1 << (self.bits - 1))


@dataclass(frozen=True)
class Affine(Format):
    """Integers with a minimum: a value is scale x code + minimum, where `Int` has zero points that are integers.

    Parameters
    ----------
    bits : int
        Bits of a code, 2 to 8. Codes are unsigned.
    group : int or None
        Values along the quantized axis that share a scale and a minimum. None: one of each per row.
    scale : {"f32", "f16"}
        Type of the stored scales and minima. ``"f16"`` quantizes with the stored, rounded numbers.

    Raises
    ------
    ValueError
        The format does not support a parameter.
    TypeError
        A parameter has the wrong type; bool is not accepted as an integer.

    Notes
    -----
    A float zero point z of HQQ or onnxruntime is the minimum -scale z. MLX calls it a bias.

    Examples
    --------
    >>> from heterocompute.formats import Affine
    >>> str(Affine(4, group=64, scale="f16"))
    'affine4-g64-f16'
    """

    bits: int = 4
    group: int | None = None
    scale: str = "f32"

    family: ClassVar[str] = "affine"
    description: ClassVar[str] = "integers with a scale and a minimum for a row or a group: zero points that are floats"
    # fmt: off
    examples: ClassVar[tuple[str, ...]] = (
        "affine8", "affine4", "affine2", "affine4-g32", "affine4-g64", "affine3-g5", "affine7-g64", "affine8-g16",
        "affine8-f16", "affine4-g32-f16", "affine4-g64-f16", "affine6-g16-f16", "affine5-g16", "affine3-g5-f16",
        "affine2-g1",
    )
    # fmt: on

    _grammar: ClassVar[re.Pattern[str]] = re.compile(r"affine([0-9]{1,12})(?:-g([0-9]{1,12}))?(-f16)?")

    def __post_init__(self) -> None:
        self._set_integer("bits", range(2, 9))
        self._set_integer("group", range(1, MAX_GROUP + 1), optional=True)
        self._check_word("scale", "f32", "f16")

    def __str__(self) -> str:
        group = "" if self.group is None else f"-g{self.group}"
        return f"affine{self.bits}{group}{'-f16' if self.scale == 'f16' else ''}"

    @classmethod
    def _parse(cls, text: str) -> Affine | None:
        match = cls._grammar.fullmatch(text)
        if match is None:
            return None
        bits, group, half = match.groups()
        return cls(int(bits), optional(group), "f32" if half is None else "f16")

    @property
    def element_dtype(self) -> str | None:
        return integer_element(self.bits, True)

    def core_params(self) -> tuple[int, ...]:
        """Return (bits, group or 0, numbers are float16).

        Returns
        -------
        tuple of int
        """
        return (self.bits, self.group or 0, int(self.scale == "f16"))

    def stored_rules(self) -> StoredRules:
        """Return rules for components: scales of other programs may be negative, padding is any code.

        Returns
        -------
        StoredRules
        """
        return StoredRules(padding=None, negative=True)


def integer_element(bits: int, is_unsigned: bool) -> str | None:
    return f"{'u' if is_unsigned else ''}int{bits}" if bits in (2, 4, 8, 16) else None
