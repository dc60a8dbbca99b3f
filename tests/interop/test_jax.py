"""JAX: the same values and gradients as without JAX, inside of jit, grad and vmap."""

from __future__ import annotations

import numpy as np
import pytest
from common import bad_argument, reals, same_bits

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
        (lambda: hj.fake_quantize(jnp.ones(3, jnp.int32), "int4"), "expected floats"),
        (lambda: hj.fake_quantize(W, "int4", seed=jnp.ones(2)), "expected one integer"),
        (lambda: hj.fake_quantize(W, "int4", seed="x"), "seed is 'x'"),
        (lambda: hj.linear(W, W), "expected a QuantizedArray"),
        (lambda: jax.jit(lambda t: hc.quantize(t, "int4"))(W), "heterocompute.interop.jax"),
    ):
        with pytest.raises(TypeError, match=words):
            call()
    with bad_argument(ValueError, "x", "shape"):
        hj.linear(W[:, :3], hc.quantize(W, "int4"))


def test_a_pytree_is_studied_searched_and_rounded_by_names():
    random = np.random.default_rng(0)
    kernels = [jnp.asarray(random.standard_normal(size, dtype=np.float32)) for size in ((32, 64), (64, 8))]
    params = {"layers": [{"kernel": kernels[0], "bias": jnp.zeros(64)}, {"kernel": kernels[1]}], "step": 3}
    x = jnp.asarray(random.standard_normal((64, 32), dtype=np.float32))

    def forward(p):
        first, last = p["layers"]
        return jnp.tanh(x @ first["kernel"] + first["bias"]) @ last["kernel"]

    weights = hj.named(params)
    assert list(weights) == ["layers.0.bias", "layers.0.kernel", "layers.1.kernel"]

    def error(changed):
        return {"error": float(jnp.abs(forward(hj.rebuilt(params, changed)) - forward(params)).mean())}

    r = hc.study(weights, ["int8", "int4-g32"], error, axis=0, per_layer=True)
    assert {row["name"] for row in r.alone} == {"layers.0.kernel", "layers.1.kernel"}
    fp32, *rounded = sorted(row["error"] for row in r.table)
    assert fp32 == 0 and all(rounded)
    packed = {name: hc.quantize(w, "int4-g32", axis=0) for name, w in weights.items() if w.ndim > 1}
    made = hj.rebuilt(params, packed)
    assert made["step"] == 3 and made["layers"][0]["bias"] is params["layers"][0]["bias"]
    assert same_bits(np.asarray(made["layers"][1]["kernel"]), packed["layers.1.kernel"].dequantize())
    assert hj.rebuilt({"w": jnp.ones(3, jnp.bfloat16)}, {"w": np.zeros(3)})["w"].dtype == jnp.bfloat16


def test_a_pytree_and_weights_that_do_not_fit_are_refused():
    params = {"a": {"b": jnp.ones((2, 2))}}
    for call, kind, words in (
        (lambda: hj.named({**params, "a.b": jnp.ones(2)}), ValueError, "named: params has two arrays with the name"),
        (lambda: hj.rebuilt(params, {"a.c": jnp.ones((2, 2))}), ValueError, "rebuilt: weights has 'a.c'"),
        (lambda: hj.rebuilt(params, {"a.b": jnp.ones(2)}), ValueError, r"'a.b' has shape \(2,\), expected \(2, 2\)"),
        (lambda: hj.rebuilt(params, [1]), TypeError, "rebuilt: weights is"),
    ):
        with pytest.raises(kind, match=words):
            call()


@pytest.mark.parametrize("more", [{}, {"clip": 0.5}, {"clip": "octav"}])
def test_derivatives_of_any_order_and_direction(more):
    def rounded(t):
        return hj.fake_quantize(t, "int4-g32", **more)

    def loss(t):
        return (rounded(t) ** 2).sum()

    x, ones = jnp.asarray(W), jnp.ones(W.shape)
    factor = hc.training.fake_quantize(W, "int4-g32", **more)[1](np.ones(W.shape, np.float32))
    assert np.allclose(jax.grad(lambda t: jax.grad(loss)(t).sum())(x), 2 * factor**2)
    assert np.allclose(jax.jvp(rounded, (x,), (ones,))[1], factor)
    assert np.allclose(jax.jit(lambda t: jax.jvp(jax.grad(loss), (t,), (ones,))[1])(x), 2 * factor**2)


def test_packed_products_have_second_and_forward_derivatives():
    q, x = hc.quantize(W, "int4-g32"), jnp.asarray(reals((2, 64), 5))
    d = q.dequantize()
    hessian = jax.hessian(lambda t: (hj.linear(t, q) ** 2).sum())(x[0])
    assert np.allclose(hessian, 2 * d.T @ d, rtol=1e-4, atol=1e-4)
    assert np.allclose(jax.jvp(lambda t: hj.linear(t, q), (x,), (x,))[1], hj.linear(x, q))
    with pytest.raises(NotImplementedError, match="linear: the host computes it"):
        jax.export.export(jax.jit(lambda t: hj.linear(t, q)))(x)


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_gradients_of_a_packed_product_have_the_dtype_of_x(kind):
    q = hc.quantize(W, "int8")
    x = jnp.asarray(reals((3, 64), 6), kind)
    slope = jax.grad(lambda t: hj.linear(t, q).astype(jnp.float32).sum())(x)
    assert slope.dtype == x.dtype
    assert np.allclose(np.float32(slope), q.dequantize().sum(0), rtol=1e-2, atol=1e-2)
    assert jax.hessian(lambda t: (hj.linear(t, q).astype(jnp.float32) ** 2).sum())(x[0]).dtype == x.dtype


def test_gradients_inside_of_shard_map():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",))
    along = jax.sharding.PartitionSpec("rows")
    q, x = hc.quantize(W, "int8"), jnp.asarray(reals((3, 64), 6))
    for function, t in ((lambda t: hj.fake_quantize(t, "int4-g32"), jnp.asarray(W)), (lambda t: hj.linear(t, q), x)):
        sharded = jax.shard_map(function, mesh=mesh, in_specs=along, out_specs=along)
        wanted = jax.grad(lambda t, function=function: (function(t) ** 2).sum())(t)
        assert same_bits(np.asarray(jax.grad(lambda t, sharded=sharded: (sharded(t) ** 2).sum())(t)), wanted)
