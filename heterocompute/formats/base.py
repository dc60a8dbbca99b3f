"""The base class of the number formats, and the registry of families."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base.errors import WrongType, WrongValue, shown
from ..base.texts import near_words
from .form import StoredForm, form_of

# The C core stores a group's length in a signed 32-bit integer.
MAX_GROUP = 2**31 - 1


@dataclass(frozen=True)
class StoredRules:
    """The values that a format's components may hold; matmuls rely on it, and files are checked for it.

    Attributes
    ----------
    unused_code : int or None
        A code, as an unsigned number, that encoding never writes.
    padding : int or None
        The code in the padding of a short group; with zero points, those are it. None: any code.
    largest_scale : int
        Largest scale, if scales are whole bytes.
    negative : bool
        Whether scales and minima may be negative.
    """

    unused_code: int | None = None
    padding: int | None = 0
    largest_scale: int = 255
    negative: bool = False


class Parameters:
    """Checks of the fields of a frozen dataclass."""

    called: ClassVar[str] = ""  # what messages name; else the class

    # Each setter stores the plain value, so that Int(np.int64(4)) and Int(4) print and pickle alike.
    def _set_integer(self, field: str, *wanted: range, optional: bool = False) -> None:
        value = getattr(self, field)
        if value is None and optional:
            return
        name = f"{self.called or type(self).__name__}: {field}"
        words = or_words([*(_range_words(part) for part in wanted), *(["None"] if optional else [])])
        try:
            if isinstance(value, bool):
                raise TypeError
            number = operator.index(value)
        except TypeError:
            kind = type(value).__name__
            raise WrongType(f"{name} is {shown(value)} of type {kind}, expected an integer: {words}") from None
        if not any(number in part for part in wanted):
            raise WrongValue(f"{name} is {shown(number)}, expected {words}")
        object.__setattr__(self, field, number)

    def _check_flag(self, field: str) -> None:
        value = getattr(self, field)
        if not isinstance(value, bool):
            name, kind = f"{self.called or type(self).__name__}: {field}", type(value).__name__
            raise WrongType(f"{name} is {shown(value)} of type {kind}, expected True or False")

    def _check_word(self, field: str, *wanted: str, optional: bool = False) -> None:
        value = getattr(self, field)
        if value is None and optional:
            return
        name = f"{self.called or type(self).__name__}: {field}"
        words = or_words([*map(repr, wanted), *(["None"] if optional else [])])
        if not isinstance(value, str):
            raise WrongType(f"{name} is {shown(value)} of type {type(value).__name__}, expected {words}")
        if value not in wanted:
            text = value if len(value) <= 64 else value[:64] + "..."
            plain = value[:64].lower()
            longer = [word for word in wanted if plain and word.startswith(plain)]
            near = longer or near_words(plain, wanted) if len(wanted) > 2 else []
            also = f"; the nearest is {or_words(map(repr, near))}" if near else ""
            raise WrongValue(f"{name} is {shown(text)}, expected {words}{also}")


class Format(ABC, Parameters):
    """Base class of all number formats: a family, a format string, and the parameters of the C core.

    A subclass is a frozen dataclass whose fields are the parameters of the format. It sets the class attributes below
    and implements the two abstract methods. ``__str__`` and ``_parse`` must be inverse.

    Attributes
    ----------
    family : str
        Name of the family, the key of `formats`.
    description : str
        One line of description.
    examples : tuple of str
        Format strings that cover the family's parameters. The tests iterate over them.
    bits : int
        Bits of a code.
    group : int or None
        Values that share a scale. None: one scale per row, or no scale.
    element_dtype : str or None
        The type of NumPy or ml_dtypes that holds one element without its scale, such as ``"float8_e4m3fn"``.
    """

    family: ClassVar[str]
    description: ClassVar[str]
    examples: ClassVar[tuple[str, ...]]
    bits: int
    group: int | None

    reads_sentences: ClassVar[bool] = False  # texts that another family reads are that family's
    rotates: ClassVar[bool] = False

    _registered: ClassVar[dict[str, type[Format]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        family = cls.__dict__.get("family")
        if family is None:
            return
        if family in Format._registered:
            other = Format._registered[family].__name__
            raise WrongType(f"{cls.__name__}: the family {shown(family)} is taken by {other}")
        Format._registered[family] = cls

    @classmethod
    def families(cls) -> tuple[type[Format], ...]:
        """Return the classes of all registered families, in the order of definition; that of sentences last."""
        return tuple(sorted(Format._registered.values(), key=lambda cls: cls.reads_sentences))

    @abstractmethod
    def __str__(self) -> str: ...

    @classmethod
    @abstractmethod
    def _parse(cls, text: str) -> Format | None:
        """Return the format of a text, or None if its family is another; ValueError if it is invalid."""

    @property
    def label(self) -> str:
        """Return the format as tables show it: its format string, marked if it has no codes."""
        return str(self)

    @property
    def element_dtype(self) -> str | None:
        return None

    @property
    def unit(self) -> int:
        """Return the number of values per code or block; runs are padded to a multiple of it."""
        return 1

    @property
    def splits_into_rows(self) -> bool:
        """Return True if single rows can be decoded; otherwise scales of several rows are stored together."""
        return True

    @property
    def shared_rows(self) -> int:
        """Return the number of consecutive rows that share scales."""
        return 1

    @property
    def form(self) -> StoredForm:
        """Return the kinds of codes and scales in the C core; a pattern has the kinds of its base format."""
        return form_of((self.core_family, *self.core_params()))

    @property
    def core_family(self) -> str:
        """Return the family of the C core whose code and parameters `core_params` has."""
        return self.family

    @property
    def learns_codebook(self) -> bool:
        """Return whether each array has its own codebook and no pattern."""
        return self.form.codes == "learned"

    def values(self) -> NDArray[np.float64]:
        """Return the values that codes represent before scales.

        Returns
        -------
        ndarray of float64
            In ascending order, without infinities and NaN. A stored value is one of them times the scales of its
            group and row, after zero points and minima.

        Raises
        ------
        ValueError
            Each array learns its values, or codes have more than 16 bits.

        Examples
        --------
        >>> from heterocompute import format
        >>> format("mxfp4").values()
        array([-6. , -4. , -3. , -2. , -1.5, -1. , -0.5,  0. ,  0.5,  1. ,  1.5,
                2. ,  3. ,  4. ,  6. ])
        >>> format("int4-g32").values()
        array([-7., -6., -5., -4., -3., -2., -1.,  0.,  1.,  2.,  3.,  4.,  5.,
                6.,  7.])
        """
        self._limits("values")
        if (found := self.form.values()) is None:
            raise WrongValue(f"values: {self} has codes of {self.bits} bits, expected at most 16")
        return found

    @property
    def largest(self) -> float:
        """Return the largest finite of `values`, also for longer codes.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            Each array learns its values.

        Examples
        --------
        >>> from heterocompute import format
        >>> format("fp8_e4m3fn").largest, format("fp16").largest, format("int8").largest
        (448.0, 65504.0, 127.0)
        """
        return self._limits("largest")[1]

    @property
    def smallest(self) -> float:
        """Return the smallest positive of `values`, also for longer codes.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            Each array learns its values, or none is positive.

        Examples
        --------
        >>> from heterocompute import format
        >>> format("fp8_e4m3fn").smallest, format("fp16").smallest == 2**-24
        (0.001953125, True)
        """
        if not (found := self._limits("smallest")[0]):
            raise WrongValue(f"smallest: no value of {self} is positive")
        return found

    def _limits(self, function: str) -> tuple[float, float]:
        if (found := self.form.limits) is None and self.form.codes != "learned":
            raise WrongValue(f"{function}: the values of {self} are not listed, expected an element of at most 8 bits")
        if found is None:
            raise WrongValue(f"{function}: arrays in {self} have values of their own, which their codebooks hold")
        return found

    def stored_rules(self) -> StoredRules:
        """Return the rules for values that the components of this format never hold.

        Returns
        -------
        StoredRules
        """
        return StoredRules()

    def stored_length(self, length: int) -> int:
        """Return the number of stored values of a run, which is smaller for formats with a pattern.

        Parameters
        ----------
        length : int

        Returns
        -------
        int
        """
        return length

    @abstractmethod
    def core_params(self) -> tuple[int, ...]:
        """Return the parameters for the C core: integers, 0 for None."""


def parse_family(text: str) -> Format | None:
    """Return the format of a text without a pattern, or None; ValueError of the first family that refuses it."""
    problem: ValueError | None = None
    for cls in Format.families():
        try:
            found = cls._parse(text)
        except ValueError as error:  # another family may have these parameters
            problem = problem or error
            continue
        if found is not None:
            return found
    if problem is not None:
        raise problem
    return None


def optional(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


def _range_words(numbers: range) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def or_words(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
