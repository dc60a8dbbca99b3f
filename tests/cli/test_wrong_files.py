"""Wrong files: one message that names them, and input files are unchanged."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, reals, run

import heterocompute as hc

COMMANDS = {
    "quantize": ["--format", "int8"],
    "prune": ["--pattern", "2:4"],
    "dequantize": [],
    "ptq": ["--format", "int8", "--inputs", "x.npz"],
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("model")
    hc.save("model/model.safetensors", {"w": reals((8, 32), 1)})
    os.mkdir("parts")
    for name in "ab":
        hc.save(f"parts/{name}.safetensors", {name: reals((8, 32), 1)})
    index = {"weight_map": {name: f"{name}.safetensors" for name in "ab"}}
    Path("parts/model.safetensors.index.json").write_text(json.dumps(index))
    hc.save("s.safetensors", {"w": reals((8, 32), 1)})
    np.savez("x.npz", w=reals((9, 32), 2))
    Path("empty").touch()


def everything() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_of_the_input_is_no_output(command: str, capsys: Any) -> None:
    os.symlink("parts", "linked")
    before = everything()
    for given, out in (("model", "model/model.safetensors"), ("parts", "parts/b.safetensors"),
                       ("parts", "parts/model.safetensors.index.json"), ("linked", "parts/a.safetensors"),
                       ("parts/model.safetensors.index.json", "linked/a.safetensors")):  # fmt: skip
        code, _, err = run(capsys, command, given, out, *COMMANDS[command])
        assert code in (1, 2) and out in err and "replace" in err, err
    assert everything() == before


def test_python_refuses_it_too() -> None:
    before = everything()
    for layout in (None, "compressed-tensors", "gguf"):
        with bad_argument(ValueError, None, "file", "b.safetensors: is a file of the input, .* would be replaced"):
            hc.quantize_checkpoint("parts", "parts/b.safetensors", "int8", layout=layout)
    assert everything() == before


def test_a_report_replaces_no_weights(capsys: Any) -> None:
    before = everything()
    for option in ("--csv", "--html"):
        code, _, err = run(capsys, "study", "parts", "--formats", "int8", option, "parts/a.safetensors")
        assert code == 2 and f"{option} is a file of MODEL, which it would replace: parts/a.safetensors" in err
    assert everything() == before


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_is_no_path(path: str, capsys: Any) -> None:
    for command, options in COMMANDS.items():
        for words, arguments in (("IN is", [path, "out.safetensors"]), ("OUT is", ["s.safetensors", path])):
            code, _, err = run(capsys, command, *arguments, *options)
            assert code == 2 and f"{words} {path!r}, expected the path of a file" in err, err
    code, _, err = run(capsys, "study", "s.safetensors", "--formats", "int8", "--csv", path)
    assert code == 2 and f"--csv is {path!r}, expected" in err
    code, _, err = run(capsys, "quantize", "s.safetensors", "out.safetensors", "--recipe", path)
    assert code == 2 and f"--recipe is {path!r}, expected" in err


def test_sentences(capsys: Any) -> None:
    ptq = ("ptq", "s.safetensors", "o.safetensors", "--format", "int4", "--inputs")
    Path("recipe.toml").write_text('[formats]\nwieght = "int8"\n')
    Path("ptq").touch()
    for words, arguments in (
        ("empty: is an empty file", ("inspect", "empty")),
        ("empty: is an empty file", (*ptq, "empty")),
        ("ptq: --inputs math:pi: pi is 3.14", (*ptq, "math:pi")),
        ("ptq: s.safetensors: unknown tensor 'wieght'", (*ptq, "x.npz", "--recipe", "recipe.toml")),
        ("ptq: s.safetensors: unknown tensor 'v'", (*ptq, "x.npz", "--include", "v")),
        ("heterocompute search: budget of bits is -1.0", ("search", "s.safetensors", "--budget", "bits=-1")),
        ("heterocompute ptq: ptq: is an empty file", ("ptq", "ptq", *ptq[2:], "x.npz")),
    ):
        code, _, err = run(capsys, *arguments)
        assert code == 1 and words in err and len(err.splitlines()) <= 2, err
    assert not Path("o.safetensors").exists()
