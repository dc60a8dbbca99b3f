"""Rounding to the types of GGUF as ggml does: `quantize`, except for the ties and the scales of MXFP4."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....arrays.base import PackedArray
from ....arrays.components import core_format
from ....arrays.dense import as_array, normalize_axes
from ....arrays.quantized import QuantizedArray
from ....base.errors import refusals
from ....base.float_env import converted
from ....formats import MX, Format
from ....products.nearest import nearest
from ....products.quantize import quantize

MXFP4 = MX("fp4")
GGML_RULE = 4  # MX_GGML of csrc/formats/mx/mx.h


def rounded(
    array: Any, fmt: Format, axes: tuple[int, ...], importance: np.ndarray[Any, Any] | None = None
) -> QuantizedArray:
    """Return an array with the codes that ggml has for its float32 values.

    Parameters
    ----------
    array : array_like
        As of `heterocompute.quantize`.
    fmt : Format
        OCP rounds ties of MXFP4 to even; ggml takes the smaller magnitude, writes no -0, and rounds the logarithm in
        the scale to float32. All other formats are rounded as by `heterocompute.quantize`.
    importance : ndarray, optional

    Notes
    -----
    ggml, src/ggml-quants.c, quantize_row_mxfp4_ref. A largest magnitude below 2^-125 has the scale 2^-127, where ggml
    converts a negative number to an unsigned one.
    """
    if fmt != MXFP4 or isinstance(array, PackedArray):
        return quantize(array, fmt, axis=axes, importance=importance)
    x = as_array(array, "quantize: w")
    if x.dtype == np.float64:
        x = converted(x, np.dtype(np.float32))
    axes = normalize_axes(axes, x.ndim, "quantize")
    core = (*core_format(fmt)[:-1], GGML_RULE)
    with refusals(w=("quantize: w", x), format=(f"quantize: {fmt}", None)):
        return nearest(x, fmt, axes, core=core)
