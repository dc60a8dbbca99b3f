"""Tokens by pieces, in the order of llama.cpp: SentencePiece's BPE, and WordPiece of BERT by the package tokenizers.

BPE: the neighbors whose join is the piece with the highest score merge first; of equal scores, the leftmost. A text is
cut where no piece has the two characters next to each other, and each part is merged on its own. Memory and time depend
on the size of the vocabulary, not on the ways to split its pieces.

WordPiece: "\u2581cat" begins a word, "s" is BERT's "##s". Words of any length are split; BERT has a limit of 100.

llama.cpp, src/llama-vocab.cpp, llm_tokenizer_spm_session and llm_tokenizer_wpm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

from ...base.errors import WrongValue
from ...base.texts import quoted
from .control_tokens import CONTROL, UNKNOWN
from .tokenizers_package import package, refusals

MOST_KEPT, LONGEST_KEPT = 1 << 16, 64  # parts of texts whose tokens are kept, and their characters
FURTHER = "##"  # before a piece that continues a word
SPACE = "\u2581"
LONGEST = 1 << 30
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
