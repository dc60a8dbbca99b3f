"""`heterocompute ptq`: rounds a checkpoint with smaller output errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import reals, run

import heterocompute as hc


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 32)) @ rng.standard_normal((32, 32))
    hc.save(
        "model.safetensors", {"a.weight": reals((8, 32), 1), "b.weight": reals((4, 32), 2), "a.bias": reals((8,), 3)}
    )
    np.savez("x.npz", **{"a.weight": x})
    (tmp_path / "ptq_network_of_a_test.py").write_text(
        "import numpy as np\ndef run(weights):\n    np.load('x.npz')['a.weight'] @ weights['a.weight'].T\n"
    )
    return tmp_path


@pytest.mark.parametrize("calibration", ["x.npz", "ptq_network_of_a_test:run"])
def test_a_checkpoint_is_rounded_under_its_inputs(files: Path, calibration: str, capsys: Any) -> None:
    command = ("ptq", "model.safetensors", "out.safetensors", "--format", "int4-g16", "--inputs", calibration)
    code, out, err = run(capsys, *command, "--json")
    assert code == 0, err
    report = json.loads(out)
    (row,) = report["tensors"]
    assert row["name"] == "a.weight" and row["after"] > row["before"] + 2 and report["left"] == ["b.weight"]
    weights, found = hc.load("model.safetensors"), hc.load("out.safetensors")
    h = hc.ptq.Hessian(32)
    x = np.load("x.npz")["a.weight"]
    h.add(x.astype(np.float32) if calibration == "x.npz" else x)
    assert found["a.weight"] == hc.ptq.gptq(weights["a.weight"], h, "int4-g16")
    assert (found["b.weight"] == weights["b.weight"]).all() and (found["a.bias"] == weights["a.bias"]).all()
    code, out, err = run(capsys, *command, "--html", "p.html", "--csv", "t.csv", "--overwrite")
    page = Path("p.html").read_text(encoding="utf-8")
    assert "a.weight" in page and 'class="dot"' in page and "stay as they are: b.weight" in page and "<script>" in page
    assert f">{row['after']:.2f}</td>" in page and Path("t.csv").read_text().startswith("name,format,tokens,damping")
    assert "ptq model.safetensors: 100%" in err
    assert code == 0 and "a.weight" in out and "nothing was multiplied with them: b.weight" in out


@pytest.mark.parametrize("method", ["gptq", "qronos"])
def test_shrinkage_of_the_command_is_that_of_the_method(files: Path, method: str, capsys: Any) -> None:
    command = (
        "ptq",
        "model.safetensors",
        "out.safetensors",
        "--format",
        "int4-g16",
        "--inputs",
        "ptq_network_of_a_test:run",
    )
    assert run(capsys, *command, "--method", method, "--shrinkage", "0.3")[0] == 0
    weights, found = hc.load("model.safetensors"), hc.load("out.safetensors")
    h, x = hc.ptq.Hessian(32), np.load("x.npz")["a.weight"]
    h.add(x, x) if method == "qronos" else h.add(x)
    rounding = getattr(hc.ptq, method)
    assert found["a.weight"] == rounding(weights["a.weight"], h, "int4-g16", shrinkage=0.3)
    assert found["a.weight"] != rounding(weights["a.weight"], h, "int4-g16")
    code, _, error = run(capsys, *command, "--overwrite", "--method", "search", "--shrinkage", "0.3")
    assert code != 0 and "expected gptq or qronos, with options such as shrinkage" in error


def test_what_the_command_refuses(files: Path, capsys: Any) -> None:
    np.savez("other.npz", nothing=np.ones((2, 3)))
    for name, x in {"long": np.ones((2, 31)), "nan": np.full((2, 32), np.nan), "none": np.ones((0, 32)),
                    "complex": np.ones((2, 32), np.complex64), "text": np.full((2, 32), "a")}.items():  # fmt: skip
        np.savez(f"{name}.npz", **{"a.weight": x})
    np.savez("empty.npz")
    whole = Path("x.npz").read_bytes()
    Path("cut.npz").write_bytes(whole[:-30])
    Path("changed.npz").write_bytes(whole[:300] + bytes([whole[300] ^ 1]) + whole[301:])
    begin = ("ptq", "model.safetensors", "out.safetensors")
    for name, words in {"long": "(2, 31)", "nan": "'a.weight': Hessian: x has nan", "none": "(0, 32)",
                        "complex": "complex64", "text": "expected floats", "empty": "holds nothing",
                        "cut": "cut off", "changed": "was changed"}.items():  # fmt: skip
        found, _, err = run(capsys, *begin, "--format", "int4", "--inputs", f"{name}.npz")
        assert (found, words in err) == (1, True), err
    found, _, err = run(capsys, *begin[:2], "x.npz", "--format", "int4", "--inputs", "x.npz")
    assert (found, "OUT and --inputs are the same file" in err, Path("x.npz").read_bytes()) == (2, True, whole), err
    for more, code, words in (
        (("--inputs", "x.npz"), 2, "--format or --recipe is needed"),
        (("--format", "int4"), 2, "--inputs is needed"),
        (("--format", "int4", "--inputs", "absent.npz"), 1, "absent.npz"),
        (("--format", "int4", "--inputs", "model.safetensors"), 1, "is not an .npz file"),
        (("--format", "int4", "--inputs", "other.npz"), 1, "other.npz: has 'nothing', which is not a tensor"),
        (("--format", "int4", "--inputs", "no_such_module:run"), 1, "no_such_module"),
    ):
        found, _, err = run(capsys, *begin, *more)
        assert (found, words in err) == (code, True), err
    assert not Path("out.safetensors").exists()
