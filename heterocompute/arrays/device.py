"""Arrays in the memory of a device: those of other libraries, read in place, and our own.

Other libraries are never imported: `heterocompute.base.devices` recognizes their arrays by attributes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..base import devices as _devices
from ..base.devices import DEFAULT_STREAM, NAMES, TORCH, is_torch, torch_stream
from ..base.errors import Unsupported, WrongType
from .foreign import Unreadable

__all__ = [
    "DEFAULT_STREAM",
    "DeviceArray",
    "as_device",
    "c_strides",
    "in_callers_library",
    "is_on_device",
    "as_device_tensor",
    "tensor_view",
]

Array = np.ndarray[Any, Any]

_KINDS = {"f": 2, "i": 0, "u": 1, "V": 4}  # kinds of numbers in DLPack; bfloat16 is V in NumPy
_float32 = np.dtype(np.float32)
_Float32 = type(_float32)
View = tuple[int, str, tuple[int, ...], tuple[int, ...], int]  # address, dtype, shape, strides, number of the device
_FLOATS = ("float16", "float32", "float64", "bfloat16")


class DeviceArray(_devices.Interface):
    """An array in the memory of a device.

    Functions of heterocompute return it for arrays of the device. CuPy, PyTorch, JAX and Numba read it without a copy.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
    strides : tuple of int
        In bytes.
    device : str
        Such as that of the first device of `show_config`.
    stream : int
        The stream that the values are computed on. A stream that the caller gave as a plain number must exist as
        long as the array.

    Examples
    --------
    >>> from heterocompute.arrays.device import DeviceArray
    >>> DeviceArray.from_numpy(x, 0).to_numpy()  # doctest: +SKIP
    """

    __slots__ = ("__weakref__", "_owner", "_view", "address", "dtype", "number", "shape", "stream", "strides")

    def __init__(
        self,
        owner: Any,
        address: int,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        strides: Sequence[int],
        number: int,
        stream: int,
    ) -> None:
        self._owner = owner
        self.address = address
        self.number = number
        self.stream = stream or DEFAULT_STREAM
        self.shape = shape if type(shape) is tuple else tuple(shape)
        self.dtype = dtype
        self.strides = strides if type(strides) is tuple else tuple(strides)
        self._view: View | None = None

    @classmethod
    def empty(cls, shape: Sequence[int], dtype: Any, number: int = 0, stream: int = DEFAULT_STREAM) -> DeviceArray:
        """Return an array with unset values, in C order."""
        dtype = dtype if type(dtype) is _Float32 else np.dtype(dtype)
        strides = c_strides(shape, dtype.itemsize)
        if type(stream) is not int:
            tensor = stream.tensor(tuple(shape), "float32" if dtype is _float32 else dtype.name)  # type: ignore[attr-defined]
            if tensor is not None:
                return cls(tensor, tensor.data_ptr(), shape, dtype, strides, number, stream)
        # the owner frees the memory on that stream, and holds the stream
        owner, address = _devices.hold(number, stream, prod(shape) * dtype.itemsize)
        return cls(owner, address, shape, dtype, strides, number, stream)

    @classmethod
    def from_numpy(cls, array: Array, number: int = 0, stream: int = DEFAULT_STREAM) -> DeviceArray:
        """Copy an ndarray to a device."""
        made = cls.empty(array.shape, array.dtype, number, stream)
        _devices.copy(number, stream, made.address, _as_bytes(np.ascontiguousarray(array)), True)
        return made

    def to_numpy(self) -> Array:
        """Copy the values to an ndarray; waits for the stream."""
        if not self.is_contiguous:
            raise Unsupported("to_numpy: the array is not in C order, expected contiguous values")
        made = np.empty(self.shape, self.dtype)
        _devices.copy(self.number, self.stream, self.address, _as_bytes(made), False)
        return made

    get = to_numpy

    @property
    def device(self) -> str:
        return f"{_devices.KIND}:{self.number}"

    @property
    def dtype_name(self) -> str:
        """Return ``dtype.name``, which NumPy takes long to build."""
        return self.view[1]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * int(self.dtype.itemsize)

    @property
    def view(self) -> View:
        """Return the array in the form that the C core accepts."""
        if self._view is None:
            name = "float32" if self.dtype.char == "f" else self.dtype.name
            self._view = self.address, name, self.shape, self.strides, self.number
        return self._view

    def rows(self, first: int, count: int) -> DeviceArray:
        """Return some indices of the first dimension; the memory is shared."""
        address, shape = self.address + first * self.strides[0], (count, *self.shape[1:])
        return DeviceArray(self, address, shape, self.dtype, self.strides, self.number, self.stream)

    def reshaped(self, shape: Sequence[int]) -> DeviceArray:
        """Return a contiguous array with another shape; the memory is shared."""
        strides = c_strides(shape, self.dtype.itemsize)
        return DeviceArray(self, self.address, shape, self.dtype, strides, self.number, self.stream)

    def transposed(self, axes: Sequence[int]) -> DeviceArray:
        """Return an array with its dimensions in another order; the memory is shared."""
        shape, strides = ([of[a] for a in axes] for of in (self.shape, self.strides))
        return DeviceArray(self, self.address, shape, self.dtype, strides, self.number, self.stream)

    @property
    def is_contiguous(self) -> bool:
        """Return whether the values are in C order."""
        return self.strides == c_strides(self.shape, self.dtype.itemsize)

    @property
    def T(self) -> DeviceArray:  # noqa: N802 (NumPy's name)
        """The array with its dimensions reversed; the memory is shared."""
        return self.transposed(range(self.ndim)[::-1])

    def _steps(self) -> tuple[int, ...] | None:
        return None if self.is_contiguous else self.strides

    def with_axis(self, axis: int) -> DeviceArray:
        """Return the array with a dimension of length 1 at a position; the memory is shared."""
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(axis, 1)
        strides.insert(axis, 0)
        return DeviceArray(self, self.address, shape, self.dtype, strides, self.number, self.stream)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Lend the memory; the values are complete for `stream` if that is not the array's stream."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("DeviceArray: __dlpack__ makes no copy; call to_numpy() for values on the CPU")
        if stream != -1 and (stream or DEFAULT_STREAM) != self.stream:
            _devices.wait(self.number, self.stream)
        items = tuple(step // self.dtype.itemsize for step in self.strides)
        kind, bits = _KINDS[self.dtype.kind], 8 * self.dtype.itemsize
        return _core.write_dlpack(self, self.number, self.address, kind, bits, self.shape, items)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        raise WrongType(f"an array on {self.device} has no values on the CPU: call to_numpy() for a copy")

    def __copy__(self) -> DeviceArray:
        return self.transposed(range(self.ndim))

    def __deepcopy__(self, memo: Any) -> DeviceArray:
        raise WrongType(f"copy: the array is on {self.device}, expected one on the CPU: call to_numpy() first")

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        raise WrongType(f"pickle: the array is on {self.device}, expected one on the CPU: call to_numpy() first")

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}, shape={self.shape}, device='{self.device}')"


def c_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides of a contiguous array in C order, in bytes."""
    if len(shape) == 2:  # most calls
        return (max(shape[1], 1) * itemsize, itemsize)
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def _as_bytes(array: Array) -> Array:
    """Return the memory of a contiguous array as bytes: buffers have no bfloat16."""
    return array.reshape(-1).view(np.uint8)


