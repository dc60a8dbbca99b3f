"""Results without a table in files, and the names of files that `save` refuses."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.cli import main
from heterocompute.report.results.saved import Saved
from heterocompute.report.results.tabular import Tabular
from heterocompute.studies.papers import reproduce_paper

RNG = np.random.default_rng(8)


def checkpoints(tmp: Path) -> tuple[Path, Path]:
    base, small = tmp / "base.safetensors", tmp / "small.safetensors"
    hc.save(base, {"a": RNG.standard_normal((16, 64), np.float32), "b": RNG.standard_normal((4, 8, 3), np.float32)})
    assert main(["quantize", str(base), str(small), "--format", "int8", "--statement"]) == 0
    return base, small


def networks(tmp: Path) -> Any:
    weights = hc.zoo.digits().weights["fc2.weight"]
    x = RNG.standard_normal((8, weights.shape[1]), np.float32)
    return hc.diff(lambda x: hc.linear(x, weights), lambda x: hc.linear(x, hc.quantize(weights, "int8")), x)


def found(tmp: Path) -> Any:
    levels = [hw.mapper.Level("DRAM", read=640.0), hw.mapper.Level("B", words=64, read=5.0)]
    problem = hw.mapper.Problem.gemm(*RNG.integers(8, 64, 3).tolist())
    return hw.mapper.search(problem, hw.mapper.Arch(levels, mac=1.0), budget=200, threads=1)


CASES: dict[str, Callable[[Path], Any]] = {
    "mapped": lambda tmp: hw.search("digits", "eyeriss", budget=60),
    "mapped, tpu": lambda tmp: hw.search("digits", "tpu_v1", budget=60),
    "found": found,
    "difference of files": lambda tmp: hc.diff(*checkpoints(tmp)),
    "difference of networks": networks,
    "verification": lambda tmp: hc.verify(*checkpoints(tmp)[::-1]),
    "another format": lambda tmp: hc.verify(*checkpoints(tmp)[::-1], "int4"),
    "guess": lambda tmp: hc.verify(*checkpoints(tmp)[::-1], guess=True),
}


@pytest.fixture(scope="module", params=CASES)
def result(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return CASES[request.param](tmp_path_factory.mktemp("result"))


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b) and json.dumps(a._stored()) == json.dumps(b._stored())
    assert repr(a) == repr(b) and str(a) == str(b) and a._repr_html_() == b._repr_html_()
    for name in ("layers", "mappings", "mapping", "stats", "tensors", "files", "statement", "equal", "verdict"):
        assert getattr(a, name, None) == getattr(b, name, None)


def test_every_saved_class_without_a_table_is_tested() -> None:
    def below(kind: type) -> set[type]:
        return {kind, *(one for some in kind.__subclasses__() for one in below(some))}

    tested = {hw.mapper.Found, hw.results.MappedNetwork, hc.Difference, hc.Verification}
    assert {one for one in below(Saved) if not issubclass(one, Tabular)} - {Saved} == tested


def test_a_saved_result_is_the_same(result: Any, tmp_path: Path) -> None:
    result.save(tmp_path / "result.json")
    same(type(result).load(tmp_path / "result.json"), result)
    if hasattr(result, "to_html"):
        result.to_html(tmp_path / "result.html")
        same(type(result).load(tmp_path / "result.html"), result)


def test_a_loaded_mapping_is_evaluated_again(tmp_path: Path) -> None:
    levels = [hw.mapper.Level("DRAM", read=640.0), hw.mapper.Level("B", words=64, read=5.0)]
    problem, arch = hw.mapper.Problem.gemm(16, 24, 8), hw.mapper.Arch(levels, mac=1.0)
    hw.mapper.search(problem, arch, budget=200, threads=1).save(tmp_path / "found.json")
    loaded = hw.mapper.Found.load(tmp_path / "found.json")
    assert hw.mapper.evaluate(problem, arch, loaded.mapping) == loaded.stats


@pytest.mark.sweep(every=8)
def test_hostile_and_truncated_files_are_one_clear_line(result: Any, tmp_path: Path) -> None:
    random.seed(13)
    result.save(tmp_path / "good.json")
    text = (tmp_path / "good.json").read_text()
    path, kind = tmp_path / "bad.json", type(result)
    for _ in range(12):
        path.write_text(text[: random.randrange(len(text) - 2)])
        with pytest.raises(ValueError, match=r"^[^\n]*bad\.json: not a saved [^\n]*$"):
            kind.load(path)
    good = json.loads(text)

    def damaged(value: Any, depth: int = 0) -> list[Any]:
        wrong: list[Any] = [3, -1, "x", [], None, {"a": 1}, [[]], [{"name": 3}], {}, 10**400]
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, one in [*inner][:12]:
            for other in damaged(one, depth + 1) if depth < 4 else []:
                copy = dict(value) if isinstance(value, dict) else list(value)
                copy[key] = other
                wrong.append(copy)
        return wrong

    for field in good.keys() - {"heterocompute", "version", "written_by"}:
        every = damaged(good[field])
        for value in random.sample(every, min(len(every), 60)):
            path.write_text(json.dumps({**good, field: value}))
            try:
                held = kind.load(path)
            except ValueError as error:
                assert "\n" not in str(error) and "not a saved" in str(error)
            else:  # another value of the same type
                repr(held), str(held), held._repr_html_()
    path.write_text(json.dumps({**good, "heterocompute": "another"}))
    with pytest.raises(ValueError, match="holds a 'another', expected a"):
        kind.load(path)


def test_a_name_of_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    weights = {"w": RNG.standard_normal((8, 32), np.float32)}
    study = hc.study(weights, ["int4"], timing=False)
    for suffix, writer in ((".png", "plot"), (".SVG", "plot"), (".csv", "to_csv"), (".html", "to_html")):
        words = rf"save: [^\n]*x{suffix} ends in {suffix.lower()}, expected .json; {writer} writes {suffix.lower()}$"
        with pytest.raises(ValueError, match=words):
            study.save(tmp_path / f"x{suffix}")
    with pytest.raises(ValueError, match=r"x\.npz ends in \.npz, expected \.json$"):
        study.save(tmp_path / "x.npz")
    plan = hc.ptq.search(weights, ["int4", "int8"], {"bits": 6.0})
    with pytest.raises(ValueError, match=r"x\.png ends in \.png, expected \.toml or \.json or \.safetensors$"):
        plan.save(tmp_path / "x.png")
    rounded = hc.ptq.quantize(weights, lambda held: hc.linear(np.ones((2, 32), np.float32), held["w"]), "int4")
    with pytest.raises(ValueError, match=r"x\.csv ends in \.csv, expected \.json or [^\n]*; to_csv writes \.csv$"):
        rounded.save(tmp_path / "x.csv")
    assert not [*tmp_path.iterdir()]
    study.save(tmp_path / "study")
    same(hc.Study.load(tmp_path / "study"), study)


@pytest.mark.parametrize("command", ["study", "search --budget bits=4", "reproduce", "explore", "train"])
@pytest.mark.sweep(every=5)
def test_a_command_refuses_it_before_it_begins(command: str, tmp_path: Path) -> None:
    path = tmp_path / "o5.png"
    call = [sys.executable, "-m", "heterocompute", *command.split(), "--save", str(path)]
    run = subprocess.run(call, capture_output=True, text=True)
    assert run.returncode == 2 and not path.exists()
    assert "o5.png ends in .png, expected" in run.stderr and "running" not in run.stderr


def test_pages_of_figures_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    for one in (reproduce_paper("mx", "adder"), hw.published("tpu_v1").reproduce()):
        one.to_html(path)
        assert type(one).load(path)._stored() == one._stored()
