"""EIE's storage of pruned weights: one byte per nonzero, interleaved over processing elements.

Han et al., "EIE: Efficient Inference Engine on Compressed Deep Neural Network", ISCA 2016 (arXiv 1602.01528).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np

from .. import _heterocompute as _core
from ..base import runtime
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import converted, counts_subnormals
from ..base.texts import counted
from ..base.values import as_int
from .array_like import ArrayLike
from .base import PackedArray
from .dense import as_array, as_float_dtype, as_single, normalize_axes, refuse_infinite
from .eie_load import EIELoad
from .layout import Entry, Plain
from .stored import check_source

__all__ = ["EIEArray", "EIELoad", "encode_eie"]

Array = np.ndarray[Any, Any]

CODES = 16  # of the codebook, including the one for zero
MOST_ELEMENTS = 4096  # or the number of rows, if that is larger
_TEXT = re.compile(r"eie-p([1-9][0-9]{0,8})")  # the format string of EIE in a file
_BLOCK = 1 << 20  # entries looked at a time
COMPONENTS = {"codebook": (np.float32, 1), "pointers": (np.uint32, 2), "entries": (np.uint8, 1)}


class EIEArray(PackedArray):
    """A matrix in EIE's storage. Returned by `encode_eie`.

    ``hc.linear(x, e)``, ``hc.matmul(e, b)``, ``x @ e.T`` and ``e @ b`` multiply it. `save` and `heterocompute.load`
    write and read it. It is immutable. ``==`` returns one bool: equal shape, axis and bytes.

    Parameters
    ----------
    components : mapping of str to ndarray
        - ``codebook``: float32 (16,). Entry 0 is 0.
        - ``pointers``: uint32 (elements, columns + 1), the index of each column's first entry among the entries of its
          element.
        - ``entries``: uint8, element by element. The low 4 bits are the codebook index of the value. The high 4 bits
          are the number of zero rows of the element that are skipped before it. Runs above 15 use padding entries
          with value zero and run 15.
    shape : (int, int)
        Rows and columns. Row i belongs to element ``i % elements``.
    axis : (int,), default (1,)
        The reduction axis: 1, or 0 for a transposed matrix, whose columns are the rows of the components.

    Attributes
    ----------
    shape, ndim, size, dtype, axis
        Of the matrix; dtype is float32.
    components : mapping of str to ndarray
        The stored arrays, read-only.
    device : str
        Device of the components: ``"cpu"``.
    elements : int
        Number of processing elements over which rows are interleaved.
    nbytes : int
        Bytes of all components.
    bits_per_value : float
        ``8 * nbytes / size``.
    nnz, padding : int
        Number of entries with a value, and of padding entries.
    density : float
        ``nnz / size``.
    mask : ndarray of bool, `shape`
        True for stored values.
    T : EIEArray
        The transposed matrix, which shares the components.

    Raises
    ------
    TypeError, ValueError
        A component has the wrong type, or the components do not match each other and the shape.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> column = np.zeros((23, 1), np.float32)
    >>> column[[2, 3, 22], 0] = 1, 2, 3
    >>> e = hc.encode_eie(column, elements=1)
    >>> e.values().tolist(), e.runs().tolist(), e.padding
    ([1.0, 2.0, 0.0, 3.0], [2, 0, 15, 2], 1)
    >>> bool((e.to_dense() == column).all())
    True
    """

    __slots__ = ("_rows",)

    _rows: tuple[Array, Array, Array]

    _decoder = "to_dense()"

    @counts_subnormals
    def __init__(self, components: Mapping[str, Array], shape: Sequence[int], axis: Sequence[int] = (1,)) -> None:
        if not isinstance(components, Mapping) or set(components) != set(COMPONENTS):
            raise WrongType(f"EIEArray: components are {shown(components)}, expected {', '.join(COMPONENTS)}")
        self._axis = normalize_axes(axis, 2, "EIEArray")
        if len(self._axis) != 1:
            raise WrongValue(f"EIEArray: axis is {shown(axis)}, expected (1,) or (0,)")
        try:
            first, second = (as_int(n, "EIEArray: shape", 0, 2**62) for n in shape)
        except (TypeError, ValueError, NotImplementedError):
            raise WrongValue(f"EIEArray: shape is {shown(shape)}, expected (rows, columns)") from None
        self._shape = (first, second)
        rows, columns = self._stored_shape
        self._components = {name: _frozen(components[name], name) for name in COMPONENTS}
        pointers, codebook = self._components["pointers"], self._components["codebook"]
        if pointers.shape[1] != columns + 1:
            raise WrongValue(f"EIEArray: pointers have shape {pointers.shape}, expected (elements, {columns + 1})")
        if codebook.shape != (CODES,):
            raise WrongValue(f"EIEArray: codebook has shape {codebook.shape}, expected ({CODES},)")
        _core.eie_check(self._packed())
        if np.any(codebook[2:] < codebook[1:-1]):
            numbers = ", ".join(f"{value:.4g}" for value in codebook)
            raise WrongValue(f"EIEArray: codebook is {numbers}, expected 0 and then 15 numbers that ascend")

    @property
    def _stored_shape(self) -> tuple[int, int]:
        first, second = self._shape
        return (first, second) if self._axis == (1,) else (second, first)

    def _packed(self) -> tuple[Any, ...]:
        return (*self._stored_shape, *self._components.values())

    def _stored_rows(self) -> tuple[Array, Array, Array]:
        """Return starts, indices and values of compressed rows, which are kept from the first product on."""
        rows = getattr(self, "_rows", None)
        if rows is None:
            starts, indices, values = (
                np.frombuffer(part.tobytes(), part.dtype) for part in _core.eie_expand(runtime.run(), self._packed())
            )
            rows = self._rows = starts, indices, values
        return rows

    @property
    def elements(self) -> int:
        return int(self._components["pointers"].shape[0])

    @property
    def nnz(self) -> int:
        return int(self._components["entries"].size) - self.padding

    @property
    def padding(self) -> int:
        return int(np.count_nonzero((self._components["entries"] & 15) == 0))

    @property
    @counts_subnormals
    def density(self) -> float:
        return self.nnz / max(self.size, 1)

    @property
    @counts_subnormals
    def mask(self) -> Array:
        ones = np.zeros(CODES, np.float32)
        ones[1:] = 1
        kept: Array = self._decoded({**self._components, "codebook": ones}) != 0
        return kept

    @property
    def T(self) -> EIEArray:  # noqa: N802 (NumPy's name)
        """Return the transposed matrix, which shares the components."""
        return self._transposed()

    @counts_subnormals
    def values(self) -> Array:
        """Return the value of each entry.

        Returns
        -------
        ndarray of float32
        """
        found: Array = self._components["codebook"][self._components["entries"] & 15]
        return found

    def runs(self) -> Array:
        """Return the number of zeros before each entry.

        Returns
        -------
        ndarray of uint8
        """
        found: Array = self._components["entries"] >> 4
        return found

    def to_dense(self, dtype: object = np.float32) -> Array:
        """Return all values.

        Parameters
        ----------
        dtype : dtype, default float32
            Other float types are converted from float32.

        Returns
        -------
        ndarray of `shape`
        """
        wanted = as_float_dtype(dtype, "to_dense")
        return converted(self._decoded(self._components), wanted)

    def _decoded(self, components: Mapping[str, Array]) -> Array:
        out = np.empty(self._stored_shape, np.float32)
        _core.eie_decode(runtime.run(), (*self._stored_shape, *components.values()), out)
        return out if self._axis == (1,) else out.T

    @counts_subnormals
    def to_scipy(self, layout: str = "csr") -> Any:
        """Return the stored values as a SciPy matrix, without padding entries.

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
            layout is neither of these.

        Examples
        --------
        >>> import numpy as np, heterocompute as hc
        >>> hc.encode_eie(np.float32([[0, 5], [7, 0]])).to_scipy().indices.tolist()
        [1, 0]
        """
        if not isinstance(layout, str) or layout not in ("csr", "csc"):
            raise WrongValue(f"to_scipy: layout is {shown(layout)}, expected 'csr' or 'csc'")
        import scipy.sparse  # optional

        starts, indices, values = _core.eie_expand(runtime.run(), self._packed())
        rows = scipy.sparse.csr_array((values, indices, starts), shape=self._stored_shape)
        matrix = rows if self._axis == (1,) else rows.T
        return matrix.tocsr() if layout == "csr" else matrix.tocsc()

    @counts_subnormals
    def load_balance(self, x: ArrayLike | None = None, depth: int = 8) -> EIELoad:
        """Count the cycles that EIE's processing elements need for one matrix-vector product.

        Parameters
        ----------
        x : array_like, shape (columns,), optional
            The activations. Zeros are not broadcast. Default: no zeros.
        depth : int, default 8
            Capacity of an element's queue, including the activation in progress.

        Returns
        -------
        EIELoad

        Raises
        ------
        TypeError
            x is not a float array, or depth is not an int.
        ValueError
            x has another shape, depth is below 1, or the matrix is transposed.

        Notes
        -----
        Section 4 of the paper: each cycle, the next nonzero activation is sent to the queues of all elements, unless a
        queue is full. Each cycle, an element processes one entry in the column of the activation at the head of its
        queue. A column without entries takes one cycle. The paper's figure 8 plots `efficiency` against `depth`.

        Examples
        --------
        >>> import numpy as np, heterocompute as hc
        >>> w = np.random.default_rng(0).random((64, 100)) < 0.1
        >>> e = hc.encode_eie(w.astype(np.float32), elements=8)
        >>> [round(e.load_balance(depth=depth).efficiency, 2) for depth in (1, 2, 8, 64)]
        [0.26, 0.47, 0.64, 0.64]
        """
        if self._axis != (1,):
            raise WrongValue("load_balance: this matrix is transposed; call load_balance of its .T")
        activations = None
        if x is not None:
            given = as_array(x, "load_balance: x")
            if given.shape != self._shape[1:]:
                raise WrongValue(f"load_balance: x has shape {given.shape}, expected {self._shape[1:]}")
            with np.errstate(over="ignore"):  # only whether these values are zero matters
                activations = np.ascontiguousarray(given, np.float32)
        deep = as_int(depth, "load_balance: depth", 1)
        busy = np.empty(self.elements, np.int64)
        cycles, broadcasts, stalls, padding = _core.eie_load(self._packed(), activations, min(deep, 2**62), busy)
        return EIELoad(cycles, broadcasts, stalls, busy, padding)

    def __getitem__(self, index: object) -> NoReturn:
        raise WrongValue("rows of an EIEArray are interleaved; call to_dense() to index the values")

    def __deepcopy__(self, memo: object) -> EIEArray:
        return self.__copy__()  # nothing can change its components

    def _values(self) -> Array:
        return self.to_dense()

    def _occurring(self) -> Iterator[Array]:
        codes, entries = self._components["codebook"], self._components["entries"]
        used = np.zeros(codes.shape, bool)  # there are 16 values, for every size of the matrix
        for first in range(0, entries.size, _BLOCK):
            used[entries[first : first + _BLOCK] & 15] = True
        used[0] = self.nnz < self.size
        yield codes[used]

    def _kind(self) -> object:
        return "eie"

    def _arguments(self) -> tuple[Any, ...]:
        return self._components, self._shape, self._axis

    def _entry(self) -> Entry:
        return self._entry_of(self.elements, self._shape, self._axis, "float32", self._components["entries"].shape)

    @classmethod
    def _entry_of(
        cls, elements: int, shape: tuple[int, ...], axis: tuple[int, ...], dtype: str, entries: tuple[int, ...]
    ) -> Entry:
        parts = {
            "codebook": ("float32", (CODES,)),
            "pointers": ("uint32", (elements, shape[axis[0]] + 1)),
            "entries": ("uint8", entries),
        }
        return Entry(f"eie-p{elements}", shape, axis, dtype, parts, cls)

    @classmethod
    def _described(
        cls,
        text: str,
        shape: tuple[int, ...],
        axis: tuple[int, ...],
        dtype: str,
        stored: Callable[[str], Plain],
    ) -> Entry | None:
        match = _TEXT.fullmatch(text)
        if match is None:
            return None
        check_source(shape, axis, dtype)
        if len(shape) != 2 or len(axis) != 1:
            raise WrongValue(f"{text} has two dimensions and one axis, not {shown(list(shape))} and {list(axis)}")
        return cls._entry_of(int(match[1]), shape, axis, dtype, (prod(stored("entries")[1]),))

    @classmethod
    def _restored(cls, entry: Entry, parts: Mapping[str, Array]) -> EIEArray:
        return cls(parts, entry.shape, entry.axis)

    def _facts(self) -> dict[str, str]:
        return {
            "shape": str(self._shape),
            "axis": str(self._axis),
            "elements": str(self.elements),
            "density": f"{self.density:.3g}",
            "entries that pad": f"{self.padding:,}",
            "bytes": f"{self.nbytes:,}",
            "bits per value": f"{self.bits_per_value:.3f}",
        }

    @counts_subnormals
    def __repr__(self) -> str:
        return (
            f"EIEArray(shape={self._shape}, axis={self._axis}, elements={self.elements}, density={self.density:.3g}, "
            f"padding={self.padding}, {counted(self.nbytes, 'byte')})"
        )


def _frozen(part: object, name: str) -> Array:
    """Return a read-only component."""
    dtype, ndim = COMPONENTS[name]
    if not isinstance(part, np.ndarray) or part.dtype != dtype or part.ndim != ndim:
        found = (
            (f"{part.dtype} of {counted(part.ndim, 'dimension')}")
            if isinstance(part, np.ndarray)
            else type(part).__name__
        )
        raise WrongType(f"EIEArray: {name} is {found}, expected {np.dtype(dtype)} of {ndim}")
    frozen: Array = np.frombuffer(part.tobytes(), dtype).reshape(part.shape)  # bytes: no flag makes them writeable
    return frozen


@counts_subnormals
def encode_eie(w: ArrayLike, codebook: ArrayLike | None = None, elements: int = 4) -> EIEArray:
    """Encode a matrix in EIE's storage: column by column, one byte per nonzero.

    Parameters
    ----------
    w : array_like, shape (rows, columns)
        Floats; -0.0 counts as zero. float64 is rounded to float32 first.
    codebook : array_like, shape (16,), optional
        Entry 0 is 0 and codes the padding zeros. Entries 1 to 15 ascend and are finite. A nonzero becomes the nearest
        of these 15, the lower one on a tie. Default: the 15 centroids with the least squared error of the nonzeros
        (optimal k-means). Up to 15 different values are therefore stored exactly.
    elements : int, default 4
        Number of processing elements, 1 to the larger of 4096 and the number of rows. Row i belongs to element
        ``i % elements``. Runs of zeros are counted in an element's own rows of a column. Elements beyond the rows of w
        stay idle.

    Returns
    -------
    EIEArray

    Raises
    ------
    TypeError
        w or codebook is not a float array, or elements is not an int.
    ValueError
        w is not a matrix or holds a NaN or an infinity, the codebook has another shape or order, or elements is out of
        range.

    Notes
    -----
    Han et al., "EIE", ISCA 2016 (arXiv 1602.01528), section 3.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> w = np.float32([[0, 5, 0], [0, 0, 0], [7, 0, 0], [0, 0, -5]])
    >>> e = hc.encode_eie(w, elements=2)
    >>> e.components["entries"].size, bool((e.to_dense() == w).all())
    (3, True)
    >>> hc.linear(np.float32([1, 0, 2]), e)
    array([  0.,   0.,   7., -10.], dtype=float32)
    """
    given = as_array(w, "encode_eie: w")
    if given.ndim != 2:
        raise WrongValue(f"encode_eie: w has shape {given.shape}, expected (rows, columns)")
    rows, columns = given.shape
    count = as_int(elements, "encode_eie: elements", 1, max(rows, MOST_ELEMENTS))
    refuse_infinite(given, "encode_eie: w")
    values = np.ascontiguousarray(as_single(given, "encode_eie: w"))
    table = _learned(values) if codebook is None else _given(codebook)
    run = runtime.run()
    pointers = np.empty((count, columns + 1), np.uint32)
    entries = np.empty(_core.eie_count(run, values, pointers), np.uint8)
    _core.eie_encode(run, values, (rows, columns, table, pointers, entries))
    return EIEArray({"codebook": table, "pointers": pointers, "entries": entries}, (rows, columns))


def _learned(values: Array) -> Array:
    table = np.zeros(CODES, np.float32)
    _core.eie_codebook(values[values != 0], table)
    return table


def _given(codebook: object) -> Array:
    table = as_array(codebook, "encode_eie: codebook")
    if table.shape != (CODES,):
        raise WrongValue(f"encode_eie: codebook has shape {table.shape}, expected ({CODES},), number 0 for the zeros")
    with np.errstate(over="ignore"):
        single = table.astype(np.float32, order="C")
    if single[0] != 0 or not np.isfinite(single).all() or np.any(single[2:] < single[1:-1]):
        numbers = ", ".join(f"{value:.4g}" for value in single)
        raise WrongValue(f"encode_eie: codebook is {numbers}, expected 0 and then 15 finite numbers that ascend")
    return single
