"""Filters of Keras and Flax, small floats of other libraries, masks alone, and recipes for every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute import hardware as hw

W = np.random.default_rng(62).standard_normal((3, 3, 16, 32)).astype(np.float32)
RECIPE = {"a.*": "int4", "b.*": "skip", "*": "int8"}


def test_a_filter_of_keras_becomes_one_of_conv2d() -> None:
    q = hc.quantize(W, "vsq4-g16-s4", layout="HWIO")
    turned = np.ascontiguousarray(W.transpose(3, 2, 0, 1))
    wanted = hc.quantize(turned, "vsq4-g16-s4", axis=(2, 3, 1))
    assert (q.shape, q.axis) == (wanted.shape, wanted.axis) == ((32, 16, 3, 3), (2, 3, 1))
    assert np.array_equal(q.dequantize(), wanted.dequantize())
    same = hc.quantize(turned, "vsq4-g16-s4", layout="OIHW")
    assert np.array_equal(same.dequantize(), wanted.dequantize())
    dense = hc.quantize(W[0, 0], "int8", layout="HWIO")
    assert np.array_equal(dense.dequantize(), hc.quantize(W[0, 0].T, "int8").dequantize())


def test_importance_is_in_the_layout_of_w() -> None:
    importance = np.abs(W[0, 0]) + 1
    q = hc.quantize(W[0, 0], "cb3", importance=importance, layout="HWIO")
    wanted = hc.quantize(W[0, 0].T.copy(), "cb3", importance=importance.T.copy())
    assert np.array_equal(q.dequantize(), wanted.dequantize())


@pytest.mark.parametrize(
    ("options", "argument"), [({"layout": "NHWC"}, "layout"), ({"layout": "HWIO", "axis": 0}, "layout")]
)
def test_a_layout_that_does_not_apply_is_refused(options: dict[str, Any], argument: str) -> None:
    with bad_argument(ValueError, argument, "value"):
        hc.quantize(W, "int8", **options)


def test_a_study_sums_along_the_inputs_of_keras() -> None:
    arrays = {"conv/kernel": W, "other": W[0, 0]}
    found = hc.study(arrays, ["int4"], layout="HWIO", timing=False)
    wanted = hc.study(arrays, ["int4"], axis={"conv/*": (0, 1, 2), "other": 0}, timing=False)
    assert found.table == wanted.table
    with bad_argument(ValueError, "layout", "value"):
        hc.study(arrays, ["int4"], axis=0, layout="HWIO")


def test_a_study_accepts_packed_arrays() -> None:
    q = hc.quantize(W[0, 0], "int8")
    plain = hc.study({"array": q.dequantize()}, ["int4"], timing=False).table
    assert hc.study(q, ["int4"], timing=False).table == plain
    assert hc.study({"array": q}, ["int4"], timing=False).table == plain


def test_a_mask_alone_decides() -> None:
    mask = W > 0.5
    assert np.array_equal(hc.prune(W, mask=mask), np.where(mask, W, 0))
    half = W.astype(np.float16)
    assert hc.prune(half, mask=mask).dtype == np.float16
    with bad_argument(ValueError, "pattern", "value"):
        hc.prune(W)
    with bad_argument(ValueError, "mask", "value"):
        hc.prune(W, "50%", mask=mask)


def test_small_floats_of_torch_are_read_by_dlpack() -> None:
    torch = pytest.importorskip("torch")
    from heterocompute.arrays.dense import as_array

    bits = torch.arange(256, dtype=torch.uint8).reshape(8, 32)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"):
        t = bits.view(getattr(torch, name))
        assert np.array_equal(as_array(t, "t"), t.float().numpy(), equal_nan=True)
        part = t[1::3, ::2]
        assert np.array_equal(as_array(part, "t"), part.float().numpy(), equal_nan=True)
    pairs = as_array(bits.view(torch.float4_e2m1fn_x2), "t")
    levels = np.float32([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    levels = np.concatenate([levels, -levels])
    codes = np.arange(256).reshape(8, 32)
    assert np.array_equal(pairs[:, ::2], levels[codes & 15]) and np.array_equal(pairs[:, 1::2], levels[codes >> 4])


def test_small_floats_of_jax_are_read() -> None:
    jax = pytest.importorskip("jax")
    x = np.linspace(-4, 4, 64, dtype=np.float32).reshape(2, 32)
    for name, fmt in (("float8_e4m3fn", "mxfp8_e4m3"), ("float8_e5m2", "mxfp8_e5m2"), ("float4_e2m1fn", "mxfp4")):
        given = jax.numpy.asarray(x).astype(getattr(jax.numpy, name))
        assert hc.error(np.asarray(given).astype(np.float32), hc.quantize(given, fmt)).mse == 0


def test_a_recipe_is_accepted_wherever_a_format_is(tmp_path: Path) -> None:
    before, table = tmp_path / "model.safetensors", tmp_path / "recipe.toml"
    w = W.reshape(48, 96)
    hc.save(before, {"a.weight": w, "b.weight": w, "c.weight": w})
    table.write_text('[formats]\n"a.*" = "int4"\n"b.*" = "skip"\n"*" = "int8"\n')
    kinds = {"a.weight": "int4", "b.weight": None, "c.weight": "int8"}
    for i, options in enumerate(({"format": RECIPE}, {"recipe": RECIPE}, {"recipe": table})):
        rows = hc.quantize_checkpoint(before, tmp_path / f"{i}.safetensors", **options)["tensors"]  # type: ignore[arg-type]
        assert {row["name"]: row["format"] for row in rows} == kinds
    h = hc.ptq.Hessian(96)
    h.add(w)
    for i, options in enumerate(({"format": {**RECIPE, "b.*": None}}, {"recipe": table})):
        hessians = {name: h for name in kinds}
        out = tmp_path / f"ptq{i}.safetensors"
        rows = hc.ptq.quantize_checkpoint(before, out, hessians, method="rtn", **options)["tensors"]  # type: ignore[arg-type]
        assert {row["name"]: row["format"] for row in rows} == kinds
    arrays = {name: w for name in kinds}
    found = hc.study(arrays, "int3", recipe=table, timing=False).table
    assert found == hc.study(arrays, ["int3", RECIPE], timing=False).table


def test_a_module_accepts_a_recipe(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from heterocompute.interop import torch as ht

    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 8))
    table = tmp_path / "recipe.toml"
    table.write_text('[formats]\n"0*" = "int4"\n')
    small = ht.convert(model, recipe=table)
    assert str(small[0].weight.format) == "int4" and type(small[1]) is torch.nn.Linear
    assert str(ht.convert(model, "int8", recipe=table)[1].weight.format) == "int8"


def test_a_roofline_accepts_a_recipe(tmp_path: Path) -> None:
    table = tmp_path / "recipe.toml"
    table.write_text('[formats]\n"conv*" = "skip"\n"*" = "int4"\n')
    whole = hw.roofline("alexnet", "h100-sxm", format="int4")
    assert hw.roofline("alexnet", "h100-sxm", format={"*": "int4"}).seconds == whole.seconds
    some = hw.roofline("alexnet", "h100-sxm", recipe=table)
    plain = hw.roofline("alexnet", "h100-sxm")
    assert whole.seconds < some.seconds < plain.seconds
    rows = {row["name"]: row["weight_bytes"] for row in some.layers}
    for row, packed in zip(plain.layers, whole.layers, strict=True):
        assert rows[row["name"]] == (row if row["name"].startswith("conv") else packed)["weight_bytes"]
    assert hw.memory.infer("alexnet", format={"*": "int4"}) == hw.memory.infer("alexnet", format="int4")
