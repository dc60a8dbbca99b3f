"""Conv, Gemm and MatMul of a constant weight, computed with the products of this package."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.errors import WrongValue, shown
from ...base.texts import quoted
from ...files.containers.onnx_graph import Constant, text_of
from ...products.conv import conv2d
from ...products.matmul import linear, matmul
from ...products.window import as_window

Array = np.ndarray[Any, Any]


class Product:
    """One operator of the graph that multiplies by a weight.

    Parameters
    ----------
    node : onnx.NodeProto
    place : {0, 1}
        Index of the weight among the operands.
    weight : Constant
    """

    def __init__(self, node: Any, place: int, weight: Constant) -> None:
        from onnx import helper  # optional

        self.place, self.weight = place, weight
        self.kind = node.op_type
        self.inputs = [text_of(name) for name in node.input]
        self.output = text_of(node.output[0])
        self.attributes: dict[str, Any] = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        self._geometry = _geometry(self.attributes)
        self._prepared: tuple[Any, Any] = (None, None)

    def needs(self) -> list[str]:
        """Return the values that it multiplies and adds."""
        return [self.inputs[1 - self.place], *(name for name in self.inputs[2:] if name)]

    def compute(self, x: Array, other: Array | None, stored: object, activations: object) -> Array:
        """Return the output.

        Parameters
        ----------
        other : ndarray or None
            Bias of a Conv, C of a Gemm.
        stored : ndarray or QuantizedArray
            The weight with the axes of the file.
        activations : Format or None
        """
        prepared = self._prepared
        if prepared[0] is not stored:  # a transposed array keeps its prepared panels
            w = turned(stored, self.weight.order)
            prepared = self._prepared = (stored, as_image(w) if self.kind == "Conv" and w.ndim == 3 else w)
        w = prepared[1]
        try:
            y = getattr(self, f"_{self.kind.lower()}")(x, w, other, activations)
        except ValueError as error:
            raise WrongValue(f"run_onnx: {self.kind} of {quoted(self.weight.name)}: {error}") from None
        return np.asarray(y).astype(x.dtype, copy=False)

    def _conv(self, x: Array, w: Any, bias: Array | None, activations: Any) -> Array:
        ndim = x.ndim
        if ndim == 3:  # a signal is an image of one row
            x = x[:, :, None]
        stride, pads, dilation = self._geometry
        if pads is None:
            pads = _lower(x.shape[2:], w.shape[2:], stride, dilation)
        y = conv2d(x, w, bias, stride, pads, dilation, self.attributes.get("group", 1), activations)
        return y[:, :, 0] if ndim == 3 else y

    def _gemm(self, x: Array, w: Any, c: Array | None, activations: Any) -> Array:
        given = self.attributes
        alpha, beta = given.get("alpha", 1.0), given.get("beta", 1.0)
        is_turned = [given.get("transA", 0), given.get("transB", 0)]
        if self.place == 1:  # x w^T
            y = linear(x.T if is_turned[0] else x, w if is_turned[1] else w.T, activations=activations)
        else:  # w x = (x^T w^T)^T
            y = linear(x if is_turned[1] else x.T, w.T if is_turned[0] else w, activations=activations).T
        if alpha != 1:
            y = y * np.float32(alpha)
        if c is not None and beta != 0:
            y = y + (c if beta == 1 else c * np.float32(beta))
        return y

    def _matmul(self, x: Array, w: Any, _: None, activations: Any) -> Array:
        if self.place == 0:
            y = linear(x if x.ndim == 1 else x.swapaxes(-1, -2), w, activations=activations)
            return y if x.ndim == 1 else y.swapaxes(-1, -2)
        if activations is not None:  # for a dense weight, too: linear rounds x and multiplies floats
            return linear(x, w.T, activations=activations)
        product: Array = matmul(x, w)
        return product


def turned(stored: Any, order: tuple[int, ...]) -> Any:
    """Return a weight with its axes in the operator's order; a packed one keeps its components."""
    if order == tuple(range(len(order))):
        return stored
    if isinstance(stored, np.ndarray):
        return stored.transpose(order)
    shape = [stored.shape[axis] for axis in order]
    return stored._remade(stored._components, shape, [order.index(axis) for axis in stored.axis])


def as_image(w: Any) -> Any:
    """Return filters of signals (K, C, R) as filters of images with one row."""
    k, c, r = w.shape
    if isinstance(w, np.ndarray):
        return w.reshape(k, c, 1, r)
    return w._remade(w._components, (k, c, 1, r), (2, 3, 1))


def _geometry(given: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return stride, padding and dilation for conv2d; padding is None if it depends on the image.

    Ints instead of pairs let conv2d recognize a known layer.
    """
    stride, dilation = (_one((1, *given.get(key, (1,)))[-2:]) for key in ("strides", "dilations"))
    auto_pad = given.get("auto_pad", b"NOTSET")
    if auto_pad not in (b"", b"NOTSET"):
        return stride, {b"SAME_UPPER": "same", b"VALID": "valid"}.get(auto_pad), dilation
    pads = tuple(given.get("pads") or (0, 0, 0, 0))
    if len(pads) not in (2, 4):
        raise WrongValue(f"run_onnx: Conv has the pads {shown(pads)}, expected 2 of a signal or 4 of an image")
    top, left, bottom, right = (0, pads[0], 0, pads[1]) if len(pads) == 2 else pads
    return stride, _one((_one((top, bottom)), _one((left, right)))), dilation


def _one(pair: tuple[Any, ...]) -> Any:
    """Return one int for a pair of equal ints; any other pair unchanged."""
    return pair[0] if pair[0] == pair[1] and isinstance(pair[0], int) else pair


def _lower(image: Any, kernel: Any, stride: Any, dilation: Any) -> Any:
    """Return the padding SAME_LOWER: an odd pixel goes before."""
    window = as_window("run_onnx: Conv", image, kernel, stride, "same", dilation)
    return tuple(zip(window.after, window.before, strict=True))
