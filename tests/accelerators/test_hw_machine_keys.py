"""Every key of a machine file changes an answer, is shown, or is refused; drawn machines have finite costs."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from heterocompute import hardware as hw
from heterocompute.hardware.accelerators.machines.keys import FAN, KEYS, MAC, MEMORY

NET = hw.as_network([hw.layers.Conv2d(12, 24, 3, 1, 1), hw.layers.Conv2d(24, 10, 1)], (12, 10, 10))
ZEROS = {name: {"W": 0.5, "I": 0.4, "O": 0.6} for name in ("0.conv2d", "1.conv2d")}
BASE: dict[str, Any] = {
    "name": "m",
    "process": "16nm",
    "clock": 1e9,
    "level": [
        {"name": "dram", "kind": "ddr3", "bandwidth": 2e9},
        {"name": "buffer", "kib": 8, "count": [4], "spread": ["K"]},
        {"name": "regs", "bytes": 64, "keeps": ["weights", "outputs"]},
    ],
    "mac": {"weights": "int8", "lanes": 2},
}


def answers(machine: hw.Machine) -> str:
    """Return all results of a machine as a text."""
    found = machine.report(NET, 2, zeros=ZEROS).to_dict()
    about = [machine.accelerator.title, machine.accelerator.source, machine.accelerator.year, machine.name]
    return json.dumps([found, machine.area, machine.peak(), about, machine.accelerator.watts, machine.process])


CHANGES: dict[str, Any] = {
    "name": "n", "title": "a title", "source": "a source", "year": 1999, "process": "7nm", "voltage": 0.5,
    "clock": 5e8, "watts": 3.0, "notes": ["a note"], "winograd": True,
    "overhead.clock": 0.3, "overhead.control": 0.2, "overhead.leakage": 0.1,
    "dram.kind": "hbm2", "dram.bandwidth": 1e8, "dram.pj": 3.0, "dram.read_pj": 3.0, "dram.coded": 1.3,
    "dram.masked": ["weights"], "buffer.kib": 1, "buffer.banks": 4, "buffer.width": 8, "buffer.bandwidth": 1e8,
    "buffer.keeps": ["inputs", "outputs"], "buffer.loops": "KC", "buffer.sums": False, "buffer.pj": 1.0,
    "buffer.read_pj": 1.0, "buffer.mm2": 2.0, "buffer.masked": ["inputs"],
    "buffer.wire_pj": 0.5, "buffer.network": "mesh", "buffer.count": [2], "buffer.spread": ["P"],
    "regs.bytes": 16, "mac.lanes": 4, "mac.tree": 8, "mac.spread": "K", "mac.weights": "int4",
    "mac.activations": "int4", "mac.sums": 16, "mac.adder": 64, "mac.zeros": "skip", "mac.pj": 0.3, "mac.mm2": 1.0,
    "mac.operations": 100,
}  # fmt: skip
TOGETHER: list[dict[str, Any]] = [
    {"mac.zeros": "gate", "mac.gates": ["weights"]},
    {"mac.zeros": "gate", "buffer.idle": ["inputs"]},
    {"buffer.kib": 64},
    {"buffer.kib": 64, "resident": "buffer"},
    {"mac.instruction_pj": 30, "mac.instruction_macs": 8},
    {"buffer.network": "crossbar", "buffer.network_bits": 1},
    {"mac.kind": "cim", "mac.adc_bits": 4, "mac.cell_pj": 0.01},
    {"mac.kind": "cim", "mac.adc_bits": 5, "mac.cell_pj": 0.01},
    {"mac.kind": "cim", "mac.adc_bits": 5, "mac.cell_pj": 0.01, "mac.adc_pj": 2.0},
    {"mac.kind": "cim", "mac.adc_bits": 5, "mac.cell_pj": 0.01, "mac.cell_bits": 2},
    {"mac.kind": "cim", "mac.adc_bits": 5, "mac.cell_pj": 0.01, "mac.input_bits": 2},
]


def test_every_key_changes_an_answer() -> None:
    base = hw.Machine(BASE)
    before = answers(base)
    seen = {before}
    for path, value in CHANGES.items():
        after = answers(base.set({path: value}))
        assert after != before, path
    for changes in TOGETHER:
        after = answers(base.set(changes))
        assert after not in seen, changes
        seen.add(after)
    tried = {path.rpartition(".")[2] for path in [*CHANGES, *(key for each in TOGETHER for key in each)]}
    elsewhere = {"entries", "when", "device", "sizes", "formats", "level", "mac", "overhead", "model", "holds", "chips"}
    assert {*KEYS, *MEMORY, *FAN, *MAC} - tried - elsewhere == set()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"regs.wire_pj": 1}, "wire_pj, expected count"),
        ({"regs.network": "mesh"}, "network, expected count"),
        ({"buffer.network": "tree"}, "network of level 'buffer' is 'tree'"),
        ({"buffer.network_bits": 8}, "network_bits, expected a network"),
        ({"buffer.coded": 1.0}, "coded, which only DRAM has"),
        ({"buffer.entries": 4}, "entries, which only latches have"),
        ({"dram.banks": 4}, "banks, which DRAM does not have"),
        ({"dram.mm2": 4}, "mm2, which DRAM does not have"),
        ({"dram.width": 4}, "width, which DRAM does not have"),
        ({"mac.gates": ["weights"]}, "gates of mac"),
        ({"mac.zeros": "gate", "mac.gates": ["outputs"]}, "gates of mac"),
        ({"mac.adc_bits": 4}, "adc_bits, which only kind = 'cim' has"),
        ({"mac.kind": "cim"}, "expected adc_bits, cell_pj"),
        ({"mac.kind": "cim", "mac.adc_bits": 4, "mac.cell_pj": 0.1, "mac.pj": 1.0}, "expected adc_bits, cell_pj"),
        ({"mac.kind": "cim", "mac.adc_bits": 4, "mac.cell_pj": 0.1, "mac.zeros": "skip"}, "rows run together"),
        ({"mac.kind": "analog"}, "kind of mac is 'analog'"),
        ({"mac.instruction_pj": 4}, "one of instruction_pj and instruction_macs"),
        ({"resident": "bufer"}, "resident is 'bufer', the nearest is buffer"),
        ({"overhead.clocks": 1}, "key 'clocks', the nearest is clock"),
        ({"overhead.clock": -1}, "clock of overhead is -1"),
        ({"model": "scn"}, "model is 'scn', the nearest is scnn"),
        ({"model": "scnn"}, "model and level"),
        ({"sizes.rows": 3}, "size is 'rows'"),
        ({"buffer.idle": ["inputs"]}, "idle, expected zeros of mac"),
        ({"chips": 2}, "expected holds"),
        ({"sizes": {"rows": 3}}, "size rows is read by no key"),
        ({"sizes": {"mac": 3}}, "the name 'mac', which is that of a value"),
        ({"sizes": {"a b": 3}}, "expected letters, digits"),
        ({"sizes": {"a": -3}}, "size a is -3"),
        ({"buffer.kib": "a * 2"}, "the name 'a'"),
        ({"buffer.kib": "2 *"}, "joined by"),
        ({"buffer.kib": "* 2"}, "joined by"),
        ({"buffer.kib": "2 2"}, "joined by"),
        ({"buffer.kib": "2 / 0"}, "divides by 0"),
        ({"buffer.kib": "9e30 * 9e30"}, "more than 1e30"),
        ({"buffer.kib": "1" * 300}, "expected at most 200"),
        ({"buffer.kib": "__import__('os')"}, "the name '__import__'"),
        ({"buffer.kib": "device.bandwidth"}, "the name 'device.bandwidth'"),
        ({"device": "h200x"}, "h200x"),
        ({"formats": {}}, "formats is"),
        ({"formats": {"int8": {"rows": 1}}}, "key 'rows'"),
        ({"notes": ["x"] * 99}, "more than 64 texts"),
        ({"dram.kind": "latches"}, "expected entries and width"),
        ({"regs.kind": "sram"}, ""),
        ({"regs.bytes": {"weights": 4}}, "expected a size for each of weights, outputs"),
        ({"buffer.count": [1, 2, 3, 4, 5, 6, 7, 8, 9], "buffer.spread": ["K"] * 9}, "9 counts, expected at most 8"),
    ],
)
def test_keys_that_do_not_fit_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    base = hw.Machine(BASE)
    if not message:
        assert answers(base.set(changes)) == answers(base)  # the default, said
        return
    with pytest.raises(ValueError, match="Machine|device") as caught:
        base.set(changes)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_texts_of_a_file_are_shown_without_control_characters() -> None:
    texts = {"name": "\x1b[31mred", "title": "a\x07b", "notes": ["\x1b]0;x"]}
    machine = hw.Machine(BASE).set(texts)
    found = machine.report(NET)
    for text in (repr(machine), repr(machine.accelerator), found.summary(), *found.notes):
        assert "\x1b" not in text and "\x07" not in text


def test_models_read_their_sizes() -> None:
    scnn = hw.Machine.named("scnn")
    for changes, message in (
        ({"sizes": {"side": 8}}, "model scnn has no size accumulators"),
        ({"sizes.side": 0}, "size side is 0"),
        ({"sizes.queue": -1}, "size queue is -1"),
        ({"sizes.side": 1 << 30}, "expected at most"),
        ({"winograd": True}, "model and winograd"),
    ):
        with pytest.raises(ValueError, match=message):
            scnn.set(changes)
    cycles = [scnn.set({"sizes.queue": queue}).report(NET, zeros=ZEROS).seconds for queue in (0, 64, 4, 1)]
    assert cycles == sorted(cycles) and cycles[0] < cycles[3]
    crossed = scnn.set({"sizes.crossbar": True}).report(NET, zeros=ZEROS)
    assert crossed.energy_parts["movement"] > 0 == scnn.report(NET, zeros=ZEROS).energy_parts["movement"]


def drawn(rng: random.Random) -> dict[str, Any]:
    """Return the table of a machine drawn at random."""
    level: list[dict[str, Any]] = [{"name": "dram", "kind": rng.choice(("ddr3", "hbm2", "lpddr4", "lpddr5"))}]
    if rng.random() < 0.6:
        level[0]["bandwidth"] = 10 ** rng.uniform(8, 12)
    for i in range(rng.randint(1, 3)):
        kind = rng.random()
        one: dict[str, Any] = {"name": f"m{i}"}
        if kind < 0.7:
            one["kib"] = rng.choice((0.25, 1, 8, 64))
            one["keeps"] = rng.sample(["weights", "inputs", "outputs"], rng.randint(1, 3))
            one |= rng.choice(({}, {"banks": 4}, {"width": 64, "banks": 2}, {"bandwidth": 1e10}, {"sums": False}))
        if kind > 0.4:
            one["count"] = [rng.choice((1, 2, 3, 16)) for _ in range(rng.randint(1, 2))]
            one["spread"] = [rng.choice(("K", "C", "PQ", "KCRS")) for _ in one["count"]]
            if rng.random() < 0.5:
                one["network"] = rng.choice(("mesh", "multicast", "crossbar"))
                if rng.random() < 0.5:
                    one["network_bits"] = rng.choice((8, 256))
        level.append(one)
    mac: dict[str, Any] = {"weights": rng.choice(("int8", "int4", "fp16", "int8+2:4", "vsq4-g16-s4"))}
    mac |= rng.choice(({}, {"lanes": 4}, {"activations": "int8"}, {"sums": 24, "zeros": rng.choice(("gate", "skip"))}))
    table = {"name": "drawn", "process": rng.choice(("65nm", "16nm", "5nm")), "clock": 1e9, "level": level, "mac": mac}
    return table | rng.choice(({}, {"voltage": 0.6}, {"overhead": {"clock": 0.4, "leakage": 0.01}}))


@pytest.mark.parametrize("seed", range(12))
def test_drawn_machines_have_finite_costs_that_add_up(seed: int) -> None:
    rng = random.Random(seed)
    machine = hw.Machine(drawn(rng))
    report = machine.report(NET, rng.choice((1, 3)), zeros=rng.choice(({}, ZEROS)))
    record = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert record["seconds"] > 0 and record["energy"] > 0 and record["macs"] == report.macs
    assert all(math.isfinite(part) and part >= 0 for part in record["energy_parts"].values())
    assert math.isclose(sum(record["energy_parts"].values()), record["energy"])
    for layer in report.layers:
        assert layer.cycles >= layer.work > 0 and layer.cycles >= layer.inside
    if machine.accelerator.skipped == "":
        pattern = 2 if "2:4" in machine.format else 1
        assert report.utilisation <= pattern * 1.0001
    assert all(math.isfinite(area) and area >= 0 for area in machine.area.values())
    twice = hw.Machine(machine.table)
    assert twice.report(NET, report.batch, zeros=rng.choice(({},))).macs == report.macs


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sweep(every=6)
def test_more_of_a_resource_never_costs_more(seed: int) -> None:
    rng = random.Random(100 + seed)
    base = hw.Machine(BASE).set({"dram.bandwidth": 10 ** rng.uniform(8, 11), "buffer.pj": 0.05})
    net = NET
    small, large = (base.set({"buffer.kib": kib}).report(net) for kib in (1, 64))
    assert large.energy * large.seconds <= small.energy * small.seconds * 1.0001
    slow, fast = (base.set({"dram.bandwidth": rate}).report(net) for rate in (1e8, 1e11))
    assert fast.seconds <= slow.seconds * 1.0001
    none, gate, skip = (base.set({"mac.zeros": zeros}).report(net, zeros=ZEROS) for zeros in ("none", "gate", "skip"))
    assert skip.energy <= gate.energy <= none.energy and skip.seconds <= gate.seconds == none.seconds
    wide, narrow = (base.set({"buffer.network": "mesh", "buffer.network_bits": bits}).report(net) for bits in (512, 1))
    assert wide.seconds <= narrow.seconds
    assert base.set({"overhead.clock": 0.5}).report(net).energy > base.report(net).energy


@pytest.mark.parametrize("sizes", [{"side": -1}, {"banks": 0}, {"banks": 10**400}, {"queue": 1 << 30}, {"crossbar": 3}])
def test_sizes_of_a_format_are_checked_as_those_of_the_machine(sizes: dict[str, Any]) -> None:
    table = {key: value for key, value in hw.Machine.named("scnn").table.items() if key != "level"}
    with pytest.raises((ValueError, TypeError), match=f"Machine: size {next(iter(sizes))} is "):
        hw.Machine({**table, "formats": {"int16": sizes}}).report("digits", format="int16", input_shape=(1, 8, 8))
