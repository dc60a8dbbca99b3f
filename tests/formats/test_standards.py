"""Elements against other implementations and the texts of standards: every code, every tie, both directions.

`ml_dtypes` and `gfloat` are other implementations. The Posit Standard (2022) and the papers of takums (arXiv
2404.18603, 2408.10594) are written here a second time, in exact fractions and with negative codes as they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common import codes_of

import heterocompute as hc
from heterocompute.formats import Minifloat
from heterocompute.formats.elements import PowersOfTwo
from heterocompute.formats.elements.text import element

TYPES = {
    "float8_e4m3fn": "e4m3fn", "float8_e4m3fnuz": "e4m3fnuz", "float8_e5m2": "e5m2", "float8_e5m2fnuz": "e5m2fnuz",
    "float8_e3m4": "e3m4", "float8_e4m3b11fnuz": "e4m3b11fnuz", "float8_e4m3": "e4m3", "float4_e2m1fn": "e2m1",
    "float6_e2m3fn": "e2m3", "float6_e3m2fn": "e3m2", "float16": "e5m10", "bfloat16": "e8m7",
}  # fmt: skip
BYTES = {
    "e4m3fn": "float8_e4m3fn", "e4m3fnuz": "float8_e4m3fnuz", "e5m2": "float8_e5m2", "e5m2fnuz": "float8_e5m2fnuz",
    "e3m4": "float8_e3m4", "e4m3b11fnuz": "float8_e4m3b11fnuz", "e4m3": "float8_e4m3",
}  # fmt: skip


def around(values: Sequence[float], dtype: type = np.float64) -> np.ndarray[Any, Any]:
    """Return values and their neighbours, of both signs."""
    with np.errstate(over="ignore"):
        some = np.asarray(values, dtype)
    near = [some, np.nextafter(some, dtype(np.inf)), np.nextafter(some, dtype(-np.inf))]
    return np.concatenate([sign * one for one in near for sign in (dtype(1), dtype(-1))])


# Other implementations.


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


@pytest.mark.parametrize("text", BYTES)
def test_stored_bytes_are_those_of_ml_dtypes(text: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, BYTES[text]))
    decoded = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    finite = np.unique(decoded[np.isfinite(decoded)]).astype(np.float64)
    with np.errstate(over="ignore"):
        x = around([*finite, *((finite[1:] + finite[:-1]) / 2), 1.0625 * finite[-1], 3e38, np.inf], np.float32)
    with np.errstate(all="ignore"):
        wanted = x.astype(dtype)
    q = hc.quantize(x[None], f"{text}-nosat")
    found = q.components["codes"][0].view(dtype)
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))
    numbers = ~np.isnan(wanted.astype(np.float32))
    assert (found.view(np.uint8) == wanted.view(np.uint8))[numbers].all()
    np.testing.assert_array_equal(q.dequantize()[0], wanted.astype(np.float32))


def test_powers_of_two_round_as_ml_dtypes() -> None:
    powers = 2.0 ** np.arange(-127, 128)
    x = around([*powers, *(1.5 * powers[:-1])], np.float32)
    x = x[x > 0]
    wanted = x.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)
    # ml_dtypes has NaN beyond the largest, and rounds up all that is between the two smallest, which float32 stores
    # as subnormals; here they saturate, and are rounded to nearest
    same = (wanted != 255) & ((x <= powers[0]) | (x >= powers[1]))
    found = hc.quantize(x[None], "e8m0").components["codes"][0]
    assert element("e8m0") == PowersOfTwo()
    assert (found == codes_of(PowersOfTwo(), x)).all() and (found[same] == wanted[same]).all() and same.sum() > 1500
    assert (found[wanted == 255] == 254).all() and set(found[x < powers[1]]) == {0, 1}


def p3109() -> list[tuple[str, int, int, bool, bool]]:
    """Return every P3109 format of 3 to 8 bits that has an exponent and a number above 0."""
    found = []
    for bits in range(3, 9):
        for precision in range(1, bits + 1):
            for signed in (True, False):
                for extended in (True, False):
                    text = f"binary{bits}p{precision}{'s' if signed else 'u'}{'e' if extended else 'f'}"
                    if bits - precision + (not signed) in range(1, 9) and precision <= bits:
                        found.append((text, bits, precision, signed, extended))
    return found


@pytest.mark.parametrize("case", p3109(), ids=[case[0] for case in p3109()])
@pytest.mark.sweep(every=3)
def test_p3109_rounds_as_gfloat(case: tuple[str, int, int, bool, bool]) -> None:
    gfloat = pytest.importorskip("gfloat")
    from gfloat.formats import Domain, Signedness, format_info_p3109

    text, bits, precision, signed, extended = case
    info = format_info_p3109(
        bits, precision, Signedness.Signed if signed else Signedness.Unsigned,
        Domain.Extended if extended else Domain.Finite,
    )  # fmt: skip
    kind = element(text)
    levels = [gfloat.decode_float(info, code).fval for code in range(1 << bits)]
    np.testing.assert_array_equal(kind.table().levels, levels)
    finite = sorted({one for one in levels if np.isfinite(one)})
    step = finite[-1] - finite[-2]
    values = around([*finite, *((a + b) / 2 for a, b in pairwise(finite)), finite[-1] + step / 2, finite[-1] + step])
    values = values if signed else values[values >= 0]  # gfloat has no rule below 0
    for saturate in (True, False):
        for value, code in zip(values.tolist(), codes_of(kind, values, saturate).tolist(), strict=True):
            wanted = gfloat.round_float(info, value, sat=saturate)
            assert code == gfloat.encode_float(info, wanted), (value, saturate)


def test_small_floats_of_ocp_round_as_gfloat() -> None:
    gfloat = pytest.importorskip("gfloat")
    from gfloat import formats

    for text in ("e2m1", "e2m3", "e3m2", "e4m3fn", "e5m2"):
        kind, info = element(text), getattr(formats, f"format_info_ocp_{text.removesuffix('fn')}")
        levels = [gfloat.decode_float(info, code).fval for code in range(1 << kind.bits)]
        np.testing.assert_array_equal(kind.table().levels, levels)
        finite = sorted({one for one in levels if np.isfinite(one)})
        values = around([*finite, *((a + b) / 2 for a, b in pairwise(finite)), 2 * finite[-1]])
        for value, code in zip(values.tolist(), codes_of(kind, values).tolist(), strict=True):
            assert code == gfloat.encode_float(info, gfloat.round_float(info, value, sat=True)), (text, value)


# Standards.


def posit_value(bits: int, es: int, code: int) -> Fraction:
    """Return the number of a posit: Posit Standard (2022), section 3.3, with 2^es in place of 4."""
    text = f"{code:0{bits}b}"
    s, rest = int(text[0]), text[1:]
    k = len(rest) - len(rest.lstrip(rest[0]))
    r = k - 1 if rest[0] == "1" else -k
    exponent, fraction = rest[k + 1 :][:es].ljust(es, "0"), rest[k + 1 :][es:]
    e, f = int(exponent or "0", 2), Fraction(int(fraction or "0", 2), 1 << len(fraction))
    return (1 - 3 * s + f) * Fraction(2) ** ((1 - 2 * s) * ((r << es) + e + s))


def takum_value(bits: int, code: int) -> Fraction:
    """Return the number of a linear takum: arXiv 2404.18603, definition 2, and 2408.10594, section II."""
    text = f"{code:0{bits}b}".ljust(12, "0")
    sign, direction, regime = int(text[0]), int(text[1]), int(text[2:5], 2)
    r = regime if direction else 7 - regime
    c = int(text[5 : 5 + r] or "0", 2) + ((1 << r) - 1 if direction else 1 - (2 << r))
    fraction = text[5 + r :]
    return (1 - 3 * sign + Fraction(int(fraction or "0", 2), 1 << len(fraction))) * Fraction(2) ** (
        (-1) ** sign * (c + sign)
    )


Number = Callable[[int, int], Fraction]


@lru_cache
def numbers_of(number: Number, bits: int) -> list[tuple[Fraction, int]]:
    """Return the numbers of positive codes with the codes, ascending."""
    found = [(number(bits, code), code) for code in range(1, 1 << (bits - 1))]
    assert found == sorted(found)
    return found


def rounded(number: Number, bits: int, x: Fraction) -> int:
    """Return the code of a number: Posit Standard (2022), section 4.1."""
    if x < 0:  # codes are two's complement
        return (1 << bits) - rounded(number, bits, -x)
    positive = numbers_of(number, bits)
    if x == 0 or x <= positive[0][0]:
        return int(x != 0)
    if x >= positive[-1][0]:
        return positive[-1][1]
    (u, low), (_, high) = next(pair for pair in pairwise(positive) if pair[0][0] <= x < pair[1][0])
    v = number(bits + 1, 2 * low + 1)
    return low if x == u or x < v or x == v and low % 2 == 0 else high


def posit_of(es: int) -> Number:
    return lambda bits, code: posit_value(bits, es, code)


TAPERED: list[tuple[str, int, Number]] = [(f"takum{bits}", bits, takum_value) for bits in range(2, 9)]
for es in range(4):
    TAPERED += [(f"posit{bits}.{es}", bits, number) for number in [posit_of(es)] for bits in range(2, 9)]


@pytest.mark.parametrize(("text", "bits", "number"), TAPERED, ids=[case[0] for case in TAPERED])
@pytest.mark.sweep(every=4)
def test_posits_and_takums_round_as_their_standards(text: str, bits: int, number: Number) -> None:
    kind, half = element(text), 1 << (bits - 1)
    exact = {code: number(bits, code) for code in range(1, 2 * half) if code != half}
    for code, value in exact.items():
        assert exact[2 * half - code] == -value
        if abs(value) < 3 * 2**126 and float(np.float32(float(value))) == value:
            assert kind.table().levels[code] == value
    levels = kind.table().levels
    assert levels[0] == 0 and np.isnan(levels[half])
    positive = [value for value, _ in numbers_of(number, bits)]
    ties = [number(bits + 1, 2 * code + 1) for code in range(1, half - 1)]
    middles = [(a + b) / 2 for a, b in pairwise(positive)]
    rng = np.random.default_rng(bits)
    drawn = rng.normal(size=200) * np.exp(rng.normal(size=200) * 8)
    values = around([*map(float, [*positive, *ties, *middles]), *drawn, 0.0, 5e-324, 1e-300, 1e300])
    values = values[np.isfinite(values)]
    wanted = [rounded(number, bits, Fraction(value)) for value in values.tolist()]
    assert codes_of(kind, values).tolist() == wanted
    assert not any(code in (0, half) for code, value in zip(wanted, values, strict=True) if value != 0)
    assert codes_of(kind, [np.inf, -np.inf]).tolist() == [half - 1, half + 1]
    with np.errstate(all="ignore"):
        x = np.unique(values.astype(np.float32))
    x = x[np.isfinite(x)]
    q = hc.quantize(x[None], text)
    stored = np.unpackbits(q.components["codes"][0], bitorder="little")[: bits * q.shape[1]].reshape(-1, bits)
    packed = stored.astype(np.int64) @ (1 << np.arange(bits))
    assert packed.tolist() == [rounded(number, bits, Fraction(float(one))) for one in x]


def test_posits_have_the_limits_of_the_standard() -> None:
    """Posit Standard (2022), section 3: minPos, maxPos, and pIntMax, up to which all integers are posits; es is 2."""
    for bits in range(3, 9):
        positive = numbers_of(posit_of(2), bits)
        assert positive[0][0] == Fraction(2) ** (8 - 4 * bits) and positive[-1][0] == Fraction(2) ** (4 * bits - 8)
        assert element(f"posit{bits}.2").largest == positive[-1][0]
        assert set(range(1, 2 ** (4 * (bits - 3) // 5) + 1)) <= {value for value, _ in positive}


def test_posits_and_takums_keep_order_and_signs() -> None:
    for text, bits, _ in TAPERED:
        levels, half = element(text).table().levels, 1 << (bits - 1)
        signed = np.concatenate([levels[half + 1 :], levels[:half]])  # as integers in two's complement ascend
        assert (np.diff(signed) >= 0).all(), text
        assert levels[1 << (bits - 2)] == 1.0 or bits == 2, text
