"""The last step of an output that several runs wrote in parts: `finish_checkpoint`."""

from __future__ import annotations

import os
from typing import Any

from ..base.errors import WrongValue, printable
from ..base.locations import exists, is_folder
from ..base.texts import counted, quoted
from .shards import file_names
from .stores import staging_of
from .work import part_with

NAMED = 3


def finish_checkpoint(out_path: str | os.PathLike[str]) -> dict[str, Any]:
    """Finish a checkpoint whose parts were written by `quantize_checkpoint` or `convert_checkpoint` with ``part=``.

    The checksums of all files are compared. Then the index is written, and the folder gets its name. The output has the
    bytes of a run without parts.

    Parameters
    ----------
    out_path : str or os.PathLike
        The `out_path` of the parts.

    Returns
    -------
    dict
        ``{"output", "parts", "files", "bytes"}``: the path, the number of parts, the names of the files of weights, and
        the bytes of all tensors.

    Raises
    ------
    ValueError
        No part was written, or a file of a part is missing or damaged. The message names the part.
    OSError
        A file cannot be read or written.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, heterocompute as hc
    >>> folder = tempfile.mkdtemp()
    >>> before, after = os.path.join(folder, "model.safetensors"), os.path.join(folder, "small")
    >>> hc.save(before, {name: np.ones((2, 64), np.float32) for name in "abc"})
    >>> for part in ("2/2", "1/2"):
    ...     summary = hc.quantize_checkpoint(before, after, "int8", shard_size=300, part=part)
    >>> hc.finish_checkpoint(after)["files"]
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
    """
    staging = staging_of(out_path)
    where = printable(staging.root)
    if not staging.begun:
        done = f": {quoted(staging.out)} exists, and may be finished already" if is_folder(staging.out) else ""
        raise WrongValue(f"{where}: no part was written here{done}")
    count = staging.begun["parts"]
    if not count:
        raise WrongValue(f"{where}: is not written in parts: run the same command again to finish it")
    names = file_names(len(staging.begun["shards"]))
    is_renamed = staging.is_renamed()
    if is_renamed:
        staging.inner = staging.out
        files, total, missing = staging.lacking()
    else:
        staging.refuse_taken(False)
        files, total, missing = staging.lacking()
        lost = [name for name in staging.begun["beside"] if not exists(os.path.join(staging.inner, name))]
        if lost and not missing:
            raise WrongValue(f"{where}: {quoted(lost[0])} is missing: run any part again")
    if missing:
        some = ", ".join(quoted(names[i]) for i in missing[:NAMED]) + (", ..." if len(missing) > NAMED else "")
        parts = sorted({part_with(i, len(names), count) for i in missing})
        again = ", ".join(f"{part}/{count}" for part in parts)
        declared = f"{len(missing)} of {counted(len(names), 'file')} not there or not whole ({some})"
        raise WrongValue(f"{where}: {declared}: run the {'part' if len(parts) == 1 else 'parts'} {again}")
    if not is_renamed:
        staging.finish(files, total, {})
    staging.discard()
    return {"output": os.fspath(out_path), "parts": count, "files": names, "bytes": total}
