"""The arithmetic that every format and product shares, each rule in one function.

A scale is a float32, a quotient is a float64, a decoded value is rounded to float32 once and saturates.
Float sums of matmuls are chains of fused multiply-adds: fma(x, y, z) = float32(x * y + z), rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LARGEST = float(np.finfo(np.float32).max)


def checked_values(x: Array, name: str, legal: Callable[[Array], Array] | None = None) -> Array:
    """Return x as float64, which holds every float16, bfloat16, float32 and float64 exactly.

    Parameters
    ----------
    x : ndarray
        float16, bfloat16, float32 or float64, any shape.
    name : str
        What the messages call it, such as ``"quantize: w"``.
    legal : callable or None
        Which float64 values the format takes; None: all but NaN, infinity and what float32 rounds to infinity.

    Returns
    -------
    ndarray of float64

    Raises
    ------
    TypeError
        Another dtype.
    ValueError
        A value is invalid; the message has the index of the first in C order, NaN and infinity before too large values.
    """
    if x.dtype.kind != "f" and x.dtype.name != "bfloat16":
        raise TypeError(f"{name} has dtype {x.dtype}, expected a float type; convert with astype")
    values = x.astype(np.float64)
    with np.errstate(over="ignore"):
        illegal = ~(legal(values) if legal else np.isfinite(values.astype(np.float32)))
    index = _first(illegal & ~np.isfinite(values))
    if index is not None:
        raise ValueError(f"{name} has {values[index]} at index {_plain(index)}")
    index = _first(illegal)
    if index is not None:
        raise ValueError(f"{name} has {values[index]} at index {_plain(index)}, beyond float32's largest")
    return values


def quotient(x: Array, scale: Array) -> Array:
    """Return RNE(x / scale): one division in float64, then nearest, ties to even; 0 where the scale is 0.

    Parameters
    ----------
    x : ndarray of float64
    scale : ndarray
        float32, or float64 where a rule forms an exact product first. Broadcasts with x.

    Returns
    -------
    ndarray of float64
        Integers.
    """
    scale = np.broadcast_to(scale.astype(np.float64), x.shape)
    return np.rint(np.divide(x, scale, out=np.zeros(x.shape), where=scale != 0))


def decoded(exact: Array) -> Array:
    """Round exact float64 products to float32 once; finite ones beyond float32's largest saturate.

    Parameters
    ----------
    exact : ndarray of float64

    Returns
    -------
    ndarray of float32
    """
    return np.where(np.isinf(exact), exact, np.clip(exact, -LARGEST, LARGEST)).astype(np.float32)


def fma(x: Array, y: Array, z: Array) -> Array:
    """Return float32(x * y + z) with one rounding, for float32 arrays that broadcast.

    The product of two float32 is exact in float64. Its sum with z is rounded to odd (a sum that is not exact
    takes the neighbour with an odd last bit), and from there the rounding to float32 is the right one, as
    float64 has more than two bits in reserve (Boldo and Melquiond, "Emulation of a FMA and correctly rounded
    sums", IEEE Trans. Computers 2008).

    Parameters
    ----------
    x, y, z : ndarray of float32

    Returns
    -------
    ndarray of float32

    Examples
    --------
    >>> import numpy as np
    >>> from heterocompute.reference import fma
    >>> x = np.float32(1 + 2**-12)
    >>> float(fma(x, x, np.float32(-1 - 2**-11))) == 2**-24
    True
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        product = np.asarray(x).astype(np.float64) * np.asarray(y).astype(np.float64)
        addend = np.asarray(z).astype(np.float64)
        return _to_odd(*_exact_sum(product, addend)).astype(np.float32)


def fma64(x: Array, y: Array, z: Array) -> Array:
    """Return x * y + z with one rounding, for float64 arrays that broadcast.

    The product is p + q exactly (Dekker), and of p + q + z all but the largest part is rounded to odd (Boldo and
    Melquiond, as above). True unless something leaves the range of normal float64.

    Parameters
    ----------
    x, y, z : ndarray of float64

    Returns
    -------
    ndarray of float64

    Examples
    --------
    >>> import numpy as np
    >>> from heterocompute.reference.arithmetic import fma64
    >>> x = np.float64(1 + 2**-30)
    >>> float(fma64(x, x, np.float64(-1 - 2**-29))) == 2**-60
    True
    """
    x, y, z = (np.asarray(one, np.float64) for one in (x, y, z))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        product = x * y
        (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
        rest = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
        addend, small = _exact_sum(z, rest)
        total, left = _exact_sum(product, addend)
        return np.asarray(total + _to_odd(*_exact_sum(small, left)))


def _halves(x: Array) -> tuple[Array, Array]:
    """Return two numbers of at most 26 bits whose sum is x (Veltkamp)."""
    wide = x * (2.0**27 + 1)
    high = wide - (wide - x)
    return high, x - high


def _exact_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """Return the rounded sum and its error (Knuth)."""
    total = np.asarray(x + y)
    back = total - x
    return total, np.asarray((x - (total - back)) + (y - back))


def _to_odd(total: Array, error: Array) -> Array:
    """Return a sum rounded to odd: if it is inexact, the neighbour with an odd last bit."""
    bits = total.view(np.int64)
    even = (error != 0) & np.isfinite(total) & ((bits & 1) == 0)
    away = np.where((error > 0) == (total > 0), 1, -1)
    return (bits + np.where(even, away, 0)).view(np.float64)


def _first(wrong: Array) -> tuple[Any, ...] | None:
    flat = np.flatnonzero(wrong)  # in C order of the index, for every memory order
    return np.unravel_index(flat[0], wrong.shape) if flat.size else None


def _plain(index: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in index)
