"""A mapping checked against its problem and machine, and the sizes that follow from it.

Levels are 0 .. n-1 from the outermost to the innermost, and n is the multipliers. `sizes[i][d]` is the product of all
bounds of dimension d at level i and inside it, in time and in space; `sizes[n]` is all ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from ...base.errors import WrongValue, shown
from .arch import Arch
from .mapping import Loop, Mapping
from .problem import Axis, Problem, tile

# 99 % of a normal distribution are below this many standard deviations above the mean.
DEVIATIONS = 2.3263478740408408

# Shares are decimals: 100 * 0.07 is 7.000000000000001 in float64, and must be rounded to 7.
ROUNDING = 1 - 2.0**-40

# Spatial loops whose offsets are listed individually have at most this many combinations.
MAX_OFFSETS = 2**20


def share_up(count: float, share: float) -> int:
    """Return count * share, rounded up."""
    return math.ceil(count * share * ROUNDING) if share < 1 else int(count)


def share_down(count: float, share: float) -> int:
    """Return count * share, rounded down."""
    return math.floor(count * share / ROUNDING) if share < 1 else int(count)


@dataclass(frozen=True)
class Nest:
    """Loops in order, the tensors that each level keeps, and sizes; made by `nest`."""

    problem: Problem
    arch: Arch
    temporal: list[Sequence[Loop]]
    spatial: list[Sequence[Loop]]
    keeps: list[frozenset[str]]
    sizes: list[dict[str, int]]

    def chain(self, tensor: str) -> list[int]:
        """Return the levels that keep a tensor, from outer to inner, followed by the multipliers."""
        return [i for i, stored_tensors in enumerate(self.keeps) if tensor in stored_tensors] + [len(self.keeps)]

    def words(self, tensor: str, place: int) -> int:
        """Return the words of a tensor's tile at a level."""
        return tile(self.problem.tensors[tensor], self.sizes[place])

    def stored(self, tensor: str, place: int) -> int:
        """Return the words that a tile occupies there: fewer if it is compressed."""
        words = self.words(tensor, place)
        if tensor not in self.arch.levels[place].compress or tensor not in self.problem.densities:
            return words
        density = self.problem.densities[tensor]
        mean = share_up(words, density.share)
        if density.kind == "fixed":
            return mean
        total = self.problem.words(tensor)
        left = (total - words) / (total - 1) if total > 1 else 0.0
        spread = math.sqrt(words * density.share * (1 - density.share) * left)
        reserve = math.ceil((words * density.share + DEVIATIONS * spread) * ROUNDING)
        return min(words, share_up(total, density.share), max(mean, reserve))

    def used(self, place: int) -> int:
        """Return the instances of a level that the mapping uses; for the number of levels, the multipliers."""
        return math.prod(bound for loops in self.spatial[:place] for _, bound in loops)

    def clusters(self, place: int) -> int:
        """Return the clusters that pay for an access: instances in use are spread over as many clusters as possible."""
        level = self.arch.levels[place]
        return min(self.used(place), -(-level.instances // level.cluster))

    def shared(self, tensor: str) -> bool:
        """Tell whether neighbours directly below the last level share one word, which stays while they use it."""
        relevant = self.problem.relevant(tensor)
        return any(bound > 1 and dim not in relevant for dim, bound in self.spatial[-1])

    def partition(self, tensor: str, place: int) -> int:
        """Return the words that an instance of a level touches over all loops in time and the inner loops in space."""
        sizes = dict.fromkeys(self.problem.dims, 1)
        for loops in [*self.temporal, *self.spatial[place:]]:
            for dim, bound in loops:
                sizes[dim] *= bound
        return tile(self.problem.tensors[tensor], sizes)

    def fills(self, tensor: str, place: int) -> int:
        """Return the words that move into one instance of a level; for the number of levels, into the multipliers.

        The innermost outer loop that moves the tile fetches the new words; loops inside it do not touch the tile, loops
        outside it repeat everything. Multipliers keep nothing, except shared words (see `shared`).
        """
        if place == len(self.keeps) and not self.shared(tensor):
            return math.prod(bound for loops in self.temporal for _, bound in loops)
        axes = self.problem.tensors[tensor]
        relevant = self.problem.relevant(tensor)
        words = self.words(tensor, place)
        count = 0
        for level in reversed(range(place)):
            steps = dict(self.sizes[level + 1])
            for dim, bound in self.spatial[level]:
                steps[dim] *= bound
            for dim, bound in reversed(self.temporal[level]):
                if bound > 1 and count:
                    count *= bound
                elif bound > 1 and dim in relevant:
                    count = words + (bound - 1) * _new_words(axes, dim, steps[dim], self.sizes[place], words)
                steps[dim] *= bound
        return count or words

    def copies(self, tensor: str, parent: int, child: int) -> int:
        """Return the number of different tiles in the children of one parent: equal ones are multicast or reduced."""
        return math.prod(self._offsets(tensor, level) for level in range(parent, child))

    def _offsets(self, tensor: str, level: int) -> int:
        steps = dict(self.sizes[level + 1])
        loops = []
        for dim, bound in reversed(self.spatial[level]):
            if bound > 1:
                loops.append((dim, bound, steps[dim]))
            steps[dim] *= bound
        return distinct(self.problem.tensors[tensor], loops)


def _new_words(axes: list[Axis], dim: str, step: int, sizes: dict[str, int], words: int) -> int:
    """Return the new words of one step of a loop: all, or fewer if the tile slides along one axis."""
    moved = [axis for axis in axes if dim in axis]
    if len(moved) > 1:
        return words
    length = 1 + sum(c * (sizes[d] - 1) for d, c in moved[0].items())
    return words // length * min(length, moved[0][dim] * step)


def distinct(axes: list[Axis], loops: Sequence[tuple[str, int, int]]) -> int:
    """Count the different offsets of a tensor's tile over loops ``(dimension, bound, step)``.

    Parameters
    ----------
    loops : sequence of (str, int, int)
        The step is in units of the dimension.

    Examples
    --------
    >>> distinct([{"Q": 1, "S": 1}], [("Q", 14, 1), ("S", 3, 1)])
    16
    """
    shared = any(sum(dim in axis for axis in axes) > 1 for dim, _, _ in loops)
    groups = [axes] if shared else [[axis] for axis in axes]
    return math.prod(_distinct(group, [loop for loop in loops if any(loop[0] in a for a in group)]) for group in groups)


def _distinct(axes: list[Axis], loops: list[tuple[str, int, int]]) -> int:
    if len(loops) < 2:
        return math.prod(bound for _, bound, _ in loops)
    if math.prod(bound for _, bound, _ in loops) > MAX_OFFSETS:
        raise WrongValue(f"mapping: the spatial loops {loops} of one level have more than {MAX_OFFSETS} combinations")
    steps = [[axis.get(dim, 0) * step for axis in axes] for dim, _, step in loops]
    indices = product(*(range(bound) for _, bound, _ in loops))
    return len({tuple(map(sum, zip(*_moves(index, steps), strict=True))) for index in indices})


def _moves(index: tuple[int, ...], steps: list[list[int]]) -> list[list[int]]:
    return [[i * step for step in row] for i, row in zip(index, steps, strict=True)]


def nest(problem: Problem, arch: Arch, mapping: Mapping) -> Nest:
    """Check a mapping and lay out its loops.

    Raises
    ------
    ValueError
        A name is unknown, bounds do not multiply to the problem's, instances are too many, or a level overflows.
    """
    names = arch.names
    for level in (*mapping.temporal, *mapping.spatial, *mapping.keeps):
        if level not in names:
            raise WrongValue(f"mapping: no level is called {shown(level)}, there are {', '.join(names)}")
    temporal = [mapping.temporal.get(name, ()) for name in names]
    spatial = [mapping.spatial.get(name, ()) for name in names]
    found = dict.fromkeys(problem.dims, 1)
    for name, loops in zip([*names, *names], [*temporal, *spatial], strict=True):
        for dim, bound in loops:
            if dim not in found:
                raise WrongValue(f"mapping: {name} loops over {shown(dim)}, the problem has {', '.join(found)}")
            found[dim] *= bound
    for dim, bound in found.items():
        if bound != problem.dims[dim]:
            raise WrongValue(f"mapping: the bounds of {dim} multiply to {bound}, the problem has {problem.dims[dim]}")
    sizes = [dict.fromkeys(problem.dims, 1)]
    for loops in ([*a, *b] for a, b in zip(reversed(temporal), reversed(spatial), strict=True)):
        sizes.append(dict(sizes[-1]))
        for dim, bound in loops:
            sizes[-1][dim] *= bound
    laid = Nest(problem, arch, temporal, spatial, stored_tensors(problem, arch, mapping), sizes[::-1])
    _check_room(laid)
    check_zeros(laid)
    return laid


def stored_tensors(problem: Problem, arch: Arch, mapping: Mapping) -> list[frozenset[str]]:
    """Return the tensors that each level keeps; the outermost keeps all."""
    everything = frozenset(problem.tensors)
    keeps = []
    for place, level in enumerate(arch.levels):
        keep = mapping.keeps.get(level.name, level.keeps)
        keep = everything if keep is None else frozenset(keep)
        named = [keep, level.compress, level.gate, level.skip, *level.gate.values(), *level.skip.values()]
        named += [level.words] if isinstance(level.words, dict) else []
        unknown = sorted(tensor for names in named for tensor in names if tensor not in everything)
        if unknown:
            raise WrongValue(
                f"level {level.name}: no tensor is called {shown(unknown[0])}, there are {sorted(everything)}"
            )
        if place == 0 and keep != everything:
            raise WrongValue(f"level {level.name}: the outermost level keeps every tensor, not only {sorted(keep)}")
        keeps.append(keep)
    return keeps


def _check_room(laid: Nest) -> None:
    for place, level in enumerate(laid.arch.levels):
        spread = math.prod(bound for _, bound in laid.spatial[place])
        if spread > laid.arch.fanout(place):
            raise WrongValue(
                f"mapping: {level.name} spreads over {spread} instances below it, there are {laid.arch.fanout(place)}: "
                f"{spread - laid.arch.fanout(place)} too many"
            )
        wants = {tensor: laid.stored(tensor, place) for tensor in laid.problem.tensors if tensor in laid.keeps[place]}
        if isinstance(level.words, dict):
            for tensor in wants:
                if tensor in level.words and wants[tensor] > level.words[tensor]:
                    raise _overflow(level.name, level.words[tensor], {tensor: wants[tensor]})
        elif level.words is not None and sum(wants.values()) > level.words:
            raise _overflow(level.name, level.words, wants)


def _overflow(name: str, room: int, wants: dict[str, int]) -> ValueError:
    total = sum(wants.values())
    parts = ", ".join(f"{tensor} {words}" for tensor, words in wants.items())
    return WrongValue(f"mapping: {name} holds {room} words, the tiles take {total} ({parts}): {total - room} too many")


def check_zeros(laid: Nest) -> None:
    """Refuse gating or skipping at a level that does not feed the multipliers."""
    for place, level in enumerate(laid.arch.levels):
        for tensor in (*level.gate, *level.skip):
            if laid.chain(tensor)[-2] != place:
                raise WrongValue(
                    f"level {level.name}: {tensor} is gated or skipped there, but only the last level that keeps a "
                    "tensor can do this, because zeros are tested element by element"
                )
        if laid.problem.output in level.compress:
            raise WrongValue(f"level {level.name}: the output {laid.problem.output} cannot be compressed")
