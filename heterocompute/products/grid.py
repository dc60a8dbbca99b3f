"""What the columns of a weight may be rounded to: a format's steps or levels, and the scales that it can store.

Weights lie transposed here, (columns, rows) of float64, as csrc/ptq/ takes them: a column is one input of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.bits import pack, unpack
from ..arrays.components import component_layout
from ..arrays.quantized import QuantizedArray
from ..arrays.sparse import SparseArray
from ..base import runtime
from ..formats import Float, Format, Sparse, has_pattern
from ..formats.form import StoredForm
from .nearest import nearest
from .pattern import Pattern

__all__ = [
    "Grid",
    "Pattern",
    "Scales",
    "decoded_rows",
    "from_columns",
    "grid_of",
    "level_table",
    "to_columns",
]

Array = np.ndarray[Any, Any]

F32, F16, TABLE, TABLE_F32 = range(4)  # hc_ptq_scale_kind
LARGEST = float(np.finfo(np.float32).max)
_BLOCK = 1 << 20  # codes packed at a time


@dataclass(frozen=True)
class Scales:
    """Which scales a format can store.

    Attributes
    ----------
    kind : int
        F32, F16; or TABLE: ``unit[row] * table[i]``, rounded to float32 for TABLE_F32.
    table, unit : ndarray of float64 or None
        Ascending, above 0; (rows,).
    free : bool
        Whether one scale may change and the others stay.
    shared : bool
        One scale for all rows.
    """

    kind: int = F32
    table: Array | None = None
    unit: Array | None = None
    free: bool = True
    shared: bool = False

    def stored(self, scale: Array) -> Array:
        """Return the nearest scales that can be stored, 0 included; (groups, rows) of float64."""
        if self.kind == F32:
            return np.minimum(scale, LARGEST).astype(np.float32).astype(np.float64)
        if self.kind == F16:
            return np.minimum(scale, 65504.0).astype(np.float32).astype(np.float16).astype(np.float64)
        assert self.table is not None and self.unit is not None
        table = np.concatenate([[0.0], self.table])
        with np.errstate(divide="ignore", invalid="ignore"):
            wanted = np.where(self.unit > 0, scale / self.unit, 0.0)
        found: Array = self.unit * table[np.searchsorted((table[1:] + table[:-1]) / 2, wanted)]
        return found.astype(np.float32).astype(np.float64) if self.kind == TABLE_F32 else found


@dataclass
class Grid:
    """A format's steps or levels for one array, with scales that may change.

    Attributes
    ----------
    fmt, shape, axis
        Of the array.
    group : ndarray of int32, (columns,)
        The group of each column.
    scale : ndarray of float64, (groups, rows)
    zero : ndarray of float64, (groups, rows), or None
    low, high : float
        Of the steps.
    levels, thresholds : ndarray of float64 or None
        (n,) and (n - 1,), or with a second dimension of rows.
    stored : ndarray of int64 or None
        The code of each level.
    scales : Scales
    parts : dict of str to ndarray
        Components as plain rounding has them.
    pattern : Pattern or None
        Of an N:M format, whose base is `fmt`.
    exact : bool
        Codes are the bits of float32.
    """

    fmt: Format
    shape: tuple[int, ...]
    axis: tuple[int, ...]
    group: Array
    scale: Array
    zero: Array | None
    low: float
    high: float
    levels: Array | None
    thresholds: Array | None
    stored: Array | None
    scales: Scales
    parts: dict[str, Array]
    pattern: Pattern | None = None
    exact: bool = False

    @property
    def stored_group(self) -> Array:
        """The group of each column that is stored."""
        return self.group if self.pattern is None else self.pattern.group

    @property
    def form(self) -> StoredForm:
        return self.fmt.form

    @property
    def rows(self) -> int:
        return int(self.scale.shape[1])

    def of_rows(self, part: slice) -> Grid:
        """Return the grid of some rows; of all of them it is this one itself."""
        if part == slice(0, self.rows):
            return self

        def cut(x: Array | None, ndim: int = 2) -> Any:
            return x if x is None or x.ndim < ndim else np.ascontiguousarray(x[..., part])

        pattern, levels = self.pattern, {"levels": cut(self.levels), "thresholds": cut(self.thresholds)}
        return replace(
            self,
            **levels,
            scale=cut(self.scale),
            zero=cut(self.zero),
            scales=replace(self.scales, unit=cut(self.scales.unit, 1)),
            pattern=pattern and replace(pattern, mask=cut(pattern.mask)),
        )

    def take_rows(self, part: slice, other: Grid) -> None:
        """Take scales, levels and mask of some rows from a grid of theirs."""
        if other is self:
            return
        self.scale[:, part] = other.scale
        if self.pattern is not None and other.pattern is not None:
            self.pattern.mask[:, part] = other.pattern.mask
        if self.levels is None or other.levels is None or self.thresholds is None or other.thresholds is None:
            return
        if self.levels.ndim == 1:
            self.levels, self.thresholds = other.levels, other.thresholds
        else:
            self.levels[:, part], self.thresholds[:, part] = other.levels, other.thresholds

    def core(self, scale: Array | None = None) -> tuple[Any, ...]:
        """Return the grid as the C core takes it, with other scales where given."""
        used = self.scale if scale is None else np.ascontiguousarray(scale)
        rounding = (self.zero, self.low, self.high, self.levels, self.thresholds)
        mask = None if self.pattern is None else self.pattern.mask
        return (self.rows, len(self.scale), self.group, used, *rounding, mask, self.exact)

    def nearest(self, w: Array) -> Array:
        """Return the codes of plain rounding with these scales, (columns, rows) of int32."""
        codes = np.empty(w.shape, np.int32)
        order = np.arange(len(w), dtype=np.int32)
        _core.ptq_columns(runtime.run(), self.core(), w, None, order, None, codes)
        return codes

    def quantized(self, codes: Array, source_dtype: str) -> QuantizedArray:
        """Pack codes and scales."""
        if self.pattern is not None:
            return self._with_pattern(self.pattern, codes, source_dtype)
        parts = {**self.parts, **self._scale_parts(), "codes": self._packed_codes(codes)}
        layout = component_layout(self.fmt, self.shape, self.axis)
        parts = {name: np.ascontiguousarray(parts[name], dtype).reshape(size) for name, (dtype, size) in layout.items()}
        return QuantizedArray._trusted(parts, self.fmt, self.shape, self.axis, source_dtype)

    def _with_pattern(self, pattern: Pattern, codes: Array, source_dtype: str) -> QuantizedArray:
        """Pack what is kept as an array of its own, and where it stands."""
        fmt, found = pattern.fmt, np.empty((len(pattern.group), self.rows), np.int32)
        base = replace(self, group=pattern.group, pattern=None)
        size = component_layout(fmt, pattern.shape, pattern.axis)["metadata"][1]
        metadata, step = np.empty(size, np.uint8), max(1, _BLOCK // max(len(codes), 1))
        for first in range(0, self.rows, step):
            part = slice(first, min(first + step, self.rows))
            held = pattern.chosen(part)
            metadata[part] = held.components["metadata"]
            at, stands = pattern.places(held.positions())
            zeros = base.of_rows(part).nearest(np.zeros(at.shape))
            at = np.where(stands, at, 0)
            found[:, part] = np.where(stands, np.take_along_axis(codes[:, part], at, axis=0), zeros)
        if not self.exact:
            parts = base.quantized(found, source_dtype).components
        elif fmt.is_plain:
            parts = {"values": np.ascontiguousarray(found.T).view(np.float32)}
        else:
            values = np.ascontiguousarray(found.T).view(np.float32).reshape(self.shape)
            parts = nearest(values, self.fmt, self.axis).components
        parts = {**parts, "metadata": metadata}
        kind = SparseArray if fmt.is_plain else QuantizedArray
        return kind._trusted(parts, fmt, pattern.shape, pattern.axis, source_dtype)

    def _scale_parts(self) -> dict[str, Array]:
        form, rows = self.form, self.scale.T
        if form.scale == "integer":
            assert self.scales.unit is not None
            unit = self.scales.unit
            safe = np.where(unit > 0, unit, 1.0)[:, None]
            codes = np.where(unit[:, None] > 0, np.rint(rows / safe), 0).astype(np.uint32)
            coarse = unit.astype(np.float32)
            return {
                "scales": _pack_scales(codes, form.scale_bits),
                "coarse": coarse[:1].reshape(()) if form.shared else coarse,
            }
        if form.scale == "e8m0":
            exponents = np.frexp(rows)[1] - 1
            return {"scales": np.where(rows > 0, exponents + 127, 0)}
        if form.scale == "e4m3":
            assert self.scales.table is not None and self.scales.unit is not None
            table = (
                np.concatenate([[0.0], self.scales.table]) * float(self.scales.unit[0]) if rows.size else np.zeros(1)
            )
            table = table.astype(np.float32).astype(np.float64)
            return {"scales": np.searchsorted(table, rows)}
        found = {}
        if form.second == "row" and rows.size:
            found["coarse"] = rows[:1, 0]
        if form.codes == "learned":
            assert self.levels is not None
            found["codebook"] = self.levels.T
        if form.scale in ("f32", "f16"):
            found["scales"] = rows
        return found

    def _packed_codes(self, codes: Array) -> Array:
        """Return rows of packed codes, with the padding of short groups."""
        fmt, bits = self.fmt, self.fmt.bits
        length, runs = self.shape[self.axis[-1]], prod(self.shape[a] for a in self.axis[:-1])
        group, per_run = _groups(fmt, length)
        row_bytes = component_layout(fmt, self.shape, self.axis)["codes"][1][1]
        packed = np.zeros((self.rows, row_bytes), np.uint8)
        padded = length if fmt.group is None else group * per_run
        step = max(1, _BLOCK // max(runs * padded, 1))
        padding = np.full(self.rows, fmt.stored_rules().padding or 0)
        if self.thresholds is not None and self.stored is not None and fmt.stored_rules().padding is None:
            padding[:] = self.stored[(self.thresholds < 0).sum(axis=0)]  # what 0 is rounded to
        for first in range(0, self.rows, step):
            block = codes[:, first : first + step].T.astype(np.int64)
            block = self.stored[block] if self.stored is not None else block & ((1 << bits) - 1)
            full = np.empty((len(block), runs, padded), np.int64)
            full[:] = padding[first : first + step, None, None]
            if self.zero is not None and padded > length:
                tails = self.zero[per_run - 1 :: per_run, first : first + step].T
                full[:, :, length:] = tails[:, :, None]
            full[:, :, :length] = block.reshape(len(block), runs, length)
            packed[first : first + step] = pack(full.reshape(len(block), -1).astype(np.uint32), bits)
        return packed


def _groups(fmt: Format, length: int) -> tuple[int, int]:
    """Return values of a group, and groups of a run."""
    group = max(min(length if fmt.group is None else fmt.group, length), 1)
    return group, -(-length // group)


def _pack_scales(codes: Array, bits: int) -> Array:
    if bits <= 8:
        return pack(codes, bits)
    single = (codes[:, :, None] >> np.arange(bits, dtype=np.uint32)) & 1
    return np.packbits(single.astype(np.uint8).reshape(len(codes), -1), axis=1, bitorder="little")


def _unpack_scales(packed: Array, bits: int, count: int) -> Array:
    if bits <= 8:
        return unpack(packed, bits, count)
    single = np.unpackbits(packed, axis=1, count=count * bits, bitorder="little").reshape(len(packed), count, bits)
    return single.astype(np.int64) @ (1 << np.arange(bits, dtype=np.int64))


def to_columns(x: Array, axis: tuple[int, ...], dtype: Any = np.float64) -> Array:
    """Return an array as (columns, rows), a copy where it is not that; the columns are the axes in the order given."""
    others = [a for a in range(x.ndim) if a not in axis]
    columns = prod(x.shape[a] for a in axis)
    rows = prod(x.shape[a] for a in others)
    turned = x.transpose(*axis, *others)
    if x.ndim > 2:  # whose axes need not merge
        turned = turned.astype(dtype, order="C")
    return np.ascontiguousarray(turned.reshape(columns, rows), dtype=dtype)


def from_columns(columns: Array, shape: tuple[int, ...], axis: tuple[int, ...]) -> Array:
    """Undo `to_columns`."""
    order = [*axis, *(a for a in range(len(shape)) if a not in axis)]
    return columns.reshape([shape[a] for a in order]).transpose(np.argsort(order))


def decoded_rows(q: QuantizedArray) -> Array:
    """Return the unrounded values of an array as (rows, columns) of float64."""
    others = [a for a in range(q.ndim) if a not in q.axis]
    values = q.dequantize(np.float64).transpose(*others, *q.axis)
    return values.reshape(prod(q.shape[a] for a in others), prod(q.shape[a] for a in q.axis))


def level_table(fmt: Format) -> tuple[Array, Array]:
    """Return the values of a format's codes without scale, ascending, and the code of each.

    Raises
    ------
    ValueError
        Codes of more than 8 bits.
    """
    if fmt.bits > 8:
        raise ValueError(f"{fmt} has codes of {fmt.bits} bits, too many for a table of levels")
    form = fmt.form
    if form.codes == "integer":
        integers = np.arange(form.lowest, form.largest + 1)
        return integers / 2.0**form.fraction_bits, integers & ((1 << form.bits) - 1)
    if not form.levels:
        raise ValueError(f"{fmt} has no table of levels that all arrays share")
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


def grid_of(q: QuantizedArray) -> Grid:
    """Return the grid of an array that was rounded plainly, with its scales, and what it keeps.

    Raises
    ------
    ValueError
        A format without steps or a table of levels, or whose scales are of a kind that no search changes.
    """
    fmt = q.format
    check_grid(fmt)
    return _sparse_grid(q, fmt) if has_pattern(fmt) else _dense_grid(q)


def _dense_grid(q: QuantizedArray) -> Grid:
    fmt = q.format
    length, runs = q.shape[q.axis[-1]], prod(q.shape[a] for a in q.axis[:-1])
    rows = prod(n for a, n in enumerate(q.shape) if a not in q.axis)
    group_size, per_run = _groups(fmt, length)
    column = np.arange(runs * length)
    if fmt.group is None:
        group, n_groups = np.zeros(runs * length, np.int32), 1
    else:
        group = (column // max(length, 1) * per_run + column % max(length, 1) // group_size).astype(np.int32)
        n_groups = runs * per_run
    grid = _empty_grid(q, group, np.ones((n_groups, rows)))
    return _filled(grid, n_groups, rows)


# Kinds of (scale, second level) that `Grid` can store.
_SCALES = {("none", "none"), ("none", "row"), ("f32", "none"), ("f16", "none"), ("integer", "row"), ("e8m0", "none"),
           ("e4m3", "scale"), ("double", "none")}  # fmt: skip


def check_grid(fmt: Format) -> None:
    """Raise ValueError for a format without steps or a table of levels, or whose scales no search changes."""
    form = fmt.form
    if has_pattern(fmt):
        if not _is_exact(fmt):
            check_grid(fmt.base)
        return
    if form.codes == "unstated":
        raise ValueError(f"{fmt} has codes of an unstated kind, so that its levels are unknown")
    if fmt.unit > max(form.code_values, 1):
        raise ValueError(f"{fmt} has blocks, whose scales no other search changes")
    if form.code_values > 1 or (form.codes == "float" and form.bits > 8):
        raise ValueError(f"{fmt} has no steps and no table of levels")
    alone = form.scale == "none" and form.second == "row"  # which is then one scale for the array
    if form.minima or (form.scale, form.second) not in _SCALES or (alone and not form.shared):
        raise ValueError(f"{fmt} has scales or minima of a kind that no search changes")


def has_scales(fmt: Format) -> bool:
    """Tell whether a format has scales that may be others than those of the largest magnitude."""
    if has_pattern(fmt) and _is_exact(fmt):
        return False
    return fmt.form.scale != "none" or fmt.form.second == "row"


def _is_exact(fmt: Sparse) -> bool:
    """Tell whether the nonzeros of a pattern are floats of 16 or 32 bits, which are kept as they are."""
    return fmt.form.codes == "float" and fmt.bits > 8


def _empty_grid(q: QuantizedArray, group: Array, scale: Array) -> Grid:
    nothing = (None, 0.0, 0.0, None, None, None, Scales(free=False))
    return Grid(q.format, q.shape, q.axis, group, scale, *nothing, dict(q.components))


def _sparse_grid(q: QuantizedArray, fmt: Sparse) -> Grid:
    """Return the grid of what is kept, for all columns: each takes the group of its block."""
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
    else:
        grid.levels, grid.stored = level_table(fmt)
        grid.thresholds = _table_thresholds(fmt, grid.levels, grid.stored)
    if form.zero_points:
        zeros = unpack(parts["zero_points"], fmt.bits, n_groups)
        grid.zero = np.ascontiguousarray(zeros.T, np.float64)
    if form.scale == "integer":
        codes = _unpack_scales(parts["scales"], form.scale_bits, n_groups)
        return with_unit(grid, np.broadcast_to(parts["coarse"], (rows,)).astype(np.float64), codes.T)
    stored = parts["scales"].reshape(rows, -1).T if "scales" in parts and rows else np.ones((n_groups, rows), np.uint8)
    if form.scale == "e8m0":
        grid.scales = Scales(TABLE, 2.0 ** np.arange(-127, 128), np.ones(rows))
        grid.scale = np.ldexp(1.0, np.minimum(stored, 0xFE).astype(np.int64) - 127)
    elif form.scale == "e4m3":
        table = level_table(Float("fp8_e4m3fn"))[0]
        table, unit = table[table > 0], np.full(rows, float(parts["coarse"]))
        every = (np.concatenate([[0.0], table]) * float(parts["coarse"])).astype(np.float32).astype(np.float64)
        grid.scales = Scales(TABLE_F32, table, unit)
        grid.scale = every[np.minimum(stored, len(table))]
    elif form.scale == "double":
        ones = {**parts, "codes": np.full_like(parts["codes"], 255)}  # level 1
        values = decoded_rows(QuantizedArray._trusted(ones, fmt, grid.shape, grid.axis, "float32"))
        grid.scale = values[:, np.searchsorted(grid.group, np.arange(n_groups))].T
    elif form.second == "row":
        grid.scales = Scales(free=False, shared=True)
        grid.scale = np.full((1, rows), float(parts["coarse"]))
    elif form.scale in ("f32", "f16"):
        grid.scales = Scales(F16 if form.scale == "f16" else F32)
        grid.scale = stored.astype(np.float64)
    grid.scale = np.ascontiguousarray(grid.scale)
    return grid


def with_unit(grid: Grid, unit: Array, codes: Array) -> Grid:
    """Return the grid with scales ``unit[row] * codes``, of two levels."""
    table = np.arange(1, 2**grid.form.scale_bits, dtype=np.float64)
    scale = np.ascontiguousarray(unit * codes.astype(np.float64))
    return replace(grid, scale=scale, scales=Scales(TABLE, table, unit))
