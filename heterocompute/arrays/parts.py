"""Parts of a `QuantizedArray`: checks of shapes and strides, components in one block of memory, and the first codes."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ..base.devices import A_DEVICE
from ..base.errors import WrongType, WrongValue, shown
from ..formats import Format, has_pattern
from .components import component_layout, layout_of
from .device import DeviceArray, c_strides
from .foreign import refuse_elsewhere

Array = np.ndarray[Any, Any]


def as_shape(shape: Any, kind: str) -> tuple[int, ...]:
    try:
        if any(isinstance(n, (bool, np.bool_)) for n in shape):
            raise TypeError
        sizes = tuple(operator.index(n) for n in shape)
    except (TypeError, ValueError, NotImplementedError):  # the latter two: objects whose iteration fails
        raise WrongType(f"{kind}: shape is {shown(shape)}, expected a tuple of ints") from None
    if min(sizes, default=0) < 0:
        raise WrongValue(f"{kind}: shape is {shown(sizes)}, expected no size below 0")
    if prod(n for n in sizes if n) >= 2**60:
        raise WrongValue(f"{kind}: shape is {shown(sizes)}, whose size overflows")
    return sizes


def in_rows(part: Array, per_row: bool) -> bool:
    """Tell whether the C core can read a component: aligned memory, and the part of each row contiguous."""
    inner = part.strides[1:] if per_row else part.strides
    sizes = part.shape[1:] if per_row else part.shape
    step = part.itemsize
    for size, stride in zip(reversed(sizes), reversed(inner), strict=True):
        if size > 1 and stride != step and part.size:
            return False
        step *= size
    return bool(part.flags.aligned)


def as_codes(values: Array) -> Array:
    """Return rows of floats as rows of bytes."""
    if not values.size:
        return np.empty((values.shape[0], values.itemsize * values.shape[1]), np.uint8)
    if values.strides[1] != values.itemsize:  # a row of one value in another memory order
        values = np.ascontiguousarray(values)
    return values.view(np.uint8)


Block = tuple[int, tuple[tuple[str, int, tuple[int, ...], np.dtype[Any], tuple[int, ...]], ...]]


@lru_cache(maxsize=256)
def block_of(format: Format, shape: tuple[int, ...], axis: tuple[int, ...]) -> Block:
    """Return the bytes of all components, and the name, offset, shape, dtype and strides of each."""
    end, parts = 0, []
    for name, (of, size) in component_layout(format, shape, axis).items():
        parts.append((name, end, size, of, c_strides(size, of.itemsize)))
        end += -(-prod(size) * of.itemsize // 256) * 256  # components begin where an allocation would
    return end, tuple(parts)


def first_group_html(q: Any) -> str:
    """Return the codes of the first group as a strip of cells."""
    fmt = q._format.base if has_pattern(q._format) else q._format
    if q._is_far or not q.size or not 0 < fmt.bits <= 8:
        return ""
    bits, codes = fmt.bits, q._components["codes"]
    stored = q._format.stored_length(q._shape[q._axis[-1]])
    count = -(-min(fmt.group or stored, stored, 64) // max(fmt.form.code_values, 1))
    stream = np.unpackbits(codes[0, : (count * bits + 7) // 8], bitorder="little")
    first = stream[: count * bits].reshape(count, bits) @ (1 << np.arange(bits))
    levels = _levels_of(fmt.form)
    largest = max(abs(level) for level in levels if math.isfinite(level)) or 1.0
    shades = [0 if math.isnan(level) else round(42 * min(abs(level) / largest, 1)) for level in levels]
    cells = "".join(
        f"<td title='{levels[c]:g}' style='background:hsl({210 if levels[c] >= 0 else 28},75%,"
        f"{96 - shades[c]}%);color:#000;padding:1px 4px'>{c:x}</td>"
        for c in first.tolist()
    )
    return f"<table><tr><th>first codes</th>{cells}</tr></table>"


def _levels_of(form: Any) -> list[float]:
    """Return the value of each code before scaling; for a learned codebook, the code itself."""
    if form.levels:
        return list(form.levels)
    count = 1 << form.bits
    return [float(code - count if form.signed and code >= count // 2 else code) for code in range(count)]


def joined_parts(arrays: Any) -> dict[str, Any]:
    """Return the components of several packed arrays' rows as those of one array.

    Raises
    ------
    ValueError
        Formats, shapes or components that all rows share differ.
    """
    first, *others = arrays
    layout = layout_of(first.format, first.shape, first.axis)
    parts = dict(first[:].components)
    for i, array in enumerate(others, 1):
        if (array.format, array.shape[1:], array.axis) != (first.format, first.shape[1:], first.axis):
            raise WrongValue(f"concatenate: array {i} is {array}, but array 0 is {first}")
        for name, part in array.components.items():
            if not layout[name][2] and part.tobytes() != parts[name].tobytes():
                raise WrongValue(
                    f"concatenate: arrays 0 and {i} have different {name}, which all rows of {first.format} share"
                )
    for name, (_, _, by_row) in layout.items():
        if by_row:
            parts[name] = np.concatenate([array.components[name] for array in arrays])
    return parts


def check_components(components: Mapping[str, Any], layout: Mapping[str, Any], format: Format, kind: str) -> None:
    """Raise ValueError or TypeError unless the components are those of a layout; `kind` names the array's class."""
    if set(layout) != set(components):
        got = shown(sorted(map(str, components)))
        raise WrongValue(f"{kind}: got components {got}, {format} has {sorted(layout)}")
    for name, (dtype, wanted, per_row) in layout.items():
        part = components[name]
        refuse_elsewhere(part, f"{kind}: component {name}")
        if not isinstance(part, np.ndarray):
            raise WrongType(f"{kind}: component {name} is {type(part).__name__}, expected an ndarray")
        if part.dtype != dtype or part.shape != wanted:
            raise WrongValue(f"{kind}: component {name} is {part.dtype} {part.shape}, expected {dtype} {wanted}")
        if name != "values" and not in_rows(part, per_row):  # `_as_codes` copies values where it must
            raise WrongValue(
                f"{kind}: component {name} has strides {part.strides} or is unaligned, expected contiguous rows: "
                f"pass {name}.copy()"
            )


def cut(shape: tuple[int, ...], part: Any, each: int, indices: slice) -> Any:
    """Return the rows of a component that belong to indices of axis 0, of `each` rows."""
    if isinstance(part, DeviceArray):
        rows = range(shape[0])[indices]
        if rows.step != 1:
            raise WrongValue(f"only an int or a slice without a step on {A_DEVICE}; call to('cpu') for other indices")
        return part.rows(rows.start * each, len(rows) * each)
    outer = part.reshape(shape[0], each, *part.shape[1:])[indices]
    return outer.reshape(outer.shape[0] * each, *part.shape[1:])


def parts_in_block(memory: Any, format: Format, shape: tuple[int, ...], axis: tuple[int, ...]) -> dict[str, Any]:
    """Return unset components on a device, in one block of its memory."""
    nbytes, layout = block_of(format, shape, axis)
    block = memory.empty((nbytes,), np.uint8)
    return {
        name: DeviceArray(block, block.address + at, size, of, strides, block.number, block.stream)
        for name, at, size, of, strides in layout
    }
