"""k-means: optimal in one dimension, Lloyd's iteration from k-means++ for vectors. All sums float64, ascending.

One dimension: y = v - mean(v); W, P = prefix sums of w and w y, values ascending

    gain_1(j) = P_j^2 / W_j     gain_t(j) = max_i gain_(t-1)(i) + (P_j - P_i)^2 / (W_j - W_i), the smallest i of ties

is the reduction of the squared error around the mean by t centroids, for clusters that end at the places i < ... < j.
"""

from __future__ import annotations

import numpy as np

from .arithmetic import Array

MAX_EXACT = 2**16
BINS = 2**14
MAX_LLOYD = 10_000
MAX_STEPS = 25
TOGETHER = 8


def optimal(values: Array, weights: Array | None, k: int) -> Array:
    """Return the k centroids of least weighted squared error; fewer different values repeat the largest.

    Parameters
    ----------
    values : ndarray of float32, (n,)
    weights : ndarray of float64, (n,), or None
        Finite, not negative; all 0 counts as all 1.
    k : int

    Returns
    -------
    ndarray of float32, (k,)
        Ascending.

    Notes
    -----
    Above `MAX_EXACT` different values, clusters end between `BINS` bins of equal count at first, and Lloyd's
    iteration on all values follows.

    Examples
    --------
    >>> import numpy as np
    >>> from heterocompute.reference.kmeans import optimal
    >>> optimal(np.float32([4.0, 4.1, 4.2, -50, 200.2, 200.4, 200.9, 80, 100, 102]), None, 4)
    array([-50. ,   4.1,  94. , 200.5], dtype=float32)
    """
    if not values.size:
        return np.zeros(k, np.float32)
    w = np.ones(values.size) if weights is None else weights
    if not w.any():
        w = np.ones(values.size)
    v, w = values[w > 0].astype(np.float64) + 0.0, w[w > 0]
    order = np.argsort(v, kind="stable")
    v, w = v[order], w[order]
    mean = _sum(w * v) / _sum(w)
    changes = np.flatnonzero(v[1:] != v[:-1]) + 1
    exact = len(changes) + 1 <= MAX_EXACT
    if not exact:
        targets = np.arange(1, BINS) * v.size // BINS
        found = np.searchsorted(changes, targets)
        changes = np.unique(changes[found[found < len(changes)]])
    places = np.concatenate([[0], changes, [v.size]])
    weight = np.concatenate([[0.0], np.cumsum(w)])
    moment = np.concatenate([[0.0], np.cumsum(w * (v - mean))])
    ends = places[clusters(weight[places], moment[places], min(k, len(places) - 1))]
    if not exact:
        ends = lloyd(v, weight, moment, mean, ends)
    centroids = [_mean(v[i:j], w[i:j]) for i, j in zip(ends[:-1], ends[1:], strict=True) if i < j]
    centroids += [centroids[-1]] * (k - len(centroids))
    return np.array(centroids).astype(np.float32) + np.float32(0)


