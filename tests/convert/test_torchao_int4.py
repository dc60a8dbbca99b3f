"""torchao's packed int4 of GPUs: halves of bytes, words, and the tiles of tinygemm, each from its own definition."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from foreign_cases import INT4, in_tiles, torchao_int4 as layer

import heterocompute as hc
from heterocompute.arrays.layout import save_arrays
from heterocompute.files.checkpoint import dequantize_checkpoint
from heterocompute.files.convert import convert_checkpoint

Array = np.ndarray[Any, Any]
HALVES, WORDS, TILES = INT4


def written(path: Path, tensors: dict[str, Array], said: dict[str, Any]) -> Path:
    metadata = {"fc.weight": json.dumps(said), "tensor_names": json.dumps(["fc.weight"])}
    save_arrays(path, tensors, {}, metadata=metadata)
    return path


BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize("kind, shape, group, dtype, zeros, inner, wanted", [
    (HALVES, (24, 128), 32, BF16, "floats", 8, "affine4-g32"),
    (HALVES, (24, 128), 128, BF16, "none", 8, "int4"),
    (HALVES, (24, 128), 64, "float16", "zero", 8, "int4-g64-asym-f16"),
    (HALVES, (24, 128), 64, "float32", "floats", 8, None),
    (WORDS, (24, 128), 32, "float16", "points", 8, "int4-g32-asym-f16"),
    (WORDS, (7, 64), 64, BF16, "points", 8, "int4-asym"),
    (TILES, (24, 1024), 128, BF16, "floats", 8, "affine4-g128"),
    (TILES, (21, 192), 64, BF16, "floats", 8, "affine4-g64"),
    (TILES, (16, 64), 32, BF16, "none", 2, "int4-g32"),
    (TILES, (16, 64), 32, BF16, "floats", 4, "affine4-g32"),
])  # fmt: skip
def test_values_are_those_of_the_definition(
    tmp_path: Path, kind: str, shape: tuple[int, int], group: int, dtype: Any, zeros: str, inner: int,
    wanted: str | None,
) -> None:  # fmt: skip
    tensors, said, values = layer(kind, shape, group, dtype, zeros, inner)
    path = written(tmp_path / "a.safetensors", tensors, said)
    if wanted is not None:
        q = hc.load(path, layout="torchao")["fc.weight"]
        assert str(q.format) == wanted and np.array_equal(q.dequantize(), values)
    else:
        with pytest.raises(ValueError, match="rounded otherwise have no format here"):
            hc.load(path, layout="torchao")
    dequantize_checkpoint(path, tmp_path / "b.safetensors")
    assert np.array_equal(hc.load(tmp_path / "b.safetensors")["fc.weight"], values)
    [row] = convert_checkpoint(path, tmp_path / "c.safetensors", "heterocompute", lossy="f32")["tensors"]
    assert np.array_equal(np.asarray(hc.load(tmp_path / "c.safetensors")["fc.weight"]), values)
    assert row["status"] in ("equal", "closed form")


def test_zeros_far_below_a_scale_are_values(tmp_path: Path) -> None:
    """zero - 8 scale, the minimum of a group of `affine4`, has more bits than float32."""
    tensors, said, values = layer(TILES, (24, 1024), 64, BF16)
    tensors["fc._weight_scale_and_zero"][0, 0] = 0.1, 1e-8
    path = written(tmp_path / "a.safetensors", tensors, said)
    with pytest.raises(ValueError, match="rounded otherwise have no format here"):
        hc.load(path, layout="torchao")
    dequantize_checkpoint(path, tmp_path / "b.safetensors")
    found = hc.load(tmp_path / "b.safetensors")["fc.weight"]
    scale, zero = (np.float32(BF16(part)) for part in (0.1, 1e-8))
    assert np.array_equal(found[1:], values[1:]) and np.array_equal(found[0, 64:], values[0, 64:])
    assert set(found[0, :64]) <= {np.float32((code - 8) * scale) + zero for code in range(16)}


def test_words_go_to_other_layouts(tmp_path: Path) -> None:
    tensors, said, values = layer(WORDS, (64, 128), 32, "float16", "points")
    path = written(tmp_path / "a.safetensors", tensors, said)
    for name in ("gptq", "awq", "compressed-tensors", "mlx"):
        [row] = convert_checkpoint(path, tmp_path / "b.safetensors", name)["tensors"]
        assert row["status"] == "equal", name
        assert np.array_equal(np.asarray(hc.load(tmp_path / "b.safetensors", layout=name)["fc.weight"]), values)


def changed(end: str, part: Any) -> Any:
    return lambda tensors, said: tensors.__setitem__(f"fc._weight_{end}", part)


REFUSED = [
    (HALVES, changed("qdata", np.zeros((24, 64), np.uint8)), "qdata is uint8"),
    (HALVES, changed("scale", np.ones((24, 4), np.float32)), r"_scale is float32 \(24, 4\), expected"),
    (HALVES, changed("scale", np.full((4, 24), np.inf, np.float32)), "not finite"),
    (HALVES, changed("zero_point", np.zeros((4, 24), np.int8)), "zero_point is int8"),
    (HALVES, changed("act_pre_scale", np.ones(128, np.float32)), "act_pre_scale"),
    (HALVES, lambda _, said: said["_data"].update(shape=[24]), "shape is"),
    (HALVES, lambda _, said: said["_data"].update(block_size=[2, 32]), "expected whole groups of a row"),
    (HALVES, lambda _, said: said["_data"].update(block_size=[1, 48]), "expected whole groups of a row"),
    (HALVES, lambda _, said: said["_data"].update(shape=[1 << 30, 1 << 30]), "qdata is int8"),
    (HALVES, lambda _, said: said["_data"].pop("shape"), "shape is None"),
    (HALVES, lambda tensors, _: tensors.pop("fc._weight_scale"), "_scale' is missing"),
    (WORDS, changed("zero_point", np.zeros((4, 24), np.float32)), "zero_point is float32"),  # of NPUs
    (TILES, changed("qdata", np.zeros((3, 8, 32), np.int32)), "expected tiles of 24 x 128"),
    (TILES, changed("qdata", np.zeros((2, 8, 32, 4), np.int32)), "expected tiles of 24 x 128"),
    (TILES, changed("scale_and_zero", np.ones((4, 24, 2), np.float32)), r"scale_and_zero is float32 \(4, 24, 2\)"),
]


@pytest.mark.parametrize("kind, change, words", REFUSED)
def test_what_is_no_packed_int4_is_refused(tmp_path: Path, kind: str, change: Any, words: str) -> None:
    tensors, said, _ = layer(kind, (24, 128), 32, BF16)
    change(tensors, said)
    path = written(tmp_path / "a.safetensors", tensors, said)
    for run in (lambda out: dequantize_checkpoint(path, out), lambda out: convert_checkpoint(path, out, "gptq")):
        with pytest.raises(ValueError, match=words) as caught:
            run(tmp_path / "out.safetensors")
        assert str(path) in str(caught.value) and not (tmp_path / "out.safetensors").exists()


def test_torchao_itself_writes_these_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantization = pytest.importorskip("torchao.quantization")
        primitives = pytest.importorskip("torchao.quantization.quant_primitives")
        utilities = pytest.importorskip("torchao.quantization.utils")
        support = pytest.importorskip("torchao.prototype.safetensors.safetensors_support")
    from safetensors.torch import save_file

    w = torch.randn(24, 1024).to(torch.bfloat16)
    block = (1, 64)
    scale, zero = primitives._choose_qparams_affine_tinygemm(
        w, primitives.MappingType.ASYMMETRIC, block, torch.int32, 0, 15,
        scale_dtype=torch.bfloat16, zero_point_dtype=torch.bfloat16,
    )  # fmt: skip
    codes = primitives._quantize_affine_tinygemm(w, block, scale, zero, torch.int32, 0, 15)
    values = primitives._dequantize_affine_tinygemm(
        codes, block, scale.float(), zero.float(), torch.int32, 0, 15, output_dtype=torch.float32
    ).numpy()
    tiles = torch.from_numpy(in_tiles(codes.numpy(), 8))
    both = utilities.pack_tinygemm_scales_and_zeros(scale.reshape(24, -1), zero.reshape(24, -1))
    signed = (codes - 8).to(torch.int8)
    halves = torch.bitwise_or(torch.bitwise_left_shift(signed[:, 1::2], 4), signed[:, ::2] & 15)
    scales, zeros = (part.reshape(24, -1).t().contiguous() for part in (scale, zero))
    for made in (
        quantization.Int4TilePackedTo4dTensor(tiles, both, list(block), w.shape),
        quantization.Int4Tensor(halves, scales, zeros, list(block), w.shape),
    ):
        tensors, metadata = support.flatten_tensor_state_dict({"fc.weight": made})
        save_file(tensors, tmp_path / "a.safetensors", metadata=metadata)
        q = hc.load(tmp_path / "a.safetensors", layout="torchao")["fc.weight"]
        assert np.array_equal(q.dequantize(), values)
    points = torch.randint(0, 16, (16, 24), dtype=torch.int8)
    plain = codes[:, ::2] | codes[:, 1::2] << 4
    words = plain.to(torch.uint8).contiguous().view(torch.int32)
    made = quantization.Int4PlainInt32Tensor(words, scales, points, list(block), w.shape)
    tensors, metadata = support.flatten_tensor_state_dict({"fc.weight": made})
    save_file(tensors, tmp_path / "a.safetensors", metadata=metadata)
    wanted = primitives.dequantize_affine(
        codes, block, scale.float(), points.t().reshape(-1, 1), torch.int32, 0, 15, output_dtype=torch.float32
    )
    q = hc.load(tmp_path / "a.safetensors", layout="torchao")["fc.weight"]
    assert np.array_equal(q.dequantize(), wanted.numpy())
