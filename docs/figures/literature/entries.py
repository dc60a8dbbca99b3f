"""Number formats of the literature as own formats: their sources, sentences and definitions.

The only list of them: docs/formats/own.md, notebook 21, tests/formats/test_literature.py and the scripts of this folder
read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

import heterocompute as hc


def student_float() -> hc.Format:
    return hc.define("sf4-g64", hc.Levels.student_float(4, nu=5), scale="f16", group=64)


def normal_float() -> hc.Format:
    return hc.define("nf3-g64", hc.Levels.normal_float(3), scale="f16", group=64)


def abnormal_float(block: int = 64) -> hc.Format:
    cdf, m = np.vectorize(NormalDist().cdf), np.linspace(0.5, 6.5, 601)  # m: largest magnitude of a block
    share, m = np.diff((2 * cdf(m) - 1) ** block), (m[1:] + m[:-1]) / 2
    x = np.linspace(0, 1, 401)
    below = (1 - 1 / block) * ((cdf(np.outer(x, m)) - 0.5) / (2 * cdf(m) - 1)) @ share  # P(0 < value / m <= x)
    sides = [np.arange(1, count + 1) / count for count in (7, 8)]
    for a in sides * 3000:  # a level is the median of the values that are nearest to it
        p = np.interp([0, *(a[1:] + a[:-1]) / 2], x, below)
        a[:-1] = np.interp((p[1:] + p[:-1]) / 2, below, x)
    return hc.define("af4-g64", hc.Levels([*-sides[0][::-1], 0, *sides[1]]), scale="f16", group=block)


def apot() -> hc.Format:
    return hc.define("apot5", hc.Levels.apot(5, term_bits=2))


def powers_of_two() -> hc.Format:
    powers = 2.0 ** np.arange(-6, 1)
    return hc.define("pot4-g64", hc.Levels([*-powers[::-1], 0, *powers]), scale="f16", group=64)


def flint() -> hc.Format:
    magnitudes = np.array([1, 2, 3, 4, 6, 8, 16])
    return hc.define("flint4-g64", hc.Levels([*-magnitudes[::-1], 0, *magnitudes]), scale="f16", group=64)


def dynamic_tree() -> hc.Format:
    magnitudes = np.array([])
    for tens in range(7):  # a code of few leading zeros has many bits of fraction
        edges = np.linspace(0.1, 1, 2**tens + 1)
        magnitudes = np.append(magnitudes, 10.0 ** (tens - 6) * (edges[1:] + edges[:-1]) / 2)
    return hc.define("dynamic8", hc.Levels([*-magnitudes[::-1], 0, *magnitudes, 1]))


class Source(NamedTuple):
    """A publication; `number` is that of arXiv."""

    authors: str
    title: str
    year: int
    number: str = ""

    def __str__(self) -> str:
        arxiv = f", arXiv [{self.number}](https://arxiv.org/abs/{self.number})" if self.number else ""
        return f"{self.authors}, {self.title}, {self.year}{arxiv}"


@dataclass(frozen=True)
class Entry:
    """A format of the literature: a name, format strings or the function that defines it, sources, a sentence."""

    name: str
    formats: Sequence[str] | Callable[[], hc.Format]
    sources: Sequence[Source]
    says: str

    def made(self) -> list[hc.Format]:
        """Return the formats."""
        return [self.formats()] if callable(self.formats) else [hc.format(one) for one in self.formats]


FP8 = Source("Micikevicius et al.", "FP8 Formats for Deep Learning", 2022, "2209.05433")
FNUZ = Source("Noune et al.", "8-bit Numerical Formats for Deep Neural Networks", 2022, "2206.02915")
MX = Source("Rouhani et al.", "Microscaling Data Formats for Deep Learning", 2023, "2310.10537")
INT_FP = Source(
    "Chen et al.", "INT v.s. FP: A Comprehensive Study of Fine-Grained Low-bit Quantization Formats", 2025, "2510.25602"
)
FP4 = Source("Chmiel et al.", "FP4 All the Way: Fully Quantized Training of LLMs", 2025, "2505.19115")
P3109 = [
    f"binary{bits}p{precision}s{domain}-row"
    for bits, precision, domain in ((8, 4, "e"), (7, 4, "e"), (6, 3, "f"), (5, 3, "f"), (4, 2, "f"), (3, 2, "f"))
]

# fmt: off
ENTRIES = (
    Entry(
        "FP8 E4M3", ["e4m3fn-row"], [FP8],
        "One NaN and no infinity leave codes for 256 to 448.",
    ),
    Entry(
        "FP8 E5M2", ["e5m2-row"], [FP8],
        "The upper byte of float16. The range for gradients costs 6 dB.",
    ),
    Entry(
        "FP8 E4M3FNUZ", ["e4m3fnuz-row"], [FNUZ],
        "NaN in place of -0: the FP8 of the MI300X.",
    ),
    Entry(
        "FP8 E5M2FNUZ", ["e5m2fnuz-row"], [FNUZ],
        "The same for gradients.",
    ),
    Entry(
        "FP8 E3M4", ["e3m4-row"],
        [Source("Shen et al.", "Efficient Post-training Quantization with FP8 Formats", 2023, "2309.14592")],
        "The best of the six for weights with a scale per row.",
    ),
    Entry(
        "FP8 E4M3B11FNUZ", ["e4m3b11fnuz-row"],
        [Source("ml_dtypes authors", "ml_dtypes, float8_e4m3b11fnuz", 2023)],
        "Under float32 scales a bias changes nothing.",
    ),
    Entry(
        "P3109, 8 to 3 bits", P3109,
        [Source("IEEE SA P3109 Working Group", "Interim Report on Binary Floating-point Formats for Machine Learning",
                2024),
         Source("Fitzgibbon et al.", "Novel Aspects of IEEE SA P3109 Arithmetic Formats for Machine Learning", 2026,
                "2606.04028")],
        "One NaN in place of -0 at every width; `e` has infinities, `f` has none.",
    ),
    Entry(
        "posit8", ["posit8.0-row", "posit8.1-row", "posit8.2-row"],
        [Source("Posit Working Group", "Standard for Posit Arithmetic", 2022)],
        "The largest magnitude becomes 4: around 1 a posit has most of its numbers.",
    ),
    Entry(
        "takum8", ["takum8-row"],
        [Source("Hunhold", "Beating Posits at Their Own Game: Takum Arithmetic", 2024, "2404.18603")],
        "A range of 500 binades costs bits of fraction, which a scale makes unnecessary.",
    ),
    Entry(
        "SF4", student_float,
        [Source("Dotzel et al.", "Learning from Students: Applying t-Distributions to Explore Accurate and Efficient "
                "Formats for LLMs", 2024, "2405.03103")],
        "Quantiles of Student's t-distribution, which is wider than NF4's normal distribution.",
    ),
    Entry(
        "AF4", abnormal_float,
        [Source("Yoshida", "NF4 Isn't Information Theoretically Optimal (and that's Good)", 2023, "2306.06965")],
        "The least mean absolute error of each side of 0, for blocks of 64 normal values.",
    ),
    Entry(
        "NF3", normal_float,
        [Source("Dettmers et al.", "QLoRA: Efficient Finetuning of Quantized LLMs", 2023, "2305.14314"),
         Source("Guo et al.", "LQ-LoRA: Low-rank Plus Quantized Matrix Decomposition for Efficient Language Model "
                "Finetuning", 2023, "2311.12023")],
        "Quantiles of the normal distribution as in NF4, 8 of them.",
    ),
    Entry(
        "any4", ["cb4-g128"],
        [Source("Elhoushi and Johnson", "any4: Learned 4-bit Numeric Representation for LLMs", 2025, "2507.04610")],
        "16 levels learned per row, of values over their group's largest: a format of the catalogue.",
    ),
    Entry(
        "APoT", apot,
        [Source("Li et al.", "Additive Powers-of-Two Quantization: An Efficient Non-uniform Discretization for Neural "
                "Networks", 2020, "1909.13144")],
        "Each level is a sum of two powers of two, so a multiplication is two shifts.",
    ),
    Entry(
        "powers of two", powers_of_two,
        [Source("Zhou et al.", "Incremental Network Quantization: Towards Lossless CNNs with Low-Precision Weights",
                2017, "1702.03044")],
        "A multiplication is a shift. Steps of an octave are coarse for large values.",
    ),
    Entry(
        "ternary (BitNet b1.58)", ["ternary-tensor-absmean"],
        [Source("Ma et al.", "The Era of 1-bit LLMs: All Large Language Models are in 1.58 Bits", 2024, "2402.17764")],
        "The scale is the mean magnitude. 1.58 bits of information are stored in 2.",
    ),
    Entry(
        "binary (XNOR-Net)", ["binary-absmean"],
        [Source("Rastegari et al.", "XNOR-Net: ImageNet Classification Using Binary Convolutional Neural Networks",
                2016, "1603.05279")],
        "Signs and their mean magnitude, the best scale of signs.",
    ),
    Entry(
        "DeepSeek-V3", ["e4m3fn-b128x128"],
        [Source("DeepSeek-AI", "DeepSeek-V3 Technical Report", 2024, "2412.19437")],
        "Square blocks serve matmuls along both axes with one set of scales.",
    ),
    Entry(
        "MXINT4", ["int4f2-g32-e8m0"], [INT_FP],
        "Integers under a power of two, which leaves up to half of their range unused.",
    ),
    Entry(
        "MXINT6", ["int6f4-g32-e8m0"], [INT_FP],
        "The same with two bits more: 12 dB.",
    ),
    Entry(
        "MXFP4 with other scales", ["e2m1-g32-e4m3fn", "e2m1-g32-ue5m3"],
        [FP4, Source("Fasoli et al.", "Is Finer Better? The Limits of Microscaling Formats in Large Language Models",
                     2026, "2601.19026")],
        "A fraction in the scale gains 1 dB over `mxfp4`. UE5M3 needs no second level.",
    ),
    Entry(
        "NVFP4 with 32 values", ["e2m1-g32-e4m3fn-f32tensor"], [FP4],
        "Half of NVFP4's scales.",
    ),
    Entry(
        "NVINT4", ["int4-g16-e4m3fn-f32tensor"], [INT_FP],
        "NVFP4 with integers: better where groups have no outliers.",
    ),
    Entry(
        "int4 under E8M0", ["int4-g32-e8m0", "int4-g32-e8m0-rceil"], [MX],
        "`floor` has the values of MXINT4, `rceil` never saturates.",
    ),
    Entry(
        "VS-Quant with FP8 scales", ["int4-g16-e4m3fn-f32row"],
        [Source("Dai et al.", "VS-Quant: Per-vector Scaled Quantization for Accurate Low-Precision Neural Network "
                "Inference", 2021, "2102.04503")],
        "Float scales under a float32 per row, in place of 4-bit integers.",
    ),
    Entry(
        "int12", ["int12"],
        [Source("Courbariaux et al.", "Training deep neural networks with low precision multiplications", 2014,
                "1412.7024")],
        "The width at which updates of weights still train. It has two limbs.",
    ),
    Entry(
        "LNS with other bases", ["log5-3", "log6-5", "log7-9", "log8-20"],
        [Source("Miyashita et al.", "Convolutional Neural Networks using Logarithmic Data Representation", 2016,
                "1603.01025"),
         Source("Zhao et al.", "LNS-Madam: Low-Precision Training in Logarithmic Number System using Multiplicative "
                "Weight Update", 2021, "2106.13914")],
        "The base 2^(1 / gamma) exchanges range for relative error, in steps finer than octaves.",
    ),
    Entry(
        "MSFP12", ["int4f2-g16-e8m0"],
        [Source("Rouhani et al.", "Pushing the Limits of Narrow Precision Inferencing at Cloud Scale with Microsoft "
                "Floating Point", 2020)],
        "Block floating point: 4 bits with the sign, and one exponent of 8 bits for 16 values.",
    ),
    Entry(
        "BFP8", ["int8f6-g16-e8m0"],
        [Source("Drumond et al.", "Training DNNs with Hybrid Block Floating Point", 2018, "1804.01526")],
        "8 bits with the sign: integer matmuls, one addition of exponents per block.",
    ),
    Entry(
        "flint (ANT)", flint,
        [Source("Guo et al.", "ANT: Exploiting Adaptive Numerical Data Type for Low-bit Deep Neural Network "
                "Quantization", 2022, "2208.14286")],
        "Integers in the middle, powers of two above. ANT chooses the type per tensor.",
    ),
    Entry(
        "dynamic tree", dynamic_tree,
        [Source("Dettmers", "8-Bit Approximations for Parallelism in Deep Learning", 2015, "1511.04561")],
        "A code of two parts: leading zeros count powers of ten, the rest is a linear fraction.",
    ),
)
# fmt: on
