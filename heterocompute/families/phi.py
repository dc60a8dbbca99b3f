"""Phi-3: fused matrices, a partly rotated head, and longrope."""

from __future__ import annotations

from .kind import Kind, Windows
from .record import Family

PHI3 = Family(
    "phi3",
    (
        Kind("phi3", {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096}, windows=Windows(every=True),
             end=32000),
    ),
    fused=("attn_qkv", "ffn_gate_up"), gguf={"ffn_gate_up": "ffn_up"}, is_partial=True, biases=("attn_qkv",),
    has_long=True, is_square=True, has_windows="key",
    rope_types={"default": "default", "longrope": "longrope", "su": "longrope", "yarn": "longrope"},  # early names
)  # fmt: skip
FAMILIES = (PHI3,)
