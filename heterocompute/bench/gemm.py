"""Products with many rows: every path of `linear` against OpenBLAS sgemm, the int8 limit of the same run, and peers.

Times include quantizing the activations and writing the answer. As ``gemm-avx2`` it measures the speed without VNNI,
next to OpenBLAS's own AVX2 kernel.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..arrays.prepacked import Prepacked, prepack
from ..arrays.quantized import QuantizedArray
from ..base.runtime import use
from ..formats import format as parse_format
from ..products.matmul import linear
from ..products.quantize import quantize
from ..reference import product as reference
from . import points
from .blas import Blas, find_blas
from .limits import loop_limit
from .measure import Candidate, CheckFailed, Options, Row, Table, Times, expect_close, expect_equal
from .peers import Peer, product_peers

Array = np.ndarray[Any, Any]

SHAPES = ((512, 4096, 4096), (64, 4096, 4096), (512, 768, 768))
QUICK_SHAPE = (17, 48, 64)
SAMPLE_ROWS, SAMPLE_COLUMNS = 9, 12  # more rows than a product of few vectors

SGEMM, DENSE, OWN = "OpenBLAS sgemm", "float32 dense", "float32 dense, own kernels"
INT8_LIMIT = "int8 dot"

# weights, activations
PRODUCTS: tuple[tuple[str, str | None], ...] = (
    ("vsq4-g16-s4", "int8"),
    ("vsq4-g16-s4", "vsq4-g16-s4"),
    ("int8", "int8"),
    ("int4", "int8"),
    ("vsq4-g64-s8", "int8"),
    ("vsq4-g16", "int8"),
    ("int4-g32-f16", "int8"),
    ("vsq4-g16-s4", "int16"),
    ("vsq4-g16-s4", "int24"),
    ("vsq4-g16-s4", None),
    ("int4-g32-f16", None),
    ("mxfp4", None),
    ("nvfp4", None),
    ("nf4-g64", None),
    ("fp8_e4m3fn", None),
)
AVX2_PRODUCTS = PRODUCTS[:3]
PREPACKED = (("vsq4-g16-s4", "int8"), ("int8", "int8"))


def measure(options: Options) -> list[Table]:
    """Measure each shape with each thread count."""
    avx2 = options.name == "gemm-avx2"
    products = AVX2_PRODUCTS if avx2 else PRODUCTS
    shapes = (QUICK_SHAPE,) if options.quick else SHAPES[:1] if avx2 else SHAPES
    tables = []
    for shape in shapes:
        m, n, k = shape
        rng = np.random.default_rng(0)
        x = rng.standard_normal((m, k), dtype=np.float32)
        w = rng.standard_normal((n, k), dtype=np.float32)
        packed = {text: quantize(w, text) for text, _ in products}
        for threads in options.threads:
            options.report_progress(f"{m} x {n} x {k}, {threads} threads")
            with use(threads=threads):
                tables.append(_table(x, w, packed, products, threads, options))
    for threads in () if avx2 else options.threads:
        with use(threads=threads):
            tables.append(points.measure(options, threads))
    return tables


def _table(
    x: Array,
    w: Array,
    packed: dict[str, QuantizedArray],
    products: tuple[tuple[str, str | None], ...],
    threads: int,
    options: Options,
) -> Table:
    avx2 = options.name == "gemm-avx2"
    (m, k), n = x.shape, len(w)
    out = np.empty((m, n), np.float32)
    blas = find_blas()
    candidates = [loop_limit("dot", threads, options)]
    if blas is not None:
        candidates.append(sgemm(blas, x, w, out, threads))
        candidates.append(_dense(DENSE, x, w, out, "auto"))
    candidates.append(_dense(OWN, x, w, out, "own"))
    candidates += [quantized(x, packed[weights], activations, out) for weights, activations in products]
    if not avx2:
        candidates += [quantized(x, prepack(packed[weights]), activations, out) for weights, activations in PREPACKED]
    peers = [] if avx2 else product_peers(w, threads)
    candidates += [peer_of(peer, x, w) for peer in peers]
    times = Times(candidates, options, threads)
    int8_peer = times.best([peer.name for peer in peers if peer.kind == "int8"])
    four_bit_peer = times.best([peer.name for peer in peers if peer.kind == "4 bit"])
    rows = [_row(times, name, int8_peer, four_bit_peer) for name in times.candidates]
    title = f"Products {m} x {n} x {k}" + (", AVX2 alone, OpenBLAS with its Haswell kernels" if avx2 else "")
    return {"title": title, "threads": threads, "shape": [m, n, k], "rows": rows}


def _row(times: Times, name: str, int8_peer: str | None, four_bit_peer: str | None) -> Row:
    if name == INT8_LIMIT:
        return times.row(name)
    integer, ours = times.candidates[name].unit == "GOP/s", " x " in name
    return times.row(
        name,
        to_sgemm=times.speedup(name, SGEMM),
        of_limit=times.fraction(name, INT8_LIMIT) if integer else None,
        to_int8_peer=times.speedup(name, int8_peer) if ours else None,
        to_4_bit_peer=times.speedup(name, four_bit_peer) if ours else None,
    )


def _step(size: int, samples: int) -> int:
    return max(size // samples, 1)


def peer_of(peer: Peer, x: Array, w: Array) -> Candidate:
    """Return the candidate of a peer."""
    run = partial(peer.products[0], peer.prepare(x))

    def check() -> None:
        sample = slice(None, None, _step(len(x), SAMPLE_ROWS))
        exact = x[sample].astype(np.float64) @ w.astype(np.float64).T
        expect_close(peer.name, peer.answer(run())[sample], exact, peer.error)

    return Candidate(peer.name, run, _work(x, w), "GFLOP/s" if peer.kind == "bf16" else "GOP/s", check)


def sgemm(blas: Blas, x: Array, w: Array, out: Array, threads: int) -> Candidate:
    """Return the candidate of OpenBLAS."""
    return Candidate(
        SGEMM, lambda: blas.gemm(threads, x, w, out), _work(x, w), "GFLOP/s", lambda: _check_dense(SGEMM, x, w, out)
    )


def _dense(name: str, x: Array, w: Array, out: Array, blas: str) -> Candidate:
    def run() -> None:
        with use(blas=blas):
            linear(x, w, out=out)

    return Candidate(name, run, _work(x, w), "GFLOP/s", lambda: _check_dense(name, x, w, out))


def _work(x: Array, w: Any) -> float:
    return 2.0 * int(x.shape[0]) * int(x.shape[1]) * int(w.shape[0])


def _check_dense(name: str, x: Array, w: Array, out: Array) -> None:
    """Compare a sample with float64, within the error bound of a float32 sum of k terms in any order."""
    rows, columns = slice(None, None, _step(len(x), SAMPLE_ROWS)), slice(None, None, _step(len(w), SAMPLE_COLUMNS))
    left, right = x[rows].astype(np.float64), w[columns].astype(np.float64)
    bound = (x.shape[1] + 1) * 2.0**-24 * (np.abs(left) @ np.abs(right).T)
    if not (np.abs(out[rows, columns] - left @ right.T) <= bound).all():
        raise CheckFailed(f"{name}: beyond the bound of a float32 sum")


def quantized(x: Array, w: QuantizedArray, activations: str | None, out: Array) -> Candidate:
    """Return the candidate that multiplies x with packed weights."""
    name = f"{w.format}{' prepacked' * isinstance(w, Prepacked)} x {activations or 'float32'}"

    def check() -> None:
        rows, columns = slice(None, None, _step(len(x), SAMPLE_ROWS)), slice(None, None, _step(len(w), SAMPLE_COLUMNS))
        wanted = reference.linear(x[rows], w[columns], None, parse_format(activations) if activations else None)
        expect_equal(name, np.ascontiguousarray(out[rows, columns]), wanted)

    unit = "GOP/s" if activations else "GFLOP/s"
    return Candidate(name, lambda: linear(x, w, activations=activations, out=out), _work(x, w), unit, check)
