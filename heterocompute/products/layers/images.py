"""Operations between the convolutions of a network: pooling, and batch normalization folded into filters.

The package is no framework: these are what examples need.
"""

from __future__ import annotations

import numpy as np

from ... import _heterocompute as _core
from ...arrays.array_like import ArrayLike
from ...arrays.dense import as_array
from ...base import runtime
from ...base.errors import WrongValue, shown
from ...base.float_env import converted, counts_subnormals
from ...base.values import as_real
from ..arguments import Array, FloatArray
from ..window import Padding, as_pair, as_window
from .device import in_library_of_first

__all__ = ["avg_pool2d", "fold_batch_norm", "max_pool2d"]


def __dir__() -> list[str]:
    return __all__


@counts_subnormals
@in_library_of_first
def max_pool2d(
    x: ArrayLike, size: int | tuple[int, int], stride: int | tuple[int, int] | None = None, padding: Padding = 0
) -> FloatArray:
    """Compute the maximum of each window.

    Parameters
    ----------
    x : array_like, shape (N, C, H, W)
    size : int or pair
    stride : int or pair, optional
        Default: the size.
    padding
        As in `conv2d`. Padding is ignored, and NaN counts as the largest value.

    Returns
    -------
    ndarray of float32, shape (N, C, P, Q)
        A window that covers only padding gives -infinity.

    Raises
    ------
    ValueError, TypeError
        As in `conv2d`.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.layers.max_pool2d(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), 2)[0, 0]
    array([[ 5.,  7.],
           [13., 15.]], dtype=float32)
    """
    return _pooled("max_pool2d", x, size, stride, padding, means=False)


@counts_subnormals
@in_library_of_first
def avg_pool2d(
    x: ArrayLike, size: int | tuple[int, int], stride: int | tuple[int, int] | None = None, padding: Padding = 0
) -> FloatArray:
    """Compute the mean of each window; padding counts as zeros.

    Parameters
    ----------
    x : array_like, shape (N, C, H, W)
    size : int or pair
        For global average pooling, the size of the images.
    stride, padding
        As in `max_pool2d`.

    Returns
    -------
    ndarray of float32, shape (N, C, P, Q)
        Sums are float64, row by row, rounded once.

    Raises
    ------
    ValueError, TypeError
        As in `conv2d`.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.layers.avg_pool2d(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), 2)[0, 0]
    array([[ 2.5,  4.5],
           [10.5, 12.5]], dtype=float32)
    """
    return _pooled("avg_pool2d", x, size, stride, padding, means=True)


@counts_subnormals
@in_library_of_first
def fold_batch_norm(
    w: ArrayLike,
    bias: ArrayLike,
    gamma: ArrayLike,
    beta: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    epsilon: float = 1e-5,
) -> tuple[FloatArray, FloatArray]:
    """Fold batch normalization into the filters and bias of the layer before it.

    ``gamma (w x + bias - mean) / sqrt(variance + epsilon) + beta`` is itself a layer with other weights.

    Parameters
    ----------
    w : array_like, shape (K, ...)
        Filters or the matrix of a linear layer.
    bias : array_like, shape (K,), or None
    gamma, beta, mean, variance : array_like, shape (K,)
    epsilon : float

    Returns
    -------
    tuple of ndarray of float32
        Filters and bias of an equal layer without normalization, computed in float64 and rounded once.

    Raises
    ------
    ValueError
        The shapes do not match, or variance plus epsilon is not above 0.
    TypeError
        An argument is not a float array.

    Notes
    -----
    Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", CVPR
    2018, section 3.2, equation 14.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> one = np.ones(2, np.float32)
    >>> w, b = hc.layers.fold_batch_norm(np.eye(2, dtype=np.float32), None, 2 * one, one, 3 * one, 4 * one, epsilon=0.0)
    >>> w, b
    (array([[1., 0.],
           [0., 1.]], dtype=float32), array([-2., -2.], dtype=float32))
    """
    filters = converted(as_array(w, "fold_batch_norm: w"), np.float64)
    if filters.ndim < 1:
        raise WrongValue("fold_batch_norm: w has no dimensions")
    given = {"gamma": gamma, "beta": beta, "mean": mean, "variance": variance}
    if bias is not None:
        given["bias"] = bias
    parts: dict[str, Array] = {"bias": np.zeros(len(filters))}
    for name, value in given.items():
        array = as_array(value, f"fold_batch_norm: {name}")
        if array.shape != filters.shape[:1]:
            raise WrongValue(f"fold_batch_norm: {name} has shape {array.shape}, expected {filters.shape[:1]}")
        parts[name] = converted(array, np.float64)
    spread = parts["variance"] + as_real(epsilon, "fold_batch_norm: epsilon", "a number")
    if not (spread > 0).all():
        raise WrongValue(f"fold_batch_norm: variance + epsilon is {shown(float(spread.min()))}, expected above 0")
    scale = parts["gamma"] / np.sqrt(spread)
    folded = filters * scale.reshape(-1, *[1] * (filters.ndim - 1))
    shift = parts["beta"] + (parts["bias"] - parts["mean"]) * scale
    return folded.astype(np.float32), shift.astype(np.float32)


def _pooled(name: str, x: object, size: object, stride: object, padding: object, means: bool) -> FloatArray:
    image = converted(as_array(x, f"{name}: x"), np.float32)
    if image.ndim != 4:
        raise WrongValue(f"{name}: x has shape {image.shape}, expected four dimensions, N C H W")
    kernel = as_pair(size, f"{name}: size")
    if min(kernel) < 1:
        raise WrongValue(f"{name}: size is {shown(size)}, expected 1 or more")
    window = as_window(name, image.shape[2:], kernel, size if stride is None else stride, padding)
    out = np.empty((*image.shape[:2], *window.answer), np.float32)
    if out.size:
        plain = np.require(image, requirements=("C", "A"))
        _core.pool2d(runtime.run(), plain, means, kernel, window.stride, window.before, out)
    return out
