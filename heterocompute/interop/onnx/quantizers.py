"""Operators of ONNX between floats and codes by their definition, for machines without onnxruntime.

Values are rounded half to even and saturate; NaN becomes the smallest integer, as in onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.errors import WrongValue

Array = np.ndarray[Any, Any]
UINT8 = 2  # TensorProto.DataType
FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")


def dtype_of(kind: int) -> np.dtype[Any]:
    """Return the dtype with a number of ONNX."""
    from onnx import helper  # optional

    return np.dtype(helper.tensor_dtype_to_np_dtype(kind))


def saturated(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return rounded values as integers, clipped to the range."""
    if dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    else:
        import ml_dtypes  # 15 ms

        ends: Any = ml_dtypes.iinfo
        low, high = int(ends(dtype).min), int(ends(dtype).max)
    return np.clip(np.where(np.isnan(values), low, values), low, high).astype(np.int64).astype(dtype)


def spread(values: Array, shape: tuple[int, ...], axis: int, block_size: int) -> Array:
    """Return scales or zero points with the axes of the tensor that they belong to."""
    if values.size == 1:
        return values.reshape([1] * len(shape))
    if not block_size:
        sizes = [1] * len(shape)
        sizes[axis] = values.size
        if values.size != shape[axis]:
            raise WrongValue(f"{values.size} scales or zero points for {shape[axis]} slices along axis {axis}")
        return values.reshape(sizes)
    found = np.repeat(values, block_size, axis).take(range(shape[axis]), axis)
    if found.shape != shape:
        raise WrongValue(f"scales or zero points of shape {values.shape} for blocks of {block_size} of {shape}")
    return found


def quantize(
    x: Array, scale: Array, zero_point: Array | None = None, axis: int = 1, saturate: int = 1, block_size: int = 0,
    output_dtype: int = 0, precision: int = 0,
) -> tuple[Array]:  # fmt: skip
    dtype = zero_point.dtype if zero_point is not None else dtype_of(output_dtype or UINT8)
    divided = dtype_of(precision) if precision else np.result_type(x.dtype, np.float32) if x.dtype.kind == "f" \
        else np.dtype(np.float32)  # fmt: skip
    steps = spread(scale, x.shape, axis, block_size).astype(divided)
    ratio = x.astype(divided) / steps
    if dtype.kind in "iu" or dtype.name.removeprefix("u").startswith("int"):
        zeros = 0.0 if zero_point is None else spread(zero_point, x.shape, axis, block_size).astype(np.float64)
        return (saturated(np.rint(ratio.astype(np.float64)) + zeros, dtype),)
    return (as_small_float(ratio.astype(np.float32), dtype, bool(saturate)),)


def as_small_float(values: Array, dtype: np.dtype[Any], is_saturated: bool) -> Array:
    """Return values as floats of 8 bits or fewer; infinities saturate too, unless they are kept."""
    import ml_dtypes  # 15 ms

    if is_saturated or dtype.name not in FLOAT8:
        ends: Any = ml_dtypes.finfo
        largest = np.float32(ends(dtype).max)
        values = np.clip(values, -largest, largest)
    return values.astype(dtype)


def dequantize(
    x: Array, scale: Array, zero_point: Array | None = None, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> tuple[Array]:
    wide = x.astype(np.float64)
    if zero_point is not None:
        wide = wide - spread(zero_point, x.shape, axis, block_size).astype(np.float64)
    y = wide.astype(np.float32) * spread(scale, x.shape, axis, block_size).astype(np.float32)
    return (y.reshape(x.shape).astype(dtype_of(output_dtype) if output_dtype else scale.dtype),)


def quantize_dynamically(x: Array) -> tuple[Array, Array, Array]:
    high, low = np.float32(x.max(initial=0)), np.float32(x.min(initial=0))
    scale = np.float32(1) if high == low else (high - low) / np.float32(255)
    zero = saturated(np.rint(np.asarray(-low / scale, np.float64)), np.dtype(np.uint8))
    y = saturated(np.rint((x / scale).astype(np.float64)) + float(zero), np.dtype(np.uint8))
    return y, np.asarray(scale), zero


def as_column(values: Array | None, ndim: int, axis: int) -> Any:
    """Return zero points or scales, one for all or one along an axis, with the axes of an operand."""
    if values is None:
        return 0
    if values.ndim > 1 or values.size == 1 and ndim:
        return values if values.ndim == ndim else values.reshape([1] * ndim)
    sizes = [1] * ndim
    if ndim:
        sizes[axis] = -1
    return values.reshape(sizes)


def centred(codes: Array, zero_point: Array | None, axis: int) -> Array:
    """Return integers minus their zero points, of all or along an axis."""
    zeros = as_column(zero_point, codes.ndim, axis)
    return codes.astype(np.int64) - (zeros.astype(np.int64) if zero_point is not None else 0)


def matmul(a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> tuple[Array]:
    rows, columns = -2 if a.ndim > 1 else -1, -1
    y = centred(a, a_zero, rows) @ centred(b, b_zero, columns)
    return (np.asarray(y).astype(np.int32),)


def quantized_matmul(
    a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array, y_scale: Array, y_zero: Array
) -> tuple[Array]:
    (sums,) = matmul(a, b, a_zero, b_zero)
    rows = as_column(a_scale.astype(np.float32), sums.ndim, -2)
    columns = as_column(b_scale.astype(np.float32), sums.ndim, -1)
    steps = rows * columns / as_column(y_scale.astype(np.float32), sums.ndim, -2)
    rounded = np.rint((sums.astype(np.float32) * steps).astype(np.float64))
    return (saturated(rounded + as_column(y_zero, sums.ndim, -2).astype(np.float64), y_zero.dtype),)


QUANTIZERS: dict[str, Callable[..., Any]] = {
    "DequantizeLinear": dequantize,
    "DynamicQuantizeLinear": quantize_dynamically,
    "MatMulInteger": matmul,
    "QLinearMatMul": quantized_matmul,
    "QuantizeLinear": quantize,
}
