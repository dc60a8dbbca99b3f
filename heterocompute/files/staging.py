"""A folder of shards that is being made: it has another name until it is whole, and what is there of it is found again.

    OUT.partial/manifest.json   the shards by file name and digest; what the source was, where it is being deleted
    OUT.partial/out/            becomes OUT by one renaming

A shard takes its name when it is on the disk. So a file of that name, whose shard has the digest that the manifest says
and which begins and ends as it shall, is whole, whenever the process ended.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.container import DTYPES, sync_folder
from ..base.json_text import is_count, strict_json
from ..base.tensors import Info
from ..base.texts import printable, quoted, read_small
from ..base.version import __version__
from .containers.folder import INDEX, Located
from .opening import reader_of
from .shards import Shard, file_names, free, placed

__all__ = ["Staging"]

VERSION = 1
MAX_MANIFEST = 1 << 30
KNOWN = {name for name, _ in DTYPES.values()}
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
        What is there was not made by this package.
    """

    def __init__(self, out_path: str | os.PathLike[str]) -> None:
        self.out = os.path.abspath(os.fsdecode(os.fspath(out_path)))
        self.root = self.out + ".partial"
        self.inner, self._manifest = os.path.join(self.root, "out"), os.path.join(self.root, "manifest.json")
        self.begun: dict[str, Any] = self._read() if os.path.exists(self._manifest) else {}

    def _refuse_strangers(self) -> None:
        """Raise ValueError where the name is taken by what is no unfinished output, or by a link to another place."""
        if not os.path.lexists(self.root):
            return
        fine = os.path.isdir(self.root) and not os.path.islink(self.root) and not os.path.islink(self.inner)
        if fine and not self.begun:  # all that there may be before a manifest is written
            fine = not set(os.listdir(self.root)) - {"out", "manifest.json.tmp"}
            fine = fine and not (os.path.lexists(self.inner) and os.listdir(self.inner))
        if not fine:
            raise ValueError(f"{printable(self.root)}: is in the way: its name is that of the unfinished output")

    def _read(self) -> dict[str, Any]:
        """Return the manifest of an earlier run."""
        try:
            found = strict_json(read_small(self._manifest, MAX_MANIFEST))
            if found["version"] != VERSION:
                raise ValueError(f"version {found['version']!r}")
            source, shards = found["source"], found["shards"]
            fine = all(len(one) >= 2 and all(_is_name(text) for text in one) for one in shards)
            for file, dtype, shape, n_bytes in source["tensors"].values():
                fine &= isinstance(file, str) and dtype in KNOWN and is_count(n_bytes) and all(map(is_count, shape))
            for size, time in source["states"].values():
                fine &= is_count(size) and type(time) is int
            texts = (found["program"], source["path"], *source["metadata"].values())
            if not (fine and all(isinstance(text, str) for text in texts) and type(found["consume"]) is bool):
                raise ValueError("fields of other types")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"{printable(self._manifest)}: no manifest of an unfinished output ({printable(str(error))}); delete "
                f"{quoted(self.root)} to begin anew"
            ) from None
        return dict(found)

    def source(self, in_path: str | os.PathLike[str]) -> Located | None:
        """Return what the checkpoint was before parts of it were deleted, or None where none were to be.

        Raises
        ------
        ValueError
            Another checkpoint's remains.
        """
        if not self.begun.get("consume"):
            return None
        said = self.begun["source"]
        wanted, given = said["path"], os.path.realpath(in_path)
        if given not in (wanted, os.path.dirname(wanted)):
            raise ValueError(
                f"{printable(self.root)}: holds what was made of {quoted(wanted)}, of which parts are deleted already: "
                "finish that first"
            )
        infos = {name: Info(dtype, tuple(shape), n) for name, (_, dtype, shape, n) in said["tensors"].items()}
        files = {name: file for name, (file, *_) in said["tensors"].items()}
        return Located(wanted, files, infos, said["metadata"], reader_of)

    @property
    def states(self) -> dict[str, tuple[int, int]]:
        """Bytes and time of change of the source's files when the run began that deletes them."""
        found = self.begun["source"]["states"] if self.begun else {}
        return {file: (size, time) for file, (size, time) in found.items()}

    def begin(self, shards: Sequence[Shard], source: Located, consume: bool, resume: bool) -> list[Shard] | None:
        """Find out what is there already, and make room for the rest.

        Parameters
        ----------
        shards : sequence of Shard
            Without paths.
        source : Located
            The checkpoint.
        consume : bool
            Whether its files shall be deleted.
        resume : bool
            Whether to take what an earlier run has left; else that is deleted.

        Returns
        -------
        list of Shard, or None
            All of them, with paths; None if the output has its name already, because the run that made it was ended
            just then.

        Raises
        ------
        ValueError
            What is left of the source is not enough for what is not there.
        """
        self._refuse_strangers()
        names = file_names(len(shards))
        found = placed(shards, [os.path.join(self.inner, name) for name in names], durable=True, consume=consume)
        if not resume and not self.begun.get("consume"):
            self.discard()
        old = self.begun.get("shards", [])
        if len(old) == len(found) and not os.path.isdir(self.inner) and os.path.isdir(self.out):
            if all(_called(shard, one, self.out) for shard, one in zip(found, old, strict=True)):
                return None
        if os.path.lexists(self.out) and not (os.path.isdir(self.out) and not os.listdir(self.out)):
            raise ValueError(f"{printable(self.out)}: exists, and is no empty folder: wanted the name of a new one")
        kept = {}  # what the file of a shard is called by now
        for name, shard, one in zip(names, found, old, strict=False):
            if is_called := _called(shard, one, self.inner):
                kept[name] = is_called
        self._refuse_lost([shard for name, shard in zip(names, found, strict=True) if name not in kept])
        os.makedirs(self.inner, exist_ok=True)
        for name in set(os.listdir(self.inner)) - set(kept.values()):
            os.unlink(os.path.join(self.inner, name))
        # Under both names: this may end at any moment.
        said = [[shard.digest, *{name, kept.get(name, name)}] for name, shard in zip(names, found, strict=True)]
        self._write(said, source, found, consume or bool(self.begun.get("consume")))
        for name, is_called in kept.items():
            os.rename(os.path.join(self.inner, is_called), os.path.join(self.inner, name))
        for shard in found:
            free(shard)
        return found

    def _refuse_lost(self, shards: Sequence[Shard]) -> None:
        for shard in shards:
            for file in shard.states:
                if not os.path.exists(file):
                    raise ValueError(
                        f"{printable(file)}: is deleted, but {quoted(shard.tensors[0][0])} and what else was in it is "
                        f"not in {quoted(self.root)}: only the options that this was begun with can finish it"
                    )

    def _write(self, said: Any, source: Located, shards: Sequence[Shard], consume: bool) -> None:
        states = {file: state for shard in shards for file, state in shard.states.items()}
        tensors = {}
        if consume:
            for name in source.names:
                info = source.info(name)
                tensors[name] = (source.files[name], info.dtype, info.shape, info.nbytes)
        about = {"path": os.path.realpath(source.path), "metadata": source.metadata, "tensors": tensors,
                 "states": states if consume else {}}  # fmt: skip
        self.begun = {"version": VERSION, "program": __version__, "consume": consume, "shards": said, "source": about}
        write_whole(self._manifest, json.dumps(self.begun, ensure_ascii=False))

    def finish(self, weight_map: Mapping[str, str], total: int, beside: Mapping[str, str | bytes]) -> None:
        """Give the output its name.

        Parameters
        ----------
        weight_map : mapping of str to str
            Tensor -> file.
        total : int
            Bytes of all tensors.
        beside : mapping of str to bytes, or str
            Other files: what they hold, or where to copy it from.
        """
        for name, content in beside.items():
            place = os.path.join(self.inner, name)
            if isinstance(content, bytes):
                write_whole(place, content)
            else:
                shutil.copyfile(content, place)
        if len(set(weight_map.values())) > 1:
            index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
            write_whole(os.path.join(self.inner, INDEX_NAME), json.dumps(index, indent=2, ensure_ascii=False) + "\n")
        sync_folder(self.inner)
        os.rename(self.inner, self.out)
        sync_folder(os.path.dirname(self.out))

    def discard(self) -> None:
        """Delete what is not whole."""
        if os.path.isdir(self.root):
            shutil.rmtree(self.root)
        self.begun = {}

    def holds_shards(self) -> bool:
        """Tell whether some shard is there, so that another run has less to do."""
        return os.path.isdir(self.inner) and any(name.endswith(".safetensors") for name in os.listdir(self.inner))


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and os.path.basename(text) == text and "\0" not in text


def _called(shard: Shard, said: Sequence[str], folder: str) -> str | None:
    """Return what the file of a shard is called, of the names that a manifest says, or None where it is not there."""
    digest, *names = said
    if digest != shard.digest:
        return None
    return next((name for name in names if shard.is_whole(os.path.join(folder, name))), None)


def write_whole(path: str, content: str | bytes) -> None:
    """Write a small file, which has its name when it is on the disk."""
    temporary = path + ".tmp"
    with open(temporary, "wb") as file:
        file.write(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
