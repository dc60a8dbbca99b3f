"""`ht.convert` with inputs: moved scales, corrected biases, methods, reports, and the smallest good recipe."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc

torch = pytest.importorskip("torch")
ht = pytest.importorskip("heterocompute.interop.torch")
learned = pytest.importorskip("heterocompute.interop.torch.learning.codes")
from decibels import output_db  # noqa: E402

D = 32


class Block(torch.nn.Module):  # type: ignore[misc]
    """A residual block with its norm in front, as in a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(D)
        self.gate, self.up = torch.nn.Linear(D, D), torch.nn.Linear(D, D)
        self.down = torch.nn.Linear(D, D, bias=False)

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        return x + self.down(torch.relu(self.gate(y)) * self.up(y))


def network(outliers: float = 30.0) -> tuple[Any, list[Any], Any]:
    """Return a model whose norms have four large channels, batches, and other inputs."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(Block(), Block(), torch.nn.LayerNorm(D), torch.nn.Linear(D, 10))
    with torch.no_grad():
        for block in model[:2]:
            block.norm.weight[:4] *= outliers
    return model, [torch.randn(128, D) for _ in range(4)], torch.randn(256, D)


def test_smoothing_restores_the_dB_that_outlier_channels_cost() -> None:
    model, batches, x = network()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    plain = output_db(model, ht.convert(model, "int8", activations="int8"), x)
    for smooth in (0.5, "search"):
        small = ht.convert(model, "int8", activations="int8", inputs=batches, smooth=smooth)
        assert output_db(model, small, x) > plain + 3
        rows = {row["name"]: row for row in ht.report(small).table}
        assert rows["0.gate.weight"]["alpha"] == rows["0.up.weight"]["alpha"] > 0
        assert (
            rows["0.down.weight"]["alpha"] is None
            and "not the output of a norm or linear layer" in rows["0.down.weight"]["left"]
        )
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])


def test_identity_is_a_candidate_of_smoothing() -> None:
    model, batches, _ = network(outliers=1.0)
    with torch.no_grad():
        for one in model.modules():
            if isinstance(one, torch.nn.Linear):
                one.weight.copy_(torch.sign(one.weight))
    small = ht.convert(model, "int4", inputs=batches, smooth="search")  # weights of 1 and -1 have no error
    assert all(row["alpha"] in (0.0, None) for row in ht.report(small).table)


def test_scales_pass_relu_and_a_tensor_that_others_read_keeps_its_scale() -> None:
    torch.manual_seed(1)
    chain = torch.nn.Sequential(torch.nn.Linear(D, D), torch.nn.ReLU(), torch.nn.Linear(D, 8))
    with torch.no_grad():
        chain[0].weight[:3] *= 40
    x = torch.randn(512, D)
    small = ht.convert(chain, "int8", activations="int8", inputs=x, smooth="search")
    assert ht.report(small).table[1]["alpha"] > 0
    assert output_db(chain, small, x) > output_db(chain, ht.convert(chain, "int8", activations="int8"), x) + 3

    class After(Block):
        def forward(self, x: Any) -> Any:
            y = self.norm(x)
            return y + self.down(torch.relu(self.gate(y)) * self.up(y))  # y is read by the addition, too

    net = torch.nn.Sequential(After())
    with torch.no_grad():
        net[0].norm.weight[:4] *= 30
    with pytest.raises(ValueError, match="convert: smooth moves no scales: 0.down.weight"):
        ht.convert(net, "int8", activations="int8", inputs=x, smooth="search")
    net = torch.nn.Sequential(torch.nn.Linear(D, D), torch.nn.GELU(), torch.nn.Linear(D, D))
    words = "moves no scales: 0.weight: its input is not the output .*; 2.weight: the layer before it is a GELU"
    with pytest.raises(ValueError, match=words):
        ht.convert(net, "int8", activations="int8", inputs=x, smooth="search")


def test_every_method_of_inputs_beats_rounding_to_nearest() -> None:
    model, batches, x = network(outliers=4.0)
    found = {}
    for method in ("rtn", "search", "awq", "gptq", "qronos"):
        small = ht.convert(model, "int3-g16", inputs=batches, method=method)
        found[method] = output_db(model, small, x)
        assert [row["format"] for row in ht.report(small).table] == ["int3-g16"] * 7
    assert min(found, key=found.__getitem__) == "rtn" and max(found, key=found.__getitem__) == "qronos"
    plain = ht.convert(model, "int3-g16")
    assert plain[3].weight.array() == ht.convert(model, "int3-g16", inputs=batches)[3].weight.array()
    clipped = ht.convert(model, "int3-g16", clip="search")
    assert clipped[3].weight.array() == ht.convert(model, "int3-g16", method="search")[3].weight.array()


def test_biases_restore_the_mean_of_outputs() -> None:
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(128, 5))
    x = torch.randn(64, 3, 6, 6) + 2
    small = ht.convert(model, "int3-g9", inputs=x, correct_bias=True, include="0")
    with torch.no_grad():
        means = [one[0](x).mean(dim=(0, 2, 3)) for one in (model, small, ht.convert(model, "int3-g9", include="0"))]
    assert (means[1] - means[0]).abs().max() < 1e-4 < (means[2] - means[0]).abs().max()
    assert [row["bias"] for row in ht.report(small).table] == [True]


def test_in_place_conversion_moves_scales_of_the_model_itself() -> None:
    model, batches, x = network()
    wanted = ht.convert(model, "int8", activations="int8", inputs=batches, smooth=0.5)(x)
    same = ht.convert(model, "int8", activations="int8", inputs=batches, smooth=0.5, inplace=True)
    assert same is model and torch.equal(model(x), wanted)


@pytest.mark.parametrize("at_least", [0.5, 0.97, 0.995, 0.9999])
def test_the_gate_is_the_exhaustive_search(at_least: float) -> None:
    model, batches, x = network(outliers=2.0)
    with torch.no_grad():
        exact = model(x)

    def cosine(small: Any) -> Any:
        with torch.no_grad():
            return torch.nn.functional.cosine_similarity(small(x), exact).mean()

    ladder = ["int8", "int2-g16", ("int3-g16", "gptq"), "int4-g16", ("int4-g16", "qronos"), "int6-g16"]
    small, gate = ht.convert(model, ladder, accept=cosine, at_least=at_least, inputs=batches)
    scores = {}
    for step in ladder:
        fmt, method = step if isinstance(step, tuple) else (step, "rtn")
        one = ht.convert(model, fmt, method=method, inputs=batches)
        if float(cosine(one)) >= at_least:
            scores[fmt if method == "rtn" else f"{fmt} / {method}"] = sum(t.numel() * t.element_size() for t in (
                *one.parameters(), *one.buffers()))  # fmt: skip
    assert gate.passed and scores[gate.recipe] == min(scores.values())
    assert gate.evaluations <= 5 and gate.recipe in str(gate) and gate.score == float(cosine(small))


def test_the_gate_records_inputs_only_for_methods_that_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batches, _ = network(outliers=2.0)
    conversion = importlib.import_module("heterocompute.interop.torch.conversion")
    rounded, calls = conversion.rounded_network, list[str]()

    def counted(*args: Any, method: str, **options: Any) -> Any:
        calls.append(method)
        return rounded(*args, method=method, **options)

    monkeypatch.setattr(conversion, "rounded_network", counted)
    ladder = ["int2-g16", ("int3-g16", "search"), ("int4-g16", "gptq"), "int8"]
    small, gate = ht.convert(model, ladder, accept=lambda one: 1.0, at_least=0.5, inputs=batches)
    assert gate.passed and set(calls) <= {"gptq"}
    assert torch.equal(small[0].gate.weight.dequantize(), ht.convert(model, "int2-g16")[0].gate.weight.dequantize())
    with pytest.raises(ValueError, match="with accept=, a format whose method reads inputs"):
        ht.report(small)
    calls.clear()
    ht.convert(model, ["int2-g16", "int8"], accept=lambda one: 1.0, at_least=0.5, inputs=batches, mix=True)
    assert calls  # the order of a mixture is that of the errors of outputs


@pytest.mark.parametrize("format", ["int4+had", {"*": "int4+had"}])
def test_rotated_formats_of_quantize_are_refused_in_its_name(format: Any) -> None:
    with pytest.raises(
        ValueError, match=r"quantize: format is 'int4\+had', which rotates .* convert of PyTorch modules"
    ):
        hc.ptq.quantize(torch.nn.Linear(64, 8), torch.randn(32, 64), format)


@pytest.mark.parametrize("ladder", [["int2-g16", "int8"], [("int2-g16", "gptq")]])
def test_a_mixture_of_two_recipes_is_good_enough(ladder: Any) -> None:
    model, batches, x = network(outliers=2.0)
    with torch.no_grad():
        exact = model(x)

    def cosine(small: Any) -> Any:
        with torch.no_grad():
            return torch.nn.functional.cosine_similarity(small(x), exact).mean()

    options = {"accept": cosine, "at_least": 0.99, "inputs": batches}
    alone, first = ht.convert(model, ladder, **options)
    small, gate = ht.convert(model, ladder, mix=True, **options)
    size, before = (sum(t.numel() * t.element_size() for t in (*m.parameters(), *m.buffers())) for m in (small, alone))
    assert gate.passed and gate.score == float(cosine(small)) >= 0.99 and size < before
    assert gate.evaluations > first.evaluations and len({*gate.layers.values()}) == 2
    row = next(row for row in gate.table if row["recipe"] == gate.recipe)
    assert row["bytes"] == size and row["ms"] > 0
    for steps, bad in ((ladder, {"smooth": 0.5}), (ladder, {"correct_bias": True}), ([("int8", "awq")], {})):
        with pytest.raises(ValueError, match="convert: mix puts layers of two models together"):
            ht.convert(model, steps, mix=True, **options, **bad)
    with pytest.raises(ValueError, match="convert: mix is for a ladder"):
        ht.convert(model, "int8", mix=True)


def test_without_an_accepted_recipe_the_model_itself_is_returned() -> None:
    model, _, _ = network()
    small, gate = ht.convert(model, ["int8", "int4"], accept=lambda net: 0.0, at_least=1)
    assert small is model and gate.recipe is None and not gate.passed and "the float weights remain" in gate.reason


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": "qronos"}, "convert: inputs is missing, expected the batches for method='qronos'"),
        ({"smooth": 0.5}, "convert: inputs is missing, expected the batches for smooth"),
        ({"correct_bias": True}, "convert: inputs is missing"),
        ({"smooth": 2.0, "inputs": np.ones((4, D), np.float32)}, "convert: smooth is 2.0, expected 'search' or 0 to 1"),
        ({"smooth": 0.5, "method": "awq", "inputs": 1}, "smooth and method='awq' both move scales"),
        ({"clip": 0.9}, "convert: clip is 0.9"),
        ({"accept": len}, "convert: at_least is missing"),
        ({"at_least": 0.9}, "convert: accept is None"),
        ({"accept": len, "at_least": 1}, "convert: ladder is 'int4'"),
        ({"evaluations": 3}, "convert: evaluations is for a ladder"),
        ({"inplace": 3.5, "unknown": 1}, "convert: there is no argument unknown"),
    ],
)
def test_bad_input_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        ht.convert(network()[0], "int4", **options)
    with pytest.raises(ValueError, match="report: model was not converted with inputs="):
        ht.report(network()[0])


def test_calibrated_inputs_do_not_serve_methods_that_run_the_model() -> None:
    model, batches, _ = network()
    heard = hc.ptq.calibrate(model, batches)
    with pytest.raises(ValueError, match="inputs is what calibrate returned, but method='qronos' runs the model"):
        ht.convert(model, "int4", method="qronos", inputs=heard)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("method", ["rtn", "search", "gptq", "qronos", "awq", "learned"])
def test_few_inputs_and_none(method: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    x, steps = torch.randn(16, 16), {"steps": 2} if method == "learned" else {}
    batches = [x[:8], x[8:]]

    def converted(inputs: Any) -> Any:
        return ht.convert(model, "int4-g8", method=method, inputs=inputs, **steps)

    for inputs in (batches[0][:0], [batches[0][:1]], [0 * batches[0], 0 * batches[0]], lambda: iter([x[:2], x[2:4]])):
        with torch.no_grad():
            assert bool(converted(inputs)(x).isfinite().all())
    with pytest.raises(ValueError, match="is empty, expected one batch or more"):
        converted([])
    with pytest.raises(ValueError, match=r"the model refuses batch \d \(float32 5x3\)"):
        converted([batches[0], torch.zeros(5, 3)])
    with pytest.raises(ValueError, match=r"'.*weight': Hessian: x has nan at index \(0, 0\)"):
        converted([float("nan") * batches[0]])
    if method in ("qronos", "awq", "learned"):
        with pytest.raises(ValueError, match="is an iterator, which can be read once, but several passes are needed"):
            converted(iter(batches))
    if method == "qronos":
        with pytest.raises(ValueError, match="quantize: inputs is an iterator"):
            converted(iter(batches))


@pytest.mark.parametrize("method", ["gptq", "qronos"])
def test_shrinkage_is_that_of_the_method(method: str) -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(32, 8), torch.randn(40, 32)
    small, plain = (ht.convert(model, "int3", method=method, inputs=x, shrinkage=share) for share in (0.3, 0))
    h = hc.ptq.Hessian(32)
    h.add(x.numpy(), x.numpy()) if method == "qronos" else h.add(x.numpy())
    wanted = getattr(hc.ptq, method)(model.weight.detach().numpy(), h, "int3", shrinkage=0.3)
    assert small.weight.array() == wanted and plain.weight.array() != wanted
    ladder: list[Any] = ["int8", ("int3", method)]
    chosen, gate = ht.convert(model, ladder, accept=lambda one: 1.0, at_least=1, inputs=x, shrinkage=0.3)
    assert gate.passed and chosen.weight.array() == wanted


def test_shrinkage_without_a_calibrated_method_is_refused() -> None:
    model, x = torch.nn.Linear(32, 8), torch.randn(40, 32)
    for options, words in (
        ({"shrinkage": 0.1}, "shrinkage is for gptq, qronos or learned"),
        ({"shrinkage": -1.0, "method": "gptq"}, "shrinkage is -1.0, expected a finite number, 0 or more"),
        ({"shrinkage": "x", "method": "gptq"}, "shrinkage is 'x', expected a number"),
    ):
        with pytest.raises(hc.ArgumentError, match=words):
            ht.convert(model, "int4", inputs=x, **options)


def test_learned_rounding_is_better_than_its_start_and_the_same_in_each_run() -> None:
    model, batches, x = network(outliers=4.0)
    options = {"inputs": batches, "activations": "int8"}
    start = ht.convert(model, "int3-g16", method="gptq", **{**options, "inputs": batches[:3]})
    small = ht.convert(model, "int3-g16", method="learned", steps=60, **options)
    assert output_db(model, small, x) > output_db(model, start, x) + 1.5
    again = ht.convert(model, "int3-g16", method="learned", steps=60, **options)
    state, other = small.state_dict(), again.state_dict()
    assert [*state] == [*other] and all(torch.equal(state[name], other[name]) for name in state)
    assert not torch.equal(state["0.gate.weight.codes"], start.state_dict()["0.gate.weight.codes"])
    assert len(ht.report(small).table) == 7


def test_learned_rounding_that_is_not_better_is_the_start() -> None:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(16, 8))
    with torch.no_grad():
        model[0].weight.copy_(torch.randint(-7, 8, (8, 16)).float())  # exact in int4
        model[0].weight[:, 0] = 7
    x = torch.randn(64, 16)
    small = ht.convert(model, "int4", method="learned", steps=3, inputs=x)
    assert torch.equal(small[0].weight.dequantize(), model[0].weight)
    for bad, sentence in (({"steps": -1}, "convert: steps is -1"), ({"inplace": True}, "method='learned' compares")):
        with pytest.raises(ValueError, match=sentence):
            ht.convert(model, "int4", method="learned", inputs=x, **bad)
    with pytest.raises(ValueError, match="convert: seed is for method='learned', method is 'gptq'"):
        ht.convert(model, "int4", method="gptq", inputs=x, seed=1)


@pytest.mark.parametrize("fmt", ["nf4-g16", "log4-2-g16", "vsq4-g16-s4", "mxfp4", "cb3-g16", "int8+2:4", "fp8_e5m2"])
def test_learned_rounding_of_any_format_with_codes(fmt: str) -> None:
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 8))
    batches = [torch.randn(16, 2, 4, 4) for _ in range(4)]
    recipe = {"3": fmt, "0": "int4"}
    start = ht.convert(model, recipe, method="gptq", inputs=batches[:3])
    small = ht.convert(model, recipe, method="learned", steps=12, inputs=batches)
    assert output_db(model, small, batches[3]) >= output_db(model, start, batches[3])
    if fmt == "int8+2:4":
        zeros = [one[3].weight.dequantize() == 0 for one in (small, start)]
        assert (zeros[0] | ~zeros[1]).all()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (torch.nn.ConvTranspose2d(6, 8, 3, stride=2, padding=1, output_padding=1), (4, 6, 5, 5)),
        (torch.nn.ConvTranspose1d(8, 6, 4, stride=2, padding=4, dilation=2, groups=2), (4, 8, 12)),
        (torch.nn.ConvTranspose3d(4, 4, 2, stride=2), (2, 4, 3, 3, 3)),
    ],
)
@pytest.mark.parametrize("method", ["gptq", "qronos"])
def test_transposed_convolutions_are_rounded_under_their_inputs(
    layer: Any, shape: tuple[int, ...], method: str
) -> None:
    torch.manual_seed(4)
    layer.reset_parameters()
    mix = torch.randn(shape[1], shape[1])
    batches = [torch.einsum("bc...,cd->bd...", torch.randn(shape), mix) for _ in range(4)]
    model = torch.nn.Sequential(layer, torch.nn.ReLU(), type(layer)(layer.out_channels, 4, 2))
    plain, small = (ht.convert(model, "int3", method=one, inputs=batches) for one in ("search", method))
    x = batches[0]
    assert output_db(model, small, x) > output_db(model, plain, x) + 0.3
    rows = {row["name"]: row for row in ht.report(small).table}
    assert [*rows] == ["0.weight", "2.weight"] and all(row["after"] > row["before"] + 1 for row in rows.values())
    with torch.no_grad():  # the report states the error of the outputs
        exact = model[0](x) if layer.bias is None else model[0](x) - layer.bias.reshape(1, -1, *[1] * (len(shape) - 2))
        only = ht.report(ht.convert(model, "int3", method="gptq", inputs=[x], include="0")).table[0]
        small = ht.convert(model, "int3", method="gptq", inputs=[x], include="0")
        lost = (small[0](x) - model[0](x)).square().sum()
    assert abs(only["after"] - float(10 * torch.log10(exact.square().sum() / lost))) < 0.05


class Experts(torch.nn.Module):  # type: ignore[misc]
    """Experts as in transformers: matrices in one tensor, of which a configuration says how they are multiplied."""

    is_transposed = False

    def __init__(self) -> None:
        super().__init__()
        self.up_proj = torch.nn.Parameter(torch.randn(4, 24, D) / 6)
        self.config = type("Config", (), {"_experts_implementation": "grouped_mm"})()

    def forward(self, x: Any) -> Any:
        assert self.config._experts_implementation == "eager"
        chosen = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()  # the last expert is never used
        y = torch.zeros(len(x), 24)
        for i in chosen.unique():
            y[chosen == i] = torch.nn.functional.linear(x[chosen == i], self.up_proj[i])
        return y


@pytest.mark.parametrize("method", ["gptq", "qronos"])
def test_each_expert_is_rounded_under_its_inputs(method: str) -> None:
    torch.manual_seed(6)
    model, mix = torch.nn.Sequential(Experts()), torch.randn(D, D)
    before = model[0].config
    batches = [torch.randn(200, D) @ mix for _ in range(3)]
    plain, small = (ht.convert(model, "int3-g16", method=one, inputs=batches[:2]) for one in ("search", method))
    assert model[0].config is before and before._experts_implementation == "grouped_mm"
    (row,) = ht.report(small).table
    assert row["name"] == "0.up_proj" and row["after"] > row["before"] + 2
    model[0].config._experts_implementation = "eager"
    assert output_db(model, small, batches[2]) > output_db(model, plain, batches[2]) + 2
    alone = hc.ptq.Hessian(D)
    for x in batches[:2]:
        alone.add(x[(x[:, 0] > 0) != (x[:, 1] > 0)].numpy())
    one = hc.ptq.gptq(model[0].up_proj[1].detach().numpy(), alone, "int3-g16")
    if method == "gptq":
        assert np.array_equal(small[0].up_proj.array()[1].dequantize(), one.dequantize())


def test_learned_rounding_knows_the_scales_of_images_and_inputs_by_name() -> None:
    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(36, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.b(input=self.a(input=x)[..., :3, :3].flatten(1))
            return found

    torch.manual_seed(0)
    model, batches = Named().eval(), [torch.randn(4, 3, 8, 8) for _ in range(8)]
    small = ht.convert(model, "int4", activations="int4", method="learned", steps=0, inputs=batches)
    wide, hooks = learned._training_copy(model, small)
    for name in ("a", "b"):
        wide.get_submodule(name).weight.data = small.get_submodule(name).weight.dequantize()
    torch.testing.assert_close(wide(batches[0]), small(batches[0]), rtol=1e-5, atol=1e-5)


def test_learned_rounding_needs_floats() -> None:
    with pytest.raises(ValueError, match="but the model returns no floats"):
        ht.convert(Last(), "int4", method="learned", inputs=[torch.randn(4, 8)] * 5)


class Last(torch.nn.Module):
    """A linear layer, and the number of its largest output."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.a(x).argmax(-1)
        return found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_biases_of_models_in_other_floats_are_corrected(dtype: Any) -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(16, 8).to(dtype), torch.randn(64, 16).to(dtype) + 1
    small = ht.convert(model, "int2-g8", inputs=x, correct_bias=True)
    plain = ht.convert(model, "int2-g8")
    lost = [(one(x) - model(x)).double().mean(0).square().sum() for one in (small, plain)]
    assert lost[0] < lost[1] / 4


