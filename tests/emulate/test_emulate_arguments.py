"""Emulated matmuls: shapes, threads, and refused arguments."""

from __future__ import annotations

import numpy as np
import pytest
from common import reals, same_bits

import heterocompute as hc
from heterocompute.reference import emulation

matmul = hc.emulate.matmul


def test_shapes_are_those_of_numpy():
    rng = np.random.default_rng(18)
    for left, right in (
        ((3, 1, 4, 6), (2, 6, 5)),
        ((6,), (6,)),
        ((6,), (3, 6, 2)),
        ((4, 6), (6,)),
        ((2, 0), (0, 3)),
        ((0, 4), (4, 0)),
    ):
        a, b = rng.integers(-9, 10, left), rng.integers(-9, 10, right)
        assert same_bits(np.asarray(matmul(a, b)), np.asarray(a @ b))
        floats = matmul(a.astype(np.float16), b.astype(np.float16), instruction="hmma")
        assert np.array_equal(floats, (a @ b).astype(np.float32)) and floats.dtype == np.float32
    x, w = reals((2, 3, 4, 32), 19), reals((2, 1, 32, 5), 20)
    a, b = hc.quantize(x, "vsq4-g16-s4"), hc.quantize(w, "int8", axis=-2)
    assert same_bits(matmul(a, b, "int40-sat"), hc.matmul(a, b))
    logs = matmul(hc.quantize(x, "log8-8"), hc.quantize(w, "log8-8", axis=-2), "float64")
    assert logs.shape == (2, 3, 4, 5)


def test_one_side_may_be_plain_integers():
    x, q = np.arange(-16, 16, dtype=np.int8)[None], hc.quantize(reals((3, 32), 21), "vsq4-g16-s4")
    expected = emulation.codes_product(x, q, 16, True, None)
    assert same_bits(matmul(x, q.T, "int16-sat"), expected)


def test_bits_do_not_depend_on_threads():
    a, b = hc.quantize(reals((9, 200), 22), "vsq4-g16-s4"), hc.quantize(reals((150, 200), 23), "vsq4-g16-s4")
    h, g = reals((9, 200), 24, np.float16), reals((150, 200), 25, np.float16)
    results = []
    for threads in (1, 3):
        with hc.use(threads=threads):
            results.append([matmul(a, b.T, "int14-sat", 6), *(matmul(h, g.T, instruction=i) for i in ("hfma", "hmma"))])
    assert all(same_bits(x, y) for x, y in zip(*results, strict=True))


FLOATS, CODES = np.ones((2, 4), np.float32), np.ones((2, 4), np.int8)
INT8, VSQ, GROUPS = (hc.quantize(np.ones((2, 4), np.float32), text) for text in ("int8", "vsq4-g2-s4", "int4-g2"))
LOG = hc.quantize(np.ones((2, 4), np.float32), "log8-8")


