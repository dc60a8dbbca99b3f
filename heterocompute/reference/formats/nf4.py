"""NF4: Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs", NeurIPS 2023 (arXiv 2305.14314),
section 3 and appendix E. 16 fixed levels, one scale per group.

    s = absmax     code = the level nearest to x / s     value = float32(level * s)

Double quantization, over the scales of the whole array row by row, 256 at a time:

    m = float32(mean of s)    d = float32(s - m)    t = absmax(d) / 127    k = clip(RNE(d / t), -127, 127)
    value = float32(level * max(0, float32(k t + m)))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arithmetic import LARGEST, Array, fma, quotient
from ..clip import thresholds
from ..kmeans import nearest
from ..layout import Geometry, Terms, pack, real, row_bytes, unsigned_codes as stored_codes

# fmt: off
LEVELS: Array = np.array([
    -1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
], np.float32)
# fmt: on
ZERO = 7
BLOCK = 256
NO_MINUS_ZERO = True


def layout(fmt: Any, sizes: Geometry) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """Return dtype and shape of each component."""
    components: dict[str, tuple[Any, tuple[int, ...]]] = {
        "codes": (np.uint8, (sizes.rows, row_bytes(sizes.groups * sizes.group, 4))),
        "scales": (np.int8 if fmt.double else np.float32, (sizes.rows, sizes.groups)),
    }
    if fmt.double:
        components["coarse"] = (np.float32, (-(-sizes.rows * sizes.groups // BLOCK),))
        components["mean"] = (np.float32, ())
    return components


def encode(fmt: Any, sizes: Geometry, x: Array, clip: Any) -> dict[str, Array]:
    """Quantize groups of values."""
    scales = thresholds(np.abs(x), real(sizes), clip, 4)
    wide = np.broadcast_to(scales.astype(np.float64)[..., None], x.shape)
    codes = nearest(LEVELS, np.divide(x, wide, out=np.zeros(x.shape), where=wide != 0))
    # A doubly quantized scale of 0 may decode to another value, but zeros must stay zero.
    codes = np.where(wide == 0, ZERO if fmt.double else 0, codes)
    packed = pack(codes.reshape(sizes.rows, sizes.groups * sizes.group), 4)
    if not fmt.double:
        return {"codes": packed, "scales": scales}
    flat = scales.reshape(-1)
    mean = np.float32(np.cumsum(flat.astype(np.float64))[-1] / flat.size if flat.size else 0)
    difference = flat - mean
    blocks = np.zeros((-(-flat.size // BLOCK), BLOCK), np.float32)
    blocks.reshape(-1)[: flat.size] = difference
    t = np.abs(blocks).max(axis=1, initial=np.float32(0)) / np.float32(127)
    k = np.clip(quotient(difference.astype(np.float64), t[np.arange(flat.size) // BLOCK]), -127, 127)
    return {
        "codes": packed,
        "scales": k.astype(np.int8).reshape(scales.shape),
        "coarse": t,
        "mean": np.asarray(mean),
    }


def terms(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Terms:
    """Return the factors of the values."""
    scales = components["scales"]
    if fmt.double:
        block = np.arange(scales.size).reshape(scales.shape) // BLOCK
        k, t = scales.astype(np.float32), components["coarse"][block]
        scales = np.clip(fma(k, t, components["mean"]), np.float32(0), np.float32(LARGEST))
    return Terms(LEVELS[stored_codes(fmt, sizes, components)].astype(np.float64), scales, None)
