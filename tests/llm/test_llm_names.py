"""GGUF under the names of Hugging Face and back: tensors, order of rows, config.json."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from test_llm_llama_cpp import FAMILIES, MIXTURES, folder_of

import heterocompute as hc
from heterocompute.files.checkpoint import dequantize_checkpoint, quantize_checkpoint
from heterocompute.files.convert import convert_checkpoint

pytest.importorskip("gguf")


def plain_of(path: Path) -> Path:
    dequantize_checkpoint(path, path.parent / "plain")
    return path.parent / "plain"


def copy_tokenizer(folder: Path, out: Path) -> None:
    for path in folder.glob("*token*.json"):
        shutil.copy(path, out)


def test_a_gguf_file_gets_names_rows_and_a_configuration(tmp_path: Path) -> None:
    path = made.write_gguf(tmp_path / "m.gguf", "q8_0")
    summary = convert_checkpoint(path, tmp_path / "out", "compressed-tensors")
    assert {row["name"] for row in summary["tensors"]} == set(made.weights())
    assert {row["status"] for row in summary["tensors"]} == {"closed form", "copied"}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    wanted = {
        key: made.CONFIG[key] for key in ("hidden_size", "num_hidden_layers", "num_key_value_heads", "model_type")
    }
    assert {key: config[key] for key in wanted} == wanted
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"
    found = hc.open_checkpoint(plain_of(tmp_path / "out"))
    for name, w in made.weights().items():
        values = w if w.ndim == 1 else hc.fake_quantize(w, "q8_0")
        assert np.array_equal(found[name], values), name
    ids = np.arange(2, 22)[None]
    logits, wanted = hc.zoo.open_llm(tmp_path / "plain").logits(ids), hc.zoo.open_llm(path).logits(ids)
    assert np.abs(logits - wanted).max() <= 40 * np.finfo(np.float32).eps * np.abs(wanted).max()


def test_a_folder_gets_the_names_of_llama_cpp_again(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    folder = made.write_folder(tmp_path / "in")
    quantize_checkpoint(folder, tmp_path / "m.gguf", "q8_0", layout="gguf")
    convert_checkpoint(tmp_path / "m.gguf", tmp_path / "out", "compressed-tensors")
    copy_tokenizer(folder, tmp_path / "out")
    convert_checkpoint(tmp_path / "out", tmp_path / "back.gguf", "gguf")
    with hc.open_checkpoint(tmp_path / "m.gguf") as first, hc.open_checkpoint(tmp_path / "back.gguf") as second:
        assert set(first) == set(second)
        assert all(first[name].tobytes() == second[name].tobytes() for name in first)
        assert all(value == second.metadata[key] or key == "general.name" for key, value in first.metadata.items())


def test_without_a_known_family_names_stay(tmp_path: Path) -> None:
    keys = {"general.architecture": "mamba"}
    path = made.write_gguf(tmp_path / "m.gguf", "q8_0", keys)
    summary = convert_checkpoint(path, tmp_path / "out", "compressed-tensors")
    assert "blk.0.attn_q.weight" in {row["name"] for row in summary["tensors"]}
    path = made.write_gguf(tmp_path / "n.gguf", "q8_0", strange__weight=np.ones((2, 32), np.float32))
    summary = convert_checkpoint(path, tmp_path / "more", "compressed-tensors")
    assert "blk.0.attn_q.weight" in {row["name"] for row in summary["tensors"]}


LISTED = ("mixtral", "qwen3_moe", "qwen2_moe", "olmoe", "glm4_moe")  # with a matrix of each expert


@pytest.mark.sweep(every=5)
@pytest.mark.parametrize("family", [name for name in (*FAMILIES, *LISTED) if name != "gpt2"])  # its matrices are turned
def test_transformers_loads_what_was_gguf(family: str, tmp_path: Path) -> None:
    """The logits are those of the GGUF file, and a file written from the folder has the same tensors."""
    folder, _ = folder_of(tmp_path / "in", family)
    import torch
    import transformers

    path = tmp_path / "m.gguf"
    quantize_checkpoint(folder, path, "q8_0", layout="gguf")
    convert_checkpoint(path, tmp_path / "out", "compressed-tensors")
    options: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager"}
    model = transformers.AutoModelForCausalLM.from_pretrained(plain_of(tmp_path / "out"), **options).eval()
    ids = np.random.default_rng(0).integers(0, 90, (2, 40))
    with torch.no_grad():
        found = model(torch.tensor(ids)).logits.numpy()
    wanted = hc.zoo.open_llm(path).logits(ids)
    assert np.abs(found - wanted).max() <= 40 * np.finfo(np.float32).eps * max(np.abs(wanted).max(), 1.0)
    copy_tokenizer(folder, tmp_path / "out")
    convert_checkpoint(tmp_path / "out", tmp_path / "back.gguf", "gguf")
    first, second = hc.open_checkpoint(path), hc.open_checkpoint(tmp_path / "back.gguf")
    assert set(first) == set(second) and all(first[one].tobytes() == second[one].tobytes() for one in first)


@pytest.mark.parametrize(("family", "words"), [
    ("gpt2", "matrices of gpt2 are stored as"), ("gpt_oss", "matrices of gpt_oss are stored as"),
    ("granitemoe", "gate and up of the experts of granitemoe are one stack"),
])  # fmt: skip
def test_names_stay_where_tensors_have_another_form(family: str, words: str, tmp_path: Path) -> None:
    folder, _ = folder_of(tmp_path / "in", family)
    quantize_checkpoint(folder, tmp_path / "m.gguf", "q8_0", layout="gguf")
    summary = convert_checkpoint(tmp_path / "m.gguf", tmp_path / "out", "compressed-tensors")
    assert words in str(summary) and family in {**FAMILIES, **MIXTURES}
    assert "blk.0.attn_norm.weight" in {row["name"] for row in summary["tensors"]}
