"""Rounding of columns such that no input of a format can overflow an accumulator: `gptq` with `accumulator`.

The machine adds products over one segment of k, as `accumulator_bits` describes. With P the sum of the levels above
0 and N that of the magnitudes below 0, the guarantee is two inequalities ``p P + n N <= limit``. Larger scales need
smaller levels. So scales that fit come first, then columns with feedback, in which each level stays within the rest
of its budget, then sweeps that keep the budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.quantized import QuantizedArray
from ..base import runtime
from ..base.errors import WrongValue
from ..formats import Format, has_pattern
from ..products.grid import F16, F32, Grid
from .accumulator import range_of, sums_of
from .levels import Part

Array = np.ndarray[Any, Any]

GROWTH = tuple(2.0 ** (i / 4) for i in range(29))  # factors of scales, until all levels fit
FINER = (1.0, 0.84, 0.71, 0.59)  # factors of scales that fit, for which some levels are clipped


@dataclass(frozen=True)
class Limit:
    """A checked accumulator of `bits`, for inputs of a format, with a sum that ends after `tile` values."""

    bits: int
    activations: Format
    tile: int


@dataclass
class Budget:
    """The two inequalities per segment and row.

    Attributes
    ----------
    segment : ndarray of int32, (columns,)
    count : int
    costs : tuple of (p, n, limit), two
    radius : float
        The largest sum of magnitudes of a segment whose levels have the mean 0.
    """

    segment: Array
    count: int
    costs: tuple[tuple[float, float, float], tuple[float, float, float]]
    radius: float

    def core(self, positive: Array, negative: Array, threshold: Array | None = None, forgets: bool = False) -> Any:
        """Return the budget in the C core's form, with its sums, which change."""
        return (self.count, self.segment, positive, negative, *self.costs, threshold, forgets)

    def sums(self, levels: Array) -> tuple[Array, Array]:
        """Return P and N (segments, rows) of levels (columns, rows)."""
        starts = np.searchsorted(self.segment, np.arange(self.count))
        positive = np.add.reduceat(np.maximum(levels, 0.0), starts, axis=0)
        return positive, np.add.reduceat(np.maximum(-levels, 0.0), starts, axis=0)

    def holds(self, levels: Array) -> Array:
        """Return whether each segment of each row is within the budget."""
        positive, negative = self.sums(levels)
        found: Array = np.logical_and(*(p * positive + n * negative <= limit for p, n, limit in self.costs))
        return found


def budget_of(q: QuantizedArray, limit: Limit, name: str) -> Budget:
    """Return the budget of a weight that was rounded plainly.

    Raises
    ------
    ValueError
        The format of the weight has no integers with float scales, or the accumulator cannot hold one product.
    """
    form = q.format.form
    if has_pattern(q.format) or form.codes != "integer" or form.minima or form.scale == "integer":
        raise WrongValue(f"{name}: accumulator is for integers with float scales, format is {q.format}")
    found = sums_of(q, limit.activations, limit.tile, name)
    steps, up, down = range_of(limit.activations)
    most = 2.0 ** (limit.bits - 1)
    if limit.activations.form.zero_points:
        costs = ((steps * found.factor, 0.0, most - 1), (0.0, steps * found.factor, most - 1))
    else:
        costs = ((up * found.factor, -down * found.factor, most - 1), (-down * found.factor, up * found.factor, most))
    if max(up, -down) * found.factor > most - 1:
        raise WrongValue(
            f"{name}: accumulator is {limit.bits} bits, which one product with {limit.activations} exceeds: expected "
            f"at least {int(max(up, -down) * found.factor).bit_length() + 1}"
        )
    segment = np.repeat(np.arange(len(found.segments)), [b - a for a, b in found.segments]).astype(np.int32)
    span = steps if limit.activations.form.zero_points else up - down
    return Budget(segment, len(found.segments), costs, 2 * (most - 1) / (span * found.factor))


