"""Stochastic rounding equals its definition; passing of gradients in any layout; trained scales."""

from __future__ import annotations

import numpy as np
import pytest
from common import FORMATS, bad_argument, isas, reals, same_bits

import heterocompute as hc
from heterocompute.training.chance import stochastic_round
from heterocompute.training.stochastic import levels_of

W = reals((5, 3, 37), 3)
LAYOUTS = [(W, (2,)), (W, (2, 0)), (W.transpose(2, 0, 1), (0,)), (W[:, ::2, 36::-3].astype(np.float64), (0, 2))]
DENSE = [text for text in FORMATS if not text.startswith("cb") and ":" not in text and text not in hc.GGML.examples
         and not hc.format(text).form.minima]  # fmt: skip


def by_definition(w, q, seed):
    table, fraction, least, low, high = levels_of(q.format)
    points = q.zero_points_expanded().astype(np.float64)
    levels = (fraction, least) if table is None else table
    return stochastic_round(w, q.scales_expanded(np.float64), low - points, high - points, levels, seed)


@pytest.mark.sweep(every=6)
@pytest.mark.parametrize("text", DENSE)
def test_by_chance_as_defined_in_any_layout(text):
    for seed, (w, axis) in enumerate(LAYOUTS, 2**64 - 4):
        q = hc.quantize(w, text, axis)
        wanted = by_definition(w, q, seed)
        for isa in isas("round_by_chance"):
            with hc.use(isa=isa, threads=1 + seed % 2):
                found, _ = hc.training.fake_quantize(w, text, axis, rounding="stochastic", seed=seed)
            assert same_bits(found, wanted), (isa, axis)


def test_by_chance_of_many_rows_and_long_ones():
    w = reals((300, 700), 9)
    w[0, :5] = [0, -0.0, 1e-30, -1e30, 3]
    for text in ("int4", "int4-g5", "vsq4-g16-s4", "log6-2-g32", "fp16"):
        q = hc.quantize(w, text, 0)
        found, _ = hc.training.fake_quantize(w, text, 0, rounding="stochastic", seed=7)
        assert same_bits(found, by_definition(w, q, 7)), text


def test_nothing_and_what_is_not_finite():
    for shape in ((0, 4), (4, 0), (3, 0, 2)):
        y, back = hc.training.fake_quantize(np.zeros(shape, np.float32), "int4-g4", rounding="stochastic", clip=0.5)
        assert y.shape == shape and back(y).shape == shape
    odd = np.float32([np.nan, np.inf, -np.inf, 1.1])
    y, back = hc.training.fake_quantize(odd, "fp8_e4m3fn", rounding="stochastic")
    assert np.isnan(y[0]) and y[1] == 448 and y[2] == -448 and back(np.ones(4, np.float32)).tolist() == [0, 0, 0, 1]
    for text in ("fp32", "bf16", "fp8_e5m2-nosat", "fp16-nosat"):
        y, _ = hc.training.fake_quantize(odd, text, rounding="stochastic")
        assert same_bits(y[1:3], hc.fake_quantize(odd, text)[1:3])
    with bad_argument(ValueError, "w", "value"):
        hc.training.fake_quantize(odd, "int4", clip=0.5)


@pytest.mark.parametrize("text", ["mxfp4", "mxfp8_e4m3", "mxint8"])
def test_a_block_whose_scale_is_nan_is_nan(text):
    w = reals((4, 96), 5)
    w[0, 3], w[1, 40], w[2, 95] = np.nan, np.inf, -np.inf
    for dtype in (np.float32, np.float64):
        answers = []
        for isa in isas("round_by_chance"):
            with hc.use(isa=isa):
                answers.append(hc.training.fake_quantize(w.astype(dtype), text, rounding="stochastic")[0])
        assert np.array_equal(np.isnan(answers[0]), np.isnan(hc.fake_quantize(w, text)))
        assert np.isnan(answers[0]).sum() == 96 and all(same_bits(answers[0], other) for other in answers[1:])


@pytest.mark.parametrize(
    "text", ["int4", "int4-g16-asym", "int8-g5-f16", "vsq4u-g16-s4", "nf4-g32", "fp8_e4m3fn-tensor"]
)
def test_the_range_is_that_of_the_threshold_in_any_layout(text):
    fmt = hc.format(text)
    for w, axis in LAYOUTS:
        g = reals(w.shape, 8)[..., ::-1]
        rows = np.moveaxis(w, axis, range(-len(axis), 0)).astype(np.float32)
        wanted = np.zeros(rows.shape, bool)
        length = fmt.group or rows.shape[-1] * (rows.shape[-2] if len(axis) > 1 else 1)
        for index in np.ndindex(rows.shape[: -len(axis)]):
            row = rows[index].reshape(1, -1) if fmt.group is None else rows[index].reshape(-1, rows.shape[-1])
            for inside, run in zip(np.reshape(wanted[index], row.shape), row, strict=True):
                for first in range(0, len(run), length):
                    part = run[first : first + length]
                    whole = np.abs(w).max() if text.endswith("tensor") else np.abs(part).max()
                    top = part.max() if text.startswith("vsq4u") else whole
                    inside[first : first + length] = np.abs(part) <= np.float32(0.5) * np.float32(max(top, 0))
                    if text.startswith("vsq4u"):
                        inside[first : first + length] &= part >= 0
        wanted = np.moveaxis(wanted, range(-len(axis), 0), axis)
        for isa in isas("mark_inside"):
            with hc.use(isa=isa):
                y, back = hc.training.fake_quantize(w, fmt, axis, clip=0.5)
                assert same_bits(y, hc.fake_quantize(w, fmt, axis, clip=0.5))
                assert same_bits(back(g), np.where(wanted, g, np.float32(0))), (isa, axis)


