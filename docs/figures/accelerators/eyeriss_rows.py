"""Eyeriss, and row stationary beside other dataflows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from row import Row, report

from heterocompute.hardware.accelerators import AcceleratorReport
from heterocompute.hardware.accelerators.row_stationary import DATAFLOWS, dataflow_machine

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
