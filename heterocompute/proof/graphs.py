"""The first node in which two ONNX networks part: both run in the evaluator of the package onnx, node by node."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from ..base.errors import WrongValue, shown
from ..interop.onnx.model import array_of, loaded, sentence_of
from ..interop.onnx_run import run_onnx
from .difference import Difference
from .steps import Step, diff_steps, drift_of, eps_of, first_index, is_float, largest_of

Array = np.ndarray[Any, Any]
SUMS = ("MatMul", "Gemm", "Conv")


class _Graph:
    """One network: its nodes, its constants by name, and all values of one run."""

    def __init__(self, model: Any, place: str) -> None:
        proto, _ = loaded(model)
        folder = os.path.dirname(os.fspath(model)) if isinstance(model, (str, os.PathLike)) else ""
        self.place, self.opsets = place, {one.domain: one.version for one in proto.opset_import}
        self.nodes = [node for node in proto.graph.node if node.op_type != "Constant"]
        self.constants: dict[str, Array] = {one.name: array_of(one, folder) for one in proto.graph.initializer}
        for node in proto.graph.node:
            if node.op_type == "Constant":
                self.constants[node.output[0]] = run_node(self.opsets, node, {})[0]
        self.inputs = [one.name for one in proto.graph.input if one.name not in self.constants]
        self.outputs = [one.name for one in proto.graph.output]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
        """Return all values by name."""
        values: dict[str, Any] = {"": None, **self.constants, **feeds}
        for node in self.nodes:
            outputs = run_node(self.opsets, node, values)
            values.update(zip([name for name in node.output if name], outputs, strict=True))
        return values

    def feeds(self, inputs: Any) -> dict[str, Array]:
        if isinstance(inputs, Mapping):
            given = {str(name): np.asarray(one) for name, one in inputs.items()}
        else:
            listed = inputs if isinstance(inputs, tuple) else (inputs,)
            given = {name: np.asarray(one) for name, one in zip(self.inputs, listed, strict=False)}
        if set(given) != set(self.inputs):
            raise WrongValue(f"diff: {self.place}: inputs have {shown(sorted(given))}, expected {shown(self.inputs)}")
        return given


def outputs_of(model: Any, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """Return the output of a network as a function of its inputs; several in a list."""
    given = _Graph(model, "the network").feeds(named or (inputs if len(inputs) > 1 else inputs[0]))
    found = [*run_onnx(model, given).values()]
    return found[0] if len(found) == 1 else found


def run_node(opsets: Mapping[str, int], node: Any, values: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of one node."""
    from onnx import ModelProto, ValueInfoProto, helper  # optional
    from onnx.reference import ReferenceEvaluator  # optional

    names = list(dict.fromkeys([name for name in node.input if name] + [*_outer(node)]))
    feeds = {name: values[name] for name in names if name in values}
    infos = [ValueInfoProto(name=name) for name in feeds]
    graph = helper.make_graph([node], "node", infos, [ValueInfoProto(name=name) for name in node.output if name])
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in opsets.items()])
    try:
        with np.errstate(all="ignore"):
            return list(ReferenceEvaluator(model).run(None, feeds))
    except Exception as error:  # onnx's own
        raise WrongValue(f"diff: node {node.name or node.output[0]} ({node.op_type}): {sentence_of(error)}") from None


def _outer(node: Any) -> Iterator[str]:
    """Yield the names that subgraphs read from outside."""
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs] if attribute.HasField("g") or attribute.graphs else ():
            made = {one.name for one in [*graph.input, *graph.initializer]}
            for inner in graph.node:
                yield from (name for name in [*inner.input, *_outer(inner)] if name and name not in made)
                made |= set(inner.output)


def diff_graphs(a: Any, b: Any, inputs: Any, inputs_b: Any = None) -> Difference:
    """Compare two ONNX networks, node by node in the order of a. Nodes belong together by name, then by position."""
    one, other = _Graph(a, "a"), _Graph(b, "b")
    feeds = one.feeds(inputs), other.feeds(inputs if inputs_b is None else inputs_b)
    values, real = one.run(feeds[0]), other.run(feeds[1])
    pairs = _pairs(one.nodes, other.nodes)
    names = dict(zip(other.inputs, one.inputs, strict=False))  # of a for values of b
    for node, twin in pairs:
        if twin is not None:
            names.update(zip(twin.output, node.output, strict=False))
    at = first_index(list(feeds[0].values()), list(feeds[1].values()))
    steps = (_step(one, other, node, twin, values, real, names) for node, twin in pairs)
    ends = [] if [names.get(name, name) for name in other.outputs] == one.outputs else [_end(one, other, values, real)]
    return diff_steps(chain(steps, ends), at)


