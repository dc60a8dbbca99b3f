"""DeepSeek 2 and 3: attention over latents, dense first layers, and shared experts."""

from __future__ import annotations

from .record import ATTENTION, MLP, Experts, Family, Kind

V2 = Kind(
    "deepseek_v2", {"num_experts_per_tok": 2}, biases={"attention_bias": ATTENTION, "mlp_bias": MLP},
    experts=Experts(64, "moe_intermediate_size", "first", "count"),
)  # fmt: skip
V3 = Kind(
    "deepseek_v3", {"num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1,
                    "first_k_dense_replace": 3},
    biases={"attention_bias": ATTENTION}, experts=Experts(256, "moe_intermediate_size", "first", "count"),
)  # fmt: skip
DEEPSEEK2 = Family("deepseek2", (V2, V3), runs=False, is_latent=True, period=None)
FAMILIES = (DEEPSEEK2,)
