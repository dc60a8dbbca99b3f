"""The conditionals of an ONNX graph: each `If` is replaced by the nodes of one branch.

A condition that is computed from shapes, such as a test of a rank, decides. Any other condition depends on the values
of the inputs: both branches are counted, and the one with more multiply-adds stays. A branch that does not fit the
shape of the input is never the one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...base.texts import printable, shortened
from .onnx_shapes import Walk

__all__ = ["Conditional", "has_branches", "without_branches"]

MOST = 1000  # conditionals of a file


class Conditional(Exception):
    """A conditional is not read."""


def has_branches(model: Any) -> bool:
    """Tell whether the graph has an `If`."""
    return any(node.op_type == "If" for node in model.graph.node)


def without_branches(onnx: Any, inference: Any, model: Any, count: Callable[[Any], int]) -> tuple[Any, tuple[str, ...]]:
    """Return the model with one branch in place of each `If`, and the branches that are left out.

    Parameters
    ----------
    onnx, inference : module
    model : onnx.ModelProto
        With the batch set.
    count : callable
        Returns the multiply-adds of a model without `If`; raises ValueError if it cannot be read.

    Returns
    -------
    onnx.ModelProto
    tuple of str

    Raises
    ------
    Conditional
        There are more than 1000 conditionals, or one has no two branches.
    ValueError
        No branch of a conditional can be read.
    """
    found = _Branches(onnx, Walk(onnx, inference, model), model, count)
    nodes = found.flat([], model.graph.node)
    return found.built(nodes), tuple(found.notes)


@dataclass(frozen=True)
class _Variant:
    title: str
    macs: int = -1
    nodes: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: ValueError | None = None


class _Branches:
    def __init__(self, onnx: Any, walk: Walk, model: Any, count: Callable[[Any], int]) -> None:
        self.onnx, self.walk, self.model, self.count = onnx, walk, model, count
        self.held: list[Any] = list(model.graph.initializer)
        self.taken = {one.name for one in (*model.graph.input, *self.held)}
        self.seen = 0
        self.notes: list[str] = []

    def flat(self, before: list[Any], nodes: Any) -> list[Any]:
        """Return the nodes before and these, whose conditionals are replaced."""
        found = list(before)
        for node in nodes:
            if node.op_type == "If":
                found = self.chosen(found, node)
            else:
                self.taken.update(node.output)
                self.walk.add(node)
                found.append(node)
        return found

    def chosen(self, before: list[Any], node: Any) -> list[Any]:
        """Return the nodes before and those of one branch."""
        self.seen += 1
        branches = {one.name: one.g for one in node.attribute if one.name in ("then_branch", "else_branch")}
        if self.seen > MOST:
            raise Conditional(f"it has more than {MOST} conditionals")
        if len(branches) != 2 or any(len(one.output) != len(node.output) for one in branches.values()):
            raise Conditional(f"If {shortened(node.name)} has no two branches with {len(node.output)} outputs each")
        known = self.walk.sizes.get(node.input[0])
        if known is not None:
            value = bool(np.any(self.onnx.numpy_helper.to_array(known)))
            return self.branch(before, node, branches["then_branch" if value else "else_branch"])
        notes = self.notes
        variants = [self.variant(before, node, name, graph) for name, graph in branches.items()]
        readable = [one for one in variants if one.error is None]
        if not readable:
            raise variants[0].error or Conditional(f"If {shortened(node.name)} has no branch that can be read")
        best = max(readable, key=lambda one: one.macs)
        self.notes = [*notes, *best.notes, *(one.title for one in variants if one.macs != best.macs)]
        return best.nodes

    def variant(self, before: list[Any], node: Any, name: str, graph: Any) -> _Variant:
        """Return the nodes before and those of a branch, counted."""
        title = f"the {name.replace('_', ' ')} of {printable(shortened(node.name or 'If'))}"
        self.notes = []
        try:
            nodes = self.branch(before, node, graph)
            return _Variant(title, self.count(self.built(nodes)), nodes, self.notes)
        except ValueError as error:
            return _Variant(f"{title}, which does not fit the input", error=error)

    def branch(self, before: list[Any], node: Any, graph: Any) -> list[Any]:
        """Return the nodes before and those of a branch, whose names differ from all others."""
        names: dict[str, str] = {}
        for name in sorted(_made(graph)):
            fresh, times = name, 1
            while fresh in self.taken:
                times += 1
                fresh = f"{name}'{times}"
            names[name] = fresh
            self.taken.add(fresh)
        for one in graph.initializer:
            held = self.onnx.TensorProto()
            held.CopyFrom(one)
            held.name = names[one.name]
            self.held.append(held)
            self.walk.hold(held)
        nodes = [_renamed(self.onnx, one, names) for one in graph.node]
        ends = zip(graph.output, node.output, strict=True)
        joins = [self.onnx.helper.make_node("Identity", [names.get(a.name, a.name)], [b]) for a, b in ends]
        return self.flat(before, [*nodes, *joins])

    def built(self, nodes: list[Any]) -> Any:
        """Return a model of these nodes."""
        model = self.onnx.ModelProto()
        model.CopyFrom(self.model)
        for part in ("node", "initializer", "value_info"):
            model.graph.ClearField(part)
        model.graph.node.extend(nodes)
        model.graph.initializer.extend(self.held)
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
        made = {name for node in nodes for name in node.output}
        ends = [one for one in model.graph.output if one.name in made]
        model.graph.ClearField("output")
        model.graph.output.extend(ends)
        return model


def _made(graph: Any) -> set[str]:
    """Return the names of the values that a graph makes or holds."""
    return {name for one in graph.node for name in one.output if name} | {one.name for one in graph.initializer}


def _renamed(onnx: Any, node: Any, names: dict[str, str]) -> Any:
    """Return a node with other names, also where graphs inside it use them."""
    found = onnx.NodeProto()
    found.CopyFrom(node)
    found.output[:] = [names.get(name, name) for name in found.output]
    _rename(found, names)
    return found


def _rename(node: Any, names: dict[str, str]) -> None:
    node.input[:] = [names.get(name, name) for name in node.input]
    for graph in (one.g for one in node.attribute if one.HasField("g")):
        own = _made(graph)
        outer = {name: fresh for name, fresh in names.items() if name not in own}
        for inner in graph.node:
            _rename(inner, outer)
        for output in graph.output:
            output.name = outer.get(output.name, output.name)
