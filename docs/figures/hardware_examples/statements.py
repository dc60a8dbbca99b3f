"""Statements of lectures, surveys and vendors: figures that somebody printed, reproduced or marked with why not."""

from __future__ import annotations

import math
from collections.abc import Iterator

from example import Example

from heterocompute import hardware as hw
from heterocompute.hardware.accelerators.densities import DENSITIES

DALLY = "Dally, lectures on hardware for deep learning"
SLIDE = "Dally, 2024, slide of gains"
PATTERSON = "Hennessy and Patterson, phases of CPU performance"
SURVEY = "survey of AI chips, as it circulates"
SYSTEMS = "survey of heterogeneous computing, as it circulates"
EIE = "Han et al., EIE, ISCA 2016"
SCNN = "Parashar et al., SCNN, ISCA 2017"
SIMBA = "Shao et al., Simba, MICRO 2019"
MAGNET = "Venkatesan et al., MAGNet, ICCAD 2019"
JOUPPI = "Jouppi et al., ISCA 2017"
HOROWITZ = "Horowitz, Computing's energy problem, ISSCC 2014"
GPIPE = "Huang et al., GPipe, NeurIPS 2019, table 2"
SHEET = "NVIDIA, data sheets"
CHIPS = (("k20x", "fp32", 3.94), ("m40", "fp32", 6.84), ("p100-sxm2", "fp32", 10.6), ("v100-sxm2", "fp16", 125),
         ("t4", "fp16", 65), ("quadro-rtx8000", "fp16", 130.5), ("a100-sxm-40gb", "fp16", 312))  # fmt: skip


def chips() -> Iterator[Example]:
    """Statements about chips."""
    for name, dtype, printed in CHIPS:
        what = f"{name}, {dtype}, from units and clock, 10^12/s"
        source = DALLY if name in ("k20x", "m40") else SHEET
        yield Example(what, printed, lambda n=name, d=dtype: units(n, d) / 1e12, 0.005, source)
    yield Example(
        "ascend-910, fp16, from 32 cores of 4,096 multiply-adds at 1 GHz, 10^12/s", 256,
        lambda: units("ascend-910", "fp16") / 1e12, 0.03, "Huawei, Hot Chips 31 (2019)",
    )  # fmt: skip
    rates = [row for row in hw.series() if row["device"] == "a100-sxm-40gb"]
    yield Example("K20X to A100: gain a year (printed as doubling)", 2, lambda: rates[0]["yearly"], 0.03, DALLY)
    a100 = hw.device("a100-sxm-40gb")
    yield Example(
        "A100, sparse int4, TOPS/W",
        6.24,
        lambda: a100.peak("int4", sparse=True) / 1e12 / a100.need("tdp"),
        0.002,
        DALLY,
    )
    yield Example(
        "A100, 80 GB: 5 stacks of 1,024 bits at 3.186 10^9 bit/s, 10^9 B/s (printed as 2 TB/s)", 2000,
        lambda: hw.hbm_bandwidth(5, 1024, 3.186e9) / 1e9, 0.03, DALLY + " (the rate of a pin from memory)",
    )  # fmt: skip
    yield Example(
        "PCIe 5, 16 lanes, both directions, 10^9 B/s", 128, lambda: hw.device("h100-sxm").links["pcie5"] / 1e9, 0.03,
        "surveys of links; without the coding of 128 bits in 130",
    )  # fmt: skip
    yield Example(
        "A100, NVLink in a table beside the H100, 10^9 B/s", 900, lambda: a100.links["nvlink3"] / 1e9, 0.01, SURVEY,
        missed="900 is NVLink 4, the H100's; the A100's data sheet has 600",
    )  # fmt: skip


def units(name: str, dtype: str) -> float:
    """Return operations/s from units, operations of each a clock, and clock."""
    return math.prod(hw.device(name).clock[dtype])


