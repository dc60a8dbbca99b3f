"""Language models as networks, from config.json, GGUF or a name: counts of operations and bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from common import run

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.hardware.network.builtin import published
from heterocompute.hardware.network.language import decoder_of_config
from heterocompute.zoo.llm.configuration import of_config

SMALL = {"vocab_size": 1000, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1,
         "eos_token_id": 2}  # fmt: skip


def config_of(path: Path, **more: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps({"model_type": "llama", **SMALL, **more}))
    return path


def test_parameters_are_those_of_transformers() -> None:
    """Small models of each family, without weights."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    for family, more in made.FAMILIES.values():
        name = f"{family}TextConfig" if family == "Gemma3" else f"{family}Config"
        given = {**SMALL, "num_hidden_layers": 4, **more}
        config = getattr(transformers, name)(**given)
        with torch.device("meta"):
            model = getattr(transformers, f"{family}{made.ENDING.get(family, 'ForCausalLM')}")(config)
        wanted = sum(one.numel() for one in dict.fromkeys(model.parameters()))
        network = decoder_of_config("config.json", json.loads(config.to_json_string()), family).network()
        assert network.params == wanted, family
        assert network.decoding(10).output_shape == (1, 1000)


def test_a_folder_and_its_files_are_one_network(tmp_path: Path, capsys: Any) -> None:
    folder = config_of(tmp_path / "model")
    hc.save(folder / "model.safetensors", {"w": np.ones((2, 2), np.float32)})
    wanted = hw.as_network(folder)
    assert wanted.name == "model" and wanted.params == hw.as_network(folder / "model.safetensors").params
    assert hw.as_network(str(folder / "config.json")).params == wanted.params
    for command in (["count"], ["roofline", "h100-sxm", "--context", "16"], ["accelerators", "--format", "int8"]):
        code, text, _ = run(capsys, command[0], str(folder), *command[1:])
        assert code == 0 and "model" in text


