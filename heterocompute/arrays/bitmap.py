"""BitmapArray: one bit per element and the nonzero elements, as NVDLA stores weights and activations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..base import runtime
from ..base.errors import WrongIndex, WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.texts import counted
from .array_like import ArrayLike
from .base import PackedArray
from .dense import as_any, as_array
from .foreign import Unreadable, as_exported, exports_dlpack, refuse_elsewhere
from .layout import Entry, Plain
from .quantized import QuantizedArray

__all__ = ["BitmapArray", "encode_bitmap"]

Array = np.ndarray[Any, Any]

_MARK, _COMPRESS, _EXPAND = 0, 1, 2
_TEXT = "bitmap"  # the format string of bitmaps in files


def _raw(array: Array) -> Array:
    """Return a contiguous array as unsigned integers of its element's size, in one dimension."""
    return array.reshape(-1).view(f"u{array.itemsize}")


def _check_dtype(dtype: np.dtype[Any], name: str) -> None:
    # Kind V: bfloat16 and the small floats of ml_dtypes, which have a name and no fields.
    real = dtype.kind in "fiub" or (dtype.kind == "V" and dtype.fields is None and not dtype.name.startswith("void"))
    if not real or dtype.itemsize not in (1, 2, 4, 8):
        raise WrongType(f"{name} has dtype {dtype}, expected floats, integers or bool of 1, 2, 4 or 8 bytes")
    if not dtype.isnative:
        raise WrongType(f"{name} has dtype {dtype}, expected native byte order")


