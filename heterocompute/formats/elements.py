"""Elements of formats: the numbers that codes stand for, and the bounds between which a value gets a code.

An element is data. Its `table` has the level of each code, the codes by ascending level and the bounds between them;
the NumPy definition and the C core encode and decode with it alone.
"""

from __future__ import annotations

import math
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from ..base.errors import WrongType, WrongValue, shown
from .base import Parameters

__all__ = ["Element", "Integer", "Levels", "Logs", "Minifloat", "Table"]

Array = np.ndarray[Any, Any]
MAX_LEVELS = 256
LARGEST = float(np.finfo(np.float32).max)
SPECIALS = ("ieee", "fn", "fnuz", "finite", "p3109", "p3109f")
KNOWN: dict[str, Levels] = {}  # levels of this process that no text says, by their text
LEAST = 5e-324  # the smallest float64 above 0


@dataclass(frozen=True, eq=False)
class Table:
    """The codes of an element.

    Attributes
    ----------
    levels : ndarray of float64, (codes,)
        Value of each code; NaN and infinity may be among them.
    ranked : ndarray of int64, (ranks,)
        The codes that rounding gives, by ascending level.
    bounds : ndarray of float64, (ranks - 1,)
        The rank of a value is the number of bounds that it is greater than.
    nan, minus_zero : int or None
        The codes of NaN and of -0.
    lowest : float
        Values below it are NaN: of 8 bits with NaN in place of -0, there are as many ranks as codes without it.
    """

    levels: Array
    ranked: Array
    bounds: Array
    nan: int | None = None
    minus_zero: int | None = None
    lowest: float = -math.inf


class Element(ABC):
    """The numbers that the codes of a format stand for, before any scale.

    Attributes
    ----------
    bits : int
        Bits of a code.
    kind : {"integer", "float", "log", "table"}
    scaled : bool
        Whether there is a scale per row where none is asked for.
    signed : bool
        Whether there are numbers below 0.
    """

    bits: int
    kind: ClassVar[str]
    scaled: ClassVar[bool] = True
    signed: bool

    @abstractmethod
    def __str__(self) -> str: ...

    @property
    @abstractmethod
    def largest(self) -> float:
        """Return the largest finite number."""

    @property
    def target(self) -> float:
        """Return the number that a scale maps the largest magnitude to, unless the format says another."""
        return self.largest

    @abstractmethod
    def table(self, saturate: bool = True) -> Table:
        """Return levels and bounds.

        Parameters
        ----------
        saturate : bool
            Values beyond the largest number become the largest. False: infinity or NaN, the first that there is.

        Returns
        -------
        Table
        """


