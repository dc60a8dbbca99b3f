"""Integer matmuls of patterns: exact sums, scaled once, the same bits on every ISA and number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import guarded_copy, isas, reals, same_bits

import heterocompute as hc

Array = np.ndarray[Any, Any]

LINES = [*isas("gemm_s8", "sparse_s8", "spread_", "integers_", "pack_", "few_"), None]  # None: all together
BASES = ["int8", "int4", "int3", "vsq4-g16-s4", "vsq4-g64-s4", "int8-asym", "int6-asym"]
FORMATS = [f"{base}+{pattern}" for base in BASES for pattern in ("2:4", "1:2", "4:8", "1:4", "1:16")]
# 4 or fewer of 8, 16, 32 and 64 columns; 3:6 and 3:4 have no such blocks, groups of 6 end inside them.
PATTERNS = ["1:1", "3:4", "3:6", "1:8", "2:8", "3:8", "5:8", "2:16", "3:16", "4:16", "1:32", "2:32", "3:32", "4:32"]
FORMATS += [f"int8+{pattern}" for pattern in PATTERNS] + ["vsq4-g6-s4+2:4", "vsq4-g2-s4+2:8", "vsq4-g3-s4+3:16"]
FEW = [
    f"{base}+{pattern}" for base in ("int8", "vsq4-g16-s4") for pattern in ("2:4", "1:4", "4:8", "2:8", "1:8", "1:16")
]
FEW += [f"int8+{pattern}" for pattern in ("1:2", "3:8", "4:16", "1:32", "3:5")]
FEW += [
    "int4+1:4",
    "int4-f16+4:8",
    "int8-f16+1:8",
    "vsq4-g32-s4+1:4",
    "vsq4-g64-s4+2:8",
    "vsq4-g128-s4+1:4",
    "vsq4-g16-s6+1:4",
]
FEW += ["vsq4u-g16-s4+1:4", "int6+1:4", "int3+1:8", "int8-asym+1:4", "int4-asym+4:8", "vsq4-g15-s4+3:8"]
FEW += ["int8+3:4", "int8+7:16", "int4+5:8", "int8-asym+3:4", "vsq4-g15-s4+5:8", "int8+5:32"]  # rows made dense
SOME = ["2:4", "4:8", "3:8", "1:4", "2:8", "1:8", "1:16"]
# Around 8 columns per step, 4 to 32 rows per tile, and 512 columns that are decoded at once.
SHAPES = [
    (1, 1, 1),
    (9, 5, 3),
    (12, 32, 8),
    (13, 33, 9),
    (11, 31, 20),
    (24, 16, 516),
    (40, 65, 1030),
    (20, 7, 130),
    (13, 34, 192),
]


def row_scales(q: hc.QuantizedArray) -> Array:
    scales = q.components["coarse"] if "coarse" in q.components else q.components["scales"][:, 0]
    return scales.astype(np.float64)


def integers(q: hc.QuantizedArray) -> Array:
    """Return the integers of a row-scaled array, from its unrounded values."""
    scales = row_scales(q)[:, None]
    return np.rint(q.dequantize(np.float64) / np.where(scales == 0, 1, scales)).astype(np.int64)


def exact(a: hc.QuantizedArray, b: hc.QuantizedArray) -> Array:
    """Return float32((s_a * s_b) * S), where S is the exact sum of the integers' products."""
    return ((row_scales(a)[:, None] * row_scales(b)) * (integers(a) @ integers(b).T)).astype(np.float32)


@pytest.mark.parametrize("isa", LINES)
@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=5)
def test_sums_over_what_is_kept_are_exact(text: str, isa: str | None) -> None:
    for m, n, k in SHAPES:
        x, w = hc.quantize(reals((m, k), k), "int8"), hc.quantize(reals((n, k), m), text)
        expected = exact(x, w)
        for threads in (1, 2):
            with hc.use(isa=isa, threads=threads):
                assert same_bits(hc.matmul(x, w.T), expected)
                assert same_bits(np.ascontiguousarray(hc.matmul(w, x.T).T), expected)
                assert same_bits(hc.matmul(x, hc.prepack(w).T), expected)


