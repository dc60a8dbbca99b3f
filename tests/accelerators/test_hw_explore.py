"""Design-space exploration: points, the Pareto front, workers of any kind, and accuracy from a study."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from common import bad_argument

from heterocompute import hardware as hw
from heterocompute.cli import main
from heterocompute.hardware.accelerators import exploring
from heterocompute.hardware.accelerators.design import Design
from heterocompute.hardware.accelerators.energies import value_bits
from heterocompute.hardware.accelerators.exploring import point_cost

NET = hw.as_network([hw.layers.Conv2d(16, 32, 3)], (16, 16, 16))
SPACE = {"dataflow": ["ws", "os-lws"], "lanes": [8, 16], "format": ["int8", "int4"]}
STUDY = [
    {"format": "int8", "activations": "int8", "accuracy": 0.98, "bits": 8.0},
    {"format": "int8", "activations": None, "accuracy": 0.99, "bits": 8.0},
    {"format": "int4", "activations": "int4", "accuracy": 0.90, "bits": 4.0},
    {"format": "int4", "activations": "int4", "emulate": "fp16", "accuracy": 0.1, "bits": 4.0},
]


@pytest.fixture(scope="module")
def found() -> Any:
    return hw.explore(SPACE, NET, ("energy", "-accuracy"), study=STUDY)


def test_a_point_is_the_machine_that_it_names(found: Any) -> None:
    """Energy and time of the point of MAGNet's sizes are those of `hw.accelerators.magnet`."""
    assert len(found.table) == 8 and not found.refused
    for dataflow in ("ws", "os-lws"):
        report = hw.accelerators.magnet(dataflow).report(NET)
        point = {"dataflow": dataflow, "lanes": 16, "format": "int8"}
        (row,) = [row for row in found.table if point.items() <= row.items()]
        assert row["energy"] == pytest.approx(report.energy - report.energy_parts["DRAM"])
        assert row["seconds"] == report.seconds and row["edp"] == pytest.approx(row["energy"] * row["seconds"])
        assert row["operations_joule"] == pytest.approx(2 * report.macs / row["energy"])
        assert row["area"] == Design(dataflow=dataflow).area("int8")


def test_more_hardware_is_faster_and_larger(found: Any) -> None:
    by = {(row["dataflow"], row["lanes"], row["format"]): row for row in found.table}
    for dataflow in ("ws", "os-lws"):
        few, many = by[dataflow, 8, "int8"], by[dataflow, 16, "int8"]
        assert many["seconds"] < few["seconds"] and many["area"] > few["area"]
        assert by[dataflow, 8, "int4"]["energy"] < few["energy"]


def test_accuracy_of_a_study_joins_and_the_front_is_what_nothing_beats(found: Any) -> None:
    """Both formats of a pair must match the row of the study, without an emulation."""
    assert {row["format"]: row["accuracy"] for row in found.table} == {"int8": 0.98, "int4": 0.90}
    assert found.metrics == ("accuracy", "bits")
    front = found.pareto()
    assert [row["format"] for row in front] == ["int4", "int8"]  # less energy, more accuracy
    for row in front:
        same = [one["energy"] for one in found.table if one["accuracy"] == row["accuracy"]]
        assert row["energy"] == min(same)
    assert found.best is front[0]
    everything = found.pareto(("energy", "area", "seconds", "-accuracy"))
    assert all(row in everything for row in found.pareto())
    beaten = [row for row in found.table if row not in everything]
    for row in beaten:
        assert any(
            all(one[key] <= row[key] for key in ("energy", "area", "seconds")) and one["accuracy"] >= row["accuracy"]
            for one in found.table
            if one is not row
        )


def test_a_format_without_a_row_of_the_study_is_on_no_front() -> None:
    found = hw.explore({"format": ["int8", "int4 x int8"]}, NET, ("energy", "-accuracy"), study=STUDY)
    assert {row["format"]: row["accuracy"] for row in found.table} == {"int8": 0.98, "int4 x int8": None}
    assert [row["format"] for row in found.pareto()] == ["int8"]
    assert len(found.pareto("energy")) == 1


