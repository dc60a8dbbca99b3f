"""The bytes of ggml's blocks (src/ggml-common.h), from the components of an array and back.

heterocompute/reference/formats/ggml/storage.py defines these bytes, csrc/formats/ggml/blocks.c moves them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .... import _heterocompute as _core
from ....arrays.components import component_layout, core_format
from ....arrays.quantized import QuantizedArray
from ....base import runtime
from ....formats import GGML, MX, NVFP4, Format, Int

Array = np.ndarray[Any, Any]

INTEGERS = {Int(4, 32, scale="f16"): "q4_0", Int(8, 32, scale="f16"): "q8_0"}


def blocks_name(fmt: object) -> str | None:
    """Return ggml's name for the blocks of a format, in small letters; None if it has none."""
    if isinstance(fmt, GGML):
        return fmt.type
    if isinstance(fmt, NVFP4):
        return "nvfp4"
    if isinstance(fmt, MX) and fmt.element == "fp4":
        return "mxfp4"
    return INTEGERS.get(fmt) if isinstance(fmt, Int) else None


def block_bytes(fmt: Format) -> int:
    """Return the bytes of a block."""
    assert isinstance(fmt, GGML)
    return int(_core.blocks_bytes(fmt.type, fmt.block))


def bytes_of(q: QuantizedArray) -> Array:
    """Return the blocks of an array whose rows hold whole ones.

    Parameters
    ----------
    q : QuantizedArray
        Quantized along its last axis, of a format that `blocks_name` knows. A code for -0 becomes 0.

    Returns
    -------
    ndarray of uint8, (rows, bytes of a row)
    """
    name = blocks_name(q.format)
    assert name is not None
    data = np.empty((math.prod(q.shape[:-1]), _core.blocks_bytes(name, q.shape[-1])), np.uint8)
    _core.blocks(runtime.run(), name, q._packed(), data, False)
    return data


def array_of(fmt: Format, data: Array, shape: tuple[int, ...], more: dict[str, Array] | None = None) -> QuantizedArray:
    """Return the array of some blocks, whose content is trusted.

    Parameters
    ----------
    fmt : Format
        One that `blocks_name` knows.
    data : ndarray of uint8, (rows, bytes of a row)
    shape : tuple of int
        (..., columns), none of them 0.
    more : dict of str to ndarray, optional
        Components that are not in the blocks.
    """
    name, axis = blocks_name(fmt), (len(shape) - 1,)
    assert name is not None
    parts = {key: np.empty(size, dtype) for key, (dtype, size) in component_layout(fmt, shape, axis).items()}
    parts |= more or {}
    _core.blocks(runtime.run(), name, (core_format(fmt), shape, axis, parts), np.ascontiguousarray(data), True)
    return QuantizedArray(parts, fmt, shape, axis)
