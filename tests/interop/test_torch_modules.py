"""PyTorch modules that read a weight without calling its module, masks, norms, and conversion after training."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
from common import bad_argument, reals

import heterocompute as hc

torch = pytest.importorskip("torch")
from torch.nn.utils import parametrizations, prune  # noqa: E402

from heterocompute.interop import torch as ht  # noqa: E402

FMT = "int2-g32"
PADDING = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
HOWS = ["from_linear", "QuantLinear", "parametrize"]


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread: in many small matmuls, synchronizing PyTorch's threads takes longer than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def rounding(model, how):
    """Return a copy in which all linear layers round, including those inside of attention."""
    model = copy.deepcopy(model)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if not isinstance(child, torch.nn.Linear):
                continue
            if how == "parametrize":
                ht.parametrize(child, FMT)
            elif how == "from_linear":
                setattr(parent, name, ht.QuantLinear.from_linear(child, FMT))
            else:
                made = ht.QuantLinear(child.in_features, child.out_features, FMT, child.bias is not None)
                made.load_state_dict(child.state_dict())
                setattr(parent, name, made)
    return model


def rounded(model):
    """Return a copy with plain layers and rounded weights, the expected result of rounding layers."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, torch.nn.Linear):
                part.weight.copy_(ht.fake_quantize(part.weight.detach(), FMT))
    return model


def near(found, wanted):
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4), (found - wanted).abs().max()


@pytest.mark.parametrize("how", ["from_linear", "parametrize"])
@pytest.mark.parametrize(("batch_first", "norm_first"), [(True, False), (True, True), (False, False)])
def test_layers_of_an_encoder_round_on_the_fast_path_too(how, batch_first, norm_first):
    torch.manual_seed(0)
    plain = torch.nn.TransformerEncoderLayer(64, 4, 96, 0.0, batch_first=batch_first, norm_first=norm_first)
    pairs = [(rounding(plain, how), rounded(plain))]
    pairs.append(tuple(torch.nn.TransformerEncoder(one, 2) for one in pairs[0]))
    x = torch.randn(2, 5, 64)
    x, recorded = (x, ~PADDING) if batch_first else (x.transpose(0, 1), ~PADDING.T)
    for found, wanted in pairs:
        for training in (True, False):
            for grad in (True, False):
                found.train(training), wanted.train(training)
                with torch.set_grad_enabled(grad):
                    near(found(x), wanted(x))
                    y, z = found(x, src_key_padding_mask=PADDING), wanted(x, src_key_padding_mask=PADDING)
                    near(y[recorded], z[recorded])


@pytest.mark.parametrize("how", HOWS)
def test_attention_and_decoders_round(how):
    torch.manual_seed(1)
    x, y = torch.randn(2, 5, 64), torch.randn(2, 7, 64)
    for more in ({}, {"kdim": 32, "vdim": 48}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True}):
        plain = torch.nn.MultiheadAttention(64, 4, batch_first=True, **more)
        found, wanted = rounding(plain, how), rounded(plain)
        others = torch.randn(2, 6, more.get("kdim", 64)), torch.randn(2, 6, more.get("vdim", 64))
        for training in (True, False):
            found.train(training), wanted.train(training)
            near(found(x, *others)[0], wanted(x, *others)[0])
            if "kdim" not in more:
                with torch.no_grad():
                    near(found(x, x, x, need_weights=False)[0], wanted(x, x, x, need_weights=False)[0])
    for plain, given in (
        (torch.nn.TransformerDecoderLayer(64, 4, 96, 0.0, batch_first=True), (y, x)),
        (torch.nn.Transformer(64, 4, 1, 1, 96, 0.0, batch_first=True), (x, y)),
    ):
        found, wanted = rounding(plain, how).eval(), rounded(plain).eval()
        with torch.no_grad():
            near(found(*given), wanted(*given))
        near(found(*given), wanted(*given))


def test_projections_of_attention_round():
    torch.manual_seed(1)
    attention, x = torch.nn.MultiheadAttention(64, 4, batch_first=True).eval(), torch.randn(2, 5, 64)
    plain = copy.deepcopy(attention)
    with torch.no_grad():
        plain.in_proj_weight.copy_(ht.fake_quantize(attention.in_proj_weight.detach(), FMT))
    ht.parametrize(attention, FMT, "in_proj_weight")
    near(attention(x, x, x)[0], plain(x, x, x)[0])
    with torch.no_grad():
        near(attention(x, x, x)[0], plain(x, x, x)[0])


