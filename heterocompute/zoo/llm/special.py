"""Special tokens in a text, as llama.cpp finds them: the longest first, of equal texts the leftmost.

llama.cpp, src/llama-vocab.cpp, llama_vocab::impl::tokenizer_st_partition. The time is that of a few searches of the
text, however many special tokens there are.
"""

from __future__ import annotations

from collections.abc import Sequence

SPACES = " \t\n\v\f\r"
FEW = 64  # tokens that are searched one by one


class Special:
    """The special tokens of a vocabulary.

    Parameters
    ----------
    tokens : sequence of (str, int, bool)
        Text, token, and whether white space after it is left out.
    """

    def __init__(self, tokens: Sequence[tuple[str, int, bool]]) -> None:
        self._tokens = sorted(tokens, key=lambda one: -len(one[0].encode("utf-8", "surrogateescape")))

    def parts(self, text: str) -> list[str | int]:
        """Split a text at special tokens."""
        places: dict[int, list[int]] | None = None
        several = self._tokens
        if len(several) > FEW:
            heads = {text[i : i + 2] for i in range(len(text))} | set(text)
            several = [one for one in several if one[0][:2] in heads]
            if len(several) > 100 * len({len(one[0]) for one in several}):
                places = _places(several, text)
        if places is None:
            several = [one for one in several if one[0] in text]
        else:
            several = [one for one in several if one[1] in places]
        if len(several) > FEW:
            return _claimed(several, text, places)
        parts: list[str | int] = [text] if text else []
        for wanted, token, strip in several:
            found: list[str | int] = []
            for part in parts:
                if not isinstance(part, str):
                    found.append(part)
                    continue
                first, *others = _split(part, wanted, strip)
                found += [first] if first else []
                for one in others:
                    found += [token, one] if one else [token]
            parts = found
        return parts


def _split(text: str, wanted: str, strip: bool) -> list[str]:
    """Split a text at a special token, after which white space may be left out."""
    if not strip:
        return text.split(wanted)
    found, begin = list[str](), 0
    while (at := text.find(wanted, begin)) >= 0:
        found.append(text[begin:at])
        begin = at + len(wanted)
        while begin < len(text) and text[begin] in SPACES:
            begin += 1
    return [*found, text[begin:]]


def _places(several: Sequence[tuple[str, int, bool]], text: str) -> dict[int, list[int]]:
    """Return where each token begins in a text."""
    tokens = {one[0]: one[1] for one in several}
    lengths: dict[str, set[int]] = {}
    for wanted in tokens:
        lengths.setdefault(wanted[:2], set()).add(len(wanted))
    found: dict[int, list[int]] = {}
    for at in range(len(text)):
        for head in {text[at : at + 2], text[at]}:
            for length in lengths.get(head, ()):
                token = tokens.get(text[at : at + length])
                if token is not None:
                    found.setdefault(token, []).append(at)
    return found


def _claimed(
    several: Sequence[tuple[str, int, bool]], text: str, places: dict[int, list[int]] | None
) -> list[str | int]:
    """Split a text in which many special tokens occur."""
    taken, begins = bytearray(len(text)), dict[int, tuple[int, int]]()
    for wanted, token, strip in several:
        for at in places[token] if places is not None else _occurrences(text, wanted):
            end = at + len(wanted)
            if taken.find(1, at, end) >= 0:
                continue
            while strip and end < len(text) and not taken[end] and text[end] in SPACES:
                end += 1
            taken[at:end] = b"\1" * (end - at)
            begins[at] = token, end
    parts, done = list[str | int](), 0
    for at in sorted(begins):
        token, end = begins[at]
        parts += [text[done:at], token]
        done = end
    return [part for part in (*parts, text[done:]) if part != ""]


def _occurrences(text: str, wanted: str) -> list[int]:
    found, at = list[int](), text.find(wanted)
    while at >= 0:
        found.append(at)
        at = text.find(wanted, at + 1)
    return found
