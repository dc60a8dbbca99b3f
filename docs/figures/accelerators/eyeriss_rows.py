"""Eyeriss, and row stationary beside other dataflows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from row import Row, machines, report

from heterocompute.hardware.accelerators import AcceleratorReport
from heterocompute.hardware.accelerators.row_stationary import DATAFLOWS, GLB, dataflow_machine

UNIT = machines.eyeriss().mac_pj / 16
ISCA16, JSSC = "Chen et al., ISCA 2016", "Chen et al., JSSC 2017"


def conv_only(found: AcceleratorReport) -> AcceleratorReport:
    """Return a report without its fully connected layers."""
    return replace(found, layers=[layer for layer in found.layers if not layer.name.startswith("fc")])


def words(found: AcceleratorReport) -> float:
    """Words of DRAM for each multiply-add."""
    return found.dram_bytes / 2 / found.macs


def row_stationary() -> Iterator[Row]:
    """Eyeriss: convolutions of AlexNet (batch 4) and VGG-16 (batch 3)."""

    def alexnet() -> AcceleratorReport:
        return conv_only(report("eyeriss", "alexnet_original", 4))

    def vgg() -> AcceleratorReport:
        return conv_only(report("eyeriss", "vgg16", 3))

    yield Row("eyeriss", "AlexNet, DRAM words for each multiply-add", 0.0029, lambda: words(alexnet()), 0.25, JSSC)
    yield Row("eyeriss", "VGG-16, DRAM words for each multiply-add", 0.0035, lambda: words(vgg()), 0.25, JSSC)
    yield Row("eyeriss", "AlexNet, active PEs", 0.88, lambda: alexnet().active, 0.10, JSSC, absolute=True)
    yield Row(
        "eyeriss",
        "AlexNet, frames/s",
        34.7,
        lambda: 4 / alexnet().seconds,
        0.25,
        JSSC,
        missed="no time to fill and drain the array or to configure it: the chip reaches 69 % of its peak with 88 % of "
        "its PEs active, the model all of the 88 %",
    )
    yield Row(
        "eyeriss",
        "AlexNet, mW without DRAM",
        278,
        lambda: 1e3 * (alexnet().energy - alexnet().energy_parts["DRAM"]) / alexnet().seconds,
        0.25,
        JSSC,
    )
    yield Row(
        "eyeriss",
        "VGG-16, frames/s",
        0.7,
        lambda: 3 / vgg().seconds,
        0.25,
        JSSC,
        missed="filling, draining and configuring the array and waits for DRAM are not in the model; the chip "
        "reaches a third of its peak here",
    )
    yield Row(
        "eyeriss",
        "VGG-16, mW without DRAM",
        236,
        lambda: 1e3 * (vgg().energy - vgg().energy_parts["DRAM"]) / vgg().seconds,
        0.25,
        JSSC,
    )
    yield Row(
        "eyeriss",
        "AlexNet, share of arithmetic on chip (printed as less than a tenth)",
        (0.0, 0.1),
        lambda: alexnet().arithmetic_share,
        0.1,
        JSSC,
        missed="the network of the clock is not in the model",
    )
    yield from chip()
    for kind in [kind for kind in DATAFLOWS if kind != "rs"]:
        missed = {
            "ws": "one hop is counted for a word however far it comes; a search for energy alone gives 1.30, a buffer "
            "of 2.6 times row stationary's in place of 4.2 (the paper's, from memory) gives 1.33",
            "os-b": "one hop is counted for a word however far it comes, and 16 PEs share every word that is read; a "
            "search for energy alone gives 1.32, a buffer of 2.6 times row stationary's in place of 4.2 (the paper's, "
            "from memory) gives 1.33",
        }
        yield Row(
            "eyeriss",
            f"AlexNet's convolutions, batch 16, 256 PEs of equal area: energy of {kind} over row stationary",
            (1.4, 2.5),
            lambda kind=kind: compared(kind) / compared("rs"),
            0.0,
            ISCA16,
            missed=missed.get(kind, ""),
        )


@cache
def on_equal_area(kind: str) -> AcceleratorReport:
    """Return AlexNet on one of the machines of equal area, batch 16."""
    return dataflow_machine(kind).report("alexnet_original", batch=16, zeros={})


def compared(kind: str) -> float:
    """Return the energy of AlexNet's convolutions on one of the machines of equal area, batch 16."""
    return conv_only(on_equal_area(kind)).energy


def fully_connected(kind: str) -> float:
    """Return the energy of AlexNet's fully connected layers on one of the machines of equal area, batch 16."""
    return sum(one.picojoules for one in on_equal_area(kind).layers if one.name.startswith("fc"))


def pads_and_arithmetic(found: AcceleratorReport) -> float:
    """Return the energy in pJ of the multipliers and of the pads beside them."""
    pads = sum(pj for one in found.layers for name, pj in one.stores.items() if name.startswith("pads"))
    return pads + 1e12 * found.energy_parts["arithmetic"]


def buffer_bytes(found: AcceleratorReport) -> float:
    """Return the bytes that are read from and written to the global buffer."""
    pj = sum(pj for one in found.layers for name, pj in one.stores.items() if name.startswith("GLB"))
    return pj / (GLB * UNIT) / 8


def chip() -> Iterator[Row]:
    """The measured chip: traffic, rates, and what stopping at zeros saves."""

    def alexnet() -> AcceleratorReport:
        return conv_only(report("eyeriss", "alexnet_original", 4))

    def vgg() -> AcceleratorReport:
        return conv_only(report("eyeriss", "vgg16", 3))

    def each_joule(found: AcceleratorReport) -> float:
        return found.macs / (found.energy - found.energy_parts["DRAM"]) / 1e9

    @cache
    def dense() -> AcceleratorReport:
        return conv_only(machines.eyeriss().report("alexnet_original", batch=4, zeros={}))

    idle = "no time to fill and drain the array or to configure it"
    for what, published, modelled, missed in (
        ("AlexNet, batch 4, MB of DRAM", 15.4, lambda: alexnet().dram_bytes / 1e6, ""),
        ("VGG-16, batch 3, MB of DRAM", 321.1, lambda: vgg().dram_bytes / 1e6, ""),
        ("AlexNet, words of DRAM for a pixel", 37.4, lambda: alexnet().dram_bytes / 2 / (4 * 227**2), ""),
        ("AlexNet, batch 4, MB of accesses to the global buffer", 208.5, lambda: buffer_bytes(alexnet()) / 1e6, ""),
        ("AlexNet, 10^9 multiply-adds/s", 23.1, lambda: alexnet().macs / alexnet().seconds / 1e9, idle),
        (
            "AlexNet, 10^9 multiply-adds a joule on chip",
            83.1,
            lambda: each_joule(alexnet()),
            idle + ", in which the chip draws power too; clock and control are not in the model",
        ),
        (
            "AlexNet, share of a PE's energy that is saved by stopping at zeros",
            0.45,
            lambda: 1 - pads_and_arithmetic(alexnet()) / pads_and_arithmetic(dense()),
            "the multiplier alone is stopped here; in the chip the pad of the weights is not read either",
        ),
    ):
        yield Row("eyeriss", what, published, modelled, 0.25, JSSC, missed=missed)
    for kind in [kind for kind in DATAFLOWS if kind != "rs"]:
        yield Row(
            "eyeriss",
            f"AlexNet's fully connected layers, batch 16, equal area: energy of {kind} over row stationary",
            (1.3, math.inf),
            lambda kind=kind: fully_connected(kind) / fully_connected("rs"),
            0.0,
            ISCA16,
        )
