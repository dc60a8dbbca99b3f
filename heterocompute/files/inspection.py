"""One tensor of a checkpoint described for `checkpoint.inspect`: its size, the range of its values, its NaN."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.layout import Entry
from ..base.container import DTYPES, FILE_NAMES
from ..base.float_env import counts_subnormals
from ..base.tensors import Tensors
from .safetensors import read_array
from .shards import about

__all__ = ["packed_row", "plain_row"]

BLOCK = 1 << 20


def plain_row(reader: Tensors, name: str) -> dict[str, Any]:
    """Return the description of a plain tensor."""
    info = reader.info(name)
    packed = DTYPES[FILE_NAMES[info.dtype]][1] < 8  # values without an array dtype, which have no NaN or infinity
    low, high, n_nan = (None, None, 0) if packed else _range(reader.parts(name))
    return _row(name, info.dtype, info.shape, reader.format_of(name), reader.stored_bytes(name), low, high, n_nan)


def packed_row(reader: Tensors, name: str, entry: Entry) -> dict[str, Any]:
    """Return the description of a packed array."""
    with about(reader, name):
        array = read_array(reader, name, entry)
        low, high, n_nan = _range(array._occurring())
    return _row(name, entry.dtype, entry.shape, str(entry.format), array.nbytes, low, high, n_nan)


def _row(
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    fmt: str | None,
    n_bytes: int,
    low: float | None,
    high: float | None,
    n_nan: int,
) -> dict[str, Any]:
    return {
        "name": name,
        "dtype": dtype,
        "shape": list(shape),
        "format": fmt,
        "bytes": n_bytes,
        "min": low,
        "max": high,
        "nan": n_nan,
    }


@counts_subnormals
def _range(parts: Iterable[NDArray[Any]]) -> tuple[float | None, float | None, int]:
    """Return the smallest value, the largest and the number of NaN; None without values or for unordered dtypes."""
    low, high, n_nan = math.inf, -math.inf, 0
    ordered = False
    for part in parts:
        flat = part.reshape(-1)
        for first in range(0, flat.size, BLOCK):
            block = flat[first : first + BLOCK]
            if block.dtype.kind == "b":
                block = block.view(np.uint8)
            elif block.dtype.name.startswith(("bfloat", "float8")):
                block = block.astype(np.float32)
            if block.dtype.kind in "fc":
                wrong = np.isnan(block)
                n_nan += int(np.count_nonzero(wrong))
                block = block[~wrong]
            if block.size and block.dtype.kind != "c":
                low, high, ordered = min(low, block.min().item()), max(high, block.max().item()), True
    return (low, high, n_nan) if ordered else (None, None, n_nan)
