"""Tokens by pieces, in the order of llama.cpp: SentencePiece's BPE and Unigram, and BERT's WordPiece by tokenizers.

BPE: the neighbors whose join is the piece with the highest score merge first; of equal scores, the leftmost. A text is
cut where no piece has the two characters next to each other, and each part is merged on its own. Memory and time depend
on the size of the vocabulary, not on the ways to split its pieces.

Unigram: the pieces whose scores have the largest sum. WordPiece: "\u2581cat" begins a word, "s" is BERT's "##s".

llama.cpp, src/llama-vocab.cpp, llm_tokenizer_spm_session, llm_tokenizer_ugm_session and llm_tokenizer_wpm.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

from ...base.errors import WrongValue, printable
from ...base.texts import quoted
from .control_tokens import CONTROL, NORMAL, UNKNOWN, UNUSED, USER
from .tokenizers_package import package, refusals

MOST_KEPT, LONGEST_KEPT = 1 << 16, 64  # parts of texts whose tokens are kept, and their characters
FURTHER = "##"  # before a piece that continues a word
SPACE = "\u2581"
LONGEST = 1 << 30
PENALTY = 10.0  # below the least score: that of an unknown character
LONGEST = 1024  # bytes of a replacement and of what it replaces: a file may hold more, or a cycle
SPECIAL = (CONTROL, UNKNOWN)  # types of tokens that are found in texts before words are


class Pieces:
    """A vocabulary with scores.

    Parameters
    ----------
    numbers : mapping of str to int
        Pieces -> tokens.
    scores : sequence of float
        The score of each token.
    unknown : int or None
        The token of characters that neither pieces nor bytes represent.
    """

    def __init__(self, numbers: Mapping[str, int], scores: Sequence[float], unknown: int | None) -> None:
        self._numbers, self._scores, self._unknown = numbers, scores, unknown
        self._longest = max(map(len, numbers), default=0)
        self._bytes = [numbers.get(f"<0x{byte:02X}>") for byte in range(256)]
        self._inner: set[tuple[str, str]] = set()
        for piece in numbers:
            self._inner.update(pairwise(piece))
        self._kept: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text.

        Raises
        ------
        ValueError
            The vocabulary has no token for a character.
        """
        found: list[int] = []
        begin, inner = 0, self._inner
        for at, pair in enumerate(pairwise(text), 1):
            if pair not in inner:
                self._extend(found, self._part(text[begin:at]))
                begin = at
        if text:
            self._extend(found, self._part(text[begin:]))
        return found

    def _extend(self, found: list[int], tokens: list[int]) -> None:
        """Append tokens; neighboring characters without a token are one unknown token."""
        is_unknown = found and found[-1] == self._unknown == tokens[0]
        found += tokens[1:] if is_unknown else tokens

    def _part(self, text: str) -> list[int]:
        if len(text) > LONGEST_KEPT:
            return self._merged(text)
        found = self._kept.get(text)
        if found is None:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            found = self._kept[text] = self._merged(text)
        return found

    def _merged(self, text: str) -> list[int]:
        """Merge the characters of a text; `ends[i]` is the end of the piece that begins at i, 0 if none does."""
        whole = self._numbers.get(text) if len(text) == 1 else None
        if whole is not None:
            return [whole]
        n = len(text)
        ends, before = list(range(1, n + 1)), list(range(-1, n - 1))
        numbers, scores, longest = self._numbers, self._scores, self._longest
        waiting: list[tuple[float, int, int, int]] = []
        for i in range(n - 1):
            token = numbers.get(text[i : i + 2])
            if token is not None:
                waiting.append((-scores[token], i, i + 1, i + 2))
        heapify(waiting)
        while waiting:
            _, left, middle, end = heappop(waiting)
            if ends[left] != middle or ends[middle] != end:
                continue
            ends[left], ends[middle] = end, 0
            if end < n:
                before[end] = left
            for first, second in ((before[left], left), (left, end)):
                if first < 0 or second >= n or ends[second] - first > longest:
                    continue
                token = numbers.get(text[first : ends[second]])
                if token is not None:
                    heappush(waiting, (-scores[token], first, second, ends[second]))
        found, at = list[int](), 0
        while at < n:
            found += self._tokens(text[at : ends[at]], found)
            at = ends[at]
        return found

    def _tokens(self, piece: str, earlier: list[int]) -> list[int]:
        """Return the token of a piece, or the tokens of the bytes of a character without one."""
        token = self._numbers.get(piece)
        if token is not None:
            return [token]
        found = [self._bytes[byte] for byte in piece.encode()]
        tokens = [one for one in found if one is not None]
        if len(tokens) == len(found):
            return tokens
        if self._unknown is None:
            raise WrongValue(f"encode: the vocabulary has no token for the character {quoted(piece)}")
        return [] if earlier and earlier[-1] == self._unknown else [self._unknown]


