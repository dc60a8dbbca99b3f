"""Shared code of the tests: example formats, instruction sets of this machine, data by seed, guarded buffers."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute import _heterocompute as core, reference
from heterocompute.base import writer
from heterocompute.cli import command as cli

HANG = 600  # seconds after which a process of about one second counts as hanging, even on a busy machine

FORMATS = [text for family in hc.Format.families() for text in family.examples]


def codes_of(kind: Any, values: Any, saturate: bool = True) -> Any:
    """Return the code of each float64 as an element's table says, which the core reads."""
    table, values = kind.table(saturate), np.asarray(values, np.float64)
    codes = table.ranked[np.searchsorted(table.bounds, values, side="left")]
    if table.minus_zero is not None:
        codes = np.where((values == 0) & np.signbit(values), table.minus_zero, codes)
    if table.nan is None:
        return codes
    return np.where(np.isnan(values) | (values < table.lowest), table.nan, codes)


@contextmanager
def bad_argument(
    kind: type[Exception] | tuple[type[Exception], ...], argument: str | None, reason: str, match: str | None = None
) -> Iterator[Any]:
    """Expect an error of one argument, or of None, for a reason; `match`: what the message has to state as well."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert isinstance(caught.value, hc.ArgumentError), caught.value
    assert (caught.value.argument, caught.value.reason) == (argument, reason), caught.value


def default_signals() -> None:
    """Undo, as a `preexec_fn`, what a child inherits: `pytest &` in a script ignores SIGINT, `nohup pytest` SIGHUP."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[Any, str, str]:
    """Return (exit code, stdout, stderr) of a command in this process."""
    try:
        code: Any = cli.main([str(argument) for argument in arguments])
    except SystemExit as exit:
        code = exit.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_until(step: int, call: Callable[[], object]) -> bool:
    """Run in a child that is killed at the n-th call that changes files; return whether the child finished."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        left = step

        def count(event: str, *_: object) -> None:
            nonlocal left
            if event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "write", "shutil.rmtree"):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        for name in ("_write_at", "__exit__"):
            write = getattr(writer.Writer, name)
            setattr(writer.Writer, name, lambda *a, write=write: (count("write"), write(*a))[1])
        call()
        os._exit(0)
    finally:
        os._exit(1)


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def takes(fmt: hc.Format, value: float, clip: Any = None) -> bool:
    """Tell whether the definition of the format accepts this value with this clip."""
    try:
        reference.quantize(np.array([value]), fmt, 0, clip)
    except ValueError:
        return False
    return True


def isas(*prefixes: str) -> list[str]:
    """Return the instruction sets of this machine, scalar first, up to HETEROCOMPUTE_ISA if that is set.

    With prefixes, return only the sets that select other kernels than the sets before, among the families whose names
    begin with a prefix.
    """
    widest = os.environ.get("HETEROCOMPUTE_ISA")
    names = list(core.isa_names(core.cpu_isa() & (core.isa_mask(widest) if widest else ~0)))
    if not prefixes:
        return names
    found: dict[frozenset[tuple[str, str]], str] = {}
    for name in names:
        mask = core.isa_mask(name)
        usable = ((family, isa) for family, isa, needs in core.kernels() if needs & ~mask == 0)
        found.setdefault(frozenset(line for line in usable if line[0].startswith(prefixes)), name)
    return list(found.values())


CODING = ("encode_", "values_", "codes_", "integers_")


def reals(shape: Any, seed: int = 0, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Return normal data with some exact zeros and some large values."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.exp(rng.standard_normal(shape))
    x[rng.random(shape) < 0.05] = 0
    return x.astype(dtype)


@contextmanager
def guarded(nbytes: int) -> Iterator[np.ndarray[Any, Any]]:
    """Yield `nbytes` bytes that end where an unreadable page begins: one read past the end kills the process."""
    page = mmap.PAGESIZE
    size = -(-max(nbytes, 1) // page) * page
    memory = mmap.mmap(-1, size + page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address + size), ctypes.c_size_t(page), 0) == 0
    try:
        buffer = (ctypes.c_ubyte * nbytes).from_address(address + size - nbytes)
        yield np.frombuffer(buffer, np.uint8)
    finally:
        assert libc.mprotect(ctypes.c_void_p(address + size), ctypes.c_size_t(page), 3) == 0


@contextmanager
def guarded_copy(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Yield a C-ordered copy of the array in guarded memory."""
    with guarded(array.nbytes) as raw:
        copy = raw.view(array.dtype).reshape(array.shape)
        copy[...] = array
        yield copy


