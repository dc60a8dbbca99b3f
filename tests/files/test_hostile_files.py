"""Hostile files: their content is not trusted; errors are one line that names the file, and the tensor if any."""

import json
import struct

import ml_dtypes
import numpy as np
import pytest
from common import assert_refused, read_raw, write_raw

import heterocompute as hc
from heterocompute.base.container import Reader, nbytes_of
from heterocompute.base.writer import Writer
from heterocompute.files.safetensors import save


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "model.safetensors")


def weights(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def whole_file(path):
    packed = {"w": hc.quantize(weights(3, 21), "vsq3-g5-s4"), "e": hc.encode_eie(np.round(weights(3, 4)), elements=2)}
    save(path, {**packed, "b": weights(3), "h": weights(2).astype(np.float16)})
    with open(path, "rb") as file:
        return file.read()


def test_every_cut_is_refused(path):
    content = whole_file(path)
    for length in range(len(content)):
        with open(path, "wb") as file:
            file.write(content[:length])
        assert_refused(path)


def test_trailing_bytes_are_refused(path):
    content = whole_file(path)
    with open(path, "wb") as file:
        file.write(content + b"\0")
    assert_refused(path, "1 byte of data behind the last tensor")


@pytest.mark.parametrize("flip", [0x01, 0x04, 0x80, 0xFF])
@pytest.mark.sweep(every=4)
def test_any_wrong_byte_is_refused_or_harmless(path, flip):
    content = whole_file(path)
    n_refused = 0
    for place in range(len(content)):
        with open(path, "wb") as file:
            file.write(content[:place] + bytes([content[place] ^ flip]) + content[place + 1 :])
        try:
            found = hc.load(path)
        except ValueError as error:
            assert str(error).startswith(path + ": ") and "\n" not in str(error)
            n_refused += 1
            continue
        for array in found.values():  # accepted arrays must be usable
            assert np.asarray(array).shape == array.shape
    assert n_refused > len(content) // 2


@pytest.mark.parametrize("seed", [7, 8, 9, 10])
@pytest.mark.sweep(every=4)
def test_random_edits_never_escape(path, seed):
    content = whole_file(path)
    random = np.random.default_rng(seed)
    tokens = [b"0", b"-1", b"9" * 30, b"1e9", b"NaN", b"null", b"true", b'""', b"[", b"{", b"]", b"}", b"\\ud800", b","]
    for _ in range(400):
        place = int(random.integers(8, len(content) - 40))
        end = place + int(random.integers(0, 4))
        edited = content[:place] + tokens[random.integers(len(tokens))] + content[end:]
        length = struct.unpack("<Q", content[:8])[0] + len(edited) - len(content)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", length) + edited[8:])
        try:
            hc.load(path)
        except ValueError as error:
            assert str(error).startswith(path + ": ") and "\n" not in str(error)


PLAIN = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "header, words",
    [
        (b"", ["header of 0 bytes"]),
        (b"{}" + b" " * 6 + b"x", ["not JSON"]),
        (b"[]", ["not a JSON object"]),
        (b"  {}", ["8 bytes of data behind the last tensor"]),
        (b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [-0, 8]}}', ["'x'", "data_offsets"]),
        (b'{"x": {"dtype": "F32", "shape": [2, -0], "data_offsets": [0, 0]}}', ["'x'", "shape"]),
        (b'{"\xff": 1}', ["not JSON"]),
        (b"[" * 100_000, ["not JSON", "deep"]),
        (b'{"a": ' + b"9" * 5000 + b"}", ["not JSON"]),
        (b'{"a": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 8]}}', ["NaN is not JSON"]),
        (b'{"a": 1, "a": 2}', ["'a' appears twice"]),
        (b'{"\\ud800": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', ["not a string"]),
        ({"__metadata__": {"a": 1}, "x": PLAIN}, ["__metadata__"]),
        ({"__metadata__": [], "x": PLAIN}, ["__metadata__"]),
        ({"x": 7}, ["'x'", "dtype, shape and data_offsets"]),
        ({"x": {key: PLAIN[key] for key in ("dtype", "shape")}}, ["'x'", "data_offsets"]),
        ({"x": {**PLAIN, "dtype": "F33"}}, ["'x'", "F33"]),
        ({"x": {**PLAIN, "dtype": ["F32"]}}, ["'x'", "dtype"]),
        ({"x": {**PLAIN, "shape": [2.0]}}, ["'x'", "shape"]),
        ({"x": {**PLAIN, "shape": [-2]}}, ["'x'", "shape"]),
        ({"x": {**PLAIN, "shape": [True, 2]}}, ["'x'", "shape"]),
        ({"x": {**PLAIN, "shape": 2}}, ["'x'", "shape"]),
        ({"x": {**PLAIN, "shape": [1] * 65}}, ["'x'", "shape"]),
        ({"x": {**PLAIN, "shape": [2**40, 2**40]}}, ["'x'", "overflows"]),
        ({"x": {**PLAIN, "shape": [0, 2**40, 2**40], "data_offsets": [0, 0]}}, ["'x'", "overflows"]),
        ({"x": {**PLAIN, "shape": [3]}}, ["'x'", "needs 12 bytes"]),
        ({"x": {**PLAIN, "dtype": "F4", "shape": [3], "data_offsets": [0, 1]}}, ["'x'", "bytes"]),
        ({"x": {**PLAIN, "data_offsets": [8, 0]}}, ["'x'", "span -8"]),
        ({"x": {**PLAIN, "data_offsets": [-8, 0]}}, ["'x'", "data_offsets"]),
        ({"x": {**PLAIN, "data_offsets": [0]}}, ["'x'", "data_offsets"]),
        ({"x": {**PLAIN, "data_offsets": [0, 2**64]}}, ["'x'", "data_offsets"]),
        ({"x": {**PLAIN, "data_offsets": [4, 12]}}, ["'x'", "begins at 4"]),
        ({"x": {**PLAIN, "shape": [4], "data_offsets": [0, 16]}}, ["'x'", "cut off"]),
        ({"x": PLAIN, "y": {**PLAIN, "data_offsets": [4, 12]}}, ["'y'", "begins at 4"]),
        ({"x": PLAIN, "y": PLAIN}, ["'y'", "begins at 0"]),
        ({}, ["8 bytes of data behind the last tensor"]),
        ({"x\n\x1b[31m": {**PLAIN, "dtype": "?"}}, ["x\\n\\x1b[31m"]),
    ],
)
def test_hostile_header_is_refused(path, header, words):
    write_raw(path, header, b"\0" * 8)
    assert_refused(path, *words)


