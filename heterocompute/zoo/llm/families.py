"""The families of language models: their options, and the names of their tensors in files.

    GGUF                           Hugging Face
    token_embd.weight              model.embed_tokens.weight
    blk.3.attn_q.weight            model.layers.3.self_attn.q_proj.weight
    blk.3.ffn_gate_exps.weight     experts.py

llama.cpp, src/llama-arch.cpp and src/models/; transformers, src/transformers/models/.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FAMILIES", "HF_LAYER", "HF_NAMES", "Family"]


@dataclass(frozen=True)
class Family:
    """Properties of one family that its files do not state.

    Attributes
    ----------
    hf : tuple of str
        Values of ``model_type`` in config.json.
    pairs : bool
        GGUF rotates neighbors (2 i, 2 i + 1); otherwise i and i + width / 2, as in Hugging Face.
    activation : str
        ``"silu"`` or ``"gelu"`` (tanh form).
    scaled_embedding : bool
        Embeddings are multiplied by sqrt(width).
    plus_one : bool
        Hugging Face stores weights of norms minus 1.
    post_norms : bool
        A norm follows attention and another the feed-forward part, before the residual sum.
    period : int
        Every `period`-th layer sees all positions, the others a sliding window; 0: every layer has the same window.
    local_base : float or None
        RoPE's base in the layers with a sliding window.
    attention_cap, logit_cap : float or None
        Default of ``cap * tanh(x / cap)`` for scores and logits.
    window : int
        Default size of the window in a GGUF file; 0: all positions.
    largest : int
        Number of layers of the model whose scores are scaled by ``(width / heads) ** -0.5`` instead of the head width.
    """

    hf: tuple[str, ...]
    pairs: bool = False
    activation: str = "silu"
    scaled_embedding: bool = False
    plus_one: bool = False
    post_norms: bool = False
    period: int = 0
    local_base: float | None = None
    attention_cap: float | None = None
    logit_cap: float | None = None
    window: int = 0
    largest: int = 0


FAMILIES = {
    "llama": Family(("llama", "mistral", "mixtral"), pairs=True),
    "qwen2": Family(("qwen2",)),
    "qwen3": Family(("qwen3",)),
    "qwen3moe": Family(("qwen3_moe",)),
    "phi3": Family(("phi3",)),
    "gemma": Family(("gemma",), activation="gelu", scaled_embedding=True, plus_one=True),
    "gemma2": Family(
        ("gemma2",), activation="gelu", scaled_embedding=True, plus_one=True, post_norms=True, period=2,
        attention_cap=50.0, logit_cap=30.0, window=4096, largest=46,
    ),
    "gemma3": Family(
        ("gemma3_text", "gemma3"), activation="gelu", scaled_embedding=True, plus_one=True, post_norms=True, period=6,
        local_base=10_000.0, largest=62,
    ),
}  # fmt: skip

HF_NAMES = {"token_embd": "embed_tokens", "output_norm": "norm"}
HF_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_gate_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
}
HF_POST_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
