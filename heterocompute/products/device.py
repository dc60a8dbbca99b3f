"""Calls with arrays in the memory of a device: checks, and the calls of the core. Results stay on the device.

Only calls that make packed arrays wait, to raise an error for a value that the format lacks. In other results such a
value makes all NaN that depends on its scale.

Under the backend of the device, which `use` sets, arrays of the CPU are copied to the device first, and results back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.base import PackedArray
from ..arrays.components import component_layout, core_format
from ..arrays.dense import as_array, check_dimensions, normalize_axes
from ..arrays.device import (
    DEFAULT_STREAM,
    DeviceArray,
    as_device,
    as_device_tensor,
    c_strides,
    in_callers_library,
    is_on_device,
)
from ..arrays.memory import memory_of
from ..arrays.quantized import QuantizedArray
from ..arrays.sparse import SparseArray
from ..base import runtime
from ..base.devices import A_DEVICE, KIND, NAME, has_device, is_device_tensor, wait
from ..base.errors import TO_CPU, Refused, Unsupported, WrongType, WrongValue, refusals, shown, unsupported
from ..formats import Float, Format, Sparse, has_pattern
from .arguments import as_format, core_clip

_FLOAT32 = np.dtype(np.float32)


def runs_on_device(*values: object) -> bool:
    """Tell whether a call runs on a device: an argument is there, or `use` selects it.

    Without a usable device, arrays of other libraries are refused like those of any other device.
    """
    for value in values:
        if type(value) is DeviceArray or (isinstance(value, QuantizedArray) and value._is_far):
            return True
        if is_device_tensor(value):
            return has_device()
    if runtime.backend_device() is not None:
        return True
    return any(is_device_input(value) for value in values) and has_device()


def is_device_input(value: object) -> bool:
    """Tell whether an argument, packed or not, is on a device."""
    return value._is_far if isinstance(value, QuantizedArray) else is_on_device(value)


def gathered(caller: str, **values: object) -> tuple[dict[str, Any], int | None]:
    """Return the arguments that are on a device, each read once, and that device, otherwise the device of `use`.

    ValueError if the arguments are on several devices.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, QuantizedArray):
            if value._is_far:
                found[name] = value
        elif is_on_device(value):
            found[name] = as_device(value, f"{caller}: {name}")
            check_dimensions(found[name], f"{caller}: {name}")
    numbers = {_number(one): name for name, one in reversed(found.items())}
    if len(numbers) > 1:
        listed = " and ".join(f"{name} on {KIND}:{number}" for number, name in reversed(numbers.items()))
        raise WrongValue(f"{caller}: {listed}, expected all on one device")
    return found, next(iter(numbers), runtime.backend_device())


def _number(made: Any) -> int:
    number: int = made._memory.number if isinstance(made, QuantizedArray) else made.number
    return number


def on_their_device(value: object, made: Any, name: str, number: int | None, stream: int | None = None) -> Any:
    """Return an argument on a device: `made` if it is there; arrays of the CPU are copied if `use` selects a device."""
    if made is not None:
        if stream is not None and made.stream != stream:
            wait(_number(made), made.stream)
        return made
    if runtime.backend_device() is None:
        raise WrongType(
            f"{name} is in the memory of the CPU and another argument is on {A_DEVICE}, expected all on one: "
            f"copy it there (.to('{KIND}') of a quantized array or a tensor, cupy.asarray of an ndarray)"
        )
    if isinstance(value, QuantizedArray):
        return value.to(f"{KIND}:{number}")
    if isinstance(value, PackedArray):
        raise Unsupported(f"{name} is {value._named()}, which has no {NAME} kernels: use it on the CPU")
    return DeviceArray.from_numpy(as_array(value, name), number or 0, DEFAULT_STREAM if stream is None else stream)


@contextmanager
def device_refusals(name: str, fmt: object) -> Iterator[None]:
    """Add the caller, its format and the copy to the CPU to errors of the core on a device."""
    try:
        with refusals(format=(f"{name}: {fmt}", None)):
            yield
    except NotImplementedError as problem:
        raise unsupported(name, _renamed(name, problem)) from None


