"""Data of a language model that llama.cpp needs besides the weights: architecture, sizes, names, row order, tokenizer.

    Hugging Face                              GGUF
    config.json                               keys llama.block_count, llama.embedding_length, ...
    model.layers.3.self_attn.q_proj.weight    blk.3.attn_q.weight, its rows in the order of neighboring pairs (llama)
    tokenizer.json                            keys tokenizer.ggml.tokens, .merges or .scores, .token_type, .pre
    norm.weight of gemma                      output_norm.weight, with 1 added
    rope_type llama3                          rope_freqs.weight, the divisors of the frequencies

llama.cpp, convert_hf_to_gguf.py and src/llama-model.cpp.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....base.json_text import json_object
from ....base.places import is_file
from ....base.tensors import Tensors
from ....base.texts import quoted
from ....zoo.llm.configuration import of_config
from ....zoo.llm.shape import Rope, Shape
from ....zoo.llm.weights import expected, hf_names
from ...configuration import CONFIG, MAX_CONFIG
from ...containers.gguf_files import Gguf
from ..linear import Array
from .vocabulary import vocabulary_keys

__all__ = ["FACTORS", "Model", "factors_of", "model_in", "paired"]

DROPPED = (".rotary_emb.inv_freq", ".masked_bias")  # runtimes compute these themselves
FACTORS = "rope_freqs.weight"
WINDOWED = ("gemma2", "gemma3", "phi3")  # in other families, every layer of llama.cpp sees all positions


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
    """

    architecture: str
    keys: dict[str, Any]
    names: dict[str, str]
    rows: dict[str, Array]
    plus_one: frozenset[str]
    more: dict[str, Array]


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
    more = {} if shape.rope.scaling != "llama3" else {FACTORS: factors_of(shape.rope)}
    keys = _sizes(shape, config) | vocabulary_keys(folder, config, shape.vocabulary)
    return Model(
        shape.family, keys, {name: _called(role) for role, name in roles.items()},
        {_called(role): order for role, order in rotated.items()}, plus_one, more,
    )  # fmt: skip


def _called(role: str) -> str:
    return role.replace(".ffn_gate_up.", ".ffn_up.")


def _check(shape: Shape, roles: Mapping[str, str], names: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError for models that llama.cpp cannot represent or would compute differently."""
    taken = set(roles.values())
    if strange := next((name for name in names if name not in taken), None):
        raise ValueError(f"the tensor {quoted(strange)} has no place in the architecture {shape.family}")
    for role, wanted in expected(shape, roles).items():
        if role not in roles:
            raise ValueError(f"the tensor for {role} is missing")
        if names[roles[role]] != wanted:
            raise ValueError(f"tensor {quoted(roles[role])} has shape {names[roles[role]]}, expected {wanted}")
    for i, window in enumerate(shape.windows):
        usual = shape.options.period and (i + 1) % shape.options.period
        if shape.family in ("gemma2", "gemma3") and (window is not None) != bool(usual):
            raise ValueError(f"layer {i} has a window that the architecture {shape.family} does not have")
    scales = (shape.head_width**-0.5, (shape.width / shape.heads) ** -0.5)
    if min(abs(shape.scale / scale - 1) for scale in scales) > 1e-6:
        raise ValueError("query_pre_attn_scalar is not a value that llama.cpp supports")


def paired(heads: int, width: int) -> Array:
    """Return the order of rows that puts i and i + width / 2 of each head next to each other."""
    return np.arange(heads * width).reshape(heads, 2, width // 2).swapaxes(1, 2).reshape(-1)


def factors_of(rope: Rope) -> Array:
    """Return the divisors of RoPE's frequencies in llama.cpp."""
    plain = rope.base ** (-np.arange(0, rope.width, 2, dtype=np.float64) / rope.width)
    return (plain / rope.frequencies()).astype(np.float32)


def _sizes(shape: Shape, config: Mapping[str, Any]) -> dict[str, Any]:
    rope, window = shape.rope, next((one for one in shape.windows if one is not None), None)
    context = shape.context
    if window is not None and shape.family not in WINDOWED:
        context = min(context, window)  # up to this length the window has no effect
    found: dict[str, Any] = {
        "context_length": context, "embedding_length": shape.width, "block_count": shape.layers,
        "feed_forward_length": shape.hidden, "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads, "attention.key_length": shape.head_width,
        "attention.value_length": shape.head_width, "attention.layer_norm_rms_epsilon": shape.epsilon,
        "rope.dimension_count": rope.width, "rope.freq_base": rope.base, "vocab_size": shape.vocabulary,
    }  # fmt: skip
    if window is not None and shape.family in WINDOWED:
        found["attention.sliding_window"] = window
    if shape.attention_cap is not None:
        found["attn_logit_softcapping"] = shape.attention_cap
    if shape.logit_cap is not None:
        found["final_logit_softcapping"] = shape.logit_cap
    if rope.scaling in ("linear", "yarn"):
        found |= {"rope.scaling.type": rope.scaling, "rope.scaling.factor": rope.factor}
    if rope.scaling == "yarn":
        usual = 0.1 * np.log(max(rope.factor, 1.0)) + 1.0
        if (rope.low, rope.high) != (1.0, 32.0) or abs(rope.amplitude - usual) > 1e-6:
            raise ValueError("llama.cpp does not read these options of yarn from a file")
        found["rope.scaling.original_context_length"] = int(rope.original)
    return {f"{shape.family}.{key}": value for key, value in found.items()} | {"general.quantization_version": 2}
