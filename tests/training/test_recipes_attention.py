"""Attention in recipes: against NumPy and PyTorch, under checkpointing, compiling, resuming, watching."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import heterocompute as hc
from heterocompute.training.step.attention import AttentionState, attended

Array = np.ndarray[Any, Any]
Recipe = hc.training.Recipe
F32 = np.float32
SHORT = {"groups of 8": Recipe(activations="int8-g8", gradients="int4-g4", name="groups of 8")}


def arrays(seed: int, queries: int = 16, keys: int = 24, features: int = 8) -> list[Array]:
    random = np.random.default_rng(seed)
    sizes = (queries, features), (keys, features), (keys, features), (queries, features)
    return [random.standard_normal((2, 3, *size), dtype=F32) for size in sizes]


def softmax(s: Array) -> Array:
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def bf16(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16).astype(F32)


def test_attention_is_six_matmuls_of_rounded_operands() -> None:
    q, k, v, g = arrays(0)
    scale = F32(1 / np.sqrt(8))
    p = softmax(bf16(q) @ bf16(k).swapaxes(-1, -2) * scale)
    dp = bf16(g) @ bf16(v).swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * scale
    expected = (
        bf16(p) @ bf16(v), bf16(ds) @ bf16(k), bf16(ds).swapaxes(-1, -2) @ bf16(q), bf16(p).swapaxes(-1, -2) @ bf16(g)
    )  # fmt: skip
    for found, wanted in zip(hc.training.attention_step(q, k, v, g, "bf16"), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-3 * np.abs(wanted).max())


def test_groups_are_along_the_axis_that_each_matmul_sums() -> None:
    q, k, v, g = arrays(1)
    scale = F32(1 / np.sqrt(8))

    def of(x: Array, fmt: str, axis: int) -> Array:
        return hc.fake_quantize(x, fmt, axis)

    def turned(x: Array) -> Array:
        return x.swapaxes(-1, -2)

    a, b = "int8-g8", "int4-g4"
    p = softmax(of(q, a, -1) @ turned(of(k, a, -1)) * scale)
    dp = of(g, b, -1) @ turned(of(v, a, -1))
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * scale
    expected = (
        of(p, a, -1) @ of(v, a, -2), of(ds, b, -1) @ of(k, a, -2), turned(of(ds, b, -2)) @ of(q, a, -2),
        turned(of(p, a, -2)) @ of(g, b, -2),
    )  # fmt: skip
    for found, wanted in zip(hc.training.attention_step(q, k, v, g, SHORT["groups of 8"]), expected, strict=True):
        assert np.mean(np.abs(found - wanted) > 1e-5 * np.abs(wanted).max()) < 0.02  # ties of the scores' last bits


def test_a_causal_query_sees_no_later_key() -> None:
    q, k, v, g = arrays(2, 16, 16)
    found = hc.training.attention_step(q, k, v, g, "bf16", causal=True)
    np.testing.assert_array_equal(found.y[..., 0, :], bf16(v)[..., 0, :])
    v[..., 9:, :] += 1
    other = hc.training.attention_step(q, k, v, g, "bf16", causal=True)
    np.testing.assert_array_equal(found.y[..., :9, :], other.y[..., :9, :])
    assert not np.array_equal(found.y[..., 9:, :], other.y[..., 9:, :])


def test_named_recipes_below_16_bits_keep_attention_in_bf16() -> None:
    for name in hc.training.recipes():
        recipe = hc.training.recipe(name)
        found = {str(fmt) for fmt in recipe.attention_formats("block0.attention").values()}
        narrow = name in ("fp8-delayed", "fp8-current", "deepseek-fp8", "mxfp8", "nvfp4", "int8-switchback")
        assert found == ({"bf16"} if narrow else {str(recipe.activations), str(recipe.gradients)}), name


def test_sums_of_a_tensor_core_in_attention() -> None:
    q, k, v, g = (one[0] for one in arrays(3, 8, 8))
    plain, core = (
        hc.training.attention_step(q, k, v, g, Recipe(activations="bf16", gradients="bf16", sums=sums))
        for sums in (None, "h100")
    )
    assert not np.array_equal(plain.y, core.y)
    np.testing.assert_allclose(plain.y, core.y, atol=1e-4)


def test_bad_attention_is_one_sentence() -> None:
    q, k, v, g = arrays(4, 12, 12)
    with pytest.raises(ValueError, match=r"has 12 keys, expected a multiple of 8, the group of activations"):
        hc.training.attention_step(q, k, v, g, SHORT["groups of 8"])
    assert (
        hc.training.attention_step(q, k, v, g, dataclasses.replace(SHORT["groups of 8"], pad=True)).y.shape == g.shape
    )
    with pytest.raises(ValueError, match=r"attention_step: shapes of q, k, v and dy are"):
        hc.training.attention_step(q, k[..., :4], v, g, "bf16")
    with pytest.raises(ValueError, match="Recipe: attention is uint8"):
        Recipe(attention="uint8")


torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from heterocompute.interop import torch as ht  # noqa: E402


class Attention(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


class Masked(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, mask)


class Model(torch.nn.Module):  # type: ignore[misc]
    """Two blocks of attention, recomputed or not."""

    def __init__(self, recomputes: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out, self.recomputes = torch.nn.Linear(32, 96), torch.nn.Linear(32, 4), recomputes
        self.one, self.two = Attention(True), Attention()

    def body(self, x: Any, attention: Any) -> Any:
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4)
        y = attention(q, k, v).transpose(1, 2)
        return x + y.reshape(x.shape)

    def forward(self, x: Any) -> Any:
        for one in (self.one, self.two):
            x = checkpoint(self.body, x, one, use_reentrant=False) if self.recomputes else self.body(x, one)
        return self.out(x)


FP8 = Recipe(
    weights="fp8_e4m3fn-tensor", activations="fp8_e4m3fn-tensor", gradients="fp8_e5m2-tensor",
    scaling=hc.training.Delayed(history=3), rounding={"gradients": "stochastic"},
)  # fmt: skip


def inputs(seed: int) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((2, 8, 32), dtype=F32))


@pytest.mark.parametrize("name", ["bf16", "fp16-loss-scale", "mxfp8", "groups of 8", "fp8"])
def test_functions_have_the_values_of_numpy(name: str) -> None:
    recipe: Any = SHORT.get(name, FP8 if name == "fp8" else name)
    net = ht.train_in(torch.nn.ModuleDict({"a": Attention(True), "b": torch.nn.Linear(32, 32)}), recipe)["a"]
    q, k, v, g = arrays(5, 16, 16)
    state = AttentionState(recipe if isinstance(recipe, Recipe) else hc.training.recipe(recipe), "a.attention")
    given = [torch.from_numpy(one).requires_grad_() for one in (q, k, v)]
    expected = attended(state, True, q, k, v, g)
    for one in net._forward_hooks and net._forward_pre_hooks.values():
        one.__self__.calls.begin()
    y = net(*given)
    y.backward(torch.from_numpy(g))
    for found, wanted in zip((y.detach(), *(one.grad for one in given)), expected, strict=True):
        away = np.abs(found.numpy() - wanted) > 2e-5 * np.abs(wanted).max()
        assert away.mean() < 0.03, name  # a score at a tie of two codes


def test_the_shipped_language_model_rounds_its_attention() -> None:
    from heterocompute.interop.torch.recipes.language import CharacterModel

    net = ht.train_in(CharacterModel(20, width=32, heads=2, context=16), "bf16")
    report = ht.watch(net)
    net(torch.zeros(1, 8, dtype=torch.int64)).sum().backward()
    assert {f"blocks.{i}.attention" for i in range(2)} <= {row["layer"] for row in report.rows}


def test_a_query_without_keys_gives_zeros_and_finite_gradients() -> None:
    net = ht.train_in(Masked(), Recipe(activations="int8-tensor", gradients="int8-tensor"))
    q, k, v = (torch.from_numpy(one).requires_grad_() for one in arrays(8, 16, 16)[:3])
    mask = torch.ones(16, 16, dtype=torch.bool)
    mask[3] = False
    y = net(q, k, v, mask)
    y.sum().backward()
    assert not y[..., 3, :].any()
    assert all(torch.isfinite(one.grad).all() and one.grad.any() for one in (k, v))
    assert not q.grad[..., 3, :].any()


def test_float32_attention_is_that_of_pytorch() -> None:
    torch.manual_seed(0)
    net = Attention(True)
    net.layer = torch.nn.Linear(32, 32)
    changed = ht.train_in(copy.deepcopy(net), Recipe(weights="bf16"))
    q = [torch.from_numpy(one) for one in arrays(6, 16, 16)[:3]]
    assert torch.equal(net(*q), changed(*q))


def test_recomputation_changes_no_bit() -> None:
    found = []
    for recomputes in (False, True):
        net = ht.train_in(Model(recomputes), FP8)
        for step in range(3):
            net(inputs(step)).square().mean().backward()
        found.append([p.grad.numpy().tobytes() for p in net.parameters()])
    assert found[0] == found[1]


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_function_around_attention_is_refused(reentrant: bool) -> None:
    class Method(Model):
        def attended(self, x: Any) -> Any:
            return self.body(x, lambda *given: functional.scaled_dot_product_attention(*given))

        def forward(self, x: Any) -> Any:
            return checkpoint(self.attended, x, use_reentrant=reentrant)

    net = ht.train_in(Method(), "bf16")
    x = inputs(0).requires_grad_()
    with pytest.raises(ValueError, match=r"attention: 'attention' is inside of a checkpointed function"):
        net(x)
    with torch.no_grad():
        assert net.eval()(x).shape == x.shape
    plain = ht.train_in(Method(), dataclasses.replace(hc.training.recipe("bf16"), attention="fp32"))
    plain(x).sum().backward()
    assert x.grad is not None


def test_resuming_continues_the_scales_of_attention() -> None:
    def trained(net: Any, first: int, last: int) -> Any:
        for step in range(first, last):
            net.zero_grad()
            net(inputs(step)).square().mean().backward()
            with torch.no_grad():
                for p in net.parameters():
                    p -= 0.1 * p.grad
        return net

    whole = trained(ht.train_in(Model(), FP8), 0, 5)
    half = trained(ht.train_in(Model(), FP8), 0, 3)
    saved = copy.deepcopy(half.state_dict())
    assert set(saved["recipe_attention"]["attentions"]) == {"one.attention", "two.attention"}
    other = ht.train_in(Model(), FP8)
    other.load_state_dict(saved)
    found, wanted = ([p.detach().numpy().tobytes() for p in net.parameters()] for net in (trained(other, 3, 5), whole))
    assert found == wanted
    plain = ht.train_in(Model(), FP8)
    plain.load_state_dict({key: value for key, value in saved.items() if key != "recipe_attention"})
    assert [p.detach().numpy().tobytes() for p in trained(plain, 3, 5).parameters()] != wanted


def test_compiled_models_have_the_same_values() -> None:
    net = ht.train_in(Model(), "bf16")
    plain = copy.deepcopy(net)
    compiled = torch.compile(net, backend="eager")
    for step in range(2):
        a, b = compiled(inputs(step)), plain(inputs(step))
        assert torch.equal(a, b)
        a.sum().backward()
        b.sum().backward()
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(net.parameters(), plain.parameters(), strict=True))


def test_an_error_inside_leaves_functions_as_they_were() -> None:
    net = ht.train_in(Model(), "bf16")
    with pytest.raises(RuntimeError):
        net(torch.zeros(2, 8, 33))
    q = torch.from_numpy(arrays(7, 16, 16)[0])
    assert torch.equal(functional.scaled_dot_product_attention(q, q, q), Attention()(q, q, q))
    with pytest.raises(TypeError, match=r"'one.attention' receives torch.float64"):
        net.one(*[q.double()] * 3)


def test_watch_names_the_operands_of_attention() -> None:
    net = ht.train_in(Model(), Recipe(activations="fp16", gradients="fp16"))
    report = ht.watch(net)
    net(inputs(0) * 1e-6).sum().backward()
    found = {row["tensor"] for row in report.history if row["layer"] == "two.attention"}
    assert found == {"queries", "keys", "probabilities", "values", "gradients"}
    worst = max((row for row in report.history if row["layer"] == "one.attention"), key=lambda row: row["underflow"])
    assert worst["tensor"] == "gradients"
    report.close()
    count = len(report.history)
    net(inputs(0)).sum().backward()
    assert len(report.history) == count


TF32 = Recipe(weights="tf32", activations="tf32", gradients="tf32")


@pytest.mark.parametrize("case", range(12))
def test_multihead_attention_has_pytorchs_values(case: int) -> None:
    random = np.random.default_rng(case)
    torch.manual_seed(case)
    kinds: list[dict[str, Any]] = [{}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 12, "vdim": 20}]
    kind, first = kinds[case % 4], bool(random.integers(2))
    plain = torch.nn.MultiheadAttention(32, 4, bias=bool(random.integers(2)), batch_first=first, **kind)
    net = ht.train_in(copy.deepcopy(plain), TF32)
    lengths = (5, 7) if random.integers(2) else (6, 6)
    q, k, v = (
        torch.randn(3, length, width) if first else torch.randn(length, 3, width)
        for length, width in zip((*lengths, lengths[1]), (32, kind.get("kdim", 32), kind.get("vdim", 32)), strict=True)
    )
    if lengths[0] == lengths[1] and "kdim" not in kind:
        k = v = q
    masks: list[Any] = [None, torch.randn(lengths), torch.rand(lengths) < 0.3, torch.randn(12, *lengths)]
    mask, padding = masks[random.integers(4)], None
    if random.integers(2):
        padding = torch.zeros(3, lengths[1], dtype=torch.bool)
        padding[1, -1] = True
        if mask is not None and mask.dtype != torch.bool:
            padding = torch.zeros(3, lengths[1]).masked_fill(padding, -1e9)
    each = bool(random.integers(2))
    given = {"attn_mask": mask, "key_padding_mask": padding, "average_attn_weights": each}
    found, wanted = net(q, k, v, **given), plain(q, k, v, **given)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=0, atol=4e-3, equal_nan=True)
    found[0].sum().backward()
    wanted[0].sum().backward()
    for p, r in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, r.grad, rtol=0, atol=1e-2 * float(r.grad.abs().max()) + 1e-4)


def test_encoders_round_in_evaluation_too() -> None:
    layer = torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
    plain = copy.deepcopy(layer)
    net = ht.train_in(torch.nn.TransformerEncoder(layer, 2), "bf16").eval()
    x = inputs(0)
    with torch.no_grad():
        fast = net(x)
    assert torch.equal(fast, net(x).detach())
    kept = ht.train_in(torch.nn.Sequential(copy.deepcopy(plain)), Recipe(weights="int4", keep={"0.self_attn": None}))
    kept.eval()
    with torch.no_grad():
        fast = kept(x)
    torch.testing.assert_close(fast, kept(x).detach(), rtol=0, atol=1e-4)  # the float attention has a fast path
    assert float((fast - plain.eval()(x)).abs().max()) > 0.01


def test_multihead_attention_keeps_its_scales() -> None:
    torch.manual_seed(0)
    net = ht.train_in(torch.nn.MultiheadAttention(32, 2, batch_first=True), FP8)
    for step in range(3):
        net(*[inputs(step)] * 3)[0].sum().backward()
    other = ht.train_in(torch.nn.MultiheadAttention(32, 2, batch_first=True), FP8)
    other.load_state_dict(net.state_dict())
    a, b = (one(*[inputs(4)] * 3)[0].detach() for one in (net, other))
    assert torch.equal(a, b)
    assert net.recipe_attention.scores.history["activations"].any()
