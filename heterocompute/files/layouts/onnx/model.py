"""ONNX: a model whose outputs are the weights, each by a `DequantizeLinear` of its codes, which runtimes support.

A matrix is quantized along either axis, a filter of a convolution along (2, 3, 1). Scales that depend on one other axis
are per axis. All others are per block (opset 21) along the last reduction axis, the axis of the groups; the last block
may be short. 2-bit codes need opset 25. Arrays that are not packed are initializers. The nodes can be moved into a
graph that uses the weights.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ....arrays.bits import pack
from ....arrays.quantized import QuantizedArray
from ....base.errors import WrongValue
from ....base.rereading import drawn, refuse_other_bytes
from ....base.tensors import CHUNK, Tensors
from ....base.texts import quoted
from ....base.writer import naming, replacing
from ....formats import Int
from ...containers.onnx_files import Onnx
from ..layout import Layout, Target
from ..linear import refuse
from ..weight import Weight, of_packed, of_values
from . import graph

OPSET = 21
OPSET_2 = 25  # has INT2 and UINT2


def onnx_of(layout: str) -> Any:
    """Return the package onnx; ImportError if it is not installed."""
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
        DequantizeLinear does not support a format.
    """
    onnx = onnx_of("onnx")
    helper, proto = onnx.helper, onnx.TensorProto
    nodes, held, outputs, opset = [], [], [], OPSET
    for name, array in arrays.items():
        if not isinstance(array, QuantizedArray):
            held.append(onnx.numpy_helper.from_array(np.asarray(array), name))
            continue
        fmt = array.format
        if not isinstance(fmt, Int) or fmt.bits not in (2, 4, 8) or array.ndim < 2 or 0 in array.shape:
            refuse(name, array, "onnx", "int4-g32 or int8 of a matrix or a filter is the nearest")
        kind = getattr(proto, ("" if fmt.symmetric else "U") + f"INT{fmt.bits}", None)
        if kind is None:
            raise WrongValue(f"save: tensor {quoted(name)} is {fmt}, expected onnx with INT2: pip install -U onnx")
        opset = max(opset, OPSET_2 if fmt.bits == 2 else OPSET)
        kept, along = [i for i in range(array.ndim) if i not in array.axis], array.axis[-1]
        blocks: dict[str, Any] = {"axis": along, "block_size": fmt.group or array.shape[along]}
        first = tuple(slice(None, None, blocks["block_size"] if i == along else 1) for i in range(array.ndim))
        if fmt.group is None and len(kept) == 1:
            blocks = {"axis": kept[0]}
            first = tuple(slice(None) if i in kept else slice(1) for i in range(array.ndim))
        scales = np.ascontiguousarray(array.scales_expanded()[first])
        points = np.ascontiguousarray(array.zero_points_expanded()[first])
        points = points.astype(np.uint8 if not fmt.symmetric else np.int8)
        inputs = {"codes": (kind, array.codes()), "scale": (proto.FLOAT, scales), "zero_point": (kind, points)}
        for key, (dtype, values) in inputs.items():
            values = values if key == "codes" or "block_size" in blocks else values.reshape(-1)
            raw = values.tobytes() if key == "scale" else packed_bits(values, fmt.bits)
            held.append(helper.make_tensor(f"{name}.{key}", dtype, values.shape, raw, raw=True))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}.{key}" for key in inputs], [name], **blocks))
        outputs.append(helper.make_tensor_value_info(name, proto.FLOAT, array.shape))
    check_names([*(part.name for part in held), *(name for node in nodes for name in node.output)])
    graph = helper.make_graph(nodes, "weights", [], outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    data: bytes = model.SerializeToString()
    return data


def packed_bits(values: np.ndarray[Any, Any], bits: int) -> bytes:
    """Return codes of 2, 4 or 8 bits in the storage of ONNX: dense, the first in the lowest bits."""
    return pack(values.reshape(1, -1).view(np.uint8) & np.uint8((1 << bits) - 1), bits).tobytes()


def check_names(names: Sequence[str]) -> None:
    """Raise ValueError if two values of a graph would have the same name."""
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise WrongValue(f"save: two tensors would be called {quoted(twice)}")


def write_model(path: str | os.PathLike[str], data: bytes, check: str = "sample") -> None:
    """Write a file that appears under its name when it is complete."""
    wanted = np.frombuffer(data, np.uint8)
    starts = {f"bytes from {start}": ("", len(data[start : start + CHUNK])) for start in range(0, len(data), CHUNK)}
    with replacing(path) as temporary:
        with naming(os.fspath(path)), open(temporary, "xb") as file:
            file.write(data)
        with open(temporary, "rb") as file:
            for name in drawn(starts, check):
                start = int(name.rpartition(" ")[2])
                file.seek(start)
                found = np.frombuffer(file.read(CHUNK), np.uint8)
                refuse_other_bytes(os.fspath(path), "of the model", wanted[start : start + CHUNK], found, start)


class ONNX(Layout):
    name = "onnx"
    is_file = True
    keeps = ()
    turns = False
    examples: tuple[str, ...] = ("int4-g32", "int8")

    def recognizes(self, reader: Tensors) -> bool:
        return isinstance(reader, Onnx) and bool(reader.packed)

    def readers(self, reader: Tensors) -> dict[str, Callable[[], Any]]:
        plain, packed = graph.readers(reader)
        return {name: partial(reader.tensor, name) for name in plain} | packed

    def weights(self, reader: Tensors) -> tuple[list[str], dict[str, Callable[[], Weight]]]:
        plain, packed = graph.readers(reader)
        return [*plain, *packed], {name: partial(_weight, read) for name, read in packed.items()}

    def check(self, name: str, shape: tuple[int, ...], target: Target) -> None:
        if not isinstance(target, Int) or len(shape) != 2 or not name.endswith(".weight"):
            raise WrongValue(f"{self.name} has no place for {target} of shape {shape}")
        self.check_format(name, shape, target)

    def check_format(self, name: str, shape: tuple[int, ...], fmt: Int) -> None:
        """Raise ValueError if a matrix of a format has no place."""
        if fmt.bits not in (2, 4, 8):
            raise WrongValue(f"{self.name} has no place for {fmt}: int4-g32 or int8 is the nearest")

    def write(
        self, path: str | os.PathLike[str], arrays: Mapping[str, Any], packed: Mapping[str, QuantizedArray], check: str
    ) -> None:
        write_model(path, self.model(arrays), check)

    def model(self, arrays: Mapping[str, Any]) -> bytes:
        """Return the model of some arrays, serialized."""
        return model_of(arrays)


def _weight(read: Callable[[], Any]) -> Weight:
    found = read()
    if isinstance(found, QuantizedArray):
        return of_packed(found)
    return of_values(found, "MatMulNBits with float zero points", found.nbytes)