@pytest.mark.parametrize(
    ("a", "b", "arguments", "message"),
    [
        (
            FLOATS,
            FLOATS,
            {},
            "accumulator is 'int32', which adds products of integers or of log numbers, and a has dtype",
        ),
        (INT8, FLOATS, {}, "and b has dtype float32"),
        (hc.quantize(FLOATS, "fp16"), INT8, {}, "a is fp16, but accumulator 'int32' adds products of integers or log"),
        (hc.quantize(FLOATS, "int8+2:4"), INT8, {}, r"a is int8\+2:4, .* adds products of dense codes"),
        (CODES, CODES, {"accumulator": "int24"}, "accumulator is 'int24', expected 'int32', 'intN-sat'"),
        (CODES, CODES, {"accumulator": "int64-sat"}, "with N from 2 to 63"),
        (CODES, CODES, {"accumulator": "fp32"}, "a has dtype int8, but fp32 multiplies floats; convert with astype"),
        (INT8, INT8, {"accumulator": "float64"}, "accumulator is 'float64', but a and b hold integers"),
        (LOG, INT8, {}, "a holds log numbers of gamma 8 and b integers, expected integers or one gamma"),
        (LOG, hc.quantize(FLOATS, "log8-4"), {}, "and b log numbers of gamma 4"),
        (LOG, LOG, {"accumulator": "float64", "chunk": 2}, "chunk is 2, but accumulator 'float64' adds one product"),
        (LOG, LOG, {"conversion": "hybrid:4"}, "gamma 8 has 3 bits below the octave, expected hybrid:0 to hybrid:3"),
        (LOG, LOG, {"conversion": "table"}, "conversion is 'table', expected 'exact', 'mitchell' or 'hybrid:n'"),
        (LOG, LOG, {"accumulator": "int3-sat"}, "'int3-sat' has no room for 4 products, expected 4 bits or more"),
        (LOG, LOG, {"accumulator": "float64", "fraction_bits": 3}, "fraction_bits is 3, but accumulator 'float64'"),
        (INT8, INT8, {"conversion": "hybrid:2"}, "a and b hold integers, which take 'exact' or 'mitchell'"),
        (INT8, INT8, {"fraction_bits": 2}, "fraction_bits is 2, but a and b hold integers"),
        (INT8, INT8, {"scale_product_bits": 8}, "scale_product_bits is 8, but neither operand has integer scales"),
        (VSQ, GROUPS, {"scale_product_bits": 8}, "scale_product_bits is 8, but an operand has float32 scales"),
        (VSQ, VSQ, {"scale_product_bits": 1}, "scale_product_bits is 1, expected 2 to 16"),
        (INT8, INT8, {"chunk": 0}, "chunk is 0, expected 1 to"),
        (INT8, INT8, {"extra_bits": 1}, "extra_bits is 1, but it is for float accumulators"),
        (INT8, INT8, {"rounding": "rne"}, "rounding is 'rne', but it is for float accumulators"),
        (FLOATS, FLOATS, {"accumulator": "fp32", "rounding": "up"}, "rounding is 'up', expected 'rne' or 'truncate'"),
        (FLOATS, FLOATS, {"accumulator": "fp16", "extra_bits": 9}, "extra_bits is 9, expected 0 to 8"),
        (FLOATS, FLOATS, {"accumulator": "fp32", "scale_product_bits": 8}, "float accumulators have none"),
        (FLOATS, FLOATS, {"accumulator": "fp32", "conversion": "mitchell"}, "accumulator 'fp32' multiplies floats"),
        (FLOATS, FLOATS, {"accumulator": "fp32", "fraction_bits": 8}, "it is for log numbers in integers"),
        (FLOATS, FLOATS, {"instruction": "fma"}, "instruction is 'fma', expected one of hfma, hdp4a, dp4a"),
        (FLOATS, FLOATS, {"instruction": "hfma", "chunk": 4}, "chunk is 4, but instruction 'hfma' sets it"),
        (FLOATS, FLOATS, {"instruction": "hmma-a100", "extra_bits": 2}, "instruction 'hmma-a100' sets it"),
        (
            FLOATS,
            FLOATS,
            {"instruction": "hfma", "accumulator": "fp32"},
            "accumulator is 'fp32', but hfma adds to fp16",
        ),
        (FLOATS, FLOATS, {"instruction": "hmma-b200", "accumulator": "bf16"}, "but hmma-b200 adds to fp32 or fp16"),
        (FLOATS, FLOATS, {"instruction": "hmma-h100-e4m3", "accumulator": "fp32"}, "adds to fp22"),
        (FLOATS, FLOATS, {"instruction": "dp4a"}, "quantize it"),
        (FLOATS / 3, FLOATS, {"instruction": "hmma"}, "at index \\(0, 0\\), expected values of float16, which hmma"),
        (FLOATS * np.inf, FLOATS, {"accumulator": "fp32"}, "a has inf at index \\(0, 0\\), expected finite values"),
        (VSQ, INT8, {"instruction": "dp4a"}, "a is vsq4-g2-s4, but dp4a adds products of integers of 8 bits with one"),
        (
            hc.quantize(FLOATS, "int16"),
            INT8,
            {"instruction": "imma"},
            "a is int16, but imma adds products of integers of 8",
        ),
        (CODES * np.int16(300), CODES, {"instruction": "dp4a"}, "a has integers beyond -128 to 255"),
        (CODES.astype(np.int64) << 40, CODES, {}, "a has integers beyond -2147483647 to 2147483647"),
        (
            CODES.astype(np.int64) << 30,
            CODES.astype(np.int64) << 30,
            {"chunk": 4},
            "one step of these codes can pass 2\\^62",
        ),
        (INT8, hc.quantize(FLOATS, "int8", axis=0), {}, "emulate.matmul: b is quantized along axis \\(1,\\)"),
        (INT8, np.ones((2, 5), np.int8), {}, "emulate.matmul: b has 5 rows but a has 4 columns"),
    ],
)
def test_what_makes_no_sense_is_named(a, b, arguments, message):
    with pytest.raises(ValueError, match=message):
        matmul(a, b.T, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"accumulator": 32}, "accumulator is 32 of type int, expected a str"),
        ({"instruction": 4}, "instruction is 4 of type int, expected a str"),
        ({"conversion": None}, "conversion is None of type NoneType, expected a str"),
        ({"chunk": 4.0}, "chunk is 4.0 of type float, expected an integer"),
        ({"scale_product_bits": True}, "scale_product_bits is True of type bool"),
        ({"rounding": 1}, "rounding is 1 of type int, expected a str"),
    ],
)
def test_wrong_types_are_named(arguments, message):
    with pytest.raises(TypeError, match=message):
        matmul(VSQ, VSQ.T, **arguments)


