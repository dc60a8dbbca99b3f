"""Pruning: the values of an array that are kept, by N:M patterns, by a share, or by blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from ..arrays.array_like import ArrayLike
from ..arrays.dense import as_array, as_single, normalize_axes, refuse_nan
from ..arrays.foreign import alike
from ..arrays.rows import row_blocks, rows_first
from ..arrays.sparse import choose
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..formats import parse_pattern
from ..products.device import prune_on_device, runs_on_device

__all__ = ["prune", "prune_mask"]

Array = np.ndarray[Any, Any]

_SHARE = re.compile(r"(global:)?([0-9]{1,3}(?:\.[0-9]{1,6})?)%")
_BLOCKS = re.compile(r"block:([1-9][0-9]{0,8})x([1-9][0-9]{0,8}):([0-9]{1,3}(?:\.[0-9]{1,6})?)%")
_LARGEST = float(np.finfo(np.float32).max)
_CHUNK = 2**20  # values of temporary arrays
_WANTED = "N:M with 1 <= N <= M <= 32, P%, global:P% or block:RxC:P%"


@counts_subnormals
def prune(
    w: ArrayLike,
    pattern: str | None = None,
    axis: int | tuple[int, ...] = -1,
    scores: ArrayLike | None = None,
    *,
    mask: ArrayLike | None = None,
) -> Any:
    """Set the values with the lowest scores to zero.

    Parameters
    ----------
    w : array_like
        float16, bfloat16, float32 or float64, any shape with at least one dimension, any strides.
    pattern : str
        Required without `mask`.

        - ``"2:4"``: keep 2 of every 4 values along the last axis named. Any N:M with 1 <= N <= M <= 32.
        - ``"50%"``: remove half of each row.
        - ``"global:50%"``: remove half of the array.
        - ``"block:16x1:50%"``: remove half of the blocks of 16 rows and 1 column, scored by their sums.
    axis : int or tuple of int
        The reduction axes, as in `quantize`. A row is one index of the remaining axes.
    scores : array_like of w's shape, optional
        The values with the largest scores are kept. Example: `hc.scores.wanda`. Default: the magnitudes.
    mask : array_like of bool of w's shape, optional
        The values to keep, in place of scores. With N:M, a block keeps at most N. Without a pattern, the mask decides
        alone. It does not apply to the other patterns, which choose by scores.

    Returns
    -------
    SparseArray, or ndarray
        A SparseArray for N:M. The other patterns, and a mask alone, return an array with zeros, or a tensor if w is a
        PyTorch tensor.
        Values have w's dtype, except that float64 becomes float32.

    Raises
    ------
    TypeError
        w or scores is not a float array, or pattern is not a str.
    ValueError
        A score is NaN, one block holds inf and -inf, the pattern or axis is unknown, scores or mask has another
        shape, or mask keeps more than N of a block; the message names the first.

    Notes
    -----
    Equal scores keep the lower index (in C order of rows). A share P removes floor(P / 100 * values). w and scores are
    compared as float32; float64 is rounded to float32 once. ``hc.quantize(w, "int8+2:4")`` rounds the nonzeros of a
    float64 w directly, so the result may differ from quantizing this array. A run whose length is not a multiple of M
    is padded with zeros, which have the lowest priority.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.prune(np.float32([[1, -4, 3, 2]]), "2:4").to_dense()
    array([[ 0., -4.,  3.,  0.]], dtype=float32)
    >>> hc.prune(np.float32([[1, -4, 3, 2]]), "75%")
    array([[ 0., -4.,  0.,  0.]], dtype=float32)
    """
    if pattern is None and mask is None:
        raise WrongValue("prune: pattern is None, expected a pattern such as '2:4', or a mask")
    nm = None if pattern is None else parsed(pattern, "prune")
    if mask is not None:
        return _masked(w, pattern, nm, axis, scores, mask)
    if runs_on_device(w):
        return prune_on_device(w, nm, axis, scores)
    values, axes, given = _arguments(w, axis, scores, "prune")
    if nm is None:
        assert pattern is not None
        if values.dtype == np.float64:
            _check_range(values)
        exact = values.dtype if values.dtype.itemsize == 2 else np.dtype(np.float32)
        answer: Array = np.empty(values.shape, exact)
        turned, pruned = rows_first(values, axes), rows_first(answer, axes)
        for index, chosen in _masks(values, given, pattern, axes, "prune"):
            part = np.ascontiguousarray(turned[index], exact).view(f"u{exact.itemsize}")
            pruned[index] = (part * chosen.reshape(part.shape)).view(exact)  # on bits: infinity times 0 would be NaN
        return alike(answer, w)
    if values.dtype == np.float64:
        _check_range(values)
    return choose(values, given, *nm, axes, "prune")


def _masked(w: object, pattern: str | None, nm: tuple[int, int] | None, axis: Any, scores: object, mask: object) -> Any:
    """Return the array that keeps the values of a mask."""
    if scores is not None or (nm is None and pattern is not None):
        other = "scores" if scores is not None else f"pattern {shown(pattern)}"
        raise WrongValue(f"prune: mask is given with {other}, expected N:M or no pattern, and no scores")
    values, axes, _ = _arguments(w, axis, None, "prune")
    kept = np.asarray(mask)
    if kept.dtype != np.bool_:
        raise WrongType(f"prune: mask has dtype {kept.dtype}, expected bool")
    if kept.shape != values.shape:
        raise WrongValue(f"prune: mask has shape {kept.shape} and w has shape {values.shape}")
    if values.dtype == np.float64:
        _check_range(np.where(kept, values, 0))
    zero = values.dtype.type(0)
    if nm is None:
        refuse_nan(values, "prune: w")
        exact = values.dtype if values.dtype.itemsize == 2 else np.dtype(np.float32)
        return alike(np.where(kept, values, zero).astype(exact, copy=False), w)
    (n, m), length = nm, values.shape[axes[-1]]
    for _, index in row_blocks(values.shape, axes, _CHUNK):
        runs = rows_first(kept, axes)[index].reshape(-1, length)
        counts = np.add.reduceat(runs, np.arange(0, length, m), axis=1, dtype=np.int64)
        if counts.max(initial=0) > n:
            places = rows_first(np.arange(values.size).reshape(values.shape), axes)[index].reshape(-1, length)
            run, block = (int(i) for i in np.argwhere(counts > n)[0])
            first = tuple(int(i) for i in np.unravel_index(places[run, block * m], values.shape))
            raise WrongValue(
                f"prune: mask keeps {counts[run, block]} values of the block of {m} that begins at index {first}, "
                f"expected at most {n}"
            )
    return choose(np.where(kept, values, zero), kept.astype(np.float32), n, m, axes, "prune")


def _check_range(values: Array) -> None:
    if values.size and not max(values.max(), -values.min()) <= _LARGEST:
        as_single(values, "prune: w")  # only if it can refuse, because it copies


def prune_mask(w: ArrayLike, pattern: str, axis: int | tuple[int, ...] = -1, scores: ArrayLike | None = None) -> Any:
    """Return a mask of the values that `prune` keeps.

    Parameters
    ----------
    w, pattern, axis, scores
        As in `prune`.

    Returns
    -------
    ndarray of bool, of w's shape
        A tensor if w is a PyTorch tensor.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> hc.prune_mask(np.float32([[1, -4, 3, 2]]), "2:4")
    array([[False,  True,  True, False]])
    """
    return alike(mask_of(w, pattern, axis, scores, "prune_mask"), w)


@counts_subnormals
def mask_of(w: ArrayLike, pattern: str, axis: int | tuple[int, ...], scores: object, name: str) -> Array:
    """Return the result of `prune_mask` for a function that errors call `name`."""
    values, axes, given = _arguments(w, axis, scores, name)
    nm = parsed(pattern, name)
    mask = np.empty(values.shape, np.bool_)
    turned = rows_first(mask, axes)
    parts = _masks(values, given, pattern, axes, name) if nm is None else _block_masks(values, given, *nm, axes, name)
    for index, chosen in parts:
        turned[index] = chosen.reshape(turned[index].shape)
    return mask


def _block_masks(
    values: Array, scores: Array | None, n: int, m: int, axes: tuple[int, ...], name: str
) -> Iterator[tuple[Any, Array]]:
    """Yield the mask of N:M, and where it is in the view of rows."""
    turned, ranked = rows_first(values, axes), None if scores is None else rows_first(scores, axes)
    inner = tuple(range(1, len(axes) + 1))
    for _, index in row_blocks(values.shape, axes, _CHUNK):
        try:
            part = choose(turned[index], None if ranked is None else ranked[index], n, m, inner, name)
        except ValueError:
            choose(values, scores, n, m, axes, name)  # its error has the index in the whole array
            raise
        yield index, part.mask


def _arguments(w: object, axis: object, scores: object, name: str) -> tuple[Array, tuple[int, ...], Array | None]:
    values = as_array(w, f"{name}: w")
    axes = normalize_axes(axis, values.ndim, name)
    if scores is None:
        return values, axes, None
    given = as_array(scores, f"{name}: scores")
    if given.shape != values.shape:
        raise WrongValue(f"{name}: scores has shape {given.shape} and w has shape {values.shape}")
    return values, axes, given


def parsed(pattern: object, name: str) -> tuple[int, int] | None:
    """Return (N, M), or None for the other patterns."""
    if not isinstance(pattern, str):
        raise WrongType(f"{name}: pattern is {shown(pattern)}, expected a text such as '2:4'")
    nm = parse_pattern(pattern)
    if nm is None and _share(pattern) is None:
        raise WrongValue(f"{name}: pattern is {shown(pattern[:40])}, expected {_WANTED}")
    return nm


def _share(pattern: str) -> Fraction | None:
    match = _SHARE.fullmatch(pattern) or _BLOCKS.fullmatch(pattern)
    share = Fraction(match.groups()[-1]) / 100 if match else None
    return share if share is not None and share <= 1 else None


def _masks(
    values: Array, scores: Array | None, pattern: str, axes: tuple[int, ...], name: str
) -> Iterator[tuple[Any, Array]]:
    """Yield the mask of a share or of blocks, and where it is in the view of rows."""
    share = _share(pattern)
    assert share is not None
    measured = values if scores is None else scores
    refuse_nan(measured, f"{name}: {'w' if scores is None else 'scores'}")
    ranked = rows_first(measured, axes)
    if pattern[0].isdigit():  # each row by itself
        for _, index in row_blocks(values.shape, axes, _CHUNK):
            yield index, _largest(_ranks(ranked[index], scores is None).reshape(-1, _columns(values, axes)), share)
        return
    if not values.size:
        return
    rows = _ranks(ranked, scores is None).reshape(-1, _columns(values, axes))
    blocks = _BLOCKS.fullmatch(pattern)
    if blocks:
        mask = _largest_blocks(rows, int(blocks[1]), int(blocks[2]), share, name)
    else:
        mask = _largest(rows.reshape(1, -1), share).reshape(rows.shape)
    del rows
    for some, index in row_blocks(values.shape, axes, _CHUNK):
        yield index, mask[some]


def _columns(values: Array, axes: tuple[int, ...]) -> int:
    return prod(values.shape[a] for a in axes)


def _ranks(measured: Array, signed: bool) -> Array:
    """Return scores as float32, in which they are compared; without scores, the magnitudes of the values."""
    with np.errstate(over="ignore"):
        return (np.abs(measured) if signed else measured).astype(np.float32, copy=False)


def _largest(rows: Array, share: Fraction) -> Array:
    """Return a mask without the `share` of lowest scores per row; of equal scores, higher indices are removed first."""
    count = rows.shape[1]
    gone = int(share * count)
    if not gone or not rows.size:
        return np.ones(rows.shape, np.bool_)
    last = _nth_smallest(rows, gone)  # the largest score that goes
    mask, equal = rows > last, rows == last
    room = count - gone - mask.sum(axis=1)
    for i in np.flatnonzero(equal.sum(axis=1) > room):
        equal[i, _place(equal[i], int(room[i])) :] = False
    mask |= equal
    return mask


def _place(flags: Array, before: int) -> int:
    """Return the index of the set flag that follows `before` other set flags."""
    for first in range(0, len(flags), _CHUNK):
        part = flags[first : first + _CHUNK]
        found = int(np.count_nonzero(part))
        if found > before:
            return first + int(np.flatnonzero(part)[before])
        before -= found
    return len(flags)


def _nth_smallest(rows: Array, nth: int) -> Array:
    """Return the nth value, from 1 on, of each row in ascending order, (rows, 1)."""
    # np.partition takes ten times as long if values repeat.
    if rows.shape[1] <= 2**16 or rows.dtype != np.float32:
        some = max(1, _CHUNK // rows.shape[1])
        parts = (rows[i : i + some] for i in range(0, len(rows), some))
        return np.concatenate([np.sort(part, axis=1)[:, nth - 1 : nth].copy() for part in parts])
    return np.concatenate([_nth_by_bits(row, nth) for row in rows])[:, None]


def _nth_by_bits(row: Array, nth: int) -> Array:
    """Return the nth value of a row by counting its upper and then its lower 16 bits, (1,)."""
    high, low = np.zeros(2**16, np.int64), np.zeros(2**16, np.int64)
    for keys in _keys(row):
        high += np.bincount((keys >> 16) + 2**15, minlength=2**16)
    below = np.cumsum(high)
    upper = int(np.searchsorted(below, nth))
    for keys in _keys(row):
        low += np.bincount(keys[(keys >> 16) + 2**15 == upper] & 0xFFFF, minlength=2**16)
    lower = int(np.searchsorted(np.cumsum(low), nth - (int(below[upper - 1]) if upper else 0)))
    key = np.array([((upper - 2**15) << 16) + lower], np.int32)
    return (key ^ (key >> 31 & 0x7FFFFFFF)).view(np.float32)


def _keys(row: Array) -> Iterator[Array]:
    """Yield int32 keys in the order of the values, some at a time."""
    for first in range(0, len(row), _CHUNK):
        signed = (row[first : first + _CHUNK] + np.float32(0)).view(np.int32)  # both zeros alike
        yield signed ^ (signed >> 31 & 0x7FFFFFFF)


def _largest_blocks(rows: Array, height: int, width: int, share: Fraction, name: str) -> Array:
    high, wide = -(-rows.shape[0] // height), -(-rows.shape[1] // width)
    if not rows.size:
        return np.ones(rows.shape, np.bool_)
    sums = _block_sums(rows, height, width) if height * width > 1 else rows
    wrong = np.isnan(sums)
    if wrong.any():
        row, column = (int(i) for i in np.unravel_index(wrong.argmax(), sums.shape))
        at = f"row {row * height}, column {column * width}"
        raise WrongValue(f"{name}: the block of scores from {at} on has both inf and -inf, which have no sum")
    mask = _largest(sums.reshape(1, -1), share).reshape(high, wide)
    return mask.repeat(height, axis=0)[: rows.shape[0]].repeat(width, axis=1)[:, : rows.shape[1]]


def _block_sums(rows: Array, height: int, width: int) -> Array:
    """Return the sums of all blocks, some blocks at a time, float64."""
    out = np.empty((-(-rows.shape[0] // height), -(-rows.shape[1] // width)))
    tall, broad = min(height, rows.shape[0]), min(width, rows.shape[1])
    down = max(1, _CHUNK // (tall * rows.shape[1]))
    across = max(1, _CHUNK // (down * tall * broad))
    with np.errstate(invalid="ignore"):  # inf - inf, which the caller refuses
        for i in range(0, out.shape[0], down):
            for j in range(0, out.shape[1], across):
                sums = rows[i * height : (i + down) * height, j * width : (j + across) * width].astype(np.float64)
                if height > 1:
                    sums = np.add.reduceat(sums, np.arange(0, sums.shape[0], height), axis=0)
                if width > 1:
                    sums = np.add.reduceat(sums, np.arange(0, sums.shape[1], width), axis=1)
                out[i : i + down, j : j + across] = sums
    return out
