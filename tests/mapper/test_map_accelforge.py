"""Stored results of AccelForge 1.0.467: set ACCELFORGE to the folder of its unpacked wheel (``tests/*.json`` in it)."""

from __future__ import annotations

import ast
import itertools
import json
import math
import os
import re
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
TPU = [
    ("GlobalBuffer", 8 * 2**27, "WIO", 1, 1, 8),
    ("LocalBuffer", 8 * 2**22, "IO", 4, 1, 8),
    ("Register", 8, "W", 65536, 1, 8),
]
MACHINES: dict[str, tuple[Any, int, float]] = {
    "eyeriss": (EYERISS, 168, 200e6), "simba": (SIMBA, 1024, 0.0), "tpu_v4i": (TPU, 65536, 0.0),
}  # fmt: skip
Gemm = tuple[int, int, int, int]  # count, M, N, K


def gemms(case: str) -> dict[str, Gemm]:
    """Return the matmuls of a workload by name."""
    name = case.partition("|")[0]
    if name == "matmuls":
        return {f"Matmul{i}": (1, 64, 64, 64) for i in range(2)}
    if name == "three_matmuls_annotated":
        return {f"Matmul{i}": (1, 128, 128, 128) for i in range(1, 4)}
    (path,) = Path(str(FOLDER)).rglob(f"{name}.yaml")
    text = path.read_text()
    variables = dict(re.findall(r"set (\w+) = \w+ \| default\((\d+)\)", text))
    sizes = {}
    for rank, value in re.findall(r"^    ([A-Z]\w*): (.+)$", text, re.MULTILINE):
        word = value.split("#")[0].strip().strip("{} ")
        sizes[rank.lower()] = math.prod(int(variables.get(one.strip(), one)) for one in word.split("*"))
    found = {}
    for output, out, left, right in re.findall(r'"(\w+)\[([^]]*)\] = \w+\[([^]]*)\] \* \w+\[([^]]*)\]"', text):
        o, i, w = ({one.split(":")[-1].strip() for one in part.split(",")} for part in (out, left, right))
        product = [math.prod(sizes[one] for one in some) for some in (o & i & w, (o & i) - w, (o & w) - i, (i & w) - o)]
        found[output] = (product[0], product[1], product[2], product[3])
    return found


CASES = [
    (name, case)
    for name in MACHINES
    for case in ("matmuls|KN=64,M=64,N_EINSUMS=2", "three_matmuls_annotated|", "gpt3_6.7B|", "gpt3_6.7B_kv_cache|",
                 "gpt3_175B|", "gpt3_175B_kv_cache|")
    if ("175B" in case) == (name == "tpu_v4i") or "gpt3" not in case
]  # fmt: skip


@pytest.mark.parametrize("name, case", CASES)
def test_energy_times_delay(name: str, case: str) -> None:
    """With the stored energy of each action the search is at most 2 % worse than their mapper, unfused.

    Compared are the matmuls. Loops may spread over all multipliers here; theirs spread in two directions.
    """
    wanted = stored("regression_reference.json")[f"{name}|{case}|unfused"]
    costs = stored("hwcomponents_expected.json")[name]
    levels, macs, clock = MACHINES[name]
    mac = costs["MAC"]["actions"]["compute"]
    clock = clock or mac["throughput"]

    def rate(name: str, verb: str) -> float | None:
        throughput = float(costs[name]["actions"][verb]["throughput"]) / BITS / clock
        return throughput if math.isfinite(throughput) else None

    def level(name: str, bits: int | None, keeps: str, instances: int, access: int, word: int, **more: Any) -> Level:
        read, write = (costs[name]["actions"][verb]["energy"] * 1e12 * word / access for verb in ("read", "write"))
        leak = costs[name].get("leak_power", 0.0) / clock * 1e12
        words = None if bits is None else bits // word
        if not more and math.isfinite(speed := costs[name]["actions"]["read"]["throughput"]):
            more = {"bandwidth": 256.0 if (name, macs) == ("GlobalBuffer", 168) else speed / word / clock}
        return Level(name, words, frozenset(keeps), read, write, write, leak, instances=instances, **more)

    first, ports = levels[0], {}
    if name == "tpu_v4i":
        ports = {"read_bandwidth": rate("GlobalBuffer", "read"), "write_bandwidth": rate("GlobalBuffer", "write")}
    energy = delay = their_energy = their_delay = 0.0
    known: dict[tuple[int, int, int], Any] = {}
    for einsum, (count, m, n, k) in gemms(case).items():
        best = known.get((m, n, k))
        for kept in () if best else itertools.chain(*(itertools.combinations(first[2], i) for i in range(4))):
            outer = [
                level("MainMemory", None, "WIO", 1, 1, BITS, bandwidth=rate("MainMemory", "read")),
                level(first[0], first[1], "".join(kept), *first[3:], **ports),
            ]
            arch = Arch([*outer, *(level(*one) for one in levels[1:])], mac["energy"] * 1e12, macs)
            found = search(Problem.gemm(m, n, k), arch, budget=40_000, threads=1, progress=False).stats
            if best is None or found.edp < best.edp:
                best = found
        known[m, n, k] = best
        leak = costs["MAC"].get("leak_power", 0.0) * best.cycles / clock * macs  # the multipliers leak, too
        energy, delay = energy + count * (best.energy * 1e-12 + leak), delay + count * best.cycles / clock
        mine = [{ast.literal_eval(key): value for key, value in wanted[which].items()}
                for which in ("energy_per_component", "latency_per_component")]  # fmt: skip
        their_energy += sum(value for key, value in mine[0].items() if key[0] == einsum)
        their_delay += max(value for key, value in mine[1].items() if key[0] == einsum)
    assert their_energy and their_delay
    ratio = energy * delay / their_energy / their_delay
    assert ratio <= 1.02, ratio
