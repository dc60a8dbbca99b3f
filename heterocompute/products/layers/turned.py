"""Formats of a cache of keys and values with `+had`: heads are rotated by a Hadamard matrix before they are rounded.

    scores    (q M) . round(k M)    = q . k without rounding, since M M = I
    result    (p round(v M)) M

M has Sylvester's matrix of each block of a head, +-1 / sqrt(block), and is its own inverse. A block is the whole head,
or as wide as the suffix states. A rotation spreads a large channel over its block, whose values then need fewer bits.
`reference.layers.rotate_heads` defines it for a block.
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
    if is_rotated(found) and found.seed is not None:
        raise WrongValue(f"{name} is {found}, expected {Rotated(found.base, found.block)}: a cache has no signs")
    return found


def block_of(fmt: Format | None, width: int, name: str) -> int:
    """Return the block of a cache of heads of this width, 0 without a rotation. Refuse a width that has none."""
    if not is_rotated(fmt):
        return 0
    if fmt.block is not None and width % fmt.block:
        raise WrongValue(f"{name}: width is {width}, expected a multiple of {fmt.block} for {fmt}")
    if fmt.block is None and width & (width - 1):
        raise WrongValue(
            f"{name}: width is {width}, expected a power of two for a format with {SUFFIX}, or a block, such as "
            f"{SUFFIX}32"
        )
    return fmt.block or width


@functools.cache
def sylvester(width: int) -> FloatArray:
    """Return Sylvester's matrix of a power of two, +-1 / sqrt(width)."""
    found = np.ones((1, 1))
    while len(found) < width:
        found = np.block([[found, found], [found, -found]])
    return np.asarray(found / np.sqrt(width), np.float32)
