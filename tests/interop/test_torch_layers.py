"""Each kind of layer with a packed weight computes the results of PyTorch with the decoded weight."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from common import bad_argument, same_bits

import heterocompute as hc

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, prune  # noqa: E402

from heterocompute.interop import torch as ht  # noqa: E402

FMT = "int4-g16"
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def near(found, wanted):
    """Assert that results agree up to another order of sums: a few hundred products of numbers near 1."""
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert torch.allclose(found, wanted, rtol=1e-4, atol=2e-5), (found - wanted).abs().max()


def decoded(model, fmt=FMT):
    """Return a copy of a model with plain layers and the decoded weights of the packed layers."""
    model = copy.deepcopy(model)
    for layer in ht.layers(model):
        if not layer.problem:
            axis = layer.axis
            with torch.no_grad():
                w = getattr(layer.module, layer.attribute)
                w.copy_(torch.from_numpy(hc.fake_quantize(w.detach(), fmt, axis)))
    return model


CONVOLUTIONS = [
    (nn.Conv1d(16, 6, 3, stride=2, padding=1), (2, 16, 9)),
    (nn.Conv1d(16, 6, 4, padding="same", dilation=2), (2, 16, 9)),
    (nn.Conv2d(16, 6, 3, padding=(1, 0), stride=(2, 1)), (2, 16, 7, 6)),
    (nn.Conv2d(16, 16, 3, groups=16, padding="same"), (2, 16, 7, 6)),
    (nn.Conv2d(16, 6, 3, padding=2, padding_mode="reflect", bias=False), (16, 7, 6)),
    (nn.Conv2d(16, 8, (2, 3), groups=2, padding=1, padding_mode="circular"), (2, 16, 7, 6)),
    (nn.Conv3d(4, 6, (2, 3, 1), stride=(1, 2, 1), padding=1, dilation=(2, 1, 1)), (2, 4, 5, 6, 3)),
    (nn.Conv3d(4, 4, 2, groups=2, padding="same"), (2, 4, 5, 6, 3)),
    (nn.ConvTranspose1d(16, 6, 3, stride=2, padding=1, output_padding=1), (2, 16, 5)),
    (nn.ConvTranspose2d(16, 6, 3, stride=(2, 3), padding=(0, 2), dilation=2), (2, 16, 5, 4)),
    (nn.ConvTranspose2d(16, 8, 2, stride=2, groups=2, bias=False), (16, 5, 4)),
    (nn.ConvTranspose3d(4, 6, 2, stride=2, padding=1), (1, 4, 3, 3, 2)),
]


@pytest.mark.parametrize(("plain", "shape"), CONVOLUTIONS, ids=lambda one: str(one).replace(" ", ""))
def test_convolutions(plain, shape):
    packed, wanted = ht.convert(plain, FMT), decoded(plain)
    if plain.groups > 1 and isinstance(plain, nn.ConvTranspose2d):  # its groups of inputs are rounded separately
        split = packed.weight.dequantize().flip(2, 3).unflatten(0, (plain.groups, -1)).transpose(1, 2)
        wanted.weight.data = split.flatten(0, 1)
    assert type(packed).__name__ == f"Packed{type(plain).__name__}"
    given = torch.randn(shape)
    x, y = given.clone().requires_grad_(), given.clone().requires_grad_()
    near(packed(x), wanted(y))
    packed(x).square().sum().backward()
    wanted(y).square().sum().backward()
    assert torch.allclose(x.grad, y.grad, rtol=1e-3, atol=1e-3)
    if plain.bias is not None:
        assert torch.allclose(packed.bias.grad, wanted.bias.grad, rtol=1e-3, atol=1e-3)
    with torch.no_grad():
        near(packed(given), wanted(given))
    rounded = ht.convert(plain, FMT, activations="int8")(given)
    assert 0 < (rounded - wanted(given)).abs().max() < 0.1


def test_a_transposed_convolution_takes_the_size_that_is_wanted():
    plain, x = nn.ConvTranspose2d(16, 4, 3, stride=2), torch.randn(1, 16, 4, 4)
    near(ht.convert(plain, FMT)(x, output_size=[10, 9]), decoded(plain)(x, output_size=[10, 9]))


def test_conv2d_has_the_bits_of_the_package():
    w, x = torch.randn(6, 16, 3, 3), torch.randn(2, 16, 7, 6)
    q = hc.quantize(w, "int8", axis=(2, 3, 1))
    wanted = hc.conv2d(x, q, None, 2, 1, activations="int8")
    assert same_bits(ht.conv2d(x, q, None, 2, 1, activations="int8").numpy(), wanted)
    assert same_bits(ht.conv2d(x.contiguous(memory_format=torch.channels_last), q, None, 2, 1).numpy(),
                     hc.conv2d(x, q, None, 2, 1))  # fmt: skip
    for call, words in (
        (lambda: ht.conv2d(x[0, 0], q), "x has shape .7, 6. and q"),
        (lambda: ht.conv2d(x, q, torch.ones(3)), r"bias has shape \(3,\)|bias"),
        (lambda: ht.conv2d(x[:, :3], q), "channels"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with bad_argument(TypeError, "x", "dtype"):
        ht.conv2d(x.long(), q)


def test_tables_decode_the_rows_that_are_looked_up():
    table, ids = nn.Embedding(50, 32, padding_idx=3), torch.randint(0, 50, (2, 7))
    packed = ht.convert(table, FMT)
    assert torch.equal(packed(ids), decoded(table)(ids)) and packed.padding_idx == 3
    assert ht.convert(table.bfloat16(), FMT)(ids).dtype == torch.bfloat16
    for mode in ("sum", "mean", "max"):
        bag = nn.EmbeddingBag(50, 32, mode=mode, padding_idx=4)
        found, wanted = ht.convert(bag, FMT), decoded(bag)
        near(found(ids), wanted(ids))
        near(found(ids[0], torch.tensor([0, 3])), wanted(ids[0], torch.tensor([0, 3])))
    weights = torch.rand(2, 7)
    bag = nn.EmbeddingBag(50, 32, mode="sum")
    near(ht.convert(bag, FMT)(ids, per_sample_weights=weights), decoded(bag)(ids, per_sample_weights=weights))
    with bad_argument(IndexError, "x", "value"):
        packed(torch.tensor([1, 50]))
    with bad_argument(TypeError, "x", "type"):
        packed(torch.ones(2))
    with bad_argument(ValueError, None, "value", "nf4-g64-dq"):
        ht.convert(table.float(), "nf4-g64-dq")
    with bad_argument(ValueError, None, "value", "max_norm"):
        ht.convert(nn.Embedding(5, 32, max_norm=1.0), FMT)


PADDING = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("more", [{}, {"kdim": 32, "vdim": 48}, {"bias": False}, {"add_bias_kv": True},
                                  {"add_zero_attn": True}], ids=str)  # fmt: skip
def test_attention(batch_first, more):
    plain = nn.MultiheadAttention(64, 4, batch_first=batch_first, **more).eval()
    found, wanted = ht.convert(plain, FMT), decoded(plain)
    assert isinstance(found, ht.PackedMultiheadAttention) and isinstance(found.out_proj, ht.PackedLinear)
    x = torch.randn(2, 5, 64)
    k, v = torch.randn(2, 5, more.get("kdim", 64)), torch.randn(2, 5, more.get("vdim", 64))
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    given = (x, k, v) if batch_first else tuple(one.transpose(0, 1) for one in (x, k, v))
    for options in (
        {},
        {"key_padding_mask": PADDING},
        {
            "attn_mask": causal,
            "need_weights": False,
            "is_causal": not more,
        },  # with more keys PyTorch expects another mask
        {"attn_mask": causal < 0, "average_attn_weights": False},
        {"attn_mask": torch.randn(8, 5, 5), "key_padding_mask": PADDING},
    ):
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                y, z = found(*given, **options), wanted(*given, **options)
                near(y[0], z[0])
                assert (y[1] is None) == (z[1] is None)
                if y[1] is not None:
                    near(y[1], z[1])
    if "kdim" not in more:
        near(found(given[0], given[0], given[0])[0], wanted(given[0], given[0], given[0])[0])
        alone = x[0]
        near(found(alone, alone, alone, key_padding_mask=PADDING[0])[0],
             wanted(alone, alone, alone, key_padding_mask=PADDING[0])[0])  # fmt: skip


@pytest.mark.parametrize("only", [None, "*linear1", "*linear2", "*in_proj_weight", "*out_proj"])
def test_no_fused_path_bypasses_a_packed_layer(only):
    plain = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 96, 0.0, batch_first=True), 2).eval()
    found, wanted = ht.convert(plain, FMT, include=only), copy.deepcopy(plain)
    for layer in ht.layers(plain, only):
        w = wanted.get_submodule(layer.path)._parameters[layer.attribute]
        with torch.no_grad():
            w.copy_(torch.from_numpy(hc.fake_quantize(w.detach(), FMT)))
    x = torch.randn(2, 5, 64)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            near(found(x), wanted(x))
            y, z = found(x, src_key_padding_mask=PADDING), wanted(x, src_key_padding_mask=PADDING)
            near(y[~PADDING], z[~PADDING])


def test_decoders_and_whole_transformers():
    plain = nn.Transformer(64, 4, 1, 1, 96, 0.0, batch_first=True).eval()
    found, wanted, x, y = ht.convert(plain, FMT), decoded(plain), torch.randn(2, 5, 64), torch.randn(2, 7, 64)
    near(found(x, y), wanted(x, y))


def test_tied_layers_share_one_packed_weight():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(50, 32), nn.Linear(32, 50, bias=False)
            self.head.weight = self.table.weight
            self.again = self.body = nn.Linear(32, 32)

        def forward(self, x):
            return self.head(self.again(self.body(self.table(x))))

    plain, ids = Net(), torch.tensor([[3, 49]])
    found, wanted = ht.convert(plain, FMT), copy.deepcopy(plain)
    with torch.no_grad():
        for w in (wanted.table.weight, wanted.body.weight):
            w.copy_(torch.from_numpy(hc.fake_quantize(w.detach(), FMT)))
    near(found(ids), wanted(ids))
    assert found.table.weight is found.head.weight and found.again is found.body
    again = copy.deepcopy(found)
    assert again.table.weight is again.head.weight and again.table.weight is not found.table.weight
    near(again(ids), wanted(ids))
    assert plain.head.weight is plain.table.weight
    found = ht.convert(plain, FMT, exclude="table")
    assert isinstance(found.table, nn.Embedding) and isinstance(found.head, ht.PackedLinear)


def test_the_weight_that_is_computed_is_packed():
    def masked():
        layer = nn.Linear(64, 8)
        prune.random_unstructured(layer, "weight", 0.5)
        return layer

    makers = [
        masked,
        lambda: parametrizations.weight_norm(nn.Linear(64, 8)),
        lambda: nn.utils.weight_norm(nn.Linear(64, 8)),
        lambda: nn.utils.spectral_norm(nn.Linear(64, 8)),
        lambda: ht.parametrize(nn.Linear(64, 8), FMT),
        lambda: ht.QuantLinear.from_linear(masked(), FMT),
        lambda: ht.QuantLinear(64, 8, FMT),
    ]
    x = torch.randn(3, 64)
    for make in makers:
        layer = make().eval()
        layer(x)
        weight = layer.rounded(layer.weight) if isinstance(layer, ht.QuantLinear) else layer.weight
        (only,) = ht.layers(layer)
        assert only.name == "weight" and only.kind == "linear"
        found = ht.convert(layer, FMT)
        assert np.array_equal(found.weight.dequantize(), hc.fake_quantize(weight.detach(), FMT))
        assert not found._forward_pre_hooks and set(found.state_dict()) == {
            "bias", "weight.codes", "weight.scales", "weight.format"
        }  # fmt: skip
        near(found(x), nn.functional.linear(x, found.weight.dequantize(), layer.bias))


def test_layers_that_are_not_packed_have_a_reason():
    class Own(nn.Linear):
        def forward(self, x):
            return x

    kind = getattr(nn, "LinearCrossEntropyLoss", None)
    for module, words in (
        (nn.GRU(4, 4), "GRU multiplies by float weights alone"),
        (nn.Bilinear(3, 4, 5), "how Bilinear uses weight is not known"),
        (Own(4, 4), "Own has a forward pass of its own"),
        *([(kind(64, 10), "LinearCrossEntropyLoss reads the weight")] if kind else []),
    ):
        assert all(words in layer.problem for layer in ht.layers(module))
        with pytest.raises(ValueError, match=words):
            ht.convert(module, "int8")


def test_hooks_and_modes_stay():
    plain, recorded = nn.Sequential(nn.Linear(64, 8)), []
    plain[0].register_forward_hook(lambda module, given, y: recorded.append(type(module).__name__))
    found = ht.convert(plain.eval(), FMT)
    found(torch.ones(1, 64))
    assert recorded == ["PackedLinear"] and not found[0].training


def test_a_module_that_reads_a_weight_multiplies_by_the_packed_one():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(64, 8)

        def forward(self, x, how=nn.functional.linear):
            return how(x, self.fc.weight, self.fc.bias)

    plain, x = Net(), torch.randn(2, 64)
    found = ht.convert(plain, FMT, activations="int8")
    assert torch.equal(found(x), found.fc(x)) and found.fc.weight.size(0) == 8
    with bad_argument(TypeError, None, "type", r"addmm: a weight is packed, expected a tensor: call dequantize\(\)"):
        found(x, lambda x, w, b: torch.addmm(b, x, w))
    for how, words in (
        (lambda w: w.squeeze(0), "squeeze: a weight is packed"),
        (lambda w: w.T, "T: a weight is packed"),
        (lambda w: w[None, :2], "indexing: a weight is packed"),
        (lambda w: w @ x, "matmul: a weight is packed"),
        (lambda w: 2 * w, "mul: a weight is packed"),
        (lambda w: w.nothing, "no attribute"),
    ):
        with pytest.raises((AttributeError, TypeError), match=words):
            found(x, lambda x, w, b, how=how: how(w))
    assert not hasattr(found.fc.weight, "T") and not hasattr(found.fc.weight, "nothing")


def test_stacked_experts_multiply_matrix_by_matrix():
    class Experts(nn.Module):
        """Experts as in transformers: one call with all matrices, unless the configuration selects another path."""

        is_transposed = False

        def __init__(self):
            super().__init__()
            self.up_proj = nn.Parameter(torch.randn(3, 32, 64) / 8)
            self.other = nn.Parameter(torch.randn(3, 4, 4))
            self.config = type("Config", (), {"_experts_implementation": "grouped_mm"})()

        def forward(self, x, chosen):
            assert self.config._experts_implementation == "eager"
            return torch.stack([nn.functional.linear(x, self.up_proj[i]) for i in chosen])

    plain, x, chosen = Experts(), torch.randn(5, 64), torch.tensor([2, 0])
    before = plain.config
    found = ht.convert(plain, FMT, activations="int8")
    assert plain.config is before and before._experts_implementation == "grouped_mm"
    q = hc.quantize(plain.up_proj.detach(), FMT)
    assert found.up_proj.array() == q and isinstance(found.other, nn.Parameter)
    for index, y in zip(chosen, found(x, chosen), strict=True):
        assert same_bits(y.numpy(), hc.linear(x, q[int(index)], activations="int8"))
    given = x.clone().requires_grad_()
    found(given, chosen).sum().backward()
    assert torch.allclose(given.grad, torch.from_numpy(q.dequantize()[[2, 0]].sum((0, 1))).expand(5, 64), atol=1e-4)
    assert [one.problem for one in ht.layers(plain)] == ["", "how Experts uses other is not known"]
    state = found.state_dict()
    assert "up_proj.codes" in state and same_bits(
        ht.load_packed(plain, state)(x, chosen).numpy(), found(x, chosen).numpy()
    )


def test_a_float64_table_answers_in_float64():
    net = nn.Sequential(nn.Embedding(9, 32), nn.LayerNorm(32), nn.Linear(32, 4)).double()
    small = ht.convert(net, "int8")
    ids = torch.tensor([[1, 8]])
    assert small[0](ids).dtype == torch.float64 and small(ids).dtype == torch.float64
    assert torch.equal(small[0](ids), small[0].weight.dequantize()[ids].double())


class TextScaledWordEmbedding(nn.Embedding):
    """As Gemma's: the class stays, and the head shares its packed table."""

    def forward(self, ids):
        return super().forward(ids) * 8


