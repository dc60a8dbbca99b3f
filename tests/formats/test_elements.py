"""Elements: every code and every tie against ml_dtypes, the standards of posits and takums, and the literature."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from heterocompute.formats import Integer, Levels, Minifloat
from heterocompute.formats.elements import Element, Logs, PowersOfTwo
from heterocompute.formats.elements.tapered import Posit, Takum, posit, takum
from heterocompute.formats.own import element

TYPES = {
    "float8_e4m3fn": "e4m3fn", "float8_e4m3fnuz": "e4m3fnuz", "float8_e5m2": "e5m2", "float8_e5m2fnuz": "e5m2fnuz",
    "float8_e3m4": "e3m4", "float8_e4m3b11fnuz": "e4m3b11fnuz", "float8_e4m3": "e4m3", "float4_e2m1fn": "e2m1",
    "float6_e2m3fn": "e2m3", "float6_e3m2fn": "e3m2", "float16": "e5m10", "bfloat16": "e8m7",
}  # fmt: skip


def codes_of(kind: Element, values: np.ndarray, saturate: bool = True) -> np.ndarray:
    table = kind.table(saturate)
    codes = table.ranked[np.searchsorted(table.bounds, values, side="left")]
    if table.minus_zero is not None:
        codes = np.where((values == 0) & np.signbit(values), table.minus_zero, codes)
    if table.nan is None:
        return codes
    return np.where(np.isnan(values) | (values < table.lowest), table.nan, codes)


@pytest.mark.parametrize("name", TYPES)
def test_floats_are_those_of_ml_dtypes(name: str) -> None:
    kind, dtype = element(TYPES[name]), np.dtype(getattr(ml_dtypes, name, name))
    assert isinstance(kind, Minifloat)
    table = kind.table(False)
    stored = np.arange(1 << kind.bits).astype(np.uint16 if kind.bits > 8 else np.uint8)
    with np.errstate(invalid="ignore"):
        values = stored.view(dtype).astype(np.float64)
    np.testing.assert_array_equal(table.levels, values)
    numbers = ~np.isnan(values)
    assert np.array_equal(np.signbit(values)[numbers], np.signbit(table.levels)[numbers])
    finite = np.unique(values[np.isfinite(values)])
    middle = (finite[1:] + finite[:-1]) / 2
    last = kind.largest + (kind.number(kind.largest_code + 1) - kind.largest) / 2
    rng = np.random.default_rng(3)
    drawn = rng.normal(size=20_000) * np.exp(rng.normal(size=20_000) * 4)
    some = np.concatenate([middle, finite, drawn, [last, -last, np.inf, -np.inf, 0.0, -0.0]]).astype(np.float32)
    around = np.concatenate([some, np.nextafter(some, np.float32(np.inf)), np.nextafter(some, np.float32(-np.inf))])
    with np.errstate(all="ignore"):
        wanted = around.astype(dtype).astype(np.float64)
    found = table.levels[codes_of(kind, around.astype(np.float64), saturate=False)]
    np.testing.assert_array_equal(found, wanted)
    assert np.array_equal(np.signbit(found)[~np.isnan(found)], np.signbit(wanted)[~np.isnan(wanted)])


def test_powers_of_two_are_those_of_ml_dtypes() -> None:
    table = PowersOfTwo().table()
    values = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    np.testing.assert_array_equal(table.levels, values)
    some = np.float32([1, 1.4, 1.5, 1.6, 3, 6, 2.0**-127, 2.0**-128, 2.0**127, 2.5e38])
    wanted = some.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)
    assert codes_of(PowersOfTwo(), some.astype(np.float64)).tolist() == wanted.tolist()
    assert codes_of(PowersOfTwo(), np.float64([0, -0.0, -3])).tolist() == [0, 0, 0]
    assert element("e8m0") == PowersOfTwo()


def test_every_code_decodes_to_itself() -> None:
    texts = [
        "e3m4", "e2m1", "e1m6finite", "e5m2fnuz", "ue5m3", "ue4m4fn", "e4m3ns", "e3m2b5", "binary8p3se", "binary6p4uf",
        "binary4p2sf", "binary8p1ue",
        "int3", "int8full", "uint4f2", "ternary", "binary", "posit8.1", "posit5.0", "takum8",
        "takum6", "log5-3", "log8-32",
    ]  # fmt: skip
    for text in texts:
        kind = element(text)
        assert str(kind) == text
        table = kind.table()
        assert (np.diff(table.levels[table.ranked]) >= 0).all() and (np.diff(table.bounds) >= 0).all(), text
        wide = text.startswith(("takum", "log"))  # levels that float32 lacks; a zero of either sign
        ranked = table.ranked[np.isfinite(table.levels[table.ranked]) & (table.levels[table.ranked] != 0)]
        if not wide:
            assert codes_of(kind, table.levels[ranked]).tolist() == ranked.tolist(), text
        assert codes_of(kind, np.float64([np.inf]))[0] == table.ranked[-1], text


def test_ties_of_integers_go_to_the_even_code_and_of_levels_to_the_lower() -> None:
    assert codes_of(Integer(4), np.float64([0.5, 1.5, 2.5, -0.5, -1.5, 7.5, -7.5])).tolist() == [0, 2, 2, 0, 14, 7, 9]
    assert codes_of(Integer(4, full=True), np.float64([-7.5, -8.5])).tolist() == [8, 8]
    assert codes_of(Integer(3, signed=False), np.float64([-4, 0.5, 6.5, 9])).tolist() == [0, 0, 6, 7]
    assert codes_of(Levels([-1, 0, 2]), np.float64([-0.5, 1.0, 1.0 + 1e-15])).tolist() == [0, 1, 2]
    assert codes_of(Levels([-1, 0, 2], [-0.9, 1.9]), np.float64([-0.9, -0.8, 1.9, 1.95])).tolist() == [0, 1, 1, 2]
    assert codes_of(Levels.binary(), np.float64([-0.0, 0.0, -5e-324, 3])).tolist() == [1, 1, 0, 1]


def test_posits_round_as_their_standard_says() -> None:
    # Posit Standard (2022), section 4.1: between U and U + 1 lies the posit U1 with one bit more
    assert [posit(8, 2, code) for code in (1, 0x40, 0x7F)] == [2.0**-24, 1.0, 2.0**24]
    assert [posit(8, 0, code) for code in (1, 0x20, 0x60, 0x7F)] == [2.0**-6, 0.5, 2.0, 64.0]
    for bits, es in ((8, 0), (8, 1), (8, 2), (6, 1), (5, 2), (3, 0)):
        kind, half = Posit(bits, es), 1 << (bits - 1)
        table = kind.table()
        assert math.isnan(table.levels[half]) and table.levels[0] == 0
        for code in range(1, half - 1):
            tie = posit(bits + 1, es, 2 * code + 1)
            low, middle, high = (int(codes_of(kind, np.float64([v]))[0])
                                 for v in (np.nextafter(tie, 0), tie, np.nextafter(tie, np.inf)))  # fmt: skip
            assert (low, high) == (code, code + 1) and middle == code + code % 2
            assert codes_of(kind, np.float64([-tie]))[0] == 2 * half - middle
        assert codes_of(kind, np.float64([1e-300, -1e-300, 1e300, 0.0])).tolist() == [1, 2 * half - 1, half - 1, 0]
        np.testing.assert_array_equal(table.levels[1:half], -table.levels[:half:-1])


def test_takums_are_those_of_the_definition() -> None:
    """Hunhold (arXiv 2408.10594): (1 - 3 S + f) 2^e, e = (-1)^S (c + S), with zeros appended below 12 bits."""

    def defined(code: int, bits: int) -> float:
        text = f"{code:0{bits}b}".ljust(12, "0")
        sign, direction, regime = int(text[0]), int(text[1]), int(text[2:5], 2)
        length = regime if direction else 7 - regime
        offset = int(text[5 : 5 + length] or "0", 2)
        c = 2**length - 1 + offset if direction else -(2 ** (length + 1)) + 1 + offset
        rest = text[5 + length :]
        f = int(rest or "0", 2) / 2 ** len(rest)
        return (1 - 3 * sign + f) * 2.0 ** ((-1) ** sign * (c + sign))

    for bits in (8, 7, 5):
        levels, half = Takum(bits).table().levels, 1 << (bits - 1)
        for code in range(1, 2 * half):
            if code != half:
                exact = defined(code, bits)
                with np.errstate(over="ignore"):
                    assert levels[code] == np.clip(exact, -3.4028234663852886e38, 3.4028234663852886e38).astype(
                        np.float32
                    )
    assert takum(12, 0b010000000000) == 1.0


def test_logs_of_any_base() -> None:
    table = Logs(4, 5).table()
    assert table.levels[:7].tolist() == [float(np.exp2(np.longdouble(-e) / 5)) for e in range(7)]
    assert codes_of(Logs(4, 5), np.float64([1, 0.0, -0.0, -1, 0.2, 0.21])).tolist() == [0, 7, 15, 8, 7, 7]
    last = float(table.levels[6])
    assert codes_of(Logs(4, 5), np.float64([last / 2, np.nextafter(last / 2, 0)])).tolist() == [6, 7]


def test_levels_of_the_literature() -> None:
    nf4 = Levels.normal_float(4).values
    assert nf4[7] == 0 and nf4[8] == np.float32(0.07958029955625534)
    sf4 = [
        -1.0,
        -0.628,
        -0.455,
        -0.334,
        -0.237,
        -0.153,
        -0.075,
        0.0,
        0.066,
        0.133,
        0.205,
        0.284,
        0.376,
        0.491,
        0.657,
        1.0,
    ]
    assert [round(one, 3) for one in Levels.student_float(4, 5).values] == sf4  # table 15 of arXiv 2405.03103
    wide = Levels.student_float(4, 1000).values
    assert max(abs(a - b) for a, b in zip(wide, nf4, strict=True)) < 2e-3  # a normal distribution in the limit
    apot = Levels.apot(5, 2).values
    assert len(apot) == 31 and apot[-1] == 1 and round(apot[-2], 4) == 0.75


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Minifloat(8, 0, specials="ieee"), "specials is 'ieee'"),
        (lambda: Minifloat(1, 6), "specials is 'ieee'"),
        (lambda: Minifloat(2, 1, specials="fn"), "8 bits or more"),
        (lambda: Minifloat(8, 8), "2 to 16 bits"),
        (lambda: Minifloat(0, 3), "exponent is 0"),
        (lambda: Minifloat(4, 3, bias=200), "powers of two"),
        (lambda: Minifloat(4, 3, specials="nan"), "specials is 'nan'"),
        (lambda: Minifloat(5, 5, specials="fnuz"), "at most 8 bits"),
        (lambda: Minifloat(4, 3, specials="p3109", bias=3), "which the standard fixes"),
        (lambda: Integer(1), "bits is 1"),
        (lambda: Integer(17), "bits is 17"),
        (lambda: Integer(4, signed=False, full=True), "full is True"),
        (lambda: Levels([]), "0 numbers"),
        (lambda: Levels([1.0]), "1 numbers"),
        (lambda: Levels(range(257)), "257 numbers"),
        (lambda: Levels([0, math.nan]), r"values\[1\] is nan"),
        (lambda: Levels([0, math.inf]), r"values\[1\] is inf"),
        (lambda: Levels([1, 0]), "ascend"),
        (lambda: Levels([0, 1e-60]), "as float32 ascend"),
        (lambda: Levels([0, 1], [2]), r"thresholds\[0\] is 2.0"),
        (lambda: Levels([0, 1], [0.2, 0.3]), "thresholds has 2 numbers"),
        (lambda: Levels.posit(9, 1), "bits is 9"),
        (lambda: Levels.posit(8, 4), "es is 4"),
        (lambda: Levels.student_float(4, 0), "nu is 0"),
        (lambda: Levels.apot(4, 2), "divisor of the 3 bits"),
        (lambda: element("e4m3ieee"), "the nearest is 'e4m3'"),
        (lambda: element("nothing"), "not an element"),
    ],
)
def test_impossible_elements_are_named(make: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()  # type: ignore[operator]


def test_p3109_is_what_gfloat_says() -> None:
    gfloat = pytest.importorskip("gfloat")
    from gfloat.formats import Domain, Signedness, format_info_p3109

    for bits in range(3, 9):
        for precision in range(1, bits + 1):
            for signed, sign in ((True, "s"), (False, "u")):
                for extended, domain in ((True, "e"), (False, "f")):
                    if precision > bits - signed or bits - precision + (not signed) > 8:
                        continue
                    text = f"binary{bits}p{precision}{sign}{domain}"
                    try:
                        kind = element(text)
                    except ValueError:
                        continue  # no number is left
                    info = format_info_p3109(
                        bits, precision, Signedness.Signed if signed else Signedness.Unsigned,
                        Domain.Extended if extended else Domain.Finite,
                    )  # fmt: skip
                    wanted = [gfloat.decode_float(info, code).fval for code in range(1 << bits)]
                    np.testing.assert_array_equal(kind.table().levels, wanted, err_msg=text)
