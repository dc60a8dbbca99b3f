"""ONNX with onnxruntime's `MatMulNBits`, the operator that multiplies by packed weights: Y = X W^T for each weight.

    B            uint8 (out, blocks, bytes of a block): codes without a sign, the even one low; code + 2^(bits - 1)
    scales       float32 (out, blocks)
    zero_points  uint8 (out, bytes of a row), packed as the codes; asymmetric formats alone, else 2^(bits - 1)

A weight ``fc.weight`` has the input ``fc.input`` and the output ``fc.output``, with any number of rows; what is not
packed is an initializer. The nodes can be moved into a graph. onnxruntime, docs/ContribOperators.md, com.microsoft.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...arrays.bits import pack
from ...arrays.quantized import QuantizedArray
from ...base.texts import counted, quoted
from .linear import matrix_of, refuse
from .onnx_model import OPSET, check_names, onnx_of, write_model

NAME = "onnx-matmulnbits"


def model_of(arrays: Mapping[str, Any]) -> bytes:
    """Return the model, serialized.

    Raises
    ------
    ImportError
        onnx is not installed.
    ValueError
        A format that MatMulNBits has no place for.
    """
    onnx = onnx_of(NAME)
    helper, proto = onnx.helper, onnx.TensorProto
    nodes, held, inputs, outputs = [], [], [], []
    for name, array in arrays.items():
        if not isinstance(array, QuantizedArray):
            held.append(onnx.numpy_helper.from_array(np.asarray(array), name))
            continue
        fmt: Any = array.format
        group = getattr(fmt, "group", None) or 0
        if fmt.family != "int" or fmt.bits not in (4, 8) or group < 16 or group & (group - 1):
            refuse(name, array, NAME, "int4-g32, or int8-g32, is the nearest")
        m = matrix_of(name, array, NAME)
        (rows, count), blocks = array.shape, array.shape[1] // group
        parts = {
            "B": pack(m.codes, m.bits).reshape(rows, blocks, group * m.bits // 8),
            "scales": np.ascontiguousarray(m.scales, np.float32),
        }
        if not fmt.symmetric:
            parts["zero_points"] = pack(np.ascontiguousarray(m.points), m.bits)
        held += [onnx.numpy_helper.from_array(values, f"{m.prefix}.{key}") for key, values in parts.items()]
        given, found = f"{m.prefix}.input", f"{m.prefix}.output"
        names = [given, *(f"{m.prefix}.{key}" for key in parts)]
        sizes = {"K": count, "N": rows, "bits": m.bits, "block_size": group}
        nodes.append(helper.make_node("MatMulNBits", names, [found], domain="com.microsoft", **sizes))
        inputs.append(helper.make_tensor_value_info(given, proto.FLOAT, ["rows", count]))
        outputs.append(helper.make_tensor_value_info(found, proto.FLOAT, ["rows", rows]))
    if not nodes:
        raise ValueError(f"save: {NAME} of {counted(len(arrays), 'array')}, none of which is quantized{_first(arrays)}")
    check_names([one.name for some in (inputs, outputs, held) for one in some])
    graph = helper.make_graph(nodes, "weights", inputs, outputs, held)
    sets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    data: bytes = helper.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString()
    return data


def _first(arrays: Mapping[str, Any]) -> str:
    return "".join(f", such as {quoted(name)}" for name in list(arrays)[:1])


def write(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write the model; the file has its name when it is complete."""
    write_model(path, model_of(arrays))
