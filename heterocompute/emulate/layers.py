"""Layers of a network whose products are emulated: the input quantized on the fly, the bias added last in float32."""

from __future__ import annotations

from dataclasses import replace
from math import lcm
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..arrays.array_like import ArrayLike
from ..arrays.dense import as_array
from ..arrays.quantized import QuantizedArray
from ..base.errors import WrongValue
from ..base.float_env import counts_subnormals
from ..formats import Format
from ..products.arguments import Array, as_bias
from ..products.quantize import quantize
from ..products.window import Padding, as_window
from .codes import LOG_ZERO, Codes, code_runs, multiply_codes, quantized
from .floats import rounded_to
from .model import Model, as_operand, parse_model
from .product import matmul
from .text import parse

_WINDOW_VALUES = 1 << 22  # gathered at a time


@counts_subnormals
def linear(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    activations: Format | str | None = None,
    emulate: str = "int32",
) -> Array:
    """Apply a linear layer on emulated hardware and return ``matmul(x, w.T) + bias``.

    Parameters
    ----------
    x : array_like or QuantizedArray, shape (..., in_features)
    w : array_like or QuantizedArray, shape (out_features, in_features)
    bias : array_like, shape (out_features,), optional
        Added last, in float32.
    activations : Format or str, optional
        Quantize x on the fly.
    emulate : str
        As accepted by `parse`. Instructions that multiply float16 round their operands to float16.

    Returns
    -------
    ndarray of float32, shape (..., out_features)

    Raises
    ------
    ValueError
        The shapes do not match, or the emulation does not support the operands, see `accepts`.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> w = hc.quantize(np.full((1, 300), 0.5, np.float32), "int8")
    >>> x = np.ones((1, 300), np.float32)
    >>> hc.emulate.linear(x, w, None, "int8"), hc.emulate.linear(x, w, None, "int8", "int16-sat").round(2)
    (array([[150.]], dtype=float32), array([[1.02]], dtype=float32))
    """
    options, model = _model(emulate)
    left, weights = as_operand(x, "x"), as_operand(w, "w")
    if weights.ndim != 2 or not left.ndim or left.shape[-1] != weights.shape[1]:
        raise WrongValue(
            f"emulate.linear: x has shape {left.shape} and w {weights.shape}, expected (..., k) and (n, k)"
        )
    bias_array = as_bias(bias, weights.shape[0], "emulate.linear")
    if activations is not None:
        left = quantize(left, activations)
    if model.inputs is not None:
        left, weights = _held(left, model.inputs), _held(weights, model.inputs)
    y = matmul(left, weights.T, **options)
    return y if bias_array is None else y + bias_array


