"""torchao's MX and NVFP4 tensors, with scales row by row and in the blocks of cuBLAS."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.arrays.layout import save_arrays
from heterocompute.files.checkpoint import dequantize_checkpoint
from heterocompute.files.convert import convert_checkpoint

Array = np.ndarray[Any, Any]
DTYPES = {"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", "fp4": "float4_e2m1fn_x2"}
E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)


def in_blocks(scales: Array) -> Array:
    """Return scales (rows, count) in cuBLAS's order: 128 x 4 of them, one after another, padded with 0."""
    rows, count = scales.shape
    high, wide = -(-rows // 128), -(-count // 4)
    out = np.zeros((high * wide, 512), np.uint8)
    for row in range(rows):
        for column in range(count):
            inside = row % 128
            out[row // 128 * wide + column // 4, inside % 32 * 16 + inside // 32 * 4 + column % 4] = scales[row, column]
    return out.reshape(32 * high, 16 * wide)


def layer(q: Any, is_turned: bool, is_whole: bool = True) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the tensors and the metadata of a packed array."""
    codes, scales = q.components["codes"], q.components["scales"].view(np.uint8)
    is_mx = "coarse" not in q.components
    dtype = DTYPES[q.format.element] if is_mx else "float4_e2m1fn_x2"
    stored = codes if dtype.startswith("float4") else codes.view(getattr(ml_dtypes, dtype))
    held = in_blocks(scales) if is_turned else scales
    tensors = {"fc._weight_qdata": stored, "fc._weight_scale": held.view(E8M0 if is_mx else ml_dtypes.float8_e4m3fn)}
    said: dict[str, Any] = {"block_size": 32 if is_mx else 16, "is_swizzled_scales": is_turned}
    if is_mx:
        said["elem_dtype"] = {"_type": "torch.dtype", "_data": dtype}
    elif is_whole:
        tensors["fc._weight_per_tensor_scale"] = q.components["coarse"]
    return tensors, {"_type": "MXTensor" if is_mx else "NVFP4Tensor", "_data": said}


def written(path: Path, tensors: dict[str, Array], said: dict[str, Any]) -> Path:
    save_arrays(path, tensors, {}, metadata={"fc.weight": json.dumps(said), "tensor_names": '["fc.weight"]'})
    return path


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4"])
def test_arrays_are_those_that_were_stored(tmp_path: Path, fmt: str, is_turned: bool) -> None:
    q = hc.quantize(np.random.default_rng(1).standard_normal((200, 192), dtype=np.float32), fmt)
    path = written(tmp_path / "a.safetensors", *layer(q, is_turned))
    found = hc.load(path, layout="torchao")["fc.weight"]
    assert found.format == q.format and np.array_equal(found.dequantize(), q.dequantize())
    dequantize_checkpoint(path, tmp_path / "b.safetensors")
    assert np.array_equal(hc.load(tmp_path / "b.safetensors")["fc.weight"], q.dequantize())
    if fmt in ("mxfp4", "nvfp4"):
        [row] = convert_checkpoint(path, tmp_path / "c.safetensors", "modelopt")["tensors"]
        assert row["status"] in ("equal", "closed form")


REFUSED = [
    (lambda tensors, said: said.update(block_size=64), "block_size is 64, expected 32"),
    (lambda tensors, said: said.update(elem_dtype="fp6_e2m3"), "elem_dtype is 'fp6_e2m3', expected float8_e4m3fn"),
    (lambda tensors, said: said.pop("elem_dtype"), "elem_dtype is None"),
    (lambda tensors, said: said.update(is_swizzled_scales=True), r"_scale is .* expected float8_e8m0fnu \(32, 16\)"),
    (lambda tensors, said: tensors.update({"fc._weight_qdata": np.zeros((8, 16), np.int8)}), "_qdata is int8"),
    (lambda tensors, said: tensors.update({"fc._weight_scale": np.zeros((8, 2), np.uint8)}), "_scale is uint8"),
]


@pytest.mark.parametrize("change, words", REFUSED)
def test_what_is_no_mx_is_refused(tmp_path: Path, change: Any, words: str) -> None:
    tensors, said = layer(hc.quantize(np.eye(8, 64, dtype=np.float32), "mxfp4"), False)
    change(tensors, said["_data"])
    path = written(tmp_path / "a.safetensors", tensors, said)
    with pytest.raises(ValueError, match=words) as caught:
        dequantize_checkpoint(path, tmp_path / "out.safetensors")
    assert str(path) in str(caught.value) and not (tmp_path / "out.safetensors").exists()


def test_torchao_itself_has_the_same_values(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mx = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
        nv = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor")
        support = pytest.importorskip("torchao.prototype.safetensors.safetensors_support")
    from safetensors.torch import save_file

    w = torch.randn(200, 192)
    for is_turned in (False, True):
        made = [mx.MXTensor.to_mx(w, getattr(torch, name), 32, is_swizzled_scales=is_turned)
                for name in DTYPES.values()]  # fmt: skip
        for scale in (None, torch.tensor(0.013)):
            made.append(nv.NVFP4Tensor.to_nvfp4(w, per_tensor_scale=scale, is_swizzled_scales=is_turned))
        for one in made:
            tensors, metadata = support.flatten_tensor_state_dict({"fc.weight": one})
            save_file(tensors, tmp_path / "a.safetensors", metadata=metadata)
            q = hc.load(tmp_path / "a.safetensors", layout="torchao")["fc.weight"]
            assert np.array_equal(q.dequantize(), one.dequantize(torch.float32).numpy())
