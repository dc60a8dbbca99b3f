"""Passes of batches through one block: they have the bits of passes through the whole model, or these are run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import heterocompute as hc

torch = pytest.importorskip("torch")
chain = pytest.importorskip("heterocompute.interop.models.chain")
batching = pytest.importorskip("heterocompute.interop.models.batches")
calibration = pytest.importorskip("heterocompute.interop.models.calibration")

KINDS = ("plain", "residual", "named", "pairs", "after", "written", "skip", "twice", "state", "gated", "shape")
LINKED = ("plain", "residual", "named", "pairs", "written")  # whose blocks are linked to those before


class Block(torch.nn.Module):
    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(width, width + 8), torch.nn.Linear(width + 8, width)
        self.kind, self.calls = kind, 0

    def forward(self, x: Any, scale: Any = None, before: Any = None) -> Any:
        self.calls += 1
        y = self.second(torch.tanh(self.first(x)))
        if scale is not None:
            y = y * scale
        if before is not None:
            y = y + before
        if self.kind == "state":
            y = y * self.calls
        if self.kind == "written":
            x += y
            return x
        return (y, scale) if self.kind == "pairs" else x + y if self.kind == "residual" else y


class Stack(torch.nn.Module):
    """Blocks in a row, in one of the ways in which models call them."""

    def __init__(self, kind: str, count: int, width: int) -> None:
        super().__init__()
        self.kind, self.stem = kind, torch.nn.Linear(5, width)
        self.blocks = torch.nn.ModuleList(Block(width, kind) for _ in range(count))
        self.head = torch.nn.Linear(width, 3)

    def forward(self, x: Any) -> Any:
        h = self.stem(x)
        scale = torch.full((h.shape[-1],), 1.5)
        seen = [h]
        for block in self.blocks:
            if self.kind == "named":
                h = block(x=h, scale=scale)
            elif self.kind == "pairs":
                h, scale = block(h, scale=scale)
            elif self.kind == "after":
                h = torch.relu(block(h))
            elif self.kind == "skip":
                h = block(h, before=seen[max(len(seen) - 2, 0)])
            elif self.kind == "twice":
                h = block(block(h))
            elif self.kind == "gated":  # an argument that depends on what the blocks compute
                h = block(h, scale=h.mean().detach())
            elif self.kind == "shape":
                h = block(h, scale=float(h.shape[0]))
            else:
                h = block(h)
            seen.append(h)
        return self.head(h)


def drawn(rng: Any, kind: str) -> tuple[Any, list[Any], list[str]]:
    torch.manual_seed(int(rng.integers(1 << 30)))
    net = Stack(kind, int(rng.integers(2, 6)), 8 * int(rng.integers(1, 4))).eval()
    batches = [torch.randn(int(rng.integers(1, 7)), 5) for _ in range(int(rng.integers(1, 5)))]
    return net, batches, [name for name, one in net.named_modules() if isinstance(one, torch.nn.Linear)]


def seen_by(net: Any, source: Any, path: str) -> list[Any]:
    """Return the inputs of a layer in the passes of a source."""
    found: list[Any] = []
    layer = net.get_submodule(path)
    for _, _, (run,) in source.passes([path]):
        inner: list[Any] = []
        hook = layer.register_forward_pre_hook(lambda _, args, inner=inner: inner.append(args[0].clone()))
        with calibration.recording(net, calibration.ProductRecorder({}), []):
            run()
        hook.remove()
        found.append(inner)
    return found


def same(found: list[Any], expected: list[Any]) -> bool:
    return len(found) == len(expected) and all(
        len(a) == len(b) and all(map(torch.equal, a, b)) for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_sees_what_it_sees_in_the_whole_model(kind: str) -> None:
    rng = np.random.default_rng(6021 + KINDS.index(kind))
    for _ in range(4):
        net, batches, paths = drawn(rng, kind)
        source = batching.Batches(batches, "test")
        own = chain.Chain([net], source, paths, 1 << 20)
        kept = [one.clone() for one in batches]
        for path in [*paths, *rng.choice(paths, 3)]:  # in order, and then in any order
            if kind != "state":  # which differs in every run
                expected = seen_by(net, chain.Whole([net], source), path)
                assert same(seen_by(net, own, path), expected), (kind, path)
            else:
                seen_by(net, own, path)
                assert own._at is None or not own._at.startswith("blocks")
            with torch.no_grad():
                net.get_submodule(path).weight.mul_(1.25)
            own.changed([path])
        assert all(map(torch.equal, batches, kept))


@pytest.mark.parametrize("kind", [one for one in KINDS if one != "state"])
def test_blocks_are_linked_where_they_follow_each_other(kind: str) -> None:
    rng = np.random.default_rng(6022)
    net, batches, paths = drawn(rng, kind)
    own = chain.Chain([net], batching.Batches(batches, "test"), paths, 1 << 20)
    seen_by(net, own, paths[0])
    assert own._links is not None
    inner = {path for path, links in own._links.items() if links and path.startswith("blocks")}
    later = {f"blocks.{i}" for i in range(1, len(net.blocks))}
    assert inner >= later if kind in LINKED else later.isdisjoint(inner) or kind == "shape"


def test_runs_do_not_grow_with_the_layers() -> None:
    rng = np.random.default_rng(6023)
    for kind, method in zip(LINKED, ("qronos", "gptq") * len(LINKED), strict=False):
        net, batches, paths = drawn(rng, kind)
        answers, counts = [], []
        for memory in (1 << 30, 1):  # with a byte the model is run whole
            calls: list[int] = []
            hook = net.register_forward_hook(lambda *_, calls=calls: calls.append(1))
            answers.append(hc.ptq.quantize(net, batches, "int4-g8", method=method, sequential=True, memory=memory))
            hook.remove()
            counts.append(len(calls))
        for name, q in answers[0].weights.items():
            np.testing.assert_array_equal(np.asarray(q), np.asarray(answers[1].weights[name]))
        assert answers[0].table == answers[1].table
        assert counts[0] <= (4 if method == "qronos" else 3) * len(batches) + 4 < counts[1]


def test_tied_weights_are_rounded_alike_with_any_memory() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(24, 16)
            self.blocks = torch.nn.ModuleList(Block(16, "residual") for _ in range(3))
            self.head = torch.nn.Linear(16, 24, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids: Any) -> Any:
            h = self.embedding(ids)
            for block in self.blocks:
                h = block(h)
            return self.head(h)

    torch.manual_seed(4)
    net, batches = Tied().eval(), [torch.randint(0, 24, (2, 9)) for _ in range(4)]
    for method in ("gptq", "qronos"):
        found = [
            hc.ptq.quantize(net, batches, "int3-g8", method=method, sequential=True, memory=memory)
            for memory in (1 << 30, 3000, 1)
        ]
        for other in found[1:]:
            assert other.table == found[0].table
            for name, q in found[0].weights.items():
                np.testing.assert_array_equal(np.asarray(q), np.asarray(other.weights[name]))


class Odd(torch.nn.Module):
    """Blocks that depend on more than their arguments, or whose weights are used elsewhere."""

    def __init__(self, kind: str, count: int, width: int) -> None:
        super().__init__()
        self.kind, self.stem = kind, torch.nn.Linear(5, width)
        self.blocks = torch.nn.ModuleList(Block(width, "residual") for _ in range(count))
        self.head = torch.nn.Linear(width, 3)
        self.register_buffer("shared", torch.zeros(width))
        if kind == "nested":
            self.blocks = torch.nn.ModuleList([Twofold(width)])
        if kind == "module":
            self.blocks[-1].second = self.blocks[0].second
        for block in self.blocks:
            block.register_forward_hook(self.leave)

    def leave(self, block: Any, args: Any, answer: Any) -> Any:
        """Read what the model or the first block left for the others."""
        if self.kind == "hook":
            if block is self.blocks[0]:
                self.left = answer.detach()
            return answer + self.left
        return answer * self.left if self.kind == "batch" else None

    def forward(self, x: Any) -> Any:
        if self.kind == "input":
            x.mul_(0.5)
        h = self.stem(x)
        self.left = h.mean(0)
        self.shared.copy_(self.left)
        given = Plain(h)
        for block in self.blocks:
            if self.kind == "object":
                h = block(h, before=given)
                given.value = h * 0.5
            else:
                h = block(h, self.shared) if self.kind == "buffer" else block(h)
            if self.kind == "data":
                h.data.mul_(1.5)
            if self.kind == "flags":
                h = block(h, scale=(h > 0).any(0).clone())
        if self.kind == "direct":
            h = self.blocks[0].second(torch.tanh(self.blocks[0].first(h)))
        if self.kind == "functional":
            h = torch.nn.functional.linear(h, self.blocks[0].first.weight)[:, : h.shape[1]]
        return self.head(h)


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __radd__(self, other: Any) -> Any:
        return other + self.value


class Twofold(torch.nn.Linear):
    """A layer with a layer in it."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width)
        self.inner = torch.nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        return super().forward(torch.tanh(self.inner(x)))