def test_a_pair_of_formats_lies_between_its_two() -> None:
    machine = Design().machine("pairs", ("int4", "int4 x int8", "int8")).accelerator
    low, pair, high = (machine.report(NET, text) for text in machine.formats)
    for part in ("arithmetic", "DRAM", "weights", "activations"):
        assert low.energy_parts[part] <= pair.energy_parts[part] <= high.energy_parts[part], part
    assert low.dram_bytes < pair.dram_bytes < high.dram_bytes
    assert (value_bits("int4 x int8", "W"), value_bits("int4 x int8", "O")) == (4, 8)


def test_workers_are_processes_or_anything_like_map(found: Any) -> None:
    space = {"lanes": [8, 16]}
    here = hw.explore(space, NET)
    told: list[tuple[int, int]] = []
    assert (
        hw.explore(space, NET, workers=2, progress=lambda done, total, text: told.append((done, total))).table
        == here.table
    )
    assert sorted(told) == [(1, 2), (2, 2)]
    with ThreadPoolExecutor(2) as pool:
        assert hw.explore(space, NET, workers=pool.map).table == here.table

    def forgets(function: Any, tasks: Any) -> Iterable[Any]:
        return [function(tasks[0])]

    with bad_argument(ValueError, "workers", "value"):
        hw.explore(space, NET, workers=forgets)


class Interrupted(Exception):
    pass


def _interrupt_after(count: int) -> Any:
    def progress(done: int, total: int, text: str) -> None:
        if done == count:
            raise Interrupted

    return progress


def test_an_interrupted_exploration_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, space = tmp_path / "points", {"lanes": [8, 16], "dataflow": ["ws", "rs"], "clock": [1e9, 0.7e9]}
    whole = hw.explore(space, NET)
    for workers in (1, 2):
        with pytest.raises(Interrupted):
            hw.explore(space, NET, progress=_interrupt_after(3 * workers), keep=path, workers=workers)
    assert len(path.read_bytes().splitlines()) == 7
    evaluated: list[Any] = []
    monkeypatch.setattr(exploring, "point_cost", lambda task: evaluated.append(task) or point_cost(task))
    told: list[int] = []
    found = hw.explore(space, NET, progress=lambda done, total, text: told.append(done), keep=path)
    assert (found.table, found.refused, len(evaluated)) == (whole.table, whole.refused, 2) and told == [6, 7, 8]
    again = hw.explore({**space, "lanes": 8}, NET, "area", keep=path)  # a part of the space, by another objective
    assert len(evaluated) == 2 and len(again.table) == 2
    hw.explore(space, NET, batch=2, keep=path)
    hw.explore({"lanes": 8}, "digits", keep=path)
    assert len(evaluated) == 2 + 8 + 1


def test_lines_that_are_not_complete_are_evaluated_again(tmp_path: Path) -> None:
    path, space = tmp_path / "points", {"lanes": [8, 16]}
    whole = hw.explore(space, NET, keep=path)
    good = path.read_bytes()
    for bad in (good[:-9], good[:40], good.replace(b"1", b"2", 60)[:24] + good[24:-1], good[:-30] + b"9" + good[-29:]):
        path.write_bytes(bad if bad[:24] == good[:24] else good[:24] + bad[24:])
        assert hw.explore(space, NET, keep=path).table == whole.table
        assert hw.explore(space, NET, keep=path).table == whole.table
    path.write_bytes(b"a,b\n1,2\n")
    with bad_argument(ValueError, None, "file", "holds no points of an exploration"):
        hw.explore(space, NET, keep=path)
    assert path.read_bytes() == b"a,b\n1,2\n"
    with bad_argument(ValueError, "keep", "value"):
        hw.explore(space, NET, keep="s3://bucket/points")
    with pytest.raises(OSError, match="missing"):
        hw.explore(space, NET, keep=tmp_path / "missing" / "points")


