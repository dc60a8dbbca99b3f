"""TOML files of strangers."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from typing import Any

from .texts import printable, read_small

__all__ = ["read_toml"]


def read_toml(path: str | os.PathLike[str], limit: int, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Read a TOML file.

    Parameters
    ----------
    path, limit
        As of `read_small`.
    parse_float : callable
        What makes a number of the text of one.

    Returns
    -------
    dict

    Raises
    ------
    ValueError
        As of `read_small`, or the file is no TOML.
    OSError
        The file cannot be read.
    """
    text = read_small(path, limit)
    try:
        return tomllib.loads(text, parse_float=parse_float)
    except RecursionError:
        problem = "nested too deeply"
    except ValueError as error:  # of TOML, or an integer of too many digits
        problem = str(error)
    raise ValueError(f"{printable(os.fsdecode(path))}: no TOML: {problem}")
