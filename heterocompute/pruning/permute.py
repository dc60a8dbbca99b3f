"""Search for an order of columns whose N:M pattern keeps more: `permute_channels`, and its use on two layers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _heterocompute as _core
from ..arrays.array_like import ArrayLike
from ..arrays.dense import as_array, as_single, normalize_axes, refuse_infinite
from ..arrays.foreign import refuse_elsewhere
from ..arrays.sparse import pattern_of
from ..base import runtime
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.values import check_choice

__all__ = ["permute_channels", "permute_linear"]

_TOP = 32767  # largest of the integer scores that the search compares
# Comparisons of one value with another that a search may make: until no exchange helps, and after random ones; and the
# rows that it looks at.
_WORK = {"fast": (10**11, 10**8), "thorough": (10**12, 10**10)}
_ROWS = {"fast": 1024, "thorough": None}
_TRIES = {"fast": 100, "thorough": 10_000}  # orders to start from
_KICKS = 3  # random exchanges before the search continues from the best order so far


@counts_subnormals
def permute_channels(w: ArrayLike, pattern: str, axis: int = -1, effort: str = "fast") -> NDArray[np.int64]:
    """Find a permutation of the channels along an axis for which an N:M pattern keeps more magnitude.

    Parameters
    ----------
    w : array_like
        Floats, one or more dimensions.
    pattern : str
        ``"2:4"``, any N:M with 1 <= N <= M <= 32.
    axis : int
        The reduction axis, whose blocks of M channels share a pattern.
    effort : {"fast", "thorough"}
        Length of the search: at most about a minute for 4096 x 4096 on two processors, or many times longer.

    Returns
    -------
    ndarray of int64, (channels,)
        ``np.take(w, permutation, axis)`` keeps at least as much as w. Identical on every machine and for every number
        of threads.

    Raises
    ------
    TypeError
        w is not a float array, or pattern is not a str.
    ValueError
        w holds a NaN or an infinity, or the pattern, axis or effort is unknown.

    Notes
    -----
    Columns are exchanged between blocks while that raises the kept sum, as in Pool and Yu, "Channel Permutations for
    N:M Sparsity", NeurIPS 2021. From a fixed point the search continues after a few random exchanges. It compares
    magnitudes as 15-bit integers. Memory: 2 bytes per value.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> w = np.float32([[4, 3, 2, 1, 0, 0, 0, 0]])
    >>> kept = lambda w: np.sort(np.abs(w).reshape(-1, 4))[:, 2:].sum()
    >>> float(kept(w)), float(kept(w[:, hc.permute_channels(w, "2:4")]))
    (7.0, 10.0)
    """
    n, m = pattern_of(pattern, "permute_channels")
    values = as_array(w, "permute_channels: w")
    (along,) = normalize_axes((axis,), values.ndim, "permute_channels")
    check_choice("permute_channels", "effort", effort, _WORK)
    columns = values.shape[along]
    refuse_infinite(values, "permute_channels: w")
    rows_first = np.moveaxis(as_single(values, "permute_channels: w"), along, -1)
    magnitude = np.abs(rows_first.reshape(prod(values.shape) // columns if columns else 0, columns))
    identity = np.arange(columns)
    groups = -(-columns // m)
    if n == m or groups < 2 or not magnitude.size or not magnitude.any():
        return identity
    rows = _ROWS[effort]
    scores = _scores(magnitude if rows is None or len(magnitude) <= rows else _spread(magnitude, rows))
    order = np.full(groups * m, -1, np.int32)
    order[:columns] = identity
    height = min(len(magnitude), rows or len(magnitude))
    found = _search(scores, height, n, m, order, _WORK[effort], _TRIES[effort])
    best: NDArray[np.int64] = found[found >= 0].astype(np.int64)
    return best if _retained(magnitude, best, n, m) > _retained(magnitude, identity, n, m) else identity


@counts_subnormals
def permute_linear(
    first: ArrayLike, bias: ArrayLike, second: ArrayLike, permutation: ArrayLike
) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any]]:
    """Reorder the channels between two linear layers without changing the result of both together.

    Parameters
    ----------
    first : array_like, shape (channels, in_features)
        Weights of the layer that computes the channels.
    bias : array_like, shape (channels,), or None
        Bias of that layer.
    second : array_like, shape (out_features, channels)
        Weights of the layer that reduces over the channels, to be pruned.
    permutation : array_like of int, shape (channels,)
        Result of `permute_channels` for `second`.

    Returns
    -------
    tuple of ndarray
        first, bias and second in the new order. Operations on each channel alone, such as a ReLU, may be between the
        layers.

    Raises
    ------
    TypeError
        A layer is not a float array, or the permutation does not hold integers.
    ValueError
        The shapes do not match, or the permutation is invalid.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> first, second = np.float32([[1, 2], [3, 4]]), np.float32([[5, 6]])
    >>> permuted = hc.permute_linear(first, None, second, [1, 0])
    >>> permuted[0], permuted[2], bool((permuted[2] @ permuted[0] == second @ first).all())
    (array([[3., 4.],
           [1., 2.]], dtype=float32), array([[6., 5.]], dtype=float32), True)
    """
    left, right = as_array(first, "permute_linear: first"), as_array(second, "permute_linear: second")
    refuse_elsewhere(permutation, "permute_linear: permutation")
    try:
        order = np.asarray(permutation)
    except (TypeError, ValueError):  # rows of different lengths
        raise WrongType(f"permute_linear: permutation is {shown(permutation)}, expected an array of ints") from None
    if left.ndim != 2 or right.ndim != 2 or left.shape[0] != right.shape[1]:
        raise WrongValue(
            f"permute_linear: first has shape {left.shape} and second {right.shape}, "
            "expected (channels, in_features) and (out_features, channels)"
        )
    if order.dtype.kind not in "iu" and order.size:
        raise WrongType(f"permute_linear: permutation has dtype {order.dtype}, expected integers")
    if order.shape != left.shape[:1] or not np.array_equal(np.sort(order), np.arange(len(left))):
        raise WrongValue(f"permute_linear: permutation is not an order of {len(left)} channels")
    offsets = None if bias is None else as_array(bias, "permute_linear: bias")
    if offsets is not None and offsets.shape != order.shape:
        raise WrongValue(f"permute_linear: bias has shape {offsets.shape}, expected {order.shape}")
    return left[order], None if offsets is None else offsets[order], right[:, order]


def _spread(magnitude: NDArray[np.float32], rows: int) -> NDArray[np.float32]:
    """Return some of the rows, evenly spread."""
    chosen: NDArray[np.float32] = magnitude[np.arange(rows) * len(magnitude) // rows]
    return chosen


def _scores(magnitude: NDArray[np.float32]) -> NDArray[np.int16]:
    """Return magnitudes as integers, (columns, rows padded to a multiple of 32)."""
    rows, columns = magnitude.shape
    scores = np.zeros((columns, -(-rows // 32) * 32), np.int16)
    largest = float(magnitude.max())
    if largest < 2.0**-64:  # _TOP / largest is then near the end of float32 or beyond; a power of two is exact
        magnitude = magnitude * np.float32(2.0**100)
        largest *= 2.0**100
    if largest > 0:
        np.rint(magnitude.T * (_TOP / largest), out=scores[:, :rows], casting="unsafe")
    return scores


def _search(
    scores: NDArray[np.int16], rows: int, n: int, m: int, order: NDArray[np.int32], work: tuple[int, int], tries: int
) -> NDArray[np.int32]:
    """Sweep to a fixed point, then repeat from random exchanges of the best order, until the work is spent."""
    run = runtime.run()
    groups = len(order) // m
    sweep = groups * (groups - 1) // 2 * rows * (2 * m * m + 4 * m * (n + 2))
    rng = np.random.default_rng(0)
    best, retained = order, -1
    indices = np.flatnonzero(order >= 0)
    straight, kicked = work
    for _ in range(tries):
        while _core.permute(run, scores, rows, n, m, order) and straight > 0:
            straight -= sweep
            kicked -= sweep
        found = _retained_scores(scores, order, n, m)
        if found > retained:
            best, retained = order, found
        kicked -= sweep
        if kicked <= 0:
            break
        order = best.copy()
        for a, b in rng.choice(indices, (_KICKS, 2)):
            order[a], order[b] = order[b], order[a]
    return best


def _retained_scores(scores: NDArray[np.int16], order: NDArray[np.int32], n: int, m: int) -> int:
    padded = np.concatenate([scores, np.zeros((1, scores.shape[1]), np.int16)])[order]  # -1 is the row of zeros
    top = np.partition(padded.reshape(-1, m, scores.shape[1]), m - n, axis=1)[:, m - n :]
    return int(top.sum(dtype=np.int64))


def _retained(magnitude: NDArray[np.float32], order: NDArray[np.int64], n: int, m: int) -> float:
    """Return the sum of the kept scores in float64."""
    total = 0.0
    columns = magnitude.shape[1]
    for first in range(0, columns, m):
        group = magnitude[:, order[first : first + m]]
        drop = max(group.shape[1] - n, 0)
        total += float(np.sum(np.partition(group, drop, axis=1)[:, drop:] if drop else group, dtype=np.float64))
    return total
