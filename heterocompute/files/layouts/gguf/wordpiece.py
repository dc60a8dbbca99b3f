"""Keys of a GGUF file for the tokenizer and the pooling of an encoder, those of BPE and Unigram by other modules.

    model WordPiece         tokenizer.ggml.model bert; "cat" is "\u2581cat", "##s" is "s"
    BertNormalizer          .normalizer.lowercase, .normalizer.strip_accents
    [CLS] and [SEP]         .bos_token_id and .seperator_token_id, which llama.cpp puts around texts
    1_Pooling/config.json   bert.pooling_type

llama.cpp, convert_hf_to_gguf.py and src/llama-vocab.cpp, llm_tokenizer_wpm.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ....base.errors import WrongValue, shown
from ....base.json_text import json_object
from ....base.locations import is_file
from ....zoo.encoders.pooling import declared_in
from ....zoo.llm.control_tokens import CONTROL, NORMAL, UNKNOWN, UNUSED
from ....zoo.llm.folder_tokens import MAX_TOKENIZER, around_of
from ....zoo.llm.pieces import FURTHER, phantom
from ....zoo.llm.shape import Shape
from .unigram import UnigramFolder
from .vocabulary import vocabulary_keys

TOKENIZER = "tokenizer.json"
POOLING = {"mean": 1, "cls": 2, "last": 3}


def encoder_keys(folder: str, config: Mapping[str, Any], shape: Shape, notes: list[str]) -> dict[str, Any]:
    """Return the keys for the tokenizer of a folder, and for its pooling.

    Parameters
    ----------
    notes : list of str
        Sentences about texts that llama.cpp splits otherwise are appended.

    Raises
    ------
    ValueError
        The tokenizer is missing, or has an option for which GGUF has no key.
    """
    place = os.path.join(folder, TOKENIZER)
    if not is_file(place):
        raise WrongValue(f"{TOKENIZER} is missing")
    declared = json_object(place, MAX_TOKENIZER)
    model, normal = declared.get("model"), declared.get("normalizer")
    if isinstance(model, Mapping) and model.get("type") == "BPE":
        keys = vocabulary_keys(folder, config, shape.vocabulary, notes, encoder=True)
        return keys | _pooling(folder, shape)
    if isinstance(model, Mapping) and model.get("type") == "Unigram":
        keys = vocabulary_keys(folder, config, shape.vocabulary, notes, True, UnigramFolder)
        return keys | _pooling(folder, shape)
    if (
        not isinstance(model, Mapping)
        or model.get("type") != "WordPiece"
        or not isinstance(model.get("vocab"), Mapping)
    ):
        raise _refuse("its model is neither WordPiece, Unigram nor BPE of bytes")
    if model.get("continuing_subword_prefix", FURTHER) != FURTHER:
        raise _refuse(f"continuing_subword_prefix is {shown(model['continuing_subword_prefix'])}, expected {FURTHER}")
    if not isinstance(normal, Mapping) or normal.get("type") != "BertNormalizer":
        raise _refuse("its normalizer is not BertNormalizer")
    for key in ("clean_text", "handle_chinese_chars"):
        if normal.get(key, True) is not True:
            raise _refuse(f"{key} is {shown(normal[key])}, which GGUF has no key for")
    pre = declared.get("pre_tokenizer")
    if not isinstance(pre, Mapping) or pre.get("type") != "BertPreTokenizer":
        raise _refuse("its pre_tokenizer is not BertPreTokenizer")
    lower = bool(normal.get("lowercase", True))
    strips = normal.get("strip_accents")
    texts, types = _pieces(model["vocab"], declared.get("added_tokens") or (), shape.vocabulary)
    unknown = model.get("unk_token")
    if unknown not in texts:
        raise _refuse(f"unk_token is {shown(unknown)}, expected a token")
    types[texts.index(unknown)] = UNKNOWN
    before, after = around_of(TOKENIZER, declared, shape.vocabulary)
    if before is None or len(after) != 1:
        raise _refuse("post_processor does not put one token before and one after texts, as llama.cpp does")
    found: dict[str, Any] = {
        "model": "bert", "pre": "default", "tokens": [phantom(text) for text in texts], "token_type": types,
        "bos_token_id": before, "cls_token_id": before, "eos_token_id": after[0], "seperator_token_id": after[0],
        "unknown_token_id": texts.index(unknown), "normalizer.lowercase": lower,
        "normalizer.strip_accents": lower if strips is None else bool(strips),
    }  # fmt: skip
    padding = config.get("pad_token_id")
    if type(padding) is int and 0 <= padding < shape.vocabulary:
        found["padding_token_id"] = padding
    if "[MASK]" in texts:
        found["mask_token_id"] = texts.index("[MASK]")
    return {f"tokenizer.ggml.{key}": value for key, value in found.items()} | _pooling(folder, shape)


def _pooling(folder: str, shape: Shape) -> dict[str, Any]:
    kinds, _ = declared_in(folder)
    if len(kinds) != 1 or kinds[0] not in POOLING:
        raise WrongValue(f"pooling {'+'.join(kinds)} has no key in GGUF, expected one of {', '.join(POOLING)}")
    return {
        f"{shape.options.architecture}.pooling_type": POOLING[kinds[0]],
        "general.name": os.path.basename(os.path.abspath(folder)),
    }


def _pieces(words: Mapping[str, Any], added: Any, count: int) -> tuple[list[str], list[int]]:
    """Return the text and the type of each row of the embedding."""
    texts: list[str] = [f"[unused_{i}]" for i in range(count)]
    types = [UNUSED] * count
    if not isinstance(added, (list, tuple)) or not all(
        isinstance(one, Mapping) and isinstance(one.get("content"), str) for one in added
    ):
        raise _refuse(f"added_tokens is {shown(added)}, expected a list of tokens with their content")
    special = {one.get("content"): bool(one.get("special")) for one in added if isinstance(one, Mapping)}
    further = [(one.get("content"), one.get("id")) for one in added if isinstance(one, Mapping)]
    for text, i in [*words.items(), *further]:
        if type(i) is not int or not isinstance(text, str) or not 0 <= i < count:
            raise _refuse(f"the token {shown(text)} has number {shown(i)}, beyond the embedding")
        if text in special and not special[text]:
            raise _refuse(f"the added token {shown(text)} is not special, which GGUF has no key for")
        texts[i], types[i] = text, CONTROL if text in special else NORMAL
    if len(set(texts)) != count:
        raise _refuse("two numbers have one token")
    return texts, types


def _refuse(what: str) -> ValueError:
    return WrongValue(f"{TOKENIZER}: {what}")