def test_a_value_that_is_given_twice_is_one_point() -> None:
    assert len(hw.explore({"vector": [4, 4, 8], "format": ["int8", "int8"]}, NET).table) == 2


def test_a_larger_space_is_drawn_from_and_the_same_every_time() -> None:
    space = {"vector": [4, 8, 16, 32], "entries": [4, 8, 16]}
    one, again, other = (hw.explore(space, NET, budget=3, seed=seed) for seed in (1, 1, 2))
    assert len(one.table) == 3 and one.table == again.table != other.table


def test_points_that_cannot_be_built_say_why() -> None:
    found = hw.explore({"dataflow": ["ws", "rs"], "sum_kib": 6}, NET)
    assert [row["dataflow"] for row in found.table] == ["ws"]
    assert found.refused == [
        {"dataflow": "rs", "sum_kib": 6, "format": "int8",
         "reason": "design: dataflow is 'rs', expected one of ws, ws-los, os-lws"}
    ]  # fmt: skip
    assert "1 refused" in repr(found)


def test_the_figure_has_every_point(found: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = found.plot(tmp_path / "front.svg")
    dots = [line for line in figure.axes[0].lines if line.get_gid() == "dot"]
    assert sum(len(line.get_xdata()) for line in dots) == len(found.table)
    names = {words.get_text() for words in figure.axes[0].texts} - {""}  # of a line to a name
    front = found.pareto(found.objective[:2])
    assert names == {" ".join(str(row[key]) for key in found.varied) for row in front}  # only these are named
    assert (tmp_path / "front.svg").stat().st_size > 1000
    with bad_argument(ValueError, None, "value", "energy alone, expected two columns"):
        hw.explore({}, NET, "energy").plot()


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        (ValueError, ({"lane": [8]},), "space has 'lane', which is not one of its names; the nearest are lanes"),
        (ValueError, ({"lanes": []},), "space has no values of lanes"),
        (ValueError, ({"lanes": [0]}, "digits"), "no point runs the networks; the first one: design: lanes is 0"),
        (ValueError, ({"clock": [float("nan")]}, "digits"), "space has nan for clock, expected finite numbers"),
        (TypeError, ([8],), "space is \\[8\\], expected a mapping"),
        (ValueError, ({}, []), "networks is empty"),
        (ValueError, ({}, "digit"), "'digit' is not a built-in network; the nearest are digits"),
        (ValueError, ({}, "digits", "accuracy"), "objective has 'accuracy', expected columns among energy, seconds"),
        (ValueError, ({}, "digits", ()), "objective is empty"),
    ],
)
def test_refusals(kind: type[Exception], arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(kind, match=words):
        hw.explore(*arguments)


def test_refusals_of_options() -> None:
    with bad_argument(ValueError, "workers", "value"):
        hw.explore({}, NET, workers="two")
    with bad_argument(ValueError, "workers", "value"):
        hw.explore({}, NET, workers=0)
    with bad_argument(TypeError, "study", "type"):
        hw.explore({}, NET, study=3)


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    study, table = tmp_path / "study.json", tmp_path / "points.csv"
    study.write_text(json.dumps({"rows": STUDY}))
    options = ["--set", "lanes=8,16", "--set", "format=int8,int4", "--study", str(study)]
    code = main(["explore", "digits", *options, "--objective", "energy,-accuracy", "--csv", str(table), "--json"])
    record = json.loads(capsys.readouterr().out)
    assert code == 0 and len(record["table"]) == 4 and len(record["pareto"]) == 2
    assert len(table.read_text().splitlines()) == 5
    assert main(["explore", "digits", *options, "--all"]) == 0
    out = capsys.readouterr().out
    assert out.count("int4") == 2 and "4 points in energy, area, of 4" in out
    assert main(["explore", "digits", "--set", "lanes"]) == 2
    assert "--set is 'lanes', expected NAME=VALUE" in capsys.readouterr().err
    study.write_text("[]")
    assert main(["explore", "digits", *options]) == 1
    assert "has no rows, expected what heterocompute study --json printed" in capsys.readouterr().err
