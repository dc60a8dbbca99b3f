"""Qwen 2 and 3, dense and with experts."""

from __future__ import annotations

from .kind import Experts, Kind, Mixture, Windows
from .record import ATTENTION, QKV, Family

LATE = Windows(is_switched=True, is_listed=True, is_late=True)
WINDOWS = {"sliding_window": 4096, "max_window_layers": 28}
FLAG = {"attention_bias": ATTENTION}

QWEN2 = Family("qwen2", (Kind("qwen2", WINDOWS, biases={"": QKV}, windows=LATE),), is_square=True)
QWEN2MOE = Family(
    "qwen2moe",
    (
        Kind(
            "qwen2_moe", {**WINDOWS, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
                          "shared_expert_intermediate_size": 5632, "qkv_bias": True},
            biases={"qkv_bias": QKV}, windows=Windows(is_switched=True, is_listed=True, is_early=True),
            experts=Experts(60, "moe_intermediate_size", dense="step", shared="width", is_shared_gated=True,
                            shares="norm_topk_prob"),
            title="Qwen2Moe",
        ),
    ),
    period=None, mixture=Mixture(sums="never", shared="width"), is_square=True, needs_output=True,
)  # fmt: skip
QWEN3 = Family(
    "qwen3",
    (Kind("qwen3", {"head_dim": 128, **WINDOWS}, biases=FLAG, windows=LATE, is_rebuilt=True),),
    qk_norm="head",
    has_scales=True,
)
QWEN3MOE = Family(
    "qwen3moe",
    (
        Kind(
            "qwen3_moe", {"norm_topk_prob": False, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
                          "num_key_value_heads": 4, **WINDOWS},
            biases=FLAG, windows=Windows(every=True, is_switched=True),
            experts=Experts(128, "moe_intermediate_size", dense="step", shares="norm_topk_prob"), is_rebuilt=True,
        ),
    ),
    qk_norm="head", mixture=Mixture(), biases=(), has_scales=True,
)  # fmt: skip
FAMILIES = (QWEN2, QWEN2MOE, QWEN3, QWEN3MOE)
