"""Weight and Hessian of a layer, rotated for the rounding to a rotated format.

w' = w R, H' = R^T H R:   |w' x' - q' x'|^2 under H' is |w x - (q' R^T) x|^2 under H
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...arrays.dense import refuse_infinite
from ...arrays.rotated import FloatArray, rotate, signs
from ...formats import Rotated
from ..hessian import Hessian, as_matrices
from . import rotated_values

Array = np.ndarray[Any, Any]


def turned_layer(x: Array, h: Any, fmt: Rotated, axes: tuple[int, ...], name: str) -> tuple[FloatArray, Hessian]:
    """Return a checked weight rotated for a format, and the Hessian of the rotated inputs.

    The Hessian has all sums, but not the largest magnitudes.
    """
    refuse_infinite(x, f"{name}: w")
    values = rotate(x, axes[-1], fmt, f"{name}: w")
    columns, width = prod(x.shape[a] for a in axes), x.shape[axes[-1]]
    matrices = [matrix for _, matrix in as_matrices(h, columns, x.size // max(columns, 1), name)]
    block = fmt.block_of(width, name)
    flips = None if fmt.seed is None or not width else np.tile(signs(width, fmt.seed), columns // width)

    def along(matrix: Array) -> Array:
        found = np.array(matrix, np.float64, order="C")
        if flips is not None:
            found *= flips
        return rotated_values(found.reshape(-1, block), (), block, False).reshape(found.shape) if found.size else found

    def both(some: Any) -> Array:
        return np.ascontiguousarray(np.stack([along(along(matrix).T).T for matrix in some]))

    found = Hessian(columns, len(matrices))
    found._sum, found._mirrored = both(matrices), False
    if isinstance(h, Hessian):
        found._tokens = h._tokens.copy()
        if h._cross is not None:
            found._cross = both(h._cross)
        if h._unrounded is not None and h.unrounded is not None:
            found._unrounded = both(h.unrounded.reshape(h._unrounded.shape))
    return values, found
