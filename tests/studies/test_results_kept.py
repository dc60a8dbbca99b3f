"""Every result of long work: saved, loaded, joined, compared, resumed; files of something else are one clear line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.report.results.tabular import TableDifference, Tabular
from heterocompute.studies.papers import PaperTable, reproduce_paper

RNG = np.random.default_rng(3)
WEIGHTS = {name: RNG.standard_normal(shape, np.float32) for name, shape in {"a": (24, 40), "b": (8, 24)}.items()}
INPUTS = RNG.standard_normal((16, 40), np.float32)
FORMATS = ["int2-g8", "int3-g8", "int4-g8", "int8"]


def run(held: Any) -> Any:
    return hc.linear(np.maximum(hc.linear(INPUTS, held["a"]), 0), held["b"])


TRUTH = run(WEIGHTS)


def loss(held: Any) -> float:
    return float(np.sqrt(np.mean((run(held) - TRUTH) ** 2)))


def score(held: Any) -> float:
    return -loss(held)


def study(formats: list[str]) -> hc.Study:
    return hc.study(WEIGHTS, formats, loss, timing=False)


def density(patterns: list[str]) -> hc.DensityStudy:
    return hc.study_density(WEIGHTS, patterns, loss)


def training(recipes: list[str]) -> hc.TrainingStudy:
    return hc.study_training(hc.zoo.digits(), recipes, steps=3, seeds=1, batch=8)


def search(bits: float) -> hc.ptq.Plan:
    return hc.ptq.search(WEIGHTS, FORMATS, {"bits": bits}, loss)


def rounded(name: str, fmt: str = "int3-g8") -> hc.ptq.Rounded:
    return hc.ptq.quantize(WEIGHTS, run, fmt, include=name)


def gate(least: float) -> hc.ptq.Gate:
    return hc.ptq.accept(WEIGHTS, FORMATS, score, least, run)[1]


def explored(lanes: list[int]) -> Any:
    return hw.explore({"lanes": lanes}, "digits")


def reproduced(name: str) -> Any:
    return hw.published(name).reproduce()


# The function that makes a result, two arguments of it, and the argument of their join; None: they have none.
CASES: dict[str, tuple[Callable[[Any], Any], Any, Any, Any]] = {
    "study": (study, ["int8"], ["int4"], ["int8", "int4"]),
    "density": (density, ["50%"], ["2:4"], ["50%", "2:4"]),
    "training": (training, ["fp8-current"], ["nvfp4"], ["fp8-current", "nvfp4"]),
    "plan": (search, 6.5, 8.0, None),
    "rounded": (rounded, "a", "b", ["a", "b"]),
    "gate": (gate, -2.0, -0.5, None),
    "exploration": (explored, [8], [16], [8, 16]),
    "reproduction": (reproduced, "tpu-v1-isca-2017/peak", "tpu-v1-isca-2017/ridge-k80", None),
    "paper": (lambda paper: reproduce_paper(paper, "adder"), "mx", "mx", None),
}


@pytest.fixture(scope="module", params=CASES)
def pair(request: pytest.FixtureRequest) -> tuple[str, Any, Any]:
    make, first, second, _ = CASES[request.param]
    return request.param, make(first), make(second)


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    assert json.dumps(a._stored()) == json.dumps(b._stored())
    assert repr(a) == repr(b) and str(a) == str(b) and a._repr_html_() == b._repr_html_()


def test_every_table_that_a_function_returns_is_one_of_the_tested_classes() -> None:
    def below(kind: type) -> set[type]:
        return {kind, *(one for some in kind.__subclasses__() for one in below(some))}

    made = {hc.Study, hc.DensityStudy, hc.TrainingStudy, hc.ptq.Plan, hc.ptq.Rounded, hc.ptq.Gate, PaperTable}
    made |= {hw.results.Exploration, hw.results.Reproduction}
    others = {one for one in below(Tabular) - made if not issubclass(one, TableDifference)}
    assert {one.__name__ for one in others} <= {"Tabular", "Weighed", "Summary"}


def test_a_saved_result_is_the_same(pair: tuple[str, Any, Any], tmp_path: Path) -> None:
    _, found, _ = pair
    found.save(tmp_path / "found.json")
    same(type(found).load(tmp_path / "found.json"), found)
    if hasattr(found, "to_html"):
        found.to_html(tmp_path / "found.html")
        same(type(found).load(tmp_path / "found.html"), found)


def test_results_are_joined_or_refused_in_one_line(pair: tuple[str, Any, Any]) -> None:
    name, first, second = pair
    make, _, _, both = CASES[name]
    if name == "rounded":
        whole = first + second
        assert {row["name"] for row in whole.table} == {"a", "b"}
        assert all(isinstance(whole.weights[key], hc.QuantizedArray) for key in "ab")
        with pytest.raises(ValueError, match=r"^rounding \+ rounding: both have rounded 'a'; a - b compares them$"):
            first + first
    elif name == "reproduction":
        assert [row["name"] for row in (first + second).table] == [first.table[0]["name"], second.table[0]["name"]]
    elif both is None:
        with pytest.raises(ValueError, match=rf"^{first.kind} \+ {first.kind}: [^\n]*; a - b compares them$"):
            first + second
    else:
        whole = make(both)
        assert (first + second).table == whole.table == (whole + first).table
        assert type(first + second) is type(first)
    with pytest.raises(TypeError, match=rf"^{first.kind} \+ int: expected another {first.kind}$"):
        first + 3
    with pytest.raises(TypeError, match=rf"^{first.kind} - str: expected another {first.kind}$"):
        first - "x"


def test_differences_have_the_rows_of_both(pair: tuple[str, Any, Any]) -> None:
    name, first, second = pair
    nothing = first - first
    assert len(nothing.table) == len(first.table) and nothing.only == ([], [])
    for row in nothing.table:
        numbers = [value for key, value in row.items() if key not in first.names and not isinstance(value, str)]
        assert not any(numbers), row
        assert not any(" <- " in value for value in row.values() if isinstance(value, str))
    found = first - second
    for row in found.table:
        mine, theirs = (
            next(one for one in some.table if first._key(one) == first._key(row)) for some in (first, second)
        )
        for key in row.keys() - {*first.names}:
            if isinstance(mine[key], (int, float)) and isinstance(theirs[key], (int, float)):
                assert row[key] == mine[key] - theirs[key]
    assert len(found.table) + len(found.only[0]) == len(first.table)
    assert len(found.table) + len(found.only[1]) == len(second.table)
    assert repr(found) and found._repr_html_() is not None
    if name == "plan":
        changed = [row for row in found.table if " <- " in row["format"]]
        assert changed and changed == [row for row in found.table if row["bits"]]


@pytest.mark.sweep(every=9)
def test_hostile_and_truncated_files_are_one_clear_line(pair: tuple[str, Any, Any], tmp_path: Path) -> None:
    _, found, _ = pair
    random.seed(11)
    found.save(tmp_path / "good.json")
    text = (tmp_path / "good.json").read_text()
    path, kind = tmp_path / "bad.json", type(found)
    for _ in range(12):
        path.write_text(text[: random.randrange(len(text) - 2)])
        with pytest.raises(ValueError, match=r"^[^\n]*bad\.json: not a saved [^\n]*$"):
            kind.load(path)
    good = json.loads(text)
    wrong = [3, "x", [], None, {"a": 1}, [[]], [{"name": 3}], [{}]]
    for field in good.keys() - {"heterocompute", "version", "written_by"}:
        for value in wrong:
            path.write_text(json.dumps({**good, field: value}))
            try:
                held = kind.load(path)
            except ValueError as error:
                assert "\n" not in str(error) and "not a saved" in str(error)
            else:  # another value of the same type
                repr(held)
                held._repr_html_()
    for row in range(min(len(good["table"]), 3)):
        for key in kind.columns_of_files:
            table = [dict(one) for one in good["table"]]
            table[row][key] = [{"x": 1}]
            path.write_text(json.dumps({**good, "table": table}))
            with pytest.raises(ValueError, match=r"bad\.json: not a saved [^\n]*$"):
                kind.load(path)
    path.write_text(json.dumps({**good, "heterocompute": "another"}))
    with pytest.raises(ValueError, match="holds a 'another', expected a"):
        kind.load(path)


@pytest.mark.parametrize("kind", [hc.ptq.Plan, hc.ptq.Rounded])
def test_weights_are_in_a_safetensors_file(kind: Any, tmp_path: Path) -> None:
    found = search(6.5) if kind is hc.ptq.Plan else rounded("*", "int3-g8+2:4")
    path = tmp_path / "small.safetensors"
    found.save(path)
    loaded = kind.load(path)
    same(loaded, found)
    assert loaded.weights.keys() == found.weights.keys() == hc.load(path).keys()
    for name, value in found.weights.items():
        assert np.array_equal(np.asarray(loaded.weights[name]), np.asarray(value))
    found.save(tmp_path / "report.json")
    report = kind.load(tmp_path / "report.json")
    assert report.weights == {}
    with pytest.raises(ValueError, match="has no weights, since JSON holds none"):
        report.save(path)
    hc.save(path, found.weights)
    with pytest.raises(ValueError, match=r"small\.safetensors: holds arrays and no [^\n]*$"):
        kind.load(path)


@pytest.mark.parametrize("fmt", ["int3-g8", "vsq4-g8-s4", "int4-g8+2:4", "nf4-g8"])
@pytest.mark.parametrize("method", ["gptq", "qronos", "search"])
def test_an_interrupted_rounding_loses_no_finished_tensor(tmp_path: Path, fmt: str, method: str) -> None:
    keep, told = tmp_path / "rounded.jsonl", []

    def stop(done: int, total: int, text: str) -> None:
        told.append(text)
        if done == 1:
            raise KeyboardInterrupt

    def small(progress: Any = None, keep: Any = None) -> hc.ptq.Rounded:
        return hc.ptq.quantize(WEIGHTS, run, fmt, progress=progress, keep=keep, method=method)

    try:
        whole = small()
    except ValueError:
        pytest.skip(f"{method} does not round to {fmt}")
    with pytest.raises(KeyboardInterrupt):
        small(stop, keep)
    lines = keep.read_text().count("\n")
    assert lines == 2  # the head, and the first tensor
    found = small(keep=keep)
    assert keep.read_text().count("\n") == 3 and found.table == whole.table
    again = small(keep=keep)
    assert keep.read_text().count("\n") == 3 and again.table == whole.table
    for name in WEIGHTS:
        assert type(again.weights[name]) is type(whole.weights[name])
        assert again.weights[name].format == whole.weights[name].format
        assert np.array_equal(np.asarray(again.weights[name]), np.asarray(whole.weights[name]))
    hc.ptq.quantize({**WEIGHTS, "a": WEIGHTS["a"] * 2}, run, fmt, keep=keep, method=method)
    assert keep.read_text().count("\n") >= 4


def test_an_interrupted_gate_repeats_no_score(tmp_path: Path) -> None:
    keep, calls = tmp_path / "gate.jsonl", []

    class Judge:
        def __init__(self, stop: int) -> None:
            self._stop = stop

        def __call__(self, held: Any) -> float:
            calls.append(1)
            if len(calls) == self._stop:
                raise KeyboardInterrupt
            return score(held)

    ladder, told = [*FORMATS, "int6-g8"], []
    with pytest.raises(KeyboardInterrupt):
        hc.ptq.accept(WEIGHTS, ladder, Judge(3), -0.5, keep=keep, mix=True)
    before = len(calls)
    weights, found = hc.ptq.accept(
        WEIGHTS, ladder, Judge(0), -0.5, keep=keep, mix=True, progress=lambda *step: told.append(step)
    )
    assert len(calls) - before == found.evaluations - 2
    plain, expected = hc.ptq.accept(WEIGHTS, ladder, Judge(0), -0.5, mix=True)
    assert found == expected and all(np.array_equal(np.asarray(weights[n]), np.asarray(plain[n])) for n in weights)
    assert told[0][0] == 0 and told[-1][0] == told[-1][1]


def test_figures_are_kept(tmp_path: Path) -> None:
    keep = tmp_path / "figures.jsonl"
    figures = hw.published("tpu_v1")
    with pytest.raises(KeyboardInterrupt):
        figures.reproduce(
            lambda done, total, text: (_ for _ in ()).throw(KeyboardInterrupt) if done == 4 else None, keep
        )
    assert keep.read_text().count("\n") == 5
    found = figures.reproduce(keep=keep)
    assert keep.read_text().count("\n") == 1 + len(figures)
    assert found.table == figures.reproduce(keep=keep).table == figures.reproduce().table
    assert keep.read_text().count("\n") == 1 + len(figures)
    assert found.records() == [one.to_dict() for one in figures]
