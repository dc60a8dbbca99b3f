"""Emulated matmuls compared with the definition, with arithmetic by hand, and with errors that papers state."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product as pairs

import ml_dtypes
import numpy as np
import pytest
from common import reals, same_bits

import heterocompute as hc
from heterocompute.emulate.codes import log_codes
from heterocompute.reference import emulation

matmul = hc.emulate.matmul
INTEGERS = [
    "int8",
    "int3-asym",
    "int4-g7",
    "int4-g16-f16",
    "vsq4-g16-s4",
    "vsq4u-g5-s6-tensor",
    "vsq4-g16",
    "vsq8-g64-s8",
]
ACCUMULATORS = {"int32": (32, False), "int24-sat": (24, True), "int12-sat": (12, True), "int9-wrap": (9, False)}
LOGS = [("log8-8", "log6-8"), ("log4-1-g16", "log8-1"), ("log6-4-g7", "log6-4-g5"), ("log8-32", "log8-32-g64")]


def table_bits(conversion: str, gamma: int) -> int:
    if conversion.startswith("hybrid"):
        return int(conversion[-1])
    return gamma.bit_length() - 1 if conversion == "exact" else 0


def test_log_codes_follow_the_levels_of_the_form():
    usual = hc.format("log4-1").form
    found = log_codes(usual)
    assert found.tolist() == [0, 1, 2, 3, 4, 5, 6, 512, *(1 << 10 | e for e in (0, 1, 2, 3, 4, 5, 6, 512))]
    other = replace(usual, levels=usual.levels[::-1])  # a format may number its codes differently
    assert log_codes(other).tolist() == found[::-1].tolist()
    for gamma in (2, 8, 32):
        assert (log_codes(hc.format(f"log8-{gamma}").form)[:127] == np.arange(127)).all()


# Against the definition.


@pytest.mark.parametrize("a_text", INTEGERS)
@pytest.mark.parametrize("b_text", INTEGERS)
@pytest.mark.parametrize("conversion", ["exact", "mitchell"])
@pytest.mark.sweep(every=5)
def test_products_of_codes_are_the_definition(a_text, b_text, conversion):
    a, b = hc.quantize(reals((2, 40), 1), a_text), hc.quantize(reals((3, 40), 2), b_text)
    groups = a.format.group or b.format.group
    whole = [q.format.group is None or getattr(q.format, "scale_bits", None) for q in (a, b)]
    widths = [None, 4, 6, 8] if all(whole) and groups else [None]
    for (accumulator, (bits, saturate)), chunk, width in pairs(ACCUMULATORS.items(), (None, 1, 3), widths):
        found = matmul(a, b.T, accumulator, width, conversion, chunk)
        step = chunk or (None if groups else 1)
        expected = emulation.codes_product(a, b, bits, saturate, step, width, conversion)
        assert same_bits(found, expected), (accumulator, chunk, width)


@pytest.mark.parametrize(("a_text", "b_text"), LOGS)
def test_products_of_logs_are_the_definition(a_text, b_text):
    a, b = hc.quantize(reals((2, 40), 3), a_text), hc.quantize(reals((3, 40), 4), b_text)
    gamma, groups = a.format.gamma, a.format.group or b.format.group
    for conversion in ["exact", "mitchell", *(f"hybrid:{n}" for n in range(gamma.bit_length()))]:
        bits_of_table = table_bits(conversion, gamma)
        found = matmul(a, b.T, "float64", conversion=conversion)
        assert same_bits(found, emulation.log_product(a, b, None, False, None, bits_of_table))
        for (accumulator, (bits, saturate)), fraction, chunk in pairs(ACCUMULATORS.items(), (None, 12), (None, 3)):
            found = matmul(a, b.T, accumulator, conversion=conversion, chunk=chunk, fraction_bits=fraction)
            step = chunk or (None if groups else 1)
            expected = emulation.log_product(a, b, bits, saturate, step, bits_of_table, fraction)
            assert same_bits(found, expected), (conversion, accumulator, fraction, chunk)


def awkward(shape, seed, spread):
    """Return float32 values of very different sizes with zeros of both signs."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread, shape)
    x[0, ::3], x[1] = -0.0, 0
    return x.astype(np.float32)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("kind", ["fp16", "bf16", "fp22", "fp32"])
