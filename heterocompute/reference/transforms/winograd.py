"""Winograd's convolution F(m x m, r x r): y = A^T [sum_c (G g G^T) * (B^T d B)] A; of 1 x 3 and 3 x 1 filters F(m, 3).

S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural
Networks", CVPR 2016. The matrices follow from the points by Toom-Cook (`matrices`), in exact fractions.

Stated order. A sum is a chain: the first term a product, then fma, indices ascending, terms of 0 of the matrices left
out. A transform goes down the columns, then across the rows, where the filter has more than one tap. Points come in
pairs +p, -p, whose rows share their terms: even + odd for +p, even - odd for -p, where even sums the terms of even
index. For A^T each pair has sum = x(+p) + x(-p) and difference = x(+p) - x(-p): y_i = x_0 (i = 0) + over the pairs p^i
times the one of i's parity + x_inf (i = m - 1). Over the channels: one chain from +0, c ascending (`conv2d`: phases).
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np

from ..arithmetic import Array, fma

Matrix = list[list[Fraction]]
PHASES = {1: [(0, 0)], 2: [(0, 1), (0, 0), (1, 0), (1, 1)]}
POINTS = [Fraction(0), *(Fraction(sign * p) for p in (1, 2, Fraction(1, 2)) for sign in (1, -1))]


def matrices(m: int, r: int = 3) -> tuple[Matrix, Matrix, Matrix]:
    """Return A^T (m, n), G (n, r), B^T (n, n) of F(m, r), n = m + r - 1: the first n - 1 points, and infinity.

    Row j of B^T holds the coefficients of prod over l != j of (x - p_l), row j of G is (1, p_j, p_j^2) / prod over
    l != j of (p_j - p_l), column j of A^T is p_j^i; of infinity B^T has the product of all, G and A^T their last power.
    A row of G that begins below 0 at point 0 changes sign, with that of B^T.

    Parameters
    ----------
    m, r : int
        Answers and taps of one dimension.

    Returns
    -------
    tuple of three lists of lists of Fraction
    """
    n = m + r - 1
    points = POINTS[: n - 1]
    a_t = [[p**i for p in points] + [Fraction(int(i == m - 1))] for i in range(m)]
    g, b_t = [], []
    for j, p in enumerate(points):
        others = points[:j] + points[j + 1 :]
        scale = Fraction(1)
        for other in others:
            scale *= p - other
        sign = -1 if p == 0 and scale < 0 else 1
        g.append([sign * p**i / scale for i in range(r)])
        b_t.append([sign * c for c in _polynomial(others)] + [Fraction(0)])
    g.append([Fraction(0)] * (r - 1) + [Fraction(1)])
    b_t.append(_polynomial(points))
    return a_t, g, b_t


_matrices = cache(matrices)  # for readers that do not change the lists


def _polynomial(roots: list[Fraction]) -> list[Fraction]:
    """Return the coefficients of prod (x - root), the lowest first."""
    found = [Fraction(1)]
    for root in roots:
        found = [low - root * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return found


def conv2d(x: Any, w: Any, m: int, padding: Any = 0, groups: int = 1, stride: int = 1) -> Array:
    """Convolve by tiles of m + 2 pixels: F(m x m, 3 x 3), stride 1, or F(m, 3) down or across, or stride 2 by phases.

    With stride 2 rows and columns of the image are two phases each, even and odd, as are those of a filter of 3, 5 or 7
    taps, and the answer is the sum of four convolutions, of a phase with a phase (J. Yepez, S.-B. Ko, "Stride 2 1-D,
    2-D, and 3-D Winograd for Convolutional Neural Networks", IEEE TVLSI 28(4), 2020). They have r = 2, 3 or 4 taps, or
    one less, a 0 of G's sums, and share the n = m + 2 points of their tiles. So the chain at a pair of points goes over
    the phases (even rows, odd columns), (even, even), (odd, even), (odd, odd), of each c ascending; at infinity down,
    or across, over those of even rows, or columns, alone, since the odd ones have no tap. Pixels that no answer sees
    are 0.

    Parameters
    ----------
    x : ndarray of float32, (N, C, H, W)
    w : ndarray of float32, (K, C / groups, 3, 3), (K, C / groups, 3, 1) or (K, C / groups, 1, 3)
        With stride 2 (K, C / groups, R, R), R 3, 5 or 7.
    m : int
        2, 4 or 6.
    padding : int, pair or two pairs
    groups : int
    stride : int
        1 or 2.

    Returns
    -------
    ndarray of float32, (N, K, P, Q)
    """
    x, w = np.asarray(x, np.float32), np.asarray(w, np.float32)
    x = _padded(x, padding)
    (images, _, height, width), (filters, depth, r, s) = x.shape, w.shape
    n, taps, (p, q) = m + 2, -(-max(r, s) // stride), ((height - r) // stride + 1, (width - s) // stride + 1)
    (high, rows), (wide, columns) = ((n, n - taps + 1) if of > 1 else (1, 1) for of in (r, s))
    down, across = -(-p // rows), -(-q // columns)
    parts = []
    for a, b in PHASES[stride]:
        d = _cut(x[:, :, : (p - 1) * stride + r, : (q - 1) * stride + s][:, :, a::stride, b::stride],
                 (down - 1) * rows + high, (across - 1) * columns + wide)  # fmt: skip
        g = _cut(w[:, :, a::stride, b::stride], min(r, taps), min(s, taps))
        v = _both([[d[:, :, i : i + (down - 1) * rows + 1 : rows, j : j + (across - 1) * columns + 1 : columns]
                    for j in range(wide)] for i in range(high)], _input, n)  # fmt: skip
        u = _both([[g[:, :, i, j] for j in range(g.shape[3])] for i in range(g.shape[2])], _filter, n)
        has = [(i < high - 1 or a == 0) and (j < wide - 1 or b == 0) for i in range(high) for j in range(wide)]
        parts.append((np.stack(v), np.stack(u), np.array(has)))
    y = np.zeros((images, filters, down * rows, across * columns), np.float32)
    each = filters // groups
    for group in range(groups):
        own = slice(group * each, (group + 1) * each)
        sums = np.zeros((high * wide, images, each, down, across), np.float32)
        for (v, u, has), c in itertools.product(parts, range(depth)):
            pixels, factors = v[has, :, group * depth + c], u[has][:, own, c]
            sums[has] = fma(pixels[:, :, None], factors[:, None, :, None, None], sums[has])
        answer = _both([[sums[i * wide + j] for j in range(wide)] for i in range(high)], partial(_output, taps), n)
        for i, values in enumerate(answer):
            y[:, own, i // columns :: rows, i % columns :: columns] = values
    return y[:, :, :p, :q]


def integers(m: int, r: int = 3) -> tuple[Array, Array, Array, Array]:
    """Return A^T, G', B^T and the diagonal of F, of integers: G = F G' / s, s = 2 for m = 2, 24 for m = 4.

    Rows of G' are (1, p, p^2), of infinity (0, 0, 1): 6272 = 49 * 128 is the most that filters of 8 bits become, as
    12800 is for images, and both fit 16 bits.

    Parameters
    ----------
    m, r : int
        2 or 4; 3.

    Returns
    -------
    tuple of four ndarrays of int64: (m, n), (n, r), (n, n), (n,)
    """
    a_t, g, b_t = matrices(m, r)
    s = {2: 2, 4: 24}[m]
    rows = [[p**i for i in range(r)] for p in POINTS[: m + r - 2]] + [[Fraction(0)] * (r - 1) + [Fraction(1)]]
    f = [s * next(a / b for a, b in zip(row, whole, strict=True) if b) for row, whole in zip(g, rows, strict=True)]
    return tuple(np.array([[int(v) for v in row] for row in of]) for of in (a_t, rows, b_t)) + (  # type: ignore[return-value]
        np.array([int(v) for v in f]),
    )


def conv2d_integers(x: Any, w: Any, m: int, padding: Any = 0, groups: int = 1) -> Array:
    """Convolve integers of 8 bits by F(m x m, 3 x 3), stride 1, as 32-bit arithmetic does: exactly.

    All is modulo 2^32: sums at a place, their products with F, A^T and A, and the division by s^2, which is one by 9
    (its inverse) where m is 4, and a shift of 2 or 6 bits. What is shifted out is lost at the top: an answer is right
    where it has 32 - 2 or 32 - 6 bits. So the channels are summed in blocks whose answers have no more, 3640 of them
    or 226, and those are added.

    Parameters
    ----------
    x : ndarray of integers, (N, C, H, W)
        -128 to 127, as w.
    w : ndarray of integers, (K, C / groups, 3, 3)
    m : int
        2 or 4.
    padding, groups
        As in `conv2d`.

    Returns
    -------
    ndarray of int64, (N, K, P, Q)
        The sums of the products.
    """
    a_t, g, b_t, f = integers(m)
    x, w = _padded(np.asarray(x, np.int64), padding), np.asarray(w, np.int64)
    n, shift, inverse = m + 2, {2: 2, 4: 6}[m], {2: 1, 4: pow(9, -1, 2**32)}[m]
    most = (2 ** (31 - shift) - 1) // (9 * 128 * 128) // 2 * 2
    p, q = x.shape[2] - 2, x.shape[3] - 2
    down, across = -(-p // m), -(-q // m)
    x = np.pad(x, ((0, 0), (0, 0), (0, down * m - p), (0, across * m - q)))
    d = np.lib.stride_tricks.sliding_window_view(x, (n, n), axis=(2, 3))[:, :, ::m, ::m]
    v, u = b_t @ d @ b_t.T, g @ w @ g.T
    assert np.abs(v).max(initial=0) < 2**15 and np.abs(u).max(initial=0) < 2**15
    each, depth = len(w) // groups, w.shape[1]
    y = np.zeros((len(x), len(w), down, across, m, m), np.int64)
    for k in range(len(w)):
        for first in range(0, depth, most):
            channels = slice(first, min(first + most, depth))
            of_image = v[:, k // each * depth : (k // each + 1) * depth][:, channels]
            sums = (of_image * u[k, channels][:, None, None]).sum(1) * np.outer(f, f)
            wrapped = (a_t @ sums @ a_t.T * inverse).astype(np.uint32).astype(np.int32)
            y[:, k] += wrapped >> shift
    found: Array = y.transpose(0, 1, 2, 4, 3, 5).reshape(len(x), len(w), down * m, across * m)[:, :, :p, :q]
    return found


def bound(x: Any, w: Any, m: int, padding: Any = 0, stride: int = 1) -> Array:
    """Return how far `conv2d` may be from the exact answer, value by value.

    Every rounding is relative, at most u = 2^-24, to a partial result whose magnitude the same transforms of magnitudes
    bound: |A^T| [sum_c (|G| |g| |G^T|) * (|B^T| |d| |B|)] |A|. On the way of a value there are at most C roundings in
    the chain over channels, 4 C of all phases with stride 2, n in each of the two sums of B^T and of A^T, r + 2 in each
    of those of G, whose values are rounded too: the answer is off by at most gamma = N u / (1 - N u) of that, N the
    number of all.

    Parameters
    ----------
    x, w, m, padding, stride
        As in `conv2d`, groups 1.

    Returns
    -------
    ndarray of float64, (N, K, P, Q)
    """
    x, w = np.abs(_padded(np.asarray(x, np.float64), padding)), np.abs(np.asarray(w, np.float64))
    (r, s), n = w.shape[2:], m + 2
    taps, p, q = -(-max(r, s) // stride), (x.shape[2] - r) // stride + 1, (x.shape[3] - s) // stride + 1
    a_t, g, b_t = (np.abs(np.array(matrix, np.float64)) for matrix in matrices(n - taps + 1, taps))
    of_rows, of_columns = ((a_t, g, b_t) if of > 1 else (np.ones((1, 1)),) * 3 for of in (r, s))
    (rows, high), (columns, wide) = of_rows[0].shape, of_columns[0].shape
    down, across = -(-p // rows), -(-q // columns)
    y = np.zeros((len(x), len(w), down, rows, across, columns))
    x = x[:, :, : (p - 1) * stride + r, : (q - 1) * stride + s]
    for a, b in PHASES[stride]:
        d = _cut(x[:, :, a::stride, b::stride], (down - 1) * rows + high, (across - 1) * columns + wide)
        windows = np.lib.stride_tricks.sliding_window_view(d, (high, wide), axis=(2, 3))[:, :, ::rows, ::columns]
        v = np.einsum("ih,nctuhw,jw->nctuij", of_rows[2], windows, of_columns[2])
        u = np.einsum("ir,kcrs,js->kcij", of_rows[1], _cut(w[:, :, a::stride, b::stride], min(r, taps), min(s, taps)),
                      of_columns[1])  # fmt: skip
        y += np.einsum("pi,nktuij,qj->nktpuq", of_rows[0], np.einsum("nctuij,kcij->nktuij", v, u), of_columns[0])
    roundings = stride**2 * w.shape[1] + ((r > 1) + (s > 1)) * (n + taps + 2 + n)
    gamma = roundings * 2.0**-24 / (1 - roundings * 2.0**-24)
    found: Array = gamma * y.reshape(*y.shape[:2], down * rows, across * columns)[:, :, :p, :q]
    return found


def _cut(x: Array, rows: int, columns: int) -> Array:
    """Return this many rows and columns of x, with zeros beyond its edges."""
    x = x[:, :, :rows, :columns]
    return np.pad(x, ((0, 0), (0, 0), (0, rows - x.shape[2]), (0, columns - x.shape[3])))


def _padded(x: Array, padding: Any) -> Array:
    sides = (padding, padding) if isinstance(padding, int) else padding
    around = [(n, n) if isinstance(n, int) else tuple(n) for n in sides]
    return np.pad(x, ((0, 0), (0, 0), *around))


def _both(x: list[list[Array]], transform: Any, n: int) -> list[Array]:
    """Transform down the columns, then across the rows, of more than one value; the answer row after row."""
    down = [transform(list(column), n) if len(x) > 1 else list(column) for column in zip(*x, strict=True)]
    across = (transform(list(row), n) if len(row) > 1 else list(row) for row in zip(*down, strict=True))
    return [value for row in across for value in row]


def _chain(row: list[Fraction], x: list[Array], indices: range) -> Array:
    terms = [(np.float32(row[i]), x[i]) for i in indices if row[i] != 0]
    total: Array = terms[0][0] * terms[0][1]
    for factor, value in terms[1:]:
        total = fma(np.broadcast_to(factor, value.shape), value, total)
    return total


def _pairs(matrix: Matrix, x: list[Array], first: Array, last: Array) -> list[Array]:
    found = [first]
    for row in matrix[1:-1:2]:
        even, odd = (_chain(row, x, range(parity, len(x), 2)) for parity in (0, 1))
        found += [even + odd, even - odd]
    return [*found, last]


def _input(x: list[Array], n: int) -> list[Array]:
    b_t = _matrices(n - 2)[2]
    whole = range(len(x))
    return _pairs(b_t, x, _chain(b_t[0], x, whole), _chain(b_t[-1], x, whole))


def _filter(x: list[Array], n: int) -> list[Array]:
    g = _matrices(n - len(x) + 1, len(x))[1]
    return _pairs(g, x, _chain(g[0], x, range(len(x))), x[-1])


def _output(taps: int, x: list[Array], n: int) -> list[Array]:
    pairs = [(x[i] + x[i + 1], x[i] - x[i + 1]) for i in range(1, n - 1, 2)]
    found, m = [], n - taps + 1
    for i in range(m):
        y = x[0] + pairs[0][0] if i == 0 else pairs[0][i % 2]
        for pair, p in zip(pairs[1:], POINTS[3::2], strict=False):
            value = pair[i % 2]
            y = fma(np.broadcast_to(np.float32(p**i), value.shape), value, y)
        found.append(y + x[-1] if i == m - 1 else y)
    return found
