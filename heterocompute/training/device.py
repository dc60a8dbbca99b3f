"""Rounding with a gradient for arrays on a device, with the bits of the CPU.

The kernels write the rounded values, and in C order where the gradient passes: a byte per value, or a float32 factor
for OCTAV and patterns. A trained scale has the slope of each value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .. import _heterocompute as _core
from ..arrays.base import PackedArray
from ..arrays.components import component_layout, core_format
from ..arrays.dense import as_array, normalize_axes
from ..arrays.device import DeviceArray, c_strides
from ..arrays.memory import Memory, memory_of
from ..base import runtime
from ..base.devices import KIND, wait
from ..base.errors import Refused, WrongType, WrongValue, shown
from ..formats import Float, Format, Sparse, has_pattern
from ..products.arguments import core_clip
from ..products.device import (
    answer_of,
    device_refusals,
    gathered,
    is_device_input,
    on_their_device,
    refuse_searched_clip,
    settle,
)
from ..products.quantize import fake_quantize
from .learned_scale import check_scaled, scale_shape
from .passing import bounds_of
from .stochastic import levels_of

NAME = "fake_quantize: w"
NONE, BYTES, FLOATS, OCTAV, SLOPES = range(5)  # kinds of notes of the core


def rounded_on_device(
    w: object, fmt: Format, axis: object, clip: object, rounding: str, seed: int, scale: object
) -> tuple[Any, Callable[[Any], Any]]:
    """Round an array on a device, as `heterocompute.training.fake_quantize`."""
    if isinstance(w, PackedArray):
        raise WrongType(f"{NAME} is {w._named()}, expected an array of floats")
    found, number = gathered("fake_quantize", w=w, scale=scale)
    x = on_their_device(w, found.get("w"), NAME, number)
    axes = normalize_axes(axis, x.ndim, "fake_quantize")
    if scale is not None:
        check_scaled(fmt)
        given = on_their_device(scale, found.get("scale"), "fake_quantize: scale", number, x.stream)
        return _with_scale(w, x, fmt, axes, given)
    y, note = device_rounded(memory_of(x), x.view, fmt, axes, clip, rounding, seed)
    of = _Rounded(x.shape, x.number, x.stream, is_device_input(w))

    def back(g: object) -> Any:
        given = _gradient(g, of)
        if note is None and given.dtype == np.float32:
            return g
        passed = device_passed(memory_of(given), given.view, note)
        settle(given.number, given.stream, note)
        return answer_of(passed, g, None)

    return answer_of(y, w, None), back


class _Rounded(NamedTuple):
    """Properties of the rounded array that its gradient needs. The memory of the array is not held."""

    shape: tuple[int, ...]
    number: int
    stream: int
    was_on_device: bool  # otherwise `use` copied it from the CPU


def _gradient(g: object, of: _Rounded) -> DeviceArray:
    """Return a gradient on the device of the rounded array, after its checks."""
    found, number = gathered("back", g=g)
    if not found and not of.was_on_device:
        given = DeviceArray.from_numpy(as_array(g, "back: g"), of.number, of.stream)
    else:
        given = on_their_device(g, found.get("g"), "back: g", number)
    if given.shape != of.shape:
        raise WrongValue(f"back: g has shape {given.shape}, expected {of.shape}")
    if given.number != of.number:
        raise WrongValue(f"back: g is on {given.device}, expected {KIND}:{of.number}")
    if given.stream != of.stream:  # of the note
        wait(of.number, of.stream)
    return given


def device_rounded(
    memory: Memory, x: object, fmt: Format, axes: tuple[int, ...], clip: object, rounding: str, seed: int
) -> tuple[Any, Any]:
    """Return the rounded values, and a note of where the gradient passes, None for everywhere.

    Parameters
    ----------
    x : tuple
        View of the values, in the form that the core accepts.
    fmt, axes, clip, rounding, seed
        As in `heterocompute.training.fake_quantize`; rounding and seed are checked.
    """
    refuse_searched_clip("fake_quantize", fmt, clip)
    base = fmt.base if has_pattern(fmt) else fmt
    levels = levels_of(base) if rounding == "stochastic" else None
    if clip is not None:
        check_clip(fmt, clip)
    if not has_pattern(fmt):
        return _rounded(memory, x, fmt, axes, clip, levels, seed, False)
    return _of_pattern(memory, x, fmt, axes, clip, levels, seed)


def _rounded(
    memory: Memory,
    x: Any,
    fmt: Format,
    axes: tuple[int, ...],
    clip: Any,
    levels: Any,
    seed: int,
    is_of_pattern: bool,
) -> tuple[Any, Any]:
    shape, bounds = x[2], bounds_of(fmt, clip)
    y, note, noted = memory.empty(shape, "float32"), None, None
    if bounds is not None:
        kind = OCTAV if clip == "octav" else FLOATS if is_of_pattern else BYTES
        note = memory.empty(shape, "uint8" if kind == BYTES else "float32")
        noted = memory.address(note), kind, *bounds
    if prod(shape) == 0:
        return y, note
    of_core = core_clip(clip, "fake_quantize")
    try:
        if levels is None:
            _core.fake_quantize(memory.run(), x, core_format(fmt), axes, of_core, memory.view(y), noted)
        else:
            layout = component_layout(fmt, shape, axes)
            sizes = {name: max(prod(size) * of.itemsize, 1) for name, (of, size) in layout.items()}
            parts = {name: memory.empty((nbytes,), "uint8") for name, nbytes in sizes.items()}
            addresses = {name: memory.address(part) for name, part in parts.items()}
            packed = core_format(fmt), shape, axes, addresses, 0, memory.number
            more = infinity_of(fmt), of_core, noted
            _core.round_by_chance(memory.run(), x, packed, levels, seed, memory.view(y), *more)
    except (NotImplementedError, Refused):
        with device_refusals("fake_quantize", fmt):  # entering it takes longer than the call
            raise
    return y, note


def _of_pattern(
    memory: Memory, x: Any, fmt: Sparse, axes: tuple[int, ...], clip: object, levels: object, seed: int
) -> tuple[Any, Any]:
    """Round the nonzeros of a pattern; the gradient also passes where the pattern has zeros."""
    shape, plain = x[2], Sparse(Float("fp32"), fmt.n, fmt.m)
    layout = component_layout(plain, shape, axes)
    rows, columns = layout["values"][1]
    values, metadata = memory.empty((rows, columns), "float32"), memory.empty(layout["metadata"][1], "uint8")
    if prod(shape) > 0:
        with device_refusals("fake_quantize", fmt):
            to = memory.address(values), memory.address(metadata)
            _core.prune(memory.run(waits=False), x, None, fmt.n, fmt.m, axes, *to)

    def spread(kept: object, between: float) -> Any:
        y = memory.empty(shape, "float32")
        if prod(shape) > 0:
            parts = {"codes": memory.address(kept), "metadata": memory.address(metadata)}
            packed = core_format(plain), shape, axes, parts, 0, memory.number
            _core.dequantize(memory.run(), packed, memory.view(y), between)
        return y

    if fmt.is_plain:
        return spread(values, 0.0), None
    count = fmt.stored_length(shape[axes[-1]])
    segments = rows, columns // max(count, 1), count
    view = memory.address(values), "float32", segments, c_strides(segments, 4), memory.number
    y, note = _rounded(memory, view, fmt.base, (1, 2), clip, levels, seed, True)
    return spread(y, 0.0), None if note is None else spread(note, 1.0)


def device_passed(memory: Memory, g: Any, note: Any) -> Any:
    """Return the passing part of a gradient in float32; g is its view."""
    y = memory.empty(g[2], "float32")
    if prod(g[2]) > 0:
        kind = NONE if note is None else BYTES if str(note.dtype).endswith("uint8") else FLOATS
        noted = 0 if note is None else memory.address(note), kind, 0.0, 0.0
        _core.keep_inside(memory.run(), g, None, None, noted, memory.view(y))
    return y


def _with_scale(
    w: object, x: DeviceArray, fmt: Format, axes: tuple[int, ...], scale: DeviceArray
) -> tuple[Any, Callable[[Any], Any]]:
    """Round to integers with a trained scale, as `rounded_with_scale`."""
    shape, core = scale_shape(fmt, x.shape, axes, scale.shape), core_format(fmt)
    y, slopes = (DeviceArray.empty(x.shape, np.float32, x.number, x.stream) for _ in range(2))
    if x.size:
        with device_refusals("fake_quantize", fmt):
            run = runtime.run_on(x.number, x.stream)
            _core.scaled_steps(run, x.view, core, axes, scale.view, y.view, slopes.address)
        settle(x.number, x.stream, scale)

    of = _Rounded(x.shape, x.number, x.stream, is_device_input(w))

    def back(g: object) -> tuple[Any, Any]:
        given = _gradient(g, of)
        run = runtime.run_on(given.number, given.stream)
        of_w = DeviceArray.empty(of.shape, np.float32, given.number, given.stream)
        of_scale = DeviceArray.from_numpy(np.zeros(shape, np.float32), given.number, given.stream)
        if given.size:
            _core.keep_inside(run, given.view, None, None, (slopes.address, SLOPES, 0.0, 0.0), of_w.view)
            _core.slope_sums(run, given.view, core, axes, slopes.address, of_scale.address)
        settle(given.number, given.stream, slopes)
        return answer_of(of_w, g, None), answer_of(of_scale, g, None)

    return answer_of(y, w, None), back


@lru_cache(maxsize=64)
def infinity_of(fmt: Format) -> float:
    """Return the rounded value of infinity in a format without scales; 0 for formats that refuse it."""
    return 0.0 if fmt.form.has_scales else float(fake_quantize(np.full(1, np.inf, np.float32), fmt)[0])


@lru_cache(maxsize=256)
def check_clip(fmt: Format, clip: object) -> None:
    """Raise the error of the CPU if a format does not support clip."""
    if has_pattern(fmt) and fmt.is_plain:
        raise WrongValue(f"fake_quantize: clip is {shown(clip)}, but {fmt} has no scale")
    base = fmt.base if has_pattern(fmt) else fmt
    fake_quantize(np.zeros((1, max(base.group or 1, 1)), np.float32), base, -1, clip)
