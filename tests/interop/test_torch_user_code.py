"""Code of users that meets packed modules on a CUDA device: right answers, or one sentence."""

from __future__ import annotations

import copy
import gc
import io
import pickle
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
from heterocompute.interop.torch import products  # noqa: E402
from heterocompute.interop.torch.weights import PackedWeight  # noqa: E402

pytestmark = pytest.mark.usefixtures("only_new_garbage")


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for found in using(monkeypatch):
        gc.collect()
        held = found.live_bytes()
        yield found
        gc.collect()
        assert found.live_bytes() == held  # all memory is PyTorch's


def values(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def weight_of(text: str = "int8", activations: Any = "int8", number: int = 0) -> tuple[Any, Any]:
    """Return a weight on the CPU, and the same on a device."""
    q = hc.quantize(values(7, 64).numpy(), text)
    return PackedWeight(q, activations), move(ht.PackedLinear(q, None, activations), number).weight


def at_home(t: Any) -> Any:
    return t.detach().as_subclass(Tensor).at_home()


@pytest.mark.parametrize("activations", [None, "int8"])
def test_views_strides_and_empty_batches(activations: Any) -> None:
    cpu, weight = weight_of("vsq4-g16-s4", activations)
    x = values(6, 5, 64)
    lent = there(x)
    flat = there(values(64 * 9))
    cases = [
        (lent[::2], x[::2]),
        (lent[:, 1:4], x[:, 1:4]),
        (lent.as_subclass(torch.Tensor).transpose(0, 1).as_subclass(Tensor), x.transpose(0, 1)),
        (lent.as_subclass(torch.Tensor).expand(6, 5, 64).as_subclass(Tensor), x),
        (lent[:1].as_subclass(torch.Tensor).expand(4, 5, 64).as_subclass(Tensor), x[:1].expand(4, 5, 64)),
        (flat.as_subclass(torch.Tensor).as_strided((3, 64), (100, 2), 1).as_subclass(Tensor),
         flat.at_home().as_strided((3, 64), (100, 2), 1)),
        (flat.as_subclass(torch.Tensor).as_strided((64,), (3,)).as_subclass(Tensor),
         flat.at_home().as_strided((64,), (3,))),
        (there(values(0, 64)), values(0, 64)),
        (there(values(2, 0, 64)), values(2, 0, 64)),
    ]  # fmt: skip
    for given, wanted_from in cases:
        y = ht.linear(given, weight)
        wanted = ht.linear(wanted_from.contiguous(), cpu)
        assert y.shape == wanted.shape
        if y.numel():
            assert torch.equal(at_home(y), wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtypes_and_autocast(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, weight = weight_of()
    x = values(5, 64).to(dtype)
    y = ht.linear(there(x), weight)
    assert y.dtype is dtype and torch.equal(at_home(y), ht.linear(x, cpu))
    with monkeypatch.context() as patch:  # as torch.autocast("cuda", torch.bfloat16)
        patch.setattr(products, "_is_autocast", lambda kind: kind == "cuda")
        patch.setattr(products, "_autocast_dtype", lambda kind: torch.bfloat16)
        y = ht.linear(there(x.float()), weight)
    assert y.dtype is torch.bfloat16 and torch.equal(at_home(y), ht.linear(x.float(), cpu).bfloat16())
    with torch.autocast("cpu", torch.bfloat16):  # of another device
        assert ht.linear(there(x.float()), weight).dtype is torch.float32
    rounded = ht.fake_quantize(there(x), "int4-g32", clip=0.7)
    assert rounded.dtype is dtype and torch.equal(at_home(rounded), ht.fake_quantize(x, "int4-g32", clip=0.7))


def test_modes_without_gradients() -> None:
    cpu, weight = weight_of("int6")
    x = values(5, 64)
    given, wanted = there(x).requires_grad_(), ht.linear(x, cpu)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            y = ht.linear(given, weight)
            assert not y.requires_grad and torch.equal(at_home(y), wanted)
            assert torch.equal(
                at_home(ht.fake_quantize(given, "int8", clip=0.5)), ht.fake_quantize(x, "int8", clip=0.5)
            )
    with torch.inference_mode():
        moved = move(ht.PackedLinear(cpu.array(), None, "int8")).weight  # whose components have no versions
        assert torch.equal(at_home(ht.linear(there(x), moved)), wanted)
    assert torch.equal(at_home(ht.linear(there(x), moved)), wanted)


@pytest.mark.parametrize(
    ("text", "clip"), [("int8", 0.5), ("int8", "octav"), ("fp8_e4m3fn", None), ("int4-g32+2:4", 0.8)]
)
def test_second_derivatives_are_those_of_the_cpu(text: str, clip: Any) -> None:
    x, g = values(5, 64) * 300, values(5, 64)
    found = []
    for place in (lambda t: t, there):
        t = place(x).requires_grad_()
        start = place(g).requires_grad_()
        (first,) = torch.autograd.grad(ht.fake_quantize(t, text, clip=clip), t, start, create_graph=True)
        (second,) = torch.autograd.grad(first, start, place(g * 3))
        found.append((first, second))
    assert torch.equal(at_home(found[1][0]), found[0][0]) and torch.equal(at_home(found[1][1]), found[0][1])


def test_devices_that_differ_are_one_sentence() -> None:
    _, weight = weight_of(number=1)
    x = values(5, 64)
    image, filters = there(values(1, 4, 5, 5)), hc.quantize(values(2, 4, 1, 1).numpy(), "int8", axis=(2, 3, 1))
    far = move(ht.PackedConv2d(filters), 1).weight
    y = ht.linear(there(x, 1), weight)
    assert y.device == torch.device("cuda:1")
    cases: list[tuple[Any, str]] = [
        (lambda: ht.linear(there(x), weight), "the packed weight is on cuda:1, expected cuda:0: move the model there"),
        (lambda: ht.linear(x, weight), "the packed weight is on cuda:1, expected the CPU"),
        (lambda: ht.conv2d(image, far), "the packed weight is on cuda:1, expected cuda:0"),
        (lambda: weight.array(), "the packed weight is on cuda:1, expected the CPU"),
        (lambda: ht.linear(there(x), weight[2:4]), "the packed weight is on cuda:1, expected cuda:0"),
        (lambda: torch.nn.functional.relu(weight), "relu: a weight is packed, expected a tensor"),
    ]
    for call, sentence in cases:
        with pytest.raises(TypeError, match=sentence) as raised:
            call()
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["int6", "vsq4-g16-s4"])
def test_states_are_loaded_across_devices(text: str) -> None:
    x, cpu = values(5, 64), weight_of(text)[0]
    other = PackedWeight(hc.quantize(-values(7, 64).numpy(), "int4-g32"), "int8")
    for source in (cpu, other):
        wanted = ht.linear(x, source)
        for number in (None, 0, 1):
            of = source if number is None else move(ht.PackedLinear(source.array(), None, "int8"), number).weight
            state = {f"weight.{key}": part for key, part in of.state_dict().items()}
            for assign in (False, True):
                layer = move(ht.PackedLinear(hc.quantize(values(7, 64).numpy() * 2, text), None, "int8"))
                layer.load_state_dict(state, assign=assign)
                place = (torch.device("cpu") if number is None else torch.device("cuda", number)) if assign else None
                expected = place or torch.device("cuda:0")
                assert layer.weight.device == expected
                given = x if expected.type == "cpu" else there(x, expected.index)
                y = ht.linear(given, layer.weight)
                assert torch.equal(y if expected.type == "cpu" else at_home(y), wanted)


def test_copies_and_pickles() -> None:
    cpu, weight = weight_of("int6")
    x = values(5, 64)
    wanted = ht.linear(x, cpu)
    for copied in (copy.deepcopy(weight), copy.copy(weight)):
        assert torch.equal(at_home(ht.linear(there(x), copied)), wanted)
    file = io.BytesIO()
    torch.save(cpu.state_dict(), file)
    file.seek(0)
    assert sorted(torch.load(file, weights_only=True)) == ["codes", "format", "scales"]
    assert torch.equal(ht.linear(x, pickle.loads(pickle.dumps(cpu))), wanted)


def test_replicas_of_data_parallel_read_their_own_components() -> None:
    cpu, weight = weight_of("int6")
    x, layer = values(5, 64), ht.PackedLinear(cpu.array(), None, "int8")
    move(layer)
    replica = layer._replicate_for_data_parallel()
    replica.bias = None
    replica._modules["weight"] = inner = layer.weight._replicate_for_data_parallel()
    for name, part in inner._buffers.items():  # as torch.nn.parallel.replicate broadcasts them
        inner._buffers[name] = part.to("cuda:1")
    assert torch.equal(at_home(replica(there(x, 1))), ht.linear(x, cpu))
    assert torch.equal(at_home(layer(there(x))), ht.linear(x, cpu))


def test_parametrizations_round_there() -> None:
    for clip in (None, 0.6, "octav"):
        layer = torch.nn.Linear(64, 7, bias=False)
        with torch.no_grad():
            layer.weight.copy_(values(7, 64))
        wanted = ht.fake_quantize(values(7, 64), "int4-g32", clip=clip)
        ht.parametrize(layer, "int4-g32", clip=clip)
        assert torch.equal(layer.weight, wanted)
        rounding = layer.parametrizations["weight"][0]
        latent = there(values(7, 64)).requires_grad_()
        rounded = rounding(latent)
        assert torch.equal(at_home(rounded), wanted)
        g = values(7, 64)
        (found,) = torch.autograd.grad(rounded, latent, there(g))
        t = values(7, 64).requires_grad_()
        assert torch.equal(at_home(found), torch.autograd.grad(ht.fake_quantize(t, "int4-g32", clip=clip), t, g)[0])


def test_rounding_with_a_note_is_captured(monkeypatch: pytest.MonkeyPatch, driver: Any) -> None:
    x = values(5, 64)
    calls: list[Any] = [
        lambda t: ht.fake_quantize(t, "int8", clip="octav"),
        lambda t: ht.fake_quantize(t, "vsq4u-g16-s4", clip=0.7),
        lambda t: ht.fake_quantize(t, "log8-8", rounding="stochastic"),
        lambda t: ht.fake_quantize(t, "fp8_e4m3fn", rounding="stochastic", seed=3),
    ]
    for call in calls:
        given, before = there(x).requires_grad_(), driver.counts()
        with monkeypatch.context() as patch:
            patch.setenv("FAKE_DRIVER_CAPTURES", "1")
            y = call(given)
        assert [now - then for now, then in zip(driver.counts(), before, strict=True)][1:] == [0, 0, 0]
        assert torch.equal(at_home(y), call(x))
        g = there(x)
        with monkeypatch.context() as patch:
            patch.setenv("FAKE_DRIVER_CAPTURES", "1")
            (found,) = torch.autograd.grad(y, given, g)
        t = x.clone().requires_grad_()
        assert torch.equal(at_home(found), torch.autograd.grad(call(t), t, x)[0])


def test_memory_that_runs_out_in_a_forward_pass(driver: Any) -> None:
    cpu, weight = weight_of("int6")
    x, pool = values(5, 64), torch_on_device.pools[0]
    given, wanted = there(x), ht.linear(x, cpu)
    filters = hc.quantize(values(2, 4, 1, 1).numpy(), "int8", axis=(2, 3, 1))
    images, kernels = there(values(1, 4, 5, 5)), move(ht.PackedConv2d(filters, None, "int8")).weight
    for call in (
        lambda: ht.linear(given, weight),
        lambda: ht.fake_quantize(given, "int8+2:4", clip="octav"),
        lambda: ht.fake_quantize(given, "log8-8", rounding="stochastic"),
        lambda: ht.conv2d(images, kernels),
        lambda: weight.dequantize(),
    ):
        failed, left = 0, pool.nbytes - pool.used
        for room in range(0, 40 * 512, 512):
            pool.room = min(room, pool.nbytes - pool.used)
            try:
                call()
            except torch.OutOfMemoryError as error:
                assert str(error) == "CUDA out of memory"
                failed += 1
        assert 0 < failed < 40
        pool.room = pool.nbytes - pool.used
        assert left > 0
        call()
    assert torch.equal(at_home(ht.linear(given, weight)), wanted)


def test_a_lost_device_is_one_sentence(monkeypatch: pytest.MonkeyPatch, driver: Any) -> None:
    _, weight = weight_of()
    q, given = hc.quantize(values(7, 64).numpy(), "int8"), there(values(5, 64))
    array = q.to("cuda")
    monkeypatch.setenv("FAKE_DRIVER_LOST", "1")
    for call in (
        lambda: ht.linear(given, weight),
        lambda: ht.fake_quantize(given, "int8", clip=0.5),
        lambda: q.to("cuda"),
        lambda: array.dequantize(),
        lambda: array.to("cpu"),
    ):
        with pytest.raises(
            RuntimeError, match=r"^cuda: .* failed: an illegal memory access .* \(error 700\)"
        ) as raised:
            call()
        assert "\n" not in str(raised.value)
    monkeypatch.delenv("FAKE_DRIVER_LOST")
    assert array.to("cpu") == q
