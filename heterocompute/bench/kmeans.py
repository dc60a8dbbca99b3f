"""Optimal one-dimensional k-means against scikit-learn's KMeans with one start, and its time by size.

Ours is the whole of `quantize` to one codebook: sorting, the optimum, codes, packing. scikit-learn's is `fit`, which
labels the values too. `excess` is the squared error over that of the exact optimum, from the definition in NumPy
without bins, less 1; above 2^16 different values the C core ends clusters between bins at first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.runtime import use
from ..products.quantize import quantize
from ..reference import kmeans
from .measure import Candidate, CheckFailed, Options, Row, Table, Times

Array = np.ndarray[Any, Any]

VALUES, QUICK_VALUES = 10**6, 2000
BITS = 4
SIZES = tuple(2**power for power in (10, 14, 18, 22, 26))
QUICK_SIZES = (2**10,)
EXCESS_VALUES, QUICK_EXCESS_VALUES = 2**18, 2**10
MAX_EXCESS = 1e-6  # for normal values; with heavy tails the outer bins are wide and Lloyd's iteration stops earlier


def measure(options: Options) -> list[Table]:
    """Measure each thread count, then the time of a value by size, then the excess on three densities."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(QUICK_VALUES if options.quick else VALUES, dtype=np.float32)
    tables = []
    for threads in options.threads:
        options.report_progress(f"{x.size} values, {threads} threads")
        with use(threads=threads):
            tables.append(_table(x, threads, options))
    return [*tables, _sizes(options), _excess(rng, options)]


def squared_error(x: Array, centroids: Array) -> float:
    """Return the sum of squared distances of values to the nearest of ascending centroids."""
    wide = centroids.astype(np.float64)
    nearest = wide[kmeans.nearest(centroids, x.astype(np.float64))]
    return float(((x - nearest) ** 2).sum())


def exact_error(x: Array, k: int) -> float:
    """Return the squared error of the optimum, by the definition over all different values."""
    v = np.sort(x.astype(np.float64))
    starts = np.concatenate([[0], np.flatnonzero(v[1:] != v[:-1]) + 1, [v.size]])
    moment = np.concatenate([[0.0], np.cumsum(v - v.mean())])
    ends = starts[kmeans.clusters(starts.astype(np.float64), moment[starts], k)]
    return sum(float(((v[i:j] - v[i:j].mean()) ** 2).sum()) for i, j in zip(ends[:-1], ends[1:], strict=True))


def _table(x: Array, threads: int, options: Options) -> Table:
    ours, peer = f"quantize cb{BITS}-tensor", "scikit-learn KMeans, one start"
    candidates = [_ours(x, ours)]
    found = _scikit_learn(x, ours, threads)
    if found is not None:
        candidates.append(found)
    times = Times(candidates, options, threads)
    rows = [times.row(name, to_sklearn=times.speedup(name, peer)) for name in times.candidates]
    return {"title": f"k-means, {x.size} values, {2**BITS} centroids", "threads": threads, "rows": rows}


def _ours(x: Array, name: str) -> Candidate:
    return Candidate(name, lambda: quantize(x, f"cb{BITS}-tensor"), x.nbytes, "GB/s")


def _scikit_learn(x: Array, ours: str, threads: int) -> Candidate | None:
    try:
        from sklearn.cluster import KMeans  # optional
        from threadpoolctl import threadpool_limits  # optional
    except ImportError:
        return None
    column = x[:, None]
    model = KMeans(2**BITS, n_init=1, random_state=0)

    def run() -> None:
        with threadpool_limits(threads):
            model.fit(column)

    def check() -> None:
        wanted = squared_error(x, np.sort(model.cluster_centers_[:, 0]))
        error = squared_error(x, quantize(x, f"cb{BITS}-tensor").components["codebook"])
        if error > wanted:
            raise CheckFailed(f"{ours}: squared error {error:.9g}, scikit-learn has {wanted:.9g}")

    return Candidate("scikit-learn KMeans, one start", run, x.nbytes, "GB/s", check)


def _sizes(options: Options) -> Table:
    rng, rows = np.random.default_rng(1), []
    threads = options.threads[0]
    for n in QUICK_SIZES if options.quick else SIZES:
        options.report_progress(f"{n} values")
        x = rng.standard_normal(n, dtype=np.float32)
        with use(threads=threads):
            times = Times([_ours(x, f"{n}")], options, threads)
        rows.append(times.row(f"{n}", ns_each=times.median(f"{n}") / n * 1e9))
    return {"title": f"quantize cb{BITS}-tensor by number of values", "threads": threads, "rows": rows}


def _excess(rng: np.random.Generator, options: Options) -> Table:
    n = QUICK_EXCESS_VALUES if options.quick else EXCESS_VALUES
    options.report_progress(f"the exact optimum of {n} values")
    rows: list[Row] = []
    densities = {"normal": rng.standard_normal(n), "laplace": rng.laplace(size=n), "uniform": rng.random(n)}
    for name, values in densities.items():
        x = values.astype(np.float32)
        error = squared_error(x, quantize(x, f"cb{BITS}-tensor").components["codebook"])
        excess = error / exact_error(x, 2**BITS) - 1
        if name == "normal" and excess > MAX_EXCESS:
            raise CheckFailed(
                f"{name}: squared error {excess:.3g} above the optimum, at most {MAX_EXCESS:g} was wanted"
            )
        rows.append({"name": name, "excess": excess})
    return {"title": f"Squared error over the exact optimum less 1, {n} values", "threads": 1, "rows": rows}
