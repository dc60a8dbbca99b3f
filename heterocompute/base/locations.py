"""Locations of files: local paths, and URLs of object stores and hubs, which fsspec reads and writes.

A store cannot rename and has no folders: an object appears under its name when it is complete. Only this module
accesses URLs. Errors of a store, of any type, become an OSError with a message of one sentence.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
from collections.abc import Iterator
from typing import Any

from .errors import WrongValue, printable

_SCHEME = r"[a-z][a-z0-9+.-]+"
_URL = re.compile(rf"({_SCHEME}::)*{_SCHEME}://", re.IGNORECASE)
_LOCAL = re.compile("(file|local)://", re.IGNORECASE)
BUFFER = 1 << 20


def is_url(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path is a URL such as ``s3://bucket/model``; ``file://`` means a path of this machine.

    Examples
    --------
    >>> is_url("memory://a/b"), is_url("simplecache::s3://a/b"), is_url("file:///a/b"), is_url("a/b"), is_url("C:/a")
    (True, True, False, False, False)
    """
    text = os.fsdecode(path)
    return _URL.match(text) is not None and _LOCAL.match(text) is None


def local_path(path: str) -> str:
    """Return the path of a URL ``file://``; other paths are returned unchanged.

    Examples
    --------
    >>> local_path("file:///a/b"), local_path("s3://a/b")
    ('/a/b', 's3://a/b')
    """
    fit = _LOCAL.match(path)
    return path[fit.end() :] if fit else path


def absolute(path: str) -> str:
    """Return a path that means the same in any working directory.

    Examples
    --------
    >>> absolute("s3://a/b/"), os.path.isabs(absolute("b"))
    ('s3://a/b', True)
    """
    return path.rstrip("/") if is_url(path) else os.path.abspath(path)


def exists(path: str) -> bool:
    """Tell whether there is a file or folder of that name."""
    return _info(path) is not None if is_url(path) else os.path.exists(path)


def is_file(path: str) -> bool:
    """Tell whether there is a file of that name."""
    return (_info(path) or {}).get("type") == "file" if is_url(path) else os.path.isfile(path)


def is_folder(path: str) -> bool:
    """Tell whether there is a folder of that name; in a store, whether the name of an object begins with it."""
    return (_info(path) or {}).get("type") == "directory" if is_url(path) else os.path.isdir(path)


def names_in(folder: str) -> list[str]:
    """Return the sorted names of the files and folders in a folder; in a store the list may be empty."""
    if not is_url(folder):
        return sorted(os.listdir(folder))
    with _answering(folder):
        fs, key = _store(folder)
        with contextlib.suppress(FileNotFoundError):
            fs.invalidate_cache(key)
            found = [str(one).rstrip("/").rpartition("/")[2] for one in fs.ls(key, detail=False)]
            return sorted(set(found) - {""})
    return []


def make_folder(folder: str) -> None:
    """Make a folder; a store needs none."""
    if not is_url(folder):
        os.makedirs(folder, exist_ok=True)


def remove(path: str) -> None:
    """Delete an existing file."""
    if not is_url(path):
        os.unlink(path)
        return
    with _answering(path):
        fs, key = _store(path)
        fs.rm_file(key)


def upload(local: str, url: str) -> None:
    """Write a local file to a URL, completely or not at all."""
    with _answering(url):
        fs, key = _store(url)
        fs.put_file(local, key)
        fs.invalidate_cache(key.rpartition("/")[0])


def put(url: str, content: bytes) -> None:
    """Write bytes to a URL, completely or not at all."""
    with _answering(url):
        fs, key = _store(url)
        fs.pipe_file(key, content)
        fs.invalidate_cache(key.rpartition("/")[0])


def content_of(path: str) -> bytes:
    """Return the bytes of a small file."""
    if not is_url(path):
        with open(path, "rb") as file:
            return file.read()
    with _answering(path):
        fs, key = _store(path)
        return bytes(fs.cat_file(key))


