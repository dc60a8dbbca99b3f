"""Scores for `prune` that use the inputs of a layer, not only the magnitudes of its weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..arrays.array_like import ArrayLike
from ..arrays.dense import as_array, refuse_infinite
from ..arrays.foreign import alike
from ..arrays.sparse import pattern_of
from ..base.errors import WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.lazy import renamed
from ..base.texts import counted
from ..base.values import as_real

__all__ = ["sparsegpt", "wanda"]


def __dir__() -> list[str]:
    return __all__


Array = np.ndarray[Any, Any]

_CHUNK = 1 << 18  # values that are converted to float64 at a time
_BLOCK = 128  # columns pruned before the later ones are corrected, as in the paper


def _floats(value: object, name: str) -> Array:
    array = as_array(value, name)
    if array.ndim != 2:
        raise WrongValue(f"{name} has shape {array.shape}, expected two dimensions")
    refuse_infinite(array, name)
    return array


def _matrix(value: object, name: str) -> Array:
    return _floats(value, name).astype(np.float64)


@counts_subnormals
def wanda(w: ArrayLike, x: ArrayLike) -> Any:
    """Score weights by magnitude times the norm of their input.

    Parameters
    ----------
    w : array_like, (outputs, inputs)
        Floats.
    x : array_like, (samples, inputs), or hc.ptq.Hessian
        Inputs of the layer, or a Hessian of them.

    Returns
    -------
    ndarray of float32, of w's shape, or a tensor if w is a PyTorch tensor
        ``|w_ij| * sqrt(sum_s x_sj^2)``, for ``hc.prune(w, pattern, scores=...)``.

    Raises
    ------
    TypeError
        Neither argument is a float array.
    ValueError
        The shapes do not match, or there is a NaN or an infinity.

    Notes
    -----
    Sun et al., "A Simple and Effective Pruning Approach for Large Language Models", 2023 (arXiv 2306.11695), eq. 1.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.scores.wanda(np.float32([[1, -2]]), np.float32([[3, 0], [4, 1]]))
    array([[5., 2.]], dtype=float32)
    """
    gathered = getattr(x, "matrix", None)
    weights, inputs = _floats(w, "wanda: w"), _floats(x if gathered is None else gathered, "wanda: x")
    if weights.shape[1] != inputs.shape[1]:
        raise WrongValue(
            f"wanda: w has {counted(weights.shape[1], 'input')} and x has {counted(inputs.shape[1], 'column')}"
        )
    scores: Array = np.empty(weights.shape, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(_squares(inputs) if gathered is None else np.diagonal(inputs).astype(np.float64))
        for some in _row_blocks(weights):
            scores[some] = np.abs(weights[some].astype(np.float64)) * norms
            if not np.isfinite(scores[some]).all():
                row, column = (int(i) for i in np.argwhere(~np.isfinite(scores[some]))[0])
                raise WrongValue(
                    f"wanda: the score of w at index ({some.start + row}, {column}) is beyond float32's largest; "
                    "scale w or x"
                )
    return alike(scores, w)


def _squares(inputs: Array) -> Array:
    """Return the sum of squares of each column: float64, index ascending, one accumulator."""
    sums = np.zeros(inputs.shape[1])
    for some in _row_blocks(inputs):
        squares = inputs[some].astype(np.float64) ** 2
        sums = np.cumsum(np.concatenate([sums[None], squares]), axis=0)[-1]
    return sums


def _row_blocks(matrix: Array) -> Iterator[slice]:
    step = max(_CHUNK // max(matrix.shape[1], 1), 1)
    for first in range(0, len(matrix) if matrix.size else 0, step):
        yield slice(first, first + step)


@counts_subnormals
@renamed(hessian="h")
def sparsegpt(w: ArrayLike, h: ArrayLike, pattern: str = "2:4", damping: float = 0.01) -> Any:
    """Prune weights column by column, and correct the remaining columns for the removed values.

    Parameters
    ----------
    w : array_like, (outputs, inputs)
        Floats.
    h : array_like, (inputs, inputs), or hc.ptq.Hessian
        ``x.T @ x`` for inputs x of the layer, times any constant.
    pattern : str
        N:M along the inputs.
    damping : float
        0 or more. This share of the mean of the diagonal is added to the diagonal.

    Returns
    -------
    ndarray of float32, of w's shape, or a tensor if w is a PyTorch tensor
        The corrected weights, with zeros at the removed values. ``hc.prune(result, pattern)`` keeps the nonzeros.

    Raises
    ------
    TypeError
        w or h is not a float array, or damping is not a number.
    ValueError
        The shapes do not match, there is a NaN or an infinity, values overflow, damping is below 0, the damped matrix
        is not positive definite, or the pattern is unknown.

    Notes
    -----
    Frantar and Alistarh, "SparseGPT: Massive Language Models Can Be Accurately Pruned in One-Shot", ICML 2023 (arXiv
    2301.00774), algorithm 1. Weights of inputs that are always zero are removed. Work: inputs^3 + outputs * inputs^2.
    `hc.ptq.gptq` combines this with rounding in one loop, and then improves the nonzeros.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> x = np.random.default_rng(0).standard_normal((64, 8))
    >>> w = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    >>> better = hc.scores.sparsegpt(w, x.T @ x)
    >>> plain = hc.prune(w, "2:4").to_dense()
    >>> bool(np.linalg.norm(x @ (w - better).T) < np.linalg.norm(x @ (w - plain).T))
    True
    """
    n, m = pattern_of(pattern, "sparsegpt")
    weights, damped = _matrix(w, "sparsegpt: w"), _matrix(getattr(h, "matrix", h), "sparsegpt: h")
    inputs = weights.shape[1]
    if damped.shape != (inputs, inputs):
        raise WrongValue(f"sparsegpt: h has shape {damped.shape}, expected ({inputs}, {inputs})")
    share = as_real(damping, "sparsegpt: damping", "a number")
    if not 0 <= share < np.inf:
        raise WrongValue(f"sparsegpt: damping is {shown(damping)}, expected a finite number, 0 or more")
    if not weights.size:
        return alike(weights.astype(np.float32), w)
    dead = np.diag(damped) == 0
    weights[:, dead] = 0
    with np.errstate(over="ignore"):
        damped[np.diag_indices(inputs)] += np.where(dead, 1.0, share * np.mean(np.diag(damped)))
    try:
        np.linalg.cholesky(damped)  # a matrix that is not positive definite may also have an inverse
        upper = np.linalg.cholesky(np.linalg.inv(damped)).T
    except np.linalg.LinAlgError:
        raise WrongValue("sparsegpt: h is not positive definite; raise damping") from None
    width = max(_BLOCK // m, 1) * m
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, inputs, width):
            last = min(first + width, inputs)
            errors = _prune_columns(weights[:, first:last], upper[first:last, first:last], n, m)
            weights[:, last:] -= errors @ upper[first:last, last:]
        changed: Array = weights.astype(np.float32)
    if not np.isfinite(changed).all():
        raise WrongValue("sparsegpt: changed weights are beyond float32's largest; scale w, or raise damping")
    return alike(changed, w)


def _prune_columns(w: Array, upper: Array, n: int, m: int) -> Array:
    """Prune these columns in place; return the errors that the later columns compensate."""
    errors = np.zeros(w.shape)
    diagonal = np.diag(upper)
    gone = np.zeros((len(w), m), np.bool_)
    for j in range(w.shape[1]):
        if j % m == 0:
            score = (w[:, j : j + m] / diagonal[j : j + m]) ** 2
            gone[:] = False
            np.put_along_axis(gone, np.argsort(-score, axis=1, kind="stable")[:, n:], True, axis=1)
        lost = gone[:, j % m]
        errors[:, j] = np.where(lost, w[:, j] / diagonal[j], 0.0)
        w[:, j:] -= errors[:, j, None] * upper[j, j:]
        w[lost, j] = 0.0
    return errors
