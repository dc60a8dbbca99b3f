"""Plain types f32, f16 and bf16 are stored with their dtypes in every layout, alone or next to quantized weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import run

import heterocompute as hc
from heterocompute.base.container import numpy_dtype
from heterocompute.files.checkpoint import quantize_checkpoint
from heterocompute.files.convert import convert_checkpoint

W = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
B = np.random.default_rng(1).standard_normal(32).astype(np.float32)
NAMES = {"bf16": "bfloat16", "f16": "float16", "fp16": "float16", "half": "float16", "f32": "float32"}
ENDS = {"gguf": ".gguf", "onnx": ".onnx", "onnx-matmulnbits": ".onnx"}
LAYOUTS = (None, "compressed-tensors", "gptq", "mlx", "gguf", "onnx", "onnx-matmulnbits")


def source(path: Path, **more: Any) -> Path:
    hc.save(path / "in.safetensors", {"fc.weight": W, "fc.bias": B, **more})
    return path / "in.safetensors"


def out_of(path: Path, layout: str | None) -> Path:
    if layout in ENDS:
        pytest.importorskip("gguf" if layout == "gguf" else "onnx")
    return path / f"out{ENDS.get(str(layout), '.safetensors')}"


@pytest.mark.parametrize("layout", LAYOUTS[:-1])  # the last layout has no models without matmuls
def test_a_plain_type_is_a_dtype_in_every_layout(layout: str | None, tmp_path: Path) -> None:
    before, after = source(tmp_path), out_of(tmp_path, layout)
    for text, dtype in NAMES.items():
        row = quantize_checkpoint(before, after, text, layout=layout)["tensors"][0]
        with hc.open_checkpoint(after) as found:
            assert found["fc.weight"].dtype.name == dtype and found["fc.bias"].dtype == np.float32
            assert np.array_equal(found["fc.weight"], W.astype(numpy_dtype(dtype)))
            assert "quantization_config" not in found.metadata
        assert row["format"] in ("bf16", "f16", "f32") and row["bytes"] == W.size * numpy_dtype(dtype).itemsize


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_recipe_has_plain_types_and_formats(layout: str | None, tmp_path: Path) -> None:
    before, after = source(tmp_path, **{"head.weight": W}), out_of(tmp_path, layout)
    fmt = "q8_0" if layout == "gguf" else "int8" if layout == "onnx" else "int4-g32-f16"
    recipe = {"head.*": hc.format("fp16"), "*": "int4-g32" if layout == "onnx-matmulnbits" else fmt}
    quantize_checkpoint(before, after, recipe=recipe, layout=layout)
    if not str(layout).startswith("onnx"):  # its weights are operators
        found = hc.load(after, layout=layout)
        assert np.array_equal(found["head.weight"], W.astype(np.float16)) and found["head.weight"].dtype == np.float16
        assert str(found["fc.weight"].format) == fmt
    if layout == "compressed-tensors":
        with hc.open_checkpoint(after) as reader:
            groups = json.loads(reader.metadata["quantization_config"])["config_groups"]
            assert [group["targets"] for group in groups.values()] == [["fc"]]


def test_the_package_gguf_reads_plain_types(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    for text, kind in (("bf16", "BF16"), ("f16", "F16"), ("f32", "F32")):
        quantize_checkpoint(source(tmp_path), tmp_path / "a.gguf", text, layout="gguf")
        [found] = [one for one in gguf.GGUFReader(tmp_path / "a.gguf").tensors if one.name == "fc.weight"]
        assert found.tensor_type.name == kind
        values = gguf.quants.dequantize(found.data, found.tensor_type)
        assert np.array_equal(values, W.astype(numpy_dtype(NAMES[text])).astype(np.float32))


def test_blocks_of_gguf_become_plain(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    hc.save_gguf(tmp_path / "a.gguf", {"fc.weight": W}, types={"*": "q4_0"})
    quantize_checkpoint(tmp_path / "a.gguf", tmp_path / "b.gguf", "bf16", layout="gguf", requantize=True)
    before, after = (hc.load(tmp_path / name)["fc.weight"] for name in ("a.gguf", "b.gguf"))
    assert after.dtype.name == "bfloat16" and np.array_equal(after, before.astype(after.dtype))


@pytest.mark.parametrize("layout", ["gguf", "compressed-tensors", "mlx", "onnx"])
def test_packed_codes_of_a_plain_type_are_converted(layout: str, tmp_path: Path) -> None:
    """`hc.save` and `convert` write the values of a packed bf16 array as a dtype."""
    arrays = {
        "fc.weight": hc.quantize(W, "bf16"),
        "up.weight": hc.quantize(W, "q4_0" if layout == "gguf" else "int4-g32-f16"),
    }
    if layout == "onnx":
        arrays["up.weight"] = hc.quantize(W, "int8")
    before, after = tmp_path / "in.safetensors", out_of(tmp_path, layout)
    hc.save(before, arrays)
    for write in (
        lambda: convert_checkpoint(before, after, layout),
        lambda: hc.save(after, arrays, layout=layout),
    ):
        write()
        with hc.open_checkpoint(after) as found:
            assert found["fc.weight"].dtype.name == "bfloat16"
            assert np.array_equal(found["fc.weight"].astype(np.float32), arrays["fc.weight"].dequantize())


def test_values_without_a_place_in_the_type_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    for value, words in (
        (1e6, "1000000.0 at index (0, 1) is beyond float16's largest"),
        (np.nan, "nan at index (0, 1)"),
    ):
        path = tmp_path / "in.safetensors"
        hc.save(path, {"w": np.float32([[0, value]])})
        with pytest.raises(ValueError) as caught:
            quantize_checkpoint(path, out, "f16")
        assert words in str(caught.value) and "'w'" in str(caught.value) and not out.exists()
    with pytest.raises(TypeError, match="format: text is 5 of type int"):
        quantize_checkpoint(path, out, 5)  # type: ignore[arg-type]


def test_the_command_knows_plain_types(tmp_path: Path, capsys: Any) -> None:
    before, after = source(tmp_path), tmp_path / "out.safetensors"
    code, said, _ = run(capsys, "quantize", before, after, "--format", "f16")
    assert code == 0 and "1 tensor quantized, 1 copied, 8.32 kB -> 4.22 kB" in said
    (tmp_path / "r.toml").write_text('[formats]\n"fc.weight" = "bf16"\n')
    assert run(capsys, "quantize", before, after, "--recipe", tmp_path / "r.toml", "--overwrite")[0] == 0
    assert hc.load(after)["fc.weight"].dtype.name == "bfloat16"
    code, _, errors = run(capsys, "quantize", before, after, "--format", "f8")
    assert code == 2 and "'f8' is not a format" in errors


@pytest.mark.parametrize("text", ["f16", "fp16", "half", "float16"])
def test_lossy_has_the_same_names(text: str, tmp_path: Path) -> None:
    before = tmp_path / "in.safetensors"
    hc.save(before, {"fc.weight": hc.quantize(W, "vsq4-g16-s4")})
    [row] = convert_checkpoint(before, tmp_path / "out", "gptq", lossy=text)["tensors"]
    assert (row["to"], row["status"]) == ("float16", "lossy")
