"""Component layout of an array, from its format, shape and axis, and its description in a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..base.container import numpy_dtype
from ..formats import Float, Format, Sparse, has_pattern, is_function, is_rotated, unrotated
from .layout import Entry

# Dtypes of `values` in a pattern without a format -> the format whose codes have the same bits.
VALUES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def core_format(fmt: Format) -> tuple[Any, ...]:
    """Return a format in the form that the C core accepts."""
    try:
        return fmt._core  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        if has_pattern(fmt):
            found: tuple[Any, ...] = (core_format(fmt.base), fmt.n, fmt.m)
        else:
            parameters = fmt.core_params()  # refuses functions
            found = (fmt.core_family, *parameters)
        object.__setattr__(fmt, "_core", found)  # formats are frozen
        return found


def component_layout(
    fmt: Format, shape: Sequence[int], axis: Sequence[int], values: str = "float32"
) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """Return dtype and shape of every component that an array of this format, shape and axis has.

    Parameters
    ----------
    axis : sequence of int
        The reduction axes, not negative, in the order that makes a row.
    values : {"float32", "float16", "bfloat16"}
        What a pattern alone stores its values as.

    Raises
    ------
    ValueError
        Axes outside the shape or given twice, sizes that overflow.
    """
    return {name: (dtype, shape) for name, (dtype, shape, _) in layout_of(fmt, shape, axis, values).items()}


def values_of(dtype: str) -> str:
    """Return the dtype of the values of a pattern without a format: the array's own if it can be stored, or float32."""
    return dtype if dtype in VALUES else "float32"


def entry_of(fmt: Format, shape: Sequence[int], axis: Sequence[int], dtype: str, values: str = "float32") -> Entry:
    """Return what a file says of an array of this format, shape and axis, whether there is one yet or not.

    Parameters
    ----------
    dtype : str
        NumPy's name of what is quantized.
    values
        As of `component_layout`.

    Raises
    ------
    ValueError
        As of `component_layout`.
    """
    if is_rotated(fmt):
        fmt.block_of(shape[axis[-1]], "format")
    parts = component_layout(unrotated(fmt), shape, axis, values)
    names = {key: (np.dtype(dtype).name, tuple(size)) for key, (dtype, size) in parts.items()}
    return Entry(fmt, tuple(shape), tuple(axis), dtype, names)


@lru_cache(maxsize=512)
def bits_of_long_rows(fmt: Format) -> float:
    """Return the stored bits per value of a format in rows so long that scales of rows and padding count for nothing.

    Examples
    --------
    >>> from heterocompute.formats import format
    >>> round(bits_of_long_rows(format("int8")), 2), bits_of_long_rows(format("int4-g32-f16"))
    (8.0, 4.5)
    """
    return 8 * stored_bytes(fmt, (1, 1 << 20), (1,)) / (1 << 20)


def stored_bytes(fmt: Format, shape: Sequence[int], axis: Sequence[int]) -> int:
    """Return the bytes of an array in a format, with all components; of a function by its bits."""
    if is_function(fmt):
        return fmt.stored_bytes(math.prod(shape))
    if is_rotated(fmt):
        fmt.block_of(shape[axis[-1]], "format")
        return stored_bytes(fmt.base, shape, axis)
    return sum(dtype.itemsize * math.prod(size) for dtype, size in component_layout(fmt, shape, axis).values())


def stored_format(fmt: Format, values: str | None) -> Format:
    """Return the format whose codes are stored. For a pattern without a format it is the format of its values.

    `values` is the dtype of the component `values`, or None if there is none. It may have 16 bits.
    """
    if values is None or values == "float32" or not has_pattern(fmt):
        return fmt
    return Sparse(Float(VALUES[values]), fmt.n, fmt.m)


def rows_stand_alone(fmt: Format, width: int) -> bool:
    """Tell whether every component has a part for each row, so that rows share no scale, codebook or pattern."""
    return not has_pattern(fmt) and all(per_row for _, _, per_row in layout_of(fmt, (1, width), (1,)).values())


def core_layout(
    core: tuple[Any, ...], shape: Sequence[int], axis: Sequence[int]
) -> dict[str, tuple[np.dtype[Any], tuple[int, ...], bool]]:
    """Return the layout of a format in the core's form, with the bfloat16 that NumPy alone lacks."""
    layout = _core.layout(core, tuple(shape), tuple(axis))
    return {
        name: (numpy_dtype("bfloat16") if dtype == np.uint16 else dtype, size, per_row)
        for name, (dtype, size, per_row) in layout.items()
    }


def layout_of(
    fmt: Format, shape: Sequence[int], axis: Sequence[int], values: str = "float32"
) -> dict[str, tuple[np.dtype[Any], tuple[int, ...], bool]]:
    """Return component -> (dtype, shape, whether it has a part per row). A pattern without a format has `values`."""
    layout = core_layout(core_format(fmt), shape, axis)
    if not (has_pattern(fmt) and fmt.is_plain):
        return layout
    rows, row_bytes = layout["codes"][1]
    return {"values": (numpy_dtype(values), (rows, row_bytes // 4), True), "metadata": layout["metadata"]}
