"""Llama, Mistral and Mixtral: one architecture of llama.cpp, three model types of transformers."""

from __future__ import annotations

from .kind import Experts, Kind, Mixture, Windows
from .record import ATTENTION, MLP, Family

LLAMA = Family(
    "llama",
    (
        Kind("llama", biases={"attention_bias": ATTENTION, "mlp_bias": MLP}, end=2, is_rebuilt=True),
        Kind("mistral", {"sliding_window": 4096}, windows=Windows(every=True, is_listed=True), end=2, title="Mistral"),
        Kind(
            "mixtral", {"rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_experts_per_tok": 2},
            windows=Windows(every=True), end=2,
            experts=Experts(8, key="num_local_experts", block="block_sparse_moe", parts=("w1", "w3", "w2")),
        ),
    ),
    pairs=True, biases=(*ATTENTION, *MLP), has_divisors=True, has_scales=True, mixture=Mixture(has_width=False),
)  # fmt: skip
FAMILIES = (LLAMA,)