def state_of_url(url: str) -> tuple[int, int, str]:
    """Return the size of an object and a value that changes with its content, such as an ETag or a time."""
    with _answering(url):
        fs, key = _store(url)
        fs.invalidate_cache(key.rpartition("/")[0])
        size = int(fs.info(key)["size"] or 0)
        return size, int(hashlib.sha256(str(fs.ukey(key)).encode()).hexdigest()[:15], 16), ""


def open_url(url: str, buffered: bool = True) -> Any:
    """Open an object for reading; each read requests only the bytes it returns.

    Raises
    ------
    ValueError
        It is a folder.
    OSError
        It cannot be read.
    """
    file = _Object(url)
    return io.BufferedReader(file, BUFFER) if buffered else file


def size_of(file: Any) -> int:
    """Return the size of an open file in bytes."""
    raw = getattr(file, "raw", file)
    return raw.size if isinstance(raw, _Object) else os.fstat(file.fileno()).st_size


def read_at(file: Any, view: memoryview, begin: int) -> int:
    """Read bytes at an offset of a file and leave its position, which threads and forked processes share.

    Parameters
    ----------
    file : io.BufferedReader, io.FileIO or what `open_url` returns
    view : memoryview
        Is filled from its start.

    Returns
    -------
    int
        Bytes read; 0 at the end of the file.
    """
    raw = getattr(file, "raw", file)
    if isinstance(raw, _Object):
        return raw.read_at(view, begin)
    return os.preadv(raw.fileno(), [view], begin)


class _Object(io.RawIOBase):
    """An object of a store as a file. Each read is a request of its own, so that threads share no state."""

    def __init__(self, url: str) -> None:
        self._url, self._at = url, 0
        with _answering(url):
            self._fs, self._key = _store(url)
            info = self._fs.info(self._key)
        if info.get("type") == "directory":
            raise WrongValue(f"{printable(url)}: is a directory, expected a regular file")
        if not isinstance(info.get("size"), int):
            raise OSError(f"{printable(url)}: the store does not say how many bytes it has")
        self.size: int = info["size"]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if begin + offset < 0:
            raise WrongValue(f"{printable(self._url)}: seek to {begin + offset}")
        self._at = begin + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = self.read_at(memoryview(buffer).cast("B"), self._at)
        self._at += count
        return count

    def read_at(self, view: memoryview, begin: int) -> int:
        count = min(len(view), max(self.size - begin, 0))
        if not count:
            return 0
        with _answering(self._url):
            data = self._fs.cat_file(self._key, start=begin, end=begin + count)
        if len(data) > count:  # a store that does not support ranges sends the whole object
            raise OSError(f"{printable(self._url)}: the store does not send parts of files: copy it to this machine")
        view[: len(data)] = data
        return len(data)


def _info(url: str) -> dict[str, Any] | None:
    try:
        with _answering(url):
            fs, key = _store(url)
            fs.invalidate_cache(key.rpartition("/")[0])
            found: dict[str, Any] = fs.info(key)
            return found
    except FileNotFoundError:
        return None


def _store(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the name in it."""
    try:
        from fsspec.core import url_to_fs  # optional
    except ImportError:
        raise ImportError(
            f"{printable(url)}: is a URL, which needs fsspec: pip install 'heterocompute[remote]', and the package of "
            "the store, such as s3fs"
        ) from None
    fs, place = url_to_fs(url)
    if "\0" in place or not place.strip("/"):
        raise OSError(f"{printable(url)}: names no file of the store")
    return fs, str(place).rstrip("/")


@contextlib.contextmanager
def _answering(url: str) -> Iterator[None]:
    """Convert errors of a store to an OSError that names the URL."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), printable(url)) from None
    except PermissionError:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), printable(url)) from None
    except ImportError as error:
        raise ImportError(_about(url, error)) from None
    except MemoryError:
        raise
    except Exception as error:
        raise OSError(_about(url, error)) from None


def _about(url: str, error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    name = printable(url)
    return printable(text[:400]) if text.startswith(name) else f"{name}: {printable(text[:400])}"
