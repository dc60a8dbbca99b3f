"""PyTorch: the same values and gradients as without it, also compiled, in 16 bits, in modules and with `out=`."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import weakref

import numpy as np
import pytest
from common import bad_argument, reals, same_bits

import heterocompute as hc

torch = pytest.importorskip("torch")
from heterocompute.interop import torch as ht  # noqa: E402
from heterocompute.interop.torch.rounding import OPS  # noqa: E402

W, G = reals((6, 64), 3), reals((6, 64), 4)
CASES = [
    ("int4-g32", {}),
    ("vsq4u-g16-s4", {}),
    ("fp4_e2m1", {}),
    ("int4-g5", {"clip": 0.5, "axis": 0}),
    ("int4-g32", {"clip": "octav"}),
    ("int8+2:4", {"clip": "percentile:90"}),
    ("int4", {"clip": "search"}),
    ("nf4-g64", {"rounding": "stochastic", "seed": 2**64 - 1}),
]


def parameter():
    return torch.from_numpy(W.copy()).requires_grad_()


@pytest.mark.parametrize(("text", "more"), CASES)
def test_values_and_gradients(text, more):
    values, back = hc.training.fake_quantize(W, text, **more)

    def loss(t):
        return (ht.fake_quantize(t, text, **more) * torch.from_numpy(G)).sum()

    t = parameter()
    assert same_bits(ht.fake_quantize(t, text, **more).detach().numpy(), values)
    loss(t).backward()
    assert same_bits(t.grad.numpy(), back(G))
    compiled, again = torch.compile(loss, backend="aot_eager", fullgraph=True), parameter()
    compiled(again).backward()
    assert same_bits(again.grad.numpy(), back(G))


def test_the_operators_are_what_torch_wants_of_them():
    operators = torch.ops.heterocompute
    torch.library.opcheck(operators.fake_quantize, (parameter(), "int4-g16", "1", "0.5", "nearest", 0))
    q = hc.quantize(W, "int4-g32")
    torch.library.opcheck(operators.linear, (torch.ones(3, 64, requires_grad=True), *OPS.constant_of(q), ""))


def test_16_bits_in_16_bits_out():
    half = torch.from_numpy(W).to(torch.bfloat16).requires_grad_()
    y = ht.fake_quantize(half, "int8", clip=0.9)
    y.sum().backward()
    _, back = hc.training.fake_quantize(half.detach(), "int8", clip=0.9)
    assert y.dtype == half.grad.dtype == torch.bfloat16 and same_bits(half.grad.float().numpy(), back(np.ones_like(W)))
    q, x = hc.quantize(W, "int4-g32"), torch.ones(3, 64, dtype=torch.bfloat16, requires_grad=True)
    assert ht.linear(x, q).dtype == torch.bfloat16 and ht.linear(x, q, dtype=torch.float32).dtype == torch.float32
    ht.linear(x, q, bias=torch.ones(6)).sum().backward()
    assert x.grad.dtype == torch.bfloat16


def test_a_packed_weight_is_frozen_and_x_has_its_gradient():
    q, x = hc.quantize(W, "int4-g32"), torch.from_numpy(reals((2, 3, 64), 5)).requires_grad_()
    bias = torch.zeros(6, requires_grad=True)
    y = ht.linear(x, q, bias)
    assert same_bits(y.detach().numpy(), hc.linear(x.detach(), q))
    y.sum().backward()
    assert np.allclose(x.grad.numpy(), q.dequantize().sum(0), rtol=1e-5, atol=1e-5) and (bias.grad == 6).all()
    compiled = torch.compile(lambda x: ht.linear(x, q), backend="aot_eager", fullgraph=True)
    assert same_bits(compiled(x).detach().numpy(), y.detach().numpy())
    with bad_argument(TypeError, "q", "type"):
        ht.linear(x, W)


def test_operators_hold_no_packed_weight():
    q = hc.quantize(W, "int4-g32")
    gone = [weakref.ref(part) for part in q.components.values()]
    ht.linear(torch.ones(64), q)
    x = torch.ones(64, requires_grad=True)
    ht.linear(x, q).sum().backward()
    del q
    gc.collect()
    assert all(ref() is None for ref in gone)


def test_an_exported_graph_holds_the_weight(tmp_path):
    class Net(torch.nn.Module):
        def forward(self, x):
            return ht.linear(x, self.q, activations="int8")

    net, x = Net(), torch.from_numpy(reals((3, 64), 5))
    net.q = hc.quantize(W, "int4-g32")
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    wanted = hc.linear(x, net.q, activations="int8")
    del net
    assert same_bits(torch.export.load(tmp_path / "net.pt2").module()(x).numpy(), wanted)


def test_modules_train_the_weight_before_rounding():
    torch.manual_seed(0)
    plain = torch.nn.Linear(64, 6)
    layer = ht.QuantLinear.from_linear(plain, "int4-g32-f16")
    assert layer.weight is plain.weight and "int4-g32-f16" in repr(layer)
    x = torch.from_numpy(reals((5, 64), 6))
    y = layer(x)
    y.square().sum().backward()
    assert (layer.weight.grad != 0).any() and set(layer.state_dict()) == {"weight", "bias"}
    assert same_bits(layer.packed().dequantize(), hc.fake_quantize(layer.weight.detach(), "int4-g32-f16"))
    assert np.allclose(y.detach().numpy(), hc.linear(x, layer.packed(), layer.bias.detach()), rtol=1e-4, atol=1e-5)
    again = torch.compile(layer, backend="aot_eager", fullgraph=True)(x)
    assert torch.equal(again, y)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), y)
    filters = ht.parametrize(torch.nn.Conv2d(3, 4, 3), "vsq4-g16-s4")
    before = filters.parametrizations.weight.original.detach()
    assert same_bits(filters.weight.detach().numpy(), hc.fake_quantize(before, "vsq4-g16-s4", axis=(2, 3, 1)))
    filters(torch.ones(1, 3, 5, 5)).sum().backward()
    assert (filters.parametrizations.weight.original.grad != 0).any()
    with bad_argument(ValueError, None, "value", "int99"):
        ht.parametrize(torch.nn.Linear(4, 4), "int99")
    with bad_argument(ValueError, None, "value", "int99"):
        ht.QuantLinear(4, 4, "int99")


def test_convolutions_are_rounded_along_what_they_sum():
    for module, axis in (
        (torch.nn.Conv1d(4, 6, 3), (2, 1)),
        (torch.nn.Conv3d(2, 3, 3), (2, 3, 4, 1)),
        (torch.nn.ConvTranspose2d(4, 6, 3), (2, 3, 0)),
        (torch.nn.Bilinear(3, 4, 5), (2,)),
    ):
        before = module.weight.detach().clone()
        assert same_bits(ht.parametrize(module, "int4").weight.detach().numpy(), hc.fake_quantize(before, "int4", axis))


def test_arguments_of_other_kinds_are_said():
    layer, q = torch.nn.Linear(4, 3), hc.quantize(np.ones((3, 4), np.float32), "int4")
    x = torch.ones(2, 4)
    for call, error, words in (
        (lambda: ht.fake_quantize(np.ones(4, np.float32), "int4"), TypeError, "t is .*, expected a torch.Tensor"),
        (lambda: ht.linear([1.0] * 4, q), TypeError, "x is .*, expected a torch.Tensor"),
        (lambda: ht.linear(x, q, torch.ones(7)), ValueError, r"bias has shape \(7,\), expected \(3,\)"),
        (lambda: ht.linear(x, q, dtype=torch.int8), TypeError, "dtype is torch.int8, expected a torch.dtype of floats"),
        (lambda: ht.parametrize(torch.nn.LSTM(4, 4), "int4"), TypeError, "weight of the module is None"),
        (lambda: ht.QuantLinear.from_linear(torch.nn.Conv2d(3, 4, 3), "int4"), TypeError, "type Conv2d, expected"),
    ):
        with pytest.raises(error, match=words):
            call()
    assert ht.QuantLinear.from_linear(layer, "int4").weight is layer.weight


def test_arguments_are_taken_as_elsewhere():
    t = torch.ones(2, 64)
    for call, error, words in (
        (lambda: ht.fake_quantize(t, 3), TypeError, "fake_quantize: format is 3, expected a format or its text"),
        (lambda: ht.fake_quantize(t, "int4", clip="0.5"), ValueError, "clip is '0.5', expected 'octav'"),
        (lambda: ht.fake_quantize(t, "int4", clip=""), ValueError, "clip is '', expected 'octav'"),
        (lambda: ht.fake_quantize(t, "int4", clip=True), TypeError, "clip is True, expected None, a number or a text"),
        (lambda: ht.fake_quantize(t, "int4", clip=[1]), TypeError, r"clip is \[1\], expected None, a number or a text"),
        (lambda: ht.fake_quantize(t.int(), "int4"), TypeError, r"t has dtype torch.int32, expected .*\.float\(\)"),
        (lambda: ht.fake_quantize(t.to_sparse(), "int4"), TypeError, "fake_quantize: t is nested, sparse"),
        (lambda: ht.linear(t.bool(), hc.quantize(W, "int4")), TypeError, "linear: x has dtype torch.bool"),
        (lambda: ht.QuantLinear(4, 4, "int4", clip="all"), ValueError, "QuantLinear: clip is 'all'"),
        (lambda: ht.QuantLinear.from_linear(torch.nn.Linear(4, 4), "int4", clip=7), ValueError, "clip is 7"),
    ):
        with pytest.raises(error, match=words):
            call()
    for clip in ("search", "octav", "percentile:99", 0.5, 1, np.float32(0.5)):
        given = hc.fake_quantize(W, "int4", clip=clip)
        assert same_bits(ht.fake_quantize(torch.from_numpy(W), "int4", clip=clip).numpy(), given)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_layer_multiplies_in_the_dtype_of_x(dtype):
    layer, x = ht.QuantLinear(64, 6, "int4-g32"), torch.ones(3, 64, dtype=dtype)
    y = layer(x)
    y.sum().backward()
    assert y.dtype == dtype and layer.weight.grad.dtype == layer.bias.grad.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.ones(3, 64)).dtype == torch.bfloat16


def test_a_weight_is_rounded_after_its_other_parametrizations():
    torch.manual_seed(0)
    module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(64, 6))
    before = module.weight.detach().clone()
    assert same_bits(ht.parametrize(module, "int4-g32").weight.detach().numpy(), hc.fake_quantize(before, "int4-g32"))
    module(torch.ones(2, 64)).sum().backward()
    assert all((one.grad != 0).any() for one in module.parameters())
    with bad_argument(ValueError, None, "unsupported", "weight of the module is rounded already"):
        ht.parametrize(module, "int8")


def test_elsewhere_a_gradient_is_not_lost_without_a_word():
    t = parameter()
    for call in (
        lambda: hc.fake_quantize(t, "int4"),
        lambda: hc.quantize(t, "int4"),
        lambda: hc.training.fake_quantize(t, "int4"),
        lambda: hc.linear(t, hc.quantize(W, "int4")),
        lambda: hc.prune_mask(t, "2:4"),
    ):
        with pytest.raises(TypeError, match="interop.torch.fake_quantize"):
            call()
    with bad_argument(TypeError, None, "device", r"is on meta.*pass \.cpu\(\)"):
        OPS.fake_quantize._init_fn(torch.ones(2, device="meta"), "int4", "-1", "", "nearest", 0)


def test_out_may_be_a_tensor():
    w, out = torch.from_numpy(W.copy()), torch.zeros(6, 64)
    wanted = hc.fake_quantize(W, "int4")
    assert hc.fake_quantize(w, "int4", out=out) is out and same_bits(out.numpy(), wanted)
    q = hc.quantize(W, "int4")
    answer = torch.zeros(6, 6)
    assert hc.linear(w, q, out=answer) is answer and same_bits(answer.numpy(), hc.linear(W, q))
    overlapping = w.view(-1)[:6].view(6, 1).expand(6, 6)
    with bad_argument(ValueError, "out", "memory"):
        hc.linear(w, q, out=overlapping)
    with bad_argument(ValueError, "out", "memory"):
        hc.linear(w, q, out=w[:, :6])
    assert hc.fake_quantize(w, "int4", out=w.numpy()) is not w and same_bits(w.numpy(), wanted)  # the same memory
    with bad_argument(TypeError, "out", "type"):
        hc.fake_quantize(w, "int4", out=parameter())
    with bad_argument(TypeError, "out", "type"):
        hc.fake_quantize(w, "int4", out=torch.zeros(6, 64, dtype=torch.bfloat16))


@pytest.mark.parametrize("method", [hc.ptq.calibrate, hc.ptq.quantize])
def test_calibration_takes_tensors(method):
    x = np.random.default_rng(0).standard_normal((20, 64)).astype(np.float32)

    def run(weights):
        return hc.linear(x, weights["fc.weight"])

    w = torch.randn(8, 64, dtype=torch.bfloat16)
    method({"fc.weight": w, "steps": torch.tensor([3])}, run)
    with bad_argument(TypeError, "weights", "type"):
        method({"fc.weight": w.requires_grad_()}, run)


def test_rounding_a_module_needs_no_import_before() -> None:
    """In a process of its own: other tests import what these modules import of each other."""
    script = (
        "import torch, heterocompute as hc\nprint(sorted(hc.ptq.calibrate(torch.nn.Linear(4, 4), [torch.randn(2, 4)])))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
