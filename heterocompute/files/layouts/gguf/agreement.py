"""Comparison of two descriptions of a language model: keys of GGUF and config.json.

Each description is read as the networks read it. A value that one of them cannot hold then differs, and is refused by
its name instead of being left out.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass

import numpy as np

from ....zoo.llm.shape import Rope, Shape
from ..linear import Array

# Compared layer by layer; by the tensors, of which GGUF names the biases; or not at all.
ELSEWHERE = ("family", "context", "rope", "local_rope", "long_rope", "windows", "biases")
NEAR = 1e-6  # keys of GGUF are float32


def difference(one: Shape, other: Shape, divisors: tuple[Array | None, Array | None] = (None, None)) -> str | None:
    """Return what differs between two models, as ``"scale: 0.25 and 0.125"``; None if both compute the same.

    Windows that are not smaller than the smaller context count as none.

    Parameters
    ----------
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
        (a, of_a), (b, of_b) = (_rope(s, i, d) for s, d in zip((one, other), divisors, strict=True))
        what = _turned(a, b, of_a, of_b)
        if what is not None:
            return f"RoPE of layer {i}, {what}"
    if one.long_rope is not None or other.long_rope is not None:
        what = _turned(one.long_rope or one.rope, other.long_rope or other.rope, *divisors)
        if what is not None:
            return f"RoPE of long texts, {what}"
        if one.long_rope is not None and other.long_rope is not None and one.rope.original != other.rope.original:
            return f"original context: {one.rope.original:g} and {other.rope.original:g}"
    return None


def _rope(shape: Shape, layer: int, divisors: Array | None) -> tuple[Rope, Array | None]:
    """Return the rotation of a layer, and its divisors."""
    if shape.windows[layer] is None or shape.local_rope == shape.rope:
        return shape.rope, divisors
    return shape.local_rope, None


def _turned(one: Rope, other: Rope, a: Array | None, b: Array | None) -> str | None:
    """Return what differs between two rotations."""
    if one.width != other.width:
        return f"rotated values: {one.width} and {other.width}"
    if not _near(one.amplitude, other.amplitude):
        return f"amplitude: {one.amplitude:g} and {other.amplitude:g}"
    p, q = (rope.frequencies() / (1.0 if d is None else d.astype(np.float64)) for rope, d in ((one, a), (other, b)))
    wrong = np.flatnonzero(~np.isclose(p, q, rtol=NEAR, atol=0))
    return f"angle of pair {wrong[0]}: {p[wrong[0]]:.6g} and {q[wrong[0]]:.6g}" if len(wrong) else None


def _near(a: object, b: object) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=NEAR)
    if type(a) is type(b) and is_dataclass(a) and is_dataclass(b):
        return all(_near(getattr(a, one.name), getattr(b, one.name)) for one in fields(a))
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_near, a, b))
    return bool(a == b)


def _shown(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
