"""Pooling equals loops over windows; a folded normalization equals the layer followed by the normalization."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import isas, reals, same_bits

import heterocompute as hc
from heterocompute.reference import layers as reference


@pytest.mark.parametrize(
    ("size", "stride", "padding"), [(2, None, 0), ((3, 2), (2, 1), ((1, 0), (0, 1))), (3, 2, "same"), (5, 1, 2)]
)
def test_pooling_is_that_of_loops(size: Any, stride: Any, padding: Any) -> None:
    x = reals((2, 3, 6, 5), 1)
    (r, s), window = np.broadcast_to(size, 2), None
    for kind, fill in (("max", -np.inf), ("avg", 0.0)):
        found = getattr(hc.layers, f"{kind}_pool2d")(x, size, stride, padding)
        one = np.ones((3, 1, r, s), np.float32)
        window = hc.conv2d(x, one, None, size if stride is None else stride, padding, groups=3)
        assert found.shape == window.shape and found.dtype == np.float32
        step = np.broadcast_to(size if stride is None else stride, 2)
        if padding == "same":
            total = [max((-(-n // a) - 1) * a + k - n, 0) for n, a, k in zip(x.shape[2:], step, (r, s), strict=True)]
            sides = [(n // 2, n - n // 2) for n in total]
        else:
            sides = padding if isinstance(padding, tuple) else ((padding, padding),) * 2
        padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *sides), constant_values=fill)
        for n, c, p, q in np.ndindex(*found.shape):
            values = padded[n, c, p * step[0] : p * step[0] + r, q * step[1] : q * step[1] + s]
            wanted = values.max() if kind == "max" else values.sum() / (r * s)
            assert found[n, c, p, q] == pytest.approx(wanted, rel=2.0**-23, abs=1e-12)


@pytest.mark.parametrize("isa", isas("pool_max"))
@pytest.mark.parametrize("seed", range(12))
def test_pooling_has_the_bits_of_its_definition(seed: int, isa: str) -> None:
    rng = np.random.default_rng(seed)
    size, stride = rng.integers(1, 5, 2), rng.integers(1, 4, 2)
    before, after = rng.integers(0, 3, 2), rng.integers(0, 3, 2)
    height, width = (int(rng.integers(1, 40)) for _ in range(2))
    x = reals((2, 3, height, width), seed) * (rng.random((2, 3, height, width)) < 0.8).astype(np.float32)
    x[rng.random(x.shape) < 0.02], x[rng.random(x.shape) < 0.02] = np.nan, -np.inf
    edges = (*zip(before.tolist(), after.tolist(), strict=True),)
    for kind in ("max", "avg"):
        with hc.use(isa=isa, threads=2):
            found = getattr(hc.layers, f"{kind}_pool2d")(x, tuple(size.tolist()), tuple(stride.tolist()), edges)
        wanted = reference.pooled(
            x, *(tuple(a.tolist()) for a in (size, stride, before)), found.shape[2:], kind == "avg"
        )
        assert same_bits(found, wanted)


def test_pooling_reads_views_and_float16() -> None:
    x = reals((2, 6, 9, 3), 1)
    plain = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    for pool in (hc.layers.max_pool2d, hc.layers.avg_pool2d):
        assert same_bits(pool(x.transpose(0, 3, 1, 2), 3, 2, 1), pool(plain, 3, 2, 1))
        assert same_bits(pool(plain.astype(np.float16), 2), pool(plain.astype(np.float16).astype(np.float32), 2))


def test_pooling_of_nothing_and_of_nan() -> None:
    assert hc.layers.max_pool2d(np.zeros((0, 2, 4, 4), np.float32), 2).shape == (0, 2, 2, 2)
    assert hc.layers.avg_pool2d(np.zeros((1, 2, 1, 4), np.float32), 2).shape == (1, 2, 0, 2)
    x = np.zeros((1, 1, 2, 4), np.float32)
    x[0, 0, 1, 3] = np.nan
    assert np.isnan(hc.layers.max_pool2d(x, 2)).tolist() == [[[[False, True]]]]


def test_a_folded_normalization_is_the_layer_and_the_normalization() -> None:
    x, w, bias = reals((2, 3, 6, 6), 1), reals((4, 3, 3, 3), 2), reals((4,), 3)
    gamma, beta, mean, variance = (
        reals((4,), 4),
        reals((4,), 5),
        reals((4,), 6),
        np.abs(reals((4,), 7)) + np.float32(0.1),
    )
    for given in (bias, None):
        folded, shift = hc.layers.fold_batch_norm(w, given, gamma, beta, mean, variance)
        plain = hc.conv2d(x, w, given).astype(np.float64)
        shape = (4, 1, 1)
        scale = gamma.astype(np.float64) / np.sqrt(variance.astype(np.float64) + 1e-5)
        wanted = (plain - mean.reshape(shape)) * scale.reshape(shape) + beta.reshape(shape)
        size = hc.conv2d(np.abs(x), np.abs(w)) + np.abs(mean.reshape(shape)) + np.abs(bias.reshape(shape))
        bound = (27 + 4) * 2.0**-23 * (size * np.abs(scale).reshape(shape) + np.abs(beta).reshape(shape))
        assert (np.abs(hc.conv2d(x, folded, shift) - wanted) <= bound).all()
    flat, _ = hc.layers.fold_batch_norm(w.reshape(4, -1), bias, gamma, beta, mean, variance)
    assert same_bits(flat.reshape(w.shape), hc.layers.fold_batch_norm(w, bias, gamma, beta, mean, variance)[0])


def test_wrong_arguments_are_sentences() -> None:
    x, one = reals((1, 1, 4, 4)), np.ones(2, np.float32)
    for call, kind, words in [
        (lambda: hc.layers.max_pool2d(x[0], 2), ValueError, "max_pool2d: x has shape .* N C H W"),
        (lambda: hc.layers.max_pool2d(x, 0), ValueError, "max_pool2d: size is 0, expected 1 or more"),
        (lambda: hc.layers.avg_pool2d(x, 2, stride=0), ValueError, "avg_pool2d: stride is 0"),
        (lambda: hc.layers.avg_pool2d(x.astype(int), 2), TypeError, "avg_pool2d: x"),
        (lambda: hc.layers.fold_batch_norm(np.eye(2), None, one, one, one[:1], one), ValueError, "mean has shape"),
        (lambda: hc.layers.fold_batch_norm(np.eye(2), None, one, one, one, -one), ValueError, "expected above 0"),
    ]:
        with pytest.raises(kind, match=words):
            call()


def test_a_cache_of_absurdly_many_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="KVCache: layers is 1099511627776"):
        hc.KVCache(layers=1 << 40)
