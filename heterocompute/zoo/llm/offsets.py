"""The part of a text that each token stands for, from the bytes that tokens of a GGUF file stand for.

    text     "Hé you"        tokens "H", 0xC3, 0xA9, " you"     spans (0, 1), (1, 2), (1, 2), (2, 6)

Tokens follow the text from its beginning. A space before the first word that the text does not have belongs to no
character. Characters that no token has belong to the unknown token before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SPACE = b" "


class Surface(NamedTuple):
    """The bytes of a token.

    `adds`: a space at their beginning may be added. `is_open`: an unknown token, which also stands for other bytes.
    """

    content: bytes
    adds: bool = False
    is_open: bool = False


def spans_of(text: str, surfaces: Sequence[Surface]) -> list[tuple[int, int]]:
    """Return the characters of a text that each of its tokens covers, as (begin, end).

    Tokens that share a character all cover it.
    """
    data, places = text.encode(), list[int]()
    for i, character in enumerate(text):
        places += [i] * len(character.encode())
    places.append(len(text))
    found, at, open_at = list[tuple[int, int]](), 0, -1
    for surface in surfaces:
        content = surface.content
        if surface.is_open and not data.startswith(content, at):
            open_at = at if open_at < 0 else open_at
            found.append((places[at], len(text)))
            continue
        options = [content, content[1:]] if surface.adds and content[:1] == SPACE else [content]
        begin, used = _found(data, options, at)
        if open_at >= 0:  # the unknown token ends here
            found[-1] = found[-1][0], places[begin]
            open_at = -1
        at = begin + len(used)
        found.append((places[begin], places[at - 1] + 1 if used else places[begin]))
    return found


def _found(data: bytes, options: Sequence[bytes], at: int) -> tuple[int, bytes]:
    """Return where one of the contents is, as near as possible to a position, and which."""
    for content in options:
        if data.startswith(content, at):
            return at, content
    later = [(begin, -len(one)) for one in options if (begin := data.find(one, at)) >= 0]
    begin, length = min(later, default=(at, 0))
    return begin, data[begin : begin - length]
