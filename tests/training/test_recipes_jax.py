"""Linear layers and attention in recipes under JAX: bitwise those of NumPy, in jit, vmap and scan."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import heterocompute as hc

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from heterocompute.interop import jax as hj  # noqa: E402

STATELESS = [name for name in hc.training.recipes() if name not in ("fp8-delayed", "deepseek-fp8")]


def arrays(*shapes: tuple[int, ...], seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape, dtype=np.float32) for shape in shapes]


@pytest.mark.parametrize("name", STATELESS)
def test_a_linear_layer_has_the_bits_of_numpy(name: str) -> None:
    x, w, g = arrays((32, 64), (32, 64), (32, 32))
    expected = hc.training.linear_step(x, w, g, name, seed=7)
    y, back = jax.vjp(jax.jit(lambda a, b: hj.linear_in(a, b, name, seed=7)), x, w)
    for found, wanted in zip((y, *back(g)), expected, strict=True):
        assert np.asarray(found).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("causal", [False, True])
def test_attention_has_the_bits_of_numpy(causal: bool) -> None:
    recipe = hc.training.Recipe(activations="int8-g8", gradients="fp8_e5m2", rounding={"gradients": "stochastic"})
    q, k, v, g = arrays((2, 16, 8), (2, 16, 8), (2, 16, 8), (2, 16, 8))
    expected = hc.training.attention_step(q, k, v, g, recipe, causal, seed=3)
    y, back = jax.vjp(lambda *given: hj.attention_in(*given, recipe, causal, seed=jnp.uint32(3)), q, k, v)
    for found, wanted in zip((y, *back(g)), expected, strict=True):
        assert np.asarray(found).tobytes() == wanted.tobytes()


def test_a_traced_step_is_the_seed_and_batches_are_separate() -> None:
    recipe = hc.training.Recipe(weights="int4", rounding={"weights": "stochastic"})
    (x, w) = arrays((3, 4, 8), (5, 8))
    each = jnp.arange(3, dtype=jnp.uint32)
    found = jax.vmap(lambda a, n: hj.linear_in(a, w, recipe, n))(x, each)
    for index in range(3):
        wanted = hc.training.linear_step(x[index], w, np.zeros((4, 5), np.float32), recipe, seed=index).y
        assert np.asarray(found[index]).tobytes() == wanted.tobytes()
    y, _ = jax.lax.scan(lambda c, n: (c + hj.linear_in(x[0], w, recipe, n), None), jnp.zeros((4, 5)), each)
    assert y.shape == (4, 5)


def test_keep_names_the_layer() -> None:
    recipe = hc.training.Recipe(weights="int2", keep={"head": None})
    x, w = arrays((4, 8), (5, 8))
    assert not np.array_equal(hj.linear_in(x, w, recipe), x @ w.T)
    np.testing.assert_allclose(hj.linear_in(x, w, recipe, layer="head"), x @ w.T, atol=1e-5)


def test_what_is_no_function_of_arrays_is_refused() -> None:
    x, w = arrays((4, 8), (5, 8))
    with pytest.raises(ValueError, match="linear_in: recipe has Delayed scaling"):
        hj.linear_in(x, w, "fp8-delayed")
    with pytest.raises(TypeError, match="linear_in: x has dtype bfloat16, expected float32"):
        hj.linear_in(jnp.asarray(x, jnp.bfloat16), w, "bf16")
    with pytest.raises(ValueError, match=r"linear_in: x has shape \(4, 8\)"):
        hj.linear_in(x, w[:, :7], "bf16")
    with pytest.raises(ValueError, match="expected a multiple of 32"):
        hj.linear_in(x, w, "mxfp8")
    with pytest.raises(ValueError, match="attention_in: shapes of q, k and v"):
        hj.attention_in(x, x, x[:2], "bf16")
    padded = dataclasses.replace(hc.training.recipe("mxfp8"), pad=True)
    assert hj.linear_in(x, w, padded).shape == (4, 5)
