"""The plan held against the clock: every path of many products, forced and timed, next to its estimate.

A row is a product: the path that the plan chose, the fastest one, and the ratio of their times. The table also holds
`costs`: the times of every path of these products, with the counts of `hc_work`, which `write_costs` writes and
``csrc/ops/product/costs/fit.py`` makes estimates of.
HETEROCOMPUTE_ISA leaves instruction sets out.
"""

from __future__ import annotations

import csv
import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..base import runtime
from ..products.arguments import core_operand
from ..products.quantize import quantize
from .measure import CheckFailed, Options, Row, Table

Array = np.ndarray[Any, Any]

WEIGHTS = (
    "int8", "int4", "int4-g32-f16", "int3-g32-f16", "q4_k", "vsq4-g16-s4", "vsq4-g16", "vsq6-g16-s6", "vsq8-g64-s8",
    "nf4-g64", "mxfp4", "fp8_e4m3fn-row", "log8-8", "int8+2:4", "int8+3:4", "int8+1:8", "vsq4-g16-s4+2:4",
    "int4-g32-f16+2:4", "vsq4-g16-s4+1:4", "nf4-g64+2:4",
    "2:4", "3:4", "1:4", "4:8", "2:8", "1:8", "1:16",
)  # fmt: skip
COUNTS = ("codes", "decoded", "unpacked", "limbs", "spread", "products", "wide", "groups", "values")  # of hc_work
COLUMNS = ("isa", "path", *COUNTS, "ns", "to_fastest", "spread_of_ns", "calls")
ACTIVATIONS = (None, "int8", "int24")
ROWS = (1, 2, 4, 8, 16, 64)
SHAPES = ((64, 64), (512, 512), (2048, 2048))
SECONDS = 0.005  # of a path's turns at least
LEAST_TURNS = 4
FAR = 3.0
CLASSES = ("amx", "avx512vbmi", "avx512vnni", "avx512", "avxvnni", "avx2", "dotprod", "neon")  # best first


def measure(options: Options) -> list[Table]:
    """Time every path with all instruction sets of this machine."""
    mask = runtime.run()[0]
    names = _core.isa_names(mask)
    isa = next((name for name in CLASSES if name in names), "scalar")
    weights = WEIGHTS[::8] if options.quick else WEIGHTS
    options.say(f"{isa}: paths of {len(weights)} kinds of weights")
    rng = np.random.default_rng(0)
    run, rows, costs = (mask, 1), [], []
    for text, (n, k) in itertools.product(weights, SHAPES[:1] if options.quick else SHAPES):
        if text == "q4_k" and k < 256:
            continue
        w = core_operand(quantize(rng.standard_normal((n, k), dtype=np.float32), text).T)
        for activations, m in itertools.product(ACTIVATIONS, ROWS[:2] if options.quick else ROWS):
            x = rng.standard_normal((m, k), dtype=np.float32)
            operand = core_operand(quantize(x, activations)) if activations else x
            name = f"{m} x {activations or 'float32'}, {n} x {k} {text}"
            row, found = _row(name, run, operand, w, np.empty((m, n), np.float32))
            rows.append(row)
            costs += [[isa, *each] for each in found]
    slower = np.array([row["slower"] for row in rows])
    of_all = {"name": "all: mean, worst", "slower": float(slower.mean()), "worst": float(slower.max())}
    return [{"title": f"{isa}: path chosen", "threads": 1, "rows": [of_all, *rows], "costs": costs}]


def _row(name: str, run: tuple[int, int], a: Any, b: Any, out: Array) -> tuple[Row, list[list[Any]]]:
    _, _, number, candidates = _core.explain(run, a, b, None, out)
    able = [candidate for candidate in candidates if candidate[2] is None]
    turns: dict[str, list[int]] = {path: [] for path, *_ in able}
    wanted = None
    for path in turns:
        _core.matmul((*run, 1 + _core.paths().index(path)), a, b, None, None, out)
        wanted = out.tobytes() if wanted is None else wanted
        if out.tobytes() != wanted:
            raise CheckFailed(f"{name}: path {path} gives other bits")
    left = list(turns)
    while left:
        for path in left:
            forced = (*run, 1 + _core.paths().index(path))
            begin = time.process_time_ns()
            _core.matmul(forced, a, b, None, None, out)
            turns[path].append(time.process_time_ns() - begin)
        least = min(map(min, turns.values()))
        left = [path for path in left if not _is_known(turns[path], least)]
    times = {path: min(taken) for path, taken in turns.items()}
    chosen, best = candidates[number][0], min(times, key=lambda path: times[path])
    ratios = {"slower": times[chosen] / times[best], "estimate": candidates[number][3] * 1e9 / times[chosen]}
    row = {"name": name, "chosen": chosen, "fastest": best, "seconds": times[chosen] * 1e-9, **ratios, "times": times}
    costs = []
    for path, *_, number_name, work in able:
        taken = turns[path]
        spread = float(np.median(taken)) / min(taken)
        costs.append([number_name, *work, min(taken), min(taken) / times[best], spread, len(taken)])
    return row, costs


def _is_known(taken: list[int], least: int) -> bool:
    """Whether a path has had its turns; one that is much slower than the fastest needs two."""
    return (len(taken) >= LEAST_TURNS and sum(taken) >= SECONDS * 1e9) or (len(taken) > 1 and min(taken) > FAR * least)


def write_costs(costs: list[list[Any]], folder: Path) -> None:
    """Write rows of `COLUMNS` to the processor's CSV file, in place of those of the same instruction sets."""
    path = folder / f"{_core.cpu_processor()}.csv"
    others = path.read_text().splitlines(keepends=True)[1:] if path.exists() else []
    with open(path, "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for isa, name, *counts, ns, slower, spread, calls in costs:
            numbers = (f"{count:.6g}" for count in counts)
            rows.writerow([isa, name, *numbers, ns, f"{slower:.2f}", f"{spread:.2f}", calls])
        measured = {isa for isa, *_ in costs}
        file.writelines(line for line in others if line.partition(",")[0] not in measured)
