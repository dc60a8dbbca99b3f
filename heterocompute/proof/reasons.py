"""Reasons why a stored tensor differs from the derived one: one bit, another rule of scales, rounding or base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..arrays.base import PackedArray
from ..arrays.layout import Entry, parts_of
from ..arrays.unpacked import codes_of
from ..base.container import numpy_dtype
from ..base.errors import shown
from ..base.tensors import Tensors
from ..files.changes import Change, with_quantizer
from ..files.safetensors import read_array
from ..formats import Format
from ..products.quantize import quantize

Array = np.ndarray[Any, Any]

CLIPS: tuple[Any, ...] = ("octav", "percentile:99.9", "percentile:99.99", 0.9, 0.95)
OTHER_BASE_DB = 3.0  # below this ratio of the base to its error, the values are not those of the base


@dataclass(frozen=True)
class Difference:
    """The difference of one stored tensor.

    Attributes
    ----------
    part : str
        Name of the stored tensor.
    byte : int
        The first byte that differs.
    mask : int
        The bits of this byte that differ.
    bits : int
        The number of bits that differ in all bytes.
    """

    part: str
    byte: int
    mask: int
    bits: int


def reason_of(
    reader: Tensors,
    name: str,
    entry: Entry | None,
    change: Change | None,
    made: Mapping[str, Array],
    there: Mapping[str, Array],
    found: Sequence[Difference],
) -> tuple[tuple[int, ...] | None, str]:
    """Return the first index that differs, and how a tensor differs.

    Parameters
    ----------
    reader, name, entry, change
        The tensor of the base and its change.
    made : mapping of str to ndarray
        The derived tensors by name; empty if the tensor is copied.
    there : mapping of str to ndarray
        The bytes of the existing ones.
    found : sequence of Difference
        At least one.
    """
    first = found[0]
    index = _index(reader, change, made, first)
    where = f" of {first.part}" if first.part != name else ""
    if change is None:
        return index, _bit(first, where) if _is_bit(found) else f"{_bits(found)} of the copied tensor differ"
    base = reader.tensor(name) if entry is None else read_array(reader, name, entry)
    if not isinstance(change.stored, Entry):
        if _is_bit(found):
            return index, _bit(first, where)
        label = _alternative(change, base, name, there)
        return index, label or _values(made, there, first, where)
    derived = change.make(base)
    stored = _restored(derived, name, change.stored, there)
    logical = None if stored is None else _logical(derived, stored)
    index = index if logical is None else logical
    if _is_bit(found):
        return index, _bit(first, where)
    if label := _alternative(change, base, name, there):
        return index, label
    return index, _packed(derived, stored, base, found, where)


def _is_bit(found: Sequence[Difference]) -> bool:
    return len(found) == 1 and found[0].bits == 1


def _bit(one: Difference, where: str) -> str:
    return f"one bit: bit {one.mask.bit_length() - 1} of byte {one.byte}{where}"


def _bits(found: Sequence[Difference]) -> str:
    return f"{sum(one.bits for one in found)} bits"


def _index(
    reader: Tensors, change: Change | None, made: Mapping[str, Array], one: Difference
) -> tuple[int, ...] | None:
    """Return the index of a byte in its stored tensor."""
    if one.part in made:
        shape, size = made[one.part].shape, made[one.part].dtype.itemsize
    else:
        info = reader.info(one.part)
        shape, size = info.shape, max(1, numpy_dtype(info.dtype).itemsize)
    return tuple(int(i) for i in np.unravel_index(one.byte // size, shape))


def alternatives(change: Change, base: Any) -> Iterator[tuple[str, Any]]:
    """Yield other rules of scales and of encoding with the same stored parts: a description and the array."""
    fmt = getattr(_innermost(change.make), "format", None)
    if fmt is None:
        return
    rules = [("rule of quantize", _Rule()), *((f"format {other}", _Rule(other)) for other in siblings(fmt))]
    rules += [(f"clip={shown(clip)}", _Rule(clip=clip)) for clip in CLIPS]
    for label, rule in rules:
        make = with_quantizer(change.make, rule)
        if make is None:
            continue
        try:
            yield label, make(base)
        except (TypeError, ValueError):  # a format without this rule
            continue


@dataclass(frozen=True)
class _Rule:
    """A quantizer with another format of the same components, or with a clip."""

    format: Format | None = None
    clip: Any = None

    def __call__(self, array: Any, fmt: Format, axes: tuple[int, ...]) -> Any:
        return quantize(array, self.format or fmt, axis=axes, clip=self.clip)


def siblings(fmt: Any) -> Iterator[Format]:
    """Yield formats with other words or flags, such as the rule of scales, which the codes do not show."""
    if any(one.name == "base" for one in fields(fmt)):
        return
    words = {"scale_rule": ("floor", "rceil", "ceil", "even"), "scale": ("f32", "f16")}
    for one in fields(fmt):
        if not one.init:
            continue
        now = getattr(fmt, one.name)
        for other in words.get(one.name, (not now,) if isinstance(now, bool) else ()):
            if other != now:
                try:
                    yield replace(fmt, **{one.name: other})
                except (TypeError, ValueError):
                    continue


def _innermost(make: Any) -> Any:
    while (first := getattr(make, "first", None)) is not None:
        make = first
    return make


def _alternative(change: Change, base: Any, name: str, there: Mapping[str, Array]) -> str:
    for label, array in alternatives(change, base):
        if isinstance(change.stored, Mapping):
            parts = dict(array)
        elif isinstance(change.stored, Entry):
            if array.components.keys() != change.stored.components.keys():
                continue
            parts = parts_of(name, array, change.stored)
        else:
            parts = {name: array}
        if all(np.ascontiguousarray(parts[part]).tobytes() == there[part].tobytes() for part in there):
            return f"another scale rule: {label} gives these bytes"
    return ""


def _restored(derived: Any, name: str, entry: Entry, there: Mapping[str, Array]) -> Any:
    """Return the existing components as an array like the derived one, None if they cannot be one."""
    parts = {}
    for key in entry.components:
        own = derived.components[key]
        parts[key] = there[f"{name}.{key}"].view(own.dtype).reshape(own.shape)
    return derived._remade(parts, derived.shape, derived.axis) if isinstance(derived, PackedArray) else None


def _logical(derived: Any, stored: Any) -> tuple[int, ...] | None:
    """Return the first index of the tensor whose code differs."""
    try:
        wrong = codes_of(derived) != codes_of(stored)
    except (AttributeError, KeyError, TypeError, ValueError):  # not an array of codes
        return None
    return tuple(int(i) for i in np.unravel_index(wrong.argmax(), wrong.shape)) if wrong.any() else None


def steps_between(first: Any, second: Any) -> tuple[float, int]:
    """Return the share of codes that differ, and the largest difference in steps of the format."""
    a, b = codes_of(first).astype(np.int64), codes_of(second).astype(np.int64)
    levels = first.format.form.levels
    if levels:  # floats and tables: a step is the next level
        order = np.empty(len(levels), np.int64)
        order[np.argsort(np.asarray(levels), kind="stable")] = np.arange(len(levels))
        a, b = order[a], order[b]
    far = np.abs(a - b)
    return float((far > 0).mean()) if far.size else 0.0, int(far.max(initial=0))


def _packed(derived: Any, stored: Any, base: Any, found: Sequence[Difference], where: str) -> str:
    """Return how a packed array differs whose bytes no known rule gives."""
    parts = [one.part.rpartition(".")[2] for one in found]
    listed = " and ".join(parts) if len(parts) < 3 else ", ".join(parts)
    try:
        share, most = steps_between(derived, stored)
        values = np.asarray(stored, np.float32)
    except (AttributeError, KeyError, TypeError, ValueError):
        return f"{_bits(found)} in {listed} differ"
    if (
        _decibels(np.asarray(base, np.float32), values)
        < OTHER_BASE_DB
        <= _decibels(np.asarray(base, np.float32), np.asarray(derived, np.float32))
    ):
        return f"another base: {share:.1%} of the codes differ, and the values do not follow the base"
    if parts == ["codes"] and most == 1:
        return f"another rounding: {share:.2%} of the codes differ by one step, scales are equal"
    same = "scales are equal" if parts == ["codes"] else f"{listed} differ"
    return f"{share:.2%} of the codes differ by at most {most} steps, {same}"


def _values(made: Mapping[str, Array], there: Mapping[str, Array], first: Difference, where: str) -> str:
    """Return how a plain array, or parts of another layout, differ."""
    total = sum(array.size for array in made.values())
    wrong = 0
    for part, array in made.items():
        own = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, max(1, array.dtype.itemsize))
        wrong += int((own != there[part].reshape(own.shape)).any(axis=1).sum())
    return f"{wrong / max(total, 1):.2%} of the stored values differ, the first{where}"


def _decibels(base: Array, values: Array) -> float:
    """Return the signal-to-noise ratio; -inf for values that are not finite."""
    with np.errstate(all="ignore"):
        noise = float(np.square(base - values, dtype=np.float64).sum())
        signal = float(np.square(base, dtype=np.float64).sum())
        found = np.inf if noise == 0 else 10 * np.log10(signal / noise) if signal else -np.inf
    return float(found) if np.isfinite(noise) else -np.inf
