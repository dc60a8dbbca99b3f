"""Time against density: dense products, N:M patterns, CSR and EIE's storage, and the density at which each pays.

For a matrix with a given share of nonzero values it times the product with one vector and with many. Every time
includes packing the activations and writing the answer in rows; the weights are encoded beforehand. The break-even
density is that at which a candidate is as fast as OpenBLAS on the dense matrix, interpolated between the measurements
on logarithmic axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.eie import encode_eie
from ..base.runtime import use
from ..products.matmul import linear, matmul
from ..pruning.prune import prune
from .measure import Candidate, Options, Row, Table, Times, expect_close, expect_equal

Array = np.ndarray[Any, Any]

DENSITIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0)
PATTERNS = ("1:32", "1:16", "1:8", "1:4", "2:4", "3:4")
SHAPES, QUICK_SHAPES = ((1, 2048, 2048), (256, 2048, 2048)), ((1, 64, 64), (16, 64, 64))  # rows of x, of w, columns
DENSE, OWN = "dense, OpenBLAS", "dense, own"
PEER = "CSR, SciPy"
ACTIVE = 0.35  # share of nonzero activations: the value for AlexNet in the paper on EIE
SKIPPING = f"EIE, {ACTIVE:.2f} of x"
CHECKED = 16  # checked rows of a large result; more than the rows that have another order of sums


@dataclass(frozen=True)
class Csr:
    """Compressed sparse rows with the attributes of SciPy's, so that SciPy is not required."""

    indptr: Array
    indices: Array
    data: Array
    shape: tuple[int, int]
    format: str = "csr"

    @classmethod
    def of(cls, w: Array) -> Csr:
        """Store the nonzeros."""
        starts = np.concatenate([[0], np.cumsum(np.count_nonzero(w, axis=1))])
        row, column = np.nonzero(w)
        return cls(starts, column.astype(np.int32), w[row, column], (len(w), w.shape[1]))

    @property
    def nnz(self) -> int:
        return len(self.data)

    def tocsr(self) -> Csr:
        """Return the matrix itself."""
        return self


def measure(options: Options) -> list[Table]:
    """Measure one vector and many, for each thread count; one table of times and one of break-even densities each."""
    tables = []
    for threads in options.threads:
        for m, n, k in QUICK_SHAPES if options.quick else SHAPES:
            options.report_progress(f"{m} x {n} x {k}, {threads} threads")
            with use(threads=threads):
                tables += _tables(m, n, k, threads, options)
    return tables


def _tables(m: int, n: int, k: int, threads: int, options: Options) -> list[Table]:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((n, k), dtype=np.float32)
    sparse_x = np.where(rng.random(x.shape) < ACTIVE, x, np.float32(0))
    chance = rng.random(w.shape)
    out = np.empty((m, n), np.float32)

    def own() -> None:
        with use(blas="own"):
            matmul(x, w.T, out=out)

    work = 2.0 * m * n * k
    candidates = [Candidate(DENSE, lambda: matmul(x, w.T, out=out), work, "GFLOP/s", details=_details(DENSE, 1.0))]
    candidates.append(Candidate(OWN, own, work, "GFLOP/s", details=_details(OWN, 1.0)))
    for pattern in PATTERNS:
        pruned = prune(w, pattern)
        candidates.append(_candidate(f"N:M {pattern}", "N:M", x, pruned, pruned.density, out))
    for density in DENSITIES:
        some = np.where(chance < density, w, np.float32(0))
        rows = Csr.of(some)
        candidates.append(_candidate(f"CSR {density}", "CSR", x, rows, density, out))
        peer = _peer(x, rows, density)
        candidates += [peer] if peer else []
        stored = encode_eie(some)
        candidates.append(_candidate(f"EIE {density}", "EIE", x, stored, density, out))
        if m == 1:
            candidates.append(_candidate(f"{SKIPPING} {density}", SKIPPING, sparse_x, stored, density, out))
    times = Times(candidates, options, threads)
    rows_of_times = [times.row(name, to_dense=times.speedup(name, DENSE)) for name in times.candidates]
    title, shape = f"product {m} x {n} x {k}", [m, n, k]
    return [
        {"title": f"Density, {title}", "threads": threads, "shape": shape, "rows": rows_of_times},
        {"title": f"Break-even, {title}", "threads": threads, "shape": shape, "rows": break_evens(rows_of_times)},
    ]


def _details(family: str, density: float) -> Row:
    return {"family": family, "density": density}


def _candidate(name: str, family: str, x: Array, w: Any, density: float, out: Array) -> Candidate:
    def check() -> None:
        found = linear(x, w)[:CHECKED]
        with use(isa="scalar", threads=1):
            expect_equal(name, found, linear(x[:CHECKED], w))

    work = 2.0 * len(x) * w.shape[0] * w.shape[1]
    return Candidate(name, lambda: linear(x, w, out=out), work, "GFLOP/s", check, _details(family, density))


def _peer(x: Array, w: Csr, density: float) -> Candidate | None:
    """Return SciPy's product of the same matrix, which uses one thread; None if SciPy is not installed."""
    try:
        from scipy.sparse import csr_array  # optional
    except ImportError:
        return None
    matrix = csr_array((w.data, w.indices, w.indptr.astype(np.int32)), shape=w.shape)
    columns = np.ascontiguousarray(x.T)  # its fastest layout

    def check() -> None:
        expect_close(PEER, matrix @ columns, linear(x, w).T, 1e-5)

    work = 2.0 * len(x) * w.shape[0] * w.shape[1]
    return Candidate(f"{PEER} {density}", lambda: matrix @ columns, work, "GFLOP/s", check, _details(PEER, density))


def break_evens(rows: list[Row]) -> list[Row]:
    """Return for each family the density below which it is faster than OpenBLAS's dense product.

    Parameters
    ----------
    rows : list of dict
        Of a table of times: family, density, and to_dense, how many times faster than dense.

    Returns
    -------
    list of dict
        name, lowest (the lowest density that was measured), to_dense there, and break_even: where to_dense is 1; the
        highest density that was measured where it is never less, missing where it is never more.

    Examples
    --------
    >>> rows = [{"family": "CSR", "density": d, "to_dense": 0.4 / d} for d in (0.1, 0.2, 0.8)]
    >>> [round(row["break_even"], 3) for row in break_evens(rows)]
    [0.4]
    """
    found = []
    for family in dict.fromkeys(row["family"] for row in rows if row["family"] not in (DENSE, OWN)):
        points = sorted((row["density"], row["to_dense"]) for row in rows if row["family"] == family)
        answer: Row = {"name": family, "lowest": points[0][0], "to_dense": points[0][1]}
        faster = [i for i, (_, ratio) in enumerate(points) if ratio >= 1]
        if faster and faster[-1] == len(points) - 1:
            answer["break_even"] = points[-1][0]
        elif faster:
            (low, above), (high, below) = points[faster[-1] : faster[-1] + 2]
            part = math.log(above) / math.log(above / below)
            answer["break_even"] = math.exp(math.log(low) + part * math.log(high / low))
        found.append(answer)
    return found
