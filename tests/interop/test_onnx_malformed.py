"""Malformed ONNX models are one sentence with the file's name, and options without an effect say so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import reals, run

import heterocompute as hc
from heterocompute.interop.onnx_run import OnnxNetwork

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
node = helper.make_node
X = np.ones((2, 4), np.float32)
W = reals((4, 4), 1)


@pytest.fixture(params=["onnx", "onnxruntime"], autouse=True)
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run models without onnxruntime, or with it."""
    name: str = request.param
    if name == "onnx":
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    else:
        pytest.importorskip("onnxruntime")
    return name


def model_of(nodes: list[Any], held: dict[str, Any], shape: tuple[int, ...] = X.shape) -> Any:
    ends = [helper.make_tensor_value_info(name, 1, size) for name, size in (("x", shape), ("y", None))]
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def branch(reads: str) -> Any:
    graph = helper.make_graph(
        [node("MatMul", [reads, "w"], ["z"])], "g", [], [helper.make_tensor_value_info("z", 1, None)]
    )
    return node("If", ["on"], ["y"], then_branch=graph, else_branch=graph)


MALFORMED = {
    "weight": ([node("MatMul", ["x", "lost"], ["y"])], "MatMul reads 'lost', which nothing makes"),
    "operand": ([node("Gemm", ["lost", "w"], ["y"], name="fc")], "fc reads 'lost', which nothing makes"),
    "bias": ([node("Gemm", ["x", "w", "lost"], ["y"])], "Gemm reads 'lost'"),
    "branch": ([branch("lost")], "MatMul reads 'lost'"),
    "itself": ([node("Relu", ["y"], ["y"])], "Relu reads 'y', which only a later node or itself makes"),
    "cycle": ([node("MatMul", ["y", "w"], ["z"]), node("Relu", ["z"], ["y"])], "MatMul reads 'y', which only a later"),
    "twice": ([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])], "Neg makes 'y', which is made already"),
    "tensor": ([node("Relu", ["x"], ["w"]), node("Relu", ["w"], ["y"])], "Relu makes 'w', which is made already"),
    "output": ([node("Relu", ["x"], ["z"])], "nothing makes the output 'y'"),
    "operator": ([node("", ["x"], ["y"], name="n")], "n has no operator"),
    "attribute": ([node("Gemm", ["x", "w"], ["y"], alpha=[1, 2])], "Gemm|alpha|broadcast|expected"),
}


@pytest.mark.parametrize("kind", MALFORMED)
@pytest.mark.parametrize("options", [{}, {"format": "int4", "activations": "int8"}])
def test_a_malformed_graph_is_a_sentence_with_the_file(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    nodes, words = MALFORMED[kind]
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of(nodes, {"w": W, "on": np.bool_(True)}).SerializeToString())
    with pytest.raises(ValueError, match=words) as caught:
        hc.run_onnx(path, X, **options)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_graph_without_names_is_refused() -> None:
    model = model_of([node("Relu", ["x"], ["y"])], {})
    model.graph.input[0].name = ""
    model.graph.node[0].input[0] = ""
    with pytest.raises(ValueError, match="an input has no name"):
        hc.run_onnx(model, X)
    model = model_of([node("Relu", ["x"], ["y"])], {"w": W})
    model.graph.initializer.add().CopyFrom(model.graph.initializer[0])
    with pytest.raises(ValueError, match="two tensors have the name 'w'"):
        hc.run_onnx(model, X)


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    path, model = tmp_path / "m.onnx", model_of([node("MatMul", ["x", "w"], ["y"])], {"w": W})
    onnx.save(model, path, save_as_external_data=True, location="m.bin", size_threshold=0)
    (tmp_path / "m.bin").unlink()
    with pytest.raises((OSError, ValueError), match=r"m\.(bin|onnx)"):
        hc.run_onnx(path, X, activations="int8")


def test_names_that_are_not_utf_8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    data = model_of([node("MatMul", ["x", "WEIGHT"], ["y"], name="NODE")], {"WEIGHT": W}).SerializeToString()
    path.write_bytes(data.replace(b"WEIGHT", b"\xff\xfeIGHT").replace(b"NODE", b"N\xc3\x28\xff"))
    for options in ({}, {"format": "int8"}):
        y = hc.run_onnx(path, X, **options)["y"]  # type: ignore[arg-type]
        np.testing.assert_allclose(y, X @ W, rtol=0.05, atol=0.05)
    for command in (
        ["count", path],
        ["inspect", path],
        ["quantize", path, tmp_path / "q.safetensors", "--format", "int4"],
    ):
        code, _, error = run(capsys, *command)
        assert code == 0, error
    path.write_bytes(data.replace(b"WEIGHT", b"\xff\xfeIGHT", 1))  # the operator and the tensor differ
    code, _, error = run(capsys, "count", path)
    assert code == 1 and str(path) in error and error.count("\n") <= 1


