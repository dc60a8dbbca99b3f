"""Times on a device, next to its copy rate and to PyTorch on the device. The candidates of a row are interleaved.

A time is the wall clock from the first launch to the end of the stream, divided by the number of calls. A ratio is the
median over the rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ...arrays.device import DEFAULT_STREAM, DeviceArray
from ...arrays.prepacked import prepack
from ...base.devices import KIND, wait
from ...products.matmul import linear
from ...products.quantize import fake_quantize, quantize
from ..measure import Options, Row, Table

ROUNDS, SECONDS = 5, 0.04  # seconds per candidate and round
CODECS = ("int8", "vsq4-g16-s4", "fp8_e4m3fn-row", "mxfp4", "nvfp4", "nf4-g64")
Call = Callable[[], object]


def _times(calls: Mapping[str, Call], quick: bool) -> dict[str, list[float]]:
    """Return the seconds of one call of each candidate in each round."""
    counts, found = dict.fromkeys(calls, 1), {name: list[float]() for name in calls}
    for number in range(1 if quick else ROUNDS + 1):
        for name, call in calls.items():
            if number == 0:
                call()
            seconds_of_calls = _series(call, counts[name])
            if number == 0 and not quick:
                counts[name] = max(1, min(10_000, int(SECONDS / seconds_of_calls)))  # the first round is the warm-up
            else:
                found[name].append(seconds_of_calls)
    return found


def _series(call: Call, count: int) -> float:
    wait(0, DEFAULT_STREAM)
    begin = time.perf_counter()
    for _ in range(count):
        call()
    wait(0, DEFAULT_STREAM)
    return (time.perf_counter() - begin) / count


def _row(name: str, seconds: list[float], work: float, unit: str) -> Row:
    seconds_of_calls = float(np.median(seconds))
    return {"name": name, "seconds": seconds_of_calls, "rate": work / seconds_of_calls / 1e9, "unit": unit}


def _ratio(row: Row, least: list[float], seconds: list[float], goal: str, factor: float = 1.0) -> Row:
    """Add the median over the rounds of ``factor * least / seconds``."""
    ratios = [factor * a / b for a, b in zip(least, seconds, strict=True)]
    return {**row, "ratio": float(np.median(ratios)), "goal": goal}


def _torch() -> Any:
    """Return PyTorch if it reaches the device, otherwise None."""
    try:
        import torch  # optional
    except ImportError:
        return None
    return torch if getattr(torch, KIND).is_available() else None


def _values(*shape: int) -> DeviceArray:
    return DeviceArray.from_numpy(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))


def vectors(options: Options) -> Table:
    """Time one row and 32 rows against weights of 4.25 bits."""
    n = 64 if options.quick else 16384
    q: Any = quantize(_values(n, n), "vsq4-g16-s4")
    torch, rows = _torch(), list[Row]()
    calls: dict[str, Call] = {}
    for m, activations in ((1, None), (1, "int8"), (32, "int8")):
        x = _values(m, n)
        calls[f"{activations or 'float32'} x vsq4-g16-s4, {m} x {n} x {n}"] = partial(linear, x, q, None, activations)
    names = [*calls]
    if torch:
        source = torch.empty(q.nbytes // 2, dtype=torch.uint8, device=KIND)  # read and written: as many bytes
        calls["copy"] = partial(torch.empty_like(source).copy_, source)
    options.report_progress("times few rows")
    found = _times(calls, options.quick)
    for name in names:
        row = _row(name, found[name], q.nbytes, "GB/s")
        if name is names[2]:
            inverse = [1 / (a / b) for a, b in zip(found[names[1]], found[name], strict=True)]
            row |= {"ratio": float(np.median(inverse)), "goal": "times of one row, <= 1.15"}
        elif torch:
            row = _ratio(row, found["copy"], found[name], "share of the copy rate, >= 0.85")
        rows.append(row)
    return {"title": f"few rows, {q.nbytes:,} bytes of weights", "threads": 1, "rows": rows}


def matmuls(options: Options) -> Table:
    """Time a large matmul of prepacked weights and quantized activations, next to cuBLASLt's int8 and bfloat16."""
    m, n, k = (32, 64, 64) if options.quick else (4096, 8192, 8192)
    x, w = _values(m, k), _values(n, k)
    calls: dict[str, Call] = {}
    for text, activations in (("int8", "int8"), ("vsq4-g16-s4", "vsq4-g16-s4"), ("int8+2:4", "int8")):
        name = f"{activations} x {text}, {m} x {k} x {n}"
        call = partial(linear, x, prepack(quantize(w, text)), None, activations)
        try:
            call()
        except NotImplementedError:  # there is no kernel
            continue
        calls[name] = call
    names, torch = [*calls], _torch()
    if torch:
        a, b = (torch.randint(-127, 128, size, dtype=torch.int8, device=KIND) for size in ((m, k), (n, k)))
        calls["torch._int_mm, codes given"] = partial(torch._int_mm, a, b.t())
        calls["torch bfloat16"] = partial(torch.matmul, a.bfloat16(), b.bfloat16().t())
    options.report_progress("times large matmuls")
    found, rows = _times(calls, options.quick), list[Row]()
    for name in calls:
        row = _row(name, found[name], 2.0 * m * n * k, "GOP/s")
        if name not in names:
            rows.append(row)
        elif "2:4" in name:
            rows.append(_ratio(row, found[names[0]], found[name], "speed of dense int8, >= 1.15"))
        elif torch:
            int8, bf16 = (found[other] for other in [*calls][len(names) :])
            rows.append(
                _ratio({**row, "name": f"{name}, to int8"}, int8, found[name], "speed of int8, >= 0.7 (sm_90a), 0.45")
            )
            rows.append(_ratio({**row, "name": f"{name}, to bf16"}, bf16, found[name], "speed of bf16, >= 1.3"))
        else:
            rows.append(row)
    return {"title": "large matmuls, weights prepacked, activations rounded in each call", "threads": 1, "rows": rows}