@dataclass(frozen=True)
class Minifloat(Element, Parameters):
    """Small floats: a sign, an exponent and a fraction.

    Parameters
    ----------
    exponent : int
        Bits of the exponent, 1 to 8.
    mantissa : int
        Bits of the fraction, 0 to 10. A code has at most 16 bits.
    bias : int or None
        The exponent field e stands for ``2 ** (e - bias)``. None: ``2 ** (exponent - 1) - 1``, or
        ``2 ** (exponent - 1)`` with "fnuz", "p3109" and "p3109f".
    specials : None, {"ieee", "fn", "fnuz", "finite", "p3109", "p3109f"}
        The codes that are not numbers. None: "ieee" from 8 bits on, "finite" below.

        - "ieee": the largest exponent field has infinity, and NaN where the fraction is not 0.
        - "fn": NaN where all bits of exponent and fraction are 1.
        - "fnuz": NaN in place of -0.
        - "finite": none.
        - "p3109": NaN in place of -0 (without a sign: the last code), and infinity as the largest value, as in IEEE
        P3109.
        - "p3109f": the same without infinity.
    subnormals : bool
        False: codes with the exponent field 0 are 0.
    signed : bool
        False: codes have no sign, and values below 0 become 0.

    Raises
    ------
    ValueError
        The parameters do not go together. The message says why.
    TypeError
        A parameter has the wrong type.

    Notes
    -----
    Micikevicius et al., "FP8 Formats for Deep Learning" (arXiv 2209.05433), for "fn"; Noune et al., "8-bit Numerical
    Formats for Deep Neural Networks" (arXiv 2206.02915), for "fnuz"; the interim report of IEEE P3109.

    Examples
    --------
    >>> from heterocompute.formats import Minifloat
    >>> str(Minifloat(3, 4, specials="fnuz")), Minifloat(4, 3).largest
    ('e3m4fnuz', 240.0)
    """

    exponent: int
    mantissa: int
    bias: int | None = None
    specials: str | None = None
    subnormals: bool = True
    signed: bool = True

    bits: int = field(init=False, repr=False, compare=False)
    kind: ClassVar[str] = "float"
    scaled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._set_integer("exponent", range(1, 9))
        self._set_integer("mantissa", range(11))
        self._set_integer("bias", range(-126, 256), optional=True)
        self._check_word("specials", *SPECIALS, optional=True)
        self._check_flag("subnormals")
        self._check_flag("signed")
        bits = self.exponent + self.mantissa + self.signed
        if not 2 <= bits <= 16:
            said = f"exponent is {self.exponent} and mantissa is {self.mantissa}"
            raise WrongValue(f"Minifloat: {said}, a code of {bits} bits; expected 2 to 16 bits with the sign")
        object.__setattr__(self, "bits", bits)
        # one element has one text
        if self.specials == ("ieee" if bits >= 8 else "finite"):
            object.__setattr__(self, "specials", None)
        if self.bias == self._usual_bias:
            object.__setattr__(self, "bias", None)
        if self.mantissa == 0:
            object.__setattr__(self, "subnormals", True)
        self._check_specials()
        lowest, highest = 1 - self.used_bias - self.mantissa, (self.largest_code >> self.mantissa) - self.used_bias
        if highest > 127 or lowest < -149:
            raise WrongValue(
                f"Minifloat: bias is {self.used_bias}, which gives powers of two from {lowest} to {highest}, expected "
                "-149 to 127, those of float32"
            )

    def _check_specials(self) -> None:
        specials, bits = self.used_specials, self.bits
        said = f"Minifloat: specials is {specials!r}"
        if specials == "ieee" and (self.mantissa == 0 or self.exponent == 1):
            with_words = f"exponent {self.exponent} and mantissa {self.mantissa}"
            raise WrongValue(f"{said} with {with_words}, which leave no NaN or no number; expected 'finite'")
        if specials == "fn" and bits < 8:
            raise WrongValue(f"{said} with {bits} bits, expected 8 bits or more, or 'finite'")
        if specials == "fnuz" and not self.signed:
            raise WrongValue(f"{said} without a sign, expected 'ieee', 'fn', 'finite' or 'p3109'")
        if specials in ("fnuz", "p3109", "p3109f") and bits > 8:
            raise WrongValue(f"{said} with {bits} bits, expected at most 8 bits")
        if specials in ("p3109", "p3109f") and (self.bias is not None or not self.subnormals):
            raise WrongValue(f"{said} with a bias or without subnormals, which the standard fixes; expected neither")
        if not self.subnormals and bits > 8:
            raise WrongValue(f"Minifloat: subnormals is False with {bits} bits, expected at most 8 bits")
        if self.largest_code < 1:
            raise WrongValue(f"{said} with {bits} bits, which leave no number above 0")

    @property
    def used_specials(self) -> str:
        """Return the kind of specials, also if none is given."""
        return self.specials or ("ieee" if self.bits >= 8 else "finite")

    @property
    def _usual_bias(self) -> int:
        half = 1 << (self.exponent - 1)
        return half if self.specials in ("fnuz", "p3109", "p3109f") else half - 1

    @property
    def used_bias(self) -> int:
        """Return the bias, also if none is given."""
        return self._usual_bias if self.bias is None else self.bias

    @property
    def largest_code(self) -> int:
        """Return the code of the largest number."""
        top, specials = (1 << (self.exponent + self.mantissa)) - 1, self.used_specials
        if specials in ("p3109", "p3109f"):
            return top - (specials == "p3109") - (not self.signed)
        return top - {"ieee": 1 << self.mantissa, "fn": 1}.get(specials, 0)

    @property
    def infinity(self) -> int | None:
        """Return the code of infinity."""
        return self.largest_code + 1 if self.used_specials in ("ieee", "p3109") else None

    @property
    def nan(self) -> int | None:
        """Return the code of NaN."""
        specials = self.used_specials
        if specials == "finite":
            return None
        if specials == "ieee":
            return self.largest_code + 1 + (1 << (self.mantissa - 1))
        return (
            self.largest_code + 1
            if specials == "fn"
            else (1 << (self.bits - 1))
            if self.signed
            else (1 << self.bits) - 1
        )

    @property
    def has_minus_zero(self) -> bool:
        """Return whether there is a -0."""
        return self.signed and self.used_specials in ("ieee", "fn", "finite")

    def number(self, code: int) -> float:
        """Return the number of a code without its sign, by the equation alone.

        Parameters
        ----------
        code : int

        Returns
        -------
        float
        """
        exponent, fraction = code >> self.mantissa, code & ((1 << self.mantissa) - 1)
        if exponent == 0 and not self.subnormals:
            return 0.0
        significand = fraction + (1 << self.mantissa if exponent else 0)
        return math.ldexp(significand, max(exponent, 1) - self.used_bias - self.mantissa)

    @property
    def largest(self) -> float:
        return self.number(self.largest_code)

    def __str__(self) -> str:
        if self.specials in ("p3109", "p3109f"):  # the names of the interim report
            sign, domain = "s" if self.signed else "u", "f" if self.specials == "p3109f" else "e"
            return f"binary{self.bits}p{self.mantissa + 1}{sign}{domain}"
        bias = "" if self.bias is None else f"b{self.bias}"
        flat = "" if self.subnormals else "ns"
        return f"{'' if self.signed else 'u'}e{self.exponent}m{self.mantissa}{bias}{self.specials or ''}{flat}"

    def table(self, saturate: bool = True) -> Table:
        return _float_table(self, saturate)


