"""Stored results of AccelForge 1.0.467: set ACCELFORGE to the folder of its unpacked wheel (``tests/*.json`` in it)."""

from __future__ import annotations

import ast
import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from heterocompute.hardware.mapper import Arch, Level, Mapping, Problem, evaluate, search

FOLDER = os.environ.get("ACCELFORGE")
pytestmark = pytest.mark.skipif(not FOLDER, reason="ACCELFORGE is not the folder of its wheel")
BITS = 8


def stored(name: str) -> Any:
    return json.loads((Path(str(FOLDER)) / "tests" / name).read_text())


def einsums(case: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(ast.literal_eval(key)[0] for key in case["actions"]))  # texts of tuples


def test_one_mapping_is_forced_on_the_simple_machine() -> None:
    """Main memory is as cheap as the buffer, so every word of every multiply-add comes from it."""
    checked = 0
    for key, case in stored("regression_reference.json").items():
        if not key.startswith("simple|"):
            continue
        for name in einsums(case):
            actions = {
                ast.literal_eval(one)[1:]: count
                for one, count in case["actions"].items()
                if ast.literal_eval(one)[0] == name
            }
            macs = int(actions["MAC", "None", "compute"])
            written = {tensor for (level, tensor, verb), count in actions.items() if verb == "write" and count}
            levels, tensors = {one[0] for one in actions}, {one[1] for one in actions if one[0] != "MAC"}
            if len(written) != 1 or len(tensors) != 3 or levels != {"MainMemory", "MAC"}:  # no product, or a choice
                continue
            (output,) = written
            outputs = (macs * BITS - int(actions["MainMemory", output, "read"])) // BITS
            problem = Problem(
                {"M": outputs, "K": macs // outputs}, {"W": [{"K": 1}, {"M": 1}], "I": [{"K": 1}, {"M": 1}],
                                                       "O": [{"M": 1}]}, output="O",
            )  # fmt: skip
            memory = Level("MainMemory", read=BITS, write=BITS, update=BITS)
            loops = Mapping({"MainMemory": [("M", outputs), ("K", macs // outputs)]})
            found = evaluate(problem, Arch([memory], mac=1.0), loops)
            wanted = sum(pj for one, pj in case["energy_per_component"].items() if ast.literal_eval(one)[0] == name)
            assert found.energy == wanted, (key, name)
            assert found["MainMemory", "O"].updates * BITS == actions["MainMemory", output, "write"]
            assert found.cycles == case["latency_per_component"][str((name, "MAC"))]
            checked += 1
    assert checked > 20


EYERISS = [  # name, bits of an instance, tensors, instances, bits of an access, bits of a word
    ("GlobalBuffer", 1024 * 1024, "WIO", 1, 64, 8),
    ("InputScratchpad", 12 * 16, "I", 168, 1, 8),
    ("WeightScratchpad", 192 * 16, "W", 168, 1, 8),
    ("OutputScratchpad", 16 * 16, "O", 168, 1, 8),
]
SIMBA = [
    ("GlobalBuffer", 524288, "IO", 1, 1, 8),
    ("InputBuffer", 65536, "I", 16, 1, 8),
    ("WeightBuffer", 262144, "W", 16, 1, 8),
    ("AccumulationBuffer", 24576, "O", 16, 1, 24),
    ("Register", 8, "W", 1024, 1, 8),
]
CASES = [(64, "matmuls|KN=64,M=64,N_EINSUMS=2"), (128, "three_matmuls_annotated|")]


@pytest.mark.parametrize("size, case", CASES)
@pytest.mark.parametrize(
    "name, levels, macs, clock",
    [("eyeriss", EYERISS, 168, 200e6), ("simba", SIMBA, 1024, 0.0)],
    ids=["eyeriss", "simba"],
)
def test_energy_times_delay(name: str, levels: Any, macs: int, clock: float, size: int, case: str) -> None:
    """With the stored energy of each action the search is at most 2 % worse than their mapper, unfused.

    Loops may spread over all multipliers here; theirs spread in two directions.
    """
    wanted = stored("regression_reference.json")[f"{name}|{case}|unfused"]
    costs = stored("hwcomponents_expected.json")[name]
    mac = costs["MAC"]["actions"]["compute"]
    clock = clock or mac["throughput"]
    rate = costs["MainMemory"]["actions"]["read"]["throughput"] / BITS / clock

    def level(name: str, bits: int | None, keeps: str, instances: int, access: int, word: int, **more: float) -> Level:
        read, write = (costs[name]["actions"][verb]["energy"] * 1e12 * word / access for verb in ("read", "write"))
        leak = costs[name]["leak_power"] / clock * 1e12
        words = None if bits is None else bits // word
        return Level(name, words, frozenset(keeps), read, write, write, leak, instances=instances, **more)

    best = None
    first = levels[0]
    for kept in itertools.chain.from_iterable(itertools.combinations(first[2], n) for n in range(len(first[2]) + 1)):
        outer = [
            level("MainMemory", None, "WIO", 1, 1, BITS, bandwidth=rate),
            level(first[0], first[1], "".join(kept), *first[3:]),
        ]
        arch = Arch([*outer, *(level(*one) for one in levels[1:])], mac["energy"] * 1e12, macs)
        found = search(Problem.gemm(size, size, size), arch, budget=40_000, threads=1, progress=False).stats
        if best is None or found.edp < best.edp:
            best = found
    assert best is not None
    count = len(einsums(wanted))
    leak = costs["MAC"]["leak_power"] * best.cycles / clock * macs  # the multipliers leak, too
    energy, delay = count * (best.energy * 1e-12 + leak), count * best.cycles / clock
    ratio = energy * delay / wanted["energy"] / wanted["latency"]
    assert ratio <= 1.02, ratio
