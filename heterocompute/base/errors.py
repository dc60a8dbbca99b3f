"""Errors that name the argument and the reason, also those of the C core, and how messages show values.

The message of every error is `function: argument is X, expected Y`. `ArgumentError` reads the argument and the reason
from this form, so that each fact is stated once, in the message.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

Index = tuple[int, ...]
QUOTED = 80  # characters of a value in a message

# `linear: x has shape (5,), expected ...`: the subject is one name after those of functions, perhaps with an index
# (`rows[3]`), an attribute (`x.grad`), a value (`algorithm 'fft'`) or a part in brackets (`cells (rows)`). A clause
# after the name of a tensor or of a file is not of the argument that holds it. Compiled when they are first needed.
_SUBJECT = (
    r"(?s)(?:[A-Za-z_][\w.]*: )*(?:elements of )?"
    r"(?P<argument>[A-Za-z_]\w*)(?:\[[^]]*\]|\.\w+| \(\w+\)| -?\d+| '[^']*')* "
    r"(?P<clause>(?:is|are|has|have|holds?|shares?|needs?|gives?|lacks|returned|does not|applies|was|cannot|"
    r"named|refuses|multiplies|changed|must|leaves)\b.*)"
)
_PREFIX = r"(?s)[A-Za-z_][\w.]*: (?P<argument>[a-z_]\w*): (?P<clause>.*)"  # `use: isa: expected ...`
_FILE = r"(?:\w+: )?[^ :]*(?:[/\\][^:]*|\.(?:json|safetensors|gguf|onnx|np[yz]|toml|yaml)): "
_NO_NAMES = frozenset(
    "it this that there which what nothing one no both neither each some all tensor tensors path key row layer".split()
)
_REASONS = {
    "memory": r"shares? memory|read-only|overflows the size|out of memory|takes? more memory",
    "device": r"\bis on \w|\bon (?:a|the) [A-Z]{3,4}\b|\b[A-Z]{4} device",
    "axis": r"quantized along|out of range for an array|reduction ax",
    "dtype": r"\bdtype\b",
    "shape": r"\bshapes?\b|\bdimensions?\b|^has \d+ |along axis|wrong length",
    "missing": r"\bmissing\b|^needs? |^lacks |has no ",
    "unsupported": r"does not apply|^applies to|refuses|not supported|already",
}


class ArgumentError(Exception):
    """An error of an argument; base of those below, each of which is a built-in error too.

    Attributes
    ----------
    argument : str or None
        Name of the parameter, as in the signature of the function; None if the error is not of a single parameter,
        such as errors of a file's contents.
    reason : str
        `type`, `dtype`, `shape`, `axis`, `value`, `missing`, `device`, `memory`, `file` or `unsupported`.

    Examples
    --------
    >>> import heterocompute as hc
    >>> try:
    ...     hc.quantize([1.0, 2.0], "int8", axis=3)
    ... except hc.ArgumentError as error:
    ...     error.argument, error.reason, isinstance(error, ValueError)
    ('axis', 'axis', True)
    """

    _usual = "value"  # the reason unless the message states another one

    @property
    def argument(self) -> str | None:
        return self._read()[0]

    @property
    def reason(self) -> str:
        return self._read()[1]

    def _read(self) -> tuple[str | None, str]:
        """Return the argument and the reason that the message states."""
        message = str(self)
        read = (found for form in (_SUBJECT, _PREFIX) if (found := re.match(form, message)))
        named = next((found for found in read if found["argument"] not in _NO_NAMES), None)
        if named:
            argument, clause = named.groups()
        elif re.match(_FILE, message):
            return None, "file"
        else:
            argument, clause = None, message
        clause = re.sub("'[^']*'", "''", clause).partition(", expected ")[0]
        stated = (reason for reason, pattern in _REASONS.items() if re.search(pattern, clause))
        return argument, self._usual if self._usual == "unsupported" else next(stated, self._usual)


class WrongValue(ArgumentError, ValueError):
    """A value, shape or option that the function does not accept."""


class WrongType(ArgumentError, TypeError):
    """An argument of another type or dtype."""

    _usual = "type"


class WrongIndex(ArgumentError, IndexError):
    """An index beyond the end."""


class Unsupported(ArgumentError, NotImplementedError):
    """A valid argument for which there is no kernel, or none on this device."""

    _usual = "unsupported"


class TooLarge(ArgumentError, MemoryError):
    """A result that does not fit into the memory."""

    _usual = "memory"


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > 10_000:  # int.__repr__ refuses thousands of digits
            return f"an int of {x.bit_length()} bits"
        return super().repr_int(x, level)


_short = _Short()
_short.maxstring = _short.maxother = _short.maxlong = QUOTED
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = _short.maxfrozenset = QUOTED // 3


def printable(text: str) -> str:
    """Return a tensor's or file's name as one line that cannot steer a terminal."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def shown(value: object, limit: int = QUOTED) -> str:
    """Return a value for use in a sentence: one line of its repr, of at most `limit` characters.

    Of an array, its type and shape.

    Examples
    --------
    >>> shown("int9"), len(shown("x" * 50_000))
    ("'int9'", 80)
    """
    if isinstance(value, np.ndarray) and value.ndim:
        text = f"an array of {value.dtype} {value.shape}"
    else:
        text = _short.repr(value)
    if not text.isprintable():
        text = printable(" ".join(text.split()))
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


TO_CPU = "copy the arguments to the CPU (.to('cpu') of packed arrays, .get() or .cpu() of others)"


class Refused(ValueError):
    """An error of the core, hc_error of csrc/base/base.h. `refusals` converts it to a ValueError.

    Parameters
    ----------
    argument : str
        As the core calls it.
    index : tuple of int or None
        Of the value that is refused, in the array that the core looked at; None where all of the argument is.
    value : float
    text : str
        What is said of the argument.
    """

    def __init__(self, argument: str, index: Index | None, value: float, text: str) -> None:
        super().__init__(argument, index, value, text)
        self.argument, self.index, self.value, self.text = argument, index, value, text


@contextmanager
def refusals(**arguments: tuple[str, Any]) -> Iterator[None]:
    """Convert a refusal of the core to a ValueError that names the caller's argument and the index in it.

    Parameters
    ----------
    **arguments : (str, ndarray, callable or None)
        The core's name of an argument -> how the caller knows it, and the array that the caller gave, or what
        returns it.
    """
    try:
        yield
    except Refused as error:
        words, given = arguments[error.argument]
        if error.index is None:
            raise WrongValue(f"{words} {error.text}") from None
        array = given() if isinstance(given, Callable) else given  # type: ignore[arg-type]
        value = repr(error.value).removesuffix(".0")
        wanted = f", {error.text}" if error.text else ""
        raise WrongValue(f"{words} has {value} at index {_index(array, error.index, error.value)}{wanted}") from None


def unsupported(name: str, problem: NotImplementedError) -> Unsupported:
    """Return the error of a call without kernels for the device; it names the call and the copy to the CPU."""
    reason = str(problem).removesuffix(": use the CPU")
    return Unsupported(f"{name}: {reason}: {TO_CPU}")


def _index(array: np.ndarray[Any, Any], index: Index, value: float) -> Index:
    """Return the index of the first value that is equal; the core may have seen another view of the array."""
    if len(index) == array.ndim and all(i < n for i, n in zip(index, array.shape, strict=True)):
        found = float(array[index])
        if found == value or found != found and value != value:
            return index
    equal = np.isnan(array) if value != value else array == value
    return tuple(int(i) for i in np.unravel_index(equal.argmax(), array.shape))
