"""Weights in the form of the packed layers, recipes of formats, and packed layers in the places of a model's layers.

The form is outputs first, or filters of an image.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from math import prod
from typing import Any, NoReturn

import torch

from ...arrays.quantized import QuantizedArray
from ...arrays.rotated import RotatedArray
from ...base.errors import WrongType, WrongValue
from ...base.texts import quoted
from ...files.recipes import parse_recipe
from ...files.selection import escaped, patterns
from ...formats import Format, is_rotated
from ...products.arguments import as_format
from ...products.quantize import quantize
from ...ptq.methods import by_method, takes
from . import modules
from .attention import PackedMultiheadAttention
from .carrying import carry
from .modules import Packed
from .reading import now, trained_in, unrounded_in
from .turned import TurnedLinear, packed_turned
from .walk import Layer
from .weights import PackedWeight


def recipe_of(
    format: object, rotated: bool = False, name: str = "convert"
) -> dict[str, Format | QuantizedArray | None]:
    """Return a format, a recipe or a rounding of a model as a dict from patterns to formats or rounded weights.

    `rotated`: also formats with ``+had``. `name` is that of the caller, for errors.
    """
    rounded = getattr(format, "weights", None)
    if isinstance(rounded, Mapping):
        for key, value in rounded.items():
            if isinstance(value, RotatedArray):
                raise WrongValue(
                    f"{name}: format has {quoted(key)} rounded to {value.format}, expected arrays without rotation: "
                    "method= and inputs= round to such formats"
                )
        return {escaped(key): value for key, value in rounded.items() if isinstance(value, QuantizedArray)}
    if isinstance(format, Mapping):
        patterns(format)
        found = parse_recipe(format, also=(QuantizedArray,))
        for fmt in found.values():
            if is_rotated(fmt) and not rotated:
                raise fmt.refusal(f"{name}: format")
        return found
    return {"*": as_format(format, f"{name}: format", rotated=rotated)}


def weight_now(layer: Layer, name: str = "convert") -> torch.Tensor:
    """Return the weight that a layer computes with, in the form for the kernels."""
    with torch.no_grad():
        module = layer.module
        made = now(module, layer.attribute)
        if hasattr(module, "rounded"):
            made = module.rounded(made)
    if made.device.type == "meta":
        raise WrongType(f"{name}: {quoted(layer.name)} is on meta, without values: load the weights of the model first")
    if made.device.type != "cpu":
        raise WrongType(f"{name}: {quoted(layer.name)} is on {made.device}, expected the CPU: call model.cpu() first")
    return made.detach()


def packed_of(layer: Layer, weight: torch.Tensor, fmt: Format, method: str = "rtn") -> QuantizedArray:
    """Return a weight in a format, in the packed layer's form; without Hessians gptq means search.

    A weight that was trained in the format keeps its codes and scales.
    """
    check_rows(layer, fmt)
    trained = trained_form(layer, fmt)
    if trained is not None:
        return trained
    way = "search" if method != "rtn" and takes("search", fmt) else "rtn"
    return by_method(formed(layer, weight), fmt, form_axis(layer), way)


def trained_form(layer: Layer, fmt: Format) -> QuantizedArray | None:
    """Return a weight trained with rounding to a format, in the packed layer's form; None for others.

    Rounding the rounded values again may choose other codes and scales.
    """
    if layer.kind.startswith("conv_t"):
        found = unrounded_in(layer.module, layer.attribute, fmt)
        last = None if found is None else layer.module.parametrizations[layer.attribute][-1]
        if last is None or tuple(last.axis) != layer.axis:
            return None
        return quantize(formed(layer, found[0]), fmt, form_axis(layer), found[1])
    trained = trained_in(layer.module, layer.attribute, fmt)
    return formed_of(layer, trained) if trained is not None and trained.axis == layer.axis else None


def formed(layer: Layer, weight: torch.Tensor) -> torch.Tensor:
    """Return the values of a weight in the packed layer's form: outputs first, or filters of an image."""
    if layer.kind.startswith("conv"):
        if layer.module.transposed:
            weight = turned(weight, layer.module.groups)
        weight = weight.flatten(2)[..., None] if weight.dim() == 5 else weight
        return weight if weight.dim() == 4 else weight[:, :, None]
    return weight.t() if layer.axis == (0,) else weight


def form_axis(layer: Layer) -> tuple[int, ...]:
    """Return the axes that `formed` is summed along."""
    return (2, 3, 1) if layer.kind.startswith("conv") else (1,) if layer.axis == (0,) else layer.axis


def formed_of(layer: Layer, q: QuantizedArray) -> QuantizedArray:
    """Return a rounded weight, in the layer's own shape or as `formed`, in the packed layer's form."""
    check_rows(layer, q.format)
    shape = packed_shape(layer)
    if (tuple(q.shape), q.axis) == (shape, form_axis(layer)):
        return q
    if (tuple(q.shape), q.axis) != (layer.shape, layer.axis) or layer.kind.startswith("conv_t"):
        raise WrongValue(
            f"the rounded weight has shape {tuple(q.shape)} and axis {q.axis}, expected {layer.shape} and {layer.axis}"
        )
    return q.T if layer.axis == (0,) else q._remade(q.components, shape, form_axis(layer))


def check_rows(layer: Layer, fmt: Format) -> None:
    """Refuse a format whose rows cannot be decoded alone, for a weight that needs it."""
    if layer.kind.startswith("embedding") and not fmt.splits_into_rows:
        raise WrongValue(f"rows of {fmt} share blocks of scales, expected a format whose rows are decoded alone")
    if layer.kind == "experts" and not fmt.splits_into_rows:
        raise WrongValue(f"matrices of {fmt} share blocks of scales, expected a format whose rows are decoded alone")


def packed_shape(layer: Layer) -> tuple[int, ...]:
    """Return the shape of a weight in its packed layer."""
    if not layer.kind.startswith("conv"):
        return layer.shape[::-1] if layer.axis == (0,) else layer.shape
    k, c, *taps = layer.shape
    if layer.module.transposed:
        k, c = c * layer.module.groups, k // layer.module.groups
    return k, c, *{1: (1, *taps), 2: tuple(taps), 3: (prod(taps), 1)}[len(taps)]


def turned(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """Return filters of a transposed convolution as those of the convolution that computes it."""
    inputs, outputs = weight.shape[:2]
    split = weight.reshape(groups, inputs // groups, outputs, *weight.shape[2:]).transpose(1, 2)
    flat = split.reshape(groups * outputs, inputs // groups, *weight.shape[2:])
    return flat.flip(*range(2, weight.dim()))


def unturned(weight: torch.Tensor, layer: Layer) -> torch.Tensor:
    """Return filters of a transposed convolution from those that `formed` returns."""
    inputs, outputs, *taps = layer.shape
    groups = layer.module.groups
    flat = weight.reshape(groups * outputs, inputs // groups, *taps)
    flat = flat.flip(*range(2, flat.dim())).reshape(groups, outputs, inputs // groups, *taps)
    return flat.transpose(1, 2).reshape(layer.shape).contiguous()


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
