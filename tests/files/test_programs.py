"""Codes and scales of other programs are not weights; other tensors of ordinary checkpoints are not codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.base.container import numpy_dtype
from heterocompute.cli import main
from heterocompute.files.checkpoint import dequantize_checkpoint, prune_checkpoint, quantize_checkpoint
from heterocompute.files.layouts.programs import program_in
from heterocompute.files.layouts.table import layout_said
from heterocompute.files.opening import reader_of

DTYPES = {
    "f8": "float8_e4m3fn", "e8": "float8_e8m0fnu", "f16": "float16", "bf": "bfloat16", "f32": "float32", "i8": "int8",
    "u8": "uint8", "i16": "int16", "i32": "int32", "u32": "uint32", "i64": "int64", "bool": "bool",
}  # fmt: skip
# Program | the tensor that reveals it | name dtype shape; ...; W is (64, 128), "-" has no dimension.
FOUND = """
ComfyUI | a.scale_weight | a.weight f8 W; a.scale_weight f32 -
ComfyUI | scaled_fp8 | a.weight f8 W; a.scale_weight f32 1; a.scale_input f32 1; scaled_fp8 f8 2
ComfyUI | scaled_fp8 | a.weight f8 W; scaled_fp8 f8 0
ComfyUI | a.comfy_quant | a.weight f8 W; a.weight_scale f32 -; a.comfy_quant u8 30
fp8 | a.weight_scale | a.weight f8 W; a.weight_scale f32 64x1
fp8 | a.weight_scale | a.weight f8 W; a.weight_scale bf 64
fp8 in blocks | a.weight_scale_inv | a.weight f8 W; a.weight_scale_inv f32 1x1
another program | a.scale | a.weight f8 W; a.scale e8 1x1
MXFP8 | a.weight_scale | a.weight f8 W; a.weight_scale u8 64x4
MLX | a.biases | a.weight u32 64x16; a.scales f16 64x2; a.biases f16 64x2
MLX | a.scales | a.weight u32 64x16; a.scales u8 64x4
ModelOpt | a.weight_scale_2 | a.weight u8 64x64; a.weight_scale f8 64x8; a.weight_scale_2 f32 -; a.input_scale f32 -
ModelOpt | a.weight_scale_2 | a.weight u8 32x128; a.weight_scale f32 64x1;
    a.weight_scale_2 f32 -; a.pre_quant_scale bf 128
ModelOpt | a.weight_quantizer._scale | a.weight u8 64x64;
    a.weight_quantizer._scale f8 64x8; a.weight_quantizer._double_scale f32 -
TensorRT-LLM | a.weights_scaling_factor | a.weight f8 W; a.weights_scaling_factor f32 -
quanto | a.weight._scale | a.weight._data i8 W; a.weight._scale f32 64x1; a.input_scale f32 -; a.output_scale f32 -
quanto | a.weight._scale | a.weight._data._data u8 32x128; a.weight._scale bf 64x1; a.weight._shift bf 64x1
quanto | a.weight_scale | a.weight_data i8 W; a.weight_scale f32 64x1
HQQ | a.W_q | a.W_q u8 32x128; a.scale f16 64x1; a.zero f16 64x1
HQQ | a.W_q | a.W_q u8 32x128; a.meta.scale f16 64x1; a.meta.zero f16 64x1
HQQ | a.W_q | a.W_q i32 8x128; a.scale f16 1x64
torchao | a._weight_qdata | a._weight_qdata i8 W; a._weight_scale f32 64x1; a._weight_zero_point i8 64x1
torchao | a.weight_qdata | a.weight_qdata u8 64x64; a.weight_scale f8 64x8
torchao | a.weight._weight_qdata | a.weight._weight_qdata i8 W; a.weight._scale f32 64x1; a.weight._zero_point i8 64x1
torchao | a.weight.qdata | a.weight.qdata i8 W; a.weight.scale f32 64x1
torchao | a.weight.tensor_impl.int_data | a.weight.tensor_impl.int_data i8 W; a.weight.tensor_impl.scale f32 64
gpt-oss (MXFP4) | e.gate_up_proj_blocks | e.gate_up_proj_blocks u8 4x64x4x16;
    e.gate_up_proj_scales u8 4x64x4; e.gate_up_proj_bias bf 4x64
