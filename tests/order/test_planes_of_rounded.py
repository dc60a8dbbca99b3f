"""`planes` of filters of one channel with quantized images, against `depthwise` and `implicit`, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from common import isas, same_bits

import heterocompute as hc

FORMATS = ("int8", "int4", "vsq4-g16-s4", "vsq8-g64-s8", "int4-g32-f16", "mxfp4", "nvfp4", "nf4-g64", "fp8_e4m3fn-row")


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("side", [3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2])
def test_the_bits_are_those_of_depthwise(fmt: str, side: int, stride: int) -> None:
    rng = np.random.default_rng([len(fmt), side, stride])
    for number in range(3):
        channels, height, width = (int(i) for i in rng.integers((1, side, side), (40, 50, 50)))
        x = rng.standard_normal((1 + number % 2, channels, height, width), dtype=np.float32)
        x *= np.float32(10.0) ** rng.integers(-3, 3, (len(x), 1, 1, 1)).astype(np.float32)
        w = rng.standard_normal((channels, 1, side, side), dtype=np.float32)
        q = hc.quantize(w, fmt, axis=(2, 3, 1))
        bias = rng.standard_normal(channels, dtype=np.float32) if number else None
        where = {"stride": stride, "padding": int(rng.integers(0, side)), "groups": channels, "activations": "int8"}
        wanted = hc.conv2d(x, q, bias, algorithm="depthwise", **where)
        assert same_bits(hc.conv2d(x, q, bias, algorithm="implicit", **where), wanted)
        wide = np.zeros((*x.shape[:3], width + 3), np.float32)
        wide[..., :width] = x
        for isa in isas():
            for threads in (1, 3):
                with hc.use(isa=isa, threads=threads):
                    for image in (x, wide[..., :width]):  # rows that follow each other, or have a gap
                        assert same_bits(hc.conv2d(image, q, bias, algorithm="planes", **where), wanted)


@pytest.mark.parametrize("fmt", ["int8", "int4-g32-f16", "nf4-g64"])
def test_several_filters_of_a_channel(fmt: str) -> None:
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in ((2, 5, 20, 37), (15, 1, 3, 3)))
    q = hc.quantize(w, fmt, axis=(2, 3, 1))
    wanted = hc.conv2d(x, q, groups=5, activations="int8", algorithm="implicit")
    assert same_bits(hc.conv2d(x, q, groups=5, activations="int8", algorithm="planes"), wanted)


@pytest.mark.parametrize("fmt", FORMATS)
def test_the_largest_sums_are_exact(fmt: str) -> None:
    """All codes of x and of w are the largest, so that sums of integers are, too."""
    for side in (3, 5, 7):
        x, w = np.ones((1, 3, 12, 19), np.float32), np.ones((3, 1, side, side), np.float32)
        for sign in (1, -1):
            q = hc.quantize(sign * w, fmt, axis=(2, 3, 1))
            where = {"groups": 3, "activations": "int8", "padding": 1}
            wanted = hc.conv2d(x, q, algorithm="implicit", **where)
            assert same_bits(hc.conv2d(x, q, algorithm="planes", **where), wanted)


def test_scales_at_the_ends_of_float32() -> None:
    x = np.full((1, 2, 9, 9), np.finfo(np.float32).max, np.float32)
    for scale in (1.0, 1e-30, 1e-38, 1e-45):
        for fmt in ("int8", "nf4-g64", "mxfp4"):
            q = hc.quantize(np.full((2, 1, 3, 3), 1e-3, np.float32), fmt, axis=(2, 3, 1))
            image = (x * np.float32(scale)).astype(np.float32)
            found, wanted = (
                hc.conv2d(image, q, groups=2, activations="int8", algorithm=name) for name in ("planes", "depthwise")
            )
            assert same_bits(found, wanted)
