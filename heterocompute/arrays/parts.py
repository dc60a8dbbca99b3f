"""Parts of a `QuantizedArray`: checks of shapes and strides, components in one block of memory, and the first codes."""

from __future__ import annotations

import math
import operator
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ..base.errors import WrongType, WrongValue, shown
from ..formats import Format, has_pattern
from .components import component_layout
from .device import c_strides

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
