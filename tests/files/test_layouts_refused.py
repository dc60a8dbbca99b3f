"""Weights in special layouts of other programs: read with the values of the program, or refused with a message."""

from __future__ import annotations

import json

import numpy as np
import pytest
from common import bad_argument, same_bits

import heterocompute as hc
from heterocompute.arrays.layout import save_arrays
from heterocompute.files.checkpoint import dequantize_checkpoint, inspect as hc_inspect
from heterocompute.files.layouts.linear import to_words

W = np.random.default_rng(2).standard_normal((32, 128)).astype(np.float32)


def stored(tmp_path, layout, fmt, **changed):
    """Return tensors and configuration of one weight."""
    hc.save(tmp_path / "stored", {"fc.weight": hc.quantize(W, fmt)}, layout=layout)
    with hc.open_checkpoint(tmp_path / "stored") as weights:
        config = json.loads(weights.metadata["quantization_config"])
    return hc.load(tmp_path / "stored"), config | changed


def write(path, tensors, config):
    save_arrays(path, tensors, {}, metadata={"quantization_config": json.dumps(config)})
    return path


def refused(path, layout, words):
    """Assert that every way of reading raises the same error, and leaves no files."""
    out = path.parent / "out.safetensors"
    for call in (
        lambda: hc.load(path, layout=layout),
        lambda: hc_inspect(path, layout=layout),
        lambda: dequantize_checkpoint(path, out, layout=layout),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            call()
        assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
    assert not out.exists()


def plain_of(path, layout):
    out = path.parent / "plain.safetensors"
    dequantize_checkpoint(path, out, layout=layout)
    return hc.load(out)["fc.weight"]


@pytest.mark.parametrize("fmt", ["int4-g32", "int4-g32-asym", "int8-g64"])
def test_groups_of_compressed_tensors_in_another_order(tmp_path, fmt):
    q, order = hc.quantize(W, fmt), np.random.default_rng(3).permutation(128)
    tensors, config = stored(tmp_path, "compressed-tensors", fmt)
    back, bits, group = np.argsort(order), q.format.bits, q.format.group
    middle = (1 << (bits - 1)) * q.format.symmetric
    codes = (q.codes().astype(np.int16) + middle).astype(np.uint8)
    index = (np.arange(128) // group)[back].astype(np.int32)
    moved = tensors | {"fc.weight_packed": to_words(codes[:, back], bits), "fc.weight_g_idx": index}
    path = write(tmp_path / "a", moved, config)
    assert same_bits(plain_of(path, "compressed-tensors"), q.dequantize()[:, back])
    assert hc_inspect(path, layout="compressed-tensors")[0]["format"] == fmt
    with bad_argument(ValueError, None, "file", r"fc\.weight_g_idx"):
        hc.load(path, layout="compressed-tensors")
    for same in (np.arange(128, dtype=np.int32) // group, np.full(128, -1, np.int32)):  # in order; never set
        path = write(tmp_path / "b", tensors | {"fc.weight_g_idx": same}, config)
        assert hc.load(path, layout="compressed-tensors")["fc.weight"] == q
    for wrong in (np.zeros(128, np.int32), np.arange(127, dtype=np.int32), np.full(128, np.nan, np.float32)):
        refused(write(tmp_path / "c", tensors | {"fc.weight_g_idx": wrong}, config), "compressed-tensors", "g_idx")


def test_groups_of_mxfp4_in_another_order(tmp_path):
    tensors, config = stored(tmp_path, "compressed-tensors", "mxfp4")
    index = (np.arange(128, dtype=np.int32) // 32)[::-1].copy()
    path = write(tmp_path / "a", tensors | {"fc.weight_g_idx": index}, config)
    refused(path, "compressed-tensors", r"fc\.weight_g_idx: columns of mxfp4")


@pytest.mark.parametrize("layout, kind, scales", [
    ("compressed-tensors", "fp8_e4m3fn", "fc.weight_scale_inv"), ("gptq", "int8", "fc.weight_scale_inv"),
])  # fmt: skip
@pytest.mark.parametrize("companions", [False, True])
def test_scales_that_a_layout_does_not_read(tmp_path, layout, kind, scales, companions):
    """Their weights are not plain, with or without other weights in the layout."""
    fmt = {"compressed-tensors": "int4-g32", "gptq": "int4-g32-f16"}[layout]
    others, config = stored(tmp_path, layout, fmt)
    codes = hc.quantize(W, kind).view_ml_dtypes() if kind != "int8" else np.ones(W.shape, np.int8)
    tensors = {"fc.weight": codes, scales: np.ones((32, 1), np.float32)}
    if companions:
        tensors |= {name.replace("fc.", "other."): values for name, values in others.items()}
    path = write(tmp_path / "a", tensors, config)
    refused(path, layout, f"is already quantized, by '{layout}' with '{scales}', in no layout that is read here")
    with pytest.raises(ValueError, match=f"with '{scales}'"):
        hc.open_checkpoint(path, layout=layout)
    with pytest.raises(ValueError, match=f"with '{scales}'"):
        dequantize_checkpoint(path, tmp_path / "out.safetensors")
    del tensors[scales]
    assert "fc.weight" in hc.load(write(tmp_path / "a", tensors, config), layout=layout)


@pytest.mark.parametrize("layout, fmt, changed, words", [
    ("gptq", "int4-g32-f16", {"checkpoint_format": "marlin"}, "checkpoint_format is 'marlin', expected gptq or"),
    ("gptq", "int4-g32-f16", {"is_marlin_format": True}, "is_marlin_format is True, expected False"),
    ("awq", "int4-g32-asym-f16", {"version": "gemv"}, "version is 'gemv', expected gemm"),
    ("awq", "int4-g32-asym-f16", {"checkpoint_format": "gemv_fast"}, "checkpoint_format is 'gemv_fast', expected gemm"),
    ("awq", "int4-g32-asym-f16", {"bits": 8}, "bits is 8, expected 4"),
])  # fmt: skip
def test_what_a_configuration_says_is_read_or_refused(tmp_path, layout, fmt, changed, words):
    refused(write(tmp_path / "a", *stored(tmp_path, layout, fmt, **changed)), layout, f"fc: {words}")


@pytest.mark.parametrize("layout, fmt, changed", [
    ("gptq", "int4-g32-f16", {"checkpoint_format": "GPTQ"}), ("gptq", "int4-g32-f16", {"checkpoint_format": None}),
    ("awq", "int4-g32-asym-f16", {"version": "GEMM"}), ("awq", "int4-g32-asym-f16", {"version": None}),
])  # fmt: skip
def test_a_configuration_in_capitals_or_without_the_word(tmp_path, layout, fmt, changed):
    path = write(tmp_path / "a", *stored(tmp_path, layout, fmt, **changed))
    assert hc.load(path, layout=layout)["fc.weight"] == hc.quantize(W, fmt)


@pytest.mark.parametrize("fmt, top, weights, words", [
    ("int4-g32", {"format": "marlin-24"}, {}, "format is 'marlin-24', expected pack-quantized"),
    ("int4-g32", {}, {"type": "float"}, "type is 'float', expected int"),
    ("int4-g32", {}, {"strategy": "block"}, "strategy is 'block', expected group or channel"),
    ("int8-g32", {}, {"num_bits": 4}, r"weight_packed is \(32, 32\), expected \(32, 16\) of 4 bits"),
    ("mxfp4", {"format": "nvfp4-pack-quantized"}, {}, "format is 'nvfp4-pack-quantized', expected mxfp4"),
])  # fmt: skip
def test_what_compressed_tensors_says_is_read_or_refused(tmp_path, fmt, top, weights, words):
    tensors, config = stored(tmp_path, "compressed-tensors", fmt)
    group = config["config_groups"]["group_0"]
    path = write(tmp_path / "a", tensors, config | {"config_groups": {"group_0": group | {"format": None}}})
    assert hc.load(path, layout="compressed-tensors")["fc.weight"] == hc.quantize(W, fmt)
    group = group | {"weights": group["weights"] | weights, "format": None}
    path = write(tmp_path / "a", tensors, config | top | {"config_groups": {"group_0": group}})
    refused(path, "compressed-tensors", r"fc[:.] ?" + words)
    path = write(tmp_path / "a", tensors, config | {"config_groups": [group]})
    refused(path, "compressed-tensors", "is not a compressed-tensors file, or its configuration is missing")


def test_levels_that_are_not_those_of_nf4(tmp_path):
    tensors, config = stored(tmp_path, "bitsandbytes", "nf4-g64")
    name, levels = "fc.weight.quant_map", tensors["fc.weight.quant_map"]
    for wrong in (np.linspace(-1, 1, 16, dtype=np.float32), levels[:15], np.full(16, np.nan, np.float32)):
        path = write(tmp_path / "a", tensors | {name: wrong}, config)
        refused(path, "bitsandbytes", r"fc\.weight\.quant_map is .*, expected the 16 levels of nf4")
    path = write(tmp_path / "a", tensors | {name: np.nextafter(levels, np.float32(2))}, config)
    assert hc.load(path, layout="bitsandbytes")["fc.weight"] == hc.quantize(W, "nf4-g64")


@pytest.mark.parametrize("fmt", ["int4-g32", "int8", "int3-g32-f16", "int8-g64-f16"])
def test_the_lowest_code_of_compressed_tensors(tmp_path, fmt):
    """Its program uses -2^(bits - 1) in symmetric arrays: an asymmetric array with the middle zero point holds it."""
    tensors, config = stored(tmp_path, "compressed-tensors", fmt)
    q = hc.quantize(W, fmt)
    bits, group, middle = q.format.bits, q.format.group or 128, 1 << (q.format.bits - 1)
    codes = q.codes().astype(np.int16)
    codes[::3, ::5] = -middle
    tensors["fc.weight_packed"] = to_words((codes + middle).astype(np.uint8), bits)
    values = codes.astype(np.float32) * np.repeat(tensors["fc.weight_scale"].astype(np.float32), group, 1)
    path = write(tmp_path / "a", tensors, config)
    assert same_bits(plain_of(path, "compressed-tensors"), values)
    (row,) = hc_inspect(path, layout="compressed-tensors")
    wanted = fmt.removesuffix("-f16") + "-asym" + "-f16" * fmt.endswith("-f16")
    assert (row["format"], row["min"], row["max"]) == (wanted, values.min(), values.max())
    found = hc.load(path, layout="compressed-tensors")["fc.weight"]
    assert str(found.format) == wanted and same_bits(found.dequantize(), values)
    hc.save(tmp_path / "again", {"fc.weight": found}, layout="compressed-tensors")
    assert hc.load(tmp_path / "again", layout="compressed-tensors")["fc.weight"] == found


@pytest.mark.parametrize(("layout", "fmt"), [("compressed-tensors", "int4-g32"), ("gptq", "int4-g32-asym-f16")])
def test_what_is_no_part_of_a_weight_stays(tmp_path, layout, fmt):
    tensors, config = stored(tmp_path, layout, fmt)
    others = {"fc.adapter.weight": W[:2], "fc.input_scale": W[0, :1], "fc.bias": W[0, :32]}
    path, out = write(tmp_path / "more", tensors | others, config), tmp_path / "plain.safetensors"
    dequantize_checkpoint(path, out, layout=layout)
    for found in (hc.load(path, layout=layout), hc.load(out)):
        assert set(found) == {"fc.weight", *others}
        for name, values in others.items():
            assert same_bits(found[name], values)
