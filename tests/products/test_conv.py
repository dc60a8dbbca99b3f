"""conv2d: the definition's bits on every ISA, layouts, paddings, groups, and scipy's result within the bound."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from common import bad_argument, isas, reals, same_bits

import heterocompute as hc
from heterocompute.products.window import as_window
from heterocompute.reference import convolution, loops, product

ALGORITHMS = ("direct", "depthwise", "planes", "implicit", "im2col", "auto")
PATTERNS = ("2:4", "1:4", "int8+2:4", "vsq4-g16-s4+2:4", "nf4-g64+2:4", "mxfp4+1:4")
WEIGHTS = [None, "int8", "int4-g5", "vsq4-g16-s4", "vsq3-g4", "int8-asym", "vsq6-g16-s6", "int4-g32-f16"]
ACTIVATIONS = [None, "int8", "vsq4-g16-s4", "int4-g8", "int16", "vsq8-g16-s8-tensor", "q6_k"]
# n, c, h, w, filters, r, s, stride, padding, dilation, groups
CASES = [
    (2, 6, 5, 7, 4, 3, 3, 1, 1, 1, 1),
    (1, 20, 6, 6, 6, 3, 2, 2, (0, 1), 2, 2),
    (3, 3, 4, 4, 5, 1, 1, 1, 0, 1, 1),
    (2, 4, 9, 8, 8, 3, 3, (2, 1), "same", 1, 4),
    (1, 5, 6, 6, 3, 2, 3, 1, "valid", (1, 2), 1),
    (1, 4, 5, 6, 4, 3, 3, (1, 3), ((0, 2), (3, 1)), 1, 2),
]


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.sweep(every=9)
def test_convolutions_are_those_of_the_definition(weights: str | None, isa: str) -> None:
    with hc.use(isa=isa):
        for seed, (activations, case) in enumerate(itertools.product(ACTIVATIONS, CASES)):
            n, c, h, w, k, r, s, stride, padding, dilation, groups = case
            x, filters, bias = reals((n, c, h, w), seed), reals((k, c // groups, r, s), seed + 1), reals((k,), seed + 2)
            q = filters if weights is None else hc.quantize(filters, weights, axis=(2, 3, 1))
            expected = convolution.conv2d(
                x,
                filters if weights is None else product.packed(filters, hc.format(weights), axis=(2, 3, 1)),
                bias,
                stride,
                padding,
                dilation,
                groups,
                activations=None if activations is None else hc.format(activations),
            )
            found = hc.conv2d(x, q, bias, stride, padding, dilation, groups, activations)
            assert same_bits(found, expected), (activations, case)
            nhwc = x.transpose(0, 2, 3, 1)
            last = hc.conv2d(nhwc, q, bias, stride, padding, dilation, groups, activations, layout="NHWC")
            assert same_bits(np.ascontiguousarray(last.transpose(0, 3, 1, 2)), expected)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize(
    "shape", [(1, 7, 1, 1, 40, 1, 1), (2, 12, 2, 2, 34, 1, 2), (7, 5, 1, 1, 16, 1, 1), (2, 6, 3, 3, 17, 3, 1)], ids=str
)
def test_few_windows_read_filters_where_they_lie(shape: Any, isa: str) -> None:
    n, c, h, w, k, side, groups = shape
    x, bias = reals((n, c, h, w), 1), reals((k,), 2)
    filters = reals((k, side, side, c // groups), 3).transpose(0, 3, 1, 2)  # taps in the order of the sums
    expected = np.maximum(convolution.conv2d(x, filters, bias, groups=groups), np.float32(0))
    with hc.use(isa=isa):
        for x_of, layout, back in ((x, "NCHW", (0, 1, 2, 3)), (x.transpose(0, 2, 3, 1), "NHWC", (0, 3, 1, 2))):
            for given in (filters, np.ascontiguousarray(filters)):
                y = hc.conv2d(x_of, given, bias, groups=groups, relu=True, layout=layout, algorithm="direct")
                assert same_bits(np.ascontiguousarray(y.transpose(back)), expected)


def test_threads_and_strides_change_nothing() -> None:
    x, filters = reals((3, 40, 12, 11), 1), reals((33, 40, 3, 3), 2)
    for weights, activations in itertools.product(["int8", "vsq4-g16-s4", "vsq4-g16"], [None, "int8"]):
        q = hc.quantize(filters, weights, axis=(2, 3, 1))
        with hc.use(threads=1, isa="scalar"):
            expected = hc.conv2d(x, q, padding=1, activations=activations)
        with hc.use(threads=2):
            assert same_bits(hc.conv2d(x, q, padding=1, activations=activations), expected)
            assert same_bits(hc.conv2d(x[:, :, ::-1][:, :, ::-1], q, padding=1, activations=activations), expected)
            out = np.empty((*expected.shape, 2), np.float32)[..., 1]
            assert hc.conv2d(x, q, padding=1, activations=activations, out=out) is out
            assert same_bits(np.ascontiguousarray(out), expected)


def test_many_images_are_quantized_one_by_one() -> None:
    x, q = reals((40, 16, 9, 9), 3), hc.quantize(reals((8, 16, 3, 3), 4), "vsq4-g16-s4", axis=(2, 3, 1))
    whole = hc.conv2d(x, q, activations="int8")
    for i in (0, 17, 39):
        assert same_bits(whole[i : i + 1], hc.conv2d(x[i : i + 1], q, activations="int8"))


def test_empty_sizes() -> None:
    q = hc.quantize(reals((4, 3, 3, 3)), "int8", axis=(2, 3, 1))
    assert hc.conv2d(np.zeros((0, 3, 5, 5), np.float32), q).shape == (0, 4, 3, 3)
    assert hc.conv2d(np.zeros((2, 3, 2, 5), np.float32), q).shape == (2, 4, 0, 3)
    assert (
        hc.conv2d(np.zeros((2, 0, 5, 5), np.float32), np.zeros((4, 0, 3, 3), np.float32)).tolist()
        == np.zeros((2, 4, 3, 3)).tolist()
    )
    for activations in ("int8", "vsq4-g16-s4"):
        assert hc.conv2d(np.zeros((0, 3, 5, 5), np.float32), q, activations=activations).shape == (0, 4, 3, 3)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"x": np.zeros((3, 5, 5), np.float32)}, ValueError, "four"),
        ({"x": np.zeros((1, 4, 5, 5), np.float32)}, ValueError, "channels"),
        ({"x": np.zeros((1, 3, 5, 5), np.int8)}, TypeError, "astype"),
        ({"w": hc.quantize(reals((4, 3, 3, 3)), "int8")}, ValueError, r"along axis \(3,?\), .* name axis=\(2, 3, 1\)"),
        ({"w": hc.prune(reals((4, 3, 3, 3)), "1:2")}, ValueError, r"name axis=\(2, 3, 1\) where it is made"),
        ({"w": reals((4, 3, 3))}, ValueError, "four"),
        ({"stride": 0}, ValueError, "stride is 0, expected 1 or more"),
        ({"stride": (1, -1)}, ValueError, r"stride is \(1, -1\), expected 1 or more"),
        ({"stride": (1, 2, 3)}, TypeError, "stride"),
        ({"stride": 1.5}, TypeError, "stride"),
        ({"padding": -1}, ValueError, "padding is -1, expected 0 or more"),
        ({"padding": ((0, 0), (0, -2))}, ValueError, "padding is .*-2.*, expected 0 or more"),
        ({"padding": (1, 2, 3)}, TypeError, r"padding is \(1, 2, 3\), expected .* two pairs"),
        ({"padding": ((0, 1, 2), 1)}, TypeError, "padding is .*, expected .* two pairs"),
        ({"padding": "full"}, ValueError, "padding"),
        ({"padding": 2**30}, ValueError, "conv2d: a result of shape .* overflows the size of an array"),
        ({"dilation": 2**40}, ValueError, "dilation"),
        ({"dilation": 6}, ValueError, "dilation 6 is larger than the 5 rows of x: no two taps"),
        (
            {"dilation": (1, 8), "padding": 1},
            ValueError,
            "dilation 8 is larger than the 5 columns of x with 2 of padding",
        ),
        ({"dilation": 0}, ValueError, "dilation is 0, expected 1 or more"),
        ({"relu": 1}, TypeError, "relu is 1, expected a bool"),
        ({"groups": "2"}, TypeError, "groups is '2', expected an int"),
        ({"groups": 2}, ValueError, "groups is 2, expected a divisor of the 3 channels"),
        ({"groups": 0}, ValueError, "groups"),
        ({"bias": np.zeros(3, np.float32)}, ValueError, "bias"),
        ({"algorithm": "fft", "dilation": 40, "padding": 90}, ValueError, "fft.* more than 64 pixels"),
        (
            {"algorithm": "winograd4", "stride": (2, 1)},
            ValueError,
            r"winograd4 is for .* 3 x 3.* with stride 1, .* stride 2, .*\(2, 1\)",
        ),
        ({"algorithm": "winograd6", "w": reals((4, 3, 5, 5))}, ValueError, "winograd6 is for .* 3 x 3.* w has 5 x 5"),
        ({"algorithm": "magic"}, ValueError, "one of direct, depthwise, planes, implicit"),
        ({"layout": "CHWN"}, ValueError, "layout"),
        ({"activations": "int1"}, ValueError, "int1"),
        ({"activations": "50%"}, ValueError, "'50%' is not a format; a share .* is a pattern of prune"),
        ({"out": np.zeros((1, 4, 3, 3))}, TypeError, "float32"),
        ({"out": np.zeros((1, 4, 9, 3), np.float32)}, ValueError, "shape"),
        ({"x": np.full((1, 3, 5, 5), np.nan, np.float32), "activations": "int8"}, ValueError, "nan"),
    ],
    ids=str,
)
def test_bad_arguments_are_named(change, kind, words) -> None:
    arguments = {"x": np.zeros((1, 3, 5, 5), np.float32), "w": hc.quantize(reals((4, 3, 3, 3)), "int8", axis=(2, 3, 1))}
    with pytest.raises(kind, match=words):
        hc.conv2d(**{**arguments, **change})


def test_stored_windows_are_those_that_are_gathered() -> None:
    """Blocks of several images, blocks of parts of one image, and two threads."""
    for shape, groups in (((70, 6, 20, 19), 1), ((2, 64, 90, 70), 2)):
        x, w = reals(shape, 1), reals((4, shape[1] // groups, 3, 3), 2)
        wanted = hc.conv2d(x, w, padding=1, groups=groups, algorithm="implicit")
        for threads in (1, 2):
            with hc.use(threads=threads):
                assert same_bits(hc.conv2d(x, w, padding=1, groups=groups, algorithm="im2col"), wanted)


# c, k, h, w, r, s, stride, padding, dilation, groups: filters of 1 to 7, images smaller than the filter or without a
# window, strides over more than the filter, each channel a group of its own.
LOOPS = [
    (1, 1, 3, 4, 1, 1, 1, 0, 1, 1),
    (3, 15, 3, 2, 2, 3, 1, (1, 1), 1, 1),
    (16, 1, 2, 3, 3, 1, 1, 1, 1, 1),
    (3, 2, 5, 4, 1, 2, 3, 0, 1, 1),
    (17, 17, 3, 3, 3, 3, 2, "same", 1, 17),
    (4, 6, 4, 5, 5, 4, 1, ((3, 1), (0, 2)), 1, 2),
    (1, 2, 3, 3, 7, 7, 1, 3, 1, 1),
    (2, 3, 9, 8, 3, 2, (2, 1), ((0, 3), (1, 0)), (3, 4), 1),
    (1, 1, 2, 5, 3, 3, 1, 0, 1, 1),
]


@pytest.mark.parametrize("case", LOOPS, ids=str)
def test_the_seven_loops_say_the_same(case) -> None:
    c, k, h, w, r, s, stride, padding, dilation, groups = case
    x, filters = reals((2, c, h, w), 1), reals((k, c // groups, r, s), 2)
    window = as_window("test", (h, w), (r, s), stride, padding, dilation, groups, c)
    where = (window.stride, window.before, window.after, window.dilation, groups)
    expected = loops.conv2d(x, filters, *where)
    found = hc.conv2d(x, filters, None, stride, padding, dilation, groups)
    assert same_bits(found, expected)
    # and neither is far from the sum in float64: k terms, each fma rounds once
    exact, size = (loops.conv2d(f(x), f(filters), *where) for f in (np.float64, lambda v: np.abs(v).astype(np.float64)))
    terms = filters[0].size
    assert (np.abs(found - exact) <= (terms + 1) * 2.0**-24 * size * (1 + 1e-9)).all()


@pytest.mark.parametrize("isa", isas("depthwise3_f32"))
@pytest.mark.parametrize("stride", [1, 2])
def test_blocks_of_depthwise_outputs_add_the_bias_and_apply_the_relu(stride: int, isa: str) -> None:
    w, given = reals((37, 1, 3, 3), 2), reals((37,), 3)
    for layout, bias, relu in itertools.product(("NCHW", "NHWC"), (None, given), (False, True)):
        x = reals((2, 37, 7, 10) if layout == "NCHW" else (2, 7, 10, 37), 1)
        wanted = convolution.conv2d(x, w, bias, stride=stride, padding=1, groups=37, layout=layout, relu=relu)
        with hc.use(isa=isa):
            found = hc.conv2d(x, w, bias, stride, 1, 1, 37, layout=layout, relu=relu, algorithm="depthwise")
        assert same_bits(found, wanted)


def test_all_float16_values_are_read_exactly() -> None:
    """A vector loop converts adjacent halves: subnormals, infinities and NaN included."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(1, 1, 256, 256)
    for algorithm in ("direct", "implicit"):
        found = hc.conv2d(halves, np.ones((1, 1, 1, 1), np.float32), algorithm=algorithm)
        with np.errstate(invalid="ignore"):  # signalling NaN
            wanted = halves.astype(np.float32) + np.float32(0)
        assert np.array_equal(found, wanted, equal_nan=True)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_relu_is_the_last_step_and_leaves_no_negative_zero(layout: str) -> None:
    x, w, bias = reals((2, 3, 6, 7), 1), reals((4, 3, 3, 3), 2), np.float32([0.5, -0.0, -1, np.nan])
    w[1] = -0.0  # the sums of this filter are zeros, some of them -0
    x = x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    expected = convolution.conv2d(x, w, bias, layout=layout, relu=True)
    out = np.empty((*expected.shape, 2), np.float32)[..., 0]
    assert hc.conv2d(x, w, bias, layout=layout, relu=True, out=out) is out
    assert same_bits(np.ascontiguousarray(out), np.ascontiguousarray(expected))
    kept = np.moveaxis(expected, 1 if layout == "NCHW" else 3, 0)
    assert np.isnan(kept[3]).all() and not np.signbit(kept[:3]).any() and 0 < (kept[0] > 0).mean() < 1


