"""TOML: files of strangers read, ours written."""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from .errors import WrongValue, printable
from .texts import read_small

MAX_LINE = 110  # characters of a list
MAX_DEPTH = 24  # tables in tables; deeper ones could not be shown
# tomllib needs time that grows with the square of a key's parts
STRING = re.compile(r'''"""(?:\\.|[^\\])*?"""|\'{3}.*?\'{3}|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+'|#[^\n]*''', re.S)
LONG_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}""")


def read_toml(path: str | os.PathLike[str], limit: int, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Read a TOML file.

    Parameters
    ----------
    path, limit
        As of `read_small`.
    parse_float : callable
        What makes a number of the text of one.

    Raises
    ------
    ValueError
        As for `read_small`, or the file is not TOML.
    OSError
        The file cannot be read.
    """
    text = read_small(path, limit)
    try:
        return parse_toml(text, parse_float)
    except ValueError as error:
        raise WrongValue(f"{printable(os.fsdecode(path))}: {error}") from None


def parse_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Read one document; ValueError says why it is invalid.

    Examples
    --------
    >>> parse_toml("dims = {P = 16, R = 3}")
    {'dims': {'P': 16, 'R': 3}}
    """
    try:
        if LONG_KEY.search(STRING.sub('"s"', text)):
            raise WrongValue(f"a key of more than {MAX_DEPTH} parts")
        found = tomllib.loads(text, parse_float=parse_float)
        level: list[Any] = [found]
        for _ in range(MAX_DEPTH):
            inside = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list)))
            level = [one for part in inside for one in part]
            if not level:
                return found
        problem = f"nested more than {MAX_DEPTH} deep"
    except RecursionError:
        problem = "nested too deeply"
    except ValueError as error:  # invalid TOML, or an integer with too many digits
        problem = str(error)
    raise WrongValue(f"not TOML: {problem}")


def toml_text(found: Mapping[str, Any]) -> str:
    """Return nested tables of plain values as a TOML document; tables deeper than two are written inline.

    Examples
    --------
    >>> print(toml_text({"problem": {"output": "O", "dims": {"P": 16, "R": 3}}}), end="")
    [problem]
    output = "O"
    dims = {P = 16, R = 3}
    """
    parts = []
    for table, keys in found.items():
        lines = [f"[{_key(table)}]", *(f"{_key(key)} = {_value(value)}" for key, value in keys.items())]
        parts.append("".join(f"{line}\n" for line in lines))
    return "\n".join(parts)


def _key(text: str) -> str:
    return text if re.fullmatch("[A-Za-z0-9_-]+", text) else _value(text)


def _value(value: object) -> str:
    match value:
        case Mapping():
            return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            items = list(map(_value, value))
            line = f"[{', '.join(items)}]"
            is_short = len(line) < MAX_LINE or len(items) < 2
            return line if is_short else "[\n" + "".join(f"  {one},\n" for one in items) + "]"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case float() if not math.isfinite(value):
            return "nan" if value != value else "inf" if value > 0 else "-inf"
        case bool():
            return str(value).lower()
    return repr(value)
