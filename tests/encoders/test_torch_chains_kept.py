"""`ht.fuse` with images: calls after a network has changed, and forwards that are more than their answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import same_bits

torch = pytest.importorskip("torch")
from heterocompute.interop import torch as ht  # noqa: E402

nn = torch.nn


class Net(nn.Module):
    """Convolutions, and a function that calls them."""

    def __init__(self, function: Callable[[Any, Any], Any], **more: Any) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU6(), nn.Conv2d(8, 4, 1))
        self.function = function
        for name, value in more.items():
            setattr(self, name, value)

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def packed(function: Callable[[Any, Any], Any], **more: Any) -> Any:
    torch.manual_seed(0)
    return ht.convert(Net(function, **more).eval(), "int8", activations="int8")


def images(seed: int = 0, *shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape or (2, 3, 8, 10), np.float32))


def check(fused: Any, small: Any, x: Any) -> None:
    with torch.no_grad():
        assert same_bits(fused(x).numpy(), small(x).numpy())


def test_values_that_follow_from_parameters() -> None:
    small = packed(lambda net, x: net.body(x) * torch.sigmoid(net.alpha), alpha=nn.Parameter(torch.ones(1, 4, 1, 1)))
    fused = ht.fuse(small, inputs=images())
    with torch.no_grad():
        for one in (fused, small):
            one.alpha.fill_(-2.0)
    check(fused, small, images())


def test_buffers_and_codes_that_change() -> None:
    small = packed(lambda net, x: net.norm(net.body(x)), norm=nn.BatchNorm2d(4))
    fused = ht.fuse(small, inputs=images())
    for one in (fused, small):
        one.norm.running_mean = torch.arange(4.0)
    check(fused, small, images())
    for one in (fused, small):
        for weight in (part for part in one.modules() if isinstance(part, ht.PackedWeight)):
            weight.codes.neg_()
    check(fused, small, images())
    for one in (fused, small):
        one.norm.train()
    for seed in range(2):
        check(fused, small, images(seed))
        check(fused, small, images(seed, 3, 3, 6, 6))
    assert int(fused.norm.num_batches_tracked) == int(small.norm.num_batches_tracked)
    assert same_bits(fused.norm.running_mean.numpy(), small.norm.running_mean.numpy())


def test_flags_of_modules() -> None:
    small = packed(lambda net, x: net.body(x) * 2 if net.doubles else net.body(x), doubles=False)
    fused = ht.fuse(small, inputs=images())
    for doubles in (True, False):
        fused.doubles = small.doubles = doubles
        check(fused, small, images())


def test_gradients_that_are_wanted_later() -> None:
    fused = ht.fuse(packed(lambda net, x: net.body(x)).requires_grad_(False), inputs=images())
    assert not fused(images()).requires_grad
    fused.body[0].bias.requires_grad_(True)
    assert fused(images()).requires_grad


def test_parametrized_biases() -> None:
    small = packed(lambda net, x: net.body(x))
    fused = ht.fuse(small, inputs=images())
    for one in (fused, small):
        nn.utils.parametrize.register_parametrization(one.body[2], "bias", nn.Sigmoid())
    check(fused, small, images())
    check(fused, small, images(1, 1, 3, 5, 5))


def test_images_of_other_strides() -> None:
    small = packed(lambda net, x: net.body(x.reshape(x.shape[0], 3, x.shape[3], x.shape[2])))
    fused = ht.fuse(small, inputs=images())
    check(fused, small, images(1, 2, 3, 10, 8).transpose(2, 3))
    check(fused, small, images(1, 4, 6, 16, 20)[::2, ::2, ::2, ::2])


def test_slices() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU6(), nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 2, 1))
    small = ht.convert(net.eval(), "int8", activations="int8")
    fused = ht.fuse(small, inputs=images())
    check(fused[:3].eval(), small[:3].eval(), images())


def test_activations_in_place() -> None:
    functional = nn.functional
    acts = (functional.silu, functional.hardswish, functional.hardsigmoid, functional.leaky_relu)
    for act in acts:
        small = packed(lambda net, x, act=act: act(net.body(x), inplace=True).mul_(3).add_(1))
        check(ht.fuse(small, inputs=images()), small, images(1))


class Keeps(nn.Module):
    def forward(self, x: Any) -> Any:
        self.last = x
        return x


def test_forwards_that_are_more_than_their_answer() -> None:
    cases: list[tuple[Callable[[Any, Any], Any], str]] = [
        (lambda net, x: net.body(x.relu_()), "relu_.default writes to a tensor"),
        (lambda net, x: net.body(x) * float(net.alpha), "returns no tensor"),
        (lambda net, x: net.body(x) + torch.from_numpy(net.body(x).detach().numpy()), "another result"),
        (lambda net, x: net.body(x)[net.body(x) > 0], "depends on values of tensors"),
        (lambda net, x: net.body(x).as_strided((2, 2), (1, 2)) * 1, "memory by strides"),
        (lambda net, x: net.keeps(net.body(x)), "its forward changes keeps.last"),
        (lambda net, x: net.body(x).add_(torch.ones(1, dtype=torch.float64)), "writes to a tensor"),
    ]
    for function, reason in cases:
        small = packed(function, alpha=nn.Parameter(torch.ones(1)), keeps=Keeps())
        x = images()
        with pytest.raises(ValueError, match=reason):
            ht.fuse(small, inputs=x)
        assert same_bits(x.numpy(), images().numpy())


def test_calls_of_other_threads_are_not_recorded() -> None:
    found: list[Any] = []

    def function(net: Any, x: Any) -> Any:
        if x.shape[2] == 5 and not found:  # while this shape is recorded
            found.append(None)
            other = threading.Thread(target=lambda: found.append(net(images())))
            other.start()
            other.join()
        return net.body(x)

    small = packed(function)
    with torch.no_grad():
        fused = ht.fuse(small, inputs=images())
        x = images(1, 1, 3, 5, 5)
        fused(x)
        lengths = {len(one.parts) for one in fused._programs.values()}
        assert len(found) == 2 and lengths == {1}
    check(fused, small, x)


@pytest.mark.parametrize("where", ["normal", "inference", "given"])
def test_codes_that_are_written_in_inference_mode(where: str) -> None:
    """Inference tensors have no versions: filters made of them are not kept."""

    def made(seed: int) -> Any:
        torch.manual_seed(seed)
        layers = [nn.Conv2d(3, 16, 1), nn.ReLU6(), nn.Conv2d(16, 16, 3, groups=16), nn.ReLU6(), nn.Conv2d(16, 8, 1)]
        return ht.convert(nn.Sequential(*layers).eval(), "int8", activations="int8")

    with torch.inference_mode(where != "normal"):
        small, other = made(0), made(1)
        fused = ht.fuse(small, inputs=images())
        if where == "given":
            for one in fused.modules():
                one._buffers.update({name: part.clone() for name, part in one._buffers.items()})
            assert all(part.is_inference() for part in fused.buffers())
    with torch.inference_mode():
        fused(images())
        for depth in (2, 4, 0):
            for one in (fused, small):
                for to, part in zip(one[depth].weight.buffers(), other[depth].weight.buffers(), strict=True):
                    to.copy_(part)
            check(fused, small, images())
            check(fused, small, images())
