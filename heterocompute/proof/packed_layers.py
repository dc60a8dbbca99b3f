"""The layer of a module with the values of a packed one: a format as the reason of a difference."""

from __future__ import annotations

import copy
from collections.abc import Callable
from math import prod
from typing import Any

from ..products.quantize import fake_quantize


def with_packed_values(plain: Any, packed: Any, args: tuple[Any, ...]) -> tuple[Callable[..., Any], str] | None:
    """Return a layer with the unpacked weight of another one, and what its weight and inputs are in words.

    Parameters
    ----------
    plain, packed : torch.nn.Module
    args : tuple
        The arguments of the layer by position.

    Returns
    -------
    (callable, str) or None
        None if the second layer has no packed weight in place of a float one of the same shape, or rounds inputs that
        are several arguments or volumes.
    """
    import torch  # optional

    own: Any = getattr(plain, "weight", None)
    weight: Any = getattr(packed, "weight", None)
    if not hasattr(packed, "_values") or not isinstance(own, torch.Tensor) or own.numel() != prod(weight.shape):
        return None
    values = torch.from_numpy(packed._values()).to(own.dtype)
    if values.shape != own.shape:
        return None
    rounds = weight.activations is not None and not isinstance(plain, (torch.nn.Embedding, torch.nn.EmbeddingBag))
    if rounds and (len(args) != 1 or own.ndim == 5):  # volumes are rounded window by window
        return None
    if "weight" in plain._parameters:
        made = copy.deepcopy(plain)
        made.weight.data.copy_(values)
    else:  # computed by a parametrization or a hook
        made = with_weight(plain, values, plain.bias)

    def layer(*given: Any, **named: Any) -> Any:
        if rounds:
            x, n = given[0], own.ndim - 2
            channel = x.dim() - n - 1  # of an image; an input of a linear layer is its last axis
            axis: Any = (*range(channel + 1, x.dim()), channel) if n else -1
            floats = packed._turned(x.detach().float().cpu())
            near = torch.from_numpy(fake_quantize(floats.numpy(), weight.activations, axis))
            given = (packed._turned(near).to(x),)
        return made(*given, **named)

    words = f"b has its weight in {weight.format}" + (f", its inputs in {weight.activations}" if rounds else "")
    return layer, words


def with_weight(layer: Any, weight: Any, bias: Any) -> Any:
    """Return a plain linear layer or convolution with the sizes of another one, and this weight and bias."""
    import torch  # optional

    kind: Any = next(one for one in type(layer).__mro__ if one.__module__.startswith("torch.nn.modules."))
    made = kind.__new__(kind)
    torch.nn.Module.__init__(made)
    made.__dict__.update(
        {key: value for key, value in vars(layer).items() if key not in vars(made) and key != "weight"}
    )
    made.weight = torch.nn.Parameter(weight.detach(), requires_grad=False)
    made.bias = None if bias is None else torch.nn.Parameter(bias.detach(), requires_grad=False)
    return made.eval()
