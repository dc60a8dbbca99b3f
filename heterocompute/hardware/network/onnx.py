"""A network from an ONNX file, for counting: shapes and parameters, never the values of the weights.

Convolutions and matrix products become layers of ours; every other operator becomes a node with its shape and the
parameters that it holds. Shapes come from onnx's own inference, axis 0 of the input is the batch; what we make of a
node must have as many elements as the graph says. Exporters fold normalization into convolutions: fewer parameters.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from ...base.errors import WrongValue, printable, shown
from ...base.regular import open_regular
from ...base.texts import decoded, file_name, quoted, shortened
from .einsum import labels, products
from .graph import INPUT, Network, Node, check_shape
from .layers import BatchNorm2d, Conv2d, Layer, Linear, MatMul, Product, TimesMatrix
from .onnx_products import is_product, sizes_of
from .onnx_shapes import SAMPLES, Conditional, has_branches, prepared, shaped, without_branches
from .plain import Activation, AdaptiveAvgPool2d, Add, AvgPool2d, MaxPool2d
from .windows import Shape

ACTIVATIONS = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Gelu": "gelu", "Clip": "relu6"}
SKIPPED = {"Identity", "Dropout"}
VIEWS = {"Reshape", "Flatten", "Squeeze", "Unsqueeze"}
# Their output is a size. Values computed from sizes are not values of the network: Reshape reads them, and costs
# nothing.
SIZES = {"Shape", "Size"}
# Inputs that hold parameters, for operators that also have other constants: scales, zero points, sizes.
PARAMETERS = {"QuantizeLinear": (0,), "DequantizeLinear": (0,), "Resize": (0,), "Upsample": (0,), "ConvInteger": (0, 1),
              "QLinearConv": (0, 3, 8), "MatMulInteger": (0, 1), "QLinearMatMul": (0, 3)}  # fmt: skip
FLOAT = 1
FLOATS = {FLOAT, 10, 11, 16, 17, 18, 19, 20, 23}  # data types of ONNX
MAX_DIMENSIONS, MAX_ELEMENTS = 64, 2**63
GRAPHS = {"Loop", "Scan", "SequenceMap"}


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


def read_onnx(path: str | os.PathLike[str], input_shape: Sequence[int] | None = None) -> Network:
    """Read the graph of an ONNX file.

    Parameters
    ----------
    input_shape : sequence of int, optional
        Of one sample, for axes that the file leaves open.

    Raises
    ------
    ImportError
        onnx is not installed; the extra ``onnx`` brings it.
    ValueError
        The file is not an ONNX file or not a regular file, or the shape of an input or operator is unknown.
    OSError
        The file cannot be read.
    """
    place = file_name(path)
    sample = None if input_shape is None else check_shape(input_shape)
    with open_regular(place):
        pass  # a missing file is an OSError, not onnx's own
    try:
        import onnx  # optional
        from onnx import inliner, shape_inference  # optional
    except ImportError:
        raise ImportError(f"{place}: reading ONNX files needs onnx: pip install 'heterocompute[onnx]'") from None
    with _reported(place):
        model = onnx.load(place, load_external_data=False)
        decoded(model)
        model = inliner.inline_local_functions(model) if model.functions else model
        model = prepared(onnx, model, sample)

    def read(part: Any) -> Network:
        with _reported(place):
            shapes = shaped(onnx, shape_inference, part)
        return _Reader(onnx, part.graph, shapes, place).network()

    if not has_branches(model):
        return read(model)
    try:
        model, notes = without_branches(onnx, shape_inference, model, lambda part: sum(one.macs for one in read(part)))
    except Conditional as error:
        raise WrongValue(f"{place}: {error}") from None
    return replace(read(model), leaves_out="; ".join(notes))


@contextmanager
def _reported(place: str) -> Iterator[None]:
    """Turn every error of onnx, its own or protobuf's, into ValueError."""
    try:
        yield
    except Exception as error:
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise WrongValue(f"{place}: not an ONNX file: {shortened(first[0])}") from None


def called(one: Any) -> str:
    """Return the name of a graph's node for a sentence."""
    return printable(shortened(one.name or one.op_type))


