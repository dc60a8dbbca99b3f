"""Convolution: `conv2d`, its arguments and defaults. The work is in the C core."""

from __future__ import annotations

from typing import Any

from .. import _heterocompute as _core
from ..arrays.dense import as_array, core_view
from ..arrays.quantized import core_format
from ..base import runtime
from ..base.errors import refusals
from ..formats import Format
from .arguments import (
    FloatArray,
    as_bias,
    as_format,
    as_operand,
    as_pair,
    checked_out,
    core_operand,
    group_count,
    window_size,
)
from .matmul import _along

__all__ = ["conv2d"]

ALGORITHMS = ("implicit",)
LATER_ALGORITHMS = ("direct", "winograd2", "winograd4", "winograd6", "fft")


def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] | str = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    activations: Format | str | None = None,
    algorithm: str = "auto",
    layout: str = "NCHW",
    out: Any = None,
) -> FloatArray:
    """Convolve images with filters (cross-correlation, as every network library means it).

    Parameters
    ----------
    x : array_like, shape (N, C, H, W), or (N, H, W, C) with ``layout="NHWC"``
    w : array_like or QuantizedArray, shape (K, C / groups, R, S)
        Quantized with ``axis=(2, 3, 1)``: one row a filter, groups along the channels.
    bias : array_like, shape (K,), optional
        Added last.
    stride, dilation : int or pair
    padding : int, pair, "same" or "valid"
        Padding has the value 0 and is no part of x's largest magnitude.
    groups : int
        Channels of x, and filters, are split into so many independent convolutions.
    activations : Format or str, optional
        Quantize x on the fly: one row an image, groups along the channels inside one convolution group.
    algorithm : {"auto", "implicit"}
        A GEMM whose rows are the windows of x, gathered tile by tile; "im2col", its earlier name, is the same.
    layout : {"NCHW", "NHWC"}
        Of x and of the answer.
    out : ndarray, optional
        As in `matmul`.

    Returns
    -------
    ndarray of float32, shape (N, K, P, Q), or (N, P, Q, K)
        Sums run over r, s, c ascending; the bits are the same for every instruction set and number of threads.
        Windows are gathered while they are multiplied: working memory stays under 64 MiB, and for `activations` the
        codes of one image, or its rounded values beside a w of floats, where those are more.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    >>> hc.conv2d(x, np.ones((1, 1, 2, 2), np.float32))[0, 0]
    array([[ 8., 12.],
           [20., 24.]], dtype=float32)
    """
    image = as_array(x, "conv2d: x")
    filters = as_operand(w, "conv2d: w")
    algorithm = "implicit" if algorithm == "im2col" else algorithm
    if algorithm in LATER_ALGORITHMS:
        raise NotImplementedError(f"conv2d: there is no algorithm {algorithm!r} yet, only {', '.join(ALGORITHMS)}")
    if algorithm != "auto" and algorithm not in ALGORITHMS:
        raise ValueError(f"conv2d: algorithm is {algorithm!r}, wanted 'auto' or one of {', '.join(ALGORITHMS)}")
    if layout not in ("NCHW", "NHWC"):
        raise ValueError(f"conv2d: layout is {layout!r}, wanted 'NCHW' or 'NHWC'")
    if image.ndim != 4 or filters.ndim != 4:
        wrong = f"x has shape {image.shape}" if image.ndim != 4 else f"w has shape {filters.shape}"
        raise ValueError(f"conv2d: {wrong}, wanted four dimensions")
    if isinstance(padding, str) and padding not in ("same", "valid"):
        raise ValueError(f"conv2d: padding is {padding!r}, wanted an int, a pair, 'same' or 'valid'")
    nchw = image if layout == "NCHW" else image.transpose(0, 3, 1, 2)
    strides, dilations = as_pair(stride, "stride"), as_pair(dilation, "dilation")
    paddings = (padding, padding) if isinstance(padding, str) else as_pair(padding, "padding")
    if min(strides) < 1 or min(dilations) < 1 or any(isinstance(p, int) and p < 0 for p in paddings):
        raise ValueError(f"conv2d: stride {stride}, dilation {dilation}, padding {padding}: wanted 1, 1, 0 or more")
    if max(*strides, *dilations, *(p for p in paddings if isinstance(p, int))) > 2**30:
        raise ValueError(f"conv2d: stride {stride}, dilation {dilation}, padding {padding}: wanted at most 2^30")
    split = group_count(groups, nchw.shape[1])
    fmt = None if activations is None else as_format(activations, "conv2d: activations")
    before, answer = zip(
        *(window_size(nchw.shape[2 + i], filters.shape[2 + i], strides[i], dilations[i], paddings[i]) for i in (0, 1)),
        strict=True,
    )
    shape = (nchw.shape[0], filters.shape[0], *answer)
    bias_array = as_bias(bias, filters.shape[0], "conv2d")
    inputs = (image, filters) if bias_array is None else (image, filters, bias_array)
    final = shape if layout == "NCHW" else (shape[0], shape[2], shape[3], shape[1])
    result = checked_out(out, final, "conv2d", inputs)
    target = result if layout == "NCHW" else result.transpose(0, 3, 1, 2)
    run, operand = runtime.run(), core_operand(_along(filters, (2, 3, 1)))
    with refusals(x=("conv2d: x", image)):
        core_fmt = core_format(fmt) if fmt else None
        _core.conv2d(run, core_view(nchw), operand, bias_array, strides, before, dilations, split, core_fmt, target)
    return result if out is None else out
