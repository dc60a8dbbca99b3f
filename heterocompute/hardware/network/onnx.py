"""A network from an ONNX file, for counting: shapes and parameters, never the values of the weights.

Convolutions and matrix products become layers of ours; every other operator becomes a node with its shape and the
parameters that it holds. Shapes come from onnx's own inference, axis 0 of the input is the batch; what we make of a
node must have as many elements as the graph says. Exporters fold normalization into convolutions: fewer parameters.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, NoReturn

from ...base.regular import open_regular
from ...base.texts import printable, quoted, shortened
from ...base.values import shown
from .einsum import Einsum, labels, products
from .graph import INPUT, Network, Node
from .layers import BatchNorm2d, Conv2d, Layer, Linear, MatMul, Shape, TimesMatrix
from .onnx_shapes import shaped
from .plain import Activation, AdaptiveAvgPool2d, Add, AvgPool2d, MaxPool2d

__all__ = ["Operator", "read_onnx"]

ACTIVATIONS = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Gelu": "gelu", "Clip": "relu6"}
SKIPPED = {"Identity", "Dropout", "Constant"}
# Their answer is a size, and what is made of sizes is no value of the network: Reshape takes it, and costs nothing.
SIZES = {"Shape", "Size"}
# What multiplies in a way that is not read: to pass it on as an operator without a product would count too little.
PRODUCTS = {"Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv", "Gemm", "MatMul", "MatMulInteger",
            "QLinearMatMul", "Einsum", "Attention", "LSTM", "GRU", "RNN"}  # fmt: skip
MAX_DIMENSIONS, MAX_ELEMENTS = 64, 2**63
GRAPHS = {"If", "Loop", "Scan", "SequenceMap"}


@dataclass(frozen=True)
class Operator(Layer):
    """An operator that is only moved around or applied element by element: its shape and its parameters.

    Parameters
    ----------
    kind : str
    shape : tuple of int
        Of the output, without a batch.
    held : int
        Parameters.
    """

    kind: str
    shape: Shape
    held: int = 0

    @property
    def weight_params(self) -> int:
        return self.held

    def output_shape(self, *inputs: Shape) -> Shape:
        return self.shape


def read_onnx(path: str | os.PathLike[str]) -> Network:
    """Read the graph of an ONNX file.

    Parameters
    ----------
    path : str or os.PathLike

    Returns
    -------
    Network

    Raises
    ------
    ImportError
        onnx is not installed; the extra ``onnx`` brings it.
    ValueError
        No ONNX file, no regular file, an input or an operator whose shape cannot be known.
    OSError
        The file cannot be read.
    """
    place = os.fspath(path)
    with open_regular(path):
        pass  # a missing file is an OSError, not onnx's own
    try:
        import onnx  # optional
        from onnx import shape_inference  # optional
    except ImportError:
        raise ImportError(f"{place}: reading ONNX files needs onnx: pip install heterocompute[onnx]") from None
    try:
        model = onnx.load(place, load_external_data=False)
        model, shapes = shaped(onnx, shape_inference, model)
    except Exception as error:  # onnx raises protobuf's errors and its own
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"{place}: no ONNX file: {shortened(first[0])}") from None
    return _Reader(onnx, model.graph, shapes, place).network()


def called(one: Any) -> str:
    """Return how a sentence calls a node of the graph."""
    return printable(shortened(one.name or one.op_type))


class _Reader:
    def __init__(self, onnx: Any, graph: Any, shapes: dict[str, tuple[int | None, ...]], place: str) -> None:
        self.onnx, self.graph, self.place = onnx, graph, place
        self.held = {one.name: self.dims(one) for one in graph.initializer}
        self.floats = {one.name for one in graph.initializer if one.data_type in (1, 10, 11, 16)}
        self.counted: set[str] = set()
        self.shapes = shapes
        self.behind: dict[str, set[str]] = {}  # of values made of weights alone: these weights
        self.sources: dict[str, str] = {}
        self.elements: dict[str, int] = {}
        self.batch: int | None = None
        self.suffixes: dict[str, int] = {}

    def network(self) -> Network:
        inputs = [one.name for one in self.graph.input if one.name not in self.held]
        if len(inputs) != 1:
            names = shown(inputs) if inputs else "none"
            self.fail(f"the graph has the inputs {names}, wanted one")
        self.sources[inputs[0]] = INPUT
        self.batch = (self.shapes.get(inputs[0]) or (None,))[0]
        nodes: list[Node] = []
        made = {inputs[0], *self.held, *(one.values.name for one in self.graph.sparse_initializer)}
        for place, one in enumerate(self.graph.node):
            if lost := [name for name in one.input if name and name not in made]:
                self.fail(f"{called(one)} reads {shown(lost[0])}, which nothing before it makes")
            made.update(one.output)
            found = [self.sources[name] for name in one.input if name in self.sources]
            if one.op_type in GRAPHS or one.domain not in ("", "ai.onnx"):
                kind = f"{one.domain}.{one.op_type}".strip(".")
                self.fail(f"{called(one)} is a {printable(shortened(kind))}, which is not read")
            if not one.output:
                self.fail(f"{called(one)} has no output")
            # equal weights that an exporter has merged
            if one.op_type == "Identity" and one.input and one.input[0] in self.held:
                self.held[one.output[0]] = self.held[one.input[0]]
                self.floats.add(one.output[0])
                continue
            if one.op_type == "Transpose" and len(one.input) == 1 and one.input[0] in self.held:
                dims = self.held[one.input[0]]
                order = [a.ints for a in one.attribute if a.name == "perm"]
                axes = list(order[0]) if order else list(reversed(range(len(dims))))
                if sorted(axes) != list(range(len(dims))):
                    self.fail(f"{called(one)} has the perm {shown(axes)}, wanted the axes of {shown(dims)}")
                self.held[one.output[0]] = tuple(dims[axis] for axis in axes)
                self.floats |= {one.output[0]} if one.input[0] in self.floats else set()
                continue
            if one.op_type in SIZES or one.op_type == "Constant" or not found:
                # what is made of constants and sizes alone costs nothing, but weights count where they are used
                self.behind.update(
                    dict.fromkeys(one.output, self.weights_of(one) if one.op_type not in SIZES else set())
                )
                continue
            if one.op_type in SKIPPED:
                self.sources[one.output[0]] = found[0]
                continue
            name = self.unique(one.name or f"{one.op_type.lower()}{place}")
            try:
                nodes.append(Node(name, self.layer(one), tuple(found)))
            except (TypeError, ValueError) as error:
                text = str(error)
                start = "" if text.startswith(self.place) else f"{self.place}: {printable(shortened(name))}: "
                raise ValueError(start + text) from None
            for output in one.output:
                self.sources[output] = name
            shape = self.shapes.get(one.output[0])
            if shape and all(size is not None for size in shape[1:]):
                self.elements[name] = math.prod(self.sample(one.output[0]))
        network = Network(os.path.basename(self.place), tuple(nodes), self.sample(inputs[0]), "read from ONNX")
        for flow in network:
            known = self.elements.get(flow.name)
            if known is not None and known != flow.output_elements:
                self.fail(
                    f"{printable(shortened(flow.name))} has {known} values a sample, {flow.output_elements} as read"
                )
        return network

    def fail(self, what: str) -> NoReturn:
        raise ValueError(f"{self.place}: {what}")

    def dims(self, one: Any) -> tuple[int, ...]:
        """Return the shape of an initializer."""
        dims = one.dims
        if len(dims) > MAX_DIMENSIONS or any(size < 0 for size in dims) or math.prod(dims) >= MAX_ELEMENTS:
            self.fail(f"{quoted(one.name)} has the illegal shape {shown(list(one.dims))}")
        return tuple(dims)

    def unique(self, name: str) -> str:
        """Return a name that no node before has."""
        found = name
        while found in self.suffixes:
            self.suffixes[name] += 1
            found = f"{name}'{self.suffixes[name]}"
        self.suffixes[found] = 1
        return found

    def layer(self, one: Any) -> Layer:
        """Return the layer of a node of the graph; its initializers are counted where they are used first."""
        options = {a.name: self.onnx.helper.get_attribute_value(a) for a in one.attribute}
        weights = [name for name in one.input if name in self.held]
        shape = self.held[weights[0]] if weights else ()
        kind = one.op_type
        if kind == "Conv" and len(shape) == 4 and self.first_use(one):
            pads = options.get("pads", [0, 0, 0, 0])
            if options.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID") and pads[:2] == pads[2:]:
                groups = options.get("group", 1)
                if not isinstance(groups, int):
                    self.fail(f"{called(one)} has the group {shown(groups)}, wanted a number")
                strides, dilations = (self.pair(one, options, key) for key in ("strides", "dilations"))
                kernel = (shape[2], shape[3])
                return Conv2d(shape[1] * groups, shape[0], kernel, strides, tuple(pads[:2]), dilations, groups,
                              len(weights) > 1)  # fmt: skip
            self.fail(f"{called(one)} has uneven or automatic padding, which is not read")
        if kind == "Gemm" and len(shape) == 2 and self.first_use(one):
            if options.get("transA", 0):
                self.fail(f"{called(one)} transposes what it is given, which is not read")
            n, k = shape if options.get("transB", 0) else shape[::-1]
            return Linear(k, n, len(weights) > 1)
        if kind == "MatMul" and len(shape) == 2 and list(one.input[1:]) == weights and self.first_use(one):
            return TimesMatrix(*shape)
        if kind == "MatMul" and len([name for name in one.input if name in self.sources]) == 2:
            return MatMul()
        if kind == "Einsum" and len(one.input) > 1:
            return self.einsum(one, options.get("equation"))
        if kind == "BatchNormalization" and len(shape) == 1 and self.first_use(one):
            return BatchNorm2d(shape[0]) if len(self.sample(one.output[0])) == 3 else self.other(one, 2 * shape[0])
        if kind in ACTIVATIONS:
            return Activation(ACTIVATIONS[kind])
        if kind == "Add" and not weights and self.same_shapes(one):
            return Add()
        if kind == "GlobalAveragePool" and len(self.sample(one.output[0])) == 3:
            return AdaptiveAvgPool2d(1)
        if kind in ("MaxPool", "AveragePool") and len(options.get("kernel_shape", ())) == 2:
            pads = options.get("pads", [0, 0, 0, 0])
            if pads[:2] == pads[2:] and options.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID"):
                made = MaxPool2d if kind == "MaxPool" else AvgPool2d
                window, strides = (self.pair(one, options, key) for key in ("kernel_shape", "strides"))
                return made(window, strides, tuple(pads[:2]), bool(options.get("ceil_mode", 0)))
        return self.other(one, self.new_params(one))

    def einsum(self, one: Any, equation: Any) -> Einsum:
        """Return the product of two tensors by their labels."""
        try:
            text = equation.decode("ascii")
            parts = labels(text)
        except (AttributeError, UnicodeDecodeError):
            self.fail(f"{called(one)} has the equation {shown(equation)}, wanted a text of letters")
        if len(one.input) != 2:
            self.fail(f"{called(one)} has {len(one.input)} operands, the equation {shown(text)} has two")
        sizes: dict[str, int] = {}
        for name, part in zip((*one.input, one.output[0]), parts, strict=True):
            shape = [size or 0 for size in self.held.get(name) or self.shapes.get(name) or (0,)]
            if min(shape) < 1:
                self.fail(f"the shape of {quoted(name)} is not known")
            axes = zip(part, shape, strict=False)
            if len(shape) != len(part) or any(sizes.setdefault(label, size) != size for label, size in axes):
                self.fail(f"{quoted(name)} has the shape {shown(shape)}, which does not fit the equation {shown(text)}")
        first, second, output = parts
        alive = [part for name, part in zip(one.input, parts[:2], strict=True) if name in self.sources]
        batch = self.batch or 1
        places = [label for label in output if all(label in part for part in alive) and not sizes[label] % batch]
        if not places and batch > 1:
            self.fail(f"no label of the equation {shown(text)} holds the batch {batch} in every activation")
        for label in sorted(places, key=lambda label: sizes[label] != batch)[:1]:  # the whole label, or folded into it
            sizes[label] //= batch
        if one.input[0] not in self.sources:  # the second stands for the weights
            first, second = second, first
        held = self.new_params(one)
        if self.weights_of(one) and not held:
            self.fail(f"{called(one)} shares its weights, which is not read")
        return Einsum(text, products(first, second, output, sizes), self.sample(one.output[0]), held)

    def new_params(self, one: Any) -> int:
        """Return how many parameters a node uses that none before has, and mark them as counted."""
        new = {name for name in self.weights_of(one) if name not in self.counted or self.merged(name)}
        self.counted |= new
        return sum(math.prod(self.held[name]) for name in new)

    def merged(self, name: str) -> bool:
        """Whether a weight counts wherever it is used: exporters merge vectors of equal values, zeros and ones."""
        return len(self.held[name]) == 1 and self.held[name][0] > 1

    def weights_of(self, one: Any) -> set[str]:
        """Return the weights that a node takes as they are, or that something made of them alone."""
        own = {name for name in one.input if name in self.floats and self.held[name]}
        return own.union(*(self.behind.get(name, ()) for name in one.input))

    def pair(self, one: Any, options: dict[str, Any], key: str) -> tuple[int, int]:
        """Return the two numbers of an attribute, by default (1, 1)."""
        found = options.get(key, [1, 1])
        if not isinstance(found, list) or len(found) != 2 or not all(isinstance(size, int) for size in found):
            self.fail(f"{called(one)} has the {key} {shown(found)}, wanted two numbers")
        return found[0], found[1]

    def other(self, one: Any, held: int) -> Operator:
        if one.op_type in PRODUCTS:
            self.fail(f"{called(one)} is a {one.op_type} of a kind that is not read")
        return Operator(one.op_type, self.sample(one.output[0]), held)

    def first_use(self, one: Any) -> bool:
        """Mark the weights of a node as counted; False where another node has counted them."""
        names = {name for name in one.input if name in self.held and not self.merged(name)}
        fresh = not names & self.counted
        if not fresh:
            self.fail(f"{called(one)} shares its weights, which is not read")
        self.counted |= names
        return fresh

    def same_shapes(self, one: Any) -> bool:
        return len({self.shapes.get(name) for name in one.input}) == 1

    def sample(self, name: str) -> Shape:
        """Return the shape of a value without its batch, which may be folded into an axis or lie behind others."""
        shape = self.shapes.get(name)
        if not shape or len(shape) > MAX_DIMENSIONS or any(size is None or size < 1 for size in shape):
            self.fail(f"the shape of {quoted(name)} is not known: {shown(shape)}")
        sizes, batch = tuple(int(size or 0) for size in shape), self.batch or 1
        whole = [i for i, size in enumerate(sizes) if size == batch]
        folded = [i for i, size in enumerate(sizes) if size % batch == 0]
        if whole and (whole[0] == 0 or batch > 1):
            sizes = sizes[: whole[0]] + sizes[whole[0] + 1 :]
        elif folded:
            sizes = tuple(size // batch if i == folded[0] else size for i, size in enumerate(sizes))
        else:
            self.fail(f"no axis of {quoted(name)}, {shown(sizes)}, holds the batch {batch}")
        if math.prod(sizes) >= MAX_ELEMENTS:
            self.fail(f"{quoted(name)} has the shape {shown(sizes)}, whose size overflows")
        return sizes
