"""Checkpoints written in another program's layout, tensor by tensor, equal the files of `save`."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from common import run

import heterocompute as hc
from heterocompute.files.layouts.table import LAYOUTS, QUANTIZED_TO

RANDOM = np.random.default_rng(3)
WEIGHTS = {
    "embed.weight": RANDOM.standard_normal((5, 64)).astype(ml_dtypes.bfloat16),
    "fc.weight": RANDOM.standard_normal((64, 128)).astype(ml_dtypes.bfloat16),
    "fc.bias": np.ones(64, np.float32),
    "out.weight": RANDOM.standard_normal((64, 64)).astype(np.float32),
}
PLACES = [(name, fmt) for name, one in LAYOUTS.items() if not one.is_file for fmt in one.examples]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    hc.save(tmp_path / "in" / "model.safetensors", WEIGHTS)
    (tmp_path / "in" / "config.json").write_text('{"hidden_size": 64, "architectures": ["A"]}')
    return tmp_path / "in"


@pytest.mark.parametrize("layout, fmt", PLACES)
@pytest.mark.sweep(every=3)
def test_a_checkpoint_is_written_as_save_does(folder, tmp_path, layout, fmt):
    options = {"exclude": "embed*", "layout": layout}
    summary = hc.quantize_checkpoint(folder, tmp_path / "out", fmt, shard_size=2000, **options)
    hc.quantize_checkpoint(folder, tmp_path / "one.safetensors", fmt, **options)
    packed = ("fc.weight", "out.weight")
    arrays = {name: hc.quantize(array, fmt) if name in packed else array for name, array in WEIGHTS.items()}
    hc.save(tmp_path / "saved", arrays, layout=layout)
    with hc.open_checkpoint(tmp_path / "saved") as saved, hc.open_checkpoint(tmp_path / "out") as found:
        assert set(found) == set(saved) and found.metadata["format"] == "pt"
        assert all(found[name].tobytes() == saved[name].tobytes() for name in saved)
        config = json.loads(saved.metadata["quantization_config"])
        assert config.get("modules_to_not_convert", config.get("llm_int8_skip_modules", ["embed"])) == ["embed"]
        assert config.get("quantization_status") == ("compressed" if layout == "compressed-tensors" else None)
        assert summary["bytes"] == sum(saved.info(name).nbytes for name in saved)
    more = {"quantization": config} if layout == "mlx" else {}
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {
        "hidden_size": 64, "architectures": ["A"], "quantization_config": config, **more
    }  # fmt: skip
    assert (tmp_path / "out" / "hf_quant_config.json").exists() == (layout == "modelopt")
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 1
    for path in (tmp_path / "out", tmp_path / "one.safetensors"):
        back = hc.load(path, layout=layout)
        assert back["fc.weight"] == arrays["fc.weight"] and set(back) == set(WEIGHTS)


@pytest.mark.parametrize("has_head", [False, True])
def test_a_head_that_is_tied_to_a_plain_embedding_is_listed_as_plain(tmp_path, has_head):
    """Loaders would otherwise expect codes for it."""
    names = ["model.embed_tokens.weight", "fc.weight", *["lm_head.weight"] * has_head]
    hc.save(tmp_path / "in.safetensors", {name: np.ones((32, 64), np.float32) for name in names})
    declared = {"bitsandbytes": ("nf4-g64", "llm_int8_skip_modules"), "awq": ("int4-g32-f16", "modules_to_not_convert")}
    for layout, (fmt, key) in declared.items():
        hc.quantize_checkpoint(tmp_path / "in.safetensors", tmp_path / layout, fmt, include="fc*", layout=layout)
        config = json.loads((tmp_path / layout / "config.json").read_text())["quantization_config"]
        assert sorted(config[key]) == ["lm_head", "model.embed_tokens"]


def test_every_layout_that_quantize_writes_has_an_example():
    assert LAYOUTS.keys() - QUANTIZED_TO == {"gpt-oss", "bitnet", "hqq", "quanto"}


@pytest.mark.parametrize("options, words", [
    ({"layout": "gtpq"}, "the nearest is 'gptq'"), ({"layout": "gptq"}, "'fc.weight' is int4-g32, for which gptq"),
    ({"layout": "awq", "format": "int4-g32-asym-f16", "include": "*"}, "'embed.weight'.*multiple of 8"),
    ({"layout": "gptq", "exclude": "embed*", "format": "int8-f16", "recipe": {"out.*": "int4-g32-f16"}}, "one of all"),
    ({"layout": "compressed-tensors", "exclude": "*"}, "no weight is packed"),
    ({"layout": "compressed-tensors", "fake": True}, "fake writes plain"),
    ({"layout": "gguf", "workers": 2}, "one file"),
    ({"layout": "compressed-tensors", "format": "2:4"}, "'fc.weight' is 2:4, for which"),
    ({"layout": "gptq", "include": "embed*"}, "'embed.weight' is int4-g32, for which gptq"),
])  # fmt: skip
def test_what_has_no_place_is_refused_before_anything_is_written(folder, tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        hc.quantize_checkpoint(folder, tmp_path / "out", **{"format": "int4-g32", **options})
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_configuration_is_not_believed(folder, tmp_path):
    for text, words in (("[]", "not a JSON object"), ("{", "not JSON"), ('{"quantization_config": {}}', "already")):
        (folder / "config.json").write_text(text)
        with pytest.raises(ValueError, match=f"config.json: .*{words}"):
            hc.quantize_checkpoint(folder, tmp_path / "out", "int4-g32", layout="compressed-tensors")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("ending", ["", "/"])
@pytest.mark.parametrize("config", [None, {"model_type": "llama", "hidden_size": 64}])
def test_a_single_file_becomes_a_folder_with_its_configuration(folder, tmp_path, config, ending, capsys):
    """`awq` and `awq/` are the same folder, and its config.json has the entries that loaders read."""
    (folder / "config.json").unlink()
    (folder / "notes.txt").write_text("of another program")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    options = ["--format", "int4-g32-asym-f16", "--layout", "awq", "--exclude", "embed*"]
    code, text, errors = run(capsys, "quantize", folder / "model.safetensors", f"{tmp_path / 'awq'}{ending}", *options)
    assert code == 0 and "2 tensors quantized" in text
    declared = json.loads((tmp_path / "awq" / "config.json").read_text())
    assert declared.pop("quantization_config")["quant_method"] == "awq" and declared == (config or {})
    assert sorted(path.name for path in (tmp_path / "awq").iterdir()) == ["config.json", "model.safetensors"]
    assert ("has no model_type" in errors) == (config is None)
    assert set(hc.load(tmp_path / "awq", layout="awq")) == set(WEIGHTS)


def test_a_single_output_file_says_that_its_configuration_is_missing(folder, tmp_path, capsys):
    options = ["--format", "int4-g32", "--layout", "compressed-tensors"]
    code, _, errors = run(capsys, "quantize", folder, tmp_path / "one.safetensors", *options)
    assert code == 0 and "give OUT the name of a folder" in errors and not (tmp_path / "config.json").exists()
    code, _, errors = run(capsys, "quantize", folder, tmp_path / "ours.safetensors", "--format", "int4-g32")
    assert code == 0 and "config.json" not in errors


@pytest.mark.parametrize("layout, fmt, package", [("gguf", "int4-g32-f16", "gguf"), ("onnx", "int4-g32", "onnx")])
def test_files_of_their_own_kind(folder, tmp_path, layout, fmt, package, capsys):
    pytest.importorskip(package)
    plain = {name: np.asarray(array, np.float32) for name, array in WEIGHTS.items()}
    hc.save(folder / "model.safetensors", plain)
    options = ["--format", fmt, "--layout", layout, "--exclude", "embed*"]
    code, text, _ = run(capsys, "quantize", folder, tmp_path / "out", *options)
    assert code == 0 and "2 tensors quantized" in text
    arrays = {
        name: hc.quantize(plain[name], fmt) if name in ("fc.weight", "out.weight") else plain[name] for name in plain
    }
    hc.save(tmp_path / "saved", arrays, layout=layout)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "saved").read_bytes()
