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

from ....base.errors import WrongValue
from .. import scaled
from ..layout import Layout
from ..linear import Array, check_finite, no_format
from ..weight import Weight, of_codes, of_values

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
    check_finite(f"{prefix}{ENDS[1]}", scales)
    return codes, scales.reshape(-1)


class Quanto(Layout):
    name = "quanto"
    marks = (".weight._scale",)
    ends = ENDS
    signs = ((".weight._scale", ".weight._data"),)
    needs_config = False
    has_several = True
    is_written = False

    def read(self, prefix: str, tensors: Mapping[str, Array], config: Mapping[str, Any]) -> Weight:
        codes, scales = _parts(prefix, tensors)
        if codes.ndim == 2:
            high = 1 if len(scales) == len(codes) else len(codes)
            found = scaled.Codes(codes, scales.reshape(-1, 1), None, (high, codes.shape[1]))
            return of_codes(f"{prefix}.weight", self.name, found)
        wide = scales.astype(np.float32).reshape(-1, *[1] * (codes.ndim - 1))
        declared, nbytes = f"{codes.dtype} with a scale for each filter", codes.nbytes + scales.nbytes
        why = f"{prefix}{ENDS[0]}: filters {codes.shape} {no_format(self.name)}"
        return of_values(codes.astype(np.float32) * wide, declared, nbytes, why)
