"""Copies of a PyTorch model that share its parameters: a study evaluates many and keeps one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...base.errors import WrongValue
from ...base.texts import quoted
from ..torch.carrying import copied
from ..torch.walk import every_layer
from .weights import weight_source


def shared_copy(model: Any, name: str) -> Any:
    """Return a copy of a module with the same parameters: the same tensors. Buffers are copies.

    Parameters
    ----------
    model : torch.nn.Module
    name : str
        Of the calling function, for errors.

    Returns
    -------
    torch.nn.Module
    """
    parameters = {id(one): one for one in model.parameters()}
    return copied(model, parameters, model.modules(), name, "a model without it")


def put(model: object, values: Mapping[str, Any], name: str) -> None:
    """Replace weights of a module by new parameters; tied weights stay tied.

    Parameters
    ----------
    model : torch.nn.Module
        A copy of the caller's.
    values : mapping of str to array_like
        By the names of `heterocompute.interop.torch.layers`.
    name : str
        Of the function.

    Raises
    ------
    ValueError
        A weight is not a parameter, but computed by a parametrization or a hook.
    """
    import torch  # optional

    copies: dict[int, Any] = {}
    for weight in every_layer(model, name):
        if weight.name not in values:
            continue
        before = weight.module._parameters.get(weight.attribute)
        if before is None or weight_source(weight) != "held":
            raise WrongValue(
                f"{name}: {quoted(weight.name)} is computed in each forward pass, expected a parameter: "
                "torch.nn.utils.parametrize.remove_parametrizations or torch.nn.utils.prune.remove make it one"
            )
        if id(before) not in copies:
            tensor = torch.from_numpy(np.array(values[weight.name])).to(before.dtype)
            copies[id(before)] = torch.nn.Parameter(tensor.reshape(before.shape), requires_grad=before.requires_grad)
        weight.module._parameters[weight.attribute] = copies[id(before)]