def _renamed(name: str, problem: NotImplementedError) -> NotImplementedError:
    """Return the refusal of a route with the caller's name of the operand that it begins with."""
    words = {"a ": "x ", "b ": "w "} if name == "linear" else {}
    text = str(problem).removeprefix("matmul: ")
    return Unsupported(words.get(text[:2], text[:2]) + text[2:])


def settle(number: int, stream: int, *operands: Any) -> None:
    """Wait for a call if an operand belongs to another stream, on which its memory may be freed."""
    if any(value is not None and value.stream != stream for value in operands):
        wait(number, stream)


def refuse_searched_clip(name: str, fmt: Format, clip: object) -> None:
    """Refuse the clip that has no kernel."""
    if isinstance(clip, str) and clip == "search":
        raise Unsupported(
            f"{name}: clip is 'search' with {fmt}, expected a fraction, 'octav' or 'percentile:p' on {A_DEVICE}: "
            f"{TO_CPU}"
        )


def _device_clip(name: str, fmt: Format, clip: object, importance: object = None) -> Any:
    """Return the clip of a call that rounds, in the core's form."""
    refuse_searched_clip(name, fmt, clip)
    if importance is not None:
        raise Unsupported(
            f"{name}: importance is given, expected None: there is no {NAME} kernel for it with {fmt}; {TO_CPU}"
        )
    if clip is not None and has_pattern(fmt) and fmt.is_plain:
        raise WrongValue(f"{name}: clip is {shown(clip)}, but {fmt} has no scale")
    return core_clip(clip, name)


def refuse_row(
    row: int, name: str, shape: tuple[int, ...], axes: tuple[int, ...], fmt: Format, what: str = "NaN or infinity"
) -> None:
    if row < 0:
        return
    others = [a for a in range(len(shape)) if a not in axes]
    at = dict(zip(others, np.unravel_index(row, [shape[a] for a in others]) if others else (), strict=True))
    index = ", ".join(str(int(at[a])) if a in at else ":" for a in range(len(shape)))
    raise WrongValue(f"{name} has a value that {fmt} cannot hold ({what}) at index ({index})")


def _device_floats(caller: str, w: object) -> Any:
    """Return an array of floats on the device."""
    if type(w) is DeviceArray:
        check_dimensions(w, f"{caller}: w")
        return w
    if is_device_tensor(w):
        made = as_device_tensor(w, f"{caller}: w")
        check_dimensions(made, f"{caller}: w")
        return made
    if isinstance(w, PackedArray):
        raise WrongType(f"{caller}: w is {w._named()}, expected an array of floats")
    found, number = gathered(caller, w=w)
    return on_their_device(w, found.get("w"), f"{caller}: w", number)


def quantize_on_device(w: object, fmt: Format | str, axis: object, clip: object, importance: object) -> Any:
    """Quantize an array on a device, as `quantize`."""
    fmt, name = as_format(fmt, "quantize: format"), "quantize: w"
    clipped = None if clip is None and importance is None else _device_clip("quantize", fmt, clip, importance)
    x = _device_floats("quantize", w)
    axes = normalize_axes(axis, x.ndim, "quantize")
    q = _nonzeros(x, fmt, axes, name, clipped) if has_pattern(fmt) else _quantized(x, fmt, axes, name, clipped)
    return q if is_on_device(w) else q.to("cpu")


def _quantized(
    x: DeviceArray, fmt: Format, axes: tuple[int, ...], name: str, clipped: Any, where: Any = None
) -> QuantizedArray:
    """Return x quantized. `where`: shape and axes for errors, if x is made of another array."""
    if x.size == 0:
        return _empty_quantized(x, fmt, axes)
    try:
        q = QuantizedArray._empty(memory_of(x), fmt, x.shape, axes, x.dtype_name)
        row = _core.quantize(runtime.run_on(x.number, x.stream), x.view, clipped, q._packed())
    except (NotImplementedError, ValueError):
        with device_refusals("quantize", fmt):  # entering it takes long
            raise
    refuse_row(row, name, where[0] if where else x.shape, where[1] if where else axes, fmt)
    return q


