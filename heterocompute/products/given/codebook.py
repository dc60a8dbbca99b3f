"""Rounding to codebooks that are given and not learned: the nearest entry, ties to the lower, as learned ones."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...arrays.bits import pack, rows_per_chunk
from ...arrays.components import component_layout
from ...arrays.dense import as_array, refuse_infinite
from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue, shown
from ...base.float_env import converted
from ...formats import Format

Array = np.ndarray[Any, Any]

_BLOCK = 1 << 20  # values at a time


def checked_codebook(codebook: object, fmt: Format, rows: int) -> Array:
    """Return the codebook as float32, in the shape of the format's component.

    Parameters
    ----------
    codebook : array_like
        2^bits ascending numbers, or as many for each row.
    fmt : Format
        Without a pattern.

    Raises
    ------
    ValueError
        The format has no codebook of single values, or the numbers do not fit it.
    """
    if not isinstance(codebook, (list, tuple)):
        given = as_array(codebook, "quantize: codebook")
    else:
        try:
            given = np.asarray(codebook, np.float64)
        except (TypeError, ValueError):
            raise WrongValue(f"quantize: codebook is {shown(codebook)}, expected an array of floats") from None
    if not fmt.learns_codebook or fmt.unit > 1:
        raise WrongValue(f"quantize: codebook is given with {fmt}, expected a codebook of single values such as cb4")
    k = 2**fmt.bits
    shapes = [(k,)] if fmt.form.shared else [(k,), (rows, k)]
    if given.shape not in shapes:
        raise WrongValue(
            f"quantize: codebook has shape {given.shape}, expected {' or '.join(map(str, shapes))} for {fmt}"
        )
    with np.errstate(over="ignore"):
        levels = converted(given, np.float32)
    refuse_infinite(levels, "quantize: codebook")
    steps, last = np.diff(levels, axis=-1), levels[..., -1:]
    wrong = (steps < 0) | ((steps == 0) & (levels[..., 1:] != last))
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        index = (*first[:-1], first[-1] + 1)
        raise WrongValue(
            f"quantize: codebook has {levels[index]} at index {index}, expected ascending numbers of which only the "
            "last may repeat"
        )
    return levels if fmt.form.shared else np.array(np.broadcast_to(levels, (rows, k)))


def by_codebook(x: Array, fmt: Format, axes: tuple[int, ...], codebook: Array) -> QuantizedArray:
    """Round an array to a codebook.

    Parameters
    ----------
    fmt : Codebook
        With ``dim=1``, as `checked_codebook` checks.
    codebook : ndarray of float32
        As `checked_codebook` returns it.
    """
    others = [a for a in range(x.ndim) if a not in axes]
    rows, length = prod(x.shape[a] for a in others), x.shape[axes[-1]]
    runs = prod(x.shape[a] for a in axes[:-1])
    layout = component_layout(fmt, x.shape, axes)
    parts = {name: np.zeros(size, dtype) for name, (dtype, size) in layout.items()}
    parts["codebook"][...] = codebook
    turned = x.transpose(*others, *axes).reshape(rows, runs, length)
    group = min(fmt.group or length, length) or 1  # a group beyond the run is the run
    width = -(-length // group) * group
    step = rows_per_chunk(rows, runs * width, _BLOCK)
    for first in range(0, rows, step):
        at = slice(first, first + step)
        values = np.zeros((len(turned[at]), runs, width))
        values[..., :length] = turned[at]
        if fmt.group is not None:
            grouped = values.reshape(len(values), -1, group)
            scales = np.abs(grouped).max(axis=-1, initial=0.0).astype(np.float32)
            parts["scales"][at] = scales
            divisors = np.broadcast_to(scales.astype(np.float64)[..., None], grouped.shape)
            grouped = np.divide(grouped, divisors, out=np.zeros(grouped.shape), where=divisors != 0).astype(np.float32)
            codes = _nearest(parts["codebook"], at, grouped.reshape(len(values), -1))
            codes[np.repeat(scales == 0, group, axis=1)] = 0
        else:
            codes = _nearest(parts["codebook"], at, values.reshape(len(values), -1))
        parts["codes"][at] = pack(codes, fmt.bits)
    return QuantizedArray._trusted(parts, fmt, x.shape, axes, x.dtype.name)


def _nearest(codebook: Array, at: slice, values: Array) -> Array:
    """Return codes of rows: between the midpoints, a midpoint to the lower entry; entries that repeat are not taken."""
    low, high = codebook[..., :-1].astype(np.float64), codebook[..., 1:].astype(np.float64)
    middles = np.where(low == high, np.inf, (low + high) / 2)
    if middles.ndim == 1:
        return np.searchsorted(middles, values, side="left").astype(np.uint8)
    codes = np.empty(values.shape, np.uint8)
    for i, middle in enumerate(middles[at]):
        codes[i] = np.searchsorted(middle, values[i], side="left")
    return codes
