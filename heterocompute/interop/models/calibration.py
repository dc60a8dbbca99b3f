"""Calibration and rounding of a PyTorch model: the inputs of its layers, and its weights rounded under them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ...base.errors import WrongValue, shown
from ...base.progress import Progress, Steps
from ...ptq.calibration import Calibration
from ...ptq.hessian import Hessian
from ...ptq.recorder import Kept, Paired
from ..torch.walk import Layer
from .batches import EVERY, Batches
from .chain import Chain, Whole
from .copies import put, shared_copy
from .recording import ProductRecorder, recording
from .weights import chosen_layers, weight_source

Array = np.ndarray[Any, Any]


def calibrated(
    model: object,
    batches: object,
    include: object = None,
    exclude: object = None,
    held: object = None,
    name: str = "calibrate",
    rounded: Mapping[str, Any] | None = None,
    transposed: bool = False,
    chain: Chain | None = None,
    progress: Progress | bool | None = False,
) -> Calibration:
    """Calibrate a module as `heterocompute.ptq.calibrate` describes, by passes of a chain of this model if given."""
    step = Steps(0, progress, name)
    if rounded is not None:
        small = shared_copy(model, name)
        put(small, _values_of(model, rounded, name), name)
        found = calibrated_in_pairs(model, small, batches, include, exclude, held, name, step=step)
        step.finish()
        return found
    found = Calibration()
    found.axes, found.held = {}, Calibration()
    found.held.axes = {}
    for group in calibrated_in_groups(model, batches, include, exclude, held, None, name, transposed, chain, step):
        found.update(group)
        found.axes.update(group.axes)
        if group.held is not None:
            found.held.update(group.held)
            found.held.axes.update(group.held.axes)
    if not found.held:
        found.held = None
    step.finish()
    return found


def calibrated_in_groups(
    model: Any,
    batches: object,
    include: Any,
    exclude: Any,
    held: object,
    memory: int | None,
    name: str,
    transposed: bool = False,
    chain: Chain | None = None,
    step: Steps | None = None,
) -> Iterator[Calibration]:
    """Yield the Hessians of as many weights as fit in memory, with one pass over the batches for each yield.

    transposed: also of transposed convolutions, see `ProductRecorder`.
    """
    left = chosen_layers(model, include, exclude, name)
    source = chain or Whole([model], Batches(batches, f"{name}: batches", step))
    judges = None if held is None or held is False else Whole([model], Batches(held, f"{name}: held", step))
    while left:
        recorders = [
            ProductRecorder(_tensors(left), memory if held is False else memory and memory // 2, transposed=transposed)
            for _ in range(2)
        ]
        _record(model, source, left, recorders if held is None else recorders[:1])
        if judges is not None:
            _record(model, judges, left, recorders[1:])
        yield _calibration(recorders)
        left = [one for one in left if one.name in recorders[0].postponed]


def _values_of(model: Any, rounded: Any, name: str) -> dict[str, Any]:
    known = {one.name for one in chosen_layers(model, None, None, name)}
    if not isinstance(rounded, Mapping) or (others := {*rounded} - known):
        given = f"a mapping with {shown(min(others))}" if isinstance(rounded, Mapping) else shown(rounded)
        raise WrongValue(f"{name}: rounded is {given}, expected rounded weights by the names of weights")
    return {one: getattr(value, "dequantize", lambda value=value: value)() for one, value in rounded.items()}


def calibrated_in_pairs(
    model: Any,
    small: Any,
    batches: object,
    include: Any,
    exclude: Any,
    held: object,
    name: str,
    transposed: bool = False,
    chain: Chain | None = None,
    step: Steps | None = None,
) -> Calibration:
    """Calibrate a copy of a model with rounded weights: each batch runs through the model, and then through the copy.

    Memory: in addition to three matrices per weight, the inputs of the weights in one batch.
    """
    layers = chosen_layers(model, include, exclude, name), chosen_layers(small, include, exclude, name)
    kept: dict[str, Kept] = {}
    first = ProductRecorder(
        _tensors(layers[0]), make=lambda one, k, groups: kept.setdefault(one, Kept()), transposed=transposed
    )
    seconds = [
        ProductRecorder(
            _tensors(layers[1]), make=lambda one, k, groups: _pair(kept, one, k, groups), transposed=transposed
        )
        for _ in range(2)
    ]
    source = chain or Whole([model, small], Batches(batches, f"{name}: batches", step))
    for index, tokens, runs in source.passes([one.path for one in layers[1]]):
        second = seconds[1 if held is None and index % EVERY == EVERY - 1 else 0]
        for one, net, own, run in zip((first, second), (model, small), layers, runs, strict=True):
            one.keep = tokens
            with recording(net, one, own):
                run()
            one.forget()
        for parts in kept.values():
            parts.parts.clear()
    for recorder in seconds:
        recorder.hessians = {one: pair.hessian for one, pair in recorder.hessians.items()}
    return _calibration(seconds)


def _pair(kept: dict[str, Kept], name: str, k: int, groups: int) -> Paired:
    """Return the sums of a weight, whose twins are removed as they are read."""
    parts = kept.setdefault(name, Kept()).parts

    def drained() -> Iterator[Array]:
        while parts:
            yield parts.pop(0)

    return Paired(Hessian(k, groups), drained())


def _record(model: object, source: Chain | Whole, weights: list[Layer], recorders: list[ProductRecorder]) -> None:
    """Run each batch with one recorder; with two recorders, the second gets every fourth batch."""
    for index, tokens, (run,) in source.passes([one.path for one in weights]):
        recorder = recorders[-1 if index % EVERY == EVERY - 1 else 0]
        recorder.keep = tokens
        with recording(model, recorder, weights):
            run()
        recorder.forget()


def _tensors(weights: Iterable[Layer]) -> dict[str, Any]:
    return {one.name: getattr(one.module, one.attribute) for one in weights if weight_source(one) == "held"}


def _calibration(recorders: list[ProductRecorder]) -> Calibration:
    """Return what was recorded, in the order of the products."""
    found = []
    for recorder in recorders:
        part = Calibration(recorder.hessians)
        part.axes = {name: recorder.axes[name] for name in part}
        found.append(part)
    found[0].held = found[1] or None
    return found[0]
