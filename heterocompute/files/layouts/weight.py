"""A weight as another program's file stores it: a packed array, 8-bit codes with scales of blocks, or values.

Some layouts group columns in another order than they are stored in. Then `order` holds the columns sorted by group, and
the array is in that order.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...arrays.bits import rows_per_chunk
from ...arrays.components import entry_of
from ...arrays.layout import Entry
from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue
from ...base.float_env import converted
from . import scaled
from .forms import CHUNK
from .linear import Array, no_format, unordered


@dataclass(frozen=True)
class Weight:
    """A weight.

    Attributes
    ----------
    said : str
        What it is stored as.
    shape : tuple of int
        (..., out, in)
    nbytes : int
        As it is stored.
    array : QuantizedArray or None
        A matrix (rows of all experts, in); None where no format here holds it.
    order : ndarray or None
        Columns sorted by group, where they lie in another order.
    blocks : scaled.Codes or None
        Codes of 8 bits whose scales no format here has.
    decode : callable or None
        Returns the values, where there is neither.
    turned : bool
        Whether the model has it as (..., in, out), as by `Conv1D` of transformers.
    why : str
        The reason why `packed` has no array.
    """

    declared: str
    shape: tuple[int, ...]
    nbytes: int
    array: QuantizedArray | None = None
    order: Array | None = None
    blocks: scaled.Codes | None = None
    decode: Callable[[], Array] | None = None
    turned: bool = False
    why: str = ""

    @property
    def model_shape(self) -> tuple[int, ...]:
        """Return the shape that the weight has in its model."""
        return swapped(self.shape) if self.turned else self.shape

    @property
    def matrix(self) -> tuple[int, int]:
        """Return (rows of all experts, columns)."""
        return math.prod(self.shape[:-1]), self.shape[-1]

    @cached_property
    def _decoded(self) -> Array:
        assert self.decode is not None
        return self.decode().reshape(self.matrix)

    def rows(self, begin: int, end: int) -> Array:
        """Return the values of some rows, float32."""
        if self.array is not None:
            q = self.array
            is_sliced = q.format.splits_into_rows
            values: Array = q[begin:end].dequantize() if is_sliced else q.dequantize()[begin:end]
        elif self.blocks is not None:
            values = scaled.rows_of(self.blocks, begin, end)
        else:
            return np.asarray(self._decoded[begin:end], np.float32)
        if self.order is not None:
            values[:, self.order] = values.copy()
        return values

    def values(self, dtype: Any = np.float32) -> Array:
        """Return all values in a dtype, as the model has them; float32 values are made for some rows at a time."""
        found = np.empty(self.matrix, dtype)
        for begin, end in _pieces(self):
            found[begin:end] = converted(self.rows(begin, end), found.dtype)
        values = found.reshape(self.shape)
        return np.ascontiguousarray(values.swapaxes(-1, -2)) if self.turned else values

    def packed(self) -> QuantizedArray:
        """Return the weight as an array, as the model has it; ValueError if no format here holds it."""
        q = self.array if self.blocks is None else scaled.grouped(self.blocks)
        if q is None or self.order is not None:
            raise WrongValue(self.why)
        if q.shape != self.shape:
            q = QuantizedArray(dict(q.components), q.format, self.shape, (len(self.shape) - 1,), q.source_dtype)
        return turned_array(q) if self.turned else q

    @property
    def entry(self) -> Entry:
        """Return the description of `packed`."""
        assert self.array is not None
        count, q = len(self.shape), self.array
        return entry_of(q.format, self.model_shape, (count - 2 if self.turned else count - 1,), q.source_dtype)

    def digest(self, known: Any = None) -> Any:
        """Return the digest of all values, the bytes that `differs` compares; `known` is that of the rows above."""
        found = hashlib.blake2b() if known is None else known
        for begin, end in _pieces(self):
            values = self.rows(begin, end) + np.float32(0)  # -0 is 0
            values[np.isnan(values)] = np.nan
            found.update(np.ascontiguousarray(values).data)
        return found

    def release(self) -> None:
        """Release what is held, even if others refer to this weight: it has been converted."""
        self.__dict__.pop("_decoded", None)
        for name in ("array", "blocks", "decode"):
            object.__setattr__(self, name, None)

    @property
    def is_released(self) -> bool:
        """Tell whether the weight was released."""
        return self.array is None and self.blocks is None and self.decode is None


def of_array(q: QuantizedArray, order: Array | None = None, why: str = "") -> Weight:
    """Return the weight of a packed array (..., out, in), quantized along in."""
    return Weight(str(q.format), q.shape, q.nbytes, as_matrix(q), order, why=why)


def of_packed(array: Any, turned: bool = False, declared: str | None = None) -> Weight:
    """Return the weight of an array of this package, or its values if it is not quantized along its last axis.

    `turned`: its model has it as (..., in, out).
    """
    declared = str(array.format) if declared is None else declared
    if turned and isinstance(array, QuantizedArray) and array.axis == (array.ndim - 2,):
        return replace(of_array(turned_array(array)), turned=True)
    if isinstance(array, QuantizedArray) and array.ndim > 1 and array.axis == (array.ndim - 1,):
        return of_array(array)
    along = f" along axes {array.axis}" if isinstance(array, QuantizedArray) else ""
    return of_values(np.asarray(array, np.float32), declared + along, array.nbytes)


def of_blocks(codes: scaled.Codes, shape: tuple[int, ...], order: Array | None = None, why: str = "") -> Weight:
    """Return the weight of 8-bit codes, a matrix or the rows of a stack."""
    nbytes = sum(part.nbytes for part in codes[:3] if part is not None)
    return Weight(str(scaled.blocks_of(codes)), shape, nbytes, None, order, codes, why=why)


def of_codes(
    name: str, layout: str, codes: scaled.Codes, shape: tuple[int, ...] | None = None, order: Array | None = None
) -> Weight:
    """Return the weight of 8-bit codes with their scales: an array where a format has such scales.

    Parameters
    ----------
    name, layout : str
        Of the weight, and of the layout that it is stored in.
    shape : tuple of int, optional
        Of a stack whose rows are the codes.
    order : ndarray, optional
        As of `Weight`.
    """
    shape = shape or codes.codes.shape
    q = scaled.array_of(codes)
    if q is None:
        what = f"codes of {codes.codes.dtype} with a scale for each {codes.block[0]} x {codes.block[1]} values"
        is_grouped = order is not None and scaled.group_format_of(codes) is not None
        why = unordered(f"{name}_g_idx", layout) if is_grouped else f"{name}: {what} {no_format(layout)}"
        return of_blocks(codes, shape, order, why)
    if shape != q.shape:
        q = QuantizedArray(dict(q.components), q.format, shape, (len(shape) - 1,))
    return of_array(q, order, "" if order is None else unordered(f"{name}_g_idx", layout))


def swapped(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of matrices that are transposed."""
    return (*shape[:-2], shape[-1], shape[-2])