class Unigram:
    """The pieces of the largest sum of scores.

    Parameters
    ----------
    numbers : mapping of str to int
        Pieces -> tokens.
    scores, types : sequence of float, of int
        The score and the type of each token.
    unknown : int
        The token of characters that no piece represents. Neighboring ones have one token.
    """

    def __init__(self, numbers: Mapping[str, int], scores: Sequence[float], types: Sequence[int], unknown: int) -> None:
        self._unknown = unknown
        matched = (NORMAL, USER, UNUSED)
        self._scores = {
            text: (0.0 if types[i] == USER else scores[i], i) for text, i in numbers.items() if types[i] in matched
        }
        self._cost = min((scores[i] for i in numbers.values() if types[i] == NORMAL), default=0.0) - PENALTY
        self._next: dict[int, int] = {}  # a tree of the pieces: a node and a character -> the node after it
        self._ends: dict[int, tuple[float, int]] = {}  # the pieces that end at a node
        for text, found in self._scores.items():
            node = 0
            for character in text:
                node = self._next.setdefault(node << 21 | ord(character), len(self._next) + 1)
            self._ends[node] = found

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        n, scores, after, ends = len(text), self._scores, self._next, self._ends
        best, pieces = [-math.inf] * (n + 1), [(0, self._unknown)] * (n + 1)
        best[0] = 0.0
        for i in range(n):
            so_far, node = best[i], 0
            for end in range(i + 1, n + 1):
                if not (node := after.get(node << 21 | ord(text[end - 1]), 0)):
                    break
                found = ends.get(node)
                if found is not None and so_far + found[0] > best[end]:
                    best[end], pieces[end] = so_far + found[0], (i, found[1])
            if text[i] not in scores and so_far + self._cost > best[i + 1]:
                best[i + 1], pieces[i + 1] = so_far + self._cost, (i, self._unknown)
        found_tokens, at = list[int](), n
        while at > 0:
            at, token = pieces[at]
            if not (found_tokens and token == self._unknown == found_tokens[-1]):
                found_tokens.append(token)
        return found_tokens[::-1]


