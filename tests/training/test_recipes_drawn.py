"""Recipes drawn by seed: the same values in torch, NumPy and JAX, resuming, checkpoints, threads, leaving a recipe."""

from __future__ import annotations

import copy
import dataclasses
import io
import random
from typing import Any

import numpy as np
import pytest

import heterocompute as hc

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from heterocompute.interop import torch as ht  # noqa: E402

OWN = hc.define(None, hc.Levels((-1.0, -0.25, 0.0, 0.25, 1.0)), scale="f32", group=8)
FORMATS = ("bf16", "fp16", "int8", "int8-g8", "int4-g4", "e4m3fn-tensor", "e5m2-tensor", "mxfp8_e4m3", "nvfp4",
           "log8-8", "e4m3fn-b16x16", "int8-tensor", "tf32", "e4m3fn-g16", OWN)  # fmt: skip
TENSORS = ("weights", "activations", "gradients", "weight_gradients", "master", "all_reduce")
SHIFTS = (None, hc.training.Current(power_of_two=True), hc.training.Current(margin=1))


def drawn(seed: int, scalings: tuple[Any, ...] = SHIFTS) -> Any:
    """Return a recipe with random formats, scaling, rounding, kept layers and second roundings."""
    rng = random.Random(seed)
    fields: dict[str, Any] = {name: rng.choice(FORMATS) for name in TENSORS[:3]}
    if {"e4m3fn-tensor", "e5m2-tensor"} & {str(fmt) for fmt in fields.values()}:
        fields["scaling"] = rng.choice(scalings)
    return hc.training.Recipe(
        **fields, weight_gradients=rng.choice(["fp32", "bf16", "int8"]), master=rng.choice(["fp32", "bf16"]),
        all_reduce=rng.choice(["fp32", "bf16", "int8-g8"]), attention=rng.choice([None, None, "bf16", "int8-g8"]),
        loss_scale=rng.choice([None, 128.0, "dynamic"]), hadamard=rng.choice([None, None, 8]), pad=True, seed=seed,
        optimizer=rng.choice([{}, {"exp_avg": "int8-g256"}, {"exp_avg": "bf16", "exp_avg_sq": "bf16"}]),
        rounding=dict.fromkeys(rng.sample(TENSORS, rng.randint(0, 4)), "stochastic"),
        requantize=rng.choice([(), ("activations",), ("weights", "activations")]))  # fmt: skip


