"""Codebooks of vectors: the definition bit for bit, and an error as of ten starts of k-means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute import reference

Array = np.ndarray[Any, Any]


def drawn(kind: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    made = {
        "normal": lambda: rng.standard_normal(shape),
        "student": lambda: rng.standard_t(3, shape),
        "uniform": lambda: rng.uniform(-1, 1, shape),
        "mixture": lambda: rng.standard_normal(shape) * 0.05 + rng.integers(-2, 3, shape),
        "few": lambda: rng.integers(-2, 3, shape).astype(np.float64),
        "zero": lambda: np.zeros(shape),
        "tiny": lambda: rng.standard_normal(shape) * 1e-30,
    }[kind]()
    return made.astype(np.float32)


def same(w: Array, text: str, importance: Array | None = None) -> None:
    q, expected = (
        hc.quantize(w, text, importance=importance),
        reference.quantize(w, hc.format(text), -1, None, importance),
    )
    for key, part in expected.items():
        assert np.array_equal(q.components[key], part), (text, key)


@pytest.mark.sweep(every=5)
@pytest.mark.parametrize("kind", ["normal", "mixture", "few", "zero", "tiny"])
@pytest.mark.parametrize("dim", [2, 4, 8])
@pytest.mark.parametrize("share", ["", "-tensor"])
def test_learned_vectors_are_those_of_the_definition(kind: str, dim: int, share: str) -> None:
    w = drawn(kind, (3, 48 * dim))
    weights = np.random.default_rng(1).random(w.shape).astype(np.float32)
    for bits in (1, 2, 5):
        for importance in (None, weights, 0 * weights):
            same(w, f"cb{bits}{share}-d{dim}", importance)


def test_more_vectors_than_the_sample_are_those_of_the_definition() -> None:
    w = drawn("normal", (40, 1024))
    same(w, "cb3-tensor-d2")
    w[...] = 0  # the sample has fewer different vectors than all
    w[3, 1:401:2] = drawn("normal", (200,))
    same(w, "cb4-tensor-d2", np.abs(drawn("normal", w.shape, 2)))


@pytest.mark.sweep(every=40)
@pytest.mark.parametrize("kind", ["normal", "student", "uniform", "mixture"])
@pytest.mark.parametrize(
    "bits, dim, shape", [(6, 2, (16, 64)), (4, 2, (32, 64)), (6, 4, (32, 64)), (4, 8, (64, 64)), (2, 2, (16, 32))]
)
def test_the_error_is_that_of_ten_starts_of_k_means(kind: str, bits: int, dim: int, shape: tuple[int, int]) -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    ratios = []
    for seed in (1, 2):
        w = drawn(kind, shape, seed)
        q = hc.quantize(w, f"cb{bits}-tensor-d{dim}")
        error = float(((w.astype(np.float64) - np.asarray(q, np.float64)) ** 2).sum())
        vectors = w.reshape(-1, dim).astype(np.float64)
        ratios.append(error / cluster.KMeans(2**bits, n_init=10, random_state=0).fit(vectors).inertia_)
    assert np.mean(ratios) < 1.02 and max(ratios) < 1.04


def test_two_clusters_that_one_seed_would_miss_are_found() -> None:
    """Sixteen clusters on a grid: a start with two seeds in one cluster stays there without cycles."""
    rng = np.random.default_rng(5)
    grid = np.stack(np.meshgrid([-4, -1.5, 1.5, 4], [-4, -1.5, 1.5, 4]), -1).reshape(16, 2)
    for _ in range(5):
        vectors = np.repeat(grid, 20, 0) + 0.01 * rng.standard_normal((320, 2))
        w = rng.permutation(vectors).astype(np.float32).reshape(1, -1)
        assert np.abs(w - np.asarray(hc.quantize(w, "cb4-d2"))).max() < 0.1