def _end(one: _Graph, other: _Graph, values: Any, real: Any) -> Step:
    """Return the comparison of the outputs of the networks, which are not those of nodes that belong together."""
    wanted, found = [values[name] for name in one.outputs], [real[name] for name in other.outputs]
    tests = {"operation": lambda: (wanted, "operation", f"b returns {', '.join(other.outputs)}")}
    bound = 16 * eps_of(wanted) * largest_of(wanted)
    return Step("(outputs)", wanted, lambda: found, bound, drift_of(wanted, found), tests)


def _pairs(nodes: list[Any], others: list[Any]) -> list[tuple[Any, Any]]:
    named = {node.name: node for node in others if node.name}
    counts = Counter(node.name for node in [*nodes])
    found = []
    for i, node in enumerate(nodes):
        twin = named.get(node.name) if counts[node.name] == 1 else None
        if twin is None and i < len(others) and len(others[i].input) == len(node.input):
            twin = others[i]
        found.append((node, twin))
    return found


def _step(one: _Graph, other: _Graph, node: Any, twin: Any, values: Any, real: Any, names: Mapping[str, str]) -> Step:
    label = f"{node.name or node.output[0]} ({node.op_type})"
    wanted = [values[name] for name in node.output if name]
    if twin is None:
        tests = {"operation": lambda: (wanted, "operation", "b has no such node")}
        return Step(label, wanted, list, 0.0, None, tests)
    seen = {"": None, **{name: values[names[name]] for name in names if names[name] in values}, **other.constants}
    drift = drift_of(wanted, [real[name] for name in twin.output if name])

    def weights() -> Any:
        changed, turned, kinds = dict(seen), [], []
        for mine, own in zip(node.input, twin.input, strict=False):
            if mine not in one.constants or own not in other.constants:
                continue
            x, y = one.constants[mine], other.constants[own]
            if x.dtype != y.dtype or not np.array_equal(x, y):
                changed[own] = x
                kinds.append((own, x.dtype != y.dtype))
                turned.append(x.ndim == 2 and x.shape == y.T.shape and bool(np.array_equal(x, y.T)))
        if not kinds:
            return None
        words = ", ".join(name for name, _ in kinds)
        if all(turned):
            return run_node(other.opsets, twin, changed), "layout", f"{words} of b are transposed"
        cause = "format" if all(is_other for _, is_other in kinds) else "weights"
        return run_node(other.opsets, twin, changed), cause, f"{words} of b have other values"

    def operation() -> Any:
        mine, own = ({x.name: x.SerializeToString() for x in n.attribute} for n in (node, twin))
        if node.op_type == twin.op_type and mine == own:
            return None
        keys = sorted(key for key in {*mine, *own} if mine.get(key) != own.get(key))
        words = f"b has {twin.op_type}" if node.op_type != twin.op_type else f"b has other values of {', '.join(keys)}"
        renamed = {**seen, **dict(zip(node.input, (seen.get(name) for name in twin.input), strict=False))}
        return run_node(one.opsets, node, renamed), "operation", words

    def wiring() -> Any:
        if len(node.input) != len(twin.input):
            return None
        moved = [(mine, own) for mine, own in zip(node.input, twin.input, strict=True)
                 if own not in other.constants and names.get(own, own) != mine]  # fmt: skip
        changed = {**seen, **{own: values[mine] for mine, own in moved}}
        if not moved:
            return None
        mine, own = moved[0]
        return run_node(other.opsets, twin, changed), "operation", f"b reads {own} in place of {mine}"

    tests = {"weights": weights, "operation": operation, "wiring": wiring}
    found, again = lambda: run_node(other.opsets, twin, seen), lambda: run_node(one.opsets, node, values)
    return Step(label, wanted, found, _bound(one, node, values, wanted), drift, tests, again)


def _bound(graph: _Graph, node: Any, values: Mapping[str, Any], wanted: list[Any]) -> Any:
    """Return the bound of a sum, 2 (k + 1) eps sum |x| |w|, or 16 eps of the largest output."""
    eps = eps_of(wanted)
    weight = values.get(node.input[1]) if node.op_type in SUMS and len(node.input) > 1 else None
    if weight is None or not is_float(np.asarray(weight)):
        return 16 * eps * largest_of(wanted)
    k = weight[0].size if node.op_type == "Conv" else max(weight.shape[-2:])
    absolute = {name: np.abs(np.asarray(values[name], np.float32)) for name in node.input if name}
    sums = np.asarray(run_node(graph.opsets, node, absolute)[0], np.float64)
    return 2 * (k + 1) * eps * sums
