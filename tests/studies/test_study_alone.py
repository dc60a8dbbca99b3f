"""Studies in which each tensor is rounded alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc


def test_each_tensor_alone_says_which_one_hurts():
    net = hc.zoo.digits()
    r = hc.study(net, ["int2", "int8"], per_layer=True, activations=["int8"])
    assert len({(row["name"], row["format"]) for row in r.alone}) == len(r.alone) == 10
    worst = r.alone[0]
    alone = {**net.weights, worst["name"]: hc.quantize(net.weights[worst["name"]], worst["format"], (2, 3, 1))}
    assert worst["accuracy"] == net.evaluate(alone)["accuracy"] == min(row["accuracy"] for row in r.alone)
    assert f"→ {worst['name']} hurts most: int2 in it alone takes accuracy from 0.9950 to" in repr(r)
    assert json.loads(json.dumps(r.to_dict()))["alone"] == r.alone


def test_a_table_and_a_picture_of_layers(tmp_path):
    pytest.importorskip("matplotlib")
    w = {"a<b": np.eye(8, 16, dtype=np.float32), "b": np.ones((8, 16), np.float32)}
    r = hc.study(
        w,
        ["int4", "int2"],
        lambda weights: {"loss": float(np.abs(np.asarray(weights["a<b"]) - w["a<b"]).sum())},
        per_layer=True,
    )
    r.plot_layers(tmp_path / "layers.png")
    r.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "loss with one layer alone in a format" in page and "a&lt;b" in page
    assert (tmp_path / "layers.png").stat().st_size > 1000
    with bad_argument(ValueError, None, "missing", "plot_layers"):
        hc.study(w, ["int4"]).plot_layers()
    with bad_argument(ValueError, "per_layer", "missing"):
        hc.study(w, ["int4"], per_layer=True)


def test_the_sentence_says_which_direction_was_taken():
    w = {"a": np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)}

    def lost(weights):
        return float(np.abs(np.asarray(weights["a"]) - w["a"]).sum())

    r = hc.study(w, ["int2"], lambda weights: {"cosine_distance": lost(weights)}, per_layer=True)
    assert "→ a hurts most: int2 in it alone takes cosine_distance from 0.0000 to" in repr(r)
    r = hc.study(w, ["int2"], lambda weights: {"score": lost(weights)}, per_layer=True)
    assert "→ no layer alone makes score worse: more of it is taken to be better" in repr(r)
