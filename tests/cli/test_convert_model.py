"""`heterocompute convert-model`: the smallest recipe of a ladder that is good enough, for a checkpoint."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import run

import heterocompute as hc

MODULE = """
import heterocompute as hc
net = hc.zoo.digits()
score = net.accuracy
def run(weights):
    return net.forward(weights, net.train_x[:16])
"""
CALL = ("convert-model", "model.safetensors", "out.safetensors", "--evaluate", "gate_of_a_test:score")


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("gate_of_a_test.py").write_text(MODULE)
    hc.save("model.safetensors", hc.zoo.digits().weights)
    yield
    sys.modules.pop("gate_of_a_test", None)


def test_the_file_has_the_weights_of_accept(capsys: Any) -> None:
    ladder = "int2-g16/gptq,int3-g16/search,int8"
    options = ("--ladder", ladder, "--at-least", "0.98", "--inputs", "gate_of_a_test:run", "--method", "rtn")
    code, out, err = run(capsys, *CALL, *options, "--mix", "--json", "--html", "gate.html")
    assert code == 0, err
    net = hc.zoo.digits()
    wanted, gate = hc.ptq.accept(
        net.weights, [("int2-g16", "gptq"), ("int3-g16", "search"), "int8"], net.accuracy, 0.98,
        lambda weights: net.forward(weights, net.train_x[:16]), "rtn", mix=True,
    )  # fmt: skip
    found = json.loads(out)
    assert found["recipe"] == gate.recipe and found["layers"] == gate.layers and found["score"] == gate.score
    assert all(row["ms"] > 0 for row in found["recipes"] if row["score"] is not None)
    for name, one in hc.load("out.safetensors").items():
        other = wanted[name]
        assert one == other if isinstance(other, hc.QuantizedArray) else np.array_equal(one, other)
    assert "<svg" in Path("gate.html").read_text()


def test_nothing_is_written_if_no_recipe_passes(capsys: Any) -> None:
    code, out, err = run(capsys, *CALL, "--ladder", "int2-g16,int8", "--at-least", "1.5")
    assert code == 1 and "no recipe reaches 1.5: the float weights remain" in err and "int2-g16" in out
    assert not Path("out.safetensors").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--ladder", "int8"), "--at-least is needed"),
        (("--at-least", "1"), "--ladder is needed"),
        (("--ladder", "int8,,int4", "--at-least", "1"), "has an empty step"),
        (("--ladder", "int99", "--at-least", "1"), "int99"),
        (("--ladder", "int8/best", "--at-least", "1"), "accept: the ladder has the method 'best'"),
        (("--ladder", "int8/gptq", "--at-least", "1"), "accept: inputs is None"),
    ],
)
def test_bad_input_is_one_sentence(capsys: Any, options: tuple[str, ...], sentence: str) -> None:
    code, out, err = run(capsys, *CALL, *options)
    assert code == (1 if "accept" in sentence else 2) and out == "" and sentence in err
