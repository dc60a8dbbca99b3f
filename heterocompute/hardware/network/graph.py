"""Networks as graphs of layers, and the shapes that flow through them.

A network is a list of nodes, each with a layer and the names of the nodes that feed it; ``"input"`` is the input.
A list of layers is a chain. Composite layers become nodes of their own: `Attention` is four linear layers, two
products and a softmax.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...base.cached import cached
from ...base.errors import WrongType, WrongValue, shown
from ...base.notebooks.shown import Facts
from ...base.values import as_list, check_count, check_fields, check_text
from .heads import FusedAttention, Sinks
from .layers import Context, Layer, Linear, Scores
from .loops import Loops, loops_of
from .plain import Add, Softmax
from .windows import Shape

INPUT = "input"


@dataclass(frozen=True)
class Attention:
    """Multi-head self-attention over (positions, width), for lists of layers.

    Parameters
    ----------
    width : int
    heads : int
    kv_heads : int, optional
        Heads of keys and values, if query heads share them. Default: `heads`.
    bias : bool, optional
    residual : bool, optional
        Whether the input is added to the output.
    """

    width: int
    heads: int
    kv_heads: int | None = None
    bias: bool = True
    residual: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.width % self.heads:
            raise WrongValue(f"Attention: width is {self.width}, expected a positive multiple of heads {self.heads}")
        Scores(self.heads, self.kv_heads)

    def add_to(self, builder: Builder, name: str, source: str) -> str:
        """Append the nodes, and return the name of the last one."""
        kv_width = self.width // self.heads * (self.kv_heads or self.heads)
        query = builder.add(f"{name}.query", Linear(self.width, self.width, self.bias), source)
        key = builder.add(f"{name}.key", Linear(self.width, kv_width, self.bias), source)
        value = builder.add(f"{name}.value", Linear(self.width, kv_width, self.bias), source)
        scores = builder.add(f"{name}.scores", Scores(self.heads, self.kv_heads), query, key)
        weights = builder.add(f"{name}.softmax", Softmax(), scores)
        mixed = builder.add(f"{name}.context", Context(self.heads, self.kv_heads), weights, value)
        last = builder.add(f"{name}.output", Linear(self.width, self.width, self.bias), mixed)
        return builder.add(f"{name}.add", Add(), source, last) if self.residual else last


@dataclass(frozen=True)
class Node:
    """A layer in a network, with its inputs.

    Parameters
    ----------
    name : str
    layer : Layer
    inputs : tuple of str
        Names of the nodes that feed it.
    memory_of : str, optional
        Node whose memory holds the output, because this node is a view of it or overwrites it. Default: own memory.
    kept : (int, int), optional
        What a backward pass needs of this node: elements of the network's type, and bytes of other types, of one
        sample. Default: the whole output.
    """

    name: str
    layer: Layer
    inputs: tuple[str, ...]
    memory_of: str | None = None
    kept: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_fields(self, ("kept",))
        if not isinstance(self.layer, Layer):
            raise WrongType(f"Node: layer is {shown(self.layer)}, expected a layer such as hw.layers.Linear(...)")
        if not self.inputs or not all(isinstance(name, str) for name in as_list(self.inputs, "Node: inputs", "names")):
            raise WrongType(f"Node: inputs is {shown(self.inputs)}, expected names of nodes")
        object.__setattr__(self, "inputs", tuple(self.inputs))


@dataclass(frozen=True)
class Flow:
    """A node with the shapes of one sample."""

    node: Node
    inputs: tuple[Shape, ...]
    output: Shape

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def layer(self) -> Layer:
        return self.node.layer

    @cached
    def macs(self) -> int:
        return self.layer.macs(*self.inputs)

    @property
    def input_elements(self) -> int:
        return sum(math.prod(shape) for shape in self.inputs)

    @property
    def output_elements(self) -> int:
        return math.prod(self.output)


@dataclass(frozen=True)
class Network(Facts):
    """A graph of layers with its input shape.

    Parameters
    ----------
    name : str
    nodes : tuple of Node
        In topological order: each node after its inputs.
    input_shape : tuple of int
        Shape of one sample, without a batch: (channels, height, width), (positions,) of tokens, (width,).
    note : str, optional
        Which definition of the network this is.
    frozen : int, optional
        Parameters that are not trained.
    prepared : (int, int), optional
        What a backward pass needs of values computed from parameters only, for any batch: elements and bytes, as in
        `Node.kept`.
    leaves_out : str, optional
        What is missing, such as the branches of conditionals that are not counted.
    decoder : tuple of Node, optional
        The nodes that generate single tokens, if they differ from those that read a prompt.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> hw.networks["resnet50"].output_shape
    (1000,)
    """

    name: str
    nodes: tuple[Node, ...]
    input_shape: Shape
    note: str = ""
    frozen: int = 0
    prepared: tuple[int, int] = (0, 0)
    leaves_out: str = ""
    decoder: tuple[Node, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, ("frozen", "prepared"))
        object.__setattr__(self, "input_shape", check_shape(self.input_shape))
        nodes = as_list(self.nodes, "Network: nodes", "a sequence of Node")
        if not all(isinstance(node, Node) for node in nodes):
            raise WrongType(f"Network: nodes is {shown(self.nodes)}, expected a sequence of Node")
        object.__setattr__(self, "nodes", tuple(nodes))
        known = {INPUT}
        for node in self.nodes:
            for source in node.inputs:
                if source not in known:
                    raise WrongValue(
                        f"network {shown(self.name)}: {shown(node.name)} has the input {shown(source)}, which is "
                        "not an earlier node"
                    )
            if node.name in known:
                raise WrongValue(f"network {shown(self.name)}: two nodes have the name {shown(node.name)}")
            known.add(node.name)

    def with_input(self, shape: Sequence[int]) -> Network:
        """Return the network with another input shape.

        Parameters
        ----------
        shape : sequence of int
            Shape without a batch.

        Returns
        -------
        Network
        """
        found = check_shape(shape)
        if found == self.input_shape:
            return self
        nodes = tuple(replace(node, kept=None) for node in self.nodes)  # the kept tensors belonged to another input
        return replace(self, input_shape=found, nodes=nodes)

    def decoding(self, context: int) -> Network:
        """Return a transformer that generates one token, with cached keys and values of `context` tokens.

        Parameters
        ----------
        context : int
            A layer with a sliding window has the cache of its window, if the window is shorter.

        Returns
        -------
        Network

        Raises
        ------
        ValueError
            The network has no attention, or its input is not tokens.
        """
        if len(self.input_shape) != 1 or not any(isinstance(node.layer, Scores) for node in self.nodes):
            raise WrongValue(
                f"network {shown(self.name)}: only a network of tokens with attention generates tokens one by one"
            )
        context = check_count("decoding", "context", context, 0)
        nodes = tuple(
            replace(node, layer=replace(node.layer, cached=min(context, (node.layer.window or context + 1) - 1)))
            if isinstance(node.layer, (Scores, Context))
            else node
            for node in self.decoder or self.nodes
        )
        return Network(self.name, nodes, (1,), f"one token after {context}")

    def fused_attention(self) -> Network:
        """Return a transformer that reads a whole prompt, whose attention scores stay on chip.

        Each attention is one operation with queries, keys and values as inputs, as FlashAttention computes it. This is
        for `roofline` and `memory`. An accelerator would map both products as one.

        Returns
        -------
        Network

        Raises
        ------
        ValueError
            No attention of the network consists of scores, softmax and their product with the values, or it generates
            single tokens.

        Examples
        --------
        >>> from heterocompute import hardware as hw
        >>> prompt = hw.networks["llama_7b"]
        >>> [round(1e3 * hw.roofline(one, "h100-sxm").seconds) for one in (prompt, prompt.fused_attention())]
        [33, 30]
        """
        known = {node.name: node for node in self.nodes}
        fused: dict[str, Node] = {}
        inside: set[str] = set()
        for node in self.nodes:
            if not isinstance(node.layer, Context) or node.layer.cached:
                continue
            chain = [known[node.inputs[0]]]
            while isinstance(chain[-1].layer, (Sinks, Softmax)):
                chain.append(known[chain[-1].inputs[0]])
            first = chain[-1]
            if isinstance(first.layer, Scores):
                sinks = any(isinstance(one.layer, Sinks) for one in chain)
                layer = FusedAttention(node.layer.heads, node.layer.kv_heads or node.layer.heads, sinks)
                fused[node.name] = replace(node, layer=layer, inputs=(*first.inputs, node.inputs[1]), kept=None)
                inside.update(one.name for one in chain)
        if not fused:
            raise WrongValue(f"network {shown(self.name)}: has no attention over a whole prompt that could be fused")
        nodes = tuple(fused.get(node.name, node) for node in self.nodes if node.name not in inside)
        return replace(self, nodes=nodes)

    @property
    def stream(self) -> int:
        """Return the elements of one sample between two blocks: the last sum of two tensors (positions, width).

        Heads together can be wider or narrower than this, such as 8192 and 5120 in Qwen3 32B.

        Returns
        -------
        int
            0 without such a sum.
        """
        sums = (flow.output for flow in self if isinstance(flow.layer, Add) and len(flow.output) == 2)
        return max((math.prod(shape) for shape in sums), default=0)

    @cached
    def flows(self) -> tuple[Flow, ...]:
        """Return every node with its shapes.

        Raises
        ------
        ValueError
            The shapes do not match; the message names the node, its input and the expected shape.
        """
        shapes: dict[str, Shape] = {INPUT: check_shape(self.input_shape)}
        found = []
        for node in self.nodes:
            inputs = tuple(shapes[source] for source in node.inputs)
            try:
                output = node.layer.output_shape(*inputs)
            except ValueError as error:
                raise WrongValue(f"network {shown(self.name)}, layer {shown(node.name)}: {error}") from None
            shapes[node.name] = output
            found.append(Flow(node, inputs, output))
        return tuple(found)

    def problems(self, batch: int = 1) -> tuple[Loops, ...]:
        """Return the loops of every layer with a matmul or convolution: C, K, P, Q, R, S, stride, groups, batch.

        Parameters
        ----------
        batch : int, optional

        Returns
        -------
        tuple of Loops
            Pass ``problem()`` of one of them to `hw.mapper.search`.

        Examples
        --------
        >>> from heterocompute import hardware as hw
        >>> sum(layer.macs for layer in hw.networks["resnet50"].problems())
        4089184256
        """
        batch = check_count("problems", "batch", batch)
        return tuple(loops for flow in self.flows if (loops := loops_of(flow, batch)) is not None)

    @property
    def output_shape(self) -> Shape:
        """Return the output shape of the last node, of one sample."""
        return self.flows[-1].output if self.nodes else self.input_shape

    @property
    def params(self) -> int:
        """Return the number of parameters of all layers, including biases."""
        return sum(node.layer.params for node in self.nodes)

    def __iter__(self) -> Iterator[Flow]:
        return iter(self.flows)

    def __repr__(self) -> str:
        return f"<Network {self.name}: {len(self.nodes)} nodes, {self.params:,} parameters, input {self.input_shape}>"


class Builder:
    """Build a network node by node.

    Parameters
    ----------
    name : str
    input_shape : sequence of int
    """

    def __init__(self, name: str, input_shape: Sequence[int]) -> None:
        self.name, self.input_shape = check_text("Builder", "name", name), check_shape(input_shape)
        self.nodes: list[Node] = []

    @property
    def last(self) -> str:
        """Return the name of the node that was added last."""
        return self.nodes[-1].name if self.nodes else INPUT

    def add(self, name: str, layer: Layer, *inputs: str) -> str:
        """Append a node, by default after the last one, and return its name."""
        self.nodes.append(Node(name, layer, inputs or (self.last,)))
        return name

    def build(self, note: str = "") -> Network:
        """Return the network."""
        return Network(self.name, tuple(self.nodes), self.input_shape, note)


def check_shape(shape: Sequence[int]) -> Shape:
    """Return a shape as a tuple of positive integers; ValueError names the invalid axis."""
    found = as_list(shape, "input_shape", "a sequence of integers such as (3, 224, 224)")
    for i, size in enumerate(found):
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not 1 <= size < 2**63:
            raise WrongValue(f"input_shape is {shown(shape)}: axis {i} is {shown(size)}, expected a positive integer")
    return tuple(int(size) for size in found)