def test_a_large_answer_begins_at_a_line_of_the_cache() -> None:
    x, filters = reals((1, 2, 130, 140), 1), reals((16, 2, 1, 1), 2)
    for layout, image in (("NCHW", x), ("NHWC", np.ascontiguousarray(x.transpose(0, 2, 3, 1)))):
        kept = [hc.conv2d(image, filters, layout=layout) for _ in range(5)]
        assert all(y.ctypes.data % 64 == 0 and y.flags.c_contiguous and y.flags.writeable for y in kept)


def equal(a: Any, b: Any) -> bool:
    """Tell whether arrays have the same bits; all NaN are equal."""
    return bool(((a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))).all())


def answers(x: Any, q: Any, **more: Any) -> dict[str, Any]:
    found = {}
    for name in ALGORITHMS:
        try:
            found[name] = hc.conv2d(x, q, algorithm=name, **more)
        except ValueError as error:
            assert "refuses this convolution: " in str(error)
    return found


@pytest.mark.parametrize("text", PATTERNS)
@pytest.mark.parametrize("shape", [(2, 16, 40, 1, 3, 1), (1, 8, 24, 3, 2, 2), (2, 32, 2, 2, 2, 2), (1, 4, 8, 2, 1, 1)])
def test_zeros_that_a_pattern_leaves_out_are_skipped_by_every_algorithm(text: str, shape: Any) -> None:
    n, run, filters, groups, side, stride = shape
    w = reals((filters, run, side, side), 1)
    q = hc.quantize(w, text, axis=(2, 3, 1)) if "+" in text else hc.prune(w, text, axis=(2, 3, 1))
    more = {"stride": stride, "padding": 1, "groups": groups}
    plain = reals((n, run * groups, 6, 7), 2)
    for kind in ("plain", "not finite", "tiny"):
        x = plain.copy()
        if kind == "not finite":
            x[0, ::5, 2, 3], x[0, 1, 0, 0], x[-1, -1, 5, 6] = np.nan, np.inf, -np.inf
        if kind == "tiny":
            x *= np.float32(1e-42)
        for image in (x, np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)):
            found = answers(image, q, **more)
            assert all(equal(one, found["implicit"]) for one in found.values()), kind
            assert ("direct" in found) == (kind == "plain") or kind == "tiny"
    one = np.zeros((1, 4, 1, 1), np.float32)
    one[0, :, 0, 0] = 1, np.nan, 2, np.inf
    kept = hc.prune(np.float32([[[[3]], [[0]], [[5]], [[0]]]]), "2:4", axis=(2, 3, 1))
    assert hc.conv2d(one, kept).item() == 13
    assert hc.explain(hc.conv2d, one, kept).chosen in ("implicit", "im2col")


