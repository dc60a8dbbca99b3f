"""NumPy's arithmetic in the float environment of the C core, whatever a library has set in this thread.

A library that is linked with ``-ffast-math``, or ``torch.set_flush_denormal``, makes the processor treat subnormal
numbers as zeros, in NumPy too; ``fesetround`` makes it round up or down. The C core saves, clears and restores those
bits around each call. Public functions that compute with NumPy or with Python's floats are marked with
`counts_subnormals`; they call functions of the user by `call_back`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .. import _heterocompute as _core

P = ParamSpec("P")
R = TypeVar("R")


def counts_subnormals(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function with round to nearest and with subnormals; afterwards the thread's own setting is restored.

    Parameters
    ----------
    function : callable
        Not a generator, whose caller would run so between its steps. It calls functions of the user by `call_back`.

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


def call_back(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function of the user in the user's own float environment.

    Parameters
    ----------
    *args, **kwargs
        Its arguments.

    Returns
    -------
    object
        Its answer.
    """
    answer: R = _core.in_callers_float_env(function, args, kwargs)
    return answer


def converted(array: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    """Return an array in another dtype; the array itself if it has it.

    Parameters
    ----------
    dtype : dtype
    """
    return array if array.dtype == dtype else _converted(array, dtype)


@counts_subnormals
def _converted(array: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    return array.astype(dtype)
