"""Rotation of a model's residual stream, folded into its weights: `convert(rotate="residual")`.

    x' = x R;   layers that write x have their outputs rotated, layers that read it their inputs

The stream is found by running the model: sums, and the layers and norms that write and read them. A norm's weight is
multiplied into the layers after it. LayerNorm subtracts the mean, so R then keeps the vector of ones:

    R = H (I - 2 u u^T / u^T u),   u = 1 - H^T 1,   R 1 = 1
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ...base.errors import WrongValue
from ...ptq.hadamard import hadamard
from ..models.batches import Batches, evaluating
from .carrying import copied
from .folding import alike
from .judging import Divided, answer_of, improves
from .turned import WORSE, Turned
from .walk import Layer, every_layer

Array = np.ndarray[Any, Any]
SMALL = 1e-3  # of the largest weight of a norm
ADDS = ("add", "__add__", "__iadd__", "__radd__", "add_")
# Functions that keep the last axis as it is.
PASSES = {
    *("dropout", "to", "float", "type", "type_as", "contiguous", "clone", "detach", "identity", "reshape", "view"),
    *("flatten", "transpose", "permute", "__getitem__", "unsqueeze", "squeeze", "mean", "sum", "expand"),
}


@dataclass
class Node:
    """A call: its kind, its name, and the identities of its tensors."""

    kind: str  # linear, embedding, norm, add, pass, other
    name: str
    inputs: list[int]
    outputs: list[int]


@dataclass
class Graph:
    """The calls of one run; `widths`: the last axis of each tensor."""

    nodes: list[Node] = field(default_factory=list)
    widths: dict[int, int] = field(default_factory=dict)
    returned: set[int] = field(default_factory=set)
    producers: defaultdict[int, list[Node]] = field(default_factory=lambda: defaultdict(list))
    consumers: defaultdict[int, list[Node]] = field(default_factory=lambda: defaultdict(list))
    held: list[Any] = field(default_factory=list)  # tensors, whose identities must stay their own

    def add(self, kind: str, name: str, inputs: Any, outputs: Any) -> None:
        """Note a call, if it returns tensors."""
        made, given = _tensors(outputs), _tensors(inputs)
        if not made or (kind == "pass" and all(any(one is other for other in given) for one in made)):
            return
        self.held += [*given, *made]
        for one in (*given, *made):
            self.widths[id(one)] = one.shape[-1] if one.dim() else 0
        node = Node(kind, name, [id(one) for one in given], [id(one) for one in made])
        self.nodes.append(node)
        for one in {*node.inputs}:
            self.consumers[one].append(node)
        for one in {*node.outputs} - {*node.inputs}:
            self.producers[one].append(node)


def _tensors(given: Any) -> list[Any]:
    if isinstance(given, torch.Tensor):
        return [given]
    if isinstance(given, dict):
        given = given.values()
    elif not isinstance(given, (tuple, list)):
        return []
    return [tensor for one in given for tensor in _tensors(one)]


class _Watch(TorchFunctionMode):
    """Notes the functions that are called outside of layers and norms."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph, self.depth = graph, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        if self.depth == 0:
            name = getattr(func, "__name__", str(func))
            kind = "add" if name in ADDS else "pass" if name in PASSES else "other"
            self.graph.add(kind, name, [args, kwargs or {}], answer)
        return answer


def graph_of(model: Any, linears: dict[str, Layer], source: Batches, batch: Any) -> Graph:
    """Run a model on a batch, and return its calls."""
    graph = Graph()
    watch = _Watch(graph)
    kinds: dict[int, tuple[str, str]] = {}
    for path, module in model.named_modules():
        if path in linears:
            kinds[id(module)] = "linear", path
        elif type(module) is torch.nn.Embedding:
            kinds[id(module)] = "embedding", path
        elif "Norm" in type(module).__name__ and module._parameters.get("weight") is not None:
            kinds[id(module)] = "norm", path

    def begun(module: Any, args: Any) -> None:
        watch.depth += 1

    def ended(module: Any, args: Any, answer: Any) -> None:
        watch.depth -= 1
        if watch.depth == 0:
            graph.add(*kinds[id(module)], args, answer)

    hooks: list[Any] = []
    for module in model.modules():
        if id(module) in kinds:
            hooks += [module.register_forward_pre_hook(begun), module.register_forward_hook(ended)]
    try:
        with evaluating(model), watch:
            answer = source.run(model, batch, 0)
    finally:
        for hook in hooks:
            hook.remove()
    graph.returned = {id(one) for one in _tensors(answer if not hasattr(answer, "to_tuple") else answer.to_tuple())}
    return graph


