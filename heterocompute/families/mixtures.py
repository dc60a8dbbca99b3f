"""OLMoE, Granite with experts, Phi-3.5-MoE and GLM 4.5."""

from __future__ import annotations

from .kind import Experts, Kind, Mixture, Windows
from .others import MULTIPLIERS
from .record import ATTENTION, QKV, Family

FLAG = {"attention_bias": ATTENTION}
LISTED = ("w1", "w3", "w2")
OLMOE = Family(
    "olmoe",
    (
        Kind("olmoe", {"rms_norm_eps": 1e-5, "num_experts_per_tok": 8, "norm_topk_prob": False}, biases=FLAG,
             experts=Experts(64, shares="norm_topk_prob"), title="Olmoe"),
    ),
    qk_norm="all", period=None, mixture=Mixture(has_width=False, sums="never"), is_square=True, needs_output=True,
    is_ungrouped=True, biases=(),
)  # fmt: skip
GRANITEMOE = Family(
    "granitemoe",
    (
        Kind("granitemoe", {"num_experts_per_tok": 2}, biases=FLAG, factors=MULTIPLIERS,
             experts=Experts(8, key="num_local_experts", is_joined=True, block="block_sparse_moe", parts=LISTED),
             title="GraniteMoe"),
    ),
    pairs=True, period=None, has_divisors=True, biases=ATTENTION, mixture=Mixture(has_width=False),
    factors=tuple(MULTIPLIERS.values()),
)  # fmt: skip
PHIMOE = Family(
    "phimoe",
    (
        Kind("phimoe", {"rms_norm_eps": 1e-5, "num_experts_per_tok": 2, "num_key_value_heads": 8,
                        "max_position_embeddings": 131072, "router_jitter_noise": 0.01},
             biases=FLAG, windows=Windows(every=True),
             experts=Experts(16, key="num_local_experts", router="mixer", block="block_sparse_moe", parts=LISTED),
             title="Phimoe"),
    ),
    centered=True, norm_bias=True, base=1e6, period=None,
    no_gguf="llama.cpp computes RMS norms and a softmax of two experts there; the model has layer norms and a mixer",
)  # fmt: skip
GLM4MOE = Family(
    "glm4moe",
    (
        Kind("glm4_moe", {"rms_norm_eps": 1e-5, "num_experts_per_tok": 8, "num_key_value_heads": 8,
                          "moe_intermediate_size": 1408, "n_shared_experts": 1, "first_k_dense_replace": 1,
                          "norm_topk_prob": True},
             biases={"attention_bias": QKV}, reads=("num_nextn_predict_layers", "use_qk_norm"),
             experts=Experts(128, "moe_intermediate_size", "n_routed_experts", "first", "count",
                             shares="norm_topk_prob", router="sigmoid", factor="routed_scaling_factor",
                             is_corrected=True, has_groups=True),
             title="Glm4Moe"),
    ),
    qk_norm="head", qk_norm_flag="use_qk_norm", is_partial=True, share=0.5, period=None,
    gguf={"ffn_norm": "post_attention_norm"},
    mixture=Mixture(sums="key", router="sigmoid", shared="count", is_scaled=True, is_corrected=True, has_groups=True,
                    has_dense=True),
)  # fmt: skip
FAMILIES = (OLMOE, GRANITEMOE, PHIMOE, GLM4MOE)
