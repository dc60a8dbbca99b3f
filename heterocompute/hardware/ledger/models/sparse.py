"""Machines that skip zeros: EIE and SCNN compared with dense machines."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from ...accelerators.catalogue import eie, scnn
from ...accelerators.densities import DENSITIES
from ...accelerators.energies import DRAM, sram
from ...accelerators.mapped import multiplier, multiply_add
from ...accelerators.report import AcceleratorReport
from ...accelerators.sparse import dense_energy
from ...network.builtin import networks
from ...network.layers import Linear
from ...silicon.gate_costs import mux, scaled, sram_area

__all__ = ["dram_over_sram", "eie_frames", "eie_half_energy", "eie_operations", "eie_over_memory", "eie_power",
           "eie_skipping", "eie_stored", "eie_work", "eie_zero_weights", "scnn_active", "scnn_area",
           "scnn_dense_gating", "scnn_energy", "scnn_energy_mean", "scnn_even", "scnn_layer", "scnn_one_pixel",
           "scnn_speed", "scnn_speed_mean", "zero_share"]  # fmt: skip

FULLY_CONNECTED = ("fc6", "fc7", "fc8")
NETWORKS = "alexnet_original", "vgg16", "googlenet"
#: Inputs, outputs, shares of nonzero weights and inputs: EIE, table III.
LAYERS = {
    "Alex-6": (9216, 4096, 0.09, 0.351),
    "Alex-7": (4096, 4096, 0.09, 0.353),
    "Alex-8": (4096, 1000, 0.25, 0.375),
    "VGG-6": (25088, 4096, 0.04, 0.183),
    "VGG-7": (4096, 4096, 0.04, 0.375),
    "VGG-8": (4096, 1000, 0.23, 0.411),
    "NT-We": (4096, 600, 0.10, 1.0),
    "NT-Wd": (600, 8791, 0.11, 1.0),
    "NT-LSTM": (1201, 2400, 0.10, 1.0),
}


@cache
def matrices(depth: int = 8) -> AcceleratorReport:
    """Return AlexNet's fully connected layers on EIE."""
    return eie(depth).report("alexnet_original", layers=FULLY_CONNECTED)


def eie_frames() -> float:
    """Return frames/s of AlexNet's fully connected layers."""
    return 1 / matrices().seconds


def eie_power() -> float:
    """Return mW."""
    return 1e3 * matrices().watts


def eie_operations() -> float:
    """Return 10^12 operations/s of the dense matrices."""
    return 2 * matrices().macs / matrices().seconds / 1e12


@cache
def _filled(density: float) -> AcceleratorReport:
    zeros = {"fc8": {"W": density, "I": density, "O": 1.0}}
    return eie().report("alexnet_original", layers=("fc8",), zeros=zeros)


def eie_half_energy() -> float:
    """Return the energy with half of the weights and inputs over that of a dense machine, on AlexNet's fc8.

    The dense machine is EIE that stores the 4-bit code of every weight, without the 4-bit run next to it.
    """
    dense = _filled(1.0).energy_parts
    return _filled(0.5).energy / (sum(dense.values()) - dense["weights"] / 2)


def eie_over_memory(bandwidth: float) -> float:
    """Return the speed over a processor that reads the dense fp32 weights at its bandwidth."""
    return 4 * matrices().macs / bandwidth / matrices().seconds


@cache
def eie_work(row: str) -> float:
    """Return the share of a layer's products that EIE computes, without products of padding."""
    inputs, outputs, weights, values = LAYERS[row]
    if row.startswith("Alex"):
        layer = matrices().layers[int(row[-1]) - 6]
    else:
        zeros = {"0.linear": {"W": weights, "I": values, "O": 1.0}}
        one = Linear(inputs, outputs, bias=False)
        (layer,) = eie().report(one, input_shape=(inputs,), zeros=zeros).layers
    products = layer.energy["arithmetic"] / multiply_add("int16", 40, 1, "45nm")
    return float(products - layer.detail["padding"]) / layer.macs


def eie_zero_weights() -> float:
    """Return the ratio of all weights to nonzeros in AlexNet's fully connected layers."""
    loops = [one for one in networks["alexnet_original"].problems() if one.name in FULLY_CONNECTED]
    shares = DENSITIES["alexnet_original"]
    return sum(one.weights for one in loops) / sum(one.weights * shares[one.name]["W"] for one in loops)


def eie_stored() -> float:
    """Return the bits of an fp32 weight over all bits that a kept weight of fc6 takes."""
    return 32 * DENSITIES["alexnet_original"]["fc6"]["W"] / float(matrices().layers[0].detail["bits"])


def eie_skipping() -> float:
    """Return the energy of AlexNet's fc8 with every activation over the energy with zeros skipped."""
    zeros = {"fc8": {**DENSITIES["alexnet_original"]["fc8"], "I": 1.0}}
    every = eie().report("alexnet_original", layers=("fc8",), zeros=zeros)
    return every.energy * 1e12 / matrices().layers[2].picojoules


