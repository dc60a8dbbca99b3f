"""A folder of shards in the making: it has another name until it is complete, and finished shards are found again.

    OUT.partial/manifest.json   the shards by file name and digest; the source, if it is being deleted
    OUT.partial/done/           a receipt for each shard: sums of what was written
    OUT.partial/out/            becomes OUT by one renaming

A shard gets its name only after it and its receipt are on the disk. So a file of that name is complete, whenever the
process ended, if its digest is the manifest's and its bytes have the sums in the receipt. All of this is checked: a
file that is not ours, or does not fit, is neither used nor deleted.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..base.errors import WrongValue, printable
from ..base.locations import absolute, content_of, exists, is_url, make_folder
from ..base.magic import INDEX
from ..base.texts import file_name, quoted
from ..base.version import __version__
from ..base.writer import replacing, sync_folder
from .containers.folder import Located
from .manifest import SHARD_NAME, VERSION, read_manifest, source_in
from .shards import Shard, State, file_names, free, placed, whole_file, write_whole

TEMPORARY = re.compile(r"\.heterocompute-[0-9a-f]{16}\.tmp")
RECEIPT = re.compile(r"[0-9a-f]{64}\.json")
INDEX_NAME = "model.safetensors" + INDEX


class Staging:
    """The folder of an output that is not whole yet.

    Parameters
    ----------
    out_path : str or os.PathLike
        The name that it will have.

    Raises
    ------
    ValueError
        The existing files were not made by this package.
    """

    def __init__(self, out_path: str | os.PathLike[str]) -> None:
        self.out = absolute(file_name(out_path))
        self.root = self.out + ".partial"
        self.inner, self._done, self._manifest = (
            os.path.join(self.root, name) for name in ("out", "done", "manifest.json")
        )
        self.begun: dict[str, Any] = read_manifest(self._manifest) if self._is_begun() else {}

    def _is_begun(self) -> bool:
        return exists(self._manifest) or os.path.lexists(self._manifest)

    def _refuse_strangers(self, shards: Sequence[Shard], companions: Collection[str]) -> None:
        """Raise ValueError if the name belongs to something other than an unfinished output, or to a link."""
        wanted = "its name is that of the unfinished output"
        if os.path.lexists(self.root):
            found = {path: _is_folder(path) for path in (self.root, self.inner, self._done)}
            strange = [path for path, is_folder in found.items() if os.path.lexists(path) and not is_folder]
            ours: dict[str, Callable[[str], Any]] = {
                self.root: lambda name: name in ("out", "done", "manifest.json") or TEMPORARY.fullmatch(name),
                self._done: lambda name: RECEIPT.fullmatch(name) or TEMPORARY.fullmatch(name),
                # before the manifest is written there are no files
                self.inner: lambda name: self.begun and (SHARD_NAME.fullmatch(name) or TEMPORARY.fullmatch(name)
                                                         or name in (INDEX_NAME, *companions)),
            }  # fmt: skip
            folders = {name.partition("/")[0] for name in companions if "/" in name}
            listed = {folder: list(os.scandir(folder)) if found[folder] and not strange else [] for folder in ours}
            if not self.begun and self._is_begun():  # another part has begun since this run checked
                self.begun = read_manifest(self._manifest)
            for folder, is_ours in ours.items():
                for entry in listed[folder]:
                    is_inside = entry.path in found or entry.is_file(follow_symlinks=False)
                    is_part = folder == self.inner and entry.name in folders and entry.is_dir(follow_symlinks=False)
                    if not ((is_ours(entry.name) and is_inside) or (self.begun and is_part)):
                        strange.append(entry.path)
            if strange:
                raise WrongValue(f"{printable(min(strange))}: is in the way: {wanted}, where no other file may be")
        for file in (file for shard in shards for file in shard.states):
            if not is_url(file) and os.path.commonpath(
                [os.path.realpath(file), os.path.realpath(self.root)]
            ) == os.path.realpath(self.root):
                raise WrongValue(f"{printable(file)}: is a file of the input in the unfinished output "
                                 f"{quoted(self.root)}: move it")  # fmt: skip

    def refuse_taken(self, resume: bool) -> None:
        """Raise ValueError, before any work, if the output exists and no earlier run can have made it."""
        if not (resume and self.begun):
            self._refuse_taken()

    def _refuse_taken(self) -> None:
        if os.path.lexists(self.out) and not (os.path.isdir(self.out) and not os.listdir(self.out)):
            raise WrongValue(
                f"{printable(self.out)}: exists and is not an empty folder: expected the name of a new one"
            )

    def source(self, in_path: str | os.PathLike[str]) -> Located | None:
        """Return the checkpoint's description from before its first deletion, None if the run deletes nothing.

        Raises
        ------
        ValueError
            The files that are left belong to another checkpoint, or are not in its index.
        """
        return source_in(self.begun, self.root, in_path)

    @property
    def states(self) -> dict[str, State]:
        """The states of the source's files at the start of the run that deletes them."""
        found = self.begun["source"]["states"] if self.begun else {}
        return {file: (size, time, sample) for file, (size, time, sample) in found.items()}

    def begin(
        self, shards: Sequence[Shard], source: Located, companions: Collection[str], consume: bool, resume: bool
    ) -> list[Shard] | None:
        """Find the parts that exist already, and prepare the output for the rest.

        Parameters
        ----------
        shards : sequence of Shard
            Without paths.
        source : Located
            The checkpoint.
        companions : collection of str
            Names of the other files of the output, such as ``config.json``.
        consume : bool
            Delete the files of the source that are no longer needed.
        resume : bool
            Use the parts that an earlier run left; otherwise they are deleted.

        Returns
        -------
        list of Shard, or None
            All shards, with paths. None if the output is complete: the earlier run ended after it renamed the output.

        Raises
        ------
        ValueError
            The remaining source does not contain all missing tensors, or a name belongs to a file that is not ours.
        """
        self._refuse_strangers(shards, companions)
        names = file_names(len(shards))
        found = placed(shards, [os.path.join(self.inner, name) for name in names], self._done, consume)
        if not resume and not self.begun.get("consume"):
            self.discard()
        old = self.begun.get("shards", [])
        if len(old) == len(found) and self.is_renamed():
            if all(_called(shard, one, self.out) for shard, one in zip(found, old, strict=True)):
                for shard in placed(shards, [os.path.join(self.out, name) for name in names], self._done, consume):
                    free(shard)
                return None
        self._refuse_taken()
        kept = {}  # the current file name of each shard
        for name, shard, one in zip(names, found, old, strict=False):
            if is_called := _called(shard, one, self.inner):
                kept[name] = is_called
        self._refuse_lost([shard for name, shard in zip(names, found, strict=True) if name not in kept])
        for folder in (self.inner, self._done):
            os.makedirs(folder, exist_ok=True)
        for name in set(os.listdir(self.inner)) - set(kept.values()):
            place = os.path.join(self.inner, name)
            (shutil.rmtree if _is_folder(place) else os.unlink)(place)
        # Under both names, since the process may end at any moment.
        declared = [[shard.digest, *{name, kept.get(name, name)}] for name, shard in zip(names, found, strict=True)]
        self._write(declared, source, found, consume or bool(self.begun.get("consume")))
        for name, is_called in kept.items():
            os.rename(os.path.join(self.inner, is_called), os.path.join(self.inner, name))
        for shard in found:
            free(shard)
        return found

    def begin_part(
        self, shards: Sequence[Shard], source: Located, companions: Mapping[str, str | bytes], count: int
    ) -> list[Shard]:
        """Make room for some of the shards, while other runs may write the others; return all, with paths.

        Parameters
        ----------
        shards, source
            As of `begin`.
        companions : mapping of str to bytes, or str
            As of `finish`, which this call does not store.
        count : int
            How many runs share the work.

        Raises
        ------
        ValueError
            The existing parts are from other options, or a name belongs to a file that is not ours.
        """
        self._refuse_strangers(shards, companions)
        self._refuse_taken()
        names = file_names(len(shards))
        found = placed(shards, [os.path.join(self.inner, name) for name in names], self._done)
        digests = [shard.digest for shard in found]
        if self.begun and (self.begun["parts"], [one[0] for one in self.begun["shards"]]) != (count, digests):
            others = "other options, another checkpoint or another number of parts"
            raise WrongValue(f"{printable(self.root)}: was begun with {others}: expected the same, or delete it")
        for folder in (self.inner, self._done):
            make_folder(folder)
        if not self.begun:
            declared = [[digest, name] for digest, name in zip(digests, names, strict=True)]
            self._write(declared, source, found, False, count, sorted(companions))
        for name, content in companions.items():
            if not exists(place := os.path.join(self.inner, name)):
                make_folder(os.path.dirname(place))
                with replacing(place) as temporary:
                    put_file(temporary, content)
        return found

    def _refuse_lost(self, shards: Sequence[Shard]) -> None:
        for shard in shards:
            for file in shard.states:
                if not exists(file):
                    raise WrongValue(
                        f"{printable(file)}: is deleted, but {quoted(shard.tensors[0][0])} and its other tensors are "
                        f"not in {quoted(self.root)}: run again with the options of the interrupted run"
                    )

    def _write(
        self,
        declared: object,
        source: Located,
        shards: Sequence[Shard],
        consume: bool,
        parts: int = 0,
        companions: Sequence[str] = (),
    ) -> None:
        states = {file: state for shard in shards for file, state in shard.states.items()}
        tensors = {}
        if consume:
            for name in source.names:
                info = source.info(name)
                tensors[name] = (source.files[name], info.dtype, info.shape, info.nbytes)
        path = source.path if is_url(source.path) else os.path.realpath(source.path)
        about = {"path": path, "metadata": source.metadata, "tensors": tensors,
                 "states": states if consume else {}}  # fmt: skip
        self.begun = {"version": VERSION, "program": __version__, "consume": consume, "parts": parts,
                      "beside": list(companions), "shards": declared, "source": about}  # fmt: skip
        write_whole(self._manifest, json.dumps(self.begun, ensure_ascii=False))

    def finish(self, weight_map: Mapping[str, str], total: int, companions: Mapping[str, str | bytes]) -> None:
        """Give the output its name.

        Parameters
        ----------
        weight_map : mapping of str to str
            Tensor -> file.
        total : int
            Bytes of all tensors.
        companions : mapping of str to bytes, or str
            Name of each other file -> its content, or the path to copy it from.
        """
        for folder, _, names in os.walk(self.inner):
            for name in filter(TEMPORARY.fullmatch, names):  # of a killed worker
                os.unlink(os.path.join(folder, name))
        for name, content in companions.items():
            make_folder(os.path.dirname(os.path.join(self.inner, name)))
            put_file(os.path.join(self.inner, name), content)
        self._write_index(weight_map, total)
        sync_folder(self.inner)
        os.rename(self.inner, self.out)
        sync_folder(os.path.dirname(self.out))

    def _write_index(self, weight_map: Mapping[str, str], total: int) -> None:
        if len(set(weight_map.values())) > 1:
            write_whole(os.path.join(self.inner, INDEX_NAME), index_text(weight_map, total))

    def is_renamed(self) -> bool:
        """Tell whether the output already has its final name, because the run was ended right after renaming."""
        return not os.path.isdir(self.inner) and os.path.isdir(self.out)

    def lacking(self) -> tuple[dict[str, str], int, list[int]]:
        """Return the file of each tensor, the bytes of all, and the numbers of incomplete shards."""
        names = file_names(len(self.begun["shards"]))
        where: dict[str, str] = {}
        missing: list[int] = []
        total = 0
        for i, ((digest, *_), name) in enumerate(zip(self.begun["shards"], names, strict=True)):
            infos = whole_file(os.path.join(self.inner, name), os.path.join(self._done, f"{digest}.json"))
            if infos is None:
                missing.append(i)
                continue
            where |= dict.fromkeys(infos, name)
            total += sum(info.nbytes for info in infos.values())
        return where, total, missing

    def discard(self) -> None:
        """Delete incomplete files."""
        if os.path.isdir(self.root):
            with contextlib.suppress(FileNotFoundError):  # first, so that an interruption leaves no output behind
                os.unlink(self._manifest)
            shutil.rmtree(self.root)
        self.begun = {}

    def holds_shards(self) -> bool:
        """Tell whether any shard exists, so that another run has less work."""
        return os.path.isdir(self.inner) and any(name.endswith(".safetensors") for name in os.listdir(self.inner))


def _called(shard: Shard, declared: Sequence[str], folder: str) -> str | None:
    """Return the name of a shard's file among the names in a manifest, or None if it is missing."""
    digest, *names = declared
    if digest != shard.digest:
        return None
    return next((name for name in names if shard.is_whole(os.path.join(folder, name))), None)


def index_text(weight_map: Mapping[str, str], total: int) -> str:
    """Return the content of the index of a folder, from the file of each tensor and the bytes of all tensors."""
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    return json.dumps(index, indent=2, ensure_ascii=False) + "\n"


def put_file(place: str, content: str | bytes) -> None:
    """Write a file from bytes, or as a copy of another file."""
    if isinstance(content, bytes) or is_url(content) or is_url(place):
        write_whole(place, content if isinstance(content, bytes) else content_of(content))
    else:
        shutil.copyfile(content, place)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
