"""Data of a language model that llama.cpp needs besides the weights: architecture, sizes, names, row order, tokenizer.

    Hugging Face                              GGUF
    config.json                               keys llama.block_count, llama.embedding_length, ...
    model.layers.3.self_attn.q_proj.weight    blk.3.attn_q.weight, its rows in the order of neighboring pairs (llama)
    tokenizer.json                            keys tokenizer.ggml.tokens, .merges or .scores, .token_type, .pre
    norm.weight of gemma                      output_norm.weight, with 1 added

Keys and tensors for sizes and options are in sizes.py. llama.cpp, convert_hf_to_gguf.py and src/llama-model.cpp.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....base.json_text import json_object
from ....base.places import is_file
from ....base.tensors import Tensors
from ....base.texts import quoted, read_small
from ....base.values import shown
from ....zoo.llm.configuration import of_config
from ....zoo.llm.shape import Shape
from ....zoo.llm.tokens import (
    BYTE,
    CONTROL,
    MAX_TOKENIZER,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER,
    WORDS,
    begin_of,
)
from ....zoo.llm.weights import expected, hf_names
from ...configuration import CONFIG, MAX_CONFIG
from ...containers.gguf_files import Gguf
from ..linear import Array
from .sizes import described

__all__ = ["Model", "model_in", "paired"]

TOKENIZER, OPTIONS, GENERATION, TEMPLATE = (
    "tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja",
)  # fmt: skip
DROPPED = (".rotary_emb.inv_freq", ".masked_bias")  # runtimes compute these themselves
SPACE = "\u2581"


@dataclass(frozen=True)
class Model:
    """A language model with the keys and names of llama.cpp.

    Attributes
    ----------
    architecture : str
    keys : dict of str to Any
        Keys of the file.
    names : dict of str to str
        Tensors of the checkpoint -> tensors of the file. Other tensors are left out.
    rows : dict of str to ndarray
        Order of the rows of some tensors of the file.
    plus_one : frozenset of str
        Tensors of the file to which 1 is added.
    more : dict of str to ndarray
        Further tensors of the file.
    notes : tuple of str
        What llama.cpp computes otherwise than transformers, each a sentence.
    """

    architecture: str
    keys: dict[str, Any]
    names: dict[str, str]
    rows: dict[str, Array]
    plus_one: frozenset[str]
    more: dict[str, Array]
    notes: tuple[str, ...] = ()


def model_of_gguf(reader: Gguf) -> Model:
    """Return the language model of a GGUF file, with unchanged keys and names."""
    keys = reader.keys()
    architecture = keys.pop("general.architecture", "none")
    for key in ("general.alignment", "general.file_type", "general.quantization_version"):
        keys.pop(key, None)
    return Model(str(architecture), keys, {name: name for name in reader.names}, {}, frozenset(), {})


def model_in(reader: Tensors) -> Model:
    """Return the language model that a checkpoint in a folder of Hugging Face holds.

    Parameters
    ----------
    reader : Tensors

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        The reason why llama.cpp would not load it: no ``config.json``, a family or tokenizer that is not known.
    """
    folder = os.path.dirname(reader.path)
    place = os.path.join(folder, CONFIG)
    if not is_file(place):
        raise ValueError(f"{CONFIG} is missing")
    config = json_object(place, MAX_CONFIG)
    names = {name: reader.info(name).shape for name in reader.names if not name.endswith(DROPPED)}
    table = next((shape for name, shape in names.items() if name.endswith("embed_tokens.weight")), None)
    if table is None or len(table) != 2:
        raise ValueError("the tensor model.embed_tokens.weight is missing")
    shape = of_config(place, config, table[0])
    roles = hf_names(reader.path, names, shape)
    _check(shape, roles, names)
    family, rotated = shape.options, {}
    if family.pairs:
        heads = {"attn_q": shape.heads, "attn_k": shape.kv_heads}
        for role in roles:
            count = heads.get(role.split(".")[2]) if role.startswith("blk.") else None
            if count is not None:
                rotated[role] = paired(count, shape.head_width)
    plus_one = frozenset(role for role in roles if family.plus_one and "norm." in role)
    said = described(shape, roles)
    keys = said.keys | _tokens(folder, config, shape.vocabulary)
    keys["general.name"] = os.path.basename(os.path.abspath(folder))
    return Model(
        shape.family, keys, {name: _called(role) for role, name in roles.items()},
        {_called(role): order for role, order in rotated.items()}, plus_one, said.tensors, said.notes,
    )  # fmt: skip


def _called(role: str) -> str:
    return role.replace(".ffn_gate_up.", ".ffn_up.")


def _check(shape: Shape, roles: Mapping[str, str], names: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError for tensors that the family does not have, or that are missing or of another shape."""
    taken = set(roles.values())
    if strange := next((name for name in names if name not in taken), None):
        raise ValueError(f"the tensor {quoted(strange)} has no place in the architecture {shape.family}")
    for role, wanted in expected(shape, roles).items():
        if role not in roles:
            raise ValueError(f"the tensor for {role} is missing")
        if names[roles[role]] != wanted:
            raise ValueError(f"tensor {quoted(roles[role])} has shape {names[roles[role]]}, expected {wanted}")


