"""Convolutions of ONNX by their definition, for machines without onnxruntime: any number of axes, groups, and codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.errors import WrongValue
from .quantizers import as_column, centred, saturated

Array = np.ndarray[Any, Any]


def padding_of(sizes: Any, kernel: Any, steps: Any, holes: Any, auto_pad: str, pads: Any) -> list[tuple[int, int]]:
    """Return the numbers of zeros before and after each axis."""
    if auto_pad == "VALID":
        return [(0, 0)] * len(sizes)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        pads = list(pads or [0] * 2 * len(sizes))
        return list(zip(pads[: len(sizes)], pads[len(sizes) :], strict=True))
    found = []
    for size, extent, step, hole in zip(sizes, kernel, steps, holes, strict=True):
        total = max((-(-size // step) - 1) * step + (extent - 1) * hole + 1 - size, 0)
        small, large = total // 2, total - total // 2
        found.append((small, large) if auto_pad == "SAME_UPPER" else (large, small))
    return found


def windows(x: Array, kernel: Any, steps: Any, holes: Any, around: list[tuple[int, int]]) -> Array:
    """Return the windows of a tensor with zeros around it: samples, channels, positions, axes of the window."""
    padded = np.pad(x, [(0, 0), (0, 0), *around])
    extents = [(n - 1) * hole + 1 for n, hole in zip(kernel, holes, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(padded, extents, axis=tuple(range(2, x.ndim)))
    return view[(slice(None),) * 2 + tuple(slice(None, None, n) for n in (*steps, *holes))]


def norm_pool(
    x: Array, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Any = None, kernel_shape: Any = (), p: int = 2,
    pads: object = None, strides: Any = None,
) -> tuple[Array]:  # fmt: skip
    axes, kernel = x.ndim - 2, list(kernel_shape)
    steps, holes = list(strides or [1] * axes), list(dilations or [1] * axes)
    around = padding_of(x.shape[2:], kernel, steps, holes, auto_pad, pads)
    if ceil_mode and auto_pad in ("", "NOTSET"):  # a last window may begin at a value or in the padding before it
        for i, (size, n, step, hole) in enumerate(zip(x.shape[2:], kernel, steps, holes, strict=True)):
            before, after = around[i]
            rest = (size + before + after - (n - 1) * hole - 1) % step
            more = step - rest if rest else 0
            starts_inside = size + before + after + more - (n - 1) * hole - 1 < size + before
            around[i] = (before, after + (more if starts_inside else 0))
    view = np.abs(windows(x, kernel, steps, holes, around).astype(np.float64)) ** p
    return ((view.sum(tuple(range(-axes, 0))) ** (1 / p)).astype(x.dtype),)


def convolve(
    x: Array, w: Array, bias: Array | None = None, auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1,
    kernel_shape: Any = None, pads: object = None, strides: Any = None,
) -> tuple[Array]:  # fmt: skip
    axes, kernel = x.ndim - 2, w.shape[2:]
    if w.ndim != x.ndim or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise WrongValue(f"filters of shape {w.shape} in {group} groups do not fit a tensor of shape {x.shape}")
    if kernel_shape and tuple(kernel_shape) != kernel:
        raise WrongValue(f"kernel_shape is {tuple(kernel_shape)}, but the filters have {kernel}")
    steps, holes = list(strides or [1] * axes), list(dilations or [1] * axes)
    around = padding_of(x.shape[2:], kernel, steps, holes, auto_pad, pads)
    view = windows(x, kernel, steps, holes, around)
    n, sizes, k = len(x), view.shape[2 : 2 + axes], len(w)
    rows = np.moveaxis(view, 1, 1 + axes).reshape(n, *sizes, group, w.shape[1], *kernel)
    parts = [
        rows[(slice(None),) * (1 + axes) + (g,)].reshape(-1, w[0].size) @ w[g * (k // group) : (g + 1) * (k // group)]
        .reshape(k // group, -1).T for g in range(group)
    ]  # fmt: skip
    y = np.moveaxis(np.concatenate(parts, -1).reshape(n, *sizes, k), -1, 1)
    return (np.ascontiguousarray(y if bias is None else y + bias.reshape(-1, *[1] * axes)).astype(x.dtype),)


def convolve_integers(
    x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None, **options: Any
) -> tuple[Array]:
    return (convolve(centred(x, x_zero, 1), centred(w, w_zero, 0), **options)[0].astype(np.int32),)


def quantized_convolve(
    x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array, y_scale: Array, y_zero: Array,
    bias: Array | None = None, **options: Any,
) -> tuple[Array]:  # fmt: skip
    wide = None if bias is None else bias.astype(np.int64)
    sums = convolve(centred(x, x_zero, 1), centred(w, w_zero, 0), wide, **options)[0].astype(np.float32)
    steps = x_scale.astype(np.float32).reshape(-1)[:1] * as_column(w_scale.astype(np.float32), sums.ndim, 1)
    rounded = np.rint((sums * (steps / y_scale.astype(np.float32).reshape(-1)[:1])).astype(np.float64))
    return (saturated(rounded + float(y_zero.reshape(-1)[0]), y_zero.dtype),)


CONVOLUTIONS: dict[str, Callable[..., Any]] = {
    "Conv": convolve,
    "ConvInteger": convolve_integers,
    "LpPool": norm_pool,
    "QLinearConv": quantized_convolve,
}
