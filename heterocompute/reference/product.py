"""Matrix products, y[i, j] = sum_k a[i, k] * b[j, k], each with its stated order of rounding.

both integer      y = float32((float64(g_a) * float64(g_b)) * float64(S)), S the exact integer sum of
                  (s_a q_a) (s_b q_b): equation 5 of VS-Quant (arXiv 2102.04503), scaled once at the end
float32 scales    acc = fma(float32(s_a * s_b), float32(dot_j), acc), segments j ascending, cut at every
                  boundary of either grouping; e2m1, e2m3 and int8 elements count their last places
minima            of one side: y = that sum over its codes + the same with codes of 1 and the minima as scales
without integers  both decoded to float32, one chain of fma with k ascending
up to 8 vectors   float32 activations, 16 or 64 accumulators; also those that `activations` rounds, where the
                  weights have no integers
more vectors      float32 activations, one chain of fma with k ascending; scaled fp32, tf32 and bf16: any number
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from . import exact_rows, geometry, integer_terms, quantize, terms, terms_above
from .arithmetic import Array, decoded, fma
from .formats.own import largest_magnitude
from .layout import Geometry, Terms, from_groups, normal_axes
from .minifloat import TYPES

GEMV_VECTORS = 8


class Packed(NamedTuple):
    """A quantized array for the matmuls here; any object with these four attributes works."""

    components: dict[str, Array]
    format: Any
    shape: tuple[int, ...]
    axis: tuple[int, ...]


def packed(x: Any, fmt: Any, axis: Any = -1, clip: Any = None) -> Packed:
    """Quantize an array and keep its description.

    Parameters
    ----------
    x, fmt, axis, clip : as in `quantize`

    Returns
    -------
    Packed
    """
    x = np.asarray(x)
    return Packed(quantize(x, fmt, axis, clip), fmt, x.shape, normal_axes(axis, x.ndim))


@dataclass(frozen=True)
class Columns:
    """Rows of a quantized array column by column, without padding.

    Attributes
    ----------
    integers : ndarray of int64, (rows, columns), or None
        group_scale * code if both are integers; the value is row_scale times that.
    row_scale : ndarray of float32, (rows,), or None
    codes : ndarray of int64, (rows, columns)
    scale : ndarray of float32, (rows, columns)
        Factors of the codes if the other operand has float32 scales; they saturate like decoded values.
    minima : Columns or None
        Codes of 1, with the minima as scales.
    starts : ndarray of bool, (columns,)
        Where a group starts.
    """

    integers: Array | None
    row_scale: Array | None
    codes: Array
    scale: Array
    starts: Array
    minima: Columns | None = None


def columns(factors: Terms, sizes: Geometry) -> Columns:
    """Spread group scales over their columns.

    Parameters
    ----------
    factors : Terms
    sizes : Geometry

    Returns
    -------
    Columns
    """
    codes = from_groups(factors.codes, sizes)
    first = np.zeros(factors.codes.shape[1:], dtype=bool)
    first[:, :1] = True
    one_row = Geometry(1, sizes.runs, sizes.run_length, sizes.group, sizes.groups_per_run, sizes.groups)
    starts = from_groups(first[None], one_row)[0]
    group_scale = np.ones(factors.codes.shape[:2], dtype=np.int64)
    if factors.group_scale is not None:
        group_scale = factors.group_scale
    spread = from_groups(np.broadcast_to(group_scale[..., None], factors.codes.shape), sizes)
    if factors.row_scale is None:
        return Columns(None, None, codes, spread.astype(np.float32), starts)
    scale = decoded(factors.row_scale.astype(np.float64)[:, None] * spread)
    return Columns(codes * spread, factors.row_scale, codes, scale, starts)


def integer_product(a: Columns, b: Columns) -> Array:
    """Multiply two operands whose integers need no scale but the row's.

    Parameters
    ----------
    a, b : Columns
        With `integers`; (m, k) and (n, k).

    Returns
    -------
    ndarray of float32, (m, n)
    """
    assert a.integers is not None and b.integers is not None
    assert a.row_scale is not None and b.row_scale is not None
    total = a.integers @ b.integers.T
    return scaled_sum(total, a.row_scale[:, None], b.row_scale[None, :])


def scaled_sum(total: Array, a_scale: Array, b_scale: Array) -> Array:
    """Return float32((float64(a_scale) * float64(b_scale)) * float64(total)).

    Parameters
    ----------
    total : ndarray of int64
    a_scale, b_scale : ndarray of float32
        Broadcast with `total`.

    Returns
    -------
    ndarray of float32
        Infinity beyond float32.
    """
    with np.errstate(over="ignore"):
        return ((a_scale.astype(np.float64) * b_scale.astype(np.float64)) * total).astype(np.float32)


def grouped_product(a: Columns, b: Columns) -> Array:
    """Multiply exactly within a segment, and join the segments by fma, ascending.

    Parameters
    ----------
    a, b : Columns
        (m, k) and (n, k).

    Returns
    -------
    ndarray of float32, (m, n)
    """
    total = np.zeros((len(a.codes), len(b.codes)), dtype=np.float32)
    bounds = [*np.flatnonzero(a.starts | b.starts).tolist(), a.codes.shape[1]]
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        dot = a.codes[:, start:stop] @ b.codes[:, start:stop].T
        with np.errstate(over="ignore"):
            scale = a.scale[:, start, None] * b.scale[None, :, start]
        total = fma(scale, dot.astype(np.float32), total)
    return total


def few_vectors(x: Array, codes: Array, scale: Array | None, row_scale: Array | None) -> Array:
    """Multiply quantized rows with at most 8 float32 vectors.

    With group scales: p = fma(x_k, c_k, p) over a group, then acc[g mod 16] = fma(s_g, p, acc[g mod 16]) over
    the row. Without: acc[k mod 64] = fma(x_k, c_k, acc[k mod 64]). The accumulators are folded in halves; the
    row's scale, if any, multiplies the folded sum once.

    Parameters
    ----------
    x : ndarray of float32, (vectors, groups, group)
        0 in the padding.
    codes : ndarray of float32, (rows, groups, group)
        0 in the padding.
    scale : ndarray of float32, (rows, groups), or None
    row_scale : ndarray of float32, (rows,), or None

    Returns
    -------
    ndarray of float32, (vectors, rows)
    """
    vectors, rows = len(x), len(codes)
    groups, group = codes.shape[1:]
    if scale is None:
        x, codes = x.reshape(vectors, groups * group), codes.reshape(rows, groups * group)
        lanes = np.zeros((64, vectors, rows), dtype=np.float32)
        for k in range(groups * group):
            lanes[k % 64] = fma(x[:, None, k], codes[None, :, k], lanes[k % 64])
    else:
        partial = np.zeros((vectors, rows, groups), dtype=np.float32)
        for k in range(group):
            partial = fma(x[:, None, :, k], codes[None, :, :, k], partial)
        lanes = np.zeros((16, vectors, rows), dtype=np.float32)
        for g in range(groups):
            lanes[g % 16] = fma(scale[None, :, g], partial[:, :, g], lanes[g % 16])
    with np.errstate(over="ignore", invalid="ignore"):
        while len(lanes) > 1:
            lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
        folded: Array = lanes[0]
        return folded if row_scale is None else folded * row_scale[None, :]


def many_vectors(x: Array, w: Array) -> Array:
    """Multiply float32 values by one chain of fma, k ascending.

    Parameters
    ----------
    x : ndarray of float32, (m, k)
    w : ndarray of float32, (n, k)

    Returns
    -------
    ndarray of float32, (m, n)
    """
    total = np.zeros((len(x), len(w)), dtype=np.float32)
    for k in range(x.shape[1]):
        total = fma(x[:, k, None], w[None, :, k], total)
    return total


def matmul(a: Any, b: Any, activations: Any = None) -> Array:
    """Return a @ b, shapes as in ``np.matmul``.

    Parameters
    ----------
    a, b : ndarray or Packed
        A packed operand's axis is its reduction axis: the last of a, the last but one of b.
    activations : Format or None
        What the dense operand is quantized to, along the reduction axis.

    Returns
    -------
    ndarray of float32

    Raises
    ------
    ValueError
        Shapes or axes do not match, or `activations` is given with both operands packed, or neither.
    """
    if activations is not None and not _is_packed(a) and not _is_packed(b):
        raise ValueError("matmul: activations is given but neither a nor b is quantized")
    return _product("matmul", a, b, max(len(b.shape) - 2, 0), activations)


def linear(x: Any, w: Any, bias: Any = None, activations: Any = None) -> Array:
    """Return x @ w.T + bias, the bias added last.

    Parameters
    ----------
    x : ndarray or Packed, (..., k)
    w : ndarray or Packed, (n, k)
    bias : ndarray of float32, (n,), or None
    activations : Format or None
        As in `matmul`; with both operands dense x is quantized and dequantized first.

    Returns
    -------
    ndarray of float32, (..., n)

    Raises
    ------
    ValueError
        As `matmul`.
    """
    if activations is not None and not _is_packed(x) and not _is_packed(w):
        x = decoded(_exact(packed(x, activations))).reshape(x.shape)
        activations = None
    y = _product("linear", x, w, 1, activations)
    return y if bias is None else y + np.asarray(bias, dtype=np.float32)


def product(a: Columns, b: Columns) -> Array:
    """Multiply two quantized operands: exact to the last scaling if both can be.

    Parameters
    ----------
    a, b : Columns

    Returns
    -------
    ndarray of float32, (m, n)
    """
    if a.integers is not None and b.integers is not None:
        return integer_product(a, b)
    total = grouped_product(a, b)
    if a.minima is not None:
        added = grouped_product(a.minima, b)
    elif b.minima is not None:
        added = grouped_product(a, b.minima)
    else:
        return total
    with np.errstate(over="ignore", invalid="ignore"):
        joined: Array = total + added
        return joined


def _product(name: str, a: Any, b: Any, b_axis: int, activations: Any) -> Array:
    is_left_rounded = is_right_rounded = False
    if activations is not None:
        if _is_packed(a) and _is_packed(b):
            raise ValueError(f"{name}: activations is given but both operands are quantized")
        is_left_rounded, is_right_rounded = _is_packed(b), _is_packed(a)
        a = a if _is_packed(a) else packed(a, activations, len(a.shape) - 1)
        b = b if _is_packed(b) else packed(b, activations, b_axis)
    left, right = _Side(name, a, len(a.shape) - 1), _Side(name, b, b_axis)
    if (is_left_rounded or is_right_rounded) and not _meet_as_integers(left, right):
        (left if is_left_rounded else right).become_values()
    if left.columns != right.columns:
        raise ValueError(f"{name}: a has {left.columns} columns but b has {right.columns} rows")
    batch = np.broadcast_shapes(left.batch, right.batch)
    gemv = _Side.vectors(left, right) <= GEMV_VECTORS
    y = np.empty((*batch, left.rows, right.rows), dtype=np.float32)
    for index in np.ndindex(*batch):
        y[index] = _one(left, right, left.offset(index), right.offset(index), gemv)
    if len(a.shape) == 1:
        y = y[..., 0, :]
    return y[..., 0] if len(b.shape) == 1 else y


def _one(left: _Side, right: _Side, i: int, j: int, gemv: bool) -> Array:
    if _meet_as_integers(left, right):
        return product(left.select_columns(i), right.select_columns(j))
    if (left.packed is None) == (right.packed is None) or not gemv:
        return many_vectors(left.select_values(i), right.select_values(j))
    if any(side.packed is not None and _sums_of_codes_overflow(side.packed.format) for side in (left, right)):
        return many_vectors(left.select_values(i), right.select_values(j))
    if left.packed is not None:
        return _few(left, i, right.select_values(j)).T
    return _few(right, j, left.select_values(i))


def _sums_of_codes_overflow(fmt: Any) -> bool:
    fmt = getattr(fmt, "base", fmt)
    if fmt.family == "own":
        return fmt.scale is not None and not 2.0**-32 <= largest_magnitude(fmt) <= 2.0**64
    return getattr(fmt, "scaled", None) is not None and TYPES[fmt.name].maximum > 2.0**64


def _few(weights: _Side, k: int, x: Array) -> Array:
    factors, sizes = weights.select_terms(k)
    padded = np.pad(x, ((0, 0), (0, sizes.groups * sizes.group - x.shape[1])))
    scale = None if factors.group_scale is None else factors.group_scale.astype(np.float32)
    x_groups = padded.reshape(len(x), sizes.groups, sizes.group)
    return few_vectors(x_groups, factors.codes.astype(np.float32), scale, factors.row_scale)


class _Side:
    """One operand as matrices (rows, columns), `batch` of them, the reduction axis last."""

    def __init__(self, name: str, operand: Any, axis: int) -> None:
        shape = tuple(operand.shape)
        if not shape:
            raise ValueError(f"{name}: an operand has no dimension, expected at least one")
        others = tuple(size for i, size in enumerate(shape) if i != axis)
        self.batch, self.rows, self.columns = others[:-1], (others or (1,))[-1], shape[axis]
        self.packed = operand if _is_packed(operand) else None
        if self.packed is None:
            values = np.asarray(operand).astype(np.float32)
            self.values = np.moveaxis(values, axis, -1).reshape(prod(self.batch), self.rows, self.columns)
        elif tuple(self.packed.axis) != (axis,):
            raise ValueError(f"{name}: quantized along {self.packed.axis} but the reduction axis is {axis}")

    @staticmethod
    def vectors(left: _Side, right: _Side) -> int:
        dense, other = (left, right) if left.packed is None else (right, left)
        return dense.rows if dense.batch and other.batch else prod((*dense.batch, dense.rows))

    def offset(self, index: tuple[int, ...]) -> int:
        """Return the matrix that is used at an index of the broadcast batch."""
        own = index[len(index) - len(self.batch) :]
        own = tuple(i if size > 1 else 0 for i, size in zip(own, self.batch, strict=True))
        return int(np.ravel_multi_index(own, self.batch)) if self.batch else 0

    def select_values(self, i: int) -> Array:
        if self.packed is None:
            matrix: Array = self.values[i]
            return matrix
        return decoded(_exact(self.packed))[i * self.rows : (i + 1) * self.rows]

    def become_values(self) -> None:
        """Continue with the decoded floats."""
        self.values = decoded(_exact(self.packed)).reshape(prod(self.batch), self.rows, self.columns)
        self.packed = None

    def select_terms(self, i: int, whole: Terms | None = None) -> tuple[Terms, Geometry]:
        assert self.packed is not None
        if whole is None:
            whole = terms(self.packed.components, self.packed.format, self.packed.shape, self.packed.axis)
        part = slice(i * self.rows, (i + 1) * self.rows)
        group_scale = None if whole.group_scale is None else whole.group_scale[part]
        row_scale = None if whole.row_scale is None else whole.row_scale[part]
        all_rows = geometry(self.packed.format.group, self.packed.shape, self.packed.axis, self.packed.format.unit)
        sizes = Geometry(self.rows, 1, self.columns, all_rows.group, all_rows.groups_per_run, all_rows.groups)
        return Terms(whole.codes[part], group_scale, row_scale), sizes

    def select_columns(self, i: int) -> Columns:
        assert self.packed is not None
        q = self.packed
        above = terms_above(q.components, q.format, q.shape, q.axis)
        if above is None:
            return columns(*self.select_terms(i, integer_terms(q.components, q.format, q.shape, q.axis)))
        whole, minima = above
        ones = Terms(np.ones_like(whole.codes), minima, None)
        codes = columns(*self.select_terms(i, whole))
        return replace(codes, minima=columns(*self.select_terms(i, ones)))

    def has_minima(self) -> bool:
        q = self.packed
        return q is not None and terms_above(q.components, q.format, q.shape, q.axis) is not None


def _meet_as_integers(left: _Side, right: _Side) -> bool:
    """Tell whether both have integer codes (floats, logs and codebooks are values), and at most one has minima."""
    if left.packed is None or right.packed is None or (left.has_minima() and right.has_minima()):
        return False
    return all(side.has_minima() or has_integers(side.packed) for side in (left, right))


def has_integers(q: Any) -> bool:
    return integer_terms(q.components, q.format, q.shape, q.axis) is not None


def _is_packed(operand: Any) -> bool:
    return hasattr(operand, "components")


def _exact(operand: Any) -> Array:
    return exact_rows(operand.components, operand.format, operand.shape, operand.axis)
