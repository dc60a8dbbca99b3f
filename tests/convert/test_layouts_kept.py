"""Layouts keep plain what their loaders expect plain, and loaders of transformers accept the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute.files.checkpoint import dequantize_checkpoint
from heterocompute.files.layouts.table import LAYOUTS

NAMES = {
    "language_model.model.embed_tokens.weight": "embedding",
    "language_model.lm_head.weight": "output layer",
    "vision_tower.encoder.layers.0.fc1.weight": "vision tower",
    "multi_modal_projector.linear_1.weight": "vision tower",
    "language_model.model.layers.0.mlp.up_proj.weight": None,
}
ARRAYS = {name: np.random.default_rng(0).standard_normal((128, 256), np.float32) for name in NAMES}


@pytest.mark.parametrize("name", [name for name, one in LAYOUTS.items() if one.examples and not one.is_file])
def test_every_layout_of_tensors_keeps_the_same_parts_plain(tmp_path: Path, name: str) -> None:
    layout = LAYOUTS[name]
    if layout.only_stacks:
        pytest.skip("stores stacks of experts alone")
    hc.save(tmp_path / "in.safetensors", ARRAYS)
    summary = hc.quantize_checkpoint(tmp_path / "in.safetensors", tmp_path / "out", layout.examples[0], layout=name)
    kept = {name: part for name, part in NAMES.items() if part in layout.keeps}
    assert summary["kept"] == kept and {*kept} == {row["name"] for row in summary["tensors"] if row["format"] is None}
    assert all(isinstance(hc.load(tmp_path / "out")[one], np.ndarray) for one in kept)


def test_include_and_names_in_a_recipe_quantize_them(tmp_path: Path) -> None:
    hc.save(tmp_path / "in.safetensors", ARRAYS)
    first, *_, last = NAMES

    def packed(out: str, fmt: str | None = "int8", **options: Any) -> set[str]:
        found = hc.quantize_checkpoint(
            tmp_path / "in.safetensors", tmp_path / out, fmt, layout="compressed-tensors", **options
        )
        return {row["name"] for row in found["tensors"] if row["format"] is not None}

    assert packed("a", include=[first, "*.layers.*"], exclude="vision*") == {first, last}
    assert packed("b", include="*") == {*NAMES}
    assert packed("c", recipe={first: "int4-g32-f16", "*tower*": "int4-g32-f16"}) == {first, last}
    assert packed("d", "bf16") == {*NAMES}  # plain values
    with pytest.raises(ValueError, match="no weight is packed"):
        packed("e", exclude=["*.layers.*", "*projector*"])


def test_a_vision_tower_alone_is_quantized(tmp_path: Path) -> None:
    hc.save(tmp_path / "in.safetensors", {name: ARRAYS[name] for name in NAMES if "tower" in name})
    found = hc.quantize_checkpoint(tmp_path / "in.safetensors", tmp_path / "out", "int8", layout="compressed-tensors")
    assert not found["kept"] and found["tensors"][0]["format"] == "int8"


@pytest.mark.parametrize("tied", [False, True])
def test_transformers_loads_a_folder_that_was_written_by_default(tmp_path: Path, tied: bool) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=tied,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "in")
    hc.quantize_checkpoint(tmp_path / "in", tmp_path / "out", "int4-g32-f16", layout="compressed-tensors")
    dequantize_checkpoint(tmp_path / "out", tmp_path / "plain")
    logits = []
    for name in ("out", "plain"):
        model = transformers.LlamaForCausalLM.from_pretrained(tmp_path / name, dtype=torch.float32).eval()
        with torch.no_grad():
            logits.append(model(torch.arange(2, 20)[None]).logits)
    assert torch.equal(*logits)


@pytest.mark.parametrize("kind", ["llava", "qwen2_vl"])
def test_transformers_finds_the_scales_of_a_model_whose_parts_it_moves(tmp_path: Path, kind: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")
    torch.manual_seed(0)
    text = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64}  # fmt: skip
    made: Any
    if kind == "llava":
        vision = {"model_type": "clip_vision_model", "hidden_size": 64, "intermediate_size": 64, "image_size": 28,
                  "num_hidden_layers": 1, "num_attention_heads": 4, "patch_size": 14, "projection_dim": 64}  # fmt: skip
        made, config = transformers.LlavaForConditionalGeneration, transformers.LlavaConfig(
            vision_config=vision, text_config={"model_type": "llama", **text}, image_token_index=95
        )  # fmt: skip
    else:
        rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
        made, config = transformers.Qwen2VLForConditionalGeneration, transformers.Qwen2VLConfig(
            text_config={**text, "rope_parameters": rope},
            vision_config={"depth": 1, "embed_dim": 64, "hidden_size": 64, "num_heads": 4, "mlp_ratio": 1},
        )  # fmt: skip
    made(config).save_pretrained(tmp_path / "in")
    recipe = {"*layers.1.mlp.down_proj.weight": "int4-g32-f16", "*": "int8"}
    found = hc.quantize_checkpoint(tmp_path / "in", tmp_path / "out", recipe=recipe, layout="compressed-tensors",
                                   exclude=["*lm_head*", "*embed*", "*vis*", "*projector*"])  # fmt: skip
    assert sum(row["format"] is not None for row in found["tensors"]) == 14
    dequantize_checkpoint(tmp_path / "out", tmp_path / "plain")
    logits = []
    for name in ("out", "plain"):
        model, report = made.from_pretrained(tmp_path / name, dtype=torch.float32, output_loading_info=True)
        assert not report["missing_keys"] and not report["unexpected_keys"]
        with torch.no_grad():
            logits.append(model.eval()(torch.arange(2, 20)[None]).logits)
    assert torch.equal(*logits)


@pytest.mark.parametrize("name", [name for name, one in LAYOUTS.items() if one.examples and "router" in one.keeps])
@pytest.mark.parametrize("router", ["block_sparse_moe.gate", "mlp.gate", "mlp.router", "mlp.shared_expert_gate"])
def test_routers_are_plain_in_every_layout_of_tensors(tmp_path: Path, name: str, router: str) -> None:
    layout, rng = LAYOUTS[name], np.random.default_rng(len(router))
    if layout.only_stacks or layout.is_file:
        pytest.skip("stores no matrices in a folder")
    block = f"model.layers.0.{router.partition('.')[0]}."
    gate = f"model.layers.0.{router}.weight"
    experts = [f"{block}experts.{i}.{part}_proj.weight" for i in range(2) for part in ("up", "gate")]
    arrays = {key: rng.standard_normal((256, 128), np.float32) for key in (gate, *experts)}
    arrays["model.layers.1.mlp.gate.weight"] = arrays[gate]  # a gate without experts is a matrix
    hc.save(tmp_path / "in.safetensors", arrays)
    found = hc.quantize_checkpoint(tmp_path / "in.safetensors", tmp_path / "out", layout.examples[0], layout=name)
    assert found["kept"] == {gate: "router"} and isinstance(hc.load(tmp_path / "out")[gate], np.ndarray)
    found = hc.quantize_checkpoint(
        tmp_path / "in.safetensors", tmp_path / "all", layout.examples[0], layout=name, include="*"
    )
    assert not found["kept"] and all(row["format"] is not None for row in found["tensors"])


@pytest.mark.parametrize("seed", range(2))
def test_transformers_loads_the_experts_of_a_mixture(tmp_path: Path, seed: int) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")
    torch.manual_seed(seed)
    base = {"vocab_size": 96, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1,
            "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts_per_tok": 2}  # fmt: skip
    made: Any = transformers.MixtralForCausalLM
    config = transformers.MixtralConfig(**base, num_local_experts=4)
    if seed:
        made = transformers.Qwen3MoeForCausalLM
        config = transformers.Qwen3MoeConfig(**base, moe_intermediate_size=128, num_experts=4, head_dim=32)
    made(config).save_pretrained(tmp_path / "in")
    hc.quantize_checkpoint(tmp_path / "in", tmp_path / "out", "int4-g128-f16", layout="compressed-tensors")
    dequantize_checkpoint(tmp_path / "out", tmp_path / "plain")
    models = [made.from_pretrained(tmp_path / name, dtype=torch.float32) for name in ("out", "plain")]
    mine, exact = (dict(model.named_parameters()) for model in models)
    experts = [name for name in exact if "experts" in name]
    assert experts
    for name in experts:  # transformers unpacks them as it loads, and rounds them to float16
        assert bool(((mine[name] - exact[name]).abs() <= 2.0**-11 * exact[name].abs() + 2.0**-25).all()), name
    for name in ("lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"):
        assert torch.equal(mine[name], exact[name])
