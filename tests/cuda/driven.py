"""The fake driver of host/fake_driver.cpp, built and opened, and arrays of a library that lends its memory on a device.

With HETEROCOMPUTE_TEST_DEVICE=1 the tests use the real driver. They skip what it has not: counts and failures for
tests, streams of other libraries, a second device.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import hashlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import emulated
import numpy as np
import pytest

from heterocompute import _heterocompute as core
from heterocompute.arrays.device import c_strides
from heterocompute.base.devices import devices

SOURCE = emulated.HOST.with_name("fake_driver.cpp")
IS_REAL = os.environ.get("HETEROCOMPUTE_TEST_DEVICE") == "1"


def of_the_fake_driver(what: str) -> None:
    """Skip a test on a real device."""
    if IS_REAL:
        pytest.skip(f"a real device has no {what}")


@functools.cache
def environment(*flags: str) -> dict[str, str]:
    """Build the fake driver, with more flags of the compiler; return the variables that make a process use it."""
    of_the_fake_driver("process with another driver")
    kernels = emulated.kernels()._name
    cxx = shlex.split(os.environ.get("CXX", "c++"))
    if not shutil.which(cxx[0]):
        pytest.skip("no C++ compiler")
    made_of = [SOURCE, *sorted((emulated.ROOT / "csrc/cuda").glob("*.h"))]
    text = "\0".join([*cxx, *emulated.FLAGS, *flags, *(path.read_text() for path in made_of)])
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]
    library = Path(tempfile.gettempdir(), f"heterocompute-fake-driver-{os.getuid()}-{digest}.so")
    if not library.exists():
        emulated.build([*cxx, *flags], [SOURCE], library)
    return {"HETEROCOMPUTE_CUDA_DRIVER": str(library), "FAKE_DRIVER_KERNELS": kernels}


class Driver:
    """Counts of the fake driver."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.fake_driver_live_bytes.restype = ctypes.c_size_t
        self.library.fake_driver_last_stream.restype = ctypes.c_void_p
        self.library.fake_driver_fault.restype = ctypes.c_char_p

    def live_bytes(self) -> int:
        return int(self.library.fake_driver_live_bytes())

    def fault(self) -> str:
        """Return what a call did that the real driver does not survive, or nothing."""
        return str(self.library.fake_driver_fault().decode())

    def last_stream(self) -> int:
        """Return the stream of the last launch."""
        return int(self.library.fake_driver_last_stream() or 0)

    def counts(self) -> tuple[int, int, int, int]:
        """Return launches, copies to the device, copies back, and how often the host waited for a stream."""
        found = (ctypes.c_int * 4)()
        self.library.fake_driver_counts(found)
        return tuple(found)  # type: ignore[return-value]


class RealDriver:
    """Skips the tests that ask the fake driver."""

    def __getattr__(self, name: str) -> Any:
        return lambda: of_the_fake_driver(name)


