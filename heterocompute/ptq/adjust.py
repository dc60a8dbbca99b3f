"""Additions to rounding: a bound on the error, biases that compensate it, scales moved into weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.dense import as_array, normalize_axes, refuse_infinite
from ..arrays.quantized import QuantizedArray
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.lazy import renamed
from ..base.notebooks.shown import Facts
from ..base.values import as_real
from ..formats import Format
from ..products.arguments import as_format
from ..products.columns import to_columns
from ..products.grid import Grid
from ..products.grid_of import grid_of
from ..products.quantize import quantize
from .error import layer_axis
from .gptq import damped_factor, turn_of
from .hessian import Hessian, as_matrices

Array = np.ndarray[Any, Any]


@renamed(fmt="format")
@counts_subnormals
def bound(
    w: Any,
    format: Format | str,
    h: Any,
    damping: float = 0.01,
    order: str = "activation",
    axis: int | tuple[int, ...] | None = None,
) -> Array:
    """Bound the error of each row of `gptq` without clipping.

    Parameters
    ----------
    w : array_like
    format : Format or str
        A format with uniform steps (integers, VS-Quant, ternary), with the scales of round-to-nearest.
    h : Hessian or array_like
    damping, order, axis
        As in `gptq`.

    Returns
    -------
    ndarray of float64, (rows,)
        ``sum_j s_j^2 d_j^2 / 4``, in squared error under the damped matrix. The average error is a third of it.

    Raises
    ------
    ValueError
        The format has no uniform steps.

    Notes
    -----
    Babai's nearest plane: Chen et al., "The Geometry of LLM Quantization", 2025 (arXiv 2507.18553), section 4.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.ptq.bound(np.float32([[7, 1]]), "int4", np.eye(2), damping=0)
    array([0.5])
    """
    x = as_array(w, "bound: w")
    axes = normalize_axes(layer_axis(x.ndim, axis, "bound"), x.ndim, "bound")
    grid = grid_of(quantize(x, as_format(format, "bound: format"), axes))
    size = _step(grid)
    if size is None:
        raise WrongValue(
            f"bound: format is {grid.fmt}, expected levels of one distance, such as those of 'int4' or "
            "'int4f2-g32-e8m0'"
        )
    share = as_real(damping, "bound: damping", "a number")
    if not 0 <= share < math.inf:
        raise WrongValue(f"bound: damping is {shown(damping)}, expected a finite number, 0 or more")
    found: Array = np.empty(grid.rows)
    for part, matrix in as_matrices(h, len(grid.group), grid.rows, "bound"):
        turn = turn_of(np.diagonal(matrix), order)
        _, pivots, _ = damped_factor(matrix, turn, share)
        steps = grid.scale[grid.group[turn], part] * size
        found[part] = np.cumsum(steps * steps * (pivots * pivots / 4)[:, None], axis=0)[-1]
    return found


def _step(grid: Grid) -> float | None:
    """Return the distance of a grid's levels without scales, or None if it varies or a level is not the nearest."""
    if grid.levels is None or grid.thresholds is None:
        return 1.0
    if grid.levels.ndim > 1 or grid.form.codes == "learned":
        return None
    sizes, middles = np.diff(grid.levels), (grid.levels[1:] + grid.levels[:-1]) / 2
    nearest = (grid.thresholds == middles) | (grid.thresholds == np.nextafter(middles, -np.inf))
    return float(sizes[0]) if nearest.all() and (sizes == sizes[0]).all() else None


@counts_subnormals
def correct_bias(w: Any, q: Any, h: Hessian, bias: Any = None, axis: Any = None) -> Array:
    """Compute a bias that restores the mean output of a rounded layer.

    Parameters
    ----------
    w : array_like
        The original weight.
    q : QuantizedArray or array_like
        The rounded weight.
    h : Hessian
    bias : array_like, (outputs,), optional
        Bias of the layer. Default: 0.
    axis : int or tuple of int, optional
        The reduction axes.

    Returns
    -------
    ndarray of float32, (outputs,)
        ``bias + (w - q) mean(x)``.

    Notes
    -----
    Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019 (arXiv
    1906.04721), section 4.2.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> h = hc.ptq.Hessian(2)
    >>> h.add(np.float32([[1, 0], [3, 2]]))
    >>> hc.ptq.correct_bias(np.float32([[1, 1]]), np.float32([[0.5, 1]]), h, [0.5])
    array([1.5], dtype=float32)
    """
    if not isinstance(h, Hessian):
        raise WrongType(f"correct_bias: h is {shown(h)}, expected a Hessian, which has the mean")
    x = as_array(w, "correct_bias: w")
    given = q.axis if isinstance(q, QuantizedArray) and axis is None else layer_axis(x.ndim, axis, "correct_bias")
    axes = normalize_axes(given, x.ndim, "correct_bias")
    rounded = as_array(q.dequantize() if isinstance(q, QuantizedArray) else q, "correct_bias: q")
    if rounded.shape != x.shape:
        raise WrongValue(f"correct_bias: w has shape {x.shape} and q has shape {rounded.shape}")
    lost = to_columns(x, axes) - to_columns(rounded, axes)
    parts = as_matrices(h, len(lost), lost.shape[1], "correct_bias")
    refuse_infinite(lost, "correct_bias: w - q")
    means = h.mean.reshape(len(parts), -1)
    change: Array = np.empty(lost.shape[1])
    for (part, _), mean in zip(parts, means, strict=True):
        change[part] = np.cumsum(lost[:, part] * mean[:, None], axis=0)[-1]
    if bias is None:
        return np.asarray(change, np.float32)
    begun = as_array(bias, "correct_bias: bias").astype(np.float64)
    if begun.shape != change.shape:
        raise WrongValue(f"correct_bias: bias has shape {begun.shape}, expected {change.shape}")
    return np.asarray(begun + change, np.float32)


