"""Encoders of texts: BERT, RoBERTa, XLM-RoBERTa, ModernBERT and Nomic BERT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .kind import Kind, Windows
from .record import ATTENTION, Family

INNER = ("ffn_up", "ffn_down")
TABLES = {"token_embd": "embeddings.word_embeddings", "token_types": "embeddings.token_type_embeddings",
          "position_embd": "embeddings.position_embeddings", "token_embd_norm": "embeddings.LayerNorm"}  # fmt: skip
BERT_DEFAULTS = {"max_position_embeddings": 512, "rms_norm_eps": 1e-12, "type_vocab_size": 2}
PADDING = 1  # token of RoBERTa


def _heads(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of heads of keys, which transformers does not read."""
    return {"num_key_value_heads": config.get("num_attention_heads")}


def _of_bert(config: Mapping[str, Any]) -> dict[str, Any]:
    return {**_heads(config), "head_dim": _quotient(config.get("hidden_size"), config.get("num_attention_heads"))}


def _of_roberta(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context: the rows of the table that follow the one of padding."""
    rows = config["max_position_embeddings"]
    return {**_of_bert(config), "max_position_embeddings": rows - PADDING - 1 if type(rows) is int else rows}


def _of_modernbert(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the kinds of layers, and the tokens that a token sees on each side, its own included."""
    layers, period, width = (config.get(k) for k in ("num_hidden_layers", "global_attn_every_n_layers",
                                                     "local_attention"))  # fmt: skip
    found = {**_of_bert(config), "sliding_window": width // 2 + 1 if type(width) is int else width}
    if config.get("layer_types") is None and type(layers) is int and type(period) is int and period > 0:
        found["layer_types"] = ["sliding_attention" if i % period else "full_attention" for i in range(layers)]
    return found


def _quotient(width: Any, heads: Any) -> int | None:
    return width // heads if type(width) is int and type(heads) is int and heads > 0 else None


BERT = Family(
    "bert",
    (
        Kind("bert", {**BERT_DEFAULTS, "pad_token_id": 0}, keys={"rms_norm_eps": ("layer_norm_eps",)},
             reads=("type_vocab_size",), biases={"": (*ATTENTION, *INNER)}, implied=_of_bert, title="Bert"),
    ),
    is_encoder=True, centered=True, norm_bias=True, pre_norms=False, sum_norms=True, output_norm=False, is_gated=False,
    activation="gelu_erf", learned_positions=True, token_types=True, embedding_norm=True, period=None,
    biases=(*ATTENTION, *INNER), needs_biases=True, is_square=True,
    prefix="", names={**TABLES, "layers": "encoder.layer"},
    layer={"attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value",
           "attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm",
           "ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm"},
)  # fmt: skip
ROBERTA_KIND = Kind("roberta", {**BERT_DEFAULTS, "pad_token_id": PADDING}, keys={"rms_norm_eps": ("layer_norm_eps",)},
                    reads=("type_vocab_size",), biases=BERT.kinds[0].biases, implied=_of_roberta,
                    title="Roberta")  # fmt: skip
ROBERTA = replace(
    BERT, name="roberta", alias="bert", position_offset=PADDING + 1, skips_padding=True,
    kinds=(ROBERTA_KIND, replace(ROBERTA_KIND, name="xlm-roberta", title="XLMRoberta")),
)  # fmt: skip
MODERNBERT = Family(
    "modernbert",
    (
        Kind("modernbert", {"max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "local_attention": 128,
                            "global_attn_every_n_layers": 3},
             keys={"rms_norm_eps": ("norm_eps",), "rope_theta": ("global_rope_theta",),
                   "rope_local_base_freq": ("local_rope_theta",)},
             reads=("local_attention", "global_attn_every_n_layers"), windows=Windows(is_listed=True, period=3),
             biases={"attention_bias": ("attn_qkv", "attn_output"), "mlp_bias": ("ffn_gate_up", "ffn_down")},
             base=160_000.0, has_local_rope=True, implied=_of_modernbert, title="ModernBert"),
    ),
    is_encoder=True, centered=True, activation="gelu_erf", embedding_norm=True, skips_first_norm=True,
    fused=("attn_qkv", "ffn_gate_up"), gguf={"ffn_gate_up": "ffn_up"}, local_base=10_000.0, biases=(),
    period=3, is_two_sided=True, begins_global=True, has_windows="read", has_output=False, alias="modern-bert",
    names={"token_embd": "embeddings.tok_embeddings", "token_embd_norm": "embeddings.norm",
           "output_norm": "final_norm"},
    layer={"attn_norm": "attn_norm", "attn_qkv": "attn.Wqkv", "attn_output": "attn.Wo", "ffn_norm": "mlp_norm",
           "ffn_gate_up": "mlp.Wi", "ffn_down": "mlp.Wo"},
)  # fmt: skip
NOMIC = Family(
    "nomic-bert",
    (
        Kind("nomic_bert", {**BERT_DEFAULTS, "max_position_embeddings": 2048},
             keys={"rms_norm_eps": ("layer_norm_eps",)}, reads=("type_vocab_size",), implied=_heads, base=1000.0,
             title="NomicBert"),
    ),
    is_encoder=True, centered=True, norm_bias=True, pre_norms=False, sum_norms=True, output_norm=False,
    token_types=True, embedding_norm=True, period=None, biases=(), is_square=True, base=1000.0, prefix="",
    fused=("attn_qkv",), names={**TABLES, "token_embd_norm": "emb_ln", "layers": "encoder.layers"},
    layer={"attn_qkv": "attn.Wqkv", "attn_output": "attn.out_proj", "attn_output_norm": "norm1", "ffn_up": "mlp.fc11",
           "ffn_gate": "mlp.fc12", "ffn_down": "mlp.fc2", "layer_output_norm": "norm2"},
)  # fmt: skip
FAMILIES = (BERT, ROBERTA, MODERNBERT, NOMIC)
