"""Parts of a graph in onnx's reference evaluator, in its newest opset: for machines without onnxruntime.

Operators that this evaluator computes wrongly are in operators.py. If, Loop and Scan are run by control.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...files.containers.onnx_graph import STANDARD, inner_graphs, text_of
from .model import array_of, sentence_of
from .operators import operators, reason_to_refuse

__all__ = ["References", "refuse_wrong"]

Array = np.ndarray[Any, Any]


class References:
    """Makes evaluators.

    Parameters
    ----------
    folder : str
        Where external data lie.
    """

    runs_control = False

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._operators: list[type] = []

    def __call__(self, model: Any, tensors: Mapping[str, Any]) -> Reference:
        """Return an evaluator of a model whose constants are passed separately."""
        self._operators = self._operators or operators()
        return Reference(model, {name: array_of(one, self._folder) for name, one in tensors.items()}, self._operators)

    def info(self, name: str, value: Any) -> Any:
        """Return the ONNX description of an input like this value."""
        import onnx  # optional

        return onnx.ValueInfoProto(name=name)

    def plain(self, value: Any) -> Any:
        """Return a value as an object of NumPy or Python."""
        return value


def refuse_wrong(model: Any, opset: int, is_converted: bool) -> None:
    """Raise ValueError for a model with an operator that this evaluator does not compute as ONNX defines it."""
    for node in all_nodes(model.graph):
        reason = reason_to_refuse(node, opset, is_converted)
        if reason is not None:
            name = text_of(node.op_type)
            raise ValueError(f"run_onnx: operator {name} {reason} needs onnxruntime: pip install onnxruntime")


def all_nodes(graph: Any) -> Any:
    """Yield the nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for _, inner in inner_graphs(node, ""):
            yield from all_nodes(inner)


class Reference:
    """One part of a graph in onnx's evaluator."""

    def __init__(self, model: Any, held: dict[str, Array], changed: list[type]) -> None:
        from onnx.reference import ReferenceEvaluator  # optional

        self._held = held
        try:
            self._inner = ReferenceEvaluator(model, new_ops=changed)
        except Exception as error:  # onnx's own
            raise ValueError(f"run_onnx: onnx's evaluator: {sentence_of(error)}; pip install onnxruntime") from None
        for node in self._inner.rt_nodes_:
            node.run = _named(node.run, node.onnx_node)

    def run(self, outputs: list[str], feeds: Mapping[str, Any]) -> list[Any]:
        with np.errstate(all="ignore"):
            found: Any = self._inner.run(outputs, {**self._held, **feeds})
        texts = [isinstance(one, np.ndarray) and one.dtype.kind == "U" for one in found]
        return [one.astype(object) if is_text else one for one, is_text in zip(found, texts, strict=True)]


def _named(call: Callable[..., Any], node: Any) -> Callable[..., Any]:
    """Return a function that adds the operator's name to any error of its call."""

    def run(*arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except Exception as error:  # any exception: the evaluator checks little
            name = (
                text_of(node.op_type) if node.domain in STANDARD else f"{text_of(node.domain)}.{text_of(node.op_type)}"
            )
            raise ValueError(f"run_onnx: operator {name}: {sentence_of(error)}; onnxruntime may run it: "
                             "pip install onnxruntime") from None  # fmt: skip

    return run
