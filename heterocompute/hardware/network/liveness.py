"""Which outputs are alive while a network runs in its order, and how many elements that is at the worst moment."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .graph import INPUT, Flow, Network
from .layers import BatchNorm2d, LayerNorm
from .plain import Activation, Flatten, Softmax

__all__ = ["IN_PLACE", "last_uses", "live_elements", "peak_elements"]

# Layers that may overwrite their input, if nobody needs it any more.
IN_PLACE = (Activation, BatchNorm2d, Flatten, LayerNorm, Softmax)


def live_elements(network: Network, first: int = 0) -> Iterator[int]:
    """Yield, for each node from `first` on, the elements that are alive while it runs, inputs and output included.

    A value from before `first` is fetched at its first use; every value stays until its last use in the network. So
    the same numbers hold wherever the run of nodes ends.

    Parameters
    ----------
    network : Network
    first : int, optional

    Yields
    ------
    int
        Of one sample.
    """
    flows = network.flows
    uses = last_uses(flows)
    sizes = {INPUT: math.prod(network.input_shape)} | {flow.name: flow.output_elements for flow in flows}
    alive: set[str] = set()
    total = 0
    for i in range(first, len(flows)):
        flow = flows[i]
        fetched = set(flow.node.inputs) - alive
        alive |= fetched
        total += sum(sizes[name] for name in fetched)
        ending = {name for name in flow.node.inputs if uses[name] <= i}
        reused = isinstance(flow.layer, IN_PLACE) and flow.node.inputs[0] in ending
        yield total + (0 if reused else sizes[flow.name])
        alive -= ending
        total -= sum(sizes[name] for name in ending)
        if flow.name in uses:
            alive.add(flow.name)
            total += sizes[flow.name]


def peak_elements(network: Network) -> int:
    """Return the largest number of elements alive at once, input and output included, of one sample.

    Parameters
    ----------
    network : Network

    Returns
    -------
    int
    """
    return max(live_elements(network), default=math.prod(network.input_shape))


def last_uses(flows: Sequence[Flow]) -> dict[str, int]:
    """Return the place of each value's last use; the network's output is used behind the last node.

    Parameters
    ----------
    flows : sequence of Flow

    Returns
    -------
    dict of str to int
    """
    uses = {source: i for i, flow in enumerate(flows) for source in flow.node.inputs}
    if flows:
        uses[flows[-1].name] = len(flows)
    return uses
