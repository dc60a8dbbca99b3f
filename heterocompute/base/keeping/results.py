"""Results of a function in a file: what was measured and evaluated is not computed again.

The keys are digests of the weights, the formats and the functions, so one file may serve many calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from ..texts import file_name
from ..version import __version__
from .digest import digest_of
from .lines import Kept, key_of


class KeptResults:
    """The results of a function in a file (``keep=``), or none of them.

    Parameters
    ----------
    path : path or None
    work : str
        The function whose results these are.
    """

    def __init__(self, path: str | os.PathLike[str] | None, work: str) -> None:
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
