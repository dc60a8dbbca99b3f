"""Rounding a PyTorch model: what `heterocompute.ptq.quantize` does with a module and its batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...arrays.quantized import QuantizedArray
from ...base.values import as_int
from ...files.selection import select
from ...ptq.calibration import Calibration
from ..torch_modules import computed_with
from .calibration import calibrated, calibrated_in_groups, infos_of
from .copies import put, shared_copy
from .weights import check_place, weights_of

__all__ = ["rounded"]


def rounded(
    model: Any,
    calibration: Any,
    round_: Callable[..., Any],
    sequential: bool,
    held: Any,
    include: Any,
    exclude: Any,
    memory: int,
) -> Any:
    """Round the layers of a module.

    Parameters
    ----------
    model : torch.nn.Module
    calibration : Calibration or batches
    round_ : callable
        `heterocompute.ptq.network.round_layers` with its formats, method and options.
    sequential, held, include, exclude, memory
        As in `heterocompute.ptq.quantize`.

    Returns
    -------
    Rounded
    """
    check_place(model, "quantize")
    limit = as_int(memory, "quantize: memory", 1)
    names = select(infos_of(model), include, exclude)
    groups: Iterable[Calibration]
    judges = held if isinstance(held, Calibration) else None
    if isinstance(calibration, Calibration):
        if sequential:
            raise ValueError("quantize: sequential runs the model again: pass the batches, not what calibrate returned")
        groups = [_chosen(calibration, names)]
        if held is not None and judges is None:
            judges = calibrated(model, held, include, exclude, False, "quantize")
    else:
        apart = False if judges is not None else held
        groups = calibrated_in_groups(model, calibration, include, exclude, apart, limit, "quantize")
    again = _Again(model, calibration, held) if sequential else None
    return round_(computed_with(model), names, groups, judges, again)


def _chosen(calibration: Calibration, names: list[str]) -> Calibration:
    found = Calibration({name: calibration[name] for name in names if name in calibration})
    found.axes, found.held = calibration.axes, calibration.held
    return found


class _Again:
    """Calibrates a module with what is rounded so far: a copy of the weights that are."""

    def __init__(self, model: Any, batches: Any, held: Any) -> None:
        self._model, self._batches, self._held_out = shared_copy(model), batches, None if held is None else False
        self._held = {one.name for one in weights_of(model) if one.made == "held"}

    def __call__(self, weights: Mapping[str, Any], include: list[str]) -> Calibration:
        done = {
            name: value for name, value in weights.items() if name in self._held and isinstance(value, QuantizedArray)
        }
        self._held -= {*done}  # they stay in the copy
        put(self._model, {name: value.dequantize() for name, value in done.items()}, "quantize")
        return calibrated(self._model, self._batches, include, None, self._held_out, "quantize")