@lru_cache(maxsize=64)
def _float_table(kind: Minifloat, saturate: bool) -> Table:
    largest, sign = kind.largest_code, 1 << (kind.bits - 1)
    numbers = np.array([kind.number(code) for code in range(largest + 1)])
    levels = np.full(1 << kind.bits, np.nan)
    levels[: largest + 1] = numbers
    if kind.infinity is not None:
        levels[kind.infinity] = np.inf
    used = [code for code in range(largest + 1) if code == 0 or kind.number(code) > 0]
    least = [_least_above(kind.number(low), kind.number(high), low) for low, high in zip(used, used[1:], strict=False)]
    beyond = None if saturate else kind.nan if kind.infinity is None else kind.infinity
    if beyond is not None:
        least.append(_least_above(kind.largest, kind.number(largest + 1), largest))
        used.append(beyond)
    bounds = [math.nextafter(one, -math.inf) for one in least]
    if not kind.signed:
        return Table(levels, np.array(used), np.array(bounds), kind.nan)
    levels[sign:] = np.copysign(levels[:sign], -1.0)
    below = [code | sign for code in reversed(used)]
    if kind.has_minus_zero:
        return Table(levels, np.array(below + used), np.array([*_negated(least), -LEAST, *bounds]), kind.nan, sign)
    levels[sign] = np.nan  # the only one
    ranked, bounds, lowest = below[:-1] + used, [*_negated(least), *bounds], -math.inf
    if beyond is not None and beyond == kind.nan:
        ranked, lowest, bounds = ranked[1:], math.nextafter(bounds[0], math.inf), bounds[1:]
    return Table(levels, np.array(ranked), np.array(bounds), kind.nan, None, lowest)


def _least_above(low: float, high: float, code: int) -> float:
    """Return the smallest number that rounds to `high` instead of `low`, whose code is given; ties go to the even."""
    tie = (low + high) / 2  # exact: neighbours have few bits
    return math.nextafter(tie, math.inf) if code % 2 == 0 else tie


def _negated(least: Sequence[float]) -> list[float]:
    """Return the bounds below 0 of an element that is symmetric, from the smallest number of each code above 0."""
    return [-one for one in reversed(least)]


