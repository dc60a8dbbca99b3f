"""The shape of a language model, read from the config.json of a Hugging Face folder.

A missing key has the default of transformers (src/transformers/models/, configuration classes). Files of Google and
Mistral omit keys with default values. known.py lists the keys that are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.errors import shown
from .families import FAMILIES, Family
from .keys import Keys
from .known import READ_BY, check_config
from .positions import ropes_of
from .shape import MAX_LAYERS, Shape, checked, family_of, periodic

__all__ = ["check_family", "is_untied", "of_config"]

GEMMA3 = {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
    "sliding_window": 4096, "query_pre_attn_scalar": 256, "sliding_window_pattern": 6,
}  # fmt: skip
QWEN = {"sliding_window": 4096, "max_window_layers": 28}
DEFAULTS: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 4096},
    "mixtral": {"rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_experts_per_tok": 2},
    "qwen2": QWEN,
    "qwen3": {"head_dim": 128, **QWEN},
    "qwen3_moe": {"norm_topk_prob": False, "num_experts_per_tok": 8, "moe_intermediate_size": 768, **QWEN},
    "phi3": {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
    "gemma": {"head_dim": 256},
    "gemma2": {"head_dim": 256, "sliding_window": 4096, "query_pre_attn_scalar": 256,
               "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "gemma3": GEMMA3,
    "gemma3_text": GEMMA3,
}  # fmt: skip
OFF = ("sliding_window", "attn_logit_softcapping", "final_logit_softcapping")  # null is a value of these
EVERY_LAYER = ("mistral", "mixtral", "phi3", "qwen3_moe")  # if there is a window, every layer has it
BY_KIND = ("qwen2", "qwen3", "gemma2", "gemma3", "gemma3_text")  # layer_types says which layers have a window
ACTIVATIONS = {"silu": ("silu", "swish"), "gelu": ("gelu_pytorch_tanh", "gelu_new")}
ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
FEED_FORWARD = ("ffn_gate", "ffn_up", "ffn_down")
KINDS = {"full_attention": False, "sliding_attention": True}
EXPERTS = {"mixtral": 8, "qwen3_moe": 128}  # the default number of experts


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
    whole, given, name = config, _text_config(config), check_family(path, config)
    kind = str(given.get("model_type"))
    check_config(Keys(path, given), given, kind)  # keys beside text_config belong to pictures
    config = _completed(given, kind)
    keys, family = Keys(path, config), FAMILIES[name]
    _check_options(keys, config, family, kind)
    layers, width = keys.count("num_hidden_layers", high=MAX_LAYERS), keys.count("hidden_size")
    heads = keys.count("num_attention_heads", high=1 << 16)
    head_width = keys.count("head_dim", max(width // heads, 1), high=1 << 16)
    if keys.count("vocab_size", vocabulary) != vocabulary:
        keys.fail(f"vocab_size is {shown(config['vocab_size'])}, expected {vocabulary}, the rows of the embedding")
    rope, local, long_rope = ropes_of(keys, config, family, kind, head_width)
    scale = head_width**-0.5
    cap, logit_cap = None, None
    if family.post_norms:
        scale = keys.number("query_pre_attn_scalar", head_width) ** -0.5
        cap, logit_cap = (_cap(keys, f"{one}_logit_softcapping") for one in ("attn", "final"))
        if cap is not None and name != "gemma2":
            keys.fail(f"attn_logit_softcapping is {cap:g}, which is not read in the family {kind}, nor by transformers")
        if logit_cap is not None and isinstance(whole.get("text_config"), Mapping):
            keys.fail(f"final_logit_softcapping is {logit_cap:g}, which transformers does not apply beside pictures")
    return checked(
        keys,
        Shape(
            name, layers, width, heads, keys.count("num_key_value_heads", heads, high=heads), head_width,
            keys.count("intermediate_size"), vocabulary, keys.count("max_position_embeddings"),
            keys.number("rms_norm_eps", 1e-6, 0.0, 1.0), rope, local,
            _windows(keys, config, kind, layers), scale, cap, logit_cap,
            *_experts(keys, config, kind), long_rope, _biases(keys, kind), _shares_sum_to_one(keys, kind),
        ),
    )  # fmt: skip


def check_family(path: str, config: Mapping[str, Any]) -> str:
    """Return the family that config.json names.

    Raises
    ------
    ValueError
        The family is not supported.
    """
    found, outer = _text_config(config), config.get("model_type")
    names = {hf: name for name, family in FAMILIES.items() for hf in family.hf}
    if found is not config and outer != "gemma3" and isinstance(outer, str) and outer in names:
        Keys(path, config).fail(
            f"text_config is {shown(config['text_config'])}, which is not read in the family {outer}"
        )
    return family_of(Keys(path, found), found.get("model_type"), names, "model_type")


def is_untied(config: Mapping[str, Any]) -> bool:
    """Tell whether config.json says that the output has a matrix of its own."""
    return any(found.get("tie_word_embeddings") is False for found in (config, _text_config(config)))


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of config.json about the language model."""
    inner = config.get("text_config")
    return {"model_type": config.get("model_type"), **inner} if isinstance(inner, Mapping) else config


