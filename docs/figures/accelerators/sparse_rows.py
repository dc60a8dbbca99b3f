"""What the papers of EIE and SCNN say beside speed and energy: shares of work, factors, areas."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from row import Row, machines
from zero_rows import EIE, FULLY_CONNECTED, NETWORKS, SCNN, matrices, outer_products

from heterocompute import hardware as hw
from heterocompute.hardware.accelerators.densities import DENSITIES
from heterocompute.hardware.accelerators.energies import DRAM, sram
from heterocompute.hardware.accelerators.mapped import multiplier, multiply_add
from heterocompute.hardware.silicon.gate_costs import mux, scaled, table_read

#: Inputs, outputs, shares of weights and of inputs that are not zero, share of the operations that is left: table III.
#: Of VGG-6 and VGG-7 a part of the 4,096 outputs.
LAYERS = {
    "Alex-6": (9216, 4096, 0.09, 0.351, 0.03),
    "Alex-7": (4096, 4096, 0.09, 0.353, 0.03),
    "Alex-8": (4096, 1000, 0.25, 0.375, 0.10),
    "VGG-6": (25088, 256, 0.04, 0.183, 0.01),
    "VGG-7": (4096, 1024, 0.04, 0.375, 0.02),
    "VGG-8": (4096, 1000, 0.23, 0.411, 0.09),
    "NT-We": (4096, 600, 0.10, 1.0, 0.10),
    "NT-Wd": (600, 8791, 0.11, 1.0, 0.11),
    "NT-LSTM": (1201, 2400, 0.10, 1.0, 0.11),
}
CELLS_ALONE = "cells of memories by an ideal shrink alone: no periphery, no queues, no wires between cells"


@cache
def work_left(name: str) -> float:
    """Return the share of a layer's products that EIE computes, without those of padding."""
    inputs, outputs, weights, values, _ = LAYERS[name]
    if name.startswith("Alex"):
        layer = matrices().layers[int(name[-1]) - 6]
    else:
        zeros = {"0.linear": {"W": weights, "I": values, "O": 1.0}}
        one = hw.Linear(inputs, outputs, bias=False)
        (layer,) = machines.eie().report(one, input_shape=(inputs,), zeros=zeros).layers
    return (layer.energy["arithmetic"] / multiply_add("int16", 40, 1, "45nm") - layer.detail["padding"]) / layer.macs


def eie_statements() -> Iterator[Row]:
    """EIE: work that is left by layer, and the factors that the abstract names."""
    for name, (*_, published) in LAYERS.items():
        part = f", {LAYERS[name][1]:,} of 4,096 outputs" if name in ("VGG-6", "VGG-7") else ""
        yield Row(
            "eie",
            f"{name}{part}: share of the products that are computed",
            published,
            lambda name=name: work_left(name),
            0.01,
            EIE + ", table III",
            missed="a tenth of the weights and every input make 0.10; the source prints 0.11"
            if name == "NT-LSTM"
            else "",
            absolute=True,
        )
    loops = [one for one in hw.networks["alexnet_original"].problems() if one.name in FULLY_CONNECTED]
    shares = DENSITIES["alexnet_original"]
    dense = sum(one.weights for one in loops)
    factors = EIE + ", abstract: factors of energy"
    yield Row("eie", "DRAM over SRAM", 120, lambda: DRAM / sram(8192, "45nm"), 0.25, factors)
    kept = sum(one.weights * shares[one.name]["W"] for one in loops)
    yield Row(
        "eie", "AlexNet's fully connected layers: weights over those kept", 10, lambda: dense / kept, 0.25, factors
    )

    def shared() -> float:
        fc6 = matrices().layers[0]
        return 32 * shares["fc6"]["W"] / float(fc6.detail["bits"])

    yield Row(
        "eie",
        "AlexNet's fc6: bits of a kept weight, fp32 over all that is stored",
        8,
        shared,
        0.25,
        factors,
        missed="a code of 4 bits has a run of 4 bits beside it, entries that pad and pointers; the factor counts codes",
    )

    def skipped() -> float:
        zeros = {"fc8": {**shares["fc8"], "I": 1.0}}
        every = machines.eie().report("alexnet_original", layers=("fc8",), zeros=zeros)
        return every.energy * 1e12 / matrices().layers[2].picojoules

    what = "AlexNet's fc8: energy with every activation over that without zeros"
    yield Row("eie", what, 3, skipped, 0.25, factors)


