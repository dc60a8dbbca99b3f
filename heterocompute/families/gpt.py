"""Families with layer norms: GPT-2, GPT-NeoX, OPT, BLOOM, Falcon, Phi, StableLM, StarCoder 2, Cohere; and gpt-oss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .kind import Experts, Kind, Mixture, Windows
from .record import ATTENTION, QKV, Family

FUSED = ("attn_qkv", "attn_output")
INNER = ("ffn_up", "ffn_down")
EPSILON = {"rms_norm_eps": ("layer_norm_eps",)}

GPT2 = Family(
    "gpt2",
    (
        Kind(
            "gpt2", {"max_position_embeddings": 1024, "tie_word_embeddings": True, "rms_norm_eps": 1e-5}, hidden=4,
            turned="conv1d", biases={"": (*FUSED, *INNER)}, title="GPT2",
            keys={"hidden_size": ("n_embd",), "num_hidden_layers": ("n_layer",), "num_attention_heads": ("n_head",),
                  "intermediate_size": ("n_inner",), "max_position_embeddings": ("n_positions", "n_ctx"),
                  "rms_norm_eps": ("layer_norm_epsilon",), "hidden_act": ("activation_function",)},
        ),
    ),
    is_gated=False, activation="gelu", centered=True, norm_bias=True, learned_positions=True, period=None,
    fused=("attn_qkv",), biases=(*FUSED, *INNER),
    prefix="transformer.", names={"token_embd": "wte", "position_embd": "wpe", "layers": "h", "output_norm": "ln_f"},
    layer={"attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2",
           "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
)  # fmt: skip
GPT_NEOX = Family(
    "gptneox",
    (
        Kind(
            "gpt_neox", {"rms_norm_eps": 1e-5, "use_parallel_residual": True, "attention_bias": True,
                         "max_position_embeddings": 2048},
            reads=("use_parallel_residual",), biases={"attention_bias": FUSED, "": INNER}, title="GPTNeoX",
            keys={**EPSILON, "partial_rotary_factor": ("rotary_pct",), "rope_theta": ("rotary_emb_base",)},
        ),
    ),
    is_gated=False, activation="gelu_erf", centered=True, norm_bias=True, parallel="use_parallel_residual",
    needs_output=True, needs_biases=True,
    fused=("attn_qkv",), interleaved=True, is_partial=True, share=0.25, period=None, biases=(*FUSED, *INNER),
    prefix="gpt_neox.", names={"token_embd": "embed_in", "output_norm": "final_layer_norm", "output": "embed_out"},
    layer={"attn_qkv": "attention.query_key_value", "attn_output": "attention.dense",
           "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h"},
)  # fmt: skip
OPT = Family(
    "opt",
    (
        Kind(
            "opt", {"tie_word_embeddings": True, "rms_norm_eps": 1e-5, "enable_bias": True,
                    "max_position_embeddings": 2048, "hidden_act": "relu"},
            biases={"enable_bias": (*ATTENTION, *INNER)}, title="OPT",
            keys={"intermediate_size": ("ffn_dim",), "hidden_act": ("activation_function",)},
        ),
    ),
    is_gated=False, activation="relu", centered=True, norm_bias=True, learned_positions=True, position_offset=2,
    period=None, no_gguf="llama.cpp does not have it",
    prefix="model.decoder.",
    names={"position_embd": "embed_positions", "output_norm": "final_layer_norm"},
    layer={"attn_norm": "self_attn_layer_norm", "attn_output": "self_attn.out_proj", "ffn_norm": "final_layer_norm",
           "ffn_up": "fc1", "ffn_down": "fc2"},
)  # fmt: skip


def _quotient(width: Any, heads: Any) -> int | None:
    return width // heads if type(width) is int and type(heads) is int and heads > 0 else None


def _widened(width: Any) -> int | None:
    return 4 * width if type(width) is int else None


def _of_bloom(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes that transformers does not read from config.json."""
    width, heads = config.get("hidden_size"), config.get("num_attention_heads")
    return {"intermediate_size": _widened(width), "head_dim": _quotient(width, heads), "num_key_value_heads": heads}


