"""Sentences drawn by seed in operations: what each gives is what the decoded values give, or a refusal by name."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import same_bits

import heterocompute as hc
from heterocompute import reference
from heterocompute.formats import Integer, Levels, Minifloat, Own
from heterocompute.formats.elements import Logs, Posit, Takum
from heterocompute.formats.own import RULES
from heterocompute.reference import product

Array = np.ndarray[Any, Any]
Random = np.random.Generator
ROUNDS = range(50)


def drawn_element(rng: Random) -> Any:
    kind = rng.integers(0, 9)
    whole: Callable[[int, int], int] = lambda low, high: int(rng.integers(low, high + 1))  # noqa: E731
    if kind <= 2:
        specials = [None, "ieee", "fn", "fnuz", "finite", "p3109", "p3109f"][whole(0, 6)]
        bias = whole(-2, 20) if rng.random() < 0.3 else None
        return Minifloat(whole(1, 6), whole(0, 5), bias, specials, rng.random() < 0.8, rng.random() < 0.85)
    if kind <= 4:
        bits = whole(2, 8) if rng.random() < 0.7 else whole(9, 16)
        signed = rng.random() < 0.8
        return Integer(bits, signed, signed and rng.random() < 0.3, whole(0, bits) if rng.random() < 0.3 else 0)
    if kind == 5:
        levels = np.unique(rng.standard_normal(whole(2, 40)).astype(np.float32))
        middles = [float(a + (b - a) * 0.3) for a, b in zip(levels, levels[1:], strict=False)]
        return Levels([float(one) for one in levels], middles if rng.random() < 0.4 else None)
    if kind == 6:
        return [Levels.ternary(), Levels.binary(), Levels.normal_float(3)][whole(0, 2)]
    return Logs(whole(2, 8), whole(1, 12)) if kind == 7 else [Posit(whole(3, 8), whole(0, 2)), Takum(8)][whole(0, 1)]


def drawn(rng: Random) -> Own:
    """Return a legal sentence; those that are not legal are refused in one line."""
    scales = [None, "f32", "f16", "bf16", "e8m0", "e4m3fn", "ue5m3", "e5m2", "e3m2", "e3m2b1", "ue4m3b9", "s3", "s6"]
    while True:
        try:
            group = int(rng.integers(1, 40)) if rng.random() < 0.6 else None
            made = Own(
                drawn_element(rng), scales[rng.integers(0, len(scales))], group,
                int(rng.integers(2, 6)) if group and rng.random() < 0.35 else None,
                "tensor" if group is None and rng.random() < 0.3 else "row",
                [None, None, "row", "tensor"][rng.integers(0, 4)],
                RULES[rng.integers(0, len(RULES))] if rng.random() < 0.4 else None,
                float(rng.integers(1, 5)) if rng.random() < 0.2 else None,
                bool(rng.random() < 0.9),
            )  # fmt: skip
        except (ValueError, TypeError) as problem:
            assert "\n" not in str(problem) and re.match("[A-Za-z]+: ", str(problem)), problem
            continue
        assert str(hc.format(str(made))) == str(made)
        return made


def values(rng: Random, shape: tuple[int, ...], fmt: hc.Format) -> Array:
    x = (rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 5)).astype([np.float32, np.float64][rng.integers(0, 2)])
    if rng.random() < 0.3:
        x[rng.random(shape) < 0.4] *= -0.0
    return x


def either(call: Callable[[], Any], *names: str) -> Any:
    """Return an answer, or None for a refusal in one line that has one of the names in it."""
    try:
        return call()
    except ValueError as problem:
        assert "\n" not in str(problem) and any(name in str(problem) for name in names), problem
        return None


def same_products(a: Array, b: Array) -> bool:
    """Tell whether results have the same bits, but for the sign of NaN."""
    return same_bits(np.where(np.isnan(a), np.float32(np.nan), a), np.where(np.isnan(b), np.float32(np.nan), b))


def largest_error(x: Array, w: Array) -> Array:
    """Return the bound of the rounding errors of x @ w.T in float32, of any order."""
    k = x.shape[-1]
    return np.asarray(2 * (k + 8) * 2.0**-24 * (np.abs(x).astype(np.float64) @ np.abs(w).astype(np.float64).T) + 1e-30)


@pytest.mark.parametrize("seed", ROUNDS)
def test_values_and_products_are_those_of_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fmt = drawn(rng)
    shape = (int(rng.integers(1, 14)), int(rng.integers(1, 70)))
    axis = int(rng.integers(0, 2))
    w = values(rng, shape, fmt)
    q, wanted = hc.quantize(w, fmt, axis), reference.quantize(w, fmt, axis)
    for name, part in wanted.items():
        assert q.components[name].tobytes() == np.asarray(part).tobytes(), (str(fmt), name)
    decoded = q.dequantize()
    assert same_bits(decoded, reference.dequantize(wanted, fmt, shape, axis))
    assert same_bits(hc.fake_quantize(w, fmt, axis), decoded)
    y, back = hc.training.fake_quantize(w, fmt, axis)
    largest = np.inf if fmt.form.has_scales else fmt.element.largest
    inside = (w >= (-largest if fmt.element.signed else 0)) & (w <= largest)
    assert same_bits(y, decoded) and np.array_equal(back(np.ones(shape, np.float32)), inside)
    assert hc.error(w, q).mse == pytest.approx(hc.error(w, decoded).mse, rel=1e-9, nan_ok=True)
    assert pickle.loads(pickle.dumps(q)) == q
    x = rng.standard_normal((int(rng.integers(1, 12)), shape[axis])).astype(np.float32)
    right = q.T if axis == 1 else q
    found = hc.matmul(x, right)
    for one in hc.explain(x, right).candidates:
        if one.predicted_ms is not None:
            with hc.use(path=one.path):
                assert same_products(hc.matmul(x, right), found), one.path
    if np.isfinite(decoded).all():
        matrix = decoded if axis == 1 else decoded.T
        assert (np.abs(found - x.astype(np.float64) @ matrix.T.astype(np.float64)) <= largest_error(x, matrix)).all()
    assert same_products(found, product.matmul(x, right))
    for activations in (hc.format("int8"), fmt):
        packed = either(lambda kind=activations: hc.matmul(x, right, activations=kind), str(fmt), "row", "tensor")
        if packed is not None:
            assert same_products(packed, product.matmul(x, right, activations=activations))
    if axis == 1:
        made = hc.prepack(hc.quantize(w, fmt, axis))
        for kind in (None, "int8"):
            assert same_products(hc.linear(x, made, activations=kind), hc.linear(x, q, activations=kind))


@pytest.mark.parametrize("seed", ROUNDS)
@pytest.mark.sweep(every=4)
def test_scales_that_are_chosen_lose_no_more(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    fmt = drawn(rng)
    rows, k = int(rng.integers(1, 14)), int(rng.integers(2, 70))
    w = rng.standard_normal((rows, k)).astype(np.float32)
    plain = hc.quantize(w, fmt)
    is_finite = np.isfinite(plain.dequantize()).all()
    for clip in (0.7, "octav", "percentile:95"):
        q = either(lambda clip=clip: hc.quantize(w, fmt, clip=clip), "clip")
        if q is not None:
            assert same_bits(hc.fake_quantize(w, fmt, clip=clip), q.dequantize())
            wanted = reference.quantize(w, fmt, -1, clip)
            assert all(q.components[name].tobytes() == np.asarray(part).tobytes() for name, part in wanted.items())
    searched = either(lambda: hc.quantize(w, fmt, clip="search"), "search", "steps", "scale")
    if searched is not None:
        assert not is_finite or hc.error(w, searched).mse <= hc.error(w, plain).mse * (1 + 1e-12)
        assert type(searched)(searched.components, fmt, searched.shape, searched.axis) == searched  # checks components
        assert same_bits(hc.fake_quantize(w, fmt, clip="search"), searched.dequantize())
    either(lambda: hc.quantize(w, fmt, importance=np.ones(w.shape)), "importance")
    inputs = rng.standard_normal((4 * k, k)) @ (np.eye(k) + 0.4 * rng.standard_normal((k, k)))
    h = hc.ptq.Hessian(k)
    h.add(inputs)
    q = either(lambda: hc.ptq.gptq(w, h, fmt), "steps", "scales", "level")
    if q is not None:
        assert type(q)(q.components, fmt, q.shape, q.axis) == q
        assert hc.ptq.error(w, q, h).squared <= hc.ptq.error(w, plain, h).squared * (1 + 1e-9)
        values = hc.ptq.error(w, q.dequantize(np.float64), h, axis=1)
        assert hc.ptq.error(w, q, h).squared == pytest.approx(values.squared, rel=1e-9)
        bias = hc.ptq.correct_bias(w, q, h)
        assert np.allclose(bias, hc.ptq.correct_bias(w, q.dequantize(), h, axis=1), rtol=1e-4, atol=1e-5)
        at = hc.ptq.gptq(w, np.eye(k), fmt, scales="absmax", sweeps=0)
        assert not is_finite or hc.error(w, at).mse <= hc.error(w, plain).mse * (1 + 1e-6)
    least = either(lambda: hc.ptq.bound(w, fmt, h), "steps", "scales", "level")
    assert least is None or (least >= 0).all()
    assert not is_finite or hc.ptq.rescale(w, h, fmt).errors[0.0] >= 0
    y, back = hc.training.fake_quantize(w, fmt)
    chance = either(lambda: hc.training.fake_quantize(w, fmt, rounding="stochastic", seed=seed), "levels")
    if chance is not None:
        assert np.isfinite(chance[0]).all() and chance[0].shape == w.shape
        if fmt.form.codes not in ("integer", "log") or fmt.used_rule == "absmax":
            assert set(np.unique(chance[1](np.ones(w.shape, np.float32)))) <= {0.0, 1.0}


@pytest.mark.parametrize("seed", ROUNDS[::2])
def test_patterns_images_and_caches(seed: int) -> None:
    rng = np.random.default_rng(2000 + seed)
    fmt = drawn(rng)
    w = rng.standard_normal((int(rng.integers(1, 10)), int(rng.integers(1, 60)))).astype(np.float32)
    n, m = [(2, 4), (1, 4), (3, 7)][rng.integers(0, 3)]
    sparse = either(lambda: hc.Sparse(fmt, n, m), "Sparse", str(fmt))
    if sparse is not None:
        q = hc.quantize(w, sparse)
        pruned = hc.prune(w, f"{n}:{m}")
        assert q == hc.quantize(pruned, fmt) and same_bits(hc.fake_quantize(w, sparse), q.dequantize())
        assert (q.dequantize()[pruned.to_dense() == 0] == 0).all() or not np.isfinite(q.dequantize()).all()
        x = rng.standard_normal((3, w.shape[1])).astype(np.float32)
        if np.isfinite(q.dequantize()).all():
            lost = np.abs(hc.matmul(x, q.T) - x.astype(np.float64) @ q.dequantize(np.float64).T)
            assert (lost <= largest_error(x, q.dequantize())).all()
        both = either(lambda: hc.ptq.gptq(w, np.eye(w.shape[1]), sparse), "steps", "scales", "level", "pattern")
        assert both is None or type(both)(both.components, sparse, both.shape, both.axis) == both
    filters = rng.standard_normal((int(rng.integers(1, 9)), int(rng.integers(1, 6)), 3, 3)).astype(np.float32)
    images = rng.standard_normal((2, filters.shape[1], 7, 6)).astype(np.float32)
    q = hc.quantize(filters, fmt, axis=(2, 3, 1))
    if np.isfinite(q.dequantize()).all():
        options: dict[str, Any] = {"padding": 1, "stride": int(rng.integers(1, 3))}
        found, wanted = hc.conv2d(images, q, **options), hc.conv2d(images, q.dequantize(), **options)
        scale = hc.conv2d(np.abs(images), np.abs(q.dequantize()), **options)
        bound = 4 * (filters[0].size + 8) * 2.0**-24 * scale + 1e-30
        assert (np.abs(found - wanted) <= bound).all()
        last = hc.conv2d(images.transpose(0, 2, 3, 1), q, layout="NHWC", **options).transpose(0, 3, 1, 2)
        assert (np.abs(last - wanted) <= bound).all()
        both = either(lambda: hc.conv2d(images, q, activations="int8", **options), str(fmt))
        near = hc.conv2d(images, q.dequantize(), activations="int8", **options)
        assert both is None or (np.abs(both - near) <= 0.1 * scale.max() + bound).all()
    width = int(rng.integers(1, 40))
    cache = either(lambda: hc.KVCache(fmt, heads=2, width=width), "KVCache: format is", "group")
    if cache is not None:
        token = rng.standard_normal((1, 2, 3, width)).astype(np.float32)
        k, v = cache.add(0, token, token)
        rounded = hc.fake_quantize(token, fmt)
        if np.isfinite(rounded).all():
            assert np.allclose(hc.attention(token, k, v), hc.attention(token, rounded, rounded), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "own", ["int4-g16-e4m3fn-f32row", "e2m1-b4x8-e4m3fn-f32tensor", "ternary-g16-absmean", "e3m4-row"]
)
@pytest.mark.sweep(every=4)
def test_methods_for_networks_take_sentences(own: str) -> None:
    net = hc.zoo.digits()
    found = hc.ptq.quantize(net.weights, lambda weights: net.forward(weights, net.train_x[:16]), own)
    assert {str(found.weights[name].format) for name in found.weights if "weight" in name} == {own}
    assert all(row["after"] >= row["before"] - 1e-6 for row in found.table)
    plan = hc.ptq.search(net.weights, [own, "int8"], {"bits": 8.4})
    assert set(plan.recipe.values()) <= {own, "int8"}


def test_trained_scales_and_pairs_of_the_catalogue() -> None:
    w, rng = np.random.default_rng(1).standard_normal((6, 40)).astype(np.float32), np.random.default_rng(2)
    own, usual = hc.define(None, "int4", group=16), hc.format("int4-g16")
    scale = np.abs(rng.standard_normal((6, 3))).astype(np.float32) + np.float32(0.1)
    (y, back), (wanted, wanted_back) = (hc.training.fake_quantize(w, one, scale=scale) for one in (own, usual))
    assert same_bits(y, wanted)
    assert all(same_bits(a, b) for a, b in zip(back(w), wanted_back(w), strict=True))
    h = np.cov(rng.standard_normal((40, 200)))
    pairs: list[tuple[str, Any]] = [
        ("int4-g16", own),
        ("nvfp4", "e2m1-g16-e4m3fn-f32tensor"),
        ("mxfp4", hc.define(None, "e2m1", scale="e8m0", group=32)),
        ("vsq4-g16-s4", "int4-g16-s4-f32row"),
        ("log4-2-g8", hc.define(None, "log4-2", group=8)),
        ("nf4-g16", hc.define(None, Levels.normal_float(4), group=16)),
    ]
    for text, sentence in pairs:
        one, other = hc.ptq.gptq(w, h, text), hc.ptq.gptq(w, h, sentence)
        assert same_bits(one.dequantize(), other.dequantize()), text
        one, other = (hc.quantize(w, fmt, clip="search") for fmt in (text, sentence))
        assert same_bits(one.dequantize(), other.dequantize()), text
