"""A checkpoint rewritten, one tensor in memory at a time: changed tensors are made, the rest is copied byte for byte.

All sizes are known before any tensor is made, and with them the contents of each output file. So each file is a
separate task that any thread, process or machine can do.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..arrays.layout import KEY, Entry
from ..base.container import nbytes_of
from ..base.errors import WrongValue, printable
from ..base.locations import absolute, exists, is_folder, is_url, remove
from ..base.magic import names_index, refuse_other_name
from ..base.progress import Progress
from ..base.rereading import drawn, refuse_different
from ..base.tensors import Tensors
from ..base.texts import file_name, is_same_file, quoted
from ..base.workers import in_workers, is_serial
from ..formats import format as parse_format
from ..products.quantize import quantize
from .changes import Change, in_layout
from .companions import files_beside
from .containers.folder import Located
from .layouts.configuration import KEY as CONFIG
from .layouts.layout import METADATA, Layout, is_matrix
from .layouts.table import check_layout, tensor_layout
from .manifest import refuse_links
from .opening import reader_of
from .safetensors import contents, entries, read_array
from .shards import (
    Held,
    Shard,
    about,
    bytes_of,
    divided,
    layout_of,
    located,
    parts_after,
    placed,
    stored_bytes_of,
    write_shard,
)
from .staging import Staging
from .stores import staging_of
from .work import USUAL, Work, part_with, size_of

# From a checkpoint's plain tensors and packed arrays to the changes by name.
Choose = Callable[[Tensors, Held], Mapping[str, Change]]

SUFFIX = ".safetensors"


def check_paths(in_path: str | os.PathLike[str], out_path: str | os.PathLike[str], layout: str | None = None) -> None:
    """Raise ValueError if a checkpoint would be written into itself, or under the name of another kind of file."""
    place = printable(file_name(out_path))
    if is_same_file(in_path, out_path):
        raise WrongValue(f"{place}: is the input itself")
    if layout is None or tensor_layout(layout) is not None:
        refuse_other_name(file_name(out_path))


def check_places(name: str | None, weights: Mapping[str, Entry]) -> None:
    """Raise what writing weights into a layout would raise, before they are made.

    Parameters
    ----------
    name : str or None
        Of the layout.
    weights : mapping of str to Entry
        What they will be.
    """
    if name is None or not weights:
        return
    layout = check_layout(name)
    if layout.has_tensors:
        for name, entry in weights.items():
            layout.laid_out(name, entry)
        layout.described({name: entry.format for name, entry in weights.items()}, [])
        return
    with tempfile.TemporaryDirectory() as folder:  # other kinds of files can only be checked with a row
        for name, entry in weights.items():
            n = len(entry.shape)
            along = {one % n for one in entry.axis}
            row = [size if i in along else min(size, 1) for i, size in enumerate(entry.shape)]
            zeros = np.zeros(row, np.float32)
            layout.save(os.path.join(folder, "zeros"), {name: quantize(zeros, entry.format, entry.axis)}, "sample")


def rewrite_in(
    name: str | None,
    in_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    choose: Choose,
    work: Work = USUAL,
) -> dict[str, Any]:
    """Write a checkpoint again in the layout of another program, or in ours.

    Parameters
    ----------
    name : str or None
        Of a layout; None is our own.
    in_path, out_path, choose, work
        As of `rewrite`.
    """
    if name is None:
        return rewrite(in_path, out_path, choose, work)
    layout = check_layout(name)
    if layout.is_file:
        return _rewrite_whole(in_path, out_path, choose, work, layout)

    def laid_out(reader: Tensors, held: Held) -> dict[str, Change]:
        return {name: in_layout(layout, name, change) for name, change in choose(reader, held).items()}

    def describe(changes: Mapping[str, Change], plain: list[str]) -> dict[str, Any]:
        formats: dict[str, Any] = {}
        for name, change in changes.items():
            if isinstance(change.stored, tuple):  # plain
                plain = [*plain, name] if is_matrix(name, change.stored[1]) else plain
            else:
                formats[name] = parse_format(change.format)
        return layout.described(formats, sorted(plain)) if formats or not changes else {CONFIG: None}

    return rewrite(in_path, out_path, laid_out, work, describe)


def rewrite(
    in_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    choose: Choose,
    work: Work = USUAL,
    describe: Callable[[Mapping[str, Change], list[str]], Mapping[str, Any]] | None = None,
    source: Callable[[Any], Tensors] = reader_of,
    instead: bool = False,
) -> dict[str, Any]:
    """Write a checkpoint again, with changes.

    Parameters
    ----------
    choose : callable
        ``choose(reader, held)`` of `held`, name -> Entry of a packed array or None, in the order of the file.
    describe : callable, optional
        From the changes, and the names of the matrices that stay, to what goes into config.json, and into the metadata
        as JSON; what is None leaves config.json.
    source : callable
        Opens the checkpoint, here and in whatever process writes a file.
    instead : bool
        Whether what `describe` returns replaces what the configuration says of a quantization.

    Returns
    -------
    dict
        As of `checkpoint.quantize_checkpoint`.
    """
    limit = size_of(work.shard_size)
    out = absolute(file_name(out_path))
    staging = None if out.endswith(SUFFIX) and not is_folder(out) else staging_of(out)
    if work.part is not None and staging is None:
        raise WrongValue(f"{printable(out)}: is the name of one file, and parts write a folder")
    left = staging.source(in_path) if staging else None  # if an earlier run has deleted parts of the checkpoint
    with left or source(in_path) as opened:
        if work.consume:
            _refuse_consuming(opened, out)
        reader = located(opened, source)
        refuse_replacing(reader, out_path)
        held = dict(contents(reader, entries(reader)[0]))
        with naming_file(reader):
            changes = choose(opened, held)
        stay = [
            name for name in held.keys() - changes.keys() if name in reader and is_matrix(name, reader.info(name).shape)
        ]
        more = dict(describe(changes, sorted(stay))) if describe else {}
        metadata = {key: value for key, value in reader.metadata.items() if key != KEY}
        if describe:
            declared = {key: json.dumps(value) for key, value in more.items() if value is not None and key == CONFIG}
            metadata |= {"format": "pt"} | declared
            if about := more.pop(METADATA, None):
                parts = {part: found for one in changes.values() if isinstance(one.stored, Mapping)
                         for part, found in one.stored.items()}  # fmt: skip
                metadata |= about(parts, [key for key in held if _is_plain(changes.get(key))])
        layout_of(reader.path, reader.info, held, changes, metadata)  # refuses a name that occurs twice in all files
        rows = [_row(reader, name, entry, changes.get(name)) for name, entry in held.items()]
        total = {key: sum(row[key] for row in rows) for key in ("bytes_before", "bytes")}
        is_described = any(value is not None for value in more.values())  # in config.json, which only folders have
        is_several = work.consume or left is not None or work.part is not None
        is_several = is_several or _is_folder(in_path, out_path, total["bytes"], limit, is_described)
        states = staging.states if staging else {}
        shards = divided(reader, held, changes, metadata, limit if is_several else None, states, source, work.check)
    is_one = not (is_folder(file_name(in_path)) or work.consume or left is not None)
    companions: Mapping[str, str | bytes] = {}
    if is_several and staging is not None and (is_described or not is_one):
        companions = files_beside(reader.path, more, instead, is_one)
    if work.receiver is not None:
        work.receiver(shards, companions if is_several and staging is not None else None)
    elif not is_several or staging is None:
        _run(work, placed(shards, [out]), 0, total["bytes_before"])
    else:
        if work.part is not None:
            _run_part(staging, shards, reader, companions, work)
            number, count = work.part
            return _summary(in_path, out_path, rows, held, opened) | {"part": f"{number}/{count}"}
        missing = staging.begin(shards, reader, companions, work.consume, work.resume)
        if missing is not None:
            try:
                _run_missing(staging, missing, companions, work, total)
            except BaseException:
                if not (staging.holds_shards() and (work.resume or work.consume or left is not None)):
                    staging.discard()
                raise
        if work.consume and os.path.exists(reader.path):
            os.unlink(reader.path)  # the index of the deleted files
    if work.finished and work.receiver is None:
        work.finished()
    if is_several and staging is not None and work.receiver is None:
        staging.discard()
    work.report(total["bytes_before"], total["bytes_before"])
    return _summary(in_path, out_path, rows, held, opened)


def _rewrite_whole(
    in_path: str | os.PathLike[str],
    out_path: str | os.PathLike[str],
    choose: Choose,
    work: Work,
    layout: Layout,
) -> dict[str, Any]:
    """Write a checkpoint again as one file of another kind; what goes into it is in memory.

    Parameters
    ----------
    in_path, out_path, choose, work
        As of `rewrite`.
    layout : Layout
        With a kind of file of its own.
    """
    if work.consume or work.part is not None or not is_serial(work.workers):
        raise WrongValue(f"{work.caller}: {layout.name} is one file: consume, part and workers are for several")
    with reader_of(in_path) as opened:
        reader = located(opened)
        refuse_replacing(reader, out_path)
        held = dict(contents(reader, entries(reader)[0]))
        with naming_file(reader):
            changes = choose(opened, held)
        model = layout.model_in(opened)[0]
        blocks = layout.readers(opened) if layout.has_blocks and layout.recognizes(opened) else {}
        rows = [_row(reader, name, entry, changes.get(name)) for name, entry in held.items()]
        total = {key: sum(row[key] for row in rows) for key in ("bytes_before", "bytes")}
        arrays, done = {}, 0
        for row in rows:
            name, entry = row["name"], held[row["name"]]
            work.report(done, total["bytes_before"], name)
            arrays[name] = _made(reader, name, entry, changes.get(name), blocks.get(name))
            if name in blocks and name not in changes:
                row["bytes"] = arrays[name].nbytes
            done += row["bytes_before"]
        kinds = {row["name"]: ((row["format"], row["dtype"], len(row["shape"])), row["bytes"]) for row in rows}
        for name in drawn(kinds, work.check):  # as it is read again; what is written is compared with the file
            again = _made(reader, name, held[name], changes.get(name), blocks.get(name))
            refuse_different(file_name(out_path), name, np.asarray(again), np.asarray(arrays[name]))
    layout.save(out_path, arrays, work.check, model)
    if work.finished:
        work.finished()
    work.report(done, done)
    instead = {name: change.instead_of for name, change in changes.items() if change.instead_of}
    found: dict[str, Any] = {"instead": instead}
    if layout.has_models:
        found |= {"architecture": model and model.architecture, "notes": [*model.notes] if model else []}
    return _summary(in_path, out_path, rows, held, opened) | found


def _made(
    reader: Tensors, name: str, entry: Entry | None, change: Change | None, stored: Callable[[], Any] | None
) -> Any:
    """Return an array as it is written, in memory of its own.

    Parameters
    ----------
    reader, name, entry, change
        A tensor and its change.
    stored : callable or None
        Reads the blocks of a tensor of GGUF, which are kept without a change.
    """
    if change is None and stored is not None:
        return stored()
    value = reader.tensor(name) if entry is None else read_array(reader, name, entry)
    if change is None:
        return value
    with about(reader, name):
        return change.make(value)


@contextmanager
def naming_file(reader: Tensors) -> Iterator[None]:
    """Prefix errors about tensors with the file, unless they begin with it."""
    prefix = f"{printable(reader.path)}: "
    try:
        yield
    except ValueError as error:
        raise WrongValue(f"{prefix}{str(error).removeprefix(prefix)}") from None


def refuse_replacing(reader: Located, out_path: str | os.PathLike[str]) -> None:
    """Raise ValueError if the output would replace a file that is read."""
    for file in {reader.path, *reader.files.values(), *reader.others}:
        if is_same_file(file, out_path):
            raise WrongValue(f"{printable(os.fspath(out_path))}: is a file of the input, {quoted(reader.path)}: it "
                             "would be replaced")  # fmt: skip


def _is_plain(change: Change | None) -> bool:
    return change is None or isinstance(change.stored, tuple)


def _is_folder(in_path: Any, out_path: Any, size: int, limit: int | None, is_described: bool) -> bool:
    given, wanted = (file_name(path) for path in (in_path, out_path))
    if is_folder(wanted) or wanted.endswith(os.sep):
        return True
    if wanted.endswith(SUFFIX):
        return False
    return is_described or is_folder(given) or names_index(given) or (limit is not None and size > limit)


def _refuse_consuming(opened: Tensors, out: str) -> None:
    """Raise ValueError if the checkpoint's files cannot be deleted one by one without a loss."""
    where = printable(opened.path)
    if is_url(opened.path) or is_url(out):
        raise WrongValue(f"{where}: consume deletes files of this machine: expected paths, not URLs")
    if out.endswith(SUFFIX):
        raise WrongValue(f"{printable(out)}: consume writes a folder, file by file, and this is the name of one file")
    if not names_index(opened.path) or not isinstance(opened, Located):
        raise WrongValue(f"{where}: consume deletes a checkpoint file by file, but this is one file: expected a folder "
                         "with an index")  # fmt: skip
    if opened.skipped:
        name, what = next(iter(opened.skipped.items()))
        raise WrongValue(f"{where}: consume would lose {quoted(name)}, which is not copied: {what}")
    if os.path.islink(opened.path):
        raise WrongValue(f"{where}: consume needs an index in the folder itself, and this is a link")
    folder, own = os.path.split(opened.path)
    if others := [name for name in os.listdir(folder or ".") if names_index(name) and name != own]:
        raise WrongValue(
            f"{where}: consume might delete what {quoted(min(others))} next to it names: expected one index"
        )
    refuse_links(opened.path, set(opened.files.values()))


