"""Which tensors are compared: those of a part, and of these a sample drawn by a seed."""

from __future__ import annotations

import random

from ..files.work import part_with


def chosen(names: list[str], sample: int | None, seed: int | None, part: tuple[int, int] | None) -> frozenset[str]:
    """Return the tensors that are compared: those of a part, and of these a sample.

    Examples
    --------
    >>> sorted(chosen(list("abcdef"), None, None, (2, 3)))
    ['c', 'd']
    >>> len(chosen(list("abcdef"), 4, 0, None))
    4
    """
    if part is not None:
        number, count = part
        names = [name for i, name in enumerate(names) if part_with(i, len(names), count) == number]
    if sample is not None and sample < len(names):
        names = random.Random(seed).sample(names, sample)
    return frozenset(names)


def chance_of_missing(total: int, sample: int, tampered: int = 1) -> float:
    """Return the probability that a sample of the tensors holds no tampered tensor.

    Examples
    --------
    >>> chance_of_missing(100, 25), round(chance_of_missing(100, 25, 4), 3)
    (0.75, 0.31)
    """
    found = 1.0
    for i in range(tampered):
        found *= max(0, total - sample - i) / max(1, total - i)
    return found
