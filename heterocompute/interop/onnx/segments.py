"""Parts of a cut graph that run one after the other: sessions, runs of operators on one value each, and products."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

from ...files.containers.onnx_graph import inner_graphs, text_of
from .model import plain_opset
from .pointwise import Pointwise
from .products import Product

Values = MutableMapping[str, Any]


class Request(NamedTuple):
    """The weights of one evaluation, and the rounding of the other operands."""

    weights: Mapping[str, Any]
    activations: Any


class Live(NamedTuple):
    """A node that the outputs depend on: its step, or None for a session, and what it reads and produces."""

    node: Any
    step: Any
    names: list[str]
    outputs: list[str]


class Segment:
    """Nodes that one session runs."""

    multiplies = False

    def __init__(self, cut: Any, nodes: list[Any]) -> None:
        self._cut, self.nodes = cut, nodes
        produced = {text_of(name) for node in nodes for name in node.output if name}
        read = dict.fromkeys(name for node in nodes for name in reads(node))
        self.inputs = [name for name in read if name not in produced and cut.fixed.get(name) is None]
        self.outputs: list[str] = []  # values that other steps read: known after all steps are built
        self.produced = produced
        self._session: Any = None

    def needs(self) -> list[str]:
        return self.inputs

    def run(self, values: Values, request: Request) -> None:
        if not self.outputs:
            return
        feeds = {name: values[name] for name in self.inputs}
        if self._session is None:
            self._session = self._cut.session_of(self.nodes, feeds, self.outputs)
        values.update(zip(self.outputs, self._session.run(self.outputs, feeds), strict=True))


class PointwiseSegment(Segment):
    """Nodes of operators on one value each, which the core runs if the values are float32."""

    _made: Pointwise | None = None

    def run(self, values: Values, request: Request) -> None:
        if not self.outputs:
            return
        if self._made is None:
            names = dict.fromkeys(name for node in self.nodes for name in reads(node))
            fixed = [name for name in names if name not in self.produced and name not in self.inputs]
            constants = {name: self._cut.value(name, {}) for name in fixed}
            opset = plain_opset(self._cut.network.model)
            self._made = Pointwise(self.nodes, self.inputs, self.outputs, constants, opset)
        found = self._made.run(values)
        if found is None:
            super().run(values, request)
        else:
            values.update(found)


class Step:
    """One of our products among the steps of a graph."""

    multiplies = True

    def __init__(self, cut: Any, product: Product) -> None:
        self._cut, self.product = cut, product
        self.produced = {product.output}
        self._needs = product.needs()

    def needs(self) -> list[str]:
        return self._needs

    def run(self, values: Values, request: Request) -> None:
        product = self.product
        x, *rest = [self._cut.plain(self._cut.value(name, values)) for name in self._needs]
        stored = request.weights.get(product.weight.name)
        if stored is None:
            stored = self._cut.network.array(product.weight.name)
        values[product.output] = product.compute(x, rest[0] if rest else None, stored, request.activations)


def connected(steps: list[Any], kept: set[str]) -> list[list[str]]:
    """Set the outputs of each session; return the values that are not read after each step."""
    last: dict[str, int] = {}
    for i, step in enumerate(steps):
        last.update(dict.fromkeys(step.needs(), i))
    for i, step in enumerate(steps):
        if isinstance(step, Segment):
            step.outputs = sorted(name for name in step.produced if name in kept or last.get(name, -1) > i)
    produced = {name: i for i, step in enumerate(steps) for name in step.produced}
    dead: list[list[str]] = [[] for _ in steps]
    for name, i in produced.items():
        if name not in kept:
            dead[max(i, last.get(name, i))].append(name)
    return dead


def reads(node: Any) -> list[str]:
    """Return the values that a node reads, including outer values that its subgraphs read."""
    names = [text_of(name) for name in node.input if name]
    for _, inner in inner_graphs(node, ""):
        names += free(inner)
    return list(dict.fromkeys(names))


def free(graph: Any) -> Iterator[str]:
    """Yield the values that a graph takes from enclosing graphs."""
    known = {text_of(one.name) for one in (*graph.input, *graph.initializer)}
    for node in graph.node:
        yield from (name for name in reads(node) if name not in known)
        known.update(text_of(name) for name in node.output)
    yield from (text_of(one.name) for one in graph.output if text_of(one.name) not in known)
