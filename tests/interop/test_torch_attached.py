"""What is attached to a layer stays with the packed one, and models that cannot be converted are refused by name."""

from __future__ import annotations

import functools
import types

import pytest

torch = pytest.importorskip("torch")
from heterocompute.interop import torch as ht  # noqa: E402


def net():
    return torch.nn.Sequential(torch.nn.Linear(32, 8), torch.nn.Linear(8, 4))


@pytest.mark.parametrize(
    "make", [lambda one: ht.convert(one, "int8"), lambda one: ht.QuantLinear.from_linear(one, "int8")]
)
def test_hooks_attributes_and_buffers_stay(make):
    layer, seen = torch.nn.Linear(32, 8).eval(), []
    layer.tag = "mine"
    layer.register_buffer("kept", torch.ones(2))
    layer.register_buffer("hidden", torch.ones(2), persistent=False)
    layer.bias.requires_grad_(False)
    layer.register_forward_hook(lambda m, a, k, y: seen.append("forward"), with_kwargs=True, always_call=True)
    layer.register_full_backward_pre_hook(lambda *_: seen.append("backward_pre"))
    layer.register_full_backward_hook(lambda *_: seen.append("backward"))
    layer.register_load_state_dict_pre_hook(lambda m, *_: seen.append(type(m).__name__))
    small = make(layer)
    small(torch.randn(2, 32, requires_grad=True)).sum().backward()
    small.load_state_dict(small.state_dict())
    assert seen == ["forward", "backward_pre", "backward", type(small).__name__]
    assert (small.tag, small.training, small.bias.requires_grad) == ("mine", False, False)
    assert "kept" in small.state_dict() and "hidden" not in small.state_dict() and hasattr(small, "hidden")


def test_a_replaced_forward_is_computed_or_refused():
    model, x = net(), torch.randn(3, 32)
    plain = model[0].forward
    model[0].forward = lambda t: 10 * plain(t)
    small = ht.convert(model, "int8")
    assert type(small[0]) is torch.nn.Linear and type(small[1]) is ht.PackedLinear
    assert torch.allclose(small(x), model(x), atol=0.05 * float(model(x).abs().max()))
    with pytest.raises(TypeError, match="forward of the layer was replaced"):
        ht.QuantLinear.from_linear(model[0], "int8")


def test_a_replaced_forward_of_a_container():
    def ten(self, x):
        return 10 * torch.nn.Sequential.forward(self, x)

    x = torch.randn(3, 32)
    for bind in (types.MethodType, functools.partial):
        model = net()
        model.forward = bind(ten, model)
        small = ht.convert(model, "int8")
        assert type(small[0]) is ht.PackedLinear
        assert torch.allclose(small(x), model(x), atol=0.05 * float(model(x).abs().max()))
    plain = (model := net()).forward
    model.forward = lambda t: plain(t)
    with pytest.raises(ValueError, match="convert: forward of the model was replaced.*inplace=True"):
        ht.convert(model, "int8")
    assert type(ht.convert(model, "int8", inplace=True)[0]) is ht.PackedLinear


def test_kinds_of_modules_are_refused_by_name():
    for call in (lambda one: ht.convert(one, "int8"), ht.summary, ht.layers, lambda one: ht.load_packed(one, {})):
        with pytest.raises(TypeError, match="model is a RecursiveScriptModule of torch.jit"):
            call(torch.jit.script(net()))
    with pytest.raises(TypeError, match="compiled by torch.compile"):
        ht.convert(torch.compile(net(), backend="eager"), "int8")

    class Twice(torch.nn.Conv2d):
        def _conv_forward(self, x, weight, bias):
            return super()._conv_forward(x, 2 * weight, bias)

    with pytest.raises(ValueError, match="Twice has a forward pass of its own"):
        ht.convert(Twice(3, 4, 3), "int8")


@pytest.mark.parametrize("part", ["codes", "scales", "format"])
def test_components_of_a_state_are_dense_tensors_with_values(part):
    state = ht.convert(net(), "int4-g8").state_dict()
    key = f"1.weight.{part}"
    good = state[key]
    for value in ("x", None, 3, [1, 2], good.to("meta"), good.double(), good[None], good.to_sparse()):
        bad = {**state, key: value}
        model = net()
        before = {name: one.clone() for name, one in model.state_dict().items()}
        for load in (
            lambda m=model, s=bad: ht.load_packed(m, s, inplace=True),
            lambda s=bad: ht.convert(net(), "int4-g8").load_state_dict(s),
        ):
            with pytest.raises((ValueError, RuntimeError), match=key):
                load()
        after = model.state_dict()
        assert list(after) == list(before) and all(torch.equal(after[name], one) for name, one in before.items())


def test_exports_of_fused_layers_and_of_other_dtypes(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    small = ht.convert(torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), "int8")
    x = torch.randn(2, 5, 32)
    ht.export_onnx(small, x, tmp_path / "m.onnx", input_names=["x"])
    found = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": x.numpy()})[0]
    assert torch.backends.mha.get_fastpath_enabled() and abs(found - small(x).detach().numpy()).max() < 1e-3
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        half = ht.convert(net().to(dtype), "int8")
        with pytest.raises(ValueError, match=f"dtype {str(dtype)[6:]}, expected float32"):
            ht.export_onnx(half, torch.ones(1, 32, dtype=dtype), tmp_path / "h.onnx")


def test_hooks_of_accelerate_stay_with_their_layer():
    hooks = pytest.importorskip("accelerate.hooks")

    class Doubling(hooks.ModelHook):
        def post_forward(self, module, output):
            return 2 * output

    model, x = net(), torch.randn(3, 32)
    hooks.add_hook_to_module(model[0], Doubling())
    small = ht.convert(model, "int8")
    assert type(small[0]) is torch.nn.Linear and type(small[1]) is ht.PackedLinear
    assert torch.allclose(small(x), model(x), atol=0.05 * float(model(x).abs().max()))
    hooks.remove_hook_from_module(model[0])
    assert type(ht.convert(model, "int8")[0]) is ht.PackedLinear