def _run_missing(
    staging: Staging,
    missing: Sequence[Shard],
    companions: Mapping[str, str | bytes],
    work: Work,
    total: Mapping[str, int],
) -> None:
    """Write the missing shards, and give the output its name."""
    todo = [shard for shard in missing if not exists(shard.path)]
    done = total["bytes_before"] - sum(shard.source_bytes for shard in todo)
    _run(work, todo, done, total["bytes_before"])
    where = {part: os.path.basename(shard.path) for shard in missing for part in shard.layout()[0]}
    staging.finish(where, total["bytes"], companions)


def _run_part(
    staging: Staging,
    shards: Sequence[Shard],
    reader: Located,
    companions: Mapping[str, str | bytes],
    work: Work,
) -> None:
    """Write the shards of one part, while other runs may write the others."""
    number, count = work.part
    found = staging.begin_part(shards, reader, companions, count)
    own = [shard for i, shard in enumerate(found) if part_with(i, len(found), count) == number]
    for shard in own:
        if exists(shard.path) and not (work.resume and shard.is_whole(shard.path)):
            remove(shard.path)
    todo = [shard for shard in own if not exists(shard.path)]
    total = sum(shard.source_bytes for shard in own)
    _run(work, todo, total - sum(shard.source_bytes for shard in todo), total)
    work.report(total, total)


