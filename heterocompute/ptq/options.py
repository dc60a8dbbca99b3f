"""Checked options of `gptq` and `qronos`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..base import runtime
from ..base.errors import WrongValue, shown
from ..base.values import as_int, as_real
from ..formats import has_pattern
from ..products.arguments import as_format
from .guarantee import Limit

Array = np.ndarray[Any, Any]

_MOST = 10**6  # sweeps
_WIDEST = 48  # bits of an accumulator
_STEPS = 30  # of the power iteration
DAMPING = {"gptq": 0.01, "qronos": 1e-3}  # shares of `Options.unit`


@dataclass(frozen=True)
class Options:
    """Checked options of a method; `refits` is the number of sweeps that begin with a refit."""

    order: str
    scales: str
    damping: float
    sweeps: int
    refits: int
    method: str = "gptq"
    limit: Limit | None = None
    shrinkage: float = 0.0

    @classmethod
    def of(
        cls,
        order: Any = "activation",
        scales: Any = "search",
        damping: Any = None,
        sweeps: Any = 3,
        refit: Any = True,
        method: str = "gptq",
        accumulator: Any = None,
        activations: Any = None,
        tile: Any = None,
        shrinkage: Any = 0.0,
    ) -> Options:
        """Return options, checked; errors name the method. Default of `damping`: that of the method."""
        _check_words(method, order, scales)
        share, shrunk = (
            _share(value, f"{method}: {name}")
            for name, value in (("damping", DAMPING[method] if damping is None else damping), ("shrinkage", shrinkage))
        )
        count = as_int(sweeps, f"{method}: sweeps", 0, _MOST)
        refits = as_int(int(refit) if isinstance(refit, bool) else refit, f"{method}: refit", 0)
        limit = _limit(method, accumulator, activations, tile)
        return cls(order, scales, share, count, refits, method, limit, shrunk)

    def unit(self, matrix: Array) -> float:
        """Return the value of which `damping` is a share: the mean of the diagonal, or the largest eigenvalue."""
        if self.method == "qronos":
            return _core.ptq_largest(runtime.run(), len(matrix), matrix, _STEPS) or 1.0
        return mean_of(matrix)


def _share(value: Any, name: str) -> float:
    found: float = as_real(value, name, "a number")
    if not 0 <= found < np.inf:
        raise WrongValue(f"{name} is {shown(value)}, expected a finite number, 0 or more")
    return found


def _limit(method: str, accumulator: Any, activations: Any, tile: Any) -> Limit | None:
    """Return a checked accumulator, None if there is none."""
    if accumulator is None:
        for name, value in (("activations", activations), ("tile", tile)):
            if value is not None:
                raise WrongValue(f"{method}: {name} is {shown(value)} without accumulator, expected both or neither")
        return None
    if method != "gptq":
        raise WrongValue(f"{method}: accumulator is for gptq, expected no accumulator")
    bits = as_int(accumulator, f"{method}: accumulator", 2, _WIDEST)
    if activations is None or tile is None:
        missing = "activations" if activations is None else "tile"
        raise WrongValue(f"{method}: accumulator is {bits} without {missing}, expected activations and tile with it")
    fmt = as_format(activations, f"{method}: activations")
    if has_pattern(fmt) or fmt.form.codes != "integer" or fmt.form.minima:
        raise WrongValue(f"{method}: activations is {fmt}, expected a format of integers")
    return Limit(bits, fmt, as_int(tile, f"{method}: tile", 1))


def _check_words(method: str, order: Any, scales: Any) -> None:
    for name, value, wanted in (("order", order, ("activation", "natural")), ("scales", scales, ("search", "absmax"))):
        if not isinstance(value, str) or value not in wanted:
            raise WrongValue(f"{method}: {name} is {shown(value)}, expected {shown(wanted[0])} or {shown(wanted[1])}")


def mean_of(matrix: Array) -> float:
    """Return the mean of the diagonal, or 1 if it is 0 or empty."""
    if not len(matrix):
        return 1.0
    return float(np.add.accumulate(np.diagonal(matrix))[-1] / len(matrix)) or 1.0
