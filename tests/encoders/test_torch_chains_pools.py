"""`ht.fuse` with images: the largest values of windows are steps of a run, with the bits of PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import isas, same_bits

import heterocompute as hc

torch = pytest.importorskip("torch")
from heterocompute.interop import torch as ht  # noqa: E402

nn = torch.nn


def pool_of(rng: np.random.Generator) -> Any:
    size = [int(one) for one in rng.integers(1, 6, 2)]
    stride = [int(one) for one in rng.integers(1, 3, 2)]
    padding = [int(rng.integers(one // 2 + 1)) for one in size]
    kinds = [(size, stride, padding), (min(*size, 2), None, 0), (3, 2, 1), (2, 2, 0)]
    return nn.MaxPool2d(*kinds[int(rng.integers(4))], ceil_mode=bool(rng.integers(5) == 0))


class Net(nn.Module):
    """Convolutions and pools in a drawn order, with activations between them and a sum after some pools."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        acts = [nn.ReLU6, nn.ReLU, lambda: nn.ReLU6(inplace=True), nn.Identity, lambda: nn.Hardtanh(-2.0, -1.0)]
        self.parts, self.adds, depth = nn.ModuleList(), int(rng.integers(3)), 3
        for i in range(4):
            out = int(rng.choice([5, 8, 16, 33]))
            groups = out if out == depth and rng.integers(2) else 1
            layers = [nn.Conv2d(depth, out, int(rng.choice([1, 3])), padding=int(rng.integers(2)), groups=groups)]
            layers += [acts[int(rng.integers(len(acts)))](), pool_of(rng), acts[int(rng.integers(2))]()][: 2 + i % 3]
            depth = out
            self.parts.append(nn.Sequential(*layers))
        self.last = nn.Conv2d(depth, 4, 1)

    def forward(self, x: Any) -> Any:
        for i, part in enumerate(self.parts):
            x = part(x)
            if i == self.adds:
                y = nn.functional.max_pool2d(x, 3, 1, 1)
                x = y + x if self.adds == 1 else y
        return self.last(x), x


def network(seed: int) -> Any:
    torch.manual_seed(seed)
    return ht.convert(Net(np.random.default_rng(seed)).eval(), "int8", activations="int8")


def images(seed: int, side: int = 61) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((2, 3, side, side + 3), np.float32))


def steps_of(fused: Any) -> list[Any]:
    return [step for chain in next(iter(fused._programs.values())).chains for step in chain.steps]


def check(fused: Any, small: Any, x: Any) -> None:
    with torch.inference_mode():
        for a, b in zip(fused(x), small(x), strict=True):
            assert same_bits(a.numpy(), b.numpy())


@pytest.mark.parametrize("seed", range(12))
def test_bits_of_the_modules(seed: int) -> None:
    small = network(seed)
    fused = ht.fuse(small, inputs=images(seed))
    assert any(step.pool for step in steps_of(fused))
    for x in (images(seed), images(seed + 50), images(seed, 67), images(seed) * 1e-4, images(seed) * 0):
        check(fused, small, x)


@pytest.mark.parametrize("isa", isas())
def test_bits_of_every_instruction_set_and_number_of_threads(isa: str) -> None:
    for seed in range(20, 24):
        small, x = network(seed), images(seed)
        fused = ht.fuse(small, inputs=x)
        with hc.use(isa=isa, threads=1 + seed % 3):
            check(fused, small, x)
            check(fused, small, x)  # with the filters of the first call
        check(fused, small, x)


def test_pools_that_pytorch_runs() -> None:
    def indices(x: Any) -> Any:
        values, where = nn.functional.max_pool2d(x, 2, return_indices=True)
        return values + where

    for function in (
        lambda x: nn.functional.max_pool2d(x, 2, dilation=2),
        lambda x: nn.functional.max_pool2d(x, 3, 2, ceil_mode=True),
        lambda x: nn.functional.avg_pool2d(x, 2),
        indices,
    ):

        class Pooled(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.a, self.b, self.c, self.d = (nn.Conv2d(c, 8, 1) for c in (3, 8, 8, 8))

            def forward(self, x: Any, function: Any = function) -> Any:
                return (self.d(self.c(function(self.b(self.a(x))))),)

        torch.manual_seed(0)
        small = ht.convert(Pooled().eval(), "int8", activations="int8")
        fused = ht.fuse(small, inputs=images(0, 32))
        assert not any(step.pool for step in steps_of(fused))
        check(fused, small, images(0, 32))


def test_zeros_with_signs() -> None:
    """The first of equal values stays, so that -0 does."""
    net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 8, 1), nn.MaxPool2d(2))
    small = ht.convert(net.eval(), "int8", activations="int8")
    for bias in (0.0, -0.0):
        for one in (small[0], small[2]):
            one.bias.data.fill_(bias)
        fused = ht.fuse(small, inputs=images(0, 20))
        x = images(0, 20) * (images(1, 20) > 1)
        with torch.inference_mode():
            assert same_bits(fused(x).numpy(), small(x).numpy())


def test_values_that_are_not_finite() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.MaxPool2d(2), nn.Conv2d(8, 8, 1)).eval()
    small = ht.convert(net, "int8", activations="int8")
    fused = ht.fuse(small, inputs=images(0, 20))
    with torch.inference_mode():
        small[0].bias.data[3], fused[0].bias.data[3] = float("nan"), float("nan")
        for one in (small, fused):
            with pytest.raises(ValueError, match="finite|nan|inf"):
                one(images(0, 20))
