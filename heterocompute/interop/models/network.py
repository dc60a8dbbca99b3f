"""A PyTorch model for a study or search: weights by name, and a judge of the model with other weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from ...arrays.base import PackedArray
from ...arrays.dense import as_array
from ...arrays.quantized import QuantizedArray
from ...arrays.rotated import rotate
from ...base.errors import WrongValue, shown
from ...base.float_env import call_back
from ...base.texts import quoted
from ...formats import is_rotated
from ..torch.conversion import convert
from ..torch.forms import form_axis, formed, trained_form, weight_now
from ..torch.rounding import fake_quantize
from ..torch.walk import WITH_RECIPE, Layer
from .copies import put, shared_copy
from .weights import chosen_layers

TURNED = ("linear", "conv1d", "conv2d", "conv3d")  # kinds of layers whose inputs can be rotated


class ModuleWeights(dict[str, Any]):
    """The weights of a model by name, in the form of packed layers; tied ones by their first name.

    Attributes
    ----------
    axes : dict of str to tuple of int
        The axes that each weight is summed along.
    twins : dict of str to str
        The first name of each weight, for all of its names.
    layers : dict of str to Layer
        The layer of each first name.
    """

    axes: dict[str, tuple[int, ...]]
    twins: dict[str, str]
    layers: dict[str, Layer]

    def trained_or_rounded(self, name: str, value: object) -> Any:
        """Return a rounded weight; for a weight that was trained in this format, its trained codes."""
        if not isinstance(value, QuantizedArray):
            return value
        trained = trained_form(self.layers[name], value.format)
        return value if trained is None else trained


def module_network(
    model: Any, evaluate: Any, include: Any, exclude: Any, name: str
) -> tuple[ModuleWeights, Callable[..., Any] | None]:
    """Return the weights of a module that can be packed, and a function that evaluates the model with others.

    Parameters
    ----------
    model : torch.nn.Module
    evaluate : callable or None
        ``evaluate(module)``: it gets a copy of the model, which shares the parameters that are not replaced.
    include, exclude
        Patterns of names of weights or modules.
    name : str
        Of the function, for errors.

    Returns
    -------
    (ModuleWeights, callable)
        The second is ``evaluate`` if that is not callable.
    """
    chosen = list(chosen_layers(model, include, exclude, name))
    layers = [layer for layer in chosen if not layer.problem]
    if trained := [layer for layer in chosen if layer.problem == WITH_RECIPE]:
        raise WrongValue(f"{name}: {shown(trained[0].name)}: {WITH_RECIPE}")
    if not layers:
        why = f": {shown(chosen[0].name)}: {chosen[0].problem}" if chosen else ""
        raise WrongValue(f"{name}: the model has no layer that can be packed{why}")
    weights = ModuleWeights()
    first: dict[Any, str] = {}
    weights.axes, weights.twins, weights.layers = {}, {}, {}
    twins = weights.twins
    for layer in layers:
        parameter = layer.module._parameters.get(layer.attribute)
        key: Any = id(parameter) if parameter is not None else (id(layer.module), layer.attribute)
        twins[layer.name] = first.setdefault(key, layer.name)
        if twins[layer.name] == layer.name:
            weights[layer.name] = as_array(formed(layer, weight_now(layer, name)), f"{name}: {layer.name}")
            weights.axes[layer.name], weights.layers[layer.name] = form_axis(layer), layer
    if not callable(evaluate):
        return weights, evaluate

    def judged(changed: Mapping[str, Any], activations: Any = None) -> Any:
        changed = {at: weights.trained_or_rounded(at, changed[at]) for at in weights}
        packed = {one: changed[at] for one, at in twins.items() if isinstance(changed[at], QuantizedArray)}
        dense = {
            one: _values(changed[at])
            for one, at in twins.items()
            if one not in packed and changed[at] is not weights[at]
        }
        small = shared_copy(model, name)
        put(small, dense, name)
        for layer in layers if activations is not None else ():
            if layer.name not in packed:
                module, fmt = small.get_submodule(layer.path), getattr(changed[twins[layer.name]], "format", None)
                turns = fmt if is_rotated(fmt) else None
                if turns is not None and layer.kind not in TURNED:
                    raise WrongValue(f"{name}: {quoted(layer.name)} is in {fmt}, expected no activations= with it")
                module.register_forward_pre_hook(_rounding(activations, getattr(module, "groups", None), turns))
        if packed:
            small = convert(small, packed, activations=activations, inplace=True)
        before = _versions(model)
        answer = _numbers(call_back(evaluate, small))
        for path, version in _versions(model).items():
            if before.get(path, version) != version:
                raise WrongValue(
                    f"{name}: evaluate changed the parameter {quoted(path)} of the model, expected a function that "
                    "only reads the model"
                )
        return answer

    return weights, judged


def _numbers(answer: Any) -> Any:
    """Return tensors of one value as numbers."""
    if isinstance(answer, Mapping):
        return {key: _numbers(value) for key, value in answer.items()}
    return answer.item() if hasattr(answer, "detach") and answer.numel() == 1 else answer


def _values(value: object) -> Any:
    return value._values() if isinstance(value, PackedArray) else value


def _versions(model: Any) -> dict[str, int]:
    """Return how often each parameter was written to."""
    return {path: one._version for path, one in model.named_parameters() if not one.is_inference()}


def _rounding(fmt: Any, groups: int | None, turns: Any) -> Callable[[Any, Any], Any]:
    """Return a hook that rounds a float layer's input as packed layers round it.

    A linear layer rounds each row by itself, a convolution each image, along its channels first. With a rotated weight
    the rotated input is rounded, and rotated back.
    """

    def turned(x: Any, axis: int, inverse: bool) -> Any:
        if turns is None:
            return x
        found = rotate(x.detach().float().numpy(), axis, turns, "study: inputs", inverse)
        return torch.from_numpy(np.ascontiguousarray(found)).to(x.dtype)

    def rounded(module: Any, inputs: Any) -> Any:
        x, *others = inputs
        if not x.is_floating_point():  # indices of an embedding
            return None
        if groups is None:
            return (turned(fake_quantize(turned(x, -1, False), fmt, -1), -1, True), *others)
        spatial = len(module.kernel_size)
        images = x if x.dim() == spatial + 2 else x[None]
        apart = images.reshape(len(images), groups, -1, *images.shape[2:])
        y = fake_quantize(turned(apart, 2, False), fmt, (*range(3, 3 + spatial), 1, 2))
        y = turned(y, 2, True)
        return (y.reshape(x.shape), *others)

    return rounded
