"""Regular expressions of configurations, matched from the first character as `re.match` does, in bounded time.

A configuration is not trusted, and `re` may take hours for ``(a+)+$``. Here each part of an expression maps a set of
positions in the name to the set after it, so that work grows as the expression times the name squared. Characters,
classes, groups, alternatives, repetitions, ``^ $ \\b`` and lookahead are known; the rest is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NoReturn

from ...base.errors import WrongValue, shown

MAX_STEPS = 1 << 20  # of Python's regular expressions, which try each repetition at each length
MAX_PATTERN, MAX_NAME, MAX_COUNT, MAX_DEPTH = 1024, 1024, 64, 32
TOKEN = re.compile(
    r"\\[^0-9]|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?:|\(\?=|\(\?!|\(|\)|\||(?:[*+?]|\{(?:[0-9]+(?:,[0-9]*)?|,[0-9]*)\})[?+]?|\^|\$|.",
    re.S,
)

Ends = Callable[[str, frozenset[int]], frozenset[int]]


def matches(pattern: str, name: str) -> bool:
    """Tell whether an expression fits the beginning of a name.

    Raises
    ------
    ValueError
        The expression is invalid, too long, or has an unsupported part.

    Examples
    --------
    >>> matches(r".*\\.(?:0|1)\\..*down", "layers.1.mlp.down_proj"), matches("down", "up.down")
    (True, False)
    >>> matches("(a+)+$", "a" * 99 + "b")
    False
    """
    if len(name) > MAX_NAME:
        raise WrongValue(f"a name of {len(name)} characters, at most {MAX_NAME} are matched with an expression")
    ends, quick, repeats = _compiled(pattern)
    if quick is not None and (len(name) + 1) ** repeats <= MAX_STEPS:
        return quick.match(name) is not None
    return bool(ends(name, frozenset([0])))


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> tuple[Ends, re.Pattern[str] | None, int]:
    """Return the map of positions (Python's own expression if it repeats no group) and the number of repetitions."""
    if len(pattern) > MAX_PATTERN:
        raise WrongValue(f"an expression of {len(pattern)} characters, at most {MAX_PATTERN} are read")
    try:
        quick = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise WrongValue(f"{shown(pattern)} is not a regular expression: {error}") from None
    parser = _Parser(pattern)
    found = parser.alternatives(0)
    if parser.tokens:
        parser.refuse(parser.tokens[0])
    return found, None if parser.repeats_groups else quick, parser.repeats


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern, self.tokens = pattern, TOKEN.findall(pattern)
        self.repeats, self.repeats_groups = 0, False

    def refuse(self, token: str) -> NoReturn:
        raise WrongValue(f"the expression {shown(self.pattern)} holds {shown(token)}, which is not read here")

    def alternatives(self, depth: int) -> Ends:
        if depth > MAX_DEPTH:
            self.refuse("(" * MAX_DEPTH)
        branches = [self.sequence(depth)]
        while self.tokens and self.tokens[0] == "|":
            self.tokens.pop(0)
            branches.append(self.sequence(depth))
        return branches[0] if len(branches) == 1 else _either(branches)

    def sequence(self, depth: int) -> Ends:
        parts: list[Ends] = []
        while self.tokens and self.tokens[0] not in ("|", ")"):
            token = self.tokens.pop(0)
            part = self.atom(token, depth)
            while self.tokens and (self.tokens[0][0] in "*+?" or re.match(r"\{.+", self.tokens[0])):
                self.repeats, self.repeats_groups = self.repeats + 1, self.repeats_groups or token[0] == "("
                part = self.repeated(part, self.tokens.pop(0))
            parts.append(part)
        return _one_after_another(parts)

    def atom(self, token: str, depth: int) -> Ends:
        if token in ("(", "(?:", "(?=", "(?!"):
            if token == "(" and self.tokens and self.tokens[0][0] == "?":
                self.refuse(token + self.tokens[0])
            inner = self.alternatives(depth + 1)
            self.tokens.pop(0)  # the bracket, which re.compile has checked
            return inner if token in ("(", "(?:") else _ahead(inner, token == "(?=")
        if token in ("^", "$", "\\b", "\\B", "\\A", "\\Z"):
            return _where(re.compile(token))
        if token[0] == "\\" and (len(token) < 2 or (token[1].isalnum() and token[1] not in "dDsSwWfnrtv")):
            self.refuse(token + "".join(self.tokens[:1]))
        return _character(re.compile(token))

    def repeated(self, part: Ends, token: str) -> Ends:
        if token[0] != "{":
            if token[1:] == "+":
                self.refuse(token)  # possessive
            return _times(part, int(token[0] == "+"), 1 if token[0] == "?" else None)
        if not token.endswith("}"):
            if token[-1] == "+":
                self.refuse(token)
            token = token[:-1]
        low, comma, high = token[1:-1].partition(",")
        least, most = int(low or 0), int(high) if high else (None if comma else int(low or 0))
        if least > MAX_COUNT or (most or 0) > MAX_COUNT:
            self.refuse(token)
        return _times(part, least, most)


def _either(branches: list[Ends]) -> Ends:
    return lambda name, begins: frozenset().union(*(branch(name, begins) for branch in branches))


def _one_after_another(parts: list[Ends]) -> Ends:
    def ends(name: str, begins: frozenset[int]) -> frozenset[int]:
        for part in parts:
            if not begins:
                break
            begins = part(name, begins)
        return begins

    return ends


def _character(one: re.Pattern[str]) -> Ends:
    return lambda name, begins: frozenset(i + 1 for i in begins if i < len(name) and one.match(name, i, i + 1))


def _where(one: re.Pattern[str]) -> Ends:
    return lambda name, begins: frozenset(i for i in begins if one.match(name, i))


def _ahead(inner: Ends, wanted: bool) -> Ends:
    return lambda name, begins: frozenset(i for i in begins if bool(inner(name, frozenset([i]))) is wanted)


def _times(part: Ends, least: int, most: int | None) -> Ends:
    def ends(name: str, begins: frozenset[int]) -> frozenset[int]:
        for _ in range(least):
            before, begins = begins, part(name, begins)
            if begins == before:  # no further positions
                break
        found, new, count = set(begins), begins, least
        while new and (most is None or count < most):
            new = part(name, new) - found
            found |= new
            count += 1
        return frozenset(found)

    return ends
