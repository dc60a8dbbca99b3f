"""The operators of `interop.torch` for tensors on a CUDA device, on the current stream of PyTorch.

    stream       torch.cuda.current_stream(device)
    memory       from PyTorch's allocator: results, and the scratch memory of kernels during a call
    waiting      none, so that a CUDA graph can capture every call

A call that does not wait cannot raise for a value. So the result is NaN where the CPU raises for NaN or infinity in x.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch

from ... import _heterocompute as _core
from ...arrays.components import component_layout, core_format, stored_format
from ...arrays.device import DEFAULT_STREAM
from ...base.cuda import devices
from ...base.errors import refusals, unsupported
from ...base.runtime import device_order
from ...base.texts import counted
from ...base.values import shown
from ...formats import Float, Format, Sparse, has_pattern
from ...products.arguments import as_format, core_clip
from ...products.device_conv import convolution_window
from ...products.quantize import fake_quantize
from ...products.window import as_window
from ...training.passing import bounds_of
from ...training.stochastic import levels_of

__all__ = ["convolved", "decoded", "passed", "product", "rounded"]

NAMES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
Packed = tuple[Format, tuple[int, ...], tuple[int, ...], Mapping[str, Any]]  # the components are tensors


def product(x: Any, q: Packed, activations: str) -> Any:
    """Return ``x @ q.T`` as float32."""
    n, k = q[1]
    if x.dim() == 0 or x.shape[-1] != k:
        had = f"{counted(x.shape[-1], 'feature')}" if x.dim() else "no dimensions"
        raise ValueError(f"linear: x has {had} but q has {counted(k, 'column')}")
    fmt = as_format(activations, "linear: activations") if activations else None
    y = x.new_empty((*x.shape[:-1], n), dtype=torch.float32)
    if y.numel() == 0:
        return y
    rows, answer = _view(x), _view(y)
    if x.dim() == 1:
        rows = *rows[:2], (1, k), (0, *rows[3])
        answer = *answer[:2], (1, n), (0, *answer[3])
    with _refusals("linear", fmt):
        core = None if fmt is None else core_format(fmt)
        _core.cuda_matmul(*_start(x), rows, False, core, _packed(q, x), 0, answer, device_order())
    return y


def convolved(x: Any, q: Packed, window: Any, activations: str) -> Any:
    """Return the float32 convolution of images (N, C, H, W); window is stride, padding, dilation and groups."""
    stride, padding, dilation, groups = window
    where = as_window("conv2d", x.shape[2:], q[1][2:], stride, padding, dilation, groups, x.shape[1])
    core_window = convolution_window(where, x.shape[1], q[1])
    fmt = as_format(activations, "conv2d: activations") if activations else None
    y = x.new_empty((x.shape[0], q[1][0], *where.answer), dtype=torch.float32)
    if y.numel() == 0:
        return y
    with _refusals("conv2d", fmt):
        core = None if fmt is None else core_format(fmt)
        _core.cuda_conv2d(*_start(x), _view(x), core, _packed(q, x), core_window, False, 0, _view(y))
    return y


def decoded(q: Packed) -> Any:
    """Return the float32 values of a packed weight."""
    first = next(iter(q[3].values()))
    y = first.new_empty(q[1], dtype=torch.float32)
    if y.numel():
        with _refusals("dequantize", q[0]):
            _core.cuda_dequantize(*_start(first), _packed(q, first), _view(y))
    return y


def rounded(t: Any, fmt: Format, axes: tuple[int, ...], clip: Any, rounding: str, seed: int) -> tuple[Any, Any]:
    """Return the rounded values in the dtype of t, and the factor of their gradient; an empty tensor stands for 1."""
    if has_pattern(fmt):
        y, note = _of_pattern(t, fmt, axes, clip, rounding, seed)
    else:
        y, note = _rounded(t, fmt, axes, clip, rounding, seed)
    return y.to(t.dtype), t.new_empty(0, dtype=torch.uint8) if note is None else note


def _rounded(t: Any, fmt: Format, axes: tuple[int, ...], clip: Any, rounding: str, seed: int) -> tuple[Any, Any]:
    """Return the rounded values and the factor of their gradient as float32, None for 1."""
    levels: Any = levels_of(fmt) if rounding == "stochastic" else None
    if levels is not None and not fmt.form.has_scales:
        raise NotImplementedError(
            f"fake_quantize: fmt is {fmt}, expected a format with scales for stochastic rounding on a CUDA device: "
            "pass .cpu() of t"
        )
    y, bounds = t.new_empty(t.shape, dtype=torch.float32), bounds_of(fmt, clip)
    taken = None if clip is None or t.numel() == 0 else Clip(t, fmt, axes, clip)
    more = () if taken is None else (taken.clip, taken.thresholds.data_ptr())
    with _refusals("fake_quantize", fmt):
        if t.numel() and levels is None:
            _core.cuda_fake_quantize(*_start(t), _view(t), core_format(fmt), axes, _view(y), *more)
        elif t.numel():
            parts = _parts(t, component_layout(fmt, tuple(t.shape), axes))
            scales = _packed((fmt, tuple(t.shape), axes, parts), t)
            _core.cuda_round_by_chance(*_start(t), _view(t), scales, levels, seed, _view(y), *more)
    if bounds is None:
        return y, None
    ends: tuple[Any, Any] = bounds if taken is None else (taken.expanded().mul(bounds[0]), taken.expanded())
    low, high = ends
    single = t.to(torch.float32)
    note = single.ge(low).logical_and(single.le(high)).to(torch.float32)
    if isinstance(clip, str) and clip == "octav" and taken is not None:  # beyond, the bound divided by the value
        beyond = low.where(single.lt(0.0), high).to(torch.float64).div(t.to(torch.float64)).to(torch.float32)
        note = note.where(note.gt(0.0), beyond)
    return y, note


def _of_pattern(t: Any, fmt: Any, axes: tuple[int, ...], clip: Any, rounding: str, seed: int) -> tuple[Any, Any]:
    """Round the nonzeros of a pattern; the gradient also passes where the pattern has zeros."""
    shape, plain = tuple(t.shape), Sparse(Float("fp32"), fmt.n, fmt.m)
    layout = component_layout(plain, shape, axes)
    rows, columns = layout["values"][1]
    values = t.new_empty((rows, columns), dtype=torch.float32)
    metadata = t.new_empty(layout["metadata"][1], dtype=torch.uint8)
    with _refusals("fake_quantize", fmt):
        if t.numel():
            addresses = values.data_ptr(), metadata.data_ptr()
            _core.cuda_prune(*_start(t), _view(t), fmt.n, fmt.m, axes, *addresses)

    def spread(kept: Any) -> Any:
        """Return nonzeros expanded with zeros. A NaN marks a value that the format lacks; all values are then NaN."""
        y = t.new_empty(shape, dtype=torch.float32)
        if t.numel():
            packed = core_format(plain), shape, axes, {"codes": kept.data_ptr(), "metadata": metadata.data_ptr()}
            _core.cuda_dequantize(*_start(t), packed, _view(y))
            y = y.masked_fill(kept.isnan().any(), float("nan"))
        return y

    if fmt.is_plain:
        if clip is not None:
            raise ValueError(f"fake_quantize: clip is {shown(clip)}, but {fmt} has no scale")
        return spread(values), None
    count = fmt.stored_length(shape[axes[-1]])
    segments = values.reshape((rows, columns // max(count, 1), count))
    rounded_segments, note = _rounded(segments, fmt.base, (1, 2), clip, rounding, seed)
    y = spread(rounded_segments)
    if note is None:
        return y, None
    found = spread(note.masked_fill(note.eq(0.0), 2.0))  # 0: nothing is kept there
    return y, found.masked_fill(found.eq(0.0), 1.0).masked_fill(found.eq(2.0), 0.0)


def _parts(t: Any, layout: Mapping[str, Any]) -> dict[str, Any]:
    """Allocate memory for the components of a layout, as bytes."""
    return {
        name: t.new_empty(max(prod(size) * of.itemsize, 1), dtype=torch.uint8) for name, (of, size) in layout.items()
    }


class Clip:
    """The threshold of each group, which the kernels leave in memory of PyTorch."""

    def __init__(self, t: Any, fmt: Format, axes: tuple[int, ...], clip: Any) -> None:
        if isinstance(clip, str) and clip == "search":
            raise NotImplementedError(
                f"fake_quantize: clip is 'search' with {fmt}, expected a fraction, 'octav' or 'percentile:p' on a CUDA "
                "device: pass .cpu() of t"
            )
        check_clip(fmt, clip)
        self.clip = core_clip(clip, "fake_quantize")
        self.order = [*(axis for axis in range(t.dim()) if axis not in axes), *axes]
        self.shape = [t.shape[axis] for axis in self.order]
        length, runs = t.shape[axes[-1]], prod(t.shape[axis] for axis in axes[:-1])
        if not fmt.group:
            length, runs = length * runs, 1
        self.group, self.length = fmt.group or length, length
        sizes = t.numel() // (length * runs), runs, -(-length // self.group)
        self.thresholds = t.new_empty(sizes, dtype=torch.float32)  # (rows, runs, groups of a run)

    def expanded(self) -> Any:
        """Return the threshold of each value."""
        each = self.thresholds.repeat_interleave(self.group, 2).narrow(2, 0, self.length).reshape(self.shape)
        return each.permute(sorted(range(len(self.order)), key=self.order.__getitem__))


@lru_cache(maxsize=256)
def check_clip(fmt: Format, clip: Any) -> None:
    """Raise the error of the CPU if a format does not support clip."""
    fake_quantize(np.zeros((1, max(fmt.group or 1, 1)), np.float32), fmt, -1, clip)


def passed(g: Any, note: Any) -> Any:
    """Return the passing part of a gradient, in the dtype of g."""
    return g.to(torch.float32).mul(note).to(g.dtype)


@contextmanager
def _refusals(name: str, fmt: Any) -> Iterator[None]:
    """Add the caller, its format and the copy to the CPU to errors of the core."""
    try:
        with refusals(format=(f"{name}: {fmt}", None)):
            yield
    except NotImplementedError as problem:
        raise unsupported(name, problem) from None


def _start(t: Any) -> tuple[int, int, Callable[[int], int]]:
    """Return device and stream of a call, and a function that allocates memory until the call ends."""
    devices()  # opens the driver
    kept = []

    def allocate(nbytes: int) -> int:
        made = t.new_empty(nbytes, dtype=torch.uint8)
        kept.append(made)  # until the call ends; later work of the stream may reuse the memory
        return int(made.data_ptr())

    number = t.device.index or 0
    return number, torch.cuda.current_stream(number).cuda_stream or DEFAULT_STREAM, allocate


def _view(t: Any) -> tuple[int, str, tuple[int, ...], tuple[int, ...]]:
    """Return a tensor in the form that the core accepts; it must not have a pending negation."""
    size = t.element_size()
    return t.data_ptr(), NAMES[t.dtype], tuple(t.shape), tuple(step * size for step in t.stride())


def _packed(q: Packed, near: Any) -> tuple[Any, ...]:
    """Return a packed weight in the form that the core accepts; its components are contiguous."""
    fmt, shape, axis, parts = q
    wrong: Sequence[Any] = [part.device for part in parts.values() if part.device != near.device]
    if wrong:
        raise TypeError(
            f"interop.torch: the packed weight is on {wrong[0]}, expected {near.device}: move the model there"
        )
    addresses = {name: part.data_ptr() for name, part in parts.items()}
    if "values" in parts:
        fmt, addresses["codes"] = stored_format(fmt, NAMES[parts["values"].dtype]), addresses["values"]
    return core_format(fmt), shape, axis, addresses
