"""Machines that skip zeros: EIE and SCNN."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache

from row import Row, machines

from heterocompute import hardware as hw
from heterocompute.hardware.accelerators import AcceleratorReport
from heterocompute.hardware.accelerators.densities import DENSITIES
from heterocompute.hardware.accelerators.sparse import dense_energy

EIE, SCNN = "Han et al., ISCA 2016", "Parashar et al., ISCA 2017"
FULLY_CONNECTED = ("fc6", "fc7", "fc8")
NETWORKS = "alexnet_original", "vgg16", "googlenet"


@cache
def matrices(depth: int = 8) -> AcceleratorReport:
    """Return AlexNet's fully connected layers on EIE."""
    return machines.eie(depth).report("alexnet_original", layers=FULLY_CONNECTED)


@cache
def filled(density: float) -> AcceleratorReport:
    """Return AlexNet's last layer with one density of weights and inputs."""
    zeros = {"fc8": {"W": density, "I": density, "O": 1.0}}
    return machines.eie().report("alexnet_original", layers=("fc8",), zeros=zeros)


@cache
def outer_products(network: str, density: float | None = None) -> AcceleratorReport:
    """Return the convolutions of a network on SCNN whose densities are published, or with one density of both."""
    names = [name for name in DENSITIES[network] if not name.startswith("fc")]
    zeros = None if density is None else {name: dict.fromkeys("WIO", density) for name in names}
    return machines.scnn().report(network, layers=names, zeros=zeros)


def speed_up(network: str, density: float | None = None) -> float:
    """Return the time of SCNN's dense rival over that of SCNN."""
    layers = outer_products(network, density).layers
    return sum(layer.detail["dense_cycles"] for layer in layers) / sum(layer.cycles for layer in layers)


def energy_of(network: str, density: float | None = None) -> float:
    """Return the energy of SCNN over that of its dense rival."""
    layers = outer_products(network, density).layers
    return sum(layer.picojoules for layer in layers) / sum(layer.detail["dense_energy"] for layer in layers)


def gated(network: str, density: float | None = None) -> float:
    """Return the energy in pJ of the dense rival that stops at zeros and stores activations without them."""
    found = 0.0
    loops = {one.name: one for one in hw.networks[network].problems()}
    for layer in outer_products(network, density).layers:
        shares = DENSITIES[network][layer.name] if density is None else dict.fromkeys("WIO", density)
        found += sum(dense_energy(loops[layer.name], shares).values())
    return found


def over_gated(density: float) -> float:
    """Return the energy of SCNN over that of the gated rival, on GoogLeNet."""
    return sum(layer.picojoules for layer in outer_products("googlenet", density).layers) / gated("googlenet", density)


def gating(network: str) -> float:
    """Return the energy of the plain dense rival over that of the gated one."""
    layers = outer_products(network).layers
    return sum(layer.detail["dense_energy"] for layer in layers) / gated(network)


def mean(of: Callable[[str], float]) -> float:
    """Return the geometric mean over the three networks."""
    return math.prod(map(of, NETWORKS)) ** (1 / len(NETWORKS))


def crossover(gain: Callable[[float], float]) -> float:
    """Return the density of both operands at which SCNN gains nothing over a rival."""
    places = [(density, math.log(gain(density))) for density in (0.7, 0.75, 0.8, 0.85, 0.9)]
    pairs = zip(places, places[1:], strict=False)
    low, high = next((a, b) for a, b in pairs if a[1] >= 0 > b[1])
    return low[0] + (high[0] - low[0]) * low[1] / (low[1] - high[1])


