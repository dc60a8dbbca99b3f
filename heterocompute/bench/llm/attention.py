"""Attention of one query over a long KV cache, by the format of the cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.runtime import use
from ...products.layers.attention import KVCache, attention
from ..measure import Candidate, Options, Table, Times, expect_equal

CACHES = (None, "int8", "int8-g32", "int4-g32", "vsq4-g16-s4", "mxfp4", "fp8_e4m3fn")
HEADS, KV_HEADS, WIDTH, LAYERS, KEYS = 9, 3, 64, 16, 4096


def measure_attention(threads: int, options: Options) -> Table:
    """Measure the layers of a cache in turn, so that keys are read from memory."""
    rng, keys = np.random.default_rng(0), 64 if options.quick else KEYS
    q = rng.standard_normal((1, HEADS, 1, WIDTH), dtype=np.float32)
    tokens = rng.standard_normal((1, KV_HEADS, keys, WIDTH), dtype=np.float32)
    candidates, name_of = [], {}
    for fmt in CACHES:
        cache = KVCache(fmt, layers=LAYERS, heads=KV_HEADS, width=WIDTH)
        views = [cache.add(i, tokens, tokens) for i in range(LAYERS)]
        name_of[fmt] = name = f"attention, cache {fmt or 'float32'}"

        def run(views: list[Any] = views) -> None:
            for k, v in views:
                attention(q, k, v)

        def check(views: list[Any] = views, name: str = name) -> None:
            k, v = views[0]
            floats = [side if isinstance(side, np.ndarray) else side.dequantize() for side in (k, v)]
            expect_equal(name, attention(q, k, v), attention(q, floats[0], floats[1]))

        candidates.append(Candidate(name, run, cache.nbytes, "GB/s", check))
    with use(threads=threads):
        times = Times(candidates, options, threads)
    rows = [times.row(name, to_float32=times.speedup(name, name_of[None])) for name in times.candidates]
    title = f"Attention of 1 query, {HEADS} heads, over {keys} keys of {KV_HEADS}, {LAYERS} times"
    return {"title": title, "threads": threads, "rows": rows}
