"""PyTorch: torch.func and repeated derivatives of a rounding whose derivative is a constant mask."""

from __future__ import annotations

import numpy as np
import pytest
from common import reals, same_bits

import heterocompute as hc

torch = pytest.importorskip("torch")
from heterocompute.interop import torch as ht  # noqa: E402

W, WEIGHTS = torch.from_numpy(reals((4, 64), 3)), torch.from_numpy(reals((4, 64), 4))
CASES = [
    ("int4-g32", {}),
    ("int4-g32", {"clip": 0.5}),
    ("int4-g32", {"clip": "octav"}),
    ("vsq4u-g16-s4", {}),
    ("int8+2:4", {"clip": "percentile:90"}),
    ("nf4-g64", {"rounding": "stochastic", "clip": 0.7}),
]


def by_hand(t, text, more):
    """Return the same values with the mask as derivative, by PyTorch's operators."""
    y, back = hc.training.fake_quantize(t.detach(), text, **more)
    through = t * torch.from_numpy(np.array(back(np.ones(t.shape, np.float32))))
    return through - through.detach() + torch.from_numpy(y)


def derivatives(loss, t):
    """Return the gradient, the gradient of its squared sum, and the gradient of the sum of the latter."""
    t = t.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(t), t, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), t, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), t)
    return first.detach(), second.detach(), third


@pytest.mark.parametrize(("text", "more"), CASES)
def test_derivatives_of_derivatives_and_of_torch_func(text, more):
    def rounded(t):
        return ht.fake_quantize(t, text, **more)

    def loss(t):
        return (rounded(t) ** 3 * WEIGHTS).sum()

    wanted = derivatives(lambda t: (by_hand(t, text, more) ** 3 * WEIGHTS).sum(), W)
    assert all(torch.equal(a, b) for a, b in zip(derivatives(loss, W), wanted, strict=True))
    assert torch.equal(torch.func.grad(loss)(W), wanted[0])
    _, back = torch.func.vjp(rounded, W)
    mask, along = back(torch.ones_like(W))[0], torch.func.jvp(rounded, (W,), (WEIGHTS,))[1]
    assert torch.equal(along, mask * WEIGHTS)  # the forward derivative is not zero
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(W, WEIGHTS)
        assert torch.equal(torch.autograd.forward_ad.unpack_dual(rounded(dual)).tangent, along)
    many = torch.stack([W, 2 * W, W * W], dim=1)
    for function in (rounded, torch.func.grad(loss)):
        found = torch.func.vmap(function, in_dims=1)(many)
        assert torch.equal(found, torch.stack([function(w) for w in many.unbind(1)]))
    hessian = torch.func.hessian(lambda t: (rounded(t[None]) ** 3).sum())(W[0])
    diagonal = 6 * rounded(W[:1])[0] * torch.func.vjp(rounded, W[:1])[1](torch.ones(1, 64))[0][0] ** 2
    assert torch.allclose(hessian, torch.diag(diagonal), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_products_have_the_derivatives_of_products(dtype):
    q, x = hc.quantize(W.numpy(), "int4-g32"), torch.from_numpy(reals((5, 64), 6)).to(dtype)
    dense = torch.from_numpy(q.dequantize()).to(dtype)
    unit = max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)  # products are float32, rounded to dtype

    def near(a, b):
        return (a - b).abs().max() <= 16 * unit * b.abs().max()

    def loss(x):
        return (ht.linear(x, q) ** 3).sum()

    def loss_by_hand(x):
        return ((x @ dense.T) ** 3).sum()

    for found, wanted in zip(derivatives(loss, x), derivatives(loss_by_hand, x), strict=True):
        assert found.dtype == dtype and near(found, wanted)
    along = torch.func.jvp(lambda x: ht.linear(x, q), (x,), (x,))[1]
    assert torch.equal(along, ht.linear(x, q)) and along.dtype == dtype
    each = torch.func.vmap(torch.func.grad(loss))(x)
    assert near(each, torch.stack([torch.func.grad(loss)(one) for one in x]))


def test_modules_are_functions_of_their_parameters():
    torch.manual_seed(0)
    layer, x = ht.QuantLinear(64, 3, "int4-g32", clip=0.9), torch.from_numpy(reals((5, 64), 7))
    parameters = {name: value.detach() for name, value in layer.named_parameters()}

    def loss(parameters, one):
        return torch.func.functional_call(layer, parameters, (one[None],)).square().sum()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    layer(x).square().sum().backward()
    assert torch.allclose(each["weight"].sum(0), layer.weight.grad, rtol=1e-4, atol=1e-4)
    twice = {name: torch.stack([value, -value]) for name, value in parameters.items()}
    found = torch.func.vmap(lambda p: torch.func.functional_call(layer, p, (x,)))(twice)
    assert torch.equal(found[0], torch.func.functional_call(layer, parameters, (x,)))


def test_compiled_derivatives_are_right_or_refused():
    def loss(t):
        return (ht.fake_quantize(t, "int4-g32", clip=0.5) ** 3).sum()

    def along(t):
        return torch.func.jvp(lambda t: ht.fake_quantize(t, "int4-g32", clip=0.5), (t,), (t,))[1]

    def each(t):
        return torch.func.vmap(lambda one: ht.fake_quantize(one, "int4-g32"))(t)

    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    assert all(torch.equal(a, b) for a, b in zip(derivatives(compiled, W), derivatives(loss, W), strict=True))
    assert same_bits(torch.compile(each, backend="aot_eager", fullgraph=True)(W).numpy(), each(W).numpy())
    with pytest.raises(Exception, match="derivatives of torch.func inside of torch.compile"):
        torch.compile(along, backend="eager", fullgraph=True)(W)
    torch.compiler.reset()
    assert torch.equal(torch.compile(along, backend="eager")(W), along(W)) and (along(W) != 0).any()


def test_tables_are_read_by_batches_of_indices():
    table = ht.PackedEmbedding(hc.quantize(W.numpy(), "int4-g32"))
    ids = torch.tensor([[0, 2], [1, 1], [2, 0]])
    for dim in (0, 1):
        found = torch.func.vmap(table, in_dims=dim)(ids)
        assert torch.equal(found, torch.stack([table(one) for one in ids.unbind(dim)]))
