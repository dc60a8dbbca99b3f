"""Writes an ONNX model of one node, so that onnxruntime can be measured without the package onnx.

Protocol buffers: a field is (number << 3 | kind) as a varint, then a varint (kind 0) or a length and bytes (kind 2).
Field numbers are those of onnx.proto (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Inputs = dict[str, tuple[int | None, ...] | Array]

ELEMENT_TYPES = {"float32": 1, "uint8": 2, "int8": 3}  # TensorProto.DataType
INT_ATTRIBUTE, INTS_ATTRIBUTE = 2, 7  # AttributeProto.AttributeType
IR_VERSION, OPSET_VERSION = 8, 17


def one_node_model(
    op: str,
    domain: str,
    inputs: Inputs,
    output: tuple[int | None, ...],
    **attributes: int | list[int],
) -> bytes:
    """Return a model of one node.

    Parameters
    ----------
    op, domain : str
        Operator and its operator set.
    inputs : dict of str to shape or ndarray
        In the node's order; a shape is a float32 input of the model, an array a constant. None is any size.
    output : tuple of int or None
        Shape of the float32 output ``y``.
    """
    node = b"".join(_text(1, name) for name in inputs) + _text(2, "y") + _text(4, op) + _text(7, domain)
    for name, number in attributes.items():
        if isinstance(number, list):
            values, kind = b"".join(_number(8, one) for one in number), INTS_ATTRIBUTE
        else:
            values, kind = _number(3, number), INT_ATTRIBUTE
        node += _message(5, _text(1, name) + values + _number(20, kind))
    graph = _message(1, node) + _text(2, "graph")
    for name, value in inputs.items():
        if isinstance(value, np.ndarray):
            graph += _message(5, _tensor(name, value))
    for name, value in inputs.items():
        if not isinstance(value, np.ndarray):
            graph += _message(11, _value_info(name, value))
    graph += _message(12, _value_info("y", output))
    opsets = _message(8, _text(1, "") + _number(2, OPSET_VERSION))
    if domain:
        opsets += _message(8, _text(1, domain) + _number(2, 1))
    return _number(1, IR_VERSION) + _message(7, graph) + opsets


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())


def _tensor(name: str, array: Array) -> bytes:
    dims = b"".join(_number(1, size) for size in array.shape)
    return dims + _number(2, ELEMENT_TYPES[array.dtype.name]) + _text(8, name) + _message(9, array.tobytes())


def _value_info(name: str, shape: tuple[int | None, ...]) -> bytes:
    dims = b"".join(_message(1, b"" if size is None else _number(1, size)) for size in shape)
    tensor_type = _number(1, ELEMENT_TYPES["float32"]) + _message(2, dims)
    return _text(1, name) + _message(2, _message(1, tensor_type))
