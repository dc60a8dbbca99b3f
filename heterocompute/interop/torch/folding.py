"""Scales of inputs moved from the layer before into the weights: SmoothQuant and AWQ for a PyTorch model.

    y = (x / s) (w s)^T;   1 / s is multiplied into the norm or linear layer that computes x

The layer before is found by running the model: it is the module that returned the tensor that the layers are called
with, perhaps through ReLU or dropout. The copy with the moved scales must compute the outputs of the model. Otherwise,
for example if a residual connection reads the same tensor, the scales are not moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ...base.errors import WrongValue, shown
from ...base.texts import counted
from ...base.values import as_real
from ...formats import Format
from ...products.quantize import fake_quantize, quantize
from ..models.batches import evaluating
from .carrying import copied
from .judging import ROWS, Divided, answer_of, some_rows
from .walk import Layer

Array = np.ndarray[Any, Any]

SHOWN = 3  # layers that a message names
ALPHAS = tuple(i / 10 for i in range(1, 10))
CLOSE = 1e-4  # of the largest output: two models that are equal except for float32 rounding
POSITIVE = ("ReLU", "LeakyReLU", "Identity", "Dropout")  # scales above 0 pass through them


@dataclass
class Group:
    """Layers that are called with the output of one module."""

    producer: Any
    path: str
    layers: list[Layer]
    rows: list[Array] = field(default_factory=list)


@dataclass(frozen=True)
class Folded:
    """The copy, and for each layer its exponent, or the reason why nothing was moved."""

    model: Any
    rows: dict[str, dict[str, Any]]


def folded(
    model: Any,
    layers: list[Layer],
    format_of: Callable[[Layer], Format | None],
    batches: Divided,
    way: str,
    alpha: Any,
    activations: Format | None,
    clip: str | None,
) -> Folded:
    """Return a copy of a model whose layers are called with smoother inputs.

    Parameters
    ----------
    model : torch.nn.Module
    layers : list of Layer
        The layers to pack.
    format_of : callable
        From a layer to its format; None for a layer that stays.
    batches : Divided
        Exponents are chosen on `ROWS` inputs of each group, from all batches that are not held out.
    way : {"smooth", "awq"}
        ``max|x|^a / max|w|^(1 - a)``, or the root mean square of the input to the power a.
    alpha : float or "search"
    activations, clip
        As of `convert`: the candidates are rounded alike.

    Raises
    ------
    ValueError
        alpha is not a number from 0 to 1, or no layer can take scales; the message has layers and reasons.
    """
    alphas: tuple[float, ...] = ALPHAS
    if alpha != "search":
        share = as_real(alpha, f"convert: {way}", "'search' or a number")
        if not 0 <= share <= 1:
            raise WrongValue(f"convert: {way} is {shown(alpha)}, expected 'search' or 0 to 1")
        alphas = (share,)
    wanted = [layer for layer in layers if layer.kind == "linear" and format_of(layer) is not None]
    groups, reasons = _groups(model, wanted, batches)
    shared = {id(one): one for one in model.parameters()}
    small = copied(model, shared, model.modules(), "convert", "a model without it")
    rows: dict[str, dict[str, Any]] = {name: {"alpha": None, "left": reason} for name, reason in reasons.items()}
    given = batches.source, batches.first
    exact = answer_of(model, *given) if groups else None
    for group in groups:
        best, scale = _best(small, group, format_of, way, alphas, activations, clip)
        row: dict[str, Any] = {"alpha": best, "left": ""}
        if best:
            before = _fold(small, group, scale)
            if not alike(exact, answer_of(small, *given)):
                _restore(small, before)
                row = {"alpha": None, "left": f"{group.path} is read by other layers, too"}
        for layer in group.layers:
            rows[layer.name] = row
    if not any(row["left"] == "" for row in rows.values()):
        first = [f"{name}: {row['left']}" for name, row in rows.items()][:SHOWN]
        more = f"; and {counted(len(rows) - SHOWN, 'layer')} more" if len(rows) > SHOWN else ""
        words = "; ".join(first) or "the model has no linear layer to pack"
        raise WrongValue(f"convert: {way} moves no scales: {words}{more}")
    return Folded(small, rows)


def _groups(model: Any, layers: list[Layer], batches: Divided) -> tuple[list[Group], dict[str, str]]:
    """Run the model, and return the groups that can take scales, and the reasons of the other layers."""
    by_module: dict[int, list[Layer]] = {}
    for layer in layers:
        by_module.setdefault(id(layer.module), []).append(layer)
    paths = {id(module): path for path, module in model.named_modules()}
    groups: dict[int, Group] = {}
    reasons: dict[str, str] = {}
    calls: dict[int, int] = {}
    origins: dict[int, tuple[Any, Any]] = {}  # of a tensor, which is held so that its id stays its own

    def called(module: Any, inputs: Any, output: Any) -> None:
        x = inputs[0] if inputs and hasattr(inputs[0], "shape") else None
        if x is None or not hasattr(output, "shape"):
            return
        calls[id(module)] = calls.get(id(module), 0) + 1
        producer = origins.get(id(x), (None, None))[1]
        for layer in by_module.get(id(module), ()):
            reason = _why_not(producer, x.shape[-1])
            if reason:
                reasons.setdefault(layer.name, reason)
                continue
            group = groups.setdefault(id(producer), Group(producer, paths[id(producer)], []))
            if layer not in group.layers:
                group.layers.append(layer)
            if sum(map(len, group.rows)) < ROWS and layer is group.layers[0]:
                group.rows.append(some_rows(x, batches.share))
        passes = type(module).__name__ in POSITIVE
        origins[id(output)] = output, producer if passes else module

    hooks = [module.register_forward_hook(called) for module in model.modules() if not [*module.children()]]
    try:
        with evaluating(model):
            for index, batch in enumerate(batches.chosen()):
                calls.clear()
                batches.source.run(model, batch, index)
                origins.clear()
                if groups and all(sum(map(len, group.rows)) >= ROWS for group in groups.values()):
                    break
    finally:
        for hook in hooks:
            hook.remove()
    found = []
    for group in groups.values():
        shared = [layer for layer in group.layers if layer.name in reasons]
        several = calls.get(id(group.producer), 1) > 1
        if shared or several:
            for layer in group.layers:
                reasons.setdefault(layer.name, f"{group.path} is called several times")
        else:
            found.append(group)
    for layer in layers:
        if layer.name not in reasons and not any(layer in group.layers for group in found):
            computed = hasattr(layer.module, "parametrizations")
            reasons[layer.name] = "a parametrization computes its weight" if computed else "it was not called"
    return found, {name: reason for name, reason in reasons.items()}


def _why_not(producer: Any, width: int) -> str:
    """Return why a module cannot take the inverse scales of its outputs; empty if it can."""
    if producer is None:
        return "its input is not the output of a norm or linear layer, which would take the scales"
    weight = producer._parameters.get("weight")
    if weight is None:
        return f"the layer before it is a {type(producer).__name__}, expected a norm or linear layer"
    is_norm = "Norm" in type(producer).__name__ and "Batch" not in type(producer).__name__
    if is_norm and tuple(weight.shape) == (width,):
        return ""
    if type(producer).__name__ == "Linear" and len(weight) == width:
        return ""
    return f"the layer before it is a {type(producer).__name__}, expected a norm or linear layer"


def _parts(small: Any, group: Group) -> tuple[Any, list[tuple[Any, Layer]]]:
    return small.get_submodule(group.path), [(small.get_submodule(layer.path), layer) for layer in group.layers]


def own_weight(module: Any, layer: Layer) -> Array:
    """Return the float32 weight of a linear layer, outputs first."""
    w: Array = module._parameters[layer.attribute].detach().float().numpy()
    return w.T if layer.axis == (0,) else w


def _best(
    small: Any,
    group: Group,
    format_of: Callable[[Layer], Format | None],
    way: str,
    alphas: tuple[float, ...],
    activations: Format | None,
    clip: str | None,
) -> tuple[float, Array]:
    """Return the exponent with the least error of the outputs, and its scales; 0 is the identity."""
    x = np.concatenate(group.rows)[:ROWS]
    formats = {layer.name: fmt for layer in group.layers if (fmt := format_of(layer)) is not None}
    weights = [(own_weight(module, layer), formats[layer.name]) for module, layer in _parts(small, group)[1]]
    exact = [x @ w.T for w, _ in weights]
    largest = np.max([np.abs(w).max(axis=0) for w, _ in weights], axis=0)
    best, scale, least = 0.0, np.ones(x.shape[1], np.float32), np.inf
    for alpha in (0.0, *alphas):
        s = np.ones(x.shape[1], np.float32) if alpha == 0 else _scale(x, largest, way, alpha)
        rounded = x / s if activations is None else fake_quantize(x / s, activations)
        lost = 0.0
        for (w, fmt), y in zip(weights, exact, strict=True):
            lost += output_error(rounded, w * s, y, fmt, clip)
        if lost < least:
            best, scale, least = alpha, s, lost
    return best, scale


def output_error(x: Array, w: Array, exact: Array, fmt: Format, clip: str | None) -> float:
    """Return the squared error of a layer's outputs with its weight rounded to nearest."""
    q = quantize(np.ascontiguousarray(w), fmt, -1, clip=clip).dequantize()
    return float(np.square(x @ q.T - exact, dtype=np.float64).sum())


