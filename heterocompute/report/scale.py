"""Axes: the position of a value, and the round values written along it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

Ticks = list[tuple[float, str]]

MAX_TICKS = 18  # of an axis of distances
CROWD = 0.15  # share of the range: half of the values so near the best would overlap on a linear axis
DECADES = 30.0  # the largest over the smallest from which an axis is logarithmic


class Scale(NamedTuple):
    """An axis: `place` puts a value on [0, 1], 0 the lower end; `value` is its inverse; `ticks` have their texts.

    `words` name an axis on which equal distances are not equal differences.
    """

    place: Callable[[float], float]
    value: Callable[[float], float]
    ticks: Ticks
    words: str = ""


def short(value: float) -> str:
    """Return a number of at most four digits, with a power of ten where it has many zeros.

    Examples
    --------
    >>> short(0.05), short(2e-6), short(1000.0), short(250000.0)
    ('0.05', '2e-6', '1000', '2.5e5')
    """
    if value == 0 or 1e-4 <= abs(value) < 1e5:
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    digits, power = f"{value:.3e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"


def linear(values: Sequence[float], count: int = 6, pad: float = 0.07) -> Scale:
    """Return an axis whose steps are equal; `pad` is the free space at both ends, a share of the range."""
    low, high = min(values), max(values)
    free = (high - low or abs(high) or 1.0) * pad
    low, high = low - free, high + free
    step = _round_step((high - low) / count)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first = math.ceil(low / step - 1e-9)
    marks = [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]
    ticks = [(v, f"{v:.{digits}f}") for v in marks]
    return Scale(lambda v: (v - low) / (high - low), lambda share: low + share * (high - low), ticks)


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1, 2, 5, 10, 20) if m * power >= least * 0.999)


def logarithmic(
    values: Sequence[float], ticks: Sequence[float] | None = None, pad: float = 0.06, room: int = 8
) -> Scale:
    """Return a logarithmic axis of values from 0 up; zeros stand at its lower end, a tenth below the least.

    Parameters
    ----------
    ticks : sequence of float, optional
        The values written, if two of them are on the axis. Default: powers of ten, with 2 and 5 where there are few;
        equal steps in less than a decade.
    pad : float, optional
        Free space at both ends, a share of the axis.
    room : int, optional
        How many values may be written.
    """
    positive = [v for v in values if v > 0] or [1.0]
    low, high = math.log10(min(positive)), math.log10(max(positive))
    margin = max((high - low) * pad, 0.02)
    zero = min(values, default=1.0) <= 0
    floor = low - max((high - low) * 0.12, 0.15) if zero else low  # position of zeros
    bottom, top = floor - margin, high + margin
    if ticks is None or (high - low > 0.02 and sum(bottom <= math.log10(v) <= top for v in ticks) < 2):
        powers = range(max(math.floor(low - margin), -307), min(math.ceil(top) + 1, 308))
        for within in ((1, 2, 5), (1,)):
            found = [m * 10.0**k for k in powers for m in within]
            found = [v for v in found if low - margin <= math.log10(v) <= top]
            if len(found) <= room:
                break
        if len(found) < 3 and high - low > 0.02:  # less than a decade: equal steps
            steps = (v for v, _ in linear((10.0**low, 10.0**high), min(room, 5)).ticks)
            found = [v for v in steps if v > 0 and low - margin <= math.log10(v) <= top]
        ticks = found[:: -(-len(found) // room) or 1]
    marks = [(v, short(v)) for v in ticks if bottom <= math.log10(v) <= top]
    if not marks:  # a single value between two round numbers
        marks = [(v, f"{v:.3g}") for v in sorted({min(positive), max(positive)})]
    if zero:
        marks = [(0.0, "0"), *((v, text) for v, text in marks if math.log10(v) - floor > 0.06 * (top - bottom))]

    def position(value: float) -> float:
        return ((math.log10(value) if value > 0 else floor) - bottom) / (top - bottom)

    return Scale(position, lambda share: 10.0 ** (bottom + share * (top - bottom)), marks)


def from_best(values: Sequence[float], higher: bool) -> Scale:
    """Return an axis of the distance from the best value, logarithmic: it shows a crowd near it and the bad ones."""
    best, worst = (max(values), min(values)) if higher else (min(values), max(values))
    sign, reach = (-1.0 if higher else 1.0), abs(best - worst)
    gaps = [abs(best - v) for v in values if v != best]
    floor = max(min(gaps, default=1.0), 0.003 * reach) or 1.0

    def raw(value: float) -> float:
        return math.log10(1 + abs(value - best) / floor) * math.copysign(1, sign * (value - best))

    end = raw(worst)

    def place(value: float) -> float:
        share = (raw(value) / end + 0.08) / 1.18 if end else 0.5
        return 1 - share if higher else share

    def value(share: float) -> float:
        at = ((1 - share if higher else share) * 1.18 - 0.08) * (end or 1.0)
        return best + sign * math.copysign(floor * (10 ** abs(at) - 1), at)

    return Scale(place, value, _ticks_from_best(best, sign, floor, end), "axis stretched near the best")


def _ticks_from_best(best: float, sign: float, floor: float, end: float) -> Ticks:
    """Return for every stretch of the axis the value of the fewest digits in it."""
    found: Ticks = []
    step = (1.1 * end) / MAX_TICKS or 1.0
    at = -0.04 * end
    while at <= 1.04 * end and len(found) <= MAX_TICKS:
        ends = sorted(best + sign * floor * math.copysign(10 ** abs(a) - 1, a) for a in (at, at + step))
        value, text = _roundest(*ends)
        found.append((value, text))
        at = math.copysign(math.log10(1 + abs(value - best) / floor), sign * (value - best)) + step
    return found


def _roundest(low: float, high: float) -> tuple[float, str]:
    """Return the value of the fewest decimals in [low, high], and its text."""
    power = 10.0 ** math.ceil(math.log10(max(high - low, 1e-300)))
    for _ in range(12):
        for step in (5 * power, 2 * power, power):
            value = math.ceil(low / step - 1e-9) * step
            if value <= high + 1e-9 * step:
                return value, f"{value:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"
        power /= 10
    return low, short(low)


def lanes(names: Sequence[str]) -> Scale:
    """Return an axis of named rows, the first at the upper end; the value of a row is its index.

    Examples
    --------
    >>> scale = lanes(["a", "b"])
    >>> scale.place(0), scale.value(0.25), scale.ticks
    (0.75, 1.0, [(0, 'a'), (1, 'b')])
    """
    count = max(len(names), 1)
    ticks: Ticks = list(enumerate(names))
    return Scale(lambda row: 1 - (row + 0.5) / count, lambda share: (1 - share) * count - 0.5, ticks)


def for_metric(values: Sequence[float], higher: bool) -> Scale:
    """Return the axis that separates most of these values.

    Logarithmic if less is better and they span decades; the distance from the best if half of them are close to it;
    otherwise linear.
    """
    positive = [v for v in values if v > 0]
    if not higher and min(values) >= 0 and positive and max(positive) >= DECADES * min(positive):
        return logarithmic(values)
    best, worst = (max(values), min(values)) if higher else (min(values), max(values))
    gaps = sorted(abs(best - v) for v in values)
    if len(values) > 4 and gaps[len(gaps) // 2] < CROWD * abs(best - worst):
        return from_best(values, higher)
    return linear(values)
