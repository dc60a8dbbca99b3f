"""The weights of a model: their names, the modules that hold them, and whether they can be packed.

This is the one place that knows kinds of modules. Patterns are those of the commands: ``*``, ``?``, ``[abc]``; they
fit the name of a weight (``encoder.0.weight``) or of its module (``encoder.0``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch.nn.utils.parametrize import is_parametrized

from ...base.texts import quoted
from ...base.values import shown
from ...files.selection import FirstMatch, patterns, unknown
from .modules import Packed
from .reading import maker_of
from .weights import PackedWeight

__all__ = ["Layer", "check_matches", "layers", "matching"]

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Layer:
    """A weight of a model.

    Attributes
    ----------
    name : str
        Of the weight in the model, ``encoder.0.weight``: that of the parameter before pruning or parametrizations.
    path : str
        Of the module, ``encoder.0``; empty where the model itself is the layer.
    attribute : str
        Of the weight in the module.
    module : torch.nn.Module
        The module that holds the weight.
    kind : str
        ``linear``, or the name of the class where it cannot be packed.
    shape : tuple of int
        Of the weight.
    axis : tuple of int
        Axes that the module sums along.
    problem : str
        Why the weight cannot be packed; empty where it can.
    packed : PackedWeight or None
        The weight, where it is packed already.
    """

    name: str
    path: str
    attribute: str
    module: Any = field(repr=False)
    kind: str
    shape: tuple[int, ...]
    axis: tuple[int, ...] = ()
    problem: str = ""
    packed: PackedWeight | None = field(default=None, repr=False)


def layers(
    model: torch.nn.Module,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
) -> list[Layer]:
    """Return the weights of a model, in its order: those that can be packed, and the others with the reason.

    Parameters
    ----------
    model : torch.nn.Module
    include : str or iterable of str, optional
        Patterns of names of weights or modules; only weights that fit one of them are returned.
    exclude : str or iterable of str, optional
        Weights that fit one of these patterns are left out, also against `include`.

    Returns
    -------
    list of Layer
        Parameters of floats with two dimensions or more, and weights that are packed already. A module that is used in
        two places is returned at each.

    Raises
    ------
    TypeError
        The model is not a module.
    ValueError
        A pattern that fits nothing in the model.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.LSTM(8, 8))
    >>> [(layer.name, layer.kind) for layer in layers(model, exclude="*_hh_*")]
    [('0.weight', 'linear'), ('1.weight_ih_l0', 'LSTM')]
    """
    found = every_layer(model, "layers")
    wanted, unwanted = patterns(include), patterns(exclude)
    check_matches(model, found, (*wanted, *unwanted), "layers")
    included, excluded = (matching(dict.fromkeys(some, True)) for some in (wanted, unwanted))
    return [layer for layer in found if not excluded(layer) and (not wanted or included(layer))]


def matching(table: Mapping[str, Value]) -> Any:
    """Return the function of a layer that gives the value of the first pattern that fits it, or None."""
    first = FirstMatch({pattern: (index, value) for index, (pattern, value) in enumerate(table.items())})

    def of_layer(layer: Layer) -> Value | None:
        hits = [hit for hit in (first(layer.name), first(layer.path)) if hit is not None]
        return min(hits, key=lambda hit: hit[0])[1] if hits else None

    return of_layer


def check_matches(model: Any, found: list[Layer], wanted: Iterable[str], name: str) -> None:
    """Raise ValueError for a pattern that fits neither a parameter nor a module of a model."""
    names = [layer.name for layer in found] + [layer.path for layer in found]
    names += [path for path, _ in model.named_modules()]
    names += [path for path, _ in model.named_parameters(remove_duplicate=False)]
    for pattern in wanted:
        fits = FirstMatch({pattern: True})
        if not any(fits(one) for one in names):
            raise ValueError(f"{name}: pattern {unknown(pattern, [n for n in names if n], 'weight or module here')}")


def every_layer(model: Any, name: str) -> list[Layer]:
    """Return all weights of a model; `name` is the function that errors name."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{name}: model is {shown(model)}, expected a torch.nn.Module")
    found = []
    taken: set[str] = set()  # paths whose weights were seen with their parent
    for path, module in model.named_modules(remove_duplicate=False):
        if any(path == one or path.startswith(f"{one}.") for one in taken):
            continue
        for layer in _of_module(path, module):
            found.append(layer)
            if layer.packed is not None:
                taken.add(layer.name)
        if is_parametrized(module):
            taken.add(f"{path}.parametrizations" if path else "parametrizations")
    return found


def _of_module(path: str, module: Any) -> Iterator[Layer]:
    def named(attribute: str) -> str:
        return f"{path}.{attribute}" if path else attribute

    for attribute, weight in module._modules.items():
        if isinstance(weight, PackedWeight):
            kind = type(module).__name__ if isinstance(module, Packed) else "weight"
            yield Layer(named(attribute), path, attribute, module, kind, tuple(weight.shape), weight.axis, "", weight)
    for attribute in _weights_of(module):
        shape = tuple(getattr(module, attribute).shape)
        kind, axis, problem = _kind_of(module, attribute, shape)
        yield Layer(named(attribute), path, attribute, module, kind, shape, axis, problem)


def _weights_of(module: Any) -> list[str]:
    """Return the names of the weights of a module itself, as the module reads them."""
    names = {name.removesuffix("_orig"): part for name, part in module._parameters.items() if part is not None}
    for name in getattr(module, "parametrizations", {}):
        names.setdefault(name, getattr(module, name))
    found = []
    for name, part in names.items():
        if torch.nn.parameter.is_lazy(part):
            raise ValueError(
                f"{type(module).__name__} has no {name} yet, expected a model after its first forward pass"
            )
        made = getattr(module, name, None)
        if made is None and name in ("weight_g", "weight_v"):  # of the older weight_norm
            continue
        if isinstance(made, torch.Tensor) and made.is_floating_point() and made.ndim >= 2:
            found.append(name)
    if "weight" not in found and maker_of(module, "weight")[0] is not None:
        found.append("weight")
    return found


def _kind_of(module: Any, attribute: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], str]:
    """Return kind, axes and problem of a weight."""
    forward, title = type(module).forward, type(module).__name__
    if attribute == "weight" and isinstance(module, torch.nn.Linear):
        if forward is torch.nn.Linear.forward or hasattr(module, "rounded"):
            return "linear", (1,), ""
        return title, (), f"{quoted(title)} has a forward pass of its own"
    return title, (), f"the product of {quoted(title)} with {quoted(attribute)} is not known"