def clusters(weight: Array, moment: Array, k: int) -> Array:
    """Return where the k clusters of largest gain end, by dynamic programming.

    The best i grows with j and with t. So the multiples of `TOGETHER` are filled in strides of a falling power of two:
    at the odd multiples of the stride, i lies between those of the two neighbours, and not below that of t - 1
    clusters. The places between two multiples are searched together, each from the largest known lower bound of the
    first of them up to the second's i.

    Parameters
    ----------
    weight, moment : ndarray of float64, (places + 1,)
        W and P before each place, from 0 on.
    k : int

    Returns
    -------
    ndarray of int64, (k + 1,)
        0 first, the last place last.
    """
    last = len(weight) - 1
    gain = np.zeros(last + 1)
    gain[1:] = moment[1:] ** 2 / weight[1:]
    layers: list[Array] = []
    for t in range(2, k):
        split, filled = np.full(last + 1, t - 1), np.zeros(last + 1)
        stride = max(1 << (last.bit_length() - 1), TOGETHER)
        while stride >= TOGETHER:
            j = np.arange(stride, last + 1, 2 * stride)
            j = j[j >= t]
            below = np.maximum(np.where(j - stride >= t, split[j - stride], t - 1), layers[-1][j] if layers else 0)
            above = np.where(j + stride <= last, np.minimum(split[np.minimum(j + stride, last)], j - 1), j - 1)
            split[j], filled[j] = _best(weight, moment, gain, below, above, j)
            stride //= 2
        j = np.arange(t, last + 1)
        j = j[j % TOGETHER != 0]
        block = j // TOGETHER * TOGETHER
        first, end = np.maximum(block + 1, t), block + TOGETHER
        below = np.maximum(np.where(block >= t, split[block], t - 1), layers[-1][first] if layers else 0)
        above = np.minimum(np.where(end <= last, split[np.minimum(end, last)], last), j - 1)
        split[j], filled[j] = _best(weight, moment, gain, below, above, j)
        gain = filled
        layers.append(split)
    ends = [last]
    if k > 1:
        ends.append(int(_best(weight, moment, gain, np.array([k - 1]), np.array([last - 1]), np.array([last]))[0][0]))
    for split in reversed(layers):
        ends.append(int(split[ends[-1]]))
    return np.array([0, *reversed(ends)])


def _best(weight: Array, moment: Array, gain: Array, first: Array, last: Array, j: Array) -> tuple[Array, Array]:
    """Return for every j the i of first .. last with the largest gain, the smallest i if gains are equal, and the gain.

    A NaN gain (0 / 0, if weights vanish in the sum of the preceding weights) counts as -1. If the bounds cross for this
    reason, first is the only i.
    """
    if not len(j):
        return j, j.astype(np.float64)
    counts = np.maximum(last - first, 0) + 1
    starts = np.cumsum(counts) - counts
    i = np.arange(counts.sum()) - np.repeat(starts - first, counts)
    end = np.repeat(j, counts)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = gain[i] + (moment[end] - moment[i]) ** 2 / (weight[end] - weight[i])
    total[np.isnan(total)] = -1
    largest = np.maximum.reduceat(total, starts)
    hits = np.where(total == np.repeat(largest, counts), i, np.iinfo(np.int64).max)
    return np.minimum.reduceat(hits, starts), largest


def lloyd(v: Array, weight: Array, moment: Array, mean: float, ends: Array) -> Array:
    """Move the ends of clusters to the midpoints of their centroids until they stay.

    Parameters
    ----------
    v : ndarray of float64, (n,)
        Ascending.
    weight, moment : ndarray of float64, (n + 1,)
    mean : float
    ends : ndarray of int64, (k + 1,)

    Returns
    -------
    ndarray of int64, (k + 1,)
    """
    centroids = np.zeros(len(ends) - 1)
    for _ in range(MAX_LLOYD):
        w, p = np.diff(weight[ends]), np.diff(moment[ends])
        found = mean + np.divide(p, w, out=np.zeros(len(w)), where=w > 0)
        centroids = np.where(w > 0, found, centroids)  # an empty cluster keeps its centroid
        moved = np.searchsorted(v, (centroids[:-1] + centroids[1:]) / 2, side="right")
        moved = np.concatenate([[0], moved, [len(v)]])
        if np.array_equal(moved, ends):
            break
        ends = moved
    return ends


def nearest(levels: Array, values: Array) -> Array:
    """Return the index of the nearest level: between the midpoints, a midpoint itself to the lower level.

    Parameters
    ----------
    levels : ndarray of float32, (k,)
        Ascending; those that repeat the one before are never taken.
    values : ndarray of float64

    Returns
    -------
    ndarray of int64, of the shape of values
    """
    low, high = levels[:-1].astype(np.float64), levels[1:].astype(np.float64)
    found: Array = np.searchsorted(np.where(low == high, np.inf, (low + high) / 2), values, side="left")
    return found


