"""Every method of transformers' registry of quantizers is read with the values of its program, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common import same_bits

import heterocompute as hc
from heterocompute.arrays.layout import save_arrays
from heterocompute.files.checkpoint import dequantize_checkpoint, quantize_checkpoint
from heterocompute.files.layouts.linear import to_words

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(53)
E4M3, E5M2, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def write(folder: Path, tensors: dict[str, Any], config: dict[str, Any] | None) -> Path:
    save_arrays(folder / "model.safetensors", tensors, {})
    if config is not None:
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    return folder


def values_of(folder: Path, name: str = "fc.weight") -> Array:
    dequantize_checkpoint(folder, folder / "out.safetensors", dtype="float32")
    found = hc.load(folder / "out.safetensors")[name]
    loaded = hc.open_checkpoint(folder / "out.safetensors")
    assert name in loaded
    return np.asarray(found)


def spread(scales: Array, shape: tuple[int, int]) -> Array:
    """Return a scale for each value, as transformers does: blocks are the shape divided by the grid."""
    rows, columns = scales.shape
    return np.repeat(np.repeat(scales, shape[0] // rows, 0), shape[1] // columns, 1)


@pytest.mark.parametrize("method, name, block", [
    ("fp8", "weight_scale_inv", [1, 32]), ("fp8", "weight_scale_inv", [32, 64]), ("fp8", "weight_scale_inv", [64, 128]),
    ("fp8", "weight_scale_inv", None), ("fp8", "scale", None), ("fp8", "qscale_weight", None),
    ("mxfp8", "weight_scale_inv", [1, 32]), ("mxfp8", "weight_scale", None), ("mxfp8", "weight_scale_inv", [128, 128]),
    ("modelopt", "weight_scale", None), ("modelopt_mxfp8", "weight_scale", None), (None, "weight_scale_inv", None),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["float8_e8m0fnu", "uint8"])
def test_scales_of_fp8_that_are_powers_of_two(tmp_path: Path, method: str, name: str, block: Any, kind: str) -> None:
    """A scale of one byte is 2^(byte - 127), and blocks are those of the grid of scales."""
    shape = (64, 128)
    high, wide = block if block not in (None, [128, 128]) else (1, 32)
    codes = RNG.standard_normal(shape).astype(E4M3)
    stored = RNG.integers(110, 140, (64 // high, 128 // wide)).astype(np.uint8)
    tensors = {"fc.weight": codes, f"fc.{name}": stored if kind == "uint8" else stored.view(E8M0)}
    config = None if method is None else {"quant_method": method} | ({"weight_block_size": block} if block else {})
    expected = codes.astype(np.float32) * spread(np.exp2(stored.astype(np.float32) - 127), shape)
    assert same_bits(values_of(write(tmp_path, tensors, config)), expected)


def test_a_scale_of_one_byte_that_is_nan_is_refused(tmp_path: Path) -> None:
    scales = np.full((64, 4), 255, np.uint8)
    for stored in (scales, scales.view(E8M0)):
        folder = write(tmp_path, {"fc.weight": np.ones((64, 128), E4M3), "fc.weight_scale_inv": stored},
                       {"quant_method": "fp8", "weight_block_size": [1, 32]})  # fmt: skip
        with pytest.raises(ValueError, match=r"fc\.weight_scale_inv holds a value that is not finite"):
            values_of(folder)


@pytest.mark.parametrize("shape", [(64, 128), (3, 32, 64)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_experts_of_four_bits_beside_fp8(tmp_path: Path, shape: tuple[int, ...], dtype: type) -> None:
    """Two codes of E2M1 per byte, the even one low, with a power of two for every 32 values."""
    bytes_ = RNG.integers(0, 256, (*shape[:-1], shape[-1] // 2)).astype(np.uint8)
    scales = RNG.integers(110, 140, (*shape[:-1], shape[-1] // 32)).astype(np.uint8)
    dense, block = RNG.standard_normal((128, 256)).astype(E4M3), np.array([[0.5, 2]], np.float32)
    tensors = {"experts.0.w1.weight": bytes_.view(dtype), "experts.0.w1.scale": scales.view(E8M0),
               "fc.weight": dense, "fc.scale": block, "norm.scale": np.ones(4, np.float32)}  # fmt: skip
    config = {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0", "expert_dtype": "fp4"}
    folder = write(tmp_path, tensors, config)
    codes = np.stack([bytes_ & 15, bytes_ >> 4], axis=-1).reshape(shape)
    expected = E2M1[codes] * np.repeat(np.exp2(scales.astype(np.float32) - 127), 32, axis=-1)
    assert same_bits(values_of(folder, "experts.0.w1.weight"), expected)
    assert same_bits(values_of(folder), dense.astype(np.float32) * spread(block, (128, 256)))
    assert values_of(folder, "norm.scale").tolist() == [1, 1, 1, 1]
    q = hc.load(folder / "model.safetensors", layout="fp8")["experts.0.w1.weight"]
    assert str(q.format) == "mxfp4" and q.shape == shape


@pytest.mark.parametrize("scales", [(3,), (3, 1), (3, 1, 1), (3, 64), (3, 64, 1), (3, 1, 2), (3, 2, 1), (3, 64, 4)])
@pytest.mark.parametrize("method", ["fp8", "fbgemm_fp8", "modelopt"])
def test_stacks_of_fp8(tmp_path: Path, scales: tuple[int, ...], method: str) -> None:
    """The scales of an expert are for all of its values, for its rows, or for its blocks."""
    codes = RNG.standard_normal((3, 64, 128)).astype(E4M3)
    factors = RNG.uniform(0.5, 2, scales).astype(np.float32)
    folder = write(tmp_path, {"up.weight": codes, "up.weight_scale": factors}, {"quant_method": method})
    each = factors.reshape(3, 64, 1) if scales == (3, 64) else factors.reshape(3, *([*scales[1:], 1, 1][:2]))
    expected = codes.astype(np.float32) * np.stack([spread(one, (64, 128)) for one in each])
    assert same_bits(values_of(folder, "up.weight"), expected)


def four_bits(shape: tuple[int, ...], group: int) -> tuple[Array, Array]:
    """Return bytes of two codes, the even one low, and the scale bytes of groups."""
    return (RNG.integers(0, 256, (*shape[:-1], shape[-1] // 2)).astype(np.uint8),
            RNG.integers(1, 120, (*shape[:-1], shape[-1] // group)).astype(np.uint8))  # fmt: skip


def elements(bytes_: Array) -> Array:
    return E2M1[np.stack([bytes_ & 15, bytes_ >> 4], axis=-1).reshape(*bytes_.shape[:-1], -1)]


@pytest.mark.parametrize("wholes", [(), (1,), (3,), (3, 1), (3, 1, 1)])
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("layout", ["modelopt", "compressed-tensors"])
def test_stacks_of_nvfp4(tmp_path: Path, wholes: tuple[int, ...], alike: bool, layout: str) -> None:
    """Experts may have one float32 scale together, or one each."""
    bytes_, stored = four_bits((3, 32, 64), 16)
    whole = np.full(wholes, 0.75, np.float32) if alike else RNG.uniform(0.5, 2, wholes).astype(np.float32)
    each = np.broadcast_to(np.asarray(whole).reshape(-1, 1, 1), (3, 1, 1))
    scales = stored.view(E4M3)
    if layout == "modelopt":
        tensors = {"up.weight": bytes_, "up.weight_scale": scales, "up.weight_scale_2": np.asarray(whole)}
        products = scales.astype(np.float32) * each
    else:
        whole = np.atleast_1d(whole)
        tensors = {"up.weight_packed": bytes_, "up.weight_scale": scales, "up.weight_global_scale": whole}
        products = scales.astype(np.float32) / each
    folder = write(tmp_path, tensors, {"quant_method": layout})
    expected = elements(bytes_) * np.repeat(products, 16, axis=-1)
    assert same_bits(values_of(folder, "up.weight"), expected)
    if layout == "modelopt":
        fmt = str(hc.load(folder / "model.safetensors", layout=layout)["up.weight"].format)
        assert fmt == ("nvfp4" if alike or whole.size == 1 else "fp4_e2m1-g16")


def test_scales_of_nvfp4_that_are_not_finite_or_too_many_are_refused(tmp_path: Path) -> None:
    bytes_, stored = four_bits((32, 64), 16)
    for whole, words in ((np.ones(2, np.float32), "expected one float32"), (np.float32(np.nan), "is not finite")):
        tensors = {"up.weight": bytes_, "up.weight_scale": stored.view(E4M3), "up.weight_scale_2": np.asarray(whole)}
        with pytest.raises(ValueError, match=words):
            values_of(write(tmp_path, tensors, {"quant_method": "modelopt"}), "up.weight")
    tensors = {
        "up.weight_packed": bytes_,
        "up.weight_scale": stored.view(E4M3),
        "up.weight_global_scale": np.ones(2, np.float32),
    }
    with pytest.raises(ValueError, match="expected one float32 > 0"):
        values_of(write(tmp_path, tensors, {"quant_method": "compressed-tensors"}), "up.weight")


@pytest.mark.parametrize("shape", [(32, 128), (3, 32, 128)])
def test_mxfp4_of_modelopt(tmp_path: Path, shape: tuple[int, ...]) -> None:
    bytes_, stored = four_bits(shape, 32)
    folder = write(tmp_path, {"up.weight": bytes_, "up.weight_scale": stored}, {"quant_method": "modelopt"})
    expected = elements(bytes_) * np.repeat(np.exp2(stored.astype(np.float32) - 127), 32, axis=-1)
    assert same_bits(values_of(folder, "up.weight"), expected)


@pytest.mark.parametrize("kind", ["uint8", "float8_e8m0fnu"])
@pytest.mark.parametrize("shape", [(32, 128), (3, 32, 128)])
def test_mxfp8_of_compressed_tensors(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    codes, (_, stored) = RNG.standard_normal(shape).astype(E4M3), four_bits(shape, 32)
    tensors = {"up.weight": codes, "up.weight_scale": stored if kind == "uint8" else stored.view(E8M0)}
    weights = {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}
    config = {"quant_method": "compressed-tensors", "format": "mxfp8-quantized",
              "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}  # fmt: skip
    expected = codes.astype(np.float32) * np.repeat(np.exp2(stored.astype(np.float32) - 127), 32, axis=-1)
    assert same_bits(values_of(write(tmp_path, tensors, config), "up.weight"), expected)
    if kind == "uint8":  # as numbers these bytes would be other scales
        with pytest.raises(ValueError, match="weight_scale is uint8, expected"):
            values_of(write(tmp_path, tensors, config | {"format": "float-quantized"}), "up.weight")


@pytest.mark.parametrize("structure", [[16, 64], "16x64"])
def test_blocks_of_compressed_tensors_as_a_list_or_a_word(tmp_path: Path, structure: Any) -> None:
    codes, scales = RNG.standard_normal((32, 128)).astype(E4M3), RNG.uniform(0.5, 2, (2, 2)).astype(np.float32)
    weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": structure}
    config = {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"": {"weights": weights}},
    }
    folder = write(tmp_path, {"fc.weight": codes, "fc.weight_scale": scales}, config)
    assert same_bits(values_of(folder), codes.astype(np.float32) * spread(scales, (32, 128)))


@pytest.mark.parametrize("bits", [3, 5, 6, 7])
@pytest.mark.parametrize("symmetric", [True, False])
def test_old_packing_of_compressed_tensors(tmp_path: Path, bits: int, symmetric: bool) -> None:
    """Old versions stored 32 // bits codes per word, and left the rest of a word empty."""
    per, rows, count = 32 // bits, 40, 128
    codes = RNG.integers(1, 1 << bits, (rows, count)).astype(np.uint32)
    points = RNG.integers(0, 1 << bits, (rows, 2)).astype(np.uint32)
    scales = RNG.uniform(0.5, 2, (rows, 2)).astype(np.float32)

    def words_of(values: Array) -> Array:
        padded = np.pad(values, ((0, 0), (0, -values.shape[1] % per))).reshape(len(values), -1, per)
        return (padded << (np.arange(per, dtype=np.uint32) * np.uint32(bits))).sum(-1, dtype=np.uint32).view(np.int32)

    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": 64}
    config = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"": {"weights": weights}},
    }
    tensors = {
        "fc.weight_packed": words_of(codes),
        "fc.weight_scale": scales,
        "fc.weight_shape": np.array([rows, count]),
    }
    middle = np.full((rows, 2), 1 << (bits - 1)) if symmetric else points
    if not symmetric:
        tensors["fc.weight_zero_point"] = np.ascontiguousarray(words_of(points.T).T)
    expected = (codes.astype(np.float32) - np.repeat(middle, 64, 1).astype(np.float32)) * np.repeat(scales, 64, 1)
    assert same_bits(values_of(write(tmp_path, tensors, config)), expected)
    tensors["fc.weight_packed"] = tensors["fc.weight_packed"] | np.int32(-(1 << 31))
    with pytest.raises(ValueError, match=f"words of {per} codes of {bits} bits have other bits"):
        values_of(write(tmp_path, tensors, config))


