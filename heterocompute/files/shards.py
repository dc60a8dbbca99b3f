"""One output file of a rewritten checkpoint, with all data that a process needs to write it.

A shard has its tensors, the change of each, and the source files that they are in; it opens only these. Tensors are
assigned to shards in the order of the source, and each shard is filled up to the limit, so that it needs few files.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import IO, Any

import numpy as np

from ..arrays.layout import KEY, Entry, file_layout, parts_of
from ..base.container import Reader, nbytes_of
from ..base.errors import TooLarge, WrongValue, printable
from ..base.float_env import call_back, counts_subnormals
from ..base.json_text import strict_json
from ..base.locations import absolute, exists, is_url, put, size_of, state_of_url
from ..base.progress import Progress
from ..base.regular import open_regular
from ..base.rereading import drawn
from ..base.tensors import CHUNK, Info, Tensors
from ..base.texts import quoted, read_small, sentence
from ..base.version import __version__
from ..base.writer import Writer, bytes_of as memory_of, laid_out, sync_folder
from .changes import Change
from .containers.folder import Located
from .opening import reader_of
from .safetensors import read_array

State = tuple[int, int, str]
NOWHERE: State = (-1, 0, "")
SAMPLES, SAMPLE_BYTES = 16, 4096
MAX_RECEIPT = 1 << 26
HEAD = "__metadata__"  # a key of receipts; no tensor can have this name
Held = Mapping[str, Entry | None]  # arrays of a checkpoint: packed ones with their entry, plain ones with None


@dataclass(frozen=True)
class Shard:
    """One file to write.

    Attributes
    ----------
    path : str
    source : str
        The checkpoint, in errors.
    tensors : tuple of (str, Entry or None, Change or None)
        Name, entry of a packed array, and change; without a change the tensor is copied.
    infos : dict of str to Info
        Of all their components.
    files : dict of str to str
        File of each of these tensors.
    states : dict of str to (int, int, str)
        File -> its bytes, time of change (ns) and a digest of samples.
    metadata : dict of str to str
        Metadata besides the description of packed arrays.
    receipts : str
        Folder of the receipts of written files, "" for none. With receipts, a file is on the disk before it appears
        under its name, and an existing file of that name is this shard.
    frees : dict of str to tuple of str
        Source file -> the shards that need it. It is deleted when all of them are written.
    source_of : callable
        Opens these files.
    check : str
        Tensors that are computed again and compared with the written file, one of `rereading.CHECKS`.
    """

    path: str
    source: str
    tensors: tuple[tuple[str, Entry | None, Change | None], ...]
    infos: dict[str, Info]
    files: dict[str, str]
    states: dict[str, State]
    metadata: dict[str, str]
    receipts: str = ""
    frees: dict[str, tuple[str, ...]] = field(default_factory=dict)
    source_of: Callable[[str], Tensors] = reader_of
    check: str = "sample"

    def layout(self) -> tuple[dict[str, tuple[str, tuple[int, ...]]], dict[str, str]]:
        """Return tensors and metadata for `Writer`."""
        held = {name: entry for name, entry, _ in self.tensors}
        changes = {name: change for name, _, change in self.tensors if change is not None}
        return layout_of(self.source, self.infos.__getitem__, held, changes, self.metadata)

    @property
    def source_bytes(self) -> int:
        """Bytes of the source that this shard reads, for the progress."""
        return sum(info.nbytes for info in self.infos.values())

    @functools.cached_property
    def digest(self) -> str:
        """Digest that differs for shards of other checkpoints or with other options."""
        states = sorted((os.path.basename(file), *state) for file, state in self.states.items())
        changes = [(name, repr(change)) for name, _, change in self.tensors]
        declared = json.dumps([__version__, self.layout(), changes, states])
        return hashlib.sha256(declared.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def receipt(self) -> str:
        """Path of the receipt, which has the CRC-32 of each written tensor."""
        return os.path.join(self.receipts, f"{self.digest}.json")

    def is_whole(self, path: str) -> bool:
        """Tell whether a file is this shard, byte for byte as it was written."""
        head, infos, size = laid_out(*self.layout())
        try:
            sums = sums_in(self.receipt)
            sums.pop(HEAD, None)
            if os.path.islink(path) or sums.keys() != infos.keys():
                return False
            with open_regular(path) as file:
                if size_of(file) != size or file.read(len(head)) != head:
                    return False
                places = sorted(infos.items(), key=lambda item: (item[1].begin, item[1].nbytes))
                return all(sums[name] == _sum_of(file, info.nbytes) for name, info in places)
        except (OSError, ValueError):
            return False


def sums_in(receipt: str) -> dict[str, Any]:
    """Return the content of a receipt: the CRC-32 of each tensor, and under `HEAD` that of the bytes before them.

    Raises
    ------
    ValueError
        The file is not a receipt.
    """
    sums = strict_json(read_small(receipt, MAX_RECEIPT))
    if not isinstance(sums, dict):
        raise WrongValue(f"{printable(receipt)}: is not the receipt of a finished file")
    return sums


def whole_file(path: str, receipt: str) -> dict[str, Info] | None:
    """Return the tensors of a file that matches its receipt, None if it does not match or does not exist."""
    try:
        sums = sums_in(receipt)
        if os.path.islink(path):
            return None
        with Reader(path) as reader, open_regular(path) as file:
            infos = {name: reader.info(name) for name in reader.names}
            if sums.keys() != {HEAD, *infos}:
                return None
            length = int.from_bytes(file.read(8), "little")
            file.seek(0)
            places = sorted(infos.items(), key=lambda item: (item[1].begin, item[1].nbytes))
            wanted = [(HEAD, 8 + length), *((name, info.nbytes) for name, info in places)]
            return infos if all(sums[name] == _sum_of(file, count) for name, count in wanted) else None
    except (OSError, ValueError):
        return None


def _sum_of(file: IO[bytes], count: int) -> int:
    """Return the CRC-32 of the next bytes of a file."""
    total = 0
    while count > 0 and (piece := file.read(min(count, CHUNK))):
        total, count = zlib.crc32(piece, total), count - len(piece)
    return total


def located(reader: Tensors, source: Callable[[str], Tensors] = reader_of) -> Located:
    """Return the tensors of a checkpoint with the files that they are in; `source` opens these files."""
    if isinstance(reader, Located):
        return reader
    infos = {name: reader.info(name) for name in reader.names}
    found = Located(reader.path, dict.fromkeys(infos, absolute(reader.path)), infos, reader.metadata, source)
    found.others = sorted(reader.others)
    return found


def bytes_of(reader: Tensors, name: str, entry: Entry | None) -> int:
    """Return the bytes of an array as it is read."""
    return sum(reader.info(part).nbytes for part in components_of(name, entry))


def stored_bytes_of(reader: Tensors, name: str, entry: Entry | None) -> int:
    """Return the bytes of an array in its file."""
    return sum(reader.stored_bytes(part) for part in components_of(name, entry))


def components_of(name: str, entry: Entry | None) -> list[str]:
    return [name] if entry is None else [f"{name}.{key}" for key in entry.components]


def _stored(info: Callable[[str], Info], name: str, entry: Entry | None, change: Change | None) -> dict[str, Any]:
    """Return the stored result of an array by name: a packed array, or plain ones."""
    if change is not None and isinstance(change.stored, Mapping):
        return dict(change.stored)
    return {name: change.stored if change else entry or (info(name).dtype, info(name).shape)}


def parts_after(info: Callable[[str], Info], name: str, entry: Entry | None, change: Change | None) -> dict[str, Any]:
    """Return dtypes and shapes of the stored result of an array, by name."""
    (key, one), *more = _stored(info, name, entry, change).items()
    if isinstance(one, Entry):
        return {f"{key}.{part}": layout for part, layout in one.components.items()}
    return dict([(key, one), *more])


def layout_of(
    path: str,
    info: Callable[[str], Info],
    held: Held,
    changes: Mapping[str, Change],
    metadata: Mapping[str, str],
) -> tuple[dict[str, tuple[str, tuple[int, ...]]], dict[str, str]]:
    """Return tensors and metadata for `Writer`, for the given arrays after their changes.

    Raises
    ------
    ValueError
        If two tensors would have one name.
    """
    tensors: dict[str, Any] = {}
    try:
        for name, entry in held.items():
            for key, one in _stored(info, name, entry, changes.get(name)).items():
                if key in tensors:
                    raise WrongValue(f"two tensors would be called {quoted(key)}")
                tensors[key] = one
        packed = any(isinstance(one, Entry) for one in tensors.values())
        kept = {key: value for key, value in metadata.items() if key != KEY}  # KEY describes the new arrays
        found, described = file_layout(tensors, metadata=kept)
    except ValueError as error:
        raise WrongValue(f"{printable(path)}: {error}") from None
    return found, described if packed else kept


def divided(
    reader: Located,
    held: Held,
    changes: Mapping[str, Change],
    metadata: Mapping[str, str],
    limit: int | None,
    gone: Mapping[str, State],
    source: Callable[[str], Tensors] = reader_of,
    check: str = "sample",
) -> list[Shard]:
    """Divide a checkpoint into files of at most `limit` bytes of data, but for arrays that are larger alone.

    `gone` are the states that deleted files had, `source` opens the others, and `check` is that of the shards.

    Returns
    -------
    list of Shard
        Without paths.
    """
    groups: list[list[str]] = [[]]
    size = 0
    for name, entry in held.items():
        parts = parts_after(reader.info, name, entry, changes.get(name))
        own = sum(nbytes_of(*part) for part in parts.values())
        if limit is not None and groups[-1] and size + own > limit:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += own
    states = {file: state_of(file) for file in dict.fromkeys([*reader.files.values(), *reader.others])}
    states |= {file: gone.get(file, state) for file, state in states.items() if state == NOWHERE}
    shards = []
    for group in groups:
        components = [part for name in group for part in components_of(name, held[name])]
        files = {part: reader.files[part] for part in components}
        shards.append(
            Shard(
                path="",
                source=reader.path,
                tensors=tuple((name, held[name], changes.get(name)) for name in group),
                infos={part: reader.info(part) for part in components},
                files=files,
                states={file: states[file] for file in dict.fromkeys([*files.values(), *reader.others])},
                metadata=dict(metadata),
                source_of=source,
                check=check,
            )
        )
    return shards


def file_names(count: int) -> list[str]:
    """Return the names that programs expect of the files of a checkpoint.

    Examples
    --------
    >>> file_names(1), file_names(2)
    (['model.safetensors'], ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'])
    """
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{i + 1:05d}-of-{count:05d}.safetensors" for i in range(count)]


def placed(shards: Sequence[Shard], paths: Sequence[str], receipts: str = "", consume: bool = False) -> list[Shard]:
    """Return the shards with the paths of their files and receipts, and the source files that each may delete."""
    needs: dict[str, list[str]] = {}
    for shard, path in zip(shards, paths, strict=True):
        for file in shard.states:
            needs.setdefault(file, []).append(path)
    return [
        replace(
            shard,
            path=path,
            receipts=receipts,
            frees={file: tuple(needs[file]) for file in shard.states} if consume else {},
        )
        for shard, path in zip(shards, paths, strict=True)
    ]


def state_of(file: str) -> State:
    """Return the bytes, the time of change and a digest of samples of a file, `NOWHERE` for a missing file.

    Copies and archives may keep times, and fine-tuned checkpoints have equal sizes.
    """
    try:
        if is_url(file):
            return state_of_url(file)
        with open_regular(file) as opened:
            found, samples = os.fstat(opened.fileno()), hashlib.sha256()
            for i in range(SAMPLES):
                opened.seek(max(0, (found.st_size - SAMPLE_BYTES) * i // (SAMPLES - 1)))
                samples.update(opened.read(SAMPLE_BYTES))
    except FileNotFoundError:
        return NOWHERE
    return found.st_size, found.st_mtime_ns, samples.hexdigest()[:32]


@counts_subnormals
def write_shard(shard: Shard, progress: Progress | None = None) -> int:
    """Write one shard, and delete the files of the source that no other one needs where it shall.

    Returns
    -------
    int
        Bytes of the source that are done with it.
    """
    if not (shard.receipts and exists(shard.path)):  # a pool may repeat a task that a lost worker had finished
        _write(shard, progress)
    free(shard)
    return shard.source_bytes


def free(shard: Shard) -> None:
    """Delete the source files that no shard needs any longer.

    Raises
    ------
    ValueError
        A file has changed since the shards were planned.
    """
    for file, needed in shard.frees.items():
        if all(map(os.path.exists, needed)):
            state = state_of(file)
            if state not in (NOWHERE, shard.states[file]):
                raise WrongValue(f"{printable(file)}: changed after it was read, and is not deleted")
            with contextlib.suppress(FileNotFoundError):  # another worker deleted it
                os.unlink(file)


def _write(shard: Shard, progress: Progress | None) -> None:
    done, total = 0, shard.source_bytes
    with Located(shard.source, shard.files, shard.infos, shard.metadata, shard.source_of) as reader:
        check_states(shard)
        stored, metadata = shard.layout()
        with Writer(shard.path, stored, metadata, durable=bool(shard.receipts)) as writer:
            for name, entry, change in shard.tensors:
                if progress:
                    call_back(progress, done, total, name)
                _write_one(reader, writer, name, entry, change)
                done += bytes_of(reader, name, entry)
            _compare(shard, reader, writer)
            check_states(shard)
            if shard.receipts:  # before the file appears under its name
                sums = {**writer.sums, HEAD: zlib.crc32(laid_out(stored, metadata)[0])}
                write_whole(shard.receipt, json.dumps(sums, ensure_ascii=False))


def check_states(shard: Shard) -> None:
    for file, state in shard.states.items():
        if state_of(file) != state:
            raise WrongValue(f"{printable(file)}: changed, or was deleted, while the checkpoint was read")


def _write_one(reader: Tensors, writer: Writer, name: str, entry: Entry | None, change: Change | None) -> None:
    if change is None:
        for part in components_of(name, entry):
            writer.copy(part, reader)
        return
    for part, array in made_of(reader, name, entry, change).items():
        writer.write(part, array)


def made_of(reader: Tensors, name: str, entry: Entry | None, change: Change) -> Mapping[str, Any]:
    """Return the tensors that store the result of a change."""
    value = reader.lent(name) if entry is None else read_array(reader, name, entry)
    with about(reader, name):
        made = change.make(value)
    if isinstance(change.stored, Mapping):
        return dict(made)
    return parts_of(name, made, change.stored if isinstance(change.stored, Entry) else None)


def _compare(shard: Shard, reader: Tensors, writer: Writer) -> None:
    """Raise ValueError if the written file does not hold what is made of drawn tensors when they are read again."""
    kinds = {
        name: (
            (change and change.format, reader.info(components_of(name, entry)[0]).dtype),
            bytes_of(reader, name, entry),
        )
        for name, entry, change in shard.tensors
    }
    chosen = set(drawn(kinds, shard.check))
    for name, entry, change in shard.tensors:
        if name not in chosen:
            continue
        if change is None:
            for part in components_of(name, entry):
                writer.check(part, reader.chunks(part))
        else:
            for part, array in made_of(reader, name, entry, change).items():
                writer.check(part, [memory_of(np.asarray(array))])


def write_whole(path: str, content: str | bytes) -> None:
    """Write a small file, which appears under its name when it is on the disk."""
    if is_url(path):
        put(path, content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        return
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f".heterocompute-{os.urandom(8).hex()}.tmp")
    with open(temporary, "xb") as file:  # does not follow a link
        file.write(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(folder)


@contextmanager
def about(reader: Tensors, name: str) -> Iterator[None]:
    """Prefix errors that do not name the file and the tensor with both."""
    prefix = f"{printable(reader.path)}: "
    try:
        yield
    except (ValueError, MemoryError) as error:
        text = sentence(error)
        if text.startswith(prefix):
            raise
        kind = WrongValue if isinstance(error, ValueError) else TooLarge
        raise kind(f"{prefix}tensor {quoted(name)}: {text}") from None
