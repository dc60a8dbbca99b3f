"""Machines that skip zeros: EIE and SCNN."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

from row import Row, machines

from heterocompute.hardware.accelerators import AcceleratorReport
from heterocompute.hardware.accelerators.densities import DENSITIES

EIE, SCNN = "Han et al., ISCA 2016", "Parashar et al., ISCA 2017"
FULLY_CONNECTED = ("fc6", "fc7", "fc8")


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


def crossover() -> float:
    """Return the density of both operands at which SCNN is as fast as its dense rival, on GoogLeNet."""
    places = [(density, math.log(speed_up("googlenet", density))) for density in (0.7, 0.75, 0.8, 0.85, 0.9)]
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
    yield Row("scnn", "peak, 10^12 operations/s", 2, lambda: machines.scnn().peak() / 1e12, 0.03, SCNN)
    for network, published in (("alexnet_original", 2.37), ("vgg16", 3.52), ("googlenet", 2.19)):
        yield Row(
            "scnn",
            f"{network}, convolutions, speed over the dense rival's",
            published,
            lambda network=network: speed_up(network),
            0.15,
            SCNN,
        )
    names = "alexnet_original", "vgg16", "googlenet"
    mean = lambda: math.prod(map(speed_up, names)) ** (1 / len(names))  # noqa: E731
    yield Row("scnn", "the three, mean speed over the dense rival's", 2.7, mean, 0.15, SCNN)
    for density, published in ((1.0, 0.79), (0.1, 24.0)):
        yield Row(
            "scnn",
            f"GoogLeNet, density {density:g} of both operands, speed over the dense rival's",
            published,
            lambda density=density: speed_up("googlenet", density),
            0.15,
            SCNN,
        )
    yield Row("scnn", "GoogLeNet, density of both operands at equal speed", 0.85, crossover, 0.10, SCNN)
