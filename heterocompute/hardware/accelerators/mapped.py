"""The cost of a layer on a machine of memories and multipliers, with the best mapping that a search finds.

A machine's stores become levels of `hw.mapper.Arch`; the loops that may spread and those that a store runs become the
space of the search. Loops that spread are rounded up so that they divide evenly (K = 1001 on 256 columns is 4 x 251),
since hardware leaves a part of the last pass idle. Equal layers are searched once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ... import _heterocompute as _core
from ...base.errors import WrongValue
from ..mapper.accesses import Stats, evaluate
from ..mapper.arch import Arch, Level
from ..mapper.dataflow import Space, order_classes
from ..mapper.mapping import Mapping
from ..mapper.model import Model
from ..mapper.nest import nest
from ..mapper.problem import Problem
from ..network.loops import Loops
from ..silicon.mac import MacCost, mac
from ..silicon.operands import operand
from .energies import operands, value_bits
from .report import Layer
from .shortcuts import Shortcut, additions_pj, shortcut

if TYPE_CHECKING:
    from .accelerator import Accelerator, Store

#: Walks per search, and steps per walk; a ResNet-50 has 21 different layers.
WALKS, STEPS = 6, 6_000
TENSOR_PARTS = {"W": "weights", "I": "activations", "O": "accumulators"}
OUTSIDE = "outside"


def mapped_cost(machine: Accelerator, loops: Loops, format: str, zeros: MappingABC[str, float]) -> Layer:
    """Return the cost of a layer with the best mapping found, by energy times delay.

    Parameters
    ----------
    zeros : mapping of str to float
        Shares of W, I and O that are not zero, where the machine codes or gates them; they change no mapping.
    """
    shares = tuple(min(1.0, zeros.get(tensor, 1.0)) for tensor in "WIO")
    found = _costed(_Key(machine), replace(loops, name=""), format, shares)
    return replace(found, name=loops.name)


class _Key:
    """A machine as the key of a cache: compared by identity, since it holds functions."""

    def __init__(self, machine: Accelerator) -> None:
        self.machine = machine

    def __hash__(self) -> int:
        return id(self.machine)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.machine is self.machine


@dataclass(frozen=True)
class Effort:
    """The quantity that a search minimizes, and its walks.

    Attributes
    ----------
    objective : {"edp", "energy", "delay"}
    walks, steps : int
    seed : int
    """

    objective: str = "edp"
    walks: int = WALKS
    steps: int = STEPS
    seed: int = 0


USUAL = Effort()


def mapped_layer(
    machine: Accelerator, loops: Loops, format: str, zeros: MappingABC[str, float], effort: Effort
) -> tuple[Layer, Mapping, Stats]:
    """Return the cost of a layer, its mapping, and the accesses of one of its groups.

    Parameters
    ----------
    zeros : mapping of str to float
        As of `mapped_cost`.
    effort : Effort
    """
    shares = {tensor: min(1.0, zeros.get(tensor, 1.0)) for tensor in "WIO"}
    key, found = _Key(machine), []
    for run in dict.fromkeys(shortcut(loops, format, winograd) for winograd in (False, machine.winograd)):
        run = replace(run, loops=replace(run.loops, name=""))
        stores, stats, mapping = _searched(key, run, format, effort)
        layer = _layer(machine, loops, run, format, stores, stats, mapping, shares)
        found.append((layer, mapping, stats))
    return min(found, key=lambda one: (one[0].cycles, one[0].picojoules))


@functools.lru_cache(maxsize=4096)
def _costed(key: _Key, loops: Loops, format: str, shares: tuple[float, float, float]) -> Layer:
    return mapped_layer(key.machine, loops, format, dict(zip("WIO", shares, strict=True)), USUAL)[0]


@functools.lru_cache(maxsize=4096)
def _searched(key: _Key, run: Shortcut, format: str, effort: Effort) -> tuple[list[Store], Stats, Mapping]:
    machine = key.machine
    stores = list(machine.stores(format))
    problem = _evened(run.loops.problem(), stores)
    if machine.resident:
        inside = _resident(stores)
        found = _try(machine, problem, inside, run, format, effort)
        if found is not None:
            return inside, *found
    found = _try(machine, problem, stores, run, format, effort)
    if found is None:
        raise WrongValue(f"{machine.name}: no mapping of {problem.dims} fits its memories")
    return stores, *found


def _resident(stores: list[Store]) -> list[Store]:
    """Return the stores of a machine that keeps inputs and outputs on chip: DRAM holds weights and runs no loop."""
    outside = replace(stores[0], name=OUTSIDE, pj=0.0, bandwidth=None, loops="")
    return [outside, replace(stores[0], keeps="W", loops=""), *stores[1:]]


def _evened(problem: Problem, stores: list[Store]) -> Problem:
    """Round up the first loop of each fan-out so that its passes are equal."""
    dims = dict(problem.dims)
    for store, below in zip(stores, stores[1:], strict=False):
        if not store.over:
            continue
        fan = below.count // store.count
        dim = store.over[0]
        passes = -(-dims[dim] // fan)
        dims[dim] = passes * -(-dims[dim] // passes)
    return replace(problem, dims=dims)


def _word(run: Shortcut, tensor: str, format: str) -> float:
    return {"W": run.weight_bits, "I": run.input_bits, "O": value_bits(format, "O")}[tensor]


def _bits(machine: Accelerator, store: Store, tensor: str, run: Shortcut, format: str) -> float:
    if tensor in store.wide:
        return machine.accumulator_bits
    return _word(run, tensor, format) * (run.stored if tensor == "W" and store.part == "DRAM" else 1.0)


def _widest(machine: Accelerator, store: Store, run: Shortcut, format: str) -> float:
    """Return the bits of a store's word for which the mapper counts energy: the widest."""
    return max([_bits(machine, store, tensor, run, format) for tensor in store.keeps] or [value_bits(format)])


