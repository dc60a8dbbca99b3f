"""The search for a mapping: all of them if they are few, otherwise walks from several seeds. C does the counting."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any

from ... import _heterocompute as _core
from ...base.errors import Unsupported, WrongValue
from ...base.lazy import renamed
from ...base.progress import Progress, in_notebook, reported
from ...base.values import Rng, check_choice, seed_from
from ...report.results.saved import Saved
from ...report.table import can_steer, rich_console
from .accesses import Stats, evaluate
from .arch import Arch
from .dataflow import DATAFLOWS, space
from .mapping import Mapping, check_kinds
from .model import OBJECTIVES, Model
from .nest import Nest, nest
from .problem import Problem, whole

#: Independent walks; a fixed number, so that the result does not depend on the number of threads.
WALKS = 8
#: Mappings between two checks for an interrupt: some 20 ms.
STEP = 20_000
#: An hour or so.
MAX_EXHAUSTIVE = 2 * 10**10
MAX_DIMS, MAX_LEVELS, MAX_TENSORS, MAX_AXES, MAX_BOUND = 16, 12, 8, 8, 2**31 - 1
METHODS = ("auto", "exhaustive", "walk")

Cost = tuple[float, float, float, float]


@dataclass(frozen=True, repr=False)
class Found(Saved):
    """The best mapping of a search; `save` writes a file that `load` reads.

    Attributes
    ----------
    mapping : Mapping
    stats : Stats
    evaluated : int
        Number of mappings evaluated.
    exhaustive : bool
        Whether all mappings were evaluated, so that none is better.
    interrupted : bool
        Whether Ctrl-C ended the search early.
    dataflow : str or None
        The preset that the mapping belongs to; None for a search without presets.
    """

    mapping: Mapping
    stats: Stats
    evaluated: int
    exhaustive: bool
    interrupted: bool
    dataflow: str | None

    kind = "mapping that a search found"

    def __repr__(self) -> str:
        proof = ", all of them" if self.exhaustive else ", interrupted" if self.interrupted else ""
        kind = "" if self.dataflow is None else f", dataflow {self.dataflow}"
        return (
            f"<Found: {self.stats.energy:.4g} pJ, {self.stats.cycles:,} cycles, {self.stats.utilisation:.1%} of the "
            f"multipliers{kind}; {self.evaluated:,} mappings evaluated{proof}>"
        )

    def _repr_html_(self) -> str:
        return f"<p>{repr(self).strip('<>')}</p>{self.mapping._repr_html_()}"


@dataclass
class _Best:
    cost: Cost | None = None
    choice: list[int] | None = None
    model: Any = None
    evaluated: int = 0

    def take(self, cost: Cost | None, choice: list[int] | None, model: object) -> None:
        """Keep the better mapping; the first among equals."""
        if cost is not None and (self.cost is None or cost[2:] < self.cost[2:]):
            self.cost, self.choice, self.model = cost, choice, model


@renamed(workers="threads")
def search(
    problem: Problem,
    arch: Arch,
    objective: str = "edp",
    budget: int = 100_000,
    seed: int = 0,
    threads: int | None = None,
    dataflow: str | None = None,
    method: str = "auto",
    progress: Progress | bool | None = None,
    *,
    rng: Rng = None,
) -> Found:
    """Search for the best mapping of a problem to a machine.

    Parameters
    ----------
    problem : Problem
    arch : Arch
    objective : {"edp", "energy", "delay"}
        Energy times cycles, pJ, or cycles. Ties are decided by the remaining quantity.
    budget : int, optional
        Number of mappings to try. If there are no more mappings, all are tried. Otherwise walks share the budget. The
        walks of each dataflow get the same budget again, so that the result is never worse than that of one dataflow.
    seed : int, optional
        The same seed gives the same result for every number of threads.
    rng : int or numpy.random.Generator, optional
        In place of `seed`: an int is the seed, a generator draws it (SPEC 7).
    threads : int, optional
        Number of threads. Default: those of the machine.
    dataflow : {"ws", "os", "is", "rs", "nlr", "ws-los", "os-lws"}, optional
        Only mappings of this dataflow; see `dataflow.DATAFLOWS`.
    method : {"auto", "exhaustive", "walk"}
    progress : callable or bool, optional
        Called as ``progress(done, total, text)`` with numbers of mappings, ten times a second. True: a bar on stderr.
        False: nothing. Default: a bar if stderr is a terminal, and in notebooks.

    Returns
    -------
    Found
        After Ctrl-C the best mapping so far.

    Raises
    ------
    ValueError
        No mapping fits (the message has the level that overflows and by how much), a name is unknown, or a number is
        out of range.
    TypeError
        problem is not a Problem, or arch is not an Arch.
    NotImplementedError
        A tensor has an axis over more than two loops, or one loop in two axes. `evaluate` supports these.

    Examples
    --------
    >>> from heterocompute.hardware.mapper import Level
    >>> a = Arch([Level("DRAM", read=640.0, update=640.0), Level("Buffer", words=64, read=5.0)], mac=1.0)
    >>> found = search(Problem.gemm(8, 8, 8), a, objective="energy")
    >>> found.exhaustive, found.stats["DRAM", "W"].reads
    (True, 64)
    """
    check_kinds("search", problem=problem, arch=arch)
    check_choice("search", "objective", objective, OBJECTIVES)
    check_choice("search", "method", method, METHODS)
    budget, seed = whole(budget, "search: budget"), whole(seed_from("search", seed, rng), "search: seed", 0)
    n_threads = whole(threads, "search: threads") if threads is not None else _core.processors()
    _check_limits(problem, arch)
    everywhere = nest(problem, arch, Mapping({arch.levels[0].name: list(problem.dims.items())}))
    model = Model(everywhere, space(problem, arch, everywhere.keeps, dataflow), objective)
    exhaustive = method == "exhaustive" or (method == "auto" and model.size() <= budget)
    if exhaustive and model.size() > MAX_EXHAUSTIVE:
        raise WrongValue(f"search: {model.size():.3g} mappings are too many for method='exhaustive', try 'walk'")
    best = _Best()
    models = [(dataflow, model)]
    if exhaustive:
        tasks = list(_chunks(model))
    else:
        if dataflow is None:
            models += _presets(everywhere, objective)
        tasks = [task for _, found in models for task in _walks(found, budget, seed)]
    interrupted = _run(tasks, best, n_threads, progress)
    if best.choice is None:
        if interrupted:
            raise KeyboardInterrupt
        raise WrongValue(f"search: no mapping of {dataflow or 'this problem'} fits this machine")
    mapping = best.model.mapping(best.choice)
    name = next(name for name, found in models if found is best.model)
    stats = evaluate(problem, arch, mapping)
    return Found(mapping, stats, best.evaluated, exhaustive and not interrupted, interrupted, name)


def _check_limits(problem: Problem, arch: Arch) -> None:
    limits = (
        (len(problem.dims), MAX_DIMS, "dimensions"),
        (len(arch.levels), MAX_LEVELS, "levels"),
        (len(problem.tensors), MAX_TENSORS, "tensors"),
        (max(map(len, problem.tensors.values())), MAX_AXES, "axes of a tensor"),
        (max(problem.dims.values()), MAX_BOUND, "as a bound"),
    )
    for count, most, what in limits:
        if count > most:
            raise WrongValue(f"search: {count} {what}, at most {most} can be searched")
    for tensor, axes in problem.tensors.items():
        for axis in axes:
            if len(axis) > 2 or any(sum(dim in other for other in axes) > 1 for dim in axis):
                raise Unsupported(
                    f"search: the axis {axis} of {tensor} is over more than two loops, or shares one with another "
                    "axis; such a problem can be evaluated, but not searched"
                )


def _presets(everywhere: Nest, objective: str) -> list[tuple[str | None, Model]]:
    """Return models of the dataflows that this problem and machine allow."""
    found: list[tuple[str | None, Model]] = []
    for name in DATAFLOWS:
        with contextlib.suppress(ValueError):
            where = space(everywhere.problem, everywhere.arch, everywhere.keeps, name)
            found.append((name, Model(everywhere, where, objective)))
    return found


# A task is called until it is done. Each call returns the number of counted mappings, the best so far, and whether it
# is done.
Task = Callable[[], tuple[int, Cost | None, list[int] | None, bool]]


def _chunks(model: Model) -> Iterator[tuple[Model, Task, int]]:
    """Yield all choices, some at a time."""
    tables = model.tables()
    total = math.prod(len(table) for table in tables)
    many = max(1, 10 * STEP // model.orders())

    def chunk(start: int) -> Task:
        def run() -> tuple[int, Cost | None, list[int] | None, bool]:
            stop = min(start + many, total)
            evaluated, cost, choice = _core.map_enumerate(model.ints, model.reals, tables, start, stop)
            return evaluated, cost, choice, True

        return run

    for start in range(0, total, many):
        yield model, chunk(start), min(many, total - start) * model.orders()


def _walks(model: Model, budget: int, seed: int) -> Iterator[tuple[Model, Task, int]]:
    """Yield walks that share a budget; none if the first choice does not fit."""
    choice = model.first_choice()
    if any(not model.slots(dim) for dim, bound in model.problem.dims.items() if bound > 1) or not model.fits(choice):
        return

    def walk(number: int, steps: int) -> Task:
        state = _core.map_walk(model.ints, model.reals, choice, (seed * WALKS + number) % 2**64, steps)
        counted = 0

        def run() -> tuple[int, Cost | None, list[int] | None, bool]:
            nonlocal counted
            steps_done, valid, cost, found = _core.map_walk_on(state, STEP)
            counted, new = valid, valid - counted
            return new, cost, found, steps_done >= steps

        return run

    for number in range(min(WALKS, budget)):
        steps = budget // WALKS + (number < budget % WALKS)
        yield model, walk(number, steps), steps


def _run(
    tasks: Sequence[tuple[Model, Task, int]], best: _Best, n_threads: int, progress: Progress | bool | None
) -> bool:
    """Run all tasks, and take their results in order; return whether Ctrl-C ended it."""
    ended = interrupted = False
    results: list[tuple[Cost | None, list[int] | None]] = [(None, None)] * len(tasks)
    counted, finished = [0] * len(tasks), [0] * len(tasks)
    indices, lock = iter(range(len(tasks))), Lock()
    failures: list[BaseException] = []

    def work() -> None:
        while not ended:
            with lock:
                place = next(indices, None)
            if place is None:
                return
            done = False
            while not done and not ended:
                evaluated, cost, choice, done = tasks[place][1]()
                counted[place] += evaluated
                results[place] = (cost, choice)
            finished[place] = tasks[place][2]

    def guarded() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    # Not a ThreadPoolExecutor: an interrupt while it accepts a task leaves it locked.
    threads = [Thread(target=guarded, daemon=True) for _ in range(min(n_threads, len(tasks)))]
    try:
        for thread in threads:
            thread.start()
        with _bar(progress, sum(size for _, _, size in tasks)) as show:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.1)
                    show(sum(finished))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        ended = True
        for thread in threads:
            if thread.is_alive():
                thread.join()
    if failures:
        raise failures[0]
    for (model, _, _), (cost, choice) in zip(tasks, results, strict=True):
        best.take(cost, choice, model)
    best.evaluated = sum(counted)
    return interrupted


@contextlib.contextmanager
def _bar(progress: Progress | bool | None, total: int) -> Iterator[Callable[[int], None]]:
    if callable(progress) or (progress is None and in_notebook()):
        tell = reported(progress, "search", total)
        yield lambda done: None if tell is None else tell(done, total, "mappings")
        if tell is not None:
            tell(total, total, "done")
        return
    reported(progress if progress is not True else None, "search")
    if not (can_steer(sys.stderr) if progress is None else progress):
        yield lambda _: None
        return
    from rich.progress import Progress as Bar  # 30 ms

    with Bar(console=rich_console(sys.stderr), transient=True) as bar:
        task = bar.add_task("search", total=total)
        yield lambda done: bar.update(task, completed=done)