@pytest.mark.parametrize("mix", [False, True])
def test_an_interrupted_gate_repeats_no_score(mix: bool, tmp_path: Path) -> None:
    model, batches, x = network(outliers=2.0)
    keep, calls = tmp_path / "gate.jsonl", []
    with torch.no_grad():
        exact = model(x)

    def cosine(small: Any) -> Any:
        with torch.no_grad():
            return torch.nn.functional.cosine_similarity(small(x), exact).mean()

    class Judge:
        def __init__(self, stop: int = 0) -> None:
            self._stop = stop

        def __call__(self, small: Any) -> Any:
            calls.append(1)
            if len(calls) == self._stop:
                raise KeyboardInterrupt
            return cosine(small)

    def gate(judge: Judge, keep: Path | None = keep) -> Any:
        ladder = ["int8", "int2-g16", ("int3-g16", "gptq"), "int4-g16", "int6-g16"]
        return ht.convert(model, ladder, accept=judge, at_least=0.97, inputs=batches, mix=mix, keep=keep)

    with pytest.raises(KeyboardInterrupt):
        gate(Judge(3))
    assert keep.read_text().count("\n") == 3  # the head, and two scores
    calls.clear()
    small, found = gate(Judge())
    assert len(calls) == found.evaluations - 2
    calls.clear()
    again, same = gate(Judge())
    assert not calls and same.table == found.table
    plain, expected = gate(Judge(), None)
    for one, other in ((found, expected), (same, expected)):
        rows = [[{**row, "ms": None} for row in some.table] for some in (one, other)]
        assert rows[0] == rows[1] and (one.recipe, one.score, one.layers) == (other.recipe, other.score, other.layers)
    for one in (small, again):
        assert torch.equal(one(x), plain(x))
    with pytest.raises(ValueError, match=r"^convert: keep is for a ladder with accept=$"):
        ht.convert(model, "int8", keep=keep)