@pytest.mark.parametrize("model_type", ["qwen3_moe", "qwen3_vl_moe", "llama4", None])
@pytest.mark.parametrize("block", [[128, 128], [64, 128], None])
def test_stacks_of_fp8_with_the_names_of_transformers(
    block: list[int] | None, model_type: str | None, tmp_path: Path
) -> None:
    """The values do not depend on the summed axis; the configuration says it."""
    turned = model_type in ("qwen3_vl_moe", "llama4")
    shapes = ((3, 128, 384), (3, 192, 128)) if turned else ((3, 384, 128), (3, 128, 192))
    high, wide = block or (1 << 20, 1 << 20)
    tensors: dict[str, Any] = {}
    expected = {}
    for part, (count, rows, columns) in zip(("gate_up_proj", "down_proj"), shapes, strict=True):
        name = f"layers.0.mlp.experts.{part}"
        codes = RNG.standard_normal((count, rows, columns)).astype(E4M3)
        scales = RNG.uniform(0.5, 2, (count, -(-rows // high), -(-columns // wide))).astype(np.float32)
        tensors |= {name: codes, f"{name}_scale_inv": scales}
        index = np.ix_(range(count), np.arange(rows) // high, np.arange(columns) // wide)
        expected[name] = codes.astype(np.float32) * scales[index]
    config = {"quant_method": "fp8", "weight_block_size": block}
    folder = write(tmp_path, tensors, config)
    said = {"hidden_size": 128, "quantization_config": config} | ({"model_type": model_type} if model_type else {})
    (folder / "config.json").write_text(json.dumps(said))
    found = hc.load(folder, layout="fp8")
    dequantize_checkpoint(folder, tmp_path / "plain", layout="fp8")
    plain = hc.load(tmp_path / "plain")
    for name, values in expected.items():
        assert same_bits(plain[name], values)
        assert same_bits(np.asarray(found[name]), values)
        assert found[name].axis == ((1,) if turned else (2,))


def test_plain_experts_of_gpt_oss_become_blocks_and_back(tmp_path: Path) -> None:
    """transformers has (experts, in, out), in parameters without the name of a weight."""
    said = {"model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 96}
    tensors = {
        "model.layers.0.mlp.experts.gate_up_proj": RNG.standard_normal((3, 64, 192)).astype(np.float32),
        "model.layers.0.mlp.experts.gate_up_proj_bias": RNG.standard_normal((3, 192)).astype(np.float32),
        "model.layers.0.mlp.experts.down_proj": RNG.standard_normal((3, 96, 64)).astype(np.float32),
        "model.layers.0.mlp.router.weight": RNG.standard_normal((3, 64)).astype(np.float32),
    }
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder, tensors, None)
    (folder / "config.json").write_text(json.dumps(said))
    quantize_checkpoint(folder, tmp_path / "packed", "mxfp4", layout="gpt-oss", check="all")
    stored = hc.load(tmp_path / "packed")
    assert stored["model.layers.0.mlp.experts.gate_up_proj_blocks"].shape == (3, 192, 2, 16)
    assert stored["model.layers.0.mlp.experts.down_proj_scales"].shape == (3, 64, 3)
    dequantize_checkpoint(tmp_path / "packed", tmp_path / "plain", layout="gpt-oss")
    plain = hc.load(tmp_path / "plain")
    assert plain.keys() == tensors.keys()
    for name, values in tensors.items():
        is_stack = name.endswith("_proj")
        assert same_bits(plain[name], np.asarray(hc.quantize(values, "mxfp4", axis=1)) if is_stack else values)


def test_stacks_of_fp8_with_scales_of_another_name_are_refused(tmp_path: Path) -> None:
    tensors = {
        "experts.gate_up_proj": np.ones((3, 64, 128), E4M3),
        "experts.gate_up_proj_scale": np.ones((3, 1, 128), np.float32),
    }
    for method in ("fp8", "fbgemm_fp8"):
        folder = write(tmp_path, tensors, {"quant_method": method})
        with pytest.raises(ValueError, match=f"by '{method}' with 'experts.gate_up_proj"):
            values_of(folder, "experts.gate_up_proj")


def test_fp8_with_a_scale_per_row_of_fbgemm(tmp_path: Path) -> None:
    codes, scales = RNG.standard_normal((64, 96)).astype(E4M3), RNG.uniform(0.5, 2, (64, 1)).astype(np.float32)
    tensors = {"fc.weight": codes, "fc.weight_scale": scales, "fc.input_scale_ub": np.full(1, 1200, np.float32)}
    config = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]}
    folder = write(tmp_path, tensors, config)
    assert same_bits(values_of(folder), codes.astype(np.float32) * scales)
    assert str(hc.load(folder / "model.safetensors", layout="fp8")["fc.weight"].format) == "fp8_e4m3fn-row"


@pytest.mark.parametrize("scheme, scale, reads", [
    ({"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, (), True),
    ({"dtype": "fp8_e4m3", "qscheme": "per_channel", "ch_axis": 0}, (64,), True),
    ({"dtype": "fp8_e4m3", "qscheme": "per_channel", "ch_axis": 1}, (64,), False),
    ({"dtype": "fp4", "qscheme": "per_group"}, (64,), False), (None, (64,), False),
])  # fmt: skip
def test_fp8_of_quark(tmp_path: Path, scheme: Any, scale: tuple[int, ...], reads: bool) -> None:
    codes, scales = RNG.standard_normal((64, 64)).astype(E4M3), RNG.uniform(0.5, 2, scale).astype(np.float32)
    config = {"quant_method": "quark", "global_quant_config": {"weight": scheme}}
    folder = write(tmp_path, {"fc.weight": codes, "fc.weight_scale": np.asarray(scales)}, config)
    if reads:
        assert same_bits(values_of(folder), codes.astype(np.float32) * scales.reshape(-1, 1))
    else:
        with pytest.raises(ValueError, match="by 'quark' with"):
            values_of(folder)


def packed(bits: int, count: int, rows: int, group: int) -> tuple[Array, Array, Array]:
    """Return codes (in, out), points and scales (groups, out)."""
    codes = RNG.integers(0, 1 << bits, (count, rows)).astype(np.uint8)
    return (
        codes,
        RNG.integers(1, 1 << bits, (count // group, rows)).astype(np.uint8),
        (RNG.uniform(0.01, 0.1, (count // group, rows)).astype(np.float16)),
    )


PACKINGS = {
    "auto_round:auto_gptq": 1, "auto_round:gptq": 1, "auto": 1, None: 1, "auto_gptq:exllamav2": 1,
    "auto_round": 0, "auto_round:gptqmodel": 0, "auto_round:exllamav2": 0, "auto_round:tritonv2": 0,
}  # fmt: skip


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("sym", [True, False])
def test_integers_of_auto_round(tmp_path: Path, packing: str | None, bits: int, sym: bool) -> None:
    """Zero points are stored minus 1 where the packing is AutoGPTQ's, and as they are otherwise."""
    codes, points, scales = packed(bits, 128, 32, 64)
    if sym:
        points[...] = 1 << (bits - 1)
    stored = points - np.uint8(PACKINGS[packing])
    tensors = {"fc.qweight": np.ascontiguousarray(to_words(codes.T, bits).T), "fc.scales": scales,
               "fc.qzeros": to_words(stored, bits)}  # fmt: skip
    config = {"quant_method": "auto-round" if bits % 2 else "intel/auto-round", "bits": bits, "group_size": 64,
              "sym": sym, "data_type": "int", "iters": 200}  # fmt: skip
    folder = write(tmp_path, tensors, config | ({} if packing is None else {"packing_format": packing}))
    group = np.arange(128) // 64
    expected = (codes.astype(np.float32) - points[group].astype(np.float32)) * scales[group].astype(np.float32)
    assert same_bits(values_of(folder), np.ascontiguousarray(expected.T))


def test_bits_of_single_layers_of_auto_round(tmp_path: Path) -> None:
    """Names count before expressions, which are searched in the whole name; the first of these counts."""
    tensors, expected = {}, {}
    for name, bits, group in (("model.a.up", 4, 64), ("model.b.up", 8, 32), ("model.b.down", 2, 128)):
        codes, points, scales = packed(bits, 128, 32, group)
        tensors |= {f"{name}.qweight": np.ascontiguousarray(to_words(codes.T, bits).T), f"{name}.scales": scales,
                    f"{name}.qzeros": to_words(points - np.uint8(1), bits)}  # fmt: skip
        index = np.arange(128) // group
        values = (codes.astype(np.float32) - points[index].astype(np.float32)) * scales[index].astype(np.float32)
        expected[name] = np.ascontiguousarray(values.T)
    more = {"b\\.": {"bits": 8, "group_size": 32}, "up": {"bits": 3}, "model.a.up": {"bits": 4, "group_size": 64},
            "model.b.down": {"bits": 2}, "lm_head": {"bits": 16}}  # fmt: skip
    config = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": False, "extra_config": more}
    folder = write(tmp_path, tensors, config)
    for name, values in expected.items():
        assert same_bits(values_of(folder, f"{name}.weight"), values)
    more["model.a.up"] = {"bits": 16}
    with pytest.raises(
        ValueError, match=r"model\.a\.up is packed, but extra_config says by 'model\.a\.up' that it has 16"
    ):
        values_of(write(tmp_path, tensors, config | {"extra_config": more}))


@pytest.mark.parametrize("packing", ["auto_round:auto_awq", "auto_round:awq"])
def test_awq_of_auto_round(tmp_path: Path, packing: str) -> None:
    q = hc.quantize(RNG.standard_normal((32, 128)).astype(np.float32), "int4-g64-asym-f16")
    hc.save(tmp_path / "awq", {"fc.weight": q}, layout="awq")
    config = {"quant_method": "auto-round", "bits": 4, "group_size": 64, "sym": False, "packing_format": packing}
    assert same_bits(values_of(write(tmp_path, hc.load(tmp_path / "awq"), config)), q.dequantize())


@pytest.mark.parametrize("bits, kind, fmt", [(4, "nv_fp", "nvfp4"), (4, "mx_fp", "mxfp4")])
def test_four_bit_floats_of_auto_round(tmp_path: Path, bits: int, kind: str, fmt: str) -> None:
    w = np.sign(RNG.standard_normal((32, 128))).astype(np.float32)
    w[0, 0] = 21  # p = 21 / 2688 = 2^-7, whose reciprocal is exact
    q = hc.quantize(w, fmt)
    hc.save(tmp_path / "stored", {"fc.weight": q}, layout="compressed-tensors")
    config = {
        "quant_method": "auto-round",
        "bits": bits,
        "data_type": kind,
        "packing_format": "auto_round:llm_compressor",
    }
    assert same_bits(values_of(write(tmp_path, hc.load(tmp_path / "stored"), config)), q.dequantize())


@pytest.mark.parametrize(
    "packing, dtype", [("auto_round:fp8_static", np.float32), ("auto_round:llm_compressor", np.uint8)]
)
def test_fp8_of_auto_round(tmp_path: Path, packing: str, dtype: type) -> None:
    codes = RNG.standard_normal((64, 128)).astype(E4M3)
    wide = dtype is np.uint8
    stored = RNG.integers(120, 130, (64, 4)).astype(dtype) if wide else RNG.uniform(0.5, 2, 64).astype(dtype)
    config = {
        "quant_method": "auto-round",
        "bits": 8,
        "data_type": "mx_fp" if wide else "fp",
        "packing_format": packing,
    }
    folder = write(tmp_path, {"fc.weight": codes, "fc.weight_scale": stored}, config)
    factors = np.exp2(stored.astype(np.float32) - 127) if wide else stored.reshape(64, 1)
    assert same_bits(values_of(folder), codes.astype(np.float32) * spread(factors, (64, 128)))


@pytest.mark.parametrize("changed, words", [
    ({"packing_format": "auto_round:x"}, r"by 'auto-round' \(packing_format 'auto_round:x'\) with 'fc\.qweight'"),
    ({"packing_format": "auto_round:llm_compressor_nvfp4_e5m3"}, "'auto_round:llm_compressor_nvfp4_e5m3'"),
    ({"data_type": "mx_fp"}, "data_type is 'mx_fp', expected int"),
    ({"rotation_config": {"hadamard_type": "random"}}, "rotation_config says that weights are rotated"),
    ({"bits": 5}, "bits is 5, expected 2, 3, 4 or 8"), ({"extra_config": [1]}, "extra_config is"),
    ({"extra_config": {"fc": 3}}, "extra_config says 3 for 'fc'"),
])  # fmt: skip
def test_what_auto_round_says_is_read_or_refused(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    codes, points, scales = packed(4, 128, 32, 64)
    tensors = {"fc.qweight": np.ascontiguousarray(to_words(codes.T, 4).T), "fc.scales": scales,
               "fc.qzeros": to_words(points, 4)}  # fmt: skip
    config = {"quant_method": "auto-round", "bits": 4, "group_size": 64, "sym": False}
    with pytest.raises(ValueError, match=words):
        values_of(write(tmp_path, tensors, config | changed))


def test_weights_scaled_a_second_time_for_fp8_are_refused(tmp_path: Path) -> None:
    codes, points, scales = packed(4, 128, 32, 64)
    tensors = {"fc.qweight": np.ascontiguousarray(to_words(codes.T, 4).T), "fc.scales": scales,
               "fc.qzeros": to_words(points, 4), "fc.w_bf16_to_fp8_scale": np.ones(1, np.float32)}  # fmt: skip
    with pytest.raises(ValueError, match=r"with 'fc\.w_bf16_to_fp8_scale', in no layout that is read"):
        values_of(write(tmp_path, tensors, {"quant_method": "auto-round", "bits": 4, "group_size": 64, "sym": False}))


def half(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float16)


def whole(*shape: int, dtype: Any = np.int32) -> Array:
    return RNG.integers(0, 100, shape).astype(dtype)


# Methods of the registry whose weights are not read, with tensors as their programs call them.
UNREAD = {
    "aqlm": {"q.codes": whole(64, 16, 1, dtype=np.int16), "q.codebooks": half(1, 256, 1, 8)},
    "fouroversix": {"q.quantized_weight_values": whole(64, 64, dtype=np.uint8), "q.quantized_weight_amax": half(1),
                    "q.quantized_weight_scale_factors": whole(512, dtype=np.uint8)},
    "fp_quant": {"q.qweight": whole(64, 64, dtype=np.uint8), "q.scales": whole(64, 4, dtype=np.uint8),
                 "q.forward_hadamard_matrix": half(32, 32)},
    "gemma": {"q.weight": whole(64, 32, dtype=np.uint8), "q.weight_scale": half(64, 1)},
    "gguf": {"q.weight": whole(64, 18, dtype=np.uint8)},
    "higgs": {"q.weight": whole(64, 32), "q.scales": half(64, 4), "q.tables2": half(16, 16, 2)},
    "metal": {"q.weight": whole(64, 16, dtype=np.uint32), "q.scales": half(64, 2), "q.qbiases": half(64, 2)},
    "nvfp4": {"q.weight_packed": whole(64, 32, dtype=np.uint8), "q.weight_scale": whole(64, 4, dtype=np.uint8)},
    "quark": {"q.weight": whole(64, 16), "q.weight_scale": half(64, 4), "q.weight_zero_point": whole(64, 1)},
    "sinq": {"q.W_q": whole(64, 32, dtype=np.uint8), "q.scale": half(64, 1), "q.zero": half(64, 1)},
    "spqr": {"q.dense_weights": whole(256, dtype=np.int64), "q.row_offsets": whole(65), "q.col_vals": whole(128)},
    "vptq": {"q.indices": whole(16, 64), "q.centroids.weight": half(4, 2048)},
}  # fmt: skip
READ = {"auto-round", "awq", "bitnet", "bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit", "compressed-tensors",
        "eetq", "fbgemm_fp8", "fp8", "gptq", "hqq", "mxfp4", "mxfp8", "quanto", "torchao"}  # fmt: skip


@pytest.mark.parametrize("method", UNREAD)
def test_methods_that_are_not_read_are_refused_by_name(tmp_path: Path, method: str) -> None:
    folder = write(tmp_path, UNREAD[method], {"quant_method": method})
    for call in (lambda: values_of(folder), lambda: quantize_checkpoint(folder, folder / "out", "int8"),
                 lambda: hc.study(folder / "model.safetensors", ["int8"])):  # fmt: skip
        with pytest.raises(ValueError, match=f"by '{method}' with '"):
            call()
    assert not (folder / "out").exists()


def test_the_registry_of_transformers_is_known() -> None:
    auto = pytest.importorskip("transformers.quantizers.auto")
    ours = {"heterocompute"}  # which another test may have registered
    assert set(auto.AUTO_QUANTIZATION_CONFIG_MAPPING) <= READ | set(UNREAD) | ours
