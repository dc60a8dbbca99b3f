"""Converted models as ONNX files: onnxruntime computes the results of the packed layers from codes and scales."""

from __future__ import annotations

import numpy as np
import pytest

import heterocompute as hc

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from torch import nn  # noqa: E402

from heterocompute.interop import torch as ht  # noqa: E402
from heterocompute.interop.torch import export  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


@pytest.fixture(params=["traced", "onnxscript"])
def exporter(request, monkeypatch):
    if request.param == "traced":
        monkeypatch.setattr(export, "find_spec", lambda name: None)
    else:
        pytest.importorskip("onnxscript")


def run(path, *given):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {one.name: x.numpy() for one, x in zip(session.get_inputs(), given, strict=True)})


def kinds(path):
    return {node.op_type for node in onnx.load(path).graph.node}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.conv = nn.Embedding(50, 64), nn.Conv1d(64, 32, 3, padding=1)
        self.attend = nn.MultiheadAttention(32, 4, batch_first=True)
        self.up, self.down = nn.Linear(32, 24), nn.Linear(24, 64)
        self.wider, self.each = nn.ConvTranspose1d(64, 16, 2, stride=2), nn.Conv2d(16, 16, 3, groups=16)
        self.turned = nn.ConvTranspose2d(16, 8, 2, groups=2)

    def forward(self, ids):
        x = self.conv(self.table(ids).transpose(1, 2)).transpose(1, 2)
        x = self.down(torch.relu(self.up(self.attend(x, x, x, need_weights=False)[0])))
        y = self.wider(x.transpose(1, 2))
        return y, self.turned(self.each(y.unflatten(2, (4, -1))))


@pytest.mark.parametrize(
    ("fmt", "activations", "operators"),
    [
        ("int4-g16-asym", "int8", {"MatMulNBits", "DequantizeLinear"}),
        ("vsq4-g16-s4", None, {"DequantizeLinear"}),
        ("int8", "int8", {"DequantizeLinear"}),
    ],
)
@pytest.mark.sweep(every=3)
def test_a_model_is_exported_whole(fmt, activations, operators, exporter, tmp_path):
    torch.manual_seed(0)
    small, ids, path = ht.convert(Net().eval(), fmt, activations=activations), torch.randint(0, 50, (2, 8)), tmp_path
    ht.export_onnx(small, ids, path / "small.onnx", input_names=["ids"])
    onnx.checker.check_model(path / "small.onnx")
    assert operators <= kinds(path / "small.onnx")
    with torch.no_grad():
        wanted = small(ids)
    for found, y in zip(run(path / "small.onnx", ids), wanted, strict=True):
        assert np.allclose(found, y, rtol=1e-5, atol=1e-6), np.abs(found - y.numpy()).max()
    held = {one.name: one for one in onnx.load(path / "small.onnx").graph.initializer}
    floats = {"turned.weight"} | {"table.weight", "conv.weight", "up.weight", "attend.in_proj_weight"} & set(held)
    assert floats == {"turned.weight"}


