"""Results of the package that must agree with each other. They have no other source, but each check can fail."""

from __future__ import annotations

import math
from collections.abc import Iterator

from example import Example

from heterocompute import hardware as hw


def database() -> Iterator[Example]:
    """The table of devices."""
    for name, dtype in (("a100-sxm-80gb", "int8"), ("h100-sxm", "fp16"), ("h100-pcie", "int8"), ("a30", "int8")):
        yield Example(
            f"{name}, {dtype}: sparse rate, 10^12/s", lambda n=name, d=dtype: 2 * hw.device(n).peak(d) / 1e12,
            lambda n=name, d=dtype: hw.device(n).peak(d, sparse=True) / 1e12, 0.002, "twice the dense rate",
        )  # fmt: skip
    yield Example(
        "A100: bits times 10^12/s of int8", lambda: 16 * hw.device("a100-sxm-40gb").peak("fp16") / 1e12,
        lambda: 8 * hw.device("a100-sxm-40gb").peak("int8") / 1e12, 0, "of fp16",
    )  # fmt: skip
    yield Example(
        "DGX-1, fp16, 10^12/s", lambda: 8 * hw.device("p100-sxm2").peak("fp16") / 1e12,
        lambda: hw.device("dgx-1-p100").peak("fp16") / 1e12, 0.003, "eight P100",
    )  # fmt: skip


def splits() -> Iterator[Example]:
    """Sums and products of parts."""
    for a, b in (("k20x", "a100-sxm-40gb"), ("v100-sxm2", "h100-sxm"), ("k20x", "b200")):
        yield Example(
            f"{a} to {b}: gain", lambda x=a, y=b: math.prod(hw.explain_gain(x, y)["factors"].values()),
            lambda x=a, y=b: hw.explain_gain(x, y)["gain"], 1e-12, "product of its factors",
        )  # fmt: skip
    yield Example(
        "resnet50: outputs kept with one segment, MB", lambda: hw.memory.training("resnet50").intermediates / 1e6,
        lambda: hw.memory.training("resnet50", recompute=1).intermediates / 1e6, 0, "without recomputation",
    )  # fmt: skip


FAMILIES = (database, splits)
