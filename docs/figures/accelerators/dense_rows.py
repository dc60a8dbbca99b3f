"""Peaks, and dense networks: NVDLA, TPU v1 beside a CPU and a GPU, DianNao, Groq's LPU."""

from __future__ import annotations

import math
from collections.abc import Iterator

from row import Row, machines, report

from heterocompute import hardware as hw
from heterocompute.hardware.accelerators import AcceleratorReport

NVDLA = "NVDLA README"
PRIMER = "nvdla.org, primer: 2048 multiply-adds, 512 KB, 20 GB/s, 1 GHz, 16 nm"
TPU = "Jouppi et al., ISCA 2017"


def peaks() -> Iterator[Row]:
    """Peaks from multipliers and clocks."""
    yield Row("nvdla", "peak, int8, 10^12 operations/s", 4.1, lambda: machines.nvdla().peak("int8") / 1e12, 0.01, NVDLA)
    for dtype in ("int8", "int16", "fp16"):
        macs = 2048 if dtype == "int8" else 1024
        a_cycle = lambda d=dtype: machines.nvdla().peak(d) / machines.nvdla().clock / 2  # noqa: E731
        yield Row("nvdla", f"{dtype}, multiply-adds a cycle", macs, a_cycle, 0.0, NVDLA)
    yield Row("tpu_v1", "peak, int8, 10^12 operations/s", 92, lambda: machines.tpu_v1().peak() / 1e12, 0.01, TPU)
    yield Row(
        "diannao",
        "peak, 16 bit, 10^9 operations/s",
        452,
        lambda: machines.diannao().peak() / 1e9,
        0.01,
        "Chen et al., ASPLOS 2014",
        missed="256 multipliers and 240 adders at the printed 0.98 GHz make 486; the paper does not say how 452 arises",
    )
    yield Row(
        "diannao",
        "speed over a core of 8 lanes of 16 bits at 2 GHz",
        117.87,
        lambda: machines.diannao().peak() / 32e9,
        0.25,
        "Chen et al., ASPLOS 2014 (from memory)",
        missed="peak over peak; the paper simulates the core on ten layers, where it does not reach its peak",
    )

    def diannao_watts() -> float:
        found = report("diannao", "resnet50")
        return 1e3 * (found.energy - found.energy_parts["DRAM"]) / found.seconds

    yield Row(
        "diannao",
        "ResNet-50, mW without DRAM",
        485,
        diannao_watts,
        0.25,
        "Chen et al., ASPLOS 2014, on its own layers",
        missed="half of it reads 256 weights a cycle, dear by the law for SRAM used here; the paper's buffer is as "
        "wide as one read",
    )
    yield Row(
        "eyeriss",
        "peak, 10^9 multiply-adds/s",
        33.6,
        lambda: machines.eyeriss().peak() / 2e9,
        0.01,
        "Chen et al., JSSC 2017",
    )


def dense() -> Iterator[Row]:
    """Dense networks on NVDLA and the TPU."""
    yield Row("nvdla", "ResNet-50, int8, frames/s", 269, lambda: 1 / report("nvdla", "resnet50").seconds, 0.15, PRIMER)

    def watts() -> float:
        found = report("nvdla", "resnet50")
        return 1e3 * (found.energy - found.energy_parts["DRAM"]) / found.seconds

    yield Row(
        "nvdla",
        "ResNet-50, int8, mW without DRAM",
        291,
        watts,
        0.25,
        PRIMER,
        missed="no clock tree, control, pipeline registers or leakage, and nothing but convolutions runs",
    )
    layers = [hw.Linear(2000, 2000, bias=False), hw.Activation()] * 5

    def mlp0() -> AcceleratorReport:
        return machines.tpu_v1().report(layers, batch=200, input_shape=(2000,))

    yield Row(
        "tpu_v1",
        "MLP0 (5 layers, 20 M weights, batch 200), 10^12 operations/s",
        12.3,
        lambda: 2 * mlp0().macs / mlp0().seconds / 1e12,
        0.15,
        TPU,
    )
    yield Row(
        "tpu_v1",
        "MLP0, share of the time that waits for weights or loads them",
        0.539 + 0.159,
        lambda: 1 - sum(layer.work for layer in mlp0().layers) / sum(layer.cycles for layer in mlp0().layers),
        0.25,
        TPU + ": weight stall and shift",
    )
    # peaks, bandwidths and batches within 7 ms are the paper's; CPU and GPU hold the weights as fp32

    def rate(name: str) -> float:
        chip, batch, weights = hw.device(name), 16, 20e6
        return batch / max(2 * batch * weights / chip.peak("fp32"), 4 * weights / chip.need("bandwidth"))

    for name, served, missed in (
        ("haswell", 5482, ""),
        ("k80", 13461, "the roof gives the K80 32,000 inferences/s; its share of the roof is not modelled"),
    ):
        yield Row(
            "tpu_v1",
            f"MLP0 within 7 ms, inferences/s over those of one {name}",
            225000 / served,
            lambda name=name: 200 / mlp0().seconds / rate(name),
            0.25,
            TPU + ": batches of 200 and 16",
            missed=missed,
        )