class Charsmap:
    """Replacements of characters before Unigram: the longest one that begins at a byte.

    Parameters
    ----------
    path : str
        For errors.
    blob : bytes
        ``precompiled_charsmap`` of SentencePiece: the bytes of a double array, the array, and the replacements, each
        of which ends with a zero byte.
    """

    def __init__(self, path: str, blob: bytes) -> None:
        size = int.from_bytes(blob[:4], "little")
        if len(blob) < 4 or size % 4 or size < 4 or size > len(blob) - 4 or (size < len(blob) - 4 and blob[-1]):
            raise WrongValue(f"{printable(path)}: precompiled_charsmap is no double array with its replacements")
        self._path, self._texts = path, blob[4 + size :]
        self._nodes = memoryview(blob[4 : 4 + size]).cast("I") if sys.byteorder == "little" else _swapped(blob, size)

    def replaced(self, text: str) -> str:
        """Return a text with its replacements.

        Raises
        ------
        ValueError
            The double array has a position beyond its end, or a cycle; or a replacement is very long.
        """
        data, found, at = text.encode(), bytearray(), 0
        while at < len(data):
            length, begin = self._longest(data, at)
            if length:
                end = self._texts.find(b"\0", begin, begin + LONGEST + 1)
                if begin >= len(self._texts) or end < 0:
                    raise self._wrong()
                found += self._texts[begin:end]
                at += length
            else:
                length = 1
                while at + length < len(data) and data[at + length] & 0xC0 == 0x80:
                    length += 1
                found += data[at : at + length]
                at += length
        return found.decode("utf-8", "replace")

    def _longest(self, data: bytes, at: int) -> tuple[int, int]:
        """Return the bytes that are replaced, 0 for none, and where their replacement begins."""
        nodes, count = self._nodes, len(self._nodes)
        node, length, begin = _base(nodes[0]), 0, 0
        for i in range(at, len(data)):
            byte = data[i]
            node ^= byte
            if byte == 0:
                break
            if node >= count or i - at >= LONGEST:
                raise self._wrong()
            unit = nodes[node]
            if unit & 0x800000FF != byte:
                break
            node ^= _base(unit)
            if unit >> 8 & 1:
                if node >= count:
                    raise self._wrong()
                length, begin = i - at + 1, nodes[node] & 0x7FFFFFFF
        return length, begin

    def _wrong(self) -> ValueError:
        return WrongValue(
            f"{printable(self._path)}: precompiled_charsmap has a position beyond its end, or a text of more than "
            f"{LONGEST} bytes"
        )


def _base(unit: int) -> int:
    return (unit >> 10) << ((unit & 1 << 9) >> 6)


def _swapped(blob: bytes, size: int) -> Any:
    return [int.from_bytes(blob[i : i + 4], "little") for i in range(4, 4 + size, 4)]


def phantom(text: str) -> str:
    """Return the text of a piece in GGUF."""
    if text.startswith("[") and text.endswith("]"):
        return text
    return text.removeprefix(FURTHER) if text.startswith(FURTHER) else SPACE + text


def piece(text: str) -> str:
    """Return a piece as BERT writes it, from its text in GGUF."""
    if text.startswith("[") and text.endswith("]"):
        return text
    return text.removeprefix(SPACE) if text.startswith(SPACE) else FURTHER + text


class WordPiece:
    """The coder of an encoder's vocabulary.

    Parameters
    ----------
    path : str
        For errors.
    texts : sequence of str
        Pieces in GGUF.
    types : sequence of int
    unknown : int
        The token of words that no pieces make.
    lowercase, strip_accents : bool
    """

    def __init__(
        self, path: str, texts: Sequence[str], types: Sequence[int], unknown: int, lowercase: bool, strip_accents: bool
    ) -> None:
        tokenizers = package()
        self._path, pieces = path, [piece(text) for text in texts]
        with refusals(path, "make this vocabulary"):
            made = self._made = tokenizers.Tokenizer(
                tokenizers.models.WordPiece(
                    {text: i for i, text in enumerate(pieces)},
                    unk_token=pieces[unknown],
                    max_input_chars_per_word=LONGEST,
                )  # fmt: skip
            )
            made.normalizer = tokenizers.normalizers.BertNormalizer(
                clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents, lowercase=lowercase
            )
            made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
            made.decoder = tokenizers.decoders.WordPiece(FURTHER, cleanup=True)
            made.add_special_tokens([text for text, kind in zip(pieces, types, strict=True) if kind in SPECIAL])

    @property
    def made(self) -> Any:
        """The tokenizer of the package `tokenizers`."""
        return self._made

    def encode(self, text: str) -> list[int]:
        with refusals(self._path, "encode this text"):
            return list(self._made.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int]) -> str:
        with refusals(self._path, "decode these tokens"):
            return str(self._made.decode(ids, skip_special_tokens=True))

    def spans(self, text: str) -> list[tuple[int, int]]:
        with refusals(self._path, "encode this text"):
            return list(self._made.encode(text, add_special_tokens=False).offsets)

    def special(self) -> dict[str, int]:
        return {one.content: i for i, one in self._made.get_added_tokens_decoder().items() if one.special}
