"""N:M patterns as they are defined, in plain NumPy, for rows of runs (Mishra et al. 2021, arXiv 2104.08378, section 3).

Of every M values the N of largest score are kept, compared as float32; among equals those of lower index. A run is
padded to whole blocks with values that are never kept. The kept values are stored in order, with their positions in the
block, ceil(log2 M) bits each. A format before a pattern rounds the kept values of the array itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def keep(
    x: NDArray[Any], scores: NDArray[Any] | None, n: int, m: int
) -> tuple[NDArray[Any], NDArray[np.uint8], NDArray[np.uint8]]:
    """Return kept values, positions and packed positions.

    Parameters
    ----------
    x, scores : ndarray of floats, (rows, runs, length)
        None scores by magnitude.
    n, m : int

    Returns
    -------
    values : ndarray of x's dtype, (rows, runs * blocks * n)
    positions : ndarray of uint8, of the same shape
    metadata : ndarray of uint8, (rows, bytes)

    Examples
    --------
    >>> keep(np.float32([[[1, -4, 3, 2, 5]]]), None, 2, 4)[0]
    array([[-4.,  3.,  5.,  0.]], dtype=float32)
    """
    rows, runs, length = x.shape
    fill = ((0, 0), (0, 0), (0, -length % m))
    with np.errstate(over="ignore"):
        score = (np.abs(x) if scores is None else scores).astype(np.float32)
    score = np.pad(score, fill, constant_values=-np.inf)
    blocks = (rows, score.size // max(rows * m, 1), m)
    score, values = score.reshape(blocks), np.pad(x, fill).reshape(blocks)
    i, j = np.arange(m)[:, None], np.arange(m)[None, :]
    other, own = score[..., None, :], score[..., :, None]
    better = ((other > own) | ((other == own) & (j < i))).sum(axis=-1)
    mask = better < n  # value i stays when fewer than N others beat it
    positions = np.broadcast_to(np.arange(m), blocks)[mask].reshape(rows, -1).astype(np.uint8)
    bits = (m - 1).bit_length()
    single = positions[..., None] >> np.arange(bits) & 1
    metadata = np.packbits(single.reshape(rows, -1).astype(np.uint8), axis=1, bitorder="little")
    return values[mask].reshape(rows, -1), positions, metadata


def scatter(
    values: NDArray[np.float32], positions: NDArray[np.uint8], n: int, m: int, runs: int, length: int
) -> NDArray[np.float32]:
    """Return rows of kept values with zeros between them; the inverse of `keep`.

    Parameters
    ----------
    values : ndarray, (rows, kept)
    positions : ndarray of uint8, (rows, kept)
    n, m, runs, length : int

    Returns
    -------
    ndarray, (rows, runs, length)

    Examples
    --------
    >>> scatter(np.float32([[5, 7]]), np.uint8([[1, 3]]), 2, 4, 1, 4)
    array([[[0., 5., 0., 7.]]], dtype=float32)
    """
    rows, padded = len(values), -(-length // m) * m
    blocks = np.zeros((rows, runs * padded // m, m), values.dtype)
    shape = (rows, runs * padded // m, n)
    np.put_along_axis(blocks, positions.reshape(shape).astype(np.int64), values.reshape(shape), axis=2)
    return blocks.reshape(rows, runs, padded)[..., :length]


def wanda(w: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return |w_ij| times the norm of feature j (Sun et al., "A Simple and Effective Pruning Approach", equation 1).

    Parameters
    ----------
    w : ndarray, (outputs, inputs)
    x : ndarray, (samples, inputs)

    Returns
    -------
    ndarray of w's shape

    Examples
    --------
    >>> wanda(np.float64([[1, -2]]), np.float64([[3, 0], [4, 1]]))
    array([[5., 2.]])
    """
    scores: NDArray[np.float64] = np.abs(w) * np.sqrt((x * x).sum(axis=0))
    return scores


def sparsegpt(w: NDArray[np.float64], hessian: NDArray[np.float64], n: int, m: int) -> NDArray[np.float64]:
    """Prune column after column; each error is made good by the columns behind it.

    Frantar and Alistarh, "SparseGPT", ICML 2023, algorithm 1, with the whole matrix as one block. At column j, a
    multiple of m, the mask of the next m is chosen by w_j^2 / [H^-1]_jj^2 of the Cholesky factor's diagonal.

    Parameters
    ----------
    w : ndarray, (outputs, inputs)
    hessian : ndarray, (inputs, inputs)
        Positive definite.
    n, m : int

    Returns
    -------
    ndarray of w's shape

    Examples
    --------
    >>> sparsegpt(np.float64([[1, -4, 3, 2]]), np.eye(4), 2, 4)
    array([[ 0., -4.,  3.,  0.]])
    """
    w = w.copy()
    upper = np.linalg.cholesky(np.linalg.inv(hessian)).T  # H^-1 = U^T U
    for j in range(w.shape[1]):
        if j % m == 0:
            score = (w[:, j : j + m] / np.diag(upper)[j : j + m]) ** 2
            order = np.argsort(-score, axis=1, kind="stable")[:, n:]
            gone = np.zeros(score.shape, np.bool_)
            np.put_along_axis(gone, order, True, axis=1)
        error = np.where(gone[:, j % m], w[:, j] / upper[j, j], 0.0)
        w[:, j:] -= error[:, None] * upper[j, j:]
        w[gone[:, j % m], j] = 0.0
    return w
