"""Models with packed layers: the selected layers, their results, and saving."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import warnings

import pytest
from common import bad_argument, same_bits

import heterocompute as hc

torch = pytest.importorskip("torch")
from heterocompute.interop import torch as ht  # noqa: E402


def network():
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Sequential(nn.Linear(32, 8), nn.LSTM(8, 8)))


def numpy(t):
    return t.detach().numpy()


@pytest.mark.parametrize("activations", [None, "int8"])
def test_a_packed_layer_computes_what_linear_does(activations):
    plain = torch.nn.Linear(64, 32)
    layer, x = ht.convert(plain, "vsq4-g16-s4", activations=activations), torch.randn(5, 64)
    q = hc.quantize(plain.weight.detach(), "vsq4-g16-s4")
    assert isinstance(layer, ht.PackedLinear) and layer.packed() == q
    wanted = hc.linear(x, q, plain.bias.detach(), activations)
    assert same_bits(numpy(layer(x)), wanted)
    with torch.no_grad():
        assert same_bits(numpy(layer(x)), wanted)
    given = x.clone().requires_grad_()
    layer(given).square().sum().backward()
    y = torch.from_numpy(wanted)
    assert torch.allclose(given.grad, 2 * y @ layer.weight.dequantize(), rtol=1e-5, atol=1e-4)
    assert torch.equal(layer.bias.grad, (2 * y).sum(0))


def test_patterns_are_of_weights_and_modules():
    model = network()
    assert [(one.name, one.kind) for one in ht.layers(model, exclude="*_hh_l0")] == [
        ("0.weight", "linear"),
        ("2.0.weight", "linear"),
        ("2.1.weight_ih_l0", "LSTM"),
    ]
    small = ht.convert(model, {"2.0": "int8", "*": "int4-g32"})
    assert [str(small[0].weight.format), str(small[2][0].weight.format)] == ["int4-g32", "int8"]
    assert type(model[0]) is torch.nn.Linear and small[2][1].weight_ih_l0 is not model[2][1].weight_ih_l0
    small = ht.convert(model, {"0.weight": "skip", "*": "int8"})
    assert type(small[0]) is torch.nn.Linear and isinstance(small[2][0], ht.PackedLinear)
    assert isinstance(ht.convert(model, {"2.0.*": "int8"})[0], torch.nn.Linear)
    assert ht.convert(model, "int8", exclude="2", include=["0", "2.*"], inplace=True) is model
    assert isinstance(model[0], ht.PackedLinear) and isinstance(model[2][0], ht.PackedLinear)


def test_what_cannot_be_converted_is_said():
    for call, error, words in (
        (lambda: ht.convert([1], "int8"), TypeError, r"convert: model is \[1\], expected a torch.nn.Module"),
        (lambda: ht.convert(network(), "int17"), ValueError, "int17"),
        (lambda: ht.convert(network(), "int8", exclude="head*"), ValueError, "pattern 'head\\*'"),
        (lambda: ht.convert(network(), {"nothing": "int8"}), ValueError, "pattern 'nothing', which is not a weight"),
        (lambda: ht.convert(torch.nn.LSTM(8, 8), "int8"), ValueError, "no layer is left to pack: 'weight_ih_l0'"),
        (lambda: ht.convert(torch.nn.ReLU(), "int8"), ValueError, "the model has no weights"),
        (lambda: ht.convert(network(), "int8", exclude="*"), ValueError, "is left to pack"),
        (lambda: ht.convert(torch.nn.Linear(4, 4, device="meta"), "int8"), TypeError, "'weight' is on meta"),
        (lambda: ht.convert(torch.nn.LazyLinear(4), "int8"), ValueError, "LazyLinear has no weight yet"),
    ):
        with pytest.raises(error, match=words):
            call()
    layer = ht.convert(torch.nn.Linear(64, 4), "int8")
    with bad_argument(TypeError, "x", "dtype"):
        layer(torch.ones(2, 64).long())
    with bad_argument(TypeError, "x", "type"):
        layer(torch.ones(2, 64).to_sparse())
    with bad_argument(ValueError, "x", "shape"):
        layer(torch.ones(2, 3))


def test_copies_and_files_hold_the_same_weights():
    small, x = ht.convert(network()[:2], "int4-g32-asym", activations="int8"), torch.randn(3, 64)
    wanted = numpy(small(x))
    file = io.BytesIO()
    torch.save(small.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert set(state) == {"0.bias", *(f"0.weight.{part}" for part in ("codes", "scales", "zero_points", "format"))}
    other = ht.convert(torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU()), "int8")
    other.load_state_dict(state)
    assigned = ht.convert(torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU()), "int8")
    assigned.load_state_dict(state, assign=True)
    for again in (other, assigned, copy.deepcopy(small), pickle.loads(pickle.dumps(small)), small.to(torch.float32)):
        assert same_bits(numpy(again(x)), wanted)
    half = copy.deepcopy(small).to(torch.bfloat16)
    assert half[0].packed() == small[0].packed() and half(x.bfloat16()).dtype == torch.bfloat16
    for name, value, words in (
        ("0.weight.scales", torch.ones(3, 2), "0.weight.scales is torch.float32 .3, 2., expected float32"),
        ("0.weight.format", torch.zeros(3, dtype=torch.uint8), "is not the text of a packed weight"),
        ("0.weight.codes", state["0.weight.codes"].float(), "0.weight.codes is torch.float32"),
        ("0.weight.scales", -state["0.weight.scales"] - 1, "holds a value that is negative"),
    ):
        with pytest.raises(RuntimeError, match=words):
            other.load_state_dict({**state, name: value})
    with pytest.raises(RuntimeError, match="0.weight is of floats, but packed .* load floats before convert"):
        other.load_state_dict(network()[:2].state_dict())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_traced_and_derived_calls_compute_the_same():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.Flatten(), torch.nn.Linear(64, 4))
    small, x, y = ht.convert(net, "int4-g16", activations="int8"), torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
    assert torch.equal(torch.jit.trace(small, x)(y), small(y))
    w, layer, v = small[2].weight.dequantize(), small[2], torch.randn(3, 64)
    near = {"rtol": 1e-4, "atol": 1e-4}
    assert torch.allclose(torch.func.grad(lambda v: layer(v).sum())(v), w.sum(0).expand(3, 64), **near)
    assert torch.allclose(torch.func.jvp(layer, (v,), (v,))[1], v @ w.T, **near)
    second = torch.func.hessian(lambda v: layer(v).square().sum())(v[0])
    assert torch.allclose(second, 2 * w.T @ w, **near)
    slopes = torch.vmap(torch.func.grad(lambda x: small(x[None]).sum()))(x)
    given = x.clone().requires_grad_()
    small(given).sum().backward()
    assert torch.allclose(slopes, given.grad, **near)
    assert layer(v[:0]).shape == (0, 4)


@pytest.mark.parametrize(("n", "shape"), [(1, (0, 2, 5)), (2, (0, 2, 5, 5)), (2, (3, 2, 1, 5)), (3, (0, 2, 5, 5, 5))])
def test_results_without_values_have_shapes_and_gradients(n: int, shape: tuple[int, ...]) -> None:
    small = ht.convert(getattr(torch.nn, f"Conv{n}d")(2, 3, 3), "int8")
    x = torch.zeros(shape, requires_grad=True)
    y = small(x)
    assert y.shape == (shape[0], 3, *(max(size - 2, 0) for size in shape[2:]))
    y.sum().backward()
    assert torch.equal(x.grad, torch.zeros(shape)) and not small.bias.grad.any()


def test_without_torch_a_name_says_what_is_missing():
    code = """if True:
        import sys
        sys.modules["torch"] = None
        from heterocompute.interop import torch as ht
        for name, error in (("convert", ImportError), ("nothing", AttributeError)):
            try:
                getattr(ht, name)
            except error as problem:
                print(problem)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "interop.torch needs torch: pip install torch" in done.stdout, done.stderr
    assert "has no attribute 'nothing'" in done.stdout


def test_layers_with_a_forward_pass_of_their_own_are_named() -> None:
    class Doubled(torch.nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.conv2d(x, 2 * self.weight, self.bias)

    class Alias(torch.nn.Conv2d):
        pass

    model = torch.nn.Sequential(Doubled(3, 8, 3), torch.nn.ReLU(), Alias(8, 8, 3))
    with pytest.warns(
        UserWarning, match=r"convert: 1 layer left in floats, the first is '0.weight': Doubled has a forward"
    ):
        small = ht.convert(model, "int8")
    assert type(small[0]) is Doubled and isinstance(small[2], ht.PackedConv2d)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ht.convert(model, "int8", exclude="0*")
