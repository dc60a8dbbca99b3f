"""GGUF files of language models load in llama.cpp: architecture, sizes, names, order of rows, tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from common import run

import heterocompute as hc
from heterocompute.files.checkpoint import quantize_checkpoint

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: one for name, one in made.FAMILIES.items()
       if name in made.IN_GGUF and not any("experts" in key for key in one[1])},
    "llama3": ("Llama", {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}}),
    "linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "gemma3": ("Gemma3", {"head_dim": 32, "sliding_window": 8, "query_pre_attn_scalar": 32, "num_hidden_layers": 6}),
    "phi3": ("Phi3", {}),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 5}),
    "exaone4": ("Exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 2}),
    "starcoder2": ("Starcoder2", {}),
    "cohere2": ("Cohere2", {"sliding_window": 8, "num_hidden_layers": 5}),
    "olmo3": ("Olmo3", {**made.FAMILIES["olmo3"][1], "num_hidden_layers": 5}),
    "glm": ("Glm", {"head_dim": 16, "eos_token_id": 2}),
    "falcon with two norms": ("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon with groups": ("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2,
                                      "num_ln_in_parallel_attn": 1}),
    "falcon with narrow layers": ("Falcon", {"ffn_hidden_size": 96, "num_key_value_heads": 1}),
    "ministral3 without temperature": ("Ministral3", {"head_dim": 16, "rope_parameters": {
        **made.FAMILIES["ministral3"][1]["rope_parameters"], "llama_4_scaling_beta": 0.0}}),
}  # fmt: skip
LATENT = {**made.LATENT, "moe_intermediate_size": 64, "kv_lora_rank": 32, "v_head_dim": 16, "n_routed_experts": 8}
SCALED = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "mscale": 0.707, "mscale_all_dim": 0.707,
          "original_max_position_embeddings": 32}  # fmt: skip
USED = {"num_experts": 4, "num_experts_per_tok": 2}
MIXTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("Mixtral", {"num_local_experts": 4, "sliding_window": None, "intermediate_size": 64}),
    "qwen3_moe": ("Qwen3Moe", {**USED, "moe_intermediate_size": 64, "norm_topk_prob": True, "head_dim": 16}),
    "qwen2_moe": ("Qwen2Moe", {**USED, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 96}),
    "olmoe": ("Olmoe", {**USED, "intermediate_size": 64, "num_key_value_heads": 4}),
    "granitemoe": ("GraniteMoe", {
        "num_local_experts": 4, "attention_multiplier": 0.25, "residual_multiplier": 0.5, "embedding_multiplier": 2.0,
        "logits_scaling": 3.0, "intermediate_size": 64}),
    "glm4_moe": ("Glm4Moe", {
        "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "head_dim": 16, "n_group": 1,
        "topk_group": 1, "routed_scaling_factor": 1.5, "use_qk_norm": True}),
    "glm4_moe without norms": ("Glm4Moe", {
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "head_dim": 16,
        "first_k_dense_replace": 1, "norm_topk_prob": False, "attention_bias": True}),
    "glm4_moe with groups": ("Glm4Moe", {**made.FAMILIES["glm4_moe"][1], "moe_intermediate_size": 64}),
    "gpt_oss": ("GptOss", {
        **made.FAMILIES["gpt_oss"][1], "intermediate_size": 64, "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4}}),
    "deepseek_v2": ("DeepseekV2", {
        **LATENT, "q_lora_rank": None, "routed_scaling_factor": 1.7, "rope_parameters": SCALED}),
    "deepseek_v3": ("DeepseekV3", {**LATENT, "q_lora_rank": 32, "n_group": 2, "topk_group": 1}),
}  # fmt: skip
PROMPTS = ("the cat sat in", "in the winter: 12 hats", "a")


def folder_of(
    path: Path, family: str, options: dict[str, Any] | None = None, kind: str | None = None
) -> tuple[Path, Any]:
    """Return a folder that transformers wrote, and its model."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    name, more = (kind, options) if kind and options is not None else {**FAMILIES, **MIXTURES}[family]
    module = f"{name}TextConfig" if name == "Gemma3" else f"{name}Config"
    config = getattr(transformers, module)(**{
        "vocab_size": len(made.vocabulary()), "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 0,
        "eos_token_id": 1, "pad_token_id": None, **more,
    })  # fmt: skip
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}{made.ENDING.get(name, 'ForCausalLM')}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
        model.get_output_embeddings().weight[2 + 94 : 2 + 256] = 0  # bytes that are not letters are never generated
    made.write_folder(path)
    (path / "model.safetensors").unlink()
    model.save_pretrained(path)
    return path, model