class _Reader:
    def __init__(self, onnx: Any, graph: Any, shapes: dict[str, tuple[int | None, ...]], place: str) -> None:
        self.onnx, self.graph, self.place = onnx, graph, place
        self.held: dict[str, tuple[int, ...]] = {}  # shapes of constants, and of values that depend only on constants
        self.sizes: dict[str, int] = {}
        self.behind: dict[str, set[str]] = {}  # the parameters of values that depend only on constants
        self.floats: set[str] = set()
        self.merges: set[str] = set()
        for one in graph.initializer:
            self.hold(one.name, self.dims(one), one.data_type)
        for one in graph.sparse_initializer:
            self.hold(one.values.name, tuple(one.dims), one.values.data_type, math.prod(one.values.dims))
        self.counted: set[str] = set()
        self.shapes = shapes
        self.sources: dict[str, str] = {}
        self.shared: set[str] = set()  # values that all samples of a batch have in common, such as a sampling rate
        self.elements: dict[str, int] = {}
        self.batch: int | None = None
        self.suffixes: dict[str, int] = {}

    def network(self) -> Network:
        inputs = [one.name for one in self.graph.input if one.name not in self.held]
        if not inputs:
            self.fail("the graph has no inputs, expected at least one")
        self.sources[inputs[0]] = INPUT
        self.batch = (self.shapes.get(inputs[0]) or (None,))[0]
        nodes: list[Node] = []
        for name in inputs[1:]:
            self.sources[name] = self.unique(name)
            if not any(size % (self.batch or 1) == 0 for size in self.full(name)):
                self.shared.add(name)
            nodes.append(Node(self.sources[name], Operator("input", self.sample(name)), (INPUT,)))
        produced = {*inputs, *self.held}
        for place, one in enumerate(self.graph.node):
            if lost := [name for name in one.input if name and name not in produced]:
                self.fail(f"{called(one)} reads {shown(lost[0])}, which nothing before it makes")
            produced.update(one.output)
            nodes += self.read(one, place)
        network = Network(os.path.basename(self.place), tuple(nodes), self.sample(inputs[0]), "read from ONNX")
        for flow in network:
            known = self.elements.get(flow.name)
            if known is not None and known != flow.output_elements:
                self.fail(
                    f"{printable(shortened(flow.name))} has {known} values a sample, {flow.output_elements} as read"
                )
        return network

    def read(self, one: Any, place: int) -> list[Node]:
        """Return the node of an operator; None if the operator is skipped or computes sizes."""
        found = [self.sources[name] for name in one.input if name in self.sources]
        if one.op_type in GRAPHS or one.domain not in ("", "ai.onnx"):
            kind = f"{one.domain}.{one.op_type}".strip(".")
            self.fail(f"{called(one)} is a {printable(shortened(kind))}, which is not read")
        if not one.output:
            self.fail(f"{called(one)} has no output")
        if one.op_type in SIZES or not found:
            self.prepare(one)
            return []
        if one.op_type in SKIPPED:
            self.sources[one.output[0]] = found[0]
            return []
        if all(name in self.shared for name in one.input if name in self.sources):
            self.shared.update(one.output)
        name = self.unique(one.name or f"{one.op_type.lower()}{place}")
        try:
            layer = self.layer(one)
        except (TypeError, ValueError) as error:
            text = str(error)
            start = "" if text.startswith(self.place) else f"{self.place}: {printable(shortened(name))}: "
            raise WrongValue(start + text) from None
        view = one.op_type in VIEWS and one.input[0] in self.sources
        node = Node(name, layer, tuple(found), self.sources[one.input[0]] if view else None)
        for output in one.output:
            self.sources[output] = name
        output = self.output(one)
        shape = self.shapes.get(output)
        if shape and all(size is not None for size in shape[1:]):
            self.elements[name] = math.prod(self.sample(output))
        return [node]

    def fail(self, what: str) -> NoReturn:
        raise WrongValue(f"{self.place}: {what}")

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

    def hold(self, name: str, dims: tuple[int, ...], kind: int, size: int | None = None) -> None:
        """Store a constant: its shape, and its possible parameter."""
        self.held[name], self.sizes[name] = dims, math.prod(dims) if size is None else size
        self.behind[name] = {name} if dims else set()
        self.floats |= {name} if kind in FLOATS else set()
        # Exporters merge vectors of equal values, zeros and ones, so these count once per use.
        self.merges |= {name} if len(dims) == 1 and dims[0] > 1 else set()

    def prepare(self, one: Any) -> None:
        """Store the result of a node of constants and sizes; it is free, and its parameters count at their use."""
        tensors = [a for a in one.attribute if a.name in ("value", "sparse_value")]
        if one.op_type == "Constant" and tensors:
            sparse = tensors[0].name == "sparse_value"
            value = tensors[0].sparse_tensor.values if sparse else tensors[0].t
            dims = tuple(tensors[0].sparse_tensor.dims) if sparse else self.dims(value)
            self.hold(one.output[0], dims, value.data_type, math.prod(value.dims))
            return
        if numbers := [a.floats for a in one.attribute if a.name == "value_floats" and one.op_type == "Constant"]:
            self.hold(one.output[0], (len(numbers[0]),), FLOAT)
            return
        behind: set[str] = set() if one.op_type in SIZES else self.weights_of(one)
        for output in one.output:
            shape = self.shapes.get(output)
            if shape is not None and all(size is not None for size in shape):
                self.held[output] = tuple(int(size or 0) for size in shape)
            self.behind[output] = behind
        if one.op_type in ("Identity", "Transpose") and one.input and one.input[0] in self.held:
            dims = self.held[one.input[0]]
            order = [a.ints for a in one.attribute if a.name == "perm"]
            axes = list(reversed(range(len(dims)))) if one.op_type == "Transpose" else list(range(len(dims)))
            axes = list(order[0]) if order else axes
            if sorted(axes) != list(range(len(dims))):
                self.fail(f"{called(one)} has the perm {shown(axes)}, expected the axes of {shown(dims)}")
            self.held[one.output[0]] = tuple(dims[axis] for axis in axes)

    def layer(self, one: Any) -> Layer:
        """Return the layer of a node of the graph; its constants count at their first use."""
        options = {a.name: self.onnx.helper.get_attribute_value(a) for a in one.attribute}
        kind = one.op_type
        if kind == "Einsum" and len(one.input) > 1:
            return self.einsum(one, options.get("equation"))
        if is_product(kind):
            return self.product(one, options)
        weights = [name for name in one.input if name in self.held]
        shape = self.held[weights[0]] if weights else ()
        if kind == "BatchNormalization" and len(shape) == 1:
            new, whole = self.new_params(one, (0, 1, 2)), 2 * shape[0]
            image = len(self.sample(self.output(one))) == 3
            return BatchNorm2d(shape[0]) if image and new == whole else self.other(one, new)
        if kind in ACTIVATIONS:
            return Activation(ACTIVATIONS[kind])
        if kind == "Add" and not weights and self.same_shapes(one):
            return Add()
        if kind == "GlobalAveragePool" and len(self.sample(self.output(one))) == 3:
            return AdaptiveAvgPool2d(1)
        if kind in ("MaxPool", "AveragePool") and len(options.get("kernel_shape", ())) == 2:
            padding = self.padding(options)
            if padding is not None and self.pair(one, options, "dilations") == (1, 1):
                produced = MaxPool2d if kind == "MaxPool" else AvgPool2d
                window, strides = (self.pair(one, options, key) for key in ("kernel_shape", "strides"))
                return produced(window, strides, padding, bool(options.get("ceil_mode", 0)))
        return self.other(one, self.new_params(one))

    def product(self, one: Any, options: dict[str, Any]) -> Layer:
        """Return the layer of a convolution, a matrix product or a recurrent layer, whose parameters count exactly."""
        kind = one.op_type
        output = self.output(one)
        shapes = [self.full(name) if name else () for name in one.input]
        active = [name in self.sources for name in one.input]
        if kind == "Gemm" and active[0] and options.get("transA", 0) and (self.batch or 1) > 1:
            self.fail(f"{called(one)} transposes what it is given, which is not read")
        whole = self.full(output)
        try:
            sizes, first, second = sizes_of(kind, shapes, options, whole, self.batch or 1)
        except ValueError as error:
            self.fail(f"{called(one)} {error}")
        if second is not None and active[second] < active[first]:
            first, second = first, second
        elif second is not None and active[first] < active[second]:  # the weights are n x k of sizes
            first, second, sizes = second, first, (sizes[0], sizes[2], sizes[1], sizes[3])
        weights = () if second is None else (second,)
        bias = [place for place in range(len(one.input)) if place not in (first, second)]
        new, biases = self.new_params(one, weights), self.new_params(one, bias)
        layer = None if kind not in ("Conv", "Gemm", "MatMul") else self.known(
            one, options, shapes, active, (first, second), new, biases)  # fmt: skip
        rest = new + biases - layer.params if layer is not None else 0
        if layer is not None and not rest:
            return layer
        return Product(kind, sizes, self.sample(output), new, biases)

    def known(
        self, one: Any, options: dict[str, Any], shapes: list[tuple[int, ...]], active: list[bool],
        positions: tuple[int, int | None], new: int, biases: int,
    ) -> Layer | None:  # fmt: skip
        """Return our layer for a product; None if there is none."""
        kind, (first, second) = one.op_type, positions
        if second is None or len(active) > 2 and active[2]:
            return None
        weight = shapes[second]
        shared = new < math.prod(weight)
        if kind == "Conv" and second == 1 and len(weight) == 4 and not active[1]:
            padding = self.padding(options)
            if padding is None:
                return None
            strides, dilations = (self.pair(one, options, key) for key in ("strides", "dilations"))
            groups = options.get("group", 1)
            return Conv2d(weight[1] * groups, weight[0], (weight[2], weight[3]), strides, padding, dilations, groups,
                          biases > 0, shared)  # fmt: skip
        if kind == "Gemm" and second == 1 and not active[1] and not options.get("transA", 0):
            n, k = weight if options.get("transB", 0) else weight[::-1]
            return Linear(k, n, biases > 0, shared)
        if kind == "MatMul" and second == 1 and not active[1] and len(weight) == 2:
            return Linear(*weight, False, True) if shared else TimesMatrix(*weight)
        if kind == "MatMul" and active[0] and active[1] and len(weight) == len(shapes[first]) > 1:
            return MatMul() if weight[:-2] == shapes[first][:-2] else None
        return None

    def padding(self, options: dict[str, Any]) -> tuple[int, int] | None:
        """Return the padding of a window over an image; None if it is automatic or differs between the two ends."""
        pads = options.get("pads") or [0, 0, 0, 0]
        automatic = options.get("auto_pad", b"NOTSET")
        if automatic == b"VALID":
            return 0, 0
        return (pads[0], pads[1]) if automatic == b"NOTSET" and pads[:2] == pads[2:] and len(pads) == 4 else None

    def output(self, one: Any) -> str:
        """Return the first output of a node that has a name."""
        return str(next((name for name in one.output if name), one.output[0]))

    def full(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value with its batch."""
        shape = self.held.get(name, self.shapes.get(name))
        if shape is None or len(shape) > MAX_DIMENSIONS or any(size is None or size < 1 for size in shape):
            self.unknown(name, shape)
        return tuple(int(size or 0) for size in shape)

    def unknown(self, name: str, shape: Any) -> NoReturn:
        """Raise ValueError for an unknown shape; a caller can give an input's shape."""
        hint = ""
        if any(one.name == name or None in self.shapes.get(one.name, ()) for one in self.graph.input):
            hint = "; input_shape (--input) gives the sizes of one sample, without the batch"
        sizes = [
            "batch" if size == SAMPLES == self.batch else "?" if size is None else str(size) for size in shape or ()
        ]
        text = f": {', '.join(sizes[:MAX_DIMENSIONS])}" if sizes else ""
        self.fail(f"the shape of {quoted(name)} is not known{text}{hint}")

    def einsum(self, one: Any, equation: Any) -> Product:
        """Return the product of two tensors by their labels."""
        try:
            text = equation.decode("ascii")
            parts = labels(text)
        except (AttributeError, UnicodeDecodeError):
            self.fail(f"{called(one)} has the equation {shown(equation)}, expected a text of letters")
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
        positions = [label for label in output if all(label in part for part in alive) and not sizes[label] % batch]
        if not positions and batch > 1:
            self.fail(f"no label of the equation {shown(text)} holds the batch {batch} in every activation")
        for label in sorted(positions, key=lambda label: sizes[label] != batch)[
            :1
        ]:  # the whole label, or a factor of it
            sizes[label] //= batch
        if one.input[0] not in self.sources:  # the second operand counts as the weights
            first, second = second, first
        return Product(text, products(first, second, output, sizes), self.sample(one.output[0]), self.new_params(one))

    def new_params(self, one: object, positions: Sequence[int] | None = None) -> int:
        """Return the number of parameters that a node is the first to use, in some of its inputs; count them."""
        new = {name for name in self.weights_of(one, positions) if name not in self.counted or name in self.merges}
        self.counted |= new
        return sum(self.sizes[name] for name in new)

    def weights_of(self, one: Any, positions: Sequence[int] | None = None) -> set[str]:
        """Return the parameters that a node reads, directly or through values computed only from parameters."""
        listed = PARAMETERS.get(one.op_type, range(len(one.input)))
        names = [one.input[i] for i in listed if i < len(one.input) and (positions is None or i in positions)]
        found = set().union(*(self.behind.get(name, set()) for name in names))
        if one.op_type in PARAMETERS:  # integers that stand for numbers
            self.floats |= found
        return found & self.floats

    def pair(self, one: object, options: dict[str, Any], key: str) -> tuple[int, int]:
        """Return the two numbers of an attribute, by default (1, 1)."""
        found = options.get(key, [1, 1])
        if not isinstance(found, list) or len(found) != 2 or not all(isinstance(size, int) for size in found):
            self.fail(f"{called(one)} has the {key} {shown(found)}, expected two numbers")
        return found[0], found[1]

    def other(self, one: Any, held: int) -> Operator:
        return Operator(one.op_type, self.sample(self.output(one)), held)

    def same_shapes(self, one: Any) -> bool:
        return len({self.shapes.get(name) for name in one.input}) == 1

    def sample(self, name: str) -> Shape:
        """Return the shape of a value without its batch, which may be folded into an axis or follow other axes."""
        if name in self.shared:
            return self.full(name)
        shape = self.shapes.get(name)
        if not shape or len(shape) > MAX_DIMENSIONS or any(size is None or size < 1 for size in shape):
            self.unknown(name, shape)
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
