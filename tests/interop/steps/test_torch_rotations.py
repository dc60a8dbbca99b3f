"""`ht.convert(rotate=...)`: rotations that run in the call, and rotations folded into the residual stream."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import heterocompute as hc
from heterocompute.reference import rotation

torch = pytest.importorskip("torch")
ht = pytest.importorskip("heterocompute.interop.torch")
residual = pytest.importorskip("heterocompute.interop.torch.residual").residual
Divided = pytest.importorskip("heterocompute.interop.torch.judging").Divided
turn_of = pytest.importorskip("heterocompute.interop.torch.residual").turn_of
from decibels import output_db  # noqa: E402

D = 48


class Block(torch.nn.Module):  # type: ignore[misc]
    """A residual block whose norm has four outlier channels."""

    def __init__(self, norm: Any, bias: bool = True) -> None:
        super().__init__()
        self.norm = norm(D)
        self.gate, self.up = torch.nn.Linear(D, 2 * D, bias=bias), torch.nn.Linear(D, 2 * D, bias=bias)
        self.down = torch.nn.Linear(2 * D, D, bias=bias)

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        return x + torch.nn.functional.dropout(self.down(torch.relu(self.gate(y)) * self.up(y)), 0.1, self.training)


class Net(torch.nn.Module):  # type: ignore[misc]
    """A language model without attention; the head may be the embedding."""

    def __init__(self, norm: Any = torch.nn.LayerNorm, is_tied: bool = False, bias: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(40, D)
        self.blocks = torch.nn.ModuleList(Block(norm, bias) for _ in range(2))
        self.norm, self.head = norm(D), torch.nn.Linear(D, 40, bias=False)
        if is_tied:
            self.head.weight = self.embed.weight
        with torch.no_grad():
            self.embed.weight[:, :3] *= 20
            for one in (*(block.norm for block in self.blocks), self.norm):
                one.weight.copy_(torch.rand(D) + 0.5)
                one.weight[5:8] *= 8
                if getattr(one, "bias", None) is not None:
                    one.bias.copy_(torch.randn(D) / 5)
        self.eval()

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batches(count: int = 4) -> list[Any]:
    torch.manual_seed(1)
    return [torch.randint(0, 40, (4, 32)) for _ in range(count)]


def test_online_rotations_reduce_the_error_of_outlier_channels() -> None:
    model, data = Net(), batches()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    x = data.pop()
    plain, small = (
        ht.convert(model, "int4", activations="int4", inputs=data, rotate=rotate, include="blocks.*")
        for rotate in (None, "online")
    )
    assert output_db(model, small, x) > output_db(model, plain, x) + 1
    rows = {row["name"]: row for row in ht.report(small).table}
    assert rows["blocks.0.gate.weight"]["rotated"] == 16 and rows["blocks.0.gate.weight"]["kept"] == ""
    assert all(row["rotated"] or "does not reduce" in row["kept"] for row in rows.values())
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("method", ["gptq", "qronos", "awq"])
def test_methods_round_the_rotated_weights(method: str) -> None:
    model, data = Net(), batches()
    x = data.pop()
    options = {"inputs": data, "include": "blocks.*", "activations": "int8"}
    plain = ht.convert(model, "int3", rotate="online", **options)
    small = ht.convert(model, "int3", rotate="online", method=method, **options)
    assert output_db(model, small, x) > output_db(model, plain, x) + 1


def test_a_state_has_the_rotations() -> None:
    model, data = Net(), batches()
    small = ht.convert(model, "int4", activations="int4", inputs=data, rotate="online")
    state = small.state_dict()
    assert [int(value) for key, value in state.items() if key.endswith(".turn")]
    again = ht.load_packed(Net(), state)
    with torch.no_grad():
        assert torch.equal(again(data[0]), small(data[0]))
        assert torch.equal(copy.deepcopy(small)(data[0]), small(data[0]))
    own = Net()
    assert torch.equal(ht.load_packed(own, state, inplace=True)(data[0]), small(data[0]))
    key = next(key for key in state if key.endswith(".turn"))
    with pytest.raises(RuntimeError, match="turn is 8, but the layer rotates blocks of"):
        small.load_state_dict({**state, key: torch.tensor(8)})


def test_a_layer_alone_and_its_gradient() -> None:
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(64, 8), torch.randn(512, 64)
    x[:, 3] *= 50
    small = ht.convert(layer, "int8", activations="int4", inputs=x, rotate="online")
    assert small.block == 64 and "block=64" in repr(small)
    x.requires_grad_(True)
    small(x).sum().backward()
    wanted = layer.weight.sum(dim=0)
    assert (x.grad[0] - wanted).abs().max() < 0.02 * wanted.abs().max()


def test_formats_with_a_rotation_rotate_inputs_in_the_call() -> None:
    model, data = Net(), batches()
    x = data.pop()
    options = {"activations": "int4", "include": "blocks.*"}
    plain, small = (ht.convert(model, text, **options) for text in ("int4", "int4+had"))
    assert output_db(model, small, x) > output_db(model, plain, x) + 0.3
    layer, old = small.blocks[0].gate, model.blocks[0].gate
    w = old.weight.detach().numpy()
    assert layer.block == 16 and str(layer.weight.format) == "int4"
    turned = rotation.rotate(w, 1, 16)
    assert np.array_equal(layer.weight.array().codes(), hc.quantize(turned, "int4").codes())
    again = ht.load_packed(Net(), small.state_dict())
    with torch.no_grad():
        assert torch.equal(again(x), small(x))
    better = ht.convert(model, {"blocks.*": "int4+had16"}, inputs=data, method="gptq", activations="int8")
    nearest = ht.convert(model, {"blocks.*": "int4"}, activations="int8")
    assert output_db(model, better, x) > output_db(model, nearest, x)
    ladder = [{"blocks.*": "int3+had"}, {"blocks.*": "int8+had"}]
    kept, gate = ht.convert(model, ladder, accept=lambda one: output_db(model, one, x), at_least=25)
    assert gate.passed and kept.blocks[0].gate.block == 16


@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_studies_round_rotated_inputs(kind: str) -> None:
    """With activations, a study judges a model as `convert` packs it, and a convolution as `conv2d` multiplies."""
    torch.manual_seed(1)
    model = (torch.nn.Linear(64, 8) if kind == "linear" else torch.nn.Conv2d(32, 8, 3)).eval()
    x = torch.randn(*((40, 64) if kind == "linear" else (2, 32, 6, 6)))
    x[:, 3] *= 30
    rows = hc.study(model, ["int4+had"], lambda one: one(x).detach().square().sum(), activations="int4").table
    (found,) = [row["evaluate"] for row in rows if (row["format"], row["activations"]) == ("int4+had", "int4")]
    w, b = model.weight.detach().numpy(), model.bias.detach().numpy()
    if kind == "linear":
        wanted = hc.linear(x.numpy(), hc.quantize(w, "int4+had"), b, activations="int4")
    else:
        wanted = hc.conv2d(x.numpy(), hc.quantize(w, "int4+had", axis=(2, 3, 1)), b, activations="int4")
    assert found == pytest.approx(float(np.square(wanted).sum()), rel=1e-4)


def test_a_rounding_to_rotated_arrays_is_not_left_out() -> None:
    model = Net()
    names = ("blocks.0.gate.weight", "blocks.1.gate.weight")
    weights = {name: dict(model.named_parameters())[name].detach().numpy() for name in names}
    x = np.ones((4, 48), np.float32)
    done = hc.ptq.quantize(weights, lambda some: [hc.linear(x, some[name]) for name in names],
                           {names[0]: "int4+had", names[1]: "int4"}, method="rtn")  # fmt: skip
    with pytest.raises(hc.ArgumentError, match=r"blocks.0.gate.weight' rounded to int4\+had"):
        ht.convert(model, done)
    with pytest.raises(hc.ArgumentError, match="shrinkage is for"):
        ht.convert(model, ["int8"], accept=lambda one: 1.0, at_least=0, shrinkage=0.1)


@pytest.mark.parametrize(
    ("fmt", "options", "words"),
    [("int4+had", {}, "give it a format without rotation"), ("int4+had-s1", {"include": "blocks.*"}, "has no signs"),
     ("int4+had", {"include": "blocks.*", "inplace": True}, "inplace is given with a format that rotates"),
     ("int4+had256", {"include": "blocks.*"}, "expected a multiple of 256")],
)  # fmt: skip
def test_layers_that_cannot_rotate_refuse_such_formats(fmt: str, options: Any, words: str) -> None:
    with pytest.raises(hc.ArgumentError, match=words):
        ht.convert(Net(), fmt, **options)


@pytest.mark.parametrize("norm", ["LayerNorm", "RMSNorm"])
@pytest.mark.parametrize("is_tied", [False, True])
def test_the_residual_stream_is_rotated_in_the_weights(norm: str, is_tied: bool) -> None:
    model, data = Net(getattr(torch.nn, norm), is_tied, bias=not is_tied), batches()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    x = data.pop()
    wide = residual(model, Divided(data), lambda one: one if one is not model else torch.nn.Embedding(40, 40)).model
    assert wide is not model and output_db(model, wide, x) > 100
    assert not torch.equal(wide.embed.weight, model.embed.weight) and not (wide.blocks[0].norm.weight - 1).any()
    found = {
        rotate: ht.convert(model, "int4", activations="int4", inputs=data, rotate=rotate)
        for rotate in (None, "residual")
    }
    assert output_db(model, found["residual"], x) > output_db(model, found[None], x) + 1
    rows = {row["name"]: row for row in ht.report(found["residual"]).table}
    assert rows["blocks.1.down.weight"]["rotated"] == rows["blocks.0.up.weight"]["rotated"] == D
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    if not is_tied:
        again = ht.load_packed(Net(getattr(torch.nn, norm)), found["residual"].state_dict())
        assert torch.equal(again(x), found["residual"](x))


def test_a_norm_without_some_channels_moves_its_bias_into_the_layers() -> None:
    model, data = Net(), batches()
    with torch.no_grad():
        model.norm.weight[3] = 0
    pick = torch.nn.Embedding(40, 40)
    wide = residual(model, Divided(data), lambda one: one if one is not model else pick).model
    assert wide.head.bias is not None and not wide.norm.bias.any() and output_db(model, wide, data[0]) > 100


def test_a_rotation_that_does_not_help_is_left_out() -> None:
    model, data = Net(), batches()
    with torch.no_grad():
        model.embed.weight.copy_(torch.eye(40, D) * 7)  # exact in int4, a rotation is not
    small = ht.convert(model, {"embed": "int4", "*": None}, inputs=data, rotate="residual")
    assert torch.equal(small.embed.weight.dequantize(), model.embed.weight)


@pytest.mark.parametrize("options", [{"rotate": "online"}, {"smooth": "search"}])
def test_held_out_batches_judge_a_step(options: dict[str, Any]) -> None:
    """The first batches have an outlier channel. The held-out batch has none, and the step adds errors there."""
    torch.manual_seed(0)
    norm, layer = torch.nn.LayerNorm(32), torch.nn.Linear(32, 16, bias=False)
    model = torch.nn.Sequential(torch.nn.Identity() if "rotate" in options else norm, layer)
    with torch.no_grad():
        layer.weight.copy_(torch.randint(0, 2, (16, 32)) * 2.0 - 1)  # exact in every format
    plain = torch.randint(0, 2, (64, 32)) * 2.0 - 1  # no error of int4
    large = torch.randn(64, 32)
    large[:, 5] = 40
    small = ht.convert(model, "int4", activations="int4", inputs=[large, large, large, plain], **options)
    other = ht.convert(model, "int4", activations="int4")
    assert torch.equal(small(plain), other(plain))
    (row,) = ht.report(small).table
    assert "the model" in (row["kept"] if "rotate" in options else row["left"]) and not row.get("rotated")
    gains = ht.convert(model, "int4", activations="int4", inputs=[large, large, large, large], **options)
    assert output_db(model, gains, large) > output_db(model, other, large) + 1


def test_batches_are_divided_by_their_index() -> None:
    def parts(count: int) -> tuple[list[int], list[int]]:
        found = Divided([np.full(1, i) for i in range(count)])
        return [int(one[0]) for one in found.chosen()], [int(one[0]) for one in found.held()]

    assert parts(1) == ([0], [0]) and parts(2) == ([0], [1]) and parts(3) == ([0, 1], [2])
    assert parts(4) == ([0, 1, 2], [3]) and parts(9) == ([0, 1, 2, 4, 5, 6, 8], [3, 7])
    with pytest.raises(ValueError, match="convert: inputs is an iterator"):
        list(Divided(iter([np.zeros(1)])).held())


@pytest.mark.parametrize("width", [12, 48, 64])
@pytest.mark.parametrize("keeps_mean", [False, True])
def test_rotations_are_orthogonal_and_keep_the_mean(width: int, keeps_mean: bool) -> None:
    turn = turn_of(width, keeps_mean)
    r = turn(np.eye(width, dtype=np.float32)).astype(np.float64)
    assert np.abs(r @ r.T - np.eye(width)).max() < 1e-6
    assert np.abs(r).max() < 0.9
    if keeps_mean:
        assert np.abs(r.sum(axis=1) - 1).max() < 1e-6


class PostNorm(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.first, self.norm = how, torch.nn.Linear(8, 16), torch.nn.LayerNorm(16)
        self.second, self.head = torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        if self.how == "relu":
            return self.head(self.norm(y + torch.relu(self.second(y))))
        if self.how == "post":
            return self.head(self.norm(y + self.second(y)) + y)
        if self.how == "returned":
            return y + self.second(y)
        if self.how == "no sums":
            return self.head(self.norm(y))
        return self.head(torch.tanh(y + self.second(y)))


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("relu", "relu writes it"),
        ("post", "add reads the output of norm"),
        ("returned", "the model returns it"),
        ("read", "tanh reads it"),
        ("no sums", "the model has no sums of layers"),
    ],
)
def test_streams_that_are_not_rotated_are_named(how: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"convert: rotate='residual': .*{sentence}"):
        ht.convert(PostNorm(how), "int8", inputs=torch.randn(8, 8), rotate="residual")


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        (torch.nn.Linear(20, 4), {}, "rotates no layer: weight: its 20 inputs have no block of 16 to 256"),
        (torch.nn.Embedding(4, 16), {}, "rotates no layer: weight: it is a Embedding, expected"),
        (torch.nn.Linear(32, 4), {"inputs": None}, "inputs is missing, expected the batches for rotate"),
        (
            torch.nn.Linear(32, 4),
            {"rotate": "offline"},
            "convert: rotate is 'offline', expected None or residual or online",
        ),
        (torch.nn.Linear(32, 4), {"inplace": True}, "rotate replaces layers of a copy"),
    ],
)
def test_bad_input_is_one_sentence(model: Any, options: dict[str, Any], sentence: str) -> None:
    x = torch.zeros(4, 4, dtype=torch.int64) if hasattr(model, "num_embeddings") else torch.randn(4, model.in_features)
    with pytest.raises(ValueError, match=sentence):
        ht.convert(model, "int8", **{"inputs": x, "rotate": "online", **options})


def test_a_rotation_of_inference_mode_has_gradients_later() -> None:
    from heterocompute.interop.torch import turned

    turned._matrix.cache_clear()
    with torch.inference_mode():
        turned.turned(torch.ones(2, 16), 16)
    x = torch.ones(2, 16, requires_grad=True)
    turned.turned(x, 16).sum().backward()
    assert x.grad is not None