def _empty_quantized(x: DeviceArray, fmt: Format, axes: tuple[int, ...]) -> QuantizedArray:
    """Return an array without values; those of its components that it has are computed on the CPU."""
    parts = {name: np.zeros(size, of) for name, (of, size) in component_layout(fmt, x.shape, axes).items()}
    q = QuantizedArray._trusted(parts, fmt, x.shape, axes, x.dtype.name)
    with device_refusals("quantize", fmt):
        _core.quantize(runtime.run(), np.zeros(x.shape, np.float32), None, q._packed())
    moved: Any = {name: DeviceArray.from_numpy(part, x.number, x.stream) for name, part in parts.items()}
    return QuantizedArray._trusted(moved, fmt, x.shape, axes, x.dtype.name)


def _nonzeros(x: DeviceArray, fmt: Sparse, axes: tuple[int, ...], name: str, clipped: object = None) -> QuantizedArray:
    """Return the nonzeros of a pattern, quantized if the format says so."""
    plain, values, positions = _pruned_memory(x, fmt, axes, name)
    if x.size:
        with device_refusals(name.partition(":")[0], fmt):
            to = values.address, positions.address
            row = _core.prune(runtime.run_on(x.number, x.stream), x.view, None, fmt.n, fmt.m, axes, *to)
        refuse_row(row, name, x.shape, axes, plain, "NaN")
    if fmt.is_plain:
        parts: Any = {"values": values, "metadata": positions}
        return SparseArray._trusted(parts, plain, x.shape, axes, x.dtype.name)
    segments = _segments(values, fmt, x.shape[axes[-1]])
    q = _quantized(segments, fmt.base, (1, 2), name, clipped, (x.shape, axes))
    stored: Any = {**q._components, "metadata": positions}
    return QuantizedArray._trusted(stored, fmt, x.shape, axes, x.dtype.name)


def prune_on_device(w: object, pattern: tuple[int, int] | None, axis: object, scores: object) -> Any:
    """Prune an array on a device, as `prune`: N:M by magnitude."""
    name = "prune: w"
    if isinstance(w, PackedArray):
        raise WrongType(f"{name} is {w._named()}, expected an array of floats")
    if pattern is None or scores is not None:
        raise Unsupported(
            f"{name} is for {A_DEVICE}, whose kernel keeps N of M by magnitude, expected that and no scores: {TO_CPU}"
        )
    found, number = gathered("prune", w=w)
    x = on_their_device(w, found.get("w"), name, number)
    s = _nonzeros(x, Sparse(Float("fp32"), *pattern), normalize_axes(axis, x.ndim, "prune"), name)
    return s if is_on_device(w) else s.to("cpu")


def fake_quantize_on_device(w: object, fmt: Format | str, axis: object, clip: object, out: object) -> Any:
    """Round an array on a device, as `fake_quantize`."""
    fmt, name = as_format(fmt, "fake_quantize: format"), "fake_quantize: w"
    clipped = None if clip is None else _device_clip("fake_quantize", fmt, clip)
    if out is None:
        x, given = _device_floats("fake_quantize", w), None
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
            run = runtime.run_on(x.number, x.stream)
            _core.fake_quantize(run, x.view, core_format(fmt), axes, clipped, target.view)
    except (NotImplementedError, Refused):
        with device_refusals("fake_quantize", fmt):
            raise
    if target.stream != x.stream:
        settle(x.number, x.stream, target)
    return answer_of(target, w, out)


def _round_nonzeros(
    x: DeviceArray, fmt: Sparse, axes: tuple[int, ...], name: str, clipped: Any, target: DeviceArray
) -> None:
    """Round the nonzeros of a pattern; waits for nothing."""
    plain, values, positions = _pruned_memory(x, fmt, axes, name)
    run = runtime.run_on(x.number, x.stream, True)
    _core.prune(run, x.view, None, fmt.n, fmt.m, axes, values.address, positions.address)
    if not fmt.is_plain:
        segments = _segments(values, fmt, x.shape[axes[-1]])
        _core.fake_quantize(run, segments.view, core_format(fmt.base), (1, 2), clipped, segments.view)
    parts = {"codes": values.address, "metadata": positions.address}
    _core.dequantize(run, (core_format(plain), x.shape, axes, parts, 0, x.number), target.view)


