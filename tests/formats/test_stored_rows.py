"""Codes of 4 and 8 bits that are decoded in place: any bytes and any scales give the values of the definition."""

from __future__ import annotations

import numpy as np
import pytest
from common import isas, same_bits

import heterocompute as hc

FORMATS = [
    "int4", "int4-g32", "int4-g48", "int4-g32-f16", "int8", "int8-g16", "int8-g32-f16", "vsq4-g16-s4", "vsq4-g32-s4",
    "vsq4-g16-s8", "vsq4-g16", "vsq4u-g16-s4", "vsq8-g64-s8", "vsq4-g16-s6", "mxfp4", "mxfp8_e4m3",
    "mxfp8_e5m2", "mxint8", "nf4-g16", "nf4-g64", "fp4_e2m1", "fp4_e2m1-row", "fp8_e4m3fn", "fp8_e4m3fn-row",
    "fp8_e5m2", "fp8_e5m2-row", "fp8_e4m3fn-g32",
]  # fmt: skip
SCALES = [0.0, -0.0, 1.0, 0.3, -2.0, 3e38, -3e38, np.inf, -np.inf, np.nan, 1e-45, -1e-40]


@pytest.mark.parametrize("width", [16, 48, 64, 80, 128, 192, 1104])
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.sweep(every=7)
def test_any_stored_rows_have_the_values_of_the_definition(fmt: str, width: int) -> None:
    rng = np.random.default_rng(width)
    q = hc.quantize(np.ones((29, width), np.float32), fmt)
    parts = {}
    for name, part in q.components.items():
        drawn = rng.integers(0, 256, part.nbytes, np.uint8).view(part.dtype).reshape(part.shape)
        with np.errstate(over="ignore"):  # infinite float16
            parts[name] = drawn if part.dtype.kind in "iu" else rng.choice(SCALES, part.shape).astype(part.dtype)
    stored = hc.QuantizedArray(parts, q.format, q.shape, q.axis)
    with hc.use(isa="scalar"):
        wanted = stored.dequantize()
    for isa in isas("attend"):
        with hc.use(isa=isa, threads=2):
            found = stored.dequantize()
        is_nan = np.isnan(found)  # formats do not state sign and payload of NaN
        assert np.array_equal(is_nan, np.isnan(wanted)) and same_bits(found[~is_nan], wanted[~is_nan]), isa
