"""Base of the readers of other programs' files: one open file, bounded reads, checked names and tensors.

The content of a file is not trusted: a size is compared with that of the file before anything of that size is
allocated.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ...base.container import DTYPES, FILE_NAMES, MAX_DIMENSIONS, numpy_dtype
from ...base.errors import TooLarge, printable, shown
from ...base.json_text import MAX_TENSORS
from ...base.locations import is_url, read_at, size_of
from ...base.regular import open_regular
from ...base.tensors import CHUNK, Info, Tensors
from ...base.texts import counted, file_name, quoted, sentence, shortened

MAX_NAME = 1024  # characters; names may be joined from keys, so that a few long keys could become gigabytes

Load = Callable[[], NDArray[Any]]


class Container(Tensors):
    """One file. A kind defines `_read`, which calls `add` for each tensor.

    Parameters
    ----------
    path : str or os.PathLike

    Raises
    ------
    ValueError
        No regular file, or not what it seems.
    OSError
        The file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = file_name(path)
        self.names, self.metadata, self.skipped, self._infos = [], {}, {}, {}
        self._loads: dict[str, Load] = {}
        self._file: IO[bytes] = open_regular(self.path)
        try:
            self.size = size_of(self._file)
            self._read()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self) -> None:
        raise NotImplementedError

    def add(self, name: str, dtype: str, shape: tuple[int, ...], load: Load) -> None:
        """Take in one tensor.

        Parameters
        ----------
        dtype : str
            NumPy's name of it; one that is none of `DTYPES` puts the tensor among `skipped`.
        load : callable
            Returns the array; it is checked against dtype and shape.
        """
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            self._fail(f"the name {quoted(name)} is not a string")
        if len(name) > MAX_NAME:
            self._fail(f"the name {quoted(name)} has {len(name)} characters, at most {MAX_NAME} are possible")
        if name in self._infos or name in self.skipped:
            self._fail(f"two tensors are called {quoted(name)}")
        if len(self._infos) + len(self.skipped) >= MAX_TENSORS:
            self._fail(f"more than {MAX_TENSORS} tensors")
        if len(shape) > MAX_DIMENSIONS or any(type(n) is not int or not 0 <= n < 2**63 for n in shape):
            self._fail(f"tensor {quoted(name)} has the illegal shape {shown(shape)}")
        bits = DTYPES[FILE_NAMES[dtype]][1] if dtype in FILE_NAMES else 128
        if math.prod(n for n in shape if n) * bits >= 2**63:
            self._fail(f"tensor {quoted(name)} has the shape {shown(shape)}, whose size overflows")
        if bits < 8 or bits > 64:
            self.skipped[name] = f"{printable(shortened(dtype, 64))} {shown(shape)}"
            return
        self._infos[name] = Info(dtype, tuple(shape), math.prod(shape) * bits // 8)
        self._loads[name] = load
        self.names.append(name)

    def tensor(self, name: str) -> NDArray[Any]:
        """Read one tensor into an array of its own.

        Raises
        ------
        ValueError
            The file does not match its header.
        ImportError
            A package that decodes it is not installed.
        """
        self.info(name)  # raises for an unknown name
        return self.made(name, self._loads[name])

    def made(self, name: str, load: Load) -> NDArray[Any]:
        """Return the array that a function makes of a tensor's bytes, after a check of its dtype and shape."""
        info = self.info(name)
        try:
            array = load()
        except MemoryError as error:
            raise TooLarge(f"{printable(self.path)}: tensor {quoted(name)}: {sentence(error)}") from None
        if array.dtype.name != info.dtype or array.shape != info.shape:
            self._fail(f"tensor {quoted(name)} is {array.dtype.name} {list(array.shape)}, not {info.dtype} "
                       f"{list(info.shape)}")  # fmt: skip
        return array

    def bytes_at(self, begin: int, count: int, name: str) -> NDArray[np.uint8]:
        """Return bytes of the file; ValueError before the allocation if the file is too short."""
        if not 0 <= begin <= begin + count <= self.size:
            self._fail(f"cut off: {name} ends at {begin + count}, but the file has {counted(self.size, 'byte')}")
        data = np.empty(count, np.uint8)
        view = data.data
        while len(view):
            n_read = read_at(self._file, view[:CHUNK], begin)
            if not n_read:
                self._fail(f"cut off in {name}")
            view, begin = view[n_read:], begin + n_read
        return data

    def plain(self, begin: int, dtype: str, shape: tuple[int, ...], name: str) -> NDArray[Any]:
        """Return values that are stored without conversion, little-endian."""
        wanted = numpy_dtype(dtype)
        data = self.bytes_at(begin, math.prod(shape) * wanted.itemsize, f"tensor {quoted(name)}")
        return self.values(data, wanted, name).reshape(shape)


def inside(folder: str, name: str) -> str | None:
    """Return the path of a file that another file in `folder` names, or None if it is outside of the folder.

    Links to the store of a model hub are allowed: a snapshot on disk has links to ``../../blobs``.
    """
    if not name or "\0" in name or os.path.isabs(name) or ".." in name.replace("\\", "/").split("/"):
        return None
    if is_url(folder):
        return None if "::" in name or "://" in name else f"{folder.rstrip('/')}/{name}"
    root, path = os.path.realpath(folder), os.path.realpath(os.path.join(folder, name))
    blobs = os.path.join(os.path.dirname(os.path.dirname(root)), "blobs")
    is_snapshot = os.path.basename(os.path.dirname(root)) == "snapshots"
    if os.path.commonpath([root, path]) == root or (is_snapshot and os.path.dirname(path) == blobs):
        return path
    return None
