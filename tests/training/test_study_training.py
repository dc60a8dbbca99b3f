"""`study_training`: curves, departures, and errors."""

from __future__ import annotations

import json
from pathlib import Path
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


@pytest.mark.sweep(every=0)
def test_a_recipe_that_loses_gradients_leaves_bf16() -> None:
    lost = Recipe(weights="fp16", activations="fp16", gradients="e3m4", name="no scale")
    found = hc.study_training(hc.zoo.digits(), [lost, "fp8-current"], steps=40, seeds=1)
    departure = found.first_departure["no scale"]
    assert departure is not None
    assert departure["tensor"] == "gradients"
    assert departure["underflow"] > 0.2
    assert found.first_departure["fp8-current"] is None
    assert found.first_departure["bf16"] is None


@pytest.mark.sweep(every=0)
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


@pytest.mark.sweep(every=0)
def test_an_interrupted_training_continues(tmp_path: Path) -> None:
    net, keep = hc.zoo.digits(), tmp_path / "training.jsonl"
    recipes: list[Any] = ["fp8-current", Recipe(weights="fp16", activations="fp16", gradients="e3m4", name="no scale")]
    whole = hc.study_training(net, recipes, steps=5, seeds=2)

    def stop(done: int, total: int, text: str) -> None:
        told.append((done, total, text))
        if done == 3:
            raise KeyboardInterrupt

    told: list[tuple[int, int, str]] = []
    with pytest.raises(KeyboardInterrupt):
        hc.study_training(net, recipes, steps=5, seeds=2, progress=stop, keep=keep)
    assert told[-1] == (3, 6, "fp8-current, seed 1") and len(keep.read_bytes().splitlines()) == 1 + 3
    found = hc.study_training(net, recipes, steps=5, seeds=2, keep=keep)
    assert found.to_dict() == whole.to_dict() and len(keep.read_bytes().splitlines()) == 1 + 6
    assert (
        hc.study_training(net, ["fp8-current"], steps=5, seeds=1, keep=keep).curves["bf16"] == whole.curves["bf16"][:1]
    )
    assert len(keep.read_bytes().splitlines()) == 1 + 6
    other = hc.study_training(net, [], steps=4, seeds=1, keep=keep)
    assert "none of these weights" in other.notes[0] and "none of these weights" in repr(other)


def test_a_saved_training_is_the_same(tmp_path: Path) -> None:
    found = hc.study_training(hc.zoo.digits(), ["fp8-current"], steps=3, seeds=2)
    found.curves["fp8-current"][0][1:] = [np.nan, np.nan]
    found.save(tmp_path / "t.json")
    found.to_html(tmp_path / "t.html")
    for name in ("t.json", "t.html"):
        loaded = hc.TrainingStudy.load(tmp_path / name)
        assert loaded.to_dict() == found.to_dict() and repr(loaded) == repr(found)
        assert loaded._repr_html_() == found._repr_html_()
    with pytest.raises(ValueError, match="holds a 'training study', expected a study"):
        hc.Study.load(tmp_path / "t.json")
    held = json.loads((tmp_path / "t.json").read_text())
    for change in (
        {"curves": {}},
        {"table": [{"recipe": 3}]},
        {"first_departure": [1]},
        {"curves": {"bf16": [[1], [1, 2]]}},
    ):
        (tmp_path / "bad.json").write_text(json.dumps({**held, **change}))
        with pytest.raises(ValueError, match="not a saved training study"):
            hc.TrainingStudy.load(tmp_path / "bad.json")
