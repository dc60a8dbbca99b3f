"""RoPE that depends on the length of the text, tensors of other networks, and experts in every step of a study."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.cli import main
from heterocompute.zoo.llm import run as runs
from heterocompute.zoo.llm.network import LanguageModel

IDS = np.random.default_rng(0).integers(2, 90, 60)
LONG = {"rope_type": "longrope", "short_factor": [1.0 + i / 9 for i in range(8)],
        "long_factor": [2.0 + i for i in range(8)], "original_max_position_embeddings": 24}  # fmt: skip


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return hc.zoo.open_llm(made.write_folder(tmp_path_factory.mktemp("long"), {"rope_scaling": LONG}))


def test_all_positions_of_a_long_text_have_the_long_divisors(
    net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The divisors of a text follow from its length, not from the pieces in which it passes through the layers."""
    every = {**LONG, "short_factor": LONG["long_factor"]}
    only_long = hc.zoo.open_llm(made.write_folder(tmp_path / "l", {"rope_scaling": every}))
    only_short = hc.zoo.open_llm(
        made.write_folder(tmp_path / "s", {"rope_scaling": {**LONG, "long_factor": LONG["short_factor"]}})
    )
    monkeypatch.setattr(runs, "CHUNK", 10)
    for n in (10, 24, 25, 60):
        wanted = (only_long if n > 24 else only_short).logits(IDS[:n])
        assert np.array_equal(net.logits(IDS[:n]), wanted)
    assert net.perplexity(IDS, window=60) == only_long.perplexity(IDS, window=60)
    assert net.perplexity(IDS, window=20) == only_short.perplexity(IDS, window=20)


@pytest.mark.parametrize("n", [5, 23, 24, 25])
def test_a_text_that_grows_beyond_the_original_context_is_computed_again(net: Any, n: int) -> None:
    """As in transformers' Phi-3: keys with the short divisors are dropped."""
    known = list(IDS[:n])
    found = net.generate(IDS[:n], 30)
    for token in found:
        assert token == net.logits(np.array(known))[-1].argmax()
        known.append(token)
    assert np.array_equal(net.generate([IDS[:3], IDS[:n]], 30)[1][: len(found)], found)
    run = runs.Run(net, runs.RunOptions(), 1)
    parts = [run.logits(IDS[None, i : i + 7])[0] for i in range(0, 56, 7)]
    assert [len(part) for part in parts] == [7] * 8
    assert np.abs(parts[-1] - net.logits(IDS[:56])[-7:]).max() < 1e-4


def test_scaling_applies_together_with_the_divisors_of_a_file(tmp_path: Path) -> None:
    divisors = np.linspace(1, 3, 8, dtype=np.float32)
    both = made.write_gguf(tmp_path / "b.gguf", keys={"llama.rope.scaling.factor": 2.0}, rope_freqs__weight=divisors)
    one = made.write_gguf(tmp_path / "o.gguf", rope_freqs__weight=2 * divisors)
    assert np.array_equal(hc.zoo.open_llm(both).logits(IDS), hc.zoo.open_llm(one).logits(IDS))


def folder(path: Path, config: dict[str, Any], **tensors: Any) -> Path:
    made.write_folder(path, config)
    held = {**made.weights(), **{name.replace("__", "."): w for name, w in tensors.items()}}
    hc.save(path / "model.safetensors", {name: w for name, w in held.items() if w is not None})
    return path


ONES = np.ones(64, np.float32)
UNUSED = ["lm_head.bias", "model.norm.bias", "model.layers.0.self_attn.sinks",
          "model.layers.0.self_attn.q_norm.weight", "model.layers.1.self_attn.k_proj.bias",
          "model.layers.0.mlp.up_proj.bias", "score.weight",
          "model.other.weight", "model.layers.0.mlp.experts.0.w1.weight", "model.layers.2.input_layernorm.weight",
          "model.layers.0.self_attn.qkv_proj.weight", "model.embed_positions.weight"]  # fmt: skip


@pytest.mark.parametrize("name", UNUSED)
def test_a_tensor_that_no_layer_reads_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"tensor '{name}' is not part of the family llama"):
        hc.zoo.open_llm(folder(tmp_path, {}, **{name: ONES}))


def test_tensors_that_change_nothing_are_accepted(tmp_path: Path) -> None:
    names = ["model.rotary_emb.inv_freq", "model.layers.0.self_attn.rotary_emb.inv_freq", "v_head.summary.weight",
             "model.layers.0.self_attn.k_scale", "model.layers.0.mlp.up_proj.input_scale"]  # fmt: skip
    net = hc.zoo.open_llm(folder(tmp_path / "m", {}, **dict.fromkeys(names, ONES)))
    assert np.array_equal(net.logits(IDS), hc.zoo.open_llm(made.write_folder(tmp_path / "p")).logits(IDS))


