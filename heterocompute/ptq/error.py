"""The error of rounding at a layer's output."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log10
from typing import Any

import numpy as np

from ..arrays.base import PackedArray
from ..arrays.dense import as_array, refuse_infinite
from ..arrays.foreign import refuse_elsewhere
from ..arrays.quantized import QuantizedArray
from ..base.errors import WrongValue
from ..base.float_env import counts_subnormals
from ..base.notebooks.shown import Facts
from ..base.texts import counted
from ..products.columns import decoded_rows, to_columns
from .hessian import Hessian, as_matrices

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class OutputError(Facts):
    """Report the squared error of a layer's output, over all inputs of a `Hessian`.

    Attributes
    ----------
    squared : float
        ``sum |W x - Q x|^2``; infinity if a packed Q holds a NaN or an infinity. If the Hessian knows the inputs of the
        unrounded network: ``sum |W x_float - Q x|^2``.
    relative : float
        ``squared`` over ``sum |W x|^2``, or ``sum |W x_float|^2``; 0 if both are 0.
    output_db : float
        SQNR of the outputs, ``-10 log10(relative)``. Higher is better; infinity if lossless.
    """

    squared: float
    relative: float
    output_db: float


def layer_axis(ndim: int, axis: Any, name: str) -> Any:
    """Return the reduction axes of a weight: the given axes, the last axis of a matrix, (2, 3, 1) of a convolution."""
    if axis is not None:
        return axis
    if ndim not in (2, 4):
        raise WrongValue(f"{name}: w has {counted(ndim, 'dimension')}, expected 2 or 4, or axis=")
    return -1 if ndim == 2 else (2, 3, 1)


@counts_subnormals
def error(w: Any, q: Any, h: Any, axis: Any = None) -> OutputError:
    """Compute the output error of a layer from rounding its weight.

    Parameters
    ----------
    w : array_like, (outputs, inputs) or (K, C, R, S)
        The weight.
    q : QuantizedArray or array_like
        The rounded weight.
    h : Hessian or array_like, (inputs, inputs) or (groups, inputs, inputs)
        Hessian of the layer's inputs, in the order of the axes: (r, s, c) for a convolution.
    axis : int or tuple of int, optional
        The reduction axes. Default: those of q, else the last axis, or (2, 3, 1) for four dimensions.

    Returns
    -------
    OutputError
        Sums are float64, computed by NumPy's matmul. The last digits depend on its BLAS.

    Raises
    ------
    TypeError, ValueError
        An argument is not a float array, the shapes do not match, or there is a NaN or an infinity.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> h = hc.ptq.Hessian(2)
    >>> h.add(np.float32([[1, 0], [1, 1]]))
    >>> hc.ptq.error(np.float32([[1, 1]]), np.float32([[1, 0]]), h).relative
    0.2
    """
    x = as_array(w, "error: w")
    refuse_elsewhere(q, "error: q")
    given = q.axis if isinstance(q, QuantizedArray) and axis is None else layer_axis(x.ndim, axis, "error")
    axes = tuple(a % x.ndim for a in (given if isinstance(given, tuple) else (given,)))
    if isinstance(q, QuantizedArray) and q.axis == axes:
        return layer_error(x, q, h)
    values = as_array(q._values() if isinstance(q, PackedArray) else q, "error: q")
    if not isinstance(q, PackedArray):
        refuse_infinite(values, "error: q")
    rounded = to_columns(values, axes).T
    return _lost(x, axes, q, rounded, h)


def layer_error(x: Array, q: QuantizedArray, h: Any) -> OutputError:
    """Return the output error of a checked weight, for an array with its axes; messages are those of `error`."""
    return _lost(x, q.axis, q, decoded_rows(q), h)


def _lost(x: Array, axes: tuple[int, ...], q: Any, rounded: Array, h: Any) -> OutputError:
    exact = to_columns(x, axes).T
    if exact.shape != rounded.shape:
        raise WrongValue(f"error: w has shape {x.shape} and q has shape {np.shape(q)}")
    refuse_infinite(exact, "error: w")
    if not np.isfinite(rounded).all():  # formats that do not saturate
        return OutputError(inf, inf, -inf)
    squared = whole = 0.0
    twins = _twins(h)
    for i, (part, matrix) in enumerate(as_matrices(h, exact.shape[1], len(exact), "error")):
        if twins is None:
            lost = exact[part] - rounded[part]
            squared += max(float(np.einsum("ij,ij->", lost @ matrix, lost)), 0.0)
            whole += max(float(np.einsum("ij,ij->", exact[part] @ matrix, exact[part])), 0.0)
            continue
        cross, unrounded = (one[i] for one in twins)  # w F w - 2 w C q + q H q
        own = float(np.einsum("ij,ij->", exact[part] @ unrounded, exact[part]))
        both = float(np.einsum("ij,ij->", exact[part] @ cross, rounded[part]))
        squared += max(own - 2 * both + float(np.einsum("ij,ij->", rounded[part] @ matrix, rounded[part])), 0.0)
        whole += max(own, 0.0)
    relative = 0.0 if squared == 0 else squared / whole if whole > 0 else inf
    return OutputError(squared, relative, -10 * log10(relative) if 0 < relative < inf else -inf if relative else inf)


def _twins(h: Any) -> tuple[Array, Array] | None:
    """Return the cross matrices and those of the unrounded network, (groups, k, k); None if h has none."""
    cross, unrounded = (h.cross, h.unrounded) if isinstance(h, Hessian) else (None, None)
    if cross is None or unrounded is None:
        return None
    return cross.reshape(-1, h.k, h.k), unrounded.reshape(-1, h.k, h.k)
