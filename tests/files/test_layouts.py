"""Weights in the layouts of other programs: they have the same values, and are read back as the same array."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from common import bad_argument, same_bits

import heterocompute as hc
from heterocompute.arrays.layout import save_arrays
from heterocompute.base.tensors import Info
from heterocompute.cli import main
from heterocompute.files.checkpoint import (
    dequantize_checkpoint,
    inspect as hc_inspect,
    prune_checkpoint,
    quantize_checkpoint,
)
from heterocompute.files.layouts.linear import to_words

W = np.random.default_rng(2).standard_normal((32, 128)).astype(np.float32)
BIAS = np.ones(32, np.float32)
PLACES = [
    ("compressed-tensors", "int4-g32"), ("compressed-tensors", "int8"), ("compressed-tensors", "int3-g32-asym"),
    ("compressed-tensors", "int4-g128-f16"), ("compressed-tensors", "mxfp4"), ("gptq", "int4-g32-f16"),
    ("gptq", "int4-g64-asym-f16"), ("gptq", "int8-f16"), ("gptq", "int3-g32-asym-f16"), ("gptq", "int2-g16-f16"),
    ("awq", "int4-g32-asym-f16"), ("bitsandbytes", "nf4-g64"),
]  # fmt: skip


@pytest.mark.parametrize("layout, fmt", PLACES)
def test_what_is_written_is_read_back(tmp_path, layout, fmt):
    q = hc.quantize(W, fmt)
    hc.save(tmp_path / "a", {"fc.weight": q, "fc.bias": BIAS}, layout=layout)
    found = hc.load(tmp_path / "a", layout=layout)
    assert set(found) == {"fc.weight", "fc.bias"} and same_bits(found["fc.bias"], BIAS)
    assert found["fc.weight"] == q
    with hc.open_checkpoint(tmp_path / "a", layout=layout) as weights:
        assert set(weights) == set(found) and len(weights) == 2 and "fc.weight" in weights
        assert weights["fc.weight"] == q and weights.info("fc.weight") == Info("float32", W.shape, q.nbytes)
        assert same_bits(weights["fc.bias"], BIAS) and weights.info("fc.bias") == Info("float32", (32,), 128)
    plain = hc.load(tmp_path / "a")
    config = json.loads(hc.open_checkpoint(tmp_path / "a").metadata["quantization_config"])
    assert config["quant_method"] == layout and "fc.weight.codes" not in plain


def test_a_weight_is_read_when_it_is_asked_for(tmp_path):
    q = hc.quantize(W, "int4-g32-f16")
    hc.save(tmp_path / "a", {"good.weight": q, "bad.weight": q}, layout="gptq")
    tensors = hc.load(tmp_path / "a")
    tensors["bad.g_idx"] = tensors["bad.g_idx"][::-1].copy()
    hc.save(tmp_path / "b", tensors)
    config = hc.open_checkpoint(tmp_path / "a").metadata["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": json.loads(config)}))
    with hc.open_checkpoint(tmp_path / "b", layout="gptq") as weights:
        assert weights["good.weight"] == q
        with bad_argument(ValueError, None, "file", r"bad\.g_idx"):
            weights["bad.weight"]
        with pytest.raises(KeyError):
            weights["good.qweight"]
    with bad_argument(ValueError, None, "file", r"bad\.g_idx"):
        hc.load(tmp_path / "b", layout="gptq")
    with bad_argument(ValueError, "layout", "value"):
        hc.open_checkpoint(tmp_path / "b", layout="qptq")


@pytest.mark.parametrize("layout, fmt", [PLACES[0], PLACES[5], PLACES[10], PLACES[11]])
def test_a_checkpoint_of_another_program_as_plain_tensors(tmp_path, layout, fmt):
    q = hc.quantize(W, fmt)
    model, out = tmp_path / "model", tmp_path / "out"
    model.mkdir()
    arrays = {"fc.weight": q, "other.weight": hc.quantize(-W, fmt), "fc.bias": BIAS}
    hc.save(model / "model.safetensors", arrays, layout=layout)
    config = json.loads(hc.open_checkpoint(model / "model.safetensors").metadata["quantization_config"])
    (model / "config.json").write_text(json.dumps({"layers": 2, "quantization_config": config}))
    rows = {row["name"]: row for row in hc_inspect(model, layout=layout)}
    assert set(rows) == set(arrays) and rows["fc.bias"]["format"] is None
    assert rows["fc.weight"]["format"] == str(hc.load(model / "model.safetensors", layout=layout)["fc.weight"].format)
    assert (rows["fc.weight"]["bytes"], rows["fc.weight"]["max"]) == (q.nbytes, q.dequantize().max())
    summary = dequantize_checkpoint(model, out, "f16", layout=layout)
    assert [row["name"] for row in summary["tensors"] if row["format"]] == ["fc.weight", "other.weight"]
    with hc.open_checkpoint(out) as found:
        assert set(found) == set(arrays) and "quantization_config" not in found.metadata
        assert same_bits(found["fc.weight"], q.dequantize().astype(np.float16)) and same_bits(found["fc.bias"], BIAS)
    assert json.loads((out / "config.json").read_text()) == {"layers": 2}
    wrong = "awq" if layout == "gptq" else "gptq"
    with pytest.raises(ValueError, match=f"its configuration says '{layout}'"):
        dequantize_checkpoint(model, tmp_path / "none", layout=wrong)
    with bad_argument(ValueError, "layout", "value"):
        hc_inspect(model, layout="ggml")
    with bad_argument(ValueError, None, "file", "is a file of the input"):
        dequantize_checkpoint(model, model / "model.safetensors", layout=layout)
    assert not (tmp_path / "none").exists()


def test_scales_of_another_program_are_no_weights(tmp_path, capsys):
    path, out = str(tmp_path / "gptq.safetensors"), str(tmp_path / "out.safetensors")
    hc.save(path, {"fc.weight": hc.quantize(W, "int4-g32-f16")}, layout="gptq")
    h = hc.ptq.Hessian(W.shape[1])
    h.add(W)
    np.savez(tmp_path / "x.npz", **{"fc.weight": W})
    calls = (
        lambda: quantize_checkpoint(path, out, "int8"),
        lambda: prune_checkpoint(path, out, "2:4"),
        lambda: hc.study(path, ["int8"]),
        lambda: hc.study_density(path, evaluate=lambda weights: 1.0),
        lambda: hc.ptq.quantize_checkpoint(path, out, {"fc.weight": h}, "int8"),
    )
    sentence = f"{path}: is already quantized, in the layout gptq: dequantize --layout gptq makes a plain one of it"
    for call in calls:
        with pytest.raises(ValueError, match=re.escape(sentence)):
            call()
    inputs = ["--inputs", str(tmp_path / "x.npz")]
    for words in (
        ["study", path, "--formats", "int8"],
        ["study", path, "--formats", "int8", *inputs],
        ["search", path, "--budget", "bits=4"],
        ["ptq", path, out, "--format", "int8", *inputs],
    ):
        assert main(words) == 1
        declared = capsys.readouterr().err
        assert declared.endswith(f"heterocompute {words[0]}: {sentence}\n") and declared.count(path) == 1
    with hc.open_checkpoint(path) as opened, pytest.raises(ValueError, match=re.escape(sentence)):
        hc.study(opened, ["int8"])
    with hc.open_checkpoint(path, layout="gptq") as opened, bad_argument(ValueError, None, "shape", "no float tensor"):
        hc.study(opened, ["int8"])
    assert main(["inspect", path]) == 0
    assert capsys.readouterr().out.endswith("the layout gptq: --layout gptq lists them\n")
    assert main(["inspect", path, "--layout", "gptq"]) == 0
    assert "layout" not in capsys.readouterr().out
    other = tmp_path / "other.safetensors"
    summary = dequantize_checkpoint(path, str(other))  # the layout that its configuration names
    assert summary["tensors"] == dequantize_checkpoint(path, out, layout="gptq")["tensors"]
    assert other.read_bytes() == (tmp_path / "out.safetensors").read_bytes()
    assert same_bits(hc.load(out)["fc.weight"], hc.quantize(W, "int4-g32-f16").dequantize())
    quantize_checkpoint(out, str(tmp_path / "again.safetensors"), "int8")
    with pytest.raises(FileNotFoundError, match="has no quantization_config, and no config.json .*out.safetensors"):
        hc_inspect(out, layout="gptq")


@pytest.mark.parametrize("layout, fmt", [PLACES[0], PLACES[5], PLACES[10], PLACES[11]])
def test_a_layout_is_known_by_its_names_alone(tmp_path, layout, fmt):
    hc.save(tmp_path / "a", {"fc.weight": hc.quantize(W, fmt)}, layout=layout)
    save_arrays(tmp_path / "b", hc.load(tmp_path / "a"), {})  # its configuration is lost
    with pytest.raises(ValueError, match=f"b: is already quantized, in the layout {layout}"):
        hc.study(tmp_path / "b", ["int8"])
    if layout == "bitsandbytes":  # this layout stores all parameters next to the weights
        dequantize_checkpoint(tmp_path / "b", tmp_path / "c")
        assert same_bits(hc.load(tmp_path / "c")["fc.weight"], hc.quantize(W, fmt).dequantize())
    else:
        with pytest.raises(FileNotFoundError, match="has no quantization_config"):
            dequantize_checkpoint(tmp_path / "b", tmp_path / "c")


@pytest.mark.parametrize("layout, fmt, name, words", [
    ("gptq", "int4-g32-f16", "quantize_config.json", {"bits": 4, "group_size": 32, "sym": True, "desc_act": False}),
    ("awq", "int4-g32-asym-f16", "quant_config.json", {"w_bit": 4, "q_group_size": 32, "zero_point": True}),
])  # fmt: skip
def test_configurations_of_older_programs(tmp_path, layout, fmt, name, words):
    q, model, out = hc.quantize(W, fmt), tmp_path / "model", tmp_path / "out"
    model.mkdir()
    hc.save(tmp_path / "a", {"fc.weight": q}, layout=layout)
    save_arrays(model / "model.safetensors", hc.load(tmp_path / "a"), {})
    (model / "config.json").write_text('{"layers": 2}')
    (model / name).write_text(json.dumps(words))
    assert hc.load(model, layout=layout)["fc.weight"] == q
    dequantize_checkpoint(model, out)  # recognized by its names
    assert same_bits(hc.load(out)["fc.weight"], q.dequantize())
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]
    hc.study(out, ["int8"])


def test_weights_of_a_layout_that_is_not_read(tmp_path):
    path = tmp_path / "model.safetensors"
    codes = hc.quantize(W, "int8").codes()
    hc.save(path, {"fc.weight": codes, "fc.weight_scale": np.ones((32, 1), np.float32)})
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "quark"}}))
    out = tmp_path / "out.safetensors"
    sentence = "model.safetensors: is already quantized, by 'quark' with 'fc.weight_scale', in no layout that is read"
    for call in (quantize_checkpoint, dequantize_checkpoint):
        with pytest.raises(ValueError, match=sentence):
            call(path, out, *["int8"] * (call is quantize_checkpoint))
    with pytest.raises(ValueError, match=sentence):
        hc.study(path, ["int8"])
    hc.save(path, {"fc.weight": W})  # dequantized weights next to their old configuration
    quantize_checkpoint(path, out, "int8")


def test_columns_in_the_order_of_their_activations(tmp_path):
    order = np.random.default_rng(3).permutation(128)
    q = hc.quantize(W[:, order], "int4-g32-asym-f16")  # groups of columns in another order
    hc.save(tmp_path / "a", {"fc.weight": q}, layout="gptq")
    tensors, config = hc.load(tmp_path / "a"), hc.open_checkpoint(tmp_path / "a").metadata
    back = np.argsort(order)
    stored = to_words(q.codes()[:, back].astype(np.uint8), 4)
    tensors |= {"fc.qweight": np.ascontiguousarray(stored.T), "fc.g_idx": tensors["fc.g_idx"][back]}
    save_arrays(tmp_path / "b", tensors, {}, metadata=config)
    dequantize_checkpoint(tmp_path / "b", tmp_path / "c.safetensors", layout="gptq")
    assert same_bits(hc.load(tmp_path / "c.safetensors")["fc.weight"], q.dequantize()[:, back])
    with bad_argument(ValueError, None, "file", r"fc\.g_idx"):
        hc.load(tmp_path / "b", layout="gptq")
    for wrong in (np.zeros(128, np.int32), np.arange(127, dtype=np.int32), np.full(128, np.nan, np.float32)):
        save_arrays(tmp_path / "d", tensors | {"fc.g_idx": wrong}, {}, metadata=config)
        with bad_argument(ValueError, None, "file", r"fc\.g_idx"):
            hc_inspect(tmp_path / "d", layout="gptq")


def test_bytes_of_gptq_and_awq(tmp_path):
    """Word 0 of column n has the codes of k = 0 to 7, lowest bits first; in awq those of n = 0 2 4 6 1 3 5 7."""
    q = hc.quantize(W, "int4-g32-asym-f16")
    hc.save(tmp_path / "g", {"fc.weight": q}, layout="gptq")
    hc.save(tmp_path / "a", {"fc.weight": q}, layout="awq")
    gptq, awq, codes = hc.load(tmp_path / "g"), hc.load(tmp_path / "a"), q.codes().astype(np.uint32)
    points = q.zero_points_expanded()[:, ::32].astype(np.uint32)
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    words = (codes.reshape(32, 16, 8) << shifts).sum(2, dtype=np.uint32).T.view(np.int32)
    assert same_bits(gptq["fc.qweight"], np.ascontiguousarray(words))
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    words = (codes.T.reshape(128, 4, 8)[:, :, order] << shifts).sum(2, dtype=np.uint32).view(np.int32)
    assert same_bits(awq["fc.qweight"], words)
    words = (points.T.reshape(4, 4, 8) << shifts).sum(2, dtype=np.uint32).view(np.int32)
    assert same_bits(gptq["fc.qzeros"], words)
    assert same_bits(gptq["fc.scales"], np.ascontiguousarray(q.components["scales"].T))
    hc.save(tmp_path / "s", {"fc.weight": hc.quantize(W, "int4-g32-f16")}, layout="gptq")
    assert (hc.load(tmp_path / "s")["fc.qzeros"] == 0x77777777).all()  # version 1: minus 1


def test_bytes_of_nf4(tmp_path):
    q = hc.quantize(W, "nf4-g64")
    hc.save(tmp_path / "b", {"fc.weight": q}, layout="bitsandbytes")
    found, codes = hc.load(tmp_path / "b"), q.codes().reshape(-1)
    assert same_bits(found["fc.weight"][:, 0], codes[::2] << np.uint8(4) | codes[1::2])
    state = json.loads(found["fc.weight.quant_state.bitsandbytes__nf4"].tobytes())
    assert state == {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [32, 128]}
    values = found["fc.weight.quant_map"][codes] * np.repeat(found["fc.weight.absmax"], 64)
    assert same_bits(values.reshape(W.shape), q.dequantize())


@pytest.mark.parametrize("layout, fmt, words", [
    ("gptq", "vsq4-g16-s4", "int4-g128-f16"), ("gptq", "int4-g32", "int4-g128-f16"), ("awq", "int8-f16", "asym-f16"),
    ("bitsandbytes", "nf4-g64-dq", "nf4-g64"), ("compressed-tensors", "nvfp4", "mxfp4"), ("onnx", "nf4-g64", "int8"),
    ("gptq", "int8+2:4", "format is|is int8"), ("compressed-tensors", "int4-g24", "no short groups"),
])  # fmt: skip
def test_a_format_without_a_place_names_the_nearest(tmp_path, layout, fmt, words):
    if layout == "onnx":
        pytest.importorskip("onnx")
    with pytest.raises(ValueError, match=words):
        hc.save(tmp_path / "a", {"fc.weight": hc.quantize(W, fmt)}, layout=layout)
    assert not list(tmp_path.iterdir())


def test_what_no_layout_takes(tmp_path):
    q, half = hc.quantize(W, "int4-g32"), hc.quantize(W, "int4-g32-f16")
    for arrays, layout, words in (
        ({"fc.weight": q}, "gtpq", "the nearest is 'gptq'"),
        ({"w": q}, "compressed-tensors", "called NAME.weight"),
        ({"a.weight": half, "b.weight": hc.quantize(W, "int8-f16")}, "gptq", "the formats are"),
        ({"a.weight": hc.prune(W, "2:4")}, "compressed-tensors", "no place for it"),
        ({"a.weight": hc.quantize(W, "int4-g32", axis=0)}, "compressed-tensors", "along in"),
    ):
        with pytest.raises(ValueError, match=words):
            hc.save(tmp_path / "a", arrays, layout=layout)
    with bad_argument(TypeError, None, "type", "'fc.weight'"):
        hc.save(tmp_path / "a", q, layout="gptq")


def test_gpt_oss_stores_stacks_of_experts(tmp_path):
    q = hc.quantize(np.stack([W, 2 * W]), "mxfp4")
    hc.save(tmp_path / "a", {"up.weight": q}, layout="gpt-oss")
    assert hc.load(tmp_path / "a", layout="gpt-oss")["up.weight"] == q
    with pytest.raises(ValueError, match=r"gpt-oss stores stacks of experts \(experts, out, in\)"):
        hc.save(tmp_path / "a", {"up.weight": q[0]}, layout="gpt-oss")


@pytest.mark.parametrize("layout", ["gguf", "onnx"])
def test_arrays_of_the_other_byte_order_are_written(layout, tmp_path):
    pytest.importorskip(layout)
    path = tmp_path / f"a.{layout}"
    hc.save(path, {"fc.bias": W[0].astype(">f4")}, layout=layout, check="all")
    assert same_bits(np.asarray(hc.load(path)["fc.bias"]), W[0])


def test_quantize_writes_stacks_of_gpt_oss_and_refuses_matrices(tmp_path):
    w = np.stack([W, 2 * W])
    hc.save(tmp_path / "in.safetensors", {"up.weight": w, "fc.weight": W})
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    quantize_checkpoint(source, out, "mxfp4", include="up.*", layout="gpt-oss", check="all")
    assert hc.load(out, layout="gpt-oss")["up.weight"] == hc.quantize(w, "mxfp4")
    out.unlink()
    with pytest.raises(ValueError, match=r"fc\.weight.*gpt-oss stores stacks of experts \(experts, out, in\)"):
        quantize_checkpoint(source, out, "mxfp4", include="fc.*", layout="gpt-oss")
    assert not out.exists()


def test_files_of_others_are_not_believed(tmp_path):
    hc.save(tmp_path / "a", {"fc.weight": hc.quantize(W, "int4-g32-f16")}, layout="gptq")
    held = hc.load(tmp_path / "a")
    hc.save(tmp_path / "b", held)
    with pytest.raises(FileNotFoundError, match="config.json"):
        hc.load(tmp_path / "b", layout="gptq")
    config = {"quant_method": "gptq", "bits": 4, "sym": True, "checkpoint_format": "gptq"}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    assert hc.load(tmp_path / "b", layout="gptq")["fc.weight"] == hc.quantize(W, "int4-g32-f16")
    for name, wrong in (
        ("fc.scales", -held["fc.scales"]), ("fc.scales", held["fc.scales"][:3]), ("fc.qweight", held["fc.qweight"][:5]),
        ("fc.g_idx", held["fc.g_idx"][::-1].copy()), ("fc.scales", held["fc.scales"] * np.float16(np.nan)),
    ):  # fmt: skip
        hc.save(tmp_path / "b", {**held, name: wrong})
        with bad_argument(ValueError, None, "file", "b: "):
            hc.load(tmp_path / "b", layout="gptq")


def test_nvfp4_is_rounded_with_a_scale_that_compressed_tensors_stores(tmp_path: Path) -> None:
    """The file has the reciprocal of the tensor's scale: the next scale with one is less than 0.2 % away."""
    rng = np.random.default_rng(7)
    for i in range(8):
        w = (rng.standard_normal((8, 64)) * np.exp(rng.uniform(-8, 3))).astype(np.float32)
        hc.save(tmp_path / "in.safetensors", {"fc.weight": w})
        out = tmp_path / f"{i}.safetensors"
        hc.quantize_checkpoint(tmp_path / "in.safetensors", out, "nvfp4", layout="compressed-tensors")
        q, plain = hc.load(out, layout="compressed-tensors")["fc.weight"], hc.quantize(w, "nvfp4")
        assert str(q.format) == "nvfp4"
        scale, usual = (float(one.components["coarse"]) for one in (q, plain))
        assert usual <= scale < 1.002 * usual
        assert np.abs(q.dequantize() - w).mean() < 1.02 * np.abs(plain.dequantize() - w).mean()


