"""A rotated language model gives the same results; its residual stream has no outliers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from test_llm_network import made_network

import heterocompute as hc

IDS = np.random.default_rng(0).integers(2, 96, 60)


def outlying(path: Path) -> Any:
    """Return a network in which two residual values are 30 times as large as the others."""
    tensors = made.gguf_tensors()
    for name, w in tensors.items():
        if name == "token_embd.weight":
            w[:, [3, 40]] *= 30
        elif "attn_output" in name or "ffn_down" in name:
            w[[3, 40]] *= 30
    return hc.zoo.open_llm(made.write_gguf(path, **{name.replace(".", "__"): w for name, w in tensors.items()}))


@pytest.mark.parametrize("seed", [0, 7])
def test_a_rotated_network_computes_what_it_did(tmp_path: Path, seed: int) -> None:
    net = outlying(tmp_path / "m.gguf")
    turned = hc.ptq.rotate(net, seed)
    wanted = net.logits(IDS)
    assert np.abs(turned.logits(IDS) - wanted).max() < 3e-5 * np.abs(wanted).max()
    assert turned.tables == ["token_embd.weight", "output.weight"] and len(turned.matrices) == len(net.matrices) + 1
    assert (turned.weights["blk.0.attn_norm.weight"] == 1).all()
    assert repr(turned) == repr(net)


def test_few_bits_of_activations_lose_less(tmp_path: Path) -> None:
    net = outlying(tmp_path / "m.gguf")
    turned = hc.ptq.rotate(net)
    lost = []
    for one in (net, turned):
        way = (one.quantized("int8"), "int4", "int4")
        lost.append(one.judged(IDS, [way], compare=True)[0]["kl"])
    assert lost[1] < lost[0] / 2


def test_experts_biases_and_outputs_of_their_own_are_rotated(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    keys = {"llama.expert_count": 2, "llama.expert_used_count": 1}
    tensors: dict[str, Any] = {"output.weight": rng.standard_normal((264, 64)).astype(np.float32)}
    one = made.gguf_tensors()
    tensors["output.weight"] = tensors["output.weight"][: len(one["token_embd.weight"])]
    for i in range(2):
        tensors[f"blk.{i}.ffn_gate_inp.weight"] = rng.standard_normal((2, 64)).astype(np.float32)
        for part, rows in (("attn_q", 64), ("attn_v", 32), ("attn_output", 64)):
            tensors[f"blk.{i}.{part}.bias"] = rng.standard_normal(rows).astype(np.float32)
        for part in ("ffn_gate", "ffn_up", "ffn_down"):
            w = one[f"blk.{i}.{part}.weight"]
            tensors |= {f"blk.{i}.{part}.weight": None, f"blk.{i}.{part}_exps.weight": np.stack([w, 2 * w[::-1]])}
    path = made.write_gguf(tmp_path / "e.gguf", keys=keys, **{k.replace(".", "__"): w for k, w in tensors.items()})
    net = hc.zoo.open_llm(path)
    wanted = net.logits(IDS)
    assert np.abs(hc.ptq.rotate(net).logits(IDS) - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_families_that_cannot_be_rotated_are_refused(tmp_path: Path) -> None:
    net = hc.zoo.open_llm(made.write_gguf(tmp_path / "m.gguf"))
    object.__setattr__(net.shape, "family", "gemma3")
    for other in (None, np.ones((4, 4), np.float32)):
        with pytest.raises(TypeError, match="expected a network of hc.zoo.open_llm"):
            hc.ptq.rotate(other)
    with pytest.raises(ValueError, match="network is gemma3, whose norms behind attention"):
        hc.ptq.rotate(net)


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "gemma2", "gpt2", "deepseek_v2"])
def test_weights_with_had_are_their_decoded_values(family: str, tmp_path: Path) -> None:
    net = made_network(tmp_path, family)
    ids = np.random.default_rng(0).integers(0, 128, (2, 12))
    packed = net.quantized("int4-g16+had16")
    decoded = {name: q.dequantize() for name, q in packed.items()}
    found, wanted = net.logits(ids, weights=packed), net.logits(ids, weights=decoded)
    assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()
    assert net.generate(ids[:, :6], 4, weights=packed, activations="int8").shape == (2, 4)
    with pytest.raises(ValueError, match="the rotated axis has [0-9]+ values, expected a multiple of 256"):
        net.quantized("int4-g16+had256")
