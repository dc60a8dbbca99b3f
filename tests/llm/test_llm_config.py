"""Options of configurations have the meaning of transformers and llama.cpp, or are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.families.keys import Keys
from heterocompute.families.kind import Kind
from heterocompute.families.known import check_config
from heterocompute.families.record import LAYER, Family
from heterocompute.families.table import FAMILIES, KINDS, MODULES, RUN, RUN_KINDS
from heterocompute.hardware.network.language import decoder_of_config
from heterocompute.zoo.llm.configuration import of_config

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.1], "long_factor": [2.0, 3.0]}
NESTED = {"sliding_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 30.0},
          "full_attention": {"rope_type": "default", "rope_theta": 2e3}}  # fmt: skip
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "biases of the feed-forward part": ("Llama", {"mlp_bias": True}),
    "biases of attention": ("Llama", {"attention_bias": True}),
    "a window that llama does not have": ("Llama", {"sliding_window": 5}),
    "caps that llama does not have": ("Llama", {"attn_logit_softcapping": 1.0, "query_pre_attn_scalar": 3}),
    "yarn's two scales": ("Llama", {"rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3}}),
    "yarn between whole pairs": ("Llama", {"head_dim": 16, "rope_parameters": {
        **YARN, "truncate": False, "beta_fast": 4.0, "original_max_position_embeddings": 512}}),
    "shares of all experts": ("Qwen3Moe", {**MOE, "norm_topk_prob": False}),
    "yarn by the contexts": ("Llama", {"rope_parameters": {**YARN, "factor": None}}),
    "kinds that mistral ignores": ("Mistral", {"sliding_window": 5, "layer_types": ["sliding_attention"] * 4}),
    "a window that is off": ("Qwen2", {"sliding_window": 5}),
    "a window in late layers": ("Qwen2", {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 2}),
    "a window in every layer": ("Qwen3Moe", {**MOE, "sliding_window": 5, "use_sliding_window": True}),
    "a part of each head": ("Phi3", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
    "factors of a part": ("Phi3", {"rope_parameters": {**LONG, "partial_rotary_factor": 0.5},
                                   "original_max_position_embeddings": 16}),
    "scaling of local layers": ("Gemma3", {"sliding_window": 5, "rope_parameters": NESTED}),
    "no caps": ("Gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
}  # fmt: skip


@pytest.mark.sweep(every=5)
@pytest.mark.parametrize("case", OPTIONS)
def test_options_mean_what_they_mean_in_transformers(case: str, tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    name, more = OPTIONS[case]
    given = {
        "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 1,
        "pad_token_id": 2, **json.loads(json.dumps(more)),
    }  # fmt: skip
    config = getattr(transformers, f"{name}TextConfig" if name == "Gemma3" else f"{name}Config")(**given)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    ids = np.random.default_rng(0).integers(3, 96, (1, 30))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
        wanted = model(torch.tensor(ids)).logits.numpy()
    model.save_pretrained(tmp_path)
    bound = 40 * np.finfo(np.float32).eps * max(np.abs(wanted).max(), 1.0)  # as in test_llm_network.py
    written = (tmp_path / "config.json").read_text()
    assert np.abs(hc.zoo.open_llm(tmp_path).logits(ids) - wanted).max() <= bound
    # A published configuration, in which keys with default values are missing.
    (tmp_path / "config.json").write_text(json.dumps({**more, **_sizes(json.loads(written))}))
    assert np.abs(hc.zoo.open_llm(tmp_path).logits(ids) - wanted).max() <= bound


def _sizes(config: dict[str, Any]) -> dict[str, Any]:
    sizes = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
             "num_key_value_heads", "head_dim", "max_position_embeddings", "model_type")  # fmt: skip
    return {key: config[key] for key in sizes if key in config}


def test_keys_that_official_files_leave_out() -> None:
    inner = {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
             "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}  # fmt: skip
    shape = of_config("config.json", {"model_type": "gemma3", "text_config": inner}, 262208)  # of Gemma 3 4B
    assert (shape.heads, shape.kv_heads, shape.head_width, shape.context) == (8, 4, 256, 131072)
    assert (shape.rope.base, shape.rope.factor, shape.local_rope.base, shape.local_rope.factor) == (1e6, 8.0, 1e4, 1.0)
    assert shape.scale == 256**-0.5 and shape.windows[:6] == (1024,) * 5 + (None,)
    mixtral = {**made.CONFIG, "model_type": "mixtral", "num_local_experts": 2}
    del mixtral["rope_theta"], mixtral["rms_norm_eps"]
    shape = of_config("config.json", mixtral, 264)
    assert (shape.rope.base, shape.epsilon) == (1e6, 1e-5)


def test_windows_of_layers_by_kind_and_by_number() -> None:
    qwen = {**made.CONFIG, "model_type": "qwen2", "num_hidden_layers": 4, "sliding_window": 8}
    assert of_config("", qwen, 264).windows == (None,) * 4
    qwen["use_sliding_window"] = True
    assert of_config("", {**qwen, "max_window_layers": 3}, 264).windows == (None, None, None, 8)
    kinds = ["sliding_attention", "full_attention"] * 2
    assert of_config("", {**qwen, "layer_types": kinds}, 264).windows == (8, None) * 2
    for wrong in (kinds[:3], ["chunked_attention"] * 4, "full_attention"):
        with pytest.raises(ValueError, match=r"layer_types is .*, expected 4 times full_attention or sliding_atten"):
            of_config("", {**qwen, "layer_types": wrong}, 264)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"hidden_act": "tanh"}, "hidden_act is 'tanh', expected one of silu, swish, gelu_pytorch_tanh, gelu_new"),
        ({"hidden_activation": "gelu"}, "hidden_activation is 'gelu', which is not read in the family llama"),
        ({"model_type": "gemma2", "hidden_activation": "gelu"}, "hidden_activation is 'gelu', expected gelu_pytorch"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention is set"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, expected 1 in the family"),
        ({"model_type": "qwen3_moe", **MOE, "norm_topk_prob": 1}, "norm_topk_prob is 1, expected true"),
    ],
)
def test_options_that_change_the_network_are_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        of_config("config.json", {**made.CONFIG, **more}, 264)


def test_tensors_that_would_not_be_read_are_refused(tmp_path: Path) -> None:
    for name, w in (("blk.0.attn_norm.bias", np.ones(64)), ("blk.0.attn_sinks.weight", np.ones(4)),
                    ("blk.2.attn_norm.weight", np.ones(64))):  # fmt: skip
        path = made.write_gguf(tmp_path / "m.gguf", **{name.replace(".", "__"): w.astype(np.float32)})
        with pytest.raises(ValueError, match=f"tensor '{name}' is not part of the family llama with 2 layers"):
            hc.zoo.open_llm(path)
    folder = made.write_folder(tmp_path / "f")
    more = {"model.layers.1.self_attn.sinks.weight": np.ones(4, np.float32)}
    hc.save(folder / "model.safetensors", {**made.weights(), **more})
    with pytest.raises(ValueError, match="tensor .*sinks.weight. is not part of the family llama"):
        hc.zoo.open_llm(folder)
    others = {"model.layers.1.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32),
              "vision_tower.encoder.layers.0.fc1.weight": np.ones((2, 2), np.float32)}  # fmt: skip
    hc.save(folder / "model.safetensors", {**made.weights(), **others})
    assert np.array_equal(hc.zoo.open_llm(folder).logits([3]), hc.zoo.open_llm(made.write_folder(folder)).logits([3]))


PHI3 = {"general.architecture": "phi3"} | {
    key.replace("llama.", "phi3."): value for key, value in made.gguf_keys().items() if key.startswith("llama.")
}


def phi3(path: Path, keys: dict[str, Any], **tensors: Any) -> Path:
    """Write a GGUF file of Phi-3: q, k and v are one matrix, gate and up another."""
    held = made.gguf_tensors()
    for i in range(2):
        at = f"blk.{i}."
        held[f"{at}attn_qkv.weight"] = np.concatenate([held.pop(f"{at}attn_{part}.weight") for part in "qkv"])
        parts = [held.pop(f"{at}ffn_{part}.weight") for part in ("gate", "up")]
        held[f"{at}ffn_up.weight"] = np.concatenate(parts)
    hc.save_gguf(path, {**held, **tensors}, {**PHI3, **keys}, {"*": "f32"})
    return path


def test_divisors_of_phi3_are_read_from_gguf(tmp_path: Path) -> None:
    short, long = np.linspace(1, 2, 8, dtype=np.float32), np.linspace(2, 9, 8, dtype=np.float32)
    keys = {"phi3.rope.scaling.original_context_length": 16, "phi3.rope.scaling.attn_factor": 1.25}
    ids = list(range(2, 32))
    names = {"rope_factors_short.weight": short, "rope_factors_long.weight": long}
    net = hc.zoo.open_llm(phi3(tmp_path / "m.gguf", keys, **names))
    assert (net.shape.rope.original, net.shape.rope.amplitude) == (16.0, 1.25)
    assert net.shape.long_rope is not None and np.allclose(net.shape.long_rope.factors, long)
    # The folder of the same network says the same in its own words.
    config = {
        **made.CONFIG, "model_type": "phi3", "original_max_position_embeddings": 16,
        "rope_scaling": {"rope_type": "longrope", "short_factor": short.tolist(), "long_factor": long.tolist(),
                         "attention_factor": 1.25},
    }  # fmt: skip
    (folder := tmp_path / "f").mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    hf = {"token_embd.weight": "model.embed_tokens", "output_norm.weight": "model.norm"}
    parts = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_qkv": "self_attn.qkv_proj",
             "attn_output": "self_attn.o_proj", "ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"}  # fmt: skip
    hf |= {f"blk.{i}.{a}.weight": f"model.layers.{i}.{b}" for i in range(2) for a, b in parts.items()}
    hc.save(folder / "model.safetensors", {f"{b}.weight": net.weights[a] for a, b in hf.items()})
    for n in (10, 30):  # before and after 16 tokens
        assert np.array_equal(net.logits(ids[:n]), hc.zoo.open_llm(folder).logits(ids[:n]))
    with pytest.raises(ValueError, match="only one of the tensors rope_factors_short.weight and rope_factors_long"):
        hc.zoo.open_llm(phi3(tmp_path / "m.gguf", keys, **{"rope_factors_long.weight": long}))
    with pytest.raises(ValueError, match="rope_factors_short.weight is .*, expected 8 numbers above 0"):
        hc.zoo.open_llm(phi3(tmp_path / "m.gguf", keys, **{**names, "rope_factors_short.weight": 0 * short}))


@pytest.mark.parametrize(("family", "layers"), [("gemma2", 46), ("gemma3", 62)])
def test_the_largest_gemma_scales_by_its_width(family: str, layers: int) -> None:
    from heterocompute.zoo.llm.shape import of_gguf

    keys = {f"{family}.{key.removeprefix('llama.')}": str(value) for key, value in made.gguf_keys().items()}
    keys = {key: value for key, value in keys.items() if key.split(".")[1] not in ("general", "tokenizer")}
    keys |= {"general.architecture": family, f"{family}.attention.key_length": "8"}
    keys |= {f"{family}.rope.dimension_count": "8", f"{family}.attention.sliding_window": "4"}
    for count, width in ((layers, 64 // 4), (2, 8)):  # llama.cpp, src/models/: by the number of layers
        shape = of_gguf("", {**keys, f"{family}.block_count": str(count)}, 264, False)
        assert shape.scale == width**-0.5
    del keys[f"{family}.attention.sliding_window"]
    shape = of_gguf("", {**keys, f"{family}.block_count": "2"}, 264, False)
    assert shape.windows[0] == (4096 if family == "gemma2" else None)
    flags = {f"{family}.attention.sliding_window_pattern": np.array([False, True])}
    keys |= {f"{family}.attention.sliding_window": "4", f"{family}.block_count": "2"}
    assert of_gguf("", keys, 264, False, flags.get).windows == (None, 4)


def test_lists_of_sizes_are_refused(tmp_path: Path) -> None:
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        path = made.write_gguf(tmp_path / "m.gguf", keys={f"llama.{key}": [4, 4]})
        with pytest.raises(ValueError, match=f"llama.{key} is a list, expected one number"):
            hc.zoo.open_llm(path)


# Records of families.

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 64}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
LATENT = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 16, "v_head_dim": 8}


def test_names_are_unique_and_tensors_known() -> None:
    kinds = [kind.name for family in FAMILIES.values() for kind in family.kinds]
    assert len(set(kinds)) == len(kinds) == len(KINDS) and len(set(MODULES)) == len(MODULES)
    for family in FAMILIES.values():
        assert family.parts >= set(family.biases) or not family.runs, family.name
        assert set(family.gguf) <= {*LAYER, *family.layer}, family.name


@pytest.mark.parametrize("kind", RUN_KINDS)
def test_networks_and_counts_read_the_same_sizes(kind: str) -> None:
    config: dict[str, Any] = {"model_type": kind, **SIZES, **(EXPERTS if KINDS[kind][1].experts else {})}
    config |= LATENT if KINDS[kind][0].is_latent else {}
    shape, decoder = of_config("c", config, 100), decoder_of_config("c", config, "m")
    for size in ("head_width", "kv_heads", "hidden", "context", "windows", "experts", "experts_used", "expert_hidden"):
        assert getattr(shape, size) == getattr(decoder, size), size
    assert shape.biases == decoder.biases
    assert shape.head_width == KINDS[kind][1].defaults.get("head_dim", 16)


def test_a_key_of_one_kind_stays_refused_in_others() -> None:
    config = {"embedding_multiplier": 2}
    check_config(Keys("c", config), config, Kind("granite", reads=("embedding_multiplier",)))
    with pytest.raises(ValueError, match="embedding_multiplier is 2, which is not read in the family llama"):
        check_config(Keys("c", config), config, KINDS["llama"][1])


def test_counts_refuse_a_window_without_a_size() -> None:
    with pytest.raises(ValueError, match="sliding_window is null, expected a number"):
        decoder_of_config("c", {"model_type": "gemma2", **SIZES, "sliding_window": None}, "m")


# The table of families in docs/llm.md.

PAGE = Path(__file__).parents[2] / "docs" / "llm.md"
HEAD = "| Hugging Face `model_type` | GGUF `general.architecture` | block |"


def block_of(family: Family) -> str:
    """Return what differs from the block of Llama."""
    experts = [kind.experts for kind in family.kinds if kind.experts is not None]
    parts = {
        "latents": family.is_latent,
        "layer norms": family.centered,
        "norms after": family.post_norms and not family.pre_norms,
        "norms before and after": family.post_norms and family.pre_norms,
        "norms of queries and keys": bool(family.qk_norm),
        "parallel parts": family.parallel == "always",
        "parallel parts by a flag": family.parallel not in ("", "always"),
        "no gate": not family.is_gated,
        family.activation.replace("gelu_erf", "exact gelu"): family.activation != "silu",
        "fused matrices": bool(family.fused),
        "learned positions": family.learned_positions,
        "biases by the distance": family.alibi == "always",
        "biases by the distance or RoPE": family.alibi not in ("", "always"),
        "layers without RoPE": bool(family.unrotated),
        "partial RoPE": family.share < 1,
        "windows": any(kind.windows is not None for kind in family.kinds),
        "caps": bool(family.caps),
        "sinks": family.sinks,
        "factors": any(kind.factors for kind in family.kinds),
        "experts": bool(experts),
        "shared experts": any(one.shared for one in experts),
        "sigmoid router": any(one.router == "sigmoid" for one in experts),
    }
    return ", ".join(name for name, has in parts.items() if has) or "that of Llama"


def rows() -> list[str]:
    found = []
    for family in (one for one in RUN.values() if one.kinds):
        kinds = ", ".join(f"`{kind.name}`" for kind in family.kinds)
        found.append(f"| {kinds} | {f'`{family.architecture}`' if not family.no_gguf else ''} | {block_of(family)} |")
    return found


def test_the_page_lists_the_families_of_the_records() -> None:
    wanted = "\n".join([HEAD, "|---|---|---|", *rows()])
    assert wanted in PAGE.read_text(), f"replace the table of {PAGE.name} by\n{wanted}"


def test_every_family_that_runs_has_a_small_model() -> None:
    assert {*RUN_KINDS} - {*made.FAMILIES} == {"gemma3_text"}  # the model of gemma3