def completed(path: Path, prompts: tuple[str, ...]) -> list[tuple[list[int], int]]:
    """Return the 12 tokens that llama.cpp generates after each prompt, and the tokens of the prompt."""
    xllamacpp = pytest.importorskip("xllamacpp")
    options = xllamacpp.CommonParams()
    options.model.path, options.n_ctx, options.cpuparams.n_threads, options.warmup = str(path), 128, 1, False
    server, found = xllamacpp.Server(options), []
    for prompt in prompts:
        answer = server.handle_completions({"prompt": prompt, "n_predict": 12, "temperature": 0, "n_probs": 1})
        answer = json.loads(answer) if isinstance(answer, str) else answer
        said = [token["id"] for token in answer["choices"][0]["logprobs"]["content"]]
        found.append((said, answer["usage"]["prompt_tokens"]))
    return found


ARCHITECTURES = {"llama3": "llama", "linear": "llama", "mistral": "llama", "olmo3": "olmo2", "gpt_neox": "gptneox",
                 "phi": "phi2", "cohere": "command-r", "mixtral": "llama", "qwen3_moe": "qwen3moe",
                 "qwen2_moe": "qwen2moe", "glm4_moe": "glm4moe",
                 "glm4_moe without norms": "glm4moe", "gpt_oss": "gpt-oss", "glm4_moe with groups": "glm4moe",
                 "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "glm": "chatglm", "ministral3": "mistral3",
                 "falcon with two norms": "falcon", "falcon with groups": "falcon",
                 "falcon with narrow layers": "falcon", "ministral3 without temperature": "mistral3"}  # fmt: skip


@pytest.mark.sweep(every=5)
@pytest.mark.parametrize("family", [*FAMILIES, *MIXTURES])
def test_a_folder_becomes_a_file_that_llama_cpp_runs(family: str, tmp_path: Path) -> None:
    """Logits are those of transformers, and llama.cpp generates the same tokens."""
    folder, model = folder_of(tmp_path / "in", family)
    import torch

    path = tmp_path / "model.gguf"
    summary = quantize_checkpoint(folder, path, "q8_0", exclude="*", layout="gguf")
    net = hc.zoo.open_llm(path)
    assert summary["architecture"] == net.shape.options.architecture == ARCHITECTURES.get(family, family)
    ids = np.random.default_rng(0).integers(0, len(made.vocabulary()), (2, 40))
    with torch.no_grad():
        wanted = model(torch.tensor(ids)).logits.numpy()
    found = net.logits(ids)
    assert np.abs(found - wanted).max() <= 40 * np.finfo(np.float32).eps * max(np.abs(wanted).max(), 1.0)
    assert net.tokenizer.encode(made.TEXT) == hc.zoo.open_llm(folder).tokenizer.encode(made.TEXT)

    for prompt, (said, count) in zip(PROMPTS, completed(path, PROMPTS), strict=True):
        prompt_ids = net.tokenizer.encode(prompt)
        assert count == len(prompt_ids)
        for i, token in enumerate(said):  # its keys are float16, so nearly equal logits may swap
            with torch.no_grad():
                logits = model(torch.tensor([[*prompt_ids, *said[:i]]])).logits[0, -1]
            assert logits[token] > logits.max() - 0.05
            if logits[token] != logits.max():
                break


