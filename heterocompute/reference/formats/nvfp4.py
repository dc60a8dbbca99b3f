"""NVFP4: e2m1 elements, an e4m3 scale for every 16 values, one float32 p for the array. NVIDIA, "Pretraining Large
Language Models with NVFP4" (arXiv 2509.25149).

    p       = absmax of the array / 2688 (= 448 * 6), float32; 1 where that is 0
    byte    = RNE to e4m3, saturating, of (absmax of the group / 6) / p, two float32 divisions
    S       = float32(value of the byte * p)
    element = RNE(x / S), saturating; 0 where the byte decodes to 0
    value   = float32(element * S)

four_over_six (Cook et al., arXiv 2512.02010): p = absmax / 1536 (= 256 * 6), so that 1.5 times every scale is at most
384. Also tries absmax of the group / 4, if the sum of squared errors of the decoded values, in float64, is smaller.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import minifloat
from ..arithmetic import Array, decoded
from ..layout import Geometry, Terms, pack, row_bytes, unsigned_codes as stored_codes

E2M1, E4M3 = minifloat.TYPES["fp4_e2m1"], minifloat.TYPES["fp8_e4m3fn"]


def layout(fmt: Any, sizes: Geometry) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return dtype and shape of each component."""
    return {
        "codes": (np.uint8, (sizes.rows, row_bytes(sizes.groups * sizes.group, fmt.bits))),
        "scales": (np.uint8, (sizes.rows, sizes.groups)),
        "coarse": (np.float32, ()),
    }


def encode(fmt: Any, sizes: Geometry, x: Array, clip: Any) -> dict[str, Array]:
    """Quantize groups of values."""
    minifloat.refuse_clip(fmt, clip)
    absmax = np.abs(x).max(axis=-1, initial=0.0).astype(np.float32)
    p = absmax.max(initial=np.float32(0)) / np.float32(1536 if fmt.four_over_six else 2688)
    if p == 0:
        p = np.float32(1)
    scales, codes, error = _encode(x, absmax / np.float32(6), p)
    if fmt.four_over_six:
        other_scales, other_codes, other_error = _encode(x, absmax / np.float32(4), p)
        better = other_error < error
        scales = np.where(better, other_scales, scales)
        codes = np.where(better[..., None], other_codes, codes)
    return {
        "codes": pack(codes.reshape(sizes.rows, sizes.groups * sizes.group), fmt.bits),
        "scales": scales.astype(np.uint8),
        "coarse": np.asarray(p),
    }


def terms(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Terms:
    """Return the factors of the values: elements and the scales S."""
    elements = minifloat.decode(E2M1, stored_codes(fmt, sizes, components))
    return Terms(elements, _scale(components["scales"].astype(np.int64), components["coarse"]), None)


def fraction_steps(fmt: Any) -> int:
    """Return the factor that makes every element an integer; scales are halved in float32."""
    return 2


def _scale(stored: Array, p: Array) -> Array:
    return decoded(minifloat.decode(E4M3, stored) * p.astype(np.float64))


def _encode(x: Array, scale: Array, p: Any) -> tuple[Array, Array, Array]:
    """Return bytes, codes and squared errors of each group for these scales before rounding."""
    stored = minifloat.encode(E4M3, (scale / p).astype(np.float64))
    divisor = _scale(stored, p).astype(np.float64)[..., None]
    codes = minifloat.encode(E2M1, np.divide(x, divisor, out=np.zeros(x.shape), where=divisor != 0))
    difference = x - decoded(minifloat.decode(E2M1, codes) * divisor).astype(np.float64)
    error = np.zeros(stored.shape)
    for j in range(x.shape[-1]):  # index ascending, one accumulator
        error = error + difference[..., j] * difference[..., j]
    return stored, codes, error
