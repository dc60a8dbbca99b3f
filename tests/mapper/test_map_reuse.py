"""The counts of `evaluate` compared with a machine that walks the loops with real buffers and computes the result."""

from __future__ import annotations

import math
import random

import pytest

from heterocompute.hardware import mapper
from heterocompute.hardware.mapper.nest import Nest, nest
from heterocompute.reference import mapping as machine

CASES, CHUNKS = 1000, 8
SIZES = (1, 2, 3, 4, 6, 8)


def problem(rng: random.Random) -> mapper.Problem:
    a, b, c, d = (rng.choice(SIZES) for _ in range(4))
    if rng.random() < 0.5:
        return mapper.Problem.gemm(a, b, c)
    tensors = {
        "W": [{"K": 1}, {"C": 1}, {"R": 1}],
        "I": [{"C": 1}, {"P": rng.choice((1, 1, 2, 3)), "R": rng.choice((1, 1, 2))}],
        "O": [{"K": 1}, {"P": 1}],
    }
    return mapper.Problem({"K": a, "P": b, "R": c, "C": d}, tensors, "O")


def split(rng: random.Random, number: int, slots: int) -> list[int]:
    parts = [1] * slots
    for prime in (2, 3):
        while number % prime == 0:
            parts[rng.randrange(slots)] *= prime
            number //= prime
    return parts


def case(seed: int) -> tuple[mapper.Problem, mapper.Arch, mapper.Mapping]:
    """Return a random problem, machine and mapping that fit."""
    rng = random.Random(seed)
    while True:
        found = problem(rng)
        n_levels = rng.randint(1, 4)
        names = [f"L{i}" for i in range(n_levels)]
        parts = {dim: split(rng, bound, 2 * n_levels) for dim, bound in found.dims.items()}
        temporal, spatial, instances = {}, {}, [1]
        for i, name in enumerate(names):
            loops = [(dim, parts[dim][i]) for dim in parts]
            spread = [(dim, parts[dim][n_levels + i]) for dim in parts]
            rng.shuffle(loops)
            rng.shuffle(spread)
            temporal[name], spatial[name] = loops, spread
            instances.append(instances[-1] * math.prod(bound for _, bound in spread))
        if instances[-1] <= 16 and found.computes <= 600:
            break
    keeps = [None, *({t for t in "WIO" if rng.random() < 0.7} for _ in names[1:])]
    levels = [mapper.Level(n, keeps=k, instances=i) for n, k, i in zip(names, keeps, instances, strict=False)]
    return found, mapper.Arch(levels, macs=instances[-1]), mapper.Mapping(temporal, spatial)


def overlap(laid: Nest, tensor: str, place: int) -> int:
    """Return how many words too many the rule may count for the fills of one instance; 0 if the rule is exact.

    At each step of a loop outside the sliding loop the tile jumps back, and the rule fetches all of it. A part may
    still be in the buffer if the jump is short or the outer loop moves the same axis.
    """
    if place == len(laid.keeps) and not laid.shared(tensor):
        return 0
    loops = []  # outside, inner to outer: dimension, bound, step
    for level in reversed(range(place)):
        steps = dict(laid.sizes[level + 1])
        for dim, bound in laid.spatial[level]:
            steps[dim] *= bound
        for dim, bound in reversed(laid.temporal[level]):
            if bound > 1:
                loops.append((dim, bound, steps[dim]))
            steps[dim] *= bound
    axes = laid.problem.tensors[tensor]
    while loops and loops[0][0] not in laid.problem.relevant(tensor):
        loops.pop(0)
    outside = math.prod(bound for _, bound, _ in loops[1:])
    if outside == 1:
        return 0
    (axis,) = [axis for axis in axes if loops[0][0] in axis]
    dim, bound, step = loops[0]
    length = 1 + sum(c * (laid.sizes[place][d] - 1) for d, c in axis.items())
    if not any(d in axis for d, _, _ in loops[1:]) and (bound - 1) * step * axis[dim] >= length:
        return 0
    return (outside - 1) * laid.words(tensor, place)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.sweep(every=10)
def test_counts_are_those_of_real_buffers(chunk: int) -> None:
    exact = approximate = 0
    for seed in range(chunk * CASES // CHUNKS, (chunk + 1) * CASES // CHUNKS):
        found, arch, mapping = case(seed)
        stats, laid = mapper.evaluate(found, arch, mapping), nest(found, arch, mapping)
        values = {t: machine.random_values(found.dims, found.tensors[t], seed) for t in found.inputs}
        loops = (laid.keeps, laid.temporal, laid.spatial)
        run = machine.simulate(found.dims, found.tensors, "O", *loops, values)
        assert run.output == machine.direct(found.dims, found.tensors, "O", values), seed
        assert run.steps == stats.cycles
        for (level, tensor), access in stats.accesses.items():
            place = arch.names.index(level)
            counted = run.counts[place, tensor]
            assert counted.tile == access.tile
            chain = laid.chain(tensor)
            child = chain[chain.index(place) + 1]
            slack = {
                "fills": overlap(laid, tensor, place),
                "reads": overlap(laid, tensor, child) * laid.copies(tensor, place, child),
                "updates": 0,
            }
            for key, most in slack.items():
                real = getattr(counted, key)
                assert len(real) == access.instances and len(set(real.values())) == 1
                too_many = getattr(access, key) - next(iter(real.values()))
                assert 0 <= too_many <= most, (seed, level, tensor, key)
                exact, approximate = exact + (most == 0), approximate + (most > 0)
    # Nearly all counts are compared exactly. If the rule is only a bound, `overlap` returns the allowed difference.
    assert exact > 20 * approximate > 0


def test_the_machine_sees_a_wrong_count() -> None:
    """Two nested loops: the rule fetches the whole tile again although real buffers still hold a part of it."""
    tensors = {"W": [{"R": 1}], "I": [{"P": 1, "R": 1}], "O": [{"P": 1}]}
    found = mapper.Problem({"P": 8, "R": 3}, tensors, "O")
    arch = mapper.Arch([mapper.Level("A"), mapper.Level("B")])
    mapping = mapper.Mapping({"A": [("P", 2), ("P", 2)], "B": [("P", 2), ("R", 3)]})
    laid = nest(found, arch, mapping)
    values = {t: machine.random_values(found.dims, tensors[t], 0) for t in "WI"}
    run = machine.simulate(found.dims, tensors, "O", laid.keeps, laid.temporal, laid.spatial, values)
    assert mapper.evaluate(found, arch, mapping)["B", "I"].fills == 12
    assert run.counts[1, "I"].fills == {(): 10}
    assert overlap(laid, "I", 1) == 4