@pytest.mark.parametrize("family", ["gpt_oss", "gpt2", "qwen3_moe"])
def test_stacks_and_turned_matrices_are_rounded_along_their_rows(family: str, tmp_path: Path) -> None:
    folder, _ = folder_of(tmp_path / "in", family)
    quantize_checkpoint(folder, tmp_path / "q.gguf", "q8_0", layout="gguf")
    net, plain = hc.zoo.open_llm(tmp_path / "q.gguf"), hc.zoo.open_llm(folder)
    wanted = {role: np.asarray(plain.weights[name], np.float32) for role, name in plain.roles.items()}
    for role in [one for one in wanted if ".ffn_gate_up_exps." in one]:
        both = wanted.pop(role)
        parts = (both[:, ::2], both[:, 1::2]) if plain.shape.routing.interleaved else np.split(both, 2, axis=1)
        wanted |= {role.replace("gate_up", part): w for part, w in zip(("gate", "up"), parts, strict=True)}
    checked = 0
    for role, name in net.roles.items():
        found = net.weights[name]
        if isinstance(found, hc.QuantizedArray) and "attn_q.w" not in role and "attn_k.w" not in role:
            assert np.array_equal(found.dequantize(), hc.fake_quantize(np.ascontiguousarray(wanted[role]), "q8_0")), (
                role
            )
            checked += 1
    assert checked > 6


def test_layers_that_only_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    folder, _ = folder_of(tmp_path / "in", "glm4_moe")
    weights = {name: np.asarray(w) for name, w in hc.open_checkpoint(folder).items()}
    hc.save(folder / "model.safetensors", {**weights, "model.layers.2.eh_proj.weight": np.ones((64, 128), np.float32)})
    changed(folder / "config.json", num_nextn_predict_layers=1)
    assert quantize_checkpoint(folder, tmp_path / "m.gguf", "q8_0", layout="gguf")["architecture"] == "glm4moe"
    assert len(completed(tmp_path / "m.gguf", PROMPTS[:1])) == 1
    changed(folder / "config.json", num_nextn_predict_layers=0)
    assert quantize_checkpoint(folder, tmp_path / "m.gguf", "q8_0", layout="gguf")["architecture"] is None


def test_a_quantized_model_is_loaded(tmp_path: Path, capsys: Any) -> None:
    """Rows of blocks are reordered for llama.cpp without another rounding."""
    folder, _ = folder_of(tmp_path / "in", "llama")
    code, text, errors = run(capsys, "quantize", folder, tmp_path / "q.gguf", "--layout", "gguf", "--format", "q8_0")
    assert code == 0 and "tensors quantized" in text and "runtime" not in errors
    net, plain = hc.zoo.open_llm(tmp_path / "q.gguf"), hc.zoo.open_llm(folder)
    q, w = net.weights["blk.0.attn_q.weight"], plain.weights["model.layers.0.self_attn.q_proj.weight"]
    order = np.arange(64).reshape(4, 2, 8).swapaxes(1, 2).reshape(-1)
    assert str(q.format) == "q8_0"
    assert np.array_equal(q.dequantize(), hc.quantize(np.asarray(w), "q8_0").dequantize()[order])
    assert len(completed(tmp_path / "q.gguf", PROMPTS)) == len(PROMPTS)


