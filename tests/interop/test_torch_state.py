"""State dicts of converted models in files and other processes; `summary`; models on several devices."""

from __future__ import annotations

import copy
import io

import pytest
from common import bad_argument

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from heterocompute.interop import torch as ht  # noqa: E402


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.body, self.head = nn.Embedding(50, 32), nn.Conv1d(32, 32, 3, padding=1), nn.Linear(32, 50)
        self.turn, self.attend = nn.ConvTranspose3d(4, 6, 2, groups=2), nn.MultiheadAttention(32, 4)
        self.head.weight = self.table.weight

    def forward(self, ids):
        x = self.table(ids)
        x = self.body(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.attend(x, x, x)[0]), self.turn(x.reshape(-1, 4, 2, 2, 2))


IDS = torch.randint(0, 50, (2, 6))


def bits(model):
    return b"".join(one.detach().numpy().tobytes() for one in model(IDS))


@pytest.mark.parametrize("activations", [None, "int8"])
def test_a_state_goes_into_a_model_that_is_not_converted(activations):
    torch.manual_seed(0)
    small = ht.convert(Tied(), {"body": "int8", "*": "int4-g4"}, activations=activations)
    file = io.BytesIO()
    torch.save(small.state_dict(), file)
    file.seek(0)
    state, plain = torch.load(file, weights_only=True), Tied()
    found = ht.load_packed(plain, state)
    assert bits(found) == bits(small) and found.head.weight is found.table.weight
    assert isinstance(plain.head, nn.Linear) and str(found.body.weight.format) == "int8"
    with torch.device("meta"):
        empty = Tied()
    found = ht.load_packed(empty, state, inplace=True)
    assert bits(found) == bits(small) and found is empty
    with pytest.raises(RuntimeError, match="Unexpected key.*table.weight.codes"):
        plain.load_state_dict(state)
    for wrong, error, words in (
        ([state], TypeError, "load_packed: state is"),
        (Tied().state_dict(), ValueError, "state has no packed weight, expected the state_dict"),
        ({**state, "tail.weight.format": state["body.weight.format"]}, ValueError, "weight 'tail.weight', which is no"),
        ({**state, "body.weight.scales": torch.ones(1, 1)}, ValueError, "body.weight.scales is torch.float32 .1, 1."),
        ({k: v for k, v in state.items() if k != "head.bias"}, RuntimeError, "Missing key.*head.bias"),
    ):
        with pytest.raises(error, match=words):
            ht.load_packed(plain, wrong)
    other = Tied()
    other.body = nn.Conv1d(32, 32, 5)
    with bad_argument(ValueError, "body", "shape"):
        ht.load_packed(other, state)


class Scaled(nn.Embedding):
    """The embedding of Gemma and BART: a class with a forward pass of its own, whose table the head shares."""

    def forward(self, ids):
        return super().forward(ids) * 8


def test_a_packed_head_is_loaded_next_to_its_float_table():
    net = Tied()
    net.table = Scaled(*net.table.weight.shape)
    net.head.weight = net.table.weight
    small = ht.convert(net, "int4-g4")
    state = small.state_dict()
    assert "head.weight.codes" in state and "table.weight" in state
    again = ht.load_packed(net, state)
    assert type(again.table.weight) is nn.Parameter and set(again.state_dict()) == set(state)
    assert all(torch.equal(part, state[name]) for name, part in again.state_dict().items())


@pytest.mark.parametrize("is_meta", [False, True])
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("formats", [{"table": "int8", "*": "int4-g4"}, {"table": None, "head": None, "*": "int8"}])
def test_tied_layers_with_other_weights_in_the_state_keep_them(formats, inplace, is_meta):
    torch.manual_seed(0)
    model = Tied()
    if formats["table"] is None:  # floats that are tied no longer
        model.head.weight = nn.Parameter(model.head.weight.detach() + 1)
    small = ht.convert(model, formats)
    with torch.device("meta" if is_meta else "cpu"):
        plain = Tied()
    found = ht.load_packed(plain, small.state_dict(), inplace=inplace)
    assert bits(found) == bits(small) and found.head.weight is not found.table.weight
    assert (found is plain) == inplace and (plain.head.weight is plain.table.weight) != inplace


