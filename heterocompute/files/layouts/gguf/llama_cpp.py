"""Data of a language model that llama.cpp needs besides the weights: architecture, sizes, names, row order, tokenizer.

    Hugging Face                              GGUF
    config.json                               keys llama.block_count, llama.embedding_length, ...
    model.layers.3.mlp.experts.5.up_proj.weight    part of the stack blk.3.ffn_up_exps.weight
    model.layers.3.mlp.experts.gate_up_proj   blk.3.ffn_gate_exps.weight and blk.3.ffn_up_exps.weight
    model.layers.3.self_attn.q_proj.weight    blk.3.attn_q.weight, its rows in the order of neighboring pairs (llama)
    tokenizer.json                            keys tokenizer.ggml.tokens, .merges or .scores, .token_type, .pre
    norm.weight of gemma                      output_norm.weight, with 1 added

Keys and tensors for sizes and options are in sizes.py. llama.cpp, convert_hf_to_gguf.py and src/llama-model.cpp.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....base.errors import WrongValue
from ....base.json_text import json_object
from ....base.locations import is_file
from ....base.tensors import Tensors
from ....base.texts import quoted
from ....families.table import ENCODER_KINDS
from ....zoo.llm.arranged import arrange, is_turned, order_of
from ....zoo.llm.configuration import check_family, of_config
from ....zoo.llm.experts import add_experts, listed_in
from ....zoo.llm.shape import Shape
from ....zoo.llm.weights import OF_TASKS, expected, further_layers, hf_names, prefix_in
from ...configuration import CONFIG, MAX_CONFIG
from ...containers.gguf_files import Gguf
from ..linear import Array
from .sizes import described
from .stacks import Heads, Stack
from .vocabulary import vocabulary_keys
from .wordpiece import encoder_keys

DROPPED = (".rotary_emb.inv_freq", ".masked_bias")  # runtimes compute these themselves


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
    stacks : dict of str to Stack or Heads
        Tensors of the file that are made of other ones.
    rows : dict of str to ndarray
        Order of the rows of some tensors of the file.
    plus_one : frozenset of str
        Tensors of the file to which 1 is added.
    more : dict of str to ndarray
        Further tensors of the file.
    notes : tuple of str
        What llama.cpp computes otherwise than transformers, each a sentence.
    has_scales : bool
        llama.cpp multiplies the feed-forward part by the scales of NVFP4.
    """

    architecture: str
    keys: dict[str, Any]
    names: dict[str, str]
    rows: dict[str, Array]
    plus_one: frozenset[str]
    more: dict[str, Array]
    notes: tuple[str, ...] = ()
    stacks: dict[str, Stack | Heads] = field(default_factory=dict)
    has_scales: bool = True


def model_of_gguf(reader: Gguf) -> Model:
    """Return the language model of a GGUF file, with unchanged keys and names."""
    keys = reader.keys()
    architecture = keys.pop("general.architecture", "none")
    for key in ("general.alignment", "general.file_type", "general.quantization_version"):
        keys.pop(key, None)
    return Model(str(architecture), keys, {name: name for name in reader.names}, {}, frozenset(), {})


