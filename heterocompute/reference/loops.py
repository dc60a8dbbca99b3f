"""Convolution and its gradients as the seven loops of the literature, with nothing left out.

Loops 1 to 7 are those of Sze, Chen, Yang, Emer, "Efficient Processing of Deep Neural Networks: A Tutorial and Survey",
Proc. IEEE 105 (12), 2017, section IV, with the letters of Timeloop: images n, filters k, rows p and columns q of the
answer, rows r and columns s of the filter, channels c. (Ma et al., FPGA 2017, call 5 and 6 loop-1, 7 loop-2, 3 and 4
loop-3, 2 loop-4.) Loops 1 to 4 name a value of the answer and may run in any order; 5 to 7 add, in the order written.

Each value is one chain s = fma(a, b, s) from +0 in float32; for float64 operands s = a b + s in float64. Values outside
an image or an answer are +0 and are multiplied like any other: with an infinity they make NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arithmetic import Array, fma

Pair = tuple[int, int]


def conv2d(
    x: Array, w: Array, stride: Pair = (1, 1), before: Pair = (0, 0), after: Pair = (0, 0), dilation: Pair = (1, 1),
    groups: int = 1,
) -> Array:  # fmt: skip
    """Convolve images x (N, C, H, W) with filters w (K, C / groups, R, S).

    Parameters
    ----------
    x, w : ndarray
        Both float32 or both float64.
    stride, dilation : pair of int
    before, after : pair of int
        Padding above and left, below and right.
    groups : int

    Returns
    -------
    ndarray, (N, K, P, Q)
        Of the dtype of the operands.
    """
    (images, _, height, width), (filters, depth, down, across) = x.shape, w.shape
    rows, columns = answer_size((height, width), (down, across), stride, before, after, dilation)
    y = np.zeros((images, filters, rows, columns), x.dtype)
    for n in range(images):  # 1
        for k in range(filters):  # 2
            first = k // max(filters // groups, 1) * depth  # channel of x for channel 0 of this filter
            for p in range(rows):  # 3
                for q in range(columns):  # 4
                    total = x.dtype.type(0)
                    for r in range(down):  # 5
                        for s in range(across):  # 6
                            i = p * stride[0] - before[0] + r * dilation[0]
                            j = q * stride[1] - before[1] + s * dilation[1]
                            inside = 0 <= i < height and 0 <= j < width
                            for c in range(depth):  # 7
                                a = x[n, first + c, i, j] if inside else x.dtype.type(0)  # padding is 0
                                total = _add(a, w[k, c, r, s], total)
                    y[n, k, p, q] = total
    return y


def conv2d_backward_input(
    dy: Array, w: Array, shape: tuple[int, ...], stride: Pair = (1, 1), before: Pair = (0, 0),
    dilation: Pair = (1, 1), groups: int = 1,
) -> Array:  # fmt: skip
    """Return dL/dx for x of a shape: dx[n, c, i, j] = sum of dy[n, k, p, q] w[k, c, r, s] over windows with the pixel.

    Parameters
    ----------
    dy : ndarray, (N, K, P, Q)
    w : ndarray, (K, C / groups, R, S)
    shape : tuple of int
        (N, C, H, W).
    stride, before, dilation, groups
        As in `conv2d`.

    Returns
    -------
    ndarray, (N, C, H, W)
        Sums over r and s descending (dy is walked forwards), then k ascending.
    """
    (images, channels, height, width), (_, filters, rows, columns) = shape, dy.shape
    depth, down, across = w.shape[1:]
    each = filters // groups
    dx = np.zeros(shape, dy.dtype)
    for n in range(images):  # 1
        for channel in range(channels):  # 7
            g, c = divmod(channel, depth)
            for i in range(height):
                for j in range(width):
                    total = dy.dtype.type(0)
                    for r in reversed(range(down)):  # 5
                        for s in reversed(range(across)):  # 6
                            p, no_row = divmod(i + before[0] - r * dilation[0], stride[0])  # 3
                            q, no_column = divmod(j + before[1] - s * dilation[1], stride[1])  # 4
                            if no_row or no_column:
                                continue
                            inside = 0 <= p < rows and 0 <= q < columns
                            for k in range(g * each, (g + 1) * each):  # 2
                                a = dy[n, k, p, q] if inside else dy.dtype.type(0)
                                total = _add(a, w[k, c, r, s], total)
                    dx[n, channel, i, j] = total
    return dx


def conv2d_backward_weight(
    dy: Array, x: Array, shape: tuple[int, ...], stride: Pair = (1, 1), before: Pair = (0, 0),
    dilation: Pair = (1, 1), groups: int = 1,
) -> Array:  # fmt: skip
    """Return dL/dw of filters of a shape: dw[k, c, r, s] = sum of dy[n, k, p, q] x[n, c, ...] over images and windows.

    Parameters
    ----------
    dy : ndarray, (N, K, P, Q)
    x : ndarray, (N, C, H, W)
    shape : tuple of int
        (K, C / groups, R, S).
    stride, before, dilation, groups
        As in `conv2d`.

    Returns
    -------
    ndarray, (K, C / groups, R, S)
        Sums over p, q, n ascending.
    """
    (images, _, height, width), (_, filters, rows, columns) = x.shape, dy.shape
    dw = np.zeros(shape, dy.dtype)
    for k in range(filters):  # 2
        first = k // max(filters // groups, 1) * shape[1]
        for c in range(shape[1]):  # 7
            for r in range(shape[2]):  # 5
                for s in range(shape[3]):  # 6
                    total = dy.dtype.type(0)
                    for p in range(rows):  # 3
                        for q in range(columns):  # 4
                            i = p * stride[0] - before[0] + r * dilation[0]
                            j = q * stride[1] - before[1] + s * dilation[1]
                            inside = 0 <= i < height and 0 <= j < width
                            for n in range(images):  # 1
                                a = x[n, first + c, i, j] if inside else x.dtype.type(0)
                                total = _add(a, dy[n, k, p, q], total)
                    dw[k, c, r, s] = total
    return dw


def answer_size(image: Pair, kernel: Pair, stride: Pair, before: Pair, after: Pair, dilation: Pair) -> Pair:
    """Return how many windows fit down and across.

    Returns
    -------
    (int, int)
    """
    sizes = [
        max((image[i] + before[i] + after[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1, 0) for i in (0, 1)
    ]
    return sizes[0], sizes[1]


def _add(a: Any, b: Any, total: Any) -> Any:
    return a * b + total if total.dtype == np.float64 else fma(a, b, total)
