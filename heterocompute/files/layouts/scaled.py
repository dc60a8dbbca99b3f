"""Codes of 8 bits with their scales: int8 and FP8 of compressed-tensors, LLM.int8 of bitsandbytes.

    NAME.weight             int8 or float8_e4m3fn (out, in)
    NAME.weight_scale       float: one, (out, 1), (out, groups), or (blocks of rows, blocks of columns)
    NAME.weight_zero_point  int8, in the shape of the scales
    NAME.SCB                float32 (out,), the largest magnitude of a row

value = (code - zero point) scale in float32. Formats represent one scale per row or for all, and groups. Float8 with
blocks becomes groups, and each row repeats the scales of its block. All other weights become values.
compressed_tensors/compressors/naive_quantized; bitsandbytes, functional.py, int8_vectorwise_dequant.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays.quantized import QuantizedArray
from ...base.container import numpy_dtype
from ...base.errors import WrongValue
from ...formats import NVFP4, Float, Format, Int
from . import linear
from .linear import Array

FLOATS = ("fp8_e4m3fn", "fp8_e5m2")
HIGH = 128  # rows of a block
SCALES = ("float16", "bfloat16", "float32")
GROUPED = Float("fp4_e2m1", scaled="group", group=16)  # NVFP4 of matrices with a float32 scale each
INVERSE = np.float32(7.874015718698502e-3)  # 1 / 127, with bitsandbytes' digits


class Codes(NamedTuple):
    """A weight: `block` are the rows and columns that share a scale, scales and points (blocks of rows, of columns)."""

    codes: Array
    scales: Array
    points: Array | None
    block: tuple[int, int]


class Blocks(NamedTuple):
    """A dtype of codes, and the rows (`high`) and columns (`wide`) that share a scale."""

    dtype: str
    high: int
    wide: int

    def __str__(self) -> str:
        return f"{self.dtype} in blocks of {self.high} x {self.wide}"


def powers(bytes_: Array) -> Array:
    """Return 2^(byte - 127) as float32, NaN for 255; the bytes are float8_e8m0fnu or uint8."""
    return bytes_.view(np.uint8).view(numpy_dtype("float8_e8m0fnu")).astype(np.float32)


def blocks_of(weight: Codes) -> Blocks:
    """Return the block of values that share a scale."""
    return Blocks(weight.codes.dtype.name, *weight.block)


def parts_like(prefix: str, fmt: Float, shape: tuple[int, ...]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return dtypes and shapes of the tensors of float8 with a scale for each row, or for all."""
    scales = (shape[0], 1) if fmt.scaled == "row" else (1,)
    dtype = f"float8_{fmt.name.removeprefix('fp8_')}"
    return {f"{prefix}.weight": (dtype, shape), f"{prefix}.weight_scale": ("float32", scales)}


def parts_of(prefix: str, q: QuantizedArray) -> dict[str, Array]:
    """Return the tensors of float8 with a scale for each row, or for all."""
    fmt: Float = q.format  # type: ignore[assignment]
    scales = q.components["scales"] if fmt.scaled == "row" else q.components["coarse"].reshape(1)
    codes = q.components["codes"].view(numpy_dtype(f"float8_{fmt.name.removeprefix('fp8_')}"))
    return {f"{prefix}.weight": codes, f"{prefix}.weight_scale": scales}


def is_scaled(fmt: object) -> bool:
    """Tell whether a format is float8 with a scale for each row, or for all."""
    return isinstance(fmt, Float) and fmt.name in FLOATS and fmt.scaled in ("row", "tensor")


