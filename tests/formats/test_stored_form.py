"""The stated form of a format describes its arrays; functions that need an unstated form raise an error."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from common import FORMATS, bad_argument, reals

import heterocompute as hc
import heterocompute.hardware as hw
from heterocompute.arrays.bits import unpack
from heterocompute.formats import Format, base
from heterocompute.formats.form import StoredForm, form_of
from heterocompute.hardware.silicon.operands import operand
from heterocompute.products.grid_of import grid_of
from heterocompute.training.stochastic import levels_of

Array = np.ndarray[Any, Any]

BLOCKS = [text for text in FORMATS if isinstance(hc.format(text), hc.GGML) or hc.format(text).form.minima]


def scales_of(q: hc.QuantizedArray, form: StoredForm) -> Array:
    """Return the scales of groups, (rows, groups or 1) of float64, from the components."""
    parts = q.components
    coarse = parts["coarse"].astype(np.float64) if form.second != "none" else np.ones(())
    if form.scale == "none":
        return np.broadcast_to(coarse.reshape(-1, 1), (len(q), 1))
    stored = parts["scales"]
    if form.scale == "integer":
        count = -(-q.shape[1] // min(q.format.group or q.shape[1], q.shape[1]))
        bits = np.unpackbits(stored, axis=1, bitorder="little")[:, : count * form.scale_bits]
        stored = bits.reshape(len(q), count, -1) @ (1 << np.arange(form.scale_bits))
    elif form.scale == "e8m0":
        stored = 2.0 ** (stored.astype(np.float64) - 127)
    elif form.scale == "e4m3":
        stored = np.array(hc.format("fp8_e4m3fn").form.levels)[stored]
    scale = stored.astype(np.float64) * coarse.reshape(-1, 1)
    return scale.astype(np.float32).astype(np.float64) if form.second == "scale" else scale


def codes_of(q: hc.QuantizedArray, form: StoredForm) -> Array:
    """Return c of every value, from the components and the form."""
    length = q.shape[1]
    group = -(-min(q.format.group or length, length) // q.format.unit) * q.format.unit
    padded = -(-length // group) * group
    stored = q.components["codes"]
    if form.bits > 8:
        bits = np.unpackbits(stored, axis=1, bitorder="little")
        bits = bits[:, : padded * form.bits].reshape(len(q), padded, form.bits)
        codes = bits.astype(np.int64) @ (1 << np.arange(form.bits))
    else:
        codes = unpack(stored, form.bits, padded // max(form.code_values, 1)).astype(np.int64)
    if form.codes == "integer":
        if form.signed:
            codes = codes - ((codes >> (form.bits - 1)) << form.bits)
        assert form.lowest <= codes.min() and codes.max() <= form.largest
        if form.zero_points:
            zeros = unpack(q.components["zero_points"], form.bits, padded // group).astype(np.int64)
            codes = codes - np.repeat(zeros, group, axis=1)
        return codes[:, :length] / 2.0**form.fraction_bits
    if form.codes == "learned":
        books = q.components["codebook"].reshape(1 if form.shared else len(q), 2**form.bits, -1).astype(np.float64)
        rows = np.zeros(len(q), np.int64) if form.shared else np.arange(len(q))
        return books[rows[:, None], codes].reshape(len(q), -1)[:, :length]
    return np.array(form.levels)[codes[:, :length]]


@pytest.mark.parametrize("text", [text for text in FORMATS if text not in BLOCKS])
@pytest.mark.sweep(every=3)
def test_values_are_scales_times_what_codes_stand_for(text: str) -> None:
    fmt = hc.format(text)
    form = fmt.form
    q = hc.quantize(reals((5, 67), seed=3), fmt)
    wanted = q.dequantize(np.float64)
    if form.codes == "float" and form.bits > 8:  # their codes have no list of levels
        scale = scales_of(q, form)
        scale = scale if fmt.group is None else np.repeat(scale, fmt.group, axis=1)[:, : q.shape[1]]
        elements = q.dequantize(np.float64) / scale
        assert np.abs(elements).max() <= form.maximum
        kept = np.ldexp(np.rint(np.ldexp(np.frexp(elements)[0], form.precision)), -form.precision)
        np.testing.assert_allclose(np.ldexp(kept, np.frexp(elements)[1]), elements, rtol=1e-15)
        return
    of_rows = form.scale in ("double", "own")  # a function of a row, which no component holds
    scale = q.scales_expanded(np.float64) if of_rows else scales_of(q, form)
    if scale.shape[1] != q.shape[1]:
        scale = np.repeat(scale, -(-q.shape[1] // scale.shape[1]) if fmt.group is None else fmt.group, axis=1)
    np.testing.assert_array_equal(codes_of(q, form) * scale[:, : q.shape[1]], wanted)


@pytest.mark.parametrize("text", BLOCKS)
def test_blocks_state_codes_minima_and_scales(text: str) -> None:
    q = hc.quantize(reals((3, 256), seed=3), text)
    form = q.format.form
    stored = q.codes().astype(np.int64)
    codes = np.array(form.levels)[stored] if form.codes == "table" else stored
    assert form.minima == bool(q.minima_expanded().any()) == ("minima" in q.components)
    assert form.codes == "table" or (form.lowest <= stored.min() and stored.max() <= form.largest)
    assert (form.scale == "f16") == (q.components["scales"].dtype == np.float16)
    found = codes * q.scales_expanded(np.float64) + q.minima_expanded()
    np.testing.assert_array_equal(found, q.dequantize(np.float64))


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=3)
def test_float_types_state_their_precision_and_range(text: str) -> None:
    form = hc.format(text).form
    if form.codes != "float" or not form.levels:
        assert (form.precision > 0) == (form.codes == "float")
        return
    levels = np.array(form.levels)
    normal = np.unique(np.abs(levels[np.isfinite(levels)]))
    normal = normal[normal >= 2.0**form.smallest]
    assert normal.max() == form.maximum and normal.min() == 2.0**form.smallest
    assert (np.ldexp(np.frexp(normal)[0], form.precision) % 1 == 0).all()
    assert (np.ldexp(np.frexp(normal)[0], form.precision - 1) % 1 != 0).any()


def test_a_pattern_has_the_form_of_its_base() -> None:
    assert hc.format("int8+2:4").form == hc.format("int8").form
    assert not hc.Sparse(hc.format("cb4"), 2, 4).learns_codebook and hc.format("cb4").learns_codebook


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.sweep(every=3)
def test_search_never_loses(text: str) -> None:
    w = reals((7, 80), seed=11)
    try:
        q = hc.quantize(w, text, clip="search")
    except ValueError as problem:
        assert str(problem).startswith(f"quantize: clip is 'search', but {text} has "), problem
        return
    plain = np.square(hc.quantize(w, text).dequantize().astype(np.float64) - w).sum()
    assert np.square(q.dequantize().astype(np.float64) - w).sum() <= plain * (1 + 1e-12)


ROUTES = {
    "search": lambda w, fmt: hc.quantize(w, fmt, clip="search"),
    "gptq": lambda w, fmt: hc.ptq.gptq(w, np.eye(w.shape[1]), fmt),
    "bound": lambda w, fmt: hc.ptq.bound(w, fmt, np.eye(w.shape[1])),
    "gradient": lambda w, fmt: hc.training.fake_quantize(w, fmt),
    "stochastic": lambda w, fmt: hc.training.fake_quantize(w, fmt, rounding="stochastic"),
    "learned scale": lambda w, fmt: hc.training.fake_quantize(w, fmt, scale=np.ones((len(w), 1), np.float32)),
    "mac": lambda _, fmt: hw.mac(fmt, "int8"),
}
REFUSALS = [
    *((name, {"codes": "unstated"}) for name in ROUTES),
    *((name, {"scale": "own"}) for name in ("search", "gptq", "bound", "learned scale")),
    *((name, {"second": "scale"}) for name in ("search", "gptq", "bound", "learned scale")),
    *((name, {"minima": True}) for name in ("search", "gptq", "bound", "stochastic", "learned scale")),
]


@pytest.mark.parametrize("name, kinds", REFUSALS)
def test_an_unknown_kind_is_a_sentence(name: str, kinds: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    form_of.cache_clear()
    monkeypatch.setattr(base, "form_of", lambda params: replace(form_of(params), **kinds))
    levels_of.cache_clear()
    try:
        with pytest.raises(ValueError, match="int4") as problem:
            ROUTES[name](reals((4, 32), seed=1), hc.format("int4"))
        assert "\n" not in str(problem.value) and len(str(problem.value)) < 200
    finally:
        levels_of.cache_clear()


def test_fixed_point_integers_have_levels() -> None:
    q = hc.quantize(reals((4, 64), seed=2), "mxint8")
    grid = grid_of(q)
    assert grid.levels is not None and len(grid.levels) == 255 and grid.scales.table is not None
    np.testing.assert_array_equal(grid.levels[grid.nearest(np.ascontiguousarray(reals((4, 64), seed=2).T, np.float64))],
                                  (q.dequantize(np.float64) / q.scales_expanded(np.float64)).T)  # fmt: skip


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("int4-g32-asym-f16", ("int", "float", 11, True)),
        ("vsq4-g16-s4", ("int", "int", 4, False)),
        ("int8", ("int", "none", 0, False)),
        ("mxfp8_e5m2", ("float", "exponent", 8, False)),
        ("mxint8", ("int", "exponent", 8, False)),
        ("nvfp4", ("float", "float", 4, False)),
        ("nf4-g64-dq", ("table", "float", 24, False)),
        ("cb4", ("table", "none", 0, False)),
        ("log4-1-g16", ("log", "float", 24, False)),
        ("q4_k", ("int", "float", 17, True)),
        ("iq4_xs", ("table", "float", 17, False)),
        ("q8_0", ("int", "float", 11, False)),
    ],
)
def test_multipliers_follow_from_the_form(text: str, wanted: tuple[str, str, int, bool]) -> None:
    one = operand(text)
    assert (one.kind, one.scale, one.scale_bits, one.zero_point) == wanted


@pytest.mark.parametrize("text", ["int4", "cb4-g16", "iq4_nl"])
def test_importance_is_not_dropped_by_a_search(text: str) -> None:
    w = reals((2, 64), seed=4)
    with bad_argument(ValueError, "importance", "value"):
        hc.quantize(w, text, clip="search", importance=np.abs(w))


def test_values_of_a_format_are_those_of_its_codes() -> None:
    """Arrays of one scale decode to these values times the scale, and to no others; NumPy knows the 16-bit floats."""
    for cls in Format.families():
        for fmt in map(hc.format, cls.examples):
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
        assert np.array_equal(np.unique(wide[np.isfinite(wide)]), hc.format(text).values())
    assert hc.format("fp32").largest == np.finfo(np.float32).max and hc.format("fp32").smallest == 2.0**-149
    rng = np.random.default_rng(5)
    for text in ("int4", "nf4-g64", "mxfp4", "fp6_e3m2-row", "log5-2", "posit8.1-row", "ternary-g128-absmean"):
        q = hc.quantize(rng.standard_normal((4, 128)), text)
        scale = q.scales_expanded(np.float64)
        unscaled = q.dequantize(np.float64)[scale > 0] / scale[scale > 0]
        assert np.isin(np.round(unscaled, 9), np.round(hc.format(text).values(), 9)).all()
    below = hc.define(None, hc.Levels([-1, -0.5]))
    assert (below.values().tolist(), below.largest) == ([-1, -0.5], -0.5)
    with pytest.raises(ValueError, match="smallest: no value of .* is positive"):
        _ = below.smallest
    with pytest.raises(ValueError, match="values: the values of ue7m7 are not listed"):
        hc.define(None, "ue7m7").values()
    with pytest.raises(ValueError, match="largest: arrays in cb4 have values of their own"):
        _ = hc.format("cb4").largest
