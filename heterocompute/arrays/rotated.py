"""RotatedArray: a quantized array whose values were rotated in blocks before they were rounded.

stored    q = round(w S M),   S: signs of a seed or none, M: Sylvester's matrix of each block, +-1 / sqrt(block)
values    q M S, since M M = I
product   x w^T = (x S M) q^T without rounding of q
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..base import runtime
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import converted, counts_subnormals
from ..base.texts import counted
from ..formats import Rotated, format as parse_format
from ..formats.rotated import is_rotated
from .base import PackedArray
from .components import entry_of
from .dense import as_float_dtype
from .layout import Entry, Plain
from .quantized import QuantizedArray
from .stored import check_source, wrong_part

__all__ = ["RotatedArray"]

Array = np.ndarray[Any, Any]
FloatArray = np.ndarray[Any, np.dtype[np.float32]]


def signs(size: int, seed: int) -> Array:
    """Return 1 or -1 for each index: a bit of splitmix64 of seed and index, the same everywhere."""
    with np.errstate(over="ignore"):
        z = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.where((z ^ (z >> np.uint64(31))) & np.uint64(1), -1.0, 1.0)


def turned(x: Any, block: int) -> FloatArray:
    """Rotate blocks of the last axis by Sylvester's matrix; a second call rotates back, except for float32 rounding."""
    found = np.array(x, np.float32, order="C")
    if found.size:
        _core.rotate_heads(runtime.run(), found.reshape(-1, block))
    return found


