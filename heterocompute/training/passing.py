"""Rounded values with a note of where the gradient passes: a bit per value, written in the same pass, or nothing.

    low * T <= w <= high * T          T the threshold of w's group, 1 without a clip; w as float32

The kind of note depends only on the format and the clip: nothing (the gradient passes everywhere), bits, or, for OCTAV
and patterns, a float32 factor.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.components import core_format
from ..arrays.dense import core_view
from ..arrays.quantized import QuantizedArray
from ..arrays.sparse import SparseArray, choose
from ..base import runtime
from ..base.errors import WrongValue, refusals
from ..base.float_env import counts_subnormals
from ..formats import Format, Sparse, has_pattern, is_function, is_own
from ..products.arguments import core_clip
from ..products.quantize import fake_quantize, quantize
from .stochastic import levels_of, stochastic_round

Array = np.ndarray[Any, Any]

# A searched scale is a threshold divided once by the largest element. So the threshold may exceed scale * element by
# half a unit of the last place of float32, or of float16 if the scale is stored as float16.
SLACK, SLACK_F16 = 2.0**-23, 2.0**-10


def bounds_of(fmt: Format, clip: object) -> tuple[float, float] | None:
    """Return (low, high) of the equation above; None if the gradient passes everywhere."""
    if is_function(fmt):
        return None
    form = fmt.form
    if form.codes == "unstated":
        raise WrongValue(f"fake_quantize: {fmt} has codes of an unstated kind, so that its range is unknown")
    if is_own(fmt) and form.any_axis and not form.has_scales:  # floats and posits, whatever the core reads
        return (-fmt.element.largest if fmt.element.signed else 0.0), fmt.element.largest
    if form.codes == "float" and not form.has_scales:
        return None if form.bits == 32 else (-form.maximum, form.maximum)
    is_unsigned = form.is_unsigned or (is_own(fmt) and not fmt.element.signed)
    if clip is None:
        return (0.0, math.inf) if is_unsigned else None
    return (0.0 if is_unsigned else -1.0), 1.0


def note_of(
    fmt: Format, clip: object, shape: tuple[int, ...], axes: tuple[int, ...], on_device: bool = False
) -> tuple[Any, tuple[int, ...]] | None:
    """Return dtype and shape of the note, or None if there is none; on a device it has bytes for bits."""
    base = fmt.base if has_pattern(fmt) else fmt
    if bounds_of(base, clip) is None:
        return None
    if has_pattern(fmt) or isinstance(clip, str) and clip in ("octav", "search"):
        return np.float32, shape
    return np.uint8, shape if on_device else _core.inside_shape(core_format(fmt), shape, axes)


def rounded(
    x: Array, fmt: Format, axes: tuple[int, ...], clip: object, rounding: str, seed: int
) -> tuple[Array, Array | None]:
    """Return the rounded values and the note; rounding and seed are checked."""
    is_stochastic = rounding == "stochastic"
    if is_function(fmt):
        if is_stochastic:
            raise WrongValue(
                f"fake_quantize: rounding is 'stochastic', but {fmt} is a function, whose levels are unknown"
            )
        return fake_quantize(x, fmt, axes, clip), None
    if is_stochastic:
        levels_of(fmt.base if has_pattern(fmt) else fmt)
    if has_pattern(fmt):
        return _of_pattern(x, fmt, axes, clip, rounding, seed)
    searched = isinstance(clip, str) and clip == "search"
    q = quantize(x, fmt, axes, clip) if is_stochastic or searched else None
    note = note_of(fmt, clip, x.shape, axes)
    if q is not None and (searched or note is None):
        return stochastic_round(x, q, seed) if is_stochastic else q.dequantize(), _searched(x, q) if note else None
    y = np.empty(x.shape, np.float32)
    inside, found = None, None
    if note is not None:
        bounds = bounds_of(fmt, clip)
        assert bounds is not None
        bits = np.empty(_core.inside_shape(core_format(fmt), x.shape, axes), np.uint8)
        factor = np.empty(x.shape, np.float32) if note[0] is np.float32 else None
        inside, found = (*bounds, bits, factor), bits if factor is None else factor
    with refusals(w=("fake_quantize: w", x), format=(f"fake_quantize: {fmt}", None)):
        threshold = core_clip(clip, "fake_quantize")
        _core.fake_quantize(runtime.run(), core_view(x), core_format(fmt), axes, threshold, y, inside)
    return (y if q is None else stochastic_round(x, q, seed)), found


def passed(g: Array, note: Array | None, fmt: Format, axes: tuple[int, ...]) -> Array:
    """Return the float32 gradient that passes: g itself if all of it does."""
    gradient = g.astype(np.float32, copy=False)
    if note is None:
        return gradient
    if note.dtype == np.float32:
        return np.asarray(gradient * note)
    found = np.empty(gradient.shape, np.float32)
    _core.keep_inside(runtime.run(), core_view(gradient), core_format(fmt), axes, note, found)
    return found


@counts_subnormals
def _searched(x: Array, q: QuantizedArray) -> Array:
    """Return 1 up to the largest element times the searched scale, 0 beyond."""
    fmt = q.format
    scale = q.scales_expanded(np.float64) * (1 + (SLACK_F16 if fmt.form.scale == "f16" else SLACK))
    _, _, _, low, high = levels_of(fmt)
    values, points = x.astype(np.float64), 0.0
    if fmt.form.zero_points:
        points = q.zero_points_expanded() + np.array([0.5, -0.5]).reshape(2, *(1,) * x.ndim)
        low, high = (low - points[0]) * scale, (high - points[1]) * scale
        return np.asarray(((low <= values) & (values <= high)).astype(np.float32))
    return np.asarray(((low * scale <= values) & (values <= high * scale)).astype(np.float32))


def _of_pattern(
    x: Array, fmt: Sparse, axes: tuple[int, ...], clip: object, rounding: str, seed: int
) -> tuple[Array, Array | None]:
    """Round the values that a pattern keeps; the gradient passes at the pruned values."""
    noted = note_of(fmt, clip, x.shape, axes) is not None
    if rounding == "nearest" and not noted:
        return fake_quantize(x, fmt, axes, clip), None
    s = choose(x, None, fmt.n, fmt.m, axes, "fake_quantize")
    values = s.components["values"]
    if fmt.is_plain:
        if clip is not None:
            raise WrongValue(f"fake_quantize: {fmt} has no scale that clip= could change")
        return s.to_dense(), None
    count = fmt.stored_length(x.shape[axes[-1]])
    segments = values.reshape(len(values), values.shape[1] // max(count, 1), count)
    try:
        y, note = rounded(segments, fmt.base, (1, 2), clip, rounding, seed)
    except ValueError:
        fake_quantize(x, fmt, axes, clip)  # its error has the index in the whole array
        raise

    def spread(kept: Array) -> Array:
        parts = {**s.components, "values": kept.reshape(values.shape)}
        return SparseArray._trusted(parts, s.format, s.shape, s.axis, "float32").to_dense()

    dense = spread(y) if rounding == "stochastic" else fake_quantize(x, fmt, axes, clip)
    if not noted:
        return dense, None
    factor = passed(np.ones(segments.shape, np.float32), note, fmt.base, (1, 2))
    found = spread(np.where(factor == 0, np.float32(2), factor))  # 0: nothing is kept there
    return dense, np.where(found == 2, np.float32(0), np.where(found == 0, np.float32(1), found))
