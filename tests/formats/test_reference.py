"""The NumPy definition of the formats, compared with worked examples, and with plain Python value by value."""

import ml_dtypes
import numpy as np
import pytest
from common import takes

from heterocompute import reference
from heterocompute.formats import Format, format
from heterocompute.reference import clip as clipping, layout

EXAMPLES = [text for family in Format.families() for text in family.examples]
RAMP = np.arange(-16, 16).astype(np.float32) * np.float32(0.48)
SMALLEST = 2.0**-149
LARGEST = float(np.finfo(np.float32).max)


def quantized(x, text, axis=-1, clip=None):
    """Return components, stored codes, factors and values of x."""
    x, fmt = np.asarray(x), format(text)
    components = reference.quantize(x, fmt, axis, clip)
    description = (components, fmt, x.shape, axis)
    return (
        components,
        reference.codes(*description),
        reference.terms(*description),
        reference.dequantize(*description),
    )


# Worked examples.


def test_worked_example_of_vs_quant():
    components, codes, factors, values = quantized(RAMP, "vsq4-g16-s4", axis=0)
    assert components["coarse"].tolist() == [0.07314285635948181]
    assert components["coarse"][0] == np.float32(0.07314286)
    assert factors.group_scale.tolist() == [[15, 14]]
    assert codes.tolist() == [
        [
            [-7, -7, -6, -6, -5, -5, -4, -4, -4, -3, -3, -2, -2, -1, -1, 0],
            [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7],
        ]
    ]
    products = (factors.group_scale[..., None] * codes).astype(np.float64).reshape(-1)
    assert values.tolist() == (products * 0.07314285635948181).astype(np.float32).tolist()


@pytest.mark.parametrize(
    ("steps", "threshold"),
    [
        (0, "3.96387081"),
        (1, "5.87983332"),
        (2, "6.82666646"),
        (3, "7.27162932"),
        (4, "7.39127803"),
        (20, "7.39127803"),
    ],
)
def test_worked_example_of_octav(steps, threshold):
    magnitudes = np.abs(RAMP).astype(np.float64)[None, None]
    absmax = magnitudes.max(axis=-1).astype(np.float32)
    found = clipping.octav(magnitudes, absmax, bits=4, steps=steps)
    assert found.dtype == np.float32 and found.tolist() == [[np.float32(threshold)]]


def test_octav_sets_the_scale():
    components, *_ = quantized(RAMP, "int4", clip="octav")
    assert components["scales"].tolist() == [[np.float32(7.39127803) / np.float32(7)]]


def test_effective_bits_of_vs_quant():
    components, *_ = quantized(np.ones((8, 64), np.float32), "vsq4-g16-s4")
    bits = sum(part.nbytes for part in components.values()) * 8 / (8 * 64)
    assert bits == 4 + 4 / 16 + 32 / 64


# One value at a time.


def plain_integers(fmt, groups):
    """Quantize the groups of one row of an Int with Python's own float and round."""
    codes, scales, zero_points = [], [], []
    for group in groups:
        if fmt.symmetric:
            largest = 2 ** (fmt.bits - 1) - 1
            smallest = -largest
            scale = np.float32(max(map(abs, group))) / np.float32(largest)
        else:
            smallest, largest = 0, 2**fmt.bits - 1
            scale = np.float32((max(0.0, *group) - min(0.0, *group)) / largest)
        if fmt.scale == "f16":
            scale = np.float16(min(scale, np.float32(65504)))
        s, zero = float(scale), 0
        if not fmt.symmetric and s > 0:
            zero = min(max(round(-min(0.0, *group) / s), 0), largest)
        codes.append([min(max(round(x / s) + zero, smallest), largest) if s > 0 else 0 for x in group])
        scales.append(s)
        zero_points.append(zero)
    return codes, scales, zero_points


