"""Commands by the file of a language model alone: `convert` reports the files that loaders lack, the others run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made
import pytest
from common import run
from test_llm_llama_cpp import FAMILIES, MIXTURES, folder_of

import heterocompute as hc
from heterocompute import hardware as hw


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


@pytest.mark.sweep(every=5)
@pytest.mark.parametrize("family", [*FAMILIES, *MIXTURES, "opt", "phimoe"])
def test_commands_run_each_family_by_its_file(family: str, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("jinja2")
    kind, options = {**made.FAMILIES, **FAMILIES, **MIXTURES}[family]
    options = {**options, "num_hidden_layers": options.get("num_hidden_layers", 2)}
    folder, _ = folder_of(tmp_path / "in", family, options, kind)
    (folder / "chat_template.jinja").write_text("{{ messages[-1]['content'] }}: ")
    files = [folder]
    if family not in ("opt", "phimoe"):  # llama.cpp has no architecture for these
        command = "quantize", folder, tmp_path / "m.gguf", "--layout", "gguf", "--format", "q8_0"
        code, _, errors = run(capsys, *command)
        assert code == 0 and "no runtime" not in errors, errors
        files.append(tmp_path / "m.gguf")
    (tmp_path / "t.txt").write_text(made.TEXT)
    if family.startswith("deepseek"):
        assert len({hw.as_network(path).params for path in files}) == 1
    for path in files:
        for command in (
            ("generate", path, "the cat", "--tokens", "4"), ("count", path), ("roofline", path, "h100-sxm"),
            ("study", path, "--text", tmp_path / "t.txt", "--formats", "int8", "--activations", "int8"),
        ):  # fmt: skip
            code, text, errors = run(capsys, *command)
            assert code == 0 and text, (command[0], path, errors)
        net = hc.zoo.open_llm(path)
        assert isinstance(net.generate(messages=[{"role": "user", "content": "the cat"}], tokens=3), str)
