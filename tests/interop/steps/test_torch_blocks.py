"""Learned rounding by blocks: which blocks there are, what is recorded of them, and what they gain."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import heterocompute as hc

torch = pytest.importorskip("torch")
ht = pytest.importorskip("heterocompute.interop.torch")
blocks = pytest.importorskip("heterocompute.interop.torch.learning.blocks")
blocks_of = pytest.importorskip("heterocompute.interop.models.blocks").blocks_of
learned = pytest.importorskip("heterocompute.interop.torch.learning.codes")
from decibels import output_db  # noqa: E402

D = 16


class Attends(torch.nn.Module):  # type: ignore[misc]
    """A block with a mask by name and a tuple as its answer, as decoder layers have them."""

    def __init__(self, width: int = D) -> None:
        super().__init__()
        self.norm, self.mix = torch.nn.LayerNorm(width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x: Any, mask: Any = None) -> tuple[Any, None]:
        y = self.norm(x)
        scores = (y @ y.transpose(-1, -2)) / 4
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, :], -1e9)
        x = x + scores.softmax(-1) @ self.mix(y)
        return x + self.down(torch.nn.functional.silu(self.up(x))), None


class Decoder(torch.nn.Module):  # type: ignore[misc]
    """A language model: an embedding, blocks, and a head."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, D)
        self.blocks = torch.nn.ModuleList(Attends() for _ in range(count))
        self.head = torch.nn.Linear(D, 50)

    def forward(self, ids: Any, attention_mask: Any = None) -> Any:
        x, mask = self.embed(ids), None if attention_mask is None else attention_mask != 0
        for block in self.blocks:
            x, _ = block(x, mask=mask)
        return self.head(x)


def decoder(seed: int, count: int = 3) -> tuple[Any, list[Any], Any]:
    """Return a model, batches and other inputs."""
    torch.manual_seed(seed)
    model = Decoder(count).eval()
    return model, [torch.randint(50, (8, 12)) for _ in range(4)], torch.randint(50, (32, 12))


def test_blocks_are_repeated_modules_and_single_layers() -> None:
    model = Decoder(2)
    paths = [name for name, one in model.named_modules() if isinstance(one, torch.nn.Linear)]
    found = blocks_of(model, paths)
    inner = ["mix", "up", "down"]
    assert found == {f"blocks.{i}": [f"blocks.{i}.{one}" for one in inner] for i in range(2)} | {"head": ["head"]}
    stages = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 1),
        torch.nn.Sequential(torch.nn.Conv2d(2, 2, 1), torch.nn.Conv2d(2, 2, 1)),
        torch.nn.Sequential(torch.nn.Conv2d(2, 2, 1)),
        torch.nn.Conv2d(2, 2, 1),
    )
    assert blocks_of(stages, ["0", "1.0", "1.1", "2.0", "3"]) == {
        "0": ["0"], "1": ["1.0", "1.1"], "2": ["2.0"], "3": ["3"],
    }  # fmt: skip
    assert blocks_of(torch.nn.Linear(2, 2), [""]) == {"": [""]}
    single = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), torch.nn.Linear(2, 2))
    assert blocks_of(single, ["0.0", "1"]) == {"0.0": ["0.0"], "1": ["1"]}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("fmt", "activations"), [("int3-g16", None), ("int4-g16", "int8"), ("nf4-g16", None)])
def test_learning_by_blocks_is_better_than_its_start(
    seed: int, fmt: str, activations: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learned, "FEW", 0)
    model, batches, x = decoder(seed)
    recipe = {"blocks.*": fmt}
    start = ht.convert(model, recipe, method="gptq", inputs=batches[:3], activations=activations)
    options = {"method": "learned", "inputs": batches, "activations": activations, "steps": 12}
    small, again = (ht.convert(model, recipe, **options, seed=seed) for _ in range(2))
    assert output_db(model, small, x) > output_db(model, start, x)
    state, other = small.state_dict(), again.state_dict()
    assert [*state] == [*other] and all(torch.equal(state[name], other[name]) for name in state)
    assert {row["name"] for row in ht.report(small).table} == {n for n, _ in model.named_parameters() if n[-8:] in
            ("x.weight", "p.weight", "n.weight") and "norm" not in n and "blocks" in n}  # fmt: skip


