"""interop.torch on a GPU, with the real PyTorch: runs where there is a GPU, skips elsewhere."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute.base.devices import has_device

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or not has_device():
    pytest.skip("no GPU", allow_module_level=True)

from torch import nn  # noqa: E402

from heterocompute.interop import torch as ht  # noqa: E402

RNG = np.random.default_rng(0)
W, X = (RNG.standard_normal(shape, dtype=np.float32) for shape in ((96, 256), (40, 256)))
KINDS = [("vsq4-g16-s4", "int8"), ("int8", "int8"), ("int8+2:4", "int8"), ("int4-g32-f16", "int8"),
         ("int8", None), ("nf4-g64", None), ("mxfp4", None), ("fp8_e4m3fn-row", None), ("q4_k", None)]  # fmt: skip


def cuda(array: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(array)).cuda()


def same(found: Any, wanted: Any) -> None:
    found, wanted = found.detach().cpu(), wanted.detach().cpu()
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert found.numpy().tobytes() == wanted.numpy().tobytes()


def converted(text: str, activations: Any) -> tuple[nn.Module, nn.Module]:
    """Return a packed network on the CPU, and its copy on the GPU."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 96)).eval()
    made = ht.convert(net, text, activations=activations)
    return made, copy.deepcopy(made).to("cuda")


@pytest.mark.parametrize(("text", "activations"), KINDS)
def test_packed_layers_give_the_bits_of_the_cpu(text: str, activations: Any) -> None:
    here, there = converted(text, activations)
    for rows in (1, 8, 9, 40):
        same(there(cuda(X[:rows])), here(torch.from_numpy(X[:rows])))
    same(there.to("cpu")(torch.from_numpy(X)), here(torch.from_numpy(X)))


def test_convolutions_give_the_bits_of_the_cpu() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=16)).eval()
    here, x = ht.convert(net, "int8", activations="int8"), torch.randn(2, 8, 9, 9)
    there, wanted = copy.deepcopy(here).to("cuda"), here(x)
    same(there(x.cuda()), wanted)
    same(there(x.cuda().to(memory_format=torch.channels_last)), wanted)


@pytest.mark.parametrize("text", ["int8", "vsq4-g16-s4", "mxfp4", "nf4-g64", "fp8_e4m3fn-row", "int8+2:4"])
def test_gradients_have_the_bits_of_the_cpu(text: str) -> None:
    here, there = torch.from_numpy(X.copy()).requires_grad_(), cuda(X).requires_grad_()
    for x in (here, there):
        y = ht.fake_quantize(x, text)
        y.backward(torch.from_numpy(X[::-1].copy()).to(x.device))
    same(ht.fake_quantize(there, text), ht.fake_quantize(here, text))
    same(there.grad, here.grad)


@pytest.mark.parametrize(("text", "activations"), KINDS)
def test_a_graph_replays_the_calls(text: str, activations: Any) -> None:
    here, there = converted(text, activations)
    with torch.no_grad():
        x, side = cuda(X), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            there(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y, rounded = there(x), ht.fake_quantize(x, "int8")
        x.copy_(cuda(X[::-1]))
        graph.replay()
        torch.cuda.synchronize()
        same(y, here(torch.from_numpy(X[::-1].copy())))
        same(rounded, torch.from_numpy(hc.fake_quantize(X[::-1].copy(), "int8")))


def test_a_call_runs_on_the_current_stream() -> None:
    here, there = converted("vsq4-g16-s4", "int8")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        x = cuda(X)
        torch.cuda._sleep(10_000_000)
        y = there(x * 1)
    side.synchronize()
    same(y, here(torch.from_numpy(X)))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_layers_give_the_bits_of_eager(mode: str) -> None:
    _, there = converted("vsq4-g16-s4", "int8")
    with torch.no_grad():
        compiled = torch.compile(there, fullgraph=True, mode=mode)
        for _ in range(3):
            found = compiled(cuda(X)).clone()
        same(found, there(cuda(X)))
    rounded = torch.compile(lambda x: ht.fake_quantize(x, "int8").sum(), fullgraph=True)
    one, other = cuda(X).requires_grad_(), cuda(X).requires_grad_()
    rounded(one).backward()
    ht.fake_quantize(other, "int8").sum().backward()
    same(one.grad, other.grad)


def test_calls_keep_no_memory() -> None:
    _, there = converted("int8", "int8")
    x = cuda(X)
    with torch.no_grad():
        there(x)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        for _ in range(20):
            there(x)
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() == before


def test_tensors_in_functions_of_the_package() -> None:
    q = hc.quantize(cuda(W), "vsq4-g16-s4")
    y = hc.linear(cuda(X), q, activations="int8")
    assert isinstance(y, torch.Tensor) and y.is_cuda
    same(y, torch.from_numpy(hc.linear(X, hc.quantize(W, "vsq4-g16-s4"), activations="int8")))
    half = X.astype(np.float16)
    same(hc.fake_quantize(cuda(half), "int8"), torch.from_numpy(hc.fake_quantize(half, "int8")))
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.from_numpy(X).to(dtype)
        same(ht.fake_quantize(x.cuda(), "int8").float(), ht.fake_quantize(x, "int8").float())
