"""Calibration and rounding of PyTorch modules with the inputs of all kinds of layers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from common import same_bits

import heterocompute as hc

torch = pytest.importorskip("torch")
from torch.nn.utils import prune  # noqa: E402

from heterocompute.interop import torch as ht  # noqa: E402

nn = torch.nn


def filled(model):
    torch.manual_seed(1)
    for one in model.parameters():
        one.data.normal_()
    return model


def inputs(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def of(x):
    h = hc.ptq.Hessian(x.shape[-1])
    h.add(x.detach().reshape(-1, x.shape[-1]).numpy())
    return h.matrix


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, "same", 2), (3, 2, 1)])
def test_a_convolution_is_given_its_windows(stride, padding, dilation):
    layer, x = nn.Conv2d(3, 4, (3, 2), stride, padding, dilation), inputs(2, 3, 9, 8)
    h = hc.ptq.calibrate(layer, x)["weight"]
    with torch.no_grad():
        y = layer(x) - layer.bias[:, None, None]
    w = layer.weight.detach().permute(0, 2, 3, 1).reshape(4, -1).numpy().astype(np.float64)
    assert h.tokens == y.numel() // 4
    assert np.allclose(np.einsum("ij,jk,ik->i", w, h.matrix, w), y.square().sum((0, 2, 3)).numpy(), rtol=1e-4)


@pytest.mark.parametrize(
    ("layer", "shape", "axes"),
    [
        (lambda: nn.Conv1d(6, 4, 3, padding=1, groups=2), (2, 6, 9), (2, 1)),
        (lambda: nn.Conv2d(6, 6, 3, groups=6, padding_mode="reflect", padding=1), (2, 6, 9, 9), (2, 3, 1)),
        (lambda: nn.Conv3d(2, 4, 2), (2, 2, 5, 4, 3), (2, 3, 4, 1)),
    ],
)
def test_other_convolutions_too(layer, shape, axes):
    layer, x = layer(), inputs(*shape)
    found = hc.ptq.calibrate(layer, x)
    assert found.axes == {"weight": axes}
    energy = hc.ptq.error(layer.weight.detach(), np.zeros(layer.weight.shape, np.float32), found["weight"], axes)
    with torch.no_grad():
        y = layer(x) - layer.bias.reshape(-1, *[1] * (x.dim() - 2))
    assert math.isclose(energy.squared, float(y.square().sum()), rel_tol=1e-4)


def test_attention_is_given_its_inputs():
    model, x = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), inputs(3, 5, 16)
    fast = torch.backends.mha.get_fastpath_enabled()
    model.train()
    found = hc.ptq.calibrate(model, x)
    assert torch.backends.mha.get_fastpath_enabled() == fast and model.training
    assert list(found) == ["self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight"]
    assert np.allclose(found["self_attn.in_proj_weight"].matrix, of(x), rtol=1e-12)  # tokens come in another order
    assert {h.tokens for h in found.values()} == {15}


class Conv1D(nn.Module):
    """Conv1D of transformers, with a weight (inputs, outputs)."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.weight, self.bias = nf, nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], self.nf)


def test_a_weight_of_inputs_by_outputs_is_summed_along_its_first_axis():
    model, x = Conv1D(8, 16), inputs(4, 3, 16)
    found = hc.ptq.calibrate(model, x)
    assert found.axes == {"weight": (0,)} and np.array_equal(found["weight"].matrix, of(x))
    rounded = hc.ptq.quantize(model, found, "int4-g16")
    small = ht.convert(model, rounded)
    assert same_bits(small.weight.dequantize().numpy(), rounded.weights["weight"].dequantize().T)


def test_tied_weights_hear_together_and_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(20, 16), nn.Linear(16, 20, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids):
            return self.head(self.table(ids))

    ids = torch.arange(20)[None]
    found = hc.ptq.quantize(Tied(), ids, "int4-g16")
    assert [row["name"] for row in found.table] == ["table.weight"]
    small = ht.convert(Tied(), found)
    assert small.table.weight is small.head.weight


