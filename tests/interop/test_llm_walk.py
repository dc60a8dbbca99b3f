"""Each key of a configuration, changed alone: the logits of transformers for the same folder, or a refusal."""

from __future__ import annotations

import copy
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")

IDS = np.random.default_rng(0).integers(3, 96, (1, 40))
SIZES: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 1,
    "pad_token_id": 2,
}  # fmt: skip
MOE = {"num_experts_per_tok": 2, "num_local_experts": 4}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "mistral": ("Mistral", {"sliding_window": 12}),
    "mixtral": ("Mixtral", MOE),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {}),
    "qwen3_moe": ("Qwen3Moe", {**MOE, "moe_intermediate_size": 24, "norm_topk_prob": True}),
    "phi3": ("Phi3", {}),
    "gemma": ("Gemma", {}),
    "gemma2": ("Gemma2", {"sliding_window": 12, "query_pre_attn_scalar": 8}),
    "gemma3_text": ("Gemma3", {"sliding_window": 12, "query_pre_attn_scalar": 8}),
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.2, 1.3, 1.5], "long_factor": [2.0, 3.0, 4.0, 5.0]}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
KINDS = {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
         "sliding_attention": {"rope_type": "default", "rope_theta": 99.0}}  # fmt: skip
ROPES: list[Any] = [
    {"rope_type": "linear", "factor": 2.0}, {"type": "linear", "factor": 3}, {"factor": 4.0}, {"rope_type": "linear"},
    {"rope_type": "default", "factor": 2.0}, {"rope_type": "dynamic", "factor": 2.0}, LLAMA3,
    {**LLAMA3, "original_max_position_embeddings": 32}, YARN, {"rope_type": "yarn", "factor": 4.0},
    {**YARN, "factor": None}, {**YARN, "factor": 0.5}, {**YARN, "original_max_position_embeddings": 3},
    {**YARN, "original_max_position_embeddings": 1024, "beta_fast": 4, "beta_slow": 2},
    {**YARN, "original_max_position_embeddings": 1024, "beta_fast": 1, "beta_slow": 32},
    {**YARN, "truncate": False, "original_max_position_embeddings": 1024}, {**YARN, "attention_factor": 1.5},
    {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5}, {**YARN, "mscale": 1.0}, {**YARN, "finetuned": True},
    {**YARN, "other": 3}, LONG, {**LONG, "original_max_position_embeddings": 16},
    {**LONG, "original_max_position_embeddings": 32, "factor": 4.0},
    {**LONG, "original_max_position_embeddings": 48, "attention_factor": 1.3},
    {**LONG, "original_max_position_embeddings": 128}, {"rope_type": "proportional", "partial_rotary_factor": 0.5},
    {"rope_type": "default", "partial_rotary_factor": 0.5}, {"rope_theta": 77.0}, KINDS, {},
    {"full_attention": {"rope_type": "default"}}, {"sliding_attention": YARN},
    {"full_attention": {**LONG, "original_max_position_embeddings": 16}}, {"full_attention": None},
    {"rope_type": "default", "mrope_section": [1, 1, 2]},
]  # fmt: skip
ACTIVATIONS = "silu swish gelu gelu_new gelu_pytorch_tanh gelu_fast relu relu2 quick_gelu mish sigmoid linear".split()
WINDOW, FULL = "sliding_attention", "full_attention"
VALUES: dict[str, list[Any]] = {
    "rope_scaling": ROPES, "rope_parameters": ROPES, "hidden_act": ACTIVATIONS, "hidden_activation": ACTIVATIONS,
    "rope_theta": [50.0, 1e6], "rope_local_base_freq": [50.0], "partial_rotary_factor": [0.5, 1.0],
    "original_max_position_embeddings": [16, 32], "sliding_window": [5, 0, None, 1, 100],
    "use_sliding_window": [True, False], "max_window_layers": [0, 2, 5], "sliding_window_pattern": [1, 2, 3, 0],
    "layer_types": [[FULL] * 3, [WINDOW] * 3, [WINDOW, FULL, FULL], [FULL], ["chunked_attention"] * 3],
    "query_pre_attn_scalar": [3, 16], "attn_logit_softcapping": [5.0, 0.0, None],
    "final_logit_softcapping": [3.0, 0.0, None], "attention_bias": [True, False], "mlp_bias": [True, False],
    "tie_word_embeddings": [True, False], "num_experts": [2, 4], "num_local_experts": [2, 4],
    "num_experts_per_tok": [1, 3], "norm_topk_prob": [False], "decoder_sparse_step": [2], "mlp_only_layers": [[0], []],
    "moe_intermediate_size": [16], "head_dim": [4, 16, None], "use_bidirectional_attention": [True, False],
    "is_causal": [False, True], "per_layer_config": [{"0": {"num_attention_heads": 2}}, {}],
    "rms_norm_eps": [1e-2, 0.0],
    "num_key_value_heads": [1, 4, None], "num_attention_heads": [8, 2], "num_hidden_layers": [1, 4],
    "hidden_size": [64], "intermediate_size": [16], "vocab_size": [100], "max_position_embeddings": [41, 1000],
    "is_decoder": [True], "is_encoder_decoder": [True], "add_cross_attention": [True], "chunk_size_feed_forward": [1],
    "pruned_heads": [{"0": [1]}], "output_router_logits": [True], "router_jitter_noise": [0.5], "use_cache": [False],
    "attention_dropout": [0.5], "resid_pdrop": [0.5], "embd_pdrop": [0.5], "initializer_range": [0.5],
    "pretraining_tp": [2], "pad_token_id": [None, 5], "attention_multiplier": [0.5], "embedding_multiplier": [2.0],
    "logit_scale": [0.5], "clip_qkv": [1.0], "temperature": [0.3], "dtype": ["float32"], "num_labels": [5],
}  # fmt: skip
CASES = [(kind, key) for kind in FAMILIES for key in VALUES]


