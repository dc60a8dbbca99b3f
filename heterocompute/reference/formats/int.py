"""Uniform integers, b bits, one scale for a row or a group.

    symmetric:    s = absmax / (2^(b-1) - 1)         q = clip(RNE(x / s), -(2^(b-1) - 1), 2^(b-1) - 1)
                  value = s * q                      the code -2^(b-1) is never used
    asymmetric:   lo = min(x, 0), hi = max(x, 0)     s = (hi - lo) / (2^b - 1)
                  z = clip(RNE(-lo / s), 0, 2^b - 1) q = clip(RNE(x / s) + z, 0, 2^b - 1)
                  value = s * (q - z)                so that 0 is exact

float16 scales are min(s, 65504) rounded; codes and zero points are computed from the stored scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arithmetic import Array, quotient
from ..clip import thresholds
from ..layout import Geometry, Terms, pack, real, row_bytes, unpack


def layout(fmt: Any, sizes: Geometry) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return dtype and shape of each component."""
    components: dict[str, tuple[Any, tuple[int, ...]]] = {
        "codes": (np.uint8, (sizes.rows, row_bytes(sizes.groups * sizes.group, fmt.bits))),
        "scales": (_scale_type(fmt), (sizes.rows, sizes.groups)),
    }
    if not fmt.symmetric:
        components["zero_points"] = (np.uint8, (sizes.rows, row_bytes(sizes.groups, fmt.bits)))
    return components


def encode(fmt: Any, sizes: Geometry, x: Array, clip: Any) -> dict[str, Array]:
    """Quantize groups of values."""
    flat = (sizes.rows, sizes.groups * sizes.group)
    limit = thresholds(np.abs(x), real(sizes), clip, fmt.bits)
    if fmt.symmetric:
        largest = 2 ** (fmt.bits - 1) - 1
        scales = _stored(fmt, limit / np.float32(largest))
        codes = np.clip(quotient(x, scales[..., None]), -largest, largest)
        return {"codes": pack(codes.reshape(flat), fmt.bits), "scales": scales}
    largest = 2**fmt.bits - 1
    low, high = x.min(axis=-1, initial=0.0), x.max(axis=-1, initial=0.0)
    if clip is not None:
        low, high = np.maximum(low, -limit.astype(np.float64)), np.minimum(high, limit.astype(np.float64))
    scales = _stored(fmt, ((high - low) / largest).astype(np.float32))
    zero_points = np.clip(quotient(-low, scales), 0, largest)
    codes = np.clip(quotient(x, scales[..., None]) + zero_points[..., None], 0, largest)
    return {
        "codes": pack(codes.reshape(flat), fmt.bits),
        "scales": scales,
        "zero_points": pack(zero_points, fmt.bits),
    }


def stored_codes(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Array:
    """Unpack the stored codes, with zero points not subtracted."""
    codes = unpack(components["codes"], fmt.bits, sizes.groups * sizes.group, signed=fmt.symmetric)
    return codes.reshape(sizes.rows, sizes.groups, sizes.group)


def terms(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Terms:
    """Return the factors of the values."""
    codes = stored_codes(fmt, sizes, components)
    if not fmt.symmetric:
        zero_points = unpack(components["zero_points"], fmt.bits, sizes.groups, signed=False)
        codes = codes - zero_points[..., None]
    scales = components["scales"].astype(np.float32)
    return Terms(codes, None, scales[:, 0]) if fmt.group is None else Terms(codes, scales, None)


def _scale_type(fmt: Any) -> Any:
    return np.float16 if fmt.scale == "f16" else np.float32


def _stored(fmt: Any, scales: Array) -> Array:
    return np.minimum(scales, np.float32(65504)).astype(np.float16) if fmt.scale == "f16" else scales
