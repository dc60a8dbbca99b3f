"""Number formats as immutable values: their parameters and their text, nothing about bits.

A family is one frozen dataclass derived from `Format`. Naming a `family` registers it, and from then on
`format`, `formats` and everything that iterates over them (tests, study, command line) know it.

Texts follow one grammar: the family with its bits, then suffixes in the order of the constructor's
arguments, e.g. ``int4-g32-asym-f16`` or ``vsq4u-g16-s4-tensor-refit``. Each format has exactly one text.
"""

from __future__ import annotations

import difflib
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar

__all__ = ["Format", "Int", "VSQ", "format", "formats"]

# The C core holds a group's length in a signed 32-bit number.
MAX_GROUP = 2**31 - 1


class Format(ABC):
    """What every number format has: a family, a text, and the parameters of the C core.

    A subclass is a frozen dataclass whose fields are the format's parameters. It sets the class attributes
    below and the two abstract methods; ``__str__`` and ``_parse`` must be inverse.

    Attributes
    ----------
    family : str
        Name of the family, the key of `formats`.
    description : str
        One line for people.
    examples : tuple of str
        Texts that cover the family's parameters; the tests iterate over them.
    """

    family: ClassVar[str]
    description: ClassVar[str]
    examples: ClassVar[tuple[str, ...]]

    _registered: ClassVar[dict[str, type[Format]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        family = cls.__dict__.get("family")
        if family is None:
            return
        if family in Format._registered:
            other = Format._registered[family].__name__
            raise TypeError(f"{cls.__name__}: the family {family!r} is taken by {other}")
        Format._registered[family] = cls

    @classmethod
    def families(cls) -> tuple[type[Format], ...]:
        """Return the class of every registered family, in the order of definition."""
        return tuple(Format._registered.values())

    @abstractmethod
    def __str__(self) -> str: ...

    @classmethod
    @abstractmethod
    def _parse(cls, text: str) -> Format | None:
        """Return the format of a text, or None if it is of another family; ValueError if it is illegal."""

    @abstractmethod
    def core_params(self) -> tuple[int, ...]:
        """Return the parameters as the C core takes them: integers, 0 for None."""

    # Each setter stores the plain value, so that Int(np.int64(4)) and Int(4) print and pickle alike.
    def _set_integer(self, field: str, *wanted: range, optional: bool = False) -> None:
        value = getattr(self, field)
        if value is None and optional:
            return
        name = f"{type(self).__name__}: {field}"
        words = _or_words([*(_range_words(part) for part in wanted), *(["None"] if optional else [])])
        try:
            if isinstance(value, bool):
                raise TypeError
            number = operator.index(value)
        except TypeError:
            kind = type(value).__name__
            raise TypeError(f"{name} is {value!r} of type {kind}, wanted an integer: {words}") from None
        if not any(number in part for part in wanted):
            raise ValueError(f"{name} is {number}, wanted {words}")
        object.__setattr__(self, field, number)

    def _check_flag(self, field: str) -> None:
        value = getattr(self, field)
        if not isinstance(value, bool):
            name, kind = f"{type(self).__name__}: {field}", type(value).__name__
            raise TypeError(f"{name} is {value!r} of type {kind}, wanted True or False")

    def _check_word(self, field: str, *wanted: str) -> None:
        value = getattr(self, field)
        name, words = f"{type(self).__name__}: {field}", _or_words(map(repr, wanted))
        if not isinstance(value, str):
            raise TypeError(f"{name} is {value!r} of type {type(value).__name__}, wanted {words}")
        if value not in wanted:
            raise ValueError(f"{name} is {value!r}, wanted {words}")


@dataclass(frozen=True)
class Int(Format):
    """Uniform integers: a value is scale x code, or scale x (code - zero point).

    Parameters
    ----------
    bits : int
        Bits of a code, 2 to 8. 16 and 24 are made for activations, whose products with 8-bit codes stay
        exact; they have only ``group=None, symmetric=True, scale="f32"``.
    group : int or None
        Values along the quantized axis that share a scale; None is one scale a row.
    symmetric : bool
        True: two's complement codes without the lowest one. False: unsigned codes and a zero point.
    scale : {"f32", "f16"}
        Type of the stored scales. ``"f16"`` quantizes with the stored, rounded scale.

    Raises
    ------
    ValueError
        A parameter, or a combination of them, that the format does not have.
    TypeError
        A parameter of the wrong type; bool is no integer.

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
        "int8", "int7", "int6", "int5", "int4", "int3", "int2", "int16", "int24",
        "int8-g16", "int4-g16", "int4-g32", "int4-g64", "int4-g128", "int3-g5", "int2-g1",
        "int8-asym", "int4-asym", "int2-asym", "int4-g32-asym", "int3-g5-asym", "int7-g64-asym",
        "int8-f16", "int4-g32-f16", "int5-g16-f16", "int4-asym-f16", "int6-g16-asym-f16", "int3-g5-asym-f16",
    )
    # fmt: on

    _grammar: ClassVar[re.Pattern[str]] = re.compile(r"int([0-9]{1,12})(?:-g([0-9]{1,12}))?(-asym)?(-f16)?")

    def __post_init__(self) -> None:
        self._set_integer("bits", range(2, 9), range(16, 17), range(24, 25))
        self._set_integer("group", range(1, MAX_GROUP + 1), optional=True)
        self._check_flag("symmetric")
        self._check_word("scale", "f32", "f16")
        if self.bits > 8 and (self.group is not None or not self.symmetric or self.scale != "f32"):
            raise ValueError(
                f"Int: bits is {self.bits}, which needs group=None, symmetric=True and scale='f32'; got "
                f"group={self.group}, symmetric={self.symmetric} and scale={self.scale!r}"
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
        return cls(int(bits), _optional(group), asymmetric is None, "f32" if half is None else "f16")

    def core_params(self) -> tuple[int, ...]:
        """Return (bits, group or 0, symmetric, scale is float16).

        Returns
        -------
        tuple of int
        """
        return (self.bits, self.group or 0, int(self.symmetric), int(self.scale == "f16"))


@dataclass(frozen=True)
class VSQ(Format):
    """VS-Quant: integers with a scale for every short group, the scales integers themselves.

    Parameters
    ----------
    bits : int
        Bits of a code (the paper's N), 2 to 8.
    group : int
        Values along the quantized axis that share a scale (the paper's V).
    scale_bits : int or None
        Bits of an unsigned integer scale (the paper's M), 2 to 10; None keeps float32 scales: one level.
    unsigned : bool
        Codes 0 to 2^bits - 1, for values after a ReLU; negative values become 0.
    coarse : {"row", "tensor"}
        What shares the second-level scale gamma. Needs `scale_bits`.
    refit : bool
        Take the codes again with the rounded scales. Not in the paper. Needs `scale_bits`.

    Raises
    ------
    ValueError
        A parameter, or a combination of them, that the format does not have.
    TypeError
        A parameter of the wrong type; bool is no integer.

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
            raise ValueError(
                f"VSQ: coarse is {self.coarse!r} but scale_bits is None; with one level there is no coarse "
                "scale to share, wanted coarse='row' or scale_bits 2 to 10"
            )
        if self.scale_bits is None and self.refit:
            raise ValueError(
                "VSQ: refit is True but scale_bits is None; with one level there are no rounded scales to "
                "refit to, wanted refit=False or scale_bits 2 to 10"
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
            _optional(scale_bits),
            unsigned is not None,
            "row" if tensor is None else "tensor",
            refit is not None,
        )

    def core_params(self) -> tuple[int, ...]:
        """Return (bits, group, scale_bits or 0, unsigned, coarse is the tensor, refit).

        Returns
        -------
        tuple of int
        """
        coarse = int(self.coarse == "tensor")
        return (self.bits, self.group, self.scale_bits or 0, int(self.unsigned), coarse, int(self.refit))


def format(text: str | Format) -> Format:
    """Return the format that a text names; the inverse of ``str``.

    Parameters
    ----------
    text : str or Format
        The one text of a format, such as ``"vsq4-g16-s4"``. A format comes back as it is.

    Returns
    -------
    Format

    Raises
    ------
    ValueError
        No format has this text; the message names the nearest text that one has.
    TypeError
        Neither a text nor a format.

    Examples
    --------
    >>> import heterocompute as hc
    >>> hc.format("int4-g128")
    Int(bits=4, group=128, symmetric=True, scale='f32')
    >>> hc.format("int4-g128") == hc.Int(4, group=128)
    True
    """
    if isinstance(text, Format):
        return text
    if not isinstance(text, str):
        kind = type(text).__name__
        raise TypeError(f"format: text is {text!r} of type {kind}, wanted a str such as 'vsq4-g16-s4'")
    reason = ""
    nearest = None
    try:
        found = _parse(text)
        if found is not None:
            if str(found) == text:
                return found
            nearest = str(found)
    except ValueError as error:
        reason = f" ({error})"
    shown = text if len(text) <= 64 else text[:64] + "..."
    raise ValueError(f"format: {shown!r} is no format{reason}; the nearest is {nearest or _nearest(text)!r}")


def formats() -> dict[str, str]:
    """Return every family of formats with its description.

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> from heterocompute.formats import formats
    >>> formats()["int"]
    'uniform integers, one scale for a row or a group, zero point or none'
    """
    return {cls.family: cls.description for cls in Format.families()}


def _parse(text: str) -> Format | None:
    for cls in Format.families():
        found = cls._parse(text)
        if found is not None:
            return found
    return None


def _nearest(text: str) -> str:
    plain = text[:64].strip().lower().replace("_", "-").replace(" ", "-")
    candidates = [example for cls in Format.families() for example in cls.examples]
    # Any group is legal, so an example with the group that was asked for is nearer than the example itself.
    for group in re.findall(r"-g[0-9]+", plain)[:1]:
        candidates += [re.sub(r"-g[0-9]+", group, example) for example in candidates]
    # The right suffixes in the wrong order, or in the wrong case, are nearer than any example.
    family, *suffixes = plain.split("-")
    reordered = ["-".join((family, *order)) for order in permutations(suffixes[:5])]
    for candidate in reordered:
        if _is_canonical(candidate):
            return candidate
    candidates = [candidate for candidate in candidates if _is_canonical(candidate)]
    longer = [candidate for candidate in candidates if plain and candidate.startswith(plain)]
    return difflib.get_close_matches(plain, longer or candidates, n=1, cutoff=0.0)[0]


def _is_canonical(text: str) -> bool:
    try:
        return str(_parse(text)) == text
    except ValueError:
        return False


def _optional(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


def _range_words(numbers: range) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def _or_words(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
