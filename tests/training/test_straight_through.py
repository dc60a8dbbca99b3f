"""Gradients through rounding equal their formulas; stochastic rounding by counter; small functions."""

from __future__ import annotations

import numpy as np
import pytest
from common import FORMATS, bad_argument, isas, reals, same_bits

import heterocompute as hc
from heterocompute.formats import Own
from heterocompute.training.chance import chances

W = reals((6, 64), 3)
G = reals((6, 64), 4)
NO_LEVELS = [text for text in FORMATS if text.startswith(("cb", "q", "iq", "tq", "affine"))]


@pytest.mark.sweep(every=8)
@pytest.mark.parametrize("text", FORMATS)
def test_without_a_clip_the_gradient_is_that_of_the_values(text):
    fmt = hc.format(text)
    element = fmt.element if isinstance(fmt, Own) else None
    unsigned = getattr(fmt, "unsigned", False) if element is None else not element.signed
    if getattr(fmt, "dim", 1) > 1 and 64 % fmt.dim:
        pytest.skip("short vectors")
    y, back = hc.training.fake_quantize(W, fmt)
    assert same_bits(y, hc.fake_quantize(W, fmt))
    wanted = np.where(W >= 0, G, np.float32(0)) if unsigned else G
    largest = {"fp8_e4m3fn": 448, "fp6_e3m2": 28, "fp6_e2m3": 7.5, "fp4_e2m1": 6}
    if isinstance(fmt, hc.Float) and fmt.scaled is None and fmt.name in largest:
        wanted = np.where(np.abs(W) <= largest[fmt.name], G, np.float32(0))
    if element is not None and not fmt.form.has_scales:
        wanted = np.where(np.abs(W) <= element.largest, wanted, np.float32(0))
    assert same_bits(np.abs(back(G)), np.abs(wanted)) and back(G) is not G


@pytest.mark.parametrize("text", ["int4", "int4-g32-f16", "vsq4-g16-s4", "nf4-g64", "log4-1", "fp8_e4m3fn-row"])
def test_beyond_the_threshold_the_gradient_is_zero(text):
    _, back = hc.training.fake_quantize(W, text, clip=0.5)
    group = hc.format(text).group or 64
    threshold = np.float32(0.5) * np.repeat(np.abs(W.reshape(6, -1, group)).max(2), group, 1)
    assert np.array_equal(back(G) != 0, (np.abs(W) <= threshold) & (G != 0))
    assert (np.abs(W) > threshold).any()


def test_what_saturates_at_the_bound_keeps_its_gradient():
    """The threshold itself, and all values inside that round to the last code, are in range."""
    for scale in np.float32([0.1, 0.3, 1.7, 3e-20, 7e8]):
        w = np.float32([[1, -1, 0.99, 0.5, -0.25]]) * scale
        for text in ("int4", "int3", "int8-asym", "int4-g32-f16"):
            for clip in (None, 1.0):
                if text.endswith("f16") and not 1e-4 < scale < 1e4:
                    continue
                _, back = hc.training.fake_quantize(w, text, clip=clip)
                assert (back(np.ones_like(w)) == 1).all(), (text, clip, scale)


def test_octav_is_damped_beyond_its_threshold():
    y, back = hc.training.fake_quantize(W, "int4", clip="octav")
    threshold = np.abs(y).max(1, keepdims=True).astype(np.float64)
    factor = back(np.ones_like(W))
    wanted = np.where(np.abs(W) <= threshold * (1 + 2**-22), 1, threshold / np.maximum(np.abs(W), 1e-30))
    assert np.allclose(factor, wanted, rtol=2**-21, atol=0) and (factor < 1).any()


@pytest.mark.parametrize("text", ["int5", "fp6_e3m2-tensor"])
def test_factors_of_rows_over_several_axes_are_those_of_the_rows_as_one(text):
    w = W.reshape(W.shape[0], 2, -1)
    ones = np.ones_like(w)
    for axes in ((1, 2), (0, 1, 2)):
        factor = hc.training.fake_quantize(w, text, axis=axes, clip="octav")[1](ones)
        joined = np.ascontiguousarray(w).reshape(*w.shape[: 3 - len(axes)], -1)
        wanted = hc.training.fake_quantize(joined, text, clip="octav")[1](np.ones_like(joined))
        assert np.array_equal(factor, wanted.reshape(w.shape)) and (factor < 1).any()


def test_chances_are_those_of_splitmix():
    def mix(seed, index):
        h = (seed + (index + 1) * 0x9E3779B97F4A7C15) % 2**64
        h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        h = (h ^ h >> 27) * 0x94D049BB133111EB % 2**64
        return ((h ^ h >> 31) >> 11) * 2.0**-53

    for seed in (0, 1, 2**64 - 1):
        assert chances(seed, 5, 40).tolist() == [mix(seed, index) for index in range(5, 45)]


