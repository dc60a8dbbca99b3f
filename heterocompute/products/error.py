"""The error between an array and its quantized form: `error`."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, log10, nan, sqrt
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.base import PackedArray
from ..arrays.dense import as_array, core_view
from ..arrays.foreign import refuse_elsewhere
from ..base import runtime
from ..base.float_env import counts_subnormals

__all__ = ["Error", "error"]

_BLOCK = 1 << 22  # values decoded at a time


@dataclass(frozen=True)
class Error:
    """Report the difference between an array and the original.

    Attributes
    ----------
    sqnr_db : float
        ``10 log10(sum w^2 / sum (w - q)^2)``. Infinity if the arrays are equal. NaN if either holds a NaN, or an
        infinity that the other does not hold.
    mse : float
        Mean squared error.
    max_abs : float
        Largest magnitude of the differences.
    cosine : float
        Cosine of the angle between the arrays. If either is all zero: 1 if they are equal, 0 otherwise.
    bits_per_value : float
        Stored bits per value of the quantized array.
    """

    sqnr_db: float
    mse: float
    max_abs: float
    cosine: float
    bits_per_value: float


@counts_subnormals
def error(w: Any, q: Any) -> Error:
    """Measure the error of a quantized array against the original.

    Parameters
    ----------
    w : array_like
        The original.
    q : QuantizedArray, EIEArray or array_like
        Of the same shape.

    Returns
    -------
    Error
        Sums are float64 in a fixed order, identical on every machine. Positions where both arrays hold the same
        infinity count as 0 in all sums.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> w = np.random.default_rng(0).standard_normal((64, 64), dtype=np.float32)
    >>> round(hc.error(w, hc.quantize(w, "int8")).sqnr_db)
    44
    """
    x = as_array(w, "error: w")
    packed = isinstance(q, PackedArray)
    refuse_elsewhere(q, "error: q")
    y = q if packed else as_array(q, "error: q")
    if x.shape != y.shape:
        raise ValueError(f"error: w has shape {x.shape} and q has shape {y.shape}")
    state = b""
    for index, slab in q._slabs(_BLOCK) if packed else [((...,), y)]:
        part = core_view(as_array(slab, "error: q"))
        (xx, ee, xy, yy, max_abs), state = _core.compare(runtime.run(), core_view(x[index]), part, state)
    bits = q.bits_per_value if packed else 8.0 * y.itemsize
    norm = sqrt(xx) * sqrt(yy)
    if not isfinite(ee):  # a NaN or an infinity on either side, or beyond float64
        return Error(nan, ee, ee if np.isnan(ee) else max_abs, nan, bits)
    sqnr = inf if ee == 0 else 10 * (log10(xx) - log10(ee)) if xx > 0 else -inf
    cosine = xy / norm if norm > 0 else float(ee == 0)
    return Error(sqnr, ee / max(x.size, 1), max_abs, cosine, bits)
