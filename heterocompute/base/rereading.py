"""The check of written files: a drawn share of a file is read again and compared, before the file takes its name.

`drawn` decides which tensors are compared: one of each kind, and others until a sixteenth of the bytes is reached. The
draw depends on the names alone, so that a run can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import WrongType, WrongValue, printable, shown
from .texts import quoted

CHECKS = ("sample", "all", "none")
SHARE = 16  # a sample is one byte of so many
BLOCK = 1 << 20  # values that are compared at a time


def as_check(value: object, caller: str) -> str:
    """Return the name of a check.

    Raises
    ------
    TypeError, ValueError
        It is none of `CHECKS`.
    """
    wanted = "expected 'sample', 'all' or 'none'"
    if not isinstance(value, str):
        raise WrongType(f"{caller}: check is {shown(value)}, {wanted}")
    if value not in CHECKS:
        raise WrongValue(f"{caller}: check is {shown(value)}, {wanted}")
    return value


def drawn(tensors: Mapping[str, tuple[Hashable, int]], check: str) -> list[str]:
    """Return the names of the tensors that are compared.

    Parameters
    ----------
    tensors : mapping of str to (hashable, int)
        The kind of each tensor, such as its dtype and format, and its bytes.
    check : str
        Of `CHECKS`.

    Examples
    --------
    >>> sizes = {f"layer{i}": ("float32", 100) for i in range(64)} | {"codes": ("int8", 10)}
    >>> names = drawn(sizes, "sample")
    >>> "codes" in names, len(names)
    (True, 5)
    >>> len(drawn(sizes, "all")), drawn(sizes, "none")
    (65, [])
    """
    if check != "sample":
        return list(tensors) if check == "all" else []
    order = list(tensors)
    random.Random("\n".join(order)).shuffle(order)
    kinds: set[Hashable] = set()
    chosen, size = set(), 0
    wanted = sum(nbytes for _, nbytes in tensors.values()) / SHARE
    for name in order:
        if tensors[name][0] not in kinds:
            chosen.add(name)
            kinds.add(tensors[name][0])
            size += tensors[name][1]
    for name in order:
        if size >= wanted:
            break
        if name not in chosen:
            chosen.add(name)
            size += tensors[name][1]
    return [name for name in tensors if name in chosen]


def refuse_different(path: str, name: str, wanted: NDArray[Any], found: NDArray[Any]) -> None:
    """Raise ValueError if two arrays differ in shape or in a value; NaN is NaN, and 0 is -0.

    Parameters
    ----------
    path, name : str
        The file and the tensor, in the error.
    wanted, found : ndarray
        The tensor as it was to be written, and as it was read.
    """
    if wanted.shape != found.shape:
        raise WrongValue(_different(path, name, f"shape {found.shape}, expected {wanted.shape}"))
    one, two = wanted.reshape(-1), found.reshape(-1)
    for first in range(0, one.size, BLOCK):
        a, b = one[first : first + BLOCK], two[first : first + BLOCK]
        if a.dtype == b.dtype and a.tobytes() == b.tobytes():
            continue
        differs = np.asarray((a != b) & ~((a != a) & (b != b)))
        if differs.any():
            index = tuple(int(i) for i in np.unravel_index(first + int(differs.argmax()), wanted.shape))
            raise WrongValue(_different(path, name, f"{found[index]} at index {index}, expected {wanted[index]}"))


def refuse_other_bytes(path: str, name: str, wanted: NDArray[np.uint8], found: NDArray[np.uint8], begin: int) -> None:
    """Raise ValueError if bytes of a tensor from `begin` on differ from the intended bytes."""
    if wanted.size != found.size or not np.array_equal(wanted, found):
        same = wanted[: found.size] == found[: wanted.size]
        at = int((~same).argmax()) if not same.all() else min(wanted.size, found.size)
        raise WrongValue(_different(path, name, f"another value of byte {begin + at}"))


def _different(path: str, name: str, what: str) -> str:
    place = f"{printable(path)}: tensor {quoted(name)}"
    return f"{place} was read back with {what}: the new file is not as it was to be written, and is deleted"
