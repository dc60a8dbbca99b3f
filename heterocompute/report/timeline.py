"""Timelines: bars on lanes over time, from plain dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .chart import Chart, Curve, Key
from .palette import FAMILIES, SERIES
from .scale import lanes, linear

WIDTH, LANE, BAR, TOP, BOTTOM = 760, 26, 18, 52, 44
LEAST = 0.001  # length of the shortest bar, a share of the axis


def timeline(rows: Sequence[Mapping[str, Any]], title: str) -> Chart:
    """Return bars on lanes.

    Parameters
    ----------
    rows : sequence of mapping
        ``lane``, ``begin``, ``end`` (seconds), ``kind`` (has a colour and stands in the key), ``name`` (a browser shows
        it over the bar), and perhaps ``faint``, so that neighbours can be told apart. Numbered lanes stand first.
    """
    names = sorted(dict.fromkeys(row["lane"] for row in rows), key=_order)
    kinds = dict.fromkeys(row["kind"] for row in rows)
    marks = {kind: SERIES[i % len(SERIES)]._replace(corners=FAMILIES["int"].corners) for i, kind in enumerate(kinds)}
    last = max((row["end"] for row in rows), default=1.0) * 1e3
    bars = []
    for row in rows:
        lane, begin, end = names.index(row["lane"]), row["begin"] * 1e3, row["end"] * 1e3
        hint = f"{row['kind']} {row['name']}: {begin:.4g} to {end:.4g} ms"
        bars.append(
            Curve([(begin, lane), (max(end, begin + LEAST * last), lane)], marks[row["kind"]].color, BAR,
                  is_rail=False, opacity=0.62 if row.get("faint") else 1.0, hint=hint)
        )  # fmt: skip
    keys = [Key(mark, kind) for kind, mark in marks.items()]
    return Chart(
        linear([0.0, last], 8, 0.0), lanes(names), WIDTH, TOP + LANE * len(names) + BOTTOM, "milliseconds", "",
        standalone=True, title=title, heading=title, curves=bars, keys=keys, top=TOP, bottom=BOTTOM, right=16,
    )  # fmt: skip


def _order(lane: str) -> tuple[bool, str, int]:
    """Sort key of lanes: workers by number, then the others by name, descending, so that copy is above device."""
    words = lane.rsplit(" ", 1)
    numbered = len(words) == 2 and words[1].isdigit()
    return not numbered, words[0], int(words[1]) if numbered else 0
