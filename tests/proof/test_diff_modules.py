"""`heterocompute.diff` of modules of PyTorch: planted faults are found at their layer, and most with their cause."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import heterocompute as hc

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
WIDTH, HEADS, LAYERS, TOKENS = 32, 4, 6, 12


class Rotary(nn.Module):
    def __init__(self, base: float = 10000.0) -> None:
        super().__init__()
        self.base = base

    def forward(self, positions: Any) -> Any:
        size = WIDTH // HEADS
        angles = positions[:, None] / self.base ** (torch.arange(0, size, 2) / size)
        return torch.cat([angles.cos(), angles.cos()], -1), torch.cat([angles.sin(), angles.sin()], -1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.scale = (WIDTH // HEADS) ** -0.5
        self.kind = "softmax"

    def forward(self, x: Any, mask: Any = None, position: Any = None) -> Any:
        def heads(y: Any) -> Any:
            return y.reshape(len(y), -1, HEADS, WIDTH // HEADS).transpose(1, 2)

        def turned(y: Any) -> Any:
            half = y.shape[-1] // 2
            return y * position[0] + torch.cat([-y[..., half:], y[..., :half]], -1) * position[1]

        q, k, v = turned(heads(self.q(x))), turned(heads(self.k(x))), heads(self.v(x))
        scores = q @ k.transpose(-1, -2) * self.scale + mask
        mixed = scores.softmax(-1) @ v if self.kind == "softmax" else scores.sigmoid() @ v
        return self.o(mixed.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down, self.act = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH), nn.GELU()
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Any, mask: Any = None, position: Any = None) -> Any:
        x = x + self.attention(self.norm1(x), mask=mask, position=position)
        return x + self.dropout(self.down(self.act(self.up(self.norm2(x)))))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rotary = nn.Embedding(50, WIDTH), Rotary()
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 50, bias=False)
        self.is_causal, self.stride = True, 1

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        mask = torch.full((ids.shape[1],) * 2, -1e9).triu(1) if self.is_causal else torch.zeros((ids.shape[1],) * 2)
        position = self.rotary(torch.arange(ids.shape[1]) * self.stride)
        for block in self.blocks:
            x = block(x, mask=mask, position=position)
        return self.head(self.norm(x))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.bn1, self.bn2 = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.act, self.pool, self.fc = nn.ReLU(), nn.AvgPool2d(2), nn.Linear(8 * 16, 10)

    def forward(self, x: Any) -> Any:
        x = self.pool(self.act(self.bn1(self.conv1(x))))
        x = self.pool(self.act(self.bn2(self.conv2(x))))
        return self.fc(x.flatten(1))


class Summed(nn.Linear):
    """A linear layer whose sums are those of a narrow accumulator."""

    def forward(self, x: Any) -> Any:
        y = hc.emulate.matmul(x.reshape(-1, x.shape[-1]).numpy(), self.weight.detach().numpy().T, "fp22")
        return torch.from_numpy(y).reshape(*x.shape[:-1], -1) + self.bias


class Split(nn.Linear):
    """A linear layer that adds four parts of k."""

    def forward(self, x: Any) -> Any:
        parts = zip(x.chunk(4, -1), self.weight.chunk(4, -1), strict=True)
        return sum(one @ w.T for one, w in parts) + self.bias


class Coded(nn.Linear):
    """A linear layer of int8 codes with one scale per row."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        q = hc.quantize(self.weight.detach().numpy(), "int8")
        self.weight = None
        self.register_buffer("codes", torch.from_numpy(q.components["codes"].view(np.int8).reshape(outputs, inputs)))
        self.register_buffer("scales", torch.from_numpy(q.components["scales"].astype(np.float32).reshape(outputs, 1)))

    def forward(self, x: Any) -> Any:
        return F.linear(x, self.codes.float() * self.scales, self.bias)


