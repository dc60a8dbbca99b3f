"""Studies of several rounding methods: each row equals rounding by hand with the method."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import FORMATS, bad_argument, run

import heterocompute as hc
from heterocompute.ptq.methods import by_method, takes

RANDOM = np.random.default_rng(7)
X = RANDOM.standard_normal((300, 48)) @ RANDOM.standard_normal((48, 48))
WEIGHTS = {
    "a": RANDOM.standard_normal((12, 48)).astype(np.float32),
    "b": RANDOM.standard_normal((6, 48)).astype(np.float32),
    "bias": np.ones(6, np.float32),
}
METHODS = ["rtn", "search", "gptq"]


def multiply(weights: dict[str, Any]) -> None:
    for name in ("a", "b"):
        X @ weights[name].T


HESSIANS = hc.ptq.calibrate(WEIGHTS, multiply)


def by_hand(name: str, fmt: str, method: str | None) -> hc.QuantizedArray:
    w = WEIGHTS[name]
    if method == "gptq":
        return hc.ptq.gptq(w, HESSIANS[name], fmt)
    return hc.quantize(w, fmt, clip="search" if method == "search" else None)


def test_each_format_is_rounded_by_each_method() -> None:
    judged = []

    def evaluate(weights: dict[str, Any]) -> float:
        judged.append({name: weights[name] for name in ("a", "b")})
        return 1.0

    mix = {"a": "int4-g16", "*": "int3-g16"}
    r = hc.study(WEIGHTS, ["int3-g16", mix, "cb3"], evaluate, methods=METHODS, hessians=HESSIANS)
    text = "a=int4-g16 *=int3-g16"
    assert [(row["format"], row["method"]) for row in r.table] == [
        ("fp32", None), *[(fmt, method) for fmt in ("int3-g16", text) for method in METHODS],
        ("cb3", "rtn"), ("cb3", "gptq"),  # has no scales to search
    ]  # fmt: skip
    for row, found in zip(r.table[1:], judged[1:], strict=True):
        formats = mix if "=" in row["format"] else {"*": row["format"]}
        packed = {name: by_hand(name, formats.get(name, formats["*"]), row["method"]) for name in ("a", "b")}
        assert found == packed
        lost = [hc.ptq.error(WEIGHTS[name], q, HESSIANS[name]).relative for name, q in packed.items()]
        assert row["output_db"] == pytest.approx(-10 * math.log10(sum(lost) / 2), abs=1e-9)
    assert r.table[0]["output_db"] is None
    layer = next(row for row in r.layers if (row["name"], row["format"], row["method"]) == ("a", "int3-g16", "gptq"))
    error = hc.ptq.error(WEIGHTS["a"], by_hand("a", "int3-g16", "gptq"), HESSIANS["a"])
    assert layer["output_db"] == pytest.approx(error.output_db, abs=1e-9)
    text = repr(r)
    assert "mix 1: a=int4-g16 *=int3-g16" in text and "int3-g16 / gptq" in text and "output dB" in text
    r = hc.study(WEIGHTS, ["int3-g16"], methods="gptq", hessians=HESSIANS)
    assert r.pareto() == r.table[::-1]  # by output_db


def test_files_and_pictures_name_the_method(tmp_path: Path) -> None:
    r = hc.study(WEIGHTS, ["int3-g16", {"a": "int8", "*": "int4"}], methods=METHODS, hessians=HESSIANS)
    assert [row["method"] for row in r.to_dict()["rows"]] == [None, *METHODS, *METHODS]
    r.to_csv(tmp_path / "r.csv")
    assert (tmp_path / "r.csv").read_text().splitlines()[3].startswith("int3-g16,search,")
    r.to_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert (
        "int3-g16 / gptq" in page and "mix 1: a=int8 *=int4" in page and '<th scope="col" class="text">method' in page
    )
    svg = tmp_path / "r.svg"
    r.plot(svg)
    assert svg.read_text().startswith("<?xml")
    plain = hc.study(WEIGHTS, ["int3-g16"])
    assert plain.table[1]["method"] is None and "output_db" not in plain.table[1] and "method" not in repr(plain)


def test_what_is_refused() -> None:
    for more, error, words in (
        ({"methods": ["gptq"]}, ValueError, "which needs hessians="),
        ({"methods": ["gptq"], "hessians": {"a": HESSIANS["a"]}}, ValueError, "hessians has none of tensor 'b'"),
        ({"methods": ["gptq"], "hessians": 3}, TypeError, "hessians is 3, expected a mapping"),
        ({"methods": ["awq"]}, ValueError, "methods has 'awq', expected some of rtn, search, gptq"),
        ({"methods": []}, ValueError, "methods is empty"),
        ({"methods": 3}, TypeError, "methods is 3"),
        ({"methods": ["search"], "formats": ["bf16"]}, ValueError, "'search' rounds to none of these formats"),
    ):
        with pytest.raises(error, match=words):
            hc.study(WEIGHTS, **{"formats": ["int4"], **more})


@pytest.mark.parametrize("text", [*FORMATS, *(f"{text}+2:4" for text in ("int4", "fp16-row", "cb3", "bf16", "log4-1"))])
@pytest.mark.sweep(every=3)
def test_a_method_takes_the_formats_that_it_rounds_to(text: str) -> None:
    """The form of a format predicts whether a method supports it, without rounding."""
    fmt, w = hc.format(text), np.ones((1, 256), np.float32)
    for method in METHODS:
        try:
            by_method(w, fmt, -1, method, np.eye(256))
        except ValueError:
            assert not takes(method, fmt)
        else:
            assert takes(method, fmt)


def test_a_checkpoint_is_studied_like_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.safetensors"
    hc.save(path, {**WEIGHTS, "packed": hc.quantize(WEIGHTS["a"], "int8"), "ids": np.arange(8).reshape(2, 4)})
    of_file = hc.study(path, ["int4-g16"])
    with hc.open_checkpoint(path) as weights:
        read: list[str] = []
        monkeypatch.setattr(hc.Checkpoint, "__getitem__", lambda self, name: read.append(name) or self._reads[name]())
        of_checkpoint = hc.study(weights, ["int4-g16"])
        with bad_argument(ValueError, None, "value", "'ids'.*int64"):
            hc.study(weights, ["int4"], include="ids")
    assert set(read) == {"a", "b"}  # tensors that are not studied are not read
    for one in (of_file, of_checkpoint):
        assert [row["sqnr_db"] for row in one.table] == [row["sqnr_db"] for row in of_file.table]
        assert {row["name"] for row in one.layers} == {"a", "b"}


def test_the_command_calibrates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    hc.save("m.safetensors", WEIGHTS)
    np.savez("x.npz", a=X.astype(np.float32), b=X.astype(np.float32))
    command = ("study", "m.safetensors", "--formats", "int4-g16", "--methods", "rtn,gptq")
    code, out, err = run(capsys, *command, "--inputs", "x.npz", "--json")
    assert code == 0, err
    rows = json.loads(out)["rows"]
    assert rows[2]["method"] == "gptq" and rows[2]["output_db"] > rows[1]["output_db"] + 2
    code, _, err = run(capsys, *command)
    assert code == 2 and "--methods gptq needs --inputs" in err
    code, _, err = run(capsys, *command[:-1], "rtn,best")
    assert code == 2 and "'best', expected some of rtn,search,gptq" in err
    own = ("study", "--include", "fc2.weight", "--formats", "int2-g16", "--activations", "none", "--json")
    code, out, err = run(capsys, *own, "--methods", "gptq")
    assert code == 0 and [row["method"] for row in json.loads(out)["rows"]] == [None, "gptq"], err
