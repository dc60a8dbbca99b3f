"""The machine's limits: float32 multiply-adds, int8 dot products, byte shuffles, reading memory, and OpenBLAS.

The loops are the kernel families limit_* of the C core (csrc/kernels/peak/peak.h).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..base import runtime
from .blas import Blas, find_blas
from .machine import beyond_cache_bytes
from .measure import Candidate, CheckFailed, Options, Table, Times, expect_close

Array = np.ndarray[Any, Any]

STEPS = 1 << 21  # 12 instructions each, about 7 ms
UNITS = {"fma": "GFLOP/s", "dot": "GOP/s", "shuffle": "G/s"}
NAMES = {"fma": "float32 FMA", "dot": "int8 dot", "shuffle": "byte shuffle"}
READS = {"read": "read", "read-ahead": "read with prefetch"}


def loop_limit(what: str, threads: int, options: Options) -> Candidate:
    """Return the candidate that runs a loop on registers: ``"fma"``, ``"dot"`` or ``"shuffle"``."""
    run = (runtime.run()[0], threads)
    steps = 64 if options.quick else STEPS
    work, _, isa = _core.limit(run, what, steps)
    check = _same_sum(what, lambda used: _core.limit(used, what, 64)[1], run)
    return Candidate(NAMES[what], lambda: _core.limit(run, what, steps), work, UNITS[what], check, {"isa": isa})


def read_limits(arrays: list[Array], threads: int, label: str = "") -> list[Candidate]:
    """Return the candidates that read these arrays, plain and with prefetch."""
    run = (runtime.run()[0], threads)
    work = sum(array.nbytes for array in arrays)
    _, _, isa = _core.limit(run, "read", arrays[0])
    candidates = []
    for what, name in READS.items():

        def read(what: str = what) -> None:
            for array in arrays:
                _core.limit(run, what, array)

        check = _same_sum(name, partial(_word_sum, arrays[0], what), run)
        candidates.append(Candidate(name + label, read, work, "GB/s", check, {"isa": isa}))
    return candidates


def _word_sum(array: Array, what: str, run: tuple[int, int]) -> int:
    return _core.limit(run, what, array)[1]


def _same_sum(name: str, sum_of: Callable[[tuple[int, int]], int], run: tuple[int, int]) -> Callable[[], None]:
    """Return a check that the chosen row computes the same as the scalar one."""

    def check() -> None:
        if sum_of(run) != sum_of((0, 1)):
            raise CheckFailed(f"{name}: the sum differs from that of the scalar loop")

    return check


def measure(options: Options) -> list[Table]:
    """Measure the limits with each thread count."""
    rng = np.random.default_rng(0)
    memory = np.ones((1 << 16 if options.quick else max(beyond_cache_bytes(), 640 << 20)) // 4, np.float32)
    m, n, k = (17, 48, 64) if options.quick else (512, 4096, 4096)
    rows = 48 if options.quick else 14336
    x = rng.standard_normal((m, k), dtype=np.float32)
    w = rng.standard_normal((rows, k), dtype=np.float32)
    blas = find_blas()
    tables = []
    for threads in options.threads:
        options.report_progress(f"{threads} threads")
        candidates = [loop_limit(what, threads, options) for what in NAMES]
        candidates += read_limits([memory], threads)
        if blas is not None:
            candidates += _blas_candidates(blas, x, w, n, threads)
        times = Times(candidates, options, threads)
        title = f"Limits, {len(memory) * 4 / 2**20:,.0f} MiB read"
        tables.append({"title": title, "threads": threads, "rows": [times.row(name) for name in times.candidates]})
    return tables


def _blas_candidates(blas: Blas, x: Array, w: Array, n: int, threads: int) -> list[Candidate]:
    (m, k), vector = x.shape, x[0]
    y, column = np.empty((m, n), np.float32), np.empty(len(w), np.float32)

    def check_gemm() -> None:
        expect_close("sgemm", y[::97], x[::97].astype(np.float64) @ w[:n].astype(np.float64).T, 1e-5)

    def check_gemv() -> None:
        expect_close("sgemv", column, w.astype(np.float64) @ vector.astype(np.float64), 1e-5)

    gemm = f"OpenBLAS sgemm {m} x {n} x {k}"
    gemv = f"OpenBLAS sgemv {len(w)} x {k}"
    return [
        Candidate(gemm, lambda: blas.gemm(threads, x, w[:n], y), 2.0 * m * n * k, "GFLOP/s", check_gemm),
        Candidate(gemv, lambda: blas.gemv(threads, w, vector, column), w.nbytes, "GB/s", check_gemv),
    ]
