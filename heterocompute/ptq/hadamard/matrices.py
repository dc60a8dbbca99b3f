"""Hadamard matrices: the orders that are implemented, and the matrix of each.

    H H^T = n I, entries 1 and -1

Paley, J. Math. Phys. 12 (1933): q is a power of an odd prime; chi is 1 for nonzero squares of GF(q), 0 for 0, else -1.

    q = 4 i + 3, order q + 1        [ 1   1 ]                     q = 4 i + 1, order 2 (q + 1)
                                    [-1 S+I ], S_ij = chi(j - i)  [ C + I  C - I ; C - I  -C - I ], C = [ 0 1 ; 1 S ]

Goethals and Seidel, J. Austral. Math. Soc. 11 (1970): four circulants with A A^T + B B^T + C C^T + D D^T = 4 n I make
order 4 n; Williamson, Duke Math. J. 11 (1944), has symmetric ones. A size is a product of orders and a power of two.
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.int8]

LARGEST = 1024  # largest order, a matrix of 1 MiB

# For a size of one of these orders times a power of two, the first order that divides it is used, then others: a
# rotated weight must be rotated back by the same matrix.
FIRST = (12, 20, 24, 32, 44, 48, 60, 68, 72, 80, 84, 104, 108, 128, 132, 140, 152, 164, 168, 180, 28, 36, 76, 124, 148)

# The first rows of four circulants, by 4 n: bit i is set if value i is -1. Found by a search among rows that are
# unchanged by some multiplier of the integers modulo n.
CIRCULANTS = {
    92: (0x53DBCA, 0x6581A6, 0xB99D0, 0x423C42),
    116: (0xCD3F2CC, 0x653F298, 0x53A1728, 0x1045E882),
    156: (0x6F23E7E4F6, 0x19F80CF26C, 0x186255DD52, 0x2D2855EBEE),
    172: (0x6B0B108D0D6, 0x5320E6704CA, 0x5F8536CA1FA, 0x18513FC8A18),
    292: (0x1A346994A71A58D335E, 0x1A3038143F1119D57FE, 0x1A257189F90F474EEA0, 0x4965DF49E9BF9975FE),
    372: (0x1EB239616F0DE459B3AD53DE, 0x1519C95B4F8759DB3DD7FE, 0x1EA760EDB443E38B6991957E, 0x58F02E94033B30985513D7E),
    476: (
        0x69C7B06ACA113D99B48857560FE396,
        0x145724772B59706F2F1DCB37977E,
        0x7FEBACDB98F4F68F92D4EE34EA6880,
        0x116172C572B59F1672F1DDB37D7FE,
    ),
}


def _power_of_prime(q: int) -> tuple[int, int] | None:
    """Return (p, k) with q = p^k for an odd prime p."""
    p = next((d for d in range(3, int(q**0.5) + 1, 2) if q % d == 0), q)
    k, rest = 0, q
    while p > 1 and rest % p == 0:
        k, rest = k + 1, rest // p
    return (p, k) if q % 2 and q > 1 and rest == 1 else None


def _field(order: int) -> int | None:
    """Return q of Paley's matrix: order - 1 if prime, else order / 2 - 1 (second kind), else order - 1 as a power."""
    if order % 4:
        return None
    first, second = order - 1, order // 2 - 1
    found, other = _power_of_prime(first), _power_of_prime(second)
    if other and second % 4 == 1 and not (found and found[1] == 1):
        return second
    return first if found else None


@cache
def is_order(order: int) -> bool:
    """Tell whether `matrix_of` has a matrix of this order."""
    return 4 < order <= LARGEST and (order in CIRCULANTS or _field(order) is not None)


