"""The cost of a tensor in a format, by kind of budget: bytes, time measured here, modelled time and energy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ..arrays.components import stored_bytes
from ..base.errors import WrongValue, shown
from ..base.values import as_real
from ..formats import Format
from ..products.clock import Clock
from ..products.quantize import quantize

Array = np.ndarray[Any, Any]
Layer = tuple[tuple[int, ...], tuple[int, ...]]  # shape, reduction axes

KINDS = ("bits", "bytes", "seconds", "device_us", "device_uj", "mac_pj", "mac_um2")  # the columns of a study
MODELLED = KINDS[3:]


def limits(budget: Any, device: Any) -> dict[str, float]:
    """Return the budgets as floats, checked.

    Raises
    ------
    ValueError
        The kind is unknown, a value is not a number, or a budget of a device has no device.
    """
    if not isinstance(budget, Mapping) or not budget or any(kind not in KINDS for kind in budget):
        raise WrongValue(f"search: budget is {shown(budget)}, expected some of {', '.join(KINDS)}: {{'bits': 4.0}}")
    found = {kind: as_real(value, f"search: budget of {kind}", "a number") for kind, value in budget.items()}
    for kind, amount in found.items():
        if not 0 <= amount < 2**53:
            raise WrongValue(f"search: budget of {kind} is {shown(budget[kind])}, expected 0 or more")
        if kind.startswith("device_") and device is None:
            raise WrongValue(f"search: a budget of {kind} needs device=, the name of a chip")
    return found


def matrix_shape(layer: Layer) -> tuple[int, int]:
    """Return the matrix (outputs, reduction) of a layer."""
    shape, axis = layer
    columns = prod(shape[a] for a in axis)
    return prod(shape[a] for a in range(len(shape)) if a not in axis), columns


def cost_tables(
    kinds: Sequence[str], layers: Sequence[Layer], choices: Sequence[Format], device: Any, activations: Format | None
) -> dict[str, Array]:
    """Return for each kind of budget the cost of each layer in each format, (layers, formats) of float64."""
    stored = np.array([[stored_bytes(fmt, *layer) for fmt in choices] for layer in layers], np.float64)
    stored = stored.reshape(len(layers), len(choices))
    found: dict[str, Array] = {}
    for kind in kinds:
        if kind in ("bits", "bytes"):
            found[kind] = stored
            continue
        cost = _seconds(activations) if kind == "seconds" else _modelled(kind, layers, device, activations)
        known: dict[Any, float] = {}
        table = np.zeros(stored.shape)
        for i, layer in enumerate(layers):
            for f, fmt in enumerate(choices):
                key = (*matrix_shape(layer), fmt, int(stored[i, f]))
                if key not in known:
                    known[key] = cost(*key)
                table[i, f] = known[key]
        found[kind] = table
    return found


Cost = Callable[[int, int, Format, int], float]


def _seconds(activations: Format | None) -> Cost:
    clock, rng = Clock(), np.random.default_rng(0)

    def cost(rows: int, columns: int, fmt: Format, stored: int) -> float:
        if not rows * columns:
            return 0.0
        w, x = (rng.standard_normal((n, columns), dtype=np.float32) for n in (rows, 1))
        (found,) = clock.seconds(x, quantize(w, fmt), [activations])
        return found

    return cost


def _modelled(kind: str, layers: Sequence[Layer], device: Any, activations: Format | None) -> Cost:
    from ..hardware.cost.pairing import format_columns  # 60 ms

    silicon = kind.startswith("mac_")
    total = sum(prod(matrix_shape(layer)) for layer in layers)

    def cost(rows: int, columns: int, fmt: Format, stored: int) -> float:
        found = format_columns("mac" if silicon else device, [(rows, columns, stored, fmt)], activations)[kind]
        if found is None and rows * columns:
            raise WrongValue(f"search: {kind} of {fmt} is not known for this device")
        share = rows * columns / max(total, 1) if silicon else 1.0  # silicon costs are a mean over all products
        return share * float(found or 0.0)

    return cost
