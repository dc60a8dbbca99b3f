"""An ONNX model for evaluation: functions are inlined, sparse tensors dense, the opset converted if needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...base.errors import WrongType, WrongValue, printable, shown
from ...base.regular import open_regular
from ...base.texts import decoded, file_name, quoted, shortened
from ...files.containers.onnx_graph import dense_of, inlined, inner_graphs, node_name, text_of
from .checks import check_graph
from .operators import OLD_NEAREST

Array = np.ndarray[Any, Any]
ARGUMENT = "run_onnx: model"


class Refused(Exception):
    """This runtime cannot run the graph; another one may."""


def loaded(model: object) -> tuple[Any, bool]:
    """Return a model without functions and sparse tensors, and whether its names were changed.

    External data stay where they are.
    """
    place = place_of(model)
    try:
        import onnx  # optional
    except ImportError:
        raise ImportError("run_onnx: evaluating ONNX models needs onnx: pip install 'heterocompute[onnx]'") from None
    if not isinstance(model, (str, os.PathLike, bytes, onnx.ModelProto)):
        raise WrongType(f"{place} is {shown(model)}, expected a path, bytes or an onnx.ModelProto")
    if isinstance(model, (str, os.PathLike)):
        with open_regular(file_name(model)):
            pass  # a missing file is an OSError, not onnx's own
    with blaming(place):
        if isinstance(model, bytes):
            proto = onnx.load_model_from_string(model)
        elif isinstance(model, onnx.ModelProto):
            proto = model
        else:
            proto = onnx.load(os.fspath(model), load_external_data=False)
        if not proto.HasField("graph"):
            raise WrongValue("it has no graph")
        proto, is_changed = decoded(proto, is_own=proto is not model)
        if not proto.functions:
            check_graph(proto.graph)
        if any(_sparse(proto.graph)) and proto is model:
            proto = onnx.ModelProto()
            proto.CopyFrom(model)
        if proto.functions:
            proto = inlined(proto)
            check_graph(proto.graph)
        _make_dense(onnx, proto.graph)
    return proto, is_changed


def place_of(model: object) -> str:
    """Return how messages call the model."""
    return printable(os.fsdecode(model)) if isinstance(model, (str, os.PathLike)) else ARGUMENT


@contextmanager
def blaming(place: str) -> Iterator[None]:
    """Convert errors of other packages into a ValueError about the model."""
    try:
        yield
    except Exception as error:  # protobuf's errors and onnx's own
        raise WrongValue(f"{place}: not an ONNX model: {sentence_of(error)}") from None


@contextmanager
def evaluating(place: str) -> Iterator[None]:
    """Name the model in errors of its evaluation; any error of a malformed one is a ValueError."""
    try:
        yield
    except (OSError, MemoryError, Refused):
        raise
    except ValueError as error:
        text = str(error)
        if place == ARGUMENT or text.startswith(place):
            raise
        raise WrongValue(f"{place}: {text.removeprefix('run_onnx: ')}") from None
    except Exception as error:  # of attributes with other types, missing graphs and the like
        text = sentence_of(error)
        if isinstance(error, LookupError):
            text = f"an attribute, a graph or a value is missing ({text})"
        raise WrongValue(f"{place}: not an ONNX model that can be evaluated: {text}") from None


def sentence_of(error: Exception) -> str:
    """Return the first line of another package's error, without its number."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = lines[0].split(" : ", 3)[-1] if lines[0].startswith("[ONNXRuntimeError]") else lines[0]
    return shortened(printable(text), 200)


def plain_opset(model: Any) -> int:
    """Return the version of the standard operator set that a model uses."""
    return max((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), default=1)


def array_of(tensor: Any, folder: str) -> Array:
    """Return the values of a tensor of the file."""
    from onnx import numpy_helper  # optional

    try:
        found: Array = numpy_helper.to_array(tensor, folder)
    except OSError:
        raise
    except Exception as error:  # onnx's own
        raise WrongValue(f"run_onnx: tensor {quoted(text_of(tensor.name))}: {sentence_of(error)}") from None
    return found


def converted(model: object, opset: int, folder: str) -> Any:
    """Return the model in another version of the standard operator set; ValueError if onnx has no conversion."""
    import onnx  # optional
    from onnx import version_converter  # optional

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    onnx.external_data_helper.load_external_data_for_model(copy, folder)
    _name_nodes(copy.graph)
    for one in copy.opset_import:
        if one.domain == "ai.onnx":
            one.domain = ""
    copy.ir_version = max(copy.ir_version, 4)
    if plain_opset(copy) == opset:
        return copy
    try:
        found = version_converter.convert_version(copy, opset)
    except Exception as error:  # onnx's own
        raise WrongValue(f"opset {plain_opset(model)} has no conversion to {opset}: {sentence_of(error)}") from None
    return found


def as_before_11(graph: Any) -> None:
    """Give each `Resize` of a converted graph the coordinates of opset 10, which the conversion leaves out."""
    from onnx import helper  # optional

    for node in graph.node:
        if node.op_type == "Resize" and not any(one.name == "coordinate_transformation_mode" for one in node.attribute):
            node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
            node.attribute.append(helper.make_attribute("nearest_mode", OLD_NEAREST))
        for _, inner in inner_graphs(node, ""):
            as_before_11(inner)


def _name_nodes(graph: Any) -> None:
    """Name nodes with subgraphs by position; these names prefix their tensors."""
    for place, node in enumerate(graph.node):
        name = node_name("", node, place)
        for _, inner in inner_graphs(node, ""):
            node.name = name
            _name_nodes(inner)


def _sparse(graph: Any) -> Iterator[Any]:
    yield from graph.sparse_initializer
    for node in graph.node:
        yield from (one for one in node.attribute if one.HasField("sparse_tensor"))
        for _, inner in inner_graphs(node, ""):
            yield from _sparse(inner)


def _make_dense(onnx: Any, graph: Any) -> None:
    """Replace sparse tensors by dense ones, which every runtime reads."""
    for sparse in graph.sparse_initializer:
        graph.initializer.append(onnx.numpy_helper.from_array(_dense(onnx, sparse), text_of(sparse.values.name)))
    graph.ClearField("sparse_initializer")
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.HasField("sparse_tensor"):
                dense = _dense(onnx, attribute.sparse_tensor)
                attribute.CopyFrom(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(dense)))
        for _, inner in inner_graphs(node, ""):
            _make_dense(onnx, inner)


def _dense(onnx: Any, sparse: Any) -> Array:
    to_array = onnx.numpy_helper.to_array
    return dense_of(to_array(sparse.values), to_array(sparse.indices), tuple(sparse.dims))
