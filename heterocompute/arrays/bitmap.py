"""BitmapArray: one bit an element and the elements that are not zero, as NVDLA stores weights and activations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..base import runtime
from ..base.float_env import converted
from ..base.values import shown
from .dense import as_array, as_exported, exports_dlpack, on_cpu
from .quantized import QuantizedArray

__all__ = ["BitmapArray", "encode_bitmap"]

Array = np.ndarray[Any, Any]

_MARK, _KEEP, _PLACE = 0, 1, 2


def _raw(array: Array) -> Array:
    """Return a contiguous array as unsigned integers of its element's size, in one dimension."""
    return array.reshape(-1).view(f"u{array.itemsize}")


def _check_dtype(dtype: np.dtype[Any], name: str) -> None:
    # Kind V: bfloat16 and the small floats of ml_dtypes, which have a name and no fields.
    real = dtype.kind in "fiub" or (dtype.kind == "V" and dtype.fields is None and not dtype.name.startswith("void"))
    if not real or dtype.itemsize not in (1, 2, 4, 8):
        raise TypeError(f"{name} has dtype {dtype}, wanted floats, integers or bool of 1, 2, 4 or 8 bytes")
    if not dtype.isnative:
        raise TypeError(f"{name} has dtype {dtype}, wanted native byte order")