@pytest.mark.parametrize("isa", LINES)
@pytest.mark.parametrize(
    "activations", ["int8", "int16", "int24", "vsq4-g16-s4", "vsq4-g16-s6", "int8+2:4", "int8-asym"]
)
@pytest.mark.parametrize("pattern", ["2:4", "1:4", "1:8", "1:16"])
@pytest.mark.sweep(every=5)
def test_activations_are_quantized_on_the_way(pattern: str, activations: str, isa: str | None) -> None:
    for m, n, k in [(30, 40, 203), (100, 36, 72)]:
        x, w = reals((m, k), n), hc.quantize(reals((n, k), m), f"int8+{pattern}")
        bias = reals(n, 1)
        q = hc.quantize(x, activations)
        products = integers(q) @ integers(w).T  # of 24 bits and 8: far within int64
        expected = ((row_scales(q)[:, None] * row_scales(w)) * products.astype(np.float64)).astype(np.float32)
        for threads in (1, 2):
            with hc.use(isa=isa, threads=threads), guarded_copy(x) as copy:
                assert same_bits(hc.linear(copy, w, activations=activations), expected)
                assert same_bits(hc.linear(copy, w, bias, activations=activations), expected + bias)


@pytest.mark.parametrize("isa", LINES)
@pytest.mark.parametrize("pattern", SOME)
@pytest.mark.parametrize("k", [64, 16384, 16392, 33333])
@pytest.mark.sweep(every=5)
def test_extreme_codes_give_the_exact_integer(k: int, pattern: str, isa: str | None) -> None:
    """All products have one sign and the largest magnitude, over one slab of k and several."""
    n, m = map(int, pattern.split(":"))
    rows = np.array([[127], [-127], [127]], np.float32)
    x = np.tile(rows, (4, k))
    w = np.tile(rows[:2], (20, k))
    a, b = hc.quantize(x, "int8"), hc.quantize(w, f"int8+{pattern}")
    kept = k // m * n + min(k % m, n)
    assert (np.abs(integers(a) @ integers(b).T) == 127 * 127 * kept).all()
    with hc.use(isa=isa, threads=2):
        assert same_bits(hc.matmul(a, b.T), exact(a, b))


