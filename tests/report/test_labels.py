"""A name does not cover other names or dots, and is nearest to its own dot."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from heterocompute.report.labels import GAP, Label, place, text_width

FRAME = (0.0, 0.0, 640.0, 400.0)


def overlap(a: Any, b: Any) -> bool:
    return bool(a[0] < b[2] and a[2] > b[0] and a[1] < b[3] and a[3] > b[1])


def distance(box: Any, dot: Any) -> float:
    x, y = min(max(dot[0], box[0]), box[2]), min(max(dot[1], box[1]), box[3])
    return math.hypot(dot[0] - x, dot[1] - y) - float(dot[2])


def along(line: Any, count: int = 200) -> list[tuple[float, float]]:
    x1, y1, x2, y2 = line
    return [(x1 + (x2 - x1) * i / count, y1 + (y2 - y1) * i / count) for i in range(count + 1)]


def check(found: list[Label], dots: Any, frame: Any = FRAME) -> None:
    for a, b in itertools.combinations(found, 2):
        assert not overlap(a.box, b.box), (a, b)
    for label in found:
        left, top, right, bottom = label.box
        assert frame[0] <= left and frame[1] <= top and right <= frame[2] and bottom <= frame[3]
        own = dots[label.row]
        others = [dot for dot in dots if math.hypot(dot[0] - own[0], dot[1] - own[1]) >= 1]
        for dot in others:
            assert distance(label.box, dot) > 0, (label, dot)
            if label.leader is None:
                assert distance(label.box, dot) > distance(label.box, own) + GAP * 0.99
        if label.leader is None:
            assert 0 < distance(label.box, own) <= 2 * GAP
            continue
        assert math.hypot(label.leader[0] - own[0], label.leader[1] - own[1]) == pytest.approx(own[2])
        for x, y in along(label.leader):
            assert all(math.hypot(x - dot[0], y - dot[1]) > dot[2] for dot in others)
            inside = [other for other in found if other is not label and overlap((x, y, x, y), other.box)]
            assert not inside
        assert distance(label.box, (*label.leader[2:], 0.0)) <= 3


@pytest.mark.parametrize("count", [1, 2, 12, 60, 300])
@pytest.mark.parametrize("spread", [5.0, 40.0, 150.0])
@pytest.mark.parametrize("leaders", [False, True])
@pytest.mark.sweep(every=3)
def test_names_are_apart_and_at_their_dots(count: int, spread: float, leaders: bool) -> None:
    rng = np.random.default_rng(count)
    places = np.clip(rng.normal((320, 200), spread, (count, 2)), 10, 390)
    dots = np.column_stack([places, rng.choice([4.5, 6.1], count)])
    wanted = [(i, f"vsq{i}-g16-s4", f"{i}") for i in range(min(count, 80))]
    found = place(wanted, dots, FRAME, 12, leaders)
    check(found, dots)
    assert found or spread < 40
    assert len(found) == 1 or count > 1


def test_a_dot_alone_has_its_name_beside_it() -> None:
    (label,) = place([(0, "int8", "int8")], np.array([[100.0, 100.0, 4.5]]), FRAME, 12)
    assert label.leader is None and label.box[0] > 104.5 and label.box[1] < 100 < label.box[3]


def test_a_name_does_not_stand_between_two_dots() -> None:
    """Such a name would be ambiguous."""
    dots = np.array([[100.0, 100.0, 4.5], [100 + 4 * 4.5 + text_width("cb3", 12), 100.0, 4.5]])
    (label,) = place([(0, "cb3", "cb3")], dots, FRAME, 12, leaders=False)
    check([label], dots)
    assert label.box[2] < dots[1][0] - 4.5


def test_dots_that_touch_are_named_once_where_they_are_of_the_same() -> None:
    dots = np.array([[100.0, 100.0, 4.5], [103.0, 100.0, 4.5], [300.0, 100.0, 4.5]])
    wanted = [(0, "int8", "int8"), (1, "int8 / int8", "int8"), (2, "int8 / int4", "int8")]
    found = place(wanted, dots, FRAME, 12)
    assert [label.row for label in found] == [0, 2]
    check(found, dots)


def test_no_name_lies_over_a_line() -> None:
    rails = [(0.0, 100.0, 640.0, 100.0), (100.0, 0.0, 100.0, 400.0)]
    dots = np.array([[100.0, 100.0, 4.5]])
    (label,) = place([(0, "vsq4-g16-s4", "")], dots, FRAME, 12, rails=rails)
    for line in rails:
        assert not any(overlap((x, y, x, y), label.box) for x, y in along(line))


def test_thousands_of_dots_take_no_time_to_speak_of() -> None:
    rng = np.random.default_rng(0)
    dots = np.column_stack([rng.uniform(10, 390, (5000, 2)), np.full(5000, 4.5)])
    check(place([(i, f"format {i}", f"{i}") for i in range(80)], dots, FRAME, 12), dots)


def test_no_font_writes_wider_than_the_box() -> None:
    font = pytest.importorskip("matplotlib.ft2font")
    matplotlib = pytest.importorskip("matplotlib")
    face = font.FT2Font(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf")
    face.set_size(100, 72)
    for code in range(32, 127):
        width = face.load_char(code).linearHoriAdvance / 65536
        assert width <= text_width(chr(code), 100) <= 1.6 * width + 10, chr(code)
