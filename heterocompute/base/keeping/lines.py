"""Results in a file of lines, appended one by one, so that interrupted work continues.

    heterocompute study 1                   the first line, with the name of the work
    CRC-32 {"key": ..., "row": ...}         one line per result, appended as soon as it is known

A key is a digest of everything that determines a result. A line that is not complete, as after a power cut, is ignored,
so its result is computed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from typing import Any

from ..errors import WrongValue, printable, shown
from ..locations import is_url
from ..regular import check_regular, open_regular
from ..texts import file_name


class Kept:
    """Results of a file, and results that are added to it.

    Parameters
    ----------
    path : path, optional
        None: nothing is kept.
    work : str
        The function whose results these are, such as ``"explore"``.
    what : str
        Its results in words, for errors.

    Attributes
    ----------
    found : int
        Number of results that `find` returned from the file.

    Raises
    ------
    ValueError
        The file holds something else.
    OSError
        The file cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str] | None, work: str, what: str) -> None:
        self._path = None if path is None else file_name(path)
        self._rows: dict[str, Any] = {}
        self.found = 0
        if self._path is None:
            return
        if is_url(self._path):
            raise WrongValue(f"{work}: keep is {shown(self._path)}, expected a local path: lines are appended to it")
        check_regular(self._path)
        head = f"heterocompute {work} 1\n".encode()
        if not os.path.lexists(self._path) or not os.path.getsize(self._path):
            self._append(head)
            return
        with open_regular(self._path) as file:
            first, *lines = file.read().splitlines(keepends=True)
        if first != head:
            raise WrongValue(f"{printable(self._path)}: holds no {what}, expected such a file or none")
        for line in lines:
            self._read(line)
        self._append(b"" if not lines or lines[-1].endswith(b"\n") else b"\n")  # fails early if it cannot be written

    def __bool__(self) -> bool:
        return self._path is not None

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, key: str) -> Any:
        """Return the result of a key, or None."""
        row = self._rows.get(key)
        self.found += row is not None
        return row

    def add(self, key: str, row: Any) -> None:
        """Append the result of a key to the file."""
        if self._path is None:
            return
        text = json.dumps({"key": key, "row": row}).encode()
        self._append(b"%08x %s\n" % (zlib.crc32(text), text))

    def _read(self, line: bytes) -> None:
        total, _, text = line.rstrip(b"\n").partition(b" ")
        if total == b"%08x" % zlib.crc32(text):
            found = json.loads(text)
            self._rows[found["key"]] = found["row"]

    def _append(self, data: bytes) -> None:
        assert self._path is not None
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
        try:
            while data:
                data = data[os.write(file, data) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from None
        finally:
            os.close(file)


def key_of(value: object) -> str:
    """Return the key of a value of lists, texts and numbers."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]
