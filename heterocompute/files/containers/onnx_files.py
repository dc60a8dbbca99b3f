"""The weights of an ONNX model: initializers, tensors of `Constant` nodes, those of subgraphs, and external data.

Functions are inlined, so that the constants of a function are tensors of the graph. Sparse tensors are read as dense.

The package `onnx` reads the whole protobuf at once; data in other files are read here on demand, and never from outside
the model's folder.
"""

from __future__ import annotations

import math
import os
from collections import ChainMap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays.bits import unpack
from ...base.container import numpy_dtype
from ...base.errors import shown
from ...base.regular import check_regular, open_regular
from ...base.texts import counted, decoded, quoted, shortened
from .container import Container, inside
from .onnx_graph import (
    MAX_DENSE,
    Constant,
    Constants,
    PackedNode,
    codes_in,
    dense_of,
    follow,
    inlined,
    inner_graphs,
    multiplied,
    node_name,
    packed_nodes,
    text_of,
)

MAX_FILE = 2**31  # of protobuf
MAX_DEPTH = 32


class Onnx(Container):
    """An ONNX model. The name of a subgraph's tensor is its node, the attribute and its own name, joined with dots."""

    is_configured = False

    def _read(self) -> None:
        try:
            import onnx  # optional
        except ImportError:
            hint = "pip install 'heterocompute[onnx]'"
            raise ImportError(f"{self.path}: reading ONNX files needs onnx: {hint}") from None
        if self.size > MAX_FILE:
            self._fail(f"an ONNX model of {self.size} bytes, at most {MAX_FILE} are possible")
        self._onnx = onnx
        try:
            model = onnx.ModelProto()
            model.ParseFromString(self._file.read())
        except Exception as error:  # protobuf's own
            self._fail(f"no ONNX file: {shortened(str(error) or type(error).__name__, 80)}")
        if not model.HasField("graph"):
            self._fail("no ONNX file: it has no graph")
        self.metadata = {text_of(one.key): text_of(one.value) for one in model.metadata_props}
        try:
            model = inlined(decoded(model)[0])
        except Exception as error:  # onnx's own
            self._fail(f"no ONNX file: {shortened(str(error) or type(error).__name__, 80)}")
        self._tensors: dict[str, Any] = {}
        axes: dict[str, set[tuple[int, ...]]] = {}
        self._graph(model.graph, "", ChainMap(), axes, 0)
        self.quantized = codes_in(model.graph) or ""
        self.packed = [one for one in packed_nodes(model.graph) if self._holds(one)]
        self.axes = {name: next(iter(found)) for name, found in axes.items() if len(found) == 1}

    def _graph(
        self, graph: Any, prefix: str, constants: Constants, axes: dict[str, set[tuple[int, ...]]], depth: int
    ) -> None:
        """Take the tensors of a graph; `constants` are those of the graphs around it."""
        if depth > MAX_DEPTH:
            self._fail(f"subgraphs nested more than {MAX_DEPTH} deep")
        for tensor in graph.initializer:
            self._hold(prefix, tensor.name, tensor, constants)
        for sparse in graph.sparse_initializer:
            self._hold(prefix, sparse.values.name, sparse, constants)
        for place, node in enumerate(graph.node):
            follow(node, constants)
            if node.op_type == "Constant" and node.output:
                for attribute in node.attribute:
                    for field in ("t", "sparse_tensor"):
                        if attribute.HasField(field):
                            self._hold(prefix, node.output[0], getattr(attribute, field), constants)
            for inner_prefix, inner in inner_graphs(node, node_name(prefix, node, place)):
                self._graph(inner, inner_prefix, constants.new_child(), axes, depth + 1)
            for _, weight, along in multiplied(node, constants):
                if weight.name in self:
                    axes.setdefault(weight.name, set()).add(along)

    def _hold(self, prefix: str, output: object, tensor: Any, constants: Constants) -> None:
        """Take a tensor that a graph calls `output`."""
        name = prefix + text_of(output)
        constants[text_of(output)] = Constant(name, tuple(range(len(tensor.dims))))
        if hasattr(tensor, "indices"):
            self._take_sparse(name, tensor)
        else:
            self._tensors.setdefault(name, tensor)
            self._take(name, tensor)

    def _take_sparse(self, name: str, sparse: Any) -> None:
        shape, kind = tuple(int(n) for n in sparse.dims), sparse.values.data_type
        dtype = self._dtype(name, kind)
        count, fits = math.prod(sparse.values.dims), math.prod(shape) * dtype.itemsize <= MAX_DENSE

        def load() -> NDArray[Any]:
            values = self._load(name, sparse.values, dtype.name, (count,))
            at = self._load(name, sparse.indices, "int64", tuple(int(n) for n in sparse.indices.dims))
            try:
                return dense_of(values, at, shape)
            except ValueError as error:
                self._fail(f"tensor {quoted(name)} has {error}")

        self.add(name, dtype.name if fits else f"sparse {dtype.name}", shape, load)

    def _take(self, name: str, tensor: Any) -> None:
        onnx, dtype = self._onnx, self._dtype(name, tensor.data_type)
        shape = tuple(int(n) for n in tensor.dims)
        text = "text" if tensor.data_type == onnx.TensorProto.STRING else dtype.name
        self.add(name, text, shape, lambda: self._load(name, tensor, dtype.name, shape))
        if name in self and tensor.data_location == onnx.TensorProto.EXTERNAL:
            place, _ = self._external(name, tensor, self.info(name).nbytes)  # an invalid reference raises an error here
            self.others = {*self.others, place}

    def _holds(self, node: PackedNode) -> bool:
        """Tell whether the file contains everything that a node decodes with."""
        first = 1 if node.kind == "MatMulNBits" else 0
        wanted = node.inputs[first : first + 3]
        return len(wanted) > 1 and all(name in self._tensors or not name for name in wanted) and wanted[0] != ""

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor of any dtype."""
        return tuple(int(n) for n in self._tensors[name].dims)

    def codes(self, name: str) -> tuple[NDArray[Any], int, bool]:
        """Return integers of 2, 4 or 8 bits, one per value, their width in bits, and whether they are signed."""
        tensor, kinds = self._tensors[name], self._onnx.TensorProto
        known = {getattr(kinds, f"{sign}INT{bits}", None): (bits, not sign) for bits in (2, 4, 8) for sign in ("", "U")}
        if tensor.data_type not in known:
            kind = self._dtype(name, tensor.data_type).name
            self._fail(f"tensor {quoted(name)} is {kind}, expected codes that are integers of 2, 4 or 8 bits")
        bits, is_signed = known[tensor.data_type]
        if bits == 8:
            return self.tensor(name), bits, is_signed
        shape = self.shape_of(name)
        count = math.prod(shape)
        if min(shape, default=0) < 0 or count >= 2**40:
            self._fail(f"tensor {quoted(name)} has the illegal shape {shown(shape)}")
        n_bytes = -(-count * bits // 8)
        if tensor.data_location == kinds.EXTERNAL:
            path, begin = self._external(name, tensor, n_bytes)
            with open_regular(path) as file:
                data = np.fromfile(file, np.uint8, n_bytes, offset=begin)
        elif tensor.HasField("raw_data"):
            data = np.frombuffer(bytearray(tensor.raw_data), np.uint8)
        else:
            data = np.array(tensor.int32_data, np.int64).astype(np.uint8)
        if data.size != n_bytes:
            self._fail(f"tensor {quoted(name)} of shape {shown(shape)} has {counted(data.size, 'byte')}")
        codes, spare = unpack(data.reshape(1, -1), bits, count).reshape(shape), 8 - bits
        return ((codes.view(np.int8) << spare) >> spare if is_signed else codes), bits, is_signed

    def _dtype(self, name: str, kind: int) -> np.dtype[Any]:
        try:
            return np.dtype(self._onnx.helper.tensor_dtype_to_np_dtype(kind))
        except (KeyError, TypeError, ValueError):
            self._fail(f"tensor {quoted(name)} has the unknown dtype {kind}")

    def _load(self, name: str, tensor: Any, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        wanted, count = numpy_dtype(dtype), math.prod(shape)
        if tensor.data_location == self._onnx.TensorProto.EXTERNAL:
            path, begin = self._external(name, tensor, count * wanted.itemsize)
            with open_regular(path) as file:
                data = np.fromfile(file, np.uint8, count * wanted.itemsize, offset=begin)
        elif tensor.HasField("raw_data"):
            data = np.frombuffer(bytearray(tensor.raw_data), np.uint8)
        else:
            try:
                return np.array(self._onnx.numpy_helper.to_array(tensor), wanted).reshape(shape)
            except (ValueError, TypeError, OverflowError) as error:
                self._fail(f"tensor {quoted(name)} does not hold {shown(shape)}: {shortened(str(error), 80)}")
        if data.size != count * wanted.itemsize:
            self._fail(f"tensor {quoted(name)} of shape {shown(shape)} has {counted(data.size, 'byte')}")
        return self.values(data, wanted, name).reshape(shape)

    def _external(self, name: str, tensor: Any, n_bytes: int) -> tuple[str, int]:
        """Return the file of the data, and their position; it must be in the model's folder and large enough."""
        fields = {text_of(one.key): text_of(one.value) for one in tensor.external_data}
        path = inside(os.path.dirname(os.path.abspath(self.path)), fields.get("location", ""))
        if path is None:
            self._fail(f"tensor {quoted(name)} lies in {shown(fields.get('location', ''))}, out of the model's folder")
        numbers = [fields.get("offset", "0"), fields.get("length", str(n_bytes))]
        if not all(text.isdecimal() and len(text) < 20 for text in numbers) or int(numbers[1]) != n_bytes:
            self._fail(f"tensor {quoted(name)} has the illegal place {shown(numbers)} for {counted(n_bytes, 'byte')}")
        begin = int(numbers[0])
        check_regular(path)
        held = os.stat(path)
        if begin + n_bytes > held.st_size:
            self._fail(f"cut off: tensor {quoted(name)} ends at {begin + n_bytes} of {shown(fields['location'])}, "
                       f"which has {counted(held.st_size, 'byte')}")  # fmt: skip
        return path, begin
