"""SmolLM 3, Ernie 4.5, Arcee, Seed-OSS, Ministral 3, Granite, OLMo 2 and 3, EXAONE 4 and GLM 4."""

from __future__ import annotations

from dataclasses import replace

from .kind import Kind, Windows
from .record import ATTENTION, MLP, QKV, Family

INNER = ("ffn_up", "ffn_down")
FLAG = {"attention_bias": ATTENTION}
BOTH = {**FLAG, "mlp_bias": MLP}
POST = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}

SMOLLM3 = Family(
    "smollm3",
    (
        Kind("smollm3", {"tie_word_embeddings": True, "no_rope_layer_interval": 4, "num_key_value_heads": 4},
             biases=BOTH, windows=Windows(is_switched=True, is_listed=True, by_rope=True), title="SmolLM3"),
    ),
    pairs=True, base=2e6, unrotated="listed", period=None,
)  # fmt: skip
ERNIE = Family(
    "ernie4_5",
    (
        Kind("ernie4_5", {"tie_word_embeddings": True, "rms_norm_eps": 1e-5, "head_dim": 128, "num_key_value_heads": 2},
             biases={"use_bias": (*ATTENTION, *MLP)}, title="Ernie4_5"),
    ),
    pairs=True, rotates_neighbors=True, base=5e5, period=None,
)  # fmt: skip
ARCEE = Family(
    "arcee", (Kind("arcee", {"rms_norm_eps": 1e-5}, biases={**FLAG, "mlp_bias": INNER}),),
    pairs=True, activation="relu2", is_gated=False, period=None, has_divisors=True, biases=(),
)  # fmt: skip
SEED = Family(
    "seed_oss",
    (
        Kind("seed_oss", {"head_dim": 128, "attention_bias": True, "num_key_value_heads": 8},
             biases={"attention_bias": QKV, "attention_out_bias": ("attn_output",), "mlp_bias": MLP}, title="SeedOss"),
    ),
    gguf={"ffn_norm": "post_attention_norm"}, period=None,
)  # fmt: skip
MINISTRAL3 = Family(
    "mistral3",
    (
        Kind("ministral3", {"rms_norm_eps": 1e-5, "head_dim": 128, "num_key_value_heads": 8},
             windows=Windows(every=True), title="Ministral3"),
    ),
    pairs=True, base=1e6, rope_keys=("llama_4_scaling_beta", "max_position_embeddings"), period=None, biases=(),
    has_divisors=True, log_multiplier=1.0, has_limits=True, has_temperature=True, has_scales=True,
)  # fmt: skip
MULTIPLIERS = {"embedding_multiplier": "embedding", "residual_multiplier": "residual",
               "attention_multiplier": "attention", "logits_scaling": "logits divided"}  # fmt: skip
GRANITE = Family(
    "granite", (Kind("granite", biases=BOTH, factors=MULTIPLIERS),), pairs=True, period=None, has_divisors=True,
    biases=(*ATTENTION, *MLP), factors=tuple(MULTIPLIERS.values()),
)  # fmt: skip
OLMO2 = Family(
    "olmo2",
    (
        Kind("olmo2", {"rms_norm_eps": 1e-5}, biases=FLAG, title="Olmo2"),
        Kind("olmo3", {"rms_norm_eps": 1e-5, "sliding_window": 4096}, biases=FLAG,
             windows=Windows(is_listed=True, period=4), base=5e5, has_local_rope=True, title="Olmo3"),
    ),
    pre_norms=False, post_norms=True, qk_norm="all", layer=POST, period=4, has_windows="read",
    is_square=True, biases=(), needs_output=True,
)  # fmt: skip
EXAONE4 = Family(
    "exaone4",
    (
        Kind("exaone4", {"rms_norm_eps": 1e-5, "sliding_window": 4096, "sliding_window_pattern": 4,
                         "num_key_value_heads": 32},
             windows=Windows(is_listed=True, period_key="sliding_window_pattern"), title="Exaone4"),
    ),
    pre_norms=False, post_norms=True, qk_norm="head", layer=POST, unrotated="beside windows", period=4,
    has_windows="read", windowed_layers=64, biases=(), has_divisors=True,
)  # fmt: skip
GLM4 = Family(
    "glm4",
    (
        Kind("glm4", {"rms_norm_eps": 1.5625e-7, "head_dim": 128, "attention_bias": True, "num_key_value_heads": 2},
             biases={"attention_bias": QKV}, title="Glm4"),
    ),
    pairs=True, rotates_neighbors=True, fused=("ffn_gate_up",), gguf={"ffn_gate_up": "ffn_up"}, is_partial=True,
    share=0.5, post_norms=True,
    layer={"post_attention_norm": "post_self_attn_layernorm", "post_ffw_norm": "post_mlp_layernorm"}, period=None,
)  # fmt: skip
GLM = replace(GLM4, name="glm", kinds=(replace(GLM4.kinds[0], name="glm", title="Glm"),), post_norms=False, layer={},
              alias="chatglm", is_square=True)  # fmt: skip
FAMILIES = (SMOLLM3, ERNIE, ARCEE, SEED, MINISTRAL3, GRANITE, OLMO2, EXAONE4, GLM4, GLM)
