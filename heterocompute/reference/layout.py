"""Rows, groups and bits: the position of each value of an array in the packed components.

One row = one index of the axes that are not named, in C order. A row has the values of the named axes in the given
order: `runs` runs of `run_length` values, where a run is the last named axis. Groups never cross a run; a short tail is
a group of its own, padded to the full length.

    shape (K, C, R, S), axis (2, 3, 1), group 16:   rows = K, runs = R * S, run_length = C,
    groups_per_run = ceil(C / 16), groups = runs * groups_per_run

Code i of a row occupies bits i * b to i * b + b - 1 of that row, lowest bit first; rows start on a byte.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .arithmetic import Array


@dataclass(frozen=True)
class Geometry:
    """The sizes of a packed array; ``group=None`` is one group for the whole row, with any number of runs."""

    rows: int
    runs: int
    run_length: int
    group: int
    groups_per_run: int
    groups: int


@dataclass(frozen=True)
class Terms:
    """A packed array as factors: value = row_scale * (group_scale * code); padded codes are 0.

    Attributes
    ----------
    codes : ndarray of int64 or float64, (rows, groups, group)
        Signed, with zero points subtracted; for floats, logs and codebooks the value of the code.
    group_scale : ndarray (rows, groups) or None
        int64 for two levels, float32 for one level, None without group scales.
    row_scale : ndarray of float32, (rows,) or None
    """

    codes: Array
    group_scale: Array | None
    row_scale: Array | None


def normal_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return the reduction axes as non-negative numbers.

    Parameters
    ----------
    axis : int or iterable of int
    ndim : int

    Returns
    -------
    tuple of int

    Raises
    ------
    ValueError
        An axis out of range or twice, or none at all.
    """
    given = tuple(axis) if isinstance(axis, Iterable) else (axis,)
    axes = tuple(operator.index(one) for one in given)
    for one in axes:
        if not -ndim <= one < ndim:
            raise ValueError(f"axis: {one} is out of range for an array of {ndim} dimensions")
    axes = tuple(one % ndim for one in axes)
    if not axes or len(set(axes)) != len(axes):
        raise ValueError(f"axis: {axis!r:.80} names {'no axis' if not axes else 'an axis twice'}")
    return axes


