"""The multiple-choice knapsack: one choice per item, least loss within one budget or several, with a proof.

The Lagrangian ``min sum loss + l (cost - budget)`` is a lower bound of every solution; at the best l it is the bound of
the linear relaxation. The reduced cost of a choice is its cost above the least of its item under that l; an answer
better than the best known one cannot have choices whose reduced costs sum to more than the gap. So items are joined one
after the other, keeping only undominated states within the gap: a branch and bound whose nodes of one level are in an
array. Sinha and Zoltners, Operations Research 27 (1979); Pisinger, EJOR 83 (1995).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import WrongValue

Array = np.ndarray[Any, Any]

STATES = (100, 1_000, 10_000, 100_000)  # per level, pass by pass; each begins with the best of the preceding
SEVERAL = 3_000  # maximum, if several budgets do not define an order
ASIDE = (1.0, 0.97, 1.03, 0.9, 1.1, 0.75, 1.3, 0.5, 2.0)  # factors of the best price, for other uses of the rest
TILTS = (0.2, 0.5, 2.0, 5.0)  # factors of a price, for further starting points
MOVES = 600  # moves of least reduced cost that are tried in pairs
CHAMPIONS = 32  # states with which a state is compared there
STEPS = 150  # of the search for the multipliers of several budgets, for each of them


@dataclass(frozen=True)
class Solution:
    """A choice for each item.

    Attributes
    ----------
    choice : tuple of int
    loss : float
    costs : tuple of float
        Cost in each budget.
    bound : float
        No answer within the budgets has less loss.
    proven : bool
        Whether this is an optimum, up to float64 rounding; otherwise the optimum is at most ``loss - bound`` lower.
    """

    choice: tuple[int, ...]
    loss: float
    costs: tuple[float, ...]
    bound: float
    proven: bool


def solve(costs: Sequence[Any], losses: Any, budgets: Sequence[float]) -> Solution:
    """Choose one of each item's options so that all costs stay within their budgets and losses are least.

    Parameters
    ----------
    costs : sequence of array_like, (items, options)
        For each budget what options cost, 0 or more: integers, which are added exactly, or floats.
    losses : array_like, (items, options)
        Finite.

    Raises
    ------
    ValueError
        The cheapest options together are above a budget, or no choice was found that keeps all of them.

    Examples
    --------
    >>> from heterocompute.ptq.knapsack import solve
    >>> solve([[[4, 2], [4, 2], [6, 3]]], [[0, 1], [0, 3], [0, 2]], [10])
    Solution(choice=(1, 0, 1), loss=3.0, costs=(9.0,), bound=3.0, proven=True)
    """
    loss = np.array(losses, np.float64)
    cost, limit = np.array(costs, np.float64), np.array(budgets, np.float64)
    if not len(loss):
        return Solution((), 0.0, (0.0,) * len(limit), 0.0, True)
    least = cost.min(axis=2)
    for needed, budget in zip(least.sum(axis=1), limit, strict=True):
        if needed > budget:
            raise WrongValue(f"the cheapest choices take {needed:.9g}, more than the budget of {budget:.9g}")
    unit = np.where(limit > 0, limit, 1.0)  # so that multipliers have similar magnitudes
    price = _prices(cost / unit[:, None, None], loss, limit / unit) / unit
    paid = np.einsum("k,kij->ij", price, cost)
    reduced = loss + paid
    base = reduced.min(axis=1)
    bound = max(float(base.sum() - price @ limit), float(loss.min(axis=1).sum()))
    reduced = reduced - base[:, None]
    slack = 1e-12 * (abs(bound) + float(price @ limit) + float(np.abs(base).sum()))
    best, whole = _begun(cost, loss, paid, limit), False
    if len(limit) > 1:
        tilts = [np.where(np.arange(len(limit)) == k, f, 1.0) for k in range(len(limit)) for f in TILTS]
        begun = [_begun(cost, loss, np.einsum("k,kij->ij", price * tilt, cost), limit) for tilt in tilts]
        tried = [_exchanged(cost, loss, reduced, one, limit) for one in (best, *begun) if one is not None]
        best = min(tried, key=lambda one: float(loss[np.arange(len(loss)), one].sum()), default=None)
    for states in STATES if len(limit) == 1 else [most for most in STATES if most <= SEVERAL]:
        best, whole = _join(cost, loss, reduced, price, best, bound, limit, slack, states)
        if whole:
            break
        if len(limit) > 1 and best is not None:
            best = _exchanged(cost, loss, reduced, best, limit)
    items = np.arange(len(loss))
    if best is None:
        proof = "is within all budgets" if whole else "within all budgets was found"
        raise WrongValue(f"no choice {proof}")
    total = float(loss[items, best].sum())
    proven = whole or total <= bound
    spent = tuple(map(float, cost[:, items, best].sum(axis=1)))
    return Solution(tuple(map(int, best)), total, spent, total if proven else min(bound, total), proven)


def _prices(cost: Array, loss: Array, limit: Array) -> Array:
    """Return multipliers at which the Lagrangian bound is highest: one by its slopes, several by an ellipsoid.

    Shor, Cybernetics 13 (1977): the half of an ellipsoid that a subgradient points to lies in a smaller ellipsoid.
    """
    if len(limit) == 1:
        return np.array([_price(cost[0], loss, float(limit[0]))])
    items = np.arange(len(loss))
    k = len(limit)
    scale = float((loss.max(axis=1) - loss.min(axis=1)).sum()) or 1.0
    center, matrix = np.zeros(k), np.eye(k) * (1e4 * scale) ** 2
    best, highest = center, -np.inf
    for _ in range(STEPS * k):
        if center.min() < 0:
            slope = np.where(np.arange(k) == center.argmin(), 1.0, 0.0)
        else:
            value = loss + np.einsum("k,kij->ij", center, cost)
            choice = value.argmin(axis=1)
            slope = cost[:, items, choice].sum(axis=1) - limit
            height = float(value[items, choice].sum() - center @ limit)
            if height > highest:
                best, highest = center, height
        length = float(np.sqrt(max(float(slope @ matrix @ slope), 0.0)))
        if length <= 1e-14 * scale:
            break
        step = matrix @ slope / length
        center = center + step / (k + 1)
        matrix = k * k / (k * k - 1) * (matrix - 2 / (k + 1) * np.outer(step, step))
    return best


def _price(cost: Array, loss: Array, budget: float) -> float:
    """Return the least price of cost at which the cheapest choices are within the budget."""

    def fits(price: float) -> bool:
        value = loss + price * cost
        ties = value <= value.min(axis=1, keepdims=True)
        return bool(np.where(ties, cost, np.inf).min(axis=1).sum() <= budget)

    if fits(0.0):
        return 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = (loss[:, :, None] - loss[:, None, :]) / (cost[:, None, :] - cost[:, :, None])
    prices = np.unique(slopes[np.isfinite(slopes) & (slopes > 0)])
    low, high = -1, len(prices) - 1
    if high < 0 or not fits(float(prices[-1]) * (1 + 1e-12)):
        return float(prices[-1]) * 2 if high >= 0 else 1.0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(float(prices[middle]) * (1 + 1e-12)) else (middle, high)
    return float(prices[high])


def _begun(cost: Array, loss: Array, paid: Array, limit: Array) -> Array | None:
    """Return a choice within the budgets, with the remainder spent on the largest gains; None if none was found."""
    items = np.arange(len(loss))
    for factor in (1.0, 1 + 1e-12, 1.03, 1.1, 1.3, 2.0, 8.0, 1e6):
        choice = (loss + factor * paid).argmin(axis=1)
        room = limit - cost[:, items, choice].sum(axis=1)
        if room.min() >= 0:
            break
    else:
        choice = (cost / np.where(limit > 0, limit, 1.0)[:, None, None]).sum(axis=0).argmin(axis=1)
        room = limit - cost[:, items, choice].sum(axis=1)
        if room.min() < 0:
            return None
    while True:
        gain = loss[items, choice][:, None] - loss
        more = cost - cost[:, items, choice][:, :, None]
        gain = np.where((more <= room[:, None, None]).all(axis=0), gain, 0.0)
        item, option = np.unravel_index(int(gain.argmax()), gain.shape)
        if not gain[item, option] > 0:
            return np.asarray(choice)
        room = limit - (cost[:, items, choice].sum(axis=1) + more[:, item, option])
        choice[item] = option


def _exchanged(cost: Array, loss: Array, reduced: Array, choice: Array, limit: Array) -> Array:
    """Improve a choice by changes of two items at a time, the best first, until none helps."""
    items, choice = np.arange(len(loss)), choice.copy()
    item, option = np.unravel_index(np.argsort(reduced, axis=None, kind="stable")[:MOVES], loss.shape)
    other = item[:, None] != item
    while True:
        gain = loss[item, choice[item]] - loss[item, option]
        more = cost[:, item, option] - cost[:, item, choice[item]]
        room = limit - cost[:, items, choice].sum(axis=1)
        both = np.where(other, gain[:, None] + gain, 0.0)
        for k in range(len(limit)):
            both[more[k][:, None] + more[k] > room[k]] = 0.0
        first, second = np.unravel_index(int(both.argmax()), both.shape)
        if not both[first, second] > 1e-12 * np.abs(gain).max():
            return choice
        choice[item[[first, second]]] = option[[first, second]]


def _join(
    cost: Array, loss: Array, reduced: Array, price: Array, best: Array | None, bound: float, limit: Array,
    slack: float, most: int,
) -> tuple[Array | None, bool]:  # fmt: skip
    """Return the best choice, and whether every dropped state was certainly not part of a better one."""
    n, items = len(loss), np.arange(len(loss))
    known = float((loss.max(axis=1) if best is None else loss[items, best]).sum())
    gap = known - bound + slack
    open_options = [np.flatnonzero(row <= gap) for row in reduced]
    order = sorted(
        range(n), key=lambda i: (len(open_options[i]) > 1, -float(reduced[i, open_options[i]].max(initial=0)))
    )
    prices = np.array([price * f for f in ASIDE])
    if len(limit) > 1:
        prices = np.concatenate([prices, *(price * np.where(np.eye(len(limit)) > 0, f, 1.0) for f in ASIDE[1:])])
    bases = (loss + np.einsum("pk,kij->pij", prices, cost)).min(axis=2)  # of each item with each of these prices
    ahead = bases[:, order].sum(axis=1, keepdims=True) - np.cumsum(bases[:, order], axis=1) - (prices @ limit)[:, None]
    least = cost.min(axis=2)
    rest = least[:, order].sum(axis=1, keepdims=True) - np.cumsum(least[:, order], axis=1)
    spent, lost = np.zeros((len(limit), 1)), np.zeros(1)
    parents, chosen, whole = [], [], True
    for level, i in enumerate(order):
        options = open_options[i]
        next_lost = (loss[i, options][:, None] + lost).reshape(-1)  # of one option, in the order of the states
        next_spent = (cost[:, i, options][:, :, None] + spent[:, None, :]).reshape(len(limit), -1)
        fits = (next_spent + rest[:, level, None] <= limit[:, None]).all(axis=0)
        keep = np.flatnonzero(fits & (next_lost + price @ next_spent <= known + slack - ahead[0, level]))
        if len(options) > 1:
            keep = keep[_best_of(next_spent[:, keep], next_lost[keep], price)]
            surely = next_lost[keep] + (prices @ next_spent[:, keep] + ahead[:, level, None]).max(axis=0)
            keep, surely = keep[surely <= known + slack], surely[surely <= known + slack]
            if len(keep) > most:
                whole = False
                keep = keep[np.sort(np.argpartition(surely, most)[:most])]
        if not len(keep):
            return best, whole
        parents.append(keep % len(lost))
        chosen.append(options[keep // len(lost)])
        spent, lost = next_spent[:, keep], next_lost[keep]
    state = int(lost.argmin())
    if best is not None and not lost[state] < float(loss[items, best].sum()):
        return best, whole
    answer = np.empty(n, np.int64)
    for i, parent, options in zip(reversed(order), reversed(parents), reversed(chosen), strict=True):
        answer[i] = options[state]
        state = int(parent[state])
    return answer, whole


def _best_of(spent: Array, lost: Array, price: Array) -> Array:
    """Return the positions of states that are not dominated in costs and loss; for several budgets, by a champion."""
    if len(spent) == 1:
        order = np.argsort(spent[0], kind="stable")  # a merge: the states of one option are already sorted
        lowest = np.minimum.accumulate(np.concatenate([[np.inf], lost[order]]))[:-1]
        order = order[lost[order] < lowest]
        return np.asarray(order[np.diff(spent[0][order], append=np.inf) > 0])  # the last of equal costs loses least
    order = np.lexsort((lost, lost + price @ spent))
    beaten = np.zeros(len(order), bool)
    for place in order[:CHAMPIONS]:
        if not beaten[place]:
            worse = (lost >= lost[place]) & (spent >= spent[:, place, None]).all(axis=0)
            worse[place] = False
            beaten |= worse
    return np.flatnonzero(~beaten)