def round_within(
    part: Part, budget: Budget, weight: Array, factor: Array, order: Array, sweeps: int, refits: int
) -> Array:
    """Round the columns of some rows within a budget, in place; return the number of codes that each sweep changed.

    Parameters
    ----------
    weight : ndarray, (columns,)
        Of the squared errors of a column, for the choice of scales.
    factor, order
        Of the damped matrix: see `damped_factor`.
    """
    grid, w = part.grid, part.w
    can_grow = grid.scales.kind in (F32, F16)
    fitting = _fitting(grid, w, budget, weight) if can_grow else grid.scale
    best: tuple[Array, Array, Array] | None = None
    for scale, thresholds, forgets in _candidates(grid, w, budget, fitting, can_grow):
        own = replace(grid, scale=scale)
        codes = np.empty(w.shape, np.int32)
        sums = np.zeros((2, budget.count, grid.rows))
        given = budget.core(sums[0], sums[1], thresholds, forgets)
        _core.ptq_columns(runtime.run(), own.core(), w, factor, order, None, codes, None, given)
        losses = np.empty(grid.rows)
        lost = np.ascontiguousarray(w - scale[grid.group] * _levels(own, codes))
        _core.ptq_losses(runtime.run(), len(w), lost, part.matrix, losses)
        losses = grid.scales.pooled(losses[None])[0]
        if best is None:
            best = losses, scale, codes
            continue
        better = losses < best[0]
        best = (np.where(better, losses, best[0]), np.where(better, scale, best[1]), np.where(better, codes, best[2]))
    assert best is not None
    grid.scale[...] = best[1]
    part.codes[...] = best[2]
    positive, negative = budget.sums(_levels(grid, part.codes))
    changed = np.zeros(sweeps, np.int64)
    moving = (grid.scales.kind, grid.scales.table, grid.scales.unit) if grid.scales.free and refits > 0 else None
    if sweeps:
        given = budget.core(np.ascontiguousarray(positive), np.ascontiguousarray(negative))
        _core.ptq_descend(runtime.run(), grid.core(), w, part.matrix, moving, refits, part.codes, changed, given)
    return changed


def as_published(grid: Grid, w: Array, budget: Budget, factor: Array, order: Array) -> Array:
    """Round columns within a budget in the form of Colbert et al., with the scales of plain rounding; return codes."""
    codes, sums = np.empty(w.shape, np.int32), np.zeros((2, budget.count, grid.rows))
    given = budget.core(sums[0], sums[1], thresholds(w, grid.scale, grid.group, budget), True)
    _core.ptq_columns(runtime.run(), grid.core(), w, factor, order, None, codes, None, given)
    return codes


def _levels(grid: Grid, codes: Array) -> Array:
    found: Array = codes.astype(np.float64)
    return found if grid.zero is None else found - grid.zero[grid.group]


def _fitting(grid: Grid, w: Array, budget: Budget, weight: Array) -> Array:
    """Return the scales of least error with which plainly rounded levels are within the budget, or the largest tried.

    Without such scales, columns are clipped.
    """
    starts = np.searchsorted(budget.segment, np.arange(budget.count))
    owner = grid.group[starts]  # of each segment
    best = grid.scale
    least = np.full(grid.scale.shape, np.inf)
    weight = weight + 1e-9 * weight.max(initial=0.0)
    for growth in GROWTH:
        scale = np.ascontiguousarray(grid.scales.stored(grid.scale * growth))
        own = replace(grid, scale=scale)
        fits = budget.holds(_levels(own, own.nearest(w)))
        errors = own.losses(w, weight[None])
        np.maximum.at(errors, owner, np.where(fits, 0.0, np.inf))
        errors = grid.scales.pooled(errors)
        better = errors < least
        best, least = np.where(better | np.isinf(least), scale, best), np.where(better, errors, least)
        if np.isfinite(errors).all():
            break
    return best


def _candidates(
    grid: Grid, w: Array, budget: Budget, fitting: Array, can_grow: bool
) -> Iterator[tuple[Array, Array, bool]]:
    """Yield scales, thresholds, and whether the threshold is forgotten by the feedback.

    Forgetting with the scales of plain rounding is the form of Colbert et al.
    """
    is_free = bool((fitting == grid.scale).all())
    for factor in FINER if can_grow and not is_free else (1.0,):
        scale = np.ascontiguousarray(grid.scales.stored(fitting * factor))
        lost = thresholds(w, scale, grid.group, budget)
        yield scale, lost, False
        if lost.any():
            yield scale, lost, True
    if not is_free:
        yield grid.scale, thresholds(w, grid.scale, grid.group, budget), True


def thresholds(w: Array, scale: Array, group: Array, budget: Budget) -> Array:
    """Return what magnitudes lose so that each centred segment is within the radius, (segments, rows).

    Duchi et al., "Efficient Projections onto the l1-Ball", ICML 2008, as Colbert et al. use it.
    """
    found = np.zeros((budget.count, w.shape[1]))
    for i in range(budget.count):
        columns = np.flatnonzero(budget.segment == i)
        own = scale[group[columns[0]]]
        x = np.divide(w[columns], own, out=np.zeros((len(columns), len(own))), where=own > 0)
        x = np.abs(x - np.cumsum(x, axis=0)[-1] / len(columns))
        ordered = -np.sort(-x, axis=0)
        over = np.cumsum(ordered, axis=0) - budget.radius
        count = np.maximum((ordered * np.arange(1, len(x) + 1)[:, None] > over).sum(axis=0), 1)
        least = np.take_along_axis(over, count[None] - 1, axis=0)[0] / count
        found[i] = np.where(over[-1] > 0, least, 0.0) * own
    return found
