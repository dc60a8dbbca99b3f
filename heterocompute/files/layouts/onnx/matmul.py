"""ONNX with onnxruntime's `MatMulNBits`, the operator for packed weights: Y = X W^T + bias.

    B            uint8 (out, blocks, bytes of a block): unsigned codes, the even code low; code + 2^(bits - 1)
    scales       float32 (out, blocks)
    zero_points  uint8 (out, bytes of a row), packed as the codes; asymmetric formats only, default 2^(bits - 1)

The last block of a row may be short: its codes are padded. A weight ``fc.weight`` has the input ``fc.input`` and the
output ``fc.output``, with any number of rows. ``fc.bias``, a vector (out,), is added. Other arrays that are not
packed are initializers. onnxruntime, docs/ContribOperators.md, com.microsoft.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....arrays.base import PackedArray
from ....arrays.bits import pack
from ....arrays.components import entry_of
from ....arrays.quantized import QuantizedArray
from ....base.errors import WrongValue
from ....base.tensors import Tensors
from ....base.texts import counted, quoted
from ....formats import Int
from ...selection import FLOATS
from ..linear import Packed, prefix_of, refuse
from .model import ONNX, OPSET, check_names, onnx_of

NAME = "onnx-matmulnbits"
BITS = (2, 4, 8)  # onnxruntime 1.32 refuses 3 and 5 to 7 on a CPU
LARGEST = {2: 256}  # largest block; any power of two for 4 and 8 bits


def model_of(arrays: Mapping[str, Any]) -> bytes:
    """Return the model, serialized.

    Raises
    ------
    ImportError
        onnx is not installed.
    ValueError
        MatMulNBits does not support a format.
    """
    onnx = onnx_of(NAME)
    helper, proto = onnx.helper, onnx.TensorProto
    nodes, held, inputs, outputs = [], [], [], []
    added: set[str] = set()
    for name, array in arrays.items():
        if not isinstance(array, QuantizedArray):
            continue
        parts = operands(name, array)
        (rows, count), prefix = array.shape, name.removesuffix(".weight")
        held += [onnx.numpy_helper.from_array(values, f"{prefix}.{key}") for key, values in parts.items()]
        given, found = f"{prefix}.input", f"{prefix}.output"
        names = [given, *(f"{prefix}.{key}" for key in parts)]
        if f"{prefix}.bias" in arrays:
            _check_bias(f"{prefix}.bias", arrays[f"{prefix}.bias"], rows)
            added.add(f"{prefix}.bias")
            names += [""] * (5 - len(names)) + [f"{prefix}.bias"]
        sizes = {"K": count, "N": rows, "bits": array.format.bits, "block_size": array.format.group}
        nodes.append(helper.make_node("MatMulNBits", names, [found], domain="com.microsoft", **sizes))
        inputs.append(helper.make_tensor_value_info(given, proto.FLOAT, ["rows", count]))
        outputs.append(helper.make_tensor_value_info(found, proto.FLOAT, ["rows", rows]))
    for name, array in arrays.items():
        if not isinstance(array, QuantizedArray):
            values = np.asarray(array, np.float32 if name in added else None)
            held.append(onnx.numpy_helper.from_array(values, name))
    if not nodes:
        raise WrongValue(f"save: {NAME} of {counted(len(arrays), 'array')}, none of which is quantized{_first(arrays)}")
    check_names([one.name for some in (inputs, outputs, held) for one in some])
    graph = helper.make_graph(nodes, "weights", inputs, outputs, held)
    sets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    data: bytes = helper.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString()
    return data


def operands(name: str, q: QuantizedArray, block: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Return the inputs of `MatMulNBits` that hold a weight, in its order.

    `block` is the size of a block for a format with one scale per row, which is repeated for each block.
    """
    fmt, group = _checked(name, q, block)
    rows, count = q.shape
    blocks, middle = -(-count // group), 1 << (fmt.bits - 1)
    codes = np.full((rows, blocks * group), middle, np.uint8)
    codes[:, :count] = q.codes().astype(np.int16) + (middle if fmt.symmetric else 0)
    parts = {
        "B": pack(codes.reshape(rows * blocks, group), fmt.bits).reshape(rows, blocks, group * fmt.bits // 8),
        "scales": np.ascontiguousarray(q.scales_expanded()[:, ::group]),
    }
    if not fmt.symmetric:
        parts["zero_points"] = pack(np.ascontiguousarray(q.zero_points_expanded()[:, ::group]), fmt.bits)
    return parts


def _checked(name: str, q: Packed, block: int = 0) -> tuple[Int, int]:
    """Return the format of a weight and the values of its blocks, or refuse it."""
    fmt = q.format
    group = getattr(fmt, "group", None) or block
    fits = isinstance(fmt, Int) and fmt.bits in BITS and group >= 16 and not group & (group - 1)
    if not isinstance(fmt, Int) or not fits or group > LARGEST.get(fmt.bits, group):
        refuse(name, q, NAME, "int4-g32, or int8-g32, is the nearest")
    prefix_of(name, q, NAME)
    return fmt, group


def _check_bias(name: str, array: object, rows: int) -> None:
    values = None if isinstance(array, PackedArray) else np.asarray(array)
    if values is None or values.shape != (rows,) or values.dtype.name not in FLOATS:
        what = type(array).__name__ if values is None else f"{values.dtype} {values.shape}"
        raise WrongValue(f"save: tensor {quoted(name)} is {what}, expected floats ({rows},), which {NAME} adds")


def _first(arrays: Mapping[str, Any]) -> str:
    return "".join(f", such as {quoted(name)}" for name in list(arrays)[:1])


class OnnxMatMulNBits(ONNX):
    name = NAME
    programs = ("onnxruntime",)
    turns = True
    examples = ("int4-g32",)

    def recognizes(self, reader: Tensors) -> bool:
        return False  # files of both layouts are read in the same way

    def check_format(self, name: str, shape: tuple[int, ...], fmt: Int) -> None:
        _checked(name, entry_of(fmt, shape, (1,), "float32"))

    def model(self, arrays: Mapping[str, Any]) -> bytes:
        return model_of(arrays)