def test_mxfp8_is_written_for_compressed_tensors(tmp_path: Path) -> None:
    w = np.random.default_rng(8).standard_normal((6, 64)).astype(np.float32)
    q = hc.quantize(w, "mxfp8_e4m3", axis=1)
    hc.save(tmp_path / "a.safetensors", {"fc.weight": q}, layout="compressed-tensors")
    with hc.open_checkpoint(tmp_path / "a.safetensors") as found:
        assert found["fc.weight"].dtype.name == "float8_e4m3fn" and found["fc.weight_scale"].shape == (6, 2)
    again = hc.load(tmp_path / "a.safetensors", layout="compressed-tensors")["fc.weight"]
    assert np.array_equal(np.asarray(again), q.dequantize())
    with pytest.raises(ValueError, match="compressed-tensors has no place"):
        hc.save(tmp_path / "b.safetensors", {"fc.weight": hc.quantize(w, "mxfp6_e3m2", axis=1)},
                layout="compressed-tensors")  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_mxfp6_is_that_of_compressed_tensors(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    q = hc.quantize(rng.standard_normal((int(rng.integers(1, 9)), 32 * int(rng.integers(1, 5))), "f4"), "mxfp6_e2m3",
                    axis=1)  # fmt: skip
    hc.save(tmp_path / "a.safetensors", {"fc.weight": q}, layout="compressed-tensors")
    with hc.open_checkpoint(tmp_path / "a.safetensors") as found:
        packed, scales = (np.asarray(found[f"fc.weight_{part}"]) for part in ("packed", "scale"))
    word = packed.reshape(len(packed), -1, 3).astype(np.int64) @ [1, 1 << 8, 1 << 16]  # four codes in three bytes
    codes = (word[..., None] >> np.array([0, 6, 12, 18]) & 63).reshape(q.shape)
    levels = np.array([*(m / 8 for m in range(8)), *((1 + m / 8) * 2.0**e for e in range(3) for m in range(8))])
    values = levels[codes & 31] * np.where(codes & 32, -1, 1) * np.repeat(2.0 ** (scales.astype(int) - 127), 32, axis=1)
    assert np.array_equal(values.astype(np.float32), q.dequantize())
    assert np.array_equal(hc.load(tmp_path / "a.safetensors", layout="compressed-tensors")["fc.weight"].dequantize(),
                          q.dequantize())  # fmt: skip


def test_packed_integers_may_have_one_scale(tmp_path: Path) -> None:
    w = np.random.default_rng(9).integers(-7, 8, (6, 64)).astype(np.float32) / 4
    w[:, 0] = 7 / 4
    hc.save(tmp_path / "a.safetensors", {"fc.weight": hc.quantize(w, "int4")}, layout="compressed-tensors")
    with hc.open_checkpoint(tmp_path / "a.safetensors") as found:
        tensors = {name: np.asarray(found[name]) for name in found}
        config = json.loads(found.metadata["quantization_config"])
    for strategy, size in (("tensor", (1,)), ("tensor", (1, 1))):
        config["config_groups"]["group_0"]["weights"]["strategy"] = strategy
        tensors["fc.weight_scale"] = np.full(size, 1 / 4, np.float32)
        folder = tmp_path / f"{len(size)}"
        folder.mkdir()
        hc.save(folder / "model.safetensors", tensors)
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
        assert np.array_equal(np.asarray(hc.load(folder, layout="compressed-tensors")["fc.weight"]), w)
