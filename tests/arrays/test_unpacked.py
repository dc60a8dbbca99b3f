"""Codes, scales and zero points, one per value, give the values for every format."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from common import FORMATS, reals, same_bits

import heterocompute as hc
from heterocompute import reference

INTEGERS = [text for text in FORMATS if isinstance(hc.format(text), (hc.Int, hc.VSQ))]
SMALL = "fp8_e4m3fn-row fp6_e3m2-row fp6_e2m3-tensor fp4_e2m1-row fp8_e5m2 bf16 tf32 fp16 fp32".split()
SMALL += "mxfp8_e4m3 mxfp6_e2m3 mxfp4 nvfp4".split()
PATTERNS = ["int8+2:4", "vsq4-g16-s4+2:4", "int4-g4-asym+1:4", "mxint8+2:4", "int8+4:4", "int4+1:1"]


def data(fmt: hc.Format, shape: tuple[int, ...] = (3, 5, 4)) -> np.ndarray:
    x = reals(shape, 5)
    return np.abs(x) if getattr(fmt, "unsigned", False) else x


@pytest.mark.sweep(every=5)
@pytest.mark.parametrize("text", [*INTEGERS, "mxint8", "mxint8-rceil", *PATTERNS])
@pytest.mark.parametrize("axis", [-1, (2, 1), 0])
def test_codes_times_scales_are_the_values(text: str, axis: object) -> None:
    fmt = hc.format(text)
    q = hc.quantize(data(fmt), fmt, axis=axis)
    codes, scales, points = q.codes(), q.scales_expanded(np.float64), q.zero_points_expanded()
    assert codes.shape == scales.shape == points.shape == q.shape
    unit = 1 / 64 if "mxint8" in text else 1
    values = (codes.astype(np.float64) - points) * unit * scales
    assert np.array_equal(values, q.dequantize(np.float64))
    assert same_bits(q.scales_expanded(), scales.astype(np.float32))


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("text", [text for text in FORMATS if hc.format(text).form.levels])
def test_elements_times_scales_are_the_values(text: str) -> None:
    fmt = hc.format(text)
    q = hc.quantize(data(fmt), fmt)
    codes = q.codes().astype(np.int64) & ((1 << fmt.bits) - 1)
    elements = np.array(fmt.form.levels)[codes]
    assert np.array_equal(elements * q.scales_expanded(np.float64), q.dequantize(np.float64))


def test_scales_need_a_code_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    q = hc.quantize(reals((3, 20), 5), "nf4-g16")
    halved = replace(q.format.form, levels=tuple(level / 2 for level in q.format.form.levels))
    monkeypatch.setattr(hc.NF4, "form", halved)
    with pytest.raises(ValueError, match="scales_expanded: nf4-g16 has no code of the value 1"):
        q.scales_expanded()


@pytest.mark.parametrize("text", ["q4_0", "q8_0", "q3_k", "q6_k", "q4_1", "q5_1", "q2_k", "q4_k", "q5_k", "int4-asym"])
@pytest.mark.parametrize(("shape", "axis"), [((5, 70), -1), ((3, 5, 40), 1), ((2, 3, 4, 40), (2, 3, 1)), ((0, 8), -1)])
def test_minima_are_added(text: str, shape: tuple[int, ...], axis: object) -> None:
    q = hc.quantize(reals(shape, 6) + np.float32(0.7), text, axis=axis)
    minima = q.minima_expanded()
    assert minima.shape == q.shape and minima.dtype == np.float32
    assert (minima == 0).all() == ("minima" not in q.components or not q.size)
    codes = q.codes().astype(np.float64) - q.zero_points_expanded()
    assert np.array_equal(codes * q.scales_expanded(np.float64) + minima, q.dequantize(np.float64))
    if text == "q4_1" and q.ndim == 2:
        assert same_bits(minima, np.repeat(q.components["minima"].astype(np.float32), 32, 1)[:, : shape[1]])


@pytest.mark.sweep(every=5)
@pytest.mark.parametrize("text", FORMATS)
def test_codes_are_those_of_the_definition(text: str) -> None:
    fmt = hc.format(text)
    if getattr(fmt, "dim", 1) > 1 or isinstance(fmt, hc.Sparse):
        pytest.skip("the definition has other shapes")
    q = hc.quantize(data(fmt, (4, 37)), fmt)
    stored = reference.codes(dict(q.components), fmt, q.shape, q.axis).reshape(4, -1)[:, :37]
    mask = (1 << fmt.bits) - 1
    assert np.array_equal(q.codes().astype(np.int64) & mask, stored & mask)


@pytest.mark.parametrize("text", SMALL)
def test_elements_of_small_floats_times_scales_are_the_values(text: str) -> None:
    q = hc.quantize(reals((3, 40), 2), text)
    elements = q.view_ml_dtypes().astype(np.float64)
    assert np.array_equal(elements * q.scales_expanded(np.float64), q.dequantize(np.float64))


def test_scales_of_levels_and_logs() -> None:
    x = reals((3, 70), 7)
    for text in ("nf4-g64", "cb4-g64", "log4-1-g16"):
        q = hc.quantize(x, text)
        group = q.format.group
        assert same_bits(q.scales_expanded(), np.repeat(q.components["scales"], group, 1)[:, :70])
    double = hc.quantize(x, "nf4-g64-dq")
    scales = double.scales_expanded()
    assert np.array_equal(scales, hc.quantize(x, "nf4-g64-dq").scales_expanded()) and (scales >= 0).all()
    levels = hc.quantize(np.float32([[-1, 1]]), "nf4-g64").codes()
    assert levels.tolist() == [[0, 15]]
    assert (hc.quantize(x, "cb4").scales_expanded() == 1).all()
    vectors = hc.quantize(x, "cb8-d2")
    assert vectors.codes().shape == (3, 35) and vectors.scales_expanded().shape == (3, 70)


def test_nothing_is_kept_where_a_pattern_keeps_nothing() -> None:
    s = hc.prune(reals((4, 10), 3), "2:4")
    mask = s.mask
    assert np.array_equal(s.scales_expanded() != 0, mask)
    assert np.array_equal(s.codes().view(np.float32), s.to_dense())
    q = hc.quantize(s, "int8")
    assert np.array_equal(q.scales_expanded() != 0, mask) and not q.codes()[~mask].any()


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (1, 1), (3,)])
def test_small_shapes(shape: tuple[int, ...]) -> None:
    for text in ("int4-g32-asym", "vsq4-g16-s4", "int8+2:4", "nvfp4", "cb4"):
        q = hc.quantize(np.ones(shape, np.float32), text)
        assert q.codes().shape == q.scales_expanded().shape == q.zero_points_expanded().shape == shape


@pytest.mark.parametrize("length", [1, 31, 33])
def test_elements_of_short_rows_of_blocks(length: int) -> None:
    w = reals((3, length), length)
    for axis in (0, 1, (1, 0)):
        q = hc.quantize(w, "q8_0", axis=axis)
        assert same_bits(q.view_ml_dtypes(), q.codes())