@pytest.mark.parametrize("extra_bits", [None, 0, 2, 8])
@pytest.mark.parametrize("rounding", ["rne", "truncate"])
def test_products_of_floats_are_the_definition(kind, extra_bits, rounding):
    operands = [(awkward((3, 33), 5, 8), awkward((2, 33), 6, 8)), (awkward((3, 33), 7, 120), awkward((2, 33), 8, 20))]
    operands.append((awkward((3, 33), 9, 3) * np.float32(2.0**-130), awkward((2, 33), 10, 3)))
    for (a, b), chunk in pairs(operands, (1, 2, 4, 16, 64)):
        found = matmul(a, b.T, kind, chunk=chunk, extra_bits=extra_bits, rounding=rounding)
        width = None if extra_bits is None else emulation.FLOATS[kind][0] + extra_bits
        assert same_bits(found, emulation.float_product(a, b, kind, chunk, width, rounding)), chunk


@pytest.mark.parametrize("name", ["hfma", "hdp4a", "hmma", "hmma-v100", "hmma-a100", "hmma-ada", "hmma-h100"])
def test_instructions_of_floats_are_the_definition(name):
    preset = hc.emulate.INSTRUCTIONS[name]
    a, b = awkward((4, 50), 11, 7).astype(np.float16), awkward((3, 50), 12, 7).astype(np.float16)
    a[2] *= np.float16(2.0**-12)  # subnormal factors
    for accumulator in preset.accumulators:
        found = matmul(a, b.T, accumulator, instruction=name)
        left, right = a.astype(np.float32), b.astype(np.float32)
        options = preset.chunk, preset.aligned_bits, preset.rounding(accumulator), "fp16", "truncate"
        lowest = preset.lowest.get(accumulator)
        assert same_bits(found, emulation.float_product(left, right, accumulator, *options, lowest=lowest))
        assert preset.aligned_bits or preset.rounding(accumulator) == "rne"


def held(values, inputs):
    """Return values rounded to the type, as float32."""
    if inputs == "tf32":
        return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    name = {"fp16": "float16", "bf16": "bfloat16", "fp8_e4m3fn": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}[inputs]
    return values.astype(np.float16 if inputs == "fp16" else getattr(ml_dtypes, name)).astype(np.float32)


MEASURED = [name for name in hc.emulate.INSTRUCTIONS if name.count("-") == 2 or name == "hmma-b200"]


@pytest.mark.parametrize("name", MEASURED)
def test_tensor_cores_of_other_types_are_the_definition(name):
    preset = hc.emulate.INSTRUCTIONS[name]
    a = held(np.clip(awkward((2, 70), 11, 6), -400, 400), preset.inputs)
    b = held(np.clip(awkward((2, 70), 12, 6), -400, 400), preset.inputs)
    a[1] = held(a[1] * np.float32(2.0**-7), preset.inputs)  # subnormal factors of fp8
    for accumulator in preset.accumulators:
        found = matmul(a, b.T, accumulator, instruction=name)
        options = preset.chunk, preset.aligned_bits, preset.rounding(accumulator), preset.inputs, "truncate"
        lowest = preset.lowest.get(accumulator)
        assert same_bits(found, emulation.float_product(a, b, accumulator, *options, lowest=lowest))
    assert hc.emulate.parse(name) == {"instruction": name}
    with pytest.raises(ValueError, match=f"expected values of .*, which {name} multiplies"):
        matmul(a + np.float32(2.0**-20), b.T, instruction=name)


ENDS = [("hmma-h100-tf32", "fp32", -133), ("hmma-b200-bf16", "fp32", -133)]
ENDS += [("hmma-h100", "fp16", -21), ("hmma-b200", "fp16", -15)]


@pytest.mark.parametrize(("name", "accumulator", "lowest"), ENDS)
def test_exponents_of_addends_have_an_end(name, accumulator, lowest):
    preset = hc.emulate.INSTRUCTIONS[name]
    rng = np.random.default_rng(3)
    low = -75 if accumulator == "fp32" else -20
    values = np.ldexp(rng.standard_normal((2, 6, 48)), low + rng.integers(-6, 8, (2, 6, 48))).astype(np.float32)
    a, b = held(values, preset.inputs)
    options = preset.chunk, preset.aligned_bits, preset.rounding(accumulator), preset.inputs, "truncate"
    wanted = emulation.float_product(a, b, accumulator, *options, lowest=lowest)
    assert same_bits(matmul(a, b.T, accumulator, instruction=name), wanted)


