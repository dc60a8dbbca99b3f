"""Packed layers in the places of a model's layers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NoReturn

import torch

from ...base.errors import WrongValue
from . import modules
from .attention import PackedMultiheadAttention
from .carrying import carry
from .modules import Packed
from .turned import TurnedLinear, packed_turned
from .walk import Layer
from .weights import PackedWeight

BUILDERS: dict[str, Any] = {
    "linear": modules.PackedLinear,
    "embedding": modules.PackedEmbedding,
    "embedding_bag": modules.PackedEmbeddingBag,
    **{f"conv{n}d": getattr(modules, f"PackedConv{n}d") for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": getattr(modules, f"PackedConvTranspose{n}d") for n in (1, 2, 3)},
}


def replaced(
    model: Any, chosen: list[Layer], weights: list[PackedWeight], blocks: Mapping[str, int] | None = None
) -> Any:
    """Put packed layers into a model; return the model. `blocks` are those of rotated inputs, by path."""
    made: dict[int, Any] = {}
    for layer, weight in zip(chosen, weights, strict=True):
        old = model.get_submodule(layer.path)
        if layer.kind not in BUILDERS:  # the module stays, and its weight is replaced
            old._parameters.pop(layer.attribute, None)
            setattr(old, layer.attribute, weight)
            if layer.kind == "experts":
                _use_own_forward(old)
            continue
        if isinstance(old, Packed):  # the same module at a second place of the model
            continue
        new, block = made.get(id(old)), (blocks or {}).get(layer.path, getattr(old, "block", 0))
        if new is None and block and (blocks or isinstance(old, TurnedLinear)):
            new = made[id(old)] = packed_turned(old, weight, block)
        if new is None:
            new = made[id(old)] = carry(old, BUILDERS[layer.kind].from_module(old, weight))
        if not layer.path:
            return new
        parent, _, name = layer.path.rpartition(".")
        setattr(model.get_submodule(parent), name, new)
    for module in model.modules():
        if type(module).forward is torch.nn.MultiheadAttention.forward:
            if any(isinstance(one, (Packed, PackedWeight)) for one in module._modules.values()):
                module.__class__ = PackedMultiheadAttention
    return model


class _Unsaved:
    """A conversion of weights that transformers undoes in `save_pretrained`, before it writes them."""

    def reverse_transform(self) -> NoReturn:
        raise WrongValue(
            "save_pretrained: the model was packed by convert, and its folder would not say so: expected "
            "torch.save(model.state_dict(), file) and load_packed, or a model of from_pretrained with HeteroConfig"
        )


def unsaved(model: Any) -> Any:
    """Let the models of transformers in a model refuse to be saved as models of floats; return the model."""
    for module in model.modules():
        if hasattr(type(module), "save_pretrained") and hasattr(module, "config"):
            module._weight_conversions = [_Unsaved()]
    return model


def _use_own_forward(experts: object) -> None:
    """Make experts of transformers multiply matrix by matrix: their other methods need all matrices in one tensor."""
    if hasattr(experts, "config"):
        experts.config = copy.copy(experts.config)
        experts.config._experts_implementation = "eager"
