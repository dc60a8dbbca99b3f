"""Compares the planned files of a checkpoint with files that exist, one tensor in memory at a time.

The plan is that of `files.rewrite`: it knows the header and the offset of each tensor before any tensor is made. So a
header is compared byte for byte, and each tensor is made from the base and compared at its offset.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.container import Reader
from ..base.errors import printable
from ..base.locations import content_of, exists, names_in, read_at, size_of
from ..base.regular import open_regular
from ..base.tensors import CHUNK, Info
from ..base.texts import quoted
from ..base.writer import bytes_of as memory_of, laid_out
from ..files.companions import STATEMENT
from ..files.containers.folder import Located
from ..files.shards import Shard, check_states, components_of, file_names, made_of
from ..files.staging import INDEX_NAME, index_text
from .reasons import Difference, reason_of
from .result import DIFFERS, EQUAL, EXTRA, MISSING, SKIPPED, FileCheck, TensorCheck

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Task:
    """The comparison of one planned file with an existing one.

    Attributes
    ----------
    shard : Shard
    path : str
        The existing file.
    names : collection of str
        The arrays that are compared; the others are not read.
    """

    shard: Shard
    path: str
    names: Collection[str]


def tasks_of(shards: Sequence[Shard], path: str, is_folder: bool, names: Collection[str]) -> list[Task]:
    """Return one task for each planned file of a checkpoint."""
    places = [os.path.join(path, name) for name in file_names(len(shards))] if is_folder else [path] * len(shards)
    return [Task(shard, place, names) for shard, place in zip(shards, places, strict=True)]


def compare(task: Task) -> tuple[list[TensorCheck], list[FileCheck]]:
    """Compare one planned file with an existing one."""
    shard, name = task.shard, os.path.basename(task.path)
    if not exists(task.path):
        rows = [TensorCheck(one, MISSING) for one, _, _ in shard.tensors]
        return rows, [FileCheck(name, None, "is missing")]
    stored, metadata = shard.layout()
    head, infos, size = laid_out(stored, metadata)
    with (
        Located(shard.source, shard.files, shard.infos, shard.metadata, shard.source_of) as reader,
        open_regular(task.path) as file,
    ):
        check_states(shard)
        files = _head(file, name, head, size)
        places, extra, unreadable = _places(task.path, file, infos, len(head), size)
        if unreadable:
            files.append(FileCheck(name, None, unreadable))
        rows = [TensorCheck(one, EXTRA) for one in extra]
        for one, entry, change in shard.tensors:
            if one not in task.names:
                rows.append(TensorCheck(one, SKIPPED))
                continue
            if change is None:
                parts: Mapping[str, Iterable[Any]] = {part: reader.chunks(part) for part in components_of(one, entry)}
                made: Mapping[str, Array] = {}
            else:
                made = made_of(reader, one, entry, change)
                parts = {part: [memory_of(np.asarray(array))] for part, array in made.items()}
            lost = [part for part in parts if part not in places]
            if lost:
                how = f"{quoted(lost[0])} has another name, dtype or shape" if len(lost) < len(parts) or extra else ""
                rows.append(TensorCheck(one, MISSING, None, how))
                continue
            found = [
                difference
                for part, pieces in parts.items()
                if (difference := _part(file, part, places[part], infos[part], pieces))
            ]
            if not found:
                rows.append(TensorCheck(one, EQUAL))
                continue
            there = {part: _array(file, places[part], infos[part]) for part in parts}
            index, how = reason_of(reader, one, entry, change, made, there, found)
            rows.append(TensorCheck(one, DIFFERS, index, how))
    return rows, files


def compare_folder(
    path: str, shards: Sequence[Shard], companions: Mapping[str, str | bytes], sizes: int
) -> list[FileCheck]:
    """Compare the files of a folder that are not weights: index, configuration, tokenizer, and files too many."""
    weights = file_names(len(shards))
    wanted: dict[str, str | bytes] = dict(companions)
    if len(shards) > 1:
        where = {part: name for shard, name in zip(shards, weights, strict=True) for part in shard.layout()[0]}
        wanted[INDEX_NAME] = index_text(where, sizes).encode("utf-8", "surrogatepass")
    found = []
    for name, content in sorted(wanted.items()):
        place = os.path.join(path, name)
        if not exists(place):
            found.append(FileCheck(name, None, "is missing"))
            continue
        expected = content if isinstance(content, bytes) else content_of(content)
        with open_regular(place) as file:  # it is not trusted
            stored = file.read()
        if expected != stored:
            found.append(FileCheck(name, *_first(expected, stored)))
    known = {*wanted, *weights, STATEMENT}
    found += [FileCheck(name, None, "is extra") for name in sorted(names_in(path)) if name not in known]
    return found


def _first(expected: bytes, stored: bytes) -> tuple[int, str]:
    """Return the first byte in which two contents differ, and a description."""
    both = min(len(expected), len(stored))
    a, b = np.frombuffer(expected[:both], np.uint8), np.frombuffer(stored[:both], np.uint8)
    wrong = np.flatnonzero(a != b)
    at = int(wrong[0]) if wrong.size else both
    sizes = "" if len(expected) == len(stored) else f"; {len(stored)} bytes instead of {len(expected)}"
    return at, f"differs from byte {at}{sizes}"


def _head(file: Any, name: str, head: bytes, size: int) -> list[FileCheck]:
    """Compare the header of a file, with its padding, and the size of the file."""
    stored = file.read(len(head))
    found = []
    if stored != head:
        at, how = _first(head, stored)
        what = "length of the header" if at < 8 else "header"
        found.append(FileCheck(name, at, f"{what} {how}"))
    if (there := size_of(file)) != size:
        found.append(FileCheck(name, min(there, size), f"has {there} bytes instead of {size}"))
    return found


def _places(
    path: str, file: Any, infos: Mapping[str, Info], begin: int, size: int
) -> tuple[dict[str, int], list[str], str]:
    """Return the offset of each tensor in an existing file, tensors too many, and why the file cannot be read.

    A file of the expected size has the expected offsets, whatever its header says: `_head` reports the header.
    """
    file.seek(0)
    if size_of(file) == size and file.read(8) == (begin - 8).to_bytes(8, "little"):
        return {name: begin + info.begin for name, info in infos.items()}, [], ""
    try:
        with Reader(path) as reader:
            file.seek(0)
            data = 8 + int.from_bytes(file.read(8), "little")
            there = {name: reader.info(name) for name in reader.names}
    except ValueError as error:
        if size_of(file) != size:  # another file, not a damaged one
            raise
        return {}, [], str(error).removeprefix(f"{printable(path)}: ")
    places = {
        name: data + there[name].begin
        for name, info in infos.items()
        if name in there and (there[name].dtype, there[name].shape) == (info.dtype, info.shape)
    }
    return places, [name for name in there if name not in infos], ""


def _part(file: Any, part: str, begin: int, info: Info, pieces: Iterable[Any]) -> Difference | None:
    """Compare the bytes of one stored tensor; return its first difference."""
    first, bits, at = None, 0, 0
    buffer = np.empty(min(CHUNK, max(info.nbytes, 1)), np.uint8)
    for piece in pieces:
        whole = np.frombuffer(piece, np.uint8)
        for start in range(0, whole.size, CHUNK):
            expected = whole[start : start + CHUNK]
            stored = buffer[: expected.size]
            read = _read_into(file, stored, begin + at)
            if read < expected.size or not np.array_equal(expected, stored):
                stored[read:] = ~expected[read:]
                wrong = expected ^ stored
                if first is None:
                    byte = int(np.flatnonzero(wrong)[0])
                    first = at + byte, int(wrong[byte])
                bits += int(np.bitwise_count(wrong).sum(dtype=np.int64))
            at += expected.size
    return None if first is None else Difference(part, *first, bits)


def _array(file: Any, begin: int, info: Info) -> Array:
    """Return one stored tensor as bytes."""
    data = np.zeros(info.nbytes, np.uint8)
    _read_into(file, data, begin)
    return data


def _read_into(file: Any, data: Array, begin: int) -> int:
    view, done = data.data, 0
    while done < data.size and (count := read_at(file, view[done : done + CHUNK], begin + done)):
        done += count
    return done
