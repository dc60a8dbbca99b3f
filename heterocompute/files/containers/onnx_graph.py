"""What the operators of an ONNX graph say of the constants that they take: axes of sums, and codes."""

from __future__ import annotations

from typing import Any

from ...base.texts import quoted

__all__ = ["codes_in", "summed", "text_of"]

# Operators whose operand at this place holds codes, of another program's quantization.
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


def text_of(value: Any) -> str:
    """Return a text; protobuf gives bytes where it is no UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


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
        for attribute in node.attribute:
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                if found := codes_in(inner, constants):
                    return found
    return None


def summed(node: Any, ndim: int) -> tuple[int, ...] | None:
    """Return along which axes of its second operand an operator sums.

    Parameters
    ----------
    node : onnx.NodeProto
    ndim : int
        Of the second operand.

    Returns
    -------
    tuple of int or None
        None where the operator is not Conv (of images), Gemm or MatMul, or does not take such an operand.
    """
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "Conv" and ndim == 4:
        return (2, 3, 1)
    if node.op_type == "MatMul" and ndim >= 2:
        return (ndim - 2,)
    if node.op_type == "Gemm" and ndim == 2:
        return (1,) if any(one.name == "transB" and one.i for one in node.attribute) else (0,)
    return None
