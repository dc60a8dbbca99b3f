"""VS-Quant: Dai et al., "VS-Quant: Per-vector Scaled Quantization for Accurate Low-Precision Neural Network
Inference", MLSys 2021 (arXiv 2102.04503), section 4. N bits, groups of V values, scales of M bits.

Equations 7a to 7j, fine first, coarse second, for group i of row k:

    s(k,i)   = absmax / (2^(N-1) - 1)                       float32
    x_q      = clip(RNE(x / s(k,i)), ...)                   with the unrounded s
    gamma(k) = max_i s(k,i) / (2^M - 1)                     float32, one per row or one for the whole tensor
    s_q(k,i) = clip(RNE(s(k,i) / gamma(k)), 0, 2^M - 1)     an unsigned integer
    value    = float32(gamma * (s_q * x_q))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arithmetic import Array, quotient
from ..clip import thresholds
from ..layout import Geometry, Terms, pack, real, row_bytes, unpack


def layout(fmt: Any, sizes: Geometry) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return dtype and shape of each component."""
    codes = (np.uint8, (sizes.rows, row_bytes(sizes.groups * sizes.group, fmt.bits)))
    if fmt.scale_bits is None:
        return {"codes": codes, "scales": (np.float32, (sizes.rows, sizes.groups))}
    return {
        "codes": codes,
        "scales": (np.uint8, (sizes.rows, row_bytes(sizes.groups, fmt.scale_bits))),
        "coarse": (np.float32, (sizes.rows,) if fmt.coarse == "row" else ()),
    }


def encode(fmt: Any, sizes: Geometry, x: Array, clip: Any) -> dict[str, Array]:
    """Quantize groups of values."""
    flat = (sizes.rows, sizes.groups * sizes.group)
    largest = 2**fmt.bits - 1 if fmt.unsigned else 2 ** (fmt.bits - 1) - 1
    smallest = 0 if fmt.unsigned else -largest
    magnitudes = np.maximum(x, 0.0) if fmt.unsigned else np.abs(x)
    scales = thresholds(magnitudes, real(sizes), clip, fmt.bits) / np.float32(largest)
    codes = np.clip(quotient(x, scales[..., None]), smallest, largest)
    if fmt.scale_bits is None:
        return {"codes": pack(codes.reshape(flat), fmt.bits), "scales": scales}

    largest_scale = 2**fmt.scale_bits - 1
    over = 1 if fmt.coarse == "row" else None
    gamma = np.asarray(scales.max(axis=over, initial=np.float32(0)) / np.float32(largest_scale))
    gamma_by_group = gamma.reshape(-1, 1)
    scale_codes = np.clip(quotient(scales.astype(np.float64), gamma_by_group), 0, largest_scale)
    if fmt.refit:
        rounded = gamma_by_group.astype(np.float64) * scale_codes
        codes = np.clip(quotient(x, rounded[..., None]), smallest, largest)
    codes = np.where(scale_codes[..., None] == 0, 0, codes)
    return {
        "codes": pack(codes.reshape(flat), fmt.bits),
        "scales": pack(scale_codes, fmt.scale_bits),
        "coarse": gamma,
    }


def stored_codes(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Array:
    """Unpack the codes."""
    codes = unpack(components["codes"], fmt.bits, sizes.groups * sizes.group, signed=not fmt.unsigned)
    return codes.reshape(sizes.rows, sizes.groups, sizes.group)


def terms(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Terms:
    """Return the factors of the values."""
    codes = stored_codes(fmt, sizes, components)
    if fmt.scale_bits is None:
        return Terms(codes, components["scales"], None)
    scale_codes = unpack(components["scales"], fmt.scale_bits, sizes.groups, signed=False)
    return Terms(codes, scale_codes, np.broadcast_to(components["coarse"], (sizes.rows,)))
