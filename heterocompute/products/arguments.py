"""Arguments of the public functions: converted to those of the C core, or refused by an error that names them."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ..arrays.base import PackedArray
from ..arrays.dense import as_array, core_view
from ..arrays.device import DeviceArray
from ..arrays.eie import EIEArray
from ..arrays.foreign import exports_dlpack, refuse_unreadable
from ..arrays.prepacked import PrepackedFilters
from ..arrays.quantized import QuantizedArray
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import converted
from ..formats import Format, format as parse_format, is_function, is_rotated

Array = np.ndarray[Any, Any]
FloatArray = np.ndarray[Any, np.dtype[np.float32]]

LINE, LARGE = 16, 1 << 18  # float32 values of a cache line; from this size on alignment matters and costs little

_parse_once = lru_cache(maxsize=256)(parse_format)  # parsing takes longer than a small product


def as_format(fmt: object, name: str, functions: bool = False, rotated: bool = False) -> Format:
    """Return the format of an argument; `functions`: also one without codes; `rotated`: also one with ``+had``."""
    found = _parse_once(fmt) if isinstance(fmt, str) else fmt
    if (is_function(found) and not functions) or (is_rotated(found) and not rotated):
        raise found.refusal(name)
    if isinstance(found, Format):
        return found
    raise WrongType(f"{name} is {shown(fmt)}, expected a format or its text")


def core_clip(clip: object, name: str) -> tuple[int, float] | None:
    """Return None, or (kind, value) as csrc/hc.h numbers them."""
    if clip is None:
        return None
    if isinstance(clip, str):
        if clip == "octav":
            return 3, 0.0
        kind, _, text = clip.partition(":")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if kind != "percentile" or not 0.0 <= value <= 100.0:
            raise WrongValue(
                f"{name}: clip is {shown(clip)}, expected 'octav', 'search' or 'percentile:p' with p from 0 to 100"
            )
        return 2, value
    if isinstance(clip, (bool, np.bool_)) or not isinstance(clip, (int, float, np.floating, np.integer)):
        raise WrongType(f"{name}: clip is {shown(clip)}, expected None, a number or a text")
    if not 0.0 < clip <= 1.0:
        raise WrongValue(f"{name}: clip is {shown(clip)}, expected a fraction above 0 and at most 1")
    return 1, float(clip)


def checked_out(
    out: object,
    shape: tuple[int, ...],
    name: str,
    inputs: tuple[Any, ...],
    in_place: bool = False,
    at_line: bool = False,
) -> FloatArray:
    """Return the plain array of `out`, after its checks, or a new one.

    `in_place`: it may share memory with an input; `at_line`: a large new array starts at a cache line.
    """
    if out is None:
        if prod(max(n, 1) for n in shape) > 2**60:
            raise WrongValue(f"{name}: a result of shape {shape} overflows the size of an array")
        return empty_at_a_line(shape) if at_line and prod(shape) >= LARGE else np.empty(shape, np.float32)
    plain = _writable(out, name)
    if plain.dtype != np.float32:
        raise WrongType(f"{name}: out is {plain.dtype}, expected a float32 array")
    if plain.shape != shape:
        raise WrongValue(f"{name}: out has shape {plain.shape}, expected {shape}")
    if not plain.flags.writeable:
        raise WrongValue(f"{name}: out is read-only")
    if not plain.flags.aligned or not plain.dtype.isnative:
        raise WrongValue(f"{name}: out is not an aligned array in native byte order")
    if not plain.flags.c_contiguous and not _distinct(plain):
        raise WrongValue(f"{name}: elements of out share memory with each other")
    for value in inputs:
        for part in value.components.values() if isinstance(value, PackedArray) else (value,):
            meets = isinstance(part, np.ndarray) and _overlap(plain, part)
            if meets and not (in_place and _same_place(plain, part)):
                raise WrongValue(f"{name}: out shares memory with an input")
    return plain


def empty_at_a_line(shape: tuple[int, ...]) -> FloatArray:
    """Return memory that starts at a cache line, unlike NumPy's, so that each 64-byte store touches one line."""
    size = prod(shape)
    memory = np.empty(size + LINE, np.float32)
    first = -memory.ctypes.data // memory.itemsize % LINE
    return memory[first : first + size].reshape(shape)


