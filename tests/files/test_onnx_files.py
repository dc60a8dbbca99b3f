"""ONNX files as checkpoints: quantized files are refused, and weights of others have the axes of their operators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import bad_argument, reals, run

import heterocompute as hc
from heterocompute.files.checkpoint import prune_checkpoint

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
FLOAT = onnx.TensorProto.FLOAT


def save_model(path: Path, nodes: list[Any], held: dict[str, Any]) -> Path:
    """Write a model from the matrix x to y."""
    ends = [[helper.make_tensor_value_info(name, FLOAT, ["n", "m"])] for name in "xy"]
    tensors = [numpy_helper.from_array(array, name) for name, array in held.items()]
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", *ends, tensors), opset_imports=sets), str(path))
    return path


def refused(path: Path, capsys: Any) -> set[str]:
    """Return the messages of the commands that accept weights."""
    out, inputs = path.parent / "out.safetensors", path.parent / "x.npz"
    np.savez(inputs, w=np.ones((2, 32), np.float32))
    declared = set()
    for command in (
        ("quantize", path, out, "--format", "int4"),
        ("prune", path, out, "--pattern", "2:4"),
        ("ptq", path, out, "--format", "int4", "--inputs", inputs),
        ("study", path, "--formats", "int4"),
        ("dequantize", path, out),
    ):
        code, _, err = run(capsys, *command)
        assert code == 1 and not out.exists()
        declared.add(err.strip().removeprefix(f"heterocompute {command[0]}: "))
    return declared


@pytest.mark.parametrize(
    "layout, fmt, what",
    [
        ("onnx", "int4-g32", "DequantizeLinear of 'fc.weight.codes'"),
        ("onnx", "int8", "DequantizeLinear of 'fc.weight.codes'"),
        ("onnx-matmulnbits", "int4-g32-asym", "MatMulNBits of 'fc.B'"),
    ],
)
def test_our_own_layouts_are_quantized_already(tmp_path, capsys, layout, fmt, what):
    path = tmp_path / "q.onnx"
    arrays = {"fc.weight": hc.quantize(reals((8, 64), 1), fmt), "w": reals((8, 32), 2)}
    hc.save(path, arrays, layout=layout)
    (text,) = refused(path, capsys)
    assert text.startswith(f"{path}: is already quantized, by {what}, in the layout of another program")
    with hc.open_checkpoint(path) as found, bad_argument(ValueError, None, "file", "already quantized"):
        hc.study(found, "int4")
    code, _, err = run(capsys, "inspect", path)
    words = "2 tensors left out: 'fc.weight.codes' (int4 (8, 64)), 'fc.weight.zero_point' (int4 (8, 2))"
    assert code == 0 and (words in err) == ((layout, fmt) == ("onnx", "int4-g32"))


def test_codes_are_found_beside_weights_and_in_branches(tmp_path, capsys):
    codes, scale = np.ones((4, 32), np.int8), np.ones(4, np.float32)
    decode = helper.make_node("DequantizeLinear", ["codes", "scale"], ["b"], axis=0)
    multiply = helper.make_node("MatMul", ["x", "w"], ["y"])
    held = {"w": reals((32, 4), 1), "scale": scale, "codes": codes, "zero": np.zeros(4, np.int8)}
    for nodes in (
        [multiply, decode],
        [multiply, helper.make_node("QLinearConv", ["x", "scale", "zero", "codes", "scale", *3 * ["zero"]], ["c"])],
        [multiply, helper.make_node("MatMulInteger", ["x", "codes"], ["c"])],
    ):
        (text,) = refused(save_model(tmp_path / "m.onnx", nodes, held), capsys)
        assert f"{nodes[1].op_type} of 'codes'" in text
    inner = helper.make_graph([decode], "inner", [], [helper.make_tensor_value_info("b", FLOAT, None)])
    branch = helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)
    with bad_argument(ValueError, None, "file", "DequantizeLinear.*'codes'"):
        hc.quantize_checkpoint(save_model(tmp_path / "m.onnx", [branch], held), tmp_path / "o.safetensors", "int4")
    activations = [helper.make_node("DequantizeLinear", ["x", "scale"], ["y"])]  # of the input, not of a constant
    hc.quantize_checkpoint(save_model(tmp_path / "m.onnx", activations, held), tmp_path / "o.safetensors", "int4")


def weights_of(name: str) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Return nodes, the weights, and the reduction axis of each weight."""
    if name == "branch":
        inner_node = helper.make_node("MatMul", ["x", "w"], ["b"])
        inner = helper.make_graph([inner_node], "inner", [], [helper.make_tensor_value_info("b", FLOAT, ["n", "m"])])
        return [helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)], {"w": (64, 64)}, {"w": 0}
    multiply = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Gemm", ["a", "plain"], ["b"]),
        helper.make_node("Gemm", ["b", "turned"], ["c"], transB=1),
        helper.make_node("MatMul", ["c", "both"], ["d"]),
        helper.make_node("Gemm", ["d", "both"], ["e"], transB=1),
        helper.make_node("Conv", ["i", "image"], ["j"]),
        helper.make_node("MatMul", ["i", "many"], ["k"]),
        helper.make_node("MatMul", ["e", "w"], ["f"]),
        helper.make_node("MatMul", ["f", "stranger"], ["y"], domain="other"),
    ]
    axes = {"w": 0, "plain": 0, "turned": 1, "both": 1, "image": (2, 3, 1), "many": 1, "stranger": 1, "rest": 1}
    shapes = {"image": (8, 8, 4, 4), "many": (2, 64, 64)}
    return multiply, {name: shapes.get(name, (64, 64)) for name in axes}, axes


