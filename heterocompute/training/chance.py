"""The definition of stochastic rounding by counter: the chance of an element depends on seed and index alone.

    h = mix(seed + (index + 1) * 0x9e3779b97f4a7c15)      mix of SplitMix64
    u = (h >> 11) * 2^-53                                 in [0, 1)
    t = clip(x / scale, low, high)                        float64
    y = scale * (level above if u < (t - level below) / (level above - level below) else level below)

Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, for the mix.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

GOLDEN, FIRST, SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def mix(h: int) -> int:
    """Return the mix of SplitMix64 of an int modulo 2^64.

    >>> hex(mix(0x9E3779B97F4A7C15))
    '0xe220a8397b1dcdaf'
    """
    h %= 2**64
    h = (h ^ (h >> 30)) * int(FIRST) % 2**64
    h = (h ^ (h >> 27)) * int(SECOND) % 2**64
    return h ^ (h >> 31)


def chances(seed: int, first: int, count: int) -> Array:
    """Return `count` numbers in [0, 1), for the elements from index `first` on.

    >>> [round(chance, 12) for chance in chances(0, 0, 2).tolist()]
    [0.883310808214, 0.431527997049]
    """
    with np.errstate(over="ignore"):
        h = np.uint64(seed) + (np.arange(first, first + count, dtype=np.uint64) + np.uint64(1)) * GOLDEN
        h = (h ^ (h >> np.uint64(30))) * FIRST
        h = (h ^ (h >> np.uint64(27))) * SECOND
        h = h ^ (h >> np.uint64(31))
    return np.asarray((h >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def stochastic_round(x: Array, scale: Array, low: Any, high: Any, levels: Any, seed: int) -> Array:
    """Round to levels stochastically, float32.

    Parameters
    ----------
    x, scale : ndarray
        The values, and the float64 scale of each.
    low, high : array_like
        The outermost levels before the scale.
    levels : ndarray, or (float, float)
        All of them, ascending; or (2^m, 2^e): in the binade of t they lie 2^(max(exponent, e) - m) apart.
    seed : int
        From 0 to 2^64 - 1.
    """
    chance = chances(seed, 0, x.size).reshape(x.shape)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        t = np.asarray(x, np.float64) / scale
        t = np.where(t > low, t, low)
        t = np.where(t < high, t, high)
        if isinstance(levels, tuple):
            fraction, least = levels
            step = np.maximum(2.0 ** (np.frexp(t)[1] - 1.0), least) / fraction
            below = np.floor(t / step) * step + 0.0  # no -0
            above = below + step
        else:
            place = np.clip(np.searchsorted(levels, t, "right") - 1, 0, len(levels) - 2)
            below, above = levels[place], levels[place + 1]
        y = np.where(scale == 0, 0.0, np.where(chance < (t - below) / (above - below), above, below) * scale)
    most = float(np.finfo(np.float32).max)
    return np.where(np.isnan(x), np.float32(np.nan), np.clip(y, -most, most).astype(np.float32))
