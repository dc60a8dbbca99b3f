"""The experts of a Hugging Face folder as stacks for the forward pass: listed one by one there, or stacked.

listed     LAYER.mlp.experts.3.gate_proj.weight, up_proj, down_proj; Mixtral: block_sparse_moe, w1, w3, w2
stacked    LAYER.mlp.experts.gate_up_proj (experts, 2 hidden, width), LAYER.mlp.experts.down_proj
here       LAYER.mlp.experts.gate.weight (experts, hidden, width), up, down (experts, width, hidden)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...arrays.base import PackedArray
from ...arrays.components import rows_stand_alone
from ...arrays.quantized import QuantizedArray
from .shape import Shape

__all__ = ["PARTS", "add_experts"]

Reads = dict[str, Callable[[], Any]]
Sizes = dict[str, tuple[int, ...]]
BLOCKS = {"mlp": ("gate_proj", "up_proj", "down_proj"), "block_sparse_moe": ("w1", "w3", "w2")}
PARTS = ("gate", "up", "down")


def add_experts(reads: Reads, sizes: Sizes, shape: Shape) -> dict[str, str]:
    """Add a tensor for each stack of experts, and return role -> name of these and of the routers.

    Parameters
    ----------
    reads : dict of str to callable
        Of each tensor; the stacks are added.
    sizes : dict of str to tuple of int
        Likewise.
    shape : Shape

    Returns
    -------
    dict of str to str
        Without what the folder lacks.
    """
    prefix = next(name for name in reads if name.endswith("embed_tokens.weight")).removesuffix("embed_tokens.weight")
    roles = {}
    for i in range(shape.layers if shape.experts else 0):
        for block, names in BLOCKS.items():
            at = f"{prefix}layers.{i}.{block}."
            if f"{at}gate.weight" not in reads:
                continue
            roles[f"blk.{i}.ffn_gate_inp.weight"] = f"{at}gate.weight"
            for number, part in enumerate(PARTS):
                found = _stack(reads, sizes, f"{at}experts.", number, names[number], shape)
                if found is not None:
                    name = f"{at}experts.{part}.weight"
                    reads[name], sizes[name] = found
                    roles[f"blk.{i}.ffn_{part}_exps.weight"] = name
    return roles


def _stack(
    reads: Reads, sizes: Sizes, at: str, number: int, name: str, shape: Shape
) -> tuple[Callable[[], Any], tuple[int, ...]] | None:
    """Return the reader of the stack of one part, and its shape."""
    listed = [f"{at}{i}.{name}.weight" for i in range(shape.experts)]
    if all(one in reads for one in listed):
        read = partial(_joined, [reads[one] for one in listed])
        if not all(one in sizes for one in listed):  # packed: the stack checks shapes when it is read
            matrix = (shape.width, shape.expert_hidden) if number == 2 else (shape.expert_hidden, shape.width)
            return read, (len(listed), *matrix)
        every = {sizes[one] for one in listed}
        return read, (len(listed), *min(every)) if len(every) == 1 else ()
    whole = f"{at}down_proj" if number == 2 else f"{at}gate_up_proj"
    if whole not in sizes:
        return None
    if number == 2:
        return reads[whole], sizes[whole]
    size = sizes[whole]
    half = size[1] // 2 if len(size) == 3 else 0
    rows = slice(half) if number == 0 else slice(half, None)
    return partial(_rows, reads[whole], rows), (size[0], half, *size[2:])


def _joined(reads: list[Callable[[], Any]]) -> Any:
    """Return the stack of several matrices, packed if each one is and rows can be decoded alone."""
    parts = [read() for read in reads]
    first = parts[0]
    if isinstance(first, QuantizedArray) and rows_stand_alone(first.format, first.shape[-1]):
        alike = (first.format, first.shape)
        if all(isinstance(part, QuantizedArray) and (part.format, part.shape) == alike for part in parts):
            components = {key: np.concatenate([part.components[key] for part in parts]) for key in first.components}
            return QuantizedArray(components, first.format, (len(parts), *first.shape), (2,))
    if any(isinstance(part, PackedArray) for part in parts):
        parts = [np.asarray(part, np.float32) for part in parts]
    return np.stack(parts)


def _rows(read: Callable[[], Any], rows: slice) -> Any:
    """Return some rows of each matrix of a stack, packed if the rows can be decoded alone."""
    whole = read()
    if isinstance(whole, QuantizedArray) and whole.axis == (2,) and rows_stand_alone(whole.format, whole.shape[-1]):
        experts, every, width = whole.shape
        count = len(range(*rows.indices(every)))
        parts = {
            key: np.ascontiguousarray(part.reshape(experts, every, -1)[:, rows]).reshape(experts * count, -1)
            for key, part in whole.components.items()
        }
        parts = {key: part.reshape(-1, *whole.components[key].shape[1:]) for key, part in parts.items()}
        return QuantizedArray(parts, whole.format, (experts, count, width), (2,))
    return (np.asarray(whole, np.float32) if isinstance(whole, PackedArray) else whole)[:, rows]
