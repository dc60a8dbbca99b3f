"""GPT-2 and gpt-oss."""

from __future__ import annotations

from .record import ATTENTION, Experts, Family, Kind, Windows

GPT2 = Family(
    "gpt2",
    (
        Kind(
            "gpt2", {"max_position_embeddings": 1024, "tie_word_embeddings": True}, hidden=4, turned="conv1d",
            keys={"hidden_size": ("n_embd",), "num_hidden_layers": ("n_layer",), "num_attention_heads": ("n_head",),
                  "intermediate_size": ("n_inner",), "max_position_embeddings": ("n_positions", "n_ctx")},
            biases={"": (*ATTENTION, "ffn_up", "ffn_down")},
        ),
    ),
    runs=False, is_gated=False, norm_bias=True, learned_positions=True, period=None,
)  # fmt: skip
GPT_OSS = Family(
    "gpt-oss",
    (
        Kind(
            "gpt_oss", {"num_experts_per_tok": 4, "head_dim": 64, "sliding_window": 128, "attention_bias": True},
            biases={"attention_bias": ATTENTION, "": ("ffn_exps",)}, windows=Windows(is_listed=True, period=2),
            experts=Experts(128), turned="experts",
        ),
    ),
    runs=False, sinks=True, period=2,
)  # fmt: skip
FAMILIES = (GPT2, GPT_OSS)
