"""Products of N:M patterns against OpenBLAS on the dense matrix, and pruning against the memory limit.

Rates count the operations of the dense product, skipped ones included; every time includes packing the activations and
writing the answer in rows. Pruning counts the bytes read and written.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import cycle
from re import sub
from typing import Any

import numpy as np

from ..arrays.quantized import QuantizedArray
from ..base.runtime import use
from ..products.matmul import linear, matmul
from ..products.quantize import quantize
from ..pruning.prune import prune
from .limits import READS, read_limits
from .machine import beyond_cache_bytes
from .measure import Candidate, Options, Table, Times, expect_equal

Array = np.ndarray[Any, Any]

PATTERNS = ("2:4", "1:4", "4:8", "2:8", "1:8", "1:16")
QUANTIZED = ("int8", "int8+2:4", "int8+1:4", "int8+1:8", "int8+1:16")
SHAPE, QUICK_SHAPE = (2048, 2048, 2048), (16, 32, 64)  # rows of x, rows of w, columns
# One vector: weights in memory and in L3; each pattern follows the same weights without a pattern.
BEYOND, CACHED, QUICK_VECTOR = (14336, 4096), (2048, 2048), (32, 64)
PATTERNS_OF = {"int8": ("", "+2:4", "+4:8", "+1:4", "+1:8"), None: ("", "+2:4")}
ONE_VECTOR = (("2:4", None), *((f"{base}{pattern}", act) for act in PATTERNS_OF for base in ("vsq4-g16-s4", "int8")
              for pattern in PATTERNS_OF[act]))  # fmt: skip
DENSE, OWN = "dense, OpenBLAS", "dense, own"


def measure(options: Options) -> list[Table]:
    """Measure products of many rows, products of one vector, and pruning, with each thread count."""
    rng = np.random.default_rng(0)
    m, n, k = QUICK_SHAPE if options.quick else SHAPE
    x, w = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((n, k), dtype=np.float32)
    tables = []
    for threads in options.threads:
        options.report_progress(f"{m} x {n} x {k}, {threads} threads")
        with use(threads=threads):
            tables.append(_products(x, w, threads, options))
            tables.append(_products(x[:1], w, threads, options))
            for shape in (QUICK_VECTOR,) if options.quick else (BEYOND, CACHED):
                tables.append(_one_vector(shape, threads, options))
            tables.append(_pruning(w, threads, options))
    return tables


def _products(x: Array, w: Array, threads: int, options: Options) -> Table:
    m, (n, k) = len(x), w.shape
    work = 2.0 * m * n * k
    out = np.empty((m, n), np.float32)

    def own() -> None:
        with use(blas="own"):
            matmul(x, w.T, out=out)

    candidates = [
        Candidate(DENSE, lambda: matmul(x, w.T, out=out), work, "GFLOP/s"),
        Candidate(OWN, own, work, "GFLOP/s"),
        *(sparse_product(text, x, prune(w, text), None, out) for text in PATTERNS),
        *(sparse_product(f"{text} x int8", x, quantize(w, text), "int8", out) for text in QUANTIZED),
    ]
    times = Times(candidates, options, threads)
    rows = [times.row(name, to_sgemm=times.speedup(name, DENSE)) for name in times.candidates]
    return {"title": f"Product {m} x {n} x {k}", "threads": threads, "shape": [m, n, k], "rows": rows}


def _one_vector(shape: tuple[int, int], threads: int, options: Options) -> Table:
    n, k = shape
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, k), dtype=np.float32), rng.standard_normal((n, k), dtype=np.float32)
    out, smallest = np.empty((1, n), np.float32), beyond_cache_bytes() if shape == BEYOND else 0
    candidates = [walk(DENSE, x, w, None, out, smallest)]
    for text, activations in ONE_VECTOR:
        packed = prune(w, text) if text in PATTERNS else quantize(w, text)
        candidates.append(walk(f"{text} x {activations or 'float32'}", x, packed, activations, out, smallest))
    times = Times(candidates, options, threads)

    def faster(name: str, base: str) -> float | None:
        ratio = times.speedup(name, base) if base in times.candidates else None
        copies = [times.candidates[one].details["copies"] for one in (name, base)] if ratio else []
        return ratio * copies[0] / copies[1] if ratio else None

    rows = [
        times.row(
            name,
            to_sgemv=faster(name, DENSE),
            to_dense=faster(name, sub(r"\+\d+:\d+", "", name)) if "+" in name else None,
        )
        for name in times.candidates
    ]
    title = f"One vector times {n} x {k}, {'beyond' if shape == BEYOND else 'in'} L3"
    return {"title": title, "threads": threads, "shape": [1, n, k], "rows": rows}


def walk(name: str, x: Array, w: Any, activations: str | None, out: Array, smallest: int) -> Candidate:
    """Return the candidate that multiplies x with w and copies of it, together more than this many bytes."""
    copies = [w, *(deepcopy(w) for _ in range(smallest // w.nbytes))]

    def product(one: Any) -> Array:
        if isinstance(one, np.ndarray):
            return matmul(x, one.T, out=out)
        return linear(x, one, activations=activations, out=out)

    def run() -> None:
        for one in copies:
            product(one)

    def check() -> None:
        found = product(w).copy()
        if not isinstance(w, np.ndarray):
            with use(isa="scalar", threads=1):
                expect_equal(name, found, product(w))

    nbytes = sum(one.nbytes for one in copies)
    return Candidate(name, run, nbytes, "GB/s", check, {"copies": len(copies)})


def sparse_product(name: str, x: Array, w: QuantizedArray, activations: str | None, out: Array) -> Candidate:
    """Return the candidate that multiplies x with pruned weights."""

    def check() -> None:
        found = linear(x, w, activations=activations)
        with use(isa="scalar", threads=1):
            expect_equal(name, found, linear(x, w, activations=activations))

    work = 2.0 * len(x) * w.shape[0] * w.shape[1]
    return Candidate(name, lambda: linear(x, w, activations=activations, out=out), work, "GFLOP/s", check)


def _pruning(w: Array, threads: int, options: Options) -> Table:
    n_copies = 1 if options.quick else beyond_cache_bytes() // w.nbytes + 1
    arrays = [w, *(w[::-1].copy() for _ in range(n_copies - 1))]
    candidates = read_limits(arrays, threads)
    for text in PATTERNS:
        following = cycle(arrays)

        def run(text: str = text, following: Iterator[Array] = following) -> None:
            prune(next(following), text)

        candidates.append(Candidate(f"prune {text}", run, w.nbytes + prune(w, text).nbytes, "GB/s"))
    times = Times(candidates, options, threads)
    limit = times.best(list(READS.values()))
    rows = [times.row(name, of_limit=times.fraction(name, limit)) for name in times.candidates]
    return {"title": f"Prune {len(w)} x {w.shape[1]}", "threads": threads, "shape": [*w.shape], "rows": rows}
