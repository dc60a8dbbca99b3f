"""What an unfinished output says of itself, `OUT.partial/manifest.json`: read as any file of strangers is.

    {"version", "program", "consume", "parts", "beside": [name], "shards": [[digest, name, ...]],
     "source": {"path", "metadata", "tensors", "states"}}

`parts` is the number of runs that share the work, 0 of a run that does all. `beside` names the other files of OUT.

Only a run that deletes its source says what tensors that had, and where: {name: [file, dtype, shape, bytes]}, and what
state each file was in, {file: [bytes, time, sample]}. Files are deleted by it later on, so it may name those alone that
the source's own index names.
"""

from __future__ import annotations

import os
import re
from typing import Any

from ..base.container import MAX_DIMENSIONS, nbytes_of
from ..base.json_text import is_count, strict_json
from ..base.magic import INDEX
from ..base.tensors import Info
from ..base.texts import printable, quoted, read_small
from .containers.folder import Located, weight_map
from .opening import reader_of

__all__ = ["MAX_PARTS", "SHARD_NAME", "VERSION", "read_manifest", "refuse_links", "source_in"]

VERSION = 3
MAX_MANIFEST = 1 << 28
MAX_PARTS = 100_000
SHARD_NAME = re.compile(r"model(-(?P<number>\d{5,9})-of-\d{5,9})?\.safetensors")
DIGEST = re.compile("[0-9a-f]{64}")
FIELDS = {"version", "program", "consume", "parts", "beside", "shards", "source"}


def read_manifest(path: str) -> dict[str, Any]:
    """Read the manifest of an earlier run.

    Returns
    -------
    dict

    Raises
    ------
    ValueError
        It is none, in one line.
    """
    try:
        found = strict_json(read_small(path, MAX_MANIFEST))
        _check(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{printable(path)}: no manifest of an unfinished output ({printable(str(error))[:200]}); delete "
            f"{quoted(os.path.dirname(path))} to start again"
        ) from None
    return dict(found)


def _check(found: Any) -> None:
    if not isinstance(found, dict) or found.keys() != FIELDS or type(found["version"]) is not int:
        raise ValueError(f"expected the fields {', '.join(sorted(FIELDS))}")
    if found["version"] != VERSION:
        raise ValueError(f"version {found['version']}")
    shards = found["shards"]
    if not _is_text(found["program"]) or type(found["consume"]) is not bool or not isinstance(shards, list):
        raise ValueError("fields of other types")
    if not is_count(found["parts"]) or found["parts"] > MAX_PARTS or not isinstance(found["beside"], list):
        raise ValueError("parts of other types")
    for name in found["beside"]:
        if not _is_text(name) or name in ("", ".", "..") or "/" in name or os.sep in name or "\0" in name:
            raise ValueError("beside names what is no file of the folder")
    digests = [_check_shard(i, one) for i, one in enumerate(shards)]
    if len(set(digests)) < len(digests):
        raise ValueError("one shard twice")
    _check_source(found["source"], found["consume"])


def _check_source(source: Any, consume: bool) -> None:
    """Check what is said of the checkpoint that is read; `consume`: its files are deleted."""
    if not isinstance(source, dict) or source.keys() != {"path", "metadata", "tensors", "states"}:
        raise ValueError("source of other fields")
    metadata, tensors, states = source["metadata"], source["tensors"], source["states"]
    if not _is_text(source["path"]) or not all(isinstance(one, dict) for one in (metadata, tensors, states)):
        raise ValueError("source of other types")
    if not all(map(_is_text, (*metadata, *metadata.values(), *tensors, *states))):
        raise ValueError("names that are not strings")
    for name, one in tensors.items():
        _check_tensor(name, one)
    for file, state in states.items():
        whole = isinstance(state, list) and len(state) == 3 and is_count(state[0]) and type(state[1]) is int
        if not whole or not isinstance(state[2], str):
            raise ValueError(f"state of {quoted(file)}")
    if {one[0] for one in tensors.values()} != states.keys() or (states and not consume):
        raise ValueError("files without a state, or states without a file")


def _check_shard(i: int, one: Any) -> str:
    """Check what is said of a shard; its file bears its number, so that no two of them can have one name."""
    if not isinstance(one, list) or len(one) < 2 or not all(isinstance(text, str) for text in one):
        raise ValueError(f"shard {i + 1} of other types")
    if not DIGEST.fullmatch(one[0]):
        raise ValueError(f"digest of shard {i + 1}")
    for name in one[1:]:
        fit = SHARD_NAME.fullmatch(name)
        if not fit or int(fit["number"] or 1) != i + 1:
            raise ValueError(f"{quoted(name)} is not a valid name for shard {i + 1}")
    return str(one[0])


def _check_tensor(name: str, one: Any) -> None:
    if not isinstance(one, list) or len(one) != 4:
        raise ValueError(f"tensor {quoted(name)}")
    file, dtype, shape, n_bytes = one
    if not isinstance(file, str) or not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"tensor {quoted(name)}")
    if not all(map(is_count, (n_bytes, *shape))) or nbytes_of(dtype, shape) != n_bytes:
        raise ValueError(f"size of tensor {quoted(name)}")


def _is_text(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    text.encode("utf-8")  # a lone surrogate is a ValueError
    return True


def source_in(manifest: dict[str, Any], root: str, in_path: str | os.PathLike[str]) -> Located | None:
    """Return what a checkpoint was before parts of it were deleted, or None where none were to be.

    Parameters
    ----------
    manifest : dict
        As `read_manifest` returns it.
    root : str
        The unfinished output, in errors.
    in_path : path
        Which checkpoint is meant.

    Raises
    ------
    ValueError
        Another checkpoint's remains, or files that its index does not name.
    """
    if not manifest.get("consume"):
        return None
    said = manifest["source"]
    wanted, given = said["path"], os.path.realpath(in_path)
    folder = os.path.dirname(wanted)
    if given not in (wanted, folder):
        raise ValueError(
            f"{printable(root)}: holds what was made of {quoted(wanted)}, of which parts are deleted already: "
            "finish that first"
        )
    tensors, files = said["tensors"], {name: one[0] for name, one in said["tensors"].items()}
    where = {name: os.path.basename(file) for name, file in files.items()}
    strange = [] if wanted.endswith(INDEX) else [wanted]
    strange += [file for file in said["states"] if os.path.join(folder, os.path.basename(file)) != file]
    if not strange and os.path.lexists(wanted):
        known = weight_map(wanted)
        strange = [files[name] for name in files if known.get(name) != where[name]]
    elif not strange:  # the index goes last
        strange = [file for file in said["states"] if os.path.lexists(file)]
    strange += [file for file in said["states"] if os.path.islink(file)]
    if strange:
        raise ValueError(
            f"{printable(root)}: says that {quoted(strange[0])} was a part of the checkpoint "
            f"{quoted(wanted)}, which that does not say: nothing is deleted"
        )
    infos = {name: Info(dtype, tuple(shape), n) for name, (_, dtype, shape, n) in tensors.items()}
    return Located(wanted, files, infos, said["metadata"], reader_of)


def refuse_links(index: str, files: set[str]) -> None:
    """Raise ValueError where another name of the folder leads to a file that shall be deleted."""
    folder = os.path.dirname(os.path.realpath(index))
    links = [one.name for one in os.scandir(folder) if one.is_symlink() and os.path.realpath(one.path) in files]
    if links:
        raise ValueError(f"{printable(index)}: consume would delete what the link {quoted(min(links))} leads to, and "
                         "others may need: expected files of the folder itself")  # fmt: skip
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{printable(folder)}: consume cannot delete files there")
