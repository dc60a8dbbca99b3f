"""Results of a study in a file (``keep=``): what was measured and evaluated is not computed again.

The keys are digests of the weights, the formats and the functions, so one file may serve many studies.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable
from typing import Any

from ..base.keeping.digest import digest_of
from ..base.keeping.lines import Kept, key_of
from ..base.texts import file_name
from ..base.version import __version__
from .request import Entry, RunOptions
from .tensor import Measured


class KeptStudy:
    """The results of a study in a file, or none of them.

    Parameters
    ----------
    path : path or None
    work : str
        The function whose results these are.
    """

    def __init__(self, path: str | os.PathLike[str] | None, work: str = "study") -> None:
        self._kept = Kept(path, work, f"results of {work}")
        self._name = "" if path is None else os.path.basename(file_name(path))
        self._same: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._kept)

    def belongs_to(self, *values: object) -> None:
        """State what all results depend on."""
        if self._kept:
            self._same = (__version__, digest_of(*values))

    def same(self, *values: object) -> str:
        """Return the digest of functions before the first call, which may change what they read."""
        return digest_of(*values) if self._kept else ""

    def get(self, parts: Iterable[object], compute: Callable[[], Any]) -> Any:
        """Return a kept result, or compute it and keep it."""
        if not self._kept:
            return compute()
        found = self.find(*parts)
        if found is None:
            found = compute()
            self.add(found, *parts)
        return found

    def find(self, *parts: object) -> Any:
        """Return a kept result, or None."""
        return self._kept.find(self._key(parts)) if len(self._kept) else None

    def add(self, found: object, *parts: object) -> None:
        """Keep a result."""
        if self._kept:
            self._kept.add(self._key(parts), found)

    def _key(self, parts: Iterable[object]) -> str:
        return key_of([*self._same, digest_of(*parts)])

    @property
    def notes(self) -> list[str]:
        """Return a warning if the file had results, and none of them belonged to this study."""
        if not len(self._kept) or self._kept.found:
            return []
        return [f"{self._name} kept {len(self._kept)} results, none of these weights, formats and functions"]


class KeptTensor:
    """The measurements of one tensor in a file.

    Parameters
    ----------
    kept : KeptStudy
    about : sequence
        Everything that determines them, besides the format.
    ways : sequence of RunOptions

    Attributes
    ----------
    missing : tuple of RunOptions
        Those that must be measured.
    """

    def __init__(self, kept: KeptStudy, about: tuple[object, ...], ways: Iterable[RunOptions]) -> None:
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
