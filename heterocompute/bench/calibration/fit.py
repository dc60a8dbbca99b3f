"""Costs of counts of work that make estimates as long as times: non-negative least squares of estimate / time - 1.

``csrc/ops/fit_costs.py`` fits the costs of a build with it, `calibrate` those of a machine. It imports NumPy alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

TURNS, NEAR, FAR = 8, 1.5, 5.0
PRIOR = 0.2  # weight of a known cost, where a measurement has 1


def nonnegative(a: Array, b: Array) -> Array:
    """Return the x >= 0 with the least |a x - b|, by the active sets of Lawson and Hanson (1974, chapter 23)."""
    norms = np.linalg.norm(a, axis=0)
    a = a / np.where(norms > 0, norms, 1)
    x, free = np.zeros(a.shape[1]), np.zeros(a.shape[1], bool)
    for _ in range(10 * a.shape[1]):
        gradient = np.where(free | (norms == 0), -np.inf, a.T @ (b - a @ x))
        if gradient.max() <= 1e-9 * np.linalg.norm(b):
            break
        free[gradient.argmax()] = True
        while True:
            found = np.zeros_like(x)
            found[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
            if (found[free] > 0).all():
                x = found
                break
            below = free & (found <= 0)
            step = (x[below] / (x[below] - found[below])).min()
            x = np.where(free, x + step * (found - x), 0)
            free &= x > 1e-12
            x[~free] = 0
    answer: Array = x / np.where(norms > 0, norms, 1)
    return answer


def fit(counts: Array, ns: Array, slower: Array, known: Array | None = None) -> tuple[Array, Array]:
    """Return the cost of each count, and estimate / time of each row.

    Parameters
    ----------
    counts : ndarray, shape (rows, n)
        The first is 1, of a call.
    ns : ndarray, shape (rows,)
        Times.
    slower : ndarray, shape (rows,)
        The time of a path over that of the fastest one. A path that is much slower than the fastest counts for less,
        unless its estimate would make the plan take it.
    known : ndarray, shape (n,), optional
        Costs from elsewhere: they decide where the measurements do not.
    """
    ratios = np.ones(len(ns))
    told = np.flatnonzero(known) if known is not None else np.zeros(0, np.intp)
    prior = np.zeros((len(told), counts.shape[1]))
    if known is not None:
        prior[np.arange(len(told)), told] = PRIOR / known[told]
    for _ in range(TURNS):
        importance = np.where(ratios * slower < NEAR, 1, slower**-2.0)
        weights = importance / np.sqrt(np.clip(ratios, 1 / FAR, FAR))
        rows = np.concatenate([counts / ns[:, None] * weights[:, None], prior])
        costs = nonnegative(rows, np.concatenate([weights, np.full(len(prior), PRIOR)]))
        costs[0] = max(costs[0], 1)  # 0 stands for a path that was not measured
        ratios = counts @ costs / ns
    return costs, ratios
