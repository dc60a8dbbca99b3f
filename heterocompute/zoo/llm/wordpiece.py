"""WordPiece of BERT from the keys of a GGUF file, by the package tokenizers.

    "\u2581cat"    "cat", which begins a word
    "s"          "##s", which continues one
    "[CLS]"      the same

llama.cpp, src/llama-vocab.cpp, llm_tokenizer_wpm. A word of any length is split; BERT has a limit of 100 characters.
"""

from __future__ import annotations

from collections.abc import Sequence

from .control_tokens import CONTROL, UNKNOWN
from .tokenizers_package import package, refusals

FURTHER = "##"  # before a piece that continues a word
SPACE = "\u2581"
LONGEST = 1 << 30
SPECIAL = (CONTROL, UNKNOWN)  # types of tokens that are found in texts before words are


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
