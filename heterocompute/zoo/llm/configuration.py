"""The shape of a language model, read from the config.json of a Hugging Face folder.

A missing key has the default of transformers (src/transformers/models/, configuration classes). Files of Google and
Mistral omit keys with default values. The records in families/ state these defaults and the keys that are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...base.errors import shown
from ...families.keys import Keys
from ...families.kind import Kind
from ...families.known import check_config
from ...families.record import LOGIT_CAPS, Family
from ...families.sizes import (
    COUNTS_OF_EXPERTS,
    Sizes,
    biases_of_config,
    completed,
    has_alibi,
    latent_of_config,
    sizes_of_config,
    unrotated_of_config,
)
from ...families.table import ENCODER_KINDS, RUN_KINDS, kind_named
from .positions import ropes_of, scores_factor, temperature_of
from .shape import Routing, Shape, checked

ACTIVATIONS = {"silu": ("silu", "swish"), "gelu": ("gelu_pytorch_tanh", "gelu_new", "gelu_fast"), "gelu_erf": ("gelu",),
               "relu": ("relu",), "relu2": ("relu2",)}  # fmt: skip


def of_config(path: str, config: Mapping[str, Any], vocabulary: int, encoder: bool = False) -> Shape:
    """Return the shape that config.json of a Hugging Face folder describes.

    Parameters
    ----------
    path : str
        For errors.
    vocabulary : int
        Rows of the embedding.
    encoder : bool
        config.json is one of an encoder.

    Raises
    ------
    ValueError
        As of `of_gguf`.
    """
    whole, given, (family, kind) = config, _text_config(config), check_family(path, config, encoder)
    check_config(Keys(path, given), given, kind)  # keys beside text_config belong to pictures
    if given.get("vocab_size") is None:
        given = {**given, "vocab_size": vocabulary}
    config = completed(given, kind)
    keys = Keys(path, config, kind.keys)
    activation = _activation(keys, config, family, kind)
    _check_options(keys, config, family)
    sizes = sizes_of_config(keys, kind)
    if sizes.vocabulary != vocabulary:
        keys.fail(f"vocab_size is {shown(config['vocab_size'])}, expected {vocabulary}, the rows of the embedding")
    _check_experts(keys, config, kind, sizes)
    latent = latent_of_config(keys, family)
    head_width = sizes.head_width if latent is None else latent.rotary
    rope, local, long_rope = ropes_of(keys, config, family, kind, head_width)
    if latent is not None:
        sizes, rope = replace(sizes, head_width=head_width), replace(rope, pairs=keys.flag("rope_interleave", True))
    scale, caps = sizes.head_width**-0.5, dict[str, float | None]()
    if "query_pre_attn_scalar" in kind.reads:
        scale = keys.number("query_pre_attn_scalar", float(sizes.head_width)) ** -0.5
    factors = {meaning: keys.number(key, 1.0) for key, meaning in kind.factors.items()}
    if latent is not None:
        scale = (latent.plain + latent.rotary) ** -0.5 * scores_factor(keys, config)
    for key in LOGIT_CAPS:
        caps[key] = cap = keys.number(key) if key in kind.reads and key in keys else None
        if cap is not None and key not in family.caps:
            keys.fail(f"{key} is {cap:g}, which is not read in the family {kind.name}, nor by transformers")
        if cap is not None and key == LOGIT_CAPS[1] and isinstance(whole.get("text_config"), Mapping):
            keys.fail(f"{key} is {cap:g}, which transformers does not apply beside pictures")
    return checked(
        keys,
        Shape(
            **vars(sizes), family=family.name, activation=activation,
            epsilon=keys.number("rms_norm_eps", 1e-6, 0.0, 1.0), rope=rope,
            local_rope=local, scale=factors.get("attention", scale), attention_cap=caps[LOGIT_CAPS[0]],
            logit_cap=caps[LOGIT_CAPS[1]],
            long_rope=long_rope, biases=biases_of_config(keys, kind), parallel=_is_parallel(keys, family),
            unrotated=unrotated_of_config(keys, family, sizes.windows), temperature=temperature_of(keys, config),
            alibi=has_alibi(keys, family), token_types=keys.count("type_vocab_size") if family.token_types else 0,
            embedding_factor=factors.get("embedding", math.sqrt(sizes.width) if family.scaled_embedding else 1.0),
            residual_factor=factors.get("residual", 1.0),
            logit_factor=factors.get("logits", 1 / factors.get("logits divided", 1.0)),
            latent=latent, routing=_routing(keys, kind, sizes),
            qk_norm=not family.qk_norm_flag or keys.flag(family.qk_norm_flag),
            shares_sum_to_one=kind.experts is None or (
                not kind.experts.are_raw and (not kind.experts.shares or keys.flag(kind.experts.shares))
            ),
        ),
    )  # fmt: skip


def check_family(path: str, config: Mapping[str, Any], encoder: bool = False) -> tuple[Family, Kind]:
    """Return the family and the kind that config.json names, of language models or of encoders.

    Raises
    ------
    ValueError
        The family is not supported.
    """
    found, outer = _text_config(config), config.get("model_type")
    if found is not config and outer != "gemma3" and isinstance(outer, str) and outer in RUN_KINDS:
        Keys(path, config).fail(
            f"text_config is {shown(config['text_config'])}, which is not read in the family {outer}"
        )
    kinds, name = ENCODER_KINDS if encoder else RUN_KINDS, found.get("model_type")
    if isinstance(name, str) and name in (RUN_KINDS if encoder else ENCODER_KINDS):
        what, call = ("a language model", "open_llm") if encoder else ("an encoder", "open_encoder")
        Keys(path, found).fail(f"model_type is {shown(name)}, {what}: open it by heterocompute.zoo.{call}")
    return kind_named(Keys(path, found), name, kinds)


def _is_parallel(keys: Keys, family: Family) -> bool:
    return family.parallel == "always" or (family.parallel != "" and keys.flag(family.parallel))


def is_untied(config: Mapping[str, Any]) -> bool:
    """Tell whether config.json says that the output has a matrix of its own."""
    return any(found.get("tie_word_embeddings") is False for found in (config, _text_config(config)))


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of config.json about the language model."""
    inner = config.get("text_config")
    return {"model_type": config.get("model_type"), **inner} if isinstance(inner, Mapping) else config


