"""HQQ: integers with float zero points, as `HQQLinear.state_dict` has them; reading only.

    NAME.W_q      uint8, or int32 of 3 bits: codes of all groups (groups, values of a group), c of them in a word; group
                  i of n is in row i % (n / c), the first in the highest bits
    NAME.scale    float (groups, 1)        NAME.zero    likewise
    NAME.shape    int64 (out, in)          NAME.nbits, group_size, axis, packing ...: numbers, and texts as bytes

value = (code - zero) scale, here in float32. That is an `Affine` with the minimum -scale zero if all values are equal.
With axis 0 groups run across rows, and the weight becomes floats. HQQ, hqq/core/quantize.py, bitpack.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...arrays.bits import pack
from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongValue, shown
from .layout import Layout
from .linear import Array, Codes, check_finite, no_format, with_float_zeros
from .weight import Weight, of_array, of_values

PARTS = (
    "W_q scale zero shape nbits group_size axis packing unpack_view_dtype view_as_float quant_scale quant_zero "
    "compute_dtype offload_meta encoded_state_dict stores_quant_config channel_wise optimize round_zero"
).split()
FLOATS = ("float16", "bfloat16", "float32")
PACKINGS = {"8bit_u8": (8, 1), "4bit_u8": (4, 2), "3bit_32": (3, 10), "2bit_u8": (2, 4), "1bit_u8": (1, 8)}
MOST = 1 << 31


class _Weight(NamedTuple):
    """Codes (groups, values of a group), or (values of a group, groups) with axis 0."""

    codes: Array
    zeros: Array
    scales: Array
    axis: int
    bits: int
    shape: tuple[int, int]
    nbytes: int

    def values(self) -> Array:
        found: Array = self.codes.astype(np.float32)
        with np.errstate(over="ignore", under="ignore"):
            found -= self.zeros
            found *= self.scales
        return found.reshape(self.shape)


def _number(prefix: str, tensors: Mapping[str, Array], part: str, usual: int) -> int:
    stored = tensors.get(f"{prefix}.{part}")
    if stored is None:
        return usual
    if stored.size != 1 or stored.dtype.kind not in "iufb":
        raise WrongValue(f"{prefix}.{part} is {stored.dtype} {stored.shape}, expected one number")
    found = float(stored.reshape(()))
    if part == "nbits" and 1.5 < found < 1.6:  # ternary, in 2 bits
        return 2
    if found != int(found) if np.isfinite(found) else True:
        raise WrongValue(f"{prefix}.{part} is {found:.9g}, expected a whole number")
    return int(found)


def _text(prefix: str, tensors: Mapping[str, Array], part: str) -> str:
    stored = tensors[f"{prefix}.{part}"]
    if stored.dtype != np.uint8 or stored.ndim != 1 or stored.size > 64:
        raise WrongValue(f"{prefix}.{part} is {stored.dtype} {stored.shape}, expected a text of bytes")
    return stored.tobytes().decode("latin-1")


def _weight_of(prefix: str, tensors: Mapping[str, Array]) -> _Weight:
    stored, scales, zeros = (tensors[f"{prefix}.{part}"] for part in ("W_q", "scale", "zero"))
    size = tensors[f"{prefix}.shape"]
    if size.dtype.kind not in "iu" or size.shape != (2,) or not all(0 < int(n) < MOST for n in size):
        raise WrongValue(f"{prefix}.shape is {size.dtype} {size.shape}, expected two sizes (out, in)")
    shape = int(size[0]), int(size[1])
    for part in ("quant_scale", "quant_zero"):
        if _number(prefix, tensors, part, 0):
            raise WrongValue(f"{prefix}.{part} is set: scales and zero points that are quantized are not read")
    packing, axis = _text(prefix, tensors, "packing"), _number(prefix, tensors, "axis", 1)
    if packing not in PACKINGS or axis not in (0, 1):
        raise WrongValue(f"{prefix}: packing and axis are {shown(packing)} and {axis}, expected {', '.join(PACKINGS)}")
    wide, count = PACKINGS[packing]
    bits = _number(prefix, tensors, "nbits", wide)
    if not 1 <= bits <= wide:
        raise WrongValue(f"{prefix}.nbits is {bits}, expected at most the {wide} of {packing}")
    word = np.int32 if wide == 3 else np.uint8
    if stored.dtype != word and _number(prefix, tensors, "view_as_float", 0):
        stored = np.ascontiguousarray(stored).view(word)
    if stored.dtype != word or stored.ndim != 2 or 0 in stored.shape:
        raise WrongValue(f"{prefix}.W_q is {stored.dtype} {stored.shape}, expected {np.dtype(word)} of two dimensions")
    mask = stored.dtype.type((1 << wide) - 1)
    shifts = [stored.dtype.type(wide * i) for i in reversed(range(count))]
    codes = np.concatenate([(stored >> shift & mask).astype(np.uint8) for shift in shifts])
    rows = shape[0] * shape[1] // stored.shape[1]
    if rows * stored.shape[1] != shape[0] * shape[1] or not len(codes) - count < rows <= len(codes):
        raise WrongValue(f"{prefix}.W_q holds {codes.shape} codes, expected those of {shape[0]} x {shape[1]} values")
    codes = codes[:rows]
    if (codes >> np.uint8(bits)).any() if bits < 8 else False:
        raise WrongValue(f"{prefix}.W_q holds codes of more than {bits} bits")
    groups = (rows, 1) if axis == 1 else (1, codes.shape[1])
    for part, floats in (("scale", scales), ("zero", zeros)):
        if floats.dtype.name not in FLOATS or (floats.shape != groups and floats.size != 1):
            raise WrongValue(f"{prefix}.{part} is {floats.dtype} {floats.shape}, expected floats {groups}")
        check_finite(f"{prefix}.{part}", floats)
    wider = [part.astype(np.float32).reshape(groups if part.shape == groups else (1, 1)) for part in (zeros, scales)]
    nbytes = stored.nbytes + scales.nbytes + zeros.nbytes
    return _Weight(codes, wider[0], wider[1], axis, bits, shape, nbytes)


def _array_of(weight: _Weight) -> QuantizedArray | None:
    """Return the array that represents a weight, or None if no format does."""
    (rows, columns), group = weight.shape, weight.codes.shape[1]
    if weight.axis != 1 or columns % group:
        return None
    bits, groups = max(weight.bits, 2), columns // group
    zeros, scales = (np.broadcast_to(part, (rows * groups, 1)).reshape(rows, groups) for part in weight[1:3])
    codes = Codes(pack(weight.codes.reshape(rows, columns), bits), bits, columns)
    return with_float_zeros(codes, zeros, scales, group)


class HQQ(Layout):
    name = "hqq"
    marks = (".W_q",)
    ends = tuple(f".{part}" for part in PARTS)
    signs = ((".W_q", ".zero", ".scale", ".shape", ".packing"),)
    needs_config = False
    has_several = True
    is_written = False

    def read(self, prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Weight:
        weight = _weight_of(prefix, tensors)
        if (q := _array_of(weight)) is not None:
            return of_array(q)
        along = "rows" if weight.axis == 1 else "columns"
        declared = f"{weight.bits} bits with float zero points in groups along {along}"
        why = f"{prefix}: groups across rows, or values that are rounded otherwise, {no_format(self.name)}"
        return of_values(weight.values(), declared, weight.nbytes, why)
