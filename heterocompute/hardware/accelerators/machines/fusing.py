"""Layers that run one after the other on a machine's shared buffer, a tile of rows at a time.

A group of consecutive layers computes `rows` rows of its last output at a time. Inner outputs stay in the buffer. Rows
that two tiles need are kept, or computed again. Weights of the group rest in the buffer, or are read for each tile. A
group of one layer is the layer of the report. The groups with the least cost are found by dynamic programming over all
cuts, which is exact because costs of groups add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....base.errors import Unsupported, WrongValue, printable
from ....base.notebooks.shown import Shown
from ....base.values import check_choice, check_count
from ....report.page import rows_html
from ...network.graph import Flow, Network
from ...network.lookup import as_network
from ...network.loops import Loops, loops_of
from ..accelerator import Accelerator, Store
from ..energies import value_bits
from ..mapped import mapped_cost
from ..report import Layer

__all__ = ["FusedNetwork", "fuse_on"]

#: Rows of a tile that are tried one by one; taller outputs try halves, quarters and so on.
MOST_ROWS = 256
MAX_GROUP = 32


@dataclass(frozen=True)
class Group:
    """A way to run consecutive layers.

    Attributes
    ----------
    layers : tuple of str
    rows : int
        Rows of the last output per tile.
    halo : {"kept", "recomputed", ""}
        Rows that two tiles need.
    weights : {"resident", "streamed", ""}
    need : float
        Bytes of the buffer.
    dram_bits, picojoules, cycles : float
    work : float
        Multiply-adds relative to those of the layers, 1 without recomputation.
    """

    layers: tuple[str, ...]
    rows: int
    halo: str
    weights: str
    need: float
    dram_bits: float
    picojoules: float
    cycles: float
    work: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "layers": list(self.layers),
            "rows": self.rows,
            "halo": self.halo,
            "weights": self.weights,
            "need": self.need,
            "dram_bytes": self.dram_bits / 8,
            "energy": self.picojoules * 1e-12,
            "cycles": self.cycles,
            "work": self.work,
        }


@dataclass(frozen=True, repr=False)
class FusedNetwork(Shown):
    """The groups of layers that run together.

    Attributes
    ----------
    machine, network, objective, buffer : str
    batch : int
    clock : float
        Hz.
    groups : list of Group
    unfused : list of Group
        Each layer by itself.
    """

    machine: str
    network: str
    objective: str
    buffer: str
    batch: int
    clock: float
    groups: Sequence[Group] = field(compare=False)
    unfused: Sequence[Group] = field(compare=False)

    @property
    def seconds(self) -> float:
        """Return the time of the whole batch."""
        return math.fsum(one.cycles for one in self.groups) / self.clock

    @property
    def energy(self) -> float:
        """Return J of the whole batch."""
        return math.fsum(one.picojoules for one in self.groups) * 1e-12

    @property
    def dram_bytes(self) -> float:
        """Return the bytes read from and written to DRAM."""
        return math.fsum(one.dram_bits for one in self.groups) / 8

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON.

        Returns
        -------
        dict
        """
        keys = ("machine", "network", "objective", "buffer", "batch", "seconds", "energy", "dram_bytes")
        before = {
            "seconds": math.fsum(one.cycles for one in self.unfused) / self.clock,
            "energy": math.fsum(one.picojoules for one in self.unfused) * 1e-12,
            "dram_bytes": math.fsum(one.dram_bits for one in self.unfused) / 8,
        }
        return {**{key: getattr(self, key) for key in keys}, "unfused": before,
                "groups": [one.to_dict() for one in self.groups]}  # fmt: skip

    def _repr_html_(self) -> str:
        return rows_html(self.to_dict()["groups"], repr(self).strip("<>"))

    def __repr__(self) -> str:
        before = self.to_dict()["unfused"]
        return (
            f"<FusedNetwork: {printable(self.network)} on {self.machine}, {len(self.groups)} groups in "
            f"{printable(self.buffer)}: {before['dram_bytes'] / 1e6:.4g} -> {self.dram_bytes / 1e6:.4g} MB of DRAM, "
            f"{before['energy'] * 1e3:.4g} -> {self.energy * 1e3:.4g} mJ, {before['seconds'] * 1e3:.4g} -> "
            f"{self.seconds * 1e3:.4g} ms>"
        )


