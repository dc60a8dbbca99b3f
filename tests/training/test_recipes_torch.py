"""Training of torch models in recipes: values, resuming, compiling, loss scales, optimizers, watching."""

from __future__ import annotations

import copy
import dataclasses
import io
from typing import Any

import numpy as np
import pytest

import heterocompute as hc

torch = pytest.importorskip("torch")
from torch.utils.checkpoint import checkpoint  # noqa: E402

from heterocompute.interop import torch as ht  # noqa: E402
from heterocompute.interop.torch.recipes.model import states_of  # noqa: E402

Recipe = hc.training.Recipe
NAMES = tuple(hc.training.recipes())


def padded(name: str, **changes: Any) -> Recipe:
    return dataclasses.replace(hc.training.recipe(name), pad=True, **changes)


def model(seed: int = 0, sizes: tuple[int, ...] = (64, 32, 16)) -> Any:
    torch.manual_seed(seed)
    layers: list[Any] = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def batch(seed: int, rows: int = 32, columns: int = 64) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32))


def bits(values: Any) -> list[bytes]:
    return [value.detach().numpy().tobytes() for value in values]


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_has_the_values_of_linear_step(name: str) -> None:
    random = np.random.default_rng(3)
    x, w, g = (random.standard_normal(shape).astype(np.float32) for shape in ((32, 64), (32, 64), (32, 32)))
    expected = (
        hc.training.linear_step(x, w, g, name)
        if name != "deepseek-fp8"
        else hc.training.linear_step(x, w, g, padded(name))
    )
    layer = torch.nn.Linear(64, 32, bias=False)
    layer.weight.data = torch.from_numpy(w)
    net = ht.train_in(layer, padded(name))
    given = torch.from_numpy(x).requires_grad_()
    y = net(given)
    y.backward(torch.from_numpy(g))
    for found, wanted in zip((y, given.grad, layer.weight.grad), expected, strict=True):
        np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=0, atol=2e-5 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("name", ["bf16", "fp8-delayed", "mxfp8"])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_are_matmuls_of_patches(name: str, groups: int) -> None:
    torch.manual_seed(1)
    conv = torch.nn.Conv2d(8, 64, 3, 2, 1, groups=groups, bias=False)
    linear = torch.nn.Linear(72 // groups, 64 // groups, bias=False)
    x, g = torch.randn(2, 8, 9, 7, requires_grad=True), torch.randn(2, 64, 5, 4)
    plain = ht.train_in(copy.deepcopy(conv), padded(name))
    y = plain(x)
    y.backward(g)
    rows = torch.nn.functional.unfold(x.detach(), 3, 1, 1, 2).transpose(1, 2).reshape(-1, 72)
    for index in range(groups):
        linear = torch.nn.Linear(72 // groups, 64 // groups, bias=False)
        linear.weight.data = conv.weight.data[index * 64 // groups :][: 64 // groups].flatten(1)
        matrix = ht.train_in(linear, padded(name))
        each = 72 // groups
        part = rows[:, index * each : (index + 1) * each].contiguous().requires_grad_()
        slope = g[:, index * 64 // groups :][:, : 64 // groups].permute(0, 2, 3, 1).reshape(-1, 64 // groups)
        z = matrix(part)
        z.backward(slope)
        mine = y[:, index * 64 // groups :][:, : 64 // groups].permute(0, 2, 3, 1).reshape(-1, 64 // groups)
        torch.testing.assert_close(mine, z, rtol=1e-4, atol=1e-4)
        grads = conv_weight_grad(plain, index, groups)
        torch.testing.assert_close(grads, linear.weight.grad, rtol=1e-3, atol=1e-2)


def conv_weight_grad(plain: Any, index: int, groups: int) -> Any:
    return plain.weight.grad[index * 64 // groups :][: 64 // groups].flatten(1)


@pytest.mark.parametrize("name", ["fp8-delayed", "nvfp4", "sr-bf16", "adam8bit", "fp16-loss-scale"])
def test_resuming_gives_equal_bits(name: str) -> None:
    def make() -> tuple[Any, Any]:
        net = ht.train_in(model(), padded(name))
        return net, ht.optimizer_in(torch.optim.AdamW(net.parameters(), lr=1e-2), padded(name))

    def steps(net: Any, opt: Any, first: int, last: int) -> None:
        for step in range(first, last):
            opt.zero_grad()
            opt.scale(net(batch(step)).square().mean()).backward()
            opt.step()

    net, opt = make()
    steps(net, opt, 0, 6)
    other, resumed = make()
    steps(other, resumed, 0, 3)
    file = io.BytesIO()
    torch.save({"net": other.state_dict(), "opt": resumed.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    torch.manual_seed(77)
    third, last = make()
    third.load_state_dict(saved["net"])
    last.load_state_dict(saved["opt"])
    steps(third, last, 3, 6)
    assert bits(third.parameters()) == bits(net.parameters())
    assert bits(other.parameters()) != bits(net.parameters())


@pytest.mark.parametrize("name", ["fp8-delayed", "nvfp4"])
def test_checkpointing_changes_no_bit(name: str) -> None:
    class Net(torch.nn.Module):
        def __init__(self, recomputes: bool) -> None:
            super().__init__()
            self.body, self.recomputes = model(), recomputes

        def forward(self, x: Any) -> Any:
            return checkpoint(self.body, x, use_reentrant=False) if self.recomputes else self.body(x)

    found = []
    for recomputes in (False, True):
        net = ht.train_in(Net(recomputes), padded(name))
        for step in range(3):
            net(batch(step)).square().mean().backward()
        found.append(bits([p.grad for p in net.parameters()]))
    assert found[0] == found[1]


def test_compiled_code_around_the_layers_has_the_same_values() -> None:
    net = ht.train_in(model(), "bf16")
    plain = copy.deepcopy(net)

    def loss(m: Any, x: Any) -> Any:
        return (m(x) * 2).relu().mean()

    compiled = torch.compile(loss, backend="eager")
    for step in range(2):
        a, b = compiled(net, batch(step)), loss(plain, batch(step))
        a.backward()
        b.backward()
        assert a.item() == b.item()
    assert bits([p.grad for p in net.parameters()]) == bits([p.grad for p in plain.parameters()])


def test_accumulated_gradients_add_up() -> None:
    net = ht.train_in(model(), "bf16")
    net(batch(0)).sum().backward()
    first = [p.grad.clone() for p in net.parameters()]
    net(batch(0)).sum().backward()
    assert all(torch.equal(p.grad, 2 * g) for p, g in zip(net.parameters(), first, strict=True))


def test_autocast_is_refused_by_name() -> None:
    net = ht.train_in(model(), "bf16")
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(ValueError, match=r"layer '0' runs inside of torch.autocast"),
    ):
        net(batch(0))


def test_evaluation_begins_no_step() -> None:
    net = ht.train_in(model(), padded("fp8-delayed"))
    net(batch(0))
    before = net.state_dict()["0._extra_state"]
    net.eval()
    net(batch(1))
    with torch.no_grad():
        net.train()
        net(batch(1))
    assert net.state_dict()["0._extra_state"]["step"] == before["step"] == 1


def test_bad_recipes_are_one_sentence_at_train_in() -> None:
    with pytest.raises(ValueError, match=r"layer '0' has 30 output features, expected a multiple of 32"):
        ht.train_in(model(0, (64, 30, 16)), "mxfp8")
    with pytest.raises(ValueError, match=r"LSTM, whose matmuls are not layers"):
        ht.train_in(torch.nn.Sequential(torch.nn.LSTM(8, 8)), "bf16")
    with pytest.raises(ValueError, match=r"has 8 input features, expected a multiple of 32"):
        ht.train_in(torch.nn.MultiheadAttention(8, 2), "mxfp8")
    assert ht.train_in(torch.nn.TransformerEncoderLayer(32, 2), Recipe(weights="bf16", keep={"self_attn": None}))
    with pytest.raises(ValueError, match="no Linear"):
        ht.train_in(torch.nn.ReLU(), "bf16")
    with pytest.raises(ValueError, match="has a recipe already"):
        ht.train_in(ht.train_in(model(), "bf16"), "bf16")
    with pytest.raises(TypeError, match=r"weights of torch.float16"):
        ht.train_in(model().half(), "bf16")
    with pytest.raises(ValueError, match="which is not a weight or module"):
        ht.train_in(model(), Recipe(weights="bf16", keep={"head": "bf16"}))


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("0", ["0.0"]), ("0.0.weight", ["0.0"]), ("[01]*", ["0.0", "1"]),
        ("2", ["2.in_proj", "2.attention", "2.out_proj"]), ("2.out_proj", ["2.out_proj"]),
        ("2.in_proj_weight", ["2.in_proj"]), ("*", ["0.0", "1", "2.in_proj", "2.attention", "2.out_proj"]),
    ],
)  # fmt: skip
def test_keep_matches_layers_and_modules_around_them(pattern: str, kept: list[str]) -> None:
    net = torch.nn.ModuleList(
        [torch.nn.Sequential(torch.nn.Linear(8, 8)), torch.nn.Linear(8, 8), torch.nn.MultiheadAttention(8, 2)]
    )
    ht.train_in(net, Recipe(weights="int8", activations="int8", gradients="int8", keep={pattern: "fp8_e5m2"}))
    found = {state.name for state in states_of(net) if "fp8_e5m2" in map(str, state.formats.values())}
    assert found == set(kept)


def test_a_loss_scale_that_overflows_skips_the_step() -> None:
    net = ht.train_in(model(), "fp16-loss-scale")
    opt = ht.optimizer_in(torch.optim.SGD(net.parameters(), lr=0.1), "fp16-loss-scale")
    before = bits(net.parameters())
    opt.scale(net(batch(0)).sum() * 1e4).backward()
    assert opt.step() is False
    assert (bits(net.parameters()), opt.loss_scale, opt.skipped) == (before, 32768.0, 1)
    opt.zero_grad()
    opt.scale(net(batch(0)).mean()).backward()
    assert opt.step() is True
    assert bits(net.parameters()) != before
    opt.zero_grad()
    net(batch(0)).mean().backward()
    with pytest.raises(ValueError, match=r"expected optimizer.scale\(loss\)"):
        opt.step()


def test_eight_bit_states_are_codes_between_steps() -> None:
    net = model(0, (256, 256))
    opt = ht.optimizer_in(torch.optim.AdamW(net.parameters()), "adam8bit")
    net(batch(0, columns=256)).square().mean().backward()
    opt.step()
    assert opt.state_bytes() == 2 * 65536 * (1 + 4 / 256) + 8 * 256  # the bias has fewer than 4096 values
    assert not any("exp_avg" in opt.state[p] for p in net.parameters() if p.dim() > 1)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0,), (2, 0, 3)])
def test_parameters_without_values_are_rounded(shape: tuple[int, ...]) -> None:
    p = torch.nn.Parameter(torch.zeros(shape))
    recipe = Recipe(master="bf16", all_reduce="int8-g16", optimizer={"exp_avg": "int8"})
    opt = ht.optimizer_in(torch.optim.AdamW([p]), recipe)
    p.grad = torch.zeros(shape)
    assert opt.step() and p.shape == shape


def test_schedulers_accept_the_optimizer() -> None:
    opt = ht.optimizer_in(torch.optim.AdamW(model().parameters(), lr=1.0), "adam8bit")
    schedule = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
    opt.step()
    schedule.step()
    assert opt.param_groups[0]["lr"] == 0.5


def test_optimizers_that_do_not_fit_are_refused() -> None:
    net = model()
    with pytest.raises(ValueError, match="expected Madam"):
        ht.optimizer_in(torch.optim.AdamW(net.parameters()), "lns-madam")
    with pytest.raises(ValueError, match="SGD has momentum_buffer states"):
        ht.optimizer_in(torch.optim.SGD(net.parameters()), "adam8bit")


def test_madam_changes_logarithms() -> None:
    p = torch.nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 4.0]]))
    opt = ht.Madam([p], lr=0.25, largest=100)
    p.grad = torch.tensor([[1.0, 1.0], [-1.0, 1.0]])
    opt.step()
    half = 2.0**-0.25
    torch.testing.assert_close(p.detach(), torch.tensor([[half, -2 / half], [0.5 / half, 4 * half]]))


