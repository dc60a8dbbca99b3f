"""GPU utilization: one launch measured in four ways, and the waves in which its blocks run.

NVML counts time in which any kernel runs. SM active is the share of multiprocessors with at least one warp, averaged
over them and over time; occupancy the share of resident warps; tensor active the share of time in which matrix
units run. Blocks of a launch last equally long. Each multiprocessor holds as many as its threads, registers and shared
memory allow. Blocks that run at once are a wave, and the last wave lasts as long as a full one.
NVIDIA, "Matrix multiplication background", 3.2 (waves); DCGM, "Profiling metrics"; its programming guide (limits).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from ...base.errors import WrongValue, shown
from ...base.lazy import renamed
from ...base.notebooks.shown import Facts
from ...base.values import as_int, check_count, check_number
from ..chips.chip import Device
from ..chips.database import device as find_device

WARP = 32


class _Limits(NamedTuple):
    """The limits of one multiprocessor: threads, blocks, registers, bytes of shared memory."""

    threads: int
    blocks: int
    registers: int
    shared: int


# By compute capability: NVIDIA's C++ programming guide, technical specifications.
_LIMITS: Mapping[str, _Limits] = MappingProxyType({
    "3.5": _Limits(2048, 16, 65536, 48 << 10), "5.2": _Limits(2048, 32, 65536, 96 << 10),
    "6.0": _Limits(2048, 32, 65536, 64 << 10), "6.1": _Limits(2048, 32, 65536, 96 << 10),
    "7.0": _Limits(2048, 32, 65536, 96 << 10), "7.5": _Limits(1024, 16, 65536, 64 << 10),
    "8.0": _Limits(2048, 32, 65536, 164 << 10), "8.6": _Limits(1536, 16, 65536, 100 << 10),
    "8.9": _Limits(1536, 24, 65536, 100 << 10), "9.0": _Limits(2048, 32, 65536, 228 << 10),
})  # fmt: skip

# Beginning of a device's name: multiprocessors, compute capability. Longer beginnings first.
_CHIPS: tuple[tuple[str, int, str], ...] = (
    ("k20x", 14, "3.5"), ("m40", 24, "5.2"), ("p100", 56, "6.0"), ("p40", 30, "6.1"), ("p4", 20, "6.1"),
    ("v100", 80, "7.0"), ("quadro-rtx8000", 72, "7.5"), ("t4", 40, "7.5"), ("a100", 108, "8.0"), ("a800", 108, "8.0"),
    ("a30", 56, "8.0"), ("a10", 72, "8.6"), ("a40", 84, "8.6"), ("rtx3090", 82, "8.6"), ("rtx-a6000", 84, "8.6"),
    ("l40", 142, "8.9"), ("rtx4090", 128, "8.9"), ("h100-pcie", 114, "9.0"), ("h800-pcie", 114, "9.0"),
    ("h100-sxm", 132, "9.0"), ("h800-sxm", 132, "9.0"), ("h200", 132, "9.0"),
)  # fmt: skip


def _multiprocessors(function: str, one: Device) -> tuple[int, _Limits]:
    """Return the number of multiprocessors of a chip, and the limits of each."""
    for begin, count, version in _CHIPS:
        if one.name.startswith(begin):
            return count, _LIMITS[version]
    words = ", ".join(begin for begin, *_ in _CHIPS)
    raise WrongValue(f"{function}: the multiprocessors of {one.name} are not known here; those of {words} are")


@dataclass(frozen=True)
class Utilization(Facts):
    """The result of `utilization`. Percentages refer to the time that `nvml` is a share of.

    Attributes
    ----------
    device : str
    sms, blocks, blocks_per_sm : int
        Multiprocessors; blocks of the launch; blocks that one multiprocessor holds at once.
    bound : str
        Resource that limits the blocks per multiprocessor: threads, blocks, registers, shared memory.
    waves : int
    wave_efficiency : float
        Percent of the block slots of all waves that are used.
    nvml, sm_active, occupancy, tensor_active : float
        Percent.
    """

    device: str
    sms: int
    blocks: int
    blocks_per_sm: int
    bound: str
    waves: int
    wave_efficiency: float
    nvml: float
    sm_active: float
    occupancy: float
    tensor_active: float

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON.

        Returns
        -------
        dict
        """
        return asdict(self)


