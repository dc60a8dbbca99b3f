"""8-bit tensors of quanto, as in the `state_dict` of optimum-quanto; reading only.

    NAME.weight._data   int8, float8_e4m3fn or float8_e5m2 (out, in), or a filter (out, in, height, width)
    NAME.weight._scale  float (out, 1), or (out, 1, 1, 1); or one

value = code x scale in float32, before quanto rounds it to the dtype of the scale. Weights of 2 and 4 bits
(`NAME.weight._data._data`) are refused: the file has rows of groups, but not the shape of the weight, which quanto
takes from the model. optimum-quanto 0.2.7, tensor/weights/qbytes.py, tensor/packed.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....arrays.quantized import QuantizedArray
from ....base.errors import WrongValue
from .. import scaled
from ..linear import Array, no_format

__all__ = ["ENDS", "array_from", "blocks_from", "values_from"]

NAME = "quanto"
ENDS = (".weight._data", ".weight._scale")
CODES = ("int8", "float8_e4m3fn", "float8_e5m2")


def _parts(prefix: str, tensors: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return the codes of a weight, and its scales (out,) or (1,)."""
    codes, scales = (tensors[f"{prefix}{end}"] for end in ENDS)
    if codes.dtype.name not in CODES or codes.ndim not in (2, 3, 4) or 0 in codes.shape:
        raise WrongValue(f"{prefix}{ENDS[0]} is {codes.dtype} {codes.shape}, expected {', '.join(CODES)} (out, in)")
    if scales.dtype.name not in scaled.SCALES or (
        scales.size != 1 and scales.shape != (len(codes), *[1] * (codes.ndim - 1))
    ):
        raise WrongValue(f"{prefix}{ENDS[1]} is {scales.dtype} {scales.shape}, expected floats ({len(codes)}, 1)")
    if not np.isfinite(scales.astype(np.float32)).all():
        raise WrongValue(f"{prefix}{ENDS[1]} holds a value that is not finite")
    return codes, scales.reshape(-1)


def _codes_in(prefix: str, tensors: Mapping[str, Array]) -> scaled.Codes:
    codes, scales = _parts(prefix, tensors)
    if codes.ndim != 2:
        raise WrongValue(f"{prefix}{ENDS[0]}: filters {codes.shape} {no_format(NAME)}")
    high = 1 if len(scales) == len(codes) else len(codes)
    return scaled.Codes(codes, scales.reshape(-1, 1), None, (high, codes.shape[1]))


def array_from(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> QuantizedArray:
    """Return one matrix with one scale per row, or one for all rows."""
    return scaled.array_of(prefix, _codes_in(prefix, tensors), NAME)


def blocks_from(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Any:
    """Return the codes and scales of a matrix that no format here represents; None for other tensors."""
    codes = _codes_in(prefix, tensors)
    return None if scaled.format_of(codes) is not None else (codes, codes.codes.shape, None)


def values_from(prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> tuple[Array, str, int] | None:
    """Return the float32 values of a filter, a description, its bytes; None for matrices."""
    codes, scales = _parts(prefix, tensors)
    if codes.ndim == 2:
        return None
    wide = scales.astype(np.float32).reshape(-1, *[1] * (codes.ndim - 1))
    return codes.astype(np.float32) * wide, f"{codes.dtype} with a scale for each filter", codes.nbytes + scales.nbytes
