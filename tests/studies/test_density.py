"""A study of densities equals pruning, training and evaluating by hand, and marks the lowest sufficient density."""

from __future__ import annotations

import csv
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.cli import command as cli
from heterocompute.files.safetensors import save
from heterocompute.studies.density import PATTERNS

RANDOM = np.random.default_rng(4)
WEIGHTS = {
    "conv": RANDOM.standard_normal((8, 16, 3, 3)).astype(np.float32),
    "fc": RANDOM.standard_normal((10, 64)).astype(np.float16),
    "bias": np.zeros(10, np.float32),
}
AXES = {"conv": (2, 3, 1), "fc": (1,)}
SHORT = {"unstructured": ["50%", "90%"], "N:M": ["2:4"]}


def kept(weights: dict[str, Any]) -> float:
    """Return the fraction of nonzero weights."""
    arrays = [np.asarray(weights[name]) for name in AXES]
    return sum(np.count_nonzero(a) for a in arrays) / sum(a.size for a in arrays)


class Network:
    weights = WEIGHTS

    def evaluate(self, weights: dict[str, Any]) -> dict[str, float]:
        return {"score": kept(weights), "types": float(isinstance(weights["conv"], hc.SparseArray))}


def test_rows_are_pruning_by_hand() -> None:
    r = hc.study_density(Network(), SHORT)
    assert r.metrics == ["score", "types"]
    base, *rows = r.table
    assert base == {"layers": None, "structure": None, "pattern": None, "density": 1.0, "retrained": None,
                    "score": kept(WEIGHTS), "types": 0}  # fmt: skip
    wanted = [(layers, name, text) for layers in ("convolution", "linear") for name in SHORT for text in SHORT[name]]
    assert [(row["layers"], row["structure"], row["pattern"]) for row in rows] == wanted
    for row in rows:
        name = "conv" if row["layers"] == "convolution" else "fc"
        pruned = hc.prune(WEIGHTS[name], row["pattern"], axis=AXES[name])
        assert row["density"] == np.count_nonzero(np.asarray(pruned)) / pruned.size
        assert row["score"] == kept({**WEIGHTS, name: pruned})
        assert row["types"] == (row["pattern"] == "2:4" and name == "conv")
        assert row["retrained"] is None


