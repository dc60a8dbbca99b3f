"""Stacks of experts in MXFP4, as gpt-oss has them.

    NAME_blocks  uint8 (experts, out, in / 32, 16): codes E2M1, the even one low
    NAME_scales  uint8 (experts, out, in / 32): 2^(byte - 127)

The weight is called NAME.weight here. The experts of transformers may be written under the names that they have there,
and `files.foreign` returns them to a plain checkpoint of such a model.

gpt-oss, torch/weights.py; transformers, integrations/mxfp4.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue
from ...base.texts import quoted
from ...formats import MX
from .linear import Array, Packed, Parts, refuse

__all__ = ["ENDS", "array_from", "config_of", "layout_of", "parts_of", "stacked"]

NAME = "gpt-oss"
ENDS = ("_blocks", "_scales")
EXPERTS = (".experts.gate_up_proj", ".experts.down_proj")  # parameters of transformers


def layout_of(name: str, q: Packed) -> Parts:
    """Return dtypes and shapes of the tensors that represent a stack, or one matrix of all its rows, or refuse it."""
    if not isinstance(q.format, MX) or q.format.element != "fp4" or q.shape[-1] % 32:
        refuse(name, q, NAME, "mxfp4 with rows of whole groups is the nearest")
    if not name.endswith((".weight", *EXPERTS)):
        raise WrongValue(f"save: tensor {quoted(name)}: {NAME} stores weights called NAME.weight")
    prefix, groups = name.removesuffix(".weight"), (*q.shape[:-1], q.shape[-1] // 32)
    return {f"{prefix}_blocks": ("uint8", (*groups, 16)), f"{prefix}_scales": ("uint8", groups)}


def parts_of(name: str, q: QuantizedArray) -> dict[str, Array]:
    """Return the tensors that represent a stack, or one matrix of all its rows."""
    shapes = layout_of(name, q)
    return {
        key: q.components[part].reshape(shape)
        for part, (key, (_, shape)) in zip(("codes", "scales"), shapes.items(), strict=True)
    }


def stacked(name: str, parts: dict[str, Array], shape: tuple[int, ...]) -> dict[str, Array]:
    """Return the tensors of a stack of matrices, from those of one matrix of all their rows."""
    return {key: part.reshape(*shape[:2], *part.shape[1:]) for key, part in parts.items()}


def config_of(formats: Mapping[str, Any], plain: Sequence[str], ordered: bool = False) -> dict[str, Any]:
    """Return the quantization_config of config.json."""
    return {"quant_method": "mxfp4", "modules_to_not_convert": [name.removesuffix(".weight") for name in plain]}


def array_from(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> QuantizedArray:
    """Return a stack of experts (experts, out, in)."""
    blocks, scales = tensors[f"{prefix}_blocks"], tensors[f"{prefix}_scales"]
    if blocks.dtype != np.uint8 or blocks.ndim != 4 or blocks.shape[3] != 16 or 0 in blocks.shape:
        raise WrongValue(
            f"{prefix}_blocks is {blocks.dtype} {blocks.shape}, expected uint8 (experts, out, in / 32, 16)"
        )
    if scales.dtype != np.uint8 or scales.shape != blocks.shape[:3]:
        raise WrongValue(f"{prefix}_scales is {scales.dtype} {scales.shape}, expected uint8 {blocks.shape[:3]}")
    count, rows, groups = scales.shape
    parts = {"codes": blocks.reshape(count * rows, 16 * groups), "scales": scales.reshape(count * rows, groups)}
    return QuantizedArray(parts, MX("fp4"), (count, rows, 32 * groups), (2,))
