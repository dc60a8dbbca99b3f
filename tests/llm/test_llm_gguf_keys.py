"""Every option of a configuration is a key or tensor of the GGUF file, or the model is refused by name; and back."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from common import run

import heterocompute as hc
from heterocompute.files.checkpoint import dequantize_checkpoint, quantize_checkpoint
from heterocompute.files.layouts.gguf.sizes import described
from heterocompute.zoo.llm.configuration import of_config

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")

SHORT, LONG = [1.0 + 0.1 * i for i in range(8)], [2.0 + i for i in range(8)]
LONGROPE = {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG}
ORIGINAL = {"original_max_position_embeddings": 32}
LONG_ROPE = {**LONGROPE, **ORIGINAL}
YARN = {"rope_type": "yarn", "factor": 4.0, **ORIGINAL}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}  # fmt: skip
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8, "num_hidden_layers": 4}
GLOBAL, LOCAL = "full_attention", "sliding_attention"


def keys_of(kind: str, roles: tuple[str, ...] = (), **more: Any) -> tuple[dict[str, Any], Any]:
    """Return the keys without the architecture, and the description, of a configuration."""
    config = {**made.CONFIG, "model_type": kind, **more}
    found = described(of_config("config.json", config, 100), dict.fromkeys(roles, ""))
    return {key.split(".", 1)[1]: value for key, value in found.keys.items()}, found


def test_longrope_has_tensors_of_factors_and_says_its_amplitude() -> None:
    keys, found = keys_of("phi3", rope_scaling=LONGROPE, original_max_position_embeddings=64)
    assert found.tensors["rope_factors_short.weight"].tolist() == pytest.approx(SHORT)
    assert found.tensors["rope_factors_long.weight"].tolist() == pytest.approx(LONG)
    assert keys["rope.scaling.original_context_length"] == 64
    assert keys["rope.scaling.attn_factor"] == pytest.approx((1 + np.log(2) / np.log(64)) ** 0.5)
    assert "more than 64 tokens" in found.notes[0]


def test_yarn_says_an_attention_factor_that_is_not_its_own() -> None:
    assert "rope.scaling.attn_factor" not in keys_of("qwen2", rope_scaling=YARN)[0]
    found = keys_of("qwen2", rope_scaling={**YARN, "attention_factor": 1.5})[0]
    assert found["rope.scaling.attn_factor"] == pytest.approx(1.5 / (1 + 0.1 * np.log(4)))


def test_windows_of_layers_are_a_period_or_flags() -> None:
    found = keys_of("gemma2", **GEMMA)[0]
    assert found["attention.sliding_window"] == 8 and "attention.sliding_window_pattern" not in found
    for kinds, pattern in (
        ([LOCAL, LOCAL, GLOBAL, LOCAL], 3),
        ([LOCAL] * 4, 0),
        ([GLOBAL, LOCAL] * 2, [False, True] * 2),
    ):
        found = keys_of("gemma2", **GEMMA, layer_types=kinds)[0]
        assert found["attention.sliding_window_pattern"] == pattern


def test_a_window_that_llama_cpp_lacks_shortens_the_context_or_is_said() -> None:
    keys, found = keys_of("mistral", sliding_window=48)
    assert keys["context_length"] == 48 and "no sliding window in llama" in found.notes[0]
    keys, found = keys_of("phi3", sliding_window=48)
    assert keys["context_length"] == 128 and keys["attention.sliding_window"] == 48
    assert "differs after 48 tokens" in found.notes[0]
    assert keys_of("mistral", sliding_window=128)[1].notes == ()


REFUSED: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "logit_cap: none and 30": ("gemma2", (), {**GEMMA, "final_logit_softcapping": None}),
    "attention_cap: none and 50": ("gemma2", (), {**GEMMA, "attn_logit_softcapping": None}),
    "scale: 0.204124 and 0.25": ("gemma2", (), {**GEMMA, "query_pre_attn_scalar": 24}),
    "scale: 0.25 and 0.176777": ("gemma3_text", (), {**GEMMA, "head_dim": 32}),
    "gemma has no tensor blk.0.attn_output.bias": ("gemma", ("blk.0.attn_output.bias",), {"head_dim": 16}),
    "qwen3 has no tensor blk.1.attn_output.bias": ("qwen3", ("blk.1.attn_output.bias",), {"head_dim": 16}),
    "llama has no tensor blk.0.attn_qkv.weight": ("llama", ("blk.0.attn_qkv.weight",), {}),
    "the output of the architecture gemma is the embedding": ("gemma", ("output.weight",), {"head_dim": 16}),
    "4 heads of 32 values": ("qwen2", (), {"head_dim": 32}),
    "qwen2 has no divisors": ("qwen2", (), {"rope_scaling": LLAMA3}),
    "qwen3 has no factors of longrope": ("qwen3", (), {"head_dim": 16, "rope_scaling": LONG_ROPE}),
    "does not read beta_slow 2 and beta_fast 32": ("llama", (), {"rope_scaling": {**YARN, "beta_slow": 2.0}}),
    "by attention_factor, too": ("gemma3_text", (), {**GEMMA, "num_hidden_layers": 6, "rope_parameters": {
        GLOBAL: {**YARN, "attention_factor": 1.5}, LOCAL: {"rope_type": "default"}}}),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_an_option_without_a_key_is_refused_by_name(words: str) -> None:
    kind, roles, more = REFUSED[words]
    with pytest.raises(ValueError, match=words):
        keys_of(kind, roles, **more)


# From GGUF to a folder.

IDS = np.random.default_rng(0).integers(2, 258, 40)


def back(path: Path, folder: Path) -> tuple[dict[str, Any], float]:
    """Return config.json of the converted file, and the difference of its logits from those of the file."""
    hc.convert_checkpoint(path, folder, "mlx")
    wanted = hc.zoo.open_llm(path).logits(IDS)
    difference = np.abs(hc.zoo.open_llm(folder).logits(IDS) - wanted).max() / np.abs(wanted).max()
    return json.loads((folder / "config.json").read_text()), float(difference)


def biases(**rows: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    return {f"blk__{i}__{name}__bias": rng.standard_normal(n).astype(np.float32)
            for i in range(2) for name, n in rows.items()}  # fmt: skip


ATTENTION = {"attn_q": 64, "attn_k": 32, "attn_v": 32, "attn_output": 64}
MLP = {"ffn_gate": 96, "ffn_up": 96, "ffn_down": 64}


def test_biases_are_keys_of_the_configuration(tmp_path: Path) -> None:
    for rows, wanted in (({}, (False, False)), (ATTENTION, (True, False)), ({**ATTENTION, **MLP}, (True, True))):
        path = made.write_gguf(tmp_path / "m.gguf", "q8_0", **biases(**rows))
        config, difference = back(path, tmp_path / f"out{len(rows)}")
        assert (config["attention_bias"], config["mlp_bias"]) == wanted and difference < 1e-5


def test_biases_that_no_configuration_names_keep_the_names_of_gguf(tmp_path: Path, capsys: Any) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", "q8_0", **biases(attn_q=64, attn_k=32, attn_v=32))
    code, _, errors = run(capsys, "convert", path, tmp_path / "out", "--layout", "mlx")
    assert code == 0 and "layer 0 lacks a bias of attn_output" in errors
    assert "blk.0.attn_q.weight" in hc.load(tmp_path / "out" / "model.safetensors", layout="mlx")


def test_divisors_of_any_kind_come_back(tmp_path: Path) -> None:
    """Divisors that no llama3 scaling has become those of longrope, for texts of any length."""
    plain = 10000.0 ** (-np.arange(0, 16, 2) / 16)
    smooth = np.clip((64 * plain / (2 * np.pi) - 1) / 3, 0, 1)
    llama3 = (1 / ((1 - smooth) / 8 + smooth)).astype(np.float32)
    for divisors, kind in ((llama3, "llama3"), (np.linspace(1, 3, 8, dtype=np.float32), "longrope")):
        path = made.write_gguf(tmp_path / "m.gguf", "q8_0", rope_freqs__weight=divisors)
        config, difference = back(path, tmp_path / kind)
        assert config["rope_scaling"]["rope_type"] == kind and difference < 1e-5
        assert kind != "llama3" or config["rope_scaling"]["original_max_position_embeddings"] == 64


def test_a_window_becomes_that_of_mistral(tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", "q8_0", {"llama.attention.sliding_window": 8})
    config, difference = back(path, tmp_path / "out")
    assert (config["model_type"], config["sliding_window"]) == ("mistral", 8) and difference < 1e-5


def test_all_tokens_that_end_texts_come_along(tmp_path: Path) -> None:
    """Those of keys and those that llama.cpp knows by their texts; back in GGUF the latter need no keys."""
    texts = [*made.vocabulary()[:-3], "<|im_end|>", "<|file_sep|>", "<|x|>"]
    count = len(texts)
    keys = {"tokenizer.ggml.tokens": texts, "tokenizer.ggml.eot_token_id": count - 1,
            "tokenizer.ggml.token_type": [3, 3] + [1] * (count - 5) + [3] * 3}  # fmt: skip
    path = made.write_gguf(tmp_path / "m.gguf", "q8_0", keys)
    config, _ = back(path, tmp_path / "out")
    assert config["eos_token_id"] == [1, count - 3, count - 2, count - 1]
    assert (
        set(config["eos_token_id"])
        == hc.zoo.open_llm(path).tokenizer.ends
        == hc.zoo.open_llm(tmp_path / "out").tokenizer.ends
    )
    assert config["pad_token_id"] == 1
    plain, _ = back(made.write_gguf(tmp_path / "p.gguf", "q8_0"), tmp_path / "plain")
    assert (plain["bos_token_id"], plain["eos_token_id"]) == (0, 1)


def test_flags_of_layers_become_layer_types(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = models(tmp_path / "in", "Gemma3", layer_types=[GLOBAL, LOCAL, GLOBAL, GLOBAL])[0]
    path = tmp_path / "m.gguf"
    quantize_checkpoint(folder, path, "q8_0", layout="gguf")
    config, difference = back(path, tmp_path / "out")
    assert config["layer_types"] == [GLOBAL, LOCAL, GLOBAL, GLOBAL] and difference < 1e-5


# Models of transformers, with one key changed.

SIZES = {"vocab_size": len(made.vocabulary()), "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 0,
         "eos_token_id": 1, "pad_token_id": None}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "Gemma": {"head_dim": 16}, "Gemma2": GEMMA, "Gemma3": GEMMA, "Qwen3": {"head_dim": 16},
    "Mistral": {"sliding_window": 64},
}  # fmt: skip
ROPES = [{**rope, "rope_theta": 1e4} for rope in (
    {"rope_type": "linear", "factor": 4.0}, YARN, {**YARN, "attention_factor": 1.5}, {**YARN, "beta_fast": 16.0},
    {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0}, {**YARN, "truncate": False}, LLAMA3,
    {**LLAMA3, "low_freq_factor": 2.0}, LONG_ROPE,
    {"rope_type": "dynamic", "factor": 2.0}, {"rope_type": "default", "partial_rotary_factor": 0.5})]  # fmt: skip
BOTH = {GLOBAL: {"rope_type": "default", "rope_theta": 1e6}, LOCAL: {"rope_type": "default", "rope_theta": 1e4}}
COMMON: list[dict[str, Any]] = [
    {}, {"tie_word_embeddings": True}, {"tie_word_embeddings": False}, {"head_dim": 32}, {"rms_norm_eps": 1e-2},
    {"attention_bias": True}, {"num_key_value_heads": 4}, {"hidden_act": "gelu"}, {"rope_theta": 12345.678},
]  # fmt: skip
QWEN = {"use_sliding_window": True, "sliding_window": 48, "max_window_layers": 1}
CHANGED: dict[str, list[dict[str, Any]]] = {
    "Llama": [*COMMON, {"mlp_bias": True}, {"attention_bias": True, "mlp_bias": True}],
    "Mistral": [*COMMON, {"sliding_window": None}, {"sliding_window": 4096}],
    "Qwen2": [*COMMON, QWEN], "Qwen3": [*COMMON, QWEN], "Gemma": [*COMMON, {"hidden_activation": "gelu"}],
    "Phi3": [*COMMON, {"sliding_window": 8}, ORIGINAL],
    "Gemma2": [*COMMON, {"final_logit_softcapping": None}, {"final_logit_softcapping": 5.0}, {"sliding_window": 16},
               {"attn_logit_softcapping": None}, {"attn_logit_softcapping": 2.0}, {"query_pre_attn_scalar": 24},
               {"layer_types": [GLOBAL, LOCAL] * 2}, {"layer_types": [GLOBAL] * 4}, {"layer_types": [LOCAL] * 4}],
    "Gemma3": [*COMMON, {"final_logit_softcapping": 5.0}, {"attn_logit_softcapping": 2.0}, {"sliding_window": 16},
               {"query_pre_attn_scalar": 24}, {"layer_types": [GLOBAL, LOCAL] * 2}, {"layer_types": [LOCAL] * 4},
               {"rope_parameters": {**BOTH, LOCAL: {"rope_type": "default", "rope_theta": 2e4}}},
               {"rope_parameters": {**BOTH, LOCAL: ROPES[0]}}, {"rope_parameters": {**BOTH, GLOBAL: ROPES[1]}},
               {"rope_parameters": {**BOTH, GLOBAL: ROPES[0]}}, {"rope_parameters": {**BOTH, GLOBAL: ROPES[2]}}],
}  # fmt: skip
CASES = [(name, more) for name, each in CHANGED.items() for more in each]
CASES += [(name, {"rope_parameters": rope}) for name in CHANGED if name != "Gemma3" for rope in ROPES
          if name != "Phi3" or rope["rope_type"] in ("longrope", "default")]  # fmt: skip


def models(folder: Path, name: str, **more: Any) -> tuple[Path, Any]:
    """Return a folder that transformers wrote, and its model."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    kind = f"{name}TextConfig" if name == "Gemma3" else f"{name}Config"
    given = copy.deepcopy({**SIZES, **OWN.get(name, {}), **more})  # transformers adds defaults to the objects
    try:
        config = getattr(transformers, kind)(**given)
        config._attn_implementation = "eager"
        model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    except (KeyError, ValueError) as error:
        pytest.skip(f"no such model in transformers: {str(error)[:60]}")
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2 + (parameter.ndim == 1))
    made.write_folder(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder)
    return folder, model