def test_rounding_helps_on_batches_that_were_held_out():
    mix = inputs(32, 32, seed=3)
    model = filled(nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4)))
    batches = [inputs(64, 32, seed=s) @ mix for s in range(8)]
    found = hc.ptq.quantize(model, batches, {"2": "int3-g16", "*": "int4-g32"})
    assert [(row["name"], row["format"], row["tokens"]) for row in found.table] == [
        ("0.weight", "int4-g32", 384),
        ("2.weight", "int3-g16", 384),
    ]
    assert all(row["held_after"] > row["held_before"] for row in found.table)
    small = ht.convert(model, found)
    assert small[0].packed() == found.weights["0.weight"]
    again = ht.convert(model, {"2": "int3-g16", "*": "int4-g32"}, method="gptq", inputs=batches)
    assert again[0].weight.format == small[0].weight.format
    few = hc.ptq.quantize(model, batches, {"2": "int3-g16", "*": "int4-g32"}, memory=8 * 32 * 32)  # a layer at a time
    assert all(few.weights[name] == found.weights[name] for name in ("0.weight", "2.weight"))
    in_turn = hc.ptq.quantize(model, batches, "int3-g16", sequential=True)
    assert all(row["held_after"] > row["held_before"] for row in in_turn.table)
    plain = hc.ptq.quantize(model, batches, "int3-g16", method="rtn")
    assert [row["before"] for row in plain.table] == [row["after"] for row in plain.table]
    assert plain.weights["0.weight"] == hc.quantize(model[0].weight.detach(), "int3-g16")


def test_a_model_that_was_trained_with_rounding_stays_what_it_computed_with():
    model = nn.Sequential(ht.QuantLinear(16, 8, "int4"), ht.parametrize(nn.Linear(8, 8), "int4"), nn.Linear(8, 4))
    computed, batches = ht.packed(model), inputs(64, 16)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    found = hc.ptq.quantize(model, batches, "int4")
    for name in ("0.weight", "1.weight"):
        assert found.weights[name] == computed[name]
    assert [math.isinf(row["after"]) for row in found.table] == [True, True, False]
    other = hc.ptq.quantize(model, batches, "int3", include="0")  # GPTQ of the rounded values, not of the original ones
    wanted = hc.ptq.gptq(computed["0.weight"].dequantize(), hc.ptq.calibrate(model, batches)["0.weight"], "int3")
    assert other.weights["0.weight"] == wanted
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert "rounded" not in model[0].__dict__


@pytest.mark.parametrize(
    ("fmt", "clip"), [("vsq4-g16-s4", "search"), ("int4-g32", 0.7), ("nvfp4", None), ("q4_k", None)]
)
def test_convert_packs_the_codes_that_were_trained(fmt, clip):
    torch.manual_seed(0)
    linear, conv = ht.QuantLinear(256, 8, fmt, clip=clip), ht.parametrize(nn.Conv2d(16, 8, 3), fmt, clip=clip)
    line = ht.parametrize(nn.Conv1d(32, 8, 4), fmt)
    for layer in (linear, conv, line):
        small = ht.convert(layer, fmt, activations="int8")
        q = ht.packed(layer)["weight"]
        assert small.packed().components.keys() == q.components.keys()
        assert all(np.array_equal(small.packed().components[key], part) for key, part in q.components.items())
        assert str(ht.convert(layer, "int8").packed().format) == "int8"


