"""Scales of least squared error, each value's error weighted by its input where that is known.

For every group the scales that plain rounding has, times 1, 0.98 ... 0.3, as they would be stored, are tried; MX tries
the exponents beside its own. The error is that of the values as they would be decoded. Of equal ones the first wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.components import layout_of
from ..arrays.quantized import QuantizedArray
from ..arrays.rows import row_blocks, rows_first
from ..base import runtime
from ..formats import Format
from .grid import Grid, Scales, check_grid, grid_of, has_scales, to_columns, with_unit
from .nearest import nearest

__all__ = ["check_search", "rounded_best", "search_scales"]

Array = np.ndarray[Any, Any]

_BLOCK = 1 << 19  # values searched at a time, in whole rows
SHRINK = tuple((50 - i) / 50 for i in range(36))  # 1 ... 0.3: what ternary codes of long rows want
WIDE = tuple((30 - i) / 20 for i in range(21))  # 1.5 ... 0.5: also the largest value at 4 instead of 6
POWERS = (1.0, 0.5, 2.0)
COARSE = tuple(
    (20 - i) / 20 for i in range(9)
)  # of the largest scale: below 1 a few saturate, and the others are finer


def search_scales(grid: Grid, w: Array, weight: Array | None = None) -> Grid:
    """Return the grid with the best scales.

    Parameters
    ----------
    grid : Grid
    w : ndarray of float64, (columns, rows)
    weight : ndarray of float64, (columns,) or (parts of rows, columns), optional
        Of the squared errors of a column; a column without weight counts a little, so that no group is without any.

    Returns
    -------
    Grid
    """
    weight = np.ones((1, len(w))) if weight is None else np.atleast_2d(weight)
    weight = weight + 1e-9 * weight.max(axis=1, initial=0.0, keepdims=True)
    form, base = grid.form, grid.scale
    if not w.size or not has_scales(grid.fmt):
        return grid
    if form.scale == "integer":
        return _two_levels(grid, w, weight)
    if form.scale == "double":
        single = replace(grid, scales=Scales())
        single = replace(grid, scale=_best(single, w, weight, (base * f for f in SHRINK)))
        return _double(single)
    factors = {"e8m0": POWERS, "e4m3": WIDE}.get(form.scale, SHRINK)
    found = replace(grid, scale=_best(grid, w, weight, (base * f for f in factors)))
    if form.scale == "e8m0":  # of no scale but powers of two within their range
        found.scale = np.clip(found.scale, 2.0**-127, 2.0**127)
    return found


def _scores(grid: Grid, w: Array, weight: Array) -> Array:
    """Return the weighted squared errors of groups and rows."""
    errors: Array = np.empty(grid.scale.shape)
    each = grid.rows // len(weight)
    for i, own in enumerate(weight):
        part = slice(i * each, (i + 1) * each)
        some = grid.of_rows(part)
        found = np.empty(some.scale.shape)
        _core.ptq_score(runtime.run(), some.core(), np.ascontiguousarray(w[:, part]), own, found)
        errors[:, part] = found
    return errors


def _best(grid: Grid, w: Array, weight: Array, candidates: Iterable[Array]) -> Array:
    best: Array | None = None
    least: Array = np.empty(0)
    for candidate in candidates:
        scale = np.ascontiguousarray(grid.scales.stored(candidate))
        errors = _scores(replace(grid, scale=scale), w, weight)
        if grid.scales.shared:
            errors = np.full(scale.shape, np.cumsum(errors)[-1])
        if best is None:
            best, least = scale, errors
        else:
            better = errors < least
            best, least = np.where(better, scale, best), np.where(better, errors, least)
    assert best is not None
    return np.ascontiguousarray(best)


def _two_levels(grid: Grid, w: Array, weight: Array) -> Grid:
    """Search scales as if each were a float, then what the row's is, and the integers beside the nearest."""
    form = grid.form
    largest = grid.high if grid.levels is None else np.abs(grid.levels).max()
    steps = 2**form.scale_bits - 1
    magnitudes = np.maximum(w, 0.0) if form.is_unsigned else np.abs(w)
    starts = np.searchsorted(grid.group, np.arange(len(grid.scale)))
    with np.errstate(over="ignore"):
        absmax = np.maximum.reduceat(magnitudes, starts, axis=0).astype(np.float32)
    base = (np.minimum(absmax, np.finfo(np.float32).max) / np.float32(largest)).astype(np.float64)
    fine = _best(replace(grid, scales=Scales()), w, weight, (base * f for f in SHRINK))
    over = fine.max(axis=None if form.shared else 0, initial=0.0)
    best: Grid | None = None
    least: Array = np.empty(0)
    for share in COARSE:
        unit = (np.asarray(over * share, np.float32) / np.float32(steps)).astype(np.float64)
        units = np.broadcast_to(unit, (grid.rows,)).copy()
        safe = np.where(units > 0, units, 1.0)
        codes = np.where(units > 0, np.rint(fine / safe), 0.0)
        found = with_unit(grid, units, np.zeros(fine.shape))
        around = (units * np.clip(codes + step, 0, steps) for step in (0, -1, 1))
        found = replace(found, scale=_best(found, w, weight, around))
        errors = _scores(found, w, weight)
        total = np.cumsum(errors, axis=0)[-1]
        if form.shared:
            total = np.full(total.shape, np.cumsum(total)[-1])
        if best is None or best.scales.unit is None:
            best, least = found, total
            continue
        better = total < least
        least = np.where(better, total, least)
        scale = np.ascontiguousarray(np.where(better, found.scale, best.scale))
        best = replace(best, scale=scale, scales=replace(best.scales, unit=np.where(better, units, best.scales.unit)))
    assert best is not None
    return best


