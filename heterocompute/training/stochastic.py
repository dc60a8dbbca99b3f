"""Stochastic rounding by counter: chance.py defines it, the C core computes it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.dense import core_view
from ..arrays.quantized import QuantizedArray
from ..base import runtime
from ..base.errors import WrongType, WrongValue, shown
from ..base.float_env import counts_subnormals
from ..formats import Format

Array = np.ndarray[Any, Any]
Levels = tuple[Array | None, float, float, float, float]  # (all of them, or None, 2^m, 2^e, lowest, highest)

WHOLE = 2.0**30  # m = e: integers


def as_seed(seed: object) -> int:
    """Return a valid seed.

    Raises
    ------
    TypeError, ValueError
        The seed is not an int, or not from 0 to 2^64 - 1.
    """
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)):
        raise WrongType(f"fake_quantize: seed is {shown(seed)}, expected an int")
    if not 0 <= seed < 2**64:
        raise WrongValue(f"fake_quantize: seed is {shown(seed)}, expected 0 to 2^64 - 1")
    return int(seed)


def stochastic_round(x: Array, q: QuantizedArray, seed: int) -> Array:
    """Round to the levels of a format stochastically; the scales are those of `q`, which has no pattern.

    Raises
    ------
    ValueError
        The format is a learned codebook, whose levels come from rounding x, or blocks, or states no kind of codes.
    """
    y = np.empty(x.shape, np.float32)
    _core.round_by_chance(runtime.run(), core_view(x), q._packed(), levels_of(q.format), seed, y)
    if not q.format.form.has_scales:
        infinite = np.isinf(x)  # infinities saturate or stay, depending on the format
        if infinite.any():
            y[infinite] = q.dequantize()[infinite]
    return y


@lru_cache(maxsize=64)
@counts_subnormals
def levels_of(fmt: Format) -> Levels:
    """Return the levels of a format before its scale, in the C core's form."""
    form = fmt.form
    if form.codes in ("learned", "unstated") or form.minima or fmt.unit > 1:
        raise WrongValue(f"fake_quantize: rounding='stochastic' has no levels of {fmt} to choose from")
    if form.codes == "integer":
        one = 2.0**-form.fraction_bits
        return None, WHOLE, WHOLE * one, form.lowest * one, form.largest * one
    if form.codes == "float":
        return None, 2.0 ** (form.precision - 1), 2.0**form.smallest, -form.maximum, form.maximum
    if not form.levels:
        raise WrongValue(f"fake_quantize: rounding='stochastic' needs a table of levels, and {fmt} has too many")
    levels = np.unique([level for level in form.levels if np.isfinite(level)])
    return levels, 1.0, 1.0, float(levels[0]), float(levels[-1])