def _pruned_memory(x: DeviceArray, fmt: Sparse, axes: tuple[int, ...], name: str) -> tuple[Sparse, Any, Any]:
    """Return the format of the nonzeros of x in a pattern, and memory for them and for their positions."""
    if fmt.is_plain and x.dtype != np.float32:
        raise Unsupported(f"{name} has dtype {x.dtype}, expected float32 on {A_DEVICE}: {TO_CPU}")
    plain = Sparse(Float("fp32"), fmt.n, fmt.m)
    layout = component_layout(plain, x.shape, axes, "float32")
    values, positions = (DeviceArray.empty(*layout[key][::-1], x.number, x.stream) for key in ("values", "metadata"))
    return plain, values, positions


def _segments(values: DeviceArray, fmt: Sparse, length: int) -> DeviceArray:
    """Return the nonzeros of a pattern with a dimension for those of a run."""
    count = fmt.stored_length(length)
    return values.reshaped((values.shape[0], values.shape[1] // max(count, 1), count))


def check_bias(added: DeviceArray, n: int, name: str) -> None:
    """Raise the error of a bias that the kernels do not read."""
    if added.shape != (n,):
        raise WrongValue(f"{name}: bias has shape {added.shape}, expected ({n},)")
    if added.dtype != np.float32 or (n > 1 and added.strides != (4,)):
        raise WrongType(f"{name}: bias is {added.dtype} with strides {added.strides}, expected contiguous float32")


def target_of(
    out: object,
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
            raise WrongType(f"{name}: out is in the memory of the CPU, expected an array on {KIND}:{number}")
        if out is not None and not (isinstance(out, np.ndarray) and out.dtype == np.float32 and out.shape == shape):
            raise WrongValue(f"{name}: out is {shown(out)}, expected a float32 ndarray with shape {shape}")
        return DeviceArray.empty(shape, _FLOAT32, number, stream)
    if isinstance(made, QuantizedArray):
        raise WrongType(f"{name}: out is {made._named()}, expected an array of float32")
    if made.stream != stream:
        wait(made.number, made.stream)
    if made.dtype != np.float32 or made.shape != shape:
        raise WrongValue(f"{name}: out is {made.dtype} with shape {made.shape}, expected float32 with shape {shape}")
    steps = c_strides(shape, 4)
    if made.strides != steps and any(n > 1 and a != b for n, a, b in zip(shape, made.strides, steps, strict=True)):
        raise Unsupported(f"{name}: out has strides {made.strides}, expected C order on {A_DEVICE}")
    first, end = made.address, made.address + made.nbytes
    for value in inputs:
        parts: Any = value.components.values() if isinstance(value, QuantizedArray) else (value,)
        for part in parts:
            if part is not None and part.address < end and first < _end(part):
                raise WrongValue(f"{name}: out shares memory with an input")
    return made


def _is_in_place(x: DeviceArray, made: object) -> bool:
    """Tell whether the result has the same memory as x."""
    return isinstance(made, DeviceArray) and (made.address, made.strides, made.dtype) == (x.address, x.strides, x.dtype)


def _end(array: DeviceArray) -> int:
    """Return the address after the last value, for strides that are not negative."""
    end = array.address + int(array.dtype.itemsize)
    for n, step in zip(array.shape, array.strides, strict=True):
        if step > 0:
            end += (n - 1) * step
    return end


def answer_of(target: DeviceArray, given: object, out: Any) -> Any:
    """Return a result on the device of the caller's array: unchanged, or copied to the CPU."""
    if out is None:
        if type(given) is DeviceArray:
            return target
        return in_callers_library(target, given) if is_device_input(given) else target.to_numpy()
    if not is_on_device(out):
        out[...] = target.to_numpy()
    return out


def copied_bytes(given: tuple[Any, ...], x: object, answer: int) -> tuple[int, int]:
    """Return the bytes that a call copies to the device and back."""
    at_home = [value for value in given if not is_device_input(value)]
    back = 0 if is_device_input(x) else answer
    return sum(value.nbytes for value in at_home), back