def zeros_skipped() -> Iterator[Row]:
    """EIE and SCNN."""
    yield Row("eie", "peak, 10^9 operations/s", 102, lambda: machines.eie().peak() / 1e9, 0.01, EIE)
    yield Row("eie", "AlexNet's fully connected layers, frames/s", 18800, lambda: 1 / matrices().seconds, 0.25, EIE)
    yield Row(
        "eie",
        "AlexNet's fully connected layers, mW",
        590,
        lambda: 1e3 * matrices().watts,
        0.25,
        EIE,
        missed="no clock, no leakage of 10 MB of SRAM, no control",
    )
    equal = lambda: 2 * matrices().macs / matrices().seconds / 1e12  # noqa: E731
    yield Row("eie", "AlexNet's fully connected layers, 10^12 operations/s of the dense matrices", 3, equal, 0.25, EIE)
    yield Row(
        "eie",
        "AlexNet's fc8, half of weights and of inputs zero: speed over dense (efficient even then)",
        (2.0, 4.0),
        lambda: filled(1.0).seconds / filled(0.5).seconds,
        0.0,
        "Dally, lectures on hardware for deep learning; 4 if no product were lost",
    )
    for name, bandwidth, published, missed in (
        ("Core i7-5930K", 68e9, 189, "the roof of its memory; the paper measured a library that stays far below it"),
        ("Titan X", 336.5e9, 13, ""),
    ):
        yield Row(
            "eie",
            f"AlexNet's fully connected layers, one image: times as fast as a {name} reading dense fp32 at its roof",
            published,
            lambda bandwidth=bandwidth: 4 * matrices().macs / bandwidth / matrices().seconds,
            0.25,
            EIE + ", abstract: mean of nine layers; bandwidths of the vendors' sheets (from memory)",
            missed=missed,
        )
    yield Row("scnn", "peak, 10^12 operations/s", 2, lambda: machines.scnn().peak() / 1e12, 0.03, SCNN)
    for network, published in zip(NETWORKS, (2.37, 3.52, 2.19), strict=True):
        yield Row(
            "scnn",
            f"{network}, convolutions, speed over the dense rival's",
            published,
            lambda network=network: speed_up(network),
            0.15,
            SCNN,
        )
    yield Row("scnn", "the three, mean speed over the dense rival's", 2.7, lambda: mean(speed_up), 0.15, SCNN)
    for density, published in ((1.0, 0.79), (0.1, 24.0)):
        yield Row(
            "scnn",
            f"GoogLeNet, density {density:g} of both operands, speed over the dense rival's",
            published,
            lambda density=density: speed_up("googlenet", density),
            0.15,
            SCNN,
        )
    even = lambda: crossover(lambda density: speed_up("googlenet", density))  # noqa: E731
    yield Row("scnn", "GoogLeNet, density of both operands at equal speed", 0.85, even, 0.10, SCNN)
    yield from energies()


def energies() -> Iterator[Row]:
    """SCNN's energy beside that of its dense rivals, the plain one and the one that stops at zeros."""
    rival = "the dense rival's energy over SCNN's"
    yield Row("scnn", f"the three, mean: {rival}", 2.3, lambda: 1 / mean(energy_of), 0.15, SCNN)
    kept = "weights are most of what DRAM moves for one image, and this rival keeps their zeros"
    yield Row(
        "scnn",
        "the three, mean: the dense rival's energy over that of one that stops at zeros",
        2.0,
        lambda: mean(gating),
        0.15,
        SCNN,
        missed=kept,
    )
    full = lambda: energy_of("googlenet", 1.0)  # noqa: E731
    yield Row("scnn", "GoogLeNet, density 1 of both operands: energy over the dense rival's", 1.33, full, 0.15, SCNN)
    yield Row(
        "scnn",
        "GoogLeNet, density 0.1 of both operands: energy over the dense rival's",
        0.06,
        lambda: energy_of("googlenet", 0.1),
        0.15,
        SCNN,
        missed="a tenth of the weights, each with 4 bits of run, is an eighth of the rival's traffic of DRAM",
    )
    even = lambda: crossover(lambda density: 1 / energy_of("googlenet", density))  # noqa: E731
    yield Row("scnn", "GoogLeNet, density of both operands at equal energy", 0.83, even, 0.10, SCNN)
    gate = lambda: crossover(lambda density: 1 / over_gated(density))  # noqa: E731
    what = "GoogLeNet, density of both operands at the energy of the rival that stops at zeros"
    yield Row("scnn", what, 0.60, gate, 0.10, SCNN, missed=kept)
