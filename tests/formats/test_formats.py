"""The grammar of format strings: one per format, and errors that name the field, its value and the expected one."""

import dataclasses
import itertools
import pickle
import re

import numpy as np
import pytest
from common import bad_argument

from heterocompute.formats import VSQ, Format, Int, format, formats

EXAMPLES = [text for family in Format.families() for text in family.examples]


@pytest.mark.parametrize("text", EXAMPLES)
@pytest.mark.sweep(every=3)
def test_text_and_format_are_inverse(text):
    fmt = format(text)
    assert str(fmt) == text
    assert format(fmt) is fmt
    assert fmt == format(text) and hash(fmt) == hash(format(text))
    assert pickle.loads(pickle.dumps(fmt)) == fmt
    assert all(type(number) is int for number in fmt.core_params())


def test_families_have_what_everything_iterates_over():
    assert formats() == {family.family: family.description for family in Format.families()}
    assert {"int", "vsq"} <= set(formats())
    for family in Format.families():
        assert len(set(family.examples)) == len(family.examples)
        assert all(type(format(text)) is family for text in family.examples)
    assert len({format(text) for text in EXAMPLES}) == len(EXAMPLES)


def legal_formats():
    groups = (None, 1, 16, 128, 2**31 - 1)
    for bits, group, symmetric, scale in itertools.product(range(2, 9), groups, (True, False), ("f32", "f16")):
        yield Int(bits, group, symmetric, scale)
    yield from (Int(16), Int(24))
    scale_bits = (None, *range(2, 11))
    for bits, group, m, unsigned in itertools.product(range(2, 9), groups[1:], scale_bits, (True, False)):
        yield VSQ(bits, group, m, unsigned)
        if m is not None:
            for coarse, refit in itertools.product(("row", "tensor"), (True, False)):
                yield VSQ(bits, group, m, unsigned, coarse, refit)


def test_every_legal_format_has_its_own_text():
    found = set(legal_formats())
    assert len({str(fmt) for fmt in found}) == len(found)
    assert all(format(str(fmt)) == fmt for fmt in found)


@pytest.mark.parametrize(
    ("fmt", "text", "params"),
    [
        (Int(), "int8", (8, 0, 1, 0)),
        (Int(4, group=128), "int4-g128", (4, 128, 1, 0)),
        (Int(4, group=32, symmetric=False), "int4-g32-asym", (4, 32, 0, 0)),
        (Int(4, 32, False, "f16"), "int4-g32-asym-f16", (4, 32, 0, 1)),
        (Int(24), "int24", (24, 0, 1, 0)),
        (VSQ(), "vsq4-g16-s4", (4, 16, 4, 0, 0, 0)),
        (VSQ(scale_bits=None), "vsq4-g16", (4, 16, 0, 0, 0, 0)),
        (VSQ(8, 64, 10, True, "tensor", True), "vsq8u-g64-s10-tensor-refit", (8, 64, 10, 1, 1, 1)),
    ],
)
def test_suffixes_stand_in_the_order_of_the_arguments(fmt, text, params):
    assert str(fmt) == text and format(text) == fmt and fmt.core_params() == params


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("int17", "int16"),
        ("INT4", "int4"),
        ("int04", "int4"),
        (" int4", "int4"),
        ("int4\n", "int4"),
        ("int4-g032", "int4-g32"),
        ("int4-g48-asimm", "int4-g48-asym"),
        ("int4-f16-g32", "int4-g32-f16"),
        ("int4-asym-g32", "int4-g32-asym"),
        ("int4-g128-sym", "int4-g128"),
        ("int8-symmetric", "int8"),
        ("int4-sym-g32", "int4-g32"),
        ("vsq4-s4-g16", "vsq4-g16-s4"),
        ("vsq4_g16_s4", "vsq4-g16-s4"),
        ("vsq4-g48-s44", "vsq4-g48-s4"),
        ("vsq4-g16-tensor", "vsq4-g16-s4-tensor"),
        ("vsq4-g16-s4-refit-tensor", "vsq4-g16-s4-tensor-refit"),
    ],
)
def test_only_the_canonical_text_is_accepted(text, nearest):
    with pytest.raises(ValueError, match=re.escape(f"the nearest is {nearest!r}")):
        format(text)


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("nf4", "nf4-g64"), ("nf4-g", "nf4-g64"), ("nf5", "nf4-g64"), ("cb9", "cb8"), ("cb0", "cb1"), ("cb", "cb4"),
     ("vsq4", "vsq4-g16-s4"), ("int1-g32", "int2-g32"), ("log", "log8-8"), ("fp4", "fp4_e2m1"), ("nvfp", "nvfp4"),
     ("int8+", "int8+2:4"), ("float16", "fp16"), ("vsq9-g16-s4", "vsq8-g16-s4"), ("half", "fp16"),
     ("W4A16", "int4-g128-f16"), ("w8a8", "int8"), ("q4_K_M", "q4_k"),
     ("F16", "fp16"), ("f32", "fp32"), ("fp8-e4m3", "fp8_e4m3fn"), ("mxfp4_e2m1", "mxfp4"), ("q8", "q8_0")],
)  # fmt: skip
def test_the_beginning_of_a_text_names_the_usual_format(text, nearest):
    with pytest.raises(ValueError, match=re.escape(f"the nearest is {nearest!r}")):
        format(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("fp8", ["fp8_e4m3fn", "fp8_e5m2"]), ("float8", ["fp8_e4m3fn", "fp8_e5m2"]), ("fp6", ["fp6_e3m2", "fp6_e2m3"]),
     ("mxfp8", ["mxfp8_e4m3", "mxfp8_e5m2"]),
     ("mx", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8"])],
)  # fmt: skip
def test_a_text_that_could_be_several_names_them_all(text, meant):
    *first, last = map(repr, meant)
    with pytest.raises(ValueError, match=re.escape(f"it could be {', '.join(first)} or {last}")):
        format(text)


@pytest.mark.parametrize("text", ["gptq", "awq", "gguf", "nonsense"])
def test_nothing_is_suggested_that_is_not_near(text):
    with bad_argument(ValueError, None, "value", "'heterocompute formats'") as caught:
        format(text)
    assert "nearest" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["nonsense", "", " \n", "-", "int", "int\u0664", "int4-", "x" * 10**6, "vsq4-g" + "9" * 9999]
)
def test_nonsense_names_a_valid_text(text):
    with bad_argument(ValueError, None, "value", "not a format") as caught:
        format(text)
    message = str(caught.value)
    assert len(message) < 400
    format(message.rsplit("'", 2)[1])


