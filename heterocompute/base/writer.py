"""Safetensors files written one tensor at a time, under a temporary name until complete; `container` reads them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import tempfile
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .container import FILE_NAMES, bits_of, nbytes_of, to_bits
from .errors import WrongType, WrongValue
from .locations import absolute, is_url, upload
from .magic import MAX_HEADER
from .regular import check_regular
from .rereading import refuse_other_bytes
from .tensors import CHUNK, Info, Tensors
from .texts import file_name, quoted

# Guards the creation, the renaming and the removal of the temporary files, see `remove_temporaries`.
_temporaries: set[str] = set()
_temporaries_lock = threading.Lock()


def _restart_in_child() -> None:
    """Another thread may have held the lock when the process was forked; the files are the parent's."""
    global _temporaries_lock
    _temporaries_lock = threading.Lock()
    _temporaries.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_in_child)


def remove_temporaries() -> None:
    """Remove every unfinished file and keep new ones from appearing; only for a process about to end."""
    _temporaries_lock.acquire()
    for path in _temporaries:
        with contextlib.suppress(OSError):
            os.unlink(path)


def laid_out(
    tensors: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str] | None = None
) -> tuple[bytes, dict[str, Info], int]:
    """Return how a file of some tensors begins, where in the data each is, and the bytes of the file.

    Parameters
    ----------
    tensors, metadata
        As of `Writer`.

    Raises
    ------
    ValueError
        A tensor is called ``__metadata__``, or the header would be too long.
    TypeError
        If a file cannot hold a dtype.

    Examples
    --------
    >>> head, infos, size = laid_out({"w": ("float32", (2, 3))})
    >>> int.from_bytes(head[:8], "little") + 8 + infos["w"].nbytes == size
    True
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    for name, (dtype, _) in tensors.items():
        if name == "__metadata__":
            raise WrongValue("save: no tensor can be called '__metadata__'")
        if dtype not in FILE_NAMES:
            raise WrongType(f"save: tensor {quoted(name)} is {dtype}, which a safetensors file cannot hold")
    # The data are sorted by width, which aligns them; the header keeps the caller's order.
    order = {dtype: index for index, dtype in enumerate(FILE_NAMES)}
    infos: dict[str, Info] = {}
    end = 0
    for name, (dtype, shape) in sorted(tensors.items(), key=lambda item: order[item[1][0]]):
        infos[name] = Info(dtype, tuple(shape), nbytes_of(dtype, shape), end)
        end += infos[name].nbytes
    for name in tensors:
        info = infos[name]
        header[name] = {
            "dtype": FILE_NAMES[info.dtype],
            "shape": list(info.shape),
            "data_offsets": [info.begin, info.begin + info.nbytes],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise WrongValue(f"save: the header would have {len(text)} bytes, more than {MAX_HEADER}")
    return len(text).to_bytes(8, "little") + text, infos, 8 + len(text) + end


def sync_folder(path: str) -> None:
    """Flush the names of a folder to the disk, if the system can."""
    with contextlib.suppress(OSError):  # some file systems do not support this
        place = os.open(path, os.O_RDONLY)
        try:
            os.fsync(place)
        finally:
            os.close(place)


def bytes_of(array: NDArray[Any]) -> memoryview:
    """Return the values of an array in C order, little-endian, those of 4 and 6 bits packed."""
    if array.dtype.name.startswith(("float4_", "float6_")):
        return to_bits(np.ascontiguousarray(array).reshape(-1).view(np.uint8), bits_of(array.dtype.name)).data
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Add a file's name to errors: a full disk's error has none, and the user does not know the temporary one."""
    try:
        yield
    except OSError as error:
        said = error.strerror or f"cannot be written whole ({error})"  # NumPy's error for a full disk has only a text
        raise type(error)(error.errno or errno.EIO, said, path) from None


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """Give the name of a file to write; it is renamed to `path` when the block ends, and deleted if the block raises.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a")
    >>> with replacing(path) as temporary, open(temporary, "w") as file:
    ...     os.path.exists(path), file.write("text")
    (False, 4)
    >>> os.listdir(os.path.dirname(path))
    ['a']
    """
    place = _place_of(path)
    check_regular(place)
    temporary = _temporary_of(place)
    with _temporaries_lock:
        _temporaries.add(temporary)
    try:
        yield temporary
        _rename(temporary, place)
    finally:
        with _temporaries_lock:
            if temporary in _temporaries:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                _temporaries.discard(temporary)


def _place_of(path: str | os.PathLike[str]) -> str:
    """Return the path of a file, with links resolved."""
    name = file_name(path)
    return absolute(name) if is_url(name) else os.path.realpath(name)


def _temporary_of(place: str) -> str:
    """Return the name of an unfinished file: in the same folder; for a URL, in the folder of temporary files."""
    folder = tempfile.gettempdir() if is_url(place) else os.path.dirname(place)
    return os.path.join(folder, f".heterocompute-{os.urandom(8).hex()}.tmp")


def _rename(temporary: str, place: str) -> None:
    """Rename an unfinished file; for a URL, copy it to its place, as a whole or not at all."""
    if is_url(place):
        upload(temporary, place)
        return  # its creator deletes the temporary file
    with _temporaries_lock, naming(place):
        os.replace(temporary, place)
        _temporaries.discard(temporary)


