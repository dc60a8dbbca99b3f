"""Machines as files: chips with networks and conflicts, arrays that multiply in memory, machines of other programs."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ...accelerators.catalogue import scnn
from ...accelerators.densities import DENSITIES
from ...accelerators.machines.machine import Machine
from ...accelerators.report import AcceleratorReport
from ...mapper.accesses import evaluate
from ...mapper.arch import Arch, Level
from ...mapper.mapping import Mapping
from ...mapper.problem import Problem

__all__ = ["accelforge", "cim_peak", "cim_rate", "scnn_even", "scnn_speed", "simba_ms", "zigzag"]

#: ZigZag's tpu_like: its costs per access, divided by the bits of an access.
TPU_LIKE: dict[str, Any] = {
    "name": "tpu_like", "process": "28nm", "clock": 1e9,
    "level": [
        {"name": "dram", "kind": "stored", "pj": "750 / 64", "read_pj": "700 / 64", "bandwidth": 8e9},
        {"name": "sram", "kib": 2048, "keeps": ["inputs", "outputs"], "pj": "378.4 / 2048",
         "read_pj": "416.16 / 2048", "bandwidth": 512e9, "count": 32, "spread": "K"},
        {"name": "columns", "count": 32, "spread": "C"},
        {"name": "weights", "bytes": 128, "keeps": ["weights"], "pj": "0.095 / 8"},
        {"name": "sums", "bytes": 2, "keeps": ["outputs"], "pj": "0.021 / 16"},
    ],
    "mac": {"weights": "int8", "sums": 16, "pj": 0.04},
}  # fmt: skip


@cache
def _tpu_like() -> AcceleratorReport:
    return Machine(TPU_LIKE).report("resnet18")


def zigzag(figure: str) -> float:
    """Return pJ or cycles of ResNet-18 on ZigZag's tpu_like machine."""
    found = _tpu_like()
    return found.energy * 1e12 if figure == "energy" else found.seconds * 1e9


@cache
def _queued(network: str, density: float | None = None) -> AcceleratorReport:
    names = [name for name in DENSITIES[network] if not name.startswith("fc")]
    zeros = None if density is None else {name: dict.fromkeys("WIO", density) for name in names}
    return scnn(queue=8, crossbar=True).report(network, layers=names, zeros=zeros)


def scnn_speed(network: str) -> float:
    """Return the speedup of SCNN with queues of eight products over its dense rival."""
    layers = _queued(network).layers
    return sum(float(layer.detail["dense_cycles"]) for layer in layers) / sum(layer.cycles for layer in layers)


def scnn_even() -> float:
    """Return the density of both operands at which GoogLeNet takes as much energy as on the dense rival."""
    densities = (0.7, 0.75, 0.8, 0.85, 0.9)
    gains = []
    for density in densities:
        layers = _queued("googlenet", density).layers
        dense = sum(float(layer.detail["dense_energy"]) for layer in layers)
        gains.append(math.log(dense / sum(layer.picojoules for layer in layers)))
    for i in range(len(gains) - 1):
        if gains[i] >= 0 > gains[i + 1]:
            return densities[i] + (densities[i + 1] - densities[i]) * gains[i] / (gains[i] - gains[i + 1])
    return math.nan


def simba_ms() -> float:
    """Return ms of ResNet-50 on Simba with links of 100 GB/s into the package and into each chiplet."""
    machine = Machine.named("simba")
    link = 8 * 100e9 / machine.clock
    return machine.set({"DRAM.network": "mesh", "DRAM.network_bits": round(link)}).report("resnet50").seconds * 1e3


def accelforge(row: str, size: int, figure: str) -> float:
    """Return pJ or cycles of matmuls on one memory of 1 pJ per bit with one multiplier, 8 bits per value.

    Parameters
    ----------
    row : str
        Number of matmuls.
    size : int
        Of each of the three loops.
    figure : {"energy", "cycles"}
    """
    memory = Level("memory", read=8.0, write=8.0, update=8.0)
    loops = Mapping({"memory": [("M", size), ("N", size), ("K", size)]})
    found = evaluate(Problem.gemm(size, size, size), Arch([memory], mac=1.0), loops)
    return int(row) * (found.energy if figure == "energy" else found.cycles)


def cim_peak() -> float:
    """Return 10^9 operations/s of the array that multiplies in SRAM."""
    return Machine.named("cim_sinangil").peak() / 1e9


def cim_rate() -> float:
    """Return 10^12 operations per joule of the array alone."""
    array = Machine.named("cim_sinangil").accelerator.cim
    assert array is not None
    return 2 / (array.arithmetic + array.conversion)