class BitmapArray(PackedArray):
    """An array stored as a bitmap and its nonzeros. Returned by `encode_bitmap`.

    Parameters
    ----------
    bitmap : ndarray of uint8, (ceil(size / 8),)
        Bit i % 8 of byte i / 8 (bit 0 is the lowest) is 1 if element i, in C order, is stored. Bits after the last
        element are 0.
    values : ndarray, one dimension
        The stored elements in order.
    shape : sequence of int
        Shape of the represented array.

    Attributes
    ----------
    shape, ndim, size, dtype
        Of the represented array.
    device : str
        Device of the components: ``"cpu"``.
    nbytes : int
        ``ceil(size / 8) + values.nbytes``.
    bits_per_value : float
        ``8 * nbytes / size``.
    density : float
        Fraction of stored elements; 0 for an empty array.
    components : mapping of str to ndarray
        ``bitmap`` and ``values``: the stored arrays, not copies.

    Raises
    ------
    TypeError
        An argument is not an ndarray of the right type.
    ValueError
        The sizes do not match the shape, the number of set bits is not the number of values, or bits after the last
        element are set.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.BitmapArray(np.uint8([0b101]), np.int16([7, 9]), (3,)).to_dense()
    array([7, 0, 9], dtype=int16)
    """

    __slots__ = ()

    _decoder = "to_dense()"

    def __init__(self, bitmap: Array, values: Array, shape: Sequence[int]) -> None:
        for name, part in (("bitmap", bitmap), ("values", values)):
            refuse_elsewhere(part, f"BitmapArray: {name}")
            if not isinstance(part, np.ndarray):
                raise WrongType(f"BitmapArray: {name} is a {type(part).__name__}, expected an ndarray")
            if part.ndim != 1:
                raise WrongValue(f"BitmapArray: {name} has shape {part.shape}, expected one dimension")
        if bitmap.dtype != np.uint8:
            raise WrongType(f"BitmapArray: bitmap has dtype {bitmap.dtype}, expected uint8")
        _check_dtype(values.dtype, "BitmapArray: values")
        try:
            sizes = tuple(int(n.__index__()) for n in shape)
        except (TypeError, AttributeError, ValueError, NotImplementedError):
            raise WrongType(f"BitmapArray: shape is {shown(shape)}, expected ints") from None
        size = prod(sizes)
        if min(sizes, default=0) < 0 or len(sizes) > 64 or size > 2**60:
            raise WrongValue(
                f"BitmapArray: shape is {shown(sizes)}, expected at most 64 sizes and 2^60 elements, none negative"
            )
        if len(bitmap) != -(-size // 8):
            raise WrongValue(
                f"BitmapArray: bitmap has {counted(len(bitmap), 'byte')}, shape {sizes} needs {-(-size // 8)}"
            )
        if size % 8 and bitmap[-1] >> size % 8:
            raise WrongValue("BitmapArray: bitmap has bits behind the last element")
        ones = int(np.bitwise_count(bitmap).sum(dtype=np.int64))
        if ones != len(values):
            raise WrongValue(
                f"BitmapArray: {counted(ones, 'bit')} of bitmap are set for {counted(len(values), 'value')}"
            )
        self._components, self._shape, self._axis = {"bitmap": bitmap, "values": values}, sizes, ()

    @property
    def dtype(self) -> np.dtype[Any]:
        kind: np.dtype[Any] = self._components["values"].dtype
        return kind

    @property
    @counts_subnormals
    def density(self) -> float:
        return len(self._components["values"]) / self.size if self.size else 0.0

    def to_dense(self) -> Array:
        """Return the array, bitwise identical to the encoded one.

        Returns
        -------
        ndarray of `shape` and `dtype`
        """
        dense = np.empty(self._shape, self.dtype)
        bitmap, values = (np.ascontiguousarray(part) for part in self._components.values())
        _core.bitmap(runtime.run(), _raw(dense), bitmap, _raw(values), _EXPAND)
        return dense

    def __getitem__(self, index: object) -> BitmapArray:
        """Return one index or a slice of axis 0; the values are views if the slice has no gaps."""
        if not self._shape:
            raise WrongIndex("a BitmapArray without dimensions has no axis to index")
        rows, one = self._rows_of(index)
        first, last, step = rows.indices(self._shape[0])
        if step != 1:
            return type(self)(*encode_bitmap(self.to_dense()[rows])._arguments())
        width = prod(self._shape[1:])
        begin, end = first * width, max(first, last) * width
        bits = self._bits(begin, end)
        whole = self._components["bitmap"][: begin // 8]
        before = int(np.bitwise_count(whole).sum(dtype=np.int64)) + int(self._bits(begin // 8 * 8, begin).sum())
        values = self._components["values"][before : before + int(np.count_nonzero(bits))]
        shape = self._shape[1:] if one else (max(last - first, 0), *self._shape[1:])
        return self._remade({"bitmap": np.packbits(bits, bitorder="little"), "values": values}, shape, ())

    def _bits(self, begin: int, end: int) -> Array:
        """Return the bits of elements `begin` to `end` - 1, one byte each."""
        stored = np.ascontiguousarray(self._components["bitmap"][begin // 8 : -(-end // 8)])
        found: Array = np.unpackbits(stored, bitorder="little")[begin % 8 :][: end - begin]
        return found

    def _values(self) -> Array:
        return self.to_dense()

    def _occurring(self) -> Iterator[Array]:
        values = self._components["values"]
        yield values
        if len(values) < self.size:
            yield np.zeros(1, values.dtype)

    def _as_floats(self, name: str) -> Array:
        return self.to_dense()  # the conversion is exact

    def _kind(self) -> object:
        return _TEXT

    def _arguments(self) -> tuple[Any, ...]:
        return self._components["bitmap"], self._components["values"], self._shape

    def _entry(self) -> Entry:
        return self._entry_of(self._shape, self.dtype.name, self._components["values"].shape)

    @classmethod
    def _entry_of(cls, shape: tuple[int, ...], dtype: str, values: tuple[int, ...]) -> Entry:
        parts = {"bitmap": ("uint8", (-(-prod(shape) // 8),)), "values": (dtype, values)}
        return Entry(_TEXT, shape, (), dtype, parts, cls)

    @classmethod
    def _described(
        cls,
        text: str,
        shape: tuple[int, ...],
        axis: tuple[int, ...],
        dtype: str,
        stored: Callable[[str], Plain],
    ) -> Entry | None:
        if text != _TEXT:
            return None
        if axis:
            raise WrongValue(f"a bitmap has no axis, not {shown(list(axis))}")
        return cls._entry_of(shape, dtype, (prod(stored("values")[1]),))

    @classmethod
    def _restored(cls, entry: Entry, parts: Mapping[str, Array]) -> BitmapArray:
        return cls(parts["bitmap"], parts["values"], entry.shape)

    def _facts(self) -> dict[str, str]:
        return {
            "shape": str(self._shape),
            "dtype": str(self.dtype),
            "density": f"{self.density:.3g}",
            "bytes": f"{self.nbytes:,}",
            "bits per value": f"{self.bits_per_value:.3f}",
        }

    def __repr__(self) -> str:
        return f"BitmapArray(shape={self._shape}, dtype={self.dtype}, density={self.density:.4g}, nbytes={self.nbytes})"


def _given(a: object) -> Array:
    """Return an array of any type as an ndarray; tensors of other libraries share their memory."""
    if isinstance(a, QuantizedArray):
        return as_array(a, "encode_bitmap: a")
    if exports_dlpack(a) and not isinstance(a, np.ndarray):
        try:
            return as_exported(a, "encode_bitmap: a")
        except Unreadable:
            raise
        except TypeError:  # DLPack has no such type
            if not hasattr(a, "__array__"):
                raise
    elif not isinstance(a, PackedArray):
        return as_any(a, "encode_bitmap: a", "an array of floats, integers or bool")
    refuse_elsewhere(a, "encode_bitmap: a")
    try:
        return np.asarray(a)
    except (RuntimeError, TypeError, ValueError):
        raise WrongType(f"encode_bitmap: a is {shown(a)}, expected an array of floats, integers or bool") from None


@counts_subnormals
def encode_bitmap(a: ArrayLike) -> BitmapArray:
    """Encode an array as one bit per element and its nonzeros.

    Parameters
    ----------
    a : array_like
        float16, bfloat16, float32, float64, the small floats of ml_dtypes, integers or bool, of any shape and strides.
        Only elements whose bits are all 0 count as zero: -0.0 is stored.

    Returns
    -------
    BitmapArray
        Lossless, including NaNs. It has ``size / 8 + itemsize * nonzeros`` bytes, fewer than the dense array for a
        density under ``1 - 1 / bits``.

    Raises
    ------
    TypeError
        a holds complex numbers, objects, text or datetimes.

    Notes
    -----
    NVDLA's compressed formats: a mask of one bit per element and the packed nonzeros (nvdla.org, "In-memory data
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
    count = _core.bitmap(run, items, bitmap, items[:0], _MARK)
    values = np.empty(count, array.dtype)
    _core.bitmap(run, items, bitmap, _raw(values), _COMPRESS)
    return BitmapArray(bitmap, values, array.shape)
