"""The measurements of a study's tensors in a file (``keep=``)."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import Any

from ..base.keeping.results import KeptResults
from .request import Entry, RunOptions
from .tensor import Measured


class KeptTensor:
    """The measurements of one tensor in a file.

    Parameters
    ----------
    kept : KeptResults
    about : sequence
        Everything that determines them, besides the format.
    ways : sequence of RunOptions

    Attributes
    ----------
    missing : tuple of RunOptions
        Those that must be measured.
    """

    def __init__(self, kept: KeptResults, about: tuple[object, ...], ways: Iterable[RunOptions]) -> None:
        self._kept, self._about = kept, (*about, platform.node())  # whose times are those of this machine
        self._known = {way: found for way in ways if (found := kept.find("tensor", *self._about, way)) is not None}
        self._picture = kept.find("picture", *self._about)
        self.missing = tuple(way for way in ways if way not in self._known)

    @property
    def complete(self) -> bool:
        """Tell whether nothing must be measured."""
        return self._picture is not None and not self.missing

    def add(self, fresh: dict[RunOptions, Measured], picture: dict[str, Any]) -> None:
        """Keep what was measured."""
        for way, one in fresh.items():
            level = picture["levels"].get(way.label)
            self._known[way] = {**one.to_plain(), "levels": level}
            self._kept.add(self._known[way], "tensor", *self._about, way)
        if self._picture is None:
            self._picture = {**picture, "levels": {}}
            self._kept.add(self._picture, "picture", *self._about)

    def measured(self) -> dict[RunOptions, Measured]:
        """Return all measurements by format."""
        return {way: Measured.from_plain(found, way) for way, found in self._known.items()}

    def picture(self, ways: Iterable[RunOptions]) -> dict[str, Any]:
        """Return the histogram with the levels of each format."""
        levels = {way.label: self._known[way]["levels"] for way in ways if self._known[way]["levels"] is not None}
        return {**self._picture, "levels": levels}


def ways_of(entry: Entry, names: Iterable[str]) -> list[tuple[str, RunOptions]]:
    """Return the format and the method of each tensor."""
    return [(name, entry.of(name)) for name in names]