@dataclass
class Stream:
    """The layers around a residual stream, by path."""

    width: int
    writers: set[str] = field(default_factory=set)
    tables: set[str] = field(default_factory=set)
    readers: dict[str, str] = field(default_factory=dict)  # the norm before, or ""
    norms: set[str] = field(default_factory=set)
    problem: str = ""


def streams_of(graph: Graph) -> list[Stream]:
    """Return the residual streams of a run: the sums of tensors of one width, and what they are connected with."""
    found, done = [], set[int]()
    for node in graph.nodes:
        width = graph.widths[node.outputs[0]]
        if node.kind != "add" or node.outputs[0] in done or [graph.widths[one] for one in node.inputs] != [width] * 2:
            continue
        stream, seen = _stream(graph, node.outputs[0], width)
        done |= seen
        found.append(stream)
    return found


def _stream(graph: Graph, start: int, width: int) -> tuple[Stream, set[int]]:
    stream, seen, todo = Stream(width), set[int](), [start]

    def refuse(words: str) -> None:
        stream.problem = stream.problem or words

    while todo:
        tensor = todo.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        if tensor in graph.returned:
            refuse("the model returns it")
        if graph.widths[tensor] != width:
            refuse("its width changes")
        made = graph.producers[tensor]
        if not made:
            refuse("an input of the model or a parameter is part of it")
        for node in made:
            if node.kind in ("add", "pass"):
                todo += node.inputs
            elif node.kind == "linear":
                stream.writers.add(node.name)
            elif node.kind == "embedding":
                stream.tables.add(node.name)
            else:
                refuse(f"{node.name} writes it, expected sums of linear layers and embeddings")
        for node in graph.consumers[tensor]:
            if node.kind in ("add", "pass"):
                todo += [*node.outputs, *(node.inputs if node.kind == "add" else ())]
            elif node.kind == "linear":
                _read(stream, node.name, "")
            elif node.kind == "norm":
                stream.norms.add(node.name)
                for one in node.outputs:
                    _behind(graph, stream, node.name, one)
            else:
                refuse(f"{node.name} reads it, expected norms and linear layers")
    return stream, seen


def _behind(graph: Graph, stream: Stream, norm: str, tensor: int) -> None:
    """Note the layers that read the output of a norm."""
    if tensor in graph.returned:
        stream.problem = stream.problem or f"the model returns the output of {norm}"
    for node in graph.consumers[tensor]:
        if node.kind == "linear":
            _read(stream, node.name, norm)
        elif node.kind == "pass":
            for one in node.outputs:
                _behind(graph, stream, norm, one)
        else:
            stream.problem = stream.problem or f"{node.name} reads the output of {norm}, expected linear layers"


def _read(stream: Stream, path: str, norm: str) -> None:
    if stream.readers.setdefault(path, norm) != norm:
        stream.problem = stream.problem or f"{path} reads it behind several norms"


def turn_of(width: int, keeps_mean: bool, seed: int = 0) -> Callable[[Array], Array]:
    """Return the function that rotates the last axis by R."""
    if not keeps_mean:
        return lambda x: hadamard(x, seed=seed)
    ones = np.ones((1, width), np.float32)
    u = 1.0 - hadamard(ones, seed=seed)[0].astype(np.float64)  # a row times H: H^T 1
    whole = float(u @ u)

    def turn(x: Array) -> Array:
        found = hadamard(x, seed=seed).astype(np.float64)
        if whole > 1e-12:
            found -= np.multiply.outer(found @ u, u * (2 / whole))
        return found.astype(np.float32)

    return turn


def residual(model: Any, batches: Divided, rounded: Callable[[Any], Any]) -> Turned:
    """Return a copy of a model whose residual streams are rotated, or the model if that is worse.

    Parameters
    ----------
    model : torch.nn.Module
    batches : Divided
        The first batch is run to find the streams.
    rounded : callable
        Returns a model with its layers rounded to nearest. Both roundings are compared on the held-out batches.

    Raises
    ------
    ValueError
        No stream can be rotated; the message has the reason of that with most norms.
    """
    source, batch = batches.source, batches.first
    linears = {layer.path: layer for layer in every_layer(model, "convert") if layer.kind == "linear"}
    linears = {path: layer for path, layer in linears.items() if not layer.problem}
    exact = answer_of(model, source, batch)
    found = streams_of(graph_of(model, linears, source, batch))
    fine = [stream for stream in found if not (stream.problem or _unfit(model, stream, linears))]
    if not fine:
        reason = "the model has no sums of layers"
        if found:
            main = max(found, key=lambda stream: len(stream.norms))
            problem = main.problem or _unfit(model, main, linears)
            reason = f"the stream of {main.width} values cannot be rotated: {problem}"
        raise WrongValue(f"convert: rotate='residual': {reason}")
    shared = {id(one): one for one in model.parameters()}
    small = copied(model, shared, model.modules(), "convert", "a model without it")
    for stream in fine:
        _fold(small, stream, linears)
    if not alike(exact, answer_of(small, source, batch)):
        raise WrongValue(
            "convert: rotate='residual': the rotated model does not compute the outputs of the model, expected layers "
            "that pass the stream on in other ways than sums"
        )
    is_better = improves(model, small, batches, rounded)
    rows: dict[str, dict[str, Any]] = {}
    for stream in fine:
        row = {"rotated": stream.width, "kept": ""} if is_better else {"rotated": 0, "kept": WORSE}
        rows |= {f"{path}.weight": row for path in (*stream.writers, *stream.readers, *stream.tables)}
    return Turned(small if is_better else model, rows)


