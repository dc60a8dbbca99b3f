"""Layers of transformers on a CUDA device: their arrays are contiguous float32, and their answers stay there."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ... import _heterocompute as _core
from ...arrays.device import DeviceArray, as_device, c_strides, in_callers_library, is_on_device
from ...base.cuda import has_device

__all__ = ["floats_there", "in_library_of_first", "layer_there"]

P = ParamSpec("P")
R = TypeVar("R")


def floats_there(x: Any, name: str) -> DeviceArray | None:
    """Return an array on a device, None for an array elsewhere."""
    if type(x) is np.ndarray or not is_on_device(x) or not has_device():
        return None
    made = as_device(x, name)
    if made.dtype != np.float32 or made.strides != c_strides(made.shape, 4):
        raise NotImplementedError(
            f"{name} is {made.dtype} with strides {made.strides}, expected contiguous float32 on a CUDA device"
        )
    return made


def layer_there(name: str, kind: int, x: Any, weight: Any, bias: Any, more: tuple[Any, ...]) -> DeviceArray:
    """Compute a layer; `more` is epsilon, half, repeat, turns and pairs."""
    given = [one for one in (x, weight, bias) if one is not None]
    if not all(isinstance(one, DeviceArray) and one.number == x.number for one in given):
        raise TypeError(f"{name}: an argument is not on {x.device}, expected all on one device")
    for one in given:
        if one.stream != x.stream:
            _core.cuda_wait(one.number, one.stream)
    y = DeviceArray.empty(x.shape, np.float32, x.number, x.stream)
    if y.size:
        n = x.shape[-1]
        addresses = [0 if one is None else one.address for one in (x, weight, bias, y)]
        sizes: Any = (kind, x.size // n, n, *addresses, *more)
        _core.cuda_layer(x.number, x.stream, None, *sizes)
    if any(one.stream != x.stream for one in given):
        _core.cuda_wait(x.number, x.stream)
    return y


def in_library_of_first(function: Callable[P, R]) -> Callable[P, R]:
    """Return an answer on a device as an array of the library of the first argument."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        answer = function(*args, **kwargs)
        if isinstance(answer, DeviceArray):
            shared: R = in_callers_library(answer, args[0] if args else next(iter(kwargs.values())))
            return shared
        return answer

    return call
