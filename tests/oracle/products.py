"""Matmuls: sums of integers and the stated orders of float sums (section 4 of the public interface)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .encoded import Encoded
from .exact import float32, fma32


def row_scaled(a: Encoded) -> bool:
    """Return whether a matmul stays in integers until one final scaling: Int with one scale per row, two-level VSQ."""
    return a.integers and a.outer is not None


def last_scaling(total, s_a, s_b) -> np.ndarray:
    """Return float32((float64(s_a) * float64(s_b)) * float64(S)), S exact integers: (rows of a, rows of b)."""
    with np.errstate(over="ignore"):
        return (s_a[:, None] * s_b[None, :] * total.astype(np.float64)).astype(np.float32)


def is_stated(a: Encoded | None, b: Encoded) -> bool:
    """Return False if an infinity (of `-nosat`) meets a zero of a pattern, because only one side's patterns skip it."""
    both = [operand for operand in (a, b) if operand is not None]
    return all(o.pattern is None for o in both) or all(np.isfinite(o.decoded()).all() for o in both)


def integer_rows(a: Encoded) -> np.ndarray:
    """Return codes times integer scales, as Python integers."""
    units = a.matrix("units")
    if a.scale is not None:
        units = units * a.matrix("scale")
    return np.vectorize(int, otypes=[object])(units) if units.size else units.astype(object)


def dense_groups(a: Encoded) -> np.ndarray:
    """Return the group of each element of a dense row; blocks of a pattern never cross groups."""
    if a.dense is None:
        return a.rows.group_of()
    n, m = a.pattern
    last, kept_last = a.dense.shape[a.dense.axis[-1]], a.rows.shape[a.rows.axis[-1]]
    segment, position = np.divmod(np.arange(a.dense.length), max(last, 1))
    return a.rows.group_of()[segment * kept_last + position // m * n]


@dataclass
class Scaled:
    """Integers with a float32 scale each, (rows, k), and the group of each k."""

    units: np.ndarray
    scales: np.ndarray
    groups: np.ndarray


def scaled(a: Encoded) -> Scaled:
    """Return the scaled integers; two levels have the scale float32(gamma * s_q), one scale per row is one group."""
    units = a.matrix("units")
    if a.scale is None:
        scales = np.broadcast_to(a.outer.astype(np.float32)[:, None], units.shape)
        return Scaled(units, scales, np.zeros(units.shape[1], int))
    scale = float32(a.scale if a.outer is None else a.scale * a.outer[:, None])
    groups = dense_groups(a)
    return Scaled(units * a.places, (scale / np.float32(a.places))[:, groups], groups)


def by_groups(a: Scaled, b: Scaled) -> np.ndarray:
    """Compute acc = fma(float32(s_a * s_b), float32(dot), acc), segments between all group boundaries ascending."""
    acc = np.zeros((len(a.units), len(b.units)), np.float32)
    k = a.units.shape[1]
    starts = [i for i in range(1, k) if a.groups[i] != a.groups[i - 1] or b.groups[i] != b.groups[i - 1]]
    for begin, end in pairwise([0, *starts, k] if k else []):
        dot = a.units[:, begin:end] @ b.units[:, begin:end].T  # small integers: exact in float64
        with np.errstate(over="ignore", under="ignore"):
            t = a.scales[:, begin, None] * b.scales[None, :, begin]
        acc = fma32(t, float32(dot), acc)
    return acc


def few_vectors(x, w: Encoded) -> np.ndarray:
    """Multiply float vectors (m, k) by packed rows, in the order of sums for at most 8 vectors."""
    x = np.asarray(x, np.float32)
    units = float32(w.matrix("units"))
    n, k = units.shape
    shape = (x.shape[0], n)
    with np.errstate(all="ignore"):
        if w.grouped:
            groups = dense_groups(w)
            acc = np.zeros((16, *shape), np.float32)
            for g in range(w.rows.groups):
                p = np.zeros(shape, np.float32)
                for i in np.flatnonzero(groups == g):
                    p = fma32(x[:, i, None], units[None, :, i], p)
                acc[g % 16] = fma32(float32(w.scale[:, g])[None, :], p, acc[g % 16])
        else:
            acc = np.zeros((64, *shape), np.float32)
            for i in range(k):
                acc[i % 64] = fma32(x[:, i, None], units[None, :, i], acc[i % 64])
        while len(acc) > 1:
            half = len(acc) // 2
            acc = acc[:half] + acc[half:]
        total = acc[0]
        return total if w.outer is None else total * w.outer.astype(np.float32)[None, :]


def bound(a, b) -> tuple[np.ndarray, np.ndarray]:
    """Return the exact product of rows, and the error bound of a float32 sum in any order: a rounding for each of k
    terms and each of k sums, and one more.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    share = (2 * a.shape[1] + 1) * 2.0**-24
    return a @ b.T, np.abs(a) @ np.abs(b).T * share / (1 - share) + (2 * a.shape[1] + 1) * 2.0**-150


def in_order(a, b) -> np.ndarray:
    """Multiply rows of decoded float32 values: k ascending, one fused multiply-add each."""
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    acc = np.zeros((len(a), len(b)), np.float32)
    for k in range(a.shape[1]):
        acc = fma32(a[:, k, None], b[None, :, k], acc)
    return acc
