"""Operations on odd shapes, to be run with the libraries of tests/c/preload.

With guarded_heap.c, an access outside of scratch memory kills the process; the last printed line is the call that did
it. With filled_heap.c, a result that depends on memory that nothing wrote has another checksum than without it.

python tests/scratch_sweep.py [--seconds 10 | --calls N] [--seed N]
"""

from __future__ import annotations

import argparse
import random
import time
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse

import heterocompute as hc
from heterocompute import _heterocompute as core

FORMATS = [text for family in hc.Format.families() for text in family.examples]
PATTERNS = ["2:4", "1:4", "3:4", "4:8", "1:8", "2:8", "1:2", "2:3", "5:7", "7:8", "1:16", "31:32"]
ACTIVATIONS = [None, None, None, "int8", "int16", "int24", "vsq4-g16-s4", "int4-g32", "int8-asym", "mxfp4", "2:4"]
COLUMNS = [1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 200, 257, 513, 1000, 1030, 2047, 4100]


def weights_format(draw: random.Random) -> str:
    """Return a format; three of five have a pattern if the format supports one."""
    text = draw.choice(FORMATS)
    if draw.random() < 0.4 or ":" in text:
        return text
    with_pattern = f"{text}+{draw.choice(PATTERNS)}"
    try:
        hc.format(with_pattern)
    except ValueError:  # a group that is no multiple of N
        return text
    return with_pattern


def product(draw: random.Random, data: np.random.Generator) -> Iterable[Any]:
    """Quantize, multiply with all kinds of operands, and decode."""
    text, act = weights_format(draw), draw.choice(ACTIVATIONS)
    n, k, m = draw.choice([1, 3, 5, 16, 17, 33]), draw.choice(COLUMNS), draw.choice([1, 1, 2, 3, 4, 5, 8, 9, 13, 17])
    print(f"linear: w {text} {(n, k)}, {m} rows, activations {act}", flush=True)
    w, x = (data.standard_normal(shape).astype(np.float32) for shape in ((n, k), (m, k)))
    q = hc.quantize(w, text)
    y = hc.linear(x, q, activations=act)
    yield from (y, *q.components.values(), hc.fake_quantize(w.T, text, axis=0), q.dequantize(np.float64))
    if act and draw.random() < 0.5:
        assert hc.linear(x, hc.prepack(q), activations=act).tobytes() == y.tobytes()


def convolution(draw: random.Random, data: np.random.Generator) -> Iterable[Any]:
    """Convolve images with packed filters."""
    text, act = weights_format(draw), draw.choice(ACTIVATIONS)
    c, side, taps, pad = (draw.choice(sizes) for sizes in ([1, 3, 5, 17], [3, 5, 7], [1, 2, 3], [0, 1]))
    step, depth = draw.choice([1, 2]), draw.choice([c, c, 1])
    print(f"conv2d: w {text} {(3, c, taps, taps)}, images of {side}, padding {pad}, activations {act}, "
          f"stride {step}, {c // depth} groups", flush=True)  # fmt: skip
    x = data.standard_normal((2, c, side, side)).astype(np.float32)
    w = data.standard_normal((3, c, taps, taps)).astype(np.float32)
    q = hc.quantize(w[:, :depth] if depth == c else w.reshape(3 * c, 1, taps, taps)[:c], text, axis=(2, 3, 1))
    yield hc.conv2d(x, q, None, step, pad, groups=c // depth, activations=act)
    zeros = np.where(data.random(w.shape) < 0.7, np.float32(0), w)
    yield hc.conv2d_outer(x, zeros, padding=pad)


def compressed(draw: random.Random, data: np.random.Generator) -> Iterable[Any]:
    """Compress and multiply arrays of mostly zeros."""
    n, k, m, density = draw.choice([1, 5, 33]), draw.choice(COLUMNS), draw.choice([1, 3, 8, 9, 40]), draw.random() / 2
    print(f"compressed: {(n, k)}, {m} rows, density {density:.2f}", flush=True)
    w = np.where(data.random((n, k)) < density, data.standard_normal((n, k)), 0).astype(np.float32)
    x = data.standard_normal((m, k)).astype(np.float32)
    e = hc.encode_eie(w, elements=draw.choice([1, 4, 64]))
    yield from (hc.linear(x, e), e.to_dense(), *e.components.values())
    yield from (hc.linear(x, scipy.sparse.csr_array(w)), hc.linear(x, scipy.sparse.csc_array(w)))
    b = hc.encode_bitmap(w)
    assert b.to_dense().tobytes() == w.tobytes()
    pattern = draw.choice([*PATTERNS, "30%"])
    yield hc.prune_mask(w.T, pattern, axis=0, scores=np.abs(w.T))
    if pattern != "30%":
        yield hc.prune(w, pattern).to_dense()
        yield hc.permute_channels(w[:, : min(k, 64)], pattern)


def emulated(draw: random.Random, data: np.random.Generator) -> Iterable[Any]:
    """Multiply like given hardware."""
    n, k = draw.choice([1, 5]), draw.choice(COLUMNS[:16])
    accumulator = draw.choice(["int32", "int16-sat", "int24-wrap", "fp16", "fp32"])
    print(f"emulate.matmul: {(n, k)}, {accumulator}", flush=True)
    text = "vsq4-g16-s4" if accumulator.startswith("int") else "fp16"
    a = hc.quantize(data.standard_normal((3, k)).astype(np.float32), text)
    b = hc.quantize(data.standard_normal((k, n)).astype(np.float32), text, axis=0)
    yield hc.emulate.matmul(a, b, accumulator=accumulator)


def empty(draw: random.Random, data: np.random.Generator) -> Iterable[Any]:
    """Multiply and convolve operands without values along some axes; the result is the bias."""
    text, act = weights_format(draw), draw.choice(ACTIVATIONS)
    sizes, pad = [draw.choice([0, 0, 1, 3]) for _ in range(4)], draw.choice([1, 2])
    print(f"empty: w {text}, sizes {sizes}, padding {pad}, activations {act}", flush=True)
    n, c, height, width = sizes
    bias = np.float32([1, -2, 3])
    yield hc.linear(np.zeros((n, c), np.float32), hc.quantize(data.random((3, c)), text), bias, activations=act)
    filters = hc.quantize(data.random((3, c, 2, 2)), text, axis=(2, 3, 1))
    yield hc.conv2d(np.ones((n, c, height, width), np.float32), filters, bias, padding=pad, activations=act)


def checksum(values: Iterable[Any]) -> int:
    """Return the CRC-32 of all bytes."""
    found = 0
    for value in values:
        found = zlib.crc32(np.ascontiguousarray(value).tobytes(), found)
    return found


def main() -> None:
    """Draw calls until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--calls", type=int, help="number of calls, instead of a time")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    draw, data = random.Random(options.seed), np.random.default_rng(options.seed)
    end, n_calls = time.monotonic() + options.seconds, 0
    while time.monotonic() < end if options.calls is None else n_calls < options.calls:
        call = draw.choice([product] * 7 + [convolution, compressed, emulated, empty])
        isa = draw.choice(core.isa_names(core.cpu_isa()))
        with hc.use(isa=isa, threads=draw.choice([1, 2])):
            print(isa, end=", ")
            print(f"{checksum(call(draw, data)):08x}")
        n_calls += 1
    print(f"{n_calls} calls")


if __name__ == "__main__":
    main()
