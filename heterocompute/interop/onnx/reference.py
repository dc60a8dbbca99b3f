"""Parts of a graph in onnx's reference evaluator, in its newest opset: for machines without onnxruntime.

Operators that this evaluator computes wrongly are in operators.py. If, Loop and Scan are run by control.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...base.errors import WrongValue
from ...files.containers.onnx_graph import STANDARD, inner_graphs, text_of
from .model import array_of, sentence_of
from .operators import operators, reason_to_refuse

Array = np.ndarray[Any, Any]
HALVES = ("float16", "bfloat16")
# Operators that have no arithmetic and whose result depends on the dtype of their inputs, or hold sequences.
EXACT = {"Bernoulli", "BitCast", "Cast", "CastLike", "ConcatFromSequence", "DequantizeLinear", "EyeLike", "If", "Loop",
         "MelWeightMatrix", "Optional", "OptionalGetElement", "RandomNormalLike", "RandomUniformLike", "Scan",
         "SequenceAt", "SequenceConstruct", "SequenceInsert", "SequenceMap", "SplitToSequence"}  # fmt: skip


class References:
    """Makes evaluators.

    Parameters
    ----------
    folder : str
        Where external data lie.
    """

    runs_control = False
    fuses = False

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._operators: list[type] = []

    def __call__(self, model: object, tensors: Mapping[str, Any]) -> Reference:
        """Return an evaluator of a model whose constants are passed separately."""
        self._operators = self._operators or operators()
        return Reference(model, {name: array_of(one, self._folder) for name, one in tensors.items()}, self._operators)

    def info(self, name: str, value: Any) -> Any:
        """Return the ONNX description of an input like this value."""
        import onnx  # optional

        try:
            kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        except (AttributeError, KeyError, ValueError):  # no tensor of numbers
            return onnx.ValueInfoProto(name=name)
        return onnx.helper.make_tensor_value_info(name, kind, None)

    def plain(self, value: object) -> Any:
        """Return a value as an object of NumPy or Python."""
        return value


def refuse_wrong(model: Any, opset: int, is_converted: bool) -> None:
    """Raise ValueError for a model with an operator that this evaluator does not compute as ONNX defines it."""
    for node in all_nodes(model.graph):
        reason = reason_to_refuse(node, opset, is_converted)
        if reason is not None:
            name = text_of(node.op_type)
            raise WrongValue(f"run_onnx: operator {name} {reason} needs onnxruntime: pip install onnxruntime")


def all_nodes(graph: Any) -> Any:
    """Yield the nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for _, inner in inner_graphs(node, ""):
            yield from all_nodes(inner)


class Reference:
    """One part of a graph in onnx's evaluator."""

    def __init__(self, model: object, held: dict[str, Array], changed: list[type]) -> None:
        self._held = held
        try:
            self._inner = evaluator()(model, new_ops=changed)
        except Exception as error:  # onnx's own
            raise WrongValue(f"run_onnx: onnx's evaluator: {sentence_of(error)}; pip install onnxruntime") from None

    def run(self, outputs: list[str], feeds: Mapping[str, Any]) -> list[Any]:
        with np.errstate(all="ignore"):
            found: Any = self._inner.run(outputs, {**self._held, **feeds})
        texts = [isinstance(one, np.ndarray) and one.dtype.kind == "U" for one in found]
        return [one.astype(object) if is_text else one for one, is_text in zip(found, texts, strict=True)]


@functools.cache
def evaluator() -> type:
    """Return onnx's evaluator, with arithmetic of half precision in float32; subgraphs are evaluated in it, too."""
    from onnx.reference import ReferenceEvaluator  # optional

    class Evaluator(ReferenceEvaluator):
        def _init(self) -> None:
            super()._init()
            for node in self.rt_nodes_:
                node.run = _named(_widened(node.run, node.onnx_node), node.onnx_node)

    return Evaluator


def _named(call: Callable[..., Any], node: Any) -> Callable[..., Any]:
    """Return a function that adds the operator's name to any error of its call."""
    name = text_of(node.op_type) if node.domain in STANDARD else f"{text_of(node.domain)}.{text_of(node.op_type)}"

    def run(*arguments: object, **options: object) -> Any:
        try:
            return call(*arguments, **options)
        except Exception as error:  # any exception: the evaluator checks little
            if isinstance(error, TypeError) and isinstance(error.__cause__, Exception):  # onnx hides it
                error = error.__cause__
            raise WrongValue(f"run_onnx: operator {name}: {sentence_of(error)}; onnxruntime may run it: "
                             "pip install onnxruntime") from None  # fmt: skip

    return run


def _widened(call: Callable[..., Any], node: Any) -> Callable[..., Any]:
    """Return a function that computes an operator of half precision in float32, and rounds its outputs."""
    import onnx  # optional

    if node.domain not in STANDARD or node.op_type in EXACT or not onnx.defs.has(node.op_type):
        return call
    schema = onnx.defs.get_schema(node.op_type)
    given = [one.type_str for one in schema.inputs]
    operator_class = [one.type_str for one in schema.outputs]

    def run(*arguments: Any, **options: Any) -> Any:
        halves: dict[str, Any] = {}
        wide = list(arguments)
        for i, one in enumerate(arguments):
            if isinstance(one, np.ndarray) and one.dtype.name in HALVES:
                halves[given[min(i, len(given) - 1)]] = one.dtype
                wide[i] = one.astype(np.float32)
        found = call(*wide, **options)
        if not halves:
            return found
        if node.op_type == "LinearAttention":  # its state has the dtype of the query if there is no earlier state
            halves.setdefault("S", halves.get("T"))
        dtypes = [halves.get(operator_class[min(i, len(operator_class) - 1)]) for i in range(len(found))]
        return tuple(
            one.astype(dtype) if dtype is not None and isinstance(one, np.ndarray) else one
            for one, dtype in zip(found, dtypes, strict=True)
        )

    return run
