"""Values of a format: those that codes represent before scales."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import heterocompute as hc
from heterocompute import format as parse
from heterocompute.formats import Format


def test_values_of_a_format_are_those_of_its_codes() -> None:
    """Arrays of one scale decode to these values times the scale, and to no others; NumPy knows the 16-bit floats."""
    for cls in Format.families():
        for fmt in map(parse, cls.examples):
            if fmt.form.limits is None or fmt.bits > 16:
                with pytest.raises(ValueError, match=f"values: .*{re.escape(str(fmt))}"):
                    fmt.values()
                continue
            values = fmt.values()
            assert values.dtype == np.float64 and (np.diff(values) > 0).all() and np.isfinite(values).all()
            assert (values[-1], values[values > 0][0]) == (fmt.largest, fmt.smallest)
    for text, dtype in (("fp16", np.float16), ("bf16", ml_dtypes.bfloat16), ("fp8_e5m2", ml_dtypes.float8_e5m2)):
        every = np.arange(1 << 8 * np.dtype(dtype).itemsize).astype(f"u{np.dtype(dtype).itemsize}").view(dtype)
        with np.errstate(invalid="ignore"):
            wide = every.astype(np.float64)
        assert np.array_equal(np.unique(wide[np.isfinite(wide)]), parse(text).values())
    assert parse("fp32").largest == np.finfo(np.float32).max and parse("fp32").smallest == 2.0**-149
    rng = np.random.default_rng(5)
    for text in ("int4", "nf4-g64", "mxfp4", "fp6_e3m2-row", "log5-2", "posit8.1-row", "ternary-g128-absmean"):
        q = hc.quantize(rng.standard_normal((4, 128)), text)
        scale = q.scales_expanded(np.float64)
        unscaled = q.dequantize(np.float64)[scale > 0] / scale[scale > 0]
        assert np.isin(np.round(unscaled, 9), np.round(parse(text).values(), 9)).all()
    with pytest.raises(ValueError, match="largest: arrays in cb4 have values of their own"):
        _ = parse("cb4").largest
