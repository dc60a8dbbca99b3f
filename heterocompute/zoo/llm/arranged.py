"""Weights that a Hugging Face folder stores in another order than the forward pass reads.

turned          (in, out), of the module Conv1D -> (out, in)
interleaved     queries, keys and values of one head of keys after the other -> all queries, all keys, all values
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ...arrays.components import rows_stand_alone
from ...arrays.quantized import QuantizedArray
from .shape import Shape

IntArray = np.ndarray[Any, np.dtype[np.int64]]


def arrange(
    reads: dict[str, Callable[[], Any]],
    sizes: dict[str, tuple[int, ...]],
    roles: Mapping[str, str],
    shape: Shape,
    turned: str,
) -> None:
    """Replace the functions that read some tensors, and their sizes.

    Parameters
    ----------
    turned : {"", "conv1d", "experts"}
        Of `families.record.Kind`.
    """
    for role, name in roles.items():
        if is_turned(turned, role, name):
            reads[name] = partial(_turned, reads[name])
            if name in sizes:
                sizes[name] = (*sizes[name][:-2], *sizes[name][:-3:-1])
        if shape.options.interleaved and ".attn_qkv." in role:
            reads[name] = partial(_ordered, reads[name], order_of(shape))


def is_turned(turned: str, role: str, name: str) -> bool:
    """Tell whether the plain tensor of a role is stored as (..., in, out)."""
    if turned == "conv1d":
        return role.startswith("blk.") and role.endswith(".weight") and "norm" not in role
    return turned == "experts" and role.endswith("_exps.weight") and not name.endswith(".weight")  # packed are not


def order_of(shape: Shape) -> IntArray:
    """Return the row of an interleaved matrix for each row of queries, keys and values."""
    share = shape.heads // shape.kv_heads
    rows = np.arange((share + 2) * shape.kv_heads * shape.head_width).reshape(shape.kv_heads, share + 2, -1)
    return np.concatenate([part.reshape(-1) for part in (rows[:, :share], rows[:, share], rows[:, share + 1])])


def _turned(read: Callable[[], Any]) -> Any:
    found = read()
    if isinstance(found, QuantizedArray) and found.ndim == 2 and found.axis == (0,):
        return found.T
    return np.ascontiguousarray(np.asarray(found).swapaxes(-1, -2))


def _ordered(read: Callable[[], Any], order: IntArray) -> Any:
    """Return an array with its rows in another order, packed if rows can be decoded alone."""
    found = read()
    if not isinstance(found, QuantizedArray):
        return np.asarray(found)[order]
    if found.axis != (1,) or not rows_stand_alone(found.format, found.shape[-1]):
        return np.asarray(found, np.float32)[order]
    parts = {key: part[order] if part.shape[:1] == found.shape[:1] else part for key, part in found.components.items()}
    return QuantizedArray(parts, found.format, found.shape, found.axis)
