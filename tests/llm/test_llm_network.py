"""A language model gives the results of transformers and llama.cpp, and its own results are deterministic."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from common import isas, same_bits

import heterocompute as hc
from heterocompute.zoo.llm.run import Run, RunOptions

IDS = np.random.default_rng(3).integers(2, 200, (2, 24))


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return hc.zoo.open_llm(made.write_folder(tmp_path_factory.mktemp("llm")))


def plain_logits(ids: np.ndarray[Any, Any], w: dict[str, Any], config: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Llama in float64, a token after another."""
    w = {name: value.astype(np.float64) for name, value in w.items()}
    heads, width = config["num_attention_heads"], config["hidden_size"]
    d, group = width // heads, heads // config["num_key_value_heads"]
    angles = np.arange(len(ids))[:, None] * config["rope_theta"] ** (-np.arange(0, d, 2) / d)

    def norm(x: Any, name: str) -> Any:
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + config["rms_norm_eps"]) * w[f"{name}.weight"]

    def turned(x: Any) -> Any:
        a, b = np.split(x, 2, axis=-1)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)

    x = w["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        y = norm(x, f"{at}input_layernorm")
        q, k, v = ((y @ w[f"{at}self_attn.{n}_proj.weight"].T).reshape(len(ids), -1, d) for n in "qkv")
        q, k, v = turned(q), np.repeat(turned(k), group, 1), np.repeat(v, group, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(d)
        shares = np.exp(np.where(np.tri(len(ids)) > 0, scores, -np.inf))
        shares /= shares.sum(axis=-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", shares, v).reshape(len(ids), -1) @ w[f"{at}self_attn.o_proj.weight"].T
        y = norm(x, f"{at}post_attention_layernorm")
        gate = y @ w[f"{at}mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w[f"{at}mlp.up_proj.weight"].T)) @ w[f"{at}mlp.down_proj.weight"].T
    return norm(x, "model.norm") @ w["model.embed_tokens.weight"].T


def test_logits_are_those_of_the_equations(net: Any) -> None:
    for ids in IDS:
        wanted = plain_logits(ids, made.weights(), made.CONFIG)
        assert np.abs(net.logits(ids) - wanted).max() < 2e-5 * np.abs(wanted).max()


def test_a_gguf_file_is_the_folder(net: Any, tmp_path: Path) -> None:
    other = hc.zoo.open_llm(made.write_gguf(tmp_path / "m.gguf"))
    assert np.abs(other.logits(IDS) - net.logits(IDS)).max() < 1e-4
    packed = hc.zoo.open_llm(made.write_gguf(tmp_path / "q.gguf", "q8_0"))
    assert str(packed.weights["blk.0.ffn_up.weight"].format) == "q8_0"
    values = {name: np.asarray(packed.weights[name]) for name in packed.matrices}
    assert np.abs(packed.logits(IDS) - packed.logits(IDS, weights=values)).max() < 1e-4
    assert np.abs(packed.logits(IDS) - net.logits(IDS)).max() > 1e-3


def test_bits_are_equal_on_every_instruction_set_and_thread_count(net: Any) -> None:
    packed = net.quantized("vsq4-g16-s4")
    caches = None, "int8", "int4-g16+had"
    for weights, activations, kv_cache in zip((None, packed, packed), (None, "int8", None), caches, strict=True):
        wanted = net.logits(IDS, weights, activations, kv_cache)
        for isa in isas():
            for threads in (1, 3):
                with hc.use(isa=isa, threads=threads):
                    assert same_bits(net.logits(IDS, weights, activations, kv_cache), wanted)


def assert_one_call_is_all_steps(net: Any, ids: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that one call of the core for all layers has the bits of the single steps, and is the default."""
    packed, calls, width = net.quantized("int8"), [], net.shape.cached[1]
    whole = Run._chunked

    def counted(run: Run, layers: range, *args: Any) -> Any:
        x, done = whole(run, layers, *args)
        calls.append(done == len(layers))
        return x, done

    for weights, activations, kv_cache in (
        (None, None, None), (packed, "int8", "int8"), (packed, None, "int4-g8"), (None, None, "bf16"),
        (packed, None, "int4-g8+had" if width.bit_count() == 1 else None),
        (None, None, "int4-g8+had16" if width % 16 == 0 else None),
    ):  # fmt: skip
        found = []
        for way in (counted, lambda run, layers, x, turns: (x, 0)):
            monkeypatch.setattr(Run, "_chunked", way)
            if way is not counted:
                monkeypatch.setattr(Run, "_summed", lambda *args: None)
            found.append(net.logits(ids, weights, activations, kv_cache))
            found.append(net.generate(ids[:, :7], 12, 0.0, 0, weights, activations, kv_cache))
        monkeypatch.undo()
        assert same_bits(found[0], found[2]) and same_bits(found[1], found[3])
    assert calls and all(calls)


def test_one_call_is_all_steps(net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_one_call_is_all_steps(net, IDS, monkeypatch)
    assert_one_call_is_all_steps(hc.zoo.open_llm(made.write_gguf(tmp_path / "q.gguf", "q8_0")), IDS, monkeypatch)


def with_experts(path: Path) -> Any:
    """Return a network of Mixtral's kind with drawn experts."""
    rng, keys, tensors = np.random.default_rng(5), {"llama.expert_count": 5, "llama.expert_used_count": 2}, {}
    for i in range(2):
        tensors |= {f"blk.{i}.ffn_{name}.weight": None for name in ("gate", "up", "down")}
        tensors |= {f"blk.{i}.ffn_{name}_exps.weight": (rng.standard_normal((5, *size)) * 0.3).astype(np.float32)
                    for name, size in (("gate", (96, 64)), ("up", (96, 64)), ("down", (64, 96)))}  # fmt: skip
        tensors[f"blk.{i}.ffn_gate_inp.weight"] = rng.standard_normal((5, 64)).astype(np.float32)
    made.write_gguf(path, keys=keys, **{name.replace(".", "__"): w for name, w in tensors.items()})
    return hc.zoo.open_llm(path)


def of_gpt_oss(path: Path) -> Any:
    """Return a network whose experts have biases, rows of gate and up in turn, and a clamped activation."""
    rng, width, hidden, experts = np.random.default_rng(6), 64, 48, 4
    path.mkdir()
    config = {"model_type": "gpt_oss", "vocab_size": 200, "hidden_size": width, "intermediate_size": hidden,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
              "num_local_experts": experts, "num_experts_per_tok": 2, "sliding_window": 8, "swiglu_limit": 2.0,
              "max_position_embeddings": 128, "tie_word_embeddings": True}  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (200, width), "norm.weight": (width,)}
    for at in ("layers.0.", "layers.1."):
        shapes |= {f"{at}{name}_layernorm.weight": (width,) for name in ("input", "post_attention")}
        for name, rows, columns in (("q", 64, width), ("k", 32, width), ("v", 32, width), ("o", width, 64)):
            shapes |= {f"{at}self_attn.{name}_proj.weight": (rows, columns), f"{at}self_attn.{name}_proj.bias": (rows,)}
        shapes |= {f"{at}self_attn.sinks": (4,), f"{at}mlp.router.weight": (experts, width),
                   f"{at}mlp.router.bias": (experts,), f"{at}mlp.experts.down_proj": (experts, hidden, width),
                   f"{at}mlp.experts.gate_up_proj": (experts, width, 2 * hidden),
                   f"{at}mlp.experts.gate_up_proj_bias": (experts, 2 * hidden),
                   f"{at}mlp.experts.down_proj_bias": (experts, width)}  # fmt: skip
    weights = {f"model.{name}": (rng.standard_normal(s) * 0.3).astype(np.float32) for name, s in shapes.items()}
    hc.save(path / "model.safetensors", weights)
    (path / "config.json").write_text(json.dumps(config))
    return hc.zoo.open_llm(path)


@pytest.mark.parametrize("kind", ["mixtral", "gpt_oss"])
def test_experts_are_one_call(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = with_experts(tmp_path / "m.gguf") if kind == "mixtral" else of_gpt_oss(tmp_path / "in")
    assert_one_call_is_all_steps(net, IDS, monkeypatch)
    packed = net.quantized("vsq4-g16-s4")
    wanted = net.logits(IDS, packed, "int8")
    for isa in isas():
        for threads in (1, 2):
            with hc.use(isa=isa, threads=threads):
                assert same_bits(net.logits(IDS, packed, "int8"), wanted)


@pytest.mark.parametrize("seed", range(4))
def test_equal_scores_of_experts_in_order(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, net = np.random.default_rng(seed), with_experts(tmp_path / "m.gguf")
    routers = {name: rng.integers(-1, 2, np.shape(w)).astype(np.float32) * (rng.random((len(w), 1)) < 0.6)
               for name, w in net.weights.items() if "ffn_gate_inp" in name}  # fmt: skip
    net = net.remade({**net.weights, **routers})
    net.shape = replace(net.shape, shares_sum_to_one=seed % 2 == 0, experts_used=1 + seed,
                        routing=replace(net.shape.routing, factor=float(rng.choice([1, 2.5]))))  # fmt: skip
    assert len(routers) == net.shape.layers
    assert_one_call_is_all_steps(net, IDS, monkeypatch)


def test_what_is_wrong_in_a_layer_is_said_as_ever(net: Any) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    w = np.asarray(net.weights[name]).copy()
    w[0] = np.nan
    with pytest.raises(ValueError, match="nan"):
        net.logits(IDS, weights={**net.quantized("int8"), name: w}, activations="int8")
    with pytest.raises(ValueError, match="the logits hold NaN or infinity"):
        net.logits(IDS, weights={name: w})


def test_token_by_token_is_all_at_once(net: Any) -> None:
    found = net.generate(IDS, 12)
    assert found.shape == (2, 12)
    for row in range(2):
        ids = IDS[row].tolist()
        for token in found[row]:
            if token in net.tokenizer.ends:
                break
            last = net.logits(ids)[-1]
            assert last[token] > last.max() - 1e-4  # products of few rows sum in another order
            ids.append(int(token))


def test_draws_have_a_seed(net: Any) -> None:
    prompt = IDS[0]
    one = net.generate(prompt, 10, temperature=1.5, seed=1)
    assert same_bits(one, net.generate(prompt, 10, temperature=1.5, seed=1))
    assert any((net.generate(prompt, 10, temperature=1.5, seed=seed) != one).any() for seed in (2, 3))
    assert same_bits(net.generate(prompt, 10, temperature=1e-9), net.generate(prompt, 10))
    assert net.generate(prompt, 0).shape == (0,)


def test_prompts_of_different_lengths_run_as_if_alone(net: Any) -> None:
    prompts = [IDS[0, :5], IDS[1, :9].tolist()]
    found = net.generate(prompts, 6)
    assert found.shape == (2, 6)
    for row, prompt in zip(found, prompts, strict=True):
        alone = net.generate(prompt, 6)
        assert same_bits(row[: len(alone)], alone) and (row[len(alone) :] == min(net.tokenizer.ends)).all()


def test_losses_are_known_by_the_tokens_before(net: Any) -> None:
    ids = np.random.default_rng(1).integers(2, 200, 90)
    found = net.judged(ids, [(None,), ({}, "int8")], 20, 40, parts=4)
    assert [len(one["by_position"]) for one in found] == [4, 4]
    first = found[0]["by_position"]
    assert first[0] == pytest.approx(net.perplexity(ids[:10]), rel=1e-6)  # the first part of the first window alone
    counts, logs = np.array([9, 10, 40, 30]), np.log(first)
    assert np.exp((counts * logs).sum() / counts.sum()) == pytest.approx(found[0]["perplexity"], rel=1e-9)
    assert "by_position" not in net.judged(ids, [(None,)])[0]
    for one in net.judged(ids, [(None,), ({}, "int8")], 20, 40, compare=True, parts=4):
        assert (counts * one["kl_by_position"]).sum() / counts.sum() == pytest.approx(one["kl"], rel=1e-6)


def test_bytes_of_its_cache_are_counted(net: Any) -> None:
    from heterocompute import hardware as hw

    cache = hc.KVCache("bf16", net.shape.layers, net.shape.kv_heads, net.shape.head_width)
    part = np.zeros((1, net.shape.kv_heads, 50, net.shape.head_width), np.float32)
    for i in range(net.shape.layers):
        cache.add(i, part, part)
    assert hw.memory.kv_cache(net, 50, dtype="bf16") == cache.nbytes
    assert hw.memory.kv_cache(net, 50, dtype="bf16", windows=[25, None]) == cache.nbytes * 3 // 4


def test_perplexity_is_that_of_the_logits(net: Any) -> None:
    ids = np.random.default_rng(0).integers(2, 200, 100)

    def loss(tokens: Any, first: int) -> Any:
        logits = net.logits(tokens).astype(np.float64)
        logits -= np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True)) + logits.max(
            -1, keepdims=True
        )
        return -logits[np.arange(first - 1, len(tokens) - 1), tokens[first:]]

    whole = loss(ids, 1)
    assert net.perplexity(ids, window=128) == pytest.approx(np.exp(whole.mean()), rel=1e-5)
    parts = [loss(ids[:40], 1), loss(ids[20:60], 20), loss(ids[40:80], 20), loss(ids[60:], 20)]
    assert sum(map(len, parts)) == 99
    assert net.perplexity(ids, stride=20, window=40) == pytest.approx(np.exp(np.concatenate(parts).mean()), rel=1e-5)
    judged = net.judged(ids, [(None, None, None), (net.quantized("int3"), "int8", "int8")], window=64, compare=True)
    assert judged[0]["kl"] == 0 and judged[0]["agreement"] == 1
    assert judged[1]["kl"] > 0.01 and judged[1]["agreement"] < 1


def test_experts_are_those_that_the_router_picks(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    keys = {"llama.expert_count": 3, "llama.expert_used_count": 2}
    tensors = {f"blk.{i}.{name}.weight": None for i in range(2) for name in ("ffn_gate", "ffn_up", "ffn_down")}
    one = made.gguf_tensors()
    for i in range(2):
        tensors[f"blk.{i}.ffn_gate_inp.weight"] = np.zeros((3, 64), np.float32)
        for name in ("ffn_gate", "ffn_up", "ffn_down"):  # three equal experts, two of which have weight 1/2
            tensors[f"blk.{i}.{name}_exps.weight"] = np.stack([one[f"blk.{i}.{name}.weight"]] * 3)
    path = made.write_gguf(tmp_path / "e.gguf", keys=keys, **{k.replace(".", "__"): v for k, v in tensors.items()})
    same = hc.zoo.open_llm(made.write_gguf(tmp_path / "m.gguf"))
    assert np.abs(hc.zoo.open_llm(path).logits(IDS) - same.logits(IDS)).max() < 1e-4
    tensors |= {f"blk.{i}.ffn_gate_inp.weight": rng.standard_normal((3, 64)).astype(np.float32) for i in range(2)}
    tensors |= {f"blk.{i}.ffn_down_exps.weight": rng.standard_normal((3, 64, 96)).astype(np.float32) for i in range(2)}
    path = made.write_gguf(tmp_path / "f.gguf", keys=keys, **{k.replace(".", "__"): v for k, v in tensors.items()})
    found = hc.zoo.open_llm(path).logits(IDS)
    assert np.isfinite(found).all() and np.abs(found - same.logits(IDS)).max() > 0.1


@pytest.mark.parametrize("kind", ["listed", "stacked"])
def test_experts_of_a_folder_are_those_of_a_file(tmp_path: Path, kind: str) -> None:
    rng, one = np.random.default_rng(2), made.weights()
    folder = made.write_folder(tmp_path / "hf", {"model_type": "mixtral", "num_local_experts": 3})
    tensors: dict[str, Any] = {}
    keys = {"llama.expert_count": 3, "llama.expert_used_count": 2}
    for i in range(2):
        at, names = f"model.layers.{i}.", ("gate", "up", "down")
        plain = [one.pop(f"{at}mlp.{name}_proj.weight") for name in names]
        stacks = [np.stack([w * f for f in (1, -0.5, 2)]).astype(np.float32) for w in plain]
        router = rng.standard_normal((3, 64)).astype(np.float32)
        tensors |= {f"blk.{i}.ffn_{name}.weight": None for name in names} | {f"blk.{i}.ffn_gate_inp.weight": router}
        tensors |= {f"blk.{i}.ffn_{name}_exps.weight": w for name, w in zip(names, stacks, strict=True)}
        if kind == "stacked":
            one[f"{at}mlp.gate.weight"] = router
            one[f"{at}mlp.experts.gate_up_proj"] = np.concatenate(stacks[:2], axis=1)
            one[f"{at}mlp.experts.down_proj"] = stacks[2]
        else:
            one[f"{at}block_sparse_moe.gate.weight"] = router
            for name, w in zip(("w1", "w3", "w2"), stacks, strict=True):
                one |= {f"{at}block_sparse_moe.experts.{j}.{name}.weight": w[j] for j in range(3)}
    hc.save(folder / "model.safetensors", one)
    path = made.write_gguf(tmp_path / "m.gguf", keys=keys, **{k.replace(".", "__"): w for k, w in tensors.items()})
    wanted = hc.zoo.open_llm(path).logits(IDS)
    assert np.abs(hc.zoo.open_llm(folder).logits(IDS) - wanted).max() < 1e-4


FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    **made.FAMILIES,
    "qwen3_moe with dense layers": ("Qwen3Moe", {
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": False,
        "head_dim": 16, "mlp_only_layers": [2], "decoder_sparse_step": 2}),
    "glm4_moe without norms": ("Glm4Moe", {
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "head_dim": 16,
        "norm_topk_prob": False, "first_k_dense_replace": 2, "attention_bias": True}),
    "deepseek_v2 with biases": ("DeepseekV2", {
        **made.FAMILIES["deepseek_v2"][1], "attention_bias": True, "mlp_bias": True, "q_lora_rank": 24}),
    "cohere with norms": ("Cohere", {**made.FAMILIES["cohere"][1], "use_qk_norm": True, "num_key_value_heads": 2}),
    "deepseek_v3 with halves of 16": ("DeepseekV3", {
        **made.FAMILIES["deepseek_v3"][1], "kv_lora_rank": 24, "qk_rope_head_dim": 8, "q_lora_rank": None}),
    "deepseek_v3 with odd latents": ("DeepseekV3", {**made.FAMILIES["deepseek_v3"][1], "kv_lora_rank": 15}),
    "deepseek_v3 with biases": ("DeepseekV3", {**made.FAMILIES["deepseek_v3"][1], "attention_bias": True}),
    "gpt_neox in turn": ("GPTNeoX", {"num_key_value_heads": 4, "use_parallel_residual": False, "rotary_pct": 0.5}),
    "falcon with two norms": ("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon with biases by the distance": ("Falcon", {
        "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True, "num_attention_heads": 6,
        "hidden_size": 72}),
    "bloom with six heads": ("Bloom", {"num_attention_heads": 6, "hidden_size": 72}),
    "stablelm in parallel": ("StableLm", {"use_parallel_residual": True, "use_qkv_bias": True}),
    "exaone4 without windows": ("Exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 4}),
    "smollm3 by a list": ("SmolLM3", {"bos_token_id": 1, "eos_token_id": 2, "no_rope_layers": [0, 1, 1, 0]}),
    **{f"{name} with {act}": (made.FAMILIES[name][0], {**made.FAMILIES[name][1], "hidden_act": act})
       for name, act in (("llama", "gelu"), ("gpt_neox", "gelu_fast"), ("qwen2_moe", "relu"), ("arcee", "silu"))},
    "arcee with biases": ("Arcee", {
        "bos_token_id": 1, "eos_token_id": 2, "attention_bias": True, "mlp_bias": True}),
    "llama3": ("Llama", {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}}),
    "linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "yarn": ("Llama", {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}}),
    **{f"longrope {original}": ("Phi3", {
        "bos_token_id": 1, "eos_token_id": 2, "original_max_position_embeddings": original, "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 1.0, 1.0, 4.0],
            "long_factor": [float(i) for i in range(1, 9)]}}) for original in (64, 32)},
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    name, more = FAMILIES[family]
    kind = f"{name}TextConfig" if name == "Gemma3" else f"{name}Config"
    config = getattr(transformers, kind)(**{
        "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0, **more,
    })  # fmt: skip
    config._attn_implementation = "sdpa" if more.get("alibi") else "eager"  # eager adds Falcon's biases twice
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}{made.ENDING.get(name, 'ForCausalLM')}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
        ids = np.random.default_rng(0).integers(0, 128, (2, 40))
        wanted = model(torch.tensor(ids)).logits.numpy()
    model.save_pretrained(tmp_path)
    net = hc.zoo.open_llm(tmp_path)
    found = net.logits(ids)
    assert_one_call_is_all_steps(net, ids, monkeypatch)
    # 4 layers of sums of 64 to 96 float32, each read by norms: some 40 roundings of the largest
    assert np.abs(found - wanted).max() <= 40 * np.finfo(np.float32).eps * max(np.abs(wanted).max(), 1.0)


def made_network(tmp_path: Path, family: str) -> Any:
    """Return a small network of a family, with drawn weights of transformers."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    name, more = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(**{
        "vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0, **more,
    })  # fmt: skip
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}{made.ENDING.get(name, 'ForCausalLM')}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(tmp_path)
    return hc.zoo.open_llm(tmp_path)


def test_heads_with_norms_of_their_own_have_such_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, given, taken = made_network(tmp_path, "cohere with norms"), np.random.default_rng(3), Run._tensors
    heads = {"q": net.shape.heads, "k": net.shape.kv_heads}
    made_biases = {f"attn_{name}_norm.bias": given.normal(size=(n, 16)).astype("f") for name, n in heads.items()}

    def with_biases(run: Run, i: int) -> Any:
        taken(run, i).update(made_biases)
        return run._parts[i]

    ids = given.integers(0, 128, (2, 9))
    without = net.logits(ids)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "_tensors", with_biases)
        found = net.logits(ids)
        patch.setattr(Run, "_chunked", lambda run, layers, x, turns: (x, 0))
        patch.setattr(Run, "_summed", lambda *args: None)
        assert same_bits(net.logits(ids), found)
    assert not same_bits(found, without)


@pytest.mark.parametrize("family", ["deepseek_v3", "gpt_oss", "gpt2", "ministral3", "bloom", "falcon"])
def test_tokens_one_by_one_are_those_of_the_whole_text(family: str, tmp_path: Path) -> None:
    net, ids = made_network(tmp_path, family), np.random.default_rng(1).integers(0, 128, 30)
    for kv_cache in (None, "bf16"):
        run, wanted = Run(net, RunOptions(kv_cache=kv_cache), 1), net.logits(ids, kv_cache=kv_cache)
        found = np.concatenate([run.logits(ids[None, i : i + 1])[0] for i in range(len(ids))])
        assert np.abs(found - wanted).max() <= (1e-5 if kv_cache is None else 1e-3) * np.abs(wanted).max()
        assert run.cache.nbytes * (2 if kv_cache else 1) == 2 * 4 * net.shape.layers * len(ids) * np.prod(
            net.shape.cached
        )


def test_latents_alone_are_cached(tmp_path: Path) -> None:
    from heterocompute import hardware as hw

    net = made_network(tmp_path, "deepseek_v3")
    assert net.shape.cached == (1, 10)  # halves of a latent of 16 and of 4 rotated values
    assert hw.memory.kv_cache(net, 50, dtype="bf16") == 2 * 50 * 20 * 2
    assert np.isfinite(net.logits(IDS[0] % 128, kv_cache="int8", activations="int8")).all()
    for kv_cache in (None, "int8"):
        wanted = net.logits(IDS % 128, kv_cache=kv_cache)
        for isa in isas():
            for threads in (1, 3):
                with hc.use(isa=isa, threads=threads):
                    assert same_bits(net.logits(IDS % 128, kv_cache=kv_cache), wanted), (isa, threads)


def test_a_gguf_file_of_gpt2_is_the_folder(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    net, ids = made_network(tmp_path, "gpt2"), np.random.default_rng(1).integers(0, 128, 30)
    keys = {"general.architecture": "gpt2", "gpt2.block_count": 2, "gpt2.context_length": 128,
            "gpt2.embedding_length": 64, "gpt2.feed_forward_length": 96, "gpt2.attention.head_count": 4,
            "gpt2.attention.layer_norm_epsilon": 1e-5}  # fmt: skip
    tensors = {role: np.asarray(net.weights[name], np.float32) for role, name in net.roles.items()}
    hc.save_gguf(tmp_path / "g.gguf", tensors, keys, {"*": "f32"})
    found = hc.zoo.open_llm(tmp_path / "g.gguf").logits(ids)
    assert np.abs(found - net.logits(ids)).max() < 1e-5 * np.abs(found).max()


def test_tokens_are_those_of_llama_cpp(tmp_path: Path) -> None:
    xllamacpp = pytest.importorskip("xllamacpp")
    pytest.importorskip("tokenizers")
    path = made.write_gguf(tmp_path / "m.gguf")
    options = xllamacpp.CommonParams()
    options.model.path, options.n_ctx, options.cpuparams.n_threads, options.warmup = str(path), 128, 1, False
    server = xllamacpp.Server(options)
    net = hc.zoo.open_llm(path)
    for prompt in ("the cat sat in", "in the winter: 12 Ångström", "a"):
        answer = server.handle_completions({"prompt": prompt, "n_predict": 12, "temperature": 0, "n_probs": 1})
        answer = json.loads(answer) if isinstance(answer, str) else answer
        wanted = [token["id"] for token in answer["choices"][0]["logprobs"]["content"]]
        assert len(wanted) == 12  # no token is a part of a character
        ids = net.tokenizer.encode(prompt)
        assert len(ids) == answer["usage"]["prompt_tokens"]
        found = net.generate(ids, len(wanted)).tolist()
        for i, token in enumerate(wanted):  # its keys are float16, so nearly equal logits may swap
            if found[i] != token:
                logits = net.logits([*ids, *wanted[:i]])[-1]
                assert logits[token] > logits.max() - 0.05
                break


def test_a_notebook_shows_the_model_and_completes_what_users_call(net: Any) -> None:
    assert len(repr(net)) < 150
    assert net._repr_mimebundle_()["text/html"].count("<tr") == 7
    assert {"generate", "logits", "perplexity", "quantized", "weights"} <= set(dir(net))
    assert all(hasattr(net, name) for name in dir(net))
    assert not {"judged", "remade", "run", "taken", "frequencies"} & set(dir(net))


def test_open_returns_the_model(tmp_path: Path, net: Any) -> None:
    found = hc.open(made.write_folder(tmp_path / "m"))
    assert isinstance(found, type(net)) and np.array_equal(found.logits(IDS), net.logits(IDS))
