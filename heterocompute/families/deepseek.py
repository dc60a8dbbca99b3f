"""DeepSeek 2 and 3: attention over latents, dense first layers, and shared experts."""

from __future__ import annotations

from .kind import Experts, Kind, Mixture
from .record import MLP, Family

EXPERTS = Experts(
    64,
    "moe_intermediate_size",
    "n_routed_experts",
    "first",
    "count",
    factor="routed_scaling_factor",
    has_groups=True,
    are_raw=True,
)
LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "qk_head_dim",
          "rope_interleave", "num_nextn_predict_layers", "ep_size", "moe_layer_freq")  # fmt: skip
V2 = Kind(
    "deepseek_v2", {"num_experts_per_tok": 2, "q_lora_rank": 1536, "n_shared_experts": 2, "topk_method": "greedy"},
    biases={"attention_bias": ("attn_output",), "mlp_bias": MLP}, reads=(*LATENT, "topk_method", "norm_topk_prob"),
    experts=EXPERTS, title="DeepseekV2",
)  # fmt: skip
V3 = Kind(
    "deepseek_v3", {"num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1,
                    "first_k_dense_replace": 3, "q_lora_rank": 1536, "n_group": 8, "topk_group": 4,
                    "norm_topk_prob": True, "routed_scaling_factor": 2.5},
    biases={"attention_bias": ("attn_output",)}, reads=(*LATENT, "topk_method", "scoring_func"),
    experts=Experts(256, "moe_intermediate_size", "n_routed_experts", "first", "count", shares="norm_topk_prob",
                    router="sigmoid", factor="routed_scaling_factor", is_corrected=True, has_groups=True),
    title="DeepseekV3",
)  # fmt: skip
DEEPSEEK2 = Family(
    "deepseek2", (V2, V3), pairs=True, rotates_neighbors=True, is_latent=True, period=None, biases=(),
    log_multiplier=0.1,
    mixture=Mixture(sums="key", router="key", shared="count", is_scaled=True, is_corrected=True, has_groups=True,
                    has_dense=True),
    layer={"attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
           "attn_q_b": "self_attn.q_b_proj", "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
           "attn_kv_a_norm": "self_attn.kv_a_layernorm", "attn_kv_b": "self_attn.kv_b_proj"},
)  # fmt: skip
FAMILIES = (DEEPSEEK2,)
