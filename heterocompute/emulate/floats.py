"""Floats: each matrix as float32 rows, checked, and handed to the core."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.quantized import QuantizedArray
from ..base import runtime
from ..base.errors import WrongValue, shown
from ..products.arguments import Array
from .model import FLOATS, INPUTS, NAME, Model, is_integers

WORDS = {
    "fp16": "float16, which {} multiplies; round with astype(np.float16)",
    "bf16": "bfloat16, which {} multiplies; round with astype(ml_dtypes.bfloat16)",
    "tf32": "tf32, which {} multiplies: float32 whose lower 13 bits are 0",
    "fp8_e4m3fn": "float8_e4m3fn, which {} multiplies; round with astype(ml_dtypes.float8_e4m3fn)",
    "fp8_e5m2": "float8_e5m2, which {} multiplies; round with astype(ml_dtypes.float8_e5m2)",
}


def multiply_floats(model: Model, a: Any, b: Any, shape: tuple[int, ...], is_checked: bool = False) -> Array:
    """Multiply matrices of float32; `is_checked`: the operands are known to be of a type that it multiplies."""
    left = a if is_checked else _values(model, a, "a")
    right = np.swapaxes(b if is_checked else _values(model, b, "b"), -1, -2)
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
            model.width or 0,
            model.cuts,
            model.truncates,
            -126 if model.inputs is None else INPUTS[model.inputs],
            model.lowest,
            part,
        )
        y[index] = part
    return y


def rounded_to(values: Array, inputs: str) -> Array:
    """Return values rounded to a type."""
    if inputs == "fp16":
        return values.astype(np.float16).astype(np.float32)
    if inputs == "tf32":
        bits = np.ascontiguousarray(values).view(np.uint32)
        up = np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))  # nearest, ties to even
        return ((bits + up) & np.uint32(0xFFFFE000)).view(np.float32)
    import ml_dtypes  # 5 ms

    types = {"bf16": "bfloat16", "fp8_e4m3fn": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}
    found: Array = values.astype(getattr(ml_dtypes, types[inputs])).astype(np.float32)
    return found


def _values(model: Model, operand: Any, name: str) -> Array:
    if is_integers(operand):
        raise WrongValue(
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
        if not wrong.any() and model.inputs is not None:
            wrong = rounded_to(values, model.inputs) != values
            wanted = "values of " + WORDS[model.inputs].format(model.instruction)
    if wrong.any():
        index = tuple(int(i) for i in np.unravel_index(wrong.argmax(), wrong.shape))
        raise WrongValue(f"{NAME}: {name} has {shown(float(values[index]))} at index {index}, expected {wanted}")
    return values


def _matrices(left: Array, right: Array, shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Array, Array]]:
    """Yield (index, left rows, right rows) for each matrix of the leading dimensions."""
    lead = shape[:-2]
    left = np.broadcast_to(left, (*lead, *left.shape[-2:]))
    right = np.broadcast_to(right, (*lead, *right.shape[-2:]))
    for index in np.ndindex(lead) if prod(shape) else ():
        yield index, left[index], right[index]
