"""Evaluates an ONNX model with the convolutions and matmuls of this package: `run_onnx`, and a network for studies.

The graph is cut at Conv, Gemm and MatMul with a weight, which this package computes, as it does runs of sums, products
and limits. onnxruntime runs the parts between them, each in a session that is created once. Without formats and
activations, one session runs the whole model. onnx's reference evaluator replaces onnxruntime if that is missing or
refuses a graph.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays.dense import refuse_infinite
from ..base import runtime
from ..base.errors import WrongType, WrongValue, shown
from ..base.lazy import renamed
from ..base.notebooks.shown import Shown, facts_html
from ..base.texts import counted, near_words, quoted
from ..base.values import as_int
from ..files.containers.onnx_graph import codes_in, text_of
from ..files.layouts.refusals import quantized_already
from ..files.recipes import with_recipe
from ..formats import Format
from ..products.arguments import as_format
from ..products.quantize import quantize
from .onnx.cut import Cut, Network
from .onnx.model import Refused, as_before_11, converted, evaluating, loaded, place_of, plain_opset
from .onnx.reference import References, refuse_wrong
from .onnx.segments import Request
from .onnx.sessions import Sessions

__all__ = ["OnnxNetwork", "run_onnx"]


def __dir__() -> list[str]:
    return __all__


Array = np.ndarray[Any, Any]
Run = Callable[[dict[str, Array], Mapping[str, Any] | None, Any], list[Any]]
OLDEST = 7  # the oldest opset that onnxruntime supports
MODERN = 21
CHAINED = "int8"  # activations whose convolutions are chains
MAX_NAMED = 5  # operators in a message


@renamed(formats="format")
def run_onnx(
    model: Any,
    inputs: Any,
    format: Format | str | Mapping[str, Format | str | None] | None = None,
    activations: Format | str | None = None,
    recipe: str | os.PathLike[str] | Mapping[str, Format | str | None] | None = None,
) -> dict[str, Array]:
    """Run an ONNX model with the convolutions and matmuls of this package, and return its outputs.

    Parameters
    ----------
    model : str, os.PathLike, bytes or onnx.ModelProto
        A file, its content, or the model itself.
    inputs : dict of str to array_like, or array_like
        By the names of the model's inputs. A single array is the only input.
    format : Format, str or mapping, optional
        Format of the weights of Conv, Gemm and MatMul, or a mapping of name patterns (fnmatch) to formats. The first
        match applies. Weights without a match are unchanged.
    activations : Format or str, optional
        Format of their other operand, quantized on the fly. A warning names operators with other weights: constants
        that are computed or decoded, `Conv` of volumes, `ConvTranspose` and the like.
    recipe : path, or mapping of str to (Format, str or None), optional
        As in `heterocompute.quantize_checkpoint`. Its patterns come before `format`.

    Returns
    -------
    dict of str to ndarray
        The outputs by name, in the types of the model. Without formats and activations, onnxruntime runs the whole
        model. Otherwise Conv, Gemm and MatMul with a weight are computed in float32, dense ones as in `matmul`, and
        onnxruntime runs the rest, with at most `get_num_threads` threads. Sums, products and limits between them are
        one call, with onnxruntime's bits.

    Raises
    ------
    ImportError
        onnx is not installed; install the extra ``onnx``.
    ValueError
        - model is not an ONNX model, or the inputs do not match.
        - A format or name is unknown, or formats are given for a quantized model.
        - activations are given, but the model has no Conv, Gemm or MatMul with a weight that is supported.
        - An operator needs onnxruntime, which is not installed.
    TypeError
        An input has another type of numbers than the model declares.

    Notes
    -----
    A weight is a constant of floats: an initializer, dense or sparse, or the tensor of a `Constant` node. `Identity`,
    `Transpose` and `Cast` to floats may be between the constant and the operator. Functions are inlined. The graphs of
    `If`, `Loop` and `Scan` have weights too, named ``node.attribute.name``. Supported are 1-D and 2-D Conv, MatMul of
    a matrix, and Gemm. Constants of other operators, such as ConvTranspose and LSTM, keep their values.

    Each call loads the model. `heterocompute.interop.onnx_run.OnnxNetwork` loads it once and keeps its sessions.

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
    >>> hc.run_onnx(model, np.float32([[1, 1]]), format="int2")["y"]
    array([[3., 4.]], dtype=float32)
    """
    network = OnnxNetwork(model)
    format = with_recipe(format, recipe)
    return network.run(inputs, None if format is None else network.quantized(format), activations)


class Weights(dict[str, Array]):
    """Weights by name, with the axes along which their operators sum, which `study` and `ptq.search` take."""

    axes: Mapping[str, tuple[int, ...]]


class OnnxNetwork(Shown):
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
    hardware : str or None
        Path of the file, which tells `heterocompute.study` the layers for a machine.
    chains : bool
        Whether quantized convolutions one after the other are one call, with the same bits. The weights of such a call
        become read-only.
    """

    chains = True

    def __init__(self, model: Any, x: Any = None, labels: Any = None, batch: int = 64) -> None:
        self._batch = as_int(batch, "OnnxNetwork: batch", 1)
        (proto, is_changed), self._place = loaded(model), place_of(model)
        self._source: str | bytes | None = model if isinstance(model, bytes) else None
        self._folder = ""
        if isinstance(model, (str, os.PathLike)):
            path = os.path.abspath(os.fsdecode(model))
            self._source, self._folder = path, os.path.dirname(path)
        if is_changed:
            self._source = None
        self.hardware = self._source if isinstance(self._source, str) else None
        self._proto, self._codes = proto, codes_in(proto.graph)
        if x is not None:
            self._refuse_codes()
        held = {one.name for one in proto.graph.initializer}
        self._inputs = {text_of(one.name): Input(one) for one in proto.graph.input if one.name not in held}
        self._outputs = [text_of(one.name) for one in proto.graph.output]
        with evaluating(self._place):
            self._network = Network(proto, self._folder, References(self._folder))
            Cut(proto.graph, self._network)
        # a weight that two layers reduce along different axes is not quantized
        self._axes = {name: next(iter(axes)) for name, axes in self._network.axes.items() if len(axes) == 1}
        self.axis = {name: axes if len(axes) > 1 else axes[0] for name, axes in self._axes.items()}
        self._ways: dict[tuple[bool, int], Run] = {}  # by whether this package multiplies, and the number of threads
        self._x, self._labels = x, labels
        if x is not None:
            self._check_examples()

    def __repr__(self) -> str:
        ends = f"{', '.join(self._inputs)} -> {', '.join(self._outputs)}"
        state = "quantized already, " if self._codes is not None else ""
        return f"<OnnxNetwork: {state}{counted(len(self._axes), 'weight')} of Conv, Gemm and MatMul, {ends}>"

    def _repr_html_(self) -> str:
        shapes = {name: " x ".join(map(str, w.shape)) for name, w in self.weights.items()}
        return facts_html({"network": repr(self).strip("<>"), **shapes})

    @cached_property
    def weights(self) -> Weights:
        """The constants that operators multiply by, read on access."""
        with evaluating(self._place):
            found = Weights({name: self._network.array(name) for name in self._axes})
        found.axes = self._axes
        return found

    def quantized(self, formats: Any) -> dict[str, Any]:
        """Return the weights, quantized by the arguments of `run_onnx`.

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
                raise WrongValue(f"run_onnx: format: no weight of Conv, Gemm or MatMul fits {shown(pattern)}{hint}")
        if "*" in table and self._axes:
            self._warn_other_operators("formats", "their weights keep their values")
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
        fmt = None if activations is None else as_format(activations, "run_onnx: activations")
        if fmt is not None:
            self._warn_other_operators("activations", "their inputs are not rounded")
        own = fmt is not None or self._differ(weights)
        feeds = self._feeds(inputs)
        with evaluating(self._place):
            return dict(zip(self._outputs, self._answers(feeds, weights, fmt, own), strict=True))

    def _answers(self, feeds: dict[str, Array], weights: Mapping[str, Any] | None, fmt: Any, own: bool) -> list[Any]:
        """Return the outputs by the first runtime that does not refuse the model."""
        key = (own, runtime.get_num_threads())
        way = self._ways.get(key)
        if way is None:
            self._ways = {one: way for one, way in self._ways.items() if one[1] == key[1]}
        else:
            try:
                return way(feeds, weights, fmt)
            except Refused:  # in a branch that no earlier call took
                pass
        refused = None
        for make in self._kinds(own):
            try:
                way = make()
                answers = way(feeds, weights, fmt)
            except Refused as error:
                refused = refused or error
                continue
            except ValueError:
                if refused is None:
                    raise
                continue  # if all fail, the first runtime's error is the best
            self._ways[key] = way
            return answers
        raise WrongValue(f"{self._place}: not an ONNX model that can be evaluated: {refused}")

    def _warn_other_operators(self, what: str, effect: str) -> None:
        """Warn of operators with weights that this package does not compute; ValueError if it computes none."""
        others = list(self._network.others)
        if what == "formats":
            others += [f"{quoted(name)} of two axes" for name in self._network.axes if name not in self._axes]
        names = ", ".join(others[:MAX_NAMED]) + (f" and {len(others) - MAX_NAMED} more" if others[MAX_NAMED:] else "")
        if not self._network.axes:
            found = f", only {names}" if names else ""
            raise WrongValue(f"run_onnx: {what}: the model has no Conv, Gemm or MatMul with a constant weight{found}")
        if names:
            warnings.warn(f"run_onnx: {what} do not apply to {names}: {effect}", stacklevel=4)

    def _differ(self, weights: Mapping[str, Any] | None) -> bool:
        if weights is None or weights is self.weights:
            return False
        return any(weights.get(name) is not w for name, w in self.weights.items())

    def _feeds(self, inputs: Any) -> dict[str, Array]:
        """Return the inputs with the dtypes that the model declares."""
        if not isinstance(inputs, Mapping):
            if len(self._inputs) != 1:
                names = sorted(self._inputs)
                raise WrongValue(f"run_onnx: the model has the inputs {shown(names)}, expected a dict with these names")
            inputs = {next(iter(self._inputs)): inputs}
        if inputs.keys() != self._inputs.keys():
            raise WrongValue(f"run_onnx: inputs are {shown(sorted(inputs))}, expected {shown(sorted(self._inputs))}")
        return {name: self._inputs[name].checked(value) for name, value in inputs.items()}

    def _kinds(self, own: bool) -> Iterator[Callable[[], Run]]:
        """Yield functions that prepare the model for a runtime, the fastest first."""
        try:
            import onnxruntime  # noqa: F401  # optional
        except ImportError:
            pass
        else:
            if not own:
                yield self._whole
            yield lambda: self._cut(self._proto, Sessions(self._folder))
            if plain_opset(self._proto) < OLDEST:
                yield lambda: self._cut(self._converted(MODERN), Sessions(self._folder))
        yield self._reference

    def _whole(self) -> Run:
        source, sessions = self._source, Sessions(self._folder)
        try:
            session = sessions.whole(self._proto.SerializeToString() if source is None else source)
        except Refused:
            raise
        except Exception:  # protobuf's own error for more than 2 GB
            raise Refused("the model is larger than 2 GB") from None
        return lambda feeds, weights, activations: [sessions.plain(one) for one in session.run(self._outputs, feeds)]

    def _cut(self, proto: Any, sessions: Any) -> Run:
        network = Network(proto, self._folder, sessions)
        cut = Cut(proto.graph, network)
        lost = [name for name in self._axes if name not in network.axes]
        if lost:
            raise Refused(f"the weight {quoted(lost[0])} is lost in opset {plain_opset(proto)}")

        rounded: list[Cut] = []  # with chains of convolutions

        def run(feeds: dict[str, Array], weights: Mapping[str, Any] | None, activations: Any) -> list[Any]:
            request = Request(self.weights if weights is None else weights, activations)
            graph = cut
            if weights is not None and str(activations) == CHAINED and sessions.fuses and self.chains:
                if not rounded:
                    other = Network(proto, self._folder, sessions, arrays=network.arrays, chains=True)
                    found = Cut(proto.graph, other)
                    rounded.append(found if found.has_chains() else cut)
                graph = rounded[0]
            return [sessions.plain(one) for one in graph.run(dict(feeds), request)]

        return run

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ways": {}}  # sessions and packed filters are made again

    def _reference(self) -> Run:
        import onnx  # optional

        opset = plain_opset(self._proto)
        try:
            proto, is_converted = self._converted(onnx.defs.onnx_opset_version()), True
        except Refused:
            proto, is_converted = self._proto, False
        refuse_wrong(self._proto, opset, is_converted)
        if is_converted and opset < 11:
            as_before_11(proto.graph)
        return self._cut(proto, References(self._folder))

    def _converted(self, opset: int) -> Any:
        try:
            return converted(self._proto, opset, self._folder)
        except ValueError as error:
            raise Refused(str(error)) from None

    def evaluate(self, weights: Mapping[str, Any], activations: Any = None) -> dict[str, float]:
        """Return the share of examples whose largest output belongs to their class.

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
            raise WrongValue("OnnxNetwork: there are no examples to judge it by, give x and labels")
        right = 0
        batch = self._batch
        fixed = next(iter(next(iter(self._inputs.values())).sizes), None)
        batch = fixed or batch  # a model may have a fixed number of examples
        for begin in range(0, len(self._x), batch):
            part = self._x[begin : begin + batch]
            n_examples = len(part)
            if fixed and fixed > n_examples:
                part = np.resize(part, (batch, *part.shape[1:]))
            logits = self.run(part, weights, activations)[self._outputs[0]]
            if len(logits) != len(part):
                raise WrongValue(f"OnnxNetwork: {len(part)} examples gave an output of shape {logits.shape}")
            classes = logits.reshape(len(part), -1).argmax(axis=1)[:n_examples]
            right += int((classes == self._labels[begin : begin + n_examples]).sum())
        return {"accuracy": right / len(self._x)}

    def _check_examples(self) -> None:
        self._x, self._labels = np.asarray(self._x), np.asarray(self._labels)
        if self._x.ndim < 1 or not len(self._x) or self._labels.shape != self._x.shape[:1]:
            shapes = f"labels have shape {self._labels.shape}, x {self._x.shape}"
            raise WrongValue(f"OnnxNetwork: {shapes}, expected a class for each example")
        if self._labels.dtype.kind not in "iu":
            raise WrongType(f"OnnxNetwork: labels are {self._labels.dtype}, expected integers")
        if self._x.dtype.kind in "OSU":
            raise WrongType(f"OnnxNetwork: x is {self._x.dtype}, expected numbers")
        if self._x.dtype.kind == "f":
            refuse_infinite(self._x, "OnnxNetwork: x")

    def _refuse_codes(self) -> None:
        """Raise ValueError if operators decode constants: the weights are quantized already."""
        if self._codes is not None:
            raise WrongValue(f"{self._place}: {quantized_already(self._codes)}")


