"""Normalizations, softmax and losses of ONNX by their definition, for machines without onnxruntime.

Sums are taken in float64 and results rounded once, so that squares of large values are finite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.errors import WrongValue

Array = np.ndarray[Any, Any]
BFLOAT16 = 16  # TensorProto.DataType


def standardized(x: Array, axes: tuple[int, ...], epsilon: float, centred: bool = True) -> tuple[Array, Array, Array]:
    """Return (x - mean) / sqrt(variance + epsilon) over some axes, the mean, and the reciprocal of the divisor."""
    wide = x.astype(np.float64)
    mean = wide.mean(axes, keepdims=True) if centred else np.zeros(1)
    wide = wide - mean
    inverse = 1 / np.sqrt((wide * wide).mean(axes, keepdims=True) + np.float64(epsilon))
    return wide * inverse, mean, inverse


def per_channel(values: Array, ndim: int) -> Array:
    """Return one value per channel with the axes of a tensor of samples, channels and positions."""
    return values.astype(np.float64).reshape(-1, *[1] * (ndim - 2))


def layer(
    x: Array, scale: Array, bias: Array | None = None, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Array, Array, Array]:
    axes = tuple(range(axis % x.ndim, x.ndim))
    y, mean, inverse = standardized(x, axes, epsilon)
    y = y * scale.astype(np.float64) + (0 if bias is None else bias.astype(np.float64))
    stash = np.dtype(np.float32)
    if stash_type == BFLOAT16:
        import ml_dtypes  # 15 ms

        stash = np.dtype(ml_dtypes.bfloat16)
    return y.astype(x.dtype), mean.astype(stash), inverse.astype(stash)


def root_mean_square(
    x: Array, scale: Array, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Array]:
    axes = tuple(range(axis % x.ndim, x.ndim))
    y, _, _ = standardized(x, axes, epsilon, centred=False)
    return ((y * scale.astype(np.float64)).astype(scale.dtype),)


def group(
    x: Array, scale: Array, bias: Array, num_groups: int = 1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Array]:
    n, c = x.shape[:2]
    if num_groups < 1 or c % num_groups:
        raise WrongValue(f"{c} channels do not divide into {num_groups} groups")
    parts = x.reshape(n, num_groups, *([-1] if x.size else [c // num_groups, *x.shape[2:]]))
    y = standardized(parts, tuple(range(2, parts.ndim)), epsilon)[0].reshape(x.shape)
    if scale.size == num_groups != c:  # before opset 21: one value per group
        scale, bias = (np.repeat(one, c // num_groups) for one in (scale, bias))
    return ((y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)).astype(x.dtype),)


def instance(x: Array, scale: Array, bias: Array, epsilon: float = 1e-5) -> tuple[Array]:
    y, _, _ = standardized(x, tuple(range(2, x.ndim)), epsilon)
    return ((y * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)).astype(x.dtype),)


def batch(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array,
    epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0,
) -> tuple[Array, ...]:  # fmt: skip
    ndim = max(x.ndim, 2)
    wide, now_mean, now_var = x.astype(np.float64), mean.astype(np.float64), var.astype(np.float64)
    if training_mode:
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        now_mean, now_var = wide.mean(axes), wide.var(axes)
    inverse = 1 / np.sqrt(now_var + np.float64(epsilon))
    y = (wide - per_channel(now_mean, ndim)) * per_channel(inverse * scale, ndim) + per_channel(bias, ndim)
    if not training_mode:
        return (y.astype(x.dtype),)
    share = np.float64(momentum)
    running = (mean * share + now_mean * (1 - share), var * share + now_var * (1 - share))
    return y.astype(x.dtype), running[0].astype(mean.dtype), running[1].astype(var.dtype)


def mean_variance(x: Array, axes: Any = (0, 2, 3)) -> tuple[Array]:
    along, wide = tuple(axes), x.astype(np.float64)
    wide = wide - wide.mean(along, keepdims=True)
    return ((wide / (np.sqrt((wide * wide).mean(along, keepdims=True)) + 1e-9)).astype(x.dtype),)


def log_softmax(x: Array, axis: int = -1) -> tuple[Array]:
    if not x.size:
        return (x,)
    wide = x.astype(np.float64)
    wide = wide - wide.max(axis, keepdims=True)
    return ((wide - np.log(np.exp(wide).sum(axis, keepdims=True))).astype(x.dtype),)


def softmax(x: Array, axis: int = -1) -> tuple[Array]:
    if not x.size:
        return (x,)
    wide = x.astype(np.float64)
    wide = np.exp(wide - wide.max(axis, keepdims=True))
    return ((wide / wide.sum(axis, keepdims=True)).astype(x.dtype),)


def log_sum_exp(x: Array, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> tuple[Array]:
    if axes is None or not len(axes):
        if noop_with_empty_axes:
            return (x,)
        axes = range(x.ndim)
    along, wide = tuple(int(axis) for axis in axes), x.astype(np.float64)
    top = wide.max(along, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    y = np.log(np.exp(wide - top).sum(along, keepdims=True)) + top
    return (np.asarray(y if keepdims else y.squeeze(along)).astype(x.dtype),)


def reduced_mean(x: Array, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> tuple[Array]:
    if axes is None or not len(axes):
        if noop_with_empty_axes:
            return (x,)
        axes = range(x.ndim)
    along = tuple(int(axis) for axis in axes)
    if x.dtype.kind == "f":
        return (np.asarray(x.mean(along, np.float64, keepdims=bool(keepdims))).astype(x.dtype),)
    total = np.asarray(x.sum(along, keepdims=bool(keepdims)))
    count = x.size // max(total.size, 1)
    y = np.abs(total) // max(count, 1)
    return ((np.where(total < 0, -y, y) if x.dtype.kind == "i" else y).astype(x.dtype),)


def likelihood(
    x: Array, target: Array, weight: Array | None = None, ignore_index: int | None = None, reduction: str = "mean"
) -> tuple[Array]:
    """Return the negative log-likelihood of the classes along axis 1."""
    n_classes = x.shape[1]
    is_used = np.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    if ((target < -n_classes) | (target >= n_classes))[is_used].any():
        raise WrongValue(f"a target is outside of the {n_classes} classes")
    at = np.where(is_used, target, 0).astype(np.int64)
    picked = -np.take_along_axis(x.astype(np.float64), np.expand_dims(at, 1), 1).squeeze(1)
    shares = np.where(is_used, 1.0 if weight is None else weight.astype(np.float64)[at], 0)
    losses = np.where(is_used, picked * shares, 0)
    if reduction == "none":
        return (losses.astype(x.dtype),)
    total = losses.sum()
    return (np.asarray(total if reduction == "sum" else total / shares.sum()).astype(x.dtype),)


def cross_entropy(
    x: Array, target: Array, weight: Array | None = None, ignore_index: int | None = None, reduction: str = "mean"
) -> tuple[Array, Array]:
    (logs,) = log_softmax(x.astype(np.float64), 1)
    (loss,) = likelihood(logs, target, weight, ignore_index, reduction)
    return loss.astype(x.dtype), logs.astype(x.dtype)


NORMS: dict[str, Callable[..., Any]] = {
    "BatchNormalization": batch,
    "GroupNormalization": group,
    "InstanceNormalization": instance,
    "LayerNormalization": layer,
    "LogSoftmax": log_softmax,
    "MeanVarianceNormalization": mean_variance,
    "NegativeLogLikelihoodLoss": likelihood,
    "RMSNormalization": root_mean_square,
    "ReduceLogSumExp": log_sum_exp,
    "ReduceMean": reduced_mean,
    "Softmax": softmax,
    "SoftmaxCrossEntropyLoss": cross_entropy,
}
