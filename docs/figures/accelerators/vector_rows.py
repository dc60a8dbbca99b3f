"""Machines of vector units: Simba, MAGNet, tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from row import Row, machines, report

from heterocompute import hardware as hw
from heterocompute.hardware.accelerators import AcceleratorReport

DEAR = "the arithmetic alone is 36 fJ an operation here, by the table of 2014 scaled to 16 nm and 0.8 V"
SIMBA, MAGNET = "Shao et al., MICRO 2019", "Venkatesan et al., ICCAD 2019"


@cache
def resnet(dataflow: str) -> AcceleratorReport:
    """Return ResNet-50 on MAGNet."""
    return machines.magnet(dataflow).report("resnet50")


def femtojoules(found: AcceleratorReport) -> float:
    """On chip, an operation: half a multiply-add."""
    return (found.energy - found.energy_parts["DRAM"]) / found.macs / 2 * 1e15


@cache
def design(format: str) -> dict[str, Any]:
    """Return what `hw.explore` says of one design."""
    return hw.explore({"dataflow": ["os-lws"], "format": [format]}, "digits").table[0]


def vectors() -> Iterator[Row]:
    """Simba and MAGNet on ResNet-50, without DRAM."""
    yield Row("simba", "peak, 10^12 operations/s", 127.8, lambda: machines.simba().peak() / 1e12, 0.01, SIMBA)
    yield Row(
        "simba",
        "fJ an operation, ResNet-50",
        110,
        lambda: femtojoules(report("simba", "resnet50")),
        0.25,
        SIMBA + ", the best of one chip; links and routers are not in the model",
    )
    yield Row(
        "simba",
        "pJ an operation, ResNet-50",
        0.1,
        lambda: femtojoules(report("simba", "resnet50")) / 1e3,
        0.25,
        "Dally, lectures on hardware for deep learning: RC18",
    )
    yield Row(
        "simba",
        "ResNet-50, one image, ms",
        0.50,
        lambda: 1e3 * report("simba", "resnet50").seconds,
        0.25,
        SIMBA,
        missed="links and DRAM are as fast as is wanted here, and every loop may spread over all chiplets",
    )
    yield Row(
        "simba",
        "10^12 operations/s a watt, package",
        6.1,
        lambda: 1e3 / femtojoules(report("simba", "resnet50")),
        0.25,
        SIMBA,
        missed="links, routers, control and leakage are not in the model",
    )
    yield from chiplets()
    for dataflow in ("ws-los", "os-lws"):
        yield Row(
            "magnet",
            f"energy of {dataflow} over ws",
            (0.0, 1.0),
            lambda dataflow=dataflow: femtojoules(resnet(dataflow)) / femtojoules(resnet("ws")),
            0.0,
            MAGNET,
        )
        yield Row(
            "magnet",
            f"share of arithmetic, {dataflow}",
            (0.55, 0.75),
            lambda dataflow=dataflow: resnet(dataflow).arithmetic_share,
            0.0,
            "Dally, lectures on hardware for deep learning: about two thirds",
            missed="a quarter of the energy reads a vector of inputs every cycle, dear by the law for SRAM used here",
        )
    yield Row(
        "magnet",
        "fJ an operation, os-lws",
        40,
        lambda: femtojoules(resnet("os-lws")),
        0.25,
        MAGNET,
        missed=DEAR,
    )
    lectures = "Dally, lectures on hardware for deep learning"
    yield Row(
        "magnet",
        "10^12 operations/s a watt, os-lws, int8",
        20,
        lambda: 1e3 / femtojoules(resnet("os-lws")),
        0.25,
        lectures,
        missed=DEAR,
    )
    yield Row(
        "magnet",
        "10^12 operations/s a watt, os-lws, vsq4-g16-s4, 5 nm",
        120,
        lambda: 1e3 / femtojoules(machines.magnet("os-lws", "5nm").report("resnet50", "vsq4-g16-s4")),
        0.25,
        lectures + ": VS-Quant on images; the process is not said there, this group's chip for it is of 5 nm",
    )

    yield Row(
        "magnet",
        "share of arithmetic, the last design (os-lws, vsq4-g16-s4): about half",
        (0.4, 0.6),
        lambda: report("magnet", "resnet50", 1, "vsq4-g16-s4").arithmetic_share,
        0.0,
        lectures,
    )
    yield Row(
        "magnet",
        "10^12 operations/s a mm^2, os-lws, int8",
        2.8,
        lambda: design("int8")["operations_mm2"] / 1e12,
        0.25,
        MAGNET,
        missed="multipliers, adders and cells of memories alone have an area here",
    )
    yield Row(
        "magnet",
        "area that vsq4-g16-s4 saves over int8",
        0.37,
        lambda: 1 - design("vsq4-g16-s4")["area"] / design("int8")["area"],
        0.25,
        "Dai et al., VS-Quant, MLSys 2021, abstract: 4 bits against 8",
        missed="buffers keep their KiB here, and are most of the area",
    )
    yield Row(
        "magnet",
        "area that vsq4-g16-s4 x int8 saves over int8 (printed for BERT)",
        0.26,
        lambda: 1 - design("vsq4-g16-s4 x int8")["area"] / design("int8")["area"],
        0.25,
        "Dai et al., VS-Quant, MLSys 2021, abstract: 4-bit weights, 8-bit activations",
        missed="buffers keep their KiB here, and are most of the area",
    )
    yield Row(
        "magnet",
        "ResNet-50 on chip, energy that vsq4-g16-s4 saves over int8",
        0.24,
        lambda: 1 - femtojoules(report("magnet", "resnet50", 1, "vsq4-g16-s4")) / femtojoules(resnet("os-lws")),
        0.25,
        "Dai et al., VS-Quant, MLSys 2021, abstract: 4 bits against 8",
        missed="reads halve and products quarter here; clock, control and sums, which stay, are missing or small",
    )


def chiplets() -> Iterator[Row]:
    """One chip of Simba, its package, and rates of ResNet-50."""
    fast = "links and DRAM are as fast as is wanted here, and every loop may spread over all chiplets"
    yield Row(
        "simba",
        "peak of one of its chips, 10^12 operations/s",
        4.01,
        lambda: machines.simba().peak() / 36 / 1e12,
        0.01,
        SIMBA,
        missed="at the clock of the package's 127.8, 1.733 GHz; a chip alone runs at a faster one",
    )
    yield Row("simba", "peak, nominal, 10^12 operations/s", 128, lambda: machines.simba().peak() / 1e12, 0.01, SIMBA)
    for published, source in ((1988, SIMBA), (2615, "Zimmer et al., VLSI 2019")):
        yield Row(
            "simba",
            "ResNet-50, one image, images/s",
            published,
            lambda: 1 / report("simba", "resnet50").seconds,
            0.25,
            source,
            missed=fast,
        )
    yield Row(
        "simba",
        "ResNet-50, one image, ms, with links (`hw.multi.chiplets`)",
        0.50,
        lambda: 1e3 * hw.multi.chiplets("resnet50").seconds,
        0.25,
        SIMBA,
        missed="each layer is spread as it fits best; no latency of links, no DRAM, and nothing but convolutions runs",
    )

    @cache
    def an_area() -> float:
        return float(hw.explore(space, "digits").table[0]["operations_mm2"]) / 1e12

    sizes = {"elements": 16, "lanes": 8, "vector": 8, "weight_kib": 32, "input_kib": 8, "sum_kib": 3, "global_kib": 64}
    space = {name: [size] for name, size in sizes.items()} | {"dataflow": ["ws"], "clock": [1.733e9]}
    yield Row(
        "simba",
        "10^12 operations/s a mm^2, one chip, as a design of `hw.explore`",
        1.29,
        an_area,
        0.25,
        SIMBA,
        missed="multipliers, adders and cells of memories alone have an area here",
    )


def tensor_cores() -> Iterator[Row]:
    """Tensor cores of three generations."""
    for generation, published in (("volta", 125), ("ampere", 312), ("hopper", 989.4)):
        machine = machines.tensor_core(generation)
        source = "NVIDIA's data sheets, dense"
        what = "peak, fp16, 10^12 operations/s"
        yield Row(machine.name, what, published, lambda machine=machine: machine.peak("fp16") / 1e12, 0.01, source)

    def share() -> float:
        parts = machines.tensor_core("volta").report("resnet50").energy_parts
        return parts["instructions"] / parts["arithmetic"]

    yield Row(
        "tensor_core_volta",
        "instructions over arithmetic",
        0.22,
        share,
        0.25,
        "Dally, lectures on hardware for deep learning: HMMA, 30 pJ an instruction of 128 operations",
        missed="the source counts a float addition a product; here products of fp16 are aligned and added as integers",
    )
