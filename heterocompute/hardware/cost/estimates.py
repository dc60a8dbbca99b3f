"""Small formulas: growth, speed-up of a part, export arithmetic, when a copy pays off, the duration of a training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.errors import WrongValue, shown
from ...base.lazy import renamed
from ...base.values import as_list, check_flag, check_number
from ..chips.chip import Device, dtype_bits
from ..chips.database import device as find_device

PETAFLOP_DAY = 1e15 * 86400  # operations


def doubling_time(rate: float) -> float:
    """Compute the doubling time for a growth rate per year: ln 2 / ln(1 + rate).

    Parameters
    ----------
    rate : float
        0.52 is 52 % per year.

    Returns
    -------
    float
        Years.

    Raises
    ------
    ValueError
        The rate is not positive.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> [round(hw.systems.doubling_time(rate), 2) for rate in (0.25, 0.52, 0.23, 0.12, 0.03)]
    [3.11, 1.66, 3.35, 6.12, 23.45]
    """
    return math.log(2) / math.log1p(check_number("doubling_time", "rate", rate))


def amdahl(share: float, speedup: float) -> float:
    """Compute the total speedup if a share of the time becomes faster (Amdahl's law).

    Parameters
    ----------
    share : float
        Share of the time, 0 to 1.
    speedup : float
        Speedup of that share.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        The share is outside 0 to 1, or the speedup is not positive.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.systems.amdahl(0.5, 2), round(hw.systems.amdahl(0.9, 1e9), 6)
    (1.3333333333333333, 10.0)
    """
    share = check_number("amdahl", "share", share, high=1.0, closed=True)
    return 1 / (1 - share + share / check_number("amdahl", "speedup", speedup))


@renamed(chip="device")
def tpp(device: str | Device, io_gb_s: float | None = None) -> dict[str, Any]:
    """Compute the figure of the export rule of October 2022: bits times dense 10^12 operations/s, the largest type.

    Parameters
    ----------
    device : str or Device
    io_gb_s : float, optional
        10^9 B/s to other chips. Default: the device's fastest link, both directions.

    Returns
    -------
    dict
        ``tpp`` (4800 is the limit), ``dtype``, ``io_gb_s`` (600 is the limit; None if unknown), ``listed``: whether
        both limits are reached.

    Raises
    ------
    ValueError
        No dense rate is known.

    Notes
    -----
    This is the arithmetic of a published rule, not advice. TF32 counts with its 19 bits. Vector units are left out.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.systems.tpp("a100-sxm-80gb")["tpp"], round(hw.systems.tpp("h100-sxm")["tpp"])
    (4992.0, 15831)
    """
    one = find_device(device)
    if io_gb_s is not None:
        io_gb_s = check_number("tpp", "io_gb_s", io_gb_s, closed=True)
    bits = {dtype: 19 if dtype == "tf32" else dtype_bits(dtype) for dtype in one.dense_rates}
    found = {dtype: bits[dtype] * rate / 1e12 for dtype, rate in one.dense_rates.items()}
    if not found:
        raise WrongValue(f"{one.name}: no dense rate is known")
    best = max(found, key=lambda dtype: found[dtype])
    links = [rate / 1e9 for rate in one.links.values()]
    io = io_gb_s if io_gb_s is not None else max(links, default=None)
    return {"device": one.name, "tpp": found[best], "dtype": best, "io_gb_s": io,
            "listed": None if io is None else found[best] >= 4800 and io >= 600}  # fmt: skip


def copy_seconds(size: float, link: float | str | Device) -> float:
    """Compute the time to copy bytes over a link, one way.

    Parameters
    ----------
    size : float
        Bytes.
    link : float, str or Device
        B/s one way, or a device, whose PCIe link is used (half of the rate of both directions).

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    ValueError
        The device has no PCIe link, the size is negative, or the link is not positive.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> round(hw.systems.copy_seconds(31.5e9, "a100-sxm-80gb"), 3)
    1.0
    """
    size = check_number("copy_seconds", "size", size, closed=True)
    if isinstance(link, (int, float)):
        return size / check_number("copy_seconds", "link", link)
    one = find_device(link)
    rates = [rate for name, rate in one.links.items() if name.startswith("pcie")]
    if not rates:
        raise WrongValue(f"{one.name}: no PCIe link is known; pass link in B/s")
    return size / (rates[0] / 2)


@renamed(chip="device")
def offload_break_even(
    device: str | Device,
    host: str | Device | float,
    dtype: str = "fp32",
    link: float | None = None,
) -> float:
    """Find the n from which a device multiplies two n x n matrices faster than the host, including copies.

    Copies take 3 n^2 b / link, the matmul 2 n^3 / rate; the host computes at its own rate. The device is faster if
    n (1 / host - 1 / device) > 1.5 b / link.

    Parameters
    ----------
    device : str or Device
    host : str, Device or float
        The alternative machine, or its rate in operations/s.
    dtype : str, optional
    link : float, optional
        B/s one way. Default: the device's PCIe link.

    Returns
    -------
    float
        n; infinite if the device is not faster.

    Raises
    ------
    ValueError
        A device lacks the type or the link.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> round(hw.systems.offload_break_even("a100-sxm-80gb", 1e12, "fp32"))
    201
    """
    one = find_device(device)
    is_rate = isinstance(host, (int, float, np.number))
    host_rate = check_number("offload_break_even", "host", host) if is_rate else find_device(host).peak(dtype)  # type: ignore[arg-type]
    device_rate = one.peak(dtype)
    if device_rate <= host_rate:
        return math.inf
    seconds_a_byte = 1 / check_number("offload_break_even", "link", link) if link is not None else copy_seconds(1, one)
    return 1.5 * dtype_bits(dtype) / 8 * seconds_a_byte / (1 / host_rate - 1 / device_rate)


def training_flops(parameters: float, tokens: float) -> float:
    """Compute the operations of training a transformer: 6 per parameter and token, two forward, four backward.

    Parameters
    ----------
    parameters, tokens : float

    Returns
    -------
    float

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> flops = hw.systems.training_flops(175e9, 300e9)
    >>> flops, round(flops / hw.systems.PETAFLOP_DAY)
    (3.15e+23, 3646)
    """
    return (
        6 * check_number("training_flops", "parameters", parameters) * check_number("training_flops", "tokens", tokens)
    )


@renamed(chip="device")
def training_time(
    parameters: float,
    tokens: float,
    device: str | Device,
    count: int = 1,
    utilization: float = 0.4,
    dtype: str = "bf16",
    recompute: bool = False,
) -> float:
    """Compute the duration of a training: 6 N D / (count x peak x utilization), or 8 N D with recomputation.

    Parameters
    ----------
    parameters, tokens : float
    device : str or Device
    count : int, optional
        Number of devices.
    utilization : float, optional
        Operations of the model over the dense peak of the devices (MFU). The default is an assumption; measured values
        are 0.2 to 0.6. With `recompute` it is the share that the chips compute (HFU).
    dtype : str, optional
    recompute : bool, optional
        Run the forward pass twice: inner outputs are recomputed for the backward pass.

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    ValueError
        The device does not support the type, or a number is not positive.

    Notes
    -----
    8 N D: Narayanan et al., "Efficient large-scale language model training on GPU clusters", SC 2021, section 5.1.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> round(hw.systems.training_time(175e9, 300e9, "v100-sxm2", 10_000, 0.3, "fp16") / 86400, 1)
    9.7
    """
    work = training_flops(parameters, tokens) * (8 / 6 if recompute else 1)
    check_flag("training_time", "recompute", recompute)
    share = check_number("training_time", "utilization", utilization, high=1.0)
    return work / (check_number("training_time", "count", count) * find_device(device).peak(dtype) * share)


def break_even_density(gain_dense: float, floor: float = 0.0, operands: int = 1) -> float:
    """Compute the density below which a sparse machine wins, with cost floor + (cost at 1 - floor) x work.

    Parameters
    ----------
    gain_dense : float
        Cost of the sparse machine on dense data relative to the dense machine: 1.33 is 33 % more.
    floor : float, optional
        Its cost on empty data.
    operands : {1, 2}, optional
        Number of operands with that density. The work is proportional to the density, or to its square if zeros of both
        weights and activations are skipped.

    Returns
    -------
    float
        0 to 1; 1 if it never loses.

    Raises
    ------
    ValueError
        A cost is not positive, or operands is neither 1 nor 2.

    Notes
    -----
    SCNN (Parashar et al., ISCA 2017) runs dense data at 0.79 of the dense machine's speed and with 1.33 of its energy.
    It breaks even at 0.85 in time and 0.83 in energy. Its sweep uses one density for weights and activations, so work
    is proportional to the square: 0.89 and 0.87 here. With one operand it would be 0.79 and 0.75. Its third figure,
    0.60, is against a dense machine that gates zeros, whose cost also falls. Here the dense machine's cost is constant.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> round(hw.break_even_density(1 / 0.79), 2)
    0.79
    >>> round(hw.break_even_density(1 / 0.79, operands=2), 2), round(hw.break_even_density(1.33, operands=2), 2)
    (0.89, 0.87)
    """
    floor = check_number("break_even_density", "floor", floor, closed=True)
    if isinstance(operands, bool) or not isinstance(operands, (int, np.integer)) or operands not in (1, 2):
        raise WrongValue(f"break_even_density: operands is {shown(operands)}, expected 1 or 2")
    slope = check_number("break_even_density", "gain_dense", gain_dense) - floor
    return 1.0 if slope <= 0 else min(1.0, max(0.0, (1 - floor) / slope)) ** (1 / operands)


def overlap(stages: Sequence[float], prefetch: bool = True) -> float:
    """Compute the time of one step of a pipeline: the slowest stage, or without prefetching the sum.

    Parameters
    ----------
    stages : sequence of float
        Seconds: reading, preparing, copying, computing ...
    prefetch : bool, optional

    Returns
    -------
    float

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.systems.overlap([1, 3, 2]), hw.systems.overlap([1, 3, 2], prefetch=False)
    (3.0, 6.0)
    """
    seconds = [
        check_number("overlap", f"stages[{i}]", stage, closed=True)
        for i, stage in enumerate(as_list(stages, "overlap: stages", "seconds"))
    ]
    if not seconds:
        raise WrongValue(f"overlap: stages is {shown(stages)}, expected one or more")
    return max(seconds) if check_flag("overlap", "prefetch", prefetch) else sum(seconds)
