"""The matmuls of the NumPy definition equal exact rationals that are rounded by hand after each operation."""

from fractions import Fraction

import numpy as np
import pytest

from heterocompute import reference
from heterocompute.formats import Format, format
from heterocompute.reference import convolution, product
from heterocompute.reference.arithmetic import fma

EXAMPLES = [text for family in Format.families() for text in family.examples]
ROW_SCALED = [
    "int8",
    "int3-asym",
    "int4-asym-f16",
    "int16",
    "int24",
    "vsq4-g16-s4",
    "vsq8u-g5-s10",
    "vsq4-g16-s4-tensor",
]
GROUPED = ["int4-g16", "int3-g5-asym-f16", "vsq4-g16", "vsq3-g5", "vsq4u-g16"]


def round_to_float32(value):
    """Round an exact rational to float32, to nearest, ties to even."""
    if value == 0:
        return np.float32(0)
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    exponent -= abs(value) < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    rounded = round(value / unit) * unit
    if abs(rounded) >= 2**128:
        return np.float32(np.inf if rounded > 0 else -np.inf)
    return np.float32(float(rounded))


def exact_fma(x, y, z):
    return round_to_float32(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))


def random_float32(rng, n):
    """Return random finite float32 with uniformly distributed exponents."""
    bits = rng.integers(0, 2**32, 2 * n, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return bits[np.isfinite(bits)][:n]


def test_rounding_by_hand_is_that_of_float():
    for x in random_float32(np.random.default_rng(0), 2000).astype(np.float64) * (1 + 2.0**-24):
        with np.errstate(over="ignore"):
            assert round_to_float32(Fraction(x)) == np.float32(x)


def test_fma_rounds_once_for_any_float32():
    rng = np.random.default_rng(1)
    x, y, z = (random_float32(rng, 5000) for _ in range(3))
    # Addends near the product, where rounding twice goes wrong.
    with np.errstate(over="ignore", under="ignore"):
        shift = np.float32(2.0) ** rng.integers(-30, 30, 5000).astype(np.float32)
        near = (x.astype(np.float64) * y).astype(np.float32) * shift
    near = np.where(np.isfinite(near), near, z)
    for addend in (z, near, -near):
        found = fma(x, y, addend)
        assert found.dtype == np.float32
        expected = np.array([exact_fma(*three) for three in zip(x, y, addend, strict=True)])
        assert np.array_equal(found, expected)


def test_fma_at_midpoints_between_two_float32():
    one = np.float32(1)
    tie, nudge = np.float32(2.0**-24), np.float32(2.0**-60)
    # 1 + 2^-24 is a midpoint; 2^-60 more or less decides, though float64 cannot hold it beside 1.
    x = np.float32([2.0**-12 * (1 + 2.0**-23), 2.0**-12 * (1 - 2.0**-24), 2.0**-12, 2.0**-12])
    y = np.float32([2.0**-12, 2.0**-12, 2.0**-12, -(2.0**-13)])
    assert fma(x, y, one).tolist() == [1 + 2.0**-23, 1, 1, 1]
    assert fma(x, y, np.float32(1 + 2.0**-23)).tolist()[2] == 1 + 2.0**-22
    assert fma(nudge, nudge, one) == 1 and fma(tie, one, one) == 1
    assert fma(np.float32(2.0**-100), np.float32(2.0**-49), np.float32(0)) == 2.0**-149
    assert fma(np.float32(2.0**-100), np.float32(2.0**-50), np.float32(0)) == 0


def test_fma_of_special_values():
    largest, infinity = np.finfo(np.float32).max, np.float32(np.inf)
    assert fma(largest, largest, -largest) == infinity
    assert fma(infinity, np.float32(2), largest) == infinity
    assert np.isnan(fma(infinity, np.float32(0), np.float32(1)))
    assert np.isnan(fma(infinity, np.float32(1), -infinity))
    zero = fma(np.float32(-1), np.float32(0), np.float32(0))
    assert zero == 0 and not np.signbit(zero)
    assert np.signbit(fma(np.float32(-1), np.float32(0), np.float32(-0.0)))


# Two quantized operands.


def operands(seed, a_text, b_text, m=3, k=43, n=4):
    rng = np.random.default_rng(seed)
    a = (rng.standard_normal((m, k)) * 2.0 ** rng.integers(-5, 6, (m, 1))).astype(np.float32)
    b = (rng.standard_normal((n, k)) * 2.0 ** rng.integers(-5, 6, (n, 1))).astype(np.float32)
    return product.packed(a, format(a_text)), product.packed(b, format(b_text))


def plain_columns(q):
    """Return codes minus zero points, group scales and group numbers of every column, as lists of Python numbers."""
    factors = reference.terms(q.components, q.format, q.shape, q.axis)
    group = factors.codes.shape[2]
    number = [k // group for k in range(q.shape[1])]
    codes = [[row[k // group, k % group].item() for k in range(q.shape[1])] for row in factors.codes]
    scales = None if factors.group_scale is None else factors.group_scale.tolist()
    rows = None if factors.row_scale is None else factors.row_scale.tolist()
    return codes, scales, rows, number


@pytest.mark.parametrize("a_text", ROW_SCALED)
@pytest.mark.parametrize("b_text", ROW_SCALED)
@pytest.mark.sweep(every=3)
def test_integers_are_exact_until_the_last_scaling(a_text, b_text):
    a, b = operands(2, a_text, b_text)
    (a_codes, a_scales, a_rows, a_number), (b_codes, b_scales, b_rows, b_number) = (
        plain_columns(a),
        plain_columns(b),
    )
    expected = np.empty((3, 4), dtype=np.float32)
    for i in range(3):
        for j in range(4):
            total = 0
            for k in range(43):
                scale = 1 if a_scales is None else a_scales[i][a_number[k]]
                scale *= 1 if b_scales is None else b_scales[j][b_number[k]]
                total += scale * a_codes[i][k] * b_codes[j][k]
            expected[i, j] = np.float32((a_rows[i] * b_rows[j]) * float(total))
    assert np.array_equal(product.linear(a, b), expected)


@pytest.mark.parametrize(
    ("a_text", "b_text"), [("int8", "int8"), ("vsq8u-g16-s10", "vsq8u-g16-s10"), ("int24", "int8")]
)
def test_extreme_codes_over_a_long_row_are_exact(a_text, b_text):
    k = 65536
    a, b = np.ones((1, k), np.float32), np.full((2, k), 2.0, np.float32)
    if "u" not in b_text:
        b[1] = -2
    a, b = product.packed(a, format(a_text)), product.packed(b, format(b_text))
    codes, scales, rows, _ = plain_columns(a)
    total = sum(codes[0]) * plain_columns(b)[0][0][0]
    if scales is not None:
        total *= scales[0][0] * plain_columns(b)[1][0][0]
    assert total >= 127 * 127 * k
    found = product.linear(a, b)
    assert found[0, 0] == np.float32((rows[0] * plain_columns(b)[2][0]) * float(total))
    assert found[0, 1] == (-found[0, 0] if "u" not in b_text else found[0, 0])


@pytest.mark.parametrize("a_text", ROW_SCALED + GROUPED)
@pytest.mark.parametrize("b_text", GROUPED)
@pytest.mark.sweep(every=3)
def test_float_scales_enter_by_segments(a_text, b_text):
    a, b = operands(3, a_text, b_text)
    sides = []
    for q in (a, b):
        codes, scales, rows, number = plain_columns(q)
        by_row = []
        for i in range(len(codes)):
            groups = [1] * (number[-1] + 1) if scales is None else scales[i]
            by_row.append([np.float32(1 if rows is None else rows[i]) * np.float32(s) for s in groups])
        sides.append((codes, by_row, number))
    (a_codes, a_scales, a_number), (b_codes, b_scales, b_number) = sides
    expected = np.empty((3, 4), dtype=np.float32)
    for i in range(3):
        for j in range(4):
            total, start = np.float32(0), 0
            while start < 43:
                stop = start
                while stop < 43 and a_number[stop] == a_number[start] and b_number[stop] == b_number[start]:
                    stop += 1
                dot = sum(x * y for x, y in zip(a_codes[i][start:stop], b_codes[j][start:stop], strict=True))
                t = a_scales[i][a_number[start]] * b_scales[j][b_number[start]]
                total = exact_fma(t, np.float32(dot), total)
                start = stop
            expected[i, j] = total
    assert np.array_equal(product.linear(a, b), expected)
    assert np.array_equal(product.linear(b, a), expected.T)


def test_a_scale_made_of_two_levels_saturates():
    largest = np.finfo(np.float32).max
    a = product.packed(np.float32([[largest, 0]]), format("vsq2-g1-s5"))
    factors = reference.terms(*a)
    with np.errstate(over="ignore"):
        assert np.isinf(factors.row_scale[0] * np.float32(31))  # gamma was rounded up
    b = product.packed(np.float32([[2.0**-10, 0], [0, 1]]), format("int2-g1"))
    assert product.linear(a, b).tolist() == [[float(largest) * 2.0**-10, 0]]


# One quantized operand.


@pytest.mark.parametrize("text", EXAMPLES)
@pytest.mark.parametrize("k", [43, 330])
@pytest.mark.sweep(every=20)
def test_few_vectors_have_their_accumulators(text, k):
    rng = np.random.default_rng(4)
    x = (rng.standard_normal((2, k)) * 2.0 ** rng.integers(-9, 9, (2, k))).astype(np.float32)
    q = product.packed(rng.standard_normal((2, k)).astype(np.float32), format(text))
    if text.startswith("takum"):  # sums of numbers up to float32's largest overflow
        w = reference.dequantize(q.components, q.format, q.shape, q.axis)
        assert np.array_equal(product.linear(x, q), product.many_vectors(x, w))
        return
    codes, scales, rows, number = plain_columns(q)
    expected = np.empty((2, 2), dtype=np.float32)
    for i in range(2):
        for j in range(2):
            lanes = [np.float32(0)] * (64 if scales is None else 16)
            if scales is None:
                for column in range(k):
                    lanes[column % 64] = exact_fma(x[i, column], np.float32(codes[j][column]), lanes[column % 64])
            else:
                partial = [np.float32(0)] * len(scales[j])
                for column in range(k):
                    g = number[column]
                    partial[g] = exact_fma(x[i, column], np.float32(codes[j][column]), partial[g])
                for g, p in enumerate(partial):
                    lanes[g % 16] = exact_fma(np.float32(scales[j][g]), p, lanes[g % 16])
            while len(lanes) > 1:
                half = len(lanes) // 2
                lanes = [lanes[lane] + lanes[lane + half] for lane in range(half)]
            expected[i, j] = lanes[0] if rows is None else lanes[0] * np.float32(rows[j])
    assert np.array_equal(product.linear(x, q), expected)
    assert np.array_equal(product.matmul(q, x.T), expected.T)


@pytest.mark.parametrize("text", ["int4", "int4-g16-asym", "vsq4-g16-s4"])
def test_more_than_eight_vectors_take_one_chain(text):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((9, 40)).astype(np.float32)
    q = product.packed(rng.standard_normal((3, 40)), format(text))
    w = reference.dequantize(q.components, q.format, q.shape, q.axis)
    expected = np.zeros((9, 3), dtype=np.float32)
    for i, j in np.ndindex(9, 3):
        for k in range(40):
            expected[i, j] = exact_fma(x[i, k], w[j, k], expected[i, j])
    chain = product.linear(x, q)
    assert np.array_equal(chain, expected) and np.array_equal(product.matmul(x, w.T), expected)
    few = np.concatenate([product.linear(x[:8], q), product.linear(x[8:], q)])
    assert not np.array_equal(few, chain) and np.allclose(few, chain, rtol=1e-3, atol=1e-3)


def test_vectors_are_counted_over_all_dimensions_but_for_two_batches():
    rng = np.random.default_rng(6)
    x = rng.standard_normal((3, 4, 40)).astype(np.float32)
    q = product.packed(rng.standard_normal((5, 40)), format("vsq4-g16-s4"))
    together = product.linear(x.reshape(12, 40), q).reshape(3, 4, 5)
    assert np.array_equal(product.linear(x, q), together)
    batch = product.packed(np.stack([rng.standard_normal((40, 5))] * 3), format("vsq4-g16-s4"), axis=1)
    single = [product.packed(np.zeros((40, 5)), format("vsq4-g16-s4"), axis=0)] * 3
    for i in range(3):
        parts = {
            "codes": slice(5 * i, 5 * i + 5),
            "scales": slice(5 * i, 5 * i + 5),
            "coarse": slice(5 * i, 5 * i + 5),
        }
        components = {name: part[parts[name]] for name, part in batch.components.items()}
        single[i] = single[i]._replace(components=components)
    expected = np.stack([product.matmul(x[i], single[i]) for i in range(3)])
    assert np.array_equal(product.matmul(x, batch), expected)


# Shapes and arguments.


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [((3, 20), (20, 4)), ((20,), (20, 4)), ((3, 20), (20,)), ((20,), (20,)), ((2, 3, 20), (20, 4))]
    + [((3, 20), (2, 20, 4)), ((2, 1, 3, 20), (5, 20, 4)), ((20,), (2, 20, 4)), ((2, 3, 20), (20,))]
    + [((0, 20), (20, 4)), ((3, 0), (0, 4)), ((3, 20), (20, 0))],
)
@pytest.mark.parametrize("text", ["int8", "int4-g16", "vsq4-g16-s4"])
def test_shapes_are_those_of_matmul(a_shape, b_shape, text):
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal(a_shape).astype(np.float32), rng.standard_normal(b_shape).astype(np.float32)
    b_axis = max(len(b_shape) - 2, 0)
    qa, qb = product.packed(a, format(text)), product.packed(b, format(text), b_axis)
    decoded_a, decoded_b = (reference.dequantize(q.components, q.format, q.shape, q.axis) for q in (qa, qb))
    for left, right, values in (
        (qa, qb, (decoded_a, decoded_b)),
        (qa, b, (decoded_a, b)),
        (a, qb, (a, decoded_b)),
        (a, b, (a, b)),
    ):
        found = product.matmul(left, right)
        expected = np.matmul(*(part.astype(np.float64) for part in values))
        assert found.shape == expected.shape and found.dtype == np.float32
        bound = 2 * (20 + 1) * 2.0**-24 * 20 * np.abs(a).max(initial=0) * np.abs(b).max(initial=0)
        assert np.abs(found - expected).max(initial=0) <= bound


def test_activations_quantize_the_dense_operand():
    rng = np.random.default_rng(8)
    x, w = rng.standard_normal((12, 40)), rng.standard_normal((5, 40))
    int8, weights = format("int8"), product.packed(w, format("vsq4-g16-s4"))
    assert np.array_equal(
        product.linear(x, weights, activations=int8), product.linear(product.packed(x, int8), weights)
    )
    tensor = format("vsq8-g16-s8-tensor")
    quantized = product.packed(x, tensor)
    assert np.array_equal(product.linear(x, weights, activations=tensor), product.linear(quantized, weights))
    fake = reference.dequantize(reference.quantize(x, int8), int8, x.shape, -1)
    bias = rng.standard_normal(5).astype(np.float32)
    dense = product.linear(x, w, bias, activations=int8)
    assert np.array_equal(dense, product.matmul(fake, w.T) + bias)


def test_operands_that_do_not_fit():
    a, b = operands(9, "int8", "int8")
    dense = np.zeros((43, 4), np.float32)
    with pytest.raises(ValueError, match="both operands are quantized"):
        product.linear(a, b, activations=format("int8"))
    with pytest.raises(ValueError, match="neither a nor b is quantized"):
        product.matmul(dense.T, dense, activations=format("int8"))
    with pytest.raises(ValueError, match=r"quantized along \(1,\) but the reduction axis is 0"):
        product.matmul(dense.T, b)
    with pytest.raises(ValueError, match="a has 43 columns but b has 4 rows"):
        product.matmul(a, dense.T)


# Convolution.

WINDOWS = [
    {"stride": 1, "padding": 1},
    {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2), "groups": 2},
    {"padding": "same", "stride": 2, "groups": 3},
    {"padding": "valid", "dilation": 2},
]


def plain_windows(x, w, stride=1, padding=0, dilation=1, groups=1):
    """Yield each output index with its (pixel, filter) indices in the order r, s, c; None in the padding."""
    (sy, sx), (dy, dx) = (np.broadcast_to(value, 2).tolist() for value in (stride, dilation))
    (n, _, h, width), (k, depth, r, s) = x.shape, w.shape
    if padding == "same":
        py = max((-(-h // sy) - 1) * sy + dy * (r - 1) + 1 - h, 0)
        px = max((-(-width // sx) - 1) * sx + dx * (s - 1) + 1 - width, 0)
        py, px, after = py // 2, px // 2, (py - py // 2, px - px // 2)
    else:
        py, px = np.broadcast_to(0 if padding == "valid" else padding, 2).tolist()
        after = (py, px)
    rows = (h + py + after[0] - dy * (r - 1) - 1) // sy + 1
    columns = (width + px + after[1] - dx * (s - 1) - 1) // sx + 1
    for i, f, p, q in np.ndindex(n, k, rows, columns):
        first = f // (k // groups) * depth
        pairs = []
        for a, b, channel in np.ndindex(r, s, depth):
            y, z = p * sy + a * dy - py, q * sx + b * dx - px
            inside = 0 <= y < h and 0 <= z < width
            pairs.append(((i, first + channel, y, z) if inside else None, (f, channel, a, b)))
        yield (i, f, p, q), pairs


@pytest.mark.parametrize("window", WINDOWS)
def test_convolution_of_floats_is_one_chain_in_the_order_r_s_c(window):
    rng = np.random.default_rng(10)
    groups = window.get("groups", 1)
    x = rng.standard_normal((2, 6, 5, 6)).astype(np.float32)
    w = rng.standard_normal((6, 6 // groups, 2, 3)).astype(np.float32)
    found = convolution.conv2d(x, w, **window)
    for index, pairs in plain_windows(x, w, **window):
        total = np.float32(0)
        for pixel, weight in pairs:
            total = exact_fma(0 if pixel is None else x[pixel], w[weight], total)
        assert found[index] == total
    assert found.size == sum(1 for _ in plain_windows(x, w, **window))
    nhwc = convolution.conv2d(x.transpose(0, 2, 3, 1), w, layout="NHWC", **window)
    assert np.array_equal(nhwc, found.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    ("w_text", "x_text"), [("vsq4-g2-s4", "int8"), ("int8-asym", "vsq4u-g2-s6"), ("int4", "int8-asym")]
)
def test_convolution_of_integers_is_exact(window, w_text, x_text):
    rng = np.random.default_rng(11)
    groups = window.get("groups", 1)
    x = rng.standard_normal((2, 6, 5, 6)).astype(np.float32)
    w = rng.standard_normal((6, 6 // groups, 2, 3)).astype(np.float32)
    q = product.packed(w, format(w_text), (2, 3, 1))
    bias = rng.standard_normal(6).astype(np.float32)
    found = convolution.conv2d(x, q, bias, activations=format(x_text), **window)

    image = product.packed(x.reshape(2, groups, 6 // groups, 5, 6), format(x_text), (1, 3, 4, 2))
    sides = []
    for side, back in ((image, (2, groups, 5, 6, 6 // groups)), (q, (6, 2, 3, 6 // groups))):
        sizes = reference.geometry(side.format.group, side.shape, side.axis)
        found_columns = product.columns(reference.terms(*side), sizes)
        sides.append((found_columns.integers.reshape(back), found_columns.row_scale))
    (x_integers, x_scale), (w_integers, w_scale) = sides
    x_integers = x_integers.transpose(0, 1, 4, 2, 3).reshape(2, 6, 5, 6)
    w_integers = w_integers.transpose(0, 3, 1, 2)
    for index, pairs in plain_windows(x, w, **window):
        total = sum(int(x_integers[pixel]) * int(w_integers[weight]) for pixel, weight in pairs if pixel is not None)
        scale = float(x_scale[index[0]]) * float(w_scale[index[1]])
        assert found[index] == np.float32(scale * float(total)) + bias[index[1]]


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    ("w_text", "x_text"), [("int4-g2", "int8"), ("int8", "vsq4-g2"), ("vsq4-g2-s4", "int8-g1-asym")]
)
def test_convolution_with_float_scales_cuts_segments_in_every_tap(window, w_text, x_text):
    rng = np.random.default_rng(12)
    groups = window.get("groups", 1)
    depth = 6 // groups
    x = rng.standard_normal((2, 6, 5, 6)).astype(np.float32)
    w = rng.standard_normal((6, depth, 2, 3)).astype(np.float32)
    q = product.packed(w, format(w_text), (2, 3, 1))
    found = convolution.conv2d(x, q, activations=format(x_text), **window)

    image = product.packed(x.reshape(2, groups, depth, 5, 6), format(x_text), (1, 3, 4, 2))
    sides = []
    for side, back in ((image, (2, groups, 5, 6, depth)), (q, (6, 2, 3, depth))):
        sizes = reference.geometry(side.format.group, side.shape, side.axis)
        c = product.columns(reference.terms(*side), sizes)
        sides.append((c.codes.reshape(back), c.scale.reshape(back)))
    x_codes, x_scale = (part.transpose(0, 1, 4, 2, 3).reshape(2, 6, 5, 6) for part in sides[0])
    w_codes, w_scale = (part.transpose(0, 3, 1, 2) for part in sides[1])
    widths = [side.format.group for side in (image, q) if side.format.group is not None]
    for index, pairs in plain_windows(x, w, **window):
        total = np.float32(0)
        for tap in range(6):
            inside = pairs[tap * depth : (tap + 1) * depth]
            if inside[0][0] is None:
                continue
            starts = sorted({start for width in widths for start in range(0, depth, width)} | {depth})
            for start, stop in zip(starts[:-1], starts[1:], strict=True):
                dot = sum(int(x_codes[p]) * int(w_codes[f]) for p, f in inside[start:stop])
                pixel, weight = inside[start]
                total = exact_fma(x_scale[pixel] * w_scale[weight], np.float32(dot), total)
        assert found[index] == total


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("text", EXAMPLES)
def test_convolution_with_quantized_filters_takes_their_values(text):
    rng = np.random.default_rng(13)
    x, w = rng.standard_normal((2, 6, 4, 5)).astype(np.float32), rng.standard_normal((4, 3, 3, 3))
    q = product.packed(w, format(text), (2, 3, 1))
    values = reference.dequantize(q.components, q.format, q.shape, q.axis)
    window = {"groups": 2, "padding": 1}
    assert np.array_equal(convolution.conv2d(x, q, **window), convolution.conv2d(x, values, **window))
    with pytest.raises(ValueError, match="conv2d: w is quantized along"):
        convolution.conv2d(x, product.packed(w, format(text)), **window)


def test_convolution_of_dense_filters_fake_quantizes_images():
    rng = np.random.default_rng(14)
    x, w = rng.standard_normal((2, 6, 4, 5)), rng.standard_normal((4, 3, 3, 3))
    fmt, split = format("vsq4-g2-s4"), (2, 2, 3, 4, 5)
    fake = reference.quantize(x.reshape(split), fmt, (1, 3, 4, 2))
    values = reference.dequantize(fake, fmt, split, (1, 3, 4, 2)).reshape(x.shape)
    found = convolution.conv2d(x, w, groups=2, activations=fmt)
    assert np.array_equal(found, convolution.conv2d(values, w, groups=2))
