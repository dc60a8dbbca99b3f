"""MX and NVFP4: worked examples, scales from exact rationals, elements from ml_dtypes, and all edge cases."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from common import bad_argument, isas, reals, same_bits

import heterocompute as hc
from heterocompute import reference
from heterocompute.arrays.bits import unpack
from heterocompute.reference import convolution, product

RAMP = np.arange(-16, 16).astype(np.float32) * np.float32(0.48)
ELEMENTS = {
    "fp8_e4m3": (ml_dtypes.float8_e4m3fn, 3, 8, 448),
    "fp8_e5m2": (ml_dtypes.float8_e5m2, 2, 15, 57344),
    "fp6_e3m2": (ml_dtypes.float6_e3m2fn, 2, 4, 28),
    "fp6_e2m3": (ml_dtypes.float6_e2m3fn, 3, 2, 7.5),
    "fp4": (ml_dtypes.float4_e2m1fn, 1, 2, 6),
    "int8": (None, 6, 0, 127 / 64),
}
RULES = ("floor", "ceil", "rceil", "even")
each_element = pytest.mark.parametrize("element", ELEMENTS)
each_rule = pytest.mark.parametrize("rule", RULES)


def encoded(x: np.ndarray, text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return codes (rows, padded) and scale bytes from the core, after a comparison with the definition."""
    fmt = hc.format(text)
    q = hc.quantize(x, fmt)
    expected = reference.quantize(x, fmt)
    assert all(same_bits(q.components[name], part) for name, part in expected.items())
    scales = q.components["scales"]
    return unpack(q.components["codes"], fmt.bits, scales.shape[1] * min(fmt.group, x.shape[-1])), scales


def as_codes(words: str) -> list[int]:
    return [int(word, 16) for word in words.split()]


# The worked examples of the definition.


def test_worked_examples_of_mx() -> None:
    codes, scales = encoded(RAMP[None], "mxfp4")
    assert scales.tolist() == [[0x7F]]
    assert codes[0].tolist() == as_codes("F F F F F F E E E D D C C B A 9 0 1 2 3 4 4 5 5 6 6 6 7 7 7 7 7")
    codes, scales = encoded(RAMP[None], "mxfp8_e4m3")
    assert scales.tolist() == [[0x79]]
    words = "FE FE FD FC FC FB FA F9 F7 F5 F4 F2 EF EC E7 DF 00 5F 67 6C 6F 72 74 75 77 79 7A 7B 7C 7C 7D 7E"
    assert codes[0].tolist() == as_codes(words)


def test_low_nibble_is_the_even_index() -> None:
    q = hc.quantize(np.float32([[6, 0.5] + [0] * 30]), "mxfp4")
    assert q.components["codes"][0, 0] == 0x17


# MX: scales.


def exact_exponent(element: str, rule: str, absmax: float) -> int:
    """Return e of a group in exact rationals."""
    _, fraction_bits, emax, largest = ELEMENTS[element]
    value = Fraction(absmax)
    floor = 0
    while Fraction(2) ** floor > value:
        floor -= 1
    while Fraction(2) ** (floor + 1) <= value:
        floor += 1
    if rule == "ceil":
        e = floor + (value > Fraction(2) ** floor) - emax
    elif rule == "rceil":
        e = -1200
        while value > Fraction(largest) * Fraction(2) ** e:
            e += 1
    elif rule == "even":
        places = Fraction(2) ** fraction_bits
        significand = (value / Fraction(2) ** floor * places + Fraction(1, 2)) // 1 / places
        e = floor + (significand >= 2) - emax
    else:
        e = floor - emax
    return min(max(e, -127), 127)


def hard_maxima(element: str) -> np.ndarray:
    """Return powers of two, the largest element and the tie of `even` at many exponents, and the adjacent floats."""
    _, fraction_bits, emax, largest = ELEMENTS[element]
    fixed = [1.0, largest / 2**emax, 2 - 2.0**-fraction_bits / 2, 1.5]
    base = np.array([s * 2.0**e for s in fixed for e in (-149, -140, -127, -126, -119, -20, 0, 1, 100, 126)])
    rng = np.random.default_rng(1)
    random = rng.uniform(1, 2, 40) * 2.0 ** rng.integers(-149, 127, 40)
    return np.concatenate([base, np.nextafter(base, np.inf), np.nextafter(base, 0), random])


