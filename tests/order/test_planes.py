"""NCHW images are read plane by plane: drawn convolutions have the bits of the definition, and of the other layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import bad_argument, isas, same_bits

import heterocompute as hc
from heterocompute.reference import convolution


def drawn(seed: int) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return x, filters, bias and the other arguments of a convolution; windows may lie in the padding alone."""
    rng = np.random.default_rng(seed)
    groups, depth = int(rng.choice([1, 1, 2, 3])), int(rng.choice([1, 2, 5, 9]))
    filters = groups * int(rng.choice([1, 2, 3, 7, 13, 26]))
    side = [(1, 1), (3, 3), (5, 5), (7, 7), (2, 4), (3, 1)][seed % 6]
    if seed % 4 == 0:
        depth = 1
    pair = tuple(int(v) for v in rng.integers(1, 4, 2)) if seed % 3 == 0 else (1 + seed % 2, 1 + seed % 2)
    dilation = tuple(int(v) for v in rng.integers(1, 3, 2)) if seed % 5 == 0 else (1, 1)
    padding = tuple(tuple(int(v) for v in rng.integers(0, 4, 2)) for _ in range(2)) if seed % 7 else 0
    size = [int(v) for v in rng.integers(7, 14, 1)] + [int(v) for v in rng.integers(7, 40, 1)]
    x = rng.standard_normal((int(rng.integers(1, 3)), groups * depth, *size), dtype=np.float32)
    w = rng.standard_normal((filters, depth, *side), dtype=np.float32)
    bias = rng.standard_normal(filters, dtype=np.float32) if seed % 2 else None
    more = {"stride": pair, "padding": padding, "dilation": dilation, "groups": groups, "relu": bool(seed % 3 == 1)}
    return x, w, bias, more


@pytest.mark.parametrize("isa", isas("planes_f32", "plane_f32"))
def test_drawn_convolutions_have_the_bits_of_the_definition(isa: str) -> None:
    for seed in range(48):
        x, w, bias, more = drawn(seed)
        expected = convolution.conv2d(x, w, bias, **more)
        if not expected.size:
            continue
        last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        for threads in (1, 2):
            with hc.use(isa=isa, threads=threads):
                assert same_bits(hc.conv2d(x, w, bias, algorithm="planes", **more), expected), seed
                found = hc.conv2d(x, w, bias, accuracy="strict", **more)
                assert same_bits(found, expected), seed
                other = hc.conv2d(last, w, bias, accuracy="strict", layout="NHWC", **more)
                assert same_bits(np.ascontiguousarray(other.transpose(0, 3, 1, 2)), expected), seed


