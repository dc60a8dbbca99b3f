"""The search: its counts equal `evaluate`, its pruned orders lose nothing, and its result is optimal."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from common import bad_argument

from heterocompute import _heterocompute as core
from heterocompute.hardware import mapper
from heterocompute.hardware.mapper import dataflow, model, searching
from heterocompute.hardware.mapper.nest import nest

COSTS = {"read": 5.0, "write": 4.0, "update": 6.0}
GEMM = mapper.Problem.gemm(4, 6, 4)
CONV = mapper.Problem(
    {"K": 4, "P": 4, "R": 3}, {"W": [{"K": 1}, {"R": 1}], "I": [{"P": 1, "R": 1}], "O": [{"K": 1}, {"P": 1}]}, "O"
)
LAYER = mapper.Problem.conv2d(c=64, k=96, p=14, q=14, r=3, s=3)


def small_arch(words: int = 24, **more: Any) -> mapper.Arch:
    return mapper.Arch(
        [
            mapper.Level("DRAM", block=4, read=200.0, write=200.0, update=210.0),
            mapper.Level("Buffer", words=words, block=2, leak=0.01, **COSTS, **more),
            mapper.Level("RF", words=5, instances=2, read=1.0, write=1.0, update=1.0, leak=0.001),
        ],
        mac=0.5,
    )


def eyeriss() -> mapper.Arch:
    return mapper.Arch(
        [
            mapper.Level("DRAM", read=200.0, write=200.0, update=200.0),
            mapper.Level("GLB", words=54 * 1024, read=6.0, write=6.0, update=6.0),
            mapper.Level("RF", words={"W": 224, "I": 12, "O": 24}, instances=168, read=1.0, write=1.0, update=1.0),
        ],
        mac=1.0,
    )


def space_of(problem: mapper.Problem, arch: mapper.Arch, objective: str = "edp") -> model.Model:
    laid = nest(problem, arch, mapper.Mapping({arch.names[0]: list(problem.dims.items())}))
    return model.Model(laid, dataflow.space(problem, arch, laid.keeps), objective)


SPARSE = mapper.Problem(
    LAYER.dims, LAYER.tensors, "O", densities={"W": mapper.Density(0.35, "uniform"), "I": mapper.Density.n_of_m(2, 4)}
)
SPARSE_ARCH = mapper.Arch(
    [
        mapper.Level("DRAM", block=16, read=200.0, write=200.0, update=200.0, compress={"W": 4}, read_bandwidth=2),
        mapper.Level("Lanes", keeps=set(), instances=4),
        mapper.Level(
            "GLB", words=3000, instances=8, cluster=3, leak=0.1, compress={"W": 4, "I": 2}, bandwidth=3, **COSTS
        ),
        mapper.Level("RF", keeps={"W", "O"}, words=40, instances=64, skip={"O": {"W"}}, gate={"W": {"I"}}, **COSTS),
    ],
    mac=0.5,
    macs=128,
)


@pytest.mark.parametrize(
    ("problem", "arch"),
    [(GEMM, small_arch()), (CONV, small_arch(bandwidth=0.5)), (LAYER, eyeriss()), (SPARSE, SPARSE_ARCH)],
    ids=["gemm", "conv", "layer", "sparse"],
)
@pytest.mark.parametrize("objective", model.OBJECTIVES)
@pytest.mark.sweep(every=20)
def test_the_core_counts_what_evaluate_counts(problem: mapper.Problem, arch: mapper.Arch, objective: str) -> None:
    found = space_of(problem, arch, objective)
    rng = random.Random(7)
    fits = misfits = 0
    while fits < 150:
        factors = np.ones((found.n_slots, len(found.dims)), dtype=np.int64)
        for place, dim in enumerate(found.dims):
            for prime, power in model._primes(problem.dims[dim]):
                for _ in range(power):
                    factors[rng.choice([0, 0, *found.slots(dim)]), place] *= prime
        orders = [rng.randrange(len(level)) for level in found.space.orders]
        choice = np.concatenate([factors.ravel(), np.array(orders)])
        cost = core.map_cost(found.ints, found.reals, choice)
        mapping = found.mapping(choice.tolist())
        if cost is None:
            misfits += 1
            with pytest.raises(ValueError, match=r"^mapping: \w+ (holds|spreads)"):
                mapper.evaluate(problem, arch, mapping)
            continue
        fits += 1
        stats = mapper.evaluate(problem, arch, mapping)
        assert cost[1] == stats.cycles, mapping
        assert cost[0] == pytest.approx(stats.energy, rel=1e-12), mapping
        wanted = {"energy": stats.energy, "delay": stats.cycles, "edp": stats.edp}[objective]
        assert cost[2] == pytest.approx(wanted, rel=1e-12)
    assert misfits


def every_mapping(problem: mapper.Problem, arch: mapper.Arch) -> Any:
    """Return all factors with all orders of all levels, without pruning."""
    found = space_of(problem, arch)
    names, dims = arch.names, list(problem.dims)

    def loops(rows: Any, slot: int) -> list[tuple[str, int]]:
        return [(dim, int(row[slot])) for dim, row in zip(dims, rows, strict=True) if row[slot] > 1]

    for rows in itertools.product(*found.tables()):
        time = [loops(rows, slot) for slot in range(len(names))]
        spread = [loops(rows, slot) for slot in range(len(names), 2 * len(names))]
        for orders in itertools.product(*map(itertools.permutations, time)):
            yield mapper.Mapping(dict(zip(names, orders, strict=True)), dict(zip(names, spread, strict=True)))


@pytest.mark.parametrize("objective", model.OBJECTIVES)
@pytest.mark.parametrize(
    ("problem", "arch"),
    [
        (mapper.Problem.gemm(4, 2, 3), small_arch(14)),
        (mapper.Problem({**CONV.dims, "K": 2}, CONV.tensors, "O"), small_arch(12, keeps={"I", "O"})),
        (mapper.Problem({"P": 6, "R": 2, "C": 2}, {"W": [{"R": 1}, {"C": 1}], "I": [{"P": 1, "R": 2}, {"C": 1}],
                                             "O": [{"P": 1}]}, "O"), small_arch(16, bandwidth=0.25)),
    ],
)  # fmt: skip
def test_the_classes_of_orders_lose_nothing(problem: mapper.Problem, arch: mapper.Arch, objective: str) -> None:
    best = math.inf
    for mapping in every_mapping(problem, arch):
        try:
            stats = mapper.evaluate(problem, arch, mapping)
        except ValueError:
            continue
        best = min(best, {"energy": stats.energy, "delay": stats.cycles, "edp": stats.edp}[objective])
    found = mapper.search(problem, arch, objective, method="exhaustive")
    wanted = {"energy": found.stats.energy, "delay": found.stats.cycles, "edp": found.stats.edp}[objective]
    assert found.exhaustive and wanted == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("objective", model.OBJECTIVES)
@pytest.mark.parametrize("problem", [GEMM, CONV, mapper.Problem.conv2d(c=4, k=4, p=2, q=4, r=3, s=1)])
@pytest.mark.sweep(every=4)
def test_walks_find_what_exhaustion_finds(problem: mapper.Problem, objective: str) -> None:
    whole = mapper.search(problem, small_arch(), objective, method="exhaustive")
    walked = mapper.search(problem, small_arch(), objective, budget=30_000, method="walk")
    assert whole.exhaustive and not walked.exhaustive
    assert (walked.stats.energy, walked.stats.cycles) == pytest.approx((whole.stats.energy, whole.stats.cycles))


def test_small_spaces_are_exhausted_and_large_ones_are_not() -> None:
    assert mapper.search(GEMM, small_arch(), budget=1_000_000).exhaustive
    found = mapper.search(LAYER, eyeriss(), budget=2_000)
    assert not found.exhaustive and 0 < found.evaluated <= 8 * 2_000


@pytest.mark.parametrize("objective", model.OBJECTIVES)
def test_never_worse_than_a_dataflow(objective: str) -> None:
    options: dict[str, Any] = {"objective": objective, "budget": 2_000, "seed": 3}
    key = {"energy": "energy", "delay": "cycles", "edp": "edp"}[objective]
    free = getattr(mapper.search(LAYER, eyeriss(), **options).stats, key)
    for name in dataflow.DATAFLOWS:
        assert free <= getattr(mapper.search(LAYER, eyeriss(), dataflow=name, **options).stats, key), name


def test_the_seed_decides() -> None:
    first = mapper.search(LAYER, eyeriss(), budget=2_000, seed=1, threads=1)
    again = mapper.search(LAYER, eyeriss(), budget=2_000, seed=1, threads=3)
    other = mapper.search(LAYER, eyeriss(), budget=2_000, seed=2)
    assert (first.mapping, first.evaluated) == (again.mapping, again.evaluated)
    assert first.evaluated != other.evaluated
    whole = [mapper.search(GEMM, small_arch(), method="exhaustive", threads=n) for n in (1, 4)]
    assert whole[0] == whole[1]


def test_a_bigger_buffer_is_never_worse() -> None:
    found = [
        mapper.search(GEMM, small_arch(words), "energy", method="exhaustive").stats.energy for words in range(3, 64, 4)
    ]
    assert found == sorted(found, reverse=True) and found[0] > found[-1]
    assert found[0] > 2 * found[-1]


def test_what_a_dataflow_holds_still() -> None:
    words = {tensor: GEMM.words(tensor) for tensor in "WIO"}
    for name, tensor in (("ws", "W"), ("is", "I")):
        stats = mapper.search(GEMM, small_arch(), dataflow=name, method="exhaustive").stats
        assert stats["DRAM", tensor].reads == words[tensor], name
    os = mapper.search(GEMM, small_arch(), dataflow="os", method="exhaustive").stats
    assert (os["DRAM", "O"].updates, os["DRAM", "O"].reads) == (words["O"], 0)
    assert not mapper.search(GEMM, small_arch(), dataflow="nlr").mapping.temporal["RF"]
    row = mapper.search(LAYER, eyeriss(), dataflow="rs", budget=2_000).mapping
    assert ("S", 3) in row.temporal["RF"]
    assert not {"Q", "S"} & {dim for loops in row.spatial.values() for dim, _ in loops}
    assert not {"P", "R"} & {dim for dim, _ in row.temporal["RF"]}


def test_mixed_dataflows_differ_by_level() -> None:
    laid = nest(LAYER, eyeriss(), mapper.Mapping({"DRAM": list(LAYER.dims.items())}))
    orders = dataflow.space(LAYER, eyeriss(), laid.keeps, "ws-los").orders
    # Outer to inner: the weights rest over N, P, Q at the outer level, sums over C, R, S at the inner one.
    assert all(set(order[-3:]) == {"N", "P", "Q"} for order in orders[0])
    assert all(set(order[-3:]) == {"C", "R", "S"} for order in orders[1])
    assert len(orders[2]) == 1


def test_an_interrupt_returns_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, calls = threading.active_count(), []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if pytest runs in the background

    @contextlib.contextmanager
    def bar(*_: Any) -> Iterator[Callable[[int], None]]:
        def show(done: int) -> None:
            calls.append(done)
            signal.raise_signal(signal.SIGINT)

        yield show

    monkeypatch.setattr(searching, "_bar", bar)
    try:
        found = mapper.search(LAYER, eyeriss(), budget=20_000_000, threads=2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert found.interrupted and not found.exhaustive and len(calls) == 1
    assert 0 < found.evaluated < 20_000_000
    assert found.stats == mapper.evaluate(LAYER, eyeriss(), found.mapping)
    assert threading.active_count() == threads


def test_a_bar_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    mapper.search(GEMM, small_arch(), budget=1_000_000)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    mapper.search(GEMM, small_arch(), budget=1_000_000, progress=True)
    assert "search" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"objective": "area"}, "search: objective is 'area', expected one of energy, delay, edp"),
        ({"budget": 0}, "search: budget is 0, expected at least 1"),
        ({"dataflow": "xs"}, "search: dataflow is 'xs', expected one of ws, os, is, rs, nlr, ws-los, os-lws"),
        ({"dataflow": "rs"}, "search: rs needs the dimensions P, Q, R, S; the problem has M, N, K"),
        ({"method": "guess"}, "search: method is 'guess', expected one of auto, exhaustive, walk"),
        (
            {"problem": mapper.Problem.conv2d(c=512, k=512, p=56, q=56, r=3, s=3), "method": "exhaustive"},
            "search: 6e+11 mappings are too many for method='exhaustive', try 'walk'",
        ),
        (
            {"arch": small_arch(2)},
            "mapping: Buffer holds 2 words, the tiles take 3 (W 1, I 1, O 1): 1 too many",
        ),
    ],
)
def test_what_cannot_be_searched_says_why(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        mapper.search(**{"problem": GEMM, "arch": small_arch(), **change})
    assert str(caught.value) == sentence


def test_axes_that_only_evaluate_takes() -> None:
    problem = mapper.Problem(
        {"A": 2, "B": 2, "C": 2}, {"I": [{"A": 1, "B": 1, "C": 1}], "O": [{"A": 1}, {"A": 1}]}, "O"
    )
    arch = mapper.Arch([mapper.Level("DRAM"), mapper.Level("Buffer")])
    assert (
        mapper.evaluate(problem, arch, mapper.Mapping({"DRAM": [("A", 2)], "Buffer": [("B", 2), ("C", 2)]})).cycles == 8
    )
    with bad_argument(NotImplementedError, None, "unsupported", "over more than two loops"):
        mapper.search(problem, arch)


def test_the_core_refuses_numbers_of_no_model() -> None:
    found = space_of(GEMM, small_arch())
    choice = found.first_choice()
    assert core.map_cost(found.ints, found.reals, choice) is not None
    for ints, reals, chosen in (
        (found.ints[:-1], found.reals, choice),
        (found.ints, found.reals[:-1], choice),
        (np.append(found.ints, 0), found.reals, choice),
        (found.ints, -found.reals, choice),
        (found.ints, np.full_like(found.reals, np.nan), choice),
        (found.ints, found.reals, choice[:-1]),
        (found.ints, found.reals, choice * 2),
        (found.ints, found.reals, choice + 100),
    ):
        with pytest.raises(ValueError, match="^search: "):
            core.map_cost(ints, reals, chosen)
    for place in range(len(found.ints)):
        for value in (-1, 17, 2**40):
            bad = found.ints.copy()
            bad[place] = value
            try:
                core.map_cost(bad, found.reals, choice)
            except ValueError as error:
                assert str(error).startswith("search: ")
            else:  # a coefficient, or a mask of dimensions: another model, but one
                assert value > 0
    with pytest.raises(TypeError, match="expected a contiguous 1-dimensional array of int64"):
        core.map_cost(found.ints.astype(np.int32), found.reals, choice)
    with pytest.raises(ValueError, match="no factors number 0 to 99999999"):
        core.map_enumerate(found.ints, found.reals, found.tables(), 0, 99_999_999)
