"""The shape of a language model, read from the config.json of a Hugging Face folder.

A missing key has the default of transformers (src/transformers/models/, configuration classes). Files of Google and
Mistral omit keys with default values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...base.values import shown
from .families import FAMILIES, Family
from .shape import MAX_LAYERS, SCALINGS, Keys, Rope, Shape, checked, family_of, long_ropes, periodic

__all__ = ["check_family", "of_config"]

GEMMA3 = {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
    "sliding_window": 4096, "query_pre_attn_scalar": 256, "rope_theta": 1e6,
}  # fmt: skip
DEFAULTS: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 4096},
    "mixtral": {"rms_norm_eps": 1e-5, "rope_theta": 1e6},
    "qwen3": {"head_dim": 128},
    "qwen3_moe": {"norm_topk_prob": False, "num_experts_per_tok": 8},
    "phi3": {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
    "gemma": {"head_dim": 256},
    "gemma2": {"head_dim": 256, "sliding_window": 4096, "query_pre_attn_scalar": 256,
               "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3": GEMMA3,
    "gemma3_text": GEMMA3,
}  # fmt: skip
EVERY_LAYER = ("mistral", "mixtral", "phi3", "qwen3_moe")  # if there is a window, every layer has it
BY_KIND = ("qwen2", "qwen3", "gemma2", "gemma3", "gemma3_text")  # layer_types says which layers have a window
ACTIVATIONS = {"silu": ("silu", "swish"), "gelu": ("gelu_pytorch_tanh", "gelu_new")}
KINDS = {"full_attention": False, "sliding_attention": True}


def of_config(path: str, config: Mapping[str, Any], vocabulary: int) -> Shape:
    """Return the shape that config.json of a Hugging Face folder describes.

    Parameters
    ----------
    path : str
        For errors.
    config : mapping
    vocabulary : int
        Rows of the embedding.

    Returns
    -------
    Shape

    Raises
    ------
    ValueError
        As of `of_gguf`.
    """
    config, name = _text_config(config), check_family(path, config)
    kind = config.get("model_type")
    config = {**DEFAULTS.get(str(kind), {}), **config}
    keys, family = Keys(path, config), FAMILIES[name]
    _check_options(keys, config, family, str(kind))
    layers, width = keys.count("num_hidden_layers", high=MAX_LAYERS), keys.count("hidden_size")
    heads = keys.count("num_attention_heads", high=1 << 16)
    head_width = keys.count("head_dim", max(width // heads, 1), high=1 << 16)
    rope, local, long_rope = _ropes(keys, config, family, head_width)
    scale = head_width**-0.5
    cap, logit_cap = None, None
    if family.post_norms:
        scale = keys.number("query_pre_attn_scalar", head_width) ** -0.5
        cap, logit_cap = (keys.number(f"{one}_logit_softcapping", 0.0, 0.0) or None for one in ("attn", "final"))
    return checked(
        keys,
        Shape(
            name, layers, width, heads, keys.count("num_key_value_heads", heads, high=heads), head_width,
            keys.count("intermediate_size"), vocabulary, keys.count("max_position_embeddings"),
            keys.number("rms_norm_eps", 1e-6, 0.0, 1.0), rope, local,
            _windows(keys, config, family, str(kind), layers), scale, cap, logit_cap,
            *_experts(keys, config), long_rope,
        ),
    )  # fmt: skip


def check_family(path: str, config: Mapping[str, Any]) -> str:
    """Return the family that config.json names.

    Raises
    ------
    ValueError
        The family is not supported.
    """
    found = _text_config(config)
    names = {hf: name for name, family in FAMILIES.items() for hf in family.hf}
    return family_of(Keys(path, found), found.get("model_type"), names, "model_type")


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of config.json about the language model."""
    inner = config.get("text_config")
    return {"model_type": config.get("model_type"), **inner} if isinstance(inner, Mapping) else config


def _check_options(keys: Keys, config: Mapping[str, Any], family: Family, kind: str) -> None:
    """Raise ValueError for options that change what transformers computes."""
    key = "hidden_activation" if family.post_norms else "hidden_act"
    first = ("gelu",) if kind == "gemma" else ()  # early files say gelu for the tanh form
    allowed = (*ACTIVATIONS[family.activation], *first)
    given = config.get(key)
    if given is not None and given not in allowed:
        keys.fail(f"{key} is {shown(given)}, expected {allowed[0]} in the family {kind}")
    if config.get("use_bidirectional_attention"):
        keys.fail("use_bidirectional_attention is set: a network that reads later tokens is not supported")


def _windows(keys: Keys, config: Mapping[str, Any], family: Family, kind: str, layers: int) -> tuple[int | None, ...]:
    """Return the window of each layer; the rule of transformers depends on the family."""
    none: tuple[int | None, ...] = (None,) * layers
    if kind not in (*EVERY_LAYER, *BY_KIND):
        return none
    window = keys.count("sliding_window", 0, low=0) or None
    if kind.startswith("qwen") and not config.get("use_sliding_window", False):
        return none
    kinds = config.get("layer_types")
    if kind in BY_KIND and kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers or any(one not in KINDS for one in kinds):
            keys.fail(f"layer_types is {shown(kinds)}, expected {layers} times {' or '.join(KINDS)}")
        return tuple(window if KINDS[one] else None for one in kinds)
    if kind in ("qwen2", "qwen3"):
        first = keys.count("max_window_layers", 28, low=0)
        return tuple(window if i >= first else None for i in range(layers))
    return periodic(layers, keys.count("sliding_window_pattern", family.period, low=0), window)


