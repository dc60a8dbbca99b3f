"""Formats of a cache of keys and values with `+had`: heads are rotated by a Hadamard matrix before they are rounded.

    scores    (q M) . round(k M)    = q . k without rounding, since M M = I
    result    (p round(v M)) M

M is Sylvester's matrix of the head width, +-1 / sqrt(width), and is its own inverse. A rotation spreads a large channel
of a head over all of its values, which then need fewer bits. `reference.layers.rotate_heads` defines it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import _heterocompute as _core
from ...base import runtime
from ...base.errors import WrongValue
from ...formats import Format
from ..arguments import as_format

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
SUFFIX = "+had"


@dataclass(frozen=True)
class Turned:
    """A format of keys and values whose heads are rotated.

    Attributes
    ----------
    format : Format
        Format of the rotated heads.
    """

    format: Format

    @property
    def label(self) -> str:
        return f"{self.format.label}{SUFFIX}"

    def __str__(self) -> str:
        return f"{self.format}{SUFFIX}"


def cache_format(given: Any, name: str, functions: bool = True) -> Format | Turned | None:
    """Return the format of a cache from itself or its text, which may end with ``+had``."""
    if given is None or isinstance(given, Turned):
        return given
    if isinstance(given, str) and given.endswith(SUFFIX):
        return Turned(as_format(given.removesuffix(SUFFIX), name))
    return as_format(given, name, functions=functions)


def stored_format(given: Format | Turned | None) -> Format | None:
    """Return the format in which a cache stores heads, rotated or not."""
    return given.format if isinstance(given, Turned) else given


def check_width(width: int, name: str) -> None:
    """Refuse a head width without Sylvester's matrix."""
    if width & (width - 1):
        raise WrongValue(f"{name}: width is {width}, expected a power of two for a format with {SUFFIX}")


def turned(x: FloatArray) -> FloatArray:
    """Rotate the last axis; a second call rotates back, except for float32 rounding."""
    found = np.array(x, np.float32, order="C")
    if found.size:
        _core.rotate_heads(runtime.run(), found)
    return found


@functools.cache
def sylvester(width: int) -> FloatArray:
    """Return Sylvester's matrix of a power of two, +-1 / sqrt(width)."""
    found = np.ones((1, 1))
    while len(found) < width:
        found = np.block([[found, found], [found, -found]])
    return np.asarray(found / np.sqrt(width), np.float32)
