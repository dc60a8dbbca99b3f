"""Published machines as files: sizes, sweeps, mappings of networks, rooflines, studies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import heterocompute as hc
from heterocompute import hardware as hw
from heterocompute.cli import main
from heterocompute.hardware.accelerators.machines.machine import machine_names

LAYER = hw.as_network([hw.layers.Linear(256, 128, bias=False)], (256,))


def test_every_published_machine_is_a_file() -> None:
    assert sorted(hw.accelerators.names()) == machine_names()
    for name in machine_names():
        machine = hw.Machine.named(name)
        built = hw.accelerators.accelerator(name)
        assert machine.name == built.name == name and machine.peak() == built.peak()
        assert machine.accelerator.notes == built.notes and "{" not in repr(built)
        assert all(area >= 0 for area in machine.area.values())


@pytest.mark.parametrize(
    "name, sizes, multipliers",
    [
        ("tpu_v1", {"rows": 128}, 128 * 256),
        ("tpu_v1", {"rows": 8, "columns": 8}, 64),
        ("nvdla", {"channels": 32, "cells": 8}, 256),
        ("diannao", {"neurons": 4}, 64),
        ("eyeriss", {"rows": 6, "columns": 7}, 42),
        ("simba", {"chiplets": 1}, 1024),
        ("magnet", {"dataflow": "ws", "lanes": 8}, 16 * 8 * 16),
        ("groq_lpu", {"chips": 2}, 2 * 409600),
        ("eie", {"elements": 32}, 32),
        ("tensor_core_volta", {"sms": 40}, 40 * 512),
    ],
)
def test_sizes_are_arguments(name: str, sizes: dict[str, Any], multipliers: int) -> None:
    machine = hw.Machine.named(name, **sizes)
    assert machine.multipliers == multipliers and machine.sizes | sizes == machine.sizes
    if name != "eie":
        found = machine.report(LAYER, 4)
        assert found.seconds > 0 and found.energy > 0 and found.macs == 4 * 256 * 128
    if name in ("tpu_v1", "eyeriss", "simba"):
        assert getattr(hw.accelerators, name)(**sizes).formats == machine.accelerator.formats


def test_formats_have_sizes_of_their_own() -> None:
    nvdla = hw.Machine.named("nvdla", cells=16)
    assert nvdla.accelerator.formats == {"int8": 1024, "int16": 512, "fp16": 512}
    assert nvdla.set({"mac.weights": "int16"}).multipliers == 512
    assert nvdla.report(LAYER, format="int16").seconds > nvdla.report(LAYER).seconds
    assert hw.accelerators.nvdla(winograd=True).winograd and "no Winograd" in hw.accelerators.nvdla().notes


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: hw.Machine.named("tpu"), "'tpu' is not a published machine; the nearest are tpu_v1"),
        (lambda: hw.Machine.named("tpu_v1", row=3), "size is 'row', the nearest is rows"),
        (lambda: hw.Machine.named("tpu_v1", rows=0), "count of level 'columns' is 0"),
        (lambda: hw.Machine.named("tpu_v1", rows=1.5), "count of level 'columns' is 1.5"),
        (lambda: hw.Machine.named("tpu_v1", rows=1 << 40), "make more than 16,777,216 multipliers"),
        (lambda: hw.Machine.named("magnet", dataflow="xs"), "size dataflow is 'xs', expected one of ws"),
        (lambda: hw.explore(base="tpu_v1", space={"lanes": [8]}, networks=LAYER), "base and space are given"),
        (lambda: hw.explore(set={"lanes": [8]}, networks=LAYER), "expected base, too"),
        (
            lambda: hw.explore(base="tpu_v1", set={"sizes.row": [8]}, networks=LAYER),
            "key 'row', the nearest is rows",
        ),
        (lambda: hw.explore(base="tpu_v1", set={"cell.kib": [8]}, networks=LAYER), "'cell', the nearest is cells"),
        (lambda: hw.search(LAYER, "tpu_v1", "speed"), "objective is 'speed'"),
        (lambda: hw.search(LAYER, "tpu_v1", format="int3"), "format is 'int3'"),
        (lambda: hw.search(LAYER, "tpu_v1", budget=0), "budget is 0"),
        (lambda: hw.Machine.named("simba").roofline(LAYER), "has no bandwidth"),
        (lambda: hc.study(hc.zoo.adder(), ["int8"], machine="tpu_v1"), "do not tell their layers"),
        (lambda: hc.study(hc.zoo.digits(), ["int8"], network="digits"), "machine=, which is not given"),
    ],
)
def test_wrong_arguments_are_refused_by_name(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_sweep_of_a_base_is_its_reports() -> None:
    found = hw.explore(
        base="tpu_v1", set={"sizes.rows": [64, 128], "unified buffer.kib": [64, 8192]}, networks="digits",
        objective=("energy", "area"),
    )  # fmt: skip
    assert len(found.table) == 4 and found.varied == ("sizes.rows", "unified buffer.kib")
    for row in found.table:
        machine = hw.Machine.named("tpu_v1").set({key: row[key] for key in found.varied})
        report = machine.report("digits")
        assert row["seconds"] == report.seconds and row["dram_energy"] == report.energy_parts["DRAM"]
        assert row["area"] == pytest.approx(sum(machine.area.values())) and row["format"] == "int8"
    joined = hw.explore(
        base="diannao", set={"mac.weights": ["int8", "int4"]}, networks="digits", objective=("energy", "-accuracy"),
        study=[{"format": one, "activations": one, "accuracy": 0.5} for one in ("int8", "int4")],
    )  # fmt: skip
    assert {row["format"]: row["accuracy"] for row in joined.table} == {"int8": 0.5, "int4": 0.5}


def test_a_sweep_is_kept_by_its_base(tmp_path: Path) -> None:
    keep, seen = tmp_path / "points", []
    for base in ("tpu_v1", "nvdla", "tpu_v1"):
        found = hw.explore(base=base, set={"clock": [1e9]}, networks=LAYER, objective="seconds", keep=keep)
        seen.append(found.table[0])
    assert seen[0] == seen[2] != seen[1] and len(keep.read_text().splitlines()) <= 3


def test_a_search_has_the_mappings_of_the_report() -> None:
    found, report = hw.search("digits", "eyeriss"), hw.accelerators.eyeriss().report("digits", zeros={})
    assert found.seconds == report.seconds and found.energy == pytest.approx(report.energy)
    assert [str(found.mappings[one.name]) for one in report.layers] == [one.detail["mapping"] for one in report.layers]
    least = {goal: hw.search("digits", "eyeriss", goal) for goal in ("energy", "delay")}
    assert least["energy"].energy <= least["delay"].energy and least["delay"].seconds <= least["energy"].seconds
    low = hw.Machine.named("diannao", voltage=0.5).set({"overhead.clock": 0.5})
    assert hw.search("digits", low).energy == pytest.approx(low.report("digits").energy)
    assert json.loads(json.dumps(found.to_dict()))["layers"][0]["mapping"]
    assert "conv1" in str(found) and "eyeriss" in repr(found)
    with pytest.raises(NotImplementedError, match="no mappings to search"):
        hw.search("digits", "scnn")


def test_the_command_maps_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", "diannao", "--network", "digits", "--budget", "600", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seconds"] == hw.search("digits", "diannao", budget=600).seconds
    assert main(["map", "diannao", "--network", "digits", "--budget", "600", "--batch", "2"]) == 0
    assert "batch 2" in capsys.readouterr().out
    for wrong, word in (
        (["--network", "digits"], "no FILE"),
        (["a", "b", "--network", "digits"], "one FILE"),
        (["diannao", "--network", "digits", "--html", "x"], "--html does not apply"),
        (["diannao", "--network", "digits", "--dataflow", "ws"], "--dataflow does not apply"),
        (["x.toml", "--batch", "3"], "--batch needs --network"),
    ):
        assert main(["map", *wrong]) in (1, 2)
        assert word in capsys.readouterr().err


def test_a_roofline_is_no_slower_than_the_report() -> None:
    machine = hw.Machine.named("diannao")
    bound, report = machine.roofline("digits", 8), machine.report("digits", 8)
    assert bound.seconds <= report.seconds * 1.001 and bound.peak == machine.peak() and bound.bandwidth == 250e9
    pair = machine.set({"mac.weights": "int4", "mac.activations": "int8"})
    assert pair.roofline("digits").traffic < machine.roofline("digits").traffic


def test_a_study_has_the_cost_of_the_machine() -> None:
    found = hc.study(hc.zoo.digits(), ["int8", "int4"], activations=["int8"], machine="diannao", progress=False)
    rows = {(row["format"], row["activations"]): row for row in found.table}
    report = hw.Machine.named("diannao").set({"mac.weights": "int4", "mac.activations": "int8"}).report("digits")
    assert rows["int4", "int8"]["machine_us"] == report.seconds * 1e6
    assert rows["int4", "int8"]["machine_uj"] == pytest.approx(report.energy * 1e6)
    assert rows["int4", "int8"]["machine_uj"] < rows["int8", "int8"]["machine_uj"] < rows["fp32", None]["machine_uj"]
    assert {row["format"] for row in found.pareto("accuracy", "machine_uj")} <= {"int4", "int8", "fp32"}
    mixed = hc.study(hc.zoo.digits(), {"fc*": "int4"}, machine="diannao", network="digits", progress=False)
    assert mixed.table[-1]["machine_us"] is None


def test_commands_take_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "digits", "--base", "diannao", "--set", "sizes.neurons=8,16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = hw.explore(base="diannao", set={"sizes.neurons": [8, 16]}, networks="digits").table
    assert [row["energy"] for row in found["table"]] == [row["energy"] for row in rows]
    assert main(["explore", "digits", "--base", "diannao", "--set", "sizes.neuron=8"]) in (1, 2)
    assert "neuron" in capsys.readouterr().err
    assert main(["study", "--machine", "diannao", "--formats", "int4", "--activations", "int8", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)["rows"]
    assert all(row["machine_uj"] > 0 for row in table)
    assert main(["study", "--machine", "dianao", "--formats", "int4"]) in (1, 2)
    assert "diannao" in capsys.readouterr().err
