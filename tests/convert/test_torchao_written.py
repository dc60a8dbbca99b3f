"""Integers written as torchao stores them: the values by its definitions, and by torchao where it is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute.files.opening import reader_of

RNG = np.random.default_rng(23)
FORMATS = ["int4-g32", "int4-g64-f16", "int4-g32-asym-f16", "int4", "int8-g32", "int3-g64-asym-f16", "int6-g16",
           "int2-g32-asym", "int8-asym", "int5-f16"]  # fmt: skip


def by_definition(parts: dict[str, Any], said: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return the values of a weight, as `torchao.quantization` defines them."""
    data, codes = said["_data"], parts["fc._weight_qdata"]
    scales, zeros = (parts[f"fc._weight_{end}"].astype(np.float32) for end in ("scale", "zero_point"))
    group = data["block_size"][1]
    if said["_type"] == "Int4Tensor":
        halves = codes.view(np.uint8)
        nibbles = np.stack([halves & 15, halves >> 4], -1).reshape(data["shape"]).astype(np.int32)
        signed = np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.float32)
        return signed * np.repeat(scales.T, group, 1) + np.repeat(zeros.T, group, 1)
    limit = 1 << (int(data["target_dtype"]["_data"].removeprefix("int")) - 1)
    assert codes.min() >= -limit and codes.max() < limit
    return (codes.astype(np.float32) - np.repeat(zeros, group, 1)) * np.repeat(scales, group, 1)


@pytest.mark.parametrize("fmt", FORMATS)
def test_values_are_those_of_torchao(fmt: str, tmp_path: Path) -> None:
    q = hc.quantize(RNG.standard_normal((24, 192), dtype=np.float32), fmt)
    path = tmp_path / "a.safetensors"
    hc.save(path, {"fc.weight": q, "fc.bias": np.ones(24, np.float32)}, layout="torchao")
    with reader_of(str(path)) as reader:
        metadata = dict(reader.metadata)
    parts = dict(hc.load(path))
    said = json.loads(metadata["fc.weight"])
    assert said["_type"] == ("Int4Tensor" if q.format.bits == 4 else "IntxUnpackedToInt8Tensor")
    assert sorted(json.loads(metadata["tensor_names"])) == ["fc.bias", "fc.weight"]
    assert np.array_equal(by_definition(parts, said), q.dequantize())
    back = hc.load(path, layout="torchao")
    assert np.array_equal(back["fc.weight"].dequantize(), q.dequantize())
    assert back["fc.weight"].format == q.format or fmt == "int4-g32-asym-f16"  # its float32 scales are read
    assert np.array_equal(back["fc.bias"], np.ones(24))
    support = pytest.importorskip("torchao.prototype.safetensors.safetensors_support")
    torch = pytest.importorskip("torch")
    loaded, left = support.unflatten_tensor_state_dict(
        {key: torch.from_numpy(np.asarray(value).copy()) for key, value in parts.items()}, metadata
    )
    assert not left and loaded["fc.weight"].shape == (24, 192)
    if q.format.bits != 4:  # int4 needs a GPU
        assert np.array_equal(loaded["fc.weight"].dequantize().numpy(), q.dequantize())


def test_a_folder_describes_each_weight_in_all_files(tmp_path: Path) -> None:
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in range(4)]
    tensors = {name: RNG.standard_normal((64, 64), dtype=np.float32) for name in names}
    tensors |= {"model.norm.weight": np.ones(64, np.float32), "lm_head.weight": np.ones((8, 64), np.float32)}
    (tmp_path / "in").mkdir()
    hc.save(tmp_path / "in/model.safetensors", tensors)
    (tmp_path / "in/config.json").write_text(json.dumps({"model_type": "llama"}))
    hc.quantize_checkpoint(tmp_path / "in", tmp_path / "out", "int4-g32", layout="torchao", shard_size="12kB")
    files = sorted((tmp_path / "out").glob("*.safetensors"))
    assert len(files) > 1
    for file in files:
        with reader_of(str(file)) as reader:
            metadata = reader.metadata
            assert all(json.loads(metadata[name])["_type"] == "Int4Tensor" for name in names)
            assert json.loads(metadata["model.norm.weight"]) == {"_type": "Tensor"}
            assert set(json.loads(metadata["tensor_names"])) == set(tensors)
    config = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "torchao" and config["modules_to_not_convert"] == ["lm_head"]
    assert "__metadata__" not in (tmp_path / "out/config.json").read_text()
    found = hc.load(tmp_path / "out", layout="torchao")
    for name in names:
        assert found[name] == hc.quantize(tensors[name], "int4-g32")
    summary = hc.convert_checkpoint(tmp_path / "out", tmp_path / "gptq", "gptq", lossy="int4-g32-f16")
    assert summary["written"]


@pytest.mark.parametrize(
    ("fmt", "shape", "words"),
    [
        ("int4-g32-asym", (8, 64), "int4-g32-asym-f16 is the nearest"),
        ("mxfp4", (8, 64), "is the nearest"),
        ("int4-g9", (8, 9), "two codes in a byte"),
        ("int4-g32", (2, 8, 64), "matrices"),
    ],
)
def test_other_weights_are_refused(fmt: str, shape: tuple[int, ...], words: str, tmp_path: Path) -> None:
    q = hc.quantize(RNG.standard_normal(shape, dtype=np.float32), fmt)
    with pytest.raises(ValueError, match=words):
        hc.save(tmp_path / "a.safetensors", {"fc.weight": q}, layout="torchao")