@pytest.mark.parametrize("fmt", ["int8", "int4-g32", "nf4-g16", "cb3-g16", "q4_0", "mxfp4-ceil", "int8+2:4"])
@pytest.mark.parametrize(("kind", "groups"), [("1d", 1), ("1d", 2), ("2d", 1), ("2d", 2)])
def test_a_transposed_convolution_is_rounded_once(fmt, kind, groups):
    model = filled(nn.Sequential(getattr(nn, f"ConvTranspose{kind}")(32, 4 * groups, 3, groups=groups)))
    ht.parametrize(model[0], fmt)
    x = inputs(2, 32, *[7] * int(kind[0]))
    with torch.no_grad():
        assert torch.allclose(ht.convert(model, fmt)(x), model(x), atol=1e-4)
        weight = model[0].weight
    alone = hc.quantize(weight[: 32 // groups].detach(), fmt, axis=(*range(2, weight.dim()), 0)).dequantize()
    assert fmt.startswith("cb") or np.allclose(alone, weight[: 32 // groups].detach(), atol=1e-6)


def test_studies_and_searches_judge_the_codes_that_were_trained():
    torch.manual_seed(0)
    fmt, x = "vsq4-g16-s4", inputs(8, 64)
    model = nn.Sequential(ht.QuantLinear(64, 32, fmt, clip="search"), nn.ReLU(), nn.Linear(32, 4)).eval()
    with torch.no_grad():
        exact = model[0](x)
    judge = {"error": lambda m: float((m[0](x) - exact).abs().max().detach())}

    def evaluate(m):
        return {name: call(m) for name, call in judge.items()}

    r = hc.study(model, [fmt, "int4"], evaluate, include="0", per_layer=True)
    errors = {row["format"]: row["error"] for row in r.table}
    assert errors[fmt] < 1e-5 < errors["int4"]
    plan = hc.ptq.search(model, [fmt], {"bits": 8}, evaluate)
    assert plan.weights["0.weight"] == ht.packed(model)["0.weight"]
    assert ht.convert(model, plan)[0].packed() == plan.weights["0.weight"]


def test_a_pruned_weight_is_heard_as_it_is_computed():
    layer = nn.Linear(16, 8)
    prune.l1_unstructured(layer, "weight", 0.5)
    x, hooks = inputs(8, 16), dict(layer._forward_pre_hooks)
    found = hc.ptq.quantize(layer, x, "int8")
    assert found.table[0]["tokens"] == 8 and dict(layer._forward_pre_hooks) == hooks
    assert np.abs(found.weights["weight"].dequantize() - layer.weight.detach().numpy()).max() < 0.02


def test_a_turned_copy_of_a_square_weight_is_not_taken_for_the_weight():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 8))

        def forward(self, x):
            return x @ self.weight.t().contiguous() if x.shape[0] > 2 else x @ self.weight.t()

    model, x = Turned(), inputs(4, 8)
    assert not hc.ptq.calibrate(model, x)
    assert hc.ptq.calibrate(model, x[:2]).axes == {"weight": (1,)}


def test_what_nothing_is_multiplied_by_is_left():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(16, 4), nn.Linear(16, 4)

        def forward(self, x):
            return self.used(x)

    found = hc.ptq.quantize(Unused(), inputs(8, 16), "int8")
    assert found.left == ["unused.weight"]
    small = ht.convert(Unused(), "int8", method="gptq", inputs=inputs(8, 16))
    assert isinstance(small.unused, ht.PackedLinear)  # rounded without inputs


def test_other_dtypes_are_heard():
    model, x = nn.Linear(16, 8).bfloat16(), inputs(8, 16).bfloat16()
    assert np.array_equal(hc.ptq.calibrate(model, x)["weight"].matrix, of(x.float()))
    plain = nn.Linear(16, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = hc.ptq.calibrate(plain, x.float())
    assert np.array_equal(found["weight"].matrix, of(x.float()))


class Router(torch.nn.Module):
    """As those of experts in transformers: a class that multiplies by a weight of its own."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 16))

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight)


def test_weights_that_have_no_packed_form_are_not_in_the_way_of_calibration():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), Router())
    small = ht.convert(model, "int4-g16", method="gptq", inputs=inputs(8, 16))
    assert isinstance(small[0], ht.PackedLinear) and type(small[1].weight) is torch.nn.Parameter
    rounded = hc.ptq.quantize(model, inputs(8, 16), "int4-g16")
    with pytest.raises(ValueError, match="'1.weight' is rounded, but cannot be packed: how Router uses weight"):
        ht.convert(model, rounded)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m, x: hc.ptq.calibrate(m.to("meta"), x), "calibrate: '0.weight' of the model is on meta"),
        (
            lambda m, x: hc.ptq.calibrate(m, x, include="3*"),
            "calibrate: pattern '3[*]', which is not a weight or module",
        ),
        (lambda m, x: hc.ptq.calibrate(nn.ReLU(), x), "calibrate: the model has no float weight"),
        (lambda m, x: hc.ptq.quantize(m, x, {"head": "int8"}), "quantize: pattern 'head', which is not a weight"),
        (lambda m, x: hc.ptq.quantize(m, x, "int8", method="best"), "quantize: method is 'best', expected"),
        (
            lambda m, x: hc.ptq.quantize(m, x, "int8", method="rtn", sweeps=1),
            "expected gptq or qronos, with options",
        ),
        (lambda m, x: hc.ptq.quantize(m, x, "bf16"), "quantize: '0.weight': "),
        (
            lambda m, x: hc.ptq.quantize(m, hc.ptq.calibrate(m, x), "int8", sequential=True),
            "quantize: sequential runs the model again: pass the batches",
        ),
        (lambda m, x: ht.convert(m, "int4", method="gptq"), "convert: inputs is missing"),
        (lambda m, x: ht.convert(m, "int4", calibration=x), "there is no argument calibration, expected inputs"),
        (lambda m, x: ht.convert(m, "int4", method="best"), "convert: method is 'best'"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence) as problem:
        call(nn.Sequential(nn.Linear(16, 4)), inputs(4, 16))
    assert "\n" not in str(problem.value)
