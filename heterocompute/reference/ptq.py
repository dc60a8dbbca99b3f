"""Rounding under the inputs of a layer: the sums, factors, loops and sweeps of ``csrc/ptq/``, in the same order.

Weights w are (columns, rows) of float64, a column being one input of all rows. A grid has the core's form: (rows,
groups, group of each column, scale (groups, rows), zero points or None, low, high, levels or None, thresholds or None,
mask or None, whether it is float32): values that the mask (columns, rows) excludes are 0, float32's codes are its bits.
Sums with an entry of H or of its factor are chains of fused multiply-adds, in all others product and sum are rounded;
their order is that of the loops here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .arithmetic import LARGEST, Array, fma64

BLOCK = 96  # columns of H that `losses` processes together


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
        total = fma64(x[:, None], y, total)
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
        A pivot is not above 0.
    """
    left, n = np.triu(matrix), len(matrix)
    for k in range(n - 1, -1, -1):
        if not left[k, k] > 0 or not np.isfinite(left[k, k]):
            raise ValueError(f"the pivot of column {k} is {left[k, k]}")
        left[k, k] = np.sqrt(left[k, k])
        left[:k, k] = left[:k, k] / left[k, k]
        left[:k, :k] = fma64(-left[:k, k, None], left[:k, k], left[:k, :k])
    upper = np.triu(left)
    diagonal = np.diagonal(upper).copy()
    return upper / diagonal, diagonal


