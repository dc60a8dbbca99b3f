"""The positions of the values that a pattern keeps, checked here because products use them unchecked."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..formats import Sparse
from .bits import unpack

Array = np.ndarray[Any, Any]


def check_metadata(metadata: Array, fmt: Sparse, shape: Sequence[int], axis: Sequence[int]) -> str | None:
    """Return what is wrong with the positions of an array, or None.

    Parameters
    ----------
    metadata : ndarray of uint8, (rows, bytes)

    Returns
    -------
    str or None
        Positions of a block ascend and are below M; bits behind the last are 0.
    """
    runs, length = prod(shape[a] for a in axis[:-1]), shape[axis[-1]]
    nonzeros, bits = runs * fmt.stored_length(length), (fmt.m - 1).bit_length()
    if not metadata.size or not nonzeros:
        return None
    block = max(1, (1 << 20) // nonzeros)
    for first in range(0, len(metadata), block):
        part = metadata[first : first + block]
        positions = (
            unpack(part, bits, nonzeros).reshape(len(part), -1, fmt.n) if bits else np.zeros((1, 1, 1), np.uint8)
        )
        if np.any(positions[..., 1:] <= positions[..., :-1]) or np.any(positions >= fmt.m):
            return f"positions that do not ascend below {fmt.m}"
        if nonzeros * bits % 8 and np.any(part[:, -1] >> (nonzeros * bits % 8)):
            return "bits behind the last position"
    return None
