"""Stacks of experts in the layout of MLX: 3-D words, scales and biases, with settings for single layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.files.checkpoint import dequantize_checkpoint

RNG = np.random.default_rng(0)
NAME = "model.layers.0.mlp.switch_mlp.up_proj"


def words_of(codes: Any, bits: int) -> Any:
    """Return codes in words of 32 bits, little end first, dense along the last axis."""
    flat = ((codes[..., None] >> np.arange(bits)) & 1).astype(np.uint8)
    packed = np.packbits(flat.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view(np.uint32)


def stack(bits: int, group: int, shape: tuple[int, ...], dtype: Any = np.float16) -> tuple[dict[str, Any], Any]:
    """Return the parts of an affine weight, and its values."""
    codes = RNG.integers(0, 1 << bits, shape)
    scales = RNG.uniform(0.01, 0.02, (*shape[:-1], shape[-1] // group)).astype(dtype)
    biases = RNG.uniform(-0.1, 0, scales.shape).astype(dtype)
    wide = [np.repeat(one.astype(np.float32), group, -1) for one in (scales, biases)]
    return {"weight": words_of(codes, bits), "scales": scales, "biases": biases}, codes * wide[0] + wide[1]


def written(path: Path, parts: dict[str, dict[str, Any]], config: dict[str, Any], **more: Any) -> Path:
    path.mkdir()
    arrays = {f"{name}.{part}": value for name, some in parts.items() for part, value in some.items()}
    hc.save(path / "model.safetensors", arrays | more)
    (path / "config.json").write_text(json.dumps({"quantization": config}))
    return path


def values(found: Any) -> Any:
    return np.asarray(found.dequantize() if hasattr(found, "dequantize") else found, np.float32)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group", [32, 64])
def test_affine_stacks_are_read(tmp_path: Path, bits: int, group: int) -> None:
    parts, wanted = stack(bits, group, (3, 16, 128))
    path = written(tmp_path / "in", {NAME: parts}, {"group_size": group, "bits": bits})
    found = hc.load(path, layout="mlx")[f"{NAME}.weight"]
    assert found.shape == (3, 16, 128) and found.axis == (2,)
    np.testing.assert_allclose(values(found), wanted, atol=1e-6)
    dequantize_checkpoint(path, tmp_path / "plain")
    np.testing.assert_allclose(hc.load(tmp_path / "plain")[f"{NAME}.weight"], wanted, atol=1e-6)
    hc.convert_checkpoint(path, tmp_path / "ours", "heterocompute")
    assert np.array_equal(values(hc.load(tmp_path / "ours")[f"{NAME}.weight"]), values(found))
    hc.convert_checkpoint(tmp_path / "ours", tmp_path / "back", "mlx")
    stored, before = hc.load(tmp_path / "back"), hc.load(path)
    assert stored[f"{NAME}.weight"].shape == before[f"{NAME}.weight"].shape
    assert np.array_equal(values(hc.load(tmp_path / "back", layout="mlx")[f"{NAME}.weight"]), values(found))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_stacks_with_other_scales_are_read_as_values(tmp_path: Path, dtype: Any) -> None:
    parts, wanted = stack(4, 64, (2, 8, 128), dtype)
    path = written(tmp_path / "in", {NAME: parts}, {"group_size": 64, "bits": 4})
    dequantize_checkpoint(path, tmp_path / "plain")
    np.testing.assert_allclose(hc.load(tmp_path / "plain")[f"{NAME}.weight"], wanted, atol=1e-6)


@pytest.mark.parametrize(("mode", "group"), [("mxfp4", 32), ("nvfp4", 16)])
def test_fp4_stacks_are_read(tmp_path: Path, mode: str, group: int) -> None:
    codes = RNG.integers(0, 16, (3, 8, 64))
    scales = RNG.integers(120, 126, (3, 8, 64 // group)).astype(np.uint8)
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    elements = np.concatenate([levels, -levels])[codes]
    scale = np.exp2(scales.astype(np.float32) - 127) if mode == "mxfp4" else scales.view(ml_dtypes.float8_e4m3fn)
    wanted = elements * np.repeat(scale.astype(np.float32), group, -1)
    parts = {NAME: {"weight": words_of(codes, 4), "scales": scales}}
    path = written(tmp_path / "in", parts, {"group_size": group, "bits": 4, "mode": mode})
    found = hc.load(path, layout="mlx")[f"{NAME}.weight"]
    assert str(found.format) == mode and np.array_equal(found.dequantize(), wanted)


def test_settings_of_single_layers_are_read(tmp_path: Path) -> None:
    first, wanted = stack(4, 64, (2, 8, 128))
    second, other = stack(8, 32, (2, 8, 128))
    matrix, third = stack(8, 64, (8, 128))
    config = {"group_size": 64, "bits": 4, "m.down": {"group_size": 32, "bits": 8}, "m.q": {"bits": 8}, "m.gate": False}
    parts = {"m.up": first, "m.down": second, "m.q": matrix}
    path = written(tmp_path / "in", parts, config, **{"m.gate.weight": np.ones((2, 128), np.float32)})
    found = hc.load(path, layout="mlx")
    for name, expected in (("m.up", wanted), ("m.down", other), ("m.q", third)):
        np.testing.assert_allclose(values(found[f"{name}.weight"]), expected, atol=1e-6)
    assert found["m.gate.weight"].shape == (2, 128)


@pytest.mark.parametrize("part", ["scales", "biases"])
def test_parts_of_other_shapes_are_named(tmp_path: Path, part: str) -> None:
    parts, _ = stack(4, 64, (3, 16, 128))
    parts[part] = parts[part][:2]
    path = written(tmp_path / "in", {NAME: parts}, {"group_size": 64, "bits": 4})
    with pytest.raises(ValueError, match=rf"{NAME}\.{part} is float16 \(2, 16, 2\), expected \(experts, out"):
        hc.load(path, layout="mlx")


PAIRS = [
    ("int4-g64-f16", "int8-g32-f16"),
    ("int8-g32-f16", "int4-g64-f16"),
    ("q8_0", "q4_0"),
    ("mxfp4", "int8-g32-f16"),
]


@pytest.mark.parametrize("layout", ["mlx", "compressed-tensors"])
@pytest.mark.parametrize(("usual", "other"), PAIRS)
def test_a_stack_in_another_format_is_written_as_it_is_described(
    tmp_path: Path, layout: str, usual: str, other: str
) -> None:
    arrays = {f"{name}.weight": hc.quantize(RNG.standard_normal((64, 128), np.float32), usual) for name in "ab"}
    arrays["experts.up.weight"] = hc.quantize(RNG.standard_normal((3, 64, 128), np.float32), other)
    hc.save(tmp_path / "in.safetensors", arrays)
    hc.convert_checkpoint(tmp_path / "in.safetensors", tmp_path / "out", layout)
    found = hc.load(tmp_path / "out", layout=layout)
    for name, array in arrays.items():
        assert np.array_equal(values(found[name]), array.dequantize())


def test_stacks_are_quantized_to_mlx(tmp_path: Path) -> None:
    w = RNG.standard_normal((3, 32, 128), np.float32)
    hc.save(tmp_path / "in.safetensors", {f"{NAME}.weight": w, "m.q.weight": w[0]})
    recipe = {"*up_proj*": "int8-g32-f16", "*": "int4-g64-f16"}
    hc.quantize_checkpoint(tmp_path / "in.safetensors", f"{tmp_path}/out/", recipe=recipe, layout="mlx")
    said = json.loads((tmp_path / "out" / "config.json").read_text())["quantization"]
    assert {said["bits"], *(one["bits"] for one in said.values() if isinstance(one, dict))} == {4, 8}
    found = hc.load(tmp_path / "out", layout="mlx")
    assert np.array_equal(found[f"{NAME}.weight"].dequantize(), hc.quantize(w, "int8-g32-f16").dequantize())
    assert np.array_equal(found["m.q.weight"].dequantize(), hc.quantize(w[0], "int4-g64-f16").dequantize())
    hc.save(tmp_path / "s.safetensors", {f"{NAME}.weight": hc.quantize(w, "int4-g64-f16")}, layout="mlx")
    assert hc.load(tmp_path / "s.safetensors", layout="mlx")[f"{NAME}.weight"] == hc.quantize(w, "int4-g64-f16")