class BitmapArray:
    """An array as a bitmap and the elements that are not zero, made by `encode_bitmap`.

    Parameters
    ----------
    bitmap : ndarray of uint8, (ceil(size / 8),)
        Bit i % 8 of byte i / 8 (bit 0 is the lowest) says whether element i, in C order, is stored; bits behind the
        last element are 0.
    values : ndarray, one dimension
        The stored elements in order.
    shape : sequence of int

    Attributes
    ----------
    shape, ndim, size, dtype
        Of the array it stands for.
    nbytes : int
        ``ceil(size / 8) + values.nbytes``.
    bits_per_value : float
        ``8 * nbytes / size``.
    density : float
        Stored elements to all; 0 for an empty array.
    components : mapping of str to ndarray
        ``bitmap`` and ``values``: the stored arrays themselves.

    Raises
    ------
    TypeError
        No ndarrays of these types.
    ValueError
        Sizes that do not fit the shape, another number of bits set than there are values, bits behind the last.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.BitmapArray(np.uint8([0b101]), np.int16([7, 9]), (3,)).to_dense()
    array([7, 0, 9], dtype=int16)
    """

    __slots__ = ("_bitmap", "_shape", "_values")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, bitmap: Array, values: Array, shape: Sequence[int]) -> None:
        for name, part in (("bitmap", bitmap), ("values", values)):
            if not isinstance(part, np.ndarray):
                raise TypeError(f"BitmapArray: {name} is a {type(part).__name__}, wanted an ndarray")
            if part.ndim != 1:
                raise ValueError(f"BitmapArray: {name} has shape {part.shape}, wanted one dimension")
        if bitmap.dtype != np.uint8:
            raise TypeError(f"BitmapArray: bitmap has dtype {bitmap.dtype}, wanted uint8")
        _check_dtype(values.dtype, "BitmapArray: values")
        try:
            sizes = tuple(int(n.__index__()) for n in shape)
        except (TypeError, AttributeError, ValueError, NotImplementedError):
            raise TypeError(f"BitmapArray: shape is {shown(shape)}, wanted ints") from None
        size = prod(sizes)
        if min(sizes, default=0) < 0 or len(sizes) > 64 or size > 2**60:
            raise ValueError(f"BitmapArray: shape is {sizes}, wanted at most 64 sizes and 2^60 elements, none negative")
        if len(bitmap) != -(-size // 8):
            raise ValueError(f"BitmapArray: bitmap has {len(bitmap)} bytes, shape {sizes} wants {-(-size // 8)}")
        if size % 8 and bitmap[-1] >> size % 8:
            raise ValueError("BitmapArray: bitmap has bits behind the last element")
        ones = int(np.bitwise_count(bitmap).sum(dtype=np.int64))
        if ones != len(values):
            raise ValueError(f"BitmapArray: {ones} bits of bitmap are set for {len(values)} values")
        self._bitmap, self._values, self._shape = bitmap, values, sizes

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        return prod(self._shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        kind: np.dtype[Any] = self._values.dtype
        return kind

    @property
    def nbytes(self) -> int:
        return self._bitmap.nbytes + self._values.nbytes

    @property
    def bits_per_value(self) -> float:
        return 8 * self.nbytes / self.size if self.size else 0.0

    @property
    def density(self) -> float:
        return len(self._values) / self.size if self.size else 0.0

    @property
    def components(self) -> MappingProxyType[str, Array]:
        return MappingProxyType({"bitmap": self._bitmap, "values": self._values})

    def to_dense(self) -> Array:
        """Return the array, equal to the bit to what was encoded.

        Returns
        -------
        ndarray of `shape` and `dtype`
        """
        dense = np.empty(self._shape, self.dtype)
        bitmap, values = (np.ascontiguousarray(part) for part in (self._bitmap, self._values))
        _core.bitmap(runtime.run(), _raw(dense), bitmap, _raw(values), _PLACE)
        return dense

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("BitmapArray: an array of it is always a copy")
        dense = self.to_dense()
        return dense if dtype is None else converted(dense, dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BitmapArray):
            return NotImplemented
        mine, theirs = self._values, other._values
        return (
            self._shape == other._shape
            and mine.dtype == theirs.dtype
            and self._bitmap.tobytes() == other._bitmap.tobytes()
            and mine.tobytes() == theirs.tobytes()
        )

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of an array without dimensions")
        return self._shape[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return BitmapArray, (self._bitmap, self._values, self._shape)

    def __repr__(self) -> str:
        return f"BitmapArray(shape={self._shape}, dtype={self.dtype}, density={self.density:.4g}, nbytes={self.nbytes})"


def _given(a: Any) -> Array:
    """Return any array, of whatever type it is: the memory of a tensor as it lies there."""
    if isinstance(a, QuantizedArray):
        return as_array(a, "encode_bitmap: a")
    if exports_dlpack(a) and not isinstance(a, np.ndarray):
        try:
            return as_exported(a, "encode_bitmap: a")
        except TypeError:
            if not on_cpu(a) or not hasattr(a, "__array__"):
                raise
    try:
        return np.asarray(a)
    except (RuntimeError, TypeError, ValueError):
        raise TypeError(f"encode_bitmap: a is {shown(a)}, wanted an array of floats, integers or bool") from None


def encode_bitmap(a: Any) -> BitmapArray:
    """Store an array as one bit an element and the elements that are not zero.

    Parameters
    ----------
    a : array_like
        float16, bfloat16, float32, float64, the small floats of ml_dtypes, integers or bool; any shape and strides.
        An element is zero if all its bits are: -0.0 is stored.

    Returns
    -------
    BitmapArray
        Exact to the bit, NaNs included. ``size / 8 + itemsize * nonzeros`` bytes: less than dense for a density under
        ``1 - 1 / bits``.

    Raises
    ------
    TypeError
        Complex numbers, objects, texts, times.

    Notes
    -----
    NVDLA's compressed formats: a mask of one bit an element and the packed non-zeros (nvdla.org, "In-memory data
    formats").

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> b = hc.encode_bitmap(np.float16([0, 1.5, 0, -0.0, 0, 0, 0, 2]))
    >>> b.components["bitmap"], b.components["values"], b.nbytes
    (array([138], dtype=uint8), array([ 1.5, -0. ,  2. ], dtype=float16), 7)
    >>> b.to_dense()
    array([ 0. ,  1.5,  0. , -0. ,  0. ,  0. ,  0. ,  2. ], dtype=float16)
    """
    array = _given(a)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    _check_dtype(array.dtype, "encode_bitmap: a")
    items = _raw(np.ascontiguousarray(array))
    bitmap = np.empty(-(-len(items) // 8), np.uint8)
    run = runtime.run()
    kept = _core.bitmap(run, items, bitmap, items[:0], _MARK)
    values = np.empty(kept, array.dtype)
    _core.bitmap(run, items, bitmap, _raw(values), _KEEP)
    return BitmapArray(bitmap, values, array.shape)
