"""Calls with arrays in the memory of a CUDA device: checks, and the calls of the core. Results stay on the device.

Only calls that make packed arrays wait, to raise an error for a value that the format lacks. In other results such a
value makes all NaN that depends on its scale.

Under ``hc.use(backend="cuda")`` arrays of the CPU are copied to the device first, and results back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.base import PackedArray
from ..arrays.components import component_layout, core_format, stored_format
from ..arrays.dense import as_array, check_dimensions, normalize_axes
from ..arrays.device import (
    DEFAULT_STREAM,
    DeviceArray,
    as_device,
    c_strides,
    in_callers_library,
    is_on_device,
    is_tensor_there,
    tensor_there,
    tensor_view,
)
from ..arrays.device_prepacked import DevicePrepacked
from ..arrays.device_quantized import DeviceQuantizedArray
from ..arrays.quantized import QuantizedArray
from ..arrays.sparse import SparseArray
from ..arrays.streams import TORCH
from ..base import runtime
from ..base.cuda import has_device
from ..base.errors import TO_CPU, Refused, Unsupported, WrongType, WrongValue, refusals, shown, unsupported
from ..base.texts import counted
from ..formats import Float, Format, Sparse, has_pattern
from .arguments import as_format, core_clip

__all__ = [
    "answer_of",
    "check_bias",
    "copied_bytes",
    "described",
    "gathered",
    "goes_to_device",
    "is_there",
    "on_their_device",
    "refusals_there",
    "refuse_row",
    "refuse_searched_clip",
    "settle",
    "target_of",
]

_FLOAT32 = np.dtype(np.float32)

FEW = 8  # most rows with the order of sums of GEMV, HC_GEMV_MOST of the core


def goes_to_device(*values: Any) -> bool:
    """Tell whether a call runs on a CUDA device: an argument is there, or `use` selects it.

    Without a usable device, arrays of other libraries are refused like those of any other device.
    """
    for value in values:
        if type(value) is DeviceArray or type(value) is DeviceQuantizedArray:
            return True
        if is_tensor_there(value):
            return has_device()
    if runtime.backend_device() is not None:
        return True
    return any(is_there(value) for value in values) and has_device()


def is_there(value: Any) -> bool:
    """Tell whether an argument, packed or not, is on a CUDA device."""
    return isinstance(value, DeviceQuantizedArray) or is_on_device(value)


def gathered(caller: str, **values: Any) -> tuple[dict[str, Any], int | None]:
    """Return the arguments that are on a device, each read once, and that device, otherwise the device of `use`.

    ValueError if the arguments are on several devices.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, DeviceQuantizedArray):
            found[name] = value
        elif is_on_device(value):
            found[name] = as_device(value, f"{caller}: {name}")
            check_dimensions(found[name], f"{caller}: {name}")
    numbers = {one.number: name for name, one in reversed(found.items())}
    if len(numbers) > 1:
        listed = " and ".join(f"{name} on cuda:{number}" for number, name in reversed(numbers.items()))
        raise WrongValue(f"{caller}: {listed}, expected all on one device")
    return found, next(iter(numbers), runtime.backend_device())


def on_their_device(value: Any, made: Any, name: str, number: int | None, stream: int | None = None) -> Any:
    """Return an argument on a device: `made` if it is there; arrays of the CPU are copied if `use` selects a device."""
    if made is not None:
        if stream is not None and made.stream != stream:
            _core.cuda_wait(made.number, made.stream)
        return made
    if runtime.backend_device() is None:
        raise WrongType(
            f"{name} is in the memory of the CPU and another argument is on a CUDA device, expected all on one: "
            "copy it there (.to('cuda') of a quantized array or a tensor, cupy.asarray of an ndarray)"
        )
    if isinstance(value, QuantizedArray):
        return value.to(f"cuda:{number}")
    if isinstance(value, PackedArray):
        raise Unsupported(f"{name} is {value._named()}, which has no CUDA kernels: use it on the CPU")
    return DeviceArray.from_numpy(as_array(value, name), number or 0, DEFAULT_STREAM if stream is None else stream)


@contextmanager
def refusals_there(name: str, fmt: Any) -> Iterator[None]:
    """Add the caller, its format and the copy to the CPU to errors of the core on a device."""
    try:
        with refusals(format=(f"{name}: {fmt}", None)):
            yield
    except NotImplementedError as problem:
        raise unsupported(name, problem) from None