def test_the_first_value_that_is_refused_is_the_first_of_x_as_it_was_given() -> None:
    x = reals((2, 4, 5, 6), 3)
    x[1, 1, 2, 3], x[1, 2, 0, 1], x[1, 3, 0, 0] = np.nan, np.inf, -np.inf
    names = itertools.product((1, 2, 4), ("direct", "depthwise", "implicit", "winograd2", "auto"), (False, True))
    for groups, algorithm, gaps in names:
        q = hc.quantize(reals((4, 4 // groups, 3, 3), 4), "int8", axis=(2, 3, 1))
        for layout, value, index in (
            ("NCHW", "nan", r"\(1, 1, 2, 3\)"),
            ("NHWC", "-inf", r"\(1, 0, 0, 3\)"),
        ):
            image = x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))
            image = np.repeat(image, 2, axis=3)[..., ::2] if gaps else image
            words = f"conv2d: x has {value} at index {index}"
            words += "" if groups == 4 or algorithm != "depthwise" else "|refuses this convolution: "
            with pytest.raises(ValueError, match=words):
                hc.conv2d(image, q, groups=groups, activations="int8", algorithm=algorithm, layout=layout)
    wide = reals((1, 2, 2, 3), 5).astype(np.float64)
    wide[0, 0, 1, 1], wide[0, 1, 0, 0] = 1e39, -1e40
    w = np.ones((1, 2, 1, 1), np.float32)
    for layout, index in (("NCHW", r"1e\+39 at index \(0, 0, 1, 1\)"), ("NHWC", r"-1e\+40 at index \(0, 0, 0, 1\)")):
        image = wide if layout == "NCHW" else wide.transpose(0, 2, 3, 1)
        with pytest.raises(ValueError, match=f"conv2d: x has {index}, beyond float32's largest"):
            hc.conv2d(image, w, activations="int8", layout=layout)
    x[1, 1, 2, 3] = 1
    x[1, 3, 3, 3] = np.nan
    with bad_argument(ValueError, "x", "value", r"at index \(1, 2, 0, 1\)"):
        hc.conv2d(x, np.ones((1, 4, 1, 1), np.float32), activations="int8")


@pytest.mark.parametrize("activations", [None, "int8", "nf4-g64"])
def test_no_images_have_no_answers(activations: Any) -> None:
    for groups in (1, 4):
        x, w = np.zeros((0, 4, 6, 6), np.float32), np.ones((8, 4 // groups, 3, 3), np.float32)
        for weights in (w, hc.quantize(w, "int8", axis=(2, 3, 1)), hc.quantize(w, "nf4-g64", axis=(2, 3, 1))):
            assert hc.conv2d(x, weights, padding=1, groups=groups, activations=activations).shape == (0, 8, 6, 6)
        last = np.zeros((0, 6, 6, 4), np.float32)
        assert hc.conv2d(last, w, groups=groups, activations=activations, layout="NHWC").shape == (0, 4, 4, 8)
        for emulate in ("int32", "fp32"):
            q = hc.quantize(w, "int8", axis=(2, 3, 1)) if emulate == "int32" else w
            kind = "int8" if emulate == "int32" else None
            found = hc.emulate.conv2d(x, q, np.ones(8, np.float32), 1, 1, kind, emulate, groups=groups)
            assert found.shape == (0, 8, 6, 6)
    net = hc.zoo.digits()
    assert net.forward(net.weights, net.test_x[:0], activations).shape == (0, 10)


@pytest.mark.parametrize("fmt", PATTERNS)
def test_short_runs_of_a_pattern_are_expanded_together(fmt: str) -> None:
    """The taps of filters of few channels are runs of a pattern; values of float64 are expanded in another way."""
    rng = np.random.default_rng(5)
    for shape in ((130, 1, 3, 3), (40, 1, 7, 7), (7, 3, 5, 5), (3, 63, 4, 5), (2, 1, 40, 40)):
        q = hc.quantize(rng.standard_normal(shape, dtype=np.float32), fmt, axis=(2, 3, 1))
        assert same_bits(q.dequantize(), q.dequantize(np.float64).astype(np.float32)), shape
        x = rng.standard_normal((1, shape[0], 9, 9), dtype=np.float32)
        if shape[1] == 1 and shape[2] < 9:
            found = hc.conv2d(x, q, groups=shape[0])
            assert same_bits(found, hc.conv2d(x, q.dequantize(), groups=shape[0], accuracy="strict")), shape


def test_every_float16_is_read_as_the_float32_of_equal_value() -> None:
    half, one = np.arange(1 << 16, dtype=np.uint16).view(np.float16), np.ones((256, 1, 1, 1), np.float32)
    odd = np.empty(2 * half.size + 1, np.uint8)[1:].view(np.float16)  # not at a multiple of two bytes
    odd[:] = half
    wanted = np.where(np.isnan(half), np.float32(np.nan), half.astype(np.float32)).reshape(1, 16, 16, 256) + 0
    for values in (half, odd):
        found = hc.conv2d(values.reshape(1, 16, 16, 256), one, groups=256, layout="NHWC", algorithm="depthwise")
        assert same_bits(np.where(np.isnan(found), np.float32(np.nan), found), wanted)
