"""A machine's cost of one inference with the formats of a study's row."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ..base.errors import Unsupported, WrongValue
from ..formats import Format
from .request import PLAIN, Entry, Request

Columns = Callable[[Entry, Sequence[str], Format | None], dict[str, Any]]


def machined_by(request: Request) -> Columns:
    """Return a function that computes the columns of the machine of a study; without one it returns no columns.

    Raises
    ------
    ValueError
        A network is given without a machine, or the weights do not tell their layers.
    """
    if request.machine is None:
        if request.network is not None:
            raise WrongValue(f"{request.study}: network is the layers for machine=, which is not given")
        return lambda entry, names, kind: {}
    from ..hardware.accelerators.machines.machine import machine_of  # 60 ms
    from ..hardware.network.lookup import as_network  # 60 ms

    machine = machine_of(request.study, request.machine)
    layers = request.network
    if layers is None:
        own = getattr(request.weights, "hardware", None)
        layers = request.weights if _is_onnx(request.weights) else own
    if layers is None:
        raise WrongValue(
            f"{request.study}: the weights do not tell their layers to the machine, expected network= as of "
            "hw.as_network, such as hw.as_network(module, input_shape)"
        )
    network = as_network(layers)
    known: dict[tuple[str, str], dict[str, Any]] = {}

    def columns(entry: Entry, names: Sequence[str], kind: Format | None) -> dict[str, Any]:
        formats = {entry.of(name).fmt for name in names}
        if len(formats) > 1:
            return {"machine_us": None, "machine_uj": None}
        (fmt,) = formats
        pair = PLAIN if fmt is None else str(fmt), PLAIN if kind is None else str(kind)
        if pair not in known:
            known[pair] = _cost(machine, network, *pair)
        return known[pair]

    return columns


def _is_onnx(weights: object) -> bool:
    return isinstance(weights, (str, os.PathLike)) and os.fspath(weights).endswith(".onnx")


def _cost(machine: Any, network: Any, weights: str, activations: str) -> dict[str, Any]:
    pair = weights if weights == activations else f"{weights} x {activations}"
    if pair not in machine.table.get("formats", {pair: None}):
        return {"machine_us": None, "machine_uj": None}
    try:
        found = machine.set({"mac.weights": weights, "mac.activations": activations}).report(network)
    except (ValueError, Unsupported):  # no multiplier of these formats, or no mapping fits
        return {"machine_us": None, "machine_uj": None}
    return {"machine_us": found.seconds * 1e6, "machine_uj": found.energy * 1e6}