def geometry(group: int | None, shape: tuple[int, ...], axis: Any, unit: int = 1) -> Geometry:
    """Return the sizes of an array of this shape, quantized along `axis` with this group.

    Parameters
    ----------
    group : int or None
    shape : tuple of int
    axis : int or iterable of int
    unit : int
        Values that one code or one block covers: runs are padded to a multiple of it, and groups, unless it holds whole
        groups.

    Returns
    -------
    Geometry
    """
    axes = normal_axes(axis, len(shape))
    rows = prod(size for i, size in enumerate(shape) if i not in axes)
    runs = prod(shape[i] for i in axes[:-1])
    run_length = shape[axes[-1]]
    if group is None and unit == 1:
        return Geometry(rows, runs, run_length, runs * run_length, 1, 1)
    if group is not None and unit % group == 0:
        groups_per_run = -(-run_length // unit) * (unit // group)
        return Geometry(rows, runs, run_length, group, groups_per_run, runs * groups_per_run)
    effective = -(-max(min(run_length if group is None else group, run_length), 1) // unit) * unit
    groups_per_run = -(-run_length // effective)
    return Geometry(rows, runs, run_length, effective, groups_per_run, runs * groups_per_run)


def to_rows(x: Array, axis: Any) -> Array:
    """Return x as (rows, columns), the columns being the named axes in the order given.

    Parameters
    ----------
    x : ndarray
    axis : int or iterable of int

    Returns
    -------
    ndarray, (rows, columns)
    """
    axes = normal_axes(axis, x.ndim)
    others = [i for i in range(x.ndim) if i not in axes]
    rows, columns = prod(x.shape[i] for i in others), prod(x.shape[i] for i in axes)
    return x.transpose(*others, *axes).reshape(rows, columns)


def from_rows(rows: Array, shape: tuple[int, ...], axis: Any) -> Array:
    """Undo `to_rows`.

    Parameters
    ----------
    rows : ndarray, (rows, columns)
    shape : tuple of int
    axis : int or iterable of int

    Returns
    -------
    ndarray of this shape
    """
    axes = normal_axes(axis, len(shape))
    order = [i for i in range(len(shape)) if i not in axes] + list(axes)
    return rows.reshape([shape[i] for i in order]).transpose(np.argsort(order))


def to_groups(rows: Array, sizes: Geometry) -> Array:
    """Split rows into groups, tails padded with 0.

    Parameters
    ----------
    rows : ndarray, (rows, columns)
    sizes : Geometry

    Returns
    -------
    ndarray, (rows, groups, group)
    """
    if sizes.groups * sizes.group == sizes.runs * sizes.run_length:
        return rows.reshape(sizes.rows, sizes.groups, sizes.group)
    runs = rows.reshape(sizes.rows, sizes.runs, sizes.run_length)
    tail = sizes.groups_per_run * sizes.group - sizes.run_length
    padded = np.pad(runs, ((0, 0), (0, 0), (0, tail)))
    return padded.reshape(sizes.rows, sizes.groups, sizes.group)


def from_groups(groups: Array, sizes: Geometry) -> Array:
    """Join groups to rows and drop the padding.

    Parameters
    ----------
    groups : ndarray, (rows, groups, group)
    sizes : Geometry

    Returns
    -------
    ndarray, (rows, columns)
    """
    if sizes.groups * sizes.group == sizes.runs * sizes.run_length:
        return groups.reshape(sizes.rows, -1 if groups.size else sizes.runs * sizes.run_length)
    runs = groups.reshape(sizes.rows, sizes.runs, sizes.groups_per_run * sizes.group)
    return runs[:, :, : sizes.run_length].reshape(sizes.rows, sizes.runs * sizes.run_length)


def real(sizes: Geometry) -> Array:
    """Tell values from padding.

    Parameters
    ----------
    sizes : Geometry

    Returns
    -------
    ndarray of bool, (groups, group)
        True where a value lies.
    """
    one_row = Geometry(1, sizes.runs, sizes.run_length, sizes.group, sizes.groups_per_run, sizes.groups)
    values: Array = to_groups(np.ones((1, sizes.runs * sizes.run_length), dtype=bool), one_row)[0]
    return values


def pack(codes: Array, bits: int) -> Array:
    """Pack codes, `bits` bits each, little end first, every row from a byte on.

    Parameters
    ----------
    codes : ndarray of integers, (rows, n)
        Signed ones as two's complement.
    bits : int

    Returns
    -------
    ndarray of uint8, (rows, ceil(n * bits / 8))

    Examples
    --------
    >>> import numpy as np
    >>> from heterocompute.reference.layout import pack
    >>> pack(np.array([[1, -1, 2]]), 4)
    array([[241,   2]], dtype=uint8)
    """
    rows, n = codes.shape
    single = (codes.astype(np.int64)[:, :, None] >> np.arange(bits)) & 1
    return np.packbits(single.astype(np.uint8).reshape(rows, n * bits), axis=1, bitorder="little")


def unpack(packed: Array, bits: int, n: int, signed: bool) -> Array:
    """Undo `pack`.

    Parameters
    ----------
    packed : ndarray of uint8, (rows, row_bytes)
    bits : int
    n : int
        Codes in a row.
    signed : bool
        Whether the codes are two's complement.

    Returns
    -------
    ndarray of int64, (rows, n)

    Examples
    --------
    >>> import numpy as np
    >>> from heterocompute.reference.layout import unpack
    >>> unpack(np.array([[241, 2]], dtype=np.uint8), 4, 3, signed=True)
    array([[ 1, -1,  2]])
    """
    rows = len(packed)
    single = np.unpackbits(packed, axis=1, count=n * bits, bitorder="little").reshape(rows, n, bits)
    weight = 1 << np.arange(bits, dtype=np.int64)
    if signed:
        weight[-1] = -weight[-1]
    codes: Array = single.astype(np.int64) @ weight
    return codes


def row_bytes(n: int, bits: int) -> int:
    """Return the bytes of a row of n codes.

    Parameters
    ----------
    n, bits : int

    Returns
    -------
    int
    """
    return -(-n * bits // 8)


def unsigned_codes(fmt: Any, sizes: Geometry, components: dict[str, Array]) -> Array:
    """Return the codes of an array as they are stored, of a format with one unsigned code per value.

    Parameters
    ----------
    fmt : Format
    sizes : Geometry
    components : dict of str to ndarray

    Returns
    -------
    ndarray of int64, (rows, groups, group)
    """
    codes = unpack(components["codes"], fmt.bits, sizes.groups * sizes.group, signed=False)
    return codes.reshape(sizes.rows, sizes.groups, sizes.group)
