"""QuantizedArray: the components of a packed array, its format and its shape.

Components are plain NumPy arrays over (rows, ...): bit-packed ``codes``, ``scales``, ``coarse``, ``zero_points``,
depending on the format. The C core encodes and decodes; this module does not interpret bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np

from .. import _heterocompute as _core
from ..base import runtime
from ..base.devices import A_DEVICE, device_number
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import converted
from ..base.texts import counted
from ..formats import Format, format as parse_format, has_pattern
from .base import PackedArray
from .components import core_format, entry_of, layout_of, stored_format, values_of
from .dense import FLOATS, as_float_dtype, normalize_axes
from .device import DeviceArray
from .layout import Entry, Plain
from .memory import DeviceMemory, Memory, memory_of
from .metadata import check_metadata
from .parts import as_codes, as_shape, check_components, cut, first_group_html, joined_parts, parts_in_block
from .stored import check_source, wrong_part
from .unpacked import (
    codes_along,
    codes_of,
    decoded_on_device,
    elements_of,
    minima_of,
    scales_of,
    unsigned_codes,
    zero_points_of,
)

__all__ = ["QuantizedArray"]

Array = np.ndarray[Any, Any]

_BLOCK = 1 << 20  # codes unpacked at a time
_FLOAT32 = np.dtype(np.float32)


class QuantizedArray(PackedArray):
    """Hold an array of float values as the packed components of a number format.

    `quantize` and `load` return this class. ``@`` and ``numpy.matmul`` call `matmul`. Every other ufunc raises an
    error, so that nothing dequantizes silently.

    The components are all in one memory. An array on a device is quantized there or moved there by `to`. The functions
    that have kernels for the device accept it. All others refuse it: ``q.to("cpu")`` copies it.

    Attributes
    ----------
    shape, ndim, size, dtype
        Shape, number and type of the values; dtype is float32.
    format : Format
    axis : tuple of int
        The reduction axes.
    components : mapping of str to ndarray or DeviceArray
        The stored arrays, not copies. They have the same dtypes, shapes and bytes in every memory.
    device : str
        The device of the components: ``"cpu"``, or a name such as `show_config` lists.
    stream : int
        The stream of the device that the components are computed on. 0 on the CPU.
    nbytes : int
        Bytes of all components.
    bits_per_value : float
        ``8 * nbytes / size``.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> q = hc.quantize(np.eye(2, 32, dtype=np.float32), "vsq4-g16-s4")
    >>> q.shape, str(q.format), sorted(q.components)
    ((2, 32), 'vsq4-g16-s4', ['coarse', 'codes', 'scales'])
    >>> bool((np.asarray(q) == np.eye(2, 32)).all())
    True
    """

    # Kept by the first matmul: `_seen`, the components in the core's form, which it checks
    # (csrc/python/direct.c), `_turned`, the transposed array, and `_text`, its name in the keys of tuned choices.
    __slots__ = ("_format", "_seen", "_source_dtype", "_text", "_turned")

    _format: Format
    _turned: Self
    _source_dtype: str
    _text: str

    @property
    def _decoder(self) -> str:
        return "to('cpu')" if self._is_far else "dequantize()"

    def __init__(
        self,
        components: Mapping[str, Array],
        format: Format,
        shape: Sequence[int],
        axis: Sequence[int],
        source_dtype: str = "float32",
    ) -> None:
        kind = type(self).__name__
        if not isinstance(format, Format):
            raise WrongType(f"{kind}: format is {shown(format)}, expected a Format")
        if not isinstance(components, Mapping):
            raise WrongType(f"{kind}: components are {shown(components)}, expected a mapping of names to ndarrays")
        if not isinstance(source_dtype, str) or source_dtype not in FLOATS:
            raise WrongValue(f"{kind}: source_dtype is {shown(source_dtype)}, expected {', '.join(FLOATS)}")
        self._components = dict(components)
        self._format = format
        self._shape = as_shape(shape, kind)
        self._axis = normalize_axes(tuple(axis) if isinstance(axis, range) else axis, len(self._shape), kind)
        self._source_dtype = source_dtype
        values = self._components.get("values")
        kind_of_values = values_of(values.dtype.name) if isinstance(values, np.ndarray) else "float32"
        layout = layout_of(format, self._shape, self._axis, kind_of_values)
        check_components(self._components, layout, format, kind)
        if has_pattern(format):
            problem = check_metadata(self._components["metadata"], format, self._shape, self._axis)
            if problem:
                raise WrongValue(f"{kind}: component metadata has {problem}")

    @classmethod
    def _trusted(
        cls,
        components: Mapping[str, Array],
        format: Format,
        shape: Sequence[int],
        axis: Sequence[int],
        source_dtype: str,
    ) -> Self:
        """Make an array of components that this package made, without checks."""
        array = object.__new__(cls)
        array._components, array._format, array._source_dtype = dict(components), format, source_dtype
        array._shape, array._axis = tuple(shape), tuple(axis)
        return array

    @property
    def _memory(self) -> Memory:
        return memory_of(next(iter(self._components.values()), None))

    @property
    def _is_far(self) -> bool:
        first: Any = next(iter(self._components.values()), None)
        return type(first) is DeviceArray

    def _refuse_far(self, name: str) -> None:
        """Raise TypeError for an array that is not on the CPU; `name` is a function that reads there."""
        if self._is_far:
            raise WrongType(f"{name}: the array is on {A_DEVICE}, expected one on the CPU: call to('cpu') first")

    @property
    def stream(self) -> int:
        return self._memory.stream

    @property
    def format(self) -> Format:
        return self._format

    @property
    def source_dtype(self) -> str:
        return self._source_dtype

    @property
    def _stored_format(self) -> Format:
        """Return the format whose codes are stored; for a pattern without a format, that of its values."""
        values = self._components.get("values")
        return stored_format(self._format, None if values is None else values.dtype.name)

    def _packed(self) -> tuple[Any, ...]:
        """Return the C core's arguments for a packed array."""
        parts = self._components
        first: Any = next(iter(parts.values()), None)
        if type(first) is DeviceArray:
            return self._device_packed(0)
        if "values" in parts:
            parts = {**parts, "codes": as_codes(parts["values"])}
        return core_format(self._stored_format), self._shape, self._axis, parts

    def _device_packed(self, panels: int) -> tuple[Any, ...]:
        """Return the same for components on a device, with the address of the panels of `prepack` or 0."""
        parts: Mapping[str, Any] = self._components
        addresses = {name: part.address for name, part in parts.items()}
        if "values" in parts:
            addresses["codes"] = addresses["values"]
        number = next(iter(parts.values())).number
        return core_format(self._stored_format), self._shape, self._axis, addresses, panels, number

    @classmethod
    def _empty(
        cls, memory: Memory, format: Format, shape: Sequence[int], axis: Sequence[int], source_dtype: str
    ) -> Self:
        """Return an array on a device with unset components, in one block: allocating takes longer than the rest."""
        parts: Any = parts_in_block(memory, format, tuple(shape), tuple(axis))
        return cls._trusted(parts, format, shape, axis, source_dtype)

    def dequantize(self, dtype: object = np.float32) -> Array:
        """Return the decoded values.

        Parameters
        ----------
        dtype : dtype, default float32
            float32 is rounded once. float64 is the unrounded scale times code. Other float types are converted from
            float32, on the CPU only.

        Returns
        -------
        ndarray or DeviceArray of `shape`
        """
        wanted = _FLOAT32 if dtype is np.float32 else as_float_dtype(dtype, "dequantize")
        first: Any = next(iter(self._components.values()), None)
        if type(first) is DeviceArray:
            return decoded_on_device(self, wanted, first)  # type: ignore[return-value]
        out = np.empty(self._shape, np.float64 if wanted == np.float64 else np.float32)
        _core.dequantize(runtime.run(), self._packed(), out)
        return converted(out, wanted)

    def to(self, device: object) -> Any:
        """Copy the components to a device.

        Parameters
        ----------
        device : str
            ``"cpu"``, a device that `show_config` lists, or the kind of these devices for the first one.

        Returns
        -------
        QuantizedArray
            The array itself if it is there already. `matmul` and `linear` multiply an array on its device.

        Raises
        ------
        NotImplementedError
            There is no driver or no device, or the build has no kernels for it.
        MemoryError
            The device is out of memory.

        Examples
        --------
        >>> import numpy as np, heterocompute as hc
        >>> q = hc.quantize(np.ones((2, 32), np.float32), "int8")
        >>> q.to("cpu") is q
        True
        """
        number, parts = device_number(device, "to"), self._components
        if number == self._memory.number:
            return self
        if self._is_far:
            parts = {name: part.to_numpy() for name, part in self._components.items()}  # type: ignore[attr-defined]
        if number is not None:
            memory = DeviceMemory(number)
            parts = {name: memory.copied(part) for name, part in parts.items()}  # type: ignore[misc]
        return self._remade(parts, self._shape, self._axis)

    def codes(self) -> Array:
        """Return the codes, one integer per value.

        Returns
        -------
        ndarray of `shape`
            int8 (int16, int32) for two's complement codes: symmetric `Int`, signed `VSQ`, mxint8. Otherwise unsigned:
            asymmetric codes, indices of a codebook or of the NF4 levels, the bits of a float or log number. Formats
            with a pattern have code 0 at zeros. For a codebook of vectors the last reduction axis counts vectors.

        Examples
        --------
        >>> import numpy as np, heterocompute as hc
        >>> q = hc.quantize(np.float32([[0.5, -1.0, 0.25, 3.5]]), "int4-g2")
        >>> q.codes(), q.scales_expanded()[0, ::2]
        (array([[ 3, -7,  0,  7]], dtype=int8), array([0.14285715, 0.5       ], dtype=float32))
        """
        self._refuse_far("codes")
        return codes_of(self)

    def scales_expanded(self, dtype: object = np.float32) -> Array:
        """Return the scale of each value, the product of all its factors.

        Parameters
        ----------
        dtype : dtype, default float32
            As in `dequantize`. float64 is exact where a scale is a product of two levels.

        Returns
        -------
        ndarray of `shape`
            For integers ``codes() * scales_expanded(np.float64)`` equals ``dequantize(np.float64)``. With zero points
            it is ``(codes() - zero_points_expanded()) * ...``, with minima ``... + minima_expanded()``. mxint8 codes
            are in units of 1/64. Formats without a scale return 1. Formats with a pattern return 0 at zeros.
        """
        self._refuse_far("scales_expanded")
        return scales_of(self, dtype)

    def zero_points_expanded(self) -> Array:
        """Return the zero point of each value.

        Returns
        -------
        ndarray of uint8, `shape`
            Zeros where the format has none.
        """
        self._refuse_far("zero_points_expanded")
        return zero_points_of(self)

    def minima_expanded(self) -> Array:
        """Return the minimum of each value's group, which is added after scaling.

        Returns
        -------
        ndarray of float32, `shape`
            ``codes() * scales_expanded(np.float64) + minima_expanded()`` equals ``dequantize(np.float64)``. ggml
            subtracts the product ``e * m`` for `q2_k`, `q4_k` and `q5_k`; here it is ``-e * m``, exact. For `q4_1` and
            `q5_1` it is ``m``. Zeros where the format has no minima.

        Examples
        --------
        >>> import numpy as np, heterocompute as hc
        >>> q = hc.quantize(np.float32([[0.5, 2.0] * 16]), "q4_1")
        >>> q.codes()[0, :2], q.scales_expanded()[0, 0], q.minima_expanded()[0, 0]
        (array([ 0, 15], dtype=uint8), np.float32(0.099975586), np.float32(0.5))
        """
        self._refuse_far("minima_expanded")
        return minima_of(self)

    def view_ml_dtypes(self) -> Array:
        """Return the unscaled elements in the matching type of NumPy or ml_dtypes.

        Returns
        -------
        ndarray of `shape`
            int8, int16, uint8, or a type of ml_dtypes (bfloat16, float8_e4m3fn, float4_e2m1fn, int4, ...). It shares
            the memory of the codes if a code is whole bytes and the rows are in the array's own order. Otherwise it is
            a copy, with one byte or more per element.

        Raises
        ------
        TypeError
            No such type exists for the elements of the format.

        Examples
        --------
        >>> import numpy as np, heterocompute as hc
        >>> q = hc.quantize(np.float32([[0.5, -1.0, 0.25, 1.0]]), "int4")
        >>> codes = q.view_ml_dtypes()
        >>> codes.dtype.name, codes.tolist()
        ('int4', [[3, -7, 2, 7]])
        """
        self._refuse_far("view_ml_dtypes")
        return elements_of(self)

    def _codes(self) -> Array:
        """Return the codes as unsigned integers of `shape`; a view if codes are whole bytes."""
        return unsigned_codes(self)

    def _along(self, axis: tuple[int, ...]) -> Self:
        """Return the same values in rows along other axes, for formats without components per row."""
        if axis == self._axis or has_pattern(self._format) or not self._format.form.any_axis or self._is_far:
            return self
        codes = codes_along(self, axis)
        return self._remade({**self._components, "codes": codes}, self._shape, axis)

    @property
    def T(self) -> Self:  # noqa: N802 (NumPy's name)
        """Return the transposed array, which shares the components. Two dimensions only."""
        turned = getattr(self, "_turned", None)
        if turned is None:
            self._turned = turned = self._transposed()
        return turned

    def __getitem__(self, index: object) -> Self:
        """Return one index or a slice of axis 0, unless it is a reduction axis; components are views."""
        return self._at(
            index, self._format, layout_of(self._format, self._shape, self._axis), partial(cut, self._shape)
        )

    def _joined(self, arrays: Any, axis: Any = 0, **options: Any) -> Self:
        """Return the rows of several arrays as one array: the inverse of slices of axis 0."""
        first = arrays[0]
        for array in arrays:
            if isinstance(array, QuantizedArray):
                array._refuse_far("concatenate")
        for i, array in enumerate(arrays):
            if not isinstance(array, QuantizedArray):
                raise WrongType(f"concatenate: array {i} is {type(array).__name__}, expected a QuantizedArray")
        if options:
            raise WrongType(f"concatenate: packed arrays have no {min(options)}; call {self._decoder} first")
        if axis not in (0, -first.ndim):
            raise WrongValue(f"concatenate: axis is {shown(axis)}, expected 0; call {self._decoder} for other axes")
        if not first.format.splits_into_rows:
            raise WrongValue(f"rows of {first.format} share blocks of scales; call {self._decoder} to join the values")
        whole: Self = first[:]
        parts = joined_parts(arrays)
        return whole._remade(parts, (sum(map(len, arrays)), *first.shape[1:]), first.axis)

    def _values(self) -> Array:
        if self._is_far:
            raise WrongType(f"an array on {self.device} has no values on the CPU: call to('cpu') first")
        return self.dequantize()

    def _wide_values(self) -> Array:
        if self._is_far:
            return super()._wide_values()
        return self.dequantize(np.float64)

    def _as_floats(self, name: str) -> Array:
        more = "" if self._is_far else ", or numpy.asarray().astype()"
        raise WrongType(f"{name} is {self._named()}; take its {self._decoder} first{more}")

    def __eq__(self, other: object) -> bool:
        """Tell whether format, shape, axis and the bytes of all components are the same; copies them to the CPU."""
        if isinstance(other, QuantizedArray) and self._is_far and other._is_far:
            return bool(self.to("cpu") == other.to("cpu"))
        if self._is_far:
            return NotImplemented
        return super().__eq__(other)

    __hash__ = None

    def __deepcopy__(self, memo: object) -> Self:
        self._refuse_far("copy")
        return super().__deepcopy__(memo)

    def __reduce__(self) -> tuple[Any, ...]:
        self._refuse_far("pickle")
        return super().__reduce__()

    def save(self, path: Any, check: str = "sample") -> None:
        self._refuse_far("save")
        super().save(path, check)

    def _slabs(self, count: int) -> Iterator[tuple[Any, Array]]:
        packed, each = self._packed(), self.size // max(len(self), 1)
        if each > count and self.ndim > 1 and 0 not in self._axis and self._format.splits_into_rows:
            for i in range(len(self)):
                yield from (((i, *index), slab) for index, slab in self[i]._slabs(count))
            return
        step = _core.slab_step(packed)
        length = max(count // each // step, 1) * step if self.size else max(len(self), 1)
        for first in range(0, max(len(self), 1), length):
            slab = np.empty((min(length, len(self) - first), *self._shape[1:]), np.float32)
            _core.dequantize_slab(runtime.run(), packed, first, slab)
            yield (slice(first, first + length),), slab

    def _occurring(self) -> Iterator[Array]:
        is_sliced = 0 not in self._axis and self._format.splits_into_rows
        rows = max(1, _BLOCK * len(self) // self.size) if is_sliced and self.size else max(1, len(self))
        for first in range(0, len(self) if self.size else 0, rows):
            yield (self[first : first + rows] if is_sliced else self).dequantize()

    def _kind(self) -> object:
        return self._format

    def _arguments(self) -> tuple[Any, ...]:
        return self._components, self._format, self._shape, self._axis, self._source_dtype

    def _entry(self) -> Entry:
        if self._is_far:
            raise WrongType(f"save: an array is on {A_DEVICE}, expected arrays on the CPU: call to('cpu') first")
        values = self._components["values"].dtype.name if "values" in self._components else "float32"
        return entry_of(self._format, self._shape, self._axis, self._source_dtype, values)

    @classmethod
    def _described(
        cls,
        text: str,
        shape: tuple[int, ...],
        axis: tuple[int, ...],
        dtype: str,
        stored: Callable[[str], Plain],
    ) -> Entry | None:
        check_source(shape, axis, dtype)
        values = values_of(stored("values")[0])
        return replace(entry_of(parse_format(text), shape, axis, dtype, values), kind=cls)

    @classmethod
    def _wrong_part(cls, entry: Entry, parts: Mapping[str, Array]) -> tuple[str, str] | None:
        return wrong_part(parts, entry.format, entry.shape, entry.axis)

    @classmethod
    def _restored(cls, entry: Entry, parts: Mapping[str, Array]) -> Self:
        return cls._trusted(parts, entry.format, entry.shape, entry.axis, entry.dtype)

    def _facts(self) -> dict[str, str]:
        return {
            "format": str(self._format),
            "shape": str(self._shape),
            "axis": str(self._axis),
            **({"device": self.device} if self._is_far else {}),
            "bytes": f"{self.nbytes:,}",
            "bits per value": f"{self.bits_per_value:.3f}",
        }

    def __repr__(self) -> str:
        size, place = counted(self.nbytes, "byte"), f", device='{self.device}'" if self._is_far else ""
        return f"{type(self).__name__}({self._format}, shape={self._shape}, axis={self._axis}, {size}{place})"

    def _repr_html_(self) -> str:
        return super()._repr_html_() + first_group_html(self)