@dataclass(frozen=True)
class Rescaling(Facts):
    """Hold the result of `rescale`.

    Attributes
    ----------
    scale : ndarray of float32, (inputs,)
        Divide the inputs by it, or the rows and the bias of the layer before. All 1 for the identity.
    weights : list of ndarray of float32
        Each weight times scale.
    alpha : float
        Exponent of the scale; 0 is the identity.
    errors : dict of float to float
        Relative squared output error of each candidate.
    """

    scale: Array
    weights: list[Array]
    alpha: float
    errors: Mapping[float, float]


@renamed(fmt="format")
@counts_subnormals
def rescale(ws: Any, h: Hessian, format: Format | str = "int4", alpha: str | float = "search") -> Rescaling:
    """Move scale from a layer's inputs into its weights, so that large inputs are rounded more finely.

    Parameters
    ----------
    ws : array_like, (outputs, inputs), or list of them
        The weights that share these inputs, such as query, key and value.
    h : Hessian
    format : Format or str
        Format that the weights will be rounded to.
    alpha : "search" or float
        The scale of an input is its root mean square to the power alpha, divided by the geometric mean of the largest
        and the smallest. "search" tries 0, 0.05 ... 0.95. The identity, 0, is always a candidate and wins ties.

    Returns
    -------
    Rescaling
        Errors are those of round-to-nearest, each weight's scaled by its input: ``sum_j H_jj (w_j - q_j)^2``, summed
        in a fixed order. Correlations of inputs are ignored.

    Raises
    ------
    TypeError, ValueError
        h is not a Hessian, the weights have another number of inputs, or alpha is below 0 or above 1.

    Notes
    -----
    Lin et al., "AWQ", MLSys 2024 (arXiv 2306.00978), section 3.2, without a forward pass.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((512, 64)) * np.where(np.arange(64) < 4, 30, 1)
    >>> h = hc.ptq.Hessian(64)
    >>> h.add(x)
    >>> found = hc.ptq.rescale(rng.standard_normal((16, 64), dtype=np.float32), h, "int4")
    >>> found.alpha > 0 and found.errors[found.alpha] < found.errors[0.0] / 2
    True
    """
    if not isinstance(h, Hessian):
        raise WrongType(f"rescale: h is {shown(h)}, expected a Hessian")
    arrays = [as_array(w, "rescale: w") for w in (ws if isinstance(ws, (list, tuple)) else [ws])]
    for w in arrays:
        if w.ndim != 2 or w.shape[1] != h.k or h.groups > 1:
            raise WrongValue(f"rescale: w has shape {w.shape}, expected (outputs, {h.k}), and h of one group")
        refuse_infinite(w, "rescale: w")
    candidates = [i / 20 for i in range(20)]
    if alpha != "search":
        share = as_real(alpha, "rescale: alpha", "'search' or a number")
        if not 0 <= share <= 1:
            raise WrongValue(f"rescale: alpha is {shown(alpha)}, expected 'search' or 0 to 1")
        candidates = sorted({0.0, share})
    format, squares = as_format(format, "rescale: format"), np.diagonal(h.matrix)
    errors = {a: _weighted_error(arrays, squares, _scale_of(squares, a), format) for a in candidates}
    best = min(errors, key=errors.__getitem__) if alpha == "search" else candidates[-1]
    scale = _scale_of(squares, best)
    return Rescaling(scale, [(w.astype(np.float64) * scale).astype(np.float32) for w in arrays], best, errors)


def _scale_of(squares: Array, alpha: float) -> Array:
    """Return float32 scales; 1 for an input that was always 0."""
    live = squares > 0
    if not alpha or not live.any():
        return np.ones(len(squares), np.float32)
    scale = np.where(live, squares, 1.0) ** (alpha / 2)
    middle = np.sqrt(scale[live].max()) * np.sqrt(scale[live].min())
    return np.where(live, scale / middle, 1.0).astype(np.float32)


def _weighted_error(arrays: list[Array], squares: Array, scale: Array, fmt: Format) -> float:
    lost = whole = 0.0
    for w in arrays:
        scaled = (w.astype(np.float64) * scale).astype(np.float32)
        back = quantize(scaled, fmt).dequantize(np.float64) / scale
        for part, values in enumerate((w - back, w.astype(np.float64))):
            total = float(np.cumsum(squares * (values * values))[-1]) if values.size else 0.0
            lost, whole = (lost + total, whole) if part == 0 else (lost, whole + total)
    return lost / whole if whole else 0.0
