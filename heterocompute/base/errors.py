"""Error messages for refusals of the C core, with the names of the caller's arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["TO_CPU", "Refused", "refusals", "unsupported"]

Index = tuple[int, ...]
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
            raise ValueError(f"{words} {error.text}") from None
        array = given() if isinstance(given, Callable) else given  # type: ignore[arg-type]
        value = repr(error.value).removesuffix(".0")
        wanted = f", {error.text}" if error.text else ""
        raise ValueError(f"{words} has {value} at index {_index(array, error.index, error.value)}{wanted}") from None


def unsupported(name: str, problem: NotImplementedError) -> NotImplementedError:
    """Return the error of a call without kernels for the device; it names the call and the copy to the CPU."""
    reason = str(problem).removesuffix(": use the CPU")
    return NotImplementedError(f"{name}: {reason}: {TO_CPU}")


def _index(array: np.ndarray[Any, Any], index: Index, value: float) -> Index:
    """Return the index of the first value that is equal; the core may have seen another view of the array."""
    if len(index) == array.ndim and all(i < n for i, n in zip(index, array.shape, strict=True)):
        found = float(array[index])
        if found == value or found != found and value != value:
            return index
    equal = np.isnan(array) if value != value else array == value
    return tuple(int(i) for i in np.unravel_index(equal.argmax(), array.shape))
