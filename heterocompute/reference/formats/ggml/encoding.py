"""The encoding of ggml's blocks: five types as ggml encodes them, the rest by a search of least squares.

float32 throughout, operation by operation, no fma; sums index ascending, one accumulator. A value counts as its
float32, cut to +-2^40, which no block reaches, and 0 below 2^-40, where every block is 0. H(v) is the float16 nearest
to v, cut to +-65504. "The largest" is the first value of the largest magnitude, with its sign. Divisions by 0 give 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arithmetic import Array
from ...layout import Geometry, pack

F32 = np.float32
LARGEST, SMALLEST = F32(2.0**40), F32(2.0**-40)
LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
STEPS = np.arange(-4, 4, dtype=F32) / F32(4)
FURTHER = np.arange(-20, 11, dtype=F32) / F32(4)  # of levels with weights


class Sums(NamedTuple):
    """Sums over one group: of w, w x, w q, w q^2 and w q x."""

    w: Array
    x: Array
    q: Array
    qq: Array
    qx: Array


def blocks(kind: Any, sizes: Geometry, x: Array, weights: Array | None) -> tuple[Array, dict[str, Array]]:
    """Quantize groups of values.

    Parameters
    ----------
    kind : Kind
    sizes : Geometry
    x : ndarray of float32, (rows, groups, group)
    weights : ndarray of float32, (rows, groups, group), or None
        Of the squared errors; None: all 1.

    Returns
    -------
    (ndarray of int64, (rows, groups, group), dict of str to ndarray)
        Codes; scales, minima and coarse, those that there are and maybe more.

    Notes
    -----
    As ggml, to the byte (where H(d) = 0 codes are 0)::

        q4_0, q5_0   d = largest / -n, n = 8 or 16       q = min(trunc(x * (1/d) + n + 1/2), 2n - 1) - n
        q4_1, q5_1   d = (max - min) / n, n = 15 or 31   q = min(trunc((x - m) * (1/d) + 1/2), n), m = min
        q8_0         d = largest magnitude / 127         q = x * (1/d), to the nearest, halves away from 0
        tq1_0 tq2_0  d = largest magnitude               q = x * (1/d), likewise

    The others by weighted least squares. Of each group eight candidates of codes q, for t = -1, -0.75, ..., 0.75, each
    with its best factors; those of the largest gain are kept. With levels and weights there are 31, for t = -5 to 2.5,
    since a value with a small weight may be beyond the levels::

        signed        q = RNE(clip(x * (-(n + t) * (1/largest)), -n, n - 1)), n = 2^(b-1)
        with levels   q = the level nearest to x * (-(127 + 12 t) * (1/largest)), ties to the lower, its value
                      s = sum(w q x) / sum(w q^2), gain = s sum(w q x)
        with minimum  lo = min(x, 0), q = RNE(clip((x - lo) * ((n + t) * (1/(max(x, lo) - lo))), 0, n)), n = 2^b-1
                      s, m = the least squares of s q + m; m > 0: s = sum(w q x) / sum(w q^2), m = 0
                      gain = s sum(w q x) + m sum(w x)

    The factors of a block's groups become integers, then codes are those nearest with the stored factors, then d (and
    e) are fitted to all of the block once more by least squares, and codes are made again.
    """
    x = np.clip(x, -LARGEST, LARGEST)
    x = np.where(np.abs(x) < SMALLEST, F32(0), x)
    steps = FURTHER if kind.has_levels and weights is not None else STEPS
    w = np.ones_like(x) if weights is None else weights
    found: dict[str, Array]
    with np.errstate(all="ignore"):
        if not kind.scale_bits and not kind.has_levels:
            codes, scales, minima = _plain(kind, x)
            found = {"scales": scales, "minima": minima}
        elif not kind.scale_bits:
            scales = _half(_fit(kind, x, w, steps)[0])
            codes = _assigned(kind, x, scales.astype(F32), F32(0))
            found = {"scales": scales}
        else:
            codes, found = _below(kind, sizes, x, w, steps)
    return _stored(kind, codes), found


def _half(value: Array) -> Array:
    return np.clip(value, F32(-65504), F32(65504)).astype(np.float16)


def _inverse(value: Array) -> Array:
    return np.where(value == 0, F32(0), F32(1) / value)


def _largest(x: Array) -> Array:
    """Return the first value of the largest magnitude."""
    place = np.abs(x).argmax(axis=-1)[..., None]
    return np.take_along_axis(x, place, axis=-1)[..., 0]


def _plain(kind: Any, x: Array) -> tuple[Array, Array, Array]:
    """Return codes, scales and minima of types without a search."""
    limit = F32(65504)
    least = np.clip(x.min(axis=-1), -limit, limit)
    if kind.has_minimum:
        n = F32(2**kind.bits - 1)
        d = np.clip((x.max(axis=-1) - least) / n, -limit, limit)
        codes = np.trunc((x - least[..., None]) * _inverse(d)[..., None] + F32(0.5))
        codes = np.clip(codes, 0, n)
    elif kind.bits in (4, 5):
        n = F32(2 ** (kind.bits - 1))
        d = np.clip(_largest(x) / -n, -limit, limit)
        codes = np.trunc(x * _inverse(d)[..., None] + (n + F32(0.5)))
        codes = np.clip(codes, 0, n + n - 1) - n
    else:
        n = F32(2 ** (kind.bits - 1) - 1)
        d = np.clip(np.abs(x).max(axis=-1) / n, -limit, limit)
        q = x * _inverse(d)[..., None]
        whole = np.trunc(np.abs(q))
        codes = np.clip(np.copysign(whole + np.trunc((np.abs(q) - whole) * F32(2)), q), -n, n)
    scales = _half(d)
    codes = np.where((scales == 0)[..., None], F32(0), codes)
    return codes, scales, _half(least)


def _sums(x: Array, w: Array, q: Array) -> Sums:
    total = [np.zeros(x.shape[:-1], F32) for _ in range(5)]
    for j in range(x.shape[-1]):
        wq = w[..., j] * q[..., j]
        for i, one in enumerate((w[..., j], w[..., j] * x[..., j], wq, wq * q[..., j], wq * x[..., j])):
            total[i] = total[i] + one
    return Sums(*total)


def _fit(kind: Any, x: Array, w: Array, steps: Array) -> tuple[Array, Array]:
    """Return the scale of each group, and its minimum with the sign changed."""
    return _fit_minimum(kind, x, w, steps) if kind.has_minimum else _fit_signed(kind, x, w, steps)


def _fit_signed(kind: Any, x: Array, w: Array, steps: Array) -> tuple[Array, Array]:
    largest, zero = _largest(x), np.zeros(x.shape[:-1], F32)
    n, step = (F32(127), F32(12)) if kind.has_levels else (F32(2 ** (kind.bits - 1)), F32(1))
    best, scale = zero, largest / -n
    for t in steps:
        q = _nearest(kind, x * (-(n + step * t) * _inverse(largest))[..., None])
        sums = _sums(x, w, q)
        s = sums.qx / sums.qq
        gain = s * sums.qx
        better = (sums.qq > 0) & (gain > best)
        best, scale = np.where(better, gain, best), np.where(better, s, scale)
    return scale, zero


def _fit_minimum(kind: Any, x: Array, w: Array, steps: Array) -> tuple[Array, Array]:
    n, zero = F32(2**kind.bits - 1), np.zeros(x.shape[:-1], F32)
    low = np.minimum(x.min(axis=-1), F32(0))
    span = np.maximum(x.max(axis=-1), low) - low
    best, scale, minimum = zero, span / n, low
    for t in steps:
        inverse = (n + t) * _inverse(span)
        sums = _sums(x, w, _nearest(kind, (x - low[..., None]) * inverse[..., None]))
        determinant = sums.w * sums.qq - sums.q * sums.q
        s = (sums.w * sums.qx - sums.x * sums.q) / determinant
        m = (sums.qq * sums.x - sums.q * sums.qx) / determinant
        above = m > 0
        s, m = np.where(above, sums.qx / sums.qq, s), np.where(above, F32(0), m)
        gain = s * sums.qx + m * sums.x
        better = (determinant > 0) & (s > 0) & (gain > best)
        best = np.where(better, gain, best)
        scale, minimum = np.where(better, s, scale), np.where(better, m, minimum)
    return scale, F32(0) - minimum


def _nearest(kind: Any, quotient: Array) -> Array:
    """Return the nearest codes, or the nearest levels if the kind has levels."""
    if kind.has_levels:
        return np.asarray(LEVELS.astype(F32)[np.searchsorted((LEVELS[1:] + LEVELS[:-1]) / 2, quotient, side="left")])
    n = 2 ** (kind.bits - 1)
    low, high = (-n, n - 1) if kind.signed else (0, 2 * n - 1)
    return np.asarray(np.rint(np.clip(quotient, F32(low), F32(high))))


def _assigned(kind: Any, x: Array, scale: Array, minimum: Any) -> Array:
    """Return the nearest codes for these factors: value = scale * q - minimum."""
    codes = _nearest(kind, (x + np.asarray(minimum)[..., None]) * _inverse(scale)[..., None])
    if kind.has_levels:
        return codes
    return np.where((scale == 0)[..., None], F32(0), codes)


def _stored(kind: Any, codes: Array) -> Array:
    return np.searchsorted(LEVELS, codes) if kind.has_levels else codes.astype(np.int64)


def _below(kind: Any, sizes: Geometry, x: Array, w: Array, steps: Array) -> tuple[Array, dict[str, Array]]:
    """Return codes and components of blocks of 256 values."""
    per = kind.block // kind.group
    shape = (sizes.rows, sizes.groups // per, per)
    scale, minimum = (one.reshape(shape) for one in _fit(kind, x, w, steps))
    n = F32(2**kind.scale_bits - 1) if kind.has_minimum else F32(2 ** (kind.scale_bits - 1))
    if kind.has_minimum:
        d, e = _half(scale.max(axis=-1) / n).astype(F32), _half(minimum.max(axis=-1) / n).astype(F32)
        low, high = F32(0), n
    else:
        d, e = _half(_largest(scale) / -n).astype(F32), np.zeros(shape[:-1], F32)
        low, high = -n, n - 1
    s = np.rint(np.clip(scale * _inverse(d)[..., None], low, high))
    m = np.rint(np.clip(minimum * _inverse(e)[..., None], low, high)) if kind.has_minimum else np.zeros_like(s)
    x, w = x.reshape(*shape, kind.group), w.reshape(*shape, kind.group)
    codes = _assigned(kind, x, d[..., None] * s, e[..., None] * m)
    d, e = _refitted(kind, _sums(x, w, codes), s, m, d, e)
    codes = _assigned(kind, x, d[..., None] * s, e[..., None] * m)
    flat = (sizes.rows, sizes.groups)
    found = {"scales": pack(s.reshape(flat), kind.scale_bits), "coarse": d.astype(np.float16)}
    if kind.has_minimum:
        found |= {"minima": pack(m.reshape(flat), kind.scale_bits)}
        found |= {"coarse": np.stack([d, e], axis=-1).astype(np.float16)}
    return codes, found


def _refitted(kind: Any, sums: Sums, s: Array, m: Array, d: Array, e: Array) -> tuple[Array, Array]:
    """Return d and e by least squares for these codes and integers; unchanged if there is no solution."""
    zero = np.zeros(d.shape, F32)
    aa, bb, ab, ax, bx = zero, zero, zero, zero, zero
    for g in range(s.shape[-1]):
        sg, mg = s[..., g], m[..., g]
        aa = aa + (sg * sg) * sums.qq[..., g]
        ax = ax + sg * sums.qx[..., g]
        ab = ab + (sg * mg) * sums.q[..., g]
        bb = bb + (mg * mg) * sums.w[..., g]
        bx = bx + mg * sums.x[..., g]
    if not kind.has_minimum:
        new = ax / aa
        return np.where((aa > 0) & (np.abs(new) <= LARGEST), _half(new).astype(F32), d), e
    determinant = aa * bb - ab * ab
    new_d, new_e = (ax * bb - ab * bx) / determinant, (ab * ax - aa * bx) / determinant
    solved = (determinant > 0) & (new_d > 0) & (new_d <= LARGEST) & (new_e >= 0) & (new_e <= LARGEST)
    return np.where(solved, _half(new_d).astype(F32), d), np.where(solved, _half(new_e).astype(F32), e)