@pytest.mark.parametrize("before", [b" ", b"\n\t ", b""])
def test_what_safetensors_ignores_is_ignored(path, before):
    header = before + json.dumps({"x": {**PLAIN, "more": [1]}}).encode()
    write_raw(path, header, np.float32([3, 4]).tobytes())
    assert hc.load(path)["x"].tolist() == [3, 4]
    numpy = pytest.importorskip("safetensors.numpy")
    assert numpy.load_file(path)["x"].tolist() == [3, 4]


@pytest.mark.parametrize("length", [0, 1, 9, 2**31, 2**63, 2**64 - 1])
def test_wrong_header_length_is_refused(path, length):
    write_raw(path, {"x": PLAIN}, b"\0" * 8, length=length)
    assert_refused(path)


def test_bool_that_is_no_bool_is_refused(path):
    write_raw(path, {"x": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}}, b"\x01\x02")
    assert_refused(path, "'x'", "neither 0 nor 1")


def test_packed_four_bit_floats_are_loaded(path):
    write_raw(path, {"x": {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}}, b"\x21\x9f")
    with Reader(path) as reader:
        assert reader.info("x").nbytes == nbytes_of("float4_e2m1fn", (4,)) == 2
    assert hc.load(path)["x"].astype(np.float32).tolist() == [0.5, 1.0, -6.0, -0.5]


# The description of quantized arrays is not trusted either.


def edit(path, change):
    """Rewrite a file with a changed description and the same components."""
    header, data = read_raw(path)
    described = json.loads(header["__metadata__"]["heterocompute"])
    changed = change(described, header)
    described = described if changed is None else changed
    text = described if isinstance(described, str) else json.dumps(described)
    header["__metadata__"]["heterocompute"] = text
    write_raw(path, header, data)


def set_field(**fields):
    return lambda described, _: described["tensors"]["array"].update(fields)


def rename(old, new):
    return lambda _, header: header.update({new: header.pop(old)})


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda *_: "{", ["not JSON"]),
        (lambda *_: [], ["not a JSON object"]),
        (lambda d, _: d | {"version": 3}, ["version 3, expected 1"]),
        (lambda d, _: d | {"version": True}, ["version True"]),
        (lambda d, _: d | {"more": 1}, ["exactly"]),
        (lambda d, _: d | {"single": 1}, ["single"]),
        (lambda d, _: d | {"tensors": []}, ["tensors"]),
        (lambda d, _: d | {"tensors": {}}, ["single array"]),
        (lambda d, _: d | {"tensors": {"array": 3}}, ["'array'", "exactly"]),
        (lambda d, _: d | {"tensors": {"other": d["tensors"]["array"]}}, ["'other'", "lacks", "'other.codes'"]),
        (set_field(more=1), ["'array'", "exactly"]),
        (set_field(format="int17"), ["'array'", "int17"]),
        (set_field(format=4), ["'array'", "format"]),
        (set_field(format="int4-g16"), ["'array.scales'", "int4-g16"]),
        (set_field(format="vsq4-g16-s4-tensor"), ["'array.coarse'"]),
        (set_field(format="vsq4-g16"), ["'array.scales'"]),
        (set_field(shape=[3, 49]), ["'array.codes'"]),
        (set_field(shape=[4, 40]), ["'array.codes'"]),
        (set_field(shape=[3, 2**62]), ["'array'", "overflows"]),
        (set_field(shape=[3, -40]), ["'array'", "shape"]),
        (set_field(shape="3"), ["'array'", "shape"]),
        (set_field(axis=[0]), ["'array"]),
        (set_field(axis=[2]), ["'array'", "axis"]),
        (set_field(axis=[-1]), ["'array'", "axis"]),
        (set_field(axis=[]), ["'array'", "axis"]),
        (set_field(axis=[1, 1]), ["'array'", "axis"]),
        (set_field(dtype="int8"), ["'array'", "int8"]),
        (rename("array.scales", "array.scale"), ["'array'", "lacks", "'array.scales'"]),
        (lambda d, h: h["array.codes"].update(dtype="I8"), ["'array.codes'", "int8"]),
    ],
)
def test_wrong_description_is_refused(path, change, words):
    hc.quantize(weights(3, 40), "vsq4-g16-s4").save(path)
    edit(path, change)
    assert_refused(path, *words)


