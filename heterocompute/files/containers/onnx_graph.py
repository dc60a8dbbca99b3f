"""Constants of an ONNX graph, and the operators that use them: names, reduction axes, and codes.

A weight is a constant tensor that an operator multiplies by, directly or behind `Identity`, `Cast` and `Transpose`.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import WrongValue, shown
from ...base.texts import counted, quoted, text_of

__all__ = [
    "MAX_DENSE",
    "Constant",
    "PackedNode",
    "Constants",
    "codes_in",
    "follow",
    "inlined",
    "inner_graphs",
    "multiplied",
    "node_name",
    "packed_nodes",
    "text_of",
]

Array = np.ndarray[Any, Any]
MAX_DENSE = 2**31  # bytes
STANDARD = ("", "ai.onnx")  # names of the standard operator set
FLOAT_TYPES = frozenset((1, 10, 11, 16))  # TensorProto.DataType: float32, float16, float64, bfloat16

# Operators whose operand at this index holds codes of another program's quantization.
CODES = {
    "DequantizeLinear": 0,
    "GatherBlockQuantized": 0,
    "ConvInteger": 1,
    "DynamicQuantizeMatMul": 1,
    "MatMulBnb4": 1,
    "MatMulInteger": 1,
    "MatMulIntegerToFloat": 1,
    "MatMulNBits": 1,
    "QGemm": 3,
    "QLinearConv": 3,
    "QLinearMatMul": 3,
}


@dataclass(frozen=True)
class Constant:
    """A constant tensor of the file as an operator sees it.

    Parameters
    ----------
    name : str
        Name of the stored tensor, with the prefix of its subgraph.
    order : tuple of int
        Stored axis of each axis that the operator sees.
    """

    name: str
    order: tuple[int, ...]


Constants = ChainMap[str, Constant]  # by the name of the value; those of surrounding graphs come after


def follow(node: Any, constants: Constants) -> None:
    """Add to the constants the output of `Identity`, `Transpose`, or `Cast` to floats of a constant."""
    source = constants.get(text_of(node.input[0])) if len(node.input) == 1 and len(node.output) == 1 else None
    if source is None or node.domain not in STANDARD:
        return
    if node.op_type == "Transpose":
        perm = next((tuple(one.ints) for one in node.attribute if one.name == "perm"), None)
        perm = tuple(reversed(range(len(source.order)))) if perm is None else perm
        if sorted(perm) != list(range(len(source.order))):
            return
        source = Constant(source.name, tuple(source.order[axis] for axis in perm))
    elif node.op_type == "Cast":
        if not any(one.name == "to" and one.i in FLOAT_TYPES for one in node.attribute):
            return
    elif node.op_type != "Identity":
        return
    constants[text_of(node.output[0])] = source


def dense_of(values: Array, at: Array, shape: tuple[int, ...]) -> Array:
    """Return a sparse tensor as a dense one.

    Parameters
    ----------
    values : ndarray, shape (n,)
    at : ndarray, shape (n,) or (n, dimensions)
        Index of each value, of the flat tensor or along each axis.

    Raises
    ------
    ValueError
        Indices do not match the shape, or the tensor would take more than 2 GiB.
    """
    if math.prod(shape) * values.dtype.itemsize > MAX_DENSE:
        raise WrongValue(f"a sparse tensor of {shown(shape)} takes more than 2 GiB as a dense one")
    if at.ndim not in (1, 2) or len(at) != values.size or (at.ndim == 2 and at.shape[1] != len(shape)):
        raise WrongValue(f"{counted(values.size, 'value')} but indices of shape {shown(at.shape)}")
    if at.size and ((at < 0) | (at >= np.array(shape if at.ndim == 2 else math.prod(shape)))).any():
        raise WrongValue(f"an index outside of the shape {shown(shape)}")
    dense: Array = np.zeros(shape, values.dtype)
    dense[tuple(at.T) if at.ndim == 2 else np.unravel_index(at, shape)] = values.reshape(-1)
    return dense


def node_name(prefix: str, node: Any, place: int) -> str:
    """Return the name that a node gives to its subgraphs: its own, or its operator and its index."""
    return f"{prefix}{text_of(node.name) or f'{text_of(node.op_type)}{place}'}"


def inner_graphs(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the subgraphs of a node, each with the prefix of the names of its tensors."""
    for attribute in node.attribute:
        inner = [attribute.g] if attribute.HasField("g") else []
        for i, graph in enumerate([*inner, *attribute.graphs]):
            yield f"{name}.{text_of(attribute.name)}.{f'{i}.' if i else ''}", graph


