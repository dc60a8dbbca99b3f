"""Quantized folders of models open in every supported layout, with the logits of their values."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import made
import ml_dtypes
import numpy as np
import pytest
from common import run

import heterocompute as hc
from heterocompute.files.checkpoint import dequantize_checkpoint, quantize_checkpoint

IDS = np.arange(2, 40)
PLACES = [
    ("compressed-tensors", "int4-g32-f16"), ("compressed-tensors", "int8"), ("gptq", "int4-g32-f16"),
    ("awq", "int4-g32-asym-f16"), ("bitsandbytes", "nf4-g32"), ("fp8", "fp8_e4m3fn-tensor"), ("modelopt", "nvfp4"),
    ("mlx", "mxfp4"), (None, "vsq4-g16-s4"), (None, "nvfp4"),
]  # fmt: skip


def saved(path: Path, tensors: dict[str, Any], config: dict[str, Any]) -> Path:
    path.mkdir()
    hc.save(path / "model.safetensors", tensors)
    (path / "config.json").write_text(json.dumps({**made.CONFIG, **config}))
    return path


@pytest.mark.parametrize(("layout", "fmt"), PLACES)
@pytest.mark.parametrize("include", [["*proj*"], ["*proj*", "*embed*"]])
@pytest.mark.sweep(every=4)
def test_quantized_folders_are_opened(layout: str | None, fmt: str, include: list[str], tmp_path: Path) -> None:
    net = hc.zoo.open_llm(made.write_folder(tmp_path / "plain"))
    quantize_checkpoint(tmp_path / "plain", tmp_path / "packed", fmt, include=include, layout=layout)
    packed = hc.zoo.open_llm(tmp_path / "packed")
    chosen = [name for name in net.matrices if "proj" in name or len(include) == 2]
    weights = {name: hc.quantize(net.weights[name], fmt, axis=-1) for name in chosen}
    np.testing.assert_array_equal(packed.logits(IDS), net.logits(IDS, weights))
    assert {str(packed.weights[name].format) for name in chosen} == {fmt}


def blocks_of(w: np.ndarray[Any, Any], block: int) -> tuple[Any, Any, Any]:
    """Return float8 codes with one scale per block, and their values."""
    rows, columns = (-(-n // block) for n in w.shape)
    padded = np.zeros((rows * block, columns * block), np.float32)
    padded[: w.shape[0], : w.shape[1]] = w
    tiles = padded.reshape(rows, block, columns, block)
    scales = np.abs(tiles).max(axis=(1, 3)) / np.float32(448)
    codes = (tiles / scales[:, None, :, None]).reshape(padded.shape)[: w.shape[0], : w.shape[1]]
    codes = codes.astype(ml_dtypes.float8_e4m3fn)
    each = scales.repeat(block, 0).repeat(block, 1)[: w.shape[0], : w.shape[1]]
    return codes, scales, codes.astype(np.float32) * each


def test_fp8_in_blocks_is_opened_as_its_values(tmp_path: Path) -> None:
    tensors, values = {}, {}
    for name, w in made.weights().items():
        tensors[name] = values[name] = w
        if "proj" in name:
            tensors[name], tensors[f"{name}_scale_inv"], values[name] = blocks_of(w, 32)
    said = {"quant_method": "fp8", "weight_block_size": [32, 32], "activation_scheme": "dynamic"}
    packed = hc.zoo.open_llm(saved(tmp_path / "fp8", tensors, {"quantization_config": said}))
    plain = hc.zoo.open_llm(saved(tmp_path / "plain", values, {}))
    np.testing.assert_array_equal(packed.logits(IDS), plain.logits(IDS))


def test_columns_in_another_order_than_their_groups_are_opened_as_their_values(tmp_path: Path) -> None:
    made.write_folder(tmp_path / "m")
    quantize_checkpoint(tmp_path / "m", tmp_path / "g", "int4-g32-f16", include=["*proj*"], layout="gptq")
    found = hc.load(next((tmp_path / "g").glob("*.safetensors")))
    rng = np.random.default_rng(0)
    for name in [name for name in found if name.endswith("g_idx")]:
        found[name] = rng.permutation(found[name])
    config = json.loads((tmp_path / "g/config.json").read_text())
    turned = hc.zoo.open_llm(saved(tmp_path / "turned", found, config))
    dequantize_checkpoint(tmp_path / "turned", tmp_path / "plain", layout="gptq")
    plain = hc.zoo.open_llm(tmp_path / "plain")
    np.testing.assert_array_equal(turned.logits(IDS), plain.logits(IDS))


@pytest.mark.parametrize(("layout", "fmt"), [("gptq", "int4-g32-f16"), ("fp8", "fp8_e4m3fn-tensor")])
def test_experts_of_other_programs_are_opened(layout: str, fmt: str, tmp_path: Path) -> None:
    config, rng = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}, np.random.default_rng(1)
    tensors = {name: w for name, w in made.weights().items() if "mlp" not in name}
    for i in range(2):
        at = f"model.layers.{i}.block_sparse_moe."
        tensors[f"{at}gate.weight"] = rng.standard_normal((4, 64), np.float32)
        for expert in range(4):
            for name, shape in (("w1", (96, 64)), ("w3", (96, 64)), ("w2", (64, 96))):
                w = 0.2 * rng.standard_normal(shape, np.float32)
                tensors[f"{at}experts.{expert}.{name}.weight"] = w
    saved(tmp_path / "m", tensors, config)
    quantize_checkpoint(tmp_path / "m", tmp_path / "packed", fmt, include=["*experts*"], layout=layout)
    dequantize_checkpoint(tmp_path / "packed", tmp_path / "plain", layout=layout)
    packed, plain = hc.zoo.open_llm(tmp_path / "packed"), hc.zoo.open_llm(tmp_path / "plain")
    wanted = plain.logits(IDS)
    assert np.abs(packed.logits(IDS) - wanted).max() < 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("fmt", ["int8", "vsq4-g16-s4", "nvfp4"])
def test_stacked_experts_of_this_package_are_opened(fmt: str, tmp_path: Path) -> None:
    """Gate and up are rows of one packed stack."""
    config, rng = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}, np.random.default_rng(1)
    tensors = {name: w for name, w in made.weights().items() if "mlp" not in name}
    for i in range(2):
        at = f"model.layers.{i}.mlp."
        tensors[f"{at}gate.weight"] = rng.standard_normal((4, 64), np.float32)
        tensors[f"{at}experts.gate_up_proj"] = 0.2 * rng.standard_normal((4, 192, 64), np.float32)
        tensors[f"{at}experts.down_proj"] = 0.2 * rng.standard_normal((4, 64, 96), np.float32)
    saved(tmp_path / "m", tensors, config)
    quantize_checkpoint(tmp_path / "m", tmp_path / "packed", fmt, shard_size="50kB")
    dequantize_checkpoint(tmp_path / "packed", tmp_path / "plain")
    packed, plain = hc.zoo.open_llm(tmp_path / "packed"), hc.zoo.open_llm(tmp_path / "plain")
    wanted = plain.logits(IDS)
    assert np.abs(packed.logits(IDS) - wanted).max() < 1e-5 * np.abs(wanted).max()
    assert packed.roles["blk.0.ffn_gate_up_exps.weight"] == "model.layers.0.mlp.experts.gate_up_proj"


def test_a_folder_that_was_quantized_continues_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers")
    made.write_folder(tmp_path / "m")
    assert run(capsys, "quantize", tmp_path / "m", tmp_path / "q", "--format", "int8")[0] == 0
    code, text, _ = run(capsys, "generate", tmp_path / "q", "the cat", "--tokens", "3")
    assert code == 0 and text.startswith("the cat")


@pytest.mark.parametrize(
    ("tensors", "said", "words"),
    [
        ({}, {"quant_method": "heterocompute"}, "HeteroConfig of transformers wrote it: load it by from_pretrained"),
        ({}, {"quant_method": "aqlm"}, "quant_method is 'aqlm', which is not read; expected compressed-tensors"),
        ({"model.layers.0.mlp.up_proj.W_q": np.ones((96, 8), np.uint8),
          "model.layers.0.mlp.up_proj.scale": np.ones((96, 1), np.float32)}, None, "is already quantized, by HQQ"),
        ({"model.layers.0.mlp.up_proj.weight_packed": np.ones((96, 8), np.int32)},
         {"quant_method": "compressed-tensors"}, "m"),
    ],
)  # fmt: skip
def test_layouts_that_are_not_read_are_refused_by_name(
    tensors: dict[str, Any], said: Any, words: str, tmp_path: Path
) -> None:
    held = {**made.weights(), **tensors}
    path = saved(tmp_path / "m", held, {} if said is None else {"quantization_config": said})
    with pytest.raises(ValueError, match=words) as refused:
        hc.zoo.open_llm(path).logits(IDS, weights=None)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("family", ["llama4", "mamba"])
def test_families_that_are_not_known_are_refused_by_name(family: str, tmp_path: Path) -> None:
    made.write_folder(tmp_path / "m", {"model_type": family})
    with pytest.raises(ValueError, match=f"model_type is '{family}', expected one of llama"):
        hc.zoo.open_llm(tmp_path / "m")
    shutil.rmtree(tmp_path / "m")