def test_small_models_are_also_learned_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    gains = []
    for few in (0, 12):
        monkeypatch.setattr(learned, "FEW", few)
        total = 0.0
        for seed in range(2):
            model, batches, x = decoder(seed)
            small = ht.convert(model, "int3-g16", method="learned", inputs=batches, steps=16, exclude="embed*")
            total += output_db(model, small, x)
        gains.append(total)
    assert gains[1] > gains[0]


@pytest.mark.parametrize("count", [4, 8])
def test_steps_run_the_block_alone(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "FEW", 0)
    model, batches, _ = decoder(0, count)
    calls: list[int] = []
    own = Attends.forward

    def counted(self: Any, x: Any, mask: Any = None) -> Any:
        calls.append(1)
        return own(self, x, mask)

    monkeypatch.setattr(Attends, "forward", counted)
    numbers = []
    for steps in (1, 9):
        calls.clear()
        ht.convert(model, {"blocks.1.*": "int4-g16"}, method="learned", inputs=batches, steps=steps)
        numbers.append(len(calls))
    # each step: 3 batches with gradients, 3 without; each check: a held-out batch
    assert 0 < numbers[1] - numbers[0] <= 8 * 6 + 2


class Cached(Attends):
    """A block that remembers its last inputs, as a cache does."""

    past: Any = None

    def forward(self, x: Any, mask: Any = None) -> tuple[Any, None]:
        own = x if self.past is None else x + self.past.mean()
        self.past = x.detach()
        return super().forward(own, mask)


def test_a_block_that_does_not_repeat_its_outputs_stays_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "FEW", 0)
    model, batches, _ = decoder(0)
    model.blocks[1] = Cached()
    with torch.no_grad():
        model.blocks[1].mix.weight *= 3
    recipe = {"blocks.0.*": "int3-g16", "blocks.1.*": "int3-g16"}
    model.blocks[0].__class__ = Cached  # both are of one class
    model.blocks[2].__class__ = Cached
    for block in model.blocks:
        block.past = torch.ones(1)
    start = ht.convert(copy.deepcopy(model), recipe, method="gptq", inputs=batches[:3])
    small = ht.convert(copy.deepcopy(model), recipe, method="learned", inputs=batches, steps=4)
    assert all(torch.equal(small.blocks[i].mix.weight.dequantize(), start.blocks[i].mix.weight.dequantize())
               for i in (0, 1))  # fmt: skip


def test_padding_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "FEW", 0)
    model, batches, _ = decoder(1)
    mask = torch.ones(8, 12, dtype=torch.int64)
    mask[::2, 7:] = 0
    padded = [{"ids": ids, "attention_mask": mask} for ids in batches]
    other = [{"ids": torch.where(mask != 0, ids, (ids + 7) % 50), "attention_mask": mask} for ids in batches]
    options = {"method": "learned", "steps": 6}
    small, same = (ht.convert(model, {"blocks.*": "int3-g16"}, inputs=one, **options) for one in (padded, other))
    for one, two in zip(small.blocks, same.blocks, strict=True):
        assert one.up.weight.array() == two.up.weight.array()


