"""Connections between devices: tiers of switches or rings, each with a device's sending rate.

A tier joins `count` groups of the tier below; the innermost joins devices. Rates are B/s one way out of one device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ....base.errors import WrongValue, shown
from ....base.texts import near_words
from ....base.values import as_list, check_count, check_fields, check_number


@dataclass(frozen=True)
class Tier:
    """One level of a fabric.

    Parameters
    ----------
    name : str
    count : int
        Number of devices, or of groups of the tier below, that it joins.
    rate : float
        B/s one way out of one device.
    latency : float, optional
        Seconds of a step from one device to another.
    """

    name: str
    count: int
    rate: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "rate", check_number("Tier", "rate", self.rate))
        object.__setattr__(self, "latency", check_number("Tier", "latency", self.latency, closed=True))


@dataclass(frozen=True)
class Fabric:
    """A system of devices and the links between them.

    Parameters
    ----------
    name : str
    tiers : tuple of Tier
        The innermost first.
    source : str, optional

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> pod = hw.multi.fabric("dgx-a100", 1024)
    >>> pod.count, pod.bisection / 1e12
    (1024, 25.6)
    """

    name: str
    tiers: tuple[Tier, ...]
    source: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        if not as_list(self.tiers, "Fabric: tiers", "one Tier or more") or not all(
            isinstance(tier, Tier) for tier in self.tiers
        ):
            raise WrongValue(f"Fabric: tiers are {shown(self.tiers)}, expected one Tier or more")

    @property
    def count(self) -> int:
        """Return the number of devices."""
        return math.prod(tier.count for tier in self.tiers)

    @property
    def bisection(self) -> float:
        """Return B/s between two halves, both directions together."""
        outermost = next((tier for tier in reversed(self.tiers) if tier.count > 1), self.tiers[-1])
        return self.count / 2 * 2 * outermost.rate

    @property
    def all_to_all(self) -> float:
        """Return B/s received by all devices together in an all-to-all, limited by the rate of each tier."""
        shares, inside = [], 1
        for tier in self.tiers:
            beyond = (self.count - inside) / max(self.count - 1, 1)
            shares.append(tier.rate / beyond if beyond else math.inf)
            inside *= tier.count
        return self.count * min(shares) if self.count > 1 else 0.0

    def of(self, count: int) -> Fabric:
        """Return the fabric with fewer devices, which fill groups in order.

        Parameters
        ----------
        count : int

        Returns
        -------
        Fabric

        Raises
        ------
        ValueError
            The count is larger than the fabric, or groups are partly filled.
        """
        count = check_count("fabric", "count", count)
        if count > self.count:
            raise WrongValue(f"fabric: count is {shown(count)}, {self.name} has {self.count} devices")
        tiers, left = [], count
        for tier in self.tiers:
            here = min(left, tier.count)
            if left % here:
                raise WrongValue(
                    f"fabric: count is {count}, expected a multiple of the {tier.count} devices of one {tier.name}"
                )
            tiers.append(replace(tier, count=here))
            left //= here
        return replace(self, tiers=tuple(tiers))


@dataclass(frozen=True)
class NVLink:
    """A generation of NVLink on its first chip: `rate` is B/s out of the chip over all links, in one direction."""

    year: int
    chip: str
    links: int
    link_rate: float

    @property
    def rate(self) -> float:
        return self.links * self.link_rate


# Links of the chip, B/s of one link one way: NVIDIA, "NVLink and NVSwitch", table of generations.
NVLINK: Mapping[int, NVLink] = MappingProxyType({
    1: NVLink(2016, "p100-sxm2", 4, 20e9), 2: NVLink(2017, "v100-sxm2", 6, 25e9),
    3: NVLink(2020, "a100-sxm-40gb", 12, 25e9), 4: NVLink(2022, "h100-sxm", 18, 25e9),
    5: NVLink(2024, "b200", 18, 50e9),
})  # fmt: skip

# Devices of a node, B/s inside, name of the network, B/s of a device into it, nodes at most, source.
_SYSTEMS: Mapping[str, tuple[int, float, str, float, int, str]] = MappingProxyType({
    "dgx-1-p100": (8, NVLINK[1].rate, "InfiniBand EDR", 4 * 12.5e9 / 8, 128, "NVIDIA, DGX-1: 8 P100, 4 EDR ports"),
    "dgx-1-v100": (8, NVLINK[2].rate, "InfiniBand EDR", 4 * 12.5e9 / 8, 128, "NVIDIA, DGX-1: 8 V100, 4 EDR ports"),
    "dgx-2": (16, NVLINK[2].rate, "InfiniBand EDR", 8 * 12.5e9 / 16, 64, "NVIDIA, DGX-2: 16 V100, 8 EDR ports"),
    "dgx-a100": (8, NVLINK[3].rate, "InfiniBand HDR", 25e9, 140, "NVIDIA, SuperPOD of DGX A100: a 200 Gb/s port a GPU"),
    "dgx-h100": (8, NVLINK[4].rate, "InfiniBand NDR", 50e9, 128, "NVIDIA, SuperPOD of DGX H100: a 400 Gb/s port a GPU"),
    "dgx-h100-nvlink": (8, NVLINK[4].rate, "NVLink switches", NVLINK[4].rate / 2, 32,
                        "NVIDIA, third-generation NVSwitch: up to 256 GPUs, half of the links leave a node"),
})  # fmt: skip

# Seconds of a step of a ring between two devices: NCCL's own tuning table (src/graph/tuning.cc, hwLat of rings with
# protocol LL), for NVLink and for a network. Larger messages use protocols with longer steps: this is a lower bound.
_NVLINK_STEP, _NETWORK_STEP = 0.6e-6, 2.7e-6
_STEPS = {f"InfiniBand {rate}": _NETWORK_STEP for rate in ("EDR", "HDR", "NDR")}


def is_fabric(name: str) -> bool:
    """Tell whether `fabric` knows a system by this name."""
    return name in _SYSTEMS


def fabric(name: str, count: int | None = None) -> Fabric:
    """Return an NVIDIA system by name: NVLink and NVSwitch inside a node, a network between nodes.

    Parameters
    ----------
    name : {"dgx-1-p100", "dgx-1-v100", "dgx-2", "dgx-a100", "dgx-h100", "dgx-h100-nvlink"}
    count : int, optional
        Number of devices. Default: one node. Larger counts need whole nodes; 1,024 are 128 nodes of a SuperPOD.

    Returns
    -------
    Fabric

    Raises
    ------
    ValueError
        The name is unknown, the network joins fewer devices, or a node is partly filled.

    Notes
    -----
    The first NVLink generations of DGX-1 are a cube of rings, not a switch. The rate applies to all-reduce, which uses
    every link, not to two given chips. A step takes 0.6 us inside a node or over NVLink switches, and 2.7 us over
    InfiniBand. Both are from NCCL's tuning table for small messages.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> round(hw.multi.fabric("dgx-h100-nvlink", 256).bisection / 1e12, 1)
    57.6
    """
    if not isinstance(name, str) or name not in _SYSTEMS:
        near = near_words(str(name), _SYSTEMS, 3)
        words = f"; the nearest are {', '.join(near)}" if near else f", expected one of {', '.join(_SYSTEMS)}"
        raise WrongValue(f"fabric: {shown(name)} is not a known system{words}")
    size, inside, network, outside, nodes, source = _SYSTEMS[name]
    tiers = Tier("node", size, inside, _NVLINK_STEP), Tier(network, nodes, outside, _STEPS.get(network, _NVLINK_STEP))
    whole = Fabric(name, tiers, source)
    return whole.of(size if count is None else count)
