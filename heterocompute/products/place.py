"""Where a call computes, on the CPU or on a device: its arguments are read, and its result is made, in one memory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.base import PackedArray
from ..arrays.dense import as_array
from ..arrays.device import DEFAULT_STREAM, DeviceArray, c_strides, tensor_view
from ..arrays.memory import HOST, DeviceMemory
from ..arrays.quantized import QuantizedArray
from ..base import runtime
from ..base.devices import NAME, TORCH, is_device_tensor
from ..base.errors import TO_CPU, Unsupported, WrongType, refusals
from .arguments import as_bias, as_operand, checked_out
from .device import (
    answer_of,
    check_bias,
    device_refusals,
    gathered,
    on_their_device,
    runs_on_device,
    settle,
    target_of,
)

_FLOAT32 = np.dtype(np.float32)


def device_product(x: Any, w: Any, bias: Any, core: Any, out: object, is_linear: bool) -> Any:
    """Return the product of the most common arguments on a device, None for all others: rows of floats and weights.

    `core` is the format of the activations, in the core's form. As `_core.direct` for ndarrays, which also checks
    shapes and axes here. All arguments are of one device and one stream.
    """
    is_ours = type(x) is DeviceArray
    if not is_ours and not is_device_tensor(x):
        return None
    stream, view = (x.stream, x.view) if is_ours else tensor_view(x, "linear: x")
    shape, number = view[2], view[4]
    try:
        part, of_w = next(iter(w._components.values())), w._shape
    except (AttributeError, StopIteration):
        return None
    if type(part) is not DeviceArray or part.stream != stream or len(of_w) != 2 or len(shape) < 2 or 0 in shape:
        return None
    to_shape = (*shape[:-1], of_w[0 if is_linear else 1])
    added = None
    if bias is not None:
        if type(bias) is not type(x) or not (is_ours or is_device_tensor(bias)):
            return None
        of_bias, added = (bias.stream, bias.view) if is_ours else tensor_view(bias, "linear: bias")
        if of_bias != stream:
            return None
    if is_ours:
        if out is not None and (type(out) is not DeviceArray or out.number != number or out.stream != stream):
            return None
        inputs = (x, w, bias)
        y: Any = (
            DeviceArray.empty(to_shape, _FLOAT32, number, stream)
            if out is None
            else target_of(out, out, to_shape, "linear" if is_linear else "matmul", number, stream, inputs)
        )
        to = y.view
    elif out is None:
        y = x.new_empty(to_shape, dtype=TORCH["float32"])
        to = y.data_ptr(), "float32", to_shape, c_strides(to_shape, 4), number
    else:
        return None
    done = _core.direct(runtime.run_on(number, stream), is_linear, view, w, added, core, to)
    return None if done is None else y


class Here:
    """Where a call computes, and how its arguments are read: on the CPU."""

    memory = HOST

    def operand(self, value: object, name: str) -> Any:
        return as_operand(value, name)

    def images(self, value: object, name: str) -> Any:
        return as_array(value, name)

    def bias(self, value: object, n: int, name: str) -> Any:
        return as_bias(value, n, name)

    def target(
        self, out: object, shape: tuple[int, ...], name: str, inputs: tuple[Any, ...], at_line: bool = False
    ) -> Any:
        """Return the array for a result: a new one, or `out` after its checks."""
        return checked_out(out, shape, name, inputs, at_line=at_line)

    def refusals(self, name: str, label: str, dense: object, fmt: object) -> AbstractContextManager[None]:
        """Return the context in which the core's errors name the caller's arguments."""
        return refusals(x=(label, dense))

    def answer(self, result: object, given: object, out: object) -> Any:
        """Return a result as the caller gave its first argument."""
        return result if out is None else out


HERE = Here()


class There(Here):
    """The same on a device. The first argument that is read decides the stream."""

    def __init__(self, caller: str, **values: object) -> None:
        self.caller = caller
        found, number = gathered(caller, **values)
        self.found, self.number = {id(values[word]): made for word, made in found.items()}, number or 0
        self.stream: int | None = None
        self.read: list[Any] = []

    @property
    def memory(self) -> DeviceMemory:  # type: ignore[override]
        return DeviceMemory(self.number, self.stream or DEFAULT_STREAM)

    def operand(self, value: object, name: str) -> Any:
        if isinstance(value, PackedArray) and not isinstance(value, QuantizedArray):
            raise Unsupported(f"{name} is {value._named()}, which has no {NAME} kernels: {TO_CPU}")
        made = on_their_device(value, self.found.get(id(value)), name, self.number, self.stream)
        self.stream = made.stream if self.stream is None else self.stream
        self.read.append(made)
        return made

    def images(self, value: object, name: str) -> Any:
        made = self.operand(value, name)
        if isinstance(made, QuantizedArray):
            raise WrongType(f"{name} is quantized, expected images of floats and activations=")
        return made

    def bias(self, value: object, n: int, name: str) -> Any:
        if value is None:
            return None
        added = self.operand(value, f"{name}: bias")
        check_bias(added, n, name)
        return added

    def target(
        self, out: object, shape: tuple[int, ...], name: str, inputs: tuple[Any, ...], at_line: bool = False
    ) -> Any:
        made = target_of(out, self.found.get(id(out)), shape, name, self.number, self.memory.stream, inputs)
        self.read.append(made)
        return made

    def refusals(self, name: str, label: str, dense: object, fmt: object) -> AbstractContextManager[None]:
        return device_refusals(name, fmt)

    def answer(self, result: Any, given: Any, out: Any) -> Any:
        settle(self.number, self.memory.stream, *self.read)
        return answer_of(result, given, out)


def place_of(caller: str, first: object, second: object, **values: object) -> Here:
    """Return where a call computes; an argument on a device, or `use`, decides. `values` has all arguments by name."""
    return There(caller, **values) if runs_on_device(first, second) else HERE