@dataclass(frozen=True)
class Integer(Element, Parameters):
    """Uniform integers.

    Parameters
    ----------
    bits : int
        2 to 16.
    signed : bool
        False: codes 0 to ``2 ** bits - 1``, and values below 0 become 0.
    full : bool
        Use the code ``-2 ** (bits - 1)``, too. Scales map to the largest positive code all the same.
    fraction_bits : int
        A code stands for ``code * 2 ** -fraction_bits``, 0 to 32.

    Raises
    ------
    ValueError
        A number is out of range, or `full` is given without a sign.
    TypeError
        A parameter has the wrong type.

    Examples
    --------
    >>> from heterocompute.formats import Integer
    >>> str(Integer(4, fraction_bits=2)), Integer(4, fraction_bits=2).largest
    ('int4f2', 1.75)
    """

    bits: int
    signed: bool = True
    full: bool = False
    fraction_bits: int = 0

    kind: ClassVar[str] = "integer"

    def __post_init__(self) -> None:
        self._set_integer("bits", range(2, 17))
        self._check_flag("signed")
        self._check_flag("full")
        self._set_integer("fraction_bits", range(33))
        if self.full and not self.signed:
            raise WrongValue("Integer: full is True without a sign, where all codes are used; expected full=False")

    @property
    def lowest_code(self) -> int:
        """Return the smallest integer that rounding gives."""
        return (0 if self.full else 1) - (1 << (self.bits - 1)) if self.signed else 0

    @property
    def largest_code(self) -> int:
        """Return the largest integer."""
        return (1 << (self.bits - self.signed)) - 1

    @property
    def largest(self) -> float:
        return math.ldexp(self.largest_code, -self.fraction_bits)

    def __str__(self) -> str:
        fraction = f"f{self.fraction_bits}" if self.fraction_bits else ""
        return f"{'' if self.signed else 'u'}int{self.bits}{fraction}{'full' if self.full else ''}"

    def table(self, saturate: bool = True) -> Table:
        return _integer_table(self)


@lru_cache(maxsize=64)
def _integer_table(kind: Integer) -> Table:
    codes, half = np.arange(1 << kind.bits), 1 << (kind.bits - 1)
    integers = (codes ^ half) - half if kind.signed else codes
    ranked = np.arange(kind.lowest_code, kind.largest_code + 1)
    ties = ranked[:-1] + 0.5
    bounds = np.where(ranked[:-1] % 2 == 0, ties, np.nextafter(ties, -np.inf))  # a tie goes to the even integer
    place = 2.0**-kind.fraction_bits
    return Table(integers * place, ranked & ((1 << kind.bits) - 1), bounds * place)


