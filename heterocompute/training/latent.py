"""Weights before rounding: the arrays of layers that round them in each forward pass."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ..base.errors import WrongValue

_LAYERS: weakref.WeakKeyDictionary[Any, tuple[str, str]] = weakref.WeakKeyDictionary()


def keep(layer: object, name: str, fmt: str) -> None:
    """Remember a layer, as long as it lives.

    Parameters
    ----------
    layer : torch.nn.Module
    name : str
        Of the parameter that is rounded in each forward pass.
    """
    _LAYERS[layer] = name, fmt


def refuse_latent(array: np.ndarray[Any, Any], name: str) -> None:
    """Refuse an unrounded weight of a layer that was trained with rounding.

    Parameters
    ----------
    name : str
        Who asks and what it is there.

    Raises
    ------
    ValueError
        The array is the memory of an existing layer's weight.
    """
    place = array.__array_interface__["data"][0]
    for layer, (parameter, fmt) in list(_LAYERS.items()):
        weight = layer._parameters.get(parameter)
        if weight is not None and array.size and weight.device.type == "cpu" and weight.data_ptr() == place:
            raise WrongValue(
                f"{name} is the weight before rounding of a layer that is trained with {fmt}, expected what the layer "
                "computes with, such as packed() of heterocompute.interop.torch"
            )