def test_attention_keeps_the_layer_its_gradient_and_its_names():
    torch.manual_seed(2)
    plain = torch.nn.MultiheadAttention(64, 4, batch_first=True)
    found, x = rounding(plain, "from_linear"), torch.randn(2, 5, 64)
    wanted = rounded(plain)(x, x, x)[0]
    found(x, x, x)[0].square().sum().backward()
    assert (found.out_proj.weight.grad != 0).any() and set(found.state_dict()) == set(plain.state_dict())
    with pytest.raises(Exception, match="."):
        found(x, x, torch.ones(1, 2))
    assert isinstance(found.out_proj, ht.QuantLinear) and "out_proj" not in found.__dict__
    for again in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        near(again(x, x, x)[0], wanted)
    compiled = torch.compile(found, backend="aot_eager", fullgraph=True)
    near(compiled(x, x, x)[0], wanted)
    near(compiled(x, x, x)[0], wanted)
    near(torch.func.functional_call(found, dict(found.named_parameters()), (x, x, x))[0], wanted)
    found.out_proj = torch.nn.Linear(64, 64)
    plain.out_proj = found.out_proj
    near(found(x, x, x)[0], plain(x, x, x)[0])


def test_threads_share_attention():
    torch.manual_seed(3)
    plain, x, wrong = torch.nn.MultiheadAttention(64, 4, batch_first=True).eval(), torch.randn(2, 5, 64), []
    found, wanted = rounding(plain, "from_linear"), rounded(plain)(x, x, x)[0]

    def run():
        with torch.no_grad():
            wrong.extend(1 for _ in range(50) if not torch.allclose(found(x, x, x)[0], wanted, atol=1e-4))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and "out_proj" not in found.__dict__


def test_a_fused_loss_rounds_its_layer():
    kind = getattr(torch.nn, "LinearCrossEntropyLoss", None)
    if kind is None:
        pytest.skip("this torch has no LinearCrossEntropyLoss")
    torch.manual_seed(4)
    plain = kind(64, 10)
    x, target = torch.randn(5, 64), torch.randint(0, 10, (5,))
    near(rounding(plain, "from_linear")(x, target), rounded(plain)(x, target))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_round_their_flat_weights(kind):
    torch.manual_seed(5)
    layer, plain = (getattr(torch.nn, kind)(32, 32, 2, bidirectional=True) for _ in range(2))
    for name in [name for name, _ in layer.named_parameters() if name.startswith("weight")]:
        ht.parametrize(layer, FMT, name)
    x = torch.randn(5, 2, 32)
    for step in range(2):
        with torch.no_grad():
            for name, own in plain.named_parameters():
                own.copy_(getattr(layer, name))
        near(layer(x)[0], plain(x)[0])
        layer(x)[0].square().sum().backward()
        for own in layer.parameters():
            own.data -= (step + 1) * own.grad


def test_tied_weights_round_where_it_is_said():
    table, head = torch.nn.Embedding(6, 64), torch.nn.Linear(64, 6, bias=False)
    head.weight = table.weight
    found = ht.QuantLinear.from_linear(head, FMT)
    assert found.weight is table.weight
    x = torch.randn(2, 64)
    near(found(x), x @ ht.fake_quantize(table.weight, FMT).T)
    near(table(torch.tensor([1])), table.weight[1:2])


def pruned():
    layer = torch.nn.Linear(64, 8)
    prune.random_unstructured(layer, "weight", 0.5)
    layer.weight = layer.weight.detach()  # so that it can be copied
    return layer


@pytest.mark.parametrize("fmt", ["int4-g32", "int4-g32-asym", "nf4-g64", "cb3"])
def test_pruned_weights_are_rounded_and_stay_pruned(fmt):
    torch.manual_seed(6)
    layer, x = pruned(), torch.randn(3, 64)
    mask, original = layer.weight_mask, layer.weight_orig
    wanted = ht.fake_quantize((original * mask).detach(), fmt) * mask
    answer, bias = torch.nn.functional.linear(x, wanted, layer.bias).detach(), layer.bias.detach().clone()
    assert ht.fake_quantize(original.detach(), fmt)[mask == 0].any()
    linear, other = ht.QuantLinear.from_linear(layer, fmt), ht.parametrize(copy.deepcopy(layer), fmt)
    assert any(one is original for one in linear.parameters())
    assert set(other.state_dict()) == {"bias", "parametrizations.weight.original", "parametrizations.weight.0.mask"}
    for found in (linear, other):
        near(found(x) - found.bias, answer - bias)
        found(x).square().sum().backward()
        torch.optim.SGD(found.parameters(), 0.1).step()
        now = found.rounded(found.weight_orig * mask) if found is linear else found.weight
        assert (now[mask == 0] == 0).all() and (now != wanted).any()
        if fmt == "cb3":
            with bad_argument(ValueError, None, "value", "packed: cb3 rounds a pruned 0 to another value"):
                ht.packed(found)
        else:
            assert np.array_equal(ht.packed(found)["weight"].dequantize(), now.detach().numpy())
            assert set(ht.packed(found)) == {"weight", "bias"}
    later = ht.QuantLinear(64, 8, fmt)
    prune.l1_unstructured(later, "weight", 0.5)
    near(later(x), torch.nn.functional.linear(x, later.rounded(later.weight), later.bias))
    assert (later.rounded(later.weight)[later.weight_mask == 0] == 0).all()