def test_integers_at_odd_addresses_are_read():
    a, b = np.arange(-6, 6, dtype=np.int32).reshape(3, 4), np.arange(8, dtype=np.int32).reshape(4, 2)
    raw = np.zeros(a.nbytes + 1, np.uint8)
    odd = raw[1:].view(np.int32).reshape(a.shape)
    odd[...] = a
    assert same_bits(matmul(odd, b), a.astype(np.int64) @ b)


def test_the_length_of_a_row_is_a_count():
    for length, error in ((None, TypeError), (-1, ValueError)):
        with pytest.raises(error, match=r"emulate\.accepts: length is "):
            hc.emulate.accepts("int32", "int8", "int8", length)


def test_a_text_names_the_conversion() -> None:
    rng = np.random.default_rng(2)
    a, b = (hc.quantize(rng.standard_normal((3, 32), dtype=np.float32), "log6-4") for _ in range(2))
    for text, accumulator, conversion in (
        ("int24-sat+mitchell", "int24-sat", "mitchell"),
        ("float64+hybrid:1", "float64", "hybrid:1"),
        ("int32+hybrid:2", "int32", "hybrid:2"),
    ):
        assert hc.emulate.parse(text) == {"accumulator": accumulator, "conversion": conversion}
        wanted = hc.emulate.matmul(a, b.T, accumulator=accumulator, conversion=conversion)
        assert np.array_equal(hc.emulate.matmul(a, b.T, **hc.emulate.parse(text)), wanted)
    assert hc.emulate.accepts("int24-sat+hybrid:2", "log6-4", "log6-4")
    assert not hc.emulate.accepts("int24-sat+hybrid:3", "log6-4", "log6-4")  # gamma 4 has two bits
    assert hc.emulate.accepts("int24-sat+mitchell", "int8", "int4")
    for bad in ("hmma+mitchell", "fp32+hybrid:1", "int24-sat+mitchel", "mitchell"):
        with pytest.raises(ValueError, match="emulate: "):
            hc.emulate.parse(bad)
