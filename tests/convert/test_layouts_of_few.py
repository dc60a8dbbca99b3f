"""BitNet, HQQ, biases of MLX, float zero points of onnxruntime, compared with independent decoders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import same_bits
from foreign_cases import BFLOAT16, PACKINGS, RNG, bitnet, fp8_blocks, hqq

import heterocompute as hc
from heterocompute.arrays.layout import save_arrays
from heterocompute.files.checkpoint import dequantize_checkpoint
from heterocompute.files.convert import convert_checkpoint

Array = np.ndarray[Any, Any]


def written(path: Path, tensors: dict[str, Array], config: dict[str, Any] | None) -> Path:
    save_arrays(path, tensors, {}, metadata={} if config is None else {"quantization_config": json.dumps(config)})
    return path


def statuses(summary: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {row["name"]: (row["from"], row["to"], row["status"]) for row in summary["tensors"]}


# BitNet


@pytest.mark.parametrize(
    "linear_class, factor", [("autobitlinear", 0.75), ("bitlinear", np.float32(1) / np.float32(0.75)), (None, 4 / 3)]
)
def test_bitnet_is_two_bits_with_one_scale(tmp_path: Path, linear_class: str | None, factor: float) -> None:
    codes = RNG.integers(-1, 2, (64, 256))
    path = written(tmp_path / "a.safetensors", *bitnet(0.75, linear_class, codes))
    q = hc.load(path, layout="bitnet")["fc.weight"]
    assert str(q.format) == "int2" and np.array_equal(q.codes(), codes)
    assert same_bits(q.dequantize(), codes.astype(np.float32) * np.float32(factor) + 0)
    summary = convert_checkpoint(path, tmp_path / "again.safetensors", "bitnet")
    assert statuses(summary)["fc.weight"] == ("int2", "int2", "equal")
    again = hc.load(tmp_path / "again.safetensors")
    assert np.array_equal(again["fc.weight"], hc.load(path)["fc.weight"])
    assert again["fc.weight_scale"] == np.float32(factor)
    assert hc.load(tmp_path / "again.safetensors", layout="bitnet")["fc.weight"] == q


def test_bitnet_becomes_ternary_blocks_and_comes_back(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    path = written(tmp_path / "a.safetensors", *bitnet(0.75, "autobitlinear", RNG.integers(-1, 2, (8, 512))))
    assert statuses(convert_checkpoint(path, tmp_path / "a.gguf", "gguf"))["fc.weight"][1:] == ("tq2_0", "closed form")
    back = convert_checkpoint(tmp_path / "a.gguf", tmp_path / "b.safetensors", "bitnet")
    assert statuses(back)["fc.weight"] == ("tq2_0", "int2-f16", "closed form")
    ours, theirs = hc.load(path, layout="bitnet"), hc.load(tmp_path / "b.safetensors", layout="bitnet")
    assert np.array_equal(ours["fc.weight"].dequantize(), theirs["fc.weight"].dequantize())


@pytest.mark.parametrize("change, words", [
    ({"fc.weight": np.full((16, 256), 0xFF, np.uint8)}, "holds the code 3"),
    ({"fc.weight_scale": np.zeros(1, np.float32)}, "no finite scale"),
    ({"fc.weight_scale": np.ones(2, np.float32)}, "expected one of float16"),
    ({"fc.weight": np.zeros(16, np.uint8)}, r"expected uint8 \(out / 4, in\)"),
])  # fmt: skip
def test_bitnet_is_not_believed(tmp_path: Path, change: dict[str, Array], words: str) -> None:
    tensors, config = bitnet(0.75, "bitlinear", RNG.integers(-1, 2, (64, 256)))
    path = written(tmp_path / "a.safetensors", {**tensors, **change}, config)
    with pytest.raises(ValueError, match=f"a.safetensors: .*{words}"):
        hc.load(path, layout="bitnet")


def test_rows_of_several_scales_are_not_bitnet(tmp_path: Path) -> None:
    w = RNG.standard_normal((8, 64)).astype(np.float32)
    with pytest.raises(ValueError, match="bitnet has no place: rows must have one scale"):
        hc.save(tmp_path / "a.safetensors", {"fc.weight": hc.quantize(w, "int2")}, layout="bitnet")
    assert not (tmp_path / "a.safetensors").exists()


# HQQ


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float32], ids=str)
@pytest.mark.parametrize("bits", PACKINGS)
@pytest.mark.parametrize("axis", [0, 1])
def test_hqq_has_float_zero_points(tmp_path: Path, bits: int, axis: int, dtype: Any) -> None:
    tensors, values = hqq(bits, 64, axis, dtype, (12, 128))
    path = written(tmp_path / "a.safetensors", tensors, None)
    dequantize_checkpoint(path, tmp_path / "plain.safetensors")
    plain = hc.load(tmp_path / "plain.safetensors")
    assert set(plain) == {"fc.weight", "fc.bias"} and np.array_equal(plain["fc.weight"], values)
    if axis == 0 or dtype == np.float32:
        with pytest.raises(ValueError, match="their values are read by dequantize_checkpoint"):
            hc.load(path, layout="hqq")
        return
    q = hc.load(path, layout="hqq")["fc.weight"]
    assert str(q.format) == f"affine{max(bits, 2)}-g64" and np.array_equal(q.dequantize(), values)
    if bits > 1:
        summary = convert_checkpoint(path, tmp_path / "mlx.safetensors", "mlx")
        assert statuses(summary)["fc.weight"][2] == "equal"
        assert np.array_equal(hc.load(tmp_path / "mlx.safetensors", layout="mlx")["fc.weight"].dequantize(), values)


def test_whole_zero_points_of_hqq_are_those_of_gptq(tmp_path: Path) -> None:
    tensors, _ = hqq(4, 64, 1, np.float16, (16, 128))
    whole = np.clip(np.rint(tensors["fc.zero"].astype(np.float32)), 0, 15)
    tensors["fc.zero"] = whole.astype(np.float16)
    path = written(tmp_path / "a.safetensors", tensors, {"quant_method": "hqq"})
    summary = convert_checkpoint(path, tmp_path / "g.safetensors", "gptq")
    assert statuses(summary)["fc.weight"] == ("affine4-g64", "int4-g64-asym-f16", "closed form")
    wanted = hc.load(path, layout="hqq")["fc.weight"].dequantize()
    assert np.array_equal(hc.load(tmp_path / "g.safetensors", layout="gptq")["fc.weight"].dequantize(), wanted)


@pytest.mark.parametrize("change, words", [
    ({"fc.quant_zero": np.array(1, np.uint8)}, "zero points that are quantized are not read"),
    ({"fc.packing": np.frombuffer(b"5bit_u8", np.uint8)}, "packing and axis are '5bit_u8' and 1"),
    ({"fc.shape": np.array([12, 127])}, "expected those of 12 x 127 values"),
    ({"fc.zero": np.full((24, 1), np.nan, np.float16)}, "fc.zero holds a value that is not finite"),
    ({"fc.nbits": np.array(3, np.int32)}, "codes of more than 3 bits"),
    ({"fc.W_q": np.zeros((12, 64), np.float32)}, "fc.W_q is float32"),
])  # fmt: skip
def test_hqq_is_not_believed(tmp_path: Path, change: dict[str, Array], words: str) -> None:
    path = written(tmp_path / "a.safetensors", {**hqq(4, 64, 1, np.float16, (12, 128))[0], **change}, None)
    with pytest.raises(ValueError, match=f"a.safetensors: .*{words}"):
        hc.load(path, layout="hqq")


def test_hqq_is_not_written(tmp_path: Path) -> None:
    q = hc.quantize(np.ones((4, 64), np.float32), "affine4-g64")
    with pytest.raises(ValueError, match="the layout hqq is read, not written"):
        hc.save(tmp_path / "a.safetensors", {"fc.weight": q}, layout="hqq")


# MLX and ONNX


def test_biases_of_any_bits_and_groups_are_packed(tmp_path: Path) -> None:
    """Biases that are not multiples of scales are packed, for any bits and groups."""
    for bits, dtype in ((2, np.float16), (3, BFLOAT16), (8, np.float16), (6, BFLOAT16)):
        codes = RNG.integers(0, 1 << bits, (6, 128))
        scales, biases = (RNG.uniform(-0.1, 0.1, (6, 2)).astype(dtype) for _ in range(2))
        bits_of_rows = (codes[:, :, None] >> np.arange(bits) & 1).reshape(6, -1).astype(np.uint8)
        words = np.packbits(bits_of_rows, axis=1, bitorder="little").view(np.uint32)
        config = {"group_size": 64, "bits": bits, "mode": "affine"}
        tensors = {"fc.weight": words, "fc.scales": scales, "fc.biases": biases}
        path = written(tmp_path / f"{bits}.safetensors", tensors, config)
        q = hc.load(path, layout="mlx")["fc.weight"]
        factors = [np.repeat(part.astype(np.float32), 64, 1) for part in (scales, biases)]
        assert str(q.format) == f"affine{bits}-g64{'-f16' if dtype == np.float16 else ''}"
        assert np.array_equal(q.dequantize(), codes.astype(np.float32) * factors[0] + factors[1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("bits, columns", [(4, 128), (8, 96), (4, 112), (2, 128)])
def test_float_zero_points_of_onnxruntime(tmp_path: Path, bits: int, columns: int, dtype: Any) -> None:
    onnx = pytest.importorskip("onnx")
    blocks = -(-columns // 32)
    codes = RNG.integers(0, 1 << bits, (6, blocks * 32))
    scales, zeros = (RNG.uniform(0.01, 4, (6, blocks)).astype(dtype) for _ in range(2))
    bits_of_rows = (codes[:, :, None] >> np.arange(bits) & 1).reshape(6, -1).astype(np.uint8)
    packed = np.packbits(bits_of_rows, axis=1, bitorder="little").reshape(6, blocks, -1)
    parts = {"fc.B": packed, "fc.scales": scales.reshape(-1), "fc.zero_points": zeros}
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    sizes = {"K": columns, "N": 6, "bits": bits, "block_size": 32}
    node = onnx.helper.make_node("MatMulNBits", ["x", *parts], ["y"], domain="com.microsoft", **sizes)
    infos = [onnx.helper.make_tensor_value_info(name, kind, ["n", size]) for name, size in (("x", columns), ("y", 6))]
    held = [onnx.numpy_helper.from_array(part, name) for name, part in parts.items()]
    sets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    graph = onnx.helper.make_graph([node], "g", infos[:1], infos[1:], held)
    onnx.save(onnx.helper.make_model(graph, opset_imports=sets, ir_version=10), tmp_path / "a.onnx")
    found = hc.load(tmp_path / "a.onnx", layout="onnx-matmulnbits")["fc.weight"]
    spread = [np.repeat(part.astype(np.float32), 32, 1)[:, :columns] for part in (zeros, scales)]
    wanted = (codes[:, :columns].astype(np.float32) - spread[0]) * spread[1]
    if dtype == np.float16:
        assert str(found.format) == f"affine{bits}-g32"
    assert np.array_equal(np.asarray(found), wanted)
    summary = convert_checkpoint(tmp_path / "a.onnx", tmp_path / "b.safetensors", "heterocompute", lossy="f32")
    assert statuses(summary)["fc.weight"][2] in ("equal", "closed form")
    if bits != 4 or dtype == np.float16:  # onnxruntime refuses the others on a CPU
        return
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"x": np.eye(columns, dtype=dtype)})
    assert np.allclose(answer.T, wanted, rtol=1e-5, atol=1e-5)


# FP8


@pytest.mark.parametrize("shape, block", [((256, 384), (128, 128)), ((200, 300), (128, 128)), ((64, 256), (1, 128)),
                                          ((2, 128, 256), (128, 128))])  # fmt: skip
def test_blocks_of_fp8_are_groups_of_each_row(tmp_path: Path, shape: tuple[int, ...], block: tuple[int, int]) -> None:
    tensors, config, values = fp8_blocks(shape, *block)
    path = written(tmp_path / "a.safetensors", tensors, config)
    q = hc.load(path, layout="fp8")["fc.weight"]
    assert str(q.format) == "fp8_e4m3fn-g128" and np.array_equal(q.dequantize(), values)
    ours = convert_checkpoint(path, tmp_path / "ours.safetensors", "heterocompute")
    assert statuses(ours)["fc.weight"][1:] == ("fp8_e4m3fn-g128", "closed form")
    back = convert_checkpoint(tmp_path / "ours.safetensors", tmp_path / "back.safetensors", "fp8")
    assert {row["status"] for row in back["tensors"]} == {"closed form"}
    found = hc.load(tmp_path / "back.safetensors")
    if len(shape) == 2:
        assert set(found) == set(tensors)
        assert all(found[name].tobytes() == tensors[name].tobytes() for name in tensors)
        x = RNG.standard_normal((3, shape[1])).astype(np.float32)
        bound = 2 * (shape[1] + 1) * np.finfo(np.float32).eps * (np.abs(x) @ np.abs(values.T))
        assert (np.abs(hc.linear(x, q) - x.astype(np.float64) @ values.T.astype(np.float64)) <= bound).all()
        return
    assert set(found) == {f"{i}.fc.{part}" for i in range(2) for part in ("weight", "weight_scale_inv")}
    assert all(found[f"{i}.fc.weight"].tobytes() == tensors["fc.weight"][i].tobytes() for i in range(2))


def test_a_stack_of_fp8_has_whole_blocks(tmp_path: Path) -> None:
    tensors, config, _ = fp8_blocks((2, 100, 256), 128, 128)
    path = written(tmp_path / "a.safetensors", tensors, config)
    with pytest.raises(ValueError, match="expected those of whole blocks of 128 rows an expert"):
        hc.load(path, layout="fp8")
