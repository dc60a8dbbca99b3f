"""Evaluated points of a design space in a file, so that an interrupted exploration continues.

A key covers everything that determines a row: the point, the networks, the batch and the version of the package.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...base.keeping.lines import Kept, key_of
from ...base.version import __version__

Point = dict[str, Any]


class Points:
    """Rows of a file, and rows that are added to it.

    Parameters
    ----------
    path : path, optional
        None: nothing is kept.
    networks : sequence of Network
    batch : int
    base : Machine or None
        The machine whose keys the points change.

    Raises
    ------
    ValueError
        The file holds something else.
    OSError
        The file cannot be read or written.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, networks: Sequence[Any], batch: int, base: Any = None
    ) -> None:
        self._kept = Kept(path, "explore", "points of an exploration")
        self._same = ""
        if self._kept:  # of all points of a call
            self._same = key_of(
                [__version__, _plain(tuple(networks)), batch, *([] if base is None else [_plain(base.table)])]
            )

    def find(self, point: Point) -> Point | None:
        """Return the row of a point, or None if it has not been evaluated."""
        found = self._kept.find(self._key(point)) if len(self._kept) else None
        return None if found is None else point | found

    def add(self, point: Point, row: Point) -> None:
        """Append the row of a point to the file."""
        if self._kept:
            self._kept.add(self._key(point), {name: value for name, value in row.items() if name not in point})

    def _key(self, point: Point) -> str:
        return key_of([self._same, _plain(point)])


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
