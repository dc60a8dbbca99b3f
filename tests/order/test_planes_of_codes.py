"""The algorithm `planes` of integers: drawn images in NCHW, against all other algorithms, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from common import isas, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.base.runtime import run

WINDOWS = ((1, 1), (3, 3), (5, 5), (7, 7), (1, 3), (2, 2))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_the_bits_are_those_of_implicit(seed: int, wide: bool) -> None:
    rng = np.random.default_rng(seed)
    groups, r, s = int(rng.choice((1, 1, 2, 4))), *WINDOWS[seed % len(WINDOWS)]
    channels, filters = (1, int(rng.integers(1, 3))) if seed % 3 == 2 else rng.integers(1, 10 if wide else 15, 2)
    height, width = rng.integers(13, 44, 2)
    x = rng.standard_normal((2, groups * channels, height, width), dtype=np.float32)
    w = rng.standard_normal((groups * filters, channels, r, s), dtype=np.float32)
    narrow = ("int8", "int4", "vsq4-g4-s4")[seed % 3 if channels % 4 == 0 else seed % 2]
    q = hc.quantize(w, ("vsq8-g16-s8", "int16", "vsq6-g16-s6")[seed % 3] if wide else narrow, axis=(2, 3, 1))
    bias = rng.standard_normal(len(w), dtype=np.float32) if seed % 2 else None
    where = {"stride": int(rng.integers(1, 4)), "padding": int(rng.integers(0, 4)), "dilation": int(rng.integers(1, 3))}
    where |= {"groups": groups, "activations": "int8"}
    wanted = hc.conv2d(x, q, bias, algorithm="implicit", **where)
    out = np.full((*wanted.shape[:3], wanted.shape[3] + 3), 7, np.float32)
    for isa in isas():
        for threads in (1, 3):
            with hc.use(isa=isa, threads=threads):
                assert same_bits(hc.conv2d(x, q, bias, algorithm="planes", **where), wanted)
                view = x[:, :, :, 1:]  # rows with a gap
                other = hc.conv2d(view.copy(), q, bias, algorithm="implicit", **where)
                assert same_bits(hc.conv2d(view, q, bias, algorithm="planes", **where), other)
    hc.conv2d(x, q, bias, algorithm="planes", out=out[..., :-3], **where)
    assert same_bits(np.ascontiguousarray(out[..., :-3]), wanted) and (out[..., -3:] == 7).all()


def test_sums_of_16_bits_fit_32() -> None:
    x = np.full((1, 512, 5, 7), -1, np.float32)
    for channels, r in ((512, 1), (128, 2)):
        q = hc.quantize(np.ones((3, channels, r, r), np.float32), "int16", axis=(2, 3, 1))
        found, wanted = (
            hc.conv2d(x[:, :channels], q, activations="int8", algorithm=name) for name in ("planes", "implicit")
        )
        assert same_bits(found, wanted)
    q = hc.quantize(np.ones((3, 514, 1, 1), np.float32), "int16", axis=(2, 3, 1))
    with pytest.raises(ValueError, match="windows of more than 512 values of 16 bits"):
        hc.conv2d(np.ones((1, 514, 5, 7), np.float32), q, activations="int8", algorithm="planes")


def test_images_that_are_not_planes_are_refused() -> None:
    x, q = np.ones((1, 9, 9, 8), np.float32), hc.quantize(np.ones((4, 8, 3, 3), np.float32), "int8", axis=(2, 3, 1))
    with pytest.raises(ValueError, match="planes"):
        hc.conv2d(x, q, activations="int8", layout="NHWC", algorithm="planes")
    with pytest.raises(ValueError, match="not float32"):
        hc.conv2d(np.ones((1, 8, 9, 9), np.float64), q, activations="int8", algorithm="planes")


def test_an_image_of_zeros_and_one_that_is_not_finite() -> None:
    q = hc.quantize(np.ones((4, 2, 3, 3), np.float32), "int8", axis=(2, 3, 1))
    x = np.zeros((2, 2, 40, 40), np.float32)
    assert not hc.conv2d(x, q, activations="int8", algorithm="planes").any()
    x[1, 1, 3, 4] = np.nan
    with pytest.raises(ValueError, match=r"\(1, 1, 3, 4\)"):
        hc.conv2d(x, q, activations="int8", algorithm="planes")


@pytest.mark.parametrize("window", [(2, 1), (1, 2), (2, 2), (3, 1), (1, 3), (4, 1), (4, 2)])
@pytest.mark.parametrize("padding", ["same", ((0, 1), (0, 0)), ((0, 1), (0, 1)), ((1, 0), (1, 0)), 0])
def test_small_windows_read_their_own_rows(window: tuple[int, int], padding: object) -> None:
    """Two rows, or two columns, of a filter lie in one word, which must not pass for a filter of one pixel."""
    for groups, channels in ((1, 1), (1, 3), (2, 2)):
        x = np.random.default_rng(1).standard_normal((2, groups * channels, 17, 16), dtype=np.float32)
        w = np.random.default_rng(2).standard_normal((3 * groups, channels, *window), dtype=np.float32)
        q, where = hc.quantize(w, "int8", axis=(2, 3, 1)), {"padding": padding, "groups": groups, "activations": "int8"}
        wanted = hc.conv2d(x, q, algorithm="implicit", **where)
        for isa in isas():
            with hc.use(isa=isa):
                assert same_bits(hc.conv2d(x, q, algorithm="planes", **where), wanted)


def test_sizes_that_overflow_are_refused() -> None:
    one = np.zeros((1, 1, 8, 8), np.float32)
    with pytest.raises((MemoryError, ValueError), match="pool2d"):
        core.pool2d(run(), one, True, (2**62, 2**62), (1, 1), (0, 0), np.zeros((1, 1, 1, 8), np.float32))
