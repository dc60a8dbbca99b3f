"""GGUF files of blocks: the package gguf and our reader return the same values; invalid arrays are refused."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, same_bits

import heterocompute as hc
from heterocompute.arrays.bits import pack
from heterocompute.cli import main
from heterocompute.files.checkpoint import dequantize_checkpoint, inspect

gguf = pytest.importorskip("gguf")
TYPES = (*hc.GGML.examples, "mxfp4")


def weights(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).normal(0, 0.02, shape).astype(np.float32)


def test_every_type_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tensors = {text: weights(4, 512) for text in TYPES} | {"f16": weights(3, 5), "f32": weights(2, 7)}
    chosen = hc.save_gguf(path, tensors, types={text: text for text in tensors})
    assert chosen == {text: text for text in tensors}
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    ours = hc.open_checkpoint(path)
    for text in TYPES:
        wanted = hc.fake_quantize(tensors[text], text)
        assert found[text].tensor_type.name == text.upper()
        assert np.array_equal(gguf.quants.dequantize(found[text].data, found[text].tensor_type), wanted)
        assert np.array_equal(ours[text], wanted)
    assert np.array_equal(ours["f16"], tensors["f16"].astype(np.float16)) and np.array_equal(
        ours["f32"], tensors["f32"]
    )


def test_inspect_says_what_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    hc.save_gguf(path, {text: weights(4, 512) for text in TYPES} | {"f16": weights(3, 5)}, types={t: t for t in TYPES})
    found = {row["name"]: (row["format"], row["bytes"]) for row in inspect(path)}
    kinds = {tensor.name: tensor.data.nbytes for tensor in gguf.GGUFReader(path).tensors}
    assert found == {name: (name if name in TYPES else None, kinds[name]) for name in kinds}


def test_blocks_become_plain_values_of_any_dtype(tmp_path: Path) -> None:
    w = weights(4, 512)
    hc.save_gguf(tmp_path / "a.gguf", {"w": w, "bias": w[0]}, types={"*": "q4_0"})
    dequantize_checkpoint(tmp_path / "a.gguf", tmp_path / "b.safetensors", dtype="float16")
    found = hc.load(tmp_path / "b.safetensors")
    assert same_bits(found["w"], hc.fake_quantize(w, "q4_0").astype(np.float16)) and same_bits(found["bias"], w[0])


@pytest.mark.parametrize(("kind", "large"), [("f32", 1e300), ("f16", 1e5)])
def test_what_a_float_does_not_hold_is_refused(tmp_path: Path, kind: str, large: float) -> None:
    for array in (np.full((2, 32), large), np.full(5, large)):
        if kind == "f32" or array.ndim > 1:
            with bad_argument(ValueError, None, "value", "tensor 'w' has values beyond float.*'s largest"):
                hc.save_gguf(tmp_path / "a.gguf", {"w": array}, types={"*": kind})
    assert not list(tmp_path.iterdir())


def packed_as(text: str, w: np.ndarray[Any, Any]) -> hc.QuantizedArray:
    """Return the values that blocks hold: 4-bit floats without -0, which ggml decodes to 0."""
    q = hc.quantize(w, text)
    if "fp4" not in text:
        return q
    codes = q.codes().reshape(-1, w.shape[-1])
    parts = q.components | {"codes": pack(np.where(codes == 8, 0, codes).astype(np.uint8), 4)}
    return hc.QuantizedArray(parts, q.format, q.shape, q.axis)


@pytest.mark.parametrize("shape", [(256,), (5, 512), (3, 2, 512), (2, 2, 1, 256)])
def test_blocks_come_back_packed(tmp_path: Path, shape: tuple[int, ...]) -> None:
    tensors = {f"{text}.weight": weights(*shape) for text in (*TYPES, "nvfp4")} | {"bias": weights(3)}
    arrays = {name: packed_as(name[:-7], w) if name != "bias" else w for name, w in tensors.items()}
    first, second, third = (tmp_path / f"{name}.gguf" for name in "abc")
    hc.save_gguf(first, tensors if len(shape) > 1 else arrays, types={f"{text}.*": text for text in (*TYPES, "nvfp4")})
    found = hc.load(first, layout="gguf")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert np.array_equal(found[name], array) if name == "bias" else found[name] == array, name
    hc.save_gguf(second, found, types={})
    assert second.read_bytes() == first.read_bytes()
    hc.save(third, found, layout="gguf")
    for name, array in hc.load(third, layout="gguf").items():
        assert np.array_equal(array, arrays[name]) if name == "bias" else array == arrays[name], name


@pytest.mark.parametrize("text", ["q4_0", "q8_0", "mxfp4"])
def test_bytes_are_those_of_gguf(tmp_path: Path, text: str) -> None:
    w = weights(16, 512)
    hc.save_gguf(tmp_path / "a.gguf", {"w": w}, types={"w": text})
    data = gguf.GGUFReader(tmp_path / "a.gguf").tensors[0].data
    assert np.array_equal(data, gguf.quants.quantize(w, gguf.GGMLQuantizationType[text.upper()]))


def test_the_scale_of_nvfp4_is_a_tensor_of_its_own(tmp_path: Path) -> None:
    q = packed_as("nvfp4", weights(4, 128))
    hc.save_gguf(tmp_path / "a.gguf", {"fc.weight": q, "w": q})
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "a.gguf").tensors}
    assert list(theirs) == ["fc.weight", "fc.scale", "w", "w.scale"]
    scale = theirs["fc.scale"].data
    assert scale.tolist() == [q.components["coarse"]] and theirs["fc.weight"].tensor_type.name == "NVFP4"
    values = gguf.quants.dequantize(theirs["fc.weight"].data, theirs["fc.weight"].tensor_type)
    assert np.allclose(values * scale, q.dequantize(), rtol=2**-22, atol=0)
    found = hc.load(tmp_path / "a.gguf")  # the weights, not blocks without their scale
    assert list(found) == ["fc.weight", "w"] and np.array_equal(found["fc.weight"], values * scale)
    # without one it is 1, and the values are gguf's to the bit
    for scales in ({}, {"fc.scale": np.float32([0.5])}, {"fc.scale": np.float32([1, 1])}, {"fc.scale": np.int32([1])}):
        writer = gguf.GGUFWriter(str(tmp_path / "b.gguf"), "none")
        kind = gguf.GGMLQuantizationType.NVFP4
        writer.add_tensor("fc.weight", np.array(theirs["fc.weight"].data), raw_dtype=kind)
        for name, array in scales.items():
            writer.add_tensor(name, array)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        if any(array.size != 1 or array.dtype != np.float32 for array in scales.values()):
            several = hc.load(tmp_path / "b.gguf", layout="gguf")  # like any type without a format here
            assert list(several) == ["fc.weight", "fc.scale"] and same_bits(several["fc.scale"], scales["fc.scale"])
            assert np.array_equal(several["fc.weight"], values)
            continue
        found = hc.load(tmp_path / "b.gguf", layout="gguf")
        assert list(found) == ["fc.weight"]
        assert np.array_equal(found["fc.weight"].dequantize(), values * (0.5 if scales else 1))


def test_what_blocks_of_a_file_never_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    for text, byte, value in (("q4_0", 1, 0x7C), ("mxfp4", 0, 255), ("nvfp4", 0, 127), ("nvfp4", 0, 128),
                              ("q4_k", 1, 0x7E)):  # fmt: skip
        hc.save_gguf(path, {"w": packed_as(text, weights(2, 256))})
        data = bytearray(path.read_bytes())
        tensor = gguf.GGUFReader(path).tensors[0]
        data[tensor.data_offset + byte] = value
        path.write_bytes(data)
        with bad_argument(ValueError, None, "file", r"a\.gguf: tensor 'w': component (scales|codes|coarse) holds"):
            hc.load(path, layout="gguf")
    hc.save(tmp_path / "b", {"w": weights(2, 2)})
    with bad_argument(ValueError, None, "file", "GGUF"):
        hc.load(tmp_path / "b", layout="gguf")


@pytest.mark.parametrize("at", [2, 33, 34 * 8 + 2])
def test_the_lowest_code_of_q8_0_is_read(tmp_path: Path, at: int) -> None:
    """ggml writes -127 to 127; other programs write -128, which means -128 d."""
    path, w = tmp_path / "a.gguf", weights(2, 256)
    hc.save_gguf(path, {"w": w, "other": w}, types={"*": "q8_0"})
    data = bytearray(path.read_bytes())
    tensor = gguf.GGUFReader(path).tensors[0]
    data[tensor.data_offset + at] = 0x80
    path.write_bytes(data)
    blocks = np.frombuffer(data, np.uint8, 2 * 8 * 34, tensor.data_offset).reshape(-1, 34)
    scales = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
    wanted = (blocks[:, 2:].view(np.int8).astype(np.float32) * scales).reshape(2, 256)
    found = hc.load(path, layout="gguf")
    assert np.array_equal(np.asarray(found["w"]), wanted) and -128 in wanted / np.repeat(scales, 32, 1).reshape(2, 256)
    assert str(found["other"].format) == "q8_0"
    assert np.array_equal(hc.load(path)["w"], wanted)


def test_blocks_without_a_format_here_come_as_values(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "a.gguf"), "none")
    kinds = {"w": gguf.GGMLQuantizationType.IQ2_S, "t": gguf.GGMLQuantizationType.TQ2_0}
    blocks = {
        name: np.random.default_rng(0).integers(0, 60, (2, size), np.uint8) for name, size in (("w", 82), ("t", 66))
    }
    blocks["t"][:, :-2] |= 3  # the code 2, which ggml never writes
    for name, kind in kinds.items():
        writer.add_tensor(name, blocks[name], raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = hc.load(tmp_path / "a.gguf", layout="gguf")
    for name, kind in kinds.items():
        assert np.array_equal(found[name], gguf.quants.dequantize(blocks[name], kind))


def test_ternary_blocks_are_written_and_read(tmp_path: Path) -> None:
    w = weights(4, 512)
    tensors = {"a.weight": w, "b.weight": w, "short.weight": weights(2, 320)}
    chosen = hc.save_gguf(tmp_path / "a.gguf", tensors, types={"a*": "tq1_0", "*": "tq2_0"})
    assert chosen == {"a.weight": "tq1_0", "b.weight": "tq2_0", "short.weight": "q4_0"}
    found = hc.load(tmp_path / "a.gguf", layout="gguf")
    for name, text in chosen.items():
        assert found[name] == hc.quantize(tensors[name], text)
        [tensor] = [one for one in gguf.GGUFReader(tmp_path / "a.gguf").tensors if one.name == name]
        assert tensor.tensor_type.name == text.upper()
        assert np.array_equal(gguf.quants.dequantize(tensor.data, tensor.tensor_type), found[name].dequantize())


def test_rows_without_whole_blocks_take_another_type(tmp_path: Path) -> None:
    tensors = {"a.weight": weights(2, 384), "b.weight": weights(2, 20), "a.bias": weights(2), "c": weights(2, 3, 256)}
    chosen = hc.save_gguf(tmp_path / "model.gguf", tensors)
    assert chosen == {"a.weight": "q5_0", "b.weight": "f16", "a.bias": "f32", "c": "q4_k"}
    ours = hc.open_checkpoint(tmp_path / "model.gguf")
    assert np.array_equal(ours["c"], hc.fake_quantize(tensors["c"], "q4_k"))


def test_quantized_arrays_are_written_as_they_are(tmp_path: Path) -> None:
    q = hc.quantize(weights(3, 256), "q6_k")
    assert hc.save_gguf(tmp_path / "model.gguf", {"w": q}, types={"*": "f32"}) == {"w": "q6_k"}
    assert np.array_equal(hc.load(tmp_path / "model.gguf")["w"], q.dequantize())
    hc.save(tmp_path / "other.gguf", {"w": q}, layout="gguf")
    assert np.array_equal(hc.load(tmp_path / "other.gguf")["w"], q.dequantize())


def test_metadata_is_read_back(tmp_path: Path) -> None:
    keys = {
        "general.architecture": "bert",
        "general.name": "x",
        "bert.block_count": 6,
        "a.b": 1.5,
        "c": True,
        "d": [1, 2],
    }
    hc.save_gguf(tmp_path / "model.gguf", {"w": weights(1, 32)}, keys, {"*": "q8_0"})
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    assert {key: fields[key].contents() for key in keys} == keys


KEY_TYPES = {
    "float": (0.5, "FLOAT32"), "float64": (np.float64(0.1), "FLOAT64"), "float32": (np.float32(0.1), "FLOAT32"),
    "int": (6, "UINT32"), "negative": (-6, "INT32"), "large": (2**32, "INT64"), "largest": (2**32 - 1, "UINT32"),
    "int16": (np.int16(-3), "INT16"), "uint64": (np.uint64(2**63), "UINT64"), "bool": (np.bool_(True), "BOOL"),
    "low": (-(2**31) - 1, "INT64"), "zero": (0.0, "FLOAT32"), "infinite": (float("inf"), "FLOAT32"),
}  # fmt: skip


def test_numbers_have_the_types_that_llama_cpp_looks_for(tmp_path: Path) -> None:
    lists = {
        "floats": ([0.5, 1.5], "FLOAT32"),
        "doubles": ([np.float64(0.1)] * 2, "FLOAT64"),
        "ints": ([1, -2], "INT32"),
    }
    keys = {name: value for name, (value, _) in (KEY_TYPES | lists).items()}
    hc.save_gguf(tmp_path / "model.gguf", {"w": weights(1, 32)}, keys, {"*": "q8_0"})
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    for name, (value, kind) in KEY_TYPES.items():
        assert [one.name for one in fields[name].types] == [kind] and fields[name].contents() == value
    for name, (value, kind) in lists.items():
        assert [one.name for one in fields[name].types] == ["ARRAY", kind] and fields[name].contents() == value
    for wrong in (1e39, [1.0, -1e39], 2**64, [2**31]):
        with bad_argument(ValueError, None, "value", r"save_gguf: 'key' is .*(np\.float64|integers of)"):
            hc.save_gguf(tmp_path / "model.gguf", {"w": weights(1, 32)}, {"key": wrong})
    with bad_argument(TypeError, None, "type", "'key'"):
        hc.save_gguf(tmp_path / "model.gguf", {"w": weights(1, 32)}, {"key": np.complex64(1)})


def test_importance_lowers_the_error_where_it_lies(tmp_path: Path) -> None:
    w, columns = weights(16, 512), np.where(np.arange(512) % 8, 0.01, 1).astype(np.float32)
    errors = []
    for importance in (None, {"w": columns}):
        hc.save_gguf(tmp_path / "model.gguf", {"w": w}, types={"*": "q2_k"}, importance=importance)
        errors.append(float((columns * (hc.load(tmp_path / "model.gguf")["w"] - w) ** 2).sum()))
    assert errors[1] < 0.8 * errors[0]


@pytest.mark.parametrize(
    ("tensors", "more", "words"),
    [
        ({"w": np.float32([[np.nan] * 32])}, {"types": {"*": "q8_0"}}, "tensor 'w': quantize: w has nan at index"),
        ({"x" * 64: weights(1, 32)}, {}, "at most 63 bytes"),
        ({"w": weights(1, 32)}, {"types": {"*": "int4"}}, "int4 has no place in GGUF"),
        ({"w": weights(1, 32)}, {"types": {"*": "q4_x"}}, "not a format"),
        ({"w": weights(1, 256)}, {"importance": {"w": [1.0]}}, "importance of 'w' has shape"),
        ({"w": weights(1, 256)}, {"importance": {"v": [1.0]}}, "'v', which is not a tensor"),
        ({"w": np.ones((1,) * 5)}, {}, "expected at most 4 dimensions"),
        ({"w": np.arange(32, dtype=np.uint64)}, {}, "has dtype uint64"),
        ({"w": np.ones(32, bool)}, {}, "has dtype bool"),
        ({"w": weights(1, 32)}, {"metadata": {"a": {}}}, "'a' is {}, expected a str"),
        ({"w": weights(1, 32)}, {"metadata": {"a": 2**64}}, "integers of 64 bits"),
        ({"w": np.full((1, 3), 1e9, np.float32)}, {"types": {"*": "f16"}}, "beyond float16's largest"),
        ({"w": weights(1, 32)}, {"metadata": {"a": [2**31]}}, "integers of 32 bits"),
        ({"w": weights(1, 32)}, {"metadata": {"general.alignment": 64}}, "general.alignment is 64, expected 32"),
        ({"w": weights(1, 32)}, {"metadata": {"a": ["\udc80"]}}, "'a' is '\\udc80', expected text"),
        ({"\udc80": weights(1, 32)}, {}, "a tensor's name is '\\udc80', expected text"),
        ({3: weights(1, 32)}, {}, "a tensor's name is 3"),
        ({"w": weights(1, 32)}, {"metadata": [1]}, "metadata is [1], expected a mapping"),
        ({"w": weights(1, 32)}, {"types": "q4_k"}, "types is 'q4_k', expected a mapping"),
        ({"w": weights(1, 32)}, {"types": {3: "q4_k"}}, "pattern must be a str"),
        ({"w": weights(1, 256)}, {"importance": {"w": "x"}}, "importance of 'w' is 'x', expected numbers"),
        ({"w": hc.quantize(weights(1, 40), "q8_0")}, {}, "expected rows of blocks of 32"),
        ({"w": hc.quantize(weights(1, 32), "int4")}, {}, "int4 has no place"),
    ],
)  # fmt: skip
def test_what_has_no_place_is_refused_and_nothing_is_left(tmp_path: Path, tensors: Any, more: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        hc.save_gguf(tmp_path / "model.gguf", tensors, **more)
    assert words in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integers_are_written_as_they_are(tmp_path: Path, dtype: Any) -> None:
    positions, path = np.arange(-3, 61, dtype=dtype).reshape(2, 32), tmp_path / "model.gguf"
    chosen = hc.save_gguf(path, {"positions": positions, "w": weights(2, 256)})
    assert chosen == {"positions": f"i{positions.itemsize * 8}", "w": "q4_k"}
    for found in (hc.load(path)["positions"], hc.load(path, layout="gguf")["positions"]):
        assert found.dtype == dtype and found.tolist() == positions.tolist()


def test_a_tensor_of_torch_that_requires_a_gradient_is_refused_by_name(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path, w = tmp_path / "model.gguf", torch.from_numpy(weights(2, 256))
    with bad_argument(TypeError, None, "type", "save_gguf.*'w'.*Parameter"):
        hc.save_gguf(path, {"w": torch.nn.Parameter(w)})
    hc.save_gguf(path, {"w": w.to(torch.bfloat16)}, types={"*": "f32"})
    assert hc.load(path)["w"].tolist() == w.to(torch.bfloat16).float().tolist()


def test_changed_bytes_of_blocks_never_stop_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    hc.save_gguf(
        path, {text: weights(1, 256) for text in ("q2_k", "q4_k", "iq4_xs")}, types={text: text for text in TYPES}
    )
    data, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(100):
        changed = np.frombuffer(data, np.uint8).copy()
        changed[rng.integers(0, len(data), 4)] = rng.integers(0, 256, 4)
        path.write_bytes(changed[: rng.integers(len(data) // 2, len(data) + 1)].tobytes())
        try:
            for array in hc.load(path).values():
                assert isinstance(array, np.ndarray)
        except ValueError as error:
            assert "model.gguf" in str(error)


@pytest.mark.parametrize("kind", ["q4_0", "q8_0", "q4_k", "mxfp4"])
def test_blocks_are_quantized_already(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """llama.cpp refuses to quantize them again, too; `dequantize` converts them."""
    path, out, plain = tmp_path / "m.gguf", tmp_path / "o.safetensors", tmp_path / "p.safetensors"
    w = weights(4, 256)
    hc.save_gguf(path, {"a.weight": w, "w": w}, types={"w": kind, "*": "f16"})
    np.savez(tmp_path / "x.npz", w=np.ones((4, 256), np.float32))
    words = rf"m\.gguf: is already quantized, tensor 'w' to {kind}: dequantize makes a plain file of it"
    for call in (
        lambda: hc.quantize_checkpoint(path, out, "int8"),
        lambda: hc.quantize_checkpoint(path, out, "q4_0", layout="gguf"),
        lambda: hc.study(path, ["int8"]),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with hc.open_checkpoint(path) as opened, pytest.raises(ValueError, match=words):
        hc.ptq.search(opened, ["int8"], {"bits": 9})
    for declared in (
        ["quantize", str(path), str(out), "--format", "int8", "--exclude", "w"],
        ["prune", str(path), str(out), "--pattern", "2:4"],
        ["ptq", str(path), str(out), "--format", "int8", "--inputs", str(tmp_path / "x.npz")],
        ["study", str(path), "--formats", "int8"],
        ["search", str(path), "--budget", "bits=4"],
    ):
        assert main(declared) == 1
        assert "already quantized" in capsys.readouterr().err.splitlines()[-1] and not out.exists()
    assert main(["dequantize", str(path), str(plain)]) == 0
    assert main(["quantize", str(plain), str(out), "--format", "int8"]) == 0


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_floats_of_gguf_are_quantized(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    w = weights(4, 256)
    hc.save_gguf(tmp_path / "m.gguf", {"w": w}, types={"*": kind})
    assert main(["quantize", str(tmp_path / "m.gguf"), str(tmp_path / "o"), "--format", "int8"]) == 0
    assert "again" not in (declared := capsys.readouterr().err) and "already" not in declared
    assert hc.load(tmp_path / "o")["w"] == hc.quantize(hc.load(tmp_path / "m.gguf")["w"], "int8")


@pytest.mark.parametrize("version", [2, 3])
def test_the_other_order_of_bytes_is_said(tmp_path: Path, version: int) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack(">IQQ", version, 0, 0) + bytes(64))
    for call in (hc.load, hc.open_checkpoint, lambda path: hc.load(path, layout="gguf")):
        with bad_argument(ValueError, None, "file", r"m\.gguf.*GGUF.*\(big-endian\)"):
            call(path)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 4, 0, 0) + bytes(64))
    with bad_argument(ValueError, None, "file", "GGUF.*4.*2.*3"):
        hc.load(path)


@pytest.mark.parametrize("name", ["a.gguf", "a.ONNX", "a.pt", "a.npz", "a.npy"])
def test_no_safetensors_file_has_the_name_of_another_kind(name: str, tmp_path: Path) -> None:
    q = hc.quantize(np.ones((2, 32), np.float32), "int4-g32")
    for save in (q.save, lambda path: hc.save(path, {"w.weight": q}), lambda path: hc.save(path, q)):
        with bad_argument(ValueError, None, "file", "what is written is a safetensors file, expected a name without"):
            save(tmp_path / name)
    with bad_argument(ValueError, None, "file", "what is written is a safetensors file"):
        hc.save(tmp_path / name, {"w.weight": q}, layout="compressed-tensors")
    assert not any(tmp_path.iterdir())
