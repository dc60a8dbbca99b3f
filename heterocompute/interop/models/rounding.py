"""Rounding a PyTorch model: `heterocompute.ptq.quantize` for a module and its batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from ...arrays.dense import as_array
from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue
from ...base.values import as_int
from ...files.selection import escaped
from ...formats import Format
from ...ptq.calibration import Calibration
from ..torch.forms import formed, recipe_of, unturned, weight_now
from ..torch.reading import computed_with
from ..torch.walk import Layer, check_matches, matching
from .batches import ONCE, Batches
from .calibration import calibrated, calibrated_in_groups, calibrated_in_pairs
from .chain import Chain
from .copies import put, shared_copy
from .weights import chosen_layers, weight_source


def rounded(
    model: Any,
    calibration: object,
    formats: object,
    round_: Callable[..., Any],
    sequential: bool,
    held: object,
    include: Any,
    exclude: Any,
    memory: int,
    in_pairs: bool = False,
) -> Any:
    """Round the layers of a module.

    Parameters
    ----------
    model : torch.nn.Module
    calibration : Calibration or batches
    formats : Format, str or mapping of str to these
    round_ : callable
        `heterocompute.ptq.network.round_layers` with its method.
    sequential, held, include, exclude, memory
        As in `heterocompute.ptq.quantize`.
    in_pairs : bool
        Calibrate with the inputs of the rounded and of the unrounded network.

    Returns
    -------
    Rounded
    """
    limit = as_int(memory, "quantize: memory", 1)
    layers = chosen_layers(model, include, exclude, "quantize")
    names = [layer.name for layer in layers]
    groups: Iterable[Calibration]
    judges = held if isinstance(held, Calibration) else None
    if isinstance(calibration, Calibration):
        if sequential:
            why = "method='qronos'" if in_pairs else "sequential"
            raise WrongValue(
                f"quantize: {why} runs the model again: pass the batches as inputs, not what calibrate returned"
            )
        groups = [_chosen(calibration, names)]
        if held is not None and judges is None:
            judges = calibrated(model, held, include, exclude, False, "quantize")
    else:
        if sequential and isinstance(calibration, Iterator):
            raise WrongValue(f"quantize: inputs {ONCE}")
        apart = False if judges is not None else held
        groups = calibrated_in_groups(model, calibration, include, exclude, apart, limit, "quantize", True)
    again = _Again(model, layers, calibration, held, in_pairs, limit) if sequential else None
    arrays = {
        name: as_array(value, name) if name in names and not isinstance(value, QuantizedArray) else value
        for name, value in computed_with(model).items()
    }
    arrays |= {name: formed(layer, weight_now(layer)).float().numpy() for name, layer in transposed_of(layers).items()}
    return round_(arrays, names, groups, judges, again, _formats(model, layers, formats))


def _formats(model: object, layers: list[Layer], formats: object) -> Callable[[str], Format | None]:
    """Return the function from a weight's name to its format: patterns match weights or modules."""
    recipe = recipe_of(formats, name="quantize")
    if isinstance(formats, Mapping):
        check_matches(model, layers, recipe, "quantize")
    of_layer = matching({pattern: (fmt,) for pattern, fmt in recipe.items()})
    return {layer.name: (of_layer(layer) or (None,))[0] for layer in layers}.get


def _chosen(calibration: Calibration, names: list[str]) -> Calibration:
    found = Calibration({name: calibration[name] for name in names if name in calibration})
    found.axes, found.held = calibration.axes, calibration.held
    return found


def transposed_of(layers: list[Layer]) -> dict[str, Layer]:
    """Return the transposed convolutions, which are rounded in the form of the convolution that computes them."""
    return {
        layer.name: layer
        for layer in layers
        if layer.kind.startswith("conv_t") and not layer.problem and weight_source(layer) == "held"
    }


class _Again:
    """Calibrates a module again with the weights rounded so far, in a copy of the model."""

    def __init__(
        self, model: object, layers: list[Layer], batches: object, held: object, in_pairs: bool, memory: int
    ) -> None:
        self._model, self._batches = shared_copy(model, "quantize"), batches
        self._unrounded = shared_copy(model, "quantize") if in_pairs else None  # whose buffers a chain may change
        self._held_out = None if held is None else False
        self._transposed = transposed_of(layers)
        self._paths = {one.name: one.path for one in layers if weight_source(one) == "held"}
        models = [self._model] if self._unrounded is None else [self._unrounded, self._model]
        source = Batches(batches, "quantize: batches")
        self._chain = Chain(models, source, [one.path for one in layers], memory)

    def __call__(self, weights: Mapping[str, Any], names: list[str]) -> Calibration:
        done = {name: q for name, q in weights.items() if name in self._paths and isinstance(q, QuantizedArray)}
        values = {name: value.dequantize() for name, value in done.items()}
        for name in {*values} & {*self._transposed}:
            values[name] = unturned(torch.from_numpy(values[name]), self._transposed[name]).numpy()
        put(self._model, values, "quantize")
        self._chain.changed([self._paths.pop(name) for name in done])  # they stay in the copy
        patterns = list(map(escaped, names))
        if self._unrounded is None:
            return calibrated(
                self._model, self._batches, patterns, None, self._held_out, "quantize", None, True, self._chain
            )
        given = self._unrounded, self._model, self._batches
        return calibrated_in_pairs(*given, patterns, None, self._held_out, "quantize", True, self._chain)
