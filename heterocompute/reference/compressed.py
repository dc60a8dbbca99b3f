"""Compressed weights in plain NumPy, as defined: EIE's storage and machine, and products of stored values.

Han et al., "EIE: Efficient Inference Engine on Compressed Deep Neural Network", ISCA 2016 (arXiv 1602.01528), section 3
for the storage, section 4 for the machine. An entry is a byte: low 4 bits the number of its value in a codebook of 16,
high 4 bits the zeros before it.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from .arithmetic import fma

Floats = NDArray[np.float32]


def eie_encode(w: Floats, codebook: Floats, elements: int) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Return pointers and entries.

    Parameters
    ----------
    w : ndarray of float32, (rows, columns)
    codebook : ndarray of float32, (16,)
        Number 0 is 0, the others ascend.
    elements : int
        Element p has the rows p, p + elements, ...

    Returns
    -------
    pointers : ndarray of uint32, (elements, columns + 1)
    entries : ndarray of uint8

    Examples
    --------
    >>> import numpy as np
    >>> column = np.float32([0, 0, 1, 2, *18 * [0], 3])[:, None]
    >>> pointers, entries = eie_encode(column, np.float32([0, 1, 2, *13 * [3]]), 1)
    >>> pointers.tolist(), (entries & 15).tolist(), (entries >> 4).tolist()
    ([[0, 4]], [1, 2, 0, 3], [2, 0, 15, 2])
    """
    middle = (codebook[1:-1].astype(np.float64) + codebook[2:]) / 2
    pointers = np.zeros((elements, w.shape[1] + 1), np.uint32)
    entries: list[int] = []
    for p in range(elements):
        before = len(entries)
        for j in range(w.shape[1]):
            run = 0
            for value in w[p::elements, j]:
                if value == 0:
                    run += 1
                    continue
                while run > 15:
                    entries.append(15 << 4)
                    run -= 16
                entries.append(run << 4 | 1 + int(np.searchsorted(middle, np.float64(value), side="left")))
                run = 0
            pointers[p, j + 1] = len(entries) - before
    return pointers, np.array(entries, np.uint8)


def _columns(pointers: NDArray[np.uint32], entries: NDArray[np.uint8]) -> list[list[NDArray[np.uint8]]]:
    """Return the entries of each element and column."""
    starts = np.concatenate([[0], np.cumsum(pointers[:, -1].astype(np.int64))])
    return [
        [entries[start + own[j] : start + own[j + 1]] for j in range(len(own) - 1)]
        for start, own in zip(starts, pointers.astype(np.int64), strict=False)
    ]


def eie_decode(rows: int, codebook: Floats, pointers: NDArray[np.uint32], entries: NDArray[np.uint8]) -> Floats:
    """Return the matrix; the inverse of `eie_encode`.

    Parameters
    ----------
    rows : int
    codebook, pointers, entries : ndarray

    Returns
    -------
    ndarray of float32, (rows, columns)
    """
    w = np.zeros((rows, pointers.shape[1] - 1), np.float32)
    for p, columns in enumerate(_columns(pointers, entries)):
        for j, found in enumerate(columns):
            place = np.cumsum((found >> 4).astype(np.int64) + 1) - 1
            w[p + len(pointers) * place, j] = codebook[found & 15]
    return w


def eie_multiply(
    rows: int, codebook: Floats, pointers: NDArray[np.uint32], entries: NDArray[np.uint8], x: Floats
) -> Floats:
    """Return the product with one vector: columns in ascending order, without columns whose x is zero.

    Parameters
    ----------
    rows : int
    codebook, pointers, entries : ndarray
    x : ndarray of float32, (columns,)

    Returns
    -------
    ndarray of float32, (rows,)
        y = fma(value, x_j, y) from +0 over the entries of a row, those that pad included, as in the paper; but they
        meet no x that is not finite.
    """
    y = np.zeros(rows, np.float32)
    for p, columns in enumerate(_columns(pointers, entries)):
        for j, found in enumerate(columns):
            if x[j] == 0:
                continue
            place = p + len(pointers) * (np.cumsum((found >> 4).astype(np.int64) + 1) - 1)
            code = found & 15
            if not np.isfinite(x[j]):
                place, code = place[code > 0], code[code > 0]
            y[place] = fma(codebook[code], x[j], y[place])
    return y


