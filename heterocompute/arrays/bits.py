"""Codes of b bits in rows of bytes: code i of a row occupies bits i * b to i * b + b - 1, lowest bit first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _heterocompute as _core
from ..base import runtime

ROWS, HIGH_FIRST, WORD_COLUMNS, TURNED, AWQ = range(5)  # hc_codes_kind


def moved(
    source: tuple[NDArray[Any], int, int],
    target: tuple[NDArray[Any], int, int],
    shape: tuple[int, int],
    flip: int = 0,
) -> NDArray[Any]:
    """Copy a matrix of packed codes to another place in memory, and return the target.

    Parameters
    ----------
    source, target : (ndarray, int, int)
        A contiguous array of two dimensions, bits of a code (1 to 8), and how the codes lie: `ROWS`, little end first;
        `HIGH_FIRST`, the even one of two in the high half of a byte; `WORD_COLUMNS`, words of 4 bytes, a column of them
        for each row; `TURNED`, a row of memory for each column; `AWQ`, the same in the order of AWQ. What is turned on
        one side is `ROWS` on the other.
    shape : (int, int)
        Rows and columns of the matrix.
    flip : int
        Bits that change in each code.

    Examples
    --------
    >>> words = np.array([[0x21, 0x43]], np.int32)  # two rows of 8 codes, a word each
    >>> moved((words, 4, WORD_COLUMNS), (np.empty((2, 2), np.uint8), 4, ROWS), (2, 4), flip=8)
    array([[169, 136],
           [203, 136]], dtype=uint8)
    """
    array, bits, kind = source
    if 0 not in shape:  # for any number of rows without codes
        _core.move_codes(runtime.run(), *shape, flip, (np.ascontiguousarray(array), bits, kind), target)
    return target[0]


def rows_per_chunk(rows: int, values: int, block: int) -> int:
    """Return the number of rows for about `block` values; all rows if a row is empty.

    Examples
    --------
    >>> rows_per_chunk(2**40, 16, 2**20), rows_per_chunk(2**40, 0, 2**20)
    (65536, 1099511627776)
    """
    return max(1, block // values if values else rows)


def unpack(packed: NDArray[np.uint8], bits: int, count: int) -> NDArray[Any]:
    """Return the first `count` codes of each row as unsigned integers.

    Parameters
    ----------
    packed : ndarray of uint8, (rows, row_bytes)
    bits : int
        1 to 16, 24 or 32.

    Returns
    -------
    ndarray of uint8 or uint32, (rows, count)

    Examples
    --------
    >>> unpack(np.array([[0x21, 0x43]], np.uint8), 4, 3)
    array([[1, 2, 3]], dtype=uint8)
    """
    if bits == 8:
        return packed[:, :count]
    if bits > 8 and bits % 8:
        first = np.arange(count) * bits
        padded = np.pad(packed, ((0, 0), (0, 2)))
        wide = padded[:, first >> 3].astype(np.uint32)
        for byte in (1, 2):
            wide |= padded[:, (first >> 3) + byte].astype(np.uint32) << np.uint32(8 * byte)
        return (wide >> (first & 7).astype(np.uint32)) & np.uint32((1 << bits) - 1)
    if bits > 8:
        parts = packed[:, : count * bits // 8].reshape(len(packed), count, bits // 8)
        wide = np.zeros(parts.shape[:2], np.uint32)
        for byte in range(bits // 8):
            wide |= parts[:, :, byte].astype(np.uint32) << np.uint32(8 * byte)
        return wide
    return moved((packed, bits, ROWS), (np.empty((len(packed), count), np.uint8), 8, ROWS), (len(packed), count))


def pack(codes: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Return rows of codes packed; the inverse of `unpack`.

    Parameters
    ----------
    codes : ndarray of unsigned integers, (rows, count)
    bits : int
        1 to 16, 24 or 32.

    Returns
    -------
    ndarray of uint8, (rows, ceil(count * bits / 8))

    Examples
    --------
    >>> pack(np.array([[1, 2, 3]], np.uint8), 4)
    array([[33,  3]], dtype=uint8)
    """
    rows, count = codes.shape
    if bits == 8:
        return np.ascontiguousarray(codes, dtype=np.uint8)
    if bits > 8 and bits % 8:
        single = (np.asarray(codes, np.uint32)[:, :, None] >> np.arange(bits, dtype=np.uint32)) & np.uint32(1)
        return np.packbits(single.astype(np.uint8).reshape(rows, count * bits), axis=1, bitorder="little")
    if bits > 8:
        little = np.ascontiguousarray(codes, dtype="<u4").view(np.uint8).reshape(rows, count, 4)
        return np.ascontiguousarray(little[:, :, : bits // 8]).reshape(rows, count * bits // 8)
    packed = np.empty((rows, -(-count * bits // 8)), np.uint8)
    return moved((codes.astype(np.uint8, copy=False), 8, ROWS), (packed, bits, ROWS), (rows, count))
