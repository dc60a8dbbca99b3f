"""ONNX: a model whose outputs are the weights, each by a `DequantizeLinear` of its codes, as runtimes take them.

Weights are matrices quantized along either axis: rows of scales are per the other one, groups are blocks (opset 21).
The last block may be short. What is not packed is an initializer. The nodes can be moved into a graph that uses the
weights.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.quantized import QuantizedArray
from ...base.texts import quoted
from ...base.writer import naming, replacing
from ...formats import Int
from .linear import refuse

OPSET = 21


def onnx_of(layout: str) -> Any:
    """Return the package onnx; ImportError where it is not installed."""
    try:
        import onnx  # optional
    except ImportError:
        raise ImportError(f"save: the layout {layout} needs onnx: pip install 'heterocompute[onnx]'") from None
    return onnx


def model_of(arrays: Mapping[str, Any]) -> bytes:
    """Return the model, serialized.

    Raises
    ------
    ImportError
        onnx is not installed.
    ValueError
        A format that DequantizeLinear has no place for.
    """
    onnx = onnx_of("onnx")
    helper, proto = onnx.helper, onnx.TensorProto
    nodes, held, outputs = [], [], []
    for name, array in arrays.items():
        if not isinstance(array, QuantizedArray):
            held.append(onnx.numpy_helper.from_array(np.asarray(array), name))
            continue
        fmt = array.format
        if not isinstance(fmt, Int) or fmt.bits not in (4, 8) or array.ndim != 2 or len(array.axis) != 1:
            refuse(name, array, "onnx", "int4-g32 or int8 of a matrix, quantized along one axis, is the nearest")
        (axis,) = array.axis
        group = array.shape[axis] if fmt.group is None else fmt.group
        kind = getattr(proto, ("" if fmt.symmetric else "U") + f"INT{fmt.bits}")
        first = (slice(None), slice(None, None, group)) if axis else slice(None, None, group)
        scales = np.ascontiguousarray(array.scales_expanded()[first])
        points = np.ascontiguousarray(array.zero_points_expanded()[first])
        points = points.astype(np.uint8 if not fmt.symmetric else np.int8)
        blocks: dict[str, Any] = {"axis": axis, "block_size": group} if fmt.group else {"axis": 1 - axis}
        inputs = {"codes": (kind, array.codes()), "scale": (proto.FLOAT, scales), "zero_point": (kind, points)}
        for key, (dtype, values) in inputs.items():
            values = values if key == "codes" or fmt.group else values.reshape(-1)
            raw = values.tobytes() if fmt.bits == 8 or key == "scale" else nibbles(values)
            held.append(helper.make_tensor(f"{name}.{key}", dtype, values.shape, raw, raw=True))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}.{key}" for key in inputs], [name], **blocks))
        outputs.append(helper.make_tensor_value_info(name, proto.FLOAT, array.shape))
    check_names([*(part.name for part in held), *(name for node in nodes for name in node.output)])
    graph = helper.make_graph(nodes, "weights", [], outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    data: bytes = model.SerializeToString()
    return data


def nibbles(values: np.ndarray[Any, Any]) -> bytes:
    codes = values.reshape(-1).view(np.uint8) & np.uint8(15)
    codes = np.append(codes, np.zeros(codes.size % 2, np.uint8))
    return bytes((codes[::2] | codes[1::2] << np.uint8(4)).tobytes())


def write(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write the model; the file has its name when it is complete."""
    write_model(path, model_of(arrays))


def check_names(names: Sequence[str]) -> None:
    """Raise ValueError where two values of a graph would have one name."""
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"save: two tensors would be called {quoted(twice)}")


def write_model(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file that has its name when it is complete."""
    with replacing(path) as temporary, naming(os.fspath(path)), open(temporary, "xb") as file:
        file.write(data)
