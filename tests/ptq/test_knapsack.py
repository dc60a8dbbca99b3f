"""The knapsack of the search for formats equals brute force and a solver of integer programs."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest
from common import bad_argument

from heterocompute.ptq.knapsack import solve


@pytest.mark.parametrize("kinds", [1, 2, 3])
@pytest.mark.sweep(every=4)
def test_small_problems_are_solved_as_by_brute_force(kinds: int) -> None:
    unsolvable = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, m = (int(k) for k in rng.integers(1, 6, 2))
        costs = rng.integers(0, 9, (kinds, n, m)).astype(float)
        losses = np.round(rng.random((n, m)), 1)  # with ties
        budgets = [int(rng.integers(c.min(axis=1).sum(), c.max(axis=1).sum() + 1)) for c in costs]
        items = np.arange(n)
        every = [np.array(c) for c in itertools.product(range(m), repeat=n)]
        fitting = [c for c in every if all(one[items, c].sum() <= b for one, b in zip(costs, budgets, strict=True))]
        if not fitting:
            unsolvable += 1
            with bad_argument(ValueError, None, "value", "no choice is within all budgets"):
                solve(costs, losses, budgets)
            continue
        found = solve(costs, losses, budgets)
        best = min(losses[items, c].sum() for c in fitting)
        assert found.proven and abs(found.loss - best) < 1e-12
        assert found.costs == tuple(costs[:, items, found.choice].sum(axis=1))
        assert all(c <= b for c, b in zip(found.costs, budgets, strict=True))
        assert found.loss == losses[items, found.choice].sum() and found.bound <= found.loss
    assert (unsolvable > 0) == (kinds > 1)


def layers(count: int, seed: int) -> tuple[Any, Any, int]:
    rng = np.random.default_rng(seed)
    bits = np.array([2.25, 2.5, 3, 3.25, 3.5, 4, 4.25, 4.5, 5, 5.25, 6.25, 8, 8.25])
    size = rng.choice([384 * 384, 384 * 1536, 4096 * 4096, 4096 * 11008, 512000], count)
    noise = np.exp(2 * rng.standard_normal((count, 1)) + 0.2 * rng.standard_normal((count, 13)))
    return (size[:, None] * bits / 8).astype(np.int64), noise * 4.0**-bits, int(size.sum() // 2)


def integer_program(costs: list[Any], losses: Any, budgets: list[float]) -> tuple[float, float]:
    """Return the solution of HiGHS, and its bound."""
    optimize, sparse = pytest.importorskip("scipy.optimize"), pytest.importorskip("scipy.sparse")
    n, m = losses.shape
    one_each = sparse.kron(sparse.eye_array(n), np.ones((1, m))).tocsr()
    # its tolerances are absolute: with a budget of 1 it would go a millionth over it, which is 2 KB of 3 GB
    rows = np.array([np.reshape(one, -1) / budget * 1e3 for one, budget in zip(costs, budgets, strict=True)])
    constraints = [optimize.LinearConstraint(one_each, 1, 1), optimize.LinearConstraint(rows, -np.inf, 1e3)]
    unit = losses.sum()
    found = optimize.milp(
        losses.reshape(-1) / unit * 1e4,
        constraints=constraints,
        integrality=np.ones(losses.size),
        bounds=optimize.Bounds(0, 1),
        options={"mip_rel_gap": 1e-9, "time_limit": 100},
    )
    return found.fun * unit / 1e4, found.mip_dual_bound * unit / 1e4


def check_against_integer_program(count: int, seed: int) -> None:
    costs, losses, budget = layers(count, seed)
    found = solve([costs], losses, [budget])
    best, bound = integer_program([costs], losses, [budget])
    assert found.proven and found.costs[0] <= budget
    assert abs(found.loss / best - 1) < 1e-9 and bound <= found.loss * (1 + 1e-9)


@pytest.mark.parametrize(("count", "seed"), [(20, 1), (100, 3)])
def test_the_optimum_is_that_of_a_solver_of_integer_programs(count: int, seed: int) -> None:
    check_against_integer_program(count, seed)


@pytest.mark.sweep(every=0)
@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_of_500_layers_is_that_of_a_solver_of_integer_programs(seed: int) -> None:
    check_against_integer_program(500, seed)


def test_many_layers_are_proven_quickly() -> None:
    costs, losses, budget = layers(500, 9)
    begin = time.process_time()
    found = solve([costs], losses, [budget])
    assert found.proven and found.costs[0] <= budget
    assert time.process_time() - begin < 2  # 0.14 s on a quiet machine


def test_several_budgets_have_a_bound() -> None:
    costs, losses, budget = layers(30, 2)
    times = costs * np.random.default_rng(0).uniform(0.5, 2, 13)
    limit = float(times.mean(axis=1).sum() * 0.7)
    found = solve([costs, times], losses, [budget, limit])
    best, bound = integer_program([costs, times], losses, [budget, limit])
    assert found.costs[0] <= budget and found.costs[1] <= limit
    assert bound * (1 - 1e-6) <= found.loss <= best * 1.02
    assert best * 0.9 <= found.bound <= best * (1 + 1e-6)


def test_a_budget_below_the_cheapest_choices_is_refused() -> None:
    with bad_argument(ValueError, None, "value", "the cheapest choices take 3, more than the budget of 2"):
        solve([[[1, 5], [2, 2]]], [[1, 0], [0, 0]], [2])
    assert solve([[]], [], [0]).choice == ()