class Input:
    """The declaration of a model's input.

    Parameters
    ----------
    declared : onnx.ValueInfoProto
    """

    def __init__(self, declared: Any) -> None:
        from onnx import helper  # optional

        self._name = quoted(text_of(declared.name))
        kind = declared.type.tensor_type
        is_tensor = declared.type.WhichOneof("value") == "tensor_type" and kind.elem_type
        try:
            self.dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)) if is_tensor else None
        except KeyError:
            raise WrongValue(f"run_onnx: input {self._name} has the unknown data type {kind.elem_type}") from None
        self.sizes = [one.dim_value if one.dim_value > 0 else None for one in kind.shape.dim]
        self._has_shape = kind.HasField("shape")

    def checked(self, value: Any) -> Any:
        """Return a value in the dtype and shape of the model; ValueError or TypeError if it does not fit."""
        dtype = self.dtype
        if dtype is None:
            return value
        array = np.asarray(value)
        if dtype.kind == "O":  # strings
            array = array.astype(object)
        elif array.dtype != dtype:
            if not np.can_cast(array.dtype, dtype, "same_kind"):
                raise WrongType(f"run_onnx: input {self._name} has dtype {array.dtype}, expected {dtype}")
            given, array = array, array.astype(dtype)
            if dtype.kind in "iu" and (array != given).any():
                raise WrongValue(f"run_onnx: input {self._name} has values that do not fit into {dtype}")
        if self._has_shape and not (
            len(self.sizes) == array.ndim
            and all(size in (None, n) for size, n in zip(self.sizes, array.shape, strict=True))
        ):
            wanted = ", ".join("any" if size is None else str(size) for size in self.sizes)
            raise WrongValue(f"run_onnx: input {self._name} has shape {shown(array.shape)}, expected ({wanted})")
        return array
