"""Stochastic rounding by counter: chance.py defines it, the C core does it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from .. import _heterocompute as _core
from ..arrays.bits import pack
from ..arrays.dense import core_view
from ..arrays.quantized import QuantizedArray
from ..base import runtime
from ..base.float_env import counts_subnormals
from ..base.values import shown
from ..formats import GGML, MX, NF4, NVFP4, VSQ, Codebook, Float, Format, Int, Log
from ..products.quantize import quantize
from ..reference.minifloat import TYPES

__all__ = ["as_seed", "round_by_chance"]

Array = np.ndarray[Any, Any]
Levels = tuple[Array | None, float, float, float, float]  # (all of them, or None, 2^m, 2^e, lowest, highest)

WHOLE = 2.0**30  # m = e: integers


def as_seed(seed: Any) -> int:
    """Return a seed that is one.

    Raises
    ------
    TypeError, ValueError
        No int, or not from 0 to 2^64 - 1.
    """
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"fake_quantize: seed is {shown(seed)}, wanted an int")
    if not 0 <= seed < 2**64:
        raise ValueError(f"fake_quantize: seed is {shown(seed)}, wanted 0 to 2^64 - 1")
    return int(seed)


def round_by_chance(x: Array, q: QuantizedArray, seed: int) -> Array:
    """Round to the levels of a format, by chance; `q`, of no pattern, has the scales.

    Raises
    ------
    ValueError
        Of a learned codebook, whose levels are those that x was rounded to, or of blocks of ggml.
    """
    y = np.empty(x.shape, np.float32)
    _core.round_by_chance(runtime.run(), core_view(x), q._packed(), levels_of(q.format), seed, y)
    if isinstance(q.format, Float) and q.format.scaled is None:
        infinite = np.isinf(x)  # which saturates or stays, as the format says
        if infinite.any():
            y[infinite] = q.dequantize()[infinite]
    return y


@lru_cache(maxsize=64)
@counts_subnormals
def levels_of(fmt: Format) -> Levels:
    """Return the levels of a format before its scale, as the core takes them."""
    if isinstance(fmt, (Codebook, GGML)):
        raise ValueError(f"fake_quantize: rounding='stochastic' has no levels of {fmt} to choose from")
    if isinstance(fmt, (Int, VSQ)):
        top = 2.0 ** (fmt.bits - 1) - 1
        unsigned = fmt.unsigned if isinstance(fmt, VSQ) else not fmt.symmetric
        return (None, WHOLE, WHOLE, 0.0, 2.0**fmt.bits - 1) if unsigned else (None, WHOLE, WHOLE, -top, top)
    if isinstance(fmt, MX) and fmt.element == "int8":
        return None, WHOLE, WHOLE / 64, -127 / 64, 127 / 64
    if isinstance(fmt, (Float, MX, NVFP4)):
        name = fmt.name if isinstance(fmt, Float) else fmt.element if isinstance(fmt, MX) else "fp4"
        kind = TYPES[{"fp4": "fp4_e2m1", "fp8_e4m3": "fp8_e4m3fn"}.get(name, name)]
        return None, 2.0**kind.fraction_bits, 2.0 ** (1 - kind.bias), -kind.maximum, kind.maximum
    assert isinstance(fmt, (Log, NF4))
    fmt = replace(fmt, group=2**fmt.bits)  # one group, without padding
    codes = np.arange(2**fmt.bits, dtype=np.uint32)[None]
    q = quantize(np.ones(codes.shape, np.float32), fmt)
    whole = QuantizedArray({**q.components, "codes": pack(codes, fmt.bits)}, fmt, codes.shape, (1,))
    elements = whole.dequantize(np.float64) / q.scales_expanded(np.float64)
    levels = np.unique(elements[np.isfinite(elements)])
    return levels, 1.0, 1.0, float(levels[0]), float(levels[-1])
