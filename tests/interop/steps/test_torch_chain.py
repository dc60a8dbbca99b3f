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
