"""Scales of least squared error, with each value's error weighted by its input if that is known.

For every group the scales of plain rounding, times 1, 0.98 ... 0.3, are tried in stored precision; MX tries the
neighbouring exponents. The error is that of the decoded values. The first among equals wins. Scales that are stored
in two levels are rounded twice, so the result is compared with plain rounding at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ..arrays.components import layout_of
from ..arrays.quantized import QuantizedArray
from ..arrays.rows import row_blocks, rows_first
from ..base.errors import WrongValue
from .columns import decoded_rows, to_columns
from .grid import Grid, Scales
from .grid_of import check_grid, grid_of
from .nearest import nearest
from .scale_kinds import has_coarse, is_below, kind_of

Array = np.ndarray[Any, Any]

_BLOCK = 1 << 19  # values searched at a time, in whole rows
SHRINK = tuple((50 - i) / 50 for i in range(36))  # 1 ... 0.3: the range for ternary codes of long rows
WIDE = tuple((30 - i) / 20 for i in range(21))  # 1.5 ... 0.5: includes the largest value at 4 instead of 6
BROAD = tuple((40 - i) / 20 for i in range(36))  # 2 ... 0.25: where the plain scale is that of a mean or of a target
POWERS = (1.0, 0.5, 2.0)
COARSE = tuple(
    (20 - i) / 20 for i in range(9)
)  # factors of the largest scale: below 1 a few values saturate, and the rest have finer steps


def search_scales(grid: Grid, w: Array, weight: Array | None = None) -> Grid:
    """Return the grid with the best scales.

    Parameters
    ----------
    w : ndarray of float64, (columns, rows)
    weight : ndarray of float64, (columns,) or (parts of rows, columns), optional
        Of the squared errors of a column; a column without weight counts a little, so that no group is without any.
    """
    weight = np.ones((1, len(w))) if weight is None else np.atleast_2d(weight)
    weight = weight + 1e-9 * weight.max(axis=1, initial=0.0, keepdims=True)
    form, base = grid.form, grid.scale
    if not w.size or grid.exact or not form.has_scales:
        return grid
    kind = kind_of(grid.fmt)
    if kind == "integer":
        return _two_levels(grid, w, weight)
    if kind == "double":
        single = replace(grid, scales=Scales()).with_best_scale(w, weight, (base * f for f in SHRINK))
        return _double(single)
    factors = {"e8m0": POWERS, "table": WIDE if has_coarse(grid.fmt) else SHRINK}.get(kind, SHRINK)
    factors = factors if kind == "e8m0" or not is_below(grid.fmt) else BROAD
    found = grid.with_best_scale(w, weight, (base * f for f in factors))
    if kind == "e8m0":  # for power-of-two scales only exponents in their range
        found.scale = np.clip(found.scale, 2.0**-127, 2.0**127)
    return found


def _two_levels(grid: Grid, w: Array, weight: Array) -> Grid:
    """Search each scale as a free float, then the scale of the row, and integers near each quotient."""
    form = grid.form
    largest = grid.high if grid.levels is None else np.abs(grid.levels).max()
    steps = 2**form.scale_bits - 1
    magnitudes = np.maximum(w, 0.0) if form.is_unsigned else np.abs(w)
    starts = np.searchsorted(grid.group, np.arange(len(grid.scale)))
    with np.errstate(over="ignore"):
        absmax = np.maximum.reduceat(magnitudes, starts, axis=0).astype(np.float32)
    base = (np.minimum(absmax, np.finfo(np.float32).max) / np.float32(largest)).astype(np.float64)
    fine = replace(grid, scales=Scales()).with_best_scale(w, weight, (base * f for f in SHRINK)).scale
    over = fine.max(axis=None if form.shared else 0, initial=0.0)
    best: Grid | None = None
    least: Array = np.empty(0)
    for share in COARSE:
        unit = (np.asarray(over * share, np.float32) / np.float32(steps)).astype(np.float64)
        units = np.broadcast_to(unit, (grid.rows,)).copy()
        safe = np.where(units > 0, units, 1.0)
        codes = np.where(units > 0, np.rint(fine / safe), 0.0)
        around = (units * np.clip(codes + step, 0, steps) for step in (0, -1, 1))
        found = grid.with_unit(units, np.zeros(fine.shape)).with_best_scale(w, weight, around)
        errors = found.losses(w, weight)
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
    """Return the grid with its scales as double quantization stores them: as for an array with them as its maxima."""
    w = np.zeros((grid.rows, len(grid.stored_group)))
    w[:, np.searchsorted(grid.stored_group, np.arange(len(grid.scale)))] = grid.scale.T
    others = [n for a, n in enumerate(grid.shape) if a not in grid.axis]
    inner = [grid.shape[a] for a in grid.axis]
    order = [*(a for a in range(len(grid.shape)) if a not in grid.axis), *grid.axis]
    maxima = w.reshape(*others, *inner).transpose(np.argsort(order))
    return replace(grid_of(nearest(maxima, grid.fmt, grid.axis)), group=grid.group, pattern=grid.pattern)


def rounded_best(q: QuantizedArray, x: Array) -> QuantizedArray:
    """Return an array again with searched scales and rounded to them.

    Parameters
    ----------
    q : QuantizedArray
        x as plain rounding has it; becomes the answer.

    Raises
    ------
    ValueError
        The format has no scales, or scales of a kind that no search changes.
    """
    fmt = q.format
    try:
        check_grid(fmt, searched=True)
    except ValueError as problem:
        raise WrongValue(f"quantize: clip is 'search', but {problem}") from None
    if not x.size:
        return q
    for some, held, values in _blocks(q, x):
        w = to_columns(values, held.axis)
        grid = search_scales(grid_of(held), w)
        found = grid.quantized(grid.nearest(w), x.dtype.name)
        found = no_worse(found, held, [_squares(one, w) for one in (found, held)])
        if some is None:
            return found
        for name, (_, _, by_row) in layout_of(fmt, q.shape, q.axis).items():
            if by_row:  # scales that all rows share are not searched
                q.components[name][some] = found.components[name]
    return q


def _squares(q: QuantizedArray, w: Array) -> Array:
    """Return the squared error of each row of (columns, rows), columns ascending."""
    lost = w - decoded_rows(q).T
    return np.asarray(np.cumsum(lost * lost, axis=0)[-1])


def no_worse(q: QuantizedArray, plain: QuantizedArray, losses: Sequence[Array]) -> QuantizedArray:
    """Return an array with the rows of plain rounding where these have less error.

    If rows share scales or levels in which the two arrays differ, one of the two arrays is taken as a whole.

    Parameters
    ----------
    q, plain : QuantizedArray
        Of one format, shape and axis; q may change.
    losses : (ndarray, ndarray)
        The error of each row of both.
    """
    layout = layout_of(q.format, q.shape, q.axis)
    shared = [name for name, (_, _, by_row) in layout.items() if not by_row]
    alike = all(np.array_equal(q.components[name], plain.components[name]) for name in shared)
    if not (alike and q.format.splits_into_rows):
        lost, least = (float(np.cumsum(each)[-1]) for each in losses)
        return plain if least < lost else q
    better = losses[1] < losses[0]
    for name, part in q.components.items() if better.any() else ():
        if name not in shared:
            part[better] = plain.components[name][better]
    return q


def _blocks(q: QuantizedArray, x: Array) -> Iterator[tuple[slice | None, QuantizedArray, Array]]:
    """Yield rows of both, some at a time since columns are float64, twice the array; None if it stays whole."""
    form = q.format.form
    if not q.format.splits_into_rows or (form.shared and form.second == "row"):  # rows share a scale that is searched
        yield None, q, x
        return
    inner, turned = [q.shape[a] for a in q.axis], rows_first(x, q.axis)
    whole = q._remade(q.components, (x.size // prod(inner), *inner), tuple(range(1, len(inner) + 1)))
    for some, index in row_blocks(q.shape, q.axis, _BLOCK):
        yield some, whole[some], turned[index]
