"""`without_recipe`: the model that `train_in` changed, with the layers of PyTorch again."""

from __future__ import annotations

import copy
from typing import Any

import torch

from ....base.errors import WrongType, WrongValue, shown
from ....base.texts import sentence
from ..reading import is_called
from .attention import Calls, RecipeAttention, _Caller
from .layers import RecipeLayer
from .model import OUTPUT, begin_step, states_of

STATES = ("recipe_state", "recipe_states", "recipe_attention", "recipe_calls")


def without_recipe(model: Any) -> Any:
    """Return a copy of a model of `train_in` with the layers of PyTorch and the trained weights.

    Parameters
    ----------
    model : torch.nn.Module
        It stays as it is, and its training can continue.

    Returns
    -------
    torch.nn.Module
        For `convert`, `hc.study`, `hc.ptq.search`, exports, and for another recipe.

    Raises
    ------
    ValueError
        The model has no layers with a recipe, or PyTorch cannot copy it.
    TypeError
        model is no module.

    Examples
    --------
    >>> from heterocompute.interop import torch as ht
    >>> plain = ht.without_recipe(net)  # doctest: +SKIP
    >>> small = ht.convert(plain, "int8")  # doctest: +SKIP
    """
    if not isinstance(model, torch.nn.Module):
        raise WrongType(f"without_recipe: model is {shown(model)}, expected a torch.nn.Module")
    if not states_of(model):
        raise WrongValue("without_recipe: model has no layer with a recipe, expected a model of train_in")
    try:
        plain = copy.deepcopy(model)
    except (RuntimeError, TypeError, NotImplementedError) as problem:
        raise WrongValue(
            f"without_recipe: the model cannot be copied ({sentence(problem)}), expected tensors that torch can copy"
        ) from problem
    outputs = [module.out_proj for module in plain.modules() if isinstance(module, torch.nn.MultiheadAttention)]
    for module in plain.modules():
        is_layer = isinstance(module, (RecipeLayer, RecipeAttention))
        if is_layer:
            kind = next(one for one in type(module).__mro__ if one.__module__.startswith("torch.nn."))
            module.__class__ = OUTPUT if any(module is one for one in outputs) else kind
        for hooks in (module._forward_pre_hooks, module._forward_hooks, module._state_dict_hooks,
                      module._load_state_dict_pre_hooks):  # fmt: skip
            for key, hook in list(hooks.items()):
                if _is_of_recipe(hook, is_layer):
                    del hooks[key]
                    module._forward_hooks_always_called.pop(key, None)
        for name in STATES:
            vars(module).pop(name, None)
    return plain


def _is_of_recipe(hook: Any, is_layer: bool) -> bool:
    """Tell whether `train_in` registered a hook, which may be wrapped, or the method of an object."""
    function = getattr(hook, "hook", hook)
    owner = getattr(function, "__self__", function)
    return function is begin_step or (is_layer and function is is_called) or isinstance(owner, (Calls, _Caller))
