"""Convolution by the Fourier transform of tiles: y = F^-1 [sum_c F(d) conj(F(g))], overlap-save.

A. V. Oppenheim, R. W. Schafer, Discrete-Time Signal Processing, section 8.7: in a circular correlation of height x
width values, those without a tap that wraps around are outputs; tiles overlap by the filter's size - 1.
M. Mathieu, M. Henaff, Y. LeCun, "Fast Training of Convolutional Networks through FFTs", ICLR 2014.

`conv2d` states the order of every sum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..arithmetic import Array, fma

Pair = tuple[int, int]
SIZES = (8, 16, 32, 64)
PARTS = 3


class Tile(NamedTuple):
    """The tiling of a convolution, in both dimensions.

    Attributes
    ----------
    size : pair of int
        Size of the transform.
    answers : pair of int
        Outputs of one tile.
    used : pair of int
        Pixels that the outputs of a tile need.
    """

    size: Pair
    answers: Pair
    used: Pair


def stored_values(height: int, width: int) -> int:
    """Return the number of stored complex values of a transformed tile.

    Returns
    -------
    int
    """
    return (width // 2 - 1) * height + 2 * (height // 2 + 1)


def tile_of(
    shape: tuple[int, ...], filters: tuple[int, ...], out: Pair, stride: Pair, dilation: Pair, groups: int
) -> Tile:
    """Return the tile of least work, counted in products, the smaller of equals.

    Parameters
    ----------
    shape, filters : tuple of int
        (N, C, H, W) and (K, C / groups, R, S).
    out : pair of int
        (P, Q).
    stride, dilation : pair of int
    groups : int

    Returns
    -------
    Tile

    Raises
    ------
    ValueError
        A filter extends over more than 64 pixels, or has too many channels.
    """
    reach = [(n - 1) * d + 1 for n, d in zip(filters[2:], dilation, strict=True)]
    depth, images = filters[1], shape[0]
    filled = -(-filters[0] // groups // 16) * 16
    found = []
    for height in (1, *SIZES) if filters[2] == 1 else SIZES:
        for width in SIZES:
            stored = stored_values(height, width)
            if reach[0] > height or reach[1] > width or stored > (128 << 20) // (PARTS * 32 * 4 * depth):
                continue
            answers = (height - reach[0]) // stride[0] + 1, (width - reach[1]) // stride[1] + 1
            tiles = images * (-(-out[0] // answers[0])) * (-(-out[1] // answers[1]))
            products = PARTS * stored
            passes = 1 if tiles * products * depth * 4 < 16 << 20 else products * depth * filled * 4 // (32 << 20) + 1
            channels = -(-depth // 16) * 16 * groups * passes
            values = TILE_VALUE * tiles * (channels + filled * groups) + FILTER_VALUE * depth * filled * groups
            work = products * tiles * depth * filled * groups + height * width * values
            found.append((work, height, width, answers))
    if not found:
        raise ValueError(f"conv2d: no tile for filters of {filters}")
    _, height, width, answers = min(found, key=lambda one: one[0])
    used = [(n - 1) * s + r for n, s, r in zip(answers, stride, reach, strict=True)]
    return Tile((height, width), answers, (used[0], used[1]))


TILE_VALUE, FILTER_VALUE = 60, 24  # the transform of a value takes as long as this many products


def transform(re: Array, im: Array) -> tuple[Array, Array]:
    """Return the Fourier transform along the first axis, sum over x of value x times exp(-2 pi i x k / n).

    Parameters
    ----------
    re, im : ndarray of float32, (n, ...)
        n is a power of 2, at most 64.

    Returns
    -------
    tuple of two ndarray
    """
    n = len(re)
    if n == 1:
        return re, im
    if n == 2:
        return np.stack([re[0] + re[1], re[0] - re[1]]), np.stack([im[0] + im[1], im[0] - im[1]])
    parts = [transform(re[j::4], im[j::4]) for j in range(4)]
    k = np.arange(n // 4).reshape(-1, *[1] * (re.ndim - 1))
    for j in (1, 2, 3):
        parts[j] = _turned(*parts[j], np.cos(2 * np.pi * j * k / n), np.sin(2 * np.pi * j * k / n))
    even, apart = _each(np.add, parts[0], parts[2]), _each(np.subtract, parts[0], parts[2])
    odd, difference = _each(np.add, parts[1], parts[3]), _each(np.subtract, parts[1], parts[3])
    first, third = _each(np.add, even, odd), _each(np.subtract, even, odd)
    second = apart[0] + difference[1], apart[1] - difference[0]
    fourth = apart[0] - difference[1], apart[1] + difference[0]
    whole = zip(first, second, third, fourth, strict=True)
    found_re, found_im = (np.concatenate(quarters) for quarters in whole)
    return found_re, found_im


def _turned(re: Array, im: Array, cosine: Array, sine: Array) -> tuple[Array, Array]:
    c, s = (np.broadcast_to(np.where(np.abs(v) < 1e-9, 0, v).astype(np.float32), re.shape) for v in (cosine, sine))
    turned = fma(s, im, c * re), fma(-s, re, c * im)
    return np.concatenate([re[:1], turned[0][1:]]), np.concatenate([im[:1], turned[1][1:]])


def _each(operation: Any, a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    return operation(a[0], b[0]), operation(a[1], b[1])


def _apart(re: Array, im: Array) -> tuple[Array, Array, Array, Array]:
    """Return twice the transforms of the real and of the imaginary parts of Z, along the first axis."""
    opposite = -np.arange(len(re))
    b_re, b_im = re[opposite], im[opposite]
    return re + b_re, im - b_im, im + b_im, b_re - re


def forward(x: Array) -> tuple[Array, Array]:
    """Return the stored half of twice the transforms of real tiles.

    Parameters
    ----------
    x : ndarray of float32, (height, width, ...)

    Returns
    -------
    tuple of two ndarray, (places, ...)
    """
    height, width = x.shape[:2]
    rows = x if height > 1 else np.concatenate([x, np.zeros_like(x)])
    z_re, z_im = transform(np.moveaxis(rows[::2], 1, 0), np.moveaxis(rows[1::2], 1, 0))  # (width, pairs, ...)
    parts = _apart(z_re, z_im)
    re, im = (np.stack(pair, axis=2)[1 : width // 2] for pair in (parts[::2], parts[1::2]))
    re, im = (p.reshape(p.shape[0], -1, *x.shape[2:])[:, :height] for p in (re, im))
    two_re, two_im = (np.stack([z_re[k], z_im[k]], axis=1).reshape(-1, *x.shape[2:])[:height] for k in (0, width // 2))
    two = _apart(*transform(two_re, two_im))
    stored = height // 2 + 1
    column_re, column_im = transform(np.moveaxis(re, 1, 0), np.moveaxis(im, 1, 0))
    columns = [np.moveaxis(c, 0, 1).reshape(-1, *x.shape[2:]) for c in (column_re, column_im)]
    return (
        np.concatenate([two[0][:stored], two[2][:stored], columns[0]]),
        np.concatenate([two[1][:stored], two[3][:stored], columns[1]]),
    )


def back(re: Array, im: Array, size: Pair, rows: range, step: int) -> Array:
    """Return rows of the real tiles of four times their transforms.

    Parameters
    ----------
    re, im : ndarray of float32, (places, ...)
    size : pair of int
    rows : range
        Which are wanted.
    step : int
        From a row to the next that is wanted.

    Returns
    -------
    ndarray of float32, (len(rows), width, ...)
    """
    height, width = size
    stored = height // 2 + 1
    a_re, a_im, b_re, b_im = re[:stored], im[:stored], re[stored : 2 * stored], im[stored : 2 * stored]
    two_re, two_im = np.zeros((2, height, *re.shape[1:]), np.float32)
    opposite = -np.arange(stored) % height
    two_re[opposite], two_im[opposite] = a_re + b_im, b_re - a_im
    two_re[:stored], two_im[:stored] = a_re - b_im, a_im + b_re
    two_im, two_re = transform(two_im, two_re)
    c_re, c_im = (np.moveaxis(c[2 * stored :].reshape(-1, height, *re.shape[1:]), 1, 0) for c in (re, im))
    c_im, c_re = transform(c_im, c_re)  # (height, width / 2 - 1, ...)
    c_re, c_im = (np.concatenate([c, np.zeros((step, *c.shape[1:]), np.float32)]) for c in (c_re, c_im))
    two_re, two_im = (np.concatenate([c, np.zeros((step, *c.shape[1:]), np.float32)]) for c in (two_re, two_im))
    found = np.zeros((len(rows), width, *re.shape[1:]), np.float32)
    for p in rows[::2]:
        a, b = p * step, min((p + 1) * step, height)
        z_re = np.concatenate([two_re[a][None], c_re[a] - c_im[b], two_im[a][None], (c_re[a] + c_im[b])[::-1]])
        z_im = np.concatenate([two_re[b][None], c_im[a] + c_re[b], two_im[b][None], (c_re[b] - c_im[a])[::-1]])
        y_im, y_re = transform(z_im, z_re)
        found[p] = y_re
        if p + 1 < len(rows):
            found[p + 1] = y_im
    scale: Array = found * np.float32(0.25 / (height * width))
    return scale


def conv2d(
    x: Array, w: Array, stride: Pair = (1, 1), padding: Any = ((0, 0), (0, 0)), dilation: Pair = (1, 1), groups: int = 1
) -> Array:
    """Convolve by the Fourier transform of tiles.

    Stated order. A transform of n values (`transform`) is four of n / 4, of each fourth value; the last is of 2 or of
    1. Complex values 1, 2 and 3 are turned by w^k, w^2k, w^3k, w = exp(-2 pi i / n), whose parts are rounded once to
    float32: re' = fma(sin, im, cos re), im' = fma(-sin, re, cos im), not for k = 0; then added in pairs, and the pairs.

    Two rows of pixels, 2 i and 2 i + 1, are the real and imaginary parts of one. Their transforms Z come apart as Z_k +
    conj Z_-k and -i (Z_k - conj Z_-k): twice what they are. Columns 0 and width / 2 have real values, undoubled, and
    are the parts of one column, that comes apart in the same way. Kept are rows 0 .. height / 2 of these two columns
    and all rows of columns 1 .. width / 2 - 1.

    A complex product is three chains over the channels, each from +0, c ascending: of (a, b) of an image and (c, e) of
    a filter k1 = (a + b) c, k2 = a (c + e), k3 = b (c - e), the sum is (k1 - k3, k1 - k2): with the filter's conjugate.

    The way back is the transform with parts exchanged: columns first, 0 and width / 2 as P = A + i B, conj A + i conj B
    in the opposite row; then rows p s and (p + 1) s, p even, s the stride, as one in the same way (the second is 0 past
    the tile); times 1 / (4 height width), a power of 2.

    Parameters
    ----------
    x : ndarray of float32, (N, C, H, W)
    w : ndarray of float32, (K, C / groups, R, S)
    stride, dilation : pair of int
    padding : two pairs of int
    groups : int

    Returns
    -------
    ndarray of float32, (N, K, P, Q)
    """
    tile, tiles, taps, out = _cut(x, w, stride, padding, dilation, groups)
    (images, depth), down, across = (len(x), w.shape[1]), tiles.shape[4], tiles.shape[5]
    a, b = forward(tiles)
    c, e = forward(taps)
    images_parts, filter_parts = (a + b, a, b), (c, c + e, c - e)
    y = np.zeros((images, len(w), down, tile.answers[0], across, tile.answers[1]), np.float32)
    for k in range(len(w)):
        first = k // (len(w) // groups) * depth
        sums = []
        for v, u in zip(images_parts, filter_parts, strict=True):
            total = np.zeros((len(v), images, down, across), np.float32)
            for channel in range(depth):
                total = fma(v[:, :, first + channel], u[:, k, channel, None, None, None], total)
            sums.append(total)
        found = back(sums[0] - sums[2], sums[0] - sums[1], tile.size, range(tile.answers[0]), stride[0])
        columns = found[:, : (tile.answers[1] - 1) * stride[1] + 1 : stride[1]]
        y[:, k] = columns.transpose(2, 3, 0, 4, 1)
    return y.reshape(images, len(w), down * tile.answers[0], -1)[:, :, : out[0], : out[1]]


def bound(x: Array, w: Array, stride: Pair = (1, 1), padding: Any = ((0, 0), (0, 0)), dilation: Pair = (1, 1)) -> Array:
    """Return how far `conv2d` may be from the exact answer, value by value.

    With u = 2^-24 a pass of a transform, in the 2-norm of all values, adds at most 3 u by turning (1 of w, 2 of the
    product) and 2 u by two sums, of what it makes: 5 u, which stays so much all the way, as passes are unitary but for
    a factor (Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2). A transform of a tile has
    passes(height) + passes(width) of those, and 2 sums that take rows and columns apart: T roundings. So F(d) and F(g)
    are off by at most T u |F(d)| and T u |F(g)|, and the inverse by T u |y|. The three products of (a, b) and (c, e)
    are at most sqrt 2 |a + i b| |c + i e|; two of them make a part of the sum, with C + 3 roundings each: at most
    4 (C + 3) u |a + i b| |c + i e|. By Cauchy and Schwarz and Parseval the error of a sum over frequencies is at most
    (2 T + 4 (C + 3)) u sum_c |d_c|_2 |g_c|_2, and by Young |y|_2 <= sum_c |d_c|_2 |g_c|_1. N u / (1 - N u) in place of
    N u bounds what is of higher order.

    Parameters
    ----------
    x, w, stride, padding, dilation
        As in `conv2d`, groups 1.

    Returns
    -------
    ndarray of float64, (N, K, P, Q)
    """
    tile, tiles, _, out = _cut(x, w, stride, padding, dilation, 1)
    unit, depth = 2.0**-24, w.shape[1]
    passes = sum(-(-(n.bit_length() - 1) // 2) for n in tile.size)
    roundings = [5 * passes + 2, 2 * (5 * passes + 2) + 4 * (depth + 3)]
    g = np.abs(w.astype(np.float64))
    norms = [roundings[0] * g.sum(axis=(2, 3)), roundings[1] * np.sqrt((g * g).sum(axis=(2, 3)))]
    size = np.sqrt((tiles.astype(np.float64) ** 2).sum(axis=(0, 1)))  # (N, C, down, across)
    of_tile = np.einsum("nctu,kc->nktu", size, norms[0] + norms[1]) * unit / (1 - sum(roundings) * unit)
    whole: Array = of_tile.repeat(tile.answers[0], axis=2).repeat(tile.answers[1], axis=3)[:, :, : out[0], : out[1]]
    return whole


def _cut(
    x: Array, w: Array, stride: Pair, padding: Any, dilation: Pair, groups: int
) -> tuple[Tile, Array, Array, Pair]:
    """Return the tile, pixels (height, width, N, C, down, across), taps (height, width, K, C) and the answer's size."""
    x, w = np.asarray(x, np.float32), np.asarray(w, np.float32)
    reach = [(n - 1) * d + 1 for n, d in zip(w.shape[2:], dilation, strict=True)]
    sizes = [(n + sum(p) - r) // s + 1 for n, p, r, s in zip(x.shape[2:], padding, reach, stride, strict=True)]
    out = sizes[0], sizes[1]
    tile = tile_of(x.shape, w.shape, out, stride, dilation, groups)
    counts = [-(-n // m) for n, m in zip(out, tile.answers, strict=True)]
    padded = np.pad(x, ((0, 0), (0, 0), *padding))
    padded = padded[:, :, : (out[0] - 1) * stride[0] + reach[0], : (out[1] - 1) * stride[1] + reach[1]]
    steps = [m * s for m, s in zip(tile.answers, stride, strict=True)]
    needed = [(n - 1) * step + used for n, step, used in zip(counts, steps, tile.used, strict=True)]
    missing = [(0, max(n - have, 0)) for n, have in zip(needed, padded.shape[2:], strict=True)]
    padded = np.pad(padded, ((0, 0), (0, 0), *missing))
    windows = np.lib.stride_tricks.sliding_window_view(padded, tile.used, axis=(2, 3))[:, :, :: steps[0], :: steps[1]]
    windows = windows[:, :, : counts[0], : counts[1]].transpose(4, 5, 0, 1, 2, 3)
    tiles = np.zeros((*tile.size, *windows.shape[2:]), np.float32)
    tiles[: tile.used[0], : tile.used[1]] = windows
    taps = np.zeros((*tile.size, *w.shape[:2]), np.float32)
    taps[: reach[0] : dilation[0], : reach[1] : dilation[1]] = w.transpose(2, 3, 0, 1)
    return tile, tiles, taps, out
