"""Write docs/hardware-examples.md: published figures beside the model's. python docs/figures/hardware_examples.py

An example is (family, what, published, modelled, within, source): `within` is the relative deviation that the printed
digits allow, None where the two are not expected to agree; the reason then stands in `what`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heterocompute import hardware as hw

PAGE = Path(__file__).resolve().parents[1] / "hardware-examples.md"


@dataclass(frozen=True)
class Example:
    """A published figure, and how the model computes it."""

    family: str
    what: str
    published: float
    modelled: Callable[[], float]
    within: float | None
    source: str

    @property
    def deviation(self) -> float:
        """Relative to what is published."""
        return self.modelled() / self.published - 1


JOUPPI = "Jouppi et al., ISCA 2017"
DALLY = "Dally, lectures on hardware for deep learning"
HOROWITZ = "Horowitz, ISSCC 2014"
VSQUANT = "Dai et al., VS-Quant, MLSys 2021"
PATTERSON = "Hennessy and Patterson, phases of CPU performance"
EXACT = 0.0


def counts() -> Iterator[Example]:
    """Parameters and operations."""
    tools = {
        "alexnet": {"params": 61100840, "mac": 714188480, "thop": 714206912},
        "alexnet_original": {"params": 60965224, "mac": 724406816},
        "vgg16": {"params": 138357544, "mac": 15470264320, "thop": 15470314496, "ptflops": 15523225576},
        "resnet18": {"params": 11689512, "mac": 1814073344, "thop": 1824033792},
        "resnet50": {"params": 25557032, "mac": 4089184256, "thop": 4133742592, "fvcore": 4111512576,
                     "ptflops": 4132436968, "ptflops-aten": 4089185256, "torchinfo": 4089238376, "torch": 8178368512},
        "mobilenet_v2": {"params": 3504872, "thop": 327486720},
        "bert_base": {"params": 109482240, "mac": 11174215680, "fvcore": 11186503680, "torch": 22348431360},
    }  # fmt: skip
    for name, found in tools.items():
        for like, printed in found.items():
            if like == "params":
                yield Example(
                    "count",
                    f"{name}, parameters",
                    printed,
                    lambda n=name: hw.count(n).params,
                    EXACT,
                    "torchvision, transformers",
                )
                continue
            yield Example(
                "count",
                f"{name}, like {like}",
                printed,
                lambda n=name, k=like: hw.count(n, like=k).total,
                EXACT,
                f"{like} itself" if like != "mac" else "layer formulas",
            )
    for positions, printed in ((384, 35333406720), (512, 48318971904)):
        yield Example(
            "count",
            f"bert_base, {positions} tokens, multiply-adds",
            printed,
            lambda s=positions: hw.count("bert_base", (s,)).macs,
            EXACT,
            "layer formulas",
        )
    yield Example(
        "count",
        "AlexNet's convolutions, four frames, 10^9 multiply-adds",
        2.66,
        lambda: 4 * sum(r["macs"] for r in hw.count("alexnet_original").layers if r["kind"] == "Conv2d") / 1e9,
        0.002,
        "Chen et al., Eyeriss, JSSC 2017",
    )
    yield Example(
        "count",
        "GPT-3: petaflop/s-days, 6 x 175e9 x 300e9 operations",
        3640,
        lambda: hw.training_flops(175e9, 300e9) / hw.PETAFLOP_DAY,
        0.002,
        "Brown et al., 2020",
    )


def _weight_intensity(batch: int) -> float:
    (row,) = hw.roofline(hw.Linear(2000, 2000, bias=False), "tpu-v1", "int8", batch=batch, input_shape=(2000,)).layers
    return row["operations"] / 2 / row["weight_bytes"]


def rooflines() -> Iterator[Example]:
    """Ridge points, TPU v1, intensities."""
    ridges = [("k20x", "fp32", 15.8), ("p100-sxm2", "fp16", 29.0), ("v100-sxm2", "fp16", 138.9),
              ("v100-sxm2", "fp16-vector", 34.9), ("t4", "fp16", 203), ("a100-sxm-40gb", "fp16", 200.6),
              ("a100-sxm-80gb", "fp16", 153.0), ("h100-sxm", "fp16", 295.3), ("h100-sxm", "fp8", 590.7),
              ("rtx4090", "fp16-acc16", 327.7)]  # fmt: skip
    for name, dtype, printed in ridges:
        yield Example(
            "roofline",
            f"ridge of {name}, {dtype}, operations/B",
            printed,
            lambda n=name, d=dtype: hw.device(n).ridge(d),
            0.003,
            "peak over bandwidth",
        )
    yield Example(
        "roofline",
        "ridge of TPU v1, multiply-adds a weight byte (92 and 34 are rounded)",
        1350,
        lambda: hw.device("tpu-v1").ridge("int8") / 2,
        0.003,
        JOUPPI,
    )
    yield Example(
        "roofline",
        "ridge of Haswell, multiply-adds a byte",
        13,
        lambda: hw.device("haswell").ridge("fp32") / 2,
        0.04,
        JOUPPI,
    )
    yield Example(
        "roofline", "ridge of K80, multiply-adds a byte", 9, lambda: hw.device("k80").ridge("fp32") / 2, 0.06, JOUPPI
    )
    yield Example(
        "roofline",
        "TPU v1: peak, 10^12 operations/s",
        92,
        lambda: hw.device("tpu-v1").peak("int8") / 1e12,
        0.005,
        JOUPPI,
    )
    for app, macs, roof, measured in (
        ("MLP0", 200, 13.6, 12.3),
        ("MLP1", 168, 11.4, 9.7),
        ("LSTM0", 64, 4.35, 3.7),
        ("LSTM1", 96, 6.5, 2.8),
        ("CNN0", 2888, 92, 86.0),
        ("CNN1", 1750, 92, 14.1),
    ):
        if not app.startswith("CNN"):  # matrices: a weight is used once a sample
            yield Example(
                "roofline",
                f"TPU v1, {app}: multiply-adds a weight byte at its batch of {macs}",
                macs,
                lambda b=macs: _weight_intensity(b),
                EXACT,
                JOUPPI,
            )
        work = [{"name": app, "operations": 2e9 * macs, "bytes": 1e9}]
        yield Example(
            "roofline",
            f"TPU v1, {app}: roof, 10^12 operations/s",
            roof,
            lambda w=work: w[0]["operations"] / hw.roofline(w, "tpu-v1", "int8").seconds / 1e12,
            0.01,
            JOUPPI,
        )
        yield Example(
            "roofline",
            f"TPU v1, {app}, measured, 10^12 operations/s: the model's is the roof, a bound from above",
            measured,
            lambda w=work: w[0]["operations"] / hw.roofline(w, "tpu-v1", "int8").seconds / 1e12,
            None,
            JOUPPI,
        )
    mlp0 = [{"name": "MLP0", "operations": 400.0, "bytes": 1.0}]
    yield Example(
        "roofline",
        "TPU v1, MLP0: measured 12.3 over the roof, %",
        90,
        lambda: 100 * 12.3e12 * hw.roofline(mlp0, "tpu-v1", "int8").seconds / 400,
        0.006,
        JOUPPI,
    )
    yield Example(
        "roofline",
        "product of 4096^3, fp16, operations/B",
        1365.3,
        lambda: hw.intensity.gemm(4096, 4096, 4096),
        1e-4,
        "2mnk / bytes",
    )
    yield Example(
        "roofline",
        "A100's HBM: 5 stacks x 1024 bit x 2.43 Gb/s, GB/s",
        1555,
        lambda: 5 * 1024 * 2.43 / 8,
        0.001,
        "NVIDIA",
    )


def memories() -> Iterator[Example]:
    """Memory of networks."""
    layer, shape = hw.Linear(1024, 1024), (1024,)
    yield Example(
        "memory",
        "Linear(1024, 1024), parameters, MiB",
        4.00390625,
        lambda: hw.memory.infer(layer, shape).params / 2**20,
        EXACT,
        "measured with torch",
    )
    yield Example(
        "memory",
        "100 outputs of (10240, 1024), MiB",
        4000,
        lambda: hw.memory.forward(layer, shape, batch=10240, outputs=100).output / 2**20,
        EXACT,
        "measured with torch",
    )
    yield Example(
        "memory",
        "backward: parameters and gradients, MiB",
        8.0078125,
        lambda: 2 * hw.memory.backward(layer, shape).params / 2**20,
        EXACT,
        "measured with torch",
    )
    yield Example(
        "memory",
        "process with one tensor of 4 MiB on a V100, CUDA 10.1, MiB",
        1073,
        lambda: hw.memory.device_total([4 << 20]) / 2**20,
        EXACT,
        "nvidia-smi; c10/cuda/CUDACachingAllocator",
    )
    yield Example(
        "memory",
        "Adam in mixed precision, bytes a parameter",
        16,
        lambda: (
            sum(
                hw.memory.training("gpt2", dtype="fp16").to_dict()[k]
                for k in ("params", "gradients", "master", "optimizer")
            )
            / hw.networks["gpt2"].params
        ),
        EXACT,
        "Rajbhandari et al., ZeRO, SC 2020",
    )
    yield Example(
        "memory",
        "GPU T4: share of 16,384 MiB that programs get (data, not modelled)",
        0.92,
        lambda: 15079 / 16384,
        0.005,
        "nvidia-smi",
    )


def gains() -> Iterator[Example]:
    """Instructions, the 317-fold curve, small formulas."""
    yield Example(
        "gains",
        "K20X to A100, sparse int8 over fp32",
        317,
        lambda: hw.explain_gain("k20x", "a100-sxm-40gb")["gain"],
        0.001,
        DALLY,
    )
    for name, printed in (("hfma", 2000), ("hdp4a", 500)):
        yield Example(
            "gains",
            f"overhead of {name}, 30 pJ, % of the arithmetic",
            printed,
            lambda n=name: hw.overhead(n).percent,
            EXACT,
            DALLY,
        )
    for name, printed in (("hmma", 22), ("imma", 16)):
        yield Example(
            "gains",
            f"overhead of {name}, 30 pJ, % of the arithmetic: the printed figure does not follow from 30 pJ",
            printed,
            lambda n=name: hw.overhead(n).percent,
            None,
            DALLY,
        )
        yield Example(
            "gains",
            f"overhead of {name}, 31 pJ, % of the total",
            printed,
            lambda n=name: hw.overhead(n, "total", 31).percent,
            0.02,
            DALLY,
        )
    yield Example(
        "gains",
        "A100, dense int8, TOPS/W",
        1.56,
        lambda: hw.device("a100-sxm-40gb").peak("int8") / 400e12,
        1e-9,
        DALLY + " (3.12 is sparse)",
    )
    yield Example(
        "gains",
        "export figure of the A100",
        4992,
        lambda: hw.tpp("a100-sxm-40gb")["tpp"],
        EXACT,
        "rule of October 2022",
    )
    for rate, years in ((0.25, 3), (0.23, 3.5), (0.12, 6)):
        what = f"years to double at {rate:.0%} a year (printed ones are rounded)"
        yield Example("gains", what, years, lambda r=rate: hw.doubling_time(r), 0.05, PATTERSON)
    for rate, years in ((0.52, 1.5), (0.03, 20)):
        what = f"years to double at {rate:.0%} a year: the printed figure is not ln 2 / ln(1 + rate)"
        yield Example("gains", what, years, lambda r=rate: hw.doubling_time(r), None, PATTERSON)


def silicon() -> Iterator[Example]:
    """Energy and area of arithmetic."""
    yield Example(
        "silicon",
        "fp16 multiply and add, pJ",
        1.5,
        lambda: hw.mac("fp16", "fp16", 16, 1).energy_pj,
        1e-9,
        HOROWITZ + "; " + DALLY,
    )
    yield Example(
        "silicon", "fp32 multiply and add, pJ", 4.6, lambda: hw.mac("fp32", "fp32", 32, 1).energy_pj, 1e-9, HOROWITZ
    )
    yield Example(
        "silicon", "int8 multiply, pJ", 0.2, lambda: hw.mac("int8", "int8", 32, 1).energy["multiplier"], 1e-9, HOROWITZ
    )

    def saved(kind: str) -> float:
        four, eight = hw.mac("vsq4-g16-s4", "vsq4-g16-s4", 24, 16), hw.mac("int8", "int8", 24, 16)
        return 100 * (getattr(four, kind) / getattr(eight, kind) - 1)

    yield Example(
        "silicon",
        "VS-Quant W4A4 against W8A8, energy, %: theirs is a whole accelerator, ours the arithmetic alone",
        -24,
        lambda: saved("energy_pj"),
        None,
        VSQUANT,
    )
    yield Example(
        "silicon", "VS-Quant W4A4 against W8A8, area, %: likewise", -37, lambda: saved("area_um2"), None, VSQUANT
    )


def fusions() -> Iterator[Example]:
    """What fits on chip."""
    for name, bits, millions in (("resnet50", 8, 25.708560), ("resnet50", 16, 51.417120), ("resnet50", 4, 12.854280)):
        dtype = {16: "fp16", 8: "int8", 4: "int4"}[bits]
        yield Example(
            "fusion",
            f"{name}, {bits} bits in 230 MB: weights, first input and last output, MB",
            millions,
            lambda n=name, d=dtype: hw.fuse(n, 230_000_000, dtype=d).after / 1e6,
            1e-9,
            "count of both",
        )


def eyeriss() -> Iterator[Example]:
    """Eyeriss agrees with itself."""
    source = "Chen et al., Eyeriss, JSSC 2017"

    def macs() -> float:
        rows = hw.count("alexnet_original").layers
        return 4.0 * sum(row["macs"] for row in rows if row["kind"] == "Conv2d")

    vgg = lambda: sum(row["macs"] for row in hw.count("vgg16").layers if row["kind"] == "Conv2d")  # noqa: E731
    yield Example(
        "eyeriss",
        "peak, 10^9 multiply-adds/s: 168 x 200 MHz",
        33.6,
        lambda: hw.device("eyeriss").peak("int16") / 2e9,
        1e-9,
        source,
    )
    yield Example(
        "eyeriss",
        "AlexNet's convolutions, four frames: DRAM words a multiply-add, of 15.4 MB",
        0.0029,
        lambda: 15.4e6 / 2 / macs(),
        0.01,
        source,
    )
    yield Example("eyeriss", "DRAM accesses a pixel, of 7.7 million", 37.4, lambda: 7.7e6 / (4 * 227**2), 0.002, source)
    yield Example(
        "eyeriss",
        "multiply-adds of VGG-16's convolutions over AlexNet's",
        23,
        lambda: 4 * vgg() / macs(),
        0.003,
        source,
    )
    yield Example(
        "eyeriss",
        "AlexNet's frame rate from 23.1 10^9 multiply-adds/s",
        34.7,
        lambda: 4 * 23.1e9 / macs(),
        0.001,
        source,
    )


def chips() -> Iterator[Example]:
    """Peaks from units and clocks, and what follows from them."""
    yield Example(
        "chips",
        "DGX-1, eight P100, fp16, 10^12/s",
        170,
        lambda: hw.device("dgx-1-p100").peak("fp16") / 1e12,
        0.003,
        "NVIDIA",
    )
    yield Example(
        "chips",
        "P100 over K20X, bandwidth (printed as 3)",
        3,
        lambda: hw.device("p100-sxm2").need("bandwidth") / hw.device("k20x").need("bandwidth"),
        0.03,
        DALLY,
    )
    yield Example(
        "chips",
        "A100, sparse int8, TOPS/W",
        3.12,
        lambda: hw.device("a100-sxm-40gb").peak("int8", sparse=True) / 400e12,
        EXACT,
        DALLY,
    )
    yield Example(
        "chips",
        "DianNao, 10^9 operations/s/W",
        932,
        lambda: hw.device("diannao").peak("int16") / 1e9 / hw.device("diannao").need("tdp"),
        0.002,
        "Chen et al., DianNao, ASPLOS 2014: 452 GOP/s, 0.485 W",
    )
    for name, one in hw.devices().items():
        for dtype, (units, per_clock, hertz) in one.clock.items():
            loose = {("t4", "fp32"): 0.006, ("ascend-910", "fp16"): 0.025, ("diannao", "int16"): 0.08}
            yield Example(
                "chips",
                f"{name}, {dtype}: units x operations x clock, 10^12/s",
                one.peak(dtype) / 1e12,
                lambda v=units * per_clock * hertz / 1e12: v,
                loose.get((name, dtype), 0.003),
                one.source_of(f"peak.{dtype}") or "",
            )


def three_chips() -> Iterator[Example]:
    """H100, A100 and 4090 side by side, as a table prints them that circulates."""
    table = "a table that circulates"
    names = ("h100-sxm", "a100-sxm-80gb", "rtx4090")
    for name, printed in zip(names, (80, 80, 24), strict=True):
        yield Example(
            "three chips",
            f"{name}, memory, GiB (printed as GB)",
            printed,
            lambda n=name: hw.device(n).need("memory") / 2**30,
            EXACT,
            table,
        )
    for name, printed in zip(names, (989, 312, 330), strict=True):
        dtype = "fp16-acc16" if name == "rtx4090" else "fp16"
        note = " (with fp16 accumulation; 165 with fp32, as the others)" if name == "rtx4090" else ""
        yield Example(
            "three chips",
            f"{name}, fp16, 10^12/s{note}",
            printed,
            lambda n=name, d=dtype: hw.device(n).peak(d) / 1e12,
            0.002,
            table,
        )
    for name, printed in zip(names, (495, 156, 83), strict=True):
        yield Example(
            "three chips",
            f"{name}, tf32, 10^12/s",
            printed,
            lambda n=name: hw.device(n).peak("tf32") / 1e12,
            0.006,
            table,
        )
    for name, printed in zip(names, (3.35, 2, 1), strict=True):
        yield Example(
            "three chips",
            f"{name}, memory, 10^12 B/s",
            printed,
            lambda n=name: hw.device(n).need("bandwidth") / 1e12,
            0.02,
            table,
        )
    yield Example(
        "three chips", "h100-sxm, NVLink, GB/s", 900, lambda: hw.device("h100-sxm").links["nvlink4"] / 1e9, EXACT, table
    )
    yield Example(
        "three chips",
        "a100-sxm-80gb, NVLink, GB/s: the table is wrong, NVIDIA says 600",
        900,
        lambda: hw.device("a100-sxm-80gb").links["nvlink3"] / 1e9,
        None,
        table,
    )
    yield Example(
        "three chips",
        "rtx4090, PCIe 4, both directions, GB/s",
        64,
        lambda: hw.device("rtx4090").links["pcie4"] / 1e9,
        0.02,
        table,
    )


FAMILIES = (three_chips, counts, rooflines, memories, fusions, gains, silicon, eyeriss, chips)


def examples() -> list[Example]:
    """Return all of them."""
    return [example for family in FAMILIES for example in family()]


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e5 and value == round(value) else f"{value:.6g}"


def page() -> str:
    """Return the page."""
    lines = [
        "# Worked examples of the model side",
        "",
        "Generated by `python docs/figures/hardware_examples.py`; `test_hw_examples.py` checks every row, and",
        "that the page is what the script writes. A deviation in brackets is not expected to vanish: the row says why.",
    ]
    for family in FAMILIES:
        rows = list(family())
        lines += ["", f"## {(family.__doc__ or '').rstrip('.')}", "",
                  "| what | published | modelled | deviation | source |", "|---|---|---|---|---|"]  # fmt: skip
        for one in rows:
            modelled = one.modelled()
            percent = 100 * (modelled / one.published - 1)
            deviation = "0" if not percent else f"{percent:+.2g} %" if abs(percent) < 100 else f"{percent:+.0f} %"
            if one.within is None:
                deviation = f"({deviation})"
            lines.append(f"| {one.what} | {number(one.published)} | {number(modelled)} | {deviation} | {one.source} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
