"""The methods that round a tensor: plainly, with a search of its scales, or under the inputs of its layer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.quantized import QuantizedArray
from ..formats import Format, is_function
from ..products.grid_of import check_grid
from ..products.quantize import fake_quantize, quantize
from .gptq import gptq
from .qronos import qronos

Array = np.ndarray[Any, Any]

METHODS = ("rtn", "search", "gptq", "qronos")
CALIBRATED: dict[str, Callable[..., QuantizedArray]] = {"gptq": gptq, "qronos": qronos}  # under a Hessian


def by_method(w: Any, fmt: Format, axis: int | tuple[int, ...], method: str, h: Any = None) -> QuantizedArray:
    """Round a tensor.

    Parameters
    ----------
    w : array_like
    axis : int or tuple of int
        The reduction axes.
    method : {"rtn", "search", "gptq", "qronos"}
        The nearest codes under scales of the largest magnitude, those under the best scales, `gptq`, or `qronos`.
    h : Hessian or array_like, optional
        Needed by ``"gptq"`` and ``"qronos"``.

    Raises
    ------
    ValueError
        The format has no scales to search, or no levels for `gptq`.
    """
    if method in CALIBRATED:
        return CALIBRATED[method](w, h, fmt, axis=axis)
    return quantize(w, fmt, axis, clip="search" if method == "search" else None)


def codes_or_values(
    w: Any, fmt: Format, axis: int | tuple[int, ...], method: str, h: Any = None
) -> QuantizedArray | Array:
    """Round a tensor as `by_method`; of a function of values, which has no codes, return float32 values."""
    return fake_quantize(w, fmt, axis) if is_function(fmt) else by_method(w, fmt, axis, method, h)


@functools.cache
def takes(method: str, fmt: Format) -> bool:
    """Tell whether a method can round to a format, which needs scales to search, or levels for `gptq`."""
    try:
        if method != "rtn":
            check_grid(fmt, searched=method == "search")
    except ValueError:
        return False
    return True
