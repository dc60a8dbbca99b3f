"""The scales that a format can store, as a search of scales needs them: what a stored scale is, and what shares it.

scale = float32(table[code - 1] * coarse), 0 for code 0           kind "table": floats of few bits, bfloat16
scale = stored                                                    kinds "f32", "f16"
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..formats import Float, Format, is_own
from ..formats.elements import Minifloat
from ..formats.own import Own

Array = np.ndarray[Any, Any]


def kind_of(fmt: Format) -> str:
    """Return the kind of a format's scales: that of its `form`, or of an own format's sentence; "table" of floats."""
    kind = fmt.form.scale
    if kind == "own" and is_own(fmt):
        kind = fmt.scale_kind
    return "table" if kind in ("e4m3", "float", "bf16") else kind


def has_coarse(fmt: Format) -> bool:
    """Tell whether a float32 multiplies every scale of the kind "table"."""
    return fmt.second is not None if is_own(fmt) else fmt.form.second == "scale"


@lru_cache(maxsize=64)
def scale_table(fmt: Format) -> Array:
    """Return the scales above 0 of the kind "table", by code from 1."""
    kind = fmt.scale_type if is_own(fmt) else None
    if kind is None:
        table = np.array(Float("fp8_e4m3fn").form.levels)
        return np.array(table[(table > 0) & np.isfinite(table)])
    return _positive(kind)


def _positive(kind: Minifloat) -> Array:
    """Return the finite numbers above 0 of a float, by code from 1."""
    codes = np.arange(1, kind.largest_code + 1)
    exponent, fraction = codes >> kind.mantissa, codes & ((1 << kind.mantissa) - 1)
    significand = np.where(exponent > 0, fraction + (1 << kind.mantissa), fraction)
    places = np.maximum(exponent, 1) - kind.used_bias - kind.mantissa
    return np.asarray(np.ldexp(significand.astype(np.float64), places))


def repeated(fmt: Format, stored: Array, rows: int) -> Array:
    """Return stored scales (rows, groups) for each row of an array."""
    return np.repeat(stored, fmt.shared_rows, axis=0)[:rows] if fmt.shared_rows > 1 else stored


def stored_table_codes(fmt: Format, every: Array, scale: Array) -> Array:
    """Return the component of scales (rows, groups) of the kind "table"; `every`: all scales of each row, 0 first."""
    if every.ndim == 1:
        codes = np.searchsorted(every, scale)
    else:
        codes = np.empty(scale.shape, np.int64)
        for i, one in enumerate(every):
            codes[i] = np.searchsorted(one, scale[i])
    if is_own(fmt) and fmt.scale_kind == "bf16":
        return codes.astype(np.uint16)
    return codes.astype(np.uint8)


def own_levels(fmt: Own) -> tuple[Array, Array, Array]:
    """Return levels, codes and thresholds of an element, ascending and without -0, saturated.

    A value has the level after the last threshold that it is greater than.
    """
    table = fmt.element.table(True)
    ranked, bounds = table.ranked, table.bounds
    if table.minus_zero is not None:
        at = int(np.flatnonzero(ranked == table.minus_zero)[0])
        ranked, bounds = np.delete(ranked, at), np.delete(bounds, min(at, len(bounds) - 1))
    with np.errstate(over="ignore"):
        levels = np.nan_to_num(table.levels[ranked].astype(np.float32), nan=0.0).astype(np.float64)
    distinct = np.concatenate([[True], np.diff(levels) > 0])
    return levels[distinct], ranked[distinct].astype(np.int64), np.ascontiguousarray(bounds[distinct[1:]])


def is_below(fmt: Format) -> bool:
    """Tell whether the plain scale is not that of the largest magnitude, so that larger ones may be better."""
    return is_own(fmt) and (fmt.used_rule == "absmean" or fmt.used_target < fmt.element.largest)
