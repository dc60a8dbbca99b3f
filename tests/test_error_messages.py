"""Sentences of `error`, `quantize` and `format` where infinities, overflows and clips meet."""

from __future__ import annotations

from math import inf, isnan

import numpy as np
import pytest

import heterocompute as hc


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_equal_infinities_lose_nothing(dtype: type) -> None:
    w = np.array([[inf, 1, -inf, 3], [2, -1, 0, inf]], dtype)
    q = np.array([[inf, 1.5, -inf, 3], [2, -1, 0, inf]], dtype)
    same, near = hc.error(w, w), hc.error(w, q)
    assert (same.sqnr_db, same.mse, same.max_abs) == (inf, 0, 0) and same.cosine == pytest.approx(1, abs=1e-15)
    finite = np.isfinite(w)
    alone = hc.error(np.where(finite, w, 0), np.where(finite, q, 0))
    assert near == alone and near.mse == 0.25 / 8


def test_an_infinity_against_another_value_is_an_infinite_error() -> None:
    for other in (-inf, 3e38):
        found = hc.error(np.float32([inf, 1]), np.float32([other, 1]))
        assert isnan(found.sqnr_db) and found.mse == inf == found.max_abs
    assert isnan(hc.error(np.float32([np.nan, inf]), np.float32([np.nan, inf])).mse)


def test_a_format_that_keeps_infinities_has_the_error_of_the_rest() -> None:
    w = np.float32([[inf, 1.0001, -inf, 2.5]])
    q = hc.quantize(w, "fp16-nosat")
    assert np.isinf(np.asarray(q)).sum() == 2
    assert hc.error(w, q).max_abs == pytest.approx(1e-4, rel=0.5) and hc.error(w, q).sqnr_db > 60


@pytest.mark.parametrize("value", [1e308, 1e39, inf])
def test_importance_beyond_float32_is_named_as_it_came(value: float) -> None:
    weights = np.ones((2, 3))
    weights[1, 2] = value
    with pytest.raises(
        ValueError, match=rf"importance has {value:g} at index \(1, 2\), wanted .*float32".replace("+", "\\+")
    ):
        hc.quantize(np.ones((2, 3), np.float32), "cb1", importance=weights)


@pytest.mark.parametrize("text", ["cb4", "cb2-tensor", "fp16", "fp8_e4m3fn", "mxfp4-ceil", "mxint8"])
def test_a_clip_names_the_format(text: str) -> None:
    w = np.ones((2, 64), np.float32)
    for call in (hc.quantize, hc.fake_quantize):
        for clip in (0.5, "octav", "percentile:99"):
            with pytest.raises(ValueError, match=f": {text} has no scale that clip= could change"):
                call(w, text, clip=clip)
    with pytest.raises(ValueError, match="int4-g32 does not"):
        hc.quantize(w, "int4-g32", importance=w)


def test_an_empty_text_says_so() -> None:
    for text in ("", "  \n"):
        with pytest.raises(ValueError, match="no format: an empty text, wanted one such as 'vsq4-g16-s4'"):
            hc.format(text)
