"""CUDA streams of other libraries, as numbers that keep alive what they stand for.

Memory is freed on the stream that it was allocated on. So the stream must live as long as the memory:

    CuPy, Numba    the number holds the library's stream object
    PyTorch        memory comes from PyTorch's allocator
    others         unknown: streams 1 and 2 live as long as the process; others are waited for, and not used
"""

from __future__ import annotations

import sys
from typing import Any

DEFAULT_STREAM, PER_THREAD = 1, 2  # CU_STREAM_LEGACY, CU_STREAM_PER_THREAD


class Stream(int):
    """A stream as a number that holds the stream object of its library.

    Attributes
    ----------
    owner : object
    """

    owner: Any

    def tensor(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return memory of the stream's library, or None for libraries whose allocator is not used."""
        return None


class TorchStream(Stream):
    """A stream of PyTorch. `owner` is an empty tensor on its device."""

    number: int

    def tensor(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an unset tensor, or None if the stream is not the current one or PyTorch lacks the dtype."""
        if raw_stream(self.number) != self:
            return None
        kind = TORCH.get(dtype)
        return None if kind is None else self.owner.new_empty(shape, dtype=kind)


NAMES: dict[Any, str] = {}  # of dtypes of PyTorch that were read
TORCH: dict[str, Any] = {}  # dtypes of PyTorch, once one was read
_torch_streams: dict[tuple[int, int], TorchStream] = {}


def is_torch(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def is_far(tensor: Any) -> bool:
    """Tell whether a tensor of PyTorch is on such a device."""
    return bool(tensor.is_cuda)


def is_device_tensor(value: Any) -> bool:
    """Tell whether a value is a plain tensor of PyTorch on a CUDA device, without a gradient or a pending negation."""
    torch = sys.modules.get("torch")
    is_plain = torch is not None and type(value) is torch.Tensor and value.is_cuda
    return is_plain and not value.requires_grad and not value.is_neg()


def raw_stream(number: int) -> int:
    """Return the number of PyTorch's current stream on a device."""
    torch = sys.modules["torch"]
    try:
        raw = torch._C._cuda_getCurrentRawStream(number)
    except AttributeError:  # not part of PyTorch's interface; it takes a tenth of the time
        raw = torch.cuda.current_stream(number).cuda_stream
    return int(raw) or DEFAULT_STREAM


def torch_stream(tensor: Any, number: int) -> TorchStream:
    """Return the current stream of PyTorch on the device of a tensor."""
    raw = raw_stream(number)
    found = _torch_streams.get((number, raw))
    if found is None:
        found = TorchStream(raw)
        found.owner, found.number = tensor.new_empty(0), number
        _torch_streams[number, raw] = found
    return found


def lasting_stream(array: object, stream: int) -> int | None:
    """Return the stream of an array of CuPy, Numba or another library, or None if it may be destroyed at any time."""
    if stream in (DEFAULT_STREAM, PER_THREAD):
        return stream
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, getattr(cupy, "ndarray", ())):
        owner = cupy.cuda.get_current_stream()
        if int(owner.ptr) != stream:
            return None
    else:
        owner = getattr(array, "stream", None)  # of Numba: 0, or an object
        if owner is None or isinstance(owner, int):
            return None
    made = Stream(stream)
    made.owner = owner
    return made