def written(kind: str, config: dict[str, Any], folder: Path) -> bool:
    """Write a network with random weights under a configuration; tell whether transformers can make it."""
    name, given = FAMILIES[kind][0], copy.deepcopy(config)
    given.pop("model_type")
    torch.manual_seed(zlib.crc32(kind.encode()))
    try:
        made = getattr(transformers, f"{name}TextConfig" if name == "Gemma3" else f"{name}Config")(**given)
        model = getattr(transformers, f"{name}ForCausalLM")(made).eval()
    except Exception:
        return False
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    return True


def expected(folder: Path) -> Any:
    """Return the logits of transformers; None if it does not open the folder, or finds not all weights."""
    try:
        model, found = transformers.AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True, attn_implementation="eager", dtype=torch.float32
        )
        with torch.no_grad():
            logits = model.eval()(torch.tensor(IDS), return_dict=True, use_cache=False).logits.numpy()
    except Exception:
        return None
    return None if found["missing_keys"] else logits


def assert_equal_or_refused(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    try:
        logits = hc.zoo.open_llm(folder).logits(IDS)
    except ValueError as refused:
        assert str(folder) in str(refused)
        return
    wanted = expected(folder)
    if wanted is not None:
        bound = 60 * np.finfo(np.float32).eps * max(np.abs(wanted).max(), 1.0)
        assert np.abs(logits - wanted).max() <= bound, config


@pytest.mark.sweep(every=100)
@pytest.mark.parametrize(("kind", "key"), CASES)
def test_a_changed_key_changes_the_logits_as_in_transformers(kind: str, key: str, tmp_path: Path) -> None:
    plain = {"model_type": kind, **SIZES, **FAMILIES[kind][1]}
    assert written(kind, plain, tmp_path / "plain")
    for i, value in enumerate(VALUES[key]):
        config = {**plain, key: value}
        assert_equal_or_refused(tmp_path / "plain", config)  # the weights do not know the key
        if written(kind, config, tmp_path / str(i)):
            assert_equal_or_refused(tmp_path / str(i), config)


@pytest.mark.sweep(every=40)
@pytest.mark.parametrize("seed", range(150))
def test_keys_drawn_together_have_the_logits_of_transformers(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    kind = list(FAMILIES)[seed % len(FAMILIES)]
    config = {"model_type": kind, **SIZES, **FAMILIES[kind][1]}
    for i in rng.permutation(len(VALUES))[:5]:
        key = list(VALUES)[i]
        config[key] = VALUES[key][rng.integers(len(VALUES[key]))]
    if written(kind, config, tmp_path):
        assert_equal_or_refused(tmp_path, config)