@renamed(chip="device")
def utilization(
    blocks: int,
    device: str | Device = "a100-sxm-40gb",
    threads: int = 256,
    *,
    registers: int = 32,
    shared: int = 0,
    tensor_share: float = 0.0,
    busy_share: float = 1.0,
    sms: int | None = None,
) -> Utilization:
    """Compute the readings of GPU utilization meters for a launch.

    Parameters
    ----------
    blocks : int
        Blocks of the launch.
    device : str or Device, optional
    threads : int, optional
        Threads per block, up to 1,024.
    registers : int, optional
        Registers per thread.
    shared : int, optional
        Bytes of shared memory per block.
    tensor_share : float, optional
        Share of a block's time in which the matrix units of its multiprocessor run.
    busy_share : float, optional
        Share of the sampled time in which the kernel runs; the rest is idle.
    sms : int, optional
        Multiprocessors. Default: those of the chip, if known.

    Returns
    -------
    Utilization

    Raises
    ------
    ValueError
        The chip's multiprocessors are unknown, a block fits on none, or a share is outside 0 to 1.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> one = hw.systems.utilization(1, "a100-sxm-40gb")
    >>> one.nvml, round(one.sm_active, 2)
    (100.0, 0.93)
    >>> tiles = hw.systems.utilization(109, "a100-sxm-40gb", registers=255)    # one block of a large tile on each
    >>> tiles.waves, round(tiles.wave_efficiency, 1)
    (2, 50.5)
    """
    name = "utilization"
    blocks = check_count(name, "blocks", blocks)
    threads = as_int(threads, f"{name}: threads", 1, 1024)
    registers = as_int(registers, f"{name}: registers", 1, 255)
    shared = as_int(shared, f"{name}: shared", 0)
    tensor_share = check_number(name, "tensor_share", tensor_share, high=1.0, closed=True)
    busy_share = check_number(name, "busy_share", busy_share, high=1.0, closed=True)
    one = find_device(device)
    known, limits = _multiprocessors(name, one)
    count = known if sms is None else check_count(name, "sms", sms)
    warps = -(-threads // WARP)
    held = {
        "threads": limits.threads // (warps * WARP),
        "blocks": limits.blocks,
        "registers": limits.registers // (-(-registers // 8) * 8 * warps * WARP),
        "shared memory": limits.shared // shared if shared else limits.blocks,
    }
    bound = min(held, key=lambda what: held[what])
    each = held[bound]
    if not each:
        raise WrongValue(
            f"{name}: a block of {threads} threads, {registers} registers and {shown(shared)} bytes of shared "
            "memory does not "
            f"fit on a multiprocessor of {one.name}: too much for its {bound}"
        )
    slots = count * each
    waves = -(-blocks // slots)
    last = blocks - (waves - 1) * slots
    active = (waves - 1 + min(last, count) / count) / waves
    resident = blocks * warps / (count * waves * (limits.threads // WARP))
    percent = 100 * busy_share
    return Utilization(one.name, count, blocks, each, bound, waves, 100 * blocks / (waves * slots), percent,
                       percent * active, percent * resident, percent * active * tensor_share)  # fmt: skip


@renamed(chip="device")
def saturating_sms(device: str | Device, latency: float, bytes_a_thread: int = 16, threads: int | None = None) -> int:
    """Compute how many multiprocessors saturate a chip's memory, by Little's law.

    Bytes in flight are bandwidth times latency; each thread of a multiprocessor has one load in flight.

    Parameters
    ----------
    device : str or Device
    latency : float
        Seconds from a load to its data.
    bytes_a_thread : int, optional
        Bytes in flight per thread: 16 is one 128-bit load.
    threads : int, optional
        Threads per multiprocessor. Default: the maximum.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        The chip's multiprocessors or bandwidth are unknown, a number is not positive, or the result exceeds the
        multiprocessors of the chip.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> [hw.systems.saturating_sms("a100-sxm-40gb", 500e-9, bytes_a_thread=n) for n in (16, 8)]
    [24, 48]
    """
    name = "saturating_sms"
    one = find_device(device)
    bytes_a_thread = check_count(name, "bytes_a_thread", bytes_a_thread)
    count, limits = _multiprocessors(name, one)
    held = limits.threads if threads is None else as_int(threads, f"{name}: threads", 1, limits.threads)
    flying = one.need("bandwidth") * check_number(name, "latency", latency)
    needed = math.ceil(flying / (held * bytes_a_thread))
    if needed > count:
        raise WrongValue(
            f"{name}: {one.name} needs {needed} multiprocessors for {flying:.4g} bytes in flight and has {count}; "
            "more threads or wider loads need fewer"
        )
    return needed


def hbm_bandwidth(stacks: int, width_bits: int, rate: float) -> float:
    """Compute the bandwidth of stacked memory: stacks x width x rate / 8, all controllers at their full rate.

    Parameters
    ----------
    stacks : int
        Stacks that the product uses; a die may have one more.
    width_bits : int
        Width of one stack: 1,024 from HBM to HBM3E.
    rate : float
        Bits/s of one pin, twice the memory clock.

    Returns
    -------
    float
        B/s.

    Raises
    ------
    ValueError
        A number is not positive.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> round(hw.systems.hbm_bandwidth(5, 1024, 2.43e9) / 1e9)
    1555
    """
    stacks = check_count("hbm_bandwidth", "stacks", stacks)
    width_bits = check_count("hbm_bandwidth", "width_bits", width_bits)
    return stacks * width_bits * check_number("hbm_bandwidth", "rate", rate) / 8
