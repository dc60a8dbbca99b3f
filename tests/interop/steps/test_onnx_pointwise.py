"""Operators on one value each between convolutions, in one call, have the bits of onnxruntime's sessions."""

import numpy as np
import pytest
from common import isas

import heterocompute as hc
from heterocompute.base import runtime
from heterocompute.interop.onnx import pointwise
from heterocompute.interop.onnx.sessions import Sessions
from heterocompute.interop.onnx_run import OnnxNetwork

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper, numpy_helper = pytest.importorskip("onnx.helper"), pytest.importorskip("onnx.numpy_helper")
FLOAT = onnx.TensorProto.FLOAT
SPECIAL = np.float32([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-41, -1e-41, 3e38, -3e38])


class Drawn:
    """A graph of convolutions with drawn operators between them."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.nodes, self.tensors = rng, [], []
        self.n, self.c = int(rng.integers(1, 3)), int(rng.integers(1, 7))
        self.sizes = tuple(int(one) for one in rng.integers(1, 40, 2))
        self.names = ["x"]
        self.pixels = []  # values of one pixel for each channel
        for _ in range(int(rng.integers(1, 4))):
            self.convolution()
            for _ in range(int(rng.integers(1, 9))):
                self.operator()
        self.convolution()

    def constant(self, values: object) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def pick(self) -> str:
        return self.names[-1 - int(self.rng.integers(0, min(3, len(self.names))))]

    def convolution(self) -> None:
        size = (self.c, self.c, 1, 1)
        self.names.append(self.node("Conv", self.pick(), self.constant(self.rng.normal(size=size))))

    def operator(self) -> None:
        rng, x = self.rng, self.pick()
        kind = rng.choice(["Add", "Sub", "Mul", "Div", "Clip", "Relu", "LeakyRelu", "HardSigmoid", "HardSwish", "pool"])
        if kind == "pool":
            pixel = self.node("GlobalAveragePool", x)
            if rng.random() < 0.7:
                pixel = self.node(str(rng.choice(["HardSigmoid", "Relu"])), pixel)
            pair = [x, pixel] if rng.random() < 0.7 else [pixel, x]
            self.names.append(self.node("Mul", *pair))
        elif kind in ("Add", "Sub", "Mul", "Div"):
            shape = [(), (1,), (self.c, 1, 1), (1, self.c, 1, 1), (self.sizes[1],), self.sizes, (self.n, 1, 1, 1)]
            other = self.pick()
            if rng.random() < 0.7:
                values = rng.normal(size=shape[int(rng.integers(0, len(shape)))])
                other = self.constant(values * (rng.random() < 0.9))
            pair = [x, other] if rng.random() < 0.7 else [other, x]
            self.names.append(self.node(kind, *pair))
        elif kind == "Clip":
            low, high = sorted(rng.normal(size=2))
            edges = [["", self.constant(high)], [self.constant(low), self.constant(high)], [self.constant(low)],
                     [self.constant(-0.0), self.constant(6)], []]  # fmt: skip
            self.names.append(self.node("Clip", x, *edges[int(rng.integers(0, 5))]))
        else:
            given = {"LeakyRelu": {"alpha": 0.1}, "HardSigmoid": {"alpha": 0.3, "beta": 0.4}}.get(kind, {})
            self.names.append(self.node(kind, x, **given))

    def model(self) -> object:
        shape = ["n", self.c, "h", "w"]
        ends = [helper.make_tensor_value_info(name, FLOAT, shape) for name in ("x", self.names[-1])]
        graph = helper.make_graph(self.nodes, "drawn", ends[:1], ends[1:], self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def x(self, special: bool) -> np.ndarray:
        x = self.rng.normal(size=(self.n, self.c, *self.sizes)).astype(np.float32) * 4
        if special:
            x.flat[self.rng.integers(0, x.size, 9)] = SPECIAL
        return x


def answer(model: object, x: np.ndarray, activations: str | None) -> object:
    """Return the output, or the message of an error."""
    network = OnnxNetwork(model)
    weights = {name: w + 0 for name, w in network.weights.items()}
    try:
        return next(iter(network.run(x, weights, activations).values()))
    except ValueError as error:
        return str(error)


def without_calls(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sessions, "fuses", False)


def same(a: object, b: object) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    bits = a.view(np.uint32) == b.view(np.uint32)
    return a.shape == b.shape and bool((bits | (np.isnan(a) & np.isnan(b))).all())


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list:
    """The calls of the core that a test makes."""
    found, inner = [], pointwise._core.pointwise

    def noted(*args: object) -> None:
        found.append(args)
        inner(*args)

    monkeypatch.setattr(pointwise._core, "pointwise", noted)
    return found


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("seed", range(60))
def test_drawn_graphs_have_the_bits_of_sessions(seed, monkeypatch):
    drawn = Drawn(np.random.default_rng([56, seed]))
    model, activations = drawn.model(), None if seed % 2 else "int8"
    x = drawn.x(special=bool(seed % 2))
    found = [answer(model, x, activations)]
    for isa in isas():
        with hc.use(isa=isa, threads=2):
            found.append(answer(model, x, activations))
    without_calls(monkeypatch)
    wanted = answer(model, x, activations)
    assert all(same(one, wanted) for one in found)


def one_of(nodes: list, tensors: list, shape: list, opset: int = 17) -> object:
    """Return a model of a convolution with one channel in and two out, and nodes after it that answer y."""
    w = numpy_helper.from_array(np.float32([[[[2]]], [[[-3]]]]), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), *nodes]
    ends = [helper.make_tensor_value_info(name, FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "one", ends[:1], ends[1:], [w, *tensors])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def constant(name: str, values: object) -> object:
    return numpy_helper.from_array(np.asarray(values, np.float32), name)


def hard_swish() -> list:
    return [
        helper.make_node("Add", ["a", "three"], ["b"]),
        helper.make_node("Clip", ["b", "zero", "six"], ["c"]),
        helper.make_node("Mul", ["a", "c"], ["d"]),
        helper.make_node("Div", ["d", "six"], ["y"]),
    ]


def test_a_run_of_operators_is_one_call(calls):
    tensors = [constant("zero", 0), constant("three", 3), constant("six", 6)]
    model = one_of(hard_swish(), tensors, ["n", None, "h", "w"])
    x = np.random.default_rng(0).normal(size=(2, 1, 9, 70)).astype(np.float32)
    y = answer(model, x, "int8")
    assert len(calls) == 1
    assert calls[0][1:3] == (1, y.size)
    a = hc.conv2d(x, np.float32([2, -3]).reshape(2, 1, 1, 1), activations="int8")
    np.testing.assert_array_equal(y, a * np.clip(a + np.float32(3), 0, 6) / np.float32(6))


REFUSED = {
    "a sum with zero": ([helper.make_node("Add", ["a", "k"], ["y"])], [constant("k", 0)]),
    "limits in the wrong order": (
        [helper.make_node("Clip", ["a", "k", "l"], ["y"])], [constant("k", 2), constant("l", 1)],
    ),
    "a limit that is NaN": ([helper.make_node("Clip", ["a", "k"], ["y"])], [constant("k", np.nan)]),
    "a limit that is computed": (
        [helper.make_node("ReduceMax", ["a"], ["m"], keepdims=0), helper.make_node("Clip", ["a", "m"], ["y"])], [],
    ),
    "an inverse": (
        [helper.make_node("Div", ["k", "a"], ["b"]), helper.make_node("Mul", ["b", "a"], ["y"])], [constant("k", 1)],
    ),
    "a gate": ([helper.make_node("Sigmoid", ["a"], ["b"]), helper.make_node("Mul", ["a", "b"], ["y"])], []),
    "rows that repeat inside": (
        [helper.make_node("Mul", ["a", "k"], ["y"])], [constant("k", np.ones((2, 1, 9, 1)) * 3)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_other_operators_stay_in_a_session(what, calls, monkeypatch):
    model = one_of(*REFUSED[what], ["n", None, "h", "w"])
    x = np.random.default_rng(1).normal(size=(2, 1, 9, 7)).astype(np.float32)
    y = answer(model, x, "int8")
    assert not calls
    without_calls(monkeypatch)
    assert same(y, answer(model, x, "int8"))


def test_shapes_may_change_from_call_to_call(calls):
    nodes = [helper.make_node("Mul", ["a", "k"], ["b"]), helper.make_node("Relu", ["b"], ["y"])]
    network = OnnxNetwork(one_of(nodes, [constant("k", [[[2]], [[3]]])], ["n", None, "h", "w"]))
    weights = network.quantized("int8")
    for i, size in enumerate([(1, 1, 3, 5), (2, 1, 9, 8), (1, 1, 1, 1), (3, 1, 40, 41), (1, 1, 3, 5)] * 3):
        x = np.random.default_rng(i).normal(size=size).astype(np.float32)
        y = network.run(x, weights, "int8")["y"]
        a = hc.conv2d(x, weights["w"], activations="int8")
        np.testing.assert_array_equal(y, np.maximum(a * np.float32([2, 3]).reshape(2, 1, 1), 0))
    assert len(calls) == 15


@pytest.mark.parametrize("type_", ["float16", "float64"])
def test_other_types_stay_in_a_session(type_, calls):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(type_))
    nodes = [helper.make_node("Cast", ["a"], ["b"], to=kind), helper.make_node("Mul", ["b", "b"], ["c"])]
    nodes.append(helper.make_node("Cast", ["c"], ["y"], to=int(FLOAT)))
    x = np.float32([1.5, 2.25]).reshape(1, 1, 1, 2)
    assert answer(one_of(nodes, [], ["n", None, "h", "w"]), x, "int8").shape == (1, 2, 1, 2)
    assert not calls


F = np.float32
BAD = {
    "an operation": ([(np.ones(4, F), 1, 4, 1)], [(9, 0, -1, 0, 0, 0, 0, 0)], [np.empty(4, F)]),
    "a value that is not known yet": ([(np.ones(4, F), 1, 4, 1)], [(0, 0, 1, 0, 0, 0, 0, 0)], [np.empty(4, F)]),
    "no second value": ([(np.ones(4, F), 1, 4, 1)], [(0, 0, -1, 0, 0, 0, 0, 0)], [np.empty(4, F)]),
    "a short input": ([(np.ones(3, F), 1, 4, 1)], [(4, 0, -1, 0, 0, 0, 0, 0)], [np.empty(4, F)]),
    "a step outside": ([(np.ones(4, F), 2, 2**62, 1)], [(4, 0, -1, 0, 0, 0, 0, 0)], [np.empty(4, F)]),
    "no rows": ([(np.ones(4, F), 0, 4, 1)], [(4, 0, -1, 0, 0, 0, 0, 0)], [np.empty(4, F)]),
    "a short result": ([(np.ones(4, F), 1, 4, 1)], [(4, 0, -1, 0, 0, 0, 0, 0)], [np.empty(3, F)]),
    "a result of another type": ([(np.ones(4, F), 1, 4, 1)], [(4, 0, -1, 0, 0, 0, 0, 0)], [np.empty(4)]),
    "no result": ([(np.ones(4, F), 1, 4, 1)], [(4, 0, -1, 0, 0, 0, 0, 1)], [np.empty(4, F)]),
    "too many steps": ([(np.ones(4, F), 1, 4, 1)], [(4, 0, -1, 0, 0, 0, 0, 0)] * 65, [np.empty(4, F)]),
    "no steps": ([(np.ones(4, F), 1, 4, 1)], [], []),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_the_core_checks_its_arguments(what):
    inputs, steps, outs = BAD[what]
    with pytest.raises(ValueError, match="pointwise: expected"):
        pointwise._core.pointwise(runtime.run(), 1, 4, tuple(inputs), tuple(steps), tuple(outs))


def test_tiles_are_used_again_only_when_no_step_reads_them():
    rng = np.random.default_rng(3)
    for _ in range(200):
        x = [rng.normal(size=(3, 1500)).astype(F) for _ in range(2)]
        values, steps, outs = [*x], [], []
        for i in range(int(rng.integers(1, 40))):
            a, b = (int(one) for one in rng.integers(0, len(values), 2))
            kept = i % 7 == 0 or rng.random() < 0.1
            steps.append((int(rng.integers(0, 2)), a, b, 0, 0, 0, 0, len(outs) if kept else -1))
            values.append(values[a] + values[b] if steps[-1][0] == 0 else values[a] - values[b])
            outs += [(np.empty((3, 1500), F), values[-1])] if kept else []
        inputs = tuple((one, 3, 1500, 1) for one in x)
        pointwise._core.pointwise(runtime.run(), 3, 1500, inputs, tuple(steps), tuple(out for out, _ in outs))
        for out, wanted in outs:
            np.testing.assert_array_equal(out, wanted)


def beside(nodes: list[object], tensors: list[object] = (), opset: int = 17) -> OnnxNetwork:  # type: ignore[assignment]
    """Return a network of nodes that make y of x, and a product of other values."""
    w = numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")
    inputs = [helper.make_tensor_value_info("x", FLOAT, None), helper.make_tensor_value_info("q", FLOAT, [2, 2])]
    outputs = [helper.make_tensor_value_info(name, FLOAT, None) for name in ("y", "p")]
    nodes = [*nodes, helper.make_node("MatMul", ["q", "w"], ["p"])]
    graph = helper.make_graph(nodes, "beside", inputs, outputs, [*tensors, w])
    return OnnxNetwork(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8))


def y_of(network: OnnxNetwork, x: np.ndarray) -> np.ndarray:
    weights = {name: w + 0 for name, w in network.weights.items()}
    return network.run({"x": x, "q": np.eye(2, dtype=np.float32)}, weights)["y"]


def test_values_at_odd_addresses() -> None:
    x = np.zeros(4 * 30 + 1, np.uint8)[1:].view(np.float32).reshape(5, 6)
    x[...] = np.random.default_rng(0).normal(size=x.shape)
    assert not x.flags.aligned
    network = beside([helper.make_node("Mul", ["x", "x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])])
    assert np.array_equal(y_of(network, x), x * x)


@pytest.mark.parametrize(
    ("node", "opset"),
    [
        (helper.make_node("Clip", ["x"], ["y"], min=0.0), 13),
        (helper.make_node("HardSwish", ["x"], ["y"]), 13),
        (helper.make_node("Relu", ["x", "x"], ["y"]), 17),
        (helper.make_node("Clip", ["x", "square"], ["y"]), 17),
    ],
)
def test_operators_that_are_not_as_defined(node: object, opset: int) -> None:
    square = [numpy_helper.from_array(np.float32([[0.5]]), "square")]
    with pytest.raises(hc.ArgumentError, match="run_onnx"):
        y_of(beside([node], square, opset), np.ones((2, 3), np.float32))
