"""Sessions of onnxruntime, which run the parts of a graph outside our products.

Values are ndarrays if NumPy has their type. Others (sequences, optionals, bfloat16, 4 bits) stay onnxruntime's.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...base import runtime
from ...base.errors import WrongValue
from .model import Refused, array_of, sentence_of

Array = np.ndarray[Any, Any]
LARGE = 2**20  # bytes of a constant that is passed without a copy
ELEMENTS = {"float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "string": 8, "bool": 9,
            "float16": 10, "double": 11, "uint32": 12, "uint64": 13, "bfloat16": 16, "float8e4m3fn": 17,
            "float8e4m3fnuz": 18, "float8e5m2": 19, "float8e5m2fnuz": 20, "uint4": 21, "int4": 22}  # fmt: skip
WHOLE_BYTES = frozenset(ELEMENTS.values()) - {8, 21, 22}  # types whose arrays have the layout of the memory
PLAIN = frozenset(f"tensor({name})" for name, kind in ELEMENTS.items() if kind <= 13)
# Words of errors about a valid graph that onnxruntime does not compute.
LIMITS = ("not supported", "unsupported", "Unsupported", "not implemented", "NOT_IMPLEMENTED", "is not defined for")


def options_of(ort: Any, threads: int) -> Any:
    """Return options of a session: silent, with at most our number of threads."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # without it, sums of two products of uint8 and int8 saturate at 16 bits on processors without VNNI
    options.add_session_config_entry("session.x64quantprecision", "1")
    # floats between DequantizeLinear and QuantizeLinear, as ONNX defines: the option above breaks the integer forms of
    # weights with a scale per row and no zero points
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options


class Sessions:
    """Makes sessions of onnxruntime.

    Parameters
    ----------
    folder : str
        Where external data lie.
    """

    runs_control = True
    fuses = True  # operators on one value each have the bits of the core

    def __init__(self, folder: str) -> None:
        import onnxruntime  # optional

        onnxruntime.set_default_logger_severity(4)  # failures raise exceptions
        self._ort, self._folder = onnxruntime, folder
        self.threads = runtime.get_num_threads()
        self._identity: dict[str, Any] = {}

    def __call__(self, model: Any, tensors: Mapping[str, Any]) -> Session:
        """Return a session of a model whose constants are passed separately."""
        import onnx  # optional

        options, large = options_of(self._ort, self.threads), {}
        # many sessions take turns: a session's waiting threads would slow the others
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        for name, tensor in tensors.items():
            one = model.graph.initializer.add()
            if tensor.data_type in WHOLE_BYTES and (_is_external(tensor) or tensor.ByteSize() >= LARGE):
                one.data_type, one.data_location = tensor.data_type, onnx.TensorProto.EXTERNAL
                one.dims.extend(tensor.dims)
                one.external_data.add(key="location", value="memory")
                large[name] = self.value(array_of(tensor, self._folder))
            else:
                one.CopyFrom(tensor)
                if _is_external(one):
                    onnx.external_data_helper.load_external_data_for_tensor(one, self._folder)
                    one.ClearField("data_location")
                    one.ClearField("external_data")
            one.name = name
        if large:
            options.add_external_initializers(list(large), list(large.values()))
        return Session(self, model.SerializeToString(), options, large)

    def whole(self, source: str | bytes) -> Session:
        """Return a session of an unchanged model."""
        return Session(self, source, options_of(self._ort, self.threads), None)

    def value(self, array: Array) -> Any:
        """Return an array as onnxruntime's value; the memory is shared."""
        make = self._ort.OrtValue
        array = np.asarray(array, order="C")
        kind = _element_of(array.dtype)
        if kind <= 13:
            return make.ortvalue_from_numpy(array)
        if kind not in WHOLE_BYTES:
            raise Refused(f"onnxruntime does not accept inputs of {array.dtype}")
        return make.ortvalue_from_numpy_with_onnx_type(array.view(f"u{array.dtype.itemsize}"), kind)

    def info(self, name: str, value: object) -> Any:
        """Return the ONNX description of an input like this value."""
        import onnx  # optional

        if isinstance(value, np.ndarray):
            return onnx.helper.make_tensor_value_info(name, _element_of(value.dtype), None)
        if isinstance(value, list):
            kind = onnx.helper.make_tensor_type_proto(_element_of(value[0].dtype) if value else 1, None)
            return onnx.helper.make_value_info(name, onnx.helper.make_sequence_type_proto(kind))
        if not hasattr(value, "data_type"):
            raise Refused(f"onnxruntime does not accept {type(value).__name__}")
        return onnx.helper.make_value_info(name, _type_of(onnx, value.data_type()))

    def plain(self, value: Any) -> Any:
        """Return a value as an object of NumPy or Python."""
        if not hasattr(value, "data_type"):
            return value
        kind = value.data_type()
        element = kind.removeprefix("tensor(").removesuffix(")")
        if value.is_tensor() and kind not in PLAIN:
            return _copied(value, element)
        if kind not in self._identity:
            self._identity[kind] = self._identity_of(value)
        return self._identity[kind].inner.run(["y"], {"x": value})[0]

    def _identity_of(self, value: object) -> Session:
        import onnx  # optional

        node = onnx.helper.make_node("Identity", ["x"], ["y"])
        graph = onnx.helper.make_graph([node], "one", [self.info("x", value)], [onnx.ValueInfoProto(name="y")])
        return self(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 16)], ir_version=8), {})