def used(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Use the fake driver, until the patches are undone, or the real one."""
    if IS_REAL:
        plain = monkeypatch.setenv

        def setenv(name: str, value: str, prepend: str | None = None) -> None:
            if name.startswith("FAKE_DRIVER_"):
                of_the_fake_driver(name)
            plain(name, value, prepend)

        monkeypatch.setattr(monkeypatch, "setenv", setenv)
        devices()
        return RealDriver()
    paths = environment()
    for name, value in paths.items():
        monkeypatch.setenv(name, value)
    devices()
    return Driver(paths["HETEROCOMPUTE_CUDA_DRIVER"])


def without_leaks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Use the fake driver for a test, which must free all that it allocates."""
    driver = used(monkeypatch)
    if IS_REAL:
        yield driver
        return
    gc.collect()
    before = driver.live_bytes()
    yield driver
    gc.collect()
    assert driver.live_bytes() == before


class Lent:
    """An array of another library on a device, with ``__cuda_array_interface__`` alone."""

    def __init__(self, array: np.ndarray[Any, Any], device: int = 0, **changed: Any) -> None:
        if device > 0 or changed.get("stream", 1) not in (None, 1, 2):
            of_the_fake_driver("second device or stream with such a number")
        self.device, self.shape = device, array.shape
        memory = np.ascontiguousarray(array)
        self.address = core.cuda_allocate(device, 1, memory.nbytes)
        core.cuda_copy(device, 1, self.address, memory.reshape(-1).view(np.uint8), True)
        data = (self.address, False)
        found = {"shape": array.shape, "typestr": array.dtype.str, "data": data, "version": 3, "stream": 1}
        self.__cuda_array_interface__ = {**found, **changed}

    def __del__(self) -> None:
        if hasattr(self, "address"):
            core.cuda_free(self.device, 1, self.address)


class LentByDlpack:
    """An array of another library on a device, with DLPack alone."""

    def __init__(self, array: np.ndarray[Any, Any], code: int = 2, device: int = 0) -> None:
        self.lent, self.device, self.code, self.itemsize = Lent(array, device), device, code, array.itemsize
        self.shape = array.shape
        self.asked: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device

    def __dlpack__(self, stream: Any = None) -> object:
        self.asked.append(stream)
        items = c_strides(self.shape, 1)
        lent = self.lent
        return core.write_dlpack(lent, self.device, lent.address, self.code, 8 * self.itemsize, self.shape, items)


class Imported(Lent):
    """An array of a stand-in for CuPy or JAX: it shares the memory of what it was made from."""

    def __init__(self, array: Any) -> None:
        if isinstance(array, np.ndarray):
            super().__init__(array)
        else:
            self.lent, self.shape = array, array.shape
            self.__cuda_array_interface__ = array.__cuda_array_interface__

    def __del__(self) -> None:
        if not hasattr(self, "lent"):
            super().__del__()

    def get(self) -> np.ndarray[Any, Any]:
        found = self.__cuda_array_interface__
        made = np.empty(found["shape"], found["typestr"])
        core.cuda_copy(0, 1, found["data"][0], made.reshape(-1).view(np.uint8), False)
        return made


class StandInStream:
    """A stream that ends with its object, as CuPy's; `owner` learns of it."""

    ptr = 77

    def __init__(self, owner: StandIn) -> None:
        of_the_fake_driver("stream with such a number")
        self.owner, self.driver = owner, ctypes.CDLL(environment()["HETEROCOMPUTE_CUDA_DRIVER"])
        self.driver.fake_driver_create_stream(ctypes.c_void_p(self.ptr))

    def __enter__(self) -> StandInStream:
        self.owner.current = self
        return self

    def __exit__(self, *_: object) -> None:
        core.cuda_wait(0, self.ptr)
        self.owner.current = None

    def __del__(self) -> None:
        if not hasattr(self, "driver"):
            return
        self.driver.fake_driver_destroy_stream(ctypes.c_void_p(self.ptr))
        self.owner.destroyed.append(self.ptr)


class StandIn:
    """What a program calls of CuPy or JAX; `taken` are the streams on which it asked for arrays of others."""

    Array = ndarray = Imported

    def __init__(self, stream: int = 1) -> None:
        if stream > 2:
            of_the_fake_driver("stream with such a number")
        self.stream, self.taken, self.dlpack, self.cuda = stream, list[int](), self, self
        self.destroyed: list[int] = []  # streams
        self.current: Any = None
        self.Stream = functools.partial(StandInStream, self)

    def get_current_stream(self) -> Any:
        return self.current

    def asarray(self, array: np.ndarray[Any, Any]) -> Imported:
        made = Imported(array)
        made.__cuda_array_interface__["stream"] = self.current.ptr if self.current else 1
        return made

    def from_dlpack(self, array: Any) -> Imported:
        assert array.__dlpack_device__() == (2, 0)
        self.taken.append(self.stream)
        array.__dlpack__(stream=self.stream)
        return Imported(array)
