"""Sums, products, limits and the like between two products: one call that passes over the values once.

The nodes of a session are split into runs of such operators and the rest. onnxruntime would not fuse what is split, and
each operator is rounded as there, so that the bits are the same. Values of other types and shapes go to a session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import _heterocompute as _core
from ...base import runtime
from ...files.containers.onnx_graph import STANDARD, text_of

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
BINARY = {"Add": 0, "Sub": 1, "Mul": 2, "Div": 3}  # by number, as in kernels/pointwise/pointwise.h
MULTIPLY, CLIP, HARD, LEAKY = 2, 4, 5, 6
OPERATORS = {*BINARY, "Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu"}
# operators that onnxruntime fuses with none of those above
APART = {"AveragePool", "Concat", "Flatten", "Gather", "GlobalAveragePool", "GlobalMaxPool", "Identity", "MaxPool",
         "ReduceMax", "Reshape", "Resize", "Shape", "Sigmoid", "Slice", "Split", "Squeeze", "Tanh", "Transpose",
         "Unsqueeze", "Upsample"}  # fmt: skip
LARGEST = float(np.finfo(np.float32).max)
MOST = 32  # steps of a call
KEPT = 8  # shapes of inputs whose calls are kept
FIRST = 7  # the opset that broadcasts


def pieces(nodes: list[Any], fixed: Mapping[str, Any]) -> list[tuple[bool, list[Any]]]:
    """Return the nodes of a session as runs, each with whether it is of operators on one value each.

    Parameters
    ----------
    nodes : list of onnx.NodeProto
    fixed : mapping
        What each name is that does not depend on inputs, or None.
    """
    gates = {name for node in nodes if node.op_type == "Sigmoid" for name in node.output}
    for node in nodes:
        is_known = node.domain in STANDARD and (node.op_type in OPERATORS or node.op_type in APART)
        is_inverse = node.op_type == "Div" and fixed.get(text_of(node.input[0])) is not None
        if not is_known or is_inverse or (node.op_type == "Mul" and not gates.isdisjoint(node.input)):
            return [(False, nodes)]  # onnxruntime may fuse these nodes
    level: dict[str, int] = {}  # even: operators on one value each
    runs: dict[int, list[Any]] = {}
    for node in nodes:
        at = max((level[name] for name in node.input if name in level), default=0)
        at += (at % 2 == 0) != (node.op_type in OPERATORS)
        level.update(dict.fromkeys(node.output, at))
        runs.setdefault(at, []).append(node)
    return [(at % 2 == 0, runs[at]) for at in sorted(runs)]


class Step(NamedTuple):
    """An operation on named values."""

    operation: int
    a: str
    b: str | None
    to: str
    numbers: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)  # low, high, scale, shift


class Call(NamedTuple):
    """Steps with results of one shape."""

    shape: Shape
    rows: int
    columns: int
    inputs: list[tuple[Any, tuple[int, int, int]]]  # a name and how it is read, or the core's argument of a constant
    steps: tuple[tuple[Any, ...], ...]
    outputs: list[str]


class Refused(Exception):
    """Nodes that are left to a session."""


def refuse_invalid(node: Any, opset: int) -> None:
    """Raise Refused for a node that is not as its operator's definition: a session names the fault."""
    from onnx import defs  # optional

    try:
        schema = defs.get_schema(node.op_type, opset)
    except defs.SchemaError:
        raise Refused from None
    is_valid = schema.min_input <= len(node.input) <= schema.max_input and len(node.output) == 1
    given = {text_of(one.name): one.type == one.FLOAT for one in node.attribute}  # floats alone are defined
    if not is_valid or not all(given.values()) or not given.keys() <= schema.attributes.keys():
        raise Refused


def steps_of(nodes: list[Any], constants: Mapping[str, Array], opset: int) -> Iterator[Step]:
    """Yield the operations of some nodes."""
    from onnx import helper  # optional

    for node in nodes:
        refuse_invalid(node, opset)
        names, to = [text_of(name) for name in node.input], text_of(node.output[0])
        given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        if node.op_type in BINARY:
            if node.op_type == "Add" and any(name in constants and not constants[name].any() for name in names):
                raise Refused  # onnxruntime drops a sum with 0, and keeps -0
            yield Step(BINARY[node.op_type], names[0], names[1], to)
        elif node.op_type == "Clip":
            low, high = _edge(names, given, 0, constants), _edge(names, given, 1, constants)
            if not low <= high:
                raise Refused
            yield Step(CLIP, names[0], None, to, (low, high, 0.0, 0.0))
        elif node.op_type == "Relu":
            yield Step(CLIP, names[0], None, to, (0.0, np.inf, 0.0, 0.0))
        elif node.op_type == "LeakyRelu":
            yield Step(LEAKY, names[0], None, to, (0.0, 0.0, given.get("alpha", 0.01), 0.0))
        elif node.op_type == "HardSigmoid":
            yield Step(HARD, names[0], None, to, (0.0, 1.0, given.get("alpha", 0.2), given.get("beta", 0.5)))
        else:  # HardSwish
            gate = f"{to} "  # no name of another value
            yield Step(HARD, names[0], None, gate, (0.0, 1.0, 1 / 6, 0.5))
            yield Step(MULTIPLY, names[0], gate, to)


def _edge(names: list[str], given: Mapping[str, Any], i: int, constants: Mapping[str, Array]) -> float:
    """Return a limit of a Clip."""
    default: float = given.get(("min", "max")[i], (-LARGEST, LARGEST)[i])
    if len(names) < 2 + i or not names[1 + i]:
        return default
    value = constants.get(names[1 + i])
    if value is None or value.shape not in ((), (1,)):
        raise Refused
    return float(value.reshape(()))


