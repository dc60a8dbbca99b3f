"""SparseArray: the nonzeros of an N:M pattern, in the dtype that they had, and their indices.

Components are plain NumPy arrays over rows: ``values`` (rows, nonzeros) and ``metadata`` (rows, bytes), the indices in
their blocks, ceil(log2 M) bits each, bit 0 = lowest of byte 0. A block is M values along the last reduction axis; the
last block is padded with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..base import runtime
from ..base.errors import WrongType, WrongValue, refusals, shown
from ..base.float_env import converted, counts_subnormals
from ..base.texts import counted
from ..formats import Float, Sparse, has_pattern, parse_pattern
from .array_like import ArrayLike
from .bits import unpack
from .components import component_layout, values_of
from .dense import as_array, as_float_dtype, as_single, core_view, normalize_axes
from .layout import Entry, Plain
from .metadata import check_metadata
from .quantized import QuantizedArray
from .rows import row_blocks, rows_first

__all__ = ["SparseArray"]

_BLOCK = 1 << 20  # values at a time

Array = np.ndarray[Any, Any]


def pattern_of(text: object, name: str) -> tuple[int, int]:
    """Return (N, M) of a pattern's text.

    Parameters
    ----------
    text : str
    name : str
        What asks, for the sentence of an error.

    Returns
    -------
    (int, int)

    Raises
    ------
    TypeError
        No text.
    ValueError
        The text is not N:M with 1 <= N <= M <= 32.
    """
    if not isinstance(text, str):
        raise WrongType(f"{name}: pattern is {shown(text)}, expected a text such as '2:4'")
    pattern = parse_pattern(text)
    if pattern is None:
        raise WrongValue(f"{name}: pattern is {shown(text[:40])}, expected N:M with 1 <= N <= M <= 32, such as '2:4'")
    return pattern


class SparseArray(QuantizedArray):
    """An array that keeps N of every M values; all others are zero. Returned by `prune`.

    It multiplies, indexes, saves and compares like a `QuantizedArray`. ``hc.quantize(s, fmt)`` quantizes the nonzeros.

    Attributes
    ----------
    n, m : int
        N of every M values are kept.
    mask : ndarray of bool, `shape`
        True for nonzeros, without the padding of a run's last block.
    density : float
        ``n / m``.
    components : mapping of str to ndarray
        ``values`` (rows, nonzeros), float16, bfloat16 or float32, and ``metadata`` uint8 (rows, bytes): the stored
        arrays, not copies.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> s = hc.prune(np.float32([[1, -4, 3, 2, 0, 0, 5, 0]]), "2:4")
    >>> s.components["values"], s.nbytes, s.bits_per_value
    (array([[-4.,  3.,  0.,  5.]], dtype=float32), 17, 17.0)
    >>> s.to_dense()
    array([[ 0., -4.,  3.,  0.,  0.,  0.,  5.,  0.]], dtype=float32)
    """

    __slots__ = ()

    def __init__(
        self,
        components: Mapping[str, Array],
        format: Sparse,
        shape: Sequence[int],
        axis: Sequence[int],
        source_dtype: str = "float32",
    ) -> None:
        if not has_pattern(format) or not format.is_plain:
            raise WrongType(
                f"SparseArray: format is {shown(format)}, expected a pattern alone, such as hc.format('2:4')"
            )
        super().__init__(components, format, shape, axis, source_dtype)

    @classmethod
    def _described(
        cls,
        text: str,
        shape: tuple[int, ...],
        axis: tuple[int, ...],
        dtype: str,
        stored: Callable[[str], Plain],
    ) -> Entry | None:
        return super()._described(text, shape, axis, dtype, stored) if parse_pattern(text) else None

    @property
    def n(self) -> int:
        return self._format.n  # type: ignore[attr-defined, no-any-return]

    @property
    def m(self) -> int:
        return self._format.m  # type: ignore[attr-defined, no-any-return]

    @property
    @counts_subnormals
    def density(self) -> float:
        return self.n / self.m

    @property
    @counts_subnormals
    def mask(self) -> Array:
        is_sliced = 0 not in self._axis and self.size
        step = max(_BLOCK * len(self) // self.size, 1) if is_sliced else max(len(self), 1)
        kept: Array = np.empty(self._shape, np.bool_)
        for first in range(0, len(self), step):
            part = self[first : first + step] if is_sliced else self
            ones = np.ones_like(part._components["values"])
            every = part._remade({**part._components, "values": ones}, part._shape, part._axis)
            np.not_equal(every.to_dense(), 0, out=kept[first : first + step])
        return kept

    def to_dense(self, dtype: object = np.float32) -> Array:
        """Return all values, with zeros where none is stored.

        Parameters
        ----------
        dtype : dtype, default float32

        Returns
        -------
        ndarray of `shape`
        """
        return self.dequantize(dtype)

    def positions(self) -> Array:
        """Return the index of each nonzero in its block.

        Returns
        -------
        ndarray of uint8, (rows, nonzeros)
        """
        values, metadata = self._components["values"], self._components["metadata"]
        if self.m == 1:
            return np.zeros(values.shape, np.uint8)
        return unpack(metadata, (self.m - 1).bit_length(), values.shape[1])

    @classmethod
    def from_mask(cls, w: ArrayLike, mask: ArrayLike, pattern: str, axis: int | tuple[int, ...] = -1) -> SparseArray:
        """Keep the values that a mask selects.

        Parameters
        ----------
        w : array_like
            Floats.
        mask : array_like of bool, of w's shape
            At most N of every M along the last axis named. Blocks with fewer are filled with zeros.
        pattern : str
            N:M, such as ``"2:4"``.
        axis : int or tuple of int
            As in `prune`.

        Returns
        -------
        SparseArray

        Raises
        ------
        ValueError
            A block of the mask keeps more than N (the message names its row and number), or the shapes differ.

        Examples
        --------
        >>> import numpy as np, heterocompute as hc
        >>> s = hc.SparseArray.from_mask(np.float32([1, 2, 3, 4]), [True, False, False, True], "2:4")
        >>> s.to_dense()
        array([1., 0., 0., 4.], dtype=float32)
        """
        return cls._masked(w, mask, pattern, axis, ("from_mask", "w", "mask"))

    @classmethod
    @counts_subnormals
    def _masked(
        cls, w: object, mask: object, pattern: object, axis: object, names: tuple[str, str, str]
    ) -> SparseArray:
        """Do what `from_mask` does; `names` are those of the function and of its w and mask, for errors."""
        name, values_name, mask_name = names
        n, m = pattern_of(pattern, name)
        values = as_array(w, f"{name}: {values_name}")
        kept = _plain(mask, f"{name}: {mask_name}", "an array of bool")
        if kept.dtype != np.bool_:
            raise WrongType(f"{name}: {mask_name} has dtype {kept.dtype}, expected bool")
        if kept.shape != values.shape:
            raise WrongValue(f"{name}: {mask_name} has shape {kept.shape} and {values_name} has shape {values.shape}")
        axes = normalize_axes(axis, values.ndim, name)
        others = [a for a in range(values.ndim) if a not in axes]
        length = values.shape[axes[-1]]
        rows = kept.transpose([*others, *axes]).reshape(
            prod(values.shape[a] for a in others), prod(values.shape[a] for a in axes[:-1]), length
        )
        padded = np.zeros((*rows.shape[:2], -(-length // m) * m), np.bool_)
        padded[..., :length] = rows
        counts = padded.reshape(rows.shape[0], -1, m).sum(axis=-1) if padded.size else np.zeros((0, 1), int)
        if np.any(counts > n):
            row, group = (int(i) for i in np.argwhere(counts > n)[0])
            raise WrongValue(
                f"{name}: row {row}, group {group} of {mask_name} keeps "
                f"{counted(int(counts[row, group]), 'value')} of {m}, "
                f"{pattern} keeps {n}"
            )
        exact = values if values.dtype.itemsize == 2 else as_single(values, f"{name}: {values_name}")
        return choose(
            np.where(kept, exact, exact.dtype.type(0)), kept.astype(np.float32), n, m, axes, name, values.dtype.name
        )

    @counts_subnormals
    def to_semi_structured(self, dtype: object = None) -> tuple[Array, Array]:
        """Return nonzeros and metadata in the layout of torch's CUTLASS backend for 2:4.

        Parameters
        ----------
        dtype : dtype, optional
            float16 or bfloat16 of ml_dtypes. Default: the dtype of float16 and bfloat16 values, float16 for float32
            values. Values are rounded once.

        Returns
        -------
        values : ndarray of `dtype`, (rows, columns / 2)
        metadata : ndarray of int16, (rows, columns / 16)

        Raises
        ------
        ValueError
            The pattern is not 2:4, the array is not two-dimensional with the last axis reduced, 32 does not divide the
            rows and columns, or a value is too large for the dtype.

        Notes
        -----
        An int16 holds the indices of four 2:4 blocks, 4 bits each. Rows and columns of int16 are then reordered as in
        ``torch.sparse._semi_structured_conversions`` (CUTLASS's ``reorder_meta``).

        Examples
        --------
        >>> import numpy as np, heterocompute as hc
        >>> values, metadata = hc.prune(np.ones((32, 32), np.float32), "2:4").to_semi_structured()
        >>> values.shape, metadata.shape, hex(metadata[0, 0])
        ((32, 16), (32, 2), '0x4444')
        """
        if (self.n, self.m) != (2, 4):
            raise WrongValue(f"to_semi_structured: the pattern is {self.n}:{self.m}, expected 2:4")
        if self.ndim != 2 or self._axis != (1,) or self._shape[0] % 32 or self._shape[1] % 32:
            raise WrongValue(
                f"to_semi_structured: shape {self._shape} pruned along {self._axis}, expected (32 i, 32 j) along (1,)"
            )
        kept = self._components["values"]
        own = kept.dtype if kept.dtype.itemsize == 2 else np.float16
        wanted = as_float_dtype(own if dtype is None else dtype, "to_semi_structured")
        if wanted.name not in ("float16", "bfloat16"):
            raise WrongValue(f"to_semi_structured: dtype is {wanted}, expected float16 or bfloat16")
        with np.errstate(over="ignore"):
            values = converted(kept, wanted)
        lost = np.isfinite(kept) & ~np.isfinite(values)
        if lost.any():
            largest = float(kept[lost].astype(np.float64)[0])
            more = ", pass dtype=ml_dtypes.bfloat16" if wanted.name == "float16" and abs(largest) < 3.38e38 else ""
            raise WrongValue(f"to_semi_structured: a value is {largest:.6g}, which is too large for {wanted}{more}")
        plain = np.ascontiguousarray(self._components["metadata"]).view("<i2").astype(np.int16, copy=False)
        reordered = np.empty(plain.size, np.int16)
        reordered[_reordered_places(*plain.shape)] = plain.reshape(-1)
        return values, reordered.reshape(plain.shape)

    @classmethod
    @counts_subnormals
    def from_semi_structured(cls, values: ArrayLike, metadata: ArrayLike) -> SparseArray:
        """Build an array from `to_semi_structured` or torch's ``sparse_semi_structured_from_dense_cutlass``.

        Parameters
        ----------
        values : array_like of float16 or bfloat16, (rows, columns / 2)
        metadata : array_like of int16, (rows, columns / 16)

        Returns
        -------
        SparseArray
            Dtype of the values.

        Raises
        ------
        ValueError
            The shapes do not match, or the indices do not ascend.

        Examples
        --------
        >>> import numpy as np, heterocompute as hc
        >>> s = hc.prune(np.ones((32, 32), np.float16), "2:4")
        >>> hc.SparseArray.from_semi_structured(*s.to_semi_structured()) == s
        True
        """
        kept = as_array(values, "from_semi_structured: values")
        words = _plain(metadata, "from_semi_structured: metadata", "an array of int16")
        if words.dtype != np.int16:
            raise WrongType(f"from_semi_structured: metadata has dtype {words.dtype}, expected int16")
        if kept.ndim != 2 or kept.shape[0] % 32 or kept.shape[1] % 16 or words.shape != (len(kept), kept.shape[1] // 8):
            raise WrongValue(
                f"from_semi_structured: values have shape {kept.shape} and metadata {words.shape}, expected "
                "(32 i, 16 j) and (32 i, 2 j)"
            )
        plain = words.reshape(-1)[_reordered_places(*words.shape)].astype("<i2").view(np.uint8)
        fmt = Sparse(Float("fp32"), 2, 4)
        shape = (len(kept), 2 * kept.shape[1])
        codes: Array = plain.reshape(len(kept), kept.shape[1] // 4)
        exact = kept if kept.dtype.itemsize == 2 else as_single(kept, "from_semi_structured: values")
        parts: dict[str, Array] = {"values": np.array(exact), "metadata": codes}
        problem = check_metadata(parts["metadata"], fmt, shape, (1,))
        if problem:
            raise WrongValue(f"from_semi_structured: metadata has {problem}")
        return cls(parts, fmt, shape, (1,), kept.dtype.name)

    @counts_subnormals
    def to_scipy(self, layout: str = "csr") -> Any:
        """Return the stored values as a SciPy matrix, including stored zeros.

        Parameters
        ----------
        layout : {"csr", "csc"}

        Returns
        -------
        scipy.sparse.csr_array or csc_array of float32

        Raises
        ------
        ImportError
            SciPy is not installed.
        ValueError
            The array is not two-dimensional, or the layout is unknown.

        Examples
        --------
        >>> import numpy as np, heterocompute as hc
        >>> hc.prune(np.float32([[1, -4, 3, 2]]), "2:4").to_scipy().indices.tolist()
        [1, 2]
        """
        if not isinstance(layout, str) or layout not in ("csr", "csc"):
            raise WrongValue(f"to_scipy: layout is {shown(layout)}, expected 'csr' or 'csc'")
        import scipy.sparse  # optional

        if self.ndim != 2:
            raise WrongValue(f"to_scipy: expected two dimensions, got shape {self._shape}")
        coordinates = np.nonzero(self.mask)
        matrix = scipy.sparse.coo_array((self.to_dense()[coordinates], coordinates), shape=self._shape)
        return matrix.tocsr() if layout == "csr" else matrix.tocsc()

    @classmethod
    @counts_subnormals
    def from_scipy(cls, matrix: Any, pattern: str, axis: int = -1) -> SparseArray:
        """Keep the values that a sparse SciPy matrix stores.

        Parameters
        ----------
        matrix : scipy.sparse array or matrix
            At most N stored values of every M along the axis.
        pattern : str
            N:M, such as ``"2:4"``.
        axis : int

        Returns
        -------
        SparseArray

        Raises
        ------
        TypeError
            matrix is not a sparse matrix, or does not hold floats.
        ValueError
            A block has more than N stored values; the message names its row and number.

        Examples
        --------
        >>> import numpy as np, heterocompute as hc
        >>> s = hc.prune(np.float32([[1, -4, 3, 2]]), "2:4")
        >>> hc.SparseArray.from_scipy(s.to_scipy(), "2:4") == s
        True
        """
        if not hasattr(matrix, "tocoo"):
            raise WrongType(f"from_scipy: matrix is {shown(matrix)}, expected a sparse matrix of SciPy")
        if len(matrix.shape) != 2:
            raise WrongValue(f"from_scipy: matrix has shape {matrix.shape}, expected two dimensions")
        stored = matrix.tocsr(copy=True)
        stored.sum_duplicates()
        stored = stored.tocoo()
        dense = np.zeros(matrix.shape, stored.data.dtype)
        mask = np.zeros(matrix.shape, np.bool_)
        dense[stored.row, stored.col] = stored.data
        mask[stored.row, stored.col] = True
        return cls._masked(dense, mask, pattern, axis, ("from_scipy", "matrix", "matrix"))


def _plain(value: object, name: str, wanted: str) -> Array:
    try:
        return np.asarray(value)
    except (TypeError, ValueError):  # rows of different lengths
        raise WrongType(f"{name} is {shown(value)}, expected {wanted}") from None


def _reordered_places(rows: int, columns: int) -> Array:
    """Return the new position of each int16 of plain metadata; positions count elements in C order."""
    row, column = np.indices((rows, columns))
    row = row // 32 * 32 + row % 8 * 4 + row % 32 // 8
    up = (row % 2 == 0) & (column % 2 == 1)  # the two off-diagonal values of a 2 x 2 block are exchanged
    down = (row % 2 == 1) & (column % 2 == 0)
    step = up.astype(np.int64) - down
    row, column = row + step, column - step
    indices: Array = (column // 2 * rows * 2 + row * 2 + column % 2).reshape(-1)
    return indices


def choose(
    w: Array, scores: Array | None, n: int, m: int, axes: tuple[int, ...], name: str, source_dtype: str = ""
) -> SparseArray:
    """Return the SparseArray of the values whose scores are largest.

    Parameters
    ----------
    w, scores : ndarray
        Floats of one shape; None scores by magnitude.
    axes : tuple of int
        Not negative.
    name : str
        Of the function, for errors.
    source_dtype : str
        That of w where none is given.

    Raises
    ------
    ValueError
        A score is NaN.
    """
    fmt, values = Sparse(Float("fp32"), n, m), values_of(w.dtype.name)
    layout = component_layout(fmt, w.shape, axes, values)
    parts = {key: np.empty(shape, dtype) for key, (dtype, shape) in layout.items()}
    core_scores = None if scores is None else core_view(scores)
    with refusals(w=(f"{name}: w", w), scores=(f"{name}: scores", scores)):
        if values == "float32":
            _core.prune(runtime.run(), core_view(w), core_scores, n, m, axes, parts["values"], parts["metadata"])
        else:
            _choose_by_rows(core_view(w), core_scores, fmt, axes, w.dtype, parts)
    return SparseArray._trusted(parts, fmt, w.shape, axes, source_dtype or w.dtype.name)


def _choose_by_rows(
    w: Array, scores: Array | None, fmt: Sparse, axes: tuple[int, ...], dtype: object, parts: dict[str, Array]
) -> None:
    """Choose among 16-bit values in blocks of rows: the core returns 32 bits, in which they are exact."""
    turned, ranked = rows_first(w, axes), None if scores is None else rows_first(scores, axes)
    inner = tuple(range(1, len(axes) + 1))
    for some, index in row_blocks(w.shape, axes, _BLOCK):
        rank = None if ranked is None else ranked[index]
        values = np.empty((some.stop - some.start, parts["values"].shape[1]), np.float32)
        try:
            _core.prune(runtime.run(), turned[index], rank, fmt.n, fmt.m, inner, values, parts["metadata"][some])
        except ValueError:  # its message names an index of the block, not of the whole array
            values, metadata = np.empty(parts["values"].shape, np.float32), parts["metadata"]
            _core.prune(runtime.run(), w, scores, fmt.n, fmt.m, axes, values, metadata)
        parts["values"][some] = converted(values, dtype)