@pytest.mark.parametrize(
    ("family", "arguments", "message"),
    [
        (Int, {"bits": 17}, "Int: bits is 17, expected 2 to 16 or 24"),
        (Int, {"bits": 1}, "Int: bits is 1, expected 2 to 16 or 24"),
        (Int, {"group": 0}, "Int: group is 0, expected 1 to 2147483647 or None"),
        (Int, {"group": -16}, "Int: group is -16"),
        (Int, {"group": 2**31}, "Int: group is 2147483648"),
        (Int, {"scale": "f64"}, "Int: scale is 'f64', expected 'f32' or 'f16'"),
        (Int, {"bits": 24, "group": 32}, "Int: bits is 24, which needs group=None"),
        (Int, {"bits": 24, "symmetric": False}, "Int: bits is 24, which needs"),
        (Int, {"bits": 9, "symmetric": False}, "Int: bits is 9, which needs symmetric=True"),
        (VSQ, {"bits": 9}, "VSQ: bits is 9, expected 2 to 8"),
        (VSQ, {"group": 0}, "VSQ: group is 0, expected 1 to 2147483647"),
        (VSQ, {"scale_bits": 1}, "VSQ: scale_bits is 1, expected 2 to 10 or None"),
        (VSQ, {"scale_bits": 11}, "VSQ: scale_bits is 11"),
        (VSQ, {"coarse": "column"}, "VSQ: coarse is 'column', expected 'row' or 'tensor'"),
        (VSQ, {"scale_bits": None, "coarse": "tensor"}, "VSQ: coarse is 'tensor' but scale_bits is None"),
        (VSQ, {"scale_bits": None, "refit": True}, "VSQ: refit is True but scale_bits is None"),
    ],
)
def test_illegal_values_are_named(family, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        family(**arguments)


@pytest.mark.parametrize(
    ("family", "arguments"),
    [
        (Int, {"bits": True}),
        (Int, {"bits": 4.0}),
        (Int, {"bits": "4"}),
        (Int, {"bits": None}),
        (Int, {"group": 16.0}),
        (Int, {"group": False}),
        (Int, {"symmetric": 1}),
        (Int, {"scale": 16}),
        (VSQ, {"group": None}),
        (VSQ, {"scale_bits": "4"}),
        (VSQ, {"unsigned": 0}),
        (VSQ, {"coarse": None}),
        (VSQ, {"refit": "yes"}),
    ],
)
def test_wrong_types_are_type_errors(family, arguments):
    (field,) = arguments
    with pytest.raises(TypeError, match=f"{family.__name__}: {field} is .* of type"):
        family(**arguments)


@pytest.mark.parametrize("text", [None, 4, b"int4", ["int4"]])
def test_a_text_is_a_str(text):
    with bad_argument(TypeError, "text", "type"):
        format(text)


def test_formats_are_immutable_values():
    fmt = Int(np.int64(4), group=np.int32(16))
    assert fmt == Int(4, group=16) and type(fmt.bits) is int and type(fmt.group) is int
    assert repr(fmt) == "Int(bits=4, group=16, symmetric=True, scale='f32')"
    with pytest.raises(dataclasses.FrozenInstanceError):
        fmt.bits = 8
    assert VSQ(4) != Int(4) and Int(4) != Int(5)


def test_a_new_family_is_one_dataclass(monkeypatch):
    monkeypatch.setattr(Format, "_registered", dict(Format._registered))

    @dataclasses.dataclass(frozen=True)
    class Sign(Format):
        family = "sign"
        description = "the sign alone"
        examples = ("sign",)

        def __str__(self):
            return "sign"

        @classmethod
        def _parse(cls, text):
            return cls() if text == "sign" else None

        def core_params(self):
            return ()

    assert format("sign") == Sign() and formats()["sign"] == "the sign alone"
    with bad_argument(ValueError, None, "value", "'sign'"):
        format("signs")
    with bad_argument(TypeError, None, "type", "'sign'.*Sign"):
        type("Other", (Format,), {"family": "sign"})
