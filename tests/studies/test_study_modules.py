"""Studies, searches and pruning of PyTorch modules."""

from __future__ import annotations

import pytest

import heterocompute as hc

torch = pytest.importorskip("torch")
from heterocompute.interop import torch as ht  # noqa: E402

nn = torch.nn
X = torch.randn(32, 16, generator=torch.Generator().manual_seed(0))


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def loss_of(net):
    with torch.no_grad():
        exact = net(X)

    def loss(module):
        with torch.no_grad():
            return {"mse": (module(X) - exact).square().mean()}

    return loss


def test_evaluate_gets_a_converted_copy():
    net, seen = model(), []
    before = {name: value.clone() for name, value in net.state_dict().items()}
    loss = loss_of(net)

    def evaluate(module):
        seen.append(module)
        return loss(module)

    r = hc.study(net, ["int4", {"0.weight": "int8"}], evaluate, activations=["int8"], per_layer=True, exclude="4")
    rows = {(row["format"], row["activations"]): row["mse"] for row in r.table}
    assert rows["fp32", None] == 0 and rows["fp32", "int8"] > 0
    assert rows["int4", None] == float(loss(ht.convert(net, "int4", exclude="4"))["mse"])
    assert rows["int4", "int8"] == float(loss(ht.convert(net, "int4", activations="int8", exclude="4"))["mse"])
    assert {type(one[0]).__name__ for one in seen} == {"Linear", "PackedLinear"}
    assert all(one[4].weight is net[4].weight for one in seen)  # shared, not copied
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not any(one._forward_pre_hooks for one in net.modules())
    alone = {row["name"]: row["mse"] for row in r.alone if row["format"] == "int4"}
    assert alone["2.weight"] == float(loss(ht.convert(net, {"2": "int4"}))["mse"])


def test_methods_are_judged_under_what_the_layers_are_given():
    net = model()
    hs = hc.ptq.calibrate(net, [X] * 4)
    r = hc.study(net, ["int3-g16"], loss_of(net), methods=["rtn", "gptq"], hessians=hs)
    rtn, gptq = r.table[1:]
    assert gptq["output_db"] > rtn["output_db"] and gptq["mse"] < rtn["mse"]


def test_a_plan_is_what_convert_takes():
    net = model()
    loss = loss_of(net)
    formats = ["int2-g16", "int4-g16", "int8"]
    plan = hc.ptq.search(net, formats, {"bits": 7.0}, loss, inputs=[X])
    small = ht.convert(net, plan)
    assert float(loss(small)["mse"]) == plan.measured
    assert {str(one.weight.format) for one in (small[0], small[2], small[4])} == set(plan.recipe.values())
    assert hc.ptq.search(net, formats, {"bits": 7.0}, loss, inputs=hc.ptq.calibrate(net, X)).recipe == plan.recipe
    assert set(hc.ptq.search(net, formats, {"bits": 7.0}, exclude="0").recipe) == {"2.weight", "4.weight"}


def test_pruned_copies_are_judged():
    net = model()
    r = hc.study_density(net, ["50%", "2:4"], loss_of(net), exclude="0")
    assert [row["pattern"] for row in r.table] == [None, "50%", "2:4"]
    assert r.table[1]["mse"] > 0 and abs(r.table[2]["density"] - 0.5) < 0.01


def test_convolutions_are_rounded_as_packed_ones_are():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, groups=1), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=4), nn.Conv2d(8, 4, 1))
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        exact = net(x)
        r = hc.study(net, ["int8"], lambda m: (m(x) - exact).square().mean(), activations="int8")
        assert 0 < r.table[1]["evaluate"] < r.table[3]["evaluate"] < 1e-3  # activations alone, and with weights
        assert r.table[3]["evaluate"] == float((ht.convert(net, "int8", activations="int8")(x) - exact).square().mean())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m: hc.study(m, ["int4"], len, emulate="hmma"), "study: emulate does not apply to a torch.nn.Module"),
        (lambda m: hc.study(m, ["int4"], len, axis=0), "study: axis does not apply to a torch.nn.Module"),
        (lambda m: hc.study(m, ["int4"], len, retrain=True), "study: retrain does not apply to a torch.nn.Module"),
        (lambda m: hc.study(m.to("meta"), ["int4"]), "study: '0.weight' of the model is on meta"),
        (lambda m: hc.study(nn.LSTM(4, 4), ["int4"]), "study: the model has no layer that can be packed"),
        (lambda m: hc.study(m, ["int4"], exclude="*head"), "study: pattern '[*]head', which is not a weight or module"),
        (lambda m: hc.study(m, ["int4"], 7), "study: evaluate is of type int"),
        (
            lambda m: hc.study(m, ["int4"], lambda n: torch.no_grad()(m[0].weight.mul_)(2).sum()),
            "evaluate changed the parameter",
        ),
        (lambda m: hc.study_density(m, ["2:4"]), "study_density: weights alone have nothing that judges them"),
        (lambda m: hc.ptq.search(m, ["int4"], {"bits": 5}, hessians={}), "search: hessians is for weights"),
        (lambda m: hc.ptq.search({}, ["int4"], {"bits": 5}, inputs=[]), "search: inputs are for a torch"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence) as problem:
        call(model())
    assert "\n" not in str(problem.value)