@cache
def speeds() -> list[float]:
    """Speed of each layer of the three networks over that of the dense rival."""
    return [float(layer.detail["speedup"]) for name in NETWORKS for layer in outer_products(name).layers]


@cache
def one_pixel() -> float:
    """Share of SCNN's multipliers that AlexNet's last layer uses."""
    return machines.scnn().report("alexnet_original", layers=("fc8",)).active


def zero_share(tensor: str) -> float:
    """Share of zeros, mean over the convolutions of the three networks; not of images, which have none."""
    found = [
        1 - shares[tensor]
        for network in NETWORKS
        for name, shares in DENSITIES[network].items()
        if not name.startswith("fc") and shares[tensor] < 1
    ]
    return sum(found) / len(found)


def area(part: str) -> float:
    """Return mm^2 of one of SCNN's parts, of the whole chip."""
    multipliers = 1024 * multiplier("int16", 32, 1, "16nm").area["multiplier"] / 1e6
    bits = 64 * (8 * 20 * 1024 + 8 * 512 + 2 * 1024 * 24)  # activations, weights in flight, two banks of sums
    memories = scaled(table_read(1, bits), "16nm").area / 1e6
    crossbars = 64 * 32 * scaled(mux(24, 16), "16nm").area / 1e6
    parts = {"multipliers": multipliers, "memories": memories, "crossbars": crossbars}
    return sum(parts.values()) if part == "all" else parts[part]


def scnn_statements() -> Iterator[Row]:
    """SCNN: layers, use of the multipliers, zeros, areas."""
    yield Row(
        "scnn", "the three: the slowest layer's speed over the dense rival's", 0.89, lambda: min(speeds()), 0.15, SCNN
    )
    yield Row(
        "scnn",
        "the three: the fastest layer's speed over the dense rival's",
        4.7,
        lambda: max(speeds()),
        0.15,
        SCNN,
        missed="zeros lie at random places here, which loads the cells alike, and no bank of sums is in conflict",
    )
    yield Row(
        "scnn",
        "GoogLeNet, share of the multipliers in use, 64 cells",
        0.59,
        lambda: outer_products("googlenet").active,
        0.10,
        SCNN,
        missed="layers of 7 x 7 leave 15 of 64 cells without a pixel, and cells wait for the slowest after each group",
        absolute=True,
    )
    yield Row(
        "scnn",
        "AlexNet's fc8, share of the multipliers in use",
        0.25,
        one_pixel,
        0.05,
        SCNN,
        missed="a layer of one pixel runs in one of 64 cells here, and in it on a quarter of the multipliers",
        absolute=True,
    )
    for tensor, what, published in (("W", "weights", (0.2, 0.8)), ("I", "activations", (0.5, 0.7))):
        yield Row(
            "scnn",
            f"pruned convolutions of the three, mean share of {what} that are zero",
            published,
            lambda tensor=tensor: zero_share(tensor),
            0.0,
            SCNN + "; modelled: the table of densities of Timeloop's authors",
            missed="" if tensor == "W" else "of the inputs of layers, which behind pooling have fewer zeros",
        )
    for part, what, published, missed in (
        (
            "multipliers",
            "1,024 multipliers (6 % of 7.9)",
            0.06 * 7.9,
            "the table's area by an ideal shrink from 45 nm: no registers, no wires",
        ),
        ("memories", "memories (57 % of 7.9)", 0.57 * 7.9, CELLS_ALONE),
        ("crossbars", "64 crossbars of 16 to 32 (0.026 each)", 64 * 0.026, "multiplexers alone: no wires, no queues"),
        ("all", "chip (64 cells of 0.123)", 7.9, CELLS_ALONE),
    ):
        yield Row("scnn", f"mm^2, {what}", published, lambda part=part: area(part), 0.25, SCNN, missed=missed)
