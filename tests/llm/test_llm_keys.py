"""Every key of a configuration and of a GGUF file is read, harmless, or refused by name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.zoo.llm.configuration import of_config
from heterocompute.zoo.llm.shape import Rope, of_gguf

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}  # fmt: skip
KINDS = "llama mistral mixtral qwen2 qwen3 qwen3_moe phi3 gemma gemma2 gemma3_text".split()
MATTERS: list[tuple[str, Any]] = [
    ("attention_multiplier", 0.5), ("residual_multiplier", 0.2), ("logits_scaling", 8.0), ("clip_qkv", 3.0),
    ("is_causal", False), ("use_qk_norm", True), ("rope_interleaved", True), ("no_rope_layers", [0, 1]),
    ("per_layer_config", {"0": {"num_attention_heads": 2}}), ("pruned_heads", {"0": [1]}), ("a_new_key", "value"),
    ("add_cross_attention", True), ("attention_chunk_size", 8), ("alibi", True), ("a_new_switch", False),
    ("activation", "relu"), ("n_embd", 31), ("sliding_window_size", 7),
]  # fmt: skip
HARMLESS: dict[str, Any] = {
    "_name_or_path": "x/y", "architectures": ["AForCausalLM"], "torch_dtype": "bfloat16", "use_cache": True,
    "transformers_version": "4.40.1", "initializer_range": 0.02, "attention_dropout": 0.1, "pretraining_tp": 2,
    "temperature": 0.3, "max_length": 20, "a_new_key": None, "rope_interleaved": False, "is_llama_config": True,
    "transformers.js_config": {"dtype": "q4"}, "unsloth_version": "2024.9", "auto_map": {"AutoConfig": "a.B"},
    "resid_pdrop": 0.1, "output_router_logits": True, "bos_token_id": 1, "pad_token_id": None,
    "add_cross_attention": False, "residual_multiplier": 1.0, "full_attn_mod": 1, "interpolate_factor": 1,
    "lm_head_bias": False, "activation": "swiglu", "n_embd": 32, "use_sdpa": True, "num_logits_to_keep": 1,
}  # fmt: skip


def config_of(kind: str, **more: Any) -> dict[str, Any]:
    moe = {"num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True}
    return {"model_type": kind, **SIZES, **(moe if kind in ("mixtral", "qwen3_moe") else {}), **more}


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_may_matter_is_refused_by_name_in_each_family(kind: str) -> None:
    plain = of_config("", config_of(kind), 96)
    for key, value in MATTERS:
        with pytest.raises(ValueError, match=rf"{key} is .*, which is not read in the family {kind} and may change"):
            of_config("config.json", config_of(kind, **{key: value}), 96)
    assert of_config("", config_of(kind, **HARMLESS), 96) == plain


SMOL = {"rope_theta": 100000, "rope_scaling": None, "is_llama_config": True, "rope_interleaved": False}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip
LONG = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "type": "longrope"}
PUBLISHED: dict[str, dict[str, Any]] = {
    "SmolLM2": config_of("llama", **SMOL, attention_bias=False, mlp_bias=False, tie_word_embeddings=True),
    "Llama 3.1": config_of("llama", rope_scaling=LLAMA3, rope_theta=5e5, eos_token_id=[1, 8, 9]),
    "Llama 1": config_of("llama", max_sequence_length=2048, pad_token_id=0),
    "Qwen2.5": config_of("qwen2", max_window_layers=28, sliding_window=131072, use_sliding_window=False,
                         use_mrope=False),
    "Qwen2.5 1M": config_of("qwen2", dual_chunk_attention_config={"chunk_size": 262144, "local_size": 8192}),
    "Qwen3 with yarn": config_of("qwen3", rope_scaling={"rope_type": "yarn", "factor": 4.0,
                                                        "original_max_position_embeddings": 16}),
    "Mistral": config_of("mistral", sliding_window=None, rope_theta=1e6, quantization_config=None),
    "Yarn-Mistral": config_of("mistral", rope_scaling={"type": "yarn", "factor": 4.0, "finetuned": True,
                                                       "original_max_position_embeddings": 16}),
    "Mixtral": config_of("mixtral", router_aux_loss_coef=0.02, output_router_logits=False, sliding_window=None),
    "Qwen3 MoE": config_of("qwen3_moe", decoder_sparse_step=1, mlp_only_layers=[], router_aux_loss_coef=0.001),
    "DeepSeek 2 Lite": {
        **config_of("deepseek_v2", aux_loss_alpha=0.001, seq_aux=True, scoring_func="softmax", topk_method="greedy"),
        "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
        "n_group": 1, "topk_group": 1, "q_lora_rank": None, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "ep_size": 1,
        "qk_rope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "norm_topk_prob": False},
    "gpt-oss": config_of(
        "gpt_oss", num_local_experts=4, experts_per_token=2, num_experts_per_tok=2, sliding_window=8,
        initial_context_length=16, layer_types=["sliding_attention", "full_attention"]),
    "OPT": config_of("opt", activation_dropout=0.0, layerdrop=0.0, ffn_dim=48, activation_function="relu",
                     word_embed_proj_dim=32, do_layer_norm_before=True),
    "StarCoder 2": config_of(
        "starcoder2", layer_norm_epsilon=1e-5, norm_epsilon=1e-5, mlp_type="default", norm_type="layer_norm",
        scale_attention_softmax_in_fp32=True, use_bias=True, activation_function="gelu_pytorch_tanh",
        hidden_act="gelu_pytorch_tanh", attention_softmax_in_fp32=True, scale_attn_weights=True),
    "Command R7B": config_of(
        "cohere2", layer_switch=4, sliding_window_pattern=4, order_of_interleaved_layers="local_attn_first",
        position_embedding_type="rope_gptj", rotary_pct=1.0, use_embedding_sharing=True, use_gated_activation=True,
        use_parallel_block=True, use_parallel_embedding=True, logit_scale=0.25, sliding_window=16),
    "Phi-3": config_of("phi3", embd_pdrop=0.0, resid_pdrop=0.0, sliding_window=2047, rope_scaling=None,
                       original_max_position_embeddings=4096, attention_bias=False, auto_map={"AutoConfig": "c.P"}),
    "Phi-4-mini": config_of("phi3", full_attn_mod=1, interpolate_factor=1, lm_head_bias=False, mlp_bias=False,
                            rope_scaling=LONG, original_max_position_embeddings=16),
    "Gemma": config_of("gemma", hidden_act="gelu", hidden_activation=None),
    "Falcon 3": config_of("llama", activation="swiglu", rope_theta=1000042, attention_bias=False, mlp_bias=False),
    "Gemma 2 9B": config_of("gemma2", sliding_window=4096, sliding_window_size=4096),
    "Gemma 2": config_of("gemma2", cache_implementation="hybrid", hidden_act="gelu_pytorch_tanh",
                         hidden_activation="gelu_pytorch_tanh", final_logit_softcapping=30.0),
    "Gemma 3": config_of("gemma3_text", rope_local_base_freq=10000, sliding_window_pattern=6, rope_theta=1e6,
                         _sliding_window_pattern=6, attn_logit_softcapping=None, final_logit_softcapping=None,
                         use_bidirectional_attention=False, rope_scaling={"factor": 8.0, "rope_type": "linear"}),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_are_read(name: str) -> None:
    assert of_config("", {**PUBLISHED[name], "vocab_size": 96, "use_cache": True}, 96).layers == 2


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("llama", {"vocab_size": 95}, "vocab_size is 95, expected 96, the rows of the embedding"),
        ("llama", {"num_experts": 4}, "num_experts is 4, expected none in the family llama"),
        ("llama", {"rope_scaling": {"factor": 4.0}}, "rope_scaling has factor 4.0, which does not apply to the rope"),
        ("llama", {"rope_scaling": {"rope_type": "linear"}}, "the key 'factor' is missing"),
        ("llama", {"rope_scaling": {**LLAMA3, "beta": 2}}, "rope_scaling has beta 2, which does not apply"),
        ("llama", {"rope_parameters": {"full_attention": {}}}, "has full_attention {}, which does not apply"),
        ("llama", {"rope_scaling": {"rope_type": "proportional"}}, "rope_type is 'proportional', expected one of"),
        ("phi3", {"rope_scaling": {"rope_type": "linear", "factor": 2}}, "expected one of default, longrope"),
        ("gemma3_text", {"rope_parameters": {"rope_theta": 5.0}}, "expected full_attention and sliding_attention"),
        ("gemma3_text", {"attn_logit_softcapping": 5.0}, "attn_logit_softcapping is 5, which is not read"),
        ("gemma2", {"sliding_window": None}, "sliding_window is null, expected a number"),
        ("gemma2", {"final_logit_softcapping": 0.0}, "final_logit_softcapping is 0.0, expected a number"),
        ("qwen2", {"layer_types": ["sliding_attention"] * 2}, "sliding_window is null, expected a number"),
        ("qwen2", {"layer_types": [{}, ["full_attention"]]}, "layer_types is .*, expected 2 times full_attention"),
        ("mistral", {"layer_types": ["full_attention"] * 2}, "expected 2 times sliding_attention in the family"),
        ("qwen3_moe", {"num_local_experts": 8}, "num_local_experts and num_experts are 8 and 4, expected one number"),
        ("llama", {"attention_bias": 1}, "attention_bias is 1, expected true or false"),
        ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 32,
                                    "original_max_position_embeddings": 9999}}, "leave no ramp between them"),
    ],
)  # fmt: skip
def test_values_that_are_not_read_are_refused(kind: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        of_config("config.json", config_of(kind, **more), 96)


def test_a_network_with_pictures_is_read_by_its_text_config() -> None:
    pictures = {"image_token_index": 9, "projector_hidden_act": "gelu", "vision_feature_layer": -2}
    inner = config_of("llama")
    assert of_config("", {"model_type": "llava", "text_config": inner, **pictures}, 96) == of_config("", inner, 96)
    with pytest.raises(ValueError, match="text_config is .*, which is not read in the family llama"):
        of_config("", {**inner, "text_config": {"hidden_size": 64}}, 96)
    three = {"model_type": "gemma3", "text_config": config_of("gemma3_text", final_logit_softcapping=3.0)}
    with pytest.raises(ValueError, match="final_logit_softcapping is 3, which transformers does not apply"):
        of_config("", three, 96)


def rope(kind: str = "llama", **more: Any) -> Rope:
    return of_config("", config_of(kind, **more), 96).rope


def test_parameters_of_rope_have_the_order_of_transformers() -> None:
    """modeling_rope_utils.py: rope_scaling before rope_parameters, the length outside before the length inside."""
    new, old = {"rope_type": "linear", "factor": 2.0, "rope_theta": 7.0}, {"type": "linear", "factor": 4.0}
    assert rope(rope_parameters=new, rope_theta=9.0) == Rope(7.0, 8, scaling="linear", factor=2.0)
    assert rope(rope_parameters=new, rope_scaling=old, rope_theta=9.0) == Rope(9.0, 8, scaling="linear", factor=4.0)
    assert rope(rope_scaling=LLAMA3, original_max_position_embeddings=32).original == 32
    assert rope(rope_scaling={"rope_type": "dynamic", "factor": 3.0}) == rope()  # up to the context
    long = {**LONG, "original_max_position_embeddings": 16}
    assert rope(rope_scaling=long).amplitude == math.sqrt(1 + math.log(4) / math.log(16))
    assert rope(rope_scaling={**long, "factor": 2.0}).amplitude == math.sqrt(1 + math.log(2) / math.log(16))
    assert rope(rope_scaling={**long, "factor": 2.0, "attention_factor": 1.5}).amplitude == 1.5
    assert rope(rope_scaling=LONG).amplitude == 1  # the length is that of the context
    early = rope("phi3", rope_scaling={**LONG, "type": "su"}, original_max_position_embeddings=16)
    assert early == rope("phi3", rope_scaling=LONG, original_max_position_embeddings=16)
    kinds = {"sliding_attention": {"rope_theta": 5.0}, "full_attention": {"rope_type": "linear", "factor": 3.0}}
    shape = of_config("", config_of("gemma3_text", rope_parameters=kinds, rope_theta=9.0), 96)
    assert (shape.rope.base, shape.rope.factor, shape.local_rope.base) == (9.0, 3.0, 5.0)


def gguf(architecture: str = "llama", **keys: Any) -> Any:
    given = {key.removeprefix("llama."): value for key, value in made.gguf_keys().items() if key.startswith("llama.")}
    given |= {key.replace("__", "."): value for key, value in keys.items()}
    found = {f"{architecture}.{key}": str(value) for key, value in given.items() if value is not None}
    return of_gguf("m.gguf", {"general.architecture": architecture, **found}, 264, False)


def test_scaling_of_a_gguf_file_is_that_of_llama_cpp() -> None:
    """llama.cpp, src/llama-model.cpp: linear without a type, an old name of the factor, a factor of every amplitude."""
    plain, divided = gguf().rope.frequencies(), gguf(rope__scaling__factor=4.0).rope.frequencies()
    assert np.array_equal(divided, plain / 4)
    for keys in ({"rope__scale_linear": 4.0}, {"rope__scaling__factor": 4.0, "rope__scaling__type": "longrope"},
                 {"rope__scaling__factor": 4.0, "rope__scale_linear": 9.0}):  # fmt: skip
        assert np.array_equal(gguf(**keys).rope.frequencies(), divided)
    for keys in ({"rope__scaling__factor": 0.0}, {"rope__scaling__factor": 4.0, "rope__scaling__type": "none"}):
        assert np.array_equal(gguf(**keys).rope.frequencies(), plain)
    assert gguf(rope__scaling__attn_factor=1.5).rope.amplitude == 1.5
    yarn = gguf(rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__attn_factor=2.0)
    assert yarn.rope.amplitude == 2 * (1 + 0.1 * math.log(4))
    three = gguf("gemma3", rope__freq_base_swa=50.0, rope__scaling__factor=8.0, attention__sliding_window=4)
    assert (three.rope.factor, three.local_rope.base, three.local_rope.factor) == (8.0, 50.0, 1.0)
    assert gguf("gemma3", attention__sliding_window=4).local_rope.base == 1e4
    two = gguf("gemma2", rope__freq_base_swa=50.0, rope__scaling__factor=8.0)
    assert (two.rope.base, two.local_rope.base, two.local_rope.factor) == (1e4, 50.0, 8.0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention.scale", 0.7), ("attn_logit_softcapping", 30.0), ("final_logit_softcapping", 30.0),
        ("rope.freq_base_swa", 50.0), ("attention.causal", False), ("logit_scale", 0.5), ("residual_scale", 2.0),
        ("attention.max_alibi_bias", 8.0), ("expert_weights_norm", False), ("expert_gating_func", 2),
        ("rope.scaling.yarn_ext_factor", 1.0), ("rope.scaling.yarn_log_multiplier", 0.1), ("a.new.key", 1),
        ("rope.scaling.yarn_attn_factor", 1.5), ("rope.scaling.yarn_beta_fast", 16.0),
        ("rope.dimension_count_swa", 8), ("nextn_predict_layers", 1), ("attention.shared_kv_layers", 2),
        ("rope.scaling.type", "ntk"), ("rope.dimension_sections", [4, 4]), ("rope.freq_base", [1e4, 1e4]),
    ],
)  # fmt: skip
def test_keys_of_gguf_that_may_matter_are_refused_by_name(key: str, value: Any, tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", keys={f"llama.{key}": value})
    with pytest.raises(ValueError, match=rf"llama\.{key} is "):
        hc.zoo.open_llm(path)


def test_keys_of_gguf_that_change_nothing_are_accepted(tmp_path: Path) -> None:
    more = {"general.name": "a", "general.sampling.temp": 0.5, "phi3.rope.freq_base": 3.0, "quantize.imatrix.file": "b",
            "llama.attention.causal": True, "llama.expert_weights_scale": 1.0, "llama.logit_scale": 0.0,
            "llama.rope.scaling.finetuned": True, "llama.rope.freq_base_swa": 10000.0, "llama.expert_shared_count": 0,
            "llama.attention.scale": 16**-0.5, "llama.attention.layer_norm_epsilon": 1e-5}  # fmt: skip
    path = made.write_gguf(tmp_path / "m.gguf", keys=more)
    plain = made.write_gguf(tmp_path / "plain.gguf")
    assert np.array_equal(hc.zoo.open_llm(path).logits([3, 4]), hc.zoo.open_llm(plain).logits([3, 4]))


ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {}), "roberta": ("Roberta", {"pad_token_id": 1}),
    "xlm-roberta": ("XLMRoberta", {"pad_token_id": 1}),
    "modernbert": ("ModernBert", {"local_attention": 8}), "nomic_bert": ("NomicBert", {}),
}  # fmt: skip
BY_TENSORS = ("tie_word_embeddings",)  # whether the output is the embedding is seen in the file
OF_PROGRAM = ("dtype", "model_type", "architectures", "transformers_version", "quantization_config")


def other_values(value: Any) -> list[Any]:
    """Return values of a key that differ from a given one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 2 * value + 2]
    if isinstance(value, float):
        return [1.5 * value + 0.25]
    if isinstance(value, str):
        return ["relu", "other"]
    return [True, 1, 0.5] if value is None else []