def rotate(x: Any, axis: int, fmt: Rotated, name: str, inverse: bool = False) -> FloatArray:
    """Return a float array, rotated in blocks along an axis, or rotated back.

    Parameters
    ----------
    x : ndarray
        Float64 is converted first.
    name : str
        What errors name.
    """
    size = x.shape[axis]
    block = fmt.block_of(size, name)
    with np.errstate(over="ignore"):  # to infinity, as in other products
        values = np.array(np.moveaxis(converted(x, np.float32), axis, -1), order="C")
    flips = None if fmt.seed is None else signs(size, fmt.seed).astype(np.float32)
    if flips is not None and not inverse:
        values *= flips
    if values.size:
        _core.rotate_heads(runtime.run(), values.reshape(*values.shape[:-1], size // block, block))
    if flips is not None and inverse:
        values *= flips
    return np.moveaxis(values, -1, axis)


class RotatedArray(PackedArray):
    """Hold an array whose blocks of values are rotated and then quantized. `quantize` to ``+had`` returns it.

    `matmul`, `linear` and `conv2d` rotate the other operand in the call, and then round it to `activations`. Functions
    that do not rotate refuse the array. ``==`` returns one bool.

    Parameters
    ----------
    source : QuantizedArray
        The rotated values.
    format : Rotated

    Attributes
    ----------
    shape, ndim, size, dtype, axis, nbytes, bits_per_value, components, device
        As of `QuantizedArray`.
    format : Rotated
    source : QuantizedArray
        The rotated values.
    block : int
        Values that are rotated together, along the last reduction axis.
    T : RotatedArray
        The transposed array of two dimensions, which shares the components.

    Raises
    ------
    TypeError, ValueError
        source or format is something else, they do not match, or the axis has no block.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> w = np.zeros((2, 64), np.float32)
    >>> w[:, 0] = 8  # an outlier
    >>> q = hc.quantize(w, "int4-g32+had")
    >>> q.block, q.nbytes == hc.quantize(w, "int4-g32").nbytes, np.abs(q.source.dequantize()).max()
    (64, True, np.float32(1.0))
    >>> hc.linear(np.ones(64, np.float32), q)
    array([8., 8.], dtype=float32)
    """

    __slots__ = ("_format", "_source")

    _format: Rotated
    _source: QuantizedArray
    _decoder = "dequantize()"

    def __init__(self, source: QuantizedArray, format: Rotated) -> None:
        if not isinstance(source, QuantizedArray):
            raise WrongType(f"RotatedArray: source is {shown(source)}, expected a QuantizedArray")
        if not is_rotated(format):
            raise WrongType(f"RotatedArray: format is {shown(format)}, expected a Rotated")
        if source.format != format.base:
            raise WrongValue(f"RotatedArray: source is {source.format}, expected {format.base} for {format}")
        format.block_of(source.shape[source.axis[-1]], "RotatedArray")
        self._source, self._format = source, format
        self._components, self._shape, self._axis = source._components, source.shape, source.axis

    @property
    def format(self) -> Rotated:
        return self._format

    @property
    def source(self) -> QuantizedArray:
        return self._source

    @property
    def source_dtype(self) -> str:
        return self._source.source_dtype

    @property
    def nbytes(self) -> int:
        return self._source.nbytes

    @property
    def block(self) -> int:
        return self._format.block_of(self._shape[self._axis[-1]], "block")

    @property
    def T(self) -> RotatedArray:  # noqa: N802 (NumPy's name)
        return self._transposed()

    def dequantize(self, dtype: object = np.float32) -> Array:
        """Return the decoded values, rotated back in float32.

        Parameters
        ----------
        dtype : dtype, default float32
            Other float types are converted from float32.

        Returns
        -------
        ndarray of `shape`
        """
        wanted = as_float_dtype(dtype, "dequantize")
        self._source._refuse_far("dequantize")
        values = rotate(self._source.dequantize(), self._axis[-1], self._format, "dequantize", inverse=True)
        return converted(np.ascontiguousarray(values), wanted)

    def rotated(self, x: Any, axis: int, name: str) -> FloatArray:
        """Return the other operand of a product with this array, rotated alike.

        Parameters
        ----------
        x : ndarray
        axis : int
            The axis that the product sums over.
        name : str
            What errors name.

        Returns
        -------
        ndarray of float32
        """
        return rotate(x, axis, self._format, name)

    def _remade(self, components: Mapping[str, Array], shape: Sequence[int], axis: Sequence[int]) -> RotatedArray:
        return RotatedArray(self._source._remade(components, shape, axis), self._format)

    def _transposed(self) -> RotatedArray:
        return RotatedArray(self._source.T, self._format)

    def __getitem__(self, index: object) -> RotatedArray:
        """Return one index or a slice of axis 0, unless it is a reduction axis; components are views."""
        return RotatedArray(self._source[index], self._format)

    def _values(self) -> Array:
        return self.dequantize()

    def _kind(self) -> object:
        return self._format

    def _arguments(self) -> tuple[Any, ...]:
        return self._source, self._format

    def _entry(self) -> Entry:
        return replace(self._source._entry(), format=self._format)

    @classmethod
    def _described(
        cls,
        text: Any,
        shape: tuple[int, ...],
        axis: tuple[int, ...],
        dtype: str,
        stored: Callable[[str], Plain],
    ) -> Entry | None:
        fmt = parse_format(text) if "+had" in str(text) else None
        if not is_rotated(fmt):
            return None
        check_source(shape, axis, dtype)
        fmt.block_of(shape[axis[-1]], "load")
        return replace(entry_of(fmt.base, shape, axis, dtype), format=fmt, kind=cls)

    @classmethod
    def _wrong_part(cls, entry: Entry, parts: Mapping[str, Array]) -> tuple[str, str] | None:
        return wrong_part(parts, entry.format.base, entry.shape, entry.axis)

    @classmethod
    def _restored(cls, entry: Entry, parts: Mapping[str, Array]) -> RotatedArray:
        source = QuantizedArray._trusted(parts, entry.format.base, entry.shape, entry.axis, entry.dtype)
        return cls(source, entry.format)

    @counts_subnormals
    def _facts(self) -> dict[str, str]:
        return {**self._source._facts(), "format": str(self._format), "block": str(self.block)}

    def __repr__(self) -> str:
        return f"RotatedArray({self._format}, shape={self._shape}, axis={self._axis}, {counted(self.nbytes, 'byte')})"
