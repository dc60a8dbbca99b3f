"""Convolution over nonzeros and its counts on an array of multipliers, in plain NumPy, as defined.

Parashar et al., "SCNN: An Accelerator for Compressed-sparse Convolutional Neural Networks", ISCA 2017 (arXiv
1708.04485), sections 3 and 4. The paper does not state the order of operands in a step, the hash of the banks and the
cost of a conflict. They are defined here: the weights of a step are in the order r, s, k, the values of x in the order
y, x; the value of filter k of the group (from 0) at (p, q) of the output is in bank (k + F (q + reach p)) mod banks; a
bank accepts one product per cycle, and there are no queues.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arithmetic import Array, fma


def conv2d_outer(x: Array, w: Array, stride: tuple[int, int], before: tuple[int, int], size: tuple[int, int]) -> Array:
    """Return the answer: each value a chain of fmaf from +0, over r, s, c ascending, of pairs without a 0.

    Parameters
    ----------
    x : ndarray, (N, C, H, W)
    w : ndarray, (K, C, R, S)
    stride, before, size : pair of int
        `before`: padding above and left; `size`: P and Q.

    Returns
    -------
    ndarray of float32, (N, K, P, Q)
    """
    with np.errstate(over="ignore"):
        x, w = x.astype(np.float32), w.astype(np.float32)
    answer = np.zeros((len(x), len(w), *size), np.float32)
    for r, s, c in np.ndindex(w.shape[2], w.shape[3], w.shape[1]):
        weights = w[:, c, r, s]
        filters = np.flatnonzero(weights)
        for n, y, u in zip(*np.nonzero(x[:, c]), strict=True):
            place = _place((y, u), (r, s), stride, before, size)
            if place is None or not filters.size:
                continue
            at = (n, filters, *place)
            answer[at] = fma(np.broadcast_to(x[n, c, y, u], filters.shape), weights[filters], answer[at])
    return answer


def counts(
    x: Array,
    w: Array,
    stride: tuple[int, int],
    before: tuple[int, int],
    size: tuple[int, int],
    cells: tuple[int, int] = (8, 8),
    multipliers: tuple[int, int] = (4, 4),
    banks: int = 32,
    accumulators: int = 1024,
) -> dict[str, int]:
    """Return the counts of the array: products, useful, conflicts, steps, cycles.

    Parameters
    ----------
    x, w, stride, before, size : as in `conv2d_outer`
    cells : pair of int
        The image is cut into so many tiles, of ceil(H / rows) by ceil(W / columns) pixels.
    multipliers : pair of int
        F weights and I values of x in a step.
    banks, accumulators : int

    Returns
    -------
    dict of str to int
    """
    x, w = x.astype(np.float32), w.astype(np.float32)
    tile = [-(-x.shape[2 + i] // cells[i]) for i in (0, 1)]
    # Number of outputs that a tile can touch, along each dimension.
    reach = [(max(tile[i], 1) + max(w.shape[2 + i], 1) - 2) // stride[i] + 1 for i in (0, 1)]
    group = max(1, accumulators // (reach[0] * reach[1]))
    total = dict.fromkeys(("products", "useful", "conflicts", "steps", "cycles"), 0)
    for n in range(len(x)):
        for first in range(0, len(w), group):
            part = w[first : first + group]
            slowest = 0
            for i, j in np.ndindex(*cells):
                cycles = 0
                for c in range(x.shape[1]):
                    weights = np.argwhere(part[:, c].transpose(1, 2, 0))  # r, s, k
                    pixels = np.argwhere(x[n, c, i * tile[0] : (i + 1) * tile[0], j * tile[1] : (j + 1) * tile[1]])
                    pixels = pixels + [i * tile[0], j * tile[1]]
                    for a in range(0, len(pixels), multipliers[1]):
                        for b in range(0, len(weights), multipliers[0]):
                            load = _step(
                                pixels[a : a + multipliers[1]],
                                weights[b : b + multipliers[0]],
                                (stride, before, size),
                                (multipliers[0], reach[1], banks),
                            )
                            total["products"] += len(pixels[a : a + multipliers[1]]) * len(
                                weights[b : b + multipliers[0]]
                            )
                            total["useful"] += int(load.sum())
                            total["conflicts"] += int(np.maximum(load - 1, 0).sum())
                            total["steps"] += 1
                            cycles += max(1, int(load.max()))
                slowest = max(slowest, cycles)
            total["cycles"] += slowest
    return total


def _step(pixels: Array, weights: Array, window: Any, hashed: tuple[int, int, int]) -> Array:
    """Return the products that each bank gets."""
    spread, reach, banks = hashed
    load = np.zeros(banks, np.int64)
    for y, u in pixels:
        for r, s, k in weights:
            place = _place((y, u), (r, s), *window)
            if place is not None:
                load[(k + spread * (place[1] + reach * place[0])) % banks] += 1
    return load


def _place(pixel: Any, tap: Any, stride: Any, before: Any, size: Any) -> tuple[int, int] | None:
    """Return the position of the product of a pixel and a tap, or None if it has none."""
    at = [int(pixel[i]) + before[i] - int(tap[i]) for i in (0, 1)]
    if any(at[i] % stride[i] or not 0 <= at[i] // stride[i] < size[i] for i in (0, 1)):
        return None
    return at[0] // stride[0], at[1] // stride[1]
