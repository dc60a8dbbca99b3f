"""The table of speeds of the README, for this machine: one row per comparison, with all its ratios.

Every ratio is the median over rounds in which all candidates of a row ran in turn. As ``summary-avx2`` it measures the
first row without VNNI, next to OpenBLAS's own AVX2 kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..base.runtime import use
from ..products.quantize import quantize
from ..pruning.prune import prune
from . import gemm, gemv, sparse
from .blas import find_blas
from .limits import READS, loop_limit, read_limits
from .machine import beyond_cache_bytes
from .measure import Candidate, Options, Row, Table, Times
from .peers import Peer, product_peers
from .quantize import plain_numpy, quantizing

Array = np.ndarray[Any, Any]

MAIN = "vsq4-g16-s4"
FLOATS = ("vsq4-g16-s4", "nf4-g64", "mxfp4", "nvfp4")
PATTERNS = ("2:4", "1:4", "1:8", "1:16")
INTEGERS = ("int8+2:4", "int8+1:4")
SQUARE, WEIGHTS = (2048, 2048, 2048), (4096, 4096)
MEMORY, DOTS = "reading memory", "int8 dot products"


def measure(options: Options) -> list[Table]:
    """Measure the table with each thread count."""
    tables = []
    for threads in options.threads:
        with use(threads=threads):
            rows = _batch(options, threads)
            if not _narrow(options):
                rows += _pruned(options, threads) + _vector(options, threads) + _packing(options, threads)
        tables.append({"title": "Speed", "threads": threads, "rows": rows})
    return tables


def joined(tables: list[Table], narrow: list[Table]) -> list[Table]:
    """Return the tables with the rows of AVX2 after the first row.

    Parameters
    ----------
    tables, narrow : list of dict
        With the same numbers of threads.
    """
    return [
        {**table, "rows": [*table["rows"][:1], *more["rows"], *table["rows"][1:]]}
        for table, more in zip(tables, narrow, strict=True)
    ]


def _narrow(options: Options) -> bool:
    return options.name.endswith("-avx2")


def _random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _shape(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape))


def _row(name: str, compared: str, speedups: list[float | None], limits: list[float | None], limit: str) -> list[Row]:
    """Return a row, or none if there was nothing to compare with."""
    row: Row = {"name": name}
    if None not in speedups:
        row |= {"compared": compared, "speedups": speedups}
    if limits and None not in limits:
        row |= {"of_limits": limits, "limit": limit}
    return [row] if len(row) > 1 else []


def _against_peers(times: Times, name: str, candidate: str, peers: list[Peer], kind: str) -> list[Row]:
    """Return the row against the fastest of the peers of a kind; none without such a library."""
    best = times.best([peer.name for peer in peers if peer.kind == kind])
    if best is None:
        return []
    copied = "copies" in times.candidates[candidate].details
    ratio = gemv.faster(times, candidate, best) if copied else times.speedup(candidate, best)
    return _row(name, best, [ratio], [], "")


def _batch(options: Options, threads: int) -> list[Row]:
    narrow = _narrow(options)
    shape = gemm.QUICK_SHAPE if options.quick else gemm.SHAPES[0]
    m, n, k = shape
    options.report_progress(f"{_shape(shape)}, {threads} threads")
    x, w, out = _random(m, k), _random(n, k), np.empty((m, n), np.float32)
    blas = find_blas()
    candidates = [loop_limit("dot", threads, options)]
    candidates += [] if blas is None else [gemm.sgemm(blas, x, w, out, threads)]
    candidates.append(gemm.quantized(x, quantize(w, MAIN), "int8", out))
    peers: list[Peer] = []
    if not narrow:
        candidates += [gemm.quantized(x, quantize(w, text), None, out) for text in FLOATS]
        peers = product_peers(w, threads, ("int8", "4 bit"))
        candidates += [gemm.peer_of(peer, x, w) for peer in peers]
    times = Times(candidates, options, threads)
    name = f"{MAIN} x int8"
    speed, limit = times.speedup(name, gemm.SGEMM), times.fraction(name, gemm.INT8_LIMIT)
    if narrow:
        return _row("the same with AVX2 alone", "OpenBLAS sgemm, Haswell", [speed], [limit], DOTS)
    title = f"{_shape(shape)}, {name}"
    rows = _row(title, "OpenBLAS sgemm", [speed], [limit], DOTS)
    rows += _against_peers(times, title, name, peers, "int8") + _against_peers(times, title, name, peers, "4 bit")
    speeds = [times.speedup(f"{text} x float32", gemm.SGEMM) for text in FLOATS]
    return rows + _row(f"{_shape(shape)}, {' / '.join(FLOATS)} x float32", "OpenBLAS sgemm", speeds, [], "")


def _pruned(options: Options, threads: int) -> list[Row]:
    shape = sparse.QUICK_SHAPE if options.quick else SQUARE
    m, n, k = shape
    options.report_progress(f"{_shape(shape)}, {threads} threads")
    x, w, out = _random(m, k), _random(n, k), np.empty((m, n), np.float32)
    blas = find_blas()
    candidates = [] if blas is None else [gemm.sgemm(blas, x, w, out, threads)]
    candidates += [sparse.sparse_product(text, x, prune(w, text), None, out) for text in PATTERNS]
    dense, *kept = (f"{text} x int8" for text in ("int8", *INTEGERS))
    for name in (dense, *kept):
        candidates.append(sparse.sparse_product(name, x, quantize(w, name.partition(" ")[0]), "int8", out))
    times = Times(candidates, options, threads)
    floats = [times.speedup(name, gemm.SGEMM) for name in PATTERNS]
    integers = [times.speedup(name, gemm.SGEMM) for name in kept]
    title = f"{_shape(shape)}, {' / '.join(INTEGERS)} x int8"
    rows = _row(f"{_shape(shape)}, float32, pruned to {' / '.join(PATTERNS)}", "OpenBLAS sgemm", floats, [], "")
    rows += _row(title, "OpenBLAS sgemm", integers, [], "")
    return rows + _row(title, dense, [times.speedup(name, dense) for name in kept], [], "")


def _vector(options: Options, threads: int) -> list[Row]:
    n, k = gemv.QUICK_SHAPE if options.quick else gemv.SHAPE
    options.report_progress(f"batch 1, {n} x {k}, {threads} threads")
    x, w = _random(1, k), _random(n, k)
    smallest = 1 if options.quick else beyond_cache_bytes()
    blas, pruned = find_blas(), f"{MAIN}+2:4"
    candidates = [] if blas is None else [gemv.sgemv(blas, x, gemv.copies_of(w, smallest), threads)]
    copies = {text: gemv.copies_of(quantize(w, text), smallest) for text in FLOATS}
    for text in FLOATS:
        candidates += gemv.reads(text, copies[text], threads)
        candidates.append(gemv.quantized(x, copies[text], None))
    candidates.append(gemv.quantized(x, copies[MAIN], "int8"))
    out = np.empty((1, n), np.float32)
    candidates.append(sparse.walk(f"{pruned} x int8", x, quantize(w, pruned), "int8", out, smallest))
    peers = product_peers(w, threads, ("4 bit",), len(copies[MAIN]))
    candidates += [gemv.peer_of(peer, x, w, copies[MAIN]) for peer in peers]
    times = Times(candidates, options, threads)
    names = [f"{MAIN} x int8", f"{pruned} x int8", *(f"{text} x float32" for text in FLOATS)]
    main, less, *floats = (gemv.faster(times, name, gemv.SGEMV) for name in names)
    shares = [times.fraction(f"{text} x float32", gemv.limit_of(times, text)) for text in FLOATS]
    share = times.fraction(names[0], gemv.limit_of(times, MAIN))
    title = f"batch 1, {n} x {k}, "
    rows = _row(title + names[0], gemv.SGEMV, [main], [share], MEMORY)
    rows += _against_peers(times, title + names[0], names[0], peers, "4 bit")
    rows += _row(title + names[1], gemv.SGEMV, [less], [], "")
    rows += _row(title + names[1], names[0], [gemv.faster(times, names[1], names[0])], [], "")
    return rows + _row(f"{title}{' / '.join(FLOATS)} x float32", gemv.SGEMV, floats, shares, MEMORY)


def _packing(options: Options, threads: int) -> list[Row]:
    n, k = gemm.QUICK_SHAPE[1:] if options.quick else WEIGHTS
    options.report_progress(f"quantize {n} x {k}, {threads} threads")
    first = _random(n, k)
    count = 1 if options.quick else beyond_cache_bytes() // first.nbytes + 1
    arrays = [first, *(first[::-1].copy() for _ in range(count - 1))]
    ours: Candidate = quantizing(arrays, MAIN)
    theirs = plain_numpy(first, MAIN)
    times = Times([*read_limits(arrays, threads), ours, theirs], options, threads)
    share = times.fraction(ours.name, times.best(list(READS.values())))
    speed = times.fraction(ours.name, theirs.name)
    return _row(f"quantize {n} x {k} to {MAIN}", "NumPy", [speed], [share], MEMORY)
