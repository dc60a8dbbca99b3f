"""Arrays in the memory of a CUDA device: those of other libraries, read in place, and our own.

Other libraries are never imported: an array is recognized by ``__dlpack__`` and ``__cuda_array_interface__``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..base.cuda import check_device
from ..base.errors import Unsupported, WrongType, WrongValue, shown
from .foreign import Unreadable, exports_dlpack
from .streams import DEFAULT_STREAM, NAMES, TORCH, is_torch, lasting_stream, torch_stream

__all__ = [
    "DEFAULT_STREAM",
    "DeviceArray",
    "as_device",
    "c_strides",
    "device_number",
    "in_callers_library",
    "is_on_device",
    "is_tensor_there",
    "tensor_there",
    "tensor_view",
]

Array = np.ndarray[Any, Any]

_CUDA, _CUDA_MANAGED = 2, 13  # types of devices in DLPack
_KINDS = {"f": 2, "i": 0, "u": 1, "V": 4}  # kinds of numbers in DLPack; bfloat16 is V in NumPy
_float32 = np.dtype(np.float32)
_Float32 = type(_float32)
_FLOATS = {(2, 16): "float16", (2, 32): "float32", (2, 64): "float64", (4, 16): "bfloat16"}
_TYPES = {"<f2": "float16", "<f4": "float32", "<f8": "float64"}


class DeviceArray:
    """An array in the memory of a CUDA device.

    Functions of heterocompute return it for arrays of the device. CuPy, PyTorch, JAX and Numba read it without a copy
    through ``__cuda_array_interface__`` and ``__dlpack__``.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
    strides : tuple of int
        In bytes.
    device : str
        Such as ``"cuda:0"``.
    stream : int
        The CUDA stream that the values are computed on. A stream that the caller gave as a plain number must exist as
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
        owner, address = _core.cuda_hold(number, stream, prod(shape) * dtype.itemsize)
        return cls(owner, address, shape, dtype, strides, number, stream)

    @classmethod
    def from_numpy(cls, array: Array, number: int = 0, stream: int = DEFAULT_STREAM) -> DeviceArray:
        """Copy an ndarray to a device."""
        made = cls.empty(array.shape, array.dtype, number, stream)
        _core.cuda_copy(number, stream, made.address, _as_bytes(np.ascontiguousarray(array)), True)
        return made

    def to_numpy(self) -> Array:
        """Copy the values to an ndarray; waits for the stream."""
        if self.strides != c_strides(self.shape, self.dtype.itemsize):
            raise Unsupported("to_numpy: the array is not in C order, expected contiguous values")
        made = np.empty(self.shape, self.dtype)
        _core.cuda_copy(self.number, self.stream, self.address, _as_bytes(made), False)
        return made

    get = to_numpy

    @property
    def device(self) -> str:
        return f"cuda:{self.number}"

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
        return self.size * self.dtype.itemsize

    @property
    def view(self) -> tuple[int, str, tuple[int, ...], tuple[int, ...]]:
        """Return the array in the form that the C core accepts."""
        try:
            return self._view
        except AttributeError:
            name = "float32" if self.dtype.char == "f" else self.dtype.name
            self._view: tuple[int, str, tuple[int, ...], tuple[int, ...]] = (
                self.address,
                name,
                self.shape,
                self.strides,
            )
            return self._view

    def reshaped(self, shape: Sequence[int]) -> DeviceArray:
        """Return a contiguous array with another shape; the memory is shared."""
        strides = c_strides(shape, self.dtype.itemsize)
        return DeviceArray(self, self.address, shape, self.dtype, strides, self.number, self.stream)

    def transposed(self, axes: Sequence[int]) -> DeviceArray:
        """Return an array with its dimensions in another order; the memory is shared."""
        shape, strides = ([of[a] for a in axes] for of in (self.shape, self.strides))
        return DeviceArray(self, self.address, shape, self.dtype, strides, self.number, self.stream)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.name == "bfloat16":
            raise AttributeError("__cuda_array_interface__ has no bfloat16: use __dlpack__")
        data = (self.address if self.size else 0, False)
        found = {"shape": self.shape, "typestr": self.dtype.str, "data": data, "version": 3}
        strides = None if self.strides == c_strides(self.shape, self.dtype.itemsize) else self.strides
        return {**found, "strides": strides, "stream": int(self.stream)}

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self.number

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
            _core.cuda_wait(self.number, self.stream)
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
    """Tell whether a value is an array, of any library, in the memory of a CUDA device."""
    if isinstance(value, DeviceArray):
        return True
    if isinstance(value, np.ndarray) or value is None:
        return False
    if is_torch(value):
        return bool(value.is_cuda)
    if exports_dlpack(value):
        try:
            return value.__dlpack_device__()[0] in (_CUDA, _CUDA_MANAGED)
        except (BufferError, RuntimeError, TypeError, ValueError):
            return False
    return _has_interface(value)