def test_a_tokenizer_of_sentencepiece(tmp_path: Path) -> None:
    """Scores of pieces have the order of the merges, so that llama.cpp merges the same pairs first."""
    tokenizers = pytest.importorskip("tokenizers")
    folder, _ = folder_of(tmp_path / "in", "llama")
    letters = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    vocabulary = {text: i for i, text in enumerate(dict.fromkeys([*letters, "\u2581", *"thecainswr"]))}
    pairs = [("t", "h"), ("th", "e"), ("\u2581", "the"), ("i", "n"), ("\u2581", "c")]
    vocabulary |= {a + b: len(vocabulary) + i for i, (a, b) in enumerate(pairs)}
    config = json.loads((folder / "config.json").read_text())
    weights = dict(hc.open_checkpoint(folder))
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = np.resize(weights[name], (len(vocabulary), 64))
    hc.save(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": len(vocabulary)}))
    one = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab=vocabulary, merges=pairs, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    steps = [tokenizers.normalizers.Prepend("\u2581"), tokenizers.normalizers.Replace(" ", "\u2581")]
    one.normalizer = tokenizers.normalizers.Sequence(steps)
    one.add_special_tokens(["<s>", "</s>"])
    one.save(str(folder / "tokenizer.json"))
    quantize_checkpoint(folder, tmp_path / "s.gguf", "q8_0", exclude="*", layout="gguf")
    found = hc.zoo.open_llm(tmp_path / "s.gguf").tokenizer
    for prompt in ("the cat in the hat", "then: \u00c5 12"):
        assert found.encode(prompt) == one.encode(prompt, add_special_tokens=False).ids
        assert completed(tmp_path / "s.gguf", (prompt,))[0][1] == len(found.encode(prompt))


CHANGES = {
    "config.json is missing": lambda folder: (folder / "config.json").unlink(),
    "tokenizer.json is missing": lambda folder: (folder / "tokenizer.json").unlink(),
    "model_type is 'mamba'": lambda folder: changed(folder / "config.json", model_type="mamba"),
    "neither of bytes nor of SentencePiece": lambda folder: changed(folder / "tokenizer.json", pre_tokenizer=None),
    "model is not BPE": lambda folder: changed(folder / "tokenizer.json", model={"type": "Unigram"}),
    "rule that llama.cpp has no name for": lambda folder: changed(
        folder / "tokenizer.json", pre_tokenizer={"type": "ByteLevel", "use_regex": False}
    ),
    "has shape": lambda folder: changed(folder / "config.json", intermediate_size=32),
    "'extra.weight' has no place": lambda folder: hc.save(
        folder / "model.safetensors", {**made.weights(), "extra.weight": np.ones((2, 32), np.float32)}
    ),
}


@pytest.mark.parametrize(
    ("family", "more", "words"),
    [
        ("olmo2", {"tie_word_embeddings": True}, "needs an output of its own"),
        ("gpt_neox", {"attention_bias": False}, "needs a bias of attn_qkv"),
        ("arcee", {"mlp_bias": True}, "has no tensor blk.0.ffn_"),
        ("exaone4", {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}, "with 64 layers"),
        ("smollm3", {"no_rope_layers": [0, 1]}, "differ in unrotated"),
        ("falcon", {"parallel_attn": False}, "of the architecture falcon read the same input"),
        ("falcon", {"alibi": True}, "falcon has no biases by the distance"),
        ("qwen3_moe", {"norm_topk_prob": False}, "differ in shares_sum_to_one: False and True"),
        ("qwen3_moe", {"mlp_only_layers": [1]}, "differ in dense: .1,. and"),
        ("deepseek_v2", {"topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 1}, "differ in routing"),
        ("deepseek_v2", {"rope_parameters": {**SCALED, "mscale": 0.5}}, "differ in scale"),
        ("deepseek_v2", {"rope_parameters": {**SCALED, "mscale_all_dim": 0.0}}, "differ in scale"),
        ("deepseek_v3", {"rms_norm_eps": 1e-5}, "differ in latent"),
        ("deepseek_v3", {"rope_interleave": False}, "rotates neighbors, and this model does not"),
        ("deepseek_v3", {"n_shared_experts": 0}, "needs shared experts"),
        ("phimoe", {}, "phimoe is not written: llama.cpp computes RMS norms"),
        ("opt", {}, "opt is not written: llama.cpp does not have it"),
        ("gpt_oss", {"swiglu_limit": 5.0}, "differ in routing"),
        ("olmoe", {"num_key_value_heads": 2}, "4 heads share 2 heads of keys, which the architecture olmoe"),
    ],
)
def test_what_llama_cpp_does_not_load_is_refused(family: str, more: dict[str, Any], words: str, tmp_path: Path) -> None:
    from heterocompute.files.layouts.gguf.llama_cpp import model_in
    from heterocompute.files.opening import reader_of

    kind, usual = {**made.FAMILIES, **FAMILIES, **MIXTURES}[family]
    folder, _ = folder_of(tmp_path / "in", family, {**usual, **more, "num_hidden_layers": 2}, kind)
    with pytest.raises(ValueError, match=words):
        model_in(reader_of(str(folder)))


def changed(path: Path, **more: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


@pytest.mark.parametrize("words", CHANGES)
def test_what_no_runtime_loads_is_said_before_it_is_written(words: str, tmp_path: Path, capsys: Any) -> None:
    folder = made.write_folder(tmp_path / "in")
    CHANGES[words](folder)
    out = tmp_path / "out.gguf"
    code, _, errors = run(capsys, "quantize", folder, out, "--layout", "gguf", "--format", "q8_0")
    first = errors.splitlines()[0]  # before the progress
    assert code == 0 and "no runtime will load" in first and words in first
    with hc.open_checkpoint(out) as found:
        assert found.metadata["general.architecture"] == "none" and "model.norm.weight" in found
