"""`heterocompute convert` of a language model reports the files that loaders lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made
import pytest
from common import run

import heterocompute as hc


def model_in_gguf(folder: Path, types: dict[str, str]) -> Path:
    """Return a small language model of llama.cpp."""
    pytest.importorskip("gguf")
    source = made.write_folder(folder / "source")
    hc.quantize_checkpoint(source, folder / "model.gguf", recipe=types, layout="gguf")
    return folder / "model.gguf"


def test_what_a_loader_lacks_is_said(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("tokenizers")
    path = model_in_gguf(tmp_path, {"*embed*": "skip", "*": "q4_0"})
    code, _, errors = run(capsys, "convert", path, tmp_path / "mlx", "--layout", "mlx")
    assert code == 0 and "tokenizer" not in errors
    code, _, errors = run(capsys, "convert", tmp_path / "mlx", tmp_path / "back.gguf", "--layout", "gguf")
    assert code == 0 and "no runtime" not in errors
    with hc.open_checkpoint(path) as first, hc.open_checkpoint(tmp_path / "back.gguf") as second:
        keys = {key for key in first.metadata if key.startswith("tokenizer.")}
        assert keys and all(first.metadata[key] == second.metadata[key] for key in keys)
    (tmp_path / "mlx" / "tokenizer.json").unlink()
    code, _, errors = run(capsys, "convert", tmp_path / "mlx", tmp_path / "back.gguf", "--overwrite")
    assert code == 0 and "no runtime will load this file" in errors and "tokenizer.json is missing" in errors
    (tmp_path / "mlx" / "tokenizer.json").write_bytes((tmp_path / "source" / "tokenizer.json").read_bytes())
    code, _, errors = run(capsys, "convert", tmp_path / "mlx", tmp_path / "back.gguf", "--overwrite")
    assert code == 0 and "no runtime" not in errors
    code, _, errors = run(capsys, "convert", path, tmp_path / "a.safetensors", "--layout", "gptq")
    assert code == 0 and "give OUT the name of a folder" in errors
    code, _, errors = run(capsys, "convert", path, tmp_path / "same.gguf", "--layout", "gguf")
    assert code == 0 and "no runtime" not in errors and "tokenizer" not in errors
