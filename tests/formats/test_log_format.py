"""Log numbers: the table from exact integers, thresholds and ties, zeros, and the errors that the format states."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import inf

import numpy as np
import pytest
from common import bad_argument
from hypothesis import assume, given, settings, strategies as st

import heterocompute as hc
from heterocompute import reference
from heterocompute.formats import Log
from heterocompute.reference.formats import log as log_format

GAMMAS = (1, 2, 4, 8, 16, 32)
FORMATS = [Log(bits, gamma) for bits, gamma in product(range(2, 9), GAMMAS)]


def integer_root(n: int, degree: int) -> int:
    """Return floor(n^(1 / degree)) by bisection."""
    low, high = 0, 1 << (n.bit_length() // degree + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**degree <= n else (low, middle)
    return low


def nearest_power(numerator: int, denominator: int) -> float:
    """Return the float64 nearest to 2^(-numerator / denominator), computed with integers."""
    octaves, rest = divmod(numerator, denominator)
    # 2^(54 - rest/denominator) has 54 or 55 bits before the point: more than float64 holds.
    root = integer_root(1 << (54 * denominator - rest), denominator)
    assert rest == 0 or root**denominator < 1 << (54 * denominator - rest)  # irrational, so never a tie
    return float(Fraction(2 * root + (rest != 0), 1 << (55 + octaves)))


def stored(q: hc.QuantizedArray) -> np.ndarray:
    """Return the codes of the one row of an array."""
    codes = reference.codes(dict(q.components), q.format, q.shape, q.axis)
    return codes.reshape(-1)[: q.size]


def all_codes(fmt: Log) -> hc.QuantizedArray:
    """Return an array of every code in order, scale 1."""
    codes = reference.layout.pack(np.arange(2**fmt.bits)[None], fmt.bits)
    return hc.QuantizedArray({"codes": codes, "scales": np.ones((1, 1), np.float32)}, fmt, (1, 2**fmt.bits), (1,))


def test_the_table_is_that_of_exact_integers():
    assert log_format.POWERS.tolist() == [nearest_power(i, 64) for i in range(64)]


def test_the_table_is_nearest_by_rationals():
    for i, power in enumerate(log_format.POWERS.tolist()):
        half = Fraction(1, 2**54)  # half the last place in [1/2, 1)
        assert (Fraction(power) - half) ** 64 < Fraction(1, 2**i) < (Fraction(power) + half) ** 64


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_every_code_has_its_value(fmt):
    e_zero = 2 ** (fmt.bits - 1) - 1
    magnitudes = [nearest_power(e, fmt.gamma) for e in range(e_zero)] + [0.0]
    values = all_codes(fmt).dequantize(np.float64)[0]
    assert values.tolist() == magnitudes + [-value for value in magnitudes]
    assert np.signbit(values).tolist() == [False] * (e_zero + 1) + [True] * (e_zero + 1)
    assert np.array_equal(log_format.magnitudes(fmt), magnitudes[:-1])


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_every_threshold_goes_to_the_larger_magnitude(fmt):
    last = 2 ** (fmt.bits - 1) - 2
    thresholds = np.array([nearest_power(2 * e + 1, 2 * fmt.gamma) for e in range(last)])
    for scale in (1.0, 2.0**-90, -(2.0**70)):
        below = hc.quantize(np.append(np.nextafter(thresholds, 0), 1) * scale, fmt)
        at = hc.quantize(np.append(thresholds, 1) * scale, fmt)
        above = hc.quantize(np.append(np.nextafter(thresholds, 1), 1) * scale, fmt)
        sign = (scale < 0) << (fmt.bits - 1)
        assert stored(below)[:-1].tolist() == [sign + e + 1 for e in range(last)]
        assert stored(at)[:-1].tolist() == stored(above)[:-1].tolist() == [sign + e for e in range(last)]


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_under_half_the_smallest_is_zero_and_keeps_its_sign(fmt):
    last = 2 ** (fmt.bits - 1) - 2
    half = nearest_power(last, fmt.gamma) / 2
    x = np.array([1, half, np.nextafter(half, 0), 2.0**-1000, 0, -half, -np.nextafter(half, 0), -0.0])
    sign = 1 << (fmt.bits - 1)
    q = hc.quantize(x, fmt)
    assert stored(q).tolist() == [0, last, last + 1, last + 1, last + 1, sign + last, sign + last + 1, sign + last + 1]
    assert np.signbit(q.dequantize()).tolist() == np.signbit(x).tolist()


def test_a_group_of_zeros_has_codes_of_zero():
    q = hc.quantize(np.float32([[0, -0.0, 0, -0.0, 1, -1, 0, -0.0]]), "log4-1-g4")
    assert stored(q).tolist() == [0, 0, 0, 0, 0, 8, 7, 15]
    values = q.dequantize()[0]
    assert values.tolist() == [0, 0, 0, 0, 1, -1, 0, 0]
    assert np.signbit(values).tolist() == [False] * 5 + [True, False, True]


def test_a_float64_group_whose_scale_rounds_to_zero():
    q = hc.quantize(np.array([2.0**-151, -(2.0**-160)]), "log8-8")
    assert not q.components["scales"].any() and not q.components["codes"].any()
    assert q.dequantize(np.float64).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("gamma", "percent"), [(1, 41.421), (2, 18.921), (4, 9.051), (8, 4.427), (16, 2.190), (32, 1.089)]
)
def test_the_worst_relative_error_is_the_stated_one(gamma, percent):
    fmt = Log(8, gamma)
    smallest = nearest_power(126, gamma)
    rng = np.random.default_rng(gamma)
    x = np.exp2(rng.uniform(np.log2(smallest), 0, 200_000))
    edges = [nearest_power(2 * e + 1, 2 * gamma) for e in range(126)]
    x = np.concatenate([[1.0], x, edges])
    error = hc.quantize(x, fmt).dequantize(np.float64) / x - 1
    assert round(100 * error.max(), 3) == percent
    assert -error.min() < error.max()  # up is the worse side: down is 1 - 2^(-1/(2 gamma))
    assert np.argmax(error) > 200_000  # at a threshold, which rounds to the larger magnitude


def test_the_range_of_eight_bits():
    assert all_codes(Log(8, 1)).dequantize(np.float64)[0, 126] == 2.0**-126
    q = hc.quantize(np.float64([3.0, 3 * 2.0**-126]), "log8-1")
    assert q.dequantize().tolist() == [3.0, 3 * 2.0**-126]
    tiny = hc.quantize(np.float32([-(2.0**-140)] + [2.0**-149] * 3), "log8-1")
    assert tiny.dequantize().tolist() == [-(2.0**-140)] + [2.0**-149] * 3


def test_a_value_below_float32_is_a_signed_zero():
    codes = np.uint8([[126, 254]])
    q = hc.QuantizedArray({"codes": codes, "scales": np.float32([[2.0**-60]])}, Log(8, 1), (1, 2), (1,))
    assert q.dequantize(np.float64).tolist() == [[2.0**-186, -(2.0**-186)]]
    assert q.dequantize().tolist() == [[0, 0]] and np.signbit(q.dequantize()).tolist() == [[False, True]]


def test_the_clip_takes_the_place_of_absmax():
    x = np.float32([4, -2, 1, 0.5])
    q = hc.quantize(x, "log4-1", clip=0.5)
    assert q.components["scales"].tolist() == [[2]]
    assert q.dequantize().tolist() == [2, -2, 1, 0.5]


@pytest.mark.parametrize("value", [np.nan, inf, -inf, 1e300])
def test_what_is_no_number_is_refused_with_its_index(value):
    x = np.ones((3, 5))
    x[1, 2] = value
    with bad_argument(ValueError, "w", "value", r"at index \(1, 2\)"):
        hc.quantize(x, "log4-1-g2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bits": 1}, "Log: bits is 1, expected 2 to 8"),
        ({"bits": 9}, "Log: bits is 9, expected 2 to 8"),
        ({"gamma": 3}, "Log: gamma is 3, expected 1, 2, 4, 8, 16 or 32"),
        ({"gamma": 64}, "Log: gamma is 64, expected 1, 2, 4, 8, 16 or 32"),
        ({"group": 0}, "Log: group is 0, expected 1 to 2147483647 or None"),
    ],
)
def test_illegal_parameters_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Log(**arguments)
    params = {"bits": 8, "gamma": 8, "group": 1} | arguments
    from heterocompute import _heterocompute as core

    if params["group"]:  # 0 is None in the core
        with pytest.raises(ValueError, match="format: log has"):
            core.check_format(("log", params["bits"], params["group"], params["gamma"]))


any_format = st.builds(Log, st.integers(2, 8), st.sampled_from(GAMMAS), st.sampled_from([None, 1, 3, 16]))
normals = st.floats(2.0**-100, 2.0**100, width=32)
numbers = st.one_of(normals, normals.map(lambda x: -x), st.sampled_from([0.0, -0.0]))
arrays = st.lists(numbers, min_size=1, max_size=40).map(lambda x: np.array(x, np.float32))
patient = settings(deadline=None, print_blob=True)  # an example may take long where other work shares the machine


@patient
@given(any_format, arrays)
def test_decoded_values_have_the_same_codes(fmt, x):
    q = hc.quantize(x, fmt)
    exact = np.abs(q.dequantize(np.float64))
    assume(np.all(exact[exact > 0] >= 2.0**-126))  # subnormals have too few bits to tell the steps apart
    assert hc.quantize(q.dequantize(), fmt) == q


@patient
@given(any_format, arrays)
def test_signs_are_symmetric_and_order_is_kept(fmt, x):
    values = hc.fake_quantize(x, fmt)
    if fmt.group is None:
        order = np.argsort(x, kind="stable")
        assert np.all(np.diff(values[order]) >= 0)
    turned = hc.fake_quantize(-x, fmt)
    assert np.array_equal(turned, -values)


@patient
@given(any_format, arrays, st.integers(-20, 20))
def test_a_power_of_two_moves_only_the_scale(fmt, x, exponent):
    q, moved = hc.quantize(x, fmt), hc.quantize(np.ldexp(x, exponent), fmt)
    assert np.array_equal(q.components["codes"], moved.components["codes"])
    assert np.array_equal(np.ldexp(q.components["scales"], exponent), moved.components["scales"])


@patient
@given(any_format, arrays)
def test_the_error_is_bounded_by_half_a_step(fmt, x):
    x = x.astype(np.float64)
    values = hc.quantize(x, fmt).dequantize(np.float64)
    group = fmt.group or len(x)
    peak = np.repeat([np.abs(x[i : i + group]).max() for i in range(0, len(x), group)], group)[: len(x)]
    last = nearest_power(2 ** (fmt.bits - 1) - 2, fmt.gamma)
    inside = np.abs(x) >= last * peak
    bound = (2 ** (0.5 / fmt.gamma) - 1) * (1 + 1e-12)
    assert np.all(np.abs(values - x)[inside] <= bound * np.abs(x)[inside])
    outside = np.abs(values - x)[~inside]
    assert np.all(outside <= (last / 2 * peak * (1 + 1e-12))[~inside])
