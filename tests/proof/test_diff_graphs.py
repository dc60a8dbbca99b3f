"""`heterocompute.diff` of ONNX networks: planted faults are found at their node, with their cause."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heterocompute as hc

onnx = pytest.importorskip("onnx")
X = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)


def network() -> Any:
    """Return convolution, normalization, two matmuls, a softmax."""
    rng = np.random.default_rng(1)

    def random(*shape: int) -> Any:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)

    constants = {"filters": random(4, 3, 3, 3), "bias": random(4), "w1": random(64, 64) * 0.3, "w2": random(64, 5),
                 "shift": random(64), "shape": np.array([0, -1], np.int64)}  # fmt: skip
    nodes = [
        onnx.helper.make_node("Conv", ["x", "filters", "bias"], ["c"], "conv", strides=[2, 2], pads=[1, 1, 1, 1]),
        onnx.helper.make_node("Relu", ["c"], ["r"], "relu"),
        onnx.helper.make_node("Reshape", ["r", "shape"], ["f"], "flat"),
        onnx.helper.make_node("MatMul", ["f", "w1"], ["m"], "first"),
        onnx.helper.make_node("Add", ["m", "shift"], ["s"], "add"),
        onnx.helper.make_node("LayerNormalization", ["s", "shift"], ["n"], "norm", epsilon=1e-5),
        onnx.helper.make_node("Gemm", ["n", "w2"], ["g"], "second", alpha=0.5),
        onnx.helper.make_node("Softmax", ["g"], ["y"], "soft", axis=1),
    ]
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, "g", [info("x", 1, [2, 3, 8, 8])], [info("y", 1, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


def constant(name: str, change: Callable[[Any], Any]) -> Callable[[Any], None]:
    def act(model: Any) -> None:
        held = next(one for one in model.graph.initializer if one.name == name)
        held.CopyFrom(onnx.numpy_helper.from_array(change(onnx.numpy_helper.to_array(held).copy()), name))

    return act


def attribute(node: str, key: str, value: Any) -> Callable[[Any], None]:
    def act(model: Any) -> None:
        found = next(one for one in model.graph.node if one.name == node)
        held = next(one for one in found.attribute if one.name == key)
        held.CopyFrom(onnx.helper.make_attribute(key, value))

    return act


def kind(node: str, name: str) -> Callable[[Any], None]:
    return lambda model: setattr(next(one for one in model.graph.node if one.name == node), "op_type", name)


def source(node: str, name: str) -> Callable[[Any], None]:
    def act(model: Any) -> None:
        next(one for one in model.graph.node if one.name == node).input[0] = name

    return act


FAULTS: dict[str, tuple[Callable[[Any], None], str, str]] = {
    "filter": (constant("filters", lambda w: w * np.float32(1.01)), "conv (Conv)", "weights"),
    "one weight": (constant("w2", lambda w: w + np.float32(0.1) * (np.arange(5) == 2)), "second (Gemm)", "weights"),
    "transposed": (constant("w1", lambda w: w.T.copy()), "first (MatMul)", "layout"),
    "pads": (attribute("conv", "pads", [0, 0, 2, 2]), "conv (Conv)", "operation"),
    "eps": (attribute("norm", "epsilon", 0.5), "norm (LayerNormalization)", "operation"),
    "axis": (attribute("soft", "axis", 0), "soft (Softmax)", "operation"),
    "alpha": (attribute("second", "alpha", 0.25), "second (Gemm)", "operation"),
    "activation": (kind("relu", "Tanh"), "relu (Relu)", "operation"),
    "skipped": (source("norm", "m"), "norm (LayerNormalization)", "operation"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_at_its_node(fault: str, tmp_path: Path) -> None:
    act, layer, cause = FAULTS[fault]
    a, b = network(), network()
    act(b)
    onnx.save(a, tmp_path / "a.onnx")
    found = hc.diff(tmp_path / "a.onnx", b, {"x": X})
    assert (found.equal, found.layer, found.cause) == (False, layer, cause), (found.tested, found.notes)


def test_equal_networks_names_and_inputs() -> None:
    a, b = network(), network()
    for node in b.graph.node:  # other names of values, as another exporter gives
        node.name = ""
        for names in (node.input, node.output):
            names[:] = [f"{one}_2" if one and one not in ("x", "y") else one for one in names]
    for one in b.graph.initializer:
        one.name += "_2"
    found = hc.diff(a, b, X)
    assert found.equal and len(found.rows) == 8
    other = X.copy()
    other[1, 2, 3, 4] = 9
    assert hc.diff(a, network(), X, other).cause == "input"
    with pytest.raises(ValueError, match="inputs have"):
        hc.diff(a, b, {"z": X})


def test_other_graphs() -> None:
    a = network()
    found = hc.diff(a, lambda x: np.ones((2, 5), np.float32), X)
    assert (found.layer, found.cause) == ("(whole)", "unexplained")
    info = onnx.helper.make_tensor_value_info
    nodes = [onnx.helper.make_node("Identity", ["x"], ["y"])]
    small = onnx.helper.make_graph(nodes, "g", [info("x", 1, [2, 3, 8, 8])], [info("y", 1, None)])
    b = onnx.helper.make_model(small, opset_imports=[onnx.helper.make_opsetid("", 17)])
    found = hc.diff(a, b, X)
    assert (found.layer, found.cause, found.notes) == ("conv (Conv)", "operation", ["b has no such node"])


def test_branches_read_outer_values() -> None:
    info, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    branches = [onnx.helper.make_graph([node(kind, ["x", "x"], [name])], name, [], [info(name, 1, None)])
                for kind, name in (("Add", "t"), ("Mul", "e"))]  # fmt: skip
    nodes = [node("ReduceSum", ["x"], ["s"], "sum", keepdims=0), node("Greater", ["s", "zero"], ["c"], "greater"),
             node("If", ["c"], ["y"], "if", then_branch=branches[0], else_branch=branches[1])]  # fmt: skip
    zero = onnx.numpy_helper.from_array(np.float32(0), "zero")
    graph = onnx.helper.make_graph(nodes, "g", [info("x", 1, [2, 3])], [info("y", 1, None)], [zero])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    assert hc.diff(model, model, np.ones((2, 3), np.float32)).equal
    other = onnx.ModelProto()
    other.CopyFrom(model)
    other.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.float32(9), "zero"))
    found = hc.diff(model, other, np.ones((2, 3), np.float32))
    assert (found.layer, found.cause) == ("greater (Greater)", "weights")


def test_nodes_and_outputs_that_only_b_has_are_a_difference(tmp_path: Path) -> None:
    longer, other = network(), network()
    longer.graph.node.append(onnx.helper.make_node("Neg", ["y"], ["z"], "more"))
    longer.graph.output[0].name = "z"
    other.graph.output[0].name = "g"
    for b in (longer, other):
        found = hc.diff(network(), b, X)
        assert (found.equal, found.layer, found.cause) == (False, "(outputs)", "operation")
    onnx.save(network(), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    assert hc.diff(tmp_path / "m.onnx", str(tmp_path / "m.onnx"), X).equal


def test_a_network_is_compared_with_a_function() -> None:
    graph = network()
    (answer,) = hc.run_onnx(graph, X).values()
    assert hc.diff(lambda x: answer, graph, X).equal
    torch = pytest.importorskip("torch")
    assert hc.diff(torch.nn.ReLU(), lambda x: np.maximum(x, 0), X).equal


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_side_with_random_numbers_is_named(side: str) -> None:
    plain, noisy = network(), network()
    held = [onnx.numpy_helper.from_array(value, name)
            for name, value in (("train", np.array(True)), ("ratio", np.float32(0.5)))]  # fmt: skip
    for model, mode in ((plain, []), (noisy, ["ratio", "train"])):
        model.graph.initializer.extend(held)
        node = onnx.helper.make_node("Dropout", ["n", *mode], ["d"], "drop")
        model.graph.node.insert(6, node)
        model.graph.node[7].input[0] = "d"
    found = hc.diff(*((noisy, plain) if side == "a" else (plain, noisy)), X)
    assert (found.layer, found.cause) == ("drop (Dropout)", "nondeterminism"), found
    assert found.notes == [f"{side} has other outputs in a second run"]