@each_element
@each_rule
@pytest.mark.sweep(every=20)
def test_scales_are_exact(element: str, rule: str) -> None:
    text = str(hc.MX(element, rule))
    tops = np.append(hard_maxima(element), [2.0**128 * (1 - 2.0**-53), 5e-324, 2.0**-1030, 2.0**-500])
    with np.errstate(over="ignore"):
        singles = tops.astype(np.float32)
    for values in (tops, singles[np.isfinite(singles)]):
        x = np.zeros((values.size, 32), values.dtype)
        x[:, 7] = -values
        x[:, 9] = values / 3
        expected = [exact_exponent(element, rule, float(top)) + 127 if top else 0 for top in values]
        assert encoded(x, text)[1][:, 0].tolist() == expected


@each_element
@each_rule
def test_elements_are_those_of_ml_dtypes(element: str, rule: str) -> None:
    dtype, _, _, largest = ELEMENTS[element]
    x = reals((40, 96), 2) * np.float32(2.0) ** np.random.default_rng(3).integers(-140, 120, (40, 1)).astype(np.float32)
    codes, scales = encoded(x, str(hc.MX(element, rule)))
    power = 2.0 ** (scales.astype(np.float64) - 127)
    quotient = (x.reshape(40, 3, 32) / power[..., None]).reshape(40, 96)
    assert (quotient == quotient.astype(np.float32)).all()
    if dtype is None:
        expected = np.clip(np.rint(64 * quotient), -127, 127).astype(np.int8).view(np.uint8)
        values = expected.view(np.int8) / 64
    else:
        expected = np.clip(quotient, -largest, largest).astype(np.float32).astype(dtype)
        values, expected = expected.astype(np.float64), expected.view(np.uint8)
    assert np.array_equal(codes, expected)
    exact = values.reshape(40, 3, 32) * power[..., None]
    assert same_bits(hc.fake_quantize(x, str(hc.MX(element, rule))), exact.reshape(40, 96).astype(np.float32))


@each_element
def test_nothing_saturates_but_by_the_floor_rule(element: str) -> None:
    x = reals((200, 32), 4)
    largest = ELEMENTS[element][3]
    top = np.abs(x).max(axis=1)
    for rule in ("ceil", "rceil"):
        scales = encoded(x, str(hc.MX(element, rule)))[1][:, 0]
        assert (top <= largest * 2.0 ** (scales - 127.0)).all()
    rounded_up = encoded(x, str(hc.MX(element, "rceil")))[1]
    assert (rounded_up <= encoded(x, str(hc.MX(element, "ceil")))[1]).all()


# MX: the edge rules.


@each_element
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_nan_or_infinity_makes_its_group_nan(element: str, bad: float) -> None:
    text = str(hc.MX(element))
    x = reals((3, 70), 5)
    clean = hc.fake_quantize(x, text)
    x[1, 40] = bad
    codes, scales = encoded(x, text)
    assert scales[1, 1] == 0xFF and not codes[1, 32:64].any() and (np.delete(scales.ravel(), 4) != 0xFF).all()
    for isa in isas():
        with hc.use(isa=isa):
            found = hc.fake_quantize(x, text)
            assert np.isnan(found[1, 32:64]).all() and np.isnan(found).sum() == 32
            assert same_bits(np.where(np.isnan(found), clean, found), clean)
    q = hc.quantize(x, text)
    for vectors in (1, 20):
        y = hc.linear(reals((vectors, 70), 6), q)
        assert np.isnan(y[:, 1]).all() and np.isfinite(y[:, [0, 2]]).all()


@each_element
@each_rule
def test_a_group_of_zeros_has_byte_0_and_keeps_signs(element: str, rule: str) -> None:
    x = np.zeros((2, 64))
    x[0, ::3] = -0.0
    codes, scales = encoded(x, str(hc.MX(element, rule)))
    assert not scales.any()
    sign = 0 if element == "int8" else 1 << (hc.MX(element).bits - 1)
    assert codes[0, ::3].tolist() == [sign] * 22 and np.count_nonzero(codes) == (22 if sign else 0)
    x[0, 1] = 5.0
    found = hc.fake_quantize(x, str(hc.MX(element, rule)))
    assert np.signbit(found[0, ::3]).all() == (element != "int8") and not np.signbit(found[1]).any()


