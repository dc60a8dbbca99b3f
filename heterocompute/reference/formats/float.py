"""Small floats, without a scale, or with one scale per row, per group or for the array.

no scale        code = RNE(x)            rounded once, from the input's own precision
row, tensor,    s = absmax / max         the type's largest value; float32
group           code = RNE(x / s)        the quotient a float64; a scale of 0 makes all codes 0
                value = float32(s * element)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import minifloat
from ..arithmetic import Array
from ..clip import thresholds
from ..layout import Geometry, Terms, pack, real, row_bytes, unsigned_codes as stored_codes


def layout(fmt: Any, sizes: Geometry) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return dtype and shape of each component."""
    codes = (np.uint8, (sizes.rows, row_bytes(sizes.groups * sizes.group, fmt.bits)))
    if fmt.scaled in ("row", "group"):
        return {"codes": codes, "scales": (np.float32, (sizes.rows, sizes.groups))}
    return {"codes": codes, "coarse": (np.float32, ())} if fmt.scaled == "tensor" else {"codes": codes}


def legal(fmt: Any, x: Array) -> Array:
    """Tell which values can be encoded: without a scale all that the type has a code for."""
    if fmt.scaled is not None:
        return np.isfinite(x.astype(np.float32))
    kind = minifloat.TYPES[fmt.name]
    has_nan, has_infinity = kind.nan is not None, kind.infinity is not None
    found: Array = (~np.isnan(x) | has_nan) & (~np.isinf(x) | fmt.saturate | has_infinity | has_nan)
    return found


def encode(fmt: Any, sizes: Geometry, x: Array, clip: Any) -> dict[str, Array]:
    """Quantize values, in one group without ``scaled="group"``.

    A clip needs a scale. With one scale for the array its threshold is that of all values.
    """
    kind = minifloat.TYPES[fmt.name]
    flat = (sizes.rows, sizes.groups * sizes.group)
    if fmt.scaled is None:
        minifloat.refuse_clip(fmt, clip)
        return {"codes": pack(minifloat.encode(kind, x, fmt.saturate).reshape(flat), fmt.bits)}
    magnitudes, inside = np.abs(x), real(sizes)
    if fmt.scaled == "tensor":
        magnitudes = magnitudes.reshape(1, 1, -1)
        inside = np.ones(magnitudes.shape[1:], dtype=bool)
    scales = thresholds(magnitudes, inside, clip, fmt.bits) / np.float32(kind.maximum)
    divisor = scales.astype(np.float64)[..., None]
    quotient = np.divide(x, divisor, out=np.zeros(x.shape), where=divisor != 0)
    codes = pack(minifloat.encode(kind, quotient, fmt.saturate).reshape(flat), fmt.bits)
    return (
        {"codes": codes, "coarse": scales.reshape(())} if fmt.scaled == "tensor" else {"codes": codes, "scales": scales}
    )


def terms(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Terms:
    """Return the factors of the values."""
    elements = minifloat.decode(minifloat.TYPES[fmt.name], stored_codes(fmt, sizes, components))
    if fmt.scaled is None:
        return Terms(elements, None, None)
    if fmt.scaled == "group":
        return Terms(elements, components["scales"], None)
    scale = components["scales"][:, 0] if fmt.scaled == "row" else components["coarse"]
    return Terms(elements, None, np.broadcast_to(scale, (sizes.rows,)))
