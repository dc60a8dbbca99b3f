"""Formats whose codes are entries of a table: NF4, Log and learned codebooks, sections 6 and 7 of the definitions."""

from __future__ import annotations

import numpy as np

from .compare import Mismatch, same
from .encoded import Encoded
from .exact import F32_MAX, divide32, float32, fma32, quotient, root_of_half
from .integers import codes_as_bytes
from .rows import Rows, absmax32, check_finite, check_float32, threshold

# QLoRA's levels, each as a float32
NF4_LEVELS = np.array(
    "-1 -0.6961928009986877 -0.5250730514526367 -0.39491748809814453 -0.28444138169288635 -0.18477343022823334 "
    "-0.09105003625154495 0 0.07958029955625534 0.16093020141124725 0.24611230194568634 0.33791524171829224 "
    "0.44070982933044434 0.5626170039176941 0.7229568362236023 1".split(),
    np.float32,
).astype(np.float64)
NF4_ZERO = 7
FEW = 200  # most values for which the optimal codebook is searched, in quadratic time


def nearest_level(values, levels):
    """Return the level nearest to each value, by midpoints in float64; ties and equal levels to the lower index."""
    found = np.searchsorted((levels[:-1] + levels[1:]) / 2, values, side="left")
    return np.searchsorted(levels, levels[found], side="left")


def encode_nf4(fmt, x, axis, clip) -> Encoded:
    check_finite(x)
    check_float32(x)
    rows = Rows(x.shape, axis, fmt.group)
    values = rows.split(x)
    scales = np.zeros(values.shape[:2], np.float32)
    # a scale of zero makes its group zero: codes 0, or with scales that are quantized once more the code of level 0
    codes = np.full(values.shape, NF4_ZERO if fmt.double else 0)
    for place in np.ndindex(*scales.shape):
        scales[place] = s = threshold(values[place][rows.real[place[1]]], clip, 4)
        if s > 0:
            codes[place] = nearest_level(quotient(values[place], s), NF4_LEVELS)
    units = NF4_LEVELS[codes]
    if not fmt.double:
        components = {"codes": codes_as_bytes(codes, 4), "scales": scales}
        return Encoded(rows, components, units, scales.astype(np.float64), grouped=True)
    k, t, m, decoded = quantized_scales(scales)
    components = {"codes": codes_as_bytes(codes, 4), "scales": k, "coarse": t, "mean": m}
    return Encoded(rows, components, units, decoded, grouped=True)