def turned_array(q: QuantizedArray) -> QuantizedArray:
    """Return a matrix or a stack (..., out, in), quantized along in, as (..., in, out), and the other way round.

    The rows, and with them the components, stay.
    """
    (along,) = q.axis
    other = q.ndim - 1 if along == q.ndim - 2 else q.ndim - 2
    return QuantizedArray(dict(q.components), q.format, swapped(q.shape), (other,), q.source_dtype)


def of_values(values: Array, declared: str, nbytes: int, why: str = "") -> Weight:
    """Return the weight of values that are decoded already."""
    return Weight(declared, values.shape, nbytes, decode=lambda: values, why=why)


def of_rows(q: QuantizedArray, rows: Array) -> QuantizedArray:
    """Return the rows of a matrix in another order."""
    parts = {key: part[rows] if part.ndim else part for key, part in q.components.items()}
    return QuantizedArray(parts, q.format, q.shape, q.axis, q.source_dtype)


def as_matrix(q: QuantizedArray) -> QuantizedArray:
    """Return the rows of a stack (..., out, in), quantized along in, as one matrix."""
    if q.ndim == 2:
        return q
    return QuantizedArray(dict(q.components), q.format, (math.prod(q.shape[:-1]), q.shape[-1]), (1,), q.source_dtype)


def _pieces(first: Weight) -> Iterator[tuple[int, int]]:
    rows, columns = first.matrix
    step = rows_per_chunk(rows, columns, CHUNK)
    if (first.array is not None and not first.array.format.splits_into_rows) or not step:
        step = max(rows, 1)
    yield from ((i, min(i + step, rows)) for i in range(0, rows, step))


def differs(first: Weight, second: Weight) -> tuple[int, int] | None:
    """Return the row and column of the first value in which two weights differ; 0 and -0 are equal."""
    if first.matrix != second.matrix:
        raise WrongValue(f"a weight of {first.matrix} values is compared with one of {second.matrix}")
    for begin, end in _pieces(first):
        ours, theirs = first.rows(begin, end), second.rows(begin, end)
        wrong = (ours != theirs) & ~(np.isnan(ours) & np.isnan(theirs))
        if wrong.any():
            row, column = divmod(int(wrong.argmax()), wrong.shape[1])
            return begin + row, column
    return None


def sqnr_of(first: Weight, second: Weight) -> float:
    """Return 10 log10 of the energy of a weight over that of its difference from another one, in dB."""
    signal = noise = 0.0
    for begin, end in _pieces(first):
        ours = first.rows(begin, end).astype(np.float64)
        signal += float(np.vdot(ours, ours))
        ours -= second.rows(begin, end)
        noise += float(np.vdot(ours, ours))
    return math.inf if noise == 0 else -math.inf if signal == 0 else 10 * math.log10(signal / noise)