class Session:
    """One part of a graph in onnxruntime."""

    def __init__(self, sessions: Sessions, source: str | bytes, options: object, held: object) -> None:
        self._sessions, self._held = sessions, held
        try:
            self.inner = sessions._ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own, of many classes
            raise Refused(sentence_of(error)) from None
        types = [one.type for one in (*self.inner.get_outputs(), *self.inner.get_inputs())]
        # Python values are enough, unless another session needs the type of a sequence
        self._is_plain = all(kind in PLAIN or held is None and not kind.startswith("tensor(") for kind in types)

    def run(self, outputs: list[str], feeds: Mapping[str, Any]) -> list[Any]:
        try:
            if self._is_plain or not all(
                isinstance(one, np.ndarray) or hasattr(one, "data_type") for one in feeds.values()
            ):
                found: list[Any] = self.inner.run(outputs, feeds)
                return found
            given = {
                name: self._sessions.value(one) if isinstance(one, np.ndarray) else one for name, one in feeds.items()
            }
            values = self.inner.run_with_ort_values(outputs, given)
            return [one.numpy() if one.is_tensor() and one.data_type() in PLAIN else one for one in values]
        except Refused:
            raise
        except Exception as error:  # onnxruntime's own, of many classes
            if any(words in str(error) for words in LIMITS):
                raise Refused(sentence_of(error)) from None
            raise WrongValue(f"run_onnx: onnxruntime: {sentence_of(error)}") from None


def _copied(value: Any, element: str) -> Array:
    """Return a tensor of a type of ml_dtypes."""
    import ml_dtypes  # 15 ms

    if "float" not in element or element.startswith("float4"):
        raise Refused(f"onnxruntime does not return values of {element}")
    name = element.replace("float8", "float8_")
    dtype = np.dtype(getattr(ml_dtypes, name, None) or getattr(ml_dtypes, f"{name}fnu"))
    n_bytes = dtype.itemsize * math.prod(value.shape())
    data = ctypes.string_at(value.data_ptr(), n_bytes) if n_bytes else b""
    return np.frombuffer(bytearray(data), dtype).reshape(value.shape())


def _is_external(tensor: Any) -> bool:
    return bool(tensor.data_location == tensor.EXTERNAL)


def _element_of(dtype: np.dtype[Any]) -> int:
    """Return the number that ONNX has for a dtype."""
    from onnx import helper  # optional

    return 8 if dtype.kind in "OU" else int(helper.np_dtype_to_tensor_dtype(dtype))


def _type_of(onnx: Any, text: str) -> Any:
    """Return the type with onnxruntime's name, such as ``seq(tensor(float))``."""
    kind, inner = text.removesuffix(")").split("(", 1)
    if kind == "tensor":
        return onnx.helper.make_tensor_type_proto(ELEMENTS[inner], None)
    make = onnx.helper.make_sequence_type_proto if kind == "seq" else onnx.helper.make_optional_type_proto
    return make(_type_of(onnx, inner))