def vectors(values: Array, weights: Array | None, k: int) -> Array:
    """Return k centroids by k-means++ and Lloyd's iteration.

    Parameters
    ----------
    values : ndarray of float32, (n, dim)
    weights : ndarray of float64, (n, dim), or None
        A vector weighs the sum of its row; all 0 counts as all 1.
    k : int

    Returns
    -------
    ndarray of float32, (k, dim)
        In the order in which the seeds were drawn; fewer different vectors repeat the last.
    """
    n, dim = values.shape
    w = np.ones(n) if weights is None else np.zeros(n)
    for d in range(dim if weights is not None else 0):
        w = w + weights[:, d]  # type: ignore[index]
    if not w.any():
        w = np.ones(n)
    x = values.astype(np.float64)
    centroids = seeds(values, w, k)
    member = np.full(n, -1)
    for _ in range(MAX_STEPS if len(centroids) else 0):
        closest = nearest_vector(centroids, x)
        if np.array_equal(closest, member):
            break
        member = closest
        for c in range(len(centroids)):
            of = member == c
            total = _sum(w[of])
            if total > 0:
                sums = [_sum(w[of] * x[of, d]) for d in range(dim)]
                centroids[c] = (np.array(sums) / total).astype(np.float32) + np.float32(0)
    rest = k - len(centroids)
    if not len(centroids):
        return np.zeros((k, dim), np.float32)
    return np.concatenate([centroids, np.repeat(centroids[-1:], rest, axis=0)])


def seeds(values: Array, w: Array, k: int) -> Array:
    """Draw up to k different vectors by k-means++ (Arthur and Vassilvitskii, SODA 2007).

    Parameters
    ----------
    values : ndarray of float32, (n, dim)
    w : ndarray of float64, (n,)
    k : int

    Returns
    -------
    ndarray of float32, (up to k, dim)
    """
    x, p, chosen = values.astype(np.float64), w, []
    state = 0
    for _ in range(k):
        state, u = random(state)
        if not p.any():
            break
        sums = np.cumsum(p)
        above = np.flatnonzero(sums > u * sums[-1])
        i = above[0] if above.size else np.flatnonzero(p)[-1]
        chosen.append(values[i])
        distance = w * _distances(values[i : i + 1].astype(np.float64), x)[:, 0]
        p = distance if len(chosen) == 1 else np.minimum(distance, p)
    return np.array(chosen, np.float32).reshape(-1, values.shape[1])


def random(state: int) -> tuple[int, float]:
    """Step SplitMix64 (Steele, Lea, Flood, OOPSLA 2014); return the next state and a number of [0, 1).

    Parameters
    ----------
    state : int
        64 bits.

    Returns
    -------
    int, float
    """
    mask = 2**64 - 1
    state = (state + 0x9E3779B97F4A7C15) & mask
    z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
    return state, float((z ^ z >> 31) >> 11) * 2.0**-53


def nearest_vector(centroids: Array, x: Array) -> Array:
    """Return the index of the centroid of least squared distance, the first of equals.

    Parameters
    ----------
    centroids : ndarray of float32, (k, dim)
    x : ndarray of float64, (n, dim)

    Returns
    -------
    ndarray of int64, (n,)
    """
    found: Array = _distances(centroids.astype(np.float64), x).argmin(axis=1)
    return found


def _distances(centroids: Array, x: Array) -> Array:
    total = np.zeros((len(x), len(centroids)))
    for d in range(x.shape[1]):
        total = total + (x[:, d, None] - centroids[None, :, d]) ** 2
    return total


def _sum(values: Array) -> float:
    """Sum with one accumulator, index ascending."""
    return float(np.cumsum(values)[-1]) if values.size else 0.0


def _mean(v: Array, w: Array) -> float:
    """Return the weighted mean; a single value is returned unchanged."""
    return float(v[0]) if v[0] == v[-1] else _sum(w * v) / _sum(w)
