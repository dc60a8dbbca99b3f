"""Arrays of other libraries on a CUDA device, by DLPack or by ``__cuda_array_interface__``; nothing is copied."""

from __future__ import annotations

from typing import Any, NamedTuple

from ... import _heterocompute as _core
from ...base.errors import WrongType, WrongValue, shown
from .driver import KIND, place
from .streams import DEFAULT_STREAM, is_torch

DEVICE_TYPE, MANAGED = 2, 13  # types of devices in DLPack
FLOATS = {(2, 16): "float16", (2, 32): "float32", (2, 64): "float64", (4, 16): "bfloat16"}
TYPES = {"<f2": "float16", "<f4": "float32", "<f8": "float64"}
SIZES = {"float16": 2, "float32": 4, "float64": 8, "bfloat16": 2}


class Lent(NamedTuple):
    """An array of another library. `owner` keeps its memory; strides are in bytes, None in C order."""

    owner: Any
    address: int
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None
    number: int
    stream: int


class Interface:
    """The part of an array that other libraries read."""

    __slots__ = ()

    address: int
    dtype: Any
    number: int
    shape: tuple[int, ...]
    stream: int
    strides: tuple[int, ...]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.name == "bfloat16":
            raise AttributeError("__cuda_array_interface__ has no bfloat16: use __dlpack__")
        data = (self.address if all(self.shape) else 0, False)
        found = {"shape": self.shape, "typestr": self.dtype.str, "data": data, "version": 3}
        return {**found, "strides": self._steps(), "stream": int(self.stream)}

    def _steps(self) -> tuple[int, ...] | None:
        """Return the strides, None in C order."""
        raise NotImplementedError

    def __dlpack_device__(self) -> tuple[int, int]:
        return DEVICE_TYPE, self.number


def has_interface(value: object) -> bool:
    try:
        return hasattr(value, "__cuda_array_interface__")
    except (RuntimeError, TypeError, ValueError):  # a dtype that the interface lacks
        return False


def is_named(text: str) -> bool:
    """Tell whether a text is the name of such a device."""
    return text.startswith(KIND)


def is_on_device(value: Any) -> bool:
    """Tell whether an object that is no array of this package or NumPy is an array in the memory of a device."""
    if is_torch(value):
        return bool(value.is_cuda)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        try:
            return value.__dlpack_device__()[0] in (DEVICE_TYPE, MANAGED)
        except (BufferError, RuntimeError, TypeError, ValueError):
            return False
    return has_interface(value)


def lent(value: object, name: str, stream: int | None) -> Lent:
    """Read an array for use on `stream`, by default that of the array; TypeError or ValueError says what is wrong."""
    found = _by_interface(value, name) if has_interface(value) else _by_dlpack(value, name, stream)
    if all(found.shape):
        number = place(found.address)
        if number < 0:
            raise WrongValue(f"{name}: its address is not in the memory of a CUDA device")
        found = found._replace(number=number)
    if any(n < 0 for n in found.shape) or (found.strides is not None and len(found.shape) != len(found.strides)):
        raise WrongValue(
            f"{name} has shape {shown(found.shape)} and strides {shown(found.strides)}, expected one for each"
        )
    size = SIZES[found.dtype]
    steps = zip(found.strides or (), found.shape, strict=False)
    if found.address % size or any(step % size for step, n in steps if n > 1):
        raise WrongValue(f"{name}: its values are not aligned, expected addresses that are multiples of {size}")
    return found


def _by_interface(value: Any, name: str) -> Lent:
    """Read ``__cuda_array_interface__``, version 2 or 3."""
    try:
        found = value.__cuda_array_interface__
        shape = tuple(int(n) for n in found["shape"])
        typestr, (address, _), strides = found["typestr"], found["data"], found.get("strides")
        stream = found.get("stream")
        address, stream = int(address or 0), DEFAULT_STREAM if stream is None else int(stream)
        steps = None if strides is None else tuple(int(n) for n in strides)
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as problem:
        raise WrongType(f"{name}: its __cuda_array_interface__ cannot be read ({problem})") from None
    if found.get("mask") is not None:
        raise WrongType(f"{name} has a mask, expected an array without one")
    if typestr not in TYPES:
        raise WrongType(f"{name} has dtype {shown(typestr)}, expected float16, bfloat16, float32 or float64")
    number = max(place(address), 0) if address and not all(shape) else 0
    return Lent(value, address, shape, TYPES[typestr], steps, number, stream)


def _by_dlpack(value: Any, name: str, stream: int | None) -> Lent:
    try:
        owner, kind, number, address, code, bits, shape, items = _core.read_dlpack(
            value.__dlpack__(stream=stream or DEFAULT_STREAM)
        )
    except (BufferError, RuntimeError, TypeError, ValueError) as problem:
        raise WrongType(f"{name}: the array cannot be read on its device ({problem})") from None
    if kind not in (DEVICE_TYPE, MANAGED):
        raise WrongType(f"{name}: DLPack gives memory of another kind of device, expected CUDA")
    if (code, bits) not in FLOATS:
        kinds = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
        given = f"{kinds.get(code, 'a type of DLPack of ')}{bits}"
        raise WrongType(f"{name} has dtype {given}, expected float16, bfloat16, float32 or float64")
    dtype = FLOATS[code, bits]
    strides = tuple(step * SIZES[dtype] for step in items)
    return Lent(owner, address, shape, dtype, strides, number, stream or DEFAULT_STREAM)
