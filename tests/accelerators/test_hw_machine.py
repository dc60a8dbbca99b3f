"""A machine of a TOML file: energies that follow from its parts, sweeps, errors, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from common import bad_argument

from heterocompute import hardware as hw
from heterocompute.cli import main

TEXT = """
name = "mine"
process = "7 nm"
voltage = 0.8
clock = 1e9                       # Hz
level = [
  {name = "dram", kind = "lpddr5", bandwidth = 50e9},
  {name = "buffer", kib = 512, width = 256, banks = 8, keeps = ["inputs", "weights", "outputs"]},
  {name = "pe", count = [16, 16], spread = ["K", "C"]},
  {name = "regs", bytes = 256, keeps = ["weights"]},
]
mac = {lanes = 8, weights = "int4", activations = "int8", sums = 24, zeros = "gate"}
"""
DIANNAO = {
    "name": "diannao",
    "process": "65nm",
    "clock": 0.98e9,
    "level": [
        {"name": "DRAM", "kind": "ddr", "pj": 20, "bandwidth": 250e9},
        {"name": "NBin", "kib": 2, "keeps": ["inputs"]},
        {"name": "SB", "kib": 32, "banks": 16, "keeps": ["weights"]},
        {"name": "NBout", "kib": 2, "keeps": ["outputs"], "sums": False, "count": 16, "spread": "K"},
    ],
    "mac": {"weights": "int16", "sums": 40, "lanes": 16},
}
LAYER = hw.layers.Linear(256, 128, bias=False)


@pytest.fixture
def mine(tmp_path: Path) -> hw.Machine:
    (tmp_path / "mine.toml").write_text(TEXT)
    return hw.Machine.read(tmp_path / "mine.toml")


def test_a_published_machine_as_a_file_has_its_own_figures() -> None:
    """DianNao from kinds and sizes alone: the same seconds and joules by part as the built-in one."""
    own, built = hw.Machine(DIANNAO), hw.accelerators.diannao()
    for network in ("resnet18", "alexnet_original"):
        found, wanted = own.report(network), built.report(network)
        assert found.seconds == wanted.seconds and found.energy_parts == wanted.energy_parts


def test_parts_follow_from_the_table(mine: hw.Machine) -> None:
    assert (mine.multipliers, mine.format, mine.peak()) == (2048, "int4 x int8", 2 * 2048e9)
    assert "2,048 multipliers" in repr(mine) and mine.process == "7nm" and mine.voltage == 0.8
    regs = 256 * hw.Machine({**mine.table, "level": mine.table["level"][:2]}).area["buffer"] * 256 / (512 * 1024)
    assert mine.area["regs"] == pytest.approx(regs)
    report = mine.report(LAYER, 4, input_shape=(256,))
    assert report.format == "int4 x int8" and report.voltage == 0.8 and report.batch == 4
    low = mine.report(LAYER, 4, input_shape=(256,), voltage=0.4)
    chip = report.energy - report.energy_parts["DRAM"]
    assert low.energy - low.energy_parts["DRAM"] == pytest.approx(chip / 4)


def test_a_sweep_changes_one_value(mine: hw.Machine) -> None:
    moved = [mine.set({"buffer.kib": kib}).report("digits", 16).dram_bytes for kib in (1, 4, 16, 64)]
    assert moved == sorted(moved, reverse=True) and moved[0] > moved[-1]
    other = mine.set({"clock": 5e8, "mac.weights": "int8", "regs.pj": 0})
    assert (other.clock, other.format, mine.format) == (5e8, "int8", "int4 x int8")
    given = mine.set({"mac.pj": 1.0, "mac.zeros": "none", "voltage": 0.7}).report(LAYER, input_shape=(256,))
    assert given.energy_parts["arithmetic"] == pytest.approx(256 * 128 * 1e-12)


def test_a_narrow_buffer_takes_time(mine: hw.Machine) -> None:
    wide, narrow = (mine.set({"buffer.width": width, "buffer.banks": 1}).report("digits", 16) for width in (4096, 8))
    assert narrow.seconds > 2 * wide.seconds and narrow.bound == "memory"


def table(**changes: Any) -> dict[str, Any]:
    level = [{"name": "dram", "kind": "ddr3"}, {"name": "buffer", "kib": 64}]
    return {"name": "m", "process": "16nm", "clock": 1e9, "mac": {"weights": "int8"}, "level": level} | changes


def levels(*added: dict[str, Any]) -> dict[str, Any]:
    return table(level=[{"name": "dram", "kind": "ddr3"}, *added])


@pytest.mark.parametrize(
    "given, message",
    [
        (table(clok=1), "file has key 'clok', the nearest is clock"),
        ({"name": "m"}, "file has no process"),
        (table(process="3nm"), "process is '3nm', expected one of 65nm"),
        (table(voltage=0), "voltage is 0"),
        (table(level=[]), "level has 0 tables, expected 1 to 24"),
        (table(level=[{"name": str(i), "kib": 1} for i in range(99)]), "level has 99 tables"),
        (table(level=[{"name": "a", "kib": 1, "keeps": ["inputs"]}]), "'a' is the outermost, expected a memory"),
        (table(level=[{"name": "a", "count": 2, "spread": "K"}]), "'a' is the outermost"),
        (table(level=[{"name": "d", "kind": "lpdr4"}]), "'lpdr4', the nearest is lpddr4; another kind needs pj"),
        (table(level=[{"name": "d", "kind": "ddr3", "kib": 4}]), "is DRAM, which has no size"),
        (levels({"name": "b", "kib": 4, "keeps": []}), "'b' keeps nothing, expected some of weights, inputs"),
        (levels({"name": "b", "kib": 4, "keeps": ["weight"]}), "'weight', the nearest is weights"),
        (levels({"name": "b"}), "neither kind, kib, bytes nor count"),
        (levels({"name": "b", "kib": 4, "bytes": 4}), "kib and bytes, expected one"),
        (levels({"name": "b", "kib": 0}), "kib of level 'b' is 0"),
        (levels({"name": "b", "kib": 4, "widht": 8}), "key 'widht', the nearest is width"),
        (levels({"name": "b", "kib": 4, "width": 8, "bandwidth": 1e9}), "width and bandwidth, expected one"),
        (levels({"name": "b", "count": [4, 4], "spread": ["K"]}), "2 counts and 1 spreads"),
        (levels({"name": "b", "count": [4], "spread": ["X"]}), "spread of level 'b' is 'X', expected letters of"),
        (levels({"name": "b", "count": [0], "spread": ["K"]}), "count of level 'b' is 0"),
        (levels({"name": "b", "count": [1 << 30], "spread": ["K"]}), "make more than 16,777,216 multipliers"),
        (levels({"name": "b", "count": 4, "spread": "K", "banks": 2}), "banks, which only a memory has"),
        (levels({"name": "b", "kib": 1}, {"name": "b", "kib": 1}), "two levels have the name 'b'"),
        (table(mac={"weights": "int8", "zeros": "skp"}), "zeros of mac is 'skp', expected one of none, gate, skip"),
        (table(mac={"weights": "int8", "sums": 999}), "sums of mac is 999, expected at most 128"),
        (table(mac={"lanes": 8}), "mac has no weights"),
    ],
)
def test_a_wrong_table_is_refused_in_one_sentence(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="Machine: ") as caught:
        hw.Machine(given)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_other_types_and_files_are_refused(tmp_path: Path, mine: hw.Machine) -> None:
    for given in (3, table(mac=3), table(level=3), table(level=[3])):
        with pytest.raises(TypeError, match="Machine: "):
            hw.Machine(given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a format"):
        hw.Machine(table(mac={"weights": "int99x"}))
    with bad_argument(TypeError, "changes", "type"):
        mine.set(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Machine.set: level is 'bufer', the nearest is buffer"):
        mine.set({"bufer.kib": 3})
    for text in ("name = ", "a" + ".a" * 5000 + " = 1", "x = " + "[" * 3000, "#" * (1 << 17)):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(ValueError, match=r"bad\.toml"):
            hw.Machine.read(tmp_path / "bad.toml")
    with pytest.raises(OSError, match="none"):
        hw.Machine.read(tmp_path / "none.toml")


def test_the_command_runs_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], mine: hw.Machine) -> None:
    path = str(tmp_path / "mine.toml")
    assert main(["accelerators", "digits", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = mine.report("digits")
    assert found["accelerator"] == "mine" and found["energy"] == pytest.approx(wanted.energy)
    assert main(["accelerators", "digits", path, "--voltage", "0.4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["energy"] < wanted.energy
    assert main(["accelerators", "digits", str(tmp_path / "other.toml")]) == 1
    assert "other.toml" in capsys.readouterr().err