@pytest.mark.parametrize("name", ["output.bias", "output_norm.bias", "blk.0.attn_q_norm.weight", "blk.0.attn_q.scale",
                                  "blk.0.attn_sinks.weight", "cls.weight", "position_embd.weight"])  # fmt: skip
def test_a_tensor_of_gguf_that_no_layer_reads_is_refused_by_name(name: str, tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", **{name.replace(".", "__"): ONES})
    with pytest.raises(ValueError, match=f"tensor '{name}' is not part of the family llama"):
        hc.zoo.open_llm(path)


def test_weights_that_config_json_names_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tensor 'lm_head.weight' is missing; config.json has tie_word_embeddings f"):
        hc.zoo.open_llm(folder(tmp_path / "a", {"tie_word_embeddings": False}))
    with pytest.raises(ValueError, match=r"'model.layers.0.self_attn.k_proj.bias' is missing, which config.json names"):
        hc.zoo.open_llm(folder(tmp_path / "b", {"attention_bias": True}))
    with pytest.raises(ValueError, match=r"'model.layers.0.mlp.down_proj.bias' is missing"):
        hc.zoo.open_llm(folder(tmp_path / "c", {"mlp_bias": True}))
    one = {"model.layers.0.self_attn.q_proj.bias": ONES}
    with pytest.raises(ValueError, match=r"'model.layers.0.self_attn.k_proj.bias' is missing"):
        hc.zoo.open_llm(folder(tmp_path / "d", {"model_type": "qwen2"}, **one))
    assert hc.zoo.open_llm(folder(tmp_path / "e", {"model_type": "qwen2"})).logits([3]).shape == (1, 264)
    head = {"lm_head.weight": made.weights(1)["model.embed_tokens.weight"]}
    untied = hc.zoo.open_llm(folder(tmp_path / "f", {"tie_word_embeddings": True}, **head))
    assert untied.tables == ["model.embed_tokens.weight", "lm_head.weight"]  # transformers takes a matrix that differs


def test_every_window_and_stride_judges_a_text() -> None:
    class Counted:
        begin = None

    net: Any = object.__new__(LanguageModel)
    net.tokenizer, net.shape = Counted(), type("Sizes", (), {"context": 64})()
    for begin in (None, 0):
        net.tokenizer.begin = begin
        for n in range(2, 20):
            for window in range(3, 9):
                for stride in range(1, window - (begin is not None) + 1):
                    parts = list(net.windows(np.arange(n), stride, window))
                    counts = [len(part) - first for part, first in parts]
                    assert min(counts) >= 1 and sum(counts) <= n


def experts(path: Path, config: dict[str, Any], kind: str) -> Path:
    """Write a folder with experts: listed as in Mixtral or in Qwen, or stacked."""
    rng, tensors = np.random.default_rng(1), {name: w for name, w in made.weights().items() if ".mlp." not in name}
    block = "block_sparse_moe" if kind == "w1" else "mlp"
    names = ("w1", "w3", "w2") if kind == "w1" else ("gate_proj", "up_proj", "down_proj")
    for i in range(2):
        at = f"model.layers.{i}.{block}."
        tensors[f"{at}gate.weight"] = rng.standard_normal((3, 64), np.float32)
        parts = [0.3 * rng.standard_normal((3, *size), np.float32) for size in ((96, 64), (96, 64), (64, 96))]
        if kind == "stacked":
            tensors[f"{at}experts.gate_up_proj"] = np.concatenate(parts[:2], axis=1)
            tensors[f"{at}experts.down_proj"] = parts[2]
            continue
        tensors |= {
            f"{at}experts.{j}.{name}.weight": w[j] for name, w in zip(names, parts, strict=True) for j in range(3)
        }
    made.write_folder(path, {"model_type": "mixtral", "num_local_experts": 3, "num_experts_per_tok": 2, **config})
    hc.save(path / "model.safetensors", tensors)
    return path


@pytest.mark.parametrize("kind", ["w1", "gate_proj", "stacked"])
@pytest.mark.sweep(every=4)
def test_a_recipe_by_the_names_of_a_network_serves_its_folder(kind: str, tmp_path: Path) -> None:
    source = experts(tmp_path / "m", {}, kind)
    net = hc.zoo.open_llm(source)
    weights, evaluate = net.search_inputs(IDS)
    plan = hc.ptq.search(weights, ["int8", "int4"], {"bits": 7}, evaluate, "kl")
    plan.save(tmp_path / "recipe.toml")
    assert main(["quantize", str(source), str(tmp_path / "q"), "--recipe", str(tmp_path / "recipe.toml")]) == 0
    packed = {name: hc.quantize(weights[name], plan.recipe[name]) for name in weights}
    assert np.array_equal(hc.zoo.open_llm(tmp_path / "q").logits(IDS), net.logits(IDS, weights=packed))


def test_experts_are_emulated_and_calibrated(tmp_path: Path) -> None:
    net = hc.zoo.open_llm(experts(tmp_path / "m", {}, "w1"))
    packed = net.quantized("int8")
    plain, wide, narrow = (net.logits(IDS, weights=packed, activations="int8", emulate=one)
                           for one in (None, "int32", "int12-sat"))  # fmt: skip
    assert np.abs(wide - plain).max() < 1e-3 * np.abs(plain).max() < 10 * np.abs(narrow - plain).max()
    only = {name: w for name, w in net.quantized("int8").items() if "experts" in name}
    with pytest.raises(ValueError, match="emulate"):  # the other matrices are floats, which no integer unit multiplies
        net.logits(IDS, weights=only, activations="int8", emulate="int12-sat")
    rows = hc.study(net, ["int4-g32"], text=IDS, methods=["rtn", "gptq"]).layers
    lost = {(row["name"], row["method"]): row["sqnr_db"] for row in rows}
    stack = "model.layers.0.block_sparse_moe.experts.gate.weight"
    assert lost[stack, "gptq"] < lost[stack, "rtn"]  # weights move away, so that outputs come nearer


def test_experts_have_the_hessians_of_their_own_tokens(tmp_path: Path) -> None:
    from heterocompute.studies.language import hessians_by_layer

    net = hc.zoo.open_llm(experts(tmp_path / "m", {"num_experts_per_tok": 1}, "gate_proj"))
    names = [name for name in net.matrices if "experts.gate.weight" in name or name.endswith("mlp.gate.weight")]
    layers = list(hessians_by_layer(net, names, IDS))
    for i in range(2):
        whole, each = (layers[i][f"model.layers.{i}.mlp.{part}"] for part in ("gate.weight", "experts.gate.weight"))
        assert each.matrix.shape == (3, 64, 64) and each.tokens < whole.tokens == len(IDS)
        np.testing.assert_allclose(each.matrix.sum(axis=0), whole.matrix, rtol=1e-9)  # one expert for each token


def test_stacks_of_experts_are_calibrated_as_weights_of_a_mapping(tmp_path: Path) -> None:
    """Each expert records its own inputs, so that its outputs under them come nearer."""
    net = hc.zoo.open_llm(experts(tmp_path / "m", {}, "w1"))
    assert not any(".experts.0." in name for name in net.weights)
    with pytest.raises(ValueError, match=r"expected the stack of all experts, '.*experts\.up\.weight'"):
        net.logits(IDS, weights={"model.layers.0.block_sparse_moe.experts.0.w3.weight": np.zeros((96, 64))})

    def run(weights: Any) -> Any:
        return net.logits(IDS, weights=weights)

    found = hc.ptq.quantize(net.weights, run, "int4-g32", include="*experts*")
    assert len(found.table) == 6 and not found.left
    assert all(row["after"] > row["before"] + 3 for row in found.table)
    hessians = hc.ptq.calibrate(net.weights, run, include="*experts.down*")
    h = hessians["model.layers.1.block_sparse_moe.experts.down.weight"]
    h.save(tmp_path / "h.safetensors")
    again = hc.ptq.Hessian.load(tmp_path / "h.safetensors")
    assert again.groups == 3 and again.tokens == h.tokens < len(IDS)
    assert np.array_equal(again.matrix, h.matrix) and np.array_equal(again.mean, h.mean)
    doubled = again + h
    assert doubled.tokens == 2 * h.tokens and np.allclose(doubled.mean, h.mean)


def test_a_matrix_of_a_recording_stack_records_for_its_expert() -> None:
    rng = np.random.default_rng(0)
    stack, x = rng.standard_normal((2, 4, 8)), rng.standard_normal((5, 8))

    def run(weights: Any) -> None:
        first, second = weights["w"]  # as a loop over the experts does
        x[:3] @ first.T
        hc.linear(x[3:], weights["w"][-1])
        assert second[0].sum() == stack[1, 0].sum()

    h = hc.ptq.calibrate({"w": stack}, run)["w"]
    np.testing.assert_allclose(h.matrix[0], x[:3].T @ x[:3], rtol=1e-12)
    np.testing.assert_allclose(h.matrix[1], x[3:].T @ x[3:], rtol=1e-6)
    np.testing.assert_allclose(h.mean[1], x[3:].mean(axis=0), rtol=1e-6)
    assert h.tokens == 3


def test_a_long_prompt_keeps_the_states_of_its_last_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = hc.zoo.open_llm(made.write_gguf(tmp_path / "m.gguf"))
    monkeypatch.setattr(runs, "CHUNK", 16)
    alive: list[Any] = []
    hidden = runs.Run.hidden

    def noted(run: runs.Run, ids: Any) -> Any:
        assert sum(one() is not None for one in alive) <= 1
        found = hidden(run, ids)
        alive.append(weakref.ref(found))
        return found

    wanted = net.logits(np.arange(2, 102))[-1:]
    monkeypatch.setattr(runs.Run, "hidden", noted)
    run = runs.Run(net, runs.RunOptions(), 1)
    assert np.array_equal(run.logits(np.arange(2, 102)[None], last=True)[0], wanted) and len(alive) == 7
