"""Runs a torch.nn.Module once under torch's dispatch mode and records a node for every operator.

A value is known by its memory and geometry, not by its object: autograd makes new objects of views. What is made of
parameters alone is no node, unless it multiplies; the parameters behind it count where it is used.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NoReturn

from ...base.errors import printable
from ...base.texts import shortened
from . import aten
from .aten import ACTIVATIONS, ALIASES, MAKERS, MATRICES, is_refused
from .graph import INPUT, Node
from .heads import Experts
from .layers import BatchNorm2d, Conv2d, Embedding, Layer, LayerNorm, Linear, MatMul, Product
from .onnx import Operator
from .plain import Activation, AdaptiveAvgPool2d, Add, Concat, Softmax
from .windows import Shape


class Recorder:
    """Runs a module once, on one sample, or on `stored` samples to record the saved tensors of a backward pass.

    Attributes
    ----------
    nodes : list of Node
    frozen : int
        Parameters that were used and have no gradient.
    prepared : (int, int)
        As `Network.prepared`.
    """

    def __init__(
        self, torch: Any, module: Any, shape: Shape, dtype: object, device: object, stored: int, given: Any = None
    ) -> None:
        self.torch, self.title, self.training, self.samples = torch, type(module).__name__, stored > 0, max(stored, 1)
        self.nodes: list[Node] = []
        self.used_names: dict[str, int] = {}
        self.alive: list[Any] = []  # so that no other tensor gets the memory of these tensors
        self.shapes: dict[str, Shape] = {INPUT: shape}
        self.inside: list[str] = []
        self.leaves = {name for name, one in module.named_modules() if not any(True for _ in one.children())}
        self.counted: set[str] = set()
        self.frozen, self.prepared = 0, (0, 0)
        named, buffers = (aten.parameters_of(module, kind) for kind in ("_parameters", "_buffers"))
        held = {**named, **buffers}
        with torch.device(device):
            if device == "meta":
                results = {id(value): torch.empty_like(value, device="meta") for value in held.values()}
                held = {name: results[id(one)].requires_grad_(one.requires_grad) for name, one in held.items()}
            if given is None:
                args, options = (torch.zeros((self.samples, *shape), dtype=dtype),), {}
            else:
                args, options = given.placed(device)
            inputs = [one for one in (*args, *options.values()) if isinstance(one, torch.Tensor)]
            x = inputs[0]
        self.held: dict[Any, tuple[str, ...]]
        self.held = {}  # tied parameters have their first name
        for name, value in held.items():
            self.held.setdefault(self.key(value), (name,) if name in named else ())
        self.sizes = {name: value.numel() for name, value in held.items() if name in named}
        for name, one in module.named_modules():
            if aten.is_packed(one):
                self.sizes[name] = math.prod(one.shape)
                self.held.update({self.key(held[f"{name}.{part}".lstrip(".")]): (name,) for part in one._buffers})
        self.used: set[Any] = set()
        self.computes, self.entered = False, dict[str, Any]()  # the inputs of transposed convolutions
        self.parents = {f"{name}.weight".lstrip("."): one for name, one in module.named_modules()}
        self.sources = {self.key(x): INPUT}
        self.owners: dict[Any, str | None] = {self.memory(x): INPUT}  # None: of parameters, or computed from them
        self.owners.update(dict.fromkeys(map(self.memory, held.values())))
        self.given = set(self.owners)
        self.saved: dict[Any, Any] = {}
        self.alive += [*inputs, *held.values()]
        for i, one in enumerate(inputs[1:]):
            self.add(f"input{i + 2}", Operator("input", self.sample(one)), [INPUT], [one])
        self.used.clear()
        hooks = [hook for name, one in module.named_modules() for hook in self._hooks(name, one)]
        try:
            with torch.device(device), self._mode(), self._saving():
                torch.func.functional_call(module, held, args, options, tie_weights=False)
        finally:
            for hook in hooks:
                hook.remove()
        if self.computes and not any(self.key(one) in self.used for one in inputs):
            raise aten.Refusal(
                f"{self.title}: the forward pass does not use its input, expected inputs= with the tensors that the "
                "model reads, such as inputs={'input_ids': (8,)}"
            )
        frozen = {name for name in self.counted if name not in named or not named[name].requires_grad}
        self.frozen = sum(self.sizes[name] for name in frozen)
        if self.training:
            self._note_saved()

    def _hooks(self, name: str, module: Any) -> tuple[Any, Any]:
        def enter(_: object, inputs: Any) -> None:
            self.inside.append(name)
            if getattr(module, "transposed", False) and inputs:
                self.entered[name] = inputs[0]

        def leave(*_: object) -> None:
            self.inside.pop()

        return module.register_forward_pre_hook(enter), module.register_forward_hook(leave, always_call=True)

    def _mode(self) -> Any:
        recorder = self

        class Mode(self.torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]
            def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
                options = kwargs or {}
                if not hasattr(func, "decompose"):
                    recorder.refuse(f"{func}")
                with self:  # operators that consist of others and that torch has not decomposed
                    out = func.decompose(*args, **options)
                if out is NotImplemented:
                    out = func(*args, **options)
                    recorder.record(func.namespace, func.overloadpacket.__name__, args, options, out)
                return out

        return Mode()

    def _saving(self) -> Any:
        def pack(tensor: object) -> Any:
            self.saved.setdefault(self.memory(tensor), tensor)
            return tensor

        if not self.training:
            return contextlib.nullcontext()
        return self.torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)

    def _note_saved(self) -> None:
        """Add to each node the parts of its memory that autograd saved; the output of the network counts elsewhere."""
        stored = dict.fromkeys([None, INPUT, *(node.name for node in self.nodes)], (0, 0))
        output = self.root(self.nodes[-1].name) if self.nodes else INPUT
        outputs = {memory for memory, owner in self.owners.items() if owner == output}
        for memory, tensor in self.saved.items():
            if memory in self.given or memory in outputs and self.is_output(tensor):
                continue
            size = tensor.untyped_storage().nbytes() if self.is_plain(tensor) else tensor.numel() * tensor.itemsize
            owner = self.owners.get(memory)
            elements, rest = stored[owner]
            if tensor.dtype.is_floating_point:
                stored[owner] = elements + size // tensor.itemsize, rest
            else:
                stored[owner] = elements, rest + size
        self.prepared = stored[None]
        stored = {
            name: (-(-elements // self.samples), -(-rest // self.samples)) for name, (elements, rest) in stored.items()
        }
        first = self.nodes[0].name if self.nodes else None
        stored[first] = (stored[first][0] + stored[INPUT][0], stored[first][1] + stored[INPUT][1])
        self.nodes = [replace(node, kept=stored[node.name]) for node in self.nodes]

    def is_output(self, tensor: Any) -> bool:
        """Tell whether a tensor of the last node's memory is its output, and not a statistic or an index."""
        return bool(
            tensor.numel() == self.samples * math.prod(self.shapes[self.nodes[-1].name])
            and tensor.dtype.is_floating_point
        )

    def root(self, name: str) -> str:
        """Return the node whose memory a node's output uses."""
        memory_of_node = {node.name: node.memory_of for node in self.nodes}
        while (base := memory_of_node.get(name)) is not None:
            name = base
        return name

    def is_plain(self, tensor: Any) -> bool:
        """Tell whether a tensor is a view of memory, not sparse and not an object of another class."""
        return bool(tensor.layout == self.torch.strided and hasattr(tensor, "untyped_storage"))

    def memory(self, tensor: Any) -> Any:
        """Return a key that is equal for all views of one memory."""
        try:
            return tensor.untyped_storage()._cdata
        except (RuntimeError, NotImplementedError, AttributeError):
            return id(tensor)

    def key(self, tensor: Any) -> Any:
        """Return a key that is equal for two tensors with the same values."""
        memory = self.memory(tensor)
        if not self.is_plain(tensor):
            return memory
        return memory, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype

    def tensors(self, values: Iterable[Any]) -> list[Any]:
        """Return the tensors among arguments, including tensors in lists."""
        found = []
        for value in values:
            if isinstance(value, (list, tuple)):
                found += self.tensors(value)
            elif isinstance(value, self.torch.Tensor):
                found.append(value)
        return found

    def is_fed(self, tensor: object) -> bool:
        """Tell whether a tensor is an activation."""
        return self.key(tensor) in self.sources and self.key(tensor) not in self.held

    def behind(self, *tensors: object) -> tuple[str, ...]:
        """Return the names of the parameters that tensors are, or are computed from."""
        return tuple(dict.fromkeys(name for one in tensors for name in self.held.get(self.key(one), ())))

    def take(self, names: Iterable[str]) -> int:
        """Return the number of parameters of these names that were not counted before, and count them."""
        new = set(names) - self.counted
        self.counted |= new
        return sum(self.sizes[name] for name in new)

    def record(self, namespace: str, kind: str, args: Any, options: Any, out: object) -> None:
        """Record an operator and its results."""
        given, results = self.tensors([*args, *options.values()]), self.tensors([out])
        self.alive += results
        if results and not any(one.numel() for one in results):  # such as a slice that a configuration leaves empty
            return
        kind = kind if kind == "_" else kind.rstrip("_")
        fed = [one for one in given if self.is_fed(one)]
        self.used.update(map(self.key, fed))
        held = self.behind(*given)
        self.computes = self.computes or bool(fed or given and all(self.is_parameter(one) for one in given))
        if namespace == aten.OWN and kind in aten.OWN_PRODUCTS:
            self.packed(kind, args, results)
            return
        multiplies = kind in MATRICES or kind == "convolution" or kind == "_trilinear"
        if fed or held:
            weighted = kind.startswith("_embedding_bag") and any(one.is_floating_point() for one in given[1:])
            unread = not multiplies and "scaled_dot_product" not in kind and is_refused(namespace, kind)
            unread = unread and (namespace, kind) not in aten.OWN_OTHERS
            if unread or weighted:
                self.refuse(kind if namespace == "aten" else f"{namespace}::{kind}")
        if multiplies:
            self.multiply(kind, args, given, results)
            return
        if "scaled_dot_product" in kind:
            layer, sources = self.attention(args)
            self.add(kind, layer, sources, results)
            return
        if kind in MAKERS or not fed:
            for one in results if fed else []:  # such as the noise of a dropout, which is as large as a sample
                self.owners.setdefault(self.memory(one), self.sources[self.key(fed[0])])
            if any(self.key(one) in self.held for one in given):  # a view of parameters, or computed from them alone
                self.held.update({self.key(one): held for one in results})
                for one in results:
                    self.owners.setdefault(self.memory(one), None)
            return
        if "batch_norm" in kind:  # statistics have no batch
            self.owners.update(dict.fromkeys(map(self.memory, results[1:])))
            results = results[:1]
        known, sources = self.layer(kind, args, fed, results, held)
        if known is not None:
            self.add(kind, known, sources, results)
            return
        for one in results:
            shape, source = self.sample(one), self.sources[self.key(fed[0])]
            same = len(fed) == 1 and not held and self.shapes[source] == shape and kind in ALIASES
            if same and (not self.training or self.memory(one) in self.owners):
                self.sources[self.key(one)] = source
                self.owners.setdefault(self.memory(one), source)
                continue
            self.add(kind, Operator(kind, shape, self.take(held)), [self.sources[self.key(x)] for x in fed], [one])

    def add(self, kind: str, layer: Layer, sources: list[str], results: list[Any]) -> str:
        """Append a node with the name of the module that runs it."""
        base = self.inside[-1] if self.inside else ""
        plain = isinstance(layer, Operator) or base in self.used_names or not base
        name = f"{base}.{kind}".lstrip(".") if plain else base
        found = name
        while found in self.used_names:
            self.used_names[name] += 1
            found = f"{name}'{self.used_names[name]}"
        self.used_names[found] = 1
        inputs = tuple(dict.fromkeys(sources)) if len(sources) > 2 else tuple(sources)
        memory_of = self.owners.get(self.memory(results[0])) if results else None
        self.nodes.append(Node(found, layer, inputs, memory_of))
        self.shapes[found] = layer.output_shape(*(self.shapes[one] for one in inputs))
        for one in results[:1]:
            self.sources[self.key(one)] = found
        for one in results:
            self.held.pop(self.key(one), None)  # it was written in place
            if self.owners.get(self.memory(one)) is None:
                self.owners[self.memory(one)] = found
        return found

    @property
    def functional(self) -> bool:
        """Tell whether a function is called and not a module: counters that hook modules miss it."""
        return not self.inside or self.inside[-1] not in self.leaves

    def layer(
        self, kind: str, args: Any, fed: list[Any], results: list[Any], held: tuple[str, ...]
    ) -> tuple[Layer | None, list[str]]:
        """Return the layer that describes an operator, and the names of its inputs; None if no layer does."""
        x = fed[0]
        first = [self.source(x)]
        new = not set(held) & self.counted
        if kind.endswith("batch_norm") or "batch_norm_legit" in kind:
            if x.dim() == 4 and new and self.total(held) in (0, 2 * x.shape[1]):
                self.take(held)
                return BatchNorm2d(int(x.shape[1]), bool(held)), first
        elif kind == "native_layer_norm" and len(args[1]) == 1 and new and args[2] is not None:
            bias = args[3] is not None
            if self.total(held) == (1 + bias) * args[1][0]:
                self.take(held)
                return LayerNorm(int(args[1][0]), bias), first
        elif kind == "embedding" and new and self.total(held) == args[0].numel() and self.is_fed(args[1]):
            source = self.source(args[1])
            if len(self.shapes[source]) == 1:
                self.take(held)
                return Embedding(*map(int, args[0].shape)), [source]
        elif kind in ACTIVATIONS:
            return Activation(ACTIVATIONS[kind], self.functional), first
        elif kind in ("_softmax", "softmax") and args[1] in (-1, x.dim() - 1):
            return Softmax(), first
        elif kind == "add" and len(fed) == 2 and fed[0].shape == fed[1].shape and not held:
            return Add(), [self.source(one) for one in fed]
        elif kind == "cat" and args[1:] == (1,) and len(fed) == len(args[0]) and x.shape[0] == self.samples:
            return Concat(), [self.source(one) for one in fed]
        elif kind == "_adaptive_avg_pool2d" and x.dim() == 4:
            return AdaptiveAvgPool2d(tuple(args[1]), self.functional), first
        elif kind == "mean" and x.dim() == 4 and results[0].shape == (*x.shape[:2], 1, 1):
            return AdaptiveAvgPool2d(1, self.functional), first
        elif kind in ("max_pool2d_with_indices", "avg_pool2d") and x.dim() == 4:
            return aten.pool(kind, args), first
        return None, []

    def total(self, names: Iterable[str]) -> int:
        return sum(self.sizes[name] for name in names)

    def source(self, tensor: object) -> str:
        """Return the node whose output a tensor is; a tensor that depends on no activation becomes a constant."""
        if not self.is_fed(tensor):
            held = self.take(self.behind(tensor))
            name = self.add("constant", Operator("constant", self.sample(tensor), held), [INPUT], [])
            self.sources.setdefault(self.key(tensor), name)
            return name
        return self.sources[self.key(tensor)]

    def multiply(self, kind: str, args: Any, given: list[Any], results: list[Any]) -> None:
        """Add the node of a product of matrices, a convolution or a bilinear form, and count its parameters exactly."""
        if any(not self.is_plain(one) for one in given):
            self.refuse(f"{kind} of a sparse matrix")
        if kind == "_grouped_mm" and (args[0].dim(), args[1].dim()) != (2, 3):
            self.refuse(f"{kind} of operands with {args[0].dim()} and {args[1].dim()} dimensions")
        if kind == "convolution":
            (x, weight), bias = args[:2], args[2]
        elif kind == "_trilinear":
            return self.bilinear(args, results)
        else:
            x, weight = (args[place] for place in MATRICES[kind])
            bias = args[0] if min(MATRICES[kind]) else None
        values = [one for one in (x, weight) if not self.behind(one) and not self.is_parameter(one)]
        shape = self.sample(results[0])
        sizes = aten.convolved(args, results[0]) if kind == "convolution" else aten.multiplied(kind, x, weight)
        if not values:
            self.prepare(kind, sizes, shape, self.behind(x, weight), results)
            return
        if self.is_parameter(x) and not self.is_parameter(weight):  # W @ x: weights are n x k of sizes
            x, weight = weight, x
            if kind != "convolution":
                sizes = (sizes[0], sizes[2], sizes[1], sizes[3])
        names = self.behind(x, weight)
        bias_names = self.behind(*(one for one in (bias,) if one is not None))
        sources = [self.source(one) for one in values]
        if bias is not None and not bias_names and self.is_fed(bias):
            sources.append(self.source(bias))
        new, biases = self.take(names), self.take(bias_names)
        layer = self.known(kind, args, x, weight, sources, shape, bool(biases), new)
        rest = new + biases - layer.params if layer is not None else 0
        if layer is None:
            title = f"transposed {kind}" if kind == "convolution" and args[6] else kind
            layer = Product(title, sizes, shape, new, biases)
        elif rest:  # such as the magnitudes of a normalized weight
            first = self.shapes[sources[0]]
            held = Operator("parameters", first, rest)
            sources[0] = self.add("parameters", held, [sources[0]], [])
            self.nodes[-1] = replace(self.nodes[-1], memory_of=self.nodes[-1].inputs[0])
        self.add(kind, layer, sources, results)

    def packed(self, kind: str, args: Any, results: list[Any]) -> None:
        """Add the node of an operator of this package, whose weight is packed."""
        x, parts, shape = args[0], args[1], tuple(json.loads(args[2])["shape"])
        source = self.source(x)
        names = self.behind(*parts)
        whole = self.total(names) == math.prod(shape)
        new = self.take(names)
        out, shared = self.sample(results[0]), new < math.prod(shape)
        layer: Layer
        if kind == "rows":
            layer = Embedding(*shape) if whole and not shared else Operator("embedding", out, new)
            if len(self.shapes[source]) != 1:
                layer = Operator("embedding", out, new)
        elif kind == "linear":
            n, k = shape
            fits = (whole and not shared or new == 0) and self.shapes[source][-1:] == (k,)
            positions = x.numel() // k
            layer = Linear(k, n, False, shared) if fits else Product("linear", (1, positions, n, k), out, new)
        else:
            parent: Any = self.parents.get(names[0]) if names else None
            before = None
            if getattr(parent, "transposed", False):
                before = self.entered[names[0].removesuffix("weight").rstrip(".")]
            layer = aten.packed_convolution(shape, args[3], parent, before, results[0], out, new, shared)
            try:
                fits = layer.output_shape(self.shapes[source]) == out
            except ValueError:
                fits = False
            if not fits:
                layer = Product("convolution", aten.packed_sizes(shape, args[3], results[0]), out, new)
        self.add(kind, layer, [source], results)

    def prepare(
        self, kind: str, sizes: tuple[int, int, int, int], shape: Shape, names: tuple[str, ...], results: list[Any]
    ) -> None:
        """Add the node of a matmul of two parameters, and mark its results as parameters.

        Matmuls with a vector get no node, as in torch's own counter: they compute norms of weights.
        """
        if min(sizes[1:3]) > 1:
            self.add(kind, Product(kind, sizes, shape, once=True), [INPUT], [])
        for weight in results:
            self.held[self.key(weight)] = names
            self.owners.setdefault(self.memory(weight), None)

    def is_parameter(self, tensor: object) -> bool:
        """Return True if a tensor is a parameter, a buffer, or computed only from them."""
        return self.key(tensor) in self.held

    def known(
        self, kind: str, args: Any, x: Any, weight: Any, sources: list[str], shape: Shape, bias: bool, new: int
    ) -> Layer | None:
        """Return our layer for a product; None if there is none."""
        layer: Layer | None = None
        if len(sources) == 1 and self.is_parameter(weight) and not self.is_parameter(x):
            shared = new < weight.numel()
            if kind in ("mm", "addmm") and weight is args[MATRICES[kind][1]]:
                layer = Linear(int(weight.shape[0]), int(weight.shape[1]), bias, shared)
            elif (
                kind == "convolution"
                and weight is args[1]
                and weight.dim() == 4
                and not args[6]
                and x.shape[0] == self.samples
            ):
                (k, c, r, s), groups = map(int, weight.shape), int(args[8])
                down, around, apart = ((int(one[0]), int(one[-1])) for one in args[3:6])
                layer = Conv2d(c * groups, k, (r, s), down, around, apart, groups, bias, shared)
            elif kind == "_grouped_mm" and not shared:  # every row was given to one expert
                experts, k, n = map(int, weight.shape)
                layer = Experts(k, n, experts, 1)
        elif len(sources) == 2 and kind in ("mm", "bmm"):
            layer = MatMul()
        try:
            fits = layer is not None and layer.output_shape(*(self.shapes[one] for one in sources)) == shape
        except ValueError:
            fits = False
        return layer if fits else None

    def bilinear(self, args: Any, results: list[Any]) -> None:
        """Add a bilinear form: each output is the sum of a matrix times the outer product of two vectors."""
        a, weight, b = args[:3]
        values = [one for one in (a, b) if self.is_fed(one)]
        if not values or not self.is_parameter(weight):
            self.refuse("bilinear form of parameters or of activations alone")
        out, first, second = map(int, (weight.shape[-3], weight.shape[-2], weight.shape[-1]))
        positions = a.numel() // first
        sources = [self.source(one) for one in values]
        sizes = (1, positions, out, first * second)
        self.add("bilinear", Product("bilinear", sizes, self.sample(results[0]), self.take(self.behind(a, weight, b))),
                 sources, results)  # fmt: skip

    def attention(self, args: Any) -> tuple[Layer, list[str]]:
        """Return the second product of attention; scores and their softmax become nodes."""
        query, key, value = (self.source(one) for one in args[:3])
        (*_, m, d), (*_, n, _), (*_, width) = (tuple(map(int, one.shape)) for one in args[:3])
        heads = math.prod(map(int, args[0].shape[:-2]))
        scores = self.add("scores", Product("scores", (heads, m, n, d), (heads, m, n)), [query, key], [])
        weights = self.add("softmax", Softmax(), [scores], [])
        shape = (*self.shapes[query][:-1], width)
        return Product("context", (heads, m, width, n), shape), [weights, value]

    def sample(self, tensor: Any) -> Shape:
        """Return the shape without the batch of one; if an operator has merged it, axis 0 is something else."""
        shape = tuple(int(size) for size in tensor.shape)
        if shape and shape[0] % self.samples == 0:
            parts = shape[0] // self.samples
            return shape[1:] if parts == 1 else (parts, *shape[1:])
        return shape

    def refuse(self, what: str) -> NoReturn:
        place = printable(shortened(self.inside[-1] if self.inside else ""))
        raise aten.Refusal(f"{self.title}: {place or 'it'} has a {printable(shortened(what, 80))}, which is not read")