def test_below_the_lowest_unit_addends_are_cut_off():
    """2^-149 is the last bit of fp32, and 2^-158 the last that an H100 adds: the unit of the exponent -133."""
    for down, count, kept in ((-158, 1, True), (-159, 2, False)):
        a, b = np.zeros((2, 8), np.float32)
        a[0], b[0] = 2.0**-70, 2.0**-79 - 2.0**-88
        a[1 : 1 + count], b[1 : 1 + count] = 2.0**-79, 2.0 ** (down + 79)
        assert same_bits(matmul(a, b, instruction="hmma-h100-tf32"), np.float32(2.0**-149 if kept else 0))
        assert same_bits(matmul(a, b, instruction="hmma-a100-tf32"), np.float32(2.0**-149))


def test_a_tensor_core_has_no_minus_zero():
    tiny = np.float32([2.0**-100])
    for accumulator, options in (("fp32", {"instruction": "hmma-h100-bf16"}), ("fp32", {"extra_bits": 2})):
        assert same_bits(matmul(-tiny, tiny, accumulator, **options), np.float32(0))
    assert same_bits(matmul(-tiny, tiny, "fp32"), np.float32(-0.0))


def test_other_types_have_the_steps_of_the_published_models():
    """bf16 has the steps of fp16, tf32 half, fp8 twice as many: addends that sum to one bit, in one step or in two."""
    for name, steps, extra in (("a100-tf32", 4, 1), ("h100-tf32", 8, 2), ("a100-bf16", 8, 1), ("b200-e5m2", 32, 2)):
        a, b = np.zeros(2 * steps, np.float32), np.zeros(2 * steps, np.float32)
        a[0] = b[0] = 1
        down = 23 + extra
        tiny = np.float32(2.0 ** -(down // 2)), np.float32(2.0 ** -(down - down // 2))
        count = 2**extra  # number of addends of one unit that sum to one bit
        a[1 : 1 + count], b[1 : 1 + count] = tiny
        assert matmul(a, b, instruction=f"hmma-{name}") == 1 + 2.0**-23
        a[1 : 1 + count] = b[1 : 1 + count] = 0
        a[steps - 1 : steps - 1 + count], b[steps - 1 : steps - 1 + count] = tiny  # one in this step, the rest later
        assert matmul(a, b, instruction=f"hmma-{name}") == 1


# By hand.


@pytest.mark.parametrize(("accumulator", "low", "high"), [("int5-sat", -16, 15), ("int9-sat", -256, 255)])
def test_saturation_of_every_pair_and_triple(accumulator, low, high):
    codes = np.arange(-8, 8, dtype=np.int8)
    found = matmul(codes[:, None], codes[None, :], accumulator)
    assert np.array_equal(found, np.clip(np.multiply.outer(codes.astype(int), codes), low, high))
    triples = np.array(list(pairs(codes[::2], repeat=3)), np.int8)
    total = np.zeros(len(triples), int)
    for column in triples.T:
        total = np.clip(total + 5 * column.astype(int), low, high)
    assert np.array_equal(matmul(triples, np.full(3, 5, np.int8), accumulator), total)


def test_saturation_depends_on_the_order_and_on_the_chunk():
    ones, rising, falling = np.ones(3, np.int8), np.int8([100, 100, -100]), np.int8([-100, 100, 100])
    assert matmul(rising, ones, "int8-sat") == 27 and matmul(falling, ones, "int8-sat") == 100
    assert matmul(rising, ones, "int8-sat", chunk=3) == matmul(falling, ones, "int8-sat", chunk=3) == 100
    assert matmul(rising, ones, "int8-sat", chunk=2) == 27 and matmul(rising, ones, "int16-sat") == 100


def test_wrapping_does_not_depend_on_the_order_or_on_the_chunk():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (3, 500)), rng.integers(-128, 128, (500, 2))
    exact, order = a @ b, rng.permutation(500)
    for bits in (2, 9, 16, 20):
        half = 2 ** (bits - 1)
        expected = (exact + half) % (2 * half) - half
        for chunk in (None, 1, 7):
            assert np.array_equal(matmul(a, b, f"int{bits}-wrap", chunk=chunk), expected)
            assert np.array_equal(matmul(a[:, order], b[order], f"int{bits}-wrap", chunk=chunk), expected)


@pytest.mark.parametrize("instruction", [None, "dp4a", "imma"])
def test_int32_wraps_at_two_to_the_31(instruction):
    x = np.full(2**17, -128, np.int8)
    assert matmul(x, x, instruction=instruction) == -(2**31)
    assert matmul(x[1:], x[1:], instruction=instruction) == 2**31 - 2**14


def test_without_overflow_it_is_the_product():
    x, w = reals((4, 70), 13), reals((5, 70), 14)
    for a_text, b_text in pairs(INTEGERS, INTEGERS):
        a, b = hc.quantize(x, a_text), hc.quantize(w, b_text)
        assert same_bits(matmul(a, b.T), hc.matmul(a, b.T))
        assert same_bits(matmul(a, b.T, "int60-sat", chunk=5), hc.matmul(a, b.T))
    assert same_bits(matmul(x, w.T, "fp32"), hc.linear(np.tile(x, (3, 1)), hc.quantize(w, "fp32"))[:4])


def test_scale_products_keep_their_upper_bits():
    """Keller 2022: S = clip(S + dot * R(s_a s_b)), groups of 64, 8-bit scales, products of 8 bits."""
    fmt = hc.format("vsq4-g64-s8")
    x, w = reals((3, 256), 15), reals((4, 256), 16)
    a, b = hc.quantize(x, fmt), hc.quantize(w, fmt)
    found = matmul(a, b.T, "int24-sat", scale_product_bits=8)
    sides = [emulation.rows(q) for q in (a, b)]
    for i, j in np.ndindex(3, 4):
        total = 0
        for g in range(4):
            part = slice(64 * g, 64 * g + 64)
            dot = sum(p * q for p, q in zip(sides[0].codes[i][part], sides[1].codes[j][part], strict=True))
            scale = int(sides[0].integer_scales[i, g]) * int(sides[1].integer_scales[j, g])
            upper, rest = divmod(scale, 256)
            upper += rest > 128 or (rest == 128 and upper % 2 == 1)
            total = max(-(2**23), min(total + dot * min(upper, 255), 2**23 - 1))
        factor = float(a.components["coarse"][i]) * float(b.components["coarse"][j])
        assert found[i, j] == np.float32(factor * (total * 256.0))
    assert hc.error(matmul(a, b.T), found).sqnr_db > 40
    assert hc.error(matmul(a, b.T), matmul(a, b.T, "int24-sat", scale_product_bits=4)).sqnr_db < 40


@pytest.mark.parametrize(
    ("m", "bits", "largest"), [(4, 4, 14), (4, 6, 56), (4, 8, 225), (6, 4, 15), (8, 8, 254), (8, 4, 15), (10, 4, 15)]
)
@pytest.mark.sweep(every=4)
def test_every_rounded_product_of_scales_fits_its_bits(m, bits, largest):
    scales = range(2**m)
    products = {emulation.rounded_scale(x * y, 2 * m, bits)[0] for x in scales for y in scales[: x + 1]}
    assert min(products) == 0 and max(products) == largest < 2**bits


def test_the_multiplier_of_mitchell_errs_by_a_ninth():
    codes = np.arange(-255, 256)
    found = matmul(codes[:, None], codes[None, :], conversion="mitchell")
    exact = np.multiply.outer(codes, codes)
    assert np.array_equal(np.sign(found), np.sign(exact)) and np.all(np.abs(found) <= np.abs(exact))
    ratio = [Fraction(int(m), int(e)) for m, e in zip(found[exact > 0], exact[exact > 0], strict=True)]
    assert 1 - min(ratio) == Fraction(1, 9)  # 11.11 %, where both fractions are 1/2
    powers = 2 ** np.arange(8)
    assert np.array_equal(found[255 + powers][:, 255:], exact[255 + powers][:, 255:])  # a power of two is exact


def all_log_products(gamma: int, conversion: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the products of all pairs of nonzero log8 codes, emulated and exact."""
    count = 127
    codes = np.arange(count, dtype=np.uint8)
    fmt, ones = hc.Log(8, gamma), np.ones((count, 1), np.float32)
    q = hc.QuantizedArray({"codes": codes[:, None], "scales": ones}, fmt, (count, 1), (1,))
    found = matmul(q, q.T, "float64", conversion=conversion).astype(np.float64)
    return found, np.exp2(-np.add.outer(np.arange(count), np.arange(count)) / gamma)


@pytest.mark.parametrize("gamma", [2, 4, 8, 16, 32])
def test_conversions_of_all_pairs_of_log_codes(gamma):
    float32 = 2.0**-23
    found, exact = all_log_products(gamma, "exact")
    assert np.abs(found / exact - 1).max() < float32
    worst = []
    for n in range(gamma.bit_length()):
        found, exact = all_log_products(gamma, f"hybrid:{n}")
        error = found / exact - 1
        steps = np.arange(gamma >> n) / gamma  # the bits that the table omits
        assert abs(error.max() - ((1 + steps) / np.exp2(steps) - 1).max()) < float32 and error.min() > -float32
        worst.append(error.max())
    assert all(after < before + float32 for before, after in pairwise(worst)) and worst[-1] < float32
    assert np.array_equal(all_log_products(gamma, "mitchell")[0], all_log_products(gamma, "hybrid:0")[0])


def test_the_conversion_of_mitchell_errs_by_six_percent():
    found, exact = all_log_products(32, "mitchell")
    assert 6.146 < 100 * (found / exact - 1).max() < 6.148  # the nearest f is 14 / 32
    f = np.linspace(0, 1, 10**6)
    error = (1 + f) / np.exp2(f) - 1
    assert round(100 * error.max(), 3) == 6.148 and round(f[error.argmax()], 6) == pytest.approx(0.442695, abs=1e-6)


def test_log_products_in_integers_do_not_overflow_by_themselves():
    q = hc.quantize(np.ones((1, 100), np.float32), "log4-1")
    for accumulator in ("int8-wrap", "int16-sat", "int24-sat", "int60-wrap"):
        assert matmul(q, q.T, accumulator).item() == 100
    assert matmul(q, q.T, "int8-sat", fraction_bits=3).item() == 127 / 8
    assert matmul(q, q.T, "int8-wrap", fraction_bits=3).item() == ((100 * 8 + 128) % 256 - 128) / 8
    small = hc.quantize(np.float32([[1, 0.25]]), "log4-1")
    assert matmul(small, small.T, "int32", fraction_bits=3).item() == 1  # 1/16 is under 1/8 and truncated
    assert matmul(small, small.T, "int32", fraction_bits=4).item() == 1.0625


@pytest.mark.parametrize(
    ("instruction", "accumulator", "chunk"), [("hfma", "fp16", 1), ("hdp4a", "fp16", 4), ("hdp4a", "fp32", 4)]
)
def test_each_step_rounds_the_exact_sum_once(instruction, accumulator, chunk):
    rng = np.random.default_rng(17)
    a, b = (rng.standard_normal((n, 64)).astype(np.float16) for n in (5, 6))
    kind = np.float16 if accumulator == "fp16" else np.float32
    expected = np.zeros((5, 6), kind)
    for k in range(0, 64, chunk):  # sums of few products of float16 around 1 are exact in float64
        left, right = a[:, k : k + chunk].astype(np.float64), b[:, k : k + chunk].astype(np.float64)
        expected = (expected + left @ right.T).astype(kind)
    assert np.array_equal(matmul(a, b.T, accumulator, instruction=instruction), expected.astype(np.float32))


def test_half_precision_stops_at_2048_and_ends_at_65504():
    ones = np.ones(10_000, np.float16)
    assert matmul(ones, ones, instruction="hfma") == 2048
    assert matmul(ones, ones, instruction="hdp4a") == 2048 * 4  # 8192 + 4 is a tie, and goes to even
    large = np.float16([65504, 65504, -65504, -65504])
    assert matmul(large[:1], np.ones(1), instruction="hfma") == 65504
    assert matmul(large, np.ones(4), instruction="hfma") == np.inf
    assert matmul(large, np.ones(4), instruction="hdp4a") == 0
    assert matmul(np.float16([65504, 15.99]), np.ones(2, np.float16), instruction="hfma") == 65504
    assert matmul(np.float16([65504, 16]), np.ones(2), instruction="hfma") == np.inf


def test_tensor_cores_keep_the_bits_that_were_measured():
    """Fasi et al. 2021, section on extra bits, and Khattak and Mikaitis 2025: 0, 1 and 2 bits, truncated below."""
    tiny = np.float16(2.0**-12)

    def product(addends: list[float], instruction: str) -> float:
        a = np.array([min(addend, 1) if addend in (1, 0) else tiny for addend in addends], np.float16)
        b = np.array([addend / float(x) if x else 0 for addend, x in zip(addends, a, strict=True)], np.float16)
        return matmul(a, b, instruction=instruction).item()

    assert product([1, 2.0**-23, 0, 0], "hmma-v100") == 1 + 2.0**-23
    assert product([1, 2.0**-24, 2.0**-24, 0], "hmma-v100") == 1
    assert product([1, 2.0**-24, 2.0**-24, 0], "hmma-a100") == 1 + 2.0**-23
    assert product([1, *[2.0**-25] * 4], "hmma-a100") == product([1, *[2.0**-25] * 4], "hmma-ada") == 1
    assert product([1, 2.0**-24, 2.0**-24, 0], "hmma-ada") == 1 + 2.0**-23  # one extra bit, steps of 8
    assert product([1, *[0] * 7, 2.0**-24, 2.0**-24], "hmma-ada") == 1 + 2.0**-23
    assert product([1, *[0] * 6, 2.0**-24, 2.0**-24], "hmma-ada") == 1
    assert product([1, *[2.0**-25] * 4], "hmma-h100") == 1 + 2.0**-23
    assert product([1, *[2.0**-26] * 8], "hmma-h100") == 1
    assert product([1, 2.0**-24, 0, 0], "hmma-h100") == 1  # the sum is truncated, not rounded
    # The next block meets a sum of 1 as another addend.
    assert product([1, 0, 0, 0, 2.0**-24, 2.0**-24, 0, 0], "hmma-v100") == 1
    assert product([*[0] * 4, 2.0**-24, 2.0**-24, 0, 1], "hmma-a100") == 1 + 2.0**-23


def test_sums_in_half_precision_go_to_the_nearest_of_addends_aligned_in_full():
    """Fasi et al. 2021: addends have the width of fp32 sums; the sum is rounded, not truncated, after each step."""
    ulp, tiny = 2.0**-10, np.float16(2.0**-12)

    def product(addends: list[float], instruction: str) -> float:
        a = np.array([1 if addend == 1 else tiny for addend in addends], np.float16)
        b = np.array([addend if addend == 1 else addend * 2.0**12 for addend in addends], np.float16)
        return matmul(a, b, "fp16", instruction=instruction).item()

    for chip, unit in (("v100", 2.0**-23), ("a100", 2.0**-24), ("ada", 2.0**-24), ("h100", 2.0**-25)):
        name = f"hmma-{chip}"
        assert product([1, ulp / 2, 0, 0], name) == 1  # a tie, to even
        assert product([1, ulp / 2, unit, 0], name) == 1 + ulp  # one unit more is kept, and decides
        assert product([1, ulp / 2, unit / 2, unit / 2], name) == 1  # half units are cut, each by itself
        assert product([1, ulp / 2, ulp / 4, 0], name) == 1 + ulp  # truncation would give 1
        step = hc.emulate.INSTRUCTIONS[name].chunk
        assert product([1, *[0.0] * (step - 1), *[ulp / 4] * 2], name) == 1
        assert (
            product([1, *[0.0] * (step - 2), *[ulp / 4] * 3], name) == 1
        )  # 1/4 is rounded away before the others come
        assert hc.emulate.parse(f"{name}+fp16") == {"instruction": name, "accumulator": "fp16"}
    large, ones = np.float16([65504, 15.99, 0, 0]), np.ones(4, np.float16)
    assert matmul(large, ones, "fp16", instruction="hmma") == 65504
    assert matmul(np.float16([65504, 16]), ones[:2], "fp16", instruction="hmma") == np.inf
    nearest = matmul(np.float16([1, tiny, tiny]), np.float16([1, 3 * ulp / 4 * 2**12, 0]), "fp16", instruction="hmma")
    cut = {"extra_bits": 0, "rounding": "truncate", "instruction": "hmma"}
    again = matmul(np.float16([1, tiny, tiny]), np.float16([1, 3 * ulp / 4 * 2**12, 0]), "fp16", **cut)
    assert (nearest, again) == (1 + ulp, 1)


def test_fp8_keeps_13_bits_on_ada_and_h100():
    """Sums of fp8 have 1 + 8 + 13 bits: the 14th bit after the point is truncated in every addend and in the sum."""

    def product(addends: list[float], instruction: str) -> float:
        a = np.array([1 if addend == 1 else 2.0**-7 for addend in addends], np.float32)
        b = np.array([addend if addend == 1 else addend * 2.0**7 for addend in addends], np.float32)
        return matmul(a, b, instruction=instruction).item()

    for name in ("hmma-h100-e4m3", "hmma-ada-e4m3", "hmma-h100-e5m2", "hmma-ada-e5m2"):
        assert product([1, 2.0**-13, 0, 0], name) == 1 + 2.0**-13
        assert product([1, *[2.0**-14] * 8], name) == 1
        assert product([2.0**-14] * 8, name) == 2.0**-11
        assert product([1, 1, 2.0**-13], name) == 2  # the sum has one bit less below the point
    behind = [1.0, *[0.0] * 15, *[2.0**-14] * 16]  # a step of 32 cuts them all; the second of 16 cuts them too
    assert product(behind, "hmma-h100-e4m3") == product(behind, "hmma-ada-e4m3") == 1
    before = [*[2.0**-14] * 16, 1.0]  # the first step of 16 adds them before 1 comes
    assert product(before, "hmma-h100-e4m3") == 1
    assert product(before, "hmma-ada-e4m3") == 1 + 2.0**-10


def test_the_exponent_of_a_product_is_the_sum_of_those_of_its_factors():
    # 1.5 * 1.5 = 2.25 has the exponent 0, so that 2^-23 next to it is kept.
    a, b = np.float16([1.5, 2.0**-12]), np.float16([1.5, 2.0**-11])
    assert matmul(np.append(a, np.float16(-1.25)), np.append(b, np.float16(1.8)), instruction="hmma").item() == (
        2.25 + 2.0**-23 - 1.25 * float(np.float16(1.8))
    )
    # A subnormal factor has the exponent of the smallest normal one: the small product is cut at 2^(-28 - 23).
    x, w = np.float16([2.0**-24, 2.0**-24]), np.float16([2.0**-14, 2.0**-24])
    assert matmul(x, w, instruction="hmma").item() == 2.0**-38 + 2.0**-48


def test_cuts_go_toward_zero_on_both_sides():
    a = np.float16([1, 2.0**-12, 2.0**-12])
    b = np.float16([1, 1.5 * 2.0**-11, 0])
    for sign in (1, -1):
        assert matmul(a, sign * b, instruction="hmma").item() == sign * (1 + 2.0**-23)
        nearest = matmul(a, sign * b, instruction="hmma", rounding="rne").item()
        assert nearest == sign * (1 + 2.0**-22)  # 1.5 units are a tie, and go to 2


def test_layers_round_operands_to_the_type_of_the_instruction():
    x, w = awkward((2, 40), 3, 4), awkward((3, 40), 4, 4)
    for name in ("hmma-h100-bf16", "hmma-a100-tf32", "hmma-b200-e5m2", "hmma-b200"):
        found = hc.emulate.linear(x, w, emulate=name)
        inputs = hc.emulate.INSTRUCTIONS[name].inputs
        close = [np.float32(1) + np.float32(2.0**-11), np.float32(1) + np.float32(3 * 2.0**-11)]  # ties of tf32
        if inputs == "tf32":
            assert hc.emulate.linear(np.array([close[:1]]), np.ones((1, 1), np.float32), emulate=name) == 1
            assert hc.emulate.linear(np.array([close[1:]]), np.ones((1, 1), np.float32), emulate=name) == 1 + 2.0**-9
            continue
        assert same_bits(found, matmul(held(x, inputs), held(w, inputs).T, instruction=name))
