"""Every algorithm of conv2d: the bits of its definition on every ISA, in every layout, band and number of threads."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from common import bad_argument, isas, reals, same_bits

import heterocompute as hc
from heterocompute import _heterocompute as core
from heterocompute.base import runtime
from heterocompute.reference import convolution, loops, product

CHAINS = [name for name, _, error in core.conv_algorithms() if error == 1]
# n, c, h, w, filters, r, s, stride, padding, dilation, groups
CASES = [
    (2, 3, 9, 8, 17, 3, 3, 1, 1, 1, 1),
    (1, 3, 15, 17, 16, 7, 7, 2, 3, 1, 1),
    (3, 16, 3, 5, 33, 3, 3, 1, ((2, 0), (0, 3)), 1, 1),
    (2, 17, 6, 7, 15, 1, 1, 1, 0, 1, 1),
    (1, 64, 5, 5, 3, 5, 5, 3, 4, 2, 1),
    (1, 15, 7, 9, 1, 2, 4, (4, 5), "same", 1, 1),
    (2, 6, 5, 4, 9, 3, 2, 1, 1, (1, 2), 3),
    (1, 16, 6, 6, 16, 3, 3, 2, 1, 1, 16),
    (2, 6, 7, 11, 6, 3, 2, 1, 1, 1, 3),
    (1, 80, 9, 12, 80, 3, 3, (1, 2), ((1, 0), (0, 2)), 1, 20),
    (2, 72, 6, 19, 72, 3, 3, 1, 1, (2, 1), 9),
    (1, 1, 4, 4, 64, 1, 7, 1, (0, 3), 1, 1),
    (2, 4, 2, 2, 5, 3, 3, 1, 2, 1, 1),
    (2, 35, 9, 7, 35, 3, 3, 1, 1, 1, 35),
    (1, 19, 10, 11, 19, 3, 3, 2, (1, 0), 1, 19),
    (1, 24, 6, 7, 51, 3, 3, 1, 1, 1, 3),
    (1, 32, 5, 18, 32, 3, 3, 1, 1, 1, 16),  # integers: some groups are joined
    (2, 18, 4, 5, 30, 3, 2, (1, 2), 1, 1, 6),
    (1, 6, 5, 3, 15, 3, 3, 1, 1, 2, 3),
    (2, 2, 3, 4, 258, 3, 3, 1, 1, 1, 1),  # enough panels that each task packs its own
    (1, 37, 4, 15, 37, 5, 5, 1, 2, 1, 37),  # lines of depthwise outputs
    (1, 17, 5, 9, 17, 2, 7, (1, 2), (0, 3), (2, 1), 17),
    (1, 19, 9, 11, 19, 7, 7, 1, 3, 1, 19),  # blocks of depthwise outputs of integers
    (1, 17, 12, 13, 17, 5, 5, 2, 2, 1, 17),
    (2, 16, 9, 10, 16, 7, 7, 2, 3, 1, 16),
]


def layouts(x: Any) -> list[Any]:
    """Return NCHW views of the same values with memory in NCHW, in NHWC, and with gaps."""
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    gaps = np.zeros((*x.shape[:3], x.shape[3] * 2), x.dtype)[..., ::2]
    gaps[...] = x
    return [x, last, gaps]


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("isa", isas("direct", "depthwise"))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_chains_have_the_bits_of_the_seven_loops(case: Any, isa: str) -> None:
    n, c, h, w, k, r, s, stride, padding, dilation, groups = case
    x, filters, bias = reals((n, c, h, w), 1), reals((k, c // groups, r, s), 2), reals((k,), 3)
    arguments = (bias, stride, padding, dilation, groups)
    for relu in (False, True):
        expected = convolution.conv2d(x, filters, *arguments, relu=relu)
        for algorithm, image in itertools.product(CHAINS, layouts(x)):
            with hc.use(isa=isa):
                if refuses(algorithm, image, filters, *arguments):
                    continue
                found = hc.conv2d(image, filters, *arguments, algorithm=algorithm, relu=relu)
                assert same_bits(found, expected), algorithm
                if algorithm == "planes":  # pixels of the result are adjacent
                    continue
                out = np.empty((n, *expected.shape[2:], k), np.float32)
                last = image.transpose(0, 2, 3, 1)
                hc.conv2d(last, filters, *arguments, algorithm=algorithm, layout="NHWC", out=out, relu=relu)
                assert same_bits(np.ascontiguousarray(out.transpose(0, 3, 1, 2)), expected), algorithm


def refuses(algorithm: str, *arguments: Any) -> bool:
    try:
        hc.conv2d(*arguments, algorithm=algorithm)
    except ValueError as error:
        assert f"algorithm '{algorithm}' refuses this convolution: " in str(error)
        return True
    return False


@pytest.mark.sweep(every=16)
@pytest.mark.parametrize("isa", isas("direct", "depthwise"))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_integers_read_where_they_lie_have_the_bits_of_gathered_ones(case: Any, isa: str) -> None:
    n, c, h, w, k, r, s, stride, padding, dilation, groups = case
    x, filters, bias = reals((n, c, h, w), 1), reals((k, c // groups, r, s), 2), reals((k,), 3)
    arguments = (bias, stride, padding, dilation, groups)
    taken = set()
    for text, activations in itertools.product(("int8", "vsq4-g16-s4", "int5"), ("int8", "vsq4-g16-s4", "int6")):
        q = hc.quantize(filters, text, axis=(2, 3, 1))
        expected = convolution.conv2d(
            x, product.packed(filters, hc.format(text), axis=(2, 3, 1)), *arguments, hc.format(activations), relu=True
        )
        wide = [image.astype(np.float64) for image in layouts(x)[:2]]
        for algorithm, image in itertools.product(("direct", "depthwise"), [*layouts(x), *wide]):
            if refuses(algorithm, image, q, *arguments, activations):
                assert algorithm == "depthwise", (text, activations)
                continue
            taken.add(algorithm)
            for weights, threads in ((q, 1), (hc.prepack(q), 2)):
                with hc.use(isa=isa, threads=threads):
                    found = hc.conv2d(image, weights, *arguments, activations, algorithm=algorithm, relu=True)
                    assert same_bits(found, expected), (algorithm, text, activations)
                    out = np.empty((n, *expected.shape[2:], k), np.float32)
                    hc.conv2d(image.transpose(0, 2, 3, 1), weights, *arguments, activations, algorithm=algorithm,
                              layout="NHWC", out=out, relu=True)  # fmt: skip
                    assert same_bits(np.ascontiguousarray(out.transpose(0, 3, 1, 2)), expected)
    assert taken == ({"direct", "depthwise"} if groups == c == k else {"direct"})


@pytest.mark.sweep(every=0)
def test_bands_of_codes_and_threads_change_nothing() -> None:
    """Images with more codes than a band, several images per band, and each with its own scale."""
    for shape, groups in (((1, 24, 230, 97), 1), ((2, 24, 230, 97), 24), ((9, 24, 40, 33), 2)):
        x = reals(shape, 1) * np.arange(1, 1 + shape[0], dtype=np.float32)[:, None, None, None]
        filters = reals((24, 24 // groups, 3, 3), 2)
        q = hc.quantize(filters, "int8", axis=(2, 3, 1))
        arguments = (None, (2, 1), (5, 0), (1, 2), groups)
        for activations in ("int8", "vsq4-g16-s4"):
            expected = hc.conv2d(x, q, *arguments, activations, algorithm="implicit")
            for algorithm, threads, image in itertools.product(("direct", "depthwise"), (1, 2), layouts(x)):
                if not refuses(algorithm, image, q, *arguments, activations):
                    with hc.use(threads=threads):
                        found = hc.conv2d(image, q, *arguments, activations, algorithm=algorithm)
                    assert same_bits(found, expected), (algorithm, shape, activations)


ROUNDED = [
    ("int4-g32", "int8"),  # codes with one scale per tap
    ("int4-g32-asym", "int8"),
    ("mxfp4", "int4"),
    ("nvfp4", "int8"),
    ("nf4-g64", "int8"),  # values
    ("fp8_e4m3fn", "int8"),
    ("cb4", "int8"),
    ("int8", "mxfp8_e4m3"),
    ("int4-g32", "fp8_e4m3fn"),
    (None, "int8"),
    ("vsq8-g16-s8", "int8"),  # 16-bit filters, which are not rounded to floats
    ("int16", "int7"),
    ("int8-asym", "int8"),
]
# n, c, h, w, r, stride, padding, dilation, groups
DEPTHWISE = [
    (2, 35, 9, 7, 3, 1, 1, 1, 35),
    (1, 19, 10, 11, 3, 2, (1, 0), 1, 19),
    (3, 16, 6, 9, 5, (1, 2), 2, 1, 16),
    (1, 33, 7, 7, 2, 1, ((1, 0), (0, 3)), 2, 33),
    (2, 12, 5, 6, 3, 1, 1, 1, 3),
    (2, 65, 9, 10, 7, 1, ((3, 2), (2, 0)), 1, 65),  # taps of codes need more room than lines
]


@pytest.mark.sweep(every=9)
@pytest.mark.parametrize("isa", isas("depthwise"))
@pytest.mark.parametrize("case", DEPTHWISE, ids=str)
def test_rounded_images_have_the_bits_of_the_definition(case: Any, isa: str) -> None:
    n, c, h, w, side, stride, padding, dilation, groups = case
    x, filters, bias = reals((n, c, h, w), 1), reals((c, c // groups, side, side), 2), reals((c,), 3)
    x *= np.arange(n, dtype=np.float32)[:, None, None, None]  # an image of zeros, and others of scales of their own
    arguments = (bias, stride, padding, dilation, groups)
    for text, activations in ROUNDED:
        weights = filters if text is None else hc.quantize(filters, text, axis=(2, 3, 1))
        plain = filters if text is None else product.packed(filters, hc.format(text), axis=(2, 3, 1))
        expected = convolution.conv2d(x, plain, *arguments, hc.format(activations), relu=True)
        assert same_bits(hc.conv2d(x, weights, *arguments, activations, algorithm="implicit", relu=True), expected)
        images = [*layouts(x), x.astype(np.float64)]
        for threads, image in itertools.product((1, 2), images):
            if refuses("depthwise", image, weights, *arguments, activations):
                assert c != groups
                continue
            with hc.use(isa=isa, threads=threads):
                for algorithm in ("depthwise", "auto"):
                    found = hc.conv2d(image, weights, *arguments, activations, algorithm=algorithm, relu=True)
                    assert same_bits(found, expected), (algorithm, text, activations)
                found = hc.conv2d(
                    image.transpose(0, 2, 3, 1), weights, *arguments, activations, layout="NHWC", relu=True
                )
                assert same_bits(np.ascontiguousarray(found.transpose(0, 3, 1, 2)), expected)


def test_depthwise_sums_of_16_bits_fit_32() -> None:
    x, filters = np.full((1, 16, 17, 17), -1, np.float32), np.full((16, 1, 16, 16), 1, np.float32)
    found, wanted = (
        hc.conv2d(x, hc.quantize(filters, "int16", axis=(2, 3, 1)), groups=16, activations="int8", algorithm=name)
        for name in ("depthwise", "implicit")
    )
    assert same_bits(found, wanted)
    wide = hc.quantize(np.ones((16, 1, 17, 16), np.float32), "int16", axis=(2, 3, 1))
    with pytest.raises(ValueError, match="windows of more than 256 values of 16 bits"):
        hc.conv2d(x, wide, groups=16, activations="int8", algorithm="depthwise")


def test_auto_rounds_images_of_depthwise_filters() -> None:
    x, filters = reals((1, 32, 14, 14), 1), reals((32, 1, 3, 3), 2)
    for text in ("int4-g32", "mxfp4", "nf4-g64", "nvfp4", "fp8_e4m3fn", "cb4", "vsq8-g16-s8", None):
        weights = filters if text is None else hc.quantize(filters, text, axis=(2, 3, 1))
        found = hc.explain(hc.conv2d, x, weights, padding=1, groups=32, activations="int8")
        assert found.chosen in ("depthwise", "planes"), text
    # several pieces of 8 MiB, and the largest magnitude of float32
    x = np.full((3, 8, 512, 300), 0.5, np.float32) * reals((3, 1, 512, 300), 3)
    x[1, 0, 0, 0] = np.finfo(np.float32).max
    for text in ("nf4-g64", "int4-g32"):
        q = hc.quantize(filters[:8], text, axis=(2, 3, 1))
        one, *others = (
            hc.conv2d(x, q, groups=8, activations="int8", algorithm=name)
            for name in ("implicit", "depthwise", "planes")
        )
        assert all(same_bits(one, other) for other in others)


@pytest.mark.parametrize(
    "activations", ["int8", "int6", "vsq4-g16-s4", "int16", "int8-g4", "nf4-g64", "mxfp4", "fp8_e4m3fn", "int8+2:4"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_group_of_quantized_channels_is_a_convolution_of_its_own(activations: str, dtype: type) -> None:
    """Every group contains the largest magnitude of its image, so it has the same scale as alone."""
    groups, depth, each = 3, 5, 7
    x, filters = reals((2, groups * depth, 6, 5), 1).astype(dtype), reals((groups * each, depth, 3, 3), 2)
    x[:, ::depth, 2, 2] = 99
    for fmt in ("int8", "vsq4-g16-s4", "int4-g32-f16", "nf4-g64", None):
        w = filters if fmt is None else hc.quantize(filters, fmt, axis=(2, 3, 1))
        for image in layouts(x):
            where: Any = {"padding": 1, "activations": activations}
            wanted = [
                hc.conv2d(
                    image[:, g * depth : (g + 1) * depth], w[g * each : (g + 1) * each], algorithm="implicit", **where
                )
                for g in range(groups)
            ]
            for algorithm in ("direct", "implicit", "winograd2", "winograd4"):
                with suppress(ValueError):
                    found = hc.conv2d(image, w, groups=groups, algorithm=algorithm, **where)
                    assert same_bits(found, np.concatenate(wanted, 1)), (fmt, algorithm)


def test_auto_takes_the_least_time_that_it_predicts() -> None:
    shapes = ((64, 14, 64, 1), (16, 28, 16, 1), (3, 20, 8, 1), (256, 7, 512, 1), (24, 10, 24, 24))
    for isa in isas("direct"):
        for c, size, k, groups in shapes:
            x, filters = reals((1, c, size, size), 1), reals((k, c // groups, 3, 3), 2)
            q = hc.quantize(filters, "int8", axis=(2, 3, 1))
            for w, activations in ((filters, None), (q, "int8"), (hc.prepack(q), "int8"), (filters, "nf4-g64")):
                with hc.use(isa=isa):
                    found = hc.explain(hc.conv2d, x, w, padding=1, groups=groups, activations=activations)
                times = {one.path: one.predicted_ms for one in found.candidates if one.predicted_ms is not None}
                assert min(times, key=times.__getitem__) == found.chosen


def test_integers_that_are_not_read_where_they_lie() -> None:
    """Auto selects another algorithm, and an algorithm that is forced by name reports the reason."""
    x, filters = reals((1, 4, 6, 5), 1), reals((4, 4, 3, 3), 2)
    q = hc.quantize(filters, "int8", axis=(2, 3, 1))
    depthwise = hc.quantize(reals((4, 1, 3, 3), 2), "int8", axis=(2, 3, 1))
    for weights, where, why in (
        (q, {"activations": "int16"}, "x has no integers of 8 bits, or filters none of 16, with one scale a row"),
        (q, {"activations": "int8-g4"}, "filters and x have no integers of 8 bits"),
        (q, {"activations": "int8", "padding": 10**8, "stride": 10**8}, "a row of windows takes more than 16 MiB"),
        (hc.quantize(filters, "int4-g2-f16", axis=(2, 3, 1)), {"activations": "int8"}, "filters and x have no"),
        (hc.quantize(filters, "int8+2:4", axis=(2, 3, 1)), {"activations": "int8"}, "zeros of a pattern are skipped"),
        (q, {"activations": "int8", "algorithm": "depthwise"}, "it is for groups of one channel and one filter"),
        (depthwise, {"activations": "vsq4-g16-s4", "algorithm": "depthwise", "groups": 4}, "x has a scale for every"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"refuses this convolution: {why}"):
            hc.conv2d(x, weights, **{"algorithm": "direct", **where})
        where.pop("algorithm", None)
        assert same_bits(hc.conv2d(x, weights, **where), hc.conv2d(x, weights, algorithm="implicit", **where))
    x[0, 3, 5, 4] = np.nan
    for algorithm in ("direct", "implicit"):
        with bad_argument(ValueError, "x", "value", r"at index \(0, 3, 5, 4\)"):
            hc.conv2d(x, q, activations="int8", algorithm=algorithm)


def test_the_definition_is_seven_loops() -> None:
    x, filters = reals((1, 4, 5, 6), 1), reals((4, 2, 3, 2), 2)
    expected = loops.conv2d(x, filters, (2, 1), (1, 0), (0, 1), (1, 2), 2)
    found = convolution.conv2d(x, filters, None, (2, 1), ((1, 0), (0, 1)), (1, 2), 2)
    assert same_bits(found, expected)


def test_padding_is_multiplied_as_any_zero() -> None:
    """An infinite weight over padding gives NaN in the definition, and in every chain."""
    x, filters = reals((1, 3, 4, 5), 1), reals((3, 3, 3, 3), 2)
    filters[0, 0, 0, 0], filters[1, 2, 2, 1] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = loops.conv2d(x, filters, (1, 1), (1, 1), (1, 1))
        assert np.isnan(expected[0, 0, 0]).all() and not np.isnan(expected[0, 0, 1:, 1:]).any()
        assert np.array_equal(convolution.conv2d(x, filters, padding=1), expected, equal_nan=True)
    for algorithm in ("direct", "implicit"):
        found = hc.conv2d(x, filters, padding=1, algorithm=algorithm)
        assert np.array_equal(found, expected, equal_nan=True)


@pytest.mark.parametrize("shapes", [((0, 2, 4, 4), (3, 2, 3, 3)), ((1, 2, 4, 4), (0, 2, 3, 3)),
                                    ((1, 2, 2, 4), (3, 2, 3, 3)), ((1, 2, 1, 1), (3, 2, 5, 5)),
                                    ((1, 0, 4, 4), (3, 0, 3, 3)), ((1, 2, 4, 4), (3, 2, 0, 3))], ids=str)  # fmt: skip
def test_the_definition_has_empty_answers_and_sums_of_nothing(shapes: Any) -> None:
    x, filters, bias = reals(shapes[0], 1), reals(shapes[1], 2), reals(shapes[1][:1], 3)
    for layout in ("NCHW", "NHWC"):
        image = x if layout == "NCHW" else x.transpose(0, 2, 3, 1)
        assert same_bits(
            convolution.conv2d(image, filters, bias, layout=layout), hc.conv2d(image, filters, bias, layout=layout)
        )


def test_bands_and_threads_change_nothing() -> None:
    """Images with more bytes than a thread copies at once, one at a time and several."""
    filters = reals((5, 24, 3, 3), 2)
    for shape in ((1, 24, 130, 97), (9, 24, 40, 33)):
        x = reals(shape, 1)
        with hc.use(threads=1, isa="scalar"):
            expected = hc.conv2d(x, filters, padding=1, stride=(1, 2), algorithm="implicit")
        for threads, image in itertools.product((1, 2), layouts(x)):
            with hc.use(threads=threads):
                found = hc.conv2d(image, filters, padding=1, stride=(1, 2), algorithm="direct")
            assert same_bits(found, expected)


def test_other_float_types_and_packed_filters() -> None:
    x, filters = reals((2, 6, 7, 5), 1), reals((9, 6, 3, 3), 2)
    for dtype in (np.float64, np.float16):
        wanted = hc.conv2d(x.astype(dtype), filters.astype(dtype), algorithm="implicit")
        assert same_bits(hc.conv2d(x.astype(dtype), filters.astype(dtype), algorithm="direct"), wanted)
    for fmt in ("vsq4-g16-s4", "nf4-g64", "mxfp4", "int8+2:4"):
        q = hc.quantize(filters, fmt, axis=(2, 3, 1))
        assert same_bits(hc.conv2d(x, q, algorithm="direct"), hc.conv2d(x, q, algorithm="implicit"))


def explained(x: Any, w: Any, stride: int = 1, padding: int = 0) -> tuple[int, Any]:
    size = [(x.shape[i] + 2 * padding - w.shape[i]) // stride + 1 for i in (2, 3)]
    out = np.empty((x.shape[0], w.shape[0], *size), np.float32)
    pair = ((stride, stride), (padding, padding), (1, 1))
    return core.explain_conv2d(runtime.run(), x, w, None, *pair, 1, None, out)[:2]


def test_direct_takes_less_than_a_mebibyte_a_thread_and_its_filters() -> None:
    names = [name for name, _, _ in core.conv_algorithms()]
    for c, size, k in ((64, 224, 64), (512, 7, 512), (3, 1024, 64)):
        x, filters = np.zeros((1, c, size, size), np.float32), np.zeros((k, c, 3, 3), np.float32)
        for image in (x, np.broadcast_to(x, (64, *x.shape[1:]))):
            chosen, found = explained(image, filters, 1, 1)
            assert chosen >= 0
            of_direct = found[names.index("direct")]
            threads = hc.get_num_threads()
            assert of_direct[5] <= (12 << 20) + threads * (1 << 20)


def test_padding_that_windows_step_over_takes_no_memory() -> None:
    """Few channels are copied with their padding, unless padding is most of the row."""
    x, filters, far = reals((1, 3, 2, 2), 1), reals((4, 3, 3, 3), 2), 10**7
    out = np.empty((1, 4, 2, 2), np.float32)
    pairs = ((far, far), (far, far), (1, 1))
    found = core.explain_conv2d(runtime.run(), x, filters, None, *pairs, 1, None, out)[1]
    assert {one[0]: one[5] for one in found}["direct"] < (1 << 20) * (1 + hc.get_num_threads())
    wanted = hc.conv2d(x, filters, stride=far, padding=far, algorithm="implicit")
    assert wanted[..., 1, 1].any()
    assert same_bits(hc.conv2d(x, filters, stride=far, padding=far, algorithm="direct"), wanted)
    narrow = hc.conv2d(x, filters, stride=60, padding=60, algorithm="direct")  # copied with it
    assert same_bits(narrow[..., 1, 1], wanted[..., 1, 1])


def test_an_image_whose_padding_no_int64_counts_is_read_where_it_lies() -> None:
    """Modulo 2^64 the bytes of its copy would be negative, or 512 for 2^57 + 1 rows."""
    rows = (1 << 54) + 1
    x, filters = np.broadcast_to(np.float32(1), (1, 1, rows, 2)), np.ones((1, 1, 1, 2), np.float32)
    pairs = ((1 << 30, 1 << 30), (0, 63), (1, 1))
    out = np.lib.stride_tricks.as_strided(np.empty(1, np.float32), (1, 1, (rows - 1 >> 30) + 1, 1), (0, 0, 0, 0))
    found = core.explain_conv2d(runtime.run(), x, filters, None, *pairs, 1, None, out)[1]
    assert 0 < {one[0]: one[5] for one in found}["direct"] < (1 << 20) * (1 + hc.get_num_threads())
    assert {one[0]: one[2] for one in found}["direct"] is None


@pytest.mark.parametrize("algorithm", ["auto", *CHAINS])
@pytest.mark.parametrize("shape", [(1, 1 << 57, 1), (1 << 59, 1, 1), (1, 1 << 16, 1 << 15)], ids=str)
def test_filters_whose_panels_no_memory_holds_are_refused(shape: Any, algorithm: str) -> None:
    """A broadcast array needs no memory, but the bytes of its panel exceed int64."""
    x = np.broadcast_to(np.float32(1), (1, *shape))
    with bad_argument(ValueError, "w", "value"):
        hc.conv2d(x, x, algorithm=algorithm)


def test_the_table_names_what_it_takes() -> None:
    x, filters = reals((1, 2, 4, 4)), reals((2, 2, 3, 3))
    with bad_argument(ValueError, "algorithm", "unsupported"):
        hc.conv2d(x, filters, activations="int8", algorithm="im2col")
    chosen, found = explained(np.zeros((0, 2, 4, 4), np.float32), filters)
    assert chosen == -1 and len(found) == len(core.conv_algorithms())
    assert hc.conv2d(np.zeros((0, 2, 4, 4), np.float32), filters, algorithm="direct").shape == (0, 2, 2, 2)


def test_auto_has_channels_in_lanes_where_each_has_a_filter() -> None:
    x, filters = reals((2, 40, 6, 5), 1), reals((40, 1, 3, 3), 2)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    out = np.empty((2, 4, 3, 40), np.float32).transpose(0, 3, 1, 2)
    pair = ((1, 1), (0, 0), (1, 1))
    names = [name for name, _, _ in core.conv_algorithms()]
    for isa in isas("direct"):
        with hc.use(isa=isa):
            assert (
                names[core.explain_conv2d(runtime.run(), last, filters, None, *pair, 40, None, out)[0]] == "depthwise"
            )
    wanted = hc.conv2d(x, filters, groups=40, algorithm="implicit")
    for w in (filters, hc.quantize(filters, "int8", axis=(2, 3, 1))):
        for threads in (1, 2):
            with hc.use(threads=threads):
                found = hc.conv2d(x, w, groups=40, algorithm="depthwise")
                assert same_bits(found, wanted if w is filters else hc.conv2d(x, w, groups=40, algorithm="direct"))
    assert refuses("depthwise", x, reals((40, 5, 3, 3)), None, 1, 0, 1, 8)
    assert refuses("depthwise", x, reals((20, 2, 3, 3)), None, 1, 0, 1, 20)


def test_images_of_wide_rows_are_not_copied() -> None:
    """Rows of 2^18 pixels of 64 channels, all in the same memory, with few outputs."""
    filters = reals((4, 64, 3, 3))
    x = np.lib.stride_tricks.as_strided(reals((1, 64, 3, 4)), (1, 64, 3, 2**18), (0, 48, 16, 0))
    found = hc.conv2d(x, filters, stride=(1, 2**17))
    assert same_bits(found, hc.conv2d(x, filters, stride=(1, 2**17), algorithm="implicit"))
    one = reals((64, 1, 3, 3))
    far = 2**17
    cases = (
        ("direct", filters, 1, far),
        ("fft", filters, 1, far),
        ("depthwise", one, 64, far),
        ("winograd2", filters, 1, 1),
    )
    for name, w, groups, step in cases:
        with bad_argument(ValueError, "algorithm", "unsupported"):
            hc.conv2d(x, w, stride=(1, step), groups=groups, algorithm=name)


@pytest.mark.parametrize("isa", isas("direct_f32"))
def test_filters_of_many_taps_are_packed_in_parts(isa: str) -> None:
    rng = np.random.default_rng(5)
    for channels, filters, side, groups in ((3, 35, 16, 1), (1, 20, 14, 1), (4, 34, 13, 2), (2, 5, 40, 1)):
        x = rng.standard_normal((2, channels, 2 * side, 3 * side), dtype=np.float32)
        w = rng.standard_normal((filters, channels // groups, side, side), dtype=np.float32)
        wanted = hc.conv2d(x, w, stride=side - 2, groups=groups, algorithm="implicit")
        for threads in (1, 3):
            with hc.use(isa=isa, threads=threads):
                assert same_bits(hc.conv2d(x, w, stride=side - 2, groups=groups, algorithm="direct"), wanted), side


@pytest.mark.parametrize("isa", isas("direct_f32", "codes_s8"))
@pytest.mark.parametrize("text", ["log8-8", "mxfp8_e4m3", "nf4-g64", "int4-g32-f16"])
def test_codes_of_lines_have_the_bits_of_packed_codes(text: str, isa: str) -> None:
    """Images in either layout, with gaps between rows and planes, and filters that are summed as floats."""
    rng = np.random.default_rng(6)
    for n, channels, filters, side, height, width, groups in (
        (2, 32, 9, 1, 27, 27, 1),
        (1, 70, 5, 3, 9, 13, 1),
        (3, 64, 8, 3, 7, 40, 2),
    ):
        x = rng.standard_normal((n, channels, height, width), dtype=np.float32)
        w = rng.standard_normal((filters, channels // groups, side, side), dtype=np.float32)
        q = hc.quantize(w, text, axis=(2, 3, 1))
        options = {"padding": side // 2, "groups": groups, "activations": "int8"}
        with hc.use(isa="scalar", threads=1):  # of float64, whose codes are packed
            wanted = hc.conv2d(x.astype(np.float64), q, **options, algorithm="implicit")
        gaps = np.zeros((n, channels, height + 1, width + 3), np.float32)[:, :, 1:, 2:-1]
        gaps[...] = x
        last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        for threads in (1, 3):
            with hc.use(isa=isa, threads=threads):
                for algorithm in ("auto", "implicit") if text == "int4-g32-f16" else ("auto", "implicit", "direct"):
                    assert same_bits(hc.conv2d(x, q, **options, algorithm=algorithm), wanted), algorithm
                    assert same_bits(hc.conv2d(gaps, q, **options, algorithm=algorithm), wanted), algorithm
                    found = hc.conv2d(last, q, **options, algorithm=algorithm, layout="NHWC").transpose(0, 3, 1, 2)
                    assert same_bits(np.ascontiguousarray(found), wanted), algorithm