def _of_falcon(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes and the activation; the heads of keys depend on two flags."""
    found = _of_bloom(config)
    if config["new_decoder_architecture"]:
        found["num_key_value_heads"] = config.get("num_kv_heads", found["num_key_value_heads"])
    elif config["multi_query"]:
        found["num_key_value_heads"] = 1
    return {**found, "intermediate_size": config.get("ffn_hidden_size", found["intermediate_size"]),
            "hidden_act": config.get("activation", "gelu")}  # fmt: skip


def _falcon_of(config: Mapping[str, Any]) -> str:
    """Return the family of Falcon with one norm in a layer, or with two for parallel parts."""
    count = config.get("num_ln_in_parallel_attn")
    return "falcon-two-norms" if config.get("new_decoder_architecture") and count in (None, 2) else "falcon"


BLOOM = Family(
    "bloom",
    (
        Kind("bloom", {"rms_norm_eps": 1e-5, "tie_word_embeddings": True, "max_position_embeddings": 2048},
             keys={"hidden_size": ("n_embed",), "num_hidden_layers": ("n_layer",), "num_attention_heads": ("n_head",),
                   "max_position_embeddings": ("seq_length",), "rms_norm_eps": ("layer_norm_epsilon",)},
             biases={"": (*FUSED, *INNER)}, implied=_of_bloom),
    ),
    is_gated=False, activation="gelu", centered=True, norm_bias=True, embedding_norm=True, alibi="always",
    fused=("attn_qkv",), interleaved=True, period=None, biases=(*FUSED, *INNER), needs_biases=True, is_square=True,
    prefix="transformer.",
    names={"token_embd": "word_embeddings", "token_embd_norm": "word_embeddings_layernorm", "layers": "h",
           "output_norm": "ln_f"},
    layer={"attn_qkv": "self_attention.query_key_value", "attn_output": "self_attention.dense",
           "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h"},
)  # fmt: skip


def _of_shape(shape: Any) -> dict[str, Any]:
    """Return the keys of Falcon for the heads of keys and the norms of a layer."""
    is_new = shape.family == "falcon-two-norms" or shape.kv_heads not in (1, shape.heads)
    more = {"num_kv_heads": shape.kv_heads, "num_ln_in_parallel_attn": 2 if shape.family != "falcon" else 1}
    return {"new_decoder_architecture": is_new, "multi_query": shape.kv_heads == 1, "ffn_hidden_size": shape.hidden,
            **(more if is_new else {})}  # fmt: skip


FALCON = replace(
    BLOOM, name="falcon", marks={"blk.0.attn_norm_2.weight": "falcon-two-norms"},
    embedding_norm=False, alibi="alibi", scales_alibi=True, activation="gelu_erf",
    parallel="parallel_attn", shares_norm=True, is_parallel=True, biases=(), needs_biases=False,
    kinds=(
        Kind("falcon", {"rms_norm_eps": 1e-5, "tie_word_embeddings": True, "max_position_embeddings": 2048,
                        "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False},
             keys={"hidden_size": ("n_embed",), "rms_norm_eps": ("layer_norm_epsilon",), "hidden_act": ("activation",)},
             reads=("alibi", "multi_query", "num_kv_heads", "parallel_attn", "new_decoder_architecture",
                    "num_ln_in_parallel_attn", "ffn_hidden_size"),
             biases={"bias": (*FUSED, *INNER)}, implied=_of_falcon, stated=_of_shape,
             variant=_falcon_of),
    ),
    names={"token_embd": "word_embeddings", "layers": "h", "output_norm": "ln_f"},
)  # fmt: skip
FALCON_TWO_NORMS = replace(FALCON, name="falcon-two-norms", alias="falcon", marks={}, kinds=(), shares_norm=False,
                           gguf={"ffn_norm": "attn_norm", "attn_norm": "attn_norm_2"},
                           layer={**FALCON.layer, "attn_norm": "ln_attn", "ffn_norm": "ln_mlp"})  # fmt: skip
PHI2 = Family(
    "phi2",
    (
        Kind("phi", {"rms_norm_eps": 1e-5, "max_position_embeddings": 2048}, keys=EPSILON,
             biases={"": (*ATTENTION, *INNER)}, title="Phi"),
    ),
    is_gated=False, activation="gelu", centered=True, norm_bias=True, parallel="always", shares_norm=True,
    is_partial=True, share=0.5, output_bias=True, needs_output=True, needs_biases=True,
    period=None, biases=(*ATTENTION, *INNER),
    names={"output_norm": "final_layernorm"},
    layer={"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
)  # fmt: skip
STABLELM = Family(
    "stablelm",
    (
        Kind("stablelm", {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "num_key_value_heads": 32},
             keys=EPSILON, reads=("use_parallel_residual",), biases={"use_qkv_bias": QKV}, title="StableLm"),
    ),
    centered=True, norm_bias=True, parallel="use_parallel_residual", shares_norm=True, is_partial=True, share=0.25,
    period=None, is_square=True, needs_output=True,
)  # fmt: skip
STARCODER2 = Family(
    "starcoder2",
    (
        Kind("starcoder2", {"rms_norm_eps": 1e-5, "tie_word_embeddings": True, "use_bias": True,
                            "num_key_value_heads": 2, "max_position_embeddings": 4096},
             keys={"rms_norm_eps": ("norm_epsilon",)}, biases={"use_bias": (*ATTENTION, *INNER)},
             windows=Windows(every=True), title="Starcoder2"),
    ),
    is_gated=False, activation="gelu", centered=True, norm_bias=True, period=None, needs_biases=True,
    biases=(*ATTENTION, *INNER),
    layer={"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
)  # fmt: skip
COHERE_DEFAULTS = {"rms_norm_eps": 1e-5, "tie_word_embeddings": True, "logit_scale": 0.0625,
                   "max_position_embeddings": 8192}  # fmt: skip
COHERE = Family(
    "command-r",
    (
        Kind("cohere", COHERE_DEFAULTS, keys=EPSILON, biases={"attention_bias": ATTENTION},
             factors={"logit_scale": "logits"}, base=5e5, reads=("use_qk_norm",), title="Cohere"),
    ),
    centered=True, parallel="always", shares_norm=True, pairs=True, rotates_neighbors=True, period=None,
    qk_norm="apart", qk_norm_flag="use_qk_norm",
    has_output=False, factors=("logits",),
)  # fmt: skip
COHERE2 = Family(
    "cohere2",
    (
        Kind("cohere2", {**COHERE_DEFAULTS, "sliding_window": 4096, "sliding_window_pattern": 4}, keys=EPSILON,
             reads=("position_embedding_type", "use_parallel_block"), biases={"attention_bias": ATTENTION},
             factors={"logit_scale": "logits"}, title="Cohere2",
             windows=Windows(is_listed=True, period_key="sliding_window_pattern")),
    ),
    centered=True, parallel="always", shares_norm=True, pairs=True, rotates_neighbors=True, unrotated="global",
    period=4, has_output=False, factors=("logits",), has_windows="read", is_square=True, has_scales=True,
)  # fmt: skip
GPT_OSS = Family(
    "gpt-oss",
    (
        Kind(
            "gpt_oss", {"num_experts_per_tok": 4, "head_dim": 64, "sliding_window": 128, "attention_bias": True,
                        "rms_norm_eps": 1e-5, "num_key_value_heads": 8, "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
                        "rope_parameters": {
                            "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                            "truncate": False, "original_max_position_embeddings": 4096}},
            biases={"attention_bias": ATTENTION, "": ("ffn_exps",)}, windows=Windows(is_listed=True, period=2),
            experts=Experts(128, key="num_local_experts", is_interleaved=True, is_joined=True), turned="experts",
            reads=("swiglu_alpha", "swiglu_limit"), title="GptOss",
        ),
    ),
    sinks=True, period=2, base=150_000.0, needs_output=True, has_windows="read",
    biases=ATTENTION, needs_biases=True, gguf={"ffn_norm": "post_attention_norm"},
    mixture=Mixture(clamp=(1.702, 7.0)),
)  # fmt: skip
FAMILIES = (GPT2, GPT_NEOX, OPT, BLOOM, FALCON, FALCON_TWO_NORMS, PHI2, STABLELM, STARCODER2, COHERE, COHERE2, GPT_OSS)
