"""Layers of transformers on a device: arrays are contiguous float32, and results stay on the device."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import prod
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ... import _heterocompute as _core
from ...arrays.device import DeviceArray, as_device, c_strides, in_callers_library, is_on_device
from ...arrays.foreign import alike
from ...arrays.quantized import QuantizedArray
from ...base import runtime
from ...base.devices import A_DEVICE, KIND, has_device, wait
from ...base.errors import Unsupported, WrongType, unsupported

TOGETHER = (
    f"expected all on one device: copy the others there (.to('{KIND}') of a packed array or a tensor, cupy.asarray of "
    "an ndarray), or all to the CPU (.to('cpu'), .cpu(), .get())"
)
P = ParamSpec("P")
R = TypeVar("R")


def device_floats(x: object, name: str) -> DeviceArray | None:
    """Return an array on a device, None for other arrays."""
    if type(x) is np.ndarray or not is_on_device(x) or not has_device():
        return None
    made = as_device(x, name)
    if made.dtype != np.float32 or made.strides != c_strides(made.shape, 4):
        raise Unsupported(
            f"{name} is {made.dtype} with strides {made.strides}, expected contiguous float32 on {A_DEVICE}"
        )
    return made


def device_layer(name: str, kind: int, x: Any, weight: Any, bias: Any, more: tuple[Any, ...]) -> DeviceArray:
    """Compute a layer; `more` is epsilon, half, repeat, turns and pairs."""
    given = [one for one in (x, weight, bias) if one is not None]
    for one in given:
        if not isinstance(one, DeviceArray) or one.number != x.number:
            place = one.device if isinstance(one, DeviceArray) else "the CPU"
            raise WrongType(f"{name}: x is on {x.device} and another argument on {place}, {TOGETHER}")
    for one in given:
        if one.stream != x.stream:
            wait(one.number, one.stream)
    y = DeviceArray.empty(x.shape, np.float32, x.number, x.stream)
    if y.size:
        n = x.shape[-1]
        views = [None if one is None else one.view for one in (x, weight, bias, y)]
        sizes: Any = (kind, x.size // n, n, *views, *more)
        try:
            _core.layer(runtime.run_on(x.number, x.stream), *sizes)
        except NotImplementedError as problem:
            raise unsupported(name, problem) from None
    if any(one.stream != x.stream for one in given):
        wait(x.number, x.stream)
    return y


def is_device_input(x: object) -> bool:
    """Tell whether an argument after reading, packed or not, is on a device."""
    return isinstance(x, DeviceArray) or (isinstance(x, QuantizedArray) and x._is_far)


def device_heads(x: object, name: str) -> DeviceArray | None:
    """Return heads on a device as (batch, heads, tokens, width), None for other arrays."""
    if not is_on_device(x) or not has_device():
        return None
    made = as_device(x, name)
    if made.dtype != np.float32 or (made.shape and made.shape[-1] > 1 and made.strides[-1] != 4):
        raise Unsupported(
            f"{name} is {made.dtype} with strides {made.strides}, expected float32 with a contiguous last axis on "
            f"{A_DEVICE}"
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
            f"{name} has shape {x.shape} and strides {x.strides}, expected contiguous values or four dimensions on "
            f"{A_DEVICE}"
        )
    return x.reshaped((prod(x.shape[:-3]), *x.shape[-3:]))


def device_attention(q: Any, kept: tuple[Any, Any], cores: tuple[Any, Any], *options: Any) -> DeviceArray:
    """Compute attention.

    `q` has four dimensions. `kept` are the keys and values, `cores` their arguments for the C core. `options` are the
    last arguments of the core's attention.
    """
    given = {"q": q, "k": kept[0], "v": kept[1]}
    device = next(one.device for one in given.values() if is_device_input(one))
    for name, one in given.items():
        if not is_device_input(one) or one.device != device:
            place = one.device if is_device_input(one) else "the CPU"
            raise WrongType(f"attention: {name} is on {place} and another argument on {device}, {TOGETHER}")
    number: int = q.number
    others = [one for one in kept if one.stream != q.stream]
    for one in others:
        wait(number, one.stream)
    out = DeviceArray.empty(q.shape, np.float32, number, q.stream)
    if out.size:
        try:
            _core.attention(runtime.run_on(number, q.stream), q.view, *cores, out.view, *options)
        except NotImplementedError as problem:
            raise unsupported("attention", problem) from None
    if others:
        wait(number, q.stream)  # before their memory may be freed
    return out


def in_library_of_first(function: Callable[P, R]) -> Callable[P, R]:
    """Return a result as an array of the first argument's library, on its device."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        answer: Any = function(*args, **kwargs)
        given = args[0] if args else next(iter(kwargs.values()))
        if type(given) is np.ndarray and type(answer) is np.ndarray:
            return answer  # type: ignore[return-value]
        shared: Any
        if isinstance(answer, DeviceArray):
            shared = in_callers_library(answer, given)
        elif isinstance(answer, tuple):
            shared = tuple(alike(one, given) for one in answer)
        else:
            shared = alike(answer, given)
        return shared  # type: ignore[no-any-return]

    return call
