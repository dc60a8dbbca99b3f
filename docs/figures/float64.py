"""Print the table of docs/benchmarks.md about input dtypes: python docs/figures/float64.py"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import heterocompute as hc

FORMATS = (
    "int8",
    "int4-g32-asym",
    "vsq4-g16-s4",
    "mxfp4",
    "mxfp8_e4m3",
    "nvfp4",
    "nf4-g64",
    "fp8_e4m3fn",
    "bf16",
    "log4-2",
    "affine4-g64",
    "q4_k",
)
TURNS = 20


def least(calls: list[Callable[[], object]]) -> list[float]:
    """Return the least time of each call in ms, the calls in turn."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(TURNS):
        for call, found in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            found.append((time.perf_counter() - start) * 1e3)
    return [min(found) for found in times]


def row(x: np.ndarray, fmt: str) -> str:
    """Return a line of the table."""
    single = x.astype(np.float32)
    half = single.astype(np.float16)
    q = hc.quantize(single, fmt)
    base, wide, narrow = least([lambda y=y: hc.quantize(y, fmt) for y in (single, x, half)])
    fake, fake_wide = least([lambda: hc.fake_quantize(single, fmt), lambda: hc.fake_quantize(x, fmt)])
    values, values_wide = least([q.dequantize, lambda: q.dequantize(np.float64)])
    return (
        f"| `{fmt}` | {base:.2f} | {wide / base:.1f} | {narrow / base:.1f} | {fake:.2f} | {fake_wide / fake:.1f} "
        f"| {values:.2f} | {values_wide / values:.1f} |"
    )


def main() -> None:
    """Print the lines for one thread and for two."""
    x = np.random.default_rng(0).standard_normal((1024, 1024))
    for threads in (1, 2):
        with hc.use(threads=threads):
            print(f"threads: {threads}")
            for fmt in FORMATS:
                print(row(x, fmt))


if __name__ == "__main__":
    main()
