"""`np.array(q, np.float64)` has the unrounded values, as `q.dequantize(np.float64)` does."""

from __future__ import annotations

import numpy as np
import pytest
from common import FORMATS

import heterocompute as hc


@pytest.mark.parametrize("text", [*FORMATS, "int8+2:4", "int4-g32+had"])
@pytest.mark.parametrize("seed", range(2))
def test_float64_is_decoded_without_float32_between(text: str, seed: int) -> None:
    w = np.random.default_rng(seed).standard_normal((4, 256), np.float32)
    try:
        q = hc.quantize(w, text)
    except ValueError:
        pytest.skip(f"{text} does not fit this shape")
    wide, single = np.asarray(q, np.float64), np.asarray(q)
    assert wide.dtype == np.float64 and single.dtype == np.float32
    assert np.array_equal(np.array(q, dtype="f8"), wide)
    if hasattr(q, "dequantize"):
        assert np.array_equal(wide, q.dequantize(np.float64)) and np.array_equal(single, q.dequantize())
    assert np.array_equal(np.asarray(q, np.float16), single.astype(np.float16))


def test_a_scale_times_a_code_has_more_digits_than_float32() -> None:
    q = hc.quantize(np.random.default_rng(0).standard_normal((16, 64), np.float32), "int8")
    wide = np.asarray(q, np.float64)
    scales = q.components["scales"].astype(np.float64).reshape(-1, 1)
    assert np.array_equal(wide, q.codes().astype(np.float64) * scales) and (wide != np.asarray(q)).any()