def is_on_device(value: Any) -> bool:
    """Tell whether a value is an array, of any library, in the memory of a device."""
    if isinstance(value, DeviceArray):
        return True
    return not (isinstance(value, np.ndarray) or value is None) and _devices.is_on_device(value)


def as_device(value: Any, name: str, stream: int | None = None) -> DeviceArray:
    """Return an array on a device without a copy; TypeError or ValueError says what is wrong with it.

    Parameters
    ----------
    value : object
        For which `is_on_device` is true.
    name : str
        Name of the argument in errors.
    stream : int, optional
        The stream that will use the array. Default: the stream of the array.
    """
    if isinstance(value, DeviceArray):
        if stream is not None and value.stream != stream:
            _devices.wait(value.number, value.stream)
        return value
    if getattr(value, "requires_grad", False) is True:
        word = name.split(": ")[-1]
        raise Unreadable(f"{name} is a tensor that requires a gradient, which would be lost here: pass {word}.detach()")
    if is_torch(value):
        return _waited_for(as_device_tensor(value, name), stream)
    owner, address, shape, word, strides, number, of_value = _devices.lent(value, name, stream)
    dtype = _dtype_named(word)
    made = DeviceArray(owner, address, shape, dtype, strides or c_strides(shape, dtype.itemsize), number, of_value)
    lasting = _devices.lasting_stream(value, made.stream) if type(made.stream) is int else made.stream
    if lasting is None:
        _devices.wait(made.number, made.stream)
    made.stream = DEFAULT_STREAM if lasting is None else lasting
    return _waited_for(made, stream)


