"""`convert`: a model with its layers replaced by packed ones."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ...arrays.quantized import QuantizedArray
from ...base.texts import quoted
from ...files.recipes import parse_recipe
from ...files.selection import escaped, patterns
from ...formats import Format
from ...products.arguments import as_format
from ...products.quantize import quantize
from . import modules
from .attention import PackedMultiheadAttention
from .modules import Packed
from .reading import is_called, now
from .walk import Layer, check_matches, every_layer, matching
from .weights import PackedWeight

__all__ = ["convert"]


def convert(
    model: torch.nn.Module,
    format: Format | str | Mapping[str, Format | str | None] | Any,
    *,
    activations: Format | str | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    inplace: bool = False,
) -> Any:
    """Replace the layers of a model by layers with packed weights.

    Parameters
    ----------
    model : torch.nn.Module
        On the CPU. Weights that pruning or parametrizations compute are packed as they are computed now.
    format : Format, str, mapping, Plan or Rounded
        One format, or a recipe: pattern -> format, where the first pattern that fits wins and ``"skip"`` or None leaves
        a layer as it is. A recipe packs the layers that one of its patterns fits. The value of a pattern may also be
        the rounded weight itself, a QuantizedArray. `heterocompute.ptq.search` and `heterocompute.ptq.quantize` return
        such weights: they are packed as they are.
    activations : Format or str, optional
        Round the inputs of each packed layer to this format.
    include, exclude : str or iterable of str, optional
        Patterns of names of weights or modules, as of `layers`.
    inplace : bool
        Change the model itself. By default the packed layers are put into a copy.

    Returns
    -------
    torch.nn.Module
        The copy, or the model. Where the model itself is one layer, that layer.

    Raises
    ------
    TypeError
        The model is not a module, or is not on the CPU.
    ValueError
        A pattern that fits nothing, no layer to pack, a format that does not fit a weight.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    >>> small = convert(model, {"2": "int8", "*": "int4-g32"}, activations="int8")
    >>> small[0].weight.format, small[2].weight.format
    (Int(bits=4, group=32, symmetric=True, scale='f32'), Int(bits=8, group=None, symmetric=True, scale='f32'))
    """
    found = every_layer(model, "convert")
    recipe = recipe_of(format)
    wanted, unwanted = patterns(include), patterns(exclude)
    check_matches(model, found, (*wanted, *unwanted, *(recipe if list(recipe) != ["*"] else ())), "convert")
    if activations is not None:
        activations = as_format(activations, "convert: activations")
    included, excluded = (matching(dict.fromkeys(some, True)) for some in (wanted, unwanted))
    of_layer = matching({pattern: (fmt,) for pattern, fmt in recipe.items()})
    chosen = []
    for layer in found:
        fmt = (of_layer(layer) or (None,))[0]
        if fmt is None or layer.packed is not None or excluded(layer):
            continue
        if layer.problem:
            if isinstance(fmt, QuantizedArray):
                raise ValueError(f"convert: {quoted(layer.name)} is rounded, but cannot be packed: {layer.problem}")
            continue
        if wanted and not included(layer):
            continue
        chosen.append((layer, fmt))
    if not chosen:
        raise ValueError(f"convert: no layer is left to pack: {_why_none(found)}")
    weights = packed_weights(chosen, activations)
    if not inplace:
        model = copied(model, chosen)
    return replaced(model, [layer for layer, _ in chosen], weights)


def recipe_of(format: Any) -> dict[str, Format | QuantizedArray | None]:
    """Return a format, a recipe, or what rounded a model, as pattern -> format or rounded weight."""
    rounded = getattr(format, "weights", None)
    if isinstance(rounded, Mapping):
        return {escaped(name): value for name, value in rounded.items() if isinstance(value, QuantizedArray)}
    if isinstance(format, Mapping):
        patterns(format)
        return parse_recipe(format)
    return {"*": as_format(format, "convert: format")}


def _why_none(found: list[Layer]) -> str:
    reasons = [f"{quoted(layer.name)}: {layer.problem or 'packed already'}" for layer in found]
    reasons = [one for layer, one in zip(found, reasons, strict=True) if layer.problem or layer.packed is not None]
    return reasons[0] if reasons else ("the patterns leave out all" if found else "the model has no weights")


def weight_now(layer: Layer, name: str = "convert") -> torch.Tensor:
    """Return the weight that a layer computes with, as the kernels take it."""
    with torch.no_grad():
        module = layer.module
        made = now(module, layer.attribute)
        if hasattr(module, "rounded"):
            made = module.rounded(made)
    if made.device.type == "meta":
        raise TypeError(f"{name}: {quoted(layer.name)} is on meta, without values: load the weights of the model first")
    if made.device.type != "cpu":
        raise TypeError(f"{name}: {quoted(layer.name)} is on {made.device}, expected the CPU: call model.cpu() first")
    return made.detach()


def packed_weights(
    chosen: list[tuple[Layer, Format | QuantizedArray]], activations: Format | None
) -> list[PackedWeight]:
    """Return the packed weight of each layer; tied layers with one format have the same."""
    known: dict[Any, PackedWeight] = {}
    found = []
    for layer, fmt in chosen:
        way = id(fmt) if isinstance(fmt, QuantizedArray) else fmt
        key = (*_identity(layer), way, layer.axis, layer.kind.startswith("conv_t"))
        if key not in known:
            try:
                q = packed_of(layer, weight_now(layer), fmt) if isinstance(fmt, Format) else formed_of(layer, fmt)
            except ValueError as problem:
                raise ValueError(f"convert: {quoted(layer.name)}: {problem}") from None
            known[key] = PackedWeight(q, activations)
        found.append(known[key])
    return found


def packed_of(layer: Layer, weight: torch.Tensor, fmt: Format) -> QuantizedArray:
    """Return a weight in a format, in the form that the packed layer has it."""
    check_rows(layer, fmt)
    return quantize(formed(layer, weight), fmt, form_axis(layer))


def formed(layer: Layer, weight: torch.Tensor) -> torch.Tensor:
    """Return the values of a weight in the form that the packed layer has it: outputs first, filters of an image."""
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
    """Return a rounded weight, in the layer's own shape or as `formed`, in the form of the packed layer."""
    check_rows(layer, q.format)
    shape = tuple(formed(layer, torch.empty(layer.shape, device="meta")).shape)
    if (tuple(q.shape), q.axis) == (shape, form_axis(layer)):
        return q
    if (tuple(q.shape), q.axis) != (layer.shape, layer.axis) or layer.kind.startswith("conv_t"):
        raise ValueError(
            f"the rounded weight has shape {tuple(q.shape)} and axis {q.axis}, expected {layer.shape} and {layer.axis}"
        )
    return q.T if layer.axis == (0,) else q._remade(q.components, shape, form_axis(layer))


