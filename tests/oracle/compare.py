"""Bitwise comparison, with a description of the first difference."""

from __future__ import annotations

import numpy as np


class Mismatch(AssertionError):
    """The package and the oracle differ."""


def same(what: str, got, wanted, free=None) -> None:
    """Raise Mismatch unless dtype, shape and bits are the same; all NaN are equal, elements in `free` are ignored."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        raise Mismatch(f"{what}: got {got.dtype}{got.shape}, the oracle {wanted.dtype}{wanted.shape}")
    if wanted.dtype.kind == "f":
        bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[wanted.dtype.itemsize]
        left, right = np.ascontiguousarray(got), np.ascontiguousarray(wanted)
        differ = (left.view(bits) != right.view(bits)) & ~(np.isnan(left) & np.isnan(right))
    else:
        differ = got != wanted
    report(what, got, wanted, differ if free is None else differ & ~free)


def within(what: str, got, wanted, allowed) -> None:
    """Raise Mismatch if a result is further from the exact value than the bound."""
    with np.errstate(invalid="ignore"):
        report(what, got, wanted, ~(np.abs(np.asarray(got, np.float64) - wanted) <= allowed))


def report(what: str, got, wanted, differ) -> None:
    if differ.any():
        index = tuple(int(i) for i in np.argwhere(differ)[0])
        raise Mismatch(
            f"{what}: {np.count_nonzero(differ)} of {differ.size} differ, first at {index}: "
            f"got {got[index]!r}, the oracle {wanted[index]!r}"
        )


def unpack(packed, bits: int, count: int) -> np.ndarray:
    """Return (rows, row_bytes) as (rows, count) codes."""
    if packed.shape[0] == 0 or bits == 0:
        return np.zeros((packed.shape[0], count), np.int64)
    flat = np.unpackbits(packed, axis=1, bitorder="little")[:, : bits * count].reshape(packed.shape[0], count, bits)
    return (flat.astype(np.int64) << np.arange(bits)).sum(axis=2)
