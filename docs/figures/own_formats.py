"""Print the table of own formats on the page of benchmarks: processor time of one thread, least of several calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import heterocompute as hc
from heterocompute.formats import Levels

ROWS = (1, 8, 64)
PAIRS: dict[str, tuple[Any, str | None]] = {
    "e3m4-g32-e8m0": ("e3m4-g32-e8m0", None),
    "e2m1-g16-e4m3fn-f32tensor": ("e2m1-g16-e4m3fn-f32tensor", "nvfp4"),
    "ternary-g128-absmean": ("ternary-g128-absmean", None),
    "posit8.1-row": ("posit8.1-row", None),
    "SF4, g64, f16": (hc.define(None, Levels.student_float(4, 5), scale="f16", group=64), None),
    "int4f2-g32-e8m0": ("int4f2-g32-e8m0", None),
    "e4m3fn-b128x128": ("e4m3fn-b128x128", None),
    "int12-g64-bf16": ("int12-g64-bf16", None),
    "log5-3": ("log5-3", None),
    "int4, g32": (hc.define(None, "int4", group=32), "int4-g32"),
    "e2m1, g32, e8m0": (hc.define(None, "e2m1", scale="e8m0", group=32), "mxfp4"),
    "NF4, g64": (hc.define(None, Levels.normal_float(4), group=64), "nf4-g64"),
    "log4-1": (hc.define(None, "log4-1"), "log4-1"),
    "e4m3fn, row": (hc.define(None, "e4m3fn", scale="f32"), "fp8_e4m3fn-row"),
}


def least(call: Callable[[], Any], seconds: float = 0.2) -> float:
    """Return the least processor time of a call."""
    call()
    found, end = float("inf"), time.thread_time() + seconds
    while time.thread_time() < end:
        start = time.thread_time()
        call()
        found = min(found, time.thread_time() - start)
    return found


def measured(fmt: Any, x: np.ndarray[Any, Any], w: np.ndarray[Any, Any]) -> list[float]:
    """Return the rates of encoding and decoding in GB/s of float32, and the times of matmuls in ms."""
    packed, weights = hc.quantize(x, fmt), hc.quantize(w, fmt)
    rates = [x.nbytes / 1e9 / least(lambda: hc.quantize(x, fmt)), x.nbytes / 1e9 / least(packed.dequantize)]
    for activations in (None, "int8"):
        rates += [1e3 * least(lambda a=activations, n=n: hc.linear(x[:n], weights, activations=a)) for n in ROWS]  # type: ignore[misc]
    return rates


def main() -> None:
    """Print a row per format: its figure, and in brackets that of the catalogue's format."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((n, 4096)).astype(np.float32) for n in (1024, 4096))
    print("| format | quantize | dequantize | " + " | ".join(f"{t}{n}" for t in ("", "int8, ") for n in ROWS) + " |")
    print("|---" * 9 + "|")
    with hc.use(threads=1):
        for name, (fmt, twin) in PAIRS.items():
            rows = [measured(one, x, w) for one in (fmt, twin) if one is not None]
            cells = [" / ".join(f"{value:.3g}" for value in values) for values in zip(*rows, strict=True)]
            print(f"| `{name}`{'' if twin is None else f' / `{twin}`'} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