@pytest.mark.parametrize("isa", isas("planes_f32", "plane_f32"))
@pytest.mark.sweep(every=3)
def test_bands_and_parts_of_filters_change_nothing(isa: str) -> None:
    """Images and filters that do not fit into one band, views, and packed or half-precision filters and images."""
    rng = np.random.default_rng(1)
    for c, k, h, w, r, stride in (
        (300, 40, 20, 17, 1, 1),
        (90, 14, 40, 33, 3, 2),
        (4, 4, 70, 90, 5, 1),
        (700, 26, 3, 5, 2, 1),
    ):
        x, filters = (
            rng.standard_normal((2, c, h, w), dtype=np.float32),
            rng.standard_normal((k, c, r, r), dtype=np.float32),
        )
        groups = c if r == 5 else 1
        filters = filters[:, : c // groups]
        wanted = hc.conv2d(x, filters, stride=stride, padding=r // 2, groups=groups, algorithm="implicit")
        gaps = np.zeros((2, c + 1, h + 2, w + 3), np.float32)[:, 1:, 1:-1, 2:-1]
        gaps[...] = x
        out = np.zeros((*wanted.shape[:3], wanted.shape[3] + 5), np.float32)
        for threads in (1, 2, 5):
            with hc.use(isa=isa, threads=threads):
                options = {"stride": stride, "padding": r // 2, "groups": groups, "algorithm": "planes"}
                assert same_bits(hc.conv2d(x, filters, **options), wanted)
                assert same_bits(hc.conv2d(gaps, filters[:, :, ::-1, ::-1][:, :, ::-1, ::-1], **options), wanted)
                hc.conv2d(x, filters, **options, out=out[..., 2:-3])
                assert same_bits(np.ascontiguousarray(out[..., 2:-3]), wanted)
                assert not out[..., :2].any() and not out[..., -3:].any()
                half, q = x.astype(np.float16), hc.quantize(filters, "int8", axis=(2, 3, 1))
                for image, w_of in ((half, filters), (x, q), (x, filters.astype(np.float64))):
                    other = hc.conv2d(image, w_of, **{**options, "algorithm": "implicit"})
                    assert same_bits(hc.conv2d(image, w_of, **options), other)


@pytest.mark.parametrize("isa", isas("depthwise_f32", "depthwise3_f32"))
def test_planes_in_bands_have_the_bits_of_adjacent_channels(isa: str) -> None:
    """Images are transposed in bands, and so are outputs: several images, parts of one, and other types."""
    rng = np.random.default_rng(4)
    for n, c, h, w, r, stride in (
        (3, 70, 7, 7, 3, 1),
        (2, 33, 21, 19, 5, 2),
        (1, 97, 60, 41, 3, 2),
        (1, 20, 9, 300, 7, 1),
        (9, 300, 14, 9, 3, 1),
        (1, 640, 29, 11, 5, 1),
    ):
        x, filters = rng.standard_normal((n, c, h, w), dtype=np.float32), rng.standard_normal((c, 1, r, r)).astype("f4")
        bias, options = rng.standard_normal(c, dtype=np.float32), {"stride": stride, "padding": r // 2, "groups": c}
        last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        wanted = hc.conv2d(last, filters, bias, **options, layout="NHWC", algorithm="depthwise").transpose(0, 3, 1, 2)
        gaps = np.zeros((n, c, h, w + 3), np.float32)[..., 2:-1]
        gaps[...] = x
        out = np.zeros((n, c + 2, *wanted.shape[2:]), np.float32)
        half = x.astype(np.float16)
        for threads in (1, 3):
            with hc.use(isa=isa, threads=threads):
                for image in (x, gaps, x.astype(np.float64)):
                    assert same_bits(hc.conv2d(image, filters, bias, **options, algorithm="depthwise"), wanted), c
                relu = hc.conv2d(x, filters, bias, **options, algorithm="depthwise", relu=True)
                assert same_bits(relu, np.maximum(wanted, 0)), c
                hc.conv2d(x, filters, bias, **options, algorithm="depthwise", out=out[:, 1:-1])
                assert same_bits(np.ascontiguousarray(out[:, 1:-1]), wanted), c
                assert not out[:, 0].any() and not out[:, -1].any()
                whole = hc.conv2d(half.astype(np.float32), filters, **options, algorithm="depthwise")
                assert same_bits(hc.conv2d(half, filters, **options, algorithm="depthwise"), whole), c
                dense = rng.standard_normal((8, min(c, 97), 3, 3), dtype=np.float32)
                found = hc.conv2d(half[:, :97], dense, padding=1, algorithm="direct")
                whole = half[:, :97].astype(np.float32)
                assert same_bits(found, hc.conv2d(whole, dense, padding=1, algorithm="planes")), c


def test_filters_that_are_packed_once_have_the_same_bits() -> None:
    rng = np.random.default_rng(2)
    x, filters = (
        rng.standard_normal((2, 16, 9, 9), dtype=np.float32),
        rng.standard_normal((12, 16, 3, 3), dtype=np.float32),
    )
    ready = hc.prepack(filters)
    wanted = hc.conv2d(x, filters, padding=1, stride=2, accuracy="strict")
    for _ in range(2):
        assert same_bits(hc.conv2d(x, ready, padding=1, stride=2, accuracy="strict"), wanted)


def test_the_layout_chooses_among_equal_bits_only() -> None:
    for c, k, size, r, stride in ((64, 64, 28, 3, 1), (16, 96, 28, 1, 1), (24, 40, 30, 3, 2), (8, 8, 40, 7, 1)):
        x, w = np.ones((1, c, size, size), np.float32), np.ones((k, c, r, r), np.float32)
        last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        planes = hc.explain(hc.conv2d, x, w, stride=stride).chosen
        pixels = hc.explain(hc.conv2d, last, w, stride=stride, layout="NHWC").chosen
        chains = {"direct", "planes", "depthwise", "implicit"}
        assert planes == pixels or {planes, pixels} <= chains
        assert pixels != "planes"


def test_what_it_refuses() -> None:
    x, w = np.ones((1, 8, 8, 8), np.float32), np.ones((4, 8, 3, 3), np.float32)
    with bad_argument(ValueError, "algorithm", "unsupported"):
        hc.conv2d(x, w, layout="NHWC", algorithm="planes")
    with bad_argument(ValueError, "algorithm", "unsupported"):
        hc.conv2d(x[..., ::2], w, algorithm="planes")


def test_later_calls_with_the_same_shapes_read_other_strides_and_dtypes() -> None:
    """Arguments of plain arrays are checked once; strides, dtypes and values of the next arrays are their own."""
    for seed in range(24):
        x, w, bias, more = drawn(seed)
        wanted = hc.conv2d(x, w, bias, **more)
        apart = np.zeros((*x.shape[:3], 2 * x.shape[3]), np.float32)[..., ::-2]
        apart[...] = x
        for images, filters in (
            (apart, w),
            (np.asfortranarray(x), np.asfortranarray(w)),
            (x.astype(">f4"), w.tolist()),
        ):
            assert same_bits(hc.conv2d(images, filters, bias, **more), wanted), seed
        half = x.astype(np.float16)
        assert same_bits(hc.conv2d(half, w, bias, **more), hc.conv2d(half.astype(np.float32), w, bias, **more)), seed


@pytest.mark.parametrize("isa", isas("plane_f32"))
def test_planes_of_one_channel_have_the_bits_of_the_definition(isa: str) -> None:
    """Several planes of a task, parts of a large one, several filters of a plane, and other types of x."""
    rng = np.random.default_rng(11)
    for n, c, each, h, w, side, stride in (
        (2, 70, 1, 7, 7, 3, 1),
        (1, 9, 1, 14, 13, 5, 2),
        (2, 5, 3, 28, 20, 3, 2),
        (1, 2, 1, 150, 90, 7, 1),
        (1, 2, 70, 9, 33, 5, 1),
        (3, 4, 1, 3, 2, 7, 2),
    ):
        x = rng.standard_normal((n, c, h, w), dtype=np.float32).astype(np.float16)
        filters = rng.standard_normal((c * each, 1, side, side), dtype=np.float32)
        bias = rng.standard_normal(c * each, dtype=np.float32)
        padding = tuple(tuple(int(v) for v in rng.integers(0, side, 2)) for _ in range(2))
        options: dict[str, Any] = {"stride": stride, "padding": padding, "groups": c, "relu": side == 5}
        wanted = convolution.conv2d(x.astype(np.float32), filters, bias, **options)
        gaps = np.zeros((n, c + 1, h + 2, w + 3), np.float16)[:, 1:, 1:-1, 2:-1]
        gaps[...] = x
        for threads in (1, 3):
            with hc.use(isa=isa, threads=threads):
                for image in (x, x.astype(np.float32), x.astype(np.float64), gaps, gaps.astype(np.float32)):
                    assert same_bits(hc.conv2d(image, filters, bias, algorithm="planes", **options), wanted)
                turned = np.ascontiguousarray(filters[..., ::-1, ::-1])[..., ::-1, ::-1]
                assert same_bits(hc.conv2d(x, turned, bias, algorithm="planes", **options), wanted)
