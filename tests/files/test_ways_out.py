"""Packed tensors are exported as plain ones, rounded values are exported unchanged, and pruned tensors stay pruned."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from common import bad_argument, run, same_bits

import heterocompute as hc
from heterocompute.files.checkpoint import dequantize_checkpoint, prune_checkpoint, quantize_checkpoint

RANDOM = np.random.default_rng(8)
W = RANDOM.standard_normal((12, 40)).astype(np.float32)
HALF = RANDOM.standard_normal((6, 32)).astype(ml_dtypes.bfloat16)
FP8 = RANDOM.standard_normal((6, 32)).astype(ml_dtypes.float8_e4m3fn)
BIAS = RANDOM.standard_normal(12).astype(np.float32)


@pytest.fixture
def paths(tmp_path):
    names = [str(tmp_path / f"{name}.safetensors") for name in ("before", "middle", "after")]
    hc.save(names[0], {"fc.weight": W, "half": HALF, "fp8": FP8, "bias": BIAS, "double": W.astype(np.float64)})
    return names


def test_what_was_quantized_is_plain_again(paths, capsys):
    before, middle, after = paths
    quantize_checkpoint(before, middle, "vsq4-g16-s4")
    packed = hc.load(middle)
    assert run(capsys, "dequantize", middle, after)[0] == 0
    found = hc.load(after)
    assert list(found) == list(packed)
    assert same_bits(found["fc.weight"], packed["fc.weight"].dequantize())
    assert same_bits(found["half"], packed["half"].dequantize(ml_dtypes.bfloat16))
    assert same_bits(found["fp8"], packed["fp8"].dequantize())  # it was quantized as float32
    assert same_bits(found["double"], packed["double"].dequantize(np.float64))
    assert same_bits(found["bias"], BIAS)
    summary = dequantize_checkpoint(middle, after, "bf16")
    assert {row["name"]: row["format"] for row in summary["tensors"]}["half"] == "vsq4-g16-s4"
    assert same_bits(hc.load(after)["double"], packed["double"].dequantize(ml_dtypes.bfloat16))
    safetensors = pytest.importorskip("safetensors.numpy")
    assert run(capsys, "dequantize", middle, after, "--dtype", "f32", "--overwrite")[0] == 0
    assert same_bits(safetensors.load_file(after)["half"], packed["half"].dequantize())


def test_a_dtype_that_cannot_hold_the_values_is_refused(paths, capsys, tmp_path):
    hc.save(paths[1], {"w": hc.quantize(np.float32([[1, 1e6]]), "int8")})
    with bad_argument(ValueError, None, "file", r"tensor 'w': the value .* at index \(0, 1\) is beyond float16"):
        dequantize_checkpoint(paths[1], paths[2], "f16")
    assert not (tmp_path / "after.safetensors").exists()
    code, _, error = run(capsys, "dequantize", *paths[1:], "--dtype", "int8")
    assert code == 2 and "expected float16, bfloat16, float32, float64" in error
    with bad_argument(ValueError, None, "file", "is the input itself"):
        dequantize_checkpoint(paths[1], paths[1])


def test_other_packed_arrays_become_plain_too(paths):
    sparse = np.where(np.abs(W) > 1, W, 0).astype(np.float32)
    kinds = {"bits": hc.encode_bitmap(sparse), "half": hc.prune(W, "2:4"), "eie": hc.encode_eie(sparse)}
    hc.save(paths[1], kinds)
    dequantize_checkpoint(*paths[1:])
    found = hc.load(paths[2])
    assert all(same_bits(found[name], np.asarray(kind)) for name, kind in kinds.items())


def test_rounded_values_are_a_plain_checkpoint(paths, capsys):
    before, _, after = paths
    assert run(capsys, "quantize", before, after, "--format", "int4-g32", "--fake")[0] == 0
    found = hc.load(after)
    assert same_bits(found["fc.weight"], hc.fake_quantize(W, "int4-g32"))
    assert same_bits(found["half"], hc.quantize(HALF, "int4-g32").dequantize(ml_dtypes.bfloat16))
    assert same_bits(found["fp8"], hc.fake_quantize(FP8, "int4-g32")) and same_bits(found["bias"], BIAS)
    quantize_checkpoint(before, after, "int8+2:4", include="fc.weight", fake=True)
    assert same_bits(hc.load(after)["fc.weight"], hc.fake_quantize(W, "int8+2:4"))


@pytest.mark.parametrize("fmt", ["int8", "int8+2:4", "vsq4-g16-s4"])
@pytest.mark.parametrize("fake", [False, True])
def test_quantizing_what_is_pruned_keeps_the_pattern(paths, fmt, fake):
    prune_checkpoint(*paths[:2], "2:4", exclude="fp8")
    quantize_checkpoint(*paths[1:], fmt, exclude="half", fake=fake)
    found, s = hc.load(paths[2]), hc.prune(W, "2:4")
    if fake:
        assert same_bits(found["fc.weight"], hc.quantize(s, fmt).dequantize())
    else:
        assert found["fc.weight"] == hc.quantize(s, fmt) and str(found["fc.weight"].format).endswith("+2:4")
    assert found["half"] == hc.prune(HALF, "2:4")  # not selected: unchanged
    zeros = np.asarray(found["fc.weight"]) == 0
    assert zeros[~s.mask].all()


def test_another_pattern_or_axis_than_the_first_is_refused(paths):
    prune_checkpoint(*paths[:2], "2:4")
    with bad_argument(ValueError, None, "file", "'fc.weight'.*1:4..*2.*4"):
        quantize_checkpoint(*paths[1:], "int8+1:4")
    with bad_argument(ValueError, None, "file", r"'fc.weight'.*\(1,\)"):
        quantize_checkpoint(*paths[1:], "int8", axis=0)
    with bad_argument(ValueError, None, "file", "'fc.weight'"):
        prune_checkpoint(*paths[1:], "2:4")


@pytest.mark.parametrize("fmt", ["int4-g32-asym", "nf4-g64", "log8-8", "mxfp4"])
def test_zeros_stay_zeros(paths, fmt):
    prune_checkpoint(*paths[:2], "50%")
    quantize_checkpoint(*paths[1:], fmt)
    found = np.asarray(hc.load(paths[2])["fc.weight"])
    assert not found[hc.load(paths[1])["fc.weight"] == 0].any()


@pytest.mark.parametrize("fmt", ["int6-g32", "int4-g128-asym", "int4-g32", "nf4-g64", "mxfp4"])
def test_a_matrix_without_rows_is_refused_by_name(fmt, tmp_path):
    source = tmp_path / "empty.safetensors"
    hc.save(source, {"x.weight": hc.quantize(np.zeros((0, 64), np.float32), fmt), "b": np.ones(3, np.float32)})
    for layout in ("gptq", "compressed-tensors", "mlx", "torchao", "gguf", "onnx", "bitsandbytes", "awq"):
        with pytest.raises(ValueError, match="x.weight") as caught:
            hc.convert_checkpoint(source, tmp_path / layout, layout)
        assert "\n" not in str(caught.value)
