"""Codebooks trained by back-propagation: the gradient for the centroids, and a step of gradient descent."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.array_like import ArrayLike
from ..arrays.dense import as_array
from ..arrays.foreign import refuse_elsewhere
from ..arrays.quantized import QuantizedArray
from ..arrays.unpacked import code_geometry, row_codes
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.lazy import renamed
from ..base.values import as_real
from ..formats import Format

__all__ = ["codebook_gradient", "codebook_step"]

Array = np.ndarray[Any, Any]

BLOCK = 1 << 22  # codes unpacked at a time


@counts_subnormals
@renamed(grad_w="dw")
def codebook_gradient(dw: ArrayLike, q: QuantizedArray) -> Array:
    """Compute the gradient for a codebook from the gradient for its values.

    Parameters
    ----------
    dw : array_like
        dL/dW, of q's shape.
    q : QuantizedArray
        Array of a `Codebook` format.

    Returns
    -------
    ndarray of float32
        Same shape as ``q.components["codebook"]``. For each centroid: the sum over its members, in C order of `dw`,
        of the gradient times the scale of the member's group, in float64.

    Raises
    ------
    TypeError
        q is not an array of a codebook format, or dw is not a float array.
    ValueError
        dw has another shape.

    Notes
    -----
    Han, Mao, Dally, "Deep Compression", ICLR 2016 (arXiv 1510.00149), section 3.3, equation 3.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = hc.quantize(np.float32([1, 1, 5, 7]), "cb1")
    >>> q.components["codebook"], hc.codebook_gradient(np.float32([0.5, 0.25, 1, -3]), q)
    (array([[1., 6.]], dtype=float32), array([[ 0.75, -2.  ]], dtype=float32))
    """
    fmt = _codebook_format(q, "codebook_gradient")
    gradient = as_array(dw, "codebook_gradient: dw")
    if gradient.shape != q.shape:
        raise WrongValue(f"codebook_gradient: dw has shape {gradient.shape}, expected {q.shape}")
    codebook = q.components["codebook"]
    if not q.size:
        return np.zeros(codebook.shape, np.float32)
    members = row_codes(q).astype(np.int64)
    if not fmt.form.shared:
        members += 2**fmt.bits * np.arange(len(members)).reshape(-1, 1, 1)
    if fmt.unit > 1:
        members = (members[..., None] * fmt.unit + np.arange(fmt.unit)).reshape(*members.shape[:2], -1)
    weights = gradient.astype(np.float64)
    if fmt.group is not None:
        runs, padded = members.shape[1:]
        scales = q.components["scales"].reshape(len(members), runs, -1).astype(np.float64)
        group = padded // max(scales.shape[2], 1)
        weights = weights * _values(q, np.repeat(scales, group, axis=2))
    sums = np.bincount(_values(q, members).reshape(-1), weights.reshape(-1), codebook.size)
    return sums.astype(np.float32).reshape(codebook.shape)


@counts_subnormals
@renamed(grad="gradient")
def codebook_step(q: QuantizedArray, gradient: ArrayLike, lr: float) -> QuantizedArray:
    """Take one step of gradient descent on a codebook and return the new array.

    Parameters
    ----------
    q : QuantizedArray
        Array of a `Codebook` format.
    gradient : array_like
        Result of `codebook_gradient`, or any direction of its shape.
    lr : float
        The learning rate.

    Returns
    -------
    QuantizedArray
        With the codebook ``float32(codebook - lr * gradient)``, computed in float64. It shares codes and scales with q.

    Raises
    ------
    TypeError
        q is not an array of a codebook format, gradient is not a float array, or lr is not a number.
    ValueError
        gradient has another shape, or the step is not finite.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = hc.quantize(np.float32([1, 1, 5, 7]), "cb1")
    >>> hc.codebook_step(q, np.float32([[0.75, -2]]), lr=0.5).dequantize()
    array([0.625, 0.625, 7.   , 7.   ], dtype=float32)
    """
    _codebook_format(q, "codebook_step")
    slope, codebook = as_array(gradient, "codebook_step: gradient"), q.components["codebook"]
    if slope.shape != codebook.shape:
        raise WrongValue(f"codebook_step: gradient has shape {slope.shape}, expected {codebook.shape}")
    if isinstance(lr, (bool, np.bool_)) or not isinstance(lr, (int, float, np.integer, np.floating)):
        raise WrongType(f"codebook_step: lr is {shown(lr)} of type {type(lr).__name__}, expected a number")
    rate = as_real(lr, "codebook_step: lr", "a number")
    with np.errstate(over="ignore", invalid="ignore"):
        moved = (codebook.astype(np.float64) - rate * slope.astype(np.float64)).astype(np.float32)
    if not np.isfinite(moved).all():
        raise WrongValue(f"codebook_step: with lr {shown(lr)} a centroid is no longer finite")
    return QuantizedArray({**q.components, "codebook": moved}, q.format, q.shape, q.axis, q.source_dtype)


def _codebook_format(q: object, name: str) -> Format:
    refuse_elsewhere(q, f"{name}: q")
    if not isinstance(q, QuantizedArray) or not q.format.learns_codebook:
        kind = f"an array of {q.format}" if isinstance(q, QuantizedArray) else type(q).__name__
        raise WrongType(f"{name}: q is {kind}, expected an array of a codebook format such as cb4")
    return q.format


def _values(q: QuantizedArray, padded: Array) -> Array:
    """Return (rows, runs, padded values of a run) in q's shape, without the padding."""
    others = [a for a in range(q.ndim) if a not in q.axis]
    order = [*others, *q.axis]
    real = padded[:, :, : code_geometry(q)[1]]
    return real.reshape([q.shape[a] for a in order]).transpose(np.argsort(order))