@each_element
@each_rule
def test_exponents_are_clamped(element: str, rule: str) -> None:
    text = str(hc.MX(element, rule))
    tiny = np.float32([[2.0**-149] * 32, [2.0**-130, -(2.0**-131)] * 16])
    codes, scales = encoded(tiny, text)
    assert not scales.any()
    found = hc.fake_quantize(tiny, text)
    assert np.abs(found - tiny).max() <= 2.0**-127 * (0.5 if element in ("fp4", "fp6_e2m3") else 0.13)
    huge = np.full((1, 32), np.finfo(np.float32).max)
    assert encoded(huge, text)[1][0, 0] == exact_exponent(element, rule, float(huge[0, 0])) + 127
    assert np.isfinite(hc.fake_quantize(huge, text)).all()


def test_a_group_of_subnormals_counts_in_full() -> None:
    x = np.float32([[2.0**-149 * n for n in range(-16, 16)]])
    codes, scales = encoded(x, "mxfp8_e5m2")
    assert scales[0, 0] == 0  # 2^-145 / 2^15 is clamped to 2^-127
    assert same_bits(hc.fake_quantize(x, "mxfp8_e5m2"), (x * 0).astype(np.float32))  # all under half of 2^-16 2^-127
    x = x * np.float32(2.0**15)
    exact = hc.fake_quantize(x, "mxfp8_e5m2")
    assert np.abs(exact - x).max() <= np.abs(x).max() / 8 and np.count_nonzero(exact) > 16


@each_element
def test_values_from_2_to_the_128_are_refused(element: str) -> None:
    text = str(hc.MX(element))
    x = np.ones((3, 40))
    x[1, 3] = 2.0**128 * (1 - 2.0**-53)  # float32 rounds this to infinity; here the input's own precision counts
    assert np.isfinite(hc.fake_quantize(x, text)).all()
    encoded(x, text)
    x[1, 5], x[1, 7] = np.nan, 2.0**128
    for call in (hc.quantize, hc.fake_quantize, reference.quantize):
        with pytest.raises(ValueError, match=r"\(1, 7\)"):
            call(x, hc.format(text))


def test_int8_elements_never_are_minus_128() -> None:
    x = np.float32([[-1.9999, 1.9999, 1, -1] * 8])
    assert np.unique(encoded(x, "mxint8")[0]).tolist() == [64, 127, 129, 192]
    assert hc.fake_quantize(x, "mxint8")[0, :4].tolist() == [-127 / 64, 127 / 64, 1, -1]


@pytest.mark.parametrize("text", ["mxfp4", "mxint8-even", "nvfp4"])
def test_clip_is_refused(text: str) -> None:
    for clip in (0.5, "octav", "percentile:99"):
        for call in (hc.quantize, hc.fake_quantize, reference.quantize):
            with pytest.raises(ValueError, match="clip"):
                call(reals((2, 40)), hc.format(text), clip=clip)


def test_parameters_of_mx() -> None:
    assert str(hc.MX("fp8_e4m3", "rceil")) == "mxfp8_e4m3-rceil" and hc.MX("fp4").bits == 4 and hc.MX("fp4").group == 32
    assert hc.MX("int8").bits == 8 and hc.NVFP4().bits == 4 and hc.NVFP4().group == 16
    for arguments, words in {
        ("fp8_e4m3fn",): "MX: element is 'fp8_e4m3fn', .*; the nearest is 'fp8_e4m3'",
        ("int4",): "the nearest is 'int8'",
        ("fp4", "rceill"): "MX: scale_rule is 'rceill', .*; the nearest is 'rceil'",
    }.items():
        with pytest.raises(ValueError, match=words):
            hc.MX(*arguments)
    for call in (lambda: hc.MX(4), lambda: hc.MX("fp4", None), lambda: hc.NVFP4(1)):
        with pytest.raises(TypeError, match="of type"):
            call()
    for wrong, nearest in {
        "mxfp4-floor": "mxfp4",
        "mxfp4_rceil": "mxfp4-rceil",
        "nvfp4-4/6": "nvfp4",
    }.items():
        with pytest.raises(ValueError, match=f"the nearest is '{nearest}"):
            hc.format(wrong)


# NVFP4.


