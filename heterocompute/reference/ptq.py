"""Rounding under the inputs of a layer: the sums, factors, loops and sweeps of ``csrc/ptq/``, in the same order.

Weights w are (columns, rows) of float64, a column being one input of all rows. A grid is what the core takes: (rows,
groups, group of each column, scale (groups, rows), zero points or None, low, high, levels or None, thresholds or None,
mask or None, whether it is float32): what the mask (columns, rows) does not keep is 0, float32's codes are its bits.
Every sum is a chain of products and sums, each rounded; its order is that of the loops here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .arithmetic import LARGEST, Array

BLOCK = 96


def gram(left: Array, right: Array) -> Array:
    """Return ``left.T @ right``, inputs ascending.

    Parameters
    ----------
    left, right : ndarray of float64, (inputs, columns)

    Returns
    -------
    ndarray of float64, (columns, columns)
    """
    total = np.zeros((left.shape[1], right.shape[1]))
    for x, y in zip(left, right, strict=True):
        total = total + x[:, None] * y
    return total


def factor(matrix: Array) -> tuple[Array, Array]:
    """Return the unit upper A and d with ``matrix = (A d) (A d)^T``, from the last column to the first.

    Parameters
    ----------
    matrix : ndarray of float64, (k, k)
        Symmetric, positive definite.

    Returns
    -------
    (ndarray, ndarray)
        (k, k) and (k,).

    Raises
    ------
    ValueError
        A pivot that is not above 0.
    """
    left, n = np.triu(matrix), len(matrix)
    for k in range(n - 1, -1, -1):
        if not left[k, k] > 0 or not np.isfinite(left[k, k]):
            raise ValueError(f"the pivot of column {k} is {left[k, k]}")
        left[k, k] = np.sqrt(left[k, k])
        left[:k, k] = left[:k, k] / left[k, k]
        left[:k, :k] = left[:k, :k] - left[:k, k, None] * left[:k, k]
    upper = np.triu(left)
    diagonal = np.diagonal(upper).copy()
    return upper / diagonal, diagonal


def rounded(grid: Any, column: int, x: Array) -> tuple[Array, Array]:
    """Return codes and values of a column, whatever the mask says.

    Parameters
    ----------
    grid : tuple
    column : int
    x : ndarray of float64, (rows,)

    Returns
    -------
    (ndarray, ndarray)
        float64, (rows,).
    """
    _, _, group, scales, zeros, low, high, levels, thresholds, _, exact = grid
    if exact:
        nearest = np.clip(x, -LARGEST, LARGEST).astype(np.float32)
        return nearest.view(np.int32).astype(np.float64), nearest.astype(np.float64)
    scale = scales[group[column]]
    t = np.divide(x, scale, out=np.zeros(x.shape), where=scale > 0)
    if levels is None:
        zero = 0.0 if zeros is None else zeros[group[column]]
        code = np.clip(np.rint(np.clip(t, -(2.0**31), 2.0**31)) + zero, low, high)
        return code, scale * (code - zero)
    index = (t > (thresholds if thresholds.ndim == 2 else thresholds[:, None])).sum(axis=0)
    level = levels[index] if levels.ndim == 1 else levels[index, np.arange(len(x))]
    return index.astype(np.float64), level * scale


def unscaled(grid: Any, column: int, codes: Array) -> Array:
    """Return the values of codes, without their scale, 0 where the mask keeps none.

    Parameters
    ----------
    grid : tuple
    column : int
    codes : ndarray of integers, (rows,)

    Returns
    -------
    ndarray of float64, (rows,)
    """
    _, _, group, _, zeros, _, _, levels, _, mask, exact = grid
    found: Array
    if exact:
        found = codes.view(np.float32).astype(np.float64)
    elif levels is None:
        found = codes - (0.0 if zeros is None else zeros[group[column]])
    else:
        found = levels[codes] if levels.ndim == 1 else levels[codes, np.arange(len(codes))]
    return found if mask is None else np.where(mask[column], found, 0.0)


def score(grid: Any, w: Array, weight: Array) -> Array:
    """Return the weighted squared errors of plain rounding, columns ascending.

    Parameters
    ----------
    grid : tuple
    w : ndarray of float64, (columns, rows)
    weight : ndarray of float64, (columns,)

    Returns
    -------
    ndarray of float64, (groups, rows)
    """
    sums = np.zeros(grid[3].shape)
    for j, x in enumerate(w):
        difference = x - np.where(_kept(grid, j), rounded(grid, j, x)[1], 0.0)
        at = grid[2][j]
        sums[at] = sums[at] + weight[j] * (difference * difference)
    return sums


def columns(grid: Any, w: Array, upper: Array | None, order: Array, choice: Any = None) -> Array:
    """Round column ``order[j]`` from ``w_j + sum_{i<j} (w_i - q_i) upper_ij``, i ascending.

    With a choice the grid's mask is written: where a block of columns begins, those n are kept whose rounding gains
    most, ``weight * (x^2 - (x - q)^2)`` of what rounding would take then; of equal ones the earlier in the order.

    Parameters
    ----------
    grid : tuple
    w : ndarray of float64, (columns, rows)
    upper : ndarray of float64, (columns, columns), or None
        Of the order: see `factor`. None is no feedback.
    order : ndarray of integers, (columns,)
    choice : (n, block, weight), optional
        The block of each column, and the weight of each column in the order, (columns,).

    Returns
    -------
    ndarray of int32, (columns, rows)
    """
    codes = np.zeros(w.shape, np.int32)
    wanted = w[order]
    for j, column in enumerate(order):
        if choice is not None and (j == 0 or choice[1][column] != choice[1][order[j - 1]]):
            members = [i for i in range(j, len(order)) if choice[1][order[i]] == choice[1][column]]
            values = np.array([rounded(grid, order[i], wanted[i])[1] for i in members])
            left = wanted[members] - values
            gain = choice[2][members][:, None] * (wanted[members] * wanted[members] - left * left)
            best = np.argsort(-gain, axis=0, kind="stable")[: choice[0]]
            grid[9][order[members]] = 0
            np.put_along_axis(grid[9], order[members][best], 1, axis=0)
        code, value = rounded(grid, column, wanted[j])
        kept = _kept(grid, column)
        codes[column], value = np.where(kept, code, 0), np.where(kept, value, 0.0)
        if upper is not None:
            wanted[j + 1 :] = wanted[j + 1 :] + upper[j, j + 1 :, None] * (w[column] - value)
    return codes


def sweep(grid: Any, w: Array, h: Array, codes: Array) -> Array:
    """Move every code that is kept once to its best value while the others stand still.

    Parameters
    ----------
    grid : tuple
    w : ndarray of float64, (columns, rows)
    h : ndarray of float64, (columns, columns)
    codes : ndarray of int32, (columns, rows)

    Returns
    -------
    ndarray of int32, (columns, rows)
    """
    codes = codes.copy()
    errors = _errors(grid, w, codes)
    for first in range(0, len(w), BLOCK):
        slopes = _chain(h, errors, slice(first, min(first + BLOCK, len(w))))
        for j in range(first, first + len(slopes)):
            if not h[j, j] > 0:
                continue
            target = (w[j] - errors[j]) + slopes[j - first] / h[j, j]
            code, value = rounded(grid, j, target)
            nearer = _kept(grid, j) & (np.abs(target - value) < np.abs(target - (w[j] - errors[j])))
            change = np.where(nearer, w[j] - value, errors[j]) - errors[j]
            errors[j] = np.where(nearer, w[j] - value, errors[j])
            codes[j] = np.where(nearer, code, codes[j])
            later = slice(j + 1, first + len(slopes))
            slopes[j + 1 - first :] = slopes[j + 1 - first :] + h[j, later, None] * change
    return codes


def refit(grid: Any, w: Array, h: Array, codes: Array, stored: Callable[[Array], Array]) -> Array:
    """Move every scale once to its best stored value while all else stands still.

    Parameters
    ----------
    grid : tuple
    w : ndarray of float64, (columns, rows)
    h : ndarray of float64, (columns, columns)
    codes : ndarray of int32, (columns, rows)
    stored : callable
        From scales, (rows,), to the nearest that can be stored.

    Returns
    -------
    ndarray of float64, (groups, rows)
    """
    scales: Array = grid[3].copy()
    errors = _errors(grid, w, codes)
    for g in range(len(scales)):
        members = np.flatnonzero(grid[2] == g).tolist()
        c = np.array([unscaled(grid, j, codes[j]) for j in members]).reshape(len(members), w.shape[1])
        slopes, own = _chain(h, errors, members), _chain(h[members], c, members)
        a, b = np.zeros(w.shape[1]), np.zeros(w.shape[1])
        for j in range(len(members)):
            a, b = a + c[j] * slopes[j], b + c[j] * own[j]
        with np.errstate(divide="ignore", invalid="ignore"):
            wanted = scales[g] + a / b
        free = (b > 0) & (wanted > 0) & (scales[g] > 0)
        found = np.where(free, stored(np.where(free, wanted, 0.0)), 0.0)
        change = found - scales[g]
        scales[g] = np.where(free & (found > 0) & (change * (2 * a - change * b) > 0), found, scales[g])
        errors[members] = w[members] - scales[g] * c
    return scales


def level_sums(grid: Any, w: Array, h: Array, codes: Array) -> tuple[Array, Array]:
    """Return the matrix and the slope of each row's error as a quadratic in its levels.

    Parameters
    ----------
    grid : tuple
    w : ndarray of float64, (columns, rows)
    h : ndarray of float64, (columns, columns)
    codes : ndarray of int32, (columns, rows)

    Returns
    -------
    (ndarray, ndarray)
        (rows, levels, levels) and (rows, levels).
    """
    rows, count = np.arange(w.shape[1]), len(grid[7])
    curvature, slope = np.zeros((len(rows), count, count)), np.zeros((len(rows), count))
    c = np.array([np.where(_kept(grid, j), grid[3][grid[2][j]], 0.0) for j in range(len(w))])
    slopes = _chain(h, _errors(grid, w, codes), slice(None))
    for i in range(len(w)):
        parts = np.zeros((len(rows), count))
        for j in range(len(w)):
            parts[rows, codes[j]] = parts[rows, codes[j]] + c[j] * h[j, i]
        curvature[rows, codes[i]] = curvature[rows, codes[i]] + c[i][:, None] * parts
        slope[rows, codes[i]] = slope[rows, codes[i]] + c[i] * slopes[i]
    return curvature, slope


def refit_levels(levels: Array, curvature: Array, slope: Array) -> Array:
    """Move every level once, ascending, to its best float32 between its neighbours while all else stands still.

    Parameters
    ----------
    levels : ndarray of float64, (levels,)
        Ascending.
    curvature, slope : ndarray of float64, (levels, levels) and (levels,)
        Of a row; or of all, added up row after row.

    Returns
    -------
    ndarray of float64, (levels,)
    """
    found, left = levels.copy(), slope.copy()
    for at in range(len(levels)):
        if not curvature[at, at] > 0:
            continue
        low, high = found[at - 1] if at else -LARGEST, found[at + 1] if at + 1 < len(found) else LARGEST
        with np.errstate(over="ignore"):
            wanted = float(np.float32(np.clip(found[at] + left[at] / curvature[at, at], low, high)) + np.float32(0))
        change = wanted - found[at]
        if change * (2 * left[at] - change * curvature[at, at]) > 0:
            found[at] = wanted
            left = left - curvature[:, at] * change
    return found


def _kept(grid: Any, column: int) -> Any:
    return True if grid[9] is None else grid[9][column] != 0


def _errors(grid: Any, w: Array, codes: Array) -> Array:
    group, scales = grid[2], grid[3]
    errors: Array = np.array([w[j] - scales[group[j]] * unscaled(grid, j, codes[j]) for j in range(len(w))])
    return errors.reshape(w.shape)


def _chain(h: Array, errors: Array, which: Any) -> Array:
    """Return sum_i h_ij errors_i of some j, i ascending, from 0."""
    total: Array = np.zeros((len(h[0, which]), errors.shape[1]))
    for i in range(len(errors)):
        total = total + h[i, which][:, None] * errors[i]
    return total
