"""Conv, Gemm and MatMul of a constant weight, computed with the products of this package."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...files.containers.onnx_graph import Constant, text_of
from ...products.conv import conv2d
from ...products.matmul import linear, matmul
from ...products.window import as_window

__all__ = ["Product"]

Array = np.ndarray[Any, Any]


class Product:
    """One operator of the graph that multiplies by a weight.

    Parameters
    ----------
    node : onnx.NodeProto
    weight : Constant
        What it multiplies by.
    """

    def __init__(self, node: Any, weight: Constant) -> None:
        from onnx import helper  # optional

        self.weight = weight
        self.kind = node.op_type
        self.inputs = [text_of(name) for name in node.input]
        self.output = text_of(node.output[0])
        self.attributes: dict[str, Any] = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        self._made: tuple[Any, Any] = (None, None)

    def needs(self) -> list[str]:
        """Return the values that it multiplies and adds."""
        return [self.inputs[0], *(name for name in self.inputs[2:] if name)]

    def compute(self, x: Array, other: Array | None, stored: Any, activations: Any) -> Array:
        """Return the output.

        Parameters
        ----------
        x : ndarray
        other : ndarray or None
            Bias of a Conv, C of a Gemm.
        stored : ndarray or QuantizedArray
            The weight with the axes of the file.
        activations : Format or None
        """
        if self._made[0] is not stored:  # a transposed array knows what was prepared for it
            self._made = (stored, turned(stored, self.weight.order))
        w = self._made[1]
        y = getattr(self, f"_{self.kind.lower()}")(x, w, other, activations)
        return np.asarray(y).astype(x.dtype, copy=False)

    def _conv(self, x: Array, w: Any, bias: Array | None, activations: Any) -> Array:
        given = self.attributes
        stride, dilation = tuple(given.get("strides", (1, 1))), tuple(given.get("dilations", (1, 1)))
        pads = _padding(given.get("auto_pad", b""), given.get("pads"), x.shape[2:], w.shape[2:], stride, dilation)
        return conv2d(x, w, bias, stride, pads, dilation, given.get("group", 1), activations)

    def _gemm(self, a: Array, b: Any, c: Array | None, activations: Any) -> Array:
        given = self.attributes
        alpha, beta = given.get("alpha", 1.0), given.get("beta", 1.0)
        a = a.T if given.get("transA") else a
        y = linear(a, b if given.get("transB") else b.T, activations=activations)
        if alpha != 1:
            y = y * np.float32(alpha)
        if c is not None and beta != 0:
            y = y + (c if beta == 1 else c * np.float32(beta))
        return y

    def _matmul(self, a: Array, b: Any, _: None, activations: Any) -> Array:
        if activations is not None:  # a dense weight too: linear rounds x and takes the product of floats
            return linear(a, b.T, activations=activations)
        product: Array = matmul(a, b)
        return product


def turned(stored: Any, order: tuple[int, ...]) -> Any:
    """Return a weight with the axes that its operator sees; a packed one keeps its components."""
    if order == tuple(range(len(order))):
        return stored
    if isinstance(stored, np.ndarray):
        return stored.transpose(order)
    shape = [stored.shape[axis] for axis in order]
    return stored._remade(stored._components, shape, [order.index(axis) for axis in stored.axis])


def _padding(auto_pad: bytes, pads: Any, image: Any, kernel: Any, stride: Any, dilation: Any) -> Any:
    """Return what conv2d takes for ONNX's padding."""
    if auto_pad in (b"", b"NOTSET"):
        top, left, bottom, right = pads or (0, 0, 0, 0)
        return (top, bottom), (left, right)
    if auto_pad == b"SAME_LOWER":  # an odd pixel goes before
        window = as_window("run_onnx: Conv", image, kernel, stride, "same", dilation)
        return tuple(zip(window.after, window.before, strict=True))
    return "valid" if auto_pad == b"VALID" else "same"