def _has_interface(value: Any) -> bool:
    try:
        return hasattr(value, "__cuda_array_interface__")
    except (RuntimeError, TypeError, ValueError):  # a dtype that the interface lacks
        return False


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
            _core.cuda_wait(value.number, value.stream)
        return value
    if getattr(value, "requires_grad", False) is True:
        word = name.split(": ")[-1]
        raise Unreadable(f"{name} is a tensor that requires a gradient, which would be lost here: pass {word}.detach()")
    if is_torch(value):
        return _waited_for(tensor_there(value, name), stream)
    made = _from_interface(value, name) if _has_interface(value) else _from_dlpack(value, name, stream)
    if made.size:
        place = _core.cuda_place(made.address)
        if place < 0:
            raise WrongValue(f"{name}: its address is not in the memory of a CUDA device")
        if place != made.number:
            made = DeviceArray(made, made.address, made.shape, made.dtype, made.strides, place, made.stream)
    if any(n < 0 for n in made.shape) or len(made.shape) != len(made.strides):
        raise WrongValue(
            f"{name} has shape {shown(made.shape)} and strides {shown(made.strides)}, expected one for each"
        )
    size = made.dtype.itemsize
    if made.address % size or any(step % size for step, n in zip(made.strides, made.shape, strict=True) if n > 1):
        raise WrongValue(f"{name}: its values are not aligned, expected addresses that are multiples of {size}")
    lasting = lasting_stream(value, made.stream) if type(made.stream) is int else made.stream
    if lasting is None:
        _core.cuda_wait(made.number, made.stream)
    made.stream = DEFAULT_STREAM if lasting is None else lasting
    return _waited_for(made, stream)


def _waited_for(made: DeviceArray, stream: int | None) -> DeviceArray:
    if stream is not None and made.stream != stream:
        _core.cuda_wait(made.number, made.stream)
    return made


def is_tensor_there(value: Any) -> bool:
    """Tell whether a value is a plain tensor of PyTorch on a CUDA device, without a gradient or a pending negation."""
    torch = sys.modules.get("torch")
    is_plain = torch is not None and type(value) is torch.Tensor and value.is_cuda
    return is_plain and not value.requires_grad and not value.is_neg()


def tensor_view(tensor: Any, name: str) -> tuple[int, int, tuple[int, str, tuple[int, ...], tuple[int, ...]]]:
    """Return device, stream and view, in the form that the C core accepts, of a tensor of PyTorch on a CUDA device.

    The stream is the current one of PyTorch. The tensor requires no gradient and has no pending negation.
    """
    kind = NAMES.get(tensor.dtype) or _name_of(tensor.dtype, name)
    try:
        number, size = tensor.get_device(), tensor.element_size()
        view = tensor.data_ptr(), kind, tuple(tensor.shape), tuple([step * size for step in tensor.stride()])
    except RuntimeError as problem:  # no strided memory
        raise WrongType(f"{name}: the array cannot be read on its device ({problem})") from None
    return number, torch_stream(tensor, number), view


def _name_of(kind: Any, name: str) -> str:
    """Return the name of a dtype of PyTorch, the first time that it is asked for."""
    word = str(kind).removeprefix("torch.")
    if word not in _FLOATS.values():
        raise WrongType(f"{name} has dtype {word}, expected float16, bfloat16, float32 or float64")
    NAMES[kind] = word
    TORCH.update({name: getattr(sys.modules["torch"], name) for name in (*_FLOATS.values(), "uint8")})
    return word


def tensor_there(tensor: Any, name: str) -> DeviceArray:
    """Read a tensor of PyTorch on a CUDA device that requires no gradient."""
    values = tensor.resolve_neg() if tensor.is_neg() else tensor
    number, stream, (address, word, shape, strides) = tensor_view(values, name)
    dtype = _float32 if word == "float32" else _bfloat16() if word == "bfloat16" else np.dtype(word)
    return DeviceArray(values, address, shape, dtype, strides, number, stream)


def _from_interface(value: Any, name: str) -> DeviceArray:
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
    if typestr not in _TYPES:
        raise WrongType(f"{name} has dtype {shown(typestr)}, expected float16, bfloat16, float32 or float64")
    dtype = np.dtype(_TYPES[typestr])
    number = max(_core.cuda_place(address), 0) if address else 0
    return DeviceArray(value, address, shape, dtype, steps or c_strides(shape, dtype.itemsize), number, stream)


def _from_dlpack(value: Any, name: str, stream: int | None) -> DeviceArray:
    try:
        owner, kind, number, address, code, bits, shape, items = _core.read_dlpack(
            value.__dlpack__(stream=stream or DEFAULT_STREAM)
        )
    except (BufferError, RuntimeError, TypeError, ValueError) as problem:
        raise WrongType(f"{name}: the array cannot be read on its device ({problem})") from None
    if kind not in (_CUDA, _CUDA_MANAGED):
        raise WrongType(f"{name}: DLPack gives memory of another kind of device, expected CUDA")
    if (code, bits) not in _FLOATS:
        kinds = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
        given = f"{kinds.get(code, 'a type of DLPack of ')}{bits}"
        raise WrongType(f"{name} has dtype {given}, expected float16, bfloat16, float32 or float64")
    dtype = _bfloat16() if code == 4 else np.dtype(_FLOATS[code, bits])
    strides = tuple(step * dtype.itemsize for step in items)
    return DeviceArray(owner, address, shape, dtype, strides, number, stream or DEFAULT_STREAM)


def _bfloat16() -> np.dtype[Any]:
    import ml_dtypes  # 5 ms

    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found


def device_number(name: Any, caller: str) -> int | None:
    """Return the number of a device named ``"cuda"`` or ``"cuda:1"``, None for ``"cpu"``."""
    text = str(name)
    kind, colon, number = text.partition(":")
    if text == "cpu":
        return None
    if kind != "cuda" or (colon and not (number.isdecimal() and len(number) < 6)):
        raise WrongValue(f"{caller}: device is {shown(name)}, expected 'cpu', 'cuda' or 'cuda:<number>'")
    return check_device(int(number or 0), caller)


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
