"""Options for reading and writing files: names of dtypes, axes, types of GGUF, indices of variants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import run

import heterocompute as hc
from heterocompute.files.checkpoint import quantize_checkpoint

W = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)


@pytest.mark.parametrize("text, wanted", [
    ("fp32", "float32"), ("float", "float32"), ("fp16", "float16"), ("half", "float16"), ("bf16", "bfloat16"),
    ("double", "float64"), ("float16", "float16"),
])  # fmt: skip
def test_dtypes_have_the_names_of_formats_too(text: str, wanted: str, tmp_path: Path, capsys: Any) -> None:
    hc.save(tmp_path / "q.safetensors", {"fc.weight": hc.quantize(W, "int8")})
    code, _, errors = run(capsys, "dequantize", tmp_path / "q.safetensors", tmp_path / "p.safetensors", "--dtype", text)
    assert code == 0 and "many bits" not in errors
    assert hc.load(tmp_path / "p.safetensors")["fc.weight"].dtype.name == wanted


def test_axes_of_the_command(tmp_path: Path, capsys: Any) -> None:
    hc.save(tmp_path / "w.safetensors", {"fc.weight": W})
    paths = tmp_path / "w.safetensors", tmp_path / "q.safetensors"
    assert run(capsys, "quantize", *paths, "--format", "int8", "--axis", "0")[0] == 0
    assert hc.load(paths[1])["fc.weight"] == hc.quantize(W, "int8", axis=0)
    assert run(capsys, "quantize", *paths, "--format", "int8", "--axis", "0,1", "--overwrite")[0] == 0
    assert hc.load(paths[1])["fc.weight"].axis == (0, 1)
    code, _, errors = run(capsys, "quantize", *paths, "--format", "int8", "--axis", "x")
    assert code == 2 and "expected integers such as -1 or 2,3,1" in errors


def test_another_type_can_be_refused(tmp_path: Path, capsys: Any) -> None:
    hc.save(tmp_path / "w.safetensors", {"fc.weight": W})
    paths = tmp_path / "w.safetensors", tmp_path / "w.gguf"
    with pytest.raises(ValueError, match="tensor 'fc.weight': rows of 64 values, q4_k has blocks of 256: q5_0 fits"):
        quantize_checkpoint(*paths, "q4_k", layout="gguf", fallback=False)
    assert not paths[1].exists()
    pytest.importorskip("gguf")
    assert run(capsys, "quantize", *paths, "--format", "q8_0", "--layout", "gguf", "--no-fallback")[0] == 0


def test_the_index_of_a_variant(tmp_path: Path) -> None:
    parts = {"a.weight": "model.fp16-00001-of-00002.safetensors", "b.weight": "model.fp16-00002-of-00002.safetensors"}
    for name, part in parts.items():
        hc.save(tmp_path / part, {name: W})
    index = tmp_path / "model.safetensors.index.fp16.json"
    index.write_text(json.dumps({"weight_map": parts}))
    for path in (tmp_path, index):
        with hc.open_checkpoint(path) as found:
            assert list(found) == list(parts) and np.array_equal(found["b.weight"], W)
    hc.save(tmp_path / "c.safetensors", {"c.weight": W})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"c.weight": "c.safetensors"}}))
    with hc.open_checkpoint(tmp_path) as found:
        assert list(found) == ["c.weight"]
    (tmp_path / "model.safetensors.index.json").unlink()
    (tmp_path / "model.safetensors.index.bf16.json").write_text(index.read_text())
    with pytest.raises(ValueError, match="index.bf16.json', 'model.safetensors.index.fp16.json'"):
        hc.open_checkpoint(tmp_path)
