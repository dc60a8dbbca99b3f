"""Quantizing, dequantizing and fake-quantizing against the memory limit, the definition, plain NumPy and ml_dtypes.

Rates count the bytes of the float32 array that is read, or for dequantize written. A round uses several arrays in turn,
together far larger than L3.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np

from .. import reference
from ..base.runtime import use
from ..formats import format as parse_format
from ..products.quantize import fake_quantize, quantize
from .limits import READS, read_limits
from .machine import beyond_cache_bytes
from .measure import Candidate, CheckFailed, Options, Row, Table, Times, expect_equal

Array = np.ndarray[Any, Any]

SHAPE, QUICK_SHAPE = (4096, 4096), (48, 64)
FORMATS = (
    *("int8", "int4-g32-f16", "int4-g32-asym", "vsq4-g16-s4", "vsq4-g16", "vsq8-g64-s8"),
    *("mxfp4", "mxfp8_e4m3", "mxint8", "nvfp4", "nf4-g64", "log4-2"),
    *("fp8_e4m3fn", "fp8_e4m3fn-row", "fp4_e2m1", "bf16"),
)
PLAIN = ("int8", "int4-g32-f16", "vsq4-g16-s4", "mxfp4")  # also compared with the definition and with NumPy
CASTS = {"fp8_e4m3fn": "float8_e4m3fn", "fp4_e2m1": "float4_e2m1fn", "bf16": "bfloat16"}  # of ml_dtypes, the same codes
MAIN = "vsq4-g16-s4"
ML_DTYPES = ("float8_e4m3fn", "float4_e2m1fn", "int4", "bfloat16")
SAMPLE_ROWS = 8
SIZES = tuple(2**power for power in (10, 14, 18, 22, 26, 28))
QUICK_SIZES = (2**10,)
ROW = 1024  # values per row in the table of sizes


def measure(options: Options) -> list[Table]:
    """Measure every operation with each thread count, then the time of a value by size."""
    rng = np.random.default_rng(0)
    shape = QUICK_SHAPE if options.quick else SHAPE
    first = rng.standard_normal(shape, dtype=np.float32)
    n_copies = 1 if options.quick else beyond_cache_bytes() // first.nbytes + 1
    arrays = [first, *(first[::-1].copy() for _ in range(n_copies - 1))]
    tables = []
    for threads in options.threads:
        options.report_progress(f"{shape[0]} x {shape[1]}, {threads} threads")
        with use(threads=threads):
            tables.append(_table(arrays, threads, options))
    tables.append(_sizes(options))
    return tables


def _table(arrays: list[Array], threads: int, options: Options) -> Table:
    candidates = read_limits(arrays, threads)
    definitions, plain = {}, {}
    for text in FORMATS:
        candidates.append(quantizing(arrays, text))
    candidates.append(quantizing(arrays, MAIN, axis=0))
    for text in ("int8", MAIN):
        candidates += [_fake_quantize(arrays, text), _dequantize(arrays, text)]
    for text in PLAIN:
        candidates.append(_definition(arrays[0], text))
        definitions[text] = candidates[-1].name
        candidates.append(plain_numpy(arrays[0], text))
        plain[text] = candidates[-1].name
    others = [_ml_dtypes(arrays[0], name) for name in ML_DTYPES]
    candidates += [candidate for candidate in others if candidate is not None]
    times = Times(candidates, options, threads)
    limit = times.best(list(READS.values()))
    casts = [f"ml_dtypes astype {name}" for name in ("float8_e4m3fn", "float4_e2m1fn")]

    def cast(text: str) -> str | None:
        return f"ml_dtypes astype {CASTS[text]}" if text in CASTS else times.best(casts)

    def row(name: str) -> Row:
        text = name.partition(" ")[2]
        ours = name.startswith("quantize ")
        return times.row(
            name,
            of_limit=times.fraction(name, limit),
            to_definition=times.fraction(name, definitions.get(text)) if ours else None,
            to_numpy=times.fraction(name, plain.get(text)) if ours else None,
            to_ml_dtypes=times.fraction(name, cast(text)) if ours else None,
        )

    rows = [row(name) for name in times.candidates]
    n, k = arrays[0].shape
    return {"title": f"Quantize {n} x {k} float32", "threads": threads, "shape": [n, k], "rows": rows}


def _turns(arrays: list[Any], act: Callable[[Any], object]) -> Callable[[], object]:
    """Return a function that uses the next array at each call."""
    following = cycle(arrays)
    return lambda: act(next(following))


def quantizing(arrays: list[Array], text: str, axis: int = -1) -> Candidate:
    """Return the candidate that quantizes one of the arrays at a time."""
    name = f"quantize {text}" + (f", axis {axis}" if axis >= 0 else "")

    def check() -> None:
        sample = arrays[0][:SAMPLE_ROWS] if axis < 0 else arrays[0][:, :SAMPLE_ROWS]
        wanted = reference.quantize(sample, parse_format(text), axis)
        of_whole = any(array.ndim == 0 for array in wanted.values())  # the scale is of the array, not of the sample
        found = quantize(sample if of_whole else arrays[0], text, axis)
        for part, array in wanted.items():
            rows = found.components[part]
            expect_equal(f"{name}: {part}", rows[:SAMPLE_ROWS] if rows.ndim else rows, array)

    return Candidate(name, _turns(arrays, lambda w: quantize(w, text, axis)), arrays[0].nbytes, "GB/s", check)


def _fake_quantize(arrays: list[Array], text: str) -> Candidate:
    name = f"fake_quantize {text}"
    out = np.empty_like(arrays[0])

    def check() -> None:
        fake_quantize(arrays[0], text, out=out)
        expect_equal(name, out, quantize(arrays[0], text).dequantize())

    return Candidate(name, _turns(arrays, lambda w: fake_quantize(w, text, out=out)), arrays[0].nbytes, "GB/s", check)


def _dequantize(arrays: list[Array], text: str) -> Candidate:
    name = f"dequantize {text}"
    packed = [quantize(w, text) for w in arrays]

    def check() -> None:
        sample = packed[0][:SAMPLE_ROWS]
        wanted = reference.dequantize(dict(sample.components), sample.format, sample.shape, sample.axis)
        expect_equal(name, packed[0].dequantize()[:SAMPLE_ROWS], wanted)

    return Candidate(name, _turns(packed, lambda q: q.dequantize()), arrays[0].nbytes, "GB/s", check)


def _definition(w: Array, text: str) -> Candidate:
    """Run the executable definition on a part of the array, since it is slow."""
    part, fmt = w[: 8 * SAMPLE_ROWS], parse_format(text)
    return Candidate(f"definition {text}", lambda: reference.quantize(part, fmt), part.nbytes, "GB/s")


def plain_numpy(w: Array, text: str) -> Candidate:
    """Quantize as a NumPy user would: float32 arithmetic, packing by two shifts."""
    run = {"int8": _numpy_int8, "int4-g32-f16": _numpy_int4, "vsq4-g16-s4": _numpy_vsq, "mxfp4": _numpy_mxfp4}[text]
    name = f"NumPy {text}"

    def check() -> None:
        # Its quotients are float32, so ties may round differently: fewer than one code in a thousand differ.
        codes = quantize(w, text).components["codes"]
        wrong = np.count_nonzero(run(w).view(np.uint8) != codes)
        if wrong > codes.size / 1000:
            raise CheckFailed(f"{name}: {wrong} of {codes.size} bytes differ")

    return Candidate(name, lambda: run(w), w.nbytes, "GB/s", check)


def _numpy_int8(w: Array) -> Array:
    scale = np.abs(w).max(axis=1, keepdims=True) / np.float32(127)
    codes: Array = np.rint(w / scale).astype(np.int8)
    return codes


def _numpy_int4(w: Array) -> Array:
    groups = w.reshape(len(w), -1, 32)
    scale = (np.abs(groups).max(axis=2, keepdims=True) / np.float32(7)).astype(np.float16).astype(np.float32)
    return _nibbles(np.clip(np.rint(groups / scale), -7, 7).astype(np.int8), len(w))


def _numpy_vsq(w: Array) -> Array:
    groups = w.reshape(len(w), -1, 16)
    scale = np.abs(groups).max(axis=2, keepdims=True) / np.float32(7)
    codes = np.clip(np.rint(groups / scale), -7, 7).astype(np.int8)
    gamma = scale.max(axis=1, keepdims=True) / np.float32(15)
    scale_codes = np.rint(scale / gamma)
    return _nibbles(codes * (scale_codes > 0), len(w))


def _numpy_mxfp4(w: Array) -> Array:
    groups = w.reshape(len(w), -1, 32)
    exponent = np.frexp(np.abs(groups).max(axis=2, keepdims=True))[1] - 3
    quotient = np.ldexp(groups, -exponent)
    magnitudes = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.float32)
    codes = np.searchsorted(magnitudes, np.abs(quotient)).astype(np.uint8)
    return _nibbles(codes | np.signbit(quotient).astype(np.uint8) << 3, len(w))


def _nibbles(codes: Array, rows: int) -> Array:
    flat = codes.reshape(rows, -1)
    packed: Array = flat[:, 0::2] & 15 | flat[:, 1::2] << 4
    return packed


def _ml_dtypes(w: Array, name: str) -> Candidate | None:
    try:
        import ml_dtypes  # 5 ms
    except ImportError:
        return None
    dtype = getattr(ml_dtypes, name, None)
    if dtype is None:
        return None
    return Candidate(f"ml_dtypes astype {name}", lambda: w.astype(dtype), w.nbytes, "GB/s")


def _sizes(options: Options) -> Table:
    """Time `quantize` per value for arrays of very different sizes, with one thread and with the most."""
    rows: list[Row] = []
    for size in QUICK_SIZES if options.quick else SIZES:
        options.report_progress(f"{size:,} values")
        w = np.random.default_rng(0).standard_normal((size // ROW, ROW), dtype=np.float32)
        candidates = []
        for threads in options.threads:

            def run(w: Array = w, threads: int = threads) -> None:
                with use(threads=threads):
                    quantize(w, MAIN)

            candidates.append(Candidate(f"{size} values, {threads} threads", run, size, "Gvalue/s"))
        times = Times(candidates, options, max(options.threads))
        first = candidates[0].name
        for candidate in candidates:
            each = times.median(candidate.name) / size * 1e9
            rows.append({**times.row(candidate.name, to_first=times.speedup(candidate.name, first)), "ns_each": each})
    return {"title": f"Quantize {MAIN} by size", "threads": max(options.threads), "rows": rows}
