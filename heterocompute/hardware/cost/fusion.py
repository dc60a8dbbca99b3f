"""Layers that run one after the other on chip, and the DRAM traffic that remains.

A group of consecutive nodes is fused if its weights and all its live values fit into the SRAM at once. It reads its
weights and outside values once, and writes the values needed outside. The groups with the least traffic are found by
dynamic programming over all cuts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.cached import cached
from ...base.errors import WrongValue
from ...base.notebooks.shown import Facts
from ...base.values import check_count, check_flag
from ..chips.chip import dtype_bits
from ..network.graph import INPUT, Flow, Network
from ..network.layers import AddTable, Embedding
from ..network.liveness import last_uses, live_elements
from ..network.lookup import as_network
from .roofline import is_work, traffic_bits
from .stored import Stored, stored, weight_matrix


@dataclass(frozen=True, repr=False)
class Fusion(Facts):
    """The result of `fuse`. Bytes are per batch.

    Attributes
    ----------
    network : str
    sram_bytes, batch : int
    groups : list of dict
        ``layers`` (names), ``need`` (bytes of SRAM), ``traffic`` (bytes of DRAM), ``fits``. `fits` is False for a
        single layer that is too large and is streamed.
    before, after : int
        DRAM traffic layer by layer, and with the groups.
    operations : int
        Two per multiply-add, including recomputation.
    whole : int
        SRAM size for the whole network: all weights and the largest set of live outputs.
    """

    network: str
    sram_bytes: int
    batch: int
    before: int
    after: int
    operations: int
    whole: int
    groups: list[dict[str, Any]] = field(compare=False)

    @property
    def fits(self) -> bool:
        """Return whether the whole network is one group on chip."""
        return self.whole <= self.sram_bytes

    @property
    def intensity(self) -> float:
        """Return operations per byte of DRAM traffic after fusion."""
        return self.operations / self.after

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON.

        Returns
        -------
        dict
        """
        keys = ("network", "sram_bytes", "batch", "before", "after", "operations", "whole", "fits", "intensity")
        return {**{key: getattr(self, key) for key in keys}, "groups": self.groups}

    def __repr__(self) -> str:
        return (
            f"<Fusion of {self.network}, {self.sram_bytes:,} bytes of SRAM, batch {self.batch}: "
            f"{len(self.groups)} groups, {self.before:,} -> {self.after:,} bytes of DRAM traffic, "
            f"{self.intensity:.4g} operations a byte; "
            f"all of it fits into {self.whole:,} bytes>"
        )


def fuse(
    network: object,
    sram_bytes: float,
    batch: int = 1,
    training: bool = False,
    recompute: bool = False,
    *,
    dtype: str = "fp16",
    format: Any = None,
    input_shape: Sequence[int] | None = None,
) -> Fusion:
    """Find the layers that fuse on a chip with this much SRAM, and the remaining DRAM traffic.

    Parameters
    ----------
    network : Network, str, path or sequence of layers
    sram_bytes : int
        Size in bytes. A float without a fraction, such as 230e6, is accepted.
    batch : int, optional
        Number of samples that pass through a group together.
    training : bool, optional
        Include the backward pass. It reads the outputs of the forward pass and the weights, and writes the gradients of
        the weights. Without `recompute`, every output that the backward pass needs is written to DRAM and read back.
    recompute : bool, optional
        Recompute a group's inner outputs in the backward pass from the group's inputs.
    dtype : str, optional
        Type of activations and plain weights.
    format : Format or str, optional
        Format of the weights.
    input_shape : sequence of int, optional

    Returns
    -------
    Fusion

    Raises
    ------
    ValueError
        A size is not positive, `recompute` is given without `training`, or the network or type is unknown.

    Notes
    -----
    Alwani et al., "Fused-layer CNN accelerators", MICRO 2016.

    Examples
    --------
    >>> from heterocompute import hardware as hw
    >>> f = hw.fuse("resnet50", 230_000_000, dtype="int8")
    >>> f.fits, f.before, f.after
    (True, 47336464, 25708560)
    """
    net = as_network(network, input_shape)
    whole_number = isinstance(sram_bytes, float) and sram_bytes.is_integer()
    sram_bytes = check_count("fuse", "sram_bytes", int(sram_bytes) if whole_number else sram_bytes)
    batch = check_count("fuse", "batch", batch)
    check_flag("fuse", "training", training)
    check_flag("fuse", "recompute", recompute)
    if recompute and not training:
        raise WrongValue("fuse: recompute is True but training is False; only a backward pass computes again")
    sizes = _Sizes(net, dtype_bits(dtype), stored(format, dtype), batch)
    count = len(net.nodes)
    unfused = [sizes.unfused(i, training) for i in range(count)]
    # For each number of nodes: least traffic, groups, begin of the last group, and the SRAM of that group.
    best: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)] + [(math.inf, 0, 0, 0)] * count  # type: ignore[list-item]
    whole = 0
    for begin in range(count):
        traffic, groups = best[begin][:2]
        for run in sizes.runs(begin):
            whole = run.need if begin == 0 else whole
            if run.need > sram_bytes and begin > 0 and run.end > begin + 1:
                break
            single = run.end == begin + 1
            if single or run.need <= sram_bytes:
                cost = unfused[begin] if single else run.traffic(training, recompute)
                best[run.end] = min(best[run.end], (traffic + cost, groups + 1, begin, run.need))
    found: list[dict[str, Any]] = []
    end = count
    while end:
        total, _, begin, need = best[end]
        names = [flow.name for flow in net.flows[begin:end]]
        found.append({"layers": names, "need": need, "traffic": total - best[begin][0], "fits": need <= sram_bytes})
        end = begin
    macs = {flow.name: flow.macs for flow in net}
    again = sum(macs[name] for one in found if len(one["layers"]) > 1 for name in one["layers"]) if recompute else 0
    operations = 2 * batch * (sum(macs.values()) * (3 if training else 1) + again)
    return Fusion(net.name, sram_bytes, batch, sum(unfused), best[-1][0], operations, whole, found[::-1])


