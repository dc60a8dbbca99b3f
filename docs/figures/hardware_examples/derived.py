"""Results of the package compared with an independent formula or program."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from example import Example

import heterocompute as hc
from heterocompute import hardware as hw

RULE = "the tool's rule, added up by hand over the layers"

# Computed per layer from the definitions of the networks and the rules of the tools, without this package.
BY_HAND = {
    "alexnet": {"mac": 714188480, "thop": 714206912},
    "alexnet_original": {"mac": 724406816},
    "vgg16": {"mac": 15470264320, "thop": 15470314496, "ptflops": 15523225576},
    "resnet18": {"mac": 1814073344, "thop": 1814073344 + 4 * 2483712 + 50 * 512},
    "resnet50": {"mac": 4089184256, "thop": 4089184256 + 4 * 11113984 + 50 * 2048,
                 "fvcore": 4089184256 + 2 * 11113984 + 2048 * 49, "ptflops": 4132436968, "ptflops-aten": 4089185256,
                 "torchinfo": 4089238376, "torch": 2 * 4089184256},
    "mobilenet_v2": {"thop": 327486720},
    "bert_base": {"mac": 11174215680, "fvcore": 11186503680, "torch": 2 * 11174215680},
}  # fmt: skip


def counts() -> Iterator[Example]:
    """Operations."""
    for name, found in BY_HAND.items():
        for like, value in found.items():
            other = "layer formulas" if like == "mac" else RULE
            yield Example(f"{name}, like {like}", value, lambda n=name, k=like: hw.count(n, like=k).total, 0, other)
    for positions, value in ((384, 35333406720), (512, 48318971904)):
        what = f"bert_base, {positions} tokens, multiply-adds"
        yield Example(what, value, lambda s=positions: hw.count("bert_base", (s,)).macs, 0, "layer formulas")
    yield Example(
        "product of 4096^3, fp16, operations/B", lambda: 2 * 4096**3 / (3 * 2 * 4096**2),
        lambda: hw.intensity.gemm(4096, 4096, 4096), 1e-12, "2 m n k / bytes",
    )  # fmt: skip


def memories() -> Iterator[Example]:
    """Memory and traffic."""
    for dtype, bits in (("int8", 8), ("fp16", 16), ("int4", 4)):
        yield Example(
            f"resnet50 in {dtype}, fused in 230 MB: MB that move",
            lambda b=bits: (hw.count("resnet50").params + 3 * 224 * 224 + 1000) * b / 8e6,
            lambda d=dtype: hw.fuse("resnet50", 230_000_000, dtype=d).after / 1e6, 1e-9,
            "parameters, image and classes",
        )  # fmt: skip
    for text, bits in (("int8", 8), ("int4", 4)):
        yield Example(
            f"bytes of {text} with 2 of 4 weights over all of them", lambda b=bits: (2 * b + 2 * 2) / (4 * b),
            lambda t=text: codes(f"{t}+2:4") / codes(t), 0, "two values and two places of 2 bits, over four values",
        )  # fmt: skip
    positions, width, heads, batch = 1024, 768, 12, 8
    block = 9 * positions * width + 2 * 4 * positions * width + 2 * heads * positions**2
    yield Example(
        "gpt2, 8 sequences, 12 segments: MB of outputs that are kept (embeddings as well)",
        lambda: 4 * batch * (12 * positions * width + block + positions * width) / 1e6,
        lambda: hw.memory.training("gpt2", batch=batch, recompute=12).intermediates / 1e6, 0.03,
        "inputs of the blocks, and one block",
    )  # fmt: skip


def codes(format: str) -> int:
    """Return the bytes of 16 rows of 64 values, without the rows' scales."""
    return hc.quantize(np.ones((16, 64), np.float32), format).nbytes - 16 * 4


def machines() -> Iterator[Example]:
    """Arrays and links."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 10, (13, 9)), rng.integers(-9, 10, (9, 11))
    for dataflow in ("ws", "os", "is"):
        yield Example(
            f"cycles of a 13 x 9 by 9 x 11 product on 4 x 4 cells, {dataflow}",
            lambda d=dataflow: hw.systolic.simulate(a, b, rows=4, columns=4, dataflow=d).cycles,
            lambda d=dataflow: hw.systolic.gemm(13, 11, 9, rows=4, columns=4, dataflow=d).cycles, 0,
            "values pulsed through the cells",
        )  # fmt: skip
    yield Example(
        "all-reduce of 1 GB among 8 at 300 GB/s, ms", lambda: 1e3 * sum(2 * 1e9 / 8 / 300e9 for _ in range(7)),
        lambda: 1e3 * hw.multi.allreduce(1e9, 8, 300e9), 1e-12, "seven steps out, seven back",
    )  # fmt: skip


FAMILIES = (counts, memories, machines)
