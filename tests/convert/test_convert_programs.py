"""Checkpoints converted for other programs have the same values in their packages, or in independent decoders."""

from __future__ import annotations

import json

import decoders
import numpy as np
import pytest
from conversions import BIAS, OURS, RNG, W, data_of, row_of, saved

import heterocompute as hc
from heterocompute.base.container import numpy_dtype
from heterocompute.files.convert import NotRepresentable, convert_checkpoint


def test_a_model_that_other_programs_read(tmp_path):
    """Decoders that are written from the layouts' documents give the same values."""
    q = {fmt: hc.quantize(W, fmt) for fmt in ("int4-g32-f16", "int4-g32-asym-f16", "nvfp4", "int5-g32-asym-f16")}
    before, after = tmp_path / "a.safetensors", tmp_path / "b.safetensors"

    def through(fmt, layout):
        hc.save(before, {"fc.weight": q[fmt]})
        convert_checkpoint(before, after, layout)
        with hc.open_checkpoint(after) as found:
            config = json.loads(found.metadata["quantization_config"])
        return hc.load(after), q[fmt].dequantize(), config

    tensors, values, config = through("int4-g32-f16", "gptq")
    assert np.array_equal(decoders.gptq(tensors, "fc", 4, 1), values) and config["checkpoint_format"] == "gptq"
    tensors, values, config = through("int4-g32-asym-f16", "gptq")
    assert np.array_equal(decoders.gptq(tensors, "fc", 4, 2), values) and config["checkpoint_format"] == "gptq_v2"
    for fmt in ("int4-g32-f16", "int4-g32-asym-f16"):
        tensors, values, config = through(fmt, "awq")
        assert np.array_equal(decoders.awq(tensors, "fc", 32), values) and config["zero_point"] is True
    tensors, values, _ = through("int4-g32-asym-f16", "compressed-tensors")
    assert np.array_equal(decoders.compressed(tensors, "fc", 4, 32, False), values)
    tensors, values, config = through("nvfp4", "modelopt")
    assert np.array_equal(decoders.modelopt_nvfp4(tensors, "fc"), values) and config["quant_algo"] == "NVFP4"
    tensors, values, config = through("int5-g32-asym-f16", "mlx")
    assert np.array_equal(decoders.mlx(tensors, "fc", 5, 32), values)
    assert config == {"group_size": 32, "bits": 5, "mode": "affine"}


def test_codes_of_symmetric_files_reach_the_lowest(tmp_path):
    """GPTQ and compressed-tensors use the 4-bit code -8, which symmetric formats here do not: it stays symmetric."""
    q = hc.quantize(W, "int4-g32-asym-f16")
    codes = RNG.integers(0, 16, W.shape).astype(np.uint8)
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    points = np.full_like(q.components["zero_points"], 0x88)
    q = hc.QuantizedArray({**q.components, "codes": packed, "zero_points": points}, q.format, q.shape, q.axis)
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    hc.save(tmp_path / "ours.safetensors", {"fc.weight": q})
    first = convert_checkpoint(tmp_path / "ours.safetensors", tmp_path / "a" / "m.safetensors", "gptq")
    assert row_of(first)["to"] == "int4-g32-f16" and row_of(first)["status"] == "closed form"
    convert_checkpoint(tmp_path / "a" / "m.safetensors", tmp_path / "b" / "m.safetensors", "compressed-tensors")
    with hc.open_checkpoint(tmp_path / "b" / "m.safetensors") as found:
        config = json.loads(found.metadata["quantization_config"])
    assert config["config_groups"]["group_0"]["weights"]["symmetric"] is True
    tensors = hc.load(tmp_path / "b" / "m.safetensors")
    assert np.array_equal(decoders.compressed(tensors, "fc", 4, 32), q.dequantize())
    convert_checkpoint(tmp_path / "b" / "m.safetensors", tmp_path / "c" / "m.safetensors", "gptq")
    assert data_of(tmp_path / "a" / "m.safetensors") == data_of(tmp_path / "c" / "m.safetensors")