gpt-oss (MXFP4) | e.gate_up_proj_blocks | e.gate_up_proj_blocks u8 4x64x4x16; e.gate_up_proj_scales e8 4x64x4
EETQ | a.weight_scales | a.weight i8 W; a.weight_scales f16 128
bitsandbytes | a.SCB | a.weight i8 W; a.SCB f32 64
bitsandbytes | a.weight.SCB | a.weight i8 W; a.weight.SCB f32 64
bitsandbytes | a.scb | a.weight i8 W; a.scb f32 64
bitsandbytes | a.weight.quant_map | a.weight u8 4096x1; a.weight.absmax f32 128; a.weight.quant_map f32 16
bitsandbytes | a.weight.absmax | a.weight u8 4096x1; a.weight.absmax u8 128; a.weight.nested_absmax f32 1
GPTQ or AWQ | a.qweight | a.qweight i32 16x64; a.qzeros i32 1x8; a.scales f16 1x64
GPTQ or AWQ | a.qweight | a.qweight i8 W; a.scales f32 64
GPTQ or AWQ | a.qweight | a.qweight i16 16x128; a.scales f16 8x64; a.scaled_zeros f16 8x64
Marlin | a.B | a.B i32 8x128; a.s f16 1x64
compressed-tensors | a.weight_packed | a.weight_packed i32 64x16; a.weight_scale bf 64x1; a.weight_shape i64 2
VPTQ | a.indices | a.indices i32 1x128x8; a.centroids.weight f16 1x2048; a.weight_scale f16 128
AQLM | a.codebooks | a.codes i8 64x16x1; a.codebooks f16 1x256x1x8; a.scales f16 64x1x1x1
QuIP# | a.Qidxs | a.Qidxs i64 64x16; a.SU f16 128; a.SV f16 64; a.Wscale f32 -
Quark | a.weight_zero_point | a.weight i8 W; a.weight_scale f32 64; a.weight_zero_point i8 64
SpQR | a.dense_weights | a.dense_weights i64 64x8; a.row_offsets i32 65
BitNet, Quark or another | a.weight_scale | a.weight u8 16x128; a.weight_scale bf 1
FBGEMM | a.input_scale_ub | a.weight f8 W; a.weight_scale f32 64x1; a.input_scale_ub f32 1
torch-int | a.a | a.weight i8 W; a.bias i8 1x64; a.a f32 -; a.b f32 -
MLC | a.q_scale | a.q_weight u32 64x16; a.q_scale f16 64x4
EXL2 | a.q_weight | a.q_weight i32 16x64; a.q_scale i32 1x8; a.q_scale_max f16 1
QTIP or EXL3 | a.trellis | a.trellis i16 8x4x64; a.suh f16 128; a.svh f16 64
SVDQuant | a.wscales | a.qweight i8 64x64; a.wscales bf 2x64
HIGGS | a.tables2 | a.weight i16 64x32; a.scales f16 64x1; a.tables f16 16x2; a.tables2 f16 16x16x2
another program | a.scale | a.weight i8 W; a.scale f32 64x1
another program | a.pre_ops.0._scale | a.weight u8 W; a.pre_ops.0._scale f16 64x1
another program | fc.w_s | fc.w_int i8 W; fc.w_s f32 64
another program | fc.kernel_scale | fc.kernel i8 W; fc.kernel_scale f32 128
another program | fc.weight_scales | fc.weight_int8 i8 W; fc.weight_scales f32 64
another program | fc.weight_quant_scale | fc.weight i8 W; fc.weight_quant_scale f32 -
another program | wq_scale | wq_int8 i8 W; wq_scale f32 64
another program | fc.weight_s | fc.weight_q i8 W; fc.weight_s f32 64
another program | fc.wScale | fc.wScale f32 64; fc.w i8 W
another program | fc.weight.scale | fc.weight.codes u8 W; fc.weight.scale f32 64
BitNet, Quark or another | fc/weight_scale | fc/weight i8 W; fc/weight_scale f32 64
another program | m.gate_up_proj_scale | m.gate_up_proj f8 8x64x128; m.gate_up_proj_scale f32 8x64x1
another program | m.gate_up_proj_weight_scale | m.gate_up_proj f8 8x64x128; m.gate_up_proj_weight_scale f32 8x64x1
fp8 | experts.w13_weight_scale | experts.w13_weight f8 8x64x128; experts.w13_weight_scale f32 8x2
another program | experts.w13_scale | experts.w13_weight f8 8x64x128; experts.w13_scale f32 8x2
another program | fc.dequant_scale | fc.weight i8 W; fc.dequant_scale f32 64
another program | fc.deq_scale | fc.weight i8 W; fc.deq_scale f32 64; fc.quant_bias i32 64
another program | fc.gamma_scale | fc.weight i8 W; fc.gamma_scale f32 64
another program | fc.weight_sc | fc.weight u8 W; fc.weight_zp u8 64; fc.weight_sc f32 64
another program | fc.weight_step | fc.weight i8 W; fc.weight_step f32 64
another program | fc.weight_delta | fc.weight i8 W; fc.weight_delta f32 64
another program | fc.scale_w | fc.weight i8 W; fc.scale_w f32 64
another program | fc.weight.scale | fc.weight.int_repr i8 W; fc.weight.scale f32 64
another program | fc.absmean | fc.qw i8 W; fc.absmean f32 1
another program | fc.weight_amax | fc.weight_fp8 f8 W; fc.weight_amax f32 -
another program | fc.weight.scale | fc.weight f8 W; fc.weight.scale f32 -
another program | fc.weight_scale_per_row | fc.weight f8 W; fc.weight_scale_per_row f32 64
another program | fc.weight_scaling | fc.weight f8 W; fc.weight_scaling f32 64
another program | fc.weight_scale | fc.weight i64 W; fc.weight_scale f32 64
another program | fc.scale.0 | fc.qvalue i8 W; fc.scale.0 f32 1x128
another program | fc.kernel.qtensor.scale.0 | fc.kernel.qtensor.qvalue i8 W; fc.kernel.qtensor.scale.0 f32 1x128
another program | experts.scales.1 | experts.codes.1 u8 W; experts.scales.1 f32 64x1
another program | fc.weight_descale | fc.weight f8 W; fc.weight_descale f32 64
"""
PLAIN = """
dense_weights f32 W; out_dense_weights f32 W; row_offsets i32 65
a.weight f8 W; a.bias f8 64; norm.scale f32 64; q_norm.scale bf 64
a.weight f8 W; a.scale f8 64
a.weight f8 W; a.scale_input f32 -
e.position_ids i64 1x512; e.word.weight f32 W
e.position_ids i32 1x512; e.scale f32 1
logit_scale f32 -; t.position_ids i64 1x77; position_ids i32 1x77
a.relative_position_index i64 49x49; a.logit_scale f32 3x1x1; a.qkv.weight f32 W
a.relative_position_index i32 49x49; a.logit_scale f32 49x1x1
a.bias u8 1x1x64x64; a.masked_bias f32 -; a.scale_attn f32 -
a.bias bool 1x1x64x64; a.scale f32 -
a.causal_mask u8 64x64; a.scale f32 64
a.mask i8 64x64; a.layer_scale f32 64
bn.num_batches_tracked i64 -; bn.weight f32 64; bn.scale f32 64
a.weight f32 W; a.weight_fake_quant.scale f32 64;
    a.weight_fake_quant.zero_point i32 64; a.weight_fake_quant.fake_quant_enabled u8 1;
    a.weight_fake_quant.observer_enabled u8 1
