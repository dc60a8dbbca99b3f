"""The order of a sum, found from its results alone. Nothing of the package is imported here.

Xie, Cui, Peng, Jin, Yang, Xu, "FPRev: Revealing the Order of Floating-Point Summation from Numerical Testing"
(arXiv 2411.00442). A large M at index i, -M at index j and 1 elsewhere: partial sums that contain exactly one of M and
-M swallow the ones. So the result counts the ones that are added after M and -M have met, and the other terms are
the leaves below the smallest node that contains both. These numbers of all pairs form the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Tree = Any  # the index of a term, or a frozenset of trees

LARGE = 2.0**60


def masks(n: int, large: float) -> tuple[Array, list[tuple[int, int]]]:
    """Return the rows of terms for all pairs, and the pairs."""
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    rows = np.ones((len(pairs), n), np.float32)
    for row, (i, j) in zip(rows, pairs, strict=True):
        row[i], row[j] = large, -large
    return rows, pairs


def tree_of(total: Callable[[Array], Array], n: int, large: float = LARGE) -> Tree:
    """Return the tree of a sum of n terms; `total` returns the sums of rows of terms, in units of one term.

    A node with more than two children adds all of them at once. ValueError: the sum is exact, so it has no order.
    """
    if n == 1:
        return 0
    rows, pairs = masks(n, large)
    counts = np.rint(np.asarray(total(rows), np.float64)).astype(int)
    below = np.zeros((n, n), int)
    for (i, j), count in zip(pairs, counts, strict=True):
        below[i, j] = below[j, i] = n - count
    return _built(list(range(n)), below)


def _built(terms: list[int], below: Array) -> Tree:
    if len(terms) == 1:
        return terms[0]
    whole = max(below[terms[0], j] for j in terms[1:])
    if whole != len(terms):
        raise ValueError(f"{whole} of the terms {terms} are below the node of all {len(terms)}")
    left, parts = list(terms), []
    while left:
        first = left[0]
        part = [first, *(j for j in left[1:] if below[first, j] < whole)]
        parts.append(_built(part, below))
        left = [j for j in left if j not in set(part)]
    return frozenset(parts)


def joined(*trees: Tree) -> Tree:
    """Return the tree of one addition of trees; None stands for +0, which has no terms."""
    present = [tree for tree in trees if tree is not None]
    return None if not present else present[0] if len(present) == 1 else frozenset(present)


def chain(trees: Any, start: Tree = None) -> Tree:
    """Return the tree of a running sum."""
    for tree in trees:
        start = joined(start, tree)
    return start


def halves(lanes: list[Tree]) -> Tree:
    """Return the tree of accumulators that are added i with i + n / 2, down to one."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [joined(lanes[i], lanes[i + half]) for i in range(half)]
    return lanes[0]
