"""Integers with a scale and a minimum per row or group.

    m = min(x)     s = (max(x) - m) / (2^b - 1)     q = clip(RNE((x - m) / s), 0, 2^b - 1)     value = s * q + m

Padding of a short group counts for neither m nor s. Numbers that are stored as float16 are at most 65504. s is computed
with the stored m, and q with the stored s and m. A float zero point z is the minimum -s z.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arithmetic import Array, quotient
from ..layout import Geometry, Terms, pack, row_bytes, unsigned_codes as stored_codes
from ..minifloat import refuse_clip


def layout(fmt: Any, sizes: Geometry) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return dtype and shape of each component."""
    factor = np.float16 if fmt.scale == "f16" else np.float32, (sizes.rows, sizes.groups)
    codes = np.uint8, (sizes.rows, row_bytes(sizes.groups * sizes.group, fmt.bits))
    return {"codes": codes, "scales": factor, "minima": factor}


def encode(fmt: Any, sizes: Geometry, x: Array, clip: Any) -> dict[str, Array]:
    """Quantize groups of values."""
    refuse_clip(fmt, clip)
    largest = 2**fmt.bits - 1
    left = sizes.run_length - np.arange(sizes.groups) % max(sizes.groups_per_run, 1) * sizes.group
    counts = np.arange(sizes.group) < left[:, None] if fmt.group else np.ones((sizes.groups, sizes.group), np.bool_)
    low, high = np.zeros(x.shape[:2]), np.zeros(x.shape[:2])
    if x.size:
        low, high = np.where(counts, x, np.inf).min(axis=-1) + 0.0, np.where(counts, x, -np.inf).max(axis=-1)
    minima = _stored(fmt, low)
    span = np.maximum(high - minima.astype(np.float64), 0)
    scales = _stored(fmt, span / largest)
    codes = np.clip(quotient(x - minima.astype(np.float64)[..., None], scales[..., None]), 0, largest)
    flat = codes.reshape(sizes.rows, sizes.groups * sizes.group)
    return {"codes": pack(flat, fmt.bits), "scales": scales, "minima": minima}


def terms(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Terms:
    """Return the values, in float64."""
    scales, minima = (components[part].astype(np.float64)[..., None] for part in ("scales", "minima"))
    return Terms(scales * stored_codes(fmt, sizes, components) + minima, None, None)


def terms_above(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> tuple[Terms, Array]:
    """Return the factors of the values without their minima, and the minima."""
    scales, minima = (components[part].astype(np.float32) for part in ("scales", "minima"))
    return Terms(stored_codes(fmt, sizes, components), scales, None), minima


def _stored(fmt: Any, values: Array) -> Array:
    found = values.astype(np.float32)
    return np.clip(found, np.float32(-65504), np.float32(65504)).astype(np.float16) if fmt.scale == "f16" else found