a.attention_bias_idxs i64 49x49; a.attention_biases f32 4x49; a.scale f32 -
images u8 10x28x28; scale f32 -
b.scale_shift_table f8 6x64; b.attn.weight f8 W
b.scale_shift_table f32 6x64; b.weight f8 W
b.gamma f32 64; b.layer_scale_1 f32 64; b.weight f32 W; b.idx i32 4x4
spiece_model u8 9999; logit_scale f32 -; shared.weight f16 W
q.codebook f32 W; q.cluster_size f32 64; q.inited u8 1
a.relative_coords_table f32 1x9x9x2; a.relative_position_index i64 9x9; a.logit_scale f32 4x1x1
tok.ids i32 4x4; tok.scale f32 -
alignment_heads u8 10x2; scale f32 -
g.alignment_heads u8 10x2; g.scale f32 -
graph.edges i32 2x100; graph.scale f32 -
k_proj.weight bf W; k_proj.k_scale f32 -
r.inv_freq f32 32; r.attention_scaling f32 -; r.cache i32 4x4
a.lora_A.weight f32 W; a.lora_B.weight f32 W; a.alpha i64 -; a.scaling f32 -
a.p f32 4x4; a.l_mask u8 4x4; a.sign_s f32 4; a.log_s f32 4
b.weight f8 64; b.scale f32 64
e.table i64 64x64; e.scale f32 64
e.tokens i32 64x8; e.scale f32 64
"""
Infos = dict[str, tuple[str, tuple[int, ...]]]


def lines(table: str) -> list[str]:
    return table.strip().replace(";\n   ", ";").split("\n")


def infos_of(text: str) -> Infos:
    found = {}
    for part in text.split("; "):
        name, dtype, sizes = part.split(" ")
        shape = (64, 128) if sizes == "W" else () if sizes == "-" else tuple(map(int, sizes.split("x")))
        found[name] = (DTYPES[dtype], shape)
    return found


def arrays_of(infos: Infos) -> dict[str, Any]:
    rng, arrays = np.random.default_rng(0), {}
    for name, (dtype, shape) in infos.items():
        wide = np.iinfo(dtype).max if np.dtype(numpy_dtype(dtype)).kind in "iu" else 2
        arrays[name] = np.asarray(rng.integers(1, min(wide, 255) + (wide < 3), shape)).astype(numpy_dtype(dtype))
    return arrays


@pytest.mark.parametrize("line", lines(FOUND))
def test_a_program_is_known_by_names_dtypes_and_shapes(line: str) -> None:
    program, name, text = line.split(" | ")
    infos = infos_of(text)
    plain: Infos = {"norm.weight": ("float32", (64,)), "embed.weight": ("float32", (32, 64))}
    for tensors in (infos, dict(reversed(infos.items())), plain | infos):
        found = program_in(tensors)
        assert found is not None and found.program == program
    assert program_in(plain | infos) == (program, name)


@pytest.mark.parametrize("text", lines(PLAIN))
def test_ordinary_tensors_are_no_codes(text: str) -> None:
    infos = infos_of(text)
    for tensors in (infos, dict(reversed(infos.items()))):
        assert program_in(tensors) is None


@pytest.mark.parametrize("line", lines(FOUND)[::4])
@pytest.mark.sweep(every=4)
def test_every_command_refuses_codes_and_scales(tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    arrays = arrays_of(infos_of(line.split(" | ")[2])) | {"embed.weight": np.ones((8, 64), np.float32)}
    path, out = tmp_path / "model.safetensors", tmp_path / "out.safetensors"
    hc.save(path, arrays)
    np.savez(tmp_path / "x.npz", **{"embed.weight": np.ones((4, 64), np.float32)})
    h = hc.ptq.Hessian(64)
    h.add(np.eye(64, dtype=np.float32))
    calls = (
        lambda: quantize_checkpoint(path, out, "int8"),
        lambda: prune_checkpoint(path, out, "2:4"),
        lambda: hc.ptq.quantize_checkpoint(path, out, {"embed.weight": h}, "int8"),
        lambda: hc.study(path, ["int8"]),
        lambda: hc.study(arrays, ["int8"]),
        lambda: hc.study_density(path, evaluate=lambda weights: 1.0),
        lambda: hc.ptq.search(arrays, ["int8"], {"bits": 9}),
    )
    for call in calls:
        with pytest.raises(ValueError, match="is already quantized, (by|in)"):
            call()
    with hc.open_checkpoint(path) as opened, bad_argument(ValueError, None, "file", "is already quantized"):
        hc.ptq.search(opened, ["int8"], {"bits": 9})
    inputs = ["--format", "int8", "--inputs", str(tmp_path / "x.npz")]
    with reader_of(path) as reader:
        is_read = layout_said(reader) is not None
    for words in (
        ["study", str(path), "--formats", "int8"],
        ["search", str(path), "--budget", "bits=4"],
        ["ptq", str(path), str(out), *inputs],
        ["quantize", str(path), str(out), "--format", "int8", "--exclude", "nothing*"],
        *([] if is_read else [["dequantize", str(path), str(out)]]),
    ):
        assert main(words) == 1
        declared = capsys.readouterr().err.splitlines()[-1]
        assert "quantiz" in declared and declared.count(str(path)) == 1
    assert not out.exists()


@pytest.mark.parametrize("text", lines(PLAIN)[::4])
def test_ordinary_checkpoints_are_quantized(tmp_path: Path, text: str) -> None:
    arrays = arrays_of(infos_of(text)) | {"embed.weight": np.ones((8, 64), np.float32)}
    hc.save(tmp_path / "in", arrays)
    rows = quantize_checkpoint(tmp_path / "in", tmp_path / "out", "int8", needed=True)["tensors"]
    assert {"embed.weight": "int8"}.items() <= {row["name"]: row["format"] for row in rows}.items()


def test_float8_without_scales_is_read(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((16, 64)).astype(numpy_dtype("float8_e4m3fn"))
    hc.save(tmp_path / "in", {"fc.weight": w, "fc.bias": w[0], "norm.scale": np.ones(64, np.float32)})
    quantize_checkpoint(tmp_path / "in", tmp_path / "out", "int8")
    error = np.abs(hc.load(tmp_path / "out")["fc.weight"].dequantize() - w.astype(np.float32)).max()
    assert error <= np.abs(w.astype(np.float32)).max() / 127


CODES = {"fc.weight": np.ones((64, 32), np.uint8), "embed.weight": np.ones((8, 64), np.float32)}


@pytest.mark.parametrize("name, declared, program", [
    ("hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4"}}, "ModelOpt (hf_quant_config.json)"),
    ("quanto_qmap.json", {"fc": {"weights": "qint4"}}, "quanto (quanto_qmap.json)"),
    ("smash_config.json", {"quantizer": "hqq"}, "Pruna (smash_config.json)"),
    ("config.json", {"quantization_config": {"bits": 4}}, "a quantization_config without quant_method"),
    ("config.json", {"text_config": {"quantization_config": {"quant_method": "modelopt"}}}, "'modelopt'"),
    ("config.json", {"quantization": {"bits": 4, "group_size": 64}}, "the quantization of config.json"),
    ("config.json", {"compression_config": {"format": "x"}}, "the compression_config of config.json"),
    ("quantize_config.json", {"bits": 4}, "a quantization_config without quant_method"),
])  # fmt: skip
def test_codes_alone_are_refused_where_a_file_says_so(tmp_path: Path, name: str, declared: Any, program: str) -> None:
    path, out = tmp_path / "model.safetensors", tmp_path / "out.safetensors"
    hc.save(path, CODES)
    quantize_checkpoint(path, out, "int8")  # without evidence of codes, the integers are copied
    (tmp_path / name).write_text(json.dumps(declared))
    for call in (lambda: quantize_checkpoint(path, out, "int8"), lambda: dequantize_checkpoint(path, out)):
        with pytest.raises(ValueError) as caught:
            call()
        assert f"is already quantized, by {program} with 'fc.weight', in no layout" in str(caught.value)
    hc.save(path, {"embed.weight": CODES["embed.weight"]})  # dequantized weights next to the old tensors
    quantize_checkpoint(path, out, "int8")


def test_a_layout_in_a_configuration_of_a_part_is_read(tmp_path: Path) -> None:
    q = hc.quantize(np.random.default_rng(0).standard_normal((32, 128), dtype=np.float32), "int4-g32-f16")
    hc.save(tmp_path / "a", {"fc.weight": q}, layout="gptq")
    with hc.open_checkpoint(tmp_path / "a") as found:
        config = json.loads(found.metadata["quantization_config"])
    hc.save(tmp_path / "model.safetensors", hc.load(tmp_path / "a"))
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"quantization_config": config}}))
    assert hc.load(tmp_path / "model.safetensors", layout="gptq")["fc.weight"] == q


def test_packed_arrays_of_this_package_are_no_codes_of_another(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((16, 64), dtype=np.float32)
    for fmt in ("int8", "fp8_e4m3fn-row", "mxfp4", "nvfp4", "vsq4-g16-s4", "int4-g32-asym-f16"):
        hc.save(tmp_path / "in", {"fc.weight": hc.quantize(w, fmt), "out.weight": w})
        assert dequantize_checkpoint(tmp_path / "in", tmp_path / "out")["tensors"][0]["format"] == fmt
        assert {row["name"] for row in hc.study(tmp_path / "in", ["int8"]).layers} == {"out.weight"}
