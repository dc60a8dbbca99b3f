"""NumPy's arithmetic in the float environment of the C core, whatever a library has set in the calling thread.

A library that is linked with ``-ffast-math``, or ``torch.set_flush_denormal``, makes the processor take subnormal
numbers for zeros, in NumPy too. The C core saves, clears and restores those bits around each call; functions that
compute with NumPy are marked with `counts_subnormals`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .. import _heterocompute as _core

__all__ = ["add_to", "converted", "counts_subnormals"]

P = ParamSpec("P")
R = TypeVar("R")


def counts_subnormals(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function run with round to nearest and subnormals in full; the thread's own setting comes back after it.

    Parameters
    ----------
    function : callable
        No generator, whose caller would run so between its steps, and none that calls functions of the user.

    Returns
    -------
    callable

    Examples
    --------
    >>> import numpy as np
    >>> from heterocompute.base.float_env import counts_subnormals
    >>> half = counts_subnormals(lambda x: x / 2)
    >>> bool(half(np.finfo(np.float32).tiny) > 0)
    True
    """
    assert not isgeneratorfunction(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        answer: R = _core.in_float_env(function, args, kwargs)
        return answer

    return call


@counts_subnormals
def converted(array: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    """Return an array in another dtype, itself where it has it.

    Parameters
    ----------
    array : ndarray
    dtype : dtype

    Returns
    -------
    ndarray
    """
    return array.astype(dtype, copy=False)


@counts_subnormals
def add_to(out: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> None:
    """Add values to an array in place.

    Parameters
    ----------
    out, values : ndarray
    """
    out += values
