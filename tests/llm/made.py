"""Small synthetic language models: a Hugging Face folder and a GGUF file with the same weights and tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import heterocompute as hc

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
LATENT: dict[str, Any] = {
    "num_key_value_heads": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "kv_lora_rank": 16,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12, "first_k_dense_replace": 1,
}  # fmt: skip
# Families that run: the class of transformers without its ending, and options of a small model.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "mistral": ("Mistral", {"sliding_window": 8}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3_moe": ("Qwen3Moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
                               "norm_topk_prob": True, "head_dim": 16}),
    "gemma": ("Gemma", {"head_dim": 32}),
    "gemma2": ("Gemma2", {"head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 32}),
    "gemma3": ("Gemma3", {"head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 24,
                          "layer_types": ["sliding_attention", "full_attention"] * 2}),
    "phi3": ("Phi3", {"bos_token_id": 1, "eos_token_id": 2}),
    "smollm3": ("SmolLM3", {"bos_token_id": 1, "eos_token_id": 2, "no_rope_layer_interval": 2,
                            "use_sliding_window": True, "sliding_window": 8}),
    "ernie4_5": ("Ernie4_5", {"head_dim": 32}),
    "arcee": ("Arcee", {"bos_token_id": 1, "eos_token_id": 2}),
    "seed_oss": ("SeedOss", {"head_dim": 16}),
    "ministral3": ("Ministral3", {"head_dim": 32, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 4.0, "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1}}),
    "granite": ("Granite", {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.125,
                            "logits_scaling": 2.0}),
    "olmo2": ("Olmo2", {"bos_token_id": 1, "eos_token_id": 2}),
    "olmo3": ("Olmo3", {"bos_token_id": 1, "eos_token_id": 2, "sliding_window": 8, "rope_parameters": {
        "full_attention": {"rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0,
                           "original_max_position_embeddings": 32},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}}),
    "exaone4": ("Exaone4", {"sliding_window": 8, "sliding_window_pattern": 2}),
    "glm4": ("Glm4", {"head_dim": 32, "eos_token_id": 2}),
    "gpt2": ("GPT2", {"n_inner": 96, "num_key_value_heads": 4}),
    "gpt_neox": ("GPTNeoX", {"num_key_value_heads": 4}),
    "opt": ("OPT", {"ffn_dim": 96, "num_key_value_heads": 4, "word_embed_proj_dim": 64}),
    "bloom": ("Bloom", {"num_key_value_heads": 4, }),
    "falcon": ("Falcon", {"num_key_value_heads": 1}),
    "phi": ("Phi", {}),
    "stablelm": ("StableLm", {}),
    "starcoder2": ("Starcoder2", {"bos_token_id": 1, "eos_token_id": 2, "sliding_window": 8}),
    "cohere": ("Cohere", {"eos_token_id": 2}),
    "cohere2": ("Cohere2", {"eos_token_id": 2, "sliding_window": 8}),
    "qwen2_moe": ("Qwen2Moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
                               "shared_expert_intermediate_size": 80, "mlp_only_layers": [1]}),
    "olmoe": ("Olmoe", {"num_experts": 4, "num_experts_per_tok": 2, "eos_token_id": 1}),
    "granitemoe": ("GraniteMoe", {"num_local_experts": 4, "attention_multiplier": 0.25, "residual_multiplier": 0.5,
                                  "embedding_multiplier": 2.0, "logits_scaling": 3.0}),
    "phimoe": ("Phimoe", {"num_local_experts": 4}),
    "glm4_moe": ("Glm4Moe", {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
                             "head_dim": 16, "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.5,
                             "use_qk_norm": True}),
    "gpt_oss": ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 8}),
    "deepseek_v2": ("DeepseekV2", {
        **LATENT, "q_lora_rank": None, "n_routed_experts": 4, "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 0.9,
            "original_max_position_embeddings": 32}}),
    "deepseek_v3": ("DeepseekV3", {
        **LATENT, "q_lora_rank": 24, "n_routed_experts": 8, "n_group": 2, "topk_group": 1}),
    "glm": ("Glm", {"head_dim": 32, "eos_token_id": 2}),
}  # fmt: skip
ENDING = {"GPT2": "LMHeadModel"}
# Families that llama.cpp runs from files that are written here.
IN_GGUF = [name for name in FAMILIES if name not in ("opt", "phimoe")]
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("Ġ", "a"), ("e", "r")]
TEXT = "the cat sat in the hat, the winter was there: 12 cats and 345 rats.\n" * 4


def bytes_alphabet() -> list[str]:
    """Return the 256 characters that represent bytes in byte-level BPE, in the order of GPT-2."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]


