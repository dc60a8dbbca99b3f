"""The error between an array and its quantized form: `error`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import frexp, inf, isfinite, log10, nan, sqrt
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.base import PackedArray
from ..arrays.dense import as_array, core_view
from ..arrays.foreign import refuse_elsewhere
from ..base import runtime
from ..base.errors import WrongValue
from ..base.float_env import counts_subnormals
from ..base.notebooks.shown import Facts

__all__ = ["ErrorReport", "error"]

_BLOCK = 1 << 22  # values decoded at a time
_LEAST = 2.0**-900  # sums of squares below it lose digits


@dataclass(frozen=True)
class ErrorReport(Facts):
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
def error(w: Any, q: Any) -> ErrorReport:
    """Measure the error of a quantized array against the original.

    Parameters
    ----------
    w : array_like
        The original, an array of NumPy, PyTorch, JAX or another library of the array API standard, in CPU memory.
    q : QuantizedArray, EIEArray or array_like
        Of the same shape.

    Returns
    -------
    ErrorReport
        Numbers of Python, whatever the library of the arrays. Sums are float64 in a fixed order, identical on every
        machine. Positions where both arrays hold the same infinity count as 0 in all sums.

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
        raise WrongValue(f"error: w has shape {x.shape} and q has shape {y.shape}")
    (xx, ee, xy, yy, max_abs), sizes, differs = _sums(x, y), (0, 0), 0
    if 0 < max_abs < inf and not (_LEAST < ee < inf):  # float64: squares are out of range, or lose digits
        differs = -frexp(max_abs)[1]
        ee = _sums(x, y, (differs, differs))[1]
    if isfinite(ee) and not (_LEAST < min(xx, yy) and max(xx, yy) < inf):
        largest = [max(float(np.abs(pair[i]).max(initial=0)) for pair in _pairs(x, y)) for i in range(2)]
        sizes = -frexp(largest[0])[1], -frexp(largest[1])[1]
        xx, _, xy, yy, _ = _sums(x, y, sizes)
    bits = q.bits_per_value if packed else 8.0 * y.itemsize
    norm = sqrt(xx) * sqrt(yy)
    if not isfinite(ee):  # a NaN or an infinity on either side
        return ErrorReport(nan, ee, ee if np.isnan(ee) else max_abs, nan, bits)
    sqnr = inf if ee == 0 else 10 * (log10(xx) - log10(ee) + 2 * (differs - sizes[0]) * log10(2)) if xx > 0 else -inf
    cosine = xy / norm if norm > 0 else float(ee == 0)
    with np.errstate(over="ignore", under="ignore"):
        mse = float(np.ldexp(ee / max(x.size, 1), -2 * differs))
    return ErrorReport(sqnr, mse, max_abs, cosine, bits)


def _pairs(x: Any, y: object) -> Iterator[tuple[Any, Any]]:
    for index, slab in y._slabs(_BLOCK) if isinstance(y, PackedArray) else [((...,), y)]:
        yield x[index], as_array(slab, "error: q")


def _sums(x: object, y: object, powers: tuple[int, int] = (0, 0)) -> Any:
    """Return the sums of x^2, (x - y)^2, x y and y^2, and the largest abs(x - y), of x and y times 2^powers."""
    state, sums = b"", (0.0,) * 5
    for one, two in _pairs(x, y):
        if any(powers):
            with np.errstate(over="ignore", under="ignore"):
                one = np.ldexp(one.astype(np.float64), powers[0])
                two = np.ldexp(two.astype(np.float64), powers[1])
        sums, state = _core.compare(runtime.run(), core_view(one), core_view(two), state)
    return sums
