"""Weights before rounding: which arrays are those of a layer that rounds them in each forward pass."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

__all__ = ["keep", "refuse_latent"]

_LAYERS: weakref.WeakSet[Any] = weakref.WeakSet()


def keep(layer: Any) -> None:
    """Remember a layer, as long as it lives.

    Parameters
    ----------
    layer : object
        Has `fmt`, and `weight`, the weight before rounding, of which `data_ptr()` says where it lies.
    """
    _LAYERS.add(layer)


def refuse_latent(array: np.ndarray[Any, Any], name: str) -> None:
    """Refuse a weight before rounding: rounded in another way it is not what the layer was trained with.

    Parameters
    ----------
    array : ndarray
    name : str
        Who asks and what it is there.

    Raises
    ------
    ValueError
        The array is the memory of a living layer's weight.
    """
    place = array.__array_interface__["data"][0]
    for layer in list(_LAYERS):
        weight = getattr(layer, "_parameters", {}).get("weight")
        if weight is not None and array.size and weight.device.type == "cpu" and weight.data_ptr() == place:
            raise ValueError(
                f"{name} is the weight before rounding of a QuantLinear of {layer.fmt}, expected what it computes "
                "with: layer.packed(), or interop.torch.packed(model)"
            )