def fuse_on(
    network: object,
    chip: Accelerator,
    objective: str,
    batch: int,
    voltage: float | None,
    input_shape: Sequence[int] | None = None,
) -> FusedNetwork:
    """Find the layers that run together on a machine's shared buffer: `Machine.fuse`.

    Parameters
    ----------
    network, objective, batch, input_shape
        As of `Machine.fuse`.
    chip : Accelerator
    voltage : float or None
        V. None: the usual voltage of the process.
    """
    check_choice("fuse", "objective", objective, ("energy", "delay"))
    batch = check_count("fuse", "batch", batch)
    net = as_network(network, input_shape)
    if chip.cost is not mapped_cost:
        raise Unsupported(f"fuse: {chip.name} has no shared buffer: its model counts nonzeros or streams")
    sizes = Sizes(chip, net, batch, voltage)
    layers = sizes.layers
    best: list[tuple[float, list[Group]]] = [(0.0, [])]
    for end in range(1, len(layers) + 1):
        ways = []
        for begin in range(end - 1, max(-1, end - 1 - MAX_GROUP), -1):
            if begin < end - 1 and not sizes.linked[begin]:
                break
            found = sizes.best(begin, end, objective)
            if found is not None:
                ways.append((best[begin][0] + cost_of(found, objective), [*best[begin][1], found]))
        best.append(min(ways, key=lambda way: way[0]))
    alone = [one for place in range(len(layers)) for one in sizes.ways(place, place + 1)]
    return FusedNetwork(chip.name, net.name, objective, sizes.buffer.name, batch, chip.clock, best[-1][1], alone)


def cost_of(group: Group, objective: str) -> float:
    """Return what is minimized."""
    return group.cycles if objective == "delay" else group.picojoules


