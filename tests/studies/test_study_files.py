"""Studies in files: `keep=` computes nothing twice, save and load return the same, `a + b` and `a - b`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute.cli.command import main
from heterocompute.studies.papers import PaperTable, reproduce_paper

RNG = np.random.default_rng(0)
WEIGHTS = {"a": RNG.standard_normal((24, 40), np.float32), "b": RNG.standard_normal((8, 24), np.float32)}
INPUTS = RNG.standard_normal((16, 40), np.float32)


class Judge:
    """Counts its calls in a private attribute, and stops at a chosen one."""

    def __init__(self, stop: int | None = None, inputs: Any = INPUTS) -> None:
        self.inputs, self._calls, self._stop = inputs, 0, stop

    def evaluate(self, weights: Any, activations: Any = None) -> dict[str, float]:
        self._calls += 1
        if self._calls == self._stop:
            raise KeyboardInterrupt
        hidden = np.maximum(hc.linear(self.inputs, weights["a"], activations=activations), 0)
        return {"mean": float(hc.linear(hidden, weights["b"], activations=activations).mean())}


def without_times(study: hc.Study) -> Any:
    return [{**row, "seconds": None} for row in study.table], [{**row, "seconds": None} for row in study.layers]


@pytest.mark.parametrize("workers", [None, 2])
def test_an_interrupted_study_continues_at_the_row_where_it_stopped(tmp_path: Path, workers: int | None) -> None:
    keep, formats = tmp_path / "study.jsonl", ["int8", "int4", "int3-g8"]
    options: dict[str, Any] = {"activations": ["int8"], "per_layer": True, "workers": workers}
    whole = hc.study(WEIGHTS, formats, Judge().evaluate, **options)
    with pytest.raises(KeyboardInterrupt):
        hc.study(WEIGHTS, formats, Judge(6).evaluate, keep=keep, **options)
    judge = Judge()
    found = hc.study(WEIGHTS, formats, judge.evaluate, keep=keep, **options)
    assert judge._calls == 14 - 5
    assert without_times(found) == without_times(whole) and found.alone == whole.alone
    assert found.histograms == whole.histograms and not found.notes

    again = Judge()
    more = hc.study(WEIGHTS, [*formats, "int2"], again.evaluate, keep=keep, **options)
    assert again._calls == 4  # int2 with and without activations, and in each tensor alone
    assert more.table[: len(found.table)] == found.table  # times as well


def test_kept_results_belong_to_weights_functions_and_data(tmp_path: Path) -> None:
    keep = tmp_path / "study.jsonl"
    hc.study(WEIGHTS, ["int4"], Judge().evaluate, keep=keep)
    for weights, inputs in (({**WEIGHTS, "b": WEIGHTS["b"] * 2}, INPUTS), (WEIGHTS, INPUTS * 2)):
        judge = Judge(inputs=inputs)
        found = hc.study(weights, ["int4"], judge.evaluate, keep=keep)
        assert judge._calls == 2
        assert without_times(found) == without_times(hc.study(weights, ["int4"], judge.evaluate))
    other = hc.study({"c": WEIGHTS["a"] + 1}, ["int4"], keep=keep)
    assert any("study.jsonl kept" in note for note in other.notes)


def test_training_and_searched_codes_are_kept(tmp_path: Path) -> None:
    keep, calls = tmp_path / "study.jsonl", np.zeros(1)

    def retrain(weights: Any, changed: Any, seed: int) -> Any:
        calls[0] += 1
        return {name: changed[name] for name in changed}

    hs = hc.ptq.calibrate(WEIGHTS, lambda held: hc.linear(hc.linear(INPUTS, held["a"]), held["b"]))
    options: dict[str, Any] = {"methods": ["rtn", "gptq"], "hessians": hs, "evaluate": Judge().evaluate}
    plain = hc.study(WEIGHTS, ["int3"], **options)
    kept = hc.study(WEIGHTS, ["int3"], **options, keep=keep)
    more = hc.study(WEIGHTS, ["int3"], **options, keep=keep, activations=["int8"])  # codes of gptq are made again
    assert without_times(kept) == without_times(plain)
    rows = [row for row in more.table if row["activations"] is None]
    assert [row["mean"] for row in rows] == [row["mean"] for row in plain.table]

    calls[:] = 0
    options = {"evaluate": Judge().evaluate, "retrain": retrain, "seeds": 2, "keep": keep}
    first = hc.study(WEIGHTS, ["int3"], **options)
    calls[:] = 0  # what a function reads is part of the key
    assert hc.study(WEIGHTS, ["int3"], **options).table == first.table and not calls[0]


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    keep = tmp_path / "points"
    hc.hardware.explore({"lanes": [8]}, "digits", keep=keep)
    with pytest.raises(ValueError, match="holds no results of study"):
        hc.study(WEIGHTS, ["int4"], keep=keep)
    with bad_argument(ValueError, "keep", "value"):
        hc.study(WEIGHTS, ["int4"], keep="s3://bucket/study")


def test_a_density_study_and_a_paper_continue(tmp_path: Path) -> None:
    net, keep = hc.zoo.digits(), tmp_path / "density.jsonl"
    found = hc.study_density(net, ["90%", "2:4"], retrain=False, keep=keep)
    size = keep.stat().st_size
    again = hc.study_density(net, ["90%", "2:4"], retrain=False, keep=keep)
    assert again.table == found.table and keep.stat().st_size == size
    found.save(tmp_path / "density.json")
    found.to_html(tmp_path / "density.html")
    for name in ("density.json", "density.html"):
        loaded = hc.DensityStudy.load(tmp_path / name)
        assert loaded.table == found.table and loaded.lowest == found.lowest
    with pytest.raises(ValueError, match="holds a 'density study', expected a study"):
        hc.Study.load(tmp_path / "density.json")

    table = reproduce_paper("mx", "digits", keep=tmp_path / "mx.jsonl")
    size = (tmp_path / "mx.jsonl").stat().st_size
    assert reproduce_paper("mx", "digits", keep=tmp_path / "mx.jsonl") == table
    assert (tmp_path / "mx.jsonl").stat().st_size == size
    table.save(tmp_path / "mx.json")
    assert PaperTable.load(tmp_path / "mx.json") == table


@pytest.fixture(scope="module")
def study() -> hc.Study:
    mixed = {"a": "int4", "*": "nf4-g64"}
    return hc.study(WEIGHTS, ["int8", mixed, "int2"], Judge().evaluate, activations=["int8"], per_layer=True)


@pytest.mark.parametrize("name", ["study.json", "study.html"])
def test_a_saved_study_is_the_same(study: hc.Study, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    (study.save if name.endswith("json") else study.to_html)(path)
    loaded = hc.Study.load(path)
    assert loaded.to_dict() == study.to_dict() and loaded.histograms == study.histograms
    assert repr(loaded) == repr(study) and loaded._repr_html_() == study._repr_html_()
    loaded.to_html(tmp_path / "again.html")
    study.to_html(tmp_path / "first.html")
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "first.html").read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"heterocompute": "plan"},
        {"table": [{"format": 3}]},
        {"table": [{"format": "int8", "bits": "4"}]},
        {"layers": [{"name": None}]},
        {"histograms": [{"name": "a"}]},
        {"metrics": 3},
        {"notes": [1]},
        {"table": None},
    ],
)
def test_another_file_is_refused(study: hc.Study, tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "study.json"
    study.save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=r"study\.json: "):
        hc.Study.load(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "<html></html>", '{"a": 1}', '{"heterocompute": "study", "x": NaN}'])
def test_a_file_that_is_no_study_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="not a saved study"):
        hc.Study.load(path)


def test_studies_of_the_same_weights_are_joined() -> None:
    whole = hc.study(WEIGHTS, ["int8", "int4"], Judge().evaluate)
    first, second = (hc.study(WEIGHTS, [fmt], Judge().evaluate) for fmt in ("int8", "int4"))
    assert without_times(first + second) == without_times(whole)
    assert (first + second).histograms == whole.histograms
    assert without_times(first + first) == without_times(first)
    more = first + hc.study(WEIGHTS, ["int4"], Judge().evaluate, device="t4")
    assert [row["device_us"] is None for row in more.table] == [False, True, False]
    assert list(more.table[0])[-3:] == ["seconds", "device_us", "device_uj"]


def test_studies_of_other_weights_or_data_are_not_joined(study: hc.Study) -> None:
    with pytest.raises(ValueError, match="tensor 'a' has shape"):
        study + hc.study({**WEIGHTS, "a": WEIGHTS["a"][:, :8]}, ["int4"])
    with pytest.raises(ValueError, match="mean is .* in the first and"):
        study + hc.study(WEIGHTS, ["int8"], Judge(inputs=INPUTS * 3).evaluate)
    with pytest.raises(TypeError):
        study + 1  # type: ignore[operator]


def test_a_difference_has_the_rows_that_both_have(study: hc.Study) -> None:
    other = hc.study(WEIGHTS, ["int8", "int3"], Judge(inputs=INPUTS * 2).evaluate, activations=["int8"])
    found = study - other
    pairs = {(row["format"], row["activations"]): row["mean"] for row in other.table}
    assert [row["format"] for row in found.table] == ["fp32", "fp32", "int8", "int8"]
    for row, mine in zip(found.table, study.table, strict=False):
        assert row["mean"] == mine["mean"] - pairs[row["format"], row["activations"]] and row["bits"] == 0
    assert found.only == (["a=int4 *=nf4-g64", "a=int4 *=nf4-g64 / int8", "int2", "int2 / int8"],
                          ["int3", "int3 / int8"])  # fmt: skip
    assert "only in the second: int3, int3 / int8" in repr(found) and "<table" in found._repr_html_()
    assert "no row in common" in repr(hc.study(WEIGHTS, ["int8"]) - hc.Study([], [], [], []))


def test_the_command_keeps_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep, save = str(tmp_path / "k.jsonl"), str(tmp_path / "s.json")
    arguments = ["study", "--formats", "int8,int4", "--keep", keep, "--save", save, "--json"]
    assert main(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == first["rows"] == hc.Study.load(save).table
    assert main(["explore", "digits", "--set", "lanes=8", "--study", save, "--json"]) == 0