@pytest.mark.sweep(every=5)
@pytest.mark.parametrize("family", [*made.FAMILIES, *ENCODERS])
def test_a_key_of_transformers_is_read_or_refused_or_changes_nothing(family: str) -> None:
    """Each key of a configuration class gets other values; where the shape stays, so do the results of transformers."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    encoder = family in ENCODERS
    name, options = ENCODERS[family] if encoder else made.FAMILIES[family]
    kind = getattr(transformers, f"{name}TextConfig" if name == "Gemma3" else f"{name}Config")
    network = getattr(transformers, f"{name}{'Model' if encoder else made.ENDING.get(name, 'ForCausalLM')}")
    config = kind(**{
        "vocab_size": 40, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
        "num_hidden_layers": len(options.get("layer_types", [0, 1])), "max_position_embeddings": 64, "bos_token_id": 0,
        "eos_token_id": 1, "pad_token_id": 1 if encoder else None, **({} if encoder else {"num_key_value_heads": 2}),
        **options,
    })  # fmt: skip
    ids = torch.tensor(np.random.default_rng(0).integers(2, 40, (1, 24)))

    def made_of(config: Any, state: Any = None) -> Any:
        config._attn_implementation = "eager"
        model = network(config).eval()
        if state is None:
            torch.manual_seed(0)
            state = {key: torch.randn_like(w) * 0.2 if w.is_floating_point() else w
                     for key, w in model.state_dict().items()}  # fmt: skip
        model.load_state_dict(state)
        with torch.no_grad():
            return model, getattr(model(ids), "last_hidden_state" if encoder else "logits")

    model, wanted = made_of(config)
    given = json.loads(config.to_json_string(use_diff=False))
    plain, checked = of_config("", given, 40, encoder), 0
    for key in given.keys() - {*BY_TENSORS, *OF_PROGRAM}:
        for value in other_values(given[key]):
            try:
                if of_config("", {**given, key: value}, 40, encoder) != plain:
                    continue
            except ValueError:
                continue
            other = {**given, key: value}
            try:
                found = made_of(kind(**{one: other[one] for one in other.keys() - {*OF_PROGRAM}}), model.state_dict())[
                    1
                ]
            except Exception:  # transformers refuses the value, or has other tensors
                continue
            checked += 1
            apart = (found - wanted).abs().max() / wanted.abs().max()  # parts of a matrix round otherwise
            assert apart < 1e-6, f"{key} = {value!r} instead of {given[key]!r} changes {family}"
    assert checked > 5