@pytest.mark.parametrize("graph", ["flat", "branch"])
def test_weights_are_quantized_along_what_the_operators_sum(tmp_path, graph):
    nodes, shapes, axes = weights_of(graph)
    held = {name: reals(shape, i) for i, (name, shape) in enumerate(shapes.items())}
    path, out = save_model(tmp_path / "m.onnx", nodes, held), tmp_path / "o.safetensors"
    hc.quantize_checkpoint(path, out, "int4-g32")
    found = hc.load(out)
    assert [name for name, w in held.items() if found[name] != hc.quantize(w, "int4-g32", axis=axes[name])] == []
    prune_checkpoint(path, out, "2:4")
    found = hc.load(out)
    assert all(
        (np.asarray(found[name]) == np.asarray(hc.prune(w, "2:4", axes[name]))).all() for name, w in held.items()
    )
    hc.quantize_checkpoint(path, out, "int4-g32", axis={"turned": 0, "w": -1})  # given axes win for their names
    found, given = hc.load(out), {**axes, "turned": 0, "w": 1}
    assert all(found[name] == hc.quantize(w, "int4-g32", axis=given[name]) for name, w in held.items())


def test_ptq_rounds_along_what_the_operators_sum(tmp_path, capsys):
    w, x = reals((64, 32), 1), reals((256, 64), 2) * np.exp2(reals((64,), 3) * 2)
    path = save_model(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": w})
    out, inputs = tmp_path / "o.safetensors", tmp_path / "x.npz"
    np.savez(inputs, w=x)
    h = hc.ptq.Hessian(64)
    h.add(x)
    wanted = hc.ptq.gptq(w, h, "int4-g32", axis=0)
    code, _, err = run(capsys, "ptq", path, out, "--format", "int4-g32", "--inputs", inputs)
    assert code == 0, err
    assert hc.load(out)["w"] == wanted
    hc.ptq.quantize_checkpoint(path, out, {"w": h}, "int4-g32")
    assert hc.load(out)["w"] == wanted
    asked = ("--formats", "int4-g32", "--methods", "gptq", "--inputs", inputs, "--json")
    code, text, err = run(capsys, "study", path, *asked)
    assert code == 0, err
    rows = hc.study({"w": w}, "int4-g32", axis=0, methods="gptq", hessians={"w": h}).to_dict()["rows"]
    assert json.loads(text)["rows"][1]["output_db"] == rows[1]["output_db"]
    np.savez(inputs, w=x[:, :32])  # as many columns as outputs
    code, _, err = run(capsys, "ptq", path, out, "--format", "int4-g32", "--inputs", inputs, "--overwrite")
    assert code == 1 and "expected floats (inputs, features) for a tensor of (64, 32)" in err