class Sizes:
    """Bytes, energies and cycles of groups of layers on a machine.

    Parameters
    ----------
    machine : Accelerator
    network : Network
    batch : int
    voltage : float or None
    """

    def __init__(self, machine: Accelerator, network: Network, batch: int, voltage: float | None) -> None:
        self.machine, self.batch = machine, batch
        flows = [flow for flow in network.flows if loops_of(flow, batch) is not None]
        self.loops: list[Loops] = [loops for flow in flows if (loops := loops_of(flow, batch)) is not None]
        if not flows:
            raise WrongValue(f"fuse: {network.name} has no layer with a product")
        self.format = next(iter(machine.formats))
        report = machine.report(network, self.format, batch, zeros={}, voltage=voltage)
        self.layers: list[Layer] = list(report.layers)
        self.stores = list(machine.stores(self.format))
        self.buffer = _shared(machine, self.stores)
        assert isinstance(self.buffer.size, int)
        self.room = self.buffer.size * self.buffer.count
        self.linked = [_linked(network, one, after) for one, after in zip(flows, flows[1:], strict=False)]
        self.bits = {tensor: float(value_bits(self.format, tensor)) for tensor in "WIO"}

    def best(self, begin: int, end: int, objective: str) -> Group | None:
        """Return the best way to run some layers together; None if none fits."""
        return min(self.ways(begin, end), key=lambda one: cost_of(one, objective), default=None)

    def ways(self, begin: int, end: int) -> Iterator[Group]:
        """Yield the ways to run some layers together that fit into the buffer."""
        layers, loops = self.layers[begin:end], self.loops[begin:end]
        names = tuple(layer.name for layer in layers)
        if len(layers) == 1:
            alone = layers[0]
            yield Group(names, loops[0].p, "", "", 0.0, alone.dram_bits, alone.picojoules, alone.cycles)
            return
        weights = [one.weights * self.bits["W"] for one in loops]
        for rows in _tiles(loops[-1].p):
            tiles = -(-loops[-1].p // rows)
            heights = [rows]  # of the output of each layer, the last first
            for one in loops[:0:-1]:
                heights.append(_reach(one, heights[-1]))
            heights = [min(height, one.p) for height, one in zip(heights[::-1], loops, strict=True)]
            entering = min(_reach(loops[0], heights[0]), _high(loops[0]))
            inputs = [entering, *heights[:-1]]
            live = max(
                rows_in * _input_row(one) * self.bits["I"] + rows_out * one.k * one.q * self.bits["O"]
                for rows_in, rows_out, one in zip(inputs, heights, loops, strict=True)
            )
            overlap = sum(  # rows of inner outputs that the next tile needs again
                min(rows_in, max(0, one.dilation[0] * (one.r - 1) + 1 - one.stride[0]))
                * _input_row(one)
                * self.bits["I"]
                for rows_in, one in zip(inputs[1:], loops[1:], strict=True)
            )
            for halo, again in (("kept", False), ("recomputed", True)):
                if tiles == 1 and again:
                    continue
                factors = [max(1.0, tiles * height / one.p) if again else 1.0
                           for height, one in zip(heights, loops, strict=True)]  # fmt: skip
                read = max(tiles * entering, _high(loops[0])) if again else _high(loops[0])
                moved = self.batch * (read * _input_row(loops[0]) * self.bits["I"]
                                      + loops[-1].p * loops[-1].k * loops[-1].q * self.bits["O"])  # fmt: skip
                for kind in ("resident", "streamed"):
                    held = sum(weights) if kind == "resident" else max(weights)
                    need = (held + live + (0 if again else overlap)) / 8
                    if need > self.room:
                        continue
                    passes = 1 if kind == "resident" else tiles * self.batch
                    bits = moved + sum(weights) * passes
                    yield self._group(names, rows, halo if tiles > 1 else "", kind, need, bits, layers, factors)

    def _group(
        self, names: tuple[str, ...], rows: int, halo: str, kind: str, need: float, bits: float,
        layers: Sequence[Layer], factors: Sequence[float],
    ) -> Group:  # fmt: skip
        dram = self.stores[0]
        chip = math.fsum((one.picojoules - one.energy.get("DRAM", 0.0)) * factor
                         for one, factor in zip(layers, factors, strict=True))  # fmt: skip
        cycles = math.fsum(max(one.work, one.inside) * factor for one, factor in zip(layers, factors, strict=True))
        if dram.bandwidth is not None:
            cycles = max(cycles, bits / 8 / dram.bandwidth * self.machine.clock)
        macs = sum(one.macs for one in layers)
        work = math.fsum(one.macs * factor for one, factor in zip(layers, factors, strict=True)) / macs
        return Group(names, rows, halo, kind, need, bits, chip + bits * dram.pj, cycles, work)


def _shared(machine: Accelerator, stores: Sequence[Store]) -> Store:
    """Return the outermost memory on chip that one instance shares for inputs and outputs."""
    for store in stores:
        if store.part != "DRAM" and store.count == 1 and {"I", "O"} <= set(store.keeps) and isinstance(store.size, int):
            return store
    raise Unsupported(f"fuse: {machine.name} has no memory on chip, with one instance, that keeps inputs and outputs")


def _linked(network: Network, one: Flow, after: Flow) -> bool:
    """Return whether a product feeds the next one alone, row by row, with only elementwise nodes between."""
    users: dict[str, list[Flow]] = {}
    for flow in network.flows:
        for name in flow.node.inputs:
            users.setdefault(name, []).append(flow)
    here = one
    while True:
        followers = users.get(here.name, [])
        if len(followers) != 1 or len(followers[0].inputs) != 1 or followers[0].inputs[0] != one.output:
            return False
        here = followers[0]
        if here.name == after.name:
            return True
        if here.output != one.output or here.macs:
            return False


def _tiles(rows: int) -> list[int]:
    if rows <= MOST_ROWS:
        return list(range(1, rows + 1))
    return sorted({-(-rows // 2**i) for i in range(rows.bit_length() + 1)})


def _reach(loops: Loops, rows: int) -> int:
    """Return the input rows that some output rows need."""
    return (rows - 1) * loops.stride[0] + loops.dilation[0] * (loops.r - 1) + 1


def _high(loops: Loops) -> int:
    """Return the rows of the input, without padding."""
    return max(1, _reach(loops, loops.p) - 2 * loops.padding[0])


def _input_row(loops: Loops) -> int:
    """Return the values of a row of the input, without padding."""
    wide = (loops.q - 1) * loops.stride[1] + loops.dilation[1] * (loops.s - 1) + 1
    return loops.c * max(1, wide - 2 * loops.padding[1])
