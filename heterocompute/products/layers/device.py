"""Layers of transformers on a CUDA device: arrays are contiguous float32, and results stay on the device."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import prod
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ... import _heterocompute as _core
from ...arrays.device import DeviceArray, as_device, c_strides, in_callers_library, is_on_device
from ...arrays.device_quantized import DeviceQuantizedArray
from ...base.cuda import has_device
from ...base.errors import Unsupported, WrongType, unsupported

__all__ = ["attention_there", "floats_there", "heads_there", "in_library_of_first", "is_there", "layer_there"]

TOGETHER = (
    "expected all on one device: copy the others there (.to('cuda') of a packed array or a tensor, cupy.asarray of an "
    "ndarray), or all to the CPU (.to('cpu'), .cpu(), .get())"
)
P = ParamSpec("P")
R = TypeVar("R")


def floats_there(x: Any, name: str) -> DeviceArray | None:
    """Return an array on a device, None for other arrays."""
    if type(x) is np.ndarray or not is_on_device(x) or not has_device():
        return None
    made = as_device(x, name)
    if made.dtype != np.float32 or made.strides != c_strides(made.shape, 4):
        raise Unsupported(
            f"{name} is {made.dtype} with strides {made.strides}, expected contiguous float32 on a CUDA device"
        )
    return made


def layer_there(name: str, kind: int, x: Any, weight: Any, bias: Any, more: tuple[Any, ...]) -> DeviceArray:
    """Compute a layer; `more` is epsilon, half, repeat, turns and pairs."""
    given = [one for one in (x, weight, bias) if one is not None]
    for one in given:
        if not isinstance(one, DeviceArray) or one.number != x.number:
            place = one.device if isinstance(one, DeviceArray) else "the CPU"
            raise WrongType(f"{name}: x is on {x.device} and another argument on {place}, {TOGETHER}")
    for one in given:
        if one.stream != x.stream:
            _core.cuda_wait(one.number, one.stream)
    y = DeviceArray.empty(x.shape, np.float32, x.number, x.stream)
    if y.size:
        n = x.shape[-1]
        addresses = [0 if one is None else one.address for one in (x, weight, bias, y)]
        sizes: Any = (kind, x.size // n, n, *addresses, *more)
        try:
            _core.cuda_layer(x.number, x.stream, None, *sizes)
        except NotImplementedError as problem:
            raise unsupported(name, problem) from None
    if any(one.stream != x.stream for one in given):
        _core.cuda_wait(x.number, x.stream)
    return y


def is_there(x: Any) -> bool:
    """Tell whether an argument after reading, packed or not, is on a device."""
    return isinstance(x, (DeviceArray, DeviceQuantizedArray))


def heads_there(x: Any, name: str) -> DeviceArray | None:
    """Return heads on a device as (batch, heads, tokens, width), None for other arrays."""
    if not is_on_device(x) or not has_device():
        return None
    made = as_device(x, name)
    if made.dtype != np.float32 or (made.shape and made.shape[-1] > 1 and made.strides[-1] != 4):
        raise Unsupported(
            f"{name} is {made.dtype} with strides {made.strides}, expected float32 with a contiguous last axis on a "
            "CUDA device"
        )
    return made


def in_batches(x: DeviceArray, name: str) -> DeviceArray:
    """Return heads with one leading dimension; the memory is shared."""
    if x.ndim == 4:
        return x
    if x.ndim == 3:
        return DeviceArray(x, x.address, (1, *x.shape), x.dtype, (0, *x.strides), x.number, x.stream)
    if x.strides != c_strides(x.shape, 4):
        raise Unsupported(
            f"{name} has shape {x.shape} and strides {x.strides}, expected contiguous values or four dimensions on a "
            "CUDA device"
        )
    return x.reshaped((prod(x.shape[:-3]), *x.shape[-3:]))


def attention_there(q: Any, kept: tuple[Any, Any], cores: tuple[Any, Any], *options: Any) -> DeviceArray:
    """Compute attention.

    `q` has four dimensions. `kept` are the keys and values, `cores` their arguments for the C core. `options` are the
    last arguments of ``cuda_attention``.
    """
    given = {"q": q, "k": kept[0], "v": kept[1]}
    number = next(one.number for one in given.values() if is_there(one))
    for name, one in given.items():
        if not is_there(one) or one.number != number:
            place = one.device if is_there(one) else "the CPU"
            raise WrongType(f"attention: {name} is on {place} and another argument on cuda:{number}, {TOGETHER}")
    others = [one for one in kept if one.stream != q.stream]
    for one in others:
        _core.cuda_wait(one.number, one.stream)
    out = DeviceArray.empty(q.shape, np.float32, number, q.stream)
    if out.size:
        try:
            _core.cuda_attention(number, q.stream, None, q.view, *cores, out.view, *options)
        except NotImplementedError as problem:
            raise unsupported("attention", problem) from None
    if others:
        _core.cuda_wait(number, q.stream)  # before their memory may be freed
    return out


def in_library_of_first(function: Callable[P, R]) -> Callable[P, R]:
    """Return a result on a device as an array of the first argument's library."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        answer = function(*args, **kwargs)
        if isinstance(answer, DeviceArray):
            shared: R = in_callers_library(answer, args[0] if args else next(iter(kwargs.values())))
            return shared
        return answer

    return call
