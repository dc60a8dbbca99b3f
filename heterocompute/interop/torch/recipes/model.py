"""`train_in`: a model whose layers use the formats of a recipe.

The classes of the layers change in place, so that parameters, names and hooks stay.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import torch
from torch.nn.utils.parametrize import is_parametrized

from ....base.errors import WrongType, WrongValue, shown
from ....files.selection import FirstMatch
from ....formats import Format
from ....training.step.layer import LayerState
from ....training.step.named import as_recipe
from ....training.step.recipe import FP32, Recipe
from ..reading import is_called
from ..walk import check_matches, every_layer
from .attention import Calls, RecipeAttention, attention_in, attention_states, states_of_module
from .layers import ARRAYS, RecipeConv1d, RecipeConv2d, RecipeLayer, RecipeLinear, exclude_from_compiling

# Modules that multiply by matrices without being layers that the recipe knows.
OPAQUE = (
    torch.nn.RNNBase, torch.nn.RNNCellBase, torch.nn.Bilinear, torch.nn.Conv3d, torch.nn.modules.conv._ConvTransposeNd,
)  # fmt: skip
SPECIAL = re.compile(r"([*?[])")  # characters of patterns
OUTPUT = torch.nn.modules.linear.NonDynamicallyQuantizableLinear
CLASSES: dict[type, type] = {
    torch.nn.Linear: RecipeLinear, torch.nn.Conv1d: RecipeConv1d, torch.nn.Conv2d: RecipeConv2d,
}  # fmt: skip


def train_in(model: Any, recipe: Recipe | str) -> Any:
    """Train the linear layers, convolutions and attention of a model in the formats of a recipe.

    Parameters
    ----------
    model : torch.nn.Module
        A model with float32 parameters. Its layers change in place. Parameters stay the same tensors.
    recipe : Recipe or str
        A recipe, or the name of a published recipe.

    Returns
    -------
    torch.nn.Module
        The model. A call of it in training mode with gradients begins a step: seeds change, and the largest magnitudes
        of the last step enter the histories of `Delayed`. `state_dict` contains steps and histories.

    Raises
    ------
    TypeError, ValueError
        The recipe is unknown. A group does not divide the rows of a layer. A module multiplies by matrices inside, as
        `torch.nn.LSTM`, and `keep` does not set it to None. A layer is rounded already.

    Notes
    -----
    Attention is `torch.nn.MultiheadAttention`, and `scaled_dot_product_attention` in modules of the model. Everything
    else stays float32: embeddings, norms, matmuls of functions such as ``@``. The second derivative is not available.
    Inside of `torch.autocast` the layers raise an error.

    Examples
    --------
    >>> from heterocompute.interop import torch as ht
    >>> net = ht.train_in(torch.nn.Sequential(torch.nn.Linear(64, 32)), "mxfp8")  # doctest: +SKIP
    >>> net(torch.ones(2, 64)).sum().backward()  # doctest: +SKIP
    """
    chosen = as_recipe(recipe, "train_in: recipe")
    if chosen.keep:
        check_matches(model, every_layer(model, "train_in"), chosen.keep, "train_in")
    elif not isinstance(model, torch.nn.Module):
        raise WrongType(f"train_in: model is {shown(model)}, expected a torch.nn.Module")
    chosen = _resolved(model, chosen)
    found: list[tuple[Any, LayerState]] = []
    heads: list[tuple[Any, str]] = []
    covered: list[str] = []
    for path, module in model.named_modules():
        if any(path.startswith(f"{one}.") for one in covered):
            continue
        if isinstance(module, torch.nn.MultiheadAttention):
            if chosen.kept(path) == FP32:
                covered.append(path)
            else:
                _check_attention(module, path)
                heads.append((module, path))
        elif isinstance(module, OPAQUE):
            if chosen.kept(path) != FP32:
                raise WrongValue(
                    f"train_in: {path or 'model'} is a {type(module).__name__}, whose matmuls are not layers, expected "
                    f"Linear, Conv1d or Conv2d: set keep={{{shown(path)}: None}} to leave it in float32"
                )
            covered.append(path)
        elif isinstance(module, tuple(CLASSES)):
            state = _state_of(module, path, len(found), chosen)
            if state is not None:
                found.append((module, state))
    if not found and not heads:
        raise WrongValue("train_in: model has no Linear, Conv1d, Conv2d or MultiheadAttention to round")
    count, projections = len(found), list[dict[str, LayerState]]()
    for module, path in heads:  # all checks before the first change
        projections.append(attention_states(module, path, count, chosen))
        count += len(projections[-1])
    for (module, path), states in zip(heads, projections, strict=True):
        attention_in(module, path, states, chosen)
        module.register_forward_pre_hook(is_called)  # no fast path, which reads weights
    exclude_from_compiling()
    for module, state in found:
        module.__class__ = CLASSES[_class_of(module)]
        module.recipe_state = state
        module.register_forward_pre_hook(is_called)
    calls, callers = Calls(chosen), _callers(model, covered)
    if any(not calls.state(f"{path}.attention".lstrip(".")).is_plain for path in callers):
        calls.by_name.clear()
        calls.attach(model, callers)
    model.register_forward_pre_hook(begin_step)
    return model


def _resolved(model: Any, recipe: Recipe) -> Recipe:
    """Return the recipe with the names of layers instead of patterns, which may match a module around a layer."""
    if not recipe.keep:
        return recipe
    first = FirstMatch({pattern: (index, fmt) for index, (pattern, fmt) in enumerate(recipe.keep.items())})
    found: dict[str, Format] = {}

    def keep(name: str, *others: str) -> None:
        parts = name.split(".")
        around = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
        hits = [hit for hit in map(first, (*others, *around)) if hit is not None]
        if hits:
            found[SPECIAL.sub(r"[\1]", name)] = min(hits, key=lambda hit: hit[0])[1]

    for path, module in model.named_modules():
        keep(path, f"{path}.weight")
        if not isinstance(module, RecipeLayer):
            inside = f"{path}.attention".lstrip(".")
            keep(inside)
            if inside in found:
                found[f"{inside}[0-9]*"] = found[inside]
        if isinstance(module, torch.nn.MultiheadAttention):
            for part in ("in_proj", "q_proj", "k_proj", "v_proj"):
                name = f"{path}.{part}".lstrip(".")
                keep(name, f"{name}_weight")
    return replace(recipe, keep=found)


def begin_step(model: Any, _: object = None) -> None:
    """Begin a training step of all layers of a recipe, if the model is in training mode."""
    if model.training and torch.is_grad_enabled():
        for module in model.modules():
            for state in states_of_module(module):
                state.begin()
            if isinstance(vars(module).get("recipe_calls"), Calls):
                module.recipe_calls.begin()


def states_of(model: Any) -> list[Any]:
    """Return the states of the layers that `train_in` changed, and last the attentions of functions as one `Calls`."""
    layers = [state for module in model.modules() for state in states_of_module(module)]
    return layers + [module.recipe_calls for module in model.modules() if "recipe_calls" in vars(module)]


def _class_of(module: Any) -> type:
    """Return the class of PyTorch that a layer has: `MultiheadAttention` has a Linear of its own class."""
    return torch.nn.Linear if type(module) is OUTPUT else type(module)


def _callers(model: Any, covered: list[str]) -> dict[str, Any]:
    """Return the modules that may call functions, by path: those that are not PyTorch's own."""
    return {
        path: module
        for path, module in model.named_modules()
        if not type(module).__module__.startswith("torch.nn.modules.")
        and not isinstance(module, (RecipeLayer, RecipeAttention))
        and not any(path.startswith(f"{one}.") for one in covered)
    }


