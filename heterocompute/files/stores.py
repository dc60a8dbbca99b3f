"""An output in an object store, which cannot rename: files have their final names from the start.

    OUT.partial/manifest.json, OUT.partial/done/   as of `staging`
    OUT/                                           the shards, then other files, the index last

So OUT is complete when OUT.partial is gone. Every reader refuses a folder of several files without its index.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..base.errors import WrongValue, printable
from ..base.locations import absolute, exists, is_url, names_in, remove
from ..base.texts import file_name, quoted
from .containers.folder import Located
from .manifest import SHARD_NAME
from .shards import Shard, file_names, placed
from .staging import INDEX_NAME, RECEIPT, Staging, put_file


def staging_of(out_path: str | os.PathLike[str]) -> Staging:
    """Return the writer of an output folder, by its location."""
    return StoreStaging(out_path) if is_url(absolute(file_name(out_path))) else Staging(out_path)


class StoreStaging(Staging):
    """Like `Staging`, for a URL."""

    def __init__(self, out_path: str | os.PathLike[str]) -> None:
        super().__init__(out_path)
        self.inner = self.out

    def _refuse_strangers(self, shards: Sequence[Shard], companions: Collection[str]) -> None:
        ours: dict[str, Callable[[str], Any]] = {
            self.root: lambda name: name in ("done", "manifest.json"),
            self._done: RECEIPT.fullmatch,
            # before the manifest is written there are no files
            self.inner: lambda name: self.begun and (SHARD_NAME.fullmatch(name) or name in (INDEX_NAME, *given)),
        }
        given = {name.partition("/")[0] for name in companions}
        listed = {folder: names_in(folder) for folder in ours}
        if not self.begun and self._is_begun():  # another part has begun since this run checked
            super().__init__(self.out)
            self.inner = self.out
        for folder, is_ours in ours.items():
            for name in listed[folder]:
                if not is_ours(name):
                    self._refuse_taken()
                    raise WrongValue(f"{printable(folder)}/{printable(name)}: is in the way: no other file may be in "
                                     "an unfinished output")  # fmt: skip
        for file in (file for shard in shards for file in shard.states):
            if file.startswith((f"{self.root}/", f"{self.out}/")):
                raise WrongValue(
                    f"{printable(file)}: is a file of the input inside the output {quoted(self.out)}: "
                    "choose another OUT"
                )

    def _refuse_taken(self) -> None:
        if not self.begun and names_in(self.out):
            raise WrongValue(
                f"{printable(self.out)}: exists and is not an empty folder: expected the name of a new one"
            )

    def begin(
        self, shards: Sequence[Shard], source: Located, companions: Collection[str], consume: bool, resume: bool
    ) -> list[Shard]:
        """Like `Staging.begin`; a complete file must have its final name."""
        self._refuse_strangers(shards, companions)
        self._refuse_taken()
        names = file_names(len(shards))
        found = placed(shards, [os.path.join(self.inner, name) for name in names], self._done)
        old = {name: digest for digest, *declared in self.begun.get("shards", []) for name in declared}
        kept = {
            name
            for name, shard in zip(names, found, strict=True)
            if resume and old.get(name) == shard.digest and shard.is_whole(shard.path)
        }
        for name in set(names_in(self.inner)) - kept - {one.partition("/")[0] for one in companions if "/" in one}:
            remove(os.path.join(self.inner, name))
        declared = [[shard.digest, name] for name, shard in zip(names, found, strict=True)]
        self._write(declared, source, found, False)
        return found

    def finish(self, weight_map: Mapping[str, str], total: int, companions: Mapping[str, str | bytes]) -> None:
        """Write the accompanying files, and the index last."""
        for name, content in companions.items():
            put_file(os.path.join(self.inner, name), content)
        self._write_index(weight_map, total)

    def is_renamed(self) -> bool:
        """Return False: nothing is renamed."""
        return False

    def discard(self) -> None:
        """Delete the marks of an unfinished output."""
        if exists(self._manifest):
            remove(self._manifest)
        for name in names_in(self._done):
            remove(os.path.join(self._done, name))
        self.begun = {}

    def holds_shards(self) -> bool:
        """Tell whether any shard exists, so that another run has less work."""
        return any(name.endswith(".safetensors") for name in names_in(self.inner))