def model_in(reader: Tensors) -> Model:
    """Return the language model, or the encoder, that a checkpoint in a folder of Hugging Face holds.

    Raises
    ------
    ValueError
        The reason why llama.cpp would not load it: no ``config.json``, a family or tokenizer that is not known.
    """
    folder = os.path.dirname(reader.path)
    place = os.path.join(folder, CONFIG)
    if not is_file(place):
        raise WrongValue(f"{CONFIG} is missing")
    config = json_object(place, MAX_CONFIG)
    encoder = str(config.get("model_type")) in ENCODER_KINDS
    family, kind = check_family(place, config, encoder)
    names = {name: reader.info(name).shape for name in reader.names if not name.endswith(DROPPED)}
    if encoder:
        names = {name: size for name, size in names.items() if not OF_TASKS.fullmatch(name)}
    end, turned = family.table, kind.turned
    table = next((shape for name, shape in names.items() if name.endswith(end)), None)
    if table is None or len(table) != 2:
        raise WrongValue(f"the tensor model.{end} is missing")
    shape = of_config(place, config, table[0], encoder)
    further = further_layers(prefix_in(reader.path, names, family), shape, config, kind)
    names = {name: size for name, size in names.items() if not name.startswith(further)}
    stored, held = set(names), dict.fromkeys(names, lambda: None)
    experts, parts = add_experts(held, names, shape)
    whole = {name: size for name, size in names.items() if name not in parts}
    roles = {**hf_names(reader.path, whole, shape), **experts}
    roles = {role: name for role, name in roles.items() if not (encoder and role.startswith("output."))}
    arrange(held, names, roles, shape, turned)
    _check(shape, roles, {name: size for name, size in names.items() if name not in parts})
    family, rotated = shape.options, {}
    if family.moves_rows:
        heads = {"attn_q": shape.heads, "attn_k": shape.kv_heads}
        for role in roles:
            count = heads.get(role.split(".")[2]) if role.startswith("blk.") else None
            if count is not None:
                rotated[role] = paired(count, shape.head_width)
    if family.interleaved:
        rotated |= {role: order_of(shape) for role in roles if ".attn_qkv." in role}
    if family.position_offset:
        rotated["position_embd.weight"] = np.arange(shape.context) + family.position_offset
    plus_one = frozenset(role for role in roles if family.plus_one and "norm." in role)
    declared = described(shape, roles)
    notes = list(declared.notes)
    if encoder:
        keys = declared.keys | encoder_keys(folder, config, shape, notes)
    else:
        keys = declared.keys | vocabulary_keys(folder, config, shape.vocabulary, notes)

    def called(role: str) -> str:
        part = role.split(".")[-2]
        return role.replace(f".{part}.", f".{family.gguf.get(part, part)}.")

    stacks = _stacks(shape, roles, stored, turned)
    stacks = {called(role): stack for role, stack in stacks.items()}
    taken = {name for stack in stacks.values() for name in stack.names}
    return Model(
        family.architecture, keys, {name: called(role) for role, name in roles.items() if name in stored - taken},
        {called(role): order for role, order in rotated.items()}, plus_one, declared.tensors, tuple(notes), stacks,
        family.has_scales,
    )  # fmt: skip


def _stacks(shape: Shape, roles: Mapping[str, str], names: set[str], turned: str) -> dict[str, Stack | Heads]:
    """Return the tensors that are made of several tensors of a folder, of a part of one, or of a turned one."""
    found, half = dict[str, Stack | Heads](), shape.expert_hidden
    halves = (slice(0, None, 2), slice(1, None, 2)) if shape.routing.interleaved else (slice(half), slice(half, None))
    for role, name in roles.items():
        is_other = is_turned(turned, role, name)
        if ".ffn_gate_up_exps." in role:
            for part, rows in zip(("gate", "up"), halves, strict=True):
                found[role.replace("gate_up", part)] = Stack((name,), rows, is_other)
        elif ".attn_kv_b." in role and (latent := shape.latent) is not None:
            found[role.replace("kv_b", "k_b")] = Heads((name,), shape.heads, slice(latent.plain), is_turned=True)
            found[role.replace("kv_b", "v_b")] = Heads((name,), shape.heads, slice(latent.plain, None))
        elif name not in names:
            found[role] = Stack(tuple(listed_in(name, shape.experts)))
        elif is_other:
            found[role] = Stack((name,), is_turned=True)
    return found


def _check(shape: Shape, roles: Mapping[str, str], names: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError for tensors that the family does not have, or that are missing or of another shape."""
    taken = set(roles.values())
    if strange := next((name for name in names if name not in taken), None):
        raise WrongValue(f"the tensor {quoted(strange)} has no place in the architecture {shape.options.architecture}")
    for role, wanted in expected(shape, roles).items():
        if role not in roles:
            raise WrongValue(f"the tensor for {role} is missing")
        if names[roles[role]] != wanted:
            raise WrongValue(f"tensor {quoted(roles[role])} has shape {names[roles[role]]}, expected {wanted}")


def paired(heads: int, width: int) -> Array:
    """Return the order of rows that puts i and i + width / 2 of each head next to each other."""
    return np.arange(heads * width).reshape(heads, 2, width // 2).swapaxes(1, 2).reshape(-1)
