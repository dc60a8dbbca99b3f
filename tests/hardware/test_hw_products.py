"""Matmuls of torch.nn.Modules equal torch's counter, and the memory of a backward pass equals autograd's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from common import bad_argument

from heterocompute import hardware as hw

torch = pytest.importorskip("torch")
prune = pytest.importorskip("torch.nn.utils.prune")
nn, F = torch.nn, torch.nn.functional


class Calls(nn.Module):  # type: ignore[misc, name-defined]
    """A forward pass that is a function of the input and of parameters."""

    def __init__(self, function: Callable[..., Any], *shapes: tuple[int, ...], **modules: Any) -> None:
        super().__init__()
        self.function, self.weights = function, nn.ParameterList(torch.randn(shape) for shape in shapes)
        for name, module in modules.items():
            setattr(self, name, module)
        self.names = list(modules)

    def forward(self, x: Any) -> Any:
        return self.function(x, *self.weights, *(getattr(self, name) for name in self.names))


def twice(module: Any) -> Any:
    return nn.Sequential(module, module)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def without_taking_apart(x: Any, w: Any) -> Any:
    return torch.einsum("bij,kj->bik", x, w) @ F.linear(x, w).transpose(1, 2)


SHARED = nn.Linear(4, 4)
MODULES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "ConvTranspose1d": (nn.ConvTranspose1d(4, 6, 3, 2, groups=2), (4, 9)),
    "ConvTranspose2d": (nn.ConvTranspose2d(3, 5, 3, 2, padding=1, output_padding=1), (3, 8, 7)),
    "ConvTranspose3d": (nn.ConvTranspose3d(2, 4, 2, bias=False), (2, 3, 4, 5)),
    "Conv1d": (nn.Conv1d(4, 6, 3, stride=2, groups=2), (4, 20)),
    "Conv3d": (nn.Conv3d(3, 5, 3, dilation=2), (3, 6, 7, 8)),
    "Conv2d same": (nn.Conv2d(3, 5, (3, 4), padding="same"), (3, 7, 7)),
    "Conv2d circular": (nn.Conv2d(3, 5, 3, padding=1, padding_mode="circular"), (3, 7, 7)),
    "a layer twice": (twice(nn.Conv2d(4, 4, 3, padding=1)), (4, 8, 8)),
    "Conv1d twice": (twice(nn.Conv1d(4, 4, 3, padding=1)), (4, 8)),
    "Linear twice": (twice(nn.Linear(4, 4)), (3, 4)),
    "a weight of two layers": (nn.Sequential(SHARED, nn.Linear(4, 4), SHARED), (4,)),
    "W @ x": (Calls(lambda x, w: w @ x[0], (6, 8)), (8, 5)),
    "W @ x of a batch": (Calls(lambda x, w: w @ x, (6, 8)), (8, 5)),
    "x @ W": (Calls(lambda x, w: x @ w, (8, 5)), (3, 8)),
    "x @ W of three axes": (Calls(lambda x, w: x @ w, (2, 8, 5)), (2, 3, 8)),
    "x @ x": (Calls(lambda x: x @ x.mT), (2, 3, 8)),
    "addmm": (Calls(lambda x, w, b: torch.addmm(b, x[0], w), (8, 5), (5,)), (3, 8)),
    "addmm of an activation": (Calls(lambda x, w: torch.addmm(x[0, :, :5], x[0], w), (8, 5)), (3, 8)),
    "baddbmm": (Calls(lambda x, w, b: torch.baddbmm(b, w, x), (1, 4, 3), (1, 4, 8)), (3, 8)),
    "einsum": (Calls(lambda x, w: torch.einsum("bij,jkl->bikl", x, w), (8, 2, 3)), (5, 8)),
    "einsum of three": (Calls(lambda x, v, w: torch.einsum("bij,jk,kl->bil", x, v, w), (8, 2), (2, 3)), (5, 8)),
    "tensordot": (Calls(lambda x, w: torch.tensordot(x, w, dims=([1, 2], [0, 1])), (3, 8, 4)), (3, 8)),
    "inner": (Calls(lambda x, w: torch.inner(x, w), (7, 8)), (3, 8)),
    "multi_dot": (Calls(lambda x, v, w: torch.linalg.multi_dot([x[0], v, w]), (8, 2), (2, 9)), (3, 8)),
    "matrix_power": (Calls(lambda x: torch.linalg.matrix_power(x, 5)), (4, 4)),
    "parameters alone": (Calls(lambda x, a, b: x @ (a @ b), (8, 2), (2, 9)), (3, 8)),
    "F.conv1d": (Calls(lambda x, w: F.conv1d(x, w, padding=1), (5, 4, 3)), (4, 9)),
    "F.conv2d of filters that are made": (Calls(lambda x, w: F.conv2d(x, w * 2), (5, 3, 3, 3)), (3, 8, 8)),
    "F.conv_transpose1d": (Calls(lambda x, w: F.conv_transpose1d(x, w), (4, 5, 3)), (4, 9)),
    "filters that are activations": (Calls(lambda x: F.conv2d(x, x[:, :, :3, :3])), (3, 8, 8)),
    "linear": (Calls(lambda x, w, b: F.linear(x, w, b), (5, 8), (5,)), (2, 3, 8)),
    "unfold": (Calls(lambda x, w: w @ F.unfold(x, 3), (5, 27)), (3, 8, 8)),
    "inference mode": (Calls(without_taking_apart, (5, 8)), (3, 8)),
    "LSTM": (nn.LSTM(6, 5, 2, bidirectional=True, batch_first=True), (4, 6)),
    "GRU": (nn.GRU(6, 5, batch_first=True), (4, 6)),
    "RNN": (nn.RNN(6, 5, batch_first=True), (4, 6)),
    "LSTMCell": (nn.LSTMCell(6, 5), (6,)),
    "GRUCell": (nn.GRUCell(6, 5), (6,)),
    "RNNCell": (nn.RNNCell(6, 5), (6,)),
    "attention": (Calls(lambda x, mha: mha(x, x, x)[0], mha=nn.MultiheadAttention(8, 2, batch_first=True)), (5, 8)),
    "attention without weights": (
        Calls(lambda x, mha: mha(x, x, x, need_weights=False)[0], mha=nn.MultiheadAttention(8, 2, batch_first=True)),
        (5, 8),
    ),
    "attention of other keys": (
        Calls(lambda x, mha: mha(x[:, :2], x, x, need_weights=False)[0],
              mha=nn.MultiheadAttention(8, 2, batch_first=True)), (5, 8)),
    "learned queries": (Calls(lambda x, q: F.scaled_dot_product_attention(q, x, x), (1, 3, 8)), (5, 8)),
    "grouped queries": (
        Calls(lambda x: F.scaled_dot_product_attention(x, x[:, :2], x[:, 2:], enable_gqa=True)), (4, 5, 8)),
    "encoder": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (5, 8)),
    "decoder": (Calls(lambda x, one: one(x, x[:, 1:]), one=nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)),
                (5, 8)),
    "transformer": (Calls(lambda x, one: one(x, x), one=nn.Transformer(8, 2, 1, 1, 16, batch_first=True)), (5, 8)),
    "weight_norm": (nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 6, 3)), (4, 5, 5)),
    "weight_norm of a Linear": (nn.utils.parametrizations.weight_norm(nn.Linear(8, 6)), (8,)),
    "spectral_norm": (nn.utils.parametrizations.spectral_norm(nn.Linear(8, 6)), (8,)),
    "spectral_norm, hook": (nn.utils.spectral_norm(nn.Conv1d(4, 6, 3)), (4, 9)),
    "pruned": (prune.l1_unstructured(nn.Linear(8, 6), "weight", 0.5), (8,)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_products_as_torchs_own_counter_has_them(name: str) -> None:
    """Twice the multiply-adds, and every parameter once."""
    from torch.utils.flop_counter import FlopCounterMode

    module, shape = MODULES[name]
    module.eval()
    plain = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)  # others are hidden from the counter
    onednn = torch._C._get_mkldnn_enabled()
    try:
        torch._C._set_mkldnn_enabled(False)
        with FlopCounterMode(display=False) as counter, plain:
            module(torch.randn(1, *shape))  # with gradients, since without them a block is one operator
    finally:
        torch._C._set_mkldnn_enabled(onednn)
    found = hw.count(module, shape)
    assert 2 * found.macs == counter.get_total_flops() > 0
    assert found.params == sum(value.numel() for value in module.parameters())
    assert sum(2 * layer.macs for layer in hw.as_network(module, shape).problems()) == 2 * found.macs


@pytest.mark.parametrize(
    ("function", "shapes", "shape", "macs"),
    [
        (lambda x, w: F.bilinear(x, x, w), [(4, 8, 8)], (8,), 4 * 8 * 8),
        (lambda x, w: F.bilinear(x, x[..., :3], w), [(4, 8, 3)], (5, 8), 5 * 4 * 8 * 3),
        (lambda x, w: w @ x[0], [(6, 8)], (8,), 48),
        (lambda x, w, b: torch.addmv(b, w, x[0]), [(6, 8), (6,)], (8,), 48),
        (lambda x, w: x[0] @ w, [(8,)], (8,), 8),
        (lambda x, w: torch.vdot(x[0], w), [(8,)], (8,), 8),
        (lambda x, w: torch.addbmm(w, x, x.mT), [(3, 3)], (3, 8), 72),
        (lambda x, w: x.new_zeros(3, 5).addmm_(x[0], w), [(8, 5)], (3, 8), 120),
        (lambda x, w: torch.addr(w, x[0], x[0]), [(8, 8)], (8,), 64),
    ],
)
def test_products_that_torchs_counter_leaves_out(function: Any, shapes: Any, shape: Any, macs: int) -> None:
    module = Calls(function, *shapes)
    found = hw.count(module, shape)
    assert (found.macs, found.params) == (macs, sum(value.numel() for value in module.parameters()))


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this torch has no matmul of groups of rows")
def test_every_row_is_multiplied_by_the_matrix_of_one_expert() -> None:
    """As transformers computes experts: rows in the order of their experts, and where each expert ends."""

    def experts(x: Any, w: Any) -> Any:
        return torch._grouped_mm(x[0], w, offs=torch.tensor([2, 2, 6], dtype=torch.int32))

    module = Calls(experts, (3, 16, 8))
    found = hw.count(module, (6, 16))
    assert (found.macs, found.params) == (6 * 16 * 8, 3 * 16 * 8)
    (layer,) = hw.as_network(module, (6, 16)).problems()
    assert layer.weights < 3 * 16 * 8 + 1 and layer.groups in (2, 3)  # 6 rows reach 2.7 of 3 experts on average


def test_empty_parts_of_a_tensor_are_no_nodes() -> None:
    """As Phi-3 rotates all of a head: the rest that passes is empty."""
    module = Calls(lambda x, w: torch.cat([x[..., :8] @ w, x[..., 8:]], dim=-1), (8, 8))
    found = hw.count(module, (3, 8))
    assert found.macs == 3 * 64 and all(min(row["output"]) > 0 for row in found.layers)


def coo(x: Any) -> Any:
    return x[0].to_sparse()


@pytest.mark.parametrize(
    ("function", "shape", "words"),
    [
        (lambda x: torch.sparse.mm(coo(x), x[0].mT), (3, 8), "_sparse_addmm"),
        (lambda x: x[0].to_sparse_csr() @ x[0].mT, (3, 8), "mm of a sparse matrix"),
        (lambda x: torch.sparse.addmm(x[0, :, :3], coo(x), x[0].mT), (3, 8), "_sparse_addmm"),
        (lambda x: torch.sparse.sampled_addmm(x[0].to_sparse_csr(), x[0], x[0]), (3, 3), "sparse_sampled_addmm"),
        (lambda x: torch.cdist(x, x), (30, 8), "_euclidean_dist"),
        (lambda x: torch.cdist(x, x, p=1), (3, 8), "_cdist_forward"),
        (lambda x: F.pdist(x[0]), (3, 8), "_pdist_forward"),
        (lambda x: torch.linalg.solve(x, x), (3, 3), "_linalg_solve_ex"),
        (lambda x: torch.linalg.inv(x), (3, 3), "linalg_inv_ex"),
        (lambda x: torch.linalg.pinv(x), (3, 3), "linalg"),
        (lambda x: torch.linalg.svd(x)[0], (3, 3), "_linalg_svd"),
        (lambda x: torch.linalg.qr(x)[0], (3, 3), "linalg_qr"),
        (lambda x: torch.linalg.det(x), (3, 3), "_linalg_det"),
        (lambda x: torch.linalg.eigvalsh(x), (3, 3), "_linalg_eigh"),
        (lambda x: torch.linalg.cholesky(x), (3, 3), "linalg_cholesky_ex"),
        (lambda x: torch.matrix_exp(x), (3, 3), "linalg_matrix_exp"),
        (lambda x: torch.fft.rfft(x), (8,), "_fft_r2c"),
        (lambda x: torch.conv_tbc(x, x[0].reshape(1, 8, 3), x[0, :, 0]), (3, 8), "conv_tbc"),
        (lambda x: F.affine_grid(x, [1, 2, 4, 4]), (2, 3), "affine_grid_generator"),
        (lambda x: F.embedding_bag(torch.zeros(1, 3, dtype=torch.long), x[0], per_sample_weights=x[:, :3, 0],
                                   mode="sum"), (3, 3), "_embedding_bag"),
    ],
)  # fmt: skip
def test_what_multiplies_in_another_way_is_refused_by_name(function: Any, shape: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"^Calls: it has a .*{words}.*, which is not read$"):
        hw.count(Calls(function), shape)


def test_operators_of_extensions_are_refused() -> None:
    @torch.library.custom_op("heterocompute_test::twice", mutates_args=())  # type: ignore[untyped-decorator]
    def operator(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    operator.register_fake(lambda x: torch.empty_like(x))
    with bad_argument(ValueError, None, "value", "heterocompute_test::twice"):
        hw.count(Calls(lambda x: operator(x)), (4, 4))


def test_a_block_that_looks_at_values_hides_no_product() -> None:
    """With real memory, torch would run the whole block as one operator."""
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    looks = Calls(lambda x, one: one(x) if float(x.sum()) < 1 else x, one=block)
    assert hw.count(looks, (5, 8)).macs == hw.count(block, (5, 8)).macs > 0
    lstm = nn.LSTM(6, 5, batch_first=True)
    looks = Calls(lambda x, one: one(x)[0] if float(x.sum()) < 1 else x, one=lstm)
    assert hw.count(looks, (5, 6)).macs == hw.count(lstm, (5, 6)).macs > 0


def test_products_of_parameters_alone_run_once_for_a_batch() -> None:
    module = Calls(lambda x, a, b: x @ (a @ b), (8, 2), (2, 9))
    assert hw.count(module, (3, 8), batch=10).macs == 8 * 2 * 9 + 10 * 3 * 8 * 9


@pytest.mark.parametrize(
    ("module", "shape", "wanted"),  # of thop 0.1.1, ptflops 0.7.5 and torchinfo 1.8.0
    [
        (nn.Conv1d(4, 6, 3, 2, groups=2), (4, 20), (324, 378, 378, 378, 324)),
        (nn.Conv3d(3, 5, 3), (3, 6, 7, 8), (48600, 49200, 49200, 49200, 48600)),
        (nn.ConvTranspose1d(4, 6, 3, 2, groups=2), (4, 9), (684, 438, 438, 798, 324)),
        (nn.ConvTranspose2d(3, 5, 3, 2), (3, 8, 7), (34425, 8835, 8835, 35700, 7560)),
    ],
)
def test_other_convolutions_count_as_each_tool_has_them(module: Any, shape: Any, wanted: tuple[int, ...]) -> None:
    tools = ("thop", "ptflops", "ptflops-aten", "torchinfo", "fvcore")
    assert tuple(hw.count(module, shape, tool).total for tool in tools) == wanted


def test_buffers_are_no_parameters() -> None:
    module = Calls(lambda x, one: x @ one.table)
    module.one, module.names = nn.Module(), ["one"]
    module.one.register_buffer("table", torch.ones(8, 5))
    assert (hw.count(module, (3, 8)).params, hw.count(module, (3, 8)).macs) == (0, 120)


def test_weights_normalized_by_a_hook_stay_as_they_were() -> None:
    with pytest.warns(FutureWarning, match="weight_norm"):
        module = nn.utils.weight_norm(nn.Linear(8, 6))
    before = module.weight
    assert hw.count(module, (8,)).params == sum(value.numel() for value in module.parameters()) == 60
    assert module.weight is before and before.device.type == "cpu"


# Memory.


def measured(module: Any, shape: tuple[int, ...], batch: int) -> int:
    """Return the bytes that autograd saves, each memory once, without parameters, buffers, input and output."""
    saved: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        saved[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    x = torch.randn(batch, *shape)
    module.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = module(x)
    for one in (x, y, *module.parameters(), *module.buffers()):
        saved.pop(one.untyped_storage()._cdata, None)
    return sum(saved.values())


class Heads(nn.Module):  # type: ignore[misc, name-defined]
    """Self-attention as explicit matmuls, with the views for heads."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.inputs, self.output = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.inputs(x).chunk(3, dim=-1))
        weights = torch.softmax(q @ k.transpose(-1, -2) * 0.5, dim=-1)
        return self.output((weights @ v).transpose(1, 2).flatten(2)) + x


