"""The columns of a weight that an N:M format keeps, and their positions among the stored values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.sparse import SparseArray, choose
from ..formats import Sparse

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Pattern:
    """The columns that an array with N:M keeps, and how they are stored.

    Attributes
    ----------
    fmt : Sparse
    shape, axis
        Of the array; those of the grid are of the kept values, (rows, runs, kept values per run).
    block : ndarray of int32, (columns,)
        The block of each column.
    group : ndarray of int32, (kept columns,)
    mask : ndarray of uint8, (columns, rows)
        1 where a value is kept.
    """

    fmt: Sparse
    shape: tuple[int, ...]
    axis: tuple[int, ...]
    block: Array
    group: Array
    mask: Array

    def chosen(self, part: slice) -> SparseArray:
        """Return an array that is 1 at the values that some rows keep, (rows, runs, length)."""
        length = self.shape[self.axis[-1]]
        ones = self.mask[:, part].T.astype(np.float32).reshape(-1, len(self.mask) // max(length, 1), length)
        return choose(ones, ones, self.fmt.n, self.fmt.m, (1, 2), "grid")

    def places(self, positions: Array) -> tuple[Array, Array]:
        """Return the columns of the stored values, and whether each exists: the last block of a run may be short.

        Parameters
        ----------
        positions : ndarray of uint8, (rows, kept columns)

        Returns
        -------
        (ndarray of int64, ndarray of bool)
            (kept columns, rows); where there is no column, the number of columns.
        """
        length, count = self.shape[self.axis[-1]], len(self.group)
        blocks = -(-length // self.fmt.m)
        runs = count // max(blocks * self.fmt.n, 1)
        within = positions.reshape(-1, runs, blocks, self.fmt.n) + np.arange(blocks)[:, None] * self.fmt.m
        stands = within < length
        at = np.where(stands, within + np.arange(runs)[:, None, None] * length, runs * length)
        return at.reshape(-1, count).T, stands.reshape(-1, count).T