# Bits of MXCSR (x86-64) and FPCR (aarch64).
FLOAT_MODES = {
    "flush": (0x8040, 1 << 24),  # to zero, and on x86-64 denormals are zeros
    "up": (0x4000, 1 << 22),
    "down": (0x2000, 2 << 22),
    "toward zero": (0x6000, 3 << 22),
    "up and flush": (0xC040, 5 << 22),
}


@contextmanager
def float_mode(name: str) -> Iterator[None]:
    """Set the float mode of this thread, as libraries linked with -ffast-math or fesetround do."""
    if platform.machine() not in ("x86_64", "aarch64") or not sys.platform.startswith("linux"):
        pytest.skip("the position of these bits is known for glibc only")
    libm = ctypes.CDLL("libm.so.6")
    word, bits = (7, FLOAT_MODES[name][0]) if platform.machine() == "x86_64" else (0, FLOAT_MODES[name][1])
    saved, found = (ctypes.c_uint32 * 16)(), (ctypes.c_uint32 * 16)()
    assert libm.fegetenv(saved) == 0
    changed = (ctypes.c_uint32 * 16)(*saved)
    changed[word] |= bits  # MXCSR follows 28 bytes of the x87
    assert libm.fesetenv(changed) == 0
    try:
        yield
        assert libm.fegetenv(found) == 0
        assert found[word] & ~0x3F == changed[word] & ~0x3F  # the lowest bits are flags that operations set
    finally:
        assert libm.fesetenv(saved) == 0


@contextmanager
def flushing() -> Iterator[None]:
    """Make this thread treat subnormal numbers as zeros, like a library linked with -ffast-math."""
    with float_mode("flush"):
        assert not (np.float32([1e-40]) * np.float32(2)).any()
        yield
        assert not (np.float32([1e-40]) * np.float32(2)).any()


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Tell whether two arrays are bitwise equal, including the sign of zero."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def check_forms(image: Any, filters: Any, bias: Any, plain: Any, arguments: dict[str, Any], what: Any = None) -> None:
    """Assert the bits of a convolution: without bias, with bias and ReLU, in memory with gaps, of images in NHWC."""
    biased = plain + bias[:, None, None]
    gaps = np.zeros((*plain.shape, 2), np.float32)[..., 1]
    assert same_bits(hc.conv2d(image, filters, **arguments), plain), what
    assert same_bits(hc.conv2d(image, filters, bias, **arguments, relu=True), np.where(biased <= 0, 0, biased)), what
    assert same_bits(np.array(hc.conv2d(image, filters, **arguments, out=gaps)), plain), what
    found = hc.conv2d(image.transpose(0, 2, 3, 1), filters, bias, **arguments, layout="NHWC")
    assert same_bits(np.ascontiguousarray(found.transpose(0, 3, 1, 2)), biased), what


def write_raw(path: str, header: Any, data: bytes = b"", length: int | None = None) -> None:
    """Write a safetensors file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text) if length is None else length) + text + data)


def read_raw(path: str) -> tuple[Any, bytes]:
    """Return header and data of a safetensors file."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length)), file.read()


def assert_refused(path: str, *words: str) -> None:
    """Assert that loading raises one line that names the file and contains the words."""
    with pytest.raises(ValueError) as caught:
        hc.load(path)
    message = str(caught.value)
    assert message.startswith(path + ": ") and "\n" not in message
    for word in words:
        assert word in message
