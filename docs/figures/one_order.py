"""Measure the cost of one order of sums: python docs/figures/one_order.py

Prints the tables of errors-and-exactness.md.
A cell is the median of the ratios of processor time, ``hc.use(order="one")`` over the default, of interleaved calls in
one thread; in brackets milliseconds of the default.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from runner import interleaved, table

import heterocompute as hc

FORMATS = ("int4-g32-f16", "vsq4-g16-s4", "nf4-g64", "mxfp4", "fp8_e4m3fn-row", "int8", "q4_k", "float32")
ROWS = (1, 8, 16, 64, 256)
LAYERS = ((64, 56), (128, 28), (256, 14), (512, 7))  # channels and filters, height and width
BATCHES = (1, 4, 16)


def cell(call: Callable[[], Any], rounds: int, repeats: int) -> str:
    """Return ratio and milliseconds of a call."""

    def in_order(order: str) -> None:
        with hc.use(order=order):
            for _ in range(repeats):
                call()

    calls = {order: partial(in_order, order) for order in ("fast", "one")}
    interleaved(calls, 1)
    seconds = interleaved(calls, rounds, time.process_time)
    ratio = statistics.median(one / fast for one, fast in zip(seconds["one"], seconds["fast"], strict=True))
    return f"{ratio:.2f} ({statistics.median(seconds['fast']) / repeats * 1e3:.3g})"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=4096, help="rows and columns of the weights")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    hc.set_num_threads(1)
    rng, size = np.random.default_rng(0), options.size
    w = rng.standard_normal((size, size), dtype=np.float32)
    rows = []
    for fmt in FORMATS:
        weights = w if fmt == "float32" else hc.quantize(w, fmt)
        cells = []
        for m in ROWS:
            x = rng.standard_normal((m, size), dtype=np.float32)
            cells.append(cell(partial(hc.linear, x, weights), options.rounds, max(1, 16 // m)))
        rows.append([f"`{fmt}`" if fmt != "float32" else "float32", *cells])
    print(table(["weights", *(f"M = {m}" for m in ROWS)], rows))
    rows = []
    for channels, pixels in LAYERS:
        filters = rng.standard_normal((channels, channels, 3, 3), dtype=np.float32)
        cells = []
        for n in BATCHES:
            images = rng.standard_normal((n, channels, pixels, pixels), dtype=np.float32)
            cells.append(cell(partial(hc.conv2d, images, filters, padding=1), options.rounds, 1))
        rows.append([f"{channels} channels, {pixels} x {pixels}", *cells])
    print()
    print(table(["3 x 3 filters, float32", *(f"{n} images" if n > 1 else "1 image" for n in BATCHES)], rows))


if __name__ == "__main__":
    main()
