"""Values of a machine file that depend on its sizes: products and quotients such as ``"rows * columns / 2"``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from ....base.errors import WrongType, WrongValue, shown
from ....base.texts import near_words

#: A name (with a dot for a figure of the device), a number, or one of the two operators.
TOKEN = re.compile(r"\s*(?:([A-Za-z_][\w.]*)|(\d+(?:\.\d+)?(?:e[+-]?\d+)?)|([*/]))")
MAX_TEXT = 200
Lookup = Callable[[str], float | None]


def amount(what: str, value: object, names: Mapping[str, Any], lookup: Lookup | None = None) -> Any:
    """Return a number as it is, and the value of a text of names and numbers joined by ``*`` and ``/``.

    Parameters
    ----------
    what : str
        The key, for messages.
    value : number or str
    names : mapping of str to number
    lookup : callable, optional
        Returns the value of a name with a dot, or None if there is no such name.

    Raises
    ------
    ValueError
        The text is longer than 200 characters, not of this form, or has an unknown name.

    Examples
    --------
    >>> amount("kib", "2 * rows / 4", {"rows": 16}), amount("pj", "1 / 3", {}), amount("kib", 8, {})
    (8, 0.3333333333333333, 8)
    """
    if not isinstance(value, str):
        return value
    if len(value) > MAX_TEXT:
        raise WrongValue(f"Machine: {what} has {len(value)} characters, expected at most {MAX_TEXT}")
    found: Any = None
    operator, place, text = "*", 0, value.strip()
    while place < len(text):
        token = TOKEN.match(text, place)
        if token is None or bool(token[3]) == bool(operator):
            raise WrongValue(f"Machine: {what} is {shown(value)}, expected a number, or names joined by * and /")
        place = token.end()
        if token[3]:
            operator = token[3]
            continue
        right = _named(what, token[1], names, lookup) if token[1] else _number(token[2])
        found = right if found is None else _joined(what, value, found, operator, right)
        operator = ""
    if operator:
        raise WrongValue(f"Machine: {what} is {shown(value)}, expected a number, or names joined by * and /")
    return found


def _number(text: str) -> int | float:
    return int(text) if text.isdecimal() else float(text)


def _named(what: str, name: str, names: Mapping[str, Any], lookup: Lookup | None) -> Any:
    found = lookup(name) if lookup is not None and "." in name else names.get(name)
    if found is None:
        near = near_words(name, names, 1)
        words = f"the nearest is {near[0]}" if near else f"expected one of {', '.join(names) or 'sizes of the file'}"
        raise WrongValue(f"Machine: {what} has the name {shown(name)}, {words}")
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise WrongType(f"Machine: {what} has the name {shown(name)}, which is {shown(found)} and no number")
    return found


def _joined(what: str, text: str, left: Any, operator: str, right: Any) -> Any:
    if max(abs(left), abs(right)) > 1e30:
        raise WrongValue(f"Machine: {what} is {shown(text)}, which is more than 1e30")
    if operator == "/":
        if not right:
            raise WrongValue(f"Machine: {what} is {shown(text)}, which divides by 0")
        exact = isinstance(left, int) and isinstance(right, int) and left % right == 0
        return left // right if exact else left / right
    found = left * right
    if not math.isfinite(found) or abs(found) > 1e30:
        raise WrongValue(f"Machine: {what} is {shown(text)}, which is more than 1e30")
    return found


def applies(what: str, when: object, sizes: Mapping[str, Any]) -> bool:
    """Return whether an entry with ``when = {size = value, ...}`` is part of the machine.

    Parameters
    ----------
    what : str
    when : mapping of str to value or list of values
    sizes : mapping

    Examples
    --------
    >>> applies("level", {"dataflow": ["ws", "os"]}, {"dataflow": "ws"})
    True
    """
    if not isinstance(when, Mapping):
        raise WrongType(f"Machine: when of {what} is {shown(when)}, expected {{size = value}}")
    for name in when:
        if name not in sizes:
            near = near_words(str(name), sizes, 1)
            words = (
                f"the nearest is {near[0]}" if near else f"expected one of {', '.join(sizes) or 'sizes of the file'}"
            )
            raise WrongValue(f"Machine: when of {what} has {shown(name)}, {words}")
    return all(sizes[name] in (wanted if isinstance(wanted, list) else [wanted]) for name, wanted in when.items())
