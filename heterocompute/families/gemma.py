"""Gemma 1 to 3: scaled embeddings, weights of norms minus 1, and from Gemma 2 on norms on both sides and windows."""

from __future__ import annotations

from dataclasses import replace

from .kind import Kind, Windows
from .record import ATTENTION, LOGIT_CAPS, POST_NORMS, Family

ATTENTION_CAP, LOGIT_CAP = LOGIT_CAPS
FLAG = {"attention_bias": ATTENTION}
READS = ("query_pre_attn_scalar", *LOGIT_CAPS)
SCALAR = {"head_dim": 256, "sliding_window": 4096, "query_pre_attn_scalar": 256, "tie_word_embeddings": True}

GEMMA = Family(
    "gemma",
    (
        Kind("gemma", {"head_dim": 256, "tie_word_embeddings": True}, biases=FLAG, activations=("gelu",),  # early files
             end=1, is_rebuilt=True),
    ),
    activation="gelu", scaled_embedding=True, plus_one=True, has_output=False,
)  # fmt: skip
GEMMA2 = replace(
    GEMMA,
    name="gemma2",
    kinds=(
        Kind("gemma2", {**SCALAR, ATTENTION_CAP: 50.0, LOGIT_CAP: 30.0}, reads=READS, biases=FLAG,
             windows=Windows(is_listed=True, period=2), end=1, is_rebuilt=True),
    ),
    post_norms=True, layer=POST_NORMS, period=2, window=4096, largest=46, has_windows="read",
    caps={ATTENTION_CAP: 50.0, LOGIT_CAP: 30.0},
)  # fmt: skip
TEXT = Kind(
    "gemma3_text", {**SCALAR, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 131072,
                    "vocab_size": 262208, "sliding_window_pattern": 6},
    reads=(*READS, "rope_local_base_freq"), biases=FLAG,
    windows=Windows(is_listed=True, period_key="sliding_window_pattern"), end=1, is_rebuilt=True, base=1e6,
    has_local_rope=True,
)  # fmt: skip
GEMMA3 = replace(
    GEMMA2, name="gemma3", kinds=(TEXT, replace(TEXT, name="gemma3", end=None)), qk_norm="head", period=6, window=0,
    local_base=10_000.0, caps={LOGIT_CAP: None}, largest=62, has_output=True,
)  # fmt: skip
FAMILIES = (GEMMA, GEMMA2, GEMMA3)
