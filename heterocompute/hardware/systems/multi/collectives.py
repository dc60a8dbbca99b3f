"""The time of collectives: an all-reduce as a ring, as trees, or with switches that add; and related operations.

For n devices with S bytes each, and a rate B one way out of each:
ring    2 (n - 1) steps of S / n:                     2 (n - 1) / n S / B + 2 (n - 1) latency
tree    two trees, each for half of the bytes:        2 S / B + 2 ceil(log2 n) latency
switch  each sends its bytes once and gets the sum:   S / B + 2 latency
A fabric of several tiers reduces inside, then S / n across, and gathers back. Sanders, Speck, Träff, "Two-tree
algorithms for full bandwidth broadcast, reduction and scan", 2009; NCCL calls S / time the algorithm's bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from ....base.errors import WrongValue, shown
from ....base.values import check_choice, check_count, check_flag, check_number
from ...chips.chip import Device
from ...chips.database import device
from .fabric import Fabric, Tier, is_fabric

ALGORITHMS = ("ring", "tree", "switch")


def allreduce(
    size: float,
    count: int,
    link: float | str | Device | Fabric,
    latency: float = 0.0,
    algorithm: str = "ring",
    pipelined: bool = True,
) -> float:
    """Compute the time of an all-reduce.

    Parameters
    ----------
    size : float
        Bytes that each device holds.
    count : int
        Number of devices.
    link : float, str, Device or Fabric
        B/s one way out of each device; or a device, whose fastest link is used (half of the rate of both directions);
        or a fabric, of which `count` devices take part.
    latency : float, optional
        Seconds per step, added to those of the fabric's tiers.
    algorithm : {"ring", "tree", "switch"}, optional
    pipelined : bool, optional
        Whether pieces are pipelined through the tiers of a fabric, so that the slowest tier counts. Otherwise the times
        of the tiers add up.

    Returns
    -------
    float
        Seconds.

    Raises
    ------
    ValueError
        A count or link is not positive, a size or latency is negative, the device has no links, or the algorithm is
        unknown.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> round(hw.multi.allreduce(1e9, 8, "a100-sxm-80gb") * 1e3, 3)
    5.833
    >>> pod = hw.multi.fabric("dgx-a100", 1024)
    >>> [round(hw.multi.allreduce(1e9, 1024, pod, algorithm=way) * 1e3, 2) for way in ("ring", "tree")]
    [10.62, 10.04]
    """
    count = check_count("multi.allreduce", "count", count)
    pipelined = check_flag("multi.allreduce", "pipelined", pipelined)
    size = check_number("multi.allreduce", "size", size, closed=True)
    latency = check_number("multi.allreduce", "latency", latency, closed=True)
    check_choice("multi.allreduce", "algorithm", algorithm, ALGORITHMS)
    tiers = link.of(count).tiers if isinstance(link, Fabric) else (Tier("links", count, link_rate(link)),)
    moving, waiting = [], 0.0
    for tier in tiers:
        moved, steps = _tier(algorithm, tier.count)
        moving.append(moved * size / tier.rate)
        waiting += steps * (latency + tier.latency)
        size /= tier.count
    return (max(moving) if pipelined else sum(moving)) + waiting


#: For each collective among n devices: the share of its bytes that pass the busiest link in one direction, and its
#: steps.
COLLECTIVES: Mapping[str, Callable[[int], tuple[float, float]]] = {
    "broadcast": lambda n: (1.0, math.ceil(math.log2(n))),
    "reduce": lambda n: (1.0, math.ceil(math.log2(n))),
    "scatter": lambda n: ((n - 1) / n, math.ceil(math.log2(n))),
    "gather": lambda n: ((n - 1) / n, math.ceil(math.log2(n))),
    "all-gather": lambda n: ((n - 1) / n, n - 1),
    "reduce-scatter": lambda n: ((n - 1) / n, n - 1),
    "all-to-all": lambda n: ((n - 1) / n, n - 1),
}


def collective(kind: str, size: float, count: int, link: float | str | Device, latency: float = 0.0) -> float:
    """Compute the time of a collective other than an all-reduce, at the bandwidth of the busiest link.

    Parameters
    ----------
    kind : {"broadcast", "reduce", "scatter", "gather", "all-gather", "reduce-scatter", "all-to-all"}
    size : float
        Bytes: of the whole at the root (broadcast, reduce, scatter, gather), of the whole that each device ends or
        begins with (all-gather, reduce-scatter), that each device has for all devices (all-to-all).
    count : int
        Number of devices.
    link : float, str or Device
        B/s one way out of each device, or a device, whose fastest link is used (half of the rate of both directions).
    latency : float, optional
        Seconds per step.

    Returns
    -------
    float
        Seconds; 0 for one device.

    Raises
    ------
    ValueError
        The kind is unknown, a count or link is not positive, a size or latency is negative, or the device has no links.

    Notes
    -----
    Broadcast and reduce are pipelined along a chain or trees, so each link passes the bytes once. An all-reduce by a
    ring is a reduce-scatter and an all-gather. Chan et al., "Collective communication: theory, practice, and
    experience", 2007.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> parts = [hw.multi.collective(kind, 1e9, 8, 300e9) for kind in ("reduce-scatter", "all-gather")]
    >>> sum(parts) == hw.multi.allreduce(1e9, 8, 300e9)
    True
    """
    name = "multi.collective"
    check_choice(name, "kind", kind, COLLECTIVES)
    count = check_count(name, "count", count)
    size = check_number(name, "size", size, closed=True)
    latency = check_number(name, "latency", latency, closed=True)
    rate = link_rate(link)
    if count == 1:
        return 0.0
    share, steps = COLLECTIVES[kind](count)
    return share * size / rate + steps * latency


def reduce_bandwidth(count: int, link: float | str | Device | Fabric, algorithm: str = "ring") -> float:
    """Compute the bytes/s at which data of each device are reduced: size over the time of a large all-reduce.

    Parameters
    ----------
    count, link, algorithm
        As in `allreduce`.

    Returns
    -------
    float
        B/s; infinite for one device.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.multi.reduce_bandwidth(8, hw.multi.fabric("dgx-h100"), "switch") / 1e9
    450.0
    """
    if isinstance(link, Fabric):  # the steps of a large all-reduce take no time that counts
        link = replace(link, tiers=tuple(replace(tier, latency=0.0) for tier in link.tiers))
    seconds = allreduce(1.0, count, link, algorithm=algorithm)
    return 1 / seconds if seconds else math.inf


def link_rate(link: float | str | Device) -> float:
    """Return B/s one way of a link: a number, or a device's fastest link."""
    if isinstance(link, (int, float)):
        return check_number("multi", "link", link)
    if isinstance(link, str) and is_fabric(link):
        raise WrongValue(f"multi: link {shown(link)} is a system of devices, expected multi.fabric({shown(link)})")
    one = device(link)
    if not one.links:
        raise WrongValue(f"{one.name}: no link is known; pass link in B/s")
    return max(one.links.values()) / 2


def _tier(algorithm: str, count: int) -> tuple[float, float]:
    """Return the bytes that leave a device for each byte that it holds, and the steps."""
    if count == 1:
        return 0.0, 0.0
    if algorithm == "ring":
        return 2 * (count - 1) / count, 2.0 * (count - 1)
    if algorithm == "tree":
        return 2.0, 2.0 * math.ceil(math.log2(count))
    return 1.0, 2.0