def plain_vs_quant(fmt, rows):
    """Compute equations 7a to 7j for all rows, value by value."""
    largest = 2**fmt.bits - 1 if fmt.unsigned else 2 ** (fmt.bits - 1) - 1
    smallest = 0 if fmt.unsigned else -largest

    def code(x, s):
        return min(max(round(x / s), smallest), largest) if s > 0 else 0

    def magnitude(x):
        return max(x, 0.0) if fmt.unsigned else abs(x)

    scales = [[np.float32(max(map(magnitude, group))) / np.float32(largest) for group in row] for row in rows]
    if fmt.scale_bits is None:
        return (
            [
                [[code(x, float(s)) for x in g] for g, s in zip(*two, strict=True)]
                for two in zip(rows, scales, strict=True)
            ],
            scales,
            None,
        )
    top = 2**fmt.scale_bits - 1
    gammas = [max(row) / np.float32(top) for row in scales]
    if fmt.coarse == "tensor":
        gammas = [max(gammas)] * len(rows)
    codes, scale_codes = [], []
    for row, row_scales, gamma in zip(rows, scales, gammas, strict=True):
        codes.append([])
        scale_codes.append([])
        for group, s in zip(row, row_scales, strict=True):
            s_q = min(max(round(float(s) / float(gamma)), 0), top) if gamma > 0 else 0
            by = float(gamma) * s_q if fmt.refit else float(s)
            codes[-1].append([code(x, by) if s_q > 0 else 0 for x in group])
            scale_codes[-1].append(s_q)
    return codes, scale_codes, gammas


