"""Language models of llama.cpp under the names of Hugging Face: tensors, order of rows, config.json.

    blk.3.attn_q.weight       model.layers.3.self_attn.q_proj.weight, its rows in the order of halves (llama)
    output_norm.weight        model.norm.weight, of gemma less 1
    rope_freqs.weight         rope_scaling of config.json
    keys llama.block_count    num_hidden_layers, ...

The names of both are those of zoo/llm/weights.py; llama_cpp.py goes the other way. The tokenizer is not converted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....base.texts import quoted
from ....zoo.llm.shape import Rope, Shape, of_gguf
from ....zoo.llm.weights import expected, gguf_names, wanted_names
from ...containers.gguf_files import Gguf
from ..linear import Array
from .llama_cpp import FACTORS, factors_of, paired

__all__ = ["Renamed", "renamed"]

EMBEDDING = "token_embd.weight"
LOW, HIGH = 1.0, 4.0  # the values of all known llama3 models
CONTEXTS = (8192, *(1 << n for n in range(4, 20)))  # contexts before the scaling, the most common first
TOKENS = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}


@dataclass(frozen=True)
class Renamed:
    """A language model with the names of Hugging Face.

    Attributes
    ----------
    names : dict of str to str
        Names of Hugging Face -> names in the file.
    rows : dict of str to ndarray
        For some of these tensors: the row of the file for each row.
    minus_one : frozenset of str
        Tensors to which the file adds 1.
    config : dict of str to Any
        Content of config.json.
    """

    names: dict[str, str]
    rows: dict[str, Array]
    minus_one: frozenset[str]
    config: dict[str, Any]


def renamed(reader: Gguf) -> Renamed:
    """Return a language model under the names of Hugging Face.

    Raises
    ------
    ValueError
        The file is not a language model of a known family, or has a tensor without a name in Hugging Face.
    """
    if EMBEDDING not in reader:
        raise ValueError(f"the tensor {EMBEDDING} is missing")
    has_factors = FACTORS in reader
    shape = of_gguf(reader.path, reader.metadata, reader.info(EMBEDDING).shape[0], has_factors)
    if has_factors and (shape.rope.scaling != "none" or shape.rope.amplitude != 1):
        raise ValueError(f"{FACTORS} and the keys of rope.scaling both change RoPE, which has no name there")
    if shape.experts:
        raise ValueError("stacks of experts have several names there")
    roles = gguf_names(dict.fromkeys(reader.names), shape)
    wanted = wanted_names(shape, "model.", "lm_head.weight")
    roles.pop(FACTORS, None)
    if strange := next((name for role, name in roles.items() if role not in wanted), None):
        raise ValueError(f"the tensor {quoted(strange)} has no name there")
    for role, size in expected(shape, roles).items():
        if role not in roles or reader.info(roles[role]).shape != size:
            raise ValueError(f"the tensor for {role} is missing or has another shape than {size}")
    rows = {}
    heads = {"attn_q": shape.heads, "attn_k": shape.kv_heads} if shape.options.pairs else {}
    for role in roles:
        count = heads.get(role.split(".")[2]) if role.startswith("blk.") else None
        if count is not None:
            rows[wanted[role]] = np.argsort(paired(count, shape.head_width))
    minus_one = frozenset(wanted[role] for role in roles if shape.options.plus_one and "norm." in role)
    config = _config(reader, shape, set(roles), reader.tensor(FACTORS) if has_factors else None)
    return Renamed({wanted[role]: name for role, name in roles.items()}, rows, minus_one, config)


def _config(reader: Gguf, shape: Shape, roles: set[str], factors: Array | None) -> dict[str, Any]:
    kind = shape.options.hf[-2] if shape.family == "gemma3" else shape.options.hf[0]
    activation = {"silu": "silu", "gelu": "gelu_pytorch_tanh"}[shape.options.activation]
    found: dict[str, Any] = {
        "architectures": [f"{shape.family.capitalize()}ForCausalLM"], "model_type": kind, "hidden_act": activation,
        "hidden_size": shape.width, "intermediate_size": shape.hidden, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_width,
        "rms_norm_eps": float(str(np.float32(shape.epsilon))), "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.context,
        "rope_theta": shape.rope.base, "tie_word_embeddings": "output.weight" not in roles,
    }  # fmt: skip
    if shape.options.scaled_embedding:
        found["hidden_activation"] = activation
    if shape.family == "llama":
        found["attention_bias"] = "blk.0.attn_q.bias" in roles
    if shape.rope.width != shape.head_width:
        if kind != "phi3":
            raise ValueError(f"heads are rotated in part, which transformers does in phi3 alone, not in {kind}")
        found["partial_rotary_factor"] = shape.rope.width / shape.head_width
    if shape.options.local_base:
        found["rope_local_base_freq"] = shape.local_rope.base
    if shape.options.post_norms:
        found["query_pre_attn_scalar"] = round(shape.scale**-2)
        found["layer_types"] = ["full_attention" if one is None else "sliding_attention" for one in shape.windows]
    for key, cap in (("attn_logit_softcapping", shape.attention_cap), ("final_logit_softcapping", shape.logit_cap)):
        found |= {} if cap is None else {key: cap}
    window = next((one for one in shape.windows if one is not None), None)
    found |= {} if window is None else {"sliding_window": window}
    scaling = _scaling(shape, factors)
    found |= {} if scaling is None else {"rope_scaling": scaling}
    for key, word in TOKENS.items():
        said = reader.metadata.get(f"tokenizer.ggml.{word}_token_id")
        found[key] = int(said) if said is not None and said.isdecimal() and len(said) < 10 else None
    if found["pad_token_id"] is None:  # the default of a family may be beyond the vocabulary
        found["pad_token_id"] = found["eos_token_id"]
    return found


def _scaling(shape: Shape, factors: Array | None) -> dict[str, Any] | None:
    """Return rope_scaling; for llama3 the file has only the divisors."""
    rope = shape.rope
    if factors is not None:
        return _llama3(rope, factors.astype(np.float64))
    if rope.scaling == "none":
        return None
    found: dict[str, Any] = {"rope_type": rope.scaling, "factor": rope.factor}
    if rope.scaling == "yarn":
        found |= {"original_max_position_embeddings": int(rope.original), "beta_slow": rope.low, "beta_fast": rope.high,
                  "attention_factor": rope.amplitude}  # fmt: skip
    return found


def _llama3(rope: Rope, factors: Array) -> dict[str, Any]:
    """Return the llama3 scaling that has these divisors.

    The original context follows from a divisor between 1 and the factor. Without such a divisor, all contexts that fit
    have the same divisors.
    """
    factor = float(np.round(factors.max(initial=1.0), 3))
    plain = rope.base ** (-np.arange(0, rope.width, 2, dtype=np.float64) / rope.width)
    contexts = list(CONTEXTS)
    between = (factors > 1.001) & (factors < factor * 0.999)
    if factors.shape == plain.shape and between.any():
        smooth = (1 / factors[between] - 1 / factor) / (1 - 1 / factor)
        contexts = [round(float(np.median((smooth * (HIGH - LOW) + LOW) * 2 * np.pi / plain[between])))]
    for original in contexts:
        one = Rope(rope.base, rope.width, scaling="llama3", factor=factor, original=original, low=LOW, high=HIGH)
        if factors.shape == plain.shape and np.allclose(factors, factors_of(one), rtol=1e-5, atol=0):
            return {"rope_type": "llama3", "factor": factor, "low_freq_factor": LOW, "high_freq_factor": HIGH,
                    "original_max_position_embeddings": original}  # fmt: skip
    raise ValueError(f"{FACTORS} holds the divisors of no known scaling")