def vocabulary() -> list[str]:
    return ["<s>", "</s>", *bytes_alphabet(), *(a + b for a, b in MERGES)]


def weights(seed: int = 0, config: dict[str, Any] = CONFIG) -> dict[str, np.ndarray[Any, Any]]:
    """Return weights with the names of Hugging Face."""
    rng, width, hidden = np.random.default_rng(seed), config["hidden_size"], config["intermediate_size"]
    head = width // config["num_attention_heads"]
    kv = head * config["num_key_value_heads"]

    def drawn(*shape: int) -> np.ndarray[Any, Any]:
        return (rng.standard_normal(shape) * (0.3 if len(shape) > 1 else 0.1) + (len(shape) == 1)).astype(np.float32)

    table = drawn(len(vocabulary()), width)
    table[2 + 94 : 2 + 256] = (
        0  # bytes that are no ASCII letter or sign: their logit is 0, so that they never come next
    )
    found = {"model.embed_tokens.weight": table, "model.norm.weight": drawn(width)}
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        found |= {f"{at}{name}.weight": drawn(width) for name in ("input_layernorm", "post_attention_layernorm")}
        found |= {
            f"{at}self_attn.{n}_proj.weight": drawn(rows, width) for n, rows in (("q", width), ("k", kv), ("v", kv))
        }
        found[f"{at}self_attn.o_proj.weight"] = drawn(width, width)
        found |= {f"{at}mlp.{name}_proj.weight": drawn(hidden, width) for name in ("gate", "up")}
        found[f"{at}mlp.down_proj.weight"] = drawn(width, hidden)
    return found


def write_folder(path: Path, config: dict[str, Any] | None = None, seed: int = 0) -> Path:
    """Write a Hugging Face folder, with tokenizer.json if the package tokenizers is installed."""
    path.mkdir(exist_ok=True)
    config = {**CONFIG, **(config or {})}
    (path / "config.json").write_text(json.dumps(config))
    hc.save(path / "model.safetensors", weights(seed))
    try:
        import tokenizers
    except ImportError:
        return path
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={text: i for i, text in enumerate(vocabulary())}, merges=MERGES)
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<s>", "</s>"])
    made.save(str(path / "tokenizer.json"))
    return path


ROLES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def gguf_tensors(seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Return the same weights for llama.cpp: rows of queries and keys in the order of neighboring pairs."""
    found = {}
    for name, w in weights(seed).items():
        if not name.startswith("model.layers."):
            found[{"model.norm.weight": "output_norm.weight"}.get(name, "token_embd.weight")] = w
            continue
        _, _, i, rest = name.split(".", 3)
        role = ROLES[rest.removesuffix(".weight")]
        if role in ("attn_q", "attn_k"):
            head = CONFIG["hidden_size"] // CONFIG["num_attention_heads"]
            w = w.reshape(-1, 2, head // 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)
        found[f"blk.{i}.{role}.weight"] = w
    return found


def gguf_keys() -> dict[str, Any]:
    texts = vocabulary()
    return {
        "general.architecture": "llama", "llama.block_count": 2, "llama.context_length": 128,
        "llama.embedding_length": 64, "llama.feed_forward_length": 96, "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2, "llama.rope.freq_base": 10000.0, "llama.rope.dimension_count": 16,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.vocab_size": len(texts),
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": [3, 3] + [1] * (len(texts) - 2),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in MERGES], "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.add_bos_token": False,
    }  # fmt: skip


def write_gguf(
    path: Path, kind: str = "f32", keys: dict[str, Any] | None = None, seed: int = 0, **tensors: Any
) -> Path:
    """Write a GGUF file; `keys` replaces its keys (None removes one), `tensors` its tensors."""
    given = {**gguf_keys(), **(keys or {})}
    held = {**gguf_tensors(seed), **{name.replace("__", "."): w for name, w in tensors.items()}}
    hc.save_gguf(
        path, {name: w for name, w in held.items() if w is not None},
        {key: value for key, value in given.items() if value is not None}, {"*norm*": "f32", "*": kind},
    )  # fmt: skip
    return path
