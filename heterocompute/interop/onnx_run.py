"""An ONNX model evaluated with our convolutions and products: `run_onnx`, and the network that a study judges.

onnx's own reference evaluator walks the graph and computes every operator in NumPy but Conv, Gemm and MatMul, whose
weights (initializers and constants) may be packed here. Convolutions of images are ours, others stay onnx's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays.dense import refuse_infinite
from ..base.regular import open_regular
from ..base.texts import near_words, printable, shortened
from ..base.values import as_int, shown
from ..files.containers.onnx_graph import codes_in, summed
from ..files.layouts.table import quantized_already
from ..formats import Format
from ..products.arguments import as_format
from ..products.conv import conv2d
from ..products.matmul import linear, matmul
from ..products.quantize import quantize
from ..products.window import as_window

__all__ = ["OnnxNetwork", "run_onnx"]

Array = np.ndarray[Any, Any]
FLOATS = ("float16", "float32", "float64")


def run_onnx(
    model: Any,
    inputs: Any,
    formats: Format | str | Mapping[str, Format | str] | None = None,
    activations: Format | str | None = None,
) -> dict[str, Array]:
    """Evaluate an ONNX model with the convolutions and products of this package.

    Parameters
    ----------
    model : str, os.PathLike, bytes or onnx.ModelProto
        A file, its content, or the model itself.
    inputs : dict of str to array_like, or array_like
        By the names of the model's inputs; an array alone is the only input.
    formats : Format, str or mapping, optional
        To what the weights of Conv, Gemm and MatMul are quantized, or patterns of their names (fnmatch), the first
        that fits counts; a weight that none fits stays as it is.
    activations : Format or str, optional
        To what their other operand is quantized on the way.

    Returns
    -------
    dict of str to ndarray
        The outputs by name, each of the model's type. Conv, Gemm and MatMul compute in float32, dense products as
        `matmul` does; all else is onnx's reference in NumPy.

    Raises
    ------
    ImportError
        onnx is not installed; the extra ``onnx`` brings it.
    ValueError
        No ONNX model, inputs that do not fit, an unknown format or name; formats of a model that is quantized already.

    Examples
    --------
    >>> import numpy as np, heterocompute as hc
    >>> from onnx import TensorProto, helper, numpy_helper
    >>> w = numpy_helper.from_array(np.float32([[1, 2], [3, 4]]), "w")
    >>> x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    >>> y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    >>> graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "one", [x], [y], [w])
    >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    >>> hc.run_onnx(model, np.float32([[1, 1]]))
    {'y': array([[4., 6.]], dtype=float32)}
    >>> hc.run_onnx(model, np.float32([[1, 1]]), formats="int2")["y"]
    array([[3., 4.]], dtype=float32)
    """
    network = OnnxNetwork(model)
    return network.run(inputs, network.quantized(formats), activations)


class OnnxNetwork:
    """A network of an ONNX file with the weights that it multiplies by, which `heterocompute.study` judges.

    Parameters
    ----------
    model : str, os.PathLike, bytes or onnx.ModelProto
    x, labels : ndarray, optional
        Examples and the class of each, for `evaluate`.
    batch : int
        Examples at a time.

    Raises
    ------
    ValueError
        No ONNX model; examples of one whose operators decode constants: it is quantized already.

    Attributes
    ----------
    weights : dict of str to ndarray
        The constants that Conv, Gemm and MatMul multiply by, by name.
    axis : dict of str to int or tuple
        Along what each is summed.
    """

    def __init__(self, model: Any, x: Any = None, labels: Any = None, batch: int = 64) -> None:
        self._batch = as_int(batch, "OnnxNetwork: batch", 1)
        self._now: Mapping[str, Any] = {}  # what this evaluation multiplies by
        self._activations: Any = None
        proto, self._place = _loaded(model), _place(model)
        self._proto, self._codes = proto, codes_in(proto.graph)
        if x is not None:
            self._refuse_codes()
        held = {one.name for one in proto.graph.initializer}
        self._inputs = [one.name for one in proto.graph.input if one.name not in held]
        self._outputs = [one.name for one in proto.graph.output]
        self.weights, self.axis = _weights(proto)
        self._x, self._labels = x, labels
        if x is not None:
            self._check_examples()

    def quantized(self, formats: Any) -> dict[str, Any]:
        """Return the weights, quantized as `run_onnx` says.

        Parameters
        ----------
        formats : Format, str, mapping or None

        Returns
        -------
        dict of str to ndarray or QuantizedArray
        """
        if formats is None:
            return dict(self.weights)
        self._refuse_codes()
        table = formats if isinstance(formats, Mapping) else {"*": formats}
        for pattern in table:
            if not any(fnmatchcase(name, pattern) for name in self.weights):
                near = near_words(pattern, self.weights, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ValueError(f"run_onnx: formats: no weight of Conv, Gemm or MatMul fits {shown(pattern)}{hint}")
        found: dict[str, Any] = {}
        for name, w in self.weights.items():
            fmt = next((value for pattern, value in table.items() if fnmatchcase(name, pattern)), None)
            found[name] = w if fmt is None else quantize(w, fmt, axis=self.axis[name])
        return found

    def run(self, inputs: Any, weights: Mapping[str, Any] | None = None, activations: Any = None) -> dict[str, Array]:
        """Evaluate the model.

        Parameters
        ----------
        inputs : dict of str to array_like, or array_like
        weights : mapping of str to ndarray or QuantizedArray, optional
            In place of those of the file, by the names of `weights`.
        activations : Format or str, optional

        Returns
        -------
        dict of str to ndarray
        """
        if not isinstance(inputs, Mapping):
            if len(self._inputs) != 1:
                raise ValueError(f"run_onnx: the model has the inputs {self._inputs}, wanted a dict with these names")
            inputs = {self._inputs[0]: inputs}
        if set(inputs) != set(self._inputs):
            raise ValueError(f"run_onnx: inputs are {sorted(inputs)}, wanted {sorted(self._inputs)}")
        self._now = self.weights if weights is None else weights
        self._activations = None if activations is None else as_format(activations, "run_onnx: activations")
        feeds = {name: np.asarray(value) for name, value in inputs.items()}
        answers = self._evaluator.run(None, feeds)
        return dict(zip(self._outputs, answers, strict=True))

    def evaluate(self, weights: Mapping[str, Any], activations: Any = None) -> dict[str, float]:
        """Return the share of the examples whose largest output is that of their class.

        Parameters
        ----------
        weights : mapping of str to ndarray or QuantizedArray
        activations : Format, str or None

        Returns
        -------
        dict of str to float
            ``accuracy``.
        """
        if self._x is None:
            raise ValueError("OnnxNetwork: there are no examples to judge it by, give x and labels")
        right = 0
        for begin in range(0, len(self._x), self._batch):
            part = self._x[begin : begin + self._batch]
            logits = self.run(part, weights, activations)[self._outputs[0]]
            if len(logits) != len(part):
                raise ValueError(f"OnnxNetwork: {len(part)} examples gave an output of shape {logits.shape}")
            classes = logits.reshape(len(part), -1).argmax(axis=1)
            right += int((classes == self._labels[begin : begin + self._batch]).sum())
        return {"accuracy": right / len(self._x)}

    def _check_examples(self) -> None:
        self._x, self._labels = np.asarray(self._x), np.asarray(self._labels)
        if self._x.ndim < 1 or not len(self._x) or self._labels.shape != self._x.shape[:1]:
            shapes = f"labels have shape {self._labels.shape}, x {self._x.shape}"
            raise ValueError(f"OnnxNetwork: {shapes}, wanted a class for each example")
        if self._labels.dtype.kind not in "iu":
            raise TypeError(f"OnnxNetwork: labels are {self._labels.dtype}, wanted integers")
        if self._x.dtype.kind in "OSU":
            raise TypeError(f"OnnxNetwork: x is {self._x.dtype}, wanted numbers")
        if self._x.dtype.kind == "f":
            refuse_infinite(self._x, "OnnxNetwork: x")

    def _refuse_codes(self) -> None:
        """Raise ValueError where operators decode constants: what is multiplied by is rounded already."""
        if self._codes is not None:
            raise ValueError(f"{self._place}: {quantized_already(self._codes)}")

    @cached_property
    def _evaluator(self) -> Any:
        """onnx's evaluator of the model, with operators of ours."""
        from onnx.reference import ReferenceEvaluator  # optional

        with _blaming(self._place):
            return ReferenceEvaluator(self._proto, new_ops=_operators(self))

    # What the operators below ask.

    def operand(self, name: str, value: Array) -> Any:
        return self._now.get(name, value)

    @property
    def activations(self) -> Any:
        return self._activations


