"""Integers whose scales are trained: LSQ, Esser et al., "Learned Step Size Quantization", ICLR 2020.

t = w / s, y = s * clip(RNE(t), -Q, Q), Q = 2^(b-1) - 1
dy/dw = 1 if abs(t) <= Q, otherwise 0
dy/ds = RNE(t) - t if abs(t) <= Q, otherwise Q with t's sign; times 1 / sqrt(values of a group * Q)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.components import component_layout
from ..arrays.dense import as_array, refuse_infinite
from ..arrays.quantized import QuantizedArray
from ..base.errors import WrongValue
from ..base.float_env import counts_subnormals
from ..formats import Format, Int, has_pattern
from ..products.quantize import quantize

Array = np.ndarray[Any, Any]


def check_scaled(fmt: Format) -> Format:
    """Return a format whose scales can be trained; ValueError for others."""
    form = fmt.form
    steps = form.codes == "integer" and form.signed and not (form.minima or form.fraction_bits) and fmt.unit == 1
    if not steps or has_pattern(fmt) or form.scale not in ("f32", "f16") or form.second != "none":
        raise WrongValue(f"fake_quantize: scale is trained for symmetric integers such as int4-g32, not for {fmt}")
    return fmt


def scale_shape(fmt: Format, shape: tuple[int, ...], axes: tuple[int, ...], given: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the scales of an array; ValueError if the given scales have another one."""
    expected: tuple[int, ...] = component_layout(fmt, shape, axes)["scales"][1]
    if given != expected:
        raise WrongValue(f"fake_quantize: scale has shape {given}, expected {expected}, one a group of each row")
    return expected


@counts_subnormals
def rounded_with_scale(
    x: Array, fmt: Format, axes: tuple[int, ...], scale: object
) -> tuple[Array, Callable[[Any], tuple[Array, Array]]]:
    """Compute `fake_quantize` with ``scale=``."""
    form = check_scaled(fmt).form
    refuse_infinite(x, "fake_quantize: w")
    plain = Int(fmt.bits, fmt.group)
    q = quantize(np.zeros(x.shape, np.float32), plain, axes)
    given = as_array(scale, "fake_quantize: scale")
    shape = scale_shape(fmt, x.shape, axes, given.shape)
    stored = np.ascontiguousarray(given, np.float32)
    if form.scale == "f16":
        stored = np.minimum(stored, np.float32(65504)).astype(np.float16).astype(np.float32)
    if not (np.isfinite(stored) & (stored > 0)).all():
        raise WrongValue("fake_quantize: scale has a value that is not above 0 and finite")

    def expanded(numbers: Array) -> Array:
        return QuantizedArray({**q.components, "scales": numbers}, plain, q.shape, q.axis).scales_expanded(np.float64)

    s, top = expanded(stored), 2.0 ** (fmt.bits - 1) - 1
    group = expanded(np.arange(1, stored.size + 1, dtype=np.float32).reshape(shape)).astype(np.int64) - 1
    t = x.astype(np.float64) / s
    inside, code = np.abs(t) <= top, np.clip(np.rint(t), -top, top)
    y = (code * s).astype(np.float32)
    slope = np.where(inside, code - t, code).astype(np.float32)
    counts = np.bincount(group.reshape(-1), minlength=stored.size)
    share = 1 / np.sqrt(np.maximum(counts, 1) * top)

    @counts_subnormals
    def back(g: object) -> tuple[Array, Array]:
        gradient = as_array(g, "back: g")
        if gradient.shape != y.shape:
            raise WrongValue(f"back: g has shape {gradient.shape}, expected {y.shape}")
        sums = np.bincount(group.reshape(-1), (gradient.astype(np.float64) * slope).reshape(-1), stored.size)
        of_scale = (sums * share).astype(np.float32).reshape(shape)
        return np.where(inside, gradient, 0).astype(np.float32), of_scale

    if stored.size > 1 << 24 or not math.isfinite(float(np.abs(y).max(initial=0))):
        raise WrongValue("fake_quantize: more than 2^24 groups, or values beyond float32's largest")
    return y, back
