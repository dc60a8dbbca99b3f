"""Stacks of NVFP4 matrices: E2M1 codes, E4M3 scales of 16 values, and a float32 scale for each matrix.

`NVFP4` has one float32 scale. Where the matrices have different ones, the array is ``fp4_e2m1-g16``, whose float32
scales are the products of both levels: the values are the same.
"""

from __future__ import annotations

import numpy as np

from ...arrays.quantized import QuantizedArray
from ...base.container import numpy_dtype
from ...formats import NVFP4, Float
from .linear import Array

__all__ = ["GROUPED", "array_of", "e4m3_values", "grouped"]

GROUPED = Float("fp4_e2m1", scaled="group", group=16)


def e4m3_values(scales: Array) -> Array:
    """Return the float32 values of scale bytes."""
    return scales.view(np.uint8).view(numpy_dtype("float8_e4m3fn")).astype(np.float32)


def array_of(name: str, codes: Array, scales: Array, whole: Array) -> QuantizedArray:
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
        raise ValueError(f"{name}: a scale is not finite")
    rows, each = int(np.prod(shape[:-1])), whole.reshape(-1)
    parts: dict[str, Array] = {"codes": np.ascontiguousarray(codes).reshape(rows, -1)}
    if (each == each[0]).all():
        parts |= {"scales": scales.view(np.uint8).reshape(rows, -1), "coarse": each[:1].reshape(())}
        return QuantizedArray(parts, NVFP4(), shape, (len(shape) - 1,))
    with np.errstate(over="ignore", under="ignore"):
        products = wide.reshape(count, -1) * each[:, None]
    return grouped(name, parts["codes"], products.reshape(rows, -1), shape)


def grouped(name: str, codes: Array, scales: Array, shape: tuple[int, ...]) -> QuantizedArray:
    """Return the array of codes (rows of all experts, in / 2) with a float32 scale for every 16 values."""
    if not np.isfinite(scales).all():
        raise ValueError(f"{name}: a product of scales is not finite")
    parts = {"codes": codes, "scales": np.ascontiguousarray(scales, np.float32)}
    return QuantizedArray(parts, GROUPED, shape, (len(shape) - 1,))
