"""The values to which the columns of a weight may be rounded: a format's steps or levels, and its storable scales.

Weights are transposed here, (columns, rows) of float64, the layout of csrc/ptq/: a column is one input of all rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.bits import pack
from ..arrays.components import component_layout, values_of
from ..arrays.quantized import QuantizedArray
from ..arrays.sparse import SparseArray
from ..base import runtime
from ..formats import Format
from ..formats.form import StoredForm
from .nearest import nearest
from .pattern import Pattern
from .scale_kinds import kind_of, stored_table_codes

Array = np.ndarray[Any, Any]

F32, F16, TABLE, TABLE_F32 = range(4)  # hc_ptq_scale_kind
LARGEST = float(np.finfo(np.float32).max)
_BLOCK = 1 << 20  # codes packed at a time


@dataclass(frozen=True)
class Scales:
    """The scales that a format can store.

    Attributes
    ----------
    kind : int
        F32, F16; or TABLE: ``unit[row] * table[i]``, rounded to float32 for TABLE_F32.
    table, unit : ndarray of float64 or None
        Ascending, above 0; (rows,).
    free : bool
        Whether one scale can change while the others stay.
    rows : int
        Consecutive rows that share a scale.
    """

    kind: int = F32
    table: Array | None = None
    unit: Array | None = None
    free: bool = True
    rows: int = 1

    def pooled(self, errors: Array) -> Array:
        """Return errors (groups, rows) summed over the rows that share a scale, each group and row ascending."""
        if self.rows == 1 or not errors.size:
            return errors
        if len(errors) == 1 and self.rows >= errors.shape[1]:
            return np.full(errors.shape, np.cumsum(errors)[-1])
        found = np.empty_like(errors)
        for first in range(0, errors.shape[1], self.rows):
            part = slice(first, first + self.rows)
            found[:, part] = np.cumsum(errors[:, part], axis=1)[:, -1:]
        return found

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
        """Return the group of each stored column."""
        return self.group if self.pattern is None else self.pattern.group

    @property
    def form(self) -> StoredForm:
        return self.fmt.form

    @property
    def rows(self) -> int:
        return int(self.scale.shape[1])

    def of_rows(self, part: slice) -> Grid:
        """Return the grid of some rows; for all rows, this grid itself."""
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
        """Replace scales, levels and mask of some rows by those of a grid for these rows."""
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
        """Return the grid in the C core's form, with other scales if given."""
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

    def with_unit(self, unit: Array, codes: Array) -> Grid:
        """Return the grid with scales ``unit[row] * codes``, of two levels."""
        table = np.arange(1, 2**self.form.scale_bits, dtype=np.float64)
        scale = np.ascontiguousarray(unit * codes.astype(np.float64))
        return replace(self, scale=scale, scales=Scales(TABLE, table, unit))

    def losses(self, w: Array, weight: Array) -> Array:
        """Return the weighted squared errors of groups and rows; `weight`: (parts of rows, columns)."""
        errors: Array = np.empty(self.scale.shape)
        each = self.rows // len(weight)
        for i, own in enumerate(weight):
            part = slice(i * each, (i + 1) * each)
            some = self.of_rows(part)
            found = np.empty(some.scale.shape)
            _core.ptq_score(runtime.run(), some.core(), np.ascontiguousarray(w[:, part]), own, found)
            errors[:, part] = found
        return errors

    def with_best_scale(self, w: Array, weight: Array, candidates: Iterable[Array]) -> Grid:
        """Return the grid with each group's candidate of least loss, as it is stored; the first among equals."""
        best: Array | None = None
        least: Array = np.empty(0)
        for candidate in candidates:
            scale = np.ascontiguousarray(self.scales.stored(candidate))
            errors = replace(self, scale=scale).losses(w, weight)
            errors = self.scales.pooled(errors)
            if best is None:
                best, least = scale, errors
            else:
                better = errors < least
                best, least = np.where(better, scale, best), np.where(better, errors, least)
        assert best is not None
        return replace(self, scale=np.ascontiguousarray(best))

    def quantized(self, codes: Array, source_dtype: str) -> QuantizedArray:
        """Pack codes and scales."""
        if self.pattern is not None:
            return self._with_pattern(self.pattern, codes, source_dtype)
        parts = {**self.parts, **self._scale_parts(), "codes": self._packed_codes(codes)}
        layout = component_layout(self.fmt, self.shape, self.axis)
        parts = {name: _typed(parts[name], dtype).reshape(size) for name, (dtype, size) in layout.items()}
        return QuantizedArray._trusted(parts, self.fmt, self.shape, self.axis, source_dtype)

    def _with_pattern(self, pattern: Pattern, codes: Array, source_dtype: str) -> QuantizedArray:
        """Pack the kept values as an array of their own, with their positions."""
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
            stands &= np.take_along_axis(pattern.mask[:, part], at, axis=0) != 0  # blocks may keep fewer than n
            found[:, part] = np.where(stands, np.take_along_axis(codes[:, part], at, axis=0), zeros)
        if not self.exact:
            parts = base.quantized(found, source_dtype).components
        elif fmt.is_plain:
            stored = component_layout(fmt, pattern.shape, pattern.axis, values_of(source_dtype))["values"][0]
            parts = {"values": np.ascontiguousarray(found.T).view(np.float32).astype(stored, copy=False)}
        else:
            values = np.ascontiguousarray(found.T).view(np.float32).reshape(self.shape)
            parts = nearest(values, self.fmt, self.axis).components
        parts = {**parts, "metadata": metadata}
        kind = SparseArray if fmt.is_plain else QuantizedArray
        return kind._trusted(parts, fmt, pattern.shape, pattern.axis, source_dtype)

    def _scale_parts(self) -> dict[str, Array]:
        form, rows, kind = self.form, self.scale.T, kind_of(self.fmt)
        if kind == "integer":
            assert self.scales.unit is not None
            unit = self.scales.unit
            safe = np.where(unit > 0, unit, 1.0)[:, None]
            codes = np.where(unit[:, None] > 0, np.rint(rows / safe), 0).astype(np.uint32)
            coarse = unit.astype(np.float32)
            return {
                "scales": _pack_scales(codes, form.scale_bits),
                "coarse": coarse[:1].reshape(()) if form.shared else coarse,
            }
        rows = rows[:: self.fmt.shared_rows]
        if kind == "e8m0":
            exponents = np.frexp(rows)[1] - 1
            return {"scales": np.where(rows > 0, exponents + 127, 0)}
        if kind == "table":
            assert self.scales.table is not None and self.scales.unit is not None
            unit, table = self.scales.unit[:: self.fmt.shared_rows], np.concatenate([[0.0], self.scales.table])
            every = (table if (unit == 1).all() else unit[:, None] * table).astype(np.float32).astype(np.float64)
            return {"scales": stored_table_codes(self.fmt, every, rows)}
        found = {}
        if kind == "none" and form.second == "row" and rows.size:
            found["coarse"] = rows[:1, 0]
        if form.codes == "learned":
            assert self.levels is not None
            found["codebook"] = self.levels.T
        if kind in ("f32", "f16"):
            found["scales"] = rows
        return found

    def _packed_codes(self, codes: Array) -> Array:
        """Return rows of packed codes, with the padding of short groups."""
        fmt, bits = self.fmt, self.fmt.bits
        length, runs = self.shape[self.axis[-1]], prod(self.shape[a] for a in self.axis[:-1])
        group, per_run = groups_of(fmt, length)
        row_bytes = component_layout(fmt, self.shape, self.axis)["codes"][1][1]
        packed = np.zeros((self.rows, row_bytes), np.uint8)
        padded = length if fmt.group is None else group * per_run
        step = max(1, _BLOCK // max(runs * padded, 1))
        padding = np.full(self.rows, fmt.stored_rules().padding or 0)
        if self.thresholds is not None and self.stored is not None and fmt.stored_rules().padding is None:
            padding[:] = self.stored[(self.thresholds < 0).sum(axis=0)]  # the code of 0
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


def _typed(part: Array, dtype: np.dtype[Any]) -> Array:
    """Return a contiguous part in a dtype; codes of 16 bits are the bits of bfloat16."""
    is_bits = part.dtype == np.uint16 and dtype.name == "bfloat16"
    return np.ascontiguousarray(part.view(dtype) if is_bits else part, dtype)


def groups_of(fmt: Format, length: int) -> tuple[int, int]:
    """Return the values per group, and the groups per run."""
    group = max(min(length if fmt.group is None else fmt.group, length), 1)
    return group, -(-length // group)


def _pack_scales(codes: Array, bits: int) -> Array:
    if bits <= 8:
        return pack(codes, bits)
    single = (codes[:, :, None] >> np.arange(bits, dtype=np.uint32)) & 1
    return np.packbits(single.astype(np.uint8).reshape(len(codes), -1), axis=1, bitorder="little")