def test_columns_in_activation_order_stay_where_they_are(tmp_path):
    q, order = hc.quantize(W, "int4-g32-f16"), RNG.permutation(256)
    hc.save(tmp_path / "m.safetensors", {"fc.weight": q}, layout="gptq")
    tensors = hc.load(tmp_path / "m.safetensors")
    index = np.empty(256, np.int32)
    index[order] = np.arange(256) // 32
    tensors["fc.g_idx"] = index
    folder = tmp_path / "model"
    folder.mkdir()
    hc.save(folder / "model.safetensors", tensors)
    config = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "desc_act": True}
    (folder / "config.json").write_text(json.dumps({"quantization_config": {**config, "checkpoint_format": "gptq"}}))
    values = decoders.gptq(tensors, "fc", 4, 1)
    convert_checkpoint(folder, tmp_path / "ct", "compressed-tensors")
    found = hc.load(tmp_path / "ct" / "model.safetensors")
    assert np.array_equal(found["fc.weight_g_idx"], index)
    assert np.array_equal(decoders.compressed(found, "fc", 4, 32), values)
    said = json.loads((tmp_path / "ct" / "config.json").read_text())["quantization_config"]
    assert said["config_groups"]["group_0"]["weights"]["actorder"] == "group"
    convert_checkpoint(tmp_path / "ct", tmp_path / "back", "gptq")
    assert data_of(tmp_path / "back" / "model.safetensors") == data_of(folder / "model.safetensors")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["quantization_config"]["desc_act"] is True
    for target in ("awq", OURS):
        with pytest.raises(NotRepresentable, match=r"act-order\) have no place in " + target):
            convert_checkpoint(folder, tmp_path / "none.safetensors", target)


def test_stacks_of_experts(tmp_path):
    """A stack stays a stack if the layout has stacks, otherwise it becomes matrices."""
    values = RNG.standard_normal((3, 64, 128)).astype(np.float32)
    q = hc.quantize(values, "mxfp4", axis=2)
    before, after, back = (tmp_path / f"{name}.safetensors" for name in "abc")
    hc.save(before, {"mlp.experts.up.weight": q, "norm": BIAS})
    convert_checkpoint(before, after, "gpt-oss")
    tensors = hc.load(after)
    assert tensors["mlp.experts.up_blocks"].shape == (3, 64, 4, 16)
    assert np.array_equal(decoders.gpt_oss(tensors, "mlp.experts.up"), q.dequantize())
    for target in ("compressed-tensors", OURS):
        convert_checkpoint(after, back, target)
        convert_checkpoint(back, tmp_path / "again.safetensors", "gpt-oss")
        assert data_of(tmp_path / "again.safetensors") == data_of(after)
    summary = convert_checkpoint(after, back, "gptq")
    assert row_of(summary, "mlp.experts.up.weight")["to"] == "int8-g32-f16"
    tensors = hc.load(back)
    for i in range(3):
        assert np.array_equal(decoders.gptq(tensors, f"mlp.experts.{i}.up", 8, 1), q.dequantize()[i])
    for fmt in ("int4-g32-asym-f16", "nf4-g64"):
        q = hc.quantize(values, fmt, axis=2)
        hc.save(before, {"mlp.experts.up.weight": q})
        target = "bitsandbytes" if fmt == "nf4-g64" else "compressed-tensors"
        convert_checkpoint(before, after, target)
        convert_checkpoint(after, back, OURS)
        assert hc.load(back)["mlp.experts.up.weight"] == q and data_of(back) == data_of(before)


