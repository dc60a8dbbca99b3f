"""The tokenizer of a folder that is made of a GGUF file: tokenizer.json and tokenizer_config.json.

    gpt2     BPE of bytes with the merges and the rule of words of the file
    llama    BPE whose merges are all ways to split a piece, by the scores of the pieces
    bert     WordPiece
    t5       Unigram

Both tokenizers then give the same tokens: `check_overlaps` refuses overlaps of added tokens, which the two programs
resolve differently, and texts made of the vocabulary are compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from ....base.errors import WrongValue, printable, shown
from ....zoo.llm.control_tokens import BYTE, CONTROL, UNKNOWN, USER
from ....zoo.llm.gguf_tokens import Vocabulary, vocabulary_of
from ....zoo.llm.pieces import WordPiece
from ....zoo.llm.tokenizers_package import package, refusals
from ....zoo.llm.tokens import Around
from ...containers.gguf_files import Gguf
from .unigram import tokenizer_of
from .vocabulary import LONGEST, SPACE, check_overlaps

TEMPLATE = "tokenizer.chat_template"
NAMES = {"bos": "bos_token", "eos": "eos_token", "padding": "pad_token", "unknown": "unk_token"}
OF_BERT = {"bos": "cls_token", "seperator": "sep_token", "mask": "mask_token"}
TEXTS, PIECES = 200, 4  # compared texts, and pieces of each
IN_TEXTS = (CONTROL, USER, UNKNOWN)  # types of tokens that are found in texts before words are


def tokenizer_files(reader: Gguf, rows: int) -> dict[str, str]:
    """Return the contents of the files by name.

    Parameters
    ----------
    rows : int
        Of the embedding.

    Raises
    ------
    ValueError
        The vocabulary is of another kind, or no tokenizer.json gives the same tokens.
    """
    found = vocabulary_of(reader.path, reader.metadata, reader.listed, rows)
    coder = found.coder()  # refuses what is not read
    if found.is_phi3:
        raise WrongValue(f"{printable(reader.path)}: white space after control tokens has no tokens, as in Phi-3")
    around = found.around()
    made = _MADE[found.kind or ""](reader.path, found, coder)
    if found.kind != "bert":
        check_overlaps(dict.fromkeys(_add_tokens(made, found), False))
    with refusals(reader.path, "put tokens around texts"):
        _put_around(made, around, found.texts)
    before = [] if around.before is None else [around.before]
    for text in _drawn(found):
        if list(made.encode(text).ids) != [*before, *coder.encode(text), *around.after]:
            raise WrongValue(f"{printable(reader.path)}: the text {shown(text)} has other tokens in tokenizer.json")
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    names = NAMES | (OF_BERT if found.kind in ("bert", "t5") else {})
    config |= {key: found.texts[i] for name, key in names.items() if (i := found.number(name)) is not None}
    if template := reader.metadata.get(TEMPLATE):
        config["chat_template"] = template
    return {"tokenizer.json": made.to_str(), "tokenizer_config.json": json.dumps(config, indent=2, ensure_ascii=False)}


def _of_bytes(path: str, found: Vocabulary, coder: object) -> Any:
    made, spelt = found.byte_level({text: i for i, text in enumerate(found.texts)})
    if spelt:
        raise WrongValue(f"{printable(path)}: its merges join texts that are no tokens")
    if found.normalizer is not None:
        made.normalizer = package().normalizers.NFC()
    made.decoder = package().decoders.ByteLevel()
    return made


def _of_sentencepiece(path: str, found: Vocabulary, coder: object) -> Any:
    """Return BPE whose merges are all ways to split a piece into two, the pieces in the order of their scores."""
    tokenizers, scores = package(), found.scores
    numbers = {text: i for i, text in enumerate(found.texts)}
    lost = next((byte for byte in range(256) if f"<0x{byte:02X}>" not in numbers), None)
    if lost is not None:
        raise WrongValue(f"{printable(path)}: its vocabulary lacks the token <0x{lost:02X}>")
    pieces = [text for text in found.texts if len(text) > 1]  # of all types: llama.cpp joins those, too
    if len(max(pieces, key=len, default="")) > LONGEST:
        raise WrongValue(f"{printable(path)}: a piece has more than {LONGEST} characters")
    merges = []
    whole = {
        text
        for text, kind in zip(found.texts, found.kinds, strict=True)
        if kind in (BYTE, *IN_TEXTS) and SPACE not in text
    }  # found in texts before words are, or in none
    for text in sorted(pieces, key=lambda one: -scores[numbers[one]]):
        for at in range(len(text) - 1, 0, -1):
            pair = text[:at], text[at:]
            if all(part in numbers or len(part) == 1 for part in pair):  # llama.cpp joins characters without a token
                lacking = next((part for part in pair if part not in numbers), None)
                if lacking is not None and text in whole:
                    continue
                if lacking is not None:
                    raise WrongValue(f"{printable(path)}: the character {shown(lacking)} of {shown(text)} is no token")
                merges.append(pair)
    _check_ties(path, merges, lambda text: scores[numbers[text]])
    with refusals(path, "make this vocabulary"):
        model = tokenizers.models.BPE(vocab=numbers, merges=merges, byte_fallback=True, fuse_unk=True)
    made = tokenizers.Tokenizer(model)
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    if found.normalizer is not None:
        raise WrongValue(f"{printable(path)}: its normalizer {found.normalizer} is not written")
    has_prefix = found.scheme is not None or found.prefixes
    if found.scheme is not None:
        made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(SPACE, found.scheme, split=False)
    else:
        steps = [normalizers.Prepend(SPACE)] if has_prefix else []
        made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    end = [decoders.Strip(" ", 1, 0)] if has_prefix else []
    made.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *end])
    return made


def _check_ties(path: str, merges: list[tuple[str, str]], score: Callable[[str], float]) -> None:
    """Refuse two pieces of one score that share a part, if the second one is the left one, which llama.cpp joins."""
    begun: dict[tuple[float, str], str] = {}
    for first, last in merges:
        one, value = first + last, score(first + last)
        other = begun.get((value, last), one)
        if other != one:
            raise WrongValue(f"{printable(path)}: its pieces {shown(other)} and {shown(one)} have the same score")
        begun.setdefault((value, first), one)


def _of_words(path: str, found: Vocabulary, coder: object) -> Any:
    assert isinstance(coder, WordPiece)
    return coder.made


def _of_unigram(path: str, found: Vocabulary, coder: object) -> Any:
    return tokenizer_of(path, found)


_MADE = {  # of `Vocabulary.coder`, which has no other
    "gpt2": _of_bytes, "llama": _of_sentencepiece, "bert": _of_words, "t5": _of_unigram,
}  # fmt: skip


def _add_tokens(made: Any, found: Vocabulary) -> list[str]:
    """Add the tokens that are found in texts, and return their texts."""
    added = [i for i, kind in enumerate(found.kinds) if kind in IN_TEXTS]
    for i in added:
        is_special = found.kinds[i] != USER
        one = package().AddedToken(found.texts[i], special=is_special, normalized=False)
        (made.add_special_tokens if is_special else made.add_tokens)([one])
    return [found.texts[i] for i in added]


def _put_around(made: Any, around: Around, texts: list[str]) -> None:
    """Add the tokens that begin and end texts."""
    if around == Around():
        return
    before, after = [around.before] if around.before is not None else [], list(around.after)
    marks = [made.id_to_token(i) for i in before], [made.id_to_token(i) for i in after]
    made.post_processor = package().processors.TemplateProcessing(
        single=[*marks[0], "$A", *marks[1]], pair=[*marks[0], "$A", "$B", *marks[1]],
        special_tokens=[(made.id_to_token(i), i) for i in dict.fromkeys((*before, *after))],
    )  # fmt: skip


def _drawn(found: Vocabulary) -> list[str]:
    """Return texts made of pieces of the vocabulary, the same ones for the same file."""
    rng = np.random.default_rng(0)
    usual = [text for text, kind in zip(found.texts, found.kinds, strict=True) if kind not in (BYTE, *IN_TEXTS)]
    several = rng.integers(0, len(usual), (TEXTS, PIECES)) if usual else np.empty((0, PIECES), int)
    texts = ["", *("".join(usual[i] for i in row).replace(SPACE, " ") for row in several.tolist())]
    return [text.encode("utf-8", "ignore").decode() for text in texts]