def _experts(keys: Keys, config: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the number of experts, the number used per token, and their hidden width."""
    key = "num_local_experts" if "num_local_experts" in config else "num_experts"
    experts = keys.count(key, 0, low=0, high=1 << 12)
    if not experts:
        return 0, 0, 0
    if config.get("norm_topk_prob", True) is not True:
        keys.fail("norm_topk_prob is not true: shares of experts that do not sum to 1 are not read")
    if config.get("decoder_sparse_step", 1) != 1 or config.get("mlp_only_layers"):
        keys.fail("some layers have no experts (decoder_sparse_step, mlp_only_layers), which is not read")
    used = keys.count("num_experts_per_tok", 2, high=experts)
    hidden = keys.count("intermediate_size")
    is_qwen = config.get("model_type") == "qwen3_moe"
    return experts, used, keys.count("moe_intermediate_size", hidden) if is_qwen else hidden


def _ropes(keys: Keys, config: Mapping[str, Any], family: Family, head_width: int) -> tuple[Rope, Rope, Rope | None]:
    """Return the RoPE of layers that see all positions, of layers with a window, and of long texts."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(given, Mapping):
        keys.fail(f"rope_parameters is {shown(given)}, expected an object")
    local: Mapping[str, Any] = {"rope_theta": config.get("rope_local_base_freq", family.local_base)}
    if isinstance(given.get("full_attention"), Mapping):
        sliding, given = given.get("sliding_attention"), given["full_attention"]
        local = {**local, **sliding} if isinstance(sliding, Mapping) else local
    rope, long_rope = _rope(keys, given, head_width)
    return rope, _rope(keys, local, head_width)[0] if family.local_base else rope, long_rope


def _rope(keys: Keys, given: Mapping[str, Any], head_width: int) -> tuple[Rope, Rope | None]:
    """Return the RoPE that an object of config.json describes, and the RoPE of long texts."""
    found = Keys(keys.path, given)
    kind = given.get("rope_type", given.get("type", "default"))
    kind = "none" if kind == "default" else kind
    if kind not in (*SCALINGS, "longrope"):
        keys.fail(f"rope_type is {shown(kind)}, expected one of default, {', '.join(SCALINGS[1:])}, longrope")
    base = found.number("rope_theta", keys.number("rope_theta", 10_000.0, 1.0 + 1e-6, 1e12), 1.0 + 1e-6, 1e12)
    share = found.number("partial_rotary_factor", keys.number("partial_rotary_factor", 1.0, 0.0, 1.0), 0.0, 1.0)
    if share < 1 and keys.found.get("model_type") != "phi3":
        keys.fail(f"partial_rotary_factor is {share:g}, expected 1 in all families but phi3")
    plain = Rope(base, int(head_width * share))
    context = float(keys.count("max_position_embeddings"))
    if kind == "longrope":
        place = keys if keys.found.get("original_max_position_embeddings") is not None else found
        original = place.number("original_max_position_embeddings", None, 2.0, 2.0**40)
        amplitude = found.number("attention_factor") if given.get("attention_factor") is not None else None
        divisors = {key: given.get(key) for key in ("short_factor", "long_factor")}
        return long_ropes(keys, plain, divisors, context, original, amplitude)
    original = found.number("original_max_position_embeddings", context, 1.0, 2.0**40)
    usual = context / original if kind == "yarn" else 1.0
    scaled = replace(plain, scaling=kind, factor=found.number("factor", usual, 1e-3, 1e6), original=original)
    if kind == "llama3":
        low, high = found.number("low_freq_factor", 1.0), found.number("high_freq_factor", 4.0)
        if high <= low:
            keys.fail(f"high_freq_factor is {high:g}, expected more than low_freq_factor, which is {low:g}")
        return replace(scaled, low=low, high=high), None
    if kind == "yarn":
        if given.get("truncate", True) is not True:
            keys.fail(f"truncate is {shown(given['truncate'])}, expected true")
        low, high = found.number("beta_slow", 1.0), found.number("beta_fast", 32.0)
        amplitude = found.number("attention_factor", _amplitude(found, scaled.factor))
        return replace(scaled, low=low, high=high, amplitude=amplitude), None
    return scaled, None


def _amplitude(found: Keys, factor: float) -> float:
    """Return the default factor of cosine and sine in yarn."""
    weights = [found.number(key, 0.0, 0.0) for key in ("mscale", "mscale_all_dim")]
    parts = [0.1 * weight * math.log(max(factor, 1.0)) + 1.0 for weight in (weights if all(weights) else (1.0, 0.0))]
    return parts[0] / parts[1]