def logits_of(model: Any) -> np.ndarray[Any, Any]:
    import torch

    with torch.no_grad():
        return np.asarray(model(torch.from_numpy(IDS)[None]).logits[0].numpy())


@pytest.mark.sweep(every=23)
@pytest.mark.parametrize("name,more", CASES, ids=[f"{n}-{json.dumps(m)[:70]}" for n, m in CASES])
def test_a_changed_key_gives_equal_logits_or_tensors_alone(name: str, more: dict[str, Any], tmp_path: Path) -> None:
    """The same holds for the folder that the GGUF file becomes, opened here and by transformers."""
    torch = pytest.importorskip("torch")
    folder, model = models(tmp_path / "in", name, **more)
    path = tmp_path / "m.gguf"
    if quantize_checkpoint(folder, path, "q8_0", exclude="*", layout="gguf")["architecture"] is None:
        return
    wanted = logits_of(model)
    assert np.abs(hc.zoo.open_llm(path).logits(IDS) - wanted).max() <= 1e-4 * np.abs(wanted).max()
    quantize_checkpoint(folder, path, "q8_0", layout="gguf")
    config, difference = back(path, tmp_path / "out")
    assert difference < 1e-4
    (tmp_path / "plain").mkdir()
    dequantize_checkpoint(tmp_path / "out", tmp_path / "plain" / "model.safetensors", layout="mlx")
    config = {key: value for key, value in config.items() if not key.startswith("quantization")}
    (tmp_path / "plain" / "config.json").write_text(json.dumps(config))
    read, found = type(model).from_pretrained(
        tmp_path / "plain", dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not found["missing_keys"] and not found["unexpected_keys"] and not found["mismatched_keys"]
    wanted = hc.zoo.open_llm(path).logits(IDS)
    assert np.abs(logits_of(read.eval()) - wanted).max() <= 1e-4 * np.abs(wanted).max()
