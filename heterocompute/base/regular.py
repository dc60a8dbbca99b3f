"""Opening a user's files: regular files only, since a call would wait for a FIFO, and a device may never end.

A link to a regular file counts as one, and so does an object that a URL names.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from .errors import WrongValue, printable
from .locations import is_url, open_url

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


def other_kind(mode: int) -> str | None:
    """Return the kind of file of a mode, such as a folder; None for a regular file."""
    if stat.S_ISREG(mode):
        return None
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "a file of another kind")


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise ValueError if a path is something other than a regular file.

    Parameters
    ----------
    path : str or os.PathLike
        It need not exist.
    """
    try:
        kind = other_kind(os.stat(path).st_mode)
    except OSError:  # the attempt to create the file reports the error
        return
    if kind:
        raise WrongValue(f"{printable(os.fsdecode(path))}: is {kind}, expected a regular file")


def open_regular(path: str | os.PathLike[str], buffered: bool = True) -> Any:
    """Open a regular file to read its bytes.

    Parameters
    ----------
    path : str or os.PathLike
        Also a URL such as ``s3://bucket/file``.

    Returns
    -------
    io.BufferedReader or io.FileIO

    Raises
    ------
    ValueError
        The file is a directory, a FIFO, a socket or a device, or its name has a null byte.
    OSError
        The file cannot be opened.
    """
    if "\0" in os.fsdecode(path):
        raise WrongValue(f"{printable(os.fsdecode(path))}: is not the name of a file")
    if is_url(path):
        return open_url(os.fsdecode(path), buffered)
    check_regular(path)  # opening a device may have an effect
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = open(path, "rb", -1 if buffered else 0, opener=lambda name, _: os.open(name, flags))
    kind = other_kind(os.fstat(file.fileno()).st_mode)  # the name may belong to another file by now
    if kind:
        file.close()
        raise WrongValue(f"{printable(os.fsdecode(path))}: is {kind}, expected a regular file")
    return file