ODD = ("hook", "batch", "input", "object", "buffer", "data", "flags", "direct", "functional", "module", "nested")


@pytest.mark.parametrize("kind", ODD)
def test_blocks_that_depend_on_more_are_run_whole(kind: str) -> None:
    rng = np.random.default_rng(6030 + ODD.index(kind))
    for _ in range(3):
        torch.manual_seed(int(rng.integers(1 << 30)))
        net = Odd(kind, int(rng.integers(2, 5)), 8 * int(rng.integers(1, 4))).eval()
        size = int(rng.integers(1, 7))
        batches = [torch.randn(size, 5) for _ in range(int(rng.integers(2, 5)))]
        paths = [name for name, one in net.named_modules() if isinstance(one, torch.nn.Linear)]
        source, kept = batching.Batches(batches, "test"), [one.clone() for one in batches]
        own = chain.Chain([net], source, paths, 1 << 20)
        for path in [*paths, *rng.choice(paths, 3)]:
            assert same(seen_by(net, own, path), seen_by(net, chain.Whole([net], source), path)), (kind, path)
            with torch.no_grad():
                net.get_submodule(path).weight.mul_(1.25)
            own.changed([path])
        assert all(map(torch.equal, batches, kept))
        assert not any(one._forward_pre_hooks for one in net.modules())


