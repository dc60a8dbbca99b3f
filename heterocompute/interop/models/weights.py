"""The weights of a PyTorch model that are calibrated, rounded or studied, and the computation of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...base.errors import WrongValue
from ...base.texts import quoted
from ...files.selection import patterns
from ..torch.reading import maker_of
from ..torch.walk import Layer, check_matches, every_layer, matching


def chosen_layers(
    model: object, include: str | Iterable[str] | None, exclude: str | Iterable[str] | None, name: str
) -> list[Layer]:
    """Return the float weights of a model that no pattern excludes.

    Parameters
    ----------
    model : torch.nn.Module
    include, exclude : str or iterable of str, optional
        Patterns of names of weights or modules.
    name : str
        Of the function, for errors.

    Raises
    ------
    ValueError
        A pattern matches nothing, no weight is left, or a parameter is not on the CPU.
    """
    check_place(model, name)
    wanted, unwanted = patterns(include), patterns(exclude)
    everything = every_layer(model, name)
    check_matches(model, everything, (*wanted, *unwanted), name)
    included, excluded = (matching(dict.fromkeys(some, True)) for some in (wanted, unwanted))
    found = [
        layer
        for layer in everything
        if layer.packed is None and not excluded(layer) and (not wanted or included(layer))
    ]
    if not found:
        raise WrongValue(f"{name}: the model has no float weight of two or more dimensions that the patterns leave")
    return found


def weight_source(layer: Layer) -> str:
    """Return how a layer computes its weight: one of the words below.

    Returns
    -------
    str
        ``"held"``: it is a parameter; ``"rounded"``: `QuantLinear`, in each forward pass; ``"parametrized"``;
        ``"hooked"``: a hook before each forward pass, such as that of `torch.nn.utils.prune`.
    """
    if layer.attribute in getattr(layer.module, "parametrizations", {}):
        return "parametrized"
    if layer.attribute == "weight" and hasattr(layer.module, "rounded"):
        return "rounded"
    return "held" if maker_of(layer.module, layer.attribute)[0] is None else "hooked"


def check_place(model: Any, name: str) -> None:
    """Refuse a model whose parameters are not in the memory of the CPU.

    Parameters
    ----------
    model : torch.nn.Module
    name : str
        Of the function, for errors.

    Raises
    ------
    ValueError
        A parameter is on another device.
    """
    for path, one in model.named_parameters():
        if one.device.type == "meta":
            raise WrongValue(f"{name}: {quoted(path)} of the model is on meta, without values: load the weights first")
        if one.device.type != "cpu":
            raise WrongValue(
                f"{name}: {quoted(path)} of the model is on {one.device}, expected the CPU: call model.cpu()"
            )