@pytest.mark.parametrize("fmt", ["int8", "int2-g16", "int5-g5", "int4-g20-asym", "vsq8-g16", "int8-asym"])
@pytest.mark.parametrize("shape", [(3, 60), (2, 3, 64)], ids=str)
def test_products_agree_with_the_bound_of_their_sums(fmt, shape, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    torch.manual_seed(0)
    small, x, k = ht.convert(nn.Linear(shape[-1], 24), fmt), torch.randn(shape), shape[-1]
    ht.export_onnx(small, x, tmp_path / "linear.onnx")
    (found,) = run(tmp_path / "linear.onnx", x)
    wanted = small(x).detach().numpy()
    # both round k products and k sums, and decode each value with an error of an ulp at most
    largest = np.abs(x.numpy()).max() * np.abs(small.weight.dequantize().numpy()).max()
    assert np.abs(found - wanted).max() <= 4 * (k + 1) * np.finfo(np.float32).eps * max(largest, 1.0)


def test_activations_are_rounded_to_the_same_values():
    x = torch.randn(5, 64) * torch.logspace(-3, 3, 5)[:, None]
    x[2] = 0
    for text in ("int8", "int4"):
        largest = export._largest("", text)
        assert np.array_equal(export.rounded(x, largest, (-1,)).numpy(), hc.fake_quantize(x, text))


def test_inputs_by_keyword_and_of_any_length(tmp_path):
    pytest.importorskip("onnxscript")

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(64, 8)

        def forward(self, x, mask):
            return self.fc(x) * mask

    small, rows = ht.convert(Named(), "int4-g32"), torch.export.Dim("rows")
    example = {"x": torch.randn(2, 64), "mask": torch.rand(2, 8)}
    shapes = {"x": {0: rows}, "mask": {0: rows}}
    ht.export_onnx(small, example, tmp_path / "named.onnx", dynamic_shapes=shapes)
    x, mask = torch.randn(5, 64), torch.rand(5, 8)
    assert np.allclose(run(tmp_path / "named.onnx", x, mask)[0], small(x, mask).detach(), rtol=1e-5, atol=1e-6)


def test_what_onnx_has_no_place_for_is_said(tmp_path):
    x, path = torch.ones(1, 64), tmp_path / "no.onnx"
    linear = nn.Linear(64, 8)
    for model, example, error, words in (
        (linear, x, ValueError, "model has no packed weight, expected what convert returned"),
        (ht.convert(linear, "cb4-g32"), x, ValueError, "'weight' is cb4-g32, which no operators of ONNX decode"),
        (
            ht.convert(nn.Linear(256, 8), "q4_k"),
            torch.ones(1, 256),
            ValueError,
            "'weight' is q4_k, which no operators of ONNX decode",
        ),
        (ht.convert(linear, "int8", activations="fp8_e4m3fn"), x, ValueError, "of 'weight' are fp8_e4m3fn, expected"),
        (ht.convert(linear, "int8", activations="int8-g32"), x, ValueError, "of 'weight' are int8-g32, expected"),
        (ht.convert(linear, "int8"), [1.0], TypeError, r"example is \[1.0\], expected tensors"),
        (ht.convert(linear, "int8"), x[:, :9], ValueError, "the model refuses example: mat1 and mat2 shapes cannot be"),
    ):
        with pytest.raises(error, match=words):
            ht.export_onnx(model, example, path)
    assert not path.exists()


def test_a_table_that_scales_its_rows_is_exported(tmp_path):
    class ScaledWordEmbedding(nn.Embedding):
        def forward(self, ids):
            return super().forward(ids) * 8

    small, ids = ht.convert(nn.Sequential(ScaledWordEmbedding(50, 32), nn.Linear(32, 4)), "int4-g32"), torch.arange(6)
    ht.export_onnx(small, ids, tmp_path / "scaled.onnx")
    assert np.allclose(run(tmp_path / "scaled.onnx", ids)[0], small(ids).detach(), rtol=1e-5, atol=1e-5)


class Outputs(nn.Module):
    """One output of each kind that a model may return."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.up, self.down = kind, nn.Linear(32, 16), nn.Linear(16, 8)

    def forward(self, x):
        h = self.up(x)
        y = self.down(h)
        return {"dict": {"hidden": h, "y": y}, "tuple": (h, y), "nested": (h, [y])}[self.kind]


@pytest.mark.parametrize("kind", ["dict", "tuple", "nested"])
def test_several_outputs(exporter, kind, tmp_path):
    small, x = ht.convert(Outputs(kind), "int4-g32", activations="int8"), torch.randn(3, 32)
    ht.export_onnx(small, x, tmp_path / "several.onnx")
    found = small(x)
    first, second = found.values() if kind == "dict" else found
    h, y = run(tmp_path / "several.onnx", x)
    assert np.allclose(h, first.detach(), rtol=1e-4, atol=1e-4)
    assert np.allclose(y, (second[0] if kind == "nested" else second).detach(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers_as_inputs(exporter, dtype, tmp_path):
    small = ht.convert(nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 16)), "int8")
    ids = torch.randint(0, 50, (2, 7), dtype=dtype)
    ht.export_onnx(small, ids, tmp_path / "ids.onnx")
    assert np.allclose(run(tmp_path / "ids.onnx", ids)[0], small(ids).detach(), rtol=1e-5, atol=1e-5)
    (found,) = hc.run_onnx(tmp_path / "ids.onnx", ids.numpy()).values()
    assert np.allclose(found, small(ids).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
def test_one_image_without_a_batch(kind, n, tmp_path):
    activations = "int8" if n < 3 else None  # the packed layer rounds each window of a volume
    small, x = (
        ht.convert(getattr(nn, f"{kind}{n}d")(8, 16, 3), "int8", activations=activations),
        torch.randn(8, *(6,) * n),
    )
    ht.export_onnx(small, x, tmp_path / "one.onnx")
    (found,) = hc.run_onnx(tmp_path / "one.onnx", x.numpy()).values()
    assert np.allclose(found, small(x).detach(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("activations", [None, "int8"])
def test_layers_that_rotate_their_inputs_are_exported(activations, exporter, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(48, 64), nn.GELU(), nn.Linear(64, 8))
    small = ht.convert(model, "int4-g16+had16", activations=activations)
    x, path = torch.randn(5, 48), tmp_path / "turned.onnx"
    ht.export_onnx(small, x, path)
    assert np.allclose(run(path, x)[0], small(x).detach().numpy(), atol=1e-5)
