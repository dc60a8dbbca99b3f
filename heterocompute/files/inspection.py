"""One tensor of a checkpoint described for `checkpoint.inspect`: its size, the range of its values, its NaN."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.layout import Entry
from ..base.float_env import counts_subnormals
from ..base.tensors import Tensors
from ..formats.defining import definition_of
from .safetensors import read_array
from .shards import about

BLOCK = 1 << 20


def plain_row(reader: Tensors, name: str) -> dict[str, Any]:
    """Return the description of a plain tensor."""
    info = reader.info(name)
    found = _range(reader.parts(name))
    declared = {"name": name, "dtype": info.dtype, "shape": list(info.shape), "format": reader.format_of(name)}
    return declared | {"bytes": reader.stored_bytes(name)} | found


def packed_row(reader: Tensors, name: str, entry: Entry) -> dict[str, Any]:
    """Return the description of a packed array."""
    with about(reader, name):
        array = read_array(reader, name, entry)
        found = _range(array._occurring())
    declared: dict[str, Any] = {
        "name": name,
        "dtype": entry.dtype,
        "shape": list(entry.shape),
        "format": str(entry.format),
    }
    definition = None if isinstance(entry.format, str) else definition_of(entry.format)
    if definition is not None:
        declared["definition"] = definition
    return declared | {"bytes": array.nbytes} | found


@counts_subnormals
def _range(parts: Iterable[NDArray[Any]]) -> dict[str, Any]:
    """Return the smallest value, the largest and the number of NaN; None without values or for unordered dtypes."""
    low, high, n_nan = math.inf, -math.inf, 0
    ordered = False
    for part in parts:
        flat = part.reshape(-1)
        for first in range(0, flat.size, BLOCK):
            block = flat[first : first + BLOCK]
            if block.dtype.kind == "b":
                block = block.view(np.uint8)
            elif block.dtype.name.startswith(("bfloat", "float8_", "float6_", "float4_")):
                block = block.astype(np.float32)
            if block.dtype.kind in "fc":
                wrong = np.isnan(block)
                n_nan += int(np.count_nonzero(wrong))
                block = block[~wrong]
            if block.size and block.dtype.kind != "c":
                low, high, ordered = min(low, block.min().item()), max(high, block.max().item()), True
    return {"min": low if ordered else None, "max": high if ordered else None, "nan": n_nan}
