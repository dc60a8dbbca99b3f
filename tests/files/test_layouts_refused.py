"""Weights that other programs store in ways of their own: the values that they have there, or a sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest
from common import same_bits

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
    """Every way of reading says the same, and leaves nothing behind."""
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
    with pytest.raises(ValueError, match=r"a: fc\.weight_g_idx: .*act-order.* with layout compressed-tensors"):
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
    ("compressed-tensors", "int8", "fc.weight_scale"), ("compressed-tensors", "fp8_e4m3fn", "fc.weight_scale"),
    ("bitsandbytes", "int8", "fc.SCB"), ("gptq", "int8", "fc.weight_scale_inv"),
])  # fmt: skip
@pytest.mark.parametrize("beside", [False, True])
def test_scales_that_a_layout_does_not_read(tmp_path, layout, kind, scales, beside):
    """Their weights are no plain ones, whether there are some in the layout beside them or not."""
    fmt = {"compressed-tensors": "int4-g32", "bitsandbytes": "nf4-g64", "gptq": "int4-g32-f16"}[layout]
    others, config = stored(tmp_path, layout, fmt)
    codes = hc.quantize(W, kind).view_ml_dtypes() if kind != "int8" else np.ones(W.shape, np.int8)
    tensors = {"fc.weight": codes, scales: np.ones((32, 1), np.float32)}
    if beside:
        tensors |= {name.replace("fc.", "other."): values for name, values in others.items()}
    path = write(tmp_path / "a", tensors, config)
    refused(path, layout, f"is already quantized, by '{layout}' with '{scales}', in no layout that is read here")
    with pytest.raises(ValueError, match=f"with '{scales}'"):
        hc.open_checkpoint(path, layout=layout)
    with pytest.raises(ValueError, match=f"with '{scales}'"):
        dequantize_checkpoint(path, tmp_path / "out.safetensors")
    del tensors[scales]
    assert "fc.weight" in hc.load(write(tmp_path / "a", tensors, config), layout=layout)
