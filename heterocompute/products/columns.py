"""Weights as columns of rows, the layout that csrc/ptq/ reads: a column is one input of all rows."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..arrays.quantized import QuantizedArray

Array = np.ndarray[Any, Any]


def to_columns(x: Array, axis: tuple[int, ...], dtype: Any = np.float64) -> Array:
    """Return an array as (columns, rows), copied if necessary; the columns are the given axes in their order."""
    others = [a for a in range(x.ndim) if a not in axis]
    columns = prod(x.shape[a] for a in axis)
    rows = prod(x.shape[a] for a in others)
    turned = x.transpose(*axis, *others)
    if x.ndim > 2:  # its axes may not merge without a copy
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
