"""An encoded array: its components, and the numbers for matmuls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .exact import float32
from .rows import Rows


@dataclass
class Encoded:
    """value = outer * (scale * units), with the factors of the format; `scale * units` of integers is exact.

    `units` are the values of the codes, (rows, groups, size) float64: q, q - z, elements, levels, T_e, centroids.
    """

    rows: Rows
    components: dict[str, np.ndarray]
    units: np.ndarray
    scale: np.ndarray | None = None  # (rows, groups) float64, a multiplier of each group
    outer: np.ndarray | None = None  # (rows,) float64, a multiplier of each row
    grouped: bool = False  # the format has groups, even if there is one in a row
    integers: bool = False  # Int, VSQ and elements of few bits: products are exact, or exact within a group
    places: int = 1  # factor that makes units integers; scales are divided by it, in float32
    code_bits: int = 0  # bits of codes that may be NaN
    signed_zeros: bool = False  # floats and logs keep minus zero
    huge: bool = False  # units are scaled, and sums of them times x may be beyond float32
    pattern: tuple[int, int] | None = None
    dense: Rows | None = None  # with a pattern: rows of the caller's array
    kept: np.ndarray | None = None  # storage index of each element; past the end of the row: not stored

    @property
    def free_codes(self) -> np.ndarray:
        """Return the elements whose code the definition leaves open: any NaN is valid."""
        return np.isnan(self.units)

    def values(self) -> np.ndarray:
        """Return unrounded values, (rows, groups, size)."""
        values = self.units
        if self.scale is not None:
            values = self.scale[:, :, None] * values
        if self.outer is not None:
            values = self.outer[:, None, None] * values
        return values

    def _dense(self, groups) -> np.ndarray:
        flat = self.rows.flat(groups)
        if self.kept is None:
            return flat
        padded = np.concatenate([flat, np.zeros((flat.shape[0], 1), flat.dtype)], axis=1)
        return np.take_along_axis(padded, self.kept, axis=1)

    def matrix(self, what: str = "values") -> np.ndarray:
        """Return (rows, dense length) in the order of reduction: 'values', 'units', or the 'scale' of each element."""
        if what == "values":
            return self._dense(self.values())
        if what == "units":
            return self._dense(self.units)
        return self._dense(np.broadcast_to(self.scale[:, :, None], self.units.shape))

    def _array(self, matrix) -> np.ndarray:
        """Return (rows, dense length) as the caller's array."""
        rows = self.dense or self.rows
        order = rows.others + rows.axis
        return np.transpose(matrix.reshape([rows.shape[a] for a in order]), np.argsort(order))

    def mask(self) -> np.ndarray:
        """Return the mask of the nonzeros of a pattern."""
        return self._array(self.kept < self.rows.length)

    def decoded(self, dtype=np.float32) -> np.ndarray:
        """Return (rows, dense length): the values, rounded once."""
        matrix = self.matrix() if dtype == np.float64 else float32(self.matrix())
        return matrix if self.signed_zeros else matrix + dtype(0)

    def dequantize(self, dtype=np.float32) -> np.ndarray:
        return self._array(self.decoded(dtype))
