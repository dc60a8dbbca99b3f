"""The operators of `interop.torch` for tensors on a CUDA device, on the current stream of PyTorch.

    stream       torch.cuda.current_stream(device)
    memory       of PyTorch's allocator alone: answers, and what the kernels need for the time of a call
    waiting      none, so that a CUDA graph can capture every call

A call that waits for nothing cannot raise for a value: an answer is NaN where the CPU's refuses NaN or infinity in x.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch

from ... import _heterocompute as _core
from ...arrays.components import component_layout, core_format
from ...arrays.device import DEFAULT_STREAM
from ...base.cuda import devices
from ...base.errors import refusals
from ...base.runtime import device_order
from ...base.texts import counted
from ...formats import Format, has_pattern
from ...products.arguments import as_format
from ...products.device_conv import convolution_window
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
Packed = tuple[Format, tuple[int, ...], tuple[int, ...], Mapping[str, Any]]  # its parts are tensors


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
    with refusals(format=(f"linear: {fmt}", None)):
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
    with refusals(format=(f"conv2d: {fmt}", None)):
        core = None if fmt is None else core_format(fmt)
        _core.cuda_conv2d(*_start(x), _view(x), core, _packed(q, x), core_window, False, 0, _view(y))
    return y


def decoded(q: Packed) -> Any:
    """Return the float32 values of a packed weight."""
    first = next(iter(q[3].values()))
    y = first.new_empty(q[1], dtype=torch.float32)
    if y.numel():
        _core.cuda_dequantize(*_start(first), _packed(q, first), _view(y))
    return y


def rounded(t: Any, fmt: Format, axes: tuple[int, ...], clip: Any, rounding: str, seed: int) -> tuple[Any, Any]:
    """Return the rounded values in the dtype of t, and the factor of their gradient: no values stand for 1."""
    if clip is not None or has_pattern(fmt):
        what = f"fmt is {fmt}" if clip is None else "clip is given"
        raise NotImplementedError(
            f"fake_quantize: {what}, expected no pattern and no clip on a CUDA device: pass .cpu() of t"
        )
    levels: Any = levels_of(fmt) if rounding == "stochastic" else None
    if levels is not None and not fmt.form.has_scales:
        raise NotImplementedError(
            f"fake_quantize: fmt is {fmt}, expected a format with scales for stochastic rounding on a CUDA device: "
            "pass .cpu() of t"
        )
    y, bounds = t.new_empty(t.shape, dtype=torch.float32), bounds_of(fmt, None)
    with refusals(format=(f"fake_quantize: {fmt}", None)):
        if t.numel() and levels is None:
            _core.cuda_fake_quantize(*_start(t), _view(t), core_format(fmt), axes, _view(y))
        elif t.numel():
            layout = component_layout(fmt, tuple(t.shape), axes)
            kinds = {name: prod(size) * of.itemsize for name, (of, size) in layout.items()}
            parts = {name: t.new_empty(max(nbytes, 1), dtype=torch.uint8) for name, nbytes in kinds.items()}
            scales = _packed((fmt, tuple(t.shape), axes, parts), t)
            _core.cuda_round_by_chance(*_start(t), _view(t), scales, levels, seed, _view(y))
    if bounds is None:
        note = t.new_empty(0, dtype=torch.uint8)
    else:
        single = t.to(torch.float32)
        note = single.ge(bounds[0]).logical_and(single.le(bounds[1])).to(torch.float32)
    return y.to(t.dtype), note


def passed(g: Any, note: Any) -> Any:
    """Return the gradient that passes, in the dtype of g."""
    return g.to(torch.float32).mul(note).to(g.dtype)


def _start(t: Any) -> tuple[int, int, Callable[[int], int]]:
    """Return device and stream of a call, and the function that allocates for its time."""
    devices()  # opens the driver
    kept = []

    def allocate(nbytes: int) -> int:
        made = t.new_empty(nbytes, dtype=torch.uint8)
        kept.append(made)  # as long as the call: then PyTorch may use the memory for what comes later on the stream
        return int(made.data_ptr())

    number = t.device.index or 0
    return number, torch.cuda.current_stream(number).cuda_stream or DEFAULT_STREAM, allocate


def _view(t: Any) -> tuple[int, str, tuple[int, ...], tuple[int, ...]]:
    """Return a tensor as the core accepts it; its bits are its values."""
    size = t.element_size()
    return t.data_ptr(), NAMES[t.dtype], tuple(t.shape), tuple(step * size for step in t.stride())


def _packed(q: Packed, near: Any) -> tuple[Any, ...]:
    """Return a packed weight as the core accepts it; its parts are contiguous."""
    fmt, shape, axis, parts = q
    wrong: Sequence[Any] = [part.device for part in parts.values() if part.device != near.device]
    if wrong:
        raise TypeError(
            f"interop.torch: the packed weight is on {wrong[0]}, expected {near.device}: move the model there"
        )
    return core_format(fmt), shape, axis, {name: part.data_ptr() for name, part in parts.items()}
