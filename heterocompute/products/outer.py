"""Convolution over nonzeros only, and the counts of an accelerator that computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from .. import _heterocompute as _core
from ..arrays.bitmap import BitmapArray
from ..arrays.dense import as_array, core_view
from ..arrays.quantized import QuantizedArray
from ..base import runtime
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..base.notebooks.shown import Facts
from ..base.texts import counted
from ..base.values import as_int
from .arguments import Array, FloatArray, as_bias, checked_out
from .window import Padding, as_pair, as_window

__all__ = ["OuterCounts", "conv2d_outer"]


@dataclass(frozen=True)
class OuterCounts(Facts):
    """Operation counts of a convolution on an SCNN-style array of multipliers.

    Attributes
    ----------
    dense_macs : int
        N K P Q C R S, including padding.
    products : int
        Number of multiplications: pairs of a nonzero of x and a nonzero weight of the same channel.
    useful_products : int
        Products that contribute to the result. Stride and the image's edge drop the rest.
    zeros_skipped : int
        ``dense_macs - useful_products``: multiplications of the dense layer by a 0.
    bank_conflicts : int
        Products whose bank was occupied in the same step.
    steps : int
        Steps of all cells together. A step combines up to 4 x 4 operands.
    cycles : int
        Cycles until the slowest cell finishes, for each group of filters and image. A step takes as many cycles as the
        products of its busiest bank.
    multipliers : int
        Number of multipliers in all cells.
    """

    dense_macs: int
    products: int
    useful_products: int
    zeros_skipped: int
    bank_conflicts: int
    steps: int
    cycles: int
    multipliers: int

    @property
    @counts_subnormals
    def utilization(self) -> float:
        """Return products per multiplier and cycle, 0 to 1."""
        return self.products / (self.cycles * self.multipliers) if self.cycles else 0.0

    @property
    @counts_subnormals
    def speedup(self) -> float:
        """Return the cycles of equally many, always busy dense multipliers over `cycles`; infinite if it is 0."""
        return self.dense_macs / (self.cycles * self.multipliers) if self.cycles else float("inf")


@overload
def conv2d_outer(
    x: object,
    w: object,
    bias: object = ...,
    stride: int | tuple[int, int] = ...,
    padding: Padding = ...,
    *,
    counts: Literal[False] = ...,
    cells: tuple[int, int] = ...,
    multipliers: tuple[int, int] = ...,
    banks: int = ...,
    accumulators: int = ...,
    out: object = ...,
) -> FloatArray: ...


@overload
def conv2d_outer(
    x: object,
    w: object,
    bias: object = ...,
    stride: int | tuple[int, int] = ...,
    padding: Padding = ...,
    *,
    counts: Literal[True],
    cells: tuple[int, int] = ...,
    multipliers: tuple[int, int] = ...,
    banks: int = ...,
    accumulators: int = ...,
    out: object = ...,
) -> tuple[FloatArray, OuterCounts]: ...


@counts_subnormals
def conv2d_outer(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: int | tuple[int, int] = 1,
    padding: Padding = 0,
    *,
    counts: bool = False,
    cells: tuple[int, int] = (8, 8),
    multipliers: tuple[int, int] = (4, 4),
    banks: int = 32,
    accumulators: int = 1024,
    out: Any = None,
) -> FloatArray | tuple[FloatArray, OuterCounts]:
    """Convolve images with filters by multiplying nonzeros and scattering the products (SCNN).

    Parameters
    ----------
    x : array_like, QuantizedArray, SparseArray or BitmapArray, shape (N, C, H, W)
        Packed arrays are decoded first.
    w : the same, shape (K, C, R, S)
    bias : array_like, shape (K,), optional
        Added after the convolution.
    stride : int or pair
    padding : int, pair, two pairs, "same" or "valid"
        As in `conv2d`.
    counts : bool
        Also count the operations of an accelerator, see `OuterCounts`.
    cells : pair of int
        For the counts: rows and columns of the grid of cells, 1 to 256 each. Each cell has a tile of the image.
    multipliers : pair of int
        Weights and values of x that a cell combines pairwise in a step, 1 to 64 each.
    banks, accumulators : int
        Numbers per cell. As many filters are processed at a time as fit the accumulators, at least one.
    out : ndarray, optional
        As in `matmul`.

    Returns
    -------
    ndarray of float32, shape (N, K, P, Q)
        Each value is one chain of fused multiply-adds from +0, over r, s, c ascending, of the pairs without a 0 in
        float32. A value that is not finite is multiplied only by nonzero weights. For finite operands this equals the
        direct algorithm of `conv2d`. Results are bitwise identical for every instruction set and number of threads.
        Working memory: under 64 MiB, in addition to the result and decoded operands.
    OuterCounts
        The second of two results, with `counts`.

    Raises
    ------
    ValueError
        The shapes do not match (groups are not supported), or a size of the accelerator is out of range.
    TypeError
        An operand is not a float array.

    Notes
    -----
    Parashar et al., "SCNN: An Accelerator for Compressed-sparse Convolutional Neural Networks", ISCA 2017
    (arXiv 1708.04485): dataflow PT-IS-CP-sparse, 8 x 8 cells of 4 x 4 multipliers, 2 x 4 x 4 = 32 banks of 32
    accumulators. `heterocompute.reference.outer` defines the counts, also where the paper gives no details.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> x = np.float32([[[[0, 2, 0], [0, 0, 3], [0, 0, 0]]]])
    >>> w = np.float32([[[[1, 0], [0, 5]]]])
    >>> y, found = hc.conv2d_outer(x, w, counts=True)
    >>> y[0, 0]
    array([[ 0., 17.],
           [ 0.,  0.]], dtype=float32)
    >>> found.dense_macs, found.products, found.useful_products
    (16, 4, 2)
    """
    if not isinstance(counts, (bool, np.bool_)):
        raise WrongType(f"conv2d_outer: counts is {shown(counts)}, expected a bool")
    image, filters = _decoded(x, "x"), _decoded(w, "w")
    if image.ndim != 4 or filters.ndim != 4:
        wrong = f"x has shape {image.shape}" if image.ndim != 4 else f"w has shape {filters.shape}"
        raise WrongValue(f"conv2d_outer: {wrong}, expected four dimensions")
    if image.shape[1] != filters.shape[1]:
        raise WrongValue(
            f"conv2d_outer: x has {counted(image.shape[1], 'channel')} but w has {filters.shape[1]}; "
            "groups are not supported"
        )
    window = as_window("conv2d_outer", image.shape[2:], filters.shape[2:], stride, padding)
    strides, before, answer = window.stride, window.before, window.answer
    bias_array = as_bias(bias, filters.shape[0], "conv2d_outer")
    given = (x, w, image, filters) if bias_array is None else (x, w, image, filters, bias_array)
    inputs = tuple(
        part for one in given for part in (one.components.values() if isinstance(one, BitmapArray) else (one,))
    )
    result = checked_out(out, (image.shape[0], filters.shape[0], *answer), "conv2d_outer", inputs)
    run = runtime.run()
    found = None
    if counts:
        sizes = (
            _sizes(cells, "cells", ("rows", "columns"), 256),
            _sizes(multipliers, "multipliers", ("weights", "activations"), 64),
            _size(banks, "banks", 4096),
            _size(accumulators, "accumulators", 2**30),
        )
        found = _core.count_outer(run, core_view(image), core_view(filters), strides, before, answer, *sizes)
    _core.conv2d_outer(run, core_view(image), core_view(filters), strides, before, result)
    if bias_array is not None:
        result += bias_array[:, None, None]
    y = result if out is None else out
    if found is None:
        return y
    products, useful, conflicts, steps, cycles = found
    macs = result.size * filters[:1].size
    all_multipliers = sizes[0][0] * sizes[0][1] * sizes[1][0] * sizes[1][1]
    return y, OuterCounts(macs, products, useful, macs - useful, conflicts, steps, cycles, all_multipliers)


def _decoded(value: object, name: str) -> Array:
    if isinstance(value, BitmapArray):
        value = value.to_dense()
    return value.dequantize() if isinstance(value, QuantizedArray) else as_array(value, f"conv2d_outer: {name}")


def _size(value: object, name: str, most: int) -> int:
    return as_int(value, f"conv2d_outer: {name}", 1, most)


def _sizes(value: object, name: str, parts: tuple[str, str], most: int) -> tuple[int, int]:
    one, other = as_pair(value, f"conv2d_outer: {name}")
    return _size(one, f"{name} ({parts[0]})", most), _size(other, f"{name} ({parts[1]})", most)