def test_retrained_rows_follow_theirs() -> None:
    def retrain(weights: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
        assert weights["bias"] is changed["bias"] and weights.keys() == changed.keys()
        (name,) = [name for name in AXES if changed[name] is not weights[name]]
        after = changed[name]
        if not isinstance(after, hc.SparseArray):
            after = after * (np.arange(after.size).reshape(after.shape) % 2)
        return {**changed, name: after}

    r = hc.study_density(Network(), SHORT, retrain=retrain)
    assert [row["retrained"] for row in r.table] == [None, *[None, True] * 6]
    for before, after in zip(r.table[1::2], r.table[2::2], strict=True):
        assert before["density"] == after["density"]
        assert (after["score"] < before["score"]) == (before["structure"] == "unstructured")
    with bad_argument(ValueError, "retrain", "value"):
        hc.study_density(Network(), SHORT, retrain=lambda weights, changed: {**changed, "conv": weights["conv"]})
    with bad_argument(ValueError, "retrain", "value"):
        hc.study_density(Network(), SHORT, retrain=lambda weights, changed: None)


def test_the_lowest_is_above_every_loss() -> None:
    scores = iter([0.9, 0.899, 0.895, 0.8995, 0.9, 0.5])  # the third loses just too much, the fourth comes after it
    r = hc.study_density({"fc": WEIGHTS["fc"]}, ["90%", "30%", "60%", "80%"], lambda weights: next(scores), slack=0.004)
    (found,) = r.lowest
    assert [row["density"] for row in r.table] == pytest.approx([1, 0.1, 0.7, 0.4, 0.2], abs=0.02)
    # By falling density: 30% 0.895, which loses more than 0.004.
    assert (found["pattern"], found["density"], found["evaluate"]) == (None, 1.0, 0.9)
    losses = {"30%": 2.0, "60%": 2.3, "80%": 2.6}
    values = iter([2.0, *losses.values()])
    r = hc.study_density({"fc": WEIGHTS["fc"]}, list(losses), lambda weights: {"loss": next(values)}, slack=0.5)
    assert r.lowest[0]["pattern"] == "60%"  # less is better
    none = iter([1.0, math.nan, 1.0])
    assert hc.study_density({"fc": WEIGHTS["fc"]}, ["30%", "50%"], lambda w: next(none)).lowest[0]["pattern"] is None


def test_default_patterns_go_from_dense_to_two_percent() -> None:
    r = hc.study_density(Network())
    assert {row["structure"] for row in r.table[1:]} == set(PATTERNS)
    for layers in ("convolution", "linear"):
        densities = [row["density"] for row in r.table if (row["layers"], row["structure"]) == (layers, "unstructured")]
        assert densities == sorted(densities, reverse=True) and densities[0] > 0.69 and densities[-1] < 0.04


def test_progress_counts_to_the_end() -> None:
    for retrain, total in ((False, 7), (lambda weights, changed: changed, 13)):
        steps: list[tuple[int, int, str]] = []
        hc.study_density(Network(), SHORT, retrain=retrain, progress=lambda *step, s=steps: s.append(step))
        assert [done for done, _, _ in steps] == list(range(total + 1)) and {n for _, n, _ in steps} == {total}


def test_include_exclude_and_files(tmp_path: Path) -> None:
    assert {row["layers"] for row in hc.study_density(Network(), "50%", exclude="conv").table[1:]} == {"linear"}
    save(tmp_path / "a.safetensors", WEIGHTS)
    from_file = hc.study_density(tmp_path / "a.safetensors", SHORT, kept)
    assert [row["kept"] for row in from_file.table] == [
        row["score"] for row in hc.study_density(Network(), SHORT).table
    ]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"weights": WEIGHTS}, ValueError, "expected a network, or evaluate"),
        ({"weights": WEIGHTS, "evaluate": 3}, TypeError, "evaluate is of type int"),
        ({"patterns": ["half"]}, ValueError, "pattern is 'half'"),
        ({"patterns": []}, ValueError, "no patterns"),
        ({"slack": 0}, ValueError, "slack is 0"),
        ({"slack": math.nan}, ValueError, "slack is nan"),
        ({"retrain": True}, ValueError, "method retrain"),
        ({"include": "absent"}, ValueError, "absent"),
        ({"weights": {"bias": WEIGHTS["bias"]}, "evaluate": kept}, ValueError, "no float tensor"),
        ({"axis": {"absent": 0}}, ValueError, "absent"),
    ],
)
def test_bad_input_is_refused(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        hc.study_density(**{"weights": Network(), **options})


def test_answers_keep_off_its_own_columns() -> None:
    w = np.ones((4, 8), np.float32)
    with bad_argument(ValueError, "evaluate", "value"):
        hc.study_density({"w": w}, "2:4", lambda weights: {"density": 1.0})
    with bad_argument(ValueError, "evaluate", "value"):
        hc.study_density({"w": w}, "2:4", lambda weights: {})


def test_nan_names_the_tensor() -> None:
    broken = WEIGHTS["fc"].copy()
    broken[2, 5] = np.nan
    with bad_argument(ValueError, None, "value", r"tensor 'w'.*\(2, 5\)"):
        hc.study_density({"w": broken}, "50%", lambda weights: 1.0)


def test_every_way_out_holds_the_same(tmp_path: Path) -> None:
    r = hc.study_density(Network(), {**SHORT, "<b>&": ["block:2x2:50%"]}, retrain=lambda weights, changed: changed)
    assert json.loads(json.dumps(r.to_dict(), allow_nan=False)) == {"rows": r.table, "lowest": r.lowest, "slack": 0.005}
    r.to_csv(tmp_path / "r.csv")
    with open(tmp_path / "r.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [float(line["score"]) for line in lines] == [row["score"] for row in r.table]
    r.to_html(tmp_path / "r.html", title="A <title>")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "A &lt;title&gt;" in page and "<b>" not in page and "http" not in page.replace("http://www.w3.org", "")
    for text in (repr(r), r._repr_html_()):
        assert all(row["pattern"] is None or row["pattern"] in text for row in r.table)
        assert "retrained" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv", "r.html"]


@pytest.mark.parametrize("kinds", [("conv", "fc"), ("fc",)])
@pytest.mark.parametrize("again", [False, True])
def test_the_picture_has_every_point(tmp_path: Path, kinds: tuple[str, ...], again: bool) -> None:
    own = {name: WEIGHTS[name] for name in kinds}
    train = (lambda weights, changed: changed) if again else False
    score = iter(np.linspace(0.99, 0.1, 13))
    r = hc.study_density(own, SHORT, lambda weights: float(next(score)), retrain=train)
    text = r.to_svg(tmp_path / "r.svg")
    assert (tmp_path / "r.svg").read_text() == text
    picture = ElementTree.fromstring(text)
    panels = [one for one in picture.iter() if one.tag.endswith("}g")]
    circles = [one for panel in panels for one in panel if one.tag.endswith("circle")]
    points = [one.get("d", "") for panel in panels for one in panel if one.get("class") == "dot"]
    places = [tuple(map(float, re.findall(r"[\d.]+", path)[:2])) for path in points]  # a corner of each mark
    rings = [one for one in circles if one.get("r") == "6.5"]
    assert len(places) == len(r.table) - 1
    assert len(rings) == sum(row["pattern"] is not None for row in r.lowest)
    width, height = float(picture.get("width", 0)) / len(panels), float(picture.get("height", 0))
    for x, y in [*places, *((float(one.get("cx", -1)), float(one.get("cy", -1))) for one in circles)]:
        assert 0 < x < width and 0 < y < height
    falling = [y for _, y in places]
    assert min(falling) < max(falling) and "nan" not in text


def test_a_picture_of_little_still_stands() -> None:
    dead = hc.study_density({"fc": WEIGHTS["fc"]}, ["50%"], lambda weights: math.nan)
    flat = hc.study_density({"fc": WEIGHTS["fc"]}, ["100%"], lambda weights: 1.0)
    for r in (dead, flat):
        ElementTree.fromstring(r.to_svg())
        repr(r), r._repr_html_(), r.to_dict()
    assert flat.table[1]["density"] == 0


def test_plot_draws_a_panel_for_each_kind(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = hc.study_density(Network(), SHORT).plot(tmp_path / "r.png")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["convolution layers pruned", "linear layers pruned"]
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.sweep(every=0)
def test_the_shipped_network_recovers() -> None:
    net = hc.zoo.digits()
    r = hc.study_density(net, {"unstructured": ["80%"], "N:M": ["1:4"]})
    base, *rows = r.table
    for before, after in zip(rows[::2], rows[1::2], strict=True):
        assert after["retrained"] and after["accuracy"] >= base["accuracy"] - 0.1
        assert before["accuracy"] + 0.02 < after["accuracy"]
    again = hc.study_density(net, {"unstructured": ["80%"]}, exclude="conv*")
    assert again.table[1:] == [row for row in rows if row["layers"] == "linear" and row["pattern"] == "80%"]


@pytest.mark.sweep(every=0)
def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heterocompute.studies.density.PATTERNS", {"N:M": ["2:4"]})
    page = tmp_path / "r.html"
    arguments = ["study", "--density", "--include", "fc2*"]
    assert cli.main([*arguments, "--json", "--html", str(page), "--csv", str(tmp_path / "r.csv")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["pattern"], row["retrained"]) for row in found["rows"]] == [(None, None), ("2:4", None), ("2:4", True)]
    assert "Densities of digits" in page.read_text() and (tmp_path / "r.csv").exists()
    assert cli.main(arguments) == 0
    assert re.search(r"N:M +2:4 +0\.500", capsys.readouterr().out)
    for more in (["a.safetensors"], ["--formats", "int8"], ["--activations", "int8"], ["--device", "mac"]):
        assert cli.main(["study", "--density", *more]) == 2
        assert "--density" in capsys.readouterr().err


def test_to_pandas() -> None:
    pytest.importorskip("pandas")
    r = hc.study_density(Network(), SHORT)
    assert r.to_pandas()["score"].tolist() == [row["score"] for row in r.table]


@pytest.mark.parametrize(
    "base, worst, slack",
    [(0.995, 0.1, 0.005), (12.345678, 1.2e9, 0.5), (1.2345e-9, 9e-7, 1e-10), (1.23456e12, -3e15, 1e9),
     (-1234.5678, -1200.1, 0.005), (1e-300, 1e300, 0.005), (0.995, 0.995, 0.005), (3, 3.004, 0.005)],
)  # fmt: skip
def test_texts_of_the_axis_are_told_apart_and_have_room(base: float, worst: float, slack: float) -> None:
    name = "perplexity of the validation set, stride 512, sliding window " * 3
    score = iter([base, *np.linspace(base, worst, 6)])
    own = {"conv": WEIGHTS["conv"], "fc": WEIGHTS["fc"]}
    r = hc.study_density(own, SHORT, lambda weights: {name: float(next(score))}, slack=slack)
    picture = ElementTree.fromstring(r.to_svg())
    width = float(picture.get("width", 0)) / 2
    panels = [one for one in picture.iter() if one.tag.endswith("}g")]
    found = [(i, one) for i, panel in enumerate(panels) for one in panel if one.tag.endswith("text")]
    marks: dict[int, list[tuple[float, str]]] = {}
    for panel, one in found:
        x, text = float(one.get("x", 0)), one.text or ""
        assert text.isascii() or text.endswith("…")
        if one.get("text-anchor") == "end":
            assert x - 7 * len(text) > 0
            marks.setdefault(panel, []).append((float(one.get("y", 0)), text))
        elif one.get("text-anchor") is None:
            assert x + 7 * len(text) < width
    for texts in marks.values():
        assert len({text for _, text in texts}) == len(texts) <= 9
        heights = sorted(y for y, _ in texts)
        assert all(b - a >= 12.9 for a, b in zip(heights, heights[1:], strict=False))
    lines = repr(r).splitlines()
    assert all(len(line) <= 110 for line in lines) and any("50%" in line and "unstructured" in line for line in lines)


def test_small_numbers_are_no_zeros() -> None:
    score = iter([1.5e-9, 2.5e-9, 0.0])
    r = hc.study_density({"fc": WEIGHTS["fc"]}, ["50%", "90%"], lambda weights: next(score), slack=1e-9)
    assert "1.5e-09" in repr(r) and "2.5e-09" in repr(r) and "0.0000" in repr(r)