def rows_of_x(options: Options) -> Table:
    """Time matmuls of some rows of x with int8 activations, next to PyTorch's bfloat16."""
    n, numbers = (64, (1, 16)) if options.quick else (8192, (1, 16, 64, 128, 512, 2048))
    w, torch, rows = _values(n, n), _torch(), list[Row]()
    weights = {text: prepack(quantize(w, text)) for text in ("int8", "vsq4-g16-s4", "int4-g32-f16", "int8+2:4")}
    for m in numbers:
        options.report_progress(f"times {m} rows")
        x = _values(m, n)
        calls: dict[str, Call] = {
            f"int8 x {text}, {m} rows": partial(linear, x, q, None, "int8") for text, q in weights.items()
        }
        names = [*calls]
        if torch:
            a, b = (torch.randn(size, dtype=torch.bfloat16, device=KIND) for size in ((m, n), (n, n)))
            calls[f"torch bfloat16, {m} rows"] = partial(torch.matmul, a, b.t())
        found = _times(calls, options.quick)
        for name in calls:
            row = _row(name, found[name], 2.0 * m * n * n, "GOP/s")
            if torch and name in names:
                row = _ratio(row, found[f"torch bfloat16, {m} rows"], found[name], "speed of bf16")
            rows.append(row)
    return {"title": f"rows of x with weights of {n} x {n}, prepacked", "threads": 1, "rows": rows}


def codecs(options: Options) -> Table:
    """Time rounding and decoding next to a copy and to PyTorch's eager rounding; and a small call, launch to launch."""
    size = (4, 1024) if options.quick else (65536, 1024)
    x, torch, rows = _values(*size), _torch(), list[Row]()
    peers: dict[str, Call] = {}
    if torch:
        given = torch.randn(size, device=KIND)
        peers["copy"] = partial(torch.empty_like(given).copy_, given)
        peers["eager"] = partial(_eager, torch, given)
    for text in CODECS:
        options.report_progress(f"times {text}")
        q: Any = quantize(x, text)
        ours: dict[str, Call] = {
            f"quantize {text}": partial(quantize, x, text),
            f"dequantize {text}": q.dequantize,
            f"fake_quantize {text}": partial(fake_quantize, x, text),
        }
        found = _times({**ours, **peers}, options.quick)
        for name in ours:
            moved = 2 * x.nbytes if name.startswith("fake") else x.nbytes + q.nbytes
            row = _row(name, found[name], moved, "GB/s")
            if torch:
                share = moved / (2 * x.nbytes)
                row = _ratio(row, found["copy"], found[name], "share of the copy rate, >= 0.8", share)
            rows.append(row)
        if torch and text == "int8":
            row = {**_row("fake_quantize int8, to torch eager", found["fake_quantize int8"], 2 * x.nbytes, "GB/s")}
            rows.append(_ratio(row, found["eager"], found["fake_quantize int8"], "speed of eager, >= 5"))
    few, weights = _values(1, 64), quantize(_values(64, 64), "vsq4-g16-s4")
    small = _times({"small": partial(linear, few, weights)}, options.quick)["small"]
    row = _row("linear, 1 x 64 x 64: launch to launch", small, 2 * 64 * 64, "GOP/s")
    rows.append(_ratio(row, [8e-6] * len(small), small, "8 us to this, >= 1"))
    return {"title": f"codecs, {x.nbytes:,} bytes of float32", "threads": 1, "rows": rows}


def _eager(torch: Any, x: Any) -> Any:
    scales = x.abs().amax(-1, keepdim=True) / 127
    return torch.clamp(torch.round(x / scales), -127, 127) * scales