def check_rows(layer: Layer, fmt: Format) -> None:
    """Refuse a format for a weight of which rows are decoded alone."""
    if layer.kind.startswith("embedding") and not fmt.splits_into_rows:
        raise ValueError(f"rows of {fmt} share blocks of scales, expected a format whose rows are decoded alone")
    if layer.kind == "experts" and not fmt.splits_into_rows:
        raise ValueError(f"matrices of {fmt} share blocks of scales, expected a format whose rows are decoded alone")


def turned(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """Return filters of a transposed convolution as those of the convolution that computes it."""
    inputs, outputs = weight.shape[:2]
    split = weight.reshape(groups, inputs // groups, outputs, *weight.shape[2:]).transpose(1, 2)
    flat = split.reshape(groups * outputs, inputs // groups, *weight.shape[2:])
    return flat.flip(*range(2, weight.dim()))


def _identity(layer: Layer) -> tuple[Any, ...]:
    """Return what two layers have in common that are tied: the parameter, or the module that computes the weight."""
    parameter = layer.module._parameters.get(layer.attribute)
    return (id(layer.module), layer.attribute) if parameter is None else (id(parameter),)


def copied(model: Any, chosen: list[tuple[Layer, Any]]) -> Any:
    """Return a copy of a model that does not copy the weights that are replaced."""
    memo: dict[int, Any] = {}
    for layer, _ in chosen:
        parameter = layer.module._parameters.get(layer.attribute)
        if parameter is not None:
            memo[id(parameter)] = parameter
    for module in model.modules():  # what hooks have computed: PyTorch refuses to copy such a tensor
        for value in module.__dict__.values():
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach()
    return copy.deepcopy(model, memo)


BUILDERS: dict[str, Any] = {
    "linear": modules.PackedLinear,
    "embedding": modules.PackedEmbedding,
    "embedding_bag": modules.PackedEmbeddingBag,
    **{f"conv{n}d": getattr(modules, f"PackedConv{n}d") for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": getattr(modules, f"PackedConvTranspose{n}d") for n in (1, 2, 3)},
}


def replaced(model: Any, chosen: list[Layer], weights: list[PackedWeight]) -> Any:
    """Put packed layers into a model; return the model."""
    made: dict[int, Any] = {}
    for layer, weight in zip(chosen, weights, strict=True):
        old = model.get_submodule(layer.path)
        if layer.kind not in BUILDERS:  # the module stays, its weight is replaced
            old._parameters.pop(layer.attribute, None)
            setattr(old, layer.attribute, weight)
            if layer.kind == "experts":
                _use_own_forward(old)
            continue
        if isinstance(old, Packed):  # the same module in a second place
            continue
        new = made.get(id(old))
        if new is None:
            new = made[id(old)] = _in_place_of(old, BUILDERS[layer.kind].from_module(old, weight))
        if not layer.path:
            return new
        parent, _, name = layer.path.rpartition(".")
        setattr(model.get_submodule(parent), name, new)
    for module in model.modules():
        if type(module).forward is torch.nn.MultiheadAttention.forward:
            if any(isinstance(one, (Packed, PackedWeight)) for one in module._modules.values()):
                module.__class__ = PackedMultiheadAttention
    return model


def _in_place_of(old: Any, new: Any) -> Any:
    """Give a packed layer the mode and the hooks of the layer that it replaces."""
    new.train(old.training)
    for key, hook in old._forward_pre_hooks.items():
        if not hasattr(hook, "apply_mask") and not hasattr(hook, "compute_weight") and hook is not is_called:
            new._forward_pre_hooks[key] = hook
            if key in old._forward_pre_hooks_with_kwargs:
                new._forward_pre_hooks_with_kwargs[key] = True
    for name in ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"):
        getattr(new, name).update(getattr(old, name))
    return new


def _use_own_forward(experts: Any) -> None:
    """Let experts of transformers multiply matrix by matrix: their other ways take all matrices as one tensor."""
    if hasattr(experts, "config"):
        experts.config = copy.copy(experts.config)
        experts.config._experts_implementation = "eager"
