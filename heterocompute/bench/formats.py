"""Every family of formats at its usual sizes: stored bits, error on three kinds of numbers, speed of encoding.

The numbers are Gaussian, Laplace, and the weights of the shipped network. The theory beside them: Lloyd and Max's
scalar quantizer with 2^b levels for the Gaussian, found by their own iteration on the density (Max, "Quantizing for
minimum distortion", 1960); the rate-distortion bound 6.02 b dB for the Gaussian, and Shannon's lower bound for the
Laplace density, 6.02 b + 10 log10(pi / e) dB (Berger, "Rate Distortion Theory", 1971, sections 4.3.1 and 4.3.3).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..base.runtime import use
from ..formats import format as parse_format
from ..products.error import error
from ..products.quantize import quantize
from ..zoo import digits
from .measure import Candidate, Options, Row, Table, Times

Array = np.ndarray[Any, Any]

FORMATS = (
    "int8", "int6", "int4", "int3", "int2", "int4-g32-f16", "int4-g128-f16", "int4-g32-asym-f16", "int8-g32-f16",
    "vsq8-g64-s8", "vsq6-g16-s6", "vsq4-g16-s4", "vsq4-g32-s4", "vsq4-g16-s4-refit", "vsq3-g16-s4", "vsq2-g16-s4",
    "cb8", "cb7", "cb6", "cb5", "cb4", "cb3", "cb2", "cb1", "cb4-g64", "cb4-tensor", "cb8-d2", "cb8-d4",
    "nf4-g64", "nf4-g64-dq", "log8-8", "log6-4-g32", "log5-2-g32", "log4-1-g16",
    "bf16", "fp16", "tf32", "fp8_e4m3fn-row", "fp8_e5m2-row", "fp8_e4m3fn", "fp6_e2m3-row", "fp6_e3m2-row",
    "fp4_e2m1-row", "mxfp8_e4m3", "mxfp8_e5m2", "mxint8", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4", "mxfp4-even",
    "mxfp4-rceil", "nvfp4", "nvfp4-4over6", "q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "iq4_nl",
    "iq4_xs", "q3_k", "q2_k",
)  # fmt: skip
SHAPE, QUICK_SHAPE = (256, 4096), (16, 64)
MAX_BITS = 8


def measure(options: Options) -> list[Table]:
    """Measure every format of `FORMATS`, and compute the theoretical limits."""
    rng = np.random.default_rng(0)
    shape = QUICK_SHAPE if options.quick else SHAPE
    kinds = {
        "gaussian": rng.standard_normal(shape, dtype=np.float32),
        "laplace": rng.laplace(size=shape).astype(np.float32),
    }
    weights = [(w, (2, 3, 1) if w.ndim == 4 else -1) for w in digits().weights.values() if w.ndim > 1]
    tables = []
    for threads in options.threads:
        options.report_progress(f"{len(FORMATS)} formats, {threads} threads")
        with use(threads=threads):
            tables.append(_table(kinds, weights, threads, options))
    tables.append(limits())
    return tables


def _table(kinds: dict[str, Array], weights: list[tuple[Array, Any]], threads: int, options: Options) -> Table:
    w = kinds["gaussian"]
    candidates = []
    for text in FORMATS:

        def run(text: str = text) -> None:
            quantize(w, text)

        details: Row = {"bits": quantize(w, text).bits_per_value}
        for kind, values in kinds.items():
            decibels = error(values, quantize(values, text)).sqnr_db
            if math.isfinite(decibels):  # infinite if few values and many levels lose nothing
                details[f"{kind}_db"] = decibels
        details |= _network(weights, text)
        candidates.append(Candidate(f"{text}", run, w.nbytes, "GB/s", details=details))
    times = Times(candidates, options, threads)
    rows = [times.row(name) for name in times.candidates]
    return {
        "title": f"Encode {w.shape[0]} x {w.shape[1]} float32",
        "threads": threads,
        "shape": [*w.shape],
        "rows": rows,
    }


def _network(weights: list[tuple[Array, Any]], text: str) -> Row:
    """Return stored bits per value and SQNR over all weight matrices; no SQNR if nothing was lost."""
    signal = noise = bits = 0.0
    size = 0
    fmt = parse_format(text)
    for w, axis in weights:
        q = quantize(w, fmt, axis)
        exact = w.astype(np.float64)
        signal += float(np.sum(exact**2))
        noise += float(np.sum((exact - q.dequantize()) ** 2))
        bits += 8 * q.nbytes
        size += w.size
    row: Row = {"digits_bits": bits / size}
    return {**row, "digits_db": 10 * math.log10(signal / noise)} if noise else row


def limits() -> Table:
    """Return the theoretical limits at 1 to 8 bits per value.

    Returns
    -------
    dict
        A table whose rows have ``bits``, ``gaussian_db`` and, for the bounds, ``laplace_db``.
    """
    bound = 20 * math.log10(2)
    rows: list[Row] = []
    for bits in range(1, MAX_BITS + 1):
        rows.append({"name": f"Lloyd-Max, {bits} bits", "bits": float(bits), "gaussian_db": lloyd_max(bits)})
    for bits in range(1, MAX_BITS + 1):
        shannon = bound * bits + 10 * math.log10(math.pi / math.e)
        row = {"bits": float(bits), "gaussian_db": bound * bits, "laplace_db": shannon}
        rows.append({"name": f"rate-distortion, {bits} bits", **row})
    return {"title": "What theory allows", "threads": 1, "rows": rows}


def lloyd_max(bits: int) -> float:
    """Return the SQNR in dB of the best scalar quantizer with 2^bits levels for a Gaussian.

    Returns
    -------
    float
        4.40 dB for 1 bit, 20.22 dB for 4 (Max 1960, table I).

    Examples
    --------
    >>> round(lloyd_max(1), 2), round(lloyd_max(4), 2)
    (4.4, 20.22)
    """
    # Levels t_i at the means of their cells, edges half way between; by symmetry only the positive half.
    half = 2 ** (bits - 1)
    levels = 3.0 * (np.arange(half) + 0.5) / half
    erf = np.vectorize(math.erf)
    for _ in range(200_000):
        edges = np.concatenate([[0.0], (levels[1:] + levels[:-1]) / 2, [np.inf]])
        density = np.exp(-(edges**2) / 2) / math.sqrt(2 * math.pi)
        mass = np.diff(erf(edges / math.sqrt(2)) / 2)
        means = -np.diff(density) / mass
        moved = float(np.abs(means - levels).max())
        levels = means
        if moved < 1e-9:
            break
    # E[(x - q)^2] = 1 - sum of mass * level^2 if the levels are the means of their cells.
    return -10 * math.log10(1 - 2 * float(np.sum(mass * levels**2)))
