"""Memory of arrays: that of the host, or that of a device on one of its streams. An array's components share one.

memory.empty(shape, dtype)    an array with unset values
memory.run()                  the settings with which the C core computes there
memory.view(array)            an array in the form that the core accepts
memory.wait()                 until the values are complete
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import devices, runtime
from ..base.errors import WrongType
from .dense import core_view
from .device import DEFAULT_STREAM, DeviceArray

Array = np.ndarray[Any, Any]


class Memory:
    """The memory of the host."""

    __slots__ = ()

    number: Any = None  # of the device, an int
    stream: int = 0

    @property
    def name(self) -> str:
        return "cpu"

    def empty(self, shape: Sequence[int], dtype: object) -> Any:
        return np.empty(shape, dtype)

    def copied(self, array: Array) -> Any:
        """Return the values of an ndarray in this memory."""
        return array

    def run(self, waits: bool = True) -> tuple[Any, ...]:
        """Return the settings of a call; with `waits` a call that makes packed arrays reports invalid values."""
        return runtime.run()

    def view(self, array: Any) -> Any:
        return core_view(array)

    def address(self, array: object) -> int:
        raise WrongType("an array of the host has no address on a device")

    def wait(self) -> None:
        """Wait until all values of the memory are complete."""


class DeviceMemory(Memory):
    """The memory of a device, allocated and freed on one stream."""

    __slots__ = ("number", "stream")

    def __init__(self, number: int, stream: int = DEFAULT_STREAM) -> None:
        self.number = number
        self.stream = stream

    @property
    def name(self) -> str:
        return f"{devices.KIND}:{self.number}"

    def empty(self, shape: Sequence[int], dtype: object) -> DeviceArray:
        return DeviceArray.empty(shape, dtype, self.number, self.stream)

    def copied(self, array: Array) -> DeviceArray:
        return DeviceArray.from_numpy(array, self.number, self.stream)

    def run(self, waits: bool = True) -> tuple[Any, ...]:
        return runtime.run_on(self.number, self.stream, None if waits else True)

    def view(self, array: Any) -> Any:
        return array.view

    def address(self, array: Any) -> int:
        return int(array.address)

    def wait(self) -> None:
        devices.wait(self.number, self.stream)


HOST = Memory()


def memory_of(array: object) -> Memory:
    """Return the memory of an ndarray or a DeviceArray."""
    return DeviceMemory(array.number, array.stream) if isinstance(array, DeviceArray) else HOST
