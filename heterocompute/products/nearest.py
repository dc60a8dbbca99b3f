"""Rounding of a checked array to the nearest codes: the components are allocated here, and the C core fills them."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from .. import _heterocompute as _core
from ..arrays.components import core_format, core_layout
from ..arrays.dense import core_view
from ..arrays.quantized import QuantizedArray
from ..base import runtime
from ..formats import Format

Array = np.ndarray[Any, Any]

CACHE_LINE, ALIGNED_FROM = 64, 1 << 14  # bytes; alignment does not matter for smaller arrays


def nearest(
    x: Array,
    fmt: Format,
    axes: tuple[int, ...],
    clip: tuple[int, float] | None = None,
    importance: Array | None = None,
    core: tuple[object, ...] | None = None,
) -> QuantizedArray:
    """Round an array whose dtype and axes are checked already.

    Parameters
    ----------
    fmt : Format
        Without a pattern, or with one on codes: a pattern alone keeps floats, see `heterocompute.arrays.sparse.choose`.
    axes : tuple of int
        The reduction axes, not negative.
    clip : (int, float), optional
        As of `heterocompute.products.arguments.core_clip`.
    importance : ndarray of floats, of x's shape, optional
    core : tuple, optional
        The format as the core rounds to it, if that differs from `fmt`: the components have the same layout.

    Raises
    ------
    Refused
        The array holds a NaN or an infinity, or the format does not fit it; see `heterocompute.base.errors.refusals`.
    """
    core = core_format(fmt) if core is None else core
    parts = {name: _empty(size, dtype) for name, (dtype, size, _) in core_layout(core, x.shape, axes).items()}
    weights = None if importance is None else core_view(importance)
    _core.quantize(runtime.run(), core_view(x), clip, (core, x.shape, axes, parts), weights)
    return QuantizedArray._trusted(parts, fmt, x.shape, axes, x.dtype.name)


class Layout(NamedTuple):
    """Layout of the components of a format, for axes and a shape.

    Attributes
    ----------
    format : Format
    axes : tuple of int
    parts : dict of str to (shape, dtype)
        The components.
    """

    format: Format
    axes: tuple[int, ...]
    parts: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]


def nearest_as(x: Array, layout: Layout) -> QuantizedArray:
    """Round a float32 array as `nearest` does, with components that are known.

    Parameters
    ----------
    layout : Layout
        Of arrays of this shape.
    """
    parts = {name: _empty(*part) for name, part in layout.parts.items()}
    _core.quantize(runtime.run(), x, None, (core_format(layout.format), x.shape, layout.axes, parts), None)
    return QuantizedArray._trusted(parts, layout.format, x.shape, layout.axes, "float32")


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Make an array that starts at a cache line, unlike NumPy's own: kernels read whole lines."""
    nbytes = prod(shape) * dtype.itemsize
    if nbytes < ALIGNED_FROM:
        return np.empty(shape, dtype)
    memory = np.empty(nbytes + CACHE_LINE, np.uint8)
    start = -memory.__array_interface__["data"][0] % CACHE_LINE
    return memory[start : start + nbytes].view(dtype).reshape(shape)
