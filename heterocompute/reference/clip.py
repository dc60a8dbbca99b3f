"""Clipping: the threshold T that replaces absmax, one for all values that share a scale.

fraction c:     T = float32(float64(c) * float64(absmax))
percentile p:   the p-th percentile of |x|, linear between neighbours
OCTAV:          the clip of least mean squared error, Newton's iteration of Sakr et al., "Optimal Clipping
                and Magnitude-aware Differentiation for Improved Quantization-aware Training", ICML 2022
                (arXiv 2206.06501), equation 6
"""

from __future__ import annotations

import numpy as np

from .arithmetic import Array


def thresholds(magnitudes: Array, real: Array, clip: float | str | None, bits: int) -> Array:
    """Return T of every group.

    Parameters
    ----------
    magnitudes : ndarray of float64, (rows, groups, group)
        |x|, or max(x, 0) for unsigned codes; 0 in the padding.
    real : ndarray of bool, (groups, group)
        False in the padding.
    clip : None, float in (0, 1], "octav" or "percentile:p"
    bits : int
        Bits of a code.

    Returns
    -------
    ndarray of float32, (rows, groups)

    Raises
    ------
    ValueError
        Another clip.
    TypeError
        The clip is neither a number nor a text.
    """
    absmax: Array = magnitudes.max(axis=-1, initial=0.0).astype(np.float32)
    if clip is None:
        return absmax
    if isinstance(clip, str):
        if clip == "octav":
            return octav(magnitudes, absmax, bits)
        name, colon, number = clip.partition(":")
        if name == "percentile" and colon:
            return percentile(magnitudes, real, _number(number))
    elif isinstance(clip, bool) or not isinstance(clip, (int, float, np.integer, np.floating)):
        raise TypeError(f"clip: {clip!r:.80} of type {type(clip).__name__}, expected None, a float or a str")
    elif 0 < clip <= 1:
        fraction: Array = (np.float64(clip) * absmax.astype(np.float64)).astype(np.float32)
        return fraction
    raise ValueError(f"clip: {clip!r:.80}, expected None, a float in (0, 1], 'octav' or 'percentile:99.9'")


def percentile(magnitudes: Array, real: Array, p: float) -> Array:
    """Return float32 of the p-th percentile of each group's n values, with h = (n - 1) * p / 100.

    Between the neighbours a and b of h = i + t: a + (b - a) * t, or b - (b - a) * (1 - t) for t >= 1/2.

    Parameters
    ----------
    magnitudes : ndarray of float64, (rows, groups, group)
    real : ndarray of bool, (groups, group)
    p : float
        0 to 100.

    Returns
    -------
    ndarray of float32, (rows, groups)
    """
    found = np.zeros(magnitudes.shape[:2], dtype=np.float32)
    counts = real.sum(axis=-1)
    for n in set(counts.tolist()) - {0}:  # at most two: full groups and tails
        ordered = np.sort(magnitudes[:, counts == n, :n], axis=-1)
        h = (n - 1) * p / 100
        i = min(int(h), n - 1)
        t = h - i
        a, b = ordered[..., i], ordered[..., min(i + 1, n - 1)]
        between = a + (b - a) * t if t < 0.5 else b - (b - a) * (1 - t)
        found[:, counts == n] = between.astype(np.float32)
    return found


def octav(magnitudes: Array, absmax: Array, bits: int, steps: int = 20) -> Array:
    """Return float32 of OCTAV's threshold of each group.

    s_0 = sum |x| / #{|x| > 0}
    s_t = sum |x| 1{|x| > s} / ((4^-B / 3) #{0 < |x| <= s} + #{|x| > s}),   s = s_(t-1),   t = 1 .. 20

    until s_t = s_(t-1), or until nothing lies beyond s_(t-1): then T = absmax (a group of equal magnitudes
    would otherwise never come to rest).

    Parameters
    ----------
    magnitudes : ndarray of float64, (rows, groups, group)
    absmax : ndarray of float32, (rows, groups)
    bits : int
        The B of the equation.
    steps : int
        The last t.

    Returns
    -------
    ndarray of float32, (rows, groups)
    """
    nonzero = np.count_nonzero(magnitudes, axis=-1)
    running = nonzero > 0
    s = np.divide(lane_sum(magnitudes), nonzero, out=np.zeros(absmax.shape), where=running)
    found: Array = s.astype(np.float32)
    inside_weight = 4.0**-bits / 3
    for _ in range(steps):
        beyond = magnitudes > s[..., None]
        outside = np.count_nonzero(beyond, axis=-1)
        found = np.where(running & (outside == 0), absmax, found)
        running = running & (outside > 0)
        if not running.any():
            return found
        weighted = inside_weight * (nonzero - outside) + outside
        following = np.divide(lane_sum(np.where(beyond, magnitudes, 0.0)), weighted, out=s.copy(), where=running)
        found = np.where(running, following.astype(np.float32), found)
        running = running & (following != s)
        s = following
    return found


def lane_sum(values: Array) -> Array:
    """Sum the last axis in 8 lanes, lane = index mod 8, each ascending, folded in pairs.

    Parameters
    ----------
    values : ndarray of float64, (..., n)

    Returns
    -------
    ndarray of float64, (...)
        ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))
    """
    *outer, n = values.shape
    padded = np.concatenate([values, np.zeros((*outer, -n % 8))], axis=-1).reshape(*outer, -(-n // 8), 8)
    lanes = np.zeros((*outer, 8))
    for step in range(padded.shape[-2]):
        lanes = lanes + padded[..., step, :]
    while lanes.shape[-1] > 1:
        lanes = lanes[..., 0::2] + lanes[..., 1::2]
    return lanes[..., 0]


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 100:
        raise ValueError(f"clip: 'percentile:{text}', expected a number from 0 to 100 after the colon")
    return number
