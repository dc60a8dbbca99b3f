"""Integer products of 1 to 128 rows, shape by shape, against the best peer that quantizes its input as well.

The weights of these are reused, and their activations arrive in single rows, small batches and sentences. Peers prepack
their weights; ours are used as stored. OpenBLAS's float32 product and the best peer of each point have a row too. The
last row counts the points below the target.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.quantized import QuantizedArray
from ..base.runtime import use
from ..formats import format as parse_format
from ..products.matmul import linear
from ..products.quantize import quantize
from ..reference import product as reference
from .blas import Blas, find_blas
from .measure import Candidate, Options, Row, Table, Times, expect_close, expect_equal
from .peers import Peer, product_peers

Array = np.ndarray[Any, Any]

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
SHAPES = ((768, 768), (2048, 2048), (4096, 4096), (14336, 4096), (4096, 14336))
FORMATS = ("int8", "vsq4-g16-s4", "int4")
TARGET, FOUR_BIT_TARGET = 1.0, 1.2  # relative to the best int8 library, and to the best 4-bit library with one vector
SAMPLE = 8
TITLE = "Integer products of 1 to 128 rows"
SGEMM, PEER = "OpenBLAS sgemm", "best int8 peer"


def measure(options: Options, threads: int) -> Table:
    """Time every point, with all formats and libraries of a point interleaved."""
    rng = np.random.default_rng(0)
    rows: list[Row] = []
    blas = find_blas()
    for n, k in ((48, 64),) if options.quick else SHAPES:
        options.report_progress(f"1 to {max(ROWS)} rows times {n} x {k}, {threads} threads")
        w = rng.standard_normal((n, k), dtype=np.float32)
        packed = [quantize(w, text) for text in FORMATS]
        peers = product_peers(w, threads, ("int8", "4 bit"))
        for m in ROWS[:2] if options.quick else ROWS:
            x = rng.standard_normal((m, k), dtype=np.float32)
            some = slice(None, None, max(n // SAMPLE, 1))
            exact = x.astype(np.float64) @ w[some].astype(np.float64).T
            candidates = [_ours(x, q) for q in packed]
            candidates += [_peer(peer, x, w, exact, some) for peer in peers if peer.kind == "int8" or m == 1]
            if blas is not None:
                candidates.append(_sgemm(blas, x, w, exact, some, threads))
            with use(threads=threads):
                times = Times(candidates, options, threads)
            best = times.best([peer.name for peer in peers if peer.kind == "int8"])
            four_bit = times.best([peer.name for peer in peers if peer.kind == "4 bit"])
            for text in FORMATS:
                row = times.row(
                    text,
                    to_int8_peer=times.speedup(text, best),
                    to_4_bit_peer=times.speedup(text, four_bit) if text != "int8" else None,
                )
                rows.append({**row, "name": f"{m} x {n} x {k}, {text} x int8", "of": text, "shape": [m, n, k]})
            for of, name in ((SGEMM, SGEMM if blas is not None else None), (PEER, best)):
                if name is not None:
                    shown = f"{m} x {n} x {k}, {of}" + (f": {name}" if of != name else "")
                    rows.append({**times.row(name), "name": shown, "of": of, "shape": [m, n, k]})
    ratios = [row["to_int8_peer"] for row in rows if row.get("to_int8_peer") is not None]
    four_bit_ratios = [row["to_4_bit_peer"] for row in rows if row.get("to_4_bit_peer") is not None]
    name = f"all: {_count(ratios, TARGET, 'int8')}, {_count(four_bit_ratios, FOUR_BIT_TARGET, '4-bit')}"
    least = {"to_int8_peer": min(ratios)} if ratios else {}
    rows.append({"name": name, "seconds": sum(row["seconds"] for row in rows), **least})
    return {"title": TITLE, "threads": threads, "rows": rows}


def _count(ratios: list[float], target: float, kind: str) -> str:
    """Count the points below a target, among points with another library."""
    if not ratios:
        return f"no {kind} peer is installed"
    return f"{sum(ratio < target for ratio in ratios)} of {len(ratios)} below {target} x the best {kind} peer"


def _sgemm(blas: Blas, x: Array, w: Array, exact: Array, some: slice, threads: int) -> Candidate:
    out = np.empty((len(x), len(w)), np.float32)
    run = lambda: blas.gemm(threads, x, w, out)  # noqa: E731
    check = lambda: expect_close(SGEMM, out[:, some], exact, 1e-5)  # noqa: E731
    return Candidate(SGEMM, run, 2.0 * len(x) * w.size, "GFLOP/s", check)


def _peer(peer: Peer, x: Array, w: Array, exact: Array, some: slice) -> Candidate:
    """Return a candidate with a check of some columns of x times w, up to the rounding to integers."""
    prepared = peer.prepare(x)

    def run() -> Any:
        return peer.products[0](prepared)

    check = lambda: expect_close(peer.name, peer.answer(run())[:, some], exact, peer.error)  # noqa: E731
    return Candidate(peer.name, run, 2.0 * len(x) * w.size, "GOP/s", check)


def _ours(x: Array, w: QuantizedArray) -> Candidate:
    out = np.empty((len(x), len(w)), np.float32)
    name = str(w.format)

    def check() -> None:
        step = max(len(w) // SAMPLE, 1)
        wanted = reference.linear(x, w[::step], None, parse_format("int8"))
        expect_equal(name, np.ascontiguousarray(out[:, ::step]), wanted)

    run = lambda: linear(x, w, activations="int8", out=out)  # noqa: E731
    return Candidate(name, run, 2.0 * len(x) * w.size, "GOP/s", check)