def dram_over_sram() -> float:
    """Return the ratio of the energies per bit of DRAM and of an 8 KB SRAM, 45 nm."""
    return DRAM / sram(8192, "45nm")


@cache
def outer_products(network: str, density: float | None = None) -> AcceleratorReport:
    """Return the convolutions of a network on SCNN whose densities are published, or with one density of both."""
    names = [name for name in DENSITIES[network] if not name.startswith("fc")]
    zeros = None if density is None else {name: dict.fromkeys("WIO", density) for name in names}
    return scnn().report(network, layers=names, zeros=zeros)


def scnn_speed(row: str = "", network: str = "", density: float | None = None) -> float:
    """Return the speedup of SCNN over its dense rival."""
    layers = outer_products(row or network, density).layers
    return sum(float(layer.detail["dense_cycles"]) for layer in layers) / sum(layer.cycles for layer in layers)


def scnn_speed_mean() -> float:
    """Return the geometric mean of `scnn_speed` over the three networks."""
    return _mean(scnn_speed)


def scnn_energy(network: str, density: float | None = None) -> float:
    """Return the ratio of the energies of SCNN and its dense rival."""
    layers = outer_products(network, density).layers
    return sum(layer.picojoules for layer in layers) / sum(float(layer.detail["dense_energy"]) for layer in layers)


def scnn_energy_mean() -> float:
    """Return the geometric mean of the dense rival's energy over SCNN's."""
    return 1 / _mean(scnn_energy)


def _gated(network: str, density: float | None = None) -> float:
    """Return the energy, in pJ, of the dense rival that skips multiplication by zeros and does not store them."""
    found = 0.0
    loops = {one.name: one for one in networks[network].problems()}
    for layer in outer_products(network, density).layers:
        shares = DENSITIES[network][layer.name] if density is None else dict.fromkeys("WIO", density)
        found += sum(dense_energy(loops[layer.name], shares).values())
    return found


def scnn_dense_gating() -> float:
    """Return the geometric mean of the energy ratio of the plain and the gated dense rival."""

    def gating(network: str) -> float:
        layers = outer_products(network).layers
        return sum(float(layer.detail["dense_energy"]) for layer in layers) / _gated(network)

    return _mean(gating)


def scnn_even(of: str) -> float:
    """Return the density of both operands at which SCNN breaks even on GoogLeNet: time, energy or gated energy."""
    gains: dict[str, Callable[[float], float]] = {
        "time": lambda density: scnn_speed(network="googlenet", density=density),
        "energy": lambda density: 1 / scnn_energy("googlenet", density),
        "gated": lambda density: (
            _gated("googlenet", density)
            / sum(layer.picojoules for layer in outer_products("googlenet", density).layers)
        ),
    }
    points = [(density, math.log(gains[of](density))) for density in (0.7, 0.75, 0.8, 0.85, 0.9)]
    pairs = zip(points, points[1:], strict=False)
    low, high = next((a, b) for a, b in pairs if a[1] >= 0 > b[1])
    return low[0] + (high[0] - low[0]) * low[1] / (low[1] - high[1])


def scnn_layer(which: str) -> float:
    """Return the speed of the slowest or fastest layer of the three networks, relative to the dense rival."""
    speeds = [float(layer.detail["speedup"]) for name in NETWORKS for layer in outer_products(name).layers]
    return min(speeds) if which == "slowest" else max(speeds)


def scnn_active() -> float:
    """Return the share of the multipliers that GoogLeNet uses."""
    return outer_products("googlenet").active


@cache
def scnn_one_pixel() -> float:
    """Return the share of the multipliers that AlexNet's last layer uses."""
    return scnn().report("alexnet_original", layers=("fc8",)).active


def zero_share(tensor: str) -> float:
    """Return the mean share of zeros over the convolutions of the three networks, without the images."""
    found = [
        1 - shares[tensor]
        for network in NETWORKS
        for name, shares in DENSITIES[network].items()
        if not name.startswith("fc") and shares[tensor] < 1
    ]
    return sum(found) / len(found)


def scnn_area(row: str) -> float:
    """Return mm^2 of one of SCNN's parts, or of the whole chip."""
    multipliers = 1024 * multiplier("int16", 32, 1, "16nm").area["multiplier"] / 1e6
    bits = 64 * (8 * 20 * 1024 + 8 * 512 + 2 * 1024 * 24)  # activations, weights in flight, two banks of sums
    memories = sram_area(bits, "16nm") / 1e6
    crossbars = 64 * 32 * scaled(mux(24, 16), "16nm").area / 1e6
    parts = {"multipliers": multipliers, "memories": memories, "crossbars": crossbars}
    return parts[row] if row in parts else sum(parts.values())


def _mean(of: Callable[[str], float]) -> float:
    return math.prod(map(of, NETWORKS)) ** (1 / len(NETWORKS))
