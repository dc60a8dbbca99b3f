"""Products with one to eight vectors, directly from packed weights; reading memory limits their speed.

Weights are copied until they far exceed L3, and a round uses all copies in turn; a second table has a matrix that stays
in the cache. The limit is the better of a plain and a prefetched sum over the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np

from ..arrays.quantized import QuantizedArray
from ..base.runtime import use
from ..formats import format as parse_format
from ..products.matmul import linear
from ..products.quantize import quantize
from ..reference import product as reference
from .blas import Blas, find_blas
from .limits import READS, read_limits
from .machine import beyond_cache_bytes
from .measure import Candidate, Options, Row, Table, Times, expect_close, expect_equal
from .peers import Peer, product_peers

Array = np.ndarray[Any, Any]
Peers = dict[str, list[Peer]]

SHAPE, CACHED_SHAPE, QUICK_SHAPE = (14336, 4096), (2048, 2048), (48, 64)
BATCHES = (1, 2, 4, 8)
SAMPLE_ROWS = 24

FORMATS = ("vsq4-g16-s4", "int4-g32-f16", "nf4-g64", "mxfp4", "nvfp4", "int8")
INTEGERS = ("vsq4-g16-s4", "int4-g32-f16", "int8")  # those that multiply integer activations
ACTIVATIONS = (None, "int8")
SGEMV, SGEMM = "OpenBLAS sgemv", "OpenBLAS sgemm"  # of one vector, of several
# The format with about as many bits per value as the libraries of a kind; their rates count its bytes.
PEER_KINDS = {"4 bit": "int4-g32-f16", "int8": "int8"}


def measure(options: Options) -> list[Table]:
    """Measure weights beyond the cache and in it, batch by batch."""
    tables = []
    for n, k in (QUICK_SHAPE,) if options.quick else (SHAPE, CACHED_SHAPE):
        beyond = (n, k) == SHAPE
        rng = np.random.default_rng(0)
        w = rng.standard_normal((n, k), dtype=np.float32)
        vectors = rng.standard_normal((max(BATCHES), k), dtype=np.float32)
        smallest = beyond_cache_bytes() if beyond else 1
        dense = copies_of(w, smallest)
        packed = {text: copies_of(quantize(w, text), smallest) for text in FORMATS}
        for threads in options.threads:
            options.report_progress(f"{n} x {k}, {threads} threads: peers")
            peers = {kind: product_peers(w, threads, (kind,), len(packed[text])) for kind, text in PEER_KINDS.items()}
            for batch in BATCHES:
                options.report_progress(f"{n} x {k}, {threads} threads: {batch} vectors")
                with use(threads=threads):
                    times = Times(_candidates(vectors[:batch], dense, packed, peers, threads), options, threads)
                title = f"{batch} vector{'s'[: batch > 1]} times {n} x {k}, {'beyond' if beyond else 'in'} L3"
                rows = [_row(times, name, peers) for name in times.candidates]
                tables.append({"title": title, "threads": threads, "shape": [batch, n, k], "rows": rows})
    return tables


def copies_of(w: Any, smallest: int) -> list[Any]:
    """Return w and copies of it, together more than this many bytes."""
    return [w, *(deepcopy(w) for _ in range(smallest // w.nbytes))]


def _candidates(
    x: Array, dense: list[Array], packed: dict[str, list[QuantizedArray]], peers: Peers, threads: int
) -> list[Candidate]:
    candidates: list[Candidate] = []
    for text, copies in packed.items():
        candidates += reads(text, copies, threads)
        candidates += [quantized(x, copies, a) for a in ACTIVATIONS if a is None or text in INTEGERS]
    blas = find_blas()
    if blas is not None:
        candidates.append(sgemv(blas, x, dense, threads))
    for kind, text in PEER_KINDS.items():
        candidates += [peer_of(peer, x, dense[0], packed[text]) for peer in peers[kind]]
    return candidates


def reads(text: str, copies: list[QuantizedArray], threads: int) -> list[Candidate]:
    """Return the candidates that read codes and scales of these arrays."""
    arrays = [part for w in copies for name, part in w.components.items() if name in ("codes", "scales")]
    return read_limits(arrays, threads, f" of {text}")


def limit_of(times: Times, text: str) -> str | None:
    """Return the faster one of the candidates that read the arrays of a format."""
    return times.best([f"{read} of {text}" for read in READS.values()])


def _row(times: Times, name: str, peers: Peers) -> Row:
    text = name.partition(" x ")[0]
    kind = "int8" if text == "int8" else "4 bit"
    best_peer = times.best([peer.name for peer in peers[kind]]) if text in FORMATS else None
    against_peer = faster(times, name, best_peer)
    return times.row(
        name,
        to_sgemv=faster(times, name, SGEMV),
        to_sgemm=faster(times, name, SGEMM),
        of_limit=times.fraction(name, limit_of(times, text)),
        to_4_bit_peer=against_peer if kind == "4 bit" else None,
        to_int8_peer=against_peer if kind == "int8" else None,
    )


def faster(times: Times, name: str, base: str | None) -> float | None:
    """Return the ratio of the times of one product, independent of the number of copies in a round."""
    ratio, copies = times.speedup(name, base), times.candidates[name].details.get("copies")
    if ratio is None or base is None or copies is None:
        return None
    return float(ratio * copies / times.candidates[base].details["copies"])


def _walk(copies: list[Any], product: Callable[[Any], object]) -> Callable[[], None]:
    def run() -> None:
        for w in copies:
            product(w)

    return run


def _bytes(copies: list[Any]) -> int:
    return sum(w.nbytes for w in copies)


def quantized(x: Array, copies: list[QuantizedArray], activations: str | None) -> Candidate:
    """Return the candidate that multiplies x with each of these copies."""
    first = copies[0]
    name = f"{first.format} x {activations or 'float32'}"
    out = np.empty((len(x), len(first)), np.float32)

    def check() -> None:
        step = max(len(first) // SAMPLE_ROWS, 1)
        fmt = parse_format(activations) if activations else None
        wanted = reference.linear(x, first[::step], None, fmt)
        expect_equal(name, np.ascontiguousarray(out[:, ::step]), wanted)

    run = _walk(copies, lambda w: linear(x, w, activations=activations, out=out))
    return Candidate(name, run, _bytes(copies), "GB/s", check, {"copies": len(copies)})


def sgemv(blas: Blas, x: Array, copies: list[Array], threads: int) -> Candidate:
    """Return the candidate of OpenBLAS: sgemv for one vector, sgemm for several."""
    name = SGEMV if len(x) == 1 else SGEMM
    out = np.empty((len(x), len(copies[0])), np.float32)

    def product(w: Array) -> None:
        if len(x) == 1:
            blas.gemv(threads, w, x[0], out[0])
        else:
            blas.gemm(threads, x, w, out)

    run = _walk(copies, product)
    check = _close(name, lambda: out, x, copies[0], 1e-5)
    return Candidate(name, run, _bytes(copies), "GB/s", check, {"copies": len(copies)})


def peer_of(peer: Peer, x: Array, w: Array, like: list[QuantizedArray]) -> Candidate:
    """Return the candidate of a peer, whose rate counts the bytes of a format with about as many bits."""
    prepared = peer.prepare(x)
    run = _walk(peer.products, lambda product: product(prepared))
    check = _close(peer.name, lambda: peer.answer(peer.products[0](prepared)), x, w, peer.error)
    return Candidate(peer.name, run, _bytes(like), "GB/s", check, {"copies": len(like)})


def _close(name: str, answer: Callable[[], Array], x: Array, w: Array, relative: float) -> Callable[[], None]:
    def check() -> None:
        step = max(len(w) // SAMPLE_ROWS, 1)
        expect_close(name, answer()[:, ::step], x.astype(np.float64) @ w[::step].astype(np.float64).T, relative)

    return check
