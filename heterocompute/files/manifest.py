"""The record of an unfinished output in `OUT.partial/manifest.json`, which is read like any untrusted file.

    {"version", "program", "consume", "parts", "beside": [name], "shards": [[digest, name, ...]],
     "source": {"path", "metadata", "tensors", "states"}}

`parts` is the number of runs that share the work, 0 of a run that does all. `beside` names the other files of OUT.

Only a run that deletes its source records the source's tensors, {name: [file, dtype, shape, bytes]}, and the state of
each file, {file: [bytes, time, sample]}. Files are deleted by these entries later, so they may only name files of the
source's own index.
"""

from __future__ import annotations

import os
import re
from typing import Any

from ..base.container import MAX_DIMENSIONS, nbytes_of
from ..base.errors import WrongValue, printable
from ..base.json_text import is_count, strict_json
from ..base.magic import INDEX
from ..base.tensors import Info
from ..base.texts import quoted, read_small
from .containers.folder import Located, weight_map
from .opening import reader_of

VERSION = 3
MAX_MANIFEST = 1 << 28
MAX_PARTS = 100_000
SHARD_NAME = re.compile(r"model(-(?P<number>\d{5,9})-of-\d{5,9})?\.safetensors")
DIGEST = re.compile("[0-9a-f]{64}")
FIELDS = {"version", "program", "consume", "parts", "beside", "shards", "source"}


def read_manifest(path: str) -> dict[str, Any]:
    """Read the manifest of an earlier run.

    Raises
    ------
    ValueError
        The file is not a manifest; the message has one line.
    """
    try:
        found = strict_json(read_small(path, MAX_MANIFEST))
        _check(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WrongValue(
            f"{printable(path)}: not a manifest of an unfinished output ({printable(str(error))[:200]}); delete "
            f"{quoted(os.path.dirname(path))} to start again"
        ) from None
    return dict(found)


def _check(found: object) -> None:
    if not isinstance(found, dict) or found.keys() != FIELDS or type(found["version"]) is not int:
        raise WrongValue(f"expected the fields {', '.join(sorted(FIELDS))}")
    if found["version"] != VERSION:
        raise WrongValue(f"version {found['version']}")
    shards = found["shards"]
    if not _is_text(found["program"]) or type(found["consume"]) is not bool or not isinstance(shards, list):
        raise WrongValue("a field has the wrong type")
    if not is_count(found["parts"]) or found["parts"] > MAX_PARTS or not isinstance(found["beside"], list):
        raise WrongValue("parts or beside has the wrong type")
    for name in found["beside"]:
        parts = name.split("/") if _is_text(name) else []
        if len(parts) not in (1, 2) or any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
            raise WrongValue("an entry of beside is not a file name")
    digests = [_check_shard(i, one) for i, one in enumerate(shards)]
    if len(set(digests)) < len(digests):
        raise WrongValue("one shard twice")
    _check_source(found["source"], found["consume"])


def _check_source(source: object, consume: bool) -> None:
    """Check the entry of the checkpoint that is read; `consume`: its files are deleted."""
    if not isinstance(source, dict) or source.keys() != {"path", "metadata", "tensors", "states"}:
        raise WrongValue("source does not have the expected fields")
    metadata, tensors, states = source["metadata"], source["tensors"], source["states"]
    if not _is_text(source["path"]) or not all(isinstance(one, dict) for one in (metadata, tensors, states)):
        raise WrongValue("a field of source has the wrong type")
    if not all(map(_is_text, (*metadata, *metadata.values(), *tensors, *states))):
        raise WrongValue("names in source are not strings")
    for name, one in tensors.items():
        _check_tensor(name, one)
    for file, state in states.items():
        whole = isinstance(state, list) and len(state) == 3 and is_count(state[0]) and type(state[1]) is int
        if not whole or not isinstance(state[2], str):
            raise WrongValue(f"state of {quoted(file)}")
    if {one[0] for one in tensors.values()} != states.keys() or (states and not consume):
        raise WrongValue("files without a state, or states without a file")


def _check_shard(i: int, one: object) -> str:
    """Check the entry of a shard; its file name contains its number, so that no two shards have the same name."""
    if not isinstance(one, list) or len(one) < 2 or not all(isinstance(text, str) for text in one):
        raise WrongValue(f"a field of shard {i + 1} has the wrong type")
    if not DIGEST.fullmatch(one[0]):
        raise WrongValue(f"the digest of shard {i + 1} is invalid")
    for name in one[1:]:
        fit = SHARD_NAME.fullmatch(name)
        if not fit or int(fit["number"] or 1) != i + 1:
            raise WrongValue(f"{quoted(name)} is not a valid name for shard {i + 1}")
    return str(one[0])


def _check_tensor(name: str, one: object) -> None:
    if not isinstance(one, list) or len(one) != 4:
        raise WrongValue(f"the entry of tensor {quoted(name)} is invalid")
    file, dtype, shape, n_bytes = one
    if not isinstance(file, str) or not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise WrongValue(f"the entry of tensor {quoted(name)} is invalid")
    if not all(map(is_count, (n_bytes, *shape))) or nbytes_of(dtype, shape) != n_bytes:
        raise WrongValue(f"the size of tensor {quoted(name)} is invalid")


def _is_text(text: object) -> bool:
    if not isinstance(text, str):
        return False
    text.encode("utf-8")  # a lone surrogate is a ValueError
    return True


def source_in(manifest: dict[str, Any], root: str, in_path: str | os.PathLike[str]) -> Located | None:
    """Return the checkpoint's description from before its first deletion, None if the run deletes nothing.

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
        The files that are left belong to another checkpoint, or are not in its index.
    """
    if not manifest.get("consume"):
        return None
    declared = manifest["source"]
    wanted, given = declared["path"], os.path.realpath(in_path)
    folder = os.path.dirname(wanted)
    if given not in (wanted, folder):
        raise WrongValue(
            f"{printable(root)}: is the unfinished output of {quoted(wanted)}, of which parts are deleted already: "
            "finish that run first"
        )
    tensors, files = declared["tensors"], {name: one[0] for name, one in declared["tensors"].items()}
    where = {name: os.path.basename(file) for name, file in files.items()}
    strange = [] if wanted.endswith(INDEX) else [wanted]
    strange += [file for file in declared["states"] if os.path.join(folder, os.path.basename(file)) != file]
    if not strange and os.path.lexists(wanted):
        known = weight_map(wanted)
        strange = [files[name] for name in files if known.get(name) != where[name]]
    elif not strange:  # the index is deleted last
        strange = [file for file in declared["states"] if os.path.lexists(file)]
    strange += [file for file in declared["states"] if os.path.islink(file)]
    if strange:
        raise WrongValue(
            f"{printable(root)}: names {quoted(strange[0])} as a part of the checkpoint "
            f"{quoted(wanted)}, which does not contain it: nothing is deleted"
        )
    infos = {name: Info(dtype, tuple(shape), n) for name, (_, dtype, shape, n) in tensors.items()}
    return Located(wanted, files, infos, declared["metadata"], reader_of)


def refuse_links(index: str, files: set[str]) -> None:
    """Raise ValueError if another name in the folder is a link to a file that is to be deleted."""
    folder = os.path.dirname(os.path.realpath(index))
    links = [one.name for one in os.scandir(folder) if one.is_symlink() and os.path.realpath(one.path) in files]
    if links:
        raise WrongValue(f"{printable(index)}: consume would delete what the link {quoted(min(links))} leads to, and "
                         "others may need: expected files of the folder itself")  # fmt: skip
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{printable(folder)}: consume cannot delete files there")