def test_noise_does_not_hold_up_a_loop() -> None:
    class Loop(Stack):
        def forward(self, x: Any) -> Any:
            h, total = self.stem(x), 0.0
            while total < 3:  # the noise is negative on average for these shapes, or positive: either must end
                h = self.blocks[0](h)
                total += float(h.detach().abs().mean() < 0.7) * 3
                h = h * 0.5
            return self.head(self.blocks[1](h))

    torch.manual_seed(3)
    net, batches = Loop("plain", 2, 8).eval(), [torch.randn(4, 5) for _ in range(3)]
    source = batching.Batches(batches, "test")
    own = chain.Chain([net], source, ["blocks.0.first", "blocks.1.first", "head"], 1 << 20)
    for path in ("blocks.0.first", "blocks.1.first", "head"):
        assert same(seen_by(net, own, path), seen_by(net, chain.Whole([net], source), path))


def test_inputs_of_a_later_block_are_within_the_memory_too() -> None:
    torch.manual_seed(5)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4096), torch.nn.Linear(4096, 2)).eval()
    source = batching.Batches([torch.randn(8, 8) for _ in range(3)], "test")
    own = chain.Chain([net], source, ["0", "1", "2"], 1 << 15)
    for path in ("0", "1", "2"):
        assert same(seen_by(net, own, path), seen_by(net, chain.Whole([net], source), path))
        assert sum(one.nbytes for one in chain.tensors_in([(own._inputs, own._constants)])) <= 1 << 15


def test_buffers_of_the_caller_see_no_noise() -> None:
    class Observed(Block):
        def __init__(self) -> None:
            super().__init__(8, "residual")
            self.register_buffer("largest", torch.zeros(()))

        def forward(self, x: Any, *_: Any) -> Any:
            self.largest = torch.maximum(self.largest, x.abs().max())
            return super().forward(x)

    torch.manual_seed(6)
    net = torch.nn.Sequential(*(Observed() for _ in range(4))).eval()
    batches = [0.01 * torch.randn(3, 8) for _ in range(3)]
    with torch.no_grad():
        for batch in batches:
            net(batch)
    before = [one.largest.clone() for one in net]
    hc.ptq.quantize(net, batches, "int4-g8", method="qronos")
    assert all(torch.equal(one.largest, value) for one, value in zip(net, before, strict=True))
