"""The operators of `interop.torch` for tensors on a device, on the current stream of PyTorch.

    stream       the current one of PyTorch on that device
    memory       from PyTorch's allocator: results, and in a graph the scratch memory of kernels
    waiting      none, so that a graph can capture every call

A call that does not wait cannot raise for a value. So a value that the format lacks makes all NaN that depends on its
scale, as in the functions of heterocompute for arrays on a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ... import _heterocompute as _core
from ...arrays.components import core_format, stored_format
from ...arrays.device import c_strides
from ...arrays.memory import Memory
from ...base.devices import devices, raw_stream, wait
from ...base.errors import Refused, WrongType, WrongValue, refusals, unsupported
from ...base.runtime import run_on
from ...base.texts import counted
from ...formats import Format, has_pattern
from ...products.arguments import as_format
from ...products.window import as_window, check_channels
from ...training.device import device_passed, device_rounded

NAMES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
# The components are tensors. With them may be "panels", the result of `prepacked`.
Packed = tuple[Format, tuple[int, ...], tuple[int, ...], Mapping[str, Any]]
PANELS = "panels"


def product(x: Any, q: Packed, activations: str) -> Any:
    """Return ``x @ q.T`` as float32."""
    n, k = q[1]
    if x.dim() == 0 or x.shape[-1] != k:
        had = f"{counted(x.shape[-1], 'feature')}" if x.dim() else "no dimensions"
        raise WrongValue(f"linear: x has {had} but q has {counted(k, 'column')}")
    fmt = as_format(activations, "linear: activations") if activations else None
    shape = (*x.shape[:-1], n)
    y = x.new_empty(shape, dtype=torch.float32)
    if 0 in shape:
        return y
    rows, answer = _view(x), (y.data_ptr(), "float32", shape, c_strides(shape, 4), x.get_device())
    if len(shape) == 1:
        rows = *rows[:2], (1, k), (0, *rows[3]), rows[4]
        answer = *answer[:2], (1, n), (0, *answer[3]), answer[4]
    weights, core = _packed(q, x, True), None if fmt is None else core_format(fmt)
    try:
        _core.matmul(Tensors(x).run(), rows, weights, core, None, answer)
    except (NotImplementedError, Refused):
        with _refusals("linear", fmt):  # entering it takes longer than the call
            raise
    return y


def convolved(x: Any, q: Packed, window: Any, activations: str) -> Any:
    """Return the float32 convolution of images (N, C, H, W); window is stride, padding, dilation and groups."""
    stride, padding, dilation, groups = window
    where = as_window("conv2d", x.shape[2:], q[1][2:], stride, padding, dilation, groups, x.shape[1])
    check_channels("conv2d", where, x.shape[1], q[1])
    fmt = as_format(activations, "conv2d: activations") if activations else None
    y = x.new_empty((x.shape[0], q[1][0], *where.answer), dtype=torch.float32)
    if y.numel() == 0:
        return y
    with _refusals("conv2d", fmt):
        core = None if fmt is None else core_format(fmt)
        sizes = where.stride, where.before, where.dilation, where.groups
        _core.conv2d(Tensors(x).run(), _view(x), _packed(q, x), None, *sizes, core, _view(y))
    return y


def decoded(q: Packed) -> Any:
    """Return the float32 values of a packed weight."""
    first = next(iter(q[3].values()))
    y = first.new_empty(q[1], dtype=torch.float32)
    if y.numel():
        with _refusals("dequantize", q[0]):
            _core.dequantize(Tensors(first).run(), _packed(q, first), _view(y))
    return y


def prepacked(q: Packed, most: float, old: Any = None) -> Any:
    """Return what integer matmuls read in place of the components, or None; waits for it once.

    Parameters
    ----------
    most : float
        Panels of more bytes are not made.
    old : torch.Tensor, optional
        Earlier panels, whose memory is used again if the size is the same.
    """
    first, made = next(iter(q[3].values())), list[Any]()

    def allocate(nbytes: int) -> int:
        if nbytes > most:
            raise _TooLarge
        fits = old is not None and old.device == first.device and old.numel() == nbytes
        made.append(old if fits else first.new_empty(nbytes, dtype=torch.uint8))
        return int(made[0].data_ptr())

    memory = Tensors(first)
    try:
        _core.prepack(run_on(memory.number, memory.stream, allocate), _packed(q, first))
    except _TooLarge:
        return None
    if made:
        memory.wait()  # calls on other streams may follow
    return made[0] if made else None


class _TooLarge(Exception):
    pass


def rounded(t: Any, fmt: Format, axes: tuple[int, ...], clip: object, rounding: str, seed: int) -> tuple[Any, Any]:
    """Return the rounded values in the dtype of t, and the note of their gradient; an empty one for all of it."""
    y, note = device_rounded(Tensors(t), _view(t), fmt, axes, clip, rounding, seed)
    return y.to(t.dtype), t.new_empty(0, dtype=torch.uint8) if note is None else note


def nearest(t: Any, fmt: Format, axes: tuple[int, ...]) -> Any:
    """Return the values rounded to nearest, in the dtype of t."""
    if has_pattern(fmt) or t.numel() == 0:
        return rounded(t, fmt, axes, None, "nearest", 0)[0]
    shape = tuple(t.shape)
    y = t.new_empty(shape, dtype=torch.float32)
    to = y.data_ptr(), "float32", shape, c_strides(shape, 4), t.get_device()
    try:
        _core.fake_quantize(Tensors(t).run(), _view(t), core_format(fmt), axes, None, to)
    except (NotImplementedError, Refused):
        with _refusals("fake_quantize", fmt):
            raise
    return y if t.dtype is torch.float32 else y.to(t.dtype)


def passed(g: Any, note: Any) -> Any:
    """Return the passing part of a gradient, in the dtype of g."""
    return device_passed(Tensors(g), _view(g), note).to(g.dtype)


@contextmanager
def _refusals(name: str, fmt: object) -> Iterator[None]:
    """Add the caller, its format and the copy to the CPU to errors of the core."""
    try:
        with refusals(format=(f"{name}: {fmt}", None)):
            yield
    except NotImplementedError as problem:
        raise unsupported(name, problem) from None


_is_open = list[bool]()


class Tensors(Memory):
    """The memory of PyTorch on the device of a tensor, and the current stream there.

    Memory that a call allocates in a graph, or much of it, is kept until the object dies: later work of the stream may
    reuse it.
    """

    __slots__ = ("kept", "near", "number", "stream")

    def __init__(self, near: Any) -> None:
        if not _is_open:
            devices()  # opens the driver
            _is_open.append(True)
        self.near, self.number, self.kept = near, near.device.index or 0, list[Any]()
        self.stream = raw_stream(self.number)

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        return self.near.new_empty(shape, dtype=getattr(torch, dtype))

    def run(self, waits: bool = True) -> tuple[Any, ...]:
        return run_on(self.number, self.stream, self.allocate)

    def allocate(self, nbytes: int) -> int:
        self.kept.append(self.near.new_empty(nbytes, dtype=torch.uint8))
        return int(self.kept[-1].data_ptr())

    def view(self, array: object) -> Any:
        return _view(array)

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

    def wait(self) -> None:
        wait(self.number, self.stream)


def _view(t: Any) -> tuple[int, str, tuple[int, ...], tuple[int, ...], int]:
    """Return a tensor in the form that the core accepts; it must not have a pending negation."""
    size = t.element_size()
    return t.data_ptr(), NAMES[t.dtype], tuple(t.shape), tuple([step * size for step in t.stride()]), t.get_device()


def _packed(q: Packed, near: Any, turned: bool = False) -> tuple[Any, ...]:
    """Return a packed weight, or its transpose, in the form that the core accepts; its components are contiguous."""
    fmt, shape, axis, parts = q
    number, addresses = near.get_device(), {}
    for name, part in parts.items():
        if part.get_device() != number:
            raise WrongType(
                f"interop.torch: the packed weight is on {part.device}, expected {near.device}: move the model there"
            )
        addresses[name] = part.data_ptr()
    if "values" in parts:
        fmt, addresses["codes"] = stored_format(fmt, NAMES[parts["values"].dtype]), addresses["values"]
    panels = addresses.pop(PANELS, 0)
    if turned:
        shape, axis = shape[::-1], (1 - axis[0],)
    return core_format(fmt), shape, axis, addresses, panels, number