def _waited_for(made: DeviceArray, stream: int | None) -> DeviceArray:
    if stream is not None and made.stream != stream:
        _devices.wait(made.number, made.stream)
    return made


def tensor_view(tensor: Any, name: str) -> tuple[int, View]:
    """Return the stream and the view, in the form that the C core accepts, of a tensor of PyTorch on a device.

    The stream is the current one of PyTorch. The tensor requires no gradient and has no pending negation.
    """
    kind = NAMES.get(tensor.dtype) or _name_of(tensor.dtype, name)
    try:
        number, size = tensor.get_device(), tensor.element_size()
        shape, strides = tuple(tensor.shape), tuple([step * size for step in tensor.stride()])
        view = tensor.data_ptr(), kind, shape, strides, number
    except RuntimeError as problem:  # no strided memory
        raise WrongType(f"{name}: the array cannot be read on its device ({problem})") from None
    return torch_stream(tensor, number), view


def _name_of(kind: Any, name: str) -> str:
    """Return the name of a PyTorch dtype, and store it in `NAMES` for later calls."""
    word = str(kind).removeprefix("torch.")
    if word not in _FLOATS:
        raise WrongType(f"{name} has dtype {word}, expected float16, bfloat16, float32 or float64")
    NAMES[kind] = word
    TORCH.update({name: getattr(sys.modules["torch"], name) for name in (*_FLOATS, "uint8")})
    return word


def as_device_tensor(tensor: Any, name: str) -> DeviceArray:
    """Read a tensor of PyTorch on a device that requires no gradient."""
    values = tensor.resolve_neg() if tensor.is_neg() else tensor
    stream, (address, word, shape, strides, number) = tensor_view(values, name)
    return DeviceArray(values, address, shape, _dtype_named(word), strides, number, stream)


def _dtype_named(word: Any) -> np.dtype[Any]:
    if word == "float32":
        return _float32
    if word == "bfloat16":
        import ml_dtypes  # 5 ms

        word = ml_dtypes.bfloat16
    found: np.dtype[Any] = np.dtype(word)
    return found


def in_callers_library(answer: DeviceArray, given: Any) -> Any:
    """Return an answer as an array of the argument's library, for PyTorch, CuPy and JAX; the memory is shared."""
    if is_torch(given):
        owner = answer._owner
        if type(owner) is type(given) and owner.shape == answer.shape and owner.dtype is TORCH.get(answer.dtype_name):
            return owner
        while isinstance(owner, DeviceArray):
            owner = owner._owner
        is_whole = is_torch(owner) and owner.data_ptr() == answer.address and owner.numel() == answer.size
        if is_whole and answer.strides == c_strides(answer.shape, answer.dtype.itemsize):
            return owner if owner.shape == answer.shape else owner.view(answer.shape)
        return sys.modules["torch"].from_dlpack(answer)
    cupy, jax = sys.modules.get("cupy"), sys.modules.get("jax")
    if cupy is not None and isinstance(given, getattr(cupy, "ndarray", ())):
        return cupy.from_dlpack(answer)  # asarray would wait for the stream
    if jax is not None and isinstance(given, getattr(jax, "Array", ())):
        return jax.dlpack.from_dlpack(answer)
    return answer
