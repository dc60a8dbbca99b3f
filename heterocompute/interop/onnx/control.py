"""If, Loop and Scan whose graphs hold matmuls of this package: the graphs are cut and their parts run in order."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from typing import Any

import numpy as np

from ...files.containers.onnx_graph import text_of

Values = MutableMapping[str, Any]


class Control:
    """A node with graphs.

    Parameters
    ----------
    around : Cut
        The graph that holds the node.
    node : onnx.NodeProto
    graphs : list of Cut
    needs : list of str
        The values that the node and its graphs read.
    """

    multiplies = True

    def __init__(self, around: Any, node: Any, graphs: list[Any], needs: list[str]) -> None:
        from onnx import helper  # optional

        self._around, self._graphs, self._needs = around, graphs, needs
        self.inputs = [text_of(name) for name in node.input]
        self.outputs = [text_of(name) for name in node.output]
        self.produced = {name for name in self.outputs if name}
        self.attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        self.names = [text_of(one.name) for one in node.attribute if one.HasField("g")]

    def needs(self) -> list[str]:
        return self._needs

    def run(self, values: Values, request: Any) -> None:
        given = [self._around.value(name, values) if name else None for name in self.inputs]
        answers = self.answers(given, ChainMap({}, values), request)
        values.update((name, one) for name, one in zip(self.outputs, answers, strict=False) if name)

    def answers(self, given: list[Any], values: ChainMap[str, Any], request: Any) -> list[Any]:
        raise NotImplementedError

    def stacked(self, rows: list[Any], declared: Any, axis: int = 0) -> Any:
        """Return the results of all rounds, along a new axis."""
        if rows:
            return np.stack([self._around.plain(row) for row in rows], axis)
        from onnx import helper  # optional

        kind = declared.type.tensor_type
        shape = [one.dim_value for one in kind.shape.dim]
        shape.insert(axis, 0)
        return np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind.elem_type or 1))


class If(Control):
    def answers(self, given: list[Any], values: ChainMap[str, Any], request: Any) -> list[Any]:
        holds = bool(self._around.plain(given[0]).reshape(-1)[0])
        graph: Any = self._graphs[self.names.index("then_branch" if holds else "else_branch")]
        found: list[Any] = graph.run(values, request)
        return found


class Loop(Control):
    def answers(self, given: list[Any], values: ChainMap[str, Any], request: Any) -> list[Any]:
        body = self._graphs[0]
        limit = None if given[0] is None else int(self._around.plain(given[0]).reshape(-1)[0])
        holds = given[1] is None or bool(self._around.plain(given[1]).reshape(-1)[0])
        state, rows, i = given[2:], [], 0
        while holds and (limit is None or i < limit):
            inputs = [np.array(i, np.int64), np.array(holds), *state]
            answers = body.run(values.new_child(dict(zip(body.inputs, inputs, strict=True))), request)
            holds = bool(self._around.plain(answers[0]).reshape(-1)[0])
            state, i = answers[1 : 1 + len(state)], i + 1
            rows.append(answers[1 + len(state) :])
        declared = [body.declared[name] for name in body.outputs[1 + len(state) :]]
        return [*state, *(self.stacked([row[j] for row in rows], one) for j, one in enumerate(declared))]


class Scan(Control):
    def answers(self, given: list[Any], values: ChainMap[str, Any], request: Any) -> list[Any]:
        body, n_scanned = self._graphs[0], self.attributes["num_scan_inputs"]
        n_state = len(given) - n_scanned
        n_rows = len(body.outputs) - n_state
        state, scanned = given[:n_state], [self._around.plain(one) for one in given[n_state:]]
        axes = self.attributes.get("scan_input_axes", [0] * n_scanned)
        scanned = [np.moveaxis(one, axis, 0) for one, axis in zip(scanned, axes, strict=True)]
        back = self.attributes.get("scan_input_directions", [0] * n_scanned)
        scanned = [one[::-1] if turn else one for one, turn in zip(scanned, back, strict=True)]
        rows = []
        for slices in zip(*scanned, strict=True):
            inputs = [*state, *(np.array(one) for one in slices)]
            answers = body.run(values.new_child(dict(zip(body.inputs, inputs, strict=True))), request)
            state = answers[:n_state]
            rows.append(answers[n_state:])
        out_axes = self.attributes.get("scan_output_axes", [0] * n_rows)
        turns = self.attributes.get("scan_output_directions", [0] * n_rows)
        found = []
        for j, (axis, turn) in enumerate(zip(out_axes, turns, strict=True)):
            column = [row[j] for row in rows]
            column = column[::-1] if turn else column
            ndim = self._around.plain(column[0]).ndim + 1 if column else 1
            found.append(self.stacked(column, body.declared[body.outputs[n_state + j]], axis % ndim))
        return [*state, *found]


CONTROLS: dict[str, type[Control]] = {"If": If, "Loop": Loop, "Scan": Scan}
