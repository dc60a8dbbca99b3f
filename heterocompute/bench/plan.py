"""Plans compared with measured times: all paths of many products, all algorithms of many convolutions.

A row is a matmul or a convolution: the chosen path, the fastest one, and the ratio of their times. The
tables also hold `costs`: the times of all paths, with their counts of work. `write_costs` writes them, and
``csrc/ops/fit_costs.py`` makes estimates of them. Images are quantized: for floats, shapes alone choose.
HETEROCOMPUTE_ISA leaves instruction sets out.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.prepacked import prepack
from ..base import runtime
from ..products.arguments import core_operand
from ..products.conv import prepared
from ..products.quantize import quantize
from .measure import CheckFailed, Options, Row, Table

Array = np.ndarray[Any, Any]

WEIGHTS = (
    "int8", "int4", "int8-g64", "int4-g32-f16", "int4-g128-asym", "int3-g32-f16", "q4_k", "vsq4-g16-s4", "vsq4-g16",
    "vsq6-g16-s6", "vsq8-g64-s8", "nf4-g64", "mxfp4", "fp8_e4m3fn-row", "log8-8", "int8+2:4", "int8+3:4", "int8+1:8",
    "vsq4-g16-s4+2:4", "int4-g32-f16+2:4", "vsq4-g16-s4+1:4", "nf4-g64+2:4",
    "2:4", "3:4", "1:4", "4:8", "2:8", "1:8", "1:16",
)  # fmt: skip
LAYERS = (  # channels, size of the images, filters, their size, stride, groups
    (3, 32, 16, 3, 1, 1), (16, 16, 16, 3, 1, 1), (64, 14, 64, 3, 1, 1), (64, 28, 64, 3, 1, 1), (128, 14, 128, 3, 1, 1),
    (128, 28, 128, 3, 2, 1), (256, 7, 256, 3, 1, 1), (64, 56, 64, 1, 1, 1), (256, 14, 64, 1, 1, 1),
    (512, 7, 512, 1, 1, 1), (32, 14, 32, 5, 1, 1), (32, 28, 32, 3, 1, 32), (144, 14, 144, 3, 1, 144),
    (96, 28, 96, 3, 2, 96), (512, 7, 512, 3, 1, 512), (64, 14, 64, 3, 1, 4), (512, 7, 512, 3, 1, 1),
    (256, 13, 48, 1, 1, 1), (32, 28, 192, 1, 1, 1), (960, 1, 240, 1, 1, 1), (256, 14, 1024, 1, 1, 1),
    (576, 14, 96, 1, 1, 1), (96, 56, 24, 1, 1, 1), (24, 56, 96, 1, 1, 1), (240, 14, 240, 5, 1, 240),
    (72, 56, 72, 5, 2, 72), (384, 14, 384, 7, 1, 384), (64, 56, 64, 3, 2, 64), (256, 14, 256, 3, 1, 32),
    (3, 64, 96, 4, 4, 1),
)  # fmt: skip
FILTERS = ("int8", "vsq4-g16-s4", "int4-g32-f16", "nf4-g64")
IMAGES, LAYOUTS = (1, 4), ("NCHW", "NHWC")
COUNTS = {  # of hc_work and hc_conv_work
    "product": ("codes", "decoded", "unpacked", "limbs", "spread", "products", "wide", "groups", "values"),
    "conv": ("products", "values", "filters", "kept", "images", "windows"),
}
ACTIVATIONS = (None, "int8", "int24")
ROWS = (1, 2, 4, 8, 16, 64)
SHAPES = ((64, 64), (512, 512), (2048, 2048), (8, 4096), (4096, 64))
SECONDS = 0.005  # minimum time of a path's runs
LEAST_TURNS = 4
FAR = 3.0
CLASSES = ("amx", "avx512vbmi", "avx512vnni", "avx512", "avxvnni", "avx2", "dotprod", "neon")  # best first


def columns(kind: str) -> tuple[str, ...]:
    """Return the header of a CSV file."""
    return ("isa", "path", *COUNTS[kind], "ns", "to_fastest", "spread_of_ns", "calls")


def measure(options: Options) -> list[Table]:
    """Time every path and every algorithm with all instruction sets of this machine."""
    mask = runtime.run()[0]
    names = _core.isa_names(mask)
    isa = next((name for name in CLASSES if name in names), "scalar")
    return [_products(options, isa, (mask, 1)), _convolutions(options, isa)]


def _products(options: Options, isa: str, run: tuple[int, int]) -> Table:
    weights = WEIGHTS[::8] if options.quick else WEIGHTS
    options.report_progress(f"{isa}: paths of {len(weights)} kinds of weights")
    rng = np.random.default_rng(0)
    rows, costs = [], []
    for text, (n, k) in itertools.product(weights, SHAPES[:1] if options.quick else SHAPES):
        if text == "q4_k" and k < 256:
            continue
        w = core_operand(quantize(rng.standard_normal((n, k), dtype=np.float32), text).T)
        for activations, m in itertools.product(ACTIVATIONS, ROWS[:2] if options.quick else ROWS):
            x = rng.standard_normal((m, k), dtype=np.float32)
            operand = core_operand(quantize(x, activations)) if activations else x
            out = np.empty((m, n), np.float32)
            _, _, (chosen, found, _) = _core.explain(run, operand, w, None, out)
            calls: dict[str, Any] = {}
            for name, _, reason, seconds, number, work in found:
                if reason is None:
                    forced = (*run, 1 + _core.paths()[0].index(name))
                    arguments = (forced, operand, w, None, None, out)
                    calls[name] = (number, work, seconds, _core.matmul, arguments)
            if n != k and any(number.startswith("CHAIN") for number, *_ in calls.values()):
                continue  # few outputs are computed by loops of their own, which the counts do not describe
            name = f"{m} x {activations or 'float32'}, {n} x {k} {text}"
            row, more = _row(name, calls, found[chosen][0], out)
            rows.append(row)
            costs += [[isa, *each] for each in more]
    return _table(f"{isa}: path chosen", rows, {"product": costs})


def _convolutions(options: Options, isa: str) -> Table:
    layers = LAYERS[:2] if options.quick else LAYERS
    options.report_progress(f"{isa}: algorithms of {len(layers)} layers")
    rng = np.random.default_rng(0)
    rows, costs = [], []
    held = {name: np.array(numbers) for name, numbers in _core.costs(True, runtime.run()[0])}
    layouts = LAYOUTS[:1] if options.quick else LAYOUTS
    for (c, size, k, r, stride, groups), text, layout in itertools.product(layers, FILTERS, layouts):
        filters = rng.standard_normal((k, c // groups, r, r), dtype=np.float32)
        w = quantize(filters, text, axis=(2, 3, 1))
        for images, is_kept in itertools.product(IMAGES[:1] if options.quick else IMAGES, (False, True)):
            shape = (images, c, size, size) if layout == "NCHW" else (images, size, size, c)
            x = rng.standard_normal(shape, dtype=np.float32)
            padding = r // 2 if stride < r else 0
            operands: dict[bytes, Any] | None = {} if is_kept else None
            call = prepared(
                "plan", x, prepack(w) if is_kept else w, None, stride, padding, 1, groups, "int8", layout=layout
            )
            if operands is not None:
                _core.conv2d(*(*call.core, operands))
            calls: dict[str, Any] = {}
            rests: dict[str, float] = {}
            chosen, found, _ = _core.explain_conv2d(*(*call.core, operands))
            for name, _, reason, seconds, work, _, _, number in found:
                if reason is None:
                    rests[name] = seconds * 1e9 - float(held[number] @ [1.0, *work])
                    calls[name] = (number, work, seconds, _core.conv2d, (*call.arguments_for(name), operands))
            where = f"stride {stride}, {groups} groups, {layout}, kept {is_kept}"
            name = f"{images} x {c} @ {size}, {k} of {r} x {r} {text}, {where}"
            row, more = _row(name, calls, found[chosen][0], call.result, rests)
            rows.append(row)
            costs += [[isa, *each] for each in more]
    return _table(f"{isa}: algorithm chosen", rows, {"conv": costs})


def _table(title: str, rows: list[Row], costs: dict[str, list[list[Any]]]) -> Table:
    slower = np.array([row["slower"] for row in rows])
    of_all = {"name": "all: mean, worst", "slower": float(slower.mean()), "worst": float(slower.max())}
    return {"title": title, "threads": 1, "rows": [of_all, *rows], "costs": costs}


def _row(
    name: str,
    calls: Mapping[str, tuple[str, Any, float, Callable[..., Any], Any]],
    chosen: str,
    out: Array,
    rests: Mapping[str, float] | None = None,
) -> tuple[Row, list[list[Any]]]:
    """Time calls by path: its number's name, its work, its estimate, a function and the arguments.

    `rests` are the nanoseconds that estimates add to those of the counts, for planes that are transposed. They are no
    part of the costs.
    """
    turns: dict[str, list[int]] = {path: [] for path in calls}
    wanted = None
    for path, (*_, function, arguments) in calls.items():
        function(*arguments)
        wanted = out.tobytes() if wanted is None else wanted
        if out.tobytes() != wanted:
            raise CheckFailed(f"{name}: path {path} gives other bits")
    left = list(turns)
    while left:
        for path in left:
            *_, function, arguments = calls[path]
            begin = time.process_time_ns()
            function(*arguments)
            turns[path].append(max(time.process_time_ns() - begin, 1))  # a clock may stand still
        least = min(map(min, turns.values()))
        left = [path for path in left if not _is_known(turns[path], least)]
    times = {path: min(rounds) for path, rounds in turns.items()}
    best = min(times, key=lambda path: times[path])
    ratios = {"slower": times[chosen] / times[best], "estimate": calls[chosen][2] * 1e9 / times[chosen]}
    row = {"name": name, "chosen": chosen, "fastest": best, "seconds": times[chosen] * 1e-9, **ratios, "times": times}
    costs = []
    for path, (number, work, *_) in calls.items():
        rounds = turns[path]
        spread, rest = float(np.median(rounds)) / min(rounds), (rests or {}).get(path, 0.0)
        ns = round(min(rounds) - min(max(rest, 0.0), 0.9 * min(rounds)))
        costs.append([number, *work, ns, min(rounds) / times[best], spread, len(rounds)])
    return row, costs


def _is_known(rounds: list[int], least: int) -> bool:
    """Tell whether a path was timed often enough; one that is much slower than the fastest needs two rounds."""
    return (len(rounds) >= LEAST_TURNS and sum(rounds) >= SECONDS * 1e9) or (
        len(rounds) > 1 and min(rounds) > FAR * least
    )


def write_costs(costs: Mapping[str, list[list[Any]]], folder: Path) -> None:
    """Write rows of `columns` to the processor's CSV files, in place of those of the same instruction sets."""
    for kind, rows in costs.items():
        path = folder / f"{kind}-{_core.cpu_processor()}.csv.gz"
        others = gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)[1:] if path.exists() else []
        file = io.StringIO(newline="")
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(columns(kind))
        for isa, name, *counts, ns, slower, spread, calls in rows:
            numbers = (f"{count:.6g}" for count in counts)
            lines.writerow([isa, name, *numbers, ns, f"{slower:.2f}", f"{spread:.2f}", calls])
        measured = {isa for isa, *_ in rows}
        file.writelines(line for line in others if line.partition(",")[0] not in measured)
        path.write_bytes(gzip.compress(file.getvalue().encode(), mtime=0))
