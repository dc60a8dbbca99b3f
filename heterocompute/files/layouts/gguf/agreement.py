"""Whether two descriptions of a language model compute the same: keys of GGUF and config.json.

Each description is read as the networks read it. A value that one of them cannot hold then differs, and is refused by
its name instead of being left out.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np

from ....zoo.llm.shape import Rope, Shape
from ..linear import Array

__all__ = ["difference"]

ELSEWHERE = ("family", "context", "rope", "local_rope", "long_rope", "windows")  # compared by layer, or not at all
NEAR = 1e-6  # keys of GGUF are float32


def difference(one: Shape, other: Shape, divisors: tuple[Array | None, Array | None] = (None, None)) -> str | None:
    """Return what differs between two models, as ``"scale: 0.25 and 0.125"``; None if both compute the same.

    Windows that are not smaller than the smaller context count as none.

    Parameters
    ----------
    one, other : Shape
    divisors : tuple of ndarray or None
        The tensor ``rope_freqs.weight`` of each.
    """
    for field in fields(Shape):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name in ELSEWHERE or (field.name == "expert_hidden" and not one.experts):
            continue
        if not _near(a, b):
            return f"{field.name}: {_shown(a)} and {_shown(b)}"
    context = min(one.context, other.context)
    for i in range(one.layers):
        windows = [None if w is None or w >= context else w for w in (one.windows[i], other.windows[i])]
        if windows[0] != windows[1]:
            return f"window of layer {i}: {_shown(windows[0])} and {_shown(windows[1])}"
        ropes = [s.rope if s.windows[i] is None else s.local_rope for s in (one, other)]
        found = [one_of is s.rope for one_of, s in zip(ropes, (one, other), strict=True)]
        given = [d if is_whole or s.local_rope == s.rope else None
                 for d, is_whole, s in zip(divisors, found, (one, other), strict=True)]  # fmt: skip
        what = _turned(ropes[0], ropes[1], given[0], given[1])
        if what is not None:
            return f"RoPE of layer {i}, {what}"
    if one.long_rope is not None or other.long_rope is not None:
        what = _turned(one.long_rope or one.rope, other.long_rope or other.rope, *divisors)
        if what is not None:
            return f"RoPE of long texts, {what}"
        if one.long_rope is not None and other.long_rope is not None and one.rope.original != other.rope.original:
            return f"original context: {one.rope.original:g} and {other.rope.original:g}"
    return None


def _turned(one: Rope, other: Rope, a: Array | None, b: Array | None) -> str | None:
    """Return what differs between two rotations."""
    if one.width != other.width:
        return f"rotated values: {one.width} and {other.width}"
    if not _near(one.amplitude, other.amplitude):
        return f"amplitude: {one.amplitude:g} and {other.amplitude:g}"
    angles = [rope.frequencies() / (1.0 if d is None else d.astype(np.float64)) for rope, d in ((one, a), (other, b))]
    wrong = np.flatnonzero(~np.isclose(*angles, rtol=NEAR, atol=0))
    if len(wrong):
        i = int(wrong[0])
        return f"angle of pair {i}: {angles[0][i]:.6g} and {angles[1][i]:.6g}"
    return None


def _near(a: Any, b: Any) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=NEAR)
    return bool(a == b)


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