def rounded(grid: Any, column: int, x: Array) -> tuple[Array, Array]:
    """Return codes and values of a column, regardless of the mask.

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
        difference = x - np.where(_chosen(grid, j), rounded(grid, j, x)[1], 0.0)
        at = grid[2][j]
        sums[at] = sums[at] + weight[j] * (difference * difference)
    return sums


def largest(matrix: Array, steps: int = 30) -> float:
    """Return an estimate of the largest eigenvalue of a symmetric matrix, by power iteration from (1, 1 ... 1).

    Parameters
    ----------
    matrix : ndarray of float64, (k, k)
        Symmetric, without negative eigenvalues.
    steps : int

    Returns
    -------
    float
        The length of the last product; 0 if a length is not above 0.
    """
    x, length = np.ones(len(matrix)), 0.0
    for _ in range(steps):
        y = _chain(matrix, x[:, None], slice(None))[:, 0]
        squares = float(np.cumsum(y * y)[-1]) if len(y) else 0.0
        length = float(np.sqrt(squares)) if squares > 0 else 0.0
        if not squares > 0:
            break
        x = y / length
    return length


def without_drift(w: Array, h: Array, cross: Array, amount: float) -> Array:
    """Return real weights whose output on the actual inputs is closest to that of w on the unrounded network's inputs.

    ``(w cross + l w) (H + l I)^-1``, by two triangular systems, columns one after the other.

    Parameters
    ----------
    w : ndarray of float64, (columns, rows)
    h, cross : ndarray of float64, (columns, columns)
        ``sum x x^T`` and ``sum x_float x^T``.
    amount : float
        l.

    Returns
    -------
    ndarray of float64, (columns, rows)
    """
    upper, pivots = factor(h + amount * np.eye(len(h)))
    solved = amount * w + gram(cross, w)
    for j in range(len(w) - 1, -1, -1):
        solved[:j] -= upper[:j, j, None] * solved[j]
    solved /= (pivots * pivots)[:, None]
    for j in range(len(w)):
        solved[j + 1 :] -= upper[j, j + 1 :, None] * solved[j]
    return solved


def first_of(w: Array, h: Array, cross: Array, column: int) -> Array:
    """Return what Qronos rounds in its first column: the best value while all other weights are those of w.

    ``w_p + sum_i w_i (cross_ip - h_ip) / h_pp``, i ascending, products and sums rounded.

    Parameters
    ----------
    w : ndarray of float64, (columns, rows)
    h, cross : ndarray of float64, (columns, columns)
    column : int
        p.

    Returns
    -------
    ndarray of float64, (rows,)
    """
    own: Array = w[column]
    if not h[column, column] > 0:
        return own
    total: Array = np.zeros(w.shape[1])
    for i in range(len(w)):
        total = total + (cross[i, column] - h[i, column]) * w[i]
    return np.asarray(own + total / h[column, column])


def columns(
    grid: Any, w: Array, upper: Array | None, order: Array, choice: Any = None, first: Array | None = None
) -> Array:
    """Round column ``order[j]`` from ``w_j + sum_{i<j} (w_i - q_i) upper_ij``, i ascending.

    With a choice the grid's mask is written: at the start of a block of columns, the n are kept whose rounding gains
    most, ``weight * (x^2 - (x - q)^2)`` for the values at that moment; among equals the earlier in the order.

    Parameters
    ----------
    grid : tuple
    w : ndarray of float64, (columns, rows)
    upper : ndarray of float64, (columns, columns), or None
        Of the order: see `factor`. None is no feedback.
    order : ndarray of integers, (columns,)
    choice : (n, block, weight), optional
        The block of each column, and the weight of each column in the order, (columns,).
    first : ndarray of float64, (rows,), optional
        Rounded for the first column instead of w; its error is still that of w.

    Returns
    -------
    ndarray of int32, (columns, rows)
    """
    codes = np.zeros(w.shape, np.int32)
    wanted = w[order]
    if first is not None and len(wanted):
        wanted[0] = first
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
        nonzeros = _chosen(grid, column)
        codes[column], value = np.where(nonzeros, code, 0), np.where(nonzeros, value, 0.0)
        if upper is not None:
            wanted[j + 1 :] = fma64(upper[j, j + 1 :, None], w[column] - value, wanted[j + 1 :])
    return codes


def descend(
    grid: Any,
    w: Array,
    h: Array,
    codes: Array,
    sweeps: int,
    refits: int = 0,
    stored: Callable[[Array], Array] | None = None,
) -> tuple[Array, Array, list[int]]:
    """Move every nonzero code to its best value with all others fixed, in sweeps.

    The first `refits` times every scale before them; of a row of which a sweep changed no code it rests.

    Parameters
    ----------
    grid : tuple
    w : ndarray of float64, (columns, rows)
    h : ndarray of float64, (columns, columns)
    codes : ndarray of int32, (columns, rows)
    sweeps, refits : int
    stored : callable, optional
        From scales, (rows,), to the nearest that can be stored.

    Returns
    -------
    (ndarray, ndarray, list of int)
        Codes, scales (groups, rows), and how many codes each sweep changed, up to the first that changed none.
    """
    codes, scales = codes.copy(), grid[3].copy()
    grid = (*grid[:3], scales, *grid[4:])
    errors = _errors(grid, w, codes)
    slopes = _chain(h, errors, slice(None))
    moves, changed = np.ones(w.shape[1], bool), list[int]()
    while len(changed) < sweeps and (not changed or changed[-1]):
        if stored is not None and len(changed) < refits:
            for g in range(len(scales)):
                _refit(grid, w, h, codes, g, moves, stored, errors, slopes)
        before = codes.copy()
        for j in range(len(w)):
            if not h[j, j] > 0:
                continue
            target = (w[j] - errors[j]) + slopes[j] / h[j, j]
            code, value = rounded(grid, j, target)
            nearer = _chosen(grid, j) & (np.abs(target - value) < np.abs(target - (w[j] - errors[j])))
            codes[j] = np.where(nearer, code, codes[j])
            _move(h, j, np.where(nearer, w[j] - value, errors[j]), errors, slopes)
        moves = (codes != before).any(axis=0)
        changed.append(int((codes != before).sum()))
    return codes, scales, changed


def _refit(
    grid: Any,
    w: Array,
    h: Array,
    codes: Array,
    g: int,
    moves: Array,
    stored: Callable[[Array], Array],
    errors: Array,
    slopes: Array,
) -> None:
    """Move the scales of a group once, in the rows that are still moving."""
    scale = grid[3][g]
    members = np.flatnonzero(grid[2] == g).tolist()
    c = np.array([unscaled(grid, j, codes[j]) for j in members]).reshape(len(members), w.shape[1])
    own = _chain(h[members], c, members)
    a, b = np.zeros(w.shape[1]), np.zeros(w.shape[1])
    for i, j in enumerate(members):
        a, b = a + c[i] * slopes[j], b + c[i] * own[i]
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = scale + a / b
    free = moves & (b > 0) & (wanted > 0) & (scale > 0)
    found = np.where(free, stored(np.where(free, wanted, 0.0)), 0.0)
    change = found - scale
    scale[:] = np.where(free & (found > 0) & (change * (2 * a - change * b) > 0), found, scale)
    for i, j in enumerate(members):
        _move(h, j, w[j] - scale * c[i], errors, slopes)


def _move(h: Array, column: int, error: Array, errors: Array, slopes: Array) -> None:
    """Set the errors of a column, and update all slopes."""
    slopes[:] = fma64(h[column][:, None], error - errors[column], slopes)
    errors[column] = error


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
    c = np.array([np.where(_chosen(grid, j), grid[3][grid[2][j]], 0.0) for j in range(len(w))])
    slopes = _chain(h, _errors(grid, w, codes), slice(None))
    for i in range(len(w)):
        parts = np.zeros((len(rows), count))
        for j in range(len(w)):
            parts[rows, codes[j]] = fma64(c[j], h[j, i], parts[rows, codes[j]])
        curvature[rows, codes[i]] = curvature[rows, codes[i]] + c[i][:, None] * parts
        slope[rows, codes[i]] = slope[rows, codes[i]] + c[i] * slopes[i]
    return curvature, slope


def refit_levels(levels: Array, curvature: Array, slope: Array) -> Array:
    """Move every level once, in ascending order, to its best float32 between its neighbours, all else fixed.

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