def awkward(seed, shape):
    """Return rows of very different magnitudes, with zeros, ties, subnormals and values near float32's largest."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 6, shape)
    x[0] = rng.integers(-14, 15, shape[1]) / 2
    x[1] *= 2.0**-140
    x[2] *= 2.0**-148
    x[3] = np.sign(x[3]) * LARGEST * rng.uniform(0.5, 1, shape[1])
    x[4] = 0
    x[5, ::3] = 0
    x[6] = np.abs(x[6])
    x[7] = -np.abs(x[7])
    x[8] *= 2.0 ** rng.integers(-60, 60, shape[1])
    return x.astype(np.float32)


@pytest.mark.sweep(every=12)
@pytest.mark.parametrize("text", EXAMPLES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_codes_equal_those_of_one_value_at_a_time(text, dtype):
    fmt = format(text)
    x = awkward(1, (10, 70)).astype(dtype)
    if dtype is np.float64:
        x[9] += 2.0**-40
    components, codes, factors, values = quantized(x, text)
    sizes = layout.geometry(fmt.group, x.shape, -1)
    rows = layout.to_groups(x.astype(np.float64), sizes).tolist()
    if fmt.family == "vsq":
        expected, scales, gammas = plain_vs_quant(fmt, rows)
        zero_points = np.zeros((10, sizes.groups), int)
        if gammas is not None:
            assert factors.row_scale.tolist() == gammas
    elif fmt.family == "int":
        expected, scales, zero_points = map(list, zip(*(plain_integers(fmt, row) for row in rows), strict=True))
        gammas = None
    else:
        pytest.skip("one value at a time: int and vsq alone")
    assert codes.tolist() == expected
    found = factors.row_scale[:, None] if factors.group_scale is None else factors.group_scale
    assert found.tolist() == np.asarray(scales).tolist()
    assert np.array_equal(factors.codes, codes - np.asarray(zero_points)[..., None])

    product = factors.codes * np.asarray(scales).astype(np.int64 if gammas else np.float64)[..., None]
    if gammas:
        product = product * np.asarray(gammas, dtype=np.float64)[:, None, None]
    flat = product.reshape(10, -1)[:, :70]
    assert np.array_equal(values, np.clip(flat, -LARGEST, LARGEST).astype(np.float32))
    assert np.isfinite(values).all() and not np.signbit(values[values == 0]).any()
    exact = reference.dequantize(components, fmt, x.shape, -1, np.float64)
    assert exact.dtype == np.float64 and np.array_equal(exact, flat)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("text", EXAMPLES)
def test_a_value_counts_not_its_dtype(text):
    rng = np.random.default_rng(2)
    # Values with few enough bits for both 16-bit types, and groups that differ.
    x = np.round(rng.standard_normal((5, 83)) * 16) / 8 * 2.0 ** rng.integers(-4, 5, (5, 83))
    by_type = [
        reference.quantize(x.astype(dtype), format(text))
        for dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)
    ]
    assert np.array_equal(x, x.astype(ml_dtypes.bfloat16).astype(float))
    for other in by_type[1:]:
        assert other.keys() == by_type[0].keys()
        assert all(other[name].tobytes() == part.tobytes() for name, part in by_type[0].items())


def test_ties_go_to_even():
    x = np.float32([0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5, 7])
    _, codes, *_ = quantized(x, "int4", axis=0)
    assert codes.reshape(-1).tolist() == [0, 2, 2, 4, 0, -2, -2, 7]
    _, codes, *_ = quantized(np.float32([-0.5, 0.5, 1.5, 2.5, 3.5, 14.5]), "int4-asym", axis=0)
    assert codes.reshape(-1).tolist() == [0, 0, 2, 2, 4, 14]  # s = 1, z = RNE(0.5) = 0
    # Scales with gamma = 1.
    _, _, factors, _ = quantized(np.float32([[1.5, 0.5, 2.5, 3.0]]), "vsq2-g1-s2")
    assert factors.group_scale.tolist() == [[2, 0, 2, 3]]


def test_a_float64_quotient_is_rounded_once():
    # In float32 x / s is exactly 2.5 and would round to 2; in float64 it is above 2.5.
    s = np.float32(1 + 2**-23)
    x = np.array([7 * float(s), 2.5 * float(s) + 2.0**-30])
    components, codes, *_ = quantized(x, "int4", axis=0)
    assert components["scales"] == s and codes.reshape(-1).tolist() == [7, 3]


def test_subnormal_scales_count_in_full():
    x = np.float32([7 * SMALLEST, 3 * SMALLEST, -2 * SMALLEST, 0])
    components, codes, _, values = quantized(x, "int4", axis=0)
    assert components["scales"].tolist() == [[SMALLEST]]
    assert codes.reshape(-1).tolist() == [7, 3, -2, 0] and np.array_equal(values, x)


@pytest.mark.parametrize("text", ["int4", "int4-asym", "vsq4-g16", "vsq4-g16-s4", "vsq4-g16-s4-refit", "int8-f16"])
def test_a_scale_that_rounds_to_zero_makes_its_group_zero(text):
    # 3 / 7 and 3 / 15 of the smallest subnormal round to zero.
    components, codes, _, values = quantized(np.float32([3 * SMALLEST, -SMALLEST]), text, axis=0)
    assert not any(part.any() for part in components.values())
    assert not codes.any() and not values.any()


def test_a_scale_code_of_zero_makes_its_group_zero():
    x = np.float32([[1.0, -1.0, 0.01, -0.01]])
    components, codes, factors, values = quantized(x, "vsq4-g2-s4")
    assert factors.group_scale.tolist() == [[15, 0]]
    assert codes.tolist() == [[[7, -7], [0, 0]]] and values[0, 2:].tolist() == [0, 0]


@pytest.mark.parametrize("text", EXAMPLES)
@pytest.mark.sweep(every=3)
def test_values_near_the_largest_saturate(text):
    x = np.full((1, 64), LARGEST)
    x[0, 1::2] = -LARGEST
    values = quantized(x, text)[3]
    assert np.isfinite(values).all() or not getattr(format(text), "saturate", True)
    just_below = np.nextafter(2.0**128 - 2.0**103, 0)  # rounds down to float32's largest
    assert np.array_equal(quantized(np.where(x > 0, just_below, x), text)[3], values, equal_nan=True)


def test_a_product_beyond_the_largest_saturates_and_float64_does_not():
    fmt = format("int6")
    components = reference.quantize(np.float32([LARGEST, -LARGEST]), fmt)
    exact = reference.dequantize(components, fmt, (2,), 0, np.float64)
    assert exact[0] > LARGEST  # LARGEST / 31 was rounded up
    assert reference.dequantize(components, fmt, (2,), 0).tolist() == [LARGEST, -LARGEST]


def test_absmax_of_float64_is_rounded_once():
    x = np.array([7 + 2.0**-20, 1.0])
    assert quantized(x, "int4")[0]["scales"].tolist() == [[np.float32(7 + 2.0**-20) / np.float32(7)]]
    low, high = -1 - 2.0**-30, 14 + 2.0**-30
    scale = quantized(np.array([low, high]), "int4-asym")[0]["scales"]
    assert scale.tolist() == [[np.float32((high - low) / 15)]]


def test_half_scales_are_the_stored_ones():
    components, codes, _, values = quantized(np.float32([3e38, 1.0, -70000.0, 200000]), "int8-f16", axis=0)
    assert components["scales"].dtype == np.float16 and components["scales"].tolist() == [[65504]]
    assert codes.reshape(-1).tolist() == [127, 0, -1, 3]
    assert values.tolist() == [127 * 65504, 0, -65504, 3 * 65504]
    s = np.float16(np.float32(1) / np.float32(7))
    components, codes, *_ = quantized(np.float32([-1, 6.51 * float(s)]), "int4-f16", axis=0)
    assert components["scales"] == s and codes.reshape(-1).tolist() == [-7, 7]


def test_asymmetric_zero_is_exact_and_tails_hold_the_zero_point():
    x = np.float32([[3, 4, 5, 0, -1, 2, -3]])
    components, codes, factors, values = quantized(x, "int4-g4-asym")
    assert values[0, 3] == 0
    zero_points = layout.unpack(components["zero_points"], 4, 2, signed=False)
    assert zero_points.tolist() == [[0, 9]]
    assert codes[0, 1, 3] == 9 and factors.codes[0, 1, 3] == 0
    assert quantized(np.float32([3.0, 5.0]), "int4-asym")[3][1] == 5  # lo is at most 0


def test_unsigned_codes_make_negative_values_zero():
    x = np.float32([[-100.0, 0, 1, 15]])
    _, codes, factors, values = quantized(x, "vsq4u-g4")
    assert codes.tolist() == [[[0, 0, 1, 15]]] and values.tolist() == [[0, 0, 1, 15]]


def test_refit_takes_the_codes_again_and_errs_less():
    x = np.random.default_rng(3).standard_normal((64, 256)).astype(np.float32)
    plain, again = (quantized(x, text)[3] for text in ("vsq4-g16-s4", "vsq4-g16-s4-refit"))
    gain = 10 * np.log10(np.sum((x - plain) ** 2) / np.sum((x - again) ** 2))
    assert 0.3 < gain < 0.8  # the format's definition says 0.5 dB on Gaussian data


# Rows, groups, bits.


@pytest.mark.parametrize("text", EXAMPLES)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((3, 37), -1), ((37, 3), 0), ((4, 21, 2, 3), (2, 3, 1)), ((4, 21, 2, 3), 1), ((5,), 0), ((1, 1), (0, 1))]
    + [((0, 4), 1), ((4, 0), 1), ((0,), 0), ((2, 0, 3), (0, 1)), ((2, 0, 3), (1, 0))],
)
@pytest.mark.sweep(every=20)
def test_components_have_their_layout_and_empty_arrays_work(text, shape, axis):
    x = np.random.default_rng(4).standard_normal(shape)
    components, _, _, values = quantized(x, text, axis)
    found = {name: (part.dtype, part.shape) for name, part in components.items()}
    assert found == reference.component_layout(format(text), shape, axis)
    assert values.shape == shape and values.dtype == np.float32


def test_rows_and_groups_of_a_convolution_weight():
    w = np.random.default_rng(5).standard_normal((4, 21, 2, 3)).astype(np.float32)
    for text in ("int5-g16", "vsq4-g16", "int8"):
        _, codes, factors, values = quantized(w, text, axis=(2, 3, 1))
        for k in range(4):
            if text == "int8":
                row = w[k].transpose(1, 2, 0).reshape(-1)
                assert np.array_equal(quantized(row, text)[1][0], codes[k])
                continue
            assert codes.shape == (4, 12, 16)
            for tap in range(6):
                channels = w[k, :, tap // 3, tap % 3]
                _, alone, scales, decoded = quantized(channels, text)
                assert np.array_equal(alone[0], codes[k, 2 * tap : 2 * tap + 2])
                assert np.array_equal(scales.group_scale[0], factors.group_scale[k, 2 * tap : 2 * tap + 2])
                assert np.array_equal(decoded, values[k, :, tap // 3, tap % 3])


@pytest.mark.parametrize("text", ["int4-g16", "vsq3-g5", "vsq4-g16-s4-tensor", "int8"])
def test_strides_and_memory_order_do_not_matter(text):
    x = np.random.default_rng(6).standard_normal((6, 8, 34)).astype(np.float32)
    expected = reference.quantize(x, format(text), 1)
    for same in (np.asfortranarray(x), x[::-1][::-1], np.repeat(x, 2, axis=2)[:, :, ::2], x.tolist()):
        same = np.asarray(same)
        found = reference.quantize(same, format(text), -2)
        assert all(found[name].tobytes() == part.tobytes() for name, part in expected.items())


@pytest.mark.parametrize("bits", range(2, 11))
@pytest.mark.parametrize("signed", [False, True])
def test_codes_lie_little_end_first(bits, signed):
    rng = np.random.default_rng(bits)
    low = -(2 ** (bits - 1)) if signed else 0
    codes = rng.integers(low, low + 2**bits, (3, 29))
    packed = layout.pack(codes, bits)
    assert packed.shape == (3, layout.row_bytes(29, bits)) == (3, (29 * bits + 7) // 8)
    for row, given in zip(packed, codes, strict=True):
        number = int.from_bytes(row.tobytes(), "little")
        assert number == sum((int(code) % 2**bits) << (i * bits) for i, code in enumerate(given))
    assert np.array_equal(layout.unpack(packed, bits, 29, signed), codes)


def test_wide_codes_are_little_end_bytes():
    x = np.float32([-1, 0.25, 0.5])
    assert quantized(x, "int16")[0]["codes"].tobytes() == np.int16([-32767, 8192, 16384]).tobytes()
    codes = quantized(x, "int24")[0]["codes"]
    assert codes.tobytes() == b"".join(n.to_bytes(3, "little", signed=True) for n in (-8388607, 2097152, 4194304))


def test_no_code_is_one_that_the_format_never_stores():
    x = np.random.default_rng(7).standard_normal((20, 50))
    x[::4] *= 2.0 ** np.arange(50)
    signed = [format(text) for text in EXAMPLES if format(text).stored_rules().unused_code is not None]
    assert len(signed) > 20
    for fmt in signed:
        for clip in (None, 0.5):
            if clip is None or takes(fmt, 1.0, clip):
                codes = quantized(x, fmt, clip=clip)[1]
                if clip is not None:  # something saturates
                    assert np.abs(codes).max() == 2 ** (fmt.bits - 1) - 1
                assert not (codes % 2**fmt.bits == fmt.stored_rules().unused_code).any()


# Clipping.


def test_a_fraction_scales_absmax():
    x = np.random.default_rng(8).standard_normal((4, 64)).astype(np.float32)
    absmax = np.abs(x).max(axis=1).astype(np.float64)
    scales = quantized(x, "int4", clip=0.7)[0]["scales"]
    assert np.array_equal(scales[:, 0], (0.7 * absmax).astype(np.float32) / np.float32(7))
    for clip in (1, 1.0, np.float32(1), "percentile:100"):
        assert np.array_equal(quantized(x, "int4", clip=clip)[0]["codes"], quantized(x, "int4")[0]["codes"])


@pytest.mark.parametrize("p", [0, 12.5, 50, 90, 99.9, 100])
@pytest.mark.parametrize("n", [1, 2, 5, 41, 64])
def test_percentiles_are_those_of_numpy(p, n):
    x = np.random.default_rng(n).standard_normal(n)
    scales = quantized(x, "int8-g64", clip=f"percentile:{p}")[0]["scales"]
    assert scales.tolist() == [[np.float32(np.percentile(np.abs(x), p)) / np.float32(127)]]


def test_padding_is_no_part_of_a_percentile():
    x = np.float32([[1, 2, 3, 4, 5, 6]])
    scales = quantized(x, "int8-g4", clip="percentile:50")[0]["scales"]
    assert scales.tolist() == [[np.float32(2.5) / np.float32(127), np.float32(5.5) / np.float32(127)]]


def test_clip_of_asymmetric_and_unsigned_codes():
    x = np.float32([-8, -1, 0, 2])
    assert quantized(x, "int4-asym", clip=0.5)[0]["scales"].tolist() == [[np.float32((2 + 4) / 15)]]
    assert quantized(x, "vsq4u-g4", clip=0.5)[0]["scales"].tolist() == [[np.float32(1) / np.float32(15)]]
    assert quantized(x, "vsq4u-g4", clip="percentile:100")[0]["scales"].tolist() == [[np.float32(2) / np.float32(15)]]


def test_what_lies_beyond_the_threshold_saturates():
    x = np.float32([[7, 3, -7, 1]])
    _, codes, _, values = quantized(x, "int4", clip=0.5)
    assert codes.tolist() == [[[7, 6, -7, 2]]] and values.tolist() == [[3.5, 3, -3.5, 1]]


def test_octav_of_constant_groups_and_of_zeros():
    x = np.float32([[2, -2, 2, 2, 0, 0, 0, 0, 1, 0, 0, 0]])
    scales = quantized(x, "int4-g4", clip="octav")[0]["scales"]
    assert scales.tolist() == [[np.float32(2) / np.float32(7), 0, np.float32(1) / np.float32(7)]]


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_octav_is_near_the_best_of_all_fractions(bits):
    x = np.random.default_rng(9).laplace(size=(1, 4000))

    def error(clip):
        return np.sum((quantized(x, f"int{bits}", clip=clip)[3] - x) ** 2)

    best = min(error(fraction) for fraction in np.linspace(0.05, 1, 96))
    assert best <= error("octav") * 1.0001 and error("octav") < 1.25 * best and error("octav") < 0.8 * error(None)


def test_lane_sums_have_their_order():
    x = (np.random.default_rng(10).standard_normal(29) * 2.0 ** np.arange(29)).tolist()
    lanes = [0.0] * 8
    for i, value in enumerate(x):
        lanes[i % 8] += value
    a, b, c, d, e, f, g, h = lanes
    assert clipping.lane_sum(np.array(x)) == ((a + b) + (c + d)) + ((e + f) + (g + h))


@pytest.mark.parametrize("clip", [0, 0.0, -1, 1.5, np.nan, "", "octave", "percentile", "percentile:", "percentile:x"])
def test_an_illegal_clip_is_a_value_error(clip):
    with pytest.raises(ValueError, match="clip: "):
        quantized(RAMP, "int4", clip=clip)


@pytest.mark.parametrize("clip", [True, [0.5], b"octav"])
def test_a_clip_of_the_wrong_type_is_a_type_error(clip):
    with pytest.raises(TypeError, match="clip: "):
        quantized(RAMP, "int4", clip=clip)


# Errors.


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_the_first_nan_or_infinity_is_named_in_c_order(bad, dtype):
    x = np.zeros((4, 6), dtype=dtype)
    x[3, 1] = x[2, 5] = bad
    for same in (x, np.asfortranarray(x)):
        for axis in (0, 1, (1, 0)):
            with pytest.raises(ValueError, match=rf"quantize: w has {bad} at index \(2, 5\)"):
                quantized(same, "vsq4-g16-s4", axis)


@pytest.mark.parametrize("value", [2.0**128, 2.0**128 - 2.0**103, -1e300])
def test_a_value_beyond_float32_is_a_value_error(value):
    with pytest.raises(ValueError, match=r"at index \(1,\), beyond float32's largest"):
        quantized(np.array([1.0, value]), "int8-asym", 0)


@pytest.mark.parametrize("axis", [2, -3, (0, 2), (), (1, -1)])
def test_an_illegal_axis_is_a_value_error(axis):
    with pytest.raises(ValueError, match="axis: "):
        quantized(np.zeros((2, 3)), "int4", axis)


@pytest.mark.parametrize("x", [np.arange(3), np.array([True]), np.array([1j]), np.array([None])])
def test_only_floats_are_quantized(x):
    with pytest.raises(TypeError, match="expected a float type"):
        quantized(x, "int4", 0)


def test_a_scalar_has_no_axis():
    with pytest.raises(ValueError, match="0 dimensions"):
        quantized(np.float32(1), "int4")
