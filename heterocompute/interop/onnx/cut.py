"""A graph cut at our products: the nodes between two of them are one session.

    x -> [session 0] -> Conv, Conv -> [session 1] -> Gemm -> [session 2] -> y

A node belongs to session n if the longest path to it has n products. Runs of operators on one value each are taken out
of a session (pointwise.py). If, Loop and Scan with products inside are run here, and their graphs are cut in the same
way. Nodes that depend on constants only are part of each session that needs them, or computed once.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...base.texts import quoted
from ...files.containers.onnx_graph import (
    FLOAT_TYPES,
    STANDARD,
    Constant,
    Constants,
    follow,
    inner_graphs,
    multiplied,
    node_name,
    text_of,
)
from .chains import Chain, chained
from .control import CONTROLS, Control
from .model import array_of, plain_opset
from .pointwise import FIRST, pieces
from .products import Product
from .segments import Live, PointwiseSegment, Request, Segment, Step, Values, connected, reads

Array = np.ndarray[Any, Any]
# Operators that multiply, of any domain, and the operands that may be weights.
MULTIPLIED = {
    "Attention": (1, 2), "Conv": (0, 1), "ConvInteger": (0, 1), "ConvTranspose": (0, 1), "DeformConv": (1,),
    "DynamicQuantizeMatMul": (1,), "Einsum": (0, 1), "FusedConv": (1,), "FusedGemm": (0, 1), "FusedMatMul": (0, 1),
    "GRU": (1, 2), "Gemm": (0, 1), "LSTM": (1, 2), "MatMul": (0, 1), "MatMulBnb4": (1,), "MatMulInteger": (0, 1),
    "MatMulIntegerToFloat": (0, 1), "MatMulNBits": (1,), "QGemm": (3,), "QLinearConv": (3,), "QLinearMatMul": (0, 3),
    "RNN": (1, 2),
}  # fmt: skip


@dataclass
class Network:
    """Shared by all graphs of one model.

    Parameters
    ----------
    model : onnx.ModelProto
    folder : str
        Where external data lie.
    session : Sessions or References
        Makes what runs a part of the graph.
    """

    model: Any
    folder: str
    session: Any
    tensors: dict[str, Any] = field(default_factory=dict)  # constants by their name in the file
    axes: dict[str, set[tuple[int, ...]]] = field(default_factory=dict)  # of constants that are multiplied
    arrays: dict[str, Array] = field(default_factory=dict)  # those that have been read
    others: list[str] = field(default_factory=list)  # operators that multiply by a weight, which we do not compute
    chains: bool = False  # whether convolutions one after the other are one step

    def array(self, name: str) -> Array:
        """Return the values of a constant of the file."""
        if name not in self.arrays:
            self.arrays[name] = array_of(self.tensors[name], self.folder)
        return self.arrays[name]


class Cut:
    """A graph as a list of steps.

    Parameters
    ----------
    graph : onnx.GraphProto
    network : Network
    prefix : str
        Of the names of its constants.
    around : Cut, optional
        The graph that holds this one.
    """

    def __init__(self, graph: Any, network: Network, prefix: str = "", around: Cut | None = None) -> None:
        self.network, self._is_inner = network, around is not None
        self.inputs = [text_of(one.name) for one in graph.input]
        self.outputs = [text_of(one.name) for one in graph.output]
        self.declared = {text_of(one.name): one for one in graph.output}
        self._constants: Constants = ChainMap() if around is None else around._constants.new_child()
        # tensors, and nodes that depend only on constants, by name
        self.fixed: ChainMap[str, Any] = ChainMap() if around is None else around.fixed.new_child()
        self._known: dict[str, Any] = {}
        for tensor in graph.initializer:
            self._hold(prefix, tensor.name, tensor)
        if around is not None:
            self._hide(self.inputs)
        self.steps: list[Any] = []
        self._cut(graph, prefix)
        self._dead = connected(self.steps, set(self.outputs))

    def run(self, values: Values, request: Request) -> list[Any]:
        """Return the outputs of the graph; `values` holds its inputs, and receives all computed values."""
        for step, dead in zip(self.steps, self._dead, strict=True):
            step.run(values, request)
            for name in dead:
                values.pop(name, None)
        return [self.value(name, values) for name in self.outputs]

    def value(self, name: str, values: Mapping[str, Any]) -> Any:
        """Return a value, which may be constant."""
        if name in values:
            return values[name]
        if name not in self._known:
            self._known[name] = self._decided(name)
        return self._known[name]

    def plain(self, value: object) -> Any:
        """Return a value as an ndarray."""
        return value if isinstance(value, np.ndarray) else self.network.session.plain(value)

    def session_of(self, nodes: list[Any], feeds: Mapping[str, Any], outputs: list[str]) -> Any:
        """Return a session of some nodes, with the constants that they read."""
        import onnx  # optional

        tensors: dict[str, Any] = {}
        before: list[Any] = []
        for node in nodes:
            for name in reads(node):
                self._gather(name, tensors, before)
        for name in outputs:
            self._gather(name, tensors, before)
        graph = onnx.GraphProto(name="part")
        graph.node.extend([*before, *nodes])
        graph.input.extend(self.network.session.info(name, value) for name, value in feeds.items())
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
        model = onnx.ModelProto(ir_version=max(self.network.model.ir_version, 4), graph=graph)
        model.opset_import.extend(self.network.model.opset_import)
        return self.network.session(model, tensors)

    def _gather(self, name: str, tensors: dict[str, Any], before: list[Any]) -> None:
        """Add the nodes that a constant value is computed from."""
        one = self.fixed.get(name)
        if one is None or name in tensors or any(name in node.output for node in before):
            return
        if one.DESCRIPTOR.name == "TensorProto":
            tensors[name] = one
            return
        for inner in reads(one):
            self._gather(inner, tensors, before)
        before.append(one)

    def _decided(self, name: str) -> Any:
        one = self.fixed[name]
        if one.DESCRIPTOR.name == "TensorProto":
            return array_of(one, self.network.folder)
        return self.session_of([], {}, [name]).run([name], {})[0]

    def _hold(self, prefix: str, output: object, tensor: Any) -> None:
        """Note a constant tensor."""
        name = text_of(output)
        self._constants[name] = Constant(prefix + name, tuple(range(len(tensor.dims))))
        self.network.tensors[prefix + name] = tensor

    def _cut(self, graph: Any, prefix: str) -> None:
        live: list[Live] = []
        for tensor in graph.initializer:
            self.fixed[text_of(tensor.name)] = tensor
        needed = self._used(graph)
        for place, node in enumerate(graph.node):
            follow(node, self._constants)
            outputs = [text_of(name) for name in node.output if name]
            if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
                self._hold(prefix, node.output[0], node.attribute[0].t)
            if not needed.intersection(outputs):
                continue
            names = reads(node)
            if self._is_fixed(node, names):
                self.fixed.maps[0].update(dict.fromkeys(outputs, node))
                continue
            step = self._product(node) or self._control(node, node_name(prefix, node, place))
            if step is None and self._multiplies(node):
                self.network.others.append(f"{text_of(node.op_type)} {quoted(text_of(node.name) or outputs[0])}")
            live.append(Live(node, step, names, outputs))
            self._hide(outputs)
        self.steps = self.steps_of(chained(self, live) if self.network.chains and not self._is_inner else live)

    def steps_of(self, live: list[Live]) -> list[Any]:
        """Return the steps of some nodes: sessions between products."""
        levels: dict[str, int] = {}
        at: dict[int, tuple[list[Any], list[Any]]] = {}  # nodes of a session, and its successors
        for node, step, names, outputs in live:
            level = max((levels.get(name, 0) for name in names), default=0)
            session, after = at.setdefault(level, ([], []))
            if step is None:
                session.append(node)
            else:
                after.append(step)
                level += 1
            levels.update(dict.fromkeys(outputs, level))
        steps: list[Any] = []
        for level in sorted(at):
            session, after = at[level]
            steps += self._segments(session)
            steps += after
        return steps

    def _segments(self, nodes: list[Any]) -> list[Segment]:
        """Return the steps of the nodes between two products."""
        if not nodes:
            return []
        if not self.network.session.fuses or plain_opset(self.network.model) < FIRST:
            return [Segment(self, nodes)]
        return [
            PointwiseSegment(self, part) if is_pointwise else Segment(self, part)
            for is_pointwise, part in pieces(nodes, self.fixed)
        ]

    def _hide(self, names: list[str]) -> None:
        """Bind names to values of this graph, not to constants of an outer graph with the same names."""
        self.fixed.maps[0].update(dict.fromkeys(names))
        for name in names:
            self._constants.maps[0].setdefault(name, None)  # type: ignore[arg-type]

    def _used(self, graph: Any) -> set[str]:
        """Return the names that the outputs depend on."""
        needed = set(self.outputs)
        for node in reversed(graph.node):
            if any(text_of(name) in needed for name in node.output):
                needed.update(reads(node))
        return needed

    def _is_fixed(self, node: Any, names: list[str]) -> bool:
        if (
            node.domain not in STANDARD
            or node.op_type.startswith("Random")
            or node.op_type in ("Bernoulli", "Multinomial")
        ):
            return False
        return all(self.fixed.get(name) is not None for name in names) and not any(inner_graphs(node, ""))

    def _product(self, node: Any) -> Step | None:
        for place, source, axes in multiplied(node, self._constants):
            other = text_of(node.input[1 - place])
            is_matrix = node.op_type == "Conv" or len(source.order) == 2
            if (
                self.network.tensors[source.name].data_type in FLOAT_TYPES
                and is_matrix
                and self.fixed.get(other) is None
            ):
                self.network.axes.setdefault(source.name, set()).add(axes)
                return Step(self, Product(node, place, source))
        return None

    def _multiplies(self, node: Any, around: frozenset[str] = frozenset()) -> bool:
        """Tell whether an operator, or an operator of one of its subgraphs, multiplies values by a weight."""
        if any(self._multiplies_inside(graph) for _, graph in inner_graphs(node, "")):
            return True
        operands = MULTIPLIED.get(node.op_type, ())
        names = [text_of(node.input[i]) for i in operands if i < len(node.input) and node.input[i]]
        return any(self.fixed.get(name) is not None or name in around for name in names)

    def _multiplies_inside(self, graph: Any) -> bool:
        held = {text_of(one.name) for one in graph.initializer}
        held |= {text_of(name) for node in graph.node if node.op_type == "Constant" for name in node.output}
        return any(self._multiplies(node, frozenset(held)) for node in graph.node)

    def _control(self, node: Any, name: str) -> Control | None:
        """Return the step of a node whose graphs hold products."""
        if node.op_type not in CONTROLS or node.domain not in STANDARD:
            return None
        if node.op_type == "Scan" and plain_opset(self.network.model) < 9:  # it has a batch
            return None
        graphs = {prefix: Cut(graph, self.network, prefix, self) for prefix, graph in inner_graphs(node, name)}
        if self.network.session.runs_control and not any(cut.has_products() for cut in graphs.values()):
            return None
        return CONTROLS[node.op_type](self, node, list(graphs.values()), reads(node))

    def has_chains(self) -> bool:
        return any(isinstance(step, Chain) for step in self.steps)

    def has_products(self) -> bool:
        return any(step.multiplies for step in self.steps)