@pytest.mark.sweep(every=8)
@pytest.mark.parametrize("text", [text for text in FORMATS if text not in NO_LEVELS and "nosat" not in text])
def test_stochastic_rounding_takes_a_neighbour_and_its_mean_is_the_value(text):
    fmt = hc.format(text)
    w = np.abs(W) if getattr(fmt, "unsigned", False) else W
    one, _ = hc.training.fake_quantize(w, fmt, rounding="stochastic", seed=1)
    again, _ = hc.training.fake_quantize(np.asfortranarray(w), fmt, rounding="stochastic", seed=1)
    assert same_bits(one, again)
    for isa in isas("encode_"):
        with hc.use(isa=isa, threads=1):
            assert same_bits(hc.training.fake_quantize(w, fmt, rounding="stochastic", seed=1)[0], one)
    many = np.stack([hc.training.fake_quantize(w, fmt, rounding="stochastic", seed=s)[0] for s in range(60)])
    low, high = many.min(0).astype(np.float64), many.max(0).astype(np.float64)
    nearest = hc.fake_quantize(w, fmt).astype(np.float64)
    inside = (low <= w) & (w <= high) & (high > low)
    p = np.where(inside, (w - low) / np.where(high > low, high - low, 1), 0)
    deviation = np.sqrt(np.maximum(p * (1 - p), 1e-3) / 60) * (high - low)
    rounded = np.abs(w) * 2.0**-24  # the value itself, to float32: the remaining error of int24
    assert (np.abs(many.mean(0, dtype=np.float64) - w)[inside] <= (6 * deviation + rounded)[inside]).all()
    assert all(len(np.unique(column)) <= 2 for column in many.reshape(60, -1).T)
    rounds_scales = isinstance(fmt, hc.VSQ) or getattr(fmt, "scale_kind", None) == "integer"
    if not rounds_scales:  # their codes are taken before the scales are rounded
        assert ((low <= nearest) & (nearest <= high))[inside].all()


def test_what_has_no_stochastic_rounding():
    for text in ("cb4", "cb4-g64"):
        with bad_argument(ValueError, None, "missing", "no levels of"):
            hc.training.fake_quantize(W, text, rounding="stochastic")
    with bad_argument(ValueError, "rounding", "value"):
        hc.training.fake_quantize(W, "int4", rounding="up")
    with bad_argument(ValueError, "seed", "value"):
        hc.training.fake_quantize(W, "int4", rounding="stochastic", seed=-1)
    with bad_argument(TypeError, "seed", "type"):
        hc.training.fake_quantize(W, "int4", rounding="stochastic", seed=1.5)
    with bad_argument(ValueError, "g", "shape"):
        hc.training.fake_quantize(W, "int4")[1](G[0])


def test_masks_and_schedules():
    mask = hc.prune_mask(W, "2:4")
    found = hc.training.sr_ste(G, W, mask, decay=0.25)
    assert same_bits(found, G + np.where(mask, np.float32(0), np.float32(0.25) * W))
    assert hc.training.sparsity_at(-5, 0, 10, 0.8) == 0 and hc.training.sparsity_at(99, 0, 10, 0.8) == 0.8
    assert hc.training.sparsity_at(5, 0, 10, 0.8, power=1) == 0.4
    none = np.zeros(0, bool)
    assert hc.training.mask_flips(mask, ~mask) == 1 and hc.training.mask_flips(none, none) == 0
    for call, words in (
        (lambda: hc.training.sr_ste(G, W, mask[0]), "mask"),
        (lambda: hc.training.sr_ste(G, W, mask, np.nan), "decay is nan"),
        (lambda: hc.training.sparsity_at(np.nan, 0, 5, 0.5), "step is nan"),
        (lambda: hc.training.sparsity_at(1, 5, 5, 0.5), "end is 5"),
        (lambda: hc.training.sparsity_at(1, -np.inf, 5, 0.5), "begin is -inf"),
        (lambda: hc.training.sparsity_at(1, 0, 5, 1.5), "final is 1.5"),
        (lambda: hc.training.mask_flips(mask, mask[0]), "mask_flips: old"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with bad_argument(TypeError, "old", "dtype"):
        hc.training.mask_flips([1, 0], [1, 0])
    for given in ((None, 0, 5, 0.5), (1, "0", 5, 0.5), (1, 0, None, 0.5), (1, 0, 5, None), (1, 0, 5, 0.5, "3")):
        with pytest.raises(TypeError, match=r"sparsity_at: \w+ is .*, expected a number"):
            hc.training.sparsity_at(*given)


def test_a_scale_of_any_strides_is_read() -> None:
    x = np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)
    scale = np.linspace(0.1, 0.4, 18, dtype=np.float32).reshape(6, 3)
    wanted, _ = hc.training.fake_quantize(x, "int4-g16", scale=scale)
    for given in (np.asfortranarray(scale), np.repeat(scale, 2, 1)[:, ::2]):
        assert hc.training.fake_quantize(x, "int4-g16", scale=given)[0].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_a_plain_pattern_has_no_scale_to_clip(rounding: str) -> None:
    with pytest.raises(ValueError, match="fake_quantize: 2:4 has no scale that clip= could change"):
        hc.training.fake_quantize(np.ones((2, 8), np.float32), "2:4", clip=0.5, rounding=rounding)