def arrays(seed: int, *shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


@pytest.mark.parametrize("seed", range(12))
def test_a_layer_has_the_values_of_numpy(seed: int) -> None:
    recipe = drawn(seed)
    x, w, g = arrays(seed, (24, 20), (12, 20), (24, 12))
    wanted = hc.training.linear_step(x, w, g, recipe)
    layer = torch.nn.Linear(20, 12, bias=False)
    layer.weight.data = torch.from_numpy(w)
    given = torch.from_numpy(x).requires_grad_()
    y = ht.train_in(layer, recipe)(given)
    y.backward(torch.from_numpy(g))
    for one, other in zip((y, given.grad, layer.weight.grad), wanted, strict=True):
        bound = 1e-5 * np.abs(other).max()
        if recipe.weight_gradients != hc.format("fp32") and one is layer.weight.grad:
            bound = np.abs(other).max() / 16  # another order of sums may round to the next value
        assert np.abs(one.detach().numpy() - other).max() <= bound


@pytest.mark.parametrize("seed", range(2))
def test_jax_has_the_bits_of_numpy(seed: int) -> None:
    jax = pytest.importorskip("jax")
    from heterocompute.interop import jax as hj

    recipe = drawn(100 + seed)
    x, w, g = arrays(seed, (16, 8), (8, 8), (16, 8))
    y, back = jax.vjp(lambda x, w: hj.linear_in(x, w, recipe, seed), x, w)
    wanted = hc.training.linear_step(x, w, g, recipe, seed=seed)
    for one, other in zip((y, *back(g)), wanted, strict=True):
        assert np.asarray(one).tobytes() == other.tobytes()


class Inside(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 8, 3, padding=1, stride=2)
        self.row = torch.nn.Conv1d(8, 16, 3, padding=2, dilation=2, groups=2)
        self.qkv = torch.nn.Linear(16, 48)

    def forward(self, x: Any) -> Any:
        y = self.row(self.conv(x).flatten(2)).transpose(1, 2)
        q, k, v = self.qkv(y).reshape(len(y), -1, 3, 2, 8).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y + attended.transpose(1, 2).reshape(y.shape)


class Net(torch.nn.Module):
    def __init__(self, seed: int, is_checkpointed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.is_checkpointed, self.inside = is_checkpointed, Inside()
        self.heads = torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.out = torch.nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        y = checkpoint(self.inside, x, use_reentrant=False) if self.is_checkpointed else self.inside(x)
        return self.out((y + self.heads(y, y, y)[0]).mean(1))


def made(recipe: Any, seed: int, is_checkpointed: bool = False) -> tuple[Any, Any]:
    net = ht.train_in(Net(seed, is_checkpointed), recipe)
    return net, ht.optimizer_in(torch.optim.AdamW(net.parameters(), lr=1e-2), recipe)


def trained(net: Any, opt: Any, steps: range) -> list[bytes]:
    """Train with two parts per step, and return the bytes of the parameters."""
    for step in steps:
        opt.zero_grad()
        for part in range(2):
            x = torch.from_numpy(arrays(2 * step + part, (3, 2, 8, 8))[0])
            opt.scale(net(x).square().mean()).backward()
        opt.step()
    return [p.detach().numpy().tobytes() for p in net.parameters()]


@pytest.mark.parametrize("seed", range(3))
def test_resuming_recomputing_and_threads_change_no_bit(seed: int) -> None:
    delayed = tuple(hc.training.Delayed(history=2, amax=rule) for rule in ("max", "most_recent"))
    recipe = drawn(200 + seed, delayed)
    recipe = dataclasses.replace(recipe, keep=[{}, {"heads": None}, {"inside.conv": "bf16", "out": "int8"}][seed % 3])
    whole = trained(*made(recipe, seed), range(3))
    assert trained(*made(recipe, seed, True), range(3)) == whole
    with hc.use(threads=1):
        assert trained(*made(recipe, seed), range(3)) == whole
    net, opt = made(recipe, seed)
    trained(net, opt, range(2))
    file = io.BytesIO()
    torch.save([net.state_dict(), opt.state_dict()], file)
    file.seek(0)
    net, opt = made(recipe, seed)
    for one, state in zip((net, opt), torch.load(file, weights_only=True), strict=True):
        one.load_state_dict(state)
    assert trained(net, opt, range(2, 3)) == whole


@pytest.mark.parametrize("name", ["fp8-delayed", "mxfp8"])
def test_a_trained_model_leaves_its_recipe(name: str) -> None:
    first = Net(0)
    recipe = dataclasses.replace(hc.training.recipe(name), pad=True, attention=None)
    net = ht.train_in(copy.deepcopy(first), recipe)
    x = torch.from_numpy(arrays(0, (3, 2, 8, 8))[0])
    loss = net(x).square().mean()
    loss.backward()

    def judge(model: Any) -> float:
        return float(model(x).square().mean().detach())

    for call in (lambda m: hc.study(m, ["int8"], judge), lambda m: ht.convert(m, "int8"),
                 lambda m: hc.ptq.search(m, ["int8", "int4-g4"], {"bits": 12}, judge)):  # fmt: skip
        with pytest.raises(ValueError, match=r"recipe of train_in, expected the model of without_recipe\(model\)"):
            call(net)
    plain = ht.without_recipe(net)
    assert [type(one) for one in plain.modules()] == [type(one) for one in first.modules()]
    assert list(plain.state_dict()) == list(first.state_dict())
    assert vars(plain).keys() == vars(first).keys()
    assert torch.equal(plain(x), first(x))
    assert hc.study(plain, ["int8"], judge)
    assert hc.ptq.search(plain, ["int8", "int4-g4"], {"bits": 12}, judge)
    assert ht.convert(plain, "int8")(x).shape == (3, 5)
    assert ht.train_in(plain, "bf16")(x).shape == (3, 5)
    assert torch.equal(net(x).square().mean(), loss) or name == "fp8-delayed"  # the copy shares nothing
    with pytest.raises(ValueError, match="without_recipe: model has no layer with a recipe"):
        ht.without_recipe(first)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"weights": "uint8"}, "no negative values"),
        ({"activations": "int8+2:4"}, "expected a format without a pattern"),
        ({"gradients": hc.define(None, hc.Levels((0.0, 1.0)), scale="f32")}, "no negative values"),
        ({"optimizer": {"exp_average": "int8"}}, "optimizer is 'exp_average'"),
        ({"scaling": hc.training.Current()}, "expected a float with one scale per tensor"),
        ({"rounding": {"optimizer": "stochastic"}}, "rounding is 'optimizer'"),
    ],
)  # fmt: skip
def test_recipes_that_no_model_can_have_are_one_sentence(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        ht.train_in(torch.nn.Linear(8, 8), hc.training.Recipe(**fields))
    assert "\n" not in str(caught.value)
