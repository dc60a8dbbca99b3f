"""Whole checkpoints from one layout to another: the same values, or a reason; the same bytes after converting back."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from common import same_bits
from conversions import BIAS, OURS, RNG, W, data_of, row_of, saved

import heterocompute as hc
from heterocompute.cli import main
from heterocompute.files.convert import NotRepresentable, convert_checkpoint
from heterocompute.files.layouts.targets import TARGETS
from heterocompute.files.layouts.weight import of_array, sqnr_of

SOURCES = [
    ("gptq", "int4-g32-f16"), ("gptq", "int3-g32-asym-f16"), ("gptq", "int8-f16"), ("awq", "int4-g64-asym-f16"),
    ("compressed-tensors", "int4-g32-f16"), ("compressed-tensors", "int8"), ("compressed-tensors", "mxfp4"),
    ("compressed-tensors", "fp8_e4m3fn-row"), ("bitsandbytes", "nf4-g64"), ("modelopt", "nvfp4"),
    ("fp8", "fp8_e4m3fn-tensor"), ("mlx", "int4-g64-f16"), ("mlx", "mxfp4"), ("mlx", "int5-g32-f16"),
    (OURS, "int4-g32-f16"), (OURS, "nvfp4"), (OURS, "mxfp4"), (OURS, "int4-g16-asym-f16"),
]  # fmt: skip
GGML = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q3_k", "q6_k", "q4_k"]


def converted(before, after, layout, **more):
    try:
        return convert_checkpoint(before, after, layout, **more)
    except NotRepresentable as error:
        assert not after.exists() and not (after.parent / f"{after.name}.partial").exists()
        return error.summary


@pytest.mark.parametrize("layout, fmt", SOURCES)
@pytest.mark.sweep(every=12)
def test_there_and_back_are_the_same_bytes(tmp_path, layout, fmt):
    """Through every layout with the same format: converting back gives the original tensors."""
    before, back = tmp_path / "a.safetensors", tmp_path / "back.safetensors"
    arrays = saved(before, layout, fmt)
    values = arrays["fc.weight"].dequantize()
    seen = set()
    for target in (one for one in TARGETS if one not in ("gguf", "onnx", "onnx-matmulnbits")):
        after = tmp_path / f"{target}.safetensors"
        summary = converted(before, after, target)
        row = row_of(summary)
        assert row["from"] == fmt and row["bytes_before"] == arrays["fc.weight"].nbytes
        if row["status"] == "not representable":
            assert row["why"] and row["to"] is None and not summary["written"]
            continue
        assert summary["written"] and row["status"] == ("equal" if row["to"] == fmt else "closed form")
        assert row_of(summary, "fc.bias")["status"] == "copied"
        again = convert_checkpoint(after, tmp_path / "ours.safetensors", OURS)
        found = hc.load(tmp_path / "ours.safetensors")["fc.weight"]
        assert np.array_equal(found.dequantize(), values) and row_of(again)["status"] == "equal"
        if row["status"] == "equal":
            seen.add(target)
            convert_checkpoint(after, back, layout)
            assert data_of(back) == data_of(before) or (layout, target) == (OURS, "awq"), (
                target
            )  # which has no symmetric
    assert {layout, OURS} <= seen


@pytest.mark.parametrize("kind", GGML)
@pytest.mark.sweep(every=4)
def test_blocks_of_gguf(tmp_path, kind):
    pytest.importorskip("gguf")
    before = tmp_path / "a.gguf"
    arrays = saved(before, "gguf", kind)
    values, forms = arrays["fc.weight"].dequantize(), {}
    for target in ("compressed-tensors", "gptq", "awq", "mlx", OURS):
        row = row_of(converted(before, tmp_path / f"{target}.safetensors", target))
        forms[target] = row["to"]
        if row["to"] is None:
            continue
        convert_checkpoint(tmp_path / f"{target}.safetensors", tmp_path / "back.gguf", "gguf", lossy="f32")
        with hc.open_checkpoint(tmp_path / "back.gguf") as found:
            assert np.array_equal(found["fc.weight"], values), target
        if row["status"] == "equal" and target == OURS or (kind, target) == ("q4_0", "awq"):
            assert data_of(tmp_path / "back.gguf") == data_of(before)
    asymmetric = {"q4_0": "int4-g32-asym-f16", "q5_0": "int5-g32-asym-f16", "q8_0": "int8-g32-f16"}
    assert forms["compressed-tensors"] == {**asymmetric, "q3_k": "int3-g16-asym", "q6_k": "int6-g16-asym"}.get(kind)
    assert forms["awq"] == ("int4-g32-asym-f16" if kind == "q4_0" else None)
    assert (forms["mlx"] is None) == (kind in ("q3_k", "q6_k"))


def test_what_is_not_representable(tmp_path, capsys):
    """Nothing is written, and the table has the reason and a suggestion; --lossy rounds only these weights."""
    pytest.importorskip("gguf")
    before, after = tmp_path / "a.gguf", tmp_path / "b.safetensors"
    arrays = {"fc.weight": hc.quantize(W, "q4_k"), "up.weight": hc.quantize(W, "q4_0"), "fc.bias": BIAS}
    hc.save(before, arrays, layout="gguf")
    words = ["convert", str(before), str(after), "--layout", "compressed-tensors"]
    assert main([*words, "--json"]) == 1
    out, err = capsys.readouterr()
    summary = json.loads(out)
    row = row_of(summary)
    assert not after.exists() and not summary["written"]
    assert row["status"] == "not representable" and row["nearest"] == "int4-g32-asym-f16" and row["to"] is None
    assert re.fullmatch(
        r"the minimum -\S+ of group 0 is not a multiple of the scale \S+, so there is no zero point", row["why"]
    )
    assert row_of(summary, "up.weight")["status"] == "closed form"
    assert "1 tensor not representable in compressed-tensors, such as 'fc.weight' (q4_k)" in err
    assert main(words) == 1
    assert "nothing is written" in capsys.readouterr().out
    assert main([*words, "--lossy", "int4-g128-asym-f16", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    row = row_of(summary)
    q = hc.quantize(arrays["fc.weight"].dequantize(), "int4-g128-asym-f16")
    assert row["status"] == "lossy" and row["to"] == "int4-g128-asym-f16"
    expected = sqnr_of(of_array(arrays["fc.weight"]), of_array(q))
    assert row["sqnr_db"] == pytest.approx(expected, abs=1e-9) and 15 < expected < 30
    found = hc.load(after, layout="compressed-tensors")
    assert found["fc.weight"] == q
    assert np.array_equal(found["up.weight"].dequantize(), arrays["up.weight"].dequantize())
    assert main([*words, "--lossy", "f32", "--json", "--overwrite"]) == 0
    row = row_of(json.loads(capsys.readouterr().out))
    assert row["status"] == "closed form" and row["to"] == "float32" and row["sqnr_db"] is None
    assert same_bits(hc.load(after)["fc.weight"], arrays["fc.weight"].dequantize())


def test_dry_run_writes_nothing(tmp_path, capsys):
    saved(tmp_path / "a.safetensors", "gptq", "int4-g32-f16")
    out = tmp_path / "b.safetensors"
    assert main(["convert", str(tmp_path / "a.safetensors"), str(out), "--layout", "awq", "--dry-run"]) == 0
    assert "2 equal, 1 copied; nothing is written" in capsys.readouterr().out and not out.exists()


def test_one_format_of_all_weights(tmp_path):
    """GPTQ has one format per file: a common format of all weights is found, otherwise the other weights are named."""
    arrays = {"a.weight": hc.quantize(W, "int4-g32-f16"), "b.weight": hc.quantize(W, "int4-g64-f16")}
    hc.save(tmp_path / "a.safetensors", arrays)
    summary = convert_checkpoint(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "gptq")
    assert [row["to"] for row in summary["tensors"]] == ["int4-g32-f16"] * 2
    arrays["c.weight"] = hc.quantize(W, "int8-g32-f16")
    hc.save(tmp_path / "a.safetensors", arrays)
    summary = convert_checkpoint(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "gptq")
    assert [row["to"] for row in summary["tensors"]] == ["int8-g32-f16"] * 3
    with pytest.raises(NotRepresentable, match="awq has no place for int8-g32-f16"):
        convert_checkpoint(tmp_path / "a.safetensors", tmp_path / "none.safetensors", "awq")
    summary = convert_checkpoint(tmp_path / "a.safetensors", tmp_path / "c.safetensors", "compressed-tensors")
    assert [row["status"] for row in summary["tensors"]] == ["equal"] * 3
    with hc.open_checkpoint(tmp_path / "c.safetensors") as found:
        config = json.loads(found.metadata["quantization_config"])
    assert [len(group["targets"]) for group in config["config_groups"].values()] == [1, 1, 1]
    loaded = hc.load(tmp_path / "c.safetensors", layout="compressed-tensors")
    assert all(loaded[name] == arrays[name] for name in arrays)


def test_folders_of_shards(tmp_path):
    """Configuration and tokenizer are copied, an interrupted run continues, and files do not depend on workers."""
    model, config = tmp_path / "model", {"hidden": 256, "quantization_config": {}}
    arrays = {f"layers.{i}.fc.weight": hc.quantize(W + i, "int4-g32-f16") for i in range(6)}
    hc.save(tmp_path / "gptq.safetensors", arrays, layout="gptq")
    with hc.open_checkpoint(tmp_path / "gptq.safetensors") as found:
        config["quantization_config"] = json.loads(found.metadata["quantization_config"])
    tensors = hc.load(tmp_path / "gptq.safetensors")
    model.mkdir()
    where = {}
    for k in range(2):
        some = {name: array for name, array in tensors.items() if int(name.split(".")[1]) % 2 == k}
        hc.save(model / f"model-0000{k + 1}-of-00002.safetensors", some)
        where |= dict.fromkeys(some, f"model-0000{k + 1}-of-00002.safetensors")
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    (model / "config.json").write_text(json.dumps(config))
    (model / "tokenizer.json").write_text("{}")
    (model / "quantize_config.json").write_text(json.dumps(config["quantization_config"]))
    first, second = tmp_path / "first", tmp_path / "second"
    summary = convert_checkpoint(model, first, "awq", shard_size="25kB", workers=2)
    assert all(row["status"] == "equal" or row["status"] == "closed form" for row in summary["tensors"])
    files = sorted(path.name for path in first.iterdir())
    assert len([name for name in files if name.startswith("model-")]) == 3
    assert "tokenizer.json" in files and "quantize_config.json" not in files
    said = json.loads((first / "config.json").read_text())
    assert said["hidden"] == 256 and said["quantization_config"]["quant_method"] == "awq"
    calls = []

    def stop(done, total, name):
        calls.append(name)
        if calls.count("layers.4.fc.weight") == 2:  # once for the comparison, once for writing
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(model, second, "awq", shard_size="25kB", progress=stop)
    partial = tmp_path / "second.partial"
    kept = {path: path.stat().st_mtime_ns for path in partial.rglob("model-*.safetensors")}
    assert kept and not second.exists()
    convert_checkpoint(model, second, "awq", shard_size="25kB")
    assert all((second / path.name).stat().st_mtime_ns == when for path, when in kept.items())
    assert [(first / name).read_bytes() == (second / name).read_bytes() for name in files] == [True] * len(files)
    assert all(
        hc.load(second, layout="awq")[name].dequantize().tobytes() == arrays[name].dequantize().tobytes()
        for name in arrays
    )


def test_what_is_refused(tmp_path, capsys):
    hc.save(tmp_path / "plain.safetensors", {"fc.weight": W})
    with pytest.raises(ValueError, match="no weight is quantized in a layout that is read"):
        convert_checkpoint(tmp_path / "plain.safetensors", tmp_path / "out.safetensors", "gptq")
    saved(tmp_path / "a.safetensors", "gptq", "int4-g32-f16")
    with pytest.raises(ValueError, match="layout is 'marlin', expected one of heterocompute, compressed-tensors"):
        convert_checkpoint(tmp_path / "a.safetensors", tmp_path / "out.safetensors", "marlin")
    with pytest.raises(ValueError, match="is the input itself"):
        convert_checkpoint(tmp_path / "a.safetensors", tmp_path / "a.safetensors", "awq")
    with pytest.raises(ValueError, match="its configuration says 'gptq'"):
        convert_checkpoint(tmp_path / "a.safetensors", tmp_path / "out.safetensors", OURS, source="awq")
    saved(tmp_path / "b.safetensors", "modelopt", "nvfp4", {"fc.pre_quant_scale": np.ones(256, np.float32)})
    with pytest.raises(ValueError, match="quantized, by 'modelopt' with 'fc.pre_quant_scale', in no layout"):
        convert_checkpoint(tmp_path / "b.safetensors", tmp_path / "out.safetensors", OURS)
    assert main(["convert", str(tmp_path / "a.safetensors"), str(tmp_path / "out.safetensors")]) == 2
    assert "names no layout: expected --layout L, such as compressed-tensors" in capsys.readouterr().err
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize("layout", ["onnx", "onnx-matmulnbits"])
@pytest.mark.parametrize("fmt", ["int4-g32", "int4-g32-asym", "int8-g64", "int8", "int2-g16-asym", "int4-g64"])
def test_onnx_is_read_back(tmp_path, layout, fmt):
    """MatMulNBits and DequantizeLinear are read as the written weights, also with a short last block."""
    pytest.importorskip("onnx")
    if fmt == "int8" and layout == "onnx-matmulnbits":
        pytest.skip("no place for it")
    arrays = {"fc.weight": hc.quantize(W[:, :208], fmt), "up.weight": hc.quantize(W, fmt), "fc.bias": BIAS}
    path, back = tmp_path / "a.onnx", tmp_path / "back.safetensors"
    hc.save(path, arrays, layout=layout)
    found = hc.load(path, layout=layout)
    assert found["fc.weight"] == arrays["fc.weight"] and found["up.weight"] == arrays["up.weight"]
    summary = convert_checkpoint(path, back, OURS)
    assert [row["status"] for row in summary["tensors"] if row["name"] != "fc.bias"] == ["equal"] * 2
    assert hc.load(back)["fc.weight"] == arrays["fc.weight"] and same_bits(hc.load(back)["fc.bias"], BIAS)
    convert_checkpoint(path, tmp_path / "again.onnx", layout)
    again = hc.load(tmp_path / "again.onnx", layout=layout)
    assert all(again[name] == arrays[name] for name in ("fc.weight", "up.weight"))


def test_codes_of_onnx_that_lie_the_other_way(tmp_path):
    """Weights of MatMul are (in, out) with one scale per column: they are transposed."""
    onnx = pytest.importorskip("onnx")
    codes = RNG.integers(0, 255, (64, 8)).astype(np.uint8)
    scales, zeros = RNG.random(8).astype(np.float32), RNG.integers(0, 255, 8).astype(np.uint8)
    parts = {"w_q": codes, "w_s": scales, "w_z": zeros}
    held = [onnx.numpy_helper.from_array(part, name) for name, part in parts.items()]
    nodes = [onnx.helper.make_node("DequantizeLinear", [*parts], ["w"], axis=1)]
    nodes.append(onnx.helper.make_node("MatMul", ["x", "w"], ["y"]))
    infos = [onnx.helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("x", 64), ("y", 8))]
    graph = onnx.helper.make_graph(nodes, "g", infos[:1], infos[1:], held)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)]), tmp_path / "a.onnx")
    row = row_of(convert_checkpoint(tmp_path / "a.onnx", tmp_path / "b.safetensors", OURS), "w.weight")
    assert row["to"] == "int8-asym"
    values = (codes.astype(np.float32) - zeros) * scales
    assert np.array_equal(hc.load(tmp_path / "b.safetensors")["w.weight"].dequantize(), values.T)


def test_keys_of_gguf_stay(tmp_path):
    """From GGUF to GGUF the header keeps its strings, numbers, bools and lists with their types."""
    gguf = pytest.importorskip("gguf")
    keys = {"general.architecture": "llama", "general.name": "net", "llama.block_count": np.uint32(2)}
    keys |= {"llama.rope.freq_base": np.float32(1e4), "general.flag": True, "tokenizer.ggml.tokens": ["a", "ü", ""]}
    keys |= {"tokenizer.ggml.scores": [np.float32(-1), np.float32(2)], "general.big": np.uint64(2**60)}
    hc.save_gguf(tmp_path / "a.gguf", {"fc.weight": W, "norm.weight": BIAS}, keys, types={"fc.*": "q4_0"})
    convert_checkpoint(tmp_path / "a.gguf", tmp_path / "b.gguf", "gguf")
    before, after = (gguf.GGUFReader(str(tmp_path / name)) for name in ("a.gguf", "b.gguf"))
    assert list(before.fields) == list(after.fields)
    for key, field in before.fields.items():
        assert field.types == after.fields[key].types and field.contents() == after.fields[key].contents(), key
    assert data_of(tmp_path / "a.gguf") == data_of(tmp_path / "b.gguf")


def test_workers_in_other_processes(tmp_path):
    """The tasks of workers can be pickled, and the files are those of one worker."""
    arrays = {f"{i}.fc.weight": hc.quantize(W + i, "int4-g32-f16") for i in range(3)}
    hc.save(tmp_path / "a.safetensors", arrays, layout="gptq")

    def pooled(function, files):
        return [pickle.loads(pickle.dumps(function))(pickle.loads(pickle.dumps(file))) for file in reversed(files)]

    for name, workers in (("one", 1), ("sent", pooled)):
        convert_checkpoint(tmp_path / "a.safetensors", tmp_path / name, "awq", shard_size="12kB", workers=workers)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(files) == 5 and files == sorted(path.name for path in (tmp_path / "sent").iterdir())
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "sent" / name).read_bytes() for name in files)


@pytest.mark.parametrize("layout", ["fp8", "modelopt", "gpt-oss", "mlx"])
def test_new_layouts_as_plain_tensors(tmp_path, layout):
    """`dequantize` and `load` read them, too; no other command treats their codes as weights."""
    path, out = tmp_path / "model.safetensors", tmp_path / "plain.safetensors"
    values = RNG.standard_normal((2, 32, 128)).astype(np.float32)
    name, q = "fc.weight", hc.quantize(W, {"fp8": "fp8_e4m3fn-tensor", "modelopt": "nvfp4"}.get(layout, "int4-g64-f16"))
    if layout == "gpt-oss":
        name, q = "experts.up.weight", hc.quantize(values, "mxfp4", axis=2)
    hc.save(tmp_path / "ours.safetensors", {name: q, "norm.weight": BIAS})
    convert_checkpoint(tmp_path / "ours.safetensors", path, layout)
    assert main(["dequantize", str(path), str(out), "--dtype", "f32"]) == 0
    found = hc.load(out)
    assert set(found) == {name, "norm.weight"} and np.array_equal(found[name], q.dequantize())
    assert np.array_equal(hc.load(path, layout=layout)[name].dequantize(), q.dequantize())
    for words in (["quantize", str(path), f"{out}.2", "--format", "int8"], ["study", str(path), "--formats", "int8"]):
        assert main(words) == 1


def test_rounding_to_what_has_no_place(tmp_path):
    """A format of --lossy that the layout lacks is reported before anything is written."""
    pytest.importorskip("gguf")
    hc.save(tmp_path / "a.safetensors", {"fc.weight": hc.quantize(W[:, :96], "nf4-g16")})
    for layout, lossy, why in (
        ("gguf", "q4_k", "rows of 96 values, q4_k has blocks of 256"),
        ("gptq", "mxfp4", "is mxfp4, for which gptq has no place"),
        ("awq", "int4-g64-f16", "awq has no short groups"),
        ("fp8", "int8", "is int8, for which fp8 has no place"),
    ):
        with pytest.raises(NotRepresentable, match=why):
            convert_checkpoint(tmp_path / "a.safetensors", tmp_path / "out", layout, lossy=lossy)
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize("layout", ["heterocompute", "gguf", "gptq"])
def test_rotated_weights_are_refused_by_name(tmp_path: Path, layout: str) -> None:
    w = np.random.default_rng(0).standard_normal((64, 128), dtype=np.float32)
    hc.save(tmp_path / "in.safetensors", {"w": hc.quantize(w, "int4-g32+had")})
    out = tmp_path / ("out.gguf" if layout == "gguf" else "out.safetensors")
    with pytest.raises(ValueError, match=r"conversions do not keep int4-g32\+had, whose values are rotated"):
        hc.convert_checkpoint(tmp_path / "in.safetensors", out, layout)
    assert not out.exists()