def second_level(old: float, before: float, trials: list[tuple[float, float]]) -> float:
    """Return the best second level of scales, from its error and those of two trials, each (level, error).

    The error is a parabola of the share t by which the level changes: before + b t + a t^2, with a minimum at -b / 2a.
    The level changes by at most 0.3 of its value. The caller takes it if its error is smaller.
    """
    (right, up), (left, down) = ((level / old - 1, error - before) for level, error in trials)
    first, second = up / right, down / left
    curve = (first - second) / (right - left)
    if not curve > 0:
        return old
    change = min(max(-(first - curve * right) / (2 * curve), -0.3), 0.3)
    return float(np.float32(old * (1 + change)))


def losses(errors: Array, h: Array) -> Array:
    """Return the error of each row at the output of the layer, ``e^T H e``.

    Parameters
    ----------
    errors : ndarray of float64, (columns, rows)
        w - value.
    h : ndarray of float64, (columns, columns)
        Symmetric.

    Returns
    -------
    ndarray of float64, (rows,)
        Sums over columns, ascending; within them one fused multiply-add for each entry of h, of the columns before the
        block of `BLOCK` columns, which count twice, and of those in it.
    """
    found: Array = np.zeros(errors.shape[1])
    for j in range(len(errors)):
        first, which = j // BLOCK * BLOCK, slice(j, j + 1)
        before = _chain(h[:first], errors[:first], which)[0] if first else np.zeros(errors.shape[1])
        inside = _chain(h[first : first + BLOCK], errors[first : first + BLOCK], which)[0]
        found = found + errors[j] * (before + before + inside)
    return found


def _chosen(grid: Any, column: int) -> Any:
    return True if grid[9] is None else grid[9][column] != 0


def _errors(grid: Any, w: Array, codes: Array) -> Array:
    group, scales = grid[2], grid[3]
    errors: Array = np.array([w[j] - scales[group[j]] * unscaled(grid, j, codes[j]) for j in range(len(w))])
    return errors.reshape(w.shape)


def _chain(h: Array, errors: Array, which: Any) -> Array:
    """Return sum_i h_ij errors_i for some j, i ascending, from 0."""
    total: Array = np.zeros((len(h[0, which]), errors.shape[1]))
    for i in range(len(errors)):
        total = fma64(h[i, which][:, None], errors[i], total)
    return total
