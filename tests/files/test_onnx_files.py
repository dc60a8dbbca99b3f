"""ONNX files as checkpoints: those that are quantized already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import reals, run

import heterocompute as hc

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
    """Return what the commands say that take weights."""
    out, inputs = path.parent / "out.safetensors", path.parent / "x.npz"
    np.savez(inputs, w=np.ones((2, 32), np.float32))
    said = set()
    for command in (
        ("quantize", path, out, "--format", "int4"),
        ("prune", path, out, "--pattern", "2:4"),
        ("ptq", path, out, "--format", "int4", "--calibration", inputs),
        ("study", path, "--formats", "int4"),
        ("dequantize", path, out),
    ):
        code, _, err = run(capsys, *command)
        assert code == 1 and not out.exists()
        said.add(err.strip().removeprefix(f"heterocompute {command[0]}: "))
    return said


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
    with hc.open_checkpoint(path) as found, pytest.raises(ValueError, match="already quantized"):
        hc.study(found, "int4")


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
    with pytest.raises(ValueError, match="by DequantizeLinear of 'codes'"):
        hc.quantize_checkpoint(save_model(tmp_path / "m.onnx", [branch], held), tmp_path / "o.safetensors", "int4")
    activations = [helper.make_node("DequantizeLinear", ["x", "scale"], ["y"])]  # of what comes in, no constant
    hc.quantize_checkpoint(save_model(tmp_path / "m.onnx", activations, held), tmp_path / "o.safetensors", "int4")