def quantized_scales(scales):
    """Return double quantized scales: 256 at a time in row-major order, to 8 bits around their mean."""
    flat = scales.reshape(-1)
    total = 0.0
    for s in flat.tolist():
        total += s
    m = np.float32(total / flat.size) if flat.size else np.float32(0)
    d = flat - m
    k = np.zeros(flat.size, np.int8)
    t = np.zeros(-(-flat.size // 256), np.float32)
    decoded = np.zeros(flat.size)
    for block in range(t.size):
        part = slice(256 * block, 256 * (block + 1))
        t[block] = divide32(absmax32(d[part]), 127)
        if t[block] > 0:
            k[part] = np.clip(np.rint(quotient(d[part], t[block])), -127, 127)
        decoded[part] = np.clip(fma32(k[part].astype(np.float32), t[block], m), 0, F32_MAX)
    return k.reshape(scales.shape), t, np.asarray(m, np.float32), decoded.reshape(scales.shape)


def encode_log(fmt, x, axis, clip) -> Encoded:
    check_finite(x)
    check_float32(x)
    rows = Rows(x.shape, axis, fmt.group)
    values = rows.split(x)
    zero = 2 ** (fmt.bits - 1) - 1  # the last exponent code
    powers = np.array([root_of_half(e, fmt.gamma) for e in range(zero)])
    between = np.array([root_of_half(2 * j + 1, 2 * fmt.gamma) for j in range(zero - 1)])
    scales = np.zeros(values.shape[:2], np.float32)
    codes = np.zeros(values.shape, np.int64)
    units = np.zeros(values.shape)
    for place in np.ndindex(*scales.shape):
        scales[place] = s = threshold(values[place][rows.real[place[1]]], clip, fmt.bits)
        if s == 0:
            units[place] = powers[0]
            continue
        q = np.abs(quotient(values[place], s))
        # e = how many thresholds lie above the quotient; one that is equal belongs to the larger magnitude
        e = (q[:, None] < between[None, :]).sum(axis=1)
        gone = q < powers[-1] / 2
        minus = np.signbit(values[place])
        codes[place] = np.where(gone, zero, e) + minus * (zero + 1)
        units[place] = np.where(gone, 0.0, powers[e]) * np.where(minus, -1, 1)
    components = {"codes": codes_as_bytes(codes, fmt.bits), "scales": scales}
    scale = scales.astype(np.float64)
    if fmt.group is None:
        return Encoded(rows, components, units, outer=scale[:, 0], signed_zeros=True)
    return Encoded(rows, components, units, scale=scale, grouped=True, signed_zeros=True)


def normalised(fmt, x, axis):
    """Return the values from which codebooks are learned, (rows, groups, size), and the scales or None."""
    check_finite(x)
    check_float32(x)
    rows = Rows(x.shape, axis, fmt.group)
    values = rows.split(x)
    if fmt.group is None:
        return rows, values, None
    scales = np.abs(values).max(axis=2, initial=0).astype(np.float32)
    out = np.zeros(values.shape)
    for place in np.ndindex(*scales.shape):
        if scales[place] > 0:
            out[place] = float32(quotient(values[place], scales[place]))
    return rows, out, scales


def least_cost(values, weights, k: int) -> float:
    """Return the least weighted sum of squares of k clusters, by plain dynamic programming over all splits."""
    order = np.argsort(values, kind="stable")
    v, w = values[order] - (values.mean() if values.size else 0), weights[order]
    n = v.size
    p0, p1, p2 = (np.concatenate([[0], np.cumsum(w * v**power)]) for power in (0, 1, 2))
    best = np.where(np.arange(n + 1) > 0, np.inf, 0.0)
    for _ in range(k):
        following = best.copy()  # an empty cluster costs nothing
        for j in range(1, n + 1):
            weight, mean = p0[j] - p0[:j], p1[j] - p1[:j]
            with np.errstate(all="ignore"):
                cost = (p2[j] - p2[:j]) - np.where(weight > 0, mean**2 / weight, 0)
            following[j] = min(following[j], (best[:j] + np.maximum(cost, 0)).min())
        best = following
    return float(best[n])


def check_codebook(fmt, x, axis, components, weights=None) -> Encoded:
    """Check a learned codebook: scales, order, optimal cost, nearest codes.

    The codebook itself is not compared, because equal costs have several solutions.
    """
    rows, values, scales = normalised(fmt, x, axis)
    codebook = components["codebook"]
    k = 2**fmt.bits
    same("codebook", codebook, np.sort(codebook.reshape((rows.rows, k) if fmt.per == "row" else (k,))))
    books = np.broadcast_to(codebook, (rows.rows, k)).astype(np.float64)
    codes = np.zeros(values.shape, np.int64)
    for row in range(rows.rows):
        codes[row] = nearest_level(values[row], books[row])
        if scales is not None:
            codes[row][scales[row] == 0] = 0
    expected = {"codes": codes_as_bytes(codes, fmt.bits), "codebook": codebook}
    if scales is not None:
        expected["scales"] = scales
    units = np.stack([books[r][codes[r]] for r in range(rows.rows)]) if rows.rows else np.zeros(values.shape)
    learned = values.astype(np.float32).astype(np.float64)
    weigh = np.ones(values.shape) if weights is None else rows.split(weights)
    live = np.broadcast_to(rows.real, values.shape)
    if scales is not None:
        live = live & (scales > 0)[:, :, None]
    for part in [slice(r, r + 1) for r in range(rows.rows)] if fmt.per == "row" else [slice(None)]:
        v, w, c = (a[part][live[part]] for a in (learned, weigh, units))
        if not 0 < v.size <= FEW:
            continue
        if not w.any():
            w = np.ones(w.shape)
        best, cost = least_cost(v, w, k), float((w * (v - c) ** 2).sum())
        # centroids are rounded to float32, and prefix sums of n terms cancel
        slack = float((w * np.spacing(np.abs(c).astype(np.float32)).astype(np.float64) ** 2).sum())
        slack += 4 * v.size * 2.0**-53 * float((w * (v - v.mean()) ** 2).sum())
        if not cost <= best + slack:
            raise Mismatch(f"codebook: cost {cost!r}, the least is {best!r}")
    scale = None if scales is None else scales.astype(np.float64)
    return Encoded(rows, expected, units, scale, grouped=scales is not None)
