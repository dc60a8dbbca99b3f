"""torch.nn.Modules as networks: counts equal those of layers, of torch's counter, and published counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument

import heterocompute as hc
from heterocompute import hardware as hw

torch = pytest.importorskip("torch")
nn = torch.nn


def small() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, (3, 1), (2, 1), groups=4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip


LAYERS = [
    hw.layers.Conv2d(3, 8, 3, padding=1, bias=False), hw.layers.BatchNorm2d(8), hw.layers.Activation(),
    hw.layers.MaxPool2d(2, 2),
    hw.layers.Conv2d(8, 8, (3, 1), (2, 1), groups=4), hw.layers.AdaptiveAvgPool2d(1), hw.layers.Flatten(),
    hw.layers.Linear(8, 10),
]  # fmt: skip


@pytest.mark.parametrize("like", hw.CONVENTIONS)
def test_a_module_counts_as_its_layers_do(like: str) -> None:
    one, other = hw.count(small(), (3, 16, 16), like), hw.count(LAYERS, (3, 16, 16), like)
    assert (one.total, one.params, one.activations) == (other.total, other.params, other.activations)
    assert one.params == sum(value.numel() for value in small().parameters())
    loops = [row["loops"] for row in one.layers if row["loops"]]
    assert loops == [row["loops"] for row in other.layers if row["loops"]]


class Block(nn.Module):  # type: ignore[misc, name-defined]
    """A transformer block that calls functions, ties a matrix and multiplies by a parameter."""

    def __init__(self, width: int = 16, heads: int = 4, tokens: int = 50) -> None:
        super().__init__()
        self.heads, self.table = heads, nn.Embedding(tokens, width)
        self.norm, self.inputs, self.last = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gain = nn.Parameter(torch.ones(width))
        self.out = nn.Linear(width, tokens, bias=False)
        self.out.weight = self.table.weight

    def forward(self, tokens: Any) -> Any:
        x = self.table(tokens)
        q, k, v = self.inputs(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.out(nn.functional.gelu(x + self.gain * self.last(y)))


def test_functions_are_seen_and_a_tied_matrix_counts_once() -> None:
    block = Block()
    found = hw.count(block, (12,))
    assert found.params == sum(value.numel() for value in block.parameters())
    assert found.macs == 12 * (16 * 48 + 16 * 16 + 16 * 50) + 2 * 12 * 12 * 16
    assert hw.roofline(block, "h100-sxm", "fp16", input_shape=(12,)).operations == 2 * found.macs
    report = hw.accelerators.tpu_v1().report(block, input_shape=(12,))
    assert report.macs == found.macs and "inputs" in {layer.name for layer in report.layers}


def test_the_same_sum_as_torchs_own_counter() -> None:
    """Twice the multiply-adds of convolutions and matrix products, as torch's own mode counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    for module, shape, x in (
        (small(), (3, 16, 16), torch.zeros(1, 3, 16, 16)),
        (nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4, bias=False)), (7, 6), torch.zeros(1, 7, 6)),
    ):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            module.eval()(x)
        assert hw.count(module, shape, "flop").total == counter.get_total_flops(), type(module).__name__


def test_recurrent_layers_count_every_step() -> None:
    """The initial state of zeros needs no input, and a reused matrix adds no parameters."""
    lstm = nn.LSTM(6, 5, batch_first=True)
    found = hw.count(lstm, (7, 6))
    assert found.macs == 7 * (6 * 20 + 5 * 20)
    assert found.params == sum(value.numel() for value in lstm.parameters())


def test_the_module_is_left_as_it_was() -> None:
    module = small().train()
    module[1].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    hw.count(module, (3, 16, 16))
    assert module.training and not module[1].training and module[0].weight.requires_grad
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in module.modules())


