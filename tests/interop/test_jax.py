"""JAX: the same values and gradients as without it, inside of jit, grad and vmap."""

from __future__ import annotations

import numpy as np
import pytest
import said
from common import reals, same_bits

import heterocompute as hc

jax = pytest.importorskip("jax")
from heterocompute.interop import jax as hj  # noqa: E402

jnp = jax.numpy
W, G = reals((6, 64), 3), reals((6, 64), 4)


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("int4-g32", {}),
        ("vsq4u-g16-s4", {}),
        ("int4-g5", {"clip": 0.5, "axis": 0}),
        ("int4-g32", {"clip": "octav"}),
        ("nf4-g64", {"rounding": "stochastic", "seed": 2**64 - 1}),
    ],
)
def test_values_and_gradients(text, more):
    values, back = hc.training.fake_quantize(W, text, **more)

    def loss(t):
        return (hj.fake_quantize(t, text, **more) * G).sum()

    assert same_bits(np.asarray(hj.fake_quantize(W, text, **more)), values)
    assert same_bits(np.asarray(jax.grad(loss)(jnp.asarray(W))), back(G))
    assert same_bits(np.asarray(jax.jit(jax.grad(loss))(jnp.asarray(W))), back(G))


def test_a_traced_step_is_a_seed_and_arrays_are_mapped():
    rounded = jax.jit(lambda t, step: hj.fake_quantize(t, "int4", rounding="stochastic", seed=step))
    for step in (1, 2):
        wanted, _ = hc.training.fake_quantize(W, "int4", rounding="stochastic", seed=step)
        assert same_bits(np.asarray(rounded(W, step)), wanted)
    many = jnp.stack([W, 2 * W])
    mapped = jax.vmap(lambda t: hj.fake_quantize(t, "int4", clip=0.5))(many)
    assert same_bits(np.asarray(mapped[1]), hc.fake_quantize(2 * W, "int4", clip=0.5))
    half = jnp.asarray(W, jnp.bfloat16)
    assert hj.fake_quantize(half, "int8").dtype == jax.grad(lambda t: hj.fake_quantize(t, "int8").sum())(half).dtype


def test_a_packed_weight_is_frozen_and_x_has_its_gradient():
    q, x = hc.quantize(W, "int4-g32"), reals((2, 3, 64), 5)
    assert same_bits(np.asarray(jax.jit(lambda t: hj.linear(t, q))(x)), hc.linear(x, q))
    assert same_bits(np.asarray(jax.vmap(lambda t: hj.linear(t, q))(jnp.asarray(x))), hc.linear(x, q))
    slope = jax.grad(lambda t: hj.linear(t, q, jnp.ones(6)).sum())(jnp.asarray(x))
    assert np.allclose(slope, q.dequantize().sum(0), rtol=1e-5, atol=1e-5)
    assert hj.linear(jnp.asarray(x, jnp.bfloat16), q).dtype == jnp.bfloat16


def test_what_is_refused():
    for call, words in (
        (lambda: hj.fake_quantize(jnp.ones(3, jnp.int32), "int4"), "wanted floats"),
        (lambda: hj.fake_quantize(W, "int4", seed=jnp.ones(2)), "wanted one integer"),
        (lambda: hj.fake_quantize(W, "int4", seed="x"), "seed is 'x'"),
        (lambda: hj.linear(W, W), "wanted a QuantizedArray"),
        (lambda: jax.jit(lambda t: hc.quantize(t, "int4"))(W), "heterocompute.interop.jax"),
    ):
        with pytest.raises(TypeError, match=words):
            call()
    with pytest.raises(ValueError, match=said.X_HAS_SHAPE):
        hj.linear(W[:, :3], hc.quantize(W, "int4"))
