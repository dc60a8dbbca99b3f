"""OLMo 2, SmolLM 3 and Granite: counted, not run."""

from __future__ import annotations

from .record import ATTENTION, MLP, Family, Kind, Windows

FLAG = {"attention_bias": ATTENTION}
BOTH = {**FLAG, "mlp_bias": MLP}
OLMO2 = Family("olmo2", (Kind("olmo2", biases=FLAG),), runs=False, pre_norms=False, qk_norm="all", period=None)
SMOLLM3 = Family(
    "smollm3",
    (
        Kind("smollm3", {"tie_word_embeddings": True, "no_rope_layer_interval": 4}, biases=BOTH,
             windows=Windows(is_switched=True, is_listed=True, by_rope=True)),
    ),
    runs=False, period=None,
)  # fmt: skip
GRANITE = Family("granite", (Kind("granite", biases=BOTH),), runs=False, period=None)
FAMILIES = (OLMO2, SMOLLM3, GRANITE)