#: Of the paper's table 1: multiply-adds for each byte of weights on the TPU; those of matrices are its batch.
APPLICATIONS = {"MLP0": 200, "MLP1": 168, "LSTM0": 64, "LSTM1": 96, "CNN0": 2888, "CNN1": 1750}
#: Batch of MLP0 on CPU and GPU within its 7 ms (section 4); taken for the other networks of matrices too.
SERVED = 16


def attainable(name: str, dtype: str, reuse: float) -> float:
    """Return operations/s under the roof, each weight being used `reuse` times."""
    size = 1 if dtype == "int8" else 4
    work = [{"name": "weights", "operations": 2e6 * reuse, "bytes": 1e6 * size}]
    found = hw.roofline(work, name, dtype)
    return found.operations / found.seconds


def times_faster(other: str) -> float:
    """Return the geometric mean over the six networks of the TPU's rate over another's, with fp32 weights there."""
    ratios = [
        attainable("tpu-v1", "int8", reuse)
        / attainable(other, "fp32", reuse if app.startswith("CNN") else min(reuse, SERVED))
        for app, reuse in APPLICATIONS.items()
    ]
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def tpu() -> Iterator[Row]:
    """TPU v1 against one Haswell and one die of a K80, speed and speed a watt."""
    source = TPU + ", abstract"
    for other in ("haswell", "k80"):
        missed = ""
        if other == "k80":
            missed = (
                "the K80 is given its whole roof, of which the paper measured 37 % for MLP0; the batch of the other "
                "networks is not published"
            )
        what = f"six networks, geometric mean: times as fast as one {other}"
        yield Row("tpu_v1", what, (15, 30), lambda other=other: times_faster(other), 0.10, source, missed=missed)

        def a_watt(other: str = other) -> float:
            return times_faster(other) * hw.device(other).need("tdp") / hw.device("tpu-v1").need("tdp")

        what = f"six networks, geometric mean: operations a joule over one {other}'s, at the chips' thermal limits"
        yield Row("tpu_v1", what, (30, 80), a_watt, 0.10, source, missed=missed)


def streams() -> Iterator[Row]:
    """Groq's LPU: one chip, and as many as a large language model needs."""
    paper, product = "Abts et al., ISCA 2020", "Groq, February 2024, as techpowerup.com and others report it"
    peak = "Groq's product figures; at the nominal 0.9 GHz"
    yield Row("groq_lpu", "peak, int8, 10^12 operations/s", 750, lambda: machines.groq_lpu().peak() / 1e12, 0.03, peak)
    fp16 = lambda: machines.groq_lpu().peak("fp16") / 1e12  # noqa: E731
    yield Row("groq_lpu", "peak, fp16, 10^12 operations/s", 188, fp16, 0.03, peak)
    yield Row(
        "groq_lpu",
        "ResNet-50, one image, images/s of one chip",
        20400,
        lambda: 1 / report("groq_lpu", "resnet50").seconds,
        0.25,
        paper,
        missed="layers follow each other without the time that a row needs through the chip, and pooling and sums are "
        "free",
    )
    model = hw.networks["llama2_70b"]
    token = model.decoding(1024)
    yield Row(
        "groq_lpu",
        "chips whose SRAM holds Llama 2 70B in 16 bits",
        576,
        lambda: float(chips(model)),
        0.05,
        product,
    )

    def a_second() -> float:
        return 1 / machines.groq_lpu(chips(model)).report(token, "fp16").seconds

    yield Row(
        "groq_lpu",
        "Llama 2 70B, one user, tokens/s",
        300,
        a_second,
        0.25,
        product,
        missed="every layer waits 3 us for its outputs, the longest way of a far larger system; nothing else but "
        "products takes time",
    )
    yield Row(
        "groq_lpu",
        "Llama 2 70B, one user, tokens/s over those of an H100 at its roof",
        10,
        lambda: a_second() * hw.roofline(token, "h100-sxm", "fp16").seconds,
        0.25,
        "claim of the vendor, as quoted in surveys of chips",
        missed="as above: the LPU's time is that of its links alone",
    )


def chips(network: hw.Network) -> int:
    """Return how many chips hold the weights in fp16."""
    return -(-2 * network.params // int(hw.device("groq-tsp").need("on_chip")))