@dataclass(frozen=True)
class _Run:
    """Consecutive nodes, in bytes: weights and table rows that are read, values that enter, leave, and stay
    inside but are kept for the backward pass."""

    end: int
    need: int
    weights: int
    weights_read: int
    entering: int
    leaving: int
    inner: int

    def traffic(self, training: bool, recompute: bool) -> int:
        moved = self.weights_read + self.entering + self.leaving
        if not training:
            return moved
        gradients = self.weights + self.entering + self.leaving
        again = self.weights_read + self.entering
        return moved + again + gradients + (0 if recompute else 2 * self.inner)


class _Sizes:
    """Bytes of weights, boundaries and live values of runs of nodes."""

    def __init__(self, net: Network, bits: int, weights: Stored, batch: int) -> None:
        self.net, self.bits, self.batch, self.flows = net, bits, batch, net.flows
        self.weights = [_weight_bytes(flow, bits, weights) for flow in self.flows]
        self.weights_read = [self._weights_read(i) for i in range(len(self.flows))]
        self.values = {INPUT: self._bytes(math.prod(net.input_shape))}
        self.values |= {flow.name: self._bytes(flow.output_elements) for flow in self.flows}
        self.uses = last_uses(self.flows)
        self.ending: dict[int, list[str]] = {}
        for name, place in self.uses.items():
            self.ending.setdefault(place, []).append(name)

    def unfused(self, i: int, training: bool) -> int:
        """Return the traffic of a node on its own; an operation that another applies reads only its parameters."""
        flow = self.flows[i]
        values = 0
        if is_work(flow):
            values = sum(traffic_bits(flow, self.bits, Stored("", None, 0), self.batch)[1:]) // 8
            values = self._bytes(flow.output_elements) if isinstance(flow.layer, Embedding) else values
        moved = self.weights_read[i] + values
        if not training:
            return moved
        saved = sum(self.values[name] for name in flow.node.inputs) if values else 0
        return moved + self.weights_read[i] + self.weights[i] + saved + values

    def runs(self, begin: int) -> Iterator[_Run]:
        """Yield the runs that begin here, longer and longer."""
        inside: set[str] = set()
        seen: set[str] = set()
        weights = weights_read = entering = leaving = inner = peak = 0
        for i, live in enumerate(live_elements(self.net, begin), begin):
            flow = self.flows[i]
            weights, weights_read, peak = (
                weights + self.weights[i],
                weights_read + self.weights_read[i],
                max(peak, live),
            )
            new = set(flow.node.inputs) - inside - seen
            seen |= new
            entering += sum(self.values[name] for name in new)
            inside.add(flow.name)
            leaving += self.values[flow.name] if flow.name in self.uses else 0
            for name in self.ending.get(i, ()):
                if name in inside:
                    leaving -= self.values[name]
                    inner += self.values[name] if name in self.work else 0
            yield _Run(i + 1, weights + self._bytes(peak), weights, weights_read, entering, leaving, inner)

    @cached
    def work(self) -> set[str]:
        return {flow.name for flow in self.flows if is_work(flow)}

    def _weights_read(self, i: int) -> int:
        """Return the bytes of a node's parameters that a pass reads; of a table, only the used rows."""
        layer, flow = self.flows[i].layer, self.flows[i]
        if isinstance(layer, Embedding):
            return min(self.weights[i], self._bytes(flow.output_elements))
        if isinstance(layer, AddTable):
            return min(self.weights[i], -(-flow.output_elements * self.bits // 8))
        return self.weights[i]

    def _bytes(self, elements: int) -> int:
        return -(-self.batch * elements * self.bits // 8)


def _weight_bytes(flow: Flow, bits: int, weights: Stored) -> int:
    matrix = weight_matrix(flow) if flow.layer.weight_params else None
    if matrix is None:
        return -(-flow.layer.params * bits // 8)
    return -(-(weights.of(flow.name).bits(*matrix) + flow.layer.bias_params * bits) // 8)
