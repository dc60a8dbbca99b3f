"""The file of an importance matrix, as `llama-imatrix` writes it: mean squares of the inputs of each tensor.

    GGUF   NAME.in_sum2 float32 (matrices, columns), NAME.counts (matrices, 1)
    .dat   int32 tensors; of each int32 length, name, int32 calls, int32 values, float32 values: sums over the calls

llama.cpp, tools/imatrix/imatrix.cpp, and common/imatrix-loader.cpp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.errors import WrongValue, printable
from ....base.regular import open_regular
from ....base.texts import quoted
from ...containers.gguf_files import Gguf

Array = np.ndarray[Any, Any]
SUMS, COUNTS = ".in_sum2", ".counts"
MOST, MOST_NAME = 1 << 30, 1 << 10  # bytes of a file, and of a name


def importance_in(path: str) -> dict[str, Array]:
    """Return the importance of the columns of each tensor, of stacks of each matrix: float32 (matrices, columns).

    Raises
    ------
    ValueError
        The file is of another kind, cut off, or has values that are negative or not finite.
    """
    with open_regular(path) as file:
        first = file.read(4)
        found = _of_gguf(path) if first == b"GGUF" else _of_data(path, first + file.read(MOST))
    for name, values in found.items():
        if not np.isfinite(values).all() or (values < 0).any():
            raise WrongValue(f"{printable(path)}: {quoted(name)} has values that are negative or not finite")
    return found


def _of_gguf(path: str) -> dict[str, Array]:
    found = {}
    with Gguf(path) as reader:
        for name in [one.removesuffix(SUMS) for one in reader.names if one.endswith(SUMS)]:
            if name + COUNTS not in reader:
                raise WrongValue(f"{printable(path)}: the tensor {quoted(name + COUNTS)} is missing")
            sums, counts = (np.asarray(reader.tensor(name + end), np.float32) for end in (SUMS, COUNTS))
            sums, counts = np.atleast_2d(sums), counts.reshape(-1, 1)
            if sums.ndim != 2 or len(counts) != len(sums):
                raise WrongValue(f"{printable(path)}: {quoted(name)} has {len(counts)} counts of {len(sums)} matrices")
            with np.errstate(divide="ignore", invalid="ignore"):
                found[name] = np.where(counts > 0, sums / counts, np.float32(1))
    if not found:
        raise WrongValue(f"{printable(path)}: has no tensor NAME{SUMS}, expected an importance matrix")
    return found


def _of_data(path: str, data: bytes) -> dict[str, Array]:
    at, found = 0, dict[str, Array]()

    def number() -> int:
        nonlocal at
        value = int.from_bytes(_part(4), "little", signed=True)
        if value < 0:
            raise WrongValue(f"{printable(path)}: is not an importance matrix: it has the count {value}")
        return value

    def _part(count: int) -> bytes:
        nonlocal at
        if count > len(data) - at:
            raise WrongValue(f"{printable(path)}: is not an importance matrix, or cut off")
        at += count
        return data[at - count : at]

    for _ in range(number()):
        length = number()
        if length > MOST_NAME:
            raise WrongValue(f"{printable(path)}: is not an importance matrix: it has a name of {length} bytes")
        name = _part(length).decode("utf-8", "replace")
        calls, count = number(), number()
        values = np.frombuffer(_part(4 * count), "<f4").astype(np.float32)
        found[name] = (values / np.float32(max(calls, 1))).reshape(1, -1)
    return found
