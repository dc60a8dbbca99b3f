"""Drawn products of pruned weights in CSR, EIE's storage, bitmaps and N:M, next to SciPy, NumPy and torch."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...arrays.bitmap import encode_bitmap
from ...arrays.eie import encode_eie
from ...products.matmul import linear
from ...pruning.prune import prune
from ...reference import compressed
from ..measure import expect_equal
from ..peers import installed
from .call import Array, Call, Draw, close, sizes_text
from .products import forced
from .shapes import matrices

KINDS = ("CSR", "CSR", "CSR", "EIE", "EIE", "encode EIE", "encode bitmap", "N:M", "N:M")
VECTORS = (1, 1, 1, 2, 8, 16, 64)
DENSITIES = (0.02, 0.05, 0.1, 0.1, 0.2, 0.3, 0.5)
PATTERNS = ("2:4", "2:4", "1:4", "4:8", "2:8", "1:8", "1:16")
MOST_WEIGHTS, MOST_WORK, MOST_EXACT = 1 << 22, 300_000_000, 1 << 12


def draw_sparse(draw: Draw, threads: int) -> Call | None:
    """Return an operation on pruned weights; None if it is too large."""
    kind = draw.pick(KINDS)
    n, k = (draw.size(size) for size in draw.pick(matrices()))
    m = draw.pick(VECTORS)
    if n * k > (1 << 13 if draw.quick else MOST_WEIGHTS) or m * n * k > MOST_WORK:
        return None
    w = draw.normal(n, k)
    if kind == "N:M":
        return _pattern(draw, draw.normal(m, k), w)
    density = draw.pick(DENSITIES)
    w[draw.rng.random((n, k), dtype=np.float32) >= density] = 0
    x = draw.normal(m, k)
    text = f"{sizes_text((n, k))}, density {density:g}"
    scipy = installed("scipy.sparse")
    if kind == "encode bitmap":
        bitmap = encode_bitmap(w)
        check = lambda: expect_equal(kind, bitmap.to_dense(), w)  # noqa: E731
        return Call(kind, f"{kind}, {text}", partial(encode_bitmap, w), check, _conversion(scipy, w))
    if kind == "encode EIE":
        learned = encode_eie(w).components["codebook"]
        run = partial(encode_eie, w, learned, draw.pick((1, 4, 16, 64)))
        return Call(kind, f"{kind}, {text}", run, lambda: _expect_eie(w, run()), _conversion(scipy, w))
    if kind == "EIE":
        encoded = encode_eie(w, elements=draw.pick((1, 4, 16, 64)))
        return _product(kind, text, x, encoded, encoded.to_dense(), scipy)
    if scipy is None:
        return None
    return _product(kind, text, x, scipy.csr_array(w), w, scipy)


def _product(kind: str, text: str, x: Array, stored: Any, dense: Array, scipy: Any) -> Call:
    out = np.empty((len(x), len(dense)), np.float32)
    run = partial(linear, x, stored, out=out)
    exact = x.astype(np.float64) @ dense.T.astype(np.float64)
    peers: dict[str, Any] = {}
    if scipy is not None:
        rows, columns = scipy.csr_array(dense), np.ascontiguousarray(x.T)
        theirs = (lambda: rows @ x[0]) if len(x) == 1 else (lambda: (rows @ columns).T)
        wanted = exact[0] if len(x) == 1 else exact
        peers["SciPy"] = (theirs, close("SciPy", theirs, wanted, 1e-4))
    group = f"{kind}, {'one vector' if len(x) == 1 else 'several'}"
    return Call(group, f"{kind}, {len(x)} x {text}", run, close(kind, run, exact), peers)


def _conversion(scipy: Any, w: Array) -> dict[str, Any]:
    if scipy is None:
        return {}
    run = partial(scipy.csr_array, w)
    return {"SciPy csr_array": (run, close("SciPy", lambda: run().toarray(), w.astype(np.float64)))}


def _expect_eie(w: Array, found: Any) -> None:
    """Compare a small matrix with the definition, a large one with the nearest values of the codebook."""
    table = found.components["codebook"]
    if w.size <= MOST_EXACT:
        pointers, entries = compressed.eie_encode(w, table, found.elements)
        expect_equal("encode EIE: pointers", found.components["pointers"], pointers)
        expect_equal("encode EIE: entries", found.components["entries"], entries)
        return
    middle = (table[1:-1].astype(np.float64) + table[2:]) / 2
    wanted = np.where(w == 0, np.float32(0), table[1 + np.searchsorted(middle, w.astype(np.float64), side="left")])
    expect_equal("encode EIE", found.to_dense(), wanted)


def _pattern(draw: Draw, x: Array, w: Array) -> Call:
    pattern = draw.pick(PATTERNS)
    stored = prune(w, pattern)
    dense = stored.to_dense()
    out = np.empty((len(x), len(w)), np.float32)
    exact = x.astype(np.float64) @ dense.T.astype(np.float64)
    run = partial(linear, x, stored, out=out)
    calls, loose, chosen, estimates = forced(x, stored, None, None, out)
    theirs = partial(np.matmul, x, dense.T, out=np.empty_like(out))
    peers: dict[str, Any] = {"NumPy, dense": (theirs, close("NumPy", theirs, exact))}
    torch = installed("torch")
    if torch is not None:
        of_torch = partial(torch.nn.functional.linear, torch.from_numpy(x), torch.from_numpy(dense))
        peers["torch, dense"] = (of_torch, close("torch", of_torch, exact))
    text = f"{pattern}, {sizes_text((len(x), *w.shape))}"
    return Call("N:M", text, run, close(text, run, exact), peers, calls, loose, chosen, estimates, lambda: out)