def _double(grid: Grid) -> Grid:
    """Return the grid with its scales as double quantization stores them: those of an array with them as its maxima."""
    w = np.zeros((grid.rows, len(grid.stored_group)))
    w[:, np.searchsorted(grid.stored_group, np.arange(len(grid.scale)))] = grid.scale.T
    others = [n for a, n in enumerate(grid.shape) if a not in grid.axis]
    inner = [grid.shape[a] for a in grid.axis]
    order = [*(a for a in range(len(grid.shape)) if a not in grid.axis), *grid.axis]
    maxima = w.reshape(*others, *inner).transpose(np.argsort(order))
    return replace(grid_of(nearest(maxima, grid.fmt, grid.axis)), group=grid.group, pattern=grid.pattern)


def rounded_best(q: QuantizedArray, x: Array, weight: Array | None = None) -> QuantizedArray:
    """Return an array again with searched scales and rounded to them.

    Parameters
    ----------
    q : QuantizedArray
        x as plain rounding has it; becomes the answer.
    x : ndarray of floats
    weight : ndarray of float64, (columns,), optional

    Returns
    -------
    QuantizedArray

    Raises
    ------
    ValueError
        A format without scales, or with scales of a kind that no search changes.
    """
    try:
        check_search(q.format)
    except ValueError as problem:
        raise ValueError(f"quantize: clip is 'search', but {problem}") from None
    if not x.size:
        return q
    if q.format.splits_into_rows and not _rows_share(q.format):
        return _best_by_rows(q, x, weight)
    return _best_of(q, x, weight)


def check_search(fmt: Format) -> None:
    """Raise ValueError for a format without scales, or with scales of a kind that no search changes."""
    check_grid(fmt)
    if not has_scales(fmt):
        raise ValueError(f"{fmt} has no scale that could be another")


def _best_of(q: QuantizedArray, x: Array, weight: Array | None) -> QuantizedArray:
    w = to_columns(x, q.axis)
    grid = search_scales(grid_of(q), w, weight)
    return grid.quantized(grid.nearest(w), x.dtype.name)


def _rows_share(fmt: Format) -> bool:
    """Tell whether rows share a scale that is searched."""
    form = fmt.form
    return bool(form.shared and form.second == "row")


def _best_by_rows(q: QuantizedArray, x: Array, weight: Array | None) -> QuantizedArray:
    """Search some rows at a time: the columns of all are float64, twice the array."""
    inner, turned, layout = [q.shape[a] for a in q.axis], rows_first(x, q.axis), layout_of(q.format, q.shape, q.axis)
    whole = q._remade(q.components, (x.size // prod(inner), *inner), tuple(range(1, len(inner) + 1)))
    for some, index in row_blocks(q.shape, q.axis, _BLOCK):
        found = _best_of(whole[some], turned[index], weight)
        for name, part in q.components.items():
            if layout[name][2]:  # what all rows share is not searched
                part[some] = found.components[name]
    return q
