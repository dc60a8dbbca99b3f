"""quanto: 8-bit weights are read; other weights, torchao's without metadata, and EETQ's are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.files.checkpoint import dequantize_checkpoint
from heterocompute.files.convert import convert_checkpoint

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
CODES = RNG.integers(-127, 128, (24, 64)).astype(np.int8)
SCALES = RNG.uniform(0.001, 0.1, (24, 1)).astype(np.float32)
PLAIN = {"fc.input_scale": np.float32(1), "fc.output_scale": np.float32(1), "fc.bias": np.ones(24, np.float32)}


def written(path: Path, codes: Array, scales: Array) -> Path:
    hc.save(path, {"fc.weight._data": codes, "fc.weight._scale": scales, **PLAIN})
    return path


@pytest.mark.parametrize(
    "dtype, lowest, scales, wanted",
    [("int8", -127, SCALES, "int8"), ("int8", -128, SCALES, "int8-asym"),
     ("int8", -127, SCALES.astype(np.float16), "int8-f16"), ("int8", -127, SCALES.astype(ml_dtypes.bfloat16), "int8"),
     ("int8", -127, SCALES[0, 0], "int8"), ("float8_e4m3fn", -127, SCALES, "fp8_e4m3fn-row"),
     ("float8_e5m2", -127, SCALES[:1], "fp8_e5m2-tensor")],
)  # fmt: skip
def test_weights_of_8_bits_are_read(tmp_path: Path, dtype: str, lowest: int, scales: Array, wanted: str) -> None:
    codes = CODES.copy()
    codes[0, 0] = lowest
    codes = codes if dtype == "int8" else codes.astype(dtype)
    path = written(tmp_path / "a.safetensors", codes, scales)
    values = codes.astype(np.float32) * np.asarray(scales, np.float32)
    found = hc.load(path, layout="quanto")
    assert set(found) == {"fc.weight", *PLAIN} and str(found["fc.weight"].format) == wanted
    assert np.array_equal(found["fc.weight"].dequantize(), values)
    target = "fp8" if dtype == "float8_e5m2" else "compressed-tensors"
    summary = convert_checkpoint(path, tmp_path / "b.safetensors", target)
    assert summary["source"] == "quanto" and summary["written"]
    assert np.array_equal(np.asarray(hc.load(tmp_path / "b.safetensors", layout=target)["fc.weight"]), values)
    dequantize_checkpoint(path, tmp_path / "c.safetensors")
    assert np.array_equal(hc.load(tmp_path / "c.safetensors")["fc.weight"], values)


def test_filters_are_values(tmp_path: Path) -> None:
    codes, scales = CODES.reshape(24, 16, 2, 2), SCALES.reshape(24, 1, 1, 1)
    path = written(tmp_path / "a.safetensors", codes, scales)
    with pytest.raises(
        ValueError, match="filters .*have no format here: their values are read by dequantize_checkpoint"
    ):
        hc.load(path, layout="quanto")
    dequantize_checkpoint(path, tmp_path / "b.safetensors")
    assert np.array_equal(hc.load(tmp_path / "b.safetensors")["fc.weight"], codes.astype(np.float32) * scales)


@pytest.mark.parametrize(
    "codes, scales, words",
    [(CODES.astype(np.int16), SCALES, "_data is int16"), (CODES[0], SCALES, "_data is int8"),
     (CODES, SCALES[:5], "_scale is float32"), (CODES, SCALES.astype(np.float64), "_scale is float64"),
     (CODES, SCALES * np.float32(np.nan), "not finite"), (CODES, -SCALES, "scales")],
)  # fmt: skip
def test_what_is_no_quanto_is_refused(tmp_path: Path, codes: Array, scales: Array, words: str) -> None:
    path = written(tmp_path / "a.safetensors", codes, scales)
    with pytest.raises(ValueError, match=words):
        hc.load(path, layout="quanto")


FOUR = {"fc.weight._data._data": np.ones((96, 32), np.uint8), "fc.weight._scale": np.ones((192, 1), np.float32),
        "fc.weight._shift": np.ones((192, 1), np.float32)}  # fmt: skip
OTHERS = {
    "quanto": FOUR,
    "quanto next to 8 bits": {**FOUR, "up.weight._data": CODES, "up.weight._scale": SCALES},
    "torchao": {"fc.weight.qdata": CODES, "fc.weight.scale": SCALES},
    "torchao 2": {"fc._weight_qdata": CODES, "fc._weight_scale": SCALES},
    "EETQ": {"fc.weight": CODES.view(np.uint8), "fc.weight_scales": np.ones(64, np.float16)},
}


@pytest.mark.parametrize("name", OTHERS)
def test_scales_of_others_are_not_weights(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.safetensors"
    hc.save(path, {**OTHERS[name], "head.weight": np.ones((8, 64), np.float32)})
    out, program = tmp_path / "out.safetensors", name.split(" ")[0]
    for run in (lambda: hc.quantize_checkpoint(path, out, "int8"), lambda: dequantize_checkpoint(path, out),
                lambda: convert_checkpoint(path, out, "gptq")):  # fmt: skip
        with pytest.raises(ValueError, match=f"(?i){program}|nothing to do|no weight is quantized"):
            run()
        assert not out.exists()


def test_quanto_itself_has_the_same_values(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    quanto = pytest.importorskip("optimum.quanto")
    from safetensors.torch import save_file

    for weights in (quanto.qint8, quanto.qfloat8_e4m3fn, quanto.qfloat8_e5m2):
        model = torch.nn.Sequential(torch.nn.Linear(64, 32))
        quanto.quantize(model, weights=weights)
        quanto.freeze(model)
        save_file(model.state_dict(), tmp_path / "a.safetensors")
        q = hc.load(tmp_path / "a.safetensors", layout="quanto")["0.weight"]
        assert np.array_equal(q.dequantize(), model[0].weight.dequantize().detach().numpy())
    model = torch.nn.Sequential(torch.nn.Linear(128, 32))
    quanto.quantize(model, weights=quanto.qint4)
    quanto.freeze(model)
    save_file({name: part.contiguous() for name, part in model.state_dict().items()}, tmp_path / "b.safetensors")
    with pytest.raises(ValueError, match="quantized, by quanto"):
        dequantize_checkpoint(tmp_path / "b.safetensors", tmp_path / "c.safetensors")
