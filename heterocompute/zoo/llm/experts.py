"""The experts of a Hugging Face folder as the stacks that the forward pass takes: listed one by one, or stacked there.

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
from ...base.texts import printable, quoted
from .shape import Shape

__all__ = ["PARTS", "add_experts"]

Reads = dict[str, Callable[[], Any]]
Sizes = dict[str, tuple[int, ...]]
BLOCKS = {"mlp": ("gate_proj", "up_proj", "down_proj"), "block_sparse_moe": ("w1", "w3", "w2")}
PARTS = ("gate", "up", "down")


def add_experts(path: str, reads: Reads, sizes: Sizes, shape: Shape) -> dict[str, str]:
    """Add a tensor for each stack of experts, and return role -> name of these and of the routers.

    Parameters
    ----------
    path : str
        For errors.
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
                    reads[name], sizes[name] = partial(_whole, path, name, found[0]), found[1]
                    roles[f"blk.{i}.ffn_{part}_exps.weight"] = name
    return roles


def _stack(
    reads: Reads, sizes: Sizes, at: str, number: int, name: str, shape: Shape
) -> tuple[Callable[[], Any], tuple[int, ...]] | None:
    """Return how to read the stack of one part, and its shape."""
    listed = [f"{at}{i}.{name}.weight" for i in range(shape.experts)]
    if all(one in sizes for one in listed):
        every = {sizes[one] for one in listed}
        return partial(_joined, [reads[one] for one in listed]), (len(listed), *min(every)) if len(every) == 1 else ()
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
    parts = [read() for read in reads]
    return parts[0] if isinstance(parts[0], PackedArray) else np.stack(parts)


def _rows(read: Callable[[], Any], rows: slice) -> Any:
    whole = read()
    return whole if isinstance(whole, PackedArray) else whole[:, rows]


def _whole(path: str, name: str, read: Callable[[], Any]) -> Any:
    found = read()
    if isinstance(found, PackedArray):
        raise ValueError(
            f"{printable(path)}: the experts of {quoted(name)} are quantized by another program; expected floats, or a "
            "GGUF file"
        )
    return found
