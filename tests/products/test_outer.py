"""Convolution without zeros: bitwise its definition, near conv2d, and the counts of the array of multipliers."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from common import bad_argument, guarded_copy, isas, reals, same_bits

import heterocompute as hc
from heterocompute.reference import outer as reference

# (N, C, H, W), (K, C, R, S), stride, padding
LAYERS: list[tuple[Any, Any, Any, Any]] = [
    ((2, 3, 6, 5), (4, 3, 3, 3), 1, 1),
    ((1, 5, 7, 9), (17, 5, 3, 2), 2, 1),
    ((1, 2, 8, 8), (3, 2, 1, 1), 1, 0),
    ((1, 2, 5, 6), (33, 2, 5, 3), (1, 3), (3, 0)),
    ((1, 1, 1, 1), (1, 1, 1, 1), 1, 0),
    ((1, 2, 4, 4), (2, 2, 3, 3), 2, "same"),
    ((1, 70, 3, 4), (2, 70, 2, 2), 1, 0),
    ((1, 1, 3, 70), (2, 1, 2, 3), 1, 2),
]


def thinned(shape: Any, density: float, seed: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < density, reals(shape, seed), 0).astype(dtype)


def window(x: Any, w: Any, stride: Any, padding: Any) -> tuple[Any, Any, Any]:
    """Return stride, padding before and size of the output, as pairs."""
    strides = (stride, stride) if isinstance(stride, int) else stride
    if padding == "same":
        size = tuple(-(-x.shape[2 + i] // strides[i]) for i in (0, 1))
        total = [(size[i] - 1) * strides[i] + w.shape[2 + i] - x.shape[2 + i] for i in (0, 1)]
        return strides, tuple(max(t, 0) // 2 for t in total), size
    before = (padding, padding) if isinstance(padding, int) else padding
    size = tuple(max((x.shape[2 + i] + 2 * before[i] - w.shape[2 + i]) // strides[i] + 1, 0) for i in (0, 1))
    return strides, before, size


@pytest.mark.parametrize("isa", isas("outer_", "pack_"))
@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.sweep(every=3)
def test_every_value_is_the_stated_chain(layer: Any, isa: str) -> None:
    for seed, density in enumerate((0.0, 0.3, 1.0)):
        x, w = thinned(layer[0], density, seed), thinned(layer[1], density, seed + 9)
        wanted = reference.conv2d_outer(x, w, *window(x, w, *layer[2:]))
        for threads in (1, 2):
            with hc.use(isa=isa, threads=threads), guarded_copy(x) as a, guarded_copy(w) as b:
                assert same_bits(hc.conv2d_outer(a, b, None, *layer[2:]), wanted)


@pytest.mark.parametrize("isa", isas("outer_", "pack_"))
@pytest.mark.parametrize("density", [0.02, 0.1, 0.5, 1.0])
@pytest.mark.sweep(every=5)
def test_it_is_conv2d_of_the_same_values(density: float, isa: str) -> None:
    for seed, (stride, padding, filters) in enumerate([(1, 1, 70), (2, 1, 130), (1, 0, 16), (2, 3, 40)]):
        x, w = thinned((2, 130, 11, 19), density, seed), thinned((filters, 130, 3, 3), density, seed + 5)
        with hc.use(isa=isa, threads=2):
            y = hc.conv2d_outer(x, w, stride=stride, padding=padding)
        assert np.array_equal(y, hc.conv2d(x, w, stride=stride, padding=padding, algorithm="direct"))
        exact = hc.conv2d(np.abs(x), np.abs(w), stride=stride, padding=padding, algorithm="direct").astype(np.float64)
        wide = sum_in_float64(x, w, stride, padding)
        assert np.all(np.abs(y - wide) <= 2 * (9 * 130 + 1) * np.finfo(np.float32).eps * exact + 1e-30)


def sum_in_float64(x: Any, w: Any, stride: int, padding: int) -> Any:
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("ncpqrs,kcrs->nkpq", windows, w.astype(np.float64), optimize=True)


@pytest.mark.parametrize("isa", isas("outer_"))
def test_values_that_are_not_finite_meet_only_weights_that_are_not_zero(isa: str) -> None:
    x, w = thinned((1, 6, 7, 8), 0.4, 1), thinned((37, 6, 3, 3), 0.3, 2)
    x[0, 2, 3, 3], x[0, 4, 0, 0], x[0, 1, 6, 7] = np.nan, np.inf, -np.inf
    w[5, 3] = np.inf
    w[6, 0, 1, 1] = np.nan
    with np.errstate(invalid="ignore"):
        wanted = reference.conv2d_outer(x, w, (1, 1), (1, 1), (7, 8))
    with hc.use(isa=isa):
        y = hc.conv2d_outer(x, w, padding=1)
    assert np.array_equal(y, wanted, equal_nan=True)
    assert np.isnan(y).any() and np.isfinite(y).any()
    assert np.isfinite(hc.conv2d_outer(np.full((1, 1, 4, 4), np.nan), np.zeros((3, 1, 2, 2)))).all()


@pytest.mark.parametrize("isa", isas("outer_"))
def test_sums_that_round_to_minus_zero_stay_it(isa: str) -> None:
    x, w = np.zeros((1, 3, 1, 2), np.float32), np.zeros((2, 3, 1, 1), np.float32)
    x[0, :, 0, 0] = 1e-30, 1, 2
    w[:, 0, 0, 0] = -1e-30
    with hc.use(isa=isa):
        y = hc.conv2d_outer(x, w)
    assert same_bits(y, np.float32([[[[-0.0, 0]], [[-0.0, 0]]]]))
    assert same_bits(y, reference.conv2d_outer(x, w, (1, 1), (0, 0), (1, 2)))


def test_denormal_numbers_count_in_full() -> None:
    x, w = np.full((1, 1, 1, 1), 1e-40, np.float32), np.full((1, 1, 1, 1), 2, np.float32)
    assert hc.conv2d_outer(x, w)[0, 0, 0, 0] == np.float32(2) * np.float32(1e-40)


def test_any_type_strides_and_packing() -> None:
    import ml_dtypes

    x, w = thinned((2, 8, 6, 7), 0.4, 3), thinned((12, 8, 3, 3), 0.4, 4)
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float64):
        a, b = x.astype(dtype), w.astype(dtype)
        wanted = hc.conv2d_outer(a.astype(np.float32), b.astype(np.float32), padding=1)
        assert same_bits(hc.conv2d_outer(a, b, padding=1), wanted)
    wanted = hc.conv2d_outer(x, w, padding=1)
    channels_last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert same_bits(hc.conv2d_outer(channels_last, np.asfortranarray(w), padding=1), wanted)
    mirrored = hc.conv2d_outer(x[::-1, :, ::-1], w[:, :, ::-1], padding=1)[::-1, :, ::-1]
    assert np.allclose(mirrored, wanted, rtol=1e-4, atol=1e-4)  # other taps come first
    assert same_bits(hc.conv2d_outer(hc.encode_bitmap(x), hc.encode_bitmap(w), padding=1), wanted)
    s = hc.prune(w, "2:4", axis=(2, 3, 1))
    assert same_bits(hc.conv2d_outer(x, s, padding=1), hc.conv2d_outer(x, s.to_dense(), padding=1))
    q = hc.quantize(w, "int8", axis=(2, 3, 1))
    assert same_bits(hc.conv2d_outer(x, q, padding=1), hc.conv2d_outer(x, q.dequantize(), padding=1))
    bias = np.arange(12, dtype=np.float32)
    assert same_bits(hc.conv2d_outer(x, w, bias, padding=1), wanted + bias[:, None, None])
    out = np.full((2, 6, 7, 24), np.nan, np.float32)
    target = out.transpose(0, 3, 1, 2)[:, ::2]
    assert hc.conv2d_outer(x, w, padding=1, out=target) is target
    assert same_bits(np.ascontiguousarray(target), wanted) and np.isnan(out[..., 1::2]).all()


@pytest.mark.parametrize(
    "shapes",
    [
        ((0, 3, 4, 4), (2, 3, 3, 3)),
        ((1, 0, 4, 4), (2, 0, 3, 3)),
        ((1, 3, 4, 4), (0, 3, 3, 3)),
        ((1, 3, 2, 2), (2, 3, 3, 3)),
        ((1, 3, 0, 4), (2, 3, 1, 1)),
    ],
)
def test_sizes_of_zero(shapes: Any) -> None:
    x, w = np.ones(shapes[0], np.float32), np.ones(shapes[1], np.float32)
    y, found = hc.conv2d_outer(x, w, counts=True)
    assert same_bits(y, hc.conv2d(x, w))
    assert found.useful_products == found.cycles * 0 and found.dense_macs == y.size * w[:1].size
    assert found.utilization == 0 or found.products > 0


@pytest.mark.sweep(every=0)
def test_tiles_and_boxes_of_large_layers_give_the_same() -> None:
    # A wide image is cut into tiles, many filters into ranges, a long window into taps and channels.
    for shape, filters, taps in [
        ((1, 24, 3, 70_000), 3, (2, 2)),
        ((1, 9000, 2, 2), 150, (2, 2)),
        ((1, 40, 41, 45), 70, (40, 44)),
        ((1, 70_000, 1, 2), 2, (1, 1)),
    ]:
        x, w = thinned(shape, 0.05, 1), thinned((filters, shape[1], *taps), 0.05, 2)
        with hc.use(threads=2):
            assert np.array_equal(hc.conv2d_outer(x, w), hc.conv2d(x, w)), shape


COUNTED: list[Any] = [
    ((1, 3, 9, 10), (7, 3, 3, 3), 1, 1, {}),
    ((2, 2, 7, 9), (5, 2, 3, 2), 2, 1, {"cells": (2, 3)}),
    ((1, 2, 6, 6), (9, 2, 3, 3), 1, 0, {"cells": (1, 1), "multipliers": (3, 5), "banks": 7, "accumulators": 100}),
    ((1, 2, 5, 5), (3, 2, 5, 5), (2, 1), "same", {"cells": (3, 2), "multipliers": (16, 1), "banks": 1}),
    ((1, 1, 1, 1), (1, 1, 1, 1), 1, 0, {}),
]


@pytest.mark.parametrize("layer", COUNTED, ids=str)
@pytest.mark.parametrize("density", [0.0, 0.2, 1.0])
def test_the_counts_are_those_of_the_definition(layer: Any, density: float) -> None:
    x, w = thinned(layer[0], density, 1), thinned(layer[1], density, 2)
    strides, before, size = window(x, w, *layer[2:4])
    wanted = reference.counts(x, w, strides, before, size, **layer[4])
    for threads in (1, 2):
        with hc.use(threads=threads):
            y, found = hc.conv2d_outer(x, w, None, *layer[2:4], counts=True, **layer[4])
        assert same_bits(y, hc.conv2d_outer(x, w, None, *layer[2:4]))
        got = (found.products, found.useful_products, found.bank_conflicts, found.steps, found.cycles)
        assert got == tuple(wanted.values())
        assert found.dense_macs == y.size * w[0].size
        assert found.zeros_skipped == found.dense_macs - found.useful_products
    pairs = (x != 0).sum(axis=(2, 3)).sum(axis=0) @ (w != 0).sum(axis=(2, 3)).sum(axis=0)
    ones = np.where(x != 0, 1, 0).astype(np.float32), np.where(w != 0, 1, 0).astype(np.float32)
    useful = hc.conv2d(*ones, None, *layer[2:4]).sum()
    assert found.products == pairs and found.useful_products == useful
    assert 0 <= found.utilization <= 1


def test_one_value_and_one_weight_take_a_cycle() -> None:
    x, w = np.zeros((1, 2, 4, 4), np.float32), np.zeros((3, 2, 2, 2), np.float32)
    x[0, 1, 2, 2], w[2, 1, 0, 1] = 5, 3
    y, found = hc.conv2d_outer(x, w, counts=True)
    assert y.sum() == 15 and y[0, 2, 2, 1] == 15
    assert (found.products, found.steps, found.cycles, found.bank_conflicts) == (1, 1, 1, 0)
    assert found.multipliers == 1024 and found.utilization == 1 / 1024 and found.speedup == found.dense_macs / 1024


def test_wrong_arguments_are_sentences() -> None:
    x, w = np.ones((1, 4, 5, 5), np.float32), np.ones((2, 4, 3, 3), np.float32)
    with bad_argument(ValueError, "x", "shape"):
        hc.conv2d_outer(x, w[:, :2])
    with bad_argument(ValueError, "w", "shape"):
        hc.conv2d_outer(x, w[0])
    with bad_argument(ValueError, "x", "shape"):
        hc.conv2d_outer(x[0, 0, 0], w)
    with bad_argument(TypeError, "x", "dtype"):
        hc.conv2d_outer(x.astype(np.int64), w)
    with bad_argument(ValueError, None, "memory", "conv2d_outer"):
        hc.conv2d_outer(x, w, padding=2**30)
    with bad_argument(ValueError, "padding", "value"):
        hc.conv2d_outer(x, w, padding="full")
    with bad_argument(ValueError, "stride", "value"):
        hc.conv2d_outer(x, w, stride=0)
    with bad_argument(ValueError, "padding", "value"):
        hc.conv2d_outer(x, w, padding=-1)
    with bad_argument(TypeError, "stride", "type"):
        hc.conv2d_outer(x, w, stride="1")
    with bad_argument(ValueError, "bias", "shape"):
        hc.conv2d_outer(x, w, np.ones(3, np.float32))
    with bad_argument(ValueError, "out", "shape"):
        hc.conv2d_outer(x, w, out=np.empty(1, np.float32))
    with bad_argument(TypeError, "counts", "type"):
        hc.conv2d_outer(x, w, counts="no")  # type: ignore[call-overload]
    with bad_argument(ValueError, "cells", "value"):
        hc.conv2d_outer(x, w, counts=True, cells=2**70)
    with bad_argument(ValueError, "banks", "value"):
        hc.conv2d_outer(x, w, counts=True, banks=0)
    with bad_argument(ValueError, "multipliers", "value"):
        hc.conv2d_outer(x, w, counts=True, multipliers=(65, 1))
    with bad_argument(TypeError, "cells", "type"):
        hc.conv2d_outer(x, w, counts=True, cells="all")


def test_it_works_within_its_memory() -> None:
    """Besides the result less than 64 MiB; lists of all activations would take 160 MiB, panels of all weights 68."""
    code = """