@pytest.mark.parametrize("isa", LINES)
@pytest.mark.parametrize("pattern", SOME)
def test_the_lowest_code_counts(pattern: str, isa: str | None) -> None:
    """The code -128, which quantization does not produce but an array may contain."""
    n, m = map(int, pattern.split(":"))
    k, ones = 192, np.ones((9, 1), np.float32)
    x = hc.QuantizedArray({"codes": np.full((9, k), 0x80, np.uint8), "scales": ones}, hc.format("int8"), (9, k), (1,))
    like = hc.quantize(reals((9, k)), f"int8+{pattern}")
    parts = {**like.components, "codes": np.full_like(like.components["codes"], 0x80), "scales": ones}
    w = hc.QuantizedArray(parts, like.format, (9, k), (1,))
    with hc.use(isa=isa):
        assert (hc.matmul(x, w.T) == 128 * 128 * (k // m * n)).all()


@pytest.mark.parametrize("isa", LINES)
@pytest.mark.parametrize("pattern", SOME)
def test_what_stands_for_no_column_counts_for_nothing(pattern: str, isa: str | None) -> None:
    n, m = map(int, pattern.split(":"))
    for k in (m * 3 + 1, m * 9 + 1):  # the last block has one column, which only the first position names
        like = hc.quantize(np.ones((10, k), np.float32), f"int8+{pattern}")  # ties: the lowest columns are kept
        parts = {**like.components, "codes": np.full_like(like.components["codes"], 5)}
        w = hc.QuantizedArray(parts, like.format, (10, k), (1,))
        x = hc.quantize(reals((12, k), 3), "int8")
        expected = exact(x, w)
        assert np.count_nonzero(integers(w)) == 10 * (k // m * n + 1)
        with hc.use(isa=isa):
            assert same_bits(hc.matmul(x, w.T), expected)


@pytest.mark.parametrize("isa", LINES)
@pytest.mark.parametrize("pattern", SOME)
@pytest.mark.sweep(every=3)
def test_inputs_end_where_they_end(pattern: str, isa: str | None) -> None:
    for n, k in [(5, 8), (33, 20), (7, 517), (3, 1025)]:
        x = hc.quantize(reals((17, k), n), "int8")
        w = hc.quantize(reals((n, k), k), f"int8+{pattern}")
        expected = exact(x, w)
        parts = dict(w.components)
        with guarded_copy(parts["codes"]) as codes, guarded_copy(parts["metadata"]) as metadata:
            guarded = hc.QuantizedArray({**parts, "codes": codes, "metadata": metadata}, w.format, w.shape, w.axis)
            with hc.use(isa=isa, threads=2):
                assert same_bits(hc.matmul(x, guarded.T), expected)


@pytest.mark.parametrize("isa", LINES)
def test_answers_of_any_strides(isa: str | None) -> None:
    m, n, k = 29, 38, 100
    x, w = hc.quantize(reals((m, k), 1), "int8"), hc.quantize(reals((n, k), 2), "int8+2:4")
    expected = exact(x, w)
    for make in (
        lambda: np.full((m, n), 7, np.float32),
        lambda: np.full((n, m), 7, np.float32).T,
        lambda: np.full((m, 2 * n), 7, np.float32)[:, ::2],
        lambda: np.full((2 * m, n + 3), 7, np.float32)[::2, 3:],
        lambda: np.full((n, 2 * m), 7, np.float32).T[::2],
        lambda: np.full((m, n), 7, np.float32)[::-1, ::-1],
        lambda: np.full((n + 2, m), 7, np.float32).T[:, 2:],
    ):
        out = make()
        with hc.use(isa=isa, threads=2):
            assert hc.matmul(x, w.T, out=out) is out
        assert np.array_equal(out, expected)
        base = out.base if out.base is not None else out
        inside = np.zeros(base.shape, bool)
        np.lib.stride_tricks.as_strided(
            inside.reshape(-1)[(out.ctypes.data - base.ctypes.data) // 4 :],
            out.shape,
            [stride // 4 for stride in out.strides],
        )[...] = True
        assert (base[~inside] == 7).all()


@pytest.mark.parametrize("isa", LINES)
def test_batches_of_integers(isa: str | None) -> None:
    x, w = reals((2, 3, 15, 44), 1), reals((3, 21, 44), 2)
    one, all_three = hc.quantize(w[0], "int8+2:4"), hc.quantize(w.transpose(0, 2, 1), "int8+2:4", axis=1)
    codes = [[hc.quantize(rows, "int8") for rows in outer] for outer in x]
    shared = np.array([[exact(q, one) for q in outer] for outer in codes])
    apart = np.array([[exact(q, hc.quantize(w[i], "int8+2:4")) for i, q in enumerate(outer)] for outer in codes])
    with hc.use(isa=isa, threads=2):
        assert same_bits(hc.linear(x, one, activations="int8"), shared)
        assert same_bits(hc.matmul(hc.quantize(x, "int8"), one.T), shared)
        assert same_bits(hc.matmul(x, all_three, activations="int8"), apart)


@pytest.mark.parametrize("isa", LINES)
@pytest.mark.parametrize("pattern", ["2:4", "1:4", "1:8"])
@pytest.mark.parametrize("channels", [8, 12, 16, 40, 64])
@pytest.mark.sweep(every=3)
def test_filters_of_integers(channels: int, pattern: str, isa: str | None) -> None:
    x, w = reals((2, channels, 7, 6), 4), reals((10, channels, 3, 2), 5)
    q = hc.quantize(w, f"int8+{pattern}", axis=(2, 3, 1))
    codes = hc.quantize(x, "int8", axis=(1, 2, 3))
    scale = codes.components["scales"].reshape(-1).astype(np.float64)
    pixels = np.rint(codes.dequantize(np.float64) / scale[:, None, None, None]).astype(np.int64)
    filters = np.rint(q.dequantize(np.float64) / row_scales(q)[:, None, None, None]).astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (3, 2), axis=(2, 3))
    sums = np.einsum("ncpqrs,kcrs->nkpq", windows, filters)
    expected = (scale[:, None, None, None] * row_scales(q)[:, None, None] * sums).astype(np.float32)
    with hc.use(isa=isa, threads=2):
        assert same_bits(hc.conv2d(x, q, activations="int8"), expected)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("isa", LINES)
@pytest.mark.parametrize("text", FEW)
def test_few_vectors_give_exact_sums(text: str, isa: str | None) -> None:
    """Stored and decoded codes, steps of 8 to 64 columns, and rows that end inside of each step."""
    for m, n, k in [(1, 9, 1), (1, 17, 64), (2, 5, 130), (3, 8, 515), (8, 11, 1025), (5, 3, 2100), (4, 2, 192)]:
        x, w = hc.quantize(reals((m, k), k), "int8"), hc.quantize(reals((n, k), m), text)
        expected = exact(x, w)
        for threads in (1, 2):
            with hc.use(isa=isa, threads=threads):
                assert same_bits(hc.matmul(x, w.T), expected), (m, n, k)
                assert same_bits(np.ascontiguousarray(hc.matmul(w, x.T).T), expected), (m, n, k)


@pytest.mark.parametrize("isa", LINES)
@pytest.mark.parametrize(
    "activations", ["int4", "int16", "int24", "vsq4-g16-s4", "vsq4-g16-s6", "int8-asym", "int8+1:4"]
)
@pytest.mark.parametrize("text", ["int8+1:8", "vsq4-g16-s4+4:8", "int6+1:4", "int8+3:4"])
@pytest.mark.sweep(every=5)
def test_few_vectors_of_other_integers(text: str, activations: str, isa: str | None) -> None:
    for m, n, k in [(1, 5, 333), (7, 9, 136)]:
        x, w = hc.quantize(reals((m, k), n), activations), hc.quantize(reals((n, k), m), text)
        products = (integers(x) @ integers(w).T).astype(np.float64)  # of 24 bits and 8: far within int64
        expected = ((row_scales(x)[:, None] * row_scales(w)) * products).astype(np.float32)
        with hc.use(isa=isa, threads=2):
            assert same_bits(hc.matmul(x, w.T), expected)


@pytest.mark.parametrize("isa", LINES)
@pytest.mark.parametrize(
    "text", ["int8+1:4", "int8+4:8", "int8+1:16", "int8+3:4", "int4+1:8", "vsq4-g16-s4+1:4", "vsq4-g64-s4+4:8"]
)
@pytest.mark.sweep(every=3)
def test_few_vectors_of_extreme_codes(text: str, isa: str | None) -> None:
    """Codes with all bits set and the lowest code, the largest scales, and x of one sign."""
    for k, byte in [(2048, 0x80), (2048, 0x88), (65536 + 24, 0x77), (65536 + 24, 0x7F)]:
        like = hc.quantize(reals((3, k)), text)
        parts = {**like.components, "codes": np.full_like(like.components["codes"], byte)}
        if "coarse" in parts:
            parts["scales"] = np.full_like(parts["scales"], 0xFF)
        w = hc.QuantizedArray(parts, like.format, (3, k), (1,))
        x = hc.quantize(np.outer([1, -1, 1, -1, 1], np.ones(k)).astype(np.float32), "int8")
        expected = exact(x, w)
        with hc.use(isa=isa):
            assert same_bits(hc.matmul(x, w.T), expected)


@pytest.mark.parametrize("isa", LINES)
@pytest.mark.parametrize(
    "text", ["int8+1:4", "int8+3:8", "int8+1:16", "int8+3:4", "int4+1:8", "vsq4-g16-s4+1:4", "vsq4-g64-s4+4:8"]
)
@pytest.mark.sweep(every=3)
def test_few_vectors_read_nothing_behind_the_weights(text: str, isa: str | None) -> None:
    for n, k in [(1, 3), (5, 8), (2, 517), (3, 1025), (4, 2048)]:
        x, w = hc.quantize(reals((2, k), n), "int8"), hc.quantize(reals((n, k), k), text)
        expected, parts = exact(x, w), w.components
        with (
            guarded_copy(parts["codes"]) as codes,
            guarded_copy(parts["metadata"]) as metadata,
            guarded_copy(parts["scales"]) as scales,
        ):
            guarded = {**parts, "codes": codes, "metadata": metadata, "scales": scales}
            with hc.use(isa=isa, threads=2):
                found = hc.matmul(x, hc.QuantizedArray(guarded, w.format, w.shape, w.axis).T)
        assert same_bits(found, expected)


def test_no_rows_and_no_columns() -> None:
    w = hc.quantize(reals((5, 16)), "int8+2:4")
    assert hc.matmul(hc.quantize(np.zeros((0, 16), np.float32), "int8"), w.T).shape == (0, 5)
    empty = hc.quantize(np.zeros((5, 0), np.float32), "int8+2:4")
    assert not hc.matmul(hc.quantize(np.zeros((9, 0), np.float32), "int8"), empty.T).any()
    assert hc.linear(reals((9, 16)), w[:0], activations="int8").shape == (9, 0)
