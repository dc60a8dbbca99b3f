"""torchao's MX and NVFP4 tensors: floats of 8 or 4 bits with a scale for each 32 or 16 values of a row.

    MXTensor     qdata float8_e4m3fn or float8_e5m2 (out, in), or uint8 (out, in / 2): two floats of 4 bits, the first
                 in the low half; scale float8_e8m0fnu (out, in / 32)
    NVFP4Tensor  qdata uint8 (out, in / 2); scale float8_e4m3fn (out, in / 16); per_tensor_scale float32 () or none

With `is_swizzled_scales` the scales are in cuBLAS's blocks of 128 rows and 4 scales: (32 r, 16 c) of r x c blocks, in
which row 32 i + j of a block is at j, and its 4 scales at 4 i.

value = code x scale, of NVFP4 code x (scale x per_tensor_scale). torchao 0.18, prototype/mx_formats: utils.py,
to_blocked; mx_tensor.py; nvfp4_tensor.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....arrays.quantized import QuantizedArray
from ....base.errors import WrongValue, shown
from ....formats import MX, NVFP4, Format
from ..linear import Array

KINDS = ("MXTensor", "NVFP4Tensor")
HALVES = "float4_e2m1fn_x2"
ELEMENTS = {"float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", HALVES: "fp4"}
HIGH, WIDE = 128, 4  # rows and scales of a block


def _in_rows(stored: Array, rows: int, count: int) -> Array:
    """Return scales of blocks row by row."""
    high, wide = -(-rows // HIGH), -(-count // WIDE)
    blocks = stored.reshape(high, wide, 32, HIGH // 32, WIDE).transpose(0, 3, 2, 1, 4)
    return blocks.reshape(high * HIGH, wide * WIDE)[:rows, :count]


def array_of(
    prefix: str, kind: str, declared: Mapping[str, Any], tensors: Mapping[str, Array], ends: Any
) -> QuantizedArray:
    """Return one matrix.

    Parameters
    ----------
    kind : str
        Of `KINDS`.
    declared : mapping
        The attributes of the tensor: `block_size`, `elem_dtype`, `is_swizzled_scales`.
    ends : tuple of str
        Ends of the names of codes, scales and the scale of the tensor.
    """
    name, is_mx = f"{prefix}.weight", kind == KINDS[0]
    element: Any = declared.get("elem_dtype") if is_mx else {"_data": HALVES}
    dtype = element.get("_data") if isinstance(element, Mapping) else None
    if dtype not in ELEMENTS:
        raise WrongValue(f"{name}: elem_dtype is {shown(element)}, expected {', '.join(ELEMENTS)}")
    group, scale = (32, "float8_e8m0fnu") if is_mx else (16, "float8_e4m3fn")
    if declared.get("block_size") != group:
        raise WrongValue(f"{name}: block_size is {shown(declared.get('block_size'))}, expected {group}")
    codes, scales = (tensors[f"{prefix}{end}"] for end in ends[:2])
    wanted, per_byte = ("uint8", 2) if dtype == HALVES else (dtype, 1)
    if codes.dtype.name != wanted or codes.ndim != 2 or 0 in codes.shape or codes.shape[1] * per_byte % group:
        raise WrongValue(f"{prefix}{ends[0]} is {codes.dtype} {codes.shape}, expected {wanted} of groups of {group}")
    shape = codes.shape[0], codes.shape[1] * per_byte
    size = shape[0], shape[1] // group
    is_turned = declared.get("is_swizzled_scales") is True
    held = (32 * -(-size[0] // HIGH), 16 * -(-size[1] // WIDE)) if is_turned else size
    if scales.dtype.name != scale or scales.shape != held:
        raise WrongValue(f"{prefix}{ends[1]} is {scales.dtype} {scales.shape}, expected {scale} {held}")
    stored = np.ascontiguousarray(scales).view(np.uint8)
    parts = {"codes": np.ascontiguousarray(codes).view(np.uint8)}
    parts["scales"] = np.ascontiguousarray(_in_rows(stored, *size) if is_turned else stored)
    fmt: Format = MX(ELEMENTS[dtype]) if is_mx else NVFP4()
    if not is_mx:
        coarse = tensors.get(f"{prefix}{ends[2]}", np.ones((), np.float32))
        if coarse.dtype != np.float32 or coarse.size != 1:
            raise WrongValue(f"{prefix}{ends[2]} is {coarse.dtype} {coarse.shape}, expected one float32")
        parts["coarse"] = coarse.reshape(())
    return QuantizedArray(parts, fmt, shape, (1,))
