"""Small floats: every code and midpoint as in ml_dtypes, float64 and tf32 as exact rationals, and the edge cases."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from common import bad_argument, isas, reals, same_bits

import heterocompute as hc
from heterocompute import reference
from heterocompute.arrays.bits import pack, unpack
from heterocompute.reference.minifloat import TYPES

ML = {
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
    "fp8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
    "fp6_e3m2": ml_dtypes.float6_e3m2fn,
    "fp6_e2m3": ml_dtypes.float6_e2m3fn,
    "fp4_e2m1": ml_dtypes.float4_e2m1fn,
}
LARGEST = np.finfo(np.float32).max
each_type = pytest.mark.parametrize("name", ML)


def codes_of(x: np.ndarray, text: str) -> np.ndarray:
    """Return the codes of a vector from the core, after a comparison with the definition."""
    q = hc.quantize(x, text, axis=0)
    if x.size <= 1 << 18:
        expected = reference.quantize(x, hc.format(text), 0)
        assert all(same_bits(q.components[name], part) for name, part in expected.items())
    return unpack(q.components["codes"], hc.format(text).bits, x.size)[0]


def ml_codes(x: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        found = x.astype(ML[name])
    return found.view(np.uint16 if found.itemsize == 2 else np.uint8)


def all_values(text: str) -> np.ndarray:
    """Return the values of codes 0, 1, ... of a format without a scale, from the core."""
    fmt = hc.format(text)
    codes = np.arange(2**fmt.bits, dtype=np.uint32)[None]
    return hc.QuantizedArray({"codes": pack(codes, fmt.bits)}, fmt, codes.shape, (1,)).dequantize()[0]


@each_type
def test_every_code_has_the_value_of_ml_dtypes(name: str) -> None:
    found = all_values(name)
    codes = np.arange(found.size, dtype=np.uint16 if hc.format(name).bits == 16 else np.uint8)
    expected = codes.view(ML[name]).astype(np.float32)
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.array_equal(np.signbit(found), np.signbit(expected))
    kept = codes[~np.isnan(found)]
    assert np.array_equal(codes_of(found[kept], f"{name}-nosat"), kept)  # infinities included


@each_type
def test_midpoints_and_their_neighbours_round_as_ml_dtypes_does(name: str) -> None:
    values = all_values(name)
    values = np.unique(np.abs(values[np.isfinite(values)]))
    last_step = values[-1] - values[-2]
    edge = values[-1] + np.float32(0.5) * last_step  # values from here on are out of range
    middle = np.append((values[1:].astype(np.float64) + values[:-1]) / 2, edge).astype(np.float32)
    x = np.concatenate([middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(0)), values])
    x = np.concatenate([x, -x])
    expected = ml_codes(x, name)
    assert np.array_equal(codes_of(x, f"{name}-nosat"), expected)
    largest = np.where(np.signbit(x), ml_codes(-values[-1:], name), ml_codes(values[-1:], name))
    beyond = ~(np.abs(expected.view(ML[name]).astype(np.float32)) <= values[-1])
    assert np.array_equal(codes_of(x, name), np.where(beyond, largest, expected))


@each_type
def test_a_million_bit_patterns_round_as_ml_dtypes_does(name: str) -> None:
    x = np.random.default_rng(1).integers(0, 2**32, 10**6, dtype=np.uint64).astype(np.uint32).view(np.float32)
    if TYPES[name].nan is None:
        x = x[np.isfinite(x)]
    found, expected = codes_of(x, f"{name}-nosat"), ml_codes(x, name)
    nan = np.isnan(x)
    assert np.array_equal(found[~nan], expected[~nan])
    if nan.any():
        assert np.isnan(all_values(name)[found[nan]]).all()
        assert np.array_equal(found[nan] >> (hc.format(name).bits - 1), np.signbit(x[nan]))


def exact_code(name: str, x: float) -> int:
    """Return the code of a finite value in exact rationals, with saturation."""
    kind = TYPES[name]
    magnitude, exponent = Fraction(abs(x)), 1 - kind.bias
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    place = Fraction(2) ** (exponent - kind.fraction_bits)
    units, rest = divmod(magnitude, place)
    units += rest > place / 2 or (rest == place / 2 and units % 2 == 1)
    code = min(((exponent - (1 - kind.bias)) << kind.fraction_bits) + units, kind.largest)
    return code << kind.low_zeros | (np.signbit(x) << (kind.bits - 1))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.sweep(every=4)
def test_float64_is_rounded_once(name: str) -> None:
    kind = TYPES[name]
    rng = np.random.default_rng(2)
    spread = range(-kind.bias - kind.fraction_bits - 3, 2 ** (kind.bits - kind.low_zeros - kind.fraction_bits - 2))
    low, high = max(min(spread), -160), min(max(spread), 130)
    x = rng.standard_normal(400) * 2.0 ** rng.integers(low, high, 400)
    # Halfway between two neighbours, except for bits beyond float32: two roundings would produce a tie.
    step = 2.0**-kind.fraction_bits
    middle = (1 + step * (rng.integers(0, 2**kind.fraction_bits, 60) + 0.5)) * 2.0 ** rng.integers(1, 2, 60)
    x = np.concatenate([x, middle, middle * (1 + 2.0**-50), middle * (1 - 2.0**-50), [5e-324, -5e-324, 1e300, -1e300]])
    x = np.concatenate([x, [2.0 ** (1 - kind.bias - kind.fraction_bits - 1) * f for f in (1, 1 + 2.0**-50, 3, -1)]])
    assert codes_of(x, name).tolist() == [exact_code(name, value) for value in x.tolist()]


def test_ties_of_the_definition() -> None:
    x = np.float32([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 5.0001, 7])
    assert hc.fake_quantize(x, "fp4_e2m1").tolist() == [0, 1, 1, 2, 2, 4, 4, 6, 6]
    x = np.array([400, 464, 2.0**-10, 1.0001 * 2.0**-10])
    for text in ("fp8_e4m3fn", "fp8_e4m3fn-nosat"):
        assert hc.fake_quantize(x, text).tolist() == [384, 448, 0, 2.0**-9]
    assert np.isnan(hc.fake_quantize(np.array([464.0001]), "fp8_e4m3fn-nosat")).all()
    assert hc.fake_quantize(np.array([61439.0, 61440, 1e9]), "fp8_e5m2-nosat").tolist() == [57344, np.inf, np.inf]
    table = {
        "fp8_e4m3fn": (448, 2.0**-6, 2.0**-9),
        "fp8_e5m2": (57344, 2.0**-14, 2.0**-16),
        "fp6_e3m2": (28, 0.25, 0.0625),
    }
    table |= {"fp6_e2m3": (7.5, 1, 0.125), "fp4_e2m1": (6, 1, 0.5), "fp16": (65504, 2.0**-14, 2.0**-24)}
    for name, (largest, normal, subnormal) in table.items():
        values = all_values(name)
        values = values[np.isfinite(values) & (values > 0)]
        assert (values.max(), values.min()) == (largest, subnormal)
        assert normal == subnormal * 2 ** TYPES[name].fraction_bits


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        *((name, np.inf, "largest") for name in TYPES if name != "fp32"),
        *((name, -np.inf, "largest") for name in TYPES if name != "fp32"),
        *((name, np.nan, np.nan) for name in TYPES if TYPES[name].nan is not None),
        *((name, np.nan, None) for name in TYPES if TYPES[name].nan is None),
        *((f"{name}-nosat", np.nan, None) for name in TYPES if TYPES[name].nan is None),
        *((f"{name}-nosat", np.inf, None) for name in ("fp6_e3m2", "fp6_e2m3", "fp4_e2m1")),
        *((f"{name}-nosat", np.inf, np.inf) for name in ("fp32", "tf32", "bf16", "fp16", "fp8_e5m2")),
        ("fp8_e4m3fn-nosat", np.inf, np.nan),
        ("fp8_e4m3fn-nosat", -np.inf, np.nan),
        ("fp32", np.inf, np.inf),
        ("fp32", -np.inf, -np.inf),
        ("fp4_e2m1-nosat", 1e30, "largest"),
        ("fp6_e2m3-nosat", -1e300, "largest"),
        ("fp16-nosat", 65520.0, np.inf),
        ("fp16", 1e300, "largest"),
        ("fp32", 1e300, "largest"),
        ("fp32-nosat", -1e300, -np.inf),
        ("tf32-nosat", 2.0**128 * (1 - 2.0**-12), np.inf),
        *((f"fp8_e5m2-{scaled}", value, None) for scaled in ("row", "tensor") for value in (np.nan, np.inf, 1e39)),
    ],
)
def test_nan_infinity_and_overflow(text: str, value: float, expected: float | str | None) -> None:
    x = np.array([[1.0, -1.0, value, 0.5]])
    fmt = hc.format(text)
    for isa in isas():
        with hc.use(isa=isa):
            if expected is None:
                for call in (hc.quantize, reference.quantize, hc.fake_quantize):
                    with pytest.raises(ValueError, match=r"\(0, 2\)"):
                        call(x, fmt)
                continue
            codes_of(x[0], text)
            found = hc.fake_quantize(x, fmt)
            assert found[0, :2].tolist() == [1, -1]
            wanted = np.copysign(TYPES[fmt.name].maximum, value) if expected == "largest" else expected
            assert found[0, 2] == wanted or (np.isnan(found[0, 2]) and np.isnan(wanted))


def test_fp32_is_the_identity() -> None:
    x = np.random.default_rng(3).integers(0, 2**32, 4096, dtype=np.uint64).astype(np.uint32)
    x[(x & 0x7FFFFFFF) > 0x7F800000] |= 0x400000  # a signalling NaN becomes quiet; its payload stays
    values = x.view(np.float32)
    assert np.isnan(values).any()
    q = hc.quantize(values, "fp32", axis=0)
    assert q.components["codes"][0].tobytes() == values.tobytes() and same_bits(q.dequantize(), values)
    wide = np.random.default_rng(4).standard_normal(1000)
    assert same_bits(hc.fake_quantize(wide, "fp32"), wide.astype(np.float32))
    assert hc.fake_quantize(np.array([2.0**128, 2.0**128 - 2.0**103]), "fp32").tolist() == [LARGEST, LARGEST]


def test_tf32_has_the_bits_of_a_float32() -> None:
    x = reals((3, 64), 5)
    q = hc.quantize(x, "tf32")
    bits = q.components["codes"].view("<u4")
    assert not (bits & 0x1FFF).any() and np.array_equal(bits.view(np.float32), q.dequantize())
    assert np.abs(q.dequantize() - x).max() <= np.abs(x).max() * 2.0**-11


@pytest.mark.parametrize("text", ["fp16", "bf16", "fp8_e4m3fn", "fp6_e2m3", "fp4_e2m1", "tf32", "fp4_e2m1-row"])
def test_minus_zero_keeps_its_sign(text: str) -> None:
    found = hc.fake_quantize(np.array([0.0, -0.0, -1e-300, 1.0]), text)
    assert np.signbit(found).tolist() == [False, True, True, False] and found[:3].tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["fp8_e4m3fn", "fp8_e5m2", "fp6_e3m2", "fp4_e2m1", "fp16", "bf16"])
@pytest.mark.parametrize("scaled", ["row", "tensor"])
def test_the_scale_takes_absmax_to_the_largest(name: str, scaled: str) -> None:
    x = reals((6, 50), 6)
    x[2] = 0
    x[4, 1::2] *= -1
    q = hc.quantize(x, f"{name}-{scaled}")
    largest = np.float32(TYPES[name].maximum)
    absmax = np.abs(x).max(axis=1 if scaled == "row" else None)
    scale = q.components["scales"][:, 0] if scaled == "row" else q.components["coarse"]
    assert q.components.keys() == {"codes", "scales" if scaled == "row" else "coarse"}
    assert same_bits(np.asarray(scale), np.asarray(absmax / largest, np.float32))
    divisor = np.where(scale == 0, 1, scale).astype(np.float64).reshape(-1, 1)
    expected = [codes_of(row, name) for row in x / divisor]
    assert np.array_equal(unpack(q.components["codes"], q.format.bits, 50), expected)
    decoded = [all_values(name)[codes] for codes in expected]
    assert same_bits(q.dequantize(), (np.float64(scale).reshape(-1, 1) * decoded).astype(np.float32))


@pytest.mark.parametrize("text", ["fp8_e4m3fn-row", "fp4_e2m1-tensor", "fp16-row", "fp8_e5m2-row"])
def test_rows_of_zeros_of_subnormals_and_near_the_largest(text: str) -> None:
    zeros = hc.quantize(np.array([[0.0, -0.0]]), text)
    assert not any(part.any() for part in zeros.components.values())
    tiny = hc.quantize(np.float32([[2.0**-149, -(2.0**-149)]]), text)  # the division rounds to 0
    assert not any(part.any() for part in tiny.components.values())
    subnormal = np.float32([[1, -0.5, 0.25]]) * np.float32(2.0**-127)
    assert np.abs(hc.fake_quantize(subnormal, text) - subnormal).max() <= np.abs(subnormal).max() / 4
    huge = np.float32([[LARGEST, -LARGEST, LARGEST / 2]])
    assert (
        np.allclose(hc.fake_quantize(huge, text), huge, rtol=0.25) and np.isfinite(hc.fake_quantize(huge, text)).all()
    )


def test_a_threshold_of_a_tensor_is_one_of_all_its_values() -> None:
    x = np.random.default_rng(7).laplace(size=(9, 31))
    for p in (50, 99, 99.9, 100):
        for dtype in (np.float32, np.float64):
            scale = hc.quantize(x.astype(dtype), "fp4_e2m1-tensor", clip=f"percentile:{p}").components["coarse"]
            assert scale == np.float32(np.percentile(np.abs(x.astype(dtype)).astype(float), p)) / np.float32(6)
    whole = hc.quantize(x.reshape(1, -1), "fp8_e4m3fn-row", clip="octav").components["scales"][0, 0]
    for axis, array in ((1, x), (0, np.asfortranarray(x)), ((0, 1), x)):
        q = hc.quantize(array, "fp8_e4m3fn-tensor", axis, clip="octav")
        expected = reference.quantize(array, q.format, axis, "octav")
        assert same_bits(q.components["coarse"], expected["coarse"])
        if axis != 0:
            assert q.components["coarse"] == whole
    half = hc.quantize(x, "fp6_e3m2-tensor", clip=0.5).components["coarse"]
    assert half == np.float32(0.5 * np.float64(np.abs(x).max().astype(np.float32))) / np.float32(28)
    x[4, 5] = np.nan
    for clip in (0.5, "octav", "percentile:99"):
        with bad_argument(ValueError, "w", "value"):
            hc.quantize(x, "fp4_e2m1-tensor", clip=clip)


@pytest.mark.parametrize("text", ["bf16", "fp8_e4m3fn", "fp4_e2m1", "fp8_e4m3fn-tensor", "tf32"])
def test_formats_without_rows_multiply_along_any_axis(text: str) -> None:
    x, w = reals((3, 20), 8), reals((20, 11), 9)
    along, across = hc.quantize(w, text, axis=0), hc.quantize(w, text, axis=1)
    assert same_bits(hc.matmul(x, along), hc.matmul(x, across))
    with bad_argument(ValueError, "b", "axis"):
        hc.matmul(x, hc.quantize(w, "fp8_e4m3fn-row", axis=1))


@pytest.mark.parametrize("text", ["tf32", "bf16", "fp16", "fp8_e4m3fn", "fp8_e5m2-nosat", "fp6_e2m3", "fp4_e2m1"])
def test_elements_are_an_array_of_ml_dtypes(text: str) -> None:
    for shape, axis in (((3, 37), 1), ((4, 6, 2, 3), (2, 3, 1))):
        q = hc.quantize(reals(shape, 10), text, axis)
        found = q.view_ml_dtypes()
        assert found.dtype == np.dtype(ML.get(q.format.name, np.float32))
        assert same_bits(found.astype(np.float32), q.dequantize())
        assert hc.quantize(found, text, axis) == q or hc.quantize(found.astype(np.float32), text, axis) == q


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (("fp8",), ValueError, "Float: name is 'fp8', expected 'fp32', .*; the nearest is 'fp8_e"),
        (("FP16",), ValueError, "the nearest is 'fp16'"),
        (("x" * 10**6,), ValueError, "Float: name is 'xxx"),
        ((None,), TypeError, "Float: name is None of type NoneType"),
        ((8,), TypeError, "Float: name is 8 of type int"),
        (("fp16", 1), TypeError, "Float: saturate is 1 of type int"),
        (("fp16", True, "groups"), ValueError, "Float: scaled is 'groups', expected 'row', 'tensor', 'group' or None"),
        (("fp16", True, "group"), ValueError, "group is None, expected a group with scaled='group' only"),
        (("fp16", True, "row", 8), ValueError, "scaled is 'row' and group is 8, expected a group with"),
        (("fp16", True, 1), TypeError, "Float: scaled is 1 of type int"),
    ],
)
def test_bad_parameters_are_named(arguments: tuple, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        hc.Float(*arguments)
    assert len(str(caught.value)) < 400


def test_parameters_and_texts() -> None:
    fmt = hc.Float("fp8_e4m3fn", saturate=False, scaled="row")
    assert str(fmt) == "fp8_e4m3fn-nosat-row" and fmt.bits == 8 and fmt.group is None
    assert repr(hc.format("bf16")) == "Float(name='bf16', saturate=True, scaled=None, group=None)"
    for wrong, nearest in {
        "fp8_e4m3": "fp8_e4m3fn",
        "fp8_e4m3fn-row-nosat": "fp8_e4m3fn-nosat-row",
        "FP8_E5M2": "fp8_e5m2",
        "fp4_e2m1-tensr": "fp4_e2m1-tensor",
        "fp_16": "fp16",
    }.items():
        with pytest.raises(ValueError, match=f"the nearest is '{nearest}'"):
            hc.format(wrong)