def _writable(out: Any, name: str) -> FloatArray:
    """Return the memory of an array, or of a tensor of PyTorch, to write to."""
    if isinstance(out, np.ndarray):
        return np.asarray(out)
    refuse_unreadable(out, f"{name}: out")
    if not (exports_dlpack(out) and hasattr(out, "requires_grad")):  # arrays of JAX never change
        raise WrongType(f"{name}: out is {type(out).__name__}, expected a float32 array or tensor")
    try:
        return np.asarray(out.detach().numpy())
    except (RuntimeError, TypeError) as problem:
        raise WrongType(f"{name}: out is {type(out).__name__}, expected a float32 tensor ({problem})") from None


def _same_place(a: Array, b: Array) -> bool:
    return (a.ctypes.data, a.dtype, a.shape, a.strides) == (b.ctypes.data, b.dtype, b.shape, b.strides)


def _distinct(array: Array) -> bool:
    """Tell whether no two elements can have the same address, from the sorted strides."""
    dims = sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1)
    reach = array.itemsize
    for stride, n in dims:
        if stride < reach:
            return not array.size
        reach += stride * (n - 1)
    return True


def _overlap(a: Array, b: Array) -> bool:
    try:
        return bool(np.shares_memory(a, b, max_work=10_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def is_compressed(value: object) -> bool:
    """Tell whether a value is an EIEArray or a sparse matrix, that is, has the attributes of SciPy's."""
    if isinstance(value, (np.ndarray, PackedArray)):
        return isinstance(value, EIEArray)
    return hasattr(value, "nnz") and isinstance(getattr(value, "shape", None), tuple)


def as_operand(value: object, name: str) -> Any:
    if isinstance(value, PrepackedFilters):
        return value.source
    return value if isinstance(value, QuantizedArray) else as_array(value, name)


def tell(w: object, axis: int, x: object, window: tuple[Any, ...] | None = None) -> None:
    """Report an operand to a recording weight (ptq/recorder.py), with the weight's own reduction axis.

    x is an array whose last axis is summed, or images (N, C, H, W) with a window: (strides, padding before, dilations,
    groups, size of the answer).
    """
    hear = getattr(w, "_hear", None)
    if hear is not None:
        hear(axis, x, window)


def core_operand(value: Any) -> Any:
    if isinstance(value, DeviceArray):
        return value.view
    return value._packed() if isinstance(value, QuantizedArray) else core_view(value)


def with_axis(value: Any, axis: int) -> Any:
    """Return an array of the host or of a device with a dimension of length 1 at a position."""
    return value.with_axis(axis) if isinstance(value, DeviceArray) else value[(slice(None),) * axis + (None,)]


def turned(value: Any, axes: tuple[int, ...]) -> Any:
    """Return an array of the host or of a device with its dimensions in another order."""
    return value.transposed(axes) if isinstance(value, DeviceArray) else value.transpose(axes)


def as_matrix(value: Any, column: bool) -> Any:
    """Give a vector a second axis, as a row or a column; its reduction axis keeps its position."""
    if value.ndim != 1:
        return value
    if not isinstance(value, QuantizedArray):
        return with_axis(value, 1 if column else 0)
    shape = (value.shape[0], 1) if column else (1, value.shape[0])
    return value._remade(value.components, shape, (0,) if column else (1,))


def as_bias(bias: object, n: int, name: str) -> Array | None:
    if bias is None:
        return None
    array = as_array(bias, f"{name}: bias")
    if array.shape != (n,):
        raise WrongValue(f"{name}: bias has shape {array.shape}, expected ({n},)")
    return converted(array, np.float32)