def add_plain(path, name):
    with Reader(path) as reader:
        tensors = {n: (reader.info(n).dtype, reader.info(n).shape) for n in reader.names}
        old = {n: reader.tensor(n) for n in reader.names}
        metadata = reader.metadata
    with Writer(path, {**tensors, name: ("uint8", (2,))}, metadata) as writer:
        for n, array in {**old, name: np.zeros(2, np.uint8)}.items():
            writer.write(n, array)


@pytest.mark.parametrize(
    "name, words", [("array.zero_points", ["no component"]), ("array", ["plain"]), ("b", ["single"])]
)
def test_surplus_tensor_is_refused(path, name, words):
    hc.quantize(weights(3, 40), "vsq4-g16-s4").save(path)
    add_plain(path, name)
    assert_refused(path, *words)


@pytest.mark.parametrize(
    "text, component, value",
    [
        ("int8", "scales", np.nan),
        ("int8", "scales", np.inf),
        ("int8", "scales", -1.0),
        ("int4-g16-f16", "scales", -np.inf),
        ("vsq4-g16", "scales", -1e-40),
        ("vsq4-g16-s4", "coarse", np.nan),
        ("vsq4-g16-s4-tensor", "coarse", -1.0),
        ("fp8_e4m3fn-row", "scales", np.nan),
        ("fp4_e2m1-tensor", "coarse", np.inf),
        ("nvfp4", "coarse", -1.0),
    ],
)
def test_illegal_scale_is_refused(path, text, component, value):
    array = hc.quantize(weights(3, 40), text)
    array.components[component].flat[-1] = value
    array.save(path)
    assert_refused(path, f"'array.{component}'", "negative or not finite")


@pytest.mark.parametrize(("text", "byte"), [("nvfp4", 0x7F), ("nvfp4", 0x80), ("nvfp4-4over6", 0xFF)])
def test_scale_byte_that_is_never_written_is_refused(path, text, byte):
    array = hc.quantize(weights(3, 40), text)
    array.components["scales"][1, 2] = byte
    array.save(path)
    assert_refused(path, "'array.scales'", f"byte {byte}")


def test_nan_groups_come_back(path):
    x = weights(3, 40)
    x[1, 3] = np.nan
    array = hc.quantize(x, "mxfp4")
    assert array.components["scales"][1, 0] == 0xFF
    array.save(path)
    assert hc.load(path) == array


def test_minus_128_of_mxint8_is_refused(path):
    array = hc.quantize(weights(3, 40), "mxint8")
    array.components["codes"][1, 5] = 0x80
    array.save(path)
    assert_refused(path, "'array.codes'", "-128")


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 7, 8, 16, 24])
def test_lowest_symmetric_code_is_refused(path, bits):
    array = hc.quantize(weights(3, 40), f"int{bits}")
    bit = 17 * bits + bits - 1  # the sign of code 17, whose other bits are cleared
    row = int.from_bytes(array.components["codes"][1].tobytes(), "little")
    row = row & ~(((1 << bits) - 1) << 17 * bits) | 1 << bit
    array.components["codes"][1] = np.frombuffer(row.to_bytes(array.components["codes"].shape[1], "little"), np.uint8)
    array.save(path)
    assert_refused(path, "'array.codes'", f"-{1 << bits - 1}")


@pytest.mark.parametrize("text", ["int4-g16", "vsq4u-g16", "int4-g16-asym", "mxfp4", "nvfp4"])
def test_padding_that_is_not_zero_is_refused(path, text):
    array = hc.quantize(weights(3, 40), text)
    array.components["codes"][2, -1] ^= 0x30
    array.save(path)
    assert_refused(path, "'array.codes'", "padding")


def test_two_arrays_cannot_share_a_component(path):
    array = hc.quantize(weights(3, 40), "int8")
    save(path, {"a": array, "a.b": array})

    def share(described, header):
        described["tensors"]["a"], described["tensors"]["a.b"]  # both must exist
        header["a.b.codes"]["data_offsets"] = header["a.codes"]["data_offsets"]

    edit(path, share)
    assert_refused(path, "a.b.codes")


def test_bfloat16_source_is_remembered(path):
    hc.quantize(weights(3, 40).astype(ml_dtypes.bfloat16), "int8").save(path)
    assert hc.load(path).source_dtype == "bfloat16"
