"""The CUDA driver, opened on first use: its devices, or the reason why there are none. Importing opens nothing."""

from __future__ import annotations

import os
from typing import NamedTuple

from ... import _heterocompute as _core
from ..errors import Unsupported, WrongValue, shown
from ..texts import one_line
from . import kernels

KIND, NAME, A_DEVICE = "cuda", "CUDA", "a CUDA device"  # of names such as "cuda:0", and in messages
hold, copy, move, wait = _core.cuda_hold, _core.cuda_copy, _core.cuda_move, _core.cuda_wait
place, check = _core.cuda_place, _core.cuda_check

DRIVER = "libcuda.so.1"


class Device(NamedTuple):
    """A CUDA device.

    Attributes
    ----------
    name : str
    major, minor : int
        Compute capability.
    nbytes : int
        Bytes of memory.
    """

    name: str
    major: int
    minor: int
    nbytes: int


_open: dict[str, tuple[int, tuple[Device, ...]]] = {}  # drivers of this process by path


def _driver() -> tuple[int, tuple[Device, ...]]:
    """Return the version of the driver and its devices."""
    path = os.environ.get("HETEROCOMPUTE_CUDA_DRIVER") or DRIVER
    if path not in _open:
        if _open:
            raise Unsupported(f"{KIND}: this process uses the driver {shown(next(iter(_open)))} already")
        try:
            version, found, has_kernels = _core.cuda_open(path)
        except (NotImplementedError, RuntimeError) as problem:  # its text has the path
            raise type(problem)(one_line(str(problem))) from None
        if not has_kernels:  # which a driver of the tests has
            for name, image in kernels.read().items():
                _core.cuda_give(name.encode(), image)
        _open[path] = version, tuple(Device(*one) for one in found)
    return _open[path]


def has_device() -> bool:
    """Tell whether there is a CUDA device, and kernels for it."""
    try:
        return bool(devices())
    except (NotImplementedError, RuntimeError):
        return False


def devices() -> tuple[Device, ...]:
    """Return the CUDA devices, by number.

    Raises
    ------
    NotImplementedError
        There are no kernels (heterocompute-cuda), no driver or no device. The message says which.
    """
    return _driver()[1]


def check_device(number: int, name: str) -> int:
    """Return the number of a device; ValueError if the driver has fewer."""
    found = devices()
    if not 0 <= number < len(found):
        raise WrongValue(f"{name}: there is no device '{KIND}:{number}', the driver has {len(found)}")
    return number


def driver_text() -> str:
    """Return one line about CUDA: the kernels, the driver and the devices, or why there are none."""
    try:
        version, found = _driver()
    except (NotImplementedError, RuntimeError) as problem:
        reason = str(problem).removeprefix(f"{KIND}: ")
        return f"{kernels.described()}{reason}"
    listed = ", ".join(f"{KIND}:{i} {one.name} (sm_{one.major}{one.minor})" for i, one in enumerate(found))
    return f"{kernels.described()}driver {version // 1000}.{version % 1000 // 10}; {listed}"


def device_number(name: object, caller: str) -> int | None:
    """Return the number of a device named ``"cuda"`` or ``"cuda:1"``, None for ``"cpu"``."""
    text = str(name)
    kind, colon, number = text.partition(":")
    if text == "cpu":
        return None
    if kind != KIND or (colon and not (number.isdecimal() and len(number) < 6)):
        raise WrongValue(f"{caller}: device is {shown(name)}, expected 'cpu', '{KIND}' or '{KIND}:<number>'")
    return check_device(int(number or 0), caller)