def test_of_a_pattern_the_gradient_passes_where_nothing_is_kept():
    w, g = reals((6, 64), 3), reals((6, 64), 4)
    y, back = hc.training.fake_quantize(w, "int8+2:4", clip=0.5)
    assert same_bits(y, hc.fake_quantize(w, "int8+2:4", clip=0.5))
    mask = hc.prune_mask(w, "2:4")
    inside = np.abs(w) <= np.float32(0.5) * np.abs(w * mask).max(1, keepdims=True)
    assert np.array_equal(back(g), np.where(inside | ~mask, g, 0)) and not inside[mask].all()
    y, _ = hc.training.fake_quantize(w, "int8+2:4", rounding="stochastic", seed=3)
    assert ((y != 0) <= mask).all() and np.abs(y - w)[mask].max() < np.abs(w).max() / 127


def test_a_searched_scale_has_its_range():
    w = reals((6, 64), 3)
    for text in ("int3-g32", "int4-asym", "vsq4-g16"):
        y, back = hc.training.fake_quantize(w, text, clip="search")
        assert same_bits(y, hc.fake_quantize(w, text, clip="search"))
        inside = back(np.ones_like(w)) == 1
        near = np.abs(y - w) <= hc.quantize(w, text, clip="search").scales_expanded() * 0.51
        assert (near >= inside).all() and 0.8 < inside.mean() <= 1


def test_trained_scales_have_the_gradient_of_lsq():
    w, g = W, reals(W.shape, 5)
    q = hc.quantize(w, "int3-g16", axis=(2, 0))
    s = (q.components["scales"] * np.float32(0.7)).astype(np.float32)
    y, back = hc.training.fake_quantize(w, "int3-g16", axis=(2, 0), scale=s)
    of_w, of_s = back(g)
    rows = w.transpose(1, 2, 0).reshape(3, 37, 5)  # the last axis named has the groups: 5 values each
    grads = g.transpose(1, 2, 0).reshape(3, 37, 5)
    t = rows / s.reshape(3, 37, 1).astype(np.float64)
    inside, code = np.abs(t) <= 3, np.clip(np.rint(t), -3, 3)
    wanted = (code * s.reshape(3, 37, 1).astype(np.float64)).astype(np.float32)
    assert same_bits(y.transpose(1, 2, 0).reshape(3, 37, 5), wanted)
    slopes = (grads * np.where(inside, code - t, code)).sum(-1) / np.sqrt(5 * 3)
    assert np.allclose(of_s, slopes.reshape(of_s.shape), rtol=1e-5, atol=1e-5) and of_s.dtype == np.float32
    assert same_bits(of_w.transpose(1, 2, 0), np.where(inside, grads, np.float32(0))) and not inside.all()
    for change, words in (
        (dict(format="int3-asym"), "symmetric integers"),
        (dict(format="mxfp4"), "symmetric integers"),
        (dict(scale=s[:1]), "scale has shape"),
        (dict(scale=-s), "not above 0"),
        (dict(clip=0.5), "there is no clip"),
        (dict(rounding="stochastic"), "there is no clip"),
    ):
        with pytest.raises(ValueError, match=words):
            hc.training.fake_quantize(**{"w": w, "format": "int3-g16", "axis": (2, 0), "scale": s, **change})


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_errors_name_the_index_in_the_whole_array(value):
    w = W.copy()
    w[1, 2, 3] = value
    found = f"w has {value} at index \\(1, 2, 3\\)"
    with pytest.raises(ValueError, match=found):
        hc.training.fake_quantize(w, "int4+2:4", axis=-1, rounding="stochastic")
    scale = np.ones(hc.quantize(W, "int4").components["scales"].shape, np.float32)
    with pytest.raises(ValueError, match=found):
        hc.training.fake_quantize(w, "int4", scale=scale)


def test_a_seed_is_one_for_either_rounding():
    for rounding in ("nearest", "stochastic"):
        with bad_argument(TypeError, "seed", "type"):
            hc.training.fake_quantize(W, "int4", rounding=rounding, seed="x")
