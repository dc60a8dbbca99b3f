"""The formats that have a grid, and the grid of an array that was rounded plainly: see grid.py."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ..arrays.bits import unpack
from ..arrays.quantized import QuantizedArray
from ..base.errors import WrongValue
from ..formats import Format, Sparse, has_pattern, is_own, unrotated
from .columns import decoded_rows
from .grid import F16, F32, TABLE, TABLE_F32, Grid, Scales, groups_of
from .pattern import Pattern
from .scale_kinds import has_coarse, kind_of, own_levels, repeated, scale_table

Array = np.ndarray[Any, Any]

_BLOCK = 1 << 20  # values whose indices are unpacked at a time

# Kinds of (scale, second level) that `Grid` can store.
_SCALES = {("none", "none"), ("none", "row"), ("f32", "none"), ("f16", "none"), ("integer", "row"), ("e8m0", "none"),
           ("table", "none"), ("table", "scale"), ("double", "none")}  # fmt: skip


def check_grid(fmt: Format, searched: bool = False) -> None:
    """Raise ValueError for a format without steps or a table of levels, or with scales that no search changes.

    searched: also for a format whose scales must be those of the largest magnitudes.
    """
    form, is_exact = fmt.form, has_pattern(fmt) and _is_exact(fmt)
    if not is_exact:
        _check_kinds(fmt.base if has_pattern(fmt) else unrotated(fmt))
    if searched and (is_exact or not form.has_scales):
        raise WrongValue(f"{fmt} has no scale to choose")


def _check_kinds(fmt: Format) -> None:
    form = fmt.form
    if form.codes == "unstated":
        raise WrongValue(f"{fmt} has codes of an unstated kind, so that its levels are unknown")
    if fmt.unit > max(form.code_values, 1):
        near = "int8-g32-f16" if str(fmt) == "q8_0" else "int4-g32-f16"  # stored as Q8_0 and Q4_0 in GGUF
        raise WrongValue(f"{fmt} has its own search for the scales of its blocks; use {near}, which gguf also stores")
    if form.code_values > 1 or (form.codes == "float" and form.bits > 8 and not is_own(fmt)):
        raise WrongValue(f"{fmt} has no steps and no table of levels")
    has_array_scale = form.scale == "none" and form.second == "row"  # the format then has one scale for the array
    if form.minima or (kind_of(fmt), form.second) not in _SCALES or (has_array_scale and not form.shared):
        raise WrongValue(f"{fmt} has scales or minima that the search does not support")


def _is_exact(fmt: Sparse) -> bool:
    """Tell whether the nonzeros are floats of 16 or 32 bits of the catalogue, which are kept as they are."""
    return fmt.form.codes == "float" and fmt.bits > 8 and not is_own(fmt.base)


def grid_of(q: QuantizedArray) -> Grid:
    """Return the grid of an array that was rounded plainly, with its scales and the mask of kept values.

    Raises
    ------
    ValueError
        The format has neither steps nor a table of levels, or its scales are of a kind that no search changes.
    """
    fmt = q.format
    check_grid(fmt)
    return _sparse_grid(q, fmt) if has_pattern(fmt) else _dense_grid(q)


def _dense_grid(q: QuantizedArray) -> Grid:
    fmt = q.format
    length, runs = q.shape[q.axis[-1]], prod(q.shape[a] for a in q.axis[:-1])
    rows = prod(n for a, n in enumerate(q.shape) if a not in q.axis)
    group_size, per_run = groups_of(fmt, length)
    column = np.arange(runs * length)
    if fmt.group is None:
        group, n_groups = np.zeros(runs * length, np.int32), 1
    else:
        group = (column // max(length, 1) * per_run + column % max(length, 1) // group_size).astype(np.int32)
        n_groups = runs * per_run
    grid = _empty_grid(q, group, np.ones((n_groups, rows)))
    return _filled(grid, n_groups, rows)


def _empty_grid(q: QuantizedArray, group: Array, scale: Array) -> Grid:
    nothing = (None, 0.0, 0.0, None, None, None, Scales(free=False))
    return Grid(q.format, q.shape, q.axis, group, scale, *nothing, dict(q.components))


def _sparse_grid(q: QuantizedArray, fmt: Sparse) -> Grid:
    """Return the grid of the kept values, for all columns: each has the group of its block."""
    rows = prod(n for a, n in enumerate(q.shape) if a not in q.axis)
    length, runs = q.shape[q.axis[-1]], prod(q.shape[a] for a in q.axis[:-1])
    kept, blocks = fmt.stored_length(length), -(-length // fmt.m)
    parts = {name: part for name, part in q.components.items() if name != "metadata"}
    base = QuantizedArray._trusted(parts, fmt.base, (rows, runs, kept), (1, 2), q.source_dtype)
    if _is_exact(fmt):
        grid = replace(_empty_grid(base, np.zeros(runs * kept, np.int32), np.ones((1, rows))), exact=True)
    else:
        grid = _dense_grid(base)
    column = np.arange(runs * length, dtype=np.int32)
    block = column // max(length, 1) * blocks + column % max(length, 1) // fmt.m
    pattern = Pattern(fmt, q.shape, q.axis, block, grid.group, np.zeros((len(column), rows), np.uint8))
    positions = np.zeros((rows, runs * kept), np.uint8)
    if fmt.m > 1:
        positions = unpack(q.components["metadata"], (fmt.m - 1).bit_length(), runs * kept)
    step = max(1, _BLOCK // max(len(column), 1))
    for first in range(0, rows, step):
        at, _ = pattern.places(positions[first : first + step])
        one = np.zeros((len(column) + 1, at.shape[1]), np.uint8)
        np.put_along_axis(one, at, 1, axis=0)
        pattern.mask[:, first : first + step] = one[:-1]
    group = grid.group[block * fmt.n] if grid.group.size else np.zeros(len(block), np.int32)
    return replace(grid, group=group, pattern=pattern)


def _filled(grid: Grid, n_groups: int, rows: int) -> Grid:
    fmt, form, parts = grid.fmt, grid.form, grid.parts
    if form.codes == "integer" and form.fraction_bits == 0:
        grid.low, grid.high = float(form.lowest), float(form.largest)
    elif form.codes == "learned":
        book = parts["codebook"].astype(np.float64)
        grid.levels = np.ascontiguousarray(book if book.ndim == 1 else book.T)
        grid.thresholds = np.ascontiguousarray((grid.levels[1:] + grid.levels[:-1]) / 2)
        grid.stored = np.arange(len(grid.levels))
    elif is_own(fmt) and form.codes != "log":
        grid.levels, grid.stored, grid.thresholds = own_levels(fmt)
    else:
        grid.levels, grid.stored = level_table(fmt)
        grid.thresholds = _table_thresholds(fmt, grid.levels, grid.stored)
    if form.zero_points:
        zeros = unpack(parts["zero_points"], fmt.bits, n_groups)
        grid.zero = np.ascontiguousarray(zeros.T, np.float64)
    kind = kind_of(fmt)
    if kind == "integer":
        codes = _unpack_scales(parts["scales"], form.scale_bits, n_groups)
        return grid.with_unit(np.broadcast_to(parts["coarse"], (rows,)).astype(np.float64), codes.T)
    stored = np.ones((n_groups, rows), np.uint8)
    if "scales" in parts and rows:
        stored = repeated(fmt, parts["scales"].reshape(-(-rows // fmt.shared_rows), -1), rows).T
    if kind == "e8m0":
        grid.scales = Scales(TABLE, 2.0 ** np.arange(-127, 128), np.ones(rows))
        grid.scale = np.ldexp(1.0, np.minimum(stored, 0xFE).astype(np.int64) - 127)
    elif kind == "table":
        table, unit = scale_table(fmt), np.ones(rows)
        if has_coarse(fmt):
            unit = np.broadcast_to(parts["coarse"], (rows,)).astype(np.float64)
        codes = stored.view(np.uint16) if stored.dtype.itemsize == 2 else stored
        exact = np.concatenate([[0.0], table])[np.minimum(codes, len(table), dtype=np.int64)] * unit
        grid.scales = Scales(TABLE_F32 if has_coarse(fmt) else TABLE, table, unit)
        grid.scale = exact.astype(np.float32).astype(np.float64)
    elif kind == "double":
        ones = {**parts, "codes": np.full_like(parts["codes"], 255)}  # level 1
        values = decoded_rows(QuantizedArray._trusted(ones, fmt, grid.shape, grid.axis, "float32"))
        grid.scale = values[:, np.searchsorted(grid.group, np.arange(n_groups))].T
    elif kind == "none" and form.second == "row":
        grid.scales = Scales(free=False, rows=max(rows, 1))
        grid.scale = np.full((1, rows), float(parts["coarse"]))
    elif kind in ("f32", "f16"):
        grid.scales = Scales(F16 if kind == "f16" else F32)
        grid.scale = stored.astype(np.float64)
    if fmt.shared_rows > 1:
        grid.scales = replace(grid.scales, free=False, rows=fmt.shared_rows)
    grid.scale = np.ascontiguousarray(grid.scale)
    return grid


def level_table(fmt: Format) -> tuple[Array, Array]:
    """Return the values of a format's codes without scale, ascending, and the code of each.

    Raises
    ------
    ValueError
        The codes have more than 8 bits.
    """
    if fmt.bits > 8:
        raise WrongValue(f"{fmt} has codes of {fmt.bits} bits, too many for a table of levels")
    form = fmt.form
    if form.codes == "integer":
        integers = np.arange(form.lowest, form.largest + 1)
        return integers / 2.0**form.fraction_bits, integers & ((1 << form.bits) - 1)
    if not form.levels:
        raise WrongValue(f"{fmt} has no table of levels that all arrays share")
    values, codes = np.array(form.levels), np.arange(len(form.levels))
    legal = np.isfinite(values) & (codes != fmt.stored_rules().unused_code)
    legal &= ~((values == 0) & np.signbit(values))
    values, codes = values[legal], codes[legal]
    levels, first = np.unique(values, return_index=True)
    return levels, codes[first]


def _table_thresholds(fmt: Format, levels: Array, stored: Array) -> Array:
    """Return the midpoints; floats and fixed-point integers round ties to the even code, others to the lower level."""
    middle = (levels[1:] + levels[:-1]) / 2
    if fmt.form.codes not in ("float", "integer"):
        return middle
    return np.where(stored[1:] % 2 == 0, np.nextafter(middle, -np.inf), middle)


def _unpack_scales(packed: Array, bits: int, count: int) -> Array:
    if bits <= 8:
        return unpack(packed, bits, count)
    single = np.unpackbits(packed, axis=1, count=count * bits, bitorder="little").reshape(len(packed), count, bits)
    return single.astype(np.int64) @ (1 << np.arange(bits, dtype=np.int64))