def test_a_table_with_a_scale_of_its_class_is_packed():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = TextScaledWordEmbedding(50, 32), nn.Linear(32, 50, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids):
            return self.head(self.table(ids))

    plain, ids = Net(), torch.tensor([[1, 49]])
    small = ht.convert(plain, "int4-g32")
    assert {layer.kind for layer in ht.layers(small)} == {"embedding_own", "linear"}
    assert small.table.weight is small.head.weight and type(small.table) is TextScaledWordEmbedding
    assert torch.equal(small.table(ids), small.table.weight.dequantize()[ids] * 8)
    assert torch.equal(torch.compile(small, backend="aot_eager", fullgraph=True)(ids), small(ids))
    assert torch.equal(ht.load_packed(plain, small.state_dict())(ids), small(ids))
    assert [row["reason"] for row in ht.summary(small).records()] == ["", "tied to table.weight"]
    with pytest.raises(TypeError, match="embedding: max_norm changes the rows"):
        nn.functional.embedding(ids, small.table.weight, max_norm=1.0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n", [1, 2, 3])
def test_an_image_smaller_than_the_filter_has_no_outputs(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kernel = [int(rng.integers(2, 4)) for _ in range(n)]
    sizes = [size + int(rng.integers(-1, 3)) for size in kernel]
    sizes[int(rng.integers(n))] = 1
    layer = getattr(torch.nn, f"Conv{n}d")(4, 6, kernel, stride=int(rng.integers(1, 3)))
    packed = ht.convert(torch.nn.Sequential(layer), "int8")
    y = packed(torch.zeros(2, 4, *sizes))
    stride = layer.stride[0]
    wanted = [max((size - taps) // stride + 1, 0) for size, taps in zip(sizes, kernel, strict=True)]
    assert y.shape == (2, 6, *wanted) and 0 in y.shape and y.dtype == torch.float32
