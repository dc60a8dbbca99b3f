"""Formats of a cache of keys and values with `+had`: heads are rotated by a Hadamard matrix before they are rounded.

    scores    (q M) . round(k M)    = q . k without rounding, since M M = I
    result    (p round(v M)) M

M is Sylvester's matrix of the head width, +-1 / sqrt(width), and is its own inverse. A rotation spreads a large channel
of a head over all of its values, which then need fewer bits. `reference.layers.rotate_heads` defines it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...base.errors import WrongValue
from ...formats import Format, Rotated, is_rotated
from ..arguments import as_format

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
SUFFIX = "+had"


def cache_format(given: Any, name: str, functions: bool = True) -> Format | None:
    """Return the format of a cache from itself or its text, which may end with ``+had``."""
    if given is None:
        return None
    found = as_format(given, name, functions=functions, rotated=True)
    if is_rotated(found) and (found.block, found.seed) != (None, None):
        raise WrongValue(
            f"{name} is {found}, expected {Rotated(found.base)}: a cache rotates whole heads, without signs"
        )
    return found


def check_width(width: int, name: str) -> None:
    """Refuse a head width without Sylvester's matrix."""
    if width & (width - 1):
        raise WrongValue(f"{name}: width is {width}, expected a power of two for a format with {SUFFIX}")


@functools.cache
def sylvester(width: int) -> FloatArray:
    """Return Sylvester's matrix of a power of two, +-1 / sqrt(width)."""
    found = np.ones((1, 1))
    while len(found) < width:
        found = np.block([[found, found], [found, -found]])
    return np.asarray(found / np.sqrt(width), np.float32)
