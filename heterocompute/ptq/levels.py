"""The centres of a codebook, and the second level of scales, under a layer's inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.quantized import QuantizedArray
from ..base import runtime
from ..products.grid import LARGEST, Grid

Array = np.ndarray[Any, Any]

_SUMS = 1 << 20  # items of sums at a time
_STEP, _REACH = np.float32(0.01), 0.3  # shares of a second level: of a trial, and the largest change


@dataclass
class Part:
    """Some rows of a weight (of one group of a convolution, or all): their grid, floats, inputs and codes."""

    rows: slice
    grid: Grid
    w: Array
    matrix: Array
    codes: Array


def refit_levels(parts: list[Part]) -> None:
    """Move each centre of a codebook, in ascending order, to its best value with all else fixed.

    Each moves at most to its neighbour, so that they stay in order, and only if the error falls.

    Parameters
    ----------
    parts : list of Part
        Their grids' levels and thresholds change.
    """
    shared = parts[0].grid.levels
    assert shared is not None
    count = len(shared)
    total, slopes = np.zeros((1, count, count)), np.zeros((1, count))
    for part in parts:
        grid = part.grid
        each = None if grid.levels is None or grid.levels.ndim == 1 else grid.levels.T.copy()
        step = max(1, _SUMS // (count * count))
        for first in range(0, grid.rows, step):
            rows = min(step, grid.rows - first)
            curvature, slope = np.empty((rows, count, count)), np.empty((rows, count))
            given = (grid.core(), part.w, part.matrix, part.codes, first, rows)
            _core.ptq_levels(runtime.run(), *given, curvature, slope)
            if each is not None:
                _descend(each[first : first + rows], curvature, slope)
                continue
            for row in range(rows):
                total[0] += curvature[row]
                slopes[0] += slope[row]
        if each is not None:
            _take(grid, each.T)
    if shared.ndim == 1:
        table = shared[None].copy()
        _descend(table, total, slopes)
        for part in parts:
            _take(part.grid, table[0])


def refit_second(q: QuantizedArray, losses: Callable[[QuantizedArray], Array]) -> QuantizedArray:
    """Move the second level of two-level scales to its best value with all codes and integer scales fixed.

    The error of a row is a parabola of its second level. Three errors determine it; a level is taken only if its error
    is smaller. `reference.ptq.second_level` defines it.

    Parameters
    ----------
    losses : callable
        Returns the error of each row of an array.
    """
    form, old = q.format.form, q.components.get("coarse")
    if form.scale != "integer" or form.second != "row" or old is None or not q.size:
        return q

    def lost(second: Array) -> Array:
        made = q._remade({**q.components, "coarse": second}, q.shape, q.axis)
        found = losses(made)
        return found if second.ndim else np.add.accumulate(found)[-1:]

    up, down = (np.asarray(old * (1 + sign * _STEP)) for sign in (1, -1))
    before, above, below = (lost(one) for one in (old, up, down))
    with np.errstate(all="ignore"):
        base = np.atleast_1d(old).astype(np.float64)
        right, left = np.atleast_1d(up) / base - 1, np.atleast_1d(down) / base - 1
        first, second = (above - before) / right, (below - before) / left
        curve = (first - second) / (right - left)
        change = np.clip(-(first - curve * right) / (2 * curve), -_REACH, _REACH)
        new = (base * (1 + np.where(curve > 0, change, 0.0))).astype(np.float32).reshape(old.shape)
    new = np.asarray(np.where(np.isfinite(new), new, old))
    better = (lost(new) < before).reshape(old.shape)
    return q._remade({**q.components, "coarse": np.asarray(np.where(better, new, old))}, q.shape, q.axis)


def _take(grid: Grid, levels: Array) -> None:
    grid.levels = np.ascontiguousarray(levels)
    grid.thresholds = np.ascontiguousarray((levels[1:] + levels[:-1]) / 2)


def _descend(levels: Array, curvature: Array, slope: Array) -> None:
    """Improve levels (tables, count) in place, under their matrices and slopes."""
    count = levels.shape[1]
    for at in range(count):
        own, left = curvature[:, at, at], slope[:, at]
        low = levels[:, at - 1] if at else -LARGEST
        high = levels[:, at + 1] if at + 1 < count else LARGEST
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            wanted = np.clip(levels[:, at] + left / own, low, high).astype(np.float32) + np.float32(0)
            change = wanted.astype(np.float64) - levels[:, at]
            better = (own > 0) & (change * (2 * left - change * own) > 0)
        change = np.where(better, change, 0.0)
        levels[:, at] = np.where(better, wanted, levels[:, at])
        slope -= curvature[:, :, at] * change[:, None]
