"""Products with one to eight vectors, straight from packed weights: a question of how fast memory is read.

Weights are copied until they exceed the last cache by far, and a turn walks through all copies; a second table takes
a matrix that stays in the cache. The limit is the better of a plain and a prefetched sum over the same bytes.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from ..arrays import QuantizedArray
from ..formats import format as parse_format
from ..ops import linear, quantize
from ..reference import product as reference
from ..runtime import use
from .blas import Blas, find_blas
from .limits import READS, read_limits
from .machine import beyond_cache_bytes
from .measure import Candidate, Options, Row, Table, Times, expect_close, expect_equal
from .peers import Peer, product_peers

Array = np.ndarray[Any, Any]

SHAPE, CACHED_SHAPE, QUICK_SHAPE = (14336, 4096), (2048, 2048), (48, 64)
BATCHES = (1, 2, 4, 8)
SAMPLE_ROWS = 24

FORMATS = ("vsq4-g16-s4", "int4-g32-f16", "int8")
ACTIVATIONS = (None, "int8")
SGEMV = "OpenBLAS sgemv"
# A peer of a format holds as many bits a value.
PEER_KINDS = {"4 bit": "int4-g32-f16", "int8": "int8"}


def measure(options: Options) -> list[Table]:
    """Measure weights beyond the cache and in it, batch by batch."""
    tables = []
    for n, k in (QUICK_SHAPE,) if options.quick else (SHAPE, CACHED_SHAPE):
        beyond = (n, k) != CACHED_SHAPE and not options.quick
        rng = np.random.default_rng(0)
        w = rng.standard_normal((n, k), dtype=np.float32)
        vectors = rng.standard_normal((max(BATCHES), k), dtype=np.float32)
        smallest = beyond_cache_bytes() if beyond else 1
        dense = _copies(w, smallest)
        packed = {text: _copies(quantize(w, text), smallest) for text in FORMATS}
        for threads in options.threads:
            for batch in BATCHES:
                options.say(f"{n} x {k}, {batch} vectors, {threads} threads")
                with use(threads=threads):
                    tables.append(_table(vectors[:batch], dense, packed, threads, options, beyond))
    return tables


def _copies(w: Any, smallest: int) -> list[Any]:
    return [w, *(deepcopy(w) for _ in range(smallest // w.nbytes))]


def _table(
    x: Array,
    dense: list[Array],
    packed: dict[str, list[QuantizedArray]],
    threads: int,
    options: Options,
    beyond: bool,
) -> Table:
    (n, k), batch = dense[0].shape, len(x)
    candidates: list[Candidate] = []
    for text, copies in packed.items():
        arrays = [part for w in copies for name, part in w.components.items() if name in ("codes", "scales")]
        candidates += read_limits(arrays, threads, _label(text))
        candidates += [_quantized(x, copies, activations) for activations in ACTIVATIONS]
    blas = find_blas()
    if blas is not None:
        candidates.append(_dense(blas, x, dense, threads))
    peers: dict[str, list[str]] = {kind: [] for kind in PEER_KINDS}
    for kind, text in PEER_KINDS.items():
        if options.quick or batch in (1, max(BATCHES)):
            for candidate in _peer_candidates(x, dense[0], threads, kind, packed[text]):
                candidates.append(candidate)
                peers[kind].append(candidate.name)
    times = Times(candidates, options)
    best_peers = {"4 bit": times.best(peers["4 bit"]), "int8": times.best(peers["int8"])}
    rows = [_row(times, name, best_peers, n * k * 4) for name in times.candidates]
    where = "beyond the last cache" if beyond else "in the cache"
    title = f"{batch} vector{'s'[: batch > 1]} times {n} x {k}, {where}"
    return {"title": title, "threads": threads, "shape": [batch, n, k], "rows": rows}


def _label(text: str) -> str:
    return f" of {text}"


def _row(times: Times, name: str, best_peers: dict[str, str | None], dense_bytes: int) -> Row:
    text = name.partition(" x ")[0]
    limit = times.best([read + _label(text) for read in READS.values()])
    if name in {read + _label(part) for part in FORMATS for read in READS.values()}:
        return times.row(name)
    # One pass over the copies each: what counts is the time of one matrix, so bytes are compared with bytes.
    ratio = times.fraction(name, SGEMV)
    bytes_each = times.candidates[name].details["bytes"]
    return times.row(
        name,
        to_sgemv=None if ratio is None else ratio * dense_bytes / bytes_each,
        of_limit=times.fraction(name, limit),
        to_4_bit_peer=_against(times, name, best_peers["4 bit"], text in FORMATS and text != "int8"),
        to_int8_peer=_against(times, name, best_peers["int8"], text == "int8"),
    )


def _against(times: Times, name: str, peer: str | None, applies: bool) -> float | None:
    if peer is None or not applies:
        return None
    ratio = times.fraction(name, peer)
    each, of_peer = times.candidates[name].details["bytes"], times.candidates[peer].details["bytes"]
    return None if ratio is None else ratio * of_peer / each


def _quantized(x: Array, copies: list[QuantizedArray], activations: str | None) -> Candidate:
    first = copies[0]
    name = f"{first.format} x {activations or 'float32'}"
    out = np.empty((len(x), len(first)), np.float32)

    def run() -> None:
        for w in copies:
            linear(x, w, activations=activations, out=out)

    def check() -> None:
        step = max(len(first) // SAMPLE_ROWS, 1)
        fmt = parse_format(activations) if activations else None
        wanted = reference.linear(x, first[::step], None, fmt)
        expect_equal(name, np.ascontiguousarray(out[:, ::step]), wanted)

    return Candidate(name, run, _bytes(copies), "GB/s", check, {"bytes": first.nbytes})


def _bytes(copies: list[Any]) -> int:
    return sum(w.nbytes for w in copies)


def _dense(blas: Blas, x: Array, copies: list[Array], threads: int) -> Candidate:
    out = np.empty((len(x), len(copies[0])), np.float32)

    def run() -> None:
        for w in copies:
            if len(x) == 1:
                blas.gemv(threads, w, x[0], out[0])
            else:
                blas.gemm(threads, x, w, out)

    def check() -> None:
        expect_close(SGEMV, out, x.astype(np.float64) @ copies[0].astype(np.float64).T, 1e-5)

    return Candidate(SGEMV, run, _bytes(copies), "GB/s", check, {"bytes": copies[0].nbytes})


def _peer_candidates(x: Array, w: Array, threads: int, kind: str, like: list[QuantizedArray]) -> list[Candidate]:
    """Prepare as many copies of a peer as there are of the weights that it is compared with."""
    sets = [product_peers(x, w, threads, (kind,)) for _ in like]
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    return [_peer(copies, exact, like) for copies in zip(*sets, strict=True)]


def _peer(copies: tuple[Peer, ...], exact: Array, like: list[QuantizedArray]) -> Candidate:
    first = copies[0]

    def run() -> None:
        for peer in copies:
            peer.run()

    def check() -> None:
        expect_close(first.name, first.answer(first.run()), exact, first.error)

    return Candidate(first.name, run, _bytes(like), "GB/s", check, {"bytes": like[0].nbytes})
