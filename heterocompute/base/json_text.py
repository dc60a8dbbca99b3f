"""JSON from untrusted files: no duplicate keys, no NaN, bounded nesting, and no more values than tensors can need.

A value takes up to 30 times the memory of its text, so values are counted in the text before it is parsed.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from .errors import WrongValue, printable
from .texts import quoted, read_small

MAX_TENSORS = 1 << 19  # three times the tensors of a network with a thousand experts
# Marks of one tensor's entry: 1 object, 2 lists, 5 strings, and the commas of 8 dimensions.
MAX_MARKS = {
    b"{": ("objects", 2 * MAX_TENSORS),
    b"[": ("lists", 2 * MAX_TENSORS),
    b",": ("items", 12 * MAX_TENSORS),
}
MAX_STRINGS = 6 * MAX_TENSORS
DIGITS = 40  # of a number in an error
LARGE = re.compile(r"[eE]\+?0*[1-9]\d\d|\d{300}")  # numbers that may be beyond float64
MAX_DEPTH = 64  # what walks over a value calls itself at each level


def strict_json(text: str | bytes) -> Any:
    """Parse JSON in UTF-8; duplicate keys, NaN, Infinity, numbers beyond float64 and deep nesting are a ValueError."""
    _check_amount(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        is_large = LARGE.search(decoded) is not None  # a function of Python for each number takes time
        signed, finite = _signed if is_large or "-0" in decoded else None, _finite if is_large else None
        found = json.loads(decoded, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=signed,
                           parse_float=finite)  # fmt: skip
    except RecursionError:
        found = None
    else:
        if decoded.count("[") + decoded.count("{") <= MAX_DEPTH or not _is_deep(found):
            return found
    raise WrongValue(f"nested more than {MAX_DEPTH} deep")


def _signed(text: str) -> int | float:
    """Return an integer; -0 is a float, as in other languages, and so no count."""
    if len(text) > DIGITS:
        _finite(text)
    return -0.0 if text == "-0" else int(text)


def _finite(text: str) -> float:
    """Return a number; one beyond float64 is refused, as by the library of safetensors."""
    found = float(text)
    if math.isinf(found):
        raise WrongValue(f"the number {printable(text[:DIGITS])} is beyond float64")
    return found


def json_object(path: str, limit: int) -> dict[str, Any]:
    """Return the JSON object of a file of at most `limit` bytes; ValueError with its path if the file is no such."""
    name = printable(path)
    try:
        found = strict_json(read_small(path, limit))
    except json.JSONDecodeError as error:
        raise WrongValue(f"{name}: not JSON: {printable(str(error))}") from None
    except ValueError as error:
        raise WrongValue(f"{name}: {printable(str(error).removeprefix(f'{name}: '))}") from None
    if not isinstance(found, dict):
        raise WrongValue(f"{name}: not a JSON object")
    return found


def is_count(value: object) -> bool:
    """Tell whether a JSON value is an integer from 0 to 2^63 - 1."""
    return type(value) is int and 0 <= value < 2**63


def _check_amount(text: bytes) -> None:
    if all(text.count(mark) <= most for mark, (_, most) in MAX_MARKS.items()) and text.count(b'"') <= 2 * MAX_STRINGS:
        return  # also with those inside strings
    bare = text.replace(rb"\\", b"").replace(rb"\"", b"")
    quotes = bare.count(b'"')
    if quotes > 2 * MAX_STRINGS:
        raise WrongValue(f"more than {MAX_STRINGS} strings")
    outside = b"".join(bare.split(b'"')[::2])
    for mark, (what, most) in MAX_MARKS.items():
        if outside.count(mark) > most:
            raise WrongValue(f"more than {most} {what}")


def _is_deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        nested = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list))]
        level = [one for part in nested for one in part if isinstance(one, (dict, list))]
        if not level:
            return False
    return True


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise WrongValue(f"the key {quoted(key)} appears twice")
            seen.add(key)
    return found


def _no_constant(text: str) -> NoReturn:
    raise WrongValue(f"{text} is not JSON")
