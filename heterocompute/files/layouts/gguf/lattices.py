"""IQ1 to IQ3 of ggml: groups of 8 or 4 values are a point of a lattice, times a scale.

    value = d c (2 l + 1) point            l has 4 bits, of IQ1 3, for 32 or 16 values; d is a float16 of 256
    IQ2_XXS, IQ2_XS, IQ3_XXS               signs apart: an even number of 8 values is negative
    IQ2_S, IQ3_S                           any signs
    IQ1_S, IQ1_M                           points of -1, 0 and 1, plus or minus 1 / 8

The search minimizes the weighted squared error. Given d it is exhaustive: each l with the best of all points. d is that
of the largest of the best scales, then refitted to the points. Sums have one order, so that bytes are the same on every
machine. The points are those of the package gguf. ggml, src/ggml-quants.c.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....base.errors import WrongValue
from ....base.runtime import use
from ....products.matmul import matmul

Array = np.ndarray[Any, Any]
BLOCK, EIGHT = 256, 8
CHUNK = 1 << 22  # products of groups and points at a time
DELTA = np.float32(0.125)


class Lattice(NamedTuple):
    """A type: its name, bytes of a block, values of a point, values of a scale, c, levels of scales, and signs."""

    name: str
    nbytes: int
    width: int
    span: int
    unit: float
    levels: int
    signs: str
    spread: tuple[float, float]  # of the scales that are tried, relative to that of the largest value

    def __str__(self) -> str:
        return self.name


USUAL = (0.5, 1.25)
LATTICES = {
    one.name: one
    for one in (
        Lattice("iq1_s", 50, 8, 32, 1, 8, "shift 32", (0.2, 0.9)),
        Lattice("iq1_m", 56, 8, 16, 1, 8, "shift 8", (0.25, 0.9)),
        Lattice("iq2_xxs", 66, 8, 32, 0.125, 16, "even", USUAL),
        Lattice("iq2_xs", 74, 8, 16, 0.125, 16, "even", USUAL),
        Lattice("iq2_s", 82, 8, 16, 0.125, 16, "any", USUAL),
        Lattice("iq3_xxs", 98, 4, 32, 0.25, 16, "even", USUAL),
        Lattice("iq3_s", 110, 4, 32, 1, 16, "any", USUAL),
    )
}
TRIED = 12  # scales


def points_of(kind: Lattice) -> Array:
    """Return the points of a type, float32 (points, width)."""
    from gguf import quants  # optional

    found = getattr(quants, kind.name.upper())
    found.init_grid()
    return np.ascontiguousarray(found.grid.reshape(-1, kind.width), np.float32)


def encoded(kind: Lattice, rows: Array, weights: Array | None) -> Array:
    """Return the blocks of rows.

    Parameters
    ----------
    kind : Lattice
    rows : ndarray (rows, columns)
        Whole blocks of 256 columns.
    weights : ndarray (rows, columns), optional
        Of the squared errors.

    Returns
    -------
    ndarray of uint8, (rows, bytes)

    Raises
    ------
    ValueError
        A value is not finite.
    """
    x = np.ascontiguousarray(rows, np.float32).reshape(-1, BLOCK)
    if not np.isfinite(x).all():
        raise WrongValue("values are not finite")
    w = np.ones((len(x), BLOCK), np.float32)
    if weights is not None:
        w = np.ascontiguousarray(weights, np.float32).reshape(-1, BLOCK)
        if not np.isfinite(w).all() or (w < 0).any():
            raise WrongValue("importance has values that are negative or not finite")
        most = w.max(-1, keepdims=True)
        w = np.where(most > 0, w / np.where(most > 0, most, np.float32(1)), np.float32(1))
        w = np.maximum(w, np.float32(1e-6))
    points = points_of(kind)
    step = max(CHUNK // (BLOCK // kind.width * len(points)), 1)
    parts = [_blocks(kind, points, x[i : i + step], w[i : i + step]) for i in range(0, len(x), step)]
    return np.concatenate(parts).reshape(len(rows), -1)


class _Fit(NamedTuple):
    """Points and their products with the values: (blocks, spans, groups), and sums of spans."""

    picked: Array
    xy: Array
    yy: Array


class _Search:
    """Products of the groups of some blocks with all points."""

    def __init__(self, kind: Lattice, x: Array, w: Array, points: Array) -> None:
        self._shape = len(x), BLOCK // kind.span, kind.span // kind.width
        with use(blas="own"):
            self._xy = matmul((w * x).reshape(-1, kind.width), np.ascontiguousarray(points.T))
            self._yy = matmul(w.reshape(-1, kind.width), np.ascontiguousarray((points * points).T))
        self._rows = np.arange(len(self._xy))

    def best(self, scales: Array) -> _Fit:
        """Return the best points for the scale of each span."""
        each = np.repeat(scales.reshape(-1), self._shape[2])[:, None]
        picked = (each * self._yy - np.float32(2) * self._xy).argmin(1)
        parts = (part[self._rows, picked].reshape(self._shape) for part in (self._xy, self._yy))
        return _Fit(picked.reshape(self._shape), *(_summed(part) for part in parts))


def _summed(part: Array) -> Array:
    """Return sums along the last axis, from the left."""
    total = part[..., 0].copy()
    for i in range(1, part.shape[-1]):
        total += part[..., i]
    return total


def _errors(scales: Array, fit: _Fit) -> Array:
    return scales * (scales * fit.yy - np.float32(2) * fit.xy)


def _chosen(better: Array, new: _Fit, old: _Fit) -> _Fit:
    return _Fit(
        np.where(better[..., None], new.picked, old.picked),
        np.where(better, new.xy, old.xy),
        np.where(better, new.yy, old.yy),
    )


def _signed(kind: Lattice, x: Array, w: Array) -> tuple[Array, Array]:
    """Return magnitudes, one of 8 negative if the number of signs would be odd, and the signs of 8 values as bits."""
    x, w = x.reshape(-1, EIGHT), w.reshape(-1, EIGHT)
    negative, sizes = x < 0, np.abs(x)
    if kind.signs == "even":
        odd = np.flatnonzero(negative.sum(1) % 2)
        least = (w[odd] * sizes[odd] * sizes[odd]).argmin(1)
        negative[odd, least] ^= True
        sizes[odd, least] *= np.float32(-1)
    return sizes, np.packbits(negative, axis=1, bitorder="little").reshape(-1)


def _blocks(kind: Lattice, points: Array, x: Array, w: Array) -> Array:
    if kind.signs == "shift 32":
        fits = [_fitted(kind, _Search(kind, x, w, points + DELTA * sign), x) for sign in (1, -1)]
        return _with_shifts(kind, points, x, w, fits)
    if kind.signs == "shift 8":
        both = np.concatenate([points + DELTA, points - DELTA])
        d, levels, fit = _fitted(kind, _Search(kind, x, w, both), x)
        return _packed(kind, d, levels, fit.picked % len(points), fit.picked >= len(points))
    sizes, signs = _signed(kind, x, w)
    d, levels, fit = _fitted(kind, _Search(kind, sizes.reshape(x.shape), w, points), x)
    return _packed(kind, d, levels, fit.picked, signs)


Fitted = tuple[Array, Array, _Fit]


def _fitted(kind: Lattice, search: _Search, x: Array) -> Fitted:
    """Return d of each block, the level of each span, and its points."""
    scales, fit = _tried(kind, search, x)
    d = _rounded(scales.max(1) / np.float32(kind.unit * (2 * kind.levels - 1)))
    d = _best_of(kind, d, scales, fit)
    levels, fit = _levels(kind, search, d)
    again = _refitted(kind, levels, fit)
    found, other = _levels(kind, search, again)
    better = _total(kind, again, found, other) < _total(kind, d, levels, fit)
    return (
        np.where(better, again, d),
        np.where(better[:, None], found, levels),
        _chosen(np.broadcast_to(better[:, None], levels.shape), other, fit),
    )


def _tried(kind: Lattice, search: _Search, x: Array) -> tuple[Array, _Fit]:
    """Return the best scale of each span among some that are tried, fitted to its points."""
    most = {"shift 32": 1.125, "shift 8": 1.125}.get(kind.signs) or float(points_of(kind).max())
    base = np.abs(x).reshape(len(x), -1, kind.span).max(-1) / np.float32(most)
    best: tuple[Array, _Fit] | None = None
    least: Any = None
    for factor in np.linspace(*kind.spread, TRIED, dtype=np.float32):
        fit = search.best(base * factor)
        scales = np.where(fit.yy > 0, fit.xy / np.where(fit.yy > 0, fit.yy, np.float32(1)), np.float32(0))
        scales = np.maximum(scales, np.float32(0))
        errors = _errors(scales, fit)
        if best is None:
            best, least = (scales, fit), errors
            continue
        better = errors < least
        least = np.where(better, errors, least)
        best = np.where(better, scales, best[0]), _chosen(better, fit, best[1])
    assert best is not None
    return best


def _rounded(d: Array) -> Array:
    """Return d as float16 stores it."""
    return np.minimum(d, np.float32(65504)).astype(np.float16).astype(np.float32)


def _steps(kind: Lattice, levels: Array) -> Array:
    return np.float32(kind.unit) * (2 * levels + 1).astype(np.float32)


def _nearest(kind: Lattice, d: Array, scales: Array) -> Array:
    step = np.where(d > 0, d * np.float32(kind.unit), np.float32(1))[:, None]
    return np.clip(np.rint((scales / step - 1) / 2), 0, kind.levels - 1).astype(np.int64)


def _total(kind: Lattice, d: Array, levels: Array, fit: _Fit) -> Array:
    return _summed(_errors(d[:, None] * _steps(kind, levels), fit))


def _best_of(kind: Lattice, d: Array, scales: Array, fit: _Fit) -> Array:
    """Return the best d near a first one, with the given points."""
    best, least = d, _total(kind, d, _nearest(kind, d, scales), fit)
    for factor in np.linspace(0.8, 1.2, 17, dtype=np.float32):
        other = _rounded(d * factor)
        total = _total(kind, other, _nearest(kind, other, scales), fit)
        better = total < least
        best, least = np.where(better, other, best), np.where(better, total, least)
    return best


def _levels(kind: Lattice, search: _Search, d: Array) -> tuple[Array, _Fit]:
    """Return the best level of each span and its points, of all levels and points."""
    best: Any = None
    for level in range(kind.levels):
        scales = np.broadcast_to((d * _steps(kind, np.array(level)))[:, None], search._shape[:2])
        fit = search.best(scales)
        errors = _errors(scales, fit)
        if best is None:
            best = np.zeros(errors.shape, np.int64), errors, fit
            continue
        better = errors < best[1]
        best = np.where(better, level, best[0]), np.where(better, errors, best[1]), _chosen(better, fit, best[2])
    return best[0], best[2]


def _refitted(kind: Lattice, levels: Array, fit: _Fit) -> Array:
    """Return the d of least squares for these levels and points."""
    steps = _steps(kind, levels)
    over, under = _summed(steps * fit.xy), _summed(steps * steps * fit.yy)
    return _rounded(np.maximum(np.where(under > 0, over / np.where(under > 0, under, np.float32(1)), 0), 0))


def _with_shifts(kind: Lattice, points: Array, x: Array, w: Array, fits: list[Fitted]) -> Array:
    """Return blocks whose spans have one of two shifts, with the d of the better fit."""
    totals = [_total(kind, *one) for one in fits]
    d = np.where(totals[0] <= totals[1], fits[0][0], fits[1][0])
    for _ in range(2):
        both = [_levels(kind, _Search(kind, x, w, points + DELTA * sign), d) for sign in (1, -1)]
        errors = [_errors(d[:, None] * _steps(kind, levels), fit) for levels, fit in both]
        down = errors[1] < errors[0]
        levels, fit = np.where(down, both[1][0], both[0][0]), _chosen(down, both[1][1], both[0][1])
        found = d, levels, fit, down
        d = _refitted(kind, levels, fit)
        if (d == found[0]).all() or not (_total(kind, d, levels, fit) < _total(kind, *found[:3])).any():
            break
    d, levels, fit, down = found
    return _packed(kind, d, levels, fit.picked, down)


def _packed(kind: Lattice, d: Array, levels: Array, picked: Array, signs: Array) -> Array:
    """Return the bytes of blocks.

    Parameters
    ----------
    picked : ndarray of int (blocks, spans, groups)
    signs : ndarray
        The bits of 8 values each, or whether the point of a span or a group is shifted down.
    """
    n = len(d)
    index, whole = picked.reshape(n, -1), d.astype(np.float16).view(np.uint16).reshape(n, 1)
    low = (index & 255).astype(np.uint8)
    if kind.name == "iq1_s":
        high = (index >> 8).reshape(n, 8, 4).astype(np.uint16) << np.array([0, 3, 6, 9], np.uint16)
        word = np.bitwise_or.reduce(high, axis=-1) | levels.astype(np.uint16) << np.uint16(12)
        return _bytes(whole, low, word | signs.astype(np.uint16) << np.uint16(15))
    if kind.name == "iq1_m":
        nibble = (index >> 8 | signs.reshape(n, -1) * 8).astype(np.uint8).reshape(n, -1, 2)
        scales = levels.reshape(n, 4, 4).astype(np.uint16) << np.array([0, 3, 6, 9], np.uint16)
        parts = (whole >> np.array([0, 4, 8, 12], np.uint16) & np.uint16(15)) << np.uint16(12)
        return _bytes(
            low, nibble[..., 0] | nibble[..., 1] << np.uint8(4), np.bitwise_or.reduce(scales, axis=-1) | parts
        )
    signs = signs.reshape(n, -1)
    if kind.name in ("iq2_xxs", "iq3_xxs"):
        seven = (signs & 127).reshape(n, 8, 4).astype(np.uint32) << np.array([0, 7, 14, 21], np.uint32)
        words = np.bitwise_or.reduce(seven, axis=-1) | levels.astype(np.uint32) << np.uint32(28)
        if kind.name == "iq3_xxs":
            return _bytes(whole, low, words)
        pairs = np.concatenate([low.reshape(n, 8, 4), words.reshape(n, 8, 1).view(np.uint8)], axis=-1)
        return _bytes(whole, pairs.reshape(n, -1))
    nibbles = levels.astype(np.uint8).reshape(n, -1, 2)
    scales = nibbles[..., 0] | nibbles[..., 1] << np.uint8(4)
    if kind.name == "iq2_xs":
        return _bytes(whole, (index | (signs & 127).astype(np.int64) << 9).astype(np.uint16), scales)
    bits = 2 if kind.name == "iq2_s" else 1
    high = (index >> 8).astype(np.uint8).reshape(n, -1, 8 // bits) << np.arange(0, 8, bits, dtype=np.uint8)
    joined = np.bitwise_or.reduce(high, axis=-1)
    found = (whole, low, signs, joined, scales) if kind.name == "iq2_s" else (whole, low, joined, signs, scales)
    return _bytes(*found)


def _bytes(*parts: Array) -> Array:
    little = (np.ascontiguousarray(part, part.dtype.newbyteorder("<")).view(np.uint8) for part in parts)
    return np.concatenate([part.reshape(len(part), -1) for part in little], axis=1)
