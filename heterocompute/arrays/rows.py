"""The rows of an array, some at a time: a row is one index of the axes that are not reduced, in C order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def rows_first(x: Array, axis: Sequence[int]) -> Array:
    """Return a view with the axes in the order of rows: the reduction axes last, as they are named.

    Parameters
    ----------
    axis : sequence of int
        Not negative.
    """
    return x.transpose(*(a for a in range(x.ndim) if a not in axis), *axis)


def row_blocks(shape: Sequence[int], axis: Sequence[int], values: int) -> Iterator[tuple[slice, Any]]:
    """Yield blocks of rows of about `values` values: which they are, and their index in the view of `rows_first`.

    Yields
    ------
    slice, index
        The index gives an array of (rows, reduction axes), to read or to assign.

    Examples
    --------
    >>> x = np.arange(24).reshape(2, 3, 4)
    >>> [rows_first(x, (0,))[index].shape for _, index in row_blocks(x.shape, (0,), 8)]
    [(4, 2), (4, 2), (4, 2)]
    """
    lead = [shape[a] for a in range(len(shape)) if a not in axis]
    rows, size = prod(lead), prod(shape)
    step = max(values * rows // max(size, 1), 1)
    for first in range(0, rows if size else 0, step):
        some = slice(first, min(first + step, rows))
        if len(lead) == 1:
            yield some, some
        elif not lead:
            yield some, np.newaxis
        else:
            yield some, np.unravel_index(np.arange(some.start, some.stop), lead)
