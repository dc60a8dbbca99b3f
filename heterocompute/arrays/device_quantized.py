"""DeviceQuantizedArray: a QuantizedArray whose components are in the memory of a CUDA device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Self

import numpy as np

from .. import _heterocompute as _core
from ..base.errors import Unsupported, WrongType, WrongValue, unsupported
from ..base.texts import counted
from ..formats import Format
from .base import PackedArray
from .components import component_layout, core_format, layout_of, stored_format
from .dense import as_float_dtype
from .device import DEFAULT_STREAM, DeviceArray, c_strides, device_number

__all__ = ["DeviceQuantizedArray"]

Array = np.ndarray[Any, Any]


_BYTES = np.dtype(np.uint8)
_FLOAT32 = np.dtype(np.float32)
Block = tuple[int, tuple[tuple[str, int, tuple[int, ...], np.dtype[Any], tuple[int, ...]], ...]]
_blocks: dict[Any, Block] = {}  # of the last formats and shapes


def _block_of(format: Format, shape: tuple[int, ...], axis: tuple[int, ...]) -> Block:
    """Return the bytes of all components, and the name, offset, shape, dtype and strides of each."""
    key = core_format(format), shape, axis
    found = _blocks.get(key)
    if found is None:
        end, parts = 0, []
        for name, (of, size) in component_layout(format, shape, axis).items():
            parts.append((name, end, size, of, c_strides(size, of.itemsize)))
            end += -(-prod(size) * of.itemsize // 256) * 256  # components begin where an allocation would
        found = end, tuple(parts)
        if len(_blocks) > 256:
            _blocks.clear()
        _blocks[key] = found
    return found


class DeviceQuantizedArray(PackedArray):
    """A QuantizedArray in the memory of a CUDA device. ``q.to("cuda")`` and `quantize` of a device's array return it.

    The components have the dtypes, shapes and bytes of those on the CPU. `matmul`, `linear` and ``@`` accept the array
    as the right operand.

    Attributes
    ----------
    shape, axis, format, source_dtype, nbytes, bits_per_value
        As of `QuantizedArray`.
    components : mapping of str to DeviceArray
    device : str
        Such as ``"cuda:0"``.
    number : int
        Number of the device.
    stream : int
        The CUDA stream that the components are computed on.
    """

    __slots__ = ("__weakref__", "_format", "_host", "_seen", "_source_dtype", "number", "stream")
    _decoder = "to('cpu')"

    def __init__(
        self,
        components: Mapping[str, DeviceArray],
        format: Format,
        shape: Sequence[int],
        axis: Sequence[int],
        source_dtype: str,
        host: Callable[..., Any],
    ) -> None:
        self._components: dict[str, Any] = dict(components)
        self._format, self._source_dtype, self._host = format, source_dtype, host
        self._shape, self._axis = tuple(shape), tuple(axis)
        first = next(iter(components.values()))
        self.number, self.stream = first.number, first.stream

    @classmethod
    def empty(
        cls, format: Format, shape: Sequence[int], axis: Sequence[int], dtype: str, host: Any, number: int, stream: int
    ) -> Self:
        """Return an array with unset components; `host` makes the array of components on the CPU."""
        nbytes, layout = _block_of(format, tuple(shape), tuple(axis))
        block = DeviceArray.empty((nbytes,), _BYTES, number, stream)  # one: allocating takes longer than the rest
        parts = {
            name: DeviceArray(block, block.address + at, size, of, strides, number, stream)
            for name, at, size, of, strides in layout
        }
        return cls(parts, format, shape, axis, dtype, host)

    @property
    def format(self) -> Format:
        return self._format

    @property
    def source_dtype(self) -> str:
        return self._source_dtype

    @property
    def T(self) -> Self:  # noqa: N802 (NumPy's name)
        """The transposed array; the components are shared. Two dimensions only."""
        return self._transposed()

    def __getitem__(self, index: Any) -> Self:
        """Return one index or a slice of axis 0, unless it is a reduction axis; components are views."""
        return self._at(index, self._format, layout_of(self._format, self._shape, self._axis), self._cut)

    def _cut(self, part: DeviceArray, each: int, indices: slice) -> DeviceArray:
        rows = range(self._shape[0])[indices]
        if rows.step != 1:
            raise WrongValue("only an int or a slice without a step on a CUDA device; call to('cpu') for other indices")
        address = part.address + rows.start * each * part.strides[0]
        shape = (len(rows) * each, *part.shape[1:])
        return DeviceArray(part, address, shape, part.dtype, part.strides, part.number, part.stream)

    def to(self, device: Any) -> Any:
        """Copy the components to another device.

        Parameters
        ----------
        device : str
            ``"cpu"``, ``"cuda"`` or ``"cuda:<number>"``.

        Returns
        -------
        QuantizedArray or DeviceQuantizedArray
            The array itself if it is there already.
        """
        number = device_number(device, "to")
        if number == self.number:
            return self
        parts = {name: part.to_numpy() for name, part in self._components.items()}
        host = self._host(parts, self._format, self._shape, self._axis, self._source_dtype)
        return host if number is None else host.to(device)

    def dequantize(self, dtype: Any = np.float32) -> DeviceArray:
        """Return the values, on the device.

        Parameters
        ----------
        dtype : {float32, float64}

        Returns
        -------
        DeviceArray of `shape`
            The bits of `QuantizedArray.dequantize`.
        """
        wanted = _FLOAT32 if dtype is np.float32 else as_float_dtype(dtype, "dequantize")
        if wanted not in (np.float32, np.float64):
            raise Unsupported(f"dequantize: dtype is {wanted.name}, a CUDA device writes float32 or float64")
        out = DeviceArray.empty(self._shape, wanted, self.number, self.stream)
        if out.size == 0:
            return out
        try:
            _core.cuda_dequantize(self.number, self.stream, None, self._packed(), out.view)
        except NotImplementedError as problem:
            raise unsupported("dequantize", problem) from None
        return out

    def _packed(self) -> tuple[Any, ...]:
        """Return the C core's arguments for a packed array on a device; components are not copied."""
        try:
            return self._seen
        except AttributeError:
            parts = self._components
            addresses = {name: part.address for name, part in parts.items()}
            stored = self._format
            if "values" in parts:
                stored = stored_format(stored, parts["values"].dtype.name)
                addresses["codes"] = addresses["values"]
            self._seen: tuple[Any, ...] = core_format(stored), self._shape, self._axis, addresses
            return self._seen

    def __eq__(self, other: object) -> bool:
        """Tell whether format, shape, axis and the bytes of all components are the same; copies them to the CPU."""
        if not isinstance(other, DeviceQuantizedArray):
            return NotImplemented
        return bool(self.to("cpu") == other.to("cpu"))

    __hash__ = None

    def __deepcopy__(self, memo: Any) -> Self:
        raise WrongType("copy: the array is on a CUDA device, expected one on the CPU: call to('cpu') first")

    def __reduce__(self) -> tuple[Any, ...]:
        raise WrongType("pickle: the array is on a CUDA device, expected one on the CPU: call to('cpu') first")

    def _entry(self) -> Any:
        raise WrongType("save: an array is on a CUDA device, expected arrays on the CPU: call to('cpu') first")

    def save(self, path: Any, check: str = "sample") -> None:
        """Raise TypeError: ``q.to("cpu").save(path)`` writes the array."""
        raise WrongType("save: the array is on a CUDA device, expected one on the CPU: call to('cpu').save(path)")

    def _values(self) -> Array:
        raise WrongType(f"an array on {self.device} has no values on the CPU: call to('cpu') first")

    def _kind(self) -> object:
        return self._format, self.device

    def _facts(self) -> dict[str, str]:
        return {
            "format": str(self._format),
            "shape": str(self._shape),
            "axis": str(self._axis),
            "device": self.device,
            "bytes": f"{self.nbytes:,}",
        }

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._format}, shape={self._shape}, axis={self._axis}, "
            f"{counted(self.nbytes, 'byte')}, device='{self.device}')"
        )


def on_device(
    parts: Mapping[str, Array],
    format: Format,
    shape: Sequence[int],
    axis: Sequence[int],
    source_dtype: str,
    host: Callable[..., Any],
    device: Any,
) -> DeviceQuantizedArray | None:
    """Copy components to a device; None for ``"cpu"``."""
    number = device_number(device, "to")
    if number is None:
        return None
    moved = {name: DeviceArray.from_numpy(part, number, DEFAULT_STREAM) for name, part in parts.items()}
    return DeviceQuantizedArray(moved, format, shape, axis, source_dtype, host)