def calls_of(steps: list[Step], shapes: dict[str, Shape], wanted: Sequence[str]) -> list[Call]:
    """Return the calls that compute some steps; Refused if the core has none for the shapes."""
    groups: list[list[Step]] = []
    for step in steps:
        read = [shapes[name] for name in (step.a, step.b) if name is not None]
        try:
            shape = np.broadcast_shapes(*read)
        except ValueError:
            raise Refused from None  # the session names the operator
        if 0 in shape or step.to in shapes:
            raise Refused
        if not groups or shapes[groups[-1][-1].to] != shape or len(groups[-1]) == MOST:
            groups.append([])
        groups[-1].append(step)
        shapes[step.to] = shape
    last = {name: i for i, group in enumerate(groups) for step in group for name in (step.a, step.b) if name}
    return [
        _call(group, shapes, [one.to for one in group if one.to in wanted or last.get(one.to, -1) > i])
        for i, group in enumerate(groups)
    ]


def _call(steps: list[Step], shapes: Mapping[str, Shape], outputs: list[str]) -> Call:
    shape = shapes[steps[0].to]
    made = {step.to for step in steps}
    names = list(dict.fromkeys(name for step in steps for name in (step.a, step.b) if name and name not in made))
    number = {name: i for i, name in enumerate([*names, *(step.to for step in steps)])}
    tuples = tuple(
        (one.operation, number[one.a], -1 if one.b is None else number[one.b], *one.numbers,
         outputs.index(one.to) if one.to in outputs else -1)
        for one in steps
    )  # fmt: skip
    kept = [i for i, size in enumerate(shape) if size > 1]
    full = tuple(shape[i] for i in kept)
    padded = [(1,) * (len(shape) - len(shapes[name])) + shapes[name] for name in names]
    own = [tuple(one[i] for i in kept) for one in padded]
    for first in range(max(1, len(full))):  # columns: all axes from this one on
        walks = [_walk(one, full, first) for one in own]
        if None not in walks:
            columns = int(np.prod(full[first:], dtype=np.int64))
            rows = int(np.prod(full[:first], dtype=np.int64))
            inputs = [(name, walk) for name, walk in zip(names, walks, strict=True) if walk is not None]
            return Call(shape, rows, columns, inputs, tuples, outputs)
    raise Refused


def _walk(own: Shape, full: Shape, first: int) -> tuple[int, int, int] | None:
    """Return how an input is read row by row: rows after which it repeats, and the steps of rows and columns."""
    across, down = own[first:], own[:first]
    if across == full[first:] and across:
        columns, step = int(np.prod(across, dtype=np.int64)), 1
    elif set(across) <= {1}:
        columns, step = 1, 0
    else:
        return None
    begin = 0
    while begin < first and down[begin] == 1:
        begin += 1
    if down[begin:] != full[begin:first]:
        return None
    return int(np.prod(down, dtype=np.int64)), columns, step


class Pointwise:
    """The calls of one run of nodes, by the shapes of its inputs.

    Parameters
    ----------
    nodes : list of onnx.NodeProto
    inputs, outputs : list of str
    constants : mapping of str to ndarray
    opset : int
    """

    def __init__(
        self, nodes: list[Any], inputs: list[str], outputs: list[str], constants: Mapping[str, Any], opset: int
    ) -> None:
        self._nodes, self._inputs, self._outputs, self._constants = nodes, inputs, outputs, constants
        self._opset = opset
        self._calls: dict[Any, list[Call] | None] = {}

    def run(self, values: Mapping[str, Any]) -> dict[str, Array] | None:
        """Return the outputs, or None for values that a session takes."""
        feeds = [values[name] for name in self._inputs]
        if any(type(one) is not np.ndarray or one.dtype != np.float32 for one in feeds):
            return None
        key = tuple(one.shape for one in feeds)
        if key not in self._calls:
            while len(self._calls) >= KEPT:  # another thread may do the same
                self._calls.pop(next(iter([*self._calls]), None), None)
            self._calls[key] = self._made(key)
        calls = self._calls.get(key)
        if calls is None:
            return None
        arrays = dict(zip(self._inputs, feeds, strict=True))
        run = runtime.run()
        for call in calls:
            outs = tuple([np.empty(call.shape, np.float32) for _ in call.outputs])
            inputs = [one if type(one) is tuple else (_plain(arrays[one]), *walk) for one, walk in call.inputs]
            _core.pointwise(run, call.rows, call.columns, tuple(inputs), call.steps, outs)
            arrays.update(zip(call.outputs, outs, strict=True))
        return {name: arrays[name] for name in self._outputs}

    def _made(self, key: tuple[Shape, ...]) -> list[Call] | None:
        shapes = dict(zip(self._inputs, key, strict=True))
        for name, value in self._constants.items():
            if type(value) is not np.ndarray or value.dtype != np.float32:
                return None
            shapes[name] = value.shape
        try:
            calls = calls_of(list(steps_of(self._nodes, self._constants, self._opset)), shapes, self._outputs)
        except Refused:
            return None
        return [call._replace(inputs=[self._bound(*one) for one in call.inputs]) for call in calls]

    def _bound(self, name: Any, walk: tuple[int, int, int]) -> tuple[Any, tuple[int, int, int]]:
        """Return an input with its array in place of the name if it is constant."""
        if name not in self._constants:
            return name, walk
        return (_plain(self._constants[name]), *walk), walk


def _plain(array: Array) -> Array:
    """Return an array whose values lie one after the other, at addresses that the core reads."""
    array = np.ascontiguousarray(array)
    return array if array.flags.aligned else array.copy()
