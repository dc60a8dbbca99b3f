"""Liveness: the outputs that are alive while a network runs in its order, and the largest number of their elements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .graph import INPUT, Flow, Network
from .layers import BatchNorm2d, LayerNorm
from .plain import Activation, Flatten, Select, Softmax

# Layers that may overwrite their input if no other layer needs it.
IN_PLACE = (Activation, BatchNorm2d, Flatten, LayerNorm, Softmax)
# Layers whose output is their input's memory.
VIEWS = (Flatten, Select)


def live_elements(network: Network, first: int = 0) -> Iterator[int]:
    """Yield, for each node from `first` on, the elements that are alive while it runs, inputs and output included.

    A value from before `first` is fetched at its first use; every value stays until its last use in the network. So
    the same numbers hold wherever the run of nodes ends.

    Yields
    ------
    int
        Of one sample.
    """
    flows = network.flows
    memory_of_node = memories(flows)
    uses = last_memory_uses(flows, memory_of_node)
    sizes = {INPUT: math.prod(network.input_shape)} | {flow.name: flow.output_elements for flow in flows}
    alive: set[str] = set()
    total = 0
    for i in range(first, len(flows)):
        flow = flows[i]
        inputs, output = [memory_of_node[name] for name in flow.node.inputs], memory_of_node[flow.name]
        fetched = set(inputs) - alive
        alive |= fetched
        total += sum(sizes[name] for name in fetched)
        ending = {name for name in inputs if uses[name] <= i}
        reused = output != flow.name or isinstance(flow.layer, IN_PLACE) and inputs[0] in ending
        yield total + (0 if reused else sizes[output])
        alive -= ending
        total -= sum(sizes[name] for name in ending)
        if output in uses and uses[output] > i and output not in alive:
            alive.add(output)
            total += sizes[output]


def peak_elements(network: Network) -> int:
    """Return the peak number of live elements of one sample, including input and output."""
    return max(live_elements(network), default=math.prod(network.input_shape))


def last_uses(flows: Sequence[Flow]) -> dict[str, int]:
    """Return the index of the last node that uses each value; that of the network's output is ``len(flows)``."""
    uses = {source: i for i, flow in enumerate(flows) for source in flow.node.inputs}
    if flows:
        uses[flows[-1].name] = len(flows)
    return uses


def memories(flows: Sequence[Flow]) -> dict[str, str]:
    """Return, for each value, the value whose memory it uses: itself, except for views and results written in place."""
    memory_of_node = {INPUT: INPUT}
    for flow in flows:
        base = flow.node.memory_of
        if base is None and isinstance(flow.layer, VIEWS):
            base = flow.node.inputs[0]
        memory_of_node[flow.name] = flow.name if base is None else memory_of_node[base]
    return memory_of_node


def last_memory_uses(flows: Sequence[Flow], memory_of_node: dict[str, str]) -> dict[str, int]:
    """Return the place of the last use of each memory, through any of its views."""
    found: dict[str, int] = {}
    for name, place in last_uses(flows).items():
        found[memory_of_node[name]] = max(place, found.get(memory_of_node[name], 0))
    return found


def saved_sizes(network: Network) -> list[tuple[int, int]]:
    """Return the elements and other bytes of each node that a backward pass keeps, except the network's output.

    Where no forward pass has told, every output that has memory of its own.

    Returns
    -------
    list of (int, int)
        Of one sample, as `Node.kept`.
    """
    flows = network.flows
    memory_of_node = memories(flows)
    last = memory_of_node[flows[-1].name] if flows else INPUT
    return [
        flow.node.kept
        if flow.node.kept is not None
        else (flow.output_elements if memory_of_node[flow.name] == flow.name != last else 0, 0)
        for flow in flows
    ]