class Residual(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, inside: Any, width: int) -> None:
        super().__init__()
        self.norm, self.inside = nn.LayerNorm(width), inside

    def forward(self, x: Any) -> Any:
        return x + self.inside(self.norm(x))


class Fused(nn.Module):  # type: ignore[misc, name-defined]
    """Self-attention by torch's function."""

    def __init__(self, width: int = 32, heads: int = 4, kv_heads: int = 4, masked: bool = False) -> None:
        super().__init__()
        self.sizes, self.masked = (heads, kv_heads, width // heads), masked
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, kv_heads * width // heads)
        self.v, self.output = nn.Linear(width, kv_heads * width // heads), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        heads, kv_heads, width = self.sizes
        q, k, v = (layer(x).unflatten(-1, (n, width)).transpose(1, 2)
                   for layer, n in ((self.q, heads), (self.k, kv_heads), (self.v, kv_heads)))  # fmt: skip
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril() if self.masked else None
        y = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=heads != kv_heads)
        return self.output(y.transpose(1, 2).flatten(2))


def mlp(width: int = 32) -> Any:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))


def cnn(inplace: bool = False) -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=4), nn.ReLU(inplace), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip


class Adapted(nn.Module):  # type: ignore[misc, name-defined]
    """A frozen layer with a pair of small trained layers next to it."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.a, self.b = nn.Linear(width, 4, bias=False), nn.Linear(4, width, bias=False)

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.b(self.a(x))


TRAINED: dict[str, tuple[Any, tuple[int, ...]]] = {
    "attention": (Heads(), (16, 32)),
    "block": (nn.Sequential(Residual(Heads(), 32), Residual(mlp(), 32)), (16, 32)),
    "two blocks": (nn.Sequential(*(Residual(one, 32) for one in (Heads(), mlp(), Heads(), mlp()))), (16, 32)),
    "mlp": (nn.Sequential(mlp(), mlp()), (32,)),
    "cnn": (cnn(), (3, 16, 16)),
    "cnn in place": (cnn(inplace=True), (3, 16, 16)),
    "adapted": (nn.Sequential(Adapted(), nn.ReLU(), Adapted()), (32,)),
    "fused attention": (Fused(), (16, 32)),
    "fused attention of fewer keys": (Fused(kv_heads=2), (16, 32)),
    "masked attention": (Fused(masked=True), (16, 32)),
    "encoder": (nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), (16, 32)),
    "frozen": (nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)).requires_grad_(False), (32,)),
    "transposed": (nn.Sequential(nn.ConvTranspose2d(3, 4, 2), nn.Sigmoid(), nn.Conv2d(4, 2, 1)), (3, 8, 8)),
}


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("batch", [1, 6])
def test_what_is_kept_is_what_autograd_saves(name: str, batch: int) -> None:
    module, shape = TRAINED[name]
    found = hw.memory.training(module, shape, batch=batch, optimizer="adam")
    trained = sum(value.numel() for value in module.parameters() if value.requires_grad)
    assert found.intermediates == measured(module, shape, batch)
    assert found.intermediates == hw.memory.forward(module, shape, batch=batch).intermediates
    assert (found.gradients, found.optimizer, found.master) == (4 * trained, 8 * trained, 0)
    assert found.params == 4 * sum(value.numel() for value in module.parameters())
    assert hw.memory.training(module, shape, dtype="bf16").master == 4 * trained
    fewer = [hw.memory.training(module, shape, batch=batch, recompute=n).intermediates for n in (0, 1, 2, 4)]
    assert fewer == sorted(fewer, reverse=True)


@pytest.mark.parametrize("batch", [1, 6])
def test_noise_of_dropout_is_kept(batch: int) -> None:
    module = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    found = hw.memory.training(module, (16, 32), batch=batch).intermediates
    assert found == measured(module, (16, 32), batch)


def test_views_take_no_memory() -> None:
    views = Calls(lambda x: x.transpose(1, 2).unflatten(1, (8, 8))[:, 1:].flatten(1, 2).mT.exp())
    assert hw.memory.training(views, (32, 64)).intermediates == 0
    flat = [hw.layers.Conv2d(3, 4, 3), hw.layers.Flatten(), hw.layers.Linear(4 * 36, 5), hw.layers.Linear(5, 2)]
    assert hw.memory.training(flat, (3, 8, 8)).intermediates == 4 * (4 * 36 + 5)
    assert (
        hw.memory.infer(flat, (3, 8, 8)).intermediates
        == hw.memory.infer([flat[0], hw.layers.Activation(), *flat[1:]], (3, 8, 8)).intermediates
    )


def test_a_module_that_trains_in_no_other_mode_than_a_batch_has_memory_all_the_same() -> None:
    module = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    assert hw.memory.training(module, (8,)).intermediates == 4 * (4 + 4 + 2 * 4)


def test_weights_that_are_made_are_kept_once_for_a_batch() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.utils.parametrizations.weight_norm(nn.Linear(8, 6)))
    one, many = (hw.memory.training(module, (8,), batch=n).intermediates for n in (1, 11))
    assert many - one == 10 * 4 * 8 and many == measured(module, (8,), 11)


def test_other_questions_know_what_is_frozen() -> None:
    net = nn.Sequential(Adapted(256), nn.ReLU(), Adapted(256))
    free = nn.Sequential(Adapted(256), nn.ReLU(), Adapted(256)).requires_grad_(True)
    chip = hw.Device("small", peak={"fp32": 1e12}, bandwidth=1e11, memory=4e6)
    assert (
        hw.systems.largest_batch(net, chip, input_shape=(256,)).batch
        > hw.systems.largest_batch(free, chip, input_shape=(256,)).batch
    )
    pod = hw.multi.Fabric("pod", (hw.multi.Tier("node", 4, 1e9),))
    chip = hw.Device("chip", peak={"bf16": 1e12}, bandwidth=1e11)
    few, all_of_them = (hw.multi.scaling(one, chip, pod, [4], input_shape=(256,))[0]["data"] for one in (net, free))
    assert few["seconds"] < all_of_them["seconds"]