def _loaded(model: Any) -> Any:
    """Return a model that onnx has checked."""
    place = _place(model)
    try:
        import onnx  # optional
    except ImportError:
        raise ImportError("run_onnx: evaluating ONNX models needs onnx: pip install heterocompute[onnx]") from None
    if not isinstance(model, (str, os.PathLike, bytes, onnx.ModelProto)):
        raise TypeError(f"{place} is {shown(model)}, wanted a path, bytes or an onnx.ModelProto")
    if isinstance(model, (str, os.PathLike)):
        with open_regular(model):
            pass  # a missing file is an OSError, not onnx's own
    with _blaming(place):
        if isinstance(model, bytes):
            model = onnx.load_model_from_string(model)
        elif not isinstance(model, onnx.ModelProto):
            model = onnx.load(os.fspath(model))
        onnx.checker.check_model(model)
    return model


def _place(model: Any) -> str:
    return printable(os.fsdecode(model)) if isinstance(model, (str, os.PathLike)) else "run_onnx: model"


@contextmanager
def _blaming(place: str) -> Iterator[None]:
    """Let what onnx raises be the model's fault."""
    try:
        yield
    except Exception as error:  # protobuf's errors and its own
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"{place}: no ONNX model: {shortened(first[0])}") from None


def _weights(model: Any) -> tuple[dict[str, Array], dict[str, int | tuple[int, ...]]]:
    """Return the constants that are multiplied by, and their reduction axes."""
    from onnx import numpy_helper  # optional

    constants = {one.name: one for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    found: dict[str, set[tuple[int, ...]]] = {}
    for node in model.graph.node:
        name = node.input[1] if len(node.input) > 1 else ""
        if name not in constants or len(constants[name].dims) != (4 if node.op_type == "Conv" else 2):
            continue
        axes = summed(node, len(constants[name].dims))
        if axes is not None:
            found.setdefault(name, set()).add(axes)
    weights = {name: numpy_helper.to_array(constants[name]) for name in found}
    # a weight that two layers sum along two axes is not quantized
    names = [name for name, w in weights.items() if w.dtype.name in FLOATS and len(found[name]) == 1]
    along = {name: next(iter(found[name])) for name in names}
    return {name: weights[name] for name in names}, {n: one if len(one) > 1 else one[0] for n, one in along.items()}


def _operators(network: OnnxNetwork) -> list[type]:
    """Return Conv, Gemm and MatMul of onnx's evaluator, as this network multiplies."""
    from onnx.reference.op_run import OpRun  # optional
    from onnx.reference.ops.op_conv import Conv as OtherConv  # optional

    class Conv(OtherConv):
        op_domain = ""

        def _run(
            self, x: Array, w: Array, b: Array | None = None, auto_pad: str | None = None, dilations: Any = None,
            group: int | None = None, kernel_shape: Any = None, pads: Any = None, strides: Any = None,
        ) -> tuple[Array]:  # fmt: skip
            if x.ndim != 4:
                other: Any = super()
                found = other._run(x, w, b, auto_pad, dilations, group, kernel_shape, pads, strides)
                return (found[0],)
            stride, dilation = tuple(strides or (1, 1)), tuple(dilations or (1, 1))
            padding = _padding(auto_pad, pads, x.shape[2:], w.shape[2:], stride, dilation)
            weight = network.operand(self.onnx_node.input[1], w)
            y = conv2d(x, weight, b, stride, padding, dilation, group or 1, network.activations)
            return (y.astype(x.dtype, copy=False),)

    class Gemm(OpRun):
        op_domain = ""

        def _run(
            self, a: Array, b: Array, c: Array | None = None, alpha: float | None = None, beta: float | None = None,
            transA: int | None = None, transB: int | None = None,
        ) -> tuple[Array]:  # fmt: skip
            weight = network.operand(self.onnx_node.input[1], b)
            y = linear(a.T if transA else a, weight if transB else weight.T, activations=network.activations)
            if alpha not in (None, 1.0):
                y = y * np.float32(alpha)
            if c is not None and beta != 0:
                y = y + (c if beta in (None, 1.0) else c * np.float32(beta))
            return (y.astype(a.dtype, copy=False),)

    class MatMul(OpRun):
        op_domain = ""

        def _run(self, a: Array, b: Array) -> tuple[Array]:
            if a.dtype.name not in FLOATS or b.dtype.name not in FLOATS:
                return (np.matmul(a, b),)
            weight = network.operand(self.onnx_node.input[1], b)
            if network.activations is not None and self.onnx_node.input[1] in network.weights:
                # a dense weight too: linear rounds x and takes the product of floats
                return (linear(a, weight.T, activations=network.activations).astype(a.dtype, copy=False),)
            return (matmul(a, weight).astype(a.dtype, copy=False),)

    return [Conv, Gemm, MatMul]


def _padding(auto_pad: str | None, pads: Any, image: Any, kernel: Any, stride: Any, dilation: Any) -> Any:
    """Return what conv2d takes for ONNX's padding."""
    if auto_pad in (None, "", "NOTSET"):
        top, left, bottom, right = pads or (0, 0, 0, 0)
        return (top, bottom), (left, right)
    if auto_pad == "SAME_LOWER":  # an odd pixel goes before
        window = as_window("run_onnx: Conv", image, kernel, stride, "same", dilation)
        return tuple(zip(window.after, window.before, strict=True))
    return "valid" if auto_pad == "VALID" else "same"