def test_gguf_has_the_sizes_in_its_keys(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    shape = {"token_embd.weight": (1000, 64), "blk.0.attn_q.weight": (64, 64), "blk.0.ffn_gate.weight": (96, 64)}
    keys = {"general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 64,
            "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2, "llama.feed_forward_length": 96,
            "llama.context_length": 128}  # fmt: skip
    tensors = {name: np.ones(size, np.float32) for name, size in shape.items()}
    path = tmp_path / "tied.gguf"
    hc.save_gguf(path, tensors, keys, types={"*": "f16"})
    wanted = hw.as_network(config_of(tmp_path / "tied", tie_word_embeddings=True)).params
    assert hw.as_network(path).params == hw.count(str(path)).params == wanted
    hc.save_gguf(path, {**tensors, "output.weight": tensors["token_embd.weight"]}, keys, types={"*": "f16"})
    assert hw.as_network(path).params == wanted + 64000
    hc.save_gguf(path, tensors, types={"*": "f16"})
    with pytest.raises(ValueError, match="tied.gguf: describes no language model: its architecture is 'none'"):
        hw.as_network(path)
    hc.save(tmp_path / "w.safetensors", tensors)
    (tmp_path / "w.safetensors").rename(tmp_path / "renamed.gguf")
    with pytest.raises(ValueError, match="renamed.gguf: describes no language model"):
        hw.as_network(tmp_path / "renamed.gguf")


def test_names_are_found_as_people_write_them() -> None:
    for text in ("llama3_1_8b", "Llama-3.1-8B", "llama3.1-8b", "Qwen2.5-0.5B", "gpt-oss-20b", "DeepSeek-V3"):
        assert hw.as_network(text).params > 4e8
    with pytest.raises(ValueError, match="nearest are"):
        hw.as_network("llama9_8b")


def test_experts_in_use_are_read_and_all_are_held() -> None:
    network, bits = hw.networks["mixtral_8x7b"], 16
    token = hw.roofline(network.decoding(0), "h100-sxm", "fp16")
    read = sum(row["weight_bytes"] for row in token.layers if ".experts." in row["name"])
    assert read == 32 * 2 * 3 * 4096 * 14336 * bits / 8  # two experts of eight
    all_at_once = hw.roofline(network, "h100-sxm", "fp16")
    assert sum(row["weight_bytes"] for row in all_at_once.layers if ".experts." in row["name"]) == 4 * read
    assert hw.memory.infer(network, (1,), format="int8").params > 46e9  # bytes of all experts


def test_a_tied_table_is_stored_once_in_the_format() -> None:
    """GPT-2: 50,257 rows of 768 with a float32 scale each; positions, norms and biases stay float16."""
    network = hw.networks["gpt2"]
    matrices = 12 * (4 * 768 * (768 + 4) + 3072 * (768 + 4) + 768 * (3072 + 4))
    others = network.params - 12 * 12 * 768 * 768 - 50257 * 768
    assert hw.memory.infer(network, dtype="fp16", format="int8").params == matrices + 50257 * (768 + 4) + 2 * others


def test_a_batch_reaches_more_experts_than_one_token() -> None:
    """Of uniform routing, experts (1 - used / experts)^tokens experts are not reached: 8 (3/4)^4 = 2.53 of 4 tokens."""
    token, bits = hw.networks["mixtral_8x7b"].decoding(0), 16
    for batch, reached, positions in ((1, 2, 1), (3, 5, 1), (4, 5, 2), (16, 8, 4), (256, 8, 64)):
        rows = hw.roofline(token, "h200-sxm", "fp16", batch=batch).layers
        read = sum(row["weight_bytes"] for row in rows if ".experts." in row["name"])
        assert read == 32 * reached * 3 * 4096 * 14336 * bits / 8, batch
        expert = next(one for one in token.problems(batch) if one.name == "block0.experts.gate")
        assert (expert.n, expert.groups, expert.p) == (1, reached, positions)
    small = hw.networks["gpt_oss_20b"].decoding(0)  # with biases: those of 4 experts of 32
    gate = next(row for row in hw.roofline(small, "h200-sxm", "fp16").layers if row["name"] == "block0.experts.gate")
    assert gate["weight_bytes"] == 4 * (2880 + 1) * 2880 * 2


def test_layers_with_a_sliding_window_read_the_window_only() -> None:
    """Gemma 3 27B: five of six layers see 1024 positions; 16 heads of 128 keys and values, in 16 bits."""
    network, each = hw.networks["gemma3_27b"], 2 * 16 * 128 * 2
    cache = each * (10 * 32769 + 52 * 1024)
    assert hw.memory.kv_cache(network, 32769) == cache
    assert hw.memory.kv_cache(network, 32769, windows=[None] * 62) == each * 62 * 32769
    step = network.decoding(32768)
    rows = {row["name"]: row["operations"] for row in hw.roofline(step, "h100-sxm", "fp16").layers}
    assert rows["block0.attention.scores"] == rows["block0.attention.context"] == 2 * 32 * 128 * 1024
    assert rows["block5.attention.scores"] == 2 * 32 * 128 * 32769
    assert hw.memory.infer(step, dtype="fp16").cache == cache
    short = hw.roofline(network.decoding(10), "h100-sxm", "fp16").layers
    assert short[4]["operations"] == rows["block0.attention.scores"] / 1024 * 11


def test_memory_of_generated_tokens_includes_their_keys_and_values() -> None:
    step = hw.networks["llama_7b"].decoding(2047)
    row = hw.compare("llama_7b", "h100-sxm", context=2047, batch=80, dtype="fp16")[0]
    sweep = hw.batch_sweep(step, "h100-sxm", [80], dtype="fp16")
    assert sweep.rows[0]["memory"] == row["memory"] > 80 * 2**30
    assert not sweep.rows[0]["fits"] and sweep.largest is None
    assert "does not fit" in hw.roofline(step, "h100-sxm", "fp16", batch=80).note
    found = hw.systems.largest_batch(step, "h100-sxm", dtype="fp16", training=False, usable=1.0)
    takes = [hw.memory.infer(step, batch=batch, dtype="fp16").total for batch in (found.batch, found.batch + 1)]
    assert found.batch == 67 and takes[0] <= found.limit < takes[1]  # (80 GiB - 13.48 GB) / 1 GiB and a little


@pytest.mark.parametrize(("format", "row"), [("fp16", 256), ("int8", 132), ("int8-g32-f16", 136), ("mxfp4", 68)])
def test_keys_and_values_in_a_format(format: str, row: int) -> None:
    """Llama 3.1 8B: 32 layers with keys and values of 8 heads, each a row of 128 values with its scales."""
    step, tokens = hw.networks["llama3_1_8b"].decoding(1023), 1024
    cache = 5 * 32 * 2 * 8 * tokens * row
    assert hw.memory.kv_cache(step, tokens, batch=5, format=format) == cache
    assert hw.memory.infer(step, batch=5, dtype="fp16", kv_cache=format).cache == cache
    plain, found = (hw.roofline(step, "h100-sxm", batch=5, kv_cache=one) for one in (None, format))
    assert plain.traffic - found.traffic == 5 * 32 * 2 * 8 * (tokens - 1) * (256 - row)
    assert found.speedup == 1.0 and found.to_dict()["kv_cache"] == format
    saved = 5 * 32 * 2 * 8 * tokens * (256 - row)
    for memory in (
        [hw.compare("llama3_1_8b", "h100-sxm", context=1023, batch=5, dtype="fp16", kv_cache=one)[0]["memory"]
         for one in (None, format)],
        [hw.batch_sweep(step, "h100-sxm", 5, dtype="fp16", kv_cache=one).rows[0]["memory"] for one in (None, format)],
    ):  # fmt: skip
        assert memory[0] - memory[1] == saved
    assert hw.memory.kv_cache(hw.networks["deepseek_v3"], 10, format="int8") == 61 * 10 * (512 + 4 + 64 + 4)
    with pytest.raises(ValueError, match="kv_cache is 2:4, expected a format without a pattern"):
        hw.roofline(step, "h100-sxm", kv_cache="2:4")


@pytest.mark.parametrize("name", ["gpt2", "llama3_2_1b", "gpt_oss_20b", "vit_b_16"])
def test_fused_attention_computes_the_same_and_moves_no_scores(name: str) -> None:
    plain = hw.networks[name]
    fused = plain.fused_attention()
    assert fused.params == plain.params and hw.count(fused, batch=3).macs == hw.count(plain, batch=3).macs
    assert fused.output_shape == plain.output_shape
    assert hw.memory.infer(fused).total <= hw.memory.infer(plain).total
    scores = [flow for flow in plain if isinstance(flow.layer, hw.layers.Scores)]
    moved = sum(2 * flow.output_elements for flow in scores)  # written once and read once
    before, after = (hw.roofline(one, "h100-sxm", "fp16", batch=3) for one in (plain, fused))
    assert before.traffic - after.traffic == 3 * 2 * moved - (0 if name != "gpt_oss_20b" else 24 * 64 * 2)


def test_what_cannot_be_fused_is_refused(capsys: Any) -> None:
    for network in (hw.networks["resnet50"], hw.networks["deepseek_v3"], hw.networks["gpt2"].decoding(3)):
        with pytest.raises(ValueError, match="has no attention over a whole prompt that could be fused"):
            network.fused_attention()
    code, _, errors = run(capsys, "roofline", "gpt2", "t4", "--context", "3", "--fused-attention")
    assert code == 2 and "--fused-attention does not apply with --context" in errors
    code, text, _ = run(capsys, "roofline", "gpt2", "t4", "--input", "512", "--fused-attention", "--json")
    assert code == 0 and "scores" not in text and '"block0.attention.context"' in text


WINDOWED: list[tuple[dict[str, Any], tuple[int | None, ...]]] = [
    ({"model_type": "mistral"}, (4096,) * 4), ({"model_type": "mistral", "sliding_window": None}, (None,) * 4),
    ({"model_type": "llama", "sliding_window": 8}, (None,) * 4),
    ({"model_type": "phi3", "sliding_window": 8}, (8,) * 4), ({"model_type": "gemma2"}, (4096, None) * 2),
    ({"model_type": "gemma3_text", "sliding_window": 8}, (8,) * 4),
    ({"model_type": "gemma3_text", "sliding_window": 8, "sliding_window_pattern": 3}, (8, 8, None, 8)),
    ({"model_type": "qwen2", "sliding_window": 8}, (None,) * 4),
    ({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3},
     (None, None, None, 8)),
    ({"model_type": "qwen3", "sliding_window": 8, "use_sliding_window": True,
      "layer_types": ["full_attention", "sliding_attention"] * 2}, (None, 8) * 2),
]  # fmt: skip


@pytest.mark.parametrize(("more", "wanted"), WINDOWED)
def test_windows_are_those_of_the_network_that_runs(more: dict[str, Any], wanted: tuple[int | None, ...]) -> None:
    config = {**made.CONFIG, "num_hidden_layers": 4, "vocab_size": 264, **more}
    assert decoder_of_config("config.json", config, "m").windows == wanted == of_config("", config, 264).windows


def test_windows_of_gpt_oss_and_of_gguf(tmp_path: Path) -> None:
    assert hw.networks["gpt_oss_20b"].nodes[5].layer.window == 128  # type: ignore[attr-defined]
    for flags, wanted in (({}, (8, None)), ({"gemma2.attention.sliding_window_pattern": [False, True]}, (None, 8))):
        shape = {"token_embd.weight": (1000, 64), "blk.0.attn_q.weight": (64, 64), "blk.0.ffn_gate.weight": (96, 64)}
        keys = {"general.architecture": "gemma2", "gemma2.block_count": 2, "gemma2.embedding_length": 64,
                "gemma2.attention.head_count": 4, "gemma2.feed_forward_length": 96, **flags,
                "gemma2.attention.sliding_window": 8}  # fmt: skip
        hc.save_gguf(tmp_path / "m.gguf", {name: np.ones(size, np.float32) for name, size in shape.items()}, keys)
        found = hw.as_network(tmp_path / "m.gguf").nodes
        assert tuple(one.layer.window for one in found if isinstance(one.layer, hw.layers.Scores)) == wanted


def test_a_latent_is_what_is_cached() -> None:
    """DeepSeek caches 512 + 64 values per position and layer as keys; the values are the same 512."""
    network = hw.networks["deepseek_v3"]
    assert hw.memory.kv_cache(network, 1000, dtype="fp16") == 61 * 1000 * (512 + 64) * 2


@pytest.mark.parametrize("change, words", [
    ({"model_type": "mamba"}, "model_type is 'mamba', expected one of llama, "),
    ({"model_type": "lama"}, "the nearest is llama"), ({"model_type": 3}, "model_type is 3"),
    ({"hidden_size": None}, "the key 'hidden_size' is missing"), ({"hidden_size": -1}, "hidden_size is -1"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"), ({"vocab_size": "many"}, "vocab_size is 'many'"),
    ({"num_attention_heads": 3, "num_key_value_heads": 2}, "heads"),
])  # fmt: skip
def test_sizes_are_not_believed(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hw.count(config_of(tmp_path / "model", **change))


def test_a_folder_without_sizes_is_refused(tmp_path: Path, capsys: Any) -> None:
    hc.save(tmp_path / "w.safetensors", {"w": np.ones((2, 2), np.float32)})
    code, _, errors = run(capsys, "count", str(tmp_path / "w.safetensors"))
    assert code == 1 and "has no config.json next to the weights" in errors
    (tmp_path / "config.json").write_text("[]")
    code, _, errors = run(capsys, "count", str(tmp_path))
    assert code == 1 and "config.json: not a JSON object" in errors
    assert len(published()) > 30


def test_a_network_of_a_file_is_counted_by_its_file(tmp_path: Path) -> None:
    for path in (made.write_gguf(tmp_path / "m.gguf"), made.write_folder(tmp_path / "f", {"vocab_size": 264})):
        net = hc.zoo.open_llm(path)
        assert hw.count(net).params == hw.count(str(path)).params
        assert hw.roofline(net, "h100-sxm").seconds == hw.roofline(str(path), "h100-sxm").seconds


def test_keys_that_files_of_gemma_3_leave_out(tmp_path: Path) -> None:
    inner = {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
             "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": inner}))
    assert hw.as_network(tmp_path).params == 3_880_263_168  # of the text part of Gemma 3 4B
