"""ALiBi: attention whose scores have a bias by the distance, instead of rotary positions.

    score[h, i, j] = scale q[i] k[j] + slope[h] j          j - i gives the same softmax

The bias is that of `attention`. Press et al., "Train Short, Test Long", 2021 (arXiv 2108.12409), section 3.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ..shape import Shape

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
IntArray = np.ndarray[Any, np.dtype[np.uint32]]


@lru_cache(maxsize=64)
def slopes_of(heads: int) -> tuple[float, ...]:
    """Return the slope of each head: a geometric sequence, with every second one of a finer sequence at the end."""
    whole = 1 << (heads.bit_length() - 1)
    first = [2.0 ** (-8 * i / whole) for i in range(1, whole + 1)]
    finer = [2.0 ** (-4 * i / whole) for i in range(1, 2 * (heads - whole) + 1, 2)]
    return tuple([*first, *finer])


def _bfloat16(x: FloatArray) -> FloatArray:
    """Return values rounded to bfloat16: the nearest, ties to even."""
    bits = x.view(np.uint32)
    kept: IntArray = (bits + ((bits >> 16) & 1) + 0x7FFF) & np.uint32(0xFFFF0000)
    return kept.view(np.float32)


def biases_of(shape: Shape, tokens: int) -> FloatArray:
    """Return the bias of each key, (heads, tokens)."""
    slopes, at = np.array(slopes_of(shape.heads), np.float32)[:, None], np.arange(tokens, dtype=np.float32)
    if not shape.options.scales_alibi:
        return slopes * at
    found: FloatArray = _bfloat16(_bfloat16(slopes) * at) * np.float32(1 / math.sqrt(shape.head_width))
    return found