import resource, numpy as np, heterocompute as hc
x, w = np.ones((1, 512, 256, 256), np.float16), np.zeros((1000, 512, 6, 6), np.float16)
out = np.ones((1, 1000, 5, 5), np.float32)
small = hc.conv2d_outer(x[:, :1, :8, :8], w[:1, :1], out=np.empty((1, 1, 3, 3), np.float32))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
hc.conv2d_outer(x, w, stride=(60, 60), out=out)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < 64


def test_out_shares_memory_with_no_packed_operand() -> None:
    w = hc.prune(np.ones((4, 8, 3, 3), np.float32), "2:4", axis=(2, 3, 1))
    x = np.ones((1, 8, 5, 5), np.float32)
    values = w.components["values"].reshape(-1)
    with bad_argument(ValueError, "out", "memory"):
        hc.conv2d_outer(x, w, out=values[:36].reshape(1, 4, 3, 3))


def test_machines_take_one_number_for_both_sides() -> None:
    x, w = np.ones((1, 2, 6, 6), np.float32), np.ones((4, 2, 3, 3), np.float32)
    assert hc.conv2d_outer(x, w, counts=True, cells=4)[1] == hc.conv2d_outer(x, w, counts=True, cells=(4, 4))[1]
    with bad_argument(TypeError, "accumulators", "type"):
        hc.conv2d_outer(x, w, counts=True, accumulators="x")  # type: ignore[arg-type]
