"""The experts of a Hugging Face folder as stacks for the forward pass: listed one by one there, or stacked.

listed     LAYER.mlp.experts.3.gate_proj.weight, up_proj, down_proj; Mixtral: block_sparse_moe, w1, w3, w2
here       LAYER.mlp.experts.gate.weight (experts, hidden, width), up, down (experts, width, hidden)
stacked    LAYER.mlp.experts.gate_up_proj (experts, 2 hidden, width), LAYER.mlp.experts.down_proj; the same here
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ...arrays.base import PackedArray
from ...arrays.components import rows_stand_alone
from ...arrays.quantized import QuantizedArray
from ...families.table import RUN_KINDS
from .shape import Shape
from .weights import prefix_in

Reads = dict[str, Callable[[], Any]]
Sizes = dict[str, tuple[int, ...]]
BLOCKS = {kind.experts.block: kind.experts.parts for _, kind in RUN_KINDS.values() if kind.experts is not None}
PARTS = ("gate", "up", "down")
ROUTERS = ("gate", "router", "router.layer")
# Tensors of a block beside listed experts and their router -> their roles. Packed stacks end in .weight.
OTHERS = {
    "experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight",
    "experts.gate_up_proj.weight": "ffn_gate_up_exps.weight", "experts.down_proj.weight": "ffn_down_exps.weight",
    "experts.gate_up_proj_bias": "ffn_gate_up_exps.bias", "experts.down_proj_bias": "ffn_down_exps.bias",
    "input_linear.weight": "ffn_gate_up_exps.weight", "output_linear.weight": "ffn_down_exps.weight",
    "gate.e_score_correction_bias": "exp_probs_b.bias", "shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    **{f"{name}.{part}_proj.{end}": f"ffn_{part}_shexp.{end}"
       for name in ("shared_expert", "shared_experts") for part in PARTS for end in ("weight", "bias")},
}  # fmt: skip
BLOCK = rf"(?P<experts>.+\.(?P<block>{'|'.join(BLOCKS)})\.experts)"
STACK = re.compile(rf"{BLOCK}\.(?P<part>gate|up|down)\.weight")
LISTED = re.compile(rf"{BLOCK}\.\d+\.(?P<name>\w+)\.weight")


def add_experts(reads: Reads, sizes: Sizes, shape: Shape) -> tuple[dict[str, str], set[str]]:
    """Add a tensor for each stack of listed experts.

    Parameters
    ----------
    reads : dict of str to callable
        Of each tensor; the stacks are added.
    sizes : dict of str to tuple of int
        Likewise.

    Returns
    -------
    dict of str to str, set of str
        Role -> name of the stacks and of the routers, without those that the folder lacks; and the tensors that are
        part of a stack.
    """
    prefix = prefix_in("", reads, shape.options)
    roles, parts = dict[str, str](), set[str]()
    for i in range(shape.layers if shape.experts else 0):
        for block, names in BLOCKS.items():
            at = f"{prefix}layers.{i}.{block}."
            router = next((one for one in ROUTERS if f"{at}{one}.weight" in reads), None)
            if router is None or i in shape.dense:
                continue
            roles |= {f"blk.{i}.{role}": f"{at}{name}" for name, role in OTHERS.items() if f"{at}{name}" in reads}
            roles |= {f"blk.{i}.ffn_gate_inp.{end}": f"{at}{router}.{end}" for end in ("weight", "bias")
                      if f"{at}{router}.{end}" in reads}  # fmt: skip
            for part, name in zip(PARTS, names, strict=True):
                listed = [f"{at}experts.{j}.{name}.weight" for j in range(shape.experts)]
                if all(one in reads for one in listed):
                    stack = f"{at}experts.{part}.weight"
                    reads[stack] = partial(_read_stack, [reads[one] for one in listed])
                    sizes[stack] = _size(listed, sizes, shape, part)
                    roles[f"blk.{i}.ffn_{part}_exps.weight"] = stack
                    parts.update(listed)
    return roles, parts


def of_each_expert(recipe: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return a recipe for the tensors of a folder: an entry for a stack of the network is one for each listed expert.

    Parameters
    ----------
    recipe : mapping of str to Any
        By patterns, or by names of the network.
    names : iterable of str
        Tensors of the folder.

    Returns
    -------
    dict of str to Any
        In the same order. Entries for other tensors, and for names that the folder has, are unchanged.
    """
    known, found = set(names), dict[str, Any]()
    for pattern, value in recipe.items():
        stack = None if pattern in known else STACK.fullmatch(pattern)
        each = re.compile(rf"{re.escape(stack['experts'])}\.\d+\.{_listed(stack)}\.weight") if stack else None
        listed = [name for name in known if each is not None and each.fullmatch(name)]
        for name in sorted(listed) or [pattern]:
            found.setdefault(name, value)
    return found


def listed_in(stack: str, count: int) -> list[str]:
    """Return the names of the listed experts of a stack.

    Parameters
    ----------
    stack : str
        A name that `add_experts` returned.
    """
    found = STACK.fullmatch(stack)
    assert found is not None
    return [f"{found['experts']}.{i}.{_listed(found)}.weight" for i in range(count)]


def stack_of(name: str) -> str | None:
    """Return the stack to which a listed expert belongs; None for another tensor."""
    found = LISTED.fullmatch(name)
    if found is None or found["name"] not in BLOCKS[found["block"]]:
        return None
    return f"{found['experts']}.{PARTS[BLOCKS[found['block']].index(found['name'])]}.weight"


def _listed(stack: re.Match[str]) -> str:
    return BLOCKS[stack["block"]][PARTS.index(stack["part"])]


def _size(listed: list[str], sizes: Sizes, shape: Shape, part: str) -> tuple[int, ...]:
    """Return the shape of a stack, () if the matrices differ."""
    if not all(one in sizes for one in listed):  # packed: the stack checks shapes when it is read
        matrix = (shape.width, shape.expert_hidden) if part == "down" else (shape.expert_hidden, shape.width)
        return (len(listed), *matrix)
    every = {sizes[one] for one in listed}
    return (len(listed), *min(every)) if len(every) == 1 else ()


def _read_stack(reads: list[Callable[[], Any]]) -> Any:
    return stacked([read() for read in reads])


def stacked(parts: list[Any]) -> Any:
    """Return the stack of several matrices, packed if each one is and rows can be decoded alone."""
    first = parts[0]
    if isinstance(first, QuantizedArray) and rows_stand_alone(first.format, first.shape[-1]):
        alike = (first.format, first.shape)
        if all(isinstance(part, QuantizedArray) and (part.format, part.shape) == alike for part in parts):
            components = {key: np.concatenate([part.components[key] for part in parts]) for key in first.components}
            return QuantizedArray(components, first.format, (len(parts), *first.shape), (2,))
    if any(isinstance(part, PackedArray) for part in parts):
        parts = [np.asarray(part, np.float32) for part in parts]
    return np.stack(parts)
