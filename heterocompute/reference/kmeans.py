"""k-means: optimal in one dimension, breathing k-means for vectors. All sums float64, ascending.

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
MAX_STEPS, FEW_STEPS = 25, 10
MIN_CYCLES, CENTROIDS_PER_CYCLE, MOST_ADDED = 4, 16, 5
SAMPLE, MOST_STARTED = 2**14, 2**16
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
    bounds = np.concatenate([[0], changes, [v.size]])
    weight = np.concatenate([[0.0], np.cumsum(w)])
    moment = np.concatenate([[0.0], np.cumsum(w * (v - mean))])
    ends = bounds[clusters(weight[bounds], moment[bounds], min(k, len(bounds) - 1))]
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


def vectors(values: Array, weights: Array | None, k: int, starts: int) -> Array:
    """Return k centroids: Lloyd's iteration from the seeds of k-means++, then `improved`.

    Parameters
    ----------
    values : ndarray of float32, (n, dim)
    weights : ndarray of float64, (n, dim), or None
        A vector weighs the sum of its row; all 0 counts as all 1.
    k, starts : int

    Returns
    -------
    ndarray of float32, (k, dim)
        Fewer different vectors repeat the last.

    Notes
    -----
    Up to `MOST_STARTED` vectors times centroids, the best of `starts` starts is returned. Random numbers continue.
    Above `SAMPLE` vectors, the search is for a sample at equal distances, and Lloyd's iteration on all follows.
    """
    n, dim = values.shape
    w = np.zeros(n)
    for d in range(dim if weights is not None else 0):
        w = w + weights[:, d]  # type: ignore[index]
    w = _or_ones(w)
    chosen = np.arange(SAMPLE) * n // SAMPLE if n > SAMPLE else np.arange(n)
    some, its = values[chosen], _or_ones(w[chosen])
    centroids, state = seeds(some, its, k)
    if len(chosen) < n and len(centroids) < k:  # all vectors may have more different ones than the sample
        some, its = values, w
        centroids, state = seeds(some, its, k)
    if not len(centroids):
        return np.zeros((k, dim), np.float32)
    centroids, member, near = steps(some, its, centroids, MAX_STEPS)
    if len(centroids) == k and len(some) == len(chosen):
        centroids, error = improved(some, its, centroids, member, near)
        for _ in range(starts - 1 if len(some) * k <= MOST_STARTED else 0):
            if error == 0:
                break
            trial, state = seeds(some, its, k, state)
            trial, less = improved(some, its, *steps(some, its, trial, MAX_STEPS))
            if less < error:
                centroids, error = trial, less
        if len(chosen) < n:
            centroids = steps(values, w, centroids, MAX_STEPS)[0]
    return np.concatenate([centroids, np.repeat(centroids[-1:], k - len(centroids), axis=0)])


def steps(values: Array, w: Array, centroids: Array, most: int) -> tuple[Array, Array, Array]:
    """Move centroids to the means of their vectors until no vector changes its centroid.

    Parameters
    ----------
    values : ndarray of float32, (n, dim)
    w : ndarray of float64, (n,)
    centroids : ndarray of float32, (k, dim)
    most : int
        Steps at most.

    Returns
    -------
    centroids, member, near
        The centroid of each vector, and its weighted squared distance.
    """
    x, centroids, member = values.astype(np.float64), centroids.copy(), np.full(len(values), -1)
    for step in range(most + 1):
        distances = _distances(centroids.astype(np.float64), x)
        closest = distances.argmin(axis=1)
        moved = not np.array_equal(closest, member)
        member, near = closest, w * distances.min(axis=1)
        if not moved or step == most:
            break
        total = np.bincount(member, w, len(centroids))
        for d in range(x.shape[1]):
            sums = np.bincount(member, w * x[:, d], len(centroids))
            with np.errstate(invalid="ignore", divide="ignore"):
                mean = (sums / total).astype(np.float32) + np.float32(0)
            centroids[:, d] = np.where(total > 0, mean, centroids[:, d])
    return centroids, member, near


def improved(values: Array, w: Array, centroids: Array, member: Array, near: Array) -> tuple[Array, float]:
    """Return centroids of less error, and the error: clusters are split, and centroids of little use removed.

    Breathing k-means (Fritzke, arXiv 2006.15666). A cycle adds m centroids beside those of the m largest errors, runs
    Lloyd's iteration, removes m centroids, and runs it again. A centroid's use is the error that its vectors would have
    more with their second nearest one. The centroid nearest to a removed one is not removed in this cycle, unless no
    other is left. If the error is not less by 2^-12 of it, the centroids before remain, and m becomes m - 1.

    Parameters
    ----------
    values : ndarray of float32, (n, dim)
    w : ndarray of float64, (n,)
    centroids, member, near
        Of `steps`.

    Returns
    -------
    ndarray of float32, (k, dim)
    float
    """
    k, x, weight = len(centroids), values.astype(np.float64), _sum(w)
    error, m = _sum(near), min(MOST_ADDED, k - 1)
    for _ in range(MIN_CYCLES + k // CENTROIDS_PER_CYCLE):
        if m == 0 or error == 0:
            break
        errors = np.bincount(member, near, k)
        offset = 2.0**-7 * np.sqrt(error / weight) * np.where(np.arange(x.shape[1]) % 2, -1.0, 1.0)
        top = np.argsort(-errors, kind="stable")[:m]
        added = (centroids[top].astype(np.float64) + offset).astype(np.float32)
        more = steps(values, w, np.concatenate([centroids, added]), FEW_STEPS)[0]
        is_new = np.ones(len(more), bool)
        is_new[_useless(x, w, more, m)] = False
        found, its_member, its_near = steps(values, w, more[is_new], FEW_STEPS)
        if _sum(its_near) < error * (1 - 2.0**-12):
            centroids, member, near, error = found, its_member, its_near, _sum(its_near)
        else:
            m -= 1
    return centroids, error


def _useless(x: Array, w: Array, centroids: Array, m: int) -> list[int]:
    """Return the m centroids to remove, see `improved`."""
    distances = _distances(centroids.astype(np.float64), x)
    member, near = distances.argmin(axis=1), distances.min(axis=1)
    distances[np.arange(len(x)), member] = np.inf
    use = np.bincount(member, w * (distances.min(axis=1) - near), len(centroids))
    between = _distances(centroids.astype(np.float64), centroids.astype(np.float64))
    removed: list[int] = []
    frozen = np.zeros(len(centroids), bool)
    for _ in range(m):
        left = np.ones(len(centroids), bool)
        left[removed] = False
        free = left & ~frozen
        one = int(np.where(free if free.any() else left, use, np.inf).argmin())
        removed.append(one)
        left[one] = False
        frozen[int(np.where(left, between[one], np.inf).argmin())] = True
    return removed


def _or_ones(w: Array) -> Array:
    return w if w.any() else np.ones(len(w))


def seeds(values: Array, w: Array, k: int, state: int = 0) -> tuple[Array, int]:
    """Draw up to k different vectors by k-means++ (Arthur and Vassilvitskii, SODA 2007).

    Parameters
    ----------
    values : ndarray of float32, (n, dim)
    w : ndarray of float64, (n,)
    k : int
    state : int
        Of the random numbers.

    Returns
    -------
    ndarray of float32, (up to k, dim)
    int
        The state after the last number.
    """
    x, p, chosen = values.astype(np.float64), w, []
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
    return np.array(chosen, np.float32).reshape(-1, values.shape[1]), state


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
