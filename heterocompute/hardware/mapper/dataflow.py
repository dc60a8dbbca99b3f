"""Orders of a level's loops that need evaluation, and the dataflows of the literature as constraints on a search.

A tensor is affected only by which of a level's loops are inside the innermost one that moves it, and, if the tile
slides, by which loop moves it. So orders form a few classes. A loop that does not move any tensor that is still at rest
costs nothing further inside; the best order of every class has it there. For a convolution 11 of 5040 orders remain.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...base.errors import WrongValue
from ...base.values import check_choice
from .arch import Arch
from .problem import Problem

Order = tuple[str, ...]

#: Dataflows by name, and the tensor that each keeps stationary.
DATAFLOWS = {
    "ws": "weight stationary: at every level the weights rest while all loops that do not move them run",
    "os": "output stationary: partial sums rest until they are complete",
    "is": "input stationary: inputs rest",
    "rs": "row stationary (Eyeriss, ISCA 2016): a row of the filter and of the output in a cell, rows spread in space",
    "nlr": "no local reuse (DianNao): the innermost level runs no loop in time",
    "ws-los": "weight stationary, local output stationary (MAGNet, ICCAD 2019): sums rest in the innermost levels",
    "os-lws": "output stationary, local weight stationary (MAGNet): weights rest in the innermost levels",
}


@dataclass(frozen=True)
class Space:
    """Where a search may put loops.

    Attributes
    ----------
    orders : list of list of tuple of str
        For each level, the orders of its loops in time, outer to inner.
    temporal, spatial : list of frozenset of str
        For each level, the dimensions that may have a loop in time, and in space.
    """

    orders: list[list[Order]]
    temporal: list[frozenset[str]]
    spatial: list[frozenset[str]]


def order_classes(problem: Problem, still: str | None = None) -> list[Order]:
    """Orders of all loops, outer to inner, one of each class that may be the best.

    Parameters
    ----------
    still : str, optional
        A tensor that rests while every loop runs that does not move it.

    Examples
    --------
    >>> len(order_classes(Problem.conv2d(c=3, k=96, p=55, q=55, r=11, s=11)))
    11
    >>> order_classes(Problem.gemm(4, 8, 16), still="W")
    [('K', 'N', 'M')]
    """
    moves = {tensor: problem.relevant(tensor) for tensor in problem.tensors}
    slides = {
        tensor: {dim for axis in axes if len(axis) > 1 for dim in axis} for tensor, axes in problem.tensors.items()
    }
    found: dict[object, Order] = {}

    def grow(inner: list[str], resting: frozenset[str], key: dict[str, object]) -> None:
        left = [dim for dim in problem.dims if dim not in inner]
        inner = inner + [dim for dim in left if not any(dim in moves[tensor] for tensor in resting)]
        left = [dim for dim in left if dim not in inner]
        if not left:
            end = {tensor: (frozenset(inner) - moves[tensor], None) for tensor in resting}
            found.setdefault(tuple(sorted((key | end).items(), key=lambda item: item[0])), tuple(reversed(inner)))
            return
        for dim in left:
            ends = {
                tensor: (frozenset(inner) - moves[tensor], dim if dim in slides[tensor] else None)
                for tensor in resting
                if dim in moves[tensor]
            }
            if still in ends and not set(problem.dims) - moves[still] <= set(inner):
                continue
            grow([*inner, dim], resting - ends.keys(), key | ends)

    grow([], frozenset(problem.tensors), {})
    return list(found.values())


def space(problem: Problem, arch: Arch, keeps: list[frozenset[str]], dataflow: str | None = None) -> Space:
    """Lay out where loops may go.

    Parameters
    ----------
    keeps : list of frozenset of str
        Tensors that each level keeps.
    dataflow : str, optional
        A name of `DATAFLOWS`.

    Raises
    ------
    ValueError
        The dataflow is unknown, or this problem or machine does not allow it.
    """
    if dataflow is not None:
        check_choice("search", "dataflow", dataflow, DATAFLOWS)
    everything = frozenset(problem.dims)
    n_levels = len(arch.levels)
    plain = tuple(problem.dims)
    # The order of a level matters if an inner level keeps a tensor, or if multipliers share a stationary word.
    rests = arch.fanout(n_levels - 1) > 1
    ordered = [rests or any(keeps[inner] for inner in range(place + 1, n_levels)) for place in range(n_levels)]
    innermost = max((place for place in range(n_levels) if ordered[place]), default=0)
    orders = []
    for place in range(n_levels):
        still = _still(problem, dataflow, place == innermost)
        orders.append(order_classes(problem, still) if ordered[place] else [plain])
    temporal = [everything] * n_levels
    spatial = [everything if arch.fanout(place) > 1 else frozenset() for place in range(n_levels)]
    last = max(place for place in range(n_levels) if keeps[place])
    if dataflow == "nlr":
        if last == 0:
            raise WrongValue("search: nlr needs at least two levels that keep something")
        temporal[last:] = [frozenset()] * (n_levels - last)
    if dataflow == "rs":
        if not {"P", "Q", "R", "S"} <= everything:
            raise WrongValue(f"search: rs needs the dimensions P, Q, R, S; the problem has {', '.join(problem.dims)}")
        temporal = [everything - {"S"}] * last + [everything - {"P", "R"}] * (n_levels - last)
        spatial = [dims - {"Q", "S"} for dims in spatial]
    return Space(orders, temporal, spatial)


def _still(problem: Problem, dataflow: str | None, local: bool) -> str | None:
    if dataflow in (None, "nlr", "rs"):
        return None
    assert dataflow is not None
    outer, _, inner = dataflow.partition("-l")
    kind = inner if inner and local else outer
    place = {"ws": 0, "is": 1}.get(kind)
    if place is None:
        return problem.output
    if place >= len(problem.inputs):
        raise WrongValue(f"search: {dataflow} needs {place + 1} tensors besides the output, not {problem.inputs}")
    return problem.inputs[place]
