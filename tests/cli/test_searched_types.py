"""`quantize` to IQ1 to IQ3 of ggml with the importance matrix of llama-imatrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute.cli.command import main

pytest.importorskip("gguf")

EMBEDDING, QUERY = "token_embd.weight", "blk.0.attn_q.weight"


def written(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Write a folder's worth of tensors as one file, and the importance of the query."""
    rng = np.random.default_rng(3)
    weights: dict[str, Any] = {name: rng.standard_normal((3, 256), dtype=np.float32) for name in (EMBEDDING, QUERY)}
    weights["blk.0.attn_norm.weight"] = np.ones(256, np.float32)
    hc.save(folder / "in.safetensors", weights)
    sums = 4 * rng.random((1, 256), dtype=np.float32)
    matrix = {f"{QUERY}.in_sum2": sums, f"{QUERY}.counts": np.full((1, 1), 4, np.float32)}
    hc.save_gguf(folder / "imatrix.gguf", matrix, {"general.type": "imatrix"}, {"*": "f32"})
    return folder / "in.safetensors", {**weights, "importance": sums[0] / 4}


@pytest.mark.parametrize("kind", ["iq1_s", "iq2_xs", "iq3_s"])
def test_the_command_writes_the_blocks_of_save_gguf(kind: str, tmp_path: Path) -> None:
    path, given = written(tmp_path)
    importance = given.pop("importance")
    assert main(["quantize", str(path), str(tmp_path / "out.gguf"), "--format", kind, "--importance",
                 str(tmp_path / "imatrix.gguf")]) == 0  # fmt: skip
    found = hc.save_gguf(tmp_path / "wanted.gguf", given, None, {EMBEDDING: "q5_k", "*": kind}, {QUERY: importance})
    assert found == {EMBEDDING: "q5_k", QUERY: kind, "blk.0.attn_norm.weight": "f32"}
    assert (tmp_path / "out.gguf").read_bytes() == (tmp_path / "wanted.gguf").read_bytes()


def test_importance_changes_blocks_and_patterns_choose_them(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    made = {}
    for name, more in {"none": {}, "with": {"importance": tmp_path / "imatrix.gguf"}}.items():
        out, recipe = tmp_path / f"{name}.gguf", {"blk.*": "iq3_s"}
        report = hc.quantize_checkpoint(path, out, recipe=recipe, layout="gguf", **more)
        made[name] = out.read_bytes()
        kinds = {row["name"]: row["format"] for row in report["tensors"]}
        assert kinds == {EMBEDDING: None, QUERY: "iq3_s", "blk.0.attn_norm.weight": None}
        assert report["bytes"] == 3 * 110 + 4 * (3 * 256 + 256)
    assert made["none"] != made["with"] and len(made["none"]) == len(made["with"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"format": "iq2_xs", "layout": "gguf"}, "iq2_xs of 'blk.0.attn_q.weight' needs its importance"),
        ({"format": "iq2_xs"}, "format is iq2_xs, which only layout 'gguf' has"),
        ({"format": "int8", "importance": "x.gguf", "layout": "gptq"}, "importance is given, which only layout 'gguf'"),
        ({"format": "iq3_s", "layout": "gguf", "fake": True}, "fake, consume, part or axis is given"),
    ],
)
def test_what_is_missing_is_said(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    out = tmp_path / ("out.gguf" if options.get("layout") == "gguf" else "out.safetensors")
    with pytest.raises(ValueError, match=words):
        hc.quantize_checkpoint(path, out, **options)
    assert not out.exists()


def test_importance_of_another_model_is_refused(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    matrix = {"other.weight.in_sum2": np.ones((1, 256), np.float32), "other.weight.counts": np.ones((1, 1), np.float32)}
    hc.save_gguf(tmp_path / "other.gguf", matrix, {"general.type": "imatrix"}, {"*": "f32"})
    with pytest.raises(ValueError, match="has importance for 'other.weight' and others, none of which"):
        hc.quantize_checkpoint(path, tmp_path / "o.gguf", "iq3_s", layout="gguf", importance=tmp_path / "other.gguf")


def test_blocks_are_rounded_again_only_if_asked(tmp_path: Path) -> None:
    path, given = written(tmp_path)
    given.pop("importance")
    hc.save_gguf(tmp_path / "q8.gguf", given, None, {"*": "q8_0"})
    with pytest.raises(ValueError, match="already quantized.*requantize"):
        hc.quantize_checkpoint(tmp_path / "q8.gguf", tmp_path / "o.gguf", "iq3_s", layout="gguf")
    assert hc.quantize_checkpoint(tmp_path / "q8.gguf", tmp_path / "o.gguf", "iq3_s", layout="gguf", requantize=True)


def test_rows_that_are_not_whole_blocks_get_another_type_or_an_error(tmp_path: Path) -> None:
    path, given = written(tmp_path)
    given.pop("importance")
    hc.save(path, {**given, "blk.0.odd.weight": np.ones((3, 96), np.float32)})
    more: dict[str, Any] = {"layout": "gguf", "importance": tmp_path / "imatrix.gguf", "recipe": {"*odd*": "q4_k"}}
    found = hc.quantize_checkpoint(path, tmp_path / "o.gguf", "iq2_xs", **more)
    assert found["instead"] == {"blk.0.odd.weight": "q4_k"}
    with pytest.raises(ValueError, match="'blk.0.odd.weight': rows of 96 values, which are not whole blocks of q4_k"):
        hc.quantize_checkpoint(path, tmp_path / "p.gguf", "iq2_xs", fallback=False, **more)
    assert not (tmp_path / "p.gguf").exists()


def test_importance_of_another_width_is_refused(tmp_path: Path) -> None:
    path, _ = written(tmp_path)
    matrix = {f"{QUERY}.in_sum2": np.ones((1, 128), np.float32), f"{QUERY}.counts": np.ones((1, 1), np.float32)}
    hc.save_gguf(tmp_path / "other.gguf", matrix, {"general.type": "imatrix"}, {"*": "f32"})
    with pytest.raises(ValueError, match=r"'blk.0.attn_q.weight' has shape \(1, 128\), expected \(256,\)"):
        hc.quantize_checkpoint(path, tmp_path / "o.gguf", "iq3_s", layout="gguf", importance=tmp_path / "other.gguf")