def eie_cycles(
    pointers: NDArray[np.uint32], entries: NDArray[np.uint8], active: NDArray[np.bool_], depth: int
) -> tuple[int, int, int, NDArray[np.int64], int]:
    """Run the machine cycle by cycle.

    In each cycle, from the state at its begin: the next active column is put into the queues of all elements unless one
    of them holds `depth`; each element takes one entry of the column at the head of its queue, and drops the column
    with its last entry. A column without entries is dropped in the cycle that finds it so.

    Parameters
    ----------
    pointers, entries : ndarray
    active : ndarray of bool, (columns,)
        Whose activation is not zero.
    depth : int

    Returns
    -------
    cycles, broadcasts, stalls, busy, padding
        As of `heterocompute.EIELoad`.

    Examples
    --------
    >>> import numpy as np
    >>> pointers, entries = eie_encode(np.float32([[1, 1], [0, 1]]), np.float32([0, *15 * [1]]), 2)
    >>> eie_cycles(pointers, entries, np.array([True, True]), 8)
    (3, 2, 0, array([2, 1]), 0)
    """
    columns = _columns(pointers, entries)
    waiting = deque(int(j) for j in np.flatnonzero(active))
    broadcasts, stalls, cycles, padding = len(waiting), 0, 0, 0
    queues: list[deque[deque[int]]] = [deque() for _ in columns]
    busy = np.zeros(len(columns), np.int64)
    while waiting or any(queues):
        has_room = all(len(queue) < depth for queue in queues)
        for p, queue in enumerate(queues):
            if not queue:
                continue
            if queue[0]:
                padding += queue[0].popleft() & 15 == 0
                busy[p] += 1
            if not queue[0]:
                queue.popleft()
        if waiting and has_room:
            j = waiting.popleft()
            for p, queue in enumerate(queues):
                queue.append(deque(int(entry) for entry in columns[p][j]))
        elif waiting:
            stalls += 1
        cycles += 1
    return cycles, broadcasts, stalls, busy, padding


def csr_chain(x: Floats, starts: NDArray[np.int64], indices: NDArray[np.int32], values: Floats) -> Floats:
    """Return x @ w.T for many vectors: one chain a sum, over the stored values of a row in order.

    Parameters
    ----------
    x : ndarray of float32, (vectors, columns)
    starts, indices, values : ndarray
        Stored values ``starts[i]`` to ``starts[i + 1]`` are those of row i, their columns ascend.

    Returns
    -------
    ndarray of float32, (vectors, rows)
    """
    y = np.zeros((len(x), len(starts) - 1), np.float32)
    for i in range(y.shape[1]):
        for t in range(starts[i], starts[i + 1]):
            y[:, i] = fma(values[t], x[:, indices[t]], y[:, i])
    return y


def csr_spmv(x: Floats, starts: NDArray[np.int64], indices: NDArray[np.int32], values: Floats) -> Floats:
    """Return w @ x for one vector: stored value t of a row goes to sum t mod 8; they are folded i with i + 4, + 2, + 1.

    Parameters
    ----------
    x : ndarray of float32, (columns,)
    starts, indices, values : ndarray
        As of `csr_chain`.

    Returns
    -------
    ndarray of float32, (rows,)
    """
    y = np.zeros(len(starts) - 1, np.float32)
    for i in range(len(y)):
        sums = np.zeros(8, np.float32)
        for t in range(starts[i], starts[i + 1]):
            place = (t - starts[i]) % 8
            sums[place] = fma(values[t], x[indices[t]], sums[place])
        for half in (4, 2, 1):
            sums[:half] += sums[half : 2 * half]
        y[i] = sums[0]
    return y
