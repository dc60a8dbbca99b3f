"""`export_onnx`: a converted model as an ONNX file with codes and scales inside.

PyTorch exports a copy with float weights and the rounding of activations in operators of its own. Then each weight is
replaced: by a `DequantizeLinear` of its codes with the same output, or together with its product by a `MatMulNBits`.
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from ...arrays.quantized import QuantizedArray
from ...base.errors import WrongType, WrongValue, shown
from ...base.float_env import counts_subnormals
from ...base.texts import quoted, sentence
from ...files.layouts.onnx.matmul import operands
from ...files.layouts.onnx.model import OPSET, onnx_of, write_model
from ...formats import format as parse_format
from .attention import PackedMultiheadAttention
from .carrying import carry, copied
from .export_weights import original, stored_weight
from .modules import Packed
from .turned import turned
from .walk import every_layer
from .weights import PackedWeight

Array = np.ndarray[Any, Any]


@counts_subnormals
def export_onnx(model: torch.nn.Module, example: object, path: str | os.PathLike[str], **options: object) -> None:
    """Write a converted model as ONNX, including the codes and scales of its packed weights.

    Parameters
    ----------
    model : torch.nn.Module
        Result of `convert`. Weights may have all formats with scales and codes of up to 16 bits, except codebooks,
        ggml's blocks with minima, and patterns of elements without 0. Activations must be symmetric `Int` of up to 8
        bits with one scale per row.
    example : torch.Tensor, tuple of torch.Tensor or dict of str to torch.Tensor
        The inputs of one call. A dict is passed as keywords.
    path : str or os.PathLike
        Replaced by renaming if it exists.
    **options
        Options of `torch.onnx.export`, such as ``dynamic_shapes``, ``input_names``, ``output_names``.

    Raises
    ------
    ImportError
        onnx is not installed.
    TypeError, ValueError
        The model has no packed weights, ONNX cannot represent a format (the message names the layer), or the model
        rejects the example.
    OSError
        The file cannot be written.

    Notes
    -----
    A linear layer with symmetric or asymmetric integers of 2, 4 or 8 bits becomes `MatMulNBits` of onnxruntime, if its
    groups or rows divide into blocks of 16, 32, 64 ... Other integers and FP8 become a `DequantizeLinear` (opset 21),
    all other elements a `Gather` of a table of levels, times the scales. Decoded weights have the bits of this package,
    except integers under scales in two levels, which differ in the last digit. Filters of a grouped transposed
    convolution are stored as floats. A runtime sums in another order than this package. Results differ in the last
    digits, and by steps of the codes after rounded activations. PyTorch's new exporter is used if onnxscript is
    installed, otherwise the tracing one. One ONNX file cannot hold 2 GiB of float weights or more.

    Examples
    --------
    >>> from heterocompute.interop import torch as ht
    >>> small = ht.convert(torch.nn.Linear(64, 8), "int4-g32", activations="int8")
    >>> ht.export_onnx(small, torch.ones(1, 64), "small.onnx")  # doctest: +SKIP
    """
    onnx = onnx_of("onnx")
    packed = {layer.name: layer for layer in every_layer(model, "export_onnx") if layer.packed is not None}
    if not packed:
        raise WrongValue("export_onnx: model has no packed weight, expected what convert returned")
    for name, layer in packed.items():
        weight = layer.packed
        assert weight is not None
        _check(name, weight, layer.module)
        if layer.kind.startswith("embedding") and weight.dtype != torch.float32:
            raise WrongValue(f"export_onnx: {quoted(name)} has dtype {weight.dtype}, expected float32: model.float()")
    proto = _exported(with_floats(model), example, options)
    proto = onnx.version_converter.convert_version(proto, OPSET) if _opset(proto) < OPSET else proto
    graph = proto.graph
    held = {one.name: one for one in graph.initializer}
    added: list[Any] = []
    for name, layer in packed.items():
        weight = layer.packed
        if weight is None or name not in held:  # tied: the graph has the name of the first weight
            continue
        made = _replaced(onnx, graph, name, weight.array(), layer.module)
        if made is not None:
            added += made
            graph.initializer.remove(held[name])
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*added, *rest])
    for node in graph.node:  # its position in the source code
        del node.metadata_props[:]
    if any(node.domain == "com.microsoft" for node in graph.node):
        proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    write_model(path, proto.SerializeToString())


def _check(name: str, weight: PackedWeight, module: object) -> None:
    """Raise ValueError if ONNX cannot represent a weight or its activations."""
    if not isinstance(module, (Packed, PackedMultiheadAttention, torch.nn.Embedding)):
        raise WrongValue(f"export_onnx: {quoted(name)} is of {type(module).__name__}, expected layers, not experts")
    array, fmt = weight.array(), weight.format
    stored_weight(name, array[:1] if fmt.splits_into_rows and fmt.shared_rows == 1 else array)
    if weight.activations is not None:
        _largest(name, weight.activations)


def _largest(name: str, activations: str) -> int:
    """Return the largest code of a format of activations that has one scale per row; ValueError for others."""
    fmt = parse_format(activations)
    if activations != f"int{fmt.bits}" or fmt.bits > 8:
        raise WrongValue(
            f"export_onnx: activations of {quoted(name)} are {fmt}, expected None or int8: one scale per row"
        )
    return int(2 ** (fmt.bits - 1) - 1)


def rounded(x: torch.Tensor, largest: int | None, dims: tuple[int, ...]) -> torch.Tensor:
    """Round to symmetric integers with one scale over `dims`, in PyTorch's operators."""
    if largest is None:
        return x
    scale = x.abs().amax(dims, keepdim=True) / largest
    codes = torch.round(x / torch.where(scale > 0, scale, torch.ones_like(scale)))
    return torch.clamp(codes, -largest, largest) * scale


