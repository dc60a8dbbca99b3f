"""One part of a split GGUF represents the model: all parts next to it are read, and a missing one is named."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from common import bad_argument, same_bits

import heterocompute as hc
from heterocompute.files.checkpoint import dequantize_checkpoint, inspect as hc_inspect

gguf = pytest.importorskip("gguf")
W = np.random.default_rng(5).standard_normal((8, 256)).astype(np.float32)
ARRAYS = {"a.weight": W, "b.weight": W * 2, "c.bias": W[0], "d.weight": W - 1, "e.n": np.arange(4, dtype=np.int32)}


def split(folder, arrays=ARRAYS, most=2, small_first=False, name="m.gguf"):
    """Write a model split by the package gguf."""
    writer = gguf.GGUFWriter(folder / name, "llama", split_max_tensors=most, small_first_shard=small_first)
    writer.add_name("tiny")
    for key, array in arrays.items():
        if isinstance(array, tuple):
            writer.add_tensor(key, array[1], raw_dtype=array[0])
        else:
            writer.add_tensor(key, array)
    writer.write_header_to_file(folder / name)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("*.gguf"))


@pytest.mark.parametrize("small_first", [False, True])
def test_any_part_is_the_whole_model(tmp_path, small_first):
    parts = split(tmp_path, small_first=small_first)
    assert len(parts) == 3 + small_first and parts[0].name == f"m-00001-of-0000{len(parts)}.gguf"
    for part in parts:
        with hc.open_checkpoint(part) as found:
            assert list(found) == list(ARRAYS) and found.metadata["general.name"] == "tiny"
            assert not any(key.startswith("split.") for key in found.metadata)
            assert all(same_bits(found[name], array) for name, array in ARRAYS.items())
        assert hc.load(part, layout="gguf").keys() == ARRAYS.keys()
        assert [row["name"] for row in hc_inspect(part)] == list(ARRAYS)
    chosen = hc.quantize_checkpoint(parts[1], tmp_path / "out.safetensors", "int8")
    assert [row["format"] for row in chosen["tensors"]] == ["int8", "int8", None, "int8", None]
    assert hc.load(tmp_path / "out.safetensors")["d.weight"] == hc.quantize(W - 1, "int8")
    (tmp_path / "one").mkdir()
    again = split(tmp_path / "one", {"x": W}, most=5)
    assert hc.load(again[-1]).keys() == {"x"}


def test_blocks_and_scales_in_several_parts(tmp_path):
    q = hc.quantize(W, "nvfp4")
    hc.save(tmp_path / "whole", {"fc.weight": q, "up.weight": hc.quantize(W, "q4_k")}, layout="gguf")
    whole, plain = hc.load(tmp_path / "whole", layout="gguf"), hc.load(tmp_path / "whole")
    kinds = gguf.GGMLQuantizationType
    data = {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(tmp_path / "whole").tensors}
    arrays = {
        "fc.weight": (kinds.NVFP4, data["fc.weight"]),
        "up.weight": (kinds.Q4_K, data["up.weight"]),
        "fc.scale": data["fc.scale"],
    }
    for part in split(tmp_path, arrays, most=1):
        found = hc.load(part, layout="gguf")
        assert found.keys() == {"fc.weight", "up.weight"} and all(found[name] == one for name, one in whole.items())
        values = hc.load(part)
        assert values.keys() == {"fc.weight", "up.weight"} and same_bits(values["fc.weight"], plain["fc.weight"])
        assert {row["name"]: row["format"] for row in hc_inspect(part)} == {"fc.weight": "nvfp4", "up.weight": "q4_k"}
    summary = dequantize_checkpoint(part, tmp_path / "plain.safetensors")
    stored = {row["name"]: row["bytes"] for row in hc_inspect(part)}
    assert {row["name"]: row["bytes_before"] for row in summary["tensors"]} == stored  # not of the values
    assert summary["bytes_before"] == sum(stored.values()) < summary["bytes"]
    assert same_bits(hc.load(tmp_path / "plain.safetensors")["fc.weight"], plain["fc.weight"])


def test_parts_that_are_missing_or_others(tmp_path):
    parts = split(tmp_path)

    def refused(path, words):
        with pytest.raises(ValueError, match=words) as caught:
            hc.open_checkpoint(path)
        assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)

    shutil.copy(parts[0], tmp_path / "renamed.gguf")
    refused(tmp_path / "renamed.gguf", "is part 1 of 3 of a model, expected the name NAME-00001-of-00003.gguf")
    shutil.copy(parts[0], tmp_path / "m-00002-of-00009.gguf")
    refused(tmp_path / "m-00002-of-00009.gguf", "is part 1 of 3 of a model, expected the name")
    second = parts[1].read_bytes()
    parts[1].unlink()
    for path in (parts[0], parts[2]):
        refused(path, r"of which 'm-00002-of-00003\.gguf' is missing")
    (tmp_path / "elsewhere").write_bytes(second)
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (parts[0], parts[2]):
        shutil.copy(path, folder / path.name)
    (folder / parts[1].name).symlink_to(tmp_path / "elsewhere")
    refused(folder / parts[0].name, "is missing")  # a link to a file outside of the folder
    shutil.copy(parts[0], parts[1])
    refused(parts[2], "'m-00002-of-00003.gguf' is no part of the same model")
    parts[1].write_bytes(second[:-40])
    with bad_argument(ValueError, None, "file", r"m-00002-of-00003\.gguf"):
        hc.open_checkpoint(parts[0])
    parts[1].write_bytes(second.replace(b"c.bias", b"a.bias").replace(b"d.weight", b"a.weight"))
    refused(parts[0], "two tensors are called 'a.weight'")
    for wrong in (4, 6, 2**31 - 1):
        for path, data in zip(parts, (parts[0].read_bytes(), second, parts[2].read_bytes()), strict=True):
            key = b"split.tensors.count" + (5).to_bytes(4, "little")
            at = data.index(key) + len(key)
            (folder / path.name).unlink(missing_ok=True)
            (folder / path.name).write_bytes(data[:at] + wrong.to_bytes(4, "little") + data[at + 4 :])
        refused(folder / parts[0].name, f"its 3 parts have 5 tensors, split.tensors.count says {wrong}")
    lost = parts[0].read_bytes().replace(b"split.no", b"split.na")
    (folder / parts[0].name).write_bytes(lost)
    refused(folder / parts[0].name, "without the keys split.no, split.count, split.tensors.count")


def test_a_part_is_no_place_to_write_to(tmp_path):
    parts = split(tmp_path)
    before = parts[1].read_bytes()
    with bad_argument(ValueError, None, "file", "is a file of the input"):
        hc.quantize_checkpoint(parts[0], parts[1], "q8_0", layout="gguf")
    assert parts[1].read_bytes() == before


@pytest.mark.parametrize(
    ("number", "words"), [(153, "iq2_kt of ik_llama.cpp"), (137, "iq2_k of ik"), (200, "200, which")]
)
def test_types_of_another_program_are_named(number: int, words: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    hc.save_gguf(tmp_path / "a.gguf", {"w": np.ones((2, 256), np.float32)}, {}, {"*": "q4_0"})
    stored = bytearray((tmp_path / "a.gguf").read_bytes())
    at = stored.find(struct.pack("<Q", 1) + b"w" + struct.pack("<I", 2)) + 29  # after the name and two dimensions
    assert struct.unpack_from("<I", stored, at) == (2,)
    struct.pack_into("<I", stored, at, number)
    (tmp_path / "b.gguf").write_bytes(stored)
    with pytest.raises(ValueError, match=f"tensor 'w' is of the type {words}"):
        hc.load(tmp_path / "b.gguf")
