"""Convolution over nonzeros only against dense convolution, and the density at which both take the same time.

The layer is VGG-16's conv3_2, one image; both operands have the same density. Every time includes the lists, the panels
and the answer in its own order. Rates count the operations of the dense layer, skipped ones included. The dense one is
`conv2d` as called, which is Winograd's here, and `direct`, which adds the same products in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.runtime import use
from ..products.conv import conv2d
from ..products.outer import conv2d_outer
from .density import OWN, break_evens
from .measure import Candidate, Options, Table, Times, expect_equal

Array = np.ndarray[Any, Any]

DENSITIES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)
SIZES, QUICK_SIZES = (256, 256, 56), (9, 17, 6)  # channels, filters, height and width
OUTER, DIRECT = "outer product", "dense, direct"


def measure(options: Options) -> list[Table]:
    """Measure for each thread count; one table of times and one of break-even densities each."""
    channels, filters, side = QUICK_SIZES if options.quick else SIZES
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, channels, side, side), dtype=np.float32)
    w = rng.standard_normal((filters, channels, 3, 3), dtype=np.float32)
    chances = rng.random(x.shape), rng.random(w.shape)
    work = 2.0 * filters * side * side * channels * 9
    out = np.empty((1, filters, side, side), np.float32)
    title = f"convolution {channels} x {side} x {side} by {filters} filters 3 x 3"
    tables: list[Table] = []
    for threads in options.threads:
        options.report_progress(f"{title}, {threads} threads")
        with use(threads=threads):
            dense = Candidate(
                OWN,
                lambda: conv2d(x, w, padding=1, out=out),
                work,
                "GFLOP/s",
                details={"family": OWN, "density": 1.0},
            )
            direct = Candidate(
                DIRECT,
                lambda: conv2d(x, w, padding=1, algorithm="direct", out=out),
                work,
                "GFLOP/s",
                details={"family": DIRECT, "density": 1.0},
            )
            some = [
                _candidate(density, np.where(chances[0] < density, x, 0), np.where(chances[1] < density, w, 0), out)
                for density in DENSITIES
            ]
            times = Times([dense, direct, *some], options, threads)
        rows = [
            times.row(name, to_dense=times.speedup(name, OWN), to_direct=times.speedup(name, DIRECT))
            for name in times.candidates
        ]
        outer = [row for row in rows if row["family"] == OUTER]
        shape = [channels, filters, side, side]
        tables.append({"title": f"Outer product, {title}", "threads": threads, "shape": shape, "rows": rows})
        for to, key in (("conv2d", "to_dense"), ("direct", "to_direct")):
            found = break_evens([{**row, "to_dense": row[key]} for row in outer])
            tables.append({"title": f"Break-even with {to}", "threads": threads, "shape": shape, "rows": found})
    return tables


def _candidate(density: float, x: Array, w: Array, out: Array) -> Candidate:
    name = f"{OUTER} {density}"

    def check() -> None:
        expect_equal(
            name,
            conv2d_outer(x, w, padding=1) + np.float32(0),
            conv2d(x, w, padding=1, algorithm="direct") + np.float32(0),
        )

    work = 2.0 * out.size * w[0].size
    details = {"family": OUTER, "density": density}
    return Candidate(name, lambda: conv2d_outer(x, w, padding=1, out=out), work, "GFLOP/s", check, details)
