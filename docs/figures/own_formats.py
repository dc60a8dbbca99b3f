"""Print the tables of own formats on the page of benchmarks: least processor time of interleaved calls, one thread."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
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


ELEMENTS = (
    "ternary", "binary", "int3", "int5", "int9", "int12", "posit8.1", "posit6.0", "takum8", "log5-3", "log8-8",
    "e2m1", "e3m2", "e4m3fn", "e4m3fnuz", "e5m2", "e3m4", "binary8p3se", "int4f2", "e5m8",
)  # fmt: skip
SHARINGS: tuple[dict[str, Any], ...] = (
    {"per": "row"}, {"group": 32}, {"group": 64, "scale": "f16"}, {"group": 32, "scale": "e8m0"},
    {"group": 128, "scale": "bf16"}, {"group": 16, "scale": "e4m3fn", "second": "tensor"}, {"block": (128, 128)},
)  # fmt: skip


def least(calls: Mapping[Any, Callable[[], Any]], rounds: int = 12) -> dict[Any, float]:
    """Return the least processor time of each call in seconds, interleaved."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds + 1):  # the first call of each is slower
        for name, call in calls.items():
            start = time.thread_time()
            call()
            found[name] = min(found[name], time.thread_time() - start)
    return found


def torch_calls(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any]) -> dict[Any, Callable[[], Any]]:
    """Return float32 matmuls of torch with one thread by rows of x; none if torch is not installed."""
    if find_spec("torch") is None:
        return {}
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    rows, weights = torch.from_numpy(x), torch.from_numpy(w)
    return {("torch", n): lambda n=n: torch.nn.functional.linear(rows[:n], weights) for n in ROWS}  # type: ignore[misc]


def format_calls(key: Any, fmt: Any, x: np.ndarray[Any, Any], w: np.ndarray[Any, Any]) -> dict[Any, Callable[[], Any]]:
    """Return the calls of a format: quantize, dequantize, and matmuls by activations and rows of x."""
    packed, weights = hc.quantize(x, fmt), hc.quantize(w, fmt)
    calls: dict[Any, Callable[[], Any]] = {
        (key, "quantize"): lambda: hc.quantize(x, fmt),
        (key, "dequantize"): packed.dequantize,
    }
    for activations in (None, "int8"):
        for n in ROWS:
            calls[key, activations, n] = lambda a=activations, n=n: hc.linear(x[:n], weights, activations=a)  # type: ignore[misc]
    return calls


def catalogue(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any]) -> None:
    """Print a row per format: its result, and after a slash that of the catalogue's format."""
    print("| format | quantize | dequantize | " + " | ".join(f"{t}{n}" for t in ("", "int8, ") for n in ROWS) + " |")
    print("|---" * 9 + "|")
    torch = least(torch_calls(x, w))
    if torch:
        print("| torch, float32 | | | " + " | ".join(f"{1e3 * seconds:.3g}" for seconds in torch.values()) + " | | | |")
    for name, (fmt, twin) in PAIRS.items():
        calls: dict[Any, Callable[[], Any]] = {}
        for one in (fmt, twin):
            calls |= {} if one is None else format_calls(one is fmt, one, x, w)
        found = {
            key: x.nbytes / 1e9 / seconds if len(key) == 2 else 1e3 * seconds for key, seconds in least(calls).items()
        }
        own = [f"{value:.3g}" for key, value in found.items() if key[0]]
        others = [f" / {value:.3g}" for key, value in found.items() if not key[0]] or [""] * len(own)
        cells = [a + b for a, b in zip(own, others, strict=True)]
        print(f"| `{name}`{'' if twin is None else f' / `{twin}`'} | " + " | ".join(cells) + " |", flush=True)


def drawn(x: np.ndarray[Any, Any], w: np.ndarray[Any, Any], seed: int, count: int) -> None:
    """Print a row per drawn definition: the time of torch's float32 matmul divided by its time, per number of rows."""
    draw = random.Random(seed)
    print("| definition | " + " | ".join(map(str, ROWS)) + " |")
    print("|---" * (1 + len(ROWS)) + "|")
    while count > 0:
        element, sharing = draw.choice(ELEMENTS), draw.choice(SHARINGS)
        try:
            fmt = hc.define(None, element, **sharing)
        except ValueError:  # parts that do not go together
            continue
        count -= 1
        ours = {key: call for key, call in format_calls(0, fmt, x, w).items() if key[1] is None}
        found = least(torch_calls(x, w) | ours)
        ratios = [found["torch", n] / found[0, None, n] for n in ROWS]
        print(f"| `{fmt}` | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |", flush=True)


def main() -> None:
    """Print both tables."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((n, 4096)).astype(np.float32) for n in (1024, 4096))
    with hc.use(threads=1):
        catalogue(x, w)
        if find_spec("torch") is not None:
            print()
            drawn(x, w, 55, 20)


if __name__ == "__main__":
    main()
