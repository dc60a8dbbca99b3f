"""Weights in the form of the packed layers, outputs first or filters of an image, and recipes of formats."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import torch

from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongType, WrongValue
from ...base.texts import quoted
from ...files.recipes import parse_recipe
from ...files.selection import escaped, patterns
from ...formats import Format, is_rotated
from ...products.arguments import as_format
from ...ptq.methods import by_method, takes
from .reading import now, trained_in
from .walk import Layer


def recipe_of(format: object, rotated: bool = False) -> dict[str, Format | QuantizedArray | None]:
    """Return a format, a recipe or a rounding of a model as a dict from patterns to formats or rounded weights.

    `rotated`: also formats with ``+had``.
    """
    rounded = getattr(format, "weights", None)
    if isinstance(rounded, Mapping):
        return {escaped(name): value for name, value in rounded.items() if isinstance(value, QuantizedArray)}
    if isinstance(format, Mapping):
        patterns(format)
        found = parse_recipe(format, also=(QuantizedArray,))
        for fmt in found.values():
            if is_rotated(fmt) and not rotated:
                raise fmt.refusal("convert: format")
        return found
    return {"*": as_format(format, "convert: format", rotated=rotated)}


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
    trained = None if layer.kind.startswith("conv_t") else trained_in(layer.module, layer.attribute, fmt)
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