def test_fp8_in_blocks(tmp_path):
    """DeepSeek's blocks of 128 x 128, with short ones at the edges, to compressed-tensors and back."""
    codes = RNG.integers(0, 255, (200, 300)).astype(np.uint8)
    codes[codes & 127 == 127] = 0  # NaN
    scales = RNG.random((2, 3)).astype(np.float32)
    tensors = {"fc.weight": codes.view(numpy_dtype("float8_e4m3fn")), "fc.weight_scale_inv": scales, "fc.bias": BIAS}
    model = tmp_path / "model"
    model.mkdir()
    hc.save(model / "model.safetensors", tensors)
    said = {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3", "activation_scheme": "dynamic"}
    (model / "config.json").write_text(json.dumps({"quantization_config": said}))
    summary = convert_checkpoint(model, tmp_path / "ct", "compressed-tensors")
    assert row_of(summary)["from"] == row_of(summary)["to"] == "float8_e4m3fn in blocks of 128 x 128"
    found = hc.load(tmp_path / "ct" / "model.safetensors")
    assert np.array_equal(decoders.fp8_blocks(found, "fc", "weight_scale"), decoders.fp8_blocks(tensors, "fc"))
    convert_checkpoint(tmp_path / "ct", tmp_path / "back", "fp8")
    assert data_of(tmp_path / "back" / "model.safetensors") == data_of(model / "model.safetensors")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["quantization_config"]["weight_block_size"] == [
        128,
        128,
    ]
    row = row_of(convert_checkpoint(model, tmp_path / "ours.safetensors", OURS))
    assert (row["to"], row["status"]) == ("fp8_e4m3fn-g128", "closed form")
    with pytest.raises(NotRepresentable, match="mlx has no place for float8_e4m3fn in blocks of 128 x 128"):
        convert_checkpoint(model, tmp_path / "none.safetensors", "mlx")
    row = row_of(convert_checkpoint(model, tmp_path / "lossy.safetensors", "modelopt", lossy="fp8_e4m3fn-tensor"))
    assert row["status"] == "lossy" and row["sqnr_db"] > 25


def test_values_that_decide(tmp_path):
    """Only some arrays of a format can be converted exactly, depending on their values."""
    q = hc.quantize(W, "mxfp4")
    wide = {**q.components, "scales": q.components["scales"].copy()}
    wide["scales"][0, :2] = 100, 140
    before, after = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    hc.save(before, {"fc.weight": q})
    assert row_of(convert_checkpoint(before, after, "modelopt"))["to"] == "nvfp4"
    assert np.array_equal(decoders.modelopt_nvfp4(hc.load(after), "fc"), q.dequantize())
    hc.save(before, {"fc.weight": hc.QuantizedArray(wide, q.format, q.shape, q.axis)})
    with pytest.raises(NotRepresentable, match=r"scales from 2\^-27 to 2\^13, more than the 18 powers of two of E4M3"):
        convert_checkpoint(before, tmp_path / "none.safetensors", "modelopt")
    q = hc.quantize(W, "nvfp4")
    for coarse, expected in ((0.25, "nvfp4"), (float(q.components["coarse"]), "int8-g16")):
        parts = {**q.components, "coarse": np.array(coarse, np.float32)}
        one = hc.QuantizedArray(parts, q.format, q.shape, q.axis)
        hc.save(before, {"fc.weight": one})
        row = row_of(convert_checkpoint(before, after, "compressed-tensors"))
        assert row["to"] == expected
        if expected == "nvfp4":
            assert np.array_equal(decoders.compressed_nvfp4(hc.load(after), "fc"), one.dequantize())
    hc.save(before, {"fc.weight": hc.quantize(W, "int4-g32")})
    with pytest.raises(NotRepresentable, match="the scale or minimum .* is not a float16"):
        convert_checkpoint(before, tmp_path / "none.safetensors", "gptq")


def test_the_packages_of_the_layouts_agree(tmp_path):
    """compressed-tensors decodes the written tensors to the same values."""
    torch = pytest.importorskip("torch")
    packed = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
    saved(tmp_path / "a.safetensors", "awq", "int4-g64-asym-f16")
    convert_checkpoint(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "compressed-tensors")
    tensors = {name: torch.from_numpy(array) for name, array in hc.load(tmp_path / "b.safetensors").items()}
    codes = packed.unpack_from_int32(tensors["fc.weight_packed"], 4, torch.Size([64, 256]))
    zeros = packed.unpack_from_int32(tensors["fc.weight_zero_point"], 4, torch.Size([64, 4]), packed_dim=0)
    scales = tensors["fc.weight_scale"].float().repeat_interleave(64, 1)
    found = (codes.float() - zeros.float().repeat_interleave(64, 1)) * scales
    assert np.array_equal(found.numpy(), hc.quantize(W, "int4-g64-asym-f16").dequantize())


def test_onnxruntime_multiplies_by_what_is_written(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    saved(tmp_path / "a.safetensors", "gptq", "int4-g32-f16")
    convert_checkpoint(tmp_path / "a.safetensors", tmp_path / "b.onnx", "onnx-matmulnbits")
    session = runtime.InferenceSession(str(tmp_path / "b.onnx"), providers=["CPUExecutionProvider"])
    eye = np.eye(256, dtype=np.float32)
    (found,) = session.run(["fc.output"], {"fc.input": eye, "up.input": eye})
    assert np.allclose(found.T, hc.quantize(W, "int4-g32-f16").dequantize() + BIAS[:, None], rtol=0, atol=1e-6)


def test_zero_points_of_version_1(tmp_path):
    """GPTQ version 1 stores zero points minus 1; the written files are version 2, which can represent 0."""
    q = hc.quantize(W, "int4-g32-asym-f16")
    points = q.zero_points_expanded()[:, ::32]
    model = tmp_path / "model"
    model.mkdir()
    hc.save(tmp_path / "v2.safetensors", {"fc.weight": q}, layout="gptq")
    tensors = hc.load(tmp_path / "v2.safetensors")
    stored = (points.T.astype(np.int64) - 1) & 15
    words = (stored.reshape(len(stored), -1, 8) << 4 * np.arange(8)).sum(2).astype(np.uint32)
    hc.save(model / "model.safetensors", {**tensors, "fc.qzeros": words.view(np.int32)})
    config = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "checkpoint_format": "gptq"}
    (model / "config.json").write_text(json.dumps({"quantization_config": config}))
    summary = convert_checkpoint(model, tmp_path / "out", "gptq")
    assert row_of(summary)["status"] == "equal"
    assert data_of(tmp_path / "out" / "model.safetensors") == data_of(tmp_path / "v2.safetensors")
    said = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert said["checkpoint_format"] == "gptq_v2" and said["sym"] is False


@pytest.mark.parametrize("nested", [False, True])
def test_bitsandbytes_decodes_the_same(tmp_path, nested):
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("bitsandbytes.functional")
    codes, state = functional.quantize_4bit(
        torch.from_numpy(W), blocksize=64, quant_type="nf4", compress_statistics=nested
    )
    tensors = {"fc.weight": codes.numpy()}
    tensors |= {f"fc.weight.{name}": part.numpy() for name, part in state.as_dict(packed=True).items()}
    hc.save(tmp_path / "a.safetensors", tensors)
    values = functional.dequantize_4bit(codes, state).float().numpy()
    convert_checkpoint(tmp_path / "a.safetensors", tmp_path / "b.safetensors", OURS)
    assert np.array_equal(hc.load(tmp_path / "b.safetensors")["fc.weight"].dequantize(), values)
    convert_checkpoint(tmp_path / "b.safetensors", tmp_path / "c.safetensors", "bitsandbytes")
    found = hc.load(tmp_path / "c.safetensors")
    parts = {name.removeprefix("fc.weight."): torch.from_numpy(part) for name, part in found.items()}
    packed = parts.pop("fc.weight")
    again = functional.dequantize_4bit(packed, functional.QuantState.from_dict(parts, device="cpu"))
    assert np.array_equal(again.float().numpy(), values)
    assert np.array_equal(decoders.nf4(found, "fc.weight", 64, W.shape), values)
