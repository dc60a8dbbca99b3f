"""The values of the blocks of ggml (src/ggml-common.h); `encoding` has the rounding to them.

q4_0 q5_0 q8_0       value = d * q                    d a float16 for 32 values
tq1_0 tq2_0          value = d * q                    d a float16 for 256 values, q = -1, 0 or 1
q4_1 q5_1            value = d * q + m                and m another
iq4_nl               value = d * LEVELS[q]
q3_k q6_k            value = d * s * q                d for 256 values, s an integer for 16
iq4_xs               value = d * s * LEVELS[q]        s for 32
q2_k q4_k q5_k       value = d * s * q - e * m        s and m for 16 (q2_k) or 32, e as d
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arithmetic import Array
from ...layout import Geometry, Terms, pack, row_bytes, unpack
from ...minifloat import refuse_clip
from .encoding import F32, LEVELS, blocks


def layout(fmt: Any, sizes: Geometry) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return dtype and shape of each component."""
    kind, rows, groups = fmt.kind, sizes.rows, sizes.groups
    codes = (np.uint8, (rows, row_bytes(groups * sizes.group, kind.bits)))
    if not kind.scale_bits:
        factor: tuple[Any, tuple[int, ...]] = (np.float16, (rows, groups))
        return {"codes": codes, "scales": factor} | ({"minima": factor} if kind.has_minimum else {})
    small = (np.uint8, (rows, row_bytes(groups, kind.scale_bits)))
    blocks = groups * kind.group // kind.block
    if kind.has_minimum:
        return {"codes": codes, "scales": small, "minima": small, "coarse": (np.float16, (rows, blocks, 2))}
    return {"codes": codes, "scales": small, "coarse": (np.float16, (rows, blocks))}


def encode(fmt: Any, sizes: Geometry, x: Array, clip: Any, importance: Array | None = None) -> dict[str, Array]:
    """Quantize groups of values."""
    refuse_clip(fmt, clip)
    weights = None if importance is None else importance.astype(F32)
    codes, found = blocks(fmt.kind, sizes, x.astype(F32), weights)
    components = {"codes": pack(codes.reshape(sizes.rows, sizes.groups * sizes.group), fmt.bits)}
    return components | {name: found[name] for name in layout(fmt, sizes) if name != "codes"}


def stored_codes(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Array:
    """Unpack the codes."""
    codes = unpack(components["codes"], fmt.bits, sizes.groups * sizes.group, signed=fmt.kind.signed)
    return codes.reshape(sizes.rows, sizes.groups, sizes.group)


def terms(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Terms:
    """Return the factors of the values; with minima the values themselves, exact in float64."""
    kind = fmt.kind
    codes = stored_codes(fmt, sizes, components)
    scales, minima = factors(fmt, sizes, components)
    if kind.has_levels:
        codes = LEVELS[codes].astype(np.float64)
    if not kind.has_minimum:
        return Terms(codes, scales, None)
    values = scales.astype(np.float64)[..., None] * codes + minima.astype(np.float64)[..., None]
    return Terms(values, None, None)


def terms_above(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> tuple[Terms, Array] | None:
    """Return the factors of the values without their minima, and the minima."""
    if not fmt.kind.has_minimum:
        return None
    scales, minima = factors(fmt, sizes, components)
    return Terms(stored_codes(fmt, sizes, components), scales, None), minima


def factors(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> tuple[Array, Array]:
    """Return the factor of the codes of each group, and the summand; both are exact.

    Parameters
    ----------
    fmt : GGML
    sizes : Geometry
    components : dict of str to ndarray

    Returns
    -------
    (ndarray, ndarray) of float32, (rows, groups)
    """
    kind = fmt.kind
    if not kind.scale_bits:
        scales = components["scales"].astype(F32)
        return scales, components["minima"].astype(F32) if kind.has_minimum else np.zeros_like(scales)
    coarse = components["coarse"].astype(F32)
    small = unpack(components["scales"], kind.scale_bits, sizes.groups, signed=not kind.has_minimum).astype(F32)
    if not kind.has_minimum:
        scales = _spread(kind, coarse) * small
        return scales, np.zeros_like(scales)
    minima = unpack(components["minima"], kind.scale_bits, sizes.groups, signed=False).astype(F32)
    return _spread(kind, coarse[..., 0]) * small, -(_spread(kind, coarse[..., 1]) * minima)


def _spread(kind: Any, blocks: Array) -> Array:
    return np.repeat(blocks, kind.block // kind.group, axis=-1)