def _completed(config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return a configuration with the default of each missing key; null means missing, except where it is a value."""
    found = {key: value for key, value in config.items() if value is not None or key in OFF}
    return {**DEFAULTS.get(kind, {}), **found}


def _cap(keys: Keys, key: str) -> float | None:
    return keys.number(key) if key in keys else None


def _check_options(keys: Keys, config: Mapping[str, Any], family: Family, kind: str) -> None:
    """Raise ValueError for options that change what transformers computes."""
    allowed = ACTIVATIONS[family.activation]
    early = ("gelu",) if kind == "gemma" else ()  # early files say gelu for the tanh form
    for key, more in (("hidden_act", early), ("hidden_activation", ())):
        given = config.get(key)
        if given is not None and given not in (*allowed, *more):
            keys.fail(f"{key} is {shown(given)}, expected {allowed[0]} in the family {kind}")
    if config.get("use_bidirectional_attention"):
        keys.fail("use_bidirectional_attention is set: a network that reads later tokens is not supported")
    for key in ("attention_bias", "mlp_bias", "tie_word_embeddings"):
        keys.flag(key)


def _windows(keys: Keys, config: Mapping[str, Any], kind: str, layers: int) -> tuple[int | None, ...]:
    """Return the window of each layer; the rule of transformers depends on the family."""
    if kind not in (*EVERY_LAYER, *BY_KIND):
        return (None,) * layers
    window = keys.count("sliding_window") if "sliding_window" in keys else None
    if kind.startswith("qwen") and not keys.flag("use_sliding_window"):
        window = None
    kinds = config.get("layer_types")
    if kind in EVERY_LAYER:
        usual = ["full_attention" if window is None else "sliding_attention"] * layers
        if kind == "mistral" and kinds is not None and kinds != usual:  # AutoModel opens the family ministral then
            keys.fail(f"layer_types is {shown(kinds)}, expected {layers} times {usual[0]} in the family {kind}")
        return (window,) * layers
    if kinds is None:
        if kind in ("qwen2", "qwen3"):
            first = keys.count("max_window_layers", low=0)
            return tuple(window if i >= first else None for i in range(layers))
        period = 2 if kind == "gemma2" else keys.count("sliding_window_pattern")
        found = periodic(layers, period, window)
        is_off = window is None and layers >= 1 and period > 1
    elif (
        not isinstance(kinds, list)
        or len(kinds) != layers
        or any(not isinstance(one, str) or one not in KINDS for one in kinds)
    ):
        keys.fail(f"layer_types is {shown(kinds)}, expected {layers} times {' or '.join(KINDS)}")
    else:
        found = tuple(window if KINDS[one] else None for one in kinds)
        is_off = window is None and any(KINDS[one] for one in kinds)
    if is_off:
        keys.fail("sliding_window is null, expected a number: some layers have a window")
    return found


def _biases(keys: Keys, kind: str) -> frozenset[str]:
    """Return the matrices of a layer that have a bias."""
    if kind == "qwen2":
        return frozenset(ATTENTION[:3])
    found = ATTENTION if kind in READ_BY["attention_bias"] and keys.flag("attention_bias") else ()
    return frozenset(found + (FEED_FORWARD if kind in READ_BY["mlp_bias"] and keys.flag("mlp_bias") else ()))


def _shares_sum_to_one(keys: Keys, kind: str) -> bool:
    return kind != "qwen3_moe" or keys.flag("norm_topk_prob")


def _experts(keys: Keys, config: Mapping[str, Any], kind: str) -> tuple[int, int, int]:
    """Return the number of experts, the number used per token, and their hidden width."""
    names = ("num_local_experts", "num_experts")  # of one value
    if kind not in EXPERTS:
        if given := next((name for name in names if config.get(name)), None):
            keys.fail(f"{given} is {shown(config[given])}, expected none in the family {kind}")
        return 0, 0, 0
    counts = {keys.count(name, high=1 << 12) for name in names if name in keys} or {EXPERTS[kind]}
    if len(counts) > 1:
        keys.fail(
            f"num_local_experts and num_experts are {' and '.join(map(str, sorted(counts)))}, expected one number"
        )
    experts = counts.pop()
    if kind == "qwen3_moe" and (config.get("decoder_sparse_step", 1) != 1 or config.get("mlp_only_layers")):
        keys.fail("some layers have no experts (decoder_sparse_step, mlp_only_layers), which is not read")
    used = keys.count("num_experts_per_tok", high=experts)
    return experts, used, keys.count("moe_intermediate_size" if kind == "qwen3_moe" else "intermediate_size")
