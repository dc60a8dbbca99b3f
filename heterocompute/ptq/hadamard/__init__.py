"""Rotation by Hadamard matrices, which spreads outliers over all values: `hadamard`."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from ...arrays.dense import as_array, normalize_axes
from ...arrays.rotated import signs
from ...base.errors import WrongValue, shown
from ...base.float_env import counts_subnormals
from ...base.texts import counted
from ...base.values import Rng, as_int, check_flag, seed_from
from ...products.arguments import checked_out
from .matrices import as_product, matrix_of, nearest_possible

Array = np.ndarray[Any, Any]

_BLOCK = 1 << 16  # values rotated at a time, or one run if it is longer
_MOST = 1 << 21  # if rows are contiguous


@counts_subnormals
def hadamard(
    x: Any,
    axis: int = -1,
    block: int | None = None,
    seed: int | None = None,
    out: Any = None,
    inverse: bool = False,
    *,
    rng: Rng = None,
) -> Array:
    """Multiply an array by an orthogonal Hadamard matrix along an axis.

    Rotating both the inputs of a layer and its weights does not change the layer: ``(x H)(w H)^T = x w^T``. It reduces
    the rounding error of arrays with outliers.

    Parameters
    ----------
    x : array_like
        Floats.
    axis : int
    block : int, optional
        Rotate runs of this many values. It must divide the axis. Default: the whole axis.
    seed : int, optional
        Flip signs before the rotation with this seed, 0 to 2^63 - 1.
    out : ndarray, optional
        float32 of x's shape; may be x itself.
    inverse : bool
        Apply the inverse: the transposed matrix, then the signs.
    rng : int or numpy.random.Generator, optional
        In place of `seed`: an int is the seed, a generator draws it (SPEC 7).

    Returns
    -------
    ndarray of float32
        Sums are float64 in a fixed order, rounded once. Results are bitwise identical on every machine.

    Raises
    ------
    ValueError
        The size is not a power of two times orders of `heterocompute/ptq/hadamard/matrices.py`: all multiples of 4 up
        to 184, and most up to 1024. Padding would not be a rotation.

    Notes
    -----
    Ashkboos et al., "QuaRot", NeurIPS 2024 (arXiv 2404.00456), section 3. The matrix is a Kronecker product of Paley or
    four-circulant matrices with the least sum of orders, and Sylvester's matrix of the power of two.

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
        raise WrongValue(
            f"hadamard: block is {shown(width)}, which does not divide the {counted(size, 'value')} of axis {along}"
        )
    parts = as_product(width) if width else ((), 1)
    if parts is None:
        what = f"axis {along} has {counted(size, 'value')}" if block is None else f"block is {width}"
        wanted = " or ".join(map(str, nearest_possible(width)))
        raise WrongValue(f"hadamard: {what}, expected a size that has a Hadamard matrix here, such as {wanted}")
    result = checked_out(out, array.shape, "hadamard", (array,), in_place=True)
    source, target = np.moveaxis(array, along, -1), np.moveaxis(result, along, -1)
    seed = seed_from("hadamard", seed, rng, None)
    flips = None if seed is None else signs(size, as_int(seed, "hadamard: seed", 0, 2**63 - 1))
    inverse = check_flag("hadamard", "inverse", inverse)
    if array.size:
        _rotate(source, target, width, parts, flips, inverse)
    return result if out is None else out


def _rotate(
    source: Array, target: Array, width: int, parts: tuple[tuple[int, ...], int], flips: Array | None, inverse: bool
) -> None:
    """Rotate runs of the last axis, some at a time: all values as float64 would double the array's memory."""
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
        values = rotated_values(values.reshape(-1, width), *parts, inverse).reshape(shape)
        if along is not None and inverse:
            values *= along
        target[some] = values


def rotated_values(values: Array, orders: tuple[int, ...], power: int, inverse: bool) -> Array:
    """Return the last axis times the matrices of these orders and of the power of two; the input is overwritten.

    The product is scaled to length 1.
    """
    lead, size = values.shape[:-1], values.shape[-1]
    rest = size
    for order in orders:
        rest //= order
        parts = values.reshape(*lead, -1, order, rest)
        matrix = matrix_of(order).T if inverse else matrix_of(order)
        turned = np.zeros(parts.shape)
        for i in range(order):  # ascending
            turned += parts[..., i : i + 1, :] * matrix[i][:, None]
        values = turned
    half = 1
    while half < power:
        pairs = values.reshape(*lead, -1, 2, half)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        difference = first - second
        first += second
        second[...] = difference
        half *= 2
    values = values.reshape(*lead, size)
    values *= 1 / sqrt(size)
    return values
