"""Floats: each matrix as float32 rows, checked, and handed to the core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.quantized import QuantizedArray
from ..base import runtime
from ..products.arguments import Array
from .model import FLOATS, NAME, Model, is_integers


def multiply_floats(model: Model, a: Any, b: Any, shape: tuple[int, ...]) -> Array:
    left, right = _values(model, a, "a"), np.swapaxes(_values(model, b, "b"), -1, -2)
    precision, smallest = FLOATS[model.text]
    y = np.empty(shape, np.float32)
    for index, x, w in _matrices(left, right, shape):
        part = np.empty((len(x), len(w)), np.float32)
        _core.emulate_floats(
            runtime.run(),
            np.ascontiguousarray(x),
            np.ascontiguousarray(w),
            precision,
            smallest,
            model.chunk or 1,
            -1 if model.extra_bits is None else model.extra_bits,
            model.truncates,
            -14 if model.needs_fp16 else -126,
            part,
        )
        y[index] = part
    return y


def _values(model: Model, operand: Any, name: str) -> Array:
    if is_integers(operand):
        raise ValueError(
            f"{NAME}: {name} has dtype {operand.dtype}, but {model.instruction or model.text} multiplies floats; "
            "convert with astype"
        )
    with np.errstate(over="ignore"):
        if isinstance(operand, QuantizedArray):
            values = operand.dequantize()
        else:
            values = operand.astype(np.float32, copy=False)
        wrong = ~np.isfinite(values)
        wanted = "finite values"
        if not wrong.any() and model.needs_fp16:
            wrong = values.astype(np.float16).astype(np.float32) != values
            wanted = f"values of float16, which {model.instruction} multiplies; round with astype(np.float16)"
    if wrong.any():
        index = tuple(int(i) for i in np.unravel_index(wrong.argmax(), wrong.shape))
        raise ValueError(f"{NAME}: {name} has {float(values[index])!r} at index {index}, wanted {wanted}")
    return values


def _matrices(left: Array, right: Array, shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Array, Array]]:
    """Yield (index, rows, rows) for each matrix of the leading dimensions."""
    lead = shape[:-2]
    left = np.broadcast_to(left, (*lead, *left.shape[-2:]))
    right = np.broadcast_to(right, (*lead, *right.shape[-2:]))
    for index in np.ndindex(lead):
        yield index, left[index], right[index]