@dataclass(frozen=True)
class Logs(Element, Parameters):
    """Log numbers: a sign and a power of ``2 ** (-1 / gamma)``, with one code for zero.

    Parameters
    ----------
    bits : int
        2 to 8.
    gamma : int
        Steps per octave, 1 to 1,024. The base of the logarithm is ``2 ** (1 / gamma)``.

    Raises
    ------
    ValueError
        A number is out of range.
    TypeError
        A parameter has the wrong type.

    Examples
    --------
    >>> from heterocompute.formats.elements import Logs
    >>> str(Logs(5, 3)), float(Logs(5, 3).table().levels[3])
    ('log5-3', 0.5)
    """

    bits: int
    gamma: int

    kind: ClassVar[str] = "log"
    signed: bool = field(default=True, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set_integer("bits", range(2, 9))
        self._set_integer("gamma", range(1, 1025))

    @property
    def largest(self) -> float:
        return 1.0

    def __str__(self) -> str:
        return f"log{self.bits}-{self.gamma}"

    def table(self, saturate: bool = True) -> Table:
        return _log_table(self)


@lru_cache(maxsize=64)
def _log_table(kind: Logs) -> Table:
    sign = 1 << (kind.bits - 1)
    zero = sign - 1
    magnitudes = [power_of_two(-e, kind.gamma) for e in range(zero)]
    levels = np.array([*magnitudes, 0.0])
    between = [power_of_two(-2 * e - 1, 2 * kind.gamma) for e in reversed(range(zero - 1))]
    least = [magnitudes[-1] / 2, *between]  # of the magnitudes by ascending value: a tie goes to the larger
    codes = [zero, *reversed(range(zero))]
    ranked = [code | sign for code in reversed(codes)] + codes
    bounds = [*_negated(least), -LEAST, *(math.nextafter(one, -math.inf) for one in least)]
    return Table(np.concatenate([levels, -levels]), np.array(ranked), np.array(bounds), None, zero | sign)


@dataclass(frozen=True)
class PowersOfTwo(Element):
    """The codes of E8M0: code c stands for ``2 ** (c - 127)``, and 255 for NaN. Without a sign: values up to 0 get
    code 0.

    Examples
    --------
    >>> from heterocompute.formats.elements import PowersOfTwo
    >>> str(PowersOfTwo()), float(PowersOfTwo().table().levels[128])
    ('e8m0', 2.0)
    """

    bits: int = field(default=8, init=False, repr=False, compare=False)
    kind: ClassVar[str] = "table"
    scaled: ClassVar[bool] = False
    signed: bool = field(default=False, init=False, repr=False, compare=False)

    @property
    def largest(self) -> float:
        return 2.0**127

    def __str__(self) -> str:
        return "e8m0"

    def table(self, saturate: bool = True) -> Table:
        levels = np.append(2.0 ** np.arange(-127, 128), np.nan)
        least = (levels[:-2] + levels[1:-1]) / 2  # a tie goes to the larger, as in ml_dtypes
        return Table(levels, np.arange(255), np.nextafter(least, -np.inf), 255)


def power_of_two(numerator: int, denominator: int) -> float:
    """Return the float64 nearest to 2^(numerator / denominator).

    Parameters
    ----------
    numerator, denominator : int

    Returns
    -------
    float

    Examples
    --------
    >>> from heterocompute.formats.elements import power_of_two
    >>> power_of_two(-1, 2).hex()
    '0x1.6a09e667f3bcdp-1'
    """
    from decimal import Decimal, localcontext

    whole, rest = divmod(numerator, denominator)
    with localcontext() as context:
        context.prec = 60
        return math.ldexp(float(Decimal(2) ** (Decimal(rest) / denominator)), whole)


@dataclass(frozen=True)
class Levels(Element):
    """Any ascending numbers.

    Parameters
    ----------
    values : sequence of float
        2 to 256 ascending numbers, each rounded to float32 and saturated. The code of a number is its place.
    thresholds : sequence of float, optional
        One number between each two levels. A value above it gets the higher level, a value on it the lower. Default:
        the middle of both levels.

    Attributes
    ----------
    bits : int
        Bits of a code.

    Raises
    ------
    ValueError
        A number is NaN or infinite, the numbers do not ascend, or the thresholds are not between them.
    TypeError
        The values are not numbers.

    Examples
    --------
    >>> from heterocompute.formats import Levels
    >>> Levels([-1, 0, 0.5, 1]).bits, Levels.ternary().values
    (2, (-1.0, 0.0, 1.0))
    """

    values: tuple[float, ...]
    thresholds: tuple[float, ...] | None = None
    text: str | None = field(default=None, compare=False, repr=False)  # of levels that a text makes

    bits: int = field(init=False, repr=False, compare=False)
    kind: ClassVar[str] = "table"
    signed: bool = field(default=True, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = _numbers(self.values, "values")
        if not 2 <= len(given) <= MAX_LEVELS:
            raise WrongValue(f"Levels: values has {len(given)} numbers, expected 2 to {MAX_LEVELS}")
        values = tuple(float(np.float32(min(max(one, -LARGEST), LARGEST))) + 0.0 for one in given)
        _check_ascending(values, "values", "as float32 ")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "bits", max((len(values) - 1).bit_length(), 1))
        if self.thresholds is not None:
            self._check_thresholds(values)
        if self.text is None:
            KNOWN[str(self)] = self

    def _check_thresholds(self, values: tuple[float, ...]) -> None:
        between = _numbers(self.thresholds, "thresholds")
        if len(between) != len(values) - 1:
            raise WrongValue(
                f"Levels: thresholds has {len(between)} numbers, expected {len(values) - 1}, one between each two "
                "levels"
            )
        for i, one in enumerate(between):
            if not values[i] <= one <= values[i + 1]:
                raise WrongValue(
                    f"Levels: thresholds[{i}] is {one!r}, expected {values[i]!r} to {values[i + 1]!r}, its two levels"
                )
        object.__setattr__(self, "thresholds", between)

    @property
    def largest(self) -> float:
        return self.values[-1] if self.values[-1] > 0 else max(map(abs, self.values))

    def __str__(self) -> str:
        if self.text is not None:
            return self.text
        digest = zlib.crc32(struct.pack(f"<{len(self.values)}d", *self.values))
        digest = zlib.crc32(struct.pack(f"<{len(self.thresholds or ())}d", *(self.thresholds or ())), digest)
        return f"levels{len(self.values)}_{digest:08x}"

    def table(self, saturate: bool = True) -> Table:
        values = np.array(self.values)
        levels = np.append(values, np.full((1 << self.bits) - len(values), values[-1]))
        bounds = (values[:-1] + values[1:]) / 2 if self.thresholds is None else np.array(self.thresholds)
        return Table(levels, np.arange(len(values)), bounds)

    @staticmethod
    def ternary() -> Levels:
        """Return -1, 0 and 1, the element ``ternary``.

        Returns
        -------
        Levels
        """
        return Levels((-1.0, 0.0, 1.0), text="ternary")

    @staticmethod
    def binary() -> Levels:
        """Return -1 and 1, the element ``binary``: either zero becomes 1.

        Returns
        -------
        Levels
        """
        return Levels((-1.0, 1.0), (-LEAST,), text="binary")

    @staticmethod
    def posit(bits: int, es: int) -> Element:
        """Return the posits of `bits` bits with `es` bits of exponent.

        Parameters
        ----------
        bits : int
            2 to 8.
        es : int
            0 to 3.

        Returns
        -------
        Element
        """
        from .tapered import Posit

        return Posit(bits, es)

    @staticmethod
    def takum(bits: int) -> Element:
        """Return the linear takums of `bits` bits.

        Parameters
        ----------
        bits : int
            2 to 8.

        Returns
        -------
        Element
        """
        from .tapered import Takum

        return Takum(bits)

    @staticmethod
    def normal_float(bits: int) -> Levels:
        """Return quantiles of a normal distribution; with 4 bits those of `NF4`.

        Parameters
        ----------
        bits : int
            2 to 8.

        Returns
        -------
        Levels
        """
        from .quantiles import normal_float

        return normal_float(bits)

    @staticmethod
    def student_float(bits: int, nu: float = 5.0) -> Levels:
        """Return quantiles of Student's t-distribution.

        Parameters
        ----------
        bits : int
            2 to 8.
        nu : float
            Degrees of freedom, 0.5 to 1,000.

        Returns
        -------
        Levels
        """
        from .quantiles import student_float

        return student_float(bits, nu)

    @staticmethod
    def apot(bits: int, term_bits: int = 2) -> Levels:
        """Return sums of powers of two.

        Parameters
        ----------
        bits : int
            3 to 8, with the sign.
        term_bits : int
            Bits of each term.

        Returns
        -------
        Levels
        """
        from .quantiles import apot

        return apot(bits, term_bits)


def _numbers(given: Any, name: str) -> tuple[float, ...]:
    try:
        found = tuple(float(one) for one in given)
    except (TypeError, ValueError):
        raise WrongType(f"Levels: {name} is {shown(given)}, expected a sequence of numbers") from None
    for i, one in enumerate(found):
        if not math.isfinite(one):
            raise WrongValue(f"Levels: {name}[{i}] is {one!r}, expected a finite number")
    return found


def _check_ascending(values: Sequence[float], name: str, how: str) -> None:
    for i, (low, high) in enumerate(zip(values, values[1:], strict=False)):
        if not low < high:
            raise WrongValue(
                f"Levels: {name}[{i + 1}] is {high!r} and {name}[{i}] is {low!r}, expected numbers that {how}ascend"
            )