def _character(p: int, k: int) -> Matrix:
    """Return chi of each element of GF(p^k), which is a polynomial: its digits to base p."""
    q, one = p**k, (1,) + (0,) * (k - 1)
    for number in range(q):  # x^k = a polynomial of a field in which powers of x are all nonzero elements
        tail = [number // p**i % p for i in range(k)]
        power, chi, sign = one, np.zeros(q, np.int8), 1
        for _ in range(q - 1):
            place = sum(digit * p**i for i, digit in enumerate(power))
            if place == 0 or chi[place]:
                break
            chi[place], sign = sign, -sign
            power = tuple((low + power[-1] * t) % p for low, t in zip((0, *power[:-1]), tail, strict=True))
        else:
            return chi
    raise AssertionError("every field has a primitive polynomial")


def _paley(q: int, order: int) -> Matrix:
    p, k = _power_of_prime(q) or (q, 1)
    chi, place = _character(p, k), np.zeros((q, q), np.int64)
    for i in range(k):
        digit = np.arange(q) // p**i % p
        place += (digit[None, :] - digit[:, None]) % p * p**i
    matrix = np.ones((q + 1, q + 1), np.int8)
    matrix[1:, 1:] = chi[place]
    one = np.eye(q + 1, dtype=np.int8)
    if order == q + 1:
        matrix[1:, 0] = -1
        matrix[1:, 1:] += one[1:, 1:]
        return matrix
    matrix[0, 0] = 0
    return np.block([[matrix + one, matrix - one], [matrix - one, -matrix - one]])


def _goethals_seidel(rows: tuple[int, ...], n: int) -> Matrix:
    steps = (np.arange(n)[None, :] - np.arange(n)[:, None]) % n
    a, b, c, d = (np.array([-1 if row >> i & 1 else 1 for i in range(n)], np.int8)[steps] for row in rows)
    br, cr, dr = (one[:, ::-1] for one in (b, c, d))
    bt, ct, dt = (one.T[:, ::-1] for one in (b, c, d))
    return np.block([[a, br, cr, dr], [-br, a, dt, -ct], [-cr, -dt, a, bt], [-dr, ct, -bt, a]])


@lru_cache(maxsize=16)
def matrix_of(order: int) -> Matrix:
    """Return the matrix of an order that `as_product` gave, of 1 and -1.

    Returns
    -------
    ndarray of int8, (order, order)
        Read-only.
    """
    q = _field(order)
    matrix = _goethals_seidel(CIRCULANTS[order], order // 4) if q is None else _paley(q, order)
    matrix.flags.writeable = False
    return matrix


@cache
def as_product(size: int) -> tuple[tuple[int, ...], int] | None:
    """Split a size into orders and a power of two.

    Parameters
    ----------
    size : int
        1 or more.

    Returns
    -------
    (tuple of int, int) or None
        Orders of `matrix_of` with the least sum, none for a power of two; the power of two. None: no such product.

    Examples
    --------
    >>> from heterocompute.ptq.hadamard.matrices import as_product
    >>> as_product(11008), as_product(29568), as_product(11)
    (((172,), 64), ((12, 28, 44), 2), None)
    """
    power = size & -size
    if power == size:
        return (), size
    for order in FIRST:
        rest = size // order
        if size % order == 0 and rest & (rest - 1) == 0:
            return (order,), rest
    orders = _least(size // power, power)
    return None if orders is None else (orders, size // prod(orders))


@cache
def _least(odd: int, power: int) -> tuple[int, ...] | None:
    """Return the orders of least sum whose product is `odd` times a divisor of `power`."""
    if odd == 1:
        return ()
    found: list[tuple[int, ...]] = []
    for part in range(3, min(odd, LARGEST // 4) + 1, 2):
        if odd % part:
            continue
        order = next((part * 2**i for i in range(2, power.bit_length()) if is_order(part * 2**i)), None)
        if order is not None:
            rest = _least(odd // part, power // (order // part))
            if rest is not None:
                found.append(tuple(sorted((order, *rest))))
    return min(found, key=lambda orders: (sum(orders), orders), default=None)


def nearest_possible(size: int) -> list[int]:
    """Return the largest possible size below a size and the smallest above it; beyond 2^16 such that are near."""
    step = max(1, 1 << max(0, size.bit_length() - 16))
    below, above = size // step, size // step + 1
    while below > 0 and (below * step == size or as_product(below * step) is None):
        below -= 1
    while as_product(above * step) is None:
        above += 1
    return [n * step for n in (below, above) if n > 0]
