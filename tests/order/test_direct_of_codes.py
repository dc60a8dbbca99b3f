"""The algorithm `direct` of integers of two limbs: drawn images, against `implicit`, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from common import isas, same_bits

import heterocompute as hc

WINDOWS = ((1, 1), (3, 3), (5, 5), (7, 3), (1, 3), (2, 2))
FORMATS = ("vsq8-g16-s8", "vsq6-g16-s6", "int12")


@pytest.mark.parametrize("seed", range(24))
def test_the_bits_of_two_limbs_are_those_of_implicit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, (r, s) = int(rng.choice((1, 1, 2, 4, 16))), WINDOWS[seed % len(WINDOWS)]
    channels, filters = (int(n) for n in rng.integers(1, 13, 2))
    shape = (2, groups * channels, *(int(n) for n in rng.integers(9, 24, 2)))
    nhwc = bool(seed % 2)
    x = rng.standard_normal((*shape[:1], *shape[2:], shape[1]) if nhwc else shape, dtype=np.float32)
    w = rng.standard_normal((groups * filters, channels, r, s), dtype=np.float32)
    q = hc.quantize(w, FORMATS[seed % len(FORMATS)], axis=(2, 3, 1))
    bias = rng.standard_normal(len(w), dtype=np.float32) if seed % 4 < 2 else None
    where = {"stride": int(rng.integers(1, 4)), "padding": int(rng.integers(0, 3)), "dilation": int(rng.integers(1, 3))}
    where |= {"groups": groups, "activations": "int8", "layout": "NHWC" if nhwc else "NCHW"}
    wanted = hc.conv2d(x, q, bias, algorithm="implicit", **where)
    for isa in isas():
        for threads in (1, 3):
            with hc.use(isa=isa, threads=threads):
                for weights in (q, hc.prepack(q)):
                    assert same_bits(hc.conv2d(x, weights, bias, algorithm="direct", **where), wanted)


def test_sums_of_two_limbs_fit_32_bits() -> None:
    most = (2**31 - 1) // (128 * 128 * 255)  # columns of the largest codes times the largest scale
    x = np.full((1, 3, 4, most), -1, np.float32)
    q = hc.quantize(np.ones((5, most, 1, 1), np.float32), "vsq8-g1-s8", axis=(2, 3, 1))
    where = {"activations": "int8", "layout": "NHWC"}
    found, wanted = (hc.conv2d(x, q, algorithm=name, **where) for name in ("direct", "implicit"))
    assert same_bits(found, wanted)
    longer = hc.quantize(np.ones((5, most + 1, 1, 1), np.float32), "vsq8-g1-s8", axis=(2, 3, 1))
    with pytest.raises(ValueError, match="int32 does not hold the sums of a window"):
        hc.conv2d(np.ones((1, 3, 4, most + 1), np.float32), longer, algorithm="direct", **where)


def test_three_limbs_are_refused() -> None:
    q = hc.quantize(np.ones((4, 8, 3, 3), np.float32), "int16", axis=(2, 3, 1))
    with pytest.raises(ValueError, match="more than two limbs"):
        hc.conv2d(np.ones((1, 8, 9, 9), np.float32), q, activations="int8", algorithm="direct")
