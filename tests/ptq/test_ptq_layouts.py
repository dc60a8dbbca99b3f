"""Results of `ptq` are written in the layouts of other programs, with the same values as without a layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import reals, run, same_bits

import heterocompute as hc


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((100, 64)) @ rng.standard_normal((64, 64))
    weights = {"a.weight": reals((16, 64), 1), "b.weight": reals((8, 64), 2), "a.bias": reals((16,), 3)}
    hc.save("model.safetensors", weights)
    np.savez("x.npz", **{"a.weight": x})
    (tmp_path / "ptq_network_of_layouts.py").write_text(
        "import numpy as np\ndef run(weights):\n    open('called', 'w').close()\n"
        "    np.load('x.npz')['a.weight'] @ weights['a.weight'].T\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("layout", "fmt"),
    [
        ("gptq", "int4-g32-f16"),
        ("gptq", "int4-g32-asym-f16"),
        ("awq", "int4-g32-asym-f16"),
        ("compressed-tensors", "int4-g32"),
        ("compressed-tensors", "mxfp4"),
        ("bitsandbytes", "nf4-g64"),
        ("gguf", "int4-g32-f16"),
    ],
)
def test_values_are_those_without_a_layout(files: Path, layout: str, fmt: str, capsys: Any) -> None:
    if layout == "gguf":
        pytest.importorskip("gguf")
    out = "out.gguf" if layout == "gguf" else "out.safetensors"
    command = ("ptq", "model.safetensors", "--format", fmt, "--inputs", "x.npz")
    assert run(capsys, *command, "plain.safetensors")[0] == 0
    code, _, err = run(capsys, *command, out, "--layout", layout)
    assert code == 0, err
    weights, wanted = hc.load("model.safetensors"), hc.load("plain.safetensors")["a.weight"].dequantize()
    with hc.open_checkpoint(out, layout=layout) as found:
        assert set(found) == set(weights)
        assert same_bits(found["a.weight"].dequantize(), wanted)
        assert same_bits(found["b.weight"], weights["b.weight"]) and same_bits(found["a.bias"], weights["a.bias"])
    if layout != "gguf":  # which holds values for any reader
        assert run(capsys, "dequantize", out, "values.safetensors")[0] == 0
        out = "values.safetensors"
    assert same_bits(hc.load(out)["a.weight"], wanted) and not list(files.glob("*.parts"))


def test_a_model_for_onnxruntime(files: Path, capsys: Any) -> None:
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    command = ("ptq", "model.safetensors", "--format", "int4-g32", "--inputs", "ptq_network_of_layouts:run")
    assert run(capsys, *command, "plain.safetensors")[0] == 0
    code, _, err = run(capsys, *command, "out.onnx", "--layout", "onnx")
    assert code == 0, err
    (found,) = evaluator("out.onnx").run(None, {})
    assert same_bits(found, hc.load("plain.safetensors")["a.weight"].dequantize())


def test_a_folder_says_it_in_its_configuration(files: Path) -> None:
    h = hc.ptq.Hessian(64)
    h.add(np.load("x.npz")["a.weight"])
    Path("model").mkdir()
    Path("model.safetensors").rename("model/model.safetensors")
    Path("model/config.json").write_text('{"architectures": ["Of a test"]}')
    hc.ptq.quantize_checkpoint("model", "out", {"a.weight": h}, "int4-g32-f16", layout="gptq")
    assert '"quant_method": "gptq"' in Path("out/config.json").read_text()
    wanted = hc.ptq.gptq(hc.load("model")["a.weight"], h, "int4-g32-f16")
    assert hc.load("out", layout="gptq")["a.weight"] == wanted


def test_a_format_without_a_place_is_refused_before_the_network_runs(files: Path, capsys: Any) -> None:
    for layout, out, fmt, words in (
        ("gptq", "out", "vsq4-g16-s4", "'a.weight' is vsq4-g16-s4, for which gptq has no place: int4-g128-f16"),
        ("onnx", "out.onnx", "vsq4-g16-s4", "'a.weight' is vsq4-g16-s4, for which onnx has no place: int4-g32"),
        ("gtpq", "out", "int4-g32", "layout is 'gtpq', expected .*; the nearest is 'gptq'"),
        (None, "out.onnx", "int4-g32", "expected a name without .onnx or the layout onnx"),
    ):
        if layout == "onnx":
            pytest.importorskip("onnx")
        for calibration in ("x.npz", "ptq_network_of_layouts:run"):
            options = [] if layout is None else ["--layout", layout]
            command = ("ptq", "model.safetensors", out, "--format", fmt, "--inputs", calibration, *options)
            code, _, err = run(capsys, *command)
            last = err.splitlines()[-1]
            assert code == 1 and pytest.raises(ValueError, match=words).matches(ValueError(last)), last
        if layout == "gptq":
            code, _, quantized = run(capsys, "quantize", "model.safetensors", out, "--format", fmt, "--layout", layout)
            sentence = "save: tensor 'a.weight' is vsq4"
            assert quantized.partition(sentence)[2].strip() == err.partition(sentence)[2].strip() != ""
    assert not Path("called").exists() and not Path("out").exists()


def test_a_weight_that_no_layout_takes_may_stay_as_it_is(files: Path, capsys: Any) -> None:
    weights = {**hc.load("model.safetensors"), "odd.weight": reals((4, 33), 5), "cube": reals((2, 3, 4), 6)}
    hc.save("model.safetensors", dict(reversed(weights.items())))
    command = ("ptq", "model.safetensors", "out.safetensors", "--format", "int4-g32-f16", "--layout", "gptq")
    code, _, err = run(capsys, *command, "--inputs", "ptq_network_of_layouts:run")
    assert code == 0, err
    found = hc.load("out.safetensors", layout="gptq")
    assert isinstance(found["a.weight"], hc.QuantizedArray) and same_bits(found["cube"], weights["cube"])
