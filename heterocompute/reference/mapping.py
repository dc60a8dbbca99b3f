"""A mapping run step by step with real buffers, as a check of the counts of `hardware.mapper.evaluate`.

Every instance of every level holds a box of words with their values. At each step a box moves as its loops define:
words that leave it are written back, new words are fetched from the level above, which must hold them. Siblings below
one parent with equal offsets at all levels in between share one fetch, and their results are added on the way up. The
multipliers keep nothing, except directly below a fan-out: a word that neighbours share stays until they need another.
An output word that is new to an instance starts from zero and is not read. Slow: meant for about 1e5 steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import numpy as np

Loop = tuple[str, int]
Axes = Sequence[dict[str, int]]
Word = tuple[int, ...]


@dataclass
class Counts:
    """Words of one tensor at one level, for each instance in use: ``{instance: count}``."""

    tile: int
    reads: dict[Word, int] = field(default_factory=dict)
    fills: dict[Word, int] = field(default_factory=dict)
    updates: dict[Word, int] = field(default_factory=dict)


@dataclass
class Run:
    """The counts and the result of a run.

    Attributes
    ----------
    counts : dict of (int, str) to Counts
        By level, outer to inner, and tensor.
    steps : int
        Steps in time.
    output : dict of tuple of int to int
        The result, word by word.
    """

    counts: dict[tuple[int, str], Counts]
    steps: int
    output: dict[Word, int]


def simulate(
    dims: dict[str, int],
    tensors: dict[str, Axes],
    output: str,
    keeps: Sequence[set[str]],
    temporal: Sequence[Sequence[Loop]],
    spatial: Sequence[Sequence[Loop]],
    values: dict[str, dict[Word, int]],
) -> Run:
    """Run the loops.

    Parameters
    ----------
    dims : dict of str to int
    tensors : dict of str to list of dict
        Axes ``{dimension: coefficient}``.
    output : str
    keeps, temporal, spatial : sequences, one entry a level, outer to inner
        Tensors kept; loops ``(dimension, bound)`` outer to inner.
    values : dict of str to dict of tuple of int to int
        Of every tensor but the output, the value of each word.

    Returns
    -------
    Run
    """
    return _Machine(dims, tensors, output, keeps, temporal, spatial, values).run()


def random_values(dims: dict[str, int], axes: Axes, seed: int) -> dict[Word, int]:
    """Small whole numbers for every word of a tensor's box.

    Parameters
    ----------
    dims : dict of str to int
    axes : list of dict
    seed : int

    Returns
    -------
    dict of tuple of int to int
    """
    shape = tuple(1 + sum(c * (dims[d] - 1) for d, c in axis.items()) for axis in axes)
    numbers = np.random.default_rng(seed).integers(-9, 10, size=shape)
    return {word: int(numbers[word]) for word in np.ndindex(*shape)}


def direct(
    dims: dict[str, int], tensors: dict[str, Axes], output: str, values: dict[str, dict[Word, int]]
) -> dict[Word, int]:
    """The same sums, loop by loop, without any machine.

    Parameters
    ----------
    dims, tensors, output, values : as in `simulate`

    Returns
    -------
    dict of tuple of int to int
    """
    found: dict[Word, int] = {}
    for index in product(*(range(bound) for bound in dims.values())):
        at = dict(zip(dims, index, strict=True))
        word = {tensor: _first(axes, at) for tensor, axes in tensors.items()}
        term = prod(values[tensor][word[tensor]] for tensor in tensors if tensor != output)
        found[word[output]] = found.get(word[output], 0) + term
    return found


def _first(axes: Axes, at: dict[str, int]) -> Word:
    return tuple(sum(c * at[d] for d, c in axis.items()) for axis in axes)


class _Machine:
    def __init__(
        self,
        dims: dict[str, int],
        tensors: dict[str, Axes],
        output: str,
        keeps: Sequence[set[str]],
        temporal: Sequence[Sequence[Loop]],
        spatial: Sequence[Sequence[Loop]],
        values: dict[str, dict[Word, int]],
    ) -> None:
        self.dims, self.tensors, self.output, self.values = dims, tensors, output, values
        self.levels = len(keeps)
        inside = dict.fromkeys(dims, 1)
        self.sizes = [dict(inside)]
        self.time: list[list[tuple[str, int, int]]] = []  # per level (dimension, bound, step), outer to inner
        self.space: list[list[tuple[str, int, int]]] = []
        for in_time, in_space in zip(reversed(temporal), reversed(spatial), strict=True):
            for loops, held_tensors in ((in_space, self.space), (in_time, self.time)):
                steps = []
                for dim, bound in reversed(loops):
                    steps.append((dim, bound, inside[dim]))
                    inside[dim] *= bound
                held_tensors.insert(0, steps[::-1])
            self.sizes.insert(0, dict(inside))
        self.instances = [
            list(product(*(range(bound) for level in self.space[:i] for _, bound, _ in level)))
            for i in range(self.levels + 1)
        ]
        self.rests = {
            t for t, axes in tensors.items() if any(b > 1 and not any(d in a for a in axes) for d, b in spatial[-1])
        }
        self.chains = {
            t: [i for i, held_tensors in enumerate(keeps) if t in held_tensors] + [self.levels] for t in tensors
        }
        self.held: dict[tuple[str, int, Word], dict[Word, int]] = {}
        self.seen: dict[tuple[str, int, Word], set[Word]] = {}
        self.counts: dict[tuple[int, str], Counts] = {}
        for tensor, chain in self.chains.items():
            for level in chain:
                for instance in self.instances[level]:
                    self.held[tensor, level, instance] = {}
                    self.seen[tensor, level, instance] = set()
                if level < self.levels:
                    start = dict.fromkeys(dims, 0)
                    tile = len(list(self.box(tensor, level, start)))
                    zeros = dict.fromkeys(self.instances[level], 0)
                    self.counts[level, tensor] = Counts(tile, dict(zeros), dict(zeros), dict(zeros))

    def box(self, tensor: str, level: int, start: dict[str, int]) -> Any:
        """Return the words of a tile that begins at these indices."""
        size = self.sizes[level]
        ranges = []
        for axis in self.tensors[tensor]:
            low = sum(c * start[d] for d, c in axis.items())
            ranges.append(range(low, low + 1 + sum(c * (size[d] - 1) for d, c in axis.items())))
        return product(*ranges)

    def run(self) -> Run:
        start = dict.fromkeys(self.dims, 0)
        top = (self.output, 0, ())
        for tensor in self.tensors:
            words = self.box(tensor, 0, start)
            self.held[tensor, 0, ()] = {w: 0 if tensor == self.output else self.values[tensor][w] for w in words}
        loops = [(level, *loop) for level, found in enumerate(self.time) for loop in found]
        steps = 0
        for index in product(*(range(bound) for _, _, bound, _ in loops)):
            moved = [dict.fromkeys(self.dims, 0) for _ in range(self.levels + 1)]
            for i, (level, dim, _, step) in zip(index, loops, strict=True):
                for inner in range(level + 1, self.levels + 1):
                    moved[inner][dim] += i * step
            self.step(moved)
            steps += 1
        for level in reversed(self.chains[self.output][1:]):
            self.evict(level, {instance: set() for instance in self.instances[level]})
        return Run(self.counts, steps, self.held[top])

    def step(self, moved: list[dict[str, int]]) -> None:
        """Move every box, then multiply."""
        boxes: dict[tuple[str, int], dict[Word, set[Word]]] = {}
        for tensor, chain in self.chains.items():
            for level in chain[1:]:
                found = boxes[tensor, level] = {}
                for instance in self.instances[level]:
                    begin = dict(moved[level])
                    flat = [loop for loops in self.space[:level] for loop in loops]
                    for i, (dim, _, step) in zip(instance, flat, strict=True):
                        begin[dim] += i * step
                    found[instance] = set(self.box(tensor, level, begin))
        for level in reversed(self.chains[self.output][1:]):
            self.evict(level, boxes[self.output, level])
        for tensor, chain in self.chains.items():
            for level in chain[1:]:
                self.fetch(tensor, level, boxes[tensor, level])
        factors = [t for t in self.tensors if t != self.output]
        for instance in self.instances[self.levels]:
            term = prod(next(iter(self.held[t, self.levels, instance].values())) for t in factors)
            (word,) = self.held[self.output, self.levels, instance]
            self.held[self.output, self.levels, instance][word] += term
        if self.output not in self.rests:
            self.evict(self.levels, {instance: set() for instance in self.instances[self.levels]})
        for t in set(factors) - self.rests:
            for instance in self.instances[self.levels]:
                self.held[t, self.levels, instance] = {}

    def groups(self, tensor: str, level: int) -> list[tuple[Word, list[Word]]]:
        """Return siblings with equal offsets at every level up to their parent, with that parent."""
        chain = self.chains[tensor]
        parent = chain[chain.index(level) - 1]
        above = sum(len(loops) for loops in self.space[:parent])
        found: dict[Any, list[Word]] = {}
        for instance in self.instances[level]:
            key: list[Any] = [instance[:above]]
            place = above
            for loops in self.space[parent:level]:
                at = dict.fromkeys(self.dims, 0)
                for i, (dim, _, step) in zip(instance[place : place + len(loops)], loops, strict=True):
                    at[dim] += i * step
                key.append(_first(self.tensors[tensor], at))
                place += len(loops)
            found.setdefault(tuple(key), []).append(instance)
        return [(key[0], members) for key, members in found.items()]

    def parent(self, tensor: str, level: int) -> int:
        chain = self.chains[tensor]
        return chain[chain.index(level) - 1]

    def fetch(self, tensor: str, level: int, boxes: dict[Word, set[Word]]) -> None:
        above = self.parent(tensor, level)
        for parent, members in self.groups(tensor, level):
            source = self.held[tensor, above, parent]
            for place, instance in enumerate(members):
                held, seen = self.held[tensor, level, instance], self.seen[tensor, level, instance]
                new = boxes[instance] - held.keys()
                assert new <= source.keys(), "a level asks for what the one above does not hold"
                read = new & seen if tensor == self.output else new
                held_tensors = {word: held[word] for word in held.keys() & boxes[instance]}
                # Of siblings that are added up, one contains the earlier sum.
                carries = tensor != self.output or place == 0
                self.held[tensor, level, instance] = held_tensors | {
                    w: source[w] if w in read and carries else 0 for w in new
                }
                if place == 0:
                    self.counts[above, tensor].reads[parent] += len(read)
                if level < self.levels:
                    self.counts[level, tensor].fills[instance] += len(read)
                seen |= new

    def evict(self, level: int, boxes: dict[Word, set[Word]]) -> None:
        above = self.parent(self.output, level)
        for parent, members in self.groups(self.output, level):
            target = self.held[self.output, above, parent]
            left = self.held[self.output, level, members[0]].keys() - boxes[members[0]]
            for word in left:
                target[word] = sum(self.held[self.output, level, instance].pop(word) for instance in members)
            self.counts[above, self.output].updates[parent] += len(left)
