"""The plan held against the clock: every path of many products, forced and timed, beside its estimate.

A row is a product: what the plan chose, what was the fastest, and how much longer the choice took. A table is a class
of instruction sets, or all that the machine has where those are more than the last class, and holds the lines that
csrc/ops/product/measures.def wants for it: the estimate of a path is call + code * codes + decoded * decoded codes +
product * multiply-adds + value * values of x, in nanoseconds, with the coefficients, none negative, that bring
estimate / time nearest to 1.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..products.arguments import core_operand
from ..products.quantize import quantize
from .measure import CheckFailed, Options, Row, Table

Array = np.ndarray[Any, Any]
Work = tuple[float, ...]

WEIGHTS = (
    "int8", "int4-g32-f16", "vsq4-g16-s4", "vsq4-g16", "vsq8-g64-s8", "nf4-g64", "mxfp4", "fp8_e4m3fn-row", "log8-8",
    "2:4", "3:4", "1:8", "int8+2:4", "int8+3:4", "int8+1:8", "vsq4-g16-s4+2:4", "nf4-g64+2:4", "vsq4-g16-s4+1:4",
)  # fmt: skip
ACTIVATIONS = (None, "int8", "int24")
ROWS = (1, 2, 4, 8, 16, 64)
SHAPES = ((64, 64), (512, 512), (2048, 2048))
SECONDS = 0.01  # of a path's turns at least
CLASSES = ("scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "amx")


def measure(options: Options) -> list[Table]:
    """Time every path in each class of instruction sets of this machine."""
    tables = []
    names = _core.isa_names(_core.cpu_isa())
    classes = {name: _core.isa_mask(name) for name in CLASSES if name in names}
    if _core.cpu_isa() not in classes.values():  # such as AVX-512 VNNI with VBMI
        classes["all"] = _core.cpu_isa()
    weights = WEIGHTS[::4] if options.quick else WEIGHTS
    for isa in list(classes)[-1:] if options.quick else classes:
        options.say(f"{isa}: paths of {len(weights)} kinds of weights")
        run = (classes[isa], 1)
        found: dict[str, list[tuple[Work, float]]] = {}
        rows = []
        rng = np.random.default_rng(0)
        shapes = SHAPES[:1] if options.quick else SHAPES[:2] if isa == "scalar" else SHAPES
        for text, (n, k) in itertools.product(weights, shapes):
            w = quantize(rng.standard_normal((n, k), dtype=np.float32), text)
            for activations, m in itertools.product(ACTIVATIONS, ROWS[:2] if options.quick else ROWS):
                x = rng.standard_normal((m, k), dtype=np.float32)
                operand = core_operand(quantize(x, activations)) if activations else x
                name = f"{m} x {activations or 'float32'}, {n} x {k} {text}"
                rows.append(_row(name, run, operand, core_operand(w.T), np.empty((m, n), np.float32), found))
        slower = sorted(row["slower"] for row in rows)
        rows = [{"name": "all, median", "slower": slower[len(slower) // 2]}, *rows]
        tables.append({"title": f"{isa}: path chosen", "threads": 1, "rows": rows, "measures": _lines(isa, found)})
    return tables


def _row(
    name: str, run: tuple[int, int], a: Any, b: Any, out: Array, found: dict[str, list[tuple[Work, float]]]
) -> Row:
    _, _, number, candidates = _core.explain(run, a, b, None, out)
    times: dict[str, float] = {}
    wanted = None
    for path, _, reason, _, number_name, work in candidates:
        if reason is not None:
            continue
        forced = (*run, 1 + _core.paths().index(path))
        times[path] = _fastest(lambda forced=forced: _core.matmul(forced, a, b, None, None, out))  # type: ignore[misc]
        found.setdefault(number_name, []).append(((1.0, *work), times[path] * 1e9))
        wanted = out.copy() if wanted is None else wanted
        if out.tobytes() != wanted.tobytes():
            raise CheckFailed(f"{name}: path {path} gives other bits")
    chosen, best = candidates[number][0], min(times, key=lambda path: times[path])
    estimate = candidates[number][3]
    ratios = {"slower": times[chosen] / times[best], "estimate": estimate / times[chosen]}
    return {"name": name, "chosen": chosen, "fastest": best, "seconds": times[chosen], **ratios}


def _fastest(call: Callable[[], object]) -> float:
    call()
    best, end = float("inf"), time.perf_counter() + SECONDS
    for turn in itertools.count():
        begin = time.perf_counter()
        call()
        now = time.perf_counter()
        best = min(best, now - begin)
        if turn >= 4 and now > end:
            return best
    raise AssertionError


def _fit(samples: list[tuple[Work, float]]) -> Array:
    """Return the coefficients, none negative, with the least squares of estimate / time - 1."""
    scaled = np.array([np.divide(work, nanoseconds) for work, nanoseconds in samples])
    best, least = np.zeros(scaled.shape[1]), np.inf
    for count in range(1, scaled.shape[1] + 1):
        for columns in itertools.combinations(range(scaled.shape[1]), count):
            some = scaled[:, columns]
            found = np.linalg.lstsq(some, np.ones(len(some)), rcond=None)[0]
            error = float(np.sum((some @ found - 1) ** 2))
            if (found >= 0).all() and error < least - 1e-9:
                best, least = np.zeros(scaled.shape[1]), error
                best[list(columns)] = found
    return best


def _lines(isa: str, found: dict[str, list[tuple[Work, float]]]) -> list[str]:
    fitted = {number: ", ".join(f"{value:.3g}" for value in _fit(samples)) for number, samples in found.items()}
    return [f"/* {isa} */", *(f"[HC_PATH_{number}] = {{{values}}}," for number, values in fitted.items())]