@counts_subnormals
def conv2d(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    stride: int | tuple[int, int] = 1,
    padding: Padding = 0,
    activations: Format | str | None = None,
    emulate: str = "int32",
    *,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
) -> Array:
    """Convolve images with filters on emulated hardware, adding the values of a window in the order r, s, c.

    Parameters
    ----------
    x : array_like, shape (N, C, H, W)
    w : array_like or QuantizedArray, shape (K, C / groups, R, S)
        Quantized with ``axis=(2, 3, 1)``, or to a format without an axis.
    bias : array_like, shape (K,), optional
        Added last, in float32.
    stride : int or pair
    padding : int, pair, two pairs, "same" or "valid"
    activations : Format or str, optional
        Quantize x on the fly as `heterocompute.conv2d` does: one row per image, groups of the format along the channels
        within one convolution group.
    emulate : str
        As accepted by `parse`. Instructions that multiply float16 round their operands to float16.
    dilation : int or pair
    groups : int
        Number of independent convolutions that the channels of x and the filters are split into.

    Returns
    -------
    ndarray of float32, shape (N, K, P, Q)
        With ``"int32"`` bitwise identical to `heterocompute.conv2d`, if the sums fit.

    Raises
    ------
    ValueError
        The shapes do not match, or the emulation does not support the operands, see `accepts`.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((2, 8, 5, 5), dtype=np.float32)
    >>> w = hc.quantize(rng.standard_normal((4, 8, 3, 3), dtype=np.float32), "vsq4-g16-s4", axis=(2, 3, 1))
    >>> exact = hc.conv2d(x, w, padding=1, activations="int8")
    >>> bool((hc.emulate.conv2d(x, w, padding=1, activations="int8") == exact).all())
    True
    """
    options, model = _model(emulate)
    image, filters = as_array(x, "emulate.conv2d: x"), as_operand(w, "w")
    shapes = f"x has shape {image.shape} and w {filters.shape}"
    if image.ndim != 4 or filters.ndim != 4:
        raise WrongValue(f"emulate.conv2d: {shapes}, expected (N, C, H, W) and (K, C / groups, R, S)")
    window = as_window(
        "emulate.conv2d", image.shape[2:], filters.shape[2:], stride, padding, dilation, groups, image.shape[1]
    )
    parts = window.groups
    if image.shape[1] != parts * filters.shape[1] or filters.shape[0] % parts:
        raise WrongValue(
            f"emulate.conv2d: {shapes} with groups {parts}, expected (N, C, H, W) and (K, C / groups, R, S)"
        )
    if isinstance(filters, QuantizedArray):
        filters = filters._along((2, 3, 1))
        if filters.axis != (2, 3, 1):
            raise WrongValue(f"emulate.conv2d: w is quantized along axis {filters.axis}, expected (2, 3, 1)")
    bias_array = as_bias(bias, filters.shape[0], "emulate.conv2d")
    (n, _, height, width), (k, depth, r, s) = image.shape, filters.shape
    size = window.answer
    windows_of = _Windows((r, s), window.stride, window.dilation, window.before, size)
    source: Any = image.reshape(n, parts, depth, height, width)
    if activations is not None:
        source = quantize(source, activations, axis=(1, 3, 4, 2))
    y = np.empty((n, *size, k), np.float32)
    if not y.size or not image.size:  # no window, or windows of padding only
        y[...] = 0 if bias_array is None else bias_array
        return np.ascontiguousarray(y.transpose(0, 3, 1, 2))
    step = max(1, _WINDOW_VALUES // max(1, size[0] * size[1] * r * s * depth))
    if model.kind == "floats":
        values = _values(model, source).transpose(1, 0, 3, 4, 2)  # group, image, height, width, channel
        rows = _values(model, filters).transpose(0, 2, 3, 1).reshape(parts, k // parts, r * s * depth)
    else:
        left = code_runs(model, quantized(model, source, "x"), "x", (n,), parts * height * width, depth)
        right = code_runs(model, quantized(model, filters, "w"), "w", (k,), r * s, depth)
        length = lcm(*(side.group for side in (left, right) if side.has_groups))
        length *= -(-depth // length)
        left = _whole_groups(left, parts * height * width, depth, length)
        right = _whole_groups(right, r * s, depth, length)
    for g in range(parts):
        target = y[..., g * (k // parts) : (g + 1) * (k // parts)]
        for i in range(0, n, step):
            if model.kind == "floats":
                part = values[g, i : i + step]
                found = matmul(windows_of.gather(part, 0), rows[g].T, **options)
            else:
                windows = windows_of.rows(_group_of_images(left, parts, g), i, min(i + step, n), (height, width))
                weights = _group_of_filters(right, parts, g)
                sizes, bits = (len(windows.codes), k // parts), options.get("scale_product_bits")
                found = multiply_codes(model, windows, weights, sizes, bits, "exact", None)
            target[i : i + step] = found.reshape(-1, *size, k // parts)
    if bias_array is not None:
        y += bias_array
    return np.ascontiguousarray(y.transpose(0, 3, 1, 2))


def _group_of_images(side: Codes, parts: int, g: int) -> Codes:
    """Return one convolution group's codes of images that are rows of (group, height, width, channel)."""
    if parts == 1:
        return side

    def cut(values: Array | None) -> Array | None:
        return None if values is None else values.reshape(len(values), parts, -1)[:, g]

    codes = cut(side.codes)
    assert codes is not None
    return replace(
        side,
        codes=codes,
        group=side.group if side.has_groups else max(1, codes.shape[1]),
        integer_scales=cut(side.integer_scales),
        float_scales=cut(side.float_scales),
    )


def _group_of_filters(side: Codes, parts: int, g: int) -> Codes:
    """Return one convolution group's filters."""
    each = len(side.codes) // parts
    rows = slice(g * each, (g + 1) * each)

    def cut(values: Array | None) -> Array | None:
        return None if values is None else values[rows]

    return replace(
        side,
        codes=side.codes[rows],
        integer_scales=cut(side.integer_scales),
        float_scales=cut(side.float_scales),
        row_scale=side.row_scale[rows],
    )


def _model(emulate: str) -> tuple[dict[str, Any], Model]:
    options = parse(emulate)
    return options, parse_model(options.get("accumulator", "int32"), None, options.get("instruction"), None, None)


def _held(side: Any, inputs: str) -> Array:
    """Return an instruction's operand: the values rounded to its type."""
    values = side.dequantize() if isinstance(side, QuantizedArray) else side
    with np.errstate(over="ignore"):  # infinite values are refused afterwards
        return rounded_to(values.astype(np.float32, copy=False), inputs)


def _values(model: Model, side: Any) -> Array:
    if model.inputs is not None:
        return _held(side, model.inputs)
    return side.dequantize() if isinstance(side, QuantizedArray) else side


def _whole_groups(side: Codes, runs: int, c: int, length: int) -> Codes:
    """Fill up each run of c values to `length`, a multiple of the group, with codes of zero."""
    codes = side.codes.reshape(len(side.codes), runs, c)
    zero = LOG_ZERO if side.gamma else 0
    codes = np.pad(codes, ((0, 0), (0, 0), (0, length - c)), constant_values=zero)
    if not side.has_groups:
        return replace(side, codes=codes.reshape(len(codes), -1), group=max(1, runs * length))

    def wider(scales: Array | None) -> Array | None:
        if scales is None:
            return None
        parts = scales.reshape(len(scales), runs, -1)
        return np.pad(parts, ((0, 0), (0, 0), (0, length // side.group - parts.shape[2]))).reshape(len(scales), -1)

    return replace(
        side,
        codes=codes.reshape(len(codes), -1),
        integer_scales=wider(side.integer_scales),
        float_scales=wider(side.float_scales),
    )


class _Windows:
    """Positions of windows in images (n, height, width, values of a pixel)."""

    def __init__(
        self,
        kernel: tuple[int, int],
        strides: tuple[int, int],
        dilations: tuple[int, int],
        before: tuple[int, ...],
        size: tuple[int, ...],
    ) -> None:
        # From a window's first pixel to its last, both included; 0 if the window is empty.
        self.reach = [max(d * (k - 1) + 1, 0) for d, k in zip(dilations, kernel, strict=True)]
        self.strides, self.dilations, self.before, self.size = strides, dilations, before, size

    def gather(self, image: Array, fill: int) -> Array:
        """Return (windows, values) in the order r, s, c; pixels outside the image hold `fill`."""
        ends = [(self.size[i] - 1) * self.strides[i] + self.reach[i] - self.before[i] for i in (0, 1)]
        after = [max(0, ends[i] - image.shape[1 + i]) for i in (0, 1)]
        margins = ((0, 0), *zip(self.before, after, strict=True), (0, 0))
        whole = np.pad(image, margins, constant_values=fill)
        windows = sliding_window_view(whole, self.reach, axis=(1, 2))[:, :: self.strides[0], :: self.strides[1]]
        windows = windows[..., :: self.dilations[0], :: self.dilations[1]]
        windows = windows[:, : self.size[0], : self.size[1]].transpose(0, 1, 2, 4, 5, 3)
        return np.ascontiguousarray(windows.reshape(len(image) * self.size[0] * self.size[1], -1))

    def rows(self, images: Codes, begin: int, end: int, shape: tuple[int, int]) -> Codes:
        def cut(values: Array | None, fill: int) -> Array | None:
            return None if values is None else self.gather(values[begin:end].reshape(end - begin, *shape, -1), fill)

        codes = cut(images.codes, LOG_ZERO if images.gamma else 0)
        assert codes is not None
        return replace(
            images,
            codes=codes,
            group=images.group if images.has_groups else max(1, codes.shape[1]),
            integer_scales=cut(images.integer_scales, 0),
            float_scales=cut(images.float_scales, 0),
            row_scale=np.repeat(images.row_scale[begin:end], self.size[0] * self.size[1]),
        )