def paired(heads: int, width: int) -> Array:
    """Return the order of rows that puts i and i + width / 2 of each head next to each other."""
    return np.arange(heads * width).reshape(heads, 2, width // 2).swapaxes(1, 2).reshape(-1)


# The tokenizer.


def _tokens(folder: str, config: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    """Return the keys for the tokenizer of tokenizer.json."""
    place = os.path.join(folder, TOKENIZER)
    if not is_file(place):
        raise ValueError(f"{TOKENIZER} is missing")
    said = json_object(place, MAX_TOKENIZER)
    model = said.get("model")
    if (
        not isinstance(model, Mapping)
        or model.get("type", "BPE") != "BPE"
        or not isinstance(model.get("vocab"), Mapping)
    ):
        raise ValueError(f"{TOKENIZER}: its model is not BPE")
    pairs = [tuple(one.split(" ", 1)) if isinstance(one, str) else tuple(one) for one in model.get("merges") or ()]
    if any(len(pair) != 2 or not all(isinstance(part, str) for part in pair) for pair in pairs):
        raise ValueError(f"{TOKENIZER}: a merge is not a pair of strings")
    texts, types = _pieces(said, model["vocab"], vocabulary)
    steps = list(_steps(said.get("pre_tokenizer")))
    found: dict[str, Any] = {}
    if any(step.get("type") == "ByteLevel" for step in steps):
        rule = _rule(steps, bool(model.get("ignore_merges")))
        found = {"model": "gpt2", "pre": rule, "merges": [" ".join(pair) for pair in pairs]}
    elif model.get("byte_fallback"):
        rank = {first + second: i for i, (first, second) in reversed(list(enumerate(pairs)))}
        scores = [-float(rank.get(text, len(pairs))) if kind == NORMAL else 0.0
                  for text, kind in zip(texts, types, strict=True)]  # fmt: skip
        types = [BYTE if _is_byte(text) else kind for text, kind in zip(texts, types, strict=True)]
        steps += list(_steps(said.get("normalizer")))
        prefix = any(step.get("type") == "Prepend" or step.get("prepend_scheme") in ("first", "always")
                     for step in steps)  # fmt: skip
        found = {"model": "llama", "pre": "default", "scores": scores, "add_space_prefix": prefix}
    else:
        raise ValueError(f"{TOKENIZER}: its BPE is neither of bytes nor of SentencePiece")
    unknown = model.get("unk_token")
    if isinstance(unknown, str) and unknown in texts:
        found["unknown_token_id"] = texts.index(unknown)
        types[texts.index(unknown)] = UNKNOWN
    found |= {"tokens": texts, "token_type": types} | _ends(folder, said, config, vocabulary)
    keys = {f"tokenizer.ggml.{key}": value for key, value in found.items() if value != []}
    template = _template(folder)
    return keys if template is None else keys | {"tokenizer.chat_template": template}


def _pieces(said: Mapping[str, Any], words: Mapping[str, Any], vocabulary: int) -> tuple[list[str], list[int]]:
    """Return the text and the type of the token of each row of the embedding."""
    texts: list[str | None] = [None] * vocabulary
    types = [NORMAL] * vocabulary
    added = [one for one in said.get("added_tokens") or () if isinstance(one, Mapping)]
    for text, i in [*words.items(), *((one.get("content"), one.get("id")) for one in added)]:
        if type(i) is not int or not isinstance(text, str) or not 0 <= i < vocabulary:
            raise ValueError(f"{TOKENIZER}: the token {shown(text)} has number {shown(i)}, beyond the embedding")
        texts[i] = text
    for one in added:
        types[one["id"]] = CONTROL if one.get("special") else USER
    types = [kind if text is not None else UNUSED for text, kind in zip(texts, types, strict=True)]
    return [f"[PAD{i}]" if text is None else text for i, text in enumerate(texts)], types


def _is_byte(text: str) -> bool:
    return len(text) == 6 and text.startswith("<0x") and text.endswith(">")


def _steps(found: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a pre-tokenizer or normalizer one by one."""
    if isinstance(found, Mapping):
        parts = found.get("pretokenizers", found.get("normalizers"))
        if isinstance(parts, list):
            for part in parts:
                yield from _steps(part)
        else:
            yield found


def _rule(steps: list[Mapping[str, Any]], whole_words: bool) -> str:
    """Return llama.cpp's name of the rule that splits a text into words."""
    digits = any(step.get("type") == "Digits" and step.get("individual_digits") for step in steps)
    splits = [step["pattern"].get("Regex") for step in steps
              if step.get("type") == "Split" and isinstance(step.get("pattern"), Mapping)]  # fmt: skip
    if not splits and any(step.get("type") == "ByteLevel" and step.get("use_regex", True) for step in steps):
        splits = [WORDS["gpt-2"][0]]
    known = ("smollm", "gpt-2", "qwen2", "llama-bpe" if whole_words else "dbrx")
    name = next((name for name in known if [*splits, digits] == [*WORDS[name]]), None)
    if name is None:
        raise ValueError(f"{TOKENIZER}: splits texts into words by a rule that llama.cpp has no name for")
    return name


def _ends(folder: str, said: Mapping[str, Any], config: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    """Return the tokens at the beginning and end of texts."""
    generation, options = (
        json_object(os.path.join(folder, name), MAX_CONFIG) if is_file(os.path.join(folder, name)) else {}
        for name in (GENERATION, OPTIONS)
    )
    found: dict[str, Any] = {}
    for key in ("bos", "eos", "pad"):
        value = next((one for one in (config.get(f"{key}_token_id"), generation.get(f"{key}_token_id"))
                      if one is not None), None)  # fmt: skip
        value = value[0] if isinstance(value, list) and value else value
        if type(value) is int and 0 <= value < vocabulary:
            found["padding_token_id" if key == "pad" else f"{key}_token_id"] = value
    begin = begin_of(said, options, found.get("bos_token_id"))
    found["add_bos_token"] = begin is not None and begin < vocabulary
    return found | {"bos_token_id": begin} if found["add_bos_token"] else found


def _template(folder: str) -> str | None:
    place = os.path.join(folder, TEMPLATE)
    if is_file(place):
        return read_small(place, MAX_CONFIG)
    options = os.path.join(folder, OPTIONS)
    found = json_object(options, MAX_CONFIG).get("chat_template") if is_file(options) else None
    return found if isinstance(found, str) else None
