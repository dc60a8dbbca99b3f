"""Definition of rotated formats: blocks of an axis times signs and Sylvester's matrix, in float32.

    rotated    x S M            M: +-1 / sqrt(block), M M = I;  S: 1 or -1 for each index of the axis, or all 1
    back       x M S

QuaRot: Ashkboos et al., NeurIPS 2024 (arXiv 2404.00456), section 3. Signs: a bit of splitmix64 (Steele, Lea and Flood,
OOPSLA 2014) of seed and index.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .layers import rotate_heads

FloatArray = np.ndarray[Any, np.dtype[np.float32]]

MASK = 2**64 - 1


def signs(size: int, seed: int | None) -> FloatArray:
    """Return 1 or -1 for each index of an axis; all 1 without a seed."""
    if seed is None:
        return np.ones(size, np.float32)
    found = []
    for index in range(size):
        z = ((index + 1) * 0x9E3779B97F4A7C15 + seed) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        found.append(-1.0 if (z ^ (z >> 31)) & 1 else 1.0)
    return np.array(found, np.float32)


def rotate(x: Any, axis: int, block: int, seed: int | None = None, inverse: bool = False) -> FloatArray:
    """Return a float32 array whose blocks along an axis are rotated, or rotated back."""
    values = np.moveaxis(np.asarray(x, np.float32), axis, -1)
    flips = signs(values.shape[-1], seed)
    values = values if inverse else values * flips
    blocks = values.reshape(*values.shape[:-1], values.shape[-1] // block, block)
    turned = rotate_heads(blocks).reshape(values.shape)
    return np.moveaxis(turned * flips if inverse else turned, -1, axis)
