"""`ht.fuse` with images: runs of convolutions in one call have the bits of their modules."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from common import isas, same_bits

import heterocompute as hc

torch = pytest.importorskip("torch")
from heterocompute.interop import torch as ht  # noqa: E402

nn = torch.nn


class Block(nn.Module):
    """A drawn block: convolutions with activations, zeros before some, and a sum at the end."""

    def __init__(self, rng: np.random.Generator, channels: int, out: int, stride: int) -> None:
        super().__init__()
        wide = int(rng.choice([channels, 2 * channels, 5, 33]))
        side = int(rng.choice([1, 3, 5]))
        self.zeros = [int(one) for one in rng.integers(0, 3, 4)] if rng.integers(2) else None
        padding = side // 2 if self.zeros is None else 0
        self.first = nn.Conv2d(channels, wide, 1, bias=bool(rng.integers(2)))
        groups = wide if rng.integers(3) else 1
        self.middle = nn.Conv2d(wide, wide, side, stride, padding, groups=groups)
        self.last = nn.Conv2d(wide, out, 1)
        acts = [nn.ReLU6(), nn.ReLU(), nn.ReLU6(inplace=True), nn.Hardtanh(-1.0, 2.0), nn.Identity()]
        self.acts = nn.ModuleList(acts[int(rng.integers(len(acts)))] for _ in range(3))
        self.after = nn.ReLU(inplace=bool(rng.integers(2))) if rng.integers(2) else nn.Identity()
        self.shortcut = nn.Identity() if out == channels and stride == 1 and self.zeros is None else None
        self.twice = bool(rng.integers(4) == 0)

    def forward(self, x: Any) -> Any:
        y = self.acts[0](self.first(x))
        if self.zeros is not None:
            y = nn.functional.pad(y, self.zeros)
        y = self.last(self.acts[1](self.middle(y)))
        if self.shortcut is not None:
            y = x + y if self.twice else y + self.shortcut(x)
        return self.after(y)


def network(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    channels = [3, *(int(one) for one in rng.choice([8, 16, 17, 24], 3))]
    blocks = [Block(rng, a, b, int(rng.integers(1, 3))) for a, b in zip(channels, channels[1:], strict=False)]
    blocks.append(Block(rng, channels[-1], channels[-1], 1))
    stem = [nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)] if rng.integers(2) else []
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], 5)).eval()


def images(seed: int, batch: int = 2, side: int = 41) -> Any:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((batch, 3, side, side + 3), np.float32) * 3)


@pytest.mark.parametrize("fmt", ["int8", "int4", "vsq4-g16-s4"])
@pytest.mark.parametrize("seed", range(8))
def test_bits_of_the_modules(seed: int, fmt: str) -> None:
    small = ht.convert(network(seed), fmt, activations="int8")
    x = images(seed)
    with torch.inference_mode():
        fused = ht.fuse(small, inputs=x)
        assert sum(len(one.steps) for one in next(iter(fused._programs.values())).chains) >= 6
        for other in (x, images(seed + 100), images(seed, 1), images(seed, 3, 48), x * 1e-3, x * 0):
            assert same_bits(fused(other).numpy(), small(other).numpy())
        wide = x.to(memory_format=torch.channels_last)
        assert same_bits(fused(wide).numpy(), small(wide).numpy())


@pytest.mark.parametrize("isa", isas())
def test_bits_of_every_instruction_set_and_number_of_threads(isa: str) -> None:
    for seed in range(4):
        small = ht.convert(network(seed), "int8", activations="int8")
        x = images(seed)
        with torch.inference_mode():
            fused, wanted = ht.fuse(small, inputs=x), small(x).numpy()
            with hc.use(isa=isa, threads=1 + seed % 3):
                assert same_bits(fused(x).numpy(), wanted)


def test_guesses_that_fail() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 1), nn.ReLU6(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU6(), nn.Conv2d(16, 4, 1)
    )
    small = ht.convert(net.eval(), "int8", activations="int8")
    x = images(0, 1)
    with torch.inference_mode():
        fused = ht.fuse(small, inputs=x)
        for factor in (0.01, 100, 0.01, 1):  # no value reaches 6, all do
            assert same_bits(fused(x * factor).numpy(), small(x * factor).numpy())


def test_calls_that_run_module_by_module() -> None:
    small = ht.convert(network(1), "int8", activations="int8")
    x = images(1)
    fused = ht.fuse(small, inputs=x)
    wanted = small(x)
    assert same_bits(fused(x).detach().numpy(), wanted.detach().numpy())
    assert fused(x.requires_grad_()).requires_grad
    seen = []
    with torch.inference_mode():
        assert same_bits(fused(x[0][None].double()).numpy(), small(x[0][None].double()).numpy())
        handle = fused[-4].first.register_forward_hook(lambda *_: seen.append(1))
        assert same_bits(fused(x).numpy(), wanted.detach().numpy())
        assert seen == [1]
        handle.remove()
        fused(x)
        assert seen == [1]
        with pytest.raises(ValueError, match="finite|nan|inf"):
            fused(x * float("nan"))
        fused[-1] = nn.Flatten()
        assert fused(x).shape == (2, fused[-4].last.out_channels)


def test_copies_states_and_parameters() -> None:
    small = ht.convert(network(2), "int8", activations="int8")
    x = images(2)
    with torch.inference_mode():
        fused = ht.fuse(small, inputs=x)
        assert type(small) is nn.Sequential
        assert fused.state_dict().keys() == small.state_dict().keys()
        for other in (copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
            assert same_bits(other(x).numpy(), small(x).numpy())
        for one in (fused, small):
            one[-4].last.bias = nn.Parameter(torch.full_like(one[-4].last.bias, 2.0))
        assert same_bits(fused(x).numpy(), small(x).numpy())
        state = ht.convert(network(2), "int4", activations="int8").state_dict()
        for one in (fused, small):
            one.load_state_dict(state)
        assert same_bits(fused(x).numpy(), small(x).numpy())


class Reads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x)) if x.sum() > 0 else self.a(x)


def test_refusals() -> None:
    x = images(0)
    small = ht.convert(nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1)).eval(), "int8", activations="int8")
    with pytest.raises(ValueError, match="pass images as inputs="):
        ht.fuse(small)
    with pytest.raises(ValueError, match="not float32 images"):
        ht.fuse(small, inputs=x.double())
    with pytest.raises(ValueError, match="no two of its packed convolutions"):
        ht.fuse(ht.convert(nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1)).eval(), "int8"), inputs=x)
    with pytest.raises(ValueError, match="no packed convolutions"):
        ht.fuse(ht.convert(nn.Linear(4, 4), "int8"), inputs=x)
    with pytest.raises(ValueError, match="returns no tensor"):
        ht.fuse(ht.convert(Reads().eval(), "int8", activations="int8"), inputs=x)
    fused = ht.fuse(small, inputs=x)
    with pytest.raises(ValueError, match="fused already"):
        ht.fuse(fused, inputs=x)


class Small(nn.Module):
    """Three convolutions that a function calls."""

    def __init__(self, forward: Any) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.call = forward

    def forward(self, x: Any) -> Any:
        return self.call(self, x)


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float64])
def test_sums_with_tensors_of_other_types(dtype: Any) -> None:
    def forward(net: Any, x: Any) -> Any:
        mask = (x[:, :1] > 0).to(dtype).repeat(1, 8, 1, 1)
        return net.last((net.middle(nn.functional.relu6(net.first(x))) + mask).float())

    torch.manual_seed(0)
    small, x = ht.convert(Small(forward).eval(), "int8", activations="int8"), images(0)
    with torch.inference_mode():
        assert same_bits(ht.fuse(small, inputs=x)(x).numpy(), small(x).numpy())


def test_biases_of_other_types() -> None:
    def forward(net: Any, x: Any) -> Any:
        return net.last(nn.functional.relu6(net.middle(nn.functional.relu6(net.first(x)))))

    torch.manual_seed(0)
    small, x = ht.convert(Small(forward).eval(), "int8", activations="int8"), images(0)
    with torch.inference_mode():
        fused = ht.fuse(small, inputs=x)
        for one in (small, fused):
            one.last.bias.data = one.last.bias.data.bfloat16()  # the same parameter
        assert same_bits(fused(x).numpy(), small(x).numpy())
        for dtype in (torch.bfloat16, torch.float16, torch.float64):
            other = ht.convert(Small(forward).to(dtype).eval(), "int8", activations="int8")
            with pytest.raises(ValueError, match="no two of its packed convolutions"):
                ht.fuse(other, inputs=x)


@pytest.mark.parametrize("kind", range(3))
def test_writes_to_tensors_of_others(kind: int) -> None:
    kept = torch.zeros(1)

    def forward(net: Any, x: Any) -> Any:
        y = x.relu_() if kind == 0 else x[:, :3].relu_() if kind == 1 else x + kept.add_(x.mean())
        return net.last(net.middle(nn.functional.relu6(net.first(y))))

    torch.manual_seed(0)
    small = ht.convert(Small(forward).eval(), "int8", activations="int8")
    with torch.inference_mode():  # whose tensors no other mode may change
        x = images(0) + 0
        before = x.clone()
        with pytest.raises(ValueError, match="writes to a tensor"):
            ht.fuse(small, inputs=x)
        assert same_bits(x.numpy(), before.numpy())


def test_zeros_that_are_too_many() -> None:
    """The convolution itself needs no memory for them."""
    for padding, stride in ((1 << 16, 1 << 15), (1 << 29, 1 << 28)):
        net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU6(), nn.Conv2d(8, 8, 3, stride, padding))
        small = ht.convert(net.eval(), "int8", activations="int8")
        with pytest.raises(ValueError, match="reads more than 2\\^31 - 1 values"):
            ht.fuse(small, inputs=images(0))
