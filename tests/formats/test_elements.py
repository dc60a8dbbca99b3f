"""Elements: their texts, ties, levels of the literature, and what is no element; see test_standards.py, too."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from common import codes_of

from heterocompute.formats import Integer, Levels, Minifloat
from heterocompute.formats.elements import Logs
from heterocompute.formats.elements.text import element


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
        (lambda: Levels(range(257)), "more than 256 numbers"),
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


def test_wide_floats_that_float32_cannot_shift_are_refused() -> None:
    for text in ("e8m1b128finite", "e8m1b128fn", "e5m4b-1", "e5m4ns"):
        with pytest.raises(ValueError):
            element(text)
    assert element("e8m1b128").largest == 2.0**126 * 1.5


@pytest.mark.parametrize(
    "arguments, words",
    [
        (([0, 10**400],), "finite numbers of float64"), (("0123",), "a sequence of numbers"),
        (({0: 1, 1: 2},), "a sequence of numbers"), ((itertools.count(),), "has more than 256 numbers"),
        (([0, 1], [0.5] * 300), "thresholds has more than 256 numbers"), (([0, 1], None, "int4"), "text is 'int4'"),
        (([0, 1], None, "ternary"), "text is 'ternary'"),
    ],
)  # fmt: skip
def test_what_is_not_levels_is_refused(arguments: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"Levels: .*{words}"):
        Levels(*arguments)