def gains() -> Iterator[Example]:
    """Statements about where gains come from."""

    def split(part: str, kind: str = "energy") -> float:
        return hw.explain_gain("k20x", "a100-sxm-40gb")["splits"][kind][part]["value"]  # type: ignore[no-any-return]

    yield Example("gain by the number format, fp32 to int8", (16, 32), lambda: split("number"), 0, SLIDE)
    yield Example("gain by complex instructions", 12.5, lambda: split("instruction"), 0.2, SLIDE)
    yield Example(
        "gain by the process, 28 to 7 nm", (1.5, 3), lambda: split("process", "rates"), 0.01,
        DALLY + " (1.5 to 2), and a slide of 2024 (2.5 to 3)",
        missed="rates, not energies: clock and density beyond the area of the dies",
    )  # fmt: skip
    yield Example(
        "gain by the size of the die", 2, lambda: split("die"), 0.05, SLIDE,
        missed="826 over 561 mm^2; the slide rounds, and counts to later chips",
    )  # fmt: skip
    for name, printed in (("hmma", 22), ("imma", 16)):
        yield Example(
            f"overhead of {name}, 30 pJ, % of the arithmetic", printed, lambda n=name: hw.overhead(n).percent, 0.05,
            DALLY, missed=f"would need {hw.overhead(name).printed_needs_pj} pJ; the source does not say why it is less",
        )  # fmt: skip
    for kind, low, high in (("conv", 0.3, 0.4), ("fc", 0.1, 0.2)):
        yield Example(
            f"AlexNet, pruned: weights that stay in its {kind} layers", (low, high), lambda k=kind: kept(k), 0, DALLY
        )
    yield Example(
        "density below which SCNN wins in energy, from its cost on dense data (printed as perhaps a half)", 0.5,
        lambda: hw.break_even_density(1.33, operands=2), 0.1, DALLY,
        missed="against the plain rival; the paper itself prints 0.60 against one that gates and compresses, whose "
        "cost on dense data it does not say",
    )  # fmt: skip


def kept(kind: str) -> float:
    """Return the share of AlexNet's weights that is not zero, in layers of a kind."""
    layers = [one for one in hw.networks["alexnet_original"].problems() if one.name.startswith(kind)]
    shares = DENSITIES["alexnet_original"]
    return sum(one.weights * shares[one.name]["W"] for one in layers) / sum(one.weights for one in layers)


def systems() -> Iterator[Example]:
    """Statements about systems."""
    steps = {row["name"]: row["operations"] for row in hw.multi.growth()}
    yield Example(
        "operations of training, BERT to GPT-3", 1e4, lambda: steps["GPT-3 175B"] / steps["BERT-Base"], 0.1, DALLY,
        missed="an order of magnitude in words; the GPT-3 paper's own two figures give 1,926",
    )  # fmt: skip
    yield Example(
        "operations of training, AlexNet to ResNet-50", 100, lambda: macs("resnet50") / macs("alexnet_original"), 0.1,
        DALLY, missed="for as many images and epochs; the source does not say which ResNet, nor how long it trains",
    )  # fmt: skip
    yield Example(
        "training of AlexNet, 10^15 operations", 262, lambda: steps["AlexNet"] / 1e15, 0.1, SURVEY,
        missed="OpenAI's count of 0.0054 petaflop/s-days is 470; the survey says 'per second', too",
    )  # fmt: skip
    yield Example(
        "training of GPT-3, 10^21 operations (also 'per second' there)", 323, lambda: steps["GPT-3 175B"] / 1e21, 0.05,
        SURVEY,
    )  # fmt: skip
    yield Example(
        "a network on Kaggle, 13,419 s on the CPU over 994 s on the GPU", 12, lambda: hw.ratio("13419 s", "994 s"),
        0.05, "an introduction to Kaggle's notebooks", missed="the two times that it prints are 13.5 apart",
    )  # fmt: skip
    for rate, years, missed in ((0.52, 1.5, "52 % a year double in 20 months, not in 18"),
                                (0.03, 20, "3 % is rounded: 3.5 % double in 20 years")):  # fmt: skip
        what = f"years to double at {rate:.0%} a year (printed ones are rounded)"
        yield Example(what, years, lambda r=rate: hw.doubling_time(r), 0.05, PATTERSON, missed=missed)
    for count, printed in ((4, 3.2), (8, 4.8)):
        yield Example(
            f"Transformer in {count} stages, 4 pieces: speed over 2 stages and 1 piece", printed,
            lambda p=count: hw.multi.pipeline_parallel(p, 4)["speedup"] / hw.multi.pipeline_parallel(2, 1)["speedup"],
            0.1, GPIPE,
            missed="by the bubble alone; batches that fit the memory of more devices are the likely cause, and their "
            "sizes are not said",
        )  # fmt: skip
    h100, a100 = hw.device("h100-sxm"), hw.device("a100-sxm-80gb")
    claim = "NVIDIA, H100's introduction"
    yield Example(
        "H100 over A100, fp64 on tensor cores (printed as 3)", 3,
        lambda: h100.peak("fp64-tensor") / a100.peak("fp64-tensor"), 0.15, claim,
    )  # fmt: skip
    yield Example(
        "H100 over A100, training in fp8 over fp16", 9, lambda: h100.peak("fp8") / a100.peak("fp16"), 0.1, claim,
        missed="peaks; the claim is for a mixture of experts on many chips, whose links are faster too",
    )  # fmt: skip
    yield Example(
        "H100 over A100, making tokens at the roof, fp8 over fp16", 30,
        lambda: tokens("h100-sxm", "fp8") / tokens("a100-sxm-80gb", "fp16"), 0.1, claim,
        missed="bytes and bandwidth of one chip; the claim is for 530e9 parameters on many, at a limit of latency",
    )  # fmt: skip


