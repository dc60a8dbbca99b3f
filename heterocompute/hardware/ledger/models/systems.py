"""Links, switches, training on many devices, voltage and clock."""

from __future__ import annotations

from ...systems import multi
from ...systems.arithmetic import dvfs
from ...systems.multi.chiplets import chiplets

__all__ = [
    "bisection",
    "chiplet_ms",
    "eyeriss_at",
    "link_ratio",
    "pipeline_gain",
    "reduced",
    "tensor_parallel_share",
]


def link_ratio(row: str) -> float:
    """Return the ratio of the rates of a generation of NVLink and its predecessor."""
    return multi.NVLINK[int(row)].rate / multi.NVLINK[int(row) - 1].rate


def bisection(fabric: str, count: int, other: str = "") -> float:
    """Return 10^12 B/s between two halves of a fabric, or its ratio to another fabric's."""
    found = multi.fabric(fabric, count).bisection
    return found / multi.fabric(other, count).bisection if other else found / 1e12


def reduced(row: str) -> float:
    """Return the rate, in 10^9 B/s, at which this many H100 reduce through switches that add."""
    count = int(row)
    return multi.reduce_bandwidth(count, multi.fabric("dgx-h100-nvlink", count), "switch") / 1e9


def pipeline_gain(row: str, pieces: int) -> float:
    """Return the speed of this many stages relative to two stages and one piece."""
    return float(multi.pipeline_parallel(int(row), pieces)["speedup"] / multi.pipeline_parallel(2, 1)["speedup"])


def tensor_parallel_share(width: int, blocks: int, count: int) -> float:
    """Return the percentage of linear scaling of a GPT-2 split over V100s that each reach 39e12 operations/s.

    Outputs are recomputed, so there are six sums per block.
    """
    tokens, positions, words = 8 * 1024, 1024, 51_200
    operations = 96 * tokens * blocks * width**2 * (1 + positions / (6 * width) + words / (16 * blocks * width))
    fabric = multi.fabric("dgx-2", count)
    found = multi.tensor_parallel(operations / 39e12, 2 * tokens * width, blocks, count, fabric, 6)
    return 100 * float(found["efficiency"])


def eyeriss_at(volts: str, clock: str, figure: str) -> float:
    """Return frames/s, or 10^9 multiply-adds per joule, of Eyeriss at another voltage, from its figures at 1 V."""
    found = dvfs("278 mW", f"{1 / 34.7} s", ("1 V", volts), ("200 MHz", clock))
    return 1 / found["time"].value if figure == "frames" else 0.665784864 / found["energy"].value


def chiplet_ms(network: str) -> float:
    """Return ms of a network on Simba's 36 chiplets with their links."""
    return 1e3 * chiplets(network).seconds
