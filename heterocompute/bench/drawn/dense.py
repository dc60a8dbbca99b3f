"""Drawn dense float32 matmuls of every layout, next to OpenBLAS."""

from __future__ import annotations

from functools import partial

import numpy as np

from ... import _heterocompute as _core
from ...base import runtime
from ...products.arguments import core_operand
from ...products.matmul import matmul
from .call import Array, Call, Draw, close, sizes_text
from .shapes import matrices

ROWS = (1, 1, 1, 2, 4, 8, 10, 16, 32, 50, 64, 100, 128, 197, 256, 512)
LAYOUTS = ("rows", "rows", "transposed", "transposed", "view", "view, transposed", "batch", "batch, transposed")
BATCHES = (2, 8, 12)
MOST_WORK = 300_000_000  # multiply-adds of a call
ERROR = 1e-5  # of sums of float32, relative to their norm
BLAS = "OpenBLAS"


def draw_dense(draw: Draw, threads: int) -> Call | None:
    """Return a matmul of two dense float32 operands; None if it is too large."""
    n, k = (draw.size(size) for size in draw.pick(matrices()))
    if draw.chance(0.1):
        n, k = (64, 64) if draw.chance(0.5) else (draw.size(10), draw.size(256))
    m, layout = draw.size(draw.pick(ROWS)), draw.pick(LAYOUTS)
    batch = draw.pick(BATCHES) if layout.startswith("batch") else 1
    if batch * m * n * k > (MOST_WORK // 100 if draw.quick else MOST_WORK):
        return None
    x, w = _operands(draw, layout, (batch, m, n, k))
    out = np.empty((*x.shape[:-1], n), np.float32)
    run = partial(matmul, x, w, out=out)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    peers = {}
    if runtime.open_blas() is not None:
        settings = runtime.run()
        asked = (*settings[:3], runtime.OPENBLAS, settings[4])
        operands = core_operand(x), core_operand(w)

        def blas() -> Array:
            _core.matmul(asked, *operands, None, None, out)
            return out

        peers[BLAS] = (blas, close(BLAS, blas, exact, ERROR))
    few = "one or two rows, transposed" if m <= 2 and "transposed" in layout else "others"
    return Call(few, f"{sizes_text((batch, m, n, k))}, {layout}", run, close("matmul", run, exact, ERROR), peers)


def _operands(draw: Draw, layout: str, sizes: tuple[int, ...]) -> tuple[Array, Array]:
    batch, m, n, k = sizes
    lead = (batch,) if layout.startswith("batch") else ()
    rest = 16 if layout.startswith("view") else 0
    x = draw.normal(*lead, m, k + rest)[..., rest // 2 : rest // 2 + k]
    if "transposed" in layout:
        return x, draw.normal(*lead, n, k + rest)[..., rest // 2 : rest // 2 + k].swapaxes(-1, -2)
    return x, draw.normal(*lead, k, n + rest)[..., rest // 2 : rest // 2 + n]
