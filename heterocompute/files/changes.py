"""The change of one tensor of a checkpoint: plain data that can be sent to another process and called there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.base import PackedArray
from ..arrays.components import entry_of, values_of
from ..arrays.dense import refuse_infinite
from ..arrays.layout import Entry
from ..arrays.quantized import QuantizedArray
from ..base.container import FILE_NAMES, numpy_dtype
from ..base.errors import WrongValue
from ..base.float_env import converted
from ..formats import Format, Sparse, has_pattern
from ..products.quantize import quantize
from ..pruning.prune import mask_of, prune
from .gguf import fitting
from .layouts.gguf.model import block_of, has_place
from .layouts.gguf.rounding import rounded as rounded_for_gguf
from .layouts.layout import Layout
from .layouts.weight import swapped, turned_array
from .plain import Plain as Dtype
from .recipes import Zeros
from .selection import SMALL_FLOATS

BLOCK = 1 << 20

Plain = tuple[str, tuple[int, ...]]  # NumPy's name of the dtype, shape
Quantizer = Callable[[Any, Format, tuple[int, ...]], Any]  # array, format, axes -> packed array


@dataclass(frozen=True)
class Change:
    """The change of one tensor.

    Attributes
    ----------
    format : str
        The format that the summary shows.
    stored : Entry, (str, tuple of int), or mapping of str to the latter
        A packed array, a plain one by NumPy's name of its dtype and its shape, or several of these by name.
    make : callable
        Converts the array of the checkpoint, an ndarray or a packed array, to what is written.
    instead_of : str
        The requested format if it differs, otherwise "".
    """

    format: str
    stored: Entry | Plain | Mapping[str, Plain]
    make: Callable[[Any], Any]
    instead_of: str = ""


def packed(fmt: Any, axes: tuple[int, ...], shape: tuple[int, ...], dtype: str, entry: Entry | None) -> Change:
    """Return the change to a format, or to a pattern.

    Parameters
    ----------
    fmt : Format or Zeros
    axes, shape, dtype
        Of the tensor; `dtype` is NumPy's name.
    entry : Entry or None
        Of a tensor that is pruned to N:M, which it stays.
    """
    if isinstance(fmt, Zeros):
        return Change(str(fmt), (dtype, shape), _Zeroed(fmt.pattern, axes))
    dtype = "float32" if dtype in SMALL_FLOATS else dtype  # `quantize` reads these as float32
    if entry is not None and not has_pattern(fmt):
        fmt = Sparse(fmt, entry.format.n, entry.format.m)
    alone = has_pattern(fmt) and fmt.is_plain and entry is None
    values = values_of(dtype) if entry is None else entry.components["values"][0]
    stored = entry_of(fmt, shape, axes, dtype, values)
    return Change(str(fmt), stored, (_Pruned if alone else _Quantized)(fmt, axes))


def in_blocks(fmt: object, axes: tuple[int, ...], shape: tuple[int, ...], dtype: str, entry: Entry | None) -> Change:
    """Return the change to blocks of GGUF; rows that are not whole blocks get the type that `save_gguf` uses."""
    change = _in_blocks(fmt, axes, shape, dtype, entry)
    made = change.make
    return replace(change, make=_InGguf(made.format, made.axes)) if type(made) is _Quantized else change


def _in_blocks(fmt: Any, axes: tuple[int, ...], shape: tuple[int, ...], dtype: str, entry: Entry | None) -> Change:
    if entry is not None or not has_place(fmt) or axes != (len(shape) - 1,) or shape[-1] % block_of(fmt) == 0:
        return packed(fmt, axes, shape, dtype, entry)
    found = fitting(fmt, shape)
    if not isinstance(found, str):
        return replace(packed(found, axes, shape, dtype, entry), instead_of=str(fmt))
    stored = {"f16": "float16", "f32": "float32"}[found]
    return Change(found, (stored, shape), _Plain(stored), str(fmt))


def in_whole_blocks(fmt: Any, axes: tuple[int, ...], shape: tuple[int, ...], dtype: str, entry: Entry | None) -> Change:
    """Return the change to blocks of GGUF; ValueError if rows are not whole blocks."""
    change = in_blocks(fmt, axes, shape, dtype, entry)
    if change.instead_of:
        raise WrongValue(f"rows of {shape[-1]} values, {fmt} has blocks of {block_of(fmt)}: {change.format} fits")
    return change


def turned(
    change_of: Callable[..., Change], fmt: object, shape: tuple[int, ...], dtype: str, entry: Entry | None
) -> Change:
    """Return the change of a weight (..., in, out) to an array (..., out, in), which other layouts store.

    Parameters
    ----------
    change_of : callable
        As `packed`.
    fmt, shape, dtype, entry
        As of `packed`, of the weight.
    """
    change = change_of(fmt, (len(shape) - 1,), swapped(shape), dtype, entry)
    return replace(change, make=_Turned(change.make))


def turned_after(change: Change) -> Change:
    """Return a change to an array (..., in, out) as that to an array (..., out, in)."""
    entry = change.stored
    assert isinstance(entry, Entry)
    stored = entry_of(entry.format, swapped(entry.shape), (len(entry.shape) - 1,), entry.dtype)
    return replace(change, stored=stored, make=_TurnedAfter(change.make))


def rounded(fmt: object, axes: tuple[int, ...], shape: tuple[int, ...], dtype: str, entry: Entry | None) -> Change:
    """Return the change to the decoded values of `packed`, in the original dtype."""
    made = packed(fmt, axes, shape, dtype, entry)
    found = "float32" if dtype in SMALL_FLOATS else dtype
    return Change(made.format, (found, shape), _Plain(found, made.make))


def decoded(entry: Entry, dtype: str | None) -> Change:
    """Return the change of a packed array to a plain array."""
    found = dtype or (entry.dtype if entry.dtype in FILE_NAMES else "float32")
    return Change(str(entry.format), (found, entry.shape), _Plain(found))


def plain(declared: str, shape: tuple[int, ...], dtype: str | None) -> Change:
    """Return the change of a weight that its reader decodes; it was stored in the format `said`."""
    found = dtype or "float32"
    return Change(declared, (found, shape), _Plain(found))


def cast(wanted: Dtype, axes: tuple[int, ...], shape: tuple[int, ...], dtype: str, entry: Entry | None) -> Change:
    """Return the change to a plain type; `axes`, `dtype` and `entry` are those of `packed`."""
    return Change(str(wanted), (wanted.dtype, shape), _Cast(wanted.dtype))


def in_layout(layout: Layout, name: str, change: Change) -> Change:
    """Return the change to the tensors that represent a weight in another program's layout.

    Raises
    ------
    ValueError
        The layout does not support the weight.
    """
    if not isinstance(change.stored, Entry):
        return change
    stored, make = layout.laid_out(name, change.stored), change.make
    if layout.depends_on_values(change.stored.format):
        make = with_quantizer(make, layout.rounded) or make
    return Change(change.format, stored, _InLayout(layout, name, make))


def with_quantizer(make: Any, quantizer: Quantizer) -> Any:
    """Return the function of a change with another quantizer inside; None if the change does not quantize.

    Parameters
    ----------
    make : callable
        `make` of a `Change`.
    quantizer : callable
        ``quantizer(array, format, axes)`` returns a packed array.
    """
    if isinstance(make, _Quantized):
        return _By(make.format, make.axes, quantizer)
    first = getattr(make, "first", None)
    inner = None if first is None else with_quantizer(first, quantizer)
    return None if inner is None else replace(make, first=inner)


@dataclass(frozen=True)
class _InLayout:
    layout: Layout
    name: str
    first: Callable[[Any], Any]

    def __call__(self, array: object) -> dict[str, NDArray[Any]]:
        return self.layout.tensors(self.name, self.first(array))


@dataclass(frozen=True)
class _Turned:
    first: Callable[[Any], Any]

    def __call__(self, array: Any) -> Any:
        is_packed = isinstance(array, PackedArray)
        return self.first(array.T if is_packed else np.ascontiguousarray(np.swapaxes(array, -1, -2)))


@dataclass(frozen=True)
class _TurnedAfter:
    first: Callable[[Any], Any]

    def __call__(self, array: Any) -> Any:
        return turned_array(self.first(array))


@dataclass(frozen=True)
class _Quantized:
    format: Format
    axes: tuple[int, ...]

    def __call__(self, array: Any) -> Any:
        return quantize(array, self.format, axis=self.axes)


@dataclass(frozen=True)
class _By(_Quantized):
    quantizer: Quantizer

    def __call__(self, array: Any) -> Any:
        return self.quantizer(array, self.format, self.axes)


@dataclass(frozen=True)
class _InGguf(_Quantized):
    def __call__(self, array: Any) -> Any:
        return rounded_for_gguf(array, self.format, self.axes)


@dataclass(frozen=True)
class _Pruned:
    format: Format
    axes: tuple[int, ...]

    def __call__(self, array: Any) -> Any:
        return prune(array, str(self.format), self.axes)


@dataclass(frozen=True)
class _Plain:
    dtype: str
    first: Callable[[Any], Any] | None = None

    def __call__(self, array: object) -> NDArray[Any]:
        return as_plain(array if self.first is None else self.first(array), self.dtype)


@dataclass(frozen=True)
class _Cast:
    dtype: str

    def __call__(self, array: object) -> NDArray[Any]:
        values = np.asarray(array)
        refuse_infinite(values, "quantize: w")
        return as_plain(values, self.dtype)


@dataclass(frozen=True)
class _Zeroed:
    pattern: str
    axes: tuple[int, ...]

    def __call__(self, array: NDArray[Any]) -> NDArray[Any]:
        text, axes = self.pattern, self.axes
        # If rows do not depend on each other, they are pruned in blocks.
        alone = ":" not in text and 0 not in axes and array.size
        block = max(1, BLOCK * len(array) // array.size) if alone else max(1, len(array))
        for first in range(0, len(array), block):
            part = array[first : first + block]
            try:
                part[~mask_of(part, text, axes, None, "prune")] = 0
            except ValueError:
                mask_of(array, text, axes, None, "prune")  # raises with the index in the whole tensor
                raise
        return array


def as_plain(array: Any, dtype: str) -> NDArray[Any]:
    """Return the values of a packed array in a dtype; ValueError if a finite value becomes infinite."""
    double = isinstance(array, QuantizedArray) and dtype == "float64"
    values: NDArray[Any] = array.dequantize(np.float64) if double else np.asarray(array)
    with np.errstate(over="ignore"):
        plain = converted(values, numpy_dtype(dtype))
    if plain.dtype != values.dtype and plain.dtype.itemsize <= values.dtype.itemsize:
        before, after = values.reshape(-1), plain.reshape(-1)
        for first in range(0, before.size, BLOCK):  # a mask of all values would take half of the output's memory
            some = slice(first, first + BLOCK)
            beyond = np.isinf(after[some]) & np.isfinite(before[some])
            if beyond.any():
                index = tuple(int(i) for i in np.unravel_index(first + beyond.argmax(), values.shape))
                raise WrongValue(f"the value {float(values[index])} at index {index} is beyond {dtype}'s largest")
    return plain
