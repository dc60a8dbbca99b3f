"""Gradients of the networks of `heterocompute.zoo`, and images distorted for their training.

Training amplifies every difference, so a sum in another order leads to another accuracy. Products are therefore those
of this package, with their stated order, and the exponential consists of single steps: NumPy's own products and exp
have other last bits on another number of threads, another BLAS, another processor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.runtime import use
from ..products.backward import conv2d_backward_input, conv2d_backward_weight
from ..products.conv import conv2d
from ..products.matmul import matmul
from ..zoo.layers import STRIDES

__all__ = ["cross_entropy", "distort", "exponential", "gradients", "product"]


def __dir__() -> list[str]:
    return __all__


F32 = NDArray[np.float32]

LN2_HIGH = float.fromhex("0x1.62e42fefap-1")  # 37 bits: its product with the exponent of a float64 is exact
LN2_LOW = float.fromhex("0x1.cf79abc9e3b3ap-40")  # log(2) - LN2_HIGH


def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return a @ b: float32 in the order of this package, the same bits anywhere; other dtypes by NumPy."""
    if a.dtype != np.float32 or b.dtype != np.float32:
        return np.asarray(a @ b)
    with use(blas="own"):
        return matmul(a, b)


def exponential(x: NDArray[Any]) -> NDArray[np.float64]:
    """Return e^x of x <= 0 in float64: 2^k times a Taylor polynomial of the remainder, |remainder| <= log(2) / 2."""
    x = np.maximum(x.astype(np.float64), -745.0)
    k = np.rint(x / math.log(2))
    rest = (x - k * LN2_HIGH) - k * LN2_LOW
    found = np.zeros_like(rest)
    for n in range(14, -1, -1):
        found = found * rest + 1 / math.factorial(n)
    return np.asarray(np.ldexp(found, k.astype(np.int32)))


def gradients(
    layers: Mapping[str, Any], weights: Mapping[str, F32], x: F32, labels: NDArray[np.int64]
) -> tuple[float, dict[str, F32]]:
    """Return mean cross-entropy of one batch, labels (n,) or (n, answers), and its gradient for every weight.

    Convolutions are 3 x 3, padded by one, and compute in float32 whatever the weights are.
    """
    saved: list[Any] = []
    first, last = next(iter(layers)), list(layers)[-1]
    for name in layers:
        w, b = weights[f"{name}.weight"], weights[f"{name}.bias"]
        inputs = x if w.ndim == 4 else x.reshape(len(x), -1)
        y = conv2d(inputs, w, b, STRIDES[name], padding=1) if w.ndim == 4 else product(inputs, w.T) + b
        saved.append((name, x.shape, inputs, y > 0))
        x = np.maximum(y, 0) if name != last else y
    loss, dy = cross_entropy(x, labels)
    found: dict[str, F32] = {}
    for name, shape, inputs, positive in reversed(saved):
        w = weights[f"{name}.weight"]
        if name != last:
            dy = dy.reshape(positive.shape) * positive
        by_filter = dy.transpose(0, 2, 3, 1).reshape(-1, len(w)) if w.ndim == 4 else dy
        found[f"{name}.bias"] = by_filter.sum(axis=0)  # row after row: NumPy's order along rows is not stated
        if w.ndim == 4:
            found[f"{name}.weight"] = conv2d_backward_weight(dy, inputs, w.shape[2:], STRIDES[name], padding=1)
        else:
            found[f"{name}.weight"] = product(dy.T, inputs)
        if name == first:
            break  # the gradient of the examples is not needed
        if w.ndim == 4:
            dy = conv2d_backward_input(dy, w, shape[2:], STRIDES[name], padding=1)
        else:
            dy = product(dy, w).reshape(shape)
    return loss, found


def cross_entropy(logits: F32, labels: NDArray[np.int64]) -> tuple[float, F32]:
    """Return the mean over all labels, and the gradient of the logits."""
    answers = logits.reshape(*labels.shape, -1)
    powers = exponential(answers - answers.max(axis=-1, keepdims=True))
    probabilities = powers / powers.sum(axis=-1, keepdims=True)
    right = np.take_along_axis(probabilities, labels[..., None], -1)
    loss = -float(np.log(np.maximum(right, 1e-30)).mean())
    np.put_along_axis(probabilities, labels[..., None], right - 1, -1)
    return loss, (probabilities / labels.size).astype(logits.dtype).reshape(logits.shape)


def distort(x: F32, random: np.random.Generator) -> F32:
    """Return each image rotated by up to 0.15 radians, scaled by up to 10 %, shifted by up to one pixel (bilinear)."""
    n, _, h, w = x.shape
    angle = random.uniform(-0.15, 0.15, (n, 1, 1))
    size = random.uniform(0.9, 1.1, (n, 1, 1))
    move = random.uniform(-1, 1, (2, n, 1, 1))
    row, column = np.meshgrid(np.arange(h) - (h - 1) / 2, np.arange(w) - (w - 1) / 2, indexing="ij")
    source_row = size * (np.cos(angle) * row - np.sin(angle) * column) + move[0] + (h - 1) / 2
    source_column = size * (np.sin(angle) * row + np.cos(angle) * column) + move[1] + (w - 1) / 2
    padded = np.pad(x[:, 0], ((0, 0), (3, 3), (3, 3)))
    source_row = np.clip(source_row + 3, 0, h + 4)
    source_column = np.clip(source_column + 3, 0, w + 4)
    r, c = np.floor(source_row).astype(int), np.floor(source_column).astype(int)
    fr, fc = source_row - r, source_column - c
    i = np.arange(n)[:, None, None]
    top = padded[i, r, c] * (1 - fc) + padded[i, r, c + 1] * fc
    bottom = padded[i, r + 1, c] * (1 - fc) + padded[i, r + 1, c + 1] * fc
    turned: F32 = (top * (1 - fr) + bottom * fr)[:, None].astype(np.float32)
    return turned