def _arch(machine: Accelerator, stores: list[Store], run: Shortcut, format: str) -> Arch:
    levels = []
    for store in stores:
        bits = _widest(machine, store, run, format)
        words: int | dict[str, int] | None = None
        if isinstance(store.size, MappingABC):
            words = {
                t: max(1, int(size * 8 // _bits(machine, store, t, run, format))) for t, size in store.size.items()
            }
        elif store.size is not None:
            words = max(1, int(store.size * 8 // bits))
        rate = None if store.bandwidth is None else store.bandwidth * 8 / bits / machine.clock
        pj, read = store.pj * bits, (store.pj if store.read is None else store.read) * bits
        levels.append(
            Level(store.name, words, frozenset(store.keeps), read, pj, pj, instances=store.count, bandwidth=rate)
        )
    macs = machine.formats[format]
    return Arch(levels, mac_energy(machine, format), macs)


def mac_energy(machine: Accelerator, format: str) -> float:
    """Return pJ of a multiply-add: the machine's own figure, else `hw.mac` in its process."""
    if machine.cim is not None:
        return machine.cim.arithmetic + machine.cim.conversion
    if machine.mac_pj is not None:
        return machine.mac_pj
    return multiply_add(format, machine.accumulator_bits, machine.vector, machine.process)


def multiply_add(format: str, accumulator_bits: int, vector: int, process: str) -> float:
    """Return pJ of a multiply-add of two values of a format; an accumulator narrower than a product is widened."""
    return multiplier(format, accumulator_bits, vector, process).energy_pj


def multiplier(format: str, accumulator_bits: int, vector: int, process: str) -> MacCost:
    """Return `hw.mac` of a format or a pair of them; an accumulator narrower than a product is widened."""
    pair = operands(format)
    if all(one.startswith("int") for one in pair):
        accumulator_bits = max(accumulator_bits, sum(operand(one).bits for one in pair))
    return mac(*pair, accumulator_bits, vector, process)


def _try(
    machine: Accelerator, problem: Problem, stores: list[Store], run: Shortcut, format: str, effort: Effort
) -> tuple[Stats, Mapping] | None:
    arch = _arch(machine, stores, run, format)
    keeps = [frozenset(store.keeps) for store in stores]
    first = next(i for i, store in enumerate(stores) if store.loops)
    start = Mapping({stores[first].name: [(dim, bound) for dim, bound in problem.dims.items() if bound > 1]})
    try:
        laid = nest(problem, arch, start)
    except ValueError:  # inputs and outputs do not fit on chip
        return None
    plain = tuple(problem.dims)
    orders, temporal, spatial = [], [], []
    for i, store in enumerate(stores):
        runs = frozenset(store.loops) if store.keeps else frozenset()
        ordered = any(keeps[i + 1 :]) and len(runs) > 1
        orders.append(order_classes(problem, machine.still or None) if ordered else [plain])
        temporal.append(runs)
        spatial.append(frozenset(store.over))
    model = Model(laid, Space(orders, temporal, spatial), effort.objective)
    starts = [start for start in (_spread(model, problem, stores), model.first_choice()) if model.fits(start)]
    if not starts:
        return None
    best = None
    for number in range(effort.walks):
        seed = (effort.seed * effort.walks + number) % 2**64
        walk = _core.map_walk(model.ints, model.reals, starts[number % len(starts)], seed, effort.steps)
        _, _, cost, found = _core.map_walk_on(walk, effort.steps)
        if best is None or cost[2:] < best[0][2:]:
            best = (cost, found)
    assert best is not None
    mapping = model.mapping(best[1])
    return evaluate(problem, arch, mapping), mapping


def _spread(model: Model, problem: Problem, stores: list[Store]) -> NDArray[np.int64]:
    """Return a first choice that fills every fan-out as far as the loops divide."""
    dims, left = list(problem.dims), dict(problem.dims)
    factors = np.ones((2 * len(stores), len(dims)), dtype=np.int64)
    for place, store in enumerate(stores):
        room = model.arch.fanout(place)
        for dim in store.over:
            factor = max(f for f in range(1, min(room, left[dim]) + 1) if left[dim] % f == 0)
            factors[len(stores) + place, dims.index(dim)] = factor
            left[dim], room = left[dim] // factor, room // factor
    for dim in dims:
        factors[model.slots(dim)[0], dims.index(dim)] *= left[dim]
    return np.concatenate([factors.ravel(), np.zeros(len(stores), dtype=np.int64)])


def _layer(
    machine: Accelerator,
    loops: Loops,
    run: Shortcut,
    format: str,
    stores: list[Store],
    stats: Stats,
    mapping: Mapping,
    shares: MappingABC[str, float],
) -> Layer:
    by_name = {store.name: store for store in stores}
    groups = loops.groups
    gated = math.prod(shares[tensor] for tensor in machine.gated + machine.skipped)
    multiplied = run.loops.macs if run.additions else loops.macs  # hw.mac has the N of M products of a dense one
    energy = {"arithmetic": multiplied * mac_energy(machine, format) * gated}
    if machine.cim is not None:  # a converter reads every sum, zero or not
        energy = {"arithmetic": multiplied * machine.cim.arithmetic * gated}
        energy["conversion"] = multiplied * machine.cim.conversion
    if run.additions:
        energy["arithmetic"] += additions_pj(run, value_bits(format, "I"), machine.process)
    if machine.instruction_pj:
        energy["instructions"] = run.loops.macs * machine.instruction_pj
    listed: dict[str, float] = {}
    if machine.operand_pj:
        for tensor in "WI":
            if tensor not in stores[-1].keeps:
                pj = run.loops.macs * _word(run, tensor, format) * machine.operand_pj
                energy[TENSOR_PARTS[tensor]] = listed[f"registers {tensor}"] = pj
    work: float = groups * math.prod(bound for level in mapping.temporal.values() for _, bound in level)
    if machine.cim is not None:
        work *= machine.cim.steps
    detail: dict[str, Any] = {"mapping": str(mapping)}
    if machine.skipped:
        left = _lockstep(machine.formats[format], stores, stats, mapping, gated)
        work, detail["imbalance"] = work * left, left / gated if gated else 1.0
    last = {tensor: [store.name for store in stores if tensor in store.keeps][-1] for tensor in "WIO"}
    dram, outside, waits = 0.0, 0.0, 0.0
    busy: dict[str, float] = {}  # bytes in and out of an instance of a memory whose width is known
    for (name, tensor), access in stats.accesses.items():
        store = by_name[name]
        if name == OUTSIDE:
            continue
        bits = _bits(machine, store, tensor, run, format)
        part = store.part or TENSOR_PARTS[tensor]
        joules = access.energy * groups * (bits / _widest(machine, store, run, format))
        if tensor in store.idle:  # not read or written if a zero stops the multiplier
            joules *= gated
        elif machine.skipped and name == last[tensor] and part != "DRAM":  # only products that are not skipped
            joules *= gated
        if tensor in store.masked:
            joules *= min(1.0, shares[tensor] + 1 / bits)
        if part == "DRAM":
            # zeros are removed from incoming data, and from outgoing data only if no sums are read back
            coded = store.coded and (tensor == "I" or (tensor == "O" and not access.reads))
            share = min(1.0, shares[tensor] * store.coded) if coded else 1.0
            mask = min(1.0, shares[tensor] + 1 / bits) if tensor in store.masked else 1.0
            words = access.reads + access.fills + access.updates
            if stores[0].name == OUTSIDE:  # weights were written to DRAM once
                words, joules = access.reads, access.reads * bits * store.pj * groups * mask
            dram += words * bits * groups * share * mask
            joules *= share
            if store.bandwidth is not None:
                outside = max(outside, dram / 8 / store.bandwidth * machine.clock)
        elif store.bandwidth is not None:
            words = access.reads + access.fills + access.updates
            busy[name] = busy.get(name, 0.0) + words * bits / 8 * groups
            waits = max(waits, busy[name] / store.bandwidth * machine.clock)
        energy[part] = energy.get(part, 0.0) + joules
        listed[f"{name} {tensor}"] = joules
    moved, links = 0.0, 0.0
    for place, store in enumerate(stores):
        if store.wire or store.trunk or store.link_bits:
            joules, cycles = _moved(machine, stores, place, stats, run, format)
            moved, links = moved + joules, max(links, cycles)
    energy["movement"] = energy.get("movement", 0.0) + groups * moved
    waits = max(waits, groups * links)
    active = stats.utilisation * run.loops.macs / (groups * stats.computes)
    cycles = max(work, waits, outside)
    return Layer(loops.name, loops.macs, cycles, work, dram, energy, active, listed, detail, waits)


def _lockstep(multipliers: int, stores: list[Store], stats: Stats, mapping: Mapping, share: float) -> float:
    """Return the share of the cycles that is left if zeros are skipped by multipliers that wait for each other.

    They wait after each pass of the innermost loops. The slowest of N units has share + sqrt(2 ln N share (1 - share) /
    n) of its n products, the usual estimate of the largest of N binomial numbers.
    """
    inner = next((store for store in reversed(stores) if store.loops), stores[0])
    n = math.prod(bound for _, bound in mapping.temporal.get(inner.name, ()))
    units = max(1.0, stats.utilisation * multipliers)
    slowest = share + math.sqrt(2 * math.log(units) * share * (1 - share) / n)
    return min(1.0, max(slowest, 1 / n))


def _moved(
    machine: Accelerator, stores: list[Store], place: int, stats: Stats, run: Shortcut, format: str
) -> tuple[float, float]:
    """Return pJ and cycles of the words that cross the wires between a store and the stores below its fan-out."""
    store, below = stores[place], stores[place + 1 :]
    above = [one for one in stores[: place + 1] if one.keeps]
    pj, crossed, ports = 0.0, 0.0, 0.0
    for tensor in "WIO":
        bits = machine.accumulator_bits if tensor == "O" else _word(run, tensor, format)
        holder = next((one for one in below if tensor in one.keeps), None)
        if holder is None:  # every multiply-add reads its operand, or passes its sum on
            words = float(stats.computes)
            receivers = 1.0
        else:
            access = stats[holder.name, tensor]
            words, receivers = float(access.fills) * access.instances, float(access.instances)
            if tensor == "O":  # each sum is read again and written each time
                words += words + access.partition * access.instances
        pj += words * bits * store.wire
        source = next((one for one in reversed(above) if tensor in one.keeps), None)
        if source is not None and (store.trunk or store.link_bits):
            access = stats[source.name, tensor]
            sent = float(access.reads + access.updates) * access.instances
            pj += sent * bits * store.trunk
            crossed += sent * bits / store.count
            ports += words * bits / receivers
    if store.link_bits is None:
        return pj, 0.0
    if store.ports:  # random requests meet at a port
        return pj, ports / store.link_bits / (1 - (1 - 1 / store.ports) ** store.ports)
    return pj, crossed / store.link_bits