def _check_attention(module: Any, path: str) -> None:
    if isinstance(module, RecipeAttention):
        raise WrongValue(f"train_in: layer {shown(path)} has a recipe already, expected a model without one")
    if type(module) is not torch.nn.MultiheadAttention or is_parametrized(module) or "forward" in vars(module):
        raise WrongValue(
            f"train_in: layer {shown(path)} is a {type(module).__name__} with a forward pass or parametrization of its "
            f"own, expected one of PyTorch: set keep={{{shown(path)}: None}}"
        )
    for name, p in module.named_parameters(recurse=False):
        if p.dtype != torch.float32:
            raise WrongType(f"train_in: layer {shown(path)} has {name} of {p.dtype}, expected torch.float32")


def _state_of(module: Any, path: str, index: int, recipe: Recipe) -> LayerState | None:
    """Return the state of a layer, or None if it is left in float32."""
    if isinstance(module, RecipeLayer):
        raise WrongValue(f"train_in: layer {shown(path)} has a recipe already, expected a model without one")
    if _class_of(module) not in CLASSES or is_parametrized(module) or "forward" in vars(module):
        if recipe.kept(path) == FP32:
            return None
        kind = f"{type(module).__name__} with a forward pass or parametrization of its own"
        raise WrongValue(
            f"train_in: layer {shown(path)} is a {kind}, expected one of PyTorch: set keep={{{shown(path)}: None}}"
        )
    if module.weight.dtype != torch.float32:
        raise WrongType(f"train_in: layer {shown(path)} has weights of {module.weight.dtype}, expected torch.float32")
    if getattr(module, "padding_mode", "zeros") != "zeros" or getattr(module, "padding", None) == "same":
        raise WrongValue(
            f"train_in: layer {shown(path)} has padding {shown(module.padding)} of {module.padding_mode}, expected "
            "numbers and zeros"
        )
    state = LayerState(recipe, path, index, ARRAYS)
    shape = module.weight.flatten(1).shape
    state.check(shape[1], shape[0] // getattr(module, "groups", 1))
    return state
