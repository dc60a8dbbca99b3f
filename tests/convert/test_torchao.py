"""torchao: 8-bit tensors, and integers stored in 8 bits, are read as torchao decodes them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from foreign_cases import torchao

import heterocompute as hc
from heterocompute.arrays.layout import save_arrays
from heterocompute.files.checkpoint import dequantize_checkpoint
from heterocompute.files.convert import convert_checkpoint

Array = np.ndarray[Any, Any]
INT, INTX, FLOAT = "Int8Tensor", "IntxUnpackedToInt8Tensor", "Float8Tensor"


def written(path: Path, tensors: dict[str, Array], config: dict[str, Any], **more: Array) -> Path:
    described = {name: json.dumps(one) for name, one in config["metadata"].items()}
    described["tensor_names"] = json.dumps([*described, *more])
    save_arrays(path, {**tensors, **more}, {}, metadata=described)
    return path


@pytest.mark.parametrize("kind, block, dtype, bits, points, wanted", [
    (INT, (1, 128), "float32", 8, False, "int8"),
    (INT, (1, 128), "bfloat16", 8, True, "int8-asym"),
    (INT, (24, 128), "float32", 8, False, "int8"),
    (INT, (8, 32), "float32", 8, False, None),
    (INTX, (1, 32), "float16", 4, False, "int4-g32-f16"),
    (INTX, (1, 32), "bfloat16", 4, True, "int4-g32-asym"),
    (INTX, (1, 64), "float32", 3, True, "int3-g64-asym"),
    (INTX, (1, 128), "float32", 2, False, "int2"),
    (INTX, (1, 32), "float32", 1, False, "int8-g32"),
    (INTX, (1, 32), "float32", 7, True, "int7-g32-asym"),
    (FLOAT, (1, 128), "float32", 8, False, "fp8_e4m3fn-row"),
    (FLOAT, (24, 128), "float32", 8, False, "fp8_e4m3fn-tensor"),
    (FLOAT, (8, 64), "bfloat16", 8, False, "fp8_e4m3fn-g64"),
])  # fmt: skip
def test_values_are_those_of_the_definition(
    tmp_path: Path, kind: str, block: tuple[int, int], dtype: str, bits: int, points: bool, wanted: str | None
) -> None:
    tensors, config, values = torchao(kind, (24, 128), block, dtype, bits, points)
    path = written(tmp_path / "a.safetensors", tensors, config, **{"norm.weight": np.ones(5, np.float32)})
    if wanted is not None:
        q = hc.load(path, layout="torchao")["fc.weight"]
        assert str(q.format) == wanted and np.array_equal(np.asarray(q), values)
    row = dequantize_checkpoint(path, tmp_path / "b.safetensors")["tensors"][-1]
    assert row["name"] == "fc.weight"
    with hc.open_checkpoint(tmp_path / "b.safetensors") as found:
        assert np.array_equal(found["fc.weight"], values) and list(found) == ["norm.weight", "fc.weight"]
        assert "tensor_names" not in found.metadata and "fc.weight" not in found.metadata
    [fc] = [one for one in convert_checkpoint(path, tmp_path / "c.safetensors", "heterocompute", lossy="f32")["tensors"]
            if one["name"] == "fc.weight"]  # fmt: skip
    assert fc["status"] in ("equal", "closed form")
    assert np.array_equal(np.asarray(hc.load(tmp_path / "c.safetensors")["fc.weight"]), values)


def test_integers_go_to_other_layouts(tmp_path: Path) -> None:
    tensors, config, values = torchao(INTX, (64, 128), (1, 32), "float16", 4, True)
    path = written(tmp_path / "a.safetensors", tensors, config)
    for layout in ("gptq", "awq", "compressed-tensors", "mlx"):
        [row] = convert_checkpoint(path, tmp_path / "b.safetensors", layout)["tensors"]
        assert row["status"] == "equal"
        assert np.array_equal(np.asarray(hc.load(tmp_path / "b.safetensors", layout=layout)["fc.weight"]), values)


BLOCK = {"block_size": [1, 128]}
REFUSED = [
    ({"_type": "Int4PreshuffledTensor", "_data": BLOCK}, {}, "type 'Int4PreshuffledTensor', which is not read here"),
    ({"_type": ["x"], "_data": BLOCK}, {}, "not read here"),
    (None, {}, "already quantized, by torchao|no weight is quantized"),
    ({"_type": INT, "_data": {"block_size": [1, 0]}}, {}, "block_size is"),
    ({"_type": INT, "_data": {"block_size": [1, 48]}}, {}, "expected whole blocks of 1 x 48"),
    ({"_type": INTX, "_data": {**BLOCK, "target_dtype": {"_data": "int9"}}}, {}, "target_dtype is"),
    ({"_type": FLOAT, "_data": BLOCK}, {}, "expected float8_e4m3fn or float8_e5m2"),
    ({"_type": INT, "_data": BLOCK}, {"_scale": np.ones((3, 1), np.float32)}, r"_scale is float32 \(3, 1\)"),
    ({"_type": INT, "_data": BLOCK}, {"_scale": np.full((24, 1), np.nan, np.float32)}, "not finite"),
    ({"_type": INT, "_data": BLOCK}, {"_zero_point": np.zeros((24, 1), np.int16)}, "_zero_point is int16"),
    ({"_type": INT, "_data": BLOCK}, {"_act_pre_scale": np.ones(128, np.float32)}, "_act_pre_scale"),
]


@pytest.mark.parametrize("said, more, words", REFUSED)
def test_what_is_no_torchao_is_refused(tmp_path: Path, said: Any, more: dict[str, Array], words: str) -> None:
    tensors, config, _ = torchao(INT, (24, 128), (1, 128), "float32", 8, False)
    config["metadata"] = {} if said is None else {"fc.weight": said}
    path = written(
        tmp_path / "a.safetensors", {**tensors, **{f"fc._weight{end}": one for end, one in more.items()}}, config
    )
    for run in (lambda out: dequantize_checkpoint(path, out), lambda out: convert_checkpoint(path, out, "gptq")):
        with pytest.raises(ValueError, match=words) as caught:
            run(tmp_path / "out.safetensors")
        assert str(path) in str(caught.value) and not (tmp_path / "out.safetensors").exists()


def test_torchao_itself_has_the_same_values(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantization = pytest.importorskip("torchao.quantization")
        support = pytest.importorskip("torchao.prototype.safetensors.safetensors_support")
    from safetensors.torch import save_file

    group = quantization.PerGroup(32)
    intx = quantization.IntxWeightOnlyConfig
    configs = [quantization.Int8WeightOnlyConfig(version=2), quantization.Float8WeightOnlyConfig()]
    configs += [intx(weight_dtype=getattr(torch, f"int{bits}"), granularity=group) for bits in (2, 3, 4, 8)]
    configs += [intx(torch.int4, quantization.PerAxis(0)),
                intx(torch.int4, group, mapping_type=quantization.MappingType.ASYMMETRIC)]  # fmt: skip
    for config in configs:
        model = torch.nn.Sequential(torch.nn.Linear(256, 64)).to(torch.bfloat16)
        quantization.quantize_(model, config)
        tensors, metadata = support.flatten_tensor_state_dict(model.state_dict())
        save_file(tensors, tmp_path / "a.safetensors", metadata=metadata)
        found = hc.load(tmp_path / "a.safetensors", layout="torchao")
        values = np.asarray(found["0.weight"]).astype(ml_dtypes.bfloat16).astype(np.float32)
        assert np.array_equal(values, model[0].weight.dequantize().float().numpy()), config
        rows = convert_checkpoint(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "compressed-tensors")[
            "tensors"
        ]
        assert {row["status"] for row in rows} <= {"equal", "closed form", "copied"}
    granularity = quantization.PerBlock([32, 64])
    blocks = quantization.Float8Tensor.from_hp(torch.randn(64, 256), granularity=granularity)
    tensors, metadata = support.flatten_tensor_state_dict({"fc.weight": blocks})
    save_file(tensors, tmp_path / "a.safetensors", metadata=metadata)
    values = np.asarray(hc.load(tmp_path / "a.safetensors", layout="torchao")["fc.weight"])
    assert np.array_equal(values, blocks.dequantize().numpy())
