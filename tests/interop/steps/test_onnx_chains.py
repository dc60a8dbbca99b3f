"""Convolutions one after the other in one call have the bits of their nodes run one by one."""

import copy
import pickle

import numpy as np
import pytest
from common import isas

import heterocompute as hc
from heterocompute.interop.onnx import chains
from heterocompute.interop.onnx_run import OnnxNetwork

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper, numpy_helper = pytest.importorskip("onnx.helper"), pytest.importorskip("onnx.numpy_helper")
FLOAT = onnx.TensorProto.FLOAT
EDGES = [(0, 6), (-0.0, 6), (-1, 1), (6, 0), (np.nan, 1), (0, np.nan), (0, np.inf), (-np.inf, 2), (-np.inf, np.inf),
         (-1.5, -0.0), (-3, -1)]  # fmt: skip


class Graph:
    """A graph under construction."""

    def __init__(self, channels: int) -> None:
        self.channels, self.nodes, self.tensors = channels, [], []

    def constant(self, values: object) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def conv(self, rng: np.random.Generator, x: str, k: int = 4, c: int = 4, side: int = 3, **given: object) -> str:
        w = rng.normal(size=(k, c // int(given.get("group", 1)), side, side)) / side
        given.setdefault("pads", [side // 2] * 4)
        return self.node("Conv", x, self.constant(w), self.constant(rng.normal(size=k)), **given)

    def network(self, *outputs: str) -> OnnxNetwork:
        ends = [helper.make_tensor_value_info(name, FLOAT, ["n", None, None, None]) for name in ("x", *outputs)]
        graph = helper.make_graph(self.nodes, "chain", ends[:1], ends[1:], self.tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return OnnxNetwork(model.SerializeToString())


def small(low: float = 0, high: float = 6) -> OnnxNetwork:
    """Return conv, clip, depthwise conv, conv, a sum with the clipped image, relu, conv."""
    rng, graph = np.random.default_rng(3), Graph(4)
    first = graph.node("Clip", graph.conv(rng, "x"), graph.constant(low), graph.constant(high))
    middle = graph.conv(rng, graph.conv(rng, first, group=4), side=1)
    total = graph.node("Relu", graph.node("Add", middle, first))
    return graph.network(graph.conv(rng, total, pads=[0, 0, 1, 1], strides=[2, 2]))


def image(seed: int = 0, shape: tuple[int, ...] = (2, 4, 9, 11)) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32) * 3


def chains_of(network: OnnxNetwork) -> list[chains.Chain]:
    """Return the chains that a network has run."""
    found = []
    for way in network._ways.values():
        cells = dict(zip(way.__code__.co_freevars, way.__closure__, strict=True))
        found += [
            step for cut in cells["rounded"].cell_contents for step in cut.steps if isinstance(step, chains.Chain)
        ]
    return found


def programs_of(network: OnnxNetwork) -> list[object]:
    return [program for chain in chains_of(network) for program in chain._held[1].values()]


def outcome(network: OnnxNetwork, x: np.ndarray, weights: object, activations: object = "int8") -> object:
    """Return the bytes of all outputs, or the error."""
    try:
        found = network.run(x, weights, activations)
    except ValueError as error:
        return str(error)
    return {name: (value.shape, value.tobytes()) for name, value in found.items()}


def same(network: OnnxNetwork, x: np.ndarray, weights: object, activations: object = "int8") -> object:
    """Return the outcome, which is the same with chains and without."""
    network.chains = False
    expected = outcome(network, x, weights, activations)
    network.chains = True
    found = outcome(network, x, weights, activations)
    assert found == expected
    return found


def test_a_chain_is_used():
    network = small()
    weights = network.quantized("int8")
    for _ in range(3):
        same(network, image(), weights)
    assert len(chains_of(network)) == 1 and len(programs_of(network)) == 1
    assert len(programs_of(network)[0].arguments) == 4


@pytest.mark.parametrize("seed", range(12))
def test_drawn_graphs_have_the_same_bits(seed):
    rng, graph = np.random.default_rng(seed), Graph(4)
    names, sizes, c = ["x"], {"x": 0}, 4
    for _ in range(int(rng.integers(2, 8))):
        kind, x = rng.choice(["Conv", "Conv", "Clip", "Relu", "Add", "Sigmoid"]), names[-1]
        if kind == "Conv":
            given = [{}, {"group": 4}, {"side": 1}, {"strides": [2, 2]}, {"pads": [0, 1, 2, 1]}, {"pads": [2] * 4,
                     "dilations": [2, 2]}, {"side": 2, "pads": [0, 0, 1, 1]}][int(rng.integers(0, 7))]  # fmt: skip
            name = graph.conv(rng, x, c, c, **given)
            sizes[name] = sizes[x] + ("strides" in given)
        elif kind == "Clip":
            low, high = EDGES[int(rng.integers(0, 3))]
            name = graph.node("Clip", x, graph.constant(low), graph.constant(high))
        elif kind == "Add":
            pair = [x, [one for one in names if sizes[one] == sizes[x]][0]]
            name = graph.node("Add", *(pair if rng.random() < 0.5 else pair[::-1]))
        else:
            name = graph.node(kind, x)
        sizes.setdefault(name, sizes[x])
        names.append(name)
    outputs = dict.fromkeys([graph.conv(rng, names[-1]), names[int(rng.integers(1, len(names)))]])
    network = graph.network(*outputs)
    formats = ["int8", "int8", "vsq4-g16-s4"]
    weights = network.quantized(formats[seed % 3])
    for isa in isas():
        with hc.use(isa=isa):
            same(network, image(seed), weights)
    for threads in (1, 2):
        with hc.use(threads=threads):
            same(network, image(seed, (1, 4, 16, 7)), weights)
    same(network, image(seed), weights, "int4")
    same(network, image(seed), None)


@pytest.mark.parametrize("low, high", EDGES)
@pytest.mark.parametrize("scale", [1, 1e-30, 0])
def test_limits_of_every_kind(low, high, scale):
    network = small(low, high)
    same(network, image() * np.float32(scale), network.quantized("int8"))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_call_that_is_not_finite_leaves_the_chain(value):
    network = small()
    weights = network.quantized("int8")
    expected, x = same(network, image(), weights), image()
    x[1, 2, 3, 4] = value
    same(network, x, weights)
    assert same(network, image(), weights) == expected
    assert None not in programs_of(network)


def test_infinities_that_a_sum_brings_in():
    rng, graph = np.random.default_rng(0), Graph(4)
    y = graph.conv(rng, graph.node("Clip", "x", graph.constant(-1), graph.constant(1)))
    y = graph.node("Clip", graph.node("Add", y, "x"), graph.constant(0), graph.constant(6))
    network, x = graph.network(graph.conv(rng, graph.conv(rng, y))), image()
    x[0, 1, 2, 3], x[1, 1, 2, 3] = np.inf, -np.inf
    weights = network.quantized("int8")
    assert isinstance(same(network, x, weights), dict)
    x[1, 0, 0, 0] = np.nan
    same(network, x, weights)
    same(network, image(), weights)
    assert programs_of(network) and None not in programs_of(network)


@pytest.mark.parametrize("remade", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_of_a_network_after_calls(remade):
    network = small()
    weights = network.quantized("int8")
    expected = same(network, image(), weights)
    assert same(remade(network), image(), remade(weights)) == expected
    assert same(network, image(), weights) == expected


def test_weights_of_a_chain_are_read_only_and_others_are_seen():
    network = small()
    weights = network.quantized("int8")
    before = same(network, image(), weights)
    for w in weights.values():
        with pytest.raises(ValueError, match="read-only"):
            w.components["codes"][...] = 0
    changed = copy.deepcopy(weights)
    name = next(iter(changed))
    changed[name].components["codes"][...] ^= 1
    assert same(network, image(), changed) != before
    assert same(network, image(), weights) == before
    weights[name] = changed[name]  # another array by the same name
    assert same(network, image(), weights) != before


def test_other_shapes_have_programs_of_their_own_and_few_are_kept():
    network = small()
    weights = network.quantized("int8")
    for width in range(3, 3 + 2 * chains.KEPT):
        same(network, image(width, (1, 4, 5, width)), weights)
    assert len(programs_of(network)) == chains.KEPT
    same(network, image(0, (1, 4, 1, 1)), weights)
    same(network, image(0, (0, 4, 9, 9)), weights)


def test_shapes_that_the_chain_does_not_fit_are_left_to_the_nodes():
    rng, graph = np.random.default_rng(0), Graph(4)
    pixel = graph.node("GlobalAveragePool", "x")
    y = graph.node("Add", graph.conv(rng, graph.conv(rng, "x")), pixel)  # a sum that broadcasts
    network = graph.network(graph.conv(rng, y))
    weights = network.quantized("int8")
    same(network, image(), weights)
    assert programs_of(network) == [None]
    same(network, image(0, (2, 4, 1, 1)), weights)  # here the shapes are the same
    same(network, image(0, (2, 3, 9, 9)), weights)


def test_values_inside_a_chain_that_the_nodes_left_are_freed(monkeypatch):
    network, kept = small(), []
    weights = network.quantized("int8")
    expected = same(network, image(), weights)
    monkeypatch.setattr(chains.Chain, "_by_one_call", lambda self, values, request: kept.append((self, values)))
    assert outcome(network, image(), weights) == expected
    ((chain, values),) = kept
    assert not (chain.produced - set(chain.outputs)) & set(values)
    assert any(chain._dead[:-1])


def test_a_value_read_twice_ends_its_link():
    rng, graph = np.random.default_rng(0), Graph(4)
    first = graph.conv(rng, "x")
    y = graph.node("Add", graph.node("Relu", first), graph.conv(rng, first))
    twice = graph.conv(rng, y)
    network = graph.network(graph.node("Add", twice, twice), first)
    same(network, image(), network.quantized("int8"))
