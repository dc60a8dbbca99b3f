"""`study_training`: curves, departures, and errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import heterocompute as hc

Recipe = hc.training.Recipe


def test_same_seeds_give_equal_bits() -> None:
    net = hc.zoo.digits()
    found = [hc.study_training(net, ["nvfp4", "sr-bf16"], steps=3, seeds=2).to_dict() for _ in range(2)]
    assert found[0] == found[1]
    assert json.loads(json.dumps(found[0])) == found[0]
    assert [row["recipe"] for row in found[0]["table"]] == ["bf16", "nvfp4", "sr-bf16"]


def test_a_recipe_that_loses_gradients_leaves_bf16() -> None:
    lost = Recipe(weights="fp16", activations="fp16", gradients="e3m4", name="no scale")
    found = hc.study_training(hc.zoo.digits(), [lost, "fp8-current"], steps=40, seeds=1)
    departure = found.first_departure["no scale"]
    assert departure is not None
    assert departure["tensor"] == "gradients"
    assert departure["underflow"] > 0.2
    assert found.first_departure["fp8-current"] is None
    assert found.first_departure["bf16"] is None


def test_every_recipe_lowers_the_loss() -> None:
    found = hc.study_training(hc.zoo.digits(), hc.training.recipes(), steps=24, seeds=1)
    assert set(found.curves) == set(hc.training.recipes())
    for curve in found.curves.values():
        assert np.mean(curve[0][-5:]) < 0.8 * curve[0][0]


def test_pages_have_the_curves(tmp_path: Any) -> None:
    found = hc.study_training(hc.zoo.adder(), ["fp32"], steps=3, seeds=1)
    found.to_html(tmp_path / "page.html")
    assert "polyline" in (tmp_path / "page.html").read_text()


def test_bad_arguments_are_named() -> None:
    net = hc.zoo.digits()
    with pytest.raises(TypeError, match="make_model is 3"):
        hc.study_training(3, ["bf16"])
    with pytest.raises(ValueError, match="data is missing"):
        hc.study_training(lambda seed: None, ["bf16"])
    with pytest.raises(ValueError, match="occurs twice"):
        hc.study_training(net, ["fp32", "fp32"])
    with pytest.raises(ValueError, match="recipe: name is 'fp9'"):
        hc.study_training(net, ["fp9"])
    with pytest.raises(ValueError, match="steps is 0"):
        hc.study_training(net, ["fp32"], steps=0)
