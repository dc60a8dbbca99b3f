"""What the operators of an ONNX graph say of the constants that they take: axes of sums, and codes."""

from __future__ import annotations

from typing import Any

__all__ = ["CODES", "summed"]

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
