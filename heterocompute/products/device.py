"""Calls whose arrays are in the memory of a CUDA device: checks, and the calls of the core. Answers stay on the device.

Under ``hc.use(backend="cuda")`` arrays of the CPU are copied to the device first, and their answers back.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.base import PackedArray
from ..arrays.components import core_format
from ..arrays.dense import as_array, check_dimensions, normalize_axes
from ..arrays.device import DEFAULT_STREAM, DeviceArray, as_device, c_strides, in_callers_library, is_on_device
from ..arrays.device_quantized import DeviceQuantizedArray, view_of
from ..arrays.quantized import QuantizedArray
from ..base import runtime
from ..base.cuda import has_device
from ..base.errors import refusals
from ..base.texts import counted
from ..base.values import shown
from ..formats import Format
from .arguments import as_format

__all__ = ["copied_bytes", "goes_to_device"]

FEW = 8  # rows that have an order of their own, HC_GEMV_MOST of the core


def goes_to_device(*values: Any) -> bool:
    """Tell whether a call is one of a CUDA device: an argument is there, or `use` says so.

    Without a device that this build can use, arrays of other libraries are refused as those of any other device.
    """
    if runtime.backend_device() is not None:
        return True
    return any(isinstance(value, DeviceQuantizedArray) or is_on_device(value) for value in values) and has_device()


def _operand(value: Any, name: str, number: int | None, stream: int | None) -> Any:
    """Return an argument on a device; arrays of the CPU are copied there if `use` says so."""
    if isinstance(value, DeviceQuantizedArray):
        if stream is not None and value.stream != stream:
            _core.cuda_wait(value.number, value.stream)
        return value
    if is_on_device(value):
        made = as_device(value, name, stream)
        check_dimensions(made, name)  # type: ignore[arg-type]
        return made
    if runtime.backend_device() is None:
        raise TypeError(
            f"{name} is in the memory of the CPU and another argument is on a CUDA device, expected all on one: "
            "copy it there (.to('cuda') of a quantized array or a tensor, cupy.asarray of an ndarray)"
        )
    if isinstance(value, QuantizedArray):
        return value.to(f"cuda:{number}")
    if isinstance(value, PackedArray):
        raise NotImplementedError(f"{name} is {value._named()}, which has no CUDA kernels: use it on the CPU")
    return DeviceArray.from_numpy(as_array(value, name), number or 0, DEFAULT_STREAM if stream is None else stream)


def _settle(number: int, stream: int, *operands: Any) -> None:
    """Wait for a call if an operand belongs to another stream, on which its memory may be freed."""
    if any(value is not None and value.stream != stream for value in operands):
        _core.cuda_wait(number, stream)


def _place(values: dict[str, Any]) -> int | None:
    """Return the device that the arguments are on, else that of `use`; ValueError if they are on several."""
    found: dict[int, str] = {}
    for name, value in values.items():
        if isinstance(value, DeviceQuantizedArray):
            found.setdefault(value.number, name)
        elif value is not None and is_on_device(value):
            found.setdefault(as_device(value, name).number, name)
    if len(found) > 1:
        listed = " and ".join(f"{name.split(': ')[-1]} on cuda:{number}" for number, name in found.items())
        raise ValueError(f"{name_of(values)}: {listed}, expected all on one device")
    return next(iter(found), runtime.backend_device())


def name_of(values: dict[str, Any]) -> str:
    return next(iter(values)).partition(":")[0]


def _refuse_options(name: str, fmt: Format, clip: Any, importance: Any = None) -> None:
    for option, value in (("clip", clip), ("importance", importance)):
        if value is not None:
            given = shown(value) if option == "clip" else "given"
            raise NotImplementedError(
                f"{name}: {option} is {given}, expected None: there is no CUDA kernel for it with {fmt}; use the CPU"
            )


def _refuse_row(row: int, name: str, shape: tuple[int, ...], axes: tuple[int, ...], fmt: Format) -> None:
    if row < 0:
        return
    others = [a for a in range(len(shape)) if a not in axes]
    at = dict(zip(others, np.unravel_index(row, [shape[a] for a in others]) if others else (), strict=True))
    index = ", ".join(str(int(at[a])) if a in at else ":" for a in range(len(shape)))
    raise ValueError(f"{name} has a value that {fmt} cannot hold (NaN or infinity) at index ({index})")


def quantize_on_device(w: Any, fmt: Format | str, axis: Any, clip: Any, importance: Any) -> Any:
    """Quantize an array on a device, as `quantize`."""
    fmt, name = as_format(fmt, "quantize: fmt"), "quantize: w"
    if isinstance(w, PackedArray):
        raise TypeError(f"{name} is {w._named()}, wanted an array of floats")
    _refuse_options("quantize", fmt, clip, importance)
    number = _place({name: w})
    x = _operand(w, name, number, None)
    axes = normalize_axes(axis, x.ndim, "quantize")
    with refusals(format=(f"quantize: {fmt}", None)):
        q = DeviceQuantizedArray.empty(fmt, x.shape, axes, x.dtype.name, QuantizedArray._trusted, x.number, x.stream)
        row = _core.cuda_quantize(x.number, x.stream, view_of(x), q._packed())
    _refuse_row(row, name, x.shape, axes, fmt)
    return q if is_on_device(w) else q.to("cpu")


def fake_quantize_on_device(w: Any, fmt: Format | str, axis: Any, clip: Any, out: Any) -> Any:
    """Round an array on a device, as `fake_quantize`."""
    fmt, name = as_format(fmt, "fake_quantize: fmt"), "fake_quantize: w"
    if isinstance(w, PackedArray):
        raise TypeError(f"{name} is {w._named()}, wanted an array of floats")
    _refuse_options("fake_quantize", fmt, clip)
    number = _place({name: w, "fake_quantize: out": out})
    x = _operand(w, name, number, None)
    axes = normalize_axes(axis, x.ndim, "fake_quantize")
    inputs = () if _is_in_place(x, out) else (x,)
    target = _target(out, x.shape, "fake_quantize", x.number, x.stream, inputs)
    with refusals(format=(f"fake_quantize: {fmt}", None)):
        row = _core.cuda_fake_quantize(x.number, x.stream, view_of(x), core_format(fmt), axes, view_of(target))
    _settle(x.number, x.stream, target)
    _refuse_row(row, name, x.shape, axes, fmt)
    return _answer(target, w, out)


def matmul_on_device(a: Any, b: Any, activations: Any, out: Any) -> Any:
    """Multiply arrays on a device, as `matmul`: b is quantized."""
    if not isinstance(b, (QuantizedArray, DeviceQuantizedArray)):
        raise NotImplementedError(
            "matmul: b is not quantized, expected a quantized b: CUDA kernels multiply no dense one; use CuPy or torch"
        )
    if b.ndim != 2 or b.axis != (0,):
        raise NotImplementedError(
            f"matmul: b has shape {b.shape} and axis {b.axis}, expected two dimensions and axis (0,) on a CUDA device, "
            "as in x @ w.T"
        )
    return _product(a, b.T, None, activations, out, "matmul", ("a", "b"))


def linear_on_device(x: Any, w: Any, bias: Any, activations: Any, out: Any) -> Any:
    """Apply a linear layer on a device, as `linear`: w is quantized."""
    if not isinstance(w, (QuantizedArray, DeviceQuantizedArray)):
        raise NotImplementedError(
            "linear: w is not quantized, expected a quantized w: CUDA kernels multiply no dense one; use CuPy or torch"
        )
    if w.ndim != 2 or w.axis != (1,):
        raise ValueError(f"linear: w has shape {w.shape} and axis {w.axis}, expected two dimensions and axis (1,)")
    return _product(x, w, bias, activations, out, "linear", ("x", "w"))


def _product(x: Any, w: Any, bias: Any, activations: Any, out: Any, name: str, words: tuple[str, str]) -> Any:
    """Return x @ w.T + bias."""
    x_name, w_name = (f"{name}: {word}" for word in words)
    fmt = None if activations is None else as_format(activations, f"{name}: activations")
    number = _place({x_name: x, w_name: w, f"{name}: bias": bias, f"{name}: out": out})
    left = _operand(x, x_name, number, None)
    weights = _operand(w, w_name, number, left.stream)
    is_packed = isinstance(left, DeviceQuantizedArray)
    if fmt is not None and is_packed:
        raise ValueError(f"{name}: activations is for a dense {words[0]}, this one is quantized")
    if left.ndim == 0:
        raise ValueError(f"{x_name} has no dimensions")
    if is_packed and left.axis != (left.ndim - 1,):
        raise ValueError(f"{x_name} is quantized along axis {left.axis}, its reduction axis is {left.ndim - 1}")
    if is_packed and left.ndim == 1:
        raise NotImplementedError(f"{x_name} is a quantized vector, expected two dimensions or more on a CUDA device")
    (n, k), stream = weights.shape, left.stream
    if left.shape[-1] != k:
        raise ValueError(f"{x_name} has {counted(left.shape[-1], 'feature')} but {words[1]} has {counted(k, 'column')}")
    if runtime.one_order() and prod(left.shape[:-1]) > FEW:
        raise NotImplementedError(
            f"{name}: {words[0]} has {prod(left.shape[:-1])} rows, expected at most {FEW} under hc.use(order='one'): "
            "CUDA kernels use another order of sums for more; use the CPU"
        )
    added = None if bias is None else _bias(bias, n, name, left.number, stream)
    target = _target(out, (*left.shape[:-1], n), name, left.number, stream, (left, weights, added))
    rows, to = left, target
    if left.ndim == 1:
        rows = DeviceArray(left, left.address, (1, k), left.dtype, (0, *left.strides), left.number, stream)
        to = DeviceArray(target, target.address, (1, n), target.dtype, (0, *target.strides), left.number, stream)
    with refusals(format=(f"{name}: {fmt}", None)):
        row = _core.cuda_matmul(
            left.number,
            stream,
            rows._packed() if is_packed else view_of(rows),
            is_packed,
            None if fmt is None else core_format(fmt),
            weights._packed(),
            0 if added is None else added.address,
            view_of(to),
        )
    _settle(left.number, stream, weights, added, target)
    if fmt is not None:
        _refuse_row(row, x_name, left.shape, (left.ndim - 1,), fmt)
    return _answer(target, x, out)


def _bias(bias: Any, n: int, name: str, number: int, stream: int) -> DeviceArray:
    added: DeviceArray = _operand(bias, f"{name}: bias", number, stream)
    if added.shape != (n,):
        raise ValueError(f"{name}: bias has shape {added.shape}, wanted ({n},)")
    if added.dtype != np.float32 or (n > 1 and added.strides != (4,)):
        raise TypeError(f"{name}: bias is {added.dtype} with strides {added.strides}, expected contiguous float32")
    return added


def _target(
    out: Any, shape: tuple[int, ...], name: str, number: int, stream: int, inputs: tuple[Any, ...]
) -> DeviceArray:
    """Return the array that an answer is written to: a new one, or `out` after its checks."""
    if out is None or not is_on_device(out):
        if out is not None and runtime.backend_device() is None:
            raise TypeError(f"{name}: out is in the memory of the CPU, expected an array on cuda:{number}")
        if out is not None and not (isinstance(out, np.ndarray) and out.dtype == np.float32 and out.shape == shape):
            raise ValueError(f"{name}: out is {shown(out)}, expected a float32 ndarray with shape {shape}")
        return DeviceArray.empty(shape, np.float32, number, stream)
    made = as_device(out, f"{name}: out", stream)
    if made.dtype != np.float32 or made.shape != shape:
        raise ValueError(f"{name}: out is {made.dtype} with shape {made.shape}, wanted float32 with shape {shape}")
    target = DeviceArray(out, made.address, made.shape, made.dtype, made.strides, number, made.stream)
    if any(n > 1 and a != b for n, a, b in zip(shape, made.strides, c_strides(shape, 4), strict=True)):
        raise NotImplementedError(f"{name}: out has strides {made.strides}, expected C order on a CUDA device")
    for value in inputs:
        parts: Any = value.components.values() if isinstance(value, DeviceQuantizedArray) else (value,)
        for part in parts:
            if part is not None and part.address < made.address + made.nbytes and made.address < _end(part):
                raise ValueError(f"{name}: out shares memory with an input")
    return target


def _is_in_place(x: DeviceArray, out: Any) -> bool:
    """Tell whether an answer is written just where x is: the kernels read each value before they write it."""
    if out is None or not is_on_device(out):
        return False
    made = as_device(out, "fake_quantize: out")
    return (made.address, made.strides, made.dtype) == (x.address, x.strides, x.dtype)


def _end(array: DeviceArray) -> int:
    """Return the address after the last value, of strides that are not negative."""
    reach = sum((n - 1) * max(step, 0) for n, step in zip(array.shape, array.strides, strict=True))
    return array.address + reach + array.dtype.itemsize


def _answer(target: DeviceArray, given: Any, out: Any) -> Any:
    """Return an answer where the caller's array is: on the device, or copied to the CPU."""
    if out is not None and is_on_device(out):
        return out
    if isinstance(given, DeviceQuantizedArray) or is_on_device(given):
        return in_callers_library(target, given)
    if out is None:
        return target.to_numpy()
    out[...] = target.to_numpy()
    return out


def copied_bytes(x: Any, w: Any, answer: int) -> tuple[int, int]:
    """Return the bytes that a product copies to the device and back."""
    at_home = [value for value in (x, w) if not (isinstance(value, DeviceQuantizedArray) or is_on_device(value))]
    back = 0 if isinstance(x, DeviceQuantizedArray) or is_on_device(x) else answer
    return sum(value.nbytes for value in at_home), back
