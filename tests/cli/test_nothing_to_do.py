"""A command without work reports it, exits with 1 and writes nothing; a function copies, for parts of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.cli import main
from heterocompute.files.checkpoint import dequantize_checkpoint, prune_checkpoint, quantize_checkpoint

VECTOR = {"norm.bias": np.ones(64, np.float32)}
FILES = {
    "vectors.safetensors": VECTOR | {"ids": np.ones((4, 4), np.int64)},
    "empty.safetensors": {},
    "vectors.npz": VECTOR,
}
COMMANDS = (
    ["quantize", "IN", "OUT", "--format", "int8"],
    ["quantize", "IN", "OUT", "--format", "int8", "--fake"],
    ["quantize", "IN", "OUT", "--format", "int4-g32-f16", "--layout", "gptq"],
    ["prune", "IN", "OUT", "--pattern", "2:4"],
    ["dequantize", "IN", "OUT"],
    ["ptq", "IN", "OUT", "--format", "int8", "--inputs", "X"],
    ["study", "IN", "--formats", "int8"],
    ["search", "IN", "--budget", "bits=4"],
)


def written(path: Path, arrays: dict[str, Any]) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        hc.save(path, arrays)
    return path


@pytest.mark.parametrize("name", FILES)
def test_commands_without_a_tensor_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    path, out = written(tmp_path / name, FILES[name]), tmp_path / "out.safetensors"
    np.savez(tmp_path / "x.npz", **{"norm.bias": np.ones((4, 64), np.float32)})
    places = {"IN": str(path), "OUT": str(out), "X": str(tmp_path / "x.npz")}
    for words in COMMANDS:
        if name.endswith(".npz") and words[0] == "dequantize":
            continue  # this converts to safetensors
        for more in ([], ["--json"]):
            assert main([places.get(word, word) for word in words] + more) == 1
            shown = capsys.readouterr()
            line = shown.err.splitlines()[-1]
            assert shown.out == "" and line.startswith(f"heterocompute {words[0]}: ")
            assert "nothing to do: there" in line or "no float tensor" in line
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([name, "x.npz"])


def test_dequantize_of_another_kind_is_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a.npz", VECTOR)
    assert main(["dequantize", str(path), str(tmp_path / "out.safetensors")]) == 0
    assert np.array_equal(hc.load(tmp_path / "out.safetensors")["norm.bias"], VECTOR["norm.bias"])


def test_what_a_recipe_leaves_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recipe may leave all selected tensors unchanged; tensors without values stay unchanged, too."""
    path, recipe = tmp_path / "in.safetensors", tmp_path / "r.toml"
    hc.save(path, {"a.weight": np.ones((2, 32), np.float32), "hollow": np.ones((4, 0), np.float32)})
    recipe.write_text('[formats]\n"*" = "skip"\n')
    assert main(["quantize", str(path), str(tmp_path / "o"), "--recipe", str(recipe)]) == 0
    assert "2 copied" in capsys.readouterr().out


def test_functions_copy_unless_they_are_told(tmp_path: Path) -> None:
    path, out = written(tmp_path / "in.safetensors", VECTOR), tmp_path / "out"
    for call in (
        lambda **more: quantize_checkpoint(path, out, "int8", **more),
        lambda **more: prune_checkpoint(path, out, "2:4", **more),
        lambda **more: dequantize_checkpoint(path, out, **more),
    ):
        assert [row["format"] for row in call()["tensors"]] == [None]
        out.unlink()
        with bad_argument(ValueError, None, "file", r"in\.safetensors.*1"):
            call(needed=True)
        assert not out.exists()


def test_a_file_without_anything_readable_is_an_error_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "w.npy"
    np.save(path, np.ones((2, 2), np.complex128))
    with bad_argument(ValueError, None, "file", r"w\.npy.*'array'.*complex128"):
        hc.load(path)
    with bad_argument(ValueError, None, "file", r"w\.npy.*0.*1"):
        quantize_checkpoint(path, tmp_path / "out", "int8")
    words = r"there are 0 tensors and 1 tensor that cannot be read \('array' is complex128 \(2, 2\)\), none is packed"
    with pytest.raises(ValueError, match=words):
        dequantize_checkpoint(path, tmp_path / "out", needed=True)
    with hc.open_checkpoint(path) as found:
        assert len(found) == 0 and found.skipped == {"array": "complex128 (2, 2)"}


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    path, w = tmp_path / "w.npz", np.ones((2, 2), np.float32)
    np.savez(path, a=w.astype(np.complex128), b=w, c=w.astype(np.complex128))
    with pytest.warns(UserWarning, match=r"w\.npz: 'a' is complex128 \(2, 2\): left out, and 1 tensor more") as told:
        assert list(hc.load(path)) == ["b"]
    assert told[0].filename == __file__
