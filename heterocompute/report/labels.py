"""Names beside dots: none overlaps another name or a dot, or is nearer to another dot than to its own.

Greedy, in the given order: eight places around the dot, then places further away with a line that leads to it. A name
for which no place is found is left out. All lengths have one unit, y grows downwards, a box is (left, top, right,
bottom).
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Box = tuple[float, float, float, float]

GAP = 4.0  # from a dot to its name
LEADERS = (18.0, 28.0, 40.0, 54.0)  # distances at which a name with a leader line may be
# Widths in thousandths of the size: DejaVu Sans, the widest of the usual fonts, so that no name is wider than its box.
_WIDTHS = {c: width for width, letters in (
    (280, "ijl"), (340, " .,:;'|/\\"), (395, "ft()[]-"), (415, "r"), (505, "_"), (555, "zcsIJ\""), (595, "kvxy"),
    (620, "aeoLTFY"), (640, "0123456789bdghnpquE$?"), (700, "ABCKPRSVXZ*{}"), (790, "DGHNOQU&"), (840, "+=<>~w#^"),
    (1000, "mMW%@"),
) for c in letters}  # fmt: skip
ASCENT, DESCENT = 0.86, 0.26  # of a line, above and below its base, in sizes


class Label(NamedTuple):
    """A placed name: its text begins at (x, y), the left end of its base line."""

    text: str
    row: int  # of its dot
    x: float
    y: float
    box: Box
    leader: tuple[float, float, float, float] | None  # from the dot to the name


def text_width(text: str, size: float) -> float:
    """Return a width that the text does not exceed in a usual sans-serif font.

    Examples
    --------
    >>> round(text_width("vsq4-g16-s4", 10), 1)
    63.4
    """
    known = (_WIDTHS.get(c) or (1000 if unicodedata.east_asian_width(c) in "WF" else 700) for c in text)
    return sum(known) * size / 1000


def crossing(box: Box, others: Array) -> bool:
    """Tell whether a box overlaps one of the others, an array of n x 4."""
    return bool(
        np.any((others[:, 0] < box[2]) & (others[:, 2] > box[0]) & (others[:, 1] < box[3]) & (others[:, 3] > box[1]))
    )


def place(
    wanted: Sequence[tuple[int, str, str]],
    dots: Array,
    frame: Box,
    size: float,
    leaders: bool = True,
    rails: Sequence[Box] = (),
) -> list[Label]:
    """Find places for names.

    Parameters
    ----------
    wanted : sequence of (int, str, str)
        Row of the dot, its name, and what it is of: dots that touch and are of the same are named once. The first
        chooses first.
    dots : ndarray, n x 3
        x, y, radius of every dot in the picture, also of those without a name.
    frame : tuple
        No name leaves it.
    size : float
        Of the letters.
    leaders : bool, optional
        Whether names may stand away from their dot, with a line to it.
    rails : sequence of tuple, optional
        Lines (x1, y1, x2, y2) that no name covers.
    """
    found: list[Label] = []
    blocked, lines = np.empty((0, 4)), np.empty((0, 4))
    fixed = np.array([*rails], dtype=np.float64).reshape(-1, 4)
    named: list[tuple[float, float, str]] = []
    for row, text, kind in wanted:
        x, y, r = (float(value) for value in dots[row])
        if any(kind == other and math.hypot(x - a, y - b) <= 2 * r for a, b, other in named):
            continue
        width = text_width(text, size)
        away = np.abs(dots[:, :2] - dots[row, :2])
        near = (away < (width + LEADERS[-1] + 40, LEADERS[-1] + 40)).all(axis=1)  # no other dot can be in the way
        others = dots[near & (np.hypot(*away.T) >= 1)]
        for box, leader in _candidates(x, y, r, width, size, leaders):
            inside = frame[0] <= box[0] and frame[1] <= box[1] and box[2] <= frame[2] and box[3] <= frame[3]
            if not inside or crossing(box, blocked) or _cut(box, fixed) or _cut(box, lines):
                continue
            if not _own(box, dots[row], others, leader is not None):
                continue
            if leader is not None and _blocked(leader, others, blocked, lines):
                continue
            blocked = np.vstack([blocked, (box[0] - GAP, box[1], box[2] + GAP, box[3])])
            if leader is not None:
                lines = np.vstack([lines, leader])
            found.append(Label(text, row, box[0], box[1] + ASCENT * size, box, leader))
            named.append((x, y, kind))
            break
    return found


def _candidates(x: float, y: float, r: float, width: float, size: float, leaders: bool) -> list[tuple[Box, Any]]:
    """Return boxes around a dot, the best first, each with its leader line."""
    height, near, slant = (ASCENT + DESCENT) * size, r + GAP, 0.75 * r + GAP / 2
    middle = y - height / 2
    corners = [
        (x + near, middle), (x - width / 2, y - near - height + 1), (x - width / 2, y + near - 1),
        (x - near - width, middle), (x + slant, y - slant - height), (x + slant, y + slant),
        (x - slant - width, y - slant - height), (x - slant - width, y + slant),
    ]  # fmt: skip
    found: list[tuple[Box, Any]] = [((a, b, a + width, b + height), None) for a, b in corners]
    for distance in LEADERS if leaders else ():
        for turn in (-30, 30, -60, 60, 0, -90, 90, -120, 120, 180, -150, 150):
            dx, dy = math.cos(math.radians(turn)), math.sin(math.radians(turn))
            end_x, end_y = x + dx * (r + distance), y + dy * (r + distance)
            left = end_x + 2 if dx > 0.1 else end_x - width - 2 if dx < -0.1 else end_x - width / 2
            top = end_y - height / 2 if abs(dx) > 0.1 else end_y - height if dy < 0 else end_y
            leader = (x + dx * r, y + dy * r, end_x, end_y)
            found.append(((left, top, left + width, top + height), leader))
    return found


def _own(box: Box, own: Array, others: Array, led: bool) -> bool:
    """Tell whether a name is nearer to its dot than to all others, or, with a line, far enough from all."""
    gaps = _gaps(box, others)
    return bool(gaps.size == 0 or gaps.min() > GAP + (0.0 if led else _gaps(box, own[None])[0]))


def _gaps(box: Box, dots: Array) -> Array:
    """Return the distance of each dot from a box."""
    across = np.maximum(np.maximum(box[0] - dots[:, 0], dots[:, 0] - box[2]), 0)
    down = np.maximum(np.maximum(box[1] - dots[:, 1], dots[:, 1] - box[3]), 0)
    found: Array = np.hypot(across, down) - dots[:, 2]
    return found


def _cut(box: Box, lines: Array) -> bool:
    """Tell whether one of the lines runs through a box."""
    return bool(lines.size and _through(lines, np.array([box])).any())


def _through(lines: Array, boxes: Array) -> Array:
    """Return for each line (rows) and box (columns) whether one runs through the other (Liang and Barsky)."""
    start, run = lines[:, None, :2], (lines[:, 2:] - lines[:, :2])[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = [(boxes[None, :, i : i + 2] - start) / run for i in (0, 2)]
    between = (start > boxes[None, :, :2]) & (start < boxes[None, :, 2:])  # true if the line crosses the box
    enters = np.where(run == 0, np.where(between, -np.inf, np.inf), np.minimum(*ends)).max(axis=2)
    leaves = np.where(run == 0, np.inf, np.maximum(*ends)).min(axis=2)
    inside: Array = (enters < leaves) & (enters < 1) & (leaves > 0)
    return inside


def _blocked(leader: Box, others: Array, blocked: Array, lines: Array) -> bool:
    """Tell whether a line touches another dot, a name or another line."""
    reach = others[:, 2] + 2
    x, y = others[:, 0], others[:, 1]
    boxes = np.vstack([np.stack([x - reach, y - reach, x + reach, y + reach], axis=1), blocked])
    return bool(_through(np.array([leader]), boxes).any()) or any(_meet(leader, tuple(other)) for other in lines)


def _meet(one: Box, other: Box) -> bool:
    """Tell whether two lines cross."""

    def side(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> float:
        return (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)

    a, b = one[:2], one[2:]
    c, d = other[:2], other[2:]
    return side(*a, *b, *c) * side(*a, *b, *d) <= 0 and side(*c, *d, *a) * side(*c, *d, *b) <= 0
