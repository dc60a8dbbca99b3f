"""Files of other kinds, and arrays of other dtypes: read, or refused with a message that says what reads them."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common import assert_refused, bad_argument, same_bits

import heterocompute as hc
from heterocompute.base.magic import KINDS
from heterocompute.cli import main
from heterocompute.files.opening import READERS

pytestmark = pytest.mark.filterwarnings("ignore:.*left out")  # tests/cli/test_nothing_to_do.py tests this warning
BYTES = {
    "model.h5": (b"\x89HDF\r\n\x1a\n" + bytes(64), ["HDF5", "h5py"]),
    "model.tflite": (b"\x1c\0\0\0TFL3" + bytes(64), ["TFLite"]),
    "model.safetensors": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ["Git LFS", "git lfs pull"]),
    "old.bin": (pickle.dumps({"w": [1.0]}, 2), ["a pickle, but not of torch.save"]),
    "index.json": (
        json.dumps({"metadata": {"total_size": 9}, "weight_map": {"w": "model-1.safetensors"}}, indent=2).encode(),
        ["the index of a checkpoint in parts", "its folder"],
    ),
    "other.zip": (b"PK\x03\x04\x14" + bytes(21) + b"\1\0\0\0a", ["a zip archive"]),
    "config.json": (b'\n{"hidden_size": 64}', ["JSON text"]),
    "notes.txt": (b"hello\nworld", ["a text file", "pass the file of the weights"]),
    "long.txt": ("\u00e9".encode() * 400, ["a text file"]),
}


@pytest.mark.parametrize("name", BYTES)
def test_files_of_other_programs(name: str, tmp_path: Path) -> None:
    content, words = BYTES[name]
    path = tmp_path / name
    path.write_bytes(content)
    assert_refused(str(path), "is no safetensors file, it is", *words)
    with bad_argument(ValueError, None, "file", "is no safetensors file, it is"):
        hc.study(path)


def test_the_command_line_says_it_too(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(pickle.dumps({"w": [1.0]}, 2))
    command = [sys.executable, "-m", "heterocompute", "inspect", "model.bin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "model.bin: is no safetensors file, it is a pickle" in line


VALUES = np.arange(-6, 6).reshape(3, 4)


def read(path: Path, array: Any, archive: bool) -> Any:
    if archive:
        np.savez(path, w=array, beside=np.ones(3, np.float32))
        found = hc.load(path)
        assert same_bits(found["beside"], np.ones(3, np.float32))
        return found["w"]
    np.save(path, array)
    return hc.load(path)


@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_dtypes_whose_text_is_their_own_are_read(tmp_path: Path, dtype: Any, archive: bool) -> None:
    path = tmp_path / ("w.npz" if archive else "w.npy")
    array = VALUES.astype(dtype)
    orders = [array, array.T, array[:, ::2], array[:0], array[0, 0]]
    if dtype is ml_dtypes.bfloat16:
        orders.append(array.astype(array.dtype.newbyteorder(">")))
    for one in orders:
        found = read(path, one, archive)
        assert found.dtype == dtype and found.shape == one.shape
        assert np.array_equal(found.astype(np.float32), one.astype(dtype).astype(np.float32))


def test_commands_take_bfloat16(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array = np.linspace(-1, 1, 512).reshape(8, 64).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "w.npy", array)
    out = tmp_path / "out.safetensors"
    assert main(["quantize", str(tmp_path / "w.npy"), str(out), "--format", "int8"]) == 0
    assert hc.load(out)["array"] == hc.quantize(array, "int8")
    with hc.open_checkpoint(tmp_path / "w.npy") as found:
        assert found.info("array").dtype == "bfloat16"
    assert main(["inspect", str(tmp_path / "w.npy")]) == 0
    assert "bfloat16" in capsys.readouterr().out


@pytest.mark.parametrize("array, text", [
    (VALUES.astype(ml_dtypes.float8_e4m3fn), r"of the dtype <V1, raw bytes, such as NumPy makes of float8 \(3, 4\)"),
    (VALUES.astype(ml_dtypes.int4), "of the dtype <V1, raw bytes"),
    (np.zeros(3, "V2"), r"of the dtype \|V2, raw bytes"), (np.zeros(3, "V8"), r"of the dtype \|V8, raw bytes"),
    (np.zeros(2, [("a", "<f4"), ("b", ">f8")]), r"of the dtype \[\('a'"), (np.array(["a"]), "of the dtype <U1"),
    (np.array([{}], object), r"of the dtype \|O"), (np.array(["2020"], "M8[D]"), r"of the dtype <M8\[D\]"),
    (np.ones(2, np.longdouble), "float128|longdouble"),
])  # fmt: skip
def test_other_dtypes_are_an_error_and_never_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], array: Any, text: str
) -> None:
    path, archive = tmp_path / "w.npy", tmp_path / "w.npz"
    np.save(path, array)
    np.savez(archive, w=array)
    for one, name in ((path, "array"), (archive, "w")):
        with pytest.raises(ValueError, match=f"holds nothing that can be read: '{name}' is .*({text})"):
            hc.load(one)
        assert main(["quantize", str(one), str(tmp_path / "out"), "--format", "int8"]) == 1
        assert "1 tensor that cannot be read" in capsys.readouterr().err
    np.savez(archive, w=array, beside=np.ones((2, 32), np.float32))
    assert list(hc.load(archive)) == ["beside"]


def test_every_kind_of_file_has_its_reader_or_an_advice() -> None:
    readable = {kind.name for kind in KINDS if kind.name}
    assert readable == set(READERS) and all(kind.words and kind.how for kind in KINDS)
    assert all(kind.name in readable for kind in KINDS if kind.brief or kind.endings)


@pytest.mark.parametrize("name", ["fc.weight_scale", "fc.scale_weight", "fc.weight.scale"])
def test_scales_of_codes_that_cannot_be_read_are_no_weights(tmp_path: Path, name: str) -> None:
    arrays = {"fc.weight": VALUES.astype(ml_dtypes.float8_e4m3fn), name: np.ones((3, 1), np.float32)}
    np.savez(tmp_path / "w.npz", **arrays)
    with pytest.raises(ValueError, match=f"is already quantized, by .* with '{name}'"):
        hc.quantize_checkpoint(tmp_path / "w.npz", tmp_path / "out", "int8")
    np.savez(tmp_path / "w.npz", **{**arrays, name: np.ones((3, 1), np.float32), "norm.scale": np.ones(3)})
    assert set(hc.load(tmp_path / "w.npz")) == {name, "norm.scale"}


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">f2", ">i4", ">u8", ">c8"])
def test_the_other_order_of_bytes(tmp_path: Path, dtype: str) -> None:
    for one in (VALUES.astype("f4").astype(dtype.replace("u", "i")).astype(dtype), VALUES.T.astype(dtype)):
        for archive in (False, True):
            found = read(tmp_path / ("w.npz" if archive else "w.npy"), one, archive)
            assert found.dtype == np.dtype(dtype).newbyteorder("=") and np.array_equal(found, one)


def test_an_archive_without_arrays_is_empty(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz")
    assert hc.load(tmp_path / "w.npz") == {}