class Looks(nn.Module):  # type: ignore[misc, name-defined]
    """A module that branches on a value, which does not exist on the meta device."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 8), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.one(x) if float(x.sum()) > 1 else self.two(x)


def test_a_module_that_looks_at_values_runs_for_real() -> None:
    assert hw.count(Looks(), (4,)).macs == 12


@pytest.mark.parametrize(
    ("module", "shape", "words"),
    [
        (small(), None, "input_shape is missing: Sequential, a torch.nn.Module, needs the shape of one sample"),
        (small(), (4, 16, 16), r"Sequential: input_shape \(4, 16, 16\) does not run: .*channels"),
        (nn.Sequential(nn.Bilinear(3, 3, 2)), (3,), "Sequential: input_shape .* does not run: .*input2"),
    ],
)
def test_refusals(module: Any, shape: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hw.count(module, shape)


def test_what_wraps_a_module_counts_as_the_module() -> None:
    exported = torch.export.export(small().eval(), (torch.ones(1, 3, 16, 16),)).module()
    want = hw.count(small(), (3, 16, 16))
    for module in (nn.DataParallel(small()), nn.DataParallel(nn.DataParallel(small())), exported):
        found = hw.count(module, (3, 16, 16))
        assert (found.macs, found.params) == (want.macs, want.params)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripts_are_refused_by_name() -> None:
    script = torch.jit.script(nn.Linear(8, 4))
    with bad_argument(ValueError, None, "value", "ScriptModule"):
        hw.count(script, (8,))
    with bad_argument(ValueError, "its", "value"):
        hw.count(nn.Sequential(script), (8,))


def test_a_study_takes_a_module() -> None:
    module = small()
    found = hc.study(module, ["int8"])
    by_hand = hc.study({name: value.numpy() for name, value in module.state_dict().items()}, ["int8"])
    assert [row["bytes"] for row in found.table] == [row["bytes"] for row in by_hand.table]
    assert {row["name"] for row in found.layers} == {"0.weight", "4.weight", "7.weight"}


def test_torch_is_never_imported() -> None:
    code = "import sys; sys.modules['torch'] = None; from heterocompute import hardware as hw; hw.count('digits')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_exported_networks_count_as_the_modules_do(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    path = tmp_path / "small.onnx"
    torch.onnx.export(small().eval(), torch.zeros(1, 3, 16, 16), str(path), dynamo=False)
    assert hw.count(path).macs == hw.count(small(), (3, 16, 16)).macs
    found = hc.study(path, ["int8"])
    assert sorted(np.prod(row["shape"]) for row in found.layers if row["format"] == "int8") == [24 * 2, 80, 216]


class Twice(torch.nn.Module):
    """Uses modules under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16)
        self.b, self.again = self.a, self.norm

    def forward(self, x: Any) -> Any:
        return self.again(self.b(self.norm(self.a(x))))


def test_a_count_leaves_shared_modules_as_they_are() -> None:
    model, x = Twice().eval(), torch.randn(2, 16)
    before = model(x)
    report = hw.count(model, (16,))
    assert (report.macs, report.params) == (2 * 16 * 16, 16 * 17 + 2 * 16)
    assert {one.device.type for one in (*model.parameters(), *model.buffers())} == {"cpu"}
    assert torch.equal(model(x), before) and model.a is model.b


def test_a_count_leaves_tied_packed_weights_as_they_are() -> None:
    from heterocompute.interop import torch as ht

    model = torch.nn.Sequential(torch.nn.Embedding(50, 32), torch.nn.Linear(32, 32), torch.nn.Linear(32, 50))
    model[2].weight = model[0].weight
    small, ids = ht.convert(model, "int8"), torch.arange(6)[None]
    before = small(ids)
    for one in (model, small):
        report = hw.count(one, (6,))
        assert (report.macs, report.params) == (6 * 32 * 82, 50 * 32 + 32 * 33 + 50)
    assert torch.equal(small(ids), before)


def test_packed_experts_are_counted() -> None:
    transformers = pytest.importorskip("transformers")
    from heterocompute.interop import torch as ht

    made = transformers.MixtralConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
        vocab_size=60, num_local_experts=4)  # fmt: skip
    model = transformers.MixtralForCausalLM(made).eval()
    report = hw.count(model, inputs={"input_ids": (8,)})
    assert report.params == sum(one.numel() for one in model.parameters())
    small = hw.count(ht.convert(model, "int8"), inputs={"input_ids": (8,)})
    assert (small.macs, small.params) == (report.macs, report.params)