def plain_nvfp4(x: np.ndarray, four_over_six: bool) -> tuple[list[list[int]], list[int], np.float32]:
    """Encode rows of one group each, value by value, with float32 scalars and ml_dtypes; return codes, bytes and p."""
    p = np.abs(x).max().astype(np.float32) / np.float32(1536 if four_over_six else 2688) or np.float32(1)
    rows, scales = [], []
    for row in x:
        top, found = np.abs(row).max().astype(np.float32), []
        for part in (6, 4) if four_over_six else (6,):
            wanted = min(top / np.float32(part) / p, np.float32(448))
            byte = np.asarray(wanted).astype(ml_dtypes.float8_e4m3fn)
            s = np.float32(byte) * p
            if s == 0:
                elements = np.zeros(len(row), ml_dtypes.float4_e2m1fn)
            else:
                # To odd places first, so that the way through float32 rounds nothing twice.
                quotient = np.clip(row.astype(np.float64) / np.float64(s), -6, 6)
                near = quotient.astype(np.float32)
                toward = np.nextafter(near, np.where(quotient > near, np.float32(9), np.float32(-9)))
                near = np.where((near != quotient) & (near % 0.125 == 0), toward, near)
                elements = near.astype(ml_dtypes.float4_e2m1fn)
            error = 0.0
            for value, element in zip(row, elements, strict=True):
                difference = float(value) - float(np.float32(element) * s)
                error += difference * difference
            found.append((error, elements.view(np.uint8).tolist(), int(byte.view(np.uint8))))
        best = found[1] if four_over_six and found[1][0] < found[0][0] else found[0]
        rows.append(best[1])
        scales.append(best[2])
    return rows, scales, p


