"""Structure of an ONNX model: every value has a name and is made once, before it is read."""

from __future__ import annotations

from typing import Any

from ...base.errors import WrongValue, printable
from ...base.texts import quoted, shortened
from ...files.containers.onnx_graph import inner_graphs

MAX_DEPTH = 32


def check_graph(graph: Any, around: frozenset[str] = frozenset(), depth: int = 0) -> None:
    """Raise ValueError for a value without a name, one that is made twice, or one that is read but not made before.

    Parameters
    ----------
    graph : onnx.GraphProto
        Without bytes as names.
    around : frozenset of str
        Values of the graphs around it.
    depth : int
        Number of graphs around it.
    """
    if depth > MAX_DEPTH:
        raise WrongValue(f"subgraphs are nested more than {MAX_DEPTH} deep")
    held = [one.name for one in graph.initializer] + [one.values.name for one in graph.sparse_initializer]
    inputs = [one.name for one in graph.input]
    for what, names in (("tensor", held), ("input", inputs)):
        _check_names(what, names)
    produced = {*held, *inputs}
    later = {name for node in graph.node for name in node.output}
    for node in graph.node:
        if not node.op_type:
            raise WrongValue(f"{_called(node)} has no operator")
        known = produced | around if depth else produced
        for name in node.input:
            if name and name not in known:
                reason = "which only a later node or itself makes" if name in later else "which nothing makes"
                raise WrongValue(f"{_called(node)} reads {quoted(name)}, {reason}")
        outputs = [name for name in node.output if name]
        if twice := [name for i, name in enumerate(outputs) if name in produced or name in outputs[:i]]:
            raise WrongValue(f"{_called(node)} makes {quoted(twice[0])}, which is made already")
        for _, inner in inner_graphs(node, ""):
            check_graph(inner, frozenset(known), depth + 1)
        produced.update(outputs)
    for one in graph.output:
        if not one.name:
            raise WrongValue("an output has no name")
        if one.name not in produced and one.name not in around:
            raise WrongValue(f"nothing makes the output {quoted(one.name)}")


def _check_names(what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not name:
            raise WrongValue(f"an {what} has no name" if what == "input" else f"a {what} has no name")
        if name in seen:
            raise WrongValue(f"two {what}s have the name {quoted(name)}")
        seen.add(name)


def _called(node: Any) -> str:
    """Return the name of a node, or its operator, for a sentence."""
    return printable(shortened(node.name or node.op_type or "a node", 80))