def test_safetensors_holds_a_tied_weight_once(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    torch.manual_seed(0)
    small = ht.convert(Tied(), "int4-g4")
    safetensors.save_model(small, tmp_path / "small.safetensors")
    state = safetensors.load_file(tmp_path / "small.safetensors")
    assert ("table.weight.codes" in state) != ("head.weight.codes" in state)
    assert bits(ht.load_packed(Tied(), state)) == bits(small)
    again = ht.convert(Tied(), "int4-g4")
    safetensors.load_model(again, tmp_path / "small.safetensors")
    assert bits(again) == bits(small)


def test_a_summary_says_what_was_packed_and_why_the_rest_was_not():
    torch.manual_seed(0)
    net = nn.Sequential(Tied(), nn.LSTM(8, 8), nn.Linear(8, 4))
    small = ht.convert(net, {"2": "skip", "0.body": "int8", "*": "int4-g4"}, activations="int8")
    found = ht.summary(small)
    rows = {row["name"]: row for row in found.records()}
    assert rows["0.body.weight"]["format"] == "int8" and rows["0.body.weight"]["activations"] == "int8"
    assert rows["0.table.weight"]["activations"] is None and rows["0.table.weight"]["kind"] == "embedding"
    assert [row["kind"] for row in rows.values()][1:4] == ["conv1d", "linear", "conv_transpose3d"]
    assert rows["0.head.weight"]["reason"] == "tied to 0.table.weight" and rows["0.head.weight"]["after"] == 0
    assert rows["1.weight_ih_l0"]["reason"] == "LSTM multiplies by float weights alone"
    assert rows["2.weight"]["reason"] == "not chosen" and rows["2.weight"]["before"] == rows["2.weight"]["after"] == 128
    stored = {id(t): t.nbytes for t in (*small.parameters(), *small.buffers())}
    assert found.after == sum(stored.values())
    assert found.before == sum(t.nbytes for t in net.parameters())
    text = repr(found)
    assert "0.table.weight" in text and "6 of 9 weights packed" in text and "<td>int4-g4</td>" in found._repr_html_()
    assert ht.summary(net).after == found.before
    found.to_csv  # noqa: B018 (a Tabular)
    with bad_argument(TypeError, "model", "type"):
        ht.summary(3)


def test_moving_a_model_leaves_the_components_as_they_are():
    torch.manual_seed(0)
    small = ht.convert(Tied(), "int4-g4")
    before = bits(small)
    half = copy.deepcopy(small).bfloat16()
    assert half.head.weight.dtype == torch.bfloat16 and half(IDS)[0].dtype == torch.bfloat16
    assert half.head.packed() == small.head.packed() and bits(half.float()) != b""
    small.share_memory()
    assert small.table.weight.codes.is_shared() and bits(small) == before
    meta = copy.deepcopy(small).to("meta")
    assert meta.table.weight.device.type == "meta"
    meta.to_empty(device="cpu").load_state_dict(small.state_dict())
    assert bits(meta) == before
    assert not any(p.requires_grad and p.ndim > 1 for name, p in small.named_parameters())
    with bad_argument(
        TypeError, None, "device", "the packed weight is on meta, expected the CPU: load its values first"
    ):
        with torch.no_grad():
            copy.deepcopy(small).to("meta").head(torch.ones(2, 32))
    with bad_argument(TypeError, None, "device", "the packed weight is on meta, expected"):
        copy.deepcopy(small).to("meta").head(torch.ones(2, 32))


def test_autocast_decides_the_dtype_of_the_answer():
    layer = ht.convert(nn.Linear(32, 8), "int8")
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.ones(2, 32)).dtype == torch.bfloat16
        assert layer(torch.ones(2, 32, requires_grad=True)).dtype == torch.bfloat16
    assert layer(torch.ones(2, 32)).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_inputs_of_other_dtypes(dtype):
    layer, x = ht.convert(nn.Linear(32, 8), "int8", activations="int8"), torch.randn(3, 32).to(dtype)
    y = layer(x)
    assert y.dtype == dtype and torch.equal(y, layer(x.float()).to(dtype))