def _after_rounding(base: Any, dims: tuple[int, ...]) -> Any:
    """Return a class of layers that round their input first."""

    def forward(self: Any, x: torch.Tensor, *more: Any) -> Any:
        return base.forward(self, rounded(x, self.largest, dims), *more)

    return type(f"Rounding{base.__name__}", (base,), {"forward": forward, "largest": None})


_LINEAR = _after_rounding(torch.nn.Linear, (-1,))
_CONVOLUTIONS = {
    f"{kind}{n}d": _after_rounding(getattr(torch.nn, f"{kind}{n}d"), tuple(range(-n - 1, 0)))
    for kind in ("Conv", "ConvTranspose")
    for n in (1, 2, 3)
}


class _Turned(_LINEAR):  # type: ignore[valid-type,misc]
    """A linear layer that rotates its inputs, and rounds them then."""

    block: int

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(turned(x, self.block))


class _Attention(PackedMultiheadAttention):
    """Attention with float projections that rounds their inputs."""

    largest: int | None = None

    def _projected(self, query: object, key: object, value: object) -> list[Any]:
        made = {id(one): rounded(one, self.largest, (-1,)) for one in (query, key, value)}
        return super()._projected(made[id(query)], made[id(key)], made[id(value)])


def with_floats(model: Any) -> Any:
    """Return a copy of a model with the decoded weights in layers of PyTorch."""
    floats: dict[int, Any] = {}

    def parameter(weight: PackedWeight, module: object) -> Any:
        if id(weight) not in floats:
            values = original(weight.array().dequantize(), module)
            floats[id(weight)] = torch.nn.Parameter(torch.from_numpy(values), requires_grad=False)
        return floats[id(weight)]

    def of(module: Any) -> Any:
        weight = module.weight
        kind = type(module).__name__.removeprefix("Packed")
        with torch.device("meta"):
            if kind in ("Linear", "TurnedLinear"):
                linear = _LINEAR if kind == "Linear" else _Turned
                made = linear(module.in_features, module.out_features, bias=module.bias is not None)
            elif kind in _CONVOLUTIONS:
                names = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups")
                window = {name: getattr(module, name) for name in (*names, "padding_mode")}
                more = {"output_padding": module.output_padding} if module.transposed else {}
                made = _CONVOLUTIONS[kind](**window, **more, bias=module.bias is not None)
            elif kind == "Embedding":
                made = torch.nn.Embedding(*module.weight.shape)
            else:
                more = {name: getattr(module, name) for name in ("mode", "include_last_offset", "padding_idx")}
                made = torch.nn.EmbeddingBag(*module.weight.shape, **more)
        made.weight, made.bias = parameter(weight, module), module.bias
        if kind == "TurnedLinear":
            made.block = module.block
        if weight.activations is not None and hasattr(made, "largest"):
            made.largest = _largest("", weight.activations)
        return carry(module, made)

    def visit(module: Any) -> Any:
        for name, child in list(module._modules.items()):
            if isinstance(child, Packed):
                made.setdefault(id(child), of(child))
                module._modules[name] = made[id(child)]
            elif isinstance(child, PackedWeight):
                del module._modules[name]
                module.register_parameter(name, parameter(child, None))
                if isinstance(module, PackedMultiheadAttention):
                    module.__class__ = _Attention
                    module.largest = None if child.activations is None else _largest("", child.activations)
            elif child is not None:
                visit(child)
        return module

    made: dict[int, Any] = {}
    if isinstance(model, Packed):
        return of(model)
    layers = (one for one in model.modules() if isinstance(one, (Packed, PackedWeight)))
    return visit(copied(model, {}, layers, "export_onnx", "a model without it"))