@pytest.mark.parametrize("text", ["nvfp4", "nvfp4-4over6"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nvfp4_one_value_at_a_time(text: str, dtype: type) -> None:
    rng = np.random.default_rng(7)
    x = reals((60, 16), 8) * 2.0 ** rng.integers(-12, 3, (60, 1))
    x[3], x[4, 1:], x[5] = 0, 0, -0.0
    if dtype is np.float64:
        x += rng.standard_normal(x.shape) * 2.0**-40
    x = x.astype(dtype)
    codes, scales = encoded(x, text)
    expected, wanted, p = plain_nvfp4(x, text != "nvfp4")
    assert scales[:, 0].tolist() == wanted and codes.tolist() == expected
    assert hc.quantize(x, text).components["coarse"] == p


def test_nvfp4_by_hand() -> None:
    x = np.zeros((3, 16))
    x[0, :8] = [2688, 1344, 448, -224, 672, 112, -0.0, 111.9]  # p = 1, byte 448: S = 448
    x[1, :4] = [6, 5, 4, 3]  # byte 1: S = 1
    x[2, :2] = [2.0**-8, -0.0]  # byte of 2^-8 / 6 < 2^-10: 0
    codes, scales = encoded(x, "nvfp4")
    assert hc.quantize(x, "nvfp4").components["coarse"] == 1
    assert scales[:, 0].tolist() == [0x7E, 0x38, 0]
    assert codes[0, :8].tolist() == [7, 5, 2, 9, 3, 0, 8, 0]
    assert codes[1, :4].tolist() == [7, 6, 6, 5]
    assert not codes[2].any()


def test_nvfp4_of_nothing_is_nothing() -> None:
    for x in (np.zeros((2, 20)), np.full((2, 20), -0.0), np.float32([[2.0**-149] * 20] * 2)):
        q = hc.quantize(x, "nvfp4")
        assert q.components["coarse"] == 1 and not q.components["scales"].any() and not q.components["codes"].any()
        assert not q.dequantize().any() and encoded(x, "nvfp4-4over6")[1].sum() == 0
    with bad_argument(ValueError, "w", "value"):
        hc.quantize(np.float32([[0, 0, 0], [0, 0, np.inf]]), "nvfp4")


def test_nvfp4_near_the_largest_does_not_overflow() -> None:
    top = np.finfo(np.float32).max
    for text in ("nvfp4", "nvfp4-4over6"):
        x = np.float32([[top, -top, top / 2, 1] * 4, [1, 2, 3, 4] * 4])
        found = hc.fake_quantize(x, text)
        assert np.isfinite(found).all() and np.allclose(found[0], x[0], rtol=1e-6, atol=top / 100)


def test_four_over_six_takes_what_errs_less() -> None:
    x = np.zeros((2, 16))
    x[0, 0] = 1536  # p = 1
    x[1, :8] = [8, 6, 6, 6, 6, 4, 2, 1]  # 8 / 6 has no gap-free grid; at S = 2 all are elements 4 3 3 3 3 2 1 .5
    plain, four = encoded(x, "nvfp4"), encoded(x, "nvfp4-4over6")
    assert four[1][1, 0] == 0x40 and plain[1][1, 0] != 0x40
    assert four[0][1, :8].tolist() == [6, 5, 5, 5, 5, 4, 2, 1]
    assert hc.fake_quantize(x, "nvfp4-4over6").tolist() == x.tolist()
    w = reals((64, 256), 9)
    six, best = (w - hc.fake_quantize(w, text) for text in ("nvfp4", "nvfp4-4over6"))
    by_group = [(error.astype(np.float64).reshape(64, 16, 16) ** 2).sum(axis=2) for error in (six, best)]
    assert by_group[1].sum() < by_group[0].sum()


def test_four_over_six_tries_a_quarter_of_the_largest_group() -> None:
    """The scale of the array is absmax / (6 x 256), so a group with the largest value can be scaled by absmax / 4."""
    x = np.zeros((2, 16))
    x[:, :8] = [[8, 6, 6, 6, 6, 4, 2, 1]] * 2
    q = hc.quantize(x, "nvfp4-4over6")
    assert q.components["coarse"] == np.float32(8) / np.float32(1536)
    assert q.components["scales"].view(ml_dtypes.float8_e4m3fn).tolist() == [[384.0]] * 2
    assert q.dequantize().tolist() == x.tolist()


@pytest.mark.parametrize("draw", ["uniform", "tanh", "signs", "normal"])
def test_four_over_six_of_groups_of_one_magnitude(draw: str) -> None:
    """Groups near the largest value gain as much as all others; every scale byte is at most that of 384."""
    rng = np.random.default_rng(10)
    normal = rng.standard_normal((32, 512))
    drawn = {
        "uniform": rng.uniform(-1, 1, (32, 512)),
        "tanh": np.tanh(2 * normal),
        "signs": rng.choice([-1, 1, 0.75], (32, 512)),
        "normal": normal,
    }
    w = drawn[draw].astype(np.float32)
    q = hc.quantize(w, "nvfp4-4over6")
    scales = q.components["scales"].view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    assert scales.max() <= 384
    six = hc.quantize(w, "nvfp4")
    gain = hc.error(w, q).sqnr_db - hc.error(w, six).sqnr_db
    assert gain > {"uniform": 1.2, "tanh": 1.5, "signs": 8, "normal": 0.5}[draw]


def test_nvfp4_looks_at_the_whole_array() -> None:
    x = reals((4, 32), 10)
    x[2] *= 100
    whole, alone = hc.quantize(x, "nvfp4"), hc.quantize(x[:2], "nvfp4")
    assert whole.components["coarse"].shape == () and whole[:2] != alone
    assert same_bits(whole[:2].dequantize(), whole.dequantize()[:2])


# Products.


@pytest.mark.parametrize("text", ["mxfp4", "mxint8", "nvfp4-4over6", "fp8_e4m3fn-row", "fp4_e2m1-tensor", "bf16"])
@pytest.mark.sweep(every=3)
def test_products_and_convolutions_are_those_of_the_definition(text: str) -> None:
    fmt = hc.format(text)
    w, filters = reals((7, 75), 11), reals((4, 5, 3, 2), 12)
    q, weights = hc.quantize(w, fmt), product.packed(w, fmt)
    k, kernels = hc.quantize(filters, fmt, (2, 3, 1)), product.packed(filters, fmt, (2, 3, 1))
    image = reals((2, 5, 6, 5), 13)
    for isa in isas():
        with hc.use(isa=isa):
            for vectors in (1, 3, 8, 9, 20):
                x = reals((vectors, 75), vectors)
                for activations in (None, text, "int8", "mxfp8_e4m3", "vsq4-g16-s4"):
                    act = None if activations is None else hc.format(activations)
                    expected = product.linear(x, weights, activations=act)
                    assert same_bits(hc.linear(x, q, activations=act), expected), (isa, vectors, activations)
            for activations in (None, text, "int8"):
                act = None if activations is None else hc.format(activations)
                expected = convolution.conv2d(image, kernels, padding=1, activations=act)
                assert same_bits(hc.conv2d(image, k, padding=1, activations=act), expected), (isa, activations)