def _activation(keys: Keys, config: Mapping[str, Any], family: Family, kind: Kind) -> str:
    """Return the activation of the feed-forward part; Gemma has two keys, which must agree."""
    given, other = config.get("hidden_act"), config.get("hidden_activation")
    if family.scaled_embedding:
        allowed = ACTIVATIONS[family.activation]
        for key, value, more in (("hidden_act", given, kind.activations), ("hidden_activation", other, ())):
            if value is not None and value not in (*allowed, *more):
                keys.fail(f"{key} is {shown(value)}, expected {allowed[0]} in the family {kind.name}")
        return family.activation
    named = next((name for name, names in ACTIVATIONS.items() if given in names), None)
    found: str | None = family.activation if given is None else named
    if found is not None and other not in (None, *ACTIVATIONS[found]):
        keys.fail(f"hidden_activation is {shown(other)}, which is not read in the family {kind.name}")
    if found is None:
        every = ", ".join(one for names in ACTIVATIONS.values() for one in names)
        keys.fail(f"{keys.called('hidden_act')} is {shown(given)}, expected one of {every}")
    return found


def _check_options(keys: Keys, config: Mapping[str, Any], family: Family) -> None:
    """Raise ValueError for options that change what transformers computes."""
    if config.get("use_bidirectional_attention"):
        keys.fail("use_bidirectional_attention is set: a network that reads later tokens is not supported")
    for key in ("attention_bias", "mlp_bias", "tie_word_embeddings"):
        keys.flag(key)
    if keys.flag("is_decoder") and family.is_encoder:
        keys.fail("is_decoder is true, expected false: an encoder reads later tokens")
    if family.skips_padding and keys.found.get("pad_token_id") != family.position_offset - 1:
        keys.fail(f"pad_token_id is {shown(keys.found.get('pad_token_id'))}, expected {family.position_offset - 1}")
    if keys.flag("new_decoder_architecture") and not keys.flag("parallel_attn"):
        keys.fail("parallel_attn is false, expected true with new_decoder_architecture")
    if keys.found.get("num_ln_in_parallel_attn") not in (None, 1) and not keys.flag("new_decoder_architecture"):
        keys.fail("num_ln_in_parallel_attn is 2, expected 1 without new_decoder_architecture")


def _check_experts(keys: Keys, config: Mapping[str, Any], kind: Kind, sizes: Sizes) -> None:
    """Raise ValueError for experts of which transformers or the forward pass has none."""
    given = next((name for name in COUNTS_OF_EXPERTS if config.get(name)), None)
    if kind.experts is None and given is not None:
        keys.fail(f"{given} is {shown(config[given])}, expected none in the family {kind.name}")


def _routing(keys: Keys, kind: Kind, sizes: Sizes) -> Routing:
    """Return how experts are chosen."""
    experts = kind.experts
    if experts is None or not sizes.experts:
        return Routing()
    method, scoring = keys.found.get("topk_method"), keys.found.get("scoring_func")
    known = {None: True, "greedy": False, "group_limited_greedy": True, "noaux_tc": True}
    if "topk_method" in kind.reads and method not in known:
        keys.fail(f"topk_method is {shown(method)}, expected one of {', '.join(str(one) for one in known if one)}")
    if "scoring_func" in kind.reads and scoring not in (None, experts.router):
        keys.fail(f"scoring_func is {shown(scoring)}, expected {experts.router}")
    has_groups = experts.has_groups and ("topk_method" not in kind.reads or known[method])
    groups = keys.count("n_group", 1) if has_groups else 1
    used = keys.count("topk_group", groups, high=groups) if has_groups else 1
    if sizes.experts % groups or (groups > 1 and sizes.experts < 2 * groups):
        keys.fail(f"n_group is {groups}, expected a divisor of {sizes.experts} experts with 2 or more in each group")
    if sizes.experts_used > sizes.experts // groups * used:
        keys.fail(f"topk_group is {used}, whose experts are fewer than num_experts_per_tok, {sizes.experts_used}")
    if experts.router == "mixer" and sizes.experts_used != 2:
        keys.fail(f"num_experts_per_tok is {sizes.experts_used}, expected 2 in the family {kind.name}")
    clamp = None
    if "swiglu_limit" in kind.reads:
        clamp = keys.number("swiglu_alpha"), keys.number("swiglu_limit")
    return Routing(
        experts.router, groups, used, groups > 1 and experts.router == "sigmoid",
        keys.number(experts.factor, 1.0) if experts.factor else 1.0,
        experts.is_corrected, keys.number("router_jitter_noise", 0.0, 0.0) if experts.router == "mixer" else 0.0,
        experts.is_interleaved, clamp,
    )  # fmt: skip