def _exported(model: Any, example: object, options: Mapping[str, Any]) -> Any:
    """Return the ONNX model of a model of PyTorch."""
    import onnx  # optional

    kwargs = dict(example) if isinstance(example, Mapping) else None
    args = () if kwargs is not None else example if isinstance(example, tuple) else (example,)
    for one in (*args, *(kwargs or {}).values()):
        if not isinstance(one, torch.Tensor):
            raise WrongType(f"export_onnx: example is {shown(one)}, expected tensors, a tuple or a dict of them")
    kinds = {one.dtype for one in model.parameters()} | {one.dtype for one in (*args, *(kwargs or {}).values())}
    kinds = {one for one in kinds if one.is_floating_point} - {torch.float32}
    if kinds:
        raise WrongValue(
            f"export_onnx: model or example has dtype {str(min(kinds, key=str)).removeprefix('torch.')}, expected "
            "float32, as the operators for packed weights are: pass model.float() and float32 examples"
        )
    try:
        with torch.no_grad(), _unfused():
            model(*args, **(kwargs or {}))
    except Exception as problem:  # whatever a model raises
        raise WrongValue(f"export_onnx: the model refuses example: {sentence(problem)}") from problem
    data, modern = io.BytesIO(), find_spec("onnxscript") is not None
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad(), _unfused():
        warnings.simplefilter("ignore")
        if modern:
            program = torch.onnx.export(
                model, args, kwargs=kwargs, dynamo=True, optimize=False, opset_version=OPSET, verbose=False, **options
            )
            return program.model_proto
        torch.onnx.export(
            model, args, data, kwargs=kwargs, dynamo=False, do_constant_folding=False, opset_version=20, **options
        )
    return onnx.load_model_from_string(data.getvalue())


@contextlib.contextmanager
def _unfused() -> Iterator[None]:
    """Keep PyTorch from its fused path of attention and encoder layers, which no exporter supports."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _opset(proto: Any) -> int:
    return max((one.version for one in proto.opset_import if one.domain in ("", "ai.onnx")), default=1)


def _replaced(onnx: Any, graph: Any, name: str, q: QuantizedArray, module: Any) -> list[Any] | None:
    """Replace a weight of a graph; return the nodes to insert before, or None if the floats stay."""
    if q.ndim == 2 and _by_nbits(onnx, graph, name, q):
        return []
    transposed = getattr(module, "transposed", False)
    if transposed and module.groups > 1:
        return None
    nodes, tensors = stored_weight(name, q).nodes(onnx, name, q, module)
    graph.initializer.extend(tensors)
    return nodes


def _by_nbits(onnx: Any, graph: Any, name: str, q: QuantizedArray) -> bool:
    """Replace the matmuls with a weight by MatMulNBits; return False, with nothing changed, if that is impossible."""
    block = q.format.group or min(q.shape[1] & -q.shape[1], 128)  # the power of two in the length of a row
    try:
        parts = operands(f"{name.removesuffix('.weight')}.weight", q, block)
    except ValueError:
        return False
    readers = [node for node in graph.node if name in node.input]
    products: list[tuple[Any, Any, str, list[str], list[str]]] = []
    for node in readers:
        if node.op_type == "Gemm" and _is_plain_gemm(node) and node.input[1] == name:
            products.append((node, node, node.input[0], list(node.input[2:]), list(node.output)))
            continue
        after = [one for one in graph.node if node.output[0] in one.input] if node.op_type == "Transpose" else []
        if not after or any(one.op_type != "MatMul" or one.input[1] != node.output[0] for one in after):
            return False
        products += [(node, one, one.input[0], [], list(one.output)) for one in after]
    if not products:
        return False
    names = {key: f"{name}.{key}" for key in parts}
    graph.initializer.extend(onnx.numpy_helper.from_array(values, names[key]) for key, values in parts.items())
    sizes = {"K": q.shape[1], "N": q.shape[0], "bits": q.format.bits, "block_size": block}
    nodes = list(graph.node)
    for first, node, x, bias, outputs in products:
        inputs = [x, *names.values()]
        if bias:
            inputs += [""] * (5 - len(inputs)) + bias
        made = onnx.helper.make_node("MatMulNBits", inputs, outputs, domain="com.microsoft", **sizes)
        nodes = [made if one is node else one for one in nodes if one is not first or first is node]
    del graph.node[:]
    graph.node.extend(nodes)
    return True


def _is_plain_gemm(node: Any) -> bool:
    """Tell whether a Gemm is x @ W^T + bias."""
    wanted: dict[str, float] = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1}
    found: dict[str, float] = {"transB": 0}
    for one in node.attribute:
        found[one.name] = one.f if one.name in ("alpha", "beta") else one.i
    return all(wanted.get(name) == value for name, value in found.items())
