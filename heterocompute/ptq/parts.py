"""Parts of an output that is not complete: files in the folder OUT.parts, each with a receipt.

    OUT.parts/KEY.safetensors   a Hessian, or a tensor that is rounded
    OUT.parts/KEY.json          the record of a run of the network: the axes of each tensor whose inputs were recorded
    OUT.parts/KEY.sum           the receipt of each of these files: number of bytes and CRC-32

A key covers everything that determines the content, so that no part of another checkpoint or of other options is
reused. A file gets its name only after it and its receipt are on the disk; a file that is not such a part, or whose
bytes differ from its receipt, is made again.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable

from ..base.errors import WrongValue, printable
from ..base.locations import is_url
from ..base.regular import open_regular
from ..base.tensors import CHUNK
from ..base.texts import file_name, read_small
from ..base.writer import sync_folder
from ..files.shards import write_whole

_OURS = re.compile(r"[0-9a-f]{32}\.(safetensors|json|sum)|\.heterocompute-[0-9a-f]{16}\.tmp")
MAX_SUM = 64


class Parts:
    """The folder of the parts of an output, next to the output.

    Parameters
    ----------
    out_path : path
    resume : bool
        Whether to take what an earlier run has left; else that is deleted.

    Raises
    ------
    ValueError
        The name belongs to something other than a folder, or to a link.
    """

    def __init__(self, out_path: str | os.PathLike[str], resume: bool = True) -> None:
        if is_url(file_name(out_path)):
            name = printable(file_name(out_path))
            raise WrongValue(f"{name}: is a URL, and ptq keeps parts beside its output: expected a path")
        self.folder = os.path.abspath(file_name(out_path)) + ".parts"
        if os.path.lexists(self.folder) and (os.path.islink(self.folder) or not os.path.isdir(self.folder)):
            raise WrongValue(
                f"{printable(self.folder)}: is in the way: expected a folder for what is done of the output"
            )
        if not resume:
            self.remove()

    def path(self, key: str, suffix: str = "safetensors") -> str:
        """Return the name that a file has or will have."""
        return os.path.join(self.folder, f"{key}.{suffix}")

    def has(self, path: str) -> bool:
        """Tell whether a file exists with exactly the bytes that were written."""
        try:
            return not os.path.islink(path) and read_small(_receipt(path), MAX_SUM) == _sum_of(path)
        except (OSError, ValueError):
            return False

    def write(self, path: str, write: Callable[[str], object]) -> None:
        """Write a file by a function of a path, and its receipt.

        Parameters
        ----------
        path : str
            As of `path`.
        """
        os.makedirs(self.folder, exist_ok=True)
        temporary = os.path.join(self.folder, f".heterocompute-{os.urandom(8).hex()}.tmp")
        try:
            write(temporary)
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
            write_whole(_receipt(path), _sum_of(temporary))
            os.replace(temporary, path)
        finally:
            if os.path.lexists(temporary):
                os.remove(temporary)
        sync_folder(self.folder)

    def remove(self) -> None:
        """Remove the files of earlier runs, and the folder if it is then empty."""
        if not os.path.isdir(self.folder):
            return
        for name in os.listdir(self.folder):
            if _OURS.fullmatch(name):
                os.remove(os.path.join(self.folder, name))
        if not os.listdir(self.folder):
            os.rmdir(self.folder)


def _receipt(path: str) -> str:
    return os.path.splitext(path)[0] + ".sum"


def _sum_of(path: str) -> str:
    total, count = 0, 0
    with open_regular(path) as file:
        while piece := file.read(CHUNK):
            total, count = zlib.crc32(piece, total), count + len(piece)
    return f"{count} {total:08x}\n"