def _unfit(model: Any, stream: Stream, linears: dict[str, Layer]) -> str:
    """Return why the weights around a stream cannot be rotated; empty if they can."""
    for path in stream.norms:
        norm = model.get_submodule(path)
        if tuple(norm.weight.shape) != (stream.width,) or not _is_known(norm, stream.width):
            return f"{path} is a {type(norm).__name__}, expected LayerNorm or RMSNorm with a weight"
    for path in (*stream.writers, *stream.readers):
        module = model.get_submodule(path)
        if module._parameters.get("weight") is None:
            return f"the weight of {path} is computed by a parametrization"
    try:
        hadamard(np.zeros(stream.width, np.float32))
    except ValueError as problem:
        return str(problem)
    return ""


def _is_known(norm: Any, width: int) -> bool:
    """Tell whether a norm computes LayerNorm or RMSNorm times its weight."""
    if type(norm) is torch.nn.LayerNorm:
        return True
    eps = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    x = torch.linspace(-2, 3, 4 * width).reshape(4, width).sin()
    with torch.no_grad():
        wanted = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * norm.weight.float()
        return bool(torch.allclose(norm(x.to(norm.weight.dtype)).float(), wanted, rtol=1e-2, atol=1e-3))


def _fold(small: Any, stream: Stream, linears: dict[str, Layer]) -> None:
    """Rotate the weights around a stream, in float32."""
    turn = turn_of(stream.width, any(type(small.get_submodule(one)) is torch.nn.LayerNorm for one in stream.norms))
    for path in stream.tables:
        _put(small.get_submodule(path), "weight", turn(_values(small.get_submodule(path).weight)))
    for path, norm_path in stream.readers.items():
        module, is_turned = small.get_submodule(path), linears[path].axis == (0,)
        w = _values(module.weight)
        w = w.T if is_turned else w
        if norm_path:
            norm = small.get_submodule(norm_path)
            if _moves_bias(norm) and norm.bias.any():
                own = 0.0 if module.bias is None else _values(module.bias)
                _put(module, "bias", own + w @ _values(norm.bias))
            w = w * _values(norm.weight)
        w = turn(np.ascontiguousarray(w))
        _put(module, "weight", w.T if is_turned else w)
    for path in stream.norms:
        norm = small.get_submodule(path)
        if norm._parameters.get("bias") is not None:
            moves = _moves_bias(norm)
            _put(norm, "bias", 0 * _values(norm.bias) if moves else turn(_values(norm.bias) / _values(norm.weight)))
        _put(norm, "weight", np.ones(stream.width, np.float32))
    for path in stream.writers:
        module, is_turned = small.get_submodule(path), linears[path].axis == (0,)
        w = _values(module.weight)
        w = turn(w) if is_turned else np.ascontiguousarray(turn(np.ascontiguousarray(w.T)).T)
        _put(module, "weight", w)
        if module.bias is not None:
            _put(module, "bias", turn(_values(module.bias)))


def _moves_bias(norm: Any) -> bool:
    """Tell whether the bias of a norm cannot be divided by its weight, and moves to the layers after it."""
    weight = norm.weight.detach().abs()
    return norm._parameters.get("bias") is not None and bool(weight.min() <= SMALL * weight.max())


def _values(parameter: Any) -> Array:
    found: Array = parameter.detach().float().numpy()
    return found


def _put(module: Any, name: str, value: Array) -> None:
    """Replace a parameter; a weight that is tied to another one is no longer."""
    old = module._parameters.get(name)
    like = module.weight if old is None else old
    made = torch.from_numpy(np.ascontiguousarray(value, np.float32)).to(like.dtype)
    module._parameters[name] = torch.nn.Parameter(made, requires_grad=like.requires_grad)
