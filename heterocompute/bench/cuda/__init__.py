"""CUDA kernels on a device: with ``--check`` every kernel against the CPU, bit for bit, then times.

A time is the wall clock from the first launch to the end of the stream, divided by the number of calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ... import _heterocompute as _core
from ...arrays.device import DEFAULT_STREAM, DeviceArray
from ...base.cuda import devices
from ...products.matmul import linear
from ...products.quantize import fake_quantize, quantize
from ..measure import CheckFailed, Options, Row, Table
from .conformance import conformance

BYTES, QUICK_BYTES = 256 << 20, 1 << 14  # of values in a timing of a codec
SECONDS = 0.3  # of a timing


def measure(options: Options) -> list[Table]:
    """Check and time the first device; no table where there is none, CheckFailed where a check was asked for."""
    try:
        device = devices()[0]
    except (NotImplementedError, RuntimeError) as problem:
        if options.check:
            raise CheckFailed(str(problem)) from None
        options.say(str(problem))
        return []
    options.say(f"{device.name}, sm_{device.major}{device.minor}")
    tables = [conformance(options)] if options.check else []
    tables += [_codecs(options), _products(options)]
    for table in tables:
        table["title"] += f"; {device.name}"
    return tables


def _seconds(call: Callable[[], object], quick: bool) -> float:
    """Return the seconds of a call: the median of five series, each as long as the device takes."""
    call()
    count, found = 1, list[float]()
    while True:
        _core.cuda_wait(0, DEFAULT_STREAM)
        begin = time.perf_counter()
        for _ in range(count):
            call()
        _core.cuda_wait(0, DEFAULT_STREAM)
        taken = time.perf_counter() - begin
        if quick:
            return taken
        if taken < SECONDS / 5 and count < 10_000 and not found:
            count *= 4
            continue
        found.append(taken / count)
        if len(found) == 5:
            return float(np.median(found))


def _row(name: str, seconds: float, work: float, unit: str) -> Row:
    return {"name": name, "seconds": seconds, "rate": work / seconds / 1e9, "unit": unit}


def _codecs(options: Options) -> Table:
    nbytes = QUICK_BYTES if options.quick else BYTES
    x = DeviceArray.from_numpy(np.random.default_rng(0).standard_normal((nbytes // 4096, 1024), dtype=np.float32))
    rows = []
    for text in ("int8", "vsq4-g16-s4", "mxfp4", "nvfp4", "nf4-g64"):
        options.say(f"times {text}")
        q: Any = quantize(x, text)
        moved = x.nbytes + q.nbytes
        rows.append(_row(f"quantize {text}", _seconds(partial(quantize, x, text), options.quick), moved, "GB/s"))
        rows.append(_row(f"dequantize {text}", _seconds(q.dequantize, options.quick), moved, "GB/s"))
        seconds = _seconds(partial(fake_quantize, x, text), options.quick)
        rows.append(_row(f"fake_quantize {text}", seconds, 2 * x.nbytes, "GB/s"))
    few: Any = quantize(DeviceArray.from_numpy(np.ones((2, 32), np.float32)), "int8")
    rows.append(
        _row("dequantize int8, 64 values: launch to launch", _seconds(few.dequantize, options.quick), 256, "GB/s")
    )
    return {"title": f"codecs, {x.nbytes:,} bytes of float32", "threads": 1, "rows": rows}


def _products(options: Options) -> Table:
    n, k = (32, 64) if options.quick else (8192, 8192)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((n, k), dtype=np.float32)
    rows = []
    for text, activations in (("vsq4-g16-s4", "int8"), ("int8", "int8"), ("vsq4-g16-s4", None)):
        q: Any = quantize(w, text).to("cuda")
        for m in (1, 32) if options.quick else (1, 32, 4096):
            options.say(f"times {activations or 'float32'} x {text}, {m} rows")
            x = DeviceArray.from_numpy(rng.standard_normal((m, k), dtype=np.float32))
            seconds = _seconds(partial(linear, x, q, None, activations), options.quick)
            name = f"{activations or 'float32'} x {text}, {m} x {k} x {n}"
            rows.append(
                _row(name, seconds, q.nbytes, "GB/s") if m == 1 else _row(name, seconds, 2 * m * n * k, "GOP/s")
            )
    return {"title": "matmuls; rate at one row: packed weights read", "threads": 1, "rows": rows}