def test_stochastic_master_weights_keep_small_updates_in_the_mean() -> None:
    means = []
    for rounding in ("nearest", "stochastic"):
        p = torch.nn.Parameter(torch.ones(1, 4096))
        recipe = Recipe(master="bf16", rounding={"master": rounding})
        opt = ht.optimizer_in(torch.optim.SGD([p], lr=2.0**-10), recipe)
        for _ in range(32):
            p.grad = -torch.ones_like(p)
            opt.step()
        means.append(float(p.detach().mean()) - 1)
    assert means[0] == 0
    assert abs(means[1] - 32 * 2.0**-10) < 2e-3


@pytest.mark.parametrize("case", range(10))
def test_watch_finds_a_planted_underflow(case: int) -> None:
    random = np.random.default_rng(case)
    count = int(random.integers(2, 5))
    sizes = tuple(int(n) for n in random.choice([32, 64, 96], count + 1))
    where, tensor = int(random.integers(count)), ("activations", "weights", "gradients")[case % 3]
    net = model(case, sizes)
    planted = f"{2 * where}"
    recipe = Recipe(weights="fp16", activations="fp16", gradients="fp16", keep={
        f"{2 * i}": "bf16" for i in range(count) if i != where
    })  # fmt: skip
    ht.train_in(net, recipe)
    layer = net[2 * where]
    layer.weight.data *= 1e-9 if tensor == "weights" else 1
    if tensor == "activations":
        layer.register_forward_pre_hook(lambda _, args: (args[0] * 1e-9,))
    if tensor == "gradients":
        layer.register_forward_hook(lambda _, __, y: y * 1e-9)
    report = ht.watch(net)
    net(batch(case, columns=sizes[0])).sum().backward()
    worst = report.worst()
    assert worst is not None
    assert (worst["layer"], worst["tensor"]) == (planted, tensor)
    assert worst["underflow"] > 0.4
    report.close()
    steps = len(report.history)
    net(batch(case, columns=sizes[0])).sum().backward()
    assert len(report.history) == steps