def some_rows(weight: Codes, some: slice) -> Codes:
    """Return whole blocks of rows of a weight."""
    high = min(weight.block[0], len(weight.codes))
    if high > 1 and len(weight.scales) > 1:
        if some.start % high:
            raise WrongValue(f"blocks of {high} rows cross the matrices of a stack")
        blocks = slice(some.start // high, -(-some.stop // high))
    else:
        blocks = some if high == 1 else slice(None)
    points = None if weight.points is None else weight.points[blocks]
    return Codes(weight.codes[some], weight.scales[blocks], points, weight.block)


def check(prefix: str, codes: Array, scales: Array, points: Array | None, block: tuple[int, int]) -> tuple[int, int]:
    """Return the blocks of rows and of columns, or raise ValueError if the scales or zero points have another shape."""
    if min(block) < 1 or 0 in codes.shape or (block[0] == 1 and codes.shape[1] % block[1]):
        raise WrongValue(f"{prefix}.weight is {codes.shape}, expected whole groups of {block[1]}")
    blocks = -(-codes.shape[0] // block[0]), -(-codes.shape[1] // block[1])
    flat = blocks[1] == 1  # the second dimension may be missing
    for name, part in (("weight_scale", scales), ("weight_zero_point", points)):
        if (
            part is not None
            and part.shape != blocks
            and not (flat and part.shape == blocks[:1])
            and not (blocks == (1, 1) and part.shape == ())
        ):
            raise WrongValue(f"{prefix}.{name} is {part.shape}, expected {blocks}")
    if scales.dtype.name not in SCALES or (points is not None and points.dtype != np.int8):
        kinds = scales.dtype if points is None else f"{scales.dtype} with zero points of {points.dtype}"
        raise WrongValue(f"{prefix}.weight_scale is {kinds}, expected {', '.join(SCALES)}, and int8")
    linear.check_finite(f"{prefix}.weight_scale", scales)
    return blocks


def checked(prefix: str, codes: Array, scales: Array, points: Array | None, block: tuple[int, int]) -> Codes:
    """Return a weight of compressed-tensors, without its zero points if they are all 0."""
    if points is not None and not points.astype(np.float32).any():
        points = None
    blocks = check(prefix, codes, scales, points, block)
    return Codes(codes, scales.reshape(blocks), None if points is None else points.reshape(blocks), block)


def format_of(weight: Codes) -> Format | None:
    """Return the format that represents a weight, or None if none does."""
    codes, scales, points, (high, wide) = weight
    rows, count = codes.shape
    one = scales.size == 1
    if codes.dtype != np.int8:
        if not one and (high > 1 or wide < count):
            return None
        return Float(f"fp8_{codes.dtype.name.removeprefix('float8_')}", scaled="tensor" if one else "row")
    if not one and high > 1:
        return None
    group = None if one or wide >= count else wide
    return Int(8, group, points is None and bool(codes.min() > -128), "f16" if scales.dtype == np.float16 else "f32")


def group_format_of(weight: Codes) -> Float | None:
    """Return the float8 format of a weight when each row of a block repeats the block's scales."""
    codes, _, points, (high, wide) = weight
    if codes.dtype == np.int8 or points is not None:
        return None
    return Float(f"fp8_{codes.dtype.name.removeprefix('float8_')}", scaled="group", group=min(wide, codes.shape[1]))


def grouped(weight: Codes) -> QuantizedArray | None:
    """Return the array of `group_format_of`, the same values; None if there is no such format."""
    codes, scales, _, (high, wide) = weight
    fmt = group_format_of(weight)
    if fmt is None or fmt.group is None:
        return None
    rows, count = codes.shape
    stored = np.pad(codes.view(np.uint8), ((0, 0), (0, -count % fmt.group)))
    each = np.repeat(scales.astype(np.float32), high, 0)[:rows]
    return QuantizedArray({"codes": stored, "scales": np.ascontiguousarray(each)}, fmt, codes.shape, (1,))


def blocks_in(q: QuantizedArray, rows: int) -> Codes | None:
    """Return an array of `grouped` as codes with scales of blocks; None for other arrays.

    Parameters
    ----------
    q : QuantizedArray
        A matrix, or the rows of a stack of matrices.
    rows : int
        Rows of one matrix, which blocks do not cross.
    """
    fmt: Any = q.format
    if not isinstance(fmt, Float) or fmt.scaled != "group" or fmt.name not in FLOATS or not len(q):
        return None
    codes, scales = q.components["codes"][:, : q.shape[1]], q.components["scales"]
    high = HIGH if rows == len(q) or rows % HIGH == 0 else 1
    if high > 1 and np.array_equal(np.repeat(scales[::high], high, 0)[: len(scales)], scales):
        scales = scales[::high]
    else:
        high = 1
    stored = np.ascontiguousarray(codes).view(numpy_dtype(f"float8_{fmt.name.removeprefix('fp8_')}"))
    return Codes(stored, np.ascontiguousarray(scales), None, (high, fmt.group or q.shape[1]))


def array_of(weight: Codes) -> QuantizedArray | None:
    """Return the array of a weight whose scales a format has, None for others."""
    fmt, (codes, scales, points, _) = format_of(weight), weight
    if fmt is None:
        return None
    if isinstance(fmt, Float):
        wide = scales.astype(np.float32)
        parts: dict[str, Array] = {"codes": codes.view(np.uint8), "scales": wide}
        if fmt.scaled == "tensor":
            parts = {"codes": codes.view(np.uint8), "coarse": wide.reshape(())}
        return QuantizedArray(parts, fmt, codes.shape, (1,))
    rows = len(codes)
    wide = np.repeat(scales, rows, 0) if len(scales) != rows else scales
    if isinstance(fmt, Int) and fmt.symmetric:
        return linear.array_of(fmt, codes.view(np.uint8), wide, None)
    middle = np.zeros_like(wide, np.int16) if points is None else np.broadcast_to(points, wide.shape).astype(np.int16)
    unsigned = codes.view(np.uint8) ^ np.uint8(128)
    return linear.array_of(fmt, unsigned, wide, (middle + 128).astype(np.uint8))


def rows_of(weight: Codes, begin: int, end: int) -> Array:
    """Return the values of some rows, float32."""
    codes, scales, points, (high, wide) = weight
    rows, columns = np.arange(begin, end) // high, np.arange(codes.shape[1]) // wide

    def spread(part: Array) -> Array:
        return np.asarray(part[rows].astype(np.float32)[:, columns])

    values = codes[begin:end].astype(np.float32)
    if points is not None:
        values -= spread(points)
    values *= spread(scales)
    return values


def from_row_maxima(name: str, codes: Array, maxima: Array) -> tuple[Array, str, int]:
    """Return the values of LLM.int8 in the order of bitsandbytes, code x maximum, then x 1 / 127; its format, bytes."""
    if codes.dtype != np.int8 or codes.ndim != 2 or maxima.shape != codes.shape[:1] or maxima.dtype != np.float32:
        raise WrongValue(
            f"{name} is {codes.dtype} {codes.shape}, with SCB of {maxima.dtype} {maxima.shape}: expected int8 (out, "
            "in) "
            "and float32 (out,)"
        )
    linear.check_finite(f"{name}: SCB", maxima)
    values = codes.astype(np.float32)
    values *= maxima[:, None]
    values *= INVERSE
    return values, "int8 of bitsandbytes", codes.nbytes + maxima.nbytes


def e4m3_values(scales: Array) -> Array:
    """Return the float32 values of scale bytes."""
    return scales.view(np.uint8).view(numpy_dtype("float8_e4m3fn")).astype(np.float32)


def nvfp4_of(name: str, codes: Array, scales: Array, whole: Array) -> QuantizedArray:
    """Return the array of a matrix or a stack whose float32 scales multiply the scales of groups.

    Parameters
    ----------
    name : str
        Of the codes, for errors.
    codes : ndarray of uint8, (out, in / 2) or (experts, out, in / 2)
        The even code low.
    scales : ndarray of float8_e4m3fn or uint8, (out, in / 16) or (experts, out, in / 16)
    whole : ndarray of float32
        One, or one for each expert.
    """
    shape = (*codes.shape[:-1], 2 * codes.shape[-1])
    wide, count = e4m3_values(scales), codes.shape[0] if codes.ndim == 3 else 1
    if not np.isfinite(wide).all() or not np.isfinite(whole).all():
        raise WrongValue(f"{name}: a scale is not finite")
    rows, each = int(np.prod(shape[:-1])), whole.reshape(-1)
    parts: dict[str, Array] = {"codes": np.ascontiguousarray(codes).reshape(rows, -1)}
    if (each == each[0]).all():
        parts |= {"scales": scales.view(np.uint8).reshape(rows, -1), "coarse": each[:1].reshape(())}
        return QuantizedArray(parts, NVFP4(), shape, (len(shape) - 1,))
    with np.errstate(over="ignore", under="ignore"):
        products = wide.reshape(count, -1) * each[:, None]
    return nvfp4_groups(name, parts["codes"], products.reshape(rows, -1), shape)


def nvfp4_groups(name: str, codes: Array, scales: Array, shape: tuple[int, ...]) -> QuantizedArray:
    """Return the array of codes (rows of all experts, in / 2) with a float32 scale for every 16 values."""
    if not np.isfinite(scales).all():
        raise WrongValue(f"{name}: a product of scales is not finite")
    parts = {"codes": codes, "scales": np.ascontiguousarray(scales, np.float32)}
    return QuantizedArray(parts, GROUPED, shape, (len(shape) - 1,))