class Writer:
    """Write a safetensors file tensor by tensor: sizes first, contents in any order.

    The file grows under a temporary name in the same folder and takes its own name when the ``with`` block
    ends; if that raises, KeyboardInterrupt included, nothing remains and an older file stays as it was.

    Parameters
    ----------
    path : str or os.PathLike
        The file to create or to replace, or a URL; a link's target is replaced, and keeps its permission bits.
    tensors : mapping of str to (str, tuple of int)
        Name -> (NumPy's name of the dtype, shape) of everything that will be written.
    metadata : mapping of str to str, optional
    durable : bool
        Whether the file is on the disk, not only on its way there, when it takes its name.

    Attributes
    ----------
    sums : dict of str to int
        CRC-32 of the bytes of each tensor that was written, where the file is durable.

    Raises
    ------
    ValueError
        `path` exists and is not a regular file, or a tensor is called ``__metadata__``.
    TypeError
        If a file cannot hold a dtype.
    OSError
        The file cannot be written.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from heterocompute.base.container import Reader
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> with Writer(path, {"a": ("float32", (2,)), "b": ("int8", (3,))}) as writer:
    ...     writer.write("b", np.zeros(3, np.int8))
    ...     writer.write("a", np.ones(2, np.float32))
    >>> with Reader(path) as reader:
    ...     reader.tensor("a").tolist()
    [1.0, 1.0]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        tensors: Mapping[str, tuple[str, tuple[int, ...]]],
        metadata: Mapping[str, str] | None = None,
        durable: bool = False,
    ) -> None:
        self.path = _place_of(path)
        self._durable = durable
        self._missing = set(tensors)
        self.sums: dict[str, int] = {}
        head, self._infos, size = laid_out(tensors, metadata)
        self._data_begin = len(head)
        self._temporary = _temporary_of(self.path)
        try:
            self._file = self._create()
            self._write_at(0, memoryview(head))
            with self._named():
                self._file.truncate(size)
        except BaseException:
            self._remove()
            raise

    def _create(self) -> IO[bytes]:
        check_regular(self.path)
        mode = os.stat(self.path).st_mode if not is_url(self.path) and os.path.exists(self.path) else None
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with _temporaries_lock, self._named():
            _temporaries.add(self._temporary)
            file = open(os.open(self._temporary, flags, 0o666), "r+b", buffering=0)  # noqa: SIM115
        if mode is not None:
            os.chmod(self._temporary, stat.S_IMODE(mode) & 0o777)
        return file

    def write(self, name: str, array: NDArray[Any]) -> None:
        """Write one tensor.

        Parameters
        ----------
        array : ndarray
            Of the dtype and shape that were announced; any strides.

        Raises
        ------
        ValueError
            The dtype or the shape differs from the announced one.
        """
        info = self._infos[name]
        if array.dtype.name != info.dtype or array.shape != info.shape:
            raise WrongValue(
                f"save: tensor {quoted(name)} is {array.dtype.name} {list(array.shape)}, "
                f"announced as {info.dtype} {list(info.shape)}"
            )
        data = bytes_of(array)
        self._write_at(self._data_begin + info.begin, data)
        self._note(name, zlib.crc32(data) if self._durable else 0)

    def copy(self, name: str, reader: Tensors) -> None:
        """Copy the tensor of this name byte for byte from another file."""
        begin, total = self._data_begin + self._infos[name].begin, 0
        for piece in reader.chunks(name):
            self._write_at(begin, piece)
            total = zlib.crc32(piece, total) if self._durable else 0
            begin += len(piece)
        self._note(name, total)

    def check(self, name: str, pieces: Iterable[memoryview]) -> None:
        """Read a written tensor again; ValueError if its bytes differ from the pieces."""
        info, done = self._infos[name], 0
        for piece in pieces:
            for first in range(0, len(piece), CHUNK):
                wanted = np.frombuffer(piece[first : first + CHUNK], np.uint8)
                found = self._read_at(self._data_begin + info.begin + done, min(wanted.size, info.nbytes - done))
                refuse_other_bytes(self.path, name, wanted, found, done)
                done += wanted.size
        if done != info.nbytes:
            raise WrongValue(f"save: tensor {quoted(name)} was checked against {done} of {info.nbytes} bytes")

    def _read_at(self, begin: int, count: int) -> NDArray[np.uint8]:
        """Return bytes of the file, fewer at its end."""
        data, done = np.empty(max(count, 0), np.uint8), 0
        with self._named():
            self._file.seek(begin)
            while done < data.size and (n_read := self._file.readinto(data[done:].data)):  # type: ignore[attr-defined]
                done += n_read
        return data[:done]

    def _note(self, name: str, total: int) -> None:
        self.sums[name] = total
        self._missing.discard(name)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                if self._missing:
                    raise WrongValue(f"save: tensor {quoted(min(self._missing))} was announced but not written")
                if self._durable:
                    with self._named():
                        os.fsync(self._file.fileno())
                with self._named():
                    self._file.close()  # first: a full disk may be reported only here
                _rename(self._temporary, self.path)
                if self._durable and not is_url(self.path):
                    sync_folder(os.path.dirname(self.path))
        finally:
            self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # AttributeError: it could not be created
            self._file.close()
        with _temporaries_lock:
            if self._temporary in _temporaries:
                with contextlib.suppress(OSError):
                    os.unlink(self._temporary)
                _temporaries.discard(self._temporary)

    def _write_at(self, begin: int, view: memoryview) -> None:
        with self._named():
            self._file.seek(begin)
            while len(view):
                view = view[self._file.write(view[:CHUNK]) :]

    def _named(self) -> contextlib.AbstractContextManager[None]:
        return naming(self.path)
