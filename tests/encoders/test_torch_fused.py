"""`ht.fuse`: blocks in one call have the bits of the steps of this package, and fall back where something observes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from common import isas, same_bits

import heterocompute as hc
from heterocompute.products.layers.transformer import activated

torch = pytest.importorskip("torch")
from heterocompute.interop import torch as ht  # noqa: E402


def torch_block(norm_first: bool = False, activation: str = "gelu", width: int = 32) -> Any:
    torch.manual_seed(1)
    block = torch.nn.TransformerEncoderLayer(
        width, 4, 80, batch_first=True, norm_first=norm_first, activation=activation
    ).eval()
    with torch.no_grad():
        for one in block.parameters():
            one.add_(torch.randn_like(one) * 0.1)
    return block


def transformer(name: str, **more: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(2)
    sizes = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4}
    sizes |= {"image_size": 16, "patch_size": 4} if name in ("ViT", "DeiT") else {"vocab_size": 60, "pad_token_id": 0}
    config = getattr(transformers, f"{name}Config")(**sizes, **more)
    return getattr(transformers, f"{name}Model")(config).eval()


def steps(x: Any, block: Any, norm_first: bool, act: str) -> Any:
    """Compute a packed block of PyTorch by the functions of this package, one after the other."""
    own, fmt = block.self_attn, block.linear1.weight.activations
    n, d = x.shape[2], own.head_dim
    array = lambda t: t.detach().numpy()  # noqa: E731
    norm = lambda y, one: hc.layers.layer_norm(y, array(one.weight), array(one.bias), one.eps)  # noqa: E731
    times = lambda y, w, b: hc.linear(y, w.array(), array(b), activations=fmt)  # noqa: E731

    def attended(y: Any) -> Any:
        qkv = times(y, own.in_proj_weight, own.in_proj_bias)
        heads = [np.ascontiguousarray(qkv[..., i * n : (i + 1) * n].reshape(*y.shape[:2], -1, d).swapaxes(1, 2))
                 for i in range(3)]  # fmt: skip
        z = hc.attention(*heads, False, d**-0.5).swapaxes(1, 2).reshape(y.shape)
        return times(np.ascontiguousarray(z), own.out_proj.weight, own.out_proj.bias)

    def fed(y: Any) -> Any:
        hidden = activated(act, times(y, block.linear1.weight, block.linear1.bias))
        return times(hidden, block.linear2.weight, block.linear2.bias)

    if norm_first:
        x = x + attended(norm(x, block.norm1))
        return x + fed(norm(x, block.norm2))
    x = norm(x + attended(x), block.norm1)
    return norm(x + fed(x), block.norm2)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(("activation", "act"), [("gelu", "gelu_erf"), ("relu", "relu")])
@pytest.mark.parametrize(("fmt", "activations"), [("int8", "int8"), ("vsq4-g16-s4", "int8"), ("int4-g32", None)])
def test_a_block_has_the_bits_of_its_steps(
    norm_first: bool, activation: str, act: str, fmt: str, activations: str | None
) -> None:
    small = ht.convert(torch_block(norm_first, activation), fmt, activations=activations)
    one = ht.fuse(small)
    rng = np.random.default_rng(7)
    for batch, n in ((1, 1), (2, 7), (1, 40)):
        x = rng.standard_normal((batch, n, 32), dtype=np.float32)
        found = []
        for isa in isas():
            for threads in (1, 2):
                with hc.use(isa=isa, threads=threads), torch.inference_mode():
                    found.append(one(torch.from_numpy(x)).numpy())
        wanted = steps(x, small, norm_first, act)
        assert all(same_bits(wanted, y) for y in found)
        with torch.inference_mode():
            near = small(torch.from_numpy(x)).numpy()
        assert np.abs(near - wanted).max() <= 0.05 * np.abs(near).max()


FAMILIES = ["Bert", "Roberta", "XLMRoberta", "Camembert", "Electra", "ViT", "DeiT"]


def inputs_of(name: str) -> dict[str, Any]:
    if name in ("ViT", "DeiT"):
        return {"pixel_values": torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))}
    ids = torch.randint(3, 60, (2, 9), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.mark.parametrize("name", FAMILIES)
def test_models_of_transformers_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from heterocompute.interop.torch import fused

    small = ht.convert(transformer(name), "int8", exclude="*embeddings*")
    whole, inputs, calls = ht.fuse(small), inputs_of(name), []
    run = fused._run
    monkeypatch.setattr(fused, "_run", lambda x, blocks: calls.append(len(blocks)) or run(x, blocks))
    with torch.inference_mode():
        wanted, found = small(**inputs).last_hidden_state, whole(**inputs).last_hidden_state
        assert calls == ([1, 1, 1] if name in ("ViT", "DeiT") else [3])
        assert (wanted - found).abs().max() <= 1e-5 * wanted.abs().max()
        again = pickle.loads(pickle.dumps(whole))(**inputs).last_hidden_state
        assert torch.equal(again, found) and torch.equal(copy.deepcopy(whole)(**inputs).last_hidden_state, found)
    assert {*whole.state_dict()} == {*small.state_dict()}
    assert all(torch.equal(part, whole.state_dict()[key]) for key, part in small.state_dict().items())


def test_calls_that_something_observes_run_step_by_step() -> None:
    small = ht.convert(transformer("Bert"), "int8", exclude="embeddings*")
    whole, inputs = ht.fuse(small), inputs_of("Bert")
    inputs["attention_mask"][1, 4:] = 0
    with torch.inference_mode():
        assert torch.equal(whole(**inputs).last_hidden_state, small(**inputs).last_hidden_state)
        asked = {**inputs, "output_hidden_states": True, "attention_mask": torch.ones_like(inputs["input_ids"])}
        assert len(whole(**asked).hidden_states) == 4
        one, calls = ht.fuse(ht.convert(torch_block(), "int8")), []
        one.linear1.register_forward_hook(lambda *_: calls.append(1))
        one(torch.ones(1, 3, 32))
        assert calls == [1]
    x = torch.ones(1, 3, 32, requires_grad=True)
    block = ht.fuse(ht.convert(torch_block(), "int8"))
    block(x).square().sum().backward()
    assert x.grad is not None and bool(x.grad.abs().max() > 0)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert block.train()(torch.ones(1, 3, 32)).shape == (1, 3, 32)


def test_a_block_uses_the_weights_that_it_has_now() -> None:
    blocks = [ht.convert(torch_block(), "int8") for _ in range(2)]
    with torch.no_grad():
        other = torch_block()
        for one in other.parameters():
            one.mul_(0.5)
    blocks[1] = ht.convert(other, "int8")
    first, second = (ht.fuse(one) for one in blocks)
    x = torch.linspace(-1, 1, 3 * 32).reshape(1, 3, 32)
    with torch.inference_mode():
        before, wanted = first(x), second(x)
    assert not torch.equal(before, wanted)
    first.load_state_dict(second.state_dict())
    with torch.inference_mode():
        assert torch.equal(first(x), wanted)
        first.norm2.bias.data = first.norm2.bias.data + 1
        assert (first(x) - wanted - 1).abs().max() <= 1e-5


def packed_linear() -> Any:
    torch.manual_seed(5)
    return ht.convert(torch.nn.Sequential(torch.nn.Linear(32, 80)), "int8")[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda block: setattr(block, "linear1", packed_linear()),
        lambda block: setattr(block, "linear1", torch.nn.Linear(32, 80).requires_grad_(False).apply(halved)),
        lambda block: setattr(block.norm2, "eps", 1.0),
        lambda block: [setattr(one, "eps", 1.0) for one in (block.norm1, block.norm2)],
        lambda block: setattr(block, "activation", torch.nn.functional.relu),
        lambda block: setattr(block.linear2, "forward", lambda x: x[..., :32] + 1),
    ],
    ids=["packed", "float", "norm", "norms", "activation", "forward"],
)
def test_changes_of_the_modules_of_a_block_are_seen(change: Any) -> None:
    small = ht.convert(torch_block(), "int8")
    whole, x = ht.fuse(small), torch.linspace(-1, 1, 3 * 32).reshape(1, 3, 32)
    with torch.inference_mode():
        before = whole(x)
        for block in (small, whole):
            change(block)
        wanted, found = small(x), whole(x)
    assert (found - wanted).abs().max() <= 1e-5 < (before - wanted).abs().max()


def halved(linear: Any) -> None:
    linear.weight.fill_(0.5)
    linear.bias.fill_(0.5)


def test_dropout_inside_of_a_block_drops() -> None:
    whole, x = ht.fuse(ht.convert(torch_block(), "int8")), torch.ones(1, 3, 32)
    with torch.inference_mode():
        assert torch.equal(whole(x), whole(x))
        whole.dropout2.train()
        assert not torch.equal(whole(x), whole(x))


def test_another_attention_of_transformers_is_called() -> None:
    transformers, calls = pytest.importorskip("transformers"), []
    whole, inputs = ht.fuse(ht.convert(transformer("Bert"), "int8", exclude="embeddings*")), inputs_of("Bert")

    def counted(module: Any, q: Any, k: Any, v: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return v.transpose(1, 2), None

    transformers.AttentionInterface.register("counted", counted)
    with torch.inference_mode():
        whole(**inputs)
        whole.set_attn_implementation("counted")
        whole(**inputs)
    assert len(calls) == 3


def test_a_stack_calls_blocks_whose_forward_was_replaced() -> None:
    whole, inputs = ht.fuse(ht.convert(transformer("Bert"), "int8", exclude="embeddings*")), inputs_of("Bert")
    whole.encoder.layer[2].forward = lambda x, *args, **kwargs: torch.zeros_like(x)
    with torch.inference_mode():
        assert bool((whole(**inputs).last_hidden_state == 0).all())


def test_fusing_leaves_modes_and_calls_no_hook() -> None:
    small, calls = ht.convert(torch_block(), "int8").train(), []
    small.norm1.eval()
    modes = {name: one.training for name, one in small.named_modules()}
    assert {name: one.training for name, one in ht.fuse(small).named_modules()} == modes
    small.linear1.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(ValueError, match="have hooks"):
        ht.fuse(small)
    assert not calls


def test_a_negated_view_is_computed() -> None:
    whole, x = ht.fuse(ht.convert(torch_block(), "int8")), torch.linspace(-1, 1, 96).reshape(1, 3, 32)
    with torch.inference_mode():
        assert (whole(torch._neg_view(x)) - whole(-x)).abs().max() <= 1e-5


def test_blocks_of_a_stack_of_pytorch_are_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    from heterocompute.interop.torch import fused

    stack = torch.nn.TransformerEncoder(torch_block(), 2, enable_nested_tensor=False).eval()
    small, calls = ht.convert(stack, "int8"), []
    whole, run = ht.fuse(small), fused._run
    monkeypatch.setattr(fused, "_run", lambda x, blocks: calls.append(1) or run(x, blocks))
    x = torch.linspace(-1, 1, 2 * 5 * 32).reshape(2, 5, 32)
    with torch.inference_mode():
        assert (whole(x) - small(x)).abs().max() <= 1e-5
    assert len(calls) == 2


def test_projections_lie_one_after_the_other() -> None:
    whole = ht.fuse(ht.convert(transformer("Bert"), "int8", exclude="embeddings*"))
    own = whole.encoder.layer[0].attention.self
    ends = [one.weight.codes.data_ptr() for one in (own.query, own.key, own.value)]
    assert [b - a for a, b in zip(ends, ends[1:], strict=False)] == [48 * 48] * 2


def test_models_that_cannot_be_fused_say_why() -> None:
    with pytest.raises(TypeError, match="model is 3"):
        ht.fuse(3)
    with pytest.raises(ValueError, match="no block"):
        ht.fuse(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="not all of its linear layers are packed"):
        ht.fuse(ht.convert(torch_block(), "int8", exclude="linear1"))
    with pytest.raises(ValueError, match="no block of an encoder"):
        ht.fuse(ht.convert(torch.nn.TransformerEncoderLayer(32, 4, 80), "int8"))
    mixed = ht.convert(ht.convert(torch_block(), "int8", include="linear1"), "int8", activations="int8")
    with pytest.raises(ValueError, match="different formats"):
        ht.fuse(mixed)
    block = ht.convert(torch_block(), "int8")
    assert ht.fuse(block, inplace=True) is block
    with pytest.raises(ValueError, match="not fused already"):
        ht.fuse(block)
    other = ht.convert(torch_block(), "int8")
    other.linear2.forward = lambda x: type(other.linear2).forward(other.linear2, x) * 1.01
    with pytest.raises(ValueError, match="forward of its PackedLinear was replaced"):
        ht.fuse(other, inplace=True)
    other = ht.convert(torch_block(), "int8")
    other.dropout = type("Mine", (torch.nn.Dropout,), {"__module__": "mine"})()
    with pytest.raises(ValueError, match="a layer of class Mine"):
        ht.fuse(other, inplace=True)
    other = ht.convert(torch_block(), "int8")
    del other.norm1
    with pytest.raises(ValueError, match="its class differs from the known one"):
        ht.fuse(other, inplace=True)
