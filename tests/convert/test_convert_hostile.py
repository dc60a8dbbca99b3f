"""Mutated tensors and configurations of each layout that `convert` reads: converted, or refused in one line."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from foreign_cases import INT4, bitnet, eetq, fp8_blocks, hqq, torchao, torchao_int4

import heterocompute as hc
from heterocompute.arrays.layout import save_arrays
from heterocompute.base.container import numpy_dtype
from heterocompute.files.convert import convert_checkpoint

W = np.random.default_rng(3).standard_normal((32, 128)).astype(np.float32)
DTYPES = ("uint8", "int8", "int32", "uint32", "int64", "float16", "float32", "float8_e4m3fn", "bfloat16")
VALUES = (None, True, -1, 0, 1, 3, 7, 16, 1 << 40, "x", 1.5, [], {}, [128, 128], [0, 1], {"group_size": 0}, "affine")


LAYOUTS = (
    "bitnet",
    "hqq",
    "quanto",
    "torchao",
    *INT4,
    "torchao-mx",
    "eetq",
    "fp8-stack",
    "mlx-biases",
    "fp8",
    "modelopt",
    "gpt-oss",
    "mlx",
    "mlx-floats",
    "compressed-tensors",
    "gptq",
)


def seed_of(layout):
    """Return tensors and a configuration in a layout, or an array and a layout."""
    if layout == "bitnet":
        return bitnet(0.75, "bitlinear", np.random.default_rng(1).integers(-1, 2, (16, 64)))
    if layout == "hqq":
        return hqq(4, 64, 1, np.float16, (12, 128))[0], {"quant_method": "hqq"}
    if layout == "quanto":
        codes = np.random.default_rng(1).integers(-127, 128, (16, 64)).astype(np.int8)
        return {"fc.weight._data": codes, "fc.weight._scale": np.ones((16, 1), "f4")}, {"quant_method": "quanto"}
    if layout == "torchao":
        return torchao("IntxUnpackedToInt8Tensor", (16, 64), (1, 32), "float32", 4, True)[:2]
    if layout in INT4:
        tensors, said, _ = torchao_int4(layout, (16, 64), 32, "float32", "floats", 2)
        return tensors, {"quant_method": "torchao", "metadata": {"fc.weight": said}}
    if layout == "torchao-mx":
        parts = hc.quantize(W, "nvfp4").components
        tensors = {"fc._weight_qdata": parts["codes"], "fc._weight_per_tensor_scale": parts["coarse"]}
        tensors["fc._weight_scale"] = parts["scales"].view(numpy_dtype("float8_e4m3fn"))
        said = {"_type": "NVFP4Tensor", "_data": {"block_size": 16, "is_swizzled_scales": False}}
        return tensors, {"quant_method": "torchao", "metadata": {"fc.weight": said}}
    if layout == "eetq":
        codes = np.random.default_rng(1).integers(-127, 128, (64, 64)).astype(np.int8)
        tensors = {"fc.weight": eetq(codes), "fc.weight_scales": np.ones(64, np.float16)}
        return tensors, {"quant_method": "eetq", "weights": "int8"}
    if layout == "fp8-stack":
        return fp8_blocks((2, 32, 64), 16, 32)[:2]
    if layout == "mlx-biases":
        return hc.quantize(W, "affine4-g64-f16"), "mlx"
    if layout == "fp8":
        codes = np.random.default_rng(1).integers(0, 120, (32, 128)).astype(np.uint8)
        tensors = {"fc.weight": codes.view(numpy_dtype("float8_e4m3fn")), "fc.weight_scale_inv": np.ones((2, 2), "f4")}
        return tensors, {"quant_method": "fp8", "weight_block_size": [16, 64]}
    formats = {"modelopt": "nvfp4", "gpt-oss": "mxfp4", "mlx": "int4-g32-f16", "mlx-floats": "mxfp4"}
    formats |= {"compressed-tensors": "nvfp4", "gptq": "int4-g32-f16"}
    q = hc.quantize(W, formats[layout])
    if layout == "gpt-oss":
        q = hc.quantize(W.reshape(2, 16, 128), "mxfp4", axis=2)
    if layout == "compressed-tensors":
        q = hc.QuantizedArray({**q.components, "coarse": np.array(0.25, np.float32)}, q.format, q.shape, q.axis)
    return q, layout.removesuffix("-floats")


def case_of(tmp_path, layout):
    found = seed_of(layout)
    if isinstance(found[0], dict):
        return found
    hc.save(tmp_path / "ours.safetensors", {"fc.weight": found[0]})
    convert_checkpoint(tmp_path / "ours.safetensors", tmp_path / "a.safetensors", found[1])
    with hc.open_checkpoint(tmp_path / "a.safetensors") as stored:
        config = json.loads(stored.metadata["quantization_config"])
    return hc.load(tmp_path / "a.safetensors"), config


def mutated(chance, tensors, config):
    """Return tensors or a configuration with a mutation of values, bytes, dtypes, shapes or names."""
    tensors, config = dict(tensors), json.loads(json.dumps(config))
    name = chance.choice(sorted(tensors))
    array, kind = tensors[name], chance.randrange(7)
    if kind == 0:
        flat = np.frombuffer(bytearray(array.tobytes()), np.uint8)
        for _ in range(chance.choice((1, 3, 20))):
            flat[chance.randrange(len(flat))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        tensors[name] = flat.view(array.dtype).reshape(array.shape)
    elif kind == 1:
        data = np.resize(np.frombuffer(array.tobytes(), np.uint8), array.nbytes // 8 * 8 or 8)
        tensors[name] = data.view(numpy_dtype(chance.choice(DTYPES)))
        if chance.random() < 0.5 and array.ndim > 1 and tensors[name].size % array.shape[0] == 0:
            tensors[name] = tensors[name].reshape(array.shape[0], -1)
    elif kind == 2:
        index = tuple(slice(0, max(0, n - chance.choice((0, 0, 1, n)))) for n in array.shape)
        tensors[name] = array[index].copy()
    elif kind == 3:
        tensors[name] = chance.choice(
            (array[None], array.reshape(-1), array.T.copy(), np.repeat(np.atleast_1d(array)[:1], 3, 0))
        )
    elif kind == 4:
        del tensors[name]
    elif kind == 5 and config:
        where = config
        while (inner := [one for one in where.values() if isinstance(one, dict)]) and chance.random() < 0.7:
            where = chance.choice(inner)
        if where:
            where[chance.choice(sorted(where))] = chance.choice(VALUES)
    else:
        tensors[name.replace("fc", "fd") if chance.random() < 0.5 else name + "_inv"] = tensors.pop(name)
    return tensors, config


def described(said):
    """Return the metadata of a file, if the layout has any."""
    metadata = said.get("metadata")
    return {name: json.dumps(one) for name, one in metadata.items()} if isinstance(metadata, dict) else {}


def run(tmp_path, layout, count, seed):
    """Convert mutations; return the number of files that were read."""
    tensors, config = case_of(tmp_path, layout)
    out, chance = tmp_path / "out.safetensors", random.Random(seed)
    (tmp_path / "m").mkdir()
    path = tmp_path / "m" / "model.safetensors"
    read = 0
    for _ in range(count):
        other, said = mutated(chance, tensors, config)
        if not other:
            continue
        save_arrays(path, other, {}, metadata=described(said))
        (tmp_path / "m" / "config.json").write_text(json.dumps({"quantization_config": said}))
        try:
            is_whole = chance.random() < 0.1
            summary = convert_checkpoint(path, out, "heterocompute", lossy="f32", dry_run=not is_whole)
            read += 1
            assert summary["written"] == is_whole and all(row["status"] for row in summary["tensors"])
        except (ValueError, FileNotFoundError) as error:
            text = str(error)
            assert str(path) in text and "\n" not in text, text
    assert read or count < 20
    return read


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.sweep(every=3)
def test_mutations_are_converted_or_refused(tmp_path, layout):
    with np.errstate(all="ignore"):
        run(tmp_path, layout, 60, 1)


@pytest.mark.sweep(every=0)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_mutations(tmp_path, layout):
    with np.errstate(all="ignore"):
        run(tmp_path, layout, 2_000, 2)


@pytest.mark.parametrize("layout", ["onnx", "onnx-matmulnbits"])
@pytest.mark.sweep(every=4)
def test_mutated_models_are_converted_or_refused(tmp_path, layout):
    onnx = pytest.importorskip("onnx")
    arrays = {"fc.weight": hc.quantize(W, "int4-g32-asym"), "up.weight": hc.quantize(W, "int8-g32")}
    if layout == "onnx":
        filters = np.random.default_rng(3).standard_normal((8, 12, 3, 3), dtype=np.float32)
        arrays |= {f"{fmt}.weight": hc.quantize(filters, fmt, axis=(2, 3, 1)) for fmt in ("int8", "int4-g8-asym")}
        arrays |= {"two.weight": hc.quantize(W, "int2-g48")} if hasattr(onnx.TensorProto, "INT2") else {}
    hc.save(tmp_path / "a.onnx", arrays, layout=layout)
    model, chance = onnx.load(tmp_path / "a.onnx"), random.Random(4)
    path, read = tmp_path / "b.onnx", 0
    for _ in range(120):
        other = onnx.ModelProto()
        other.CopyFrom(model)
        node, held = chance.choice(other.graph.node), chance.choice(other.graph.initializer)
        kind = chance.randrange(6)
        if kind == 0 and node.attribute:
            chance.choice(node.attribute).i = chance.choice((-1, 0, 1, 2, 3, 8, 64, 1 << 40))
        elif kind == 1:
            held.dims[chance.randrange(len(held.dims))] = chance.choice((0, 1, 7, 1 << 40))
        elif kind == 2:
            held.data_type = chance.choice((1, 2, 3, 10, 21, 22, 25, 26))
        elif kind == 3:
            node.input[chance.randrange(len(node.input))] = chance.choice(("", held.name, "none"))
        elif kind == 4:
            held.raw_data = bytes(chance.randrange(256) for _ in held.raw_data)
        else:
            held.raw_data = held.raw_data[: chance.randrange(len(held.raw_data))]
        path.write_bytes(other.SerializeToString())
        try:
            with np.errstate(all="ignore"):
                convert_checkpoint(path, tmp_path / "out.safetensors", "heterocompute", lossy="f32", dry_run=True)
            read += 1
        except ValueError as error:
            assert str(path) in str(error) and "\n" not in str(error), error
    assert read


if __name__ == "__main__":  # python tests/convert/test_convert_hostile.py 200000 [hqq ...]: so many of each layout
    for each in sys.argv[2:] or LAYOUTS:
        with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
            print(each, run(Path(folder), each, int(sys.argv[1]), 2), "read", flush=True)
