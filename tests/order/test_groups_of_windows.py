"""Filters with groups of channels times int8, several taps a row: drawn calls on all paths, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import isas, same_bits

import heterocompute as hc

FORMATS = ("int4-g32-f16", "mxfp4", "int8-g16", "vsq8-g64-s8", "vsq6-g16-s6", "int8-g8")


def results(path: str | None, *arguments: Any, **options: Any) -> list[Any]:
    """Return the result of the path, or nothing if it refuses the product."""
    try:
        with hc.use(path=path):
            return [hc.conv2d(*arguments, activations="int8", **options)]
    except hc.ArgumentError as error:
        assert "refuses this product" in str(error)
        return []


@pytest.mark.parametrize("isa", [*isas("lanes", "gem"), None])
@pytest.mark.parametrize("seed", range(10))
def test_all_paths_have_the_same_bits(seed: int, isa: str | None) -> None:
    rng = np.random.default_rng(seed)
    channels, groups = int(rng.choice((8, 16, 24, 28, 40, 64, 96))), int(rng.choice((1, 1, 2, 3)))
    filters, side = groups * int(rng.integers(1, 40)), int(rng.choice((1, 2, 3)))
    x = rng.standard_normal((2, groups * channels, *rng.integers(4, 15, 2)), dtype=np.float32)
    w = rng.standard_normal((filters, channels, side, side), dtype=np.float32)
    q = hc.quantize(w, FORMATS[seed % len(FORMATS)], axis=(2, 3, 1))
    where = {"padding": int(rng.integers(0, 2)), "stride": int(rng.integers(1, 3)), "groups": groups}
    wanted = hc.conv2d(x, q, activations="int8", algorithm="implicit", **where)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    for path in ("gemm", "lanes", None):
        for threads in (1, 2):
            with hc.use(isa=isa, threads=threads):
                for found in results(path, x, q, **where):
                    assert same_bits(found, wanted), path
                for found in results(path, last, q, layout="NHWC", **where):
                    assert same_bits(np.ascontiguousarray(found.transpose(0, 3, 1, 2)), wanted), path


@pytest.mark.parametrize("isa", [*isas("lanes", "gem"), None])
def test_sums_that_overflow_are_one_nan_on_all_paths(isa: str | None) -> None:
    x = np.full((1, 32, 6, 6), 3e38, np.float32)
    w = np.random.default_rng(1).choice(np.array([-3e38, 3e38], np.float32), (20, 32, 3, 3))
    q = hc.quantize(w, "int8-g16", axis=(2, 3, 1))
    wanted = hc.conv2d(x, q, activations="int8", algorithm="implicit")
    assert np.isnan(wanted).any()
    for path in ("gemm", "lanes"):
        with hc.use(isa=isa):
            for found in results(path, x, q):
                assert same_bits(found, wanted), path


@pytest.mark.parametrize("seed", range(12))
def test_patterns_of_few_channels_are_the_same_codes_without_a_pattern(seed: int) -> None:
    rng = np.random.default_rng(seed)
    channels, size = int(rng.integers(1, 70)), int(rng.integers(1, 6))
    bits, pattern = rng.choice([4, 8]), rng.choice(["2:4", "1:4", "3:7"])
    sparse = hc.quantize(rng.standard_normal((9, channels, size, size), np.float32), f"int{bits}+{pattern}", (2, 3, 1))
    whole = hc.quantize(sparse.dequantize(), f"int{bits}", (2, 3, 1))
    assert np.array_equal(whole.dequantize(), sparse.dequantize())
    x = rng.standard_normal((2, channels, 7, 8), np.float32)
    for activations in ("int8", "int16"):
        found = hc.conv2d(x, sparse, padding=size // 2, activations=activations)
        assert found.tobytes() == hc.conv2d(x, whole, padding=size // 2, activations=activations).tobytes()
