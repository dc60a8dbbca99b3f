"""EETQ: 8-bit integers in the order of FasterTransformer's kernels, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_cases import eetq

import heterocompute as hc
from heterocompute.arrays.layout import save_arrays
from heterocompute.files.checkpoint import dequantize_checkpoint
from heterocompute.files.convert import convert_checkpoint

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(4)
CONFIG = {"quant_method": "eetq", "weights": "int8", "modules_to_not_convert": ["lm_head"]}


def written(path: Path, tensors: dict[str, Array], config: Any = CONFIG) -> Path:
    metadata = {} if config is None else {"quantization_config": json.dumps(config)}
    save_arrays(path, {**tensors, "fc.bias": np.ones(128, np.float16)}, {}, metadata=metadata)
    return path


@pytest.mark.parametrize("name, least, wanted", [("weight", -127, "int8-f16"), ("qweight", -128, "int8-asym-f16")])
def test_values_are_those_of_the_definition(tmp_path: Path, name: str, least: int, wanted: str) -> None:
    codes = RNG.integers(least, 128, (192, 128)).astype(np.int8)  # (in, out)
    codes[5, 7] = least
    scales = RNG.uniform(0.001, 0.1, 128).astype(np.float16)
    tensors = {f"fc.{name}": eetq(codes), "fc.weight_scales": scales}
    path = written(tmp_path / "a.safetensors", tensors)
    values = (codes.astype(np.float32) * scales.astype(np.float32)).T
    found = hc.load(path, layout="eetq")
    assert str(found["fc.weight"].format) == wanted and np.array_equal(found["fc.weight"].dequantize(), values)
    assert set(found) == {"fc.weight", "fc.bias"}
    dequantize_checkpoint(path, tmp_path / "b.safetensors")
    assert np.array_equal(hc.load(tmp_path / "b.safetensors")["fc.weight"], values)
    for layout in ("compressed-tensors", "gptq"):
        rows = convert_checkpoint(path, tmp_path / "c.safetensors", layout)["tensors"]
        assert {row["status"] for row in rows} <= {"equal", "closed form", "copied"}


def test_what_is_written_are_the_bytes_of_the_definition(tmp_path: Path) -> None:
    q = hc.quantize(RNG.standard_normal((128, 192), dtype=np.float32), "int8-f16")
    hc.save(tmp_path / "a.safetensors", {"fc.weight": q}, layout="eetq")
    stored = hc.load(tmp_path / "a.safetensors")
    assert np.array_equal(stored["fc.weight"], eetq(np.ascontiguousarray(q.codes().T)))
    assert stored["fc.weight_scales"].dtype == np.float16 and stored["fc.weight_scales"].shape == (128,)
    assert hc.load(tmp_path / "a.safetensors", layout="eetq")["fc.weight"] == q


@pytest.mark.parametrize("tensors, words", [
    ({"fc.weight": np.zeros((96, 64), np.int8)}, r"int8 \(96, 64\), expected int8 \(in, out\), multiples of 64"),
    ({"fc.weight": np.zeros((64, 64), np.uint8)}, "fc.weight is uint8"),
    ({"fc.weight": np.zeros(64, np.int8)}, r"fc.weight is int8 \(64,\)"),
    ({"fc.weight_scales": np.ones((64, 1), np.float16)}, "fc.weight_scales is float16"),
    ({"fc.weight_scales": np.full(64, np.nan, np.float16)}, "not finite"),
    ({"fc.weight": None}, "missing"),
])  # fmt: skip
def test_what_is_no_eetq_is_refused(tmp_path: Path, tensors: dict[str, Array | None], words: str) -> None:
    usual = {"fc.weight": np.zeros((64, 64), np.int8), "fc.weight_scales": np.ones(64, np.float16)}
    given = {name: part for name, part in {**usual, **tensors}.items() if part is not None}
    path = written(tmp_path / "a.safetensors", given)
    for run in (lambda out: dequantize_checkpoint(path, out), lambda out: convert_checkpoint(path, out, "gptq")):
        with pytest.raises(ValueError, match=words) as caught:
            run(tmp_path / "out.safetensors")
        assert str(path) in str(caught.value) and not (tmp_path / "out.safetensors").exists()


def test_other_formats_have_no_place(tmp_path: Path) -> None:
    w = RNG.standard_normal((64, 64), dtype=np.float32)
    for fmt in ("int8", "int8-g32-f16", "int4-f16"):
        with pytest.raises(ValueError, match="int8-f16 is the nearest"):
            hc.save(tmp_path / "a.safetensors", {"fc.weight": hc.quantize(w, fmt)}, layout="eetq")
    with pytest.raises(ValueError, match="multiples of 64"):
        hc.save(tmp_path / "a.safetensors", {"fc.weight": hc.quantize(w[:32], "int8-f16")}, layout="eetq")
