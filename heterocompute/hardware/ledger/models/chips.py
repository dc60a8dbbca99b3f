"""Peaks, ridge points and memories of chips; gains of a chip over another; rates at a roof."""

from __future__ import annotations

import math
from typing import Any

from ...accelerators.catalogue import accelerator
from ...chips.database import device
from ...cost.estimates import doubling_time
from ...cost.roofline import roofline
from ...network.builtin import networks
from ...silicon.speedup import INSTRUCTIONS, explain_gain, overhead, series
from ...systems.arithmetic import ratio as quantity_ratio
from ...systems.saturation import hbm_bandwidth, utilization

__all__ = [
    "active_share",
    "attainable",
    "busy_steps",
    "clock_peak",
    "device_figure",
    "device_ratio",
    "doubling",
    "fetch_left",
    "gain",
    "gain_part",
    "instruction_overhead",
    "machine_peak",
    "macs_a_cycle",
    "ridge",
    "served_over_largest",
    "served_rate",
    "sm_active",
    "stacks",
    "times_over",
    "tokens_ratio",
    "tpu_over",
    "tpu_over_all",
    "two_times",
    "waves",
    "yearly_gain",
]

#: Multiply-adds per byte of weights on the TPU: table 1 of Jouppi et al.; for matrices it is the batch.
REUSE = {"MLP0": 200, "MLP1": 168, "LSTM0": 64, "LSTM1": 96, "CNN0": 2888, "CNN1": 1750}
#: Batch of MLP0 on CPU and GPU within its 7 ms (section 4); also used for the other networks of matrices.
SERVED = 16


def machine_peak(machine: str, format: str | None = None, unit: float = 1e12, share: float = 1.0) -> float:
    """Return the peak of one of `hw.accelerators`, in operations/s."""
    return accelerator(machine).peak(format) * share / unit


def macs_a_cycle(format: str, machine: str) -> float:
    """Return the multiply-adds per cycle."""
    one = accelerator(machine)
    return one.peak(format) / one.clock / 2


def clock_peak(name: str, dtype: str = "fp16") -> float:
    """Return 10^12 operations/s from units, operations of each per clock, and clock."""
    return math.prod(device(name).clock[dtype]) / 1e12


def ridge(name: str, dtype: str) -> float:
    """Return multiply-adds per byte at the ridge of the roofline."""
    return device(name).ridge(dtype) / 2


def device_figure(name: str, figure: str, key: str = "", sparse: bool = False, unit: float = 1.0) -> float:
    """Return a figure of a device: a peak, a link, or operations per watt."""
    one = device(name)
    if figure == "peak":
        return one.peak(key, sparse=sparse) / unit
    if figure == "links":
        return one.links[key] / unit
    return one.peak(key, sparse=sparse) / one.need("tdp") / unit


def device_ratio(name: str, other: str, figure: str = "peak", key: str = "", other_key: str = "") -> float:
    """Return a peak or a bandwidth over another device's."""
    if figure == "peak":
        return device(name).peak(key) / device(other).peak(other_key or key)
    return device(name).need(figure) / device(other).need(figure)


def stacks(stacks: int, rate: float, unit: float = 1e9) -> float:
    """Return the bytes/s of HBM stacks with interfaces of 1,024 bits, in units of `unit`."""
    return hbm_bandwidth(stacks, 1024, rate) / unit


def gain(name: str, other: str) -> float:
    """Return the gain of the second device over the first."""
    return float(explain_gain(name, other)["gain"])


def gain_part(part: str, kind: str = "energy") -> float:
    """Return one factor of the gain from a K20X to an A100."""
    return float(explain_gain("k20x", "a100-sxm-40gb")["splits"][kind][part]["value"])


def yearly_gain() -> float:
    """Return the gain per year from a K20X to an A100."""
    return float(next(row for row in series() if row["device"] == "a100-sxm-40gb")["yearly"])


def instruction_overhead(instruction: str) -> float:
    """Return the overhead of an instruction in percent of its arithmetic, at 30 pJ."""
    return overhead(instruction).percent


def fetch_left(instruction: str, other: str) -> float:
    """Return 30 pJ of fetch and decode per operation of an instruction, over those of another one."""
    return INSTRUCTIONS[other].operations / INSTRUCTIONS[instruction].operations


def busy_steps(density: float, lanes: int) -> float:
    """Return the share of the steps of a vector unit in which at least one product is not zero."""
    return 1 - (1 - density**2) ** lanes


def doubling(rate: float) -> float:
    """Return the years to double at a yearly rate."""
    return doubling_time(rate)


def two_times(time: str, other: str) -> float:
    """Return a time over another one."""
    return quantity_ratio(time, other)


def sm_active(blocks: int, name: str) -> float:
    """Return the percentage of multiprocessors that a launch keeps busy."""
    return utilization(blocks, name).sm_active


def waves(blocks: int, name: str, registers: int) -> float:
    """Return the waves of a launch."""
    return utilization(blocks, name, registers=registers).waves


def attainable(
    row: str = "", name: str = "tpu-v1", dtype: str = "int8", reuse: float = 0.0, unit: float = 1e12
) -> float:
    """Return operations/s under the roof if each weight is used `reuse` times, or for one of the six networks."""
    times = reuse or REUSE[row]
    work: list[dict[str, Any]] = [
        {"name": "weights", "operations": 2e6 * times, "bytes": 1e6 * (1 if dtype == "int8" else 4)}
    ]
    found = roofline(work, name, dtype)
    return found.operations / found.seconds / unit


def active_share(row: str) -> float:
    """Return the share of the cycles in which TPU v1's array is active, on one of the six networks at the roof."""
    return attainable(row, unit=1.0) / device("tpu-v1").peak("int8")


def _served(row: str) -> float:
    return REUSE[row] if row.startswith("CNN") else min(REUSE[row], SERVED)


def times_over(row: str, name: str, other: str) -> float:
    """Return the ratio of the rates of two chips, on one of the six networks with fp32 weights."""
    reuse = _served(row)
    return attainable(name=name, dtype="fp32", reuse=reuse) / attainable(name=other, dtype="fp32", reuse=reuse)


def tpu_over(row: str, other: str) -> float:
    """Return the TPU's rate over another device's on one of the six networks."""
    return attainable(row) / attainable(name=other, dtype="fp32", reuse=_served(row))


def tpu_over_all(other: str, watts: bool = False) -> float:
    """Return the geometric mean of `tpu_over` over the six networks, or of operations/J at the thermal limits."""
    mean = math.exp(sum(math.log(tpu_over(row, other)) for row in REUSE) / len(REUSE))
    return mean * device(other).need("tdp") / device("tpu-v1").need("tdp") if watts else mean


def served_rate(name: str, dtype: str, batch: int) -> float:
    """Return inferences/s of MLP0, 20e6 weights, at the roof."""
    return attainable(name=name, dtype=dtype, reuse=batch, unit=40e6)


def served_over_largest(name: str, dtype: str, batch: int, largest: int) -> float:
    """Return the rate of MLP0 at a batch over that at the largest batch."""
    return served_rate(name, dtype, batch) / served_rate(name, dtype, largest)


def tokens_ratio(name: str, dtype: str, other: str, other_dtype: str) -> float:
    """Return tokens/s of one user of Llama 7B after 1,024 others, relative to another device."""
    token = networks["llama_7b"].decoding(1024)
    return roofline(token, other, other_dtype).seconds / roofline(token, name, dtype).seconds
