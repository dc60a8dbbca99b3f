"""`conv2d` of arrays on a CUDA device: filters are quantized, results are those of ``algorithm="direct"``."""

from __future__ import annotations

from math import prod
from typing import Any

from .. import _heterocompute as _core
from ..arrays.components import core_format
from ..arrays.device import c_strides
from ..arrays.device_quantized import DeviceQuantizedArray
from ..arrays.quantized import QuantizedArray
from ..base.errors import TO_CPU, Refused, Unsupported, WrongType, WrongValue, shown
from ..base.texts import counted
from .arguments import as_format
from .device import (
    answer_of,
    check_bias,
    described,
    gathered,
    on_their_device,
    refusals_there,
    settle,
    target_of,
)
from .window import Window, as_window

__all__ = ["conv2d_on_device", "convolution_kernels", "convolution_window"]

CoreWindow = tuple[tuple[int, int], tuple[int, int], tuple[int, int], int]


def conv2d_on_device(
    x: Any,
    w: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    activations: Any,
    algorithm: Any,
    layout: str,
    out: Any,
    relu: bool,
) -> Any:
    """Convolve images on a device, as `conv2d`; layout and relu are checked."""
    name = "conv2d"
    if not isinstance(w, (QuantizedArray, DeviceQuantizedArray)):
        raise Unsupported(
            "conv2d: w is not quantized, expected quantized filters: CUDA kernels have no dense convolution; quantize "
            "w along (2, 3, 1), or use torch"
        )
    if w.ndim != 4 or w.axis != (2, 3, 1):
        raise WrongValue(f"conv2d: w has shape {w.shape} and axis {w.axis}, expected four dimensions and (2, 3, 1)")
    if algorithm not in ("auto", "direct"):
        raise Unsupported(
            f"conv2d: algorithm is {shown(algorithm)}, expected 'auto' or 'direct' on a CUDA device: {TO_CPU}"
        )
    fmt = None if activations is None else as_format(activations, "conv2d: activations")
    found, number = gathered(name, x=x, w=w, bias=bias, out=out)
    image = on_their_device(x, found.get("x"), "conv2d: x", number)
    if isinstance(image, DeviceQuantizedArray):
        raise WrongType("conv2d: x is quantized, expected images of floats and activations=")
    if image.ndim != 4:
        raise WrongValue(f"conv2d: x has shape {image.shape}, expected four dimensions, {' '.join(layout)}")
    stream = image.stream
    filters = on_their_device(w, found.get("w"), "conv2d: w", number, stream)
    nchw = image if layout == "NCHW" else image.transposed((0, 3, 1, 2))
    window = as_window(name, nchw.shape[2:], filters.shape[2:], stride, padding, dilation, groups, nchw.shape[1])
    core_window = convolution_window(window, nchw.shape[1], filters.shape)
    added = None
    if bias is not None:
        added = on_their_device(bias, found.get("bias"), "conv2d: bias", number, stream)
        check_bias(added, filters.shape[0], name)
    shape = (nchw.shape[0], filters.shape[0], *window.answer)
    final = shape if layout == "NCHW" else (shape[0], shape[2], shape[3], shape[1])
    target = target_of(out, found.get("out"), final, name, image.number, stream, (image, filters, added))
    if target.size == 0:
        return answer_of(target, x, out)
    to = target if layout == "NCHW" else target.transposed((0, 3, 1, 2))
    core = None if fmt is None else core_format(fmt)
    address = 0 if added is None else added.address
    try:
        _core.cuda_conv2d(
            *(image.number, stream, None, nchw.view, core, filters._packed(), core_window, relu, address, to.view)
        )
    except (NotImplementedError, Refused):
        with refusals_there("conv2d", fmt):
            raise
    settle(image.number, stream, filters, added, target)
    return answer_of(target, x, out)


def convolution_window(window: Window, channels: int, filters: tuple[int, ...]) -> CoreWindow:
    """Return a window in the form that the core accepts, after a check of the channels."""
    if channels != filters[1] * window.groups or filters[0] % window.groups:
        raise WrongValue(
            f"conv2d: x has {counted(channels, 'channel')} and w {filters[0]} filters of {filters[1]} with "
            f"{counted(window.groups, 'group')}, expected channels / groups in each filter"
        )
    return window.stride, window.before, window.dilation, window.groups


def convolution_kernels(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    activations: Any = None,
    algorithm: Any = "auto",
    layout: str = "NCHW",
    out: Any = None,
    relu: bool = False,
    accuracy: Any = "default",
) -> tuple[list[str], int]:
    """Return the kernels of a convolution in the order of their launches, and the number of values of its result.

    x is an ndarray or a DeviceArray; NotImplementedError if there are no kernels.
    """
    order = (0, 1, 2, 3) if layout == "NCHW" else (0, 3, 1, 2)
    shape = tuple(x.shape[axis] for axis in order)
    window = as_window("conv2d", shape[2:], w.shape[2:], stride, padding, dilation, groups, shape[1])
    core_window = convolution_window(window, shape[1], w.shape)
    answer = (shape[0], w.shape[0], *window.answer)
    fmt = None if activations is None else core_format(as_format(activations, "conv2d: activations"))
    given, to = (
        (0, x.dtype.name, shape, c_strides(shape, x.dtype.itemsize)),
        (0, "float32", answer, c_strides(answer, 4)),
    )
    _, steps = _core.cuda_steps("conv2d", (0, 0, None, given, fmt, described(w), core_window, relu, 0, to))
    return [step[0] for step in steps], prod(answer)