def test_pruned_filters_and_gates_are_rounded():
    for module, name in ((torch.nn.Conv2d(3, 4, 3), "weight"), (torch.nn.LSTM(8, 8), "weight_ih_l0")):
        prune.random_unstructured(module, name, 0.5)
        mask, values = getattr(module, f"{name}_mask"), getattr(module, name).detach()
        ht.parametrize(module, "int4", name)
        axis = (2, 3, 1) if values.ndim == 4 else -1
        assert np.array_equal(getattr(module, name).detach().numpy(), hc.fake_quantize(values, "int4", axis))
        assert (getattr(module, name)[mask == 0] == 0).all()


NORMS = [
    parametrizations.weight_norm,
    parametrizations.spectral_norm,
    parametrizations.orthogonal,
    torch.nn.utils.weight_norm,
    torch.nn.utils.spectral_norm,
]


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: f"{norm.__module__}.{norm.__name__}")
def test_normalized_weights_are_rounded_after_their_norm(norm):
    torch.manual_seed(7)
    layer, x = norm(torch.nn.Linear(64, 64)).eval(), torch.randn(2, 3, 64)
    layer(x)
    wanted = ht.fake_quantize(layer.weight.detach(), FMT)
    found = ht.QuantLinear.from_linear(layer, FMT)
    near(found(x), torch.nn.functional.linear(x, wanted, layer.bias))
    assert set(found.state_dict()) == set(layer.state_dict())
    assert {id(one) for one in found.parameters()} == {id(one) for one in layer.parameters()}
    near(torch.from_numpy(found.packed().dequantize()), wanted)
    attention, plain = (torch.nn.MultiheadAttention(64, 4, batch_first=True) for _ in range(2))
    plain.load_state_dict(attention.state_dict())
    with torch.no_grad():
        plain.out_proj.weight.copy_(wanted), plain.out_proj.bias.copy_(layer.bias)
    attention.out_proj = found
    near(attention(x, x, x)[0], plain(x, x, x)[0])


def test_what_cannot_be_taken_over_is_said():
    own = type("Own", (torch.nn.Linear,), {"forward": lambda self, x: x})
    for call, error, words in (
        (
            lambda: ht.parametrize(torch.nn.utils.weight_norm(torch.nn.Linear(4, 4)), "int4"),
            ValueError,
            "by WeightNorm",
        ),
        (lambda: ht.parametrize(ht.QuantLinear(4, 4, "int4"), "int4"), ValueError, "rounded already"),
        (
            lambda: ht.QuantLinear.from_linear(ht.parametrize(torch.nn.Linear(4, 4), "int4"), "int4"),
            ValueError,
            "already",
        ),
        (lambda: ht.QuantLinear.from_linear(torch.nn.LazyLinear(4), "int4"), ValueError, "has no weight yet"),
        (lambda: ht.QuantLinear.from_linear(own(4, 4), "int4"), TypeError, "type Own, whose forward pass is its own"),
        (lambda: ht.packed([torch.nn.Linear(4, 4)]), TypeError, "packed: module is .*, expected a torch.nn.Module"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_all_that_a_network_computes_with_is_packed():
    torch.manual_seed(8)
    filters = ht.parametrize(torch.nn.Conv2d(3, 4, 3), "int4")
    model = torch.nn.Sequential(
        torch.nn.BatchNorm2d(3), filters, torch.nn.Flatten(), ht.QuantLinear(144, 5, "int4-g16")
    )
    plain = torch.nn.Sequential(
        torch.nn.BatchNorm2d(3), torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    )
    found = ht.packed(model)
    assert list(found["1.weight"].axis) == [2, 3, 1] and found["3.weight"].format == hc.format("int4-g16")
    state = {name: v if torch.is_tensor(v) else torch.from_numpy(v.dequantize()) for name, v in found.items()}
    plain.load_state_dict(state)
    x = torch.randn(2, 3, 8, 8)
    near(model.eval()(x), plain.eval()(x))


def test_rounding_under_inputs_refuses_the_weight_before_rounding():
    """The rounded weight was trained: GPTQ of the unrounded weight would undo the training."""
    x, layer = reals((512, 64), 9), ht.QuantLinear(64, 16, "int2")
    filters = ht.parametrize(torch.nn.Linear(64, 16), "int2")
    h = hc.ptq.Hessian(64)
    h.add(x)

    def run(weights):
        return hc.linear(x, weights["fc.weight"])

    copied = copy.deepcopy(layer)
    for w in (
        layer.weight.detach(),
        layer.state_dict()["weight"].numpy(),
        copied.weight.detach(),
        filters.parametrizations.weight.original.detach(),
    ):
        with bad_argument(ValueError, "w", "value"):
            hc.ptq.gptq(w, h, "int4")
        with bad_argument(ValueError, None, "value", "'fc.weight'"):
            hc.ptq.quantize({"fc.weight": w}, run, "int2")
    q = ht.packed(layer)["weight"]
    assert hc.ptq.gptq(q.dequantize(), h, "int2") == q  # nothing is undone
    left = hc.ptq.quantize({"fc.weight": q}, run, "int2")
    assert left.weights["fc.weight"] is q and not left.table
    plain = torch.nn.Linear(64, 16)
    assert hc.ptq.gptq(plain.weight.detach(), h, "int2").shape == (16, 64)
