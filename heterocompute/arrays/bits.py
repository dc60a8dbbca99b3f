"""Codes of b bits in rows of bytes: code i of a row occupies bits i * b to i * b + b - 1, lowest bit first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["pack", "rows_at_once", "unpack"]


def rows_at_once(rows: int, values: int, block: int) -> int:
    """Return of how many rows to take some `block` values; all where a row has none, however many rows there are.

    Examples
    --------
    >>> rows_at_once(2**40, 16, 2**20), rows_at_once(2**40, 0, 2**20)
    (65536, 1099511627776)
    """
    return max(1, block // values if values else rows)


def unpack(packed: NDArray[np.uint8], bits: int, count: int) -> NDArray[Any]:
    """Return the first `count` codes of each row as unsigned integers.

    Parameters
    ----------
    packed : ndarray of uint8, (rows, row_bytes)
    bits : int
        1 to 8, 16, 24 or 32.
    count : int

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
    if bits > 8:
        parts = packed[:, : count * bits // 8].reshape(len(packed), count, bits // 8)
        wide = np.zeros(parts.shape[:2], np.uint32)
        for byte in range(bits // 8):
            wide |= parts[:, :, byte].astype(np.uint32) << np.uint32(8 * byte)
        return wide
    single = np.unpackbits(packed, axis=1, count=count * bits, bitorder="little")
    codes: NDArray[np.uint8] = np.packbits(single.reshape(len(packed), count, bits), axis=2, bitorder="little")
    return codes[:, :, 0]


def pack(codes: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Return rows of codes packed; the inverse of `unpack`.

    Parameters
    ----------
    codes : ndarray of unsigned integers, (rows, count)
    bits : int
        1 to 8, 16, 24 or 32.

    Returns
    -------
    ndarray of uint8, (rows, ceil(count * bits / 8))

    Examples
    --------
    >>> pack(np.array([[1, 2, 3]], np.uint8), 4)
    array([[33,  3]], dtype=uint8)
    """
    rows, count = codes.shape
    if bits >= 8:
        little = np.ascontiguousarray(codes, dtype="<u4").view(np.uint8).reshape(rows, count, 4)
        return np.ascontiguousarray(little[:, :, : bits // 8]).reshape(rows, count * bits // 8)
    single = np.unpackbits(codes.astype(np.uint8)[:, :, None], axis=2, count=bits, bitorder="little")
    return np.packbits(single.reshape(rows, count * bits), axis=1, bitorder="little")