def settle(number: int, stream: int, *operands: Any) -> None:
    """Wait for a call if an operand belongs to another stream, on which its memory may be freed."""
    if any(value is not None and value.stream != stream for value in operands):
        _core.cuda_wait(number, stream)


def refuse_searched_clip(name: str, fmt: Format, clip: Any) -> None:
    """Refuse the clip that has no kernel."""
    if isinstance(clip, str) and clip == "search":
        raise Unsupported(
            f"{name}: clip is 'search' with {fmt}, expected a fraction, 'octav' or 'percentile:p' on a CUDA device: "
            f"{TO_CPU}"
        )


def _clip_there(name: str, fmt: Format, clip: Any, importance: Any = None) -> tuple[Any, ...]:
    """Return the last arguments of a call that rounds: none, or a clip, and no note of a gradient."""
    refuse_searched_clip(name, fmt, clip)
    if importance is not None:
        raise Unsupported(
            f"{name}: importance is given, expected None: there is no CUDA kernel for it with {fmt}; {TO_CPU}"
        )
    if clip is not None and has_pattern(fmt) and fmt.is_plain:
        raise WrongValue(f"{name}: clip is {shown(clip)}, but {fmt} has no scale")
    return () if clip is None else (core_clip(clip, name), None)


def refuse_row(
    row: int, name: str, shape: tuple[int, ...], axes: tuple[int, ...], fmt: Format, what: str = "NaN or infinity"
) -> None:
    if row < 0:
        return
    others = [a for a in range(len(shape)) if a not in axes]
    at = dict(zip(others, np.unravel_index(row, [shape[a] for a in others]) if others else (), strict=True))
    index = ", ".join(str(int(at[a])) if a in at else ":" for a in range(len(shape)))
    raise WrongValue(f"{name} has a value that {fmt} cannot hold ({what}) at index ({index})")


def _floats_there(caller: str, w: Any) -> Any:
    """Return an array of floats on the device."""
    if type(w) is DeviceArray:
        check_dimensions(w, f"{caller}: w")
        return w
    if is_tensor_there(w):
        made = tensor_there(w, f"{caller}: w")
        check_dimensions(made, f"{caller}: w")
        return made
    if isinstance(w, PackedArray):
        raise WrongType(f"{caller}: w is {w._named()}, expected an array of floats")
    found, number = gathered(caller, w=w)
    return on_their_device(w, found.get("w"), f"{caller}: w", number)


def quantize_on_device(w: Any, fmt: Format | str, axis: Any, clip: Any, importance: Any) -> Any:
    """Quantize an array on a device, as `quantize`."""
    fmt, name = as_format(fmt, "quantize: fmt"), "quantize: w"
    clipped = () if clip is None and importance is None else _clip_there("quantize", fmt, clip, importance)
    x = _floats_there("quantize", w)
    axes = normalize_axes(axis, x.ndim, "quantize")
    q = _nonzeros(x, fmt, axes, name, clipped) if has_pattern(fmt) else _quantized(x, fmt, axes, name, clipped)
    return q if is_on_device(w) else q.to("cpu")


def _quantized(
    x: DeviceArray, fmt: Format, axes: tuple[int, ...], name: str, clipped: tuple[Any, ...], where: Any = None
) -> DeviceQuantizedArray:
    """Return x quantized. `where`: shape and axes for errors, if x is made of another array."""
    if x.size == 0:
        return _empty_quantized(x, fmt, axes)
    try:
        q = DeviceQuantizedArray.empty(fmt, x.shape, axes, x.dtype_name, QuantizedArray._trusted, x.number, x.stream)
        row = _core.cuda_quantize(x.number, x.stream, None, x.view, q._packed(), *clipped)
    except (NotImplementedError, ValueError):
        with refusals_there("quantize", fmt):  # entering it takes long
            raise
    refuse_row(row, name, where[0] if where else x.shape, where[1] if where else axes, fmt)
    return q


def _empty_quantized(x: DeviceArray, fmt: Format, axes: tuple[int, ...]) -> DeviceQuantizedArray:
    """Return an array without values; those of its components that it has are computed on the CPU."""
    parts = {name: np.zeros(size, of) for name, (of, size) in component_layout(fmt, x.shape, axes).items()}
    q = QuantizedArray._trusted(parts, fmt, x.shape, axes, x.dtype.name)
    with refusals_there("quantize", fmt):
        _core.quantize(runtime.run(), np.zeros(x.shape, np.float32), None, q._packed())
    moved = {name: DeviceArray.from_numpy(part, x.number, x.stream) for name, part in parts.items()}
    return DeviceQuantizedArray(moved, fmt, x.shape, axes, x.dtype.name, QuantizedArray._trusted)