def macs(name: str) -> int:
    """Return the multiply-adds of a network."""
    return hw.count(name).macs


def tokens(device: str, dtype: str) -> float:
    """Return tokens/s of one user of Llama 7B after 1,024 others."""
    return 1 / hw.roofline(hw.networks["llama_7b"].decoding(1024), device, dtype).seconds


#: Figures of papers, surveys and lectures that are held against something unsaid or unknown here, and what that is.
BARE: tuple[tuple[str, float | tuple[float, float], str, str], ...] = (
    ("CPU, GPU and NPU together: times as fast", 3, SYSTEMS, "names no workload, no devices, no baseline"),
    ("CPU, GPU and NPU together: % of power saved", 40, SYSTEMS, "names no workload, no devices, no baseline"),
    ("NPU: times as efficient as a general processor", (5, 10), SYSTEMS, "names no NPU, no processor, no network"),
    ("tuned by TVM: times as fast", 2.8, SYSTEMS, "names no operator, no device, no untuned code"),
    ("services in a cloud: % of cost or time saved", 60, SYSTEMS, "names neither the service nor the measure"),
    ("a face recognized, ms (printed as less)", 10, SYSTEMS, "names no network, no device"),
    ("a decision of a car on Dojo, ms (printed as less)", 1, SYSTEMS, "names no network; Dojo trains, on no car"),
    ("products in memory: times as efficient", 10, SYSTEMS, "names no memory, no baseline; analog cells are no part"),
    ("EIE: joules of a CPU over its own", 24000, EIE, "held against a CPU's measured power, which is not modelled"),
    ("EIE: joules of a GPU over its own", 3400, EIE, "held against a GPU's measured power, which is not modelled"),
    ("EIE over DaDianNao: times as fast", 2.9, EIE, "DaDianNao is none of the machines here"),
    ("EIE over DaDianNao: products a joule", 19, EIE, "DaDianNao is none of the machines here"),
    ("EIE over DaDianNao: products a mm^2", 3, EIE, "DaDianNao is none of the machines here, and EIE has no area"),
    ("SCNN with 4 cells of as many multipliers: % in use", 35, SCNN, "SCNN has 8 x 8 cells here"),
    ("SCNN's dense rival: mm^2", 5.9, SCNN, "its memories are SCNN's here, and areas are of cells alone"),
    ("Simba, ResNet-50: % of time saved by tiling", 16, SIMBA, "the plain tiling that it is held against is not said"),
    ("MAGNet, ResNet-50: % of accuracy lost (printed as less)", 1, MAGNET, "needs ImageNet, which is not here"),
    ("TPU v1: % of time in neither matrices nor weights", (10.3, 31.9), JOUPPI, "steps of the host are no part"),
    ("TPU v1: % of error of its authors' own model", (5.4, 11.2), JOUPPI, "its counters are not published"),
    ("TPU v1 over a Haswell, mean by use: times as fast", 29.2, JOUPPI, "the use of each network is not at hand"),
    ("TPU v1 over a K80, mean by use: times as fast", 15.3, JOUPPI, "the use of each network is not at hand"),
    ("a K80 over a Haswell, mean by use: times as fast", 1.9, JOUPPI, "the use of each network is not at hand"),
    ("an instruction of a processor, pJ", 70, HOROWITZ, "a general processor's control is no part"),
    ("an instruction's fetch from its cache, pJ", 25, HOROWITZ, "of 30 pJ that the model takes as a whole"),
    ("an instruction's registers, pJ", 6, HOROWITZ, "of 30 pJ that the model takes as a whole"),
    ("VS-Quant, some cases: % of energy saved", 20, DALLY, "names neither network nor formats; the paper has 24"),
    ("VS-Quant, some cases: % of area saved", 70, DALLY, "names neither network nor formats; the paper has 37"),
    ("a test chip on a language model, 10^12 operations/s a watt", 100, DALLY, "names no network, no format"),
)


def bare() -> Iterator[Example]:
    """Statements that no model can be held against."""
    for what, printed, source, why in BARE:
        yield Example(what, printed, None, 0, source, missed=why)


FAMILIES = (chips, gains, systems, bare)
