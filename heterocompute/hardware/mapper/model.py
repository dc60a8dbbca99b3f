"""A search space as rows of numbers for the core, and its choices converted back to mappings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import _heterocompute as _core
from .accesses import zero_shares
from .dataflow import Space
from .mapping import Mapping
from .nest import Nest

#: In the order of csrc/model/mapper.h.
OBJECTIVES = ("energy", "delay", "edp")

Integers = NDArray[np.int64]


class Model:
    """Problem, machine and space as the rows of numbers that csrc/model/read.c reads."""

    def __init__(self, everywhere: Nest, where: Space, objective: str) -> None:
        self.problem, self.arch, self.space = everywhere.problem, everywhere.arch, where
        self.dims = list(self.problem.dims)
        self.names = self.arch.names
        self.ints, self.reals = _pack(everywhere, where, objective)

    @property
    def n_slots(self) -> int:
        return 2 * len(self.names)

    def slots(self, dim: str) -> list[int]:
        """Return the slots where a dimension may have a factor, slots in time first."""
        allowed = [*self.space.temporal, *self.space.spatial]
        return [slot for slot, dims in enumerate(allowed) if dim in dims]

    def orders(self) -> int:
        """Return the number of combinations of orders."""
        return math.prod(len(orders) for orders in self.space.orders)

    def size(self) -> int:
        """Return the number of choices, factors times orders, whether they fit or not."""
        return self.orders() * math.prod(_splits(self.problem.dims[d], len(self.slots(d))) for d in self.dims)

    def tables(self) -> tuple[Integers, ...]:
        """Return for each dimension every way to split its bound."""
        found = []
        for dim in self.dims:
            slots = self.slots(dim)
            rows = list(_split(self.problem.dims[dim], len(slots)))
            table = np.ones((len(rows), self.n_slots), dtype=np.int64)
            table[:, slots] = np.array(rows, dtype=np.int64).reshape(len(rows), len(slots))
            found.append(table)
        return tuple(found)

    def first_choice(self) -> Integers:
        """Return the choice with every factor at its outermost allowed slot."""
        factors = np.ones((self.n_slots, len(self.dims)), dtype=np.int64)
        for place, dim in enumerate(self.dims):
            slots = self.slots(dim)
            if self.problem.dims[dim] > 1 and slots:
                factors[slots[0], place] = self.problem.dims[dim]
        return np.concatenate([factors.ravel(), np.zeros(len(self.names), dtype=np.int64)])

    def fits(self, choice: Integers) -> bool:
        return _core.map_cost(self.ints, self.reals, choice) is not None

    def mapping(self, choice: Sequence[int]) -> Mapping:
        """Return the loops of a choice with more than one step."""
        n_dims, n_levels = len(self.dims), len(self.names)
        rows = [choice[slot * n_dims : (slot + 1) * n_dims] for slot in range(self.n_slots)]
        temporal: dict[str, list[tuple[str, int]]] = {}
        spatial: dict[str, list[tuple[str, int]]] = {}
        for level, name in enumerate(self.names):
            in_time = dict(zip(self.dims, rows[level], strict=True))
            order = self.space.orders[level][choice[self.n_slots * n_dims + level]]
            temporal[name] = [(dim, in_time[dim]) for dim in order if in_time[dim] > 1]
            in_space = [(d, f) for d, f in zip(self.dims, rows[n_levels + level], strict=True) if f > 1]
            if in_space:
                spatial[name] = in_space
        return Mapping(temporal, spatial)  # type: ignore[arg-type]


def _pack(everywhere: Nest, where: Space, objective: str) -> tuple[Integers, NDArray[np.float64]]:
    problem, arch = everywhere.problem, everywhere.arch
    place = {dim: i for i, dim in enumerate(problem.dims)}
    tensors = list(problem.tensors)
    saved = zero_shares(everywhere)

    def mask(names: Any, of: Sequence[str]) -> int:
        return sum(1 << i for i, name in enumerate(of) if name in names)

    ints = [len(place), len(arch.levels), len(tensors), tensors.index(problem.output), OBJECTIVES.index(objective)]
    ints += problem.dims.values()
    ints += [mask(dims, list(place)) for dims in (*where.temporal, *where.spatial)]
    reals = [saved.computes * arch.mac, saved.cycles]
    for tensor, axes in problem.tensors.items():
        ints.append(len(axes))
        for axis in axes:
            ints.append(len(axis))
            for dim, coefficient in axis.items():
                ints += [place[dim], coefficient]
        density = problem.densities.get(tensor)
        reals.append(problem.density(tensor))
        ints.append(int(density is not None and density.kind == "uniform"))
    for i, level in enumerate(arch.levels):
        ints += [mask(everywhere.keeps[i], tensors), mask(level.compress, tensors)]
        shared = math.inf if level.words is None or isinstance(level.words, dict) else level.words
        reals += [
            shared,
            level.block,
            level.read,
            level.write,
            level.update,
            level.leak,
            level.instances,
            level.cluster,
        ]
        reals.append(arch.fanout(i))
        limits = (level.write_bandwidth, level.read_bandwidth, level.bandwidth)
        reals += [math.inf if limit is None else limit for limit in limits]
        for tensor in tensors:
            own = level.words.get(tensor, math.inf) if isinstance(level.words, dict) else math.inf
            share = saved.accesses.get((i, tensor), 1.0)
            reals += [own, share, share]
        ints.append(len(where.orders[i]))
        ints += [place[dim] for order in where.orders[i] for dim in order]
    return np.array(ints, dtype=np.int64), np.array(reals, dtype=np.float64)


def _primes(number: int) -> Iterator[tuple[int, int]]:
    prime = 2
    while prime * prime <= number:
        power = 0
        while number % prime == 0:
            number //= prime
            power += 1
        if power:
            yield prime, power
        prime += 1
    if number > 1:
        yield number, 1


def _splits(number: int, slots: int) -> int:
    """Return the ways to write a number as a product of this many factors, in order."""
    if slots == 0:
        return int(number == 1)
    return math.prod(math.comb(power + slots - 1, slots - 1) for _, power in _primes(number))


def _split(number: int, slots: int) -> Iterator[tuple[int, ...]]:
    if slots <= 1:
        if slots == 1 or number == 1:
            yield (number,) * slots
        return
    for factor in range(1, number + 1):
        if number % factor == 0:
            for rest in _split(number // factor, slots - 1):
                yield (factor, *rest)