def _nonzeros(
    x: DeviceArray, fmt: Sparse, axes: tuple[int, ...], name: str, clipped: tuple[Any, ...] = ()
) -> DeviceQuantizedArray:
    """Return the nonzeros of a pattern, quantized if the format says so."""
    plain, values, positions = _pruned_memory(x, fmt, axes, name)
    if x.size:
        with refusals_there(name.partition(":")[0], fmt):
            row = _core.cuda_prune(
                *(x.number, x.stream, None, x.view, fmt.n, fmt.m, axes, values.address, positions.address)
            )
        refuse_row(row, name, x.shape, axes, plain, "NaN")
    if fmt.is_plain:
        parts = {"values": values, "metadata": positions}
        return DeviceQuantizedArray(parts, plain, x.shape, axes, x.dtype.name, SparseArray._trusted)
    segments = _segments(values, fmt, x.shape[axes[-1]])
    q = _quantized(segments, fmt.base, (1, 2), name, clipped, (x.shape, axes))
    stored = {**q._components, "metadata": positions}
    return DeviceQuantizedArray(stored, fmt, x.shape, axes, x.dtype.name, QuantizedArray._trusted)


def prune_on_device(w: Any, pattern: tuple[int, int] | None, axis: Any, scores: Any) -> Any:
    """Prune an array on a device, as `prune`: N:M by magnitude."""
    name = "prune: w"
    if isinstance(w, PackedArray):
        raise WrongType(f"{name} is {w._named()}, expected an array of floats")
    if pattern is None or scores is not None:
        raise Unsupported(
            f"{name} is for a CUDA device, whose kernel keeps N of M by magnitude, expected that and no scores: "
            f"{TO_CPU}"
        )
    found, number = gathered("prune", w=w)
    x = on_their_device(w, found.get("w"), name, number)
    s = _nonzeros(x, Sparse(Float("fp32"), *pattern), normalize_axes(axis, x.ndim, "prune"), name)
    return s if is_on_device(w) else s.to("cpu")


def fake_quantize_on_device(w: Any, fmt: Format | str, axis: Any, clip: Any, out: Any) -> Any:
    """Round an array on a device, as `fake_quantize`."""
    fmt, name = as_format(fmt, "fake_quantize: fmt"), "fake_quantize: w"
    clipped = () if clip is None else _clip_there("fake_quantize", fmt, clip)
    if out is None:
        x, given = _floats_there("fake_quantize", w), None
    else:
        if isinstance(w, PackedArray):
            raise WrongType(f"{name} is {w._named()}, expected an array of floats")
        found, number = gathered("fake_quantize", w=w, out=out)
        x, given = on_their_device(w, found.get("w"), name, number), found.get("out")
    axes = normalize_axes(axis, x.ndim, "fake_quantize")
    inputs = () if _is_in_place(x, given) else (x,)  # the kernels read each value before they write it
    target = target_of(out, given, x.shape, "fake_quantize", x.number, x.stream, inputs)
    if x.size == 0:
        return answer_of(target, w, out)
    try:
        if has_pattern(fmt):
            _round_nonzeros(x, fmt, axes, name, clipped, target)
        else:
            _core.cuda_fake_quantize(*(x.number, x.stream, None, x.view, core_format(fmt), axes, target.view, *clipped))
    except (NotImplementedError, Refused):
        with refusals_there("fake_quantize", fmt):
            raise
    if target.stream != x.stream:
        settle(x.number, x.stream, target)
    return answer_of(target, w, out)


def _round_nonzeros(
    x: DeviceArray, fmt: Sparse, axes: tuple[int, ...], name: str, clipped: tuple[Any, ...], target: DeviceArray
) -> None:
    """Round the nonzeros of a pattern; waits for nothing."""
    plain, values, positions = _pruned_memory(x, fmt, axes, name)
    there = x.number, x.stream
    _core.cuda_prune(*there, True, x.view, fmt.n, fmt.m, axes, values.address, positions.address)
    if not fmt.is_plain:
        segments = _segments(values, fmt, x.shape[axes[-1]])
        _core.cuda_fake_quantize(*there, None, segments.view, core_format(fmt.base), (1, 2), segments.view, *clipped)
    parts = {"codes": values.address, "metadata": positions.address}
    _core.cuda_dequantize(*there, None, (core_format(plain), x.shape, axes, parts), target.view)


