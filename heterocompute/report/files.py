"""Texts, figures and tables of rows written to files, each as a whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file as a whole: under a temporary name in the same folder, then rename it.

    Raises
    ------
    OSError
        The folder cannot be written, or the existing file is not a regular one; no half-written file remains.
    """
    _write(path, text.encode("utf-8"))


def write_figure(path: str | os.PathLike[str], figure: Any) -> None:
    """Write a figure whole, as `write_text` does; the suffix of the name says in which format, none means PNG.

    Parameters
    ----------
    figure : matplotlib.figure.Figure

    Raises
    ------
    ValueError
        matplotlib does not know the suffix.
    OSError
        As of `write_text`.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(path).suffix[1:] or "png")
    _write(path, drawn.getvalue())


def _write(path: str | os.PathLike[str], content: bytes) -> None:
    target = Path(os.path.realpath(path))  # the target of a link, not the link
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "exists and is not a regular file", os.fspath(path))
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):  # a full disk names no file, and the temporary one is unknown
            raise type(error)(error.errno, error.strerror, os.fspath(path)) from None
        raise


def csv_text(rows: Sequence[Row]) -> str:
    """Return rows as CSV with a header line; None is an empty field."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
