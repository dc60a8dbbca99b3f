"""Evaluated points of a design space in a file, so that an interrupted exploration continues.

    heterocompute explore 1                 the first line
    CRC-32 {"key": ..., "row": {...}}       one line per point, appended as soon as it is evaluated

A key covers everything that determines a row: the point, the networks, the batch and the version of the package. A line
that is not complete, as after a power cut, is evaluated again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import WrongValue, printable, shown
from ...base.locations import is_url
from ...base.regular import check_regular, open_regular
from ...base.texts import file_name
from ...base.version import __version__

HEAD = b"heterocompute explore 1\n"
Point = dict[str, Any]


class Points:
    """Rows of a file, and rows that are added to it.

    Parameters
    ----------
    path : path, optional
        None: nothing is kept.
    networks : sequence of Network
    batch : int

    Raises
    ------
    ValueError
        The file holds something else.
    OSError
        The file cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str] | None, networks: Sequence[Any], batch: int) -> None:
        self._path = None if path is None else file_name(path)
        self._rows: dict[str, Point] = {}
        if self._path is None:
            return
        self._same = _digest([__version__, _plain(tuple(networks)), batch])  # of all points of a call
        if is_url(self._path):
            raise WrongValue(f"explore: keep is {shown(self._path)}, expected a local path: lines are appended to it")
        check_regular(self._path)
        if not os.path.lexists(self._path) or not os.path.getsize(self._path):
            self._append(HEAD)
            return
        with open_regular(self._path) as file:
            head, *lines = file.read().splitlines(keepends=True)
        if head != HEAD:
            raise WrongValue(
                f"{printable(self._path)}: holds no points of an exploration, expected such a file or none"
            )
        for line in lines:
            self._read(line)
        self._append(b"" if not lines or lines[-1].endswith(b"\n") else b"\n")  # fails early if it cannot be written

    def find(self, point: Point) -> Point | None:
        """Return the row of a point, or None if it has not been evaluated."""
        found = self._rows.get(self._key(point)) if self._rows else None
        return None if found is None else point | found

    def add(self, point: Point, row: Point) -> None:
        """Append the row of a point to the file."""
        if self._path is None:
            return
        results = {name: value for name, value in row.items() if name not in point}
        text = json.dumps({"key": self._key(point), "row": results}).encode()
        self._append(b"%08x %s\n" % (zlib.crc32(text), text))

    def _key(self, point: Point) -> str:
        return _digest([self._same, _plain(point)])

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


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def _plain(value: object) -> Any:
    """Return a value as lists, texts and numbers, the same in every process."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value):
        fields = {one.name: _plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
        return [type(value).__qualname__, fields]
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(each)] for key, each in sorted(value.items(), key=lambda item: str(item[0]))]
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return repr(value)
