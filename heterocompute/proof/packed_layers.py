"""The layer of a module with the values of a packed one: a format as the reason of a difference."""

from __future__ import annotations

import copy
from collections.abc import Callable
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
        None if the second layer has no packed weight in place of a float one of the same shape, or rounds inputs of
        another layer than a linear one.
    """
    own: Any = getattr(plain, "weight", None)
    weight: Any = getattr(packed, "weight", None)
    if not hasattr(weight, "activations") or hasattr(own, "activations") or getattr(own, "shape", None) != weight.shape:
        return None
    rounds = weight.activations is not None
    if rounds and (own.ndim != 2 or len(args) != 1):
        return None
    made = copy.deepcopy(plain)
    made.weight.data.copy_(weight.dequantize())

    def layer(*given: Any, **named: Any) -> Any:
        if rounds:
            values = fake_quantize(given[0].detach().float().cpu().numpy(), weight.activations)
            given = (given[0].new_tensor(values),)
        return made(*given, **named)

    words = f"b has its weight in {weight.format}" + (f", its inputs in {weight.activations}" if rounds else "")
    return layer, words