def test_shared_blocks_and_those_that_are_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList(torch.nn.Linear(D, D) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for one in (self.parts[0], self.parts[1], self.parts[0]):
                x = torch.tanh(one(x)) + x
            return x

    monkeypatch.setattr(learned, "FEW", 0)
    torch.manual_seed(0)
    model, batches, x = Twice().eval(), [torch.randn(64, D) for _ in range(4)], torch.randn(256, D)
    start = ht.convert(model, "int3-g16", method="gptq", inputs=batches[:3])
    small = ht.convert(model, "int3-g16", method="learned", inputs=batches, steps=8)
    assert output_db(model, small, x) > output_db(model, start, x)
    assert small.parts[2].weight.array() == start.parts[2].weight.array()


def test_a_layer_with_several_names_and_tied_layers_are_learned() -> None:
    class Adds(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.own, self.layer = torch.nn.Linear(D, D), layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.layer(torch.tanh(self.own(x)))

    for tied in (False, True):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(D, D) for _ in range(3)]
        for one in layers if tied else ():
            one.weight = layers[0].weight
        model = torch.nn.Sequential(*(Adds(one) for one in (layers if tied else layers[:1] * 3))).eval()
        batches, x = [torch.randn(64, D) for _ in range(4)], torch.randn(256, D)
        start = ht.convert(model, "int3-g16", method="gptq", inputs=batches[:3])
        small = ht.convert(model, "int3-g16", method="learned", inputs=batches, steps=8)
        assert output_db(model, small, x) > output_db(model, start, x)
        assert small[0].layer.weight is small[2].layer.weight


def test_inference_mode_of_the_caller_changes_nothing() -> None:
    model, batches, _ = decoder(0)
    options = {"method": "learned", "inputs": batches, "steps": 2}
    small = ht.convert(model, {"blocks.*": "int3-g16"}, **options)
    with torch.inference_mode():
        other = ht.convert(model, {"blocks.*": "int3-g16"}, **options)
    for one, two in zip(small.blocks, other.blocks, strict=True):
        assert one.up.weight.array() == two.up.weight.array()


def test_gradients_that_the_model_turns_off_are_refused() -> None:
    class Off(Attends):
        def forward(self, x: Any, mask: Any = None) -> Any:
            with torch.no_grad():
                return super().forward(x, mask)

    model, batches, _ = decoder(0)
    model.blocks = torch.nn.ModuleList(Off() for _ in range(2))
    with pytest.raises(hc.ArgumentError, match="the model turns gradients off"):
        ht.convert(model, {"blocks.*": "int3-g16"}, method="learned", inputs=batches, steps=2)


class Saving(torch.nn.Module):  # type: ignore[misc]
    """Blocks whose forward pass is computed again for the gradients."""

    def __init__(self, saves: bool) -> None:
        super().__init__()
        inner = [torch.nn.Sequential(torch.nn.Linear(D, D), torch.nn.GELU(), torch.nn.Linear(D, D)) for _ in range(3)]
        self.blocks, self.head, self.saves = torch.nn.ModuleList(inner), torch.nn.Linear(D, 3), saves

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = x + (torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.saves else block(x))
        return self.head(x)


def test_checkpoints_learn_the_same_codes() -> None:
    torch.manual_seed(0)
    model, batches = Saving(False), [torch.randn(40, D) for _ in range(4)]
    small = []
    for model.saves in (False, True):
        small.append(ht.convert(model, "int3-g16", method="learned", inputs=batches, steps=20))
    assert str(small[0].state_dict()) == str(small[1].state_dict())
    x = torch.randn(99, D)
    plain = ht.convert(model, "int3-g16", method="gptq", inputs=batches)
    exact = model(x)
    assert (small[1](x) - exact).square().sum() < (plain(x) - exact).square().sum()


def test_a_block_behind_a_recurrent_layer_is_learned() -> None:
    class Tagger(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.lstm = torch.nn.Embedding(50, D), torch.nn.LSTM(D, D, batch_first=True)
            self.head = torch.nn.Linear(D, 8)

        def forward(self, ids: Any) -> Any:
            return self.head(self.lstm(self.embed(ids))[0])

    torch.manual_seed(0)
    small = ht.convert(Tagger(), "int4-g16", method="learned", steps=3, inputs=[torch.randint(50, (4, 9))] * 4)
    assert str(small.head.weight.format) == "int4-g16" and "head.weight" in [
        row["name"] for row in ht.report(small).table
    ]