class Cached(nn.Module):
    """Attention of one token over the keys of the tokens before it."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any, past: Any = None) -> Any:
        keys = self.k(x) if past is None else torch.cat([past, self.k(x)], 1)
        return (self.q(x) @ keys.transpose(1, 2)).softmax(-1) @ keys, keys


class Decoder(nn.Module):
    """Prefill of all tokens but two, and two steps that decode."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.one, self.two = nn.Embedding(50, WIDTH), Cached(), Cached()
        self.register_buffer("inv_freq", torch.ones(4))
        self.is_stale = False

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        y, first = self.one(x[:, :-2])
        y, second = self.two(y)
        for i in (-2, -1):
            y, grown = self.one(x[:, i : i + 1 or None], past=first)
            first = first if self.is_stale else grown
            y, second = self.two(y, past=second)
        return y


class Turned(Convolutions):
    """The same network, which reads the last image in channels-last order."""

    def forward(self, x: Any) -> Any:
        x = self.pool(self.act(self.bn1(self.conv1(x))))
        x = self.pool(self.act(self.bn2(self.conv2(x))))
        return self.fc(x.permute(0, 2, 3, 1).flatten(1))


class Frequencies(nn.Module):
    """Rotary positions whose frequencies are a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inv_freq", 1e4 ** -torch.arange(0, 1, 0.25))

    def forward(self, positions: Any) -> Any:
        return (positions[:, None] * self.inv_freq).cos()


def narrow(layer: Any) -> Any:
    """Return a layer in bfloat16 with float32 inputs and outputs."""
    layer.to(torch.bfloat16)
    layer.register_forward_pre_hook(lambda _, args: tuple(one.to(torch.bfloat16) for one in args))
    layer.register_forward_hook(lambda _m, _a, y: y.float())
    return layer


def replaced(layer: Any, kind: Any) -> Any:
    made = kind(layer.in_features, layer.out_features)
    made.load_state_dict(layer.state_dict())
    return made


def edit(path: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def act(net: Any) -> None:
        with torch.no_grad():
            made = change(net.get_submodule(path))
        if isinstance(made, nn.Module):
            parent, _, name = path.rpartition(".")
            setattr(net.get_submodule(parent), name, made)

    return act


def setting(path: str, key: str, value: Any) -> Callable[[Any], Any]:
    return lambda net: setattr(net.get_submodule(path), key, value)


FAULTS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "transposed": (edit("blocks.2.attention.q", lambda m: m.weight.copy_(m.weight.T.clone())), "blocks.2.attention.q",
                   "layout"),
    "one weight": (edit("blocks.1.up", lambda m: m.weight[3].mul_(1.01)), "blocks.1.up", "weights"),
    "bias": (edit("blocks.5.down", lambda m: m.bias[1].add_(0.01)), "blocks.5.down", "weights"),
    "scale of a norm": (edit("blocks.0.norm2", lambda m: m.weight[0].mul_(1.5)), "blocks.0.norm2", "weights"),
    "embedding": (edit("embed", lambda m: m.weight[7].add_(0.1)), "embed", "weights"),
    "head": (edit("head", lambda m: m.weight.mul_(1.001)), "head", "weights"),
    "eps": (setting("blocks.3.norm1", "eps", 1e-2), "blocks.3.norm1", "operation"),
    "activation": (edit("blocks.4.act", lambda m: nn.SiLU()), "blocks.4.act", "operation"),
    "approximate gelu": (edit("blocks.4.act", lambda m: nn.GELU("tanh")), "blocks.4.act", "operation"),
    "rope base": (setting("rotary", "base", 500000.0), "rotary", "operation"),
    "scale of attention": (setting("blocks.1.attention", "scale", 0.3), "blocks.1.attention", "operation"),
    "kind of attention": (setting("blocks.1.attention", "kind", "sigmoid"), "blocks.1.attention", "operation"),
    "bf16": (edit("blocks.2.down", narrow), "blocks.2.down", "format"),
    "fp22": (edit("blocks.2.up", lambda m: replaced(m, Summed)), "blocks.2.up", "accumulator"),
    "dropout": (lambda net: net.get_submodule("blocks.3.dropout").train(), "blocks.3.dropout", "nondeterminism"),
    "mask": (setting("", "is_causal", False), "(whole)", "mask"),
    "position": (setting("", "stride", 2), "(whole)", "position"),
    "no residual": (edit("blocks.0", lambda m: setattr(m, "forward", lambda x, mask=None, position=None: m.attention(
        m.norm1(x), mask=mask, position=position))), "blocks.0", "operation"),
}  # fmt: skip


@pytest.fixture(scope="module")
def net() -> Any:
    torch.manual_seed(0)
    return Transformer().eval()


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_at_its_layer(net: Any, fault: str) -> None:
    act, layer, cause = FAULTS[fault]
    other = copy.deepcopy(net)
    act(other)
    found = hc.diff(net, other, torch.arange(2 * TOKENS).reshape(2, TOKENS) % 50)
    assert not found.equal and found.layer == layer
    assert found.cause == cause, (found.tested, found.notes)
    assert found.rows[-1]["status"] == "differs" and all(row["status"] == "equal" for row in found.rows[:-1])


CNN_FAULTS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "statistics": (edit("bn1", lambda m: m.running_mean.add_(0.1)), "bn1", "weights"),
    "training": (lambda net: net.bn2.train(), "bn2", "operation"),
    "filter": (edit("conv2", lambda m: m.weight[0].neg_()), "conv2", "weights"),
    "pool": (edit("pool", lambda m: nn.MaxPool2d(2)), "pool", "operation"),
    "padding": (edit("conv1", lambda m: setattr(m, "padding_mode", "reflect") or setattr(
        m, "_reversed_padding_repeated_twice", [1] * 4)), "conv1", "operation"),
    "fc in bf16": (edit("fc", narrow), "fc", "format"),
}  # fmt: skip


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("fault", CNN_FAULTS)
def test_faults_of_a_convolutional_network(fault: str) -> None:
    torch.manual_seed(1)
    net = Convolutions().eval()
    act, layer, cause = CNN_FAULTS[fault]
    other = copy.deepcopy(net)
    act(other)
    found = hc.diff(net, other, np.random.default_rng(0).standard_normal((2, 3, 16, 16), dtype=np.float32))
    assert (found.layer, found.cause) == (layer, cause), (found.tested, found.notes)


def test_equal_networks_are_equal(net: Any) -> None:
    ids = torch.arange(TOKENS)[None]
    found = hc.diff(net, copy.deepcopy(net), {"ids": ids})
    assert found.equal and found.layer is None and len(found.rows) > 40
    with pytest.raises(TypeError, match="diff: b is"):
        hc.diff(net, 3, ids)


def test_a_nan_is_a_difference(net: Any) -> None:
    class Broken(nn.GELU):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            y[0, 1, 2] = float("nan")
            return y

    other = copy.deepcopy(net)
    other.blocks[2].act = Broken()
    found = hc.diff(net, other, torch.arange(TOKENS)[None])
    assert (found.layer, found.cause) == ("blocks.2.act", "operation") and found.rows[-1]["residual"] == float("inf")
    assert hc.diff(other, copy.deepcopy(other), torch.arange(TOKENS)[None]).equal


def test_modules_are_not_changed() -> None:
    torch.manual_seed(2)
    net, x = Convolutions().train(), torch.randn(2, 3, 16, 16)
    before = copy.deepcopy(net.state_dict())
    state = torch.get_rng_state()
    hc.diff(net, copy.deepcopy(net), x)
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert torch.equal(state, torch.get_rng_state()) and not net._forward_hooks and net.training


def flip(tensor: Any) -> None:
    tensor.view(torch.int32)[1, 0] ^= 1 << 20


def other_faults(net: Any) -> dict[str, tuple[Any, Any, Any, Any, tuple[str, str]]]:
    """Faults of other networks: a, b, the inputs of both, and the layer with its cause."""
    torch.manual_seed(4)
    ids = torch.arange(TOKENS)[None]
    swapped = ids.clone()
    swapped[0, 5] += 1
    split, decoder, images, rope = copy.deepcopy(net), Decoder(), Convolutions().eval(), Frequencies()
    coded = nn.Sequential(Coded(16, 8), nn.ReLU(), Coded(8, 8))
    edit("blocks.1.down", lambda m: replaced(m, Split))(split)
    stale, turned, bit, slow = copy.deepcopy(decoder), Turned().eval(), copy.deepcopy(coded), copy.deepcopy(rope)
    stale.is_stale = True
    turned.load_state_dict(images.state_dict())
    flip(bit[2].scales)
    slow.inv_freq.mul_(0.5)
    x, y, positions = torch.randn(2, 3, 16, 16), torch.randn(4, 16), torch.arange(9.0)
    return {
        "split-K of 4": (net, split, ids, ids, ("blocks.1.down", "order")),
        "swapped token id": (net, copy.deepcopy(net), ids, swapped, ("(whole)", "input")),
        "stale cache entry": (decoder, stale, ids, ids, ("(whole)", "cache")),
        "channels-last": (images, turned, x, x, ("(whole)", "layout")),
        "one bit of a scale": (coded, bit, y, y, ("2", "weights")),
        "frequencies": (rope, slow, positions, positions, ("(whole)", "position")),
    }


@pytest.mark.parametrize("fault", ["split-K of 4", "swapped token id", "stale cache entry", "channels-last",
                                   "one bit of a scale", "frequencies"])  # fmt: skip
def test_faults_of_other_networks(net: Any, fault: str) -> None:
    a, b, inputs, others, wanted = other_faults(net)[fault]
    found = hc.diff(a, b, inputs, others)
    assert not found.equal and (found.layer, found.cause) == wanted, (found.tested, found.notes)
    if fault == "stale cache entry":
        assert found.notes == ["one has another past: the code before it differs"]
    assert len(FAULTS) + len(CNN_FAULTS) + 6 == 30


def test_another_order_is_not_a_fault(net: Any) -> None:
    other = copy.deepcopy(net)
    edit("blocks.1.down", lambda m: replaced(m, Split))(other)
    found = hc.diff(net, other, torch.arange(TOKENS)[None])
    assert (found.layer, found.cause, found.equal) == ("blocks.1.down", "order", False)
    memory = nn.Sequential(copy.deepcopy(Convolutions())).eval()
    x = torch.randn(1, 3, 16, 16)
    last = hc.diff(memory, copy.deepcopy(memory).to(memory_format=torch.channels_last), x)
    assert last.cause in (None, "order")


def test_a_swapped_id_is_the_input(net: Any) -> None:
    ids = torch.arange(TOKENS)[None]
    other = ids.clone()
    other[0, 5] += 1
    found = hc.diff(net, copy.deepcopy(net), ids, other)
    assert (found.layer, found.cause) == ("(whole)", "input") and "(0, 5)" in found.notes[0]


def test_the_first_module_may_compute_in_a_format() -> None:
    from heterocompute.interop import torch as ht

    plain = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
    trained = ht.train_in(copy.deepcopy(plain), "mxfp8")
    x = torch.from_numpy(np.random.default_rng(2).standard_normal((3, 64)).astype(np.float32))
    for pair in ((plain, trained), (trained, plain)):
        found = hc.diff(*pair, inputs=x)
        assert (found.equal, found.layer) == (False, "0")
    assert hc.diff(trained, trained, inputs=x).equal


@pytest.mark.parametrize("activations", [None, "int8", "mxfp8_e4m3"])
@pytest.mark.parametrize("fmt", ["int8", "vsq4-g16-s4", "nf4-g64", "int8+2:4"])
def test_a_packed_layer_differs_by_its_format(fmt: str, activations: str | None) -> None:
    from heterocompute.interop import torch as ht

    torch.manual_seed(int(np.random.default_rng(6).integers(1000)))
    plain = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32))
    packed, x = ht.convert(plain, fmt, activations=activations), torch.randn(5, 64)
    found = hc.diff(plain, packed, x)
    inputs = "" if activations is None else f", its inputs in {activations}"
    assert (found.layer, found.cause, found.notes) == ("0", "format", [f"b has its weight in {fmt}{inputs}"])
    assert found.residual is not None and found.residual < 0.2
    with torch.no_grad():
        packed[0].bias[3] += 1e-2
    assert hc.diff(plain, packed, x).cause != "format"
    images = nn.Sequential(nn.Conv2d(16, 8, 3), nn.ReLU())
    seen = hc.diff(images, ht.convert(images, "int4-g8"), torch.randn(2, 16, 6, 6))
    assert (seen.layer, seen.cause, seen.notes) == ("0", "format", ["b has its weight in int4-g8"])


def layers_of_kinds() -> dict[str, tuple[Any, Any]]:
    """Return a first layer of each kind that `convert` packs, and its input."""
    nn, image = torch.nn, torch.randn(2, 8, 9, 10)
    normed = torch.nn.utils.parametrizations.weight_norm(nn.Linear(64, 16))
    return {
        "embedding": (nn.Embedding(20, 16), torch.randint(20, (3, 5))),
        "computed": (normed, torch.randn(5, 64)),
        "conv1d": (nn.Conv1d(8, 16, 3, padding=1), image[0].transpose(0, 1)),
        "conv2d": (nn.Conv2d(8, 16, 3, stride=2), image),
        "groups": (nn.Conv2d(8, 16, 3, groups=4, padding="same", dilation=2), image),
        "each channel": (nn.Conv2d(8, 8, 5, groups=8), image),
        "conv3d": (nn.Conv3d(8, 16, 2), image[:, :, None].repeat(1, 1, 3, 1, 1)),
        "turned": (nn.ConvTranspose2d(8, 16, 3, stride=2, groups=2), image),
        "turned1d": (nn.ConvTranspose1d(8, 16, 3), image[0].transpose(0, 1)),
    }


@pytest.mark.parametrize("activations", [None, "int8", "fp8_e4m3fn"])
@pytest.mark.parametrize("fmt", ["int8", "vsq4-g16-s4"])
def test_every_kind_of_packed_layer_differs_by_its_format(fmt: str, activations: str | None) -> None:
    ht = pytest.importorskip("heterocompute.interop.torch")
    torch.manual_seed(1)
    for kind, (layer, x) in layers_of_kinds().items():
        if kind == "conv3d" and activations is not None:  # volumes are rounded window by window
            continue
        model = torch.nn.Sequential(layer, torch.nn.Flatten())
        found = hc.diff(model, ht.convert(model, fmt, activations=activations), x)
        assert (found.layer, found.cause) == ("0", "format"), (kind, found)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_weight_that_a_hook_computes_has_the_bound_of_its_sums() -> None:
    ht = pytest.importorskip("heterocompute.interop.torch")
    torch.manual_seed(1)
    model, x = torch.nn.Sequential(torch.nn.utils.weight_norm(torch.nn.Linear(64, 16))), torch.randn(5, 64)
    assert hc.diff(model, model, x).equal
    assert hc.diff(model, ht.convert(model, "int8"), x).cause == "format"


@pytest.mark.parametrize("activations", [None, "int8", "fp8_e4m3fn"])
@pytest.mark.parametrize("fmt", ["int8", "int4-g16"])
def test_a_layer_that_rotates_its_inputs_differs_by_its_format(fmt: str, activations: str | None) -> None:
    from heterocompute.interop.torch.turned import PackedTurnedLinear

    torch.manual_seed(1)
    plain, x = torch.nn.Linear(64, 16), torch.randn(9, 64) * torch.ones(64).index_fill(0, torch.tensor([3]), 40)
    q = hc.quantize(hc.ptq.hadamard(plain.weight.detach().numpy(), block=64), fmt)
    packed = PackedTurnedLinear(q, copy.deepcopy(plain.bias), activations, 64)
    found = hc.diff(torch.nn.Sequential(plain), torch.nn.Sequential(packed), x)
    assert (found.layer, found.cause) == ("0", "format")
    packed.bias.data[3] += 1
    assert hc.diff(torch.nn.Sequential(plain), torch.nn.Sequential(packed), x).cause != "format"
