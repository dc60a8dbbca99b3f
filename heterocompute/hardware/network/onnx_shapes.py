"""Shapes of the values of an ONNX graph, including shapes that the graph computes itself.

onnx's own inference goes first. Where it leaves an axis open, every node is inferred by itself in the graph's order,
with the sizes that come before it computed: Shape, Gather, Slice, Concat and the like of a few numbers.

Each `If` is replaced by the nodes of one branch. A condition that is computed from shapes, such as a test of a rank,
decides. Any other condition depends on the values of the inputs: both branches are counted, and the one with more
multiply-adds stays. A branch that does not fit the shape of the input is never the one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...base.errors import printable
from ...base.texts import shortened

# A batch that the file leaves open. It is a prime, so only axes that contain the batch are divisible by it.
SAMPLES = 1009
MAX_SIZES = 1024
MOST = 1000  # conditionals of a file
# Their output has no more values than all inputs together, or than the product of two of them.
FOLDED = set(
    "Abs Add And Cast Ceil Concat Div Equal Floor Gather Greater Identity Less Max Min Mod Mul Neg Not Or ReduceMax "
    "ReduceMin ReduceProd ReduceSum Reshape Slice Sqrt Squeeze Sub Transpose Unsqueeze Where".split()
)
# The values of one input determine the number of values of their output.
FILLED: dict[str, int] = {"ConstantOfShape": 0, "Expand": 1}


def prepared(onnx: Any, model: Any, sample: tuple[int, ...] | None = None) -> Any:
    """Return the model without its weights' values and with an open batch set to `SAMPLES`.

    Parameters
    ----------
    onnx : module
    model : onnx.ModelProto
    sample : tuple of int, optional
        Shape of one sample of the first input, for axes that the model leaves open.

    Returns
    -------
    onnx.ModelProto
    """
    for one in model.graph.initializer:
        if math.prod(one.dims) > MAX_SIZES:
            for field in ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data"):
                one.ClearField(field)
    return _with_batch(onnx, model, sample)


def shaped(onnx: Any, shape_inference: Any, model: Any) -> dict[str, tuple[int | None, ...]]:
    """Return the shapes of the values of a model from `prepared`.

    Parameters
    ----------
    onnx, shape_inference : module
    model : onnx.ModelProto

    Returns
    -------
    dict
        None where a size cannot be known.
    """
    found = shape_inference.infer_shapes(model)  # with data_prop sizes could double at every node, without a limit
    values = (*found.graph.input, *found.graph.value_info, *found.graph.output)
    shapes = {one.name: shape_of(one.type) for one in values if one.type.tensor_type.HasField("shape")}
    produced = {name for node in model.graph.node for name in node.output if name}
    if any(None in shapes.get(name, (None,)) for name in produced):
        walked = Walk(onnx, shape_inference, model).shapes()
        for name, shape in walked.items():
            if None in shapes.get(name, (None,)):
                shapes[name] = shape
    return shapes


def shape_of(kind: Any) -> tuple[int | None, ...]:
    """Return the sizes of a type; None for an unknown one."""
    dims = kind.tensor_type.shape.dim
    return tuple(one.dim_value if one.HasField("dim_value") else None for one in dims)


def _with_batch(onnx: Any, model: Any, sample: tuple[int, ...] | None) -> Any:
    held = {one.name for one in model.graph.initializer}
    open_inputs = [i for i, one in enumerate(model.graph.input) if one.name not in held]
    dims = [model.graph.input[place].type.tensor_type.shape.dim for place in open_inputs]
    wanted = dict(enumerate(sample, 1)) if sample is not None and dims and len(dims[0]) == len(sample) + 1 else {}
    opens = [axis for axis, one in enumerate(dims[0]) if _is_open(one)] if dims else []
    if 0 not in opens and not wanted.keys() & set(opens):
        return model
    sizes = {0: SAMPLES, **wanted}
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    named: dict[str, set[int]] = {}
    for axis in opens:
        if axis in sizes and dims[0][axis].dim_param:
            named.setdefault(dims[0][axis].dim_param, set()).add(sizes[axis])
    known = {name: size for name, (size, *more) in named.items() if not more}  # "?" is the name of several sizes
    for place in open_inputs:  # axes of other inputs have these names, or their batch is as open
        open_axes = [axis for axis, one in enumerate(dims[open_inputs.index(place)]) if _is_open(one)]
        for axis, one in enumerate(fixed.graph.input[place].type.tensor_type.shape.dim):
            if not _is_open(one):
                continue
            if place == open_inputs[0] and axis in sizes:
                one.dim_value = sizes[axis]
            elif one.dim_param in known:
                one.dim_value = known[one.dim_param]
            elif 0 in opens and (axis == 0 or (open_axes == [axis] and not one.dim_param)):
                one.dim_value = SAMPLES
    del fixed.graph.value_info[:]
    for output in fixed.graph.output:
        output.type.tensor_type.ClearField("shape")
    return fixed


def _is_open(dim: Any) -> bool:
    return not dim.HasField("dim_value") or dim.dim_value < 0  # some exporters write -1


class Walk:
    """Types and small values, node after node."""

    def __init__(self, onnx: Any, shape_inference: Any, model: Any) -> None:
        self.onnx, self.inference, self.graph = onnx, shape_inference, model.graph
        self.versions = {one.domain: one.version for one in model.opset_import}
        self.types: dict[str, Any] = {one.name: one.type for one in model.graph.input}
        self.sizes: dict[str, Any] = {}
        for one in model.graph.initializer:
            self.hold(one)
        for one in model.graph.sparse_initializer:  # operators treat it as a dense tensor
            self.types[one.values.name] = onnx.helper.make_tensor_type_proto(one.values.data_type, one.dims)

    def hold(self, tensor: Any) -> None:
        """Store a constant."""
        self.types[tensor.name] = self.onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        self.keep(tensor.name, tensor)

    def keep(self, name: str, tensor: Any) -> None:
        """Store a tensor of few values."""
        if math.prod(tensor.dims) <= MAX_SIZES and tensor.data_location != self.onnx.TensorProto.EXTERNAL:
            self.sizes[name] = tensor

    def shapes(self) -> dict[str, tuple[int | None, ...]]:
        for node in self.graph.node:
            self.add(node)
        return {name: shape_of(kind) for name, kind in self.types.items() if kind.tensor_type.HasField("shape")}

    def add(self, node: object) -> None:
        """Infer the outputs of the next node."""
        try:
            self.step(node)
        except Exception:  # shapes that cannot be inferred stay open, and an error names them if they are needed
            return

    def step(self, node: Any) -> None:
        onnx = self.onnx
        found = self.computed(node)
        if found is not None:
            self.sizes[node.output[0]] = found
            self.types[node.output[0]] = onnx.helper.make_tensor_type_proto(found.data_type, found.dims)
            return
        schema = onnx.defs.get_schema(node.op_type, self.versions.get(node.domain, 1), node.domain)
        types = {name: self.types[name] for name in node.input if name in self.types}
        sizes = {name: self.sizes[name] for name in node.input if name in self.sizes}
        self.types.update(self.inference.infer_node_outputs(schema, node, types, sizes))

    def computed(self, node: Any) -> Any | None:
        """Return the tensor that a node computes from known sizes."""
        onnx, kind = self.onnx, node.op_type
        if node.domain not in ("", "ai.onnx") or not node.output:
            return None
        if kind == "Constant":
            for one in node.attribute:
                if one.name == "value" and math.prod(one.t.dims) <= MAX_SIZES:
                    return one.t
            return None
        if kind in ("Shape", "Size"):
            dims = self.types[node.input[0]].tensor_type.shape.dim if node.input[0] in self.types else []
            if not dims or not all(one.HasField("dim_value") for one in dims):
                return None
            sizes = [one.dim_value for one in dims]
            if kind == "Size":
                return onnx.helper.make_tensor("n", onnx.TensorProto.INT64, [], [math.prod(sizes)])
            span = {one.name: one.i for one in node.attribute}
            sizes = sizes[span.get("start", 0) : span.get("end", len(sizes))]
            return onnx.helper.make_tensor("n", onnx.TensorProto.INT64, [len(sizes)], sizes)
        if kind not in FOLDED and kind not in FILLED or not all(name in self.sizes for name in node.input if name):
            return None
        from onnx.reference import ReferenceEvaluator  # 50 ms

        values = {name: onnx.numpy_helper.to_array(self.sizes[name]) for name in node.input if name}
        if kind in FILLED and math.prod(values[node.input[FILLED[kind]]].tolist()) > MAX_SIZES:
            return None
        with np.errstate(all="raise"):  # sizes divided by zero are invalid
            produced: Any = ReferenceEvaluator(node, opsets=self.versions).run(None, values)
        answer = produced[0]
        return onnx.numpy_helper.from_array(answer) if answer.size <= MAX_SIZES else None


class Conditional(Exception):
    """A conditional is not read."""


def has_branches(model: Any) -> bool:
    """Tell whether the graph has an `If`."""
    return any(node.op_type == "If" for node in model.graph.node)


def without_branches(
    onnx: Any, inference: object, model: Any, count: Callable[[Any], int]
) -> tuple[Any, tuple[str, ...]]:
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
        self.used_names = {one.name for one in (*model.graph.input, *self.held)}
        self.seen = 0
        self.notes: list[str] = []

    def flat(self, before: list[Any], nodes: Any) -> list[Any]:
        """Return the nodes before and these, whose conditionals are replaced."""
        found = list(before)
        for node in nodes:
            if node.op_type == "If":
                found = self.chosen(found, node)
            else:
                self.used_names.update(node.output)
                self.walk.add(node)
                found.append(node)
        return found

    def chosen(self, before: list[Any], node: Any) -> list[Any]:
        """Return the previous nodes and the nodes of one branch."""
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

    def variant(self, before: list[Any], node: Any, name: str, graph: object) -> _Variant:
        """Return the previous nodes and the nodes of a branch, with their counts."""
        title = f"the {name.replace('_', ' ')} of {printable(shortened(node.name or 'If'))}"
        self.notes = []
        try:
            nodes = self.branch(before, node, graph)
            return _Variant(title, self.count(self.built(nodes)), nodes, self.notes)
        except ValueError as error:
            return _Variant(f"{title}, which does not fit the input", error=error)

    def branch(self, before: list[Any], node: Any, graph: Any) -> list[Any]:
        """Return the previous nodes and the nodes of a branch, with unique names."""
        names: dict[str, str] = {}
        for name in sorted(_outputs_of(graph)):
            fresh, times = name, 1
            while fresh in self.used_names:
                times += 1
                fresh = f"{name}'{times}"
            names[name] = fresh
            self.used_names.add(fresh)
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
        produced = {name for node in nodes for name in node.output}
        ends = [one for one in model.graph.output if one.name in produced]
        model.graph.ClearField("output")
        model.graph.output.extend(ends)
        return model


def _outputs_of(graph: Any) -> set[str]:
    """Return the names of the values that a graph makes or holds."""
    return {name for one in graph.node for name in one.output if name} | {one.name for one in graph.initializer}


def _renamed(onnx: Any, node: object, names: dict[str, str]) -> Any:
    """Return a node with other names, also where graphs inside it use them."""
    found = onnx.NodeProto()
    found.CopyFrom(node)
    found.output[:] = [names.get(name, name) for name in found.output]
    _rename(found, names)
    return found


def _rename(node: Any, names: dict[str, str]) -> None:
    node.input[:] = [names.get(name, name) for name in node.input]
    for graph in (one.g for one in node.attribute if one.HasField("g")):
        own = _outputs_of(graph)
        outer = {name: fresh for name, fresh in names.items() if name not in own}
        for inner in graph.node:
            _rename(inner, outer)
        for output in graph.output:
            output.name = outer.get(output.name, output.name)