def _scale(x: Array, largest: Array, way: str, alpha: float) -> Array:
    """Return float32 scales above 0 whose geometric mean of the largest and smallest is 1."""
    if not len(x):
        return np.ones(x.shape[1], np.float32)
    if way == "awq":
        size = np.sqrt(np.square(x, dtype=np.float64).mean(axis=0)) ** alpha
    else:
        size = np.abs(x).max(axis=0).astype(np.float64) ** alpha
        size /= np.maximum(largest.astype(np.float64), 1e-8) ** (1 - alpha)
    live = size > 0
    if not live.any():
        return np.ones(len(size), np.float32)
    middle = np.sqrt(size[live].max()) * np.sqrt(size[live].min())
    return np.where(live, size / middle, 1.0).astype(np.float32)


def _fold(small: Any, group: Group, scale: Array) -> list[tuple[Any, str, Any]]:
    """Move scales, and return the parameters that were replaced."""
    s = torch.from_numpy(scale)
    producer, consumers = _parts(small, group)
    before: list[tuple[Any, str, Any]] = []

    def put(module: Any, name: str, value: Any) -> None:
        old = module._parameters[name]
        before.append((module, name, old))
        module._parameters[name] = torch.nn.Parameter(value.to(old.dtype), requires_grad=old.requires_grad)

    with torch.no_grad():
        weight = producer.weight
        put(producer, "weight", weight / (s if weight.dim() == 1 else s[:, None]))
        if producer._parameters.get("bias") is not None:
            put(producer, "bias", producer.bias / s)
        for module, layer in consumers:
            own = module._parameters[layer.attribute]
            put(module, layer.attribute, own * (s[:, None] if layer.axis == (0,) else s))
    return before


def _restore(small: Any, before: list[tuple[Any, str, Any]]) -> None:
    for module, name, old in reversed(before):
        module._parameters[name] = old


def alike(exact: Any, found: Any) -> bool:
    """Tell whether two answers are equal except for float32 rounding."""
    return len(exact) == len(found) > 0 and all(
        np.abs(one - two).max(initial=0) <= CLOSE * max(np.abs(one).max(initial=0), 1e-12)
        for one, two in zip(exact, found, strict=True)
    )