def inlined(model: Any) -> Any:
    """Return a model without functions: each call is replaced by the nodes of the function."""
    if not model.functions:
        return model
    from onnx import inliner  # optional

    return inliner.inline_local_functions(model)


def codes_in(graph: Any, constants: frozenset[str] = frozenset()) -> str | None:
    """Return the first operator of a graph, or of those inside, that takes constants for codes, and which.

    Parameters
    ----------
    graph : onnx.GraphProto
    constants : frozenset of str
        Those of the graphs around it.

    Returns
    -------
    str or None
        Such as ``"MatMulNBits of 'fc.B'"``; None where nothing is quantized.
    """
    constants |= {text_of(one.name) for one in graph.initializer}
    constants |= {text_of(node.output[0]) for node in graph.node if node.op_type == "Constant" and node.output}
    for node in graph.node:
        place = CODES.get(node.op_type, len(node.input))
        codes = text_of(node.input[place]) if place < len(node.input) else ""
        if codes in constants:
            return f"{node.op_type} of {quoted(codes)}"
        for _, inner in inner_graphs(node, ""):
            if found := codes_in(inner, constants):
                return found
    return None


class PackedNode(NamedTuple):
    """An operator that decodes constants: `MatMulNBits`, or `DequantizeLinear`, with its integer attributes."""

    kind: str
    inputs: list[str]
    output: str
    numbers: dict[str, int]


def packed_nodes(graph: Any) -> list[PackedNode]:
    """Return the operators of a graph that decode codes."""
    return [
        PackedNode(
            node.op_type,
            [text_of(name) for name in node.input],
            text_of(node.output[0]),
            {text_of(one.name): int(one.i) for one in node.attribute},
        )
        for node in graph.node
        if node.op_type in ("MatMulNBits", "DequantizeLinear") and node.output and node.input
    ]


def summed(node: Any, ndim: int, place: int = 1) -> tuple[int, ...] | None:
    """Return along which axes of an operand an operator sums.

    Parameters
    ----------
    node : onnx.NodeProto
    ndim : int
        Of the operand.
    place : {0, 1}
        Index of the operand.

    Returns
    -------
    tuple of int or None
        None where the operator is not Conv (of signals and images), Gemm or MatMul, or does not take such an operand.
    """
    if node.domain not in STANDARD:
        return None
    if node.op_type == "Conv" and ndim in (3, 4) and place == 1:
        return (*range(2, ndim), 1)
    if node.op_type == "MatMul" and ndim >= 2:
        return (ndim - 1 - place,)
    if node.op_type == "Gemm" and ndim == 2:
        is_turned = any(one.name == ("transA", "transB")[place] and one.i for one in node.attribute)
        return (int(is_turned == (place == 1)),)
    return None


def multiplied(node: Any, constants: Constants) -> Iterator[tuple[int, Constant, tuple[int, ...]]]:
    """Yield the constants that an operator multiplies by: index of the operand, constant, stored reduction axes."""
    for place, name in enumerate(node.input[:2]):
        source = constants.get(text_of(name))
        axes = None if source is None else summed(node, len(source.order), place)
        if source is not None and axes is not None:
            yield place, source, tuple(source.order[axis] for axis in axes)
