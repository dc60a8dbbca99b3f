"""The centres of a codebook under a layer's inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..base import runtime
from ..products.grid import LARGEST, Grid

__all__ = ["refit_levels"]

Array = np.ndarray[Any, Any]

_SUMS = 1 << 20  # items of what is summed at a time


def refit_levels(grid: Grid, w: Array, matrix: Array, codes: Array) -> None:
    """Move every centre of a codebook, ascending, to its best value while the others and all codes stand still.

    Each moves at most to the centre beside it, so that they stay in order, and only where the error falls.

    Parameters
    ----------
    grid : Grid
        Its levels and thresholds change.
    w, matrix : ndarray of float64, (columns, rows) and (columns, columns)
    codes : ndarray of int32, (columns, rows)
    """
    assert grid.levels is not None
    count, each = len(grid.levels), grid.levels.ndim == 2
    total, slopes = np.zeros((1, count, count)), np.zeros((1, count))
    levels = grid.levels.T.copy() if each else grid.levels[None].copy()
    step = max(1, _SUMS // (count * count))
    for first in range(0, grid.rows, step):
        rows = min(step, grid.rows - first)
        curvature, slope = np.empty((rows, count, count)), np.empty((rows, count))
        _core.ptq_levels(runtime.run(), grid.core(), w, matrix, codes, first, rows, curvature, slope)
        if each:
            _descend(levels[first : first + rows], curvature, slope)
            continue
        for row in range(rows):
            total[0] += curvature[row]
            slopes[0] += slope[row]
    if not each:
        _descend(levels, total, slopes)
    grid.levels = np.ascontiguousarray(levels.T if each else levels[0])
    grid.thresholds = np.ascontiguousarray((grid.levels[1:] + grid.levels[:-1]) / 2)


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
