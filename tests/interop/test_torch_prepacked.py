"""Packed modules of PyTorch on a CUDA device convert their weights for integer matmuls once."""

from __future__ import annotations

import copy
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

sys.path.append(str(Path(__file__).parent))
import torch_on_device  # noqa: E402
from torch_on_device import Tensor, move, there, using  # noqa: E402

import heterocompute as hc  # noqa: E402
from heterocompute.interop import torch as ht  # noqa: E402
from heterocompute.interop.torch.weights import PackedWeight  # noqa: E402


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield from using(monkeypatch)


def values(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def packed(text: str, activations: Any = "int8") -> Any:
    return ht.PackedLinear(hc.quantize(values(40, 128).numpy(), text), values(40), activations)


# int8 is read as it is stored, mxfp4 would take more than twice its memory, NF4 has no integers.
FORMATS = [
    ("int6", True),
    ("int8+2:4", True),
    ("int4-g32", True),
    ("int8", False),
    ("mxfp4", False),
    ("nf4-g64", False),
]


def launches(driver: Any, call: Any) -> tuple[Any, int]:
    before = driver.counts()[0]
    answer = call()
    return answer, driver.counts()[0] - before


@pytest.mark.parametrize(("text", "has_panels"), FORMATS)
def test_a_moved_layer_converts_its_weight_once(text: str, has_panels: bool, driver: Any) -> None:
    activations = None if text == "nf4-g64" else "int8"
    layer, plain = packed(text, activations), packed(text, activations)
    x = values(5, 128)
    wanted = layer(x)
    move(layer)
    weight = layer.weight
    panels = weight._buffers.get("panels")
    assert (panels is not None) == has_panels and weight.nbytes == plain.weight.nbytes
    if panels is not None:
        assert panels.nbytes <= 2 * weight.nbytes and "weight.panels" not in layer.state_dict()
    y, count = launches(driver, lambda: layer(there(x)))
    assert torch.equal(y.at_home(), wanted.detach())
    if panels is None:
        return
    weight._buffers.pop("panels")
    y, without = launches(driver, lambda: layer(there(x)))
    assert torch.equal(y.at_home(), wanted.detach()) and without > count
    assert weight.prepack() == panels.nbytes and launches(driver, lambda: layer(there(x)))[1] == count


def test_gradients_and_operators_of_graphs_accept_panels() -> None:
    layer, x, g = packed("int6"), values(5, 128), values(5, 40)
    wanted_from = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(layer(wanted_from), wanted_from, g)
    move(layer)
    given = there(x).requires_grad_()
    y = ht.linear(given, layer.weight)
    (found,) = torch.autograd.grad(y, given, there(g))
    assert torch.allclose(found.as_subclass(Tensor).at_home(), wanted, rtol=1e-5, atol=1e-5)
    operands = layer.weight.operands()
    assert operands[-1] is layer.weight.panels and len(operands) == len(layer.weight.parts()) + 1
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        parts = [torch.empty(part.shape, dtype=part.dtype, device="cuda") for part in operands]
        y = torch.ops.heterocompute.linear(torch.empty(3, 64, device="cuda"), parts, layer.weight.text, "int8")
        assert y.device.type == "cuda" and y.shape == (3, 40)


def test_a_capture_uses_the_panels_that_are_there(monkeypatch: pytest.MonkeyPatch, driver: Any) -> None:
    layer, x = move(packed("int6")), values(5, 128)
    given, before = there(x), driver.counts()
    monkeypatch.setenv("FAKE_DRIVER_CAPTURES", "1")
    y = ht.linear(given, layer.weight)
    monkeypatch.delenv("FAKE_DRIVER_CAPTURES")
    assert [now - then for now, then in zip(driver.counts(), before, strict=True)][1:] == [0, 0, 0]
    address = layer.weight.panels.data_ptr()
    other = ht.PackedLinear(hc.quantize(-values(40, 128).numpy(), "int6"), values(40), "int8")
    state = {**other.state_dict(), "bias": values(40)}
    layer.weight._load_from_state_dict(
        {key[7:]: part for key, part in state.items() if key.startswith("weight.")}, "", {}, True, [], [], []
    )
    assert layer.weight.panels.data_ptr() == address  # which a graph has
    assert torch.equal(ht.linear(given, layer.weight).at_home(), ht.linear(x, other.weight))
    assert not torch.equal(y.at_home(), ht.linear(x, other.weight))


def test_copies_moves_and_states_remake_the_panels(driver: Any) -> None:
    x = values(5, 128)
    layer = packed("int6")
    wanted = ht.linear(x, layer.weight)
    held = driver.live_bytes()
    weight = move(layer).weight
    same = copy.deepcopy(weight)
    assert same.panels is not weight.panels and len(same.operands()) == len(weight.operands())
    again = weight.panels
    weight._apply(lambda part: part)
    assert weight.panels is again
    move(layer, 1)
    assert weight.device == weight.panels.device == torch.device("cuda:1")
    assert torch.equal(ht.linear(there(x, 1), weight).at_home(), wanted)
    assert torch.equal(ht.linear(there(x), same).at_home(), wanted)
    move(layer, None)
    assert "panels" not in weight._buffers and weight.device.type == "cpu"
    assert torch.equal(ht.linear(x, weight), wanted)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    assert torch.equal(ht.linear(x, torch.load(file, weights_only=False).weight), wanted)
    assert driver.live_bytes() == held  # all memory is PyTorch's


def test_components_that_were_replaced_or_written_to_are_read() -> None:
    x, weight = values(5, 128), move(packed("int6")).weight
    other = PackedWeight(hc.quantize(values(40, 128).numpy()[::-1].copy(), "int6"), "int8")
    wanted = ht.linear(x, other)
    for name, part in other._buffers.items():
        weight._buffers[name].copy_(part)
    assert len(weight.operands()) == len(weight.parts())
    assert torch.equal(ht.linear(there(x), weight).at_home(), wanted)
    assert weight.prepack() and torch.equal(ht.linear(there(x), weight).at_home(), wanted)
    first = PackedWeight(hc.quantize(values(40, 128).numpy(), "int6"), "int8")
    for name, part in first._buffers.items():
        weight._buffers[name] = there(part)
    assert torch.equal(ht.linear(there(x), weight).at_home(), ht.linear(x, first))


def test_panels_without_room_are_not_made() -> None:
    x, layer = values(5, 128), packed("int6")
    wanted = layer(x).detach()
    pool = torch_on_device.pools[0]
    pool.room = 40 * 96 + 4 * 512  # the components and the bias
    move(layer)
    assert "panels" not in layer.weight._buffers
    pool.room = pool.nbytes - pool.used
    assert torch.equal(layer(there(x)).at_home(), wanted)
    with pytest.raises(torch.OutOfMemoryError):
        pool.room = 0
        layer.weight.prepack()
    pool.room = pool.nbytes - pool.used
    assert torch.equal(layer(there(x)).at_home(), wanted) and layer.weight.prepack() > 0
    assert torch.equal(layer(there(x)).at_home(), wanted)


def test_panels_are_asked_for_where_they_are_large(driver: Any) -> None:
    x, layer = values(5, 128), packed("mxfp4", "int8")
    wanted = layer(x).detach()
    weight = move(layer).weight
    assert weight.prepack() > weight.nbytes
    assert torch.equal(layer(there(x)).at_home(), wanted)
    assert "panels" in copy.deepcopy(weight)._buffers  # as it was asked for
    cpu = packed("mxfp4").weight
    assert cpu.prepack() == 0