def test_compiled_and_exported_models_compute_the_same():
    torch.manual_seed(0)
    small = ht.convert(Tied(), "int4-g4", activations="int8").eval()
    exported = torch.export.export(small, (IDS,)).module()
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(exported(IDS), small(IDS), strict=True))
    x = torch.randn(2, 32, requires_grad=True)
    compiled = torch.compile(small.head, backend="aot_eager", fullgraph=True)
    compiled(x).square().sum().backward()
    given = x.grad.clone()
    x.grad = None
    small.head(x).square().sum().backward()
    assert torch.equal(given, x.grad)
    batched = torch.vmap(small.head)(x.detach()[:, None])
    assert torch.allclose(batched[:, 0], small.head(x.detach()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["table", "head"])
def test_floats_that_are_tied_to_a_packed_layer_are_copies(name):
    def network():
        net = nn.ModuleDict({"table": nn.Embedding(8, 16), "head": nn.Linear(16, 8, bias=False)})
        net["head"].weight = net["table"].weight
        return net

    model, other, plain = network(), network(), "head" if name == "table" else "table"
    small, values = ht.convert(model, {f"{name}.*": "int8"}), other["head"].weight.detach().clone()
    assert small[plain].weight is not model[plain].weight
    loaded = ht.load_packed(other, small.state_dict())
    assert torch.equal(loaded[plain].weight, model["head"].weight)
    assert torch.equal(other["head"].weight, values) and other["head"].weight is other["table"].weight


def test_an_adapter_trains_on_top_of_a_packed_layer():
    torch.manual_seed(0)

    class Adapter(nn.Module):
        def __init__(self, layer, rank=4):
            super().__init__()
            self.layer = layer
            self.down = nn.Linear(layer.in_features, rank, bias=False)
            self.up = nn.Linear(rank, layer.out_features, bias=False)
            nn.init.zeros_(self.up.weight)

        def forward(self, x):
            return self.layer(x) + self.up(self.down(x))

    net = ht.convert(nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)), "nf4-g32")
    net.requires_grad_(False)
    codes = net[0].weight.codes.clone()
    net[0], net[2] = Adapter(net[0]), Adapter(net[2])
    x, y = torch.randn(64, 32), torch.randn(64, 1)
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 0.02)
    losses = []
    for _ in range(20):
        loss = (net(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0] and torch.equal(codes, net[0].layer.weight.codes)


def test_models_in_several_processes(tmp_path):
    dist = pytest.importorskip("torch.distributed")
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        torch.manual_seed(0)
        small, x = ht.convert(nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 4)), "int4-g32"), torch.randn(5, 32)
        wanted = small(x)
        wanted.sum().backward()
        slope = small[0].bias.grad.clone()
        small.zero_grad()
        spread = nn.parallel.DistributedDataParallel(small)
        spread(x).sum().backward()
        assert torch.equal(spread(x), wanted) and torch.equal(small[0].bias.grad, slope)
        small.zero_grad()
        mesh = init_device_mesh("cpu", (1,))
        for layer in small:
            fully_shard(layer, mesh=mesh)
        fully_shard(small, mesh=mesh)(x).sum().backward()
        assert torch.equal(small(x), wanted) and torch.equal(small[0].bias.grad.full_tensor(), slope)
    finally:
        dist.destroy_process_group()