DEQUANTIZED = [node("DequantizeLinear", ["q", "s"], ["v"]), node("MatMul", ["x", "v"], ["y"])]
CODES = {"q": np.arange(16, dtype=np.int8).reshape(4, 4), "s": np.float32(0.1)}
WITHOUT = {
    "DequantizeLinear": (DEQUANTIZED, CODES, X, "MatMul 'y'"),
    "computed": ([node("Exp", ["w"], ["v"]), node("MatMul", ["x", "v"], ["y"])], {"w": W}, X, "MatMul 'y'"),
    "volume": ([node("Conv", ["x", "w"], ["y"])], {"w": np.ones((1, 1, 1, 1, 1), np.float32)}, X.reshape(1, 1, 2, 2, 2),
               "Conv 'y'"),
    "transposed": ([node("ConvTranspose", ["x", "w"], ["y"], name="up")], {"w": np.ones((1, 1, 2, 2), np.float32)},
                   X.reshape(1, 1, 2, 4), "ConvTranspose 'up'"),
    "stack": ([node("MatMul", ["x", "w"], ["y"])], {"w": np.stack([W, W])}, X, "MatMul 'y'"),
    "nothing": ([node("Relu", ["x"], ["y"])], {}, X, "constant weight$"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WITHOUT)
def test_activations_without_an_effect_are_refused(kind: str) -> None:
    nodes, held, x, words = WITHOUT[kind]
    model = model_of(nodes, held, x.shape)
    assert np.isfinite(hc.run_onnx(model, x)["y"]).all()
    with pytest.raises(
        ValueError, match=f"activations: the model has no Conv, Gemm or MatMul with a (?=constant weight).*{words}"
    ):
        hc.run_onnx(model, x, activations="int8")


def test_operators_that_options_do_not_reach_are_named() -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Exp", ["w"], ["v"]),
        node("MatMul", ["a", "v"], ["y"], name="last"),
    ]
    model, x = model_of(nodes, {"w": W}), reals((2, 4), 2)
    plain = hc.run_onnx(model, x)["y"]
    with pytest.warns(UserWarning, match="activations do not apply to MatMul 'last': their inputs are not rounded"):
        assert not np.allclose(hc.run_onnx(model, x, activations="int2")["y"], plain, rtol=1e-4)
    with pytest.warns(UserWarning, match="formats do not apply to MatMul 'last': their weights keep their values"):
        hc.run_onnx(model, x, format="int4")
    network = OnnxNetwork(model)
    assert list(network.weights) == ["w"]


@pytest.mark.parametrize("op", ["Gemm", "MatMul", "If"])
@pytest.mark.parametrize("is_turned", [False, True])
def test_activations_reach_every_product(op: str, is_turned: bool) -> None:
    x = reals((4, 4), 3)
    turned = {"transA": int(is_turned), "transB": int(is_turned)}
    nodes = [branch("x")] if op == "If" else [node(op, ["x", "w"], ["y"], **(turned if op == "Gemm" else {}))]
    if op == "MatMul" and is_turned:
        nodes = [node("MatMul", ["w", "x"], ["y"])]
    model = model_of(nodes, {"w": W, "on": np.bool_(True)}, x.shape)
    plain, found = (hc.run_onnx(model, x, activations=fmt)["y"] for fmt in (None, "int2"))
    assert not np.allclose(found, plain, rtol=1e-3)


def test_pads_of_another_length_are_named() -> None:
    held = {"w": np.ones((2, 3, 3, 3), np.float32)}
    model = model_of([node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1])], held, (1, 3, 8, 8))
    with pytest.raises(ValueError, match=r"Conv|pads"):
        hc.run_onnx(model, np.ones((1, 3, 8, 8), np.float32), "int8")


def test_an_unknown_data_type_of_an_input_is_named() -> None:
    model = model_of([node("Relu", ["x"], ["y"])], {})
    model.graph.input[0].type.tensor_type.elem_type = 100
    with pytest.raises(ValueError, match="input 'x' has the unknown data type 100"):
        hc.run_onnx(model, X)