def _pruned_memory(x: DeviceArray, fmt: Sparse, axes: tuple[int, ...], name: str) -> tuple[Sparse, Any, Any]:
    """Return the format of the nonzeros of x in a pattern, and memory for them and for their positions."""
    if fmt.is_plain and x.dtype != np.float32:
        raise Unsupported(f"{name} has dtype {x.dtype}, expected float32 on a CUDA device: {TO_CPU}")
    plain = Sparse(Float("fp32"), fmt.n, fmt.m)
    layout = component_layout(plain, x.shape, axes, "float32")
    values, positions = (DeviceArray.empty(*layout[key][::-1], x.number, x.stream) for key in ("values", "metadata"))
    return plain, values, positions


def _segments(values: DeviceArray, fmt: Sparse, length: int) -> DeviceArray:
    """Return the nonzeros of a pattern with a dimension for those of a run."""
    count = fmt.stored_length(length)
    return values.reshaped((values.shape[0], values.shape[1] // max(count, 1), count))


def matmul_on_device(a: Any, b: Any, activations: Any, out: Any) -> Any:
    """Multiply arrays on a device, as `matmul`: b is quantized."""
    if not isinstance(b, (QuantizedArray, DeviceQuantizedArray)):
        raise _not_quantized("matmul", "b", b)
    if b.ndim != 2 or b.axis != (0,):
        raise Unsupported(
            f"matmul: b has shape {b.shape} and axis {b.axis}, expected two dimensions and axis (0,) on a CUDA device, "
            "as in x @ w.T"
        )
    return _product(a, b.T, None, activations, out, "matmul", ("a", "b"))


def linear_on_device(x: Any, w: Any, bias: Any, activations: Any, out: Any) -> Any:
    """Apply a linear layer on a device, as `linear`: w is quantized."""
    answer = _usual_product(x, w, bias, activations, out)
    if answer is not None:
        return answer
    if not isinstance(w, (QuantizedArray, DeviceQuantizedArray)):
        raise _not_quantized("linear", "w", w)
    if w.ndim != 2 or w.axis != (1,):
        raise WrongValue(f"linear: w has shape {w.shape} and axis {w.axis}, expected two dimensions and axis (1,)")
    return _product(x, w, bias, activations, out, "linear", ("x", "w"))


def _usual_product(x: Any, w: Any, bias: Any, activations: Any, out: Any) -> Any:
    """Return ``x @ w.T + bias`` for the most common arguments, None for others: rows of floats, all of their stream."""
    kind, is_ours = type(w), type(x) is DeviceArray
    if (kind is not DeviceQuantizedArray and kind is not DevicePrepacked) or not (is_ours or is_tensor_there(x)):
        return None
    number, stream, view = (x.number, x.stream, x.view) if is_ours else tensor_view(x, "linear: x")
    shape, of_w = view[2], w._shape
    is_usual = len(shape) > 1 and len(of_w) == 2 and w._axis == (1,) and shape[-1] == of_w[1] and 0 not in shape
    if not is_usual or stream != w.stream or number != w.number or of_w[0] == 0 or runtime.one_order():
        return None
    n = of_w[0]
    if is_ours:
        for given in (bias, out):
            if given is not None and not (
                type(given) is DeviceArray and given.number == number and given.stream == stream
            ):
                return None
        if bias is not None:
            check_bias(bias, n, "linear")
        added = 0 if bias is None else bias.address
    else:
        has_bias = bias is not None
        if out is not None or (has_bias and not (is_tensor_there(bias) and bias.get_device() == number)):
            return None
        if has_bias and not (bias.dtype is TORCH["float32"] and bias.shape == (n,) and bias.stride() == (1,)):
            return None
        added = bias.data_ptr() if has_bias else 0
    fmt = None if activations is None else as_format(activations, "linear: activations")
    to_shape = (*shape[:-1], n)
    if is_ours:
        y = (
            DeviceArray.empty(to_shape, _FLOAT32, number, stream)
            if out is None
            else target_of(out, out, to_shape, "linear", number, stream, (x, w, bias))
        )
        to = y.address, "float32", to_shape, y.strides
    else:
        y = x.new_empty(to_shape, dtype=TORCH["float32"])
        to = y.data_ptr(), "float32", to_shape, c_strides(to_shape, 4)
    core = None if fmt is None else core_format(fmt)
    try:
        _core.cuda_matmul(number, stream, None, view, False, core, w._packed(), added, to, runtime.device_order())
    except (NotImplementedError, Refused):
        with refusals_there("linear", fmt):  # entering it takes longer than the call
            raise
    return y


def _multiply(
    left: Any, fmt: Format | None, w: DeviceQuantizedArray, added: DeviceArray | None, to: DeviceArray, name: str
) -> None:
    is_packed = isinstance(left, DeviceQuantizedArray)
    try:
        _core.cuda_matmul(
            left.number,
            left.stream,
            None,
            left._packed() if is_packed else left.view,
            is_packed,
            None if fmt is None else core_format(fmt),
            w._packed(),
            0 if added is None else added.address,
            to.view,
            runtime.device_order(),
        )
    except (NotImplementedError, Refused):
        with refusals_there(name, fmt):
            raise


def _product(x: Any, w: Any, bias: Any, activations: Any, out: Any, name: str, words: tuple[str, str]) -> Any:
    """Return x @ w.T + bias."""
    x_name = f"{name}: {words[0]}"
    fmt = None if activations is None else as_format(activations, f"{name}: activations")
    found, number = gathered(name, **{words[0]: x, words[1]: w}, bias=bias, out=out)
    left = on_their_device(x, found.get(words[0]), x_name, number)
    weights = on_their_device(w, found.get(words[1]), f"{name}: {words[1]}", number, left.stream)
    given, added = found.get("out"), None
    if bias is not None:
        added = on_their_device(bias, found.get("bias"), f"{name}: bias", number, left.stream)
        check_bias(added, w.shape[0], name)
    is_packed = isinstance(left, DeviceQuantizedArray)
    if fmt is not None and is_packed:
        raise WrongValue(f"{name}: activations is for a dense {words[0]}, this one is quantized")
    if left.ndim == 0:
        raise WrongValue(f"{x_name} has no dimensions")
    if is_packed and left.axis != (left.ndim - 1,):
        raise WrongValue(f"{x_name} is quantized along axis {left.axis}, its reduction axis is {left.ndim - 1}")
    if is_packed and left.ndim == 1:
        raise Unsupported(f"{x_name} is a quantized vector, expected two dimensions or more on a CUDA device")
    (n, k), stream = weights.shape, left.stream
    if left.shape[-1] != k:
        raise WrongValue(f"{x_name} has {counted(left.shape[-1], 'feature')} but {words[1]} has {counted(k, 'column')}")
    if runtime.one_order() and prod(left.shape[:-1]) > FEW:
        raise Unsupported(
            f"{name}: {words[0]} has {prod(left.shape[:-1])} rows, expected at most {FEW} under hc.use(order='one'): "
            f"CUDA kernels use another order of sums for more; {TO_CPU}"
        )
    target = target_of(out, given, (*left.shape[:-1], n), name, left.number, stream, (left, weights, added))
    if 0 in target.shape:
        return answer_of(target, x, out)
    rows, to = left, target
    if left.ndim == 1:
        rows = DeviceArray(left, left.address, (1, k), left.dtype, (0, *left.strides), left.number, stream)
        to = DeviceArray(target, target.address, (1, n), target.dtype, (0, *target.strides), left.number, stream)
    _multiply(rows, fmt, weights, added, to, name)
    settle(left.number, stream, weights, added, target)
    return answer_of(target, x, out)


def _not_quantized(name: str, word: str, value: Any) -> NotImplementedError:
    """Return the error for a right operand that CUDA kernels do not support."""
    if isinstance(value, PackedArray):
        return Unsupported(f"{name}: {word} is {value._named()}, which has no CUDA kernels: {TO_CPU}")
    return Unsupported(
        f"{name}: {word} is not quantized, expected a quantized {word}: CUDA kernels multiply no dense one; quantize "
        f"{word}, or use CuPy or torch"
    )


def check_bias(added: DeviceArray, n: int, name: str) -> None:
    """Raise the error of a bias that the kernels do not read."""
    if added.shape != (n,):
        raise WrongValue(f"{name}: bias has shape {added.shape}, expected ({n},)")
    if added.dtype != np.float32 or (n > 1 and added.strides != (4,)):
        raise WrongType(f"{name}: bias is {added.dtype} with strides {added.strides}, expected contiguous float32")


def target_of(
    out: Any,
    made: DeviceArray | None,
    shape: tuple[int, ...],
    name: str,
    number: int,
    stream: int,
    inputs: tuple[Any, ...],
) -> DeviceArray:
    """Return the array for the result: a new one, or `out` after its checks (`made` if it is on the device)."""
    if made is None:
        if out is not None and runtime.backend_device() is None:
            raise WrongType(f"{name}: out is in the memory of the CPU, expected an array on cuda:{number}")
        if out is not None and not (isinstance(out, np.ndarray) and out.dtype == np.float32 and out.shape == shape):
            raise WrongValue(f"{name}: out is {shown(out)}, expected a float32 ndarray with shape {shape}")
        return DeviceArray.empty(shape, _FLOAT32, number, stream)
    if isinstance(made, DeviceQuantizedArray):
        raise WrongType(f"{name}: out is {made._named()}, expected an array of float32")
    if made.stream != stream:
        _core.cuda_wait(made.number, made.stream)
    if made.dtype != np.float32 or made.shape != shape:
        raise WrongValue(f"{name}: out is {made.dtype} with shape {made.shape}, expected float32 with shape {shape}")
    contiguous = zip(shape, made.strides, c_strides(shape, 4), strict=True)
    if any(n > 1 and a != b for n, a, b in contiguous):
        raise Unsupported(f"{name}: out has strides {made.strides}, expected C order on a CUDA device")
    first, end = made.address, made.address + made.nbytes
    for value in inputs:
        parts: Any = value.components.values() if isinstance(value, DeviceQuantizedArray) else (value,)
        for part in parts:
            if part is not None and part.address < end and first < _end(part):
                raise WrongValue(f"{name}: out shares memory with an input")
    return made


def _is_in_place(x: DeviceArray, made: Any) -> bool:
    """Tell whether the result has the same memory as x."""
    return isinstance(made, DeviceArray) and (made.address, made.strides, made.dtype) == (x.address, x.strides, x.dtype)


def _end(array: DeviceArray) -> int:
    """Return the address after the last value, for strides that are not negative."""
    reach = sum((n - 1) * max(step, 0) for n, step in zip(array.shape, array.strides, strict=True))
    return array.address + reach + array.dtype.itemsize


def answer_of(target: DeviceArray, given: Any, out: Any) -> Any:
    """Return a result on the device of the caller's array: unchanged, or copied to the CPU."""
    if out is None:
        if type(given) is DeviceArray:
            return target
        return in_callers_library(target, given) if is_there(given) else target.to_numpy()
    if not is_on_device(out):
        out[...] = target.to_numpy()
    return out


def copied_bytes(x: Any, w: Any, answer: int) -> tuple[int, int]:
    """Return the bytes that a matmul copies to the device and back."""
    at_home = [value for value in (x, w) if not is_there(value)]
    back = 0 if is_there(x) else answer
    return sum(value.nbytes for value in at_home), back


def kernels_of(x: Any, w: Any, activations: Any, caller: str) -> list[str]:
    """Return the kernels of ``linear(x, w)`` in the order of their launches; NotImplementedError if there are none."""
    fmt = None if activations is None else as_format(activations, f"{caller}: activations")
    is_packed = isinstance(x, PackedArray)
    dtype, shape = ("float32", x.shape) if is_packed else (x.dtype.name, x.shape)
    rows = shape if len(shape) > 1 else (1, *shape)
    size = 8 if dtype == "float64" else 4
    given = described(x) if is_packed else (0, dtype, rows, c_strides(rows, size if dtype[-2:] != "16" else 2))
    answer = (*rows[:-1], w.shape[0])
    core = None if fmt is None else core_format(fmt)
    with refusals_there(caller, fmt):
        out = 0, "float32", answer, c_strides(answer, 4)
        _, steps = _core.cuda_steps(
            "matmul", (0, 0, None, given, is_packed, core, described(w), 0, out, runtime.device_order())
        )
    return [step[0] for step in steps]


def described(q: Any) -> tuple[Any, ...]:
    """Return a packed array, on a device or not, in the form that a plan accepts."""
    values = q.components.get("values")
    stored = stored_format(q.format, None if values is None else values.dtype.name)
    return core_format(stored), q.shape, q.axis, dict.fromkeys((*q.components, "codes"), 0)