def _summary(
    in_path: Any, out_path: Any, rows: list[dict[str, Any]], held: Mapping[str, Entry | None], opened: Tensors
) -> dict[str, Any]:
    """Return what was read and written, in bytes of the files; blocks that were read as values are smaller."""
    rows = [{**row, "bytes_before": stored_bytes_of(opened, row["name"], held[row["name"]])} for row in rows]
    total = {key: sum(row[key] for row in rows) for key in ("bytes_before", "bytes")}
    paths = {"input": os.fspath(in_path), "output": os.fspath(out_path)}
    return {**paths, **total, "tensors": rows, "skipped": dict(opened.skipped)}


def _row(reader: Located, name: str, entry: Any, change: Change | None) -> dict[str, Any]:
    parts = parts_after(reader.info, name, entry, change)
    return {
        "name": name,
        "format": None if change is None else change.format,
        "shape": list(reader.info(name).shape if entry is None else entry.shape),
        "dtype": reader.info(name).dtype if entry is None else entry.dtype,
        "bytes_before": bytes_of(reader, name, entry),
        "bytes": sum(nbytes_of(*part) for part in parts.values()),
    }


def _run(work: Work, shards: Sequence[Shard], done: int, total: int) -> None:
    """Write shards with the workers and report progress: tensor by tensor here, file by file elsewhere."""

    def shifted(begin: int) -> Progress | None:
        progress = work.progress
        return (lambda now, _, name: progress(begin + now, total, name)) if callable(progress) else None

    if is_serial(work.workers):
        for shard in shards:
            write_shard(shard, shifted(done))
            done += shard.source_bytes
        return
    work.report(done, total)
    for i, _ in in_workers(work.workers, write_shard, shards, work.caller):
        done += shards[i].source_bytes
        work.report(done, total)
    lost = [shard for shard in shards if not exists(shard.path)]
    if lost:
        raise WrongValue(f"{printable(lost[0].path)}: is not there after a worker has written it: workers on other "
                         "machines must see the same paths")  # fmt: skip
