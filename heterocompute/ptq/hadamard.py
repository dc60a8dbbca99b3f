"""Rotation by Hadamard matrices, which spreads outliers over all values: `hadamard`."""

from __future__ import annotations

from functools import cache
from math import sqrt
from typing import Any

import numpy as np

from ..arrays.dense import as_array, normalize_axes
from ..base.float_env import counts_subnormals
from ..base.texts import counted
from ..base.values import as_int, shown
from ..products.arguments import checked_out

__all__ = ["hadamard"]

Array = np.ndarray[Any, Any]

_BLOCK = 1 << 16  # values rotated at a time, more where a run is longer
_MOST = 1 << 21  # where rows lie side by side

# Paley's constructions: an order p + 1 for each prime p = 4 n + 3, and 2 (p + 1) for each p = 4 n + 1.
FIRST = (11, 19, 23, 31, 43, 47, 59, 67, 71, 79, 83, 103, 107, 127, 131, 139, 151, 163, 167, 179)
SECOND = (13, 17, 37, 61, 73)
ORDERS = {p + 1: p for p in FIRST} | {2 * (p + 1): p for p in SECOND}


@cache
def _paley(order: int) -> Array:
    """Return the matrix of this order, of 1 and -1: Paley, J. Math. Phys. 12 (1933)."""
    p = ORDERS[order]
    squares = {i * i % p for i in range(1, p)}
    symbol = np.array([0] + [1 if i in squares else -1 for i in range(1, p)])
    matrix = np.ones((p + 1, p + 1))
    matrix[1:, 1:] = symbol[(np.arange(p)[None, :] - np.arange(p)[:, None]) % p]
    if p % 4 == 3:
        matrix[1:, 0] = -1
        matrix[1:, 1:] += np.eye(p)
        return matrix
    matrix[0, 0] = 0
    one = np.eye(p + 1)
    return np.block([[matrix + one, matrix - one], [matrix - one, -matrix - one]])


def _split(size: int) -> tuple[int, int] | None:
    """Return (order of Paley's, or 1, power of two) whose product is this size."""
    for order in (1, *ORDERS):
        power = size // order
        if size % order == 0 and power & (power - 1) == 0:
            return order, power
    return None


def signs(size: int, seed: int) -> Array:
    """Return 1 or -1 for each index: a bit of splitmix64 of seed and index, the same everywhere."""
    with np.errstate(over="ignore"):
        z = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.where((z ^ (z >> np.uint64(31))) & np.uint64(1), -1.0, 1.0)


@counts_subnormals
def hadamard(
    x: Any, axis: int = -1, block: int | None = None, seed: int | None = None, out: Any = None, inverse: bool = False
) -> Array:
    """Multiply by an orthogonal Hadamard matrix along an axis.

    Rotating the inputs of a layer and its weights alike leaves the layer as it is, ``(x H)(w H)^T = x w^T``, and rounds
    better what has outliers.

    Parameters
    ----------
    x : array_like
        Floats.
    axis : int
    block : int, optional
        Rotate runs of so many values each; it divides the axis. None is the whole axis.
    seed : int, optional
        Change signs before the rotation, by this seed: 0 to 2^63 - 1.
    out : ndarray, optional
        float32 of x's shape; may be x itself.
    inverse : bool
        Undo it: the transposed matrix, then the signs.

    Returns
    -------
    ndarray of float32
        Sums are float64 in a fixed order, rounded once: the same bits on every machine.

    Raises
    ------
    ValueError
        A size that is no power of two times 1, 12, 20, 28, 36 ... as Paley's constructions have them (of the multiples
        of 4 up to 180, 52, 92, 100, 116, 156 and 172 are missing): padding would be no rotation.

    Notes
    -----
    Sylvester's doubling of Paley's matrices; Ashkboos et al., "QuaRot", NeurIPS 2024 (arXiv 2404.00456), section 3.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> x = np.zeros((1, 12), np.float32)
    >>> x[0, 3] = 6
    >>> np.abs(hc.ptq.hadamard(x)).max().round(3)
    np.float32(1.732)
    >>> bool(np.allclose(hc.ptq.hadamard(hc.ptq.hadamard(x), inverse=True), x))
    True
    """
    array = as_array(x, "hadamard: x")
    (along,) = normalize_axes(axis, array.ndim, "hadamard")
    size = array.shape[along]
    width = size if block is None else as_int(block, "hadamard: block", 1)
    if width and size % width:
        raise ValueError(
            f"hadamard: block is {shown(width)}, which does not divide the {counted(size, 'value')} of axis {along}"
        )
    parts = _split(width) if width else (1, 1)
    if parts is None:
        raise ValueError(
            f"hadamard: there is no matrix of order {width} here, wanted 1, 12, 20, 28 ... times a power of two"
        )
    result = checked_out(out, array.shape, "hadamard", (array,), in_place=True)
    source, target = np.moveaxis(array, along, -1), np.moveaxis(result, along, -1)
    flips = None if seed is None else signs(size, as_int(seed, "hadamard: seed", 0, 2**63 - 1))
    if array.size:
        _rotate(source, target, width, parts, flips, inverse)
    return result if out is None else out


def _rotate(
    source: Array, target: Array, width: int, parts: tuple[int, int], flips: Array | None, inverse: bool
) -> None:
    """Rotate runs of the last axis, some at a time: float64 of all values would be twice the array."""
    if source[0].size >= _BLOCK and source.ndim > 1:
        for one, rotated in zip(source, target, strict=True):
            _rotate(one, rotated, width, parts, flips, inverse)
        return
    lines = 16 if source.strides[-1] > source.itemsize and source[0].size << 4 <= _MOST else 1  # values of a cache line
    step = max(_BLOCK // source[0].size, lines) if source.ndim > 1 else max(_BLOCK // width, 1) * width
    for first in range(0, len(source), step):
        some = slice(first, first + step)
        values = source[some].astype(np.float64, order="C")
        shape = values.shape
        along = None if flips is None else flips if source.ndim > 1 else flips[some]
        if along is not None and not inverse:
            values *= along
        values = _rotated(values.reshape(-1, width), *parts, inverse).reshape(shape)
        if along is not None and inverse:
            values *= along
        target[some] = values


def _rotated(values: Array, order: int, power: int, inverse: bool) -> Array:
    """Return the last axis times the matrix of this order doubled, scaled to length 1; the values are used up."""
    lead = values.shape[:-1]
    values = values.reshape(*lead, order, power)
    if order > 1:
        matrix = _paley(order).T if inverse else _paley(order)
        turned = np.zeros(values.shape)
        for i in range(order):  # ascending
            turned += values[..., i : i + 1, :] * matrix[i][:, None]
        values = turned
    half = 1
    while half < power:
        pairs = values.reshape(*lead, order, power // (2 * half), 2, half)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        difference = first - second
        first += second
        second[...] = difference
        half *= 2
    values *= 1 / sqrt(order * power)
    return values.reshape(*lead, order * power)
